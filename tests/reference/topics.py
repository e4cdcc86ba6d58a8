"""Topic models and mixtures of binary features, word by word. Slow and obvious."""

from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import digamma

Vector = NDArray[np.floating[Any]]
Matrix = NDArray[np.floating[Any]]


def dirichlet_topics(
    counts: Vector, topics: Matrix, prior: float, n_iterations: int, tolerance: float
) -> tuple[Vector, Matrix]:
    """Return the weights gamma of the topics, (K,), and the part of each word, (K, d), of one document."""
    n_topics, n_words = topics.shape
    gamma = [1.0] * n_topics
    parts = np.zeros(topics.shape)
    for _ in range(n_iterations):
        theta = [math.exp(digamma(g) - digamma(sum(gamma))) for g in gamma]
        for word in range(n_words):
            total = sum(theta[k] * topics[k, word] for k in range(n_topics)) + np.finfo(float).eps
            for k in range(n_topics):
                parts[k, word] = counts[word] * theta[k] * topics[k, word] / total
        before, gamma = gamma, [prior + sum(parts[k]) for k in range(n_topics)]
        if sum(abs(new - old) for new, old in zip(gamma, before, strict=True)) / n_topics < tolerance:
            break
    return np.array(gamma), parts


def nearest_mixture(x: Vector, components: Matrix) -> tuple[Vector, Matrix]:
    """Return the w >= 0 for which w H is nearest to x, and the part of each feature, by all active sets."""
    best, found = np.inf, (np.zeros(len(components)), np.zeros(components.shape))
    for n_active in range(len(components) + 1):
        for active in itertools.combinations(range(len(components)), n_active):
            h = components[list(active)]
            parts = np.zeros(components.shape)
            parts[list(active)] = np.linalg.inv(h @ h.T) @ h * x if active else 0.0
            w = parts.sum(axis=1)
            far = float(np.linalg.norm(x - w @ components))
            if (w >= 0.0).all() and far < best - 1e-12:
                best, found = far, (w, parts)
    return found


def binary_mixture(x: Vector, probabilities: Matrix, weights: Vector) -> tuple[Vector, Matrix]:
    """Return -log of the weighted probability of each class, (K,), and the part of each feature, (K, d)."""
    parts = np.array(
        [[-math.log(p if v else 1.0 - p) for v, p in zip(x, row, strict=True)] for row in probabilities]
    )
    return parts.sum(axis=1) - np.log(weights), parts


def memberships(x: Vector, centers: Matrix, m: float) -> Vector:
    """Return the memberships of fuzzy c-means: 1 / sum_l (d_k / d_l)^(2 / (m - 1))."""
    d = [float(np.linalg.norm(x - center)) for center in centers]
    return np.array([1.0 / sum((own / other) ** (2.0 / (m - 1.0)) for other in d) for own in d])
