"""The summary of each cluster: the explanations of its members, averaged."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from whycluster.core.arrays import Codes, Floats
from whycluster.data import display
from whycluster.data.frames import as_column, build_frame
from whycluster.data.groups import group_frequencies, group_means, group_sums
from whycluster.data.labels import noise_mask
from whycluster.data.table import Table
from whycluster.explanations.formatting import Line, join_words, list_by_direction, rest

_ROUNDING = 1e-9  # means with a smaller relative difference are equal up to rounding
_ALIKE = 0.1  # means that differ by less than this fraction of their spread over clusters count as equal
_LEAST_SHARE = 0.005  # smaller shares would be printed as 0%
_CARRIED = 0.6  # a headline names the features that carry this share of a cluster's positive relevance
_MOST_NAMED = 4  # the maximum number of features in a headline
MISSING = "missing"


class ClusterSummary(Protocol):
    """The common interface of summaries of tables and of documents."""

    @property
    def clusters(self) -> NDArray[Any]:
        """(G,) the labels of the clusters that have members."""

    @property
    def size(self) -> NDArray[np.intp]:
        """(G,) the number of members."""

    @property
    def noun(self) -> str:
        """The word for a unit of relevance: "feature" or "word"."""

    def headlines(self) -> list[str]:
        """Describe in a few words what defines each cluster."""

    def bars_of(self, group: int, n: int) -> list[Line]:
        """Return lines for the ``n`` features or words with the largest shares, and one for all others."""

    def grid(self, n: int) -> tuple[list[str], Floats, int]:
        """Return ``n`` features or words, their shares, (G, n), and the total number of features or words."""


@dataclass(frozen=True, repr=False, eq=False)
class Summary:
    """The features that define each cluster. `print` the summary, or convert it with `to_frame`.

    Attributes
    ----------
    clusters : (G,) the labels of the clusters that have members
    size : (G,) the number of members
    relevance : (G, d) the mean relevance of each feature for the members
    share : (G, d) relevance as a fraction of the cluster's total absolute relevance, from -1 to 1. It is
        negative if the feature is evidence against the cluster on average.
    direction : (G, d) "high" if the cluster's mean is above the means of most other clusters, "low" if it is
        below them, "middle" if these means are on both sides, and "" if there is nothing to compare. The
        direction of noise, which is extreme in either direction, is "far". The direction of a categorical
        feature is the most frequent category in the cluster. The direction is "missing" if most values in the
        cluster are missing and values are missing more often than elsewhere.
    inside, outside : (G, d) the mean value of the feature in the cluster and in all other rows, without
        missing values. If the direction is a category or "missing", the frequency is given instead. Dates are
        in days since 1970. The value is NaN if there is nothing to average.
    feature_names : the names of the d features
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

    @cached_property
    def share(self) -> Floats:
        """(G, d) relevance as a fraction of the cluster's total absolute relevance."""
        total = np.abs(self.relevance).sum(axis=1, keepdims=True)
        share = np.zeros_like(self.relevance)
        np.divide(self.relevance, total, out=share, where=total > 0)
        return share

    def sorted(self, values: NDArray[Any]) -> NDArray[Any]:
        """Return values of clusters and features, (G, d), in the order of the rows of `to_frame`."""
        order = np.argsort(-self.relevance, axis=1, kind="stable")
        return np.take_along_axis(values, order, axis=1).ravel()

    def to_frame(self, backend: str | None = None) -> Any:
        """Return a frame with one row per cluster and feature; features are sorted by decreasing relevance.

        By default, the frame comes from the same library as the data; ``backend`` ("pandas", "polars" or
        "pyarrow") selects a different library.
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
        """Return the strongest features of each cluster, as text."""
        if not len(self.clusters):
            return "No row belongs to the cluster it is explained for, so there is nothing to average."
        ranked = [_largest(share, n_features) for share in self.share]
        groups = np.repeat(np.arange(len(ranked)), [len(each) for each in ranked])
        columns = np.concatenate(ranked)
        share = self.share[groups, columns]
        dates = self._has_dates(groups, columns)
        cells = [
            *self._names(groups.tolist(), columns.tolist()),
            [f"{part:.0%}" for part in share],
            display.bars(share, float(np.abs(self.share).max())),
            display.numbers_or_dates(self.inside[groups, columns].tolist(), dates),
            display.numbers_or_dates(self.outside[groups, columns].tolist(), dates),
        ]
        heads = ["cluster", "rows", "", "feature", "share", "", "mean inside", "outside"]
        if self._categories or (self.direction == MISSING).any():
            heads[6] = "mean or frequency inside"
        text = display.table(heads, list(zip(*cells, strict=True)), align="<><<><>>")
        return f"{text}\n\n{self._note}" if self._note else text

    def __str__(self) -> str:
        return self.describe()

    __repr__ = __str__  # a notebook shows the table too

    def _names(self, groups: list[int], columns: list[int]) -> list[list[str]]:
        """Return four columns of the table: label and size (once per cluster), directions and names."""
        pairs = list(zip(groups, columns, strict=True))
        firsts = [place == 0 or groups[place - 1] != group for place, group in enumerate(groups)]
        return [
            [str(self.clusters[group]) * first for group, first in zip(groups, firsts, strict=True)],
            [str(self.size[group]) * first for group, first in zip(groups, firsts, strict=True)],
            ["= " * self.is_category(*pair) + str(self.direction[pair]) for pair in pairs],
            [str(self.feature_names[column]) for column in columns],
        ]

    def is_category(self, group: int, column: int) -> bool:
        """Return whether the direction of a feature in a cluster is one of its categories."""
        return column in self._categories and self.direction[group, column] != MISSING

    def bars_of(self, group: int, n: int) -> list[Line]:
        """Return lines for the ``n`` features with the largest shares, and one line for all others."""
        share = self.share[group]
        order = np.argsort(-np.abs(share), kind="stable")
        lines = [
            Line(
                str(self.feature_names[i]),
                str(self.direction[group, i]),
                float(share[i]),
                is_category=self.is_category(group, int(i)),
            )
            for i in order[:n]
        ]
        return lines + rest(len(order[n:]), self.noun, "", float(share[order[n:]].sum()))

    def grid(self, n: int) -> tuple[list[str], Floats, int]:
        """Return the ``n`` features with the largest shares, their shares, (G, n), and the total number d."""
        columns = strongest_columns(self.share, n)
        return [str(self.feature_names[i]) for i in columns], self.share[:, columns], len(self.feature_names)

    def headlines(self) -> list[str]:
        """Return the features that define each cluster, grouped by direction: "High a and b, low c"."""
        strongest = [_strongest(share) for share in self.share]
        columns = sorted({column for some in strongest for column in some})
        items = display.format_items([self.feature_names[column] for column in columns])
        noise = noise_mask(self.clusters.tolist())
        names = dict(zip(columns, items, strict=True))
        return [self._headline(group, strongest[group], names, far) for group, far in enumerate(noise)]

    def _headline(self, group: int, columns: list[int], names: dict[int, str], is_noise: bool) -> str:
        if is_noise:
            listed = join_words([names[column] for column in columns])
            return "Far from all clusters" + f", mostly in {listed}" * bool(listed)
        if not columns:
            return "No feature sets it apart"
        by_direction: dict[str, list[str]] = {}
        for column in columns:
            direction, item = self._headline_item(group, column, names[column])
            by_direction.setdefault(direction, []).append(item)
        return list_by_direction(by_direction)

    def _headline_item(self, group: int, column: int, name: str) -> tuple[str, str]:
        """Return the direction and the name of a feature or, for a category, "" and "name = category".

        A category that is no more frequent than elsewhere does not characterize the cluster, even if the
        feature does.
        """
        direction = str(self.direction[group, column])
        if direction == MISSING or column not in self._categories:
            return direction or "by", name
        is_frequent = self.inside[group, column] > self.outside[group, column]
        return ("", f"{name} = {display.format_items([direction])[0]}") if is_frequent else ("by", name)

    def is_date(self, group: int, column: int) -> bool:
        """Return whether the means of a feature in a cluster are dates."""
        return column in self._dates and bool(self.direction[group, column] != MISSING)

    def format_means(self, means: Floats, groups: Codes, columns: Codes) -> list[str]:
        """Return means of `inside` or `outside` as text, for pairs of a group and a column."""
        return display.numbers_or_dates(means[groups, columns].tolist(), self._has_dates(groups, columns))

    def _has_dates(self, groups: Codes, columns: Codes) -> list[bool]:
        return [self.is_date(*pair) for pair in zip(groups.tolist(), columns.tolist(), strict=True)]


def _largest(share: Floats, n: int) -> Codes:
    """Return the columns of the ``n`` largest shares that are not negligible, but at least one column."""
    order = np.argsort(-np.abs(share), kind="stable")[:n]
    return order[: max(1, int((np.abs(share[order]) >= _LEAST_SHARE).sum()))]


def _strongest(share: Floats) -> list[int]:
    """Return the features that carry most of a cluster's positive relevance, in decreasing order."""
    order = np.argsort(-share, kind="stable")
    order = order[share[order] > 0]
    carried = np.cumsum(share[order])
    enough = 1 + int(np.searchsorted(carried, _CARRIED * carried[-1])) if order.size else 0
    return [int(i) for i in order[: min(enough, _MOST_NAMED)]]


