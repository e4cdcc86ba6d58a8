"""Cluster 20 newsgroups by kernel k-means from the true groups: ``python -m benchmarks.news --data DIR``.

As in Section VI-A of the paper, documents are means of word vectors, with K = 20 and 10 support vectors per
cluster. The data differ slightly: a tenth of the messages (the official "mini" subset) or only their words,
and newer word vectors.
"""

from __future__ import annotations

import gzip
import re
from collections.abc import Iterable
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from sklearn.feature_extraction.text import ENGLISH_STOP_WORDS
from sklearn.metrics import adjusted_rand_score

import whycluster as wc
from benchmarks.datasets import data_folder
from benchmarks.measure import write
from examples.newsgroups import read_messages

Documents = tuple[NDArray[np.float64], NDArray[np.intp]]
SEEDS = range(5)


class WordMeans:
    """Turns documents into means of word vectors; words have at least three letters and are no stop words."""

    def __init__(self, folder: Path) -> None:
        self.vectors = np.load(folder / "vectors_f16.npy").astype(np.float64)
        with gzip.open(folder / "words.tsv.gz", "rt") as lines:
            pairs = (line.rstrip("\n").split("\t") for line in lines)
            self.row = {word: int(row) for word, row in pairs if word not in ENGLISH_STOP_WORDS}

    def __call__(self, documents: Iterable[tuple[str, str]]) -> Documents:
        """Return the means and the groups of all pairs (group, text) with a known word in the text."""
        means, groups = [], []
        for group, text in documents:
            words = [self.row[word] for word in re.findall("[a-z]{3,}", text.lower()) if word in self.row]
            if words:
                means.append(self.vectors[words].mean(axis=0))
                groups.append(group)
        return np.array(means), np.unique(groups, return_inverse=True)[1]


def words(folder: Path) -> Iterable[tuple[str, str]]:
    """Yield group and text of the training part, which has only words; quotes are kept."""
    with gzip.open(folder / "20newsgroups_words_train.tsv.gz", "rt") as lines:
        for line in lines:
            group, text = line.rstrip("\n").split("\t", 1)
            yield group, text


def agreement(X: NDArray[np.float64], y: NDArray[np.intp], seed: int) -> tuple[float, float]:
    """Return the adjusted Rand index with the true groups in percent: trained, and with kept assignments."""
    trained = wc.KernelKMeans(20, n_support=10, init=y, random_state=seed).fit(X)
    kept = wc.KernelKMeans(20, n_support=10, init=y, max_iter=0, random_state=seed).fit(X)
    return 100 * adjusted_rand_score(y, trained.labels_), 100 * adjusted_rand_score(y, kept.labels_)


def main() -> None:
    """Measure everything and write results/news.md."""
    data = data_folder(__doc__)
    if not (data / "news").is_dir() or not (data / "spacy_md").is_dir():
        raise SystemExit(
            f"benchmarks.news: {data} must contain news and spacy_md. Pass their folder as --data."
        )
    means = WordMeans(data / "spacy_md")
    lines = [
        "# 20 newsgroups",
        "",
        "The table shows the adjusted Rand index between the clusters and the true groups, in percent, as "
        "the",
        "mean and the range across five seeds. Documents are represented by the means of their word "
        "vectors and",
        "clustered by `KernelKMeans(20, n_support=10, init=groups)`. In the last column, the initial",
        "assignments are kept (`max_iter=0`).",
        "",
        "| documents | rows | trained | assignments kept |",
        "|---|---:|---:|---:|",
        "| the paper | | 32 | 45 |",
    ]
    for name, documents in (("messages, mini subset", read_messages), ("words, training part", words)):
        X, y = means(documents(data / "news"))
        both = np.array([agreement(X, y, seed) for seed in SEEDS])
        cells = [f"{v.mean():.1f} ({v.min():.1f} to {v.max():.1f})" for v in both.T]
        lines.append(f"| {name} | {len(X):,} | {' | '.join(cells)} |")
    write("news", "python -m benchmarks.news --data DIR", lines)


if __name__ == "__main__":
    main()
