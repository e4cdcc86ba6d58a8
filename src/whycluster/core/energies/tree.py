"""Trees of centroids: hierarchical k-means, which is predicted by going down."""

from __future__ import annotations

import numpy as np

from whycluster.core.arrays import Floats
from whycluster.core.energies.energy import Energy, carve
from whycluster.core.energies.squared import SquaredEnergy
from whycluster.core.tree import Tree


class TreeEnergy(Energy):
    """A row goes down a tree, at each pair of nodes to the nearer centroid.

    The evidence for a cluster is the least over the pairs on the way to it, h = |x - sibling|^2 - |x -
    own|^2. So there is no energy per cluster here: `energies` writes, into the first K - 1 columns, the
    evidence for the left node of each pair, and `whycluster.core.rules` knows how to read them by `tree`.
    Weights, on the way back, belong to competing clusters as ever: that of a competitor goes to the pair
    where its way parts.

    Parameters
    ----------
    tree : its shape
    centers : (2(K-1), d) the centroids of the nodes
    """

    tree: Tree
    title = "a tree of centroids, as in bisecting k-means"

    def __init__(self, tree: Tree, centers: Floats) -> None:
        self.tree = tree
        self.nodes = SquaredEnergy(centers)
        self.n_clusters, self.n_features = tree.n_clusters, self.nodes.n_features
        self.offset = self.nodes.offset
        self.scratch_width = self.nodes.n_clusters + self.nodes.scratch_width

    def linearized(self) -> TreeEnergy:
        """Return the energy itself."""
        return self

    def compared(self, x: Floats) -> Floats:
        """Return the rows as the nodes compare them."""
        return self.nodes.compared(x)

    def energies(self, x: Floats, out: Floats, scratch: Floats) -> None:
        """|x - right|^2 - |x - left|^2 of each pair; the last column is not used."""
        s, rest = carve(scratch, self.nodes.n_clusters, self.nodes.scratch_width)
        self.nodes.energies(x, s, rest)
        np.subtract(s[:, 1::2], s[:, ::2], out=out[:, :-1])
        out[:, -1] = 0.0

    def combine(self, x: Floats, weights: Floats, out: Floats, scratch: Floats) -> None:
        """The weighted sum of the splits of the nodes."""
        w, rest = carve(scratch, self.nodes.n_clusters, self.nodes.scratch_width)
        self.to_nodes(weights, w)
        self.nodes.combine(x, w, out, rest)

    def differentiate(self, x: Floats, weights: Floats, out: Floats, scratch: Floats) -> None:
        """The weighted sum of the gradients of the nodes."""
        w, rest = carve(scratch, self.nodes.n_clusters, self.nodes.scratch_width)
        self.to_nodes(weights, w)
        self.nodes.differentiate(x, w, out, rest)

    def to_nodes(self, weights: Floats, w: Floats) -> None:
        """The weights of all competitors beyond a turn, on its sibling and, negative, on its own node."""
        w[...] = 0.0
        explained = weights.argmin(axis=1)  # the one weight that is negative
        for c in np.unique(explained):
            rows = np.flatnonzero(explained == c)
            for turn in self.tree.paths[c]:
                beyond = weights[np.ix_(rows, self.tree.under[turn.sibling])].sum(axis=1)
                w[rows, turn.sibling] = beyond
                w[rows, turn.own] = -beyond
