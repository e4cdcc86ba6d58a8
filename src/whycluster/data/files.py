"""Atomic and durable writing of files, and safe parsing of JSON.

A file gets its final name only once it is complete and synced to disk, so a power cut leaves either the old
file or the new one intact.
"""

from __future__ import annotations

import errno
import json
import os
import re
import shutil
import uuid
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import numpy as np

from whycluster.core.errors import InvalidInputError

DEEPEST = 100
"""The deepest nesting that `parse_json` accepts."""
_CANNOT_SYNC = (errno.EINVAL, errno.ENOTSUP, errno.ENOSYS)  # errors on file systems without fsync
_SYNC_THREADS = 16  # more than the number of processors, since syncing threads only wait
_AT_A_TIME = 1 << 16  # characters
_OS_ERROR = re.compile(r"(?:\(os error |Os \{ code: )(\d+)")  # the latter in safetensors before 0.6
_STRING = re.compile(r'"[^"]*"?')  # the end is optional, so an unterminated string is scanned only once
_OPENING, _CLOSING = np.frombuffer(b"[{", np.uint8), np.frombuffer(b"]}", np.uint8)


class DepthError(ValueError):
    """Raised for JSON that is nested too deeply."""


def as_path(path: Any, where: str, name: str = "path", what: str = "a file") -> Path:
    """Return the path of a file to write; raise an error if the name is not valid."""
    given = os.fspath(path) if isinstance(path, (str, os.PathLike)) else None
    if not isinstance(given, str) or not given or "\0" in given:
        raise InvalidInputError(f"{where}: {name} must be the name of {what}; got {path!r}.")
    return Path(given)


