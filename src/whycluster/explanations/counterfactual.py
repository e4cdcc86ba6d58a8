"""What would have to change: the smallest change that moves a row to another cluster.

For models that part their clusters by planes (`half_spaces`), and for columns that the steps of a
pipeline, if there are any, do nothing but scale, which is found by trying. Columns of another kind are held,
and tried one by one. A row on a plane is in neither cluster for sure, so that changes go a little beyond; and
every answer is put to the network itself first.
"""

from __future__ import annotations

import datetime as dt
import math
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from decimal import Decimal
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from whycluster.core.arrays import Codes, Floats, evenly
from whycluster.core.energies import Energy
from whycluster.core.errors import InvalidInputError
from whycluster.data import display
from whycluster.data.arrays import is_real
from whycluster.data.days import to_days
from whycluster.data.frames import as_column, build_frame
from whycluster.data.labels import cluster_name, is_noise
from whycluster.data.missing import is_missing
from whycluster.data.table import Table
from whycluster.explanations.half_spaces import HalfSpaceModel, HalfSpaces, least_step, least_steps_along

WHERE = "counterfactual"

# How far beyond a plane a row is moved, as a part of the change: the first of these that is enough once all
# values are rounded to what their columns can hold.
_MARGINS = (1e-6, 1e-5, 1e-4, 1e-3, 1e-2)
_TIE = 1e-3  # a row on a plane is moved as if it were off by this part of the distance of the centroids
_FLAT = 1e-12  # planes that turn to a column by less are taken for parallel to it: it is rounding
_STEPS = np.array([2.0**-6, 0.5, 3.0, 40.0])  # times the spread of a column, to see whether it is only scaled
_MOST_DAYS = 20_000.0  # by which a date is moved to see it: some calendars end in 2262
_ROUNDING = {4: 1e-2, 8: 1e-6}  # by the bytes of a number that steps work with
_SAMPLE = 256  # rows that values of bent columns are taken from
_MOST_TRIED = 1000  # categories of a column; more are free text
_ROUNDS, _PARTS = 3, 1000  # of a search between two values, to 10^-9 of what lies between them
_MOST_CELLS = 1 << 20  # of rows that are tried at once
_DAY = dt.timedelta(days=1)
_OUTSIDE = "outside the data"

_CATEGORY, _WHOLE_DAYS, _MISSING, _BENT, _UNUSED = "category", "whole days", "missing", "bent", "unused"


