"""The same over Spark Connect, where the driver has no access to the JVM."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.spark.conftest import N_ROWS

ROOT = Path(__file__).parent.parent.parent


@pytest.fixture(scope="module")
def found() -> Any:
    if shutil.which("java") is None and "JAVA_HOME" not in os.environ:
        pytest.skip("Spark needs Java 17 or later, and java is not installed.")
    run = subprocess.run(
        [sys.executable, "-m", "tests.spark.on_connect"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
        timeout=600,
    )
    assert run.returncode == 0, run.stderr[-4000:]
    return json.loads(run.stdout.splitlines()[-1])


@pytest.mark.parametrize("name", ["bisecting", "mixture"])
def test_models_of_mllib_over_connect(name: str, found: Any) -> None:
    assert found["connect"].startswith("pyspark.sql.connect")
    as_mllib, n_rows, error = found[name]
    assert as_mllib
    assert n_rows == N_ROWS
    assert error < 1e-6


def test_metadata_name_the_features_over_connect(found: Any) -> None:
    assert found["metadata"] == {"features": ["a", "n"]}


def test_skipped_rows_are_counted_over_connect(found: Any) -> None:
    assert found["skipped"] == [[5], {"rows": N_ROWS, "invalid": 1}]


def test_messages_of_workers_arrive_over_connect(found: Any) -> None:
    assert "InvalidInputError: spark.explain: df must be finite; row" in found["error"]
    assert "feature 'a' holds a missing value (NaN). Drop or fill such rows first." in found["error"]


def test_a_background_can_have_vectors_instead_of_arrays_over_connect(found: Any) -> None:
    assert found["background"] < 1e-6
