"""`verify_dataset`: check that a folder of results is complete and that no file changed."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from whycluster.core.errors import InvalidInputError
from whycluster.data.display import count
from whycluster.data.files import as_path
from whycluster.engines.files.manifest import FileRecord
from whycluster.engines.files.parts import is_hidden
from whycluster.engines.files.run_state import RunState


@dataclass(frozen=True)
class DatasetVerification:
    """What `verify_dataset` found.

    Attributes
    ----------
    folder : the folder of the results
    n_files, n_rows : the number of files that the run lists, and the total number of rows in these files
    is_complete : whether the run has finished all parts
    missing : listed files that do not exist
    changed : listed files whose contents differ from what was written
    extra : other files that a reader of the folder would take for results
    """

    folder: Path
    n_files: int
    n_rows: int
    is_complete: bool
    missing: list[str]
    changed: list[str]
    extra: list[str]

    @property
    def ok(self) -> bool:
        """Whether the folder is complete, and nothing is missing, changed or extra."""
        return self.is_complete and not (self.missing or self.changed or self.extra)

    def __str__(self) -> str:
        folder, what = str(self.folder), f"{count(self.n_rows, 'row')} in {count(self.n_files, 'file')}"
        if self.ok:
            return f"{folder!r} is complete and unchanged: {what}."
        lines = [f"{folder!r} must hold all results of a run, unchanged; it lists {what}."]
        if not self.is_complete:
            lines.append("not complete: the run has not finished. Run it again to resume.")
        found = {"missing": self.missing, "changed": self.changed, "extra": self.extra}
        return "\n".join([*lines, *(f"{problem}: {name!r}" for problem in found for name in found[problem])])


def verify_dataset(path: str | os.PathLike[str]) -> DatasetVerification:
    """Check that a folder written by `explain_dataset` is complete and that no file has changed.

    All files are read and compared with the checksums in ``_whycluster.json``.

    Parameters
    ----------
    path : the folder

    Returns
    -------
    DatasetVerification
    """
    return verify_folder(as_path(path, "verify_dataset", what="a folder").expanduser(), "verify_dataset")


def verify_folder(folder: Path, where: str) -> DatasetVerification:
    """Check a folder; ``where`` is the name of the public function, for messages."""
    state = RunState(folder, where)
    facts = state.read()
    if not facts:
        raise InvalidInputError(
            f"{where}: path must be a folder with results of explain_dataset; {str(folder)!r} holds no "
            "'_whycluster.json'."
        )
    records = {name: FileRecord(**record) for name, record in facts["results"].items()}
    there = {name for name in records if state.contains(name) and _is_file(folder / name)}
    changed = []
    for name in sorted(there):
        with _naming(folder / name, where):
            if not records[name].matches(folder / name):
                changed.append(name)
    with _naming(folder, where):
        extra = sorted(set(_visible_files(folder)) - {*records})
    n_rows = sum(record.rows or 0 for record in records.values())
    missing = sorted({*records} - there)
    return DatasetVerification(folder, len(records), n_rows, facts["complete"], missing, changed, extra)


def _is_file(path: Path) -> bool:
    """Return whether a path is a file; an edited description may list names that no file can have."""
    try:
        return path.is_file()
    except OSError as error:
        if error.errno != errno.ENAMETOOLONG:
            raise
        return False


@contextmanager
def _naming(path: Path, where: str) -> Iterator[None]:
    """Turn a read error into an error that names the file or folder, instead of reporting it as changed."""
    try:
        yield
    except OSError as error:
        raise InvalidInputError(
            f"{where}: all results must be readable; reading {error.filename or str(path)!r} failed "
            f"({error.strerror})."
        ) from error


def _raise(error: OSError) -> None:
    raise error


def _visible_files(folder: Path) -> Iterator[str]:
    """Yield all files that are not hidden; tools would read these files as results."""
    for place, folders, files in os.walk(folder, onerror=_raise):
        folders[:] = [name for name in folders if not is_hidden(Path(name))]
        for name in files:
            if not is_hidden(Path(name)):
                yield (Path(place) / name).relative_to(folder).as_posix()
