"""The summary of each cluster: the explanations of its members, averaged."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from textwrap import fill
from typing import Any, ClassVar, Protocol

import numpy as np
from numpy.typing import NDArray

from whycluster.core.arrays import Codes, Floats
from whycluster.data import display
from whycluster.data.frames import as_column, build_frame
from whycluster.data.groups import group_categories, group_means, group_sums
from whycluster.data.table import Table
from whycluster.explanations.exchange.arrow import ArrowTable
from whycluster.explanations.exchange.json_values import to_text
from whycluster.explanations.exchange.plain import describe_clusters, records
from whycluster.explanations.summaries.comparisons import Clusters, Comparisons, mean_outside
from whycluster.explanations.summaries.members import MemberClusters
from whycluster.explanations.summaries.statements import MISSING, Statement, headlines, values_and_comparisons
from whycluster.explanations.wording.formatting import Line, rest

_LEAST_SHARE = 0.005  # smaller shares would be printed as 0%
_ROUNDING = 1e-9  # smaller shares may be rounding errors
_LITTLE = 0.01  # a headline mentions if all other features add less than this share
_CARRIED = 0.6  # a headline names the features that carry this share of a cluster's positive relevance
_LEAST_NAMED = 2  # the number of features in a headline, unless all others are negligible
_MOST_NAMED = 4  # the maximum number of features in a headline
_LONGEST_CELL = 120
_WIDTH = 99  # characters per line of text
_LONGEST_PHRASE = 20  # characters of a phrase next to a bar


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
class Summary(ArrowTable):
    """The features that define each cluster. `print` the summary, or convert it with `to_frame`.

    Attributes
    ----------
    clusters : (G,) the labels of the clusters that have members
    size : (G,) the number of members
    relevance : (G, d) the mean relevance of each feature for the members
    share : (G, d) relevance as a fraction of the cluster's total absolute relevance, from -1 to 1. It is
        negative if the feature is evidence against the cluster on average.
    direction : (G, d) how the feature compares with the clusters that it sets the cluster apart from:
        "higher", "lower", "between", "same", "missing", "far", a category or "". See
        `whycluster.findings.Statement`.
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
    compared: Comparisons
    feature_names: list[Hashable]
    _like: Any = None
    _categories: frozenset[int] = frozenset()
    _dates: frozenset[int] = frozenset()
    _booleans: frozenset[int] = frozenset()
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
            "against": sort(self.compared.against()),
            "mean_inside": sort(self.inside),
            "mean_outside": sort(self.outside),
        }
        return build_frame(columns, self._like, backend, "summary.to_frame", same_rows=False)

    def to_dict(self) -> dict[str, Any]:
        """Return the summary as plain data, as the schema of `Explanation.to_json` describes it."""
        order = np.argsort(-self.relevance, axis=1, kind="stable")
        names = np.tile(as_column(self.feature_names), (len(self.clusters), 1))
        values = {
            "feature": names,
            "relevance": self.relevance,
            "share": self.share,
            "direction": self.direction,
            "mean_inside": self.inside,
            "mean_outside": self.outside,
        }
        found = records([*values], [np.take_along_axis(each, order, axis=1) for each in values.values()])
        return describe_clusters(self, found, "features")

    def to_json(self) -> str:
        """Return `to_dict` as JSON."""
        return to_text(self.to_dict())

    def statement(self, group: int, column: int) -> Statement:
        """Return how a feature of a cluster compares with the clusters that it separates the cluster from."""
        return self.statements_of([(group, column)])[0]

    def statements_of(self, cells: Sequence[tuple[int, int]]) -> list[Statement]:
        """Return the statement about each pair of a group and a column; see `statement`."""
        return self.compared.statements(cells, self.feature_names, self.share, self._dates, self._booleans)

    def statements(self, group: int, n_features: int) -> list[Statement]:
        """Return statements on the features with the largest shares, without negligible ones."""
        return self.statements_of_each([group], n_features)[0]

    def statements_of_each(self, groups: Sequence[int], n_features: int) -> list[list[Statement]]:
        """Return the `statements` about each of some groups."""
        return self._statements_by_group(
            groups, [_largest(self.share[group], n_features).tolist() for group in groups]
        )

    def _statements_by_group(
        self, groups: Sequence[int], columns: Sequence[Sequence[int]]
    ) -> list[list[Statement]]:
        """Return the statements about the given columns of each group."""
        pairs = [(group, i) for group, some in zip(groups, columns, strict=True) for i in some]
        found = iter(self.statements_of(pairs))
        return [[next(found) for _ in some] for some in columns]

    def describe(self, n_features: int = 5) -> str:
        """Return the strongest features of each cluster, as text.

        Parameters
        ----------
        n_features : the number of features to list for each cluster
        """
        if not len(self.clusters):
            return "No row belongs to the cluster it is explained for, so there is nothing to average."
        heads = ["cluster", "rows", "feature", "share", "", "mean", "compared with"]
        if self._categories or self._booleans or (self.direction == MISSING).any():
            heads[5] = "mean or frequency"
        found = self.statements_of_each(range(len(self.clusters)), n_features)
        listed = [each for some in found for each in some]
        bars = iter(display.bars([each.share for each in listed], float(np.abs(self.share).max())))
        texts = iter(values_and_comparisons(listed))
        rows = []
        for some, label, size in zip(found, self.clusters.tolist(), self.size.tolist(), strict=True):
            first = [str(label), str(size)]
            for each in some:
                mean, comparison = next(texts)
                rows.append([*first, str(each.feature), f"{each.share:.0%}", next(bars), mean, comparison])
                first = ["", ""]
        text = display.table(heads, rows, align="<><><><", longest=_LONGEST_CELL)
        return f"{fill(self._note, _WIDTH)}\n\n{text}" if self._note else text

    def __str__(self) -> str:
        return self.describe()

    __repr__ = __str__  # a notebook shows the table too

    def bars_of(self, group: int, n: int) -> list[Line]:
        """Return lines for the ``n`` features with the largest shares, and one line for all others."""
        share = self.share[group]
        order = np.argsort(-np.abs(share), kind="stable")
        lines = [
            Line(
                str(each.feature),
                each.phrase if len(each.phrase) <= _LONGEST_PHRASE else each.word,
                each.share,
            )
            for each in self.statements_of([(group, i) for i in order[:n].tolist()])
        ]
        return lines + rest(len(order[n:]), self.noun, "", float(share[order[n:]].sum()))

    def grid(self, n: int) -> tuple[list[str], Floats, int]:
        """Return the ``n`` features with the largest shares, their shares, (G, n), and the total number d."""
        columns = strongest_columns(self.share, n)
        return [str(self.feature_names[i]) for i in columns], self.share[:, columns], len(self.feature_names)

    def headlines(self) -> list[str]:
        """Describe each cluster in one line: "Higher a and b than cluster 3"."""
        return self.headlines_of([*range(len(self.clusters))])

    def headlines_of(self, groups: list[int]) -> list[str]:
        """Describe some clusters in one line each."""
        share, is_noise = self.share[groups], self.compared.is_noise[groups].tolist()
        named = [
            _strongest(own, 1 if far else _LEAST_NAMED) for own, far in zip(share, is_noise, strict=True)
        ]
        rests = [_rest(own, columns) for own, columns in zip(share, named, strict=True)]
        return headlines(self._statements_by_group(groups, named), is_noise, rests)

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


