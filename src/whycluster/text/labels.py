"""Labels of documents, and models of embeddings, explained in words through a sentence encoder."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.model_selection import StratifiedKFold, cross_val_predict
from sklearn.neighbors import KNeighborsClassifier

from whycluster.clustering.surrogate import Surrogate
from whycluster.core.arrays import Codes, Floats
from whycluster.core.errors import InvalidInputError, UnsupportedModelError
from whycluster.explanations.fidelity import Fidelity
from whycluster.models.adapters.registry import adapt_model
from whycluster.models.network import Network, TableNetwork
from whycluster.pipelines.network import PipelineNetwork
from whycluster.text.documents import read_documents
from whycluster.text.network import TextNetwork, text_network
from whycluster.text.sentences import Sentences

_N_NEIGHBORS = 5  # as in scikit-learn
_MOST_FOLDS, _MOST_ROWS = 5, 20_000


def network_of_documents(encoder: Any, last: Network) -> Network:
    """Return the network of a model that was fitted to the embeddings of an encoder."""
    check_encoder(encoder)
    if isinstance(last, TextNetwork) or last.is_deep:
        raise UnsupportedModelError(
            "explain: encoder applies only to labels and to models of embeddings; this model takes documents "
            "itself. Leave encoder out."
        )
    steps: list[tuple[str, Any]] = [("encoder", encoder)]
    if isinstance(last, PipelineNetwork):
        if last.stages.steps is None:
            raise UnsupportedModelError(
                "explain: after an encoder, all steps must be from scikit-learn; got steps from another "
                "library."
            )
        steps, last = steps + list(last.stages.steps), last.stages.last.with_labels(last.labels)
    return text_network(steps, last)


def fit_to_documents(labels: Any, X: Any, encoder: Any) -> tuple[Network, NDArray[Any]]:
    """Fit a surrogate to the embeddings of documents; return its network, and the labels in its form."""
    check_encoder(encoder)
    texts = read_documents(X, "explain")
    rows = np.ascontiguousarray(encoder.transform(texts), dtype=np.float64)
    network, given = best_surrogate(rows, labels)
    return network_of_documents(encoder, network), given


def best_surrogate(rows: Floats, labels: Any) -> tuple[Network, NDArray[Any]]:
    """Return the better predictor of the labels, a `Surrogate` or the votes of neighbors, and the labels."""
    surrogate = Surrogate().fit_rows(rows, labels, "explain")
    network = surrogate.network(None)
    votes = _votes(rows, network.codes.find(surrogate.given_), network.labels)
    found = max((n for n in (network, votes) if n is not None), key=_cross_validated)
    return found, surrogate.given_


def _cross_validated(network: Network) -> float:
    assert network.fidelity is not None
    return network.fidelity.cross_validated


def _votes(rows: Floats, codes: Codes, names: NDArray[Any]) -> Network | None:
    """Return the network of the votes of neighbors, or None if there are too few documents or too many."""
    n_folds = min(_MOST_FOLDS, int(np.bincount(codes).min()))
    if n_folds < 2 or len(rows) > _MOST_ROWS:
        return None
    if (
        len(rows) - math.ceil(len(rows) / n_folds) < _N_NEIGHBORS
    ):  # the least number of documents that can vote
        return None
    model = KNeighborsClassifier(_N_NEIGHBORS).fit(rows, codes)
    folds = StratifiedKFold(n_folds, shuffle=True, random_state=0)
    predicted = cross_val_predict(model, rows, codes, cv=folds)
    fidelity = Fidelity.of(names, codes, model.predict(rows), predicted)
    network = adapt_model(model)
    assert isinstance(network, Network)
    return TableNetwork(network.energy, labels=names, fidelity=fidelity)


def check_encoder(encoder: Any) -> None:
    """Raise an error unless the encoder is a `Sentences`."""
    if not isinstance(encoder, Sentences):
        raise InvalidInputError(
            f"explain: encoder must be a wc.text.Sentences; got a {type(encoder).__name__}. Wrap a model in "
            "one: wc.text.Sentences(model)."
        )
