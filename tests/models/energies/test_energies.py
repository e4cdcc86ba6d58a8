"""Every energy against its slow transcription, on models fitted to real data."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.stats import multivariate_normal, norm
from sklearn.cluster import Birch, BisectingKMeans
from sklearn.mixture import BayesianGaussianMixture, GaussianMixture
from sklearn.neighbors import NearestCentroid

import whycluster as wc
from tests.optional import optional
from tests.reference import models, neon
from whycluster.core.energies import LinearEnergy
from whycluster.models.energies import GaussianEnergy

if TYPE_CHECKING:
    import kmedoids
    import torch
else:
    kmedoids = optional("kmedoids")
    torch = optional("torch")

Array = NDArray[np.float64]
RULES = ("path", "min-take-most")
COVARIANCES = ["full", "tied", "diag", "spherical"]


def mixture(X: Array, covariance: str, n_components: int = 4) -> Any:
    return GaussianMixture(n_components, covariance_type=covariance, reg_covar=0.05, random_state=0).fit(X)


def split_of(model: Any) -> models.Split:
    """The slow split of a fitted mixture."""
    n_components, d = model.means_.shape
    if model.covariance_type in ("diag", "spherical"):
        variances = np.reshape(model.covariances_, (n_components, -1)) * np.ones(d)
        return models.diagonal(model.weights_, model.means_, variances)
    covariances = np.broadcast_to(model.covariances_, (n_components, d, d))
    return models.gaussian(model.weights_, model.means_, covariances)


def close(found: NDArray[Any], expected: NDArray[Any]) -> bool:
    return bool(np.abs(found - expected).max() <= 1e-9 * np.abs(expected).max())


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("covariance", COVARIANCES)
def test_mixtures(wine: Array, covariance: str, rule: str) -> None:
    model = mixture(wine, covariance)
    exp = wc.explain(model, wine, rule=rule)
    expected = models.explain(wine, split_of(model), 4, rule=rule, weights=model.weights_)
    assert close(exp.relevance, expected)
    log_ratio = np.log(np.sort(model.predict_proba(wine), axis=1)[:, -2:])
    certain = log_ratio[:, 0] < -600  # its logarithm is not precise there
    assert close(exp.evidence[~certain], (log_ratio[:, 1] - log_ratio[:, 0])[~certain])


@pytest.mark.parametrize("covariance", COVARIANCES)
def test_the_path_of_a_mixture_leads_from_its_weights_to_its_probabilities(
    wine: Array, covariance: str
) -> None:
    """So no row is measured: a row is explained alone as among all others."""
    model = mixture(wine, covariance)
    exp = wc.explain(model, wine)
    assert (exp.rule, exp.beta) == ("path", 1.0)
    assert exp.prior is not None
    np.testing.assert_allclose(np.exp(exp.prior.log_weight), model.weights_, rtol=1e-12)
    for row in (0, 77):
        alone = wc.explain(model, wine[[row]])
        np.testing.assert_allclose(alone.relevance[0], exp.relevance[row], rtol=1e-9, atol=1e-12)
    soft = wc.explain(model, wine, beta=0.3)
    expected = models.explain(wine, split_of(model), 4, 0.3, "path", model.weights_)
    assert close(soft.relevance, expected)


@pytest.mark.parametrize("covariance", COVARIANCES)
def test_the_path_gains_the_logarithm_of_the_posterior_over_the_weight(wine: Array, covariance: str) -> None:
    """Up to its quadrature, sum_k p_k (h_k - log(pi_c / pi_k)) is log P(c | x) - log pi_c."""
    model = mixture(wine, covariance)
    split, log_pi = split_of(model), np.log(model.weights_)
    gains = np.log(model.predict_proba(wine).max(axis=1)) - log_pi[model.predict(wine)]
    found = []
    for x in wine:
        s = np.array([split(x, k)[0] for k in range(4)])
        c = int(s.argmin())
        nats = s - s[c] + log_pi - log_pi[c]
        t, g = np.polynomial.legendre.leggauss(200)
        odds = np.exp(log_pi - log_pi[c] - (t[:, None] + 1) / 2 * nats)
        p = g / 2 @ (odds / odds.sum(axis=1, keepdims=True))
        found.append(np.delete(p * nats, c).sum())
    np.testing.assert_allclose(found, gains, atol=1e-6)


@pytest.mark.parametrize("covariance", COVARIANCES)
def test_what_no_feature_is_responsible_for_is_the_residual(wine: Array, covariance: str) -> None:
    """Against one competitor: the weights, and the joint or redundant information of correlated features."""
    model = mixture(wine, covariance, n_components=2)
    exp = wc.explain(model, wine)
    k, c = exp.competitor, exp.cluster
    expected = np.log(model.weights_[c]) - np.log(model.weights_[k])
    if covariance in ("full", "tied"):
        covariances = np.broadcast_to(model.covariances_, (2, 13, 13))
        overlap = np.stack([_overlap(wine, *each) for each in zip(model.means_, covariances, strict=True)])
        rows = np.arange(len(wine))
        expected = expected + overlap[k, rows] - overlap[c, rows]
        assert np.abs(overlap[k, rows] - overlap[c, rows]).max() > 0.1
    assert np.abs(exp.residual - expected).max() < 1e-9 * exp.evidence.max()


def _overlap(X: Array, mean: Array, covariance: Array) -> Array:
    """-log of the joint density, minus the mean over marginal and conditional densities of all features.

    A conditional density is the joint density divided by that of all other features.
    """
    d = len(mean)
    joint = multivariate_normal(mean, covariance).logpdf(X)
    split = np.zeros(len(X))
    for i in range(d):
        others = np.delete(np.arange(d), i)
        without = multivariate_normal(mean[others], covariance[np.ix_(others, others)]).logpdf(X[:, others])
        split += norm(mean[i], np.sqrt(covariance[i, i])).logpdf(X[:, i]) / 2 + (joint - without) / 2
    return np.asarray(split - joint)


@pytest.mark.parametrize("rule", ["min-take-most", "joint", "contrast"])
def test_full_covariances_of_independent_features_are_diagonal_ones(wine: Array, rule: str) -> None:
    model = mixture(wine, "diag")
    full = GaussianMixture(4, covariance_type="full")
    full.weights_, full.means_ = model.weights_, model.means_
    full.covariances_ = np.array([np.diag(variances) for variances in model.covariances_])
    full.precisions_cholesky_ = np.array([np.diag(roots) for roots in model.precisions_cholesky_])
    expected, found = wc.explain(model, wine, rule=rule), wc.explain(full, wine, rule=rule)
    assert close(found.relevance, expected.relevance)
    assert close(found.residual, expected.residual)


def test_collinear_features_do_not_cancel() -> None:
    """A feature and its copy, which has a little noise, get relevance of the same sign and size."""
    rng = np.random.default_rng(0)
    x = np.concatenate([rng.normal(size=300), rng.normal(size=300) + 4.0])
    X = np.column_stack([x, x + 0.01 * rng.normal(size=600)])
    exp = wc.explain(GaussianMixture(2, covariance_type="tied", random_state=0).fit(X), X)
    assert np.abs(exp.evidence).mean() > 5
    assert np.corrcoef(exp.relevance.T)[0, 1] > 0.9
    assert np.median(exp.relevance / exp.evidence[:, None], axis=0) == pytest.approx([0.5, 0.5], abs=0.05)


@pytest.mark.parametrize("scale", [1e-160, 1e160])
@pytest.mark.parametrize("covariance", ["full", "tied"])
def test_covariances_whose_squares_leave_the_range(covariance: str, scale: float) -> None:
    """Standard deviations far from 1: variances would overflow or vanish, the relevance does not."""
    rng = np.random.default_rng(0)
    means, roots = rng.normal(size=(3, 4)), np.triu(rng.normal(size=(3, 4, 4))) + 3 * np.eye(4)
    roots, X = (roots if covariance == "full" else roots[:1]), rng.normal(size=(20, 4))
    weights = np.log([0.2, 0.3, 0.5])
    plain = wc.TableNetwork(GaussianEnergy(means, roots, weights)).explain(X)
    scaled = wc.TableNetwork(GaussianEnergy(means * scale, roots / scale, weights)).explain(X * scale)
    assert close(scaled.relevance, plain.relevance)
    assert close(scaled.evidence, plain.evidence)


@pytest.mark.parametrize("kind", ["dirichlet_process", "dirichlet_distribution"])
@pytest.mark.parametrize("covariance", COVARIANCES)
def test_bayesian_mixtures_give_their_own_probabilities(wine: Array, covariance: str, kind: str) -> None:
    model = BayesianGaussianMixture(
        n_components=3,
        covariance_type=covariance,
        weight_concentration_prior_type=kind,
        reg_covar=0.5,
        max_iter=500,
        tol=0.01,
        random_state=0,
    ).fit(wine)
    p = np.sort(model.predict_proba(wine), axis=1)
    exp = wc.explain(model, wine)
    clear = p[:, -2] > 1e-200
    assert np.allclose(exp.evidence[clear], np.log(p[clear, -1] / p[clear, -2]), rtol=1e-6, atol=1e-6)
    above = wc.explain(model, wine, threshold=0.9)
    unsure = p[:, -1] < 1 - 1e-9
    odds = np.log(p[unsure, -1] / p[unsure, :-1].sum(axis=1)) + np.log(0.1 / 0.9)
    assert np.allclose(above.evidence[unsure], odds, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("threshold", [0.01, 0.5, 0.9, 0.999])
@pytest.mark.parametrize("covariance", COVARIANCES)
def test_why_a_probability_exceeds_a_threshold(wine: Array, covariance: str, threshold: float) -> None:
    model = mixture(wine, covariance)
    exp = wc.explain(model, wine, threshold=threshold)
    probability = model.predict_proba(wine).max(axis=1)
    clear = np.abs(probability - threshold) > 1e-9
    assert ((exp.evidence > 0) == (probability > threshold))[clear].all()
    split = split_of(model)
    expected = [
        models.threshold_row(x, split, 4, c, threshold) for x, c in zip(wine, exp.cluster, strict=True)
    ]
    assert close(exp.evidence, np.array([f for f, _ in expected]))
    assert close(exp.relevance, np.array([R for _, R in expected]))
    assert (exp.rule, exp.beta, exp.threshold) == ("soft", 1.0, threshold)
    assert close(exp.competition[:, 0][exp.cluster != 0], _soft_share(exp, model, wine, threshold))


def _soft_share(exp: wc.Explanation, model: Any, X: Array, threshold: float) -> Array:
    """R_0 = p_0 h_0 of the rows of other clusters."""
    s = np.array([[split_of(model)(x, k)[0] for k in range(4)] for x in X])
    h = s - s[np.arange(len(X)), exp.cluster][:, None] - np.log(3) + np.log((1 - threshold) / threshold)
    h[np.arange(len(X)), exp.cluster] = np.inf
    p = np.exp(h.min(axis=1, keepdims=True) - h)
    p /= p.sum(axis=1, keepdims=True)
    others = exp.cluster != 0
    return np.asarray(p[others, 0] * h[others, 0])


def test_a_threshold_for_a_cluster_that_did_not_win(wine: Array) -> None:
    """The probability is below it, the evidence negative, and no contrast is needed."""
    model = mixture(wine, "diag")
    exp = wc.explain(model, wine, threshold=0.3, target=2)
    p = model.predict_proba(wine)[:, 2]
    assert ((exp.evidence > 0) == (p > 0.3)).all()
    row = int(np.flatnonzero(exp.assigned != 2)[0])
    f, R = models.threshold_row(wine[row], split_of(model), 4, 2, 0.3)
    assert exp.evidence[row] == pytest.approx(f, rel=1e-9)
    assert np.allclose(exp.relevance[row], R, rtol=1e-9)


def test_a_soft_head_has_probabilities(wine: Array) -> None:
    """Prop. 6 and 7: softargmax of products with one direction per cluster."""
    directions = np.random.default_rng(0).normal(size=(4, wine.shape[1]))
    scores = wine @ directions.T
    p = np.exp(scores) / np.exp(scores).sum(axis=1, keepdims=True)
    exp = wc.explain(directions, wine, metric="dot")
    assert close(exp.relevance, models.explain(wine, models.dot(directions), 4, 1.0, "path", np.ones(4)))
    paper = wc.explain(directions, wine, metric="dot", rule="min-take-most")
    assert close(paper.relevance, models.explain(wine, models.dot(directions), 4))
    assert (exp.cluster == p.argmax(axis=1)).all()
    ordered = np.sort(p, axis=1)
    assert np.allclose(exp.evidence, np.log(ordered[:, -1] / ordered[:, -2]))
    assert np.abs(exp.residual).max() < 1e-9
    above = wc.explain(directions, wine, metric="dot", threshold=0.8)
    assert ((above.evidence > 0) == (p.max(axis=1) > 0.8)).all()
    head = wc.neuralize(directions, metric="dot").to_torch()
    found = head(torch.from_numpy(wine.copy())).detach().numpy()
    assert np.allclose(found.max(axis=1), exp.evidence)


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("bias", [[0.0, 0.0, 0.0], [0.0, 1.0, -1.0]])
def test_a_head_starts_from_its_bias(wine: Array, bias: list[float], rule: str) -> None:
    directions = np.random.default_rng(0).normal(size=(3, 13))
    net = wc.TableNetwork(LinearEnergy(directions, np.array(bias)))
    exp = net.explain(wine, rule=rule)
    expected = models.explain(wine, models.dot(directions, bias), 3, rule=rule, weights=np.exp(bias))
    assert close(exp.relevance, expected)


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("metric", ["euclidean", "manhattan"])
def test_medoids(wine: Array, metric: str, rule: str) -> None:
    model = kmedoids.KMedoids(5, metric=metric, random_state=0).fit(wine)
    exp = wc.explain(model, wine, rule=rule)
    if metric == "manhattan":
        expected = models.explain(wine, models.manhattan(model.cluster_centers_), 5, rule=rule)
    else:
        expected = neon.explain(wine, model.cluster_centers_, rule=rule)
    assert close(exp.relevance, expected)
    assert np.abs(exp.residual).max() < 1e-9


@pytest.mark.parametrize("rule", RULES)
def test_manhattan_centroids(wine: Array, rule: str) -> None:
    y = np.arange(len(wine)) % 3
    model = NearestCentroid(metric="manhattan").fit(wine, y)
    exp = wc.explain(model, wine, rule=rule)
    assert close(exp.relevance, models.explain(wine, models.manhattan(model.centroids_), 3, rule=rule))


@pytest.mark.parametrize("rule", RULES)
def test_spherical_kmeans(wine: Array, rule: str) -> None:
    directions = wine[[3, 60, 150]]
    exp = wc.explain(directions, wine, metric="cosine", rule=rule)
    assert close(exp.relevance, models.explain(wine, models.cosine(directions), 3, rule=rule))
    assert np.abs(exp.residual).max() < 1e-12


def test_cosines_of_rows_of_any_length() -> None:
    X = np.array([[1e200, 1.0], [1.0, 2e200], [1e-200, 0.0]])
    net = wc.neuralize(np.eye(2), metric="cosine")
    assert np.allclose(net.evidence(X), [[1, -1], [-1, 1], [1, -1]])


def test_a_row_of_zeros_has_no_direction() -> None:
    exp = wc.explain([[1.0, 0.0], [0.0, 1.0]], [[0.0, 0.0], [2.0, 1.0]], metric="cosine")
    assert exp.cluster.tolist() == [0, 0]
    assert exp.evidence.tolist() == pytest.approx([0.0, 1 / np.sqrt(5)])
    assert exp.relevance[0].tolist() == [0.0, 0.0]


@pytest.mark.parametrize("rule", RULES)
def test_birch(wine: Array, rule: str) -> None:
    model = Birch(n_clusters=4, threshold=1.5).fit(wine)
    split = models.nearest_subcluster(model.subcluster_centers_, model.subcluster_labels_)
    exp = wc.explain(model, wine, rule=rule)
    assert len(model.subcluster_centers_) > 8
    assert close(exp.relevance, models.explain(wine, split, 4, rule=rule))
    assert np.abs(exp.residual).max() < 1e-9


def node_of(node: Any, mean: Array) -> models.Node:
    children = (None, None) if node.left is None else (node_of(node.left, mean), node_of(node.right, mean))
    return node.center + mean, *children, node.label if node.left is None else -1


def test_birch_keeps_its_digits_where_subclusters_lie_close_far_from_others() -> None:
    rng = np.random.default_rng(0)
    X = np.vstack([rng.uniform(-1, 1, (60, 2)) * 1e6, rng.normal(size=(40, 2)) * 0.01 + 7e5])
    model = Birch(threshold=0.001, n_clusters=None).fit(X)
    centers = model.subcluster_centers_
    nearest = ((X[:, None] - centers) ** 2).sum(axis=2).argmin(axis=1)
    assert (wc.neuralize(model).assign(X) == model.subcluster_labels_[nearest]).all()
    grouped = Birch(threshold=0.001, n_clusters=8).fit(X)
    groups = np.array(
        [
            [
                ((x - grouped.subcluster_centers_[grouped.subcluster_labels_ == k]) ** 2).sum(axis=1).min()
                for k in range(8)
            ]
            for x in X
        ]
    )
    assert (wc.neuralize(grouped).assign(X) == groups.argmin(axis=1)).all()


@pytest.mark.parametrize("n_clusters", [2, 3, 6, 15])
def test_a_tree_of_centroids(wine: Array, n_clusters: int) -> None:
    model = BisectingKMeans(n_clusters, random_state=1).fit(wine)
    root = node_of(model._bisecting_tree, model._X_mean)
    exp = wc.explain(model, wine)
    paper = wc.explain(model, wine, rule="min-take-most")
    assert paper.beta == pytest.approx(1 / paper.evidence.mean(), rel=1e-12)
    assert exp.beta == pytest.approx(4 / paper.evidence.mean(), rel=1e-12)
    sizes = np.bincount(model.labels_).astype(float)
    for row, (x, c) in enumerate(zip(wine, exp.cluster, strict=True)):
        f, R = models.tree_explain_row(x, root, c, paper.beta or 0.0)
        assert exp.evidence[row] == pytest.approx(f, rel=1e-9, abs=1e-9)
        assert np.abs(paper.relevance[row] - R).max() <= 1e-9 * np.abs(paper.relevance).max()
        R = models.tree_path_row(x, root, c, exp.beta or 0.0, sizes)
        assert np.abs(exp.relevance[row] - R).max() <= 1e-9 * np.abs(exp.relevance).max()
    evidence = wc.neuralize(model).evidence(wine)
    expected = [[models.tree_explain_row(x, root, c, 1.0)[0] for c in range(n_clusters)] for x in wine]
    assert np.abs(evidence - expected).max() < 1e-9 * np.abs(expected).max()


def test_a_tree_answers_every_question(wine: Array) -> None:
    model = BisectingKMeans(6, random_state=1).fit(wine)
    net = wc.neuralize(model)
    own = net.explain(wine)
    assert np.allclose(own.competition.sum(axis=1), own.evidence)
    for rule in ("min-take-most", "joint", "contrast"):
        assert np.abs(net.explain(wine, rule=rule).residual).max() < 1e-9
    against = net.explain(wine, against=own.competitor)
    assert np.allclose(against.evidence, own.evidence)
    # Against any cluster, the pair where the two ways part decides, so the answer is as sure as its sign.
    for k in range(6):
        chosen = net.explain(wine, against=k)
        others = own.cluster != k
        assert (chosen.evidence[others] > 0).all()
        assert np.abs(chosen.residual).max() < 1e-9
    why_not = net.explain(wine, target=3)
    assert ((why_not.evidence > 0) == (own.cluster == 3)).all()
    assert np.abs(why_not.residual).max() < 1e-9
    assert (why_not.competitor[own.cluster != 3] != 3).all()


def test_the_competitor_in_a_tree_is_where_the_row_would_go(wine: Array) -> None:
    """Move a row over the boundary of its decisive pair: it lands in the competitor, or near its boundary."""
    model = BisectingKMeans(5, random_state=0).fit(wine)
    exp = wc.explain(model, wine)
    root = node_of(model._bisecting_tree, model._X_mean)
    landed = []
    for x, c, f, k in zip(wine, exp.cluster, exp.evidence, exp.competitor, strict=True):
        pairs = models.path(root, c) or []
        own, sibling = min(pairs, key=lambda p: float(((x - p[1]) ** 2 - (x - p[0]) ** 2).sum()))
        towards = sibling - own
        moved = x + towards * f * 1.001 / (2 * towards @ towards)
        landed.append(model.predict(moved[None])[0] == k)
    assert np.mean(landed) > 0.9


def test_nearest_centroid_with_priors(wine: Array) -> None:
    y = np.array(["a", "b", "c"])[np.arange(len(wine)) % 3]
    model = NearestCentroid(priors=[0.7, 0.2, 0.1]).fit(wine + (y == "a")[:, None], y)
    exp = wc.explain(model, wine)
    assert (exp.cluster == model.predict(wine)).all()
    scores = np.sort(model.decision_function(wine), axis=1)
    assert np.allclose(exp.evidence, scores[:, -1] - scores[:, -2])
    squares = (wine[:, None] - model.centroids_) ** 2 / model.within_class_std_dev_**2
    energies = squares.sum(axis=2) - 2 * np.log([0.7, 0.2, 0.1])
    assert np.allclose(-energies, model.decision_function(wine))

    def split(x: NDArray[Any], k: int) -> tuple[float, NDArray[Any]]:
        parts = (x - model.centroids_[k]) ** 2 / model.within_class_std_dev_**2
        return float(parts.sum() - 2 * np.log([0.7, 0.2, 0.1][k])), parts

    weights = np.square([0.7, 0.2, 0.1])  # as decision_function counts them
    assert close(exp.relevance, models.explain(wine, split, 3, 1.0, "path", weights))
    above = wc.explain(model, wine, threshold=0.6)
    assert ((above.evidence > 0) == (model.predict_proba(wine).max(axis=1) > 0.6)).all()


def test_a_class_without_prior_is_left_out(wine: Array) -> None:
    y = np.arange(len(wine)) % 3
    model = NearestCentroid(priors=[0.5, 0.5, 0.0]).fit(wine + 2.0 * y[:, None], y)
    net = wc.neuralize(model)
    assert net.labels.tolist() == [0, 1]
    with np.errstate(divide="ignore"):
        assert (net.assign(wine) == model.predict(wine)).all()


def test_a_tree_that_is_not_the_models_is_refused(wine: Array) -> None:
    model = BisectingKMeans(4, random_state=0).fit(wine)
    model._X_mean = model._X_mean + 1.0
    with pytest.raises(wc.UnsupportedModelError, match="does not match its cluster_centers_"):
        wc.neuralize(model)


def test_the_competitor_of_a_cluster_in_a_tree_is_beyond_its_decisive_pair(wine: Array) -> None:
    """Why not: against the cluster that the pair with the least evidence leads to, not always the winner."""
    model = BisectingKMeans(8, random_state=1).fit(wine)
    exp = wc.explain(model, wine, target=3)
    root = node_of(model._bisecting_tree, model._X_mean)
    for row in np.flatnonzero(exp.assigned != 3):
        f, _ = models.tree_explain_row(wine[row], root, 3, 1.0)
        assert exp.evidence[row] == pytest.approx(f)


@pytest.mark.parametrize(
    "make", [lambda X: mixture(X, "full"), lambda X: wc.KernelKMeans(3, random_state=0).fit(X)]
)
def test_shap_values_and_their_base_add_up(wine: Array, make: Any) -> None:
    exp = wc.explain(make(wine), wine)
    shown = exp.to_shap()
    assert np.allclose(shown.base_values + shown.values.sum(axis=1), exp.evidence)


def test_a_threshold_has_a_line_of_its_own(wine: Array) -> None:
    exp = wc.explain(mixture(wine, "diag"), wine, threshold=0.9)
    told = exp.describe(0)
    assert "the threshold 0.9" in told
    assert "-2.2" in told
