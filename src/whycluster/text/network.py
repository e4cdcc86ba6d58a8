"""A network of documents: a vectorizer, steps behind it, a model; relevance goes down to the words.

Behind the vectorizer, whose terms are the columns here, the steps give z = A (t - c) + o. The gradient of
what is explained, W, is linear in A, so that a term i brings A_i t_i . W; its occurrences share that. What no
term brings (constants of the model, means that were subtracted) all occurrences share equally.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy import sparse
from sklearn.feature_extraction.text import CountVectorizer, HashingVectorizer
from sklearn.pipeline import FeatureUnion, Pipeline

from whycluster.core import attribution
from whycluster.core.arrays import Codes, Floats
from whycluster.core.attribution import Attribution, Background, CodedQuery
from whycluster.core.energies import Energy
from whycluster.core.errors import InvalidInputError, UnsupportedModelError
from whycluster.core.rules import RULES, SEQUENTIAL
from whycluster.data.arrays import is_sparse
from whycluster.models.adapters.registry import AwaitingColumns, OnlyLabels, first_look
from whycluster.models.estimators import check_fitted, names_of
from whycluster.models.network import Network
from whycluster.pipelines.affine_form import AffineForm, Matrix, to_floats
from whycluster.pipelines.front_ends import FrontEnd, register
from whycluster.pipelines.network import check_not_deep, check_width
from whycluster.pipelines.steps import Step, follow, unnested
from whycluster.text.documents import DocumentTable
from whycluster.text.explanation import TextExplanation
from whycluster.text.spans import CharacterFinder, Finder, Found, NotLocatedError, finder_of
from whycluster.text.word_vectors import WordVectors
from whycluster.text.words import Occurrences, WordTable, add_up

if TYPE_CHECKING:
    import torch

VECTORIZERS = (CountVectorizer, HashingVectorizer, WordVectors)
_GATHERED = 1 << 19  # numbers (4 MB) of the vectors of terms that are taken at a time


def takes_text(steps: Sequence[tuple[str, Any]]) -> bool:
    """Whether the first step is a vectorizer; raise if one comes later, or beside others."""
    vectorizers = [i for i, (_, step) in enumerate(steps) if isinstance(step, VECTORIZERS)]
    if vectorizers and vectorizers[0] > 0:
        raise UnsupportedModelError(
            f"neuralize: a vectorizer must be the first step, so that its words can be marked in the texts "
            f"as they are; {Step(*steps[0])} comes before it. Give what that does to the vectorizer, as its "
            f"preprocessor, or do it to the documents first."
        )
    first = steps[0][1] if steps else None
    if isinstance(first, FeatureUnion) and any(
        isinstance(step, VECTORIZERS) for _, inner in first.transformer_list for _, step in _inside(inner)
    ):
        raise UnsupportedModelError(
            f"neuralize: a single vectorizer must be the first step; {Step(*steps[0])} puts several things "
            f"side by side there. Let the steps behind one vectorizer do that, or take one with more n-grams."
        )
    return bool(vectorizers)


def _inside(step: Any) -> list[tuple[str, Any]]:
    return unnested(step) if isinstance(step, Pipeline) else [("", step)]


def text_network(steps: Sequence[tuple[str, Any]], last: Network) -> Network:
    """The network of a pipeline that begins with a vectorizer.

    Parameters
    ----------
    steps : its fitted steps but the last, with their names
    last : the network of the last one
    """
    front = Front.of(Step(*steps[0]), steps[1:])
    if front.form.below is not None or last.categories is not None:
        raise UnsupportedModelError(
            "neuralize: behind a vectorizer, relevance is followed through steps that are linear, that take "
            "each term on its own, or that give a document unit length, to a model of numbers. In this "
            "pipeline, features that were mixed of many terms are changed one by one, or taken for "
            "categories."
        )
    check_width(front.form, last)
    return TextNetwork(front, last)


class TextNetwork(Network):
    """The network of a pipeline that begins with a vectorizer: it explains documents by their words.

    Parameters
    ----------
    front : the vectorizer and the steps behind it
    last : the network of the model at the end
    """

    def __init__(self, front: Front, last: Network) -> None:
        super().__init__(last.energy, labels=last.labels, fidelity=last.fidelity)
        self.front, self.last = front, last

    takes_any_kind = True
    text_columns: frozenset[int] = frozenset()
    explains_columns = False

    @property
    def is_checked(self) -> bool:
        """Whether the model at the end compares all rows with its own prediction."""
        return self.last.is_checked

    def open(self, X: Any, where: str, *, name: str = "X", whole: bool = True, **names: Any) -> DocumentTable:  # noqa: ARG002
        """Return the user's documents as a table."""
        if names.get("feature_names") is not None:
            raise InvalidInputError(
                f"{where}: feature_names is for arrays of numbers; documents are explained by their words. "
                "Leave it out."
            )
        table = DocumentTable.of(X, self.front.make, self.front.form.n_outputs, where, name)
        if self.is_checked:
            for _, block in table.blocks():
                self.last.open(block, where)
        return table

    def explain_rows(
        self, X: Any, query: CodedQuery, background: Any, feature_names: Sequence[Hashable] | None
    ) -> TextExplanation:
        """Explain documents by their words."""
        table = self.open(X, "explain", feature_names=feature_names)
        rows = None if background is None else self.open_background(background, table)
        found, words = relevance_of_words(self.front, self.energy, table, query, rows)
        return TextExplanation.of(
            found,
            query,
            self.energy,
            table,
            self.labels,
            self.fidelity,
            word_table=words,
            _normal=self.front.finder.normal,
        )

    def to_torch(self, cluster: Any = None) -> torch.nn.Module:  # noqa: ARG002
        """Raise: the steps of a pipeline need not be layers."""
        raise UnsupportedModelError(
            "to_torch: the steps of a pipeline need not be layers. Take the network of its last step: "
            "wc.neuralize(pipeline[-1]).to_torch(), for what pipeline[:-1].transform(X) gives."
        )


