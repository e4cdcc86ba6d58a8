"""Atomic writing of files, and safe parsing of JSON.

A file gets its final name only once it is complete.
"""

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
"""The deepest nesting that `parse_json` accepts."""
_AT_A_TIME = 1 << 16  # characters
_STRING = re.compile(r'"[^"]*"?')  # the end is optional, so an open string is scanned only once
_OPENING, _CLOSING = np.frombuffer(b"[{", np.uint8), np.frombuffer(b"]}", np.uint8)


class DepthError(ValueError):
    """Raised for JSON that nests too deeply."""


def as_path(path: Any, where: str, name: str = "path", what: str = "a file") -> Path:
    """Return the path of a file to write; raise an error if the name is not valid."""
    given = os.fspath(path) if isinstance(path, (str, os.PathLike)) else None
    if not isinstance(given, str) or not given or "\0" in given:
        raise InvalidInputError(f"{where}: {name} must be the name of {what}; got {path!r}.")
    return Path(given)


@contextmanager
def replacing(path: Path, new: bool = False) -> Iterator[Path]:
    """Yield a temporary path next to ``path``, which replaces it on success and is deleted on failure.

    An existing file keeps its permissions, and links to it stay valid. With ``new``, raise FileExistsError if
    the file exists.
    """
    target = Path(os.path.realpath(path))
    if target.exists() and not target.is_file():  # as root, one could replace /dev/null
        raise InvalidInputError(
            f"{str(path)!r} must be the name of a file; it is a folder, a device or a pipe."
        )
    temporary = target.with_name(f".{uuid.uuid4().hex}")
    try:
        yield temporary
        if new:
            os.link(temporary, target)  # unlike a move, a link never replaces a file
            return
        if target.exists():
            shutil.copymode(target, temporary)
        temporary.replace(target)
    except OSError as error:
        if error.filename is not None:
            error.filename = str(path)  # not the temporary file
            del error.filename2
        raise
    finally:
        temporary.unlink(missing_ok=True)


def write_text(path: Path, text: str) -> None:
    """Write a text to a file, without converting its line breaks."""
    with replacing(path) as temporary, temporary.open("x", encoding="utf-8", newline="") as file:
        file.write(text)


def parse_json(text: str) -> Any:
    """Parse untrusted JSON; raise ValueError if it is invalid, DepthError if it nests too deeply.

    Python's parser is recursive. With a raised recursion limit, deeply nested JSON would overflow the
    stack, which ends the process instead of raising an exception.
    """
    if depth(text) > DEEPEST:
        raise DepthError(f"nest at most {DEEPEST} times")
    return json.loads(text)


def depth(text: str) -> int:
    """Return the nesting depth of the brackets outside strings."""
    plain = text.replace("\\\\", "").replace('\\"', "")  # without escapes, quotes only delimit
    bare = _STRING.sub("", plain).encode("utf-8", "replace")
    signs = np.frombuffer(bare, dtype=np.uint8)
    steps = np.isin(signs, _OPENING).astype(np.int8) - np.isin(signs, _CLOSING)
    level = deepest = 0
    for some in np.array_split(
        steps, len(steps) // _AT_A_TIME + 1
    ):  # cumulative sums need eight times the memory
        levels = np.cumsum(some, dtype=np.int64)
        deepest = max(deepest, level + int(levels.max(initial=0)))
        level += int(some.sum(dtype=np.int64))
    return deepest
