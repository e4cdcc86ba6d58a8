"""The relevance of words, computed for one word and one competitor at a time: slow and simple.

A document is a list of vectors, one per occurrence of a term. They add up to z, up to a constant.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tests.reference import neon
from tests.reference.kernel import compete, compete_on_path

Vector = NDArray[np.floating[Any]]
Matrix = NDArray[np.floating[Any]]


def competition(x: Vector, centroids: Matrix, c: int, beta: float, sizes: Vector | None) -> Vector:
    """Return the R_k of k-means, by the path rule if the sizes of the clusters are given."""
    if sizes is None:
        return neon.competition(x, centroids, c, beta)
    return neon.path_competition(x, centroids, c, beta, sizes)


def mean_of_words(
    words: Sequence[Vector], centroids: Matrix, beta: float, sizes: Vector | None = None
) -> list[float]:
    """Section VI-A: x is the mean of phi(t), and R_t = sum_k R_k / h_k * 1/|D| (phi(t) - m_k) . w_k."""
    x = np.sum(words, axis=0) / len(words)
    c = neon.assign(x, centroids)
    R = competition(x, centroids, c, beta, sizes)
    result = []
    for phi in words:
        relevance = 0.0
        for k in neon.competitors(centroids, c):
            w = 2 * (centroids[c] - centroids[k])
            m = (centroids[c] + centroids[k]) / 2
            relevance += R[k] / neon.detect(x, centroids, c, k) * float((phi - m) @ w) / len(words)
        result.append(relevance)
    return result


def occurrences(
    z: Vector, parts: Sequence[Vector], centroids: Matrix, beta: float, sizes: Vector | None = None
) -> list[float]:
    """K-means on z: each occurrence gets its vector's product with w_k and an equal share of the rest."""
    c = neon.assign(z, centroids)
    R = competition(z, centroids, c, beta, sizes)
    result = [0.0] * len(parts)
    for k in neon.competitors(centroids, c):
        h, w = neon.detect(z, centroids, c, k), 2 * (centroids[c] - centroids[k])
        left = h - sum(float(v @ w) for v in parts)
        for i, v in enumerate(parts):
            result[i] += R[k] / h * (float(v @ w) + left / len(parts))
    return result


def kernel(
    words: Sequence[Vector],
    support: Sequence[Matrix],
    gamma: float,
    beta: float,
    sizes: Vector | None = None,
) -> list[float]:
    """Kernel k-means on the mean of the words: a soft minimum over the support vectors of each cluster."""
    x = np.sum(words, axis=0) / len(words)
    s, split, slope = [], [], []
    for units in support:
        distances = [float((x - u) @ (x - u)) for u in units]
        parts = [math.exp(-gamma * distance) / len(units) for distance in distances]
        s.append(-math.log(sum(parts)) / gamma)
        q = [part / sum(parts) for part in parts]
        split.append(sum(q_j * distance for q_j, distance in zip(q, distances, strict=True)))
        slope.append(sum(q_j * 2 * (x - u) for q_j, u in zip(q, units, strict=True)))
    c = s.index(min(s))
    h = {k: s[k] - s[c] for k in range(len(s)) if k != c}
    R = compete(h, beta) if sizes is None else compete_on_path(h, c, beta, sizes)
    result = [0.0] * len(words)
    for k, h_k in h.items():
        a = R[k] / h_k
        products = [float(word @ (slope[k] - slope[c])) / len(words) for word in words]
        left = split[k] - split[c] - sum(products)
        for i, product in enumerate(products):
            result[i] += a * (product + left / len(words))
    return result
