"""The network of a pipeline that begins with a vectorizer; it explains documents in terms of words."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from copy import copy
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from sklearn.feature_extraction.text import CountVectorizer, HashingVectorizer
from sklearn.pipeline import FeatureUnion, Pipeline

from whycluster.core.attribution import CodedQuery, Population
from whycluster.core.energies import LinearEnergy
from whycluster.core.errors import InvalidInputError, UnsupportedModelError
from whycluster.models.adapters.incomplete import AwaitingColumns, OnlyLabels
from whycluster.models.adapters.registry import adapt_model, check_fitted, names_of
from whycluster.models.energies.cosine import CosineEnergy
from whycluster.models.network import Network
from whycluster.pipelines.affine_form import AffineForm
from whycluster.pipelines.front_ends import FrontEnd, register
from whycluster.pipelines.network import check_not_deep, check_width
from whycluster.pipelines.steps import Step, flatten_steps, follow, transformers_in
from whycluster.text.documents import DocumentTable
from whycluster.text.encoder import TextEncoder
from whycluster.text.encoding import Encoding
from whycluster.text.explanation import TextExplanation
from whycluster.text.pieces import PieceFinder, PieceWords, check_unicode
from whycluster.text.sentences import Sentences
from whycluster.text.static_tables import StaticTable
from whycluster.text.vectorization import Vectorization
from whycluster.text.word_vectors import WordVectors, with_names

if TYPE_CHECKING:
    import torch
    from typing_extensions import Unpack

    from whycluster.data.frame_table import ColumnNames

VECTORIZERS = (CountVectorizer, HashingVectorizer, WordVectors, Sentences)


class TextNetwork(Network):
    """The network of a pipeline that begins with a vectorizer; it explains documents in terms of words.

    Parameters
    ----------
    encoder : the vectorizer and the steps after it
    last : the network of the final model
    """

    takes_any_kind = True
    text_columns: frozenset[int] = frozenset()
    explains_columns = False

    def __init__(self, encoder: TextEncoder, last: Network) -> None:
        super().__init__(last.energy, labels=last.labels, fidelity=last.fidelity)
        self.encoder, self.last = encoder, last
        self.is_checked, self.default_rule = last.is_checked, encoder.default_rule

    def open(
        self, X: Any, where: str, *, name: str = "X", whole: bool = True, **columns: Unpack[ColumnNames]
    ) -> DocumentTable:
        """Return the user's documents as a table."""
        del whole  # ``whole`` matters only for tables of known categories
        if columns.get("feature_names") is not None:
            raise InvalidInputError(
                f"{where}: feature_names applies to numeric arrays, but documents are explained in terms of "
                "their words. Leave feature_names out."
            )
        table = DocumentTable.of(X, self.encoder, where, name)
        if isinstance(self.encoder.finder, (PieceFinder, PieceWords)):
            check_unicode(table.texts, where, name)
        table = replace(table, encoder=self.encoder.opened(table.texts, where))
        if self.is_checked:
            for _, block in table.blocks():
                self.last.open(block, where)
        return table

    def explain_rows(
        self, X: Any, query: CodedQuery, background: Any, feature_names: Sequence[Hashable] | None
    ) -> TextExplanation:
        """Explain documents in terms of their words."""
        table = self.open(X, "explain", feature_names=feature_names)
        is_measured = background is None or isinstance(background, Population)
        rows = background if is_measured else self.open_background(background, table)
        encoder = table.encoder
        assert isinstance(encoder, TextEncoder)
        result = encoder.relevance_of_words(self.energy, table, query, rows)
        return TextExplanation(
            word_table=result.words,
            finder=encoder.finder,
            residual_shares=result.shares,
            max_length=result.max_length,
            **self.claims(result.found, query, table),
        )

    def to_torch(self, cluster: Any = None) -> torch.nn.Module:  # noqa: ARG002  # the signature of all networks
        """Raise an error, since the steps of a pipeline cannot be converted to torch layers."""
        raise UnsupportedModelError(
            "to_torch: the steps of a pipeline cannot be converted to torch layers. Convert only its last "
            "step with wc.neuralize(pipeline[-1]).to_torch(), and apply the result to "
            "pipeline[:-1].transform(X)."
        )


