"""The command ``whycluster``."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; 0 for success, 2 for a mistake in what was asked."""
    parser = argparse.ArgumentParser(prog="whycluster", description="Why is this row in this cluster?")
    parser.add_argument("--version", action="store_true", help="show the version and exit")
    parser.add_argument("--debug", action="store_true", help="show the whole traceback of an error")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND")
    commands.add_parser("demo", help="cluster and explain the wine data that ships with scikit-learn")
    options = parser.parse_args(arguments)
    if options.version:
        from whycluster import __version__

        print(f"whycluster {__version__}")
        return 0
    if options.command is None:
        parser.print_help()
        return 2
    return _run(options)


def _run(options: argparse.Namespace) -> int:
    from whycluster.cli.demo import demo
    from whycluster.errors import WhyClusterError

    try:
        print(demo())
    except WhyClusterError as error:
        if options.debug:
            raise
        print(f"whycluster: {error}", file=sys.stderr)
        return 2
    return 0
