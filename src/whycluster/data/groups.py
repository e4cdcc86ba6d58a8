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


class CategoryCounts(NamedTuple):
    """How often each category of a column occurs in each group, and its relevance.

    Attributes
    ----------
    frequency : (G, categories) the share of the group's rows
    relevance : (G, categories) the sum of the column's relevance over the group's rows with the category
    n_values : (G,) the number of rows whose value is not missing
    """

    frequency: Floats
    relevance: Floats
    n_values: Floats


def group_categories(
    table: Table, group: Codes, n_groups: int, relevance: NDArray[Any], counted: NDArray[np.bool_]
) -> dict[int, CategoryCounts]:
    """Return the categories of each categorical column; for columns of free text, (G, 0).

    Relevance, (n, d), is added up over the rows in the mask ``counted``, (n,).
    """
    columns = table if table.raw is None else table.raw
    widths = {column: len(names) for column, names in columns.categories.items()}
    shapes = {c: (n_groups, n if n <= MOST_CATEGORIES else 0) for c, n in widths.items()}
    found = {
        c: CategoryCounts(np.zeros(shape), np.zeros(shape), np.zeros(n_groups)) for c, shape in shapes.items()
    }
    for start, block in columns.blocks() if found else ():
        rows = slice(start, start + len(block))
        for column, counts in found.items():
            width, known = counts.frequency.shape[1], block[:, column] >= 0
            np.add.at(counts.n_values, group[rows][known], 1.0)
            known &= width > 0
            places = group[rows][known] * width + block[known, column].astype(np.intp)
            amount = np.where(counted[rows], relevance[rows, column], 0.0)[known]
            for total, added in ((counts.frequency, 1.0), (counts.relevance, amount)):
                np.add.at(total.reshape(-1), places, added)
    size = np.bincount(group, minlength=n_groups)[:, None]
    return {c: counts._replace(frequency=counts.frequency / size) for c, counts in found.items()}


def membership(group: Codes, n_groups: int, counted: NDArray[np.bool_] | None = None) -> Any:
    """Return a sparse matrix, (n, G), that is 1 where a row is in a group and ``counted`` includes it."""
    from scipy import sparse

    ones = np.ones(len(group)) if counted is None else counted.astype(np.float64)
    return sparse.csr_array((ones, group, np.arange(len(group) + 1)), shape=(len(group), n_groups))