class _VectorizerFrontEnd(FrontEnd):
    """Pipelines that begin with a vectorizer."""

    def takes(self, steps: Sequence[tuple[str, Any]]) -> bool:
        """Return whether the first step is a vectorizer."""
        return takes_text(steps)

    def network(self, steps: Sequence[tuple[str, Any]], model: Any) -> Network:
        """Return the network of a vectorizer, the steps behind it, and a model."""
        return text_network(steps, _behind_vectorizer(model))


def _behind_vectorizer(model: Any) -> Network:
    """Return the network of a model behind a vectorizer; raise if it has none."""
    found = first_look(model)
    if isinstance(found, AwaitingColumns):
        raise UnsupportedModelError(
            f"neuralize: a {found.kind} takes categories, and a vectorizer gives numbers."
        )
    if isinstance(found, OnlyLabels):
        raise UnsupportedModelError(
            f"neuralize: {found.kind} say which cluster each document is in, but not why. Put a surrogate in "
            "its place, which can be explained and says how well it matches: "
            "make_pipeline(vectorizer, TruncatedSVD(100), wc.Surrogate()).fit(documents, labels)."
        )
    check_not_deep(found, model)
    return found


register(_VectorizerFrontEnd())


@dataclass(frozen=True)
class Front:
    """What stands before the clusters.

    Attributes
    ----------
    step : the vectorizer
    count : from documents to its terms, sparse
    finder : where these are in a text
    form : what the steps behind make of the terms
    last : while one table is explained, of each thread the rows that it has counted last, and the counts
    """

    step: Step
    count: Callable[[Sequence[str]], Any]
    finder: Finder
    form: AffineForm
    last: dict[int, tuple[Any, Any]] | None = None

    @classmethod
    def of(cls, step: Step, behind: Sequence[tuple[str, Any]]) -> Front:
        """A vectorizer and the steps behind it."""
        vectorizer = step.transformer
        if isinstance(vectorizer, WordVectors):
            lexicon = vectorizer.lexicon("neuralize")
            form = lexicon.form(names_of(behind[0][1]) if behind else None)
            return cls(step, lexicon.frequencies, lexicon.finder, follow(behind, form))
        if vectorizer.input != "content":
            raise UnsupportedModelError(
                f"neuralize: {step} must take the texts themselves, input='content'; it has "
                f"input={vectorizer.input!r}. Read the files first."
            )
        if isinstance(vectorizer, HashingVectorizer) and vectorizer.alternate_sign:
            raise UnsupportedModelError(
                f"neuralize: {step} must have alternate_sign=False; with signs, words that fall together may "
                f"cancel each other, and none of them can be held to account."
            )
        if not isinstance(vectorizer, HashingVectorizer):
            check_fitted(vectorizer)
        finder = finder_of(vectorizer)
        return cls(step, step, finder, follow(behind, AffineForm.of_columns(finder.n_terms)))

    def make(self, table: DocumentTable, start: int, stop: int) -> Floats:
        """What comes to the model of documents start..stop, (b, m)."""
        counts = self.counted(table, start, stop)
        return to_floats(self.form.run(counts.copy()))  # a step may work in place

    def counted(self, table: DocumentTable, start: int, stop: int) -> Any:
        """The terms of documents start..stop; what a thread has just counted is not counted again."""
        if self.last is None:
            return self.count(table.texts[start:stop])
        thread = threading.get_ident()
        rows, counts = self.last.get(thread, (None, None))
        if rows != (start, stop):
            counts = self.count(table.texts[start:stop])
            self.last[thread] = (start, stop), counts
        return counts

    def find(self, table: DocumentTable, start: int, stop: int) -> Occurrences:
        """The words of some documents and the occurrences of terms among them."""
        return Occurrences.of([self._find_one(table, row) for row in range(start, stop)])

    def _find_one(self, table: DocumentTable, row: int) -> Found:
        try:
            return self.finder.find(table.texts[row])
        except NotLocatedError as error:
            raise InvalidInputError(
                f"{table.where}: {table.name} must have the terms that {self.step} makes in the text itself, "
                f"to be marked there; in document {row}, {error.token[:40]!r} cannot be found. Use a "
                f"tokenizer that leaves words as they stand."
            ) from None

    @cached_property
    def used(self) -> Codes:
        """The terms that the steps behind the vectorizer leave in."""
        return np.unique(self.form.source)


