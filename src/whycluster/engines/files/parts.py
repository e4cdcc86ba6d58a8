"""The parts of a table in files: how they are found, identified and read in batches."""

from __future__ import annotations

import codecs
import fnmatch
import glob
import itertools
import os
import re
import uuid
import warnings
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Generator, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, final

from whycluster.core.errors import InvalidInputError, MissingDependencyError
from whycluster.data.display import count, cut
from whycluster.data.missing import MISSING_WORDS
from whycluster.data.warnings import FilesWarning

PARQUET = (".parquet", ".parq", ".pq")
KINDS = (*PARQUET, ".csv", ".tsv")
_PIECE = 1 << 18  # bytes
_BLOCK, _LONGEST_HEADER = 1 << 20, 1 << 24  # bytes
_LINES = 16  # the minimum number of lines that a block of text should hold
_COMPRESSED = {".gz": "gzip", ".bz2": "bz2", ".zst": "zstd"}
_PATTERN = set("*?[")


@dataclass(frozen=True)
class FilePart(ABC):
    """One file, or one fragment of a pyarrow Dataset.

    Attributes
    ----------
    name : the unique name of the part within the data, with "/" between folders
    path : the path of the file, or None if the part is not a local file
    """

    name: str
    path: Path | None
    is_text: ClassVar[bool] = False
    """Whether the types of the columns are inferred from the first rows."""

    @property
    def identity(self) -> list[Any]:
        """A list that changes when the file changes: path, size, modification time."""
        try:
            facts = os.stat(self.path or "")
        except OSError:  # the error is reported when the file is read
            return []
        return [str(self.path), facts.st_size, facts.st_mtime_ns]

    @property
    def partition_columns(self) -> frozenset[str]:
        """The columns that come from folder names, not from the file."""
        return frozenset()

    @abstractmethod
    def look(self) -> tuple[Any, int | None]:
        """Return the pyarrow schema, and the number of rows if the file stores it, else None."""

    @abstractmethod
    def batches(self, columns: Sequence[Any], n_rows: int) -> Generator[Any]:
        """Yield all rows in order, as record batches of at most ``n_rows`` rows.

        ``columns`` are pyarrow fields: the columns to read, and their types.
        """


@final
class ParquetPart(FilePart):
    """A Parquet file, which is read and decoded one batch at a time."""

    def look(self) -> tuple[Any, int]:
        """Return the schema and the number of rows from the footer."""
        footer = load_pyarrow().parquet.read_metadata(self.path)
        return footer.schema.to_arrow_schema(), int(footer.num_rows)

    def batches(self, columns: Sequence[Any], n_rows: int) -> Generator[Any]:
        """Yield the rows, reading only the requested columns."""
        # The file is read in pieces. Otherwise, a whole row group would be in memory, and the file may have
        # only one.
        options = {"buffer_size": _PIECE, "pre_buffer": False, "page_checksum_verification": True}
        with load_pyarrow().parquet.ParquetFile(self.path, **options) as file:
            for batch in file.iter_batches(n_rows, columns=[column.name for column in columns]):
                yield _select(batch, columns)


