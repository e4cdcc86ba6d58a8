"""Energies of affinely mixed features, with relevance assigned to the original features.

The model takes z = A x + o, such as the principal components of the features x. Once the evidence is split
among the competitors, the explanation of a row is a linear function of z and hence of x. Its weights are
A^T w instead of w, and its reference is a point between the two clusters in the space of x. Each cluster is
represented there by the mean of its members. If that mean does not map onto the model's prototype, it is
moved to the nearest point that does. Relevance then adds up to the evidence as before.
"""

from __future__ import annotations

from abc import abstractmethod
from copy import copy
from typing import Any

import numpy as np

from whycluster.core.arrays import Codes, Floats, product
from whycluster.core.energies.energy import Energy, Parts, Quadratics, carve
from whycluster.core.energies.kernel import KernelEnergy
from whycluster.core.energies.squared import SquaredEnergy
from whycluster.models.energies import DiagonalGaussianEnergy, GaussianEnergy, TreeEnergy
from whycluster.pipelines.affine_map import AffineMap, map_each
from whycluster.pipelines.wrapped_energy import WrappedEnergy

_FEW_PAIRS = 1 << 20  # number of values up to which all pairs of clusters are computed in advance


def through(energy: Energy, linear: AffineMap) -> Energy:
    """Return the energy of z = A x + o, split over the features of x."""
    if isinstance(energy, (DiagonalGaussianEnergy, GaussianEnergy)) and linear.is_invertible:
        return UnmixedGaussianEnergy(energy, linear)
    kinds: tuple[tuple[Any, type[MixingEnergy]], ...] = (
        (SquaredEnergy, MixedSquaresEnergy),
        (KernelEnergy, MixedKernelEnergy),
        (TreeEnergy, MixedTreeEnergy),
        ((DiagonalGaussianEnergy, GaussianEnergy), MixedGaussianEnergy),
    )
    kind = next((mixed for known, mixed in kinds if isinstance(energy, known)), SharedEnergy)
    return kind(energy, linear)


