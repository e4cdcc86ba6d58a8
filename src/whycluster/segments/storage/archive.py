"""Files of named arrays and facts, in the safetensors format with JSON in the metadata.

Such a file contains no code, and nothing in it is run or imported. Names, dtypes, shapes, matching lengths
and a checksum are verified before the contents are used.
"""

from __future__ import annotations

import datetime as dt
import hashlib
import json
import math
import os
import zlib
from collections.abc import Callable, Hashable, Sequence
from pathlib import Path
from typing import Any, BinaryIO, TypeVar

import numpy as np
from numpy.typing import NDArray

from whycluster.core.errors import (
    InvalidInputError,
    MissingDependencyError,
    UnsupportedModelError,
    WhyClusterError,
)
from whycluster.data.files import DEEPEST, DepthError, depth, parse_json

FORMAT = 1
"""The version of the format, increased whenever older versions of whycluster would misread new files."""

_KEY = "whycluster"  # the key of the facts in the metadata
_CHECKSUM = "crc32"  # the name of the array with the checksum
_DTYPES = {
    "BOOL": "bool",
    "F16": "float16",
    "F32": "float32",
    "F64": "float64",
    "I8": "int8",
    "I16": "int16",
    "I32": "int32",
    "I64": "int64",
    "U8": "uint8",
    "U16": "uint16",
    "U32": "uint32",
    "U64": "uint64",
}
NUMBERS = tuple(_DTYPES.values())
_LAST_CHARACTER = 0x10FFFF
_LONGEST_HEADER = 100_000_000  # in bytes; the limit of safetensors
_NOT_OURS = "The file was not written by wc.save, or it was changed afterward."

Made = TypeVar("Made")


class ArchiveWriter:
    """The contents of a file to be written, consisting of arrays and of facts as JSON values.

    Parameters
    ----------
    kind : the kind of object, "network" or "explanation"
    """

    def __init__(self, kind: str) -> None:
        self.facts: dict[str, Any] = {"format": FORMAT, "kind": kind, "values": {}}
        self.arrays: dict[str, NDArray[Any]] = {}

    def put(self, name: str, array: Any, dtype: str | None = None) -> None:
        """Add a numeric array."""
        self.arrays[name] = np.ascontiguousarray(array, dtype=dtype).reshape(np.shape(array))

    def put_values(self, name: str, values: NDArray[Any]) -> None:
        """Add an array of numbers, text, or objects that `encode` supports."""
        kind, kinds = values.dtype.kind, self.facts["values"]
        if kind in "biuf":
            wide = values.dtype.itemsize > 8  # more digits than any computation here uses
            kinds[name] = "numbers"
            self.put(name, values, "float64" if wide else values.dtype.newbyteorder("=").name)
        elif kind == "U":  # stored as the code points of its characters
            native = values.astype(f"=U{max(1, values.dtype.itemsize // 4)}", order="C")
            kinds[name] = "text"
            self.put(name, native.reshape(*values.shape, 1).view(np.uint32))
        elif kind == "O":
            text = _to_json([encode(value, name) for value in values.ravel().tolist()])
            kinds[name] = "objects"
            self.put(name, np.frombuffer(text.encode("ascii"), dtype=np.uint8))
        else:
            raise UnsupportedModelError(
                f"save: {name} must be numbers, booleans, text or dates; got {values.dtype}. "
                "Convert them to text first."
            )

    def digest(self) -> str:
        """Return a hash of the contents."""
        total = hashlib.sha256(_to_json(self.facts).encode())
        for name in sorted(self.arrays):
            array = self.arrays[name]
            total.update(f"{name} {array.dtype} {array.shape} ".encode())
            total.update(array.reshape(-1).view(np.uint8).data)
        return total.hexdigest()[:32]

    def write(self, path: Path) -> None:
        """Write the contents to a new file."""
        library = _library("save")
        text = _to_json(self.facts)
        arrays = {**self.arrays, _CHECKSUM: _checksum(text, self.arrays)}
        path.touch(exist_ok=False)  # safetensors would make the file readable only by its owner
        mode = path.stat().st_mode
        try:
            library.numpy.save_file(arrays, path, metadata={_KEY: text})
        except library.SafetensorError as error:
            raise OSError(f"save: the file could not be written ({error}).") from error
        path.chmod(mode)


