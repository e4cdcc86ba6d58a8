"""Format names, sentences and numbers for a page."""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial

from whycluster.data import display

_MINUS = "\N{MINUS SIGN}"  # as wide as a plus


clean_names = partial(display.clean_all, longest=80)
"""Put each name on one line, escape invisible characters, and shorten long names."""

clean_sentences = partial(display.clean_all, longest=1000)
"""Clean sentences that may contain names of any kind; see `clean_names`."""


def format_numbers(values: Iterable[float]) -> list[str]:
    """Format numbers with few enough digits to read."""
    return [text.replace("-", _MINUS) for text in display.numbers(values)]


def format_shares(shares: Iterable[float], digits: int = 0) -> list[str]:
    """Format shares as signed percentages."""
    return [f"{share:+.{digits}%}".replace("-", _MINUS) for share in shares]


def format_signed(value: float) -> str:
    """Format a number with its sign and three digits."""
    return f"{value:+.3g}".replace("-", _MINUS)
