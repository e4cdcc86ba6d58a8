"""Write results to files, completely or not at all, overwriting existing files only with ``--force``."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import polars as pl

from whycluster.cli.clustering import ClusteredTable, as_text
from whycluster.core.errors import InvalidInputError
from whycluster.data.arrays import transposed
from whycluster.data.files import check_creatable, is_utf8, replacing
from whycluster.data.frames import unique_name
from whycluster.data.spreadsheets import FORMULA, NUMBER, safe_cell
from whycluster.explanations.explanation import Explanation

REPORT_SUFFIXES = (".html", ".htm")
SPREADSHEET_SUFFIXES = (".csv", ".tsv")
WRITERS: dict[str, Callable[[pl.DataFrame, Path], None]] = {
    # Relevance hardly compresses. Stronger compression saves 10% of the size but takes twice as long.
    ".parquet": lambda frame, path: frame.write_parquet(path, compression="snappy"),
    ".csv": lambda frame, path: _without_durations(frame).write_csv(path),
    ".tsv": lambda frame, path: _without_durations(frame).write_csv(path, separator="\t"),
    ".arrow": lambda frame, path: frame.write_ipc(path),
    ".jsonl": lambda frame, path: frame.write_ndjson(path),
}


def check_target(path: Path, option: str, suffixes: tuple[str, ...], table: Path, force: bool) -> None:
    """Raise an error early if a file cannot be written or must not be overwritten."""
    if path.suffix.lower() not in suffixes:
        raise InvalidInputError(f"{option} must be a file of type {', '.join(suffixes)}; got {path}.")
    try:
        _check_place(path, option, table, force)
    except (OSError, RuntimeError) as error:  # a name that is too long, or a loop of links
        raise InvalidInputError(f"{option}: {path} cannot be written: {error}") from error


def _check_place(path: Path, option: str, table: Path, force: bool) -> None:
    if not is_utf8(str(path.resolve())):
        raise InvalidInputError(
            f"{option}: {path} must be valid UTF-8, including its folders. Use another name."
        )
    if path.is_dir():
        raise InvalidInputError(f"{option}: {path} is a folder. Use the name of a file instead.")
    if path.exists() and not path.is_file():
        raise InvalidInputError(f"{option}: {path} is not a file but a device or a pipe. Use another name.")
    if path.exists() and table.exists() and path.samefile(table):
        raise InvalidInputError(
            f"{option}: {path} is the input table, which is never overwritten. Use another name."
        )
    if path.is_symlink() and not force:
        raise InvalidInputError(
            f"{option}: {path} is a link to {os.path.realpath(path)}. Use the name of that file, or add "
            "--force to write to it."
        )
    if path.exists() and not force:
        raise InvalidInputError(
            f"{option}: {path} already exists. Use another name, or add --force to overwrite it."
        )
    _check_folder(path, option)


def _check_folder(path: Path, option: str) -> None:
    folder = path.resolve().parent
    if not folder.is_dir():
        raise InvalidInputError(
            f"{option}: {path.name} must be written to an existing folder; {folder} does not exist."
        )
    if not os.access(folder, os.W_OK) or (path.exists() and not os.access(path, os.W_OK)):
        raise InvalidInputError(f"{option}: {path} cannot be written; permission denied.")
    try:
        check_creatable(path)
    except OSError as error:
        raise InvalidInputError(f"{option}: {path} cannot be written; {error.strerror}.") from error


def write_table(frame: pl.DataFrame, path: Path, force: bool) -> None:
    """Write a table in the format given by the file name, overwriting a file only with ``force``."""
    with replacing(path, new=not force) as temporary:
        WRITERS[path.suffix.lower()](frame, temporary)


def _without_durations(frame: pl.DataFrame) -> pl.DataFrame:
    """Return a table with durations as text, since polars cannot write them to CSV."""
    return pl.DataFrame(
        [as_text(column) if column.dtype == pl.Duration else column for column in frame.iter_columns()]
    )


def with_safe_cells(frame: pl.DataFrame) -> pl.DataFrame:
    """Put a single quote before cells and headers that a spreadsheet would take for formulas.

    Numbers stay unchanged, even if they are stored as text.
    """
    names: list[str] = []
    for name in frame.columns:
        names.append(
            unique_name(safe_cell(name), [*names, *(other for other in frame.columns if other != name)])
        )
    return pl.DataFrame(
        [
            _with_safe_values(column.rename(name))
            for name, column in zip(names, frame.iter_columns(), strict=True)
        ]
    )


def _with_safe_values(column: pl.Series) -> Any:
    if column.dtype not in (pl.String, pl.Categorical, pl.Enum):
        return column
    text = column.cast(pl.String)
    is_formula = (text.str.contains(FORMULA) & ~text.str.contains(NUMBER)).fill_null(False)
    return text.zip_with(~is_formula, "'" + text)


def tabulate(clustered: ClusteredTable, exp: Explanation, top: int) -> pl.DataFrame:
    """Return a table with one row per explained row.

    The columns are the identifier, cluster, evidence, competitor, the relevance of every feature, and the
    names of the ``top`` strongest features.
    """
    features = [str(name) for name in exp.feature_names]
    ids = clustered.ids if clustered.ids is not None else pl.Series("row", range(len(exp)))
    columns: dict[str, pl.Series] = {}

    def add(name: str, values: pl.Series) -> None:
        columns[unique_name(name, [*columns, *features])] = values

    labels = exp.labels if exp.labels.dtype != object else [str(label) for label in exp.labels.tolist()]
    clusters = pl.Series(labels)
    add(ids.name, ids)
    add("cluster", clusters.gather(exp.cluster_codes))
    add("evidence", pl.Series(exp.evidence))
    add("competitor", clusters.gather(exp.competitor_codes))
    columns |= {
        name: pl.Series(values) for name, values in zip(features, transposed(exp.relevance), strict=True)
    }
    names = pl.Series(features, dtype=pl.Enum(features))
    for rank, codes in enumerate(exp.strongest_features(top).T, 1):
        add(f"top_{rank}", names.gather(codes))
    return pl.DataFrame(columns)
