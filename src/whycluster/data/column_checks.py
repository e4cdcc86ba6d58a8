"""Columns classified for clustering: how to read each one, or why to leave it out.

`classify_columns` checks all columns of a data frame at once. The other functions recognize identifiers,
codes such as 007, and dates.
"""

from __future__ import annotations

import importlib.util
import re
from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import narwhals as nw
import numpy as np

from whycluster.core.arrays import Floats
from whycluster.core.errors import InvalidInputError, MissingDependencyError
from whycluster.data.column_kinds import ColumnKind, distinct_types
from whycluster.data.columns import Column, category_as_text, columns_of, read_days, read_numbers, read_text
from whycluster.data.frame_table import as_frame
from whycluster.data.iso_dates import is_other_date
from whycluster.data.table import Table

LIKE_IDENTIFIER = "like an identifier"
CODE = "0[0-9]+"  # 007 is a name, not a number; a pattern that pyarrow and polars understand
_MIN_VALUES = 10  # values needed to recognize identifiers or dates
_NEARLY_ALL = 0.9
_EXACT = 2.0**53  # up to here, floats hold all whole numbers
_MANY, _OFTEN = 1000, 10  # more than _MANY categories must have _OFTEN rows each on average
_FIRST_DAY, _LAST_DAY = 1900_01_01, 2100_12_31

_READERS = {"numbers": read_numbers, "dates": read_days, "categories": read_text}


@dataclass(frozen=True)
class ClassifiedColumns:
    """The columns of a data frame, classified by how to read them for clustering.

    Attributes
    ----------
    frame : the pandas or polars DataFrame
    where : the public function, for messages
    readings : the columns to read as "numbers", as "dates" and as "categories", given by name, or by position
        if the names are not text
    left_out : the reason for each column that is to be left out
    text_dates : the names of the categorical columns whose values look like dates in another format
    """

    frame: Any
    where: str
    readings: dict[str, list[Any]]
    left_out: dict[Hashable, str]
    text_dates: list[Hashable]


def classify_columns(frame: Any, where: str, keep: Any = (), step: int = 1) -> ClassifiedColumns:
    """Classify the columns of a data frame.

    Parameters
    ----------
    frame : a pandas or polars DataFrame, or a pyarrow Table
    where : the public function, for messages
    keep : the names of columns to use even if they look like identifiers
    step : the rows are every ``step``-th row of a larger table
    """
    frame = _open_frame(frame, where)
    columns = columns_of(frame, where)
    names = [column.name for column in columns]
    kept = _check_keep(keep, names, where)
    by_name = all(isinstance(name, str) for name in names)
    result = ClassifiedColumns(frame, where, {}, {}, [])
    for position, column in enumerate(columns):
        reading, reason = inspect_column(column, column.name in kept, step)
        if reason:
            result.left_out[column.name] = reason
            continue
        result.readings.setdefault(reading, []).append(column.name if by_name else position)
        if is_text_of_dates(column):
            result.text_dates.append(column.name)
    return result


def _open_frame(frame: Any, where: str) -> Any:
    """Check a data frame and return it as a pandas or polars frame, which scikit-learn accepts."""
    opened = as_frame(frame, where, "frame")
    if opened is None:
        raise InvalidInputError(
            f"{where}: frame must be a pandas or polars DataFrame or a pyarrow Table, so that its columns "
            f"have types; got {type(frame).__name__}. Convert it with pandas.DataFrame(data, columns=[...])."
        )
    if 0 in opened.shape:
        raise InvalidInputError(
            f"{where}: frame must have at least one row and one column; got shape {opened.shape}."
        )
    names: list[Any] = opened.columns
    text = [name for name in names if isinstance(name, str)]
    other = [name for name in names if not isinstance(name, str)]
    if text and other:
        raise InvalidInputError(
            f"{where}: all or none of the column names of frame must be strings; got {text[0]!r} and "
            f"{other[0]!r}. Rename them: frame.columns = [str(c) for c in frame.columns]."
        )
    cut = next((name for name in text if name.endswith("\0")), None)
    if cut is not None:
        raise InvalidInputError(
            f"{where}: the column names of frame must not end with the character NUL, which NumPy drops; got "
            f"{cut!r}. Rename it."
        )
    if opened.implementation.is_pandas() or opened.implementation.is_polars():
        return frame
    for library, convert in (("pandas", opened.to_pandas), ("polars", opened.to_polars)):
        if importlib.util.find_spec(library) is not None:
            return convert()
    raise MissingDependencyError(
        f"{where}: a pyarrow table has to be converted to pandas or polars first, but neither is installed: "
        f"pip install pandas"
    )


