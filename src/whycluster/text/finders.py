"""Find the words of a text and the vectorizer's terms that these words form.

A *word* is a span of the original text. A *term* is a unit that a vectorizer counts, usually a word in lower
case, but possibly an n-gram of words or characters. Each occurrence of a term covers one or more words.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

from whycluster.text.alignment import (
    AlignedText,
    FunctionTokenizer,
    NotLocatedError,
    PatternTokenizer,
    Preprocessor,
    Span,
    Tokenizer,
    locate,
)

NO_TERM = -1  # the code of a word outside the vocabulary
STOP_TERM = -2  # the code of a stop word


class FoundTerms(NamedTuple):
    """The words and the occurrences of terms in one text.

    Attributes
    ----------
    spans : the start and stop of each word
    stop_words : the positions of the words that are stop words
    terms : the term of each occurrence
    covered : the words that the occurrences cover, one occurrence after another. A word that is listed
        several times for an occurrence receives several shares of the occurrence's relevance.
    sizes : for each occurrence, the number of its entries in ``covered``
    cut_off : the positions of the words that the model does not read, because it stops before them
    """

    spans: list[Span]
    stop_words: list[int]
    terms: list[int]
    covered: list[int]
    sizes: list[int]
    cut_off: Sequence[int] = ()


class Finder(ABC):
    """Finds the words and the terms of a text."""

    finds_all_terms: ClassVar[bool] = True
    """Whether every term that the vectorizer counts covers a word."""

    @property
    def max_length(self) -> int | None:
        """The maximum number of pieces of a text that the model reads, or None if it reads all of them."""
        return None

    @property
    def n_characters(self) -> int | None:
        """The number of characters in which the model looks for pieces, or None for all of them."""
        return None

    @property
    @abstractmethod
    def n_terms(self) -> int:
        """The number of terms."""

    @abstractmethod
    def find(self, text: str) -> FoundTerms:
        """Find the words and the terms of a text."""

    @abstractmethod
    def normalize(self, word: str) -> str:
        """Return a word as it is counted, for example in lower case."""


class TokenFinder(Finder):
    """Finds terms that have one vector each."""

    @abstractmethod
    def terms(self, text: str) -> list[int]:
        """Return the terms of a text, repeated as often as they occur."""


@dataclass(frozen=True)
class LetterWords(TokenFinder):
    """Finds words of three or more letters and looks them up in lower case.

    Attributes
    ----------
    rows : the term of each word, or `STOP_TERM` for stop words
    n_vectors : the number of terms
    """

    rows: Mapping[str, int]
    n_vectors: int

    @property
    def n_terms(self) -> int:
        """The number of terms."""
        return self.n_vectors

    def find(self, text: str) -> FoundTerms:
        """Find the words, each of which forms at most one term."""
        get, spans = self.rows.get, [match.span() for match in _LETTERS.finditer(text)]
        codes = [get(text[start:stop].lower(), NO_TERM) for start, stop in spans]
        covered = [word for word, code in enumerate(codes) if code >= 0]
        stop_words = [word for word, code in enumerate(codes) if code == STOP_TERM]
        return FoundTerms(spans, stop_words, [codes[word] for word in covered], covered, [1] * len(covered))

    def normalize(self, word: str) -> str:
        """Return a word in lower case."""
        return word.lower()

    def terms(self, text: str) -> list[int]:
        """Return the terms of a text, repeated as often as they occur."""
        get = self.rows.get
        codes = [get(word.lower(), NO_TERM) for word in _LETTERS.findall(text)]
        return [code for code in codes if code >= 0]


_LETTERS = re.compile(r"[^\W\d_]{3,}")


class Vocabulary(ABC):
    """Translates n-grams to terms."""

    @property
    @abstractmethod
    def n_terms(self) -> int:
        """The number of terms."""

    @abstractmethod
    def look_up(self, grams: list[str]) -> list[int]:
        """Return the term of each n-gram, or `NO_TERM` if the n-gram is not a term."""


@dataclass(frozen=True)
class VectorizerFinder(Finder):
    """Finds words and n-gram terms in the same way as one of scikit-learn's vectorizers.

    Attributes
    ----------
    preprocessor : processes the text before it is split
    lengths : the lengths of the n-grams
    vocabulary : maps n-grams to terms
    """

    preprocessor: Preprocessor
    lengths: range
    vocabulary: Vocabulary

    @property
    def n_terms(self) -> int:
        """The number of terms."""
        return self.vocabulary.n_terms

    def normalize(self, word: str) -> str:
        """Return a word as the vectorizer processes it."""
        return self.preprocessor(word)


@dataclass(frozen=True)
class TermFinder(VectorizerFinder):
    """Finds words and terms, where each term is a word or an n-gram of words.

    Attributes
    ----------
    preprocessor, lengths, vocabulary : as in `VectorizerFinder`
    tokenizer : splits the processed text into words
    stop_words : words to skip
    """

    tokenizer: Tokenizer
    stop_words: frozenset[str] = frozenset()

    def find(self, text: str) -> FoundTerms:
        """Find the words and the terms that neighboring words form."""
        tokens, spans = self._tokenize(text)
        stop_words = [word for word, token in enumerate(tokens) if token in self.stop_words]
        kept = [word for word, token in enumerate(tokens) if token not in self.stop_words]
        if self.lengths == range(1, 2):
            codes = self.vocabulary.look_up([tokens[word] for word in kept])
            known = [(word, code) for word, code in zip(kept, codes, strict=True) if code >= 0]
            covered = [word for word, _ in known]
            return FoundTerms(spans, stop_words, [code for _, code in known], covered, [1] * len(covered))
        places = [kept[i : i + n] for n in self.lengths for i in range(len(kept) - n + 1)]
        codes = self.vocabulary.look_up([" ".join([tokens[word] for word in place]) for place in places])
        return _keep_terms(spans, stop_words, zip(codes, places, strict=True))

    def _tokenize(self, text: str) -> tuple[list[str], list[Span]]:
        """Return the tokens and their spans in the original text."""
        aligned = self.preprocessor.align(text)
        if aligned is None:  # without alignment, search for the tokens in the original text
            tokens, _ = self.tokenizer.tokenize(self.preprocessor(text))
            return tokens, locate(tokens, text)
        tokens, spans = self.tokenizer.tokenize(aligned.text)
        return tokens, aligned.original_spans(spans)


def _keep_terms(
    spans: list[Span], stop_words: list[int], grams: Iterable[tuple[int, list[int]]]
) -> FoundTerms:
    """Keep only the n-grams, given as codes and covered words, that are terms and cover a word."""
    kept = [(code, place) for code, place in grams if code >= 0 and place]
    covered = [word for _, place in kept for word in place]
    return FoundTerms(
        spans, stop_words, [code for code, _ in kept], covered, [len(place) for _, place in kept]
    )


@dataclass(frozen=True)
class CharacterFinder(VectorizerFinder):
    """Finds character n-grams and the whitespace-separated words they cover.

    The relevance of an n-gram is shared among its words in proportion to their characters in the n-gram.

    Attributes
    ----------
    preprocessor, lengths, vocabulary : as in `VectorizerFinder`
    within_words : whether n-grams stay within words, each padded with a space on both sides
    """

    finds_all_terms: ClassVar[bool] = False  # a whitespace term covers no word
    within_words: bool

    def find(self, text: str) -> FoundTerms:
        """Find the words and the n-grams of their characters."""
        aligned = self.preprocessor.align(text)
        if aligned is None:
            raise NotLocatedError(self.preprocessor(text))
        spans = [match.span() for match in _BETWEEN_SPACES.finditer(aligned.text)]
        grams = list(self._grams(aligned, spans))
        codes = self.vocabulary.look_up([gram for gram, _ in grams])
        places = [place for _, place in grams]
        return _keep_terms(aligned.original_spans(spans), [], zip(codes, places, strict=True))

    def _grams(self, aligned: AlignedText, spans: list[Span]) -> Iterator[tuple[str, list[int]]]:
        """Yield each n-gram with the words it covers."""
        if self.within_words:
            return self._grams_within_words(aligned.text, spans)
        return self._grams_across_words(aligned.text)

    def _grams_within_words(self, text: str, spans: list[Span]) -> Iterator[tuple[str, list[int]]]:
        for word, (start, stop) in enumerate(spans):
            padded = f" {text[start:stop]} "
            for n in self.lengths:
                last = max(0, len(padded) - n)
                yield from ((padded[i : i + n], [word]) for i in range(last + 1))
                if not last:  # scikit-learn counts a short word only once
                    break

    def _grams_across_words(self, text: str) -> Iterator[tuple[str, list[int]]]:
        # Like scikit-learn, replace runs of whitespace with a single space, which leaves the words unchanged.
        squeezed = _WIDE_SPACE.sub(" ", text)
        owner = [-1] * len(squeezed)
        for word, match in enumerate(_BETWEEN_SPACES.finditer(squeezed)):
            owner[match.start() : match.end()] = [word] * len(match.group())
        for n in self.lengths:
            for i in range(len(squeezed) - n + 1):
                yield squeezed[i : i + n], [word for word in owner[i : i + n] if word >= 0]


_BETWEEN_SPACES = re.compile(r"\S+")
_WIDE_SPACE = re.compile(r"\s\s+")


def finder_of(vectorizer: Any) -> Finder:
    """Return the finder for a fitted scikit-learn vectorizer."""
    vocabulary = _vocabulary_of(vectorizer)
    if callable(vectorizer.analyzer) or not _has_standard_analysis(vectorizer):
        analyzer = FunctionTokenizer(vectorizer.build_analyzer())
        return TermFinder(Preprocessor(), range(1, 2), vocabulary, analyzer)
    is_builtin = vectorizer.preprocessor is None and not callable(vectorizer.strip_accents)
    preprocessor = Preprocessor(vectorizer.build_preprocessor(), is_builtin)
    low, high = vectorizer.ngram_range
    lengths = range(low, high + 1)
    if vectorizer.analyzer != "word":
        return CharacterFinder(preprocessor, lengths, vocabulary, vectorizer.analyzer == "char_wb")
    if high == 1:  # scikit-learn then counts single words regardless of the lower bound
        lengths = range(1, 2)
    stop_words = frozenset(vectorizer.get_stop_words() or ())
    return TermFinder(preprocessor, lengths, vocabulary, _tokenizer_of(vectorizer), stop_words)


def _tokenizer_of(vectorizer: Any) -> Tokenizer:
    if vectorizer.tokenizer is None:
        return PatternTokenizer(re.compile(vectorizer.token_pattern))
    return FunctionTokenizer(vectorizer.tokenizer)


def _has_standard_analysis(vectorizer: Any) -> bool:
    """Return whether scikit-learn's own methods, not those of a subclass, turn text into terms."""
    from sklearn.feature_extraction.text import CountVectorizer

    methods = ("build_analyzer", "build_preprocessor", "build_tokenizer", "get_stop_words")
    return all(getattr(type(vectorizer), name) is getattr(CountVectorizer, name) for name in methods)


