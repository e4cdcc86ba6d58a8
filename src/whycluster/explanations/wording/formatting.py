"""Explanations as text: the lines of a description, and lists of names in sentences."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from whycluster.data import display
from whycluster.data.labels import NOISE

WIDTH = 99  # characters per line
MOST_LISTED = 5  # maximum number of items listed in a sentence


class Line(NamedTuple):
    """One line of a description, about a feature, a word, or all remaining features or words together.

    Attributes
    ----------
    name : the name of the feature
    value : its value in a row, its direction in a cluster, or ""
    relevance : its relevance, or its share of the total relevance
    single : whether the line is about one feature, not about several features or none
    against : its relevance against one competitor, or None if this is not shown
    """

    name: str
    value: str
    relevance: float
    single: bool = True
    against: float | None = None


def rest(n_left: int, noun: str, value: str, relevance: float) -> list[Line]:
    """Return a list with one line for all remaining features, or an empty list if none remain."""
    return [Line(f"{n_left} more {noun}{'s' * (n_left != 1)}", value, relevance, False)] if n_left else []


def format_lines(lines: Sequence[Line], heads: Sequence[str], first: str = "") -> str:
    """Return lines as a table with a bar for each single feature; the strongest bar fills the width.

    Parameters
    ----------
    lines : the lines
    heads : the headings of name, value and relevance, and of the relevance against one competitor if that is
        shown; if there are only two, values are left out
    first : a remark for the first row of the table
    """
    largest = max((abs(line.relevance) for line in lines if line.single), default=0.0)
    cells = [[first, *[""] * len(heads)]] if first else []  # one cell more than headings, for the bar
    for line in lines:
        texts = [line.name, line.value] if len(heads) > 2 else [line.name]
        bar = display.bar(line.relevance, largest if line.single else 0.0)
        beside = [] if line.against is None else [f"{line.against:.3g}"]
        cells.append([*texts, f"{line.relevance:.3g}", bar, *beside])
    align = {2: "<><", 3: "<>><", 4: "<>><>"}[len(heads)]
    return display.table([*heads[:3], "", *heads[3:]], cells, align)


def list_clusters(names: Sequence[str]) -> str:
    """Return several clusters as text, given their formatted labels: "clusters 1, 2 and noise"."""
    named = [name for name in names if name != NOISE]
    text = [f"cluster{'s' * (len(named) > 1)} {join_first(named)}"] if named else []
    return join_words(text + [NOISE] * (len(named) < len(names)))


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
