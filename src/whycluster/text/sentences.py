"""`Sentences`, a scikit-learn transformer from documents to the embeddings of a sentence encoder."""

from __future__ import annotations

import os
from dataclasses import KW_ONLY, dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from whycluster.core.errors import InvalidInputError, MissingDependencyError
from whycluster.data.validation import check_integer
from whycluster.text.documents import read_documents
from whycluster.text.estimator import DocumentTransformer
from whycluster.text.pieces import check_unicode
from whycluster.text.static_tables import StaticTable, check_no_prompt, read_table

_POOLINGS = (None, "mean", "cls", "max", "last")


@dataclass(eq=False, repr=False)
class Sentences(DocumentTransformer):
    """A transformer from documents to embeddings, equal to those of the model's own ``encode``.

    In a pipeline with a clustering model, `whycluster.explain` returns the relevance of every word. For a
    transformer, relevance is propagated from the embedding to the pieces of words by LRP. For a static table,
    an embedding is the mean of vectors of pieces, and the relevance of the words is exact. `fit` learns
    nothing.

    Parameters
    ----------
    model : a SentenceTransformer or the path of one; a pair (model, tokenizer) from transformers; or a static
        table, such as ``model2vec.StaticModel``, a model from wordllama, or a SentenceTransformer that
        begins with a ``StaticEmbedding``. The model stays unchanged.
    pooling : for a pair, how the outputs for all pieces become one embedding: "mean" (the default), "cls",
        "max" or "last"; a SentenceTransformer has its own
    normalize : whether embeddings are scaled to unit length; by default, the model decides. A model that
        always scales them continues to do so.
    prompt : a text that is prepended to every document; by default, the model's default prompt
    max_length : the largest number of pieces of a document that are read, including special tokens; by
        default, as many as the model can read. The rest of the document is cut off.
    batch_size : the number of documents per batch
    """

    model: Any
    _: KW_ONLY
    pooling: Literal["mean", "cls", "max", "last"] | None = None
    normalize: bool | None = None
    prompt: str | None = None
    max_length: int | None = None
    batch_size: int = 32

    def fit(self, X: Any, y: Any = None) -> Sentences:  # noqa: ARG002  # scikit-learn's signature
        """Check the parameters and the documents.

        Parameters
        ----------
        X : n documents: a list or a column of text
        y : ignored
        """
        self.encoder("Sentences.fit")
        read_documents(X, "Sentences.fit")
        return self

    def transform(self, X: Any) -> NDArray[Any]:
        """Return the embedding of each document, (n, d).

        Parameters
        ----------
        X : n documents: a list or a column of text
        """
        texts = read_documents(X, "Sentences.transform")
        check_unicode(texts, "Sentences.transform")
        encoder = self.encoder("Sentences.transform")
        if isinstance(encoder, StaticTable):
            return encoder.embed(texts)
        distinct = list(dict.fromkeys(texts))  # duplicates are encoded once
        rows = {text: row for row, text in enumerate(distinct)}
        found: NDArray[Any] = encoder.embed(distinct, "Sentences.transform")
        return np.asarray(found[[rows[text] for text in texts]])

    def encoder(self, where: str) -> Any:
        """Return the encoder: a `StaticTable` or a ``TransformerModel``. ``where`` is named in messages."""
        self._check(where)
        model = self._loaded(where)
        table = None if isinstance(model, tuple) else self._table(model, where)
        if table is not None:
            check_no_prompt(self.prompt, where)
            _check_pooling(self.pooling, where)
            return table
        return self._transformer(model, where)

    def _table(self, model: Any, where: str) -> StaticTable | None:
        """Return the table of a static model, which is read only once, or None."""
        key = (model, self.normalize, self.max_length)
        known = getattr(self, "_read", None)
        if known is None or known[0][0] is not model or known[0][1:] != key[1:]:
            self._read = known = (key, read_table(*key, where))
        table: StaticTable | None = known[1]
        return table

    def _transformer(self, model: Any, where: str) -> Any:
        try:
            from whycluster.text import transformer
        except MissingDependencyError:
            raise MissingDependencyError(
                'Sentences needs torch for this model: pip install "whycluster[text]"'
            ) from None
        options = (self.normalize, self.prompt, self.max_length, self.batch_size)
        if isinstance(model, tuple):
            return transformer.from_transformers(model[0], model[1], self.pooling, *options)
        _check_pooling(self.pooling, where)
        return transformer.from_sentence_transformers(model, *options)

    def _loaded(self, where: str) -> Any:
        """Return the model, loading it on first use if a path was given."""
        model = self.model
        if isinstance(model, (str, os.PathLike)):
            name = os.fspath(model)
            if getattr(self, "_load", (None, None))[0] != name:
                self._load = (name, _load(name, where))
            return self._load[1]
        if isinstance(model, (tuple, list)):
            if len(model) == 2 and hasattr(model[0], "config") and callable(model[1]):
                return tuple(model)
        elif hasattr(model, "encode") or hasattr(model, "embed"):
            return model
        is_pair = isinstance(model, (tuple, list))
        kind = f"{len(model)} objects" if is_pair else f"a {type(model).__name__}"
        raise InvalidInputError(
            f"{where}: model must be a SentenceTransformer or its path, a pair (model, tokenizer) from "
            f"transformers, or a static table from model2vec or wordllama; got {kind}."
        )

    def _check(self, where: str) -> None:
        check_integer(self.batch_size, 1, where, "batch_size")
        if self.max_length is not None:
            check_integer(self.max_length, 3, where, "max_length", "None or ")
        if self.pooling not in _POOLINGS:
            raise InvalidInputError(
                f"{where}: pooling must be None, 'mean', 'cls', 'max' or 'last'; got {self.pooling!r}."
            )
        if self.prompt is not None and not isinstance(self.prompt, str):
            raise InvalidInputError(f"{where}: prompt must be a string or None; got {self.prompt!r}.")

    def __sklearn_clone__(self) -> Sentences:
        """Return a copy that shares the model, which may take gigabytes."""
        return type(self)(**self.get_params(deep=False))

    def __getstate__(self) -> dict[str, Any]:
        return {key: value for key, value in super().__getstate__().items() if key not in ("_load", "_read")}

    @property
    def _n_features_out(self) -> int:
        return int(self.encoder("Sentences").n_features)


def _check_pooling(pooling: str | None, where: str) -> None:
    if pooling is not None:
        raise InvalidInputError(
            f"{where}: pooling applies only to a pair (model, tokenizer) from transformers, since other "
            f"models do their own pooling; got {pooling!r}. Leave it out."
        )


def _load(name: str, where: str) -> Any:
    try:
        from sentence_transformers import SentenceTransformer
    except ImportError as error:
        raise MissingDependencyError(
            'Sentences needs sentence_transformers: pip install "whycluster[text]"'
        ) from error
    try:
        return SentenceTransformer(name)
    except Exception as error:  # the library raises many kinds of errors
        reason = str(error).strip().partition("\n")[0].rstrip(".")
        raise InvalidInputError(
            f"{where}: model must be the path or the name of a SentenceTransformer; {name!r} cannot be "
            f"loaded: {reason}."
        ) from error
