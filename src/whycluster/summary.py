"""What makes each cluster: the explanations of its members, averaged."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from whycluster import console
from whycluster.arrays import Codes, Floats
from whycluster.frames import as_column, build_frame
from whycluster.labels import NOISE
from whycluster.table import ArrayTable, Table

_ROUNDING = 1e-9  # means that differ by less, relatively, differ by rounding
_ALIKE = 0.1  # and those by less than this part of their spread over the clusters are alike
_LEAST_SHARE = 0.005  # what would be printed as 0 %


@dataclass(frozen=True, repr=False, eq=False)
class Summary:
    """Per cluster (G of them) and feature (d), what defines the cluster; `print` it, or `to_frame`.

    Attributes
    ----------
    clusters : (G,) the labels of the clusters that have members
    size : (G,) the number of members
    relevance : (G, d) their mean relevance
    share : (G, d) relevance as a part of the cluster's total absolute relevance, from -1 to 1; negative
        where the feature speaks against the cluster on average
    direction : (G, d) "high" where the cluster's mean is above those of most other clusters, "low" where it
        is below, "middle" where they lie on both sides, "" where there is nothing to compare; "far" for
        noise, which is off on either side; for a category, the one that is most frequent in the cluster
    inside, outside : (G, d) the mean value of the feature in the cluster and in all other rows, for a
    category
        how frequent that one is; outside is NaN where there are no other rows
    feature_names : the d names
    """

    clusters: NDArray[Any]
    size: NDArray[np.intp]
    relevance: Floats
    direction: NDArray[np.str_]
    inside: Floats
    outside: Floats
    feature_names: list[Hashable]
    _like: Any = None
    _has_categories: bool = False

    @property
    def share(self) -> Floats:
        """(G, d) relevance over the cluster's total absolute relevance."""
        total = np.abs(self.relevance).sum(axis=1, keepdims=True)
        share = np.zeros_like(self.relevance)
        np.divide(self.relevance, total, out=share, where=total > 0)
        return share

    def to_frame(self, backend: str | None = None) -> Any:
        """One row per cluster and feature, the most relevant feature of a cluster first.

        The frame is of the library the data came in; ``backend`` ("pandas", "polars", "pyarrow")
        chooses another.
        """
        d = len(self.feature_names)
        order = np.argsort(-self.relevance, axis=1, kind="stable")

        def sort(values: NDArray[Any]) -> NDArray[Any]:
            return np.take_along_axis(values, order, axis=1).ravel()

        columns: dict[Hashable, NDArray[Any]] = {
            "cluster": np.repeat(self.clusters, d),
            "size": np.repeat(self.size, d),
            "feature": as_column(self.feature_names)[order].ravel(),
            "relevance": sort(self.relevance),
            "share": sort(self.share),
            "direction": sort(self.direction),
            "mean_inside": sort(self.inside),
            "mean_outside": sort(self.outside),
        }
        return build_frame(columns, self._like, backend, "summary.to_frame", same_rows=False)

    def tell(self, n_features: int = 5) -> str:
        """The strongest features of each cluster, as text."""
        if not len(self.clusters):
            return "No row belongs to the cluster it is explained for, so there is nothing to average."
        heads = ["cluster", "rows", "", "feature", "share", "", "mean inside", "outside"]
        if self._has_categories:
            heads[6] = "mean or frequency inside"
        shares = self.share
        largest = float(np.abs(shares).max())
        rows = [
            line
            for group, share in enumerate(shares)
            for line in self._lines(group, share, largest, n_features)
        ]
        return console.table(heads, rows, align="<><<><>>")

    def __str__(self) -> str:
        return self.tell()

    __repr__ = __str__  # a notebook shows the table too

    def _lines(self, group: int, share: Floats, largest: float, n_features: int) -> list[list[str]]:
        """The strongest features of one cluster."""
        strongest = np.argsort(-np.abs(share), kind="stable")[:n_features]
        strongest = strongest[: max(1, int((np.abs(share[strongest]) >= _LEAST_SHARE).sum()))]
        return [
            [
                str(self.clusters[group]) if rank == 0 else "",
                str(self.size[group]) if rank == 0 else "",
                str(self.direction[group, i]),
                str(self.feature_names[i]),
                f"{share[i]:.0%}",
                console.bar(share[i], largest),
                f"{self.inside[group, i]:.3g}",
                "" if np.isnan(self.outside[group, i]) else f"{self.outside[group, i]:.3g}",
            ]
            for rank, i in enumerate(strongest)
        ]


