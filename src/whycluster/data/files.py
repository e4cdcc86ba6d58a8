"""Files that are there as a whole or not at all."""

from __future__ import annotations

import json
import os
import re
import shutil
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from whycluster.core.errors import InvalidInputError

DEEPEST = 100
"""How deep JSON that we read may nest."""
_AT_A_TIME = 1 << 16  # characters
_STRING = re.compile(r'"[^"]*"?')  # also without an end: then no scan begins anew
_OPENING, _CLOSING = np.frombuffer(b"[{", np.uint8), np.frombuffer(b"]}", np.uint8)


class DepthError(ValueError):
    """JSON that nests too deep."""


def as_path(path: Any, where: str, name: str = "path", what: str = "a file") -> Path:
    """The path of a file that is to be written; raise for what is none."""
    given = os.fspath(path) if isinstance(path, (str, os.PathLike)) else None
    if not isinstance(given, str) or not given or "\0" in given:
        raise InvalidInputError(f"{where}: {name} must be the name of {what}; got {path!r}.")
    return Path(given)


@contextmanager
def replacing(path: Path, new: bool = False) -> Iterator[Path]:
    """The path of a file beside it, which takes its place if all went well, and is gone if not.

    A file that is there keeps its permissions, and a link still points to it. With ``new`` it must not be
    there: FileExistsError.
    """
    target = Path(os.path.realpath(path))
    if target.exists() and not target.is_file():  # as root, one could replace /dev/null
        raise InvalidInputError(
            f"{str(path)!r} must be the name of a file; it is a folder, a device or a pipe."
        )
    beside = target.with_name(f".{uuid.uuid4().hex}")
    try:
        yield beside
        if new:
            os.link(beside, target)  # which, unlike a move, never replaces
            return
        if target.exists():
            shutil.copymode(target, beside)
        beside.replace(target)
    except OSError as error:
        if error.filename is not None:
            error.filename = str(path)  # not the file beside it
            del error.filename2
        raise
    finally:
        beside.unlink(missing_ok=True)


def write_text(path: Path, text: str) -> None:
    """Write a text of any length, with its line breaks as they are."""
    with replacing(path) as beside, beside.open("x", encoding="utf-8", newline="") as file:
        file.write(text)


def parse_json(text: str) -> Any:
    """What JSON from anybody says; ValueError if it is none, DepthError if it nests too deep.

    The parser of Python calls itself: where the limit of that has been raised, JSON that nests without end
    would run it out of stack, which is no exception but the end of the process.
    """
    if depth(text) > DEEPEST:
        raise DepthError(f"nest at most {DEEPEST} times")
    return json.loads(text)


def depth(text: str) -> int:
    """How deep brackets nest that are not within strings."""
    plain = text.replace("\\\\", "").replace('\\"', "")  # without what is escaped, a quote ends a string
    bare = _STRING.sub("", plain).encode("utf-8", "replace")
    signs = np.frombuffer(bare, dtype=np.uint8)
    steps = np.isin(signs, _OPENING).astype(np.int8) - np.isin(signs, _CLOSING)
    level = deepest = 0
    for some in np.array_split(steps, len(steps) // _AT_A_TIME + 1):  # sums are eight times as large
        levels = np.cumsum(some, dtype=np.int64)
        deepest = max(deepest, level + int(levels.max(initial=0)))
        level += int(some.sum(dtype=np.int64))
    return deepest
