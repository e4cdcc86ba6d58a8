"""One contract for every supported model: the network assigns each row as the model itself does."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import scipy.sparse as sp
from numpy.typing import NDArray
from sklearn.cluster import AffinityPropagation, Birch, BisectingKMeans, KMeans, MeanShift, MiniBatchKMeans
from sklearn.datasets import load_breast_cancer, load_digits, load_iris, load_wine
from sklearn.mixture import BayesianGaussianMixture, GaussianMixture
from sklearn.neighbors import KNeighborsClassifier, NearestCentroid

import whycluster as wc
from tests.optional import load_frame, optional

if TYPE_CHECKING:
    import faiss
    import kmedoids
    import minisom
    import pandas as pd
    import stepmix.stepmix as stepmix
    import torch
    import tslearn.clustering as tslearn
else:
    pd = optional("pandas")
    faiss = optional("faiss")
    kmedoids = optional("kmedoids")
    minisom = optional("minisom")
    stepmix = optional("stepmix.stepmix")
    torch = optional("torch")
    tslearn = optional("tslearn.clustering")


Array = NDArray[Any]
DATA = {"wine": load_wine, "iris": load_iris, "cancer": load_breast_cancer, "digits": load_digits}


class Quantizer:
    """A model of no known library, with the two names that promise nearest centroids."""

    def __init__(self, X: Array) -> None:
        self.cluster_centers_ = X[::25].copy()

    def predict(self, X: Array) -> Array:
        distances = ((X[:, None] - self.cluster_centers_) ** 2).sum(axis=2)
        return np.asarray(distances.argmin(axis=1))


class CarefulKMeans(KMeans):  # type: ignore[misc]  # scikit-learn has no types
    """Someone's subclass."""


class CarefulCentroid(NearestCentroid):  # type: ignore[misc]
    """Someone's subclass, with labels of its own."""


class SphericalKMeans:
    """Unit-norm centroids and the largest cosine, as a package of the kind would have it."""

    def __init__(self, X: Array) -> None:
        self.cluster_centers_ = X[::25] / np.linalg.norm(X[::25], axis=1, keepdims=True)

    def predict(self, X: Array) -> Array:
        return np.asarray((X @ self.cluster_centers_.T).argmax(axis=1))


class DeepClusters:
    """Centers in a space of embeddings, and the soft assignments of DEC around them."""

    def __init__(self, X: Array) -> None:
        self.cluster_centers_ = X[::25].copy()

    def soft(self, X: Array) -> Array:
        q = 1.0 / (1.0 + ((X[:, None] - self.cluster_centers_) ** 2).sum(axis=2))
        return np.asarray(q / q.sum(axis=1, keepdims=True))

    def predict(self, X: Array) -> Array:
        return np.asarray(self.soft(X).argmax(axis=1))


def _faiss(X: Array, spherical: bool = False) -> Any:
    model = faiss.Kmeans(X.shape[1], 6, seed=1, min_points_per_centroid=1, spherical=spherical)
    model.train(X)
    return model


def _map(X: Array) -> Any:
    model = minisom.MiniSom(2, 3, X.shape[1], random_seed=0)
    model.train(X, 500)
    return model


def _latent(X: Array) -> Any:
    return stepmix.StepMix(4, measurement="gaussian_diag", random_state=0, progress_bar=0, verbose=0).fit(X)


def _series(X: Array) -> Any:
    return tslearn.TimeSeriesKMeans(5, max_iter=5, random_state=0).fit(X[:, :, None])


def _mixture(kind: Any, X: Array, covariance: str, **options: Any) -> Any:
    return kind(
        n_components=5,
        covariance_type=covariance,
        reg_covar=0.1,
        max_iter=500,
        tol=0.01,
        random_state=0,
        **options,
    ).fit(X)


def _priors(y: Array) -> list[float]:
    """The first class is twice as likely as the others."""
    n_classes = y.max() + 1
    return [(2.0 if k == 0 else 1.0) / (n_classes + 1) for k in range(n_classes)]


