"""Input files, valid and invalid, and output files that must not be lost."""

from __future__ import annotations

import gzip
import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from polars.testing import assert_frame_equal

from tests.cli.test_cli import invoke, run
from whycluster.cli.reading import TableFile, read
from whycluster.cli.writing import write_table
from whycluster.core.errors import InvalidInputError
from whycluster.data.missing import MISSING_WORDS
from whycluster.engines.files.parts import find_parts

TABLE = pl.DataFrame(
    {
        "size": [1.5, 2.5, None, 4.0, 5.25],
        "count": [1, 2, 3, 4, 5],
        "kind": ["a", "b", None, "ä b", 'say "x", then'],
        "day": pl.Series(["2020-01-01", "2020-01-02", None, "2021-01-01", "2022-02-03"]).str.to_date(),
    }
)


@pytest.mark.parametrize("kind", ["csv", "tsv", "parquet", "arrow", "feather", "jsonl", "ndjson", "xlsx"])
def test_every_kind_of_file_gives_the_same_table(kind: str, tmp_path: Path) -> None:
    path = tmp_path / f"table.{kind}"
    frame = TABLE
    if kind in ("csv", "tsv"):
        frame.write_csv(path, separator=",\t"[kind == "tsv"])
    elif kind in ("jsonl", "ndjson"):
        frame.write_ndjson(path)
    else:
        writers: dict[str, Any] = {
            "parquet": frame.write_parquet,
            "arrow": frame.write_ipc,
            "feather": frame.write_ipc,
            "xlsx": frame.write_excel,
        }
        writers[kind](path)
    found = read(TableFile(path))
    assert_frame_equal(found, frame)


@pytest.mark.parametrize(
    ("content", "options"),
    [
        (b"a,b\n1,2.5\r\n3,4.5\n5,6\r\n", {}),  # mixed line endings
        (b"\xef\xbb\xbfa,b\n1,2.5\n3,4.5\n5,6\n", {}),  # a byte order mark
        (b"a;b\n1;2,5\n3;4,5\n5;6\n", {"delimiter": ";", "decimal": ","}),
        (b"a|b\n1|2.5\n3|4.5\n5|6\n", {"delimiter": "|"}),
        ("a,b\n1,2.5\n3,4.5\n5,6\n".encode("utf-16"), {"encoding": "utf-16"}),
        (gzip.compress(b"a,b\n1,2.5\n3,4.5\n5,6\n", mtime=0), {}),
    ],
)
def test_text_files_in_common_formats(content: bytes, options: dict[str, Any], tmp_path: Path) -> None:
    path = tmp_path / ("t.csv.gz" if content[:2] == b"\x1f\x8b" else "t.csv")
    path.write_bytes(content)
    assert_frame_equal(read(TableFile(path, **options)), pl.DataFrame({"a": [1, 3, 5], "b": [2.5, 4.5, 6.0]}))


