"""``whycluster report FILE`` writes an HTML report about the clusters of a table."""

from __future__ import annotations

from pathlib import Path
from textwrap import fill
from typing import Any

from whycluster.cli.clustering import ClusteredTable, CommandOptions
from whycluster.cli.formatting import WIDTH, cluster_and_note, quality_of
from whycluster.cli.output import print_result
from whycluster.cli.writing import REPORT_SUFFIXES, check_target
from whycluster.data import display, progress
from whycluster.explanations.explanation import Explanation


def report(*, out: Path | None, title: str | None, rows: int, force: bool, quiet: bool, **given: Any) -> None:
    """Cluster the table, explain its rows, and write the report."""
    options = CommandOptions.of(given)
    table = options.file.path
    stem = table.stem if table.exists() else "report"  # a pattern
    path = Path(stem + ".html") if out is None else out
    check_target(path, "--out", REPORT_SUFFIXES, table, force)
    clustered = cluster_and_note(options, quiet)
    exp = clustered.explain()
    quality = quality_of(clustered, exp)
    write_report(clustered, exp, path, title=title or table.name, n_rows=rows, quality=quality)
    if not quiet:
        print_result(f"{fill(quality.text, WIDTH)}\n\nReport written to {path}.")


def write_report(clustered: ClusteredTable, exp: Explanation, path: Path, **options: Any) -> None:
    """Write a report on an explanation of all rows; for ``options``, see `Explanation.report`."""
    with progress.Progress(f"writing {display.printable(path.name)}", None):
        exp.report(path, left_out=clustered.left_out, **options)