@final
class TextPart(FilePart):
    """A CSV or TSV file, possibly compressed; types are inferred from the first megabyte.

    Empty cells and the usual words for missing values count as missing. In columns that cannot be null, text
    stays unchanged. Blank lines are skipped, except in a file with a single column, where they are missing
    values.
    """

    is_text = True

    def look(self) -> tuple[Any, None]:
        """Return the schema inferred from the first block; the number of rows is unknown."""
        with self._open() as reader:
            names = reader.schema.names
        if len(names) == 1 and ";" in names[0]:
            raise ValueError(
                "values must be separated by commas; they seem to be separated by semicolons. Convert the "
                "file, or pass a pyarrow Dataset with the right delimiter"
            )
        return reader.schema, None

    @property
    def is_compressed(self) -> bool:
        """Whether the file is compressed, according to its name."""
        return Path(self.name).suffix.lower() in _COMPRESSED

    def density(self) -> float:
        """Return the number of rows per byte in the first block."""
        with self._open() as reader:
            first = next(iter(reader), None)
        return 0.0 if first is None else first.num_rows / min(_block_size(self._header()), self.identity[1])

    def batches(self, columns: Sequence[Any], n_rows: int) -> Generator[Any]:
        """Yield the rows, combining blocks of text into batches."""
        pa = load_pyarrow()
        types = {column.name: column.type for column in columns}
        with self._open(include_columns=list(types), column_types=types) as reader:
            pending: list[Any] = []
            for block in reader:
                pending.append(_with_nulls(block, columns))
                if sum(len(each) for each in pending) >= n_rows:
                    yield from _split(pa.Table.from_batches(pending), n_rows)
                    pending = []
            if pending:
                yield from _split(pa.Table.from_batches(pending), n_rows)

    def _stream(self) -> Any:
        """Open the file and decompress it if necessary; pyarrow itself recognizes only lowercase suffixes."""
        compression = _COMPRESSED.get(Path(self.name).suffix.lower())
        return load_pyarrow().input_stream(self.path, compression=compression, buffer_size=_PIECE)

    def _open(self, **options: Any) -> Any:
        csv, header = load_pyarrow().csv, self._header()
        sign = "\t" if _kind(Path(self.name)) == ".tsv" else ","
        if header and not header.strip():
            raise ValueError("it must begin with a line of column names; its first line is empty")
        return csv.open_csv(
            self._stream(),
            read_options=csv.ReadOptions(block_size=_block_size(header)),
            parse_options=csv.ParseOptions(
                delimiter=sign, newlines_in_values=True, ignore_empty_lines=_has_several(header, sign)
            ),
            convert_options=csv.ConvertOptions(null_values=list(MISSING_WORDS), **options),
        )

    def _header(self) -> bytes:
        """Return the first line with its line break, or only the start of the line if it is very long."""
        start = b""
        with self._stream() as file:
            while b"\n" not in start and len(start) < _LONGEST_HEADER and (more := file.read(_PIECE)):
                start += more
        line, end, _ = start.removeprefix(codecs.BOM_UTF8).partition(b"\n")
        return line + end


def _block_size(header: bytes) -> int:
    """Return how many bytes to parse at a time: 1 MB, or more if lines are long."""
    return max(_BLOCK, _LINES * len(header))


def _has_several(header: bytes, sign: str) -> bool:
    """Return whether the first line of a file contains several column names."""
    quoted = header.startswith(b'"') and header.count(b'"') % 2 == 1  # a line break in the first name
    names = re.sub(rb'"[^"]*"', b"", header)
    return quoted or sign.encode() in names


@final
@dataclass(frozen=True)
class FragmentPart(FilePart):
    """A fragment of a pyarrow Dataset, including the columns from its folder names.

    Attributes
    ----------
    fragment : the pyarrow Fragment
    dataset_schema : the schema of the Dataset
    """

    fragment: Any
    dataset_schema: Any
    _token: str = field(default_factory=lambda: uuid.uuid4().hex)

    @property
    def identity(self) -> list[Any]:
        """The identity of the file on its file system; data in memory get a new identity in every run."""
        path = getattr(self.fragment, "path", None)
        if not path:
            return [self._token]
        facts = self.fragment.filesystem.get_file_info(path)
        groups = [str(group.id) for group in getattr(self.fragment, "row_groups", None) or []]
        return [path, facts.size, facts.mtime_ns, *groups]

    def look(self) -> tuple[Any, int | None]:
        """Return the schema and, for Parquet, the number of rows."""
        n_rows = int(self.fragment.count_rows()) if hasattr(self.fragment, "row_groups") else None
        return self._schema(), n_rows

    def _schema(self) -> Any:
        """Return the schema of the file; types that the file does not store are taken from the Dataset."""
        import pyarrow as pa

        known = {field.name: field for field in self.dataset_schema} if self._is_inferred else {}
        own = [known.get(field.name, field) for field in self.fragment.physical_schema]
        folders = [field for field in self.dataset_schema if field.name in self.partition_columns]
        return pa.schema([*own, *folders])

    @property
    def partition_columns(self) -> frozenset[str]:
        """The columns that come from folder names, such as Hive partitions."""
        from pyarrow.dataset import get_partition_keys

        keys = get_partition_keys(self.fragment.partition_expression)
        return frozenset(keys) - {*self.fragment.physical_schema.names}

    @property
    def _is_inferred(self) -> bool:
        """Whether the format stores no types, so that the file's own schema is inferred."""
        import pyarrow.dataset as ds

        return isinstance(getattr(self.fragment, "format", None), (ds.CsvFileFormat, ds.JsonFileFormat))

    def batches(self, columns: Sequence[Any], n_rows: int) -> Generator[Any]:
        """Yield the rows from a scanner that reads row groups in pieces, one batch ahead."""
        import pyarrow.dataset as ds

        pieces = {"use_buffered_stream": True, "buffer_size": _PIECE, "pre_buffer": False}
        parquet = isinstance(self.fragment, ds.ParquetFileFragment)
        scan = ds.ParquetFragmentScanOptions(page_checksum_verification=True, **pieces) if parquet else None
        for batch in self.fragment.to_batches(
            schema=self._schema(),
            columns=[column.name for column in columns],
            batch_size=n_rows,
            batch_readahead=1,
            fragment_readahead=1,
            fragment_scan_options=scan,
        ):
            yield _select(batch, columns)


