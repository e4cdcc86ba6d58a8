"""Tests of explanations of documents: relevance of words, their positions, output, and invalid input."""

from __future__ import annotations

import gzip
import html as html_module
import json
import os
import pickle
import re
import time
import tracemalloc
from collections import Counter
from collections.abc import Callable
from html.parser import HTMLParser
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from sklearn.base import clone
from sklearn.cluster import DBSCAN, Birch, BisectingKMeans, KMeans, MiniBatchKMeans
from sklearn.compose import ColumnTransformer
from sklearn.decomposition import PCA, TruncatedSVD
from sklearn.feature_extraction.text import (
    CountVectorizer,
    HashingVectorizer,
    TfidfTransformer,
    TfidfVectorizer,
)
from sklearn.feature_selection import VarianceThreshold
from sklearn.mixture import GaussianMixture
from sklearn.pipeline import FeatureUnion, Pipeline, make_pipeline
from sklearn.preprocessing import (
    FunctionTransformer,
    MaxAbsScaler,
    Normalizer,
    PowerTransformer,
    RobustScaler,
    StandardScaler,
)
from sklearn.random_projection import GaussianRandomProjection

import whycluster as wc
from benchmarks import measure
from benchmarks import text as bench
from examples import newsgroups
from tests.optional import optional
from tests.reference import text as slow
from whycluster.text.finders import finder_of

if TYPE_CHECKING:
    import pandas as pd
    import polars as pl
    import pyarrow as pa
else:
    pd = optional("pandas")
    pl = optional("polars")
    pa = optional("pyarrow")

TOPICS = {
    "pets": ["cat", "dog", "kitten", "puppy", "paw", "fur", "bark", "purr", "leash", "vet"],
    "money": ["bank", "stock", "market", "bond", "rate", "dollar", "trade", "price", "fund", "tax"],
    "sea": ["ship", "wave", "harbour", "sail", "storm", "anchor", "tide", "coast", "whale", "island"],
}
FILLERS = ["the", "and", "with", "some", "very", "zebraic", "Qwerty"]


def write_documents(n: int, seed: int = 0) -> tuple[list[str], NDArray[np.intp]]:
    """Write texts about three topics, with punctuation, line breaks, capitals and unknown words."""
    rng = np.random.default_rng(seed)
    documents, topics = [], []
    for _ in range(n):
        topic = int(rng.integers(3))
        own, other = list(TOPICS.values())[topic], list(TOPICS.values())[int(rng.integers(3))]
        words = [*rng.choice(own, 8), *rng.choice(other, 3), *rng.choice(FILLERS, 4)]
        rng.shuffle(words)
        marks = rng.choice([" ", " ", ", ", "!\n", " - ", "\t"], len(words))
        documents.append(
            "".join(f"{w.title() if rng.random() < 0.2 else w}{m}" for w, m in zip(words, marks, strict=True))
        )
        topics.append(topic)
    return documents, np.array(topics)


DOCUMENTS, TRUE = write_documents(60)
WORDS = [word for words in TOPICS.values() for word in words]


def word_vectors(**options: Any) -> Any:
    rng = np.random.default_rng(1)
    centers = np.repeat(rng.normal(size=(3, 6)), 10, axis=0)
    return wc.text.WordVectors(centers + 0.4 * rng.normal(size=(30, 6)), WORDS, **options)


def explain(model: Any, documents: Any = DOCUMENTS, **query: Any) -> Any:
    return wc.explain(model, documents, **query)


def k_means(n_clusters: int = 3) -> Any:
    return KMeans(n_clusters, n_init=2, random_state=0)


def stem(text: str) -> list[str]:
    return [word[:3] for word in text.split()]


@pytest.fixture(scope="module")
def pipeline() -> Any:
    return make_pipeline(word_vectors(), wc.KernelKMeans(3, n_support=2, init=TRUE)).fit(DOCUMENTS)


# Relevance


def occurrences(document: str) -> list[str]:
    return [word for word in re.findall("[a-z]{3,}", document.lower()) if word in WORDS]


RULES = ("path", "min-take-most")


def sizes_of(exp: Any, rule: str) -> Any:
    """The number of documents of each cluster, which only the path rule uses."""
    return np.bincount(exp.cluster, minlength=len(exp.labels)) if rule == "path" else None


@pytest.mark.parametrize("rule", RULES)
def test_relevance_of_words_matches_the_paper(rule: str) -> None:
    front, model = word_vectors(), k_means(4)
    exp = explain(make_pipeline(front, model).fit(DOCUMENTS), rule=rule)
    for row, document in enumerate(DOCUMENTS):
        phi = [front.vectors[WORDS.index(word)] for word in occurrences(document)]
        expected = slow.mean_of_words(phi, model.cluster_centers_, exp.beta, sizes_of(exp, rule))
        found = [word.relevance for word in exp.words(row) if word.known]
        np.testing.assert_allclose(found, expected, atol=1e-10)


@pytest.mark.parametrize("rule", RULES)
def test_kernel_k_means_matches_the_reference(pipeline: Any, rule: str) -> None:
    front, model = pipeline[0], pipeline[1]
    support = [model.support_vectors_[model.support_cluster_ == k] for k in range(3)]
    exp = explain(pipeline, rule=rule)
    if rule == "path":
        assert exp.beta == model.gamma_
    for row, document in enumerate(DOCUMENTS):
        phi = [front.vectors[WORDS.index(word)] for word in occurrences(document)]
        expected = slow.kernel(phi, support, model.gamma_, exp.beta, sizes_of(exp, rule))
        found = [word.relevance for word in exp.words(row) if word.known]
        np.testing.assert_allclose(found, expected, atol=1e-10)


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("grams", [(1, 1), (1, 3), (2, 2)])
def test_terms_before_a_projection_to_unit_length_match_the_reference(
    grams: tuple[int, int], rule: str
) -> None:
    tfidf = TfidfVectorizer(ngram_range=grams, stop_words="english")
    svd = TruncatedSVD(5, random_state=0)
    model = make_pipeline(tfidf, svd, Normalizer(), k_means())
    exp = explain(model.fit(DOCUMENTS), rule=rule)
    analyze, sizes = tfidf.build_analyzer(), sizes_of(exp, rule)
    for row, document in enumerate(DOCUMENTS[:20]):
        terms = [term for term in analyze(document) if term in tfidf.vocabulary_]
        t, count = tfidf.transform([document]).toarray()[0], Counter(terms)
        z = svd.components_ @ t
        parts = [
            svd.components_[:, i] * t[i] / count[term] / np.linalg.norm(z)
            for term in terms
            for i in [tfidf.vocabulary_[term]]
        ]
        unit, centers = z / np.linalg.norm(z), model[-1].cluster_centers_
        of_terms = slow.occurrences(unit, parts, centers, exp.beta, sizes)
        words = TfidfVectorizer(stop_words="english").build_analyzer()(document)
        expected = np.zeros(len(words))
        places = [(i, n) for n in range(grams[0], grams[1] + 1) for i in range(len(words) - n + 1)]
        for (i, n), relevance in zip(places, of_terms, strict=True):
            expected[i : i + n] += relevance / n
        found = [word.relevance for word in exp.words(row) if not word.stop_word]
        np.testing.assert_allclose(found, expected, atol=1e-10)


