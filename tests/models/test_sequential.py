"""The sequential rule: features one after another, by what each adds."""

from __future__ import annotations

from fractions import Fraction
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from numpy.typing import NDArray
from sklearn.cluster import DBSCAN, BisectingKMeans, KMeans
from sklearn.datasets import load_breast_cancer
from sklearn.mixture import GaussianMixture
from sklearn.preprocessing import StandardScaler

import whycluster as wc
from tests.optional import optional
from tests.reference import models, neon
from tests.reference import sequential as reference
from whycluster.core.energies import KernelEnergy, LinearEnergy
from whycluster.evaluation import checks, compare
from whycluster.evaluation.shuffled import ShuffledEnergy
from whycluster.models.energies import FloorEnergy
from whycluster.models.network import TableNetwork
from whycluster.models.sequential import blend

if TYPE_CHECKING:
    import pandas as pd
    from kmodes.kmodes import KModes
else:
    pd = optional("pandas")
    KModes = optional("kmodes.kmodes:KModes")

Array = NDArray[Any]


def expected(X: Array, centers: Array, prior: Array, beta: float) -> Array:
    """The rule for k-means, row by row."""
    rows = []
    for x in X:
        splits = (x - centers) ** 2
        own = int(splits.sum(axis=1).argmin())
        gain = reference.gains(splits, list(range(len(centers))), own, prior, beta)
        path = np.asarray(neon.path(x, centers, own, beta, prior), np.float64)
        evidence = np.delete(splits.sum(axis=1) - splits[own].sum(), own).min()
        rows.append(reference.blended(gain, path, float(evidence)))
    return np.array(rows)


def test_it_is_what_is_written(wine: Array, kmeans: Any) -> None:
    exp = wc.explain(kmeans, wine, rule="sequential")
    prior = np.bincount(kmeans.labels_) / len(wine)
    plain = wc.explain(kmeans, wine)
    assert plain.beta is not None
    assert exp.beta is not None
    assert exp.beta == plain.beta == pytest.approx(4.0 / plain.evidence.mean())
    assert exp.relevance == pytest.approx(expected(wine, kmeans.cluster_centers_, prior, exp.beta))
    assert np.array_equal(exp.evidence, plain.evidence)
    assert exp.rule == "sequential"
    assert "sequential" in repr(exp)


@given(st.integers(0, 2**32 - 1), st.integers(2, 6), st.integers(1, 12), st.floats(0.05, 3.0))
@example(3, 2, 10, 3.0)  # two features each bring P(c) so near to 1 that it is rounded to 1
def test_it_is_what_is_written_whatever_the_numbers(seed: int, n_clusters: int, d: int, beta: float) -> None:
    rng = np.random.default_rng(seed)
    centers, X = rng.normal(size=(n_clusters, d)), rng.normal(size=(7, d))
    exp = wc.explain(centers, X, rule="sequential", beta=beta)
    sizes = np.maximum(np.bincount(exp.cluster, minlength=n_clusters), 1)
    assert exp.relevance == pytest.approx(expected(X, centers, sizes / 7, beta), rel=1e-6, abs=1e-9)
    assert exp.relevance.sum(axis=1) == pytest.approx(exp.evidence)


@pytest.mark.parametrize(
    "fit",
    [
        lambda X: KMeans(4, n_init=1, random_state=0).fit(X),
        lambda X: GaussianMixture(4, covariance_type="full", reg_covar=0.1, random_state=0).fit(X),
        lambda X: GaussianMixture(4, covariance_type="diag", random_state=0).fit(X),
        lambda X: BisectingKMeans(5, random_state=0).fit(X),
        lambda X: wc.KernelKMeans(4, random_state=0).fit(X),
        lambda X: wc.Surrogate().fit(X, DBSCAN(eps=2.6).fit_predict(X)),
        lambda X: wc.neuralize(X[::30], metric="cosine"),
        lambda X: wc.neuralize(X[::30], metric="manhattan"),
        lambda X: wc.neuralize(X[::30], metric="student"),
    ],
    ids=[
        "k-means",
        "full mixture",
        "diagonal mixture",
        "tree",
        "kernel",
        "floor",
        "cosine",
        "manhattan",
        "student",
    ],
)
def test_every_energy_bears_as_much_as_under_the_path_rule(wine: Array, fit: Any) -> None:
    model = fit(wine)
    exp = wc.explain(model, wine, rule="sequential", beta=0.7)
    path = wc.explain(model, wine, rule="path", beta=0.7)
    assert exp.residual == pytest.approx(path.residual, abs=1e-8)
    assert not np.allclose(exp.relevance, path.relevance)
    assert np.array_equal(exp.competition, path.competition)


