"""The dip as an excess of mass: how much more mass two intervals hold than one, at any density.

D. W. Mueller and G. Sawitzki, "Excess Mass Estimates and Tests for Multimodality", Journal of the American
Statistical Association 86 (1991), show that this is twice the dip.
"""

from __future__ import annotations

from typing import Any

import numpy as np


def dip(values: Any, n_levels: int = 400) -> float:
    """Return the dip, from the largest excess of mass over many levels of density."""
    x = np.sort(np.asarray(values, dtype=float))
    n, gaps = len(x), np.diff(np.sort(values))
    levels = np.geomspace(0.2 / (n * (x[-1] - x[0])), 2.0 / (n * gaps[gaps > 0].min()), n_levels)
    return max(_two(x, level) - _one(x, level) for level in levels) / 2.0


def _mass(x: Any, level: float) -> Any:
    """Return the excess mass of each interval from value i to value j, or -inf if j < i."""
    i, j = np.ogrid[: len(x), : len(x)]
    mass = (j - i + 1) / len(x) - level * (x[None, :] - x[:, None])
    return np.where(j >= i, mass, -np.inf)


def _one(x: Any, level: float) -> float:
    return float(_mass(x, level).max())


def _two(x: Any, level: float) -> float:
    mass = _mass(x, level)
    until = np.maximum.accumulate(mass.max(axis=0))  # the best interval that ends at j or before
    after = np.maximum.accumulate(mass.max(axis=1)[::-1])[::-1]  # the best one that begins at i or after
    return float(max(mass.max(), (until[:-1] + after[1:]).max()))
