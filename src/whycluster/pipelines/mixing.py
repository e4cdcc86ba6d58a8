"""Energies behind a linear map: relevance in the features that were mixed, not in what they were mixed to.

Here z = A x + o are the features that a model knows, such as principal components, and x those that they
were made of. Given how the evidence is shared, the explanation of a row is a linear function of z, and so
one of x: with weights A^T w in place of w, and as its reference a point between the two clusters in the
space of x. A cluster's point there is the mean of its members; moved, where it does not map onto what the
model compares with, by the shortest step that makes it so. Then the relevances add up as they did.
"""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from typing import Any

import numpy as np

from whycluster.core.arrays import Codes, Floats
from whycluster.core.energies.energy import Energy, Parts, carve
from whycluster.core.energies.gaussian import DiagonalGaussianEnergy, GaussianEnergy
from whycluster.core.energies.kernel import KernelEnergy
from whycluster.core.energies.squared import HARMLESS_OFFSET, SquaredEnergy
from whycluster.core.energies.tree import TreeEnergy
from whycluster.data.arrays import is_sparse

_LARGE = 1 << 22  # a matrix of more values is not decomposed
_RANK = 1e-10  # directions that A shrinks by more are taken for none: steps in them would be of rounding
_FEW_PAIRS = 1 << 20  # values for all pairs of clusters


@dataclass(frozen=True)
class LinearMap:
    """z = A x + o.

    Attributes
    ----------
    matrix, shift : (m, D) A, dense or sparse, and (m,) o
    offset : (D,) what is subtracted from rows to give x
    unit : (D,) by how much each feature of x counts as moved by 1; by default 1
    """

    matrix: Any
    shift: Floats
    offset: Floats | None = None
    unit: Floats | None = None

    def eased(self) -> LinearMap:
        """The same map of rows as they are, if these lie so near to 0 that no digits are lost to speak of.

        That saves a copy of every block.
        """
        if self.offset is None or self.unit is None:
            return self
        if (np.abs(self.offset) > HARMLESS_OFFSET * self.unit).any():
            return self
        return LinearMap(self.matrix, self.shift - self.matrix @ self.offset, None, self.unit)

    def apply(self, x: Floats, moved: Floats, z: Floats) -> None:
        """Write A x + o, with another o, into ``z`` of shape (b, m)."""
        if is_sparse(self.matrix):
            z[...] = (self.matrix @ x.T).T
        else:
            np.matmul(x, self.matrix.T, out=z)
        z += moved

    def pull(self, slope: Floats, out: Floats) -> None:
        """Write A^T w of each row into ``out`` of shape (b, D)."""
        if is_sparse(self.matrix):
            out[...] = (self.matrix.T @ slope.T).T
        else:
            np.matmul(slope, self.matrix, out=out)

    def lift(self, target: Floats) -> Floats:
        """The shortest x with A x = target, or as near as it gets: (m,) to (D,), (k, m) to (k, D).

        How long it is depends on the units of x, which are not those that columns happen to come in.
        """
        unit = np.ones(self.matrix.shape[1]) if self.unit is None else self.unit
        scaled = self.matrix.multiply(unit).tocsr() if is_sparse(self.matrix) else self.matrix * unit
        if is_sparse(scaled) and scaled.shape[0] * scaled.shape[1] > _LARGE:
            from scipy.sparse.linalg import lsqr

            found = [lsqr(scaled, row, atol=1e-15, btol=1e-15)[0] for row in np.atleast_2d(target)]
            return np.asarray(found * unit).reshape(*target.shape[:-1], len(unit))
        dense = scaled.toarray() if is_sparse(scaled) else scaled
        return np.asarray(np.linalg.lstsq(dense, target.T, rcond=_RANK)[0].T * unit)


