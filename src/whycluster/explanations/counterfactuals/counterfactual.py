"""Counterfactuals: the smallest change that moves a row to another cluster.

The change is the smallest one for models whose clusters are separated by hyperplanes (see `half_spaces`) and,
usually, by quadrics (see `quadratic_step`). Only columns that the pipeline merely scales can change together;
trial changes determine which columns these are. All other columns stay fixed in the joint change and are then
changed one at a time. A row exactly on a boundary has no definite cluster, so each change goes slightly
beyond it. Every result is checked with the network itself.
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
from whycluster.core.errors import InvalidInputError
from whycluster.data import display
from whycluster.data.arrays import evenly_spaced
from whycluster.data.frames import as_column, build_frame
from whycluster.data.labels import cluster_name, is_noise
from whycluster.data.missing import is_missing
from whycluster.data.table import Table
from whycluster.explanations.counterfactuals.cell_values import (
    CATEGORY,
    CHOSEN,
    MISSING,
    NONLINEAR,
    apart,
    is_number_or_date,
    moved,
    outside,
)
from whycluster.explanations.counterfactuals.changeable_row import ChangeableRow, SeenValues, changeable_row
from whycluster.explanations.counterfactuals.half_spaces import HalfSpaceModel, least_steps_along
from whycluster.explanations.counterfactuals.local_search import local_single_steps
from whycluster.explanations.counterfactuals.quadratic_step import nearest_cluster, single_steps, weakest
from whycluster.explanations.counterfactuals.short_values import (
    as_cell,
    before_and_change,
    exact_text,
    exactly,
    rounded_down,
    rounded_outward,
    text_of,
    whole_outward,
)
from whycluster.explanations.counterfactuals.smallest_change import (
    MARGINS,
    Change,
    beyond,
    needed_evidence,
    short_change,
    short_single,
)
from whycluster.explanations.counterfactuals.switched_row import Switch, best_switch
from whycluster.explanations.fidelity import Fidelity

WHERE = "counterfactual"

_SAMPLE = 256  # rows from which values of nonlinear columns are taken
_MOST_TRIED = 1000  # categories per column; columns with more categories hold free text
_ROUNDS, _PARTS = 3, 1000  # rounds of a search between two values, and steps per round, to 10^-9
_MOST_HELD = 20  # number of features listed as held fixed
_OUTSIDE = "outside the data"
_TOGETHER = "Several features together"


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
        for categories that change and if no change is enough.
    size : (d,) the size of the change of each feature
    distance : the total size, which is the root of the sum of the squared sizes, or infinity if no change is
        enough
    optimum : what is known about the change in `after`. "global": no smaller change exists, up to the small
        margin beyond the boundary. "certified": it was found by a local search, and a certificate shows that
        no smaller change exists. "local": a smaller change may exist. Empty if no change is found.
    lower_bound : a lower bound on the size of any change of the features not held fixed. It is less than
        `distance` if some features take only whole numbers, infinite if no change is enough, and 0 if no
        bound is known.
    single : (d,) for each feature, the nearest value that is enough on its own, or None if there is no such
        value
    single_distance : (d,) the sizes of these single changes, or infinity if no value is enough
    outside, single_outside : (d,) whether the values in `after` and in `single` are outside the range of all
        rows that were explained
    held : the features that cannot change freely, each with the reason: "category" (also for booleans),
        "missing", "nonlinear" (the steps do more than scale the feature), "unused" (the steps drop the
        feature) or "chosen" (``within`` or ``hold`` excludes it). These features do not change in `after`.
    feature_names : the names of the d features
    fidelity : how well the surrogate matches the labels, or None if the clusters come from a model. Clusters
        are then those of the surrogate.
    """

    row: int
    cluster: Any
    to: Any
    before: NDArray[Any]
    after: NDArray[Any]
    change: Floats
    size: Floats
    distance: float
    optimum: str
    lower_bound: float
    single: NDArray[Any]
    single_distance: Floats
    outside: NDArray[np.bool_]
    single_outside: NDArray[np.bool_]
    held: dict[Hashable, str]
    feature_names: list[Hashable]
    fidelity: Fidelity | None = None
    _name: Any = field(default=None, repr=False)  # the name of the row
    _like: Any = field(default=None, repr=False)
    _subject: ChangeableRow = field(kw_only=True, repr=False)
    _to: int = field(kw_only=True, repr=False)  # the code of ``to``
    _ranges: Floats = field(kw_only=True, repr=False)
    _switch: Switch = field(kw_only=True, repr=False)

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
        """Describe the changes as text, the easiest ones first.

        Changes of a single feature come first, in order of size, followed by the change of several features.

        Parameters
        ----------
        n_features : the number of features to list
        """
        name, to = display.clean(str(self._name)), cluster_name(self.to)
        place = "in " * (not is_noise(self.cluster)) + cluster_name(self.cluster)
        listed, alone = self._describe_single(to, n_features)
        describe = self._describe_switched if self._switch.cells else self._describe_all
        together = describe(to, n_features, listed)
        if self.fidelity is not None:
            known = f"{self.fidelity.cross_validated:.1%}"
            place += f" according to the surrogate, which predicts {known} of the labels"
        parts = [f"Row {name} is {place}. {alone}", *([together] if together else [])]
        if self.held:
            parts.append(self._describe_held())
        return "\n\n".join(parts)

    def _describe_held(self) -> str:
        """List the features that do not change: those that the caller chose, and those that cannot."""
        names = {name: display.clean(str(name)) for name in self.held}
        groups = {
            "Held fixed, as you asked": [names[name] for name, why in self.held.items() if why == CHOSEN],
            "Held fixed when several features change": [
                f"{names[name]} ({why})" for name, why in self.held.items() if why != CHOSEN
            ],
        }
        sentences = []
        for what, held in groups.items():
            more = f" and {len(held) - _MOST_HELD:,} more" * (len(held) > _MOST_HELD)
            sentences += [f"{what}: {', '.join(held[:_MOST_HELD])}{more}."] * bool(held)
        return " ".join(sentences)

    def __str__(self) -> str:
        return self.describe()

    __repr__ = __str__  # a notebook shows the table too

    def _largest_first(self) -> Codes:
        return np.argsort(-self.size, kind="stable")

    def _describe_all(self, to: str, n_features: int, listed: Sequence[int]) -> str:
        """Describe the change of several features, or of one that is not among the ``listed`` ones."""
        features = "of the features that are not held fixed" if self._is_restricted else ""
        nothing = f"No change {features}".rstrip()
        if not self.found:
            sure = math.isinf(self.lower_bound)
            return f"{nothing} moves it to {to}." if sure else f"{nothing} was found that moves it to {to}."
        order = self._largest_first()
        order = order[np.isin(order, self._subject.free)]
        most = max(2, n_features)
        short = self._short_change(order, most)
        if short is None:
            return f"{nothing} with values short enough to print was found that moves it to {to}."
        if len(short.columns) > 1:
            return (
                f"{_TOGETHER}. {self._claim(short, to, features)}\n{self._change_table(short, self._subject)}"
            )
        if short.columns[0] not in listed:
            return f"{self._claim(short, to, features)}\n{self._change_table(short, self._subject)}"
        known = [self._bound(to, features)] if self.lower_bound else []
        if len(self._subject.free) > 1:
            known.insert(0, f"{_TOGETHER}: no smaller change {self._not_found(short, most)}")
        return " ".join(known)

    def _describe_switched(self, to: str, n_features: int, listed: Sequence[int]) -> str:
        """Describe a change of categories and, unless these are enough, of other features."""
        switch = self._switch
        cells = [(c, text_of(exactly(v)), text_of(exactly(self.before[c]))) for c, v in switch.cells.items()]
        what = ", ".join(
            f"{display.clean(str(self.feature_names[c]))} {v} instead of {b}" for c, v, b in cells
        )
        features = "of the features that are not held fixed" if self.held else ""
        known = f"{self._bound(to, features)} " if self.lower_bound else ""
        assert switch.change is not None
        if not switch.change.columns:
            if len(cells) == 1 and cells[0][0] in listed:
                return f"{_TOGETHER}: no smaller change was found. {known}".rstrip()
            return f"{_TOGETHER}. {known}This one, of size {switch.size:.3g}, does: {what}."
        order = self._largest_first()
        order = order[np.isin(order, switch.row.free)]
        short = short_change(switch.row, self._to, order, max(1, n_features - len(cells)))
        if short is None:
            return f"No change with values short enough to print was found that moves it to {to}."
        size = math.hypot(switch.size, short.distance)
        limit = self._limit(short, size, len(cells))
        unknown = "; a smaller change may exist" * (not limit)
        moves = ("does" if known else f"moves it to {to}{unknown}") + limit
        table = self._change_table(short, switch.row)
        return f"{_TOGETHER}. {known}This one, of size {size:.3g}, {moves}: {what}, and\n{table}"

    def _not_found(self, short: Change, most: int) -> str:
        """Say that no smaller change was found; if more features allow a smaller one, say where it is."""
        n_changed = int(np.count_nonzero(self.change))
        if n_changed <= most or f"{self.distance:.3g}" == f"{short.distance:.3g}":
            return "was found."
        return f"of {most} features was found; `after` holds one of {n_changed}, of size {self.distance:.3g}."

    def _short_change(self, columns: Codes, n_features: int) -> Change | None:
        """Return the change to print: of several features or, if it is smaller, of a single one."""
        several = short_change(self._subject, self._to, columns, n_features)
        alone = self.single_distance[columns]
        best = int(columns[np.argmin(alone)])
        if not np.isfinite(alone.min()) or (several is not None and several.distance <= alone.min()):
            return several
        one = short_single(self._subject, self._to, best, self.single[best])
        found = [change for change in (several, one) if change is not None]
        return min(found, key=lambda change: change.distance, default=None)

    @property
    def _is_restricted(self) -> bool:
        """Whether some features cannot change together with others."""
        return len(self._subject.free) < len(self.feature_names)

    def _claim(self, short: Change, to: str, features: str) -> str:
        """Return a sentence that calls a change the smallest one or, if that is not known, gives a bound."""
        size, limit = f"{short.distance:.3g}", self._limit(short, short.distance)
        if not self._subject.model.is_linear and not self.lower_bound:
            known = f"{limit}. Both are local optima; smaller changes may exist"
            if not limit:
                known = ". It is a local optimum; a smaller change may exist"
            return f"This change, of size {size}, was checked and moves it to {to}{known}:"
        if not self.lower_bound:
            return f"This change, of size {size}, moves it to {to}{limit}:"
        if size == f"{self.lower_bound:.3g}":
            what = f"The smallest change {features}".rstrip()
            return f"{what} that moves it to {to}, of size {size}:"
        return f"{self._bound(to, features)} This one, of size {size}, does{limit}:"

    def _limit(self, short: Change, size: float, n_switched: int = 0) -> str:
        """Say how few features the printed change is limited to, if more features need a smaller one."""
        n, n_changed = len(short.columns) + n_switched, int(np.count_nonzero(self.change))
        if n_changed <= n or self.distance >= size or f"{self.distance:.3g}" == f"{size:.3g}":
            return ""
        return (
            f". It changes only {display.count(n, 'feature')}; with {n_changed} features, size "
            f"{self.distance:.3g} is enough"
        )

    def _bound(self, to: str, features: str) -> str:
        what = f"no change {features}".rstrip()
        return f"Below size {text_of(rounded_down(self.lower_bound))}, {what} moves it to {to}."

    def _change_table(self, short: Change, subject: ChangeableRow) -> str:
        cells = [as_cell(value) for value in short.values]
        columns = np.array(short.columns, dtype=np.intp)
        x = subject.inputs_with(columns, cells)
        moves = np.square((x - subject.x) * subject.model.step_scale)
        known = subject.model.source >= 0
        sizes = np.sqrt(np.bincount(subject.model.source[known], moves[known], len(self.before)))
        off = outside(np.array(cells, dtype=object), self._ranges[:, columns])
        lines = []
        for i in np.argsort(-sizes[columns], kind="stable").tolist():
            column, cell, value = short.columns[i], self.before[short.columns[i]], short.values[i]
            before, change = before_and_change(cell, value)
            bar = display.bar(math.copysign(sizes[column], apart(cells[i], cell)), float(sizes.max()))
            name = str(self.feature_names[column])
            lines.append([name, before, text_of(value), change, bar, _OUTSIDE * bool(off[i])])
        return display.table(["feature", "value", "becomes", "change", "", ""], lines, align="<>>><<")

    def _describe_single(self, to: str, n_features: int) -> tuple[list[int], str]:
        """Describe the features that are enough on their own; return those that are listed, and the text."""
        order = np.argsort(self.single_distance, kind="stable")
        enough = [i for i in order.tolist() if np.isfinite(self.single_distance[i])]
        found = self._short_singles(enough[:n_features]) if enough else []
        if not found:
            subject = self._subject
            tried = NONLINEAR in self.held.values() or subject.curves or not subject.model.is_linear
            return [], f"No feature alone {'was found that ' * bool(tried or enough)}moves it to {to}."
        left = len(enough) - len(enough[:n_features])
        table = display.table(
            ["feature", "value", "becomes", "size", ""], [self._single_line(*each) for each in found], "<>>><"
        )
        text = f"One feature alone moves it to {to}, the smallest change first:\n{table}"
        return [i for i, _, _ in found], text + f"\nor {display.count(left, 'other')}" * bool(left)

    def _short_singles(self, columns: list[int]) -> list[tuple[int, Any, float]]:
        """Return features, printed values that are enough on their own, and sizes, in order of size."""
        subject = self._subject
        options = [
            [*rounded_outward(self.single[i], self.before[i], i in subject.whole), exactly(self.single[i])]
            if is_number_or_date(self.before[i])
            else [self.single[i]]
            for i in columns
        ]
        rows = [(i, value) for i, values in zip(columns, options, strict=True) for value in values]
        codes, cells = np.array([i for i, _ in rows], dtype=np.intp), [as_cell(value) for _, value in rows]
        far = subject.distances(subject.changed(np.arange(len(rows)), codes, cells), self._to, certain=True)
        first: dict[int, tuple[int, Any, float]] = {}
        for (i, value), size in zip(rows, far.tolist(), strict=True):
            if math.isfinite(size):
                first.setdefault(i, (i, value, size))
        return sorted(first.values(), key=lambda found: found[2])

    def _single_line(self, i: int, value: Any, size: float) -> list[str]:
        before = before_and_change(self.before[i], value)[0] if value is not self.single[i] else ""
        off = outside(np.array([as_cell(value)], dtype=object), self._ranges[:, [i]])
        texts = [before or exact_text(self.before[i]), text_of(value), f"{size:.3g}"]
        return [str(self.feature_names[i]), *texts, _OUTSIDE * bool(off[0])]


