"""Words of a text, and the pieces into which a subword tokenizer splits them.

Encoders read *pieces*: whole words, parts of words, punctuation, and special tokens that are not in the text.
The tokenizer reports which characters of the text each piece covers. Here, pieces are joined back into words.
"""

from __future__ import annotations

import re
import sys
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, ClassVar

import numpy as np

from whycluster.core.arrays import Codes
from whycluster.core.errors import InvalidInputError
from whycluster.text.alignment import Span
from whycluster.text.finders import Finder, FoundTerms, TokenFinder

_ALONE = (
    "\u3040-\u30ff\u3400-\u9fff\uf900-\ufaff\U00020000-\U0003ffff"  # scripts without spaces between words
)
_LONE_SURROGATE = re.compile("[\ud800-\udfff]")
_JOINERS = "\u200c\u200d"
_MODIFIERS = "\ufe0e\ufe0f\u20e3\U0001f3fb-\U0001f3ff"  # the style and the skin color of an emoji


@cache
def _word_pattern() -> re.Pattern[str]:
    """Return the pattern of words: letters, digits and marks, possibly with apostrophes, or one symbol."""
    marks = "".join(chr(i) for i in range(0x300, sys.maxunicode) if unicodedata.category(chr(i))[0] == "M")
    inside = rf"(?:(?![{_ALONE}])[\w{re.escape(marks)}{_JOINERS}])"
    sign = rf"[^\w\s][{_MODIFIERS}]*(?:\u200d[^\w\s][{_MODIFIERS}]*)*"  # emoji may have several characters
    return re.compile(rf"[{_ALONE}]|{inside}+(?:['\u2019]{inside}+)*|{sign}")


def check_unicode(texts: Sequence[str], where: str, name: str = "X") -> None:
    """Raise an error if a text has lone surrogates, which tokenizers refuse."""
    for row, text in enumerate(texts):
        lone = _LONE_SURROGATE.search(text)
        if lone is not None:
            raise InvalidInputError(
                f"{where}: {name} must be valid Unicode; document {row} has a lone surrogate, "
                f"{lone.group()!r}, at character {lone.start()}. Drop it: document.encode('utf-8', "
                "'ignore').decode()."
            )


def find_words(text: str) -> list[Span]:
    """Return the spans of all words; every character except whitespace belongs to a word.

    Each punctuation mark or other symbol is a separate word, as is each character of a script without spaces
    between words.
    """
    return [match.span() for match in _word_pattern().finditer(text)]


def owners(text: str, spans: Sequence[Span]) -> Codes:
    """Return the word that each character belongs to; whitespace belongs to the word before it.

    Whitespace at the beginning belongs to the first word. If there are no words, all entries are -1.
    """
    found = np.full(len(text), -1, dtype=np.intp)
    for word, (start, stop) in enumerate(spans):
        found[start:stop] = word
    filled = np.maximum.accumulate(found) if len(found) else found
    return np.maximum(filled, 0) if spans else filled


def words_of_piece(owner: Codes, text: str, start: int, stop: int) -> list[int]:
    """Return the words that a piece covers, each repeated once per character in the piece.

    A piece within one word is listed once. A piece of whitespace belongs to the word before it.
    """
    if stop <= start or not len(owner) or owner[start] < 0:
        return []
    covered = [int(owner[i]) for i in range(start, stop) if not text[i].isspace()]
    if not covered:
        return [int(owner[start])]
    return covered[:1] if covered[0] == covered[-1] else covered


class PieceWords(Finder):
    """Finds only the words of a text; a transformer has no terms that count apart from their context."""

    @property
    def n_terms(self) -> int:
        """The number of terms."""
        return 0

    def find(self, text: str) -> FoundTerms:
        """Find the words."""
        return FoundTerms(find_words(text), [], [], [], [])

    def normalize(self, word: str) -> str:
        """Return a word in lower case."""
        return word.lower()


@dataclass(frozen=True)
class PieceFinder(TokenFinder):
    """Finds the words of a text and the pieces that a static table has vectors for.

    Attributes
    ----------
    tokenizer : a ``tokenizers.Tokenizer`` that is not shared with the user
    n_vectors : the number of rows of the table
    dropped : pieces that the model leaves out
    most_characters : the number of characters that the model reads, or None for all of them
    """

    finds_all_terms: ClassVar[bool] = False  # a text of whitespace may have pieces, but it has no words
    tokenizer: Any
    n_vectors: int
    dropped: frozenset[int] = frozenset()
    most_characters: int | None = None

    @property
    def n_terms(self) -> int:
        """The number of pieces."""
        return self.n_vectors

    def find(self, text: str) -> FoundTerms:
        """Find the words and the pieces, each of which covers one or more words."""
        spans, (read, end) = find_words(text), self._read(text)
        owner = owners(text, spans)
        pieces = [
            (piece, words)
            for piece, (start, stop) in read
            if (words := words_of_piece(owner, text, start, stop))
        ]
        covered = [word for _, words in pieces for word in words]
        cut_off = [word for word, (start, _) in enumerate(spans) if start >= end]
        sizes = [len(words) for _, words in pieces]
        return FoundTerms(spans, [], [piece for piece, _ in pieces], covered, sizes, cut_off)

    def terms(self, text: str) -> list[int]:
        """Return the pieces of a text, repeated as often as they occur."""
        return [piece for piece, _ in self._read(text)[0]]

    def normalize(self, word: str) -> str:
        """Return a word in lower case."""
        return word.lower()

    @property
    def max_length(self) -> int | None:
        """The maximum number of pieces that the model reads, or None if it reads all of them."""
        truncation = self.tokenizer.truncation
        return None if truncation is None else int(truncation["max_length"])

    @property
    def n_characters(self) -> int | None:
        """The number of characters in which the model looks for pieces, or None for all of them."""
        return self.most_characters

    def _read(self, text: str) -> tuple[list[tuple[int, Span]], int]:
        """Return the pieces that the model reads, with their spans, and the position where it stops."""
        beginning = text[: self.most_characters]
        found = self.tokenizer.encode(beginning, add_special_tokens=False)
        last = self.n_vectors - 1  # wordllama reads the last row for pieces that it has no row for
        pieces = [
            (min(piece, last), span)
            for piece, span in zip(found.ids, found.offsets, strict=True)
            if piece not in self.dropped
        ]
        return pieces, found.offsets[-1][1] if found.overflowing else len(beginning)
