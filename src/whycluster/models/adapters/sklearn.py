"""scikit-learn: nearest centroids, and estimators that provide only labels."""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.base import BaseEstimator
from sklearn.cluster import AffinityPropagation, KMeans, MeanShift, MiniBatchKMeans
from sklearn.neighbors import NearestCentroid

from whycluster.core.energies import Energy, SquaredEnergy
from whycluster.core.errors import InvalidInputError, UnsupportedModelError
from whycluster.models.adapters.incomplete import AwaitingColumns, OnlyLabels
from whycluster.models.adapters.registry import adapt, check_fitted, names_of
from whycluster.models.energies import DiagonalGaussianEnergy
from whycluster.models.nearest_centroid import nearest_centroid
from whycluster.models.network import Network, TableNetwork
from whycluster.models.verification import verification_of

# These predict like their networks. A subclass may not, so it is verified on the data.
_KNOWN = (AffinityPropagation, KMeans, MeanShift, MiniBatchKMeans, NearestCentroid)


@adapt.register(AffinityPropagation)
@adapt.register(KMeans)
@adapt.register(MeanShift)
@adapt.register(MiniBatchKMeans)
def _nearest_center(model: Any) -> Network:
    check_fitted(model)
    centers = getattr(model, "cluster_centers_", None)
    if centers is None:
        raise UnsupportedModelError(
            f"neuralize: the {type(model).__name__} was fitted on precomputed affinities, so it has no "
            "centroids in the space of the features. Fit it on the rows themselves."
        )
    if centers.shape[0] == 0:
        raise InvalidInputError(
            f"neuralize: the {type(model).__name__} did not converge and has no clusters. "
            "Fit it with more iterations or a different damping."
        )
    if type(model) in _KNOWN and isinstance(centers, np.ndarray) and np.isfinite(centers).all():
        names = names_of(model)
        return TableNetwork(SquaredEnergy(centers), feature_names=names)
    return _network(model, centers, None)


@adapt.register(BaseEstimator)
def _other(model: Any) -> Network | OnlyLabels | AwaitingColumns:
    """Return the network or the labels of any other estimator."""
    check_fitted(model)
    return adapt.dispatch(object)(model)


@adapt.register(NearestCentroid)
def _nearest_centroid(model: Any) -> Network:
    check_fitted(model)
    priors = getattr(model, "class_prior_", None)  # scikit-learn 1.6 and later
    if priors is None or np.isclose(priors, 1 / len(priors)).all():
        return _network(model, model.centroids_, model.classes_, model.metric)
    if model.metric != "euclidean":
        raise UnsupportedModelError(
            "neuralize: NearestCentroid with metric='manhattan' must have uniform priors; with other "
            "priors, it squares the distances, which then no longer add up over the features. Got "
            f"priors={model.priors!r}."
        )
    # |x - mu|^2 / std^2 - 2 log prior, as in decision_function
    used = np.flatnonzero(priors > 0)  # a class with prior 0 is never predicted
    deviations = np.where(model.within_class_std_dev_ != 0, model.within_class_std_dev_, 1.0)
    centroids = model.centroids_[used]
    precisions = np.broadcast_to(2.0 / deviations**2, centroids.shape)
    energy = DiagonalGaussianEnergy(centroids, precisions, 2.0 * np.log(priors[used]))
    return exact(model, energy, _KNOWN, model.classes_[used])


def _network(model: Any, centroids: Any, labels: Any, metric: str = "euclidean") -> Network:
    return nearest_centroid(
        centroids,
        metric=metric,
        labels=labels,
        feature_names=names_of(model),
        predict=None if type(model) in _KNOWN else model.predict,
        kind=type(model).__name__,
    )


def exact(model: Any, energy: Energy, known: tuple[type, ...], labels: Any = None) -> Network:
    """Return the network of these energies; a subclass of a known estimator is verified on the data."""
    verification = verification_of(model, energy, known)
    return TableNetwork(energy, labels=labels, feature_names=names_of(model), verification=verification)
