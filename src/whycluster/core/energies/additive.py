"""Dissimilarities that are sums over the features. A new dissimilarity needs only a small subclass."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from whycluster.core.arrays import Codes, Floats
from whycluster.core.energies.energy import Energy
from whycluster.core.errors import UnsupportedModelError


class AdditiveEnergy(Energy):
    """s_k = sum over the features of the dissimilarity between x and the prototype of cluster k.

    A subclass defines the dissimilarity of two values in `split`, and, for gradients, the derivative in
    `slope`. No square is expanded, so equal prototypes are exact ties. The cost is a few elementwise steps
    per cluster.

    Parameters
    ----------
    prototypes : (K, d)
    """

    def __init__(self, prototypes: Floats) -> None:
        # A copy, since the model may be refitted; in C order, since BLAS rounds differently in other orders.
        self.prototypes = np.array(prototypes, dtype=np.float64, order="C")
        self.n_clusters, self.n_features = self.prototypes.shape
        self.scratch_width = self.n_features
        self.offset = None

    @abstractmethod
    def split(self, x: Floats, k: int, out: Floats) -> None:
        """Write e_k(x), the dissimilarity to prototype k feature by feature, into ``out`` of shape (b, d)."""

    def slope(self, x: Floats, k: int, out: Floats) -> None:  # noqa: ARG002  # for subclasses
        """Write the derivative of `split`, feature by feature, into ``out`` of shape (b, d)."""
        raise UnsupportedModelError(
            f"gradient: {type(self).__name__} must define slope(x, k, out), the derivative of its split, to "
            "have a gradient. Explanations work without slope."
        )

    def energies(self, x: Floats, out: Floats, scratch: Floats) -> None:
        """Write the sum of each split."""
        ones = np.ones(self.n_features)
        for k in range(self.n_clusters):
            self.split(x, k, scratch)
            np.matmul(scratch, ones, out=out[:, k])

    def combine(self, x: Floats, weights: Floats, out: Floats, scratch: Floats) -> None:
        """Write the weighted sum of the splits."""
        _add_up(self.split, x, weights, out, scratch)

    def terms(self, x: Floats, cluster: Codes, out: Floats, scratch: Floats) -> None:  # noqa: ARG002  # the signature of all energies
        """Write the splits."""
        for k in range(self.n_clusters):
            self.split(x, k, scratch)
            out[:, k] = scratch

    def differentiate(self, x: Floats, weights: Floats, out: Floats, scratch: Floats) -> None:
        """Write the weighted sum of the slopes."""
        _add_up(self.slope, x, weights, out, scratch)


def _add_up(
    write: Callable[[Floats, int, Floats], None], x: Floats, weights: Floats, out: Floats, scratch: Floats
) -> None:
    out[...] = 0.0
    for k in range(weights.shape[1]):
        write(x, k, scratch)
        scratch *= weights[:, k, None]
        out += scratch


class ManhattanEnergy(AdditiveEnergy):
    """s_k = sum_i |x_i - mu_ki|: k-medoids and k-medians under the Manhattan distance."""

    title = "nearest center, by Manhattan distance"

    def split(self, x: Floats, k: int, out: Floats) -> None:
        """Write |x - mu_k|."""
        np.subtract(x, self.prototypes[k], out=out)
        np.abs(out, out=out)

    def slope(self, x: Floats, k: int, out: Floats) -> None:
        """Write the sign of x - mu_k, which is 0 at the prototype."""
        np.subtract(x, self.prototypes[k], out=out)
        np.sign(out, out=out)


class MixedEnergy(AdditiveEnergy):
    """Squared differences of numbers plus weighted mismatches of categories, for k-modes and k-prototypes.

    Parameters
    ----------
    prototypes : (K, d) numeric values and, for categorical features, category codes
    categorical : (d,) which features are categorical
    gamma : the weight of a mismatch
    """

    title = "fewest mismatches of categories, as in k-modes"
    categorical: NDArray[np.bool_]

    def __init__(self, prototypes: Floats, categorical: NDArray[np.bool_], gamma: float = 1.0) -> None:
        super().__init__(prototypes)
        self.categorical = np.array(categorical, dtype=bool)
        self.gamma = float(gamma)

    def split(self, x: Floats, k: int, out: Floats) -> None:
        """Write (x - mu_k)^2 for numeric features, and gamma for categorical features that differ."""
        np.subtract(x, self.prototypes[k], out=out)
        np.square(out, out=out)
        out[:, self.categorical] = self.gamma * (out[:, self.categorical] != 0.0)

    def slope(self, x: Floats, k: int, out: Floats) -> None:
        """Write 2 (x - mu_k) for numeric features, and 0 for categories, since no small step changes them."""
        np.subtract(x, self.prototypes[k], out=out)
        out *= np.where(self.categorical, 0.0, 2.0)
