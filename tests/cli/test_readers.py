"""One file, one answer: single files, folders and Python's csv module read the same rows."""

from __future__ import annotations

import csv
import gzip
import io
import random
import subprocess
import sys
import tracemalloc
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

pytest.importorskip("pyarrow", reason="pyarrow is not installed")

import pyarrow as pa
import pyarrow.parquet as pq

from tests.cli.test_cli import invoke
from whycluster.cli import reading
from whycluster.cli.reading import TableFile, read
from whycluster.core.errors import InvalidInputError
from whycluster.data.missing import MISSING_WORDS
from whycluster.engines.files.parts import PartError, find_parts
from whycluster.engines.files.parts import reading as reading_part

Rows = list[tuple[Any, ...]]

REGULAR = ("1", "2.5", "x", "y z", '"q"', '"a,b"', '"l\nm"', '"a ""b"""', "", " ", "NA", '"NA"', '""')
STRAY = ('5"', 'a"b', '"x"y', '"', "'")


def rows_of_csv(text: str) -> Rows | None:
    """Return the rows by Python's csv module, or None if they have different lengths."""
    header, *rows = csv.reader(io.StringIO(text, newline=""))
    rows = [row or [""] for row in rows if row or len(header) == 1]
    if any(len(row) != len(header) for row in rows):
        return None
    return [tuple(None if value in MISSING_WORDS else value for value in row) for row in rows]


def rows_of_file(path: Path) -> Rows | None:
    try:
        return read(TableFile(path)).rows()
    except InvalidInputError as error:
        assert "but the header has" in str(error)  # noqa: PT017  # any other error fails
        return None


def rows_of_folder(folder: Path) -> Rows | None:
    (part,) = find_parts(str(folder), "explain")
    try:
        with reading_part():
            schema, _ = part.look()
            batches = list(part.batches(list(schema), 1000))
    except PartError as error:
        assert "Expected" in str(error)  # noqa: PT017  # any other error fails
        return None
    return [tuple(row.values()) for batch in batches for row in batch.to_pylist()]


def as_text(rows: Rows | None) -> list[list[str | None]] | None:
    """Return numbers as text in one form: 1.0 and 1 are the same."""
    if rows is None:
        return None
    return [[None if value is None else _plain(str(value)) for value in row] for row in rows]


def _plain(text: str) -> str:
    try:
        return repr(float(text))
    except ValueError:
        return text


def some_text(rng: random.Random, values: tuple[str, ...]) -> str:
    n_columns, end = rng.choice([1, 2, 2, 3]), rng.choice(["\n", "\r\n"])
    lines = [",".join("abc"[:n_columns]), *(",".join("x" * n_columns) for _ in range(2))]
    for _ in range(rng.randint(1, 6)):
        row = ",".join(rng.choice(values) for _ in range(n_columns))
        lines.insert(rng.randint(1, len(lines)), rng.choice([row, row, row, ""]))
    return end.join(lines) + rng.choice([end, end, ""])


@pytest.mark.parametrize("kind", ["regular", "stray"])
def test_files_folders_and_csv_read_the_same_rows(kind: str, tmp_path: Path) -> None:
    """Stray quotes are read as by csv. Rows of other lengths than the header are errors."""
    rng = random.Random(0)
    values = REGULAR if kind == "regular" else (*REGULAR, *STRAY)
    n_errors = 0
    for _ in range(300):
        text = some_text(rng, values)
        (tmp_path / "t.csv").write_bytes(text.encode())
        expected = rows_of_csv(text)
        n_errors += expected is None
        if expected is None or len(expected) > 1:  # a single row cannot be clustered
            assert as_text(rows_of_file(tmp_path / "t.csv")) == as_text(expected), text
        assert as_text(rows_of_folder(tmp_path)) == as_text(expected), text
    assert n_errors == (0 if kind == "regular" else n_errors) < 150


