"""Votes of neighbors, written out row by row: communities of a graph, and spectral embeddings."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import brentq

Array = NDArray[Any]


def gain(graph: Array, labels: Array, x: int, k: Any, resolution: float, quality: str) -> float:
    """Return what a row gains in a community, divided by its degree or, for CPM, by the mean degree."""
    degree = graph.sum(axis=1)
    if degree[x] == 0:
        return 0.0
    others = [j for j in range(len(labels)) if labels[j] == k and j != x]
    vote = sum(graph[x, j] for j in others)
    if quality == "modularity":
        return float((vote - resolution * degree[x] * degree[others].sum() / degree.sum()) / degree[x])
    return float((vote - resolution * len(others)) / degree.mean())


def quality(graph: Array, labels: Array, resolution: float, kind: str) -> float:
    """Return the modularity or the constant Potts model of a partition, summed over all pairs."""
    degree, total = graph.sum(axis=1), 0.0
    for i in range(len(labels)):
        for j in range(len(labels)):
            if i != j and labels[i] == labels[j]:
                expected = degree[i] * degree[j] / degree.sum() if kind == "modularity" else 1.0
                total += graph[i, j] - resolution * expected
    return total


def fading(distances: list[float]) -> list[float]:
    """Return UMAP's weights of the nearest neighbors, divided by their sum."""
    far = [d - min(distances) for d in distances]
    goal = math.log2(len(far) + 1)
    if max(far) == 0.0:
        return [1.0 / len(far)] * len(far)
    log_sigma = brentq(lambda t: sum(math.exp(-f / math.exp(t)) for f in far) - goal, -20, 20, xtol=1e-13)
    weights = [math.exp(-f / math.exp(log_sigma)) for f in far]
    return [w / sum(weights) for w in weights]


def mean_vote(x: Array, members: Array, votes: Array, n: int, fades: bool) -> Array:
    """Return the weighted mean of the votes of the n nearest members."""
    distance = [float(np.sqrt(((x - u) ** 2).sum())) for u in members]
    near = sorted(range(len(members)), key=lambda j: distance[j])[:n]
    weights = fading([distance[j] for j in near]) if fades else [1.0 / n] * n
    return np.asarray(sum(w * votes[j] for w, j in zip(weights, near, strict=True)))


def kernel_vote(x: Array, members: Array, votes: Array, gamma: float) -> Array:
    """Return the mean of the votes of all members, weighted by a Gaussian kernel."""
    weights = [math.exp(-gamma * ((x - u) ** 2).sum()) for u in members]
    return np.asarray(sum(w * v for w, v in zip(weights, votes, strict=True)) / sum(weights))
