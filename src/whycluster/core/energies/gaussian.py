"""Gaussian mixtures: the evidence is a log-likelihood ratio."""

from __future__ import annotations

import numpy as np

from whycluster.core.arrays import Codes, Floats, standardized
from whycluster.core.energies.additive import AdditiveEnergy
from whycluster.core.energies.energy import Energy, Parts, carve


class _MixtureEnergy(Energy):
    """The base class for mixtures with diagonal or full covariances."""

    gives_probabilities = True
    stiffness = 1.0
    adds_up = False
    title = "a mixture of Gaussians"
    log_weights: Floats

    def compared(self, x: Floats) -> Floats:
        """Return the standardized rows."""
        return standardized(x)

    @property
    def parts(self) -> Parts:
        """The components, with their weights."""
        return Parts(np.arange(self.n_clusters), self.log_weights)


class DiagonalGaussianEnergy(_MixtureEnergy, AdditiveEnergy):
    """s_k = -log of the weighted density, for features that are independent within a component.

    The split is (x - mu_k)^2 / (2 var_k) + log(var_k) / 2, feature by feature. The weight of the component
    belongs to no feature.

    Parameters
    ----------
    means : (K, d)
    precisions : (K, d) 1 / var
    log_weights : (K,) log pi_k, plus any constant that a model adds to its log density
    """

    def __init__(self, means: Floats, precisions: Floats, log_weights: Floats) -> None:
        super().__init__(means)
        self.precisions = np.array(precisions, dtype=np.float64, order="C")
        self.log_weights = np.array(log_weights, dtype=np.float64)
        self._halves = self.precisions / 2
        self._logs = -np.log(self.precisions) / 2

    @property
    def centers(self) -> Floats:
        """(K, d) the means."""
        return self.prototypes

    def split(self, x: Floats, k: int, out: Floats) -> None:
        """Write (x - mu_k)^2 / (2 var_k) + log(var_k) / 2."""
        np.subtract(x, self.prototypes[k], out=out)
        np.square(out, out=out)
        out *= self._halves[k]
        out += self._logs[k]

    def slope(self, x: Floats, k: int, out: Floats) -> None:
        """Write (x - mu_k) / var_k."""
        np.subtract(x, self.prototypes[k], out=out)
        out *= self.precisions[k]

    def energies(self, x: Floats, out: Floats, scratch: Floats) -> None:
        """Write -log pi_k - log N(x; mu_k, var_k), without the constant that all components share."""
        super().energies(x, out, scratch)
        out -= self.log_weights


class GaussianEnergy(_MixtureEnergy):
    """s_k = -log of the weighted density, for components with a covariance S_k.

    The split is (x - mu_k) * (S_k^-1 (x - mu_k)) / 2, the Shapley values of the quadratic form. The
    determinant and the weight of the component belong to no feature.

    Parameters
    ----------
    means : (K, d)
    roots : (K, d, d) P_k with P_k P_k^T = S_k^-1; or (1, d, d) if all components share one P
    log_weights : (K,) as in `DiagonalGaussianEnergy`
    log_det : (K,) half of the log determinant, log det(S_k) / 2; by default computed from ``roots``, which
        must then be triangular. It is required for models that ignore directions without variance
    """

    def __init__(
        self, means: Floats, roots: Floats, log_weights: Floats, log_det: Floats | None = None
    ) -> None:
        self.n_clusters, self.n_features = means.shape
        self.scratch_width = 2 * self.n_features
        self.offset = None
        self.centers = np.array(means, dtype=np.float64, order="C")
        self.roots = np.array(roots, dtype=np.float64, order="C")
        self._precisions = self.roots @ self.roots.transpose(0, 2, 1)
        self.log_weights = np.array(log_weights, dtype=np.float64)
        self.log_det = None if log_det is None else np.array(log_det, dtype=np.float64)
        if self.log_det is None:
            self._half_log_det: Floats = -np.log(np.einsum("kii->ki", self.roots)).sum(axis=1)
        else:
            self._half_log_det = self.log_det
        self.bias = self._half_log_det - self.log_weights

    def terms(self, x: Floats, cluster: Codes, out: Floats, scratch: Floats) -> None:
        """Write the splits; here, every feature gets an equal share of the log determinant."""
        super().terms(x, cluster, out, scratch)
        half = np.broadcast_to(self._half_log_det, self.n_clusters)
        out += (half - half[cluster][:, None])[:, :, None] / self.n_features

    def energies(self, x: Floats, out: Floats, scratch: Floats) -> None:
        """Write -log pi_k + log det(S_k) / 2 + |P_k^T (x - mu_k)|^2 / 2."""
        moved, y = carve(scratch, self.n_features, self.n_features)
        for k, mean in enumerate(self.centers):
            np.subtract(x, mean, out=moved)
            np.matmul(moved, self.roots[k % len(self.roots)], out=y)
            np.einsum("bd,bd->b", y, y, out=out[:, k])
        out *= 0.5
        out += self.bias

    def combine(self, x: Floats, weights: Floats, out: Floats, scratch: Floats) -> None:
        """Write sum_k a_k (x - mu_k) * (S_k^-1 (x - mu_k)) / 2."""
        moved, y = carve(scratch, self.n_features, self.n_features)
        out[...] = 0.0
        for k, mean in enumerate(self.centers):
            np.subtract(x, mean, out=moved)
            np.matmul(moved, self._precisions[k % len(self.roots)], out=y)
            y *= moved
            y *= weights[:, k, None]
            out += y
        out *= 0.5

    def differentiate(self, x: Floats, weights: Floats, out: Floats, scratch: Floats) -> None:
        """Write sum_k a_k S_k^-1 (x - mu_k)."""
        moved, y = carve(scratch, self.n_features, self.n_features)
        out[...] = 0.0
        for k, mean in enumerate(self.centers):
            np.subtract(x, mean, out=moved)
            moved *= weights[:, k, None]
            np.matmul(moved, self._precisions[k % len(self.roots)], out=y)
            out += y

    def slope(self, x: Floats, k: int, out: Floats) -> None:
        """Write the gradient of s_k, S_k^-1 (x - mu_k)."""
        np.matmul(x - self.centers[k], self._precisions[k % len(self.roots)], out=out)