MODELS: dict[str, Callable[[Array, Array], Any]] = {
    "KMeans": lambda X, _: KMeans(6, n_init=1, random_state=0).fit(X),
    "KMeans, elkan": lambda X, _: KMeans(6, n_init=1, algorithm="elkan", random_state=0).fit(X),
    "MiniBatchKMeans": lambda X, _: MiniBatchKMeans(6, n_init=1, random_state=0).fit(X),
    "MeanShift": lambda X, _: MeanShift(bandwidth=float(np.sqrt(X.var(axis=0).sum()))).fit(X[:150]),
    "AffinityPropagation": lambda X, _: AffinityPropagation(damping=0.9, max_iter=1000).fit(X[:200]),
    "NearestCentroid": lambda X, y: NearestCentroid().fit(X, y),
    "NearestCentroid, text labels": lambda X, y: NearestCentroid().fit(X, np.array(list("cab" * 4))[y]),
    "NearestCentroid, shrunken": lambda X, y: NearestCentroid(shrink_threshold=0.2).fit(X, y),
    "NearestCentroid, manhattan": lambda X, y: NearestCentroid(metric="manhattan").fit(X, y),
    "NearestCentroid, priors": lambda X, y: NearestCentroid(priors=_priors(y)).fit(X, y),
    "faiss.Kmeans": lambda X, _: _faiss(X),
    "faiss.Kmeans, spherical": lambda X, _: _faiss(X, spherical=True),
    "KMedoids": lambda X, _: kmedoids.KMedoids(6, metric="euclidean", random_state=0).fit(X),
    "KMedoids, manhattan": lambda X, _: kmedoids.KMedoids(6, metric="manhattan", random_state=0).fit(X),
    "KMedoids, cosine": lambda X, _: kmedoids.KMedoids(6, metric="cosine", random_state=0).fit(X),
    "Birch": lambda X, _: Birch(n_clusters=4, threshold=0.3 * X.shape[1] ** 0.5).fit(X),
    "Birch, subclusters": lambda X, _: Birch(n_clusters=None, threshold=0.5 * X.shape[1] ** 0.5).fit(X),
    "BisectingKMeans": lambda X, _: BisectingKMeans(6, random_state=0).fit(X),
    "BisectingKMeans, largest": lambda X, _: BisectingKMeans(
        9, bisecting_strategy="largest_cluster", random_state=0
    ).fit(X),
    "GaussianMixture, full": lambda X, _: _mixture(GaussianMixture, X, "full"),
    "GaussianMixture, tied": lambda X, _: _mixture(GaussianMixture, X, "tied"),
    "GaussianMixture, diag": lambda X, _: _mixture(GaussianMixture, X, "diag"),
    "GaussianMixture, spherical": lambda X, _: _mixture(GaussianMixture, X, "spherical"),
    "BayesianGaussianMixture, full": lambda X, _: _mixture(BayesianGaussianMixture, X, "full"),
    "BayesianGaussianMixture, tied": lambda X, _: _mixture(BayesianGaussianMixture, X, "tied"),
    "BayesianGaussianMixture, diag": lambda X, _: _mixture(BayesianGaussianMixture, X, "diag"),
    "BayesianGaussianMixture, spherical": lambda X, _: _mixture(BayesianGaussianMixture, X, "spherical"),
    "BayesianGaussianMixture, distribution": lambda X, _: _mixture(
        BayesianGaussianMixture, X, "diag", weight_concentration_prior_type="dirichlet_distribution"
    ),
    "KernelKMeans": lambda X, _: wc.KernelKMeans(6, random_state=0).fit(X),
    "KernelKMeans, few": lambda X, _: wc.KernelKMeans(4, n_support=3, gamma=0.5, random_state=0).fit(X),
    "KNeighborsClassifier": lambda X, y: KNeighborsClassifier().fit(X[::2], y[::2]),
    "KNeighborsClassifier, manhattan": lambda X, y: KNeighborsClassifier(4, p=1).fit(X[::2], y[::2]),
    "MiniSom": lambda X, _: _map(X),
    "StepMix": lambda X, _: _latent(X),
    "TimeSeriesKMeans": lambda X, _: _series(X),
    "unknown model": lambda X, _: Quantizer(X),
    "subclass of KMeans": lambda X, _: CarefulKMeans(6, n_init=1, random_state=0).fit(X),
    "subclass of NearestCentroid": lambda X, y: CarefulCentroid().fit(X, np.array(list("cab" * 4))[y]),
}


