"""Energies of clusters given by their members, with splits that are pooled over the members."""

from __future__ import annotations

import threading
from abc import abstractmethod
from functools import cached_property
from hashlib import blake2b
from typing import NamedTuple

import numpy as np

from whycluster.core.arrays import Codes, Floats
from whycluster.core.energies import Energy
from whycluster.models.energies.search import METRICS, Metric

LANDMARKS = 256  # members per cluster over which a split is pooled
_BLOCK_ROWS = 1024  # keeps the work arrays of a block in the cache
_CACHE_BYTES = 32 << 20
NO_ROW = -1  # no row determines D_k


class Found(NamedTuple):
    """The energies of a block.

    Attributes
    ----------
    energies : (b, n_clusters)
    constants : (b, n_clusters), or (n_clusters,) for all rows: the part of each energy that is split in fixed
        shares
    decisive : (b, K) the training row that determines D_k, or `NO_ROW` if D_k does not depend on x
    """

    energies: Floats
    constants: Floats
    decisive: Codes

    @property
    def nbytes(self) -> int:
        """The memory of the arrays, in bytes."""
        return sum(each.nbytes for each in self)


class PooledEnergy(Energy):
    """Energies that a subclass finds for a block of rows, split in proportion to differences from members.

    An energy is divided among the features in proportion to the mean difference of the row from the members
    of its cluster, in which near members count more. So the split depends on all features in which the row
    differs from the cluster, not only on those in which it differs from a single member. Constants and the
    energy of noise are split in fixed shares.

    Parameters
    ----------
    members : (P, d) the members of the clusters, ordered by cluster
    sizes : (K,) the number of members of each cluster
    metric : "euclidean", "manhattan" or "haversine"
    has_noise : whether the last energy is that of noise
    shares : (d,) the part of a constant that each feature gets; by default, all get the same
    """

    def __init__(
        self, members: Floats, sizes: Codes, metric: str, has_noise: bool, shares: Floats | None = None
    ) -> None:
        self.members = np.array(members, dtype=np.float64, order="C")
        self.sizes, self.metric = np.array(sizes, dtype=np.intp), metric
        self.landmarks = self.members if metric == "euclidean" else None
        self.n_clusters, self.n_features = len(self.sizes) + has_noise, self.members.shape[1]
        self.offset = None
        equal = np.full(self.n_features, 1.0 / self.n_features)
        self.shares = equal if shares is None else np.array(shares, dtype=np.float64)
        # Blocks are at most about this long, so that the work arrays stay in the cache.
        width = (8 << 20) // (8 * _BLOCK_ROWS) - 2 * self.n_features - 2 * self.n_clusters
        self.scratch_width = max(1, width)

    @abstractmethod
    def find(self, x: Floats) -> Found:
        """Return the energies of a block."""

    def energies(self, x: Floats, out: Floats, scratch: Floats) -> None:  # noqa: ARG002  # needs no workspace
        """Write the energies."""
        out[...] = self.found(x).energies

    def combine(self, x: Floats, weights: Floats, out: Floats, scratch: Floats) -> None:  # noqa: ARG002  # needs no workspace
        """Write the weighted splits."""
        energies, constants, _ = self.found(x)
        pooled = weights * (energies - constants)
        out[...] = (weights * energies - pooled).sum(axis=1)[:, None] * self.shares
        for k, landmarks in enumerate(self._landmarks):
            split = self.comparison.pool(x, landmarks)
            total = split.sum(axis=1)
            split[total <= 0.0] = 1.0  # the row equals all members
            total[total <= 0.0] = self.n_features
            split *= (pooled[:, k] / total)[:, None]
            out += split

    @property
    def comparison(self) -> Metric:
        """How rows are compared."""
        return METRICS[self.metric]

    @cached_property
    def slices(self) -> list[slice]:
        """The members of each cluster."""
        stops = np.cumsum(self.sizes)
        return [slice(stop - size, stop) for stop, size in zip(stops, self.sizes, strict=True)]

    @cached_property
    def _landmarks(self) -> list[Floats]:
        """Up to `LANDMARKS` evenly spaced members of each cluster."""
        return [
            self.members[part][np.unique(np.linspace(0, size - 1, min(size, LANDMARKS)).astype(np.intp))]
            for part, size in zip(self.slices, self.sizes.tolist(), strict=True)
        ]

    @cached_property
    def _recent(self) -> _Recent:
        return _Recent()

    def found(self, x: Floats) -> Found:
        """Return the energies of a block, which may have been found before."""
        return self._recent.get(x) or self._recent.put(x, self.find(x))

    def __getstate__(self) -> dict[str, object]:
        """Leave out what can be computed again."""
        derived = {n for n in vars(self) if isinstance(getattr(type(self), n, None), cached_property)}
        return {name: value for name, value in vars(self).items() if name not in derived}


class _Recent:
    """The results of recent blocks. The passes over the data read the same blocks several times."""

    def __init__(self) -> None:
        self._lock, self._found, self._bytes = threading.Lock(), dict[bytes, Found](), 0

    def get(self, x: Floats) -> Found | None:
        """Return the result of a block that was stored, or None."""
        key = _key(x)
        with self._lock:
            return self._found.get(key)

    def put(self, x: Floats, found: Found) -> Found:
        """Store the result of a block; old results are dropped once they take too much memory."""
        key = _key(x)
        with self._lock:
            if key in self._found:  # another thread was faster
                return found
            self._found[key] = found
            self._bytes += found.nbytes
            while self._bytes > _CACHE_BYTES:
                self._bytes -= self._found.pop(next(iter(self._found))).nbytes
        return found


def _key(x: Floats) -> bytes:
    return blake2b(np.ascontiguousarray(x).data, digest_size=16, key=str(x.shape).encode()).digest()
