"""The commands and options of ``whycluster`` and the function that runs each command.

Each function is imported only when its command runs, so ``--help`` imports no library except click.
"""

from __future__ import annotations

import signal
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

import click

from whycluster.core.errors import WhyClusterError
from whycluster.data.progress import hidden

_Command = TypeVar("_Command", bound=Callable[..., Any])
_LARGEST_SEED = 2**32 - 1  # scikit-learn's limit
_PATH = click.Path(path_type=Path)
_SETTINGS = {"help_option_names": ["-h", "--help"], "terminal_width": 100, "show_default": True}


class _NumberOfClusters(click.ParamType):  # type: ignore[type-arg]  # generic from click 8.4 on
    name = "number"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int | None:
        """Return the number as an integer, or None for "auto"."""
        if value == "auto":
            return None
        try:
            return int(value)
        except ValueError:
            self.fail(f"{value!r} is neither an integer nor auto.", param, ctx)


def _combine(*options: Callable[[Any], Any]) -> Callable[[_Command], _Command]:
    """Combine several options into one decorator, in the order in which the help lists them."""

    def decorate(command: _Command) -> _Command:
        for option in reversed(options):
            command = option(command)
        return command

    return decorate


def _column_option(option: str, name: str, text: str) -> Callable[[_Command], _Command]:
    return click.option(option, name, metavar="COLUMN", help=text)


def _count_option(option: str, default: int, text: str, least: int = 1) -> Callable[[_Command], _Command]:
    return click.option(option, type=click.IntRange(least), default=default, metavar="N", help=text)


def _repeatable_option(option: str, metavar: str, text: str) -> Callable[[_Command], _Command]:
    return click.option(option, multiple=True, metavar=metavar, help=text)


_table_options = _combine(
    click.argument("file", type=_PATH),
    click.option(
        "--k",
        type=_NumberOfClusters(),
        default="auto",
        metavar="NUMBER|auto",
        help="Number of clusters; auto uses the elbow method.",
    ),
    _column_option("--labels", "labels", "Explain the clusters in this column instead of creating new ones."),
    _repeatable_option("--columns", "COLUMNS", "Cluster by these columns only (comma-separated)."),
    _repeatable_option("--ignore", "COLUMNS", "Leave out these columns (comma-separated)."),
    click.option(
        "--names",
        type=_PATH,
        metavar="FILE",
        help="CSV or JSON file with a name for each cluster (not for results in a folder).",
    ),
)
_model = _combine(
    click.option(
        "--model",
        type=_PATH,
        metavar="FILE",
        help="Apply this segmentation, written by fit or wc.save, instead of creating clusters.",
    ),
    click.option(
        "--check/--no-check",
        default=True,
        help="Compare the columns and units of the rows with those of the segmentation.",
    ),
)
_reading_options = _combine(
    click.option(
        "--delimiter", metavar="CHAR", show_default="comma; tab for .tsv", help="Character between values."
    ),
    click.option("--decimal", type=click.Choice([".", ","]), default=".", help="Decimal separator."),
    click.option("--encoding", default="utf-8", metavar="NAME", help="Encoding of a text file."),
    _repeatable_option("--missing", "WORD", "Also treat this word in a text file as missing; repeatable."),
    click.option("--sheet", metavar="NAME", show_default="first sheet", help="Sheet of a workbook."),
)
_seed = click.option(
    "--seed",
    type=click.IntRange(0, _LARGEST_SEED),
    default=0,
    metavar="N",
    help="Random seed.",
)


def _hide_bars(context: click.Context, _: Any, quiet: bool) -> bool:
    """Hide progress bars for this command only. A program that calls the command keeps its own bars."""
    if quiet:
        context.find_root().with_resource(hidden())  # restored even if another option is invalid
    return quiet


_quiet = click.option("--quiet", is_flag=True, callback=_hide_bars, help="Print only results and errors.")
_json = click.option("--json", "as_json", is_flag=True, help="Print the result as JSON.")
_last_options = _combine(_reading_options, _seed, _quiet, _json)
_force = click.option("--force", is_flag=True, help="Overwrite existing files.")
_top = _count_option("--top", 10, "Number of features to show.")
_id_column = _column_option("--id", "id_column", "Column that identifies the rows; not used for clustering.")
_query_options = _combine(
    click.option("--target", metavar="CLUSTER", help="Explain why rows are, or are not, in this cluster."),
    click.option("--against", metavar="CLUSTER", help="Compare with this cluster only."),
    click.option(
        "--rule",
        show_default="path",
        metavar="RULE",
        help="How competitors share the evidence: path, min-take-most, joint, sequential or contrast.",
    ),
    click.option(
        "--beta",
        default="auto",
        metavar="NUMBER|auto",
        help="Stiffness; larger values give the nearest competitor more weight.",
    ),
)


