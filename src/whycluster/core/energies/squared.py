"""Squared Euclidean distance to a centroid: k-means and every other nearest-centroid model."""

from __future__ import annotations

from functools import cached_property

import numpy as np

from whycluster.core.arrays import Codes, Floats
from whycluster.core.compiled.loops import ExpandedSquares
from whycluster.core.energies.additive import AdditiveEnergy
from whycluster.core.energies.energy import carve
from whycluster.core.errors import InvalidInputError

# Up to this ratio of the largest squared centroid to the least squared distance of two, expanding the
# square keeps ten digits of every difference.
_FAR_APART = 1e6

# With few clusters, what follows a matrix product costs as much as the product, unless its rows are still in
# the cache: half the time for 8 clusters. With many, a product is better done as a whole.
_PART_BYTES = 1 << 18

# Up to this ratio of offset to spread, expanding the square costs at most four of sixteen digits.
HARMLESS_OFFSET = 64.0


class SquaredEnergy(AdditiveEnergy):
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
    scale : (d,) what the square of each feature is multiplied with; 1 by default
    near : which quantile of the distances between neighbouring centroids has to be told apart. By default
        the least: all of them
    groups : (K,) which centroids make one cluster; these may lie as close as they like
    """

    takes_columns = True
    title = "nearest centroid, as in k-means"

    def __init__(
        self,
        centroids: Floats,
        scale: Floats | None = None,
        *,
        near: float = 0.0,
        groups: Codes | None = None,
    ) -> None:
        # A copy, since the model may be refitted; in C order, since BLAS may sum other orders differently.
        self.prototypes = np.array(centroids, dtype=np.float64, order="C")
        self.n_clusters, self.n_features = self.prototypes.shape
        self.scratch_width = self.n_inputs = self.n_features
        self.near, self.groups = float(near), None if groups is None else np.array(groups)
        self.scale = np.ones(self.n_features) if scale is None else np.array(scale, dtype=np.float64)
        with np.errstate(over="ignore", invalid="ignore"):
            self.offset = _offset(self.prototypes)
            self._moved = self.prototypes if self.offset is None else self.prototypes - self.offset
            self._squares = self._moved**2 * self.scale
            self._bias = self._squares.sum(axis=1)
            self.slopes = -2.0 * self._moved * self.scale
            self._copies, self._originals = _duplicates(self.prototypes)
            different = np.delete(np.arange(self.n_clusters), self._copies)
            self._expanded = not _is_far_apart(
                self._moved[different] * np.sqrt(self.scale),
                self.near,
                None if self.groups is None else self.groups[different],
            )
        if self._expanded and type(self) is SquaredEnergy:  # a subclass may mean something else
            self.expanded = ExpandedSquares(self.slopes, self._squares, self._bias, self.offset)
        self._by_parts = self.n_clusters <= self.n_features
        self.rounds = self._expanded and self._by_parts
        if not np.isfinite(self._bias).all():
            raise InvalidInputError(
                "neuralize: the squared distances between the centroids overflow; "
                f"the largest centroid value is {np.abs(centroids).max():.3g}. Rescale and fit again."
            )

    slopes: Floats
    """(K, d) the gradients of the energies, -2 mu_k, without the 2 x that all clusters share."""

    def split(self, x: Floats, k: int, out: Floats) -> None:
        """(x - mu_k)^2, feature by feature."""
        np.subtract(x, self._moved[k], out=out)
        np.square(out, out=out)
        out *= self.scale

    def linearized(self) -> SquaredEnergy:
        """Return the energy itself: x^2 cancels."""
        return self

    def step_scale(self) -> Floats:
        """Return the square roots of the scale."""
        return np.asarray(np.sqrt(self.scale))

    def compared(self, x: Floats) -> Floats:
        """Return the rows, scaled."""
        return np.asarray(x * self.step_scale())

    def left_out(self, x: Floats, scratch: Floats) -> Floats:
        """What `energies` leave out of all clusters, (b,): |x|^2 where squares are expanded.

        ``scratch`` is (b, d), and then holds its split over the features.
        """
        if self._expanded:
            np.square(x, out=scratch)
            scratch *= self.scale
        else:
            scratch[...] = 0.0
        return scratch @ np.ones(self.n_features)

    def energies(self, x: Floats, out: Floats, scratch: Floats) -> None:
        """|x - mu_k|^2, or without its |x|^2: |mu_k|^2 - 2 mu_k.x."""
        if not self._expanded:
            super().energies(x, out, scratch)
            return
        loops = self.loops
        if loops is not None and loops.energies(x, out):  # then all passes agree to the last bit
            return
        np.matmul(x, self.slopes.T, out=out)
        out += self._bias
        self.keep_ties(out)

    def keep_ties(self, energies: Floats) -> None:
        """Make equal what BLAS may have summed in another order: a tie has to be one."""
        if self._copies.size:
            energies[:, self._copies] = energies[:, self._originals]

    def combine(self, x: Floats, weights: Floats, out: Floats, scratch: Floats) -> None:
        """sum_k a_k (x - mu_k)^2, or without its x^2: sum_k a_k mu_k^2 - 2 x * sum_k a_k mu_k."""
        if not self._expanded:
            super().combine(x, weights, out, scratch)
            return
        size = max(1, _PART_BYTES // (8 * self.n_features)) if self._by_parts else len(x)
        room = scratch[:size] if scratch.flags.c_contiguous else np.empty_like(scratch[:size])
        spare = np.empty_like(room) if out.dtype != np.float64 else None
        for start in range(0, len(x), size):
            rows = slice(start, start + size)
            bent = room[: len(x[rows])]  # the same few rows each time, to stay in the cache
            straight = out[rows] if spare is None else spare[: len(bent)]
            np.matmul(weights[rows], self.slopes, out=bent)
            bent *= x[rows]
            np.matmul(weights[rows], self._squares, out=straight)
            np.add(straight, bent, out=out[rows], casting="same_kind")

    def differentiate(self, x: Floats, weights: Floats, out: Floats, scratch: Floats) -> None:  # noqa: ARG002  # x cancels
        """-2 sum_k a_k mu_k, whether squares are expanded or not: x cancels, and no square is computed."""
        np.matmul(weights, self.slopes, out=out)

    @cached_property
    def _both(self) -> Floats:
        """Slopes and squares side by side: a mixture is one matrix product."""
        return np.hstack([self.slopes, self._squares])

    @property
    def mix_width(self) -> int:
        """How many numbers per row a mixture takes; see `mix`."""
        return 4 * self.n_features if self._expanded else self.n_features

    @property
    def lines(self) -> tuple[Floats, Floats] | None:
        """(K, d) slopes and (K,) biases of the energies as linear functions, if squares are expanded."""
        return (self.slopes, self._bias) if self._expanded else None

    def mix(self, x: Floats, part: slice, weights: Floats, mixture: Floats) -> None:
        """Add sum_k a_k e_k over some centroids, with weights of shape (part, b), to a mixture of zeros."""
        if self._expanded:
            total, some = carve(mixture, 2 * self.n_features, 2 * self.n_features)
            np.matmul(weights.T, self._both[part], out=some)
            total += some
            return
        split = np.empty_like(x)
        for row, k in enumerate(range(part.start, part.stop)):
            self.split(x, k, split)
            split *= weights[row][:, None]
            mixture += split

    def unmix(self, x: Floats, mixture: Floats, out: Floats) -> None:
        """What was mixed, into ``out`` of shape (b, d)."""
        if not self._expanded:
            out[...] = mixture
            return
        total, _ = carve(mixture, 2 * self.n_features, 2 * self.n_features)
        np.multiply(total[:, : self.n_features], x, out=out)
        out += total[:, self.n_features :]


def _duplicates(centroids: Floats) -> tuple[Codes, Codes]:
    """The centroids that equal an earlier one, and for each the first that it equals."""
    _, first, same = np.unique(centroids, axis=0, return_index=True, return_inverse=True)
    original = first[same.ravel()]
    copies = np.flatnonzero(original != np.arange(len(centroids)))
    return copies, original[copies]


def _is_far_apart(centroids: Floats, near: float, groups: Codes | None) -> bool:
    """Whether neighbours among the centroids, some two thousand, are too near for their size."""
    some = slice(None, None, max(1, len(centroids) // 2048))
    centroids = centroids[some]
    sizes = np.einsum("kd,kd->k", centroids, centroids)
    distances = sizes[:, None] + sizes - 2.0 * centroids @ centroids.T
    np.fill_diagonal(distances, np.inf)
    if groups is not None:
        distances[groups[some][:, None] == groups[some]] = np.inf
    least = distances.min(axis=1)
    return bool(sizes.max() / _FAR_APART > (least.min() if near == 0.0 else np.quantile(least, near)))


def _offset(centroids: Floats) -> Floats | None:
    """About the median centroid, or None if all features lie close enough to 0 as they are.

    Medians, since a single centroid far off must neither draw the offset away from the others nor make
    them look wide apart. Reading the data as it is saves a copy of every block, so it is worth the
    question. The offset is rounded to 20 binary digits: then data with few digits, such as whole
    numbers, are moved without rounding, and points that lie exactly between two clusters stay there.
    """
    middle = np.median(centroids, axis=0)
    spread = np.median(np.abs(centroids - middle), axis=0)
    if not (np.abs(middle) > HARMLESS_OFFSET * spread).any():
        return None
    mantissa, exponent = np.frexp(middle)
    return np.asarray(np.ldexp(np.round(np.ldexp(mantissa, 20)), exponent - 20))
