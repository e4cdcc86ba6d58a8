"""Summarize each cluster of documents by the words that define it."""

from __future__ import annotations

import re
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray

from whycluster.core.arrays import Codes, Floats
from whycluster.core.errors import InvalidInputError
from whycluster.data import display
from whycluster.data.display import join_words
from whycluster.data.frames import build_frame
from whycluster.data.labels import noise_mask
from whycluster.data.validation import check_integer
from whycluster.explanations.exchange.arrow import ArrowTable
from whycluster.explanations.exchange.json_values import to_text
from whycluster.explanations.exchange.plain import describe_clusters, plain_list
from whycluster.explanations.wording.formatting import Line, rest
from whycluster.text.finders import Finder
from whycluster.text.words import KNOWN, WordTable, group_sums

PLAIN = "stop words and symbols"
_N_WORDS = 3  # number of words in a headline
_ERRORS = (
    2.0  # number of standard errors; with 1, words from a few unusual messages in 20 newsgroups rank too high
)


@dataclass(frozen=True, repr=False, eq=False)
class TextSummary(ArrowTable):
    """The words that define each cluster. `print` the summary, or convert it with `to_frame`.

    There are E entries, one for each cluster and each known word of its documents. Within a cluster, words
    are sorted by score, which is their mean share of a document's relevance minus two standard errors of that
    mean. Shares give each document the same weight, although evidence may be a hundred times larger for a
    text of two words than for one of two hundred. Subtracting the standard errors lowers the rank of words
    that dominate a single document but say little about the cluster, so no minimum number of documents is
    needed. In clusters of fewer than 16 documents, the standard errors count less, so that a word in all
    documents never ranks below a word in none.

    Attributes
    ----------
    clusters : (G,) labels of the clusters that contain documents
    size : (G,) number of documents
    group : (E,) cluster of each entry, as a position in ``clusters``
    word : (E,) the word, as the model counts it
    relevance : (E,) mean relevance over the documents of the cluster
    share : (E,) mean share of a document's total absolute relevance
    score : (E,) share minus its standard errors, by which words are sorted
    documents, count : (E,) number of the cluster's documents that contain the word, and number of its
        occurrences
    documents_outside, count_outside : (E,) the same counts for all other documents
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

    def strongest(self, cluster: Any, n: int = 10) -> Codes:
        """Return the entries of the ``n`` strongest words of a cluster, sorted by score.

        Words that are, on average, evidence against the cluster are left out.
        """
        check_integer(n, 1, "summary", "n")
        groups = [i for i, label in enumerate(self.clusters.tolist()) if label == cluster]
        if not groups:
            labels = ", ".join(map(repr, self.clusters.tolist()))
            raise InvalidInputError(
                f"summary: cluster must be one that contains documents ({labels}); got {cluster!r}."
            )
        return self._strongest(groups[0], n)

    def words(self, cluster: Any, n: int = 10) -> list[str]:
        """Return the ``n`` strongest words of a cluster, sorted by score.

        Parameters
        ----------
        cluster : the label of the cluster
        n : the largest number of words; words that are evidence against the cluster are left out
        """
        return [self.word[entry] for entry in self.strongest(cluster, n)]

    def names(self, n: int = 3) -> dict[Any, str]:
        """Return a provisional name for each cluster, consisting of its ``n`` strongest words.

        English stop words and symbols such as punctuation are left out, unless a cluster has no other words.
        """
        check_integer(n, 1, "summary", "n")
        labels = self.clusters.tolist()
        return {
            label: ", ".join(self.word[entry] for entry in self._naming(group, n))
            for group, label in enumerate(labels)
        }

    def telling_words(self, cluster: Any, n: int = 10) -> list[str]:
        """Return the ``n`` strongest words of a cluster without stop words and symbols, as in `names`."""
        return [self.word[entry] for entry in self.telling(cluster, n)]

    def telling(self, cluster: Any, n: int = 10) -> Codes:
        """Return the entries of the ``n`` strongest words of a cluster without stop words and symbols."""
        return self._naming(self.clusters.tolist().index(cluster), n)

    def _naming(self, group: int, n: int) -> Codes:
        """Return the entries of the ``n`` strongest words of a cluster that are meaningful on their own."""
        top = self._strongest(group, len(self.word))
        telling = self._are_telling(top)
        return (top[telling] if telling.any() else top)[:n]

    def _are_telling(self, entries: Codes) -> NDArray[np.bool_]:
        """Return whether entries are neither stop words nor symbols."""
        return np.array([_is_telling(self.word[entry]) for entry in entries], dtype=bool)

    def share_of_plain(self, cluster: Any) -> float | None:
        """Return the sum of the shares of the words that `telling` leaves out, or None if there are none."""
        entries = np.flatnonzero(self.group == self.clusters.tolist().index(cluster))
        left_out = entries[~self._are_telling(entries)]
        is_named = any(map(_is_telling, self.telling_words(cluster, 1)))
        return float(self.share[left_out].sum()) if is_named and len(left_out) else None

    def to_frame(self, backend: str | None = None) -> Any:
        """Return a frame with one row per cluster and word; each cluster begins with its strongest words.

        By default, the frame comes from the same library as the documents; ``backend`` ("pandas", "polars" or
        "pyarrow") selects another.
        """
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

    def to_dict(self, n_strongest: int | None = None) -> dict[str, Any]:
        """Return the summary as plain data, as the schema of `Explanation.to_json` describes it.

        Parameters
        ----------
        n_strongest : the number of words to list for each cluster; by default all of them
        """
        if n_strongest is not None:
            check_integer(n_strongest, 1, "to_dict", "n_strongest", "None or ")
        keys = ("word", "relevance", "share", "score", "documents", "count")
        entries = list(zip(*(plain_list(getattr(self, key)) for key in keys), strict=True))
        words: list[list[dict[str, Any]]] = [[] for _ in self.clusters]
        for group, entry in zip(self.group.tolist(), entries, strict=True):
            if n_strongest is None or len(words[group]) < n_strongest:
                words[group].append(dict(zip(keys, entry, strict=True)))
        return describe_clusters(self, words, "words")

    def to_json(self, n_strongest: int | None = None) -> str:
        """Return `to_dict` as JSON.

        Parameters
        ----------
        n_strongest : as for `to_dict`
        """
        return to_text(self.to_dict(n_strongest))

    def describe(self, n_words: int = 6) -> str:
        """Return the strongest words of each cluster as text, with one line for all stop words and symbols.

        Parameters
        ----------
        n_words : the number of words to list for each cluster
        """
        check_integer(n_words, 1, "describe", "n_words")
        if not len(self.clusters):
            return "No document belongs to the cluster it is explained for, so there is nothing to average."
        heads = [
            "cluster",
            "documents",
            "word",
            "share",
            "",
            "in documents",
            "elsewhere",
            "count",
            "elsewhere",
        ]
        rows = [row for group in range(len(self.clusters)) for row in self._cells(group, n_words)]
        return display.table(heads, rows, align="<><><>>>>")

    def __str__(self) -> str:
        return self.describe()

    __repr__ = __str__  # a notebook also shows the table

    def headlines(self) -> list[str]:
        """Return the strongest words of each cluster, such as "goal, team and season"."""
        return [self._headline(group, far) for group, far in enumerate(noise_mask(self.clusters.tolist()))]

    def _headline(self, group: int, is_noise: bool) -> str:
        top = self._naming(group, _N_WORDS)
        if not len(top):
            return "No known word sets it apart"
        text = join_words(display.format_items([self.word[entry] for entry in top]))
        return f"Far from all clusters, mostly because of {text}" if is_noise else text

    def _strongest(self, group: int, n: int) -> Codes:
        first, last = np.searchsorted(self.group, [group, group + 1])
        return np.asarray(first + np.flatnonzero(self.share[first:last] > 0))[:n]

    def bars_of(self, group: int, n: int) -> list[Line]:
        """Return lines for the ``n`` strongest words of a cluster and one line for all other words.

        As in `names`, stop words and symbols are among the other words.
        """
        top = self._naming(group, n)
        lines = [Line(self.word[entry], "", float(self.share[entry])) for entry in top]
        others = np.setdiff1d(np.flatnonzero(self.group == group), top)
        return lines + rest(len(others), self.noun, "", float(self.share[others].sum()))

    def grid(self, n: int) -> tuple[list[str], Floats, int]:
        """Return about ``n`` of the strongest words, their shares, and the total number of words.

        The shares have shape (G, number of returned words).
        """
        n_clusters, codes = len(self.clusters), {word: i for i, word in enumerate(dict.fromkeys(self.word))}
        each = max(1, n // max(1, n_clusters))
        top = [entry for group in range(n_clusters) for entry in self._naming(group, each).tolist()]
        names = list(dict.fromkeys(self.word[entry] for entry in top))
        share = np.zeros((n_clusters, len(codes)))
        share[self.group, [codes[word] for word in self.word]] = self.share
        return names, share[:, [codes[name] for name in names]], len(codes)

    def _cells(self, group: int, n_words: int) -> list[list[str]]:
        """Return the strongest words of one cluster as rows of the printed table."""
        top = self._naming(group, n_words).tolist()
        largest = max((abs(float(self.share[entry])) for entry in top), default=0.0)
        label, size = str(self.clusters[group]), str(self.size[group])
        if not top:
            return [[label, size, "no known word", *[""] * 6]]
        rows = [
            [
                label if rank == 0 else "",
                size if rank == 0 else "",
                self.word[entry],
                f"{self.share[entry]:.1%}",
                display.bar(float(self.share[entry]), largest),
                str(self.documents[entry]),
                str(self.documents_outside[entry]),
                str(self.count[entry]),
                str(self.count_outside[entry]),
            ]
            for rank, entry in enumerate(top)
        ]
        share = self.share_of_plain(self.clusters.tolist()[group])
        return rows if share is None else [*rows, ["", "", PLAIN, f"{share:.1%}", *[""] * 5]]


_CONTRACTION = re.compile("(?:n['\u2019]t|['\u2019](?:d|ll|m|re|s|ve))$")  # as in don't, you're and it's


def _is_telling(word: str) -> bool:
    from sklearn.feature_extraction.text import ENGLISH_STOP_WORDS

    return any(map(str.isalnum, word)) and _CONTRACTION.sub("", word.lower()) not in ENGLISH_STOP_WORDS


def summarize(
    texts: Sequence[str],
    words: WordTable,
    finder: Finder,
    assigned: Codes,
    explained: NDArray[np.bool_],
    labels: NDArray[Any],
    like: Any,
) -> TextSummary:
    """Average the relevance of words over the documents of each cluster.

    Parameters
    ----------
    texts, words : the n documents and their words
    finder : normalizes words
    assigned : (n,) code of each document's cluster
    explained : (n,) whether the document is explained for that cluster
    labels : (K,) labels of the codes
    like : a frame from the library that `TextSummary.to_frame` should use
    """
    pairs = pair_up(texts, words, finder)
    present, size = np.unique(assigned[explained], return_counts=True)
    member = explained[pairs.document]
    n_words = max(1, len(pairs.vocabulary))
    group = np.searchsorted(present, assigned[pairs.document[member]])
    entries, entry = np.unique(group * n_words + pairs.word[member], return_inverse=True)
    group, word = entries // n_words, entries % n_words

    def mean(values: Floats) -> Floats:
        return np.asarray(group_sums(entry, values[member], len(entries)) / size[group])

    document_share = _shares(pairs.relevance, pairs.document)
    share = mean(document_share)
    error = np.sqrt(mean(document_share**2) / size[group])
    score = share - np.minimum(_ERRORS, np.sqrt(size[group]) / 2) * error
    # Words whose standard errors exceed their share may be due to chance. They come last, sorted by share.
    by_chance = score <= 0
    order = np.lexsort((-np.where(by_chance, share, score), by_chance, group))
    documents, count = (_group_counts(entry, n, len(entries)) for n in (None, pairs.n_times[member]))
    all_documents, all_count = (_group_counts(pairs.word, n, n_words)[word] for n in (None, pairs.n_times))
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
        documents_outside=(all_documents - documents)[order],
        count_outside=(all_count - count)[order],
        _like=like,
    )


class Pairs(NamedTuple):
    """Pairs of a document and a distinct known word in it, sorted by document.

    Attributes
    ----------
    vocabulary : the distinct words of all documents
    document, word : the document of each pair and the word as a position in ``vocabulary``
    n_times : the number of occurrences of the word in the document
    relevance : the total relevance of these occurrences
    """

    vocabulary: list[str]
    document: Codes
    word: Codes
    n_times: Codes
    relevance: Floats


def pair_up(texts: Sequence[str], words: WordTable, finder: Finder) -> Pairs:
    """Return the pairs of a document and a known word in it."""
    known = np.flatnonzero(words.kind == KNOWN)
    document = words.document[known]
    vocabulary, word = _encode_words(texts, document, words.start[known], words.stop[known], finder)
    n_words = max(1, len(vocabulary))
    pairs, place = np.unique(document * n_words + word, return_inverse=True)
    return Pairs(
        vocabulary=vocabulary,
        document=pairs // n_words,
        word=pairs % n_words,
        n_times=_group_counts(place, None, len(pairs)),
        relevance=group_sums(place, words.relevance[known], len(pairs)),
    )


def _group_counts(group: Codes, values: Codes | None, n_groups: int) -> Codes:
    """Return the sum of each group's values as integers, or each group's size if no values are given."""
    return np.bincount(group, weights=values, minlength=n_groups).astype(np.intp)


def _shares(relevance: Floats, document: Codes) -> Floats:
    """Return relevance as a share of the document's total absolute relevance."""
    total = group_sums(document, np.abs(relevance), 0)[document]
    share = np.zeros_like(relevance)
    np.divide(relevance, total, out=share, where=total > 0)
    return share


def _encode_words(
    texts: Sequence[str], document: Codes, start: NDArray[Any], stop: NDArray[Any], finder: Finder
) -> tuple[list[str], Codes]:
    """Return the distinct normalized words and the code of each word among them."""
    as_written: dict[str, int] = {}  # so that each spelling is normalized only once
    vocabulary: dict[str, int] = {}
    codes = np.empty(len(document), dtype=np.intp)
    spans = zip(document.tolist(), start.tolist(), stop.tolist(), strict=True)
    for i, (row, first, last) in enumerate(spans):
        word = texts[row][first:last]
        code = as_written.get(word)
        if code is None:
            code = vocabulary.setdefault(finder.normalize(word), len(vocabulary))
            as_written[word] = code
        codes[i] = code
    return list(vocabulary), codes
