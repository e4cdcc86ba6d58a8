"""The two kinds of arrays that all modules exchange, and a few operations on them."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

Floats: TypeAlias = NDArray[np.float64]
Codes: TypeAlias = NDArray[np.intp]  # clusters as 0..K-1, in the order of the energy's columns


class _Mode(threading.local):
    row_by_row = False


_mode = _Mode()


@contextmanager
def row_by_row() -> Iterator[None]:
    """Compute products separately for each row on this thread; see `whycluster.models.tiles`."""
    before, _mode.row_by_row = _mode.row_by_row, True
    try:
        yield
    finally:
        _mode.row_by_row = before


def product(rows: NDArray[Any], matrix: NDArray[Any], out: NDArray[Any] | None = None) -> NDArray[Any]:
    """Return the product of some rows, (b, m), and a matrix, (m, p), or a vector, (m,).

    BLAS sums in an order that depends on b and on the position of the row. In the mode `row_by_row`, it does
    not.
    """
    if not _mode.row_by_row:
        return np.matmul(rows, matrix, out=out)
    each: NDArray[Any] = np.matmul(rows[:, None, :], matrix)[:, 0]
    if out is None:
        return each
    out[...] = each
    return out


def product_by_columns(matrix: NDArray[Any], rows: NDArray[Any], out: NDArray[Any]) -> None:
    """Write the product of a matrix, (p, m), and the columns of rows, (b, m), into ``out``, (p, b)."""
    if _mode.row_by_row:
        product(rows, matrix.T, out.T)
    else:
        np.matmul(matrix, rows.T, out=out)


def least(values: NDArray[Any]) -> tuple[Codes, NDArray[Any]]:
    """Return the column of the smallest value in each row, and that value.

    If several columns tie, the first one is returned. ``values`` must not contain NaN.
    """
    if values.flags.c_contiguous:
        column = np.asarray(values.argmin(axis=1))
        return column, values[np.arange(len(values)), column]
    # For arrays stored by columns, NumPy's argmin copies them and then loops over each row separately.
    # Instead, find the least value of each row, number the columns from the end, and take the highest number
    # among the columns that hold this value.
    n_columns = values.shape[1]
    found = values.min(axis=1)
    number = np.arange(n_columns, 0, -1, dtype=np.min_scalar_type(n_columns))
    attained: Codes = ((values == found[:, None]) * number).max(axis=1).astype(np.intp)
    return np.subtract(n_columns, attained), found


def row_sums(values: Floats) -> Floats:
    """Return the sum of each row as a product with ones, since sum() is much slower for few columns."""
    return product(values, np.ones(values.shape[1]))