def find(
    model: HalfSpaceModel,
    table: Table,
    x: Floats,
    labels: NDArray[Any],
    row: int,
    cluster: int,
    to: int | None,
    within: Iterable[Hashable] | None,
    hold: Iterable[Hashable] | None,
    categories: bool,
    seen: SeenValues,
    name: Hashable,
    fidelity: Fidelity | None,
) -> Counterfactual:
    """Return the smallest change that moves a row to another cluster.

    Parameters
    ----------
    model : the model that assigns the rows
    table, x, row : the data that were explained, the inputs of the row, (D,), and its position
    labels : (K,) the labels of the clusters
    cluster, to : the codes of the row's cluster and of the cluster to move it to; with None, the row moves to
        the nearest cluster
    within : the names of the features that may change; by default, all features
    hold : the names of features that must not change
    categories : whether categories may change together with other features
    seen : the ranges of the columns, and which of them hold only whole numbers
    name : the name of the row
    fidelity : how well the surrogate matches the labels, if there is one
    """
    _check_categories(categories)
    allowed = _allowed(within, hold, table.feature_names)
    subject = changeable_row(model, table, x, row, allowed, seen)
    to = _nearest(subject, cluster) if to is None else to
    _check_reachable(subject, to, labels)
    single, single_distance = _one_by_one(subject, to, seen.ranges)
    options = _options(subject, table) if categories else []
    switch, optimum = best_switch(subject, to, options)
    joint = switch.change if switch.cells else _or_one(subject, switch.change, single, single_distance)
    after = np.full(len(subject.cells), None) if joint is None else switch.row.cells.copy()
    for column, value in () if joint is None else zip(joint.columns, joint.values, strict=True):
        after[column] = value
    change = np.array([apart(a, b) for a, b in zip(after, switch.row.cells, strict=True)])
    size = _sizes(subject, change, joint)
    _add_switch(switch, subject, change, size)
    for column, (value, far) in _tried(subject, table, to).items():
        single[column], single_distance[column] = value, far
    return Counterfactual(
        row=row,
        cluster=labels[cluster],
        to=labels[to],
        before=subject.cells,
        after=after,
        change=change,
        size=size,
        distance=math.inf if joint is None else math.hypot(switch.size, joint.distance),
        optimum="" if joint is None else weakest(joint.optimum, optimum) if options else joint.optimum,
        lower_bound=switch.bound,
        single=single,
        single_distance=single_distance,
        outside=outside(after, seen.ranges),
        single_outside=outside(single, seen.ranges),
        held=_held(subject, table, categories),
        feature_names=table.feature_names,
        fidelity=fidelity,
        _name=name,
        _like=table.native,
        _subject=subject,
        _to=to,
        _ranges=seen.ranges,
        _switch=switch,
    )