def check(
    exp: wc.Explanation, path: wc.Explanation, parts: Any, weights: Array, cluster_of: list[int]
) -> None:
    """Compare with the rule row by row: ``parts(x)`` gives (P, d) terms, ``weights`` are (P,)."""
    assert exp.beta is not None
    for row, x in enumerate(np.asarray(exp.data)):
        gain = reference.gains(parts(x), cluster_of, int(exp.cluster_codes[row]), weights, exp.beta)
        expected = reference.blended(gain, path.relevance[row], float(exp.evidence[row]))
        assert exp.relevance[row] == pytest.approx(expected, rel=1e-6, abs=1e-8)
    same = np.isclose(exp.relevance, path.relevance).all(axis=1)
    assert same.mean() < 0.5


def both(model: Any, X: Array, **options: Any) -> tuple[wc.Explanation, wc.Explanation]:
    """Explain by this rule and by the path rule."""
    exp = wc.explain(model, X, rule="sequential", **options)
    path = wc.explain(model, X, rule="path", **options)
    assert exp.beta == path.beta
    return exp, path


def test_kernels_are_taken_apart_into_their_support_vectors(wine: Array) -> None:
    model = wc.KernelKMeans(3, n_support=4, random_state=0).fit(wine)
    exp, path = both(model, wine)
    assert exp.beta == model.gamma_  # at which the density of a cluster is a mixture
    sizes = np.bincount(model.predict(wine)) / len(wine)
    cluster_of = np.repeat(np.arange(3), 4)
    weights = sizes[cluster_of] / 4
    check(exp, path, lambda x: (x - model.support_vectors_) ** 2, weights, cluster_of.tolist())


def test_weights_of_support_vectors_and_a_floor_for_noise(wine: Array) -> None:
    rng = np.random.default_rng(0)
    support, log_weights, scale = wine[::20], rng.normal(size=9), rng.uniform(0.5, 2, size=13)
    kernel = KernelEnergy(support, np.array([4, 3, 2]), 0.3, log_weights, scale)
    split = rng.uniform(0, 2, size=13)
    cluster_of = np.repeat(np.arange(3), [4, 3, 2])
    for energy in (kernel, FloorEnergy(kernel, split.sum() + 1.5, split)):
        exp, path = both(TableNetwork(energy), wine)
        sizes = np.bincount(exp.cluster_codes, minlength=energy.n_clusters) / len(wine)
        parts, weights = cluster_of.tolist(), np.exp(log_weights) * sizes[cluster_of]
        if isinstance(energy, FloorEnergy):
            parts, weights = [*parts, 3], np.append(weights, sizes[3])
            floor = split + 1.5 / 13  # what is no feature's is all features' in equal parts
            check(exp, path, lambda x, f=floor: np.vstack([scale * (x - support) ** 2, f]), weights, parts)
            assert (exp.cluster_codes == 3).sum() > 5
        else:
            check(exp, path, lambda x: scale * (x - support) ** 2, weights, parts)


def test_mixtures_use_their_own_weights(wine: Array) -> None:
    diagonal = GaussianMixture(3, covariance_type="diag", random_state=0).fit(wine)
    variances = diagonal.covariances_
    check(
        *both(diagonal, wine),
        lambda x: (x - diagonal.means_) ** 2 / (2 * variances) + np.log(variances) / 2,
        diagonal.weights_,
        [0, 1, 2],
    )
    full = GaussianMixture(3, reg_covar=0.3, random_state=0).fit(wine)
    split = models.gaussian(np.ones(3), full.means_, full.covariances_)

    def terms(x: Array) -> Array:
        found = [split(x, k) for k in range(3)]
        return np.array([e + (s - e.sum()) / 13 for s, e in found])  # what is no feature's, in equal parts

    check(*both(full, wine), terms, full.weights_, [0, 1, 2])


