"""`explain_dataset` beside a loop that only reads and writes: ``python -m benchmarks.files``.

Both run in processes of their own, in turn, and tell their seconds without loading Python and its libraries.
The loop reads batches of as many rows and writes them as they are, floats without dictionaries, as ours
does.
"""

from __future__ import annotations

import argparse
import json
import shutil
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks.measure import write

N_ROWS, N_COLUMNS, K = 5_000_000, 20, 10
ROWS_OF_A_PART = 1_000_000
IN_MEMORY, ROOM = Path("/dev/shm"), 12 << 30

LOOP = """
from pathlib import Path
import pyarrow.parquet as pq
for path in sorted(Path("in").iterdir()):
    with pq.ParquetFile(path) as file, pq.ParquetWriter(
        Path("out") / path.name, file.schema_arrow, use_dictionary=False
    ) as writer:
        for batch in file.iter_batches(batch_size=131_072):
            writer.write_batch(batch)
"""
OURS = """
import numpy as np
import whycluster as wc
wc.explain_dataset(np.load("centres.npy"), "in", "out"{options})
"""
AROUND = """
import json, pathlib, shutil, time
import numpy, pyarrow.parquet, whycluster, whycluster.engines.dataset
pyarrow.array(numpy.zeros(1))  # loads pandas, where it is installed
shutil.rmtree("out", ignore_errors=True)
{prepare}
begun = time.perf_counter()
{code}
seconds = time.perf_counter() - begun
told = pathlib.Path("/proc/self/status").read_text()  # resource would count the memory of who started it
peak = int(told.split("VmHWM:")[1].split()[0]) / 1024
print(json.dumps([seconds, peak]))
"""
LOOPING, EXPLAINING = "read and write", "explain"
TASKS = {
    LOOPING: (LOOP, 'pathlib.Path("out").mkdir()'),
    EXPLAINING: (OURS.format(options=""), ""),
    "explain, beta given": (OURS.format(options=", beta=0.04"), ""),
    "explain, the 3 strongest": (OURS.format(options=", top=3"), ""),
    "explain, summary only": (OURS.format(options=', output="summary"'), ""),
}


def make(folder: Path, n_rows: int) -> None:
    """Gaussian clusters, as Parquet files of a million rows each."""
    rng = np.random.default_rng(0)
    centres = 1.5 * rng.normal(size=(K, N_COLUMNS))
    np.save(folder / "centres.npy", centres)
    (folder / "in").mkdir(parents=True)
    for part in range(n_rows // ROWS_OF_A_PART):
        noise = rng.standard_normal((ROWS_OF_A_PART, N_COLUMNS), dtype=np.float32)
        X = centres.astype(np.float32)[rng.integers(K, size=ROWS_OF_A_PART)] + noise
        table = pa.table({f"x{i}": X[:, i] for i in range(N_COLUMNS)})
        pq.write_table(table, folder / "in" / f"part-{part:03d}.parquet", use_dictionary=False)


def run(folder: Path, task: str) -> tuple[float, float]:
    """Seconds, and megabytes at the peak."""
    code, prepare = TASKS[task]
    script = AROUND.format(code=code, prepare=prepare)
    done = subprocess.run([sys.executable, "-c", script], cwd=folder, check=True, capture_output=True)
    seconds, peak = json.loads(done.stdout)
    return seconds, peak


def measure(folder: Path, tasks: list[str], repeats: int) -> dict[str, tuple[float, float]]:
    """The median seconds and the greatest peak of each, taken in turn."""
    found: dict[str, list[tuple[float, float]]] = {task: [] for task in tasks}
    for _ in range(repeats):
        for task in tasks:
            found[task].append(run(folder, task))
    return {
        task: (statistics.median(s for s, _ in runs), max(peak for _, peak in runs))
        for task, runs in found.items()
    }


def grow(place: Path | None, small: dict[str, tuple[float, float]] | None) -> str:
    """What ten times the rows take there, beside what was measured for as many as usual."""
    sizes = [small] if small else []
    for n_rows, repeats in [(N_ROWS, 5), (10 * N_ROWS, 3)][len(sizes) :]:
        with tempfile.TemporaryDirectory(dir=place) as name:
            make(Path(name), n_rows)
            sizes.append(measure(Path(name), [LOOPING, EXPLAINING], repeats))
    (base, _), (once, before) = sizes[0][LOOPING], sizes[0][EXPLAINING]
    (loop, _), (seconds, peak) = sizes[1][LOOPING], sizes[1][EXPLAINING]
    return (
        f"{seconds:.1f} s, {seconds / once:.1f} times as long, and {peak:.0f} MB, {peak - before:+.0f} MB. "
        f"The loop takes {loop / base:.1f} times as long; the ratio to it is {seconds / loop:.2f}, and was "
        f"{once / base:.2f}."
    )


def main(arguments: Any = None) -> None:
    """All measurements, into results/files.md."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--small", action="store_true", help="without ten times the rows, 9 GB on the disk")
    asked = parser.parse_args(arguments)
    lines = [
        "# Files",
        "",
        f"{N_ROWS:,} x {N_COLUMNS} float32 in {N_ROWS // ROWS_OF_A_PART} Parquet files, K = {K}; medians of "
        f"{asked.repeats} runs in turn. The peak is that of the process, with Python and its libraries.",
        "",
        "| what | seconds | ratio | peak, MB |",
        "|---|---:|---:|---:|",
    ]
    with tempfile.TemporaryDirectory() as name:
        make(Path(name), N_ROWS)
        found = measure(Path(name), list(TASKS), asked.repeats)
    for task, (seconds, peak) in found.items():
        lines.append(f"| {task} | {seconds:.2f} | {seconds / found[LOOPING][0]:.2f} | {peak:.0f} |")
    if not asked.small:
        lines += ["", f"Ten times the rows, {10 * N_ROWS:,}:", ""]
        lines.append(f"- on the disk, {grow(None, found)}")
        if IN_MEMORY.is_dir() and shutil.disk_usage(IN_MEMORY).free > ROOM:
            lines.append(f"- in {IN_MEMORY}, where no disk limits it, {grow(IN_MEMORY, None)}")
    write("files", "python -m benchmarks.files", lines)


if __name__ == "__main__":
    main()
