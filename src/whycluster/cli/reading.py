"""Read tables from files, and report each problem on one line."""

from __future__ import annotations

import codecs
import csv
import gzip
import io
import os
import re
import sys
import zipfile
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import IO, Any, NoReturn

import narwhals as nw
import polars as pl

from whycluster.core.errors import InvalidInputError, MissingDependencyError
from whycluster.data import display
from whycluster.data.column_checks import CODE, is_code, is_convertible
from whycluster.data.column_kinds import ColumnKind, kinds_of_frame
from whycluster.data.files import is_utf8
from whycluster.data.iso_dates import is_other_date, parse_date, parse_dates
from whycluster.data.missing import MISSING_WORDS

_PREVIEW = 1 << 16  # number of bytes that are checked before a file is read
_LONGEST_HEADER, _PIECE = 1 << 26, 1 << 20  # bytes
_LONGEST_VALUE = (1 << 31) - 1  # characters; Python's default, 131,072, is shorter than some headers
_EXPANDED, _RATIO = 1 << 28, 100  # bytes, or times the compressed size, whichever is larger
_CHUNK = 1 << 20  # bytes of expanded text that are read at once
_MOST_ROWS, _TEXT = 1 << 16, 1 << 26  # rows of a Parquet file, and bytes of their text, read at once
_TYPE_ROWS = 10_000  # number of rows for inferring column types; all rows if later rows contradict the types
_MOST_LISTED = 5  # columns that a note lists
_DIGITS = 18  # digits of the largest whole numbers that polars always reads as numbers
_CHECKED_VALUES = 1000  # number of values checked in a text column
_DECORATED_NUMBER = re.compile(  # with thousands separators, a currency sign or a percent sign
    r"\W{0,3}\d{1,3}([.,' \u00a0]\d{3})+([.,]\d+)?\W{0,3}"
    r"|[$\u20ac\u00a3] ?-?\d[\d.,]*|-?\d[\d.,]* ?[$\u20ac\u00a3%]"
)
_DELIMITERS = {",": "commas", ";": "semicolons", "\t": "tabs", "|": "vertical bars"}
_DECIMAL_COMMA = re.compile(r"\s*[-+]?\d*,\d+([eE][-+]?\d+)?\s*")
_TEXT_SUFFIXES = (".csv", ".tsv", ".txt", ".jsonl", ".ndjson")
_LIKE_ZLIB = (b"x^", b"x\x01")  # polars takes text that begins like this for compressed data
_UTF_16 = (b"\xff\xfe", b"\xfe\xff")


@dataclass(frozen=True)
class TableFile:
    """A file that contains a table, and its format.

    Attributes
    ----------
    path : the path of the file
    delimiter : the character between values, or None for a comma (a tab in .tsv files)
    decimal : the decimal separator, "." or ","
    encoding : the encoding of a text file
    missing : words in a text file that mean "missing", in addition to the usual words such as "NA"
    sheet : the sheet of a workbook, or None for the first sheet
    id : the column that identifies the rows, or None if unknown
    """

    path: Path
    delimiter: str | None = None
    decimal: str = "."
    encoding: str = "utf-8"
    missing: tuple[str, ...] = ()
    sheet: str | None = None
    id: str | None = None

    def fail(self, message: str) -> NoReturn:
        """Raise an error that begins with the path of the file."""
        raise InvalidInputError(f"{self.path}: {message}")

    @property
    def suffix(self) -> str:
        """The suffix that determines the format, without the .gz of compressed text."""
        name = Path(self.path.name.lower())
        inner = Path(name.stem).suffix
        return inner if name.suffix == ".gz" and inner in _TEXT_SUFFIXES else name.suffix

    @property
    def separator(self) -> str:
        """The character between values."""
        return self.delimiter or ("\t" if self.suffix == ".tsv" else ",")

    @property
    def is_compressed(self) -> bool:
        """Whether the file is compressed text, according to its name."""
        return self.path.suffix.lower() == ".gz"

    @property
    def literal_path(self) -> str:
        """The absolute path, which polars neither expands (as it does "~") nor takes for a URL."""
        return os.path.abspath(self.path)

    def open(self) -> IO[bytes]:
        """Open the file for reading, decompressing it if necessary."""
        return gzip.open(self.path) if self.is_compressed else self.path.open("rb")  # type: ignore[return-value]

    def read_bytes(self) -> bytes:
        """Return the contents; raise an error if compressed contents are too large."""
        with self.open() as stream:
            if not self.is_compressed:
                return stream.read()
            most, contents = _most_expanded(self), bytearray()
            while chunk := stream.read(_CHUNK):  # reading all at once would allocate the maximum size
                contents += chunk
                if len(contents) > most:
                    _raise_expanded(self, most)
        return bytes(contents)