def test_heads_start_from_their_bias(wine: Array) -> None:
    rng = np.random.default_rng(0)
    directions, bias = rng.normal(size=(3, 13)), np.array([0.0, 1.0, -1.0])
    exp, path = both(TableNetwork(LinearEnergy(directions, bias)), wine)
    check(exp, path, lambda x: -directions * x, np.exp(bias), [0, 1, 2])


def test_a_shuffled_model_is_explained_as_such(wine: Array, kmeans: Any) -> None:
    order = np.roll(np.arange(13), 4)
    factor, shift = np.tile([1.0, -1.0, 2.0], 5)[:13], np.linspace(-1, 1, 13)
    energy = ShuffledEnergy(wc.neuralize(kmeans).energy, order, factor, shift)
    exp, path = both(TableNetwork(energy), wine)
    sizes = np.maximum(np.bincount(exp.cluster_codes, minlength=5), 1) / len(wine)

    def terms(x: Array) -> Array:
        back = np.empty((5, 13))
        back[:, order] = (factor * x[order] + shift - kmeans.cluster_centers_) ** 2
        return back

    check(exp, path, terms, sizes, list(range(5)))


def test_mixtures_have_a_stiffness_of_their_own(wine: Array) -> None:
    mixture = GaussianMixture(3, covariance_type="diag", random_state=0).fit(wine)
    assert wc.explain(mixture, wine, rule="sequential").beta == 1.0
    head = wc.neuralize(wine[::50], metric="dot")
    assert wc.explain(head, wine, rule="sequential").beta == 1.0
    student = wc.neuralize(wine[::50], metric="student")
    assert wc.explain(student, wine, rule="sequential").beta == 1.0
    cosine = wc.neuralize(wine[::50], metric="cosine")
    plain = wc.explain(cosine, wine, rule="min-take-most").beta
    assert plain is not None
    assert wc.explain(cosine, wine, rule="sequential").beta == pytest.approx(4.0 * plain)


def test_terms_of_every_energy_are_its_contrasts(wine: Array) -> None:
    """But for what all clusters share, those of all clusters at once are those of `against`."""
    for model in (
        BisectingKMeans(4, random_state=0).fit(wine),
        wc.neuralize(wine[::40], metric="manhattan"),
        wc.neuralize(wine[::40], metric="student"),
        KMeans(4, n_init=1, random_state=0).fit(wine + 1e6),
    ):
        network = wc.neuralize(model)
        energy, offset = network.energy, network.energy.offset
        rows = wine + 1e6 if isinstance(model, KMeans) else wine
        own = np.searchsorted(network.labels, network.assign(rows))
        out = np.empty((len(rows), energy.n_clusters, 13))
        moved = rows if offset is None else rows - offset
        energy.terms(np.ascontiguousarray(moved), own, out, np.empty((len(rows), energy.scratch_width)))
        out -= out[np.arange(len(rows)), own][:, None]
        for k, label in enumerate(network.labels):
            other = np.flatnonzero(own != k)
            against = wc.explain(network, rows[other], against=label).relevance
            assert out[other, k] == pytest.approx(against, abs=1e-7)
            assert (out[own == k, k] == 0.0).all()


def test_pairs_of_a_student_head_are_the_terms(wine: Array) -> None:
    """All clusters are equally likely before any feature is known, as DEC has it."""
    centers = wine[::40]
    exp, path = both(wc.neuralize(centers, metric="student"), wine)
    assert exp.beta == 1.0

    def terms(x: Array) -> Array:
        own = int(((x - centers) ** 2).sum(axis=1).argmin())
        split = models.student(centers, 1.0, own)
        return np.array([split(x, k)[1] for k in range(5)])

    check(exp, path, terms, np.full(5, 0.2), list(range(5)))


