"""`Sentences`: embeddings equal to the model's own, and the words that put documents into clusters."""

from __future__ import annotations

import gc
import pickle
import re
from collections.abc import Callable
from copy import copy
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.testing import assert_allclose
from sklearn.base import clone
from sklearn.cluster import KMeans
from sklearn.decomposition import PCA
from sklearn.feature_extraction.text import ENGLISH_STOP_WORDS
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import Normalizer, StandardScaler
from torch.utils.flop_counter import FlopCounterMode

import whycluster as wc
from benchmarks.sentence_speed import forward_and_backward, random_texts
from examples.minilm import load_minilm
from tests.optional import optional
from whycluster.text import Sentences
from whycluster.text.pieces import find_words

SentenceTransformer = optional("sentence_transformers:SentenceTransformer")
modules = optional("sentence_transformers.sentence_transformer.modules")
DOCUMENTS = [
    "The ship left the harbor; by night, a storm had torn its sail.",
    "A storm at sea!\nThe ship lost an anchor, the crew lost heart.",
    "Sail and anchor: two words that every ship knows in a storm.",
    "The bank raised its rate, and the stock market fell.",
    "Stock prices fell again. The bank blames the market.",
    "A higher rate is good for the bank, bad for the stock market.",
]
ODD = ["", "   ", "🙂🙂", "שלום עולם", "naïve café", "the the the", "a_b c-d don't", "数据 聚类"]


@pytest.fixture(scope="module", autouse=True)
def one_thread() -> Any:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="module")
def minilm() -> Any:
    return load_minilm()


@pytest.fixture(scope="module")
def pipeline(minilm: Any) -> Any:
    return make_pipeline(Sentences(minilm), KMeans(2, n_init=3, random_state=0)).fit(DOCUMENTS)


@pytest.fixture(scope="module")
def exp(pipeline: Any) -> Any:
    return wc.explain(pipeline, [*DOCUMENTS, *ODD], background=DOCUMENTS)


def with_pooling(minilm: Any, pooling: str) -> Any:
    """Return MiniLM with another pooling and without normalization."""
    return SentenceTransformer(modules=[minilm[0], modules.Pooling(384, pooling)])


@pytest.mark.parametrize("prompt", [None, "query: "])
@pytest.mark.parametrize(
    ("pooling", "name"), [("mean", "mean"), ("cls", "cls"), ("max", "max"), ("lasttoken", "last")]
)
def test_embeddings_are_those_of_encode(minilm: Any, pooling: str, name: Any, prompt: str | None) -> None:
    texts, model = [*DOCUMENTS[:3], *ODD[:3]], with_pooling(minilm, pooling)
    expected = model.encode(texts, prompt=prompt)
    assert_allclose(Sentences(model, prompt=prompt).transform(texts), expected, atol=1e-6)
    in_batches = model.encode(texts, prompt=prompt, batch_size=2)
    assert_allclose(Sentences(model, prompt=prompt, batch_size=2).transform(texts), in_batches, atol=1e-6)
    pair = (minilm[0].auto_model, minilm.tokenizer)
    found = Sentences(pair, pooling=name, prompt=prompt, max_length=256).transform(texts)
    assert_allclose(found, expected, atol=1e-6)


