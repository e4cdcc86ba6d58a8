"""Counterfactuals: the smallest change that moves a row to another cluster.

They are available for models that separate their clusters by hyperplanes (see `half_spaces`). Only columns
that the pipeline merely scales can change together; trial changes determine which columns these are. All
other columns stay fixed in the joint change and are then changed one at a time. A row exactly on a hyperplane
has no definite cluster, so each change goes slightly beyond it. Every result is checked with the network
itself.
"""

from __future__ import annotations

import datetime as dt
import math
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from whycluster.core.arrays import Codes, Floats
from whycluster.core.energies import Energy
from whycluster.core.errors import InvalidInputError
from whycluster.data import display
from whycluster.data.arrays import evenly_spaced
from whycluster.data.frames import as_column, build_frame
from whycluster.data.labels import cluster_name, is_noise
from whycluster.data.missing import is_missing
from whycluster.data.table import Table
from whycluster.explanations.cell_values import CATEGORY, MISSING, NONLINEAR, apart, moved, outside
from whycluster.explanations.changeable_row import FLAT, ChangeableRow, changeable_row
from whycluster.explanations.half_spaces import HalfSpaces, least_step, least_steps_along

WHERE = "counterfactual"

# How far beyond a hyperplane a row is moved, as a fraction of the change. The first fraction that is still
# enough after all values have been rounded to the types of their columns is used.
_MARGINS = (1e-6, 1e-5, 1e-4, 1e-3, 1e-2)
_TIE = 1e-3  # a row on a hyperplane is moved as if it were this fraction of the centroids' distance away
_SAMPLE = 256  # rows from which values of nonlinear columns are taken
_MOST_TRIED = 1000  # categories per column; columns with more categories hold free text
_ROUNDS, _PARTS = 3, 1000  # rounds and steps of a search between two values, to 10^-9 of their difference
_OUTSIDE = "outside the data"


