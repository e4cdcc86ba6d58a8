"""scikit-learn: the models that assign to the nearest centroid."""

from __future__ import annotations

from typing import Any

import numpy as np
import sklearn.exceptions
from sklearn.base import BaseEstimator
from sklearn.cluster import AffinityPropagation, KMeans, MeanShift, MiniBatchKMeans
from sklearn.neighbors import NearestCentroid
from sklearn.pipeline import Pipeline
from sklearn.utils.validation import check_is_fitted

from whycluster.errors import InvalidInputError, NotFittedError, UnsupportedModelError
from whycluster.nearest_centroid import nearest_centroid
from whycluster.network import Network
from whycluster.neuralize import adapt

# These predict the nearest centroid by construction; a subclass may not, and is checked on the data.
_KNOWN = (AffinityPropagation, KMeans, MeanShift, MiniBatchKMeans, NearestCentroid)


@adapt.register(AffinityPropagation)
@adapt.register(KMeans)
@adapt.register(MeanShift)
@adapt.register(MiniBatchKMeans)
def _nearest_center(model: Any) -> Network:
    _check_fitted(model)
    centers = getattr(model, "cluster_centers_", None)
    if centers is None:
        raise UnsupportedModelError(
            f"neuralize: the {type(model).__name__} was fitted on precomputed affinities, so it has no "
            "centroids in the space of the features. Fit it on the rows themselves."
        )
    if centers.shape[0] == 0:
        raise InvalidInputError(
            f"neuralize: the {type(model).__name__} did not converge and has no clusters. "
            "Fit it with more iterations or another damping."
        )
    return _network(model, centers, None)


@adapt.register(BaseEstimator)
def _other(model: Any) -> Network:
    """An estimator of another kind, perhaps a nearest-centroid model all the same."""
    _check_fitted(model)
    return adapt.dispatch(object)(model)


@adapt.register(Pipeline)
def _pipeline(model: Any) -> Network:
    _check_fitted(model)
    raise UnsupportedModelError(
        "neuralize: a Pipeline is explained by its last step, on what the steps before it make of X: "
        "wc.explain(pipeline[-1], pipeline[:-1].transform(X), "
        "feature_names=pipeline[:-1].get_feature_names_out())."
    )


@adapt.register(NearestCentroid)
def _nearest_centroid(model: Any) -> Network:
    _check_fitted(model)
    if model.metric != "euclidean":
        raise UnsupportedModelError(
            f"neuralize: NearestCentroid must have metric='euclidean'; got {model.metric!r}."
        )
    priors = getattr(model, "class_prior_", None)  # scikit-learn 1.6 and later
    if priors is not None and not np.isclose(priors, 1 / len(priors)).all():
        raise UnsupportedModelError(
            "neuralize: NearestCentroid must have uniform priors; with others it does not predict the "
            f"nearest centroid. Got priors={model.priors!r}."
        )
    return _network(model, model.centroids_, model.classes_)


def _network(model: Any, centroids: Any, labels: Any) -> Network:
    return nearest_centroid(
        centroids,
        labels=labels,
        feature_names=getattr(model, "feature_names_in_", None),
        predict=None if type(model) in _KNOWN else model.predict,
        kind=type(model).__name__,
    )


def _check_fitted(model: Any) -> None:
    try:
        check_is_fitted(model)
    except sklearn.exceptions.NotFittedError:
        raise NotFittedError(
            f"neuralize: the {type(model).__name__} must be fitted first. Call its fit method."
        ) from None