def _check_categories(categories: Any) -> None:
    if not isinstance(categories, (bool, np.bool_)):
        raise InvalidInputError(
            f"{WHERE}: categories must be True or False; got {categories!r}. Use within to choose the "
            "features that may change."
        )


def _options(subject: ChangeableRow, table: Table) -> list[tuple[int, Any]]:
    """Return the categories to try, each with its column."""
    return [
        (column, value)
        for column, why in subject.held.items()
        if why == CATEGORY
        for value in _values_to_try(subject, table, column)
    ]


def _held(subject: ChangeableRow, table: Table, categories: bool) -> dict[Hashable, str]:
    """Return why features do not change, by name; categories are left out if they may change."""
    excluded = np.setdiff1d(np.arange(table.n_features), subject.allowed).tolist()
    return {
        table.feature_names[column]: why
        for column, why in sorted((subject.held | dict.fromkeys(excluded, CHOSEN)).items())
        if not (categories and why == CATEGORY)
    }


def _add_switch(switch: Switch, row: ChangeableRow, change: Floats, size: Floats) -> None:
    """Write the changes of the categories that are switched, which have no difference, and their sizes."""
    moves = np.square((switch.row.x - row.x) * row.model.step_scale)
    for column in switch.cells:
        change[column] = math.nan
        size[column] = math.sqrt(moves[row.model.source == column].sum())


