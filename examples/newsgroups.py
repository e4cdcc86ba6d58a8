"""Why do messages from different newsgroups share a cluster? ``python -m examples.newsgroups --data DIR``.

As in Section VI-A of the paper, messages without headers, footers and quotes are represented by means of word
vectors, and kernel k-means with 10 support vectors per cluster starts from the true groups. Some messages
move to the cluster of another group. The page shows pairs of messages that share a cluster, and the words
that put them there.
"""

from __future__ import annotations

import argparse
import gzip
import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.datasets._twenty_newsgroups import (
    strip_newsgroup_footer,
    strip_newsgroup_header,
    strip_newsgroup_quoting,
)
from sklearn.metrics import adjusted_rand_score
from sklearn.pipeline import make_pipeline

import whycluster as wc
from whycluster.text import TextExplanation, TextSummary, WordVectors
from whycluster.text.html import legend, note, page

N_PAIRS = 8
SHORTEST, LONGEST = 120, 1600  # the length of messages to show, in characters
LEAST_WORDS = 12  # the number of known words that such a message must have
STRONGEST = 25  # the number of words per message to compare with other messages
LEAST_SHARED = 3  # the number of words that two messages must share
SAME = 0.5  # two messages that share a larger part of their words count as copies of one message


def read_messages(folder: Path) -> list[tuple[str, str]]:
    """Return the group and the text of each message, without header, footer and quotes."""
    messages = []
    with gzip.open(folder / "mini_newsgroups.jsonl.gz", "rt", encoding="utf-8") as lines:
        for line in lines:
            message = json.loads(line)
            text = strip_newsgroup_footer(strip_newsgroup_header(message["text"]))
            messages.append((message["group"], strip_newsgroup_quoting(text).strip()))
    return messages


def read_vectors(folder: Path) -> WordVectors:
    """Return the word vectors of spaCy."""
    with gzip.open(folder / "words.tsv.gz", "rt", encoding="utf-8") as lines:
        pairs = (line.rstrip("\n").split("\t") for line in lines)
        vocabulary = {word: int(row) for word, row in pairs}
    return WordVectors(np.load(folder / "vectors_f16.npy"), vocabulary)


@dataclass(frozen=True)
class Clustering:
    """The messages with a known word, their groups, and the explanation of their clusters."""

    texts: list[str]
    groups: NDArray[Any]
    exp: TextExplanation

    @property
    def ari(self) -> float:
        """The adjusted Rand index between the clusters and the groups."""
        return float(adjusted_rand_score(self.groups, self.exp.cluster))


def cluster(messages: Sequence[tuple[str, str]], vectors: WordVectors, n_support: int = 10) -> Clustering:
    """Cluster messages with kernel k-means, starting from the true groups, and explain the clusters."""
    known = np.any(vectors.transform([text for _, text in messages]), axis=1).tolist()
    there = [message for message, is_known in zip(messages, known, strict=True) if is_known]
    texts, groups = [text for _, text in there], np.array([group for group, _ in there])
    n_groups = len(set(groups.tolist()))
    model = wc.KernelKMeans(n_groups, n_support=n_support, init=groups, random_state=0)
    pipeline = make_pipeline(vectors, model).fit(texts)
    exp: Any = wc.explain(pipeline, texts)
    return Clustering(texts, groups, exp)


def pairs_of(found: Clustering, n_pairs: int = N_PAIRS) -> list[tuple[int, int, list[str]]]:
    """Return pairs of messages from different groups in the same cluster, with their shared words.

    The evidence of both messages is based on these words.
    """
    top = found.exp.top(STRONGEST)
    parts = [_parts(words, relevance) for words, relevance in zip(top.word, top.relevance, strict=True)]
    n_known = found.exp.n_known
    fit = [
        row
        for row, text in enumerate(found.texts)
        if SHORTEST <= len(text) <= LONGEST and n_known[row] >= LEAST_WORDS
    ]
    pairs = [(i, j) for place, i in enumerate(fit) for j in fit[place + 1 :]]
    scored = []
    for i, j in pairs:
        if found.groups[i] == found.groups[j] or found.exp.cluster[i] != found.exp.cluster[j]:
            continue
        both, either = parts[i].keys() & parts[j].keys(), parts[i].keys() | parts[j].keys()
        if len(both) >= LEAST_SHARED and len(both) <= SAME * len(either):
            shared = {word: min(parts[i][word], parts[j][word]) for word in both}
            scored.append((sum(shared.values()), i, j, sorted(shared, key=lambda word: -shared[word])))
    return _different(sorted(scored, key=lambda pair: -pair[0]), found, n_pairs)


def _parts(words: Sequence[str], relevance: NDArray[np.float64]) -> dict[str, float]:
    """Return the words with positive relevance, and the share of each in the positive relevance."""
    total = float(relevance[relevance > 0].sum())
    return {word: float(r) / total for word, r in zip(words, relevance, strict=True) if r > 0}


def _different(
    scored: Sequence[tuple[float, int, int, list[str]]], found: Clustering, n_pairs: int
) -> list[tuple[int, int, list[str]]]:
    """Return the best pairs, with each message at most once and one pair per cluster and pair of groups."""
    chosen: list[tuple[int, int, list[str]]] = []
    seen: set[Any] = set()
    for _, i, j, words in scored:
        key = (found.exp.cluster[i], *sorted((found.groups[i], found.groups[j])))
        if not seen & {i, j, key} and len(chosen) < n_pairs:
            seen |= {i, j, key}
            chosen.append((i, j, words))
    return chosen


