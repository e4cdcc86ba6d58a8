"""Explanations as text: the lines of a description, and lists of names in sentences."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import NamedTuple

from whycluster.data import display


class Line(NamedTuple):
    """One line of a description: a feature, a word, or all remaining ones together.

    Attributes
    ----------
    name : the name of the feature
    value : its value in a row, or its direction in a cluster; "" if there is none
    relevance : its relevance, or a share of it
    single : True for one feature; False for several together, and for relevance that belongs to none
    is_category : whether the value is the most frequent category in a cluster
    """

    name: str
    value: str
    relevance: float
    single: bool = True
    is_category: bool = False


def rest(n_left: int, noun: str, value: str, relevance: float) -> list[Line]:
    """Return a line for all remaining features together; an empty list if none remain."""
    return [Line(f"{n_left} more {noun}{'s' * (n_left != 1)}", value, relevance, False)] if n_left else []


def bars(lines: Sequence[Line]) -> list[str]:
    """Return a text bar for each line of a single feature; the strongest fills the width."""
    largest = max((abs(line.relevance) for line in lines if line.single), default=0.0)
    return [display.bar(line.relevance, largest if line.single else 0.0) for line in lines]


def format_name(name: Hashable) -> str:
    """Return a name on one line and of readable length; blank names are quoted."""
    text = str(name)
    return display.clean(text if text.strip() else repr(text))


def format_item(name: Hashable) -> str:
    """Return a name for a list; it is quoted if it would read as several names."""
    text = format_name(name)
    return f'"{text}"' if ", " in text or " and " in text else text


def join_words(items: Sequence[str]) -> str:
    """Return the items as a list in a sentence: "a, b and c"."""
    return " and ".join([", ".join(items[:-1]), items[-1]] if len(items) > 1 else items)


def capitalize(text: str) -> str:
    """Return the text with its first letter in upper case."""
    return text[:1].upper() + text[1:]
