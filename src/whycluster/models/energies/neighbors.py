"""Energies from the nearest members of each cluster: DBSCAN, HDBSCAN, single linkage, votes of neighbors."""

from __future__ import annotations

import inspect
from functools import cached_property
from typing import Any

import numpy as np

from whycluster.core.arrays import Codes, Floats
from whycluster.core.energies.energy import Quadratics
from whycluster.models.energies.pooled import NO_ROW, Found, PooledEnergy
from whycluster.models.energies.search import Points

_FIRST, _FACTOR = 2, 4  # number of members searched first for a mutual reachability, then times this
_SAME = 1e-12  # relative to the largest value of the members; steps before the model may round differently


class NeighborEnergy(PooledEnergy):
    """s_k = g(D_k) + b_k, where D_k is the distance from the row to its nearest members of cluster k.

    D_k is one of these:

    - the distance to the m-th nearest member
    - the mutual reachability: the minimum over the members j of max(core(x), core(j), d(x, j)), where core(x)
      is the distance from x to its m-th nearest training row
    - with ``votes``, the distance to the m(x)-th nearest member, where m(x) is the number of votes of the
      winner among the m nearest training rows. The cluster with the most votes has the lowest energy.

    g(d) is d^2, or what the metric sums over the features. Noise, if it has a floor, has a constant energy.

    With ``leaves_out``, a member does not count as its own neighbor: if a row equals a member, one such
    member is left out, unless the cluster has no other.

    Parameters
    ----------
    members : (P, d) the members that count as neighbors, ordered by cluster
    sizes : (K,) the number of members of each cluster
    metric : "euclidean", "manhattan" or "haversine"
    n_neighbors : m
    bias : (K,) b_k; 0 by default
    floor : the energy of noise, or None if there is no noise
    cores : (P,) the core distances of the members, for mutual reachability
    others : (Q, d) training rows that belong to no cluster; they count for core(x) and vote for no cluster
    votes : whether neighbors vote
    leaves_out : whether a member does not count as its own neighbor
    shares : (d,) the part of b_k and of the floor that each feature gets; by default, all get the same
    """

    title = "nearest members of each cluster"

    def __init__(
        self,
        members: Floats,
        sizes: Codes,
        metric: str = "euclidean",
        *,
        n_neighbors: int = 1,
        bias: Floats | None = None,
        floor: float | None = None,
        cores: Floats | None = None,
        others: Floats | None = None,
        votes: bool = False,
        leaves_out: bool = True,
        shares: Floats | None = None,
    ) -> None:
        super().__init__(members, sizes, metric, has_noise=floor is not None, shares=shares)
        self.n_neighbors, self.votes, self.leaves_out = int(n_neighbors), votes, leaves_out
        self.bias = np.zeros(len(self.sizes)) if bias is None else np.array(bias, dtype=np.float64)
        self.floor = None if floor is None else float(floor)
        self.cores = None if cores is None else np.array(cores, dtype=np.float64)
        self.others = None
        if others is not None and len(others):
            self.others = np.array(others, dtype=np.float64, order="C")
        if self.floor is not None:
            self.title = f"{type(self).title}, and noise far from all of them"

    def differentiate(self, x: Floats, weights: Floats, out: Floats, scratch: Floats) -> None:  # noqa: ARG002  # needs no workspace
        """Write the weighted gradients of g(d) for the pair of rows that determines each D_k."""
        found, everyone = self.found(x), self.everyone.points
        out[...] = 0.0
        for k in range(len(self.sizes)):
            other = found.decisive[:, k]
            moves = np.flatnonzero(other != NO_ROW)  # otherwise the core distance of a member decides
            out[moves] += weights[moves, k, None] * self.comparison.slopes(x[moves], everyone[other[moves]])

    @property
    def without_noise(self) -> NeighborEnergy | None:
        """The energies of the clusters alone, or None if there is no noise."""
        return None if self.floor is None else self._with(floor=None)

    def apart_from(self, x: Floats) -> NeighborEnergy:
        """Return the energies without the training row that equals x, so that x can move away from it."""
        distance, index = self.everyone.nearest(x, 1)
        if distance[0, 0] > self.same:
            return self
        row = int(index[0, 0])
        if row >= len(self.members):
            assert self.others is not None
            return self._with(
                others=np.delete(self.others, row - len(self.members), axis=0), leaves_out=False
            )
        sizes = self.sizes.copy()
        sizes[np.searchsorted(np.cumsum(sizes), row, side="right")] -= 1
        if not sizes.all():
            return self
        cores = None if self.cores is None else np.delete(self.cores, row)
        return self._with(
            members=np.delete(self.members, row, axis=0), sizes=sizes, cores=cores, leaves_out=False
        )

    def quadratics(self) -> Quadratics | None:
        """Return the squared distances from all members, and the floor, if the nearest member decides."""
        if self.cores is not None or self.votes or self.n_neighbors != 1 or self.metric != "euclidean":
            return None
        n, has_noise = len(self.members), self.floor is not None
        cluster = np.repeat(np.arange(self.n_clusters), [*self.sizes, *[1] * has_noise])
        centers = np.concatenate([self.members, np.zeros((int(has_noise), self.n_features))])
        roots = np.stack([np.eye(self.n_features), np.zeros((self.n_features, self.n_features))])
        root = (np.arange(n + has_noise) >= n).astype(np.intp)
        bias = np.append(self.bias, 0.0 if self.floor is None else self.floor)[cluster]
        return Quadratics(cluster, centers, roots, root, bias, is_distance=True)

    def _with(self, **changes: Any) -> NeighborEnergy:
        """Return the energy with other parameters."""
        names = inspect.signature(NeighborEnergy).parameters
        return NeighborEnergy(**{name: changes.get(name, getattr(self, name)) for name in names})

    @cached_property
    def _clusters(self) -> list[Points]:
        return [Points(self.members[part], self.comparison) for part in self.slices]

    @cached_property
    def everyone(self) -> Points:
        """All training rows, members first."""
        rows = self.members if self.others is None else np.concatenate([self.members, self.others])
        return Points(rows, self.comparison)

    @cached_property
    def same(self) -> float:
        """The largest distance at which a row counts as equal to a member."""
        if not self.leaves_out:
            return -1.0
        return _SAME * float(np.sqrt(np.square(np.abs(self.members).max(axis=0)).sum()))

    def find(self, x: Floats) -> Found:
        """Find D_k for all clusters, and the training rows that determine them."""
        distance = np.empty((len(x), len(self.sizes)))
        decisive = np.empty(distance.shape, dtype=np.intp)
        core, at_core, rank = self._around(x)
        for k, part in enumerate(self.slices):
            if self.cores is not None:
                distance[:, k], decisive[:, k] = self._reachability(x, k, core, at_core)
                continue
            distance[:, k], member = self._rank(x, k, rank, core)
            decisive[:, k] = member + part.start
        if self.votes:
            self._break_ties(distance, decisive, rank, core)
        constants = self.bias if self.floor is None else np.append(self.bias, self.floor)
        energies = np.empty((len(x), self.n_clusters))
        energies[...] = constants
        energies[:, : len(self.sizes)] += self.comparison.energy(distance)
        return Found(energies, constants, decisive)

    def _around(self, x: Floats) -> tuple[Floats, Codes, Codes]:
        """Return core(x), the training row there, and the rank of the decisive members, (b,) each."""
        rank = np.full(len(x), self.n_neighbors)
        if (self.cores is None and not self.votes) or self.n_neighbors == 0:
            return np.zeros(len(x)), np.zeros(len(x), dtype=np.intp), rank
        n = min(self.n_neighbors, len(self.everyone) - self.leaves_out)
        distance, index = self._nearest(self.everyone, x, n)
        if self.votes:
            stops = np.cumsum(self.sizes)
            cluster = np.searchsorted(stops, index, side="right")  # K for rows that belong to no cluster
            rank = np.max([(cluster == k).sum(axis=1) for k in range(len(self.sizes))], axis=0)
            rank = np.maximum(rank, 1)
        return distance[:, -1], index[:, -1], rank

    def _break_ties(self, distance: Floats, decisive: Codes, rank: Codes, core: Floats) -> None:
        """Let the first of several clusters with the most votes win; nearer ones move to its distance."""
        # Their decisive members are among the voters; searches in different trees may round differently.
        most = distance <= core[:, None] * (1.0 + _SAME)
        first = most.argmax(axis=1)
        rows = np.flatnonzero((most.sum(axis=1) > 1) & (rank > 0))
        own, where = distance[rows, first[rows]], decisive[rows, first[rows]]
        later = most[rows] & (distance[rows] < own[:, None])
        distance[rows] = np.where(later, own[:, None], distance[rows])
        decisive[rows] = np.where(later, where[:, None], decisive[rows])

    def _nearest(self, points: Points, x: Floats, n: int) -> tuple[Floats, Codes]:
        """Return the n nearest points, without the row itself; n is less than the number of points."""
        if not self.leaves_out or n >= len(points):
            return points.nearest(x, n)
        distance, index = points.nearest(x, n + 1)
        first = (distance[:, 0] <= self.same).astype(np.intp)[:, None] + np.arange(n)
        return np.take_along_axis(distance, first, axis=1), np.take_along_axis(index, first, axis=1)

    def _rank(self, x: Floats, k: int, rank: Codes, core: Floats) -> tuple[Floats, Codes]:
        """Return the distance to the rank-th nearest member of k, and its position, (b,) each.

        If a cluster has fewer members, the missing ones count as farther than all others: the distance to the
        last one, or to the last voter if that is farther, is multiplied by the rank and divided by the number
        of members.
        """
        points = self._clusters[k]
        n_all = max(1, len(points) - (self.leaves_out and len(points) > 1))
        n = min(int(rank.max()), n_all)
        distance, index = self._nearest(points, x, n)
        column = np.minimum(rank, n)[:, None] - 1
        there = np.take_along_axis(distance, column, axis=1)[:, 0]
        if n < rank.max():
            short = rank > n
            there = np.where(short, np.maximum(there, core) * (rank / n), there)
        return there, np.take_along_axis(index, column, axis=1)[:, 0]

    def _reachability(self, x: Floats, k: int, core: Floats, at_core: Codes) -> tuple[Floats, Codes]:
        """Return the smallest mutual reachability to a member of k, and the decisive row, (b,) each.

        More and more members are searched until none that is farther away can have a smaller one.
        """
        assert self.cores is not None
        part = self.slices[k]
        points, cores = self._clusters[k], self.cores[part]
        best, decisive = np.empty(len(x)), np.empty(len(x), dtype=np.intp)
        pending, n = np.arange(len(x)), _FIRST
        n_all = max(1, len(points) - (self.leaves_out and len(points) > 1))
        while pending.size:
            n = min(n, n_all)
            distance, index = self._nearest(points, x[pending], n)
            reach = np.maximum(distance, cores[index])
            column = reach.argmin(axis=1)[:, None]
            there, near, member = (
                np.take_along_axis(each, column, axis=1)[:, 0] for each in (reach, distance, index)
            )
            best[pending], decisive[pending] = there, np.where(near < there, NO_ROW, member + part.start)
            pending = pending[(n < n_all) & (distance[:, -1] < there) & (there > core[pending])]
            n *= _FACTOR
        return np.maximum(best, core), np.where(core > best, at_core, decisive)
