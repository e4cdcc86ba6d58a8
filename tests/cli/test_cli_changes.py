"""``whycluster changes``."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import whycluster as wc
from tests.segments.changes.months import NAMES, customers, segmentation

pl = pytest.importorskip("polars")
pytest.importorskip("click")
pytest.importorskip("safetensors")

from whycluster.cli import main

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("months")
    january = customers()
    february = january.assign(spend=january["spend"] + 40 * (january["CustomerID"] % 7 == 0)).iloc[3:]
    january.to_csv(path / "jan.csv", index=False)
    february.to_csv(path / "feb.csv", index=False)
    february.assign(spend=february["spend"] * 1000).to_csv(path / "cents.csv", index=False)
    wc.save(segmentation(january, names=NAMES), path / "segments.why")
    return path


def run(capsys: pytest.CaptureFixture[str], folder: Path, *arguments: Any, code: int = 0) -> tuple[str, str]:
    files = [str(folder / each) if str(each).endswith((".csv", ".html")) else str(each) for each in arguments]
    model = ["--model", str(folder / "segments.why")]
    assert main(["changes", *files, *model, "--id", "CustomerID"]) == code
    printed = capsys.readouterr()
    return printed.out, printed.err


def both(folder: Path) -> wc.Changes:
    seg, months = wc.load(folder / "segments.why"), [pl.read_csv(folder / f"{m}.csv") for m in ("jan", "feb")]
    return wc.changes(seg, *months, on="CustomerID")


def test_the_summary_is_that_of_python(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text, notes = run(capsys, folder, "jan.csv", "feb.csv", "--report", "changes.html")
    found = both(folder)
    assert text == f"{found.summary()}\n\nReport written to {folder / 'changes.html'}.\n"
    assert notes == ""
    assert "jan.csv and feb.csv" in (folder / "changes.html").read_text()


def test_json_counts_who_moved(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    facts = json.loads(run(capsys, folder, "jan.csv", "feb.csv", "--json")[0])
    seg, months = wc.load(folder / "segments.why"), [pl.read_csv(folder / f"{m}.csv") for m in ("jan", "feb")]
    first, second = (
        dict(zip(each["CustomerID"].to_list(), seg.assign(each).tolist(), strict=True)) for each in months
    )
    assert len(first) == len(second) + 3
    flows = {(flow["from"], flow["to"]): flow["rows"] for flow in facts["flows"]}
    for source in NAMES.values():
        for target in NAMES.values():
            n_rows = sum(first[name] == source and second[name] == target for name in second)
            assert flows.get((source, target), 0) == n_rows
    assert sum(first[name] != second[name] for name in second) > 0


def test_two_segmentations_are_matched(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    wc.save(segmentation(pl.read_csv(folder / "feb.csv").to_pandas()), folder / "new.why")
    text, _ = run(capsys, folder, "jan.csv", "feb.csv", "--new-model", folder / "new.why", "--quiet")
    seg, months = wc.load(folder / "segments.why"), [pl.read_csv(folder / f"{m}.csv") for m in ("jan", "feb")]
    assert text == f"{wc.changes(seg, wc.load(folder / 'new.why'), *months, on='CustomerID').summary()}\n"


def test_other_units_are_refused_unless_they_are_not_checked(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    _, error = run(capsys, folder, "jan.csv", "cents.csv", code=2)
    assert error == (
        "whycluster: changes: after must have the columns and units of the rows that the segmentation was "
        "made on; column 'spend' holds values about 1174 times larger (the median of its absolute values "
        "other than 0 is 25918 instead of 22.1). Convert them first, or add --no-check.\n"
    )
    run(capsys, folder, "jan.csv", "cents.csv", "--no-check")


def test_the_option_of_the_ids_is_named(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    files, model = [str(folder / f"{m}.csv") for m in ("jan", "feb")], str(folder / "segments.why")
    assert main(["changes", *files, "--model", model, "--id", "customer"]) == 2
    assert capsys.readouterr().err == (
        "whycluster: changes: before must have the column 'customer', which --id names; its columns are "
        "['CustomerID', 'age', 'spend', 'visits', 'city'].\n"
    )