def test_no_model_reads_more_pieces_than_it_has_positions(minilm: Any) -> None:
    """A maximum length that the model cannot keep is lowered; RoBERTa keeps two positions for padding."""
    tokenizer, long = copy(minilm.tokenizer), "ship " * 600
    tokenizer.model_max_length = 100_000
    roberta: Any = optional("transformers:RobertaModel").load()
    small = {"hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 8}
    config = roberta.config_class(vocab_size=tokenizer.vocab_size, max_position_embeddings=34, **small)
    for model, most in ((minilm[0].auto_model, 512), (roberta(config).eval(), 32)):
        sentences = Sentences((model, tokenizer))
        assert sentences.encoder("x").max_length == most
        assert np.isfinite(sentences.transform([long])).all()


def test_prompts_that_are_not_pooled(minilm: Any) -> None:
    model = SentenceTransformer(modules=[minilm[0], modules.Pooling(384, "mean", include_prompt=False)])
    expected = model.encode(DOCUMENTS[:2], prompt="query: ")
    assert_allclose(Sentences(model, prompt="query: ").transform(DOCUMENTS[:2]), expected, atol=1e-6)


def test_the_default_prompt_and_the_length_are_read_from_the_model(minilm: Any) -> None:
    model = SentenceTransformer(modules=list(minilm), prompts={"q": "query: "}, default_prompt_name="q")
    long = "word " * 400
    assert_allclose(Sentences(model).transform([long, "a"]), model.encode([long, "a"]), atol=1e-6)
    assert Sentences(model).encoder("x").max_length == 256
    assert_allclose(
        Sentences(minilm, normalize=True).transform(["a"]),
        minilm.encode(["a"], normalize_embeddings=True),
        atol=1e-6,
    )


def test_it_is_a_scikit_learn_transformer(minilm: Any, pipeline: Any, tmp_path: Path) -> None:
    copy = clone(pipeline)
    assert copy[0].model is minilm  # the weights are not copied
    assert pipeline[0].get_params()["batch_size"] == 32
    assert clone(pipeline[0]).set_params(batch_size=3).batch_size == 3
    assert pipeline[0].get_feature_names_out().tolist()[-1] == "sentences383"
    path = tmp_path / "model"
    minilm.save(str(path))
    loaded = Sentences(str(path))
    assert_allclose(loaded.transform(DOCUMENTS[:1]), minilm.encode(DOCUMENTS[:1]), atol=1e-6)
    assert "_load" not in pickle.loads(pickle.dumps(loaded)).__dict__


def test_every_document_is_in_the_cluster_of_the_model(exp: Any, pipeline: Any) -> None:
    texts = [*DOCUMENTS, *ODD]
    assert exp.cluster.tolist() == pipeline.predict(texts).tolist()
    network = wc.neuralize(pipeline)
    assert network.assign(texts).tolist() == exp.cluster.tolist()
    assert exp.rule == "joint"


def test_words_and_named_shares_add_up_to_the_evidence(exp: Any) -> None:
    sums = np.array([sum(word.relevance for word in exp.words(row)) for row in range(len(exp))])
    assert_allclose(sums + sum(exp.residual_shares.values()), exp.evidence, atol=1e-9)
    assert_allclose(exp.residual, sum(exp.residual_shares.values()), atol=1e-9)
    assert list(exp.residual_shares) == [
        "special tokens",
        "unknown pieces",
        "biases and positions",
        "baseline of the clusters",
    ]


def test_the_baseline_is_the_evidence_of_an_embedding_of_zeros(exp: Any, pipeline: Any) -> None:
    centers = pipeline[-1].cluster_centers_.astype(float)
    squares = (centers**2).sum(axis=1)
    c = exp.cluster_codes
    assert_allclose(exp.residual_shares["baseline of the clusters"], squares[1 - c] - squares[c], atol=1e-6)


def test_words_are_spans_of_the_original_text(exp: Any) -> None:
    for row, text in enumerate(exp.texts):
        for word in exp.words(row):
            assert text[word.start : word.stop] == word.text
        left = "".join(text[word.start : word.stop] for word in exp.words(row))
        assert left == "".join(text.split())  # nothing but whitespace is left out
    assert [word.text for word in exp.words(6 + 6)] == ["a_b", "c", "-", "d", "don't"]
    assert [word.text for word in exp.words(6 + 7)] == ["数", "据", "聚", "类"]


def test_the_words_of_the_topic_come_first(exp: Any) -> None:
    ships, banks = exp.cluster[0], exp.cluster[3]
    names = exp.summary().names(3)
    assert set(names[ships].split(", ")) <= {"ship", "storm", "sail", "anchor", "sea", "crew", "harbor"}
    assert "a" in exp.summary().words(ships, 5)  # only names leave out stop words
    assert set(names[banks].split(", ")) <= {"bank", "stock", "market", "rate", "prices"}
    assert set(exp.top(2).word[0]) <= {"ship", "storm", "sail", "harbor"}


def test_odd_documents(exp: Any) -> None:
    empty, emoji = 6, 8
    assert exp.n_words[empty] == exp.n_words[empty + 1] == 0
    assert "no known words (treated as empty text)" in exp.describe(empty)
    assert exp.residual_shares["special tokens"][empty] != 0
    assert exp.n_known[emoji] == 0
    assert all(not word.known and word.relevance == 0 for word in exp.words(emoji))
    assert exp.residual_shares["unknown pieces"][emoji] != 0
    assert exp.n_known[9] > 0  # right-to-left text


def test_long_documents_say_what_was_cut_off(minilm: Any, pipeline: Any) -> None:
    short = make_pipeline(Sentences(minilm, max_length=8), pipeline[-1])
    found: Any = wc.explain(short, DOCUMENTS, background=DOCUMENTS)
    assert found.n_cut_off.tolist() == [n - 6 for n in found.n_words]
    n = int(found.n_words.sum())
    assert f"{found.n_known.sum()} known words of {n} ({n - 36} cut off)" in repr(found)
    assert found.describe(0).endswith(
        f"{found.n_cut_off[0]} of its {found.n_words[0]} words are cut off, because the model reads at most "
        "8 "
        "pieces of a document."
    )
    assert [word.cut_off for word in found.words(0)] == [i >= 6 for i in range(found.n_words[0])]
    page = found.to_html()
    assert '<span class="c" title="cut off">sail</span>' in page
    assert '<span class="c">Gray</span> words are cut off.</p>' in page
    assert "vocabulary" not in page  # no word is unknown


@pytest.mark.slow
def test_padding_does_not_change_relevance(pipeline: Any) -> None:
    alone: Any = wc.explain(pipeline, DOCUMENTS[:1], background=DOCUMENTS)
    padded: Any = wc.explain(pipeline, [DOCUMENTS[0], " ".join(DOCUMENTS * 2)], background=DOCUMENTS)
    assert_allclose(padded.word_table.relevance[: alone.n_words[0]], alone.word_table.relevance, atol=1e-5)


@pytest.mark.parametrize("steps", [[PCA(3)], [StandardScaler(), Normalizer()]])
def test_steps_in_between_are_followed(minilm: Any, steps: list[Any]) -> None:
    model = make_pipeline(Sentences(minilm), *steps, KMeans(2, n_init=3, random_state=0)).fit(DOCUMENTS)
    found: Any = wc.explain(model, DOCUMENTS)
    assert found.cluster.tolist() == model.predict(DOCUMENTS).tolist()
    assert_allclose(found.word_table.sums() + sum(found.residual_shares.values()), found.evidence, atol=1e-9)


def test_queries(pipeline: Any) -> None:
    texts = DOCUMENTS[:2]
    other = 1 - int(pipeline.predict(texts)[0])
    contrast: Any = wc.explain(pipeline, texts, against=other, background=DOCUMENTS)
    plain: Any = wc.explain(pipeline, texts, background=DOCUMENTS)
    assert_allclose(contrast.word_table.relevance, plain.word_table.relevance, atol=1e-6)  # two clusters
    why_not: Any = wc.explain(pipeline, texts, target=other, background=DOCUMENTS)
    assert_allclose(why_not.evidence, -plain.evidence, atol=1e-6)
    assert_allclose(why_not.word_table.relevance, -plain.word_table.relevance, atol=1e-6)


def test_pages(exp: Any, tmp_path: Path) -> None:
    exp.to_html(tmp_path / "page.html")
    page = (tmp_path / "page.html").read_text()
    assert "special tokens:" in page
    assert "baseline of the clusters:" in page
    exp.report(tmp_path / "report.html")
    report = (tmp_path / "report.html").read_text()
    share = {name: values.sum() / exp.evidence.sum() for name, values in exp.residual_shares.items()}
    assert f"special tokens {share['special tokens']:.1%}, unknown pieces" in report


def test_a_model_in_half_precision(pipeline: Any) -> None:
    half = load_minilm().half()
    found: Any = wc.explain(make_pipeline(Sentences(half), pipeline[-1]), DOCUMENTS[:2], background=DOCUMENTS)
    full: Any = wc.explain(pipeline, DOCUMENTS[:2], background=DOCUMENTS)
    assert_allclose(found.evidence, full.evidence, atol=0.01)
    assert_allclose(found.word_table.relevance, full.word_table.relevance, atol=0.03)


def test_words_of_many_scripts() -> None:
    text = "L'été, हिन्दी भाषा; naïve (日本) 3.5 €"
    words = [text[start:stop] for start, stop in find_words(text)]
    assert words == ["L'été", ",", "हिन्दी", "भाषा", ";", "naïve", "(", "日", "本", ")", "3", ".", "5", "€"]


def message(model: Any, **options: Any) -> str:
    with pytest.raises((wc.InvalidInputError, wc.UnsupportedModelError)) as error:
        Sentences(model, **options).transform(["a"])
    return str(error.value)


def test_bad_parameters(minilm: Any) -> None:
    where = "Sentences.transform: "
    assert message(minilm, pooling="cls") == (
        f"{where}pooling applies only to a pair (model, tokenizer) from transformers, since other models "
        "do their own pooling; got 'cls'. Leave it out."
    )
    assert message(minilm, pooling="sum") == (
        f"{where}pooling must be None, 'mean', 'cls', 'max' or 'last'; got 'sum'."
    )
    for model in (minilm, (minilm[0].auto_model, minilm.tokenizer)):
        assert message(model, max_length=513) == (
            "Sentences: max_length must be at most 512, the number of positions of the model; got 513."
        )
    assert message(minilm, prompt=3) == f"{where}prompt must be a string or None; got 3."
    assert message(3) == (
        f"{where}model must be a SentenceTransformer or its path, a pair (model, tokenizer) from "
        "transformers, or "
        "a static table from model2vec or wordllama; got a int."
    )
    assert message("no/such/model").startswith(
        f"{where}model must be the path or the name of a SentenceTransformer; 'no/such/model' cannot be "
        "loaded: "
    )


def test_a_model_in_training_mode() -> None:
    model = load_minilm()
    model.train()
    assert message(model) == (
        "Sentences.transform: the model must be in evaluation mode; its 0.model.embeddings.dropout "
        "(Dropout) is "
        "in training mode, where embeddings are random or depend on the batch. Call model.eval() first."
    )


def test_documents_that_are_not_strings(pipeline: Any) -> None:
    for bad, expected in (
        (
            b"abc",
            "explain: X must contain only strings; document 1 is bytes. Decode it first: "
            "document.decode('utf-8').",
        ),
        (
            None,
            "explain: X must contain only strings; document 1 is missing (None). Drop it or replace it with "
            "an empty string.",
        ),
    ):
        with pytest.raises(wc.InvalidInputError) as error:
            wc.explain(pipeline, ["a", bad])
        assert str(error.value) == expected


def test_two_documents_are_compared_in_words(exp: Any) -> None:
    printed = str(exp.pair(0, 3))
    assert printed.startswith("Document 0 is in cluster 1, and document 3 is in cluster 0.")
    assert any(f"\n{word} " in printed for word in ("harbor", "sail", "ship", "storm"))
    assert any(f"\n{word} " in printed for word in ("bank", "market", "rate", "stock"))


def test_a_model_of_embeddings_after_steps_is_explained_as_the_whole_pipeline(minilm: Any) -> None:
    sentences = Sentences(minilm)
    whole = make_pipeline(sentences, PCA(3), KMeans(2, n_init=1, random_state=0)).fit(DOCUMENTS)
    expected: Any = wc.explain(whole, DOCUMENTS)
    found: Any = wc.explain(whole[1:], DOCUMENTS, encoder=sentences)
    assert found.cluster.tolist() == expected.cluster.tolist()
    assert_allclose(found.evidence, expected.evidence, atol=1e-9)
    assert_allclose(found.word_table.relevance, expected.word_table.relevance, atol=1e-6)


def test_a_saved_segmentation_of_embeddings_explains_documents(
    minilm: Any, pipeline: Any, tmp_path: Path
) -> None:
    """A file holds no encoder; the refusal of documents names what can be saved."""
    with pytest.raises(wc.UnsupportedModelError) as error:
        wc.Segmentation.of(pipeline, DOCUMENTS)
    assert str(error.value) == (
        "Segmentation: the model must take rows of a table; documents and the inputs of encoders have no "
        "columns to check, and an encoder is code, which a file cannot contain. Make the segmentation of the "
        "model of features instead: wc.Segmentation.of(head, features). For a pipeline that takes documents, "
        "these are pipeline[1:] and pipeline[:1].transform(X), and documents are explained with "
        "wc.explain(segmentation.network, X, encoder=pipeline[0])."
    )
    steps = make_pipeline(PCA(3), KMeans(2, n_init=1, random_state=0))
    whole = make_pipeline(Sentences(minilm), *[step for _, step in steps.steps]).fit(DOCUMENTS)
    embeddings = whole[:1].transform(DOCUMENTS)
    wc.save(
        wc.Segmentation.of(whole[1:], embeddings, names={0: "first", 1: "second"}),
        tmp_path / "topics.safetensors",
    )
    loaded = wc.load(tmp_path / "topics.safetensors")
    labels = ["first" if cluster == 0 else "second" for cluster in whole.predict(DOCUMENTS)]
    assert loaded.assign(embeddings).tolist() == labels
    found: Any = wc.explain(
        loaded.network, DOCUMENTS[:2], encoder=whole[0], background=loaded.population.measured
    )
    assert found.cluster.tolist() == labels[:2]
    expected: Any = wc.explain(whole, DOCUMENTS[:2], background=DOCUMENTS)
    assert found.beta == pytest.approx(expected.beta)
    assert_allclose(found.word_table.relevance, expected.word_table.relevance, atol=1e-6)


T5_SIZES = {"d_model": 32, "d_kv": 8, "d_ff": 64, "num_layers": 2, "num_heads": 4}


@pytest.mark.parametrize(
    ("name", "pooling", "options"),
    [
        ("T5Encoder", "mean", T5_SIZES),
        ("T5Encoder", "mean", {**T5_SIZES, "feed_forward_proj": "gated-gelu"}),
        ("ModernBert", "cls", {"bos_token_id": None, "eos_token_id": None}),
        ("Qwen3", "last", {"num_key_value_heads": 2, "head_dim": 8}),
    ],
)
def test_encoders_without_biases_lose_nothing(minilm: Any, name: str, pooling: Any, options: Any) -> None:
    """The pieces and the baseline of the clusters have all of the evidence."""
    make, vocabulary = optional(f"transformers:{name}Model").load(), minilm.tokenizer.vocab_size
    sizes = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 64}
    torch.manual_seed(0)
    model = make(make.config_class(**{**sizes, **options}, vocab_size=vocabulary, pad_token_id=0)).eval()
    for weights in model.parameters():
        if weights.ndim == 2:
            torch.nn.init.normal_(weights, std=0.2)
    sentences = Sentences((model, minilm.tokenizer), pooling=pooling)
    centers = sentences.transform(DOCUMENTS)[[0, 3]]
    exp: Any = wc.explain(centers, DOCUMENTS, encoder=sentences)
    assert (exp.word_table.sums() != 0).all()
    assert_allclose(exp.residual_shares.get("biases and positions", 0), 0, atol=1e-4 * exp.evidence.max())


