"""Measure what syncing and checksums cost `explain_dataset`: ``python -m benchmarks.durable``.

The same folder is explained with and without syncing, in turns, and once more when it is finished, which
only verifies the results.
"""

from __future__ import annotations

import argparse
import os
import shutil
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

import whycluster as wc
from benchmarks.measure import write

N_COLUMNS, K = 20, 10
WORKLOADS = {"20 parts of 100,000 rows": (20, 100_000), "500 parts of 100 rows": (500, 100)}
RUNS = ("not durable", "durable", "finished before", "verify")


def make(folder: Path, n_parts: int, n_rows: int) -> Any:
    """Write Gaussian clusters to Parquet files, and return their centers."""
    rng = np.random.default_rng(0)
    centers = 1.5 * rng.normal(size=(K, N_COLUMNS))
    folder.mkdir()
    for part in range(n_parts):
        noise = rng.standard_normal((n_rows, N_COLUMNS), dtype=np.float32)
        X = centers.astype(np.float32)[rng.integers(K, size=n_rows)] + noise
        table = pa.table({f"x{i}": X[:, i] for i in range(N_COLUMNS)})
        pq.write_table(table, folder / f"part-{part:03d}.parquet", use_dictionary=False)
    return centers


def measure(place: Path, n_parts: int, n_rows: int, repeats: int) -> tuple[dict[str, float], float]:
    """Return the median seconds of each kind of run, and the megabytes of the results."""
    centers = make(place / "in", n_parts, n_rows)
    out, times = place / "out", {name: list[float]() for name in RUNS}

    def explain(durable: bool) -> None:
        wc.explain_dataset(centers, place / "in", out, durable=durable)

    calls: dict[str, Callable[[], Any]] = {
        "not durable": lambda: explain(False),
        "durable": lambda: explain(True),
        "finished before": lambda: explain(True),
        "verify": lambda: wc.verify_dataset(out),
    }
    for timed in [False] + [True] * repeats:
        for name, call in calls.items():
            if name in RUNS[:2]:
                shutil.rmtree(out, ignore_errors=True)
                os.sync()  # so that earlier writes do not slow down this run
            begun = time.perf_counter()
            call()
            times[name] += [time.perf_counter() - begun] * timed
    size = sum(path.stat().st_size for path in out.glob("*.parquet")) / 1e6
    return {name: float(np.median(found)) for name, found in times.items()}, size


def main(arguments: Any = None) -> None:
    """Measure everything and write results/durable.md."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeats", type=int, default=11)
    given = parser.parse_args(arguments)
    lines = [
        "# Durable results",
        "",
        f"`explain_dataset` explains Parquet files with {N_COLUMNS} float32 columns, with K = {K}.",
        f"Times are medians of {given.repeats} runs, in seconds. The variants are interleaved.",
        "If a folder is already finished, a run only compares every result with its checksum.",
        "",
        "| data | results, MB | not durable | durable | ratio | finished before | `verify_dataset` |",
        "|---|---:|---:|---:|---:|---:|---:|",
    ]
    for title, (n_parts, n_rows) in WORKLOADS.items():
        with tempfile.TemporaryDirectory() as place:
            found, size = measure(Path(place), n_parts, n_rows, given.repeats)
        without, durable, before, verified = (found[name] for name in RUNS)
        figures = f"{without:.2f} | {durable:.2f} | {durable / without:.2f} | {before:.2f} | {verified:.3f}"
        lines.append(f"| {title} | {size:.0f} | {figures} |")
    write("durable", "python -m benchmarks.durable", lines)


if __name__ == "__main__":
    main()
