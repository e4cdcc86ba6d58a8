"""Compare the search for the number of clusters with the former one: ``python -m benchmarks.elbow``.

The former search fitted one number of clusters after the other and left the threads to scikit-learn, also in
tables with many columns. Its code is kept here as the reference.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from kneed import KneeLocator
from sklearn.cluster import KMeans
from sklearn.utils import check_random_state
from threadpoolctl import threadpool_limits

import whycluster as wc
from benchmarks.datasets import data_folder
from benchmarks.elbow_tables import REPORTING, TUNING, Make
from benchmarks.measure import geometric_mean, write

THREADED = ("customers", "beans", "mixed")  # tables on which the former search also runs with two threads


def former(frame: Any) -> int:
    """Cluster a table as before, with three starts per number of clusters; return the number."""
    X = np.asarray(wc.tabular.encoder(frame).transform(frame))
    rows = X
    if len(X) > 20_000:
        rows = X[check_random_state(0).choice(len(X), 20_000, replace=False)]
    sizes = np.arange(1.0, min(20, len(np.unique(rows, axis=0))) + 1)
    curve = [float(np.square(rows - rows.mean(axis=0)).sum())]
    curve += [KMeans(int(k), n_init=3, random_state=0).fit(rows).inertia_ for k in sizes[1:]]
    found = KneeLocator(sizes, curve, curve="convex", direction="decreasing").elbow
    if found is None:
        found = sizes[np.argmax(np.interp(sizes, sizes[[0, -1]], [curve[0], curve[-1]]) - curve)]
    k = max(2, int(found))
    KMeans(k, n_init=10, random_state=0).fit(X)
    return k


def present(frame: Any) -> int:
    """Cluster a table; return the number of clusters."""
    return int(wc.tabular.pipeline(frame)["clusters"].n_clusters)


def timed(call: Callable[[], int]) -> tuple[int, float, float]:
    """Return the result, the seconds and the CPU seconds of a call."""
    start, cpu = time.perf_counter(), time.process_time()
    result = call()
    return result, time.perf_counter() - start, time.process_time() - cpu


def on_one_thread(frame: Any) -> int:
    """Call `former` with a single thread."""
    with threadpool_limits(1):
        return former(frame)


def choices(tables: dict[str, Make], folder: Path) -> list[str]:
    """Return a table of the numbers of clusters, and their agreement."""
    lines = [
        "| table | rows | columns | K, former | K | CPU s, former | CPU s | ratio |",
        "|---|" + "---:|" * 7,
    ]
    same, ratios = [], []
    for name, make in tables.items():
        frame = make(folder)
        before, _, former_cpu = timed(lambda frame=frame: on_one_thread(frame))  # type: ignore[misc]
        now, _, cpu = timed(lambda frame=frame: present(frame))  # type: ignore[misc]
        same.append(before == now)
        ratios.append(former_cpu / cpu)
        sizes = f"{len(frame):,} | {frame.shape[1]}"
        lines.append(
            f"| {name} | {sizes} | {before} | {now} | {former_cpu:.2f} | {cpu:.2f} | {ratios[-1]:.2f} |"
        )
    return [
        *lines,
        "",
        f"K is the same for {sum(same)} of {len(same)} tables. The geometric mean of the ratios is "
        f"{geometric_mean(ratios):.2f}.",
    ]


def threads(folder: Path) -> list[str]:
    """Return a table of the time of both searches with the threads that they use by default."""
    lines = ["| table | s, former | s | ratio | CPU s, former | CPU s | ratio |", "|---|" + "---:|" * 6]
    for name in THREADED:
        frame = REPORTING[name](folder)
        _, seconds, cpu = timed(lambda frame=frame: present(frame))  # type: ignore[misc]
        _, former_seconds, former_cpu = timed(lambda frame=frame: former(frame))  # type: ignore[misc]
        ratios = former_seconds / seconds, former_cpu / cpu
        lines.append(
            f"| {name} | {former_seconds:.1f} | {seconds:.1f} | {ratios[0]:.1f} | {former_cpu:.1f} "
            f"| {cpu:.1f} | {ratios[1]:.1f} |"
        )
    return lines


def main() -> None:
    """Measure everything and write results/elbow.md."""
    folder = data_folder(__doc__)
    lines = [
        "# Choosing the number of clusters",
        "",
        "`wc.tabular.pipeline(frame)` chooses K, the number of clusters, and clusters the rows. The times",
        "include reading the columns, the search for K and the final fit with ten starts on all rows. The",
        "former search tried one K after another and left threading to scikit-learn. The current one fits",
        "each K on a single thread, with several K in parallel. The seeds, the starts and the rows are",
        "the same, except that tables with more than 50 columns after encoding use a smaller sample of a",
        "million values, but at least 5,000 rows.",
        "",
        "## With threads, side by side",
        "",
        "scikit-learn's threads busy-wait for each other. If other processes use the cores, as in this",
        "run, the threads spend most of the time waiting, so this ratio depends on the load on the machine.",
        "All tables have 15,000 rows; `beans` has 17 columns.",
        "",
        *threads(folder),
        "",
        "## The same K, reporting tables",
        "",
        "Here, the former search runs on one thread, so the ratio of CPU times shows only what the smaller",
        "sample saves and does not depend on the load.",
        "",
        *choices(REPORTING, folder),
        "",
        "## The same K, tuning tables",
        "",
        "These tables were used to choose the size of the sample.",
        "",
        *choices(TUNING, folder),
    ]
    write("elbow", "python -m benchmarks.elbow --data ../shared/data", lines)


if __name__ == "__main__":
    main()