class MixingEnergy(WrappedEnergy):
    """The energy s_k(A x + o) of mixed features; subclasses define how it is split over x.

    Until `with_means` sets the means of the members, each cluster is represented by the shortest x that maps
    onto its prototype.

    Parameters
    ----------
    energy : s_k
    linear : A and o
    """

    needs_means = True

    def __init__(self, energy: Energy, linear: AffineMap) -> None:
        super().__init__(energy)
        self.linear, self.offset = linear, linear.offset
        self.n_outputs, self.n_features = linear.matrix.shape
        self.n_inputs = self.n_features
        self.shift = linear.shift if energy.offset is None else linear.shift - energy.offset
        self.sizes: Codes = np.zeros(self.n_clusters, dtype=np.intp)
        self.prepare(np.zeros((self.n_clusters, self.n_features)))
        self.scratch_width = self.n_outputs + max(energy.scratch_width, self.work_width)

    n_outputs: int
    """m, the number of features of z."""
    shift: Floats
    """(m,) o, minus the offset of the energy."""
    sizes: Codes
    """(K,) the number of members of each cluster."""

    @property
    @abstractmethod
    def work_width(self) -> int:
        """The number of values per row that `combine` needs as workspace, in addition to z."""

    @abstractmethod
    def prepare(self, means: Floats) -> None:
        """Precompute the arrays for `combine` from one point in the space of x per cluster, (K, D)."""

    def energies(self, x: Floats, out: Floats, scratch: Floats) -> None:
        """Write the energies of z."""
        z, rest = carve(scratch, self.n_outputs, self.energy.scratch_width)
        self.map(x, z)
        self.energy.energies(z, out, rest)

    @property
    def parts(self) -> Parts:
        """The clusters, with the model's weights for them."""
        return _whole_clusters(self.energy, super().parts)

    def differentiate(self, x: Floats, weights: Floats, out: Floats, scratch: Floats) -> None:
        """Write the gradient, computed by the chain rule."""
        z, rest = carve(scratch, self.n_outputs, self.energy.scratch_width)
        self.map(x, z)
        slope = np.empty_like(z)
        self.energy.differentiate(z, weights, slope, rest)
        self.linear.pull(slope, out)

    def with_means(self, means: Floats, sizes: Codes) -> Energy:
        """Return a copy that uses the means of the members; an empty cluster still uses its shortest x."""
        found = copy(self)
        found.sizes, found.needs_means = sizes, False
        found.prepare(np.where(sizes[:, None] > 0, means, 0.0))
        return found

    def apart_from(self, x: Floats) -> Energy:
        """Return the energies of changed versions of a row."""
        return self.around(self.energy.apart_from(self._mapped(x)))

    def linearized(self) -> Energy | None:
        """Return the linearized energy after the same map."""
        inner = self.energy.linearized()
        return None if inner is None else through(inner, self.linear)

    def quadratics(self) -> Quadratics | None:
        """Return the quadratic functions after the map."""
        inner = self.energy.quadratics()
        if inner is None or inner.matrix is not None:
            return None
        matrix = self.linear.matrix
        dense = matrix if isinstance(matrix, np.ndarray) else matrix.toarray()
        return inner._replace(matrix=dense, shift=self.shift)

    def step_scale(self) -> Floats:
        """Return 1 / unit, the length of a step of 1 in the units used before mixing."""
        unit = self.linear.unit
        return np.ones(self.n_features) if unit is None else 1.0 / unit

    def compared(self, x: Floats) -> Floats:
        """Return the mapped rows as the energy compares them."""
        return self.energy.compared(self._mapped(x))

    def lifted(self, points: Floats, starts: Floats) -> Floats:
        """Return those x, (k, D), that map onto ``points`` of z, (k, m), and are nearest to ``starts``."""
        missed = points - (self.linear.matrix @ starts.T).T - self.shift
        return np.asarray(starts + self.linear.lift(missed))

    def map(self, x: Floats, z: Floats) -> None:
        """Write A x + o, minus the offset of the energy, into ``z``."""
        self.linear.apply(x, self.shift, z)

    def _mapped(self, x: Floats) -> Floats:
        """Return A x + o, minus the offset of the energy."""
        z = np.empty((len(x), self.n_outputs))
        self.map(x, z)
        return z


def _whole_clusters(energy: Energy, clusters: Parts) -> Parts:
    """Return the parts of an energy if they are its clusters; otherwise, treat each cluster as one part."""
    known = energy.parts
    return known if len(known.cluster) == len(clusters.cluster) else clusters


class _Prototypes:
    """Prototypes u in the space of z = A x + o, and points v in the space of x that map onto them.

    ``slopes`` are g = u A, ``points`` are v, and ``products`` are g v, each (P, D).
    """

    def __init__(self, energy: MixingEnergy, squares: SquaredEnergy, starts: Floats) -> None:
        moved = squares.prototypes if squares.offset is None else squares.prototypes - squares.offset
        self.slopes = np.asarray((energy.linear.matrix.T @ (moved * squares.scale).T).T)
        self.points = energy.lifted(moved, starts)
        self.products = self.slopes * self.points


def _assemble(x: Floats, *sums: Floats, out: Floats) -> None:
    """Write the sum of a_k (g_c - g_k) * (2 x - v_c - v_k), where g = u A, into ``out`` of shape (b, D).

    ``sums`` are the sums of a_k g_k, a_k v_k and a_k g_k v_k, then g_c and v_c. The weights a_k sum to zero
    over all prototypes, including those of c. g_c is overwritten.
    """
    slopes, points, products, own_slopes, own_points = sums
    np.multiply(x, -2.0, out=out)
    out += own_points
    out *= slopes
    out += products
    own_slopes *= points
    out -= own_slopes


