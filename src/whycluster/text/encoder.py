"""The interface between a network that takes documents and its encoder, which turns them into features."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar, NamedTuple

import numpy as np

from whycluster.core.arrays import Floats
from whycluster.core.attribution import (
    Attribution,
    Background,
    CodedQuery,
    explaining_why_out_of_range,
    measured,
    numpy_passes,
)
from whycluster.core.blocks import check_finite
from whycluster.core.energies import Energy
from whycluster.core.errors import InvalidInputError
from whycluster.core.passes import Block
from whycluster.core.rules import DEFAULT_RULE, RULES, SEQUENTIAL
from whycluster.text.documents import DocumentEncoder, DocumentTable
from whycluster.text.finders import Finder
from whycluster.text.words import WordTable


def check_loaded(module: Any, where: str) -> None:
    """Raise an error if weights of a torch module are missing."""
    missing = [name for name, weights in module.named_parameters() if weights.is_meta]
    if missing:
        raise InvalidInputError(
            f"{where}: the model must have all of its weights; {missing[0]} is on the meta device. Load the "
            "weights first."
        )


class WordRelevance(NamedTuple):
    """The relevance of all words.

    Attributes
    ----------
    found : the assignments of all documents
    words : the words with their relevance
    shares : the parts of the evidence that belong to no word, by name, (n,) each
    max_length : the largest number of pieces of a document that are read, or None
    """

    found: Attribution
    words: WordTable
    shares: Mapping[str, Floats]
    max_length: int | None = None


class TextEncoder(DocumentEncoder):
    """Encodes documents as features and finds the relevance of their words."""

    default_rule: ClassVar[str] = DEFAULT_RULE
    finder: Finder

    def opened(self, texts: Sequence[str], where: str) -> TextEncoder:
        """Return an encoder for these documents, which may remember their features."""
        del texts, where  # most encoders are fast enough to encode documents again
        return self

    @abstractmethod
    def relevance_of_words(
        self, energy: Energy, table: DocumentTable, query: CodedQuery, background: Background | None
    ) -> WordRelevance:
        """Return the assignments of all documents and the relevance of their words."""


def check_rule(query: CodedQuery) -> None:
    """Raise an error for the sequential rule, which is not additive over the features."""
    if query.rule == SEQUENTIAL:
        others = ", ".join(repr(rule) for rule in RULES if rule != SEQUENTIAL)
        raise InvalidInputError(
            "explain: for documents, rule must be additive over the features, since all words share the same "
            f"features; got 'sequential'. Choose one of {others}."
        )


def propagate_gradient(
    energy: Energy,
    table: DocumentTable,
    query: CodedQuery,
    background: Background | None,
    receive: Callable[[int, int, Floats, Floats], None],
) -> Attribution:
    """Pass the gradient of each document to ``receive``, which distributes relevance among words.

    ``receive`` is called for every block, on several threads, with its first and last row, the gradient with
    respect to the features, and the sums of the relevance of the features. The returned attribution contains
    no relevance.
    """

    def work(block: Block) -> None:
        gradient = block.relevance
        energy.combine(block.x, block.weights, gradient, block.scratch)
        total = gradient.sum(axis=1)
        energy.differentiate(block.x, block.weights, gradient, block.scratch)
        check_finite(gradient)
        check_finite(total)
        receive(block.start, block.stop, gradient, total)

    query = measured(query.for_rows(table), energy, table if background is None else background)
    with explaining_why_out_of_range(table):
        found = numpy_passes(energy, table, query).each_weighted(query.sharing, work)
    nothing = np.empty((table.n_rows, 0), table.dtype)
    return Attribution(nothing, *found, query.beta, query.prior)
