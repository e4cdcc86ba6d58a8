"""The members of each cluster, and the clusters that they compete with."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from whycluster.core.arrays import Codes, Floats

_MOST_RIVALS = 8
_LEAST_SHARE = 0.05  # share of the members


@dataclass(frozen=True, eq=False)
class MemberClusters:
    """The clusters that have members, that is, rows explained for the cluster they belong to.

    Attributes
    ----------
    codes : (G,) the clusters
    size : (G,) the number of members or, if labels are explained, of all rows with the label
    group, competitor, count : (P,) how many members of a group have a competitor as their strongest one; by
        group, then by decreasing count. Only pairs that occur are listed, since K may be large.
    n_clusters : K
    """

    codes: Codes
    size: Codes
    group: Codes
    competitor: Codes
    count: Codes
    n_clusters: int

    @classmethod
    def of(
        cls, cluster: Codes, competitor: Codes, member: NDArray[np.bool_], n_clusters: int
    ) -> MemberClusters:
        """Group the members among n rows by cluster, given the codes of clusters and competitors, (n,)."""
        return cls.of_pairs(*count_pairs(cluster[member], competitor[member], n_clusters), n_clusters)

    @classmethod
    def of_pairs(cls, pairs: NDArray[np.int64], count: NDArray[np.int64], n_clusters: int) -> MemberClusters:
        """Return the members, given the number of rows of each pair, which is cluster * K + competitor."""
        cluster, competitor = np.divmod(pairs, n_clusters)
        codes, group = np.unique(cluster, return_inverse=True)
        size = np.bincount(group, weights=count, minlength=len(codes)).astype(np.intp)
        order = np.lexsort((competitor, -count, group))
        return cls(codes, size, group[order], competitor[order], count[order], n_clusters)

    def competitors(self, group: int) -> tuple[Codes, Floats]:
        """Return the strongest competitors of a group's members and their shares, by decreasing share."""
        pairs = slice(*np.searchsorted(self.group, [group, group + 1]).tolist())
        return self.competitor[pairs], self.count[pairs] / self.count[pairs].sum()

    def shares_of(self, codes: Codes) -> Floats:
        """Return the share of the members of some clusters, (G,), whose strongest competitor is k, (G, K)."""
        share = np.zeros((len(codes), self.n_clusters))
        for row, group in zip(share, np.searchsorted(self.codes, codes).tolist(), strict=True):
            competitor, row_share = self.competitors(group)
            row[competitor] = row_share
        return share

    @cached_property
    def competitor_share(self) -> Floats:
        """(G, K) the share of members whose strongest competitor is k. Prefer `competitors` if K is large."""
        return self.shares_of(self.codes)

    @property
    def _n_members(self) -> Codes:
        return np.bincount(self.group, weights=self.count, minlength=len(self.codes)).astype(np.intp)

    def rivals(self, comparable: NDArray[np.bool_]) -> tuple[Codes, Floats]:
        """Return the clusters that each cluster is compared with, (G, 8), -1 for none, and their weights.

        They are the ``comparable`` clusters, (K,), that are the strongest competitors of at least 5% of the
        members, or else the most frequent one. The weight is that share.
        """
        kept = np.flatnonzero(comparable[self.competitor])
        starts = np.searchsorted(self.group[kept], np.arange(len(self.codes) + 1))
        rank = np.arange(len(kept)) - starts[self.group[kept]]
        share = self.count[kept] / self._n_members[self.group[kept]]
        chosen = (rank == 0) | ((share >= _LEAST_SHARE) & (rank < _MOST_RIVALS))
        rivals = np.full((len(self.codes), _MOST_RIVALS), -1)
        weights = np.zeros(rivals.shape)
        places = self.group[kept][chosen], rank[chosen]
        rivals[places], weights[places] = self.competitor[kept][chosen], share[chosen]
        return rivals, weights


def count_pairs(
    cluster: Codes, competitor: Codes, n_clusters: int
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the pairs cluster * K + competitor that occur among n rows, sorted, and their frequencies."""
    pairs = cluster.astype(np.int64) * n_clusters + competitor
    if n_clusters**2 > len(pairs):
        return np.unique(pairs, return_counts=True)
    count = np.bincount(pairs)  # needs no sorting, but K * K numbers
    found = np.flatnonzero(count)
    return found, count[found]