class MixedSquaresEnergy(MixingEnergy):
    """|z - mu_k|^2 for z = A x + o.

    With g_k = A^T mu_k and points v_k that map onto mu_k, the split is
    e_k - e_c = (g_c - g_k) * (2 x - v_c - v_k): Eq. 4 with the weights and a reference in the space of x.
    """

    energy: SquaredEnergy

    def __init__(self, energy: SquaredEnergy, linear: AffineMap) -> None:
        super().__init__(energy, linear)
        self._linear, self._has_ties = None, energy.has_copies
        if energy.linear is not None:
            slopes, bias = energy.linear
            self._linear = np.asarray((linear.matrix.T @ slopes.T).T), bias + slopes @ self.shift

    @property
    def work_width(self) -> int:
        """Work space for sums over the clusters and for the values of each row's own cluster."""
        return (5 if self._pairs is None else 2) * self.n_features

    def prepare(self, means: Floats) -> None:
        """Compute g_k and v_k."""
        self._prototypes = _Prototypes(self, self.energy, means)
        self._pairs = None
        if self.n_clusters**2 * self.n_features <= _FEW_PAIRS:
            g, v = self._prototypes.slopes, self._prototypes.points
            apart = g[:, None] - g
            self._pairs = 2.0 * apart, apart * (v[:, None] + v)

    def energies(self, x: Floats, out: Floats, scratch: Floats) -> None:
        """Write the energies without computing z, since they are linear in z and hence in x."""
        if self._linear is None:
            super().energies(x, out, scratch)
            return
        slopes, bias = self._linear
        product(x, slopes.T, out=out)
        out += bias
        if self._has_ties:
            self.energy.keep_ties(out)

    def combine(self, x: Floats, weights: Floats, out: Floats, scratch: Floats) -> None:
        """Write the split, with three matrix products for all rows or two for the rows of each cluster."""
        own = weights.argmin(axis=1)  # only the weight of the row's own cluster is negative
        if self._pairs is not None:
            self._combine_by_cluster(x, weights, own, out, scratch)
            return
        sums = carve(scratch, *[self.n_features] * 5)
        known = self._prototypes
        for prototypes, total in zip((known.slopes, known.points, known.products), sums[:3], strict=True):
            product(weights, prototypes, out=total)
        for prototypes, mine in zip((known.slopes, known.points), sums[3:], strict=True):
            np.take(prototypes, own, axis=0, out=mine, mode="clip")  # other modes allocate a temporary copy
        _assemble(x, *sums, out=out)

    def _combine_by_cluster(
        self, x: Floats, weights: Floats, own: Codes, out: Floats, scratch: Floats
    ) -> None:
        """Write the split from precomputed pairs, which takes a third less time if there are few clusters."""
        assert self._pairs is not None
        room = scratch.reshape(-1)[: 2 * x.size].reshape(2, *x.shape)
        for c, (slopes, products) in enumerate(zip(*self._pairs, strict=True)):
            rows = np.flatnonzero(own == c)
            split, other, mine = room[0, : len(rows)], room[1, : len(rows)], weights[rows]
            product(mine, slopes, out=split)
            split *= np.take(x, rows, axis=0, out=other, mode="clip")
            split -= product(mine, products, out=other)
            out[rows] = split


