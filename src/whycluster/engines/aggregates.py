"""Summaries of the clusters, accumulated over parts: means, and samples for estimating quantiles."""

from __future__ import annotations

import threading
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from whycluster.core.arrays import Floats
from whycluster.data.groups import group_means, group_sums
from whycluster.data.table import Table
from whycluster.engines.results import PartResult
from whycluster.explanations.summaries.members import MemberClusters, count_pairs
from whycluster.explanations.summaries.summary import Summary, summary_of

QUANTILES = (0.05, 0.25, 0.5, 0.75, 0.95)
_SAMPLE = 4096  # the maximum number of rows in the sample of a cluster
_SAMPLE_BYTES = 64 << 20  # the maximum size of the samples of all clusters
_NOT_COMPARED = "categories, which are not compared"
_BOOLEAN, _NUMBER, _DATE, _CATEGORY = range(4)  # if the parts of a column differ, the last kind counts


@dataclass
class Aggregate:
    """The means of d features, and a sample of the rows, for each of K clusters.

    Each row gets a random number, its priority. The sample of a cluster consists of the m rows with the
    smallest priorities. So the samples of several parts can be merged into one uniform sample.

    Attributes
    ----------
    size : (K,) the number of rows
    relevance : (K, d) the mean relevance
    mean, count : (K, d) the mean value and the number of values; both are 0 for categories
    kind : (d,) whether the values are booleans (0), numbers (1), dates (2) or categories (3)
    n_invalid : the number of rows that could not be explained
    pairs, n_rows : (P,) cluster * K + competitor, sorted, and the number of rows with this pair
    priority, sample : (K, m) and (K, m, d) the priority and the relevance of the sampled rows. If a cluster
        has fewer than m rows, the unused places hold infinity and NaN
    limit : (K,) the largest priority that was considered. Rows with larger priorities were left out, because
        other parts had enough rows with smaller priorities. If those parts are removed later, the sample
        still includes only rows up to this limit
    """

    size: NDArray[np.intp]
    relevance: Floats
    mean: Floats
    count: Floats
    kind: NDArray[np.intp]
    n_invalid: int
    pairs: NDArray[np.int64]
    n_rows: NDArray[np.int64]
    priority: Floats
    sample: Floats
    limit: Floats

    @classmethod
    def empty(cls, n_clusters: int, n_features: int, most: int = _SAMPLE) -> Aggregate:
        """Return an empty aggregate with room for a sample of up to ``most`` rows per cluster."""
        shape = (n_clusters, n_features)
        m = _sample_size(n_clusters, n_features, most)
        return cls(
            np.zeros(n_clusters, np.intp),
            np.zeros(shape),
            np.zeros(shape),
            np.zeros(shape),
            np.full(n_features, _BOOLEAN, np.intp),
            0,
            np.zeros(0, np.int64),
            np.zeros(0, np.int64),
            np.full((n_clusters, m), np.inf),
            np.full((n_clusters, m, n_features), np.nan),
            np.full(n_clusters, np.inf),
        )

    def add(
        self, result: PartResult, rng: np.random.Generator, reservoir: ReservoirSample | None = None
    ) -> None:
        """Add the rows of a result; ``reservoir`` holds the smallest priorities of all parts so far."""
        self.n_invalid += result.n_invalid
        if result.table is None:
            return
        valid = slice(None) if result.valid is None else result.valid
        cluster, relevance = result.cluster[valid], result.relevance[valid]
        n_clusters = len(self.size)
        size = np.bincount(cluster, minlength=n_clusters)
        mean, count = _means(result.table, cluster, n_clusters)
        total = group_sums(relevance, cluster, n_clusters)
        self._mix(size, total / np.maximum(size, 1)[:, None], mean, count)
        self.kind = np.maximum(self.kind, _kinds(result.table))
        self._count(*count_pairs(cluster, result.competitor[valid], n_clusters))
        priority = rng.random(len(cluster))
        highest = self.priority.max(axis=1)  # after many rows, few new rows have smaller priorities
        if reservoir is not None:
            self.limit = np.minimum(self.limit, reservoir.highest)
            highest = np.minimum(highest, self.limit)
        within = np.flatnonzero(priority < highest[cluster])
        for k in np.unique(cluster[within]).tolist():
            rows = within[cluster[within] == k]
            self._sample(k, priority[rows], relevance[rows])

    def merge(self, other: Aggregate) -> None:
        """Add another aggregate."""
        self._mix(other.size, other.relevance, other.mean, other.count)
        self.kind = np.maximum(self.kind, other.kind)
        self._count(other.pairs, other.n_rows)
        self.n_invalid, self.limit = self.n_invalid + other.n_invalid, np.minimum(self.limit, other.limit)
        for k in range(len(self.size)):
            sampled = np.isfinite(other.priority[k])
            self._sample(k, other.priority[k, sampled], other.sample[k, sampled])

    def _mix(self, size: Any, relevance: Floats, mean: Floats, count: Floats) -> None:
        """Combine the means with other means, weighted by the numbers of rows and values."""
        self.relevance = _weighted(self.relevance, self.size[:, None], relevance, size[:, None])
        self.mean = _weighted(self.mean, self.count, mean, count)
        self.count, self.size = self.count + count, self.size + size

    def _count(self, pairs: NDArray[np.int64], n_rows: NDArray[np.int64]) -> None:
        """Add the numbers of rows of some pairs."""
        self.pairs, place = np.unique(np.concatenate([self.pairs, pairs]), return_inverse=True)
        total = np.bincount(place, np.concatenate([self.n_rows, n_rows]), len(self.pairs))
        self.n_rows = total.astype(np.int64)

    def _sample(self, k: int, priority: Floats, relevance: NDArray[Any]) -> None:
        """Add rows of a cluster to its sample if their priorities are small enough."""
        m = self.priority.shape[1]
        both = np.concatenate([self.priority[k], priority])
        first = np.argsort(both, kind="stable")[:m]
        self.sample[k] = np.concatenate([self.sample[k], relevance])[first]
        self.priority[k] = both[first]

    def summary(self, labels: NDArray[Any], names: list[str]) -> Summary:
        """Return the summary of all rows, with the relevance and the means of `Explanation.summary`.

        Categories have no means. Features are compared with the clusters whose means differ most, since the
        contributions of the competitors are not known.
        """
        dates, booleans, categories = (
            frozenset(np.flatnonzero(self.kind == kind).tolist()) for kind in (_DATE, _BOOLEAN, _CATEGORY)
        )
        present = self.size > 0
        mean = np.where(self.count > 0, self.mean, np.nan)
        members = MemberClusters.of_pairs(self.pairs, self.n_rows, len(labels))
        return summary_of(
            members,
            labels,
            self.relevance[present],
            mean[present],
            self.count[present],
            names,
            dates=dates,
            booleans=booleans,
            notes=dict.fromkeys(categories, _NOT_COMPARED),
        )

    def quantiles(self) -> Floats:
        """Estimate quantiles of the relevance, (K, d, q), from the samples. Empty clusters get NaN."""
        found, sampled = np.full((*self.relevance.shape, len(QUANTILES)), np.nan), self._is_sampled
        for k in np.flatnonzero(self.size):
            rows = self.sample[k][sampled[k]]
            found[k] = np.quantile(rows, QUANTILES, axis=0).T if len(rows) else np.nan
        return found

    @property
    def _is_sampled(self) -> NDArray[np.bool_]:
        """(K, m) whether each place in the samples holds a row within the limit."""
        return np.isfinite(self.priority) & (self.priority <= self.limit[:, None])

    @property
    def rank_error(self) -> Floats:
        """(K,) the standard error of the rank of the median, which is 0 if the sample contains all rows."""
        n_sampled = self._is_sampled.sum(axis=1)
        error = 0.5 / np.sqrt(np.maximum(n_sampled, 1))
        return np.where(n_sampled < self.size, error, 0.0)

    def save(self, path: Path, run: str) -> None:
        """Write the aggregate of a run to an npz file that can be read without unpickling."""
        n = int(np.isfinite(self.priority).sum(axis=1).max())
        samples = {"priority": self.priority[:, :n], "sample": self.sample[:, :n]}
        with path.open("xb") as file:
            np.savez(file, run=np.array(run), **{**vars(self), **samples})

    @classmethod
    def load(cls, path: Path, run: str) -> Aggregate | None:
        """Read an aggregate; return None if the file is missing, damaged or from another run."""
        try:
            with path.open("rb") as opened, np.load(opened, allow_pickle=False) as file:
                if str(file["run"]) != run:
                    return None
                found = {name: file[name] for name in cls.__dataclass_fields__}
                return cls(**{**found, "n_invalid": int(found["n_invalid"])})
        except Exception:  # NumPy does not document what reading a damaged file raises
            return None

    def fits(self, n_clusters: int, n_features: int) -> bool:
        """Return whether all arrays have the right shapes for these numbers of clusters and features."""
        n = self.sample.shape[1:2]
        shapes: dict[str, tuple[int, ...]] = {
            **dict.fromkeys(("relevance", "mean", "count"), (n_clusters, n_features)),
            **dict.fromkeys(("size", "limit"), (n_clusters,)),
            "kind": (n_features,),
            **dict.fromkeys(("pairs", "n_rows"), self.n_rows.shape[:1]),
            "priority": (n_clusters, *n),
            "sample": (n_clusters, *n, n_features),
        }
        arrays = vars(self)
        if not all(arrays[name].shape == s and arrays[name].dtype.kind in "fi" for name, s in shapes.items()):
            return False
        cluster = self.pairs // n_clusters
        if self.pairs.dtype.kind != "i" or not ((cluster >= 0) & (cluster < n_clusters)).all():
            return False
        return np.array_equal(np.bincount(cluster, self.n_rows, n_clusters), self.size)


