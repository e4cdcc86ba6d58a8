"""A local optimum of the change for models whose boundaries are neither hyperplanes nor quadrics.

The search starts at the row and at rows of the other cluster. If some columns are held fixed, it first has
to step into the cluster. From a point inside the cluster, it moves straight toward the row until it reaches
the boundary, replaces the boundary there with its tangent hyperplanes, and moves toward the point beyond
these that is nearest to the row, as far as it stays inside the cluster. It ends when no such move gets closer
to the row. The result is a local optimum: a smaller change may exist elsewhere.
"""

from __future__ import annotations

import numpy as np

from whycluster.core.arrays import Codes, Floats
from whycluster.explanations.counterfactuals.changeable_row import ChangeableRow
from whycluster.explanations.counterfactuals.half_spaces import least_step

_STARTS = 12  # the number of rows of the other cluster from which the search starts
_FEW_STARTS = 3  # in a quick search
_MOVES = 40  # the largest number of moves from each start
_PARTS = np.linspace(0.0, 1.0, 65)  # the points that are tried on the line between two others
_ROUNDS = 3  # how often the interval between two neighboring points is divided again
_CLIMBS = 8  # the largest number of steps into the cluster
_AHEAD = 0.01  # how far each leads into the cluster, as a fraction of the typical evidence
_POLISHES = 60  # the largest number of moves to nearby points
_NEARBY, _SPREADS = 150, np.array([0.3, 0.1, 0.03])  # how many points are tried, and how far away
_SHORTER = 0.995  # the change at such a point is at most this fraction of the best change
_BETTER = 1e-6  # a move that shortens the change by a smaller fraction ends the search


def local_step(
    row: ChangeableRow, to: int, columns: Codes, base: Floats, margin: float, quick: bool = False
) -> Floats | None:
    """Return a short step of the columns, in the model's units, that leads from ``base`` to the cluster.

    With ``quick``, the search starts at fewer points and ends earlier.
    """
    best: Floats | None = None
    for start in _starts(row, to, columns, base)[: _FEW_STARTS if quick else None]:
        inside = _climb(row, to, columns, base, start, margin)
        found = None if inside is None else _descend(row, to, columns, base, inside, margin)
        if found is not None and (best is None or np.linalg.norm(found) < np.linalg.norm(best)):
            best = found
    return best if best is None or quick else _polish(row, to, columns, base, best, margin)


def _polish(
    row: ChangeableRow, to: int, columns: Codes, base: Floats, point: Floats, margin: float
) -> Floats:
    """Move to smaller changes nearby, found by random search, until none is found.

    At kinks of the boundary, the search with tangent planes alone ends too early.
    """
    rng = np.random.default_rng(0)
    for _ in range(_POLISHES):
        spread = np.repeat(_SPREADS, _NEARBY)[:, None] * rng.normal(
            size=(_NEARBY * len(_SPREADS), len(point))
        )
        near = point + spread * np.linalg.norm(point) / np.sqrt(max(1, len(point)))
        size = np.linalg.norm(near, axis=1, keepdims=True)
        near *= np.divide(_SHORTER * np.linalg.norm(point), size, out=np.zeros_like(size), where=size > 0.0)
        near = np.clip(near, *row.bounds(columns))
        inside = _is_inside(row, to, columns, base, near, margin)
        best = int(np.argmax(inside))
        if not inside[best] >= 0.0:
            break
        point = _descend(row, to, columns, base, near[best], margin)
    return point


def _starts(row: ChangeableRow, to: int, columns: Codes, base: Floats) -> Floats:
    """Return steps to the values of rows of the cluster, the nearest ones first, (S, C)."""
    if not len(columns):
        return np.zeros((1, 0))
    steps = _as_steps(row, columns, row.examples[to] - base)
    low, high = row.bounds(columns)
    steps = np.clip(steps, low, high)
    order = np.argsort(np.linalg.norm(steps, axis=1), kind="stable")
    return np.concatenate([np.zeros((1, len(columns))), steps[order[:_STARTS]]])


