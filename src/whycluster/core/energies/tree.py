"""Trees of centroids: bisecting k-means, which assigns a row by descending the tree."""

from __future__ import annotations

import numpy as np

from whycluster.core.arrays import Floats
from whycluster.core.energies.energy import Energy, carve
from whycluster.core.energies.squared import SquaredEnergy
from whycluster.core.tree import Tree


class TreeEnergy(Energy):
    """The energies of pairs of nodes: at each pair, a row descends to the node with the nearer centroid.

    The evidence for a cluster is the minimum of h = |x - sibling|^2 - |x - own|^2 over the pairs on its path.
    There is therefore no energy per cluster: `energies` writes the evidence for the left node of each pair
    into the first K - 1 columns, and `whycluster.core.evidence` reads it along `tree`. Weights still belong
    to competing clusters: the weight of a competitor goes to the pair where its path branches off.

    Parameters
    ----------
    tree : the shape of the tree
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
            for turn in self.tree.paths[c]:
                beyond = weights[np.ix_(rows, self.tree.under[turn.sibling])].sum(axis=1)
                w[rows, turn.sibling] = beyond
                w[rows, turn.own] = -beyond
