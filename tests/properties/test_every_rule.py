"""What must hold of every rule and query, for every model, also for extreme data."""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits

import whycluster as wc
from tests.contracts.test_models import MODELS
from tests.core.loops import LOADED, limited
from tests.properties.test_path import CLASSES, NETWORKS, WINE, network
from whycluster.core import attribution
from whycluster.core.compiled.loops import CompiledPasses
from whycluster.core.passes import NumpyPasses
from whycluster.core.rules import RULES

pytestmark = [
    pytest.mark.filterwarnings("ignore::whycluster.FidelityWarning"),
    pytest.mark.filterwarnings("ignore::whycluster.FewRowsWarning"),
]
Array = NDArray[Any]
PROMISED = 1e-4  # of the largest relevance of float64
REFUSES_FLOAT32 = "subclass of KMeans"  # its own `predict`, which checks its rows, takes float64 only
KINDS = [  # a model for each energy
    "KMeans",
    "NearestCentroid, manhattan",
    "NearestCentroid, priors",
    "faiss.Kmeans, spherical",
    "KMedoids",
    "Birch",
    "BisectingKMeans",
    "GaussianMixture, full",
    "GaussianMixture, diag",
    "KernelKMeans",
    "head",
    "student",
    "surrogate with noise",
]

QUERIES: dict[str, Callable[[wc.Network], dict[str, Any]]] = {
    "assigned": lambda _: {},
    "target": lambda net: {"target": net.labels[0]},
    "against": lambda net: {"target": net.labels[0], "against": net.labels[1]},
}


def per_row(values: Array) -> Array:
    return np.asarray(np.abs(values).max(axis=1))


