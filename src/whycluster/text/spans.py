"""Where the words of a text stand, and which terms of a vectorizer they make.

A *word* is a stretch of the original text. A *term* is what a vectorizer counts: mostly a word in lower case,
but also an n-gram of words or of characters. Each occurrence of a term is held by some words.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from whycluster.core.arrays import Codes

NO_TERM = -1  # a word that is not in the vocabulary
STOP_WORD = -2  # nor that, and on purpose

Span = tuple[int, int]


class Found(NamedTuple):
    """The words of one text and the occurrences of terms among them.

    Attributes
    ----------
    spans : of each word where it stands, as (start, stop)
    stopped : which words are stop words
    terms : of each occurrence its term
    holders : the words that hold the occurrences, those of one after those of another; a word counts as often
        as it is named
    sizes : of each occurrence how many holders are its own
    """

    spans: list[Span]
    stopped: list[int]
    terms: list[int]
    holders: list[int]
    sizes: list[int]


class Finder(ABC):
    """Finds the words of a text, and its terms."""

    n_terms: int

    @abstractmethod
    def find(self, text: str) -> Found:
        """The words and terms of a text."""

    @abstractmethod
    def normal(self, word: str) -> str:
        """A word as it is counted, whatever its case in the text."""


class NotLocatedError(Exception):
    """A token that a vectorizer made cannot be found in its text."""

    def __init__(self, token: str) -> None:
        super().__init__(token)
        self.token = token


@dataclass(frozen=True)
class LetterWords(Finder):
    """Words of three letters or more, in lower case.

    Attributes
    ----------
    rows : of each word its term; `STOP_WORD` for stop words
    n_terms : how many terms there are
    """

    rows: Mapping[str, int]
    n_terms: int

    def find(self, text: str) -> Found:
        """The words, each of which is a term or none."""
        get, spans = self.rows.get, [match.span() for match in _LETTERS.finditer(text)]
        codes = [get(text[start:stop].lower(), NO_TERM) for start, stop in spans]
        return _one_word_each(spans, codes)

    def normal(self, word: str) -> str:
        """In lower case."""
        return word.lower()

    def terms(self, text: str) -> list[int]:
        """The terms of a text, as often as they occur."""
        get = self.rows.get
        codes = [get(word.lower(), NO_TERM) for word in _LETTERS.findall(text)]
        return [code for code in codes if code >= 0]


_LETTERS = re.compile(r"[^\W\d_]{3,}")


def _one_word_each(spans: list[Span], codes: list[int]) -> Found:
    holders = [word for word, code in enumerate(codes) if code >= 0]
    stopped = [word for word, code in enumerate(codes) if code == STOP_WORD]
    return Found(spans, stopped, [codes[word] for word in holders], holders, [1] * len(holders))


@dataclass(frozen=True)
class Aligned:
    """A text as a vectorizer takes it, and where its characters stood in the original.

    Attributes
    ----------
    text : lower case, without accents, or whatever was asked for
    origin : (len(text) + 1,) the position of each character in the original, and the end; None where all
        are the same
    """

    text: str
    origin: Codes | None = None

    def back(self, spans: Iterable[Span]) -> list[Span]:
        """The same stretches of the original."""
        return list(spans) if self.origin is None else [self._one(*span) for span in spans]

    def _one(self, start: int, stop: int) -> Span:
        assert self.origin is not None
        first, end = int(self.origin[start]), int(self.origin[stop])
        # What became nothing, such as an accent of its own, belongs to the character before it; and what
        # became several characters is as a whole the word's that has a part of it.
        return first, end if stop == start else max(end, int(self.origin[stop - 1]) + 1)


def align(text: str, process: Callable[[str], str], *, known: bool) -> Aligned | None:
    """The processed text with the origin of its characters; None if these cannot be followed.

    ``known`` says that the process is scikit-learn's, which takes characters one by one.
    """
    processed = process(text)
    if known and text.isascii():
        return Aligned(processed)
    if processed == text:
        return Aligned(processed)
    try:
        pieces = {character: process(character) for character in set(text)}
    except Exception:  # a function of the user's need not like single characters
        return None
    lengths = [len(pieces[character]) for character in text]
    if sum(lengths) != len(processed):
        return None
    # In lower case, the last sigma of a word is another than one inside, but as long.
    if not known and "".join([pieces[character] for character in text]) != processed:
        return None
    return Aligned(processed, np.append(np.repeat(np.arange(len(text)), lengths), len(text)))


@dataclass(frozen=True)
class TermFinder(Finder):
    """What a vectorizer of scikit-learn finds: words and n-grams of them.

    Attributes
    ----------
    process : what is done to the text first
    known : it is scikit-learn's own
    tokenize : finds the words of the processed text
    stop_words : those that are left out
    lengths : the lengths of n-grams
    look_up : from n-grams to terms
    n_terms : how many terms there are
    """

    process: Callable[[str], str]
    known: bool
    tokenize: Callable[[Aligned, str], tuple[list[str], list[Span]]]
    stop_words: frozenset[str]
    lengths: range
    look_up: Callable[[list[str]], list[int]]
    n_terms: int

    def find(self, text: str) -> Found:
        """The words, and the terms that they and their neighbours make."""
        aligned = align(text, self.process, known=self.known)
        if aligned is None:
            # Nothing says where the processed characters were; words are looked for in the text as it is.
            aligned = Aligned(self.process(text))
            tokens, _ = self.tokenize(aligned, text)
            spans = locate(tokens, text)
        else:
            tokens, found = self.tokenize(aligned, text)
            spans = aligned.back(found)
        stopped = [word for word, token in enumerate(tokens) if token in self.stop_words]
        left = [word for word, token in enumerate(tokens) if token not in self.stop_words]
        if self.lengths == range(1, 2):
            codes = self.look_up([tokens[word] for word in left])
            there = [(word, code) for word, code in zip(left, codes, strict=True) if code >= 0]
            holders = [word for word, _ in there]
            return Found(spans, stopped, [code for _, code in there], holders, [1] * len(holders))
        return self._grams(spans, stopped, tokens, left)

    def _grams(self, spans: list[Span], stopped: list[int], tokens: list[str], left: list[int]) -> Found:
        """All n-grams of the words that are left."""
        places = [left[i : i + n] for n in self.lengths for i in range(len(left) - n + 1)]
        codes = self.look_up([" ".join([tokens[word] for word in place]) for place in places])
        return _held(spans, stopped, zip(codes, places, strict=True))

    def normal(self, word: str) -> str:
        """As the vectorizer takes it."""
        return self.process(word)


def _held(spans: list[Span], stopped: list[int], grams: Iterable[tuple[int, list[int]]]) -> Found:
    """Of the n-grams, by code and holders, those that are terms and have a word to hold them."""
    there = [(code, place) for code, place in grams if code >= 0 and place]
    holders = [word for _, place in there for word in place]
    return Found(spans, stopped, [code for code, _ in there], holders, [len(place) for _, place in there])


@dataclass(frozen=True)
class CharacterFinder(Finder):
    """N-grams of characters; the words that hold them are what stands between white space.

    An n-gram counts for a word as often as it has characters of it.

    Attributes
    ----------
    process, known, lengths, look_up, n_terms : as in `TermFinder`
    inside : n-grams do not go beyond a word, and have a space at its edges
    """

    process: Callable[[str], str]
    known: bool
    lengths: range
    look_up: Callable[[list[str]], list[int]]
    n_terms: int
    inside: bool

    def find(self, text: str) -> Found:
        """The words, and the n-grams of their characters."""
        aligned = align(text, self.process, known=self.known)
        if aligned is None:
            raise NotLocatedError(self.process(text))
        spans = [match.span() for match in _BETWEEN_SPACES.finditer(aligned.text)]
        grams = list(self._inside(aligned.text, spans) if self.inside else self._across(aligned.text))
        codes = self.look_up([gram for gram, _ in grams])
        return _held(aligned.back(spans), [], zip(codes, [place for _, place in grams], strict=True))

    def _inside(self, text: str, spans: list[Span]) -> Iterator[tuple[str, list[int]]]:
        for word, (start, stop) in enumerate(spans):
            padded = f" {text[start:stop]} "
            for n in self.lengths:
                last = max(0, len(padded) - n)
                yield from ((padded[i : i + n], [word]) for i in range(last + 1))
                if not last:  # a short word counts once
                    break

    def _across(self, text: str) -> Iterator[tuple[str, list[int]]]:
        """White space of more than one character is one space, as scikit-learn has it."""
        squeezed = _WIDE.sub(" ", text)
        owner = [-1] * len(squeezed)
        for word, match in enumerate(_BETWEEN_SPACES.finditer(squeezed)):  # the same words
            owner[match.start() : match.end()] = [word] * len(match.group())
        for n in self.lengths:
            for i in range(len(squeezed) - n + 1):
                yield squeezed[i : i + n], [word for word in owner[i : i + n] if word >= 0]

    def normal(self, word: str) -> str:
        """As the vectorizer takes it."""
        return self.process(word)


_BETWEEN_SPACES = re.compile(r"\S+")
_WIDE = re.compile(r"\s\s+")


def locate(tokens: list[str], text: str) -> list[Span]:
    """Where tokens of unknown making stand in a text, one after another; whatever the case, if need be.

    Whole words are preferred, since a tokenizer may have left words out that have a token in them.
    """
    lower = align(text, str.lower, known=True)
    assert lower is not None
    missing = ""
    for aligned, sought in ((Aligned(text), tokens), (lower, [token.lower() for token in tokens])):
        for whole in (True, False):
            spans = _one_by_one(sought, aligned.text, whole)
            if not isinstance(spans, int):
                return aligned.back(spans)
            missing = tokens[spans]
    raise NotLocatedError(missing)


def _one_by_one(tokens: list[str], text: str, whole: bool) -> list[Span] | int:
    """The spans, or which token is the first that is not there."""
    spans, end = [], 0
    for place, token in enumerate(tokens):
        start = _search(token, text, end, whole)
        if start < 0:
            return place
        end = start + len(token)
        spans.append((start, end))
    return spans


_AHEAD = 4000  # characters that a whole word is looked for in; beyond, any will do


def _search(token: str, text: str, end: int, whole: bool) -> int:
    if whole:
        before = r"(?<!\w)" if token[:1].isalnum() else ""
        after = r"(?!\w)" if token[-1:].isalnum() else ""
        match = re.compile(before + re.escape(token) + after).search(text, end, end + _AHEAD)
        if match is not None:
            return match.start()
    return text.find(token, end)


def finder_of(vectorizer: Any) -> Finder:
    """The finder of a fitted vectorizer of scikit-learn."""
    terms, n_terms = _terms_of(vectorizer)
    if callable(vectorizer.analyzer) or not _is_plain(vectorizer):
        analyze = _Located(vectorizer.build_analyzer())
        return TermFinder(_same, True, analyze, frozenset(), range(1, 2), terms, n_terms)
    process, known = vectorizer.build_preprocessor(), _is_known(vectorizer)
    low, high = vectorizer.ngram_range
    lengths = range(low, high + 1)
    if vectorizer.analyzer != "word":
        return CharacterFinder(process, known, lengths, terms, n_terms, vectorizer.analyzer == "char_wb")
    if high == 1:  # then scikit-learn takes words alone, whatever the lower bound
        lengths = range(1, 2)
    tokenize = _Matches(re.compile(vectorizer.token_pattern)) if vectorizer.tokenizer is None else None
    stop_words = frozenset(vectorizer.get_stop_words() or ())
    return TermFinder(
        process, known, tokenize or _Located(vectorizer.tokenizer), stop_words, lengths, terms, n_terms
    )


def _same(text: str) -> str:
    return text


def _is_known(vectorizer: Any) -> bool:
    return vectorizer.preprocessor is None and not callable(vectorizer.strip_accents)


def _is_plain(vectorizer: Any) -> bool:
    """Whether the way from text to terms is scikit-learn's, and not that of a subclass."""
    from sklearn.feature_extraction.text import CountVectorizer

    steps = ("build_analyzer", "build_preprocessor", "build_tokenizer", "get_stop_words")
    return all(getattr(type(vectorizer), name) is getattr(CountVectorizer, name) for name in steps)


