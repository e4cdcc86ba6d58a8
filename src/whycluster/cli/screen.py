"""What the command says: results on stdout, everything else on stderr."""

from __future__ import annotations

import re
import sys

_BAR = re.compile(r"(?<= )(?:(\++)|(-+))(?= |$)")
_RULE = re.compile(r"[-= ]+")  # below a heading or the heads of a table


def show(text: str) -> None:
    """Print a result; on a terminal, bars for a cluster are blue and those against it orange."""
    if sys.stdout is None:  # there is nobody to tell
        return
    if sys.stdout.isatty():
        _show_coloured(text)
        return
    encoding = sys.stdout.encoding or "utf-8"
    # What the console has no characters for is escaped.
    print(text.encode(encoding, "backslashreplace").decode(encoding), flush=True)


def _show_coloured(text: str) -> None:
    from rich.console import Console
    from rich.text import Text

    coloured = Text()  # never markup: names are the user's
    for line in text.split("\n"):
        part = Text(line + "\n")
        for bar in () if _RULE.fullmatch(line) else _BAR.finditer(line):
            part.stylize("bold blue" if bar[1] else "dark_orange", *bar.span())
        coloured.append_text(part)
    coloured.rstrip()
    Console(soft_wrap=True, highlight=False, markup=False, emoji=False).print(coloured)


def tell(text: str) -> None:
    """Say something on one line of stderr; a console without the characters gets them escaped."""
    if sys.stderr is not None:
        encoding = sys.stderr.encoding or "utf-8"
        line = " ".join(text.splitlines())
        print(f"whycluster: {line.encode(encoding, 'backslashreplace').decode(encoding)}", file=sys.stderr)
