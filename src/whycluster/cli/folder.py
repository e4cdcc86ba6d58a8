"""``whycluster explain IN/ --out OUT/`` explains tables in many files or in one file larger than memory."""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from threadpoolctl import threadpool_limits

from whycluster.cli.clustering import CommandOptions, check_model_options, cluster_frame, read_query
from whycluster.cli.formatting import cluster_facts, print_notes, to_json
from whycluster.cli.output import print_message, print_result
from whycluster.cli.writing import WRITERS
from whycluster.core.errors import InvalidInputError, WhyClusterError
from whycluster.data import display
from whycluster.data.settings import spelled_as
from whycluster.data.warnings import FilesWarning, PopulationWarning
from whycluster.engines.files.engine import check_out, explain_dataset
from whycluster.engines.files.parts import PARQUET, FilePart, find_parts, is_pattern, load_pyarrow
from whycluster.engines.files.plan import WHERE
from whycluster.engines.files.results import DatasetExplanation
from whycluster.models.network import Network
from whycluster.segments.segmentation import Segmentation
from whycluster.segments.storage.saving import load

if TYPE_CHECKING:
    from whycluster.cli.sampling import RowSample

_SPELLINGS = {  # the options that correspond to arguments of `explain_dataset`
    "out": "--out",
    "overwrite=True": "--force",
    "columns": "--columns",
    "columns=[...]": "--columns",
    "id_columns": "--id",
    'invalid="skip"': "--invalid skip",
    "beta=...": "--beta",
    "background=...": "",  # there is no such option
    "pass check=False": "add --no-check",
}
_LEGEND = (
    "share: fraction of the cluster's relevance. "
    "compared with: the competing clusters whose means differ most."
)
_PASSED_ON = ("check", "invalid", "durable", "safe_cells")  # to `explain_dataset`
_SINGLE_TABLE_DEFAULTS = {
    **dict.fromkeys(("delimiter", "sheet", "labels", "report")),
    "decimal": ".",
    "encoding": "utf-8",
    "missing": (),
}
_NEW_CLUSTERS_DEFAULTS = {"k": None, "ignore": ()}


def is_folder(path: Path, out: Path | None) -> bool:
    """Return whether the data are a folder, a pattern, or a Parquet file whose results go to a folder."""
    to_folder = out is not None and not out.suffix and path.suffix.lower() in (*PARQUET, "")
    return path.is_dir() or to_folder or (not path.exists() and is_pattern(str(path)))


def explain_folder(
    *,
    out: Path | None,
    model: Path | None,
    top: int,
    force: bool,
    quiet: bool,
    as_json: bool,
    **given: Any,
) -> None:
    """Cluster a sample of the rows or load a network, then explain all rows."""
    _refuse(
        given, _SINGLE_TABLE_DEFAULTS, "works only for a single table in memory, not for results in a folder"
    )
    if model is not None:
        _refuse(given, _NEW_CLUSTERS_DEFAULTS, "applies to new clusters, but --model provides its own")
    else:
        check_model_options(given)
    data, out = str(given["file"]), _check_out(out, given["file"])
    with _messages_for_users():
        parts, notes = _find_parts(data, out)
        if model is not None:
            clusters = _load_clusters(model, given)
        else:
            clusters = _cluster_sample(parts, data, out, force, given)
        if not quiet:
            print_notes(clusters.left_out, clusters.ids, [*notes, *clusters.notes])
        query = read_query(clusters.network, given)
        output = "both" if query["target"] is None and query["against"] is None else "rows"
        if given["safe_cells"] and output == "rows":
            raise InvalidInputError(
                "--safe-cells applies to the summary, which is not written with --target or --against. "
                "Remove it."
            )
        if clusters.sample is not None:
            clusters.sample.save(out, overwrite=force, durable=given["durable"])
        with _noting(quiet, notes):
            result = explain_dataset(
                clusters.network if clusters.segmentation is None else clusters.segmentation,
                data,
                out,
                columns=clusters.columns,
                id_columns=clusters.ids,
                output=output,
                overwrite=force,
                **{option: given[option] for option in _PASSED_ON},
                **query,
            )
    print_result((_as_json if as_json else _as_text)(result, clusters, top))


@dataclass(frozen=True)
class _FolderClusters:
    """The clusters of a folder, and how they were obtained.

    Attributes
    ----------
    network : the network of the clusters
    columns : the columns that the network takes, or None to use the columns that it was fitted on
    ids : the columns that identify the rows
    description : how the clusters were obtained, for the user
    left_out : for each column that is not used, the reason
    notes : further notes for the user
    sample : the rows that were clustered, or None if the network was loaded
    segmentation : the segmentation that was loaded, or None
    """

    network: Network
    columns: list[str] | None
    ids: list[str]
    description: str
    left_out: dict[str, str] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    sample: RowSample | None = None
    segmentation: Segmentation | None = None

    def describe(self, n_rows: int) -> str:
        """Describe how the clusters were obtained; if not all rows were used, say how many were."""
        n = n_rows if self.sample is None else self.sample.rows.height
        return self.description + f", fitted on {display.count(n, 'row')}" * (n < n_rows)