def test_texts_that_are_not_unicode_are_refused(pipeline: Any) -> None:
    for call, where in (
        (pipeline[0].transform, "Sentences.transform"),
        (pipeline.predict, "Sentences.transform"),
    ):
        with pytest.raises(wc.InvalidInputError) as error:
            call(["a", "ship \ud800 sail"])
        assert str(error.value) == (
            f"{where}: X must be valid Unicode; document 1 has a lone surrogate, '\\ud800', at character 5. "
            "Drop it: document.encode('utf-8', 'ignore').decode()."
        )
    with pytest.raises(wc.InvalidInputError, match=r"^explain: X must be valid Unicode; document 0 has"):
        wc.explain(pipeline, ["\udfff"])
    odd: Any = wc.explain(pipeline, ["ship\x00sail"])
    assert len(odd.words(0)) == 3  # all other characters are read


def test_a_model_of_characters_is_refused() -> None:
    transformers: Any = optional("transformers")
    config = transformers.CanineConfig(
        hidden_size=16,
        num_hidden_layers=1,
        num_attention_heads=2,
        intermediate_size=16,
        local_transformer_stride=4,
        downsampling_rate=4,
    )
    assert message((transformers.CanineModel(config).eval(), transformers.CanineTokenizer())) == (
        "Sentences: the model must look up a vector for each piece of a text (get_input_embeddings); "
        "CanineModel has no such layer."
    )