PIPELINES: dict[str, Callable[[], Any]] = {
    "words, k-means": lambda: make_pipeline(word_vectors(), k_means()),
    "words, mini-batch": lambda: make_pipeline(word_vectors(), MiniBatchKMeans(3, n_init=1, random_state=0)),
    "words, mixture": lambda: make_pipeline(
        word_vectors(), GaussianMixture(3, reg_covar=0.1, random_state=0)
    ),
    "words, tree": lambda: make_pipeline(word_vectors(), BisectingKMeans(4, random_state=0)),
    "words, birch": lambda: make_pipeline(word_vectors(), Birch(n_clusters=3, threshold=0.3)),
    "words, surrogate": lambda: make_pipeline(word_vectors(), wc.Surrogate()),
    "words, unit length": lambda: make_pipeline(word_vectors(), Normalizer(), k_means()),
    "words, standardized, unit length": lambda: make_pipeline(
        word_vectors(), StandardScaler(), Normalizer(), k_means()
    ),
    "words, pca": lambda: make_pipeline(word_vectors(), PCA(3, whiten=True), k_means()),
    "counts": lambda: make_pipeline(CountVectorizer(), k_means()),
    "binary counts": lambda: make_pipeline(CountVectorizer(binary=True), MaxAbsScaler(), k_means()),
    "counts, tf-idf": lambda: make_pipeline(CountVectorizer(), TfidfTransformer(), k_means()),
    "tf-idf": lambda: make_pipeline(TfidfVectorizer(sublinear_tf=True, min_df=2, max_df=0.9), k_means()),
    "tf-idf, log": lambda: make_pipeline(TfidfVectorizer(), FunctionTransformer(np.log1p), k_means()),
    "tf-idf, svd, kernel": lambda: make_pipeline(
        TfidfVectorizer(ngram_range=(1, 2)),
        TruncatedSVD(6, random_state=0),
        Normalizer(),
        wc.KernelKMeans(3, n_support=3, random_state=0),
    ),
    "tf-idf, selected": lambda: make_pipeline(TfidfVectorizer(), VarianceThreshold(0.005), k_means()),
    "tf-idf, centered pca": lambda: make_pipeline(TfidfVectorizer(), PCA(4, svd_solver="arpack"), k_means()),
    "characters": lambda: make_pipeline(TfidfVectorizer(analyzer="char", ngram_range=(1, 3)), k_means()),
    "characters in words": lambda: make_pipeline(
        TfidfVectorizer(analyzer="char_wb", ngram_range=(2, 4)), TruncatedSVD(5, random_state=0), k_means()
    ),
    "hashes": lambda: make_pipeline(HashingVectorizer(n_features=64, alternate_sign=False), k_means()),
    "nested": lambda: make_pipeline(
        make_pipeline(TfidfVectorizer(), "passthrough", TruncatedSVD(5, random_state=0)),
        make_pipeline(Normalizer(), k_means()),
    ),
}


@pytest.mark.filterwarnings("ignore::whycluster.FidelityWarning")
@pytest.mark.parametrize("name", PIPELINES)
def test_networks_assign_like_pipelines_and_words_add_up_to_the_evidence(name: str) -> None:
    documents = [*DOCUMENTS, "", "?!", "unheard-of", "cat " * 50, "CAT\r\n\tdog"]
    model = PIPELINES[name]().fit(DOCUMENTS, TRUE)
    net = wc.neuralize(model)
    np.testing.assert_array_equal(net.assign(documents), model.predict(documents))
    exp: Any = net.explain(documents)
    np.testing.assert_allclose(
        exp.evidence,
        net.evidence(documents)[np.arange(len(documents)), np.searchsorted(net.labels, exp.cluster)],
    )
    known = exp.n_known > 0
    explained = np.array([sum(word.relevance for word in exp.words(row)) for row in range(len(documents))])
    np.testing.assert_allclose(exp.evidence - explained, exp.residual, atol=1e-9)
    np.testing.assert_array_equal(explained[~known], 0.0)
    if net.energy.adds_up:
        np.testing.assert_allclose(exp.residual[known], 0.0, atol=1e-8 * np.abs(exp.evidence).max())
    assert all(
        word.relevance == 0.0 for row in range(len(documents)) for word in exp.words(row) if not word.known
    )
    assert np.isfinite(exp.to_frame("pandas")["relevance"]).all()
    np.testing.assert_allclose(
        exp.competition.sum(axis=1), exp.evidence, atol=1e-9 * np.abs(exp.evidence).max() + 1e-12
    )


def test_queries_give_the_same_results_as_for_rows(pipeline: Any) -> None:
    net, Z = wc.neuralize(pipeline), pipeline[0].transform(DOCUMENTS)
    rows = wc.neuralize(pipeline[1])
    queries: list[dict[str, Any]] = [
        {"target": 1},
        {"against": 2},
        {"target": TRUE},
        {"beta": 3.0},
        {"rule": "min-take-most"},
        {"rule": "joint"},
        {"rule": "contrast"},
        {"target": 0, "against": 1},
    ]
    for query in queries:
        exp: Any = net.explain(DOCUMENTS, **query)
        expected = rows.explain(Z, **query)
        for name in ("cluster", "competitor", "assigned", "rule"):
            np.testing.assert_array_equal(getattr(exp, name), getattr(expected, name))
        for name in ("evidence", "residual", "competition"):
            np.testing.assert_allclose(getattr(exp, name), getattr(expected, name), atol=1e-10)
        assert exp.beta == (None if expected.beta is None else pytest.approx(expected.beta))
    exp = net.explain(DOCUMENTS[:3], background=DOCUMENTS)
    assert exp.beta == pytest.approx(rows.explain(Z).beta)
    mixture = make_pipeline(word_vectors(), GaussianMixture(3, reg_covar=0.1, random_state=0)).fit(DOCUMENTS)
    exp = explain(mixture, threshold=0.9)
    np.testing.assert_allclose(exp.residual, wc.explain(mixture[1], Z, threshold=0.9).residual, atol=1e-9)
    assert "the threshold 0.9" in exp.describe(0)


def test_equal_words_have_equal_relevance() -> None:
    """A single word gets all the evidence; two occurrences of a word get equal relevance."""
    model = make_pipeline(word_vectors(), k_means()).fit(DOCUMENTS)
    exp = explain(model, ["cat", "cat dog cat"], beta=1.0)
    assert exp.words(0)[0].relevance == pytest.approx(exp.evidence[0])
    first, _, last = exp.words(1)
    assert first.relevance == last.relevance


