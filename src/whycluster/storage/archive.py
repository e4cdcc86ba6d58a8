"""One file of named arrays and of facts about them: safetensors, with JSON in its metadata.

Such a file holds no code, and nothing in it is ever run or imported. What is read is checked before it is
used: which names there are, of which dtypes and shapes, that lengths agree, and a checksum.
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
"""Raised whenever a version before would misread what is written now."""

_KEY = "whycluster"  # of the facts in the metadata
_CHECKSUM = "crc32"  # of the array that the rest is checked against
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
_LONGEST_HEADER = 100_000_000  # bytes, as in safetensors
_NOT_OURS = "It was not made by wc.save, or has been changed since."

Made = TypeVar("Made")


class Draft:
    """What is to be written: arrays, and facts that JSON can hold."""

    def __init__(self, kind: str) -> None:
        self.facts: dict[str, Any] = {"format": FORMAT, "kind": kind, "values": {}}
        self.arrays: dict[str, NDArray[Any]] = {}

    def put(self, name: str, array: Any, dtype: str | None = None) -> None:
        """An array of numbers."""
        self.arrays[name] = np.ascontiguousarray(array, dtype=dtype).reshape(np.shape(array))

    def put_values(self, name: str, values: NDArray[Any]) -> None:
        """An array of numbers, of text, or of objects that `encode` knows."""
        kind, place = values.dtype.kind, self.facts["values"]
        if kind in "biuf":
            wide = values.dtype.itemsize > 8  # more digits than anything here computes with
            place[name] = "numbers"
            self.put(name, values, "float64" if wide else values.dtype.newbyteorder("=").name)
        elif kind == "U":  # by the numbers of its characters
            wide_enough = values.astype(f"=U{max(1, values.dtype.itemsize // 4)}", order="C")
            place[name] = "text"
            self.put(name, wide_enough.reshape(*values.shape, 1).view(np.uint32))
        elif kind == "O":
            text = _to_json([encode(value, name) for value in values.ravel().tolist()])
            place[name] = "objects"
            self.put(name, np.frombuffer(text.encode("ascii"), dtype=np.uint8))
        else:
            raise UnsupportedModelError(
                f"save: {name} must be numbers, booleans, text or dates; got {values.dtype}. "
                "Turn them into text first."
            )

    def digest(self) -> str:
        """What tells it from any other."""
        total = hashlib.sha256(_to_json(self.facts).encode())
        for name in sorted(self.arrays):
            array = self.arrays[name]
            total.update(f"{name} {array.dtype} {array.shape} ".encode())
            total.update(array.reshape(-1).view(np.uint8).data)
        return total.hexdigest()[:32]

    def write(self, path: Path) -> None:
        """Write it to a file that is not there yet."""
        library = _library("save")
        text = _to_json(self.facts)
        arrays = {**self.arrays, _CHECKSUM: _checksum(text, self.arrays)}
        path.touch(exist_ok=False)  # safetensors would give nobody else the right to read it
        mode = path.stat().st_mode
        try:
            library.numpy.save_file(arrays, path, metadata={_KEY: text})
        except library.SafetensorError as error:
            raise OSError(f"save: the file could not be written ({error}).") from error
        path.chmod(mode)


class Stored:
    """What was read. Everything is taken out once, checked, and in the end nothing may be left.

    Attributes
    ----------
    lengths : of the axes that have been seen, by their letters
    """

    def __init__(self, path: Path, facts: dict[str, Any], arrays: dict[str, NDArray[Any]]) -> None:
        self.path, self.lengths = path, dict[str, int]()
        self._facts, self._arrays = facts, arrays
        self._kinds: dict[str, Any] = {}
        self._kinds = self.fact("values", dict)

    def fault(self, text: str) -> InvalidInputError:
        """The error that says what is wrong with the file."""
        return InvalidInputError(f"load: {str(self.path)!r}: {text}. {_NOT_OURS}")

    def fact(self, name: str, *kinds: type) -> Any:
        """A fact of one of these types."""
        if name not in self._facts:
            raise self.fault(f"the metadata must say {name!r}")
        value = self._facts.pop(name)
        if type(value) not in kinds:
            expected = " or ".join(kind.__name__ for kind in kinds)
            raise self.fault(f"{name!r} must be of type {expected}; got {type(value).__name__}")
        return value

    def choice(self, name: str, known: Sequence[str]) -> str:
        """A fact that is one of some words."""
        word: str = self.fact(name, str)
        if word not in known:
            raise self.fault(f"{name!r} must be one of {', '.join(known)}; got {word[:80]!r}")
        return word

    def has(self, name: str) -> bool:
        """Whether there is such an array."""
        return name in self._arrays

    def array(self, name: str, dtypes: Sequence[str], axes: str) -> NDArray[Any]:
        """An array of one of these dtypes; for its axes see `_measure`."""
        if name not in self._arrays:
            raise self.fault(f"there must be an array {name!r}")
        array = self._arrays.pop(name)
        if array.dtype.name not in dtypes:
            raise self.fault(f"{name!r} must be of {' or '.join(dtypes)}; got {array.dtype.name}")
        self._measure(name, array.shape, axes)
        return array

    def _measure(self, name: str, shape: tuple[int, ...], axes: str) -> None:
        """Raise unless lengths are those that the letters have stood for; "?" is any, the others not 0."""
        lengths = dict(self.lengths)
        fits = len(shape) == len(axes)
        for letter, length in zip(axes, shape, strict=False):
            if letter != "?":
                fits = fits and length > 0 and lengths.setdefault(letter, length) == length
        if not fits:
            expected = ", ".join(str(self.lengths.get(letter, letter)) for letter in axes)
            raise self.fault(f"{name!r} must have shape ({expected}{',' * (len(axes) == 1)}); got {shape}")
        self.lengths = lengths

    def values(self, name: str, axes: str) -> NDArray[Any]:
        """What `Draft.put_values` put there."""
        kind = self._kinds.pop(name, None)
        if kind == "numbers":
            return self.array(name, NUMBERS, axes)
        if kind == "text":
            return self._characters(name, axes)
        if kind != "objects":
            raise self.fault(f"{name!r} must be numbers, text or objects; got {str(kind)[:80]!r}")
        text = self.array(name, ["uint8"], "?").tobytes().decode("ascii", "replace")
        found = self.objects(name, from_json(text, self))
        shape = [self.lengths[letter] for letter in axes] if len(axes) > 1 else [len(found)]
        if math.prod(shape) != len(found):
            raise self.fault(f"{name!r} must have {math.prod(shape)} objects; got {len(found)}")
        self._measure(name, tuple(shape), axes)
        objects = np.empty(len(found), dtype=object)
        objects[:] = found
        return objects.reshape(shape)

    def _characters(self, name: str, axes: str) -> NDArray[Any]:
        numbers = self.array(name, ["uint32"], f"{axes}?")
        width = numbers.shape[-1]
        if width == 0 or numbers.max() > _LAST_CHARACTER:
            raise self.fault(f"{name!r} must be numbers of characters")
        return np.ascontiguousarray(numbers).view(f"=U{width}").reshape(numbers.shape[:-1])

    def objects(self, name: str, coded: Any) -> list[Any]:
        """The objects that `encode` made a list of."""
        if type(coded) is not list:
            raise self.fault(f"{name!r} must be a list; got {type(coded).__name__}")
        return [self.object(name, value) for value in coded]

    def object(self, name: str, coded: Any) -> Any:
        """What `encode` made this of."""
        if not isinstance(coded, (dict, list)):
            return coded
        (kind, value), *more = coded.items() if isinstance(coded, dict) and coded else [(None, None)]
        if kind not in _MAKERS or more or type(value) is not (list if kind == "tuple" else str):
            raise self.fault(f"{name!r} has an object of a kind that is not known")
        try:
            return tuple(self.objects(name, value)) if kind == "tuple" else _MAKERS[kind](value)
        except (ValueError, OverflowError) as error:
            raise self.fault(f"{name!r} must have a {kind}; got {value[:80]!r}") from error

    def make(self, what: str, maker: Callable[..., Made], *args: Any, **named: Any) -> Made:
        """What a function makes; that it cannot is the fault of the file."""
        try:
            with np.errstate(all="ignore"):
                return maker(*args, **named)
        except WhyClusterError as error:
            raise self.fault(f"what it holds must make {what} ({str(error).rstrip('.')})") from error

    def close(self) -> None:
        """Raise if anything is left."""
        for what, left in (("facts", self._facts), ("arrays", self._arrays), ("values", self._kinds)):
            if left:
                raise self.fault(f"there must be no other {what}; got {str(min(left))[:80]!r}")


def read(path: Path) -> Stored:
    """Read a file, all of it; nothing that it says makes arrays that are larger than it is."""
    if not os.path.isfile(path):  # neither a folder nor a pipe, which would wait for ever
        raise InvalidInputError(
            f"load: path must be a file that wc.save has made; there is none at {str(path)!r}."
        )
    blank = Stored(path, {"values": {}}, {})
    try:
        with path.open("rb") as file:  # not by a map of its memory: if the file is cut, that ends the process
            size = os.fstat(file.fileno()).st_size
            if size > _memory():
                raise blank.fault("it must not be larger than the memory of this machine; it is")
            header = _read_header(file, size, blank)
            text = header.pop("__metadata__").get(_KEY)
            if not isinstance(text, str):
                raise blank.fault("the metadata must have the key 'whycluster'")
            facts = _read_facts(text, blank)
            arrays = {name: _read_array(file, name, entry, blank) for name, entry in header.items()}
    except (OSError, MemoryError) as error:
        raise blank.fault(f"it must be readable ({error})") from error
    found = arrays.pop(_CHECKSUM, None)
    if found is None or not np.array_equal(found, _checksum(text, arrays)):
        raise blank.fault("the checksum must be that of its contents")
    return Stored(path, facts, arrays)


def _memory() -> float:
    """In bytes, where that can be told. A file may say that it is of any size, with nothing on the disk."""
    try:
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, ValueError, OSError):
        return math.inf


def _read_header(file: BinaryIO, size: int, blank: Stored) -> dict[str, Any]:
    """What the file says of its arrays, in the order in which they lie, one behind the other, to its end."""
    length = int.from_bytes(file.read(8), "little")
    if not 0 < length <= min(size - 8, _LONGEST_HEADER):
        raise blank.fault("it must be a safetensors file (its header is too long, or cut off)")
    header = from_json(file.read(length).decode("utf-8", "replace"), blank)
    if type(header) is not dict or type(header.get("__metadata__")) is not dict:
        raise blank.fault("the metadata must have the key 'whycluster'")
    metadata = header.pop("__metadata__")
    entries = sorted(header.items(), key=lambda item: _places(item[0], item[1], blank))
    end = 0
    for name, entry in entries:
        start, stop = _places(name, entry, blank)
        if start != end or stop - start != _n_bytes(name, entry, size, blank):
            raise blank.fault(f"{name[:80]!r} must lie behind the array before, as long as its shape says")
        end = stop
    if end != size - 8 - length:
        raise blank.fault("it must be a safetensors file (it has other bytes than its header says)")
    return {"__metadata__": metadata, **dict(entries)}


def _places(name: str, entry: Any, blank: Stored) -> tuple[int, int]:
    """Where an array begins and ends."""
    places = entry.get("data_offsets") if type(entry) is dict else None
    if type(places) is not list or [type(place) for place in places] != [int, int]:
        raise blank.fault(f"{name[:80]!r} must have two places where it lies")
    return places[0], places[1]


def _n_bytes(name: str, entry: dict[str, Any], size: int, blank: Stored) -> int:
    """How long an array is by its dtype and shape."""
    shape, dtype = entry.get("shape"), entry.get("dtype")
    if type(dtype) is not str or dtype not in _DTYPES:
        raise blank.fault(f"{name[:80]!r} must be of a known dtype; got {str(dtype)[:80]}")
    if type(shape) is not list or not all(type(length) is int and length >= 0 for length in shape):
        raise blank.fault(f"{name[:80]!r} must have a shape; got {str(shape)[:80]}")
    # One axis of 0 makes any others possible.
    if len(shape) > 3 or math.prod(max(1, length) for length in shape) > size:
        raise blank.fault(f"{name[:80]!r} must be smaller than the file; got shape {str(tuple(shape))[:80]}")
    return math.prod(shape) * np.dtype(_DTYPES[dtype]).itemsize


def _read_array(file: BinaryIO, name: str, entry: dict[str, Any], blank: Stored) -> NDArray[Any]:
    """The array that the header says is next."""
    dtype = np.dtype(_DTYPES[entry["dtype"]])
    array = np.empty(entry["shape"], dtype.newbyteorder("<"))
    if file.readinto(array.reshape(-1).view(np.uint8)) != array.nbytes:  # type: ignore[attr-defined]
        raise blank.fault("it must not change while it is read; it did")
    if dtype.kind == "b" and (array.view(np.uint8) > 1).any():
        raise blank.fault(f"{name[:80]!r} must be booleans")
    return array.astype(dtype, copy=False)


def _read_facts(text: str, blank: Stored) -> dict[str, Any]:
    """The facts, if they are of a version that is known; the version is not among them any more."""
    facts = from_json(text, blank)
    if type(facts) is not dict or type(facts.get("format")) is not int:
        raise blank.fault("the metadata must say which format it is of")
    version = facts.pop("format")
    if version > FORMAT:
        raise InvalidInputError(
            f"load: {str(blank.path)!r} must be of format {FORMAT} at most, which this version of whycluster "
            f"knows; got {version}. Update whycluster."
        )
    if version != FORMAT:
        raise blank.fault(f"the format must be {FORMAT}; got {version}")
    return facts


def encode(value: Any, name: str) -> Any:
    """A label, a name or a value as JSON can hold it; numbers of NumPy become plain ones."""
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
        "Turn them into text first."
    )


_MAKERS: dict[Hashable, Callable[[Any], Any]] = {
    "float": float,
    "tuple": tuple,
    "date": dt.date.fromisoformat,
    "datetime": dt.datetime.fromisoformat,
}


def _to_json(value: Any) -> str:
    text = json.dumps(value, separators=(",", ":"), allow_nan=False)
    if depth(text) > DEEPEST:  # it could not be read again
        raise UnsupportedModelError(
            "save: names and labels must not be tuples within tuples within tuples without end; these nest "
            "deeper than a file can hold. Turn them into text first."
        )
    return text


def from_json(text: str, stored: Stored) -> Any:
    """What JSON says; also one that nests without end, or has numbers without end, is but a fault."""
    try:
        return parse_json(text)
    except ValueError as error:
        why = str(error) if isinstance(error, DepthError) else f"be readable as such ({type(error).__name__})"
        raise stored.fault(f"what is JSON must {why}") from error


def _checksum(text: str, arrays: dict[str, NDArray[Any]]) -> NDArray[np.uint32]:
    """Of all facts and arrays: against accidents, not against forgery."""
    total = zlib.crc32(_bytes(text))
    for name in sorted(arrays):
        array = arrays[name]
        total = zlib.crc32(_bytes(f"{name}{array.dtype.name}{array.shape}"), total)
        total = zlib.crc32(array.reshape(-1).view(np.uint8).data, total)
    return np.array(total, dtype=np.uint32)


def _bytes(text: str) -> bytes:
    """Of any text: JSON may hold half a character, which UTF-8 has no bytes for."""
    return text.encode("utf-8", "surrogatepass")


def _library(where: str) -> Any:
    try:
        import safetensors.numpy
    except ImportError as error:
        raise MissingDependencyError(f'{where} needs safetensors: pip install "whycluster[save]"') from error
    return safetensors
