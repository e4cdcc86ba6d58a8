"""The result for documents: how much every word spoke for the document's cluster."""

from __future__ import annotations

import os
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray

from whycluster.core.arrays import Codes, Floats
from whycluster.core.errors import InvalidInputError
from whycluster.data import display
from whycluster.data.files import as_path, write_text
from whycluster.data.frames import as_column, build_frame
from whycluster.data.validation import check_whole
from whycluster.explanations.explanation import BaseExplanation
from whycluster.explanations.formatting import Line, bars, rest
from whycluster.text import html
from whycluster.text.documents import DocumentTable
from whycluster.text.summary import Pairs, TextSummary, pair_up, summarize
from whycluster.text.words import KNOWN, STOPPED, WordTable

_SHOWN_IN_NOTEBOOKS = 3


class Word(NamedTuple):
    """A word of a document.

    Attributes
    ----------
    text : as it stands there
    start, stop : where: ``document[start:stop]``
    relevance : what it adds to the evidence for the cluster
    known : whether the model knows it; if not, its relevance is 0
    stop_word : it is not known because it is a stop word
    """

    text: str
    start: int
    stop: int
    relevance: float
    known: bool
    stop_word: bool


@dataclass(frozen=True, repr=False, eq=False)
class TopWords:
    """The strongest words of each document, by absolute relevance, strongest first; all (n, k).

    A word that occurs several times is added up. Documents with fewer words have "" and 0 at the end.

    Attributes
    ----------
    word : the words, as the model counts them
    relevance : signed relevance
    count : how often the word occurs in the document
    """

    word: NDArray[Any]
    relevance: Floats
    count: Codes
    _like: Any = field(default=None, repr=False)

    def __len__(self) -> int:
        return len(self.word)

    def to_frame(self, backend: str | None = None) -> Any:
        """One row per document: word_1, relevance_1, count_1, word_2, ..."""
        columns: dict[Hashable, Any] = {}
        for rank in range(self.word.shape[1]):
            columns[f"word_{rank + 1}"] = self.word[:, rank].tolist()
            columns[f"relevance_{rank + 1}"] = self.relevance[:, rank]
            columns[f"count_{rank + 1}"] = self.count[:, rank]
        return build_frame(columns, self._like, backend, "top.to_frame")

    def __repr__(self) -> str:
        n, k = self.word.shape
        return f"<TopWords: the {k} strongest of {n} documents; see word, relevance, count, to_frame()>"


