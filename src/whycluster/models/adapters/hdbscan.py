"""The hdbscan library, which keeps the rows that it was fitted on."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
from hdbscan import HDBSCAN
from scipy.sparse import issparse

from whycluster.core.arrays import Floats
from whycluster.models.adapters.density import LinkageTree, known_metric, ordered, reachability_network
from whycluster.models.adapters.incomplete import KeptRows, OnlyLabels
from whycluster.models.adapters.registry import adapt, check_fitted, names_of
from whycluster.models.adapters.sklearn_density import other_metric, without_rule
from whycluster.models.energies import NeighborEnergy, PredictionEnergy
from whycluster.models.network import Network, TableNetwork


@adapt.register(HDBSCAN)
def _hdbscan(model: Any) -> OnlyLabels:
    check_fitted(model)
    labels, rows, tree = model.labels_, model._raw_data, model._single_linkage_tree
    metric = known_metric(model.metric, model.p)
    if metric is None or model._metric_kwargs:
        return without_rule(model, other_metric(model))
    if model.alpha != 1.0:
        return without_rule(model, f"A rule is known only for alpha=1; this one has alpha={model.alpha!r}.")
    if rows is None or tree is None or issparse(rows) or not np.isfinite(rows).all():
        return without_rule(model, "A rule of HDBSCAN is known only for dense, finite rows, with its tree.")
    if labels.max(initial=-1) < 0:
        return without_rule(model, "This HDBSCAN found no clusters: all rows are noise.")
    births = LinkageTree(tree[:, 0].astype(np.intp), tree[:, 1].astype(np.intp), tree[:, 2]).births(labels)
    if births is None:
        return without_rule(model, "The clusters of this HDBSCAN are not branches of its tree.")
    kept = np.asarray(rows, dtype=np.float64)
    return OnlyLabels(
        labels,
        "the labels of HDBSCAN",
        partial(_network, model, kept, births, metric),
        KeptRows(np.arange(len(kept)), kept),
        names=names_of(model),
    )


def _network(model: Any, rows: Floats, births: Floats, metric: str, _: Floats | None) -> Network:
    """Return the network of the rule; with prediction data, new rows are assigned by approximate_predict."""
    n_neighbors = model.min_cluster_size if model.min_samples is None else model.min_samples
    network = reachability_network(rows, model.labels_, births, int(n_neighbors), metric, names_of(model))
    trained = network.energy
    if metric != "euclidean" or getattr(model, "_prediction_data", None) is None:
        return network
    assert isinstance(trained, NeighborEnergy)
    members, _sizes, noise = ordered(model.labels_)
    cores = model.prediction_data_.core_distances[np.concatenate([members, noise])]
    energy = PredictionEnergy(trained, cores, model.min_samples or model.min_cluster_size)
    return TableNetwork(energy, labels=network.labels, feature_names=names_of(model))
