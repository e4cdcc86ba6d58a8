"""Measure how faithful the words of sentence embeddings are: ``python -m benchmarks.sentences --data DIR``.

Messages from 20 newsgroups are encoded with MiniLM and clustered by k-means. Each method ranks the words of a
message. If the ranking is faithful, the message stays in its cluster when only its first words are kept
(insertion), and leaves it when they are removed (deletion).

With ``--long``, the messages have 101 to 160 words. None of them can be among those that the rules were
chosen on, which have at most 100 words.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.cluster import KMeans
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.pipeline import make_pipeline

import whycluster as wc
from benchmarks.measure import write
from examples.minilm import load_minilm
from examples.newsgroups import read_messages
from whycluster.text.pieces import find_words, owners, words_of_piece

FRACTIONS = (0.1, 0.2, 0.3, 0.5)  # parts of the words that are kept or removed
N_STEPS = 10  # of integrated gradients
Floats = NDArray[np.float64]
Ranking = list[Floats]  # the score of each word of each message


class Protocol(NamedTuple):
    """The messages to cluster, and how to measure.

    Attributes
    ----------
    results : the name of the file with the results
    shortest, longest : the number of words in a message
    runs : the number of clusters, the seed, the number of messages to explain, and what replaces a word
    """

    results: str
    shortest: int
    longest: int
    runs: tuple[tuple[int, int, int, tuple[str, ...]], ...]


SHORT = Protocol("sentences", 12, 60, ((20, 0, 300, ("", "[MASK]")), (10, 1, 150, ("",))))
LONG = Protocol("sentences_long", 101, 160, ((20, 0, 100, ("",)), (10, 1, 50, ("",))))


class Setting(NamedTuple):
    """A clustering and the messages to explain."""

    encoder: wc.text.Sentences
    model: Any
    head: KMeans
    texts: list[str]
    spans: list[list[tuple[int, int]]]
    cluster: NDArray[Any]


def settings(messages: Sequence[str], model: Any, n_clusters: int, seed: int, n_messages: int) -> Setting:
    """Cluster all messages and choose those to explain."""
    encoder = wc.text.Sentences(model, batch_size=64)
    pipeline = make_pipeline(encoder, KMeans(n_clusters, n_init=3, random_state=seed)).fit(messages)
    rows = np.random.default_rng(seed).choice(len(messages), n_messages, replace=False)
    texts = [messages[row] for row in rows]
    return Setting(
        encoder, pipeline, pipeline[-1], texts, [find_words(t) for t in texts], pipeline.predict(texts)
    )


def ours(setting: Setting) -> Ranking:
    """Return the relevance of each word."""
    exp: Any = wc.explain(setting.model, setting.texts)
    return [np.array([word.relevance for word in exp.words(row)]) for row in range(len(setting.texts))]


def leave_one_out(setting: Setting) -> Ranking:
    """Return the evidence that is lost if a word is removed."""
    without = [
        keep(text, spans, np.arange(len(spans)) != word)
        for text, spans in zip(setting.texts, setting.spans, strict=True)
        for word in range(len(spans))
    ]
    network = wc.neuralize(setting.head)
    target = np.repeat(setting.cluster, [len(spans) for spans in setting.spans])
    evidence = network.evidence(setting.encoder.transform(without))[np.arange(len(target)), target]
    return np.split(-evidence, np.cumsum([len(spans) for spans in setting.spans])[:-1])


def integrated_gradients(setting: Setting) -> Ranking:
    """Return integrated gradients of the evidence, from word embeddings of [PAD]."""
    model, tokenizer = setting.encoder.model, setting.encoder.model.tokenizer
    table = model[0].auto_model.get_input_embeddings()
    centers = torch.as_tensor(setting.head.cluster_centers_, dtype=torch.float32)
    result = []
    for text, spans, c in zip(setting.texts, setting.spans, setting.cluster, strict=True):
        encoded = tokenizer(
            [text], truncation=True, max_length=256, return_tensors="pt", return_offsets_mapping=True
        )
        offsets = encoded.pop("offset_mapping")[0].tolist()
        ids = encoded.pop("input_ids")
        with torch.no_grad():
            vectors, empty = table(ids), table(torch.full_like(ids, tokenizer.pad_token_id))
        steps = (torch.arange(N_STEPS)[:, None, None] + 0.5) / N_STEPS
        x = (empty + steps * (vectors - empty)).requires_grad_()
        others = {key: value.expand(N_STEPS, -1) for key, value in encoded.items()}
        hidden = model[0].auto_model(inputs_embeds=x, **others).last_hidden_state.mean(1)
        distances = torch.cdist(torch.nn.functional.normalize(hidden, dim=1), centers).square()
        others_min = torch.cat([distances[:, :c], distances[:, c + 1 :]], 1).min(1).values
        (gradient,) = torch.autograd.grad((others_min - distances[:, c]).sum(), x)
        scores = ((vectors - empty)[0] * gradient.mean(0)).sum(-1).numpy()
        result.append(_by_word(text, spans, offsets, scores))
    return result


def attention_rollout(setting: Setting) -> Ranking:
    """Return the attention of the mean output to each piece, multiplied over all layers."""
    model, tokenizer = setting.encoder.model, setting.encoder.model.tokenizer
    transformer = model[0].auto_model
    before = transformer.config._attn_implementation
    transformer.set_attn_implementation("eager")
    result = []
    for text, spans in zip(setting.texts, setting.spans, strict=True):
        encoded = tokenizer(
            [text], truncation=True, max_length=256, return_tensors="pt", return_offsets_mapping=True
        )
        offsets = encoded.pop("offset_mapping")[0].tolist()
        with torch.no_grad():
            layers = transformer(**encoded, output_attentions=True).attentions
        rollout = torch.eye(len(offsets))
        for attention in layers:
            rollout = (attention[0].mean(0) + torch.eye(len(offsets))) / 2 @ rollout
        result.append(_by_word(text, spans, offsets, rollout.mean(0).numpy()))
    transformer.set_attn_implementation(before)
    return result


def _by_word(text: str, spans: Sequence[tuple[int, int]], offsets: Any, scores: NDArray[Any]) -> Floats:
    """Add up the scores of the pieces of each word."""
    result, owner = np.zeros(len(spans)), owners(text, spans)
    for (start, stop), score in zip(offsets, scores.tolist(), strict=True):
        words = words_of_piece(owner, text, start, stop)
        if words:
            np.add.at(result, words, score / len(words))
    return result


def tf_idf(setting: Setting) -> Ranking:
    """Return the tf-idf of each word among all explained messages; other signs have 0."""
    vectorizer = TfidfVectorizer().fit(setting.texts)
    idf = dict(zip(vectorizer.get_feature_names_out().tolist(), vectorizer.idf_.tolist(), strict=True))
    result = []
    for text, spans in zip(setting.texts, setting.spans, strict=True):
        words = [text[start:stop].lower() for start, stop in spans]
        result.append(np.array([words.count(word) * idf.get(word, 0.0) for word in words]))
    return result


def at_random(setting: Setting) -> Ranking:
    """Return random scores."""
    rng = np.random.default_rng(0)
    return [rng.random(len(spans)) for spans in setting.spans]


METHODS: dict[str, Callable[[Setting], Ranking]] = {
    "whycluster": ours,
    "leave one word out": leave_one_out,
    "integrated gradients": integrated_gradients,
    "attention rollout": attention_rollout,
    "tf-idf": tf_idf,
    "random": at_random,
}


def keep(text: str, spans: Sequence[tuple[int, int]], kept: NDArray[np.bool_], filler: str = "") -> str:
    """Return the text with only some of its words; ``filler`` takes the place of each other word."""
    words = [text[start:stop] if k else filler for (start, stop), k in zip(spans, kept, strict=True)]
    return " ".join(word for word in words if word)


def stays(setting: Setting, ranking: Ranking, filler: str) -> Floats:
    """Return whether messages stay in their cluster, on average over the fractions, (messages, 2).

    The columns are insertion and deletion.
    """
    changed = []
    for text, spans, scores in zip(setting.texts, setting.spans, ranking, strict=True):
        order = np.argsort(-scores, kind="stable")
        for fraction in FRACTIONS:
            first = np.zeros(len(spans), bool)
            first[order[: max(1, round(fraction * len(spans)))]] = True
            changed += [keep(text, spans, first, filler), keep(text, spans, ~first, filler)]
    found = setting.model.predict(changed).reshape(len(setting.texts), len(FRACTIONS), 2)
    return np.asarray((found == setting.cluster[:, None, None]).mean(axis=1))


def table(setting: Setting, rankings: dict[str, Ranking], filler: str) -> list[str]:
    """Return the lines of a table, with the lead of the first method over each other one."""
    lines = [
        "| method | insertion | deletion | lead of whycluster: insertion | deletion |",
        "|---|---:|---:|---:|---:|",
    ]
    first: Floats | None = None
    for name, ranking in rankings.items():
        found = stays(setting, ranking, filler)
        print(f"{name}: {found.mean(axis=0).round(3)}", flush=True)
        leads = ["", ""] if first is None else with_errors((first - found) * np.array([1.0, -1.0]), "+.3f")
        first = found if first is None else first
        lines.append(f"| {' | '.join([name, *with_errors(found, '.3f'), *leads])} |")
    return lines


def with_errors(values: Floats, form: str) -> list[str]:
    """Return the mean of each column with its standard error."""
    errors = values.std(axis=0, ddof=1) / np.sqrt(len(values))
    return [f"{mean:{form}} ± {error:.3f}" for mean, error in zip(values.mean(axis=0), errors, strict=True)]


def main() -> None:
    """Measure all methods on two clusterings and write the results."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--data", type=Path, required=True, help="the folder of the data sets")
    parser.add_argument("--long", action="store_true", help="explain longer messages")
    parser.add_argument("--messages", type=int, default=300, help="explain at most this many messages")
    options = parser.parse_args()
    protocol = LONG if options.long else SHORT
    torch.set_num_threads(1)  # short texts take longer on several threads, and much longer next to other work
    shortest, longest = protocol.shortest, protocol.longest
    texts = [text for _, text in read_messages(options.data / "news")]
    messages = [text for text in dict.fromkeys(texts) if shortest <= len(find_words(text)) <= longest]
    model = load_minilm()
    lines = [
        "# Words of sentence embeddings" + " of longer texts" * options.long,
        "",
        f"{len(messages)} messages of {shortest} to {longest} words from 20 newsgroups are encoded with "
        "MiniLM-L6 and clustered by k-means. Some of them are explained, which are drawn at random.",
        "The numbers are the share of messages that stay in their cluster if only the first 10, 20, 30 and "
        "50 % of their words are kept (insertion, higher is better) or if these words are removed (deletion, "
        "lower is better), on average over the four fractions.",
        "A lead is a mean of paired differences. Behind ± is a standard error.",
    ]
    for n_clusters, seed, most, fillers in protocol.runs:
        setting = settings(messages, model, n_clusters, seed, min(most, options.messages))
        rankings = {name: method(setting) for name, method in METHODS.items()}
        print("all words are ranked", flush=True)
        for filler in fillers:
            how = f"replaced by {filler}" if filler else "removed"
            title = f"## {n_clusters} clusters, seed {seed}, {len(setting.texts)} messages, words are {how}"
            lines += ["", title, ""]
            lines += table(setting, rankings, filler)
    command = f"python -m benchmarks.sentences --data DIR{' --long' * options.long}"
    write(protocol.results, command, lines)


if __name__ == "__main__":
    main()