@pytest.mark.usefixtures("two_threads")
def test_block_size_does_not_change_results(pipeline: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = explain(pipeline)
    monkeypatch.setattr("whycluster.core.attribution._THREAD_BYTES", 5000)
    monkeypatch.setattr("whycluster.text.vectorization._GATHERED", 20)
    parts = explain(pipeline)
    np.testing.assert_array_equal(whole.word_table.start, parts.word_table.start)
    np.testing.assert_allclose(whole.word_table.relevance, parts.word_table.relevance, atol=1e-12)


def test_results_do_not_depend_on_earlier_calls(pipeline: Any) -> None:
    net, other = wc.neuralize(pipeline), write_documents(60, seed=1)[0]
    expected = pipeline.predict(other)
    for _ in range(3):
        np.testing.assert_array_equal(net.explain(DOCUMENTS).cluster, pipeline.predict(DOCUMENTS))
        np.testing.assert_array_equal(net.explain(other, background=DOCUMENTS).cluster, expected)
        np.testing.assert_array_equal(net.assign(other), expected)
    exp: Any = pickle.loads(pickle.dumps(net.explain(other)))
    np.testing.assert_array_equal(exp.competition, net.explain(other).competition)


# Positions of words

# Characters that become longer in lower case or without accents, and characters that are not letters
UNUSUAL = "\u0130\u0131\u03a3\u03c3\u03c2\ufb01\u00bd\u00b4\u4e2d\u13e3\u0301\u01c5\x1c\u2028"
ALPHABET = st.sampled_from([*"abcABC \n\t.,-_12éÉß", *UNUSUAL, "cat", "dog", "\u03a3\u03b1\u03c2 "])
TEXTS = st.lists(st.lists(ALPHABET, max_size=12).map("".join), min_size=1, max_size=4)
VECTORIZERS = st.fixed_dictionaries(
    {
        "lowercase": st.booleans(),
        "strip_accents": st.sampled_from([None, "ascii", "unicode"]),
        "token_pattern": st.sampled_from(
            [r"(?u)\b\w\w+\b", r"\w", r"(\w)\w*", r"\S+", r"a(b)?", r"[^\W\d_]*"]
        ),
        "stop_words": st.sampled_from([None, ["cat", "a"]]),
        "ngram_range": st.sampled_from([(1, 1), (1, 2), (2, 3)]),
        "binary": st.booleans(),
    }
)


def counts_of(finder: Any, texts: list[str]) -> NDArray[np.intp]:
    counts = np.zeros((len(texts), finder.n_terms), dtype=np.intp)
    for row, text in enumerate(texts):
        np.add.at(counts[row], finder.find(text).terms, 1)
    return counts


@pytest.mark.filterwarnings("ignore:Your stop_words may be inconsistent")
@given(TEXTS, VECTORIZERS)
def test_finders_count_terms_like_the_vectorizer(texts: list[str], options: dict[str, Any]) -> None:
    vectorizer = CountVectorizer(**{**options, "binary": False})
    try:
        vectorizer.fit([*texts, "cat dog a bb ab"])
    except ValueError:  # no word at all
        return
    finder = finder_of(vectorizer)
    np.testing.assert_array_equal(counts_of(finder, texts), vectorizer.transform(texts).toarray())
    process = vectorizer.build_preprocessor()
    for text in texts:
        tokens = vectorizer.build_tokenizer()(process(text))
        spans = finder.find(text).spans
        assert len(spans) == len(tokens)
        for token, (start, stop) in zip(tokens, spans, strict=True):
            # A final sigma differs from other sigmas, and a cut out word may end in one.
            assert token.replace("\u03c2", "\u03c3") in process(text[start:stop]).replace("\u03c2", "\u03c3")


@pytest.mark.parametrize("analyzer", ["char", "char_wb"])
@given(texts=TEXTS, low=st.integers(1, 3), more=st.integers(0, 2), accents=st.sampled_from([None, "unicode"]))
@settings(max_examples=60)
def test_finders_count_characters_like_the_vectorizer(
    analyzer: str, texts: list[str], low: int, more: int, accents: str | None
) -> None:
    vectorizer = CountVectorizer(analyzer=analyzer, ngram_range=(low, low + more), strip_accents=accents)
    vectorizer.fit([*texts, "some words"])
    found, counted = counts_of(finder_of(vectorizer), texts), vectorizer.transform(texts).toarray()
    spaces = [i for term, i in vectorizer.vocabulary_.items() if not term.strip()]
    found[:, spaces] = counted[:, spaces]  # a term of white space covers no word
    np.testing.assert_array_equal(found, counted)


@given(TEXTS, st.integers(0, 2**32 - 1), st.sampled_from(["counts", "tf-idf", "unit", "characters", "words"]))
@settings(max_examples=60)
def test_words_of_any_document_add_up_to_the_evidence(texts: list[str], seed: int, kind: str) -> None:
    documents = [*texts, "cat dog", "dog bank", "bank sail anchor", "cat"]
    front = {
        "counts": make_pipeline(CountVectorizer(token_pattern=r"\w+", ngram_range=(1, 2))),
        "tf-idf": make_pipeline(TfidfVectorizer(strip_accents="unicode"), TruncatedSVD(2, random_state=0)),
        "unit": make_pipeline(TfidfVectorizer(), TruncatedSVD(2, random_state=0), Normalizer()),
        "characters": make_pipeline(TfidfVectorizer(analyzer="char_wb", ngram_range=(1, 2))),
        "words": make_pipeline(word_vectors()),
    }[kind]
    Z = front.fit_transform(documents)
    centroids = np.random.default_rng(seed).normal(size=(3, Z.shape[1]))
    model = KMeans(3, init=centroids, n_init=1, max_iter=1).fit(centroids)
    model.cluster_centers_ = centroids  # exactly
    whole = Pipeline([*front.steps, ("model", model)])
    exp = explain(whole, documents)
    assert np.isfinite(exp.evidence).all()
    np.testing.assert_allclose(
        exp.residual[exp.n_known > 0], 0.0, atol=1e-9 * (1 + np.abs(exp.evidence).max())
    )
    for row, document in enumerate(documents):
        for word in exp.words(row):
            assert document[word.start : word.stop] == word.text
    assert text_of(exp.to_html()) == [as_in_browser(document) for document in documents]


def test_accents_and_ligatures_are_located_in_the_original() -> None:
    text = "İstanbul CAFÉ cafe\u0301 ﬁne ½ Straße"
    vectorizer = CountVectorizer(strip_accents="unicode", token_pattern=r"\w+").fit([text])
    found = finder_of(vectorizer).find(text)
    words = [text[start:stop] for start, stop in found.spans]
    assert words == ["İstanbul", "CAFÉ", "cafe\u0301", "ﬁne", "½", "½", "Straße"]
    plain = CountVectorizer(token_pattern=r"\w+").fit([text])  # the lower case of İ is two characters
    words = [text[start:stop] for start, stop in finder_of(plain).find(text).spans]
    assert words == ["İ", "stanbul", "CAFÉ", "cafe", "ﬁne", "½", "Straße"]


def test_functions_of_the_user_are_supported_if_their_tokens_are_in_the_text() -> None:
    def scrub(text: str) -> str:
        return re.sub(r"\W+", " ", text.upper())

    def translate(text: str) -> str:
        return text.lower().replace("at ", "chez ")

    texts = ["Cat, at: CAT", "at cat"]
    cases: dict[str, tuple[Any, list[str]]] = {
        "tokenizer": (CountVectorizer(tokenizer=str.split, token_pattern=None), ["Cat,", "at:", "CAT"]),
        "dropping": (
            CountVectorizer(tokenizer=lambda t: [w for w in t.split() if w != "cat,"], token_pattern=None),
            ["at:", "CAT"],
        ),
        "preprocessor": (CountVectorizer(preprocessor=str.swapcase), ["Cat", "at", "CAT"]),
        "analyzer": (CountVectorizer(analyzer=lambda t: re.findall(r"\w+", t.lower())), ["Cat", "at", "CAT"]),
        "scrubbed": (CountVectorizer(preprocessor=scrub, lowercase=False), ["Cat", "at", "CAT"]),
        "shortened": (CountVectorizer(preprocessor=lambda t: t[5:].lower()), ["at", "CAT"]),
    }
    for vectorizer, expected in cases.values():
        finder = finder_of(vectorizer.fit(texts))
        assert [texts[0][start:stop] for start, stop in finder.find(texts[0]).spans] == expected
        np.testing.assert_array_equal(counts_of(finder, texts), vectorizer.transform(texts).toarray())
    model = make_pipeline(CountVectorizer(preprocessor=translate), k_means(2)).fit([*texts, "dog"])
    with pytest.raises(wc.InvalidInputError) as error:
        explain(model, texts)
    assert str(error.value) == (
        "explain: every term that step 'countvectorizer' (CountVectorizer) counts must occur in the "
        "documents of X; 'chez' cannot be found in document 1. Use a tokenizer that does not change words."
    )


class Stemmed(CountVectorizer):  # type: ignore[misc]  # scikit-learn has no types
    """A vectorizer with stemming, as in many recipes."""

    def build_analyzer(self) -> Callable[[str], list[str]]:
        analyze = super().build_analyzer()
        return lambda document: [word[:3] for word in analyze(document)]


class Odd(CountVectorizer):  # type: ignore[misc]
    """A vectorizer that counts a word that is not in the text."""

    def transform(self, raw_documents: Any) -> Any:
        return super().transform([f"{document} anchor" for document in raw_documents])


def test_subclasses_are_supported_or_rejected() -> None:
    model = make_pipeline(Stemmed(), k_means()).fit(DOCUMENTS)
    exp = explain(model)
    np.testing.assert_allclose(exp.residual, 0.0, atol=1e-9)
    assert max(len(word.text) for word in exp.words(0)) == 3
    model = make_pipeline(Odd(), k_means()).fit(DOCUMENTS)
    with pytest.raises(wc.UnsupportedModelError) as error:
        explain(model, ["anchor", "cat"])
    assert str(error.value) == (
        "explain: step 'odd' (Odd) must count the words that its parameters imply; in document 1 it "
        "counts other words, which cannot be located in the text."
    )


# Output


def as_in_browser(text: str) -> str:
    """Return a text as a browser shows it: each line break is one character."""
    text = text.replace("\r\n", "\n").replace("\r", "\n")
    return re.sub("[\x00-\x08\x0b\x0c\x0e-\x1f]", lambda m: chr(0x2400 + ord(m.group())), text)


class Reader(HTMLParser):
    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.texts: list[str] = []
        self.tags: set[str] = set()
        self.depth = 0
        self.attributes: set[str] = set()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        self.attributes |= {name for name, _ in attrs}
        if tag == "div" and ("class", "text") in attrs:
            self.texts.append("")
            self.depth = 1

    def handle_endtag(self, tag: str) -> None:
        if tag == "div":
            self.depth = 0

    def handle_data(self, data: str) -> None:
        if self.depth:
            self.texts[-1] += data


TAGS = [
    "h3",
    "table",
    "tr",
    "th",
    "td",
    "br",
    "small",
    "html",
    "head",
    "meta",
    "title",
    "style",
    "body",
    "main",
    "h1",
    "h2",
    "p",
    "b",
    "span",
    "article",
    "div",
]
ATTRIBUTES = ["lang", "charset", "name", "content", "http-equiv", "class", "style", "title", "dir"]


def text_of(page: str) -> list[str]:
    reader = Reader()
    reader.feed(page.replace("\r\n", "\n").replace("\r", "\n"))
    reader.close()
    assert reader.tags <= set(TAGS)
    assert reader.attributes <= set(ATTRIBUTES)
    return reader.texts


HOSTILE = [
    "<script>alert('cat')</script> dog",
    "</style></div></article><img src=x onerror=alert(1)> cat",
    "\"cat\" 'dog' & &amp; &lt;b&gt; <!-- cat --> ]]>",
    "cat\x00dog\x07\x1b[31m\x7f\x85 bank",
    "  cat\r\n\r\n\tdog  \rbank\n",
    "cat\u202edog\u2066 bank <b title=cat>",
    "\n\ncat",
]


def test_documents_cannot_become_markup(pipeline: Any, tmp_path: Path) -> None:
    documents = [*HOSTILE, "lone \ud800 cat"]
    exp = explain(pipeline, documents)
    expected = [
        as_in_browser(d).replace("\x7f", "\u2421").replace("\x85", "\ufffd").replace("\ud800", "\ufffd")
        for d in documents
    ]
    for page in (exp.to_html(), exp._repr_html_()):
        found = text_of(page)
        assert found == expected[: len(found)]
        assert "<script" not in page
        assert "<img" not in page
    labeled = Pipeline([pipeline.steps[0], ("model", wc.Surrogate())])
    labeled.fit(DOCUMENTS, np.array(["<script>", "b'\"", "</h2>"])[TRUE])
    page = explain(labeled, HOSTILE).to_html()
    text_of(page)
    assert html_module.escape("<script>") in page
    exp.to_html(tmp_path / "page.html")
    assert (tmp_path / "page.html").read_bytes().decode() == exp.to_html()
    assert os.listdir(tmp_path) == ["page.html"]


def test_pages_highlight_words_and_are_written_completely_or_not_at_all(
    pipeline: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    exp = explain(pipeline, ["Cat the zebraic bank"])
    page = exp.to_html()
    cat, bank = (word.relevance for word in exp.words(0) if word.known)
    assert f'title="{cat:+.3g}">Cat</b> the <span class="u" title="unknown">zebraic</span> <b' in page
    assert f'title="{bank:+.3g}">bank</b>' in page
    assert "prefers-color-scheme: dark" in page
    assert exp.claim() in page
    path = tmp_path / "page.html"
    path.write_text("before")

    def fail(*_: Any) -> None:
        raise OSError("disk full")

    monkeypatch.setattr(Path, "replace", fail)
    with pytest.raises(OSError, match="disk full"):
        exp.to_html(path)
    assert path.read_text() == "before"
    assert os.listdir(tmp_path) == ["page.html"]


def test_a_document_described_as_text(pipeline: Any) -> None:
    exp = explain(
        pipeline, ["A cat, a dog and the Cat: zebraic!", "Nobody knows this", ""], background=DOCUMENTS
    )
    text = exp.describe(0)
    assert text.startswith(
        f"Document 0 is in cluster {exp.cluster[0]}: evidence {exp.evidence[0]:.3g}, nearest"
    )
    total = sum(word.relevance for word in exp.words(0) if word.text.lower() == "cat")
    assert re.search(rf"\ncat +2 +{re.escape(f'{total:.3g}')} ", text)
    for row in (1, 2):
        assert "no known words (treated as empty text)" in exp.describe(row)
        assert re.search(rf"no single word +{re.escape(f'{exp.evidence[row]:.3g}')}", exp.describe(row))
    np.testing.assert_array_equal(exp.evidence[1], exp.evidence[2])
    np.testing.assert_array_equal(exp.residual[1:], exp.evidence[1:])
    assert (
        repr(exp) == f"<TextExplanation of 3 documents, 3 known words of 9, 3 "
        f"clusters (path, beta={exp.beta:.4g})>"
    )
    assert str(exp).startswith(repr(exp) + "\n\nDocument 0 is in cluster")
    long = explain(pipeline, [" ".join(WORDS)])
    assert "22 more words" in long.describe(0)
    assert "... and 57 more documents" in str(explain(pipeline))
    assert "57 more documents" in explain(pipeline)._repr_html_()


def test_words_and_top_words(pipeline: Any) -> None:
    exp = explain(pipeline, ["The cat, cat!", "zebraic"])
    assert exp.words(0) == [
        ("The", 0, 3, 0.0, False, True, False),
        ("cat", 4, 7, pytest.approx(exp.word_table.relevance[1]), True, False, False),
        ("cat", 9, 12, pytest.approx(exp.word_table.relevance[2]), True, False, False),
    ]
    assert exp.words(-1) == [("zebraic", 0, 7, 0.0, False, False, False)]
    np.testing.assert_array_equal(exp.n_words, [3, 1])
    np.testing.assert_array_equal(exp.n_known, [2, 0])
    top = exp.top(3)
    assert len(top) == 2
    assert top.word.tolist() == [["cat"], [""]]
    assert top.count.tolist() == [[2], [0]]
    assert top.relevance[0, 0] == pytest.approx(exp.words(0)[1].relevance * 2)
    assert repr(top) == "<TopWords: the 1 strongest of 2 documents; see word, relevance, count, to_frame()>"
    assert list(top.to_frame("polars").columns) == ["word_1", "relevance_1", "count_1"]
    with pytest.raises(
        wc.InvalidInputError, match=re.escape("top: n must be an integer of at least 1; got 0.")
    ):
        exp.top(0)
    with pytest.raises(IndexError, match="words: row must be a position from 0 to 1; got"):
        exp.words(2)
    with pytest.raises(
        wc.InvalidInputError,
        match=re.escape("describe: row must be a single integer position; got [0]."),
    ):
        exp.describe([0])


def test_selecting_documents_of_an_explanation(pipeline: Any) -> None:
    exp = explain(pipeline)
    some = exp[[5, 2, 2]]
    assert some.data == [DOCUMENTS[5], DOCUMENTS[2], DOCUMENTS[2]]
    assert [some.words(i) for i in range(3)] == [exp.words(i) for i in (5, 2, 2)]
    np.testing.assert_array_equal(some.cluster, exp.cluster[[5, 2, 2]])
    np.testing.assert_array_equal(some.residual, exp.residual[[5, 2, 2]])
    assert some.describe(0).startswith("Document 5 ")
    assert [len(one) for one in exp[:3]] == [1, 1, 1]
    assert exp[exp.cluster == 1].to_frame("pandas")["cluster"].unique().tolist() == [1]
    empty = exp[[]]
    assert len(empty) == 0
    assert empty.top().word.shape == (0, 0)
    assert str(empty.summary()).startswith("No document belongs")


@pytest.mark.parametrize(
    ("series", "library"),
    [
        (lambda d: pd.Series(d, index=[f"id{i}" for i in range(len(d))]), "pandas"),
        (lambda d: pytest.importorskip("polars").Series("text", d), "polars"),
        (lambda d: pytest.importorskip("pyarrow").chunked_array([d]), "pyarrow"),
        (lambda d: np.array(d), "pandas"),
        (lambda d: np.array(d, dtype=object), "pandas"),
        (tuple, "pandas"),
        (lambda d: pd.DataFrame({"text": d, "n": 1})["text"], "pandas"),
    ],
)
def test_documents_in_any_column(pipeline: Any, series: Any, library: str) -> None:
    exp, expected = explain(pipeline, series(DOCUMENTS)), explain(pipeline)
    frame = exp.to_frame()
    for each in (frame, exp.top().to_frame(), exp.summary().to_frame()):
        assert type(each).__module__.partition(".")[0] == library
        assert type(each).__name__ == ("Table" if library == "pyarrow" else "DataFrame")
    columns = ["document", "cluster", "word", "start", "stop", "relevance", "known"]
    assert list(frame.column_names if library == "pyarrow" else frame.columns) == columns
    np.testing.assert_array_equal(np.asarray(frame["relevance"]), expected.to_frame()["relevance"])
    assert exp[3].words(0) == expected.words(3)
    if isinstance(exp.data, pd.Series) and exp.data.index[0] == "id0":
        assert exp.describe(4).startswith("Document id4 (position 4) is")
        assert frame["document"][0] == "id0"
        assert exp.top().to_frame().index[4] == "id4"
    np.testing.assert_array_equal(wc.neuralize(pipeline).assign(series(DOCUMENTS)), expected.cluster)


def test_documents_from_a_generator(pipeline: Any) -> None:
    exp = explain(pipeline, (document for document in DOCUMENTS))
    assert exp.data == DOCUMENTS


def test_the_summary_ranks_the_words_of_each_cluster(pipeline: Any) -> None:
    exp = explain(pipeline)
    summary = exp.summary()
    frame = summary.to_frame("pandas")
    for label in summary.clusters:
        members = exp.cluster == label
        topic = list(TOPICS.values())[int(np.bincount(TRUE[members]).argmax())]
        assert set(summary.words(label, 5)) <= set(topic)
        part = frame[frame["cluster"] == label]
        words = exp.to_frame("pandas")
        words = words[words["known"]].assign(word=lambda w: w["word"].str.lower())
        totals = words.groupby(["document", "word"])["relevance"].sum().abs().groupby("document").sum()
        inside = words[words["cluster"] == label]
        for line in part.itertuples():
            mine = inside[inside["word"] == line.word]
            other = words[(words["word"] == line.word) & (words["cluster"] != label)]
            assert line.relevance == pytest.approx(mine["relevance"].sum() / members.sum())
            assert (line.count, line.documents) == (len(mine), mine["document"].nunique())
            assert (line.count_outside, line.documents_outside) == (len(other), other["document"].nunique())
            each = mine.groupby("document")["relevance"].sum()
            shares = each / totals[each.index]
            errors = min(2.0, np.sqrt(members.sum()) / 2) * np.sqrt((shares**2).sum())
            assert line.share == pytest.approx(shares.sum() / members.sum())
            assert line.score == pytest.approx((shares.sum() - errors) / members.sum())
        sure = part["score"] > 0
        assert sure.is_monotonic_decreasing
        assert part["score"][sure].is_monotonic_decreasing
        assert part["share"][~sure].is_monotonic_decreasing
    assert summary.names(2)[summary.clusters[0]] == ", ".join(summary.words(summary.clusters[0], 2))
    text = str(summary)
    assert text.splitlines()[0].split() == [
        "cluster",
        "documents",
        "word",
        "share",
        "in",
        "documents",
        "elsewhere",
        "count",
        "elsewhere",
    ]
    assert len(text.splitlines()) == 2 + 3 * 6
    lost = explain(pipeline, target=(exp.cluster + 1) % 3).summary()
    assert (
        str(lost) == "No document belongs to the cluster it is explained for, so there is nothing to average."
    )


def test_names_leave_out_stop_words_and_their_contractions() -> None:
    texts = ["don't say god's it's", "DON\u2019T you're i've bible", "bank's rate", "bank they'll rate"]
    model = make_pipeline(CountVectorizer(token_pattern=r"[\w'\u2019]+"), k_means(2)).fit(texts)
    summary = explain(model, texts).summary()
    named = {word for label in summary.clusters for word in summary.telling_words(label, 20)}
    assert named <= {"say", "god's", "bible", "bank's", "bank", "rate"}
    assert {"bank", "rate"} <= named
    assert "don't" in summary.word  # only names leave out stop words


# The transformer


def test_word_vectors_as_a_transformer() -> None:
    front = word_vectors()
    vectors = front.vectors.copy()
    Z = front.fit(DOCUMENTS).transform(DOCUMENTS)
    assert Z.shape == (60, 6)
    assert Z.dtype == np.float64
    for row, document in enumerate(DOCUMENTS):
        expected = np.mean([vectors[WORDS.index(word)] for word in occurrences(document)], axis=0)
        np.testing.assert_allclose(Z[row], expected)
    np.testing.assert_array_equal(front.vectors, vectors)
    np.testing.assert_array_equal(clone(front).transform(DOCUMENTS), Z)  # needs no fit
    np.testing.assert_array_equal(front.transform(["", "?", "the zebraic"]), np.zeros((3, 6)))
    assert front.get_feature_names_out().tolist() == [f"wordvectors{i}" for i in range(6)]
    frame = clone(front).set_output(transform="pandas").fit_transform(DOCUMENTS)
    assert isinstance(frame, pd.DataFrame)
    np.testing.assert_array_equal(frame.to_numpy(), Z)
    for library in ("pandas", "polars"):
        piped = make_pipeline(clone(front), StandardScaler(), Normalizer(), k_means())
        piped.set_output(transform=library).fit(DOCUMENTS)
        np.testing.assert_array_equal(explain(piped).cluster, piped.predict(DOCUMENTS))
    assert set(front.get_params()) == {"vectors", "vocabulary", "stop_words"}


def test_vectors_of_any_type_and_words_that_share_a_row() -> None:
    vectors = np.array([[1.0, 2.0], [3.0, 5.0]])
    vocabulary = {"cat": np.int64(0), "tomcat": 0, "dog": 1, "the": 1}
    for dtype in (np.float16, np.float32, np.float64, np.int8):
        front = wc.text.WordVectors(vectors.astype(dtype), vocabulary)
        np.testing.assert_allclose(front.transform(["Cat tomcat the DOG"]), [[5 / 3, 3.0]])
    front = wc.text.WordVectors(vectors, vocabulary, stop_words=None)
    np.testing.assert_allclose(front.transform(["cat the"]), [[2.0, 3.5]])
    front = wc.text.WordVectors(vectors, vocabulary, stop_words=["cat"])
    np.testing.assert_allclose(front.transform(["cat the"]), [[3.0, 5.0]])
    front = wc.text.WordVectors(vectors, np.array(["été", "straße"]), stop_words=[])
    np.testing.assert_allclose(front.transform(["ÉTÉ, Straße!", "ete"]), [[2.0, 3.5], [0.0, 0.0]])


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        (
            {"vectors": [1.0, 2.0]},
            "vectors must be a two-dimensional numeric array (words, features); got float64 of shape (2,).",
        ),
        (
            {"vectors": [[1.0], [2.0, 3.0]]},
            "vectors must be a two-dimensional numeric array (words, features); got object of shape (0,).",
        ),
        (
            {"vectors": [["a"], ["b"]]},
            "vectors must be a two-dimensional numeric array (words, features); got <U1 of shape (2, 1).",
        ),
        (
            {"vectors": [[1.0], [np.nan]]},
            "vectors must be finite; row 1 contains NaN or infinite values. Remove that row together with "
            "its words.",
        ),
        (
            {"vocabulary": ["cat"]},
            "vocabulary must be 2 distinct words, one for each row of vectors, or "
            "a mapping from words to rows; got 1 words, 1 of them distinct.",
        ),
        (
            {"vocabulary": ["cat", "cat"]},
            "vocabulary must be 2 distinct words, one for each row of vectors, or "
            "a mapping from words to rows; got 2 words, 1 of them distinct.",
        ),
        (
            {"vocabulary": "cat"},
            "vocabulary must be a mapping from words to rows, or a list of words; got 'cat'.",
        ),
        ({"vocabulary": 3}, "vocabulary must be a mapping from words to rows, or a list of words; got 3."),
        (
            {"vocabulary": {"cat": 2}},
            "vocabulary must map each word to a row of vectors, an integer from 0 to 1; 'cat' is mapped to "
            "2.",
        ),
        (
            {"vocabulary": {"cat": 0, "dog": -1}},
            "vocabulary must map each word to a row of vectors, an integer from 0 to 1; 'dog' is mapped to "
            "-1.",
        ),
        (
            {"vocabulary": {"cat": 0.5}},
            "vocabulary must map each word to a row of vectors, an integer from 0 to 1; 'cat' is mapped to "
            "0.5.",
        ),
        (
            {"vocabulary": {"cat": 10**30}},
            "vocabulary must map each word to a row of vectors, an integer from 0 to 1; 'cat' is mapped to "
            f"{10**30}.",
        ),
        ({"vocabulary": {}}, "vocabulary must consist of one or more strings; got an empty vocabulary."),
        ({"vocabulary": {b"cat": 0}}, "vocabulary must consist of one or more strings; got b'cat'."),
        ({"vocabulary": [["cat"], ["dog"]]}, "vocabulary must consist of one or more strings; got ['cat']."),
        ({"stop_words": "german"}, "stop_words must be 'english', a list of words, or None; got 'german'."),
        ({"stop_words": [1]}, "stop_words must be 'english', a list of words, or None; got [1]."),
    ],
)
def test_invalid_parameters(parameters: dict[str, Any], message: str) -> None:
    front = wc.text.WordVectors(**{"vectors": [[1.0], [2.0]], "vocabulary": ["cat", "dog"], **parameters})
    for where, call in (("fit", front.fit), ("transform", front.transform)):
        with pytest.raises(wc.InvalidInputError) as error:
            call(["cat"])
        assert str(error.value) == f"WordVectors.{where}: {message}"