def is_utf8(text: str) -> bool:
    """Return whether a text is valid UTF-8; paths and arguments of a command may not be."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


@contextmanager
def replacing(path: Path, new: bool = False) -> Iterator[Path]:
    """Yield a temporary path next to ``path``; on success, replace ``path`` with the file written there.

    On failure, the temporary file is deleted. An existing file keeps its permissions, and links to it stay
    valid. If ``new`` is true, raise FileExistsError if the file exists.
    """
    target = Path(os.path.realpath(path))
    if target.exists() and not target.is_file():  # running as root could replace /dev/null
        raise InvalidInputError(
            f"{str(path)!r} must be the name of a file; it is a folder, a device or a pipe."
        )
    with _temporary_beside(target, path) as temporary:
        yield temporary
        _sync_file(temporary)
        if new:
            _move_to_new(temporary, target)
        else:
            if target.exists():
                shutil.copymode(target, temporary)
            temporary.replace(target)
        sync_folders([target.parent])


def check_creatable(path: Path) -> None:
    """Raise OSError if no file can be created in the folder of ``path``, before any work is done."""
    target = Path(os.path.realpath(path))
    with _temporary_beside(target, path) as temporary:
        temporary.touch(exist_ok=False)


@contextmanager
def _temporary_beside(target: Path, path: Path) -> Iterator[Path]:
    """Yield a hidden name next to ``target``, and delete any file with that name at the end.

    Operating system errors are reported with the name ``path`` instead of the hidden name.
    """
    temporary = target.with_name(f".{uuid.uuid4().hex}")
    try:
        yield temporary
    except Exception as error:
        named = _naming(error, path)
        if named is None:
            raise
        raise named from error
    finally:
        with suppress(OSError):  # read-only file systems refuse even if there is no such file
            temporary.unlink()


def _naming(error: Exception, path: Path) -> OSError | None:
    """Return an operating system error that names ``path``, or None if ``error`` is of another kind.

    Libraries written in Rust raise their own errors, whose messages quote the number of the system error.
    """
    quoted = _OS_ERROR.search(str(error))
    number = getattr(error, "errno", None) or (int(quoted[1]) if quoted else None)
    return None if number is None else OSError(number, os.strerror(number), str(path))


def _move_to_new(temporary: Path, target: Path) -> None:
    """Give a file its final name; raise FileExistsError if a file with that name exists.

    Unlike a move, a link never replaces a file. On file systems without links, such as FAT, an empty file
    first reserves the name. So another program may see an empty file for a moment, and if the process is
    killed just then, the empty file stays.
    """
    try:
        os.link(temporary, target)
    except FileExistsError:
        raise
    except OSError:
        target.touch(exist_ok=False)
        try:
            temporary.replace(target)
        except BaseException:
            target.unlink(missing_ok=True)
            raise


def move_files(
    moves: Sequence[tuple[Path, Path]], root: Path, durable: bool, others: Iterable[Path] = ()
) -> None:
    """Move files to new paths below ``root``; if ``durable``, each step is on disk before the next begins.

    ``others`` are folders above ``root`` to sync as well.
    """
    if durable:
        _sync_files([path for path, _ in moves])
    for path, target in moves:
        target.parent.mkdir(parents=True, exist_ok=True)
        path.replace(target)
    if durable:
        around = {parent for _, target in moves for parent in target.parents}
        sync_folders(around.difference(root.parents).union(others))


def _sync_files(paths: Sequence[Path]) -> None:
    """Wait until the contents of files are on disk.

    Syncing many files at a time takes little longer than syncing one: 200 small files take 0.05 s instead of
    0.9 s.
    """
    with ThreadPoolExecutor(_SYNC_THREADS, "whycluster-sync") as pool:
        for _ in pool.map(_sync_file, paths):
            pass


def _sync_file(path: Path) -> None:
    with path.open("r+b") as file:  # Windows syncs only files that are open for writing
        _sync(file.fileno())


def sync_folders(folders: Iterable[Path]) -> None:
    """Wait until the names in these folders are on disk."""
    for folder in folders:
        try:
            descriptor = os.open(folder, os.O_RDONLY)
        except PermissionError:  # Windows, and folders that may not be listed
            continue
        try:
            _sync(descriptor)
        finally:
            os.close(descriptor)


def _sync(descriptor: int) -> None:
    try:
        os.fsync(descriptor)
    except OSError as error:
        if error.errno not in _CANNOT_SYNC:
            raise


def write_text(path: Path, text: str) -> None:
    """Write text to a file, without converting its line breaks."""
    with replacing(path) as temporary, temporary.open("x", encoding="utf-8", newline="") as file:
        file.write(text)


def parse_json(text: str, object_pairs_hook: Callable[[list[tuple[str, Any]]], Any] | None = None) -> Any:
    """Parse untrusted JSON; raise ValueError if it is invalid, DepthError if it is nested too deeply.

    ``object_pairs_hook`` is that of `json.loads`: it turns the members of an object into a value.

    Python's parser is recursive. With a raised recursion limit, deeply nested JSON would overflow the
    stack, which ends the process instead of raising an exception.
    """
    if depth(text) > DEEPEST:
        raise DepthError(f"be nested at most {DEEPEST} levels deep")
    return json.loads(text, object_pairs_hook=object_pairs_hook)


def depth(text: str) -> int:
    """Return the nesting depth of the brackets outside strings."""
    plain = text.replace("\\\\", "").replace('\\"', "")  # the remaining quotes delimit strings
    bare = _STRING.sub("", plain).encode("utf-8", "replace")
    signs = np.frombuffer(bare, dtype=np.uint8)
    steps = np.isin(signs, _OPENING).astype(np.int8) - np.isin(signs, _CLOSING)
    level = deepest = 0
    for some in np.array_split(
        steps, len(steps) // _AT_A_TIME + 1
    ):  # in parts, since cumulative sums need eight times the memory
        levels = np.cumsum(some, dtype=np.int64)
        deepest = max(deepest, level + int(levels.max(initial=0)))
        level += int(some.sum(dtype=np.int64))
    return deepest
