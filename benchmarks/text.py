"""Measure the cost of explaining documents: ``python -m benchmarks.text``."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
from sklearn.cluster import KMeans
from sklearn.decomposition import TruncatedSVD
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import Normalizer

import whycluster as wc
from benchmarks.measure import peak_megabytes, side_by_side, write

N_DOCUMENTS = [2_500, 5_000, 10_000, 20_000]
N_WORDS, N_VECTORS, D, K, P = 100, 20_000, 300, 20, 10
GOAL = 30.0  # seconds for 10,000 documents


def vocabulary(rng: np.random.Generator) -> list[str]:
    """Return different words of at least three letters."""
    letters = np.array(list("abcdefghijklmnopqrstuvwxyz"))
    words: dict[str, None] = {}
    while len(words) < N_VECTORS:
        words["".join(rng.choice(letters, size=rng.integers(4, 11)))] = None
    return list(words)


def problem(n_documents: int) -> tuple[list[str], Any]:
    """Return documents with realistic word frequencies, and a pipeline of word vectors and kernel k-means."""
    rng = np.random.default_rng(0)
    words = np.array(vocabulary(rng))
    frequency = 1.0 / np.arange(1, N_VECTORS + 1)
    chosen = rng.choice(words, size=(n_documents, N_WORDS), p=frequency / frequency.sum())
    documents = [" ".join(row) + "." for row in chosen]
    vectors = rng.normal(size=(N_VECTORS, D)).astype(np.float16)
    model = wc.KernelKMeans(K, n_support=P, init=np.arange(2_000) % K, max_iter=0, random_state=0)
    pipeline = make_pipeline(wc.text.WordVectors(vectors, words), model)
    return documents, pipeline.fit(documents[:2_000])


def measure(n_documents: int, repeats: int) -> str:
    """Return a line of the table: the seconds to predict, to explain and to summarize."""
    documents, pipeline = problem(n_documents)
    exp: Any = wc.explain(pipeline, documents)
    calls: dict[str, Callable[[], Any]] = {
        "predict": partial(pipeline.predict, documents),
        "explain": partial(wc.explain, pipeline, documents),
        "summary": exp.summary,
    }
    times = side_by_side(calls, repeats)
    size = exp.word_table.nbytes / 2**20
    peak, _ = peak_megabytes(calls["explain"])
    cells = [f"{times[name]:.1f}" for name in calls]
    return f"| {n_documents:,} | {' | '.join(cells)} | {size:.0f} | {peak - size:.0f} |"


def of_terms(n_documents: int, repeats: int) -> str:
    """Measure the same documents as words and pairs of words, behind a projection."""
    documents, _ = problem(n_documents)
    pipeline = make_pipeline(
        TfidfVectorizer(ngram_range=(1, 2), min_df=2),
        TruncatedSVD(100, random_state=0),
        Normalizer(),
        KMeans(K, n_init=1, random_state=0),
    ).fit(documents)
    calls: dict[str, Callable[[], Any]] = {
        "predict": partial(pipeline.predict, documents),
        "explain": partial(wc.explain, pipeline, documents),
    }
    times = side_by_side(calls, repeats)
    return (
        f"Another pipeline computes the tf-idf values of {len(pipeline[0].vocabulary_):,} words and word "
        f"pairs in {n_documents:,} documents, followed by `TruncatedSVD(100)`, `Normalizer` and "
        f"`KMeans({K})`.\n"
        f"For this pipeline, `predict` takes {times['predict']:.1f} s, and `explain` takes "
        f"{times['explain']:.1f} s."
    )


def main(repeats: int = 3) -> None:
    """Measure everything and write results/text.md."""
    lines = [
        "# Documents",
        "",
        f"Each document has {N_WORDS} words, and each word vector has {D} dimensions.",
        f"There are {K} clusters with {P} support vectors each.",
        f"Explaining 10,000 documents should take at most {GOAL:.0f} s.",
        f"The memory without the result includes the {N_VECTORS:,} word vectors, which take "
        f"{N_VECTORS * D * 8 / 2**20:.0f} MB in double precision.",
        "",
        "| documents | predict, s | explain, s | summary, s | result, MB | memory without the result, MB |",
        "|---:|---:|---:|---:|---:|---:|",
        *(measure(n_documents, repeats) for n_documents in N_DOCUMENTS),
        "",
        of_terms(10_000, 1),
    ]
    write("text", "python -m benchmarks.text", lines)


if __name__ == "__main__":
    main()
