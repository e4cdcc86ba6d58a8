"""scikit-learn: nearest centroids, mixtures and trees, and estimators that only have labels."""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy.special import digamma
from sklearn.base import BaseEstimator
from sklearn.cluster import (
    AffinityPropagation,
    Birch,
    BisectingKMeans,
    FeatureAgglomeration,
    KMeans,
    MeanShift,
    MiniBatchKMeans,
)
from sklearn.mixture import BayesianGaussianMixture, GaussianMixture
from sklearn.neighbors import NearestCentroid

from whycluster.core.arrays import Codes, Floats
from whycluster.core.energies import (
    DiagonalGaussianEnergy,
    Energy,
    GaussianEnergy,
    KernelEnergy,
    SquaredEnergy,
    TreeEnergy,
)
from whycluster.core.errors import InvalidInputError, UnsupportedModelError
from whycluster.core.tree import Tree
from whycluster.data.labels import BY_LABELS
from whycluster.models.adapters.registry import AwaitingColumns, OnlyLabels, adapt, check_fitted, names_of
from whycluster.models.nearest_centroid import nearest_centroid
from whycluster.models.network import Network, TableNetwork
from whycluster.models.verification import Verification

# These predict like their networks. A subclass may not, so it is verified on the data.
_KNOWN = (
    AffinityPropagation,
    BayesianGaussianMixture,
    Birch,
    BisectingKMeans,
    GaussianMixture,
    KMeans,
    MeanShift,
    MiniBatchKMeans,
    NearestCentroid,
)


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
            "Fit it with more iterations or another damping."
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


@adapt.register(FeatureAgglomeration)
def _feature_agglomeration(model: Any) -> Network:
    raise UnsupportedModelError(
        f"neuralize: a {type(model).__name__} clusters the features, not the rows, so there is no row to "
        "explain."
    )


@adapt.register(NearestCentroid)
def _nearest_centroid(model: Any) -> Network:
    check_fitted(model)
    priors = getattr(model, "class_prior_", None)  # scikit-learn 1.6 and later
    if priors is None or np.isclose(priors, 1 / len(priors)).all():
        return _network(model, model.centroids_, model.classes_, model.metric)
    if model.metric != "euclidean":
        raise UnsupportedModelError(
            "neuralize: NearestCentroid with metric='manhattan' must have uniform priors; with others it "
            "squares the distances, which then no longer add up over the features. Got "
            f"priors={model.priors!r}."
        )
    # |x - mu|^2 / std^2 - 2 log prior, as in decision_function
    there = np.flatnonzero(priors > 0)  # a class of prior 0 is never predicted
    deviations = np.where(model.within_class_std_dev_ != 0, model.within_class_std_dev_, 1.0)
    centroids = model.centroids_[there]
    precisions = np.broadcast_to(2.0 / deviations**2, centroids.shape)
    energy = DiagonalGaussianEnergy(centroids, precisions, 2.0 * np.log(priors[there]))
    return _like(model, energy, model.classes_[there])


@adapt.register(GaussianMixture)
@adapt.register(BayesianGaussianMixture)
def _mixture(model: Any) -> Network:
    """Return the network of a mixture, without components of weight 0, which are never assigned."""
    check_fitted(model)
    log_weights = _bayesian(model) if isinstance(model, BayesianGaussianMixture) else _log(model.weights_)
    there = np.flatnonzero(log_weights > -np.inf)
    energy = _gaussian(model, there, log_weights[there])
    return _like(model, energy, there)


def _gaussian(model: Any, there: Codes, log_weights: Floats) -> Energy:
    means, roots = model.means_[there], model.precisions_cholesky_
    if not all(np.isfinite(values).all() for values in (means, roots, log_weights)):
        raise InvalidInputError(
            f"neuralize: the {type(model).__name__} has components with infinite or missing parameters: they "
            "have collapsed. Fit it again with a larger reg_covar or fewer components."
        )
    n_features = means.shape[1]
    if model.covariance_type == "full":
        return GaussianEnergy(means, roots[there], log_weights)
    if model.covariance_type == "tied":
        return GaussianEnergy(means, roots[None], log_weights)
    if model.covariance_type == "spherical":
        roots = np.broadcast_to(roots[:, None], (len(roots), n_features))
    return DiagonalGaussianEnergy(means, roots[there] ** 2, log_weights)


def _bayesian(model: Any) -> Floats:
    """Return the expected log weights, plus the terms that a Bayesian mixture adds to the log densities."""
    concentration = model.weight_concentration_
    if model.weight_concentration_prior_type == "dirichlet_process":
        total = digamma(concentration[0] + concentration[1])
        sticks = np.cumsum(digamma(concentration[1]) - total)
        log_weights = digamma(concentration[0]) - total + np.concatenate([[0.0], sticks[:-1]])
    else:
        log_weights = digamma(concentration) - digamma(concentration.sum())
    d, freedom = model.means_.shape[1], model.degrees_of_freedom_
    log_lambda = d * np.log(2.0) + digamma(0.5 * (freedom - np.arange(d)[:, None])).sum(axis=0)
    return np.asarray(
        log_weights - 0.5 * d * np.log(freedom) + 0.5 * (log_lambda - d / model.mean_precision_)
    )


def _log(weights: Floats) -> Floats:
    with np.errstate(divide="ignore"):
        return np.asarray(np.log(weights))


@adapt.register(Birch)
def _birch(model: Any) -> Network:
    """Return the network of Birch: the nearest subcluster decides, a hard minimum over each cluster."""
    check_fitted(model)
    order = np.argsort(model.subcluster_labels_, kind="stable")
    labels, sizes = np.unique(model.subcluster_labels_, return_counts=True)
    centers = model.subcluster_centers_[order]
    single = len(labels) == len(order)  # each subcluster is a cluster
    energy = SquaredEnergy(centers) if single else KernelEnergy(centers, sizes, np.inf)
    return _like(model, energy, labels)


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
            f"neuralize: the tree of this {type(model).__name__} does not match its cluster_centers_. "
            f"{BY_LABELS}"
        )
    return _like(model, TreeEnergy(tree, centers))


def _read_tree(root: Any) -> tuple[Tree, Floats]:
    """Return the pairs of scikit-learn's nodes, breadth first, so that a pair follows the one above it."""
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


def _network(model: Any, centroids: Any, labels: Any, metric: str = "euclidean") -> Network:
    return nearest_centroid(
        centroids,
        metric=metric,
        labels=labels,
        feature_names=names_of(model),
        predict=None if type(model) in _KNOWN else model.predict,
        kind=type(model).__name__,
    )


def _like(model: Any, energy: Energy, labels: Any = None) -> Network:
    """Return the network of these energies; a subclass of a known estimator is verified on the data."""
    verification = None
    if type(model) not in _KNOWN:
        kind, parent = type(model).__name__, next(c.__name__ for c in type(model).__mro__ if c in _KNOWN)
        verification = Verification(
            energy, model.predict, f"as {parent} does", kind, names_of(model) is not None
        )
    return TableNetwork(energy, labels=labels, feature_names=names_of(model), verification=verification)
