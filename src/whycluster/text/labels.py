"""Labels of documents, and models of embeddings, explained in words through a sentence encoder."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from whycluster.clustering.surrogate import Surrogate
from whycluster.core.errors import InvalidInputError, UnsupportedModelError
from whycluster.models.network import Network
from whycluster.text.documents import read_documents
from whycluster.text.network import TextNetwork, text_network
from whycluster.text.sentences import Sentences


def network_of_documents(encoder: Any, last: Network) -> Network:
    """Return the network of a model that was fitted to the embeddings of an encoder."""
    check_encoder(encoder)
    if isinstance(last, TextNetwork) or last.is_deep:
        raise UnsupportedModelError(
            "explain: encoder applies to labels and to models of embeddings; this model takes documents "
            "itself. Leave encoder out."
        )
    return text_network([("encoder", encoder)], last)


def fit_to_documents(labels: Any, X: Any, encoder: Any) -> tuple[Network, NDArray[Any]]:
    """Fit a surrogate to the embeddings of documents; return its network, and the labels in its form."""
    check_encoder(encoder)
    texts = read_documents(X, "explain")
    rows = np.ascontiguousarray(encoder.transform(texts), dtype=np.float64)
    surrogate = Surrogate().fit_rows(rows, labels, "explain")
    return network_of_documents(encoder, surrogate.network(None)), surrogate.given_


def check_encoder(encoder: Any) -> None:
    """Raise an error unless the encoder is a `Sentences`."""
    if not isinstance(encoder, Sentences):
        raise InvalidInputError(
            f"explain: encoder must be a wc.text.Sentences; got a {type(encoder).__name__}. Wrap a model in "
            "one: wc.text.Sentences(model)."
        )