def test_words_for_missing_values(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("a,b\n1,x\nNA,\nn/a,NULL\n2.5,y\n")
    found = read(TableFile(tmp_path / "t.csv"))
    assert found["a"].to_list() == [1.0, None, None, 2.5]
    assert found["b"].to_list() == ["x", None, None, "y"]


def test_a_note_suggests_other_words_for_missing_values(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    numbers = [str(value) for value in range(20, 60)]
    numbers[7] = "-"
    pl.DataFrame({"age": numbers, "b": list(range(0, 80, 2))}).write_csv(tmp_path / "t.csv")
    output = invoke(capsys, "explain", tmp_path / "t.csv", "--k", 2)[2]
    assert (
        "whycluster: 'age' is text, so each value is a category. Most values are numbers, but '-' is not. If "
        "it means missing, add --missing '-'.\n" in output
    )
    assert "text" not in invoke(capsys, "explain", tmp_path / "t.csv", "--k", 2, "--missing", "-")[2]
    assert read(TableFile(tmp_path / "t.csv", missing=("-",)))["age"].to_list()[6:9] == [26, None, 28]


def test_a_note_names_dates_in_another_format(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    days = [f"{1 + i % 12:02}/06/2021" for i in range(40)]
    pl.DataFrame({"day": days, "b": np.arange(40) % 7}).write_csv(tmp_path / "t.csv")
    assert invoke(capsys, "explain", tmp_path / "t.csv", "--k", 2)[2] == (
        "whycluster: 'day' is text, so each value is a category. To be recognized, all dates must be written "
        "as 2020-01-31; '01/06/2021' is not.\n"
    )
    days = [f"2021-06-{1 + i % 12:02}" for i in range(39)] + ["unknown"]
    pl.DataFrame({"day": days, "b": np.arange(40) % 7}).write_csv(tmp_path / "u.csv")
    assert invoke(capsys, "explain", tmp_path / "u.csv", "--k", 2)[2] == (
        "whycluster: 'day' is text, so each value is a category. To be recognized, all dates must be written "
        "as 2020-01-31; 'unknown' is not.\n"
    )


def test_more_clusters_than_distinct_rows(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pl.DataFrame({"a": [1.0, 2.0] * 15, "b": [0.0, 5.0] * 15}).write_csv(tmp_path / "t.csv")
    assert invoke(capsys, "explain", tmp_path / "t.csv", "--k", 3) == (
        2,
        "",
        "whycluster: --k must be at most 2, the number of distinct rows; got 3.\n",
    )


def test_ambiguous_identifiers(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """To count rows from 0 although a column holds other numbers would explain the wrong row."""
    ids = [*range(1, 40), 7]
    frame = pl.DataFrame({"customer_id": ids, "a": np.arange(40) % 7, "b": np.arange(40) % 5})
    frame.write_csv(tmp_path / "t.csv")
    common = (tmp_path / "t.csv", "--k", 2)
    problem = "'customer_id' looks like an identifier but contains duplicates.\n"
    assert f"whycluster: rows are numbered from 0: {problem}" in invoke(capsys, "explain", *common)[2]
    assert invoke(capsys, "row", *common, "--id", 5, "--quiet") == (
        2,
        "",
        f"whycluster: --id-column must name the column that identifies the rows: {problem}",
    )
    named = invoke(capsys, "row", *common, "--id", 5, "--id-column", "customer_id", "--quiet")[1]
    assert named.startswith("Row 5 (position 4) is in cluster")
    names = pl.Series("name", [f"n{i}" for i in range(40)])
    frame.with_columns(pl.Series("customer_id", np.arange(40)), names).rename(
        {"customer_id": "customer"}
    ).write_csv(common[0])
    assert (
        "rows are numbered from 0: 'customer', 'name' all look like identifiers. Choose one with --id.\n"
        in invoke(capsys, "explain", *common)[2]
    )


def test_ids_beside_addresses_identify_the_rows(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    texts = {"mail": [f"{i}@example.org" for i in range(40)], "customer_id": [f"C{i}" for i in range(40)]}
    pl.DataFrame({**texts, "a": np.arange(40) % 7, "b": np.arange(40) % 5}).write_csv(tmp_path / "t.csv")
    result = invoke(capsys, "row", tmp_path / "t.csv", "--k", 2, "--id", "C5")
    assert "rows are identified by 'customer_id'\n" in result[2]
    assert result[1].startswith("Row C5 (position 5) is in cluster")


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16", "gzip"])
def test_blank_lines_are_skipped_but_not_rows_without_values(encoding: str, tmp_path: Path) -> None:
    text = 'a,b\n1,"x\n\ny"\n\n,\r\n\r\n3,"""z"\n\n'
    path = tmp_path / ("t.csv.gz" if encoding == "gzip" else "t.csv")
    path.write_bytes(gzip.compress(text.encode()) if encoding == "gzip" else text.encode(encoding))
    found = read(TableFile(path, encoding="utf-8" if encoding == "gzip" else encoding))
    assert found.rows() == [(1, "x\n\ny"), (None, None), (3, '"z')]


@pytest.mark.parametrize(
    "text",
    [
        "a,b\n1,x\n\n3,y\n\n",
        "a\n1\n\n3\n",
        'a,b\n1,"NA"\n3,y\n5,""\n',
        'a,b\n"1","say ""x"", then"\n3,"p\n\nq"\n',
        "a,b\n" + "".join(f"{word},{word}\n" for word in MISSING_WORDS) + "1,x\n",
        "a,b\n1,True\n3,false\n",
    ],
)
def test_a_file_is_read_like_a_file_of_a_folder(text: str, tmp_path: Path) -> None:
    """Two readers, one set of rules."""
    (tmp_path / "t.csv").write_text(text)
    (part,) = find_parts(str(tmp_path), "explain")
    schema, _ = part.look()
    rows = [row for batch in part.batches(list(schema), 1000) for row in batch.to_pylist()]
    assert read(TableFile(tmp_path / "t.csv")).to_dicts() == rows


def test_column_types_are_inferred_from_all_rows_if_necessary(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("a\n" + "1\n" * 20_000 + "x\n")
    assert read(TableFile(tmp_path / "t.csv"))["a"].dtype == pl.String


@pytest.mark.parametrize(
    ("content", "options"),
    [
        (b"zip;x;y;z;n\n%b;0;0,5;-0,25;1\n1207;0;1;0e3;2\n", {"delimiter": ";", "decimal": ","}),
        (b'zip,x,y,z,n\n"%b",0,0.5,-0.25,1\n1207,0,1,0e3,2\n', {}),
        (b"zip\tx\ty\tz\tn\n%b\t0\t0.5\t-0.25\t1\n1207\t0\t1\t0e3\t2\n", {"delimiter": "\t"}),
    ],
)
@pytest.mark.parametrize("encoding", ["utf-8", "utf-16", "gzip"])
def test_integers_with_leading_zeros_are_text(
    content: bytes, options: dict[str, Any], encoding: str, tmp_path: Path
) -> None:
    path = tmp_path / ("t.csv.gz" if encoding == "gzip" else "t.csv")
    source = TableFile(path, **options, encoding="utf-8" if encoding == "gzip" else encoding)
    for value, column in ((b"00042", ["00042", "1207"]), (b"42", [42, 1207])):
        text = content % value
        path.write_bytes(gzip.compress(text) if encoding == "gzip" else text.decode().encode(encoding))
        rest = {"x": [0, 0], "y": [0.5, 1], "z": [-0.25, 0], "n": [1, 2]}
        assert_frame_equal(read(source), pl.DataFrame({"zip": column, **rest}))


def test_a_leading_zero_is_found_far_down(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("a,b,c\n" + "1,1.5,\n" * 20_000 + "007,007,\nNA,,007\n")
    found = read(TableFile(tmp_path / "t.csv"))
    assert found.dtypes == [pl.String] * 3
    assert found.rows()[-2:] == [("007", "007", None), (None, None, "007")]
    assert found.row(0) == ("1", "1.5", None)


def test_codes_are_categories_and_a_note_says_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rows = [f"{i:05},{['00123', '1207'][i % 2]},{i % 7 + 10 * (i % 2)}.5" for i in range(40)]
    (tmp_path / "t.csv").write_text("cust,zip,x\n" + "\n".join(rows) + "\n")
    code, out, notes = invoke(capsys, "explain", tmp_path / "t.csv", "--k", 2)
    assert code == 0
    assert notes == (
        "whycluster: left out: cust (like an identifier, 40 of 40 values are distinct)\n"
        "whycluster: rows are identified by 'cust'\n"
        "whycluster: 'zip' is text, so each value is a category. It contains numbers with leading zeros, "
        "such as '00123'.\n"
    )
    assert "00123" in out


def test_identifiers_keep_their_text(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    names = ["00042", "42", *map(str, range(100, 130))]
    versions = ["1.10", "1.1", *(f"2.{i}0" for i in range(30))]
    rows = [f"{names[i]},{versions[i]},{i % 7},{i % 5}" for i in range(32)]
    (tmp_path / "t.csv").write_text("k,version,a,b\n" + "\n".join(rows) + "\n")
    for column, expected in (("k", names), ("version", versions)):
        common = (tmp_path / "t.csv", "--k", 2, "--columns", "a,b", "--quiet")
        out = tmp_path / f"{column}.parquet"
        assert invoke(capsys, "explain", *common, "--id", column, "--out", out) == (0, "", "")
        assert pl.read_parquet(out)[column].to_list() == expected
        _, text, _ = invoke(capsys, "row", *common, "--id-column", column, "--id", expected[0])
        assert text.startswith(f"Row {expected[0]} (position 0) is in cluster")


def test_no_note_on_rows_without_identifiers(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pl.DataFrame({"a": np.arange(40) % 7, "b": np.arange(40) % 5}).write_csv(tmp_path / "t.csv")
    code, _, notes = invoke(capsys, "explain", tmp_path / "t.csv", "--k", 2, "--out", tmp_path / "o.csv")
    assert (code, notes) == (0, "")
    assert pl.read_csv(tmp_path / "o.csv")["row"].to_list() == list(range(40))


MISTAKES: dict[str, tuple[str, bytes | None, list[str], str]] = {
    "missing": ("no.csv", None, [], "there is no such file."),
    "unknown kind": ("t.doc", b"x", [], "must be a table in a supported format: .csv, .tsv, "),
    "empty": ("t.csv", b"", [], "is empty."),
    "empty parquet": ("t.parquet", b"", [], "is empty."),
    "binary": ("t.csv", bytes(range(256)), [], "contains binary data, not text."),
    "no parquet": ("t.parquet", b"this is no parquet file", [], "cannot be read as .parquet: "),
    "no arrow": ("t.arrow", b"this is no arrow file", [], "cannot be read as .arrow: "),
    "no json": ("t.jsonl", b'{"a": 1}\n{oops\n', [], "cannot be read as .jsonl: "),
    "no workbook": ("t.xlsx", b"this is no workbook", [], "cannot be read as a workbook: "),
    "header only": (
        "t.csv",
        b"a,b\n",
        [],
        "must contain at least two rows to be clustered; it contains no rows.",
    ),
    "one row": (
        "t.csv",
        b"a,b\n1,2\n",
        [],
        "must contain at least two rows to be clustered; it contains one row.",
    ),
    "semicolons": (
        "t.csv",
        b"a;b\n1;2\n3;4\n",
        [],
        "columns must be separated by commas; the first line contains semicolons. Add --delimiter ';'.",
    ),
    "tabs": (
        "t.csv",
        b"a\tb\n1\t2\n3\t4\n",
        [],
        "columns must be separated by commas; the first line contains tabs. Add --delimiter '\\t'.",
    ),
    "commas": (
        "t.tsv",
        b"a,b\n1,2\n3,4\n",
        [],
        "columns must be separated by tabs; the first line contains commas. Add --delimiter ','.",
    ),
    "a name twice": (
        "t.csv",
        b"a,b,a\n1,2,3\n3,4,5\n",
        [],
        "column names must be unique; 2 columns are called 'a'.",
    ),
    "a header twice": (
        "t.csv",
        b"a,b\n1,2\n3,4\na,b\n5,6\n",
        [],
        "the header must appear only once; row 2 below the header repeats it. Remove that row.",
    ),
    "ragged": (
        "t.csv",
        b"a,b\n1,2\n3,4,5\n",
        [],
        "line 3 has 3 values, but the header has 2 names. Quote values that contain commas.",
    ),
    "latin-1": (
        "t.csv",
        b"a,b\n1,x\n2,caf\xe9\n3,y\n",
        [],
        "is not valid UTF-8 in line 3. Specify its encoding, such as --encoding cp1252 or "
        "--encoding latin-1.",
    ),
    "utf-16": ("t.csv", "a,b\n1,2\n".encode("utf-16"), [], "is encoded in UTF-16. Add --encoding utf-16."),
    "another encoding": (
        "t.csv",
        b"a,b\n1,\x81\n",
        ["--encoding", "cp1252"],
        "is not encoded in cp1252. Use another --encoding.",
    ),
    "no encoding": (
        "t.csv",
        b"a,b\n1,2\n",
        ["--encoding", "klingon"],
        "--encoding must be a text encoding; got 'klingon'.",
    ),
    "decimal commas": (
        "t.csv",
        b'a,b\n"1,5",2\n"2,5",3\n',
        [],
        "column 'a' contains numbers with decimal commas, such as '1,5'. Add --decimal ','.",
    ),
    "carriage returns": (
        "t.csv",
        b"a,b\r1,2\r3,4\r",
        [],
        "contains lines that end with only a carriage return",
    ),
    "no header": (
        "t.csv",
        b"\n1,2\n3,4\n",
        [],
        "must begin with a line of column names; its first line is empty.",
    ),
    "all ignored": (
        "t.csv",
        b"a,b\n1,2\n3,4\n",
        ["--ignore", "a,b"],
        "the table must contain at least one column to cluster by; --ignore leaves none of 2.",
    ),
    "all constant": (
        "t.csv",
        b"a,b\n1,2\n1,2\n",
        [],
        "the table must contain at least one column to cluster by; none can be used. a: all values are the "
        "same; b: all values",
    ),
    "unknown column": (
        "t.csv",
        b"alpha,beta\n1,2\n3,4\n",
        ["--columns", "alpa"],
        "--columns must name columns of the table, such as alpha, ... (2 in total); got 'alpa'.",
    ),
    "one label": (
        "t.csv",
        b"a,b\n1,x\n3,x\n",
        ["--labels", "b"],
        "--labels: column 'b' must contain at least two clusters; all rows are in 'x'.",
    ),
    "identifiers as labels": (
        "t.csv",
        b"a,b\n" + b"".join(b"%d,c%d\n" % (i % 7, i // 2) for i in range(20)),
        ["--labels", "b"],
        "--labels: column 'b' must contain fewer clusters than half the number of rows; it contains 10 "
        "different values in 20 rows. Choose the column that contains the clusters, or omit --labels to "
        "create new clusters.",
    ),
    "a gap among labels": (
        "t.csv",
        b"a,b\n1,x\n3,\n4,y\n",
        ["--labels", "b"],
        "--labels: column 'b' must contain a cluster for every row; 1 of 3 rows lack one.",
    ),
    "too many clusters": (
        "t.csv",
        b"a,b\n1,2\n3,4\n",
        ["--k", "3"],
        "--k must be auto or a number from 2 to 2, the number of rows; got 3.",
    ),
    "too few different rows": (
        "t.csv",
        b"a,b\n1,2\n3,4\n3,4\n",
        ["--k", "3"],
        "--k must be at most 2, the number of distinct rows; got 3.",
    ),
    "thousands": (
        "t.csv",
        b'a,b\n"1,234.50",2\n"2,345.00",3\n"$3,000.10",4\n',
        [],
        "column 'a' contains numbers with extra characters, such as '1,234.50'. Remove the ",
    ),
    "some decimal commas": (
        "t.csv",
        b"a;b\n1;2\n1,5;3\n7,25e3;4\n",
        ["--delimiter", ";"],
        "column 'a' contains numbers with decimal commas, such as '1,5'. Add --decimal ','.",
    ),
    "a header twice with a gap": (
        "t.csv",
        b"a,,c\n1,2,3\na,,c\n4,5,6\n",
        [],
        "the header must appear only once; row 1 below the header repeats it. Remove that row.",
    ),
    "a header of another encoding": (
        "t.csv",
        b"caf\xe9,b\n1,2\n3,4\n",
        [],
        "is not valid UTF-8 in line 1. ",
    ),
    "a late name twice": (
        "t.csv",
        (",".join(f"column_{i}" for i in range(9000)) + ",column_3\n" + "1," * 9000 + "1\n").encode(),
        [],
        "column names must be unique; 2 columns are called 'column_3'.",
    ),
    "a pattern as a name": (
        "t.csv",
        b"^a.*$,b\n1,2\n3,4\n",
        [],
        "column names must not look like polars patterns; one is",
    ),
    "two signs": (
        "t.csv",
        b"a,b\n1,2\n",
        ["--delimiter", ";;"],
        "--delimiter must be a single ASCII character, or tab; got ';;'.",
    ),
    "a word that is not UTF-8": (
        "t.csv",
        b"a,b\n1,2\n",
        ["--missing", "\udcff"],
        "--missing must be valid UTF-8; got '\\udcff'.",
    ),
    "a sign that is not UTF-8": (
        "t.csv",
        b"a,b\n1,2\n",
        ["--delimiter", "\udcff"],
        "--delimiter must be a single ASCII character, or tab; got '\\udcff'.",
    ),
    "an encoding of no text": (
        "t.csv",
        b"a,b\n1,2\n",
        ["--encoding", "hex"],
        "--encoding must be a text encoding; got",
    ),
    "half a gzip": (
        "t.csv.gz",
        gzip.compress(b"a,b\n" + b"1,2\n" * 999, mtime=0)[:-20],
        [],
        "is damaged: its compressed data end too early.",
    ),
    "lists as labels": (
        "t.jsonl",
        b'{"a": 1, "l": [1]}\n{"a": 2, "l": [2]}\n',
        ["--labels", "l"],
        "--labels must be a column of single values; 'l' has type List(Int64).",
    ),
    "infinity": ("t.csv", b"a,b\n1,2\ninf,3\n4,5\n", ["--k", "2"], "column 'a' must hold finite numbers"),
}


@pytest.mark.parametrize("case", MISTAKES)
@pytest.mark.parametrize("command", ["explain", "report"])
def test_a_mistake_is_one_line_and_nothing_is_written(
    case: str,
    command: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    name, content, options, message = MISTAKES[case]
    monkeypatch.chdir(tmp_path)
    if content is not None:
        Path(name).write_bytes(content)
    out = "o.html" if command == "report" else "o.csv"
    code, printed, err = invoke(capsys, command, name, "--out", out, "--quiet", *options)
    assert (code, printed) == (2, "")
    assert message in err
    assert err.count("\n") == 1, err
    assert sorted(path.name for path in tmp_path.iterdir()) == [name] * (content is not None)


def test_a_folder_needs_out(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert invoke(capsys, "explain", tmp_path)[::2] == (
        2,
        f"whycluster: {tmp_path}: to explain a folder or a pattern, add --out with a folder for the results, "
        "or pass a single file instead.\n",
    )


@pytest.mark.slow
def test_a_process_prints_errors_to_stderr(tmp_path: Path) -> None:
    result = run("explain", tmp_path / "no.csv")
    assert (result.returncode, result.stdout) == (2, "")
    assert result.stderr == f"whycluster: {tmp_path / 'no.csv'}: there is no such file.\n"


@pytest.fixture
def table(tmp_path: Path) -> Path:
    values = np.random.default_rng(0).normal(size=(60, 3))
    pl.DataFrame(values, schema=["a", "b", "c"]).write_csv(tmp_path / "t.csv")
    return tmp_path / "t.csv"


@pytest.mark.parametrize(("option", "name"), [("--out", "o.csv"), ("--report", "o.html")])
def test_existing_files_are_overwritten_only_with_force(
    option: str, name: str, table: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = table.with_name(name)
    path.write_text("precious")
    common = ("explain", table, "--k", 3, "--quiet", option, path)
    assert invoke(capsys, *common) == (
        2,
        "",
        f"whycluster: {option}: {path} already exists. Use another name, or add --force to overwrite it.\n",
    )
    assert path.read_text() == "precious"
    assert invoke(capsys, *common, "--force") == (0, "", "")
    assert "precious" not in path.read_text()
    assert len(list(table.parent.iterdir())) == 2


@pytest.mark.parametrize(
    ("out", "message"),
    [
        ("no/such/o.csv", "o.csv must be written to an existing folder; {folder}/no/such does not exist."),
        (
            "o.doc",
            "--out must be a file of type .parquet, .csv, .tsv, .arrow, .jsonl; got {folder}/o.doc.",
        ),
        ("t.csv", "{folder}/t.csv is the input table, which is never overwritten. Use another name."),
        ("folder.csv", "{folder}/folder.csv is a folder. Use the name of a file instead."),
    ],
)
def test_invalid_outputs(out: str, message: str, table: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (table.parent / "folder.csv").mkdir()
    before = table.read_bytes()
    code, _, err = invoke(capsys, "explain", table, "--k", 3, "--out", table.parent / out, "--force")
    assert code == 2
    assert message.format(folder=table.parent) in err
    assert err.count("\n") == 1
    assert table.read_bytes() == before


def test_a_folder_that_cannot_be_written(table: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Not even root can write there."""
    code, _, err = invoke(capsys, "explain", table, "--k", 3, "--out", "/proc/self/o.csv")
    assert code in (1, 2)
    assert "/proc/self/o.csv" in err
    assert err.count("\n") == 1


def test_labels_of_any_kind_can_be_written(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rng = np.random.default_rng(0)
    where = np.arange(60) % 3
    days = [["2020-01-01", "2020-02-01", "2021-05-05"][i] for i in where]
    frame = pl.DataFrame({"a": where + rng.normal(0, 0.1, 60), "noise": where - 1, "day": days})
    frame.write_csv(tmp_path / "t.csv")
    for label, expected in (("noise", {"0", "1", "noise"}), ("day", set(days))):
        out = tmp_path / f"{label}.csv"
        options = ("--labels", label, "--columns", "a", "--quiet", "--out", out)
        assert invoke(capsys, "explain", tmp_path / "t.csv", *options) == (0, "", "")
        assert set(pl.read_csv(out, infer_schema=False)["cluster"]) == expected


def test_rows_without_an_identifier_are_numbered(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    names = [f"n{i}" for i in range(40)]
    frame = pl.DataFrame({"who": [*names[:-1], None], "a": np.arange(40) % 7, "b": np.arange(40) % 5})
    frame.write_csv(tmp_path / "t.csv")
    options = ("--id", "who", "--k", 2, "--quiet", "--report", tmp_path / "o.html")
    assert invoke(capsys, "explain", tmp_path / "t.csv", *options) == (0, "", "")


@pytest.mark.slow
def test_json_is_json_on_every_console(tmp_path: Path) -> None:
    values = np.random.default_rng(0).normal(size=(40, 2))
    pl.DataFrame(values, schema=["é😀", "b"]).write_csv(tmp_path / "t.csv")
    output = run(
        "explain", tmp_path / "t.csv", "--k", 2, "--json", "--quiet", PYTHONIOENCODING="ascii"
    ).stdout
    assert json.loads(output)["columns"] == ["é😀", "b"]


def test_a_tab_can_be_given_as_the_message_suggests(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "t.csv").write_text("a\tb\n1\t2\n3\t4\n8\t9\n")
    for sign in ("\\t", "tab", "\t"):
        assert invoke(capsys, "explain", tmp_path / "t.csv", "--k", 2, "--delimiter", sign, "--quiet")[0] == 0


def test_names_with_quotes_and_numbers_with_many_digits(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text(f'"a ""b""",c\n{10**30},2\n{10**30 + 1},4\n')
    found = read(TableFile(tmp_path / "t.csv"))
    assert found.columns == ['a "b"', "c"]
    assert found['a "b"'].to_list() == [str(10**30), str(10**30 + 1)]


def test_names_of_files_in_another_encoding(table: Path, capsys: pytest.CaptureFixture[str]) -> None:
    odd = table.with_name(os.fsdecode(b"caf\xe9.csv"))
    table.rename(odd)
    assert (
        "must have a name in valid UTF-8, which polars requires. Rename it."
        in invoke(capsys, "explain", odd)[2]
    )
    odd.rename(table)
    code, _, err = invoke(capsys, "explain", table, "--k", 3, "--out", odd)
    assert (code, err.count("\n")) == (2, 1)
    assert "must be valid UTF-8, including its folders. Use another name." in err
    assert list(table.parent.iterdir()) == [table]


def test_devices_and_files_created_meanwhile_are_kept(
    table: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    pipe, late = table.with_name("pipe.csv"), table.with_name("late.csv")
    os.mkfifo(pipe)
    common = ("explain", table, "--k", 3, "--quiet", "--out")
    assert "is not a file but a device or a pipe" in invoke(capsys, *common, pipe, "--force")[2]
    assert "is not a regular file but a pipe or a device" in invoke(capsys, "explain", pipe)[2]

    def create_first(frame: pl.DataFrame, path: Path, force: bool) -> None:
        late.write_text("precious")
        write_table(frame, path, force)

    monkeypatch.setattr("whycluster.cli.explain.write_table", create_first)
    code, _, err = invoke(capsys, *common, late)
    assert (code, late.read_text()) == (2, "precious")
    assert (
        err
        == f"whycluster: {late} was created in the meantime. Use another name, or add --force to overwrite "
        "it.\n"
    )
    link = table.with_name("o.html")
    link.symlink_to(table.with_name("o.csv"))
    assert (
        "--out and --report must be different files"
        in invoke(capsys, *common, table.with_name("o.csv"), "--report", link)[2]
    )


@pytest.mark.slow
def test_ten_thousand_columns(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rng = np.random.default_rng(0)
    values = rng.normal(size=(30, 10_000)) + 3 * (np.arange(30) % 2)[:, None]
    pl.DataFrame(values).write_parquet(tmp_path / "wide.parquet")
    code, out, _ = invoke(
        capsys, "explain", tmp_path / "wide.parquet", "--k", 2, "--out", tmp_path / "o.parquet"
    )
    assert code == 0
    assert "30 rows, 10,000 columns; k-means with 2 clusters." in out
    assert pl.read_parquet(tmp_path / "o.parquet").shape == (30, 4 + 10_000 + 5)


def test_markup_and_control_characters_in_names_are_text(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rng = np.random.default_rng(0)
    names = ["<script>alert(1)</script>", "\x1b[31mred", "a\nb"]
    pl.DataFrame(rng.normal(size=(40, 3)), schema=names).write_parquet(tmp_path / "t.parquet")
    code, out, _ = invoke(capsys, "explain", tmp_path / "t.parquet", "--k", 2)
    assert code == 0
    assert "\x1b" not in out
    assert "<script>alert(1)</script>" in out
    assert r"a\nb" in out


def test_errors_name_the_file(tmp_path: Path) -> None:
    with pytest.raises(InvalidInputError, match=r"x\.csv: there is no such file"):
        read(TableFile(tmp_path / "x.csv"))
