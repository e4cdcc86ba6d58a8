"""A disk that loses what was not synced: what a power cut leaves of a folder, given the log of the shim.

POSIX promises little, and this disk keeps no more than the promise. The contents of a file are on disk once
the file is synced; a name is on disk once its folder is synced. Of everything later, a random share is there:
the names in a folder up to a random moment, and each write whole, zeroed or cut off.
"""

from __future__ import annotations

import os
import random
import shutil
from dataclasses import dataclass, field
from pathlib import Path


@dataclass
class File:
    """A file, whose contents are in the graveyard under the number of its inode."""

    inode: int
    size: int
    synced_size: int
    unsynced: list[tuple[int, int]] = field(default_factory=list)  # offset and length of the writes

    def write(self, offset: int, length: int) -> None:
        self.unsynced.append((offset, length))
        self.size = max(self.size, offset + length)

    def truncate(self) -> None:
        self.size = self.synced_size = 0

    def sync(self) -> None:
        self.unsynced.clear()
        self.synced_size = self.size

    def after_cut(self, grave: Path, chance: random.Random) -> bytes:
        """Return the contents after a power cut."""
        content = bytearray((grave / str(self.inode)).read_bytes())
        assert len(content) == self.size  # the log has all writes
        if not self.unsynced or chance.random() < 0.25:
            return bytes(content)
        for offset, length in self.unsynced:
            if chance.random() < 0.5:
                content[offset : offset + length] = bytes(length)
        return bytes(content[: self.synced_size]) if chance.random() < 0.4 else bytes(content)


@dataclass
class Folder:
    """A folder, and the changes of its names in order."""

    names: dict[str, File | Folder] = field(default_factory=dict)
    changes: list[tuple[str, File | Folder | None]] = field(default_factory=list)
    n_synced: int = 0

    @property
    def now(self) -> dict[str, File | Folder]:
        return self.after(len(self.changes))

    def after(self, n: int) -> dict[str, File | Folder]:
        """Return the names after the first changes."""
        found = dict(self.names)
        for name, node in self.changes[:n]:
            if node is None:
                found.pop(name, None)
            else:
                found[name] = node
        return found

    def sync(self) -> None:
        self.n_synced = len(self.changes)


class Disk:
    """The contents of a folder; `graveyard` keeps every file that was ever there."""

    def __init__(self, root: Path, graveyard: Path) -> None:
        self.root, self.graveyard = root, graveyard
        self.files: dict[int, File] = {}
        shutil.rmtree(graveyard, ignore_errors=True)
        graveyard.mkdir()
        self.top = self._read(root)

    def _read(self, place: Path) -> Folder:
        found = Folder()
        for path in place.iterdir():
            if path.is_dir():
                found.names[path.name] = self._read(path)
            else:
                status = path.stat()
                os.link(path, self.graveyard / str(status.st_ino))
                file = File(status.st_ino, status.st_size, status.st_size)
                found.names[path.name] = self.files[status.st_ino] = file
        return found

    def _folder(self, path: Path) -> Folder:
        found = self.top
        for name in path.relative_to(self.root).parts:
            child = found.now[name]
            assert isinstance(child, Folder)
            found = child
        return found

    def _set(self, path: str, node: File | Folder | None) -> None:
        self._folder(Path(path).parent).changes.append((Path(path).name, node))

    def _get(self, path: str) -> File | Folder:
        return self._folder(Path(path).parent).now[Path(path).name]

    def replay(self, log: Path) -> None:
        """Apply the calls in a log."""
        for line in log.read_text().splitlines():
            call, *values = line.split("\t")
            self._apply(call, values)

    def _apply(self, call: str, values: list[str]) -> None:
        if call == "create":
            file = self.files[int(values[0])] = File(int(values[0]), 0, 0)
            self._set(values[1], file)
        elif call == "open":
            self._find_renamed(self.files[int(values[0])], Path(values[1]))
        elif call == "make":
            self._set(values[0], Folder())
        elif call == "remove":
            self._set(values[0], None)
        elif call in ("rename", "link"):  # two changes, one in each folder
            self._set(values[1], self._get(values[0]))
            if call == "rename":
                self._set(values[0], None)
        elif call == "sync folder":
            self._folder(Path(values[0])).sync()
        else:
            file, numbers = self.files[int(values[0])], [int(value) for value in values[1:]]
            getattr(file, call)(*numbers)  # write, truncate or sync

    def _find_renamed(self, file: File, path: Path) -> None:
        """Add a rename that is not in the log: safetensors calls the kernel without the C library."""
        folder = self._folder(path.parent)
        if folder.now[path.name] is not file:
            before = next(name for name, node in folder.now.items() if node is file)
            folder.changes += [(path.name, file), (before, None)]

    def cut_power(self, chance: random.Random) -> None:
        """Leave on disk what a power cut would leave."""
        shutil.rmtree(self.root)
        self._write(self.root, self.top, chance)

    def _write(self, place: Path, folder: Folder, chance: random.Random) -> None:
        place.mkdir()
        for name, node in folder.after(chance.randint(folder.n_synced, len(folder.changes))).items():
            if isinstance(node, Folder):
                self._write(place / name, node, chance)
            else:
                (place / name).write_bytes(node.after_cut(self.graveyard, chance))
