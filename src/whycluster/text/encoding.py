"""A sentence encoder and the steps after it: embeddings of documents, and the relevance of their words.

The steps after the encoder map an embedding x to features z = A x + o. With W, the gradient of the explained
evidence with respect to z, the relevance of feature j of the embedding is x_j (A^T W)_j, measured from 0. LRP
propagates it to the pieces of words. The rest of the evidence belongs to no word and is reported by name.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from whycluster.core.arrays import Floats
from whycluster.core.attribution import Background, CodedQuery
from whycluster.core.energies import Energy
from whycluster.explanations.unstable import OF_DOCUMENTS, warn_if_unstable
from whycluster.pipelines.affine_form import AffineForm, to_floats
from whycluster.pipelines.steps import Step
from whycluster.text.documents import DocumentTable
from whycluster.text.encoder import TextEncoder, WordRelevance, check_rule, propagate_gradient
from whycluster.text.pieces import PieceWords, find_words, owners, words_of_piece
from whycluster.text.static_tables import lengths, to_unit_length
from whycluster.text.words import CUT_OFF, KNOWN, UNKNOWN, WordTable

if TYPE_CHECKING:
    from whycluster.text.transformer import ReadPieces, TransformerModel

_ROUNDING = 1e-12  # fraction of the evidence
SPECIAL, PROMPT, UNKNOWN_PIECES = "special tokens", "prompt", "unknown pieces"
BIASES, BASELINE = "biases and positions", "baseline of the clusters"


@dataclass(frozen=True)
class Encoding(TextEncoder):
    """A sentence encoder and the steps after it.

    Attributes
    ----------
    step : the encoder as a step of the pipeline
    model : the transformer
    form : the features that the steps compute from the embeddings
    known : the embeddings of texts that were encoded before
    """

    default_rule: ClassVar[str] = "joint"  # as for all heads of encoders
    finder = PieceWords()
    step: Step
    model: TransformerModel
    form: AffineForm
    known: Mapping[str, NDArray[Any]] = field(default_factory=dict)

    @property
    def n_outputs(self) -> int:
        """The number of features."""
        return self.form.n_outputs

    def opened(self, texts: Sequence[str], where: str) -> Encoding:
        """Return an encoding that remembers the embeddings of these texts."""
        distinct = list(dict.fromkeys(texts))
        return replace(self, known=dict(zip(distinct, self.model.embed(distinct, where), strict=True)))

    def with_unit_length(self) -> Encoding:
        """Return an encoding whose features are scaled to unit length at the end."""
        return replace(self, form=self.form.rescale(to_unit_length, lengths))

    def encode(self, texts: Sequence[str], start: int, stop: int) -> Floats:
        """Return the features of texts[start:stop], (stop - start, n_outputs)."""
        return to_floats(self.form.run(self._embeddings(texts[start:stop])))

    def _embeddings(self, texts: Sequence[str]) -> NDArray[Any]:
        if not all(text in self.known for text in texts):
            return self.model.embed(texts, "explain")
        return np.stack([self.known[text] for text in texts])

    def relevance_of_words(
        self, energy: Energy, table: DocumentTable, query: CodedQuery, background: Background | None
    ) -> WordRelevance:
        """Return the assignments of all documents and the relevance of their words."""
        check_rule(query)
        seeds = np.empty((table.n_rows, self.model.n_features))

        def receive(start: int, stop: int, gradient: Floats, total: Floats) -> None:
            del total  # features are measured from 0, so the constants of the clusters belong to no word
            seeds[start:stop] = self._seeds(self._embeddings(table.texts[start:stop]), gradient)

        found = propagate_gradient(energy, table, query, background, receive)
        parts: dict[int, WordTable] = {}
        shares = {name: np.zeros(table.n_rows) for name in (SPECIAL, PROMPT, UNKNOWN_PIECES, BIASES)}
        for row, pieces in self.model.relevance(table.texts, seeds, table.where):
            parts[row] = join_pieces(table.texts[row], pieces)
            for name, value in _outside_words(pieces, parts[row]).items():
                shares[name][row] = value
        shares[BASELINE] = found.evidence - seeds.sum(axis=1)
        words = WordTable.join(parts)
        warn_if_unstable(float(np.abs(words.relevance).sum()), found.evidence, "explain", OF_DOCUMENTS)
        least = _ROUNDING * float(np.abs(found.evidence).max())
        used = {name: share for name, share in shares.items() if np.abs(share).max() > least}
        return WordRelevance(found, words, used, self.model.max_length)

    def _seeds(self, embeddings: NDArray[Any], gradient: Floats) -> Floats:
        """Return the relevance of the features of embeddings, (b, d)."""
        form = self.form
        atoms = np.array(form.contributions(embeddings.astype(np.float64)))
        atoms *= gradient if form.matrix is None else to_floats(gradient @ form.matrix)
        result = np.zeros((embeddings.shape[1], len(atoms)))
        inside = form.source >= 0
        np.add.at(result, form.source[inside], atoms.T[inside])
        return np.asarray(result.T)


def _outside_words(pieces: ReadPieces, words: WordTable) -> dict[str, float]:
    """Return the relevance that belongs to no word of one text, by name."""
    special, prompt = (float(pieces.relevance[each].sum()) for each in (pieces.special, pieces.prompt))
    left = float(pieces.relevance.sum()) - special - prompt - float(words.relevance.sum())
    unknown = left if pieces.unknown.any() or not len(words.start) else 0.0  # else, only rounding errors
    return {SPECIAL: special, PROMPT: prompt, UNKNOWN_PIECES: unknown, BIASES: pieces.lost}


def join_pieces(text: str, pieces: ReadPieces) -> WordTable:
    """Return the words of one text, with the relevance of their pieces."""
    spans = find_words(text)
    owner, n_words = owners(text, spans), len(spans)
    relevance, covered, known = np.zeros(n_words), np.zeros(n_words, bool), np.zeros(n_words, bool)
    outside = pieces.special | pieces.prompt
    rows = zip(
        pieces.spans, pieces.relevance.tolist(), outside.tolist(), pieces.unknown.tolist(), strict=True
    )
    for (start, stop), value, is_outside, is_unknown in rows:
        words = [] if is_outside else words_of_piece(owner, text, start, stop)
        covered[words] = True
        if words and not is_unknown:
            known[words] = True
            np.add.at(relevance, words, value / len(words))
    kind = np.full(n_words, UNKNOWN, dtype=np.uint8)
    kind[known] = KNOWN
    if pieces.is_full:
        kind[~covered] = CUT_OFF
    places = np.array(spans, dtype=np.int32).reshape(-1, 2)
    return WordTable(np.array([0, n_words]), places[:, 0].copy(), places[:, 1].copy(), kind, relevance)
