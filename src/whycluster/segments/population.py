"""What is known about the rows that a segmentation was made on."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from whycluster.core.arrays import Floats
from whycluster.core.attribution import Population, population
from whycluster.data.arrays import evenly_spaced
from whycluster.data.column_kinds import ColumnKind
from whycluster.data.mixed_table import RawTable
from whycluster.data.table import Table
from whycluster.models.network import Network

QUARTILES = (0.0, 0.25, 0.5, 0.75, 1.0)
"""The shares of the values that are at most the values in `KnownColumn.range` and `KnownColumn.sizes`."""

MOST_CATEGORIES = 1000
"""The categories of columns with more of them are not listed."""

_MOST_VALUES = 1 << 23  # number of values from which quartiles are computed


@dataclass(frozen=True)
class KnownColumn:
    """One column of the rows that a segmentation was made on.

    Attributes
    ----------
    name, kind : the name of the column, and the kind of its values
    is_used : whether the clusters depend on the column
    n_missing : the number of missing values
    range : the minimum, the quartiles and the maximum of the numbers, or of the days if the column holds
        dates; None for categories and for columns without values
    sizes : the same for the absolute values of the numbers other than 0
    categories : the categories; None for numbers, dates, and columns with more than 1,000 categories
    n_once : the number of rows whose category occurs only once
    """

    name: Hashable
    kind: ColumnKind
    is_used: bool
    n_missing: int = 0
    range: tuple[float, ...] | None = None
    sizes: tuple[float, ...] | None = None
    categories: tuple[Any, ...] | None = None
    n_once: int = 0


@dataclass(frozen=True, eq=False)
class KnownPopulation:
    """What new rows are compared with: facts about the rows that a segmentation was made on.

    Attributes
    ----------
    measured : the mean evidence, from which beta follows, and the size and the mean row of each cluster
    columns : the columns, in the order of the network
    """

    measured: Population
    columns: tuple[KnownColumn, ...]

    @classmethod
    def of(cls, network: Network, table: Table) -> KnownPopulation:
        """Measure the rows of a table that the network has opened."""
        return cls(population(network.energy, table), _describe_columns(network, table))

    @property
    def n_rows(self) -> int:
        """The number of rows."""
        return self.measured.n_rows


def _describe_columns(network: Network, table: Table) -> tuple[KnownColumn, ...]:
    raw = raw_columns(table)
    sample = raw.take(evenly_spaced(raw.n_rows, max(2, _MOST_VALUES // raw.n_features)))
    values, used, kinds = sample.to_array(), used_columns(network), column_kinds(raw)
    low, high, n_missing = _extremes(raw)
    columns = []
    for i, (name, kind) in enumerate(zip(raw.feature_names, kinds, strict=True)):
        known = KnownColumn(name, kind, i in used, int(n_missing[i]))
        if i in raw.categories:
            known = _with_categories(known, raw.categories[i], values[:, i])
        elif np.isfinite(values[:, i]).any():
            known = _with_range(known, values[:, i], float(low[i]), float(high[i]))
        columns.append(known)
    return tuple(columns)


def _with_categories(known: KnownColumn, names: Sequence[Any], codes: Floats) -> KnownColumn:
    counts = np.bincount(codes[codes >= 0].astype(np.intp), minlength=len(names))
    listed = tuple(names) if len(names) <= MOST_CATEGORIES else None
    return KnownColumn(
        known.name,
        known.kind,
        known.is_used,
        known.n_missing,
        categories=listed,
        n_once=int((counts == 1).sum()),
    )


def _with_range(known: KnownColumn, values: Floats, low: float, high: float) -> KnownColumn:
    _, *inner, _ = quartiles(values) or QUARTILES
    return KnownColumn(
        known.name,
        known.kind,
        known.is_used,
        known.n_missing,
        range=(low, *inner, high),
        sizes=quartiles(sizes_of(values)),
    )


def quartiles(values: Floats) -> tuple[float, ...] | None:
    """Return the minimum, the quartiles and the maximum of the finite values, or None if there are none."""
    finite = values[np.isfinite(values)]
    if not finite.size:
        return None
    return tuple(np.quantile(finite, QUARTILES, method="nearest").tolist())


def sizes_of(values: Floats) -> Floats:
    """Return the absolute values of the numbers other than 0."""
    return np.asarray(np.abs(values[values != 0.0]))


def raw_columns(table: Table) -> Table:
    """Return the user's columns."""
    return table if table.raw is None else table.raw


def used_columns(network: Network) -> set[int]:
    """Return the positions of the columns that the clusters depend on."""
    source = getattr(network.energy, "source", None)  # of the features of a pipeline
    return set(range(network.n_features)) if source is None else {*source.tolist()} - {-1}


def column_kinds(raw: Table) -> list[ColumnKind]:
    """Return the kind of each column."""
    if isinstance(raw, RawTable):
        dates = raw.dates
        return [ColumnKind.DATE if i in dates else raw.column_kind(i) for i in range(raw.n_features)]
    found = [ColumnKind.NUMBER] * raw.n_features
    for column in raw.booleans:
        found[column] = ColumnKind.BOOLEAN
    for column in raw.categories:
        found[column] = ColumnKind.CATEGORY
    return found


def _extremes(raw: Table) -> tuple[Floats, Floats, Floats]:
    """Return the least and the greatest finite value and the number of missing values of each column."""
    low, high = np.full(raw.n_features, np.inf), np.full(raw.n_features, -np.inf)
    n_missing = np.zeros(raw.n_features)
    coded = list(raw.categories)
    for _, block in raw.blocks():
        finite = np.isfinite(block)
        np.minimum(low, np.where(finite, block, np.inf).min(axis=0), out=low)
        np.maximum(high, np.where(finite, block, -np.inf).max(axis=0), out=high)
        missing = np.isnan(block)
        missing[:, coded] |= block[:, coded] < 0
        n_missing += missing.sum(axis=0)
    return low, high, n_missing