@dataclass(frozen=True, eq=False, repr=False)
class Counterfactual:
    """The smallest change that moves a row to another cluster: `print` it, or convert it with `to_frame`.

    Values are in the units of the columns. Sizes are in the units in which the model measures distances:
    after the scalers of a pipeline, and before any step that mixes the scaled columns.

    Attributes
    ----------
    row : the position of the row
    cluster, to : the labels of the row's cluster and of the cluster that it is moved to
    before, after : (d,) the values of the row, and the values that move it to the other cluster. All values
        in `after` are None if no change is enough.
    change : (d,) `after` minus `before`, in days for dates. It is 0 for features that are held fixed, and NaN
        if no change is enough.
    size : (d,) the size of the change of each feature
    distance : the total size, which is the root of the sum of the squared sizes, or infinity if no change is
        enough
    single : (d,) for each feature, the nearest value that is enough on its own, or None if there is no such
        value
    single_distance : (d,) the sizes of these single changes, or infinity if no value is enough
    outside, single_outside : (d,) whether the values in `after` and in `single` are outside the range of all
        rows that were explained
    held : the features that cannot change freely, each with the reason: "category" (also for booleans),
        "whole days", "missing", "nonlinear" (the steps do more than scale it) or "unused" (the steps drop
        it). These features do not change in `after`.
    feature_names : the names of the d features
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
    _name: Any = field(default=None, repr=False)  # the name of the row
    _like: Any = field(default=None, repr=False)

    @property
    def found(self) -> bool:
        """Whether some change of the features that are not held fixed is enough."""
        return math.isfinite(self.distance)

    @property
    def best_single(self) -> Hashable | None:
        """The feature with the smallest change that is enough on its own, or None if no feature is enough."""
        best = int(np.argmin(self.single_distance))
        return self.feature_names[best] if np.isfinite(self.single_distance[best]) else None

    def to_frame(self, backend: str | None = None) -> Any:
        """Return a frame with one row per feature, in order of decreasing size of the change.

        By default, the frame comes from the same library as the data; ``backend`` ("pandas", "polars" or
        "pyarrow") selects a different library.
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
        """Describe, as text, the largest changes and the single features that are enough on their own."""
        name, to = display.clean(str(self._name)), cluster_name(self.to)
        place = "in " * (not is_noise(self.cluster)) + cluster_name(self.cluster)
        parts = [
            f"Row {name} is {place}. " + self._describe_all(to, n_features),
            self._describe_single(to, n_features),
        ]
        if self.held:
            listed = ", ".join(f"{display.clean(str(name))} ({why})" for name, why in self.held.items())
            parts.append(f"Held fixed when several features change: {listed}.")
        return "\n\n".join(parts)

    def __str__(self) -> str:
        return self.describe()

    __repr__ = __str__  # a notebook shows the table too

    def _largest_first(self) -> Codes:
        return np.argsort(-self.size, kind="stable")

    def _describe_all(self, to: str, n_features: int) -> str:
        if not self.found:
            return f"No change of the features that are not held fixed moves it to {to}."
        changed = [i for i in self._largest_first().tolist() if self.change[i]]
        largest = float(self.size.max())
        lines = [
            [
                str(self.feature_names[i]),
                _format_cell(self.before[i]),
                _format_cell(self.after[i]),
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
            + f"\n{display.count(left, 'more feature')} with smaller changes" * bool(left)
        )

    def _describe_single(self, to: str, n_features: int) -> str:
        order = np.argsort(self.single_distance, kind="stable")
        enough = [i for i in order.tolist() if np.isfinite(self.single_distance[i])]
        if not enough:
            return f"No feature alone moves it to {to}."
        lines = [
            [
                str(self.feature_names[i]),
                _format_cell(self.before[i]),
                _format_cell(self.single[i]),
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
    """Return the smallest change that moves a row to another cluster.

    Parameters
    ----------
    energy : the energy of the model
    table, row : the data that were explained, and the position of the row
    labels : (K,) the labels of the clusters
    cluster, to : the codes of the row's cluster and of the cluster to move it to; with None, the row moves to
        the nearest cluster
    within : the names of the features that may change; by default, all features
    ranges : (2, d) the smallest and the largest value of each column, in days for dates
    name : the name of the row
    """
    allowed = _positions(within, table.feature_names)
    subject = changeable_row(energy, table, row, allowed, ranges, WHERE)
    to = _nearest(subject, cluster) if to is None else to
    half_spaces = subject.half_spaces(to)
    if half_spaces.unbeatable.size:
        raise InvalidInputError(
            f"{WHERE}: to must be a cluster that a row can be in; no row is ever in {labels.tolist()[to]!r}, "
            f"since {labels.tolist()[half_spaces.unbeatable[0]]!r} is at least as near everywhere and wins "
            "ties."
        )
    after, distance = _all_at_once(subject, half_spaces, to)
    change = np.array([apart(a, b) for a, b in zip(after, subject.cells, strict=True)])
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
        outside=outside(after, ranges),
        single_outside=outside(single, ranges),
        held={table.feature_names[column]: why for column, why in sorted(subject.held.items())},
        feature_names=table.feature_names,
        _name=name,
        _like=table.native,
    )


def _positions(within: Any, names: list[Hashable]) -> Codes:
    """Return the positions of the features that may change."""
    if within is None:
        return np.arange(len(names))
    chosen = [] if isinstance(within, str) or not isinstance(within, Iterable) else list(within)
    if not chosen:
        raise InvalidInputError(
            f"{WHERE}: within must be a list of feature names; got {within!r}. Leave it out to let all "
            f"features change."
        )
    unknown = [name for name in chosen if name not in names]
    if unknown:
        listed = ", ".join(map(repr, names[:5])) + ", ..." * (len(names) > 5)
        raise InvalidInputError(
            f"{WHERE}: within must be names of features, one or more of {listed}; got {unknown[0]!r}."
        )
    return np.unique([names.index(name) for name in chosen])


def _format_cell(value: Any) -> str:
    """Format a value as in an explanation, except that datetimes are shown to the minute."""
    timed = isinstance(value, dt.datetime) and value.time() != dt.time()
    return f"{value:%Y-%m-%d %H:%M}" if timed else display.format_value(value)


def _beyond(distance: Any, size: Any, margin: float) -> Any:
    """Return how far a row moves beyond hyperplanes at this distance, whose slopes have the norm ``size``."""
    return margin * np.maximum(distance, _TIE * size)


def _nearest(subject: ChangeableRow, cluster: int) -> int:
    """Return the cluster that the smallest change of free columns leads to if the row is in ``cluster``.

    The shortest way out of a cluster crosses its nearest hyperplane, regardless of where the other
    hyperplanes are.
    """
    half_spaces, columns = subject.half_spaces(cluster), subject.free
    g = subject.slopes(half_spaces, columns)
    sizes = np.linalg.norm(g, axis=1)
    far = np.divide(half_spaces.h, sizes, out=np.full(len(sizes), np.inf), where=sizes > 0.0)
    first = int(np.argmin(far))
    _, strongest = subject.model.strongest(subject.x)
    if not np.isfinite(far[first]):
        return strongest
    step = -(far[first] + _beyond(far[first], sizes[first], _MARGINS[0])) / sizes[first] * g[first]
    change = np.zeros(len(subject.cells))
    change[columns] = step / subject.weight[columns]
    found, _ = subject.model.strongest(subject.x + subject.rate * change[subject.model.source])
    return strongest if found == cluster else found


def _all_at_once(subject: ChangeableRow, half_spaces: HalfSpaces, to: int) -> tuple[NDArray[Any], float]:
    """Return the values after the smallest change of all free columns, (d,), and the size of the change.

    If no change is enough, the values are None and the size is infinite.
    """
    columns, nothing = subject.free, (np.full(len(subject.cells), None), math.inf)
    g = subject.slopes(half_spaces, columns)
    sizes = np.linalg.norm(g, axis=1)
    step = least_step(g, -half_spaces.h)
    if step is None:
        return nothing
    distance, rounding = np.linalg.norm(step), subject.rounding(subject.x[None], to)
    for number, margin in enumerate(_MARGINS):
        beyond = np.maximum(_beyond(distance, sizes, margin) * sizes, 4.0**number * rounding)
        step = least_step(g, beyond - half_spaces.h)
        if step is None:
            return nothing
        moving = np.flatnonzero(np.abs(step) > FLAT * np.linalg.norm(step))
        by = (step / subject.weight[columns])[moving]
        values = [moved(subject.cells[c], b) for c, b in zip(columns[moving], by.tolist(), strict=True)]
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


def _one_by_one(subject: ChangeableRow, half_spaces: HalfSpaces, to: int) -> tuple[NDArray[Any], Floats]:
    """For each linear column, return the nearest value that moves the row to cluster ``to`` by itself.

    The results are the values, (d,), and their distances, (d,).
    """
    single = np.full(len(subject.cells), None)
    distances = np.full(len(subject.cells), np.inf)
    columns = subject.linear
    g, need = subject.slopes(half_spaces, columns), -half_spaces.h[:, None]
    least, rounding = np.abs(least_steps_along(g, need)), subject.rounding(subject.x[None], to)
    for number, margin in enumerate(_MARGINS):
        sizes = np.abs(g)
        beyond = np.maximum(_beyond(least, sizes, margin) * sizes, 4.0**number * rounding)
        steps = least_steps_along(g, beyond + need)
        by = (steps / subject.weight[columns]).tolist()
        values = [
            None if math.isnan(b) else moved(subject.cells[c], b) for c, b in zip(columns, by, strict=True)
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


def _values_to_try(subject: ChangeableRow, table: Table, column: int) -> list[Any]:
    """Return the values to try in a nonlinear column, which are its categories or values from the data."""
    why, cell = subject.held.get(column), subject.cells[column]
    values: Sequence[Any] = []
    if isinstance(cell, bool):
        values = [not cell]
    elif why in (CATEGORY, MISSING) and not isinstance(cell, dt.time):
        values = table.categories.get(column, [])[:_MOST_TRIED]
    elif why == NONLINEAR or isinstance(cell, dt.time):
        some = table.take(evenly_spaced(table.n_rows, _SAMPLE))
        values = sorted({v for v in some.pick(np.full((some.n_rows, 1), column))[:, 0] if not is_missing(v)})
    return [value for value in values if is_missing(cell) or value != cell]


def _tried(subject: ChangeableRow, table: Table, to: int) -> dict[int, tuple[Any, float]]:
    """Return, for each nonlinear column, the nearest value that is enough on its own, and its distance."""
    pairs = [(c, value) for c in subject.allowed.tolist() for value in _values_to_try(subject, table, c)]
    columns, values = np.array([c for c, _ in pairs], dtype=np.intp), [value for _, value in pairs]
    found = subject.try_each(columns, values, to)
    best: dict[int, tuple[Any, float]] = {}
    for column in np.unique(columns[np.isfinite(found)]).tolist():
        there = np.flatnonzero((columns == column) & np.isfinite(found))
        nearest = int(there[np.argmin(found[there])])
        best[column] = values[nearest], float(found[nearest])
        if subject.held[column] == NONLINEAR:
            far = np.array([apart(values[i], subject.cells[column]) for i in there.tolist()])
            sides = [far[far < 0.0].max(initial=-np.inf), far[far > 0.0].min(initial=np.inf)]
            nearer = [_first_between(subject, column, side, to) for side in sides if np.isfinite(side)]
            best[column] = min(nearer, key=lambda found: found[1])
    return best


def _first_between(subject: ChangeableRow, column: int, far: float, to: int) -> tuple[Any, float]:
    """Return the nearest value that is enough, on the way from the current value to the one ``far`` away."""
    low, high, best = 0.0, far, (None, math.inf)
    for _ in range(_ROUNDS):
        parts = np.linspace(low, high, _PARTS + 1)
        values = [moved(subject.cells[column], part) for part in parts[1:].tolist()]
        found = subject.try_each(np.full(_PARTS, column), values, to)
        if not np.isfinite(found).any():
            break
        first = int(np.argmax(np.isfinite(found)))
        best = values[first], float(found[first])
        low, high = parts[first], parts[first + 1]
    return best