class WithoutOffsets:
    """A tokenizer that does not report the positions of pieces, such as those written in Python."""

    is_fast = False

    def __init__(self, tokenizer: Any) -> None:
        self.tokenizer = tokenizer

    def __call__(self, *args: Any, **options: Any) -> Any:
        if options.get("return_offsets_mapping"):
            raise NotImplementedError("return_offset_mapping is not available")
        return self.tokenizer(*args, **options)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.tokenizer, name)


def test_a_tokenizer_without_offsets_still_encodes(minilm: Any, pipeline: Any) -> None:
    sentences = Sentences((minilm[0].auto_model, WithoutOffsets(minilm.tokenizer)), max_length=256)
    model = make_pipeline(sentences, pipeline[-1])
    assert model.predict(DOCUMENTS[:1]).shape == (1,)
    with pytest.raises(wc.UnsupportedModelError) as error:
        wc.explain(model, DOCUMENTS[:1])
    assert str(error.value) == (
        "explain: the tokenizer must report the position of each piece in the text; WithoutOffsets does not. "
        "Use a fast tokenizer, such as AutoTokenizer.from_pretrained(name)."
    )


@pytest.mark.parametrize("part", ["embeddings", "encoder"])
def test_a_model_without_weights_is_refused(part: str) -> None:
    model = load_minilm()
    getattr(model[0].auto_model, part).to("meta")
    first = {"embeddings": "embeddings.word_embeddings", "encoder": "encoder.layer.0.attention.self.query"}
    assert message(model) == (
        f"Sentences.transform: the model must have all of its weights; 0.model.{first[part]}.weight is on "
        "the meta device. Load the weights first."
    )