def _load_clusters(path: Path, given: dict[str, Any]) -> _FolderClusters:
    network = load(path)
    ids = [] if given["id_column"] is None else [given["id_column"]]
    if isinstance(network, Segmentation):
        names = [str(name) for name in network.feature_names]
        made = f"the segmentation in {path}, made on {display.count(network.population.n_rows, 'row')}"
        return _FolderClusters(network.network, names, ids, made, segmentation=network)
    if not isinstance(network, Network):
        raise InvalidInputError(f"--model must be a network written by wc.save; {path} is an explanation.")
    columns = [name.strip() for text in given["columns"] for name in text.split(",")]
    return _FolderClusters(network, columns or None, ids, f"the network in {path}")


def _find_parts(data: str, out: Path) -> tuple[list[FilePart], list[str]]:
    """Return the files to explain and notes on other files in their folder."""
    load_pyarrow()  # raises a helpful error if it is not installed
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", FilesWarning)
        parts = find_parts(data, "explain")
    check_out(out, data, parts)
    return parts, [str(warning.message).removeprefix("explain: ") for warning in caught]


def _cluster_sample(
    parts: list[FilePart], data: str, out: Path, force: bool, given: dict[str, Any]
) -> _FolderClusters:
    from whycluster.cli.sampling import take_sample

    sample = take_sample(parts, data, out, overwrite=force)
    # With several threads, rounding in k-means, and thus its clusters, would differ from run to run.
    with threadpool_limits(1):
        clustered = cluster_frame(sample.rows, CommandOptions.of(given), sample.step)
    return _FolderClusters(
        clustered.network,
        clustered.rows.columns,
        clustered.id_names,
        clustered.description,
        clustered.left_out,
        [*_partition_notes(parts), *sample.notes, *clustered.notes],
        sample,
    )


def _partition_notes(parts: list[FilePart]) -> list[str]:
    folders = (name for part in parts for name in part.name.split("/")[:-1])
    keys = [name for name in folders if "=" in name]
    return [f"values in folder names, such as {key}, are not used as columns" for key in keys[:1]]


def _check_out(out: Path | None, file: Path) -> Path:
    """Return the folder for the results; raise an error early if the path cannot be a folder."""
    if out is None:
        raise InvalidInputError(
            f"{file}: to explain a folder or a pattern, add --out with a folder for the results, or pass a "
            "single file instead."
        )
    if not out.is_dir() and (out.exists() or out.suffix.lower() in WRITERS):
        raise InvalidInputError(
            f"--out must be a folder if there are many files; {out} is "
            f"{'a file' if out.exists() else 'the name of a file'}."
        )
    return out


@contextmanager
def _messages_for_users() -> Iterator[None]:
    """Name options instead of Python arguments in errors, and explain how to resume when interrupted."""
    try:
        with warnings.catch_warnings(), spelled_as(_SPELLINGS):
            warnings.simplefilter("ignore", FilesWarning)  # printed as notes
            yield
    except WhyClusterError as error:
        raise type(error)(str(error).removeprefix(f"{WHERE}: ")) from error
    except Exception:
        raise
    except BaseException:
        print_message("finished files are kept; run the same command again to resume")
        raise


@contextmanager
def _noting(quiet: bool, printed: list[str]) -> Iterator[None]:
    """Print warnings of rows that differ and of files as notes, except those printed before."""
    with warnings.catch_warnings(record=True) as caught:
        for category in (FilesWarning, PopulationWarning):
            warnings.simplefilter("always", category)
        try:
            yield
        finally:
            if not quiet:
                notes = [str(each.message).removeprefix(f"{WHERE}: ") for each in caught]
                print_notes({}, [], [note for note in notes if note not in printed])


def _refuse(given: dict[str, Any], defaults: dict[str, Any], reason: str) -> None:
    """Raise an error if an option that would be ignored differs from its default."""
    for name, value in defaults.items():
        if given[name] != value:
            raise InvalidInputError(f"--{name.replace('_', '-')} {reason}. Remove it.")


def _as_text(result: DatasetExplanation, clusters: _FolderClusters, top: int) -> str:
    rows, files = display.count(result.n_rows, "row"), display.count(len(result.parts), "file")
    invalid = f"; {display.count(result.n_invalid, 'row')} could not be explained" * bool(result.n_invalid)
    parts = [f"{rows} in {files}{invalid}; {clusters.describe(result.n_rows)}."]
    if result.summary is not None:
        parts += [display.heading("What defines each cluster"), result.summary.describe(top), _LEGEND]
    if result.measured_without:
        parts.append(
            f"Measured without {display.cut(result.measured_without)}, which could not be read at first. To "
            "include all files, start over with --force."
        )
    resumed = f" ({result.n_done_before} of {files} already done)" * bool(result.n_done_before)
    link = f" (a link to {os.path.realpath(result.folder)})" * os.path.islink(result.folder)
    return "\n\n".join([*parts, f"Explanations of all rows: {result.folder}{link}{resumed}"])


def _as_json(result: DatasetExplanation, clusters: _FolderClusters, top: int) -> str:
    summary = result.summary
    groups = range(0 if summary is None else len(summary.clusters))
    return to_json(
        {
            "rows": result.n_rows,
            "invalid": result.n_invalid,
            "left_out": clusters.left_out,
            "clustering": clusters.describe(result.n_rows),
            "clusters": [cluster_facts(summary, group, top) for group in groups if summary is not None],
            "beta": result.beta,
            "out": result.folder,
            "parts": result.parts,
            "done_before": result.n_done_before,
            "measured_without": result.measured_without,
        }
    )
