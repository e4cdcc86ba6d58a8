"""Sample the rows of many files, in order to cluster the sample instead of all rows.

The sample is stored with the results. A resumed run therefore produces the same clusters, even if damaged
parts have been repaired in the meantime.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from whycluster.core.errors import InvalidInputError
from whycluster.data.column_checks import CODE
from whycluster.data.column_kinds import kind_of_arrow
from whycluster.data.progress import Progress
from whycluster.engines.files.batches import long_bytes
from whycluster.engines.files.parts import FilePart, PartError, reading
from whycluster.engines.files.plan import WHERE, Kind, as_read, kinds_of, with_text
from whycluster.engines.files.run_state import RunState

SAMPLE_FILE = "_whycluster.sample"
_DATA = b"whycluster"  # metadata key: the path of the data
_STEP = b"whycluster.step"  # metadata key: the sampling step
_ROWS = 100_000  # minimum number of rows in the sample if the data have that many; the maximum is twice this
_VALUES = 20_000_000  # maximum number of values in the sample, for tables with many columns
_BATCH, _BATCH_VALUES = 65_536, 4_000_000  # number of rows or values read per batch
_TEXT = 1 << 28  # maximum number of bytes in the text of the sample
_FEWEST = 1000  # minimum number of rows in a sample or a batch
_FRAMES = 256  # number of pieces of the sample before they are concatenated


@dataclass(frozen=True)
class RowSample:
    """Every ``step``-th row of all parts.

    Attributes
    ----------
    rows : the sampled rows
    step : the sampling step
    notes : notes for the user
    unsaved : the contents of the sample file, or None if the file already exists
    """

    rows: pl.DataFrame
    step: int
    notes: list[str] = field(default_factory=list)
    unsaved: pa.Buffer | None = None

    def save(self, folder: Path, overwrite: bool, durable: bool) -> None:
        """Write the sample to the results folder, unless the folder contains a run that must be kept."""
        if self.unsaved is None:
            return
        with RunState(folder, WHERE, durable).opened() as run_state:
            if overwrite or not run_state.is_begun:
                with run_state.writing(SAMPLE_FILE) as path:
                    path.write_bytes(self.unsaved)


class _CodesError(Exception):
    """Raised if numeric columns turn out to hold codes such as 007, which must be read as text."""

    def __init__(self, names: Collection[str]) -> None:
        super().__init__()
        self.names = names


def take_sample(parts: list[FilePart], data: str, folder: Path, overwrite: bool) -> RowSample:
    """Return the sample stored with the results, or draw a new one."""
    stored = None if overwrite else _read(folder / SAMPLE_FILE, data)
    return stored or _draw(parts, data)


def _read(source: Any, data: str) -> RowSample | None:
    """Return the stored sample, or None if it does not exist, is damaged or comes from other data."""
    try:
        with reading():
            table = pq.read_table(source)
    except PartError as error:
        if _is_system_error(error) and os.path.lexists(source):
            raise InvalidInputError(
                f"explain: the sample in {str(source)!r} must be readable; {error}."
            ) from error
        return None
    metadata = table.schema.metadata or {}
    if metadata.get(_DATA) != os.fsencode(os.path.abspath(data)):
        return None
    return RowSample(_to_frame(table), int(metadata.get(_STEP, 1)))


def _draw(parts: list[FilePart], data: str) -> RowSample:
    """Draw a new sample, whose columns have the types that they will have when read from its file."""
    failed: list[str] = []
    with Progress("drawing a sample", None):
        schemas: dict[FilePart, pa.Schema] = {}
        for part in parts:
            with _recording_failure(part, failed):
                schemas[part] = part.look()[0]
        rows, step = _sampled(schemas, failed)
    sink = pa.BufferOutputStream()
    metadata = {_DATA: os.fsencode(os.path.abspath(data)), _STEP: str(step)}
    pq.write_table(rows.to_arrow().replace_schema_metadata(metadata), sink)
    contents = sink.getvalue()
    sample = _read(pa.BufferReader(contents), data)
    assert sample is not None
    more = f"; and {len(failed) - 1} more" * (len(failed) > 1)
    notes = [f"rows that cannot be read are not clustered; {each}{more}" for each in failed[:1]]
    return replace(sample, notes=notes, unsaved=contents)


def _sampled(schemas: Mapping[FilePart, pa.Schema], failed: list[str]) -> tuple[pl.DataFrame, int]:
    """Return the sample and its step; columns that turn out to hold codes are read as text."""
    n_failed = len(failed)
    try:
        return _every_nth(schemas, failed)
    except _CodesError as error:
        codes = error.names
    del failed[n_failed:]
    known = {part: with_text(schema, codes) if part.is_text else schema for part, schema in schemas.items()}
    return _sampled(known, failed)


def _every_nth(schemas: Mapping[FilePart, pa.Schema], failed: list[str]) -> tuple[pl.DataFrame, int]:
    """Return every n-th row of all parts, and n, which doubles whenever the sample gets too large."""
    step, pieces, n_seen, n_sampled, n_bytes = 1, list[pl.DataFrame](), 0, 0, 0
    for batch in _batches(schemas, failed):
        drawn = pa.array(range(-n_seen % step, batch.num_rows, step), pa.int64())
        pieces.append(_to_frame(batch.take(drawn)))  # a slice would keep the whole batch in memory
        n_seen, n_sampled = n_seen + batch.num_rows, n_sampled + len(drawn)
        n_bytes += _n_long(pieces[-1])
        if len(pieces) > _FRAMES:
            pieces = [_concatenated(pieces)]
        most = 2 * _rows_for(batch.num_columns, _VALUES, _ROWS)
        while n_sampled > most or (n_bytes > _TEXT and n_sampled > 2):
            pieces, step = [_halved(_concatenated(pieces))], 2 * step
            n_sampled, n_bytes = pieces[0].height, _n_long(pieces[0])
    if not n_seen:
        why = f" {failed[0]}." if failed else ""
        raise InvalidInputError(f"explain: at least one part must contain readable rows; none does.{why}")
    return _concatenated(pieces), step


def _to_frame(rows: pa.Table | pa.RecordBatch) -> pl.DataFrame:
    """Return a polars frame with the same names; polars itself would rename a column without a name."""
    names = rows.schema.names
    frame = pl.DataFrame(rows.rename_columns([str(i) for i in range(len(names))]))
    frame.columns = names
    return frame


def _halved(frame: pl.DataFrame) -> pl.DataFrame:
    """Return a copy of every second row; a slice would keep all text in memory."""
    half = frame[::2]
    return _to_frame(half.to_arrow()) if _n_long(frame) > _TEXT else half


def _n_long(frame: pl.DataFrame) -> int:
    """Return the number of bytes in columns that hold neither numbers nor dates, such as text and lists."""
    others = [c for c in frame.iter_columns() if not (c.dtype.is_numeric() or c.dtype.is_temporal())]
    return int(sum(column.estimated_size() for column in others))


def _rows_for(n_columns: int, n_values: int, most: int) -> int:
    """Return the number of rows that hold ``n_values`` values, between `_FEWEST` and ``most``."""
    return max(_FEWEST, min(most, n_values // max(n_columns, 1)))


def _concatenated(frames: list[pl.DataFrame]) -> pl.DataFrame:
    """Concatenate frames, some of which may lack some columns."""
    try:
        return pl.concat(frames, how="diagonal_relaxed")
    except pl.exceptions.PolarsError as error:
        raise InvalidInputError(
            f"explain: columns must have the same types in all parts ({error})."
        ) from error


def _batches(schemas: Mapping[FilePart, pa.Schema], failed: list[str]) -> Iterator[pa.RecordBatch]:
    """Yield the rows of all parts; record in ``failed`` why a part does not fit or cannot be read."""
    kinds = kinds_of(list(schemas.items()))  # as in `explain_dataset`
    typed = {
        entry.name
        for part, schema in schemas.items()
        for entry in schema
        if not part.is_text and kind_of_arrow(entry.type).is_numeric
    }
    for part, schema in schemas.items():
        with _recording_failure(part, failed):
            yield from _rows(part, schema, kinds, typed)


@contextmanager
def _recording_failure(part: FilePart, failed: list[str]) -> Iterator[None]:
    """Stop reading a part that turns out to be unreadable, and record the reason in ``failed``."""
    try:
        with reading():
            yield
    except PartError as error:
        if _is_system_error(error):  # another attempt may read more rows, and find other clusters
            raise InvalidInputError(
                f"explain: the rows to cluster must be drawn from all parts; {part.name!r}: {error}."
            ) from error
        failed.append(f"{part.name!r}: {error}")


def _is_system_error(error: PartError) -> bool:
    """Return whether the operating system could not read a file, as opposed to a damaged file."""
    return isinstance(error.__cause__, OSError) and error.__cause__.errno is not None


def _rows(
    part: FilePart, schema: pa.Schema, kinds: Mapping[str, Kind], typed: Collection[str]
) -> Iterator[pa.RecordBatch]:
    """Yield all rows of a part.

    Raise an error if a column is numeric in this part but not in most parts, or the other way around, or if a
    numeric column seems to hold codes. Columns in ``typed``, which a Parquet file declares as numeric, are
    not checked for codes.
    """
    fields = [entry.with_type(as_read(entry.type, part, kinds[entry.name])) for entry in schema]
    odd = [entry for entry in fields if kind_of_arrow(entry.type).is_numeric != kinds[entry.name].is_number]
    if odd:
        raise PartError(f"column {odd[0].name!r} must have the same type as in most parts")
    numbers = {
        entry.name: guess
        for entry, guess in zip(fields, schema.types, strict=True)
        if part.is_text and entry.type == pa.float64()
    }
    as_text = list(with_text(pa.schema(fields), numbers))
    n_rows = _rows_for(len(fields), _BATCH_VALUES, _BATCH)
    if long := long_bytes(part, as_text):
        n_rows = min(n_rows, max(1, int(8 * _BATCH_VALUES / long)))
    for batch in part.batches(as_text, n_rows):
        yield _with_numbers(batch, numbers, typed)


def _with_numbers(
    batch: pa.RecordBatch, numbers: Mapping[str, pa.DataType], typed: Collection[str]
) -> pa.RecordBatch:
    """Convert text columns to their inferred numeric types; raise an error for codes."""
    texts = {name: pc.ascii_trim_whitespace(batch.column(name)) for name in numbers}
    codes = {name for name, text in texts.items() if name not in typed and _has_codes(text)}
    if codes:
        raise _CodesError(codes)
    for name, text in texts.items():
        index = batch.schema.get_field_index(name)
        batch = batch.set_column(index, name, _as_numbers(text, numbers[name]))
    return batch


def _has_codes(text: pa.Array) -> bool:
    return bool(pc.any(pc.match_substring_regex(text, f"^{CODE}$")).as_py())


def _as_numbers(text: pa.Array, guess: pa.DataType) -> pa.Array:
    """Convert text to integers if possible, else to floats.

    As floats, identifiers would not be recognized, and large identifiers that differ could become equal.
    """
    if not pa.types.is_floating(guess):  # fractions cannot become integers
        with suppress(pa.ArrowInvalid):
            return text.cast(pa.int64())
    return text.cast(pa.float64())
