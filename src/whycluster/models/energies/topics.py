"""Topics: the topic with the largest weight is the cluster, and the weight is split over the words."""

from __future__ import annotations

from abc import abstractmethod

import numpy as np
from scipy.optimize import nnls
from scipy.special import psi

from whycluster.core.arrays import Floats, product
from whycluster.core.energies import Energy
from whycluster.core.errors import UnsupportedModelError

_SMALLEST = np.finfo(np.float64).eps  # added to the denominators, as in scikit-learn


class _TopicEnergy(Energy):
    """s_k = -(the weight of topic k), which is a sum over the words."""

    title = "the topic with the largest weight"

    def __init__(self, n_topics: int, n_words: int) -> None:
        self.n_clusters, self.n_features = n_topics, n_words
        self.offset, self.scratch_width = None, n_topics * 4 + n_words

    @abstractmethod
    def contributions(self, x: Floats, weights: Floats) -> Floats:
        """Return sum_k a_k (the contribution of each word to the weight of topic k), (b, d)."""

    def combine(self, x: Floats, weights: Floats, out: Floats, scratch: Floats) -> None:  # noqa: ARG002  # needs no workspace
        """Write the weighted contributions, with the sign of energies."""
        np.negative(self.contributions(x, weights), out=out)


class DirichletTopicsEnergy(_TopicEnergy):
    """s_k = -gamma_k: the weights of the topics in latent Dirichlet allocation.

    With the counts x_w of the words, variational inference repeats

        phi_wk = theta_k beta_kw / sum_l theta_l beta_lw,   gamma_k = prior + sum_w x_w phi_wk,
        theta_k = exp(psi(gamma_k) - psi(sum_l gamma_l)),

    so the split of topic k is -x_w phi_wk. The prior is the same for all topics and cancels.

    Parameters
    ----------
    topics : (K, d) beta, the exponential of the expected log probabilities of the words
    prior : the prior of the weights of the topics
    n_iterations, tolerance : the largest number of iterations, and the mean change of gamma at which they
        end
    """

    def __init__(
        self, topics: Floats, prior: float, n_iterations: int = 100, tolerance: float = 1e-3
    ) -> None:
        super().__init__(*np.shape(topics))
        self.topics = np.array(topics, dtype=np.float64, order="C")
        self.prior, self.n_iterations, self.tolerance = float(prior), int(n_iterations), float(tolerance)

    def energies(self, x: Floats, out: Floats, scratch: Floats) -> None:  # noqa: ARG002  # needs no workspace
        """Write -gamma_k."""
        np.negative(self._inferred(x)[0], out=out)

    def contributions(self, x: Floats, weights: Floats) -> Floats:
        """Return x_w sum_k a_k phi_wk."""
        _, theta = self._inferred(x)
        return np.asarray(product(weights * theta, self.topics) * self._rates(x, theta))

    def differentiate(self, *_: Floats) -> None:
        """Raise an error, since the weights of all topics depend on each other."""
        raise UnsupportedModelError(
            "gradient: the weights of LDA's topics come from an iteration without a known derivative. "
            "Pipelines that take documents need this derivative; explain the word counts instead: "
            "wc.explain(lda, counts, feature_names=words)."
        )

    def _rates(self, x: Floats, theta: Floats) -> Floats:
        """Return x_w / sum_l theta_l beta_lw."""
        return np.asarray(x / (product(theta, self.topics) + _SMALLEST))

    def _inferred(self, x: Floats) -> tuple[Floats, Floats]:
        """Return gamma, and the theta that it was computed from, (b, K) each."""
        gamma = np.ones((len(x), self.n_clusters))
        theta = np.empty_like(gamma)
        left = np.arange(len(x))
        for _ in range(self.n_iterations):
            before = gamma[left]
            theta[left] = np.exp(psi(before) - psi(before.sum(axis=1))[:, None])
            rates = self._rates(x[left], theta[left])
            gamma[left] = self.prior + theta[left] * product(rates, self.topics.T)
            left = left[np.abs(gamma[left] - before).mean(axis=1) >= self.tolerance]
            if not left.size:
                break
        return gamma, theta


class FactorEnergy(_TopicEnergy):
    """s_k = -w_k: the weights w >= 0 for which w H is nearest to x, as in NMF.

    Where w is positive, it is the linear function (H_A H_A^T)^-1 H_A x of the row, where H_A are the active
    components. So the split of topic k is -P_k * x, where P_k is a row of this matrix.

    Parameters
    ----------
    components : (K, d) H
    """

    def __init__(self, components: Floats) -> None:
        super().__init__(*np.shape(components))
        self.components = np.array(components, dtype=np.float64, order="C")

    def energies(self, x: Floats, out: Floats, scratch: Floats) -> None:  # noqa: ARG002  # needs no workspace
        """Write -w_k."""
        for row, values in enumerate(x):
            out[row] = -nnls(self.components.T, values, maxiter=30 * self.n_clusters)[0]

    def contributions(self, x: Floats, weights: Floats) -> Floats:
        """Return x * sum_k a_k P_k."""
        return np.asarray(x * self._slopes(x, weights))

    def differentiate(self, x: Floats, weights: Floats, out: Floats, scratch: Floats) -> None:  # noqa: ARG002  # needs no workspace
        """Write -sum_k a_k P_k."""
        np.negative(self._slopes(x, weights), out=out)

    def _slopes(self, x: Floats, weights: Floats) -> Floats:
        """Return sum_k a_k P_k, (b, d)."""
        slopes = np.empty_like(x)
        for row, values in enumerate(x):
            active = nnls(self.components.T, values, maxiter=30 * self.n_clusters)[0] > 0.0
            h = self.components[active]
            slopes[row] = np.linalg.lstsq(h @ h.T, weights[row, active], rcond=None)[0] @ h
        return slopes