def _check_keep(keep: Any, names: list[Hashable], where: str) -> set[Hashable]:
    keep = [keep] if isinstance(keep, str) else keep
    if not isinstance(keep, Iterable):
        raise InvalidInputError(f"{where}: keep must be a list of column names; got {keep!r}.")
    keep = list(keep)
    unknown = [name for name in keep if name not in names]
    if unknown:
        raise InvalidInputError(
            f"{where}: keep must contain columns of frame; got {unknown[0]!r}. "
            f"The columns of frame are {names[:5]}"
            + (f" and {len(names) - 5} more." if len(names) > 5 else ".")
        )
    return set(keep)


def inspect_column(column: Column, kept: bool, step: int = 1) -> tuple[str, str]:
    """Return how to read a column, and the reason to leave it out if there is one.

    Parameters
    ----------
    column : a column of a frame
    kept : whether to use the column even if it looks like an identifier
    step : the values are those of every ``step``-th row

    Returns
    -------
    reading : "numbers", "dates" or "categories", or "" if the column holds none of these
    reason : why to leave the column out, or "" if it can be used
    """
    reading = column.kind.reading
    if not reading:
        return "", f"{_type_of_values(column)}, which are not numbers, categories or dates"
    values = _READERS[reading](column)
    present = values[values == values]
    if len(present) == 0:
        return reading, "all values are missing"
    distinct = set(present.tolist()) if reading == "categories" else set()  # slow for numbers
    reason = "" if kept else _identifier_reason(column, len(present), distinct, step)
    if not reason and len(present) == len(values) and (present == present[0]).all():
        reason = "all values are the same"
        if reading == "numbers" and abs(present[0]) >= _EXACT and len(set(column.values())) > 1:
            reason += " when rounded to floats; subtract their minimum first"
    return reading, reason


def _type_of_values(column: Column) -> str:
    assert column.series is not None
    if column.kind_of_type is None:
        return "values of type " + ", ".join(found.__name__ for found in distinct_types(column.values())[:3])
    return f"values of type {type(column.series.dtype).__name__}"


def identifiers_and_dates(table: Table, positions: Sequence[int]) -> list[tuple[str, bool]]:
    """Return, for each given column, why it looks like an identifier, and whether it holds dates."""
    found = []
    for position in positions:
        column = _column_of(table, position)
        reason = identifier_reason(column)
        found.append((reason, not reason and (position in table.dates or holds_dates(column))))
    return found


def _column_of(table: Table, position: int) -> Column:
    """Return a column of a table, taken from its data frame if there is one."""
    frame = nw.from_native(table.native, eager_only=True, pass_through=True)
    if isinstance(frame, nw.DataFrame):
        return columns_of(frame[:, [position]].to_native(), table.where)[0]
    values = table.pick(np.full((table.n_rows, 1), position))[:, 0]
    return Column(table.feature_names[position], None, values.tolist, table.where)


def identifier_reason(column: Column) -> str:
    """Return why a column looks like an identifier, or "" if it does not.

    The result agrees with `inspect_column`. All columns of an array have the same type, so whole numbers may
    be stored as floats.
    """
    if column.series is None:
        numbers = _finite(column.values())
        if not numbers.size or (numbers != np.rint(numbers)).any():
            return ""
        return _counter_reason(column.name, len(numbers), len(np.unique(numbers)), np.ptp(numbers) + 1)
    if column.kind.is_categorical:
        texts = read_text(column)
        present = texts[texts == texts].tolist()
        return _identifier_reason(column, len(present), set(present))
    n_values = len(column.series.drop_nulls())
    return _identifier_reason(column, n_values, set()) if column.kind.reading and n_values else ""


def _identifier_reason(column: Column, n_values: int, distinct: set[Any], step: int = 1) -> str:
    if column.kind.is_categorical:
        n = len(distinct)
        if n_values >= _MIN_VALUES and n > _NEARLY_ALL * n_values:
            advice = _conversion_advice(column.name, distinct)
            return f"{LIKE_IDENTIFIER}, {n} of {n_values} values are distinct{advice}"
        if n > max(_MANY, n_values / _OFTEN):
            advice = _conversion_advice(column.name, distinct)
            return f"{LIKE_IDENTIFIER}, {n} distinct values in {n_values} rows{advice}"
    assert column.series is not None
    if not column.series.dtype.is_integer():
        return ""
    whole = column.series.drop_nulls()  # as floats, large numbers would coincide
    n_places = int(whole.max()) - int(whole.min()) + 1
    return _counter_reason(column.name, n_values, whole.n_unique(), n_places, step)


