"""Labels of documents and topics of BERTopic, explained in words."""

from __future__ import annotations

import re
import warnings
from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_allclose
from sklearn.cluster import KMeans
from sklearn.decomposition import PCA
from sklearn.feature_extraction.text import CountVectorizer
from sklearn.neighbors import KNeighborsClassifier

import whycluster as wc
from examples.minilm import load_minilm
from tests.optional import optional
from whycluster.explanations.checks.clusters import check_fidelity
from whycluster.text import Sentences
from whycluster.text import labels as labels_module
from whycluster.text.labels import best_surrogate

THEMES = {
    "sea": ["ship", "sail", "harbor", "storm", "anchor", "crew"],
    "money": ["bank", "stock", "market", "loan", "price", "interest"],
    "kitchen": ["bread", "oven", "butter", "soup", "cheese", "onion"],
}
DOCUMENTS = [
    f"the {words[i]} and the {words[(i + 1 + j) % 6]}"
    for words in THEMES.values()
    for i in range(6)
    for j in range(2)
]


@pytest.fixture(scope="module")
def bertopic() -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # umap misses Tensorflow, which it does not need
        import bertopic.cluster
        import bertopic.dimensionality

        return bertopic


@pytest.fixture(scope="module")
def sentences() -> Sentences:
    return Sentences(load_minilm())


@pytest.fixture(scope="module")
def embeddings(sentences: Sentences) -> Any:
    return sentences.transform(DOCUMENTS)


@pytest.fixture(scope="module")
def clustered(bertopic: Any, sentences: Sentences, embeddings: Any) -> Any:
    """A topic model with HDBSCAN's interface replaced by k-means."""
    head = KMeans(3, n_init=3, random_state=0)
    model = bertopic.BERTopic(
        embedding_model=sentences.model,
        umap_model=PCA(5, random_state=0),
        hdbscan_model=head,
        vectorizer_model=CountVectorizer(stop_words="english"),
    )
    model.fit(DOCUMENTS, embeddings)
    return model


def check_words(exp: Any) -> None:
    """Check that the words of a theme name its cluster."""
    names = exp.summary().names(3)
    for theme, words in enumerate(THEMES.values()):
        found = names[exp.cluster[12 * theme]].split(", ")
        assert len({*found} & {*words}) >= 2, (found, words)


def test_labels_with_an_encoder(sentences: Sentences) -> None:
    labels = np.repeat(["sea", "money", "kitchen"], 12)
    exp: Any = wc.explain(labels, DOCUMENTS, encoder=sentences)
    assert exp.cluster.tolist() == labels.tolist()
    assert exp.fidelity is not None
    assert exp.fidelity.cross_validated > 0.9
    assert exp.surrogate_sentences()[0].endswith(
        ": a word that separates the labels may have a small or negative share."
    )
    check_words(exp)


def test_labels_that_embeddings_do_not_predict_are_told_in_documents_and_words(sentences: Sentences) -> None:
    with pytest.warns(wc.FidelityWarning):
        exp: Any = wc.explain(np.tile(["a", "b"], 18), DOCUMENTS, encoder=sentences)
    (finding,) = check_fidelity(exp).findings
    assert " of them for documents that it was not fitted to (" in finding.text
    assert finding.text.endswith(" Read the explanations of these clusters with care.")
    assert not re.search("row|column|feature", " ".join([finding.text, *exp.surrogate_sentences()]))


def test_labels_are_explained_by_what_predicts_them_better() -> None:
    rng = np.random.default_rng(0)
    squares = np.stack(np.meshgrid(range(10), range(10)), axis=-1).reshape(-1, 2)
    rows = np.repeat(squares, 8, axis=0) + rng.uniform(0.2, 0.8, (800, 2))  # a chessboard
    labels = np.array(["black", "white"])[np.repeat(squares.sum(axis=1) % 2, 8)]
    network, given = best_surrogate(rows, labels)
    assert given.tolist() == labels.tolist()
    assert type(network.energy).__name__ == "NeighborEnergy"
    assert network.fidelity is not None
    assert network.fidelity.cross_validated > 0.95
    votes = KNeighborsClassifier(5).fit(rows, labels)
    assert network.assign(rows).tolist() == votes.predict(rows).tolist()
    assert network.fidelity.in_sample == votes.score(rows, labels)
    # a cluster of a single row has no neighbors in cross-validation
    alone = np.where(np.arange(800) == 0, "alone", labels)
    assert type(best_surrogate(rows, alone)[0].energy).__name__ != "NeighborEnergy"


@pytest.mark.parametrize(("n", "votes"), [(3, False), (4, True)])
def test_few_documents_are_explained_with_and_without_votes(n: int, votes: bool) -> None:
    """With three rows per cluster, only four remain to vote, fewer than the five nearest."""
    rows = np.array([*range(n), *range(9, 9 + n)], dtype=float)[:, None]
    network, _ = best_surrogate(rows, np.repeat(["a", "b"], n))
    assert network.assign(rows).tolist() == ["a"] * n + ["b"] * n
    assert (labels_module._votes(rows, np.repeat([0, 1], n), np.array(["a", "b"])) is not None) == votes


