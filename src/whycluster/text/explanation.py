"""Explanations of documents: the relevance of every word for the document's cluster."""

from __future__ import annotations

import os
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray

from whycluster.core.arrays import Codes, Floats
from whycluster.core.attribution import CodedQuery
from whycluster.core.errors import InvalidInputError
from whycluster.data.files import as_path, write_text
from whycluster.data.frames import as_column, build_frame
from whycluster.data.validation import check_integer
from whycluster.explanations.base import BaseExplanation
from whycluster.explanations.exchange.plain import claims_of, with_parts
from whycluster.explanations.reasons.pairs import Pair, compared_rows, pair_of
from whycluster.explanations.top_table import TopTable
from whycluster.explanations.wording.formatting import Line, format_lines, rest
from whycluster.text import html
from whycluster.text.documents import DocumentTable
from whycluster.text.encoder import TextEncoder
from whycluster.text.finders import Finder
from whycluster.text.summary import Pairs, TextSummary, pair_up, summarize
from whycluster.text.words import CUT_OFF, KNOWN, STOP_WORD, WordTable

_NOTEBOOK_DOCUMENTS = 3
_LEAST_SHARE = 1e-6  # smaller fractions of the evidence are rounding errors
_NO_KNOWN_WORD = "no known words (treated as empty text)"


class Word(NamedTuple):
    """A word of a document.

    Attributes
    ----------
    text : the word as written in the document
    start, stop : its span: ``document[start:stop]``
    relevance : its contribution to the evidence for the cluster
    known : whether the word is in the model's vocabulary; the relevance of unknown words is 0
    stop_word : whether the word is unknown because it is a stop word
    cut_off : whether the word is unknown because the model does not read that far
    """

    text: str
    start: int
    stop: int
    relevance: float
    known: bool
    stop_word: bool
    cut_off: bool = False

    @property
    def mark(self) -> html.Mark:
        """The highlighting of the word in HTML."""
        relevance = self.relevance if self.known else None
        return html.Mark(self.start, self.stop, relevance, self.stop_word, self.cut_off)


@dataclass(frozen=True, repr=False, eq=False)
class TopWords(TopTable):
    """The k words of each document with the largest absolute relevance, in descending order.

    The relevance of repeated words is summed. Documents with fewer than k words are padded with "" and 0.

    Attributes
    ----------
    word : (n, k) the words, as the model counts them
    relevance : (n, k) their signed relevance
    count : (n, k) the number of occurrences in the document
    """

    _rows, _names = "documents", ("word", "relevance", "count")

    word: NDArray[Any]
    relevance: Floats
    count: Codes


