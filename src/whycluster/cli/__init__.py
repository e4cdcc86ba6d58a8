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
    add_evaluate(commands.add_parser("evaluate", help="measure how faithful explanations of a table are"))
    options = parser.parse_args(arguments)
    if options.version:
        from whycluster import __version__

        print(f"whycluster {__version__}")
        return 0
    if options.command is None:
        parser.print_help()
        return 2
    return _run(options)


def add_evaluate(parser: argparse.ArgumentParser) -> None:
    """The options of ``evaluate``; here, so that a look at the help loads no library."""
    parser.add_argument("file", help="a table: .csv, .tsv or .parquet")
    clusters = parser.add_mutually_exclusive_group(required=True)
    clusters.add_argument("--k", type=int, help="cluster the rows with k-means into so many clusters")
    clusters.add_argument("--labels", metavar="COLUMN", help="take the clusters from this column")
    parser.add_argument("--ignore", nargs="+", default=[], metavar="COLUMN", help="columns to leave out")
    parser.add_argument("--methods", nargs="+", metavar="NAME", help="which to compare; by default all")
    parser.add_argument("--repeats", type=int, default=10, help="draws at each step (10)")
    parser.add_argument("--rows", type=int, default=2000, help="evaluate at most so many rows (2000)")
    parser.add_argument("--checks", action="store_true", help="also run the sanity checks (takes its time)")
    parser.add_argument("--rule", default="min-take-most", help="which rule is checked (min-take-most)")
    parser.add_argument("--seed", type=int, default=0, help="of all that is random (0)")


def _run(options: argparse.Namespace) -> int:
    from whycluster.errors import WhyClusterError

    try:
        _write(_text(options))
    except WhyClusterError as error:
        if options.debug:
            raise
        print(f"whycluster: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("whycluster: stopped", file=sys.stderr)
        return 130
    return 0


def _text(options: argparse.Namespace) -> str:
    if options.command == "demo":
        from whycluster.cli.demo import demo

        return demo()
    from whycluster.cli.evaluate import evaluate

    return evaluate(options)


def _write(text: str) -> None:
    """Print it; what the console has no characters for is escaped, and a reader may leave early."""
    encoding = sys.stdout.encoding or "utf-8"
    try:
        print(text.encode(encoding, "backslashreplace").decode(encoding), flush=True)
    except BrokenPipeError:
        sys.stdout = None  # there is nothing left to flush at the end
