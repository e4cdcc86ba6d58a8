"""Tables from files, as analysts have them; whatever is wrong with one is said in one line."""

from __future__ import annotations

import codecs
import csv
import gzip
import io
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, NoReturn

import polars as pl

from whycluster.errors import InvalidInputError, MissingDependencyError

_LOOK = 1 << 16  # bytes that are looked at before a file is read
_SOME_ROWS = 10_000  # rows that the types of columns are told from, if those below do not contradict
_NULLS = ["NA", "N/A", "n/a", "#N/A", "NaN", "nan", "null", "NULL"]
_DELIMITERS = {",": "comma", ";": "semicolon", "\t": "tab", "|": "bar"}
_DECIMAL_COMMA = re.compile(r"\s*[-+]?\d*,\d+\s*$")
_TEXT = (".csv", ".tsv", ".txt", ".jsonl", ".ndjson")
_UTF_16 = (b"\xff\xfe", b"\xfe\xff")


@dataclass(frozen=True)
class Source:
    """A file, and how it is written.

    Attributes
    ----------
    path : of the file
    delimiter : between the values of a line; None for commas, or tabs in a .tsv
    decimal : "." or ","
    encoding : of a text file
    sheet : of a workbook; None for the first
    """

    path: Path
    delimiter: str | None = None
    decimal: str = "."
    encoding: str = "utf-8"
    sheet: str | None = None

    def fail(self, message: str) -> NoReturn:
        """Raise, with the name of the file."""
        raise InvalidInputError(f"{self.path}: {message}")

    @property
    def kind(self) -> str:
        """The ending of the name that says what the file is; text may be compressed."""
        whole = Path(self.path.name.lower())
        inner = Path(whole.stem).suffix
        return inner if whole.suffix == ".gz" and inner in _TEXT else whole.suffix

    def open(self) -> IO[bytes]:
        """The bytes of the file, or those that are compressed in it."""
        return gzip.open(self.path) if self.path.suffix.lower() == ".gz" else self.path.open("rb")  # type: ignore[return-value]


def read(source: Source) -> pl.DataFrame:
    """The table in a file, of at least two rows and one column."""
    path = source.path
    if path.is_dir():
        source.fail("is a folder; give a file.")
    if not path.exists():
        source.fail("there is no such file.")
    kind = source.kind
    if kind not in _READERS:
        source.fail(f"must be a table of a known kind: {', '.join(_READERS)}.")
    try:
        if path.stat().st_size == 0:
            source.fail("is empty.")
        frame = _READERS[kind](source)
    except pl.exceptions.PolarsError as error:
        source.fail(f"cannot be read as {kind}: {_first_line(error)}")
    except OSError as error:
        source.fail(f"cannot be read: {error.strerror or error}.")
    _check_shape(source, frame)
    return frame


def _check_shape(source: Source, frame: pl.DataFrame) -> None:
    if frame.height < 2:
        what = "one row" if frame.height else "no rows"
        source.fail(f"must have at least two rows, to be clustered; it has {what}.")
    if frame.width == 0:
        source.fail("must have at least one column; it has none.")


def _first_line(error: Exception) -> str:
    return str(error).split("\n", 1)[0].rstrip(".") + "."


def _read_separated(source: Source) -> pl.DataFrame:
    start = _start_of(source)
    names = _header(source, start)
    content = _content(source)
    options: dict[str, Any] = {
        "separator": _delimiter(source),
        "decimal_comma": source.decimal == ",",
        "null_values": _NULLS,
        "try_parse_dates": True,
    }
    try:
        frame = _parse(content, options)
    except pl.exceptions.NoDataError:
        source.fail("is empty.")
    except pl.exceptions.ComputeError as error:
        _tell_why(source, error, len(names))
    _check_values(source, frame)
    return frame


def _parse(content: Any, options: dict[str, Any]) -> pl.DataFrame:
    try:
        return pl.read_csv(content, infer_schema_length=_SOME_ROWS, **options)
    except pl.exceptions.ComputeError as error:
        if "could not parse" not in str(error):
            raise
    if hasattr(content, "seek"):
        content.seek(0)
    return pl.read_csv(content, infer_schema_length=None, **options)


def _delimiter(source: Source) -> str:
    return source.delimiter or ("\t" if source.kind == ".tsv" else ",")


def _content(source: Source) -> Any:
    """What polars reads: the file itself, or what it says in UTF-8."""
    if source.encoding.lower().replace("_", "-") in ("utf-8", "utf8", "utf-8-sig"):
        return source.path
    try:
        with source.open() as file:
            return io.BytesIO(file.read().decode(source.encoding).encode())
    except UnicodeError:
        source.fail(f"is not written in {source.encoding}. Name another --encoding.")


