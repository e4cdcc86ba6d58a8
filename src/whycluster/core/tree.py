"""Binary trees whose leaves are clusters."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np

from whycluster.core.arrays import Codes, Floats


class Turn(NamedTuple):
    """A pair of nodes at which the path from the root to a cluster goes left or right."""

    pair: int  # the number of the pair
    sign: float  # +1 if the path goes left, -1 if it goes right
    own: int  # the node on the path
    sibling: int  # the other node


@dataclass(frozen=True)
class Tree:
    """A binary tree whose leaves are clusters; a row descends it, choosing one node of each pair it reaches.

    Nodes are numbered 0..2(K-1)-1, without the root. Pair m consists of the left node 2m and right node 2m+1.
    A pair has a higher number than the pairs above it; pair 0 is below the root.

    Attributes
    ----------
    below : (2(K-1),) the pair below each node; -1 for a leaf
    leaf : (2(K-1),) the cluster of each leaf; -1 for other nodes
    """

    below: Codes
    leaf: Codes

    @cached_property
    def paths(self) -> list[list[Turn]]:
        """The turns from the root to each cluster."""
        found: dict[int, list[Turn]] = {}
        above: dict[int, list[Turn]] = {0: []}  # the path to each pair
        for node in range(len(self.below)):
            pair, right = divmod(node, 2)
            path = [*above[pair], Turn(pair, -1.0 if right else 1.0, node, node ^ 1)]
            if self.leaf[node] >= 0:
                found[int(self.leaf[node])] = path
            else:
                above[int(self.below[node])] = path
        return [found[c] for c in range(self.n_clusters)]

    @cached_property
    def under(self) -> list[Codes]:
        """The clusters under each node."""
        found: list[list[int]] = [[] for _ in self.below]
        for c, path in enumerate(self.paths):
            for turn in path:
                found[turn.own].append(c)
        return [np.array(clusters, dtype=np.intp) for clusters in found]

    @property
    def n_clusters(self) -> int:
        """K, the number of leaves."""
        return len(self.below) // 2 + 1

    def add_up(self, weights: Floats) -> Floats:
        """Return the total weight of all clusters that branch off the path to c together with k, (K, K).

        The diagonal contains the weights of the clusters themselves.
        """
        result = np.diag(weights)
        for c, path in enumerate(self.paths):
            for turn in path:
                result[c, self.under[turn.sibling]] = weights[self.under[turn.sibling]].sum()
        return result

    def landings(self, g: Floats) -> list[Codes]:
        """Return, for each node, the cluster that each row reaches from it, (b,).

        ``g`` is (b, K - 1), the evidence for the left node of each pair; a tie goes left.
        """
        reached: list[Codes] = [np.empty(0, np.intp)] * len(self.below)
        for node in reversed(range(len(self.below))):
            if self.leaf[node] >= 0:
                reached[node] = np.full(len(g), self.leaf[node])
            else:
                pair = self.below[node]
                reached[node] = np.where(g[:, pair] >= 0, reached[2 * pair], reached[2 * pair + 1])
        return reached
