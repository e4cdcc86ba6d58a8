"""Trees of centroids: bisecting k-means, which assigns a row by descending the tree."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np

from whycluster.core.arrays import Codes, Floats
from whycluster.core.energies import Energy, SquaredEnergy
from whycluster.core.energies.energy import carve
from whycluster.core.evidence import Assignment, Boundaries, Contest, settle

# The evidence against a cluster that does not compete; unlike infinity, it gives 0 when multiplied by 0.
_TOO_FAR = 1e300


class Turn(NamedTuple):
    """A pair of nodes at which the path from the root to a cluster goes left or right."""

    pair: int  # the number of the pair
    sign: float  # +1 if the path goes left, -1 if it goes right
    own: int  # the node on the path
    sibling: int  # the other node


@dataclass(frozen=True)
class Tree(Contest):
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
    softest = 1e-290  # then exp(-beta _TOO_FAR) is 0

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

        If a competitor counted only for itself, its weight would jump where a row would reach another one of
        them. The diagonal contains the weights of the clusters themselves.
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

    def compete(
        self, energies: Floats, cluster: Codes | None = None, competitor: Codes | None = None
    ) -> Assignment:
        """Return f_c, the least evidence at the turns of the path to c."""
        cluster = self._go_down(energies, cluster, competitor)
        return settle(energies, cluster, np.zeros(len(energies)), competitor)

    def against_each(self, energies: Floats, cluster: Codes) -> None:
        """Turn the energies of pairs into the evidence at the turn where the path to each k branches off."""
        pairs = energies.copy()
        for c in np.unique(cluster):
            own = np.flatnonzero(cluster == c)
            for turn in self.paths[c]:
                beyond = np.ix_(own, self.under[turn.sibling])
                energies[beyond] = turn.sign * pairs[own, turn.pair][:, None]
        energies[np.arange(len(energies)), cluster] = np.nan

    def evidence_of_all(self, energies: Floats, out: Floats) -> None:
        """Write the least evidence at the turns of the path to each k."""
        for k, path in enumerate(self.paths):
            out[:, k] = np.min([turn.sign * energies[:, turn.pair] for turn in path], axis=0)

    def boundaries(self, energies: Floats, k: int) -> Boundaries:
        """Return one boundary per turn, with the first cluster on the other side as the competitor."""
        path = self.paths[k]
        return Boundaries(
            h=np.array([turn.sign * energies[turn.pair] for turn in path]),
            competitor=np.array([self.under[turn.sibling][0] for turn in path]),
            loses_ties=np.array([turn.sign < 0 for turn in path]),
        )

    def _go_down(self, g: Floats, cluster: Codes | None, competitor: Codes | None) -> Codes:
        """Return the cluster of each row, and turn g into h, the evidence against one competitor per turn.

        Several clusters may branch off at a turn. Only the one that the row would reach from there competes.
        If the user chose a competitor, only that cluster competes.
        """
        landings = self.landings(g)
        if cluster is None:
            cluster = np.where(g[:, 0] >= 0, landings[0], landings[1])
        pairs = g.copy()
        g[...] = _TOO_FAR
        for c in np.unique(cluster):
            rows = np.flatnonzero(cluster == c)
            for turn in self.paths[c]:
                if competitor is None:
                    there, reached = rows, landings[turn.sibling][rows]
                else:
                    there = rows[np.isin(competitor[rows], self.under[turn.sibling])]
                    reached = competitor[there]
                g[there, reached] = turn.sign * pairs[there, turn.pair]
        return cluster


class TreeEnergy(Energy):
    """The energies of pairs of nodes: at each pair, a row descends to the node with the nearer centroid.

    The evidence for a cluster is the minimum of h = |x - sibling|^2 - |x - own|^2 over the pairs on its path.
    There is therefore no energy per cluster: `energies` writes the evidence for the left node of each pair
    into the first K - 1 columns, and `Tree` reads it along its paths. Weights still belong to competing
    clusters: the weight of a competitor goes to the pair where its path branches off.

    Parameters
    ----------
    tree : the shape of the tree
    centers : (2(K-1), d) the centroids of the nodes
    """

    contest: Tree
    distance = "euclidean"
    title = "a tree of centroids, as in bisecting k-means"

    def __init__(self, tree: Tree, centers: Floats) -> None:
        self.contest = tree
        self.nodes = SquaredEnergy(centers)
        self.n_clusters, self.n_features = tree.n_clusters, self.nodes.n_features
        self.offset, self.landmarks = self.nodes.offset, self.nodes.landmarks
        self.scratch_width = self.nodes.n_clusters + self.nodes.scratch_width

    def linearized(self) -> TreeEnergy:
        """Return the energy itself."""
        return self

    def compared(self, x: Floats) -> Floats:
        """Return the scaled rows."""
        return self.nodes.compared(x)

    def energies(self, x: Floats, out: Floats, scratch: Floats) -> None:
        """Write |x - right|^2 - |x - left|^2 for each pair; the last column is not used."""
        s, rest = carve(scratch, self.nodes.n_clusters, self.nodes.scratch_width)
        self.nodes.energies(x, s, rest)
        np.subtract(s[:, 1::2], s[:, ::2], out=out[:, :-1])
        out[:, -1] = 0.0

    def combine(self, x: Floats, weights: Floats, out: Floats, scratch: Floats) -> None:
        """Write the weighted sum of the splits of the nodes."""
        w, rest = carve(scratch, self.nodes.n_clusters, self.nodes.scratch_width)
        self.to_nodes(weights, w)
        self.nodes.combine(x, w, out, rest)

    def differentiate(self, x: Floats, weights: Floats, out: Floats, scratch: Floats) -> None:
        """Write the weighted sum of the gradients of the nodes."""
        w, rest = carve(scratch, self.nodes.n_clusters, self.nodes.scratch_width)
        self.to_nodes(weights, w)
        self.nodes.differentiate(x, w, out, rest)

    def to_nodes(self, weights: Floats, w: Floats) -> None:
        """Convert the weights of clusters to weights of nodes.

        Each sibling gets the total weight of the competitors under it, and the node on the path gets the
        negative of that total.
        """
        w[...] = 0.0
        explained = weights.argmin(axis=1)  # the only negative weight
        for c in np.unique(explained):
            rows = np.flatnonzero(explained == c)
            for turn in self.contest.paths[c]:
                beyond = weights[np.ix_(rows, self.contest.under[turn.sibling])].sum(axis=1)
                w[rows, turn.sibling] = beyond
                w[rows, turn.own] = -beyond
