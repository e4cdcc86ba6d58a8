"""Comparisons of the clusters' means and frequencies with those of the clusters that they compete with."""

from __future__ import annotations

from collections.abc import Callable, Container, Hashable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from whycluster.core.arrays import Codes, Floats
from whycluster.data.groups import MOST_CATEGORIES, CategoryCounts
from whycluster.data.labels import noise_mask
from whycluster.explanations.summaries.members import MemberClusters
from whycluster.explanations.summaries.statements import BETWEEN, FAR, HIGHER, LOWER, MISSING, SAME, Statement

COVERED = 2 / 3  # a statement names the fewest rivals that make up this share of what sets the cluster apart
MOST_NAMED = 3  # but at most this many
_ROUNDING = 1e-12  # means with a smaller difference, relative to the largest mean, are equal up to rounding
_LEAST_FREQUENCY = 0.1  # a rarer category does not characterize a cluster
_CELLS = 1 << 20  # the maximum number of values that are compared at once

Clusters: TypeAlias = NDArray[np.int32]

FindRivals: TypeAlias = Callable[[Codes, NDArray[np.bool_]], Clusters]
"""Returns up to three rivals of each feature of each cluster, (3, G, d), as positions or -1.

Takes the position of each of the K clusters, or -1 if a statement must not name it, and whether there is
anything to compare, for each position and column.
"""


