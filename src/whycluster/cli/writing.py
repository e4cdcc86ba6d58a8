"""Results as files: as a whole or not at all, and never in place of what is there, unless that was said."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import polars as pl

from whycluster.cli.clustering import Clustered
from whycluster.cli.reading import has_plain_name
from whycluster.core.arrays import turned
from whycluster.core.errors import InvalidInputError
from whycluster.data.files import replacing
from whycluster.data.frames import unique_name
from whycluster.explanations.explanation import Explanation

PAGES = (".html", ".htm")
WRITERS: dict[str, Callable[[pl.DataFrame, Path], None]] = {
    # Relevance hardly compresses: a tenth less takes twice as long.
    ".parquet": lambda frame, path: frame.write_parquet(path, compression="snappy"),
    ".csv": lambda frame, path: frame.write_csv(path),
    ".tsv": lambda frame, path: frame.write_csv(path, separator="\t"),
    ".arrow": lambda frame, path: frame.write_ipc(path),
    ".jsonl": lambda frame, path: frame.write_ndjson(path),
}


def check_target(path: Path, option: str, kinds: tuple[str, ...], source: Path, force: bool) -> None:
    """Raise, before any work is done, if a file cannot be written or must not be."""
    if path.suffix.lower() not in kinds:
        raise InvalidInputError(f"{option} must be a file of the kind {', '.join(kinds)}; got {path}.")
    try:
        _check_place(path, option, source, force)
    except (OSError, RuntimeError) as error:  # a name that is too long, links that go round in circles
        raise InvalidInputError(f"{option}: {path} cannot be written: {error}") from error


def _check_place(path: Path, option: str, source: Path, force: bool) -> None:
    if not has_plain_name(path.resolve()):
        raise InvalidInputError(
            f"{option}: {path} must be a name in UTF-8, its folders too. Give another one."
        )
    if path.is_dir():
        raise InvalidInputError(f"{option}: {path} is a folder; give the name of a file.")
    if path.exists() and not path.is_file():
        raise InvalidInputError(f"{option}: {path} is no file, but a device or the like. Give another name.")
    if path.exists() and source.exists() and path.samefile(source):
        raise InvalidInputError(
            f"{option}: {path} is the table itself, which stays as it is. Give another name."
        )
    if path.exists() and not force:
        raise InvalidInputError(
            f"{option}: {path} is there already. Give another name, or --force to replace it."
        )
    folder = path.resolve().parent
    if not folder.is_dir():
        raise InvalidInputError(f"{option}: there is no folder {folder} to write {path.name} to.")
    if not os.access(folder, os.W_OK) or (path.exists() and not os.access(path, os.W_OK)):
        raise InvalidInputError(f"{option}: {path} cannot be written; there is no right to.")


def write_table(frame: pl.DataFrame, path: Path, force: bool) -> None:
    """Write it in the format that the name says; without ``force``, only if nothing is there by now."""
    with replacing(path, new=not force) as beside:
        WRITERS[path.suffix.lower()](frame, beside)


def tabulate(found: Clustered, exp: Explanation, top: int) -> pl.DataFrame:
    """One row per row: name, cluster, evidence, competitor, relevance of every column, the strongest."""
    features = [str(name) for name in exp.feature_names]
    ids = found.ids if found.ids is not None else pl.Series("row", range(len(exp)))
    columns: dict[str, pl.Series] = {}

    def add(name: str, values: pl.Series) -> None:
        columns[unique_name(name, [*columns, *features])] = values

    labels = exp.labels if exp.labels.dtype != object else [str(label) for label in exp.labels.tolist()]
    clusters = pl.Series(labels)
    add(ids.name, ids)
    add("cluster", clusters.gather(exp.cluster_codes))
    add("evidence", pl.Series(exp.evidence))
    add("competitor", clusters.gather(exp.competitor_codes))
    columns |= {name: pl.Series(values) for name, values in zip(features, turned(exp.relevance), strict=True)}
    names = pl.Series(features, dtype=pl.Enum(features))
    for rank, codes in enumerate(exp.strongest_features(top).T, 1):
        add(f"top_{rank}", names.gather(codes))
    return pl.DataFrame(columns)
