"""The script of docs/handover.md that runs every night."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import whycluster as wc
from tests.segments.changes.months import customers, segmentation

pl = pytest.importorskip("polars")
pytest.importorskip("click")
pytest.importorskip("pyarrow")
pytest.importorskip("safetensors")

pytestmark = pytest.mark.slow
ROOT = Path(__file__).parents[2]


def script() -> str:
    """Return the script as it is printed."""
    section = (ROOT / "docs" / "handover.md").read_text().split("## A nightly job\n")[1]
    found = re.search(r"```sh\n(.*?)```", section, re.DOTALL)
    assert found is not None
    return found[1]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """The folder of the job: the script, a segmentation, and the file of January."""
    (tmp_path / "nightly.sh").write_text(script())
    wc.save(segmentation(customers()), tmp_path / "segments.why")
    (tmp_path / "incoming").mkdir()
    arrive(tmp_path, "2026-01", customers())
    return tmp_path


def arrive(folder: Path, month: str, frame: Any) -> None:
    named = frame.rename(columns={"CustomerID": "customer"})
    named.to_csv(folder / "incoming" / f"{month}.csv", index=False)


def run(folder: Path) -> subprocess.CompletedProcess[str]:
    """Run the script from another folder, as cron does."""
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    command = ["sh", str(folder / "nightly.sh")]
    environ = {**os.environ, "PATH": path}
    return subprocess.run(command, capture_output=True, text=True, env=environ, cwd="/", check=False)


def explained(folder: Path) -> dict[str, int]:
    """Return when each result was written."""
    return {path.name: path.stat().st_mtime_ns for path in (folder / "explained").glob("*.parquet")}


def test_four_nights(folder: Path) -> None:
    """The first month; a second one in another unit, then corrected; and a file that does not belong."""
    night = run(folder)
    assert night.returncode == 0, night.stderr
    assert "is complete and unchanged: " in night.stdout
    first = explained(folder)
    ids = pl.read_parquet(folder / "explained" / "2026-01.csv.parquet")["customer"]
    assert ids.to_list() == customers()["CustomerID"].astype(str).to_list()
    assert list(first) == ["2026-01.csv.parquet"]
    assert not (folder / "changes.html").exists()

    january = customers()
    february = january.assign(spend=january["spend"] + 40 * (january["CustomerID"] % 7 == 0))
    arrive(folder, "2026-02", february.assign(spend=1000 * february["spend"]))
    night = run(folder)
    assert night.returncode == 2
    assert "'2026-02.csv'" in night.stderr
    assert "column 'spend' holds values about 1" in night.stderr
    assert explained(folder) == first
    assert not (folder / "changes.html").exists()

    arrive(folder, "2026-02", february)
    night = run(folder)
    assert night.returncode == 0, night.stderr
    second = explained(folder)
    assert sorted(second) == ["2026-01.csv.parquet", "2026-02.csv.parquet"]
    assert second["2026-01.csv.parquet"] == first["2026-01.csv.parquet"]
    assert "2026-01.csv and 2026-02.csv" in (folder / "changes.html").read_text()
    seg = wc.load(folder / "segments.why")
    moved = int((seg.assign(january) != seg.assign(february)).sum())
    assert moved > 0
    assert f"and {moved} (" in night.stdout

    (folder / "incoming" / "2026-02.csv").rename(folder / "2026-02.csv")
    night = run(folder)
    assert night.returncode == 0, night.stderr
    assert "no longer in the data: ['2026-02.csv" in night.stderr
    assert explained(folder) == second

    (folder / "explained" / "other.parquet").write_bytes(b"")
    night = run(folder)
    assert night.returncode == 1
    assert "other.parquet" in night.stdout + night.stderr
