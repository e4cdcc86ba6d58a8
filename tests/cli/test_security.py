"""What hostile names and values can do to terminals, spreadsheets and files: nothing. See SECURITY.md."""

from __future__ import annotations

import ast
import csv
import os
import re
import subprocess
import sys
import unicodedata
from datetime import timedelta
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

import whycluster as wc
from tests.cli.test_cli import invoke
from whycluster.cli.writing import with_safe_cells
from whycluster.core.energies import SquaredEnergy

CONTROLS = "\x1b[31m\x07\x08\x9b31m\u202e\u2066\u200b\ufeff\r"
FORMULAS = ["=1+1", "+1+1", "-1+1", "@SUM(A1)", "\t=1", "\r=1", "\uff1d1+1"]
PLAIN = ["-5", "+5.", "-1e-3", "1+1", "'=1", " x", "", "a=b"]


def clusters(n: int = 60) -> dict[str, Any]:
    rng = np.random.default_rng(0)
    return {name: 5 * (np.arange(n) % 3) + rng.normal(size=n) for name in "ab"}


@pytest.fixture
def table(tmp_path: Path) -> Path:
    pl.DataFrame(clusters()).write_csv(tmp_path / "t.csv")
    return tmp_path / "t.csv"


def invisible(text: str) -> set[str]:
    return {c for c in text if unicodedata.category(c) in ("Cc", "Cf", "Cs", "Zl", "Zp")} - {"\n"}


