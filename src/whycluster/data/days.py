"""Dates, durations and times of day as numbers of days."""

from __future__ import annotations

import datetime as dt

_EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.timezone.utc)
_DAY = dt.timedelta(days=1)


def to_days(value: dt.date | dt.time | dt.timedelta) -> float:
    """Convert a date to days since 1970 (UTC), or a duration or time of day to its length in days."""
    if isinstance(value, dt.timedelta):
        return value / _DAY
    if isinstance(value, dt.time):
        return (dt.datetime.combine(_EPOCH, value, tzinfo=dt.timezone.utc) - _EPOCH) / _DAY
    if not isinstance(value, dt.datetime):
        return float(value.toordinal() - _EPOCH.toordinal())
    return ((value if value.tzinfo else value.replace(tzinfo=dt.timezone.utc)) - _EPOCH) / _DAY


def length_as_text(days: float, like: dt.time | dt.timedelta) -> str:
    """Return a number of days, to the second, as text: a duration, or a time of day if ``like`` is one."""
    length = dt.timedelta(seconds=round(days * _DAY.total_seconds()))
    return (_EPOCH + length).time().isoformat() if isinstance(like, dt.time) else str(length)