@click.group(context_settings=_SETTINGS, no_args_is_help=False, invoke_without_command=True)
@click.option("--version", is_flag=True, help="Show the version and exit.")
@click.option("--debug", is_flag=True, help="Show the full traceback of an error.")
@click.pass_context
def whycluster(context: click.Context, version: bool, debug: bool) -> int:  # noqa: ARG001  # see `run`
    """Explain why each row of a table is in its cluster.

    Cluster a table, or use the clusters it already has. For every row, show how much each column contributes
    to the row's cluster.
    """
    if version:
        from whycluster import __version__

        click.echo(f"whycluster {__version__}")
        context.exit(0)
    if context.invoked_subcommand is None:
        click.echo(context.get_help())
        context.exit(2)
    return 0


@whycluster.command()
@_table_options
@_id_column
@_query_options
@click.option(
    "--out",
    type=_PATH,
    help="Write one explanation per row to a .parquet, .csv, .tsv, .arrow or .jsonl file, or to a folder.",
)
@_model
@click.option(
    "--invalid",
    type=click.Choice(["error", "skip"]),
    default="error",
    help="Stop at rows that cannot be explained, or skip them (folders only).",
)
@click.option(
    "--durable/--no-durable",
    default=True,
    help="Sync results to disk, so that a power failure loses none (folders only).",
)
@click.option(
    "--threshold",
    metavar="NUMBER",
    help="Explain why the probability of the cluster exceeds this number (with --model only).",
)
@click.option(
    "--safe-cells",
    is_flag=True,
    help="In .csv and .tsv output, put ' before text that a spreadsheet would run as a formula.",
)
@click.option("--report", type=_PATH, help="Write an HTML report.")
@_count_option("--top", 5, "Number of features to show.")
@_force
@_last_options
def explain(**options: Any) -> None:
    """Cluster the rows of FILE and explain each row.

    FILE may also be a folder of Parquet or CSV files of any size, or a pattern in quotes. In that case, a
    sample of the rows is clustered, and the explanations of all rows are written file by file to the folder
    given by --out. An interrupted run resumes where it stopped.
    """
    from whycluster.cli.explain import explain

    explain(**options)


@whycluster.command()
@_table_options
@_id_column
@click.option("--out", type=_PATH, required=True, help="File for the segmentation, such as segments.why.")
@_force
@_last_options
def fit(**options: Any) -> None:
    """Cluster the rows of FILE and save the segmentation, to apply it to other files with --model."""
    from whycluster.cli.fit import fit

    fit(**options)


@whycluster.command()
@click.argument("file", type=_PATH)
@_json
def show(file: Path, as_json: bool) -> None:
    """Show the clusters and columns of a segmentation that fit or wc.save wrote."""
    from whycluster.cli.fit import show

    show(file, as_json)


@whycluster.command()
@_table_options
@_model
@_id_column
@click.option("--out", type=_PATH, show_default="FILE with .html", help="Output file.")
@click.option("--title", show_default="name of FILE", help="Title of the report.")
@_count_option("--rows", 5000, "Maximum number of rows in the report.")
@_force
@_reading_options
@_seed
@_quiet
def report(**options: Any) -> None:
    """Cluster the rows of FILE and write an HTML report."""
    from whycluster.cli.report import report

    report(**options)


@whycluster.command()
@_table_options
@_model
@click.option(
    "--id",
    "name",
    metavar="ID",
    required=True,
    help="Row to explain: its identifier, or its number (counted from 0) if no column identifies the rows.",
)
@_column_option("--id-column", "id_column", "Column that identifies the rows; not used for clustering.")
@_query_options
@click.option(
    "--with", "other", metavar="ID", help="Compare with this row: why together, or what separates them?"
)
@click.option(
    "--to",
    metavar="CLUSTER",
    help="Also show the smallest change that moves the row to this cluster (not with --labels).",
)
@_repeatable_option("--within", "COLUMNS", "With --to, change these columns only (comma-separated).")
@_repeatable_option("--hold", "COLUMNS", "With --to, do not change these columns (comma-separated).")
@_top
@_last_options
def row(**options: Any) -> None:
    """Explain a single row of FILE."""
    from whycluster.cli.row import row

    row(**options)


@whycluster.command()
@_table_options
@_model
@click.argument("one", metavar="A")
@click.argument("other", metavar="B")
@_id_column
@_top
@_last_options
def compare(**options: Any) -> None:
    """Show what separates clusters A and B of FILE."""
    from whycluster.cli.compare import compare

    compare(**options)


@whycluster.command()
@_table_options
@_model
@_id_column
@_count_option("--conditions", 3, "Maximum number of conditions per rule.")
@_count_option("--per-cluster", 3, "Maximum number of rules per cluster.")
@click.option("--sql", metavar="TABLE", help="Print a query that assigns the rows of this table to clusters.")
@click.option(
    "--dialect",
    type=click.Choice(["duckdb", "postgres", "spark"]),
    show_default="duckdb",
    help="Dialect of the query (with --sql only).",
)
@_last_options
def rules(**options: Any) -> None:
    """Print the few conditions that describe each cluster of FILE."""
    from whycluster.cli.rules import rules

    rules(**options)


