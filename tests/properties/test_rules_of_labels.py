"""What must hold of the rules of labels, votes, topics and series, whatever the rows."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import sparse
from sklearn.cluster import DBSCAN, HDBSCAN, OPTICS, AgglomerativeClustering, SpectralClustering
from sklearn.datasets import load_wine
from sklearn.decomposition import NMF, LatentDirichletAllocation
from sklearn.neighbors import KNeighborsClassifier, kneighbors_graph
from threadpoolctl import threadpool_limits

import whycluster as wc
from tests.optional import optional
from whycluster.core import attribution
from whycluster.models.energies import StudentEnergy

if TYPE_CHECKING:
    import hdbscan
    import minisom
    import stepmix.stepmix as stepmix
    import tslearn.clustering as tslearn
else:
    hdbscan = optional("hdbscan")
    minisom = optional("minisom")
    stepmix = optional("stepmix.stepmix")
    tslearn = optional("tslearn.clustering")

pytestmark = pytest.mark.filterwarnings("ignore::whycluster.AgreementWarning")
Array = NDArray[Any]
WINE, CLASSES = load_wine(return_X_y=True)
WINE = (WINE - WINE.mean(axis=0)) / WINE.std(axis=0)
BINARY = (WINE > 0).astype(float)
COUNTS = np.random.default_rng(0).poisson(2.0 + 3.0 * BINARY).astype(float)
SERIES = WINE[:, :12].reshape(-1, 6, 2)
FLOAT32 = 1e-4  # of the largest relevance of float64


def graph() -> Any:
    found = kneighbors_graph(WINE, 10, mode="distance")
    found.data = np.exp(-np.square(found.data) / np.median(found.data) ** 2)
    return sparse.csr_array(found.maximum(found.T))


def som() -> Any:
    model = minisom.MiniSom(2, 2, WINE.shape[1], random_seed=0)
    model.train(WINE, 500)
    return model


def rule(model: Any) -> Callable[[], tuple[wc.Network, Array]]:
    return lambda: (wc.neuralize(model.fit(WINE), rows=WINE), WINE)


NETWORKS: dict[str, Callable[[], tuple[wc.Network, Array]]] = {
    "DBSCAN": lambda: (wc.neuralize(DBSCAN(eps=2.4, min_samples=4).fit(WINE)), WINE),
    "DBSCAN, manhattan": lambda: (
        wc.neuralize(DBSCAN(eps=6.5, min_samples=4, metric="manhattan").fit(WINE)),
        WINE,
    ),
    "HDBSCAN": rule(HDBSCAN(min_cluster_size=8, copy=True)),
    "hdbscan": lambda: (wc.neuralize(hdbscan.HDBSCAN(min_cluster_size=8).fit(WINE), rows=WINE), WINE),
    "hdbscan, predicting": lambda: (
        wc.neuralize(hdbscan.HDBSCAN(min_cluster_size=8, prediction_data=True).fit(WINE)),
        WINE,
    ),
    "OPTICS, xi": rule(OPTICS(min_samples=5)),
    "OPTICS, dbscan": rule(OPTICS(min_samples=5, eps=2.4, cluster_method="dbscan")),
    "ward linkage": rule(AgglomerativeClustering(4)),
    "single linkage": rule(AgglomerativeClustering(4, linkage="single")),
    "spectral, rbf": rule(SpectralClustering(4, gamma=0.1, random_state=0)),
    "spectral, neighbors": rule(SpectralClustering(4, affinity="nearest_neighbors", random_state=0)),
    "graph": lambda: (wc.neuralize(CLASSES, graph=graph(), rows=WINE), WINE),
    "votes": lambda: (wc.neuralize(CLASSES, method="neighbors", rows=WINE), WINE),
    "KNeighborsClassifier": lambda: (wc.neuralize(KNeighborsClassifier().fit(WINE, CLASSES)), WINE),
    "fuzzy c-means": lambda: (wc.TableNetwork(StudentEnergy.fuzzy(WINE[::30], 1.7)), WINE),
    "MiniSom": lambda: (wc.neuralize(som()), WINE),
    "StepMix": lambda: (
        wc.neuralize(stepmix.StepMix(3, measurement="binary", random_state=0, verbose=0).fit(BINARY)),
        BINARY,
    ),
    "LDA": lambda: (wc.neuralize(LatentDirichletAllocation(4, random_state=0).fit(COUNTS)), COUNTS),
    "NMF": lambda: (wc.neuralize(NMF(4, random_state=0, max_iter=2000, tol=1e-10).fit(COUNTS)), COUNTS),
    **{
        f"tslearn, {metric}": lambda metric=metric: (  # type: ignore[misc]
            wc.neuralize(tslearn.TimeSeriesKMeans(3, metric=metric, max_iter=3, random_state=0).fit(SERIES)),
            SERIES,
        )
        for metric in ("euclidean", "dtw", "softdtw")
    },
}


@cache
def made(name: str) -> tuple[wc.Network, Array]:
    return NETWORKS[name]()


def error(found: Array, expected: Array) -> float:
    return float(np.abs(found - expected).max() / np.abs(expected).max())


@pytest.mark.parametrize("rule", ["path", "min-take-most", "contrast"])
@pytest.mark.parametrize("name", NETWORKS)
def test_the_evidence_is_conserved(name: str, rule: str) -> None:
    network, X = made(name)
    label = network.labels[0]
    for query in ({}, {"target": label}, {"target": label, "against": network.labels[1]}):
        exp = network.explain(X, rule=rule, **query)
        scale = np.abs(exp.evidence).max()
        total = exp.relevance.reshape(len(X), -1).sum(axis=1) + exp.residual
        assert np.abs(total - exp.evidence).max() <= 1e-9 * scale
        assert np.abs(exp.competition.sum(axis=1) - exp.evidence).max() <= 1e-9 * scale
        if network.energy.adds_up:
            assert np.abs(exp.residual).max() <= 1e-9 * scale


@pytest.mark.parametrize("name", NETWORKS)
def test_the_evidence_is_positive_if_and_only_if_the_row_is_assigned(name: str) -> None:
    network, X = made(name)
    evidence, assigned = network.evidence(X), network.assign(X)
    rounding = 1e-12 * np.abs(evidence).max()
    for k, label in enumerate(network.labels):
        assert (evidence[assigned == label, k] >= -rounding).all()
        assert (evidence[assigned != label, k] <= rounding).all()


@pytest.mark.parametrize("name", NETWORKS)
def test_neither_order_nor_blocks_nor_threads_matter(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    network, X = made(name)
    order = np.random.default_rng(0).permutation(len(X))
    whole = network.explain(X)
    monkeypatch.setattr(attribution, "_THREAD_BYTES", 1 << 13)
    found = []
    for threads in (1, 2):
        with threadpool_limits(threads, user_api="blas"):
            found.append(network.explain(X[order]))
    np.testing.assert_array_equal(found[0].relevance, found[1].relevance)
    np.testing.assert_array_equal(found[0].cluster, whole.cluster[order])
    assert error(found[0].relevance, whole.relevance[order]) <= 1e-10


@pytest.mark.parametrize("name", NETWORKS)
def test_single_precision_is_as_exact_as_promised(name: str) -> None:
    """Both read the same rows, rounded to single precision. Their clusters differ only where they tie."""
    network, X = made(name)
    X = X.astype(np.float32)
    single, double = network.explain(X), network.explain(X.astype(np.float64))
    assert single.relevance.dtype == np.float32
    differs = single.cluster != double.cluster
    assert (double.evidence[differs] <= 1e-6 * double.evidence.max()).all()
    assert error(single.relevance[~differs], double.relevance[~differs]) <= FLOAT32