def test_fitting_needs_a_known_word() -> None:
    with pytest.raises(wc.InvalidInputError) as error:
        word_vectors().fit(["unheard of", ""])
    assert str(error.value) == (
        "WordVectors.fit: at least one document must contain a word from the vocabulary, such as 'cat'; "
        "none of the 2 does. Only words of three or more letters that are not stop words count, and they "
        "are looked up in lower case."
    )


def test_a_column_of_text_beside_others() -> None:
    frame = pd.DataFrame({"text": DOCUMENTS, "size": np.arange(60.0), "noise": 1.0})
    columns = ColumnTransformer(
        [("words", word_vectors(), "text"), ("rest", StandardScaler(), ["size", "noise"])]
    )
    model = make_pipeline(columns, k_means()).fit(frame)
    exp = wc.explain(model, frame)
    assert isinstance(exp, wc.Explanation)
    assert exp.feature_names == ["text", "size", "noise"]
    np.testing.assert_array_equal(exp.cluster, model.predict(frame))
    np.testing.assert_allclose(exp.residual, 0.0, atol=1e-9)


# Invalid input


@pytest.mark.parametrize(
    ("documents", "message"),
    [
        ("a cat", "X must be a list of documents; got a single string. Put it in a list: [text]."),
        (b"a cat", "X must be a list of documents; got a single bytes object. Put it in a list: [text]."),
        ([], "X must contain at least one document; it is empty."),
        (
            ["cat", b"dog"],
            "X must contain only strings; document 1 is bytes. Decode it first: document.decode('utf-8').",
        ),
        (
            ["cat", None],
            "X must contain only strings; document 1 is missing "
            "(None). Drop it or replace it with an empty string.",
        ),
        (
            [float("nan")],
            "X must contain only strings; document 0 is missing "
            "(nan). Drop it or replace it with an empty string.",
        ),
        (["cat", 3], "X must contain only strings; document 1 has type int. Convert it to text or drop it."),
        ([["cat"]], "X must contain only strings; document 0 has type list. Convert it to text or drop it."),
        (
            pd.Series(["cat", None]),
            "X must contain only strings; document 1 is missing "
            "(nan). Drop it or replace it with an empty string.",
        ),
        (
            np.array([["cat"], ["dog"]]),
            "X must be a sequence of documents, each a string; got an array of shape "
            "(2, 1). Select its text column: array[:, column].",
        ),
        (
            np.array("cat"),
            "X must be a sequence of documents, each a string; got an array of shape "
            "(). Select its text column: array[:, column].",
        ),
        (
            pd.DataFrame({"text": ["cat"]}),
            "X must be a sequence of documents, each a string; got a table. Select its text column: "
            "frame[column].",
        ),
        ({"a": "cat"}, "X must be a list or a column of documents; got a value of type dict."),
        ({"cat"}, "X must be a list or a column of documents; got a value of type set."),
        (3, "X must be a list or a column of documents; got a value of type int."),
        (None, "X must be a list or a column of documents; got a value of type NoneType."),
    ],
)
def test_invalid_documents(pipeline: Any, documents: Any, message: str) -> None:
    check_invalid_documents(pipeline, documents, message)