class ArchiveReader:
    """The contents of a file that was read.

    Each item is taken out once and checked. No items may be left over.

    Attributes
    ----------
    path : the file
    lengths : the lengths of the axes read so far, by letter
    """

    def __init__(self, path: Path, facts: dict[str, Any], arrays: dict[str, NDArray[Any]]) -> None:
        self.path, self.lengths = path, dict[str, int]()
        self._facts, self._arrays = facts, arrays
        self._kinds: dict[str, Any] = {}
        self._kinds = self.fact("values", dict)

    def error(self, text: str) -> InvalidInputError:
        """Return an error that describes the problem with the file."""
        return InvalidInputError(f"load: {str(self.path)!r}: {text}. {_NOT_OURS}")

    def fact(self, name: str, *kinds: type) -> Any:
        """Take out a fact, which must have one of these types."""
        if name not in self._facts:
            raise self.error(f"the metadata must contain {name!r}")
        value = self._facts.pop(name)
        if type(value) not in kinds:
            expected = " or ".join(kind.__name__ for kind in kinds)
            raise self.error(f"{name!r} must be of type {expected}; got {type(value).__name__}")
        return value

    def has_fact(self, name: str) -> bool:
        """Return whether there is a fact with this name."""
        return name in self._facts

    def choice(self, name: str, known: Sequence[str]) -> str:
        """Take out a fact, which must be one of these strings."""
        word: str = self.fact(name, str)
        if word not in known:
            raise self.error(f"{name!r} must be one of {', '.join(known)}; got {word[:80]!r}")
        return word

    def has(self, name: str) -> bool:
        """Return whether there is an array with this name."""
        return name in self._arrays

    def array(self, name: str, dtypes: Sequence[str], axes: str) -> NDArray[Any]:
        """Take out an array, which must have one of these dtypes.

        ``axes`` contains a letter for each axis. Axes with the same letter must have the same nonzero length;
        "?" allows any length.
        """
        if name not in self._arrays:
            raise self.error(f"there must be an array {name!r}")
        array = self._arrays.pop(name)
        if array.dtype.name not in dtypes:
            raise self.error(f"{name!r} must have dtype {' or '.join(dtypes)}; got {array.dtype.name}")
        self._check_shape(name, array.shape, axes)
        return array

    def _check_shape(self, name: str, shape: tuple[int, ...], axes: str) -> None:
        """Raise an error unless the shape has these axes and matches the lengths of axes read so far."""
        lengths = dict(self.lengths)
        fits = len(shape) == len(axes)
        for letter, length in zip(axes, shape, strict=False):
            if letter != "?":
                fits = fits and length > 0 and lengths.setdefault(letter, length) == length
        if not fits:
            expected = ", ".join(str(self.lengths.get(letter, letter)) for letter in axes)
            raise self.error(f"{name!r} must have shape ({expected}{',' * (len(axes) == 1)}); got {shape}")
        self.lengths = lengths

    def values(self, name: str, axes: str) -> NDArray[Any]:
        """Take out the values that `ArchiveWriter.put_values` added."""
        kind = self._kinds.pop(name, None)
        if kind == "numbers":
            return self.array(name, NUMBERS, axes)
        if kind == "text":
            return self._characters(name, axes)
        if kind != "objects":
            raise self.error(f"{name!r} must be numbers, text or objects; got {str(kind)[:80]!r}")
        text = self.array(name, ["uint8"], "?").tobytes().decode("ascii", "replace")
        found = self.objects(name, from_json(text, self))
        shape = [self.lengths[letter] for letter in axes] if len(axes) > 1 else [len(found)]
        if math.prod(shape) != len(found):
            raise self.error(f"{name!r} must contain {math.prod(shape)} objects; got {len(found)}")
        self._check_shape(name, tuple(shape), axes)
        objects = np.empty(len(found), dtype=object)
        objects[:] = found
        return objects.reshape(shape)

    def _characters(self, name: str, axes: str) -> NDArray[Any]:
        points = self.array(name, ["uint32"], f"{axes}?")
        width = points.shape[-1]
        if width == 0 or points.max(initial=0) > _LAST_CHARACTER:
            raise self.error(f"{name!r} must contain valid Unicode code points")
        return np.ascontiguousarray(points).view(f"=U{width}").reshape(points.shape[:-1])

    def sparse_parts(self, name: str, n_rows: int, n_columns: int) -> tuple[NDArray[Any], ...]:
        """Take out the values, column indices and row starts of a sparse matrix in CSR format.

        Every index is checked, since a wrong index would access other memory.
        """
        values = self.values(name, "?")
        if values.dtype == np.float16:  # not supported by SciPy
            raise self.error(f"{name!r} of a sparse matrix must not be float16")
        indices, starts = (self.array(f"{name}.{part}", ["int64"], "?") for part in ("indices", "starts"))
        steps = len(starts) == n_rows + 1 and starts[0] == 0 and starts[-1] == len(values)
        if not steps or (starts[1:] < starts[:-1]).any() or len(indices) != len(values):
            raise self.error(f"{name!r} must contain the position where each row begins")
        if ((indices < 0) | (indices >= n_columns)).any() or values.dtype.kind not in "biuf":
            raise self.error(f"{name!r} must contain numbers, with feature indices from 0 to {n_columns - 1}")
        return values, indices, starts

    def objects(self, name: str, coded: Any) -> list[Any]:
        """Return the objects in a list that `encode` created."""
        if type(coded) is not list:
            raise self.error(f"{name!r} must be a list; got {type(coded).__name__}")
        return [self.object(name, value) for value in coded]

    def object(self, name: str, coded: Any) -> Any:
        """Return the object from which `encode` created this value."""
        if not isinstance(coded, (dict, list)):
            return coded
        (kind, value), *more = coded.items() if isinstance(coded, dict) and coded else [(None, None)]
        if kind not in _MAKERS or more or type(value) is not (list if kind == "tuple" else str):
            raise self.error(f"{name!r} must contain only objects of known kinds; it contains other values")
        try:
            return tuple(self.objects(name, value)) if kind == "tuple" else _MAKERS[kind](value)
        except (ValueError, OverflowError) as error:
            raise self.error(f"{name!r} must contain a valid {kind}; got {value[:80]!r}") from error

    def make(self, what: str, maker: Callable[..., Made], *args: Any, **named: Any) -> Made:
        """Call a function with the file's contents and report its errors as errors in the file."""
        try:
            with np.errstate(all="ignore"):
                return maker(*args, **named)
        except WhyClusterError as error:
            raise self.error(f"its contents must be valid for {what} ({str(error).rstrip('.')})") from error

    def close(self) -> None:
        """Raise an error if any item is left over."""
        for what, left in (("facts", self._facts), ("arrays", self._arrays), ("values", self._kinds)):
            if left:
                raise self.error(f"there must be no other {what}; got {str(min(left))[:80]!r}")


