"""A row whose values can be changed, and the effect of each change on the inputs of the model.

A column is *separate* if it determines its own inputs and affects no others. Changes of separate columns are
tried side by side, many columns in one row, so the steps of a pipeline run a few times and not once per
column. Trial changes determine which columns are separate and which of them are only scaled.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from whycluster.core.arrays import Codes, Floats
from whycluster.core.errors import InvalidInputError
from whycluster.data.arrays import evenly_spaced, is_real
from whycluster.data.days import to_days
from whycluster.data.frame_table import without_frame
from whycluster.data.table import Table
from whycluster.explanations.counterfactuals.cell_values import (
    NONLINEAR,
    UNUSED,
    apart,
    is_day,
    moved,
    why_held,
)
from whycluster.explanations.counterfactuals.half_spaces import (
    HalfSpaceModel,
    HalfSpaces,
    Limits,
    relative_rounding,
)
from whycluster.explanations.counterfactuals.quadratic_step import Pieces

FLAT = 1e-12
"""A smaller relative slope is rounding error, so the hyperplane is parallel to the column."""

# Trial steps to test whether a column is only scaled, as multiples of the column's spread
_STEPS = np.array([2.0**-6, 0.5, 3.0, 40.0])
_MOST_DAYS = 20_000.0  # the largest trial step for dates; some calendars end in 2262
_ROUNDING = {4: 1e-2, 8: 1e-6}  # tolerance by bytes per number
_ROUNDS, _PARTS = 5, 32  # rounds of inverting a curve, and steps per round; the error is 3e-8 of its step
_INNER = 33  # number of points of a curve from the smallest to the largest value
_BEYOND = np.array([0.25, 0.5, 1.0, 2.0, 4.0])  # points beyond these, in multiples of the range
_SMALLER = np.array([0.1, 0.3, 0.6])  # points between 0 and the smallest value, if it is positive
_STEEP = 1e-9  # a curve that rises less between two points, relative to its height, counts as flat
_ENOUGH = 20  # fewer floats may be whole by chance
_SAMPLE = 20_000  # rows searched for rows of the other cluster, if boundaries are curved
_MANY = 64  # with more columns, refused values are not tried column by column
_MOST_CELLS = 1 << 20  # number of cells that are tried at once
_MOST_CHECKED = 1 << 22  # with more inputs, the energies of trials are computed from the changed inputs only


class SeenValues(NamedTuple):
    """The ranges of the columns of a table, and which of them hold only whole numbers.

    Attributes
    ----------
    ranges : (2, d) the smallest and the largest value of each column, in days for dates, or NaN if there is
        only one row
    whole : (d,) whether all values are whole numbers, of which there are at least 20, or dates at midnight
    """

    ranges: Floats
    whole: NDArray[np.bool_]

    @classmethod
    def of(cls, table: Table) -> SeenValues:
        """Read all rows of a table."""
        ranges = np.full((2, table.n_features), np.nan)
        whole, n_values = np.ones(table.n_features, dtype=bool), np.zeros(table.n_features)
        for _, block in table.blocks() if table.n_rows > 1 else ():
            np.fmin(ranges[0], np.fmin.reduce(block, axis=0), out=ranges[0])
            np.fmax(ranges[1], np.fmax.reduce(block, axis=0), out=ranges[1])
            missing = np.isnan(block)
            n_values += len(block) - missing.sum(axis=0)
            whole &= ((block == np.rint(block)) | missing).all(axis=0)
        enough = np.full(table.n_features, _ENOUGH)
        enough[list(table.dates)] = 1
        return cls(ranges, whole & (n_values >= enough) & (ranges[1] > ranges[0]))


class Trials(NamedTuple):
    """The inputs that result from trial changes of single columns, limited to the column's own inputs."""

    trial: Codes  # (M,) the trial that each value belongs to
    at: Codes  # (M,) the position of the input
    value: Floats  # (M,)


