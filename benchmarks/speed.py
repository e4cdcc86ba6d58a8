"""Compare explaining all rows with predicting them: ``python -m benchmarks.speed``."""

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
    """Return rows around random centers, and a k-means model fitted to some of them."""
    rng = np.random.default_rng(0)
    centers = rng.normal(size=(n_clusters, d))
    X = rng.normal(size=(n_rows, d))
    X += centers[rng.integers(n_clusters, size=n_rows)]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # speed does not depend on convergence
        model = KMeans(n_clusters, init="random", n_init=1, max_iter=5, random_state=0).fit(X[:20_000])
    return X, model


def against_predict(shift: float, repeats: int = 9) -> list[str]:
    """Return the table for all sizes, with the data moved away from 0 by ``shift``."""
    lines = [
        "| rows | d | K | predict, ms | explain, ms | ratio | memory without the result, MB |",
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
    mean = geometric_mean(ratios)
    lines += ["", f"The geometric mean of the ratios is {mean:.2f}x, and the largest is {max(ratios):.1f}x."]
    return lines


def against_reference() -> str:
    """Compare with loops over single points and competitors, as in the paper's equations."""
    rng = np.random.default_rng(0)
    X, centroids = rng.normal(size=(1000, 100)), rng.normal(size=(50, 100))
    slow = side_by_side({"reference": lambda: neon.explain(X, centroids)}, 1)["reference"]
    fast = side_by_side({"explain": lambda: wc.explain(centroids, X, rule="min-take-most")}, 20)["explain"]
    return (
        f"For n = 1000, K = 50 and d = 100, the loops in `tests/reference/neon.py` take {slow:.2f} s.\n"
        f"`explain` takes {fast * 1e3:.2f} ms and is {slow / fast:.0f} times faster."
    )


def main() -> None:
    """Measure everything and write results/speed.md."""
    heading = "## Compared with `KMeans.predict` on the same float64 data"
    lines = ["# Speed", "", heading, "", *against_predict(0.0)]
    lines += [
        "",
        "In the next table, the same data are shifted by 100, so `explain` has to shift each block back.",
        "",
    ]
    lines += [*against_predict(100.0), "", "## Compared with loops over single points and competitors", ""]
    write("speed", "python -m benchmarks.speed", [*lines, against_reference()])


if __name__ == "__main__":
    main()
