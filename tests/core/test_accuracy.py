"""The figures that explanations must reach, on real and generated data."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from sklearn.cluster import KMeans
from sklearn.datasets import load_breast_cancer, load_digits, load_iris, load_wine, make_blobs

import whycluster as wc
from tests.core.loops import BITS, limited
from tests.reference import neon
from tests.reference.shapley import shapley
from whycluster.core.energies.squared import _is_far_apart

Array = NDArray[Any]
RULES = ("path", "min-take-most")

DATA = {
    "wine, raw units": lambda: load_wine().data,
    "iris": lambda: load_iris().data,
    "cancer, raw units": lambda: load_breast_cancer().data,
    "digits": lambda: load_digits().data[:400],
    "blobs": lambda: make_blobs(300, 20, centers=12, random_state=0)[0],
}


_KNOWN: dict[Any, Array] = {}


def once(slow: Callable[..., Array], *arrays: Array, **options: Any) -> Array:
    """The result of a slow function, computed once for all loops and orders in memory."""
    key = slow, tuple((array.shape, array.tobytes()) for array in arrays), tuple(options.items())
    if key not in _KNOWN:
        _KNOWN[key] = slow(*arrays, **options)
    return _KNOWN[key]


def relative_error(found: Array, expected: Array) -> float:
    return float(np.abs(found - expected).max() / np.abs(expected).max())


@pytest.fixture(params=["NumPy", *BITS], autouse=True)
def loops(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """All figures hold with compiled loops and without."""
    limited(monkeypatch, request.param)


@pytest.fixture(params=DATA, scope="module")
def clustering(request: pytest.FixtureRequest) -> tuple[Array, Any]:
    X = DATA[request.param]()
    return X, KMeans(7, n_init=1, random_state=0).fit(X)


@pytest.mark.parametrize("rule", RULES)
def test_float64_is_the_reference(clustering: tuple[Array, Any], rule: str) -> None:
    X, model = clustering
    exp = wc.explain(model, X, rule=rule)
    assert relative_error(exp.relevance, once(neon.explain, X, model.cluster_centers_, rule=rule)) <= 1e-9
    factor = 4.0 if rule == "path" else 1.0
    assert exp.beta == pytest.approx(factor * neon.stiffness(X, model.cluster_centers_), rel=1e-9)


@pytest.mark.parametrize("rule", RULES)
def test_float32_is_the_reference(clustering: tuple[Array, Any], rule: str) -> None:
    X, _ = clustering
    X = X.astype(np.float32)
    model = KMeans(7, n_init=1, random_state=0).fit(X)
    exp = wc.explain(model, X, rule=rule)
    exact = X.astype(np.float64), model.cluster_centers_.astype(np.float64)
    expected = once(neon.explain, *exact, rule=rule)
    assert exp.relevance.dtype == np.float32
    assert relative_error(exp.relevance, expected) <= 1e-4


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("order", ["C", "F", "every other", "backwards"])
def test_the_order_in_memory_does_not_matter(clustering: tuple[Array, Any], rule: str, order: str) -> None:
    X, model = clustering
    views = {
        "C": np.ascontiguousarray(X),
        "F": np.asfortranarray(X),
        "every other": np.repeat(np.repeat(X, 2, axis=0), 2, axis=1)[::2, ::2],
        "backwards": np.ascontiguousarray(X[::-1, ::-1])[::-1, ::-1],
    }
    exp = wc.explain(model, views[order], rule=rule)
    assert relative_error(exp.relevance, once(neon.explain, X, model.cluster_centers_, rule=rule)) <= 1e-9


@pytest.mark.usefixtures("two_threads")
@pytest.mark.parametrize("rule", ["path", "min-take-most", "joint"])
@pytest.mark.parametrize("d", [16, 17])
def test_float32_agrees_with_float64_wherever_a_block_begins(d: int, rule: str) -> None:
    """With an odd number of features, h is kept in float32 rows that begin between two numbers of it."""
    rng = np.random.default_rng(0)
    X, centroids = rng.normal(size=(40_001, d)).astype(np.float32), rng.normal(size=(8, d))
    exp = wc.explain(centroids, X, rule=rule)
    exact = wc.explain(centroids, X.astype(np.float64), rule=rule)
    assert exp.beta == pytest.approx(exact.beta, rel=1e-7)  # measured in single precision
    np.testing.assert_array_equal(exp.evidence, exact.evidence.astype(np.float32))
    most = np.abs(exact.relevance).max(axis=1, keepdims=True)  # sums are in single precision, with a bound
    np.testing.assert_allclose(exp.relevance / most, exact.relevance / most, rtol=0, atol=1e-5)


def test_relevance_is_conserved(clustering: tuple[Array, Any]) -> None:
    X, model = clustering
    for rule in ("path", "min-take-most", "joint", "contrast"):
        exp = wc.explain(model, X, rule=rule)
        assert np.abs(exp.residual).max() <= 1e-9 * np.abs(exp.evidence).max()


@pytest.mark.parametrize("rule", RULES)
def test_data_far_from_zero_keep_their_explanation(clustering: tuple[Array, Any], rule: str) -> None:
    X, model = clustering
    here = wc.explain(model.cluster_centers_, X, rule=rule)
    there = wc.explain(model.cluster_centers_ + 1e6, X + 1e6, rule=rule)
    assert relative_error(there.relevance, here.relevance) <= 1e-6


@pytest.mark.parametrize("far", [1e3, 1e5, 1e7])
@pytest.mark.parametrize("rule", RULES)
def test_one_cluster_far_from_the_others_costs_no_digits(far: float, rule: str) -> None:
    rng = np.random.default_rng(0)
    centroids, X = rng.normal(size=(6, 4)), rng.normal(size=(50, 4))
    expected = wc.explain(centroids, X, beta=0.5, rule=rule)
    centroids = np.vstack([centroids, np.full((1, 4), far)])
    exp = wc.explain(centroids + far, X + far, beta=0.5, rule=rule)
    assert relative_error(exp.relevance, expected.relevance) <= 1e-8
    assert np.abs(exp.residual).max() <= 1e-9 * exp.evidence.max()


@pytest.mark.parametrize("far", [1e2, 1e4, 1e6, 1e8])
@pytest.mark.parametrize("rule", ["path", "min-take-most", "joint", "contrast"])
def test_groups_of_clusters_far_apart_cost_no_digits(far: float, rule: str) -> None:
    """No offset brings both groups near 0, so squares are not expanded there."""
    rng = np.random.default_rng(0)
    near, far_group = rng.normal(size=(4, 4)), rng.normal(size=(4, 4)) + far
    X = near[np.arange(200) % 4] + 0.3 * rng.normal(size=(200, 4))
    exp = wc.explain(np.vstack([near, far_group]), X, beta=0.5, rule=rule)
    expected = wc.explain(near, X, beta=0.5, rule=rule)  # the others take no share
    assert (exp.cluster == expected.cluster).all()
    assert relative_error(exp.relevance, expected.relevance) <= 1e-9
    assert np.abs(exp.residual).max() <= 1e-9 * exp.evidence.max()


@pytest.mark.parametrize("n_clusters", [41, 2101, 4001])
def test_a_close_pair_among_many_centroids_is_told_apart(n_clusters: int) -> None:
    """Centroids on a line at 1, 2, 3, ..., and one right beside one of them, wherever that is."""
    for at in (7, n_clusters // 2 + 1, n_clusters - 2):
        centroids = np.zeros((n_clusters, 2))
        centroids[:-1, 0] = np.arange(n_clusters - 1)
        centroids[-1] = centroids[at] + [0.0, 1e-7 * n_clusters]
        between = centroids[at] + np.linspace(-3, 4, 57)[:, None] * 1e-8 * n_clusters * np.array([1.0, 7.1])
        exact = np.square(between[:, None].astype(np.longdouble) - centroids).sum(axis=2)
        assert (wc.neuralize(centroids).assign(between) == exact.argmin(axis=1)).all()


def test_close_centroids_are_those_that_a_comparison_of_all_pairs_finds() -> None:
    rng = np.random.default_rng(0)
    found = []
    for _ in range(500):
        n_clusters, d = int(rng.integers(1, 60)), int(rng.integers(1, 5))
        centroids = rng.normal(size=(n_clusters, d)) * 10.0 ** rng.integers(-3, 4, size=d)
        first, second = rng.integers(n_clusters, size=2)
        centroids[first] = centroids[second] + rng.normal(size=d) * 10.0 ** rng.integers(-6, 0)
        groups = rng.integers(3, size=n_clusters)
        near = float(rng.choice([0.0, 0.1]))
        distances = np.square(centroids[:, None] - centroids).sum(axis=2)
        distances[groups[:, None] == groups] = np.inf
        close = distances.min(axis=1) < np.square(centroids).sum(axis=1).max() / 1e6
        found.append(_is_far_apart(centroids, near, groups))
        assert found[-1] == (close.sum() > near * n_clusters)
    assert 50 < sum(found) < 450


def shapley_of(x: Array, centroids: Array, c: int) -> Array:
    return shapley(partial(neon.evidence, centroids=centroids, c=c), x, centroids.mean(axis=0))


@pytest.mark.slow
@pytest.mark.parametrize("d", [1, 4, 9])
@pytest.mark.parametrize("rule", RULES)
def test_two_clusters_are_the_shapley_value(d: int, rule: str) -> None:
    X, _ = make_blobs(20, d, centers=2, random_state=1)
    model = KMeans(2, n_init=1, random_state=0).fit(X)
    exp = wc.explain(model, X, rule=rule)
    for x, cluster, relevance in zip(X, exp.cluster, exp.relevance, strict=True):
        expected = once(shapley_of, x, model.cluster_centers_, c=int(cluster))
        assert relative_error(relevance, expected) <= 1e-9


@pytest.mark.slow
@pytest.mark.parametrize("rule", RULES)
def test_many_clusters_in_few_features(rule: str) -> None:
    """More clusters than features: h does not fit where the relevance will be, and is computed twice."""
    X = np.random.default_rng(0).normal(size=(200, 3))
    centroids = X[:60]
    exp = wc.explain(centroids, X, rule=rule)
    assert relative_error(exp.relevance, once(neon.explain, X, centroids, rule=rule)) <= 1e-9


@pytest.mark.parametrize("rule", RULES)
def test_evidence_of_subnormal_size(rule: str) -> None:
    """1 / h_k overflows below 1e-308; the ratio f_c / h_k does not."""
    centroids = np.array([[0.0], [4e-160], [2.0]])
    exp = wc.explain(centroids, [[1.5e-160]], beta=1.0, rule=rule)
    assert exp.evidence[0] == pytest.approx(4e-320, rel=1e-2)
    assert exp.relevance[0, 0] == pytest.approx(exp.evidence[0], rel=1e-2)


@pytest.mark.parametrize("rule", RULES)
def test_beta_of_rows_on_boundaries_is_infinite_and_the_explanation_finite(rule: str) -> None:
    exp = wc.explain([[0.0, 0.0], [4.0, 0.0], [2.0, 9.0]], [[2.0, 0.0]], rule=rule)
    assert exp.beta == np.inf
    assert exp.evidence.tolist() == [0.0]
    assert exp.relevance.tolist() == [[0.0, 0.0]]
