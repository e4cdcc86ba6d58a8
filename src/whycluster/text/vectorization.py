"""Map documents to features with a vectorizer and the steps after it, and map relevance back to words.

The steps after the vectorizer map the terms t of a document to features z = A (t - c) + o. Let W be the
gradient of the explained evidence with respect to z. Since z is linear in t, term i contributes A_i t_i . W,
which is shared among the occurrences of the term. The remaining evidence, from the constants of the model and
the means that a step subtracted, is shared equally among all occurrences.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from scipy import sparse
from sklearn.feature_extraction.text import HashingVectorizer

from whycluster.core.arrays import Codes, Floats
from whycluster.core.attribution import Background, CodedQuery
from whycluster.core.energies import Energy
from whycluster.core.errors import InvalidInputError, UnsupportedModelError
from whycluster.data.arrays import is_sparse
from whycluster.models.adapters.registry import check_fitted, names_of
from whycluster.pipelines.affine_form import AffineForm, Matrix, to_floats
from whycluster.pipelines.steps import Step, follow, transformers_in
from whycluster.text.alignment import NotLocatedError
from whycluster.text.documents import DocumentTable
from whycluster.text.encoder import TextEncoder, WordRelevance, check_rule, propagate_gradient
from whycluster.text.finders import Finder, FoundTerms, finder_of
from whycluster.text.static_tables import StaticTable, lengths, to_unit_length
from whycluster.text.word_vectors import Lexicon, WordVectors, with_names
from whycluster.text.words import Occurrences, WordTable, group_sums

_GATHERED = 1 << 19  # number of values (4 MB) in the term vectors gathered at a time


@dataclass(frozen=True)
class Vectorization(TextEncoder):
    """A vectorizer and the steps after it.

    Attributes
    ----------
    step : the vectorizer
    lexicon : the vectors of a `WordVectors` step, or None for scikit-learn's vectorizers
    finder : finds the vectorizer's terms in a text
    form : the features that the steps compute from the terms
    cache : the documents whose terms each thread counted last, with the counts, or None if nothing is cached
    """

    step: Step
    lexicon: Lexicon | None
    finder: Finder
    form: AffineForm
    cache: dict[int, tuple[tuple[int, int], Any]] | None = None

    @classmethod
    def of(cls, step: Step, others: Sequence[tuple[str, Any]]) -> Vectorization:
        """Return the vectorization of a fitted vectorizer and the steps after it."""
        vectorizer = step.transformer
        check_fitted(*transformers_in(others))
        if isinstance(vectorizer, WordVectors):
            lexicon = vectorizer.lexicon("neuralize")
            form = lexicon.form(names_of(others[0][1]) if others else None)
            return cls(step, lexicon, lexicon.finder, follow(others, form))
        _check_vectorizer(step)
        finder = finder_of(vectorizer)
        return cls(step, None, finder, follow(others, AffineForm.of_columns(finder.n_terms)))

    @classmethod
    def of_table(cls, step: Step, table: StaticTable, others: Sequence[tuple[str, Any]]) -> Vectorization:
        """Return the vectorization of a static table and the steps after it."""
        lexicon = table.lexicon
        form = lexicon.form(None)
        if table.normalize:
            form = form.rescale(to_unit_length, lengths)
        form = with_names(form, names_of(others[0][1]) if others else None)
        return cls(step, lexicon, lexicon.finder, follow(others, form))

    @property
    def n_outputs(self) -> int:
        """The number of features."""
        return self.form.n_outputs

    def with_cache(self) -> Vectorization:
        """Return a copy that counts the terms of each block only once, for use with a single table."""
        return replace(self, cache={})

    def encode(self, texts: Sequence[str], start: int, stop: int) -> Floats:
        """Return the features of texts[start:stop], (stop - start, n_outputs)."""
        counts = self.counts(texts, start, stop)
        return to_floats(self.form.run(counts.copy()))  # copied, since a step may work in place

    def counts(self, texts: Sequence[str], start: int, stop: int) -> Any:
        """Return the sparse term counts of texts[start:stop], reusing this thread's last counts."""
        if self.cache is None:
            return self._count(texts[start:stop])
        thread, rows = threading.get_ident(), (start, stop)
        cached, counts = self.cache.get(thread, (None, None))
        if cached != rows:
            counts = self._count(texts[start:stop])
            self.cache[thread] = rows, counts
        return counts

    def _count(self, texts: Sequence[str]) -> Any:
        return self.step(texts) if self.lexicon is None else self.lexicon.frequencies(texts)

    def find(self, table: DocumentTable, start: int, stop: int) -> Occurrences:
        """Find the words and the occurrences of terms in documents start..stop."""
        return Occurrences.of([self._find_in(table, row) for row in range(start, stop)])

    def _find_in(self, table: DocumentTable, row: int) -> FoundTerms:
        try:
            return self.finder.find(table.texts[row])
        except NotLocatedError as error:
            raise InvalidInputError(
                f"{table.where}: every term that {self.step} counts must occur in the documents of "
                f"{table.name}; {error.token[:40]!r} cannot be found in document {row}. Use a tokenizer that "
                f"does not change words."
            ) from None

    def relevance_of_words(
        self, energy: Energy, table: DocumentTable, query: CodedQuery, background: Background | None
    ) -> WordRelevance:
        """Return the assignments of all documents and the relevance of their words."""
        check_rule(query)
        parts: dict[int, WordTable] = {}
        vectors, cached = TermVectors.of(self.form.matrix), self.with_cache()

        def receive(start: int, stop: int, gradient: Floats, total: Floats) -> None:
            with table.naming_documents(start, stop):
                parts[start] = _relevance_in_block(
                    cached, vectors, table, slice(start, stop), gradient, total
                )

        found = propagate_gradient(energy, replace(table, encoder=cached), query, background, receive)
        return WordRelevance(found, WordTable.join(parts), {}, self.finder.max_length)

    @cached_property
    def used_terms(self) -> Codes:
        """The terms that the steps after the vectorizer do not drop."""
        return np.unique(self.form.source)