@pytest.mark.parametrize(
    ("text", "rows"),
    [
        ("a,b\n1,2\n3,4\n\n", [(1, 2), (3, 4)]),
        ("a,b\r\n1,2\r\n\r\n\r\n3,4\r\n\r\n", [(1, 2), (3, 4)]),
        ("a,b\n1,\n\n,\n3,4\n", [(1, None), (None, None), (3, 4)]),
        ('a,b\n1,"x\n\ny"\n\n3,z\n', [(1, "x\n\ny"), (3, "z")]),
        ("a\n1\n\n3\n\n", [(1,), (None,), (3,), (None,)]),  # as polars and pyarrow write missing values
        ("\ufeffa\r\n1\r\n\r\n3\r\n", [(1,), (None,), (3,)]),
        ('"a,b"\n1\n\n3\n', [(1,), (None,), (3,)]),
        ('a,b\n1,5"\n2,6"\n', [(1, '5"'), (2, '6"')]),
    ],
)
def test_blank_lines(text: str, rows: Rows, tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_bytes(text.encode())
    assert rows_of_file(tmp_path / "t.csv") == rows_of_folder(tmp_path) == rows


def test_missing_values_of_one_column_survive_writing_and_reading(tmp_path: Path) -> None:
    frame = pl.DataFrame({"a": [1, None, 3, None]})
    frame.write_csv(tmp_path / "t.csv")
    assert rows_of_file(tmp_path / "t.csv") == rows_of_folder(tmp_path) == frame.rows()


def test_a_row_that_is_too_short_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text('a,b\n1,"2\n"\n\n3\n4,5\n')
    with pytest.raises(InvalidInputError) as error:
        read(TableFile(tmp_path / "t.csv"))
    assert str(error.value) == (
        f"{tmp_path / 't.csv'}: line 5 has 1 value, but the header has 2 names. Complete the line, or remove "
        "it."
    )


def test_a_folder_needs_column_names_in_the_first_line(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("\n1,2\n3,4\n")
    (part,) = find_parts(str(tmp_path), "explain")
    with pytest.raises(PartError) as error, reading_part():
        part.look()
    assert str(error.value) == (
        "it cannot be read (it must begin with a line of column names; its first line is empty)"
    )


def write(frame: pl.DataFrame, path: Path, kind: str) -> None:
    writers: dict[str, Any] = {
        "csv": frame.write_csv,
        "tsv": lambda file: frame.write_csv(file, separator="\t"),
        "parquet": frame.write_parquet,
        "arrow": frame.write_ipc,
        "feather": frame.write_ipc,
        "jsonl": frame.write_ndjson,
        "ndjson": frame.write_ndjson,
        "xlsx": frame.write_excel,
    }
    with path.open("wb") as file:
        writers[kind](file)


@pytest.mark.parametrize("kind", ["csv", "tsv", "parquet", "arrow", "feather", "jsonl", "ndjson", "xlsx"])
def test_no_other_file_than_the_named_one_is_read(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The signs [ ] * ? and ~ in the name of an existing file are part of the name."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    for place in ("home", "~"):
        Path(place).mkdir()
    names = [f"t[1].{kind}", f"t*.{kind}", f"t?.{kind}", f"~/t.{kind}"]
    others = [f"t1.{kind}", f"tx.{kind}", f"home/t.{kind}"]
    for number, name in enumerate([*names, *others]):
        write(pl.DataFrame({"a": [number, number, -number - 1]}), Path(name), kind)
    for number, name in enumerate(names):
        assert read(TableFile(Path(name)))["a"].to_list() == [number, number, -number - 1]
        if kind in ("csv", "tsv", "parquet"):
            (part,) = find_parts(name, "explain")
            assert part.path == tmp_path / name


@pytest.mark.parametrize("name", ["d[1]", "d*", "~"])
def test_no_other_folder_than_the_named_one_is_read(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path / "d1"))
    for place in (name, "d1"):
        Path(place).mkdir()
        pl.DataFrame({"a": [1, 2]}).write_parquet(tmp_path / place / "p[1].parquet")
    (part,) = find_parts(name, "explain")
    assert part.path == tmp_path / name / "p[1].parquet"


def bomb(kind: str, n_rows: int) -> bytes:
    if kind == "csv":
        return gzip.compress(b"a,b\n" + b"1,2\n" * n_rows, 9)
    if kind == "jsonl":
        return gzip.compress(b'{"a": 1}\n' * n_rows, 9)
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as archive:
        archive.writestr("xl/worksheets/sheet1.xml", b"<row/>" * n_rows)
    return packed.getvalue()


def test_a_small_compressed_file_takes_little_memory(tmp_path: Path) -> None:
    """Found by fuzzing: reading up to the limit at once would allocate the limit."""
    (tmp_path / "t.csv.gz").write_bytes(gzip.compress(b"a,b\n1,2\n3,4\n"))
    tracemalloc.start()
    try:
        contents = TableFile(tmp_path / "t.csv.gz").read_bytes()
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert contents == b"a,b\n1,2\n3,4\n"
    assert peak < 1 << 23


@pytest.mark.parametrize(("kind", "name"), [("csv", "t.csv.gz"), ("jsonl", "t.jsonl.gz"), ("xlsx", "t.xlsx")])
def test_a_small_file_that_expands_too_far_is_refused(
    kind: str, name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A file of 1.5 MB would need 11 GB."""
    monkeypatch.setattr(reading, "_EXPANDED", 1 << 20)
    monkeypatch.setattr(reading, "_RATIO", 10)
    (tmp_path / name).write_bytes(bomb(kind, 1 << 19))
    with pytest.raises(InvalidInputError) as error:
        read(TableFile(tmp_path / name))
    assert str(error.value) == (
        f"{tmp_path / name}: must expand to at most 1,048,576 bytes, the larger of 1,048,576 and 10 times "
        "its size; it expands to more. If you trust the file, decompress it first."
    )
    monkeypatch.setattr(reading, "_EXPANDED", 1 << 24)
    if kind == "csv":
        assert read(TableFile(tmp_path / name)).height == 1 << 19


CONVERT = "convert it to CSV, or set --out to a folder to explain it piece by piece"
BOMBS: dict[str, tuple[pl.DataFrame, str]] = {
    "constant.parquet": (pl.select(a=pl.repeat(1.5, 1 << 19)), CONVERT),
    "empty.parquet": (pl.select(a=pl.repeat(None, 1 << 19)), CONVERT),
    "text.parquet": (pl.select(a=pl.repeat("x" * 10_000, 1000), b=pl.int_range(1000)), CONVERT),
    "arrays.parquet": (
        pl.select(a=pl.int_range(300), b=pl.repeat([0.0] * 1000, 300, dtype=pl.Array(pl.Float64, 1000))),
        CONVERT,
    ),
    "constant.arrow": (pl.select(a=pl.repeat(1.5, 1 << 19)), "save it without compression"),
}


@pytest.mark.parametrize("name", BOMBS)
def test_a_small_file_with_too_many_values_is_refused(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A Parquet file of 4 MB can hold a constant column of 10^9 rows."""
    monkeypatch.setattr(reading, "_EXPANDED", 1 << 20)
    monkeypatch.setattr(reading, "_RATIO", 10)
    frame, advice = BOMBS[name]
    if name.endswith(".arrow"):
        frame.write_ipc(tmp_path / name, compression="zstd")
    else:
        frame.write_parquet(tmp_path / name)
    with pytest.raises(InvalidInputError) as error:
        read(TableFile(tmp_path / name))
    assert str(error.value) == (
        f"{tmp_path / name}: must expand to at most 1,048,576 bytes, the larger of 1,048,576 and 10 times "
        f"its size; it expands to more. If you trust the file, {advice}."
    )
    monkeypatch.setattr(reading, "_EXPANDED", 1 << 24)
    assert read(TableFile(tmp_path / name)).height == frame.height


@pytest.mark.slow
@pytest.mark.parametrize("encoding", ["PLAIN", "DELTA_BYTE_ARRAY"])
def test_text_in_one_row_group_cannot_fill_the_memory(encoding: str, tmp_path: Path) -> None:
    """Compressed pages, and values that repeat the previous one, take little space in a file."""
    n_rows, length = (30, 20_000_000) if encoding == "PLAIN" else (30_000, 20_000)
    text = pa.array(["x" * length], pa.large_string()).take(pa.array([0] * n_rows))
    path = tmp_path / "t.parquet"
    pq.write_table(
        pa.table({"a": np.arange(n_rows), "t": text}),
        path,
        compression="zstd",
        use_dictionary=False,
        column_encoding={"t": encoding, "a": "PLAIN"},
        write_batch_size=2,
    )
    assert path.stat().st_size < 200_000
    assert pq.ParquetFile(path).num_row_groups == 1
    code = (
        "import resource, sys; from pathlib import Path; from whycluster.cli import reading\n"
        "def peak(): return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss\n"
        "before = peak()\n"
        "try: reading.read(reading.TableFile(Path(sys.argv[1])))\n"
        "except reading.InvalidInputError as error: print(error)\n"
        "print(peak() - before)"
    )
    found = subprocess.run([sys.executable, "-c", code, path], capture_output=True, text=True, check=True)
    refused, taken = found.stdout.splitlines()
    assert "must expand to at most 268,435,456 bytes" in refused
    assert int(taken) < 300_000  # KB; all of the text takes 600 MB


def test_all_text_is_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lengths = np.random.default_rng(0).integers(0, 3000, size=(2, 700))
    texts = [["x" * n if n > 100 else None for n in some] for some in lengths.tolist()]
    pl.DataFrame({"a": texts[0], "b": texts[1], "c": range(700)}).write_parquet(
        tmp_path / "t.parquet", row_group_size=100
    )
    monkeypatch.setattr(reading, "_TEXT", 50_000)
    scanned = pl.scan_parquet(tmp_path / "t.parquet")
    found = list(reading._text_bytes(scanned, 700, 1))
    assert sum(found) == lengths[lengths > 100].sum()
    assert len(found) > 20
    assert max(found) < 100_000


@pytest.mark.parametrize("kind", ["parquet", "arrow"])
def test_columns_that_are_left_out_anyway_are_not_read(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A single list can hold as many values as a column."""
    monkeypatch.setattr(reading, "_EXPANDED", 1 << 20)
    frame = pl.DataFrame({"a": [1, 2], "b": [[0] * 1_000_000] * 2, "c": [b"x" * 2_000_000] * 2})
    path = tmp_path / f"t.{kind}"
    frame.write_ipc(path) if kind == "arrow" else frame.write_parquet(path)
    found = read(TableFile(path))
    assert found.schema == frame.schema
    assert found.rows() == [(1, None, None), (2, None, None)]


def test_decimals_and_a_word_are_text(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    values = [f"{i}.{125 * (i % 8):03}" for i in range(1, 40)]
    rows = [f"{value},{i % 3}\n" for i, value in enumerate([*values, "unknown"])]
    (tmp_path / "t.csv").write_text("a,b\n" + "".join(rows))
    code, _, notes = invoke(capsys, "explain", tmp_path / "t.csv", "--k", 2)
    assert code == 0
    assert (
        "whycluster: 'a' is text, so each value is a category. Most values are numbers, but 'unknown' is "
        "not. If it means missing, add --missing 'unknown'.\n" in notes
    )


@pytest.mark.parametrize(
    ("last", "note"),
    [
        (
            "abc",
            "'a' is text, so each value is a category. Most values are numbers, but 'abc' is not. If it "
            "means missing, add --missing 'abc'.",
        ),
        (
            "36893488147419103232",
            "'a' is text, so each value is a category. It contains numbers with more than 18 digits, such as "
            "'36893488147419103232'.",
        ),
    ],
)
def test_one_value_at_the_end_that_makes_numbers_text(
    last: str, note: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = [f"{i % 7},{i % 3}\n" for i in range(12_000)]
    (tmp_path / "t.csv").write_text("a,b\n" + "".join(rows) + f"{last},1\n")
    code, _, notes = invoke(capsys, "row", tmp_path / "t.csv", "--k", 2, "--id", "3")
    assert code == 0
    assert f"whycluster: {note}\n" in notes


def test_text_after_a_thousand_numbers_is_text() -> None:
    frame = pl.DataFrame({"a": [str(i % 7) for i in range(1500)] + ["x", "y"] * 1000})
    assert reading.check_text(frame) == []


@pytest.mark.parametrize(
    ("names", "is_noted"),
    [("0.5,7", True), ("3,8", True), ("0,1", False), ("1999,2000", False), ("0.5,1.5", True), ("a,1", False)],
)
def test_a_first_row_that_may_be_no_header(
    names: str, is_noted: bool, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = [f"{i % 7},{i % 3}\n" for i in range(30)]
    (tmp_path / "t.csv").write_text(f"{names}\n" + "".join(rows))
    code, _, notes = invoke(capsys, "row", tmp_path / "t.csv", "--k", 2, "--id", "3")
    assert code == 0
    note = (
        f"whycluster: All column names are numbers, such as {names.split(',')[0]!r}. If the file has no "
        "header, its first row was read as one. Add a header to the file.\n"
    )
    assert (note in notes) == is_noted


def test_a_very_long_header(tmp_path: Path) -> None:
    name = "x" * 140_000
    (tmp_path / "t.csv").write_text(f'{name},b\n1,"2"\n3,4\n')
    assert read(TableFile(tmp_path / "t.csv")).rows() == [(1, 2), (3, 4)]
    assert read(TableFile(tmp_path / "t.csv")).columns == [name, "b"]


def test_a_name_that_starts_like_compressed_data(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("x^2,b\n1,2\n3,4\n")
    assert read(TableFile(tmp_path / "t.csv")).rows() == [(1, 2), (3, 4)]


def test_an_encoding_without_replacements(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("a,b\n1,2\n3,4\n")
    with pytest.raises(InvalidInputError, match=r"^--encoding must be a text encoding; got 'idna'\.$"):
        read(TableFile(tmp_path / "t.csv", encoding="idna"))


@pytest.mark.parametrize(
    ("content", "encoding", "message"),
    [
        (b"a,b\n1,2\n3,4\n", "x\0", r"^--encoding must be a text encoding; got 'x\\x00'\.$"),
        (
            b"a,^b$\n1,x\n3,y\n",
            "utf-8",
            r"column names must not look like polars patterns; one is '\^b\$'\. Rename it\.$",
        ),
        (
            'a,b\n1,"x"\n\n3,y\n'.encode("utf-16-le"),
            "utf-16",
            r"is not encoded in utf-16\. Use another --encoding\.$",
        ),
    ],
)
def test_contents_that_fuzzing_found(content: bytes, encoding: str, message: str, tmp_path: Path) -> None:
    (tmp_path / "table.csv.gz").write_bytes(gzip.compress(content))
    with pytest.raises(InvalidInputError, match=message):
        read(TableFile(tmp_path / "table.csv.gz", encoding=encoding))
