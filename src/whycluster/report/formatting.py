"""Format names, sentences and numbers for a page."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from whycluster.data import display

_LONGEST_NAME = 80  # characters
_LONGEST_SENTENCE = 1000
_MINUS = "\N{MINUS SIGN}"  # as wide as a plus


def clean_names(names: Iterable[Any]) -> list[str]:
    """Put each name on one line, escape invisible characters, and shorten long names."""
    return display.clean_all(map(str, names), _LONGEST_NAME)


def clean_sentences(sentences: Iterable[str]) -> list[str]:
    """Clean sentences that may contain names of any kind; see `clean_names`."""
    return display.clean_all(sentences, _LONGEST_SENTENCE)


def format_numbers(values: Iterable[float]) -> list[str]:
    """Format numbers with few enough digits to read."""
    return [text.replace("-", _MINUS) for text in display.numbers(values)]


def format_shares(shares: Iterable[float], digits: int = 0) -> list[str]:
    """Format shares as signed percentages."""
    return [f"{share:+.{digits}%}".replace("-", _MINUS) for share in shares]


def format_signed(value: float) -> str:
    """Format a number with its sign and three digits."""
    return f"{value:+.3g}".replace("-", _MINUS)
