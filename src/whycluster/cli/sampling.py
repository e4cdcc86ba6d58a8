"""A sample of the rows of many files, which is clustered in place of all of them.

It is kept beside the results, so that whoever goes on with them has the same clusters, also when parts have
been mended since.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, TypeVar

import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from whycluster.core.errors import InvalidInputError
from whycluster.data.columns import CODE
from whycluster.data.progress import Progress
from whycluster.engines.files.parts import FilePart, PartError, is_number, reading
from whycluster.engines.files.plan import WHERE, Kind, as_read, kinds_of, with_text
from whycluster.engines.files.run_state import RunState

KEPT = "_whycluster.sample"
_DATA = b"whycluster"  # of the metadata: what it is a sample of
_STEP = b"whycluster.step"  # and every how many of the rows
_ROWS = 100_000  # at least so many are drawn, if they are there, and up to twice as many
_VALUES = 20_000_000  # but of many columns, rows of so many values
_BATCH, _BATCH_VALUES = 65_536, 4_000_000  # rows that are read at a time, or values
_FEWEST = 1000  # rows, of a sample or of a batch
_FRAMES = 256  # that are held apart

Item = TypeVar("Item")


@dataclass(frozen=True)
class Sample:
    """Some of the rows of all parts.

    Attributes
    ----------
    rows : the rows
    step : they are every so many of all rows
    notes : what is to be said of it
    new : as it is to be kept; None if it is kept already
    """

    rows: pl.DataFrame
    step: int
    notes: list[str] = field(default_factory=list)
    new: pa.Buffer | None = None

    def keep(self, folder: Path, anew: bool) -> None:
        """Write it into the folder of the results, unless that has results already, not made anew."""
        if self.new is None:
            return
        with RunState(folder, WHERE).opened() as run_state:
            if anew or not run_state.is_begun:
                with run_state.writing(KEPT) as path:
                    path.write_bytes(self.new)


class _CodesError(Exception):
    """Columns that looked like numbers hold codes, such as 007, and so are text in all parts."""

    def __init__(self, names: Collection[str]) -> None:
        super().__init__()
        self.names = names


def take_sample(parts: list[FilePart], data: str, folder: Path, anew: bool) -> Sample:
    """The sample that is kept in the folder of the results, or else a new one."""
    kept = None if anew else _read(folder / KEPT, data)
    return kept or _draw(parts, data)


def _read(source: Any, data: str) -> Sample | None:
    """What was kept; None if it is not there, not whole, or of other data."""
    try:
        with reading():
            table = pq.read_table(source)
    except PartError:
        return None
    told = table.schema.metadata or {}
    if told.get(_DATA) != os.fsencode(os.path.abspath(data)):
        return None
    return Sample(pl.DataFrame(table), int(told.get(_STEP, 1)))


def _draw(parts: list[FilePart], data: str) -> Sample:
    """Every so many of all rows; they are read as they will be when they were kept."""
    failed: list[str] = []
    with Progress("drawing a sample", None):
        looks = {part: schema for part in parts for schema in _excused(part, failed, _look(part))}
        rows, step = _drawn(looks, failed)
    sink = pa.BufferOutputStream()
    told = {_DATA: os.fsencode(os.path.abspath(data)), _STEP: str(step)}
    pq.write_table(rows.to_arrow().replace_schema_metadata(told), sink)
    new = sink.getvalue()
    kept = _read(pa.BufferReader(new), data)
    assert kept is not None
    more = f"; and {len(failed) - 1} more" * (len(failed) > 1)
    notes = [f"clusters are made without the rows that cannot be read; {each}{more}" for each in failed[:1]]
    return replace(kept, notes=notes, new=new)


def _drawn(looks: Mapping[FilePart, pa.Schema], failed: list[str]) -> tuple[pl.DataFrame, int]:
    """What `_every_so_many` gives, begun anew with text in columns that turn out to hold codes."""
    n_failed = len(failed)
    try:
        return _every_so_many(looks, failed)
    except _CodesError as error:
        codes = error.names
    del failed[n_failed:]
    known = {part: with_text(schema, codes) if part.is_text else schema for part, schema in looks.items()}
    return _drawn(known, failed)


def _every_so_many(looks: Mapping[FilePart, pa.Schema], failed: list[str]) -> tuple[pl.DataFrame, int]:
    """Every s-th row of all parts, and s, which is doubled whenever there are too many."""
    step, held, n_seen, n_held = 1, list[pl.DataFrame](), 0, 0
    for batch in _batches(looks, failed):
        drawn = pa.array(range(-n_seen % step, batch.num_rows, step), pa.int64())
        held.append(pl.DataFrame(batch.take(drawn)))  # a slice would hold all of the batch
        n_seen, n_held = n_seen + batch.num_rows, n_held + len(drawn)
        if len(held) > _FRAMES:
            held = [_joined(held)]
        while n_held > 2 * _at_a_time(batch.num_columns, _VALUES, _ROWS):
            held, step = [_joined(held)[::2]], 2 * step
            n_held = held[0].height
    if not n_seen:
        why = f" {failed[0]}." if failed else ""
        raise InvalidInputError(
            f"explain: there must be rows to cluster; no part has any that can be read.{why}"
        )
    return _joined(held), step


def _at_a_time(n_columns: int, n_values: int, most: int) -> int:
    """How many rows have so many values; at least some, however many columns there are."""
    return max(_FEWEST, min(most, n_values // max(n_columns, 1)))


def _joined(frames: list[pl.DataFrame]) -> pl.DataFrame:
    """Some parts may lack a column that others have."""
    try:
        return pl.concat(frames, how="diagonal_relaxed")
    except pl.exceptions.PolarsError as error:
        raise InvalidInputError(
            f"explain: the columns of all parts must be of the same kinds ({error})."
        ) from error


def _batches(looks: Mapping[FilePart, pa.Schema], failed: list[str]) -> Iterator[pa.RecordBatch]:
    """Those of parts that can be read, and have columns of the same kinds; why not goes to ``failed``."""
    kinds = kinds_of(list(looks.items()))  # as `explain_dataset` will find them
    typed = {
        entry.name
        for part, schema in looks.items()
        for entry in schema
        if not part.is_text and is_number(entry.type)
    }
    for part, schema in looks.items():
        yield from _excused(part, failed, _rows(part, schema, kinds, typed))


def _excused(part: FilePart, failed: list[str], items: Iterator[Item]) -> Iterator[Item]:
    """The same, until it turns out that the part cannot be read."""
    try:
        with reading():
            yield from items
    except PartError as error:
        failed.append(f"{part.name!r}: {error}")


def _look(part: FilePart) -> Iterator[pa.Schema]:
    yield part.look()[0]


def _rows(
    part: FilePart, schema: pa.Schema, kinds: Mapping[str, Kind], typed: Collection[str]
) -> Iterator[pa.RecordBatch]:
    """All rows of a part; raise for codes in columns that are not ``typed``, numbers by their files."""
    fields = [entry.with_type(as_read(entry.type, part, kinds[entry.name])) for entry in schema]
    odd = [entry for entry in fields if is_number(entry.type) != kinds[entry.name].is_number]
    if odd:
        raise PartError(f"column {odd[0].name!r} must be of the same kind as in most parts")
    numbers = {
        entry.name: seems
        for entry, seems in zip(fields, schema.types, strict=True)
        if part.is_text and entry.type == pa.float64()
    }
    as_written = list(with_text(pa.schema(fields), numbers))
    for batch in part.batches(as_written, _at_a_time(len(fields), _BATCH_VALUES, _BATCH)):
        yield _with_numbers(batch, numbers, typed)


def _with_numbers(
    batch: pa.RecordBatch, numbers: Mapping[str, pa.DataType], typed: Collection[str]
) -> pa.RecordBatch:
    """A batch with numbers in place of text, in columns of which it is said what they seem to be.

    Raise for codes.
    """
    texts = {name: pc.ascii_trim_whitespace(batch.column(name)) for name in numbers}
    codes = {name for name, text in texts.items() if name not in typed and _has_codes(text)}
    if codes:
        raise _CodesError(codes)
    for name, text in texts.items():
        place = batch.schema.get_field_index(name)
        batch = batch.set_column(place, name, _as_numbers(text, numbers[name]))
    return batch


def _has_codes(text: pa.Array) -> bool:
    return bool(pc.any(pc.match_substring_regex(text, f"^{CODE}$")).as_py())


def _as_numbers(text: pa.Array, seems: pa.DataType) -> pa.Array:
    """Whole numbers, if all are: as floats they would not look like identifiers, and large ones the same."""
    if not pa.types.is_floating(seems):  # of which each would be tried
        with suppress(pa.ArrowInvalid):
            return text.cast(pa.int64())
    return text.cast(pa.float64())
