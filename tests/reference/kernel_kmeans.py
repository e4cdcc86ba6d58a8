"""Kernel k-means training, one row and one support vector at a time."""

from __future__ import annotations

import math

import numpy as np

from tests.reference.kernel import Kernel, assign, energy
from tests.reference.neon import Matrix


def inertia(X: Matrix, model: Kernel) -> float:
    """Return the sum over the rows of their lowest energy."""
    return sum(energy(x, model, assign(x, model)) for x in X)


def alternate(X: Matrix, model: Kernel) -> Kernel:
    """Assign each row to the cluster with the lowest energy, then take one EM step in each cluster."""
    labels = [assign(x, model) for x in X]
    support = []
    for k, vectors in enumerate(model.support):
        members = [x for x, label in zip(X, labels, strict=True) if label == k]
        sums, weights = np.zeros_like(vectors), np.zeros(len(vectors))
        for x in members:
            distances = [float((x - u) @ (x - u)) for u in vectors]
            parts = [math.exp(-model.gamma * (t - min(distances))) for t in distances]
            for j, part in enumerate(parts):
                sums[j] += part / sum(parts) * x
                weights[j] += part / sum(parts)
        support.append(np.where(weights[:, None] > 0, sums / np.maximum(weights, 1e-300)[:, None], vectors))
    return Kernel.plain(support, model.gamma)
