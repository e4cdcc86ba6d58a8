"""Measuring tools: calls are timed side by side in one run and compared as ratios, to reduce noise."""

from __future__ import annotations

import platform
import time
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import sklearn
from threadpoolctl import threadpool_info

import whycluster as wc

RESULTS = Path(__file__).parent / "results"


def side_by_side(calls: dict[str, Callable[[], Any]], repeats: int) -> dict[str, float]:
    """Return the median seconds of each call; calls take turns, so that noise affects all of them."""
    times: dict[str, list[float]] = {name: [] for name in calls}
    for _ in range(repeats):
        for name, call in calls.items():
            start = time.perf_counter()
            result = call()
            times[name].append(time.perf_counter() - start)
            del result
    return {name: float(np.median(values)) for name, values in times.items()}


def least_cpu_times(calls: dict[str, Callable[[], Any]], repeats: int) -> dict[str, float]:
    """Return the least CPU seconds of each call, of all threads; calls take turns.

    CPU times do not include the time in which other processes run, so they suit a machine that is not idle.
    """
    least = dict.fromkeys(calls, np.inf)
    for _ in range(repeats):
        for name, call in calls.items():
            time.sleep(0.01)  # threads of the previous call may still be waiting for work
            start = time.process_time()
            result = call()
            least[name] = min(least[name], time.process_time() - start)
            del result
    return least


def peak_megabytes(call: Callable[[], Any]) -> tuple[float, Any]:
    """Return the peak memory of Python and NumPy during the call, and its result."""
    tracemalloc.start()
    try:
        result = call()
        return tracemalloc.get_traced_memory()[1] / 2**20, result
    finally:
        tracemalloc.stop()


def result_megabytes(exp: wc.Explanation) -> float:
    """Return the memory of an explanation; arrays that repeat one value for all rows need none."""
    arrays = (exp.relevance, exp.evidence, exp.cluster_codes, exp.competitor_codes)
    return sum(array.nbytes for array in arrays if array.strides[0]) / 2**20


def geometric_mean(values: list[float]) -> float:
    """Return the geometric mean, the mean of ratios."""
    return float(np.exp(np.mean(np.log(values))))


def write(name: str, command: str, lines: list[str]) -> None:
    """Write a page of results, with the command that creates it and the software it ran on."""
    blas = {library["internal_api"] for library in threadpool_info() if library["user_api"] == "blas"}
    threads = max(library["num_threads"] for library in threadpool_info())
    machine = (
        f"Python {platform.python_version()}, NumPy {np.__version__} ({', '.join(sorted(blas))}), "
        f"scikit-learn {sklearn.__version__}, {threads} thread{'s' * (threads != 1)}, {platform.machine()}."
    )
    page = "\n".join([*lines, "", f"Made by `{command}` on {machine}", ""])
    RESULTS.mkdir(exist_ok=True)
    (RESULTS / f"{name}.md").write_text(page)
    print(page)
