"""Topics and other labels of documents, explained through a sentence encoder; the adapter for BERTopic."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from bertopic import BERTopic
from bertopic.cluster import BaseCluster

from whycluster.core.errors import InvalidInputError, NotFittedError
from whycluster.data import display
from whycluster.data.frames import build_frame
from whycluster.data.labels import NOISE, is_noise
from whycluster.data.validation import check_integer
from whycluster.models.adapters.incomplete import OnlyLabels
from whycluster.models.adapters.registry import adapt
from whycluster.models.nearest_centroid import nearest_centroid
from whycluster.models.network import Network
from whycluster.text.explanation import TextExplanation
from whycluster.text.labels import network_of_documents
from whycluster.text.sentences import Sentences


@adapt.register
def _bertopic(model: BERTopic) -> Network | OnlyLabels:
    """Return the network of the nearest topic embedding or, if HDBSCAN found the topics, their labels."""
    if model.topics_ is None:
        raise NotFittedError("neuralize: the BERTopic must be fitted first. Call its fit method.")
    encoder = _encoder_of(model)
    if encoder is None or type(model.hdbscan_model) is not BaseCluster:
        return OnlyLabels(np.asarray(model.topics_), "the topics of BERTopic", encoder=encoder)
    embeddings = np.asarray(model.topic_embeddings_, dtype=np.float64)
    labels = [NOISE if i < model._outliers else i - model._outliers for i in range(len(embeddings))]
    return network_of_documents(
        encoder, nearest_centroid(embeddings, metric="cosine", labels=np.array(labels, dtype=object))
    )


def _encoder_of(model: BERTopic) -> Sentences | None:
    """Return the sentence encoder of a topic model, or None if it has none that can be explained."""
    inner = getattr(model.embedding_model, "embedding_model", None)
    return Sentences(inner) if hasattr(inner, "encode") else None


@dataclass(frozen=True, repr=False)
class TopicWords:
    """The words that BERTopic lists for each topic, and the words that put documents into the topic.

    Attributes
    ----------
    topic, name, size : the id of each topic, its name in BERTopic, and the number of explained documents
    described_by : the words of c-TF-IDF, the strongest first
    put_there_by : the words with the largest relevance, the strongest first
    agreement : the share of the words of c-TF-IDF that are also among the words with the largest relevance
    """

    topic: list[Any]
    name: list[str]
    size: list[int]
    described_by: list[list[str]]
    put_there_by: list[list[str]]
    agreement: list[float]

    def to_frame(self, backend: str | None = None) -> Any:
        """Return a frame with one row per topic; lists of words are joined with commas."""
        columns: dict[Hashable, Any] = {
            "topic": self.topic,
            "name": self.name,
            "size": self.size,
            "described_by": [", ".join(words) for words in self.described_by],
            "put_there_by": [", ".join(words) for words in self.put_there_by],
            "agreement": self.agreement,
        }
        return build_frame(columns, None, backend, "to_frame", same_rows=False)

    def __str__(self) -> str:
        heads = ["topic", "documents", "described by (c-TF-IDF)", "put there by (relevance)", "agreement"]
        rows = [
            [str(topic), str(size), ", ".join(words[:5]), ", ".join(ours[:5]), f"{agreement:.0%}"]
            for topic, size, words, ours, agreement in zip(
                self.topic, self.size, self.described_by, self.put_there_by, self.agreement, strict=True
            )
        ]
        return display.table(heads, rows, align="<><<>")

    __repr__ = __str__  # a notebook also shows the table


def topic_words(model: BERTopic, exp: TextExplanation, n: int = 10) -> TopicWords:
    """Compare the words that BERTopic lists for each topic with the words that put documents into it.

    c-TF-IDF finds words that are frequent in the documents of a topic. The embedding, which determines the
    topic, may depend on other words. Only single words are compared.

    Parameters
    ----------
    model : the fitted BERTopic
    exp : the explanation of its documents
    n : the number of words per topic
    """
    check_integer(n, 1, "topic_words", "n")
    summary = exp.summary()
    known: Mapping[Any, Any] = model.get_topics()
    topics = [label for label in summary.clusters.tolist() if _id(label) in known]
    if not topics:
        raise InvalidInputError(
            "topic_words: exp must be an explanation of the topics of this BERTopic; none of its clusters "
            "is a "
            f"topic: {', '.join(map(repr, summary.clusters.tolist()[:5]))}."
        )
    size = dict(zip(summary.clusters.tolist(), summary.size.tolist(), strict=True))
    described = [
        [word.lower() for word, _ in known[_id(topic)] if word and " " not in word][:n] for topic in topics
    ]
    ours = [summary.telling_words(topic, n) for topic in topics]
    shared = [len({*a} & {*b}) / max(1, len(a)) for a, b in zip(described, ours, strict=True)]
    names = [str(model.topic_labels_.get(_id(topic), topic)) for topic in topics]
    return TopicWords(topics, names, [size[topic] for topic in topics], described, ours, shared)


def _id(label: Any) -> Any:
    """Return the id of a topic in BERTopic, where outliers are -1."""
    return -1 if is_noise(label) else label