class MixedKernelEnergy(MixingEnergy):
    """The soft minimum of |z - u_j|^2; each pair of support vectors is split like a pair of centroids."""

    energy: KernelEnergy

    @property
    def work_width(self) -> int:
        """Work space for sums over all support vectors and over the row's cluster, and for weights."""
        return 5 * self.n_features + 2 * len(self.energy.unit_cluster)

    def prepare(self, means: Floats) -> None:
        """Compute g and v for each support vector, with v near the mean of its cluster."""
        self._prototypes = _Prototypes(self, self.energy.units, means[self.energy.unit_cluster])

    def combine(self, x: Floats, weights: Floats, out: Floats, scratch: Floats) -> None:
        """Write the averages over the support vectors, weighted by their shares.

        Three matrix products handle all clusters at once. Separate products for each cluster would write and
        read the sums over all features once per cluster.
        """
        n_units = len(self.energy.unit_cluster)
        z, shares, mixed, *sums = carve(scratch, self.n_outputs, n_units, n_units, *[self.n_features] * 5)
        self.map(x, z)
        own, known = weights.argmin(axis=1), self._prototypes
        for k, units in enumerate(self.energy.clusters):
            shares[:, units] = self.energy.shares(z, k).T
            np.multiply(shares[:, units], weights[:, k, None], out=mixed[:, units])
        for prototypes, total in zip((known.slopes, known.points, known.products), sums[:3], strict=True):
            product(mixed, prototypes, out=total)
        for k in np.unique(own).tolist():
            mine, units = np.flatnonzero(own == k), self.energy.clusters[k]
            for prototypes, total in zip((known.slopes, known.points), sums[3:], strict=True):
                total[mine] = product(shares[mine, units], prototypes[units])
        _assemble(x, *sums, out=out)


class MixedTreeEnergy(MixingEnergy):
    """The energy of a tree, in which each pair of sibling nodes is split like a pair of centroids."""

    energy: TreeEnergy

    @property
    def work_width(self) -> int:
        """Work space for the weights of the nodes and for one sum."""
        return int(self.energy.nodes.n_clusters) + self.n_features

    def prepare(self, means: Floats) -> None:
        """Compute g and v for each node, with v near the mean of the members below, and products of pairs."""
        sizes = [self.sizes[under] for under in self.energy.contest.under]
        starts = np.array(
            [
                n @ means[under] / max(1, n.sum())
                for n, under in zip(sizes, self.energy.contest.under, strict=True)
            ]
        )
        nodes = _Prototypes(self, self.energy.nodes, starts)
        g, v = nodes.slopes, nodes.points
        self._slopes, self._products = g, nodes.products
        self._crossed = g[::2] * v[1::2] - g[1::2] * v[::2]

    def combine(self, x: Floats, weights: Floats, out: Floats, scratch: Floats) -> None:
        """Write the split, with nodes instead of centroids; the tree determines the pairs."""
        w, some = carve(scratch, self.energy.nodes.n_clusters, self.n_features)
        self.energy.to_nodes(weights, w)
        product(w, self._slopes, out=out)
        out *= x
        out *= -2.0
        product(w, self._products, out=some)
        out += some
        product(w[:, ::2], self._crossed, out=some)
        out += some


class MixedGaussianEnergy(MixingEnergy):
    """Gaussian components with covariances.

    Since h_k is quadratic, its mean slope along a line equals its slope at the midpoint. The reference m is
    the point on the line between the two means that is equally far from both in units of their covariances.
    Determinants and weights belong to no feature.
    """

    energy: DiagonalGaussianEnergy | GaussianEnergy

    def __init__(self, energy: DiagonalGaussianEnergy | GaussianEnergy, linear: AffineMap) -> None:
        super().__init__(energy, linear)
        self.unattributed = "the weights and the determinants of the components"

    @property
    def work_width(self) -> int:
        """Work space for the slopes of the row's own component and of another one, with their factors."""
        return 4 * self.n_outputs + 2 * self.n_features

    def prepare(self, means: Floats) -> None:
        """Compute each reference's position on the line from c to k and the slope of h_k there, (K, K, m)."""
        centers, n = self.energy.centers, self.n_clusters
        self._points = self.lifted(centers, means)
        slopes = np.empty((n, n, self.n_outputs))  # of component k at the mean of c
        for k in range(n):
            self.energy.slope(centers, k, slopes[:, k])
        # |mu_c - mu_k| in units of the covariance of k
        far = np.sqrt(np.maximum(np.einsum("ckm,ckm->ck", slopes, centers[:, None] - centers[None]), 0.0))
        total = far + far.T
        self._part = np.divide(far, total, out=np.full((n, n), 0.5), where=total > 0)  # 0 at c, 1 at k
        # Slopes are linear: at the reference, the slope of k is (1 - part) times its slope at c, and the
        # slope of c is part times its slope at k.
        self._halfway = (1 - self._part)[:, :, None] * slopes
        self._halfway -= self._part[:, :, None] * slopes.transpose(1, 0, 2)

    def combine(self, x: Floats, weights: Floats, out: Floats, scratch: Floats) -> None:
        """Write sum_k a_k A^T w_k * (x - m_k), where w_k is the mean of the slopes of h_k at z and at m_k."""
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


