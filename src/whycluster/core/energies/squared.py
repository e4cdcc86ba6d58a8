"""Squared Euclidean distances to centroids: k-means and all other nearest-centroid models."""

from __future__ import annotations

from contextlib import nullcontext

import numpy as np

from whycluster.core.arrays import Codes, Floats, product
from whycluster.core.blocks import single_threaded
from whycluster.core.compiled.loops import CompiledKMeans
from whycluster.core.energies.additive import AdditiveEnergy
from whycluster.core.errors import InvalidInputError

# Up to this ratio of the largest |centroid|^2 to the smallest squared distance between two centroids,
# expanding the square leaves ten correct digits in every difference. Among many centroids, some pair is
# always close. Seven digits must then suffice, because not expanding the square takes K times as long.
_FAR_APART, _MANY, _FAR_APART_OF_MANY = 1e6, 2048, 1e9
_PAIRS = 1 << 22  # pairs of centroids that are compared at once
# For larger products, OpenBLAS wakes threads, which then wait busily for about as long as `explain` takes.
_FEW_TERMS = 1 << 18
_SMALLEST = np.finfo(np.float64).tiny / np.finfo(np.float64).eps  # smaller squares lose digits
# With few clusters, products are computed in parts that stay in the cache, which halves the time for K = 8.
_PART_BYTES = 1 << 18
# Up to this ratio of offset to spread, expanding the square costs at most four of sixteen digits.
HARMLESS_OFFSET = 64.0


