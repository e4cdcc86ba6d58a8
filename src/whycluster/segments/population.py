"""What is known about the rows that a segmentation was made on."""

from __future__ import annotations

from collections.abc import Hashable
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

SHARES = (0.0, 0.01, 0.25, 0.5, 0.75, 0.99, 1.0)
"""The shares of the values of a column that are at most the values in `KnownColumn.quantiles`."""

_MOST_CATEGORIES = 1000  # columns with more are treated as free text
_MOST_VALUES = 1 << 23  # number of values from which quantiles are computed


@dataclass(frozen=True)
class KnownColumn:
    """One column of the rows that a segmentation was made on.

    Attributes
    ----------
    name : the name of the column
    kind : the kind of its values
    is_used : whether the clusters depend on the column
    n_missing : the number of missing values
    quantiles : the quantiles of the numbers, or of the days if the column holds dates, at `SHARES`; None for
        categories and for columns without values
    categories : the categories in alphabetical order; None for numbers, dates, and columns with more than
        1,000 categories
    """

    name: Hashable
    kind: ColumnKind
    is_used: bool
    n_missing: int
    quantiles: tuple[float, ...] | None = None
    categories: tuple[Any, ...] | None = None


@dataclass(frozen=True, eq=False)
class KnownPopulation:
    """The rows that a segmentation was made on, as far as new rows need them.

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
    raw = table if table.raw is None else table.raw
    sample = raw.take(evenly_spaced(raw.n_rows, max(2, _MOST_VALUES // raw.n_features)))
    values = sample.to_array()
    low, high, n_missing = _extremes(raw)
    used = used_columns(network)
    columns = []
    for i, name in enumerate(raw.feature_names):
        kind, categories = _kind_of(raw, i), raw.categories.get(i)
        found = values[:, i][np.isfinite(values[:, i])]
        quantiles = None
        if categories is None and found.size:
            inner = np.quantile(found, SHARES[1:-1], method="nearest").tolist()
            quantiles = (float(low[i]), *inner, float(high[i]))
        listed = None if categories is None or len(categories) > _MOST_CATEGORIES else tuple(categories)
        columns.append(KnownColumn(name, kind, i in used, int(n_missing[i]), quantiles, listed))
    return tuple(columns)


def used_columns(network: Network) -> set[int]:
    """Return the positions of the columns that the clusters depend on."""
    source = getattr(network.energy, "source", None)  # of the features of a pipeline
    return set(range(network.n_features)) if source is None else {*source.tolist()} - {-1}


def _kind_of(raw: Table, column: int) -> ColumnKind:
    if isinstance(raw, RawTable):
        return ColumnKind.DATE if column in raw.dates else raw.column_kind(column)
    if column in raw.categories:
        return ColumnKind.CATEGORY
    return ColumnKind.BOOLEAN if column in raw.booleans else ColumnKind.NUMBER


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