@dataclass(frozen=True, eq=False, repr=False)
class Counterfactual:
    """The smallest change that moves a row to another cluster; `print` it, or `to_frame`.

    Values are in the units of the columns. How large a change is, is in those that the model measures in:
    behind the scalers of a pipeline, and before anything mixes what they scale.

    Attributes
    ----------
    row : the position of the row
    cluster, to : the label of the cluster that it is in, and of the one that it is moved to
    before, after : (d,) its values, and those with which it is in the other cluster; None where no change is
        enough
    change : (d,) after minus before, of dates in days; 0 where a feature is held; NaN where no change is
        enough
    size : (d,) how large the change of each feature is
    distance : how large they are together: the root of the sum of the squared sizes; infinite where no change
        is enough
    single : (d,) of each feature the nearest value that is enough on its own, None where there is none
    single_distance : (d,) how large these changes are; infinite where there is none
    outside, single_outside : (d,) whether the values in `after` and in `single` lie outside those of all rows
        that were explained
    held : of the features that cannot change freely, why: "category" (also a boolean), "whole days",
        "missing", "bent" (the steps do more than scale it) or "unused" (they leave it out). In `after` they
        are as they were
    feature_names : the d names
    """

    row: int
    cluster: Any
    to: Any
    before: NDArray[Any]
    after: NDArray[Any]
    change: Floats
    size: Floats
    distance: float
    single: NDArray[Any]
    single_distance: Floats
    outside: NDArray[np.bool_]
    single_outside: NDArray[np.bool_]
    held: dict[Hashable, str]
    feature_names: list[Hashable]
    _name: Any = field(default=None, repr=False)  # what the user calls the row
    _like: Any = field(default=None, repr=False)

    @property
    def found(self) -> bool:
        """Whether some change of the features that are not held is enough."""
        return math.isfinite(self.distance)

    @property
    def best_single(self) -> Hashable | None:
        """The feature that has to change least to be enough on its own; None if none is."""
        best = int(np.argmin(self.single_distance))
        return self.feature_names[best] if np.isfinite(self.single_distance[best]) else None

    def to_frame(self, backend: str | None = None) -> Any:
        """One row per feature, the largest change first.

        The frame is of the library the data came in; ``backend`` ("pandas", "polars", "pyarrow")
        chooses another.
        """
        order = self._largest_first()
        columns: dict[Hashable, NDArray[Any]] = {
            "feature": as_column(self.feature_names)[order],
            "before": self.before[order],
            "after": self.after[order],
            "change": self.change[order],
            "size": self.size[order],
            "single": self.single[order],
            "single_distance": self.single_distance[order],
        }
        return build_frame(columns, self._like, backend, f"{WHERE}.to_frame", same_rows=False)

    def describe(self, n_features: int = 6) -> str:
        """The largest changes, and the features of which one alone is enough, as text."""
        name, to = display.clean(str(self._name)), cluster_name(self.to)
        place = "in " * (not is_noise(self.cluster)) + cluster_name(self.cluster)
        parts = [
            f"Row {name} is {place}. " + self._tell_all(to, n_features),
            self._tell_single(to, n_features),
        ]
        if self.held:
            listed = ", ".join(f"{display.clean(str(name))} ({why})" for name, why in self.held.items())
            parts.append(f"Held where several change: {listed}.")
        return "\n\n".join(parts)

    def __str__(self) -> str:
        return self.describe()

    __repr__ = __str__  # a notebook shows the table too

    def _largest_first(self) -> Codes:
        return np.argsort(-self.size, kind="stable")

    def _tell_all(self, to: str, n_features: int) -> str:
        if not self.found:
            return f"No change of those features that are not held moves it to {to}."
        changed = [i for i in self._largest_first().tolist() if self.change[i]]
        largest = float(self.size.max())
        lines = [
            [
                str(self.feature_names[i]),
                _shown(self.before[i]),
                _shown(self.after[i]),
                "+" * bool(self.change[i] > 0) + display.number(self.change[i]),
                display.bar(math.copysign(self.size[i], self.change[i]), largest),
                _OUTSIDE * bool(self.outside[i]),
            ]
            for i in changed[:n_features]
        ]
        left = len(changed) - len(lines)
        return (
            f"The smallest change that moves it to {to}, of size {self.distance:.3g}:\n"
            + display.table(["feature", "value", "becomes", "change", "", ""], lines, align="<>>><<")
            + f"\n{display.count(left, 'more feature')} by less" * bool(left)
        )

    def _tell_single(self, to: str, n_features: int) -> str:
        order = np.argsort(self.single_distance, kind="stable")
        enough = [i for i in order.tolist() if np.isfinite(self.single_distance[i])]
        if not enough:
            return f"No feature alone moves it to {to}."
        lines = [
            [
                str(self.feature_names[i]),
                _shown(self.before[i]),
                _shown(self.single[i]),
                f"{self.single_distance[i]:.3g}",
                _OUTSIDE * bool(self.single_outside[i]),
            ]
            for i in enough[:n_features]
        ]
        left = len(enough) - len(lines)
        return (
            "One feature alone:\n"
            + display.table(["feature", "value", "becomes", "size", ""], lines, align="<>>><")
            + f"\nor {display.count(left, 'other')}" * bool(left)
        )


def find(
    energy: Energy,
    table: Table,
    labels: NDArray[Any],
    row: int,
    cluster: int,
    to: int | None,
    within: Iterable[Hashable] | None,
    ranges: Floats,
    name: Hashable,
) -> Counterfactual:
    """The smallest change.

    Parameters
    ----------
    energy : of the model
    table, row : the data that were explained, and which row of them
    labels : (K,) of the clusters
    cluster, to : codes of the cluster that it is in, and of the one to move it to; None: of the nearest
    within : names of the features that may change; by default all
    ranges : (2, d) the least and the greatest value of each column, of dates in days
    name : what the user calls the row
    """
    subject = _subject(energy, table, row, _positions(within, table.feature_names), ranges)
    to = subject.nearest(cluster) if to is None else to
    half_spaces = subject.model.half_spaces(subject.x, to)
    if half_spaces.unbeatable.size:
        raise InvalidInputError(
            f"{WHERE}: to must be a cluster that a row can be in; no row is ever in {labels.tolist()[to]!r}, "
            f"since {labels.tolist()[half_spaces.unbeatable[0]]!r} is at least as near everywhere, and wins "
            "ties."
        )
    after, distance = _all_at_once(subject, half_spaces, to)
    change = np.array([_apart(a, b) for a, b in zip(after, subject.cells, strict=True)])
    single, single_distance = _one_by_one(subject, half_spaces, to)
    for column, (value, far) in _tried(subject, table, to).items():
        single[column], single_distance[column] = value, far
    return Counterfactual(
        row=row,
        cluster=labels[cluster],
        to=labels[to],
        before=subject.cells,
        after=after,
        change=change,
        size=np.abs(change) * subject.weight,
        distance=distance,
        single=single,
        single_distance=single_distance,
        outside=_outside(after, ranges),
        single_outside=_outside(single, ranges),
        held={table.feature_names[column]: why for column, why in sorted(subject.held.items())},
        feature_names=table.feature_names,
        _name=name,
        _like=table.native,
    )