STYLE = """
.wc h2.part { border: 0; padding: 1.6em 0 .2em; font-size: 1.15em; }
.wc table { border-collapse: collapse; width: 100%; font-size: .92em; }
.wc th, .wc td { text-align: left; vertical-align: top; padding: .35em .8em .35em 0;
  border-bottom: 1px solid var(--line); }
.wc td.count { text-align: right; font-variant-numeric: tabular-nums; }
.wc td.groups { white-space: nowrap; }
.wc .chip { display: inline-block; margin: 0 .5em .1em 0; white-space: nowrap; }
.wc .chip small, .wc td small { color: var(--dim); }
.wc .pair { display: grid; grid-template-columns: 1fr 1fr; gap: 0 1em; align-items: start; }
.wc .pair article { margin-top: .4em; }
.wc h3 { font-size: 1em; margin: 1.8em 0 0; }
@media (max-width: 50em) { .wc .pair { grid-template-columns: 1fr; } }
.wc main { max-width: 76em; }
"""


def write_page(found: Clustering, summary: TextSummary, path: Path) -> None:
    """Write a page with the words of each cluster, then pairs of messages."""
    n_groups = len(summary.clusters)
    intro = (
        f"{len(found.texts):,} messages from {len(set(found.groups.tolist()))} newsgroups, without headers, "
        "footers and quotes, are represented by the means of their word vectors. Kernel k-means, started "
        f"from the groups, finds {n_groups} clusters. Their adjusted Rand index with the groups is "
        f"{100 * found.ari:.0f}%. Each message is explained in terms of its words. The relevance of these "
        "words sums to the evidence for its cluster, except for a small part that belongs to no word."
    )
    parts = [
        note(intro),
        '<h2 class="part">The words that define each cluster</h2>',
        clusters_table(found, summary),
    ]
    pairs = []
    for i, j, words in pairs_of(found):
        pairs.append(f"<h3>{escape(_claim(found, summary, i, j, words))}</h3>")
        pairs.append(f'<div class="pair">{_message(found, i)}{_message(found, j)}</div>')
    parts += [
        '<h2 class="part">Messages from different groups in the same cluster</h2>',
        legend(pairs),
        *pairs,
    ]
    path.write_text(page("Why do messages from different newsgroups share a cluster?", parts, STYLE), "utf-8")


def _message(found: Clustering, row: int) -> str:
    one = found.exp[row]
    competitor = one.competitor[0]
    heading = f"{found.groups[row]}: evidence {one.evidence[0]:.3g}, nearest competitor {competitor}"
    return one.article(0, f"{heading} ({_mostly(found, competitor)})")


def _mostly(found: Clustering, label: Any) -> str:
    """Return the most frequent group in a cluster."""
    members = found.groups[found.exp.cluster == label].tolist()
    return str(Counter(members).most_common(1)[0][0]) if members else "empty"


def _claim(found: Clustering, summary: TextSummary, i: int, j: int, words: Sequence[str]) -> str:
    label = found.exp.cluster[i]
    return (
        f"{found.groups[i]} and {found.groups[j]} meet in cluster {label}, mostly {_mostly(found, label)}. "
        f"Its words are {summary.names(3)[label]}. These two messages share {', '.join(words[:5])}."
    )


def clusters_table(found: Clustering, summary: TextSummary) -> str:
    """Return the words of each cluster as a table in HTML."""
    frame = [_row(found, summary, group) for group in range(len(summary.clusters))]
    heads = (
        "<tr><th>cluster</th><th>messages</th><th>groups</th><th>words, with the number of messages in the "
        "cluster / in others</th></tr>"
    )
    return f"<table>{heads}{''.join(frame)}</table>"


def _row(found: Clustering, summary: TextSummary, group: int) -> str:
    label = summary.clusters[group]
    groups = Counter(found.groups[found.exp.cluster == label].tolist()).most_common(3)
    named = "<br>".join(f"{escape(name)} <small>{count}</small>" for name, count in groups)
    chips = "".join(
        f'<span class="chip">{escape(summary.word[entry])} '
        f"<small>{summary.documents[entry]} / {summary.documents_outside[entry]}</small></span>"
        for entry in summary.telling(label, 8)
    )
    return (
        f'<tr><td>{escape(str(label))}</td><td class="count">{summary.size[group]}</td>'
        f'<td class="groups">{named}</td><td>{chips}</td></tr>'
    )


def main() -> None:
    """Cluster and explain the messages, and write the page."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--data", type=Path, required=True, help="the folder with news and spacy_md")
    parser.add_argument("--out", type=Path, default=Path("newsgroups.html"), help="the page to write")
    arguments = parser.parse_args()
    missing = [name for name in ("news", "spacy_md") if not (arguments.data / name).is_dir()]
    if missing:
        names = " and ".join(missing)
        raise SystemExit(
            f"examples.newsgroups: {arguments.data} must contain {names}. Pass their folder as --data."
        )
    found = cluster(read_messages(arguments.data / "news"), read_vectors(arguments.data / "spacy_md"))
    summary = found.exp.summary()
    print(f"{found.exp!r}\nAdjusted Rand index with the groups: {100 * found.ari:.1f} %\n\n{summary}")
    write_page(found, summary, arguments.out)
    print(f"\nWritten to {arguments.out}")


if __name__ == "__main__":
    main()
