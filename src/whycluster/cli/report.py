"""``whycluster report FILE``: a page about the clusters of a table."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from whycluster import progress
from whycluster.cli.clustering import Asked, Clustered, cluster
from whycluster.cli.screen import show
from whycluster.cli.telling import tell_notes
from whycluster.cli.writing import PAGES, check_target
from whycluster.explanation import Explanation


def report(
    *, out: Path | None, title: str | None, rows: int, force: bool, quiet: bool, **options: Any
) -> None:
    """Cluster, explain, and write the page."""
    progress.shown = not quiet
    asked = Asked.of(options)
    path = Path(asked.source.path.stem + ".html") if out is None else out
    check_target(path, "--out", PAGES, asked.source.path, force)
    found = cluster(asked)
    if not quiet:
        tell_notes(found)
    write_page(found, found.explain(), path, title or asked.source.path.name, rows)
    if not quiet:
        show(f"written: {path}")


def write_page(
    found: Clustered, exp: Explanation, path: Path, title: str | None = None, n_rows: int = 5000
) -> None:
    """The report of an explanation of all rows of a table."""
    with progress.Progress(f"writing {path.name}", None):
        exp.report(path, title=title, n_rows=n_rows, left_out=found.left_out)