# In these, a component weight, a correlation or the loss in a soft minimum belongs to no single feature.
WITH_RESIDUAL = (
    "GaussianMixture",
    "BayesianGaussianMixture",
    "KernelKMeans",
    "NearestCentroid, priors",
    "StepMix",
)
# The evidence jumps where the number of votes of the winner changes.
JUMPING = ("KNeighborsClassifier", "KNeighborsClassifier, manhattan")
WITHOUT_TORCH = ("KNeighborsClassifier", "KNeighborsClassifier, manhattan")


def predict(model: Any, X: Array) -> Array:
    if isinstance(model, faiss.Kmeans):
        return np.asarray(model.assign(X.astype(np.float32))[1])
    kind = type(model).__name__  # the libraries may be missing
    if kind == "MiniSom":
        return np.array([",".join(map(str, model.winner(row))) for row in X])
    if kind == "TimeSeriesKMeans":
        return np.asarray(model.predict(X[:, :, None]))
    return np.asarray(model.predict(X))


@pytest.fixture(params=DATA)
def data(request: pytest.FixtureRequest) -> tuple[Array, Array]:
    bunch = DATA[request.param]()
    X = np.asarray(bunch.data, dtype=np.float64)
    X = X[:, X.std(axis=0) > 0]  # shrinking divides by the deviation
    return (X - X.mean(axis=0)) / X.std(axis=0), bunch.target


@pytest.mark.parametrize("kind", MODELS)
def test_the_network_assigns_as_the_model(kind: str, data: tuple[Array, Array]) -> None:
    X, y = data
    model = MODELS[kind](X, y)
    expected = predict(model, X)
    net = wc.neuralize(model)
    assert net.n_clusters >= 2
    assert (net.assign(X) == expected).all()
    exp = wc.explain(model, X)
    assert exp.fidelity is None  # no surrogate
    assert (exp.cluster == expected).all()
    assert (exp.evidence >= 0).all()
    assert (net.labels[net.evidence(X).argmax(axis=1)] == expected).all()
    assert (exp.competitor != exp.cluster).all()
    if not kind.startswith(WITH_RESIDUAL):
        assert np.abs(exp.residual).max() <= 1e-9 * exp.evidence.max()
    assert np.allclose(exp.relevance.sum(axis=1) + exp.residual, exp.evidence, rtol=1e-9)
    assert net.energy.adds_up == (not net.energy.unattributed)


@pytest.mark.parametrize("kind", MODELS)
def test_rows_the_model_never_saw_are_assigned_alike(kind: str, data: tuple[Array, Array]) -> None:
    X, y = data
    model = MODELS[kind](X, y)
    new = np.random.default_rng(5).normal(scale=2.0, size=(2000, X.shape[1]))
    assert (wc.neuralize(model).assign(new) == predict(model, new)).all()


@pytest.mark.parametrize("data", ["wine", "iris", "cancer"], indirect=True)  # pairs of 1000 units fill 2 GB
@pytest.mark.parametrize("kind", [kind for kind in MODELS if kind not in WITHOUT_TORCH])
def test_torch_gives_the_evidence_and_its_gradient(kind: str, data: tuple[Array, Array]) -> None:
    X, y = data
    net = wc.neuralize(MODELS[kind](X, y))
    x = X[::25] + 0.05 * np.random.default_rng(5).normal(size=X[::25].shape)  # not on any prototype
    rows, expected = np.arange(len(x)), net.evidence(x)
    module, own = net.to_torch(), expected.argmax(axis=1)
    for cluster in (own, (own + 1) % net.n_clusters):  # the assigned, and one that did not win
        point = torch.tensor(x, requires_grad=True)
        evidence = module(point)
        assert np.abs(evidence.detach().numpy() - expected).max() <= 1e-10 * np.abs(expected).max()
        evidence[rows, cluster].sum().backward()
        assert point.grad is not None
        gradient = net.gradient(x, target=net.labels[cluster])
        assert np.abs(gradient - point.grad.numpy()).max() <= 1e-10 * np.abs(gradient).max()
    assert (net.gradient(x) == net.gradient(x, target=net.labels[own])).all()


