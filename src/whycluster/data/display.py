"""Text for the terminal: tables, bars, numbers and names, in an ASCII layout that any console can show."""

from __future__ import annotations

import datetime as dt
from collections.abc import Hashable, Iterable, Sequence
from typing import Any

import numpy as np

from whycluster.data.missing import is_missing

_LONGEST_CELL = 40
_LARGEST_WHOLE = 1e12  # larger numbers are printed with an exponent
_ROUNDING = 1e-12  # numbers with a smaller relative difference may look the same
MOST_DIGITS = 17
MOST_LISTED = 5  # maximum number of items listed in a sentence
_UNITS_OF_TIME = ("D", "m", "s", "us")
_US_PER_DAY = 86_400_000_000


def heading(title: str) -> str:
    """Return an underlined title."""
    return f"{title}\n{'=' * len(title)}"


def table(
    heads: Sequence[str], rows: Sequence[Sequence[str]], align: str, longest: int = _LONGEST_CELL
) -> str:
    """Return a text table; ``align`` contains one character per column, "<" for left and ">" for right."""
    cells = [[clean(cell, longest) for cell in row] for row in (heads, *rows)]
    widths = [max(len(cell) for cell in column) for column in zip(*cells, strict=True)]
    cells.insert(1, ["-" * width for width in widths])
    lines = [
        "  ".join(f"{cell:{side}{width}}" for cell, side, width in zip(row, align, widths, strict=True))
        for row in cells
    ]
    return "\n".join(line.rstrip() for line in lines)


def bar(value: float, largest: float, width: int = 12) -> str:
    """Return a bar of plus signs for a positive value, else of minus signs; ``largest`` gives a full bar."""
    length = round(width * (abs(value) / largest)) if largest > 0 else 0
    return ("+" if value > 0 else "-") * length


def bars(values: Iterable[float], largest: float) -> list[str]:
    """Return a bar for each value; see `bar`."""
    return [bar(value, largest) for value in values]


def number(value: float) -> str:
    """Format a number with three significant digits; from 1,000 to 1e12, round to a whole number."""
    value = float(value) + 0.0
    whole = abs(value) < _LARGEST_WHOLE and (abs(value) >= 999.5 or value.is_integer())
    return f"{value:.0f}" if whole else f"{value:.3g}"


def numbers(values: Iterable[float]) -> list[str]:
    """Format several numbers; see `number`."""
    return [number(value) for value in values]


def numbers_or_dates(values: Iterable[float], is_date: Iterable[bool]) -> list[str]:
    """Format numbers, and dates given as days since 1970; NaN becomes an empty string."""
    texts = []
    for value, as_date in zip(values, is_date, strict=True):
        text = str(np.datetime64(round(value), "D")) if as_date and value == value else number(value)
        texts.append(text if value == value else "")
    return texts


def format_apart(values: Sequence[float]) -> list[str]:
    """Format numbers as in `number`, with more digits if rounding would hide or distort a difference.

    The differences between the first number and all others are shown with an error of at most a quarter. A
    number that is 0 up to rounding, compared with the others, becomes 0.
    """
    least = _ROUNDING * max((abs(value) for value in values if value == value), default=0.0)
    values = [0.0 if abs(value) <= least else value for value in values]
    texts = numbers(values)
    digits = 4
    while not shows_differences(values, [float(text) for text in texts]) and digits <= MOST_DIGITS:
        texts = [f"{value + 0.0:.{digits}g}" for value in values]
        digits += 1
    return texts


def format_all_apart(groups: Iterable[Sequence[float]]) -> list[list[str]]:
    """Format groups of numbers; see `format_apart`."""
    return [format_apart(values) for values in groups]


def shows_differences(values: Sequence[float], shown: Sequence[float]) -> bool:
    """Return whether the differences from the first number are shown with an error of at most a quarter."""
    first = values[0]
    gaps = [(value - first, number - shown[0]) for value, number in zip(values[1:], shown[1:], strict=True)]
    scale = max((abs(value) for value in values if value == value), default=0.0)
    return all(abs(a - b) <= 0.25 * abs(a) for a, b in gaps if abs(a) > _ROUNDING * scale)


