"""Missing values: how to recognize them in memory, and the words for them in text files."""

from __future__ import annotations

from collections.abc import Iterable
from decimal import Decimal
from typing import Any

MISSING_WORDS = (
    "",
    "#N/A",
    "#N/A N/A",
    "#NA",
    "-1.#IND",
    "-1.#QNAN",
    "-NaN",
    "-nan",
    "1.#IND",
    "1.#QNAN",
    "<NA>",
    "N/A",
    "NA",
    "NULL",
    "NaN",
    "None",
    "n/a",
    "nan",
    "null",
)
"""The words that mean "missing" in delimited text files. These are the defaults of pandas."""


def are_missing(values: Iterable[Any]) -> list[bool]:
    """Return whether each value is missing; see `is_missing`."""
    return [is_missing(value) for value in values]


def is_missing(value: Any) -> bool:
    """Return whether a value is None, NaN or the missing value of another library."""
    if value is None or type(value).__name__ == "NAType":
        return True
    try:
        return bool(value != value)
    except (TypeError, ValueError, ArithmeticError):  # an array has no single answer; a signaling NaN raises
        return isinstance(value, Decimal)
