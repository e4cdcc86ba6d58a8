"""Explaining all rows against predicting them: ``python -m benchmarks.speed``."""

from __future__ import annotations

import warnings
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.cluster import KMeans
from sklearn.exceptions import ConvergenceWarning

import whycluster as wc
from benchmarks.measure import geometric_mean, peak_megabytes, result_megabytes, side_by_side, write
from tests.reference import neon

GRID = [(1_000_000, 16, 8), (500_000, 64, 16), (200_000, 256, 32), (100_000, 784, 10), (50_000, 128, 1000)]


def clustered(n_rows: int, d: int, n_clusters: int) -> tuple[NDArray[np.float64], Any]:
    """Rows around random centers, and a k-means fitted on some of them."""
    rng = np.random.default_rng(0)
    centers = rng.normal(size=(n_clusters, d))
    X = rng.normal(size=(n_rows, d))
    X += centers[rng.integers(n_clusters, size=n_rows)]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # speed does not depend on convergence
        model = KMeans(n_clusters, init="random", n_init=1, max_iter=5, random_state=0).fit(X[:20_000])
    return X, model


def against_predict(shift: float, repeats: int = 9) -> list[str]:
    """The grid, with the data ``shift`` away from 0."""
    lines = [
        "| rows | d | K | predict, ms | explain, ms | ratio | memory beyond the result, MB |",
        "|---:|---:|---:|---:|---:|---:|---:|",
    ]
    ratios = []
    for n_rows, d, n_clusters in GRID:
        X, model = clustered(n_rows, d, n_clusters)
        X += shift
        model.cluster_centers_ += shift
        explain = partial(wc.explain, model, X)
        times = side_by_side({"predict": partial(model.predict, X), "explain": explain}, repeats)
        peak, exp = peak_megabytes(explain)
        ratios.append(times["explain"] / times["predict"])
        lines.append(
            f"| {n_rows:,} | {d} | {n_clusters} | {times['predict'] * 1e3:.0f} | "
            f"{times['explain'] * 1e3:.0f} | {ratios[-1]:.1f}x | {peak - result_megabytes(exp):.0f} |"
        )
    lines += ["", f"Geometric mean {geometric_mean(ratios):.2f}x, largest {max(ratios):.1f}x."]
    return lines


def against_reference() -> str:
    """One point and one competitor at a time, as in the paper's equations."""
    rng = np.random.default_rng(0)
    X, centroids = rng.normal(size=(1000, 100)), rng.normal(size=(50, 100))
    slow = side_by_side({"reference": lambda: neon.explain(X, centroids)}, 1)["reference"]
    fast = side_by_side({"explain": lambda: wc.explain(centroids, X)}, 20)["explain"]
    return (
        f"n = 1000, K = 50, d = 100: {slow:.2f} s with the loops of `tests/reference/neon.py`, "
        f"{fast * 1e3:.2f} ms with `explain`: {slow / fast:.0f}x faster."
    )


def main() -> None:
    """All measurements, into results/speed.md."""
    lines = ["# Speed", "", "## Against `KMeans.predict` on the same float64 data", "", *against_predict(0.0)]
    lines += ["", "The same data moved by 100, so that blocks have to be shifted back:", ""]
    lines += [*against_predict(100.0), "", "## Against one point and one competitor at a time", ""]
    write("speed", "python -m benchmarks.speed", [*lines, against_reference()])


if __name__ == "__main__":
    main()