class ReservoirSample:
    """The smallest priorities in each cluster among the rows of all parts so far.

    A row with a larger priority will not be in the final sample. So if there are many parts, most of them
    keep only a few rows.
    """

    def __init__(self, n_clusters: int, n_features: int, most: int = _SAMPLE) -> None:
        self._priority = np.full((n_clusters, _sample_size(n_clusters, n_features, most)), np.inf)
        self._lock = threading.Lock()

    @property
    def highest(self) -> Floats:
        """(K,) the largest priority kept for each cluster, or infinity until its sample is full."""
        return np.asarray(self._priority.max(axis=1))

    def add(self, part: Aggregate) -> None:
        """Add the priorities of a part."""
        with self._lock:
            m = self._priority.shape[1]
            both = np.concatenate([self._priority, part.priority], axis=1)
            self._priority = np.partition(both, m - 1, axis=1)[:, :m]


def _sample_size(n_clusters: int, n_features: int, most: int) -> int:
    """Return the maximum number of rows in the sample of a cluster."""
    return max(1, min(most, _SAMPLE_BYTES // (8 * n_clusters * n_features)))


def _weighted(a: Floats, weight_a: Any, b: Floats, weight_b: Any) -> Floats:
    part = weight_b / np.maximum(weight_a + weight_b, 1)
    return np.asarray(a + (b - a) * part)


def _means(table: Table, cluster: Any, n_clusters: int) -> tuple[Floats, Floats]:
    """Return the means in each cluster, (K, d), and the numbers of values, (K, d).

    Both are 0 for a column of categories, and for a column that has no values in the cluster.
    """
    reference, moved, count = group_means(table, cluster, n_clusters)
    found, categories = moved + reference, [*table.categories]
    found[:, categories], count[:, categories] = 0.0, 0.0
    return np.nan_to_num(found), count


def _kinds(table: Table) -> NDArray[np.intp]:
    """Return the kind of each column, (d,)."""
    kind = np.full(len(table.feature_names), _NUMBER, np.intp)
    kind[[*table.booleans]], kind[[*table.dates]], kind[[*table.categories]] = _BOOLEAN, _DATE, _CATEGORY
    return kind