@dataclass(frozen=True, eq=False)
class Comparisons:
    """The means and frequencies of d columns in the P clusters that have rows, and the rivals.

    Attributes
    ----------
    labels : (P,) the labels of the clusters
    groups : (G,) the clusters that are described, as positions in ``labels``
    rivals : (3, G, d) the clusters that each feature sets each of them apart from, as positions or -1
    size : (P,) the number of rows
    mean : (P, d) the means, or NaN if there are no values
    missing : (P, d) the share of rows whose value is missing, or None if no values are missing
    categories : the categorical columns
    names : the names of the categories of these columns
    notes : for columns that have nothing to compare, the reason
    """

    labels: list[Any]
    groups: Codes
    rivals: Clusters
    size: Codes
    mean: Floats
    missing: Floats | None
    categories: Mapping[int, CategoryCounts]
    names: Mapping[int, Any]
    notes: Mapping[int, str]

    @classmethod
    def of(
        cls,
        members: MemberClusters,
        labels: NDArray[Any],
        present: Codes,
        size: Codes,
        mean: Floats,
        missing: Floats | None = None,
        categories: Mapping[int, CategoryCounts] | None = None,
        names: Mapping[int, Any] | None = None,
        find_rivals: FindRivals | None = None,
        notes: Mapping[int, str] | None = None,
    ) -> Comparisons:
        """Compare clusters with their rivals, which have rows; noise is a rival only if there is no other.

        By default, the rivals are found from the means, as in `rivals_by_means`.
        """
        place, is_noise = np.full(len(labels), -1), np.array(noise_mask(labels.tolist()), np.bool_)
        place[present] = np.arange(len(present))
        if (~is_noise[present]).sum() > 1:
            place[is_noise] = -1
        known = ~np.isnan(mean)
        known[:, list(categories or ())] = True
        rivals = rivals_by_means(members, place, mean) if find_rivals is None else find_rivals(place, known)
        return cls(
            labels[present].tolist(),
            np.searchsorted(present, members.codes),
            rivals,
            size,
            mean,
            missing if missing is not None and missing.any() else None,
            categories or {},
            names or {},
            notes or {},
        )

    @cached_property
    def is_noise(self) -> NDArray[np.bool_]:
        """(G,) whether the cluster is noise."""
        return np.array(noise_mask([self.labels[g] for g in self.groups.tolist()]), np.bool_)

    @cached_property
    def is_mostly_missing(self) -> NDArray[np.bool_]:
        """(G, d) whether over half of the values are missing, a larger share than in the other rows."""
        if self.missing is None:
            return np.zeros((len(self.groups), self.mean.shape[1]), np.bool_)
        own = self.missing[self.groups]
        more = (own > 0.5) & (own > mean_outside(self.missing, self.size[:, None])[self.groups] + _ROUNDING)
        return np.asarray(more & ~self.is_noise[:, None])

    @cached_property
    def categories_named(self) -> dict[int, Codes]:
        """(G,) the category that adds most to each cluster's relevance, in each categorical column.

        Only categories that at least a tenth of the rows have, and that add to the relevance, count; -1 if
        there is none. Also -1 for noise.
        """
        found, groups = {}, np.arange(len(self.groups))
        for column, counts in self.categories.items():
            if not counts.frequency.shape[1]:  # no category at all, or free text
                found[column] = np.full(len(groups), -1)
                continue
            is_rare = counts.frequency[self.groups] < _LEAST_FREQUENCY
            relevance = np.where(is_rare, 0.0, counts.relevance[self.groups])
            best = relevance.argmax(axis=1)
            found[column] = np.where((relevance[groups, best] > 0) & ~self.is_noise, best, -1)
        return found

    def code_of(self, column: int, category: Any) -> int:
        """Return the code of a category whose frequency is known, or -1."""
        if column not in self._codes:
            known = self.names[column] if self.categories[column].frequency.shape[1] else ()
            self._codes[column] = {str(each): code for code, each in enumerate(known)}
        return self._codes[column].get(str(category), -1)

    @cached_property
    def _codes(self) -> dict[int, dict[str, int]]:
        return {}

    @property
    def directions(self) -> NDArray[Any]:
        """(G, d) how each feature of each cluster compares with the rivals that a statement names."""
        found: NDArray[Any] = self._compared[0].astype(object if self.categories else "<U7")
        for column, best in self.categories_named.items():
            words = self.names[column]
            found[:, column] = [str(words[code]) if code >= 0 else "" for code in best.tolist()]
        found[self.is_mostly_missing] = MISSING
        found[self.is_noise] = FAR
        return found.astype(str)

    def against(self) -> NDArray[Any]:
        """Return the labels of the clusters that each feature is compared with, (G, d), as text."""
        found = np.empty(self._compared[0].shape, dtype=object)
        for group in range(len(self.groups)):
            kinds, place = np.unique(self._compared[1][:, group], axis=1, return_inverse=True)
            texts = [", ".join(str(self.labels[k]) for k in kind if k >= 0) for kind in kinds.T.tolist()]
            found[group] = np.array(texts, dtype=object)[place.reshape(-1)]
        return found

    def statements(
        self,
        cells: Sequence[tuple[int, int]],
        names: Sequence[Hashable],
        share: Floats,
        dates: Container[int],
        booleans: Container[int],
    ) -> list[Statement]:
        """Return the statements about some features of some clusters.

        Parameters
        ----------
        cells : the group and the column of each statement
        names : (d,) the names of the features
        share : (G, d) their shares
        dates, booleans : the columns of dates and of booleans
        """
        return [
            self._statement(group, i, names[i], float(share[group, i]), i in dates, i in booleans)
            for group, i in cells
        ]

    def _statement(
        self, group: int, column: int, feature: Hashable, share: float, is_date: bool, is_boolean: bool
    ) -> Statement:
        code = int(self.categories_named[column][group]) if column in self.categories else -1
        is_missing = bool(self.is_mostly_missing[group, column])
        values, overall = self._column(column, code, is_missing)
        rivals = [k for k in self._compared[1][:, group, column].tolist() if k >= 0]
        direction = str(self._compared[0][group, column])
        if self.is_noise[group]:
            direction = FAR
        elif is_missing:
            direction = MISSING
        elif column in self.categories:
            direction = str(self.names[column][code]) if code >= 0 else ""
        return Statement(
            self.labels[self.groups[group]],
            feature,
            direction,
            tuple(self.labels[k] for k in rivals),
            float(values[self.groups[group]]),
            tuple(values[rivals].tolist()),
            share,
            is_category=code >= 0 and not is_missing,
            is_date=is_date and not is_missing,
            is_boolean=is_boolean and not is_missing,
            overall=overall,
            note="" if direction else self._why_nothing(group, column),
        )

    def _column(self, column: int, code: int, is_missing: bool) -> tuple[Floats, float]:
        """Return the values of one column to compare: one per cluster, (P,), and that of all rows."""
        key = column, code, is_missing
        if key not in self._columns:
            values, count = self._values(column, code, is_missing), self.size.astype(np.float64)
            if column not in self.categories and not is_missing and self.missing is not None:
                count *= 1.0 - self.missing[:, column]
            known = (count > 0) & ~np.isnan(values)
            overall = np.average(values[known], weights=count[known]) if known.any() else np.nan
            self._columns[key] = values, float(overall)
        return self._columns[key]

    @cached_property
    def _columns(self) -> dict[tuple[int, int, bool], tuple[Floats, float]]:
        return {}

    def _values(self, column: int, code: int, is_missing: bool) -> Floats:
        if is_missing and self.missing is not None:
            return np.asarray(self.missing[:, column])
        if column not in self.categories:
            return np.asarray(self.mean[:, column])
        known = self.categories[column].frequency
        return np.asarray(known[:, code]) if code >= 0 else np.full(len(self.size), np.nan)

    def _why_nothing(self, group: int, column: int) -> str:
        """Return why there is nothing to say about a feature of a cluster, as a noun phrase."""
        if column in self.notes:
            return self.notes[column]
        if column in self.categories:
            n_known, n_words = self.categories[column].n_values[self.groups[group]], len(self.names[column])
            if n_known and n_words > MOST_CATEGORIES:
                return f"{n_words:,} categories, too many to compare"
            return "no frequent category that supports the cluster" if n_known else "no values here"
        if np.isnan(self.mean[self.groups[group], column]):
            return "no values here"
        return "nothing to compare with"

    @cached_property
    def _compared(self) -> tuple[NDArray[Any], Clusters]:
        """The direction of each value, (G, d), and the rivals that a statement names, (3, G, d), or -1."""
        d, rivals = self.mean.shape[1], self.rivals.copy()
        direction = np.full(rivals.shape[1:], "", dtype="<U7")
        for columns in column_slices(d, rivals[:, :, :1].size):
            direction[:, columns] = self._compare_means(columns, rivals)
        for column, best in self.categories_named.items():
            direction[:, column] = ""
            rivals[:, best < 0, column] = -1
        for group, column in np.argwhere(self.is_mostly_missing).tolist():
            rate = self.missing[:, column]  # type: ignore[index]  # there are missing values
            kept = rate[self.rivals[:, group, column]] < rate[self.groups[group]] - _ROUNDING
            rivals[:, group, column] = np.where(kept, self.rivals[:, group, column], -1)
        rivals[:, self.is_noise] = -1
        rivals.sort(axis=0)
        return direction, rivals

    def _compare_means(self, columns: slice, rivals: Clusters) -> NDArray[Any]:
        """Return the directions of some columns, (G, b), and remove rivals with equal or unknown means."""
        mean, some = self.mean[:, columns], rivals[:, :, columns]
        gap = mean[self.groups] - np.take_along_axis(
            mean, some.reshape(-1, mean.shape[1]).astype(np.intp), axis=0
        ).reshape(some.shape)
        gap[some < 0] = np.nan
        scale = np.fmax.reduce(np.abs(mean), axis=0, initial=0.0)
        gap[np.abs(gap) <= _ROUNDING * scale] = 0.0
        above, below = (gap > 0).any(axis=0), (gap < 0).any(axis=0)
        is_same = (gap == 0).any(axis=0) & ~(above | below)
        is_category = np.isin(np.arange(self.mean.shape[1])[columns], list(self.categories))
        some[(np.isnan(gap) | ((gap == 0) & ~is_same)) & ~is_category] = -1
        choices = [above & below, above, below, is_same]
        return np.select(choices, [BETWEEN, HIGHER, LOWER, SAME], default="")


