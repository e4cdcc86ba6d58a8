"""Dates in text, written as year-month-day, such as 2024-03-01, optionally with a time and a time zone."""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Iterable
from typing import Any

from whycluster.data.missing import is_missing

_ISO_DATE = re.compile(
    r"(\d{4}-\d\d-\d\d)(?:[T ](\d\d):(\d\d)(?::(\d\d)(?:\.(\d{1,9}))?)?(Z|[+-]\d\d:?\d\d)?)?", re.ASCII
)
_OTHER_DATE = re.compile(r"\d{1,2}[./-]\d{1,2}[./-](\d{4}|\d\d)( .*)?", re.ASCII)


def parse_date(text: str) -> dt.date | dt.datetime | None:
    """Return the date in a string, in UTC if it has a time zone, or None if it is not an ISO date."""
    found = _ISO_DATE.fullmatch(text)
    if found is None:
        return None
    day, hour, minute, second, fraction, zone = found.groups()
    try:
        date = dt.date.fromisoformat(day)
        if hour is None:
            return date
        time = dt.time(int(hour), int(minute), int(second or 0), int((fraction or "").ljust(6, "0")[:6]))
        moment = dt.datetime.combine(date, time)
        return moment if zone is None else (moment - _offset(zone)).replace(tzinfo=dt.timezone.utc)
    except (ValueError, OverflowError):
        return None


def _offset(zone: str) -> dt.timedelta:
    if zone == "Z":
        return dt.timedelta(0)
    size = dt.timedelta(hours=int(zone[1:3]), minutes=int(zone[-2:]))
    return -size if zone[0] == "-" else size


def parse_dates(values: Iterable[Any]) -> list[Any] | None:
    """Return the dates in strings, with None for missing values, or None if they are not all ISO dates.

    The results are dates if no string has a time, and otherwise datetimes, all with or all without a zone.
    """
    known: dict[str, Any] = {}
    found: list[Any] = []
    for value in values:
        if is_missing(value):
            found.append(None)
            continue
        if not isinstance(value, str):
            return None
        if value not in known:
            known[value] = parse_date(value)
        if known[value] is None:
            return None
        found.append(known[value])
    dates = known.values()
    if not known or len({getattr(date, "tzinfo", None) for date in dates}) > 1:
        return None
    if any(isinstance(date, dt.datetime) for date in dates):
        return [_at_midnight(date) for date in found]
    return found


def _at_midnight(date: Any) -> Any:
    if date is None or isinstance(date, dt.datetime):
        return date
    return dt.datetime.combine(date, dt.time())


def is_other_date(text: str) -> bool:
    """Return whether a string may be a date in another order, such as 03/04/2024, which is ambiguous."""
    return _OTHER_DATE.fullmatch(text) is not None
