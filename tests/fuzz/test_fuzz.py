"""A short run of each target. `make fuzz` runs them for longer, and with other seeds."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.cluster import KMeans

import whycluster as wc
from tests.fuzz import engine, fits
from tests.fuzz.choices import Choices
from tests.fuzz.engine import Outcome, _makes_progress, fuzz, problem, work
from tests.fuzz.targets import TARGETS


@pytest.mark.slow
@pytest.mark.parametrize("target", TARGETS)
def test_random_input_ends_in_a_result_or_in_one_of_our_errors(target: str) -> None:
    outcome = fuzz(target, TARGETS[target].runs)
    assert outcome.findings == []
    assert outcome.executions == TARGETS[target].runs


def test_only_other_errors_are_problems() -> None:
    def ours(_: Choices) -> None:
        raise wc.InvalidInputError("ours")

    def other(_: Choices) -> None:
        raise KeyError("other")

    assert problem(ours, b"") is None
    found = problem(other, b"")
    assert found is not None
    assert "KeyError: 'other'" in found.text


def test_choices_end_with_their_bytes() -> None:
    assert Choices(b"").damaged_value({"a": [1, {"b": None}]}) == {"a": [-3, {"b": None}]}
    assert [Choices(b"\7").below(n) for n in (5, 8, 300)] == [2, 7, 7]


def test_problems_in_the_same_place_are_one_finding(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def run(choices: Choices) -> None:
        if choices.one_in(2):
            raise KeyError(choices.below(9))

    (tmp_path / "state").write_bytes(bytes(24))
    work("any", 0, 50, tmp_path / "state", lambda _: run)
    assert capsys.readouterr().out.count("FINDING") == 1


def test_outcomes_begin_empty() -> None:
    assert Outcome().findings == []


def test_remembered_fits_are_those_of_the_same_rows_and_parameters() -> None:
    class Counted(KMeans):  # type: ignore[misc]  # scikit-learn has no types
        n_fits = 0

        def fit(self, X: Any, y: Any = None, sample_weight: Any = None) -> Any:
            Counted.n_fits += 1
            return super().fit(X, y, sample_weight)

    fits.remember(Counted)
    X = np.random.default_rng(0).normal(size=(20, 2))
    first, again = (Counted(2, n_init=1, random_state=0).fit(X) for _ in range(2))
    assert Counted.n_fits == 1
    again.cluster_centers_[:] = 0  # the next one is not affected
    for k, seed, rows in ((2, 0, X), (3, 0, X), (2, 1, X), (2, 0, X[:19]), (2, 0, X.astype("float32"))):
        found = Counted(k, n_init=1, random_state=seed).fit(rows)
        expected = KMeans(k, n_init=1, random_state=seed).fit(rows)
        assert (found.cluster_centers_ == expected.cluster_centers_).all()
        assert (found.predict(X.astype(rows.dtype)) == expected.predict(X.astype(rows.dtype))).all()
    assert Counted.n_fits == 5
    assert (first.cluster_centers_ != 0).any()
    for _ in range(2):
        Counted(2, n_init=1).fit(X)  # without a seed
    assert Counted.n_fits == 7


def test_a_hang_is_time_of_the_process_and_not_of_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    state = tmp_path / "state"
    state.write_bytes(bytes(24))
    monkeypatch.setattr(engine, "_HANGS", 0.3)
    for code, hangs in (("import time; time.sleep(1)", False), ("while True: pass", True)):
        with subprocess.Popen([sys.executable, "-c", code]) as process:
            assert _makes_progress(process, state) != hangs
            process.kill()
    monkeypatch.setattr(engine, "_WAITS", 0.3)
    with subprocess.Popen([sys.executable, "-c", "import time; time.sleep(99)"]) as process:
        assert not _makes_progress(process, state)
        process.kill()
