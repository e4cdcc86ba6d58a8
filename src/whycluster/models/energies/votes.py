"""Energies from votes of neighbors: communities of a graph (Leiden, Louvain) and spectral clusterings.

Each member has scores, which determine its cluster. A row that equals a member has the member's scores. The
scores of a new row are the weighted mean of the votes of its neighbors.
"""

from __future__ import annotations

from abc import abstractmethod
from copy import copy
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from whycluster.core.arrays import Codes, Floats
from whycluster.models.energies.pooled import Found, PooledEnergy
from whycluster.models.energies.search import METRICS, Points, RowFinder

if TYPE_CHECKING:
    from typing_extensions import Self

_SAME = 1e-9  # relative to the largest member; steps before the model may round differently
_KERNEL_BYTES = 16 << 20  # the largest array of affinities
_HALVINGS = 60  # how often the interval that contains the width of a neighborhood is halved


class VoteEnergy(PooledEnergy):
    """Energies that depend on a row only through its scores, (m,).

    The weights of the neighbors of a new row sum to 1 and are one of these:

    - with ``gamma``, proportional to exp(-gamma d^2), for all members
    - otherwise, if ``fades``, proportional to exp(-d / sigma) for the nearest members, as in UMAP, where
      sigma solves sum exp(-(d - min d) / sigma) = log2(n_neighbors + 1)
    - otherwise equal, for the nearest members

    Parameters
    ----------
    members : (P, d) the members, ordered by cluster
    sizes : (K,) the number of members of each cluster
    known : (P, m) the scores of the members
    votes : (P, m) the votes of the members for new rows
    n_neighbors : how many of the nearest members vote for a new row; not used with ``gamma``
    fades : whether near members have more weight; not used with ``gamma``
    gamma : the stiffness of a Gaussian kernel, or None
    """

    def __init__(
        self,
        members: Floats,
        sizes: Codes,
        known: Floats,
        votes: Floats,
        *,
        n_neighbors: int,
        fades: bool,
        gamma: float | None = None,
    ) -> None:
        super().__init__(members, sizes, "euclidean", has_noise=False)
        self.known = np.array(known, dtype=np.float64, order="C")
        self.votes = np.array(votes, dtype=np.float64, order="C")
        self.n_neighbors, self.fades = int(n_neighbors), bool(fades)
        self.gamma = None if gamma is None else float(gamma)

    @abstractmethod
    def from_scores(self, scores: Floats) -> Floats:
        """Return the energies, (b, K), that follow from scores, (b, m)."""

    @abstractmethod
    def slopes(self, scores: Floats, weights: Floats) -> Floats:
        """Return the gradient of sum_k weights_k s_k with respect to the scores, (b, m)."""

    def find(self, x: Floats) -> Found:
        """Find the scores of the rows, and their energies."""
        energies = self.from_scores(self._scores(x))
        return Found(energies, np.zeros(self.n_clusters), np.empty((len(x), 0), dtype=np.intp))

    def differentiate(self, x: Floats, weights: Floats, out: Floats, scratch: Floats) -> None:  # noqa: ARG002  # needs no workspace
        """Write the gradients; that of a row that equals a member is the gradient of a new row there."""
        slopes = self.slopes(self._of_new(x), weights)
        size = max(1, _KERNEL_BYTES // (8 * max(len(self.members), self.n_neighbors * x.shape[1])))
        for start in range(0, len(x), size):
            some = slice(start, start + size)
            out[some] = self._pull(x[some], slopes[some])

    def apart_from(self, x: Floats) -> Self:
        """Return the energies without the members that equal x, so that x can move away from them."""
        same = np.unique(self._finder.find(x)[1])
        cluster = np.searchsorted(np.cumsum(self.sizes), same, side="right")
        sizes = self.sizes - np.bincount(cluster, minlength=len(self.sizes))
        if not same.size or not sizes.all():
            return self
        found = copy(self)  # without cached results, which depend on the members
        found.members, found.known, found.votes = (
            np.delete(each, same, axis=0) for each in (self.members, self.known, self.votes)
        )
        found.sizes = sizes
        return found

    @cached_property
    def _finder(self) -> RowFinder:
        return RowFinder(self.members, _SAME)

    @cached_property
    def _points(self) -> Points:
        return Points(self.members, METRICS[self.metric])

    def _scores(self, x: Floats) -> Floats:
        """Return the scores of the rows, (b, m); those of members that equal each other are averaged."""
        row, member = self._finder.find(x)
        count = np.bincount(row, minlength=len(x))
        scores = np.zeros((len(x), self.known.shape[1]))
        np.add.at(scores, row, self.known[member])
        scores /= np.maximum(count, 1)[:, None]
        new = np.flatnonzero(count == 0)
        if new.size:
            scores[new] = self._of_new(x[new])
        return scores

    def _of_new(self, x: Floats) -> Floats:
        """Return the weighted means of the votes, (b, m)."""
        if self.gamma is None:
            index, weights, _ = self._near(x)
            return _weighted(index, weights, self.votes)
        size = max(1, _KERNEL_BYTES // (8 * len(self.members)))
        parts = [self._kernel(x[start : start + size]) @ self.votes for start in range(0, len(x), size)]
        return np.concatenate(parts)

    def _kernel(self, x: Floats) -> Floats:
        """Return the weights of all members, (b, P)."""
        assert self.gamma is not None
        center = self._center
        moved, u = x - center, self.members - center
        logits = moved @ (2.0 * self.gamma * u.T) - self.gamma * np.einsum("pd,pd->p", u, u)
        logits -= logits.max(axis=1, keepdims=True)
        np.exp(logits, out=logits)
        logits /= logits.sum(axis=1, keepdims=True)
        return np.asarray(logits)

    @cached_property
    def _center(self) -> Floats:
        return np.asarray(self.members.mean(axis=0))

    def _near(self, x: Floats) -> tuple[Codes, Floats, Floats]:
        """Return the nearest members and their weights, (b, k) each, and the width sigma, (b,)."""
        n = min(self.n_neighbors, len(self.members))
        distance, index = self._points.nearest(x, n)
        if not self.fades:
            return index, np.full(distance.shape, 1.0 / n), np.full(len(x), np.inf)
        far = distance - distance[:, :1]
        sigma = _width(far, np.log2(n + 1.0))
        weights = _fading(far, sigma)
        return index, weights / weights.sum(axis=1, keepdims=True), sigma

    def _pull(self, x: Floats, slopes: Floats) -> Floats:
        """Return the gradient of slopes . score for new rows, (b, d)."""
        if self.gamma is not None:
            weights = self._kernel(x)
            gain = slopes @ self.votes.T
            gain -= np.einsum("bp,bp->b", weights, gain)[:, None]
            return np.asarray(2.0 * self.gamma * ((weights * gain) @ self.members))
        index, weights, sigma = self._near(x)
        if not self.fades:
            return np.zeros_like(x)
        gain = np.einsum("bm,bkm->bk", slopes, self.votes[index])
        gain -= np.einsum("bk,bk->b", weights, gain)[:, None]
        away = x[:, None] - self.members[index]
        distance = np.sqrt(np.square(away).sum(axis=2))
        away /= np.maximum(distance, np.finfo(float).tiny)[:, :, None]
        far = distance - distance[:, :1]
        lever = np.einsum("bk,bk->b", weights, far)
        change = np.einsum("bk,bkd->bd", weights, away - away[:, :1])
        # sigma changes so that the sum that it solves stays the same
        widens = np.divide(change, lever[:, None], out=np.zeros_like(change), where=lever[:, None] > 0.0)
        found = np.einsum("bk,bkd->bd", weights * gain * far, np.broadcast_to(widens[:, None], away.shape))
        found -= np.einsum("bk,bkd->bd", weights * gain, away)
        return np.asarray(found / sigma[:, None])


class CommunityEnergy(VoteEnergy):
    """s_k = -log(v_k / sum_l v_l), where v_k is the vote for community k, less its penalty, plus a constant.

    Leiden and Louvain move a node to the community k that gains most, sum_j A_xj [j in k] - g a_x K_k / 2m
    for modularity and sum_j A_xj [j in k] - g n_k for the constant Potts model. These are the scores of
    the members, divided by a_x (modularity) or by the mean of all a_x, where a_x = sum_j A_xj. The constant
    makes all v_k positive.

    Parameters
    ----------
    members, sizes, known, n_neighbors, fades : as for `VoteEnergy`
    penalty : (K,) the penalty of each community for a new row
    """

    title = "votes of neighbors in a graph"

    def __init__(
        self,
        members: Floats,
        sizes: Codes,
        known: Floats,
        penalty: Floats,
        *,
        n_neighbors: int = 15,
        fades: bool = True,
    ) -> None:
        self.penalty = np.array(penalty, dtype=np.float64)
        votes = np.repeat(np.eye(len(sizes)) - self.penalty, sizes, axis=0)
        super().__init__(members, sizes, known, votes, n_neighbors=n_neighbors, fades=fades)
        lowest = min(float(-self.penalty.max()), float(self.known.min(initial=0.0)))
        self._base = 0.5 / self.n_neighbors - lowest

    def from_scores(self, scores: Floats) -> Floats:
        """Return -log(v_k / sum_l v_l)."""
        v = np.maximum(scores + self._base, 0.5 / self.n_neighbors)
        return np.asarray(np.log(v.sum(axis=1, keepdims=True)) - np.log(v))

    def slopes(self, scores: Floats, weights: Floats) -> Floats:
        """Return -w_k / v_k; the sum cancels, because the weights sum to 0."""
        return np.asarray(-weights / (scores + self._base))


CENTERS, LINES, DIRECTIONS = HEADS = ("centers", "lines", "directions")


class SpectralEnergy(VoteEnergy):
    """How far a row is from each cluster in the spectral embedding z(x), whose coordinates are the scores.

    The head depends on how clusters were assigned in the embedding:

    - "centers" (k-means): s_k = |z - c_k|^2
    - "lines" (``cluster_qr``): s_k = |z|^2 - (z . c_k)^2, the squared distance to the line along c_k
    - "directions" (``discretize``): s_k = |z / |z| - c_k|^2, where c_k has length 1

    The coordinates are eigenvectors: z_j = sum_i P_ji z_i / lambda, where P is the affinity of each row to
    all others, divided by its sum. So member i votes z_i / lambda.

    Parameters
    ----------
    members, sizes, known, n_neighbors, gamma : as for `VoteEnergy`; the scores are the coordinates z
    eigenvalues : (m,) lambda
    centers : (K, m) c_k
    head : "centers", "lines" or "directions"
    """

    title = "distances in a spectral embedding"

    def __init__(
        self,
        members: Floats,
        sizes: Codes,
        known: Floats,
        eigenvalues: Floats,
        centers: Floats,
        head: str,
        *,
        n_neighbors: int = 1,
        gamma: float | None = None,
    ) -> None:
        self.eigenvalues = np.array(eigenvalues, dtype=np.float64)
        self.centers, self.head = np.array(centers, dtype=np.float64), head
        votes = known / self.eigenvalues
        super().__init__(members, sizes, known, votes, n_neighbors=n_neighbors, fades=False, gamma=gamma)

    def from_scores(self, scores: Floats) -> Floats:
        """Return the squared distances to the centers, lines or directions."""
        if self.head == CENTERS:
            away = [np.square(scores - center).sum(axis=1) for center in self.centers]
            return np.stack(away, axis=1)
        squares = np.square(scores).sum(axis=1, keepdims=True)
        if self.head == LINES:
            return np.asarray(squares - np.square(scores @ self.centers.T))
        return np.asarray(2.0 - 2.0 * _unit(scores) @ self.centers.T)

    def slopes(self, scores: Floats, weights: Floats) -> Floats:
        """Return the gradient; |z|^2 cancels, because the weights sum to 0."""
        if self.head == CENTERS:
            return np.asarray(-2.0 * weights @ self.centers)
        if self.head == LINES:
            return np.asarray(-2.0 * (weights * (scores @ self.centers.T)) @ self.centers)
        unit = _unit(scores)
        pulled = weights @ self.centers
        pulled -= np.einsum("bm,bm->b", pulled, unit)[:, None] * unit
        return np.asarray(-2.0 * pulled / np.linalg.norm(scores, axis=1, keepdims=True))


def _unit(scores: Floats) -> Floats:
    length = np.linalg.norm(scores, axis=1, keepdims=True)
    return np.asarray(np.divide(scores, length, out=np.zeros_like(scores), where=length > 0.0))


def _weighted(index: Codes, weights: Floats, votes: Floats) -> Floats:
    """Return the weighted sums of some votes for each row, (b, m), given (b, k) positions and weights."""
    from scipy import sparse  # takes time to import

    starts = np.arange(0, index.size + 1, index.shape[1])
    shape = (len(index), len(votes))
    return np.asarray(sparse.csr_array((weights.ravel(), index.ravel(), starts), shape=shape) @ votes)


def _fading(far: Floats, sigma: Floats) -> Floats:
    """Return exp(-far / sigma); the nearest members, with far = 0, have the weight 1."""
    scaled = np.divide(far, sigma[:, None], out=np.zeros_like(far), where=far > 0.0)
    return np.asarray(np.exp(-scaled))


def _width(far: Floats, total: float) -> Floats:
    """Return the sigma, (b,), for which sum exp(-far / sigma) is ``total``, by bisection of its logarithm."""
    scale = np.maximum(far.mean(axis=1), np.finfo(float).tiny)
    low, high = np.full(len(far), -30.0), np.full(len(far), 30.0)
    for _ in range(_HALVINGS):
        middle = (low + high) / 2.0
        above = _fading(far, scale * np.exp(middle)).sum(axis=1) > total
        high, low = np.where(above, middle, high), np.where(above, low, middle)
    return np.asarray(scale * np.exp((low + high) / 2.0))
