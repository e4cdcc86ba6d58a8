"""The compiled loops of the sequential rule say what NumPy says, row by row, on every processor."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from sklearn.cluster import DBSCAN, BisectingKMeans
from sklearn.mixture import GaussianMixture

import whycluster as wc
from tests.core import driver
from tests.core.loops import BITS, COMPILED, SANITIZED, limited
from whycluster.core.compiled import loops
from whycluster.models.gains import CompiledGains
from whycluster.models.sequential import gains

Array = NDArray[Any]
SHAPES = [(1, 2), (2, 2), (3, 3), (7, 4), (8, 8), (9, 5), (20, 17), (33, 9), (64, 8), (70, 3), (150, 4)]


@pytest.fixture(autouse=True)
def _compiled(monkeypatch: pytest.MonkeyPatch) -> None:
    """With WHYCLUSTER_COMPILED=0, these tests still are about the loops."""
    monkeypatch.delenv("WHYCLUSTER_COMPILED", raising=False)


class Case:
    """Random centers, with one or more per cluster, and rows near them.

    Parameters
    ----------
    d, n_parts : the number of features and of centers
    seed : for all that is random
    round_to : the numbers are multiples of this, so that there are ties; 0 for none
    """

    def __init__(self, d: int, n_parts: int, seed: int = 0, round_to: float = 0.0, n_rows: int = 40) -> None:
        rng = np.random.default_rng(seed)
        self.centers, self.scale = rng.normal(size=(n_parts, d)), rng.uniform(0.5, 2.0, size=d)
        self.X = self.centers[rng.integers(n_parts, size=n_rows)] + 0.5 * rng.normal(size=(n_rows, d))
        if round_to:
            self.scale[:] = 1.0
            for values in (self.centers, self.X):
                values[...] = np.round(values / round_to) * round_to
        self.part_cluster = np.sort(np.append([0, 1], rng.integers(max(2, n_parts // 2), size=n_parts - 2)))
        self.log_weight = rng.normal(size=n_parts)
        self.cluster = self.part_cluster[rng.integers(n_parts, size=n_rows)]
        self.terms = self.scale * (self.X[:, None] - self.centers) ** 2

    def compiled(self, beta: float, with_centers: bool) -> tuple[Array, Array]:
        """Return what the loops find, and which rows they leave to NumPy."""
        squares = (self.centers, self.scale) if with_centers else None
        d = self.X.shape[1]
        found = CompiledGains(self.part_cluster, self.log_weight, beta, d, squares)
        assert found.is_available
        gain, left = found.run(self.X if with_centers else self.terms, self.cluster)
        assert np.isnan(gain[left, 0]).all()
        gain[left] = np.nan  # only the first gain of these rows is written
        return gain, left

    def numpy(self, beta: float) -> Array:
        own = self.part_cluster == self.cluster[:, None]
        return gains(self.terms.copy(), own, self.log_weight, beta)


def agree(found: Array, expected: Array) -> bool:
    """Return whether gains differ by at most 1e-12 of the largest one of their row."""
    return bool((np.abs(found - expected) <= 1e-12 * np.abs(expected).max(axis=1, keepdims=True)).all())


@pytest.mark.parametrize("bits", [*BITS, *SANITIZED])
@pytest.mark.parametrize("with_centers", [True, False])
def test_gains_agree_with_numpy(monkeypatch: pytest.MonkeyPatch, bits: str, with_centers: bool) -> None:
    limited(monkeypatch, bits)
    for d, n_parts in SHAPES:
        case = Case(d, n_parts, seed=d)
        for beta in (0.01, 0.1, 0.5):
            found, left = case.compiled(beta, with_centers)
            assert not left.size
            assert agree(found, case.numpy(beta))


@pytest.mark.parametrize("bits", BITS)
@given(st.integers(0, 2**32 - 1), st.integers(1, 90), st.integers(2, 30), st.floats(-3.0, 1.0))
def test_whatever_the_numbers(bits: str, seed: int, d: int, n_parts: int, beta: float) -> None:
    with pytest.MonkeyPatch.context() as monkeypatch:
        limited(monkeypatch, bits)
        case = Case(d, n_parts, seed, n_rows=7)
        found, left = case.compiled(10.0**beta, with_centers=bool(seed % 2))
    kept = np.setdiff1d(np.arange(7), left)
    assert agree(found[kept], case.numpy(10.0**beta)[kept])


@pytest.mark.parametrize("bits", [*BITS, *SANITIZED])
def test_ties_go_to_the_first_feature(monkeypatch: pytest.MonkeyPatch, bits: str) -> None:
    """Every feature is there several times; the first ones are taken first, in each round."""
    limited(monkeypatch, bits)
    for d, n_parts, copies in ((5, 4, 3), (20, 6, 4), (3, 5, 60)):
        case = Case(d, n_parts, round_to=0.125)
        case.centers, case.X = np.tile(case.centers, copies), np.tile(case.X, copies)
        case.scale, case.terms = np.tile(case.scale, copies), np.tile(case.terms, copies)
        found, left = case.compiled(0.5 / copies, with_centers=True)
        assert not left.size
        assert agree(found, case.numpy(0.5 / copies))


@pytest.mark.parametrize("bits", BITS)
def test_weights_that_vanish_come_back(monkeypatch: pytest.MonkeyPatch, bits: str) -> None:
    """Parts fall behind by more than a double can tell, and catch up again with the last features."""
    limited(monkeypatch, bits)
    rng = np.random.default_rng(0)
    case = Case(60, 5)
    case.cluster[:] = 0
    swing = np.zeros(60)
    swing[:30], swing[30:] = 60.0, -60.0  # 1800 nats ahead, then level again
    case.terms = rng.uniform(0.0, 5.0, size=(40, 5, 60))
    case.terms[:, -1] += swing
    found, left = case.compiled(1.0, with_centers=False)
    assert len(left) < 10
    kept = np.setdiff1d(np.arange(40), left)
    assert agree(found[kept], case.numpy(1.0)[kept])


@pytest.mark.parametrize("beta", [300.0, 1e6, 1e300, np.inf])
@pytest.mark.parametrize("bits", BITS)
def test_what_a_double_cannot_hold_is_left_to_numpy(
    monkeypatch: pytest.MonkeyPatch, bits: str, beta: float, wine: Array, kmeans: Any
) -> None:
    limited(monkeypatch, bits)
    exp = wc.explain(kmeans, wine, rule="sequential", beta=beta)
    limited(monkeypatch, "NumPy")
    expected = wc.explain(kmeans, wine, rule="sequential", beta=beta)
    assert exp.relevance == pytest.approx(expected.relevance, rel=1e-9, abs=1e-9)
    limited(monkeypatch, bits)
    case = Case(20, 5)
    found, left = case.compiled(beta, with_centers=True)
    assert len(left) > 20
    assert np.isfinite(np.delete(found, left, axis=0)).all()


MODELS: dict[str, Callable[[Array], Any]] = {
    "mixture": lambda X: GaussianMixture(4, covariance_type="diag", random_state=0).fit(X),
    "tree": lambda X: BisectingKMeans(5, random_state=0).fit(X),
    "kernel": lambda X: wc.KernelKMeans(4, random_state=0).fit(X),
    "floor": lambda X: wc.Surrogate().fit(X, DBSCAN(eps=2.6).fit_predict(X)),
    "manhattan": lambda X: wc.neuralize(X[::30], metric="manhattan"),
    "student": lambda X: wc.neuralize(X[::30], metric="student"),
}


@pytest.mark.parametrize("name", MODELS)
def test_every_energy(monkeypatch: pytest.MonkeyPatch, wine: Array, name: str) -> None:
    model = MODELS[name](wine)
    limited(monkeypatch, BITS[-1])
    exp = wc.explain(model, wine, rule="sequential")
    limited(monkeypatch, "NumPy")
    expected = wc.explain(model, wine, rule="sequential")
    assert not np.array_equal(exp.relevance, expected.relevance)
    assert exp.relevance == pytest.approx(expected.relevance, rel=1e-9, abs=1e-9)


@pytest.mark.usefixtures("two_threads")
@pytest.mark.parametrize("loops", ["NumPy", BITS[-1]])
def test_rows_do_not_depend_on_their_block(monkeypatch: pytest.MonkeyPatch, loops: str) -> None:
    """Some rows are so stiff that the logs are needed; that does not change the rows beside them."""
    limited(monkeypatch, loops)
    case = Case(30, 6, n_rows=3000)
    case.X[::7] *= 40.0
    case.terms = case.scale * (case.X[:, None] - case.centers) ** 2
    run = case.numpy if loops == "NumPy" else lambda beta: case.compiled(beta, with_centers=True)[0]
    network, X, cluster, terms = wc.neuralize(case.centers), case.X, case.cluster, case.terms
    whole, gain = network.explain(X, rule="sequential", beta=0.5), run(0.5)
    for rows in (
        np.random.default_rng(0).permutation(3000),
        slice(5, 9),
        slice(13, 14),
        slice(None, None, -1),
    ):
        some = network.explain(X[rows], rule="sequential", beta=0.5, background=X)
        assert some.relevance == pytest.approx(whole.relevance[rows], rel=1e-9, abs=1e-9)
        case.X, case.cluster, case.terms = X[rows], cluster[rows], terms[rows]
        np.testing.assert_array_equal(run(0.5), gain[rows])


def test_loops_take_no_more_than_they_can(monkeypatch: pytest.MonkeyPatch) -> None:
    limited(monkeypatch, BITS[-1])

    def is_available(cluster: list[int], d: int) -> bool:
        return CompiledGains(np.array(cluster), np.zeros(len(cluster)), 1.0, d, None).is_available

    assert is_available([0, 0, 1], 1 << 16)
    assert not is_available([0, 1, 0], 5)
    assert not is_available([0, 1, 1, 1, 1], 1 << 16)
    limited(monkeypatch, "NumPy")
    assert not is_available([0, 0, 1], 5)


@pytest.mark.slow
def test_sanitizers_find_a_flaw(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A work space that is too small."""
    if not COMPILED:
        pytest.skip("loops are compiled on Linux on x86-64 and aarch64 only")
    room = "(3 * D + 3) * Q + 9 * D + LANES"
    process = driver.with_flaw(tmp_path, room, room.replace("9", "5"))
    monkeypatch.setattr(loops, "library", lambda: (process, int(BITS[-1])))
    with pytest.raises(AssertionError, match="-byte region"):
        Case(20, 5).compiled(1.0, with_centers=True)
