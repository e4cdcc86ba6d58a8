"""What the columns of a table hold: numbers, dates or categories, read as such; or nothing of use, and why.

A column is judged by its type, and by its values where that says nothing.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Hashable, Iterator
from dataclasses import dataclass
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from numbers import Real
from typing import Any

import narwhals as nw
import numpy as np
from numpy.typing import NDArray

from whycluster.core.arrays import Floats
from whycluster.core.errors import InvalidInputError
from whycluster.data.days import to_days
from whycluster.data.elementwise import elementwise
from whycluster.data.missing import is_missing

LIKE_IDENTIFIER = "like an identifier"
CODE = "0[0-9]+"  # 007 is a name, as numbers are not written; a pattern that pyarrow and polars take, too
_OF_THAT_NAME = "whole numbers of that name"
_CONSECUTIVE = "whole numbers that are consecutive"
_OTHERWISE = "It did when the columns were told apart."
_ENOUGH = 10  # values to tell an identifier from
_NEARLY_ALL = 0.9
_MANY, _OFTEN = 1000, 10  # categories, and rows that each has to have, on average, if there are as many
_LARGEST = 1e150  # beyond it, squares overflow
_FIRST_DAY, _LAST_DAY = 1900_01_01, 2100_12_31
_DAY = 86_400e6  # microseconds
_NUMBERS = (Real, Decimal, np.bool_)


@elementwise
def as_numbers(X: Any) -> Floats:
    """Every column as float64, what is missing as NaN."""
    return _read(X, _numbers, np.float64, "as_numbers")


@elementwise
def as_days(X: Any) -> Floats:
    """Every column of dates or durations as days, since 1970 in UTC or in length; what is missing as NaN."""
    return _read(X, _days, np.float64, "as_days")


@elementwise
def as_text(X: Any) -> NDArray[Any]:
    """Every column as objects that are text, what is missing as NaN; whole numbers are written as such."""
    return _read(X, _texts, object, "as_text")


@dataclass(frozen=True)
class Column:
    """One column as its values are read: from a series of any library, or from an array."""

    name: Hashable
    series: nw.Series[Any] | None
    values: Callable[[], list[Any]]
    where: str

    def error(self, kind: str, row: int, value: Any, advice: str) -> InvalidInputError:
        """What to raise where a value is not of the kind that the column must hold."""
        return InvalidInputError(
            f"{self.where}: column {self.name!r} must hold {kind}; row {row} holds {value!r}. {advice}"
        )


def columns_of(X: Any, where: str) -> Iterator[Column]:
    """The columns of a frame, or of an array, in order; ``where`` is for messages."""
    frame = nw.from_native(X, eager_only=True, pass_through=True)
    if isinstance(frame, nw.DataFrame):
        for name, series in zip(frame.columns, frame.iter_columns(), strict=True):
            yield Column(name, series, series.to_list, where)
    else:
        for position, values in enumerate(np.asarray(X, dtype=object).T):
            yield Column(f"x{position}", None, values.tolist, where)


def _read(X: Any, reader: Callable[[Column], NDArray[Any]], dtype: Any, where: str) -> NDArray[Any]:
    columns = [reader(column) for column in columns_of(X, where)]
    # Column by column, as it came: with many rows, writing it row by row takes several times as long.
    result = np.empty((len(columns[0]), len(columns)), dtype, order="F")
    for position, values in enumerate(columns):
        result[:, position] = values
    return result


def _numbers(column: Column) -> NDArray[Any]:
    series = column.series
    numbers = np.empty(0, dtype=object)
    if series is not None and (series.dtype.is_numeric() or series.dtype == nw.Boolean):
        numbers = series.cast(nw.Float64()).to_numpy()
    if numbers.dtype != np.float64:  # objects, or pandas' own sign for what is missing
        numbers = _one_by_one(column, "numbers", _NUMBERS, float)
    large = np.abs(numbers) > _LARGEST  # False for NaN
    if large.any():
        row = int(large.argmax())
        advice = "Replace it, or make it a missing value."
        raise column.error(
            f"finite numbers, of at most {_LARGEST:g} in size", row, float(numbers[row]), advice
        )
    return numbers


def _days(column: Column) -> NDArray[Any]:
    series = column.series
    days = np.empty(0, dtype=object)
    if series is not None and series.dtype in (nw.Date, nw.Datetime):
        days = series.dt.timestamp("us").cast(nw.Float64()).to_numpy()
    elif series is not None and series.dtype == nw.Duration:
        days = series.dt.total_microseconds().cast(nw.Float64()).to_numpy()
    if days.dtype == np.float64:
        return days / _DAY
    return _one_by_one(column, "dates or durations", (date, time, timedelta), to_days)


def _one_by_one(
    column: Column, kind: str, types: tuple[type, ...], convert: Callable[[Any], float]
) -> NDArray[Any]:
    result = np.full(len(values := column.values()), np.nan)
    for row, value in enumerate(values):
        if is_missing(value):
            continue
        if not isinstance(value, types):
            raise column.error(kind, row, value, _OTHERWISE)
        try:
            result[row] = convert(value)
        except OverflowError:  # told with all that are too large
            result[row] = np.inf
    return result


def _texts(column: Column) -> NDArray[Any]:
    values = column.values()
    result = np.empty(len(values), dtype=object)
    for row, value in enumerate(values):
        if not isinstance(value, str) and not isinstance(value, Hashable):
            raise column.error("categories", row, value, _OTHERWISE)
        result[row] = _text(value)
    return result


def _text(value: Any) -> Any:
    """A category by its name: 1 and 1.0 are the same, as parts of a file may be read either way."""
    if isinstance(value, str):
        return value
    if is_missing(value):
        return np.nan
    whole = isinstance(value, (float, np.floating)) and float(value).is_integer()
    return str(int(value) if whole else value)


def is_spelling(text: str) -> bool:
    """Whether it is how `as_text` writes a number or a boolean."""
    return text in ("True", "False") or (converts(text, float) and _text(float(text)) == text)


_READERS = {"numbers": _numbers, "dates": _days, "categories": _texts}


def judge(column: Column, kept: bool, step: int = 1) -> tuple[str, str]:
    """What a column holds, and the reason to leave it out, empty if there is none.

    ``step`` says that its values are those of every so many rows.
    """
    kind = _kind(column)
    if kind is None:
        return "", f"{_what(column)}, neither numbers, categories nor dates"
    values = _READERS[kind](column)
    present = values[values == values]
    if len(present) == 0:
        return kind, "all values are missing"
    different = set(present.tolist()) if kind == "categories" else set()  # of numbers, it takes long
    reason = "" if kept else _like_identifier(column, kind, len(present), different, step)
    if not reason and len(present) == len(values) and (present == present[0]).all():
        reason = "all values are the same"
    return kind, reason


def _kind(column: Column) -> str | None:
    """By the type of the column, or of its values if that says nothing."""
    assert column.series is not None
    dtype = column.series.dtype
    if dtype.is_numeric() or dtype == nw.Boolean:
        return "numbers"
    if dtype in (nw.Date, nw.Datetime, nw.Duration, nw.Time):
        return "dates"
    if dtype in (nw.String, nw.Categorical, nw.Enum):
        return "categories"
    if dtype not in (nw.Object, nw.Unknown):
        return None
    types = _types(column)
    for kind, allowed in (
        ("numbers", _NUMBERS),
        ("dates", (date,)),
        ("dates", (timedelta,)),
        ("dates", (time,)),
        ("categories", (str, *_NUMBERS)),
    ):
        if all(issubclass(found, allowed) for found in types):
            return kind
    return None


def _types(column: Column) -> list[type]:
    """The types of the values that are not missing, in the order in which they come."""
    return list(dict.fromkeys(type(value) for value in column.values() if not is_missing(value)))


def _what(column: Column) -> str:
    assert column.series is not None
    dtype = column.series.dtype
    if dtype in (nw.Object, nw.Unknown):
        return "values of type " + ", ".join(found.__name__ for found in _types(column)[:3])
    return f"values of type {type(dtype).__name__}"


def _like_identifier(column: Column, kind: str, n_values: int, different: set[Any], step: int = 1) -> str:
    """Why a column looks like one of identifiers, empty if it does not."""
    if kind == "categories" and n_values >= _ENOUGH and len(different) > _NEARLY_ALL * n_values:
        advice = _advice(column.name, different)
        return f"{LIKE_IDENTIFIER}, {len(different)} of {n_values} values are different{advice}"
    if kind == "categories" and len(different) > max(_MANY, n_values / _OFTEN):
        advice = _advice(column.name, different)
        return f"{LIKE_IDENTIFIER}, {len(different)} different values in {n_values} rows{advice}"
    assert column.series is not None
    if kind != "numbers" or not column.series.dtype.is_integer():
        return ""
    whole = column.series.drop_nulls()  # as floats, large ones would fall together
    n_places = int(whole.max()) - int(whole.min()) + 1
    return _like_counted(column.name, n_values, whole.n_unique(), n_places, step)


def like_identifier(column: Column) -> str:
    """Why a column of a table looks like one of identifiers, empty if it does not.

    As `judge` finds it; the numbers of an array, which has one type for all columns, may be whole as floats.
    """
    if column.series is None:
        numbers = _plain(column.values())
        if not numbers.size or (numbers != np.rint(numbers)).any():
            return ""
        return _like_counted(column.name, len(numbers), len(np.unique(numbers)), np.ptp(numbers) + 1)
    kind = _kind(column)
    if kind == "categories":
        texts = _texts(column)
        present = texts[texts == texts].tolist()
        return _like_identifier(column, kind, len(present), set(present))
    n_values = len(column.series.drop_nulls())
    return _like_identifier(column, kind, n_values, set()) if kind and n_values else ""


def like_days(column: Column) -> bool:
    """Whether a column holds days: as dates, as text that reads so, or as whole numbers such as 20240131."""
    if column.series is None or column.series.dtype.is_numeric():
        values = column.values() if column.series is None else column.series.cast(nw.Float64()).to_numpy()
        return _reads_as_days(_plain(values))
    return column.series.dtype in (nw.Date, nw.Datetime) or reads_as_dates(column)


def _plain(values: Any) -> Floats:
    """The numbers that are there; none, if some are not numbers."""
    try:
        numbers = np.asarray(values, dtype=np.float64)
    except (TypeError, ValueError, OverflowError):
        return np.empty(0)
    return numbers[np.isfinite(numbers)]


def _like_counted(name: Hashable, n_values: int, n_different: int, n_places: float, step: int = 1) -> str:
    """Why whole numbers look like identifiers; from the least to the greatest there are so many places.

    Those of every so many rows stand for all of them. Some of these may be the same if there are fewer places
    than rows, though no two of the values are.
    """
    if _named_like_identifier(name):
        return f"{LIKE_IDENTIFIER}, {_OF_THAT_NAME}"
    n_rows = n_values * step
    filled = min(n_rows, n_places) >= _NEARLY_ALL * max(n_rows, n_places)
    consecutive = n_different == n_values >= _ENOUGH and filled
    return f"{LIKE_IDENTIFIER}, {_CONSECUTIVE}" if consecutive else ""


def _reads_as_days(numbers: Floats) -> bool:
    """Year, month and day in eight digits, of ten different days or more."""
    days = np.unique(numbers)
    if len(days) < _ENOUGH or (days != np.rint(days)).any() or days[0] < _FIRST_DAY or days[-1] > _LAST_DAY:
        return False
    month, day = days // 100 % 100, days % 100
    return bool(((month >= 1) & (month <= 12) & (day >= 1) & (day <= 31)).all())


def _named_like_identifier(name: Hashable) -> bool:
    words = re.findall(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+", str(name))
    ends = {word.lower() for word in words[:1] + words[-1:]}
    return bool(ends & {"id", "uuid", "guid"}) or str(name).lower() in ("index", "unnamed: 0")


def reads_as_dates(column: Column) -> bool:
    """Whether a column of text, of ten different ones or more, reads as dates. Digits may well be names."""
    if _kind(column) != "categories":
        return False
    texts = {value for value in column.values() if isinstance(value, str)}
    return len(texts) >= _ENOUGH and _reads_as(texts) == "dates"


def _advice(name: Hashable, texts: set[str]) -> str:
    """What to do about text that is something else, as it often is in files; names stay what they are."""
    what = _reads_as(texts)
    if what == "numbers" and (_named_like_identifier(name) or any(map(is_code, texts))):
        return ""
    return f" (most read as {what}: convert them first)" if what else ""


def _reads_as(texts: set[str]) -> str:
    some = sorted(texts)[:100]
    for what, convert in (("numbers", float), ("dates", datetime.fromisoformat)):
        if sum(converts(text, convert) for text in some) > len(some) / 2:
            return what
    return ""


def is_code(text: str) -> bool:
    """Whether it is a whole number with a zero before it, such as 007, which is a name."""
    return re.fullmatch(CODE, text) is not None


def converts(text: str, convert: Callable[[str], Any]) -> bool:
    """Whether a text can be read as something else, such as a number."""
    try:
        convert(text)
    except ValueError:
        return False
    return True
