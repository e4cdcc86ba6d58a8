"""Energies from the nearest members of each cluster, written out pair by pair."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]


def distance(x: Array, u: Array, metric: str) -> float:
    """Return the distance of two rows."""
    if metric == "manhattan":
        return float(np.abs(x - u).sum())
    if metric == "haversine":
        return 2 * math.asin(math.sqrt(terms(x, u, metric).sum()))
    return float(np.sqrt(((x - u) ** 2).sum()))


def terms(x: Array, u: Array, metric: str) -> Array:
    """Return the energy of a pair, feature by feature."""
    if metric == "manhattan":
        return np.asarray(np.abs(x - u))
    if metric == "haversine":
        (lat, lon), (lat2, lon2) = x, u
        east = math.cos(lat) * math.cos(lat2) * math.sin((lon - lon2) / 2) ** 2
        return np.array([math.sin((lat - lat2) / 2) ** 2, east])
    return np.asarray((x - u) ** 2)


def energy(d: float, metric: str) -> float:
    """Return the energy of a pair at distance d."""
    return {"euclidean": d**2, "manhattan": d, "haversine": math.sin(d / 2) ** 2}[metric]


def others(x: Array, rows: list[Array], metric: str) -> list[int]:
    """Return the positions of all rows but one that equals x, nearest first; a single row always counts."""
    order = sorted(range(len(rows)), key=lambda j: distance(x, rows[j], metric))
    if len(rows) > 1 and distance(x, rows[order[0]], metric) == 0:
        return order[1:]
    return order


def mth_nearest(x: Array, members: list[Array], m: int, metric: str) -> float:
    """Return the distance to the m-th nearest member."""
    return distance(x, members[others(x, members, metric)[m - 1]], metric)


def core_distance(x: Array, everyone: list[Array], m: int, metric: str) -> float:
    """Return the distance to the m-th nearest row."""
    return mth_nearest(x, everyone, m, metric) if m else 0.0


def reachability(
    x: Array, members: list[Array], cores: list[float], everyone: list[Array], m: int, metric: str
) -> float:
    """Return the smallest mutual reachability distance to a member."""
    own = core_distance(x, everyone, m, metric)
    return min(max(own, cores[j], distance(x, members[j], metric)) for j in others(x, members, metric))


def split(x: Array, members: list[Array], total: float, metric: str) -> Array:
    """Return an energy, split like the differences from the members; near members count more."""
    each = np.array([terms(x, u, metric) for u in members])
    g = each.sum(axis=1)
    if not g.any():
        return np.full(len(x), total / len(x))
    pooled = (np.exp(-g / (g.mean() * WIDTH))[:, None] * each).sum(axis=0)
    return np.asarray(total * pooled / pooled.sum())


WIDTH = 0.5


def merge_height(tree: list[tuple[int, int, float]], n: int, cluster: set[int]) -> float:
    """Return the height at which the rows of a cluster are first merged with any other row."""
    below = [{i} for i in range(n)]
    for a, b, height in tree:
        if below[a] == cluster or below[b] == cluster:
            return height
        below.append(below[a] | below[b])
    raise AssertionError
