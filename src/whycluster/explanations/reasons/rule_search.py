"""The search for rules: a few conjunctions of conditions whose union has the largest F1 for a cluster.

Columns are cut into bins first, so a condition is a range of bins, and the counts of all ranges of all
columns come from a single histogram. Conjunctions are found by beam search, one after another, each for the
rows that earlier ones do not cover. Then each is adjusted, given the others.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from whycluster.core.arrays import Codes, Floats

# Chosen on six tables and on blobs; benchmarks/results/cluster_rules.md reports others.
WIDTH = 12  # conjunctions that the beam search keeps
LEAST_GAIN = 0.01  # F1 that a further condition must add
LEAST_RULE_GAIN = 0.03  # F1 that a further conjunction must add
LEAST_COVERAGE = 0.1  # share of the members that a further conjunction must cover
_GOOD = 0.9  # below this F1, a first conjunction with higher precision is also tried
_PRECISE = 0.25  # weight of coverage in that conjunction
_ROUNDS = 3  # rounds in which the conjunctions are adjusted, given the others
_TRIED = 3  # ranges of a column that an extension tries
_ROUNDING = 1e-12

_OPEN = -1  # the lower bound of a range without one


class Range(NamedTuple):
    """A condition: the bins from ``low`` + 1 to ``high`` of a column."""

    column: int
    low: int
    high: int


Ranges = tuple[Range, ...]
"""A conjunction: ranges of different columns that all hold, ordered by column."""


@dataclass(frozen=True, eq=False)
class Binned:
    """Columns cut into bins.

    Attributes
    ----------
    codes : (n, m) the bin of each value; missing values are in the last bin, n_bins
    n_bins : (m,) the number of bins of each column, without the one for missing values
    most : (m,) for categories, the largest number of categories in a condition, which always takes the first
        bins; 0 for numbers
    has_missing : (m,) whether values are missing
    weight : (n,) how many rows of the table each row stands for
    """

    codes: NDArray[np.int16]
    n_bins: Codes
    most: Codes
    has_missing: NDArray[np.bool_]
    weight: Floats

    def n_conditions(self, ranges: Ranges) -> int:
        """Return the number of conditions; a range with two bounds counts twice."""
        return sum(self._n_bounds(each) for each in ranges)

    def _n_bounds(self, each: Range) -> int:
        n = int(self.n_bins[each.column])
        if each.high == n or self.most[each.column]:  # missing, or some categories
            return 1
        return max(1, (each.low > _OPEN) + (each.high < n - 1))

    def holds(self, ranges: Ranges) -> NDArray[np.bool_]:
        """Return the rows for which all ranges hold, (n,)."""
        result = np.ones(len(self.codes), dtype=bool)
        for column, low, high in ranges:
            codes = self.codes[:, column]
            result &= (codes > low) & (codes <= high)
        return result

    def histogram(self, rows: Codes, member: NDArray[np.bool_], columns: Codes) -> Floats:
        """Return the numbers of rows and of members in each bin of each column, (columns, 2, bins)."""
        width = int(self.n_bins.max()) + 1
        shape = (len(columns), 2, width)
        place = self.codes[np.ix_(rows, columns)] + np.arange(len(columns)) * (2 * width)
        place += np.where(member[rows], width, 0)[:, None]
        weight = np.repeat(self.weight[rows], len(columns))
        counts = np.bincount(place.ravel(), weight, len(columns) * 2 * width).reshape(shape)
        counts[:, 0] += counts[:, 1]
        return np.asarray(counts)


class _Found(NamedTuple):
    """A conjunction, and the F-score of its union with the others."""

    score: float
    ranges: Ranges


@dataclass(frozen=True, eq=False)
class RuleSearch:
    """The search for the rules of one cluster.

    Parameters
    ----------
    binned : the columns of n rows
    member : (n,) whether a row is in the cluster
    max_conditions : the maximum number of conditions of a conjunction
    max_rules : the maximum number of conjunctions
    recall_weight : the weight of coverage against precision, beta^2 of the F-score that is maximized
    """

    binned: Binned
    member: NDArray[np.bool_]
    max_conditions: int
    max_rules: int
    recall_weight: float = 1.0

    def run(self) -> list[Ranges]:
        """Return the conjunctions; none if no condition separates any member from other rows."""
        found = self._greedy(1.0)
        if self._score(found) < _GOOD:
            other = self._greedy(_PRECISE)
            better = self._score(found) + LEAST_RULE_GAIN * (len(other) - len(found))
            if self._score(other) >= better or not self._beats_nothing(found, 1.0):
                found = other
        return found if self._beats_nothing(found, 1.0) or self._beats_nothing(found, _PRECISE) else []

    def _beats_nothing(self, found: list[Ranges], recall_weight: float) -> bool:
        """Return whether the conjunctions describe the cluster better than all rows do."""
        search = replace(self, recall_weight=recall_weight)
        every = np.ones(len(self.member), dtype=bool)
        scores = [search._f_beta(*self._count(covered)) for covered in (self._covered(found), every)]
        return bool(scores[0] >= scores[1] + LEAST_GAIN)

    def _greedy(self, first: float) -> list[Ranges]:
        """Return conjunctions found one after another; ``first`` is the weight of coverage in the first."""
        found: list[Ranges] = []
        for number in range(self.max_rules):
            covered, score = self._covered(found), self._score(found)
            best = replace(self, recall_weight=1.0 if number else first)._find(covered)
            hits = self._count(self.binned.holds(best) & ~covered)[1]
            if not best or hits < LEAST_COVERAGE * self._size:
                break
            extended = self._adjusted([*found, best])
            if self._score(extended) < score + LEAST_RULE_GAIN:
                break
            found = extended
        return found

    def _score(self, found: list[Ranges]) -> float:
        return self._f1(*self._count(self._covered(found)))

    def _covered(self, found: list[Ranges]) -> NDArray[np.bool_]:
        covered = np.zeros(len(self.member), dtype=bool)
        for ranges in found:
            covered |= self.binned.holds(ranges)
        return covered

    @cached_property
    def _size(self) -> float:
        return float(self.binned.weight[self.member].sum())

    def _count(self, covered: NDArray[np.bool_]) -> tuple[float, float]:
        """Return the weighted numbers of covered rows and of covered members."""
        weight = self.binned.weight
        return float(weight[covered].sum()), float(weight[covered & self.member].sum())

    def _f1(self, n_covered: float, n_hits: float) -> float:
        return 2.0 * n_hits / (n_covered + self._size)

    def _f_beta(self, n_covered: Any, n_hits: Any) -> Any:
        """Return F1, or another weighting of coverage and precision; for numbers or arrays."""
        return (1.0 + self.recall_weight) * n_hits / (n_covered + self.recall_weight * self._size)

    def _adjusted(self, found: list[Ranges]) -> list[Ranges]:
        """Return the conjunctions after adjusting each, given the others, until none improves."""
        for _ in range(_ROUNDS if len(found) > 1 else 0):
            before = list(found)
            for place in range(len(found)):
                others = found[:place] + found[place + 1 :]
                found[place] = self._polished(found[place], self._covered(others)).ranges
            if found == before:
                break
        return found

    def _find(self, covered: NDArray[np.bool_]) -> Ranges:
        """Return the conjunction whose union with the covered rows has the largest F-score."""
        beam: list[Ranges] = [()]
        best = _Found(0.0, ())
        for _ in range(self.max_conditions):
            extended = {each.ranges: each for start in beam for each in self._extensions(start, covered)}
            ranked = sorted(extended.values(), key=lambda each: (-each.score, each.ranges))[:WIDTH]
            for each in ranked[:_TRIED]:
                polished = self._polished(each.ranges, covered)
                if polished.score >= best.score + LEAST_GAIN:
                    best = polished
            beam = [each.ranges for each in ranked]
        return best.ranges

    def _extensions(self, start: Ranges, covered: NDArray[np.bool_]) -> Iterator[_Found]:
        """Yield conjunctions with one more range, or with a narrower one."""
        left = min(2, self.max_conditions - self.binned.n_conditions(start))
        rows = np.flatnonzero(self.binned.holds(start) & ~covered)
        counts = self.binned.histogram(rows, self.member, np.arange(len(self.binned.n_bins)))
        own = {each.column: each for each in start}
        offset = self._count(covered)
        for column in range(len(self.binned.n_bins)) if left else ():
            for score, found in self._best_ranges(counts[column], column, offset, left):
                mine = own.get(column, found)
                narrow = Range(column, max(found.low, mine.low), min(found.high, mine.high))
                ranges = tuple(sorted([*(each for each in start if each.column != column), narrow]))
                if self.binned.n_conditions(ranges) <= self.max_conditions and ranges != start:
                    yield _Found(score, ranges)

    def _best_ranges(
        self, counts: Floats, column: int, offset: tuple[float, float], most: int
    ) -> Iterator[tuple[float, Range]]:
        """Yield the best ranges of a column with at most ``most`` bounds, given the counts of its bins."""
        n = int(self.binned.n_bins[column])
        sums = np.concatenate([np.zeros((2, 1)), np.cumsum(counts, axis=1)], axis=1)
        covered, hits = sums[:, None, :] - sums[:, :, None]  # [low + 1, high + 1]
        scores = self._f_beta(np.maximum(covered, 0.0) + offset[0], hits + offset[1])
        ranked = np.where(self._allowed(column, most), scores[: n + 1, : n + 1], -1.0)
        best = np.argpartition(-ranked, min(_TRIED, ranked.size) - 1, axis=None)[:_TRIED]
        for low, high in np.column_stack(np.unravel_index(best, ranked.shape)).tolist():
            if ranked[low, high] >= 0.0:
                yield float(ranked[low, high]), Range(column, low - 1, high - 1)
        if self.binned.has_missing[column]:
            yield float(scores[n, n + 1]), Range(column, n - 1, n)
            yield float(scores[0, n]), Range(column, _OPEN, n - 1)

    def _allowed(self, column: int, most: int) -> NDArray[np.bool_]:
        """Return which ranges of a column are conditions, [low + 1, high + 1]."""
        n = int(self.binned.n_bins[column])
        low, high = np.ogrid[: n + 1, : n + 1]
        result = (high > low) & ((low > 0) | (high < n))
        if self.binned.most[column]:
            result &= (low == 0) & (high <= self.binned.most[column])
        elif most < 2:
            result &= (low == 0) | (high == n)
        return np.asarray(result)

    def _polished(self, start: Ranges, covered: NDArray[np.bool_]) -> _Found:
        """Return a conjunction whose ranges are each the best, given the other ranges."""
        offset = self._count(covered)
        best = _Found(self._f_beta(*self._count(covered | self.binned.holds(start))), start)
        improved = True
        while improved:
            improved = False
            for each in best.ranges:
                others = tuple(other for other in best.ranges if other != each)
                rows = np.flatnonzero(self.binned.holds(others) & ~covered)
                counts = self.binned.histogram(rows, self.member, np.array([each.column]))[0]
                room = min(2, self.max_conditions - self.binned.n_conditions(others))
                for score, found in self._best_ranges(counts, each.column, offset, room):
                    if score > best.score + _ROUNDING:
                        best, improved = _Found(score, tuple(sorted([*others, found]))), True
                if improved:
                    break
        return best