def rivals_by_means(members: MemberClusters, place: Codes, mean: Floats) -> Clusters:
    """Find the rivals that each feature separates each cluster from most, if only the means are known.

    They are the fewest that make up two thirds of the squared differences between the means, weighted by how
    many members have them as their strongest competitor, but at most three.
    """
    codes, weights = members.rivals(place >= 0)
    near = np.where(codes < 0, -1, place[codes]).T
    own, found = place[members.codes], np.full((MOST_NAMED, len(codes), mean.shape[1]), -1, np.int32)
    for columns in column_slices(mean.shape[1], near.size):
        some = mean[:, columns]
        gap = np.abs(np.where(near[:, :, None] < 0, np.nan, some[near] - some[own]))
        is_known = ~np.isnan(gap)
        gap[~(gap > _ROUNDING * np.fmax.reduce(np.abs(some), axis=0, initial=0.0))] = 0.0  # NaN too
        largest = gap.max(axis=0, initial=0.0)
        np.divide(gap, largest, out=gap, where=largest > 0)  # squares of large numbers would overflow
        top = TopRivals.of(gap.shape[1:])
        for far, known, rival, weight in zip(gap, is_known, near, weights.T, strict=True):
            top.add(weight[:, None] * far**2, np.where(known, rival[:, None], -1))
        found[:, :, columns] = top.rivals()
    return found