def test_votes_of_neighbors_with_an_encoder(sentences: Sentences, embeddings: Any) -> None:
    themes = np.repeat(["sea", "money", "kitchen"], 12)
    exp: Any = wc.explain(KNeighborsClassifier(5).fit(embeddings, themes), DOCUMENTS, encoder=sentences)
    assert exp.cluster.tolist() == themes.tolist()
    assert_allclose(exp.word_table.sums() + sum(exp.residual_shares.values()), exp.evidence, atol=1e-9)
    check_words(exp)


def test_models_of_embeddings_with_an_encoder(sentences: Sentences, embeddings: Any) -> None:
    model = KMeans(3, n_init=3, random_state=0).fit(embeddings)
    exp: Any = wc.explain(model, DOCUMENTS, encoder=sentences)
    assert exp.cluster.tolist() == model.labels_.tolist()
    check_words(exp)
    # topic vectors of Top2Vec, of which the one with the largest inner product wins
    vectors = model.cluster_centers_ / np.linalg.norm(model.cluster_centers_, axis=1, keepdims=True)
    top: Any = wc.explain(vectors, DOCUMENTS, encoder=sentences, metric="dot")
    assert top.cluster.tolist() == np.argmax(embeddings @ vectors.T, axis=1).tolist()
    assert "baseline of the clusters" not in top.residual_shares  # products have no constants
    check_words(top)


def test_a_fitted_bertopic(clustered: Any) -> None:
    exp: Any = wc.explain(clustered, DOCUMENTS)
    assert exp.cluster.tolist() == list(clustered.topics_)
    assert exp.fidelity is not None
    check_words(exp)
    from whycluster.text.topics import topic_words

    found = topic_words(clustered, exp, 5)
    assert found.topic == sorted(set(clustered.topics_))
    assert found.name == [clustered.topic_labels_[topic] for topic in found.topic]
    for topic, words, ours, agreement in zip(
        found.topic, found.described_by, found.put_there_by, found.agreement, strict=True
    ):
        assert words == [word for word, _ in clustered.get_topic(topic)][:5]
        assert agreement == sum(word in ours for word in words) / 5
    assert max(found.agreement) > 0.5
    assert "agreement" in str(found)
    assert found.to_frame().shape == (3, 6)


def test_a_bertopic_without_hdbscan_is_exact(bertopic: Any, sentences: Sentences, embeddings: Any) -> None:
    labels = np.repeat([-1, 0, 1], 12)
    model = bertopic.BERTopic(
        embedding_model=sentences.model,
        umap_model=bertopic.dimensionality.BaseDimensionalityReduction(),
        hdbscan_model=bertopic.cluster.BaseCluster(),
        vectorizer_model=CountVectorizer(stop_words="english"),
    )
    model.fit(DOCUMENTS, embeddings, y=labels)
    predicted = model.transform(DOCUMENTS, embeddings)[0]
    exp: Any = wc.explain(model, DOCUMENTS)
    assert exp.fidelity is None
    assert exp.cluster.tolist() == ["noise" if topic == -1 else topic for topic in predicted]
    cosine = embeddings @ model.topic_embeddings_.T / np.linalg.norm(model.topic_embeddings_, axis=1)
    ordered = np.sort(cosine, axis=1)
    scale = exp.evidence[0] / (ordered[0, -1] - ordered[0, -2])
    assert_allclose(exp.evidence, scale * (ordered[:, -1] - ordered[:, -2]), rtol=1e-4)
    assert exp.describe(0).startswith("Document 0 is noise")
    assert "baseline of the clusters" not in exp.residual_shares
    check_words(exp)
    assert_allclose(exp.word_table.sums() + sum(exp.residual_shares.values()), exp.evidence, atol=1e-9)


@pytest.mark.slow
def test_a_bertopic_with_umap_and_hdbscan(bertopic: Any, sentences: Sentences, embeddings: Any) -> None:
    umap, hdbscan = optional("umap:UMAP"), optional("hdbscan:HDBSCAN")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of umap, about its random state and its number of threads
        model = bertopic.BERTopic(
            embedding_model=sentences.model,
            umap_model=umap(n_neighbors=6, n_components=5, min_dist=0.0, metric="cosine", random_state=0),
            hdbscan_model=hdbscan(min_cluster_size=5),
            vectorizer_model=CountVectorizer(stop_words="english"),
        )
        model.fit(DOCUMENTS, embeddings)
    exp: Any = wc.explain(model, DOCUMENTS)
    topics = ["noise" if topic == -1 else topic for topic in model.topics_]
    assert exp.fidelity.cross_validated > 0.9
    assert exp.fidelity.in_sample == np.mean(exp.cluster == np.array(topics, dtype=object))
    assert len(set(topics)) >= 3
    check_words(exp)


def test_bad_encoders(sentences: Sentences) -> None:
    with pytest.raises(wc.InvalidInputError) as error:
        wc.explain([0, 1], ["a", "b"], encoder=sentences.model)
    assert str(error.value) == (
        "explain: encoder must be a wc.text.Sentences; got a SentenceTransformer. Wrap a model in one: "
        "wc.text.Sentences(model)."
    )
