"""Dot products with one direction per cluster: soft heads and spherical k-means."""

from __future__ import annotations

import numpy as np

from whycluster.core.arrays import Floats
from whycluster.core.energies.energy import Energy, Parts
from whycluster.core.errors import InvalidInputError

_MOST_DIGITS = 140  # before or after the decimal point; with more digits, squares overflow or vanish


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
        np.matmul(self._rows(x, scratch), self.directions.T, out=out)
        out += self.bias
        np.negative(out, out=out)

    def combine(self, x: Floats, weights: Floats, out: Floats, scratch: Floats) -> None:
        """Write -x * sum_k a_k mu_k."""
        np.matmul(weights, self.directions, out=out)
        np.negative(out, out=out)
        out *= self._rows(x, scratch)

    def differentiate(self, x: Floats, weights: Floats, out: Floats, scratch: Floats) -> None:  # noqa: ARG002  # linear
        """Write -sum_k a_k mu_k."""
        np.matmul(weights, self.directions, out=out)
        np.negative(out, out=out)

    def linearized(self) -> LinearEnergy:
        """Return the energy itself."""
        return self

    def _rows(self, x: Floats, scratch: Floats) -> Floats:  # noqa: ARG002  # for subclasses
        """Return the rows to multiply by the directions."""
        return x


class CosineEnergy(LinearEnergy):
    """s_k = -cos(x, mu_k), split as -mu_k * x / (|mu_k| |x|): spherical k-means.

    The split treats the length of a row as a constant; the gradient does not. A row of zeros has no
    direction, so all its cosines are 0, which is a tie, and its gradient is 0.
    """

    title = "nearest direction, by cosine"

    def __init__(self, directions: Floats) -> None:
        self.centroids = np.array(directions, dtype=np.float64, order="C")  # vectors of any length
        largest = np.abs(self.centroids).max(axis=1, keepdims=True)
        if not largest.all():
            raise InvalidInputError(
                'neuralize: with metric="cosine", centroids must not be all zeros, since a zero vector has '
                f"no direction; centroid {int(np.argmin(largest))} is all zeros."
            )
        extreme = np.abs(np.log10(largest)) > _MOST_DIGITS
        scaled = self.centroids / np.where(extreme, largest, 1.0)
        lengths = np.linalg.norm(scaled, axis=1, keepdims=True)
        super().__init__(scaled / lengths, gives_probabilities=False)

    def differentiate(self, x: Floats, weights: Floats, out: Floats, scratch: Floats) -> None:
        """Write -sum_k a_k mu_k, without its component along the row, divided by |x|."""
        super().differentiate(x, weights, out, scratch)
        largest, rest = _normalize(x, scratch)
        scratch *= np.einsum("bd,bd->b", out, scratch)[:, None]
        out -= scratch
        out /= rest[:, None]
        out /= largest[:, None]

    def linearized(self) -> LinearEnergy:
        """Return the energy of the plain products, since scaling a row does not change their order."""
        return LinearEnergy(self.directions)

    def _rows(self, x: Floats, scratch: Floats) -> Floats:
        """Return the rows, scaled to unit length."""
        _normalize(x, scratch)
        return scratch


def _normalize(x: Floats, out: Floats) -> tuple[Floats, Floats]:
    """Write the rows, scaled to unit length, into ``out``; rows of zeros stay zero.

    Return two factors, (b,) each, whose product is the length of each row. The first factor is the largest
    absolute value of each row; dividing by it first keeps squares from overflowing or vanishing. For rows of
    zeros, the first factor is infinite, so that the gradient vanishes.
    """
    largest = np.maximum(x.max(axis=1), -x.min(axis=1))
    largest[largest == 0.0] = np.inf
    np.divide(x, largest[:, None], out=out)
    rest = np.sqrt(np.einsum("bd,bd->b", out, out))
    rest[rest == 0.0] = 1.0
    out /= rest[:, None]
    return largest, rest
