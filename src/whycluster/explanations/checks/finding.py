"""A finding of a check, and the words that findings share."""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterable
from typing import Any, NamedTuple

from whycluster.data import display
from whycluster.data.display import format_name
from whycluster.data.labels import cluster_name
from whycluster.explanations.base import BaseExplanation

READ_FIRST = ("fidelity", "residual")
"""The kinds of findings to read before any share, since they qualify all of them."""


class Finding(NamedTuple):
    """A warning that an analyst should read before relying on an explanation.

    Attributes
    ----------
    kind : "fidelity", "residual", "noise", "one column", "one column of a cluster", "label", "identifier",
        "date", "year", "missing values", "nearly constant", "repeated", "skewed", "small", "alike",
        "borderline" or "left out"
    text : the finding, why it matters, and what to do about it
    clusters : the labels of the clusters that the finding is about, or () if it is about all clusters
    feature : the name of the column that the finding is about, or None if it is not about one column
    """

    kind: str
    text: str
    clusters: tuple[Any, ...] = ()
    feature: Hashable | None = None


class Check(NamedTuple):
    """A check that was run, and its outcome.

    Attributes
    ----------
    name : what was checked
    outcome : the number of warnings, the figure that ruled out a warning, or why nothing was checked
    findings : the warnings
    """

    name: str
    outcome: str
    findings: tuple[Finding, ...] = ()


def check_of(name: str, found: Iterable[Finding], otherwise: str) -> Check:
    """Return a check with its findings or, if there are none, with another outcome."""
    findings = tuple(found)
    return Check(name, display.count(len(findings), "warning") if findings else otherwise, findings)


def cluster_text(label: Any) -> str:
    """Return a cluster as text: "cluster 3" or "noise"."""
    return cluster_name(label, format_name(label))


def nouns(exp: BaseExplanation, n: int = 2) -> str:
    """Return the noun for n rows: "row", "rows", "document" and so on."""
    return exp.noun.lower() + "s" * (n != 1)


def again(exp: BaseExplanation) -> str:
    """Return what to do with other columns: given labels can be explained again, but not computed again."""
    return "cluster again" if exp.fidelity is None else "explain the labels again"


def at_least(part: float) -> str:
    """Return words to put before "rows": "all", or the share rounded down, as in "at least 97% of the"."""
    return "all" if part == 1.0 else f"at least {math.floor(100 * part)}% of the"
