"""Pairs of rows, transcribed from the definition for models whose energies are easy to write down."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

Split = Callable[[Any, int], Any]
"""Gives the split of the energy of a row for a cluster, (d,), and the part that belongs to no feature."""


class Parts(NamedTuple):
    """The cluster and the competitor of both rows, the evidence, (2,), and its parts, (2, d)."""

    clusters: tuple[int, int]
    competitors: tuple[int, int]
    evidence: Any
    parts: Any


def kmeans_split(centers: Any, scale: Any = 1.0) -> Split:
    """Return the squared differences from a center, each times its scale."""
    return lambda x, k: (scale * (x - centers[k]) ** 2, 0.0)


def manhattan_split(centers: Any) -> Split:
    """Return the absolute differences from a center."""
    return lambda x, k: (np.abs(x - centers[k]), 0.0)


def diagonal_split(model: Any) -> Split:
    """Return the negative log density of each feature; the weight of the component belongs to none."""

    def split(x: Any, k: int) -> tuple[Any, float]:
        variance = model.covariances_[k]
        each = 0.5 * np.log(variance) + (x - model.means_[k]) ** 2 / (2.0 * variance)
        return each, -float(np.log(model.weights_[k]))

    return split


def pair(split: Split, n_clusters: int, x: Any, y: Any) -> Parts:
    """Return the evidence of two rows and its parts."""
    rows = (x, y)
    energies = [[sum(split(row, k)[0]) + split(row, k)[1] for k in range(n_clusters)] for row in rows]
    clusters = tuple(int(np.argmin(each)) for each in energies)
    if clusters[0] != clusters[1]:
        competitors = clusters[::-1]
    else:
        both = {
            k: sum(each[k] - each[clusters[0]] for each in energies)
            for k in range(n_clusters)
            if k != clusters[0]
        }
        nearest = min(both, key=lambda k: both[k])
        competitors = (nearest, nearest)
    evidence, parts = [], []
    for row, s, c, k in zip(rows, energies, clusters, competitors, strict=True):
        evidence.append(s[k] - s[c])
        parts.append(split(row, k)[0] - split(row, c)[0])
    return Parts(clusters, competitors, np.array(evidence), np.array(parts))  # type: ignore[arg-type]
