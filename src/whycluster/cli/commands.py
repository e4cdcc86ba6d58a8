"""What the command can be asked: its options, and which function answers.

Each function is loaded when it is called, so that a look at the help loads no library but click.
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
_MOST_SEED = 2**32 - 1  # that scikit-learn takes
_SETTINGS = {"help_option_names": ["-h", "--help"], "terminal_width": 100, "show_default": True}


class _NumberOfClusters(click.ParamType):  # type: ignore[type-arg]  # generic from click 8.4 on
    name = "number"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int | None:
        """A whole number, or None for "auto"."""
        if value == "auto":
            return None
        try:
            return int(value)
        except ValueError:
            self.fail(f"{value!r} is neither a whole number nor auto.", param, ctx)


def _all(*options: Callable[[Any], Any]) -> Callable[[_Command], _Command]:
    """Several options as one decorator, in their order."""

    def decorate(command: _Command) -> _Command:
        for option in reversed(options):
            command = option(command)
        return command

    return decorate


def _column(option: str, name: str, text: str) -> Callable[[_Command], _Command]:
    return click.option(option, name, metavar="COLUMN", help=text)


def _several(option: str, metavar: str, text: str) -> Callable[[_Command], _Command]:
    return click.option(option, multiple=True, metavar=metavar, help=text)


_table = _all(
    click.argument("file", type=click.Path(path_type=Path)),
    click.option(
        "--k",
        type=_NumberOfClusters(),
        default="auto",
        metavar="NUMBER|auto",
        help="Cluster into so many clusters; auto takes the elbow.",
    ),
    _column("--labels", "labels", "Explain the clusters in this column, in place of new ones."),
    _several("--columns", "COLUMNS", "Cluster by these only: names with commas between them."),
    _several("--ignore", "COLUMNS", "Leave these out."),
)
_reading = _all(
    click.option("--delimiter", metavar="SIGN", help="What is between the values of a line of text."),
    click.option("--decimal", type=click.Choice([".", ","]), default=".", help="The decimal sign."),
    click.option("--encoding", default="utf-8", metavar="NAME", help="Of a text file."),
    _several("--missing", "WORD", "What stands for a missing value in text, besides NA and the like."),
    click.option("--sheet", metavar="NAME", help="Of a workbook; by default the first."),
)
_seed = click.option(
    "--seed",
    type=click.IntRange(0, _MOST_SEED),
    default=0,
    metavar="N",
    help="Of all that is random.",
)


def _hide_bars(context: click.Context, _: Any, quiet: bool) -> bool:
    """For this command only: a program that runs it keeps its own bars."""
    if quiet:
        context.find_root().with_resource(hidden())  # which ends also where other options are wrong
    return quiet


_quiet = click.option(
    "--quiet", is_flag=True, callback=_hide_bars, help="Say nothing but results and errors."
)
_json = click.option("--json", "as_json", is_flag=True, help="Print the result as JSON.")
_force = click.option("--force", is_flag=True, help="Replace files that are there.")
_top = click.option("--top", type=click.IntRange(1), default=10, metavar="N", help="Features to show.")
_id_column = _column("--id", "id_column", "The column that names the rows; it is not clustered by.")
_contrast = _all(
    click.option("--target", metavar="CLUSTER", help="Explain why this cluster, or why not."),
    click.option("--against", metavar="CLUSTER", help="Explain why not this one."),
)


@click.group(context_settings=_SETTINGS, no_args_is_help=False, invoke_without_command=True)
@click.option("--version", is_flag=True, help="Show the version.")
@click.option("--debug", is_flag=True, help="Show the whole traceback of an error.")
@click.pass_context
def whycluster(context: click.Context, version: bool, debug: bool) -> int:  # noqa: ARG001  # see `run`
    """Why is this row in this cluster?

    A table is clustered, or its clusters are taken as they are, and every row is explained: how much each of
    its columns spoke for the cluster it is in.
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
@_table
@_id_column
@_contrast
@click.option(
    "--out", type=click.Path(path_type=Path), help="Write one row per row: .parquet, .csv, ...; or a folder."
)
@click.option("--model", type=click.Path(path_type=Path), help="For folders: a network that wc.save wrote.")
@click.option(
    "--invalid",
    type=click.Choice(["error", "skip"]),
    default="error",
    help="For folders: whether rows that the model cannot take are skipped.",
)
@click.option("--report", type=click.Path(path_type=Path), help="Write a report to look at: .html")
@click.option("--top", type=click.IntRange(1), default=5, metavar="N", help="Features to show.")
@_force
@_reading
@_seed
@_quiet
@_json
def explain(**options: Any) -> None:
    """Cluster the rows of FILE, and explain why each is where it is.

    FILE may be a folder of Parquet or CSV files, or a pattern in quotes, of any size: then a sample is
    clustered, all rows are explained part by part into the folder that --out names, and a run that was
    stopped goes on where it was.
    """
    from whycluster.cli.explain import explain

    explain(**options)


