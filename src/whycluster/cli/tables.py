"""Read a table in one file, or in all files of a folder, into memory."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import replace

import polars as pl

from whycluster.cli.reading import TableFile, read, with_dates
from whycluster.data import display
from whycluster.data.progress import Progress
from whycluster.data.warnings import FilesWarning
from whycluster.engines.files.parts import FilePart, find_parts, is_pattern

_MOST_LISTED = 8  # columns in a note


def read_table(file: TableFile, least_rows: int = 2) -> tuple[pl.DataFrame, list[str]]:
    """Return a table with at least two rows, or another number, and notes on what was not read.

    The path may also be a folder of Parquet or CSV files, or a pattern.
    """
    with Progress(f"reading {display.printable(file.path.name)}", None):
        if not file.path.is_dir() and (file.path.exists() or not is_pattern(str(file.path))):
            return read(file, least_rows), []
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always", FilesWarning)
            parts = find_parts(str(file.path), str(file.path))
        notes = [str(warning.message).removeprefix(f"{file.path}: ") for warning in caught]
        frames = [read(_file_of(part, file), 0) for part in parts]
        if not set.intersection(*(set(frame.columns) for frame in frames)):
            file.fail("its files must have columns in common; they have none.")
        try:
            frame, left_out = _concatenated(parts, frames)
        except pl.exceptions.PolarsError as error:
            file.fail(f"columns must have the same types in all files ({str(error).splitlines()[0]}).")
    if frame.height < least_rows:
        n_rows = display.count(frame.height, "row")
        file.fail(f"must contain at least {display.count(least_rows, 'row')}; its files contain {n_rows}.")
    return frame, notes + left_out


def _file_of(part: FilePart, file: TableFile) -> TableFile:
    assert part.path is not None  # only fragments of pyarrow Datasets have none
    return replace(file, path=part.path)


def _concatenated(parts: Sequence[FilePart], frames: list[pl.DataFrame]) -> tuple[pl.DataFrame, list[str]]:
    """Return all rows, with the columns that all files have, and a note on the other columns.

    If the types of a column differ, as in files with 007 and 107, all its values become text.
    """
    shared = [name for name in frames[0].columns if all(name in frame.columns for frame in frames)]
    others = dict.fromkeys(name for frame in frames for name in frame.columns if name not in shared)
    some = [
        _without_types_of_nothing(frame[shared]) for frame in frames if frame.height or frame is frames[0]
    ]
    types = {name: {frame[name].dtype for frame in some} - {pl.Null} for name in shared}
    as_text = {name for name, kinds in types.items() if pl.String in kinds and len(kinds) > 1}
    some = [frame.with_columns(frame[name].cast(pl.String) for name in as_text) for frame in some]
    listed = [f"{display.clean(name)} (not in {_lacking(name, parts, frames)})" for name in others]
    more = f"; and {len(listed) - _MOST_LISTED} more" * (len(listed) > _MOST_LISTED)
    notes = [f"left out: {'; '.join(listed[:_MOST_LISTED])}{more}"] * bool(listed)
    frame = pl.concat(some, how="vertical_relaxed")
    return with_dates(frame.cast({pl.Null: pl.String})), notes


def _lacking(column: str, parts: Sequence[FilePart], frames: list[pl.DataFrame]) -> str:
    """Return the name of the first file that lacks a column."""
    found = (part.name for part, frame in zip(parts, frames, strict=True) if column not in frame.columns)
    return display.printable(next(found))


def _without_types_of_nothing(frame: pl.DataFrame) -> pl.DataFrame:
    """Return the table with untyped nulls in columns without values, which CSV readers type as text."""
    empty = [name for name in frame.columns if frame[name].null_count() == frame.height]
    return frame.with_columns(pl.lit(None).alias(name) for name in empty)
