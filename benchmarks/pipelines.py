"""Compare explaining a pipeline with explaining its last step alone: ``python -m benchmarks.pipelines``."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from sklearn.cluster import KMeans
from sklearn.decomposition import PCA
from sklearn.exceptions import ConvergenceWarning
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import whycluster as wc
from benchmarks.measure import peak_megabytes, result_megabytes, side_by_side, write

N_ROWS, N_COLUMNS, N_COMPONENTS, N_CLUSTERS = 200_000, 200, 50, 10
MIXED_ROWS = 100_000


def correlated(n_rows: int, d: int) -> NDArray[np.float64]:
    """Return rows around random centers, with correlated columns that are away from 0."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(n_rows, d)) @ (0.1 * rng.normal(size=(d, d)))
    X += 1.5 * rng.normal(size=(N_CLUSTERS, d))[rng.integers(N_CLUSTERS, size=n_rows)] + 5.0
    return X


def kmeans() -> Any:
    """Return k-means with few iterations, since speed does not depend on convergence."""
    return KMeans(N_CLUSTERS, n_init=1, max_iter=5, random_state=0)


def reduced() -> list[str]:
    """Measure `StandardScaler` and `PCA` before k-means."""
    X = correlated(N_ROWS, N_COLUMNS)
    pipe = make_pipeline(StandardScaler(), PCA(N_COMPONENTS, random_state=0), kmeans()).fit(X)
    steps, model = pipe[:-1], pipe[-1]
    scores = steps.transform(X)
    through = partial(wc.explain, pipe, X)
    calls: dict[str, Callable[[], Any]] = {
        "scores": partial(wc.explain, model, scores),
        "transform": partial(steps.transform, X),
        "through": through,
    }
    times = side_by_side(calls, 9)
    direct, transform, whole = times["scores"], times["transform"], times["through"]
    peak, exp = peak_megabytes(through)
    off = float(np.abs(exp.residual).max() / np.abs(exp.evidence).max())
    return [
        f"The pipeline is `StandardScaler`, `PCA({N_COMPONENTS})` and `KMeans({N_CLUSTERS})` on "
        f"{N_ROWS:,} rows with {N_COLUMNS} numeric columns.",
        "We compare explaining the clusters in terms of the original columns with explaining the component "
        "scores.",
        "",
        "| explain the scores, ms | one transform, ms | explain through the pipeline, ms "
        "| memory without the result, MB | ratio to scores + transform | ratio to 3 x scores + transform |",
        "|---:|---:|---:|---:|---:|---:|",
        f"| {direct * 1e3:.0f} | {transform * 1e3:.0f} | {whole * 1e3:.0f} "
        f"| {peak - result_megabytes(exp):.0f} "
        f"| {whole / (direct + transform):.2f}x | {whole / (3 * direct + transform):.2f}x |",
        "",
        "Explaining through the pipeline should take at most three times as long as explaining the scores",
        "and transforming the rows once, so the first ratio should be below 3. The second ratio is a",
        "stricter test: it divides by three times the first of these times plus the second, so it should be",
        "below 1.",
        "",
        f"The relevance of each row sums to its evidence, up to {off:.0e} of the largest evidence.",
    ]


def mixed() -> list[str]:
    """Measure `wc.tabular.pipeline` on a frame of numbers, categories, dates and missing values."""
    rng = np.random.default_rng(0)
    n = MIXED_ROWS
    numbers = correlated(n, 10)
    numbers[rng.random(numbers.shape) < 0.05] = np.nan
    frame = pd.DataFrame(numbers, columns=[f"number {i}" for i in range(10)])
    for i in range(5):
        frame[f"category {i}"] = rng.choice([f"kind {j}" for j in range(3 + 4 * i)], n)
    frame["date"] = pd.Timestamp("2015-01-01") + pd.to_timedelta(rng.integers(0, 3000, n), "D")
    pipe = wc.tabular.pipeline(frame, model=kmeans())
    explain = partial(wc.explain, pipe, frame)
    times = side_by_side({"predict": partial(pipe.predict, frame), "explain": explain}, 3)
    peak, exp = peak_megabytes(explain)
    return [
        f"The input of `wc.tabular.pipeline` has {n:,} rows with 10 numeric columns, 5 categorical "
        "columns and a date column.",
        "In the numeric columns, 5% of the values are missing.",
        f"Predicting takes {times['predict']:.1f} s. Explaining takes {times['explain']:.1f} s, which is "
        f"{times['explain'] / times['predict']:.1f} times as long, and needs "
        f"{peak - result_megabytes(exp):.0f} MB of memory in addition to the result.",
    ]


def main() -> None:
    """Measure both and write results/pipelines.md."""
    warnings.simplefilter("ignore", ConvergenceWarning)
    lines = [
        "# Pipelines",
        "",
        "## Principal components",
        "",
        *reduced(),
        "",
        "## A mixed table",
        "",
        *mixed(),
    ]
    write("pipelines", "python -m benchmarks.pipelines", lines)


if __name__ == "__main__":
    main()
