"""A vectorizer that represents documents by the means of their word vectors (Section VI-A of the paper)."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import narwhals as nw
import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import sparse
from sklearn.feature_extraction.text import ENGLISH_STOP_WORDS

from whycluster.core.arrays import Codes, Floats
from whycluster.core.errors import InvalidInputError
from whycluster.data.arrays import as_array_or_empty
from whycluster.data.frames import installed
from whycluster.pipelines.affine_form import AffineForm
from whycluster.text.documents import read_documents
from whycluster.text.estimator import DocumentTransformer
from whycluster.text.finders import STOP_TERM, LetterWords, TokenFinder

_BATCH = 1024  # number of documents or vectors processed at a time


@dataclass(eq=False, repr=False)
class WordVectors(DocumentTransformer):
    """A transformer from documents to the means of their word vectors.

    A word is a run of three or more letters, which is looked up in lower case. Stop words and words without a
    vector are ignored. A document without any other words becomes the zero vector. `fit` learns nothing. It
    only checks the parameters and verifies that at least one document contains a known word.

    Parameters
    ----------
    vectors : (n, d) the vectors, of any numeric type; they are neither changed nor copied
    vocabulary : a mapping from lowercase words to rows of ``vectors``, in which several words may share a
        row, or a list of words, one for each row
    stop_words : "english" for scikit-learn's list, a list of lowercase words, or None

    Examples
    --------
    >>> from whycluster.text import WordVectors
    >>> model = WordVectors([[1.0, 0.0], [0.0, 1.0]], ["cat", "dog"])
    >>> model.transform(["A cat, a dog and another cat.", "Nothing known"])
    array([[0.66666667, 0.33333333],
           [0.        , 0.        ]])
    """

    vectors: ArrayLike
    vocabulary: Mapping[str, int] | Collection[str]
    stop_words: str | Collection[str] | None = "english"

    def fit(self, X: Any, y: Any = None) -> WordVectors:  # noqa: ARG002  # scikit-learn's signature
        """Check the parameters and verify that at least one document contains a known word.

        Parameters
        ----------
        X : n documents: a list or a column of text
        y : ignored
        """
        lexicon = self.lexicon("WordVectors.fit")
        documents = read_documents(X, "WordVectors.fit")
        if not any(lexicon.finder.terms(document) for document in documents):
            assert isinstance(lexicon.finder, LetterWords)
            known = next((word for word, row in lexicon.finder.rows.items() if row >= 0), None)
            raise InvalidInputError(
                f"WordVectors.fit: at least one document must contain a word from the vocabulary, such "
                f"as {known!r}; none of the {len(documents)} does. Only words of three or more letters that "
                f"are not stop words count, and they are looked up in lower case."
            )
        return self

    def transform(self, X: Any) -> Floats:
        """Return the mean vector of each document, (n, d) in float64.

        Parameters
        ----------
        X : n documents: a list or a column of text
        """
        documents = read_documents(X, "WordVectors.transform")
        lexicon = self.lexicon("WordVectors.transform")
        result = np.empty((len(documents), lexicon.vectors.shape[1]))
        for start in range(0, len(documents), _BATCH):
            rows = slice(start, start + _BATCH)
            result[rows] = lexicon.means(lexicon.frequencies(documents[rows]))
        return result

    def lexicon(self, where: str) -> Lexicon:
        """Return the validated vectors and their words. ``where`` names the calling function in messages."""
        vectors = _check_vectors(self.vectors, where)
        rows = _check_vocabulary(self.vocabulary, len(vectors), where)
        rows.update(dict.fromkeys(_check_stop_words(self.stop_words, where), STOP_TERM))
        return Lexicon(vectors, LetterWords(rows, len(vectors)))

    def whycluster_form(self, step: Any, form: AffineForm) -> AffineForm:
        """Return the form after this step, in which all features belong to the text column that it read."""
        n_features = _check_vectors(self.vectors, "neuralize").shape[1]
        return form.transform_each(step, np.zeros(n_features, dtype=np.intp))

    @property
    def _n_features_out(self) -> int:
        return int(np.shape(self.vectors)[1])


@dataclass(frozen=True)
class Lexicon:
    """Validated word vectors.

    Attributes
    ----------
    vectors : (n, d) the user's vectors
    finder : finds the words of these vectors in a text
    """

    vectors: NDArray[Any]
    finder: TokenFinder

    def frequencies(self, documents: Sequence[str]) -> sparse.csr_array:
        """Return the relative frequency of each vector among the known words of each document, (b, n)."""
        terms = [self.finder.terms(document) for document in documents]
        sizes = np.array([len(found) for found in terms], dtype=np.intp)
        columns = np.fromiter((row for found in terms for row in found), np.intp, int(sizes.sum()))
        share = np.repeat(1.0 / np.maximum(sizes, 1), sizes)
        ends = np.concatenate([[0], np.cumsum(sizes)])
        matrix = sparse.csr_array((share, columns, ends), shape=(len(documents), len(self.vectors)))
        matrix.sum_duplicates()
        return matrix

    def means(self, frequencies: Any) -> Floats:
        """Return the mean vectors, (b, d), converting only the vectors in use to float64."""
        used, columns = np.unique(frequencies.indices, return_inverse=True)
        shape = (frequencies.shape[0], len(used))
        narrow = sparse.csr_array((frequencies.data, columns, frequencies.indptr), shape=shape)
        return np.asarray(narrow @ self.vectors[used].astype(np.float64))

    def form(self, names: Sequence[str] | None) -> AffineForm:
        """Return the form that maps frequencies to means, as a frame with columns ``names`` if given."""
        matrix = np.asarray(self.vectors, dtype=np.float64).T
        return with_names(AffineForm.of_columns(len(self.vectors)).map(self.means, matrix), names)


def with_names(form: AffineForm, names: Sequence[str] | None) -> AffineForm:
    """Return a form whose output is a frame with columns ``names``, if given."""
    return form if names is None else replace(form, run=_Named(form.run, list(names)))


@dataclass(frozen=True)
class _Named:
    """A function whose result becomes a frame with named columns."""

    run: Callable[[Any], Floats]
    names: list[str]

    def __call__(self, rows: Any) -> Any:
        values = self.run(rows)
        columns = {name: values[:, i] for i, name in enumerate(self.names)}
        return nw.from_dict(columns, backend=installed("neuralize")).to_native()  # type: ignore[arg-type]


def _check_vectors(vectors: Any, where: str) -> NDArray[Any]:
    array = as_array_or_empty(vectors)
    if array.ndim != 2 or array.dtype.kind not in "fiu" or 0 in array.shape:
        raise InvalidInputError(
            f"{where}: vectors must be a two-dimensional numeric array (words, features); got {array.dtype} "
            f"of shape {array.shape}."
        )
    for start in range(0, len(array), _BATCH):
        rows = array[start : start + _BATCH]
        if not np.isfinite(rows).all():
            row = start + int(np.argmin(np.isfinite(rows).all(axis=1)))
            raise InvalidInputError(
                f"{where}: vectors must be finite; row {row} contains NaN or infinite values. Remove that "
                "row together with its words."
            )
    return array


def _check_vocabulary(vocabulary: Any, n_rows: int, where: str) -> dict[str, int]:
    """Return the vocabulary as a new mapping from words to rows."""
    if isinstance(vocabulary, Mapping):
        words, rows = list(vocabulary.keys()), _rows_of(vocabulary)
    else:
        words = _words_of(vocabulary, where)
        rows = np.arange(len(words))
        if len(words) != n_rows or len(set(words)) != n_rows:
            raise InvalidInputError(
                f"{where}: vocabulary must be {n_rows} distinct words, one for each row of vectors, or a "
                f"mapping from words to rows; got {len(words)} words, {len(set(words))} of them distinct."
            )
    invalid = next((word for word in words if not isinstance(word, str)), None)
    if invalid is not None or not words:
        raise InvalidInputError(
            f"{where}: vocabulary must consist of one or more strings; got "
            f"{'an empty vocabulary' if invalid is None else repr(invalid)}."
        )
    if rows is None or rows.min() < 0 or rows.max() >= n_rows:
        bad = next(word for word, row in vocabulary.items() if not _is_row(row, n_rows))
        raise InvalidInputError(
            f"{where}: vocabulary must map each word to a row of vectors, an integer from 0 to "
            f"{n_rows - 1}; {bad!r} is mapped to {vocabulary[bad]!r}."
        )
    _check_whole_words(words, where)
    return dict(zip(words, rows.tolist(), strict=True))


def _check_whole_words(words: list[str], where: str) -> None:
    """Raise an error if the vocabulary belongs to a tokenizer that splits words into pieces."""
    pieces = [word for word in words if word.startswith(_PIECE_MARKS) and len(word) > 1]
    if len(pieces) > _MOST_PIECES * len(words):
        raise InvalidInputError(
            f"{where}: vocabulary must consist of whole words; {len(pieces):,} of its {len(words):,} "
            f"entries, such as {pieces[0]!r}, are pieces of words. Use wc.text.Sentences, which reads all "
            "pieces, with the model and its tokenizer."
        )


_PIECE_MARKS = ("##", "\u2581", "\u0120")  # of WordPiece, SentencePiece and byte-level BPE
_MOST_PIECES = 0.05  # part of the vocabulary that may look like a piece by chance


def _words_of(vocabulary: Any, where: str) -> list[Any]:
    if isinstance(vocabulary, (str, bytes)) or not hasattr(vocabulary, "__iter__"):
        raise InvalidInputError(
            f"{where}: vocabulary must be a mapping from words to rows, or a list of words; got "
            f"{vocabulary!r}."
        )
    words = list(vocabulary)
    try:
        hash(tuple(words))
    except TypeError:
        raise InvalidInputError(
            f"{where}: vocabulary must consist of one or more strings; got {words[0]!r}."
        ) from None
    return words


def _rows_of(vocabulary: Mapping[Any, Any]) -> Codes | None:
    """Return the rows, or None if one of them is not an integer."""
    kinds = {type(row) for row in vocabulary.values()}
    if not kinds <= {int} and not all(issubclass(kind, np.integer) or kind is int for kind in kinds):
        return None
    try:
        return np.fromiter(vocabulary.values(), np.intp, len(vocabulary))
    except OverflowError:
        return None


def _is_row(row: Any, n_rows: int) -> bool:
    whole = isinstance(row, (int, np.integer)) and not isinstance(row, bool)
    return whole and 0 <= int(row) < n_rows


def _check_stop_words(stop_words: Any, where: str) -> frozenset[str]:
    if stop_words is None:
        return frozenset()
    if isinstance(stop_words, str) and stop_words == "english":
        return frozenset(ENGLISH_STOP_WORDS)
    if not isinstance(stop_words, (str, bytes, Mapping)) and isinstance(stop_words, Collection):
        words = list(stop_words)
        if all(isinstance(word, str) for word in words):
            return frozenset(words)
    raise InvalidInputError(
        f"{where}: stop_words must be 'english', a list of words, or None; got {stop_words!r}."
    )
