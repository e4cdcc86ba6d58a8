"""Columns of a table, read as numbers, as days or as text.

`as_numbers`, `as_days` and `as_text` are the first steps of the pipelines that `whycluster.tabular` builds.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import dataclass
from datetime import date, time, timedelta
from functools import cached_property
from typing import Any

import narwhals as nw
import numpy as np
from numpy.typing import NDArray

from whycluster.core.arrays import Floats
from whycluster.core.errors import InvalidInputError
from whycluster.data.column_kinds import (
    NUMBER_TYPES,
    ColumnKind,
    is_numeric,
    kind_of_dtype,
    kind_of_text,
    kind_of_values,
    kinds_of_frame,
)
from whycluster.data.days import to_days
from whycluster.data.elementwise import elementwise
from whycluster.data.iso_dates import parse_date
from whycluster.data.missing import is_missing

_WHEN_FITTED = "when the pipeline was fitted."
LARGEST = 1e150  # squares of larger numbers overflow
_MICROSECONDS_PER_DAY = 86_400e6
MANY_COLUMNS = 64  # wider frames are read at once if possible


@elementwise
def as_numbers(X: Any) -> Floats:
    """Return every column as float64, with NaN for missing values."""
    numbers = numbers_at_once(X)
    return _read(X, read_numbers, np.float64, "as_numbers") if numbers is None else numbers


@elementwise
def as_days(X: Any) -> Floats:
    """Return every column of dates, durations or times of day as days, with NaN for missing values.

    Dates are counted in days since 1970, in UTC. They may be text, such as "2024-03-01".
    """
    days = days_at_once(X)
    return _read(X, read_days, np.float64, "as_days") if days is None else days


@elementwise
def as_text(X: Any) -> NDArray[Any]:
    """Return every column as text, with NaN for missing values; whole numbers are written without ".0"."""
    return _read(X, read_text, object, "as_text")


@dataclass(frozen=True)
class Column:
    """One column of a frame or of an array.

    Attributes
    ----------
    name : the name of the column
    series : the column of a frame, or None for a column of an array
    values : a function that returns all values
    where : the public function, for messages
    kind_of_type : the kind of values, from the type of the column; None if it depends on the values
    """

    name: Hashable
    series: nw.Series[Any] | None
    values: Callable[[], list[Any]]
    where: str
    kind_of_type: ColumnKind | None = None

    @cached_property
    def kind(self) -> ColumnKind:
        """The kind of values, from the type of the column or, if that is not specific, from the values.

        Text that holds only ISO dates counts as dates.
        """
        kind = self.kind_of_type or kind_of_values(self.values())
        return kind_of_text(self.values()) if kind is ColumnKind.TEXT else kind

    def error(self, expected: str, row: int, value: Any, advice: str) -> InvalidInputError:
        """Return the error for a value that the column must not hold."""
        return InvalidInputError(
            f"{self.where}: column {self.name!r} must hold {expected}; row {row} holds {value!r}. {advice}"
        )


def columns_of(X: Any, where: str) -> list[Column]:
    """Return the columns of a frame or an array; ``where`` is for messages."""
    frame = nw.from_native(X, eager_only=True, pass_through=True)
    if not isinstance(frame, nw.DataFrame):
        arrays = enumerate(np.asarray(X, dtype=object).T)
        return [Column(f"x{position}", None, values.tolist, where) for position, values in arrays]
    return [
        Column(name, series, series.to_list, where, kind)
        for name, series, kind in zip(frame.columns, frame.iter_columns(), kinds_of_frame(frame), strict=True)
    ]


def _read(X: Any, reader: Callable[[Column], NDArray[Any]], dtype: Any, where: str) -> NDArray[Any]:
    columns = [reader(column) for column in columns_of(X, where)]
    # Stored by columns, like the source, because writing many rows one by one takes several times as long.
    result = np.empty((len(columns[0]), len(columns)), dtype, order="F")
    for position, values in enumerate(columns):
        result[:, position] = values
    return result


def numbers_at_once(X: Any) -> Floats | None:
    """Return all numbers of a wide frame, which is slow to read column by column, or None if impossible."""
    frame = _wide_frame(X)
    if frame is None or not all(map(is_numeric, set(frame.schema.values()))):
        return None
    native = frame.to_native()
    if frame.implementation.is_polars():
        numbers = frame.select(nw.all().cast(nw.Float64())).to_numpy()
    elif _dtypes_of_pandas(native) <= set("fiub"):
        numbers = native.to_numpy(dtype=np.float64)
    else:
        return None
    return numbers if (np.abs(numbers[~np.isnan(numbers)]) <= LARGEST).all() else None


def days_at_once(X: Any) -> Floats | None:
    """Return all dates of a wide frame in days, or None if impossible."""
    frame = _wide_frame(X)
    if frame is None or any(
        kind_of_dtype(dtype) is not ColumnKind.DATE for dtype in set(frame.schema.values())
    ):
        return None
    if frame.implementation.is_polars():
        return frame.select(nw.all().dt.timestamp("us").cast(nw.Float64())).to_numpy() / _MICROSECONDS_PER_DAY
    if _dtypes_of_pandas(frame.to_native()) != {"M"}:
        return None
    times = frame.to_native().to_numpy().astype("datetime64[us]")
    return np.where(np.isnat(times), np.nan, times.astype(np.int64) / _MICROSECONDS_PER_DAY)


def _wide_frame(X: Any) -> nw.DataFrame[Any] | None:
    """Return a pandas or polars frame if it is wide."""
    frame = nw.from_native(X, eager_only=True, pass_through=True)
    if not isinstance(frame, nw.DataFrame) or frame.shape[1] < MANY_COLUMNS:
        return None
    return frame if frame.implementation.is_pandas() or frame.implementation.is_polars() else None


def _dtypes_of_pandas(native: Any) -> set[str]:
    """Return the kinds of the columns' NumPy dtypes, with "" for dtypes of pandas and pyarrow."""
    return {dtype.kind if isinstance(dtype, np.dtype) else "" for dtype in set(native.dtypes)}


