"""A row whose values can be changed, and what each change does to the inputs of the model.

A column is *separate* if it determines its own inputs and affects no others. Changes of separate columns are
tried side by side, many columns in one row, so the steps of a pipeline run a few times and not once per
column. Trial changes determine which columns are separate and which of them are only scaled.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from whycluster.core.arrays import Codes, Floats
from whycluster.core.energies import Energy
from whycluster.core.errors import InvalidInputError
from whycluster.data.arrays import is_real
from whycluster.data.frame_table import without_frame
from whycluster.data.table import Table
from whycluster.explanations.cell_values import NONLINEAR, UNUSED, WHOLE_DAYS, apart, moved, why_held
from whycluster.explanations.half_spaces import HalfSpaceModel, HalfSpaces, relative_rounding

FLAT = 1e-12
"""A smaller relative slope is rounding error, so the hyperplane is parallel to the column."""

# Trial steps to test whether a column is only scaled, as multiples of the column's spread
_STEPS = np.array([2.0**-6, 0.5, 3.0, 40.0])
_MOST_DAYS = 20_000.0  # the largest trial step for dates; some calendars end in 2262
_ROUNDING = {4: 1e-2, 8: 1e-6}  # tolerance by bytes per number
_MOST_CELLS = 1 << 20  # number of cells that are tried at once
_MOST_CHECKED = 1 << 22  # with more inputs, the energies of trials are computed from the changed inputs only


class Trials(NamedTuple):
    """The inputs that trial changes of single columns lead to: only those that the column determines."""

    trial: Codes  # (M,) the trial that each value belongs to
    at: Codes  # (M,) the position of the input
    value: Floats  # (M,)


@dataclass(frozen=True)
class ChangeableRow:
    """A row and the ways in which its columns can be changed.

    Attributes
    ----------
    model : the model that assigns the row
    table : a table of this row only
    cells : (d,) its values
    x : (D,) its inputs to the model
    allowed : the columns that may change
    rate : (D,) the derivative of each input with respect to its column, or 0 if the input is constant or
        nonlinear
    held : the allowed columns that cannot change freely, each with the reason
    """

    model: HalfSpaceModel
    table: Table
    cells: NDArray[Any]
    x: Floats
    allowed: Codes
    rate: Floats
    held: dict[int, str]

    @cached_property
    def weight(self) -> Floats:
        """(d,) how much a change of 1 in each column counts, or 0 if the column is not linear."""
        weight = np.zeros(len(self.cells))
        changing = self.rate != 0.0
        np.add.at(weight, self.model.source[changing], np.square(self.model.step_scale * self.rate)[changing])
        return np.asarray(np.sqrt(weight))

    @cached_property
    def linear(self) -> Codes:
        """The allowed columns in which the distance to hyperplanes is linear."""
        return self.allowed[self.weight[self.allowed] > 0.0]

    @cached_property
    def free(self) -> Codes:
        """The linear columns that can take any value."""
        return np.array([column for column in self.linear.tolist() if column not in self.held], dtype=np.intp)

    @cached_property
    def _half_spaces(self) -> dict[int, HalfSpaces]:
        return {}

    def half_spaces(self, to: int) -> HalfSpaces:
        """Return the half-spaces of a cluster, seen from the row."""
        if to not in self._half_spaces:
            self._half_spaces[to] = self.model.half_spaces(self.x, to)
        return self._half_spaces[to]

    def slopes(self, half_spaces: HalfSpaces, columns: Codes) -> Floats:
        """Return the derivatives of each h, (J, C), with respect to the columns in the model's units."""
        by_column = np.zeros((len(self.cells), len(half_spaces.h)))
        changing, counts = self.rate != 0.0, self.model.step_scale > 0.0
        np.add.at(by_column, self.model.source[changing], (half_spaces.slopes * self.rate).T[changing])
        g = (by_column[columns] / self.weight[columns][:, None]).T
        whole = np.linalg.norm(half_spaces.slopes[:, counts] / self.model.step_scale[counts], axis=1)
        return np.where(np.abs(g) > FLAT * whole[:, None], g, 0.0)

    def rounding(self, x: Floats, to: int) -> Floats:
        """Return, for each row, how large h must be to exceed rounding errors in the table's dtype, (n,)."""
        return self.model.rounding(x, self.half_spaces(to), self.table.dtype)

    def changed(self, rows: Codes, columns: Codes, values: Sequence[Any]) -> Table:
        """Return a table of copies of the row, with these values in the given cells of the copies."""
        copies = self.table.take(np.zeros(int(rows.max()) + 1, dtype=np.intp))
        return copies.put(rows, columns, values)

    def distances(self, changed: Table, to: int) -> Floats:
        """Return how far copies of the row were moved, (n,), or infinity for those not in cluster ``to``."""
        try:
            x = self.model.read(changed)
        except InvalidInputError:  # the steps do not accept such values
            return np.full(changed.n_rows, np.inf)
        return self.distances_to(x, to)

    def distances_to(self, x: Floats, to: int) -> Floats:
        """Return how far the inputs x, (n, D), are, or infinity for those not in cluster ``to``."""
        far = np.linalg.norm((x - self.x) * self.model.step_scale, axis=1)
        inside = (self.model.assign(x) == to) & np.isfinite(far)
        if self.table.dtype != np.float64:
            inside &= self.model.evidence(x, to) >= self.rounding(x, to)
        return np.where(inside, far, np.inf)

    def try_each(self, columns: Codes, values: Sequence[Any], to: int) -> Floats:
        """Return how far each of these values alone moves the row, or infinity if the value is not enough."""
        if len(columns) * len(self.x) > _MOST_CELLS:
            trials = self.side_by_side(columns, values)
            if trials is not None:
                return self._judged(trials, len(columns), to)
        size = max(1, _MOST_CELLS // max(len(self.cells), len(self.x)))
        found = [np.empty(0)]
        for start in range(0, len(columns), size):
            some = columns[start : start + size]
            changed = self.changed(np.arange(len(some)), some, values[start : start + size])
            found.append(self.distances(changed, to))
        return np.concatenate(found)

    def side_by_side(self, columns: Codes, values: Sequence[Any]) -> Trials | None:
        """Return the inputs of trials that are read with many columns changed in each row.

        They are read twice, with different columns side by side. Return None if the columns are not separate
        or if the steps do not accept a value.
        """
        n_trials, rank = len(columns), _ranks(columns)
        half = np.random.default_rng(0).integers(0, 2, len(self.cells))[columns]
        again = rank.max() + 1 + 2 * (rank.max() - rank) + half
        twice = np.concatenate([rank, again]), np.concatenate([columns, columns])
        read = self._read_packed(*twice, [*values, *values])
        if read is None:
            return None
        first = read.trial < n_trials
        once, more = read.value[first], read.value[~first]
        near = np.abs(once - more) <= self._tolerance * np.abs(once)
        if not (near | (np.isnan(once) & np.isnan(more))).all():
            return None
        return Trials(read.trial[first], read.at[first], once)

    @property
    def _tolerance(self) -> float:
        """The relative difference of inputs that counts as rounding."""
        return _ROUNDING[self.table.dtype.itemsize] ** 2

    def _read_packed(self, rows: Codes, columns: Codes, values: Sequence[Any]) -> Trials | None:
        """Return the inputs of each trial i, whose value is in row rows[i] of a table."""
        order, starts = self._inputs_by_column
        counts = (starts[1:] - starts[:-1])[columns]
        trial = np.repeat(np.arange(len(columns)), counts)
        within = np.arange(len(trial)) - np.repeat(np.cumsum(counts) - counts, counts)
        at = order[starts[:-1][columns][trial] + within]
        result, others = np.empty(len(trial)), ~np.isin(self.model.source, columns)
        size = max(1, _MOST_CELLS // max(len(self.x), len(self.cells)))
        for start in range(0, int(rows.max(initial=-1)) + 1, size):
            some = np.flatnonzero((rows >= start) & (rows < start + size))
            if not some.size:
                continue
            changed = self.changed(rows[some] - start, columns[some], [values[i] for i in some.tolist()])
            try:
                x = self.model.read(changed)
            except InvalidInputError:
                return None
            if (np.abs(x - self.x) > self._tolerance * np.abs(self.x))[:, others].any():
                return None
            mine = (rows[trial] >= start) & (rows[trial] < start + size)
            result[mine] = x[rows[trial[mine]] - start, at[mine]]
        return Trials(trial, at, result)

    @cached_property
    def _inputs_by_column(self) -> tuple[Codes, Codes]:
        """The positions of the inputs, ordered by column, and where each column begins, (d + 1,)."""
        source = self.model.source
        order = np.argsort(source, kind="stable")
        return order, np.searchsorted(source[order], np.arange(len(self.cells) + 1))

    def _judged(self, trials: Trials, n_trials: int, to: int) -> Floats:
        """Return how far each trial moves the row, or infinity if it does not lead to cluster ``to``."""
        with np.errstate(invalid="ignore", over="ignore"):
            if n_trials * len(self.x) <= _MOST_CHECKED or not np.isfinite(trials.value).all():
                return self._judged_by_energies(trials, n_trials, to)
            return self._judged_by_slopes(trials, n_trials, to)

    def _judged_by_energies(self, trials: Trials, n_trials: int, to: int) -> Floats:
        size, found = max(1, _MOST_CELLS // len(self.x)), [np.empty(0)]
        for start in range(0, n_trials, size):
            some = (trials.trial >= start) & (trials.trial < start + size)
            x = np.repeat(self.x[None], min(size, n_trials - start), axis=0)
            x[trials.trial[some] - start, trials.at[some]] = trials.value[some]
            found.append(self.distances_to(x, to))
        return np.concatenate(found)

    def _judged_by_slopes(self, trials: Trials, n_trials: int, to: int) -> Floats:
        """Compute h of each trial from that of the row, since few inputs change and h is linear."""
        step = trials.value - self.x[trials.at]

        def summed(values: Floats) -> Floats:
            return np.bincount(trials.trial, values, minlength=n_trials).astype(np.float64)

        half_spaces, scale = self.half_spaces(to), self.model.step_scale[trials.at]
        moves = [summed(slopes[trials.at] * step) for slopes in half_spaces.slopes]
        sizes = [summed(np.abs(slopes[trials.at] * step)) for slopes in half_spaces.slopes]
        terms = np.max(sizes, axis=0) + self.model.size_of_terms(self.x[None], half_spaces)
        terms += summed(np.square(scale) * np.abs(step) * (2.0 * np.abs(self.x[trials.at]) + np.abs(step)))
        needed = terms * relative_rounding(len(self.x), self.table.dtype)
        inside = np.all([h + move > needed for h, move in zip(half_spaces.h, moves, strict=True)], axis=0)
        return np.where(inside, np.sqrt(summed(np.square(scale * step))), np.inf)


def _ranks(columns: Codes) -> Codes:
    """Return how many earlier entries are equal to each entry."""
    order = np.argsort(columns, kind="stable")
    ordered = columns[order]
    starts = np.searchsorted(ordered, ordered)
    ranks = np.empty_like(order)
    ranks[order] = np.arange(len(columns)) - starts
    return ranks


def changeable_row(
    energy: Energy, table: Table, row: int, allowed: Codes, ranges: Floats, where: str
) -> ChangeableRow:
    """Return a row of a table, with the ways in which its columns can change."""
    model = HalfSpaceModel.of(energy, where)
    one = table.take(np.array([row]))
    cells = np.empty(table.n_features, dtype=object)
    cells[:] = one.cells(0)
    one = without_frame(one)  # setting cells of frames takes much longer
    held = {column: why for column in allowed.tolist() if (why := why_held(cells[column]))}
    movable = np.array([c for c in allowed.tolist() if held.get(c, WHOLE_DAYS) == WHOLE_DAYS], dtype=np.intp)
    fixed = ChangeableRow(model, one, cells, model.read(one)[0], allowed, np.zeros(len(model.source)), held)
    if table.is_plain:
        return replace(fixed, rate=np.isin(model.source, movable).astype(np.float64))
    rate = _rates(fixed, movable, _spread(ranges, cells))
    nonlinear = np.unique(model.source[np.isnan(rate)]).tolist()
    used = np.unique(model.source[rate != 0.0])
    unused = movable[~np.isin(movable, used)].tolist()
    held |= dict.fromkeys(nonlinear, NONLINEAR) | dict.fromkeys(unused, UNUSED)
    return replace(fixed, rate=np.nan_to_num(rate), held=held)


def _spread(ranges: Floats, cells: NDArray[Any]) -> Floats:
    """Return the range of each column, (d,), or the absolute value if the column is constant."""
    width = ranges[1] - ranges[0]
    size = np.array([abs(float(value)) if is_real(value) else 1.0 for value in cells])
    return np.where(np.isfinite(width) & (width > 0.0), width, np.where(size > 0.0, size, 1.0))


def _rates(row: ChangeableRow, columns: Codes, spread: Floats) -> Floats:
    """Return the derivatives of the inputs with respect to these columns, (D,), or NaN if nonlinear.

    Every column is moved by small and by large steps. If a column is only scaled, its own inputs move in
    proportion, and no other inputs move.
    """
    source, n_steps = row.model.source, 2 * len(_STEPS)
    few = len(columns) * n_steps * max(len(source), len(row.cells)) <= _MOST_CELLS
    found = (_rates_one_by_one if few else _rates_side_by_side)(row, columns, spread)
    if found is not None:
        return found
    if len(columns) == 1:
        return np.where(source == columns[0], np.nan, 0.0)
    return np.asarray(sum(_rates(row, half, spread) for half in np.array_split(columns, 2)))


def _rates_one_by_one(row: ChangeableRow, columns: Codes, spread: Floats) -> Floats | None:
    """Move one column at a time; return None if the steps do not accept a trial value."""
    rate, source, n_steps = np.zeros(len(row.x)), row.model.source, 2 * len(_STEPS)
    trials = _trial_values(row, columns, spread)
    if trials is None:
        return None
    if not columns.size:
        return rate
    changed = row.changed(np.arange(len(trials[0])), np.repeat(columns, n_steps), trials[0])
    try:
        moves = (row.model.read(changed) - row.x).reshape(len(columns), n_steps, -1)
    except InvalidInputError:
        return None
    for column, step, move in zip(columns.tolist(), trials[1].reshape(-1, n_steps), moves, strict=True):
        own = source == column
        rate[own] = _in_proportion(step, move, own, _ROUNDING[row.table.dtype.itemsize])
    return rate


def _rates_side_by_side(row: ChangeableRow, columns: Codes, spread: Floats) -> Floats | None:
    """Move many columns at once; return None if they are not separate, or if a trial value is refused."""
    values = _trial_values(row, columns, spread)
    if values is None:
        return None
    with np.errstate(invalid="ignore", over="ignore"):
        trials = row.side_by_side(np.repeat(columns, 2 * len(_STEPS)), values[0])
        if trials is None:
            return None
        step, move = values[1][trials.trial], trials.value - row.x[trials.at]
        rate, most, uneven = np.zeros((3, len(row.x)))
        squares = np.bincount(trials.at, np.square(step), minlength=len(rate))
        np.divide(
            np.bincount(trials.at, step * move, minlength=len(rate)), squares, out=rate, where=squares > 0
        )
        np.maximum.at(most, trials.at, np.abs(move))
        np.maximum.at(uneven, trials.at, np.abs(move - step * rate[trials.at]))
        bad = ~(uneven <= _ROUNDING[row.table.dtype.itemsize] * most)
    return np.where(np.isin(row.model.source, row.model.source[bad]), np.nan, rate)


def _trial_values(row: ChangeableRow, columns: Codes, spread: Floats) -> tuple[list[Any], Floats] | None:
    """Return trial values of each column and how far they are from the row's own, or None on overflow."""
    steps = np.concatenate([-_STEPS, _STEPS])
    values: list[Any] = []
    by: list[float] = []
    for column in columns.tolist():
        cell = row.cells[column]
        most = np.inf if is_real(cell) else _MOST_DAYS
        values += [moved(cell, step) for step in np.clip(steps * spread[column], -most, most).tolist()]
        by += [apart(value, cell) for value in values[-len(steps) :]]
    return None if any(value is None for value in values) else (values, np.array(by))


def _in_proportion(step: Floats, move: Floats, own: NDArray[np.bool_], rounding: float) -> Floats:
    """Return the derivatives of a column's own inputs.

    They are NaN if these inputs do not change linearly with the column, or if other inputs change too.
    """
    with np.errstate(invalid="ignore", over="ignore"):
        rate = step @ move / (step @ step)
        most = np.abs(move).max(axis=0)
        uneven = np.abs(move - step[:, None] * rate).max(axis=0)
        alone = (most[~own] <= rounding * most[own].max(initial=0.0)).all()
        even = (uneven[own] <= rounding * most[own]).all()
    return np.asarray(rate[own]) if alone and even else np.full(int(own.sum()), np.nan)
