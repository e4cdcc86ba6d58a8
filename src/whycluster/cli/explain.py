"""``whycluster explain FILE``: from a table to why each of its rows is in its cluster."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from whycluster import progress
from whycluster.cli.clustering import Asked, cluster
from whycluster.cli.report import write_page
from whycluster.cli.screen import show
from whycluster.cli.telling import Told, tell_notes
from whycluster.cli.writing import PAGES, WRITERS, check_target, tabulate, write_table
from whycluster.errors import InvalidInputError


def explain(
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
    progress.shown = not quiet
    asked = Asked.of(options)
    for path, option, kinds in ((out, "--out", tuple(WRITERS)), (report, "--report", PAGES)):
        if path is not None:
            check_target(path, option, kinds, asked.source.path, force)
    if out is not None and report is not None and out.resolve() == report.resolve():
        raise InvalidInputError(f"--out and --report must be two files; both are {out.resolve()}.")
    found = cluster(asked)
    if not quiet:
        tell_notes(found)
    exp = found.explain(
        target=None if target is None else found.label(target, "--target"),
        against=None if against is None else found.label(against, "--against"),
    )
    told = Told(found, exp, top)
    text = told.as_json(out=out, report=report) if as_json else told.as_text()
    if report is not None:
        write_page(found, exp, report)
    if out is not None:
        with progress.Progress(f"writing {out.name}", None):
            write_table(tabulate(found, exp, top), out, force)
    if as_json or not quiet or (out is None and report is None):
        show(text)