def test_duplicates_and_stop_words(pipeline: Any) -> None:
    exp: Any = wc.explain(pipeline, [DOCUMENTS[0], "the of and a", DOCUMENTS[0]], background=DOCUMENTS)
    assert exp.evidence[0] == exp.evidence[2]
    assert [w.relevance for w in exp.words(0)] == [w.relevance for w in exp.words(2)]
    assert [word.text for word in exp.words(1)] == ["the", "of", "and", "a"]
    assert all(word.known and word.relevance for word in exp.words(1))  # the model reads stop words


def test_a_contrast_is_evidence_against_the_nearest_competitor(pipeline: Any) -> None:
    centers = pipeline[:1].transform(DOCUMENTS)[[0, 3, 5]]
    exp: Any = wc.explain(centers, DOCUMENTS, encoder=pipeline[0], rule="contrast")
    against: Any = wc.explain(centers, DOCUMENTS, encoder=pipeline[0], against=exp.competitor)
    assert len(set(exp.competitor)) > 1
    assert_allclose(exp.word_table.relevance, against.word_table.relevance, atol=1e-9)
    assert_allclose(exp.word_table.sums() + sum(exp.residual_shares.values()), exp.evidence, atol=1e-9)


def test_printed_summaries_and_reports_sum_up_stop_words(exp: Any, tmp_path: Path) -> None:
    """As in names, only telling words are listed; one line has the share of all others."""
    summary, lines = exp.summary(), str(exp.summary()).splitlines()[2:]
    assert len(lines) == 2 * (6 + 1)
    frame, left_out = summary.to_frame("pandas"), {}
    for group, label in enumerate(summary.clusters.tolist()):
        cells = [line.replace(str(label), "", 1).split() for line in lines[7 * group : 7 * (group + 1)]]
        listed = [cells[0][1], *(row[0] for row in cells[1:6])]
        assert listed == summary.telling_words(label, 6)
        assert not {*listed} & {".", ",", "the", "a", "and"}
        own = frame[frame["cluster"] == label]
        stop_words = ENGLISH_STOP_WORDS | {"don't"}
        plain = own["word"].map(lambda word, known=stop_words: word in known or not word[0].isalnum())
        left_out[label] = own["share"][plain].sum()
        assert lines[7 * group + 6].split() == ["stop", "words", "and", "symbols", f"{left_out[label]:.1%}"]
        bars = summary.bars_of(group, 3)
        assert [bar.name for bar in bars[:3]] == summary.telling_words(label, 3)
        assert bars[-1].relevance == pytest.approx(own["share"].sum() - sum(b.relevance for b in bars[:3]))
    exp.report(tmp_path / "report.html")
    report = re.sub(r"<[^>]+>", " ", (tmp_path / "report.html").read_text())
    for share in left_out.values():
        assert re.search(rf"stop words and symbols\s+\+{share:.1%}", report)
    assert "belongs to no single word, is largest in" in report


