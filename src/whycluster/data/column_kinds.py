"""The kinds of columns. Only this module decides whether a column holds numbers, dates, text or other values.

The kind depends on the type of a column in narwhals (pandas, polars, pyarrow), Arrow or Spark. If the type is
not specific, as for Python objects, the kind depends on the values.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable
from decimal import Decimal
from enum import Enum
from functools import lru_cache
from numbers import Real
from typing import Any

import narwhals as nw
import numpy as np

from whycluster.data.iso_dates import parse_dates
from whycluster.data.missing import is_missing


class ColumnKind(Enum):
    """The kind of values that a column holds.

    Attributes
    ----------
    is_numeric : whether the values are numbers or booleans, which need no conversion
    is_temporal : whether the values are read as a number of days
    is_categorical : whether each distinct value is a category
    reading : how pipelines read the values: as "numbers", "dates" or "categories", or "" if they cannot
    """

    NUMBER = "numbers"
    BOOLEAN = "booleans"
    DATE = "dates"
    """Calendar days or points in time."""
    DURATION = "durations"
    TIME = "times of day"
    CATEGORY = "categories"
    """A categorical type, or objects that mix text and numbers."""
    TEXT = "text"
    EMPTY = "no values"
    """Every value is missing, so the column fits any kind."""
    OTHER = "other values"
    """Lists, structs, bytes and anything else that no model accepts."""

    def __init__(self, description: str) -> None:
        self.is_numeric = description in ("numbers", "booleans")
        self.is_temporal = description in ("dates", "durations", "times of day")
        self.is_categorical = description in ("categories", "text")
        self.reading = "" if description == "other values" else "numbers"
        if self.is_temporal or self.is_categorical:
            self.reading = "dates" if self.is_temporal else "categories"


NUMBER_TYPES = (Real, Decimal, np.bool_)
"""The Python types of individual numbers and booleans."""

_VALUE_TYPES: tuple[tuple[ColumnKind, tuple[type, ...]], ...] = (
    (ColumnKind.BOOLEAN, (bool, np.bool_)),
    (ColumnKind.NUMBER, NUMBER_TYPES),
    (ColumnKind.DATE, (dt.date,)),
    (ColumnKind.DURATION, (dt.timedelta,)),
    (ColumnKind.TIME, (dt.time,)),
    (ColumnKind.TEXT, (str,)),
    (ColumnKind.CATEGORY, (str, *NUMBER_TYPES)),
)

_SPARK_NUMBERS = ("tinyint", "smallint", "int", "bigint", "float", "double", "decimal")
_SPARK_TYPES = {
    **dict.fromkeys(_SPARK_NUMBERS, ColumnKind.NUMBER),
    "boolean": ColumnKind.BOOLEAN,
    "date": ColumnKind.DATE,
    "timestamp": ColumnKind.DATE,
    "timestamp_ntz": ColumnKind.DATE,
    "interval day": ColumnKind.DURATION,
    "interval hour": ColumnKind.DURATION,
    "interval minute": ColumnKind.DURATION,
    "interval second": ColumnKind.DURATION,
    "time": ColumnKind.TIME,
    "string": ColumnKind.TEXT,
    "char": ColumnKind.TEXT,
    "varchar": ColumnKind.TEXT,
    "void": ColumnKind.EMPTY,
}


def kind_of_series(series: nw.Series[Any]) -> ColumnKind:
    """Return the kind of a column, from its type or, if that is not specific, from its values."""
    kind = kind_of_dtype(series.dtype)
    return kind_of_values(series.to_list()) if kind is None else kind


def kind_of_dtype(dtype: nw.dtypes.DType) -> ColumnKind | None:
    """Return the kind of a column with this narwhals type, or None if it depends on the values."""
    if dtype.is_numeric():
        return ColumnKind.NUMBER
    for kind, types in _DTYPES:
        if dtype in types:
            return kind
    return None if dtype in (nw.Object, nw.Unknown) else ColumnKind.OTHER


def kinds_of_frame(frame: nw.DataFrame[Any]) -> list[ColumnKind | None]:
    """Return the kind of each column of a frame, or None where it depends on the values."""
    return [kind_of_dtype(dtype) for dtype in frame.schema.values()]


def non_numeric_columns(schema: nw.Schema) -> list[int]:
    """Return the positions of the columns that hold anything but numbers and booleans."""
    numeric = {dtype for dtype in set(schema.values()) if is_numeric(dtype)}
    return [i for i, dtype in enumerate(schema.values()) if dtype not in numeric]


def is_numeric(dtype: nw.dtypes.DType) -> bool:
    """Return whether columns with this narwhals type hold numbers or booleans."""
    kind = kind_of_dtype(dtype)
    return kind is not None and kind.is_numeric


_DTYPES: tuple[tuple[ColumnKind, tuple[Any, ...]], ...] = (
    (ColumnKind.BOOLEAN, (nw.Boolean,)),
    (ColumnKind.DATE, (nw.Date, nw.Datetime)),
    (ColumnKind.DURATION, (nw.Duration,)),
    (ColumnKind.TIME, (nw.Time,)),
    (ColumnKind.TEXT, (nw.String,)),
    (ColumnKind.CATEGORY, (nw.Categorical, nw.Enum)),
)


def kind_of_values(values: Iterable[Any]) -> ColumnKind:
    """Return the kind of a column from its values, which may be any objects and may be missing."""
    types = distinct_types(values)
    if not types:
        return ColumnKind.EMPTY
    for kind, allowed in _VALUE_TYPES:
        if all(issubclass(found, allowed) for found in types):
            return kind
    return ColumnKind.OTHER


def kind_of_text(values: Iterable[Any]) -> ColumnKind:
    """Return the kind of a text column: dates if all values that are not missing are ISO dates, else text."""
    return ColumnKind.TEXT if parse_dates(values) is None else ColumnKind.DATE


def distinct_types(values: Iterable[Any]) -> list[type]:
    """Return the types of the values that are not missing, in order of appearance."""
    return list(dict.fromkeys(type(value) for value in values if not is_missing(value)))


@lru_cache(maxsize=256)
def kind_of_arrow(dtype: Any) -> ColumnKind:
    """Return the kind of a column with this pyarrow type."""
    import pyarrow.types as pt

    tests: tuple[tuple[ColumnKind, tuple[Any, ...]], ...] = (
        (ColumnKind.NUMBER, (pt.is_floating, pt.is_integer, pt.is_decimal)),
        (ColumnKind.BOOLEAN, (pt.is_boolean,)),
        (ColumnKind.DATE, (pt.is_date, pt.is_timestamp)),
        (ColumnKind.DURATION, (pt.is_duration,)),
        (ColumnKind.TIME, (pt.is_time,)),
        (ColumnKind.TEXT, (pt.is_string, pt.is_large_string, lambda found: str(found) == "string_view")),
        (ColumnKind.CATEGORY, (pt.is_dictionary,)),
        (ColumnKind.EMPTY, (pt.is_null,)),
    )
    return next((kind for kind, matches in tests if any(m(dtype) for m in matches)), ColumnKind.OTHER)


def kind_of_spark(dtype: str) -> ColumnKind:
    """Return the kind of a column with this Spark type, given as its ``simpleString()``."""
    name = dtype.partition("(")[0].partition(" to ")[0]
    return _SPARK_TYPES.get(name, ColumnKind.OTHER)
