"""Choices that are read from bytes, so that both our engine and atheris can drive the targets."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

T = TypeVar("T")

_TEXTS = ("", "a", "NA", "-1", "0", "1e999", "\0", "\ud800", "\u202e", "é", "/", "..", "^a$", "*", "x" * 300)
_NUMBERS = (0, 1, -1, 2, 3, 255, 2**31, -(2**63), 2**63, 2**64, 10**30, 0.5, -0.0, 1e-320, 1e308, -1e308)
_SPECIAL_BYTES = (0, 1, 9, 10, 13, 34, 44, 45, 48, 57, 59, 91, 93, 123, 125, 127, 128, 255)


class Choices:
    """Reads choices from bytes; when they are used up, every choice is the first one.

    Parameters
    ----------
    data : the bytes
    """

    def __init__(self, data: bytes) -> None:
        self._data, self._at = data, 0

    def below(self, n: int) -> int:
        """Return an integer from 0 to n - 1."""
        width = 1 if n <= 256 else 2 if n <= 65536 else 4
        found = int.from_bytes(self._data[self._at : self._at + width], "big")
        self._at += width
        return found % n

    def take(self, n: int) -> bytes:
        """Return the next ``n`` bytes, or fewer when they are used up."""
        found = self._data[self._at : self._at + n]
        self._at += n
        return found

    def between(self, low: int, high: int) -> int:
        """Return an integer from ``low`` to ``high``."""
        return low + self.below(high - low + 1)

    def pick(self, options: Sequence[T]) -> T:
        return options[self.below(len(options))]

    def one_in(self, n: int) -> bool:
        """Return true about once in ``n`` times; false when the bytes are used up."""
        return self.below(n) == n - 1

    def text(self) -> str:
        return self.pick(_TEXTS) if self.one_in(2) else chr(97 + self.below(26)) * self.between(1, 3)

    def number(self) -> Any:
        return self.pick(_NUMBERS) if self.one_in(2) else self.between(-3, 12)

    def value(self, depth: int = 2) -> Any:
        """Return a JSON value."""
        kind = self.below(7 if depth else 4)
        if kind < 4:
            return (self.number, self.text, lambda: None, lambda: self.one_in(2))[kind]()
        if kind == 4:
            return [self.value(depth - 1) for _ in range(self.below(4))]
        if kind == 5:
            return {self.pick(("tuple", "float", "date", "datetime")): self.value(depth - 1)}
        return {self.text(): self.value(depth - 1) for _ in range(self.below(3))}

    def damaged(self, content: bytes) -> bytes:
        """Return the bytes with a few changes."""
        changed = bytearray(content)
        for _ in range(self.between(1, 4)):
            start = self.below(len(changed) + 1)
            self.pick(_DAMAGES)(self, changed, start)
        return bytes(changed)

    def damaged_value(self, value: Any) -> Any:
        """Return a JSON value with one change, somewhere inside."""
        if self.one_in(10) or not isinstance(value, (dict, list)) or not value:
            return self._replaced(value)
        if isinstance(value, dict):
            name = self.pick(list(value))
            return self._changed_entry(value, name)
        place = self.below(len(value))
        if self.one_in(6):
            return [*value[:place], *value[place + self.below(2) :], *value[:place]]
        return [*value[:place], self.damaged_value(value[place]), *value[place + 1 :]]

    def damaged_inside(self, value: dict[str, Any]) -> dict[str, Any]:
        """Return a JSON object with a change in one of its entries."""
        name = self.pick(list(value) or [""])
        if self.one_in(12):
            return self._changed_entry(value, name)
        return {**value, name: self.damaged_value(value.get(name))}

    def _changed_entry(self, value: dict[str, Any], name: str) -> dict[str, Any]:
        if self.one_in(6):
            return {key: each for key, each in value.items() if key != name}
        if self.one_in(8):
            return {**value, self.text(): self.value()}
        return {**value, name: self.damaged_value(value[name])}

    def _replaced(self, value: Any) -> Any:
        """Return another value, often of the same type, since those pass more checks."""
        if self.one_in(3):
            return self.value()
        if isinstance(value, bool):
            return not value
        if isinstance(value, (int, float)):
            return self.number()
        return self.text() if isinstance(value, str) else self.value()


def _flip(choices: Choices, content: bytearray, start: int) -> None:
    if start < len(content):
        content[start] ^= 1 << choices.below(8)


def _set(choices: Choices, content: bytearray, start: int) -> None:
    content[start : start + 1] = bytes([choices.pick(_SPECIAL_BYTES)])


def _insert(choices: Choices, content: bytearray, start: int) -> None:
    content[start:start] = bytes([choices.below(256)]) * choices.pick((1, 2, 8, 100))


def _remove(choices: Choices, content: bytearray, start: int) -> None:
    del content[start : start + choices.pick((1, 2, 8, 100))]


def _repeat(choices: Choices, content: bytearray, start: int) -> None:
    piece = content[start : start + choices.pick((1, 8, 100, 1000))]
    content[start:start] = piece * choices.pick((1, 2, 10))


def _cut(_: Choices, content: bytearray, start: int) -> None:
    del content[start:]


def _move(choices: Choices, content: bytearray, start: int) -> None:
    piece, target = content[start : start + 16], choices.below(len(content) + 1)
    content[target : target + len(piece)] = piece


_DAMAGES: tuple[Callable[[Choices, bytearray, int], None], ...] = (
    _flip,
    _set,
    _insert,
    _remove,
    _repeat,
    _move,
    _cut,
)