def summarize(
    table: Table,
    relevance: NDArray[Any],
    assigned: Codes,
    explained: NDArray[np.bool_],
    labels: NDArray[Any],
    like: Any,
) -> Summary:
    """Average over the members of each cluster.

    Parameters
    ----------
    table, relevance : the n rows and their explanations
    assigned : (n,) the code of the cluster each row belongs to
    explained : (n,) whether the row is explained for that cluster
    labels : (K,) the names of the codes
    like : the frame whose library `Summary.to_frame` takes
    """
    present, group = np.unique(assigned, return_inverse=True)
    size = np.bincount(group, minlength=len(present))
    reference = _typical(table)  # means are taken from here, so that data far from 0 keep their digits
    moved, there = _means(table, group, reference)
    n_explained = np.bincount(group, weights=explained, minlength=len(present))
    chosen = n_explained > 0
    inside, outside = moved + reference, _outside(moved, there) + reference
    direction: NDArray[Any] = _directions(moved, there)
    direction[[isinstance(name, str) and name == NOISE for name in labels[present].tolist()]] = "far"
    if table.categories:
        direction = direction.astype(object)  # text of any length
        for column, frequency in _frequencies(table, group, len(size)).items():
            most = frequency.argmax(axis=1)
            direction[:, column] = [str(table.categories[column][code]) for code in most]
            inside[:, column] = frequency[np.arange(len(size)), most]
            outside[:, column] = _outside(frequency, size[:, None])[np.arange(len(size)), most]
        direction = direction.astype(str)
    total = _sums(ArrayTable.of(relevance), group, explained)[chosen]
    return Summary(
        clusters=labels[present[chosen]],
        size=n_explained[chosen].astype(np.intp),
        relevance=total / n_explained[chosen, None],
        direction=direction[chosen],
        inside=inside[chosen],
        outside=outside[chosen],
        feature_names=table.feature_names,
        _like=like,
        _has_categories=bool(table.categories),
    )


def _typical(table: Table, n_rows: int = 1001) -> Floats:
    """A point among the rows, (d,): the median of some of them, which no few rows far off can move."""
    if table.n_rows == 0:
        return np.zeros(table.n_features)
    some = np.linspace(0, table.n_rows - 1, min(n_rows, table.n_rows)).astype(np.intp)
    rows = table.take(some).to_array()
    rows[:, np.isnan(rows).all(axis=0)] = 0.0  # a column without any value
    return np.asarray(np.nanmedian(rows, axis=0))


def _means(table: Table, group: Codes, reference: Floats) -> tuple[Floats, Floats]:
    """Of each group the mean of the rows minus the reference, over the values that are there; and how many.

    Both (G, d); NaN where there is none.
    """
    sums = np.zeros((group.max(initial=-1) + 1, table.n_features))
    there = np.zeros_like(sums)
    for start, block in table.blocks():
        rows = slice(start, start + len(block))
        member = _members(group[rows], np.ones(len(block)), len(sums))
        known = ~np.isnan(block)
        sums += np.asarray(member.T @ np.where(known, block - reference, 0.0))
        there += np.asarray(member.T @ known.astype(np.float64))
    return np.divide(sums, there, out=np.full_like(sums, np.nan), where=there > 0), there


def _members(group: Codes, weights: Floats, n_groups: int) -> Any:
    """(n, G) the weight of each row, in the column of its group."""
    from scipy import sparse

    return sparse.csr_array((weights, group, np.arange(len(group) + 1)), shape=(len(group), n_groups))


def _sums(table: Table, group: Codes, weights: NDArray[np.bool_]) -> Floats:
    """Sums of the rows that have a weight over each group, (G, d)."""
    sums = np.zeros((group.max(initial=-1) + 1, table.n_features))
    for start, block in table.blocks():
        rows = slice(start, start + len(block))
        sums += np.asarray(_members(group[rows], weights[rows].astype(np.float64), len(sums)).T @ block)
    return sums


def _frequencies(table: Table, group: Codes, n_groups: int) -> dict[int, Floats]:
    """Of each column of categories how frequent they are in each group, (G, categories)."""
    counts = {column: np.zeros((n_groups, len(names))) for column, names in table.categories.items()}
    for start, block in table.blocks():
        rows = group[start : start + len(block)]
        for column, count in counts.items():
            known = block[:, column] >= 0
            np.add.at(count, (rows[known], block[known, column].astype(np.intp)), 1.0)
    size = np.bincount(group, minlength=n_groups)[:, None]
    return {column: count / size for column, count in counts.items()}


def _outside(inside: Floats, size: NDArray[Any]) -> Floats:
    """The mean of the rows that are not in the group, (G, d); NaN where there are none.

    ``size`` is how many rows count in each group, (G, d) or (G, 1).
    """
    other = 1.0 - np.eye(len(size))
    total, n_others = other @ (size * _or_zero(inside)), other @ size
    outside = np.full_like(inside, np.nan)
    np.divide(total, n_others, out=outside, where=n_others > 0)
    return outside


def _directions(inside: Floats, size: Floats) -> NDArray[np.str_]:
    """Where each group's mean stands among those of the others, which count by their rows, (G, d)."""
    words = np.full(inside.shape, "", dtype="<U6")
    weight, mean_or_zero = size / np.maximum(1, size.sum(axis=0)), _or_zero(inside)
    square = (weight * mean_or_zero**2).sum(axis=0)
    spread = np.sqrt(np.maximum(square - (weight * mean_or_zero).sum(axis=0) ** 2, 0.0))
    outside = _outside(inside, size)
    for group, mean in enumerate(inside):
        rounding = _ROUNDING * np.maximum(np.abs(inside), np.abs(mean))
        apart = np.abs(inside - mean) > np.maximum(rounding, _ALIKE * spread)
        above = (size * (apart & (inside > mean))).sum(axis=0)
        below = (size * (apart & (inside < mean))).sum(axis=0)
        words[group][above + below > 0] = "middle"
        words[group][(below > 3 * above) & (mean > outside[group])] = "high"
        words[group][(above > 3 * below) & (mean < outside[group])] = "low"
    return words


def _or_zero(means: Floats) -> Floats:
    """Groups without a value count for nothing."""
    return np.where(np.isnan(means), 0.0, means)
