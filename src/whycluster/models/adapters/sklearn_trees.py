"""scikit-learn's Birch and BisectingKMeans, which grow trees of centroids."""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.cluster import Birch, BisectingKMeans

from whycluster.core.arrays import Floats
from whycluster.core.energies import KernelEnergy, SquaredEnergy
from whycluster.core.errors import InvalidInputError, UnsupportedModelError
from whycluster.data.labels import BY_LABELS
from whycluster.models.adapters.registry import adapt, check_fitted
from whycluster.models.adapters.sklearn import exact
from whycluster.models.energies import Tree, TreeEnergy
from whycluster.models.network import Network

_KNOWN = (Birch, BisectingKMeans)


@adapt.register(Birch)
def _birch(model: Any) -> Network:
    """Return the network of Birch, in which the nearest subcluster decides (a hard minimum per cluster)."""
    check_fitted(model)
    order = np.argsort(model.subcluster_labels_, kind="stable")
    labels, sizes = np.unique(model.subcluster_labels_, return_counts=True)
    centers = model.subcluster_centers_[order]
    single = len(labels) == len(order)  # each subcluster is a cluster
    energy = SquaredEnergy(centers) if single else KernelEnergy(centers, sizes, np.inf)
    return exact(model, energy, _KNOWN, labels)


@adapt.register(BisectingKMeans)
def _bisecting(model: Any) -> Network:
    check_fitted(model)
    if model._bisecting_tree.left is None:
        raise InvalidInputError(
            "neuralize: the model must have at least 2 clusters, since a cluster is explained against its "
            "competitors; got 1."
        )
    tree, centers = _read_tree(model._bisecting_tree)
    # The tree was grown on centered data; sparse data are not centered.
    centers += getattr(model, "_X_mean", 0.0)
    leaves = np.argsort(np.where(tree.leaf >= 0, tree.leaf, tree.leaf.max() + 1), kind="stable")
    if not np.allclose(centers[leaves[: tree.n_clusters]], model.cluster_centers_):
        raise UnsupportedModelError(
            f"neuralize: the tree of this {type(model).__name__} does not match its cluster_centers_, so no "
            f"exact network is known. {BY_LABELS}"
        )
    return exact(model, TreeEnergy(tree, centers), _KNOWN)


def _read_tree(root: Any) -> tuple[Tree, Floats]:
    """Return the pairs of scikit-learn's nodes in breadth-first order, so that parents precede children."""
    nodes = [root.left, root.right]
    below, leaf = [], []
    for node in nodes:  # grows while it is read
        if node.left is None:
            below.append(-1)
            leaf.append(node.label)
        else:
            below.append(len(nodes) // 2)
            leaf.append(-1)
            nodes += [node.left, node.right]
    return Tree(np.array(below), np.array(leaf)), np.array([node.center for node in nodes])