def through(energy: Energy, linear: LinearMap) -> Energy:
    """The energies of z = A x + o, split over the features of x."""
    kinds: tuple[tuple[Any, type[MixingEnergy]], ...] = (
        (SquaredEnergy, MixedSquaresEnergy),
        (KernelEnergy, MixedKernelEnergy),
        (TreeEnergy, MixedTreeEnergy),
        ((DiagonalGaussianEnergy, GaussianEnergy), MixedGaussianEnergy),
    )
    kind = next((mixed for known, mixed in kinds if isinstance(energy, known)), SharedEnergy)
    return kind(energy, linear)


class MixingEnergy(Energy):
    """s_k(A x + o), for an energy s_k of what features were mixed to; subclasses know how to split it.

    Parameters
    ----------
    energy : s_k
    linear : A and o
    means : (K, D) the means of the members of each cluster, as x; by default the shortest points that map
        onto what stands for the clusters
    sizes : (K,) how many members these are
    """

    needs_means = True

    def __init__(
        self, energy: Energy, linear: LinearMap, means: Floats | None = None, sizes: Codes | None = None
    ) -> None:
        self.energy, self.linear, self.offset = energy, linear, linear.offset
        self.copy_metadata(energy)
        self.n_outputs, self.n_features = linear.matrix.shape
        self.moved = linear.shift if energy.offset is None else linear.shift - energy.offset
        self.sizes = np.zeros(self.n_clusters, dtype=np.intp) if sizes is None else sizes
        self.prepare(np.zeros((self.n_clusters, self.n_features)) if means is None else means)
        self.scratch_width = self.n_outputs + max(energy.scratch_width, self.work_width)

    n_outputs: int
    """m, how many features z has."""
    moved: Floats
    """(m,) o, as the energy takes z."""

    @property
    @abstractmethod
    def work_width(self) -> int:
        """How many numbers per row `combine` needs beside z."""

    @abstractmethod
    def prepare(self, means: Floats) -> None:
        """Compute what `combine` needs, from a point in the space of x for each cluster."""

    def energies(self, x: Floats, out: Floats, scratch: Floats) -> None:
        """Those of z."""
        z, rest = carve(scratch, self.n_outputs, self.energy.scratch_width)
        self.map(x, z)
        self.energy.energies(z, out, rest)

    @property
    def parts(self) -> Parts:
        """The clusters; with the weights that the model gives them, if it does."""
        return _whole_clusters(self.energy, super().parts)

    def differentiate(self, x: Floats, weights: Floats, out: Floats, scratch: Floats) -> None:
        """The chain rule."""
        z, rest = carve(scratch, self.n_outputs, self.energy.scratch_width)
        self.map(x, z)
        slope = np.empty_like(z)
        self.energy.differentiate(z, weights, slope, rest)
        self.linear.pull(slope, out)

    def with_means(self, means: Floats, sizes: Codes) -> Energy:
        """With the means of the members of each cluster; one that has none keeps its shortest point."""
        means = np.where(sizes[:, None] > 0, means, 0.0)
        return type(self)(self.energy, self.linear, means, sizes)

    def linearized(self) -> Energy | None:
        """Return the linearized energy behind the same map."""
        inner = self.energy.linearized()
        return None if inner is None else through(inner, self.linear)

    def step_scale(self) -> Floats:
        """Return 1 / unit: how much a step of 1 counts in the units before mixing."""
        unit = self.linear.unit
        return np.ones(self.n_features) if unit is None else 1.0 / unit

    def compared(self, x: Floats) -> Floats:
        """Return the rows behind the map, as the energy compares them."""
        z = np.empty((len(x), self.n_outputs))
        self.map(x, z)
        return self.energy.compared(z)

    def lifted(self, points: Floats, starts: Floats) -> Floats:
        """Points of z, (k, m), as the points of x that map onto them, nearest to ``starts``, (k, D)."""
        missed = points - (self.linear.matrix @ starts.T).T - self.moved
        return np.asarray(starts + self.linear.lift(missed))

    def map(self, x: Floats, z: Floats) -> None:
        """A x + o, as the energy takes it."""
        self.linear.apply(x, self.moved, z)