def _check_reachable(subject: ChangeableRow, to: int, labels: NDArray[Any]) -> None:
    """Raise an error if a cluster with the same centroid as another one always loses the tie."""
    unbeatable = subject.half_spaces(to).unbeatable
    if subject.model.is_linear and unbeatable.size:
        raise InvalidInputError(
            f"{WHERE}: to must be a cluster that a row can be in; no row is ever in {labels.tolist()[to]!r}, "
            f"since {labels.tolist()[unbeatable[0]]!r} is at least as near everywhere and wins ties."
        )


def _or_one(
    subject: ChangeableRow, joint: Change | None, single: NDArray[Any], distance: Floats
) -> Change | None:
    """Return the change of several columns, or that of a single free column if it is smaller.

    It can be smaller only if whole numbers or curved boundaries leave no exact solution.
    """
    free = subject.free
    best = int(free[np.argmin(distance[free])]) if free.size else None
    if best is None or not distance[best] < (math.inf if joint is None else joint.distance):
        return joint
    return Change([best], [single[best]], float(distance[best]))


def _sizes(subject: ChangeableRow, change: Floats, joint: Change | None) -> Floats:
    """Return the size of the change of each column, (d,)."""
    size = np.abs(change) * subject.weight
    curved = [] if joint is None else [c for c in joint.columns if c in subject.curves]
    if joint is not None and curved:
        x = subject.inputs_with(np.array(joint.columns, dtype=np.intp), joint.values)
        at = [subject.curves[column].at for column in curved]
        size[curved] = np.abs(x - subject.x)[at] * subject.model.step_scale[at]
    return size


