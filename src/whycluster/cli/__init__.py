"""The command ``whycluster``.

In reading order:

- `commands`: the commands and their options
- `explain`, `row`, `compare`, `rules`, `report`, `evaluate`, `fit` (and ``show``), `changes`, `verify`,
  `demo`, `models`: one module per command
- `folder`, `sampling`: ``explain`` for folders of files, which clusters a sample of their rows
- `clustering`: the options, columns and clusters of a table
- `tables`, `reading`, `writing`: read tables from files and folders, and write them; `naming`: names in
  a file
- `formatting`, `output`: format results as text or JSON and print them
"""

from __future__ import annotations

import sys
from collections.abc import Sequence

_NEEDS = 'whycluster: the command needs {}: pip install "whycluster[cli]"'


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command and return its exit code.

    The code is 0 for success, 2 for a mistake in the options or the data, and 1 for any other error,
    or if ``verify`` finds a problem.
    """
    try:
        from whycluster.cli.commands import run
    except ModuleNotFoundError as error:
        if error.name != "click":
            raise
        print(_NEEDS.format(error.name), file=sys.stderr)
        return 2
    return run(arguments)
