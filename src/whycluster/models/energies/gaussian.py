"""Gaussian mixtures: the evidence is a log-likelihood ratio."""

from __future__ import annotations

import numpy as np

from whycluster.core.arrays import Codes, Floats, product
from whycluster.core.energies import AdditiveEnergy, Energy
from whycluster.core.energies.energy import Parts, Quadratics, carve
from whycluster.data.arrays import standardized

_SPREAD = 2.0  # standard deviations between a mean and its landmarks


class _MixtureEnergy(Energy):
    """The base class for mixtures with diagonal or full covariances."""

    gives_probabilities = True
    stiffness = 1.0
    adds_up = False
    unattributed = "the weights of the components"
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
        self.landmarks = _around(means, 1.0 / np.sqrt(self.precisions))

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

    def quadratics(self) -> Quadratics:
        """Return one quadratic function for each component."""
        roots, root = np.unique(self.precisions, axis=0, return_inverse=True)
        matrices = np.sqrt(roots / 2)[:, :, None] * np.eye(self.n_features)
        bias = self._logs.sum(axis=1) - self.log_weights
        return Quadratics(np.arange(self.n_clusters), self.prototypes, matrices, root.ravel(), bias)

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

    With Q = S^-1, the split of a component is

        e_i = ((x - mu)_i^2 / S_ii + log S_ii + (Q (x - mu))_i^2 / Q_ii - log Q_ii) / 4.

    It averages two negative log densities of feature i: the marginal one, with variance S_ii, and the
    conditional one given all other features, with variance 1 / Q_ii. The marginal term measures the
    information in the feature alone, even if other features repeat it. The conditional term measures the
    information that only this feature adds.

    The split does not add up to s_k. The joint and the redundant information of correlated features belongs
    to no single feature, and neither does the weight of the component. The terms of the quadratic form,
    (x - mu) * (Q (x - mu)) / 2, add up to it, but those of correlated features are large and cancel each
    other. If all features are independent, the split equals that of `DiagonalGaussianEnergy`.

    Parameters
    ----------
    means : (K, d)
    roots : (K, d, d) P_k with P_k P_k^T = S_k^-1; or (1, d, d) if all components share one P
    log_weights : (K,) as in `DiagonalGaussianEnergy`
    log_det : (K,) half of the log determinant, log det(S_k) / 2; by default computed from ``roots``, which
        must then be triangular. It is required for models that ignore directions without variance
    deviations : (K, d) or (1, d) the standard deviations, the square roots of S_ii; by default computed from
        ``roots``, which must then be invertible. A feature with deviation 0 is left out of the split
    """

    unattributed = "the weights of the components, and joint or redundant information of correlated features"

    def __init__(
        self,
        means: Floats,
        roots: Floats,
        log_weights: Floats,
        *,
        log_det: Floats | None = None,
        deviations: Floats | None = None,
    ) -> None:
        self.n_clusters, self.n_features = means.shape
        self.scratch_width = 2 * self.n_features
        self.offset = None
        self.centers = np.array(means, dtype=np.float64, order="C")
        self.roots = np.array(roots, dtype=np.float64, order="C")
        self.log_weights = np.array(log_weights, dtype=np.float64)
        self.log_det = None if log_det is None else np.array(log_det, dtype=np.float64)
        if self.log_det is None:
            half_log_det: Floats = -np.log(np.einsum("kii->ki", self.roots)).sum(axis=1)
        else:
            half_log_det = self.log_det
        self.bias = half_log_det - self.log_weights
        if deviations is None:  # S = P^-T P^-1
            deviations = _lengths(np.linalg.inv(self.roots).transpose(0, 2, 1))
        self.deviations = np.array(deviations, dtype=np.float64, order="C")
        self.landmarks = _around(means, self.deviations)
        self._prepare_split()

    def _prepare_split(self) -> None:
        """Compute Q_ij / sqrt(Q_jj), and the factors and logarithms of the two standard deviations."""
        self._lengths = _lengths(self.roots)  # sqrt(Q_ii)
        used = (self.deviations > 0) & (self._lengths > 0)
        self._lengths[self._lengths == 0.0] = 1.0
        scaled = self.roots / self._lengths[:, :, None]
        self._scaled_precisions = self.roots @ scaled.transpose(0, 2, 1)
        first, last = np.where(used, self.deviations, 1.0), np.where(used, self._lengths, 1.0)
        self._first, self._last = used / (2 * first), used / 2
        logs = (np.log(first) - np.log(last)) / 2
        self._logs: Floats = np.broadcast_to(logs - logs[0], self.centers.shape)  # only differences matter

    def terms(self, x: Floats, cluster: Codes, out: Floats, scratch: Floats) -> None:  # noqa: ARG002  # only of others
        """Write the splits; here, every feature gets an equal share of the rest of the log density."""
        exact = np.empty((len(x), self.n_clusters))
        self.energies(x, exact, scratch)
        exact += self.log_weights
        split, y = carve(scratch, self.n_features, self.n_features)
        for k in range(self.n_clusters):
            self._write_squares(x, k, split, y)
            split += self._logs[k]
            rest = (exact[:, k] - split.sum(axis=1)) / self.n_features
            np.add(split, rest[:, None], out=out[:, k])

    def energies(self, x: Floats, out: Floats, scratch: Floats) -> None:
        """Write -log pi_k + log det(S_k) / 2 + |P_k^T (x - mu_k)|^2 / 2."""
        moved, y = carve(scratch, self.n_features, self.n_features)
        for k, mean in enumerate(self.centers):
            np.subtract(x, mean, out=moved)
            product(moved, self.roots[k % len(self.roots)], out=y)
            np.einsum("bd,bd->b", y, y, out=out[:, k])
        out *= 0.5
        out += self.bias

    def combine(self, x: Floats, weights: Floats, out: Floats, scratch: Floats) -> None:
        """Write the sum of a_k times the mean of the marginal and the conditional log densities."""
        squares, y = carve(scratch, self.n_features, self.n_features)
        product(weights, self._logs, out=out)
        for k in range(self.n_clusters):
            self._write_squares(x, k, squares, y)
            squares *= weights[:, k, None]
            out += squares

    def _write_squares(self, x: Floats, k: int, out: Floats, y: Floats) -> None:
        """Write ((x - mu)_i^2 / S_ii + (Q (x - mu))_i^2 / Q_ii) / 4 of one component; ``y`` is scratch."""
        shared = k % len(self.roots)
        np.subtract(x, self.centers[k], out=out)
        product(out, self._scaled_precisions[shared], out=y)
        out *= self._first[shared]
        np.square(out, out=out)
        y *= self._last[shared]
        np.square(y, out=y)
        out += y

    def differentiate(self, x: Floats, weights: Floats, out: Floats, scratch: Floats) -> None:
        """Write sum_k a_k S_k^-1 (x - mu_k)."""
        moved, y = carve(scratch, self.n_features, self.n_features)
        out[...] = 0.0
        for k, mean in enumerate(self.centers):
            np.subtract(x, mean, out=moved)
            moved *= weights[:, k, None]
            product(moved, self._scaled_precisions[k % len(self.roots)], out=y)
            y *= self._lengths[k % len(self.roots)]
            out += y

    def quadratics(self) -> Quadratics:
        """Return one quadratic function for each component."""
        clusters = np.arange(self.n_clusters)
        roots = self.roots * np.sqrt(0.5)
        return Quadratics(clusters, self.centers, roots, clusters % len(self.roots), self.bias)

    def slope(self, x: Floats, k: int, out: Floats) -> None:
        """Write the gradient of s_k, S_k^-1 (x - mu_k)."""
        product(x - self.centers[k], self._scaled_precisions[k % len(self.roots)], out=out)
        out *= self._lengths[k % len(self.roots)]


def _lengths(matrices: Floats) -> Floats:
    """Return the lengths of all rows, (K, d) for (K, d, d); no square overflows or vanishes."""
    top = np.abs(matrices).max(axis=2, keepdims=True)
    top[top == 0.0] = 1.0
    return np.asarray(top[..., 0] * np.linalg.norm(matrices / top, axis=2))


def _around(means: Floats, deviations: Floats) -> Floats:
    """Return points on both sides of each mean, (2 K, d)."""
    return np.vstack([means - _SPREAD * deviations, means + _SPREAD * deviations])
