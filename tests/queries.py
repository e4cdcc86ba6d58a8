"""Queries that no function accepts, and their messages: the same at every way in.

All models here have the clusters "a", "b" and "c" and give no probabilities.
"""

from __future__ import annotations

from typing import Any

BETA = 'beta must be "auto" or a number above 0 (with infinity, only the nearest competitor counts); got {}.'
RULE = "rule must be one of 'path', 'min-take-most', 'joint', 'sequential', 'contrast'; got {}."
CLUSTER = "{} must be one of the model's 3 clusters, 'a', 'b', 'c'; got {}."
THRESHOLD = "threshold must be a probability strictly between 0 and 1; got {}."
TOGETHER = (
    "threshold compares a cluster with all others at once, which fixes how they share the evidence, so it "
    "cannot be combined with against, beta or rule."
)
INVALID: list[tuple[dict[str, Any], str]] = [
    ({"beta": 0.0}, BETA.format("0.0")),
    ({"beta": "soft"}, BETA.format("'soft'")),
    ({"rule": "max"}, RULE.format("'max'")),
    ({"threshold": 1.5}, THRESHOLD.format("1.5")),
    ({"threshold": 0.5, "rule": "joint"}, TOGETHER),
    (
        {"threshold": 0.5},
        "threshold applies only to models that give probabilities, such as Gaussian mixtures; this model "
        "gives none. Leave it out.",
    ),
    ({"target": "d"}, CLUSTER.format("target", "'d'")),
    ({"against": "d"}, CLUSTER.format("against", "'d'")),
    ({"target": "a", "against": "a"}, "against must differ from target; both are 'a'."),
]
FOR_ALL_ROWS: list[tuple[dict[str, Any], str]] = [
    (
        {name: ["a", "b"]},
        f"{name} must be one cluster for all rows; got shape (2,). Pass one cluster at a time.",
    )
    for name in ("target", "against")
]
"""Queries that only `explain` and `Network.explain` accept, because they know all rows."""
