"""Warnings that a group of reasons may rest on an artifact."""

from __future__ import annotations

from collections.abc import Hashable
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from whycluster.data.display import number, percent
from whycluster.explanations.reasons.column_values import NUMBER, ColumnValues

MOSTLY = 0.5  # share of the values
_CONSTANT, _RARE_ELSEWHERE, _MANY_VALUES = 0.98, 0.5, 10


class Caution(NamedTuple):
    """A warning that a group of reasons may rest on an artifact.

    Attributes
    ----------
    kind : "missing values", "identifier" or "constant"
    text : the finding, and what to do about it
    feature : the name of the column
    """

    kind: str
    text: str
    feature: Hashable


def caution_about(values: ColumnValues, inside: NDArray[np.bool_], rests: str, reason: str) -> Caution | None:
    """Return a warning about a column that carries much of a group's relevance, or None.

    Parameters
    ----------
    values : the values of the column in all members of the cluster
    inside : (n,) whether a member is in the group
    rests : the beginning of the sentence, which says that the group rests on the column
    reason : why the column looks like an identifier, or ""
    """
    missing = np.isnan(values.values)
    here, there = float(missing[inside].mean()), float(missing[~inside].mean())
    if here > MOSTLY and here > there:
        return Caution(
            "missing values",
            f"{rests} and is missing in {percent(here)} of its rows ({percent(there)} of the other rows of "
            "the cluster). These rows may be grouped by how they were recorded. Find out why the values are "
            "missing.",
            values.name,
        )
    if reason:
        return Caution(
            "identifier",
            f"{rests} and looks {reason.replace(',', ':', 1)}. An identifier names a row but does not "
            "describe it. Leave the column out.",
            values.name,
        )
    return _constant(values, inside, rests)


def _constant(values: ColumnValues, inside: NDArray[np.bool_], rests: str) -> Caution | None:
    known = values.values[~np.isnan(values.values)]
    if values.kind != NUMBER or len(np.unique(known)) < _MANY_VALUES:
        return None
    own = values.values[inside]
    distinct, count = np.unique(own[~np.isnan(own)], return_counts=True)
    first = distinct[count.argmax()]
    here, there = (float((values.values[rows] == first).mean()) for rows in (inside, ~inside))
    if here < _CONSTANT or there >= _RARE_ELSEWHERE:
        return None
    return Caution(
        "constant",
        f"{rests} and is {number(first)} in {percent(here)} of its rows ({percent(there)} of the "
        "other rows of the cluster). A single value may stand for a default or for something unknown. Check "
        "what it means.",
        values.name,
    )
