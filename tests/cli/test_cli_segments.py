"""``whycluster fit`` and ``show``, and the other commands with ``--model``."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import whycluster as wc
from tests.segments.test_segmentation import customers

pl = pytest.importorskip("polars")
pytest.importorskip("click")
pytest.importorskip("safetensors")

from whycluster.cli import main

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("segments")
    customers().to_csv(path / "jan.csv", index=False)
    customers(1).to_csv(path / "feb.csv", index=False)
    names = path / "names.json"
    names.write_text(json.dumps({"0": "Loyal"}))
    out = str(path / "segments.why")
    options = ["--k", "3", "--names", str(names), "--out", out, "--quiet"]
    assert main(["fit", str(path / "jan.csv"), *options]) == 0
    return path


def run(capsys: pytest.CaptureFixture[str], *arguments: Any, code: int = 0) -> str:
    assert main([str(each) for each in arguments]) == code
    printed = capsys.readouterr()
    return printed.out if code == 0 else printed.err


def test_show(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    seg, frame = wc.load(folder / "segments.why"), customers()
    text = run(capsys, "show", folder / "segments.why")
    assert text.startswith("3 clusters of 120 rows and 4 columns.\n")
    for label, size in zip(["Loyal", 1, 2], seg.sizes.tolist(), strict=True):
        assert size == (seg.assign(frame) == label).sum()
        assert f"{label!s:<7}  {size:>4}  {size / 120:.1%}\n" in text
    assert " ".join(seg.quality.text.split()) in " ".join(text.split())
    assert f"numbers {frame['age'].isna().sum():>8}" in text
    assert f"{frame['since'].min().date()} to {frame['since'].max().date()}" in text
    assert "Bern, Oslo, Rome" in text
    told = wc.segment(frame[["age", "spend"]].assign(told=frame["age"] > 40), 2, measure_quality=False)
    wc.save(told, folder / "told.why")
    assert re.search(r"^told +booleans +0 +false and true$", run(capsys, "show", folder / "told.why"), re.M)
    facts = json.loads(run(capsys, "show", folder / "segments.why", "--json"))
    assert facts["rows"] == 120
    assert facts["clusters"][0] == {"cluster": "Loyal", "rows": int(seg.sizes[0])}
    assert list(facts["left_out"]) == ["CustomerID"]


def test_explain_applies_the_segmentation(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = folder / "feb.parquet"
    model = ("--model", folder / "segments.why")
    text = run(capsys, "explain", folder / "feb.csv", *model, "--out", out)
    assert "made on 120 rows." in text
    assert text.startswith("On the rows that the segmentation was made on, the clusters are ")
    expected = wc.load(folder / "segments.why").assign(pl.read_csv(folder / "feb.csv", try_parse_dates=True))
    assert pl.read_parquet(out)["cluster"].to_list() == [str(label) for label in expected]


def test_reasons_for_left_out_columns_are_those_of_the_first_file(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    model, file = tmp_path / "segments.why", tmp_path / "some.csv"
    frame = pl.DataFrame(
        {"name": [f"n{i}" for i in range(40)], "x": [i % 2 * 9.0 + i / 40 for i in range(40)]}
    )
    frame.write_csv(tmp_path / "all.csv")
    frame[:30].write_csv(file)
    reason = "left out: name (like an identifier, 40 of 40 values are distinct"
    assert main(["fit", str(tmp_path / "all.csv"), "--k", "2", "--out", str(model)]) == 0
    assert f"{reason})\n" in capsys.readouterr().err
    assert main(["explain", str(file), "--model", str(model)]) == 0
    assert f"{reason} in the data the clusters were made on)\n" in capsys.readouterr().err


def test_row_compare_report_and_evaluate(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file, model = folder / "feb.csv", ("--model", folder / "segments.why")
    facts = json.loads(run(capsys, "row", file, *model, "--id", 7, "--json"))
    seg, frame = wc.load(folder / "segments.why"), pl.read_csv(file, try_parse_dates=True)
    alone = seg.explain(frame[7:8])
    assert facts["cluster"] == alone.cluster[0]
    assert facts["evidence"] == alone.evidence[0]
    assert "the segmentation in" in run(capsys, "compare", file, *model, "Loyal", 1)
    run(capsys, "report", file, *model, "--out", folder / "feb.html", "--quiet")
    assert "made on" in (folder / "feb.html").read_text()
    text = run(capsys, "evaluate", file, *model, "--methods", "neon", "--repeats", 1)
    assert "features that the steps of the segmentation compute." in text


def test_a_folder(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("pyarrow")
    months, out = folder / "months", folder / "explained"
    months.mkdir()
    for seed in (2, 3):
        customers(seed).to_csv(months / f"{seed}.csv", index=False)
    run(capsys, "explain", months, "--model", folder / "segments.why", "--out", out, "--quiet")
    seg = wc.load(folder / "segments.why")
    found = pl.read_parquet(next(out.glob("2*.parquet")))
    whole = seg.explain(customers(2))
    assert found["cluster"].to_list() == [str(label) for label in whole.cluster]
    np.testing.assert_allclose(found["evidence"].to_numpy(), whole.evidence, rtol=1e-9)


def in_two_files(folder: Path, path: Path) -> Path:
    """Write the rows of February to two files with columns in another order, one of them without ages."""
    path.mkdir()
    frame = customers(1)
    frame.loc[60:, "age"] = np.nan
    frame[:60].to_csv(path / "a.csv", index=False)
    frame[60:][frame.columns[::-1]].to_csv(path / "b.csv", index=False)
    whole = folder / f"{path.name}.csv"
    frame.to_csv(whole, index=False)
    return whole


@pytest.mark.parametrize(
    "command",
    [
        ("row", "--id", 77, "--json"),
        ("compare", "Loyal", 1),
        ("rules",),
        ("evaluate", "--methods", "squared gradient", "--repeats", 1, "--json"),
    ],
)
def test_a_folder_is_read_as_one_table(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], command: Any
) -> None:
    path = tmp_path / "both"
    whole, options = in_two_files(tmp_path, path), ["--model", folder / "segments.why", *command[1:]]
    timed = r'"seconds": .*'
    together = re.sub(timed, "", run(capsys, command[0], path, *options))
    assert together == re.sub(timed, "", run(capsys, command[0], whole, *options))
    pattern = re.sub(timed, "", run(capsys, command[0], path / "*.csv", *options))
    assert pattern == together


def test_reports_and_segmentations_of_a_folder(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "both"
    whole = in_two_files(tmp_path, path)
    model = ("--model", folder / "segments.why")
    for name, file in (("both", path), ("whole", whole)):
        run(capsys, "report", file, *model, "--out", tmp_path / f"{name}.html", "--title", "x", "--quiet")
        run(capsys, "fit", file, "--k", 3, "--out", tmp_path / f"{name}.why", "--quiet")
    assert (tmp_path / "both.html").read_text() == (tmp_path / "whole.html").read_text()
    text = run(capsys, "show", tmp_path / "both.why")
    assert text == run(capsys, "show", tmp_path / "whole.why")


def test_notes_on_the_files_of_a_folder(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path, model = tmp_path / "both", ("--model", folder / "segments.why")
    path.mkdir()
    frame = customers(1)
    frame[:60].to_csv(path / "a.csv", index=False)
    frame[60:].assign(only_here=1).to_csv(path / "b.csv", index=False)
    (path / "c.csv").write_text(",".join(frame.columns) + "\n")  # an empty month
    (path / "readme.md").write_text("nothing")
    months = ["changes", str(path), str(path), *map(str, model), "--id", "CustomerID"]
    assert main(months) == 0
    printed = capsys.readouterr()
    assert "120 rows before and 120 after" in printed.out
    assert "both: skipped 1 file in the folder: ['readme.md']." in printed.err
    assert "both: left out: only_here (not in a.csv)\n" in printed.err
    new = frame[["age", "CustomerID"]].assign(CustomerID=frame["CustomerID"] + 1000)
    new.to_csv(path / "d.csv", index=False)
    assert main(months) == 2
    assert "missing: ['spend', 'city', 'since']" in capsys.readouterr().err
    (path / "e.csv").write_text("other\n1\n")
    assert main(months) == 2
    error = f"whycluster: {path}: its files must have columns in common; they have none.\n"
    assert capsys.readouterr().err == error


def test_files_of_other_types_in_a_folder(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    frame, model = customers(1), ("--model", folder / "segments.why")
    frame[:60].to_csv(tmp_path / "a.csv", index=False)
    last = pl.from_pandas(frame[60:]).with_columns(pl.col("city").cast(pl.Categorical))
    last.write_parquet(tmp_path / "b.parquet")
    row = ("row", tmp_path, *model, "--id", 77, "--json")
    facts = json.loads(run(capsys, *row))
    alone = wc.load(folder / "segments.why").explain(frame[77:78])
    assert (facts["cluster"], facts["evidence"]) == (alone.cluster[0], alone.evidence[0])
    last.with_columns(age=pl.col("since")).write_parquet(tmp_path / "b.parquet")
    assert run(capsys, *row, code=2) == (
        f"whycluster: {tmp_path}: column 'age' must have the same type in all files; it has Float64 in a.csv "
        f"and {last['since'].dtype} in b.parquet. Convert it first.\n"
    )


def test_a_month_in_which_clusters_vanished(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    seg, frame, month = wc.load(folder / "segments.why"), customers(1), tmp_path / "month.csv"
    options = (month, "--model", folder / "segments.why")
    labels = seg.assign(frame)
    frame[labels == 1].to_csv(month, index=False)
    text = run(capsys, "explain", *options)
    assert "No row is in clusters Loyal and 2, so no cluster is compared with them." in text
    error = run(capsys, "compare", *options, "Loyal", 2, code=2)
    assert "A and B must be clusters of rows in the table; no row is in 'Loyal' or 2.\n" in error
    assert run(capsys, "evaluate", *options, code=2) == (
        "whycluster: the table must contain rows of at least two clusters, so that a row whose values are "
        f"replaced can change its cluster; all rows ({(labels == 1).sum()}) are in cluster 1.\n"
    )
    frame[labels != 1].to_csv(month, index=False)
    text = run(capsys, "explain", *options)
    assert "No row is in cluster 1, so no cluster is compared with it." in text
    assert "No row" not in run(capsys, "explain", folder / "feb.csv", *options[1:])
    pl.concat([pl.read_csv(folder / "feb.csv")] * 2).write_csv(month)
    error = run(capsys, "evaluate", *options, code=2)
    assert "each of the 240 rows has a duplicate in the columns that are used." in error


def test_files_that_are_no_segmentation(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    jan = folder / "jan.csv"
    why = f"{str(jan)!r}: it must be a safetensors file (its header is too long, or truncated)"
    assert f"whycluster: --model: {why}" in run(capsys, "explain", jan, "--model", jan, code=2)
    assert f"whycluster: {why}" in run(capsys, "show", jan, code=2)


def test_the_rows_of_a_folder_are_checked(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("pyarrow")
    model, months, out = ("--model", folder / "segments.why"), folder / "checked", folder / "checked-out"
    months.mkdir()
    customers(2).to_csv(months / "feb.csv", index=False)
    customers(3).assign(city="Paris").to_csv(months / "mar.csv", index=False)
    cents = customers(4)
    cents["spend"] *= 1000
    cents.to_csv(months / "apr.csv", index=False)
    text = run(capsys, "explain", months, *model, "--out", out, code=2)
    assert "whycluster: in 'mar.csv', column 'city' holds ['Paris'] in 120 of 120 rows, which the" in text
    assert "1 of 3 parts could not be explained; the others are done. 'apr.csv': it must have the" in text
    assert "column 'spend' holds values about " in text
    assert "Convert them first, or add --no-check." in text
    assert sorted(path.name for path in out.glob("*.parquet")) == ["feb.csv.parquet", "mar.csv.parquet"]
    assert main(["verify", str(out)]) == 1
    run(capsys, "explain", months, *model, "--out", out, "--no-check", "--quiet")
    assert main(["verify", str(out)]) == 0
    text = run(capsys, "explain", months, "--out", out, "--no-check", code=2)
    assert text == (
        "whycluster: --no-check works only with --model, which names the segmentation to apply.\n"
    )


def test_a_file_with_one_row(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model, one, out = ("--model", folder / "segments.why"), folder / "one.csv", folder / "one.parquet"
    customers(2).iloc[[5]].to_csv(one, index=False)
    run(capsys, "explain", one, *model, "--out", out, "--quiet")
    expected = wc.load(folder / "segments.why").explain(customers(2).iloc[[5]])
    assert pl.read_parquet(out)["evidence"].to_list() == expected.evidence.tolist()
    customers(2).iloc[:0].to_csv(one, index=False)
    text = run(capsys, "explain", one, *model, code=2)
    assert text == f"whycluster: {one}: must contain at least one row; it contains no rows.\n"


def test_quotes_keywords_and_delimiters_in_names(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Also in categories; none of them is taken for code, markup or a delimiter."""
    names = {"age": "select", "spend": 'spend "EUR"', "city": "city; drop table x"}
    hostile = {"Bern": "it's", "Oslo": '<i>"x"</i>', "Rome": "a;b,c"}
    for month, seed in (("before", 0), ("after", 1)):
        frame = customers(seed).replace({"city": hostile}).rename(columns=names)
        frame.to_csv(folder / f"{month}.csv", index=False)
    before, after, out = (folder / name for name in ("before.csv", "after.csv", "hostile.why"))
    run(capsys, "fit", before, "--k", 3, "--out", out)
    shown = run(capsys, "show", out)
    assert all(name in shown for name in (*names.values(), *hostile.values()))
    page = folder / "hostile.html"
    run(capsys, "changes", before, after, "--model", out, "--id", "CustomerID", "--report", page)
    assert "<i>" not in page.read_text()