def _whole_clusters(energy: Energy, clusters: Parts) -> Parts:
    """The parts of an energy if these are its clusters; else these, since their parts are not split here."""
    known = energy.parts
    return known if len(known.cluster) == len(clusters.cluster) else clusters


class _Prototypes:
    """Prototypes u of z and points v of x that map onto them: g = u A, v and g v, (P, D) each."""

    def __init__(self, energy: MixingEnergy, squares: SquaredEnergy, starts: Floats) -> None:
        moved = squares.prototypes if squares.offset is None else squares.prototypes - squares.offset
        self.slopes = np.asarray((energy.linear.matrix.T @ (moved * squares.scale).T).T)
        self.points = energy.lifted(moved, starts)
        self.products = self.slopes * self.points


def _assemble(x: Floats, *sums: Floats, out: Floats) -> None:
    """The sum of a_k (g_c - g_k) * (2 x - v_c - v_k), with g = u A, into ``out``; all arrays are (b, D).

    Given are the sums of a_k g_k, a_k v_k and a_k g_k v_k, with weights that sum to zero over all prototypes,
    those of c among them; and g_c and v_c. The one before the last is overwritten.
    """
    slopes, points, products, own_slopes, own_points = sums
    np.multiply(x, -2.0, out=out)
    out += own_points
    out *= slopes
    out += products
    own_slopes *= points
    out -= own_slopes


class MixedSquaresEnergy(MixingEnergy):
    """|z - mu_k|^2 for z = A x + o; with g_k = A^T mu_k and points v_k that map onto mu_k,

    e_k - e_c = (g_c - g_k) * (2 x - v_c - v_k): Eq. 4 with the weights of x, and a reference in the space of
    x.
    """

    energy: SquaredEnergy

    @property
    def work_width(self) -> int:
        """Sums over the clusters, and what is the own cluster's."""
        return (5 if self._pairs is None else 2) * self.n_features

    def prepare(self, means: Floats) -> None:
        """g_k and v_k."""
        self._prototypes = _Prototypes(self, self.energy, means)
        self._pairs = None
        if self.n_clusters**2 * self.n_features <= _FEW_PAIRS:
            g, v = self._prototypes.slopes, self._prototypes.points
            apart = g[:, None] - g
            self._pairs = 2.0 * apart, apart * (v[:, None] + v)
        self._lines = None
        if self.energy.lines is not None:
            slopes, bias = self.energy.lines
            self._lines = np.asarray((self.linear.matrix.T @ slopes.T).T), bias + slopes @ self.moved

    def energies(self, x: Floats, out: Floats, scratch: Floats) -> None:
        """Linear in z, and so in x: z itself is not needed."""
        if self._lines is None:
            super().energies(x, out, scratch)
            return
        slopes, bias = self._lines
        np.matmul(x, slopes.T, out=out)
        out += bias
        self.energy.keep_ties(out)

    def combine(self, x: Floats, weights: Floats, out: Floats, scratch: Floats) -> None:
        """Three matrix products, and rows of the own cluster; or two, of each cluster by itself."""
        own = weights.argmin(axis=1)  # the one weight that is negative
        if self._pairs is not None:
            self._combine_by_cluster(x, weights, own, out, scratch)
            return
        sums = carve(scratch, *[self.n_features] * 5)
        known = self._prototypes
        for prototypes, total in zip((known.slopes, known.points, known.products), sums[:3], strict=True):
            np.matmul(weights, prototypes, out=total)
        for prototypes, mine in zip((known.slopes, known.points), sums[3:], strict=True):
            np.take(prototypes, own, axis=0, out=mine, mode="clip")  # otherwise NumPy fills a copy first
        _assemble(x, *sums, out=out)

    def _combine_by_cluster(
        self, x: Floats, weights: Floats, own: Codes, out: Floats, scratch: Floats
    ) -> None:
        """Of few clusters, what their pairs have in common is known; a third faster."""
        assert self._pairs is not None
        for c, (slopes, products) in enumerate(zip(*self._pairs, strict=True)):
            rows = np.flatnonzero(own == c)
            split, other = (part[: len(rows)] for part in carve(scratch, self.n_features, self.n_features))
            mine = weights[rows]
            np.matmul(mine, slopes, out=split)
            split *= np.take(x, rows, axis=0, out=other, mode="clip")
            split -= np.matmul(mine, products, out=other)
            out[rows] = split


