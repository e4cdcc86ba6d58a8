"""Short values to print: rounded away from the row's own value, so that they still change the cluster.

Values near one that suffices need not suffice, so rounding to the nearest short number can undo the change of
cluster. Rounding outward usually preserves it, and callers check each value before printing it.
"""

from __future__ import annotations

import datetime as dt
import math
from decimal import ROUND_CEILING, ROUND_FLOOR, Decimal
from typing import Any

from whycluster.data import display
from whycluster.data.arrays import is_real
from whycluster.explanations.counterfactuals.cell_values import apart, is_day, moved

N_SHORT = 8
"""The number of roundings to try for a value, from coarse to fine."""

_LEAST_DIGITS = 2  # the coarsest rounding is at most this power of ten below the change: 1 % of it
_MOST_PLAIN = 15  # numbers with more digits before the point are written with an exponent
UNITS = [
    dt.timedelta(days=1),
    dt.timedelta(hours=1),
    dt.timedelta(minutes=1),
    dt.timedelta(seconds=1),
    dt.timedelta(milliseconds=1),
    dt.timedelta(microseconds=1),
]
"""The units to which times are rounded, from coarse to fine."""


def rounded_outward(value: Any, before: Any, whole: bool) -> list[Any]:
    """Return roundings of a value away from ``before``, from coarse to fine.

    Numbers are returned as `Decimal`, whose digits are those to print.
    """
    by = apart(value, before)
    if not by:
        return [value]
    if isinstance(value, (dt.date, dt.timedelta)):
        return [value] if is_day(value) else _rounded_times(value, by)
    if not is_real(value) or not math.isfinite(value):
        return [value]
    number, mode = Decimal(repr(float(value))), ROUND_CEILING if by > 0 else ROUND_FLOOR
    if whole:
        return [number.quantize(Decimal(1), mode)]
    coarsest = math.floor(math.log10(abs(by))) - _LEAST_DIGITS
    finest = -_decimals(before) if isinstance(before, Decimal) else coarsest - N_SHORT + 1
    places = [max(coarsest - i, finest) for i in range(N_SHORT)]
    return [_to_place(number, place, mode) for place in dict.fromkeys(places)]


def rounded_down(size: float) -> Decimal:
    """Return a positive size, rounded down to three digits."""
    return _to_place(Decimal(repr(size)), math.floor(math.log10(size)) - 2, ROUND_FLOOR)


def _to_place(number: Decimal, place: int, mode: str) -> Decimal:
    """Round to a multiple of 10^place."""
    return number.scaleb(-place).to_integral_value(mode).scaleb(place)


def _decimals(number: Decimal) -> int:
    exponent = number.as_tuple().exponent
    return max(0, -exponent) if isinstance(exponent, int) else 0


def _rounded_times(value: Any, by: float) -> list[Any]:
    """Return a point in time or a duration, rounded to days, hours and so on."""
    midnight = value.replace(hour=0, minute=0, second=0, microsecond=0) if hasattr(value, "hour") else None
    into = value if midnight is None else value - midnight
    found = []
    for unit in UNITS:
        rest = into % unit
        if unit <= abs(by) * dt.timedelta(days=1):
            found.append(value - rest if by < 0 or not rest else value - rest + unit)
    return [*found, value]


def exactly(value: Any) -> Any:
    """Return a value with all of its digits, as in `rounded_outward`."""
    return Decimal(repr(float(value))) if is_real(value) and value == value else value


def as_cell(value: Any) -> Any:
    """Return a short value in the type of the cells."""
    return float(value) if isinstance(value, Decimal) else value


def text_of(value: Any) -> str:
    """Return a short value as text, with all of its digits."""
    if isinstance(value, Decimal):
        plain = value.normalize() + 0  # without the sign of -0
        if plain == plain.to_integral_value() and abs(plain) < Decimal(10) ** _MOST_PLAIN:
            return f"{plain:.0f}"
        return f"{plain:f}" if -7 < plain.adjusted() < _MOST_PLAIN else f"{plain:e}"
    if isinstance(value, dt.datetime) and (value.tzinfo is not None or value.time() != dt.time()):
        text = value.isoformat(" ")
        return text if value.second or value.microsecond else value.isoformat(" ", "minutes")
    return display.format_value(value)


def exact_text(value: Any) -> str:
    """Return a value as text, with all of its digits."""
    return text_of(exactly(value))


def before_and_change(before: Any, short: Any) -> tuple[str, str]:
    """Return the row's own value and the change as text; for numbers, they add up to the short value."""
    by = apart(as_cell(short), before)
    if not isinstance(short, Decimal):
        return text_of(before), "+" * (by > 0) + display.number(by)
    own = before if isinstance(before, Decimal) else Decimal(repr(float(before)))
    if _decimals(own) > _decimals(short) + 2:
        own = own.quantize(Decimal(1).scaleb(-_decimals(short) - 2))
    change = short - own
    return text_of(own), "+" * (change > 0) + text_of(change)


def whole_outward(value: Any, before: Any) -> Any:
    """Return a value that is a whole number of steps of 1 away from ``before``, rounded outward.

    None stays None.
    """
    by = 0.0 if value is None else apart(value, before)
    return moved(before, math.copysign(math.ceil(abs(by)), by)) if by else value
