"""``whycluster explain FILE``: from a table to why each of its rows is in its cluster."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from whycluster.cli.clustering import Asked
from whycluster.cli.folder import explain_folder, is_folder
from whycluster.cli.formatting import Told, start
from whycluster.cli.report import write_page
from whycluster.cli.screen import show
from whycluster.cli.writing import PAGES, WRITERS, check_target, tabulate, write_table
from whycluster.core.errors import InvalidInputError
from whycluster.data import progress


def explain(*, model: Path | None, invalid: str, **options: Any) -> None:
    """Explain one table, or what lies in a folder."""
    if is_folder(options["file"], options["out"]):
        explain_folder(model=model, invalid=invalid, **options)
        return
    for option, given in (("--model", model is not None), ("--invalid", invalid != "error")):
        if given:
            raise InvalidInputError(f"{option} is for results in a folder: give --out a folder.")
    _explain_table(**options)


def _explain_table(
    *,
    out: Path | None,
    report: Path | None,
    target: str | None,
    against: str | None,
    top: int,
    force: bool,
    quiet: bool,
    as_json: bool,
    **options: Any,
) -> None:
    """Cluster, explain, write, and say what makes each cluster."""
    asked = Asked.of(options)
    for path, option, kinds in ((out, "--out", tuple(WRITERS)), (report, "--report", PAGES)):
        if path is not None:
            check_target(path, option, kinds, asked.source.path, force)
    if out is not None and report is not None and out.resolve() == report.resolve():
        raise InvalidInputError(f"--out and --report must be two files; both are {out.resolve()}.")
    found = start(asked, quiet)
    exp = found.explain(target=found.label(target, "--target"), against=found.label(against, "--against"))
    told = Told(found, exp, top) if as_json or not quiet or not (out or report) else None
    text = "" if told is None else told.as_json(out=out, report=report) if as_json else told.as_text()
    if report is not None:
        write_page(found, exp, report)
    if out is not None:
        with progress.Progress(f"writing {out.name}", None):
            write_table(tabulate(found, exp, top), out, force)
    if text:
        show(text)
