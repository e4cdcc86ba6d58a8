"""Print results to stdout and everything else to stderr."""

from __future__ import annotations

import re
import sys
import traceback
from types import TracebackType

LEGEND = """\
share: fraction of the cluster's relevance. compared with: the clusters that most of it comes from."""

_BAR = re.compile(r"(?<= )(?:(\++)|(-+))(?= |$)")
_RULE = re.compile(r"[-= ]+")  # the line below a heading or a table header


def print_result(text: str) -> None:
    """Print a result, with positive bars in blue and negative bars in orange on a terminal.

    Control characters in names, which could change what a terminal shows, are escaped.
    """
    if sys.stdout is None:  # the process has no stdout
        return
    text = _escaped(text)
    if sys.stdout.isatty():
        _print_colored(text)
    else:
        print(_encodable(text, sys.stdout.encoding), flush=True)


def _print_colored(text: str) -> None:
    from rich.console import Console
    from rich.text import Text

    colored = Text()  # not parsed as markup, since column names come from the user
    for line in text.split("\n"):
        part = Text(line + "\n")
        for bar in () if _RULE.fullmatch(line) else _BAR.finditer(line):
            part.stylize("bold blue" if bar[1] else "dark_orange", *bar.span())
        colored.append_text(part)
    colored.rstrip()
    Console(soft_wrap=True, highlight=False, markup=False, emoji=False).print(colored)


def print_message(text: str) -> None:
    """Print a note or an error on one line of stderr, with control characters escaped."""
    if sys.stderr is not None:
        line = _encodable(_escaped(" ".join(text.splitlines())), sys.stderr.encoding)
        print(f"whycluster: {line}", file=sys.stderr)


def print_traceback(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    """Print the traceback of an error to stderr, with control characters escaped."""
    if sys.stderr is not None:
        text = _escaped("".join(traceback.format_exception(kind, error, trace)).rstrip("\n"))
        print(_encodable(text, sys.stderr.encoding), file=sys.stderr)


def _escaped(text: str) -> str:
    """Escape control and invisible characters, with which names could forge or hide output."""
    from whycluster.data.display import printable_lines  # imports NumPy, which --help does not need

    return printable_lines(text)


def _encodable(text: str, encoding: str | None) -> str:
    """Escape the characters that the console cannot show."""
    encoding = encoding or "utf-8"
    return text.encode(encoding, "backslashreplace").decode(encoding)
