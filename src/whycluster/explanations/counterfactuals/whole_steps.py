"""The smallest step into a cluster if some columns take only whole numbers, by branch and bound.

Without whole numbers, the step is a least-distance problem (see `half_spaces`), whose size is a lower bound.
Where its solution has a fraction, one branch allows only the whole numbers below it, and another one only
those above it. Branches that cannot be smaller than the best solution so far are dropped.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Protocol

import numpy as np

from whycluster.core.arrays import Floats
from whycluster.explanations.counterfactuals.half_spaces import least_step

_MOST_BRANCHES = 600
_ON_GRID = 1e-9  # a step this close to that of a whole number, relative to its unit, is that of the number
_SHORTER = 1e-6  # solutions that are shorter by a smaller fraction do not count as shorter


class WholeColumn(Protocol):
    """A column of whole numbers: its changes and its steps in the model's units."""

    def change_of(self, step: float) -> float:
        """Return about how much the value changes with a step."""

    def step_of(self, change: float) -> float:
        """Return the step that a change of the value by a whole number leads to, or NaN if there is none."""


def least_whole_step(
    g: Floats, need: Floats, bounds: Floats, whole: Mapping[int, WholeColumn]
) -> dict[int, float] | None:
    """Return the changes of the whole columns in the shortest step y with g y >= need.

    If there are too many branches to try all of them, a shorter step may exist. Return None if no step is
    found.

    Parameters
    ----------
    g : (J, C); a row of zeros is a hyperplane that no step gets closer to
    need : (J,)
    bounds : (2, C) the smallest and the largest step of each column
    whole : the columns that take only whole numbers, by position
    """
    best, limit, branches = None, math.inf, [bounds]
    for _ in range(_MOST_BRANCHES):
        if not branches:
            break
        inside = branches.pop()
        step = least_step(*_with_bounds(g, need, inside))
        if step is None or np.linalg.norm(step) >= limit * (1.0 - _SHORTER):
            continue
        sides = {i: _sides(column, float(step[i])) for i, column in whole.items()}
        split = [i for i, (below, above) in sides.items() if below != above]
        if not split:
            best = {i: below for i, (below, _) in sides.items()}
            limit = float(np.linalg.norm(step))
            continue
        branches += _branches(inside, step, split, sides, whole)
    return best


def _with_bounds(g: Floats, need: Floats, bounds: Floats) -> tuple[Floats, Floats]:
    """Return the half-spaces together with those of the bounds."""
    low, high = (np.flatnonzero(np.isfinite(each)) for each in bounds)
    unit = np.eye(g.shape[1])
    return np.vstack([g, unit[low], -unit[high]]), np.concatenate([need, bounds[0][low], -bounds[1][high]])


def _sides(column: WholeColumn, step: float) -> tuple[float, float]:
    """Return the whole changes just below and above a step, or the same one twice if the step is whole."""
    change = column.change_of(step)
    nearest = float(round(change))
    there, unit = column.step_of(nearest), abs(column.step_of(nearest + 1.0) - column.step_of(nearest))
    if abs(step - there) <= _ON_GRID * (abs(there) + (unit if math.isfinite(unit) else 0.0)):
        return nearest, nearest
    rising = column.step_of(nearest + 1.0) > there or column.step_of(nearest - 1.0) < there
    return (nearest, nearest + 1.0) if (step > there) == rising else (nearest - 1.0, nearest)


def _branches(
    inside: Floats,
    step: Floats,
    split: list[int],
    sides: Mapping[int, tuple[float, float]],
    whole: Mapping[int, WholeColumn],
) -> list[Floats]:
    """Return two bounds for the column that is farthest from a whole number, with the nearer side last."""
    ends = {i: np.array([whole[i].step_of(change) for change in sides[i]]) for i in split}
    column = max(split, key=lambda i: np.nan_to_num(np.abs(ends[i] - step[i]), nan=np.inf).min())
    found = []
    for end in sorted(ends[column], key=lambda end: -abs(end - step[column])):
        if math.isfinite(end):
            branch = inside.copy()
            branch[int(end > step[column]) ^ 1, column] = end
            found.append(branch)
    return found