def test_what_was_said_already_adds_nothing() -> None:
    """Two copies of one feature: the path rule gives both the same, here the second gets little."""
    rng = np.random.default_rng(0)
    x = np.concatenate([rng.normal(-3, 1, 100), rng.normal(3, 1, 100)])
    other = np.tile([-1.5, 1.5], 100) + rng.normal(scale=0.3, size=200)
    X = np.column_stack([x, x, other])
    model = KMeans(4, n_init=5, random_state=0).fit(X)
    path = wc.explain(model, X, rule="path").relevance
    sequential = wc.explain(model, X, rule="sequential").relevance
    assert np.allclose(path[:, 0], path[:, 1])
    first, second = np.sort(sequential[:, :2], axis=1)[:, ::-1].T
    assert np.median(second / first) < 0.2


def test_it_is_more_faithful(wine: Array, kmeans: Any) -> None:
    found = compare(kmeans, wine, ["random", "neon", "neon joint", "neon sequential", "shapley"], repeats=20)
    for rival in ("neon", "neon joint", "shapley"):
        gap, error = found.difference("neon sequential", rival)
        assert gap > 2 * error, rival
    assert found.share("neon sequential") > 0.9


def test_but_it_jumps(wine: Array, kmeans: Any) -> None:
    assert checks.conservation(kmeans, wine, rule="sequential").holds
    assert checks.randomization(kmeans, wine, method="neon sequential").holds
    assert not checks.continuity(kmeans, wine, rule="sequential").holds


@pytest.mark.parametrize(
    "fit",
    [
        lambda X: KMeans(3, n_init=1, random_state=0).fit(X),
        lambda X: GaussianMixture(3, reg_covar=0.1, random_state=0).fit(X),
        lambda X: wc.KernelKMeans(3, random_state=0).fit(X),
        lambda X: BisectingKMeans(3, random_state=0).fit(X),
        lambda X: wc.neuralize(X[::60], metric="cosine"),
    ],
)
def test_where_no_row_is_in_the_cluster(wine: Array, fit: Any) -> None:
    model = fit(wine)
    network = wc.neuralize(model)
    others = wine[network.assign(wine) != network.labels[0]]
    exp = wc.explain(model, others, rule="sequential", target=network.labels[0], background=wine)
    assert exp.relevance == pytest.approx(wc.explain(model, others, target=network.labels[0]).relevance)


def test_relevance_stays_in_proportion(wine: Array) -> None:
    """Even where determinants decide, and features gain next to nothing."""
    X = StandardScaler().fit_transform(load_breast_cancer().data)
    for covariance in ("full", "tied"):
        mixture = GaussianMixture(4, covariance_type=covariance, reg_covar=1e-3, random_state=0).fit(X)
        exp, path = both(mixture, X)
        size = np.abs(exp.relevance).sum(axis=1) / np.abs(path.relevance).sum(axis=1)
        assert size.max() <= 10 + 1e-9
    head = TableNetwork(
        LinearEnergy(np.random.default_rng(0).normal(size=(3, 13)), np.array([0.0, 6.0, -3.0]))
    )
    exp, path = both(head, wine)
    assert np.abs(exp.relevance).sum() <= 10 * np.abs(path.relevance).sum()


def test_however_stiff(wine: Array, kmeans: Any) -> None:
    """Chances that round to 0 and 1 are told apart by their logarithms."""
    X = wine[::12]
    for beta in (30.0, 300.0):
        exp, path = both(kmeans, X, beta=beta, background=wine)
        gain = 3 * exp.relevance - path.relevance  # in proportion to the gains
        for row, x in enumerate(X):
            splits = [[Fraction(float(v)) ** 2 for v in x - center] for center in kmeans.cluster_centers_]
            own = int(exp.cluster[row])
            # The first feature is the one that leaves the largest least lead over any competitor
            leads = [
                min(float(splits[k][i] - splits[own][i]) for k in range(5) if k != own) for i in range(13)
            ]
            assert leads[int(gain[row].argmax())] >= max(leads) - 5 / beta


def test_why_not_is_a_contrast_as_ever(wine: Array, kmeans: Any) -> None:
    exp = wc.explain(kmeans, wine, rule="sequential", target=2)
    plain = wc.explain(kmeans, wine, target=2)
    other = np.flatnonzero(kmeans.labels_ != 2)
    assert exp.relevance[other] == pytest.approx(plain.relevance[other])
    own = np.flatnonzero(kmeans.labels_ == 2)
    assert exp.relevance[own] == pytest.approx(wc.explain(kmeans, wine, rule="sequential").relevance[own])


