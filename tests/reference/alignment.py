"""Dynamic time warping by listing all paths. Slow and obvious."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

Matrix = NDArray[np.floating[Any]]
Path = list[tuple[int, int]]


def paths(n: int, m: int) -> Iterator[Path]:
    """Yield all paths from (0, 0) to (n - 1, m - 1) that move by one step in either direction or in both."""
    if (n, m) == (1, 1):
        yield [(0, 0)]
        return
    for before in ((n - 1, m - 1), (n - 1, m), (n, m - 1)):
        if min(before) > 0:
            for path in paths(*before):
                yield [*path, (n - 1, m - 1)]


def alignment(series: Matrix, center: Matrix, gamma: float) -> tuple[float, Matrix]:
    """Return the cost of the best path or, with gamma > 0, the soft minimum over all paths, and its split."""
    found = list(paths(len(series), len(center)))
    costs = [sum(float(((series[t] - center[s]) ** 2).sum()) for t, s in path) for path in found]
    least = min(costs)
    weights = [math.exp((least - cost) / gamma) if gamma else float(cost == least) for cost in costs]
    split = np.zeros_like(series)
    for path, weight in zip(found, weights, strict=True):
        for t, s in path:
            split[t] += weight / sum(weights) * (series[t] - center[s]) ** 2
    return (least - gamma * math.log(sum(weights)) if gamma else least), split
