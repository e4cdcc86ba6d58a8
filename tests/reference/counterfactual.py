"""The smallest change that moves a row to another cluster, by trying all sets of planes. Slow and obvious."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
from numpy.typing import NDArray

Vector = NDArray[np.floating[Any]]
Matrix = NDArray[np.floating[Any]]


def half_spaces(x: Vector, centroids: Matrix, k: int) -> tuple[Matrix, Vector]:
    """Return slopes and values of |x - mu_j|^2 - |x - mu_k|^2 for all other clusters j.

    Cluster k wins if all values are positive.
    """
    others = [j for j in range(len(centroids)) if j != k]
    slopes = np.array([2 * (centroids[k] - centroids[j]) for j in others])
    values = [
        (x - centroids[j]) @ (x - centroids[j]) - (x - centroids[k]) @ (x - centroids[k]) for j in others
    ]
    return slopes, np.array(values)


def least_change(slopes: Matrix, values: Vector) -> Vector | None:
    """Return the shortest y with values + slopes y >= 0, or None if there is none.

    The shortest y is the shortest point on some set of the planes, so trying all sets finds it.
    """
    best, scale = None, np.abs(values).max() + 1e-300
    for size in range(min(slopes.shape) + 1):
        for chosen in itertools.combinations(range(len(values)), size):
            at = list(chosen)
            y = np.linalg.pinv(slopes[at]) @ -values[at] if at else np.zeros(slopes.shape[1])
            fits = (values + slopes @ y >= -1e-9 * scale).all()
            if fits and (best is None or y @ y < best @ best):
                best = y
    return best


def least_single(slopes: Vector, values: Vector) -> float | None:
    """Do the same for one feature: return the smallest of all crossings and 0."""
    scale = np.abs(values).max() + 1e-300
    crossings = [0.0, *(-v / s for s, v in zip(slopes, values, strict=True) if s != 0)]
    fits = [y for y in crossings if (values + slopes * y >= -1e-9 * scale).all()]
    return min(fits, key=abs) if fits else None


def least_whole_change(slopes: Matrix, values: Vector, units: Vector, most: float) -> float:
    """Return the size of the smallest change by whole numbers that makes all values positive, up to ``most``.

    All whole numbers in the ball of radius ``most`` are tried, column by column. ``units`` are the sizes of a
    change of 1 in each column; slopes are those of changes in these columns.
    """
    steps, best = np.zeros((1, 0)), np.inf
    for column in range(len(units)):
        reach = int(most / units[column] + 1e-9)
        side = np.arange(-reach, reach + 1.0)
        steps = np.hstack([np.repeat(steps, len(side), axis=0), np.tile(side, len(steps))[:, None]])
        steps = steps[np.square(steps * units[: column + 1]).sum(axis=1) <= most**2 * (1 + 1e-9)]
    for part in np.array_split(steps, 1 + len(steps) // 100_000):
        enough = (values + part @ slopes.T > 0).all(axis=1)
        best = min(best, np.linalg.norm(part[enough] * units, axis=1).min(initial=np.inf))
    return float(best)
