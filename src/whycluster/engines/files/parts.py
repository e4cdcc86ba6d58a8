"""Tables that lie in many files, or in a file larger than memory: their parts, read batch by batch."""

from __future__ import annotations

import fnmatch
import glob
import itertools
import os
import uuid
import warnings
from collections import Counter
from collections.abc import Generator, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

from whycluster.core.errors import FilesWarning, InvalidInputError, MissingDependencyError
from whycluster.data.display import count
from whycluster.data.missing import MISSING_WORDS

PARQUET = (".parquet", ".parq", ".pq")
KINDS = (*PARQUET, ".csv", ".tsv")
_OTHERS = (
    ".arrow",
    ".feather",
    ".ipc",
    ".orc",
    ".avro",
    ".json",
    ".jsonl",
    ".ndjson",
    ".txt",
    ".xlsx",
    ".ods",
)
_PIECE = 1 << 18  # bytes
_BLOCK, _LONGEST_HEADER, _LINES = 1 << 20, 1 << 24, 16  # bytes, and lines that a block of text has to hold
_COMPRESSED = {".gz": "gzip", ".bz2": "bz2", ".zst": "zstd"}
_PATTERN = set("*?[")


@dataclass(frozen=True)
class FilePart:
    """One file, or one fragment of a pyarrow Dataset.

    Attributes
    ----------
    name : of the part within the whole, with "/" between folders; no two are the same
    path : where it lies; None for what lies in memory
    """

    name: str
    path: Path | None
    is_text: ClassVar[bool] = False
    """Whether types of columns are guessed, by what stands in the first rows."""

    @property
    def identity(self) -> list[Any]:
        """What changes when the file does: where it is, its size, and when it was written."""
        try:
            facts = os.stat(self.path or "")
        except OSError:  # reading it says so
            return []
        return [str(self.path), facts.st_size, facts.st_mtime_ns]

    @property
    def placed(self) -> frozenset[str]:
        """The columns that it does not hold, but its place in folders stands for."""
        return frozenset()

    def look(self) -> tuple[Any, int | None]:
        """The pyarrow schema of its columns; how many rows it has, if that is told without reading them."""
        raise NotImplementedError

    def batches(self, columns: Sequence[Any], n_rows: int) -> Generator[Any]:
        """All rows in order, as record batches with up to so many rows, of these columns.

        These are fields of pyarrow, of the types that they are to be read as.
        """
        raise NotImplementedError


class ParquetPart(FilePart):
    """A Parquet file. It is read row group by row group, of which only a batch is decoded at a time."""

    def look(self) -> tuple[Any, int]:
        """As its footer says."""
        footer = load_pyarrow().parquet.read_metadata(self.path)
        return footer.schema.to_arrow_schema(), int(footer.num_rows)

    def batches(self, columns: Sequence[Any], n_rows: int) -> Generator[Any]:
        """Only the columns that are asked for are read."""
        # By pieces: otherwise all of a row group is in memory, and there may be but one.
        options = {"buffer_size": _PIECE, "pre_buffer": False, "page_checksum_verification": True}
        with load_pyarrow().parquet.ParquetFile(self.path, **options) as file:
            for batch in file.iter_batches(n_rows, columns=[column.name for column in columns]):
                yield _as_asked(batch, columns)