def read(path: Path) -> ArchiveReader:
    """Read a whole file without allocating any array larger than the file."""
    if not os.path.isfile(path):  # neither a folder nor a pipe, which would block forever
        raise InvalidInputError(
            f"load: path must be a file written by wc.save; found no file at {str(path)!r}."
        )
    blank = ArchiveReader(path, {"values": {}}, {})
    try:
        with path.open("rb") as file:  # not memory-mapped, since truncating the file would kill the process
            size = os.fstat(file.fileno()).st_size
            if size > _memory():
                raise blank.error("the file is larger than the memory of this machine")
            header = _read_header(file, size, blank)
            text = header.pop("__metadata__").get(_KEY)
            if not isinstance(text, str):
                raise blank.error("the metadata must contain the key 'whycluster'")
            facts = _read_facts(text, blank)
            arrays = {name: _read_array(file, name, entry, blank) for name, entry in header.items()}
    except OSError as error:
        raise InvalidInputError(
            f"load: {str(path)!r} must be readable; reading it failed ({error.strerror})."
        ) from error
    except MemoryError as error:
        raise blank.error(f"the file must be readable ({error})") from error
    found = arrays.pop(_CHECKSUM, None)
    if found is None or not np.array_equal(found, _checksum(text, arrays)):
        raise blank.error("the checksum must match the contents")
    return ArchiveReader(path, facts, arrays)