def _counter_reason(name: Hashable, n_values: int, n_distinct: int, n_places: float, step: int = 1) -> str:
    """Return why whole numbers look like identifiers, or "" if they do not.

    ``n_places`` is the number of whole numbers from the smallest to the largest. The values are those of
    every ``step``-th row. If there are fewer places than rows, some rows must share a value, even if all
    values that were read are distinct.
    """
    if named_like_identifier(name):
        return f"{LIKE_IDENTIFIER}, whole numbers in a column with such a name"
    n_rows = n_values * step
    filled = min(n_rows, n_places) >= _NEARLY_ALL * max(n_rows, n_places)
    consecutive = n_distinct == n_values >= _MIN_VALUES and filled
    return f"{LIKE_IDENTIFIER}, consecutive whole numbers" if consecutive else ""


def named_like_identifier(name: Hashable) -> bool:
    """Return whether a name begins or ends with a word such as id."""
    words = re.findall(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+", str(name))
    ends = {word.lower() for word in words[:1] + words[-1:]}
    return bool(ends & {"id", "uuid", "guid"}) or str(name).lower() in ("index", "unnamed: 0")


def holds_dates(column: Column) -> bool:
    """Return whether a column holds dates, stored as dates, as text, or as whole numbers such as 20240131."""
    if column.series is None or column.series.dtype.is_numeric():
        values = column.values() if column.series is None else column.series.cast(nw.Float64()).to_numpy()
        return _are_dates_in_digits(_finite(values))
    return column.kind is ColumnKind.DATE or is_text_of_dates(column)


def is_text_of_dates(column: Column) -> bool:
    """Return whether a column holds categories with at least ten distinct values, most of them dates."""
    if not column.kind.is_categorical:
        return False
    texts = {value for value in column.values() if isinstance(value, str)}
    return len(texts) >= _MIN_VALUES and _content_of(texts) == "dates"


def _are_dates_in_digits(numbers: Floats) -> bool:
    """Return whether there are at least ten distinct numbers, all of them dates such as 20240131."""
    days = np.unique(numbers)
    if (
        len(days) < _MIN_VALUES
        or (days != np.rint(days)).any()
        or days[0] < _FIRST_DAY
        or days[-1] > _LAST_DAY
    ):
        return False
    month, day = days // 100 % 100, days % 100
    return bool(((month >= 1) & (month <= 12) & (day >= 1) & (day <= 31)).all())


def _finite(values: Any) -> Floats:
    """Return the finite values, or an empty array if any value is not a number."""
    try:
        numbers = np.asarray(values, dtype=np.float64)
    except (TypeError, ValueError, OverflowError):
        return np.empty(0)
    return numbers[np.isfinite(numbers)]


def _conversion_advice(name: Hashable, texts: set[str]) -> str:
    """Return advice for numbers or dates that are stored as text, or "" for other text."""
    content = _content_of(texts)
    if content == "numbers" and (named_like_identifier(name) or any(map(is_code, texts))):
        return ""
    return f" (most can be read as {content}; convert them first)" if content else ""


def _content_of(texts: set[str]) -> str:
    """Return "numbers" or "dates" if most of the strings can be converted to these, or "" otherwise."""
    some = sorted(texts)[:100]
    for content, convert in (("numbers", float), ("dates", datetime.fromisoformat)):
        if sum(is_convertible(text, convert) for text in some) > len(some) / 2:
            return content
    return "dates" if sum(map(is_other_date, some)) > len(some) / 2 else ""


def is_code(text: str) -> bool:
    """Return whether a string is a code: a whole number with a leading zero, such as 007."""
    return re.fullmatch(CODE, text) is not None


def is_number_as_text(text: str) -> bool:
    """Return whether a string may come from a number or boolean that `as_text` converted."""
    return text in ("True", "False") or (
        is_convertible(text, float) and category_as_text(float(text)) == text
    )


def is_convertible(text: str, convert: Callable[[str], Any]) -> bool:
    """Return whether a function, such as ``float``, can convert a string."""
    try:
        convert(text)
    except ValueError:
        return False
    return True