def _terms_of(vectorizer: Any) -> tuple[Callable[[list[str]], list[int]], int]:
    """From n-grams to terms, and how many terms there are."""
    if hasattr(vectorizer, "vocabulary_"):
        return _Vocabulary(vectorizer.vocabulary_), len(vectorizer.vocabulary_)
    from sklearn.feature_extraction import FeatureHasher

    hasher = FeatureHasher(vectorizer.n_features, input_type="string", alternate_sign=False)
    return _Hashed(hasher), int(vectorizer.n_features)


@dataclass(frozen=True)
class _Vocabulary:
    codes: Mapping[str, int]

    def __call__(self, grams: list[str]) -> list[int]:
        get = self.codes.get
        return [get(gram, NO_TERM) for gram in grams]


@dataclass(frozen=True)
class _Hashed:
    """Terms by hashing."""

    hasher: Any

    def __call__(self, grams: list[str]) -> list[int]:
        different = list(set(grams))
        if not different:
            return []
        hashed = self.hasher.transform([[gram] for gram in different]).indices.tolist()
        codes = dict(zip(different, hashed, strict=True))
        return [codes[gram] for gram in grams]


@dataclass(frozen=True)
class _Matches:
    """The matches of a pattern, or of the one group in it."""

    pattern: re.Pattern[str]

    def __call__(self, aligned: Aligned, original: str) -> tuple[list[str], list[Span]]:  # noqa: ARG002
        group = self.pattern.groups
        matches = list(self.pattern.finditer(aligned.text))
        # A group that has no part in a match is an empty word.
        spans = [m.span(group) if m.start(group) >= 0 else (m.end(), m.end()) for m in matches]
        return [aligned.text[start:stop] for start, stop in spans], spans


@dataclass(frozen=True)
class _Located:
    """The tokens of a function of the user's, looked for in the text that it was given."""

    tokenizer: Callable[[str], Iterable[str]]

    def __call__(self, aligned: Aligned, original: str) -> tuple[list[str], list[Span]]:  # noqa: ARG002
        tokens = list(self.tokenizer(aligned.text))
        strange = next((token for token in tokens if not isinstance(token, str)), None)
        if strange is not None:
            raise NotLocatedError(repr(strange))
        return tokens, locate(tokens, aligned.text)
