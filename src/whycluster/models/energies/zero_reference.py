"""Squared Euclidean distances with the features measured from 0, for heads of deep encoders."""

from __future__ import annotations

from whycluster.core.arrays import Floats, product
from whycluster.core.energies import Energy, SquaredEnergy


class ZeroReferenceEnergy(Energy):
    """s_k = |x - mu_k|^2, split as -2 mu_k * x: nearest centroids, with the features measured from 0.

    `SquaredEnergy` has the same energies, but its split measures a feature from the midpoint between two
    centroids. With this split, a feature that is 0 has no relevance, and |mu_k|^2 belongs to no feature.

    Parameters
    ----------
    centroids, scale : as for `SquaredEnergy`
    """

    title = SquaredEnergy.title
    distance = SquaredEnergy.distance
    adds_up = False

    def __init__(self, centroids: Floats, scale: Floats | None = None) -> None:
        self.squares = SquaredEnergy(centroids, scale)
        self.n_clusters, self.n_features = self.squares.n_clusters, self.squares.n_features
        self.offset, self.scratch_width = self.squares.offset, self.squares.scratch_width
        self._slopes = -2.0 * self.squares.prototypes * self.squares.scale

    def linearized(self) -> SquaredEnergy:
        """Return the squared distances."""
        return self.squares

    def step_scale(self) -> Floats:
        """Return the square root of the scale."""
        return self.squares.step_scale()

    def energies(self, x: Floats, out: Floats, scratch: Floats) -> None:
        """Write |x - mu_k|^2, up to one constant per row."""
        self.squares.energies(x, out, scratch)

    def combine(self, x: Floats, weights: Floats, out: Floats, scratch: Floats) -> None:  # noqa: ARG002  # the signature of all energies
        """Write -2 x * sum_k a_k mu_k, with x before the offset was subtracted."""
        product(weights, self._slopes, out=out)
        out *= x if self.offset is None else x + self.offset

    def differentiate(self, x: Floats, weights: Floats, out: Floats, scratch: Floats) -> None:
        """Write -2 sum_k a_k mu_k; x cancels."""
        self.squares.differentiate(x, weights, out, scratch)