def test_a_few_rows_are_explained_as_among_all(wine: Array, kmeans: Any) -> None:
    whole = wc.explain(kmeans, wine, rule="sequential")
    few = wc.explain(kmeans, wine[5:9], rule="sequential", background=wine)
    assert few.relevance == pytest.approx(whole.relevance[5:9])
    assert whole[5].relevance == pytest.approx(whole.relevance[[5]])
    alone = wc.explain(kmeans, wine[5:9], rule="sequential")
    assert not np.allclose(alone.relevance, few.relevance)


def test_blocks_and_dtypes() -> None:
    """Many clusters and features: contrasts are made for some rows at a time."""
    rng = np.random.default_rng(0)
    X, centers = rng.normal(size=(700, 80)), rng.normal(size=(60, 80))
    exp = wc.explain(centers, X, rule="sequential")
    for row in (0, 350, 699):
        alone = wc.explain(centers, X[[row]], rule="sequential", background=X)
        assert alone.relevance[0] == pytest.approx(exp.relevance[row])
    single = wc.explain(centers, X.astype(np.float32), rule="sequential")
    assert single.relevance.dtype == np.float32
    close = np.isclose(single.relevance, exp.relevance, rtol=1e-3, atol=1e-3).all(axis=1)
    assert close.mean() > 0.95  # an order that hangs by a thread may change


def test_extremes(wine: Array, kmeans: Any) -> None:
    for scale in (1e-120, 1e-3, 1e3, 1e120):
        exp = wc.explain(kmeans.cluster_centers_ * scale, wine * scale, rule="sequential")
        assert exp.relevance / scale**2 == pytest.approx(
            wc.explain(kmeans.cluster_centers_, wine, rule="sequential").relevance, abs=1e-6
        )
    hard = wc.explain(kmeans, wine, rule="sequential", beta=np.inf)
    assert np.isfinite(hard.relevance).all()
    assert hard.relevance.sum(axis=1) == pytest.approx(hard.evidence)
    same = wc.explain([[0.0, 1.0], [0.0, 1.0]], [[0.5, 0.5]], rule="sequential")
    assert (same.relevance == 0.0).all()


def test_rows_that_constants_hold_in_their_cluster_are_explained_by_the_path_rule() -> None:
    """A weight that outweighs all features: there is no gain to share."""
    gain, relevance = np.array([[-1.0, -2.0], [2.0, -3.0], [1.0, 2.0], [1.0, 2.0]]), np.full((4, 2), 1.0)
    relevance[2] = -1.0
    before = relevance.copy()
    blend(gain, np.array([1.0, 1.0, 1.0, 0.0]), relevance)
    assert relevance.tolist() == before.tolist()


def test_nothing_jumps_where_gains_cease_to_count() -> None:
    """They grow to 20 times the relevance, or features come to bear less than nothing."""
    t = np.linspace(0.0, 1.0, 10_001)[:, None]
    large = np.array([1.0, 0.0]) + t * np.array([10.0, -10.0]), np.tile([0.7, 0.3], (len(t), 1))
    little = np.tile([0.9, 0.2], (len(t), 1)), np.array([1.0, -0.2]) - t * np.array([0.0, 1.2])
    for gain, path in (large, little):
        relevance = path.copy()
        blend(gain.copy(), np.ones(len(t)), relevance)
        assert relevance[-1].tolist() == path[-1].tolist()
        assert relevance[0] == pytest.approx(path[0] / 3 + gain[0] * (path[0].sum() / gain[0].sum() * 2 / 3))
        assert relevance.sum(axis=1) == pytest.approx(path.sum(axis=1), abs=1e-12)
        assert np.abs(np.diff(relevance, axis=0)).max() < 5e-3


def test_categories() -> None:
    frame = pd.DataFrame({"a": list("xyxyxyzz"), "b": list("uuvvuvuv"), "c": list("pppqqqqp")})
    model = KModes(3, n_init=2, random_state=0).fit(frame)
    exp = wc.explain(model, frame, rule="sequential")
    assert exp.relevance.sum(axis=1) == pytest.approx(exp.evidence)
