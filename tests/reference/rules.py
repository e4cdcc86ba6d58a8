"""Rules as a reader takes them: the printed sentence, looked up in the table row by row."""

from __future__ import annotations

import re
from itertools import combinations
from typing import Any

import numpy as np
import pandas as pd

_BOUNDS = {
    "at least": lambda x, t: x >= t,
    "above": lambda x, t: x > t,
    "at most": lambda x, t: x <= t,
    "on or after": lambda x, t: x.date() >= t.date(),
    "on or before": lambda x, t: x.date() <= t.date(),
    "after": lambda x, t: x > t,
    "not after": lambda x, t: x <= t,
}


def rows_of(text: str, frame: pd.DataFrame) -> np.ndarray[Any, Any]:
    """Return the rows for which a printed rule holds.

    The names of the columns may contain no "and".
    """
    holds = np.ones(len(frame), dtype=bool)
    for part in re.split(r" and (?=\w+ is )", text):
        name, said = part.split(" is ", 1)
        holds &= np.array([_holds(value, said) for value in frame[name]])
    return holds


def _holds(value: Any, said: str) -> bool:
    if said in ("missing", "not missing"):
        return bool(pd.isna(value)) == (said == "missing")
    if pd.isna(value):
        return False
    if isinstance(value, (bool, np.bool_)):
        return str(bool(value)).lower() == said
    if isinstance(value, str):
        if said.startswith("one of "):
            return value in re.split(r", | and ", said.removeprefix("one of "))
        return value == said
    if (span := re.fullmatch(r"from (\S+) to (\S+)", said)) is not None:
        low, high = (_like(each, value) for each in span.groups())
        return bool(low <= value <= high)
    parts = re.split(r" and (?=at most|not after|on or before)", said)
    if len(parts) == 1 and not any(said.startswith(word) for word in _BOUNDS):
        return bool(value == _like(said, value))
    return all(_compare(value, part) for part in parts)


def _compare(value: Any, said: str) -> bool:
    word = next(word for word in sorted(_BOUNDS, key=len, reverse=True) if said.startswith(word))
    return bool(_BOUNDS[word](value, _like(said.removeprefix(word).strip(), value)))


def _like(text: str, value: Any) -> Any:
    return pd.Timestamp(text) if isinstance(value, pd.Timestamp) else float(text)


def best_f1(X: np.ndarray[Any, Any], member: np.ndarray[Any, Any], most: int) -> float:
    """Return the largest F1 of a conjunction of at most ``most`` one-sided bounds, by trying all of them."""
    bounds = []
    for column, values in enumerate(X.T):
        for t in np.unique(values)[:-1]:
            bounds += [(column, X[:, column] <= t), (column, X[:, column] > t)]
    best = 0.0
    for n in range(1, most + 1):
        for chosen in combinations(range(len(bounds)), n):
            holds = np.all([bounds[i][1] for i in chosen], axis=0)
            hits = (holds & member).sum()
            best = max(best, 2 * hits / (holds.sum() + member.sum()))
    return float(best)


def figures(rules: Any, frame: pd.DataFrame, labels: Any) -> list[tuple[Any, str, int, int]]:
    """Return the cluster, the text, and the number of rows and members of each rule, counted again."""
    found = []
    for cluster, rule in ((c, r) for c in rules for r in c.rules):
        holds = rows_of(rule.text, frame)
        member = np.array([label == cluster.cluster for label in labels])
        found.append((cluster.cluster, rule.text, int(holds.sum()), int((holds & member).sum())))
    return found
