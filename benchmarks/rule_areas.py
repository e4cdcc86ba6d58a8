"""The faithfulness of rules and surrogates, for the benchmarks of both environments."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

import whycluster as wc
from benchmarks.datasets import load, load_unscaled
from whycluster.evaluation import flipping_auc
from whycluster.models.energies import search

Array = NDArray[Any]
REPORTED = ("buddy", "hepac", "winer", "trpad", "water", "whlsl, logarithms", "diabetes", "digits")
MOST_ROWS = 600
ROWS, REPEATS = 200, 8
FAITHFULNESS = (
    f"Area under the flipping curve of {ROWS} rows per run, with {REPEATS} completions at each step, decided",
    "by the rule. Higher is better. The differences and their standard errors are those of the means of the",
    "data sets, since the runs on a data set share its rows. Noise rows also count in their family.",
)


def rows_of(name: str, folder: Path, scaled: bool = True) -> Array:
    """Return the first rows of a data set, without the columns that are constant in them."""
    X = (load if scaled else load_unscaled)(name, folder)[:MOST_ROWS]
    return np.ascontiguousarray(X[:, X.std(axis=0) > 1e-9])


class Run(NamedTuple):
    """A clustering of a data set, with the network of its rule."""

    data: str
    family: str
    X: Array
    network: wc.Network
    labels: Array


class Areas(NamedTuple):
    """The areas of a run.

    Attributes
    ----------
    rule : with each width of the pool
    surrogate : with a surrogate
    """

    data: str
    rule: list[float]
    surrogate: float


def areas(runs: Iterable[Run], widths: tuple[float, ...] = (search._WIDTH,)) -> dict[str, list[Areas]]:
    """Return the areas of all runs, by family; those of noise rows also have a family of their own.

    The decisions are those of the rule, which assigns rows with drawn features as the clustering would. The
    rows of a family are drawn in the same way, whichever other families are measured.
    """
    found: dict[str, list[Areas]] = {}
    rngs: dict[str, np.random.Generator] = {}
    for run in runs:
        labels = np.asarray(run.labels)
        rng = rngs.setdefault(run.family, np.random.default_rng(0))
        rows = np.sort(rng.choice(len(run.X), min(ROWS, len(run.X)), replace=False))
        relevance = []
        for width in widths:
            search._WIDTH = width
            relevance.append(run.network.explain(run.X, target=labels).relevance)
        surrogate = wc.neuralize(wc.Surrogate().fit(run.X, labels))
        relevance.append(surrogate.explain(run.X, target=labels).relevance)
        each = [
            flipping_auc(
                run.network.assign, run.X[rows], one[rows], background=run.X, repeats=REPEATS
            ).per_row
            for one in relevance
        ]
        noise = np.asarray(labels[rows] == -1)
        for family, chosen in ((run.family, ~noise | noise), (f"{run.family}, noise rows", noise)):
            if chosen.any():
                *rule, fitted = (float(area[chosen].mean()) for area in each)
                found.setdefault(family, []).append(Areas(run.data, rule, fitted))
                print(run.data, family, rule, fitted, file=sys.stderr, flush=True)
    return found


def faithfulness(runs: Iterable[Run]) -> list[str]:
    """Return a table of the areas of rules and surrogates, by family."""
    lines = [
        *FAITHFULNESS,
        "",
        "| labels of | sets | runs | rule | surrogate | rule - surrogate | standard error |",
        "|---|---:|---:|---:|---:|---:|---:|",
    ]
    found = areas(runs)
    for family, each in found.items():
        gap, error, n = over_sets(each, [area.rule[0] - area.surrogate for area in each])
        rule, surrogate = np.mean([(area.rule[0], area.surrogate) for area in each], axis=0)
        lines.append(
            f"| {family} | {n} | {len(each)} | {rule:.2f} | {surrogate:.2f} | {gap:+.2f} | {error:.2f} |"
        )
    return lines


def over_sets(each: list[Areas], values: list[float]) -> tuple[float, float, int]:
    """Return the mean of the data sets, its standard error and their number."""
    sets = sorted({area.data for area in each})
    means = [np.mean([v for area, v in zip(each, values, strict=True) if area.data == name]) for name in sets]
    error = float(np.std(means, ddof=1) / np.sqrt(len(means))) if len(means) > 1 else np.nan
    return float(np.mean(means)), error, len(sets)
