"""Agglomerative clusterings, OPTICS and votes of neighbors, whose labels follow a rule as well."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import sparse
from sklearn.cluster import OPTICS, AgglomerativeClustering
from sklearn.datasets import load_iris, load_wine, make_moons
from sklearn.neighbors import KNeighborsClassifier, kneighbors_graph
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import whycluster as wc
from whycluster.models.adapters.sklearn_hierarchy import cut

Array = NDArray[Any]
DATA = {
    "wine": StandardScaler().fit_transform(load_wine().data),
    "iris": StandardScaler().fit_transform(load_iris().data),
    "moons": make_moons(300, noise=0.08, random_state=0)[0],
}


@pytest.mark.parametrize("metric", ["euclidean", "manhattan"])
@pytest.mark.parametrize("name", DATA)
def test_single_linkage_is_the_nearest_row(name: str, metric: str) -> None:
    X = DATA[name]
    model = AgglomerativeClustering(5, linkage="single", metric=metric).fit(X)
    assert np.bincount(model.labels_).min() == 1  # outliers are clusters of their own
    exp = wc.explain(model, X)
    assert exp.agreement is not None
    assert exp.agreement.share == 1.0
    order = 1 if metric == "manhattan" else 2
    away = np.linalg.norm(X[:, None] - X, ord=order, axis=2)
    np.fill_diagonal(away, np.inf)
    in_clusters = np.bincount(model.labels_)[model.labels_] > 1
    nearest = model.labels_[away.argmin(axis=1)]
    np.testing.assert_array_equal(exp.cluster[in_clusters], nearest[in_clusters])


@pytest.mark.parametrize("linkage", ["ward", "average", "complete"])
@pytest.mark.parametrize("name", DATA)
def test_other_linkages_are_the_nearest_branch(name: str, linkage: str) -> None:
    X = DATA[name]
    model = AgglomerativeClustering(4, linkage=linkage).fit(X)
    exp = wc.explain(model, X)
    assert exp.agreement is not None
    assert exp.agreement.share >= 0.99
    energy: Any = exp.energy
    branch = cut(model.children_, len(X), len(energy.members))
    means = np.array([X[branch == j].mean(axis=0) for j in range(branch.max() + 1)])
    assert len(means) <= 0.4 * len(X)
    cluster = np.array([model.labels_[branch == j][0] for j in range(len(means))])
    expected = cluster[((X[:, None] - means) ** 2).sum(axis=2).argmin(axis=1)]
    np.testing.assert_array_equal(exp.assigned, expected)
    np.testing.assert_allclose(exp.relevance.sum(axis=1), exp.evidence, atol=1e-10)


def test_a_tree_that_was_not_kept_to_the_top() -> None:
    """With a connectivity, merging stops at the number of clusters; the branches below are there."""
    X = DATA["moons"]
    graph = kneighbors_graph(X, 10, include_self=False)
    model = AgglomerativeClustering(4, connectivity=graph, compute_full_tree=False).fit(X)
    assert len(model.children_) < len(X) - 1
    exp = wc.explain(model, X)
    assert exp.agreement is not None
    assert exp.agreement.share >= 0.99


def test_branches_of_a_tree() -> None:
    children = np.array([[0, 1], [2, 3], [4, 5], [6, 7]])  # five rows
    assert cut(children, 5, 5).tolist() == [0, 1, 2, 3, 4]
    assert cut(children, 5, 3).tolist() == [1, 1, 2, 2, 0]
    assert len(set(cut(children, 5, 2).tolist())) == 2
    assert cut(children, 5, 1).tolist() == [0] * 5


def test_metrics_without_a_rule() -> None:
    model = AgglomerativeClustering(3, linkage="average", metric="cosine").fit(DATA["iris"])
    with pytest.raises(wc.UnsupportedModelError) as error:
        wc.neuralize(model)
    assert str(error.value) == (
        "neuralize: the labels of AgglomerativeClustering give the cluster of each row but no rule for other "
        "rows, so there is no network. A rule is known only for the metrics euclidean, manhattan and "
        "haversine; this AgglomerativeClustering has metric='cosine'. Explain them through a surrogate with "
        "wc.explain(labels, X), or neuralize the surrogate wc.Surrogate().fit(X, labels)."
    )


def optics(X: Array, **options: Any) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # scikit-learn divides by zero at duplicates
        return OPTICS(**options).fit(X)


@pytest.mark.parametrize("name", DATA)
def test_optics(name: str) -> None:
    X = DATA[name]
    eps = {"wine": 2.4, "iris": 0.5, "moons": 0.15}[name]
    exp = wc.explain(optics(X, min_samples=5, eps=eps, cluster_method="dbscan"), X)
    assert exp.agreement is not None
    assert exp.agreement.share >= 0.99


@pytest.mark.filterwarnings("ignore::whycluster.AgreementWarning")
@pytest.mark.parametrize("name", DATA)
def test_optics_between_slopes(name: str) -> None:
    X = DATA[name]
    exp = wc.explain(optics(X, min_samples=8), X)
    assert exp.agreement is not None
    assert exp.agreement.share >= 0.92


def test_a_pipeline_with_a_hierarchy() -> None:
    X = load_wine().data
    model = make_pipeline(StandardScaler(), AgglomerativeClustering(3)).fit(X)
    exp = wc.explain(model, X)
    assert exp.agreement is not None
    assert exp.agreement.share >= 0.99


@pytest.mark.parametrize("n_neighbors", [1, 4, 5])
@pytest.mark.parametrize("metric", ["minkowski", "manhattan"])
def test_votes_of_neighbors(n_neighbors: int, metric: str) -> None:
    """Every row is assigned as predicted, even where classes have equally many votes."""
    X = DATA["wine"]
    y = np.array(["a", "b", "c", "d"])[(X[:, 0] > 0) + 2 * (X[:, 1] > 0.5)]
    model = KNeighborsClassifier(n_neighbors, metric=metric).fit(X[::2], y[::2])
    network = wc.neuralize(model)
    np.testing.assert_array_equal(network.assign(X), model.predict(X))
    exp = wc.explain(model, X)
    np.testing.assert_allclose(exp.relevance.sum(axis=1), exp.evidence, atol=1e-10)
    assert (exp.evidence >= 0).all()


def test_votes_without_a_rule_are_refused_by_name() -> None:
    X, y = DATA["iris"], load_iris().target
    cases = {
        "weights='distance'": KNeighborsClassifier(weights="distance").fit(X, y),
        "metric='cosine'": KNeighborsClassifier(metric="cosine").fit(X, y),
        "metric='minkowski' with {'p': 3}": KNeighborsClassifier(p=3).fit(X, y),
        "metric='minkowski' with {'p': 2, 'w': [1, 1, 1, 9]}": (
            KNeighborsClassifier(metric_params={"w": [1, 1, 1, 9]}).fit(X, y)
        ),
        "several classes per row": KNeighborsClassifier().fit(X, np.stack([y, y], axis=1)),
        "weights='distance' and a sparse table": (
            KNeighborsClassifier(weights="distance").fit(sparse.csr_matrix(X), y)
        ),
    }
    for got, model in cases.items():
        with pytest.raises(wc.UnsupportedModelError) as error:
            wc.neuralize(model)
        assert str(error.value) == (
            "neuralize: KNeighborsClassifier must have weights='uniform', a Euclidean, Manhattan or "
            f"haversine metric, and one class per row of a dense table; got {got}. Any clustering can be "
            "explained from its labels, through a surrogate that reports how well it matches them: "
            "wc.explain(labels, X)."
        )
