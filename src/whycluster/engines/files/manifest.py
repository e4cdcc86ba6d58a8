"""The records of finished results: number of rows, size and checksum.

The records show whether a file still has the contents that were written, even years later or after a power
cut.
"""

from __future__ import annotations

import zlib
from pathlib import Path
from typing import Any, NamedTuple

_CHUNK = 1 << 20  # bytes read at a time


class FileRecord(NamedTuple):
    """The record of a finished file.

    Attributes
    ----------
    rows : the number of rows; None if the file is a summary
    size : the number of bytes
    crc32 : the CRC-32 checksum of all bytes, in hexadecimal
    """

    rows: int | None
    size: int
    crc32: str

    @classmethod
    def of(cls, path: Path, rows: int | None) -> FileRecord:
        """Return the record of a file that was just written."""
        return cls(rows, path.stat().st_size, _checksum(path))

    def matches(self, path: Path) -> bool:
        """Read the whole file, and return whether it still has the recorded contents."""
        return path.stat().st_size == self.size and _checksum(path) == self.crc32


def are_records(found: Any) -> bool:
    """Return whether a JSON value maps names to records."""
    return type(found) is dict and all(_is_record(each) and "\0" not in name for name, each in found.items())


def _is_record(found: Any) -> bool:
    if type(found) is not dict or {*found} != {*FileRecord._fields}:
        return False
    rows, size, crc32 = (found[name] for name in FileRecord._fields)
    return type(rows) in (int, type(None)) and type(size) is int and type(crc32) is str


def _checksum(path: Path) -> str:
    total = 0
    with path.open("rb") as file:
        while chunk := file.read(_CHUNK):
            total = zlib.crc32(chunk, total)
    return f"{total:08x}"