@whycluster.command()
@click.argument("before", type=_PATH)
@click.argument("after", type=_PATH)
@click.option(
    "--model",
    type=_PATH,
    required=True,
    metavar="FILE",
    help="The segmentation, written by fit or wc.save.",
)
@click.option(
    "--new-model",
    type=_PATH,
    metavar="FILE",
    help="Another segmentation, for AFTER; its clusters are matched with those of --model.",
)
@click.option("--id", "id_column", required=True, metavar="COLUMN", help="Column that identifies the rows.")
@click.option(
    "--check/--no-check",
    default=True,
    help="Compare the columns and units of both files with those of the segmentation.",
)
@click.option("--report", type=_PATH, help="Write an HTML report.")
@_force
@_reading_options
@_quiet
@_json
def changes(**options: Any) -> None:
    """Compare two files of the same customers, BEFORE and AFTER, under a segmentation.

    Show who moved from which cluster to which, who is new and who is gone, which columns drove each move, and
    which columns changed within clusters.
    """
    from whycluster.cli.changes import changes

    changes(**options)


@whycluster.command()
@_table_options
@_model
@_repeatable_option("--methods", "METHODS", "Methods to compare (comma-separated); all by default.")
@_count_option("--repeats", 10, "Number of random draws per step.")
@_count_option("--rows", 2000, "Maximum number of rows to evaluate.", least=2)
@click.option("--checks", is_flag=True, help="Also run the sanity checks, which are slow.")
@click.option("--rule", default="path", help="Rule that the sanity checks use.")
@_last_options
def evaluate(**options: Any) -> None:
    """Measure how faithful explanations of FILE are."""
    from whycluster.cli.evaluate import evaluate

    evaluate(**options)


@whycluster.command()
@click.argument("folder", type=_PATH)
@_json
def verify(folder: Path, as_json: bool) -> int:
    """Check that the results in FOLDER are complete and unchanged.

    FOLDER is one that explain --out has written. The exit code is 1 if files are missing, changed or extra,
    or if the run has not finished.
    """
    from whycluster.cli.verify import verify

    return verify(folder, as_json)


@whycluster.command()
def demo() -> None:
    """Explain the wine data set that ships with scikit-learn."""
    from whycluster.cli.demo import demo
    from whycluster.cli.output import print_result

    print_result(demo())


@whycluster.command()
@_json
def models(as_json: bool) -> None:
    """List supported models and installed libraries."""
    from whycluster.cli.models import models

    models(as_json)


def run(arguments: Sequence[str] | None = None) -> int:
    """Run the command, print any error on one line, and return the exit code."""
    from whycluster.cli.output import print_message, print_traceback

    given = list(sys.argv[1:] if arguments is None else arguments)
    try:
        with _stopped_by(signal.SIGINT, signal.SIGTERM):
            return whycluster.main(given, prog_name="whycluster", standalone_mode=False) or 0
    except BrokenPipeError:  # the reader of a pipe may close it early
        sys.stdout = None  # so that nothing is flushed at exit
        return 0
    except BaseException as error:  # a panic in polars is not an Exception
        if "--debug" in given or isinstance(error, (SystemExit, GeneratorExit)):
            if arguments is None:  # the process ends with this error
                sys.excepthook = print_traceback
            raise
        message, code = _message_and_code(error)
        print_message(message)
        return code


class _Stopped(BaseException):
    """Raised by a signal handler. For a KeyboardInterrupt, click would print its own message."""


@contextmanager
def _stopped_by(*signals: signal.Signals) -> Iterator[None]:
    """Raise `_Stopped` on these signals, so that incomplete files are removed before the command ends."""
    if threading.current_thread() is not threading.main_thread():  # only the main thread can set handlers
        yield
        return

    def stop(number: int, frame: Any) -> None:  # noqa: ARG001  # the signature of a handler
        raise _Stopped

    before = {each: signal.signal(each, stop) for each in signals}
    try:
        yield
    finally:
        for each, handler in before.items():
            signal.signal(each, handler)


def _message_and_code(error: BaseException) -> tuple[str, int]:
    """Return the message of an error and the exit code: 2 for a user error, 1 for anything else."""
    if isinstance(error, click.ClickException):
        context = getattr(error, "ctx", None)
        path = "whycluster" if context is None else context.command_path
        hint = " Put patterns in quotes." * ("unexpected extra argument" in error.format_message())
        return f"{error.format_message()}{hint} See {path} --help.", 2
    if isinstance(error, WhyClusterError):
        return str(error), 2
    if isinstance(error, (_Stopped, KeyboardInterrupt, click.Abort)):
        return "stopped", 1
    if isinstance(error, FileExistsError):
        return (
            f"{error.filename} was created in the meantime. Use another name, or add --force to overwrite "
            "it.",
            2,
        )
    if isinstance(error, OSError) and error.strerror:
        return f"{error.filename or 'output'}: {error.strerror}", 1
    return f"unexpected {type(error).__name__}: {error} (run whycluster --debug ... to see the traceback)", 1
