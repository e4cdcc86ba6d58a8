"""What makes each cluster: the explanations of its members, averaged."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray

from whycluster.core.arrays import Codes, Floats, evenly
from whycluster.data import display
from whycluster.data.frames import as_column, build_frame
from whycluster.data.labels import is_noise
from whycluster.data.table import ArrayTable, Table
from whycluster.explanations.formatting import Line, rest

_ROUNDING = 1e-9  # means that differ by less, relatively, differ by rounding
_ALIKE = 0.1  # and those by less than this part of their spread over the clusters are alike
_LEAST_SHARE = 0.005  # what would be printed as 0 %
_MOST_CATEGORIES = 1000  # of a column; more are free text
MISSING = "missing"


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
        noise, which is off on either side; for a category, the one that is most frequent in the cluster;
        "missing" where most of the cluster's values are, and more often than elsewhere
    inside, outside : (G, d) the mean value of the feature in the cluster and in all other rows, without those
        that are missing; for a category, and for "missing", how frequent that is; for a date in days since
        1970. NaN where there is nothing to average
    feature_names : the d names
    """

    noun: ClassVar[str] = "feature"
    clusters: NDArray[Any]
    size: NDArray[np.intp]
    relevance: Floats
    direction: NDArray[np.str_]
    inside: Floats
    outside: Floats
    feature_names: list[Hashable]
    _like: Any = None
    _categories: frozenset[int] = frozenset()
    _dates: frozenset[int] = frozenset()
    _note: str = ""

    @property
    def share(self) -> Floats:
        """(G, d) relevance over the cluster's total absolute relevance."""
        total = np.abs(self.relevance).sum(axis=1, keepdims=True)
        share = np.zeros_like(self.relevance)
        np.divide(self.relevance, total, out=share, where=total > 0)
        return share

    def sorted(self, values: NDArray[Any]) -> NDArray[Any]:
        """Values of clusters and features, (K, d), in the order of the rows of `to_frame`."""
        order = np.argsort(-self.relevance, axis=1, kind="stable")
        return np.take_along_axis(values, order, axis=1).ravel()

    def to_frame(self, backend: str | None = None) -> Any:
        """One row per cluster and feature, the most relevant feature of a cluster first.

        The frame is of the library the data came in; ``backend`` ("pandas", "polars", "pyarrow")
        chooses another.
        """
        d, sort = len(self.feature_names), self.sorted
        columns: dict[Hashable, NDArray[Any]] = {
            "cluster": np.repeat(self.clusters, d),
            "size": np.repeat(self.size, d),
            "feature": sort(np.tile(as_column(self.feature_names), (len(self.clusters), 1))),
            "relevance": sort(self.relevance),
            "share": sort(self.share),
            "direction": sort(self.direction),
            "mean_inside": sort(self.inside),
            "mean_outside": sort(self.outside),
        }
        return build_frame(columns, self._like, backend, "summary.to_frame", same_rows=False)

    def describe(self, n_features: int = 5) -> str:
        """The strongest features of each cluster, as text."""
        if not len(self.clusters):
            return "No row belongs to the cluster it is explained for, so there is nothing to average."
        heads = ["cluster", "rows", "", "feature", "share", "", "mean inside", "outside"]
        if self._categories or (self.direction == MISSING).any():
            heads[6] = "mean or frequency inside"
        shares = self.share
        largest = float(np.abs(shares).max())
        rows = [
            line
            for group, share in enumerate(shares)
            for line in self._lines(group, share, largest, n_features)
        ]
        return display.table(heads, rows, align="<><<><>>") + f"\n\n{self._note}" * bool(self._note)

    def __str__(self) -> str:
        return self.describe()

    __repr__ = __str__  # a notebook shows the table too

    def _lines(self, group: int, share: Floats, largest: float, n_features: int) -> list[list[str]]:
        """The strongest features of one cluster."""
        strongest = np.argsort(-np.abs(share), kind="stable")[:n_features]
        strongest = strongest[: max(1, int((np.abs(share[strongest]) >= _LEAST_SHARE).sum()))]
        return [
            [
                str(self.clusters[group]) if rank == 0 else "",
                str(self.size[group]) if rank == 0 else "",
                "= " * self._is_one_of(group, int(i)) + str(self.direction[group, i]),
                str(self.feature_names[i]),
                f"{share[i]:.0%}",
                display.bar(share[i], largest),
                self._shown(self.inside[group, i], group, int(i)),
                self._shown(self.outside[group, i], group, int(i)),
            ]
            for rank, i in enumerate(strongest)
        ]

    def _is_one_of(self, group: int, column: int) -> bool:
        """Whether what is said of a column is a category of it, and not that it is missing."""
        return column in self._categories and self.direction[group, column] != MISSING

    def bars_of(self, group: int, n: int) -> list[Line]:
        """The ``n`` features that have most to do with a cluster, by share, then all others together."""
        share = self.share[group]
        order = np.argsort(-np.abs(share), kind="stable")
        lines = [
            Line(
                str(self.feature_names[i]),
                str(self.direction[group, i]),
                float(share[i]),
                is_category=self._is_one_of(group, int(i)),
            )
            for i in order[:n]
        ]
        return lines + rest(len(order[n:]), self.noun, "", float(share[order[n:]].sum()))

    def grid(self, n: int) -> tuple[list[str], Floats, int]:
        """The ``n`` features with the greatest shares, their shares, (G, n), and how many there are."""
        columns = strongest_columns(self.share, n)
        return [str(self.feature_names[i]) for i in columns], self.share[:, columns], len(self.feature_names)

    def _shown(self, mean: float, group: int, column: int) -> str:
        if np.isnan(mean):
            return ""
        if self.direction[group, column] != MISSING and column in self._dates:
            return f"{np.datetime64(round(mean), 'D')}"
        return display.number(mean)


