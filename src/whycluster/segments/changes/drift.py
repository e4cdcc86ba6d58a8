"""Drift: which columns changed within the clusters, with a test that noise alone rarely passes.

For each cluster and each column, the mean of the cluster's rows before is compared with that of its rows
after; for categories and missing values, the share of rows is the mean of an indicator. The test statistic is
the difference of the two means divided by its standard error if nothing changed. Rows that are in the cluster
both times count as pairs, so a small change in every row is detected even if the rows differ a lot from each
other. Holm's method corrects for the number of tests.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from scipy.stats import norm

from whycluster.core.arrays import Codes, Floats
from whycluster.data.groups import membership
from whycluster.data.table import Table

LEVEL = 0.01
"""The probability that any alarm is raised if nothing changed."""
LEAST_SHIFT = 0.1
"""The least shift that raises an alarm, in standard deviations within the cluster."""
_MOST_CATEGORIES = 20  # only the most frequent categories of a column are compared


@dataclass(frozen=True)
class DriftTest:
    """The comparison of one column in one cluster.

    Attributes
    ----------
    cluster, column : the code of the cluster, and the name of the column
    category : the category whose share is compared; None for a mean or for missing values
    is_missing : whether the share of missing values is compared
    before, after : the means or shares
    n_before, n_after : the number of rows
    shift : the difference in standard deviations of the cluster's rows
    p_value : the probability of a difference of at least this size if nothing changed, corrected for all
        tests
    is_date : whether the means are days since 1970
    """

    cluster: int
    column: Hashable
    category: Any
    is_missing: bool
    before: float
    after: float
    n_before: int
    n_after: int
    shift: float
    p_value: float
    is_date: bool

    @property
    def is_alarm(self) -> bool:
        """Whether the difference is neither small nor likely to be chance."""
        return self.p_value <= LEVEL and abs(self.shift) >= LEAST_SHIFT

    @property
    def is_share(self) -> bool:
        """Whether the numbers are shares of rows."""
        return self.is_missing or self.category is not None


class _Measure(NamedTuple):
    """One number per row: the value of a column, or whether it is a category or missing."""

    column: int
    category: Any = None
    is_missing: bool = False


class _Measures:
    """The numbers to compare, read from two tables with the same columns."""

    def __init__(self, before: Table, after: Table, columns: Codes) -> None:
        self.tables = [table if table.raw is None else table.raw for table in (before, after)]
        self.columns = columns
        # A column without values in one of the tables is read as numbers there.
        self.coded = {c for table in self.tables for c in table.categories}
        self.dates = {c for table in self.tables for c in table.dates}
        self.all = [each for c in columns.tolist() for each in self._of_column(c)]
        self.center = self._centers()

    def _of_column(self, column: int) -> Iterator[_Measure]:
        if column not in self.coded:
            yield _Measure(column)
        for category in self._frequent(column) if column in self.coded else ():
            yield _Measure(column, category)
        yield _Measure(column, is_missing=True)

    def _frequent(self, column: int) -> list[Any]:
        """Return the most frequent categories of both tables."""
        counts: dict[Any, int] = {}
        for table in self.tables:
            names = table.categories.get(column, ())
            found = np.zeros(len(names), dtype=np.intp)
            for _, block in table.blocks() if len(names) else ():
                codes = block[:, column]
                found += np.bincount(codes[codes >= 0].astype(np.intp), minlength=len(names))
            for name, n in zip(names, found.tolist(), strict=True):
                counts[name] = counts.get(name, 0) + n
        known = [name for name in sorted(counts, key=lambda name: (-counts[name], str(name))) if counts[name]]
        return known[:_MOST_CATEGORIES]

    def _centers(self) -> Floats:
        """Return the first value of each measure; products lose precision if values are far from 0."""
        found = np.zeros(len(self.all))
        for table in self.tables[::-1]:
            for _, block in table.blocks():
                first = self.read(table, block[:1])[0]
                found = np.where(np.isnan(first), found, first)
                break
        return np.where([each.category is None and not each.is_missing for each in self.all], found, 0.0)

    def read(self, table: Table, block: Floats) -> Floats:
        """Return the measures of a block of rows, (b, T), with NaN where a value is missing."""
        out = np.empty((len(block), len(self.all)))
        for place, (column, category, is_missing) in enumerate(self.all):
            values, names = block[:, column], table.categories.get(column)
            missing = np.isnan(values) if names is None else values < 0
            if is_missing:
                out[:, place] = missing
            elif category is None:
                out[:, place] = values
            else:
                code = list(names).index(category) if names is not None and category in names else None
                out[:, place] = 0.0 if code is None else values == code
        return out


class _Sums(NamedTuple):
    """Sums over the rows of each cluster, (K, T): their number, the values, and the squares or products."""

    n: Floats
    values: Floats
    products: Floats


def find_drift(
    before: Table, after: Table, clusters: tuple[Codes, Codes], pairs: tuple[Codes, Codes], columns: Codes
) -> list[DriftTest]:
    """Compare the columns of two tables within each cluster.

    Parameters
    ----------
    before, after : the tables, opened by the same network
    clusters : the cluster of each row of the two tables
    pairs : the positions of the rows that both tables have
    columns : the positions of the columns to compare
    """
    measures, n_clusters = _Measures(before, after, columns), 1 + max(int(c.max()) for c in clusters)
    if not measures.all:
        return []
    sums = [_sums(measures, table, c, n_clusters) for table, c in zip(measures.tables, clusters, strict=True)]
    stayed = clusters[0][pairs[0]] == clusters[1][pairs[1]]
    both = _paired_sums(measures, (pairs[0][stayed], pairs[1][stayed]), clusters[0], n_clusters)
    z, shift = _statistics(sums[0], sums[1], *both)
    places = np.argwhere(np.isfinite(z))
    p_values = holm(2.0 * norm.sf(np.abs(z[tuple(places.T)])))
    means = [each.values / np.maximum(each.n, 1) + measures.center for each in sums]
    return [
        DriftTest(
            int(k),
            before.feature_names[measures.all[t].column],
            measures.all[t].category,
            measures.all[t].is_missing,
            float(means[0][k, t]),
            float(means[1][k, t]),
            int(sums[0].n[k, t]),
            int(sums[1].n[k, t]),
            float(shift[k, t]),
            p_value,
            measures.all[t].column in measures.dates,
        )
        for (k, t), p_value in zip(places.tolist(), p_values.tolist(), strict=True)
    ]


def _sums(measures: _Measures, table: Table, cluster: Codes, n_clusters: int) -> _Sums:
    found = _Sums(*np.zeros((3, n_clusters, len(measures.all))))
    for start, block in table.blocks():
        y = measures.read(table, block) - measures.center
        member = membership(cluster[start : start + len(block)], n_clusters).T
        _add(found, member, y, y)
    return found


def _add(sums: _Sums, member: Any, y: Floats, other: Floats) -> None:
    """Add the rows in which both values are present."""
    known = ~np.isnan(y) & ~np.isnan(other)
    y, other = np.where(known, y, 0.0), np.where(known, other, 0.0)
    for total, values in zip(sums, (known.astype(np.float64), y, y * other), strict=True):
        total += member @ values


def _paired_sums(
    measures: _Measures, pairs: tuple[Codes, Codes], cluster: Codes, n_clusters: int
) -> tuple[_Sums, _Sums]:
    """Return the sums over the pairs, with the values before and with the values after."""
    found = [_Sums(*np.zeros((3, n_clusters, len(measures.all)))) for _ in range(2)]
    for rows in measures.tables[0].slices(len(measures.all)):
        if rows.start >= len(pairs[0]):
            break
        here = [positions[rows] for positions in pairs]
        y = [
            measures.read(some, some.to_array()) - measures.center
            for some in (table.take(p) for table, p in zip(measures.tables, here, strict=True))
        ]
        member = membership(cluster[here[0]], n_clusters).T
        _add(found[0], member, y[0], y[1])
        _add(found[1], member, y[1], y[0])
    return found[0], found[1]


def _statistics(before: _Sums, after: _Sums, first: _Sums, second: _Sums) -> tuple[Floats, Floats]:
    """Return the difference of the means in standard errors and in standard deviations, (K, T).

    If nothing changed, the difference has mean 0 and the variance sum_i u_i^2, where u_i is what row i
    contributes to it: its value after, minus the mean of both times, divided by the number of rows after,
    minus the same for its value before. NaN if a cluster is empty before or after, or without variation.
    """
    with np.errstate(invalid="ignore", divide="ignore"):
        mean = (before.values + after.values) / (before.n + after.n)
        squares = [each.products - 2 * mean * each.values + mean**2 * each.n for each in (before, after)]
        crossed = first.products - mean * (first.values + second.values) + mean**2 * first.n
        n_0, n_1 = before.n, after.n
        variance = squares[0] / n_0**2 + squares[1] / n_1**2 - 2 * crossed / (n_0 * n_1)
        difference = after.values / n_1 - before.values / n_0
        spread = np.sqrt(np.maximum(squares[0] + squares[1], 0.0) / (n_0 + n_1))
        z = difference / np.sqrt(variance)
        shift = difference / spread
    # Without variation, or if no row changed, only rounding errors are left.
    still = np.abs(difference) <= 1e-9 * spread
    is_known = (n_0 > 0) & (n_1 > 0)
    z[still & is_known], shift[still & is_known] = 0.0, 0.0
    z[~is_known | ~(spread > 0)] = np.nan
    return np.asarray(z), np.asarray(shift)


def holm(p_values: Floats) -> Floats:
    """Return p-values corrected for their number by Holm's method."""
    n = len(p_values)
    order = np.argsort(p_values, kind="stable")
    found = np.empty(n)
    found[order] = np.maximum.accumulate(p_values[order] * np.arange(n, 0, -1)) if n else []
    return np.minimum(found, 1.0)
