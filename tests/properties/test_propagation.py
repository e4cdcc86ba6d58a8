"""What must hold for every clustering of every table."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

import whycluster as wc
from tests.optional import optional
from tests.properties.strategies import Problem, problems, rough_problems
from tests.reference import neon
from tests.reference.shapley import shapley

if TYPE_CHECKING:
    import torch
else:
    torch = optional("torch")

betas = st.floats(1e-4, 1e2)
rules = st.sampled_from(["path", "min-take-most", "joint", "contrast"])


@given(problems())
def test_assign_is_the_nearest_centroid(problem: Problem) -> None:
    expected = [neon.assign(x, problem.centroids) for x in problem.X]
    assert wc.neuralize(problem.centroids).assign(problem.X).tolist() == expected


@given(problems())
def test_evidence_is_the_reference_and_its_sign_is_the_assignment(problem: Problem) -> None:
    net = wc.neuralize(problem.centroids)
    found = net.evidence(problem.X)
    clusters = range(len(problem.centroids))
    expected = [[neon.evidence(x, problem.centroids, c) for c in clusters] for x in problem.X]
    np.testing.assert_allclose(found, expected, rtol=1e-9, atol=1e-12 * problem.scale)
    for row, cluster in zip(found, net.assign(problem.X), strict=True):
        assert row[cluster] >= 0
        assert (np.delete(row, cluster) <= 0).all()


@given(problems(), betas)
def test_min_take_most_is_the_reference(problem: Problem, beta: float) -> None:
    exp = wc.explain(problem.centroids, problem.X, beta=beta, rule="min-take-most")
    expected = neon.explain(problem.X, problem.centroids, beta)
    np.testing.assert_allclose(exp.relevance, expected, rtol=1e-9, atol=1e-11 * problem.scale)


@given(problems(), betas)
def test_joint_is_the_reference(problem: Problem, beta: float) -> None:
    exp = wc.explain(problem.centroids, problem.X, beta=beta, rule="joint")
    expected = [neon.joint(x, problem.centroids, neon.assign(x, problem.centroids), beta) for x in problem.X]
    np.testing.assert_allclose(exp.relevance, expected, rtol=1e-9, atol=1e-11 * problem.scale)


@given(problems(), betas)
def test_path_is_the_reference(problem: Problem, beta: float) -> None:
    exp = wc.explain(problem.centroids, problem.X, beta=beta)
    assert exp.rule == "path"
    expected = neon.explain(problem.X, problem.centroids, beta, "path")
    np.testing.assert_allclose(exp.relevance, expected, rtol=1e-9, atol=1e-11 * problem.scale)


@given(problems())
def test_the_stiffness_of_the_path_is_four_times_that_of_the_paper(problem: Problem) -> None:
    exp = wc.explain(problem.centroids, problem.X, rule="path")
    evidence = [neon.evidence(x, problem.centroids, neon.assign(x, problem.centroids)) for x in problem.X]
    assert exp.beta == (pytest.approx(4 / np.mean(evidence), rel=1e-9) if any(evidence) else np.inf)


@given(problems(), betas)
def test_competition_is_the_reference(problem: Problem, beta: float) -> None:
    exp = wc.explain(problem.centroids, problem.X, beta=beta, rule="min-take-most")
    expected = [
        neon.competition(x, problem.centroids, neon.assign(x, problem.centroids), beta) for x in problem.X
    ]
    np.testing.assert_allclose(exp.competition, expected, rtol=1e-9, atol=1e-12 * problem.scale)


@given(problems(), betas)
def test_competition_along_the_path_is_the_reference(problem: Problem, beta: float) -> None:
    exp = wc.explain(problem.centroids, problem.X, beta=beta)
    sizes = neon.sizes(problem.X, problem.centroids)
    expected = [
        neon.path_competition(x, problem.centroids, neon.assign(x, problem.centroids), beta, sizes)
        for x in problem.X
    ]
    np.testing.assert_allclose(exp.competition, expected, rtol=1e-9, atol=1e-12 * problem.scale)


@given(rough_problems(), st.sampled_from(["path", "min-take-most"]))
def test_real_valued_data_are_the_reference(problem: Problem, rule: str) -> None:
    exp = wc.explain(problem.centroids, problem.X, rule=rule)
    # More digits for the reference: far from 0, its |mu_k|^2 - |mu_c|^2 loses those that are compared.
    X, centroids = problem.X.astype(np.longdouble), problem.centroids.astype(np.longdouble)
    expected = neon.explain(X, centroids, rule=rule)
    # A single row between two near centroids: differences of energies, which are known to their rounding.
    rounding = 1e-14 * ((problem.X[:, None] - problem.centroids) ** 2).sum(axis=2).max()
    assert np.abs(exp.relevance - expected).max() <= 1e-9 * np.abs(expected).max() + rounding
    assert np.abs(exp.residual).max() <= 1e-9 * exp.evidence.max() + rounding


@given(problems())
def test_beta_is_one_over_the_mean_evidence(problem: Problem) -> None:
    mean = np.mean(
        [neon.evidence(x, problem.centroids, neon.assign(x, problem.centroids)) for x in problem.X]
    )
    beta = wc.explain(problem.centroids, problem.X, rule="min-take-most").beta
    assert beta == (pytest.approx(1 / mean, rel=1e-9) if mean > 0 else np.inf)


@given(problems(), rules, st.data())
def test_relevance_adds_up_to_the_evidence(problem: Problem, rule: str, data: st.DataObject) -> None:
    clusters = st.one_of(st.none(), st.integers(0, len(problem.centroids) - 1))
    target, against = data.draw(clusters), None
    if target is not None and data.draw(st.booleans()):
        against = data.draw(clusters.filter(lambda k: k != target))
    exp = wc.explain(problem.centroids, problem.X, rule=rule, target=target, against=against)
    limit = 1e-9 * np.abs(exp.evidence).max() + 1e-12 * problem.scale
    assert np.abs(exp.residual).max() <= limit
    assert np.abs(exp.competition.sum(axis=1) - exp.evidence).max() <= limit


@given(problems(max_clusters=2), rules)
def test_two_clusters_give_the_shapley_value(problem: Problem, rule: str) -> None:
    """Prop. 3: the reference point is the midpoint of the two centroids."""
    exp = wc.explain(problem.centroids, problem.X, rule=rule)
    for x, relevance, c in zip(problem.X, exp.relevance, exp.cluster, strict=True):

        def evidence(point: NDArray[np.float64], c: int = int(c)) -> float:
            return neon.evidence(point, problem.centroids, c)

        expected = shapley(evidence, x, problem.centroids.mean(axis=0))
        np.testing.assert_allclose(relevance, expected, rtol=1e-9, atol=1e-12 * problem.scale)


@given(problems(), betas, rules, st.integers(-(2**20), 2**20))
def test_translation_changes_nothing(problem: Problem, beta: float, rule: str, shift: int) -> None:
    here = wc.explain(problem.centroids, problem.X, beta=beta, rule=rule)
    there = wc.explain(problem.centroids + shift, problem.X + shift, beta=beta, rule=rule)
    assert (here.cluster == there.cluster).all()
    np.testing.assert_allclose(there.relevance, here.relevance, rtol=1e-9, atol=1e-11 * problem.scale)


@given(problems(), rules, st.data())
def test_order_of_rows_and_features_is_only_order(problem: Problem, rule: str, data: st.DataObject) -> None:
    X, centroids = problem.X, problem.centroids
    rows = data.draw(st.permutations(range(len(X))))
    features = data.draw(st.permutations(range(X.shape[1])))
    here = wc.explain(centroids, X, beta=0.1, rule=rule)
    there = wc.explain(centroids[:, features], X[rows][:, features], beta=0.1, rule=rule)
    expected = here.relevance[rows][:, features]
    np.testing.assert_allclose(there.relevance, expected, rtol=1e-9, atol=1e-11 * problem.scale)


@given(problems(), st.sampled_from(["path", "min-take-most", "joint"]), st.data())
def test_order_of_clusters_is_only_order(problem: Problem, rule: str, data: st.DataObject) -> None:
    """But for rows that belong to two clusters alike, where the first is taken."""
    clusters = data.draw(st.permutations(range(len(problem.centroids))))
    clear = wc.explain(problem.centroids, problem.X, rule="contrast").evidence > 0
    X = problem.X[clear]  # so that these rows do not count in the sizes of the clusters either
    if not len(X):
        return
    here = wc.explain(problem.centroids, X, beta=0.1, rule=rule)
    there = wc.explain(problem.centroids[clusters], X, beta=0.1, rule=rule)
    assert (np.array(clusters)[there.cluster] == here.cluster).all()
    np.testing.assert_allclose(there.relevance, here.relevance, rtol=1e-9, atol=1e-11 * problem.scale)


@given(problems(), betas, rules)
def test_rows_are_explained_independently(problem: Problem, beta: float, rule: str) -> None:
    """But for the sizes of the clusters, which are those of the background."""
    X, centroids = problem.X, problem.centroids
    whole = wc.explain(centroids, X, beta=beta, rule=rule)
    alone = [wc.explain(centroids, x[None], beta=beta, rule=rule, background=X) for x in X]
    single = np.vstack([exp.relevance for exp in alone])
    np.testing.assert_allclose(single, whole.relevance, rtol=1e-12, atol=1e-13 * problem.scale)


@given(problems(max_clusters=5), betas, rules)
def test_a_duplicated_centroid_leaves_nothing_to_explain(problem: Problem, beta: float, rule: str) -> None:
    """Two clusters in one place cannot be told apart: no evidence, no relevance, and no NaN."""
    doubled = np.vstack([problem.centroids, problem.centroids])
    exp = wc.explain(doubled, problem.X, beta=beta, rule=rule)
    assert np.abs(exp.evidence).max() <= 1e-12 * problem.scale
    assert np.abs(exp.relevance).max() <= 1e-12 * problem.scale
    assert (exp.cluster < len(problem.centroids)).all()


@given(problems(), betas, rules)
def test_float32_follows_float64(problem: Problem, beta: float, rule: str) -> None:
    double = wc.explain(problem.centroids, problem.X, beta=beta, rule=rule)
    single = wc.explain(problem.centroids.astype("f4"), problem.X.astype("f4"), beta=beta, rule=rule)
    assert single.relevance.dtype == single.evidence.dtype == np.float32
    scale = np.abs(double.relevance).max() + 1e-12 * problem.scale
    assert np.abs(single.relevance - double.relevance).max() <= 1e-6 * scale


@given(problems(), rules)
def test_a_stiff_minimum_is_the_contrast_with_the_nearest_competitor(problem: Problem, rule: str) -> None:
    """With beta infinite the strongest competitor takes all; ties share."""
    exp = wc.explain(problem.centroids, problem.X, beta=np.inf, rule=rule)
    unique = (np.abs(wc.neuralize(problem.centroids).evidence(problem.X) + exp.evidence[:, None]) == 0).sum(1)
    contrast = wc.explain(problem.centroids, problem.X, rule="contrast")
    alone = unique == 1
    np.testing.assert_allclose(
        exp.relevance[alone], contrast.relevance[alone], rtol=1e-9, atol=1e-11 * problem.scale
    )


@given(problems(), st.data())
def test_why_not_is_the_contrast_with_the_winner(problem: Problem, data: st.DataObject) -> None:
    target = data.draw(st.integers(0, len(problem.centroids) - 1))
    exp = wc.explain(problem.centroids, problem.X, target=target)
    assert (exp.cluster == target).all()
    for x, relevance, evidence in zip(problem.X, exp.relevance, exp.evidence, strict=True):
        assert evidence == pytest.approx(
            neon.evidence(x, problem.centroids, target), rel=1e-9, abs=1e-12 * problem.scale
        )
        if evidence < 0:
            expected = neon.contrast(x, problem.centroids, target, neon.assign(x, problem.centroids))
            np.testing.assert_allclose(relevance, expected, rtol=1e-9, atol=1e-11 * problem.scale)


@given(problems(), st.data())
def test_the_gradient_is_that_of_the_strongest_competitor(problem: Problem, data: st.DataObject) -> None:
    """w_k = 2 (mu_c - mu_k) of Prop. 1, the first k on a tie."""
    target = data.draw(st.one_of(st.none(), st.integers(0, len(problem.centroids) - 1)))
    found = wc.neuralize(problem.centroids).gradient(problem.X, target)
    for x, gradient in zip(problem.X, found, strict=True):
        s = ((x - problem.centroids) ** 2).sum(axis=1)
        c = int(s.argmin()) if target is None else target
        s[c] = np.inf
        expected = 2 * (problem.centroids[c] - problem.centroids[s.argmin()])
        np.testing.assert_allclose(gradient, expected, rtol=1e-12, atol=1e-13 * problem.scale**0.5)


@settings(max_examples=30)
@given(problems())
def test_to_torch_gives_the_evidence(problem: Problem) -> None:
    net = wc.neuralize(problem.centroids)
    with torch.no_grad():
        found = net.to_torch()(torch.from_numpy(problem.X)).numpy()
    np.testing.assert_allclose(found, net.evidence(problem.X), rtol=1e-9, atol=1e-12 * problem.scale)
