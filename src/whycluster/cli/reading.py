"""Tables from files, as analysts have them; whatever is wrong with one is said in one line."""

from __future__ import annotations

import codecs
import csv
import gzip
import io
import re
import sys
import zlib
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, NoReturn

import polars as pl

from whycluster.core.errors import InvalidInputError, MissingDependencyError
from whycluster.data.columns import CODE, converts, is_code

_LOOK = 1 << 16  # bytes that are looked at before a file is read
_LONGEST_HEADER = 1 << 26
_SOME_ROWS = 10_000  # rows that the types of columns are told from, if those below do not contradict
_NULLS = ["NA", "N/A", "n/a", "#N/A", "NaN", "nan", "null", "NULL"]
_SOME_VALUES = 1000  # of a column that text is looked at
_ISO_DATE = re.compile(r"\d{4}-\d\d-\d\d([T ]\d\d:\d\d(:\d\d(\.\d+)?)?(Z|[+-]\d\d:?\d\d)?)?")
_WITH_SIGNS = re.compile(  # between thousands, or of a currency, or of percent
    r"\W{0,3}\d{1,3}([.,' \u00a0]\d{3})+([.,]\d+)?\W{0,3}"
    r"|[$\u20ac\u00a3] ?-?\d[\d.,]*|-?\d[\d.,]* ?[$\u20ac\u00a3%]"
)
_OTHER_DATE = re.compile(r"\d{1,2}[./-]\d{1,2}[./-](\d{4}|\d\d)( .*)?")
_DELIMITERS = {",": "comma", ";": "semicolon", "\t": "tab", "|": "bar"}
_DECIMAL_COMMA = re.compile(r"\s*[-+]?\d*,\d+([eE][-+]?\d+)?\s*")
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
    missing : words of a text file that stand for missing values, besides "NA" and the like
    sheet : of a workbook; None for the first
    id : the column that names the rows, if that was said
    """

    path: Path
    delimiter: str | None = None
    decimal: str = "."
    encoding: str = "utf-8"
    missing: tuple[str, ...] = ()
    sheet: str | None = None
    id: str | None = None

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
    try:
        _check_file(source)
        frame = _READERS[source.kind](source)
    except (pl.exceptions.PolarsError, pl.exceptions.PanicException) as error:
        source.fail(f"cannot be read as {source.kind}: {_first_line(error)}")
    except (EOFError, zlib.error):
        source.fail("is damaged: what is compressed in it breaks off.")
    except OSError as error:
        source.fail(f"cannot be read: {error.strerror or error}.")
    _check_shape(source, frame)
    large = [name for name, kind in frame.schema.items() if kind in (pl.Int128, pl.UInt128)]
    # Numbers of that many digits are names.
    return _with_dates(frame.with_columns(frame[name].cast(pl.String) for name in large))


def has_plain_name(path: Path) -> bool:
    """Whether a file can be named to polars: names of other encodings cannot."""
    try:
        str(path).encode()
    except UnicodeEncodeError:
        return False
    return True


def _check_file(source: Source) -> None:
    path = source.path
    if path.is_dir():
        source.fail("is a folder; give a file.")
    if not path.exists():
        source.fail("there is no such file.")
    if not has_plain_name(path):
        source.fail("must have a name in UTF-8, as polars needs it. Rename it.")
    if not path.is_file():
        source.fail("is no file, but a pipe or the like. Save it to a file first.")
    if source.kind not in _READERS:
        source.fail(f"must be a table of a known kind: {', '.join(_READERS)}.")
    if path.stat().st_size == 0:
        source.fail("is empty.")


def _texts(frame: pl.DataFrame) -> Iterator[tuple[str, list[str]]]:
    """The columns of text, each with some of its values."""
    for name, kind in frame.schema.items():
        if kind == pl.String:
            yield name, frame[name].drop_nulls().head(_SOME_VALUES).to_list()


def _with_dates(frame: pl.DataFrame) -> pl.DataFrame:
    """With text that is dates, as year-month-day and perhaps a time, as such."""
    for name, some in _texts(frame):
        if not some or not all(_ISO_DATE.fullmatch(value) for value in some):
            continue
        days = all(len(value) == len("2020-01-31") for value in some)
        with suppress(pl.exceptions.PolarsError):  # further down, it is something else
            text = frame[name].str
            frame = frame.with_columns(text.to_date("%Y-%m-%d") if days else text.to_datetime())
    return frame


def _check_shape(source: Source, frame: pl.DataFrame) -> None:
    if frame.height < 2:
        what = "one row" if frame.height else "no rows"
        source.fail(f"must have at least two rows, to be clustered; it has {what}.")
    if frame.width == 0:
        source.fail("must have at least one column; it has none.")
    for name in frame.columns:
        if name == "*" or (name.startswith("^") and name.endswith("$")):
            source.fail(f"a column must not be called like a pattern; one is {name!r}. Rename it.")


def _first_line(error: Exception) -> str:
    return str(error).split("\n", 1)[0].rstrip(".") + "."


def _read_separated(source: Source) -> pl.DataFrame:
    start = _start_of(source)
    names = _header(source, start)
    content = _content(source)
    options: dict[str, Any] = {
        "separator": _delimiter(source),
        "decimal_comma": source.decimal == ",",
        "null_values": [*_NULLS, *source.missing],
    }
    try:
        frame = _parse(content, options)
    except pl.exceptions.NoDataError:
        source.fail("is empty.")
    except pl.exceptions.ComputeError as error:
        _tell_why(source, error, len(names))
    if len(names) == frame.width:
        frame.columns = names  # with quotes that are doubled in the file as one
    frame = _with_names(source, frame, content, options)
    _check_values(source, frame)
    return frame


def _parse(content: Any, options: dict[str, Any]) -> pl.DataFrame:
    try:
        return pl.read_csv(content, infer_schema_length=_SOME_ROWS, **options)
    except pl.exceptions.ComputeError as error:
        if "could not parse" not in str(error):
            raise
    return pl.read_csv(_from_start(content), infer_schema_length=None, **options)


def _from_start(content: Any) -> Any:
    if hasattr(content, "seek"):
        content.seek(0)
    return content


def _with_names(source: Source, frame: pl.DataFrame, content: Any, options: dict[str, Any]) -> pl.DataFrame:
    """With the text of columns that were read as numbers, and are names: 007 is not 7."""
    places = [place for place, kind in enumerate(frame.dtypes) if kind.is_numeric()]
    if not places:
        return frame
    text = pl.read_csv(_from_start(content), columns=places, infer_schema_length=0, **options)
    text.columns = [str(place) for place in places]  # names may be patterns to polars
    found = []
    for place, each in zip(places, text, strict=True):
        name, kind = frame.columns[place], frame.dtypes[place]
        if each.str.contains(f"^{CODE}$").any() or (name == source.id and kind.is_float()):
            found.append(each.alias(name))
    return frame.with_columns(found)


def _delimiter(source: Source) -> str:
    return source.delimiter or ("\t" if source.kind == ".tsv" else ",")


def _content(source: Source) -> Any:
    """What polars reads: the file itself, or what it says in UTF-8."""
    if _encoding(source) == "utf-8":
        return source.path
    try:
        with source.open() as file:
            return io.BytesIO(file.read().decode(source.encoding).encode())
    except UnicodeError:
        source.fail(f"is not written in {source.encoding}. Name another --encoding.")


def _start_of(source: Source) -> str:
    """The first lines as text; raise if they are none."""
    encoding = _encoding(source)
    with source.open() as file:
        start = file.read(_LOOK)
        start += file.readline(_LONGEST_HEADER)  # the first line may be longer, and ends as a whole
    wide = encoding.startswith(("utf-16", "utf-32"))
    if start.startswith(_UTF_16) and not wide:
        source.fail("is written in UTF-16. Add --encoding utf-16.")
    if b"\0" in start and not wide:
        source.fail("is no text, but binary data. Give a table: CSV, Parquet, JSON lines, ...")
    text = start.decode(encoding, "replace").removeprefix("\ufeff")
    if encoding == "utf-8" and "\ufffd" in text.split("\n", 1)[0]:
        _tell_encoding(source)
    if re.search(r"\r(?!\n)", text.rstrip("\r")):
        source.fail(
            "has lines that end in a carriage return alone, as old programs wrote them. Save it again."
        )
    return text


def _encoding(source: Source) -> str:
    """The name of the encoding as Python has it; raise if it is none of text."""
    try:
        found = codecs.lookup(source.encoding)
        "".encode(source.encoding)
    except (LookupError, UnicodeError):
        raise InvalidInputError(f"--encoding must be one of text; got {source.encoding!r}.") from None
    return "utf-8" if found.name == "utf-8-sig" else found.name


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
    if text:
        again = pl.Series([True]).new_from_index(0, frame.height)
        for name in frame.columns:
            again &= frame[name] == name if name in text else frame[name].is_null()
        if again.any():
            row = again.fill_null(False).arg_max()
            source.fail(
                f"the header stands there twice; row {row} below the first one repeats it. Remove it."
            )
    for name, some in _texts(frame):
        commas = [value for value in some if _DECIMAL_COMMA.fullmatch(value)]
        others = [value for value in some if not (_DECIMAL_COMMA.fullmatch(value) or converts(value, float))]
        if source.decimal == "." and commas and not others:
            source.fail(
                f"column {name!r} has numbers with decimal commas, such as {commas[0]!r}. Add --decimal ','."
            )


def look_at_text(frame: pl.DataFrame) -> list[str]:
    """What is to be said of columns of text that may be meant as something else; raise for numbers."""
    notes = []
    for name, some in _texts(frame):
        written = [value for value in some if _WITH_SIGNS.fullmatch(value)]
        if 2 * len(written) > len(some):
            raise InvalidInputError(
                f"column {name!r} has numbers with other signs in them, such as {written[0]!r}. Remove these "
                "from the file, or leave the column out with --ignore."
            )
        others = [value for value in some if not converts(value, float)]
        if others and 2 * len(others) < len(some):
            notes.append(
                f"{name!r} is text, so that each value is a category: most are numbers, but not "
                f"{others[0]!r}. If that stands for a missing value, add --missing {others[0]!r}."
            )
        elif sum(bool(_OTHER_DATE.fullmatch(value)) for value in some) * 2 > len(some):
            notes.append(
                f"{name!r} is text, so that each value is a category. Dates are read if they are written as "
                "2020-01-31."
            )
    return notes


def look_at_codes(frame: pl.DataFrame) -> list[str]:
    """What is to be said of columns of codes that may be meant as numbers."""
    notes = []
    for name, some in _texts(frame):
        codes = [value for value in some if is_code(value)]
        if codes and all(converts(value, float) for value in some):
            notes.append(
                f"{name!r} is text, so that each value is a category: it has numbers with zeros before them, "
                f"such as {codes[0]!r}."
            )
    return notes


def _tell_encoding(source: Source) -> NoReturn:
    line = next((i for i, text in enumerate(_lines(source), 1) if "\ufffd" in text), None)
    place = "" if line is None else f", as line {line} shows"
    source.fail(f"is not written in UTF-8{place}. Say what it is: --encoding cp1252, or latin-1, ...")


def _tell_why(source: Source, error: Exception, n_names: int) -> NoReturn:
    if "utf-8" in str(error):
        _tell_encoding(source)
    csv.field_size_limit(sys.maxsize)
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
