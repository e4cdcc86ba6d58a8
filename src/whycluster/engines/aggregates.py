"""What rows say of their clusters, added up part by part: means, and samples to take quantiles from."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any
from zipfile import BadZipFile

import numpy as np
from numpy.typing import NDArray

from whycluster.arrays import Floats
from whycluster.engines.parts import Answer
from whycluster.summary import Summary, means_of, summary_of, sums_of
from whycluster.table import Table

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
    """

    size: NDArray[np.intp]
    relevance: Floats
    mean: Floats
    count: Floats
    n_invalid: int
    priority: Floats
    sample: NDArray[np.float32]

    @classmethod
    def empty(cls, n_clusters: int, n_features: int, most: int = _SAMPLE) -> Aggregate:
        """Of no rows; it will keep at most so many of each cluster."""
        shape = (n_clusters, n_features)
        m = max(1, min(most, _SAMPLE_BYTES // (4 * n_clusters * n_features)))
        return cls(
            np.zeros(n_clusters, np.intp),
            np.zeros(shape),
            np.zeros(shape),
            np.zeros(shape),
            0,
            np.full((n_clusters, m), np.inf),
            np.full((n_clusters, m, n_features), np.nan, np.float32),
        )

    def add(self, answer: Answer, rng: np.random.Generator) -> None:
        """Add the rows of an answer."""
        self.n_invalid += answer.n_invalid
        if answer.table is None:
            return
        valid = slice(None) if answer.valid is None else answer.valid
        cluster, relevance = answer.cluster[valid], answer.relevance[valid]
        n_clusters = len(self.size)
        size = np.bincount(cluster, minlength=n_clusters)
        mean, count = _means(answer.table, cluster, n_clusters)
        total = sums_of(relevance, cluster, np.ones(len(cluster), bool), n_clusters)
        part = Aggregate(
            size,
            total / np.maximum(size, 1)[:, None],
            mean,
            count,
            0,
            *self._draw(cluster, relevance, rng.random(len(cluster))),
        )
        self.merge(part)

    def _draw(self, cluster: Any, relevance: Any, priority: Floats) -> tuple[Floats, NDArray[np.float32]]:
        """The rows that come into the sample: only those that drew less than the greatest that is there."""
        chances, sample = np.full_like(self.priority, np.inf), np.full_like(self.sample, np.nan)
        within = np.flatnonzero(priority < self.priority.max(axis=1)[cluster])
        for k in np.unique(cluster[within]):
            rows = within[cluster[within] == k]
            rows = rows[np.argsort(priority[rows], kind="stable")[: chances.shape[1]]]
            chances[k, : len(rows)], sample[k, : len(rows)] = priority[rows], relevance[rows]
        return chances, sample

    def merge(self, other: Aggregate) -> None:
        """Add what was added up elsewhere."""
        self.relevance = _weighted(self.relevance, self.size[:, None], other.relevance, other.size[:, None])
        self.mean = _weighted(self.mean, self.count, other.mean, other.count)
        self.count = self.count + other.count
        self.size = self.size + other.size
        self.n_invalid += other.n_invalid
        priority = np.concatenate([self.priority, other.priority], axis=1)
        first = np.argsort(priority, axis=1, kind="stable")[:, : self.priority.shape[1]]
        if (first < self.priority.shape[1]).all():
            return  # nothing new came in
        self.priority = np.take_along_axis(priority, first, axis=1)
        sample = np.concatenate([self.sample, other.sample], axis=1)
        self.sample = np.take_along_axis(sample, first[..., None], axis=1)

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
        found = np.full((*self.relevance.shape, len(QUANTILES)), np.nan)
        for k in np.flatnonzero(self.size):
            rows = self.sample[k][np.isfinite(self.priority[k])]
            found[k] = np.quantile(rows.astype(np.float64), QUANTILES, axis=0).T
        return found

    @property
    def rank_error(self) -> Floats:
        """(K,) the standard error of the rank of a median from the sample; 0 where it holds all rows."""
        drawn = np.isfinite(self.priority).sum(axis=1)
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
            with np.load(path, allow_pickle=False) as file:
                if str(file["run"]) != run:
                    return None
                found = {name: file[name] for name in cls.__dataclass_fields__}
        except (OSError, ValueError, KeyError, EOFError, BadZipFile):
            return None
        return cls(**{**found, "n_invalid": int(found["n_invalid"])})


def _weighted(a: Floats, weight_a: Any, b: Floats, weight_b: Any) -> Floats:
    part = weight_b / np.maximum(weight_a + weight_b, 1)
    return np.asarray(a + (b - a) * part)


def _means(table: Table, cluster: Any, n_clusters: int) -> tuple[Floats, Floats]:
    """Means of the values in each cluster, (K, d), 0 where there is none, and of how many they are."""
    found, count = means_of(table, cluster, n_clusters)
    apart = [*table.categories, *table.dates]
    found[:, apart], count[:, apart] = 0.0, 0.0
    return np.nan_to_num(found), count