@pytest.mark.parametrize("place", ["file", "folder", "column", "option", "labels"])
def test_no_control_character_reaches_the_terminal(
    place: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    frame = pl.DataFrame(
        {**clusters(), f"c{CONTROLS}": ["x"] * 60, f"d{CONTROLS}": ["x", CONTROLS, "z"] * 20}
    )
    frame.write_parquet("t.parquet")
    Path(f"n{CONTROLS}").mkdir()
    frame.write_parquet(Path(f"n{CONTROLS}", f"f{CONTROLS}.parquet"))
    Path(f"n{CONTROLS}", f"f{CONTROLS}.parquet").touch()
    Path(f"f{CONTROLS}.csv").write_text("a,b\n1,2\n3,4,5\n")
    calls: dict[str, list[tuple[Any, ...]]] = {
        "file": [
            ("explain", f"f{CONTROLS}.csv"),
            ("explain", f"gone{CONTROLS}.csv"),
            ("report", "t.parquet", "--k", 2, "--out", f"o{CONTROLS}.html"),
            ("explain", "t.parquet", "--out", f"{CONTROLS}/o.csv"),
        ],
        "folder": [
            ("explain", f"n{CONTROLS}"),
            ("explain", f"n{CONTROLS}", "--k", 2, "--out", f"o{CONTROLS}"),
            ("explain", f"n{CONTROLS}", "--model", f"m{CONTROLS}", "--out", "o"),
            ("verify", f"v{CONTROLS}"),
        ],
        "column": [("explain", "t.parquet", "--k", 2), ("explain", "t.parquet", "--ignore", "x")],
        "option": [
            ("explain", "t.parquet", "--k", CONTROLS),
            (CONTROLS,),
            ("explain", "t.parquet", "--labels", CONTROLS),
        ],
        "labels": [
            ("explain", "t.parquet", "--labels", f"d{CONTROLS}"),
            ("compare", "t.parquet", CONTROLS, "x", "--labels", f"d{CONTROLS}"),
            ("row", "t.parquet", "--id", 0, "--labels", f"d{CONTROLS}", "--target", CONTROLS),
        ],
    }
    for arguments in calls[place]:
        _, out, err = invoke(capsys, *arguments)
        assert r"\x1b[31m" in out + err
        assert invisible(out + err) == set()


def test_no_control_character_of_a_traceback_reaches_the_terminal() -> None:
    command = [sys.executable, "-m", "whycluster", "--debug", "explain", f"gone{CONTROLS}.csv"]
    ended = subprocess.run(command, capture_output=True, encoding="utf-8", check=False)
    assert (ended.returncode, ended.stdout) == (1, "")
    assert ended.stderr.startswith("Traceback (most recent call last):\n")
    assert ended.stderr.splitlines()[-1].startswith("whycluster.core.errors.InvalidInputError: gone\\x1b[31m")
    assert invisible(ended.stderr) == set()


def test_a_progress_bar_shows_control_characters_escaped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    titles = []
    from whycluster.cli import tables
    from whycluster.data.progress import Progress

    class Recorded(Progress):
        def __init__(self, title: str, n_steps: int | None, unit: str = "") -> None:
            titles.append(title)
            super().__init__(title, n_steps, unit)

    monkeypatch.setattr(tables, "Progress", Recorded)
    pl.DataFrame(clusters()).write_parquet(tmp_path / "x\x1b.parquet")
    assert invoke(capsys, "explain", tmp_path / "x\x1b.parquet", "--k", 2)[0] == 0
    assert titles[0] == r"reading x\x1b.parquet"


def test_formulas_get_a_quote_and_numbers_do_not() -> None:
    texts = [*FORMULAS, *PLAIN]
    frame = pl.DataFrame(
        {
            "=id": texts,
            "'=id": [-1.5] * len(texts),
            "-5": pl.Series(texts, dtype=pl.Enum(texts)),
            "n": pl.Series([None, *texts[1:]]),
        }
    )
    found = with_safe_cells(frame)
    expected = [f"'{text}" for text in FORMULAS] + PLAIN
    assert found.columns[1:] == ["'=id", "-5", "n"]
    assert found.columns[0].startswith("'=id")
    assert found.get_column(found.columns[0]).to_list() == found["-5"].to_list() == expected
    assert found["'=id"].to_list() == [-1.5] * len(texts)
    assert found["n"].to_list() == [None, *expected[1:]]


@pytest.mark.parametrize("kind", ["csv", "tsv"])
def test_safe_cells(kind: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Identifiers, labels, the names of columns and of the strongest features are text of the user."""
    frame = pl.DataFrame(
        {
            "@id": [f"={i}+1" for i in range(60)],
            "+label": ["=x", "-y", "z"] * 20,
            "=a": clusters()["a"],
            "b": clusters()["b"],
            "c": np.random.default_rng(1).normal(size=60),
        }
    )
    frame.write_parquet(tmp_path / "t.parquet")
    common = ("explain", tmp_path / "t.parquet", "--id", "@id", "--labels", "+label", "--quiet")
    for options, quote in (((), ""), (("--safe-cells",), "'")):
        out = tmp_path / f"o{len(quote)}.{kind}"
        assert invoke(capsys, *common, "--out", out, *options) == (0, "", "")
        with out.open(newline="") as file:
            rows = list(csv.reader(file, delimiter="\t" if kind == "tsv" else ","))
        assert rows[0][:4] == [f"{quote}@id", "cluster", "evidence", "competitor"]
        assert rows[0][4] == f"{quote}=a"
        assert rows[1][0] == f"{quote}=0+1"
        assert {row[1] for row in rows[1:]} == {f"{quote}=x", f"{quote}-y", "z"}
        assert f"{quote}=a" in {row[7] for row in rows[1:]} <= {f"{quote}=a", "b", "c"}
        assert any(row[6].startswith("-") for row in rows[1:])  # a number
        cells = [cell for row in rows for cell in row if cell.startswith(tuple("=+-@"))]
        assert bool(quote) == all(
            cell.lstrip("-").replace(".", "").replace("e-", "").isdigit() for cell in cells
        )


@pytest.mark.parametrize("out", [(), ("--out", "o.parquet"), ("--report", "o.html")])
def test_safe_cells_are_for_csv_only(
    out: tuple[str, ...], table: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert invoke(capsys, "explain", table, "--safe-cells", *out) == (
        2,
        "",
        "whycluster: --safe-cells works only if --out is a file of type .csv or .tsv.\n",
    )


def test_safe_cells_of_a_folder(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "in").mkdir()
    frame = pl.DataFrame({"=a": clusters()["a"], "-b": clusters()["b"], "c": ["-x", "=y", "z"] * 20})
    frame.write_parquet(tmp_path / "in" / "p.parquet")
    common = ("explain", tmp_path / "in", "--out", tmp_path / "o", "--k", 3, "--quiet")
    for options, quote in (((), ""), (("--safe-cells",), "'")):  # the second run only writes the summary
        assert invoke(capsys, *common, *options)[0] == 0
        with (tmp_path / "o" / "_summary.csv").open(newline="") as file:
            rows = list(csv.DictReader(file))
        assert {row["feature"] for row in rows} == {f"{quote}=a", f"{quote}-b", "c"}
        assert any(row["mean_inside"].startswith("-") for row in rows)  # a number
    assert pl.read_parquet(tmp_path / "o" / "p.parquet").columns[3:6] == ["=a", "-b", "c"]


def test_safe_cells_need_a_summary(table: Path, capsys: pytest.CaptureFixture[str]) -> None:
    options = ("--k", 3, "--out", table.with_name("o"), "--safe-cells", "--target", 0, "--quiet")
    assert invoke(capsys, "explain", f"{table.parent}/*.csv", *options) == (
        2,
        "",
        "whycluster: --safe-cells applies to the summary, which is not written with --target or --against. "
        "Remove it.\n",
    )


def test_safe_cells_of_labels_in_a_summary(tmp_path: Path) -> None:
    frame = pl.DataFrame(clusters())
    frame.write_parquet(tmp_path / "p.parquet")
    network = wc.TableNetwork(
        SquaredEnergy(np.array([[0.0, 0], [5, 5], [10, 10]])), labels=["=x", "-y", "-1"]
    )
    wc.explain_dataset(network, tmp_path / "p.parquet", tmp_path / "o", output="both", safe_cells=True)
    found = pl.read_csv(tmp_path / "o" / "_summary.csv")
    assert {*found["cluster"]} == {"'=x", "'-y", "-1"}


@pytest.mark.parametrize("exists", [True, False])
@pytest.mark.parametrize(("option", "name"), [("--out", "o.csv"), ("--report", "o.html")])
def test_nothing_is_written_through_a_link_unless_forced(
    option: str, name: str, exists: bool, table: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    link, target = table.with_name(name), table.with_name(f"elsewhere-{name}")
    link.symlink_to(target)
    if exists:
        target.write_text("precious")
    common = ("explain", table, "--k", 2, "--quiet", option, link)
    assert invoke(capsys, *common) == (
        2,
        "",
        f"whycluster: {option}: {link} is a link to {target}. Use the name of that file, or add --force to "
        "write to it.\n",
    )
    assert target.exists() == exists
    assert not exists or target.read_text() == "precious"
    assert invoke(capsys, *common, "--force") == (0, "", "")
    assert link.is_symlink()
    assert target.stat().st_size > 100


def test_a_link_to_the_input_is_never_written(table: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = table.read_bytes()
    for name, make in (("s.csv", os.symlink), ("h.csv", os.link)):
        make(table, table.with_name(name))
        code, _, err = invoke(capsys, "explain", table, "--k", 2, "--out", table.with_name(name), "--force")
        assert (code, "is the input table, which is never overwritten" in err) == (2, True)
    assert table.read_bytes() == before


def test_results_in_a_linked_folder_say_where_they_are(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("in", "real"):
        (tmp_path / name).mkdir()
    pl.DataFrame(clusters()).write_parquet(tmp_path / "in" / "a.parquet")
    (tmp_path / "out").symlink_to(tmp_path / "real")
    code, out, _ = invoke(capsys, "explain", tmp_path / "in", "--k", 2, "--out", tmp_path / "out")
    assert code == 0
    assert out.endswith(f"Explanations of all rows: {tmp_path / 'out'} (a link to {tmp_path / 'real'})\n")


def test_noise_is_compared_with_a_cluster(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pl.DataFrame({**clusters(), "label": np.arange(60) % 3 - 1}).write_csv(tmp_path / "t.csv")
    common = ("compare", tmp_path / "t.csv", "--labels", "label", "--quiet")
    for one, other in (("noise", 1), (0, "noise"), (0, 1)):
        code, out, _ = invoke(capsys, *common, one, other)
        assert (code, out.partition(";")[0]) == (0, f"40 rows, 20 in {one} and 20 in {other}")


def test_durations_identify_rows(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    times = [timedelta(seconds=i) for i in range(60)]
    pl.DataFrame({"t": times, **clusters()}).write_parquet(tmp_path / "t.parquet")
    common = (tmp_path / "t.parquet", "--k", 3, "--quiet")
    for kind in ("csv", "tsv", "parquet", "jsonl"):
        out = tmp_path / f"o.{kind}"
        assert invoke(capsys, "explain", *common, "--id", "t", "--out", out) == (0, "", "")
    assert pl.read_csv(tmp_path / "o.csv")["t"].to_list() == [str(time) for time in times]
    assert pl.read_parquet(tmp_path / "o.parquet")["t"].to_list() == times
    _, text, _ = invoke(capsys, "row", *common, "--id-column", "t", "--id", "0:00:07")
    assert text.startswith("Row 0:00:07 (position 7) is in cluster")


ROOT = Path(__file__).parents[2]
UNSAFE = re.compile(
    r"(pickle|marshal|shelve|joblib|dill|cloudpickle|torch|yaml)\.(load|loads|open|Unpickler)"
    r"|(builtins\.)?(eval|exec|compile)|os\.(system|popen)"
)


def unsafe_calls(path: Path) -> list[str]:
    """Return the calls in a module that unpickle, evaluate or run something."""
    found = []
    for node in ast.walk(ast.parse(path.read_text())):
        if not isinstance(node, ast.Call):
            continue
        name = ast.unparse(node.func)
        allows = any(k.arg == "allow_pickle" and ast.unparse(k.value) != "False" for k in node.keywords)
        if allows or UNSAFE.fullmatch(name):
            found.append(f"{path.name}: {name}")
    return found


def test_the_package_never_unpickles_or_evaluates(tmp_path: Path) -> None:
    modules = list((ROOT / "src" / "whycluster").rglob("*.py"))
    assert len(modules) > 100
    assert [call for path in modules for call in unsafe_calls(path)] == []
    (tmp_path / "m.py").write_text("pickle.load(f); eval(x); np.load(p, allow_pickle=True); torch.load(p)")
    assert len(unsafe_calls(tmp_path / "m.py")) == 4


def test_every_promise_is_kept_by_a_test() -> None:
    named = re.findall(r"`(tests/\S+)::(\w+)`", (ROOT / "SECURITY.md").read_text())
    assert len(named) >= 15
    for path, name in named:
        assert re.search(rf"^ *def {name}\(", (ROOT / path).read_text(), re.MULTILINE), name
