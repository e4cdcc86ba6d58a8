"""The options of a query: the same at the command as everywhere else."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from sklearn.mixture import GaussianMixture

import whycluster as wc
from tests.queries import INVALID
from whycluster import cli

RNG = np.random.default_rng(0)
GROUPS = np.repeat(["a", "b", "c"], 30)
ROWS = RNG.normal(size=(90, 3)) + 6.0 * (GROUPS[:, None] == ["a", "b", "c"])
FRAME = pl.DataFrame(ROWS, schema=["x", "y", "z"])
CASES = [  # clusters of a single table have no probabilities, so the command for a row has no --threshold
    (way, options, message)
    for way in ("table", "row", "folder")
    for options, message in INVALID
    if way != "row" or "threshold" not in options
]


def invoke(capsys: pytest.CaptureFixture[str], *arguments: Any) -> tuple[int, str, str]:
    code = cli.main([str(argument) for argument in arguments])
    return (code, *capsys.readouterr())


def command(way: str, place: Path) -> list[Any]:
    """Return the arguments of a command that explains the same clusters; its results are in ``out``."""
    if way == "folder":
        pytest.importorskip("pyarrow", reason="pyarrow is not installed")
        (place / "in").mkdir()
        FRAME.write_parquet(place / "in" / "part.parquet")
        network = wc.TableNetwork(wc.neuralize(ROWS[[0, 30, 60]]).energy, labels=["a", "b", "c"])
        wc.save(network, place / "model")
        model = ["--model", place / "model", "--columns", "x,y,z"]
        return ["explain", place / "in", "--out", place / "out", *model]
    FRAME.with_columns(kind=pl.Series(GROUPS)).write_csv(place / "rows.csv")
    labels = [place / "rows.csv", "--labels", "kind"]
    return ["row", *labels, "--id", 3] if way == "row" else ["explain", *labels, "--out", place / "out.csv"]


@pytest.mark.parametrize(("way", "options", "message"), CASES, ids=str)
def test_an_invalid_query_has_the_same_message_as_elsewhere(
    way: str, options: dict[str, Any], message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    unknown = [f"--{name}" for name, label in options.items() if label == "d"]
    expected = re.sub(r"\b(target|against|beta|rule|threshold)\b", r"--\1", message)
    if unknown:
        expected = f"{unknown[0]} must be one of the clusters a, b, c; got 'd'."
    given = [part for name, value in options.items() for part in (f"--{name}", value)]
    assert invoke(capsys, *command(way, tmp_path), *given, "--quiet") == (2, "", f"whycluster: {expected}\n")
    assert not (tmp_path / "out.csv").exists()
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    "options", [{"rule": "joint"}, {"beta": 0.3}, {"against": "a"}, {"rule": "sequential"}], ids=str
)
def test_a_query_is_answered_as_explain_answers_it(
    options: dict[str, Any], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    given = [part for name, value in options.items() for part in (f"--{name}", value)]
    assert invoke(capsys, *command("table", tmp_path), *given, "--quiet")[0] == 0
    found = pl.read_csv(tmp_path / "out.csv")
    exp = wc.explain(GROUPS, FRAME, **options)
    np.testing.assert_allclose(found.select("x", "y", "z").to_numpy(), exp.relevance, rtol=1e-9, atol=1e-12)
    assert found["competitor"].to_list() == exp.competitor.tolist()


def test_a_threshold_for_a_mixture_in_files(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = command("folder", tmp_path)
    mixture = GaussianMixture(3, random_state=0).fit(ROWS)
    wc.save(wc.neuralize(mixture), tmp_path / "model")
    assert invoke(capsys, *arguments, "--threshold", 0.9, "--quiet")[0] == 0
    found = pl.read_parquet(tmp_path / "out" / "part.parquet")
    exp = wc.explain(mixture, ROWS, threshold=0.9)
    np.testing.assert_allclose(found.select("x", "y", "z").to_numpy(), exp.relevance, rtol=1e-9, atol=1e-12)


@pytest.mark.filterwarnings("error::whycluster.FewRowsWarning")
def test_a_table_of_few_rows_is_explained_without_python_warnings(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    FRAME[[0, 1, 2, 30, 31, 60, 61]].write_csv(tmp_path / "rows.csv")
    for command_name, *options in (["explain", "--report", tmp_path / "page.html"], ["row", "--id", 3]):
        code, _, err = invoke(capsys, command_name, tmp_path / "rows.csv", "--k", 3, *options)
        assert (code, err) == (0, "")
