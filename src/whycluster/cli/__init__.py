"""The command ``whycluster``."""

from __future__ import annotations

import sys
from collections.abc import Sequence

_NEEDS = 'whycluster: the command needs {}: pip install "whycluster[cli]"'


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; 0 for success, 2 for a mistake in what was asked, 1 for anything else."""
    try:
        from whycluster.cli.commands import run
    except ModuleNotFoundError as error:
        if error.name != "click":
            raise
        print(_NEEDS.format(error.name), file=sys.stderr)
        return 2
    return run(arguments)