def format_dates(values: Sequence[float]) -> list[str]:
    """Format days since 1970 as dates, with the time of day if different dates would look the same."""
    texts: list[str] = []
    for unit in _UNITS_OF_TIME:
        us = [0 if value != value else round(value * _US_PER_DAY) for value in values]
        step = {"D": _US_PER_DAY, "m": 60_000_000, "s": 1_000_000, "us": 1}[unit]
        stamps = [np.datetime64(round(t / step) * step, "us") for t in us]
        texts = [str(stamp.astype(f"datetime64[{unit}]")).replace("T", " ") for stamp in stamps]
        if _tells_apart(values, texts):
            break
    return ["" if value != value else text for value, text in zip(values, texts, strict=True)]


def format_frequencies(values: Sequence[float]) -> list[str]:
    """Format frequencies as percentages, with decimals if different ones would look the same."""
    texts: list[str] = []
    for decimals in range(MOST_DIGITS):
        texts = [f"{value:.{decimals}%}" for value in values]
        if _tells_apart(values, texts):
            break
    return texts


def _tells_apart(values: Sequence[float], texts: Sequence[str] | Sequence[float]) -> bool:
    """Return whether the first value looks different from all others that differ from it."""
    first = values[0]
    return all(
        text != texts[0]
        for value, text in zip(values[1:], texts[1:], strict=True)
        if abs(value - first) > _ROUNDING * max(abs(value), abs(first))
    )


def format_value(value: Any) -> str:
    """Format a value: numbers as in `number`, categories unchanged, dates without the time 00:00."""
    if is_missing(value):
        return "missing"
    if isinstance(value, dt.datetime) and value.time() == dt.time():
        value = value.date()
    numeric = isinstance(value, (int, float, np.number)) and not isinstance(value, bool)
    return number(value) if numeric else str(value)


def count(n: int, noun: str) -> str:
    """Return a count with its noun: "1 row", "1,234 rows"."""
    return f"{n:,} {noun}{'' if n == 1 else 's'}"


def cut(names: Sequence[Any], most: int = 5) -> str:
    """Format the first names of a list for a message, followed by "..." if there are more."""
    return f"[{', '.join(map(repr, names[:most]))}{', ...' if len(names) > most else ''}]"


def clean(text: str, longest: int = _LONGEST_CELL) -> str:
    """Return text on one line, with control characters escaped, cut to a readable length."""
    line = printable(text)
    return line if len(line) <= longest else line[: longest - 3] + "..."


def clean_all(values: Iterable[Any], longest: int = _LONGEST_CELL) -> list[str]:
    """Return several values as text; see `clean`."""
    return [clean(str(value), longest) for value in values]


def format_name(name: Hashable) -> str:
    """Return a name on one line, cut to a readable length; blank names are quoted."""
    return format_names([name])[0]


def format_names(names: Iterable[Hashable]) -> list[str]:
    """Format several names; see `format_name`."""
    texts = map(str, names)
    return clean_all([text if text.strip() else repr(text) for text in texts])


def format_items(names: Iterable[Hashable]) -> list[str]:
    """Format names for an enumeration; a name that could be read as several names is quoted."""
    return [f'"{text}"' if ", " in text or " and " in text else text for text in format_names(names)]


def join_first(items: Sequence[str]) -> str:
    """Return the items as a list in a sentence, shortened if there are many: "a, b and 7 more"."""
    left = len(items) - MOST_LISTED
    return join_words([*items[:MOST_LISTED], f"{left} more"] if left > 0 else items)


def join_words(items: Sequence[str]) -> str:
    """Return the items as a list in a sentence: "a, b and c"."""
    return " and ".join([", ".join(items[:-1]), items[-1]] if len(items) > 1 else items)


def capitalize(text: str) -> str:
    """Return the text with its first letter in upper case."""
    return text[:1].upper() + text[1:]


def percent(part: float) -> str:
    """Format a share as a percentage; only a share of exactly 1 becomes 100%, and only 0 becomes 0%."""
    if 0.0 < part < 0.005:
        return "under 1%"
    return "over 99%" if 0.995 <= part < 1.0 else f"{part:.0%}"


def printable_lines(text: str) -> str:
    """Return text with all control characters escaped, except line breaks."""
    return "\n".join(map(printable, text.split("\n")))


def printable(text: str) -> str:
    """Return text on one line, with control characters escaped."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)
