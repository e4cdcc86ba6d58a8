"""Short names for clusters, made from statements."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np

from whycluster.core.arrays import Floats
from whycluster.data.display import format_items, format_name
from whycluster.data.labels import NOISE, is_noise
from whycluster.explanations.summaries.statements import HIGHER, LOWER, MISSING, Statement
from whycluster.explanations.summaries.summary import Summary

_N_WORDS = 2  # the number of features in a name, if that makes it unique
_MOST_WORDS = 4
_CONSIDERED = 12  # the number of features from which names are made
_MOST = 2 / 3  # the share of the other clusters that a high or low mean exceeds


def propose_names(summary: Summary) -> dict[Any, str]:
    """Return a short, unique name for each cluster, such as "high income, low age".

    A name says "high" or "low" only if the cluster's mean is above or below the mean of all other rows, the
    means of the clusters that the feature sets it apart from, and those of two thirds of all other clusters.
    It names a category, true or false only if most rows of the cluster have it, and fewer rows elsewhere.
    """
    found = summary.statements_of_each(range(len(summary.clusters)), _CONSIDERED)
    labels = summary.clusters.tolist()
    words = {label: _words(summary, group, found[group]) for group, label in enumerate(labels)}
    n_words = dict.fromkeys(words, _N_WORDS)
    for _ in range(_MOST_WORDS - _N_WORDS):
        counts = Counter(", ".join(words[label][:n]) for label, n in n_words.items())
        for label, n in n_words.items():
            n_words[label] = n + (counts[", ".join(words[label][:n])] > 1)
    names = {label: ", ".join(words[label][:n]) for label, n in n_words.items()}
    counts = Counter(names.values())
    return {
        label: NOISE if is_noise(label) else _unique(name, label, counts[name])
        for label, name in names.items()
    }


def _unique(name: str, label: Any, count: int) -> str:
    cluster = f"cluster {format_name(label)}"
    if not name:
        return cluster
    return name if count == 1 else f"{name} ({cluster})"


def _words(summary: Summary, group: int, statements: Sequence[Statement]) -> list[str]:
    """Return two or three words for each feature of a cluster, the strongest feature first."""
    found = [each for each in statements if each.share > 0]
    columns = {name: i for i, name in enumerate(summary.feature_names)}
    words = []
    for each, name in zip(found, format_items([each.feature for each in found]), strict=True):
        column = columns[each.feature]
        if each.direction not in (HIGHER, LOWER) or _is_extreme(each, summary.compared.mean[:, column]):
            words.append(_word(each, name, float(summary.outside[group, column])))
    return [word for word in words if word]


def _is_extreme(statement: Statement, means: Floats) -> bool:
    """Return whether the direction is also right for two thirds of all other clusters."""
    beyond = means < statement.value if statement.direction == HIGHER else means > statement.value
    n_others = int((~np.isnan(means)).sum()) - 1
    return bool(beyond.sum() >= _MOST * n_others)


def _word(statement: Statement, name: str, outside: float) -> str:
    if statement.is_boolean:
        is_mostly = (statement.value > 0.5) == (statement.direction == HIGHER)
        is_more = (statement.value > outside) == (statement.direction == HIGHER)
        known = statement.direction in (HIGHER, LOWER) and is_mostly and is_more
        return f"{name} {str(statement.direction == HIGHER).lower()}" if known else ""
    if statement.direction == HIGHER and statement.value > outside:
        return f"late {name}" if statement.is_date else f"high {name}"
    if statement.direction == LOWER and statement.value < outside:
        return f"early {name}" if statement.is_date else f"low {name}"
    if statement.direction == MISSING and statement.value > outside:
        return f"no {name}"
    if statement.is_category and statement.value > max(0.5, outside):
        return f"{name} {format_items([statement.direction])[0]}"
    return ""