@dataclass(frozen=True, eq=False, repr=False)
class TextExplanation(BaseExplanation):
    """The relevance of every word of every document for the document's cluster.

    Returned by `whycluster.explain` for a pipeline that begins with a vectorizer. Relevance is in units of
    evidence. The relevance of a document's words adds up to its evidence, except for the `residual`. The part
    of the evidence that belongs to no word, such as the midpoint between two clusters, is shared among all
    known words. Relevance is thus relative to a word that is neutral between the clusters. The words of an
    n-gram share its relevance equally. Words outside the model's vocabulary have relevance 0.

    Attributes
    ----------
    evidence : (n,) f_c, how much better the cluster fits than its strongest competitor
    cluster, competitor, assigned : (n,) labels, as in `Explanation`
    residual : (n,) evidence minus the relevance of all words. A document without known words is treated like
        an empty text, and all of its evidence is residual.
    competition : (n, K) how the evidence was shared among the competitors
    beta, rule, threshold, fidelity, labels : as in `Explanation`
    data : the documents as the user passed them
    residual_shares : the parts of the residual by name, (n,) each, for sentence encoders: special tokens, the
        prompt, unknown pieces, biases and positions, and the baseline of the clusters, which is the evidence
        of an embedding of zeros
    max_length : the largest number of pieces of a document that a sentence encoder reads, or None
    n_words, n_known, n_cut_off : (n,) the number of words in each document, of known words, and of words that
        are cut off because the model does not read that far
    word_table : the words of all documents, as arrays
    finder : finds the words and terms of a text in the same way as the vectorizer
    """

    noun: ClassVar[str] = "Document"
    unit: ClassVar[str] = "word"
    instead: ClassVar[str] = "Draw its words with plot.row() or plot.clusters(), or see to_html()."
    not_columns: ClassVar[str] = (
        "the words of documents. Use summary() for the words of each cluster, or pair() for those of two "
        "documents."
    )
    word_table: WordTable
    finder: Finder
    residual_shares: Mapping[str, Floats] = field(default_factory=dict)
    max_length: int | None = None

    @property
    def residual(self) -> Floats:
        """(n,) the evidence minus the relevance of all words."""
        return np.asarray(self.evidence - self.word_table.sums())

    @property
    def n_words(self) -> Codes:
        """(n,) the number of words in each document."""
        return np.diff(self.word_table.ends)

    @property
    def n_known(self) -> Codes:
        """(n,) the number of words in each document that are in the model's vocabulary."""
        known = self.word_table.kind == KNOWN
        return np.bincount(self.word_table.document[known], minlength=len(self))

    @property
    def n_cut_off(self) -> Codes:
        """(n,) the number of words in each document that are cut off because the model stops before them."""
        cut_off = self.word_table.kind == CUT_OFF
        return np.bincount(self.word_table.document[cut_off], minlength=len(self))

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
        shares = {name: share[rows] for name, share in self.residual_shares.items()}
        return {"word_table": self.word_table.take(rows), "residual_shares": shares}

    def __repr__(self) -> str:
        n, n_known = len(self), int(self.n_known.sum())
        counts = f"{n} document{'s' * (n != 1)}, {n_known} known words of {len(self.word_table.start)}"
        n_cut_off = int(self.n_cut_off.sum())
        counts += f" ({n_cut_off} cut off)" * bool(n_cut_off)
        return f"<TextExplanation of {counts}, {len(self.labels)} clusters ({self._how()})>"

    def words(self, row: int = 0) -> list[Word]:
        """Return all words of a document, in the order of the text.

        Parameters
        ----------
        row : the position of the document
        """
        row = self._position(row, "words")
        text, words = self.texts[row], self.word_table
        own = words.slice_of(row)
        rows = zip(
            words.start[own].tolist(),
            words.stop[own].tolist(),
            words.relevance[own].tolist(),
            words.kind[own].tolist(),
            strict=True,
        )
        return [
            Word(text[start:stop], start, stop, relevance, kind == KNOWN, kind == STOP_WORD, kind == CUT_OFF)
            for start, stop, relevance, kind in rows
        ]

    def _position(self, row: Any, where: str) -> int:
        """Return a document's position as a nonnegative integer; raise an error if it is out of range."""
        if not isinstance(row, (int, np.integer)) or isinstance(row, bool):
            raise InvalidInputError(f"{where}: row must be a single integer position; got {row!r}.")
        if not -len(self) <= row < len(self):
            raise IndexError(f"{where}: row must be a position from 0 to {len(self) - 1}; got {row}.")
        return range(len(self))[row]

    def strongest_features(self) -> tuple[Pairs, Codes]:
        """Return the known words, and their order by document and then by descending absolute relevance."""
        pairs = pair_up(self.texts, self.word_table, self.finder)
        return pairs, np.lexsort((-np.abs(pairs.relevance), pairs.document))

    def top(self, n: int = 3) -> TopWords:
        """Return the ``n`` strongest words of each document, by absolute relevance."""
        check_integer(n, 1, "top", "n")
        pairs, order = self.strongest_features()
        counts = np.bincount(pairs.document, minlength=len(self))
        rank = np.arange(len(order)) - np.repeat(np.cumsum(counts) - counts, counts)
        order, rank = order[rank < n], rank[rank < n]
        shape = (len(self), int(rank.max(initial=-1)) + 1)
        word, relevance, count = np.full(shape, "", object), np.zeros(shape), np.zeros(shape, np.intp)
        place = pairs.document[order], rank
        word[place] = [pairs.vocabulary[code] for code in pairs.word[order]]
        relevance[place], count[place] = pairs.relevance[order], pairs.n_times[order]
        return TopWords(word, relevance, count, _like=self._like)

    def _parts(self) -> tuple[str, int]:
        return "words", max(1, len(self.word_table.relevance) // max(1, len(self)))

    def _rows_as_data(self, n_strongest: int | None) -> list[dict[str, Any]]:
        pairs, order = self.strongest_features()
        words: list[list[dict[str, Any]]] = [[] for _ in range(len(self))]
        for i in order.tolist():
            some = words[pairs.document[i]]
            if n_strongest is None or len(some) < n_strongest:
                relevance, count = float(pairs.relevance[i]), int(pairs.n_times[i])
                some.append({"word": pairs.vocabulary[pairs.word[i]], "relevance": relevance, "count": count})
        totals = np.bincount(pairs.document, pairs.relevance, len(self))
        return with_parts(claims_of(self), words, totals, "words")

    def describe(self, row: int = 0, n_words: int = 8) -> str:
        """Describe one document as text, with its cluster and its strongest words.

        Parameters
        ----------
        row : the position of the document
        n_words : the number of words to list
        """
        check_integer(n_words, 1, "describe", "n_words")
        one = self[self._position(row, "describe")]
        first = "" if one.n_known[0] else _NO_KNOWN_WORD
        table = format_lines(one.lines(n_words), ["word", "count", "relevance"], first)
        return "\n".join([one.claim(), table, *one._cut_off_sentences()])

    def _cut_off_sentences(self) -> list[str]:
        """Return a sentence if words of a single document are cut off."""
        n_cut_off, n_words = int(self.n_cut_off[0]), int(self.n_words[0])
        if not n_cut_off:
            return []
        return [f"{n_cut_off:,} of its {n_words:,} words are cut off, because {self.what_is_read}."]

    @property
    def what_is_read(self) -> str:
        """How much of a document the model reads, if words are cut off."""
        characters = self.finder.n_characters
        first = f"the first {characters:,} characters of " if characters else ""
        return f"the model reads at most {self.max_length:,} pieces of {first}a document"

    def unattributed(self, largest: float, noun: str) -> list[Line]:
        """Return lines for the parts of a single document's evidence that belong to no word."""
        if not self.residual_shares:
            return super().unattributed(largest, noun)
        least = _LEAST_SHARE * abs(float(self.evidence[0]))
        named = {name: float(share[0]) for name, share in self.residual_shares.items()}
        lines = [Line(name, "", value, False) for name, value in named.items() if abs(value) > least]
        left = float(self.residual[0]) - sum(line.relevance for line in lines)
        return lines + ([Line(f"no single {noun}", "", left, False)] if abs(left) > least else [])

    def lines(self, n: int) -> list[Line]:
        """Return lines for the ``n`` strongest words of a document, and one line for all other words."""
        pairs, order = self.strongest_features()
        top, left = order[:n], order[n:]
        lines = [
            Line(pairs.vocabulary[pairs.word[i]], str(pairs.n_times[i]), float(pairs.relevance[i]))
            for i in top
        ]
        largest = float(np.abs(pairs.relevance[top]).max(initial=0.0))
        lines += rest(left.size, "word", str(pairs.n_times[left].sum()), float(pairs.relevance[left].sum()))
        return lines + self.unattributed(largest, "word")

    def summary(self) -> TextSummary:
        """Summarize each cluster by the words that define it, averaged over its documents.

        Documents that were explained for a cluster they are not in ("why not?") or against their own cluster
        are left out.
        """
        return summarize(
            self.texts,
            self.word_table,
            self.finder,
            self.assigned_codes,
            self.is_member,
            self.labels,
            self._like,
        )

    def pair(self, a: int, b: int) -> Pair:
        """Return why two documents are in the same cluster, or what separates them, word by word.

        If the documents are in different clusters, the evidence of each is that for its own cluster against
        the cluster of the other one. If they are in the same cluster, it is that against their strongest
        common competitor, the one with the least total evidence. The contributions of the words add up to the
        evidence of both, except for the residual.

        Parameters
        ----------
        a, b : the positions of the two documents
        """
        rows = compared_rows(self, a, b)
        table = self.table.take(rows.positions)
        assert isinstance(table, DocumentTable)
        encoder = table.encoder
        assert isinstance(encoder, TextEncoder)
        query = CodedQuery(rows.cluster, rows.competitor)
        result = encoder.relevance_of_words(self.energy, table, query, None)
        pairs = pair_up(table.texts, result.words, self.finder)
        parts, times = np.zeros((2, len(pairs.vocabulary))), np.zeros((2, len(pairs.vocabulary)), np.intp)
        parts[pairs.document, pairs.word], times[pairs.document, pairs.word] = pairs.relevance, pairs.n_times
        names: list[Hashable] = list(pairs.vocabulary)
        return pair_of(self, rows, result.found.evidence, parts, times, names, "word")

    def to_frame(self, backend: str | None = None) -> Any:
        """Return a frame with one row per word, in the order of the documents.

        The columns are document, cluster, word, start, stop, relevance and known. ``document`` is the index
        label for a pandas series and the position otherwise. By default, the frame comes from the same
        library as the documents; for lists and arrays, pandas is used if installed, else polars, else
        pyarrow. ``backend`` selects another library.
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
        """Make a self-contained HTML page of all documents, with words highlighted by relevance.

        If ``path`` is given, the page is written to that file, either completely or not at all. Otherwise,
        the page is returned. To show only some documents, select them first: ``exp[:20].to_html()``.
        """
        one = len(self) == 1
        title = (
            "Why a document is in its cluster" if one else f"Why {len(self)} documents are in their clusters"
        )
        articles = [self.article(row) for row in range(len(self))]
        page = html.page(title, [html.legend(articles), *articles])
        if path is None:
            return page
        write_text(as_path(path, "to_html"), page)
        return None

    def _repr_html_(self) -> str:
        """Return the first documents as HTML, for a notebook."""
        articles = [self.article(row) for row in range(min(len(self), _NOTEBOOK_DOCUMENTS))]
        left = len(self) - len(articles)
        more = [html.note(f"... and {left} more documents: see to_html(), to_frame(), summary()")]
        return html.fragment([html.note(repr(self)), html.legend(articles), *articles, *more * (left > 0)])

    def article(self, row: int = 0, heading: str | None = None) -> str:
        """Return one document as HTML, for a page created with `whycluster.text.html.page`.

        By default, the heading names the document's cluster. Headings are escaped, so they cannot inject
        markup.
        """
        one = self[self._position(row, "article")]
        marks = [word.mark for word in one.words()]
        notes = [f"{line.name}: {line.relevance:.3g}" for line in one.unattributed(0.0, "word")]
        if not one.n_known[0]:
            notes.insert(0, _NO_KNOWN_WORD)
        notes += one._cut_off_sentences()
        heading = one.claim() if heading is None else heading
        return html.article(heading, one.texts[0], marks, "; ".join(notes))
