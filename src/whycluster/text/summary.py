"""Which words make each cluster."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray

from whycluster.core.arrays import Codes, Floats
from whycluster.core.errors import InvalidInputError
from whycluster.data import display
from whycluster.data.frames import build_frame
from whycluster.data.labels import is_noise
from whycluster.data.validation import check_whole
from whycluster.explanations.formatting import Line, format_items, join_words, rest
from whycluster.text.words import KNOWN, WordTable, add_up

_N_WORDS = 3  # in a headline
_ERRORS = 2.0  # standard errors; on 20 newsgroups, one lets words of a few odd messages through


@dataclass(frozen=True, repr=False, eq=False)
class TextSummary:
    """The words of every cluster, those that make it first; `print` it, or `to_frame`.

    There is a line for every cluster and every known word of its documents, L of them. Words are in the order
    of their mean share of a document's relevance, less two standard errors. Shares, since evidence may be a
    hundred times larger in a text of two words than in one of two hundred, and each document is to count
    once. Less its error, since a word that is all of one odd document says little of the cluster, and no
    least number of documents has to be chosen. In clusters of less than 16 documents the errors count less,
    so that a word of all documents never comes behind one of none.

    Attributes
    ----------
    clusters : (G,) the labels of the clusters that have documents
    size : (G,) how many
    group : (L,) the cluster of each line, as a position in ``clusters``
    word : (L,) as the model counts it
    relevance : (L,) added up over the documents of the cluster, divided by their number
    share : (L,) the same of relevance as a part of the total absolute relevance of each document
    score : (L,) share less its errors, by which words are ordered
    documents, count : (L,) in how many documents of the cluster the word is, and how often
    documents_outside, count_outside : (L,) the same for all other documents
    """

    noun: ClassVar[str] = "word"
    clusters: NDArray[Any]
    size: Codes
    group: Codes
    word: list[str]
    relevance: Floats
    share: Floats
    score: Floats
    documents: Codes
    count: Codes
    documents_outside: Codes
    count_outside: Codes
    _like: Any = None

    def lines(self, cluster: Any, n: int = 10) -> Codes:
        """Where the ``n`` words that make a cluster most stand, strongest first.

        Words that speak against the cluster on average are left out.
        """
        check_whole(n, 1, "summary", "n")
        groups = [i for i, label in enumerate(self.clusters.tolist()) if label == cluster]
        if not groups:
            there = ", ".join(map(repr, self.clusters.tolist()))
            raise InvalidInputError(
                f"summary: cluster must be one that has documents, {there}; got {cluster!r}."
            )
        return self._lines(groups[0], n)

    def words(self, cluster: Any, n: int = 10) -> list[str]:
        """The ``n`` words that make a cluster most, strongest first."""
        return [self.word[line] for line in self.lines(cluster, n)]

    def names(self, n: int = 3) -> dict[Any, str]:
        """For each cluster its ``n`` strongest words, as a name to begin with."""
        return {label: ", ".join(self.words(label, n)) for label in self.clusters.tolist()}

    def to_frame(self, backend: str | None = None) -> Any:
        """One row per cluster and word, the words that make the cluster first."""
        columns: dict[Hashable, Any] = {
            "cluster": self.clusters[self.group],
            "size": self.size[self.group],
            "word": self.word,
            "relevance": self.relevance,
            "share": self.share,
            "score": self.score,
            "documents": self.documents,
            "count": self.count,
            "documents_outside": self.documents_outside,
            "count_outside": self.count_outside,
        }
        return build_frame(columns, self._like, backend, "summary.to_frame", same_rows=False)

    def describe(self, n_words: int = 6) -> str:
        """The strongest words of each cluster, as text."""
        check_whole(n_words, 1, "describe", "n_words")
        if not len(self.clusters):
            return "No document belongs to the cluster it is explained for, so there is nothing to add up."
        heads = [
            "cluster",
            "documents",
            "word",
            "share",
            "",
            "in documents",
            "elsewhere",
            "times",
            "elsewhere",
        ]
        lines = [line for group in range(len(self.clusters)) for line in self._told(group, n_words)]
        return display.table(heads, lines, align="<><><>>>>")

    def __str__(self) -> str:
        return self.describe()

    __repr__ = __str__  # a notebook shows the table too

    def headline(self, group: int) -> str:
        """Return the strongest words of a cluster: "goal, team and season"."""
        lines = self._lines(group, _N_WORDS)
        if not len(lines):
            return "No known word sets it apart"
        text = join_words(format_items([self.word[line] for line in lines]))
        return f"Far from all clusters, mostly by {text}" if is_noise(self.clusters[group]) else text

    def _lines(self, group: int, n: int) -> Codes:
        first, last = np.searchsorted(self.group, [group, group + 1])
        return np.asarray(first + np.flatnonzero(self.share[first:last] > 0))[:n]

    def bars_of(self, group: int, n: int) -> list[Line]:
        """The ``n`` words that make a cluster most, then all others together."""
        shown = self._lines(group, n)
        lines = [Line(self.word[line], "", float(self.share[line])) for line in shown]
        others = np.setdiff1d(np.flatnonzero(self.group == group), shown)
        return lines + rest(len(others), self.noun, "", float(self.share[others].sum()))

    def grid(self, n: int) -> tuple[list[str], Floats, int]:
        """The words that make the clusters, ``n`` in all, their shares, (G, n), and how many there are."""
        n_clusters, codes = len(self.clusters), {word: i for i, word in enumerate(dict.fromkeys(self.word))}
        each = max(1, n // max(1, n_clusters))
        lines = [line for group in range(n_clusters) for line in self._lines(group, each).tolist()]
        names = list(dict.fromkeys(self.word[line] for line in lines))
        share = np.zeros((n_clusters, len(codes)))
        share[self.group, [codes[word] for word in self.word]] = self.share
        return names, share[:, [codes[name] for name in names]], len(codes)

    def _told(self, group: int, n_words: int) -> list[list[str]]:
        lines = self._lines(group, n_words).tolist()
        largest = max((abs(float(self.share[line])) for line in lines), default=0.0)
        label, size = str(self.clusters[group]), str(self.size[group])
        if not lines:
            return [[label, size, "no known word", *[""] * 6]]
        return [
            [
                label if rank == 0 else "",
                size if rank == 0 else "",
                self.word[line],
                f"{self.share[line]:.1%}",
                display.bar(float(self.share[line]), largest),
                str(self.documents[line]),
                str(self.documents_outside[line]),
                str(self.count[line]),
                str(self.count_outside[line]),
            ]
            for rank, line in enumerate(lines)
        ]


def summarize(
    texts: Sequence[str],
    words: WordTable,
    normal: Callable[[str], str],
    assigned: Codes,
    explained: NDArray[np.bool_],
    labels: NDArray[Any],
    like: Any,
) -> TextSummary:
    """Add up over the documents of each cluster.

    Parameters
    ----------
    texts, words : the n documents and their words
    normal : a word as it is counted
    assigned : (n,) the code of the cluster each document belongs to
    explained : (n,) whether it is explained for that cluster
    labels : (K,) the names of the codes
    like : the frame whose library `TextSummary.to_frame` takes
    """
    pairs = pair_up(texts, words, normal)
    present, size = np.unique(assigned[explained], return_counts=True)
    member = explained[pairs.document]
    n_words = max(1, len(pairs.vocabulary))
    group = np.searchsorted(present, assigned[pairs.document[member]])
    lines, line = np.unique(group * n_words + pairs.word[member], return_inverse=True)
    group, word = lines // n_words, lines % n_words

    def mean(values: Floats) -> Floats:
        return np.asarray(add_up(line, values[member], len(lines)) / size[group])

    part = _shares(pairs.relevance, pairs.document)
    share = mean(part)
    error = np.sqrt(mean(part**2) / size[group])
    score = share - np.minimum(_ERRORS, np.sqrt(size[group]) / 2) * error
    # Words that chance may have put there come last, by their share: their errors are as large as that.
    by_chance = score <= 0
    order = np.lexsort((-np.where(by_chance, share, score), by_chance, group))
    documents, count = (_whole(line, n, len(lines)) for n in (None, pairs.times[member]))
    everywhere, always = (_whole(pairs.word, n, n_words)[word] for n in (None, pairs.times))
    return TextSummary(
        clusters=labels[present],
        size=size,
        group=group[order],
        word=[pairs.vocabulary[i] for i in word[order]],
        relevance=mean(pairs.relevance)[order],
        share=share[order],
        score=score[order],
        documents=documents[order],
        count=count[order],
        documents_outside=(everywhere - documents)[order],
        count_outside=(always - count)[order],
        _like=like,
    )


class Pairs(NamedTuple):
    """Every document with every different word in it."""

    vocabulary: list[str]
    document: Codes
    word: Codes  # as a position in the vocabulary
    times: Codes  # how often it is there
    relevance: Floats  # of all these times together


def pair_up(texts: Sequence[str], words: WordTable, normal: Callable[[str], str]) -> Pairs:
    """The known words of documents, each once for a document, in the order of these."""
    known = np.flatnonzero(words.kind == KNOWN)
    document = words.document[known]
    vocabulary, word = _numbered(texts, document, words.start[known], words.stop[known], normal)
    n_words = max(1, len(vocabulary))
    pairs, place = np.unique(document * n_words + word, return_inverse=True)
    return Pairs(
        vocabulary=vocabulary,
        document=pairs // n_words,
        word=pairs % n_words,
        times=_whole(place, None, len(pairs)),
        relevance=add_up(place, words.relevance[known], len(pairs)),
    )


def _whole(place: Codes, values: Codes | None, size: int) -> Codes:
    """Whole numbers added up at each place; ones, where there are none."""
    return np.bincount(place, weights=values, minlength=size).astype(np.intp)


def _shares(relevance: Floats, document: Codes) -> Floats:
    """Relevance as a part of the total absolute relevance of its document."""
    total = add_up(document, np.abs(relevance), 0)[document]
    share = np.zeros_like(relevance)
    np.divide(relevance, total, out=share, where=total > 0)
    return share


def _numbered(
    texts: Sequence[str],
    document: Codes,
    start: NDArray[Any],
    stop: NDArray[Any],
    normal: Callable[[str], str],
) -> tuple[list[str], Codes]:
    """The different words, and of each word which it is."""
    as_written: dict[str, int] = {}  # so that each spelling is looked at once
    numbers: dict[str, int] = {}
    codes = np.empty(len(document), dtype=np.intp)
    spans = zip(document.tolist(), start.tolist(), stop.tolist(), strict=True)
    for i, (row, first, last) in enumerate(spans):
        word = texts[row][first:last]
        code = as_written.get(word)
        if code is None:
            code = numbers.setdefault(normal(word), len(numbers))
            as_written[word] = code
        codes[i] = code
    return list(numbers), codes
