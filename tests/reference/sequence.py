"""The states of a hidden Markov model, by listing all paths. Slow and obvious."""

from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.floating[Any]]


def log_density(x: Array, mean: Array, covariance: Array) -> float:
    """Return log N(x; mean, covariance)."""
    away = x - mean
    squares = float(away @ np.linalg.inv(covariance) @ away)
    return -0.5 * (len(x) * math.log(2 * math.pi) + math.log(np.linalg.det(covariance)) + squares)


def state_energies(
    X: Array, start: Array, transitions: Array, means: Array, covariances: Array, sums: bool
) -> Array:
    """Return -log of the largest probability of a path through each state, or of their sum, (T, K)."""
    n, n_states = len(X), len(start)
    totals = np.zeros((n, n_states))
    for path in itertools.product(range(n_states), repeat=n):
        log_p = math.log(start[path[0]]) if start[path[0]] > 0 else -math.inf
        for before, after in itertools.pairwise(path):
            log_p += math.log(transitions[before, after]) if transitions[before, after] > 0 else -math.inf
        log_p += sum(log_density(x, means[k], covariances[k]) for x, k in zip(X, path, strict=True))
        for t, k in enumerate(path):
            totals[t, k] = totals[t, k] + math.exp(log_p) if sums else max(totals[t, k], math.exp(log_p))
    with np.errstate(divide="ignore"):
        return np.asarray(-np.log(totals))