@whycluster.command()
@_table
@_id_column
@click.option("--out", type=click.Path(path_type=Path), help="The page; by default FILE with .html.")
@click.option("--title", help="What stands above it.")
@click.option("--rows", type=click.IntRange(1), default=5000, metavar="N", help="Rows in it, at most.")
@_force
@_reading
@_seed
@_quiet
def report(**options: Any) -> None:
    """Cluster the rows of FILE, and write a page about them that can be shown around."""
    from whycluster.cli.report import report

    report(**options)


@whycluster.command()
@_table
@click.option(
    "--id",
    "name",
    metavar="ID",
    required=True,
    help="The row: its name; its number, from 0, if no column names the rows.",
)
@_column("--id-column", "id_column", "The column that names the rows; it is not clustered by.")
@_contrast
@click.option(
    "--to", metavar="CLUSTER", help="Also tell the smallest change that moves it there; not with --labels."
)
@_top
@_reading
@_seed
@_quiet
@_json
def row(**options: Any) -> None:
    """Explain one row of FILE."""
    from whycluster.cli.row import row

    row(**options)


@whycluster.command()
@_table
@click.argument("one", metavar="A")
@click.argument("other", metavar="B")
@_id_column
@_top
@_reading
@_seed
@_quiet
@_json
def compare(**options: Any) -> None:
    """What tells the rows of cluster A of FILE from cluster B, and those of B from A."""
    from whycluster.cli.compare import compare

    compare(**options)


@whycluster.command()
@_table
@_several("--methods", "METHODS", "Which to compare: names with commas between them; by default all.")
@click.option("--repeats", type=click.IntRange(1), default=10, metavar="N", help="Draws at each step.")
@click.option(
    "--rows",
    type=click.IntRange(2),
    default=2000,
    metavar="N",
    help="Evaluate at most so many.",
)
@click.option("--checks", is_flag=True, help="Also run the sanity checks, which take their time.")
@click.option("--rule", default="min-take-most", help="Which rule is checked.")
@_reading
@_seed
@_quiet
@_json
def evaluate(**options: Any) -> None:
    """Measure how faithful explanations of FILE are."""
    from whycluster.cli.evaluate import evaluate

    evaluate(**options)


@whycluster.command()
def demo() -> None:
    """Explain the wine data that ship with scikit-learn."""
    from whycluster.cli.demo import demo
    from whycluster.cli.screen import show

    show(demo())


@whycluster.command()
@_json
def models(as_json: bool) -> None:
    """Which models are supported, and what is installed here."""
    from whycluster.cli.models import models

    models(as_json)


def run(arguments: Sequence[str] | None = None) -> int:
    """Run the command and say what went wrong in one line; the exit code."""
    from whycluster.cli.screen import tell

    given = list(sys.argv[1:] if arguments is None else arguments)
    try:
        with _stopped_by(signal.SIGINT, signal.SIGTERM):
            return whycluster.main(given, prog_name="whycluster", standalone_mode=False) or 0
    except BrokenPipeError:  # a reader may leave early
        sys.stdout = None  # there is nothing left to flush at the end
        return 0
    except BaseException as error:  # a panic of polars is none of Exception
        if "--debug" in given or isinstance(error, (SystemExit, GeneratorExit)):
            raise
        message, code = _verdict(error)
        tell(message)
        return code


class _Stopped(BaseException):
    """By a signal; not a KeyboardInterrupt, of which click says something of its own."""


@contextmanager
def _stopped_by(*signals: signal.Signals) -> Iterator[None]:
    """Let these undo what is half done, and end the command."""
    if threading.current_thread() is not threading.main_thread():  # where no handler can be set
        yield
        return

    def stop(number: int, frame: Any) -> None:  # noqa: ARG001
        raise _Stopped

    before = {each: signal.signal(each, stop) for each in signals}
    try:
        yield
    finally:
        for each, handler in before.items():
            signal.signal(each, handler)


def _verdict(error: BaseException) -> tuple[str, int]:
    """What to say of an error, and the exit code: 2 for what was asked, 1 for all else."""
    if isinstance(error, click.ClickException):
        context = getattr(error, "ctx", None)
        path = "whycluster" if context is None else context.command_path
        quoted = " Put a pattern in quotes." * ("unexpected extra argument" in error.format_message())
        return f"{error.format_message()}{quoted} See {path} --help.", 2
    if isinstance(error, WhyClusterError):
        return str(error), 2
    if isinstance(error, (_Stopped, KeyboardInterrupt, click.Abort)):
        return "stopped", 1
    if isinstance(error, FileExistsError):
        return f"{error.filename} is there by now. Give another name, or --force to replace it.", 2
    if isinstance(error, OSError) and error.strerror:
        return f"{error.filename or 'what was to be written'}: {error.strerror}", 1
    return f"unexpected {type(error).__name__}: {error} (whycluster --debug ... shows where it comes from)", 1
