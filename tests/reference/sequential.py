"""The sequential rule for one row, as it is read."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]


def log_chance(weights: list[float], cluster_of: list[int], cluster: int) -> float:
    """log P(c), from the weights of all parts."""
    own = sum(weight for weight, k in zip(weights, cluster_of, strict=True) if k == cluster)
    return math.log(own / sum(weights))


def gains(terms: Array, cluster_of: list[int], cluster: int, weights: Array, beta: float) -> Array:
    """What each feature adds to log P(c): terms is (P, d), of parts j of the clusters ``cluster_of``.

    The first three features are taken one by one, each the best then; after that, in rounds of half as many
    as are taken already, the best of a round first.
    """
    d = terms.shape[1]
    now = [float(weight) for weight in weights]
    gain, left = np.zeros(d), list(range(d))

    def after(i: int) -> list[float]:
        return [weight * math.exp(-beta * terms[j, i]) for j, weight in enumerate(now)]

    while left:
        done = d - len(left)
        size = 1 if done < 3 else math.ceil(done / 2)
        best = sorted(left, key=lambda i: -log_chance(after(i), cluster_of, cluster))[:size]
        for i in best:
            new = after(i)
            gain[i] = log_chance(new, cluster_of, cluster) - log_chance(now, cluster_of, cluster)
            now = new
            left.remove(i)
    return gain