def test_invalid_documents_in_polars(pipeline: Any) -> None:
    polars = pytest.importorskip("polars")
    check_invalid_documents(
        pipeline,
        polars.Series([1, 2]),
        "X must contain only strings; document 0 has type int. Convert it to text or drop it.",
    )
    check_invalid_documents(
        pipeline,
        polars.DataFrame({"text": ["cat"]}),
        "X must be a sequence of documents, each a string; got a table. Select its text column: "
        "frame[column].",
    )


def check_invalid_documents(pipeline: Any, documents: Any, message: str) -> None:
    tfidf = make_pipeline(TfidfVectorizer(), k_means()).fit(DOCUMENTS)
    net = wc.neuralize(pipeline)
    calls: dict[str, Callable[[], Any]] = {
        "explain": lambda: explain(pipeline, documents),
        "assign": lambda: net.assign(documents),
        "evidence": lambda: wc.neuralize(tfidf).evidence(documents),
        "WordVectors.transform": lambda: word_vectors().transform(documents),
        "WordVectors.fit": lambda: word_vectors().fit(documents),
    }
    for where, call in calls.items():
        with pytest.raises(wc.InvalidInputError) as error:
            call()
        assert re.sub(r"missing \((None|nan)\)", "missing (nan)", str(error.value)) == re.sub(
            r"missing \((None|nan)\)", "missing (nan)", f"{where}: {message}"
        )


