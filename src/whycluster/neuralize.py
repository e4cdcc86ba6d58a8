"""From a fitted model to its network: one function, and one file in ``adapters`` per library."""

from __future__ import annotations

import functools
import importlib
from typing import Any

import numpy as np

from whycluster.errors import UnsupportedModelError
from whycluster.nearest_centroid import ONLY_LABELS, nearest_centroid
from whycluster.network import Network
from whycluster.table import column_names

# Top-level packages that have a module of the same name in adapters/
_ADAPTERS = ("faiss", "sklearn")

SUPPORTED = (
    "sklearn.cluster.KMeans, MiniBatchKMeans, MeanShift, AffinityPropagation",
    "sklearn.neighbors.NearestCentroid (euclidean)",
    "faiss.Kmeans",
    "any fitted model with cluster_centers_ that predicts the nearest of them (checked on your data)",
    "an array of centroids, one row each",
)


def neuralize(model: Any) -> Network:
    """The neural network that assigns as the model does, without retraining.

    Parameters
    ----------
    model : a fitted clustering model, or its centroids as an array or data frame of shape (K, d), which
        are then the clusters 0..K-1

    Returns
    -------
    Network

    Examples
    --------
    >>> import whycluster as wc
    >>> net = wc.neuralize([[0.0, 0.0], [4.0, 0.0]])
    >>> net.assign([[1.0, 5.0], [3.0, 5.0]])
    array([0, 1])
    >>> net.evidence([[1.0, 5.0]])
    array([[ 8., -8.]])
    """
    if isinstance(model, Network):
        return model
    for cls in type(model).__mro__:
        package = cls.__module__.partition(".")[0]
        if package in _ADAPTERS:
            importlib.import_module(f"whycluster.adapters.{package}")
    return adapt(model)


@functools.singledispatch
def adapt(model: Any) -> Network:
    """The network of a model; adapters register their classes here.

    A class that none has registered is taken for a nearest-centroid model if it has ``cluster_centers_``
    and ``predict``, and checked on all data that comes.
    """
    if isinstance(model, type):
        raise UnsupportedModelError(
            f"neuralize: model must be a fitted model; got the class {model.__name__}."
        )
    names = column_names(model, "neuralize", "centroids")
    if names is not None:
        return nearest_centroid(model, feature_names=names)
    if hasattr(model, "predict") and hasattr(model, "cluster_centers_"):
        return nearest_centroid(
            model.cluster_centers_,
            feature_names=getattr(model, "feature_names_in_", None),
            predict=model.predict,
            kind=type(model).__name__,
        )
    if len(getattr(model, "shape", ())) == 1:
        return _centroids(np.asarray(model))  # a series: says that these are labels
    listed = "".join(f"\n  - {line}" for line in SUPPORTED)
    raise UnsupportedModelError(
        f"neuralize: no exact network is known for {type(model).__name__}. Supported, once fitted, are:"
        f"{listed}\n{ONLY_LABELS}"
    )


@adapt.register(np.ndarray)
@adapt.register(list)
@adapt.register(tuple)
def _centroids(model: Any) -> Network:
    if _n_dimensions(model) == 1:
        raise UnsupportedModelError(
            f"neuralize: centroids must be an array of shape (clusters, features); got shape "
            f"{np.shape(model)}. If these are labels: {ONLY_LABELS[0].lower()}{ONLY_LABELS[1:]}"
        )
    return nearest_centroid(model)


def _n_dimensions(model: Any) -> int:
    try:
        return np.ndim(model)
    except ValueError:  # lists of different lengths: refused with the centroids
        return 2
