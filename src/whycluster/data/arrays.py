"""Small tests and conversions of values and arrays of any type."""

import sys
from typing import Any

import numpy as np
from numpy.typing import NDArray

from whycluster.core.errors import InvalidInputError


def is_real(value: Any) -> bool:
    """Return whether a value is a real number; booleans and durations are not."""
    real = isinstance(value, (int, float, np.integer, np.floating))
    return real and not isinstance(value, (bool, np.timedelta64))


def is_sparse(X: Any) -> bool:
    """Return whether X is a matrix or an array of scipy.sparse."""
    sparse = sys.modules.get("scipy.sparse")  # if it is not loaded, X cannot be sparse
    return sparse is not None and bool(sparse.issparse(X))


DASK = ("dask.", "dask_expr.")
"""The modules of Dask collections, which need not be in memory."""


def is_dask(X: Any) -> bool:
    """Return whether X is a Dask collection; does not import Dask."""
    return type(X).__module__.startswith(DASK)


def as_array(values: Any) -> NDArray[Any]:
    """Return values as an array; an empty array of objects if they are ragged or cannot be converted."""
    try:
        return np.asarray(values.detach().cpu() if hasattr(values, "detach") else values)
    except (TypeError, ValueError, RuntimeError):  # ragged lists; tensors without values
        return np.empty(0, dtype=object)


def to_finite_array(table: Any) -> NDArray[np.float64]:
    """Return all rows of a table as one new array; raise if a value is not finite."""
    rows: NDArray[np.float64] = table.to_array()
    if not np.isfinite(rows).all():
        raise InvalidInputError(table.why_not_finite())
    return rows