def _memory() -> float:
    """Return the machine's memory in bytes, or infinity if unknown, as a limit for the size of files."""
    try:
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, ValueError, OSError):
        return math.inf


def _read_header(file: BinaryIO, size: int, blank: ArchiveReader) -> dict[str, Any]:
    """Return the header, with the arrays in file order; raise an error if they leave gaps in the file."""
    length = int.from_bytes(file.read(8), "little")
    if not 0 < length <= min(size - 8, _LONGEST_HEADER):
        raise blank.error("it must be a safetensors file (its header is too long, or truncated)")
    header = from_json(file.read(length).decode("utf-8", "replace"), blank)
    if type(header) is not dict or type(header.get("__metadata__")) is not dict:
        raise blank.error("the metadata must contain the key 'whycluster'")
    metadata = header.pop("__metadata__")
    entries = sorted(header.items(), key=lambda item: _offsets(item[0], item[1], blank))
    end = 0
    for name, entry in entries:
        start, stop = _offsets(name, entry, blank)
        if start != end or stop - start != _n_bytes(name, entry, size, blank):
            raise blank.error(
                f"{name[:80]!r} must directly follow the array before it and have the length that its shape "
                "implies"
            )
        end = stop
    if end != size - 8 - length:
        raise blank.error("it must be a safetensors file (its length does not match its header)")
    return {"__metadata__": metadata, **dict(entries)}


def _offsets(name: str, entry: Any, blank: ArchiveReader) -> tuple[int, int]:
    """Return the positions where an array begins and ends."""
    offsets = entry.get("data_offsets") if type(entry) is dict else None
    if type(offsets) is not list or [type(offset) for offset in offsets] != [int, int]:
        raise blank.error(f"{name[:80]!r} must have two integers as its offsets")
    return offsets[0], offsets[1]


def _n_bytes(name: str, entry: dict[str, Any], size: int, blank: ArchiveReader) -> int:
    """Return the length of an array in bytes, computed from its dtype and shape."""
    shape, dtype = entry.get("shape"), entry.get("dtype")
    if type(dtype) is not str or dtype not in _DTYPES:
        raise blank.error(f"{name[:80]!r} must have a supported dtype; got {str(dtype)[:80]}")
    if type(shape) is not list or not all(type(length) is int and length >= 0 for length in shape):
        raise blank.error(
            f"{name[:80]!r} must have a list of nonnegative integers as its shape; got {str(shape)[:80]}"
        )
    # With an axis of length 0, the other axes could have any length.
    if len(shape) > 3 or math.prod(max(1, length) for length in shape) > size:
        raise blank.error(f"{name[:80]!r} must be smaller than the file; got shape {str(tuple(shape))[:80]}")
    return math.prod(shape) * np.dtype(_DTYPES[dtype]).itemsize


