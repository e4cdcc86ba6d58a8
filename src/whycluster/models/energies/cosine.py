"""Spherical k-means: the cosine between a row and the direction of each cluster."""

from __future__ import annotations

import numpy as np

from whycluster.core.arrays import Floats
from whycluster.core.energies import LinearEnergy
from whycluster.core.errors import InvalidInputError

_MOST_DIGITS = 140  # digits before or after the decimal point; with more, squares overflow or vanish


class CosineEnergy(LinearEnergy):
    """s_k = -cos(x, mu_k), split as -mu_k * x / (|mu_k| |x|): spherical k-means.

    The split treats the length of a row as a constant; the gradient does not. A row of zeros has no
    direction, so all its cosines are 0, which is a tie, and its gradient is 0.
    """

    title = "nearest direction, by cosine"
    distance = "cosine"

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
