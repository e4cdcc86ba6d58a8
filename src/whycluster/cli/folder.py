"""``whycluster explain IN/ --out OUT/``: tables that lie in many files, or in one larger than memory."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

from threadpoolctl import threadpool_limits  # comes with scikit-learn

from whycluster import console
from whycluster.cli.clustering import Asked, Clustered, by_label, cluster_frame
from whycluster.cli.sampling import Sample, take_sample
from whycluster.cli.screen import show
from whycluster.cli.telling import LEGEND, facts_of, tell_notes, to_json
from whycluster.engines.dataset import check_apart, explain_dataset
from whycluster.engines.run import DatasetExplanation
from whycluster.engines.sources import PARQUET, find_parts, is_pattern
from whycluster.errors import InvalidInputError
from whycluster.network import Network

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
    data, sample = str(options["file"]), None
    parts = find_parts(data, "explain")
    check_apart(out, data, parts)
    if model is not None:
        given = [name.strip() for text in options["columns"] for name in text.split(",")]
        network, columns, what = _load(model), given or None, f"the network of {model}"
        ids, left_out = _as_list(options["id_column"]), dict[str, str]()
    else:
        sample = take_sample(parts, data, out, anew=force)
        found = _cluster(sample, Asked.of({k: v for k, v in options.items() if k != "report"}), quiet)
        network, columns, left_out = found.network, found.rows.columns, found.left_out
        ids = _as_list(None if found.ids is None else found.ids.name)
        what = f"{found.what}, by {console.count(found.rows.height, 'row')} of them"
    named = {
        "target": by_label(network, target, "--target"),
        "against": by_label(network, against, "--against"),
    }
    output = "both" if target is None and against is None else "rows"
    try:
        if sample is not None:
            sample.keep(out, anew=force)
        result = explain_dataset(
            network,
            data,
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


def _cluster(sample: Sample, asked: Asked, quiet: bool) -> Clustered:
    """On one thread: on several, sums of k-means come out in other bits each time, and so other clusters."""
    with threadpool_limits(1):
        found = cluster_frame(sample.rows, asked)
    if not quiet:
        tell_notes(replace(found, notes=[*sample.notes, *found.notes]))
    return found


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