def _vocabulary_of(vectorizer: Any) -> Vocabulary:
    if hasattr(vectorizer, "vocabulary_"):
        return _FittedVocabulary(vectorizer.vocabulary_)
    from sklearn.feature_extraction import FeatureHasher

    return _HashedVocabulary(FeatureHasher(vectorizer.n_features, input_type="string", alternate_sign=False))


@dataclass(frozen=True)
class _FittedVocabulary(Vocabulary):
    """The terms that a vectorizer learned."""

    codes: Mapping[str, int]

    @property
    def n_terms(self) -> int:
        return len(self.codes)

    def look_up(self, grams: list[str]) -> list[int]:
        get = self.codes.get
        return [get(gram, NO_TERM) for gram in grams]


@dataclass(frozen=True)
class _HashedVocabulary(Vocabulary):
    """A vocabulary whose terms are hashes of n-grams."""

    hasher: Any

    @property
    def n_terms(self) -> int:
        return int(self.hasher.n_features)

    def look_up(self, grams: list[str]) -> list[int]:
        distinct = list(set(grams))
        if not distinct:
            return []
        hashed = self.hasher.transform([[gram] for gram in distinct]).indices.tolist()
        codes = dict(zip(distinct, hashed, strict=True))
        return [codes[gram] for gram in grams]
