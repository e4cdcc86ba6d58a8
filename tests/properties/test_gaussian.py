"""Mixtures with arbitrary full and tied covariances: the split, its symmetries and its rest."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from tests.reference import models
from whycluster.explanations.explanation import Explanation
from whycluster.models.energies import DiagonalGaussianEnergy, GaussianEnergy
from whycluster.models.network import TableNetwork

Array = NDArray[np.float64]
RULES = ["min-take-most", "joint", "contrast"]


@dataclass
class Mixture:
    """A mixture and rows around its means."""

    weights: Array
    means: Array
    covariances: Array  # (K, d, d), or (1, d, d) if all components share one
    X: Array

    @property
    def split(self) -> models.Split:
        K, d = self.means.shape
        return models.gaussian(self.weights, self.means, np.broadcast_to(self.covariances, (K, d, d)))

    def explain(self, rule: str = "min-take-most") -> Explanation:
        flipped = np.linalg.inv(self.covariances)[:, ::-1, ::-1]
        roots = np.linalg.cholesky(flipped)[:, ::-1, ::-1]  # upper triangular, as scikit-learn's
        energy = GaussianEnergy(self.means, roots, np.log(self.weights))
        return TableNetwork(energy).explain(self.X, rule=rule)


@st.composite
def mixtures(draw: st.DrawFn, diagonal: bool = False) -> Mixture:
    """Draw a mixture whose features are independent, correlated or nearly copies of each other."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    K, d, n = draw(st.integers(2, 4)), draw(st.integers(2, 5)), draw(st.integers(1, 6))
    shared, noise = draw(st.booleans()), draw(st.sampled_from([0.03, 0.3, 3.0]))
    axes = rng.normal(size=(1 if shared else K, d, 1)) * (not diagonal)
    scales = np.exp(rng.normal(size=(len(axes), d, 1)))
    covariances = (axes @ axes.transpose(0, 2, 1) + noise * np.eye(d)) * scales * scales.transpose(0, 2, 1)
    means = rng.normal(size=(K, d)) * draw(st.sampled_from([0.1, 1.0, 5.0]))
    X = means[rng.integers(K, size=n)] + rng.normal(size=(n, d))
    return Mixture(rng.dirichlet(np.ones(K)) * 0.9 + 0.1 / K, means, covariances, X)


def assert_close(found: Array, expected: NDArray[Any], size: float) -> None:
    assert np.abs(found - expected).max() <= 1e-8 * size


@given(mixtures())
def test_relevance_is_that_of_marginal_and_conditional_densities(mixture: Mixture) -> None:
    exp, split, K = mixture.explain(), mixture.split, len(mixture.means)
    expected = models.explain(mixture.X, split, K)
    size = max(np.abs(split(x, k)[1]).max() for x in mixture.X for k in range(K))
    assert_close(exp.relevance, expected, size)
    assert (exp.evidence >= 0).all()
    s = np.array([sorted(split(x, k)[0] for k in range(K)) for x in mixture.X], dtype=np.float64)
    assert_close(exp.relevance.sum(axis=1) + exp.residual, s[:, 1] - s[:, 0], size)


@given(mixtures(diagonal=True), st.sampled_from(RULES))
def test_without_correlations_it_is_the_diagonal_split(mixture: Mixture, rule: str) -> None:
    variances = np.broadcast_to(np.einsum("kii->ki", mixture.covariances), mixture.means.shape)
    energy = DiagonalGaussianEnergy(mixture.means, 1 / variances, np.log(mixture.weights))
    expected, found = TableNetwork(energy).explain(mixture.X, rule=rule), mixture.explain(rule)
    size = 1 + np.abs(expected.relevance).max()
    assert_close(found.relevance, expected.relevance, size)
    assert_close(found.residual, expected.residual, size)


@given(mixtures(), st.sampled_from(RULES), st.data())
def test_units_and_order_of_features_do_not_matter(mixture: Mixture, rule: str, data: st.DataObject) -> None:
    d = mixture.means.shape[1]
    order = np.array(data.draw(st.permutations(range(d))))
    unit = np.array(data.draw(st.lists(st.sampled_from([1e-3, 1.0, 70.0]), min_size=d, max_size=d)))
    covariances = mixture.covariances * unit * unit[:, None]
    other = Mixture(
        mixture.weights,
        (mixture.means * unit)[:, order],
        covariances[:, order[:, None], order],
        (mixture.X * unit)[:, order],
    )
    before, after = mixture.explain(rule), other.explain(rule)
    size = 1 + np.abs(before.relevance).max()
    assert_close(after.relevance, before.relevance[:, order], size)
    assert_close(after.residual, before.residual, size + np.abs(before.residual).max())


@pytest.mark.parametrize("copies", [2, 5, 9])
def test_copies_of_a_feature_are_worth_the_same(copies: int) -> None:
    """No copy is favored, and none gets relevance of the opposite sign, as from the quadratic form."""
    rng = np.random.default_rng(copies)
    means = np.repeat([[-3.0], [3.0]], copies, axis=1)
    covariance = np.ones((copies, copies)) + 1e-4 * np.eye(copies)
    X = np.repeat(rng.normal(size=(50, 1)) + 3.0, copies, axis=1) + 0.01 * rng.normal(size=(50, copies))
    exp = Mixture(np.array([0.5, 0.5]), means, covariance[None], X).explain()
    share = exp.relevance / exp.evidence[:, None]
    assert np.abs(share - 0.5).max() < 0.1  # half of the marginal evidence each, so n copies say n / 2
