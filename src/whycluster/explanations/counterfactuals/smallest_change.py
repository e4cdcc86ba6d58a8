"""The smallest change of several columns that moves a row to another cluster, exact or short enough to print.

The change is found in the model's units. Columns of whole numbers need branch and bound (see `whole_steps`).
If there are many of them, or if the boundaries are neither hyperplanes nor quadrics, each in turn is set to a
whole number on either side, and the change of the others is computed again. Every result is checked
with the network.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from whycluster.core.arrays import Codes, Floats
from whycluster.explanations.counterfactuals.cell_values import apart, moved
from whycluster.explanations.counterfactuals.changeable_row import FLAT, ChangeableRow
from whycluster.explanations.counterfactuals.half_spaces import Limits, least_step
from whycluster.explanations.counterfactuals.local_search import local_step
from whycluster.explanations.counterfactuals.quadratic_step import GLOBAL, LOCAL, Step, weakest
from whycluster.explanations.counterfactuals.quadratic_step import smallest_step as quadratic_step
from whycluster.explanations.counterfactuals.short_values import as_cell, exactly, rounded_outward
from whycluster.explanations.counterfactuals.whole_steps import least_whole_step

# How far beyond a hyperplane a row is moved, as a fraction of the change. The first fraction that is still
# enough after all values have been rounded to the types of their columns is used.
MARGINS = (1e-6, 1e-5, 1e-4, 1e-3, 1e-2)
_PRINTED_MARGINS = (0, 2, 3, 4)  # the positions of the margins that are tried for short values
_TIE = 1e-3  # a row on a hyperplane is moved as if it were this fraction of the centroids' distance away
_MOST_SETTLED = 24  # columns of whole numbers that are settled one by one; further ones are rounded together
_MOST_BRANCHES, _MOST_CURVED_BRANCHES = 600, 100
_MOST_BRANCHED = 64  # columns up to which branch and bound finds whole numbers


class Change(NamedTuple):
    """New values of some columns, the size of their change, and what is known about it."""

    columns: list[int]
    values: list[Any]
    distance: float
    optimum: str = LOCAL


def beyond(distance: Any, size: Any, margin: float) -> Any:
    """Return how far beyond a hyperplane to move, given its distance and the norm of its slope, ``size``."""
    return margin * np.maximum(distance, _TIE * size)


def smallest_change(row: ChangeableRow, to: int, columns: Codes) -> Change | None:
    """Return the smallest change of these columns that moves the row to cluster ``to``, if there is one."""
    for number in range(len(MARGINS)):
        change = _solved(row, to, columns, number)
        if change is None or not change.columns:
            return None
        changed = row.changed(np.zeros(len(change.columns), dtype=np.intp), _codes(change), change.values)
        found = float(row.distances(changed, to)[0])
        if math.isfinite(found):
            cells = changed.cells(0)
            return Change(change.columns, [cells[c] for c in change.columns], found, change.optimum)
    return None


def short_change(row: ChangeableRow, to: int, columns: Codes, most: int) -> Change | None:
    """Return a small change to print, of at most ``most`` columns, or of more if these are not enough.

    Its values are short numbers, given as `Decimal`, and are enough exactly as printed.

    Parameters
    ----------
    row, to : the row, and the cluster that it is moved to
    columns : the columns that may change, the most important ones first
    most : the number of columns that may change
    """
    while True:
        for number in _PRINTED_MARGINS:
            change = _solved(row, to, np.sort(columns[:most]), number)
            if change is None or not change.columns:
                break
            short = _first_short(row, to, change)
            if short is not None:
                return short
        if most >= len(columns):
            return None
        most *= 2


def short_single(row: ChangeableRow, to: int, column: int, value: Any) -> Change | None:
    """Return a change of one column, with a short value that is enough exactly as printed."""
    return _first_short(row, to, Change([column], [value], math.nan))


def _first_short(row: ChangeableRow, to: int, change: Change) -> Change | None:
    """Return the change with as few digits as possible, such that the row still moves."""
    options = [
        [*rounded_outward(value, row.cells[column], column in row.whole), exactly(value)]
        for column, value in zip(change.columns, change.values, strict=True)
    ]
    n_levels, n_columns = max(map(len, options)), len(options)
    levels = [[each[min(level, len(each) - 1)] for each in options] for level in range(n_levels)]
    columns = np.tile(_codes(change), n_levels)
    values = [as_cell(value) for level in levels for value in level]
    changed = row.changed(np.repeat(np.arange(n_levels), n_columns), columns, values)
    far = row.distances(changed, to, certain=True)
    if not np.isfinite(far).any():
        return None
    first = int(np.argmax(np.isfinite(far)))
    return Change(change.columns, levels[first], float(far[first]))


def _codes(change: Change) -> Codes:
    return np.array(change.columns, dtype=np.intp)


def _solved(row: ChangeableRow, to: int, columns: Codes, number: int) -> Change | None:
    """Return the smallest change of the columns that reaches the given margin; it is not checked."""
    whole = [column for column in columns.tolist() if column in row.whole]
    free = np.setdiff1d(columns, whole)
    if not whole:
        return _with_free(row, to, free, ([], []), number, GLOBAL)
    branched = _branched(row, to, columns, number)
    if branched is not None:
        return _with_free(row, to, free, branched[0], number, branched[1])
    settled = _settled(row, to, columns, number)
    return None if settled is None else _with_free(row, to, free, settled, number, LOCAL)


def _with_free(
    row: ChangeableRow, to: int, free: Codes, settled: tuple[list[int], list[Any]], number: int, known: str
) -> Change | None:
    """Return the change of settled columns together with the smallest change of the free ones.

    ``known`` is what is known about the settled columns.
    """
    base = row.inputs_with(np.array(settled[0], dtype=np.intp), settled[1])
    found = _step(row, to, free, base, number)
    if found is None:
        return None
    step = found.y
    moving = np.flatnonzero(np.abs(step) > FLAT * np.linalg.norm(step))
    values = row.values_at(free[moving], step[moving])
    if any(value is None for value in values):
        return None
    pairs = [
        (column, value)
        for column, value in zip([*settled[0], *free[moving].tolist()], [*settled[1], *values], strict=True)
        if apart(value, row.cells[column])
    ]
    columns, chosen = [column for column, _ in pairs], [value for _, value in pairs]
    return Change(columns, chosen, _size(row, base, step), weakest(known, found.optimum))


def _size(row: ChangeableRow, base: Floats, step: Floats) -> float:
    """Return the size of a change that moves the inputs to ``base`` and then by a step."""
    return float(np.linalg.norm(np.append(step, (base - row.x) * row.model.step_scale)))


def _branched(
    row: ChangeableRow, to: int, columns: Codes, number: int
) -> tuple[tuple[list[int], list[Any]], str] | None:
    """Return the columns of whole numbers with their values in the smallest change, if there are few.

    The second result is what is known about this change.
    """
    places = {i: _Whole(row, column) for i, column in enumerate(columns.tolist()) if column in row.whole}
    if len(columns) > _MOST_BRANCHED or len(places) > _MOST_SETTLED:
        return None
    solver = _linear_solver if row.model.is_linear else _quadratic_solver
    solve = solver(row, to, columns, row.x, number)
    most = _MOST_BRANCHES if row.model.is_linear else _MOST_CURVED_BRANCHES
    found = None if solve is None else least_whole_step(solve, row.bounds(columns), places, most)
    if found is None:
        return None
    values = [moved(places[i].cell, change) for i, change in found[0].items()]
    if any(value is None for value in values):
        return None
    return ([places[i].column for i in found[0]], values), found[1]


Solver = Callable[[Floats], "Step | None"]
"""Returns the smallest step between two bounds of the columns, (2, C)."""


def _linear_solver(row: ChangeableRow, to: int, columns: Codes, base: Floats, number: int) -> Solver | None:
    """Return the solver for hyperplanes, or None if no step reaches them."""
    constraints = _constraints(row, to, columns, base, number)
    if constraints is None:
        return None

    def solve(bounds: Floats) -> Step | None:
        y = least_step(*Limits.between(*bounds).added_to(*constraints))
        nothing = Step(np.full(len(columns), np.nan), math.inf, GLOBAL)
        return nothing if y is None else Step(y, float(np.linalg.norm(y)), GLOBAL)

    return solve


def _quadratic_solver(
    row: ChangeableRow, to: int, columns: Codes, base: Floats, number: int
) -> Solver | None:
    """Return the solver for quadrics, or None if the boundaries are not quadrics."""
    if row.model.quadratics is None:
        return None
    pieces = row.pieces(columns, base)
    need = needed_evidence(row, to, number)
    return lambda bounds: quadratic_step(pieces, to, need, Limits.between(*bounds))


def needed_evidence(row: ChangeableRow, to: int, number: int) -> float:
    """Return the evidence that a change must reach at curved boundaries; ``number`` selects the margin."""
    rounding = float(row.rounding(row.x[None], to, certain=True)[0])
    return MARGINS[number] * row.model.typical_evidence + 4.0 ** (number + 1) * rounding


class _Whole:
    """A column that takes only whole numbers; see `WholeColumn`."""

    def __init__(self, row: ChangeableRow, column: int) -> None:
        self.row, self.column, self.cell = row, column, row.cells[column]
        self._steps: dict[float, float] = {}

    def change_of(self, step: float) -> float:
        if self.column not in self.row.curves:
            return float(step / self.row.weight[self.column])
        curve = self.row.curves[self.column]
        order = np.argsort(curve.inputs)
        at = self.row.x[curve.at] + step / self.row.weight[self.column]
        return float(np.interp(at, curve.inputs[order], curve.values[order])) - float(self.cell)

    def step_of(self, change: float) -> float:
        if self.column not in self.row.curves:
            return float(change * self.row.weight[self.column])
        if change not in self._steps:  # the steps of the pipeline have to run
            x = self.row.inputs_with(np.array([self.column]), [moved(self.cell, change)])
            at = self.row.curves[self.column].at
            self._steps[change] = float((x - self.row.x)[at] * self.row.weight[self.column])
        return self._steps[change]


def _settled(row: ChangeableRow, to: int, columns: Codes, number: int) -> tuple[list[int], list[Any]] | None:
    """Settle the columns of whole numbers, the largest steps first; return the columns and their values.

    Return None if no whole numbers are found that are enough.
    """
    left, step = columns, _step_or_none(row, to, columns, row.x, number)
    done: tuple[list[int], list[Any]] = ([], [])
    while step is not None:
        whole = [i for i, column in enumerate(left.tolist()) if column in row.whole]
        if not whole:
            return done
        order = np.array(whole)[np.argsort(-np.abs(step[whole]), kind="stable")].tolist()
        changes = row.changes_at(left[order], step[order])
        if len(order) > _MOST_SETTLED:  # many small steps: round them to the nearest whole number
            some, options = order[_MOST_SETTLED:], [_rounded(row, left[order], changes)[_MOST_SETTLED:]]
        else:
            some, options = order[:1], _sides(row, int(left[order[0]]), float(changes[0]))
        chosen = left[some].tolist()
        left = np.delete(left, some)
        step, best = _best(row, to, left, done, chosen, options, number)
        if best is None:
            return None
        done = done[0] + chosen, done[1] + best
    return None


def _rounded(row: ChangeableRow, columns: Codes, changes: Floats) -> list[Any]:
    pairs = zip(columns.tolist(), np.rint(changes).tolist(), strict=True)
    return [moved(row.cells[column], by) for column, by in pairs]


def _sides(row: ChangeableRow, column: int, change: float) -> list[list[Any]]:
    """Return the whole numbers on both sides of a change."""
    cell = row.cells[column]
    values = [moved(cell, float(side)) for side in dict.fromkeys((math.floor(change), math.ceil(change)))]
    return [[value] for value in values if value is not None]


def _best(
    row: ChangeableRow,
    to: int,
    left: Codes,
    done: tuple[list[int], list[Any]],
    chosen: list[int],
    options: list[list[Any]],
    number: int,
) -> tuple[Floats | None, list[Any] | None]:
    """Return the option that needs the smallest change of the columns that are left, and that change."""
    best: tuple[float, Floats | None, list[Any] | None] = (math.inf, None, None)
    for values in options:
        base = row.inputs_with(np.array(done[0] + chosen, dtype=np.intp), done[1] + values)
        step = _step_or_none(row, to, left, base, number, quick=True)
        size = math.inf
        if step is not None:
            size = _size(row, base, step)
        if size < best[0]:
            best = size, step, values
    return best[1], best[2]


def _step_or_none(
    row: ChangeableRow, to: int, columns: Codes, base: Floats, number: int, quick: bool = False
) -> Floats | None:
    found = _step(row, to, columns, base, number, quick)
    return None if found is None else found.y


def _step(
    row: ChangeableRow, to: int, columns: Codes, base: Floats, number: int, quick: bool = False
) -> Step | None:
    """Return the smallest step of the columns, in the model's units, from the inputs ``base``."""
    if not np.isfinite(base).all():
        return None
    solver = _linear_solver if row.model.is_linear else _quadratic_solver
    solve, limits = solver(row, to, columns, base, number), row.limits(columns)
    step = None if solve is None else solve(row.bounds(columns))
    if step is None and not row.model.is_linear:
        y = local_step(row, to, columns, base, MARGINS[number], quick)
        return None if y is None else Step(y, 0.0, LOCAL)
    if step is None or math.isinf(step.bound):
        return None
    return step._replace(optimum=LOCAL) if limits.are_reached(step.y) else step


