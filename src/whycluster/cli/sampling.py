"""A sample of the rows of many files, which is clustered in place of all of them.

It is kept beside the results, so that whoever goes on with them has the same clusters, also when parts have
been mended since.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq

from whycluster.engines.ledger import Ledger
from whycluster.engines.plan import WHERE, number_as_read
from whycluster.engines.sources import Part, PartError, is_number, reading
from whycluster.errors import InvalidInputError
from whycluster.progress import Progress

KEPT = "_whycluster.sample"
_DATA = b"whycluster"  # of the metadata: what it is a sample of
_ROWS = 100_000  # at least so many are drawn, if they are there, and up to twice as many
_BATCH = 65_536  # rows


@dataclass(frozen=True)
class Sample:
    """Some of the rows of all parts.

    Attributes
    ----------
    rows : the rows
    notes : what is to be said of it
    new : as it is to be kept; None if it is kept already
    """

    rows: pl.DataFrame
    notes: list[str] = field(default_factory=list)
    new: pa.Buffer | None = None

    def keep(self, folder: Path, anew: bool) -> None:
        """Write it into the folder of the results, unless that has results already, not made anew."""
        if self.new is None:
            return
        with Ledger(folder, WHERE).opened() as ledger:
            if anew or not ledger.is_begun:
                with ledger.writing(KEPT) as path:
                    path.write_bytes(self.new)


def take_sample(parts: list[Part], data: str, folder: Path, anew: bool) -> Sample:
    """The sample that is kept in the folder of the results, or else a new one."""
    kept = None if anew else _read(folder / KEPT, data)
    return _draw(parts, data) if kept is None else Sample(kept)


def _read(source: Any, data: str) -> pl.DataFrame | None:
    """What was kept; None if it is not there, not whole, or of other data."""
    try:
        with reading():
            table = pq.read_table(source)
    except PartError:
        return None
    told = (table.schema.metadata or {}).get(_DATA)
    return pl.DataFrame(table) if told == os.fsencode(os.path.abspath(data)) else None


def _draw(parts: list[Part], data: str) -> Sample:
    """Every so many of all rows; they are read as they will be when they were kept."""
    failed: list[str] = []
    with Progress("drawing a sample", None):
        table = _every_so_many(parts, failed).to_arrow()
    sink = pa.BufferOutputStream()
    pq.write_table(table.replace_schema_metadata({_DATA: os.fsencode(os.path.abspath(data))}), sink)
    new = sink.getvalue()
    rows = _read(pa.BufferReader(new), data)
    assert rows is not None
    more = f"; and {len(failed) - 1} more" * (len(failed) > 1)
    notes = [f"clusters are made without the rows that cannot be read; {each}{more}" for each in failed[:1]]
    return Sample(rows, notes, new)


def _every_so_many(parts: list[Part], failed: list[str]) -> pl.DataFrame:
    """Every s-th row of all parts; s is doubled whenever there are too many."""
    step, held, n_seen = 1, list[pl.DataFrame](), 0
    for batch in _batches(parts, failed):
        drawn = pa.array(range(-n_seen % step, batch.num_rows, step), pa.int64())
        held.append(pl.DataFrame(batch.take(drawn)))  # a slice would hold all of the batch
        n_seen += batch.num_rows
        while sum(frame.height for frame in held) > 2 * _ROWS:
            held, step = [_joined(held)[::2]], 2 * step
    if not n_seen:
        why = f" {failed[0]}." if failed else ""
        raise InvalidInputError(
            f"explain: there must be rows to cluster; no part has any that can be read.{why}"
        )
    return _joined(held)


def _joined(frames: list[pl.DataFrame]) -> pl.DataFrame:
    """Some parts may lack a column that others have."""
    try:
        return pl.concat(frames, how="diagonal_relaxed")
    except pl.exceptions.PolarsError as error:
        raise InvalidInputError(
            f"explain: the columns of all parts must be of the same kinds ({error})."
        ) from error


def _batches(parts: list[Part], failed: list[str]) -> Iterator[pa.RecordBatch]:
    """Those of parts that can be read, and have columns of the same kinds; why not goes to ``failed``."""
    kinds: dict[str, bool] = {}
    for part in parts:
        try:
            with reading():
                schema, _ = part.look()
                found = {e.name: is_number(e.type) for e in schema if not pa.types.is_null(e.type)}
                odd = [name for name in found if found[name] != kinds.setdefault(name, found[name])]
                if odd:
                    raise PartError(f"column {odd[0]!r} must be of the same kind as in other parts")
                yield from part.batches([_as_drawn(entry, kinds, part) for entry in schema], _BATCH)
        except PartError as error:  # noqa: PERF203  # a file has many rows
            failed.append(f"{part.name!r}: {error}")


def _as_drawn(entry: pa.Field, kinds: dict[str, bool], part: Part) -> pa.Field:
    """As it is read: numbers as they will be for explaining; what is blank so far as text, in text."""
    if kinds.get(entry.name):
        return entry.with_type(number_as_read(entry.type, part))
    return entry.with_type(pa.string()) if part.is_text and pa.types.is_null(entry.type) else entry
