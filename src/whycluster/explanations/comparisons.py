"""Comparisons of the clusters' means and frequencies with those of the clusters that they compete with."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from whycluster.core.arrays import Codes, Floats
from whycluster.data.groups import CategoryCounts
from whycluster.data.labels import noise_mask
from whycluster.explanations.members import MemberClusters
from whycluster.explanations.statements import BETWEEN, FAR, HIGHER, LOWER, MISSING, SAME, Statement

_COVERED = 2 / 3  # a statement names the fewest rivals that make up this share of the differences
_MOST_NAMED = 3  # but at most this many
_ROUNDING = 1e-12  # means with a smaller difference, relative to the largest mean, are equal up to rounding
_LEAST_FREQUENCY = 0.1  # a rarer category does not characterize a cluster
_CELLS = 1 << 20  # the maximum number of values that are compared at once


@dataclass(frozen=True, eq=False)
class Comparisons:
    """The means and frequencies of d columns in the P clusters that have rows, and the competitors.

    A feature of a cluster is compared with the rivals from which it separates the cluster most: the
    fewest rivals that make up two thirds of the squared differences, weighted by how many members compete
    with them, but at most three.

    Attributes
    ----------
    labels : (P,) the labels of the clusters
    groups : (G,) the clusters that are described, as positions in ``labels``
    rivals, weights : (G, C) the competitors of each of them, as positions or -1, and their weights
    size : (P,) the number of rows
    mean : (P, d) the means, or NaN if there are no values
    missing : (P, d) the share of rows whose value is missing, or None if no values are missing
    categories : the categorical columns
    names : the names of the categories of these columns
    """

    labels: list[Any]
    groups: Codes
    rivals: Codes
    weights: Floats
    size: Codes
    mean: Floats
    missing: Floats | None
    categories: Mapping[int, CategoryCounts]
    names: Mapping[int, Any]

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
    ) -> Comparisons:
        """Choose the rivals among the clusters that have rows; noise is chosen only if there is no other."""
        has_rows = np.zeros(len(labels), np.bool_)
        has_rows[present] = True
        is_noise = np.array(noise_mask(labels.tolist()), np.bool_)
        rivals, weights = members.rivals(has_rows & ~is_noise)
        alone = rivals[:, 0] < 0
        if alone.any():
            others = members.rivals(has_rows)
            rivals[alone], weights[alone] = others[0][alone], others[1][alone]
        return cls(
            labels[present].tolist(),
            np.searchsorted(present, members.codes),
            np.where(rivals < 0, -1, np.searchsorted(present, rivals)),
            weights,
            size,
            mean,
            missing if missing is not None and missing.any() else None,
            categories or {},
            names or {},
        )

    @cached_property
    def is_noise(self) -> NDArray[np.bool_]:
        """(G,) whether the cluster is noise."""
        return np.array(noise_mask([self.labels[g] for g in self.groups.tolist()]), np.bool_)

    @cached_property
    def is_mostly_missing(self) -> NDArray[np.bool_]:
        """(G, d) whether most values are missing, and more of them than in the rivals together."""
        if self.missing is None:
            return np.zeros((len(self.groups), self.mean.shape[1]), np.bool_)
        own = self.missing[self.groups]
        more = (own > 0.5) & (own > self._pooled(self.missing) + _ROUNDING)
        return np.asarray(more & ~self.is_noise[:, None])

    @cached_property
    def categories_named(self) -> dict[int, Codes]:
        """(G,) the category with the largest positive relevance in each categorical column.

        -1 if there is none, if fewer than a tenth of the rows have it, or if it is no more frequent than in
        the rivals together: it then does not characterize the cluster, even if the column does. Also -1 for
        noise.
        """
        found, groups = {}, np.arange(len(self.groups))
        for column, counts in self.categories.items():
            if not counts.frequency.shape[1]:  # no category at all, or free text
                found[column] = np.full(len(groups), -1)
                continue
            relevance = counts.relevance[self.groups]
            best = relevance.argmax(axis=1)
            own = counts.frequency[self.groups, best]
            more = (own > self._pooled(counts.frequency, best) + _ROUNDING) & (own >= _LEAST_FREQUENCY)
            found[column] = np.where(more & (relevance[groups, best] > 0) & ~self.is_noise, best, -1)
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

    def _pooled(self, frequency: Floats, columns: Codes | slice = slice(None)) -> Floats:
        """Return a frequency in the rows of all rivals of each cluster together, (G,) or (G, d)."""
        count = np.where(self.rivals < 0, 0, self.size[self.rivals]).astype(np.float64).T
        total = sum((n * frequency[k, columns].T).T for n, k in zip(count, self.rivals.T, strict=True))
        return np.asarray((np.transpose(total) / np.maximum(1.0, count.sum(axis=0))).T)

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
        found = np.empty(self._compared[1].shape, dtype=object)
        for group, masks in enumerate(self._compared[1]):
            kinds, place = np.unique(masks, return_inverse=True)
            texts = [", ".join(map(str, self._named(group, int(mask))[0])) for mask in kinds]
            found[group] = np.array(texts, dtype=object)[place]
        return found

    def statement(self, group: int, column: int, feature: Hashable, share: float, is_date: bool) -> Statement:
        """Return the statement about a feature of a cluster."""
        code = int(self.categories_named[column][group]) if column in self.categories else -1
        is_missing = bool(self.is_mostly_missing[group, column])
        values = self._column(column, code, is_missing)
        against, rivals = self._named(group, int(self._compared[1][group, column]))
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
            against,
            float(values[self.groups[group]]),
            tuple(values[rivals].tolist()),
            share,
            code >= 0 and direction not in (FAR, MISSING),
            is_date and not is_missing,
        )

    def _named(self, group: int, mask: int) -> tuple[tuple[Any, ...], list[int]]:
        """Return the labels and positions of the rivals in a mask of bits, in the order of the clusters."""
        rivals = sorted(k for j, k in enumerate(self.rivals[group].tolist()) if mask >> j & 1)
        return tuple(self.labels[k] for k in rivals), rivals

    def _column(self, column: int, code: int, is_missing: bool) -> Floats:
        """Return what is compared of one column in all clusters, (P,)."""
        if is_missing and self.missing is not None:
            return np.asarray(self.missing[:, column])
        if column not in self.categories:
            return np.asarray(self.mean[:, column])
        known = self.categories[column].frequency
        return np.asarray(known[:, code]) if code >= 0 else np.full(len(self.size), np.nan)

    @cached_property
    def _compared(self) -> tuple[NDArray[Any], NDArray[np.uint8]]:
        """(G, d) the direction of each value, and the rivals that a statement names, as a mask of bits."""
        n_groups, d = len(self.groups), self.mean.shape[1]
        direction = np.full((n_groups, d), "", dtype="<U7")
        mask = np.zeros((n_groups, d), np.uint8)
        step = max(1, _CELLS // max(1, n_groups * self.rivals.shape[1]))
        for columns in (slice(start, start + step) for start in range(0, d, step)):
            mean, mostly = self.mean[:, columns], self.is_mostly_missing[:, columns]
            scale = np.fmax.reduce(np.abs(mean), axis=0, initial=0.0)
            compared = self._compare(mean[self.groups], mean[self.rivals.T], scale)
            direction[:, columns], mask[:, columns] = compared
            if self.missing is not None and mostly.any():
                rate = self.missing[:, columns]
                compared = self._compare(rate[self.groups], rate[self.rivals.T], only_above=True)
                mask[:, columns] = np.where(mostly, compared[1], mask[:, columns])
        for column, best in self.categories_named.items():
            frequency, is_named = self.categories[column].frequency, best >= 0
            kept = self.is_mostly_missing[:, column]
            direction[:, column], mask[~kept, column] = "", 0
            if is_named.any():
                own, theirs = frequency[self.groups, best], frequency[self.rivals.T, best]
                compared = self._compare(own[:, None], theirs[:, :, None], only_above=True)
                mask[:, column] = np.where(is_named & ~kept, compared[1][:, 0], mask[:, column])
        mask[self.is_noise] = 0
        return direction, mask

    def _compare(
        self, own: Floats, theirs: Floats, scale: Floats | float = 1.0, only_above: bool = False
    ) -> tuple[NDArray[Any], NDArray[np.uint8]]:
        """Compare values, (G, b), with those of the rivals, (C, G, b).

        Return directions and masks of rivals, each (G, b). Differences far below ``scale``, (b,), do not
        count. If ``only_above`` is true, rivals with larger values are left out.
        """
        theirs = np.where((self.rivals.T < 0)[:, :, None], np.nan, theirs)
        if only_above:
            theirs[theirs > own] = np.nan
        kept = self._kept(own, theirs, scale)
        above = (kept & (own > theirs)).any(axis=0)
        below = (kept & (own < theirs)).any(axis=0)
        known = ~np.isnan(theirs - own)
        is_same = known.any(axis=0) & ~(above | below)
        kept |= known & is_same & (np.cumsum(known, axis=0) <= _MOST_NAMED)
        direction = np.full(above.shape, "", dtype="<U7")
        direction[is_same] = SAME
        direction[above] = HIGHER
        direction[below] = LOWER
        direction[above & below] = BETWEEN
        return direction, np.packbits(kept, axis=0, bitorder="little")[0]

    def _kept(self, own: Floats, theirs: Floats, scale: Floats | float) -> NDArray[np.bool_]:
        """Return which rivals a statement names, (C, G, b)."""
        gap = np.abs(theirs - own)
        gap[~(gap > _ROUNDING * scale)] = 0.0  # NaN too
        largest = gap.max(axis=0, initial=0.0)
        np.divide(gap, largest, out=gap, where=largest > 0)  # squares of large numbers would overflow
        gap *= gap
        gap *= self.weights.T[:, :, None]
        order = np.argsort(-gap, axis=0, kind="stable")
        ranked = np.take_along_axis(gap, order, axis=0)
        enough = np.cumsum(ranked, axis=0) - ranked < _COVERED * ranked.sum(axis=0)
        enough[_MOST_NAMED:] = False
        kept = np.zeros(gap.shape, np.bool_)
        np.put_along_axis(kept, order, enough & (ranked > 0), axis=0)
        return kept