def read(file: TableFile, least_rows: int = 2) -> pl.DataFrame:
    """Read a table; raise an error unless it has at least ``least_rows`` rows and one column."""
    try:
        _check_file(file)
        frame = _READERS[file.suffix](file)
    except (pl.exceptions.PolarsError, pl.exceptions.PanicException) as error:
        file.fail(f"cannot be read as {file.suffix}: {_first_line(error)}")
    except (EOFError, zlib.error):
        file.fail("is damaged: its compressed data end too early.")
    except OSError as error:
        file.fail(f"cannot be read: {error.strerror or error}.")
    _check_shape(file, frame, least_rows)
    large = [name for name, dtype in frame.schema.items() if str(dtype) in ("Int128", "UInt128")]
    # Numbers with this many digits are identifiers.
    return with_dates(frame.with_columns(frame[name].cast(pl.String) for name in large))


def _check_file(file: TableFile) -> None:
    path = file.path
    if path.is_dir():
        file.fail("is a folder. Pass a file instead.")
    if not path.exists():
        file.fail("there is no such file.")
    if not is_utf8(str(path)):
        file.fail("must have a name in valid UTF-8, which polars requires. Rename it.")
    if not path.is_file():
        file.fail("is not a regular file but a pipe or a device. Save the data to a file first.")
    if file.suffix not in _READERS:
        file.fail(f"must be a table in a supported format: {', '.join(_READERS)}.")
    if path.stat().st_size == 0:
        file.fail("is empty.")


def _text_columns(frame: pl.DataFrame) -> Iterator[tuple[str, list[str]]]:
    """Yield the name and the first values of each text column."""
    for name, dtype in frame.schema.items():
        if dtype == pl.String:
            yield name, frame[name].drop_nulls().head(_CHECKED_VALUES).to_list()


def with_dates(frame: pl.DataFrame) -> pl.DataFrame:
    """Convert text columns of ISO dates, with or without times, to dates; see `kind_of_text`."""
    for name, values in _text_columns(frame):
        dates = None if parse_dates(values) is None else parse_dates(frame[name].to_list())
        if dates is not None:
            frame = frame.with_columns(pl.Series(name, dates))
    return frame


def _check_shape(file: TableFile, frame: pl.DataFrame, least_rows: int) -> None:
    if frame.height < least_rows:
        n_rows = "one row" if frame.height else "no rows"
        least = "two rows to be clustered" if least_rows > 1 else "one row"
        file.fail(f"must contain at least {least}; it contains {n_rows}.")
    if frame.width == 0:
        file.fail("must contain at least one column; it contains none.")
    _check_names(file, frame.columns)


def _check_names(file: TableFile, names: Sequence[str]) -> None:
    for name in names:
        if name == "*" or (name.startswith("^") and name.endswith("$")):
            file.fail(f"column names must not look like polars patterns; one is {name!r}. Rename it.")


def _first_line(error: Exception) -> str:
    return str(error).split("\n", 1)[0].rstrip(".") + "."


def _most_expanded(file: TableFile) -> int:
    """Return the maximum number of bytes that a compressed file may expand to."""
    return max(_EXPANDED, _RATIO * file.path.stat().st_size)