class MixedKernelEnergy(MixingEnergy):
    """The soft minimum of |z - u_j|^2; each pair of support vectors is split as two centroids are."""

    energy: KernelEnergy

    @property
    def work_width(self) -> int:
        """Sums over the support vectors, what is the own cluster's, and the weights of both."""
        return 5 * self.n_features + 2 * len(self.energy.unit_cluster)

    def prepare(self, means: Floats) -> None:
        """Of each support vector its g and its v, near the mean of its cluster."""
        self._prototypes = _Prototypes(self, self.energy.units, means[self.energy.unit_cluster])

    def combine(self, x: Floats, weights: Floats, out: Floats, scratch: Floats) -> None:
        """Averages over the support vectors of each cluster, by their shares: three matrix products for all.

        Cluster by cluster, sums over all features would be written and read once for each.
        """
        n_units = len(self.energy.unit_cluster)
        z, shares, mixed, *sums = carve(scratch, self.n_outputs, n_units, n_units, *[self.n_features] * 5)
        self.map(x, z)
        own, known = weights.argmin(axis=1), self._prototypes
        for k, units in enumerate(self.energy.clusters):
            shares[:, units] = self.energy.shares(z, k).T
            np.multiply(shares[:, units], weights[:, k, None], out=mixed[:, units])
        for prototypes, total in zip((known.slopes, known.points, known.products), sums[:3], strict=True):
            np.matmul(mixed, prototypes, out=total)
        for k in np.unique(own).tolist():
            mine, units = np.flatnonzero(own == k), self.energy.clusters[k]
            for prototypes, total in zip((known.slopes, known.points), sums[3:], strict=True):
                total[mine] = shares[mine, units] @ prototypes[units]
        _assemble(x, *sums, out=out)


class MixedTreeEnergy(MixingEnergy):
    """Pairs of nodes, each split as two centroids are."""

    energy: TreeEnergy

    @property
    def work_width(self) -> int:
        """The weights of the nodes, and a sum."""
        return int(self.energy.nodes.n_clusters) + self.n_features

    def prepare(self, means: Floats) -> None:
        """Of each node its g and its v, near the mean of all members under it; of each pair g v crossed."""
        sizes = [self.sizes[under] for under in self.energy.tree.under]
        starts = np.array(
            [
                n @ means[under] / max(1, n.sum())
                for n, under in zip(sizes, self.energy.tree.under, strict=True)
            ]
        )
        nodes = _Prototypes(self, self.energy.nodes, starts)
        g, v = nodes.slopes, nodes.points
        self._slopes, self._products = g, nodes.products
        self._crossed = g[::2] * v[1::2] - g[1::2] * v[::2]

    def combine(self, x: Floats, weights: Floats, out: Floats, scratch: Floats) -> None:
        """The nodes as centroids; a pair is always of the same two."""
        w, some = carve(scratch, self.energy.nodes.n_clusters, self.n_features)
        self.energy.to_nodes(weights, w)
        np.matmul(w, self._slopes, out=out)
        out *= x
        out *= -2.0
        np.matmul(w, self._products, out=some)
        out += some
        np.matmul(w[:, ::2], self._crossed, out=some)
        out += some


