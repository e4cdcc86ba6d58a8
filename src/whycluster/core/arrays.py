"""The two kinds of arrays that all modules exchange, and a few operations on them."""

from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

Floats: TypeAlias = NDArray[np.float64]

Codes: TypeAlias = NDArray[np.intp]
"""Clusters as 0..K-1, in the order of their energies."""

_AT_A_TIME = 4096  # rows
_FEW = 4  # columns at most, and one of so many


def evenly(n: int, most: int) -> Codes:
    """At most so many of n positions, evenly from the first to the last."""
    return np.linspace(0, n - 1, min(n, most)).astype(np.intp)


def strongest(values: NDArray[Any], n: int) -> Codes:
    """Columns of the n values of largest size in each row, in descending order, the first on a tie."""
    size = -np.abs(values)
    if n * _FEW > size.shape[1] or len(size) < 2 or np.isnan(size.sum()):
        return np.asarray(np.argsort(size, axis=1, kind="stable")[:, :n])
    return _first(size, n) if n > _FEW else _one_by_one(size, n)


def _first(size: NDArray[Any], n: int) -> Codes:
    """Columns of the n least of each row, by parting the row at the n-th; and by sorting, where that ties."""
    some = np.sort(np.argpartition(size, n - 1, axis=1)[:, :n], axis=1)
    found = np.take_along_axis(size, some, axis=1)
    columns = np.take_along_axis(some, np.argsort(found, axis=1, kind="stable"), axis=1)
    tied = np.flatnonzero((size <= found.max(axis=1)[:, None]).sum(axis=1) > n)
    columns[tied] = np.argsort(size[tied], axis=1, kind="stable")[:, :n]
    return columns


def _one_by_one(size: NDArray[Any], n: int) -> Codes:
    """The same, one after the other, which is faster for few of many."""
    size, rows = turned(size).T, np.arange(len(size))
    columns: Codes = np.empty((n, len(size)), np.intp).T
    for rank in range(n):
        columns[:, rank], _ = least(size)
        size[rows, columns[:, rank]] = 1  # more than any other
    return columns


def least(values: NDArray[Any]) -> tuple[Codes, NDArray[Any]]:
    """Column of the least value of each row, the first on a tie, and that value; none of them may be NaN."""
    if values.flags.c_contiguous:
        column = np.asarray(values.argmin(axis=1))
        return column, values[np.arange(len(values)), column]
    # Column by column, NumPy's argmin would copy and then call a loop per row. Find the least value
    # instead, number the columns from the end, and take the highest number where it is attained.
    n_columns = values.shape[1]
    found = values.min(axis=1)
    number = np.arange(n_columns, 0, -1, dtype=np.min_scalar_type(n_columns))
    attained: Codes = ((values == found[:, None]) * number).max(axis=1).astype(np.intp)
    return np.subtract(n_columns, attained), found


def row_sums(values: Floats) -> Floats:
    """Sums over the last axis, as a product with ones: much faster than sum() for few columns."""
    return values @ np.ones(values.shape[1])


def standardized(x: Floats) -> Floats:
    """Return the columns with mean 0 and standard deviation 1; constant columns become 0."""
    spread = x.std(axis=0)
    return np.asarray((x - x.mean(axis=0)) / np.where(spread > 0, spread, 1.0))


def turned(rows: NDArray[Any], dtype: Any = None) -> NDArray[Any]:
    """Column by column, (d, n): some rows at a time, which stay in the cache, at a third of the time."""
    if rows.T.flags.c_contiguous and rows.dtype == (dtype or rows.dtype):
        return np.asarray(rows.T)  # they are already
    columns = np.empty(rows.shape[::-1], rows.dtype if dtype is None else dtype)
    for start in range(0, len(rows), _AT_A_TIME):
        columns[:, start : start + _AT_A_TIME] = rows[start : start + _AT_A_TIME].T
    return columns
