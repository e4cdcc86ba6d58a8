"""Dot products with one direction per cluster: soft heads."""

from __future__ import annotations

import numpy as np

from whycluster.core.arrays import Floats, product
from whycluster.core.energies.energy import Energy, Parts


class LinearEnergy(Energy):
    """s_k = -(mu_k.x + b_k), split as -mu_k * x: the softargmax of Props. 6 and 7.

    The bias b_k belongs to no feature.

    Parameters
    ----------
    directions : (K, d)
    bias : (K,) b_k; 0 by default
    gives_probabilities : whether softmax(mu x + b) are the cluster probabilities of the model
    """

    title = "a linear head, as in SCAN"

    def __init__(
        self, directions: Floats, bias: Floats | None = None, gives_probabilities: bool = True
    ) -> None:
        self.gives_probabilities = gives_probabilities
        self.stiffness = 1.0 if gives_probabilities else None
        self.n_clusters, self.n_features = directions.shape
        self.scratch_width = self.n_features
        self.offset = None
        self.directions = np.array(directions, dtype=np.float64, order="C")
        self.bias = np.zeros(self.n_clusters) if bias is None else np.array(bias, dtype=np.float64)
        self.adds_up = not self.bias.any()
        self.unattributed = "" if self.adds_up else "the biases"

    @property
    def parts(self) -> Parts:
        """The clusters, with the bias as their log weight."""
        return Parts(np.arange(self.n_clusters), self.bias)

    def energies(self, x: Floats, out: Floats, scratch: Floats) -> None:
        """Write -(mu_k.x + b_k)."""
        product(self._rows(x, scratch), self.directions.T, out=out)
        out += self.bias
        np.negative(out, out=out)

    def combine(self, x: Floats, weights: Floats, out: Floats, scratch: Floats) -> None:
        """Write -x * sum_k a_k mu_k."""
        product(weights, self.directions, out=out)
        np.negative(out, out=out)
        out *= self._rows(x, scratch)

    def differentiate(self, x: Floats, weights: Floats, out: Floats, scratch: Floats) -> None:  # noqa: ARG002  # linear
        """Write -sum_k a_k mu_k."""
        product(weights, self.directions, out=out)
        np.negative(out, out=out)

    def linearized(self) -> LinearEnergy:
        """Return the energy itself."""
        return self

    def _rows(self, x: Floats, scratch: Floats) -> Floats:  # noqa: ARG002  # for subclasses
        """Return the rows to multiply by the directions."""
        return x
