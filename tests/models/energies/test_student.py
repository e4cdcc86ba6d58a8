"""Student's t around centers, the head of DEC and IDEC, against its slow transcription."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from numpy.typing import NDArray
from sklearn.cluster import KMeans

import whycluster as wc
from tests.optional import optional
from tests.reference import models, neon
from whycluster.models.energies import DiagonalGaussianEnergy, StudentEnergy
from whycluster.pipelines.affine_map import AffineMap
from whycluster.pipelines.mixing import through

if TYPE_CHECKING:
    import torch
else:
    torch = optional("torch")

Array = NDArray[Any]
ALPHAS = [0.05, 1.0, 7.0, 1e4]


@pytest.fixture(scope="module")
def wine(wine: Array) -> Array:
    """Every third wine: the transcription is slow."""
    return wine[::3]


@pytest.fixture(scope="module")
def kmeans(wine: Array) -> Any:
    return KMeans(5, n_init=3, random_state=0).fit(wine)


def head(centers: Array, alpha: float = 1.0) -> wc.Network:
    return wc.TableNetwork(StudentEnergy(centers, alpha))


def soft(X: Array, centers: Array, alpha: float) -> Array:
    """Eq. 1 of DEC: q, (n, K)."""
    q = (1 + ((X[:, None] - centers) ** 2).sum(axis=2) / alpha) ** (-(alpha + 1) / 2)
    return np.asarray(q / q.sum(axis=1, keepdims=True))


def evidence(x: Array, centers: Array, alpha: float, c: int) -> float:
    split = models.student(centers, alpha, c)
    return min(split(x, k)[0] for k in range(len(centers)) if k != c)


def min_take_most(X: Array, centers: Array, alpha: float, beta: float) -> Array:
    own = [neon.assign(x, centers) for x in X]
    return np.array(
        [
            models.explain_row(x, models.student(centers, alpha, c), len(centers), c, beta)
            for x, c in zip(X, own, strict=True)
        ]
    )


def by_path(X: Array, centers: Array, alpha: float, beta: float = 1.0) -> Array:
    """All clusters are equally likely before there is any evidence, as DEC has it."""
    own, ones = [neon.assign(x, centers) for x in X], np.ones(len(centers))
    return np.array(
        [
            models.path_row(x, models.student(centers, alpha, c), len(centers), c, beta, ones, True)
            for x, c in zip(X, own, strict=True)
        ]
    )


def error(found: Array, expected: Any) -> float:
    return float(np.abs(found - np.asarray(expected)).max() / np.abs(expected).max())


@pytest.mark.parametrize("alpha", ALPHAS)
def test_evidence(wine: Array, kmeans: Any, alpha: float) -> None:
    centers = kmeans.cluster_centers_
    net = head(centers, alpha)
    assert (net.assign(wine) == kmeans.labels_).all()
    found = net.evidence(wine)
    assert error(found, [[evidence(x, centers, alpha, c) for c in range(5)] for x in wine]) <= 1e-13
    assert (found.argmax(axis=1) == kmeans.labels_).all()
    assert ((found > 0).sum(axis=1) == 1).all()


@pytest.mark.parametrize("alpha", ALPHAS)
def test_it_is_the_logarithm_of_the_odds(wine: Array, kmeans: Any, alpha: float) -> None:
    q = np.sort(soft(wine, kmeans.cluster_centers_, alpha), axis=1)
    exp = head(kmeans.cluster_centers_, alpha).explain(wine)
    assert error(exp.evidence, np.log(q[:, -1] / q[:, -2])) <= 1e-10


@pytest.mark.parametrize("alpha", ALPHAS)
def test_path(wine: Array, kmeans: Any, alpha: float) -> None:
    centers = kmeans.cluster_centers_
    exp = head(centers, alpha).explain(wine)
    assert (exp.rule, exp.beta) == ("path", 1.0)
    assert error(exp.relevance, by_path(wine, centers, alpha)) <= 1e-12
    assert np.abs(exp.residual).max() <= 1e-13 * exp.evidence.max()
    assert error(exp.competition.sum(axis=1), exp.evidence) <= 1e-13
    soft = head(centers, alpha).explain(wine, beta=0.2)
    assert error(soft.relevance, by_path(wine, centers, alpha, 0.2)) <= 1e-12


@pytest.mark.parametrize("alpha", ALPHAS)
def test_min_take_most(wine: Array, kmeans: Any, alpha: float) -> None:
    centers = kmeans.cluster_centers_
    exp = head(centers, alpha).explain(wine, rule="min-take-most")
    mean = np.mean([evidence(x, centers, alpha, c) for x, c in zip(wine, kmeans.labels_, strict=True)])
    assert exp.beta == pytest.approx(1 / mean, rel=1e-12)
    assert error(exp.relevance, min_take_most(wine, centers, alpha, exp.beta or 0.0)) <= 1e-12
    assert np.abs(exp.residual).max() <= 1e-13 * exp.evidence.max()
    assert error(exp.competition.sum(axis=1), exp.evidence) <= 1e-13


@pytest.mark.parametrize("alpha", ALPHAS)
def test_joint(wine: Array, kmeans: Any, alpha: float) -> None:
    centers = kmeans.cluster_centers_
    exp = head(centers, alpha).explain(wine, rule="joint", beta=0.7)
    expected = [
        models.joint_row(x, models.student(centers, alpha, c), 5, c, 0.7)
        for x, c in zip(wine, exp.cluster, strict=True)
    ]
    assert error(exp.relevance, expected) <= 1e-12
    assert np.abs(exp.residual).max() <= 1e-13 * exp.evidence.max()


@pytest.mark.parametrize("alpha", ALPHAS)
@pytest.mark.parametrize(
    "asked", [{"rule": "contrast"}, {"against": 3}, {"target": 2}, {"target": 1, "against": 3}]
)
def test_contrasts(wine: Array, kmeans: Any, alpha: float, asked: dict[str, Any]) -> None:
    """Also those of clusters that did not win."""
    centers = kmeans.cluster_centers_
    exp = head(centers, alpha).explain(wine, **asked)
    for x, c, k, f, R in zip(wine, exp.cluster, exp.competitor, exp.evidence, exp.relevance, strict=True):
        if "target" in asked and "against" not in asked and f > 0:
            continue  # it did win: shared, and tested above
        h, split = models.student(centers, alpha, c)(x, k)
        assert f == pytest.approx(h, rel=1e-11, abs=1e-14)
        np.testing.assert_allclose(R, split, rtol=1e-9, atol=1e-12 * (np.abs(exp.relevance).max()))


@pytest.mark.parametrize("alpha", ALPHAS)
@pytest.mark.parametrize("target", [None, 2])
def test_why_a_probability_exceeds_a_threshold(
    wine: Array, kmeans: Any, alpha: float, target: int | None
) -> None:
    centers = kmeans.cluster_centers_
    own = kmeans.labels_ if target is None else np.full(len(wine), target)
    q = soft(wine, centers, alpha)[np.arange(len(wine)), own]
    threshold = float(np.median(q))
    exp = head(centers, alpha).explain(wine, threshold=threshold, target=target)
    assert (exp.cluster == own).all()
    assert ((exp.evidence > 0) == (q > threshold))[np.abs(q / threshold - 1) > 1e-9].all()
    rows = [
        models.threshold_row(x, models.student(centers, alpha, c), 5, c, threshold)
        for x, c in zip(wine, exp.cluster, strict=True)
    ]
    assert error(exp.evidence, [f for f, _ in rows]) <= 1e-12
    assert error(exp.relevance, [R for _, R in rows]) <= 1e-12


def test_against_one_competitor_it_is_kmeans_on_another_scale(wine: Array, kmeans: Any) -> None:
    student = wc.explain(kmeans.cluster_centers_, wine, metric="student", rule="contrast")
    plain = wc.explain(kmeans, wine, rule="contrast")
    shares = plain.relevance / plain.evidence[:, None]
    np.testing.assert_allclose(student.relevance / student.evidence[:, None], shares, rtol=1e-9, atol=1e-9)


def test_of_many_degrees_of_freedom_it_is_a_gaussian(wine: Array, kmeans: Any) -> None:
    """A mixture of equal weights and variances of 1."""
    student = head(kmeans.cluster_centers_, 1e12).explain(wine, beta=0.6, rule="min-take-most")
    plain = wc.explain(kmeans, wine, beta=0.3, rule="min-take-most")
    assert error(2 * student.relevance, plain.relevance) <= 1e-9
    path = head(kmeans.cluster_centers_, 1e12).explain(wine)
    mixture = DiagonalGaussianEnergy(kmeans.cluster_centers_, np.ones((5, 13)), np.zeros(5))
    assert error(path.relevance, wc.TableNetwork(mixture).explain(wine).relevance) <= 1e-9


def test_ties() -> None:
    """Halfway between two clusters: no evidence, and the limit of rho, (alpha + 1) / 2 / (alpha + d^2)."""
    centers = np.array([[0.0, 0.0], [4.0, 2.0], [9.0, -9.0]])
    exp = head(centers, 3.0).explain(np.array([[2.0, 1.0], [3.0, -1.0]]), rule="contrast")
    assert exp.evidence.tolist() == [0.0, 0.0]
    assert exp.cluster.tolist() == [0, 0]
    np.testing.assert_allclose(exp.relevance, [[0.0, 0.0], [-16 / 13, 16 / 13]], rtol=1e-14)
    shared = head(centers, 3.0).explain(np.array([[3.0, -1.0]]), beta=np.inf)
    np.testing.assert_allclose(shared.relevance, exp.relevance[1:], rtol=1e-14)


@pytest.mark.parametrize("gap", [1e-3, 1e-7, 1e-12, 1e-16, 0.0])
@pytest.mark.parametrize("away", [0.0, 10.0, 1e5])
def test_near_ties_have_as_many_digits_as_distances(gap: float, away: float) -> None:
    """s_k - s_c would have none of them left."""
    centers, x = np.array([[-1.0, 0.0], [1.0, 0.0]]), np.array([[-gap, away]])
    exp = head(centers).explain(x)
    h, split = models.student(centers, 1.0, 0)(x[0], 1)
    assert exp.evidence[0] == pytest.approx(h, rel=1e-14, abs=1e-15 / (1 + away**2))
    np.testing.assert_allclose(exp.relevance[0], split, rtol=1e-14)


@pytest.mark.parametrize("rule", ["path", "min-take-most", "joint", "sequential", "contrast"])
def test_duplicates_of_centers_leave_nothing_to_explain(wine: Array, kmeans: Any, rule: str) -> None:
    doubled = np.vstack([kmeans.cluster_centers_] * 2)
    exp = wc.explain(doubled, wine, metric="student", rule=rule)
    assert (exp.evidence == 0).all()
    assert (exp.cluster == kmeans.labels_).all()
    assert np.abs(exp.relevance).max() <= 1e-14
    above = wc.explain(doubled, wine, metric="student", threshold=0.3)
    rows = [
        models.threshold_row(x, models.student(doubled, 1.0, c), 10, c, 0.3)
        for x, c in zip(wine, exp.cluster, strict=True)
    ]
    assert error(above.relevance, [R for _, R in rows]) <= 1e-12


@pytest.mark.parametrize("rule", ["path", "min-take-most", "joint", "sequential", "contrast"])
def test_far_from_0(wine: Array, kmeans: Any, rule: str) -> None:
    shift = 2.0**20
    rows, centers = np.round(wine * 2**20) / 2**20, np.round(kmeans.cluster_centers_ * 2**20) / 2**20
    here = wc.explain(centers, rows, metric="student", rule=rule)
    there = wc.explain(centers + shift, rows + shift, metric="student", rule=rule)  # not a digit is lost
    assert (there.cluster == here.cluster).all()
    assert error(there.evidence, here.evidence) <= 1e-12
    assert error(there.relevance, here.relevance) <= 1e-9
    assert np.abs(there.residual).max() <= 1e-12 * here.evidence.max()


@pytest.mark.parametrize("spread", [1e3, 1e6, 1e9])
@pytest.mark.parametrize("alpha", [0.05, 1.0])
def test_a_row_near_its_center_among_clusters_far_apart(spread: float, alpha: float) -> None:
    """1e-3 and less from one center; |x|^2 would take these digits with it."""
    rng = np.random.default_rng(0)
    centers = np.round(rng.normal(size=(6, 4)) * spread * 2**10) / 2**10
    X = centers[np.arange(60) % 6] + rng.integers(-8, 9, size=(60, 4)) / 2**10
    for rule, expected in (("path", by_path), ("min-take-most", min_take_most)):
        exp = head(centers, alpha).explain(X, beta=0.1, rule=rule)
        assert error(exp.evidence, [evidence(x, centers, alpha, i % 6) for i, x in enumerate(X)]) <= 1e-12
        assert error(exp.relevance, expected(X, centers, alpha, 0.1)) <= 1e-10
        assert np.abs(exp.residual).max() <= 1e-11 * exp.evidence.max()


@pytest.mark.parametrize("rule", ["path", "min-take-most", "joint", "contrast"])
def test_groups_of_clusters_far_apart(rule: str) -> None:
    """No offset brings both groups near 0, so squares are not expanded there."""
    rng = np.random.default_rng(0)
    near = np.round(rng.normal(size=(8, 4)) * 2**10) / 2**10
    centers = near + np.repeat([0.0, 2.0**26], 4)[:, None]
    energy = StudentEnergy(centers)
    assert energy.squares.linear is None
    X = centers[np.arange(80) % 8] + rng.integers(-500, 501, size=(80, 4)) / 2**10
    exp = wc.TableNetwork(energy).explain(X, beta=5.0, rule=rule)
    for row, (x, c, k) in enumerate(zip(X, exp.cluster, exp.competitor, strict=True)):
        split = models.student(centers, 1.0, c)
        if rule == "contrast":
            expected = split(x, k)[1]
        elif rule == "path":
            expected = models.path_row(x, split, 8, c, 5.0, np.ones(8), True)
        else:
            by = models.explain_row if rule == "min-take-most" else models.joint_row
            expected = by(x, split, 8, c, 5.0)
        np.testing.assert_allclose(exp.relevance[row], expected, atol=1e-11)
    assert np.abs(exp.residual).max() <= 1e-12
    outside = wc.TableNetwork(energy).explain(X, target=(exp.cluster + 4) % 8)
    assert (outside.evidence < -10).all()
    assert np.abs(outside.residual / outside.evidence).max() <= 1e-12


def test_single_precision(wine: Array, kmeans: Any) -> None:
    X, centers = wine.astype("f4"), kmeans.cluster_centers_.astype("f4")
    for rule in ("path", "min-take-most", "joint", "contrast"):
        single = wc.explain(centers, X, metric="student", rule=rule)
        double = wc.explain(centers.astype("f8"), X.astype("f8"), metric="student", rule=rule)
        assert single.relevance.dtype == single.evidence.dtype == np.float32
        assert error(single.relevance, double.relevance) <= 1e-6
    net = wc.neuralize(centers, metric="student")
    assert net.gradient(X).dtype == np.float32


@pytest.mark.slow
@pytest.mark.usefixtures("two_threads")
def test_many_rows_and_clusters_are_as_few() -> None:
    """More clusters than lie column by column; more rows than a block has."""
    rng = np.random.default_rng(0)
    X, centers = rng.normal(size=(40_000, 6)), rng.normal(size=(60, 6))
    net = wc.neuralize(centers, metric="student")
    for rule, expected in (("path", by_path), ("min-take-most", min_take_most)):
        exp = net.explain(X, beta=2.0, rule=rule)
        assert error(exp.relevance[-20:], expected(X[-20:], centers, 1.0, 2.0)) <= 1e-11
        assert np.abs(exp.residual).max() <= 1e-12
    few = net.explain(X[-20:], rule="sequential", background=X)
    assert few.relevance == pytest.approx(net.explain(X, rule="sequential").relevance[-20:])


@pytest.mark.parametrize("shift", [0.0, 1e6])
def test_torch_gives_the_evidence(wine: Array, kmeans: Any, shift: float) -> None:
    net = head(kmeans.cluster_centers_ + shift, 2.5)
    module = net.to_torch()
    assert isinstance(module, torch.nn.Sequential)
    assert repr(module[1]) == "StudentLayer(alpha=2.5)"
    found = module(torch.from_numpy(wine + shift)).detach().numpy()
    np.testing.assert_allclose(found, net.evidence(wine + shift), atol=1e-12)


def test_at_its_center_a_row_has_a_gradient() -> None:
    """That of the competitor alone: (alpha + 1) (x - mu_k) / (alpha + d_k^2)."""
    found = head(np.array([[0.0, 0.0], [3.0, 4.0]]), 5.0).gradient([[0.0, 0.0]])
    np.testing.assert_allclose(found, [[-18 / 30, -24 / 30]], rtol=1e-14)


def test_behind_a_linear_map_it_adds_up(wine: Array, kmeans: Any) -> None:
    """What each component bears is shared among the features that moved it."""
    matrix = np.random.default_rng(0).normal(size=(4, 13))
    energy = StudentEnergy(kmeans.cluster_centers_ @ matrix.T)
    exp = wc.TableNetwork(through(energy, AffineMap(matrix, np.zeros(4)))).explain(wine)
    assert exp.relevance.shape == wine.shape
    assert error(exp.evidence, wc.TableNetwork(energy).explain(wine @ matrix.T).evidence) <= 1e-12
    assert np.abs(exp.residual).max() <= 1e-12 * exp.evidence.max()


def test_the_centers_are_copied() -> None:
    centers = np.array([[0.0, 0.0], [3.0, 4.0]])
    net = head(centers)
    before = net.evidence([[1.0, 1.0]])
    centers += 1.0
    assert (net.evidence([[1.0, 1.0]]) == before).all()
    assert repr(net) == "<TableNetwork of 2 clusters, 2 features (StudentEnergy)>"


@pytest.mark.parametrize("alpha", [0, 0.0, -1.0, np.inf, np.nan, 10**400, "1", True, None])
def test_alpha_is_a_number_above_0(alpha: Any) -> None:
    with pytest.raises(wc.InvalidInputError) as raised:
        StudentEnergy(np.eye(2), alpha)
    assert str(raised.value) == (
        f"StudentEnergy: alpha must be a finite number above 0; got {alpha!r}. In DEC and IDEC it is 1."
    )


def test_rows_that_are_not_finite_or_too_large() -> None:
    net = wc.neuralize(np.eye(2), metric="student")
    with pytest.raises(wc.InvalidInputError, match=r"^explain: X must be finite; row 1, feature 'x0' holds"):
        net.explain([[0.0, 1.0], [np.nan, 0.0]])
    with pytest.raises(wc.InvalidInputError, match="values too large to be squared"):
        net.explain([[0.0, 1.0], [1e300, 0.0]])


def test_a_checked_model_may_round_as_its_data_do() -> None:
    """Its distances are compared as such: in logarithms, far from 0, rounding would pass for a difference."""

    class Rounding:
        def __init__(self, centers: Array, bias: float = 0.0) -> None:
            self.cluster_centers_, self.bias = centers, bias * np.arange(len(centers))

        def predict(self, X: Array) -> Array:
            expanded = (self.cluster_centers_**2).sum(axis=1) - 2 * X @ self.cluster_centers_.T
            return np.asarray((expanded + self.bias.astype(X.dtype)).argmin(axis=1))

    X = (100.0 + 0.1 * np.random.default_rng(0).normal(size=(2000, 2))).astype("f4")
    model = Rounding(X[::400])
    found = wc.neuralize(model, metric="student").assign(X)
    assert 0.9 < (found == model.predict(X)).mean() < 1.0
    with pytest.raises(wc.UnsupportedModelError, match=r"the nearest of its cluster_centers_ \(student\)"):
        wc.neuralize(Rounding(np.eye(3), bias=1.0), metric="student").assign(np.eye(3) / 2)
