"""The folder of results: which run it belongs to, which results are complete, and which process uses it.

A result is written to ``_whycluster.tmp`` and gets its final name only once it is complete and synced to
disk. The file ``_whycluster.json`` describes the run, so that results of different models or options are
never mixed. The file also lists the finished results with their checksums. At the end of the run, it records
whether all results are complete. Tools that read folders of Parquet files ignore names that begin with an
underscore.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Any

from whycluster.core.errors import InvalidInputError
from whycluster.data.files import move_files, parse_json, sync_folders
from whycluster.data.settings import setting
from whycluster.engines.files.manifest import FileRecord, are_records

FORMAT = 2
"""The version of the description; increased when older versions of whycluster would misread it."""

_PAUSE = 1.0  # seconds between two descriptions of the progress
_PAUSES = 20.0  # the pause is at least this many times as long as writing, which takes longer for more parts
_OURS = "_whycluster"
_DESCRIPTION, _LOCK, _TEMPORARY = f"{_OURS}.json", f"{_OURS}.lock", f"{_OURS}.tmp"
_KINDS = {
    "request": dict,
    "settings": dict,
    "parts": list,
    "figures": dict,
    "measured": dict,
    "results": dict,
    "complete": bool,
}
_FIGURES = {"inputs": dict, "without": list}


class RunState:
    """A folder of results, used by one run at a time.

    Parameters
    ----------
    folder : the folder; created if it does not exist
    where : the name of the public function, for messages
    durable : whether to sync files to disk before they get their final names
    """

    def __init__(self, folder: Path, where: str, durable: bool = True) -> None:
        self.folder, self.where, self.durable = folder, where, durable
        self._facts: dict[str, Any] = {}  # the description of the run, as JSON values; see `begin`
        self._text = ""  # the description on disk
        self._lock, self._committing = threading.Lock(), threading.Lock()
        self._saved_at, self._saving_took = time.monotonic(), 0.0
        self._added: dict[str, FileRecord] = {}  # complete results that do not have their final names yet
        self._run_id: str | None = None
        self._unsynced: set[Path] = set()  # folders with new names that may not be on disk yet

    @contextmanager
    def opened(self) -> Iterator[RunState]:
        """Lock the folder against other runs, and remove temporary files that a killed run left there.

        The operating system releases the lock when the process ends.
        """
        with self._make() as file:
            if not _lock(file, self.where):
                raise InvalidInputError(
                    f"{self.where}: {str(self.folder)!r} must not be in use; another run is writing to it. "
                    "Wait for that run to finish, or choose another folder."
                )
            self._clear()
            try:
                yield self
            finally:
                self._clear()

    def _make(self) -> IO[bytes]:
        """Create the folder if necessary, and open its lock file."""
        try:
            self._make_folder()
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
                f"{self.where}: {setting('out')} must be a new or empty folder, or the folder of an earlier "
                f"run; {str(self.folder)!r} holds other files, such as {min(others)!r}. Choose another "
                "folder."
            )
        return file

    def _make_folder(self) -> None:
        new = [each for each in (self.folder, *self.folder.parents) if not each.exists()]
        self.folder.mkdir(parents=True, exist_ok=True)
        self._unsynced = {self.folder.parent, *(each.parent for each in new)}

    @property
    def is_begun(self) -> bool:
        """Whether the folder holds a run."""
        return (self.folder / _DESCRIPTION).exists()

    def _clear(self) -> None:
        shutil.rmtree(self.folder / _TEMPORARY, ignore_errors=True)

    def begin(self, request: dict[str, Any], settings: dict[str, Any], overwrite: bool) -> None:
        """Resume the run in the folder, or begin a new one.

        Raise an error if the folder holds a run with a different request, unless ``overwrite`` is true.
        ``settings`` apply to a new run; a resumed run keeps its own settings.
        """
        found = self.read()
        before = found.get("request", {})
        differing = sorted(name for name in {*before, *request} if before.get(name) != request.get(name))
        if found and differing and not overwrite:
            raise InvalidInputError(
                f"{self.where}: {setting('out')} must be a new folder, or the folder of a run with the same "
                f"options; {str(self.folder)!r} holds the results of a run that differs "
                f"in {' and '.join(differing)}. Choose another folder, or pass "
                f"{setting('overwrite=True')} to replace its contents."
            )
        if found and (overwrite or differing):
            self._remove(found)
            found = {}
        new = {"request": request, "settings": settings, "parts": [], "figures": {}, "measured": {}}
        self._facts = found or {"format": FORMAT, **new, "results": {}, "complete": False}
        self.save()

    def read(self) -> dict[str, Any]:
        """Return the description in the folder, or an empty dict if there is no description."""
        path = self.folder / _DESCRIPTION
        try:
            self._text = path.read_text("utf-8")
            facts = parse_json(self._text)
            intact = _is_intact(facts)
        except (FileNotFoundError, NotADirectoryError):
            return {}
        except OSError as error:
            raise InvalidInputError(
                f"{self.where}: {str(path)!r} must be readable; reading it failed ({error.strerror})."
            ) from error
        except (ValueError, TypeError, KeyError):
            intact = False
        if not intact:
            raise InvalidInputError(
                f"{self.where}: {str(path)!r} must be a description written by this version of whycluster; "
                "it is damaged, or from another version. Choose another folder, or remove this one."
            )
        return dict(facts)

    def _remove(self, found: dict[str, Any]) -> None:
        """Remove the results of another run, and nothing else, after removing them from its description."""
        self._facts = {**found, "results": {}, "complete": False}
        self.save()
        folders = set()
        for name in found["parts"]:
            path = self.folder / name
            if os.path.lexists(path) and self.contains(name) and not path.is_dir():
                path.unlink()
                folders.add(path.parent)
        if self.durable:
            sync_folders(folders)

    def contains(self, name: str) -> bool:
        """Return whether a name leads to a place inside the folder."""
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
        """The quantities that depend on all rows; empty until they have been measured."""
        return dict(self._facts["figures"])

    @property
    def measured(self) -> dict[str, Any]:
        """The parts that a stopped run has measured, and their sum; empty if there are no such parts."""
        return dict(self._facts["measured"])

    def forget_progress(self) -> None:
        """Forget the sum over the parts measured so far; the next `save` removes it from the description."""
        self._facts["measured"] = {}

    def record(self, **figures: Any) -> None:
        """Add measured quantities to the description; the next `save` writes them."""
        self._facts["figures"].update(figures)
        self._run_id = None

    def save(self) -> None:
        """Write the description to the folder if it has changed."""
        text = json.dumps(self._facts, indent=1)
        if text != self._text:
            with self.writing(_DESCRIPTION) as path:
                path.write_text(text, "utf-8")
            self._text = text

    def save_progress(self, measured: Callable[[], dict[str, Any]]) -> None:
        """Write the sum over the parts measured so far, unless it was written in the last few seconds."""
        with self._lock:
            if self._is_due:
                self._facts["measured"] = measured()
                self._save_progress()

    @property
    def _is_due(self) -> bool:
        return time.monotonic() > self._saved_at + _PAUSE * max(1.0, _PAUSES * self._saving_took)

    def _save_progress(self) -> None:
        begun = time.monotonic()
        self.save()
        self._saved_at = time.monotonic()
        self._saving_took = self._saved_at - begun

    def expect(self, parts: list[str], n_to_do: int) -> None:
        """Record the names of all results; mark the folder as incomplete if any of them must be written."""
        self._facts["parts"] = sorted({*self._facts["parts"], *parts})
        self._facts["complete"] = self._facts["complete"] and not n_to_do
        self.save()

    @property
    def run_id(self) -> str:
        """A hash of the request and the measured quantities, which identifies the results of this run."""
        with self._lock:
            if self._run_id is None:  # computed once: "figures" can be large, because it lists all parts
                text = json.dumps([self._facts["request"], self._facts["figures"]], sort_keys=True)
                self._run_id = hashlib.sha256(text.encode()).hexdigest()[:32]
            return self._run_id

    def is_listed(self, name: str) -> bool:
        """Return whether a result was finished."""
        return name in self._facts["results"]

    def is_unchanged(self, name: str) -> bool:
        """Return whether a result was finished and still has the same contents, after reading the file."""
        if not self.is_listed(name):
            return False
        try:
            return FileRecord(**self._facts["results"][name]).matches(self.folder / name)
        except OSError:  # the part is explained again
            return False

    @contextmanager
    def writing(self, name: str) -> Iterator[Path]:
        """Yield a temporary path to write to; the file gets its final name if no error occurs."""
        with self.temporary(name) as path:
            yield path
            self._place([name])

    @contextmanager
    def temporary(self, name: str) -> Iterator[Path]:
        """Yield a temporary path to write to, for `add`; the file is removed if an error occurs."""
        temporary = self.folder / _TEMPORARY / name
        for path in (name, f"{_TEMPORARY}/{name}"):
            if not self.contains(path):
                raise InvalidInputError(
                    f"{self.where}: {setting('out')} must not contain links that lead outside it; {path!r} "
                    "leads outside. Choose another folder."
                )
        temporary.parent.mkdir(parents=True, exist_ok=True)
        try:
            yield temporary
        except BaseException:
            with suppress(OSError):  # the first error says more
                temporary.unlink()
            raise

    def add(self, name: str, rows: int | None = None) -> None:
        """Take over a complete result that was written to its `temporary` path.

        Results get their final names together, about once per second. Otherwise, a run with many small files
        would spend most of its time waiting for the disk.
        """
        record = FileRecord.of(self.folder / _TEMPORARY / name, rows)
        with self._lock:
            self._added[name] = record
            is_due = self._is_due
        if is_due and self._committing.acquire(blocking=False):
            try:
                self._commit()
            finally:
                self._committing.release()

    @contextmanager
    def committing(self) -> Iterator[None]:
        """At the end, give final names to all results that were added, even if an error occurred.

        If no error occurred, `finish` writes the description that lists them.
        """
        try:
            yield
        except BaseException:
            with suppress(OSError), self._committing:  # the first error says more
                self._commit()
            raise
        with self._committing:
            self._place_added()

    def finish(self, complete: bool) -> None:
        """Record whether the folder is complete, once all results have their final names."""
        self._facts["complete"] = complete
        self.save()

    def _commit(self) -> None:
        """Give the added results their final names, and write the description that lists them."""
        if self._place_added():
            self._save_progress()

    def _place_added(self) -> bool:
        """Sync the added results, give them their final names and list them; return whether there are any."""
        with self._lock:
            added, self._added = self._added, {}
        if not added:
            return False
        records = {name: record._asdict() for name, record in added.items()}
        listed = self._facts["results"]
        stale = [name for name, record in records.items() if listed.get(name, record) != record]
        if stale:  # the description never lists a file with the contents of another
            self._facts["results"] = {name: each for name, each in listed.items() if name not in stale}
            self._facts["complete"] = False
            self.save()
        self._place(list(added))
        self._facts["results"] = dict(sorted({**self._facts["results"], **records}.items()))
        return True

    def _place(self, names: list[str]) -> None:
        """Move files from their temporary paths to their final names."""
        moves = [(self.folder / _TEMPORARY / name, self.folder / name) for name in names]
        move_files(moves, self.folder, self.durable, self._unsynced)
        self._unsynced = set()


def _is_intact(facts: Any) -> bool:
    """Return whether the contents of a description have the right types; their values are checked later."""
    if facts["format"] != FORMAT or not all(type(facts[name]) is kind for name, kind in _KINDS.items()):
        return False
    figures, measured = facts["figures"], facts["measured"]
    return (
        all(type(part) is str and "\0" not in part for part in facts["parts"])
        and all(type(figures[name]) is kind for name, kind in _FIGURES.items() if figures)
        and all(type(part) is str for part in figures.get("without", ()))
        and are_records(facts["results"])
        and (not measured or (type(measured["inputs"]) is dict and {"population", "invalid"} <= {*measured}))
    )


def _lock(file: IO[bytes], where: str) -> bool:
    """Lock a file until it is closed or the process ends; return whether it could be locked."""
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