def _positions(within: Any, names: list[Hashable]) -> Codes:
    """Where the features stand that may change."""
    if within is None:
        return np.arange(len(names))
    chosen = [] if isinstance(within, str) or not isinstance(within, Iterable) else list(within)
    if not chosen:
        raise InvalidInputError(
            f"{WHERE}: within must be a list of names of features; got {within!r}. Leave it out to let all "
            f"of them change."
        )
    unknown = [name for name in chosen if name not in names]
    if unknown:
        listed = ", ".join(map(repr, names[:5])) + ", ..." * (len(names) > 5)
        raise InvalidInputError(
            f"{WHERE}: within must be names of features, which are {listed}; got {unknown[0]!r}."
        )
    return np.unique([names.index(name) for name in chosen])


@dataclass(frozen=True)
class _Subject:
    """A row, and how its columns can be changed.

    Attributes
    ----------
    model : what assigns it
    table : that row only
    cells : (d,) its values
    x : (D,) what the model takes of it
    rate : (D,) by how much each of these grows with its column; 0 where it does not, or not evenly
    allowed : the columns that may change
    held : of those of them that cannot change freely, why
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
        """(d,) how much a change of 1 in each column counts; 0 where it cannot change evenly."""
        weight = np.zeros(len(self.cells))
        moved = self.rate != 0.0
        np.add.at(weight, self.model.source[moved], np.square(self.model.step_scale * self.rate)[moved])
        return np.asarray(np.sqrt(weight))

    @property
    def even(self) -> Codes:
        """The columns that come nearer to planes, or farther, evenly."""
        return self.allowed[self.weight[self.allowed] > 0.0]

    @property
    def free(self) -> Codes:
        """Those of them that can have any value."""
        return np.array([column for column in self.even.tolist() if column not in self.held], dtype=np.intp)

    def slopes(self, half_spaces: HalfSpaces, columns: Codes) -> Floats:
        """How fast each h grows with each column, (J, C), for changes that count 1."""
        by_column = np.zeros((len(self.cells), len(half_spaces.h)))
        moved, counts = self.rate != 0.0, self.model.step_scale > 0.0
        np.add.at(by_column, self.model.source[moved], (half_spaces.slopes * self.rate).T[moved])
        g = (by_column[columns] / self.weight[columns][:, None]).T
        whole = np.linalg.norm(half_spaces.slopes[:, counts] / self.model.step_scale[counts], axis=1)
        return np.where(np.abs(g) > _FLAT * whole[:, None], g, 0.0)

    def nearest(self, cluster: int) -> int:
        """The cluster that the smallest change of free columns leads to, of a row in this one.

        The shortest way out of a cluster is that to its nearest plane, whatever lies behind the others.
        """
        half_spaces, columns = self.model.half_spaces(self.x, cluster), self.free
        g = self.slopes(half_spaces, columns)
        sizes = np.linalg.norm(g, axis=1)
        far = np.divide(half_spaces.h, sizes, out=np.full(len(sizes), np.inf), where=sizes > 0.0)
        first = int(np.argmin(far))
        _, strongest = self.model.strongest(self.x)
        if not np.isfinite(far[first]):
            return strongest
        step = -(far[first] + _beyond(far[first], sizes[first], _MARGINS[0])) / sizes[first] * g[first]
        change = np.zeros(len(self.cells))
        change[columns] = step / self.weight[columns]
        found, _ = self.model.strongest(self.x + self.rate * change[self.model.source])
        return strongest if found == cluster else found

    def changed(self, rows: Codes, columns: Codes, values: Sequence[Any]) -> Table:
        """Copies of the row, up to the last of ``rows``, with these values in these cells."""
        copies = self.table.take(np.zeros(int(rows[-1]) + 1, dtype=np.intp))
        return copies.put(rows, columns, values)

    def distances(self, changed: Table, to: int) -> Floats:
        """How far copies of the row were moved, (n,); infinite where they are not in the cluster."""
        try:
            x = self.model.read(changed)
        except InvalidInputError:  # steps cannot take such values
            return np.full(changed.n_rows, np.inf)
        far = np.linalg.norm((x - self.x) * self.model.step_scale, axis=1)
        return np.where((self.model.assign(x) == to) & np.isfinite(far), far, np.inf)

    def try_each(self, columns: Codes, values: Sequence[Any], to: int) -> Floats:
        """How far it is moved by each of these values alone; infinite where that is not enough."""
        size = max(1, _MOST_CELLS // len(self.cells))
        found = [np.empty(0)]
        for start in range(0, len(columns), size):
            some = columns[start : start + size]
            changed = self.changed(np.arange(len(some)), some, values[start : start + size])
            found.append(self.distances(changed, to))
        return np.concatenate(found)


def _subject(energy: Energy, table: Table, row: int, allowed: Codes, ranges: Floats) -> _Subject:
    """A row of a table, with what can be done to its columns."""
    model = HalfSpaceModel.of(energy, WHERE)
    one = table.take(np.array([row]))
    cells = np.empty(table.n_features, dtype=object)
    cells[:] = one.cells(0)
    held = {column: why for column in allowed.tolist() if (why := _why_held(cells[column]))}
    movable = np.array(
        [c for c in allowed.tolist() if held.get(c, _WHOLE_DAYS) == _WHOLE_DAYS], dtype=np.intp
    )
    still = _Subject(model, one, cells, model.read(one)[0], allowed, np.zeros(len(model.source)), held)
    if table.is_plain:
        return replace(still, rate=np.isin(model.source, movable).astype(np.float64))
    rate = _rates(still, movable, _spread(ranges, cells))
    own = {column: rate[model.source == column] for column in movable.tolist()}
    bent = {column: _BENT for column, rates in own.items() if np.isnan(rates).any()}
    unused = {column: _UNUSED for column, rates in own.items() if not rates.any()}
    return replace(still, rate=np.nan_to_num(rate), held=held | bent | unused)


def _why_held(value: Any) -> str:
    """Why a value cannot change freely, as far as it says so itself; empty if it can."""
    if is_missing(value):
        return _MISSING
    if isinstance(value, (dt.datetime, dt.timedelta, Decimal)) or is_real(value):
        return ""
    return _WHOLE_DAYS if isinstance(value, dt.date) else _CATEGORY


def _spread(ranges: Floats, cells: NDArray[Any]) -> Floats:
    """(d,) how far the values of each column lie apart; of one value, its size."""
    apart = ranges[1] - ranges[0]
    size = np.array([abs(float(value)) if is_real(value) else 1.0 for value in cells])
    return np.where(np.isfinite(apart) & (apart > 0.0), apart, np.where(size > 0.0, size, 1.0))


def _rates(subject: _Subject, columns: Codes, spread: Floats) -> Floats:
    """(D,) by how much what the model takes grows with these columns; NaN where steps do more than scale.

    Every column is moved by small steps and by large ones. If it is only scaled, all that is its own moves in
    proportion, and nothing else does.
    """
    model, n_steps = subject.model, 2 * len(_STEPS)
    rate = np.zeros(len(model.source))
    size = max(1, _MOST_CELLS // (n_steps * max(len(model.source), len(subject.cells))))
    if len(columns) > size:
        parts = np.array_split(columns, -(-len(columns) // size))
        return np.asarray(sum(_rates(subject, part, spread) for part in parts))
    found = _moves(subject, columns, spread)
    if found is None and len(columns) > 1:
        return np.asarray(sum(_rates(subject, half, spread) for half in np.array_split(columns, 2)))
    if found is None:
        rate[model.source == columns[0]] = np.nan
        return rate
    for column, step, move in zip(columns.tolist(), *found, strict=True):
        own = model.source == column
        rate[own] = _in_proportion(step, move, own, _ROUNDING[subject.table.dtype.itemsize])
    return rate


def _moves(subject: _Subject, columns: Codes, spread: Floats) -> tuple[Floats, Floats] | None:
    """By how much columns were moved, (C, S), and what the model takes, (C, S, D); None where that fails."""
    steps = np.concatenate([-_STEPS, _STEPS])
    if not columns.size:
        return np.empty((0, len(steps))), np.empty((0, len(steps), len(subject.x)))
    values: list[Any] = []
    by: list[float] = []
    for column in columns.tolist():
        cell = subject.cells[column]
        most = np.inf if is_real(cell) else _MOST_DAYS
        values += [_moved(cell, step) for step in np.clip(steps * spread[column], -most, most).tolist()]
        by += [_apart(value, cell) for value in values[-len(steps) :]]
    if any(value is None for value in values):
        return None
    changed = subject.changed(np.arange(len(values)), np.repeat(columns, len(steps)), values)
    try:
        moved = subject.model.read(changed) - subject.x
    except InvalidInputError:
        return None
    shape = len(columns), len(steps)
    return np.reshape(by, shape), moved.reshape(*shape, -1)


def _in_proportion(step: Floats, move: Floats, own: NDArray[np.bool_], rounding: float) -> Floats:
    """By how much its own features grow with a column, if they do so evenly and no others do; else NaN."""
    with np.errstate(invalid="ignore", over="ignore"):
        rate = step @ move / (step @ step)
        most = np.abs(move).max(axis=0)
        uneven = np.abs(move - step[:, None] * rate).max(axis=0)
        alone = (most[~own] <= rounding * most[own].max(initial=0.0)).all()
        even = (uneven[own] <= rounding * most[own]).all()
    return np.asarray(rate[own]) if alone and even else np.full(int(own.sum()), np.nan)


def _moved(value: Any, by: float) -> Any:
    """A number, or a date by days: whole ones, rather more, if it has no time; None if no calendar has it."""
    if not isinstance(value, (dt.date, dt.timedelta)):
        return float(value) + by
    whole = isinstance(value, dt.date) and not isinstance(value, dt.datetime)
    step, zone = dt.timedelta(days=math.copysign(math.ceil(abs(by)), by) if whole else by), _zone(value)
    try:
        return value + step if zone is None else (_in_utc(value) + step).astimezone(zone)
    except (OverflowError, ValueError):
        return None


def _apart(after: Any, before: Any) -> float:
    """The difference of two numbers, or of dates in days; 0 of what is the same, NaN of what is not there."""
    if after is before:
        return 0.0
    if after is None:
        return math.nan
    if not isinstance(after, (dt.date, dt.timedelta)):
        return float(after) - float(before)
    return float((_in_utc(after) - _in_utc(before)) / _DAY)


def _zone(value: Any) -> dt.tzinfo | None:
    return value.tzinfo if isinstance(value, dt.datetime) else None


def _in_utc(value: Any) -> Any:
    """A moment of a time zone, in UTC: in its own, Python counts by the clocks on the wall, which are set."""
    return value if _zone(value) is None else value.astimezone(dt.timezone.utc)


def _outside(values: NDArray[Any], ranges: Floats) -> NDArray[np.bool_]:
    """Which numbers and dates lie outside these ranges."""
    days = (to_days(v) if isinstance(v, (dt.date, dt.timedelta)) else v for v in values)
    numbers = np.array([float(v) if is_real(v) else math.nan for v in days])
    return np.asarray((numbers < ranges[0]) | (numbers > ranges[1]))


def _shown(value: Any) -> str:
    """As in an explanation, but moments to the minute."""
    timed = isinstance(value, dt.datetime) and value.time() != dt.time()
    return f"{value:%Y-%m-%d %H:%M}" if timed else display.format_value(value)


def _beyond(distance: Any, size: Any, margin: float) -> Any:
    """How far beyond planes a row is moved that is at this distance; ``size`` is that of their slopes."""
    return margin * np.maximum(distance, _TIE * size)


def _all_at_once(subject: _Subject, half_spaces: HalfSpaces, to: int) -> tuple[NDArray[Any], float]:
    """The values after the smallest change of all free columns, and its size; None, infinite if none is."""
    columns, nothing = subject.free, (np.full(len(subject.cells), None), math.inf)
    g = subject.slopes(half_spaces, columns)
    sizes = np.linalg.norm(g, axis=1)
    step = least_step(g, -half_spaces.h)
    if step is None:
        return nothing
    distance = np.linalg.norm(step)
    for margin in _MARGINS:
        step = least_step(g, _beyond(distance, sizes, margin) * sizes - half_spaces.h)
        if step is None:
            return nothing
        moving = np.flatnonzero(np.abs(step) > _FLAT * np.linalg.norm(step))
        by = (step / subject.weight[columns])[moving]
        values = [_moved(subject.cells[c], b) for c, b in zip(columns[moving], by.tolist(), strict=True)]
        if not values or any(value is None for value in values):
            return nothing
        changed = subject.changed(np.zeros(len(moving), dtype=np.intp), columns[moving], values)
        found = subject.distances(changed, to)[0]
        if np.isfinite(found):
            after, cells = subject.cells.copy(), changed.cells(0)
            for column in columns[moving].tolist():
                after[column] = cells[column]
            return after, float(found)
    return nothing


def _one_by_one(subject: _Subject, half_spaces: HalfSpaces, to: int) -> tuple[NDArray[Any], Floats]:
    """Of each column that changes evenly the nearest value that is enough, (d,), and how far it is, (d,)."""
    single = np.full(len(subject.cells), None)
    distances = np.full(len(subject.cells), np.inf)
    columns = subject.even
    g, need = subject.slopes(half_spaces, columns), -half_spaces.h[:, None]
    least = np.abs(least_steps_along(g, need))
    for margin in _MARGINS:
        sizes = np.abs(g)
        steps = least_steps_along(g, _beyond(least, sizes, margin) * sizes + need)
        by = (steps / subject.weight[columns]).tolist()
        values = [
            None if math.isnan(b) else _moved(subject.cells[c], b) for c, b in zip(columns, by, strict=True)
        ]
        left = np.array([value is not None for value in values], dtype=bool)
        columns, g, least = columns[left], g[:, left], least[left]
        values = [value for value in values if value is not None]
        found = subject.try_each(columns, values, to)
        enough = np.isfinite(found)
        for i in np.flatnonzero(enough).tolist():
            single[columns[i]] = values[i]
        distances[columns[enough]] = found[enough]
        columns, g, least = columns[~enough], g[:, ~enough], least[~enough]
        if not columns.size:
            break
    return single, distances


def _values_to_try(subject: _Subject, table: Table, column: int) -> list[Any]:
    """Other values of a column that cannot change evenly: categories, or values that are there."""
    why, cell = subject.held.get(column), subject.cells[column]
    values: Sequence[Any] = []
    if isinstance(cell, bool):
        values = [not cell]
    elif why in (_CATEGORY, _MISSING) and not isinstance(cell, dt.time):
        values = table.categories.get(column, [])[:_MOST_TRIED]
    elif why == _BENT or isinstance(cell, dt.time):
        some = table.take(evenly(table.n_rows, _SAMPLE))
        values = sorted({v for v in some.pick(np.full((some.n_rows, 1), column))[:, 0] if not is_missing(v)})
    return [value for value in values if is_missing(cell) or value != cell]


def _tried(subject: _Subject, table: Table, to: int) -> dict[int, tuple[Any, float]]:
    """Of columns that cannot change evenly, the value that is enough and moves the row least, and how far."""
    pairs = [(c, value) for c in subject.allowed.tolist() for value in _values_to_try(subject, table, c)]
    columns, values = np.array([c for c, _ in pairs], dtype=np.intp), [value for _, value in pairs]
    found = subject.try_each(columns, values, to)
    best: dict[int, tuple[Any, float]] = {}
    for column in np.unique(columns[np.isfinite(found)]).tolist():
        there = np.flatnonzero((columns == column) & np.isfinite(found))
        nearest = int(there[np.argmin(found[there])])
        best[column] = values[nearest], float(found[nearest])
        if subject.held[column] == _BENT:
            far = np.array([_apart(values[i], subject.cells[column]) for i in there.tolist()])
            sides = [far[far < 0.0].max(initial=-np.inf), far[far > 0.0].min(initial=np.inf)]
            nearer = [_first_between(subject, column, side, to) for side in sides if np.isfinite(side)]
            best[column] = min(nearer, key=lambda found: found[1])
    return best


def _first_between(subject: _Subject, column: int, far: float, to: int) -> tuple[Any, float]:
    """The nearest value that is enough, on the way to one that is, ``far`` off."""
    low, high, best = 0.0, far, (None, math.inf)
    for _ in range(_ROUNDS):
        parts = np.linspace(low, high, _PARTS + 1)
        values = [_moved(subject.cells[column], part) for part in parts[1:].tolist()]
        found = subject.try_each(np.full(_PARTS, column), values, to)
        if not np.isfinite(found).any():
            break
        first = int(np.argmax(np.isfinite(found)))
        best = values[first], float(found[first])
        low, high = parts[first], parts[first + 1]
    return best
