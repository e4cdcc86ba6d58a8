"""A folder of their own for the results of the benchmarks."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks import measure


@pytest.fixture(autouse=True)
def results(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Write the results of benchmarks to a temporary folder, so that no committed figure is overwritten."""
    monkeypatch.setattr(measure, "RESULTS", tmp_path)
    monkeypatch.setattr("sys.argv", ["benchmark", "--data", str(tmp_path / "nowhere")])
    return tmp_path