@dataclass(frozen=True, eq=False, repr=False)
class TextExplanation(BaseExplanation):
    """How much every word of every document spoke for the document's cluster.

    Made by `whycluster.explain` of a pipeline that begins with a vectorizer. Relevance is in the units of
    evidence: over the words of a document it adds up to the evidence, but for the `residual`. What is no
    word's, such as the middle between two clusters, all known words share equally, so that relevance says
    how a word differs from a word that is as much of either. An n-gram shares its relevance equally among its
    words. Words that the model does not know have none.

    Attributes
    ----------
    evidence : (n,) f_c, how much better the cluster fits than its strongest competitor
    cluster, competitor, assigned : (n,) labels, as in `Explanation`
    residual : (n,) evidence minus the relevance of all words: what is due to no word. All of it in a document
        without a known word, which is where the model puts an empty text
    competition : (n, K) how the evidence was shared among the competitors
    beta, rule, threshold, fidelity, labels : as in `Explanation`
    data : the documents as they were given
    n_words : (n,) how many words each has, and how many of these are known: ``n_known``
    """

    noun: ClassVar[str] = "Document"
    instead: ClassVar[str] = "Draw its words with plot.row() or plot.clusters(), or see to_html()."
    word_table: WordTable
    _normal: Callable[[str], str]

    @property
    def residual(self) -> Floats:
        """(n,) what the words leave unexplained of the evidence."""
        return np.asarray(self.evidence - self.word_table.sums())

    @property
    def n_words(self) -> Codes:
        """(n,) how many words each document has."""
        return np.diff(self.word_table.ends)

    @property
    def n_known(self) -> Codes:
        """(n,) how many of these the model knows."""
        known = self.word_table.kind == KNOWN
        return np.bincount(self.word_table.document[known], minlength=len(self))

    @property
    def texts(self) -> Sequence[str]:
        """(n,) the documents."""
        assert isinstance(self.table, DocumentTable)
        return self.table.texts

    @property
    def _like(self) -> Any:
        assert isinstance(self.table, DocumentTable)
        return self.table.frame_like()

    def _take(self, rows: Codes) -> dict[str, Any]:
        return {"word_table": self.word_table.take(rows)}

    def __repr__(self) -> str:
        n, n_known = len(self), int(self.n_known.sum())
        counts = f"{n} document{'s' * (n != 1)}, {n_known} known words of {len(self.word_table.start)}"
        return f"<TextExplanation of {counts}, {len(self.labels)} clusters ({self._how()})>"

    def words(self, row: int = 0) -> list[Word]:
        """All words of a document, in the order of the text."""
        row = self._one(row, "words")
        text, words = self.texts[row], self.word_table
        where = words.of(row)
        rows = zip(
            words.start[where], words.stop[where], words.relevance[where], words.kind[where], strict=True
        )
        return [
            Word(
                text[start:stop], int(start), int(stop), float(r), bool(kind == KNOWN), bool(kind == STOPPED)
            )
            for start, stop, r, kind in rows
        ]

    def _one(self, row: Any, where: str) -> int:
        if not isinstance(row, (int, np.integer)) or isinstance(row, bool):
            raise InvalidInputError(f"{where}: row must be one position, a whole number; got {row!r}.")
        if not -len(self) <= row < len(self):
            raise IndexError(f"{where}: documents are chosen by position, from 0 to {len(self) - 1}.")
        return range(len(self))[row]

    def strongest_features(self) -> tuple[Pairs, Codes]:
        """The known words of the documents and their order: by document, strongest first."""
        pairs = pair_up(self.texts, self.word_table, self._normal)
        return pairs, np.lexsort((-np.abs(pairs.relevance), pairs.document))

    def top(self, n: int = 3) -> TopWords:
        """The ``n`` strongest words of each document, by absolute relevance; repeated words are added up."""
        check_whole(n, 1, "top", "n")
        pairs, order = self.strongest_features()
        counts = np.bincount(pairs.document, minlength=len(self))
        rank = np.arange(len(order)) - np.repeat(np.cumsum(counts) - counts, counts)
        order, rank = order[rank < n], rank[rank < n]
        shape = (len(self), int(rank.max(initial=-1)) + 1)
        word, relevance, count = np.full(shape, "", object), np.zeros(shape), np.zeros(shape, np.intp)
        place = pairs.document[order], rank
        word[place] = [pairs.vocabulary[code] for code in pairs.word[order]]
        relevance[place], count[place] = pairs.relevance[order], pairs.times[order]
        return TopWords(word, relevance, count, self._like)

    def describe(self, row: int = 0, n_words: int = 8) -> str:
        """One document as text: what is claimed, and the words that bear it."""
        check_whole(n_words, 1, "describe", "n_words")
        one = self[self._one(row, "describe")]
        lines = one.lines(n_words)
        cells = [
            [line.name, line.value, f"{line.relevance:.3g}", bar]
            for line, bar in zip(lines, bars(lines), strict=True)
        ]
        if not one.n_known[0]:
            cells.insert(0, ["no known word: as an empty text", "", "", ""])
        return one.claim() + "\n" + display.table(["word", "count", "relevance", ""], cells, align="<>><")

    def lines(self, n: int) -> list[Line]:
        """What the evidence of a single document consists of: the ``n`` strongest words, then the rest."""
        pairs, order = self.strongest_features()
        shown, left = order[:n], order[n:]
        lines = [
            Line(pairs.vocabulary[pairs.word[i]], str(pairs.times[i]), float(pairs.relevance[i]))
            for i in shown
        ]
        largest = float(np.abs(pairs.relevance[shown]).max(initial=0.0))
        lines += rest(left.size, "word", str(pairs.times[left].sum()), float(pairs.relevance[left].sum()))
        return lines + self.unattributed(largest, "word")

    def summary(self) -> TextSummary:
        """Which words make each cluster, over the documents in it.

        A document explained for a cluster it is not in ("why not?"), or against its own, is no member.
        """
        return summarize(
            self.texts,
            self.word_table,
            self._normal,
            self.assigned_codes,
            self.is_member,
            self.labels,
            self._like,
        )

    def to_frame(self, backend: str | None = None) -> Any:
        """One row per word, in the order of the texts.

        Its columns are document (its label in the index of a pandas series, else its position in what was
        explained), cluster, word, start, stop, relevance, known. In the library that the documents came in;
        for lists and arrays, pandas if it is installed, else polars, else pyarrow; ``backend`` chooses.
        """
        words, texts = self.word_table, self.texts
        document = words.document
        spans = zip(document.tolist(), words.start.tolist(), words.stop.tolist(), strict=True)
        columns: dict[Hashable, Any] = {
            "document": as_column(self.names_of_rows(range(len(self))))[document],
            "cluster": self.cluster[document],
            "word": [texts[row][start:stop] for row, start, stop in spans],
            "start": words.start,
            "stop": words.stop,
            "relevance": words.relevance,
            "known": words.kind == KNOWN,
        }
        return build_frame(columns, self._like, backend, "to_frame", same_rows=False)

    def to_html(self, path: str | os.PathLike[str] | None = None) -> str | None:
        """A page that shows every document as it is, its words tinted by their relevance.

        The page needs no other file and no network. With ``path`` it is written there, at once or not at all;
        without, it is returned. For some documents only, choose them first: ``exp[:20].to_html()``.
        """
        one = len(self) == 1
        title = (
            "Why a document is in its cluster" if one else f"Why {len(self)} documents are in their clusters"
        )
        page = html.page(title, [html.LEGEND, *(self.article(row) for row in range(len(self)))])
        if path is None:
            return page
        write_text(as_path(path, "to_html"), page)
        return None

    def _repr_html_(self) -> str:
        """The first documents, for a notebook."""
        shown = [self.article(row) for row in range(min(len(self), _SHOWN_IN_NOTEBOOKS))]
        left = len(self) - len(shown)
        more = [html.note(f"... and {left} more documents: see to_html(), to_frame(), summary()")] * (
            left > 0
        )
        return html.fragment([html.note(repr(self)), html.LEGEND, *shown, *more])

    def article(self, row: int = 0, heading: str | None = None) -> str:
        """One document as a part of a page of your own, which `whycluster.text.html.page` makes.

        By default its heading says what is claimed of it; whatever it is, it cannot become markup.
        """
        one = self[self._one(row, "article")]
        marks = [
            html.Mark(word.start, word.stop, word.relevance if word.known else None, word.stop_word)
            for word in one.words()
        ]
        notes = [f"{line.name}: {line.relevance:.3g}" for line in one.unattributed(0.0, "word")]
        if not one.n_known[0]:
            notes.insert(0, "no known word: explained as an empty text")
        heading = one.claim() if heading is None else heading
        return html.article(heading, one.texts[0], marks, "; ".join(notes))
