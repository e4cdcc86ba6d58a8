"""What must hold of the path rule, the default, for every model."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from sklearn.cluster import DBSCAN, Birch, BisectingKMeans, KMeans
from sklearn.datasets import load_wine
from sklearn.mixture import GaussianMixture
from sklearn.neighbors import NearestCentroid
from threadpoolctl import threadpool_limits

import whycluster as wc
from tests.contracts.test_models import MODELS
from whycluster.core import attribution
from whycluster.core.energies import Energy, KernelEnergy, LinearEnergy, SquaredEnergy
from whycluster.models.energies import (
    CosineEnergy,
    DiagonalGaussianEnergy,
    GaussianEnergy,
    ManhattanEnergy,
    StudentEnergy,
    Tree,
)

pytestmark = pytest.mark.filterwarnings("ignore::whycluster.FidelityWarning")  # of the surrogate
Array = NDArray[Any]

WINE, CLASSES = load_wine(return_X_y=True)
WINE = (WINE - WINE.mean(axis=0)) / WINE.std(axis=0)
WINE.flags.writeable = False

OTHERS: dict[str, Callable[[], wc.Network]] = {
    "cosine": lambda: wc.neuralize(WINE[::30], metric="cosine"),
    "head": lambda: wc.neuralize(WINE[::30], metric="dot"),
    "head with a bias": lambda: wc.TableNetwork(LinearEnergy(WINE[::30], np.arange(6.0))),
    "student": lambda: wc.neuralize(WINE[::30], metric="student"),
    "surrogate with noise": lambda: wc.neuralize(
        wc.Surrogate().fit(WINE, DBSCAN(eps=2.4, min_samples=4).fit_predict(WINE))
    ),
}
NETWORKS = [*MODELS, *OTHERS]
# With a hard minimum, the split jumps where another unit becomes the nearest; with votes, the energies jump
# where the number of votes of the winner changes.
JUMPS = ("Birch", "KNeighborsClassifier")


@cache
def network(name: str) -> wc.Network:
    return OTHERS[name]() if name in OTHERS else wc.neuralize(MODELS[name](WINE, CLASSES))


def error(found: Array, expected: Array) -> float:
    return float(np.abs(found - expected).max() / np.abs(expected).max())


@pytest.mark.parametrize("name", NETWORKS)
def test_it_is_the_default(name: str) -> None:
    assert network(name).explain(WINE).rule == "path"


@pytest.mark.parametrize("name", NETWORKS)
def test_it_is_a_sum_of_contrasts_that_conserves_the_evidence(name: str) -> None:
    """R = sum_k (R_k / h_k) (e_k - e_c), so the residual is that of the contrasts."""
    net = network(name)
    exp = net.explain(WINE)
    assert error(exp.competition.sum(axis=1), exp.evidence) <= 1e-12
    assert (exp.competition >= 0).all()
    total, residual = np.zeros_like(exp.relevance), np.zeros(len(WINE))
    for k, label in enumerate(net.labels):
        against = net.explain(WINE, against=label)
        a = np.divide(
            exp.competition[:, k], against.evidence, out=np.zeros(len(WINE)), where=against.evidence > 0
        )
        total += a[:, None] * against.relevance
        residual += a * against.residual
    assert error(exp.relevance, total) <= 1e-9
    assert np.abs(exp.residual - residual).max() <= 1e-9 * exp.evidence.max()
    if net.energy.adds_up:
        assert np.abs(exp.residual).max() <= 1e-9 * exp.evidence.max()


@pytest.mark.parametrize("name", NETWORKS)
def test_the_population_is_counted_unless_the_model_has_weights(name: str) -> None:
    net = network(name)
    exp = net.explain(WINE)
    assert exp.prior is not None
    if net.energy.gives_probabilities:
        assert exp.beta == 1.0
        few = net.explain(WINE[:3])
        assert error(few.relevance, exp.relevance[:3]) <= 1e-12
        return
    mean = exp.evidence.mean()
    expected = net.energy.stiffness if net.energy.stiffness is not None else 4 / mean
    assert exp.beta == pytest.approx(expected, rel=1e-12)
    sizes = np.array([(exp.cluster_codes == k).sum() for k in range(net.n_clusters)])
    np.testing.assert_allclose(np.exp(exp.prior.log_weight), np.maximum(sizes, 1) / len(WINE), rtol=1e-12)


@pytest.mark.parametrize("name", NETWORKS)
def test_a_cluster_without_members_counts_as_one_row(name: str) -> None:
    net = network(name)
    codes = net.codes.encode(net.assign(WINE), "test", "rows")
    largest = np.bincount(codes).argmax()
    X = WINE[codes != largest]
    exp = net.explain(X)
    assert np.isfinite(exp.relevance).all()
    assert error(exp.competition.sum(axis=1), exp.evidence) <= 1e-12
    if not net.energy.gives_probabilities:
        assert exp.prior is not None
        assert np.exp(exp.prior.log_weight[largest]) == pytest.approx(1 / len(X))
    why_not = net.explain(X, target=net.labels[largest])
    contrast = net.explain(X, target=net.labels[largest], rule="contrast")
    np.testing.assert_array_equal(why_not.relevance, contrast.relevance)


@pytest.mark.parametrize("name", NETWORKS)
def test_the_order_of_rows_is_only_order(name: str) -> None:
    order = np.random.default_rng(0).permutation(len(WINE))
    here, there = network(name).explain(WINE), network(name).explain(WINE[order])
    assert error(there.relevance, here.relevance[order]) <= 1e-11


@pytest.mark.parametrize("name", NETWORKS)
def test_blocks_and_threads_do_not_matter(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = network(name).explain(WINE)
    monkeypatch.setattr(attribution, "_THREAD_BYTES", 1 << 13)
    found = []
    for threads in (1, 2):
        with threadpool_limits(threads, user_api="blas"):
            found.append(network(name).explain(WINE))
    assert (found[0].relevance == found[1].relevance).all()
    assert error(found[0].relevance, whole.relevance) <= 1e-11


@pytest.mark.parametrize("name", NETWORKS)
def test_an_infinite_stiffness_is_the_contrast(name: str) -> None:
    """Where the nearest competitor is unique; the sizes of the clusters do not matter then."""
    net = network(name)
    contrast = net.explain(WINE, rule="contrast")
    stiff = net.explain(WINE, beta=np.inf)
    huge = net.explain(WINE, beta=1e300)
    if not isinstance(net.energy.contest, Tree):
        evidence = np.sort(net.evidence(WINE), axis=1)
        alone = evidence[:, -2] - evidence[:, -3] > 1e-9 * np.abs(evidence).max()
        assert alone.mean() > 0.9
    else:
        alone = np.ones(len(WINE), dtype=bool)
    assert error(stiff.relevance[alone], contrast.relevance[alone]) <= 1e-9
    assert error(huge.relevance[alone], contrast.relevance[alone]) <= 1e-9


@pytest.mark.parametrize("name", NETWORKS)
def test_without_stiffness_the_sizes_decide(name: str) -> None:
    """a_k = w_k f_c / sum_j w_j h_j, for the clusters that compete."""
    net = network(name)
    exp = net.explain(WINE, beta=1e-300)
    assert np.isfinite(exp.relevance).all()
    assert error(exp.competition.sum(axis=1), exp.evidence) <= 1e-12
    if net.energy.gives_probabilities or isinstance(net.energy.contest, Tree):
        return
    assert exp.prior is not None
    evidence = net.evidence(WINE)
    h = -evidence  # a cluster that lost has f_k = s_c - s_k
    h[np.arange(len(WINE)), exp.cluster_codes] = 0.0
    shares = np.exp(exp.prior.log_weight) * h
    expected = shares * (exp.evidence / shares.sum(axis=1))[:, None]
    assert error(exp.competition, expected) <= 1e-9


@pytest.mark.parametrize("name", [name for name in NETWORKS if not name.startswith(JUMPS)])
def test_it_does_not_jump_within_a_cluster(name: str) -> None:
    """Between two rows of a cluster, the half over which the relevance changes more is halved again."""
    net, rng = network(name), np.random.default_rng(0)
    codes = net.codes.encode(net.assign(WINE), "test", "rows")
    pairs = [rng.choice(np.flatnonzero(codes == code), 2) for code in rng.choice(codes, 40)]
    low, high = WINE[[i for i, _ in pairs]], WINE[[j for _, j in pairs]]
    cluster, inside = net.assign(low), np.ones(40, dtype=bool)

    def relevance(x: Array) -> Array:
        return net.explain(x, background=WINE).relevance

    size = np.abs(relevance(WINE)).max()
    r_low, r_high = relevance(low), relevance(high)
    for _ in range(45):
        middle = (low + high) / 2
        inside &= net.assign(middle) == cluster  # not all clusters are convex
        r_middle = relevance(middle)
        first = np.abs(r_middle - r_low).max(axis=1) > np.abs(r_high - r_middle).max(axis=1)
        high[first], r_high[first] = middle[first], r_middle[first]
        low[~first], r_low[~first] = middle[~first], r_middle[~first]
    assert inside.sum() > 20
    assert np.abs(r_high - r_low)[inside].max() <= 1e-8 * size


def _mixture(covariance: str) -> Any:
    return GaussianMixture(2, covariance_type=covariance, reg_covar=0.1, random_state=0).fit(WINE)


TWO: dict[str, Callable[[], Any]] = {
    "KMeans": lambda: KMeans(2, n_init=1, random_state=0).fit(WINE),
    "BisectingKMeans": lambda: BisectingKMeans(2, random_state=0).fit(WINE),
    "Birch": lambda: Birch(n_clusters=2, threshold=1.5).fit(WINE),
    "NearestCentroid, priors": lambda: NearestCentroid(priors=[0.9, 0.1]).fit(WINE, CLASSES > 0),
    "KernelKMeans": lambda: wc.KernelKMeans(2, random_state=0).fit(WINE),
    "surrogate": lambda: wc.Surrogate().fit(WINE, CLASSES > 0),
    "GaussianMixture, full": lambda: _mixture("full"),
    "GaussianMixture, tied": lambda: _mixture("tied"),
    "GaussianMixture, diag": lambda: _mixture("diag"),
    "GaussianMixture, spherical": lambda: _mixture("spherical"),
    "manhattan": lambda: wc.neuralize(WINE[[0, 150]], metric="manhattan"),
    "cosine": lambda: wc.neuralize(WINE[[0, 150]], metric="cosine"),
    "dot": lambda: wc.neuralize(WINE[[0, 150]], metric="dot"),
    "student": lambda: wc.neuralize(WINE[[0, 150]], metric="student"),
}


@pytest.mark.parametrize("name", TWO)
def test_for_two_clusters_all_rules_are_one(name: str) -> None:
    model = TWO[name]()
    path = wc.explain(model, WINE)
    assert path.rule == "path"
    for rule in ("min-take-most", "joint", "contrast"):
        assert error(wc.explain(model, WINE, rule=rule).relevance, path.relevance) <= 1e-12


PROTOTYPES = WINE[::30]
D = WINE.shape[1]
ENERGIES: dict[str, Callable[[Array, float], Energy]] = {
    "squared": lambda u, _: SquaredEnergy(u),
    "manhattan": lambda u, _: ManhattanEnergy(u),
    "cosine": lambda u, _: CosineEnergy(u),
    "linear": lambda u, scale: LinearEnergy(u / scale**2, np.linspace(-2, 2, len(u) // 2).repeat(2)),
    "student": lambda u, _: StudentEnergy(u),
    "kernel": lambda u, scale: KernelEnergy(u, np.full(len(u) // 2, 2), 0.3 / scale**2),
    "hard kernel": lambda u, _: KernelEnergy(u, np.full(len(u) // 2, 2), np.inf),
    "diagonal": lambda u, scale: DiagonalGaussianEnergy(
        u, np.full(u.shape, 0.5) / scale**2, np.log(np.arange(1.0, len(u) + 1))
    ),
    "full": lambda u, scale: GaussianEnergy(
        u, np.tile(np.eye(D) + 0.1, (len(u), 1, 1)) / scale, np.log(np.arange(1.0, len(u) + 1))
    ),
}
POWER = {"squared": 2, "manhattan": 1, "kernel": 2, "hard kernel": 2}  # of the scale, in the relevance


@pytest.mark.parametrize("scale", [2.0**-300, 2.0**-10, 2.0**10, 2.0**300])
@pytest.mark.parametrize("name", [name for name in ENERGIES if name != "student"])
def test_the_unit_of_measurement_does_not_matter(name: str, scale: float) -> None:
    """A Student head has a unit of its own."""
    here = wc.TableNetwork(ENERGIES[name](PROTOTYPES, 1.0)).explain(WINE)
    there = wc.TableNetwork(ENERGIES[name](PROTOTYPES * scale, scale)).explain(WINE * scale)
    assert (there.cluster == here.cluster).all()
    assert error(there.relevance / scale ** POWER.get(name, 0), here.relevance) <= 1e-9


@pytest.mark.parametrize("beta", ["auto", 1e-300, 1e300, np.inf])
@pytest.mark.parametrize("name", ["squared", "manhattan", "cosine", "student"])
def test_clusters_in_one_place_leave_nothing_to_explain(name: str, beta: Any) -> None:
    doubled = np.vstack([PROTOTYPES, PROTOTYPES])
    exp = wc.TableNetwork(ENERGIES[name](doubled, 1.0)).explain(WINE, beta=beta)
    assert (exp.evidence == 0).all()
    assert np.abs(exp.relevance).max() <= 1e-12


@pytest.mark.parametrize("beta", ["auto", 1e-300, 1e300, np.inf])
@pytest.mark.parametrize("name", ENERGIES)
def test_if_all_clusters_are_one_there_is_no_relevance(name: str, beta: Any) -> None:
    """All h_k are 0, or the difference of two constants."""
    same = np.tile(WINE[0], (6, 1))
    exp = wc.TableNetwork(ENERGIES[name](same, 1.0)).explain(WINE, beta=beta)
    assert np.abs(exp.relevance).max() <= 1e-12


@pytest.mark.parametrize("far", [1e4, 1e7])
@pytest.mark.parametrize("name", ["squared", "manhattan", "kernel", "hard kernel"])
def test_a_cluster_far_away_takes_no_share(name: str, far: float) -> None:
    """It has no members."""
    more = np.vstack([PROTOTYPES, np.full((2, D), far)])
    net = wc.TableNetwork(ENERGIES[name](PROTOTYPES, 1.0))
    here = net.explain(WINE)
    there = wc.TableNetwork(ENERGIES[name](more, 1.0)).explain(WINE)
    assert (there.cluster == here.cluster).all()
    assert error(there.relevance, here.relevance) <= 1e-6


def fine_path(h: Array, cluster: Array, weights: Array) -> Array:
    """Return beta times the mean of P(k) along the path times h_k, (n, K): a fine sum over t.

    ``h`` is (n, K), with 0 for the row's own cluster, and includes the weights.
    """
    edges = np.append(0.0, np.geomspace(1e-14, 1.0, 400))
    x, g = np.polynomial.legendre.leggauss(4)
    nodes = (edges[:-1, None] + np.diff(edges)[:, None] * (x + 1) / 2).ravel()
    mean = np.zeros_like(h)
    for t, part in zip(nodes, (np.diff(edges)[:, None] * g / 2).ravel(), strict=True):
        log_odds = (1 - t) * (np.log(weights) - np.log(weights)[cluster][:, None]) - t * h
        odds = np.exp(log_odds - log_odds.max(axis=1, keepdims=True))
        mean += part * odds / odds.sum(axis=1, keepdims=True)
    return np.asarray(mean * h)


def evidence_against_each(net: wc.TableNetwork, exp: wc.Explanation) -> Array:
    h = -net.evidence(WINE)  # a cluster that lost has f_k = s_c - s_k
    h[np.arange(len(WINE)), exp.cluster_codes] = 0.0
    return np.asarray(h)


@pytest.mark.parametrize(("far", "tolerance"), [(0.0, 1e-5), (1e2, 0.005), (1e3, 0.02), (1e4, 0.03)])
@pytest.mark.parametrize("name", ["diagonal", "full"])
def test_the_competition_is_the_gain_in_log_probability(name: str, far: float, tolerance: float) -> None:
    """Its shares are those of log P(c | row) - log P(c), even if a component is billions of nats away."""
    prototypes = np.vstack([PROTOTYPES, np.full((1, D), far)])
    net = wc.TableNetwork(ENERGIES[name](prototypes, 1.0))
    exp, weights = net.explain(WINE), np.arange(1.0, len(prototypes) + 1) / np.arange(8).sum()
    h = evidence_against_each(net, exp)
    expected = fine_path(h, exp.cluster_codes, weights)
    # The derivative of log P(c) along the path has no part of the prior: h_k - (log w_c - log w_k).
    prior = np.log(weights)[exp.cluster_codes][:, None] - np.log(weights)
    gain = (expected * np.divide(h - prior, h, out=np.zeros_like(h), where=h > 0)).sum(axis=1)
    posterior = -np.log(np.exp(-h).sum(axis=1))
    np.testing.assert_allclose(gain, posterior - np.log(weights)[exp.cluster_codes], rtol=1e-6)
    shares = exp.competition / exp.evidence[:, None]
    expected /= expected.sum(axis=1, keepdims=True)
    assert np.abs(shares - expected).max() <= tolerance


@pytest.mark.parametrize("name", ["diagonal", "full"])
def test_a_component_far_away_takes_the_share_of_its_weight(name: str) -> None:
    """Ruling it out raises log P(c) by -log(1 - w_far); the others share the rest as without it."""
    prototypes = np.vstack([PROTOTYPES, np.full((1, D), 1e3)])
    net, alone = (
        wc.TableNetwork(ENERGIES[name](prototypes, 1.0)),
        wc.TableNetwork(ENERGIES[name](PROTOTYPES, 1.0)),
    )
    here, there = alone.explain(WINE), net.explain(WINE)
    assert (there.cluster == here.cluster).all()
    weights = np.arange(1.0, len(prototypes) + 1) / np.arange(len(prototypes) + 1).sum()
    first = -np.log1p(-weights[-1])
    rest = fine_path(evidence_against_each(alone, here), here.cluster_codes, weights[:-1]).sum(axis=1)
    shares = there.competition / there.evidence[:, None]
    np.testing.assert_allclose(shares[:, -1], first / (first + rest), rtol=0.03)
    others = here.competition / here.evidence[:, None] * (rest / (first + rest))[:, None]
    np.testing.assert_allclose(shares[:, :-1], others, atol=0.02)
