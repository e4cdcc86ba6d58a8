"""``whycluster verify FOLDER`` checks a folder of results."""

from __future__ import annotations

import dataclasses
from pathlib import Path

from whycluster.cli.formatting import to_json
from whycluster.cli.output import print_result
from whycluster.engines.files.verification import verify_folder


def verify(folder: Path, as_json: bool) -> int:
    """Print the problems found in a folder, and return the exit code."""
    found = verify_folder(folder, "verify")
    print_result(to_json({"ok": found.ok, **dataclasses.asdict(found)}) if as_json else str(found))
    return 0 if found.ok else 1
