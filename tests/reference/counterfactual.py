"""The smallest change that moves a row to another cluster. Slow and obvious.

For planes, all sets of planes are tried; for other boundaries, all points of a grid or many starts.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize

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


Energies = Callable[[Matrix], Matrix]
"""The energies of all clusters at each point, (n, K) for (n, d)."""


def mixture_energies(means: Matrix, covariances: Matrix, weights: Vector) -> Energies:
    """Return -log of the weighted density of each component, without the constant that they share."""

    def energies(x: Matrix) -> Matrix:
        columns = []
        for mean, covariance, weight in zip(means, covariances, weights, strict=True):
            far = x - mean
            squares = ((far @ np.linalg.inv(covariance)) * far).sum(axis=1)
            columns.append(squares / 2 + np.log(np.linalg.det(covariance)) / 2 - np.log(weight))
        return np.stack(columns, axis=1)

    return energies


def nearest_unit_energies(units: Matrix, cluster: NDArray[Any], floor: float | None = None) -> Energies:
    """Return the squared distance to the nearest unit of each cluster and, last, the floor of noise."""

    def energies(x: Matrix) -> Matrix:
        squares = np.square(x[:, None] - units[None]).sum(axis=2)
        columns = [squares[:, cluster == k].min(axis=1) for k in range(cluster.max() + 1)]
        if floor is not None:
            columns.append(np.full(len(x), floor))
        return np.stack(columns, axis=1)

    return energies


def is_in(energies: Energies, x: Matrix, k: int) -> NDArray[np.bool_]:
    """Return which points are in cluster k, (n,)."""
    s = energies(x)
    return np.asarray(s[:, k] < np.delete(s, k, axis=1).min(axis=1))


def least_change_on_grid(
    x: Vector, energies: Energies, k: int, scale: Vector, most: float, n: int
) -> tuple[float, float]:
    """Return the size of the smallest change to a point of a grid around x, and the largest gap of the grid.

    ``scale`` is the size of a change of 1 in each feature, and ``most`` is the largest change of a feature.
    """
    side = np.linspace(-most, most, n)
    steps = np.stack(np.meshgrid(*[side] * len(x), indexing="ij"), axis=-1).reshape(-1, len(x))
    inside = is_in(energies, x + steps / scale, k)
    size = np.linalg.norm(steps, axis=1)[inside].min(initial=np.inf)
    return float(size), float((side[1] - side[0]) * np.sqrt(len(x)))


def least_change_from_many_starts(
    x: Vector, energies: Energies, k: int, scale: Vector, starts: Matrix
) -> float:
    """Return the size of the smallest change that SLSQP finds from many starts, which are rows of k."""
    best = np.inf

    def evidence(y: Vector) -> Vector:
        s = energies((x + y / scale)[None])[0]
        return np.asarray(np.delete(s, k) - s[k])

    meets: Any = {"type": "ineq", "fun": evidence}
    options: Any = {"ftol": 1e-12, "maxiter": 200}
    for start in starts:
        found = minimize(  # type: ignore[call-overload]  # its types do not know these functions
            lambda y: float(y @ y),
            (start - x) * scale,
            jac=lambda y: 2 * y,
            constraints=meets,
            method="SLSQP",
            options=options,
        )
        if evidence(found.x).min() >= -1e-9:
            best = min(best, float(np.linalg.norm(found.x)))
    return best
