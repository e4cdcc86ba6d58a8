"""Static embeddings: tables with one vector per piece, whose mean represents a text."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from whycluster.core.arrays import Floats
from whycluster.core.errors import InvalidInputError, UnsupportedModelError
from whycluster.pipelines.affine_form import to_floats
from whycluster.text.encoder import check_loaded
from whycluster.text.pieces import PieceFinder
from whycluster.text.word_vectors import Lexicon

_BATCH = 1024  # number of texts whose vectors are averaged at a time


@dataclass(frozen=True)
class StaticTable:
    """A static embedding: the mean of the vectors of all pieces, possibly scaled to unit length.

    Attributes
    ----------
    lexicon : the vectors, and the finder of the pieces
    normalize : whether means are scaled to unit length
    """

    lexicon: Lexicon
    normalize: bool

    @property
    def n_features(self) -> int:
        """The number of features."""
        return int(self.lexicon.vectors.shape[1])

    def embed(self, texts: list[str]) -> Floats:
        """Return the embeddings, (n, d)."""
        result = np.empty((len(texts), self.n_features))
        for start in range(0, len(texts), _BATCH):
            rows = slice(start, start + _BATCH)
            result[rows] = self.embed_frequencies(self.lexicon.frequencies(texts[rows]))
        return result

    def embed_frequencies(self, frequencies: Any) -> Floats:
        """Return the embeddings, (b, d), given how often each piece occurs in each text."""
        means = self.lexicon.means(frequencies)
        return to_unit_length(means) if self.normalize else means


def lengths(rows: Floats) -> Floats:
    """Return the length of each row, or 1 for a row of zeros."""
    found = np.linalg.norm(rows, axis=1)
    return np.where(found == 0, 1.0, found)


def to_unit_length(rows: Any) -> Floats:
    """Return rows scaled to unit length."""
    rows = to_floats(rows)
    return np.asarray(rows / lengths(rows)[:, None])


def read_table(model: Any, normalize: bool | None, max_length: int | None, where: str) -> StaticTable | None:
    """Return the table of a static model from wordllama, model2vec or sentence-transformers, or None."""
    for read in (_from_wordllama, _from_model2vec, _from_sentence_transformers):
        table = read(model, normalize, max_length, where)
        if table is not None:
            return table
    return None


def _is_from(model: Any, library: str, name: str) -> bool:
    return any(c.__module__.partition(".")[0] == library and c.__name__ == name for c in type(model).__mro__)


def _from_wordllama(
    model: Any, normalize: bool | None, max_length: int | None, where: str
) -> StaticTable | None:
    if not _is_from(model, "wordllama", "WordLlamaInference"):
        return None
    if model.binary:
        raise UnsupportedModelError(
            f"{where}: embeddings must be real numbers; this WordLlama model returns bits. Load it with "
            "binary=False."
        )
    finder = PieceFinder(_own_tokenizer(model.tokenizer, max_length), len(model.embedding))
    return StaticTable(Lexicon(model.embedding, finder), bool(normalize))


def _from_model2vec(
    model: Any, normalize: bool | None, max_length: int | None, where: str
) -> StaticTable | None:
    del where  # all of these models are supported
    if not _is_from(model, "model2vec", "StaticModel"):
        return None
    vectors = np.asarray(model.embedding)
    if model.token_mapping is not None:
        vectors = vectors[model.token_mapping]
    if model.weights is not None:
        vectors = vectors * np.asarray(model.weights)[:, None]
    most = model.max_length if max_length is None else max_length
    dropped = frozenset() if model.unk_token_id is None else frozenset({int(model.unk_token_id)})
    finder = PieceFinder(
        _own_tokenizer(model.tokenizer, most),
        len(vectors),
        dropped,
        None if most is None else most * model.median_token_length,
    )
    return StaticTable(Lexicon(vectors, finder), bool(model.normalize if normalize is None else normalize))


def _from_sentence_transformers(
    model: Any, normalize: bool | None, max_length: int | None, where: str
) -> StaticTable | None:
    if not _is_from(model, "sentence_transformers", "SentenceTransformer"):
        return None
    first, *others = list(model)
    if not _is_from(first, "sentence_transformers", "StaticEmbedding"):
        return None
    unknown = [
        type(part).__name__ for part in others if not _is_from(part, "sentence_transformers", "Normalize")
    ]
    if unknown:
        raise UnsupportedModelError(
            f"{where}: after a StaticEmbedding, only Normalize is supported; this model has {unknown[0]}."
        )
    check_loaded(model, where)
    weights: NDArray[Any] = first.embedding.weight.detach().float().cpu().numpy()
    if model.truncate_dim is not None:
        if others:
            raise UnsupportedModelError(
                f"{where}: a StaticEmbedding with Normalize and truncate_dim is not supported. Leave out "
                "truncate_dim."
            )
        weights = weights[:, : model.truncate_dim]
    finder = PieceFinder(_own_tokenizer(first.tokenizer, max_length), len(weights))
    return StaticTable(Lexicon(weights, finder), bool(others) or bool(normalize))


def _own_tokenizer(tokenizer: Any, max_length: int | None) -> Any:
    """Return a copy of a tokenizer that does not pad, since the user's tokenizer must not change."""
    from tokenizers import Tokenizer

    own = Tokenizer.from_str(tokenizer.to_str())
    own.no_padding()
    if max_length is not None:
        own.enable_truncation(max_length)
    return own


def check_no_prompt(prompt: str | None, where: str) -> None:
    """Raise an error for a prompt, since its pieces would belong to no word of the text."""
    if prompt:
        raise InvalidInputError(
            f"{where}: prompt does not apply to static tables, where it would only add the same vectors to "
            f"every text; got {prompt!r}. Leave it out."
        )
