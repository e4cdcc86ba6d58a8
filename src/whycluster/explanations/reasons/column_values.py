"""Columns of the user's table, read as numbers that conditions can be compared with."""

from __future__ import annotations

import datetime as dt
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from whycluster.core.arrays import Codes, Floats
from whycluster.data.columns import category_as_text
from whycluster.data.groups import MOST_CATEGORIES
from whycluster.data.missing import is_missing
from whycluster.data.mixed_table import MixedTable
from whycluster.data.table import Table

NUMBER, BOOLEAN, CATEGORY = "number", "boolean", "category"
DAY, TIMESTAMP, DURATION, TIME = "day", "timestamp", "duration", "time of day"
TEMPORAL = (DAY, TIMESTAMP, DURATION, TIME)
"""The kinds of columns whose values are read as days."""


@dataclass(frozen=True, eq=False)
class ColumnValues:
    """One column of a table.

    Attributes
    ----------
    name : the name of the column
    kind : NUMBER, BOOLEAN, CATEGORY, DAY, TIMESTAMP, DURATION or TIME
    values : (n,) numbers, days, or the codes of categories; NaN if missing
    categories : the categories in the order of their codes; empty for other kinds
    is_whole : whether all values are whole numbers
    has_zone : whether timestamps have a time zone
    is_float : whether the column holds floats
    """

    name: Hashable
    kind: str
    values: Floats
    categories: Sequence[Any] = ()
    is_whole: bool = False
    has_zone: bool = False
    is_float: bool = False

    @property
    def is_free_text(self) -> bool:
        """Whether there are too many categories to list some of them."""
        return len(self.categories) > MOST_CATEGORIES

    def codes_of(self, texts: Sequence[str]) -> Codes:
        """Return the codes of categories, given as text."""
        wanted = set(texts)
        return np.flatnonzero([str(category_as_text(each)) in wanted for each in self.categories])


def read_columns(table: Table, columns: Sequence[int], rows: Codes | None = None) -> list[ColumnValues]:
    """Return some of the user's columns, for all rows or for some."""
    own = table if table.raw is None else table.raw
    own = own if rows is None else own.take(rows)
    values = np.empty((len(columns), own.n_rows))
    for start, block in own.blocks():
        values[:, start : start + len(block)] = block[:, columns].T
    return [_column(own, column, values[place]) for place, column in enumerate(columns)]


def _column(table: Table, column: int, values: Floats) -> ColumnValues:
    name = table.feature_names[column]
    if column in table.categories:
        # A model of categories reads an unknown one as -1. It is not missing, but no condition names it.
        unknown = -1.0 if isinstance(table, MixedTable) else np.nan
        return ColumnValues(name, CATEGORY, np.where(values < 0, unknown, values), table.categories[column])
    if column in table.booleans:
        return ColumnValues(name, BOOLEAN, values, is_whole=True)
    known = values[~np.isnan(values)]
    is_whole = bool(known.size) and bool((known == np.rint(known)).all())
    first = _first_value(table, column, values)
    kind, has_zone = _kind_of(first), getattr(first, "tzinfo", None) is not None
    if kind == TIMESTAMP and is_whole and not has_zone:
        kind = DAY  # pandas has no type for dates without a time
    return ColumnValues(name, kind, values, (), is_whole, has_zone, isinstance(first, float))


def _first_value(table: Table, column: int, values: Floats) -> Any:
    """Return the first value of a column that is not missing, as the user's container holds it."""
    known = np.flatnonzero(~np.isnan(values))
    if not known.size:
        return None
    if table.is_array:
        return 0.0 if table.native.dtype.kind == "f" else 0
    return table.take(known[:1]).pick(np.array([[column]]))[0, 0]


def _kind_of(value: Any) -> str:
    """Return the kind of a column from one of its values."""
    kinds = ((dt.datetime, TIMESTAMP), (dt.date, DAY), (dt.timedelta, DURATION), (dt.time, TIME))
    found = next((kind for of_type, kind in kinds if isinstance(value, of_type)), None)
    return NUMBER if found is None or is_missing(value) else found