class UnmixedGaussianEnergy(MixingEnergy):
    """Gaussian components after an invertible map, such as a PCA that keeps all components.

    The features of x then have Gaussian components as well, with the covariances A^-1 S_k A^-T, and the split
    is that of `GaussianEnergy`. Energies are still computed from z.
    """

    energy: DiagonalGaussianEnergy | GaussianEnergy
    needs_means = False

    def __init__(self, energy: DiagonalGaussianEnergy | GaussianEnergy, linear: AffineMap) -> None:
        super().__init__(energy, linear)
        self.unattributed = GaussianEnergy.unattributed

    @property
    def work_width(self) -> int:
        """Work space for the components of x."""
        return self._components.scratch_width

    def prepare(self, means: Floats) -> None:
        """Compute the components of x; the determinant of A is the same for all."""
        energy = self.energy
        if isinstance(energy, GaussianEnergy):
            roots, log_det = energy.roots, energy.bias + energy.log_weights
        else:
            roots = np.sqrt(energy.precisions)[:, :, None] * np.eye(self.n_outputs)
            log_det = -np.log(energy.precisions).sum(axis=1) / 2
        pulled = np.array([self.linear.matrix.T @ root for root in roots])
        self._components = GaussianEnergy(
            self.lifted(energy.centers, means), pulled, energy.log_weights, log_det=log_det
        )

    def combine(self, x: Floats, weights: Floats, out: Floats, scratch: Floats) -> None:
        """Write the split of the components of x."""
        self._components.combine(x, weights, out, *carve(scratch, self.work_width))

    def terms(self, x: Floats, cluster: Codes, out: Floats, scratch: Floats) -> None:
        """Write the terms of the components of x."""
        self._components.terms(x, cluster, out, *carve(scratch, self.work_width))


class SharedEnergy(MixingEnergy):
    """Any other energy, with the relevance of each feature of z shared among the features of x.

    The shares are proportional to |A_ji (x_i - v_i)|, the contribution of x_i to z_j, where v is the mean of
    all rows. The shares are never negative, so cancellation cannot bring a denominator close to zero.
    """

    @property
    def work_width(self) -> int:
        """Work space for the relevance of z and for the contributions to z."""
        return self.energy.scratch_width + self.n_outputs + self.n_features

    def prepare(self, means: Floats) -> None:
        """Prepare the shares, relative to the mean."""
        self._shares = Shares(self.linear.matrix, means.mean(axis=0))

    def with_means(self, means: Floats, sizes: Codes) -> Energy:
        """Return a copy that uses the mean of all rows."""
        return super().with_means(
            np.broadcast_to(sizes @ means / sizes.sum(), means.shape), np.ones_like(sizes)
        )

    def combine(self, x: Floats, weights: Floats, out: Floats, scratch: Floats) -> None:
        """Split over the features of z and write the shares of the features of x into ``out``."""
        z, split, moved, rest = carve(
            scratch, self.n_outputs, self.n_outputs, self.n_features, self.energy.scratch_width
        )
        self.map(x, z)
        self.energy.combine(z, weights, split, rest)
        self._shares.share(x, split, out, moved)