def _start_of(source: Source) -> str:
    """The first lines as text; raise if they are none."""
    try:
        codecs.lookup(source.encoding)
    except LookupError:
        raise InvalidInputError(
            f"--encoding must be one that Python knows; got {source.encoding!r}."
        ) from None
    with source.open() as file:
        start = file.read(_LOOK)
    if start.startswith(_UTF_16) and not source.encoding.lower().startswith("utf-16"):
        source.fail("is written in UTF-16. Add --encoding utf-16.")
    if b"\0" in start and not source.encoding.lower().startswith("utf-16"):
        source.fail("is no text, but binary data. Give a table: CSV, Parquet, JSON lines, ...")
    text = start.decode(source.encoding, "replace").removeprefix("\ufeff")
    if re.search(r"\r(?!\n)", text.rstrip("\r")):
        source.fail(
            "has lines that end in a carriage return alone, as old programs wrote them. Save it again."
        )
    return text


def _header(source: Source, start: str) -> list[str]:
    """The names of the columns; raise if they are not told apart, or not different."""
    delimiter = _delimiter(source)
    names = next(csv.reader(io.StringIO(start, newline=""), delimiter=delimiter), [])
    if not names:
        source.fail("must begin with a line of names; its first line is empty.")
    others = [other for other in _DELIMITERS if other != delimiter and any(other in name for name in names)]
    if others and (len(names) == 1 or others[0] in ";\t"):
        written = "'\\t'" if others[0] == "\t" else repr(others[0])
        source.fail(
            f"its columns must be separated by {_called(delimiter)}; the first line has "
            f"{_called(others[0])}. Add --delimiter {written}."
        )
    for name in names:
        if names.count(name) > 1:
            source.fail(f"columns must have different names; {names.count(name)} are called {name!r}.")
    return names


def _called(delimiter: str) -> str:
    return f"{_DELIMITERS[delimiter]}s" if delimiter in _DELIMITERS else repr(delimiter)


def _check_values(source: Source, frame: pl.DataFrame) -> None:
    """Raise for numbers that were read as text, because of their commas or of a second header."""
    text = [name for name, kind in frame.schema.items() if kind == pl.String]
    if len(text) == frame.width:
        again = frame.select(pl.all_horizontal(pl.col(name) == name for name in text)).to_series()
        if again.any():
            row = again.fill_null(False).arg_max()
            source.fail(
                f"the header stands there twice; row {row} below the first one repeats it. Remove it."
            )
    for name in text:
        some = frame[name].drop_nulls().head(1000).to_list()
        if source.decimal == "." and some and all(_DECIMAL_COMMA.match(value) for value in some):
            source.fail(
                f"column {name!r} has numbers with decimal commas, such as {some[0]!r}. Add --decimal ','."
            )


def _tell_why(source: Source, error: Exception, n_names: int) -> NoReturn:
    if "utf-8" in str(error):
        line = next((i for i, text in enumerate(_lines(source), 1) if "\ufffd" in text), None)
        place = "" if line is None else f", as line {line} shows"
        source.fail(f"is not written in UTF-8{place}. Say what it is: --encoding cp1252, or latin-1, ...")
    for number, values in enumerate(csv.reader(_lines(source), delimiter=_delimiter(source)), 1):
        if len(values) > n_names:
            source.fail(
                f"line {number} has {len(values)} values, and the header {n_names} names. Values that have "
                f"{_called(_delimiter(source))} in them must be quoted."
            )
    source.fail(f"cannot be read: {_first_line(error)}")


def _lines(source: Source) -> Iterator[str]:
    with source.open() as file:
        yield from io.TextIOWrapper(file, source.encoding, "replace", newline="")


def _read_json_lines(source: Source) -> pl.DataFrame:
    with source.open() as file:
        return pl.read_ndjson(file.read(), infer_schema_length=None)


def _read_excel(source: Source) -> pl.DataFrame:
    try:
        import fastexcel  # noqa: F401
    except ImportError as error:
        raise MissingDependencyError(
            f'{source.path}: reading Excel needs fastexcel: pip install "whycluster[excel]"'
        ) from error
    try:
        return pl.read_excel(source.path, sheet_name=source.sheet)
    except (pl.exceptions.PolarsError, OSError):
        raise
    except Exception as error:  # of the reader's own kinds
        source.fail(f"cannot be read as a workbook: {_first_line(error)}")


_READERS: dict[str, Callable[[Source], pl.DataFrame]] = {
    ".csv": _read_separated,
    ".tsv": _read_separated,
    ".txt": _read_separated,
    ".parquet": lambda source: pl.read_parquet(source.path),
    ".arrow": lambda source: pl.read_ipc(source.path),
    ".feather": lambda source: pl.read_ipc(source.path),
    ".jsonl": _read_json_lines,
    ".ndjson": _read_json_lines,
    ".xlsx": _read_excel,
    ".xls": _read_excel,
    ".ods": _read_excel,
}