def test_rules(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model = ("--model", folder / "segments.why")
    facts = json.loads(run(capsys, "rules", folder / "feb.csv", *model, "--json"))
    frame = pl.read_csv(folder / "feb.csv", try_parse_dates=True)
    expected = wc.load(folder / "segments.why").explain(frame).rules()
    for cluster, rules in zip(facts["clusters"], expected, strict=True):
        assert cluster["cluster"] == rules.cluster
        assert (cluster["coverage"], cluster["precision"]) == (rules.coverage, rules.precision)
        found = [rule["conditions"] for rule in cluster["rules"]]
        assert found == [[condition.text for condition in rule.conditions] for rule in rules.rules]
    assert "the segmentation in" in run(capsys, "rules", folder / "feb.csv", *model)


def test_bad_input(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model = ("--model", folder / "segments.why")
    cents = customers(2)
    cents["spend"] *= 1000
    cents.to_csv(folder / "cents.csv", index=False)
    text = run(capsys, "explain", folder / "cents.csv", *model, code=2)
    assert "cents.csv: must have the columns and units of the rows that the segmentation was made" in text
    assert "column 'spend' holds values about " in text
    assert text.endswith("Convert them first, or add --no-check.\n")
    run(capsys, "explain", folder / "cents.csv", *model, "--no-check")
    customers(2).rename(columns={"age": "Age"}).to_csv(folder / "renamed.csv", index=False)
    assert "missing: ['age']" in run(capsys, "explain", folder / "renamed.csv", *model, code=2)
    text = run(capsys, "explain", folder / "feb.csv", *model, "--k", 3, code=2)
    assert text == "whycluster: --k applies to new clusters, but --model provides its own. Remove it.\n"
    wc.save(wc.neuralize([[0.0, 1.0], [1.0, 2.0]]), folder / "network")
    text = run(capsys, "show", folder / "network", code=2)
    assert text == (
        "whycluster: FILE must be a segmentation, written by whycluster fit or wc.save; "
        f"{folder / 'network'} contains a TableNetwork.\n"
    )
    before = (folder / "segments.why").read_bytes()
    run(capsys, "fit", folder / "jan.csv", "--out", folder / "segments.why", code=2)
    assert (folder / "segments.why").read_bytes() == before
