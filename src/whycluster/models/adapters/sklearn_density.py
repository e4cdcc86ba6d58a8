"""scikit-learn's DBSCAN, HDBSCAN and OPTICS, whose labels follow from the nearest members of each cluster."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial, wraps
from typing import Any

import numpy as np
from scipy.sparse import issparse
from sklearn.cluster import DBSCAN, HDBSCAN, OPTICS

from whycluster.core.arrays import Floats
from whycluster.models.adapters.density import (
    LinkageTree,
    core_network,
    known_metric,
    ordered,
    reachability_network,
    spread_shares,
    with_noise,
)
from whycluster.models.adapters.incomplete import KeptRows, OnlyLabels
from whycluster.models.adapters.registry import adapt, check_fitted, names_of
from whycluster.models.energies.neighbors import NeighborEnergy
from whycluster.models.energies.search import METRICS
from whycluster.models.network import Network, TableNetwork


def without_rule(model: Any, obstacle: str) -> OnlyLabels:
    """Return the labels of a model for which no rule is known, and why."""
    compared = (getattr(model, "metric", ""), getattr(model, "affinity", ""))
    return OnlyLabels(
        model.labels_,
        f"the labels of {type(model).__name__}",
        obstacle=obstacle,
        of_distances=any(str(kind).startswith("precomputed") for kind in compared),
    )


def other_metric(model: Any) -> str:
    """Return the sentence that there is no rule for the metric of a model."""
    options = getattr(model, "metric_params", None) or getattr(model, "_metric_kwargs", None)  # of hdbscan
    options = options or ({"p": model.p} if model.metric == "minkowski" else None)
    return (
        "A rule is known only for the metrics euclidean, manhattan and haversine; this "
        f"{type(model).__name__} has metric={model.metric!r}{f' with {options}' if options else ''}."
    )


def _if_metric_is_known(function: Callable[[Any, str], OnlyLabels]) -> Callable[[Any], OnlyLabels]:
    """Call the function with a fitted model and its metric, or return labels without a rule."""

    @wraps(function)
    def adapted(model: Any) -> OnlyLabels:
        check_fitted(model)
        metric = known_metric(model.metric, getattr(model, "p", None))  # HDBSCAN has no p
        if metric is None or model.metric_params:
            return without_rule(model, other_metric(model))
        return function(model, metric)

    return adapted


@adapt.register(DBSCAN)
@_if_metric_is_known
def _dbscan(model: Any, metric: str) -> OnlyLabels:
    cores, labels = model.components_, model.labels_
    if issparse(cores):
        return without_rule(
            model, "A rule is known only for dense rows; this DBSCAN was fitted on a sparse matrix."
        )
    if labels.max(initial=-1) < 0:
        return without_rule(model, "This DBSCAN found no clusters: all rows are noise.")
    return OnlyLabels(
        labels,
        "the labels of DBSCAN",
        lambda rows: core_network(
            cores, labels[model.core_sample_indices_], model.eps, metric, names_of(model), rows
        ),
        KeptRows(model.core_sample_indices_, cores),
        names=names_of(model),
    )


@adapt.register(HDBSCAN)
@_if_metric_is_known
def _hdbscan(model: Any, metric: str) -> OnlyLabels:
    labels, tree = model.labels_, getattr(model, "_single_linkage_tree_", None)
    if model.alpha != 1.0:
        return without_rule(model, f"A rule is known only for alpha=1; this one has alpha={model.alpha!r}.")
    if tree is None:
        return without_rule(model, "A rule of HDBSCAN is known only if the model kept its tree.")
    if labels.max(initial=-1) < 0 or labels.min() < -1:
        return without_rule(model, "A rule of HDBSCAN is known only for finite rows in one or more clusters.")
    births = LinkageTree(tree["left_node"], tree["right_node"], tree["value"]).births(labels)
    if births is None:
        return without_rule(model, "The clusters of this HDBSCAN are not branches of its tree.")
    network = partial(_reachability, labels, births, model._min_samples - 1, metric, names_of(model))
    return OnlyLabels(labels, "the labels of HDBSCAN", network, names=names_of(model))


@adapt.register(OPTICS)
@_if_metric_is_known
def _optics(model: Any, metric: str) -> OnlyLabels:
    if model.labels_.max(initial=-1) < 0:
        return without_rule(model, "This OPTICS found no clusters: all rows are noise.")
    rule = partial(_extracted if model.cluster_method == "dbscan" else _steep, model, metric)
    return OnlyLabels(model.labels_, "the labels of OPTICS", rule, names=names_of(model))


def _extracted(model: Any, metric: str, rows: Floats | None) -> Network:
    """Return the network for OPTICS with ``cluster_method="dbscan"``, which is that of DBSCAN."""
    assert rows is not None
    eps = model.max_eps if model.eps is None else model.eps
    core = np.flatnonzero((model.core_distances_ <= eps) & (model.labels_ >= 0))
    return core_network(rows[core], model.labels_[core], eps, metric, names_of(model), rows)


def _steep(model: Any, metric: str, rows: Floats | None) -> Network:
    """Return the network of clusters between steep slopes: the smallest reachability from a member.

    It is compared with the largest reachability inside the interval of the cluster.
    """
    assert rows is not None
    labels, cores = model.labels_, model.core_distances_
    place = np.argsort(model.ordering_)
    largest = []
    for k in range(labels.max() + 1):
        own = place[labels == k]
        inside = model.reachability_[model.ordering_[own.min() + 1 : own.max() + 1]]
        largest.append(inside[np.isfinite(inside)].max(initial=0.0))
    members, sizes, _ = ordered(labels)
    cores = np.where(np.isfinite(cores), cores, np.nanmax(cores[np.isfinite(cores)], initial=0.0))
    energy = NeighborEnergy(
        rows[members],
        sizes,
        metric,
        n_neighbors=0,
        bias=-METRICS[metric].energy(np.array(largest) * (1.0 + 1e-12)),
        floor=0.0,
        cores=cores[members],
        shares=spread_shares(np.asarray(rows), metric),
    )
    return TableNetwork(energy, labels=with_noise(len(sizes)), feature_names=names_of(model))


def _reachability(
    labels: Any, births: Floats, n_neighbors: int, metric: str, names: Any, rows: Floats | None
) -> Network:
    assert rows is not None
    return reachability_network(np.asarray(rows), labels, births, n_neighbors, metric, names)
