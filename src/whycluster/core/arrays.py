"""The two kinds of arrays that all modules exchange, and a few operations on them."""

from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

Floats: TypeAlias = NDArray[np.float64]
Codes: TypeAlias = NDArray[np.intp]  # clusters as 0..K-1, in the order of the energy's columns


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
    return values @ np.ones(values.shape[1])
