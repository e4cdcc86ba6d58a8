"""The typical values of a cluster, beside those of all rows."""

from __future__ import annotations

from typing import Any

import numpy as np

from whycluster.data.display import format_apart, format_dates, format_frequencies
from whycluster.explanations.comparisons import Comparisons
from whycluster.explanations.statements import MISSING, Statement
from whycluster.explanations.summary import Summary
from whycluster.report.formatting import clean_names

_N_SHOWN = 3  # features per cluster
_LARGE, _TOO_LARGE = 1e3, 1e15  # numbers in between are written in full
_SEPARATED = 10_000  # from here on, thousands are separated; years are not
_MINUS = "\N{MINUS SIGN}"


def typical_values(summary: Summary, group: int) -> list[dict[str, str]]:
    """Return the mean or frequency of the cluster's strongest features, in the cluster and in all rows."""
    columns = {name: i for i, name in enumerate(summary.feature_names)}
    lines = []
    for each in summary.statements(group, _N_SHOWN):
        overall = _overall(summary.compared, group, columns[each.feature], each)
        if each.share <= 0 or np.isnan([each.value, overall]).any():
            continue
        texts = _formatted(each, overall)
        what = each.direction if each.is_frequency else ""
        name, category = clean_names([each.feature, what])
        lines.append({"name": name, "what": category, "inside": texts[0], "overall": texts[1]})
    return lines


def _formatted(statement: Statement, overall: float) -> list[str]:
    values = [statement.value, overall]
    if statement.is_frequency:
        return format_frequencies(values)
    if statement.is_date:
        return format_dates(values)
    large = [f"{value:,.0f}" if abs(value) >= _SEPARATED else f"{value:.0f}" for value in values]
    if all(_LARGE <= abs(value) < _TOO_LARGE for value in values) and large[0] != large[1]:
        return [text.replace("-", _MINUS) for text in large]
    return [text.replace("-", _MINUS) for text in format_apart(values)]


def _overall(compared: Comparisons, group: int, column: int, statement: Statement) -> float:
    """Return the mean or frequency in the rows of all clusters."""
    size: Any = compared.size.astype(np.float64)
    if statement.direction == MISSING and not statement.is_category:
        assert compared.missing is not None
        return float(np.average(compared.missing[:, column], weights=size))
    if column in compared.categories:
        code = int(compared.categories_named[column][group])
        frequency = compared.categories[column].frequency
        return float(np.average(frequency[:, code], weights=size)) if code >= 0 else np.nan
    if compared.missing is not None:
        size = size * (1.0 - compared.missing[:, column])
    known = size > 0
    return float(np.average(compared.mean[known, column], weights=size[known])) if known.any() else np.nan
