"""The words of many documents in a few arrays, and how relevance comes to them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from whycluster.core.arrays import Codes, Floats
from whycluster.text.spans import Found

KNOWN, UNKNOWN, STOPPED = 0, 1, 2


@dataclass(frozen=True)
class WordTable:
    """The words of n documents, those of one after those of another, W of them.

    Attributes
    ----------
    ends : (n + 1,) the words of document i are ends[i]..ends[i + 1]
    start, stop : (W,) where each word stands in its document
    kind : (W,) `KNOWN`, `UNKNOWN` or `STOPPED`
    relevance : (W,)
    """

    ends: Codes
    start: NDArray[np.int32]
    stop: NDArray[np.int32]
    kind: NDArray[np.uint8]
    relevance: Floats

    @classmethod
    def joined(cls, parts: dict[int, WordTable]) -> WordTable:
        """The documents of several parts, by the number of their first; these are taken apart."""
        ordered = [parts[start] for start in sorted(parts)]
        parts.clear()
        ends = _ends(np.concatenate([np.diff(part.ends) for part in ordered]))
        names = ("start", "stop", "kind", "relevance")
        columns = {name: [getattr(part, name) for part in ordered] for name in names}
        ordered.clear()  # so that no more than a column is there twice
        return cls(ends=ends, **{name: np.concatenate(columns.pop(name)) for name in names})

    @property
    def document(self) -> Codes:
        """(W,) the document of each word."""
        return np.repeat(np.arange(len(self.ends) - 1), np.diff(self.ends))

    @property
    def nbytes(self) -> int:
        """The memory that they take."""
        return sum(a.nbytes for a in (self.ends, self.start, self.stop, self.kind, self.relevance))

    def sums(self) -> Floats:
        """(n,) the relevance of all words of each document."""
        return add_up(self.document, self.relevance, len(self.ends) - 1)

    def take(self, documents: Codes) -> WordTable:
        """Some of the documents."""
        sizes = np.diff(self.ends)[documents]
        shift = self.ends[documents] - _ends(sizes)[:-1]
        words = np.arange(int(sizes.sum())) + np.repeat(shift, sizes)
        return WordTable(
            _ends(sizes), self.start[words], self.stop[words], self.kind[words], self.relevance[words]
        )

    def of(self, document: int) -> slice:
        """The words of one document."""
        return slice(int(self.ends[document]), int(self.ends[document + 1]))


@dataclass(frozen=True)
class Occurrences:
    """The words of some documents and the occurrences of terms that they hold.

    Attributes
    ----------
    ends, start, stop, stopped : of the words, as in `WordTable`; ``stopped`` are positions
    document, term : (O,) of each occurrence
    holder, held : (H,) the words that hold an occurrence, and which; all of an occurrence in equal parts
    """

    ends: Codes
    start: Codes
    stop: Codes
    stopped: Codes
    document: Codes
    term: Codes
    holder: Codes
    held: Codes

    @classmethod
    def of(cls, found: Sequence[Found]) -> Occurrences:
        """The documents one after another."""
        ends = _ends([len(each.spans) for each in found])
        spans = _flat([span for each in found for span in each.spans]).reshape(-1, 2)
        sizes = _flat([size for each in found for size in each.sizes])
        return cls(
            ends=ends,
            start=spans[:, 0].copy(),
            stop=spans[:, 1].copy(),
            stopped=_moved(ends, [each.stopped for each in found]),
            document=np.repeat(np.arange(len(found)), [len(each.terms) for each in found]),
            term=_flat([term for each in found for term in each.terms]),
            holder=_moved(ends, [each.holders for each in found]),
            held=np.repeat(np.arange(len(sizes)), sizes),
        )

    def only(self, terms: Codes) -> Occurrences:
        """Without the terms that the steps behind the vectorizer leave out."""
        kept = np.isin(self.term, terms)
        if kept.all():
            return self
        place, there = np.cumsum(kept) - 1, kept[self.held]
        return Occurrences(
            self.ends,
            self.start,
            self.stop,
            self.stopped,
            self.document[kept],
            self.term[kept],
            self.holder[there],
            place[self.held[there]],
        )

    def bear(self, key: Codes, brought: Floats, n_terms: int, total: Floats) -> WordTable:
        """The relevance of the words: what their terms bring, and an equal part of the rest.

        Parameters
        ----------
        key : document * n_terms + term of what was brought; several may be of the same
        brought : how much
        n_terms : how many terms there are
        total : (b,) what the words of each document add up to, if it has a term at all
        """
        pairs, place = np.unique(self.document * n_terms + self.term, return_inverse=True)
        at = np.searchsorted(pairs, key)
        there = at < len(pairs)
        there[there] = pairs[at[there]] == key[there]
        of_pair = add_up(at[there], brought[there], len(pairs))
        occurrence = (of_pair / np.bincount(place, minlength=len(pairs)))[place]
        n_documents = len(self.ends) - 1
        n_occurrences = np.bincount(self.document, minlength=n_documents)
        borne = add_up(self.document, occurrence, n_documents)
        occurrence += ((total - borne) / np.maximum(n_occurrences, 1))[self.document]
        part = (occurrence / np.bincount(self.held, minlength=len(occurrence)))[self.held]
        n_words = len(self.start)
        kind = np.full(n_words, UNKNOWN, dtype=np.uint8)
        kind[self.stopped] = STOPPED
        kind[self.holder] = KNOWN
        relevance = add_up(self.holder, part, n_words)
        return WordTable(self.ends, self.start.astype(np.int32), self.stop.astype(np.int32), kind, relevance)


def add_up(place: Codes, values: Floats, size: int) -> Floats:
    """The sums of the values at each place."""
    return np.asarray(np.bincount(place, weights=values, minlength=size), dtype=np.float64)


def _ends(sizes: Any) -> Codes:
    return np.concatenate([[0], np.cumsum(sizes, dtype=np.intp)]).astype(np.intp)


def _flat(values: list[Any]) -> Codes:
    return np.array(values, dtype=np.intp)


def _moved(ends: Codes, positions: Sequence[list[int]]) -> Codes:
    """Positions in each document as positions among all words."""
    sizes = [len(each) for each in positions]
    return _flat([i for each in positions for i in each]) + np.repeat(ends[:-1], sizes)
