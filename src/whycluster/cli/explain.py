"""``whycluster explain FILE`` explains why each row of a table is in its cluster."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from whycluster.cli.clustering import CommandOptions, read_query
from whycluster.cli.folder import explain_folder, is_folder
from whycluster.cli.formatting import ExplanationOutput, cluster_and_note
from whycluster.cli.output import print_result
from whycluster.cli.report import write_report
from whycluster.cli.writing import (
    REPORT_SUFFIXES,
    SPREADSHEET_SUFFIXES,
    WRITERS,
    check_target,
    tabulate,
    with_safe_cells,
    write_table,
)
from whycluster.core.errors import InvalidInputError
from whycluster.data import display, progress


def explain(*, model: Path | None, invalid: str, durable: bool, **given: Any) -> None:
    """Explain a single table or the files in a folder."""
    if is_folder(given["file"], given["out"]):
        if given["names"] is not None:
            raise InvalidInputError("--names does not work with results in a folder. Set --out to a file.")
        explain_folder(model=model, invalid=invalid, durable=durable, **given)
        return
    folder_options = {
        "--invalid": invalid != "error",
        "--no-durable": not durable,
    }
    for option, is_given in folder_options.items():
        if is_given:
            raise InvalidInputError(f"{option} works only with results in a folder. Set --out to a folder.")
    _explain_table(model=model, **given)


def _explain_table(
    *,
    out: Path | None,
    report: Path | None,
    top: int,
    force: bool,
    quiet: bool,
    as_json: bool,
    safe_cells: bool,
    **given: Any,
) -> None:
    """Cluster the table, explain its rows, write the files and print what defines each cluster."""
    options = CommandOptions.of(given)
    _check_targets(out, report, options.file.path, force)
    if safe_cells and (out is None or out.suffix.lower() not in SPREADSHEET_SUFFIXES):
        raise InvalidInputError("--safe-cells works only if --out is a file of type .csv or .tsv.")
    clustered = cluster_and_note(options, quiet)
    exp = clustered.explain(**read_query(clustered.network, given))
    text, quality = "", None  # computed before anything is written, so that an error leaves no files
    if as_json or not quiet or not (out or report):
        output = ExplanationOutput(clustered, exp, top)
        text = output.as_json(out=out, report=report) if as_json else output.as_text()
        quality = output.quality
    if report is not None:
        write_report(clustered, exp, report, quality=quality)
    if out is not None:
        with progress.Progress(f"writing {display.printable(out.name)}", None):
            table = tabulate(clustered, exp, top)
            write_table(with_safe_cells(table) if safe_cells else table, out, force)
    if text:
        print_result(text)


def _check_targets(out: Path | None, report: Path | None, table: Path, force: bool) -> None:
    if out is not None and report is not None and os.path.realpath(out) == os.path.realpath(report):
        raise InvalidInputError(
            f"--out and --report must be different files; both are {os.path.realpath(out)}."
        )
    for path, option, suffixes in (
        (out, "--out", tuple(WRITERS)),
        (report, "--report", REPORT_SUFFIXES),
    ):
        if path is not None:
            check_target(path, option, suffixes, table, force)
