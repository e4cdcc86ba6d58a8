"""The sequential rule for one row, as it is read."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]


def log_chance(odds: dict[int, float]) -> float:
    """log P(c), from the odds of each competitor."""
    return -math.log(1.0 + sum(odds.values()))


def gains(contrasts: Array, cluster: int, prior: Array, beta: float) -> Array:
    """What each feature adds to log P(c): contrasts is (K, d), e_k - e_c.

    The first three features are taken one by one, each the best then; after that, in rounds of half as many
    as are taken already, the best of a round first.
    """
    n_clusters, d = contrasts.shape
    odds = {k: float(prior[k] / prior[cluster]) for k in range(n_clusters) if k != cluster}
    gain, left = np.zeros(d), list(range(d))

    def after(i: int, now: dict[int, float]) -> dict[int, float]:
        return {k: value * math.exp(-beta * contrasts[k, i]) for k, value in now.items()}

    while left:
        done = d - len(left)
        size = 1 if done < 3 else math.ceil(done / 2)
        best = sorted(left, key=lambda i: sum(after(i, odds).values()))[:size]
        for i in best:
            new = after(i, odds)
            gain[i] = log_chance(new) - log_chance(odds)
            odds = new
            left.remove(i)
    return gain
