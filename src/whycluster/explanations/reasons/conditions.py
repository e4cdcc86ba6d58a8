"""A condition on one column: in words, on data, and in SQL."""

from __future__ import annotations

import datetime as dt
import math
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from whycluster.core.errors import InvalidInputError
from whycluster.data.days import to_days
from whycluster.data.display import format_items, format_names, join_words
from whycluster.data.sql_quoting import quote_name, quote_value
from whycluster.explanations.counterfactuals.short_values import exact_text
from whycluster.explanations.reasons.column_values import (
    BOOLEAN,
    CATEGORY,
    DAY,
    TEMPORAL,
    TIMESTAMP,
    ColumnValues,
)


@dataclass(frozen=True)
class Condition:
    """A condition on one column. `print` it, or read its parts.

    Attributes
    ----------
    feature : the name of the column
    kind : the kind of its values: "number", "boolean", "category", "day", "timestamp", "duration" or "time of
        day"
    low : the lower bound, or None. It is included for whole numbers and days, and excluded otherwise.
    high : the upper bound, which is included, or None
    low_included : whether ``low`` itself satisfies the condition
    values : the categories or the boolean that the condition names; () for other kinds
    missing : True if the value must be missing, False if any known value will do, None otherwise
    may_be_nan : whether the column holds floats, which databases may store as NaN
    """

    feature: Hashable
    kind: str
    low: Any = None
    high: Any = None
    low_included: bool = False
    values: tuple[Any, ...] = ()
    missing: bool | None = None
    may_be_nan: bool = False

    @property
    def text(self) -> str:
        """The condition in words, such as "age is at least 30"."""
        return describe_all([self])

    def __str__(self) -> str:
        return self.text

    @property
    def predicate(self) -> str:
        """What the condition requires of the column, such as "at least 30"."""
        if self.missing is not None:
            return "missing" if self.missing else "not missing"
        if self.kind == BOOLEAN:
            return str(self.values[0]).lower()
        if self.kind == CATEGORY:
            names = [_quoted(name) for name in format_names(map(str, self.values))]
            return names[0] if len(names) == 1 else f"one of {join_words(names)}"
        return self._bounds()

    def _bounds(self) -> str:
        low, high = (None if each is None else exact_text(each) for each in (self.low, self.high))
        if low is not None and high is not None and self.low_included:
            return low if low == high else f"from {low} to {high}"
        above, at_most = _WORDS.get(self.kind, ("at least" if self.low_included else "above", "at most"))
        parts = [f"{above} {low}"] * (low is not None) + [f"{at_most} {high}"] * (high is not None)
        return " and ".join(parts)

    def holds(self, column: ColumnValues) -> NDArray[np.bool_]:
        """Return the rows for which the condition holds, (n,)."""
        x = np.floor(column.values) if self.kind == DAY else column.values  # any time of the day
        if self.missing is not None:
            return np.asarray(np.isnan(x) == self.missing)
        if self.kind == BOOLEAN:
            return np.asarray(x == float(self.values[0]))
        if self.kind == CATEGORY:
            return np.isin(x, column.codes_of([str(value) for value in self.values]))
        result = ~np.isnan(x)
        if self.low is not None:
            low = as_number(self.low)
            result &= x >= low if self.low_included else x > low
        if self.high is not None:
            result &= x <= as_number(self.high)
        return result

    def check(self, column: ColumnValues, where: str) -> None:
        """Raise an error if a column of other data holds values of another kind."""
        expected, found = (
            "dates or times" if kind in TEMPORAL else _NOUNS[kind] for kind in (self.kind, column.kind)
        )
        if self.missing is None and expected != found and not np.isnan(column.values).all():
            raise InvalidInputError(
                f"{where}: column {self.feature!r} must hold {expected}, as in the explained data; it holds "
                f"{found}."
            )

    def to_sql(self, dialect: str, where: str) -> str:
        """Return the condition in SQL; missing values satisfy it only if it tests for them."""
        name = quote_name(self.feature, dialect, where)
        if self.missing is not None:
            return self._missing_in_sql(name, dialect, where)
        if self.kind == BOOLEAN:
            return f"{name} IS {'TRUE' if self.values[0] else 'FALSE'}"
        if self.kind == CATEGORY:
            listed = [quote_value(value, dialect, where) for value in self.values]
            return f"{name} = {listed[0]}" if len(listed) == 1 else f"{name} IN ({', '.join(listed)})"
        parts = []
        if self.low is not None:
            sign = ">=" if self.low_included else ">"
            parts.append(f"{name} {sign} {quote_value(self.low, dialect, where)}")
        if self.high is not None and self.kind == DAY:  # any time of the day
            parts.append(f"{name} < {quote_value(self.high + _DAY, dialect, where)}")
        elif self.high is not None:
            parts.append(f"{name} <= {quote_value(self.high, dialect, where)}")
        elif self.may_be_nan:  # databases sort NaN after all numbers
            parts.append(f"{name} < {quote_value(math.inf, dialect, where)}")
        return " AND ".join(parts)

    def _missing_in_sql(self, name: str, dialect: str, where: str) -> str:
        if not self.may_be_nan:
            return f"{name} IS {'' if self.missing else 'NOT '}NULL"
        infinity = quote_value(math.inf, dialect, where)
        return f"({name} IS NULL OR {name} > {infinity})" if self.missing else f"{name} <= {infinity}"


def describe_all(conditions: Sequence[Condition]) -> str:
    """Return conditions that all have to hold, in words."""
    names = format_items([each.feature for each in conditions])
    return " and ".join(f"{name} is {each.predicate}" for name, each in zip(names, conditions, strict=True))


def hold_all(
    conditions: Sequence[Condition], columns: Mapping[Hashable, ColumnValues], n_rows: int
) -> NDArray[np.bool_]:
    """Return the rows for which all conditions hold, (n,)."""
    result = np.ones(n_rows, dtype=bool)
    for each in conditions:
        result &= each.holds(columns[each.feature])
    return result


_DAY = dt.timedelta(days=1)
_JOINING = (", ", " and ", " or ")
_NOUNS = {"number": "numbers", "boolean": "booleans", "category": "categories"}
_WORDS = {DAY: ("on or after", "on or before"), TIMESTAMP: ("after", "not after")}


def _quoted(category: str) -> str:
    """Return a category, in quotes if it could be taken for several or for a part of the sentence."""
    unclear = category != category.strip() or category in ("missing", "not missing")
    unclear = unclear or category.startswith("one of ")
    return f'"{category}"' if unclear or any(word in category for word in _JOINING) else category


def as_number(bound: Any) -> float:
    """Return a bound in the unit in which columns are read: days for dates, durations and times of day."""
    if isinstance(bound, (dt.date, dt.time, dt.timedelta)):
        return to_days(bound)
    return float(bound)
