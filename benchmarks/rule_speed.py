"""Compare the time of `explain` with each rule to that of `predict`: ``python -m benchmarks.rule_speed``.

The assignments of faiss and scikit-learn-intelex are measured too, if these libraries are installed.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from importlib.util import find_spec
from typing import Any

import numpy as np
from sklearn.cluster import KMeans

import whycluster as wc
from benchmarks.compiled import CELLS, REPEATS
from benchmarks.measure import geometric_mean, side_by_side, write
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
        fast.fit(model.cluster_centers_)
        found["scikit-learn-intelex"] = lambda: fast.predict(X)
    return found


def measure(dtype: Any, n_rows: int, d: int, n_clusters: int) -> tuple[float, dict[str, float]]:
    """Return the seconds of `predict`, and how many times as long all others take."""
    rows, fitted = clustered(n_rows, d, n_clusters)
    X, model = rows.astype(dtype), of_dtype(fitted, dtype)
    calls: dict[str, Callable[[], Any]] = {PREDICT: partial(model.predict, X), **peers(model, X)}
    for name, query in QUERIES.items():
        options = dict(query)
        if "background" in options:
            options["background"] = X[: options["background"]]
        calls[name] = partial(wc.explain, model, X, **options)
    rounds = [side_by_side(calls, 1) for _ in range(REPEATS)]
    ratios = {name: float(np.median([times[name] / times[PREDICT] for times in rounds])) for name in calls}
    print(np.dtype(dtype).name, n_rows, d, n_clusters, ratios, flush=True)
    return float(np.median([times[PREDICT] for times in rounds])), ratios


def table(dtype: Any) -> list[str]:
    """Return the table of one dtype."""
    found = [(cell, *measure(dtype, *cell)) for cell in CELLS]
    names = [name for name in found[0][2] if name != PREDICT]
    lines = [
        "",
        f"## {np.dtype(dtype).name}",
        "",
        f"| rows | d | K | predict, ms | {' | '.join(names)} |",
        "|---:|---:|---:|---:|" + "---:|" * len(names),
    ]
    for (n_rows, d, n_clusters), seconds, ratios in found:
        cells = " | ".join(f"{ratios[name]:.2f}x" for name in names)
        lines.append(f"| {n_rows:,} | {d} | {n_clusters} | {seconds * 1e3:.0f} | {cells} |")
    means = (geometric_mean([ratios[name] for *_, ratios in found]) for name in names)
    return [*lines, f"| geometric mean | | | | {' | '.join(f'{mean:.2f}x' for mean in means)} |"]


def cpu_ratio(dtype: Any, n_rows: int, d: int, n_clusters: int) -> float:
    """Return the least CPU time of the sequential rule, divided by that of the default rule."""
    rows, model = clustered(n_rows, d, n_clusters)
    X, least = rows.astype(dtype), {"path": np.inf, "sequential": np.inf}
    for _ in range(REPEATS):
        for rule in least:
            begun = time.process_time()
            wc.explain(model, X, rule=rule)
            least[rule] = min(least[rule], time.process_time() - begun)
    return least["sequential"] / least["path"]


def sequential() -> list[str]:
    """Return the table of the sequential rule."""
    lines = [
        "",
        "## The sequential rule",
        "",
        "CPU time of the sequential rule, divided by that of the default rule, path, on the same data; both",
        f"are the least of {REPEATS} alternating runs.",
        "",
        "| rows | d | K | float64 | float32 |",
        "|---:|---:|---:|---:|---:|",
    ]
    for n_rows, d, n_clusters in SEQUENTIAL:
        ratios = [cpu_ratio(dtype, n_rows, d, n_clusters) for dtype in (np.float64, np.float32)]
        cells = " | ".join(f"{ratio:.1f}x" for ratio in ratios)
        lines.append(f"| {n_rows:,} | {d} | {n_clusters} | {cells} |")
    return lines


def main() -> None:
    """Measure both dtypes and write results/rule_speed.md."""
    lines = [
        "# The time of each rule",
        "",
        "The tables show times relative to that of scikit-learn's `KMeans.predict` on the same data, as the",
        f"median of {REPEATS} rounds, in each of which every call runs once. `explain` measures beta and the",
        "cluster sizes on all rows, unless a background or beta is given.",
    ]
    for dtype in (np.float64, np.float32):
        lines += table(dtype)
    lines += sequential()
    write("rule_speed", "python -m benchmarks.rule_speed", lines)


if __name__ == "__main__":
    main()
