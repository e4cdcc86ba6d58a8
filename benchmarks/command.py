"""Compare ``whycluster explain`` with work without explanations: ``python -m benchmarks.command``."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import polars as pl

from benchmarks.measure import side_by_side, write

N_ROWS, N_COLUMNS, K = 1_000_000, 20, 8
REPEATS = 5

WITHOUT = """
import polars as pl
from sklearn.cluster import MiniBatchKMeans

frame = pl.read_parquet("table.parquet")
X = frame.to_numpy()
model = MiniBatchKMeans({k}, random_state=0).fit(X)
frame.with_columns(cluster=model.predict(X)).write_parquet("without.parquet")
"""


def make(folder: Path) -> None:
    """Write Gaussian clusters to a Parquet file of doubles."""
    rng = np.random.default_rng(0)
    centers = 3 * rng.normal(size=(K, N_COLUMNS))
    X = centers[rng.integers(K, size=N_ROWS)] + rng.normal(size=(N_ROWS, N_COLUMNS))
    pl.DataFrame(X, schema=[f"x{i}" for i in range(N_COLUMNS)]).write_parquet(folder / "table.parquet")


def run(folder: Path, *arguments: str) -> None:
    """Run Python in a separate process."""
    subprocess.run([sys.executable, *arguments], cwd=folder, check=True, capture_output=True)


def explain(folder: Path, *more: str) -> None:
    """Run the command; it prints the table of clusters and writes all rows."""
    options = ("--k", str(K), "--out", "why.parquet", "--force", *more)
    run(folder, "-m", "whycluster", "explain", "table.parquet", *options)


def peak_gigabytes(*command: str, folder: Path) -> float:
    """Return the peak memory of a process."""
    pid = os.posix_spawnp("env", ["env", "-C", str(folder), *command], os.environ)
    _, status, usage = os.wait4(pid, 0)
    assert status == 0
    return usage.ru_maxrss * (1 if sys.platform == "darwin" else 1024) / 2**30


def main() -> None:
    """Measure everything and write results/command.md."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        make(folder)
        times = side_by_side(
            {
                "without": lambda: run(folder, "-c", WITHOUT.format(k=K)),
                "explain": lambda: explain(folder),
                "start": lambda: run(folder, "-c", "import polars, sklearn.cluster"),
            },
            REPEATS,
        )
        command = [sys.executable, "-m", "whycluster", "explain", "table.parquet", "--k", str(K)]
        peak = peak_gigabytes(*command, "--out", "why.parquet", "--force", "--quiet", folder=folder)
        sizes = [(folder / f"{each}.parquet").stat().st_size / 1e6 for each in ("without", "why")]
    ratio = times["explain"] / times["without"]
    lines = [
        "# The command",
        "",
        f"The input is a Parquet file with {N_ROWS:,} rows of {N_COLUMNS} doubles. The number of clusters "
        f"is {K}.",
        "",
        "| task | seconds | ratio | output |",
        "|---|---:|---:|---:|",
        "| read, fit `MiniBatchKMeans`, predict, write the rows with their clusters | "
        f"{times['without']:.1f} | 1 | {sizes[0]:.0f} MB |",
        f"| `whycluster explain table.parquet --k {K} --out why.parquet` | {times['explain']:.1f} | "
        f"{ratio:.2f} | {sizes[1]:.0f} MB |",
        "",
        f"In both tasks, importing polars and scikit-learn takes {times['start']:.1f} s.",
        "`whycluster explain` also standardizes the columns, fills in missing values and describes each "
        "cluster.",
        "It writes the evidence, the competitor, the relevance of all columns and the strongest columns.",
        f"The peak memory of `whycluster explain` is {peak:.2f} GB.",
    ]
    write("command", "python -m benchmarks.command", lines)


if __name__ == "__main__":
    main()