def _raise_expanded(file: TableFile, most: int, advice: str = "decompress it first") -> NoReturn:
    file.fail(
        f"must expand to at most {most:,} bytes, the larger of {_EXPANDED:,} and {_RATIO} times its size; it "
        f"expands to more. If you trust the file, {advice}."
    )


def _read_delimited(file: TableFile) -> pl.DataFrame:
    names = _header(file, _preview(file))
    content = _for_polars_1(_utf8_content(file), len(names))
    options: dict[str, Any] = {
        "separator": file.separator,
        "decimal_comma": file.decimal == ",",
        "null_values": [*MISSING_WORDS, *file.missing],
        "glob": False,  # polars would expand the signs [ ] * ? even in names of existing files
    }
    try:
        frame = _parse(content, options)
    except pl.exceptions.NoDataError:
        file.fail("is empty.")
    except pl.exceptions.ComputeError as error:
        if "utf-8" in str(error):
            _raise_not_utf8(file)
        frame = None
    if frame is None or not _is_regular(file, frame):
        content = _rewritten(file, len(names))
        frame = _parse(content, options)
    if len(names) == frame.width:
        frame.columns = names  # polars keeps doubled quotes in names
    frame = _with_codes_as_text(file, frame, content, options)
    _check_values(file, frame)
    return frame


def _parse(content: Any, options: dict[str, Any]) -> pl.DataFrame:
    try:
        return pl.read_csv(content, infer_schema_length=_TYPE_ROWS, **options)
    except pl.exceptions.ComputeError as error:
        if "could not parse" not in str(error):
            raise
    try:
        return pl.read_csv(_rewound(content), infer_schema_length=None, **options)
    except pl.exceptions.ComputeError as error:
        if "could not parse" not in str(error):
            raise
    text = pl.read_csv(_rewound(content), infer_schema_length=0, **options)
    wide = {column.name: pl.String for column in text if _has_wide_integers(column)}
    return pl.read_csv(_rewound(content), infer_schema_length=None, schema_overrides=wide, **options)


def _has_wide_integers(column: pl.Series) -> bool:
    """Return whether a text column holds integers of more than 64 bits, which polars parses since 1.41."""
    if not column.str.contains("^[+-]?[0-9]+$").all():
        return False
    return bool(column.cast(pl.Int64, strict=False).null_count() > column.null_count())


def _is_regular(file: TableFile, frame: pl.DataFrame) -> bool:
    """Return whether ``frame``, which polars read, has the rows that Python's csv module would read.

    polars fills blank lines and rows that are too short with missing values, and misreads stray quotes.
    """
    if not _has_quotes(file) and not (frame.width > 1 and frame.to_series(-1).null_count()):
        return True
    fewest = frame.width if frame.width > 1 else 0
    try:
        return all(len(values) >= fewest for values in _csv_reader(file, _lines(file), strict=True))
    except csv.Error:
        return False


def _has_quotes(file: TableFile) -> bool:
    with file.open() as stream:
        return any(b'"' in piece for piece in iter(lambda: stream.read(_PIECE), b""))


def _rewritten(file: TableFile, n_columns: int) -> io.BytesIO:
    """Return the rows in UTF-8, as Python's csv module reads them, without blank lines.

    An error is raised if the number of values in a row differs from the number of names in the header. In a
    file with a single column, a blank line is a missing value.
    """
    text = io.StringIO(newline="")
    reader, writer = _csv_reader(file, _lines(file)), csv.writer(text, delimiter=file.separator)
    for values in reader:
        if not values and n_columns > 1:
            continue
        if len(values or [""]) != n_columns:
            _raise_values(file, reader.line_num, len(values), n_columns)
        writer.writerow(values or [""])
    return _in_memory(text.getvalue().encode())


def _raise_values(file: TableFile, line: int, n_values: int, n_names: int) -> NoReturn:
    advice = f"Quote values that contain {_delimiter_name(file.separator)}."
    if n_values < n_names:
        advice = "Complete the line, or remove it."
    file.fail(
        f"line {line} has {display.count(n_values, 'value')}, but the header has {n_names} names. {advice}"
    )


