"""``whycluster changes BEFORE AFTER`` shows who moved between the clusters of a segmentation, and why."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

from whycluster.cli.clustering import load_segmentation, table_file
from whycluster.cli.formatting import print_notes, to_json
from whycluster.cli.output import print_result
from whycluster.cli.tables import read_table
from whycluster.cli.writing import REPORT_SUFFIXES, check_target
from whycluster.data import display
from whycluster.data.progress import Progress
from whycluster.data.settings import spelled_as
from whycluster.data.warnings import PopulationWarning
from whycluster.segments.changes.comparing import changes as compare_tables
from whycluster.segments.changes.result import Changes

_SPELLINGS = {"on": "--id", "pass check=False": "add --no-check"}


def changes(
    *,
    before: Path,
    after: Path,
    model: Path,
    new_model: Path | None,
    id_column: str,
    check: bool,
    report: Path | None,
    force: bool,
    quiet: bool,
    as_json: bool,
    **file_options: Any,
) -> None:
    """Compare two files under a segmentation, and print who moved and why."""
    for table in (before, after) if report is not None else ():
        check_target(report, "--report", REPORT_SUFFIXES, table, force)  # type: ignore[arg-type]  # not None
    segmentations = [load_segmentation(path) for path in (model, new_model) if path is not None]
    read = [read_table(table_file(path, file_options, id_column), 1) for path in (before, after)]
    tables = [frame for frame, _ in read]
    notes = [
        f"{display.printable(path.name)}: {note}"
        for path, each in zip((before, after), read, strict=True)
        for note in each[1]
    ]
    with warnings.catch_warnings(record=True) as caught, spelled_as(_SPELLINGS):
        warnings.simplefilter("always", PopulationWarning)
        with Progress("comparing", None):
            found = compare_tables(*segmentations, *tables, on=id_column, check=check)
    if not quiet:
        notes += [str(warning.message).removeprefix("changes: ") for warning in caught]
        print_notes({}, [], notes)
    if report is not None:
        found.report(report, title=f"{before.name} and {after.name}")
    print_result(to_json(_facts(found)) if as_json else found.summary())
    if report is not None and not quiet and not as_json:
        print_result(f"\nReport written to {report}.")


def _facts(found: Changes) -> dict[str, Any]:
    """Return the changes, for JSON."""
    tables = {"flows": found.flows, "sizes": found.sizes, "drivers": found.drivers, "drift": found.drift}
    return {name: frame("polars").to_dicts() for name, frame in tables.items()}
