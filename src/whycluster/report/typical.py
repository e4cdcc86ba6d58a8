"""The typical values of a cluster, next to those of all rows."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from whycluster.data.display import shows_differences
from whycluster.explanations.summaries.statements import MISSING, Statement, format_values
from whycluster.explanations.summaries.summary import Summary
from whycluster.report.formatting import clean_names

_N_SHOWN = 3  # features per cluster
_LARGE, _TOO_LARGE = 1e3, 1e15  # numbers in between are written in full
_SEPARATED = 10_000  # from here on, thousands are separated; years are not
_MINUS = "\N{MINUS SIGN}"


def typical_values(summary: Summary, groups: Sequence[int]) -> list[list[dict[str, str]]]:
    """Return the means or frequencies of the clusters' strongest features, inside and in all rows."""
    found = [
        (place, each)
        for place, some in enumerate(summary.statements_of_each(groups, _N_SHOWN))
        for each in some
        if each.share > 0 and not np.isnan([each.value, each.overall]).any()
    ]
    shown = [each for _, each in found]
    names = clean_names([each.feature for each in shown])
    what = clean_names([_what(each) for each in shown])
    lines: list[list[dict[str, str]]] = [[] for _ in groups]
    for (place, _), name, category, texts in zip(found, names, what, _formatted(shown), strict=True):
        lines[place].append({"name": name, "what": category, "inside": texts[0], "overall": texts[1]})
    return lines


def _what(statement: Statement) -> str:
    """Return what the frequencies are of: a category, missing values, "true", or "" for means."""
    is_frequency = statement.is_category or statement.direction == MISSING
    return statement.direction if is_frequency else "true" * statement.is_boolean


def _formatted(statements: Sequence[Statement]) -> list[list[str]]:
    """Return the values of each statement in the cluster and in all rows; large numbers in full."""
    values = [[each.value, each.overall] for each in statements]
    found = format_values(statements, values)
    for i, (each, pair) in enumerate(zip(statements, values, strict=True)):
        if _what(each) or each.is_date:
            continue
        if all(_LARGE <= abs(value) < _TOO_LARGE for value in pair) and shows_differences(
            pair, [round(value) for value in pair]
        ):
            found[i] = [f"{value:,.0f}" if abs(value) >= _SEPARATED else f"{value:.0f}" for value in pair]
        found[i] = [text.replace("-", _MINUS) for text in found[i]]
    return found
