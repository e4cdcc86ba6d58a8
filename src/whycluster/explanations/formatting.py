"""What bears a claim, line by line: for text and for plots."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from whycluster.data import display


class Line(NamedTuple):
    """A feature, a word, or what is left besides these.

    Attributes
    ----------
    name : of the feature
    value : what is said of it: its value in a row, where it stands in a cluster; "" for nothing
    relevance : relevance, or a share of it
    single : whether it is one feature; False for several together, and for what is due to none
    is_category : whether the value is the category that is most frequent in a cluster
    """

    name: str
    value: str
    relevance: float
    single: bool = True
    is_category: bool = False


def rest(n_left: int, noun: str, value: str, relevance: float) -> list[Line]:
    """A line for all that have none of their own, if there are any."""
    return [Line(f"{n_left} more {noun}{'s' * (n_left != 1)}", value, relevance, False)] if n_left else []


def bars(lines: Sequence[Line]) -> list[str]:
    """For each line a bar of text, if it is of a single feature; the strongest of these fills the width."""
    largest = max((abs(line.relevance) for line in lines if line.single), default=0.0)
    return [display.bar(line.relevance, largest if line.single else 0.0) for line in lines]