def _allowed(within: Any, hold: Any, names: list[Hashable]) -> Codes:
    """Return the positions of the features that may change."""
    chosen = np.arange(len(names))
    if within is not None:
        chosen = _positions(within, names, "within", "let all features change")
    if hold is not None:
        chosen = np.setdiff1d(chosen, _positions(hold, names, "hold", "hold no feature"))
    if not chosen.size:
        raise InvalidInputError(f"{WHERE}: hold must leave at least one feature to change; it leaves none.")
    return chosen


def _positions(given: Any, names: list[Hashable], option: str, otherwise: str) -> Codes:
    chosen = [] if isinstance(given, str) or not isinstance(given, Iterable) else list(given)
    if not chosen:
        raise InvalidInputError(
            f"{WHERE}: {option} must be a list of feature names; got {given!r}. Leave it out to {otherwise}."
        )
    place = {name: position for position, name in enumerate(names)}
    unknown = [name for name in chosen if name not in place]
    if unknown:
        listed = ", ".join(map(repr, names[:5])) + ", ..." * (len(names) > 5)
        raise InvalidInputError(
            f"{WHERE}: {option} must be names of features, one or more of {listed}; got {unknown[0]!r}."
        )
    return np.unique([place[name] for name in chosen])


def _nearest(subject: ChangeableRow, cluster: int) -> int:
    """Return the cluster that the smallest change of free columns leads to if the row is in ``cluster``.

    The shortest way out of a cluster crosses its nearest hyperplane, regardless of where the other
    hyperplanes are. If boundaries are curved, the smallest change to each cluster is found.
    """
    if subject.model.quadratics is not None:
        found = nearest_cluster(subject.pieces(subject.free), cluster, 0.0)
        return subject.model.strongest(subject.x)[1] if found is None else found
    if not subject.model.is_linear:
        return subject.model.strongest(subject.x)[1]
    half_spaces, columns = subject.half_spaces(cluster), subject.free
    g = subject.slopes(half_spaces, columns)
    sizes = np.linalg.norm(g, axis=1)
    far = np.divide(half_spaces.h, sizes, out=np.full(len(sizes), np.inf), where=sizes > 0.0)
    first = int(np.argmin(far))
    _, strongest = subject.model.strongest(subject.x)
    if not np.isfinite(far[first]):
        return strongest
    step = -(far[first] + beyond(far[first], sizes[first], MARGINS[0])) / sizes[first] * g[first]
    change = np.zeros(len(subject.cells))
    change[columns] = step / subject.weight[columns]
    found, _ = subject.model.strongest(subject.x + subject.rate * change[subject.model.source])
    return strongest if found == cluster else found


