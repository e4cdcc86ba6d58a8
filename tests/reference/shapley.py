"""Shapley values by brute force: every coalition of features, with the other features at a reference."""

from __future__ import annotations

import math
from collections.abc import Callable
from itertools import combinations

import numpy as np
from numpy.typing import NDArray

Vector = NDArray[np.float64]


def shapley(function: Callable[[Vector], float], x: Vector, reference: Vector) -> Vector:
    """Return phi_i = sum over S without i of |S|! (d - |S| - 1)! / d! (f(S + i) - f(S))."""
    d = len(x)
    values = np.zeros(d)

    def present(features: tuple[int, ...]) -> float:
        point = reference.copy()
        point[list(features)] = x[list(features)]
        return function(point)

    for i in range(d):
        others = [j for j in range(d) if j != i]
        for size in range(d):
            weight = math.factorial(size) * math.factorial(d - size - 1) / math.factorial(d)
            for coalition in combinations(others, size):
                values[i] += weight * (present((*coalition, i)) - present(coalition))
    return values