class Curve(NamedTuple):
    """A strictly monotone function from the values of a column to one input, known at some values."""

    at: int  # the position of the input
    values: Floats  # (G,) increasing
    inputs: Floats  # (G,)


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
        nonlinear. For a column with a curve, the input itself counts as the column, so its rate is 1.
    held : the allowed columns that cannot change freely, each with the reason
    whole : the columns that take only whole numbers or, for dates, whole days
    curves : the columns that a step transforms nonlinearly but monotonically, each with its curve
    """

    model: HalfSpaceModel
    table: Table
    cells: NDArray[Any]
    x: Floats
    allowed: Codes
    rate: Floats
    held: dict[int, str]
    whole: frozenset[int] = frozenset()
    curves: dict[int, Curve] = field(default_factory=dict)
    all_rows: Table | None = None
    """The table of all rows."""

    @cached_property
    def sample(self) -> Floats:
        """(S, D) the inputs of a sample of the rows."""
        assert self.all_rows is not None
        return self.model.read(self.all_rows.take(evenly_spaced(self.all_rows.n_rows, _SAMPLE)))

    @cached_property
    def examples(self) -> dict[int, Floats]:
        """The inputs of the rows of each cluster in the sample."""
        clusters = self.model.assign(self.sample)
        return {k: self.sample[clusters == k] for k in range(self.model.energy.n_clusters)}

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

    def moves(self, columns: Codes) -> Floats:
        """Return how far a step of 1 in each column, in the model's units, moves the inputs, (D, C)."""
        moves = np.zeros((len(self.x), len(columns)))
        place = np.full(len(self.cells) + 1, -1)  # the last one is for inputs without a column
        place[columns] = np.arange(len(columns))
        at = np.flatnonzero((place[self.model.source] >= 0) & (self.rate != 0.0))
        column = self.model.source[at]
        moves[at, place[column]] = self.rate[at] / self.weight[column]
        return moves

    def pieces(self, columns: Codes, base: Floats | None = None) -> Pieces:
        """Return the energies after steps from the inputs ``base``, by default the row's own."""
        assert self.model.quadratics is not None
        if base is not None and not np.array_equal(base, self.x):
            return Pieces(self.model.quadratics, base, self.moves(columns))
        key = columns.tobytes()
        if key not in self._pieces:
            self._pieces[key] = Pieces(self.model.quadratics, self.x, self.moves(columns))
        return self._pieces[key]

    @cached_property
    def _pieces(self) -> dict[bytes, Pieces]:
        return {}

    def limits(self, columns: Codes) -> Limits:
        """Return the bounds of the steps as half-spaces."""
        return Limits.between(*self.bounds(columns))

    def rounding(self, x: Floats, to: int, certain: bool = False) -> Floats:
        """Return, for each row, how large h must be to exceed rounding errors in the table's dtype, (n,)."""
        if not certain and self.table.dtype == np.float64:  # like the network
            return np.zeros(len(x))
        rounding = self.model.rounding(x, self.half_spaces(to), self.table.dtype)
        if certain:  # unlike the network, a model may also compute the squares that all clusters share
            squares = np.square(x * self.model.step_scale).sum(axis=1)
            rounding = rounding + relative_rounding(x.shape[1], self.table.dtype) * squares
        return rounding

    @cached_property
    def _largest_rounding(self) -> dict[int, float]:
        return {}

    def largest_rounding(self, to: int) -> float:
        """Return a bound on rounding errors for rows like those of the sample."""
        if to not in self._largest_rounding:
            x = np.concatenate([self.x[None], self.examples[to]])
            self._largest_rounding[to] = 2.0 * float(self.rounding(x, to, certain=True).max())
        return self._largest_rounding[to]

    def bounds(self, columns: Codes) -> Floats:
        """Return the smallest and the largest step of each column in the model's units, (2, C)."""
        bounds = np.tile([[-np.inf], [np.inf]], len(columns))
        for place, column in enumerate(columns.tolist()):
            if column in self.curves:
                curve = self.curves[column]
                ends = (np.sort(curve.inputs[[0, -1]]) - self.x[curve.at]) * self.weight[column]
                bounds[:, place] = ends
        return bounds

    def values_at(self, columns: Codes, steps: Floats) -> list[Any]:
        """Return the values that steps in the model's units lead to, or None on overflow."""
        by = (steps / self.weight[columns]).tolist()
        pairs = list(zip(columns.tolist(), by, strict=True))
        inverted = self._inverted({c: self.x[self.curves[c].at] + b for c, b in pairs if c in self.curves})
        return [inverted[c] if c in inverted else moved(self.cells[c], b) for c, b in pairs]

    def changes_at(self, columns: Codes, steps: Floats) -> Floats:
        """Return the changes of the values, in days for dates, that steps in the model's units lead to."""
        by = np.asarray(steps / self.weight[columns])
        curved = [i for i, column in enumerate(columns.tolist()) if column in self.curves]
        values = self.values_at(columns[curved], steps[curved])
        by[curved] = [apart(v, self.cells[c]) for v, c in zip(values, columns[curved].tolist(), strict=True)]
        return by

    def _inverted(self, inputs: dict[int, float]) -> dict[int, float]:
        """Return, for columns with curves, the values that lead to these inputs, or just beyond them."""
        columns = np.array(list(inputs), dtype=np.intp)
        low, high = np.empty((2, len(columns)))
        for place, column in enumerate(columns.tolist()):
            low[place], high[place] = _bracket(self.curves[column], inputs[column], float(self.cells[column]))
        for _ in range(_ROUNDS if len(columns) else 0):
            values = np.linspace(low, high, _PARTS + 1)  # from the near end to the far one
            read = self.curve_inputs(columns, values)
            if read is None:
                break
            for place, column in enumerate(columns.tolist()):
                rising = read[-1, place] > read[0, place]
                enough = (read[:, place] >= inputs[column]) == rising
                first = int(np.argmax(enough)) if enough.any() else _PARTS
                low[place], high[place] = values[max(first - 1, 0), place], values[first, place]
        return dict(zip(columns.tolist(), high.tolist(), strict=True))

    def curve_inputs(self, columns: Codes, values: Floats) -> Floats | None:
        """Return the inputs of columns with curves at these values, (V, C), or None if a step rejects one."""
        trials = self.side_by_side(np.repeat(columns, len(values)), values.T.ravel().tolist())
        if trials is None:
            return None
        at = np.repeat([self.curves[c].at for c in columns.tolist()], len(values))
        own = trials.at == at[trials.trial]
        return np.asarray(trials.value[own].reshape(len(columns), len(values)).T)

    def inputs_with(self, columns: Codes, values: Sequence[Any]) -> Floats:
        """Return the inputs after changes of free columns, (D,), or NaN if the steps reject the values."""
        if not any(column in self.curves for column in columns.tolist()):
            by = np.zeros(len(self.cells) + 1)  # the last one is for inputs without a column
            by[columns] = [apart(v, self.cells[c]) for c, v in zip(columns.tolist(), values, strict=True)]
            return np.asarray(self.x + self.rate * by[self.model.source])
        try:
            changed = self.changed(np.zeros(len(columns), dtype=np.intp), columns, values)
            return np.asarray(self.model.read(changed)[0])
        except InvalidInputError:
            return np.full(len(self.x), np.nan)

    def changed(self, rows: Codes, columns: Codes, values: Sequence[Any]) -> Table:
        """Return a table of copies of the row, with these values in the given cells of the copies."""
        copies = self.table.take(np.zeros(int(rows.max()) + 1, dtype=np.intp))
        return copies.put(rows, columns, values)

    def distances(self, changed: Table, to: int, certain: bool = False) -> Floats:
        """Return how far each copy of the row was moved, (n,), or infinity if it is not in cluster ``to``."""
        try:
            x = self.model.read(changed)
        except InvalidInputError:  # the steps do not accept such values
            return np.full(changed.n_rows, np.inf)
        return self.distances_to(x, to, certain)

    def distances_to(self, x: Floats, to: int, certain: bool = False) -> Floats:
        """Return the distance from the row to inputs x, (n, D), or infinity for those not in cluster ``to``.

        With ``certain``, the evidence must exceed the rounding errors of a model that adds up its terms in a
        different order.
        """
        far = np.linalg.norm((x - self.x) * self.model.step_scale, axis=1)
        inside = (self.model.assign(x) == to) & np.isfinite(far)
        if certain or self.table.dtype != np.float64:
            inside &= self.model.evidence(x, to) >= self.rounding(x, to, certain)
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
        """Return the inputs of trials, reading rows in which many columns are changed at once.

        The trials are read twice, with different columns side by side. Return None if the columns are not
        separate or if the steps reject a value.
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
        near = np.abs(once - more) <= self.tolerance * np.abs(once)
        if not (near | (np.isnan(once) & np.isnan(more))).all():
            return None
        return Trials(read.trial[first], read.at[first], once)

    @property
    def tolerance(self) -> float:
        """The relative difference of inputs that counts as rounding."""
        return _ROUNDING[self.table.dtype.itemsize] ** 2

    def _read_packed(self, rows: Codes, columns: Codes, values: Sequence[Any]) -> Trials | None:
        """Return the inputs for each trial; the value of trial i is in row rows[i] of a table."""
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
            if (np.abs(x - self.x) > self.tolerance * np.abs(self.x))[:, others].any():
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
            finite = np.isfinite(trials.value).all()
            if n_trials * len(self.x) <= _MOST_CHECKED or not finite or not self.model.is_linear:
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


def _bracket(curve: Curve, target: float, start: float) -> tuple[float, float]:
    """Return the two values of a curve around the target, beginning with the one nearer to ``start``."""
    inputs, values = curve.inputs, curve.values
    if inputs[0] > inputs[-1]:
        inputs, values = inputs[::-1], values[::-1]
    place = int(np.clip(np.searchsorted(inputs, target), 1, len(inputs) - 1))
    ends = sorted(values[[place - 1, place]].tolist(), key=lambda value: abs(value - start))
    inside = min(ends) < start < max(ends)
    upward = (target > np.interp(start, curve.values, curve.inputs)) == (curve.inputs[-1] > curve.inputs[0])
    return (start, max(ends) if upward else min(ends)) if inside else (ends[0], ends[1])


def _ranks(columns: Codes) -> Codes:
    """Return how many earlier entries are equal to each entry."""
    order = np.argsort(columns, kind="stable")
    ordered = columns[order]
    starts = np.searchsorted(ordered, ordered)
    ranks = np.empty_like(order)
    ranks[order] = np.arange(len(columns)) - starts
    return ranks


def changeable_row(
    model: HalfSpaceModel, table: Table, x: Floats, row: int, allowed: Codes, seen: SeenValues
) -> ChangeableRow:
    """Return a row of a table, with inputs x, (D,), and the ways in which its columns can change."""
    ranges, one = seen.ranges, table.take(np.array([row]))
    cells = np.empty(table.n_features, dtype=object)
    cells[:] = one.cells(0)
    one = without_frame(one)  # setting cells of frames takes much longer
    held = {column: why for column in allowed.tolist() if (why := why_held(cells[column]))}
    movable = np.array([c for c in allowed.tolist() if c not in held], dtype=np.intp)
    fixed = ChangeableRow(model, one, cells, x, allowed, np.zeros(len(model.source)), held)
    whole = frozenset(c for c in allowed.tolist() if _is_whole(cells[c], bool(seen.whole[c])))
    fixed = replace(fixed, whole=whole, all_rows=table)
    if table.is_plain:
        return replace(fixed, rate=np.isin(model.source, movable).astype(np.float64))
    rate = _rates(fixed, movable, _spread(ranges, cells))
    nonlinear = np.unique(model.source[np.isnan(rate)])
    curves = _curves(
        fixed, np.array([c for c in nonlinear.tolist() if is_real(cells[c])], dtype=np.intp), ranges
    )
    rate[np.isnan(rate)] = 0.0
    rate[[curve.at for curve in curves.values()]] = 1.0
    used = np.unique(model.source[rate != 0.0])
    unused = np.setdiff1d(movable, np.union1d(used, nonlinear)).tolist()
    held |= dict.fromkeys(set(nonlinear.tolist()) - set(curves), NONLINEAR) | dict.fromkeys(unused, UNUSED)
    return replace(fixed, rate=rate, held=held, curves=curves)


def _is_whole(cell: Any, seen_whole: bool) -> bool:
    """Return whether a column takes only whole numbers or days, by its type or by all values seen."""
    if isinstance(cell, (dt.date, dt.timedelta)):
        return is_day(cell) or (seen_whole and to_days(cell).is_integer())
    if not is_real(cell) or not float(cell).is_integer():
        return False
    return seen_whole or isinstance(cell, (int, np.integer))


def _curves(row: ChangeableRow, columns: Codes, ranges: Floats) -> dict[int, Curve]:
    """Return the curves of the columns that a step transforms monotonically."""
    columns = columns[ranges[1][columns] > ranges[0][columns]]
    grids = {c: _grid(ranges[0][c], ranges[1][c], float(row.cells[c])) for c in columns.tolist()}
    found = _curves_at(row, {c: np.concatenate(grids[c]) for c in grids})
    if found is None:  # a step refuses some value
        found = {}
        for column in columns.tolist() if len(columns) <= _MANY else ():
            inner, outer = grids[column]
            more = _curves_at(row, {column: np.concatenate([inner, outer])})
            found |= (_curves_at(row, {column: inner}) if more is None else more) or {}
    return found


def _grid(least: float, most: float, cell: float) -> tuple[Floats, Floats]:
    """Return values inside the range of a column, and values beyond it."""
    width = most - least
    inner = np.linspace(min(least, cell), max(most, cell), _INNER)
    low = least * _SMALLER if least > 0.0 else least - _BEYOND * width
    return np.unique(np.append(inner, cell)), np.concatenate([low, most + _BEYOND * width])


def _curves_at(row: ChangeableRow, grids: dict[int, Floats]) -> dict[int, Curve] | None:
    """Return the curves of the separate columns with one input that is strictly monotone at these values.

    Values at the ends, where the input is not monotone, are left out. Return None if a step rejects a value.
    """
    columns = np.repeat(list(grids), [len(grid) for grid in grids.values()]).astype(np.intp)
    values = np.concatenate([*grids.values(), np.empty(0)])
    with np.errstate(invalid="ignore", over="ignore"):
        trials = row.side_by_side(columns, values.tolist()) if len(columns) else None
        if trials is None:
            return None if len(columns) else {}
        moving = ~(np.abs(trials.value - row.x[trials.at]) <= row.tolerance * np.abs(row.x[trials.at]))
    found = {}
    for column, grid in grids.items():
        own = np.unique(trials.at[moving & (columns[trials.trial] == column)])
        if len(own) != 1:
            continue
        mine = (trials.at == own[0]) & (columns[trials.trial] == column)
        order = np.argsort(grid)
        curve = _monotone_part(grid[order], trials.value[mine][order], float(row.cells[column]))
        if curve is not None:
            found[column] = Curve(int(own[0]), *curve)
    return found


def _monotone_part(values: Floats, inputs: Floats, cell: float) -> tuple[Floats, Floats] | None:
    """Return the values around ``cell`` at which the inputs are strictly monotone, or None if too few."""
    with np.errstate(invalid="ignore"):
        steps = np.diff(inputs)
        start = int(np.searchsorted(values, cell))
        sign = np.sign(np.nansum(steps[max(start - _INNER // 2, 0) : start + _INNER // 2]))
        steep = steps * sign > _STEEP * np.nanmax(np.abs(steps), initial=0.0)
    low, high = min(start, len(steps)), start
    while low > 0 and steep[low - 1]:
        low -= 1
    while high < len(steps) and steep[high]:
        high += 1
    enough = high - low >= _INNER - 1
    return (values[low : high + 1], inputs[low : high + 1]) if enough else None


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
    """Move many columns at once; return None if they are not separate, or if a trial value is rejected."""
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