def read_numbers(column: Column) -> NDArray[Any]:
    """Return the numbers of a column, with NaN for missing ones; raise an error if a square overflows."""
    kind = column.kind_of_type
    numbers = np.empty(0, dtype=object)
    if column.series is not None and kind is not None and kind.is_numeric:
        numbers = column.series.cast(nw.Float64()).to_numpy()
    if numbers.dtype != np.float64:  # objects, or a pandas column with missing values
        numbers = _convert_each(column, "numbers", NUMBER_TYPES, float)
    large = np.abs(numbers) > LARGEST  # False for NaN
    if large.any():
        row = int(large.argmax())
        expected = f"finite numbers of at most {LARGEST:g} in absolute value"
        raise column.error(expected, row, float(numbers[row]), "Replace it, or make it a missing value.")
    return numbers


def read_days(column: Column) -> NDArray[Any]:
    """Return the dates, durations or times of day of a column in days, with NaN for missing ones."""
    kind, days = column.kind_of_type, np.empty(0, dtype=object)
    if column.series is not None and kind is ColumnKind.DATE:
        days = column.series.dt.timestamp("us").cast(nw.Float64()).to_numpy()
    elif column.series is not None and kind is ColumnKind.DURATION:
        days = column.series.dt.total_microseconds().cast(nw.Float64()).to_numpy()
    if days.dtype == np.float64:
        return days / _MICROSECONDS_PER_DAY
    return _convert_each(column, "dates, durations or times of day", (date, time, timedelta, str), _to_days)


def _to_days(value: Any) -> float:
    found = parse_date(value) if isinstance(value, str) else value
    if found is None:
        raise ValueError(f"not an ISO date: {value!r}")
    return to_days(found)


def _convert_each(
    column: Column, expected: str, types: tuple[type, ...], convert: Callable[[Any], float]
) -> NDArray[Any]:
    result = np.full(len(values := column.values()), np.nan)
    for row, value in enumerate(values):
        if is_missing(value):
            continue
        try:
            if not isinstance(value, types):
                raise TypeError(f"{value!r}")
            result[row] = convert(value)
        except OverflowError:  # rejected later, like all numbers that are too large
            result[row] = np.inf
        except (TypeError, ValueError):
            raise column.error(expected, row, value, f"The column held {expected} {_WHEN_FITTED}") from None
    return result


def read_text(column: Column) -> NDArray[Any]:
    """Return the values of a column as text, with NaN for missing ones."""
    values = column.values()
    result = np.empty(len(values), dtype=object)
    for row, value in enumerate(values):
        if not isinstance(value, str) and not isinstance(value, Hashable):
            raise column.error("categories", row, value, f"The column held categories {_WHEN_FITTED}")
        result[row] = category_as_text(value)
    return result


def category_as_text(value: Any) -> Any:
    """Return a category as text, or NaN if it is missing.

    The numbers 1 and 1.0 give the same text, because one part of a file may be read as integers and another
    as floats.
    """
    if isinstance(value, str):
        return value
    if is_missing(value):
        return np.nan
    whole = isinstance(value, (float, np.floating)) and float(value).is_integer()
    return str(int(value) if whole else value)
