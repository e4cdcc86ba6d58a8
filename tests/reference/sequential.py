"""The sequential rule for one row, feature by feature, and its blend with the path rule."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]


def log_chance(weights: list[float], cluster_of: list[int], cluster: int) -> float:
    """Return log P(c) from the weights of all parts; it is not rounded to 0 if P(c) is nearly 1."""
    own = sum(weight for weight, k in zip(weights, cluster_of, strict=True) if k == cluster)
    others = sum(weight for weight, k in zip(weights, cluster_of, strict=True) if k != cluster)
    return -math.log1p(others / own)


def gains(terms: Array, cluster_of: list[int], cluster: int, weights: Array, beta: float) -> Array:
    """Return the gain of each feature in log P(c).

    The first three features are taken one by one, always the best one. After that, each round adds half as
    many features as were taken before, the best first.

    Parameters
    ----------
    terms : (P, d) the terms of all parts
    cluster_of : (P,) the cluster of each part
    cluster : the cluster c
    weights : (P,) the weights of the parts
    beta : the stiffness
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


def blended(gain: Array, path: Array, evidence: float) -> Array:
    """Return a third of the path rule's relevance and two thirds of the gains, brought to the same sum.

    Gains in total up to 5 times as large as the relevance count in full, and from 10 times on not at all.
    They also count less if features bear less than half of the evidence, and not at all without evidence.

    Parameters
    ----------
    gain : (d,) the gain of each feature
    path : (d,) the relevance according to the path rule
    evidence : the evidence of the row
    """
    whole, total = sum(gain), sum(path)
    if whole <= 0 or total <= 0 or evidence <= 0:
        return path
    scaled = [total / whole * g for g in gain]
    times = sum(abs(s) for s in scaled) / sum(abs(r) for r in path)
    eta = 2 / 3
    if times > 5:
        eta *= max(0.0, (10 - times) / 5)
    if total < evidence / 2:
        eta *= total / (evidence / 2)
    return np.array([(1 - eta) * r + eta * s for r, s in zip(path, scaled, strict=True)])