def _check_vectorizer(step: Step) -> None:
    """Raise an error unless relevance can be traced through this scikit-learn vectorizer."""
    vectorizer = step.transformer
    if vectorizer.input != "content":
        raise UnsupportedModelError(
            f"neuralize: {step} must take the documents themselves (input='content'); it has "
            f"input={vectorizer.input!r}. Read the files into strings first."
        )
    if not isinstance(vectorizer, HashingVectorizer):
        check_fitted(vectorizer)
    elif vectorizer.alternate_sign:
        raise UnsupportedModelError(
            f"neuralize: {step} must have alternate_sign=False; it has alternate_sign=True. With "
            "alternating signs, words that share a hash may cancel out, and then none of them is assigned "
            "relevance."
        )


def _relevance_in_block(
    vectorization: Vectorization,
    vectors: TermVectors,
    table: DocumentTable,
    rows: slice,
    gradient: Floats,
    total: Floats,
) -> WordTable:
    """Return the relevance of the words of some documents.

    Parameters
    ----------
    vectorization, vectors : the vectorizer with its steps and the vectors A_i of its terms
    table, rows : the documents
    gradient : (b, m) W, the gradient with respect to the features
    total : (b,) the sum of the relevance of each document's words
    """
    form, n_terms = vectorization.form, vectorization.finder.n_terms
    counts = vectorization.counts(table.texts, rows.start, rows.stop)
    found = vectorization.find(table, rows.start, rows.stop)
    _check_counts(vectorization, table, rows.start, counts, found)
    found = found.keep_terms(vectorization.used_terms)
    terms = form.contributions(counts)
    document = np.repeat(np.arange(terms.shape[0]), np.diff(terms.indptr))
    inside = form.source[terms.indices] >= 0  # the rest is shared among all occurrences
    document, atom, value = document[inside], terms.indices[inside].astype(np.intp), terms.data[inside]
    relevance = vectors.products(gradient, document, atom) * value
    return found.share_relevance(document * n_terms + form.source[atom], relevance, n_terms, total)


def _check_counts(
    vectorization: Vectorization, table: DocumentTable, start: int, counts: Any, found: Occurrences
) -> None:
    """Raise an error if the terms found in the documents differ from those that the vectorizer counts."""
    if isinstance(vectorization.step.transformer, HashingVectorizer):  # its counts may cancel out
        return
    finder = vectorization.finder
    document = np.repeat(np.arange(counts.shape[0]), np.diff(counts.indptr))
    counted = np.sort(document * finder.n_terms + counts.indices)
    located = np.unique(found.document * finder.n_terms + found.term)
    if np.array_equal(located, counted):
        return
    differ = np.setdiff1d(located, counted)
    if finder.finds_all_terms:
        differ = np.union1d(differ, np.setdiff1d(counted, located))
    if differ.size:
        raise UnsupportedModelError(
            f"{table.where}: {vectorization.step} must count the words that its parameters imply; in "
            f"document {start + int(differ[0]) // finder.n_terms} it counts other words, which cannot be "
            "located in the text."
        )


@dataclass(frozen=True)
class TermVectors:
    """The vectors A_i of all terms.

    Attributes
    ----------
    vectors : (D, m) the transpose of A, dense or CSR, or None if A is the identity
    """

    vectors: Matrix | None

    @classmethod
    def of(cls, matrix: Matrix | None) -> TermVectors:
        """Return the vectors for A; None stands for the identity."""
        if matrix is None:
            return cls(None)
        return cls(sparse.csr_array(matrix.T) if is_sparse(matrix) else np.ascontiguousarray(matrix.T))

    def products(self, gradient: Floats, document: Codes, atom: Codes) -> Floats:
        """Return A_i . W for pairs of a term and a document, without computing any other products.

        Parameters
        ----------
        gradient : (b, m) W for each document
        document, atom : (p,) the document and the row of ``vectors`` of each pair
        """
        if self.vectors is None:
            return gradient[document, atom]
        if is_sparse(self.vectors):
            return self._sparse_products(gradient, document, atom)
        result = np.empty(len(atom))
        size = max(1, _GATHERED // gradient.shape[1])
        for start in range(0, len(atom), size):
            batch = slice(start, start + size)
            np.einsum("ij,ij->i", self.vectors[atom[batch]], gradient[document[batch]], out=result[batch])
        return result

    def _sparse_products(self, gradient: Floats, document: Codes, atom: Codes) -> Floats:
        assert self.vectors is not None
        chosen = self.vectors[atom]
        pair = np.repeat(np.arange(len(atom)), np.diff(chosen.indptr))
        products = chosen.data * gradient[document[pair], chosen.indices]
        return group_sums(pair, products, len(atom))
