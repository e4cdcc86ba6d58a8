"""Soft or hard minimums over the support vectors of each cluster: kernel k-means, Birch."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from whycluster.core.arrays import Codes, Floats, product, product_by_columns, row_sums
from whycluster.core.energies.energy import Energy, Parts, Quadratics, carve
from whycluster.core.energies.squared import SquaredEnergy

_FEW_UNITS = 64  # matrix products with fewer rows are slow


class KernelEnergy(Energy):
    """s_k = -1/gamma log sum_j v_j exp(-gamma |x - u_j|^2) over the support vectors of k (Eq. 6, Prop. 5).

    The split is sum_j q_j (x - u_j)^2 with q = softmax_j(log v_j - gamma |x - u_j|^2). The paper's network
    has a neuron for each pair of support vectors. Because |x - u_j|^2 - |x - u_i|^2 separates, and the gate
    of Eq. 10 cancels the denominator of Eq. 4, these splits give the same relevance at linear cost. An
    infinite gamma is the hard minimum: the nearest support vector (the first one on a tie) takes all.

    Parameters
    ----------
    support : (P, d) the support vectors, ordered by cluster
    sizes : (K,) the number of support vectors of each cluster
    gamma : the stiffness of the soft minimum
    log_weights : (P,) log v_j; by default v_j = 1 / (size of the cluster). A hard minimum ignores them.
    scale : (d,) the weight of the square of each feature; 1 by default
    """

    adds_up = False
    unattributed = "the loss in soft minima"
    title = "several support vectors for each cluster, as in kernel k-means"

    def __init__(
        self,
        support: Floats,
        sizes: Codes,
        gamma: float,
        log_weights: Floats | None = None,
        scale: Floats | None = None,
    ) -> None:
        self.sizes = np.array(sizes)
        self.gamma = float(gamma)
        # A soft minimum need not resolve the closest support vectors of two clusters; a hard minimum must.
        near = 0.0 if np.isinf(self.gamma) else 0.1
        self.units = SquaredEnergy(support, scale, near=near, groups=self.unit_cluster)
        self.n_clusters, self.n_features = len(self.sizes), self.units.n_features
        self.offset, self.landmarks = self.units.offset, self.units.prototypes
        if log_weights is None:
            log_weights = np.repeat(-np.log(self.sizes), self.sizes)
        self.log_weights = np.array(log_weights, dtype=np.float64)
        self._hard = np.isinf(self.gamma)
        # With beta = gamma, the density of a cluster is the mixture of its support vectors.
        self.stiffness = None if self._hard else self.gamma
        self._slope = 1.0 if self._hard else self.gamma
        self._constants = np.zeros((len(support), 1)) if self._hard else self.log_weights[:, None]
        self._linear = self._both = None
        if self.units.linear is not None:  # the matrix product then includes gamma and weights
            slopes, bias = self.units.linear
            self._linear = -self._slope * slopes, self._constants - self._slope * bias[:, None]
            self._both = np.hstack([slopes, self.units.squares])  # then a mixture is one matrix product
        self._mix_width = self.n_features if self._both is None else 4 * self.n_features
        stops = np.cumsum(self.sizes)
        # the support vectors of each cluster
        self.clusters = [slice(stop - size, stop) for stop, size in zip(stops, self.sizes, strict=True)]
        self._chunks = _chunks(self.sizes, max(_FEW_UNITS, len(support) // 8))
        self._widest = max(int(self.sizes[chunk].sum()) for chunk in self._chunks)
        # Wide enough for the work arrays; a larger width shortens blocks, so that a chunk stays in the cache.
        self.scratch_width = max(self._widest + self._mix_width, len(support) // 4)

    @property
    def unit_cluster(self) -> Codes:
        """(P,) the cluster of each support vector."""
        return np.repeat(np.arange(len(self.sizes)), self.sizes)

    def energies(self, x: Floats, out: Floats, scratch: Floats) -> None:
        """Write the soft or hard minimum over the support vectors of each cluster (Eq. 6)."""
        for chunk in self._chunks:
            for k, logits in self._logits(x, chunk, scratch):
                top = logits.max(axis=0)
                if not self._hard:
                    logits -= top
                    np.exp(logits, out=logits)
                    top += np.log(row_sums(logits.T))
                    top /= self.gamma
                np.negative(top, out=out[:, k])

    def combine(self, x: Floats, weights: Floats, out: Floats, scratch: Floats) -> None:
        """Write sum_k a_k sum_j q_j e_j; the weights a_k q_j of a row also sum to zero."""
        _, mixture = carve(scratch, self._widest, self._mix_width)
        mixture[...] = 0.0
        for units, q in self._shared(x, weights, scratch):
            self._mix(x, units, q, mixture)
        if self._both is None:
            out[...] = mixture
            return
        total, _ = carve(mixture, 2 * self.n_features, 2 * self.n_features)
        np.multiply(total[:, : self.n_features], x, out=out)
        out += total[:, self.n_features :]

    def differentiate(self, x: Floats, weights: Floats, out: Floats, scratch: Floats) -> None:
        """Write sum_k a_k sum_j q_j grad |x - u_j|^2, without the 2 x that all support vectors share."""
        _, some = carve(scratch, self._widest, self.n_features)
        out[...] = 0.0
        for units, q in self._shared(x, weights, scratch):
            product(q.T, self.units.slopes[units], out=some)
            out += some

    @property
    def parts(self) -> Parts:
        """The support vectors."""
        return Parts(self.unit_cluster, self._constants[:, 0])

    @property
    def squared_terms(self) -> tuple[Floats, Floats] | None:
        """The support vectors and the scale."""
        return self.units.squared_terms if type(self) is KernelEnergy else None

    def terms(self, x: Floats, cluster: Codes, out: Floats, scratch: Floats) -> None:
        """Write (x - u_j)^2."""
        self.units.terms(x, cluster, out, *carve(scratch, self.units.scratch_width))

    def quadratics(self) -> Quadratics | None:
        """Return the squared distances from the support vectors if the minimum is hard."""
        known = self.squared_terms
        if known is None or not self._hard:
            return None
        root = np.diag(self.units.step_scale())[None]
        none = np.zeros(len(known[0]))
        return Quadratics(self.unit_cluster, known[0], root, none.astype(np.intp), none, is_distance=True)

    def step_scale(self) -> Floats:
        """Return the square root of the scale."""
        return self.units.step_scale()

    def shares(self, x: Floats, k: int) -> Floats:
        """Return q_j for the support vectors of one cluster, (p, b)."""
        logits = np.empty((self.sizes[k], len(x)))
        self._write_logits(x, self.clusters[k], logits)
        self._share(logits, np.ones(len(x)))
        return logits

    def _mix(self, x: Floats, part: slice, weights: Floats, mixture: Floats) -> None:
        """Add sum_j w_j e_j over a slice of the support vectors to a mixture; ``weights`` is (slice, b)."""
        if self._both is not None:
            total, some = carve(mixture, 2 * self.n_features, 2 * self.n_features)
            product(weights.T, self._both[part], out=some)
            total += some
            return
        split = np.empty_like(x)
        for row, j in enumerate(range(part.start, part.stop)):
            self.units.split(x, j, split)
            split *= weights[row][:, None]
            mixture += split

    def _shared(self, x: Floats, weights: Floats, scratch: Floats) -> Iterator[tuple[slice, Floats]]:
        """Yield the support vectors of each chunk of clusters with their weights a_k q_j, (p, b)."""
        for chunk in self._chunks:
            for k, logits in self._logits(x, chunk, scratch):
                self._share(logits, weights[:, k])
            (q,) = carve(scratch, int(self.sizes[chunk].sum()))
            yield self._units_of(chunk), q.reshape(-1, len(x))

    def _share(self, logits: Floats, weights: Floats) -> None:
        """Turn logits into a_k q_j, in place."""
        if self._hard:
            nearest = logits.argmax(axis=0)
            logits[...] = 0.0
            logits[nearest, np.arange(len(nearest))] = weights
            return
        logits -= logits.max(axis=0)
        np.exp(logits, out=logits)
        logits *= weights / row_sums(logits.T)

    def _logits(self, x: Floats, chunk: slice, scratch: Floats) -> Iterator[tuple[int, Floats]]:
        """Yield each cluster of a chunk with log v_j - gamma |x - u_j|^2 for its support vectors, (p, b).

        Support vectors are on the first axis, so that pooling over them reads contiguous memory.
        """
        part = self._units_of(chunk)
        (room,) = carve(scratch, part.stop - part.start)
        logits = room.reshape(-1, len(x))
        self._write_logits(x, part, logits)
        for k in range(chunk.start, chunk.stop):
            own = self.clusters[k]
            yield k, logits[own.start - part.start : own.stop - part.start]

    def _write_logits(self, x: Floats, part: slice, logits: Floats) -> None:
        if self._linear is not None:
            slopes, bias = self._linear
            product_by_columns(slopes[part], x, logits)
            logits += bias[part]
            return
        split = np.empty_like(x)
        for row, j in enumerate(range(part.start, part.stop)):
            self.units.split(x, j, split)
            np.einsum("bd->b", split, out=logits[row])
        logits *= -self._slope
        logits += self._constants[part]

    def _units_of(self, chunk: slice) -> slice:
        return slice(self.clusters[chunk.start].start, self.clusters[chunk.stop - 1].stop)


def _chunks(sizes: Codes, most: int) -> list[slice]:
    """Return runs of one or more clusters, each with at most ``most`` support vectors if possible."""
    chunks, start = [], 0
    for k in range(1, len(sizes) + 1):
        if k == len(sizes) or sizes[start : k + 1].sum() > most:
            chunks.append(slice(start, k))
            start = k
    return chunks