class Groups(NamedTuple):
    """The clusters that have members: rows that are explained for the cluster that they are in.

    Attributes
    ----------
    codes : (G,) the clusters
    size : (G,) how many members each has
    rivals : (G, K) part of the members whose strongest competitor is k
    """

    codes: Codes
    size: Codes
    rivals: Floats


def group_members(cluster: Codes, competitor: Codes, member: NDArray[np.bool_], n_clusters: int) -> Groups:
    """The clusters of the rows that are members, (n,) codes, with their competitors."""
    codes, group, size = np.unique(cluster[member], return_inverse=True, return_counts=True)
    pairs = np.bincount(group * n_clusters + competitor[member], minlength=len(codes) * n_clusters)
    return Groups(codes, size, pairs.reshape(len(codes), n_clusters) / size[:, None])


def strongest_columns(share: Floats, n: int) -> Codes:
    """Columns of the ``n`` greatest shares of any cluster, (G, d), those of the first cluster first.

    A column stands with the cluster in which it is strongest, and there the strongest first.
    """
    size = np.abs(share)
    chosen = np.argsort(-size.max(axis=0), kind="stable")[:n]
    return np.asarray(chosen[np.lexsort((-size[:, chosen].max(axis=0), size[:, chosen].argmax(axis=0)))])


def summarize(
    table: Table,
    relevance: NDArray[Any],
    assigned: Codes,
    explained: NDArray[np.bool_],
    labels: NDArray[Any],
    like: Any,
    note: str = "",
) -> Summary:
    """Average over the members of each cluster.

    Parameters
    ----------
    table, relevance : the n rows and their explanations
    assigned : (n,) the code of the cluster each row belongs to
    explained : (n,) whether the row is explained for that cluster
    labels : (K,) the names of the codes
    like : the frame whose library `Summary.to_frame` takes
    note : a line under the table
    """
    present, group = np.unique(assigned, return_inverse=True)
    size = np.bincount(group, minlength=len(present))
    reference = _typical(table)  # means are taken from here, so that data far from 0 keep their digits
    moved, count = _means(table, group, reference, len(present))
    n_explained = np.bincount(group, weights=explained, minlength=len(present))
    chosen = n_explained > 0
    inside, outside = moved + reference, _outside(moved, count) + reference
    direction: NDArray[Any] = _directions(moved, count)
    direction[[is_noise(label) for label in labels[present].tolist()]] = "far"
    if table.categories:
        direction = direction.astype(object)  # text of any length
        for column, frequency in _frequencies(table, group, len(size)).items():
            if not 0 < frequency.shape[1] <= _MOST_CATEGORIES:  # none at all, or text that is no category
                direction[:, column], inside[:, column], outside[:, column] = "", np.nan, np.nan
                continue
            most = frequency.argmax(axis=1)
            direction[:, column] = [str(table.categories[column][code]) for code in most]
            inside[:, column] = frequency[np.arange(len(size)), most]
            outside[:, column] = _outside(frequency, size[:, None])[np.arange(len(size)), most]
            count[:, column] = frequency.sum(axis=1) * size
        direction = direction.astype(str)
    missing = 1.0 - count / size[:, None]
    elsewhere = _outside(missing, size[:, None])
    mostly = (missing > 0.5) & (missing > elsewhere)
    direction = np.where(mostly, MISSING, direction)
    inside, outside = np.where(mostly, missing, inside), np.where(mostly, elsewhere, outside)
    total = sums_of(relevance, group, explained, len(present))[chosen]
    return Summary(
        clusters=labels[present[chosen]],
        size=n_explained[chosen].astype(np.intp),
        relevance=total / n_explained[chosen, None],
        direction=direction[chosen],
        inside=inside[chosen],
        outside=outside[chosen],
        feature_names=table.feature_names,
        _like=like,
        _categories=frozenset(table.categories),
        _dates=table.dates,
        _note=note,
    )


