"""Scores that are products with a direction per cluster: soft heads and spherical k-means."""

from __future__ import annotations

import numpy as np

from whycluster.core.arrays import Floats
from whycluster.core.energies.energy import Energy, Parts
from whycluster.core.errors import InvalidInputError


class LinearEnergy(Energy):
    """s_k = -(mu_k.x + b_k), split as -mu_k * x: the softargmax of Props. 6 and 7.

    The probabilities of the clusters are softmax(mu x + b). No feature is responsible for b.

    Parameters
    ----------
    directions : (K, d)
    bias : (K,) b_k; 0 by default
    """

    gives_probabilities = True
    stiffness: float | None = 1.0
    title = "a linear head, as in SCAN"

    def __init__(self, directions: Floats, bias: Floats | None = None) -> None:
        self.n_clusters, self.n_features = directions.shape
        self.scratch_width = self.n_features
        self.offset = None
        self.directions = np.array(directions, dtype=np.float64, order="C")
        self.bias = np.zeros(self.n_clusters) if bias is None else np.array(bias, dtype=np.float64)
        self.adds_up = not self.bias.any()

    @property
    def parts(self) -> Parts:
        """The clusters, with the bias as their weight."""
        return Parts(np.arange(self.n_clusters), self.bias)

    def energies(self, x: Floats, out: Floats, scratch: Floats) -> None:
        """-(mu_k.x + b_k)."""
        np.matmul(self._rows(x, scratch), self.directions.T, out=out)
        out += self.bias
        np.negative(out, out=out)

    def combine(self, x: Floats, weights: Floats, out: Floats, scratch: Floats) -> None:
        """-x * sum_k a_k mu_k."""
        np.matmul(weights, self.directions, out=out)
        np.negative(out, out=out)
        out *= self._rows(x, scratch)

    def differentiate(self, x: Floats, weights: Floats, out: Floats, scratch: Floats) -> None:  # noqa: ARG002  # linear
        """-sum_k a_k mu_k."""
        np.matmul(weights, self.directions, out=out)
        np.negative(out, out=out)

    def linearized(self) -> LinearEnergy:
        """Return the energy itself."""
        return self

    def _rows(self, x: Floats, scratch: Floats) -> Floats:  # noqa: ARG002  # for subclasses
        """The rows as they are multiplied with the directions."""
        return x


class CosineEnergy(LinearEnergy):
    """s_k = -cos(x, mu_k), split as -mu_k * x / (|mu_k| |x|): spherical k-means.

    To split it, the length of a row is taken for the row's own constant scale; its gradient knows that the
    length changes with the row. A row of zeros has no direction: all cosines are then 0, a tie, and so is
    the gradient.
    """

    gives_probabilities = False
    stiffness = None
    title = "nearest direction, by cosine"
    centroids: Floats
    """(K, d) as they were given, of any length."""

    def __init__(self, directions: Floats) -> None:
        self.centroids = np.array(directions, dtype=np.float64, order="C")
        lengths = np.linalg.norm(self.centroids, axis=1, keepdims=True)
        if not (lengths > 0).all():
            raise InvalidInputError(
                f"neuralize: a centroid of zeros has no direction; centroid {int(np.argmin(lengths))} is "
                f"one, "
                'so metric="cosine" is not possible.'
            )
        super().__init__(self.centroids / lengths)

    def differentiate(self, x: Floats, weights: Floats, out: Floats, scratch: Floats) -> None:
        """-sum_k a_k mu_k, without its part along the row, over |x|."""
        super().differentiate(x, weights, out, scratch)
        largest, rest = _normalize(x, scratch)
        scratch *= np.einsum("bd,bd->b", out, scratch)[:, None]
        out -= scratch
        out /= rest[:, None]
        out /= largest[:, None]

    def linearized(self) -> LinearEnergy:
        """Return the products with the directions: the length of a row does not change their order."""
        return LinearEnergy(self.directions)

    def _rows(self, x: Floats, scratch: Floats) -> Floats:
        """Rows of unit length."""
        _normalize(x, scratch)
        return scratch


def _normalize(x: Floats, out: Floats) -> tuple[Floats, Floats]:
    """Write rows of unit length into ``out``; a row of zeros stays.

    Returns two factors of the lengths, (b,): the largest value of each row, which goes first so that no
    square overflows or vanishes, and the rest. A row of zeros is as one without end: nothing moves it.
    """
    largest = np.maximum(x.max(axis=1), -x.min(axis=1))
    largest[largest == 0.0] = np.inf
    np.divide(x, largest[:, None], out=out)
    rest = np.sqrt(np.einsum("bd,bd->b", out, out))
    rest[rest == 0.0] = 1.0
    out /= rest[:, None]
    return largest, rest
