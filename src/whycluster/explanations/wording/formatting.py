"""Explanations as text: the lines of a description."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from whycluster.data import display

WIDTH = 99  # characters per line


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
    heads : the headings of the columns: name, value, relevance and, if it is shown, the relevance against one
        competitor. If there are only two headings, values are left out
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