def _csv_reader(file: TableFile, lines: Iterable[str], strict: bool = False) -> Any:
    csv.field_size_limit(_LONGEST_VALUE)
    if sys.version_info < (3, 11):
        lines = _check_nul(file, lines)
    return csv.reader(lines, delimiter=file.separator, strict=strict)


def _check_nul(file: TableFile, lines: Iterable[str]) -> Iterator[str]:
    for number, line in enumerate(lines, 1):
        if "\0" in line:
            file.fail(
                f"line {number} contains a NUL character, which Python 3.10 cannot read in CSV files. Remove "
                "it, or use Python 3.11 or later."
            )
        yield line


def _rewound(content: Any) -> Any:
    if hasattr(content, "seek"):
        content.seek(0)
    return content


def _with_codes_as_text(
    file: TableFile, frame: pl.DataFrame, content: Any, options: dict[str, Any]
) -> pl.DataFrame:
    """Return columns of codes, such as 007, as text instead of numbers."""
    kinds = kinds_of_frame(nw.from_native(frame))
    indices = [index for index, kind in enumerate(kinds) if kind is ColumnKind.NUMBER]
    if not indices:
        return frame
    text = pl.read_csv(_rewound(content), columns=indices, infer_schema_length=0, **options)
    text.columns = [str(index) for index in indices]  # polars may interpret names as patterns
    found = []
    for index, column in zip(indices, text, strict=True):
        name, dtype = frame.columns[index], frame.dtypes[index]
        if column.str.contains(f"^{CODE}$").any() or (name == file.id and dtype.is_float()):
            found.append(column.alias(name))
    return frame.with_columns(found)


def _utf8_content(file: TableFile) -> Any:
    """Return the path of a UTF-8 file that polars can read directly, or else the contents in UTF-8."""
    if _encoding(file) == "utf-8":
        with file.open() as stream:
            in_memory = file.is_compressed or stream.read(2) in _LIKE_ZLIB
        if in_memory:
            return _in_memory(file.read_bytes())
        _check_readable(file)
        return file.literal_path
    try:
        return _in_memory(file.read_bytes().decode(file.encoding).encode())
    except UnicodeError:
        file.fail(f"is not encoded in {file.encoding}. Use another --encoding.")


def _check_readable(file: TableFile) -> None:
    """Read the whole file once, because a disk error ends the process if polars has mapped the file."""
    with file.open() as stream:
        while stream.read(_PIECE):
            pass


def _for_polars_1(content: Any, n_columns: int) -> Any:
    """Return contents that polars 1 reads as polars 2 does.

    polars 1 cannot select columns from files whose names contain characters such as [. Its older versions
    also read a single column of numbers as text if the file has blank lines and Windows line endings.
    """
    if not pl.__version__.startswith("1."):
        return content
    if isinstance(content, str) and (n_columns == 1 or set(content) & set("[*?")):
        content = _in_memory(Path(content).read_bytes())
    return io.BytesIO(content.getvalue().replace(b"\r\n", b"\n")) if n_columns == 1 else content


def _in_memory(content: bytes) -> io.BytesIO:
    """Return a file in memory, with a byte order mark so that polars does not take it for compressed data."""
    return io.BytesIO(codecs.BOM_UTF8 + content.removeprefix(codecs.BOM_UTF8))


def _preview(file: TableFile) -> str:
    """Return the first lines; raise an error if they are not text."""
    encoding = _encoding(file)
    with file.open() as stream:
        start = stream.read(_PREVIEW)
        start += stream.readline(_LONGEST_HEADER)  # reads the rest of a longer header
    is_wide = encoding.startswith(("utf-16", "utf-32"))
    if start.startswith(_UTF_16) and not is_wide:
        file.fail("is encoded in UTF-16. Add --encoding utf-16.")
    if b"\0" in start and not is_wide:
        file.fail(
            "contains binary data, not text. Pass a table in a format such as CSV, Parquet or JSON lines."
        )
    text = start.decode(encoding, "replace").removeprefix("\ufeff")
    if encoding == "utf-8" and "\ufffd" in text.split("\n", 1)[0]:
        _raise_not_utf8(file)
    if re.search(r"\r(?!\n)", text.rstrip("\r")):
        file.fail("contains lines that end with only a carriage return. Save it with other line endings.")
    return text


