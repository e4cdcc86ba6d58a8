"""Read a table in one file, or in all files of a folder, into memory."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any

import polars as pl

from whycluster.cli.reading import TableFile, read, with_dates
from whycluster.core.errors import InvalidInputError
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
        frame, left_out = _concatenated(file, parts, frames)
    if frame.height < least_rows:
        n_rows = display.count(frame.height, "row")
        file.fail(f"must contain at least {display.count(least_rows, 'row')}; its files contain {n_rows}.")
    return frame, notes + left_out


def _file_of(part: FilePart, file: TableFile) -> TableFile:
    assert part.path is not None  # only fragments of pyarrow Datasets have none
    return replace(file, path=part.path)


def _concatenated(
    file: TableFile, parts: Sequence[FilePart], frames: list[pl.DataFrame]
) -> tuple[pl.DataFrame, list[str]]:
    """Return all rows, with the columns that all files have, and a note on the other columns.

    If the types of a column differ, as in files with 007 and 107, all its values become text.
    """
    shared = [name for name in frames[0].columns if all(name in frame.columns for frame in frames)]
    others = dict.fromkeys(name for frame in frames for name in frame.columns if name not in shared)
    columns = [_column(file, name, parts, [frame[[name]] for frame in frames]) for name in shared]
    listed = [f"{display.clean(name)} (not in {_lacking(name, parts, frames)})" for name in others]
    more = f"; and {len(listed) - _MOST_LISTED} more" * (len(listed) > _MOST_LISTED)
    notes = [f"left out: {'; '.join(listed[:_MOST_LISTED])}{more}"] * bool(listed)
    return with_dates(pl.concat(columns, how="horizontal")), notes


def _column(
    file: TableFile, name: str, parts: Sequence[FilePart], frames: list[pl.DataFrame]
) -> pl.DataFrame:
    """Return the values of all files in one column; columns without values, text in CSV, have any type."""
    types = {
        frame.dtypes[0]: part.name
        for frame, part in zip(frames, parts, strict=True)
        if frame[name].null_count() < frame.height
    }
    some = [
        frame if frame.dtypes[0] in types else frame.with_columns(pl.lit(None).alias(name))
        for frame in frames
    ]
    kinds = set(map(_kind, types))
    as_text = not types or (len(kinds) > 1 and pl.String in kinds)
    if as_text or len(kinds) == 1:  # else polars would turn dates and numbers into numbers
        with suppress(pl.exceptions.PolarsError):  # as of some times with a time zone and others without
            some = [frame.cast(pl.String) for frame in some] if as_text else some
            return pl.concat(some, how="vertical_relaxed")
    listed = " and ".join(f"{dtype} in {display.printable(part)}" for dtype, part in types.items())
    raise InvalidInputError(
        f"{file.path}: column {name!r} must have the same type in all files; it has {listed}. Convert it "
        "first."
    )


def _kind(dtype: pl.DataType) -> Any:
    """Return the same type for all types whose values can be in one column."""
    if dtype.is_numeric() or dtype == pl.Boolean:
        return pl.Float64
    if dtype in (pl.Date, pl.Datetime):
        return pl.Datetime
    return pl.String if dtype in (pl.Categorical, pl.Enum) else dtype


def _lacking(column: str, parts: Sequence[FilePart], frames: list[pl.DataFrame]) -> str:
    """Return the name of the first file that lacks a column."""
    found = (part.name for part, frame in zip(parts, frames, strict=True) if column not in frame.columns)
    return display.printable(next(found))