def test_a_tokenizer_gives_the_inputs_of_an_encoder(minilm: Any, pipeline: Any) -> None:
    """The engine for tokens finds what `Sentences` finds, given the tensors or the lists of a tokenizer."""
    expected: Any = wc.explain(pipeline, DOCUMENTS)
    model = wc.deep.DeepClustering(minilm[0].auto_model, pipeline[-1], pool="mean", normalize=True)
    for kind in ("pt", None):
        X = minilm.tokenizer(DOCUMENTS, padding=True, return_tensors=kind)
        assert type(X).__name__ == "BatchEncoding"
        found: Any = wc.explain(model, X, at="embeddings.word_embeddings")
        assert found.cluster.tolist() == expected.cluster.tolist()
        in_text = expected.word_table.sums() + expected.residual_shares["special tokens"]
        assert_allclose(found.relevance.sum((1, 2)), in_text, atol=1e-5)


def n_tensors() -> int:
    return sum(issubclass(type(each), torch.Tensor) for each in gc.get_objects())


def test_no_batch_leaves_tensors_behind(pipeline: Any) -> None:
    """Without the garbage collector, 100 batches keep as many tensors alive as one."""
    model = make_pipeline(Sentences(pipeline[0].model, batch_size=1), pipeline[-1])
    texts = [f"ship {number}" for number in range(100)]
    wc.explain(model, texts[:1], background=DOCUMENTS)
    gc.collect()
    gc.disable()
    try:
        before = n_tensors()
        wc.explain(model, texts[:1], background=DOCUMENTS)
        after_one = n_tensors()
        wc.explain(model, texts, background=DOCUMENTS)
        assert n_tensors() - before <= 2 * (after_one - before)
        gc.collect()
        wc.explain(model, texts[:3], background=DOCUMENTS)
        assert gc.collect() < 50  # not even small objects
    finally:
        gc.enable()


