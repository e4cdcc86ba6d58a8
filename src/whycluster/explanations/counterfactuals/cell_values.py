"""Arithmetic with the values of cells: numbers, dates and durations; dates are moved by days."""

from __future__ import annotations

import datetime as dt
import math
from decimal import Decimal
from typing import Any

import numpy as np
from numpy.typing import NDArray

from whycluster.core.arrays import Floats
from whycluster.data.arrays import is_real
from whycluster.data.days import to_days
from whycluster.data.missing import is_missing

CATEGORY, MISSING, NONLINEAR, UNUSED, CHOSEN = ("category", "missing", "nonlinear", "unused", "chosen")
"""The reasons why a column cannot change freely."""

_DAY = dt.timedelta(days=1)


def why_held(value: Any) -> str:
    """Return why a value of this type cannot change freely, or "" if it can."""
    if is_missing(value):
        return MISSING
    free = isinstance(value, (dt.date, dt.timedelta, Decimal)) or is_real(value)
    return "" if free else CATEGORY


def is_number_or_date(value: Any) -> bool:
    """Return whether values like this one can be subtracted from each other."""
    return not why_held(value)


def is_day(value: Any) -> bool:
    """Return whether a value is a date without a time."""
    return isinstance(value, dt.date) and not isinstance(value, dt.datetime)


def moved(value: Any, by: float) -> Any:
    """Return a number or date plus a step, or None on overflow and outside the years 1 to 9999.

    Steps of dates are in days, rounded up for dates without a time.
    """
    if not isinstance(value, (dt.date, dt.timedelta)):
        return float(value) + by
    zone = _zone(value)
    try:
        step = dt.timedelta(days=math.copysign(math.ceil(abs(by)), by) if is_day(value) else by)
        found = value + step if zone is None else (_in_utc(value) + step).astimezone(zone)
    except (OverflowError, ValueError):
        return None
    in_calendar = isinstance(found, dt.timedelta) or dt.MINYEAR <= found.year <= dt.MAXYEAR
    return found if in_calendar else None  # some times of pandas have later years


def apart(after: Any, before: Any) -> float:
    """Return the difference of two numbers (for dates, in days), or NaN if ``after`` is None."""
    if after is before:
        return 0.0
    if after is None:
        return math.nan
    if not isinstance(after, (dt.date, dt.timedelta)):
        return float(after) - float(before)
    return float((_in_utc(after) - _in_utc(before)) / _DAY)


def outside(values: NDArray[Any], ranges: Floats) -> NDArray[np.bool_]:
    """Return which numbers and dates are outside these ranges."""
    days = (to_days(v) if isinstance(v, (dt.date, dt.timedelta)) else v for v in values)
    numbers = np.array([float(v) if is_real(v) else math.nan for v in days])
    return np.asarray((numbers < ranges[0]) | (numbers > ranges[1]))


def _zone(value: Any) -> dt.tzinfo | None:
    return value.tzinfo if isinstance(value, dt.datetime) else None


def _in_utc(value: Any) -> Any:
    """Return a datetime in UTC, since Python's arithmetic within a time zone ignores clock changes."""
    return value if _zone(value) is None else value.astimezone(dt.timezone.utc)
