"""What rows say of their clusters, added up part by part: means, and samples to take quantiles from."""

from __future__ import annotations

import threading
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from whycluster.core.arrays import Floats
from whycluster.data.table import Table
from whycluster.engines.request import PartResult
from whycluster.explanations.summary import Summary, means_of, summary_of, sums_of

QUANTILES = (0.05, 0.25, 0.5, 0.75, 0.95)
_SAMPLE = 4096  # rows of each cluster
_SAMPLE_BYTES = 64 << 20  # for all clusters


@dataclass
class Aggregate:
    """Sums over the rows of each of K clusters, of d features.

    Attributes
    ----------
    size : (K,) how many rows
    relevance : (K, d) their mean relevance
    mean, count : (K, d) the mean value, and of how many values it is; none of columns that hold no numbers
    n_invalid : how many rows could not be explained
    priority, sample : (K, m) and (K, m, d) random numbers and the relevance of the rows that drew the m
        smallest of each cluster, NaN where there are fewer: a uniform sample, also of rows of several parts
    limit : (K,) rows that drew more were not looked at, since others had drawn less; if these are gone, the
        sample ends there
    """

    size: NDArray[np.intp]
    relevance: Floats
    mean: Floats
    count: Floats
    n_invalid: int
    priority: Floats
    sample: Floats
    limit: Floats

    @classmethod
    def empty(cls, n_clusters: int, n_features: int, most: int = _SAMPLE) -> Aggregate:
        """Of no rows; it will keep at most so many of each cluster."""
        shape = (n_clusters, n_features)
        m = _sample_size(n_clusters, n_features, most)
        return cls(
            np.zeros(n_clusters, np.intp),
            np.zeros(shape),
            np.zeros(shape),
            np.zeros(shape),
            0,
            np.full((n_clusters, m), np.inf),
            np.full((n_clusters, m, n_features), np.nan),
            np.full(n_clusters, np.inf),
        )

    def add(self, answer: PartResult, rng: np.random.Generator, drawn: ReservoirSample | None = None) -> None:
        """Add the rows of an answer; ``drawn`` is what those of other parts drew."""
        self.n_invalid += answer.n_invalid
        if answer.table is None:
            return
        valid = slice(None) if answer.valid is None else answer.valid
        cluster, relevance = answer.cluster[valid], answer.relevance[valid]
        n_clusters = len(self.size)
        size = np.bincount(cluster, minlength=n_clusters)
        mean, count = _means(answer.table, cluster, n_clusters)
        total = sums_of(relevance, cluster, np.ones(len(cluster), bool), n_clusters)
        self._mix(size, total / np.maximum(size, 1)[:, None], mean, count)
        priority = rng.random(len(cluster))
        enough = self.priority.max(axis=1)  # soon, only few draw less
        if drawn is not None:
            self.limit = np.minimum(self.limit, drawn.enough)
            enough = np.minimum(enough, self.limit)
        within = np.flatnonzero(priority < enough[cluster])
        for k in np.unique(cluster[within]).tolist():
            rows = within[cluster[within] == k]
            self._sample(k, priority[rows], relevance[rows])

    def merge(self, other: Aggregate) -> None:
        """Add what was added up elsewhere."""
        self._mix(other.size, other.relevance, other.mean, other.count)
        self.n_invalid, self.limit = self.n_invalid + other.n_invalid, np.minimum(self.limit, other.limit)
        for k in range(len(self.size)):
            drawn = np.isfinite(other.priority[k])
            self._sample(k, other.priority[k, drawn], other.sample[k, drawn])

    def _mix(self, size: Any, relevance: Floats, mean: Floats, count: Floats) -> None:
        """Take other means into account, each by how many rows or values it is of."""
        self.relevance = _weighted(self.relevance, self.size[:, None], relevance, size[:, None])
        self.mean = _weighted(self.mean, self.count, mean, count)
        self.count, self.size = self.count + count, self.size + size

    def _sample(self, k: int, priority: Floats, relevance: NDArray[Any]) -> None:
        """Let rows of a cluster into its sample, if they drew less than those that are there."""
        m = self.priority.shape[1]
        both = np.concatenate([self.priority[k], priority])
        first = np.argsort(both, kind="stable")[:m]
        self.sample[k] = np.concatenate([self.sample[k], relevance])[first]
        self.priority[k] = both[first]

    def summary(self, labels: NDArray[Any], names: list[str]) -> Summary:
        """As `Explanation.summary` gives it; of columns that hold no numbers, relevance only."""
        present = self.size > 0
        mean = np.where(self.count > 0, self.mean, np.nan)
        return summary_of(
            labels[present],
            self.size[present],
            self.relevance[present],
            mean[present],
            self.count[present],
            names,
        )

    def quantiles(self) -> Floats:
        """(K, d, q) of the relevance in each cluster, from the sample; NaN of a cluster without rows."""
        found, drawn = np.full((*self.relevance.shape, len(QUANTILES)), np.nan), self._is_drawn
        for k in np.flatnonzero(self.size):
            rows = self.sample[k][drawn[k]]
            found[k] = np.quantile(rows, QUANTILES, axis=0).T if len(rows) else np.nan
        return found

    @property
    def _is_drawn(self) -> NDArray[np.bool_]:
        """(K, m) which rows of the samples there are."""
        return np.isfinite(self.priority) & (self.priority <= self.limit[:, None])

    @property
    def rank_error(self) -> Floats:
        """(K,) the standard error of the rank of a median from the sample; 0 where it holds all rows."""
        drawn = self._is_drawn.sum(axis=1)
        error = 0.5 / np.sqrt(np.maximum(drawn, 1))
        return np.where(drawn < self.size, error, 0.0)

    def save(self, path: Path, run: str) -> None:
        """Write it as arrays, which are read without unpickling; of the samples, what there is of them."""
        n = int(np.isfinite(self.priority).sum(axis=1).max())
        drawn = {"priority": self.priority[:, :n], "sample": self.sample[:, :n]}
        with path.open("xb") as file:
            np.savez(file, run=np.array(run), **{**vars(self), **drawn})

    @classmethod
    def load(cls, path: Path, run: str) -> Aggregate | None:
        """Read it, to merge it into another; None if it is not there, not whole, or of another run."""
        try:
            with path.open("rb") as opened, np.load(opened, allow_pickle=False) as file:
                if str(file["run"]) != run:
                    return None
                found = {name: file[name] for name in cls.__dataclass_fields__}
                return cls(**{**found, "n_invalid": int(found["n_invalid"])})
        except Exception:  # what reading damaged files may raise is listed nowhere
            return None

    def fits(self, n_clusters: int, n_features: int) -> bool:
        """Whether it is of so many clusters and features, and all of its arrays are as they should be."""
        n = self.sample.shape[1:2]
        shapes: dict[str, tuple[int, ...]] = {
            **dict.fromkeys(("relevance", "mean", "count"), (n_clusters, n_features)),
            **dict.fromkeys(("size", "limit"), (n_clusters,)),
            "priority": (n_clusters, *n),
            "sample": (n_clusters, *n, n_features),
        }
        arrays = vars(self)
        return all(arrays[name].shape == s and arrays[name].dtype.kind in "fi" for name, s in shapes.items())


