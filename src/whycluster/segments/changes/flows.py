"""Flows: how many rows moved between each pair of clusters, and the columns that drove them."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from whycluster.core.arrays import Codes, Floats
from whycluster.data.groups import group_sums
from whycluster.segments.changes.matching import NONE


class Driver(NamedTuple):
    """A column that drove a flow.

    Attributes
    ----------
    column : the name of the column
    mean : its mean contribution to the change of the evidence, over the rows of the flow
    n_first : the number of rows in which it contributed most
    """

    column: Hashable
    mean: float
    n_first: int


@dataclass(frozen=True)
class Flow:
    """The rows that went from one cluster to another.

    Attributes
    ----------
    source, target : the codes of the clusters, or `NONE`: new rows have no source, and rows that are gone
        have no target
    n_rows : the number of rows
    change : the mean change of the evidence for the target against the source, or NaN if it is not known
    drivers : the columns that contributed to the move on average, in decreasing order
    """

    source: int
    target: int
    n_rows: int
    change: float = np.nan
    drivers: tuple[Driver, ...] = ()

    @property
    def is_move(self) -> bool:
        """Whether the rows moved from one cluster to another."""
        return self.source != self.target and NONE not in (self.source, self.target)


def find_flows(source: Codes, target: Codes, n_clusters: int) -> list[Flow]:
    """Count the rows of every flow, given the clusters of all rows; `NONE` marks new and gone rows."""
    width = n_clusters + 1
    counts = np.bincount((source + 1) * width + target + 1, minlength=width * width).reshape(width, width)
    return [Flow(int(a) - 1, int(b) - 1, int(counts[a, b])) for a, b in np.argwhere(counts)]


def first_columns(contributions: Floats) -> Codes:
    """Return the column that contributed most to each move, (n,), or `NONE` if no column contributed."""
    if not contributions.size:
        return np.full(len(contributions), NONE)
    first = contributions.argmax(axis=1)
    return np.where(contributions[np.arange(len(first)), first] > 0, first, NONE)


def drivers_of(
    contributions: Floats, group: Codes, n_groups: int, names: Sequence[Hashable]
) -> list[tuple[Driver, ...]]:
    """Return the drivers of each group of moves, given the contributions, (n, d), and the groups, (n,)."""
    size = np.maximum(np.bincount(group, minlength=n_groups), 1)
    mean = group_sums(contributions, group, n_groups) / size[:, None]
    first, d = first_columns(contributions), len(names)
    known = first != NONE
    n_first = np.bincount(group[known] * d + first[known], minlength=n_groups * d).reshape(n_groups, d)
    order = np.lexsort((-n_first, -mean), axis=1)
    n_drivers = (mean > 0).sum(axis=1)
    return [
        tuple(Driver(names[i], float(mean[g, i]), int(n_first[g, i])) for i in order[g, : n_drivers[g]])
        for g in range(n_groups)
    ]
