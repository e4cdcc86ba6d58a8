"""Which words make each cluster."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from whycluster import console
from whycluster.arrays import Codes, Floats
from whycluster.frames import build_frame
from whycluster.text.words import KNOWN, Ragged


@dataclass(frozen=True, repr=False, eq=False)
class TextSummary:
    """The words of every cluster, those that make it first; `print` it, or `to_frame`.

    There is a line for every cluster and every known word of its documents, L of them. Words are in the order
    of their relevance per document of the cluster, less its standard error. With the mean alone, a word that
    is all over one long document would come before one that many documents share; less the error, a word of
    a single document counts nothing, and no least number of documents has to be chosen.

    Attributes
    ----------
    clusters : (G,) the labels of the clusters that have documents
    size : (G,) how many
    group : (L,) the cluster of each line, as a position in ``clusters``
    word : (L,) as the model counts it
    relevance : (L,) added up over the documents of the cluster, divided by their number
    score : (L,) relevance less its standard error, by which words are ordered
    documents, count : (L,) in how many documents of the cluster the word is, and how often
    documents_outside, count_outside : (L,) the same for all other documents
    """

    clusters: NDArray[Any]
    size: Codes
    group: Codes
    word: list[str]
    relevance: Floats
    score: Floats
    documents: Codes
    count: Codes
    documents_outside: Codes
    count_outside: Codes
    _like: Any = None

    def words(self, cluster: Any, n: int = 10) -> list[str]:
        """The ``n`` words that make a cluster most, strongest first."""
        groups = [i for i, label in enumerate(self.clusters.tolist()) if label == cluster]
        return [self.word[line] for group in groups for line in self._lines(group)[:n]]

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
            "score": self.score,
            "documents": self.documents,
            "count": self.count,
            "documents_outside": self.documents_outside,
            "count_outside": self.count_outside,
        }
        return build_frame(columns, self._like, backend, "summary.to_frame", same_rows=False)

    def tell(self, n_words: int = 6) -> str:
        """The strongest words of each cluster, as text."""
        if not len(self.clusters):
            return "No document belongs to the cluster it is explained for, so there is nothing to add up."
        heads = [
            "cluster",
            "documents",
            "word",
            "relevance",
            "",
            "in documents",
            "elsewhere",
            "times",
            "elsewhere",
        ]
        lines = [line for group in range(len(self.clusters)) for line in self._told(group, n_words)]
        return console.table(heads, lines, align="<><><>>>>")

    def __str__(self) -> str:
        return self.tell()

    __repr__ = __str__  # a notebook shows the table too

    def _lines(self, group: int) -> Codes:
        """The lines of a cluster, which stand together."""
        first, last = np.searchsorted(self.group, [group, group + 1])
        return np.arange(first, last)

    def _told(self, group: int, n_words: int) -> list[list[str]]:
        lines = self._lines(group)[:n_words].tolist()
        largest = max((abs(float(self.relevance[line])) for line in lines), default=0.0)
        label, size = str(self.clusters[group]), str(self.size[group])
        if not lines:
            return [[label, size, "no known word", *[""] * 6]]
        return [
            [
                label if rank == 0 else "",
                size if rank == 0 else "",
                self.word[line],
                f"{self.relevance[line]:.3g}",
                console.bar(float(self.relevance[line]), largest),
                str(self.documents[line]),
                str(self.documents_outside[line]),
                str(self.count[line]),
                str(self.count_outside[line]),
            ]
            for rank, line in enumerate(lines)
        ]


def summarize(
    texts: Sequence[str],
    words: Ragged,
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
    known = np.flatnonzero(words.kind == KNOWN)
    document = words.document[known]
    vocabulary, word = _numbered(texts, document, words.start[known], words.stop[known], normal)
    # Of each document and word in it: how often, and how much relevance
    n_words = max(1, len(vocabulary))
    pairs, place = np.unique(document * n_words + word, return_inverse=True)
    times = np.bincount(place, minlength=len(pairs))
    relevance = np.bincount(place, weights=words.relevance[known], minlength=len(pairs))
    of_document, of_word = pairs // n_words, pairs % n_words
    present, size = np.unique(assigned[explained], return_counts=True)
    member = explained[of_document]
    group = np.searchsorted(present, assigned[of_document[member]])
    lines, line = np.unique(group * n_words + of_word[member], return_inverse=True)

    def add(values: Any) -> NDArray[Any]:
        return np.bincount(line, weights=values, minlength=len(lines))

    inside, count = add(None), add(times[member]).astype(np.intp)
    total, squares = add(relevance[member]), add(relevance[member] ** 2)
    of_line, size_of = lines % n_words, size[lines // n_words]
    mean = total / size_of
    score = (total - np.sqrt(squares)) / size_of
    order = np.lexsort((-mean, -score, lines // n_words))
    everywhere = np.bincount(of_word, minlength=n_words)[of_line]
    always = np.bincount(of_word, weights=times, minlength=n_words)[of_line].astype(np.intp)
    return TextSummary(
        clusters=labels[present],
        size=size,
        group=(lines // n_words)[order],
        word=[vocabulary[i] for i in of_line[order]],
        relevance=mean[order],
        score=score[order],
        documents=inside[order],
        count=count[order],
        documents_outside=(everywhere - inside)[order],
        count_outside=(always - count)[order],
        _like=like,
    )


def _numbered(
    texts: Sequence[str], document: Codes, start: Codes, stop: Codes, normal: Callable[[str], str]
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
