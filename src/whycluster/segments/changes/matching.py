"""Which clusters of two segmentations correspond to each other, by the rows that they share."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import linear_sum_assignment

from whycluster.core.arrays import Codes, Floats
from whycluster.data.frames import unique_name
from whycluster.data.labels import as_labels, noise_mask

NONE = -1
"""The code of a cluster that a segmentation does not have."""


@dataclass(frozen=True)
class MatchedClusters:
    """The clusters of two segmentations under common labels: those of the old one, then the new clusters.

    Attributes
    ----------
    labels : (L,) the common labels
    old, new : (L,) the codes of each cluster in the two segmentations, or `NONE`
    new_labels : (K,) the labels that the new segmentation itself uses
    overlap : (L,) the number of rows that both segmentations put into the cluster, divided by the number of
        rows that either of them does; NaN for clusters of only one segmentation
    """

    labels: NDArray[Any]
    old: Codes
    new: Codes
    new_labels: NDArray[Any]
    overlap: Floats

    @classmethod
    def same(cls, labels: NDArray[Any]) -> MatchedClusters:
        """Return the clusters of a single segmentation."""
        codes = np.arange(len(labels))
        return cls(labels, codes, codes, labels, np.full(len(labels), np.nan))

    @property
    def is_shared(self) -> NDArray[np.bool_]:
        """(L,) whether both segmentations have the cluster."""
        return np.asarray((self.old != NONE) & (self.new != NONE))

    @property
    def from_new(self) -> Codes:
        """(K,) the common code of each cluster of the new segmentation."""
        codes = np.empty(len(self.new_labels), dtype=np.intp)
        known = np.flatnonzero(self.new != NONE)
        codes[self.new[known]] = known
        return codes


def match_clusters(
    old_labels: NDArray[Any], new_labels: NDArray[Any], old: Codes, new: Codes
) -> MatchedClusters:
    """Match the clusters of two segmentations of the same rows.

    The matching maximizes the sum of the overlaps, the number of shared rows divided by the number of rows in
    either cluster (the Hungarian algorithm). Two clusters stay unmatched unless they share more than half of
    the rows of the smaller one. Noise always matches noise, and nothing else.

    Parameters
    ----------
    old_labels, new_labels : the labels of the clusters
    old, new : (n,) the cluster of each row in the two segmentations, as codes
    """
    n_old, n_new = len(old_labels), len(new_labels)
    shared = np.bincount(old * n_new + new, minlength=n_old * n_new).reshape(n_old, n_new)
    sizes = shared.sum(axis=1)[:, None], shared.sum(axis=0)
    overlap = shared / np.maximum(sizes[0] + sizes[1] - shared, 1)
    enough = 2 * shared > np.minimum(*sizes)
    noise = [np.array(noise_mask(labels.tolist())) for labels in (old_labels, new_labels)]
    both, one = noise[0][:, None] & noise[1], noise[0][:, None] ^ noise[1]
    rows, columns = linear_sum_assignment(np.where(both, 2.0, np.where(one, 0.0, overlap)), maximize=True)
    partner = np.full(n_old, NONE)
    kept = ((enough & ~one) | both)[rows, columns]
    partner[rows[kept]] = columns[kept]
    return _combined(old_labels, new_labels, partner, overlap)


def _combined(
    old_labels: NDArray[Any], new_labels: NDArray[Any], partner: Codes, overlap: Floats
) -> MatchedClusters:
    appeared = np.setdiff1d(np.arange(len(new_labels)), partner)
    labels = old_labels.tolist()
    for label in new_labels[appeared].tolist():
        labels.append(_unused(label, labels))
    old = np.concatenate([np.arange(len(old_labels)), np.full(len(appeared), NONE)])
    new = np.concatenate([partner, appeared])
    is_matched = (old != NONE) & (new != NONE)
    found = np.full(len(old), np.nan)
    found[is_matched] = overlap[old[is_matched], new[is_matched]]
    return MatchedClusters(as_labels(labels), old, new, new_labels, found)


def _unused(label: Any, taken: Sequence[Any]) -> Any:
    """Return a label that no cluster has: the next number, or the name with "(new)"."""
    if label not in taken:
        return label
    if isinstance(label, str):
        return unique_name(f"{label} (new)", taken)
    return max(each for each in taken if not isinstance(each, str)) + 1