class TextPart(FilePart):
    """A CSV file, maybe compressed; what its columns hold is guessed by its first megabyte.

    Text is missing where nothing stands, or one of the words that are taken for a missing number; but not in
    columns that may have no nulls, whose text is as it stands.
    """

    is_text = True

    def look(self) -> tuple[Any, None]:
        """By the first block; to know how many rows there are, all would have to be read."""
        with self._open() as reader:
            names = reader.schema.names
        if len(names) == 1 and ";" in names[0]:
            raise ValueError(
                "values seem to have semicolons between them, where there must be commas; convert it, or "
                "give a pyarrow Dataset that knows of it"
            )
        return reader.schema, None

    @property
    def is_compressed(self) -> bool:
        """By its name."""
        return Path(self.name).suffix.lower() in _COMPRESSED

    def density(self) -> float:
        """How many rows a byte has, in its first block."""
        with self._open() as reader:
            first = next(iter(reader), None)
        return 0.0 if first is None else first.num_rows / min(self._block_size(), self.identity[1])

    def batches(self, columns: Sequence[Any], n_rows: int) -> Generator[Any]:
        """Blocks of text are gathered to batches."""
        pa = load_pyarrow()
        types = {column.name: column.type for column in columns}
        with self._open(include_columns=list(types), column_types=types) as reader:
            held: list[Any] = []
            for block in reader:
                held.append(_with_nulls(block, columns))
                if sum(len(part) for part in held) >= n_rows:
                    yield from _cut(pa.Table.from_batches(held), n_rows)
                    held = []
            if held:
                yield from _cut(pa.Table.from_batches(held), n_rows)

    def _stream(self) -> Any:
        """Its bytes, of which pyarrow would see that they are compressed only by names in small letters."""
        compression = _COMPRESSED.get(Path(self.name).suffix.lower())
        return load_pyarrow().input_stream(self.path, compression=compression, buffer_size=_PIECE)

    def _open(self, **options: Any) -> Any:
        csv = load_pyarrow().csv
        tab = _kind(Path(self.name)) == ".tsv"
        return csv.open_csv(
            self._stream(),
            read_options=csv.ReadOptions(block_size=self._block_size()),
            parse_options=csv.ParseOptions(delimiter="\t" if tab else ",", newlines_in_values=True),
            convert_options=csv.ConvertOptions(null_values=list(MISSING_WORDS), **options),
        )

    def _block_size(self) -> int:
        """Bytes that are parsed at a time: at least some lines, which are as long as there are columns."""
        start = b""
        with self._stream() as file:
            while b"\n" not in start and len(start) < _LONGEST_HEADER and (more := file.read(_PIECE)):
                start += more
        return max(_BLOCK, _LINES * len(start.partition(b"\n")[0]))


@dataclass(frozen=True)
class FragmentPart(FilePart):
    """A fragment of a pyarrow Dataset, with the columns that its place in folders gives it."""

    fragment: Any
    whole: Any
    _token: str = field(default_factory=lambda: uuid.uuid4().hex)

    @property
    def identity(self) -> list[Any]:
        """The same by its file system; what lies in memory is never known to be what it was before."""
        path = getattr(self.fragment, "path", None)
        if not path:
            return [self._token]
        facts = self.fragment.filesystem.get_file_info(path)
        groups = [str(group.id) for group in getattr(self.fragment, "row_groups", None) or []]
        return [path, facts.size, facts.mtime_ns, *groups]

    def look(self) -> tuple[Any, int | None]:
        """For Parquet, as the footer says; the rows of others would have to be read."""
        n_rows = int(self.fragment.count_rows()) if hasattr(self.fragment, "row_groups") else None
        return self._schema(), n_rows

    def _schema(self) -> Any:
        """That of the dataset, with the columns as this fragment has them, where it says so itself."""
        import pyarrow as pa

        said = {field.name: field for field in self.whole} if self._is_guessed else {}
        own = [said.get(field.name, field) for field in self.fragment.physical_schema]
        return pa.schema([*own, *(field for field in self.whole if field.name in self.placed)])

    @property
    def placed(self) -> frozenset[str]:
        """Those that hive's folders, or others, stand for."""
        from pyarrow.dataset import get_partition_keys

        keys = get_partition_keys(self.fragment.partition_expression)
        return frozenset(keys) - {*self.fragment.physical_schema.names}

    @property
    def _is_guessed(self) -> bool:
        """Whether its files do not say of which types columns are; the dataset may know better."""
        import pyarrow.dataset as ds

        return isinstance(getattr(self.fragment, "format", None), (ds.CsvFileFormat, ds.JsonFileFormat))

    def batches(self, columns: Sequence[Any], n_rows: int) -> Generator[Any]:
        """By a scanner that reads one batch ahead, and of Parquet pieces of row groups."""
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
            yield _as_asked(batch, columns)


class PartError(Exception):
    """A part that cannot be read, or does not fit; others may."""


@contextmanager
def reading() -> Iterator[None]:
    """What goes wrong meanwhile is the fault of the part."""
    try:
        yield
    except (OSError, ValueError, KeyError, load_pyarrow().ArrowException) as error:
        told = " ".join(str(error).split())[:300].rstrip(".")
        raise PartError(f"it cannot be read ({told})") from error