class MixedGaussianEnergy(MixingEnergy):
    """Components with covariances: h_k is quadratic, so over a way it is on average as steep as halfway.

    The reference m lies on the line between the two means, where these are equally far off in units of their
    covariances. Determinants and weights are no feature's.
    """

    energy: DiagonalGaussianEnergy | GaussianEnergy

    @property
    def work_width(self) -> int:
        """Slopes of the own component, of another, and what they are multiplied with."""
        return 4 * self.n_outputs + 2 * self.n_features

    def prepare(self, means: Floats) -> None:
        """Where on the line from c to k the reference lies, and how steep h_k is there, (K, K, m)."""
        centers, n = self.energy.centers, self.n_clusters
        self._points = self.lifted(centers, means)
        slopes = np.empty((n, n, self.n_outputs))  # of component k, at the mean of c
        for k in range(n):
            self.energy.slope(centers, k, slopes[:, k])
        # |mu_c - mu_k| in units of the covariance of k: how far c is off for it
        far = np.sqrt(np.maximum(np.einsum("ckm,ckm->ck", slopes, centers[:, None] - centers[None]), 0.0))
        total = far + far.T
        self._part = np.divide(far, total, out=np.full((n, n), 0.5), where=total > 0)  # 0 at c, 1 at k
        # Slopes are linear: at the reference, that of k is (1 - part) of that at c; that of c, part of that
        # at k.
        self._halfway = (1 - self._part)[:, :, None] * slopes
        self._halfway -= self._part[:, :, None] * slopes.transpose(1, 0, 2)

    def combine(self, x: Floats, weights: Floats, out: Floats, scratch: Floats) -> None:
        """sum_k a_k A^T w_k * (x - m_k), with w_k the mean of the slopes of h_k at z and at the reference."""
        d, m = self.n_features, self.n_outputs
        z, mine, slope, total, near, pulled, points = carve(scratch, m, m, m, m, m, d, d)
        self.map(x, z)
        own = weights.argmin(axis=1)
        for c in np.unique(own).tolist():
            rows = np.flatnonzero(own == c)
            there = np.empty((len(rows), m))
            self.energy.slope(z[rows], c, there)
            mine[rows] = there
        total[...], near[...], out[...] = 0.0, 0.0, 0.0
        for k in range(self.n_clusters):
            self.energy.slope(z, k, slope)
            slope -= mine
            slope += self._halfway[own, k]
            slope *= np.where(own == k, 0.0, 0.5 * weights[:, k])[:, None]
            total += slope
            part = self._part[own, k][:, None]
            self.linear.pull(slope * part, pulled)
            pulled *= self._points[k]
            out -= pulled
            slope *= 1.0 - part
            near += slope
        self.linear.pull(total, pulled)
        pulled *= x
        out += pulled
        self.linear.pull(near, pulled)
        np.take(self._points, own, axis=0, out=points, mode="clip")
        pulled *= points
        out -= pulled


class SharedEnergy(MixingEnergy):
    """Any other energy: what each feature of z bears is shared among those of x by how much they moved it.

    By |A_ji (x_i - v_i)|, with v the mean of all rows: never negative, so that nothing is divided by almost
    nothing.
    """

    @property
    def work_width(self) -> int:
        """The relevance of z, and what moved it."""
        return self.energy.scratch_width + self.n_outputs + self.n_features

    def prepare(self, means: Floats) -> None:
        """The mean."""
        self._shares = Shares(self.linear.matrix, means.mean(axis=0))

    def with_means(self, means: Floats, sizes: Codes) -> Energy:
        """With the mean of all rows."""
        return super().with_means(
            np.broadcast_to(sizes @ means / sizes.sum(), means.shape), np.ones_like(sizes)
        )

    def combine(self, x: Floats, weights: Floats, out: Floats, scratch: Floats) -> None:
        """The split over z, then shared."""
        z, split, moved, rest = carve(
            scratch, self.n_outputs, self.n_outputs, self.n_features, self.energy.scratch_width
        )
        self.map(x, z)
        self.energy.combine(z, weights, split, rest)
        self._shares.share(x, split, out, moved)