def _one_by_one(subject: ChangeableRow, to: int, ranges: Floats) -> tuple[NDArray[Any], Floats]:
    """For each linear column, return the nearest value that alone moves the row to cluster ``to``.

    The results are the values, (d,), and their distances, (d,).
    """
    single = np.full(len(subject.cells), None)
    distances = np.full(len(subject.cells), np.inf)
    columns = subject.linear
    for number in range(len(MARGINS)):
        steps = _single_steps(subject, to, columns, ranges, number)
        columns, steps = columns[~np.isnan(steps)], steps[~np.isnan(steps)]
        values = [
            whole_outward(value, subject.cells[column]) if column in subject.whole else value
            for column, value in zip(columns.tolist(), subject.values_at(columns, steps), strict=True)
        ]
        left = np.array([value is not None for value in values], dtype=bool)
        columns, values = columns[left], [value for value in values if value is not None]
        found = subject.try_each(columns, values, to)
        enough = np.isfinite(found)
        for i in np.flatnonzero(enough).tolist():
            single[columns[i]] = values[i]
        distances[columns[enough]] = found[enough]
        columns = columns[~enough]
        if not columns.size:
            break
    return single, distances


def _single_steps(subject: ChangeableRow, to: int, columns: Codes, ranges: Floats, number: int) -> Floats:
    """Return the smallest step of each column alone, in the model's units, or NaN if none is enough."""
    if subject.model.quadratics is not None:
        pieces = subject.pieces(columns)
        return single_steps(pieces, to, needed_evidence(subject, to, number), subject.bounds(columns))
    if not subject.model.is_linear:
        return local_single_steps(subject, to, columns, ranges, MARGINS[number])
    half_spaces = subject.half_spaces(to)
    g, need = subject.slopes(half_spaces, columns), -half_spaces.h[:, None]
    least, rounding = np.abs(least_steps_along(g, need)), subject.rounding(subject.x[None], to)
    sizes = np.abs(g)
    needed = np.maximum(beyond(least, sizes, MARGINS[number]) * sizes, 4.0**number * rounding)
    steps = least_steps_along(g, needed + need)
    low, high = subject.bounds(columns)
    return np.where((steps >= low) & (steps <= high), steps, np.nan)


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
        found = {v for v in some.pick(np.full((some.n_rows, 1), column))[:, 0] if not is_missing(v)}
        by_type = len({isinstance(value, str) for value in found}) > 1  # numbers and text have no order
        values = sorted(found, key=str) if by_type else sorted(found)
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
