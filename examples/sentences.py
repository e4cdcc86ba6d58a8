"""Which words put messages into clusters of sentence embeddings? ``python -m examples.sentences --data DIR``.

Messages from 20 newsgroups, without headers, footers and quotes, are encoded with MiniLM and clustered by
k-means. The page shows the words that define each cluster and the messages with the most evidence, with their
words highlighted. ``python -m examples.newsgroups`` makes the page for means of word vectors.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from html import escape
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.cluster import KMeans
from sklearn.pipeline import make_pipeline

import whycluster as wc
from examples.minilm import load_minilm
from examples.newsgroups import STYLE, Clustering, clusters_table, read_messages
from whycluster.text import TextSummary
from whycluster.text.html import legend, note, page

SHORTEST, LONGEST = 80, 700  # the length of messages, in characters
MOST_SHOWN = 2  # messages per cluster


def choose(messages: Sequence[tuple[str, str]], n_messages: int) -> list[tuple[str, str]]:
    """Return messages of moderate length, without duplicates, chosen at random."""
    fit = list({text: (group, text) for group, text in messages if SHORTEST <= len(text) <= LONGEST}.values())
    rows = np.random.default_rng(0).permutation(len(fit))[:n_messages]
    return [fit[row] for row in rows]


def cluster(messages: Sequence[tuple[str, str]], model: Any, n_clusters: int) -> Clustering:
    """Cluster the embeddings of messages and explain the clusters."""
    texts, groups = [text for _, text in messages], np.array([group for group, _ in messages])
    head = KMeans(n_clusters, n_init=5, random_state=0)
    exp: Any = wc.explain(make_pipeline(wc.text.Sentences(model), head).fit(texts), texts)
    return Clustering(texts, groups, exp)


def write_page(found: Clustering, summary: TextSummary, path: Path) -> None:
    """Write a page with the words of each cluster, then the messages with the most evidence."""
    exp = found.exp
    outside = {name: share.sum() / exp.evidence.sum() for name, share in exp.residual_shares.items()}
    words = 1 - sum(outside.values())
    listed = ", ".join(f"{name} {share:.0%}" for name, share in outside.items())
    intro = (
        f"{len(found.texts):,} messages from {len(set(found.groups.tolist()))} newsgroups, without headers, "
        f"footers and quotes, are encoded with MiniLM and clustered by k-means into {len(summary.clusters)} "
        f"clusters. Their adjusted Rand index with the groups is {100 * found.ari:.0f}%. Of the evidence, "
        f"{words:.0%} belongs to words. The rest: {listed}."
    )
    parts = [
        note(intro),
        '<h2 class="part">The words that define each cluster</h2>',
        clusters_table(found, summary),
        '<h2 class="part">The messages with the most evidence</h2>',
    ]
    names, messages = summary.names(3), []
    for label in summary.clusters.tolist():
        messages.append(f"<h3>Cluster {escape(str(label))}: {escape(names[label])}</h3>")
        members = np.flatnonzero(exp.cluster == label)
        for row in members[np.argsort(-exp.evidence[members])][:MOST_SHOWN].tolist():
            competitor = exp.competitor[row]
            heading = (
                f"{found.groups[row]}: evidence {exp.evidence[row]:.3g}, nearest competitor {competitor} "
                f"({names.get(competitor, 'empty')})"
            )
            messages.append(exp.article(row, heading))
    parts += [legend(messages), *messages]
    path.write_text(page("Which words put messages into clusters?", parts, STYLE), "utf-8")


def main() -> None:
    """Cluster and explain the messages, and write the page."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--data", type=Path, required=True, help="the folder with news")
    parser.add_argument("--out", type=Path, default=Path("sentences.html"), help="the page to write")
    parser.add_argument("--messages", type=int, default=400, help="the number of messages")
    parser.add_argument("--clusters", type=int, default=20, help="the number of clusters")
    arguments = parser.parse_args()
    if not (arguments.data / "news").is_dir():
        raise SystemExit(
            f"examples.sentences: {arguments.data} must contain news. Pass its folder as --data."
        )
    messages = choose(read_messages(arguments.data / "news"), arguments.messages)
    found = cluster(messages, load_minilm(), arguments.clusters)
    summary = found.exp.summary()
    print(f"{found.exp!r}\nAdjusted Rand index with the groups: {100 * found.ari:.1f} %\n\n{summary}")
    write_page(found, summary, arguments.out)
    print(f"\nWritten to {arguments.out}")


if __name__ == "__main__":
    main()