def _read_array(file: BinaryIO, name: str, entry: dict[str, Any], blank: ArchiveReader) -> NDArray[Any]:
    """Read the next array."""
    dtype = np.dtype(_DTYPES[entry["dtype"]])
    array = np.empty(entry["shape"], dtype.newbyteorder("<"))
    if file.readinto(array.reshape(-1).view(np.uint8)) != array.nbytes:  # type: ignore[attr-defined]
        raise blank.error("the file changed while it was being read")
    if dtype.kind == "b" and (array.view(np.uint8) > 1).any():
        raise blank.error(f"{name[:80]!r} must contain only booleans")
    return array.astype(dtype, copy=False)


def _read_facts(text: str, blank: ArchiveReader) -> dict[str, Any]:
    """Return the facts without the format version; raise an error if the version is not supported."""
    facts = from_json(text, blank)
    if type(facts) is not dict or type(facts.get("format")) is not int:
        raise blank.error("the metadata must contain the version of the format")
    version = facts.pop("format")
    if version > FORMAT:
        raise InvalidInputError(
            f"load: {str(blank.path)!r} must have format {FORMAT}, the newest format that this version of "
            f"whycluster reads; got {version}. Update whycluster."
        )
    if version != FORMAT:
        raise blank.error(f"the format must be {FORMAT}; got {version}")
    return facts


def encode(value: Any, name: str) -> Any:
    """Return a label, a name or a value as JSON values, converting NumPy scalars to Python scalars."""
    if isinstance(value, (np.bool_, np.integer, np.floating, np.str_)):
        value = value.item()
    kind = type(value)
    if value is None or kind in (bool, int, str) or (kind is float and math.isfinite(value)):
        return value
    if kind is float:
        return {"float": repr(value)}
    if kind is tuple:
        return {"tuple": [encode(part, name) for part in value]}
    if kind in (dt.date, dt.datetime):
        return {kind.__name__: value.isoformat()}
    raise UnsupportedModelError(
        f"save: {name} must be numbers, booleans, text or dates; got {kind.__name__}. "
        "Convert them to text first."
    )


_MAKERS: dict[Hashable, Callable[[Any], Any]] = {
    "float": float,
    "tuple": tuple,
    "date": dt.date.fromisoformat,
    "datetime": dt.datetime.fromisoformat,
}


def _to_json(value: Any) -> str:
    text = json.dumps(value, separators=(",", ":"), allow_nan=False)
    if depth(text) > DEEPEST:  # such a file could not be read
        raise UnsupportedModelError(
            "save: names and labels must not be deeply nested tuples; these are nested more deeply than a "
            "file allows. Convert them to text first."
        )
    return text


def from_json(text: str, stored: ArchiveReader) -> Any:
    """Parse JSON; report any problem, such as excessive nesting or huge numbers, as an error in the file."""
    try:
        return parse_json(text)
    except ValueError as error:
        why = str(error) if isinstance(error, DepthError) else f"be readable ({type(error).__name__})"
        raise stored.error(f"its JSON must {why}") from error


def _checksum(text: str, arrays: dict[str, NDArray[Any]]) -> NDArray[np.uint32]:
    """Return a checksum of all facts and arrays, which detects accidental changes but not forgery."""
    total = zlib.crc32(_bytes(text))
    for name in sorted(arrays):
        array = arrays[name]
        total = zlib.crc32(_bytes(f"{name}{array.dtype.name}{array.shape}"), total)
        total = zlib.crc32(array.reshape(-1).view(np.uint8).data, total)
    return np.array(total, dtype=np.uint32)


def _bytes(text: str) -> bytes:
    """Return the bytes of any text, even with lone surrogates, which JSON supports but UTF-8 does not."""
    return text.encode("utf-8", "surrogatepass")


def _library(where: str) -> Any:
    try:
        import safetensors.numpy
    except ImportError as error:
        raise MissingDependencyError(f'{where} needs safetensors: pip install "whycluster[save]"') from error
    return safetensors
