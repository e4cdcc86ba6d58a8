"""``whycluster explain IN/ --out OUT/``: tables that lie in many files, or in one larger than memory."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from threadpoolctl import threadpool_limits  # comes with scikit-learn

from whycluster.cli.clustering import Asked, by_label, cluster_frame
from whycluster.cli.formatting import LEGEND, facts_of, tell_notes, to_json
from whycluster.cli.screen import show, tell
from whycluster.cli.writing import WRITERS
from whycluster.core.errors import FilesWarning, InvalidInputError, WhyClusterError
from whycluster.data import display
from whycluster.data.settings import spelled_as
from whycluster.engines.files.engine import check_apart, explain_dataset
from whycluster.engines.files.parts import PARQUET, FilePart, find_parts, is_pattern, load_pyarrow
from whycluster.engines.files.plan import WHERE
from whycluster.engines.files.run import DatasetExplanation
from whycluster.models.network import Network

if TYPE_CHECKING:
    from whycluster.cli.sampling import Sample

_OPTIONS = {
    "out": "--out",
    "overwrite=True": "--force",
    "columns": "--columns",
    "columns=[...]": "--columns",
    "id_columns": "--id",
    'invalid="skip"': "--invalid skip",
    "beta=...": "",
}
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
    invalid: str,
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
    data, out = str(options["file"]), _checked(out, options["file"])
    with _in_our_words():
        parts, others = _parts(data, out)
        if model is not None:
            found = _from_network(model, options)
        else:
            found = _from_sample(parts, data, out, force, options)
        if not quiet:
            tell_notes(found.left_out, found.ids, [*others, *found.notes])
        named = {
            "target": by_label(found.network, target, "--target"),
            "against": by_label(found.network, against, "--against"),
        }
        if found.sample is not None:
            found.sample.keep(out, anew=force)
        result = explain_dataset(
            found.network,
            data,
            out,
            columns=found.columns,
            id_columns=found.ids,
            output="both" if target is None and against is None else "rows",
            overwrite=force,
            invalid=invalid,
            **named,
        )
    show(_as_json(result, found, top) if as_json else _as_text(result, found, top))


@dataclass(frozen=True)
class _Clusters:
    """What is to be explained.

    Attributes
    ----------
    network : that has the clusters
    columns : that it takes; None for those that it knows
    ids : that name the rows
    what : what the clusters are, in words
    left_out, notes : what is to be said of the columns
    sample : that was clustered
    """

    network: Network
    columns: list[str] | None
    ids: list[str]
    what: str
    left_out: dict[str, str] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    sample: Sample | None = None

    def told(self, n_rows: int) -> str:
        """What the clusters are, and of how many of the rows they were made."""
        n = n_rows if self.sample is None else self.sample.rows.height
        return self.what + f", by {display.count(n, 'row')} of them" * (n < n_rows)


def _from_network(path: Path, options: dict[str, Any]) -> _Clusters:
    from whycluster.storage.saving import load

    network = load(path)
    if not isinstance(network, Network):
        raise InvalidInputError(
            f"--model must be a network that wc.save has written; {path} is an explanation."
        )
    given = [name.strip() for text in options["columns"] for name in text.split(",")]
    ids = [] if options["id_column"] is None else [options["id_column"]]
    return _Clusters(network, given or None, ids, f"the network of {path}")


def _parts(data: str, out: Path) -> tuple[list[FilePart], list[str]]:
    """The files, and what is to be said of others in their folder."""
    load_pyarrow()  # without which what follows could not be loaded
    with warnings.catch_warnings(record=True) as left_out:
        warnings.simplefilter("always", FilesWarning)
        parts = find_parts(data, "explain")
    check_apart(out, data, parts)
    return parts, [str(each.message).removeprefix("explain: ") for each in left_out]


def _from_sample(
    parts: list[FilePart], data: str, out: Path, force: bool, options: dict[str, Any]
) -> _Clusters:
    from whycluster.cli.sampling import take_sample

    sample = take_sample(parts, data, out, anew=force)
    # On one thread: on several, sums of k-means come out in other bits each time, and so other clusters.
    with threadpool_limits(1):
        asked = Asked.of({k: v for k, v in options.items() if k != "report"})
        found = cluster_frame(sample.rows, asked, sample.step)
    placed = next((name for part in parts for name in part.name.split("/")[:-1] if "=" in name), None)
    told = f"what folders stand for, such as {placed}, is not among the columns"
    notes = [] if placed is None else [told]
    return _Clusters(
        found.network,
        found.rows.columns,
        found.id_names,
        found.what,
        found.left_out,
        [*notes, *sample.notes, *found.notes],
        sample,
    )


def _checked(out: Path | None, file: Path) -> Path:
    """The folder of the results, before anything that takes long."""
    if out is None:
        raise InvalidInputError(
            f"{file}: is a folder or a pattern; give a file, or with --out the folder that the results go to."
        )
    if not out.is_dir() and (out.exists() or out.suffix.lower() in WRITERS):
        raise InvalidInputError(
            f"--out must be a folder, which results of many files go to; {out} is "
            f"{'a file' if out.exists() else 'the name of a file'}."
        )
    return out


@contextmanager
def _in_our_words() -> Iterator[None]:
    """What is said of parameters is said of options; and what a stop leaves."""
    try:
        with warnings.catch_warnings(), spelled_as(_OPTIONS):
            warnings.simplefilter("ignore", FilesWarning)  # which has been told
            yield
    except WhyClusterError as error:
        raise type(error)(str(error).removeprefix(f"{WHERE}: ")) from error
    except Exception:
        raise
    except BaseException:
        tell("what is finished stays as it is; the same command goes on from there")
        raise


def _refuse(options: dict[str, Any], usual: dict[str, Any], why: str) -> None:
    """Raise for an option that is given, and would be ignored."""
    for name, value in usual.items():
        if options[name] != value:
            raise InvalidInputError(f"--{name} is {why}. Leave it out.")


def _as_text(result: DatasetExplanation, found: _Clusters, top: int) -> str:
    rows, files = display.count(result.n_rows, "row"), display.count(len(result.parts), "file")
    skipped = f"; {display.count(result.n_invalid, 'row')} could not be explained" * bool(result.n_invalid)
    before = f" ({result.n_done_before} of {files} had been done before)" * bool(result.n_done_before)
    made = []
    if result.summary is not None:
        made = [display.heading("What makes each cluster"), result.summary.describe(top), LEGEND]
    return "\n\n".join(
        [
            f"{rows} in {files}{skipped}; {found.told(result.n_rows)}.",
            *made,
            f"Explained row by row in {result.folder}{before}.",
        ]
    )


def _as_json(result: DatasetExplanation, found: _Clusters, top: int) -> str:
    summary = result.summary
    groups = range(0 if summary is None else len(summary.clusters))
    return to_json(
        {
            "rows": result.n_rows,
            "invalid": result.n_invalid,
            "left_out": found.left_out,
            "clustering": found.told(result.n_rows),
            "clusters": [facts_of(summary, group, top) for group in groups if summary is not None],
            "beta": result.beta,
            "out": result.folder,
            "parts": result.parts,
            "done_before": result.n_done_before,
        }
    )