class PartError(Exception):
    """Raised if a part cannot be read or does not match; the other parts can still be explained."""


@contextmanager
def reading() -> Iterator[None]:
    """Turn read errors into a `PartError`."""
    try:
        yield
    except (OSError, ValueError, KeyError, load_pyarrow().ArrowException) as error:
        reason = " ".join(str(error).split())[:300].rstrip(".")
        raise PartError(f"it cannot be read ({reason})") from error


def _select(batch: Any, columns: Sequence[Any]) -> Any:
    """Return a batch with these columns, in this order and with these types."""
    pa = load_pyarrow()
    arrays = [batch.column(column.name) for column in columns]
    cast = [a if a.type == c.type else a.cast(c.type) for a, c in zip(arrays, columns, strict=True)]
    return pa.RecordBatch.from_arrays(cast, names=[column.name for column in columns])


def _with_nulls(batch: Any, columns: Sequence[Any]) -> Any:
    """Return a batch of a CSV file with nulls for missing text."""
    pa = load_pyarrow()
    import pyarrow.compute as pc

    missing = pa.array(MISSING_WORDS)
    for place, column in enumerate(columns):
        if column.nullable and column.type == pa.string():
            text = batch.column(place)
            nulled = pc.if_else(pc.is_in(text, missing), pa.scalar(None, pa.string()), text)
            batch = batch.set_column(place, column, nulled)
    return batch


def estimate_rows(parts: Sequence[FilePart]) -> int | None:
    """Estimate the number of rows in text files from their sizes; return None if that is impossible."""
    files = [part for part in parts if isinstance(part, TextPart) and not part.is_compressed]
    if len(files) < len(parts):
        return None
    try:
        with reading():
            sizes = [part.identity[1] for part in files]
            return round(sum(sizes) * files[sizes.index(max(sizes))].density()) if files else 0
    except (PartError, IndexError):  # the error is reported when the part is read
        return None


def find_parts(data: Any, where: str) -> list[FilePart]:
    """Return the parts of the data, sorted by name.

    ``data`` is a file, a folder, a pattern, a list of these, or a pyarrow Dataset.
    """
    if hasattr(data, "get_fragments"):
        return _fragments(data, where)
    names = _names(data)
    if names is None:
        raise InvalidInputError(
            f"{where}: data must be a file, a folder, a pattern such as 'in/*.parquet', a list of these, or "
            f"a pyarrow Dataset; got {type(data).__name__}."
        )
    paths, others, unread = list[Path](), list[Path](), list[Path]()
    for each in names:
        paths += _files(each, where, others, unread)
    if unread:
        warnings.warn(
            f"{where}: skipped {count(len(unread), 'folder')} that match{'es' * (len(unread) == 1)} the "
            f"pattern: {cut([each.as_posix() for each in unread])}. To read the files in a folder, pass "
            "the folder itself, or a pattern that ends with '**'.",
            FilesWarning,
            stacklevel=3,
        )
    if others:
        shown = cut([each.as_posix() for each in others], 3)
        warnings.warn(
            f"{where}: skipped {count(len(others), 'file')} in the folder: {shown}. Only files of type "
            f"{', '.join(KINDS)} are read.",
            FilesWarning,
            stacklevel=3,
        )
    files = _unique(paths)
    if not files:
        raise InvalidInputError(
            f"{where}: data must contain files of type {', '.join(KINDS)}; found none at {data!r}."
        )
    several = len(names) > 1 or files == [_absolute(Path(names[0]))]
    root = Path(os.path.commonpath([path.parent for path in files])) if several else _root(names[0])
    return [_of_file(path, path.relative_to(root).as_posix(), where) for path in files]