def _strongest(share: Floats, least: int) -> list[int]:
    """Return the features that carry most of a cluster's positive relevance, in decreasing order.

    At least ``least`` features are returned, unless the shares of the others are negligible.
    """
    order = np.argsort(-share, kind="stable")
    order = order[share[order] > 0]
    carried = np.cumsum(share[order])
    enough = 1 + int(np.searchsorted(carried, _CARRIED * carried[-1])) if order.size else 0
    enough = max(enough, int((share[order[:least]] >= _LEAST_SHARE).sum()))
    return [int(i) for i in order[: min(enough, _MOST_NAMED)]]


def _rest(share: Floats, named: list[int]) -> str:
    """Return a remark on all other features if only one is named, and the others hardly add anything."""
    others = np.maximum(np.delete(share, named), 0.0).sum()
    if len(named) != 1 or len(share) == 1 or others >= _LITTLE:
        return ""
    return (
        "no other feature adds to its relevance" if others <= _ROUNDING else "all other features add under 1%"
    )


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
    members: MemberClusters,
    labels: NDArray[Any],
    like: Any,
    note: str = "",
    find_rivals: Callable[[Floats, Codes, NDArray[np.bool_]], Clusters] | None = None,
) -> Summary:
    """Average values over the rows of each cluster, and relevance over its members.

    Parameters
    ----------
    table, relevance : the n rows and their relevance
    assigned : (n,) the code of the cluster each row belongs to
    explained : (n,) whether the row is explained for that cluster
    members : the same rows, by cluster
    labels : (K,) the labels of the codes
    like : a frame of the library that `Summary.to_frame` uses by default
    note : a paragraph above the printed table
    find_rivals : finds the clusters to compare with, given the mean relevance, (G, d), and the arguments of
        `FindRivals`; by default, they are found from the means
    """
    present, group = np.unique(assigned, return_inverse=True)
    size = np.bincount(group, minlength=len(present))
    reference, moved, count = group_means(table, group, len(present))
    counts = group_categories(table, group, len(present), relevance, explained)
    for column, known in counts.items():
        count[:, column] = known.n_values
    mean, missing = moved + reference, 1.0 - count / size[:, None]
    groups = np.searchsorted(present, members.codes)
    n_explained = np.bincount(group, weights=explained, minlength=len(present))[groups, None]
    average = group_sums(relevance, group, len(present), explained)[groups] / n_explained
    find = None if find_rivals is None else partial(find_rivals, average)
    compared = Comparisons.of(members, labels, present, size, mean, missing, counts, table.categories, find)
    inside, outside = _typical(compared, count)
    return Summary(
        clusters=labels[members.codes],
        size=members.size,
        relevance=average,
        direction=compared.directions,
        inside=inside,
        outside=outside,
        compared=compared,
        feature_names=table.feature_names,
        _like=like,
        _categories=frozenset(table.categories),
        _dates=table.dates,
        _booleans=table.booleans,
        _note=note,
    )


