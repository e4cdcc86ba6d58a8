"""Store the words of many documents in a few arrays, and share the relevance of terms among words."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from whycluster.core.arrays import Codes, Floats
from whycluster.text.finders import FoundTerms

KNOWN, UNKNOWN, STOP_WORD, CUT_OFF = 0, 1, 2, 3


@dataclass(frozen=True)
class WordTable:
    """The W words of n documents, in the order of the documents.

    Attributes
    ----------
    ends : (n + 1,) the words of document i are ends[i]..ends[i + 1]
    start, stop : (W,) the span of each word in its document
    kind : (W,) `KNOWN`, `UNKNOWN`, `STOP_WORD`, or `CUT_OFF` if the model does not read that far
    relevance : (W,) the relevance of each word
    """

    ends: Codes
    start: NDArray[np.int32]
    stop: NDArray[np.int32]
    kind: NDArray[np.uint8]
    relevance: Floats

    @classmethod
    def join(cls, parts: dict[int, WordTable]) -> WordTable:
        """Join the tables of several blocks, keyed by their first document; ``parts`` is empty afterward."""
        ordered = [parts[start] for start in sorted(parts)]
        parts.clear()
        ends = _ends(np.concatenate([np.diff(part.ends) for part in ordered]))
        names = ("start", "stop", "kind", "relevance")
        columns = {name: [getattr(part, name) for part in ordered] for name in names}
        ordered.clear()  # so that memory holds at most one column twice
        return cls(ends=ends, **{name: np.concatenate(columns.pop(name)) for name in names})

    @property
    def document(self) -> Codes:
        """(W,) the document of each word."""
        return np.repeat(np.arange(len(self.ends) - 1), np.diff(self.ends))

    @property
    def nbytes(self) -> int:
        """The memory used by the arrays, in bytes."""
        return sum(a.nbytes for a in (self.ends, self.start, self.stop, self.kind, self.relevance))

    def sums(self) -> Floats:
        """Return the total relevance of each document, (n,)."""
        return group_sums(self.document, self.relevance, len(self.ends) - 1)

    def take(self, documents: Codes) -> WordTable:
        """Return a table with some of the documents."""
        sizes = np.diff(self.ends)[documents]
        shift = self.ends[documents] - _ends(sizes)[:-1]
        words = np.arange(int(sizes.sum())) + np.repeat(shift, sizes)
        return WordTable(
            _ends(sizes), self.start[words], self.stop[words], self.kind[words], self.relevance[words]
        )

    def slice_of(self, document: int) -> slice:
        """Return the slice that contains the words of one document."""
        return slice(int(self.ends[document]), int(self.ends[document + 1]))


@dataclass(frozen=True)
class Occurrences:
    """The W words of some documents and the O occurrences of terms that cover these words.

    Attributes
    ----------
    ends, start, stop : the words, as in `WordTable`
    stop_words, cut_off : the positions of the words that are stop words, and of those that are cut off
    document, term : (O,) the document and the term of each occurrence
    word, occurrence : (C,) pairs of a word and an occurrence that covers it. The relevance of an occurrence
        is shared equally among its pairs.
    """

    ends: Codes
    start: Codes
    stop: Codes
    stop_words: Codes
    cut_off: Codes
    document: Codes
    term: Codes
    word: Codes
    occurrence: Codes

    @classmethod
    def of(cls, found: Sequence[FoundTerms]) -> Occurrences:
        """Join the words and terms found in each document."""
        ends = _ends([len(each.spans) for each in found])
        spans = _codes([span for each in found for span in each.spans]).reshape(-1, 2)
        sizes = _codes([size for each in found for size in each.sizes])
        return cls(
            ends=ends,
            start=spans[:, 0].copy(),
            stop=spans[:, 1].copy(),
            stop_words=_among_all_words(ends, [each.stop_words for each in found]),
            cut_off=_among_all_words(ends, [each.cut_off for each in found]),
            document=np.repeat(np.arange(len(found)), [len(each.terms) for each in found]),
            term=_codes([term for each in found for term in each.terms]),
            word=_among_all_words(ends, [each.covered for each in found]),
            occurrence=np.repeat(np.arange(len(sizes)), sizes),
        )

    def keep_terms(self, terms: Codes) -> Occurrences:
        """Keep only the occurrences of some terms; the steps after the vectorizer ignore all other terms."""
        kept = np.isin(self.term, terms)
        if kept.all():
            return self
        position, pairs = np.cumsum(kept) - 1, kept[self.occurrence]
        return replace(
            self,
            document=self.document[kept],
            term=self.term[kept],
            word=self.word[pairs],
            occurrence=position[self.occurrence[pairs]],
        )

    def share_relevance(self, key: Codes, relevance: Floats, n_terms: int, total: Floats) -> WordTable:
        """Share the relevance of terms among their words and any remainder equally among all occurrences.

        Parameters
        ----------
        key : document * n_terms + term for each entry of ``relevance``; keys may repeat
        relevance : the relevance of the terms in ``key``
        n_terms : the number of terms
        total : (b,) the total relevance to share among the words of each document that contains a term
        """
        pairs, place = np.unique(self.document * n_terms + self.term, return_inverse=True)
        at = np.searchsorted(pairs, key)
        found = at < len(pairs)
        found[found] = pairs[at[found]] == key[found]
        of_pair = group_sums(at[found], relevance[found], len(pairs))
        each = (of_pair / np.bincount(place, minlength=len(pairs)))[place]
        n_documents = len(self.ends) - 1
        n_occurrences = np.bincount(self.document, minlength=n_documents)
        explained = group_sums(self.document, each, n_documents)
        each += ((total - explained) / np.maximum(n_occurrences, 1))[self.document]
        share = (each / np.bincount(self.occurrence, minlength=len(each)))[self.occurrence]
        return WordTable(
            self.ends,
            self.start.astype(np.int32),
            self.stop.astype(np.int32),
            self._kinds(),
            group_sums(self.word, share, len(self.start)),
        )

    def _kinds(self) -> NDArray[np.uint8]:
        """Return the kind of each word, (W,)."""
        kind = np.full(len(self.start), UNKNOWN, dtype=np.uint8)
        kind[self.stop_words] = STOP_WORD
        kind[self.cut_off] = CUT_OFF
        kind[self.word] = KNOWN
        return kind


def group_sums(group: Codes, values: Floats, n_groups: int) -> Floats:
    """Return the sum of the values of each group."""
    return np.asarray(np.bincount(group, weights=values, minlength=n_groups), dtype=np.float64)


def _ends(sizes: Any) -> Codes:
    return np.concatenate([[0], np.cumsum(sizes, dtype=np.intp)]).astype(np.intp)


def _codes(values: list[Any]) -> Codes:
    return np.array(values, dtype=np.intp)


def _among_all_words(ends: Codes, positions: Sequence[Sequence[int]]) -> Codes:
    """Convert positions in each document to positions among all words."""
    sizes = [len(each) for each in positions]
    return _codes([i for each in positions for i in each]) + np.repeat(ends[:-1], sizes)
