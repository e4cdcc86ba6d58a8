"""Squared Euclidean distance to a centroid: k-means and every other nearest-centroid model."""

from __future__ import annotations

import numpy as np

from whycluster.arrays import Codes, Floats
from whycluster.energies.energy import Energy
from whycluster.errors import InvalidInputError

# Up to this ratio of the largest squared centroid to the least squared distance of two, expanding the
# square keeps ten digits of every difference.
_FAR_APART = 1e6

# Up to this ratio of offset to spread, expanding the square costs at most four of sixteen digits.
_HARMLESS_OFFSET = 64.0


class SquaredEnergy(Energy):
    """s_k = |x - mu_k|^2, split as (x - mu_k)^2 feature by feature (Prop. 1 and Eq. 4 of the paper).

    Both are used in expanded form, without the |x|^2 that all clusters share: s_k is linear in x, and
    sum_k a_k e_k = sum_k a_k mu_k^2 - 2 x * sum_k a_k mu_k for weights that sum to zero. That makes
    three matrix products of the whole explanation. Expanding loses digits when the data lie far from 0,
    so centroids and data are moved to the middle of the centroids where it matters. Where no middle helps,
    because groups of clusters lie too far apart for what tells their members apart, nothing is expanded:
    slower by far, but right.

    Parameters
    ----------
    centroids : (K, d)
    """

    def __init__(self, centroids: Floats) -> None:
        self.n_clusters, self.n_features = centroids.shape
        self.scratch_width = self.n_features
        self.centroids = np.array(centroids, dtype=np.float64)  # a copy: the model may be refitted
        with np.errstate(over="ignore", invalid="ignore"):
            self.offset = _offset(self.centroids)
            moved = self.centroids if self.offset is None else self.centroids - self.offset
            self._squares = moved**2
            self._bias = self._squares.sum(axis=1)
            self._slopes = -2.0 * moved
            self._copies, self._originals = _duplicates(self.centroids)
            self._moved = moved if _is_far_apart(np.delete(moved, self._copies, axis=0)) else None
        if not np.isfinite(self._bias).all():
            raise InvalidInputError(
                "neuralize: the squared distances between the centroids overflow; "
                f"the largest centroid value is {np.abs(centroids).max():.3g}. Rescale and fit again."
            )

    def energies(self, x: Floats, out: Floats, scratch: Floats) -> None:
        """|x - mu_k|^2, or without its |x|^2: |mu_k|^2 - 2 mu_k.x."""
        if self._moved is not None:
            for k, centroid in enumerate(self._moved):
                np.subtract(x, centroid, out=scratch)
                np.einsum("bd,bd->b", scratch, scratch, out=out[:, k])
        else:
            np.matmul(x, self._slopes.T, out=out)
            out += self._bias
        if self._copies.size:  # BLAS may sum equal columns in another order; a tie has to be one
            out[:, self._copies] = out[:, self._originals]

    def combine(self, x: Floats, weights: Floats, out: Floats, scratch: Floats) -> None:
        """sum_k a_k (x - mu_k)^2, or without its x^2: sum_k a_k mu_k^2 - 2 x * sum_k a_k mu_k."""
        if self._moved is not None:
            out[...] = 0.0
            for k, centroid in enumerate(self._moved):
                np.subtract(x, centroid, out=scratch)
                scratch *= scratch
                scratch *= weights[:, k, None]
                out += scratch
            return
        np.matmul(weights, self._slopes, out=scratch)
        scratch *= x
        np.matmul(weights, self._squares, out=out)
        out += scratch


def _duplicates(centroids: Floats) -> tuple[Codes, Codes]:
    """The centroids that equal an earlier one, and for each the first that it equals."""
    _, first, same = np.unique(centroids, axis=0, return_index=True, return_inverse=True)
    original = first[same.ravel()]
    copies = np.flatnonzero(original != np.arange(len(centroids)))
    return copies, original[copies]


def _is_far_apart(centroids: Floats) -> bool:
    """Whether two different centroids, of some two thousand, are too near to each other for their size."""
    centroids = centroids[:: max(1, len(centroids) // 2048)]
    sizes = np.einsum("kd,kd->k", centroids, centroids)
    distances = sizes[:, None] + sizes - 2.0 * centroids @ centroids.T
    np.fill_diagonal(distances, np.inf)
    return bool(sizes.max() / _FAR_APART > distances.min())


def _offset(centroids: Floats) -> Floats | None:
    """About the median centroid, or None if all features lie close enough to 0 as they are.

    Medians, since a single centroid far off must neither draw the offset away from the others nor make
    them look wide apart. Reading the data as it is saves a copy of every block, so it is worth the
    question. The offset is rounded to 20 binary digits: then data with few digits, such as whole
    numbers, are moved without rounding, and points that lie exactly between two clusters stay there.
    """
    middle = np.median(centroids, axis=0)
    spread = np.median(np.abs(centroids - middle), axis=0)
    if not (np.abs(middle) > _HARMLESS_OFFSET * spread).any():
        return None
    mantissa, exponent = np.frexp(middle)
    return np.asarray(np.ldexp(np.round(np.ldexp(mantissa, 20)), exponent - 20))