def relevance_of_words(
    front: Front, energy: Energy, table: DocumentTable, query: CodedQuery, background: Background | None
) -> tuple[Attribution, WordTable]:
    """Return the assignments of all documents and the relevance of their words."""
    if query.rule == SEQUENTIAL:
        others = ", ".join(repr(rule) for rule in RULES if rule != SEQUENTIAL)
        raise InvalidInputError(
            "explain: rule must be one that adds over features for documents, whose words share all "
            f"features; got 'sequential'. Choose one of {others}."
        )
    parts: dict[int, WordTable] = {}
    gather, once = _Gather.of(front.form.matrix), replace(front, last={})

    def receive(start: int, stop: int, slopes: Floats, total: Floats) -> None:
        with table.telling(start, stop):
            parts[start] = share_out(once, gather, table, slice(start, stop), slopes, total)

    found = attribution.propagate_gradient(energy, replace(table, make=once.make), query, background, receive)
    return found, WordTable.joined(parts)


def share_out(
    front: Front, gather: _Gather, table: DocumentTable, rows: slice, slopes: Floats, total: Floats
) -> WordTable:
    """The relevance of the words of some documents.

    Parameters
    ----------
    slopes : (b, m) W, the gradient in what the steps give
    total : (b,) what the words of each document are to add up to
    """
    counts = front.counted(table, rows.start, rows.stop)
    found = front.find(table, rows.start, rows.stop)
    _check_counts(front, table, rows.start, counts, found)
    found = found.only(front.used)
    terms = front.form.bring(counts)
    document = np.repeat(np.arange(terms.shape[0]), np.diff(terms.indptr))
    inside = front.form.source[terms.indices] >= 0  # what is no term's, all share
    document, atom, value = document[inside], terms.indices[inside].astype(np.intp), terms.data[inside]
    brought = gather(slopes, document, atom) * value
    key = document * front.finder.n_terms + front.form.source[atom]
    return found.bear(key, brought, front.finder.n_terms, total)


def _check_counts(front: Front, table: DocumentTable, start: int, counts: Any, found: Occurrences) -> None:
    """Raise if the terms that were found in the texts are others than those that the vectorizer counts."""
    if isinstance(front.step.transformer, HashingVectorizer):  # its terms may cancel each other
        return
    document = np.repeat(np.arange(counts.shape[0]), np.diff(counts.indptr))
    counted = np.sort(document * front.finder.n_terms + counts.indices)
    seen = np.unique(found.document * front.finder.n_terms + found.term)
    if np.array_equal(seen, counted):
        return
    differ = np.setdiff1d(seen, counted)
    if not isinstance(front.finder, CharacterFinder):  # there, white space is a term that no word holds
        differ = np.union1d(differ, np.setdiff1d(counted, seen))
    if differ.size:
        raise UnsupportedModelError(
            f"{table.where}: {front.step} does not count the words of a text as its parameters say, so they "
            f"cannot be marked there: document {start + int(differ[0]) // front.finder.n_terms} differs."
        )


@dataclass(frozen=True)
class _Gather:
    """A_i . W for pairs of a term and a document, without the products of all terms with all documents.

    Attributes
    ----------
    vectors : (D, m) the transpose of A, dense or CSR; None where A is the identity
    """

    vectors: Matrix | None

    @classmethod
    def of(cls, matrix: Matrix | None) -> _Gather:
        """From A."""
        if matrix is None:
            return cls(None)
        return cls(sparse.csr_array(matrix.T) if is_sparse(matrix) else np.ascontiguousarray(matrix.T))

    def __call__(self, slopes: Floats, document: Codes, atom: Codes) -> Floats:
        """One number for each pair."""
        if self.vectors is None:
            return slopes[document, atom]
        if is_sparse(self.vectors):
            return self._of_sparse(slopes, document, atom)
        result = np.empty(len(atom))
        size = max(1, _GATHERED // slopes.shape[1])
        for start in range(0, len(atom), size):
            some = slice(start, start + size)
            np.einsum("ij,ij->i", self.vectors[atom[some]], slopes[document[some]], out=result[some])
        return result

    def _of_sparse(self, slopes: Floats, document: Codes, atom: Codes) -> Floats:
        assert self.vectors is not None
        chosen = self.vectors[atom]
        pair = np.repeat(np.arange(len(atom)), np.diff(chosen.indptr))
        products = chosen.data * slopes[document[pair], chosen.indices]
        return add_up(pair, products, len(atom))
