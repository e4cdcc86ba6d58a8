"""Columns in which every row changed by the same factor, as after a change of the currency or unit."""

from __future__ import annotations

import warnings
from collections.abc import Iterator

import numpy as np

from whycluster.core.arrays import Floats
from whycluster.data import display
from whycluster.data.arrays import evenly_spaced
from whycluster.data.column_kinds import ColumnKind
from whycluster.data.table import Table
from whycluster.data.warnings import PopulationWarning, level_of_the_caller
from whycluster.segments.changes.pairing import PairedRows
from whycluster.segments.population import column_kinds, raw_columns

_MOST_ROWS = 10_000
_LEAST_ROWS = 20
_LEAST_DISTINCT = 10  # values; a column with fewer could change by the same factor by chance
_LEAST_CHANGE = 0.01  # so that years, such as 2024 and 2025, do not count
_ROUNDING = 0.005  # relative; converted amounts are rounded
_MOST = 0.9  # share of the rows with the same factor


def warn_of_units(before: Table, after: Table, pairing: PairedRows, where: str) -> None:
    """Warn of columns whose values are the same multiple of the values before in nearly all common rows."""
    for name, factor, n, n_rows in _common_factors(raw_columns(before), raw_columns(after), pairing):
        text = (
            f"{where}: column {name!r} was multiplied by {display.number(factor)} in {n:,} of "
            f"{display.count(n_rows, 'common row')} with a value other than 0, as if the currency or unit "
            "had changed. If it has, convert the column first."
        )
        warnings.warn(text, PopulationWarning, stacklevel=level_of_the_caller())


def _common_factors(
    before: Table, after: Table, pairing: PairedRows
) -> Iterator[tuple[object, float, int, int]]:
    """Yield the name of each such column, its factor, and the numbers of rows with this factor and in all."""
    kinds = zip(column_kinds(before), column_kinds(after), strict=True)
    numbers = [i for i, pair in enumerate(kinds) if set(pair) == {ColumnKind.NUMBER}]
    rows = evenly_spaced(len(pairing.before), _MOST_ROWS)
    first = before.take(pairing.before[rows]).to_array()[:, numbers]
    second = after.take(pairing.after[rows]).to_array()[:, numbers]
    for column, old, new in zip(numbers, first.T, second.T, strict=True):
        ratio = _ratios(old, new)
        if len(ratio) < _LEAST_ROWS or len(np.unique(old[np.isfinite(old)])) < _LEAST_DISTINCT:
            continue
        factor = float(np.median(ratio))
        n = int((np.abs(ratio - factor) <= _ROUNDING * abs(factor)).sum())
        if abs(factor - 1.0) > _LEAST_CHANGE and n >= _MOST * len(ratio):
            yield before.feature_names[column], factor, n, len(ratio)


def _ratios(old: Floats, new: Floats) -> Floats:
    """Return the new values as multiples of the old ones, where both are finite and not 0."""
    known = np.isfinite(old) & np.isfinite(new) & (old != 0.0) & (new != 0.0)
    return np.asarray(new[known] / old[known])
