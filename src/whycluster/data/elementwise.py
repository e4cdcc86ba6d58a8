"""The `elementwise` decorator, which marks functions that transform each column separately."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import numpy as np

from whycluster.core.errors import InvalidInputError

MARK = "whycluster_elementwise"

Function = TypeVar("Function", bound=Callable[..., Any])


def elementwise(function: Function) -> Function:
    """Mark a function as elementwise, so that pipelines that contain it can be explained.

    Use it for the function of a scikit-learn ``FunctionTransformer`` if column j of its result depends only
    on column j of its input, row by row. The mark is trusted, not checked. NumPy ufuncs, such as
    ``np.log1p``, are elementwise and need no mark.

    Parameters
    ----------
    function : function, lambda, ``functools.partial`` or any other callable that accepts attributes

    Returns
    -------
    function : the same function, with the attribute ``whycluster_elementwise = True``

    Examples
    --------
    >>> import whycluster as wc
    >>> @wc.elementwise
    ... def fahrenheit(X):
    ...     return X * 1.8 + 32
    >>> fahrenheit.whycluster_elementwise
    True
    """
    if not callable(function):
        raise InvalidInputError(f"elementwise: function must be callable; got {function!r}.")
    if isinstance(function, np.ufunc):
        return function
    try:
        setattr(function, MARK, True)
    except (AttributeError, TypeError):
        name = getattr(function, "__name__", repr(function))
        raise InvalidInputError(
            f"elementwise: function must accept attributes; got {name}, a {type(function).__name__}, which "
            f"does not. Wrap it in a function of your own and mark that function."
        ) from None
    return function