def _unique(paths: Iterable[Path]) -> list[Path]:
    """Return the files sorted by path; if several paths lead to the same file, keep the shortest."""
    found: dict[str, Path] = {}
    for path in sorted(paths, key=lambda path: (len(path.parts), path)):
        found.setdefault(os.path.realpath(path), path)
    return sorted(found.values())


def would_read(data: Any, folder: Path) -> bool:
    """Return whether the next run would read files in this folder, or below it, as data."""
    place = folder.resolve()
    for name in _names(data) or []:
        path = Path(name)
        if path.is_dir() and path.resolve() in (place, *place.parents):
            return True
        if is_pattern(name) and not path.exists():
            own = itertools.takewhile(lambda part: part != "**", _absolute(path).parts)
            pairs = list(zip(_absolute(folder).parts, own, strict=False))
            below = "**" in path.parts or len(_absolute(path).parts) > len(_absolute(folder).parts)
            if below and all(fnmatch.fnmatchcase(part, pattern) for part, pattern in pairs):
                return True
    return False


def _names(data: Any) -> list[str] | None:
    """Return the paths and patterns in ``data``, or None if it contains anything else."""
    given = [data] if isinstance(data, (str, os.PathLike)) else data
    if not isinstance(given, (list, tuple)) or not all(isinstance(g, (str, os.PathLike)) for g in given):
        return None
    paths = [os.fspath(each) for each in given]
    return [path if os.path.lexists(path) else os.path.expanduser(path) for path in paths]


def _files(given: str, where: str, others: list[Path], unread: list[Path]) -> list[Path]:
    """Return the visible files that a path, a folder or a pattern matches.

    Entries of a folder that are neither read nor hidden are added to ``others``, and folders that a pattern
    matches without any of their files to ``unread``.
    """
    path = Path(given)
    if path.is_dir():
        inside = list(_walk(path, where, []))
        others += [
            file.relative_to(path) for file in inside if _kind(file) not in KINDS or not file.is_file()
        ]
        return [_absolute(file) for file in inside if _kind(file) in KINDS and file.is_file()]
    if path.exists() or not is_pattern(given):
        if not path.is_file():
            remote = " For remote files, pass a pyarrow Dataset." * ("://" in given)
            raise InvalidInputError(
                f"{where}: data must name existing files; found none at {given!r}.{remote}"
            )
        return [_absolute(path)]
    _check_listable(given, where)
    found = [_absolute(Path(name)) for name in sorted(glob.glob(given, recursive=True))]
    found = [each for each in found if not is_hidden(each.relative_to(_root(given)))]
    for each in found:
        _check_link(each, where)
    others += [each.relative_to(_root(given)) for each in found if not (each.is_file() or each.is_dir())]
    above = {parent for each in found for parent in each.parents}
    folders = [each for each in found if each.is_dir() and each not in above]
    unread += [each.relative_to(_root(given)) for each in folders if any(_walk(each, where, []))]
    return [each for each in found if each.is_file()]


def _walk(folder: Path, where: str, above: list[str]) -> Iterator[Path]:
    """Yield all visible entries below a folder except folders; links to folders are followed once."""
    real = os.path.realpath(folder)
    if real in above:
        return
    try:
        names = sorted(os.listdir(folder))
    except OSError as error:
        raise InvalidInputError(
            f"{where}: every folder in data must be readable; reading {str(folder)!r} failed "
            f"({error.strerror}). Change its permissions, or pass a list of files."
        ) from error
    for path in (folder / name for name in names if not is_hidden(Path(name))):
        _check_link(path, where)
        if path.is_dir():
            yield from _walk(path, where, [*above, real])
        else:
            yield path


def _check_link(path: Path, where: str) -> None:
    """Raise an error for a link to a file or folder that does not exist or cannot be reached."""
    try:
        path.stat()
    except OSError as error:
        if path.is_symlink():
            raise InvalidInputError(
                f"{where}: every file in data must be readable; {str(path)!r} is a link to "
                f"{os.readlink(path)!r}, which cannot be read ({error.strerror}). Remove the link, or "
                "restore the file."
            ) from error
        raise InvalidInputError(
            f"{where}: every file in data must be readable; reading {str(path)!r} failed ({error.strerror})."
        ) from error


