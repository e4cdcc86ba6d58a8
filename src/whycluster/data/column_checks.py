"""Checks of single columns: is it of use for a clustering, or does it hold identifiers, codes or dates?"""

from __future__ import annotations

import re
from collections.abc import Callable, Hashable
from datetime import datetime
from typing import Any

import narwhals as nw
import numpy as np

from whycluster.core.arrays import Floats
from whycluster.data.column_kinds import ColumnKind, distinct_types
from whycluster.data.columns import Column, read_days, read_numbers, read_text, spell

LIKE_IDENTIFIER = "like an identifier"
CODE = "0[0-9]+"  # 007 is a name, not a number; a pattern that pyarrow and polars understand
_MIN_VALUES = 10  # needed to recognize identifiers or dates
_NEARLY_ALL = 0.9
_MANY, _OFTEN = 1000, 10  # so many categories are allowed only if each has that many rows on average
_FIRST_DAY, _LAST_DAY = 1900_01_01, 2100_12_31

_READERS = {"numbers": read_numbers, "dates": read_days, "categories": read_text}


def inspect_column(column: Column, kept: bool, step: int = 1) -> tuple[str, str]:
    """Return what a column is read as, and the reason to leave it out.

    Parameters
    ----------
    column : a column of a frame
    kept : whether the user wants it even if it looks like an identifier
    step : the values are those of every ``step``-th row

    Returns
    -------
    reading : "numbers", "dates" or "categories"; empty if it holds none of these
    reason : empty if the column is of use
    """
    reading = _reading(column.kind)
    if not reading:
        return "", f"{_type_of_values(column)}, neither numbers, categories nor dates"
    values = _READERS[reading](column)
    present = values[values == values]
    if len(present) == 0:
        return reading, "all values are missing"
    distinct = set(present.tolist()) if reading == "categories" else set()  # slow for numbers
    reason = "" if kept else _identifier_reason(column, len(present), distinct, step)
    if not reason and len(present) == len(values) and (present == present[0]).all():
        reason = "all values are the same"
    return reading, reason


def _reading(kind: ColumnKind) -> str:
    if kind.is_temporal:
        return "dates"
    if kind.is_categorical:
        return "categories"
    return "" if kind is ColumnKind.OTHER else "numbers"


def _type_of_values(column: Column) -> str:
    assert column.series is not None
    if column.kind_of_type is None:
        return "values of type " + ", ".join(found.__name__ for found in distinct_types(column.values())[:3])
    return f"values of type {type(column.series.dtype).__name__}"


def identifier_reason(column: Column) -> str:
    """Return why a column looks like one of identifiers; empty if it does not.

    The result agrees with `inspect_column`. An array has one type for all columns, so its whole numbers may
    be floats.
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
    return _identifier_reason(column, n_values, set()) if _reading(column.kind) and n_values else ""


def _identifier_reason(column: Column, n_values: int, distinct: set[Any], step: int = 1) -> str:
    if column.kind.is_categorical:
        n = len(distinct)
        if n_values >= _MIN_VALUES and n > _NEARLY_ALL * n_values:
            advice = _conversion_advice(column.name, distinct)
            return f"{LIKE_IDENTIFIER}, {n} of {n_values} values are different{advice}"
        if n > max(_MANY, n_values / _OFTEN):
            advice = _conversion_advice(column.name, distinct)
            return f"{LIKE_IDENTIFIER}, {n} different values in {n_values} rows{advice}"
    assert column.series is not None
    if not column.series.dtype.is_integer():
        return ""
    whole = column.series.drop_nulls()  # as floats, large numbers would coincide
    n_places = int(whole.max()) - int(whole.min()) + 1
    return _counter_reason(column.name, n_values, whole.n_unique(), n_places, step)


def _counter_reason(name: Hashable, n_values: int, n_distinct: int, n_places: float, step: int = 1) -> str:
    """Return why whole numbers look like identifiers.

    ``n_places`` is the number of whole numbers between the smallest and the largest. The values are
    those of every ``step``-th row. If there are fewer places than rows, rows that were not read repeat some
    value, even though all values that were read differ.
    """
    if _named_like_identifier(name):
        return f"{LIKE_IDENTIFIER}, whole numbers of that name"
    n_rows = n_values * step
    filled = min(n_rows, n_places) >= _NEARLY_ALL * max(n_rows, n_places)
    consecutive = n_distinct == n_values >= _MIN_VALUES and filled
    return f"{LIKE_IDENTIFIER}, whole numbers that are consecutive" if consecutive else ""


def _named_like_identifier(name: Hashable) -> bool:
    words = re.findall(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+", str(name))
    ends = {word.lower() for word in words[:1] + words[-1:]}
    return bool(ends & {"id", "uuid", "guid"}) or str(name).lower() in ("index", "unnamed: 0")


def holds_dates(column: Column) -> bool:
    """Return whether a column holds dates: as a type, as text, or as whole numbers such as 20240131."""
    if column.series is None or column.series.dtype.is_numeric():
        values = column.values() if column.series is None else column.series.cast(nw.Float64()).to_numpy()
        return _are_dates_in_digits(_finite(values))
    return column.kind is ColumnKind.DATE or is_text_of_dates(column)


def is_text_of_dates(column: Column) -> bool:
    """Return whether a column holds text, of ten distinct values or more, most of which are ISO dates."""
    if not column.kind.is_categorical:
        return False
    texts = {value for value in column.values() if isinstance(value, str)}
    return len(texts) >= _MIN_VALUES and _content_of(texts) == "dates"


def _are_dates_in_digits(numbers: Floats) -> bool:
    """Return whether ten distinct numbers or more are all year, month and day in eight digits."""
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
    """Return the values that are finite; none if some are not numbers."""
    try:
        numbers = np.asarray(values, dtype=np.float64)
    except (TypeError, ValueError, OverflowError):
        return np.empty(0)
    return numbers[np.isfinite(numbers)]


def _conversion_advice(name: Hashable, texts: set[str]) -> str:
    """Return advice for text that holds numbers or dates, as is common in files; empty for names."""
    content = _content_of(texts)
    if content == "numbers" and (_named_like_identifier(name) or any(map(is_code, texts))):
        return ""
    return f" (most read as {content}: convert them first)" if content else ""


def _content_of(texts: set[str]) -> str:
    """Return "numbers" or "dates" if most texts can be read as such; empty otherwise."""
    some = sorted(texts)[:100]
    for content, convert in (("numbers", float), ("dates", datetime.fromisoformat)):
        if sum(converts(text, convert) for text in some) > len(some) / 2:
            return content
    return ""


def is_code(text: str) -> bool:
    """Return whether a text is a whole number with a leading zero, such as 007, which is a name."""
    return re.fullmatch(CODE, text) is not None


def is_spelled_number(text: str) -> bool:
    """Return whether a text is what `as_text` writes for some number or boolean."""
    return text in ("True", "False") or (converts(text, float) and spell(float(text)) == text)


def converts(text: str, convert: Callable[[str], Any]) -> bool:
    """Return whether a function can convert a text, such as ``float``."""
    try:
        convert(text)
    except ValueError:
        return False
    return True