def summary_of(
    clusters: NDArray[Any], size: Codes, relevance: Floats, mean: Floats, count: Floats, names: list[str]
) -> Summary:
    """A summary from means that were added up elsewhere, of columns of numbers.

    Parameters
    ----------
    clusters, size : (G,) labels, and how many rows each has
    relevance : (G, d) mean relevance
    mean, count : (G, d) mean values, NaN where there is none, and of how many values each is
    names : (d,) of the features
    """
    direction: NDArray[Any] = _directions(mean, count)
    direction[[is_noise(label) for label in clusters.tolist()]] = "far"
    return Summary(clusters, size, relevance, direction, mean, _outside(mean, count), list(names))


def means_of(table: Table, group: Codes, n_groups: int) -> tuple[Floats, Floats]:
    """Means of the rows of each group, (G, d), and of how many values each is."""
    reference = _typical(table)
    moved, count = _means(table, group, reference, n_groups)
    return moved + reference, count


def _typical(table: Table, n_rows: int = 1001) -> Floats:
    """A point among the rows, (d,): the median of some of them, which no few rows far off can move."""
    if table.n_rows == 0:
        return np.zeros(table.n_features)
    values = table.take(evenly(table.n_rows, n_rows)).to_array()
    values[:, np.isnan(values).all(axis=0)] = 0.0  # nothing to take the median of
    return np.asarray(np.nanmedian(values, axis=0))


def _means(table: Table, group: Codes, reference: Floats, n_groups: int) -> tuple[Floats, Floats]:
    """Means of the rows minus the reference over each group, (G, d), and of how many values each is.

    Missing values do not count; where all are, the mean is NaN.
    """
    sums = np.zeros((n_groups, table.n_features))
    count = np.repeat(np.bincount(group, minlength=n_groups)[:, None], table.n_features, axis=1).astype(float)
    for start, block in table.blocks():
        member, moved = membership(group[start : start + len(block)], n_groups), block - reference
        missing = np.isnan(moved)
        if missing.any():
            count -= member.T @ missing
            moved[missing] = 0.0
        sums += member.T @ moved
    return np.divide(sums, count, out=np.full_like(sums, np.nan), where=count > 0), count


def sums_of(relevance: NDArray[Any], group: Codes, explained: NDArray[np.bool_], n_groups: int) -> Floats:
    """Sums of relevance over each group, (G, d); only of rows that are explained."""
    sums = np.zeros((n_groups, relevance.shape[1]))
    for start, block in ArrayTable.of(relevance).blocks():
        rows = slice(start, start + len(block))
        sums += membership(group[rows], n_groups, explained[rows]).T @ block
    return sums


def membership(group: Codes, n_groups: int, counted: NDArray[np.bool_] | None = None) -> Any:
    """(b, G) 1 where a row is in a group and counts, as a sparse matrix."""
    from scipy import sparse

    ones = np.ones(len(group)) if counted is None else counted.astype(np.float64)
    return sparse.csr_array((ones, group, np.arange(len(group) + 1)), shape=(len(group), n_groups))


def _frequencies(table: Table, group: Codes, n_groups: int) -> dict[int, Floats]:
    """Of each column of categories how frequent they are in each group, (G, categories)."""
    widths = {column: len(names) for column, names in table.categories.items()}
    counts = {c: np.zeros((n_groups, n if n <= _MOST_CATEGORIES else 0)) for c, n in widths.items()}
    for start, block in table.blocks():
        rows = group[start : start + len(block)]
        for column, count in counts.items():
            known = (block[:, column] >= 0) & (count.shape[1] > 0)
            np.add.at(count, (rows[known], block[known, column].astype(np.intp)), 1.0)
    size = np.bincount(group, minlength=n_groups)[:, None]
    return {column: count / size for column, count in counts.items()}


def _outside(inside: Floats, count: NDArray[Any]) -> Floats:
    """The mean of the rows that are not in the group, (G, d), from means of ``count`` values each."""
    others = 1.0 - np.eye(len(count))
    outside = np.full_like(inside, np.nan)
    n_others = others @ np.broadcast_to(count, inside.shape)
    np.divide(others @ (count * np.nan_to_num(inside)), n_others, out=outside, where=n_others > 0)
    return outside


def _directions(inside: Floats, count: Floats) -> NDArray[np.str_]:
    """Where each group's mean stands among those of the others, which count by their values, (G, d)."""
    words = np.full(inside.shape, "", dtype="<U6")
    weight, known = count / np.maximum(1.0, count.sum(axis=0)), np.nan_to_num(inside)
    spread = np.sqrt(np.maximum((weight * known**2).sum(axis=0) - (weight * known).sum(axis=0) ** 2, 0.0))
    outside = _outside(inside, count)
    for group, mean in enumerate(inside):
        rounding = _ROUNDING * np.maximum(np.abs(inside), np.abs(mean))
        apart = np.abs(inside - mean) > np.maximum(rounding, _ALIKE * spread)
        above = (count * (apart & (inside > mean))).sum(axis=0)
        below = (count * (apart & (inside < mean))).sum(axis=0)
        words[group][above + below > 0] = "middle"
        words[group][(below > 3 * above) & (mean > outside[group])] = "high"
        words[group][(above > 3 * below) & (mean < outside[group])] = "low"
    return words