def _check_listable(pattern: str, where: str) -> None:
    """Raise an error if a folder cannot be searched for matches; ``glob`` would skip it silently."""
    parts = Path(pattern).parts
    for length in range(1, len(parts)):
        above = str(Path(*parts[:length]))
        for folder in glob.glob(above, recursive=True) if is_pattern(above) else [above]:
            if os.path.isdir(folder) and not os.access(folder, os.R_OK | os.X_OK):
                raise InvalidInputError(
                    f"{where}: every folder in data must be readable; reading {folder!r} failed "
                    "(Permission denied). Change its permissions, or pass a list of files."
                )


def _root(given: str) -> Path:
    """Return the folder or, for a pattern, the path before the first wildcard.

    Results keep the paths below this folder.
    """
    if Path(given).is_dir():
        return _absolute(Path(given))
    return _absolute(Path(*itertools.takewhile(lambda part: not is_pattern(part), Path(given).parts)))


def _absolute(path: Path) -> Path:
    """Return the absolute path without "..", so that each file has one name, below the folder of the data."""
    return Path(os.path.abspath(path))


def is_pattern(text: str) -> bool:
    """Return whether a path contains wildcards."""
    return bool(_PATTERN & set(text))


def is_hidden(path: Path) -> bool:
    """Return whether a path is hidden. Spark and whycluster give such names to files that are not data."""
    return any(part.startswith((".", "_")) for part in path.parts)


def _kind(path: Path) -> str:
    """Return the suffix of a file in lowercase or, for compressed text, the suffix before the last one."""
    inner, outer = ["", "", *(suffix.lower() for suffix in path.suffixes)][-2:]
    return inner if outer in _COMPRESSED and inner not in PARQUET else outer


def _of_file(path: Path, name: str, where: str) -> FilePart:
    kind = _kind(path)
    if kind not in KINDS:
        raise InvalidInputError(
            f"{where}: every file in data must be of type {', '.join(KINDS)}; got {str(path)!r}. For "
            "other formats, pass a pyarrow Dataset."
        )
    return ParquetPart(name, path) if kind in PARQUET else TextPart(name, path)


def _fragments(dataset: Any, where: str) -> list[FilePart]:
    parts: list[FilePart] = []
    try:
        fragments = list(dataset.get_fragments())
    except ValueError as error:  # the Dataset is filtered
        raise InvalidInputError(
            f"{where}: data must be a Dataset with fragments ({error}). Pass the files, or write the "
            "Dataset to files first."
        ) from error
    names = [getattr(fragment, "path", None) for fragment in fragments]
    files = [name for name in names if name]
    root = _above_keys(os.path.commonpath([os.path.dirname(name) for name in files])) if files else ""
    for number, (fragment, name) in enumerate(zip(fragments, names, strict=True)):
        inner = os.path.relpath(name, root) if name else f"part-{number:05d}"
        local = Path(name) if name and os.path.exists(name) else None
        parts.append(FragmentPart(Path(inner).as_posix(), local, fragment, dataset.schema))
    if not parts:
        raise InvalidInputError(f"{where}: data must have at least one fragment; the Dataset has none.")
    name, n = Counter(part.name for part in parts).most_common(1)[0]
    if n > 1:
        raise InvalidInputError(
            f"{where}: data must list each file once; the Dataset lists {name!r} {n} times."
        )
    return sorted(parts, key=lambda part: part.name)


def _above_keys(folder: str) -> str:
    """Return the folder above all partition folders, such as year=2020, since these may have siblings."""
    parts = Path(folder).parts
    first = next((i for i, part in enumerate(parts) if "=" in part), len(parts))
    return str(Path(*parts[:first]))


def _split(table: Any, n_rows: int) -> Iterator[Any]:
    yield from table.combine_chunks().to_batches(n_rows)


def load_pyarrow() -> Any:
    """Import pyarrow, or raise an error that says how to install it."""
    try:
        import pyarrow as pa
        import pyarrow.csv
        import pyarrow.parquet
    except ImportError as error:
        raise MissingDependencyError(
            'explain_dataset needs pyarrow: pip install "whycluster[files]"'
        ) from error
    return pa