def _as_steps(row: ChangeableRow, columns: Codes, change: Floats) -> Floats:
    """Return changes of the inputs, (n, D), as steps of columns in the model's units, (n, C)."""
    order = np.searchsorted(columns, row.model.source)
    known = (order < len(columns)) & (row.rate != 0.0)
    known[known] = columns[order[known]] == row.model.source[known]
    steps = np.zeros((len(change), len(columns)))
    # A column with several inputs moves all of them in proportion, so any of them determines the step.
    steps[:, order[known]] = change[:, known] / row.rate[known] * row.weight[row.model.source[known]]
    return steps


def _inputs(row: ChangeableRow, columns: Codes, base: Floats, steps: Floats) -> Floats:
    """Return the inputs that steps lead to, (n, D)."""
    by = np.zeros((len(steps), len(row.cells)))
    by[:, columns] = steps / row.weight[columns]
    source = np.maximum(row.model.source, 0)
    return base + np.where(row.model.source >= 0, row.rate * by[:, source], 0.0)


def _is_inside(
    row: ChangeableRow, to: int, columns: Codes, base: Floats, steps: Floats, margin: float
) -> Floats:
    """Return the evidence for the cluster after each step, minus the margin for rounding errors, (n,)."""
    x = _inputs(row, columns, base, steps)
    return row.model.evidence(x, to) - margin * row.model.typical_evidence - row.largest_rounding(to)


def _first_inside(
    row: ChangeableRow, to: int, columns: Codes, base: Floats, ends: tuple[Floats, Floats], margin: float
) -> Floats | None:
    """Return the first point inside the cluster on the way from one step to another, if there is one."""
    out, into = ends
    for round_number in range(_ROUNDS + 1):
        points = out + _PARTS[:, None] * (into - out)
        inside = _is_inside(row, to, columns, base, points, margin) >= 0.0
        if not inside.any():
            return None if round_number == 0 else into
        first = int(np.argmax(inside))
        if first == 0:
            return np.asarray(points[0])
        out, into = points[first - 1], points[first]
    return into


def _climb(
    row: ChangeableRow, to: int, columns: Codes, base: Floats, start: Floats, margin: float
) -> Floats | None:
    """Return a point inside the cluster near ``start``, found by stepping beyond its tangent planes."""
    low, high = row.bounds(columns)
    point = start
    for _ in range(_CLIMBS):
        if _is_inside(row, to, columns, base, point[None], margin)[0] >= 0.0:
            return point
        half_spaces = row.model.half_spaces(_inputs(row, columns, base, point[None])[0], to)
        need = _AHEAD * row.model.typical_evidence - half_spaces.h
        step = least_step(row.slopes(half_spaces, columns), need)
        if step is None or not np.isfinite(step).all():
            return None
        point = np.clip(point + step, low, high)
    return None


def _descend(
    row: ChangeableRow, to: int, columns: Codes, base: Floats, start: Floats, margin: float
) -> Floats:
    """Return a smaller step than ``start``, which is inside the cluster."""
    found = _first_inside(row, to, columns, base, (np.zeros_like(start), start), margin)
    point = start if found is None else found
    low, high = row.bounds(columns)
    for _ in range(_MOVES):
        half_spaces = row.model.half_spaces(_inputs(row, columns, base, point[None])[0], to)
        g = row.slopes(half_spaces, columns)
        step = least_step(g, g @ point - half_spaces.h)
        if step is None:
            return point
        step = np.clip(step, low, high)
        moved = _first_inside(row, to, columns, base, (step, point), margin)
        if moved is None or np.linalg.norm(moved) > (1.0 - _BETTER) * np.linalg.norm(point):
            return point
        point = moved
    return point


def local_single_steps(row: ChangeableRow, to: int, columns: Codes, ranges: Floats, margin: float) -> Floats:
    """Return the smallest step of each column alone, in the model's units, (C,), or NaN if none is found.

    Steps to values up to one range beyond the range of the data are tried.
    """
    found = np.full(len(columns), np.nan)
    for place, column in enumerate(columns.tolist()):
        one = columns[place : place + 1]
        low, high = row.bounds(one)[:, 0]
        reach = 2.0 * float(np.nan_to_num(ranges[1, column] - ranges[0, column])) * row.weight[column]
        ends = [max(low, -reach), min(high, reach)]
        ways = [(np.zeros(1), np.array([end])) for end in ends if end]
        steps = [_first_inside(row, to, one, row.x, way, margin) for way in ways]
        near = [float(step[0]) for step in steps if step is not None]
        found[place] = min(near, key=abs) if near else np.nan
    return found