class MemberClusters(NamedTuple):
    """The clusters that have members, that is, rows explained for the cluster they belong to.

    Attributes
    ----------
    codes : (G,) the clusters
    size : (G,) the number of members
    competitor_share : (G, K) the share of members whose strongest competitor is k
    """

    codes: Codes
    size: Codes
    competitor_share: Floats


def group_members(
    cluster: Codes, competitor: Codes, member: NDArray[np.bool_], n_clusters: int
) -> MemberClusters:
    """Group the members among n rows by cluster, given the codes of clusters and competitors, (n,)."""
    codes, group, size = np.unique(cluster[member], return_inverse=True, return_counts=True)
    pairs = np.bincount(group * n_clusters + competitor[member], minlength=len(codes) * n_clusters)
    return MemberClusters(codes, size, pairs.reshape(len(codes), n_clusters) / size[:, None])


def strongest_columns(share: Floats, n: int) -> Codes:
    """Return the ``n`` columns with the largest shares in any cluster, given shares of shape (G, d).

    Columns are ordered by the cluster in which they are strongest, then by their share in it.
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
    """Average values and relevance over the members of each cluster.

    Parameters
    ----------
    table, relevance : the n rows and their relevance
    assigned : (n,) the code of the cluster each row belongs to
    explained : (n,) whether the row is explained for that cluster
    labels : (K,) the labels of the codes
    like : a frame of the library that `Summary.to_frame` uses by default
    note : a line below the printed table
    """
    present, group = np.unique(assigned, return_inverse=True)
    size = np.bincount(group, minlength=len(present))
    n_explained = np.bincount(group, weights=explained, minlength=len(present))
    chosen = n_explained > 0
    reference, moved, count = group_means(table, group, len(present))
    frequencies = group_frequencies(table, group, len(present))
    total = group_sums(relevance, group, len(present), explained)[chosen]
    noise = noise_mask(labels[present].tolist())
    inside, outside = moved + reference, _outside(moved, count) + reference
    direction: NDArray[Any] = _directions(moved, count)
    direction[noise] = "far"
    if frequencies:
        cells = _Cells(direction, inside, outside, count)
        direction = _describe_categories(table, frequencies, size, cells)
    missing = 1.0 - count / size[:, None]
    elsewhere = _outside(missing, size[:, None])
    mostly = (missing > 0.5) & (missing > elsewhere)
    direction = np.where(mostly, MISSING, direction)
    inside, outside = np.where(mostly, missing, inside), np.where(mostly, elsewhere, outside)
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


class _Cells(NamedTuple):
    """The directions, means and counts of all groups and features, each of shape (G, d)."""

    direction: NDArray[Any]
    inside: Floats
    outside: Floats
    n_values: Floats


def _describe_categories(
    table: Table, frequencies: dict[int, Floats], size: Codes, cells: _Cells
) -> NDArray[np.str_]:
    """Return the directions, with the most frequent category filled in for each categorical column.

    Frequencies and counts are written into the cells.
    """
    groups = np.arange(len(size))
    direction = cells.direction.astype(object)  # allows text of any length
    for column, frequency in frequencies.items():
        if not frequency.shape[1]:  # no category at all, or free text
            direction[:, column], cells.inside[:, column], cells.outside[:, column] = "", np.nan, np.nan
            continue
        most = frequency.argmax(axis=1)
        direction[:, column] = [str(table.categories[column][code]) for code in most]
        cells.inside[:, column] = frequency[groups, most]
        cells.outside[:, column] = _outside(frequency, size[:, None])[groups, most]
        cells.n_values[:, column] = frequency.sum(axis=1) * size
    return direction.astype(str)


def summary_of(
    clusters: NDArray[Any], size: Codes, relevance: Floats, mean: Floats, count: Floats, names: list[str]
) -> Summary:
    """Return the summary of numeric columns whose means are already known.

    Parameters
    ----------
    clusters, size : (G,) the label and the number of rows of each cluster
    relevance : (G, d) mean relevance
    mean, count : (G, d) the mean values, or NaN if there are no values, and the number of values in each mean
    names : (d,) the names of the features
    """
    direction: NDArray[Any] = _directions(mean, count)
    direction[noise_mask(clusters.tolist())] = "far"
    return Summary(clusters, size, relevance, direction, mean, _outside(mean, count), list(names))


def _outside(inside: Floats, count: NDArray[Any]) -> Floats:
    """Return the mean of all rows outside each group, (G, d), given each group's mean of ``count`` values."""
    others = 1.0 - np.eye(len(count))
    outside = np.full_like(inside, np.nan)
    n_others = others @ np.broadcast_to(count, inside.shape)
    np.divide(others @ (count * np.nan_to_num(inside)), n_others, out=outside, where=n_others > 0)
    return outside


def _directions(inside: Floats, count: Floats) -> NDArray[np.str_]:
    """Return whether each group's mean is high, low or in the middle among all groups' means, (G, d).

    Other groups are weighted by their number of values.
    """
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