class ReservoirSample:
    """The smallest random numbers that rows of each cluster have drawn so far, of all parts.

    Who draws more than the last of them will be in no sample, so that of many parts most keep little.
    """

    def __init__(self, n_clusters: int, n_features: int, most: int = _SAMPLE) -> None:
        self._priority = np.full((n_clusters, _sample_size(n_clusters, n_features, most)), np.inf)
        self._lock = threading.Lock()

    @property
    def enough(self) -> Floats:
        """(K,) of each cluster the last of them; infinite while there is room for more."""
        return np.asarray(self._priority.max(axis=1))

    def add(self, part: Aggregate) -> None:
        """Take those of a part into account."""
        with self._lock:
            m = self._priority.shape[1]
            both = np.concatenate([self._priority, part.priority], axis=1)
            self._priority = np.partition(both, m - 1, axis=1)[:, :m]


def _sample_size(n_clusters: int, n_features: int, most: int) -> int:
    """Of how many rows of a cluster the relevance is kept."""
    return max(1, min(most, _SAMPLE_BYTES // (8 * n_clusters * n_features)))


def _weighted(a: Floats, weight_a: Any, b: Floats, weight_b: Any) -> Floats:
    part = weight_b / np.maximum(weight_a + weight_b, 1)
    return np.asarray(a + (b - a) * part)


def _means(table: Table, cluster: Any, n_clusters: int) -> tuple[Floats, Floats]:
    """Means of the values in each cluster, (K, d), 0 where there is none, and of how many they are."""
    found, count = means_of(table, cluster, n_clusters)
    apart = [*table.categories, *table.dates]
    found[:, apart], count[:, apart] = 0.0, 0.0
    return np.nan_to_num(found), count