def test_an_explanation_costs_at_most_two_forward_and_backward_passes(pipeline: Any) -> None:
    """Counted in operations of matrix products, which do not depend on the machine or on its load."""
    texts = random_texts(2)
    encoder = pipeline[0].encoder("test")
    pass_each = n_operations(lambda: forward_and_backward(encoder, texts))
    assert 0 < n_operations(lambda: wc.explain(pipeline, texts)) <= 2 * pass_each


def n_operations(call: Callable[[], Any]) -> int:
    with FlopCounterMode(display=False) as counter:
        call()
    found: int = counter.get_total_flops()
    return found


def test_emoji_of_several_signs_are_one_word() -> None:
    text = "\U0001f469\u200d\U0001f469\u200d\U0001f467 \u2764\ufe0f! \U0001f44d\U0001f3fd\U0001f44d"
    words = [text[start:stop] for start, stop in find_words(text)]
    assert words == [
        "\U0001f469\u200d\U0001f469\u200d\U0001f467",
        "\u2764\ufe0f",
        "!",
        "\U0001f44d\U0001f3fd",
        "\U0001f44d",
    ]


def test_words_that_cancel_out_are_warned_of(minilm: Any) -> None:
    """Two centers between which the document has almost no evidence."""
    sentences = Sentences(minilm)
    x = sentences.transform(DOCUMENTS[:1])[0].astype(float)
    w = np.random.default_rng(0).normal(size=len(x))
    w += (1e-5 - w @ x) / (x @ x) * x
    with pytest.warns(wc.UnstableRelevanceWarning) as caught:
        exp: Any = wc.explain(np.array([w, -w]), DOCUMENTS[:1], encoder=sentences)
    ratio = np.abs(exp.word_table.relevance).sum() / exp.evidence.sum()
    assert ratio > 100
    assert str(caught[0].message) == (
        f"explain: the absolute relevance adds up to {ratio:,.3g} times the evidence, so relevance of "
        "opposite signs cancels out and has no meaning. Choose documents with more evidence, or compare with "
        "another cluster: against=."
    )
