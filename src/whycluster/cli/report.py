"""``whycluster report FILE``: a page about the clusters of a table."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from whycluster.cli.clustering import Asked, Clustered
from whycluster.cli.formatting import start
from whycluster.cli.screen import show
from whycluster.cli.writing import PAGES, check_target
from whycluster.data import progress
from whycluster.explanations.explanation import Explanation


def report(
    *, out: Path | None, title: str | None, rows: int, force: bool, quiet: bool, **options: Any
) -> None:
    """Cluster, explain, and write the page."""
    asked = Asked.of(options)
    path = Path(asked.source.path.stem + ".html") if out is None else out
    check_target(path, "--out", PAGES, asked.source.path, force)
    found = start(asked, quiet)
    write_page(found, found.explain(), path, title=title or asked.source.path.name, n_rows=rows)
    if not quiet:
        show(f"written: {path}")


def write_page(found: Clustered, exp: Explanation, path: Path, **options: Any) -> None:
    """The report of an explanation of all rows of a table; ``options`` as in `Explanation.report`."""
    with progress.Progress(f"writing {path.name}", None):
        exp.report(path, left_out=found.left_out, **options)
