"""Dissimilarities that are sums over the features. A new dissimilarity needs only a small subclass."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable

import numpy as np

from whycluster.core.arrays import Codes, Floats, product
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
        """Write e_k(x), each feature's dissimilarity to prototype ``k``, into ``out`` of shape (b, d)."""

    def slope(self, x: Floats, k: int, out: Floats) -> None:  # noqa: ARG002  # for subclasses
        """Write the derivative of `split`, for the same ``k``, into ``out`` of shape (b, d)."""
        raise UnsupportedModelError(
            f"gradient: {type(self).__name__} must define slope(x, k, out), the derivative of its split, to "
            "have a gradient. Explanations work without slope."
        )

    def energies(self, x: Floats, out: Floats, scratch: Floats) -> None:
        """Write the sum of each split."""
        ones = np.ones(self.n_features)
        for k in range(self.n_clusters):
            self.split(x, k, scratch)
            product(scratch, ones, out=out[:, k])

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