class Shares:
    """The relevance of features that others were mixed to, shared among these by how much each moved them.

    Parameters
    ----------
    matrix : (m, D) A, by which they were mixed
    middle : (D,) where nothing is moved
    """

    def __init__(self, matrix: Any, middle: Floats) -> None:
        self.size = abs(matrix)
        self.middle = middle
        self._alike = np.asarray(self.size.sum(axis=1)).ravel()  # as if each were moved by 1

    def share(self, x: Floats, relevance: Floats, out: Floats, moved: Floats) -> None:
        """(b, m) to (b, D), both given. What nothing moved is shared by |A| alone."""
        np.subtract(x, self.middle, out=moved)
        np.abs(moved, out=moved)
        total = np.asarray((self.size @ moved.T).T)
        per_unit = np.divide(relevance, total, out=np.zeros_like(total), where=total > 0.0)
        out[...] = (self.size.T @ per_unit.T).T
        out *= moved
        still = (total == 0.0) & (relevance != 0.0) & (self._alike > 0.0)
        if still.any():
            alike = np.divide(relevance, self._alike, out=np.zeros_like(total), where=still)
            out += (self.size.T @ alike.T).T


class BentEnergy(Energy):
    """s_k of features y, each made in some way of one feature u = A x + o that others were mixed to.

    What u_j is found to bear is shared among the x by how much each moved it, as `SharedEnergy` has it. The
    rows that come are y and x side by side.

    Parameters
    ----------
    energy : of y, split over u
    matrix : (m, D) A
    middle : (D,) where nothing is moved; by default 0
    """

    needs_means = True

    def __init__(self, energy: Energy, matrix: Any, middle: Floats | None = None) -> None:
        self.energy, self.matrix = energy, matrix
        self.copy_metadata(energy)
        self.n_features, self.offset = matrix.shape[1], None
        if energy.offset is not None:
            self.offset = np.concatenate([energy.offset, np.zeros(self.n_features)])
        self._shares = Shares(matrix, np.zeros(self.n_features) if middle is None else middle)
        self._widths = (energy.n_inputs, energy.n_features, self.n_features, energy.scratch_width)
        self.scratch_width = sum(self._widths)

    @property
    def n_inputs(self) -> int:
        """Y and x."""
        return self.energy.n_inputs + self.n_features

    def compared(self, x: Floats) -> Floats:
        """Return y, as its energy compares it."""
        return self.energy.compared(x[:, : self.energy.n_inputs])

    @property
    def parts(self) -> Parts:
        """The clusters, as `MixingEnergy` has them."""
        return _whole_clusters(self.energy, super().parts)

    def energies(self, x: Floats, out: Floats, scratch: Floats) -> None:
        """Those of y."""
        y, _, _, rest = carve(scratch, *self._widths)
        y[...] = x[:, : self.energy.n_inputs]
        self.energy.energies(y, out, rest)

    def combine(self, x: Floats, weights: Floats, out: Floats, scratch: Floats) -> None:
        """The split over u, shared."""
        y, split, moved, rest = carve(scratch, *self._widths)
        y[...] = x[:, : self.energy.n_inputs]
        self.energy.combine(y, weights, split, rest)
        self._shares.share(x[:, self.energy.n_inputs :], split, out, moved)

    def differentiate(self, *_: Floats) -> None:
        """Not known: see `ColumnsEnergy`, which stands before this."""
        raise NotImplementedError

    def with_means(self, means: Floats, sizes: Codes) -> Energy:
        """With the mean of all rows as the middle."""
        n = self.energy.n_inputs
        middle = sizes @ means[:, n:] / sizes.sum()
        return BentEnergy(self.energy.with_means(means[:, :n], sizes), self.matrix, middle)
