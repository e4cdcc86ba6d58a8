"""Compare explaining rows on Spark workers with only passing them through: ``python -m benchmarks.spark``.

This needs Java 17 and pyspark, which ``make test`` installs in ``.venv-spark``.
"""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

import whycluster as wc
from benchmarks.measure import side_by_side, write
from whycluster.engines import spark as engine

N_ROWS, REPEATS = 500_000, 5
SIZES = ((10, 8), (20, 8), (50, 10))  # features, clusters
CORES = 2


def session() -> Any:
    """Return a session of classic Spark on this machine, without progress bars."""
    os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    from pyspark.sql import SparkSession

    builder: Any = SparkSession.builder
    settings = {
        "spark.ui.enabled": "false",
        "spark.driver.memory": "4g",
        "spark.ui.showConsoleProgress": "false",
    }
    for name, value in settings.items():
        builder = builder.config(name, value)
    return builder.master(f"local[{CORES}]").getOrCreate()


def table(spark: Any, folder: Path, d: int, k: int) -> tuple[Any, Any]:
    """Return Gaussian clusters, cached in the memory of Spark, and their centroids."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    rng = np.random.default_rng(0)
    centers = 3 * rng.normal(size=(k, d))
    X = centers[rng.integers(k, size=N_ROWS)] + rng.normal(size=(N_ROWS, d))
    path = folder / f"{d}.parquet"
    pq.write_table(pa.table({f"x{i}": X[:, i] for i in range(d)}), path)
    df = spark.read.parquet(str(path)).repartition(2 * CORES).cache()
    df.count()
    return df, centers


def same(batches: Iterator[Any]) -> Iterator[Any]:
    """Yield every batch unchanged."""
    yield from batches


def spend(df: Any) -> None:
    """Compute all rows and discard them."""
    df.write.format("noop").mode("overwrite").save()


def measure(spark: Any, folder: Path, d: int, k: int) -> str:
    """Return a line of the table."""
    df, centers = table(spark, folder, d, k)
    network = wc.neuralize(centers)
    columns = df.columns

    def explained(beta: float | str = 1.0, **options: Any) -> None:
        # With a number for beta, this rule measures nothing.
        spend(engine.explain(network, df, columns=columns, beta=beta, rule="min-take-most", **options))

    calls = {
        "same": lambda: spend(df.mapInArrow(same, df.schema)),
        "all": explained,
        "results": lambda: explained(id_columns=[]),
        "top": lambda: explained(id_columns=[], top=3),
        "auto": lambda: explained("auto"),
    }
    side_by_side(calls, 1)  # compiles everything and starts the workers
    times = side_by_side(calls, REPEATS)
    df.unpersist()
    ratios = [f"{times[name] / times['same']:.2f}" for name in ("results", "all", "top", "auto")]
    return f"| {d} | {k} | {times['same']:.1f} s | {' | '.join(ratios)} |"


def main() -> None:
    """Measure everything and write results/spark.md."""
    spark = session()
    spark.sparkContext.setLogLevel("ERROR")
    with tempfile.TemporaryDirectory() as name:
        rows = [measure(spark, Path(name), d, k) for d, k in SIZES]
    version = spark.version
    spark.stop()
    lines = [
        "# Spark",
        "",
        f"The data are {N_ROWS:,} rows of doubles, cached in memory. Spark {version} runs on {CORES} cores.",
        "We compute all results and discard them.",
        "The `unchanged` column shows the time of a `mapInArrow` that returns all columns unchanged. The "
        "columns to its right show ratios to that time.",
        "",
        "| features | clusters | unchanged | results only | with all columns | `top=3` | beta measured |",
        "|---:|---:|---:|---:|---:|---:|---:|",
        *rows,
    ]
    write("spark", "python -m benchmarks.spark", lines)


if __name__ == "__main__":
    main()