class SquaredEnergy(AdditiveEnergy):
    """s_k = |x - mu_k|^2, split as (x - mu_k)^2 feature by feature (Prop. 1 and Eq. 4 of the paper).

    The energy and its split are expanded, without the |x|^2 that all clusters share: s_k is then linear in x,
    and sum_k a_k e_k = sum_k a_k mu_k^2 - 2 x * sum_k a_k mu_k for weights that sum to zero. So an
    explanation takes three matrix products. This loses precision if the data are far from 0. If necessary,
    the middle of the centroids is subtracted first. If that does not help, because groups of centroids are
    much farther apart than their members, nothing is expanded, which is accurate but much slower.

    Parameters
    ----------
    centroids : (K, d)
    scale : (d,) the weight of the square of each feature; 1 by default
    near : the quantile of the distances between neighboring centroids to resolve; the smallest by default
    groups : (K,) the cluster of each centroid; distances within a cluster need not be resolved
    """

    takes_columns = True
    title = "nearest centroid, as in k-means"
    distance = "euclidean"

    def __init__(
        self,
        centroids: Floats,
        scale: Floats | None = None,
        *,
        near: float = 0.0,
        groups: Codes | None = None,
    ) -> None:
        # A copy, since the model may be refitted; in C order, since BLAS rounds differently in other orders.
        self.prototypes = self.landmarks = np.array(centroids, dtype=np.float64, order="C")
        self.n_clusters, self.n_features = self.prototypes.shape
        self.scratch_width = self.n_inputs = self.n_features
        self.near, self.groups = float(near), None if groups is None else np.array(groups)
        self.scale = np.ones(self.n_features) if scale is None else np.array(scale, dtype=np.float64)
        with np.errstate(over="ignore", invalid="ignore"):
            middle, self.offset = _offset(self.prototypes)
            self._moved = self.prototypes if self.offset is None else self.prototypes - self.offset
            self.squares = self._moved**2 * self.scale  # (K, d) the constant of each split, if expanded
            self._bias = self.squares.sum(axis=1)
            self.slopes = -2.0 * self._moved * self.scale  # (K, d) gradients, without the 2 x that all share
            self.originals = _originals(self.prototypes)  # (K,) the first of all equal centroids
            self._copies = np.flatnonzero(self.originals != np.arange(self.n_clusters))
            self.has_copies = self._copies.size > 0
            different = np.delete(np.arange(self.n_clusters), self._copies)
            scaled = self._moved * np.sqrt(self.scale)
            groups = np.arange(self.n_clusters) if self.groups is None else self.groups
            self._expanded = not _is_far_apart(scaled[different], self.near, groups[different])
        # (K, d) slopes and (K,) biases of the linear energies
        self.linear = (self.slopes, self._bias) if self._expanded else None
        if self._expanded and type(self) is SquaredEnergy:  # a subclass may redefine the energies
            self.compiled = CompiledKMeans(
                self.slopes, self.squares, self._bias, self.offset, self.scale, middle
            )
        self._by_parts = self.n_clusters <= self.n_features
        self.rounds = self._expanded and self._by_parts
        underflow = self._bias.max() < _SMALLEST and len(different) > 1
        if underflow or not np.isfinite(self._bias).all():
            raise InvalidInputError(
                f"neuralize: squared distances between centroids {'under' if underflow else 'over'}flow; the "
                f"largest value is {np.abs(centroids).max():.3g}. Rescale the data and fit the model again."
            )

    def split(self, x: Floats, k: int, out: Floats) -> None:
        """Write (x - mu_k)^2."""
        np.subtract(x, self._moved[k], out=out)
        np.square(out, out=out)
        out *= self.scale

    @property
    def squared_terms(self) -> tuple[Floats, Floats] | None:
        """The centroids and the scale; a subclass may redefine the terms."""
        return (self._moved, self.scale) if type(self) is SquaredEnergy else None

    def linearized(self) -> SquaredEnergy:
        """Return the energy itself, since x^2 cancels in all differences."""
        return self

    def step_scale(self) -> Floats:
        """Return the square root of the scale."""
        return np.asarray(np.sqrt(self.scale))

    def energies(self, x: Floats, out: Floats, scratch: Floats) -> None:
        """Write |x - mu_k|^2 or, if squares are expanded, |mu_k|^2 - 2 mu_k.x, without the common |x|^2."""
        if not self._expanded:
            super().energies(x, out, scratch)
            return
        loops = self.loops
        if loops is not None and loops.energies(x, out):  # so that all passes agree to the last bit
            return
        product(x, self.slopes.T, out=out)
        out += self._bias
        self.keep_ties(out)

    def keep_ties(self, energies: Floats) -> None:
        """Make the energies of equal centroids equal, since BLAS may have summed them in different orders."""
        if self.has_copies:
            energies[:, self._copies] = energies[:, self.originals[self._copies]]

    def combine(self, x: Floats, weights: Floats, out: Floats, scratch: Floats) -> None:
        """Write sum_k a_k (x - mu_k)^2 or, if expanded, sum_k a_k mu_k^2 - 2 x * sum_k a_k mu_k."""
        if not self._expanded:
            super().combine(x, weights, out, scratch)
            return
        size = max(1, _PART_BYTES // (8 * self.n_features)) if self._by_parts else len(x)
        room = scratch[:size] if scratch.flags.c_contiguous else np.empty_like(scratch[:size])
        spare = np.empty_like(room) if out.dtype != np.float64 else None
        for start in range(0, len(x), size):
            rows = slice(start, start + size)
            linear = room[: len(x[rows])]  # the same memory each time, to stay in the cache
            constant = out[rows] if spare is None else spare[: len(linear)]
            product(weights[rows], self.slopes, out=linear)
            linear *= x[rows]
            product(weights[rows], self.squares, out=constant)
            np.add(constant, linear, out=out[rows], casting="same_kind")

    def differentiate(self, x: Floats, weights: Floats, out: Floats, scratch: Floats) -> None:  # noqa: ARG002  # x cancels
        """Write -2 sum_k a_k mu_k; x cancels."""
        product(weights, self.slopes, out=out)


def _originals(centroids: Floats) -> Codes:
    """Return, for each centroid, the first centroid that equals it, which is usually itself."""
    _, first, same = np.unique(centroids, axis=0, return_index=True, return_inverse=True)
    return np.asarray(first[same.ravel()])


def _is_far_apart(centroids: Floats, near: float, groups: Codes) -> bool:
    """Return whether more than a share ``near`` of the centroids are too close to others to expand squares.

    All pairs are compared, except those that are far enough apart in the feature with the widest range.
    """
    n_clusters, feature = len(centroids), np.argmax(np.ptp(centroids, axis=0))
    order = np.argsort(centroids[:, feature])
    centroids, groups, widest = centroids[order], groups[order], centroids[order, feature]
    sizes = np.einsum("kd,kd->k", centroids, centroids)
    reach = sizes.max() / (_FAR_APART if n_clusters <= _MANY else _FAR_APART_OF_MANY)
    starts = np.searchsorted(widest, widest - np.sqrt(reach))
    stops = np.searchsorted(widest, widest + np.sqrt(reach), "right")
    n_near, size = 0, max(1, min(512, _PAIRS // n_clusters))
    with single_threaded() if n_clusters * centroids.size > _FEW_TERMS else nullcontext():
        for first in range(0, n_clusters, size):
            rows = slice(first, min(first + size, n_clusters))
            others = slice(starts[first], stops[rows.stop - 1])
            distances = sizes[rows, None] + sizes[others] - 2.0 * centroids[rows] @ centroids[others].T
            n_near += int(((distances < reach) & (groups[rows, None] != groups[others])).any(axis=1).sum())
            if n_near > near * n_clusters:
                return True
    return False


def _offset(centroids: Floats) -> tuple[Floats, Floats | None]:
    """Return the median of the centroids, and the offset: the rounded median, or None if none is needed.

    A single outlying centroid can neither shift a median nor inflate the spread. If all features are near 0,
    none is needed, and no block has to be copied. The offset is rounded to 20 binary digits, so that data
    with few digits, such as whole numbers, are shifted without rounding, and exact ties are preserved.
    """
    middle = np.median(centroids, axis=0)
    spread = np.median(np.abs(centroids - middle), axis=0)
    if not (np.abs(middle) > HARMLESS_OFFSET * spread).any():
        return middle, None
    mantissa, exponent = np.frexp(middle)
    return middle, np.asarray(np.ldexp(np.round(np.ldexp(mantissa, 20)), exponent - 20))
