"""Align processed text with its original, to find where a token starts and stops in the user's text.

Vectorizers process a text before they split it into tokens. They may convert it to lower case, strip accents
or call a user's function. This module maps positions in the processed text back to the original.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from dataclasses import dataclass

import numpy as np

from whycluster.core.arrays import Codes

Span = tuple[int, int]


class NotLocatedError(Exception):
    """Raised if one of a vectorizer's tokens cannot be found in the text."""

    def __init__(self, token: str) -> None:
        super().__init__(token)
        self.token = token


@dataclass(frozen=True)
class AlignedText:
    """A processed text and the positions of its characters in the original.

    Attributes
    ----------
    text : the processed text
    origin : (len(text) + 1,) the position of each character in the original, followed by the end of the
        original; or None if every character keeps its position
    """

    text: str
    origin: Codes | None = None

    def original_spans(self, spans: Iterable[Span]) -> list[Span]:
        """Return the spans of the original that spans of the processed text come from."""
        return list(spans) if self.origin is None else [self._original_span(*span) for span in spans]

    def _original_span(self, start: int, stop: int) -> Span:
        assert self.origin is not None
        first, end = int(self.origin[start]), int(self.origin[stop])
        # A character that vanished, such as a combining accent, belongs to the character before it. If one
        # character became several, a word that contains some of them is assigned the whole character.
        return first, end if stop == start else max(end, int(self.origin[stop - 1]) + 1)


def _unchanged(text: str) -> str:
    return text


@dataclass(frozen=True)
class Preprocessor:
    """The function that processes a text before it is split into tokens.

    Attributes
    ----------
    function : maps the original to the processed text
    is_builtin : whether the function is scikit-learn's own, which processes each character separately
    """

    function: Callable[[str], str] = _unchanged
    is_builtin: bool = True

    def __call__(self, text: str) -> str:
        """Process a text."""
        return self.function(text)

    def align(self, text: str) -> AlignedText | None:
        """Process a text and align the result, or return None if its characters cannot be aligned."""
        processed = self(text)
        if self.is_builtin and text.isascii():
            return AlignedText(processed)
        if processed == text:
            return AlignedText(processed)
        try:
            pieces = {character: self(character) for character in set(text)}
        except Exception:  # a user's function may fail on single characters
            return None
        lengths = [len(pieces[character]) for character in text]
        if sum(lengths) != len(processed):
            return None
        # A final sigma has its own lowercase letter, but the length of the text stays the same.
        if not self.is_builtin and "".join([pieces[character] for character in text]) != processed:
            return None
        return AlignedText(processed, np.append(np.repeat(np.arange(len(text)), lengths), len(text)))


class Tokenizer(ABC):
    """Splits a processed text into tokens."""

    @abstractmethod
    def tokenize(self, text: str) -> tuple[list[str], list[Span]]:
        """Return the tokens of a processed text and their spans in it."""


@dataclass(frozen=True)
class PatternTokenizer(Tokenizer):
    """Returns the matches of a pattern, or of its only group, as tokens."""

    pattern: re.Pattern[str]

    def tokenize(self, text: str) -> tuple[list[str], list[Span]]:
        """Return the matches."""
        group = self.pattern.groups
        matches = list(self.pattern.finditer(text))
        # If the group did not participate in a match, the token is empty.
        spans = [m.span(group) if m.start(group) >= 0 else (m.end(), m.end()) for m in matches]
        return [text[start:stop] for start, stop in spans], spans


@dataclass(frozen=True)
class FunctionTokenizer(Tokenizer):
    """Calls the user's function and locates its tokens in the text."""

    function: Callable[[str], Iterable[str]]

    def tokenize(self, text: str) -> tuple[list[str], list[Span]]:
        """Return the function's tokens; raise NotLocatedError if a token is not in the text."""
        tokens = list(self.function(text))
        invalid = next((token for token in tokens if not isinstance(token, str)), None)
        if invalid is not None:
            raise NotLocatedError(repr(invalid))
        return tokens, locate(tokens, text)


def locate(tokens: list[str], text: str) -> list[Span]:
    """Return the spans of consecutive tokens in a text, ignoring case if necessary.

    Whole words are preferred, since a tokenizer may have skipped a longer word that contains a token.
    """
    lower = Preprocessor(str.lower).align(text)
    assert lower is not None
    missing = ""
    for aligned, wanted in ((AlignedText(text), tokens), (lower, [token.lower() for token in tokens])):
        for whole in (True, False):
            spans = _locate_in_order(wanted, aligned.text, whole)
            if not isinstance(spans, int):
                return aligned.original_spans(spans)
            missing = tokens[spans]
    raise NotLocatedError(missing)


def _locate_in_order(tokens: list[str], text: str, whole: bool) -> list[Span] | int:
    """Return the spans, or the position of the first token that is not found."""
    spans, end = [], 0
    for position, token in enumerate(tokens):
        start = _search(token, text, end, whole)
        if start < 0:
            return position
        end = start + len(token)
        spans.append((start, end))
    return spans


_LOOKAHEAD = 4000  # number of characters in which to search for a whole word before accepting part of a word


def _search(token: str, text: str, begin: int, whole: bool) -> int:
    """Return the start of a token at or after ``begin``, or -1 if it is not found."""
    if whole:
        before = r"(?<!\w)" if token[:1].isalnum() else ""
        after = r"(?!\w)" if token[-1:].isalnum() else ""
        match = re.compile(before + re.escape(token) + after).search(text, begin, begin + _LOOKAHEAD)
        if match is not None:
            return match.start()
    return text.find(token, begin)