def text_network(steps: Sequence[tuple[str, Any]], last: Network) -> TextNetwork:
    """Return the network of a pipeline that begins with a vectorizer.

    Parameters
    ----------
    steps : names and fitted steps of the pipeline, except for the last step
    last : the network of the last step
    """
    encoder = _encoder(steps)
    if encoder.form.below is not None or last.categories is not None:
        raise UnsupportedModelError(
            "neuralize: after a vectorizer, each step must be linear, transform each term separately, or "
            "scale documents to unit length, and the model must take numbers. In this pipeline, a step "
            "transforms features that combine several terms, or the model takes categories."
        )
    check_width(encoder.form, last)
    if isinstance(encoder, Encoding) and isinstance(last.energy, CosineEnergy):
        encoder, last = encoder.with_unit_length(), _with_directions(last)
    return TextNetwork(encoder, last)


def _with_directions(last: Network) -> Network:
    """Return a network of cosines as one of products with unit vectors, for features of unit length.

    A cosine does not change with the length of the features, so input times gradient would be 0.
    """
    last, directions = copy(last), last.energy.directions  # type: ignore[attr-defined]  # of a CosineEnergy
    last.energy = LinearEnergy(directions, gives_probabilities=False)
    last.energy.title = CosineEnergy.title
    return last


def _encoder(steps: Sequence[tuple[str, Any]]) -> Vectorization | Encoding:
    """Return the encoder of the first step and the steps after it."""
    first, others = Step(*steps[0]), steps[1:]
    if not isinstance(first.transformer, Sentences):
        return Vectorization.of(first, others)
    model = first.transformer.encoder("neuralize")
    check_fitted(*transformers_in(others))
    if isinstance(model, StaticTable):
        return Vectorization.of_table(first, model, others)
    form = with_names(AffineForm.of_columns(model.n_features), names_of(others[0][1]) if others else None)
    return Encoding(first, model, follow(others, form))


class _VectorizerFrontEnd(FrontEnd):
    """The front end for pipelines that begin with a vectorizer."""

    def takes(self, steps: Sequence[tuple[str, Any]]) -> bool:
        """Return whether the first step is a vectorizer."""
        return takes_text(steps)

    def network(self, steps: Sequence[tuple[str, Any]], model: Any) -> Network:
        """Return the network of a vectorizer, the steps after it, and a model."""
        return text_network(steps, _model_network(model))


register(_VectorizerFrontEnd())


def takes_text(steps: Sequence[tuple[str, Any]]) -> bool:
    """Return whether the first step is a vectorizer; raise an error if a union or a later step has one."""
    vectorizers = [i for i, (_, step) in enumerate(steps) if isinstance(step, VECTORIZERS)]
    if vectorizers and vectorizers[0] > 0:
        raise UnsupportedModelError(
            f"neuralize: a vectorizer must be the first step, so that its words can be located in the "
            f"original documents; {Step(*steps[0])} comes before it. Make that step the preprocessor of the "
            f"vectorizer, or apply it to the documents first."
        )
    first = steps[0][1] if steps else None
    if isinstance(first, FeatureUnion) and any(
        isinstance(step, VECTORIZERS) for _, part in first.transformer_list for _, step in _steps_of(part)
    ):
        raise UnsupportedModelError(
            f"neuralize: a single vectorizer must be the first step; {Step(*steps[0])} combines several "
            "transformers there. Put the union after one vectorizer, or use one vectorizer with more "
            "n-grams."
        )
    return bool(vectorizers)


def _steps_of(transformer: Any) -> list[tuple[str, Any]]:
    return flatten_steps(transformer) if isinstance(transformer, Pipeline) else [("", transformer)]


def _model_network(model: Any) -> Network:
    """Return the network of the model after a vectorizer; raise an error if that model has no network."""
    found = adapt_model(model)
    if isinstance(found, AwaitingColumns):
        raise UnsupportedModelError(
            f"neuralize: the model after a vectorizer must take numbers; {found.kind} takes categories. Use "
            "another model, such as KMeans."
        )
    if isinstance(found, OnlyLabels):
        raise UnsupportedModelError(
            f"neuralize: {found.kind} show which cluster each document is in, but not why. Use a surrogate "
            "instead, which can be explained and reports how well it matches the labels: "
            "make_pipeline(vectorizer, TruncatedSVD(100), wc.Surrogate()).fit(documents, labels)."
        )
    check_not_deep(found, model)
    return found