def _as_asked(batch: Any, columns: Sequence[Any]) -> Any:
    """A batch with these columns, in this order and of these types."""
    pa = load_pyarrow()
    arrays = [batch.column(column.name) for column in columns]
    cast = [a if a.type == c.type else a.cast(c.type) for a, c in zip(arrays, columns, strict=True)]
    return pa.RecordBatch.from_arrays(cast, names=[column.name for column in columns])


def _with_nulls(batch: Any, columns: Sequence[Any]) -> Any:
    """A batch of a CSV file with nulls where text is missing."""
    pa = load_pyarrow()
    import pyarrow.compute as pc

    missing = pa.array(MISSING_WORDS)
    for place, column in enumerate(columns):
        if column.nullable and column.type == pa.string():
            text = batch.column(place)
            there = pc.if_else(pc.is_in(text, missing), pa.scalar(None, pa.string()), text)
            batch = batch.set_column(place, column, there)
    return batch


def about(parts: Sequence[FilePart]) -> int | None:
    """How many rows files of text have, about, by the largest; None if it cannot be told by their sizes."""
    files = [part for part in parts if isinstance(part, TextPart) and not part.is_compressed]
    if len(files) < len(parts):
        return None
    try:
        with reading():
            sizes = [part.identity[1] for part in files]
            return round(sum(sizes) * files[sizes.index(max(sizes))].density()) if files else 0
    except (PartError, IndexError):  # which will be told when it is read
        return None


def find_parts(data: Any, where: str) -> list[FilePart]:
    """The parts of a file, a folder, a pattern, a list of these, or a pyarrow Dataset; in order of name."""
    if hasattr(data, "get_fragments"):
        return _fragments(data, where)
    names = _names(data)
    if names is None:
        raise InvalidInputError(
            f"{where}: data must be a file, a folder, a pattern such as 'in/*.parquet', a list of these, or "
            f"a pyarrow Dataset; got {type(data).__name__}."
        )
    paths, others = list[Path](), list[Path]()
    for each in names:
        paths += _files(each, where, others)
    if others:
        warnings.warn(
            f"{where}: {count(len(others), 'file')} of the folder {'is' if len(others) == 1 else 'are'} left "
            f"out, such as {others[0].as_posix()!r}; read are {', '.join(KINDS)}.",
            FilesWarning,
            stacklevel=3,
        )
    files = _different(paths)
    if not files:
        raise InvalidInputError(
            f"{where}: data must be files of the kind {', '.join(KINDS)}; there is none at {data!r}."
        )
    several = len(names) > 1 or files == [_plain(Path(names[0]))]
    root = Path(os.path.commonpath([path.parent for path in files])) if several else _root(names[0])
    return [_of_file(path, path.relative_to(root).as_posix(), where) for path in files]


def _different(paths: Iterable[Path]) -> list[Path]:
    """The files, in order of name; of several ways to one, by links, the shortest."""
    found: dict[str, Path] = {}
    for path in sorted(paths, key=lambda path: (len(path.parts), path)):
        found.setdefault(os.path.realpath(path), path)
    return sorted(found.values())


def takes_in(data: Any, folder: Path) -> bool:
    """Whether files in a folder, or below it, would be among the data, if they were there."""
    place = folder.resolve()
    for name in _names(data) or []:
        path = Path(name)
        if path.is_dir() and path.resolve() in (place, *place.parents):
            return True
        if is_pattern(name) and not path.exists():
            own = itertools.takewhile(lambda part: part != "**", _plain(path).parts)
            pairs = list(zip(_plain(folder).parts, own, strict=False))
            below = "**" in path.parts or len(_plain(path).parts) > len(_plain(folder).parts)
            if below and all(fnmatch.fnmatchcase(part, pattern) for part, pattern in pairs):
                return True
    return False


def _names(data: Any) -> list[str] | None:
    """The names that data are given by; None if they are given otherwise."""
    given = [data] if isinstance(data, (str, os.PathLike)) else data
    if not isinstance(given, (list, tuple)) or not all(isinstance(g, (str, os.PathLike)) for g in given):
        return None
    return [os.path.expanduser(os.fspath(each)) for each in given]


