"""The folder of results: which run it belongs to, which results are complete, and which process uses it.

A result is written to ``_whycluster.tmp`` and gets its final name only once it is complete. The file
``_whycluster.json`` describes the run, so that results of different models or options are never mixed. Tools
that read folders of Parquet files ignore names that begin with an underscore.
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
"""The version of the description; increased when older versions would misread new ones."""

_PAUSE = 5.0  # seconds between two descriptions of the progress
_OURS = "_whycluster"
_DESCRIPTION, _LOCK, _TEMPORARY = f"{_OURS}.json", f"{_OURS}.lock", f"{_OURS}.tmp"
_KINDS = {"request": dict, "settings": dict, "parts": list, "figures": dict, "measured": dict}
_FIGURES = {"inputs": dict, "without": list}


class RunState:
    """A folder of results, used by one run at a time.

    Parameters
    ----------
    folder : the folder; created if it does not exist
    where : the name of the public function, for messages
    """

    def __init__(self, folder: Path, where: str) -> None:
        self.folder, self.where = folder, where
        self._facts: dict[str, Any] = {}  # the description of the run, as JSON values; see `begin`
        self._lock, self._saved_at = threading.Lock(), 0.0
        self._run_id: str | None = None

    @contextmanager
    def opened(self) -> Iterator[RunState]:
        """Lock the folder against other runs, and remove temporary files that a killed run left there.

        The operating system releases the lock when the process ends.
        """
        with self._make() as file:
            if not _lock(file, self.where):
                raise InvalidInputError(
                    f"{self.where}: {str(self.folder)!r} must not be in use; another run is writing to it. "
                    "Wait for it to finish, or choose another folder."
                )
            self._clear()
            try:
                yield self
            finally:
                self._clear()

    def _make(self) -> IO[bytes]:
        """Create the folder if necessary, and open its lock file."""
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            others = [name for name in os.listdir(self.folder) if not name.startswith(_OURS)]
            ours = not others or self.is_begun
            file = open(self.folder / _LOCK, "a+b") if ours else None  # noqa: SIM115  # the caller closes it
        except OSError as error:
            raise InvalidInputError(
                f"{self.where}: {setting('out')} must be a writable folder; {error.strerror}: "
                f"{str(self.folder)!r}."
            ) from error
        if file is None:
            raise InvalidInputError(
                f"{self.where}: {setting('out')} must be a new folder, an empty one, or that of an earlier "
                f"run; {str(self.folder)!r} holds other files, such as {min(others)!r}. Choose another "
                "folder."
            )
        return file

    @property
    def is_begun(self) -> bool:
        """Whether the folder holds a run."""
        return (self.folder / _DESCRIPTION).exists()

    def _clear(self) -> None:
        shutil.rmtree(self.folder / _TEMPORARY, ignore_errors=True)

    def begin(self, request: dict[str, Any], settings: dict[str, Any], overwrite: bool) -> None:
        """Resume the run in the folder, or begin a new one.

        Raises if the folder holds a run with another request, unless ``overwrite`` is true. ``settings`` are
        those of a new run; a run that is resumed keeps its own.
        """
        found = self._read()
        before = found.get("request", {})
        differing = sorted(name for name in {*before, *request} if before.get(name) != request.get(name))
        if found and differing and not overwrite:
            raise InvalidInputError(
                f"{self.where}: {setting('out')} must be a new folder, or that of a run with the same "
                f"options; {str(self.folder)!r} holds results with another "
                f"{' and another '.join(differing)}. Choose another folder, or pass "
                f"{setting('overwrite=True')} to replace its contents."
            )
        if found and (overwrite or differing):
            self._remove(found["parts"])
            found = {}
        new = {"request": request, "settings": settings, "parts": [], "figures": {}, "measured": {}}
        self._facts = found or {"format": FORMAT, **new}
        self.save()

    def _read(self) -> dict[str, Any]:
        path = self.folder / _DESCRIPTION
        if not path.exists():
            return {}
        try:
            facts = parse_json(path.read_text("utf-8"))
            intact = _is_intact(facts)
        except (OSError, ValueError, TypeError, KeyError):
            intact = False
        if not intact:
            raise InvalidInputError(
                f"{self.where}: {str(path)!r} must be a description that this version of whycluster wrote; "
                "it is damaged, or from another version. Choose another folder, or remove this one."
            )
        return dict(facts)

    def _remove(self, parts: list[str]) -> None:
        """Remove the results of another run, and nothing else."""
        for name in parts:
            path = self.folder / name
            if os.path.lexists(path) and self._is_inside(name) and not path.is_dir():
                path.unlink()

    def _is_inside(self, name: str) -> bool:
        return self.folder.resolve() in (self.folder / name).resolve().parents

    @property
    def settings(self) -> dict[str, Any]:
        """The settings that the run began with."""
        return dict(self._facts["settings"])

    @property
    def parts(self) -> list[str]:
        """The names of the results that the run writes."""
        return list(self._facts["parts"])

    @property
    def figures(self) -> dict[str, Any]:
        """The figures that depend on all rows; empty until they are measured."""
        return dict(self._facts["figures"])

    @property
    def measured(self) -> dict[str, Any]:
        """The parts that a stopped run has measured, and their figures; empty if there are none."""
        return dict(self._facts["measured"])

    def forget_progress(self) -> None:
        """Forget the parts measured so far, once all are; the next `save` writes it."""
        self._facts["measured"] = {}

    def save(self, **figures: Any) -> None:
        """Add figures to the description, and write it to the folder."""
        self._facts["figures"].update(figures)
        self._run_id = None if figures else self._run_id
        with self.writing(_DESCRIPTION) as path:
            path.write_text(json.dumps(self._facts, indent=1), "utf-8")

    def save_progress(self, measured: Callable[[], dict[str, Any]]) -> None:
        """Write the figures of the parts measured so far, unless they were written seconds ago."""
        with self._lock:
            if time.monotonic() > self._saved_at + _PAUSE:
                self._facts["measured"] = measured()
                self.save()
                self._saved_at = time.monotonic()

    def expect(self, parts: list[str]) -> None:
        """Record the names of the results that the run will write."""
        self._facts["parts"] = sorted({*self._facts["parts"], *parts})
        self.save()

    @property
    def run_id(self) -> str:
        """A hash of the request and the figures, which identifies the results of this run."""
        with self._lock:
            if self._run_id is None:  # computed once: "figures" can be large, because it lists all parts
                text = json.dumps([self._facts["request"], self._facts["figures"]], sort_keys=True)
                self._run_id = hashlib.sha256(text.encode()).hexdigest()[:32]
            return self._run_id

    @contextmanager
    def writing(self, name: str) -> Iterator[Path]:
        """Give a temporary path to write to; the file gets its final name if no error occurs."""
        temporary = self.folder / _TEMPORARY / name
        for path in (name, f"{_TEMPORARY}/{name}"):
            if not self._is_inside(path):
                raise InvalidInputError(
                    f"{self.where}: {setting('out')} must not have links that lead out of it; {path!r} does. "
                    "Choose another folder."
                )
        temporary.parent.mkdir(parents=True, exist_ok=True)
        try:
            yield temporary
            target = self.folder / name
            target.parent.mkdir(parents=True, exist_ok=True)
            temporary.replace(target)
        finally:
            temporary.unlink(missing_ok=True)


def _is_intact(facts: Any) -> bool:
    """Return whether a description has the right types; its readers check the values."""
    if facts["format"] != FORMAT or not all(type(facts[name]) is kind for name, kind in _KINDS.items()):
        return False
    figures, measured = facts["figures"], facts["measured"]
    return (
        all(type(part) is str and "\0" not in part for part in facts["parts"])
        and all(type(figures[name]) is kind for name, kind in _FIGURES.items() if figures)
        and (not measured or (type(measured["inputs"]) is dict and {"population", "invalid"} <= {*measured}))
    )


def _lock(file: IO[bytes], where: str) -> bool:
    """Lock a file until it is closed or the process ends; return whether that succeeded."""
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
    except OSError as error:  # some network file systems
        raise InvalidInputError(
            f"{where}: {setting('out')} must be on a file system that can lock files; {error.strerror}. "
            "Choose another folder."
        ) from error
    return True