def test_invalid_queries(pipeline: Any) -> None:
    with pytest.raises(wc.InvalidInputError) as error:
        explain(pipeline, rule="sequential")
    assert str(error.value) == (
        "explain: for documents, rule must be additive over the features, since all words share the same "
        "features; got 'sequential'. Choose one of 'path', 'min-take-most', 'joint', 'contrast'."
    )
    with pytest.raises(wc.InvalidInputError) as error:
        explain(pipeline, feature_names=["a"])
    assert str(error.value) == (
        "explain: feature_names applies to numeric arrays, but documents are explained in terms of their "
        "words. Leave feature_names out."
    )
    with pytest.raises(
        wc.InvalidInputError, match=re.escape("explain: background must be a list of documents; ")
    ):
        explain(pipeline, background="cat")
    with pytest.raises(
        wc.InvalidInputError, match=r"^explain: against must differ from target; both are 1\.$"
    ):
        explain(pipeline, target=1, against=1)
    n_documents = len(explain(pipeline))
    with pytest.raises(wc.InvalidInputError, match="the same in every row of X"):
        explain(pipeline, target=[1] * n_documents, against=1)


def test_unsupported_pipelines() -> None:
    with pytest.raises(wc.NotFittedError) as not_fitted:
        explain(make_pipeline(TfidfVectorizer(), k_means()))
    assert str(not_fitted.value) == "neuralize: the Pipeline must be fitted first. Call its fit method."
    fitted = k_means().fit(np.eye(3))
    with pytest.raises(wc.NotFittedError, match="the CountVectorizer must be fitted first"):
        explain(make_pipeline(CountVectorizer(), fitted))
    wrong = make_pipeline(CountVectorizer().fit(["cat dog"]), fitted)
    with pytest.raises(wc.InvalidInputError) as error:
        explain(wrong)
    assert str(error.value) == (
        "neuralize: the steps of the pipeline return 2 features, but its last step was fitted on 3. Fit the "
        "pipeline as a whole, and mark with wc.elementwise only functions that keep the number of features."
    )
    bent = make_pipeline(TfidfVectorizer(), TruncatedSVD(2, random_state=0), PowerTransformer(), k_means())
    with pytest.raises(wc.UnsupportedModelError) as unsupported:
        explain(bent.fit(DOCUMENTS))
    assert str(unsupported.value) == (
        "neuralize: after a vectorizer, each step must be linear, transform each term separately, or scale "
        "documents to unit length, and the model must take numbers. In this pipeline, a step transforms "
        "features that combine several terms, or the model takes categories."
    )
    labels = make_pipeline(TfidfVectorizer(), DBSCAN()).fit(DOCUMENTS)
    with pytest.raises(wc.UnsupportedModelError) as unsupported:
        explain(labels)
    assert str(unsupported.value) == (
        "neuralize: the labels of DBSCAN show which cluster each document is in, but not why. Use a "
        "surrogate instead, which can be explained and reports how well it matches the labels: "
        "make_pipeline(vectorizer, TruncatedSVD(100), wc.Surrogate()).fit(documents, labels)."
    )
    files = make_pipeline(CountVectorizer(input="filename"), fitted)
    with pytest.raises(wc.UnsupportedModelError) as unsupported:
        explain(files)
    assert str(unsupported.value) == (
        "neuralize: step 'countvectorizer' (CountVectorizer) must "
        "take the documents themselves (input='content'); "
        "it has input='filename'. Read the files into strings first."
    )