def _constraints(
    row: ChangeableRow, to: int, columns: Codes, base: Floats, number: int
) -> tuple[Floats, Floats] | None:
    """Return g and need, such that a step y of the columns reaches the margin if g y >= need.

    Return None if no step reaches the hyperplanes, from which the margin is measured.
    """
    half_spaces, rounding = row.half_spaces(to), row.rounding(base[None], to)
    h, g = half_spaces.h + half_spaces.slopes @ (base - row.x), row.slopes(half_spaces, columns)
    sizes = np.linalg.norm(g, axis=1)
    step = least_step(*row.limits(columns).added_to(g, -h))
    if step is None:
        return None
    needed = np.maximum(
        beyond(_size(row, base, step), sizes, MARGINS[number]) * sizes, 4.0**number * rounding
    )
    needed = np.where(sizes > 0.0, needed, np.where(h > 0.0, np.minimum(h, needed), needed))
    return g, needed - h


def lower_bound(row: ChangeableRow, to: int, columns: Codes) -> float:
    """Return a lower bound on the size of any change of these columns, or 0 if none is known.

    The bound is infinite if no change is enough.
    """
    limits = row.limits(columns)
    if row.model.is_linear:
        half_spaces = row.half_spaces(to)
        y = least_step(*limits.added_to(row.slopes(half_spaces, columns), -half_spaces.h))
        bound = math.inf if y is None else float(np.linalg.norm(y))
    elif row.model.quadratics is None:
        return 0.0
    else:
        step = quadratic_step(row.pieces(columns), to, 0.0, limits, n_starts=2)
        y, bound = (None, 0.0) if step is None else (step.y, step.bound)
    if math.isinf(bound):
        return 0.0 if len(limits.ends) else math.inf
    return 0.0 if y is None or limits.are_reached(y) else bound
