"""The mark of functions that treat every column on its own."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import numpy as np

from whycluster.core.errors import InvalidInputError

MARK = "whycluster_elementwise"

Function = TypeVar("Function", bound=Callable[..., Any])


def elementwise(function: Function) -> Function:
    """Mark a function as one that treats every value on its own, so that it can be explained through.

    It says of a function in scikit-learn's ``FunctionTransformer`` that column j of what it returns depends
    on column j of what it is given, row by row, and on nothing else. This is taken at its word. NumPy's
    ufuncs, such as ``np.log1p``, are known to be like this and need no mark.

    Parameters
    ----------
    function : function, lambda, ``functools.partial`` or any other callable that takes attributes

    Returns
    -------
    function : the same, with the attribute ``whycluster_elementwise = True``

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
        raise InvalidInputError(f"elementwise: function must be a function; got {function!r}.")
    if isinstance(function, np.ufunc):
        return function
    try:
        setattr(function, MARK, True)
    except (AttributeError, TypeError):
        name = getattr(function, "__name__", repr(function))
        raise InvalidInputError(
            f"elementwise: function must be one that can be marked; got {name}, a {type(function).__name__}, "
            f"which takes no attributes. Wrap it in a function of your own and mark that."
        ) from None
    return function
