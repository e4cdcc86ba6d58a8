"""Statistics of groups of rows, such as the rows of each cluster."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from whycluster.core.arrays import Codes, Floats
from whycluster.data.arrays import evenly_spaced
from whycluster.data.table import ArrayTable, Table

MOST_CATEGORIES = 1000
"""A column with more categories holds free text; its frequencies are not counted."""
_TYPICAL_ROWS = 1001  # number of rows whose median is the reference


class GroupMeans(NamedTuple):
    """The mean of each column in each group, ignoring missing values.

    Attributes
    ----------
    reference : (d,) a typical row
    moved : (G, d) the mean of the rows minus the reference, or NaN if all values are missing. Subtracting
        the reference preserves precision when the data are far from 0
    n_values : (G, d) the number of values that are not missing
    """

    reference: Floats
    moved: Floats
    n_values: Floats


def group_means(table: Table, group: Codes, n_groups: int) -> GroupMeans:
    """Return the means of the user's columns, for groups 0..G-1 given by ``group``, (n,)."""
    columns = table if table.raw is None else table.raw
    reference = _typical_row(columns)
    sums = np.zeros((n_groups, columns.n_features))
    size = np.bincount(group, minlength=n_groups)
    count = np.repeat(size[:, None], columns.n_features, axis=1).astype(np.float64)
    for start, block in columns.blocks():
        member, moved = membership(group[start : start + len(block)], n_groups), block - reference
        missing = np.isnan(moved)
        if missing.any():
            count -= member.T @ missing
            moved[missing] = 0.0
        sums += member.T @ moved
    means = np.divide(sums, count, out=np.full_like(sums, np.nan), where=count > 0)
    return GroupMeans(reference, means, count)


def _typical_row(table: Table) -> Floats:
    """Return the median of a few rows, (d,), which is robust to outliers."""
    if table.n_rows == 0:
        return np.zeros(table.n_features)
    values = table.take(evenly_spaced(table.n_rows, _TYPICAL_ROWS)).to_array()
    values[:, np.isnan(values).all(axis=0)] = 0.0  # columns without any values have no median
    return np.asarray(np.nanmedian(values, axis=0))


def group_sums(
    values: NDArray[Any], group: Codes, n_groups: int, counted: NDArray[np.bool_] | None = None
) -> Floats:
    """Return the sum of the rows of each group, (G, d). The mask ``counted``, (n,), selects the rows."""
    sums = np.zeros((n_groups, values.shape[1]))
    for start, block in ArrayTable.of(values).blocks():
        rows = slice(start, start + len(block))
        sums += membership(group[rows], n_groups, None if counted is None else counted[rows]).T @ block
    return sums


def group_frequencies(table: Table, group: Codes, n_groups: int) -> dict[int, Floats]:
    """Return the frequency of each category in each group, (G, categories), for each categorical column.

    For columns of free text, the result is empty, (G, 0).
    """
    columns = table if table.raw is None else table.raw
    widths = {column: len(names) for column, names in columns.categories.items()}
    counts = {c: np.zeros((n_groups, n if n <= MOST_CATEGORIES else 0)) for c, n in widths.items()}
    for start, block in columns.blocks() if counts else ():
        rows = group[start : start + len(block)]
        for column, count in counts.items():
            known = (block[:, column] >= 0) & (count.shape[1] > 0)
            np.add.at(count, (rows[known], block[known, column].astype(np.intp)), 1.0)
    size = np.bincount(group, minlength=n_groups)[:, None]
    return {column: count / size for column, count in counts.items()}


def membership(group: Codes, n_groups: int, counted: NDArray[np.bool_] | None = None) -> Any:
    """Return a sparse matrix, (n, G), that is 1 where a row is in a group and ``counted`` includes it."""
    from scipy import sparse

    ones = np.ones(len(group)) if counted is None else counted.astype(np.float64)
    return sparse.csr_array((ones, group, np.arange(len(group) + 1)), shape=(len(group), n_groups))