def _encoding(file: TableFile) -> str:
    """Return Python's name for the encoding; raise an error if it is not a text encoding."""
    try:
        found = codecs.lookup(file.encoding)
        "".encode(file.encoding)
        b"a".decode(file.encoding, "replace")  # idna has no replacements
    except (LookupError, ValueError):
        raise InvalidInputError(f"--encoding must be a text encoding; got {file.encoding!r}.") from None
    return "utf-8" if found.name == "utf-8-sig" else found.name


def _header(file: TableFile, start: str) -> list[str]:
    """Return the column names; raise an error if the delimiter is wrong or names are not unique."""
    names: list[str] = next(_csv_reader(file, io.StringIO(start, newline="")), [])
    if not names:
        file.fail("must begin with a line of column names; its first line is empty.")
    others = [d for d in _DELIMITERS if d != file.separator and any(d in name for name in names)]
    others = [d for d in others if start.split("\n", 1)[0].count(d) >= len(names) - 1]  # else, part of a name
    if others and (len(names) == 1 or others[0] in ";\t"):
        spelled = "'\\t'" if others[0] == "\t" else repr(others[0])
        file.fail(
            f"columns must be separated by {_delimiter_name(file.separator)}; the first line contains "
            f"{_delimiter_name(others[0])}. Add --delimiter {spelled}."
        )
    for name in names:
        if names.count(name) > 1:
            file.fail(f"column names must be unique; {names.count(name)} columns are called {name!r}.")
    _check_names(file, names)
    return names


def _delimiter_name(delimiter: str) -> str:
    return _DELIMITERS.get(delimiter, repr(delimiter))


def _check_values(file: TableFile, frame: pl.DataFrame) -> None:
    """Raise an error if numbers were read as text because of a repeated header or decimal commas."""
    _check_header_once(file, frame)
    for name, values in _text_columns(frame):
        commas = [value for value in values if _DECIMAL_COMMA.fullmatch(value)]
        others = [v for v in values if not (_DECIMAL_COMMA.fullmatch(v) or is_convertible(v, float))]
        if file.decimal == "." and commas and not others:
            file.fail(
                f"column {name!r} contains numbers with decimal commas, such as {commas[0]!r}. Add "
                "--decimal ','."
            )


def _check_header_once(file: TableFile, frame: pl.DataFrame) -> None:
    texts = [name for name, dtype in frame.schema.items() if dtype == pl.String]
    if not texts:
        return
    repeats = pl.Series([True]).new_from_index(0, frame.height)
    for name in frame.columns:
        repeats &= frame[name] == name if name in texts else frame[name].is_null()
    if repeats.any():
        row = repeats.fill_null(False).arg_max()
        file.fail(
            f"the header must appear only once; row {row} below the header repeats it. Remove that row."
        )


def check_text(frame: pl.DataFrame) -> list[str]:
    """Return notes on text columns that may hold numbers or dates; raise an error for decorated numbers."""
    notes = _header_notes(frame.columns)
    for name, values in _text_columns(frame):
        decorated = [v for v in values if _DECORATED_NUMBER.fullmatch(v) and not is_convertible(v, float)]
        if 2 * len(decorated) > len(values):
            raise InvalidInputError(
                f"column {name!r} contains numbers with extra characters, such as {decorated[0]!r}. Remove "
                "the characters from the file, or leave the column out with --ignore."
            )
        others = [value for value in values if not is_convertible(value, float)]
        is_later = not others
        others = others or _later_words(frame[name])
        if others and 2 * len(others) < (frame[name].len() if is_later else len(values)):
            notes.append(
                f"{name!r} is text, so each value is a category. Most values are numbers, but {others[0]!r} "
                f"is not. If it means missing, add --missing {others[0]!r}."
            )
        elif 2 * sum(is_other_date(value) or parse_date(value) is not None for value in values) > len(values):
            notes.append(
                f"{name!r} is text, so each value is a category. To be recognized, all dates must be written "
                f"as 2020-01-31; {_not_a_date(values)!r} is not."
            )
    return notes


