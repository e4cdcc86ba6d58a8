"""Compare the CPU time of `explain` with each rule to that of `predict`: ``python -m benchmarks.rule_speed``.

CPU times are those of all threads, and the least of several alternating runs, so the ratios can be compared
on a machine that is not idle. ``--share 0.25`` measures a quarter of the rows, which saves time. The
assignments of faiss and scikit-learn-intelex are measured too, if these libraries are installed.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable
from functools import partial
from importlib.util import find_spec
from typing import Any

os.environ.setdefault("OMP_WAIT_POLICY", "passive")  # otherwise, threads that wait use CPU time

import numpy as np
from sklearn.cluster import KMeans

import whycluster as wc
from benchmarks.compiled import CELLS
from benchmarks.measure import geometric_mean, least_cpu_times, write
from benchmarks.speed import clustered

PREDICT = "predict"
SEQUENTIAL = ((60_000, 20, 8), (20_000, 64, 32), (4_000, 300, 20))  # rows, features, clusters
QUERIES: dict[str, dict[str, Any]] = {
    "path": {"rule": "path"},
    "min-take-most": {"rule": "min-take-most"},
    "joint": {"rule": "joint"},
    "contrast": {"rule": "contrast"},
    "target": {"rule": "path", "target": 0},
    "path, with a background": {"rule": "path", "background": 1000},
    "min-take-most, with beta": {"rule": "min-take-most", "beta": 1.0},
}


def of_dtype(model: KMeans, dtype: Any) -> KMeans:
    """Return a model with the same centroids in another dtype."""
    other = KMeans(model.n_clusters, n_init=1, max_iter=1, init=model.cluster_centers_.astype(dtype))
    other.fit(model.cluster_centers_.astype(dtype))
    other.cluster_centers_ = np.ascontiguousarray(model.cluster_centers_, dtype)
    return other


def peers(model: KMeans, X: Any) -> dict[str, Callable[[], Any]]:
    """Return the assignments of other libraries."""
    found: dict[str, Callable[[], Any]] = {}
    if find_spec("faiss") is not None and X.dtype == np.float32:
        import faiss

        index = faiss.IndexFlatL2(X.shape[1])
        index.add(model.cluster_centers_)
        found["faiss"] = lambda: index.search(X, 1)
    if find_spec("sklearnex") is not None:
        from sklearnex.cluster import KMeans as IntelKMeans

        fast = IntelKMeans(model.n_clusters, n_init=1, max_iter=1, init=model.cluster_centers_)
        fast.fit(X[:20_000])
        found["scikit-learn-intelex"] = lambda: fast.predict(X)
    return found


def measure(dtype: Any, fitted: KMeans, X: Any, repeats: int) -> tuple[float, dict[str, float]]:
    """Return the seconds of `predict`, and how many times as long all others take."""
    model = of_dtype(fitted, dtype)
    calls: dict[str, Callable[[], Any]] = {PREDICT: partial(model.predict, X), **peers(model, X)}
    for name, query in QUERIES.items():
        options = dict(query)
        if "background" in options:
            options["background"] = X[: options["background"]]
        calls[name] = partial(wc.explain, model, X, **options)
    times = least_cpu_times(calls, repeats)
    ratios = {name: seconds / times[PREDICT] for name, seconds in times.items()}
    print(X.dtype, *X.shape, len(model.cluster_centers_), ratios, flush=True)
    return times[PREDICT], ratios


def tables(share: float, repeats: int) -> list[str]:
    """Return the tables of both dtypes."""
    found: dict[str, list[Any]] = {"float64": [], "float32": []}
    for n_rows, d, n_clusters in CELLS:
        rows, fitted = clustered(int(n_rows * share), d, n_clusters)
        for dtype, of_cells in found.items():
            X = rows.astype(dtype)
            of_cells.append(((len(X), d, n_clusters), *measure(dtype, fitted, X, repeats)))
    return [line for dtype, of_cells in found.items() for line in table(dtype, of_cells)]


def table(dtype: str, found: list[Any]) -> list[str]:
    """Return the table of one dtype."""
    names = [name for name in found[0][2] if name != PREDICT]
    lines = [
        "",
        f"## {dtype}",
        "",
        f"| rows | d | K | predict, ms | {' | '.join(names)} |",
        "|---:|---:|---:|---:|" + "---:|" * len(names),
    ]
    for (n_rows, d, n_clusters), seconds, ratios in found:
        cells = " | ".join(f"{ratios[name]:.2f}x" for name in names)
        lines.append(f"| {n_rows:,} | {d} | {n_clusters} | {seconds * 1e3:.0f} | {cells} |")
    means = (geometric_mean([ratios[name] for *_, ratios in found]) for name in names)
    return [*lines, f"| geometric mean | | | | {' | '.join(f'{mean:.2f}x' for mean in means)} |"]


def cpu_ratio(dtype: Any, cell: tuple[int, int, int], repeats: int) -> float:
    """Return the CPU time of the sequential rule, divided by that of the default rule."""
    rows, model = clustered(*cell)
    X = rows.astype(dtype)
    rules = "path", "sequential"
    calls: dict[str, Callable[[], Any]] = {rule: partial(wc.explain, model, X, rule=rule) for rule in rules}
    times = least_cpu_times(calls, repeats)
    return times["sequential"] / times["path"]


def sequential(repeats: int) -> list[str]:
    """Return the table of the sequential rule."""
    lines = [
        "",
        "## The sequential rule",
        "",
        "The table shows the CPU time of the sequential rule, divided by that of the default rule, path.",
        "",
        "| rows | d | K | float64 | float32 |",
        "|---:|---:|---:|---:|---:|",
    ]
    for n_rows, d, n_clusters in SEQUENTIAL:
        cell = n_rows, d, n_clusters
        ratios = [cpu_ratio(dtype, cell, repeats) for dtype in (np.float64, np.float32)]
        cells = " | ".join(f"{ratio:.1f}x" for ratio in ratios)
        lines.append(f"| {n_rows:,} | {d} | {n_clusters} | {cells} |")
        print(lines[-1], flush=True)
    return lines


def main() -> None:
    """Measure both dtypes and write results/rule_speed.md."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.rule_speed")
    parser.add_argument("--share", type=float, default=1.0, help="the share of the rows to measure")
    parser.add_argument("--repeats", type=int, default=9, help="the number of runs of each call")
    chosen = parser.parse_args()
    before = os.getloadavg()[0]
    found = [*tables(chosen.share, chosen.repeats), *sequential(chosen.repeats)]
    lines = [
        "# The time of each rule",
        "",
        "The tables show CPU times relative to that of scikit-learn's `KMeans.predict` on the same data.",
        f"Each is the least of {chosen.repeats} runs, in which the calls take turns, over all threads.",
        "`explain` measures beta and the cluster sizes on all rows, unless a background or beta is given.",
        f"The tables of both dtypes use {chosen.share:.0%} of the usual rows. With fewer rows, fixed costs",
        "count more.",
        "",
        f"The load average of the {os.cpu_count()} cores was {before:.0f} at the start and "
        f"{os.getloadavg()[0]:.0f} at the end. Other processes that",
        "run at the same time take no CPU time from these calls, but share the caches and the memory.",
        *found,
    ]
    options = f" --share {chosen.share} --repeats {chosen.repeats}"
    command = "python -m benchmarks.rule_speed" + options * (options != " --share 1.0 --repeats 9")
    write("rule_speed", command, lines)


if __name__ == "__main__":
    main()
