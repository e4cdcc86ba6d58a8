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
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks.measure import write

N_ROWS, N_COLUMNS, K = 5_000_000, 20, 10
ROWS_OF_A_PART = 1_000_000
MEMORY, ROOM = "/dev/shm", 12 << 30  # files that no disk slows down, and what ten times the rows take

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
import json, os, pathlib, shutil, time
import numpy, pyarrow.parquet, whycluster, whycluster.engines.files
pyarrow.array(numpy.zeros(1))  # loads pandas, where it is installed
shutil.rmtree("out", ignore_errors=True)
{prepare}
os.sync()  # what was written before is not to be waited for
begun, worked = time.perf_counter(), time.process_time()
{code}
seconds, work = time.perf_counter() - begun, time.process_time() - worked
told = pathlib.Path("/proc/self/status").read_text()  # resource would count the memory of who started it
peak = int(told.split("VmHWM:")[1].split()[0]) / 1024
print(json.dumps([seconds, work, peak]))
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
    (folder / "in").mkdir(parents=True)
    np.save(folder / "centres.npy", centres)
    for part in range(n_rows // ROWS_OF_A_PART):
        noise = rng.standard_normal((ROWS_OF_A_PART, N_COLUMNS), dtype=np.float32)
        X = centres.astype(np.float32)[rng.integers(K, size=ROWS_OF_A_PART)] + noise
        table = pa.table({f"x{i}": X[:, i] for i in range(N_COLUMNS)})
        pq.write_table(table, folder / "in" / f"part-{part:03d}.parquet", use_dictionary=False)


class Cost(NamedTuple):
    """Of one run, or of several."""

    seconds: float
    work: float  # seconds of processors
    peak: float  # megabytes

    @classmethod
    def of(cls, runs: list[Cost]) -> Cost:
        """The median times and the greatest peak."""
        seconds, work, peak = zip(*runs, strict=True)
        return cls(statistics.median(seconds), statistics.median(work), max(peak))


def run(folder: Path, task: str) -> Cost:
    """In a process of its own."""
    code, prepare = TASKS[task]
    script = AROUND.format(code=code, prepare=prepare)
    done = subprocess.run([sys.executable, "-c", script], cwd=folder, check=True, capture_output=True)
    return Cost(*json.loads(done.stdout))


def measure(n_rows: int, tasks: list[str], repeats: int, place: str | None = None) -> dict[str, Cost]:
    """What each costs, taken in turn.

    A round before is not counted: memory that a machine has not lent out yet costs more the first time.
    """
    found: dict[str, list[Cost]] = {task: [] for task in tasks}
    with tempfile.TemporaryDirectory(dir=place) as folder:
        make(Path(folder), n_rows)
        for timed in [False] + [True] * repeats:
            for task in tasks:
                cost = run(Path(folder), task)
                found[task] += [cost] * timed
    return {task: Cost.of(runs) for task, runs in found.items()}


def told_growth(small: dict[str, Cost], large: dict[str, Cost]) -> str:
    """What ten times the rows take."""
    ours, before, loop = large[EXPLAINING], small[EXPLAINING], large[LOOPING]
    longer, worked = ours.seconds / before.seconds, ours.work / before.work
    grown = loop.seconds / small[LOOPING].seconds
    return (
        f"ten times the rows, {10 * N_ROWS:,}: {ours.seconds:.1f} s, {longer:.1f} times as long, with "
        f"{worked:.1f} times the work of the processors, and {ours.peak:.0f} MB, "
        f"{ours.peak - before.peak:+.0f} MB. The loop takes {grown:.1f} times "
        f"as long, so the ratio to it is {ours.seconds / loop.seconds:.2f}."
    )


def main(arguments: Any = None) -> None:
    """All measurements, into results/files.md."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument(
        "--small", action="store_true", help="without ten times the rows, 9 GB on the disk and then in memory"
    )
    asked = parser.parse_args(arguments)
    lines = [
        "# Files",
        "",
        f"{N_ROWS:,} x {N_COLUMNS} float32 in {N_ROWS // ROWS_OF_A_PART} Parquet files, K = {K}; medians of "
        f"{asked.repeats} runs in turn. The peak is that of the process, with Python and its libraries.",
        "",
        "| what | seconds | ratio | seconds of processors | peak, MB |",
        "|---|---:|---:|---:|---:|",
    ]
    found = measure(N_ROWS, list(TASKS), asked.repeats)
    for task, (seconds, work, peak) in found.items():
        ratio = seconds / found[LOOPING].seconds
        lines.append(f"| {task} | {seconds:.2f} | {ratio:.2f} | {work:.2f} | {peak:.0f} |")
    if not asked.small:
        both = [LOOPING, EXPLAINING]
        lines += ["", "On the disk: " + told_growth(found, measure(10 * N_ROWS, both, 3))]
        if shutil.disk_usage(MEMORY).free > ROOM:
            found = measure(N_ROWS, both, asked.repeats, MEMORY)
            lines += ["", "In memory: " + told_growth(found, measure(10 * N_ROWS, both, 3, MEMORY))]
    write("files", "python -m benchmarks.files", lines)


if __name__ == "__main__":
    main()
