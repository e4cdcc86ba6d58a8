"""One Spark session for all tests here: classic, local, with tasks that are tried twice."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

# Set before pyspark is imported: workers run this Python, and nothing listens on the network.
os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
os.environ["PYTHONPATH"] = os.pathsep.join([str(Path(__file__).parents[2]), os.environ.get("PYTHONPATH", "")])

SETTINGS = {
    "spark.ui.enabled": "false",
    "spark.python.daemon.module": "tests.spark.daemon",
    "spark.driver.memory": "1g",
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1",  # the JVM compiles quickly rather than well
    "spark.sql.shuffle.partitions": "1",
    "spark.sql.codegen.wholeStage": "false",  # compiling takes longer than explaining a few rows
    "spark.sql.adaptive.enabled": "false",
}
N_ROWS = 240


@pytest.fixture(scope="session")
def spark() -> Iterator[Any]:
    if shutil.which("java") is None and "JAVA_HOME" not in os.environ:
        pytest.skip("Spark needs Java 17 or later, and java is not installed.")
    from pyspark.sql import SparkSession

    builder: Any = SparkSession.builder.master("local[2,2]")
    for name, value in SETTINGS.items():
        builder = builder.config(name, value)
    session = builder.getOrCreate()
    session.sparkContext.setLogLevel("OFF")
    yield session
    session.stop()


def make_table() -> pd.DataFrame:
    """Return rows of three groups: numbers of several types, a category and an identifier."""
    rng = np.random.default_rng(0)
    group = np.arange(N_ROWS) % 3
    X = 4.0 * np.eye(3)[group] + rng.normal(size=(N_ROWS, 3))
    kind = np.array(["red", "green", "blue, or so"])[np.where(rng.random(N_ROWS) < 0.8, group, 0)]
    frame: pd.DataFrame = pd.DataFrame(
        {
            "id": np.arange(N_ROWS),
            "a": X[:, 0],
            "b.c": 100.0 * X[:, 1] + 1000.0,
            "n": np.round(3 * X[:, 2]).astype(np.int32),
            "one": 1.0,
            "kind": kind,
        }
    )
    return frame


@pytest.fixture(scope="session")
def table() -> pd.DataFrame:
    return make_table()


@pytest.fixture(scope="session")
def df(spark: Any, table: pd.DataFrame) -> Any:
    """The table in three partitions, one of them empty."""
    from pyspark.sql import functions as F  # noqa: N812  # Spark's convention

    frame = spark.createDataFrame(table).repartitionByRange(2, "id")
    return frame.union(frame.where(F.lit(False)).coalesce(1)).cache()