def _files(given: str, where: str, others: list[Path]) -> list[Path]:
    """The files that a name, a folder or a pattern stands for, none of them hidden.

    What else in a folder looks like data goes to ``others``.
    """
    path = Path(given)
    if path.is_dir():
        inside = glob.glob("**/*", root_dir=given, recursive=True)  # also in folders that are links
        there = [name for name in map(Path, inside) if not _is_hidden(name) and (path / name).is_file()]
        others += [name for name in there if _kind(name) in _OTHERS]
        return [_plain(path / name) for name in there if _kind(name) in KINDS]
    if path.exists() or not is_pattern(given):
        if not path.is_file():
            afar = " Data that lie elsewhere can be given as a pyarrow Dataset." * ("://" in given)
            raise InvalidInputError(f"{where}: data must be files; there is none at {given!r}.{afar}")
        return [_plain(path)]
    found = [_plain(Path(name)) for name in glob.glob(given, recursive=True)]
    return [f for f in found if f.is_file() and not _is_hidden(f.relative_to(_root(given)))]


def _root(given: str) -> Path:
    """A folder, or what of a pattern is the same for all: below it, files keep their places."""
    if Path(given).is_dir():
        return _plain(Path(given))
    return _plain(Path(*itertools.takewhile(lambda part: not is_pattern(part), Path(given).parts)))


def _plain(path: Path) -> Path:
    """Without "..", so that a file has one name, and its place within the data is below their folder."""
    return Path(os.path.abspath(path))


def is_pattern(text: str) -> bool:
    """Whether it may stand for several files."""
    return bool(_PATTERN & set(text))


def _is_hidden(path: Path) -> bool:
    """Whether it is a file or folder that tools leave beside data: those of Spark and of ours begin so."""
    return any(part.startswith((".", "_")) for part in path.parts)


def _kind(path: Path) -> str:
    """By the end of its name; text may be compressed."""
    inner, outer = ["", "", *(suffix.lower() for suffix in path.suffixes)][-2:]
    return inner if outer in _COMPRESSED and inner not in PARQUET else outer


def _of_file(path: Path, name: str, where: str) -> FilePart:
    kind = _kind(path)
    if kind not in KINDS:
        raise InvalidInputError(
            f"{where}: data must be files of the kind {', '.join(KINDS)}; got {str(path)!r}. Other "
            "formats can be given as a pyarrow Dataset."
        )
    return ParquetPart(name, path) if kind in PARQUET else TextPart(name, path)


def _fragments(dataset: Any, where: str) -> list[FilePart]:
    parts: list[FilePart] = []
    try:
        fragments = list(dataset.get_fragments())
    except ValueError as error:  # of one that is filtered
        raise InvalidInputError(
            f"{where}: data must be a Dataset with parts ({error}). Give the files, or write it first."
        ) from error
    names = [getattr(fragment, "path", None) for fragment in fragments]
    files = [name for name in names if name]
    root = _above_keys(os.path.commonpath([os.path.dirname(name) for name in files])) if files else ""
    for number, (fragment, name) in enumerate(zip(fragments, names, strict=True)):
        inner = os.path.relpath(name, root) if name else f"part-{number:05d}"
        local = Path(name) if name and os.path.exists(name) else None
        parts.append(FragmentPart(Path(inner).as_posix(), local, fragment, dataset.schema))
    if not parts:
        raise InvalidInputError(f"{where}: data must have parts; the Dataset has none.")
    name, n = Counter(part.name for part in parts).most_common(1)[0]
    if n > 1:
        raise InvalidInputError(
            f"{where}: data must have each part once; the Dataset has {name!r} {n} times."
        )
    return sorted(parts, key=lambda part: part.name)


def _above_keys(folder: str) -> str:
    """The folder above those that stand for values, such as year=2020: there may be others beside it."""
    parts = Path(folder).parts
    first = next((i for i, part in enumerate(parts) if "=" in part), len(parts))
    return str(Path(*parts[:first]))


def _cut(table: Any, n_rows: int) -> Iterator[Any]:
    yield from table.combine_chunks().to_batches(n_rows)


def load_pyarrow() -> Any:
    """The library, or an error that says how to install it."""
    try:
        import pyarrow as pa
        import pyarrow.csv
        import pyarrow.parquet
    except ImportError as error:
        raise MissingDependencyError(
            'explain_dataset needs pyarrow: pip install "whycluster[files]"'
        ) from error
    return pa