@dataclass(frozen=True, eq=False)
class TopRivals:
    """The rivals with the largest contributions, updated one rival at a time.

    Attributes
    ----------
    value : (3, G, b) the largest contributions, in decreasing order
    rival : (3, G, b) the rivals that they come from, as positions or -1
    total : (G, b) the sum of all contributions
    first : (G, b) the first rival that was added, or -1
    """

    value: Floats
    rival: Clusters
    total: Floats
    first: Clusters

    @classmethod
    def of(cls, shape: tuple[int, ...]) -> TopRivals:
        """Return an empty list of rivals for each of (G, b) features."""
        rival = np.full((MOST_NAMED, *shape), -1, np.int32)
        return cls(np.zeros((MOST_NAMED, *shape)), rival, np.zeros(shape), np.full(shape, -1, np.int32))

    def add(self, contribution: Floats, rival: Codes) -> None:
        """Add the contributions of one rival per feature, (G, b), which is ignored where it is -1."""
        value = np.where(rival >= 0, np.maximum(contribution, 0.0), 0.0)
        self.first[...] = np.where(self.first < 0, rival, self.first)
        self.total[...] += value
        for i in range(len(self.value)):
            is_larger = value > self.value[i]
            lower = np.where(is_larger, self.value[i], value), np.where(is_larger, self.rival[i], rival)
            self.value[i] = np.where(is_larger, value, self.value[i])
            self.rival[i] = np.where(is_larger, rival, self.rival[i])
            value, rival = lower

    def rivals(self) -> Clusters:
        """Return the fewest rivals that make up two thirds of the total, or the first if none contributes."""
        before = np.cumsum(self.value, axis=0) - self.value
        found = np.where((self.value > 0) & (before < COVERED * self.total), self.rival, np.int32(-1))
        found[0] = np.where(self.total > 0, found[0], self.first)
        return found


def mean_outside(inside: Floats, count: NDArray[Any]) -> Floats:
    """Return the mean of all rows outside each group, (G, d), given each group's mean of ``count`` values."""
    n_values, total = np.broadcast_to(count, inside.shape), count * np.nan_to_num(inside)
    found = np.full_like(inside, np.nan)
    n_others = n_values.sum(axis=0) - n_values
    np.divide(total.sum(axis=0) - total, n_others, out=found, where=n_others > 0)
    return found


def column_slices(d: int, n_values: int) -> list[slice]:
    """Return slices of d columns that are compared at once, given the number of values per column."""
    step = max(1, _CELLS // max(1, n_values))
    return [slice(start, start + step) for start in range(0, d, step)]