@pytest.mark.parametrize("name", [name for name in NETWORKS if name != REFUSES_FLOAT32])
def test_float32_is_as_exact_as_promised(name: str) -> None:
    """Clusters are those of float64, except on exact ties."""
    net, X = network(name), WINE.astype(np.float32)
    assigned = net.assign(X.astype(np.float64))
    for rule in RULES:
        for query in QUERIES.values():
            single = net.explain(X, rule=rule, **query(net))
            double = net.explain(X.astype(np.float64), rule=rule, **query(net))
            assert single.relevance.dtype == np.float32
            differs = single.cluster != double.cluster
            assert (double.evidence[differs] == 0.0).all()
            close = per_row(single.relevance - double.relevance) <= PROMISED * np.abs(double.relevance).max()
            assert close.all() or (rule == "sequential" and close.mean() > 0.98)  # features that tie
    assert (net.assign(X) == assigned).all()


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("name", NETWORKS)
def test_neither_order_nor_blocks_nor_threads_matter(
    name: str, rule: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    net, order = network(name), np.random.default_rng(0).permutation(len(WINE))
    whole = {query: net.explain(WINE, rule=rule, **of(net)) for query, of in QUERIES.items()}
    monkeypatch.setattr(attribution, "_THREAD_BYTES", 1 << 13)
    for query, of in QUERIES.items():
        found = []
        for threads in (1, 2):
            with threadpool_limits(threads, user_api="blas"):
                found.append(net.explain(WINE[order], rule=rule, **of(net)).relevance)
        np.testing.assert_array_equal(found[0], found[1])
        expected = whole[query].relevance[order]
        close = per_row(found[0] - expected) <= 1e-10 * np.abs(expected).max()
        assert close.all() or (rule == "sequential" and close.mean() > 0.98)


def one_cluster(net: wc.Network, X: Array) -> Array:
    """Return the rows of one cluster, so that the others have no members."""
    return np.asarray(X[net.assign(X) == net.assign(X[:1])[0]])


def tied(net: wc.Network, X: Array) -> Array:
    """Return rows at or next to a tie of two clusters, found by halving, and copies."""
    low, high = X[:40], X[-40:]
    first = net.assign(low)
    for _ in range(60):
        middle = (low + high) / 2
        same = (net.assign(middle) == first)[:, None]
        low, high = np.where(same, middle, low), np.where(same, high, middle)
    return np.vstack([low, high, high])


def with_value(value: float) -> Callable[[wc.Network, Array], Array]:
    """Return a function that replaces some values of some rows."""

    def replaced(_: wc.Network, X: Array) -> Array:
        X = X[:60].copy()
        X[3, 0] = X[7, 2] = X[7, 3] = value
        X[11] = -value
        return X

    return replaced


TABLES: dict[str, Callable[[wc.Network, Array], Array]] = {
    "one cluster": one_cluster,
    "ties": tied,
    "one row": lambda _, X: X[:1],
    "zeros": lambda _, X: X[:5] * 0.0,
    "subnormal": with_value(1e-45),
    "large": with_value(1e15),
    "beyond": with_value(1e300),
}
BETAS: list[Any] = ["auto", 1e-300, 1e-6, 1e6, 1e300, np.inf]
LARGEST: dict[Any, float] = {np.float64: 1e300, np.float32: 3e38}
FAR = 1e4  # times the standard deviation of the other rows
MAY_FAIL = ("large", "beyond")  # values whose squares, or the squares of whose squares, overflow


def assert_sound(exp: wc.Explanation, X: Array, net: wc.Network) -> None:
    """All numbers are finite, and competitors and, if the energy adds up, features add up to the evidence."""
    rounding = 1e-9 if exp.relevance.dtype == np.float64 else 1e-5
    competition, f = exp.competition.astype(np.float64), exp.evidence.astype(np.float64)
    relevance = exp.relevance.astype(np.float64)
    for values in (competition, f, relevance):
        assert np.isfinite(values).all()
    with np.errstate(over="ignore"):
        floor = 1e-12 * (1.0 + per_row(X.astype(np.float64)) ** 2)
    assert (np.abs(competition.sum(axis=1) - f) <= rounding * np.abs(competition).sum(axis=1) + floor).all()
    if net.energy.adds_up:
        limit = rounding * (np.abs(relevance).sum(axis=1) + np.abs(f)) + floor
        assert (np.abs(relevance.sum(axis=1) - f) <= limit).all()


def explained(net: wc.Network, X: Array, table: str, **options: Any) -> wc.Explanation | None:
    """Return the explanation, or None if an error says which values are out of range."""
    if table not in MAY_FAIL:
        return net.explain(X, **options)
    try:
        return net.explain(X, **options)
    except wc.InvalidInputError as error:
        message = str(error)
    assert re.match(r"^explain: .+; .+\. .+\.$", message)
    return None


def options_of(net: wc.Network) -> Iterator[dict[str, Any]]:
    """Iterate over all rules, each with several values of beta and several queries."""
    for rule in RULES:
        for beta in BETAS if rule != "contrast" else BETAS[:1]:
            for name, query in QUERIES.items():
                if name == "assigned" or beta in ("auto", 1e300):
                    yield {"rule": rule, "beta": beta, **query(net)}


@pytest.mark.parametrize("loops", ["compiled", "NumPy"])
@pytest.mark.parametrize("table", TABLES)
@pytest.mark.parametrize("name", KINDS)
def test_extremes_are_explained_or_named(
    name: str, table: str, loops: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    net = network(name)
    if loops == "NumPy":
        limited(monkeypatch, loops)
    for dtype in (np.float64, np.float32):
        X = np.clip(TABLES[table](net, WINE), -LARGEST[dtype], LARGEST[dtype]).astype(dtype)
        for options in options_of(net):
            exp = explained(net, X, table, **options)
            if exp is not None:
                assert_sound(exp, X, net)


@pytest.mark.parametrize("name", [name for name in KINDS if name in MODELS and "spherical" not in name])
def test_one_cluster_far_away(name: str) -> None:
    X = np.vstack([WINE, WINE[:20] + FAR])
    net = wc.neuralize(MODELS[name](X, np.append(CLASSES, np.full(20, CLASSES.max() + 1))))
    near = net.assign(X[: len(WINE)])
    assert not np.isin(net.assign(X[len(WINE) :]), near).any()
    for dtype in (np.float64, np.float32):
        for options in options_of(net):
            exp = net.explain(X.astype(dtype), **options)
            assert_sound(exp, X, net)
            if "target" not in options:
                assert exp.cluster[: len(WINE)].tolist() == near.tolist()


@pytest.mark.parametrize("table", TABLES)
@pytest.mark.parametrize("name", KINDS)
def test_a_threshold_at_extremes(name: str, table: str) -> None:
    net = network(name)
    X = TABLES[table](net, WINE)
    if not net.energy.gives_probabilities:
        with pytest.raises(wc.InvalidInputError, match="threshold applies only to models"):
            net.explain(X, threshold=0.3)
        return
    for threshold in (1e-9, 0.3, 1 - 1e-9):
        exp = explained(net, X, table, threshold=threshold)
        assert exp is None or (np.isfinite(exp.relevance).all() and np.isfinite(exp.evidence).all())


@pytest.mark.skipif(LOADED is None, reason="the loops are not compiled here")
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("rule", [rule for rule in RULES if rule != "sequential"])
def test_no_query_about_nearest_centroids_goes_by_numpy(
    rule: str, dtype: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    used = set()
    for kind, name in itertools.product((CompiledPasses, NumpyPasses), ("assign", "measure", "answer")):
        method = getattr(kind, name)

        def counted(self: Any, *args: Any, method: Any = method, **options: Any) -> Any:
            used.add(type(self))
            return method(self, *args, **options)

        monkeypatch.setattr(kind, name, counted)
    net, X = wc.neuralize(WINE[::30]), WINE.astype(dtype)
    net.assign(X)
    net.gradient(X)
    net.gradient(X, target=1)
    for query in QUERIES.values():
        for more in ({}, {"background": X[:50]}) + (({"beta": 0.5},) if rule != "contrast" else ()):
            exp = net.explain(X, rule=rule, **query(net), **more)
            assert exp.competition.shape == (len(X), net.n_clusters)
    assert used == {CompiledPasses}
