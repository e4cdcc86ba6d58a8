"""Compare `explain_dataset` with a loop that only reads and writes: ``python -m benchmarks.files``.

The two take turns in separate processes, and report their times without the start of Python and the imports.
The loop reads batches of the same number of rows and writes them unchanged, as floats without dictionaries,
like `explain_dataset`.
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
MEMORY = "/dev/shm"  # a folder in memory, so that no disk slows the files down
ROOM = 12 << 30  # bytes that ten times the rows take

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
wc.explain_dataset(np.load("centers.npy"), "in", "out"{options})
"""
AROUND = """
import json, os, pathlib, shutil, time
import numpy, pyarrow.parquet, whycluster, whycluster.engines.files
pyarrow.array(numpy.zeros(1))  # loads pandas, where it is installed
shutil.rmtree("out", ignore_errors=True)
{prepare}
os.sync()  # so that earlier writes do not slow down this run
begun, worked = time.perf_counter(), time.process_time()
{code}
seconds, work = time.perf_counter() - begun, time.process_time() - worked
status = pathlib.Path("/proc/self/status").read_text()  # resource would include the memory of the parent
peak = int(status.split("VmHWM:")[1].split()[0]) / 1024
print(json.dumps([seconds, work, peak]))
"""
LOOPING, EXPLAINING = "read and write", "explain"
TASKS = {
    LOOPING: (LOOP, 'pathlib.Path("out").mkdir()'),
    EXPLAINING: (OURS.format(options=""), ""),
    "explain, beta given": (OURS.format(options=", beta=0.04, rule='min-take-most'"), ""),
    "explain, the 3 strongest": (OURS.format(options=", top=3"), ""),
    "explain, summary only": (OURS.format(options=', output="summary"'), ""),
}


def make(folder: Path, n_rows: int) -> None:
    """Write Gaussian clusters to Parquet files of a million rows each."""
    rng = np.random.default_rng(0)
    centers = 1.5 * rng.normal(size=(K, N_COLUMNS))
    (folder / "in").mkdir(parents=True)
    np.save(folder / "centers.npy", centers)
    for part in range(n_rows // ROWS_OF_A_PART):
        noise = rng.standard_normal((ROWS_OF_A_PART, N_COLUMNS), dtype=np.float32)
        X = centers.astype(np.float32)[rng.integers(K, size=ROWS_OF_A_PART)] + noise
        table = pa.table({f"x{i}": X[:, i] for i in range(N_COLUMNS)})
        pq.write_table(table, folder / "in" / f"part-{part:03d}.parquet", use_dictionary=False)


class Cost(NamedTuple):
    """The cost of one run, or of several."""

    seconds: float
    work: float  # CPU seconds
    peak: float  # megabytes

    @classmethod
    def of(cls, runs: list[Cost]) -> Cost:
        """Return the median times and the largest peak."""
        seconds, work, peak = zip(*runs, strict=True)
        return cls(statistics.median(seconds), statistics.median(work), max(peak))


def run(folder: Path, task: str) -> Cost:
    """Run a task in a separate process."""
    code, prepare = TASKS[task]
    script = AROUND.format(code=code, prepare=prepare)
    done = subprocess.run([sys.executable, "-c", script], cwd=folder, check=True, capture_output=True)
    return Cost(*json.loads(done.stdout))


def measure(n_rows: int, tasks: list[str], repeats: int, place: str | None = None) -> dict[str, Cost]:
    """Return the cost of each task; the tasks take turns.

    The first round does not count, because memory that a machine has not given out before costs more.
    """
    found: dict[str, list[Cost]] = {task: [] for task in tasks}
    with tempfile.TemporaryDirectory(dir=place) as folder:
        make(Path(folder), n_rows)
        for timed in [False] + [True] * repeats:
            for task in tasks:
                cost = run(Path(folder), task)
                found[task] += [cost] * timed
    return {task: Cost.of(runs) for task, runs in found.items()}


def describe_growth(small: dict[str, Cost], large: dict[str, Cost]) -> str:
    """Describe the cost of ten times the rows."""
    ours, before, loop = large[EXPLAINING], small[EXPLAINING], large[LOOPING]
    longer, worked = ours.seconds / before.seconds, ours.work / before.work
    grown = loop.seconds / small[LOOPING].seconds
    extra = f"{abs(ours.peak - before.peak):.0f} MB {'more' if ours.peak > before.peak else 'less'}"
    return (
        f"explaining ten times as many rows ({10 * N_ROWS:,}) takes {ours.seconds:.1f} s.\n"
        f"This is {longer:.1f} times as long as for {N_ROWS:,} rows, with {worked:.1f} times the CPU time.\n"
        f"The peak memory is {ours.peak:.0f} MB, {extra} than for {N_ROWS:,} rows.\n"
        f"For the loop that only reads and writes, ten times as many rows take {grown:.1f} times as long.\n"
        f"With {10 * N_ROWS:,} rows, explaining takes {ours.seconds / loop.seconds:.2f} times as long as the "
        "loop."
    )


def main(arguments: Any = None) -> None:
    """Measure everything and write results/files.md."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument(
        "--small",
        action="store_true",
        help="leave out ten times the rows, which need 9 GB on disk and then in memory",
    )
    given = parser.parse_args(arguments)
    lines = [
        "# Files",
        "",
        f"The input consists of {N_ROWS // ROWS_OF_A_PART} Parquet files with {N_ROWS:,} rows of {N_COLUMNS} "
        f"float32 values. The number of clusters is {K}.",
        f"Times are medians of {given.repeats} runs, with the tasks interleaved.",
        "The peak is the highest memory use of the whole process, including Python and its libraries.",
        "",
        "| task | seconds | ratio | CPU seconds | peak, MB |",
        "|---|---:|---:|---:|---:|",
    ]
    found = measure(N_ROWS, list(TASKS), given.repeats)
    for task, (seconds, work, peak) in found.items():
        ratio = seconds / found[LOOPING].seconds
        lines.append(f"| {task} | {seconds:.2f} | {ratio:.2f} | {work:.2f} | {peak:.0f} |")
    if not given.small:
        both = [LOOPING, EXPLAINING]
        lines += ["", "On disk, " + describe_growth(found, measure(10 * N_ROWS, both, 3))]
        if shutil.disk_usage(MEMORY).free > ROOM:
            found = measure(N_ROWS, both, given.repeats, MEMORY)
            lines += ["", "In memory, " + describe_growth(found, measure(10 * N_ROWS, both, 3, MEMORY))]
    write("files", "python -m benchmarks.files", lines)


if __name__ == "__main__":
    main()