@pytest.mark.parametrize("kind", MODELS)
def test_the_gradient_is_the_limit_of_differences(kind: str) -> None:
    X, y = load_wine(return_X_y=True)
    X = (X - X.mean(axis=0)) / X.std(axis=0)
    net = wc.neuralize(MODELS[kind](X, y))
    x = X[::25] + 0.05 * np.random.default_rng(5).normal(size=X[::25].shape)
    rows, step = np.arange(len(x)), 1e-5
    for cluster in range(min(net.n_clusters, 9)):
        moves = step * np.eye(X.shape[1])
        rises = [(net.evidence(x + move) - net.evidence(x - move))[rows, cluster] for move in moves]
        found = net.gradient(x, target=net.labels[cluster])
        assert np.abs(found - np.stack(rises, axis=1) / (2 * step)).max() <= 1e-6 * np.abs(found).max()


def test_spherical_kmeans_is_said_by_the_user(data: tuple[Array, Array]) -> None:
    X, _ = data
    model = SphericalKMeans(X)
    net = wc.neuralize(model, metric="cosine")
    assert (net.assign(X) == model.predict(X)).all()
    assert (wc.explain(model.cluster_centers_, X, metric="cosine").cluster == model.predict(X)).all()
    with pytest.raises(wc.UnsupportedModelError, match=r"nearest of its cluster_centers_ \(manhattan\)"):
        wc.neuralize(model, metric="manhattan").assign(X)


def test_a_student_head_is_said_by_the_user(data: tuple[Array, Array]) -> None:
    X, _ = data
    model = DeepClusters(X)
    net = wc.neuralize(model, metric="student")
    assert net.is_checked
    exp, q = net.explain(X), np.sort(model.soft(X), axis=1)
    assert (net.assign(X) == model.predict(X)).all()
    assert (exp.cluster == model.predict(X)).all()
    assert np.abs(exp.evidence - np.log(q[:, -1] / q[:, -2])).max() <= 1e-12 * exp.evidence.max()
    assert np.abs(exp.residual).max() <= 1e-12 * exp.evidence.max()
    above = wc.explain(model.cluster_centers_, X, metric="student", threshold=0.3)
    assert ((above.evidence > 0) == (q[:, -1] > 0.3)).all()


@pytest.mark.parametrize("make", [pd.DataFrame, sp.csr_array])
@pytest.mark.parametrize("kind", ["unknown model", "subclass of KMeans"])
def test_a_model_fitted_on_arrays_is_checked_with_arrays(kind: str, make: Any) -> None:
    X = load_iris().data
    model = MODELS[kind](X, load_iris().target)
    assert (wc.neuralize(model).assign(make(X)) == model.predict(X)).all()


@pytest.mark.parametrize("mean", [0.0, 10.0, 100.0])
def test_a_checked_model_may_round_as_its_data_do(mean: float) -> None:
    """scikit-learn predicts float32 data in float32; far from 0 that moves rows across boundaries."""
    X = (mean + 0.1 * np.random.default_rng(0).normal(size=(5000, 2))).astype("f4")
    model = CarefulKMeans(5, n_init=1, random_state=0).fit(X)
    assert (wc.neuralize(model).assign(X) == model.predict(X)).mean() > 0.9


def test_a_model_that_knows_names_is_checked_without_a_warning() -> None:
    X = load_frame("iris").data
    model = CarefulKMeans(3, n_init=1, random_state=0).fit(X)
    assert (wc.neuralize(model).assign(X.to_numpy()) == model.predict(X)).all()


def test_affinity_propagation_fitted_on_sparse_rows() -> None:
    X = load_iris().data
    model = AffinityPropagation(damping=0.9).fit(sp.csr_array(X))
    assert (wc.neuralize(model).assign(X) == model.predict(X)).all()


@pytest.mark.parametrize("dtype", [np.float32, np.int64])
def test_other_dtypes_are_assigned_alike(dtype: Any) -> None:
    X = (load_digits().data * 3).astype(dtype)
    model = KMeans(10, n_init=1, random_state=0).fit(X)
    assert (wc.neuralize(model).assign(X) == model.predict(X)).all()


def test_centroids_alone_are_a_model(data: tuple[Array, Array]) -> None:
    X, _ = data
    model = KMeans(6, n_init=1, random_state=0).fit(X)
    by_array = wc.explain(model.cluster_centers_, X)
    by_list = wc.explain(model.cluster_centers_.tolist(), X)
    assert (by_array.cluster == model.predict(X)).all()
    assert (by_array.relevance == wc.explain(model, X).relevance).all()
    assert (by_list.relevance == by_array.relevance).all()