def _not_a_date(values: Sequence[str]) -> str:
    """Return the first value that is not an ISO date, or else the one that differs in its time zone."""
    other = next((value for value in values if parse_date(value) is None), None)
    return values[-1] if other is None else other


def date_notes(frame: pl.DataFrame) -> list[str]:
    """Return a note that lists the columns that were read as dates, which may be text in the file."""
    names = [repr(name) for name, kind in _kinds(frame) if kind is ColumnKind.DATE]
    more = f" and {len(names) - _MOST_LISTED} more" * (len(names) > _MOST_LISTED)
    return [f"read as dates: {', '.join(names[:_MOST_LISTED])}{more}"] if names else []


def _kinds(frame: pl.DataFrame) -> Iterator[tuple[str, ColumnKind | None]]:
    return zip(frame.columns, kinds_of_frame(nw.from_native(frame)), strict=True)


def _header_notes(names: list[str]) -> list[str]:
    """Return a note if the column names may be values: numbers that are not consecutive whole numbers."""
    if not names or not all(is_convertible(name, float) for name in names):
        return []
    numbers = [float(name) for name in names]
    if all(after == before + 1 for before, after in pairwise(numbers)) and numbers[0].is_integer():
        return []
    return [
        f"All column names are numbers, such as {names[0]!r}. If the file has no header, its first row was "
        "read as one. Add a header to the file."
    ]


def _later_words(column: pl.Series) -> list[str]:
    """Return the values of a whole text column that are not numbers."""
    words = column.filter(column.cast(pl.Float64, strict=False).is_null()).drop_nulls()
    return [value for value in words.to_list() if not is_convertible(value, float)]


def code_notes(frame: pl.DataFrame) -> list[str]:
    """Return notes on text columns that may hold numbers with leading zeros or with too many digits."""
    notes = []
    for name, values in _text_columns(frame):
        if not all(is_convertible(value, float) for value in values):
            continue
        codes = [value for value in values if is_code(value)]
        large = frame[name].filter(frame[name].str.len_bytes() > _DIGITS).head(1).to_list()
        what, found = ("leading zeros", codes) if codes else (f"more than {_DIGITS} digits", large)
        if found:
            notes.append(
                f"{name!r} is text, so each value is a category. It contains numbers with {what}, such as "
                f"{found[0]!r}."
            )
    return notes


def _raise_not_utf8(file: TableFile) -> NoReturn:
    line = next((i for i, text in enumerate(_lines(file), 1) if "\ufffd" in text), None)
    place = "" if line is None else f" in line {line}"
    file.fail(
        f"is not valid UTF-8{place}. Specify its encoding, such as --encoding cp1252 or --encoding latin-1."
    )


def _lines(file: TableFile) -> Iterator[str]:
    with file.open() as stream, io.TextIOWrapper(stream, file.encoding, "replace", newline="") as lines:
        try:
            yield from lines
        except UnicodeError:  # UTF-16 without its first two bytes
            file.fail(f"is not encoded in {file.encoding}. Use another --encoding.")


def _read_json_lines(file: TableFile) -> pl.DataFrame:
    return pl.read_ndjson(file.read_bytes(), infer_schema_length=None)


def _read_parquet(file: TableFile) -> pl.DataFrame:
    advice = "convert it to CSV, or set --out to a folder to explain it piece by piece"
    return _read_columns(file, pl.scan_parquet(io.BytesIO(file.read_bytes())), advice, first_rows=1)


