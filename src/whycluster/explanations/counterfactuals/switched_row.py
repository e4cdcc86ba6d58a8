"""Rows in which categories are switched, so that other features can change together with them.

Categories are switched one, two or more at a time, in the order of the size of these changes, until it
exceeds that of the best change that is known. After each switch, the smallest change of the other features is
found as usual. Each input of the model comes from one column, so the sizes of the two changes add up as
squares.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from heapq import heapify, heappop, heappush
from typing import Any, NamedTuple

import numpy as np

from whycluster.core.arrays import Codes, Floats
from whycluster.core.errors import InvalidInputError
from whycluster.explanations.counterfactuals.changeable_row import ChangeableRow
from whycluster.explanations.counterfactuals.quadratic_step import GLOBAL, LOCAL, weakest
from whycluster.explanations.counterfactuals.smallest_change import Change, lower_bound, smallest_change

_MOST_SWITCHES = 200


class Switch(NamedTuple):
    """A row after a switch of categories, and the smallest change of its other features.

    Attributes
    ----------
    row : the row after the switch
    cells : the new categories, by column
    size : the size of the switch
    change : the change of the other features that is then needed, or None if none is found
    bound : a lower bound on the size of the switch and the change together, or 0 if none is known
    """

    row: ChangeableRow
    cells: dict[int, Any]
    size: float
    change: Change | None
    bound: float

    @property
    def distance(self) -> float:
        """The size of the switch and the change together, or infinity."""
        return math.inf if self.change is None else math.hypot(self.size, self.change.distance)

    @property
    def optimum(self) -> str:
        """How certain it is that no smaller change exists, as in `Counterfactual.optimum`."""
        if self.change is None:
            return GLOBAL if math.isinf(self.bound) else LOCAL
        return self.change.optimum


def best_switch(row: ChangeableRow, to: int, options: Sequence[tuple[int, Any]]) -> tuple[Switch, str]:
    """Return the switch of categories with the smallest change, and what is known about it.

    Its bound holds for all changes of categories and other features. No switch is one of the possibilities.

    Parameters
    ----------
    row, to : the row, and the cluster that it is moved to
    options : columns, each with another category
    """
    tried = [_switched(row, to, {})]
    best = tried[0]
    steps = [_size_of(row, [option]) for option in options]
    queue: list[tuple[float, tuple[int, ...]]] = [
        (size, (i,)) for i, size in enumerate(steps) if math.isfinite(size)
    ]
    heapify(queue)
    while queue and queue[0][0] < best.distance and len(tried) <= _MOST_SWITCHES:
        size, chosen = heappop(queue)
        tried.append(_switched(row, to, dict(options[i] for i in chosen)))
        best = min(best, tried[-1], key=lambda switch: switch.distance)
        switched = {options[i][0] for i in chosen}
        for i in range(chosen[-1] + 1, len(options)):
            if options[i][0] not in switched and math.isfinite(steps[i]):
                heappush(queue, (math.hypot(size, steps[i]), (*chosen, i)))
    least = queue[0][0] if queue else math.inf
    known = [switch.optimum for switch in tried if switch.bound < best.distance]
    if least < best.distance:
        known.append(LOCAL)
    bound = min(least, *(switch.bound for switch in tried))
    return best._replace(bound=bound), weakest(GLOBAL, *known)


def _switched(row: ChangeableRow, to: int, cells: dict[int, Any]) -> Switch:
    """Return the row with other categories, and the smallest change of its other features."""
    if not cells:
        return Switch(row, cells, 0.0, smallest_change(row, to, row.free), lower_bound(row, to, row.free))
    columns = np.array(list(cells), dtype=np.intp)
    table = row.changed(np.zeros(len(cells), dtype=np.intp), columns, list(cells.values()))
    values = row.cells.copy()
    for column, value in cells.items():
        values[column] = value
    size, x = _size_of(row, list(cells.items())), row.model.read(table)[0]
    known: dict[str, Any] = {name: vars(row)[name] for name in ("sample", "examples") if name in vars(row)}
    row = replace(row, table=table, cells=values, x=x)
    vars(row).update(known)  # they do not depend on the row
    if np.isfinite(row.distances_to(x[None], to)[0]):
        return Switch(row, cells, size, Change([], [], 0.0, GLOBAL), size)
    bound = lower_bound(row, to, row.free)
    return Switch(row, cells, size, smallest_change(row, to, row.free), math.hypot(size, bound))


def _size_of(row: ChangeableRow, cells: Sequence[tuple[int, Any]]) -> float:
    """Return the size of a switch, or infinity if a step does not accept it."""
    columns: Codes = np.array([column for column, _ in cells], dtype=np.intp)
    changed = row.changed(np.zeros(len(cells), dtype=np.intp), columns, [value for _, value in cells])
    try:
        x: Floats = row.model.read(changed)[0]
    except InvalidInputError:
        return math.inf
    size = float(np.linalg.norm((x - row.x) * row.model.step_scale))
    return size if math.isfinite(size) else math.inf
