"""Algorithm 1 and its density, transcribed from the paper: one row, one step, one draw at a time."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
Complete = Callable[[Array, list[int], np.random.Generator], Array]


def curve(
    assign: Callable[[Array], int], z: Array, relevance: Array, complete: Complete, rng: np.random.Generator
) -> Array:
    """Return whether the row is in its cluster with 0, 1, ..., d known features."""
    cluster = assign(z)
    known: list[int] = []
    found = [float(assign(complete(z, known, rng)) == cluster)]
    for i in np.argsort(-relevance):
        known.append(int(i))
        found.append(float(assign(complete(z, known, rng)) == cluster))
    return np.array(found)


def area(values: Array) -> float:
    """Return the area by the trapezoidal rule, times 100 / d."""
    d = len(values) - 1
    return float(sum((values[t] + values[t + 1]) / 2 for t in range(d)) * 100 / d)


def weights(data: Array, z: Array, known: list[int], variance: float) -> Array:
    """Return the probability that a completion starts from each row of the data."""
    found = np.array([np.exp(-sum((z[i] - x[i]) ** 2 for i in known) / (2 * variance)) for x in data])
    return np.asarray(found / found.sum())


def density(data: Array, variance: float) -> Complete:
    """Return the conditional sampler of a kernel density estimate of standardized data."""

    def complete(z: Array, known: list[int], rng: np.random.Generator) -> Array:
        j = rng.choice(len(data), p=weights(data, z, known, variance))
        drawn = rng.normal(data[j], np.sqrt(variance))
        drawn[known] = z[known]
        return np.asarray(drawn)

    return complete


def next_variance(data: Array, variance: float) -> float:
    """Return the variance after one fixed-point step of the leave-one-out likelihood."""
    n, d = data.shape
    total = 0.0
    for i in range(n):
        distances = [float(((data[i] - data[j]) ** 2).sum()) for j in range(n) if j != i]
        w = np.exp(-np.array(distances) / (2 * variance))
        total += float((w / w.sum()) @ np.array(distances))
    return float(total / (n * d))


def without_each(assign: Callable[[Array], int], z: Array) -> Array:
    """Return 1 for each feature whose replacement by 0 changes the cluster, else 0."""
    found = []
    for i in range(len(z)):
        changed = z.copy()
        changed[i] = 0.0
        found.append(float(assign(changed) != assign(z)))
    return np.array(found)


def integrated_gradients(gradient: Callable[[Array], Array], z: Array, n_steps: int = 10) -> Array:
    """Integrate the gradient from the origin, evaluated at the midpoint of each step."""
    total = np.zeros_like(z)
    for step in range(n_steps):
        total += gradient(z * (step + 0.5) / n_steps) / n_steps
    return total * z
