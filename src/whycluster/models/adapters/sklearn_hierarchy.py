"""scikit-learn's AgglomerativeClustering: the nearest row, or the nearest branch of its tree."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
from sklearn.cluster import AgglomerativeClustering, FeatureAgglomeration

from whycluster.core import outputs
from whycluster.core.arrays import Codes, Floats
from whycluster.core.errors import UnsupportedModelError
from whycluster.data.table import ArrayTable
from whycluster.explanations.agreement import LOW
from whycluster.models.adapters.density import known_metric, ordered
from whycluster.models.adapters.incomplete import OnlyLabels
from whycluster.models.adapters.registry import adapt, check_fitted, names_of
from whycluster.models.adapters.sklearn_density import other_metric, without_rule
from whycluster.models.energies.neighbors import NeighborEnergy
from whycluster.models.network import Network, TableNetwork

_MOST_BRANCHES = 2  # at most one branch per this many rows


@adapt.register(AgglomerativeClustering)
def _agglomerative(model: Any) -> OnlyLabels:
    check_fitted(model)
    metric = known_metric(model.metric)
    if metric is None or (metric == "haversine"):
        return without_rule(model, other_metric(model))
    labels = model.labels_
    if model.linkage == "single":
        rule = partial(_nearest_row, labels, metric, names_of(model))
    else:
        rule = partial(_nearest_branch, labels, model.children_, metric, names_of(model))
    return OnlyLabels(labels, "the labels of AgglomerativeClustering", rule, names=names_of(model))


@adapt.register(FeatureAgglomeration)
def _feature_agglomeration(model: Any) -> Network:
    raise UnsupportedModelError(
        f"neuralize: a {type(model).__name__} clusters the features, not the rows, so there are no clusters "
        "of rows to explain."
    )


def _nearest_row(labels: Codes, metric: str, names: Any, rows: Floats | None) -> Network:
    """Return the network of single linkage: a row is in the cluster of its nearest other row."""
    assert rows is not None
    members, sizes, _ = ordered(labels)
    return TableNetwork(NeighborEnergy(rows[members], sizes, metric), feature_names=names)


def _nearest_branch(labels: Codes, children: Codes, metric: str, names: Any, rows: Floats | None) -> Network:
    """Return the network of the other linkages: the nearest of the means of the branches of the tree.

    The tree is cut lower and lower until the branches reproduce almost all labels.
    """
    assert rows is not None
    n, n_branches = len(labels), int(labels.max()) + 1
    best, best_share = None, -1.0
    while True:
        branch = cut(children, n, n_branches)
        energy = _means(rows, labels, branch, metric)
        share = float((outputs.assign(energy, ArrayTable.of(rows)) == labels).mean())
        if share > best_share:
            best, best_share = energy, share
        n_branches *= 2
        if best_share >= LOW or n_branches > n // _MOST_BRANCHES:
            break
    assert best is not None
    return TableNetwork(best, feature_names=names)


def _means(rows: Floats, labels: Codes, branch: Codes, metric: str) -> NeighborEnergy:
    """Return the energy of the branches of each cluster, given the branch of each row, (n,)."""
    count = np.bincount(branch)
    means = np.zeros((len(count), rows.shape[1]))
    np.add.at(means, branch, rows)
    means /= count[:, None]
    cluster = np.empty(len(count), dtype=np.intp)
    cluster[branch] = labels
    members, sizes, _ = ordered(cluster)
    return NeighborEnergy(means[members], sizes, metric, leaves_out=False)


def cut(children: Codes, n_rows: int, n_branches: int) -> Codes:
    """Return the branch of each row, (n,), after all merges but the last ``n_branches`` - 1."""
    n_merges = min(len(children), max(0, n_rows - n_branches))
    root = np.arange(n_rows + n_merges)
    for node in range(n_merges - 1, -1, -1):  # from the top down
        root[children[node]] = root[n_rows + node]
    return np.asarray(np.unique(root[:n_rows], return_inverse=True)[1])
