"""What must hold for every Student-t head, whatever its centers, its degrees of freedom and the rows."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from tests.optional import optional
from tests.properties.strategies import Problem, problems, rough_problems
from tests.reference import models, neon
from whycluster import Explanation, Network, TableNetwork
from whycluster.core.energies.squared import HARMLESS_OFFSET
from whycluster.models.energies import StudentEnergy

if TYPE_CHECKING:
    import torch
else:
    torch = optional("torch")

alphas = st.floats(0.1, 100.0)
betas = st.floats(1e-2, 1e2)
rules = st.sampled_from(["path", "min-take-most", "joint", "sequential", "contrast"])


def head(problem: Problem, alpha: float) -> Network:
    return TableNetwork(StudentEnergy(problem.centroids, alpha))


def rounding(problem: Problem, alpha: float) -> float:
    """That of a squared distance, times the steepest rho there is."""
    return 1e-15 * problem.scale * (alpha + 1) / 2 / alpha


def is_near(found: NDArray[Any], expected: Any, problem: Problem, alpha: float, beta: float = 0.0) -> bool:
    """Up to rounding; the shares exp(-beta h) make of that of h as much as beta is."""
    error = np.abs(found - np.asarray(expected)).max()
    return bool(error <= (1 + beta) * (1e-12 * np.abs(expected).max() + rounding(problem, alpha)))


@pytest.mark.slow
@given(problems(), alphas)
def test_it_assigns_the_nearest_center_and_the_evidence_says_so(problem: Problem, alpha: float) -> None:
    net = head(problem, alpha)
    assigned, found = net.assign(problem.X), net.evidence(problem.X)
    assert assigned.tolist() == [neon.assign(x, problem.centroids) for x in problem.X]
    clusters = range(len(problem.centroids))
    for x, row, cluster in zip(problem.X, found, assigned, strict=True):
        assert row[cluster] >= 0
        assert (np.delete(row, cluster) <= 0).all()
        splits = [models.student(problem.centroids, alpha, c) for c in clusters]
        expected = [min(splits[c](x, k)[0] for k in clusters if k != c) for c in clusters]
        assert is_near(row, expected, problem, alpha)


@pytest.mark.slow
@given(problems(), alphas, betas)
def test_the_rules_are_the_reference(problem: Problem, alpha: float, beta: float) -> None:
    n_clusters, net = len(problem.centroids), head(problem, alpha)
    path_row = partial(models.path_row, weights=np.ones(n_clusters), included=True)
    by_rule: dict[str, Any] = {
        "path": path_row,
        "min-take-most": models.explain_row,
        "joint": models.joint_row,
    }
    for rule, explain_row in by_rule.items():
        exp = net.explain(problem.X, beta=beta, rule=rule)
        for x, c, relevance in zip(problem.X, exp.cluster, exp.relevance, strict=True):
            expected = explain_row(x, models.student(problem.centroids, alpha, c), n_clusters, c, beta)
            assert is_near(relevance, expected, problem, alpha, beta)


@given(rough_problems(), alphas)
def test_real_valued_rows_are_the_reference(problem: Problem, alpha: float) -> None:
    exp = head(problem, alpha).explain(problem.X, rule="contrast")
    for x, c, k, f, relevance in zip(
        problem.X, exp.cluster, exp.competitor, exp.evidence, exp.relevance, strict=True
    ):
        h, split = models.student(problem.centroids, alpha, c)(x, k)
        assert np.abs(relevance - split).max() <= 1e-9 * np.abs(split).max()
        assert abs(f - h) <= 1e-9 * np.abs(split).sum()


def asked(net: Network, problem: Problem, rule: str, data: st.DataObject) -> Explanation:
    """An explanation of any kind: of the assigned cluster or another, against all or one of them."""
    clusters = st.one_of(st.none(), st.integers(0, len(problem.centroids) - 1))
    target, against = data.draw(clusters), None
    if target is not None and data.draw(st.booleans()):
        against = data.draw(clusters.filter(lambda k: k != target))
    return net.explain(problem.X, rule=rule, target=target, against=against)


@given(problems(), alphas, rules, st.data())
def test_relevance_adds_up_to_the_evidence(
    problem: Problem, alpha: float, rule: str, data: st.DataObject
) -> None:
    exp = asked(head(problem, alpha), problem, rule, data)
    limit = 1e-11 * np.abs(exp.evidence).max() + rounding(problem, alpha)
    assert np.abs(exp.residual).max() <= limit
    assert np.abs(exp.competition.sum(axis=1) - exp.evidence).max() <= limit


@pytest.mark.slow
@given(problems(), alphas, st.floats(0.01, 0.99))
def test_a_threshold_is_one_of_the_soft_assignments(problem: Problem, alpha: float, threshold: float) -> None:
    exp = head(problem, alpha).explain(problem.X, threshold=threshold)
    for x, c, f in zip(problem.X, exp.cluster, exp.evidence, strict=True):
        split = models.student(problem.centroids, alpha, c)
        q = 1 / sum(np.exp(-split(x, k)[0]) for k in range(len(problem.centroids)))
        if abs(q - threshold) > 1e-9:
            assert (f > 0) == (q > threshold)


@given(problems(), alphas, rules, st.integers(-(2**20), 2**20))
def test_translation_changes_nothing(problem: Problem, alpha: float, rule: str, shift: int) -> None:
    here = head(problem, alpha).explain(problem.X, beta=0.5, rule=rule)
    moved = Problem(problem.X + shift, problem.centroids + shift)
    there = head(moved, alpha).explain(moved.X, beta=0.5, rule=rule)
    assert (here.cluster == there.cluster).all()
    if rule != "sequential":  # features that tie may come in another order
        # No offset is subtracted up to HARMLESS_OFFSET times the spread, so rounding grows with its square.
        atol = 4 * HARMLESS_OFFSET**2 * rounding(problem, alpha)
        np.testing.assert_allclose(there.relevance, here.relevance, rtol=1e-9, atol=atol)


@given(problems(), alphas, betas)
def test_rows_are_explained_independently(problem: Problem, alpha: float, beta: float) -> None:
    net = head(problem, alpha)
    whole = net.explain(problem.X, beta=beta).relevance
    single = np.vstack([net.explain(x[None], beta=beta).relevance for x in problem.X])
    assert is_near(single, whole, problem, alpha, beta)


@pytest.mark.slow
@given(problems(max_clusters=5), alphas, betas, rules)
def test_a_duplicated_center_leaves_nothing_to_explain(
    problem: Problem, alpha: float, beta: float, rule: str
) -> None:
    doubled = Problem(problem.X, np.vstack([problem.centroids, problem.centroids]))
    exp = head(doubled, alpha).explain(problem.X, beta=beta, rule=rule)
    assert (exp.evidence == 0).all()
    alone = head(problem, alpha).explain(problem.X).evidence > 0  # on no other boundary
    assert np.abs(exp.relevance[alone]).max(initial=0.0) <= rounding(problem, alpha)
    assert (exp.cluster < len(problem.centroids)).all()


@given(problems(), alphas, rules.filter(lambda rule: rule != "sequential"))
def test_float32_follows_float64(problem: Problem, alpha: float, rule: str) -> None:
    """Its rows are numbers of single precision already."""
    net = head(problem, alpha)
    double = net.explain(problem.X, beta=0.5, rule=rule)
    single = net.explain(problem.X.astype("f4"), beta=0.5, rule=rule)
    assert single.relevance.dtype == single.evidence.dtype == np.float32
    limit = 1e-6 * np.abs(double.relevance).max() + rounding(problem, alpha)
    assert np.abs(single.relevance - double.relevance).max() <= limit


@settings(max_examples=30)
@given(problems(), alphas)
def test_to_torch_gives_the_evidence_and_its_gradient(problem: Problem, alpha: float) -> None:
    net = head(problem, alpha)
    x = torch.tensor(problem.X, requires_grad=True)
    found, expected = net.to_torch()(x), net.evidence(problem.X)
    # torch subtracts logarithms
    assert np.abs(found.detach().numpy() - expected).max() <= 1e-13 * (alpha + 1) + rounding(problem, alpha)
    second = np.sort(expected, axis=1)[:, [-2]]
    alone = (expected == second).sum(axis=1) == 1  # of several competitors, torch takes the mean
    found.max(dim=1).values.sum().backward()
    assert x.grad is not None
    error = np.abs(net.gradient(problem.X) - x.grad.numpy())[alone]
    assert error.max(initial=0.0) <= 1e-12 * (alpha + 1) / alpha * problem.scale**0.5