class Shares:
    """Shares the relevance of mixed features among the original features, in proportion to contributions.

    Parameters
    ----------
    matrix : (m, D) A, which mixes the original features
    middle : (D,) the point at which all contributions are zero
    """

    def __init__(self, matrix: Any, middle: Floats) -> None:
        self.size = abs(matrix)
        self.middle = middle
        self._alike = np.asarray(self.size.sum(axis=1)).ravel()  # the totals if every feature contributed 1

    def share(self, x: Floats, relevance: Floats, out: Floats, moved: Floats) -> None:
        """Write the shares of ``relevance``, (b, m), into ``out``, (b, D); ``moved`` is scratch, (b, D).

        If all contributions to a mixed feature are zero, its relevance is shared in proportion to |A|.
        """
        np.subtract(x, self.middle, out=moved)
        np.abs(moved, out=moved)
        total = map_each(self.size, moved)
        per_unit = np.divide(relevance, total, out=np.zeros_like(total), where=total > 0.0)
        out[...] = map_each(self.size.T, per_unit)
        out *= moved
        still = (total == 0.0) & (relevance != 0.0) & (self._alike > 0.0)
        if still.any():
            alike = np.divide(relevance, self._alike, out=np.zeros_like(total), where=still)
            out += map_each(self.size.T, alike)


class TransformedEnergy(WrappedEnergy):
    """The energy s_k of features y, each an arbitrary function of one mixed feature u = A x + o.

    The relevance of u_j is shared among the features of x in proportion to their contributions, as in
    `SharedEnergy`. The inputs are y and x side by side.

    Parameters
    ----------
    energy : the energy of y, split over u
    matrix : (m, D) A
    middle : (D,) the point at which all contributions are zero; 0 by default
    """

    needs_means = True

    def __init__(self, energy: Energy, matrix: Any, middle: Floats | None = None) -> None:
        super().__init__(energy)
        self.matrix = matrix
        self.n_features, self.offset = matrix.shape[1], None
        self.n_inputs = energy.n_inputs + self.n_features
        if energy.offset is not None:
            self.offset = np.concatenate([energy.offset, np.zeros(self.n_features)])
        self._shares = Shares(matrix, np.zeros(self.n_features) if middle is None else middle)
        self._widths = (energy.n_inputs, energy.n_features, self.n_features, energy.scratch_width)
        self.scratch_width = sum(self._widths)

    def compared(self, x: Floats) -> Floats:
        """Return y as its energy compares it."""
        return self.energy.compared(x[:, : self.energy.n_inputs])

    @property
    def parts(self) -> Parts:
        """The clusters, as in `MixingEnergy`."""
        return _whole_clusters(self.energy, super().parts)

    def energies(self, x: Floats, out: Floats, scratch: Floats) -> None:
        """Write the energies of y."""
        y, _, _, rest = carve(scratch, *self._widths)
        y[...] = x[:, : self.energy.n_inputs]
        self.energy.energies(y, out, rest)

    def combine(self, x: Floats, weights: Floats, out: Floats, scratch: Floats) -> None:
        """Split over the features of u and write the shares of the features of x into ``out``."""
        y, split, moved, rest = carve(scratch, *self._widths)
        y[...] = x[:, : self.energy.n_inputs]
        self.energy.combine(y, weights, split, rest)
        self._shares.share(x[:, self.energy.n_inputs :], split, out, moved)

    def differentiate(self, *_: Floats) -> None:
        """Raise an error, since the function may have no derivative; see `ColumnsEnergy`."""
        raise NotImplementedError

    def with_means(self, means: Floats, sizes: Codes) -> Energy:
        """Return a copy with the mean of all rows as the middle."""
        n = self.energy.n_inputs
        middle = sizes @ means[:, n:] / sizes.sum()
        found = TransformedEnergy(self.energy.with_means(means[:, :n], sizes), self.matrix, middle)
        found.needs_means = False
        return found
