"""Sums in single precision: every row is as exact as promised, or is computed again in double precision."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

import whycluster as wc
from tests.core.loops import BITS, SANITIZED, limited
from tests.properties.strategies import Problem, rough_problems
from whycluster.core.compiled import loops
from whycluster.core.compiled.loops import Answer, CompiledKMeans, CompiledPasses, MemoryLayout
from whycluster.core.energies import SquaredEnergy
from whycluster.core.evidence import Assignment
from whycluster.core.rules import Prior, Sharing
from whycluster.data.table import ArrayTable
from whycluster.data.warnings import PopulationWarning

Array = NDArray[Any]
PROMISED = 1e-4  # of the largest relevance of the row
RULES = ["path", "min-take-most", "joint", "contrast"]


@pytest.fixture(autouse=True)
def _compiled(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """With WHYCLUSTER_COMPILED=0, these tests still are about the loops."""
    monkeypatch.delenv("WHYCLUSTER_COMPILED", raising=False)
    loops.library.cache_clear()
    yield
    monkeypatch.undo()
    loops.library.cache_clear()


def blobs(n_rows: int, d: int, n_clusters: int, seed: int = 0) -> tuple[Array, Array]:
    rng = np.random.default_rng(seed)
    centroids = rng.normal(size=(n_clusters, d))
    return centroids[rng.integers(n_clusters, size=n_rows)] + rng.normal(size=(n_rows, d)), centroids


def near_twins(n_rows: int, d: int, n_clusters: int) -> tuple[Array, Array]:
    """Return blobs in which every second cluster is close to the one before it: terms cancel."""
    X, centroids = blobs(n_rows, d, n_clusters)
    centroids[1::2] = centroids[: n_clusters // 2 * 2 : 2] + 0.01 * centroids[1::2]
    return X, centroids


def one_far_cluster(n_rows: int, d: int, n_clusters: int) -> tuple[Array, Array]:
    X, centroids = blobs(n_rows, d, n_clusters)
    centroids[-1] += 300.0
    return X, centroids


def rows_far_away(n_rows: int, d: int, n_clusters: int) -> tuple[Array, Array]:
    X, centroids = blobs(n_rows, d, n_clusters)
    X[::3] *= 1e4
    return X, centroids


DATA: dict[str, Any] = {
    "blobs": blobs,
    "twins": near_twins,
    "one far cluster": one_far_cluster,
    "rows far away": rows_far_away,
}


def scaled(name: str, shift: float, scale: float, sizes: tuple[int, int, int]) -> tuple[Array, Array]:
    """Return float32 rows and centroids."""
    X, centroids = DATA[name](*sizes)
    return ((X + shift) * scale).astype(np.float32), (centroids + shift) * scale


def loops_of(centroids: Array) -> CompiledKMeans:
    found = SquaredEnergy(centroids).loops
    assert isinstance(found, CompiledKMeans)
    return found


def assert_as_promised(X: Array, centroids: Array, rule: str) -> None:
    """Clusters and evidence are exact, relevance as promised; relevance adds up to the evidence."""
    single = wc.explain(centroids, X, rule=rule)
    double = wc.explain(centroids, X.astype(np.float64), rule=rule)
    assert single.relevance.dtype == np.float32
    assert single.cluster.tolist() == double.cluster.tolist()
    assert single.competitor.tolist() == double.competitor.tolist()
    np.testing.assert_array_equal(single.evidence, double.evidence.astype(np.float32))
    if rule != "contrast":
        assert single.beta == pytest.approx(double.beta, rel=PROMISED)
    largest = np.abs(double.relevance).max(axis=1)
    assert (np.abs(single.relevance - double.relevance).max(axis=1) <= PROMISED * largest).all()
    missing = np.abs(single.relevance.sum(axis=1, dtype=np.float64) - double.evidence)
    assert (missing <= 1e-5 * np.abs(double.relevance).sum(axis=1)).all()


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("name", DATA)
def test_float32_is_as_exact_as_promised(name: str, rule: str) -> None:
    for shift, scale in ((0.0, 1.0), (30.0, 1.0), (1000.0, 1.0), (0.0, 1e12), (0.0, 1e-10), (0.0, 1e-14)):
        assert_as_promised(*scaled(name, shift, scale, (200, 7, 40)), rule)


@pytest.mark.parametrize("bits", [*BITS, *SANITIZED])
@pytest.mark.parametrize("name", DATA)
def test_processors_keep_the_promise(name: str, bits: str) -> None:
    with pytest.MonkeyPatch.context() as monkeypatch:
        limited(monkeypatch, bits)
        for sizes in ((33, 1, 2), (70, 17, 33), (40, 50, 18)):
            assert_as_promised(*scaled(name, 0.0, 1.0, sizes), "path")


@given(problem=rough_problems(), rule=st.sampled_from(RULES))
def test_features_of_all_scales(problem: Problem, rule: str) -> None:
    assert_as_promised(problem.X.astype(np.float32), problem.centroids, rule)


@pytest.mark.parametrize("bits", [*BITS, *SANITIZED])
@pytest.mark.parametrize("name", DATA)
def test_the_bound_on_the_evidence_holds(name: str, bits: str) -> None:
    """For each row alone; the clusters are exact, also between two clusters, and the bound is not idle."""
    with pytest.MonkeyPatch.context() as monkeypatch:
        limited(monkeypatch, bits)
        X, centroids = scaled(name, 3.0, 1.0, (60, 33, 9))
        X[10:20] = ((centroids[:1] + centroids[1:2]) / 2).astype(np.float32)  # next to a tie
        compiled, layout, bounds = loops_of(centroids), MemoryLayout.of(X), []
        assert layout is not None
        exact = Assignment(np.empty(60, np.intp), np.empty(60, np.intp), np.empty(60))
        assert compiled.run(layout, 0, exact)
        for row in range(60):
            cluster, evidence = np.empty(1, np.intp), np.empty(1)
            bound = compiled.run_roughly(layout, row, cluster, evidence)
            assert bound is not None
            bounds.append(bound)
            assert cluster[0] == exact.cluster[row]
            assert abs(evidence[0] - exact.evidence[row]) <= bound
        assert 0.0 < np.median(bounds) < 1e-3 * exact.evidence.mean() or name == "one far cluster"


def test_exact_ties_go_to_the_first() -> None:
    rng = np.random.default_rng(0)
    centroids = rng.integers(-3, 4, size=(40, 3)) / 8.0
    X = (rng.integers(-3, 4, size=(500, 3)) / 16.0).astype(np.float32)
    network = wc.neuralize(centroids)
    assert network.assign(X).tolist() == network.assign(X.astype(np.float64)).tolist()
    assert (wc.explain(centroids, X).evidence == 0.0).any()


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("name", DATA)
def test_a_row_does_not_depend_on_the_rows_beside_it(name: str, rule: str) -> None:
    """To the last bit: neither on which rows are computed again, nor on the clusters that count for them."""
    X, centroids = scaled(name, 0.0, 1.0, (150, 9, 70))
    given = {} if rule == "contrast" else {"beta": 3.0}
    options: dict[str, Any] = {"rule": rule, "background": X, **given}
    if rule != "path":
        del options["background"]
    whole = wc.explain(centroids, X, **options).relevance
    order = np.random.default_rng(0).permutation(150)
    assert (wc.explain(centroids, X[order], **options).relevance == whole[order]).all()
    assert (wc.explain(centroids, X[77:78], **options).relevance == whole[77:78]).all()


def test_beta_is_measured_again_if_single_precision_is_too_rough() -> None:
    """All rows are far from the clusters, which single precision can hardly tell apart from there."""
    rng = np.random.default_rng(0)
    centroids, X = rng.normal(size=(5, 3)), rng.normal(size=(100, 3))
    X[:, 0] += 1e5
    centroids[:, 0] = [0.0, 1e-4, 2e-4, 3e-4, 4e-4]
    X = X.astype(np.float32)
    passes, layout = CompiledPasses(loops_of(centroids), ArrayTable.of(X), 32, None, None), MemoryLayout.of(X)
    assert layout is not None
    evidence, error = passes._assign_block(slice(0, 32), layout, 0)
    assert error > 1e-4 * evidence.sum()
    assert passes.measure()[0] == passes.measure(exactly=True)[0]
    with pytest.warns(PopulationWarning, match="far outside"):
        assert wc.explain(centroids, X).beta == wc.explain(centroids, X.astype(np.float64)).beta


def test_rows_that_are_not_fine_are_computed_again() -> None:
    """The tile of a row whose terms cancel gets this row, and no other one, from double precision."""
    X, centroids = scaled("twins", 0.0, 1.0, (32, 6, 20))
    centroids[1] = centroids[0] + 0.004
    X[5] = (centroids[0] + centroids[1]) / 2
    compiled, found = loops_of(centroids), {}
    sharing = Sharing("contrast", None, Prior(np.zeros(20), False))
    for dtype in (np.float32, np.float64):
        layout = MemoryLayout.of(X.astype(dtype))
        assert layout is not None
        exact = Assignment(np.empty(32, np.intp), np.empty(32, np.intp), np.empty(32))
        found[dtype] = np.empty((32, 6), np.float32)
        assert compiled.run(layout, 0, exact, 0, Answer.RELEVANCE, sharing, found[dtype])
    same = (found[np.float32] == found[np.float64]).all(axis=1)
    assert same[5]
    assert not same.all()


@pytest.mark.parametrize("flaw", [np.nan, np.inf])
@pytest.mark.parametrize("row", [0, 40])
def test_what_is_not_finite_is_found(row: int, flaw: float) -> None:
    X, centroids = scaled("blobs", 0.0, 1.0, (50, 5, 20))
    X[row, 2] = flaw
    with pytest.raises(wc.InvalidInputError, match=f"row {row}, feature 'x2'"):
        wc.explain(centroids, X)
    with pytest.raises(wc.InvalidInputError, match=f"row {row}, feature 'x2'"):
        wc.neuralize(centroids).assign(X)
