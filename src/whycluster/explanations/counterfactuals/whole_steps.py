"""The smallest step into a cluster if some columns take only whole numbers, by branch and bound.

Without whole numbers, the smallest step is known (see `half_spaces` and `quadratic_step`), and its size is a
lower bound.
Where the solution for a column is not whole, one branch allows only the whole numbers below it, and another
one only those above it. Branches whose bound is not below the best solution so far are dropped.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Protocol

import numpy as np

from whycluster.core.arrays import Floats
from whycluster.explanations.counterfactuals.quadratic_step import GLOBAL, LOCAL, Step, weakest

_ON_GRID = 1e-9  # a step this close to that of a whole number, relative to the number's unit, counts as equal
_SHORTER = 1e-6  # solutions that are shorter by a smaller fraction do not count as shorter


class WholeColumn(Protocol):
    """A column of whole numbers: its changes and its steps in the model's units."""

    def change_of(self, step: float) -> float:
        """Return about how much the value changes with a step."""

    def step_of(self, change: float) -> float:
        """Return the step that a change of the value by a whole number leads to, or NaN if there is none."""


def least_whole_step(
    solve: Callable[[Floats], Step | None],
    bounds: Floats,
    whole: Mapping[int, WholeColumn],
    most_branches: int,
) -> tuple[dict[int, float], str] | None:
    """Return the changes of the whole columns in the shortest step, and what is known about it.

    If there are too many branches to try all of them, a shorter step may exist. Return None if no step is
    found.

    Parameters
    ----------
    solve : returns the shortest step between two bounds, ignoring that some columns are whole
    bounds : (2, C) the smallest and the largest step of each column
    whole : the columns that take only whole numbers, by position
    most_branches : the largest number of steps that are solved for
    """
    best, limit, branches, optimum = None, math.inf, [bounds], GLOBAL
    for _ in range(most_branches):
        if not branches:
            break
        inside = branches.pop()
        step = solve(inside)
        if step is None or math.isinf(step.bound):
            optimum = LOCAL if step is None else optimum
            continue
        if step.optimum == LOCAL and step.bound < limit:
            optimum = LOCAL
        size = float(np.linalg.norm(step.y))
        if size >= limit * (1.0 - _SHORTER):
            continue
        optimum = weakest(optimum, step.optimum)
        sides = {i: _sides(column, float(step.y[i])) for i, column in whole.items()}
        split = [i for i, (below, above) in sides.items() if below != above]
        if not split:
            best = {i: below for i, (below, _) in sides.items()}
            limit = size
            continue
        branches += _branches(inside, step.y, split, sides, whole)
    return None if best is None else (best, LOCAL if branches else optimum)


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
