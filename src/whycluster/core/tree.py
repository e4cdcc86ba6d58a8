"""Binary trees whose leaves are clusters."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np

from whycluster.core.arrays import Codes, Floats


class Turn(NamedTuple):
    """A pair of nodes on the way from the root to a cluster."""

    pair: int  # which pair
    sign: float  # +1 where the way goes left, -1 where it goes right
    own: int  # the node the way goes to
    sibling: int  # the other


@dataclass(frozen=True)
class Tree:
    """A tree that a row goes down, at each pair of nodes to one of them.

    Nodes are numbered 0..2(K-1)-1 without the root; nodes 2m and 2m+1 are the left and right child of pair m,
    and pairs are numbered so that the pair above comes first (pair 0 parts the root).

    Attributes
    ----------
    below : (2(K-1),) of each node the pair that parts it, or -1 for a leaf
    leaf : (2(K-1),) of each leaf its cluster, or -1
    """

    below: Codes
    leaf: Codes

    @cached_property
    def paths(self) -> list[list[Turn]]:
        """Of each cluster the turns from the root to it."""
        found: dict[int, list[Turn]] = {}
        above: dict[int, list[Turn]] = {0: []}  # the way to each pair
        for node in range(len(self.below)):
            pair, right = divmod(node, 2)
            way = [*above[pair], Turn(pair, -1.0 if right else 1.0, node, node ^ 1)]
            if self.leaf[node] >= 0:
                found[int(self.leaf[node])] = way
            else:
                above[int(self.below[node])] = way
        return [found[c] for c in range(self.n_clusters)]

    @cached_property
    def under(self) -> list[Codes]:
        """Of each node the clusters under it."""
        found: list[list[int]] = [[] for _ in self.below]
        for c, path in enumerate(self.paths):
            for turn in path:
                found[turn.own].append(c)
        return [np.array(clusters, dtype=np.intp) for clusters in found]

    @property
    def n_clusters(self) -> int:
        """K, one more than there are pairs."""
        return len(self.below) // 2 + 1

    def landings(self, g: Floats) -> list[Codes]:
        """Of each node the cluster that a row reaches from it, (b,).

        ``g`` is (b, K - 1), of each pair the evidence for its left node; a tie goes left.
        """
        reached: list[Codes] = [np.empty(0, np.intp)] * len(self.below)
        for node in reversed(range(len(self.below))):
            if self.leaf[node] >= 0:
                reached[node] = np.full(len(g), self.leaf[node])
            else:
                pair = self.below[node]
                reached[node] = np.where(g[:, pair] >= 0, reached[2 * pair], reached[2 * pair + 1])
        return reached
