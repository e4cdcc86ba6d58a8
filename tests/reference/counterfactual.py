"""The smallest change that moves a row to another cluster: every set of planes is tried. Slow and obvious."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
from numpy.typing import NDArray

Vector = NDArray[np.floating[Any]]
Matrix = NDArray[np.floating[Any]]


def half_spaces(x: Vector, centroids: Matrix, k: int) -> tuple[Matrix, Vector]:
    """Slopes and values of |x - mu_j|^2 - |x - mu_k|^2 for all other clusters j; k wins where all are > 0."""
    others = [j for j in range(len(centroids)) if j != k]
    slopes = np.array([2 * (centroids[k] - centroids[j]) for j in others])
    values = [
        (x - centroids[j]) @ (x - centroids[j]) - (x - centroids[k]) @ (x - centroids[k]) for j in others
    ]
    return slopes, np.array(values)


def least_change(slopes: Matrix, values: Vector) -> Vector | None:
    """The shortest y with values + slopes y >= 0; None if there is none.

    It lies on some of the planes and is the shortest point there, so it is among those of all sets of planes.
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
    """The same with one feature: the nearest of all crossings, and of staying."""
    scale = np.abs(values).max() + 1e-300
    crossings = [0.0, *(-v / s for s, v in zip(slopes, values, strict=True) if s != 0)]
    fits = [y for y in crossings if (values + slopes * y >= -1e-9 * scale).all()]
    return min(fits, key=abs) if fits else None
