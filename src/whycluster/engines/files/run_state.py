"""The folder that results are written to: which run they are of, which are finished, who is at work there.

A result is written in a folder of its own, ``_whycluster.tmp``, and moved to its place when it is whole; so
whatever has its name is finished. ``_whycluster.json`` says what was asked: results of another model or of
other options are never mixed with these. Names that begin with an underscore are no data to tools that read
folders of Parquet.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

from whycluster.core.errors import InvalidInputError
from whycluster.data.files import parse_json
from whycluster.data.settings import setting

FORMAT = 1
_PAUSE = 5.0  # seconds between two notes
_OURS = "_whycluster"
_FACTS, _LOCK, _TEMPORARY = f"{_OURS}.json", f"{_OURS}.lock", f"{_OURS}.tmp"
_KINDS = {"asked": dict, "settled": dict, "parts": list, "known": dict, "measured": dict}
_KNOWN = {"inputs": dict, "without": list}


class RunState:
    """A folder of results, in use by one run at a time.

    Parameters
    ----------
    folder : made if it is not there
    where : the function that was called, for messages
    """

    def __init__(self, folder: Path, where: str) -> None:
        self.folder, self.where = folder, where
        self.facts: dict[str, Any] = {}
        self._noting, self._noted = threading.Lock(), 0.0
        self._run: str | None = None

    @contextmanager
    def opened(self) -> Iterator[RunState]:
        """Hold the folder, so that no other run writes there; what a run that was killed left is removed.

        The lock is the system's, which ends it with the process.
        """
        with self._make() as file:
            if not _lock(file, self.where):
                raise InvalidInputError(
                    f"{self.where}: {str(self.folder)!r} must not be in use; another run is writing there. "
                    "Wait for it, or give another folder."
                )
            self._clear()
            try:
                yield self
            finally:
                self._clear()

    def _make(self) -> IO[bytes]:
        """Make the folder, unless it is there; the file to be locked, which is open."""
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            others = [name for name in os.listdir(self.folder) if not name.startswith(_OURS)]
            ours = not others or self.is_begun
            file = open(self.folder / _LOCK, "a+b") if ours else None  # noqa: SIM115  # whoever asked closes it
        except OSError as error:
            raise InvalidInputError(
                f"{self.where}: {setting('out')} must be a folder that can be written to; {error.strerror}: "
                f"{str(self.folder)!r}."
            ) from error
        if file is None:
            raise InvalidInputError(
                f"{self.where}: {setting('out')} must be a new folder, an empty one, or one of an earlier "
                f"run; {str(self.folder)!r} holds other files, such as {min(others)!r}. Give another one."
            )
        return file

    @property
    def is_begun(self) -> bool:
        """Whether there is a run in the folder."""
        return (self.folder / _FACTS).exists()

    def _clear(self) -> None:
        shutil.rmtree(self.folder / _TEMPORARY, ignore_errors=True)

    def begin(self, request: dict[str, Any], settled: dict[str, Any], overwrite: bool) -> None:
        """Take up the run that is there, or begin one; raise if it is another, unless it may be replaced.

        ``settled`` is what a new run settles for all that go on with it.
        """
        found = self._read()
        before = found.get("asked", {})
        differing = sorted(name for name in {*before, *request} if before.get(name) != request.get(name))
        if found and differing and not overwrite:
            raise InvalidInputError(
                f"{self.where}: {str(self.folder)!r} holds the results of a run with another "
                f"{' and another '.join(differing)}. Give another folder, or {setting('overwrite=True')} to "
                "replace what it holds."
            )
        if found and (overwrite or differing):
            self._remove(found["parts"])
            found = {}
        new = {"asked": request, "settled": settled, "parts": [], "known": {}, "measured": {}}
        self.facts = found or {"format": FORMAT, **new}
        self.keep()

    def _read(self) -> dict[str, Any]:
        path = self.folder / _FACTS
        if not path.exists():
            return {}
        try:
            facts = parse_json(path.read_text("utf-8"))
            whole = _is_whole(facts)
        except (OSError, ValueError, TypeError, KeyError):
            whole = False
        if not whole:
            raise InvalidInputError(
                f"{self.where}: {str(path)!r} must be as this version of whycluster writes it; it is not. "
                "Give another folder, or remove this one."
            )
        return dict(facts)

    def _remove(self, parts: list[str]) -> None:
        """Take away the results of another run, and nothing else."""
        for name in parts:
            path = self.folder / name
            if os.path.lexists(path) and self._is_inside(name) and not path.is_dir():
                path.unlink()

    def _is_inside(self, name: str) -> bool:
        return self.folder.resolve() in (self.folder / name).resolve().parents

    def keep(self, **known: Any) -> None:
        """Write down what is known by now."""
        self.facts["known"].update(known)
        self._run = None if known else self._run
        with self.writing(_FACTS) as path:
            path.write_text(json.dumps(self.facts, indent=1), "utf-8")

    def note(self, measured: Callable[[], dict[str, Any]]) -> None:
        """Write down what was measured by now, unless that was just done."""
        with self._noting:
            if time.monotonic() > self._noted + _PAUSE:
                self.facts["measured"] = measured()
                self.keep()
                self._noted = time.monotonic()

    def expect(self, parts: list[str]) -> None:
        """Write down which results there will be."""
        self.facts["parts"] = sorted({*self.facts["parts"], *parts})
        self.keep()

    @property
    def run(self) -> str:
        """What tells the results of this run from those of any other."""
        if self._run is None:  # what is known may be of many parts
            told = json.dumps([self.facts["asked"], self.facts["known"]], sort_keys=True)
            self._run = hashlib.sha256(told.encode()).hexdigest()[:32]
        return self._run

    @contextmanager
    def writing(self, name: str) -> Iterator[Path]:
        """The path of a file that gets its name when all went well."""
        beside = self.folder / _TEMPORARY / name
        for path in (name, f"{_TEMPORARY}/{name}"):
            if not self._is_inside(path):
                raise InvalidInputError(
                    f"{self.where}: {setting('out')} must have no links that lead out of it; {path!r} does. "
                    "Give another folder."
                )
        beside.parent.mkdir(parents=True, exist_ok=True)
        try:
            yield beside
            target = self.folder / name
            target.parent.mkdir(parents=True, exist_ok=True)
            beside.replace(target)
        finally:
            beside.unlink(missing_ok=True)


def _is_whole(facts: Any) -> bool:
    """Whether it is of the kinds that are written down; what else is wrong with it, its readers find."""
    if facts["format"] != FORMAT or not all(type(facts[name]) is kind for name, kind in _KINDS.items()):
        return False
    known, measured = facts["known"], facts["measured"]
    return (
        all(type(part) is str and "\0" not in part for part in facts["parts"])
        and all(type(known[name]) is kind for name, kind in _KNOWN.items() if known)
        and (not measured or (type(measured["inputs"]) is dict and {"population", "invalid"} <= {*measured}))
    )


def _lock(file: IO[bytes], where: str) -> bool:
    """Whether the file could be locked; it stays so until it is closed, or the process ends."""
    try:
        import fcntl
    except ImportError:  # Windows
        import msvcrt

        try:
            msvcrt.locking(file.fileno(), msvcrt.LK_NBLCK, 1)  # type: ignore[attr-defined]
        except OSError:
            return False
        return True
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError as error:  # some file systems that are shared
        raise InvalidInputError(
            f"{where}: {setting('out')} must be on a file system that can lock files; {error.strerror}. Give "
            "another one."
        ) from error
    return True