def _read_arrow(file: TableFile) -> pl.DataFrame:
    advice = "save it without compression"
    return _read_columns(file, pl.scan_ipc(io.BytesIO(file.read_bytes())), advice)


def _read_columns(
    file: TableFile, scanned: pl.LazyFrame, advice: str, first_rows: int | None = None
) -> pl.DataFrame:
    """Read a table without columns of lists or other nested types, which are never used and can be huge."""
    schema = scanned.collect_schema()
    _check_names(file, schema.names())
    most, n_rows = _most_expanded(file), scanned.select(pl.len()).collect().item()
    n_bytes = n_rows * sum(map(_width, schema.values()))
    for n_more in _text_bytes(scanned, n_rows, first_rows or n_rows):
        if n_bytes > most:
            break
        n_bytes += n_more
    if n_bytes > most:
        _raise_expanded(file, most, advice)
    unused = [name for name, dtype in schema.items() if dtype.is_nested() or dtype == pl.Binary]
    return scanned.with_columns(pl.lit(None, dtype=schema[name]).alias(name) for name in unused).collect()


def _text_bytes(scanned: pl.LazyFrame, n_rows: int, size: int) -> Iterator[int]:
    """Yield the number of bytes of text in one group of rows after another.

    The first group has ``size`` rows. Each later one has as many rows as take little memory, provided that
    the text is no longer than before.
    """
    texts = [pl.col(name) for name, dtype in scanned.collect_schema().items() if dtype == pl.String]
    start, longest = 0, 1
    while texts and start < n_rows:
        lengths = pl.sum_horizontal(text.str.len_bytes().cast(pl.Int64) for text in texts)
        part = scanned.slice(start, size).select(lengths.sum().alias("all"), lengths.max().alias("longest"))
        found = part.collect(engine="streaming").row(0, named=True)
        yield found["all"]
        start, longest = start + size, max(longest, found["longest"])
        size = max(1, min(4 * size, _MOST_ROWS, _TEXT // longest))


def _width(dtype: Any) -> int:
    """Return the number of bytes that a value takes in memory, not counting the characters of text."""
    if isinstance(dtype, pl.Array):
        return dtype.size * _width(dtype.inner)
    if isinstance(dtype, pl.Struct):
        return sum(_width(field.dtype) for field in dtype.fields)
    return 8 if dtype.is_numeric() or dtype.is_temporal() else 16


def _read_workbook(file: TableFile) -> pl.DataFrame:
    try:
        import fastexcel  # noqa: F401  # to see whether it is installed
    except ImportError as error:
        raise MissingDependencyError(
            f'{file.path}: reading workbooks needs fastexcel: pip install "whycluster[excel]"'
        ) from error
    try:
        _check_expanded(file)
        # polars would look up the name of an open file again, and expand it.
        return pl.read_excel(io.BytesIO(file.read_bytes()), sheet_name=file.sheet)
    except (pl.exceptions.PolarsError, OSError, InvalidInputError):
        raise
    except Exception as error:  # fastexcel has its own exceptions
        file.fail(f"cannot be read as a workbook: {_first_line(error)}")


def _check_expanded(file: TableFile) -> None:
    """Raise an error if a workbook, which is a zip archive, expands to too many bytes."""
    if zipfile.is_zipfile(file.path):
        with zipfile.ZipFile(file.path) as archive:
            if sum(entry.file_size for entry in archive.infolist()) > (most := _most_expanded(file)):
                _raise_expanded(file, most)


_READERS: dict[str, Callable[[TableFile], pl.DataFrame]] = {
    ".csv": _read_delimited,
    ".tsv": _read_delimited,
    ".txt": _read_delimited,
    ".parquet": _read_parquet,
    ".arrow": _read_arrow,
    ".feather": _read_arrow,
    ".jsonl": _read_json_lines,
    ".ndjson": _read_json_lines,
    ".xlsx": _read_workbook,
    ".xls": _read_workbook,
    ".ods": _read_workbook,
}
