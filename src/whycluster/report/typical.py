"""The typical values of a cluster, next to those of all rows."""

from __future__ import annotations

import numpy as np

from whycluster.data.display import shows_differences
from whycluster.explanations.summaries.statements import Statement
from whycluster.explanations.summaries.summary import Summary
from whycluster.report.formatting import clean_names

_N_SHOWN = 3  # features per cluster
_LARGE, _TOO_LARGE = 1e3, 1e15  # numbers in between are written in full
_SEPARATED = 10_000  # from here on, thousands are separated; years are not
_MINUS = "\N{MINUS SIGN}"


def typical_values(summary: Summary, group: int) -> list[dict[str, str]]:
    """Return the mean or frequency of the cluster's strongest features, in the cluster and in all rows."""
    lines = []
    for each in summary.statements(group, _N_SHOWN):
        if each.share <= 0 or np.isnan([each.value, each.overall]).any():
            continue
        texts = _formatted(each)
        what = each.direction if each.is_frequency else "true" * each.is_boolean
        name, category = clean_names([each.feature, what])
        lines.append({"name": name, "what": category, "inside": texts[0], "overall": texts[1]})
    return lines


def _formatted(statement: Statement) -> list[str]:
    values = [statement.value, statement.overall]
    if statement.is_frequency or statement.is_boolean or statement.is_date:
        return statement.format(values)
    large = [f"{value:,.0f}" if abs(value) >= _SEPARATED else f"{value:.0f}" for value in values]
    if all(_LARGE <= abs(value) < _TOO_LARGE for value in values) and shows_differences(
        values, [round(value) for value in values]
    ):
        return [text.replace("-", _MINUS) for text in large]
    return [text.replace("-", _MINUS) for text in statement.format(values)]
