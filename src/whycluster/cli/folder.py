"""``whycluster explain IN/ --out OUT/``: tables that lie in many files, or in one larger than memory."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import polars as pl

from whycluster import console, progress
from whycluster.cli.clustering import Asked, Clustered, by_label, cluster_frame
from whycluster.cli.screen import show
from whycluster.cli.telling import LEGEND, facts_of, tell_notes, to_json
from whycluster.engines.dataset import explain_dataset
from whycluster.engines.run import DatasetExplanation
from whycluster.engines.sources import PARQUET, Part, PartError, find_parts, is_number, is_pattern, reading
from whycluster.errors import InvalidInputError
from whycluster.network import Network

_SAMPLE = 100_000  # rows that are clustered
_BATCH = 65_536  # rows
_OF_ONE_TABLE = {
    **dict.fromkeys(("delimiter", "sheet", "labels", "report")),
    "decimal": ".",
    "encoding": "utf-8",
    "missing": (),
}
_OF_NEW_CLUSTERS = {"k": None, "ignore": ()}


def is_folder(path: Path, out: Path | None) -> bool:
    """Whether what is asked for is about folders: the data are one, a pattern, or of Parquet for one."""
    pattern = is_pattern(str(path)) and not path.exists()
    folder = out is not None and not out.suffix and path.suffix.lower() in (*PARQUET, "")
    return path.is_dir() or pattern or folder


def explain_folder(
    *,
    out: Path | None,
    model: Path | None,
    target: str | None,
    against: str | None,
    top: int,
    force: bool,
    quiet: bool,
    as_json: bool,
    **options: Any,
) -> None:
    """Cluster a sample of the rows, or take a network; explain all of them; say what makes each cluster."""
    _refuse(options, _OF_ONE_TABLE, "for one table in memory, not for results in a folder")
    if model is not None:
        _refuse(options, _OF_NEW_CLUSTERS, "for new clusters, and --model takes those of a network")
    if out is None:
        raise InvalidInputError(
            f"{options['file']}: is a folder or a pattern; give a file, or with --out the folder that the "
            "results go to."
        )
    parts = find_parts(str(options["file"]), "explain")
    if model is not None:
        given = [name.strip() for text in options["columns"] for name in text.split(",")]
        network, columns, what = _load(model), given or None, f"the network of {model}"
        ids, left_out = _as_list(options["id_column"]), dict[str, str]()
    else:
        found = _cluster_sample(parts, Asked.of({k: v for k, v in options.items() if k != "report"}), quiet)
        network, columns, left_out = found.network, found.rows.columns, found.left_out
        ids = _as_list(None if found.ids is None else found.ids.name)
        what = f"{found.what}, by {console.count(found.rows.height, 'row')} of them"
    named = {
        "target": by_label(network, target, "--target"),
        "against": by_label(network, against, "--against"),
    }
    output = "both" if target is None and against is None else "rows"
    try:
        result = explain_dataset(
            network,
            str(options["file"]),
            out,
            columns=columns,
            id_columns=ids,
            output=output,
            overwrite=force,
            **named,
        )
    except InvalidInputError as error:
        told = str(error).replace("overwrite=True", "--force").replace("columns=[...]", "--columns")
        raise InvalidInputError(told) from error
    show(_as_json(result, what, left_out, top) if as_json else _as_text(result, what, top))


def _refuse(options: dict[str, Any], usual: dict[str, Any], why: str) -> None:
    """Raise for an option that is given, and would be ignored."""
    for name, value in usual.items():
        if options[name] != value:
            raise InvalidInputError(f"--{name} is {why}. Leave it out.")


def _load(path: Path) -> Network:
    from whycluster.saving import load

    network = load(path)
    if not isinstance(network, Network):
        raise InvalidInputError(
            f"--model must be a network that wc.save has written; {path} is an explanation."
        )
    return network


def _as_list(name: str | None) -> list[str]:
    return [] if name is None else [name]


def _cluster_sample(parts: list[Part], asked: Asked, quiet: bool) -> Clustered:
    with progress.Progress("drawing a sample", None):
        frame = _every_so_many(parts)
    found = cluster_frame(frame, asked)
    if not quiet:
        tell_notes(found)
    return found


def _every_so_many(parts: list[Part]) -> pl.DataFrame:
    """Every s-th row of all parts; s is doubled whenever there are too many."""
    step, held, n_seen, failed = 1, list[pl.DataFrame](), 0, list[str]()
    for batch in _batches(parts, failed):
        held.append(batch[-n_seen % step :: step])
        n_seen += batch.height
        while sum(frame.height for frame in held) > 2 * _SAMPLE:
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


def _batches(parts: list[Part], failed: list[str]) -> Iterator[pl.DataFrame]:
    """Those of parts that can be read, and have columns of the same kinds; why not goes to ``failed``."""
    kinds: dict[str, bool] = {}
    for part in parts:
        try:
            with reading():
                schema, _ = part.look()
                found = {entry.name: is_number(entry.type) for entry in schema}
                odd = [name for name in found if found[name] != kinds.setdefault(name, found[name])]
                if odd:
                    raise PartError(f"column {odd[0]!r} must be of the same kind as in other parts")
                for batch in part.batches(schema.names, _BATCH):
                    yield pl.DataFrame(batch)
        except PartError as error:  # noqa: PERF203  # a file has many rows
            failed.append(f"{part.name!r}: {error}")


def _as_text(result: DatasetExplanation, what: str, top: int) -> str:
    rows, files = console.count(result.n_rows, "row"), console.count(len(result.parts), "file")
    before = f" ({result.n_done_before} of the files were done before)" * bool(result.n_done_before)
    made = []
    if result.summary is not None:
        made = [console.heading("What makes each cluster"), result.summary.tell(top), LEGEND]
    return "\n\n".join(
        [f"{rows} in {files}; {what}.", *made, f"Explained row by row in {result.folder}{before}."]
    )


def _as_json(result: DatasetExplanation, what: str, left_out: dict[str, str], top: int) -> str:
    summary = result.summary
    groups = range(0 if summary is None else len(summary.clusters))
    return to_json(
        {
            "rows": result.n_rows,
            "left_out": left_out,
            "clustering": what,
            "clusters": [facts_of(summary, group, top) for group in groups if summary is not None],
            "beta": result.beta,
            "out": result.folder,
            "parts": result.parts,
            "done_before": result.n_done_before,
        }
    )
