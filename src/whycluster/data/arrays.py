"""Small helpers for values and arrays: tests, conversions and selections."""

import sys
from typing import Any

import numpy as np
from numpy.typing import NDArray

from whycluster.core.arrays import Codes, Floats, least
from whycluster.core.errors import InvalidInputError

_ROWS_AT_A_TIME = 4096  # the batch size in `transposed`
_VALUES_AT_A_TIME = 1 << 20  # the batch size in `smallest`
_FEW = 4  # up to this many columns are found one by one, if they are at most 1/4 of all columns


def is_real(value: Any) -> bool:
    """Return whether a value is a real number; booleans and durations do not count."""
    real = isinstance(value, (int, float, np.integer, np.floating))
    return real and not isinstance(value, (bool, np.timedelta64))


def is_sparse(X: Any) -> bool:
    """Return whether X is a SciPy sparse matrix or array."""
    sparse = sys.modules.get("scipy.sparse")  # if it is not loaded, X cannot be sparse
    return sparse is not None and bool(sparse.issparse(X))


DASK = ("dask.", "dask_expr.")
"""The prefixes of the modules that define Dask collections."""


def is_dask(X: Any) -> bool:
    """Return whether X is a Dask collection, without importing Dask."""
    return type(X).__module__.startswith(DASK)


def as_array_or_empty(values: Any) -> NDArray[Any]:
    """Convert values to an array, or to an empty array of objects if they are ragged or not convertible."""
    try:
        return np.asarray(values.detach().cpu() if hasattr(values, "detach") else values)
    except (TypeError, ValueError, RuntimeError):  # ragged lists; tensors without values
        return np.empty(0, dtype=object)


def to_finite_array(table: Any) -> NDArray[np.float64]:
    """Return all rows of a table as one new array; raise an error if a value is not finite."""
    rows: NDArray[np.float64] = table.to_array()
    if not np.isfinite(rows).all():
        raise InvalidInputError(table.why_out_of_range())
    return rows


def evenly_spaced(n: int, most: int) -> Codes:
    """Return at most ``most`` of n positions, evenly spaced from the first to the last."""
    return np.linspace(0, n - 1, min(n, most)).astype(np.intp)


def evenly_spaced_per_group(group: Codes, most: int) -> Codes:
    """Return the sorted positions of up to ``most`` evenly spaced rows of each group 0, 1, ..."""
    chosen = [np.empty(0, np.intp)]
    for code in np.unique(group[group >= 0]):
        own = np.flatnonzero(group == code)
        chosen.append(own[evenly_spaced(len(own), most)])
    return np.sort(np.concatenate(chosen))


def strongest(values: NDArray[Any], n: int) -> Codes:
    """Return the columns of each row's n largest absolute values, in descending order; ties go by column."""
    size = -np.abs(values)
    few = n <= _FEW and n * _FEW <= size.shape[1] and len(size) > 1 and not np.isnan(size.sum())
    return _one_by_one(size, n) if few else smallest(size, n)


def smallest(values: NDArray[Any], n: int) -> Codes:
    """Return the columns of each row's n smallest values, in ascending order; ties go by column."""
    columns = np.empty((len(values), min(n, values.shape[1])), np.intp)
    size = max(1, _VALUES_AT_A_TIME // max(1, values.shape[1]))
    for start in range(0, len(values), size):
        columns[start : start + size] = _first(values[start : start + size], n)
    return columns


def _first(values: NDArray[Any], n: int) -> Codes:
    """Return the result of `smallest` for some rows; rows with a tie at rank n are fully sorted."""
    if n * _FEW > values.shape[1] or np.isnan(values.sum()):
        return np.asarray(np.argsort(values, axis=1, kind="stable")[:, :n])
    some = np.sort(np.argpartition(values, n - 1, axis=1)[:, :n], axis=1)
    found = np.take_along_axis(values, some, axis=1)
    columns = np.take_along_axis(some, np.argsort(found, axis=1, kind="stable"), axis=1)
    tied = np.flatnonzero((values <= found.max(axis=1, initial=-np.inf)[:, None]).sum(axis=1) > n)
    columns[tied] = np.argsort(values[tied], axis=1, kind="stable")[:, :n]
    return columns


def _one_by_one(size: NDArray[Any], n: int) -> Codes:
    """Return the columns of each row's n smallest values, found one at a time, which is fast for small n."""
    size, rows = transposed(size).T, np.arange(len(size))
    columns: Codes = np.empty((n, len(size)), np.intp).T
    for rank in range(n):
        columns[:, rank], _ = least(size)
        size[rows, columns[:, rank]] = 1  # larger than all other values
    return columns


def transposed(rows: NDArray[Any], dtype: Any = None) -> NDArray[Any]:
    """Return the transposed rows as a contiguous array, (d, n).

    Rows are copied in batches that fit in the cache, which is three times as fast as a single copy.
    """
    if rows.T.flags.c_contiguous and rows.dtype == (dtype or rows.dtype):
        return np.asarray(rows.T)  # no copy needed
    columns = np.empty(rows.shape[::-1], rows.dtype if dtype is None else dtype)
    for start in range(0, len(rows), _ROWS_AT_A_TIME):
        columns[:, start : start + _ROWS_AT_A_TIME] = rows[start : start + _ROWS_AT_A_TIME].T
    return columns


def row_positions(rows: Any, n_rows: int) -> Codes:
    """Return the positions selected by an index, a list of indices, a slice or a mask."""
    if isinstance(rows, (int, np.integer)) and not isinstance(rows, bool):
        if not -n_rows <= rows < n_rows:
            raise IndexError(f"explanation[{rows}]: rows must be positions from 0 to {n_rows - 1}.")
        return np.array([range(n_rows)[rows]])
    if isinstance(rows, slice):
        return np.arange(n_rows)[rows]
    chosen = np.asarray(None if isinstance(rows, tuple) else rows)  # a tuple would index a second axis
    mask = chosen.dtype == bool and chosen.shape == (n_rows,)
    if mask or (chosen.ndim == 1 and chosen.dtype.kind in "iu"):
        return np.asarray(np.arange(n_rows)[chosen])
    if chosen.shape == (0,):
        return chosen.astype(np.intp)
    raise InvalidInputError(
        f"explanation[rows]: rows must be an index, a slice, a list of indices or a mask of length {n_rows}; "
        f"got {chosen.dtype} of shape {chosen.shape}."
    )


def standardized(x: Floats) -> Floats:
    """Scale the columns to mean 0 and standard deviation 1; constant columns become 0."""
    spread = x.std(axis=0)
    return np.asarray((x - x.mean(axis=0)) / np.where(spread > 0, spread, 1.0))