def test_vectorizers_in_other_positions_are_rejected() -> None:
    cleaned = make_pipeline(FunctionTransformer(), CountVectorizer(), k_means()).fit(DOCUMENTS)
    with pytest.raises(wc.UnsupportedModelError) as unsupported:
        explain(cleaned)
    assert str(unsupported.value) == (
        "neuralize: a vectorizer must be the first step, so that its words can be located in the original "
        "documents; step 'functiontransformer' (FunctionTransformer) comes before it. Make that step the "
        "preprocessor of the vectorizer, or apply it to the documents first."
    )
    union = FeatureUnion(
        [("words", CountVectorizer()), ("lsa", make_pipeline(CountVectorizer(), TruncatedSVD(2)))]
    )
    with pytest.raises(wc.UnsupportedModelError) as unsupported:
        explain(make_pipeline(union, k_means()).fit(DOCUMENTS))
    assert str(unsupported.value) == (
        "neuralize: a single vectorizer must be the first step; "
        "step 'featureunion' (FeatureUnion) combines several transformers there. Put the union after one "
        "vectorizer, or use one vectorizer with more n-grams."
    )


def test_a_feature_union_after_a_vectorizer() -> None:
    branches = FeatureUnion(
        [
            ("plain", TruncatedSVD(2, random_state=0)),
            ("weighted", make_pipeline(TfidfTransformer(), TruncatedSVD(3, random_state=0), Normalizer())),
        ]
    )
    model = make_pipeline(CountVectorizer(), branches, k_means()).fit(DOCUMENTS)
    exp = explain(model)
    np.testing.assert_array_equal(exp.cluster, model.predict(DOCUMENTS))
    np.testing.assert_allclose(exp.residual, 0.0, atol=1e-9)


def test_steps_that_work_in_place() -> None:
    steps = [MaxAbsScaler(), Normalizer(), TruncatedSVD(3, random_state=0), Normalizer(), k_means()]
    model = make_pipeline(CountVectorizer(), *steps).fit(DOCUMENTS)
    expected = explain(model)
    for step in (1, 2, 4):
        model[step].copy = False
    again = explain(model)
    np.testing.assert_array_equal(again.cluster, expected.cluster)
    np.testing.assert_allclose(again.word_table.relevance, expected.word_table.relevance, atol=1e-12)


class Other(KMeans):  # type: ignore[misc]
    """An unknown subclass, whose predictions may differ from those of its network."""

    shift = 0

    def predict(self, X: Any) -> Any:
        return (super().predict(X) + self.shift) % 3


def test_unknown_models_are_verified_on_the_documents() -> None:
    model = make_pipeline(word_vectors(), Other(3, n_init=1, random_state=0)).fit(DOCUMENTS)
    np.testing.assert_array_equal(explain(model).cluster, model.predict(DOCUMENTS))
    model[-1].shift = 1
    with pytest.raises(wc.UnsupportedModelError, match="Other does not predict"):
        explain(model)


def test_public_names() -> None:
    assert wc.text.__name__ == "whycluster.text"
    assert set(wc.text.__all__) == {
        "Sentences",
        "TextExplanation",
        "TextSummary",
        "TopWords",
        "Word",
        "WordVectors",
    }


# The example and the benchmark


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """Write a few messages and word vectors to the files that the example reads."""
    documents, topics = write_documents(45, seed=3)
    for folder in ("news", "spacy_md"):
        (tmp_path / folder).mkdir()
    with gzip.open(tmp_path / "news" / "mini_newsgroups.jsonl.gz", "wt") as file:
        for i, (document, topic) in enumerate(zip([*documents, "zzz"], [*topics.tolist(), 0], strict=True)):
            body = f"{document}\n{documents[(i + 7) % 45]}"
            text = f"From: a@b\nSubject: <b>\n\n> quoted anchor\n{body if i < 45 else document}\n--\nsigned"
            file.write(json.dumps({"group": f"group.{topic}<i>", "id": str(i), "text": text}) + "\n")
    front = word_vectors()
    np.save(tmp_path / "spacy_md" / "vectors_f16.npy", front.vectors.astype(np.float16))
    with gzip.open(tmp_path / "spacy_md" / "words.tsv.gz", "wt") as file:
        file.writelines(f"{word}\t{row}\n" for row, word in enumerate(WORDS))
    return tmp_path


