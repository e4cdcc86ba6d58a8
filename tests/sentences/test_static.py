"""Static tables: exact explanations, with real weights from WordLlama."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_allclose
from safetensors.numpy import load_file
from sklearn.cluster import KMeans
from sklearn.pipeline import make_pipeline

import whycluster as wc
from tests.optional import optional
from tests.reference.sentences import relevance_of_pieces
from tests.sentences.test_sentences import DOCUMENTS, ODD
from whycluster.text import Sentences, WordVectors
from whycluster.text.pieces import owners, words_of_piece

StaticModel = optional("model2vec:StaticModel")
SentenceTransformer = optional("sentence_transformers:SentenceTransformer")
Normalize = optional("sentence_transformers.base.modules:Normalize")
StaticEmbedding = optional("sentence_transformers.sentence_transformer.modules:StaticEmbedding")
Tokenizer = optional("tokenizers:Tokenizer")
inference = optional("wordllama.inference")
TEXTS = [*DOCUMENTS, *ODD]


@pytest.fixture(scope="module")
def wordllama() -> Any:
    folder = Path(inference.load().__file__).parent  # its loader looks for the tokenizer elsewhere
    weights = load_file(folder / "weights" / "l2_supercat_256.safetensors")["embedding.weight"]
    tokenizer = Tokenizer.from_file(str(folder / "tokenizers" / "l2_supercat_tokenizer_config.json"))
    return inference.WordLlamaInference(weights, tokenizer)


def models(wordllama: Any) -> dict[str, tuple[Any, Any]]:
    """The models with their own functions from texts to embeddings."""
    tokenizer = Tokenizer.from_str(wordllama.tokenizer.to_str())
    tokenizer.no_padding()
    vectors = wordllama.embedding[: tokenizer.get_vocab_size()]
    static = StaticModel(vectors, tokenizer, normalize=True, max_length=12)
    plain = SentenceTransformer(modules=[StaticEmbedding(tokenizer, embedding_weights=vectors)])
    unit = SentenceTransformer(modules=[StaticEmbedding(tokenizer, embedding_weights=vectors), Normalize()])
    return {
        "wordllama": (wordllama, wordllama.embed),
        "model2vec": (static, static.encode),
        "StaticEmbedding": (plain, plain.encode),
        "StaticEmbedding, Normalize": (unit, unit.encode),
    }


NAMES = ["wordllama", "model2vec", "StaticEmbedding", "StaticEmbedding, Normalize"]


@pytest.mark.parametrize("name", NAMES)
def test_static_tables(wordllama: Any, name: str) -> None:
    model, encode = models(wordllama)[name]
    sentences = Sentences(model)
    assert_allclose(sentences.transform(TEXTS), encode(TEXTS), atol=1e-6)
    pipeline = make_pipeline(sentences, KMeans(3, n_init=3, random_state=0)).fit(DOCUMENTS)
    exp: Any = wc.explain(pipeline, TEXTS, background=DOCUMENTS)
    assert exp.cluster.tolist() == pipeline.predict(TEXTS).tolist()
    known = exp.n_known > 0
    assert_allclose(exp.residual[known], 0, atol=1e-9)
    _check_slowly(exp, pipeline, sentences, normalize=name in NAMES[1::2])


def _check_slowly(exp: Any, pipeline: Any, sentences: Any, normalize: bool) -> None:
    """Compare the words of some documents with a slow transcription of the formula."""
    table = sentences.encoder("x")
    head: Any = wc.explain(
        pipeline[-1], sentences.transform(TEXTS), background=sentences.transform(DOCUMENTS)
    )
    vectors, centers = table.lexicon.vectors.astype(float), pipeline[-1].cluster_centers_
    for row in range(4):
        text, spans = TEXTS[row], [(word.start, word.stop) for word in exp.words(row)]
        pieces = table.lexicon.finder._read(text)[0]
        # The weights a_k follow from the relevance of the features, which is linear in them.
        x = sentences.transform([text])[0]
        splits = np.array([(x - center) ** 2 for center in centers])
        weights = np.linalg.lstsq(
            np.vstack([splits.T, 1e3 * np.ones(len(centers))]),
            np.append(head.relevance[row], 0.0),
            rcond=None,
        )[0]
        slow = relevance_of_pieces([piece for piece, _ in pieces], vectors, centers, weights, normalize)
        of_words, owner = np.zeros(len(spans)), owners(text, spans)
        for (_, (start, stop)), value in zip(pieces, slow, strict=True):
            words = words_of_piece(owner, text, start, stop)
            np.add.at(of_words, words, value / len(words))
        assert_allclose([word.relevance for word in exp.words(row)], of_words, atol=1e-9)


@pytest.mark.parametrize("name", NAMES)
def test_words_that_a_static_table_does_not_read_are_cut_off(wordllama: Any, name: str) -> None:
    model, _ = models(wordllama)[name]
    short, whole = Sentences(model, max_length=5), Sentences(model, max_length=1000)
    pipeline = make_pipeline(short, KMeans(2, n_init=3, random_state=0)).fit(DOCUMENTS)
    exp: Any = wc.explain(pipeline, DOCUMENTS, background=DOCUMENTS)
    kinds = [[word.cut_off for word in exp.words(row)] for row in range(len(exp))]
    first = [exp.words(row)[kind.index(True)] for row, kind in enumerate(kinds)]
    others = [text[: word.stop] + " some other words" for text, word in zip(DOCUMENTS, first, strict=True)]
    assert_allclose(short.transform(others), short.transform(DOCUMENTS), atol=1e-12)
    assert all(kind == sorted(kind) for kind in kinds)  # all words after the first are cut off, too
    assert all(word.relevance for word in exp.words(0) if not word.cut_off)
    characters = "the first 25 characters of " * (name == "model2vec")
    assert exp.describe(0).endswith(
        f"{sum(kinds[0])} of its {len(kinds[0])} words are cut off, because the model reads at most 5 pieces "
        f"of {characters}a document."
    )
    read: Any = wc.explain(make_pipeline(whole, pipeline[-1]), DOCUMENTS, background=DOCUMENTS)
    assert not read.n_cut_off.any()


@pytest.mark.parametrize("name", NAMES)
def test_odd_documents_in_a_static_table(wordllama: Any, name: str) -> None:
    model, _ = models(wordllama)[name]
    pipeline = make_pipeline(Sentences(model), KMeans(2, n_init=3, random_state=0)).fit(DOCUMENTS)
    texts = [DOCUMENTS[0], "", "the of and", DOCUMENTS[0], "\U0001f642\U0001f642 \u05e9\u05dc\u05d5\u05dd"]
    exp: Any = wc.explain(pipeline, texts, background=DOCUMENTS)
    assert [w.relevance for w in exp.words(0)] == [w.relevance for w in exp.words(3)]
    assert exp.n_known.tolist()[1:3] == [0, 3]
    assert exp.residual[1] == exp.evidence[1]
    assert "no known words (treated as empty text)" in exp.describe(1)
    assert [word.text for word in exp.words(4)] == ["\U0001f642", "\U0001f642", "\u05e9\u05dc\u05d5\u05dd"]
    assert_allclose(np.delete(exp.residual, 1), 0, atol=1e-9)
    for bad, reason in (
        (b"abc", "document 1 is bytes"),
        (None, "document 1 is missing"),
        ("\ud800", "a lone surrogate"),
    ):
        with pytest.raises(wc.InvalidInputError, match=reason):
            wc.explain(pipeline, ["a", bad])


def test_a_static_table_in_half_precision_or_without_weights(wordllama: Any) -> None:
    model, _ = models(wordllama)["StaticEmbedding"]
    full = Sentences(model).transform(DOCUMENTS)
    assert_allclose(Sentences(model.half()).transform(DOCUMENTS), full, rtol=1e-2, atol=1e-3)
    with pytest.raises(wc.InvalidInputError) as error:
        Sentences(model.to("meta")).transform(["a"])
    assert str(error.value) == (
        "Sentences.transform: the model must have all of its weights; 0.embedding.weight is on the meta "
        "device. Load the weights first."
    )


def test_the_tokenizer_of_the_user_stays_as_it_is(wordllama: Any) -> None:
    before = wordllama.tokenizer.to_str()
    Sentences(wordllama, max_length=5).transform(DOCUMENTS)
    assert wordllama.tokenizer.to_str() == before


def test_tables_that_are_refused(wordllama: Any) -> None:
    with pytest.raises(wc.InvalidInputError) as error:
        Sentences(wordllama, prompt="query: ").transform(["a"])
    assert str(error.value) == (
        "Sentences.transform: prompt does not apply to static tables, where it would only add the same "
        "vectors to "
        "every text; got 'query: '. Leave it out."
    )


def test_word_vectors_refuse_a_vocabulary_of_pieces(wordllama: Any) -> None:
    vocabulary = wordllama.tokenizer.get_vocab()
    words = sorted(vocabulary, key=lambda word: int(vocabulary[word]))[: len(wordllama.embedding)]
    pieces = [word for word in words if word.startswith(("▁", "##", "Ġ")) and len(word) > 1]
    with pytest.raises(wc.InvalidInputError) as error:
        WordVectors(wordllama.embedding, words).transform(DOCUMENTS)
    assert str(error.value) == (
        f"WordVectors.transform: vocabulary must consist of whole words; {len(pieces):,} of its "
        f"{len(words):,} entries, such as {pieces[0]!r}, are pieces of words. Use wc.text.Sentences, which "
        "reads all pieces, with the model and its tokenizer."
    )