def summary_of(
    members: MemberClusters,
    labels: NDArray[Any],
    relevance: Floats,
    mean: Floats,
    count: Floats,
    names: list[str],
    *,
    dates: frozenset[int],
    booleans: frozenset[int],
    notes: Mapping[int, str],
) -> Summary:
    """Return the summary of columns whose means are already known.

    Parameters
    ----------
    members : the clusters that have rows
    labels : (K,) the labels of all clusters
    relevance : (G, d) mean relevance
    mean, count : (G, d) the mean values, or NaN if there are no values, and the number of values in each mean
    names : (d,) the names of the features
    dates, booleans : the columns of dates and of booleans
    notes : for columns that have no means, the reason
    """
    # A column without any value may not be numeric, so its values need not be missing.
    missing = np.where(count.any(axis=0), 1.0 - count / members.size[:, None], 0.0)
    compared = Comparisons.of(members, labels, members.codes, members.size, mean, missing, notes=notes)
    clusters, directions = labels[members.codes], compared.directions
    return Summary(
        clusters,
        members.size,
        relevance,
        directions,
        *_typical(compared, count),
        compared,
        list(names),
        _dates=dates,
        _booleans=booleans,
    )


def _typical(compared: Comparisons, count: Floats) -> tuple[Floats, Floats]:
    """Return the means or frequencies in each cluster and in all other rows, each (G, d)."""
    groups, size = compared.groups, compared.size[:, None]
    inside, outside = compared.mean[groups], mean_outside(compared.mean, count)[groups]
    for column, best in compared.categories_named.items():
        frequency = compared.categories[column].frequency
        named = np.where(best >= 0, best, 0)
        for cells, values in ((inside, frequency), (outside, mean_outside(frequency, size))):
            known = (best >= 0) & (frequency.shape[1] > 0)
            cells[:, column] = np.nan
            cells[known, column] = values[groups[known], named[known]]
    mostly = compared.is_mostly_missing
    if compared.missing is not None and mostly.any():
        inside = np.where(mostly, compared.missing[groups], inside)
        outside = np.where(mostly, mean_outside(compared.missing, size)[groups], outside)
    return inside, outside
