"""The benchmarks that asv runs for many commits, on few rows."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from benchmarks import speed
from benchmarks.tracked.speed import Speed

ROOT = Path(__file__).parents[2]


def test_the_cases_of_speed_are_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    assert len(Speed.params) == len(speed.GRID)
    monkeypatch.setattr(speed, "GRID", [(300, 4, 3), *speed.GRID[1:]])
    suite, size = Speed(), Speed.params[0]
    suite.setup(size)
    assert suite.X.shape == (300, 4)
    suite.time_explain(size)
    assert suite.track_ratio(size) > 0


def test_asv_finds_them() -> None:
    settings = json.loads((ROOT / "asv.conf.json").read_text())
    assert ROOT / settings["benchmark_dir"] == Path(speed.__file__).parent / "tracked"
