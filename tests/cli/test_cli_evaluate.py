"""``whycluster evaluate``."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from tests.optional import load_frame
from whycluster import cli


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Iris with a name, a constant, a gap and a species."""
    iris = load_frame("iris")
    frame = iris.data.copy()
    frame.columns = ["sepal length", "sepal width", "petal length", "petal width"]
    frame["who"] = [f"flower {i}" for i in range(150)]
    frame["year"] = 1936
    frame["species"] = iris.target_names[iris.target]
    frame.loc[3, "petal width"] = np.nan
    path = tmp_path_factory.mktemp("evaluate") / "iris.csv"
    frame.to_csv(path, index=False)
    return path


def evaluate(capsys: pytest.CaptureFixture[str], *arguments: Any) -> tuple[int, str, str]:
    code = cli.main(["evaluate", *map(str, arguments)])
    captured = capsys.readouterr()
    return code, captured.out, captured.err


def test_a_file_is_clustered_and_methods_compared(table: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = evaluate(capsys, table, "--k", 3, "--repeats", 2, "--checks")
    assert (code, err) == (0, "")
    assert "149 rows, 4 columns, standardized; k-means with 3 clusters." in out
    assert (
        "Left out: who (like an identifier, 150 of 150 values are distinct), year (all values are the "
        "same), species (String, not numeric)." in out
    )
    assert "Left out because of missing values: 1 of 150 rows." in out
    for name in ("greedy oracle", "neon sequential", "shapley", "random", "conservation", "stability"):
        assert name in out
    assert out.index("greedy oracle") < out.index("neon") < out.index("random")


def test_labels_of_a_column(table: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = evaluate(capsys, table, "--labels", "species", "--methods", "neon,random", "--repeats", 2)
    assert code == 0
    assert "a surrogate of 'species' that predicts" in out
    assert "shapley" not in out


def test_other_kinds_of_files(table: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    frame = pd.read_csv(table)
    frame.to_parquet(tmp_path / "iris.parquet")
    frame.to_csv(tmp_path / "iris.tsv", sep="\t", index=False)
    options = ("--k", 3, "--methods", "neon,random", "--repeats", 1, "--seed", 5)
    expected = _tables(evaluate(capsys, table, *options)[1])
    for name in ("iris.parquet", "iris.tsv"):
        assert _tables(evaluate(capsys, tmp_path / name, *options)[1]) == expected


def _tables(out: str) -> list[list[str]]:
    """Methods and AUC, without the seconds."""
    return [line.split()[:-1] for line in out.splitlines() if line.startswith(("neon", "random", "greedy"))]


def test_a_surrogate_that_matches_badly_is_reported(table: Path, capsys: pytest.CaptureFixture[str]) -> None:
    frame = pd.read_csv(table)
    frame["any"] = np.random.default_rng(0).integers(3, size=len(frame))
    frame.to_csv(table.with_name("any.csv"), index=False)
    options = ("--labels", "any", "--methods", "random", "--repeats", 1, "--checks", "--rule", "joint")
    code, out, _ = evaluate(capsys, table.with_name("any.csv"), *options)
    assert code == 0
    assert "which is low: the results describe the surrogate, not the labels" in out
    assert "rule 'joint'" in out


def test_many_rows_are_sampled(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    X = np.random.default_rng(0).normal(size=(500, 3))
    pd.DataFrame(X, columns=list("abc")).to_csv(tmp_path / "t.csv", index=False)
    code, out, _ = evaluate(
        capsys, tmp_path / "t.csv", "--k", 4, "--rows", 100, "--methods", "random", "--repeats", 1
    )
    assert code == 0
    assert "Only 100 of 500 rows are evaluated, chosen at random." in out


def test_columns_can_be_ignored(table: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = evaluate(
        capsys,
        table,
        "--k",
        3,
        "--ignore",
        "sepal width,year",
        "--ignore",
        "who",
        "--methods",
        "random",
        "--repeats",
        1,
    )
    assert code == 0
    assert "3 columns, standardized" in out
    assert "year" not in out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["nothing.csv", "--k", 3], "nothing.csv: there is no such file"),
        (["TABLE", "--k", 3, "--seed", -1], "'--seed': -1 is not in the range 0<=x<=4294967295"),
        (["TABLE", "--k", 1], "--k must be auto or a number from 2 to 149, the number of rows; got 1"),
        (["TABLE", "--labels", "kind"], "--labels must name columns of the table, such as .*; got 'kind'"),
        (
            ["TABLE", "--labels", "who"],
            "--labels: column 'who' must contain fewer clusters than half the number of rows; it contains "
            "150 different values in 150 rows. Choose the column that contains the clusters, or omit "
            "--labels to create new clusters.",
        ),
        (["TABLE", "--k", 3, "--ignore", "kind"], "--ignore must name columns of the table.*got 'kind'"),
        (["TABLE", "--k", 3, "--methods", "magic"], "methods must be among 'random'.*; got 'magic'"),
        (["TABLE", "--k", 3, "--repeats", 0], "'--repeats': 0 is not in the range x>=1"),
        (["TABLE", "--k", 3, "--rows", 0], "'--rows': 0 is not in the range x>=2"),
    ],
)
def test_mistakes_are_one_line(
    table: Path, capsys: pytest.CaptureFixture[str], arguments: list[Any], message: str
) -> None:
    given = [table if argument == "TABLE" else argument for argument in arguments]
    code, out, err = evaluate(capsys, *given)
    assert code == 2
    assert out == ""
    assert re.search(message, err), err
    assert err.count("\n") == 1


def test_a_folder_without_tables(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, _, err = evaluate(capsys, tmp_path, "--k", 3)
    assert code == 2
    assert err == (
        f"whycluster: {tmp_path}: data must contain files of type .parquet, .parq, .pq, .csv, .tsv; found "
        f"none at {str(tmp_path)!r}.\n"
    )


def test_files_that_cannot_be_read(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "broken.parquet").write_bytes(b"no parquet at all")
    assert "broken.parquet: cannot be read" in evaluate(capsys, tmp_path / "broken.parquet", "--k", 2)[2]
    (tmp_path / "words.csv").write_text("a,b\nx,y\nz,w\n")
    assert "numeric columns that vary" in evaluate(capsys, tmp_path / "words.csv", "--k", 2)[2]
    (tmp_path / "large.csv").write_text("a,b\n" + "\n".join(f"{i},{i}e300" for i in range(1, 20)))
    assert "column 'b' must hold finite numbers" in evaluate(capsys, tmp_path / "large.csv", "--k", 2)[2]
    (tmp_path / "gaps.csv").write_text("a,b\n1,\n2,\n,3\n,4\n")
    assert "0 of 4 rows have no missing values" in evaluate(capsys, tmp_path / "gaps.csv", "--k", 2)[2]


def test_labels_are_checked_too_and_may_be_missing(
    table: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    frame = pd.read_csv(table)
    frame.loc[:4, "species"] = None
    frame.to_csv(tmp_path / "gaps.csv", index=False)
    code, out, _ = evaluate(
        capsys,
        tmp_path / "gaps.csv",
        "--labels",
        "species",
        "--methods",
        "random",
        "--repeats",
        1,
        "--checks",
    )
    assert code == 0
    assert "Left out because of missing values: 5 of 150 rows." in out  # one of them has two
    assert "Left out:" in out
    assert "stability (" in out
    assert "randomization" in out


def test_columns_have_their_names_in_messages(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A column may vary over all rows but not over the evaluated ones."""
    X = np.random.default_rng(0).normal(size=(400, 3)).round(3)
    frame = pd.DataFrame(X, columns=["a", "b", "seldom"])
    frame["seldom"] = 0.0
    frame.loc[0, "seldom"] = 1.0
    frame.to_csv(tmp_path / "seldom.csv", index=False)
    code, out, err = evaluate(
        capsys, tmp_path / "seldom.csv", "--k", 3, "--rows", 50, "--methods", "neon", "--repeats", 1
    )
    assert (code, err) == (0, "")
    assert "3 columns" in out


@pytest.mark.slow
def test_a_reader_that_leaves_early_and_a_console_of_few_characters(table: Path, tmp_path: Path) -> None:
    command = f"{sys.executable} -m whycluster evaluate {table} --k 3 --methods random --repeats 1"
    left = subprocess.run(f"{command} | true", shell=True, capture_output=True, text=True, check=False)
    assert left.stderr == ""
    pd.read_csv(table).rename(columns={"who": "wér"}).to_csv(tmp_path / "odd.csv", index=False)
    result = subprocess.run(
        [
            sys.executable,
            "-m",
            "whycluster",
            "evaluate",
            tmp_path / "odd.csv",
            "--k",
            "3",
            "--methods",
            "random",
        ],
        env={**os.environ, "PYTHONIOENCODING": "ascii"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert result.returncode == 0, result.stderr
    assert r"w\xe9r" in result.stdout


def test_a_table_of_duplicates(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "t.csv").write_text("a,b\n" + "1,2\n3,5\n4,4\n" * 4)
    assert evaluate(capsys, tmp_path / "t.csv", "--k", 2) == (
        2,
        "",
        "whycluster: the table must contain rows without duplicates, since values are drawn from their "
        "estimated density; each of the 12 rows has a duplicate in the columns that are used. "
        "Remove the duplicates.\n",
    )