def test_the_newsgroups_example(
    data: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    out = data / "page.html"
    monkeypatch.setattr("sys.argv", ["newsgroups", "--data", str(data), "--out", str(out)])
    newsgroups.main()
    output = capsys.readouterr().out
    assert "<TextExplanation of 45 documents" in output
    assert re.search(r"Adjusted Rand index with the groups: \d+\.\d %", output)
    page = out.read_text("utf-8")
    texts = text_of(page)
    assert texts
    assert len(texts) % 2 == 0
    assert all("quoted" not in text and "signed" not in text and "Subject" not in text for text in texts)
    assert "group.1&lt;i&gt;" in page
    assert "<i>" not in page
    monkeypatch.setattr("sys.argv", ["newsgroups", "--data", str(data / "news")])
    with pytest.raises(SystemExit) as stop:
        newsgroups.main()
    assert str(stop.value) == (
        f"examples.newsgroups: {data / 'news'} must contain news and spacy_md. Pass their folder as --data."
    )


def test_the_benchmark(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(measure, "RESULTS", tmp_path)
    monkeypatch.setattr(bench, "N_DOCUMENTS", [2_000])
    monkeypatch.setattr(bench, "N_WORDS", 10)
    monkeypatch.setattr(bench, "N_VECTORS", 300)
    monkeypatch.setattr(bench, "D", 8)
    monkeypatch.setattr(bench, "K", 3)
    monkeypatch.setattr(bench, "of_terms", lambda *_: "")
    bench.main(repeats=1)
    assert "| 2,000 |" in (tmp_path / "text.md").read_text()


def test_a_summary_only_has_clusters_with_documents(pipeline: Any) -> None:
    summary = explain(pipeline).summary()
    with pytest.raises(wc.InvalidInputError) as error:
        summary.words("none")
    assert str(error.value) == "summary: cluster must be one that contains documents (0, 1, 2); got 'none'."


@pytest.mark.parametrize(
    "branch",
    [
        lambda: make_pipeline(TruncatedSVD(2, random_state=0), StandardScaler(), Normalizer()),
        lambda: make_pipeline(TruncatedSVD(4, random_state=0), Normalizer()),
        lambda: make_pipeline(GaussianRandomProjection(40, random_state=0), RobustScaler(), Normalizer()),
    ],
)
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.DataDimensionalityWarning")
def test_a_union_of_one_branch_equals_the_branch(branch: Any) -> None:
    alone = explain(make_pipeline(TfidfVectorizer(), branch(), k_means()).fit(DOCUMENTS))
    joined = explain(
        make_pipeline(TfidfVectorizer(), FeatureUnion([("it", branch())]), k_means()).fit(DOCUMENTS)
    )
    for row in range(len(DOCUMENTS)):
        mine, other = alone.words(row), joined.words(row)
        assert [word.relevance for word in mine] == pytest.approx([word.relevance for word in other])


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.DataDimensionalityWarning")
def test_the_order_of_branches_does_not_matter() -> None:
    branches = [
        ("many", make_pipeline(GaussianRandomProjection(40, random_state=0), RobustScaler(), Normalizer())),
        ("few", TruncatedSVD(3, random_state=0)),
    ]
    one, other = (
        explain(make_pipeline(TfidfVectorizer(), FeatureUnion(order), k_means()).fit(DOCUMENTS))
        for order in (branches, branches[::-1])
    )
    assert np.allclose(one.evidence, other.evidence)
    for row in range(len(DOCUMENTS)):
        mine = [word.relevance for word in one.words(row)]
        assert mine == pytest.approx([word.relevance for word in other.words(row)])


def test_steps_that_take_logarithms() -> None:
    steps = (CountVectorizer(), TfidfTransformer(sublinear_tf=True), k_means())
    exp = explain(make_pipeline(*steps).fit(DOCUMENTS))
    same = explain(make_pipeline(TfidfVectorizer(sublinear_tf=True), k_means()).fit(DOCUMENTS))
    assert np.abs(exp.residual).max() < 1e-10
    for row in range(len(DOCUMENTS)):
        assert [w.relevance for w in exp.words(row)] == pytest.approx([w.relevance for w in same.words(row)])


@pytest.mark.slow
@pytest.mark.usefixtures("two_threads")
def test_memory_does_not_grow_with_documents_of_few_features() -> None:
    texts, _ = write_documents(8000)
    model = make_pipeline(TfidfVectorizer(), TruncatedSVD(2, random_state=0), k_means()).fit(texts[:1000])
    peaks = []
    for n in (2000, 8000):
        tracemalloc.start()
        exp = explain(model, texts[:n])
        peaks.append(tracemalloc.get_traced_memory()[1] - exp.word_table.nbytes)
        tracemalloc.stop()
    assert peaks[1] < 1.5 * peaks[0] + 2**22


def test_explanations_after_a_normalizer_can_be_pickled() -> None:
    model = make_pipeline(TfidfVectorizer(), TruncatedSVD(3, random_state=0), Normalizer(), k_means())
    exp = explain(model.fit(DOCUMENTS))
    assert str(pickle.loads(pickle.dumps(exp))) == str(exp)


def test_hashing_with_signs_is_rejected() -> None:
    model = make_pipeline(HashingVectorizer(n_features=64), k_means()).fit(DOCUMENTS)
    with pytest.raises(wc.UnsupportedModelError) as error:
        explain(model)
    assert str(error.value) == (
        "neuralize: step 'hashingvectorizer' (HashingVectorizer) must have alternate_sign=False; it has "
        "alternate_sign=True. With alternating signs, words that share a hash may cancel out, and then none "
        "of them is assigned relevance."
    )


def test_methods_that_documents_do_not_support(pipeline: Any) -> None:
    net = wc.neuralize(pipeline)
    with pytest.raises(
        wc.UnsupportedModelError, match="gradient: a pipeline has no gradient, since its steps need not be"
    ):
        net.gradient(DOCUMENTS)
    with pytest.raises(
        wc.UnsupportedModelError,
        match="to_torch: the steps of a pipeline cannot be converted to torch layers",
    ):
        net.to_torch()
    for evaluate in (wc.evaluation.compare, wc.evaluation.shapley_values):
        with pytest.raises(
            wc.UnsupportedModelError, match="model must take numbers directly; got a pipeline"
        ):
            evaluate(pipeline, DOCUMENTS)


def test_invalid_numbers_of_words(pipeline: Any) -> None:
    exp = explain(pipeline)
    for call, where, name in (
        (lambda n: exp.describe(0, n), "describe", "n_words"),
        (exp.top, "top", "n"),
        (exp.summary().names, "summary", "n"),
        (exp.summary().describe, "describe", "n_words"),
    ):
        for wrong in (-1, "a", True):
            with pytest.raises(wc.InvalidInputError) as error:
                call(wrong)
            expected = f"{where}: {name} must be an integer of at least 1; got {wrong!r}."
            assert str(error.value) == expected


def test_pages_keep_permissions_and_links(pipeline: Any, tmp_path: Path) -> None:
    exp = explain(pipeline)[:1]
    page, link = tmp_path / ("p" * 250), tmp_path / "link.html"
    page.write_text("old")
    page.chmod(0o600)
    link.symlink_to(page)
    exp.to_html(link)
    assert link.is_symlink()
    assert page.stat().st_mode & 0o777 == 0o600
    assert page.read_text() == exp.to_html()
    for wrong in ("", 5, "a\0b"):
        with pytest.raises(wc.InvalidInputError, match="to_html: path must be the name of a file"):
            exp.to_html(wrong)
    with pytest.raises(FileNotFoundError, match=r"nowhere/page\.html"):
        exp.to_html(tmp_path / "nowhere" / "page.html")


def test_tokens_are_located_in_linear_time() -> None:
    text = " ".join(f"word{i}" for i in range(20_000))
    vectorizer = CountVectorizer(tokenizer=cut, token_pattern=None)
    model = make_pipeline(vectorizer, k_means(2)).fit([text, "other words", "more words"])
    start = time.perf_counter()
    assert explain(model, [text, "other words"]).n_words[0] == 20_000
    assert time.perf_counter() - start < 20.0  # a quadratic search took half a minute for fewer tokens


def cut(text: str) -> list[str]:
    return [word[:-1] for word in text.split()]


@pytest.mark.parametrize("method", ["rules", "strategies", "counterfactual"])
def test_what_needs_columns_is_refused(pipeline: Any, method: str) -> None:
    with pytest.raises(wc.InvalidInputError) as caught:
        getattr(explain(pipeline), method)(0)
    assert str(caught.value) == (
        f"{method}: relevance must belong to the columns of a table; it belongs to the words of documents. "
        "Use summary() for the words of each cluster, or pair() for those of two documents."
    )
