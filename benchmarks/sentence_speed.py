"""Measure the cost of explaining sentence embeddings with MiniLM: ``python -m benchmarks.sentence_speed``.

Times are processor times, so that other work on the machine matters less. The memory that the process uses
after 10 and after 100 batches is measured without the garbage collector; only Linux reports it.
"""

from __future__ import annotations

import argparse
import gc
import resource
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from sklearn.cluster import KMeans
from sklearn.pipeline import make_pipeline

import whycluster as wc
from benchmarks.measure import write
from examples.minilm import load_minilm

N_TOKENS, BATCH, N_BATCHES, N_CLUSTERS = 64, 32, 1, 20
WORDS = [
    "ship",
    "sail",
    "storm",
    "harbor",
    "bank",
    "stock",
    "market",
    "loan",
    "bread",
    "oven",
    "butter",
    "soup",
]


def random_texts(n: int, seed: int = 0) -> list[str]:
    """Return texts of 64 pieces each, including two special tokens."""
    draw = np.random.default_rng(seed)
    return [" ".join(draw.choice(WORDS, N_TOKENS - 2).tolist()) for _ in range(n)]


def forward_and_backward(encoder: Any, texts: list[str]) -> None:
    """Run the encoder forward, and backward to the vectors of the pieces."""
    module: Any = encoder.module
    for start in range(0, len(texts), BATCH):
        features = encoder._tokenize(texts[start : start + BATCH])
        vectors = module[0].auto_model.get_input_embeddings()(features["input_ids"]).detach()
        hidden = (
            module[0]
            .auto_model(inputs_embeds=vectors.requires_grad_(), attention_mask=features["attention_mask"])
            .last_hidden_state
        )
        torch.autograd.grad(hidden.mean(1).sum(), vectors)


def seconds(call: Callable[[], Any]) -> float:
    """Return the processor time of a call, including all of its threads."""
    start = time.process_time()
    call()
    return time.process_time() - start


def megabytes() -> float:
    """Return the memory that the process uses now, in MB; a peak would hide growth below an earlier one."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize() / 2**20


def main() -> None:
    """Measure one batch against the passes of the encoder, and many texts as a whole."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--texts", type=int, default=1000, help="number of texts in the long run")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    sentences = wc.text.Sentences(load_minilm(), batch_size=BATCH)
    head = KMeans(N_CLUSTERS, n_init=1, random_state=0)
    model = make_pipeline(sentences, head).fit(random_texts(100))
    encoder, texts = sentences.encoder("benchmark"), random_texts(BATCH * N_BATCHES, 1)
    assert encoder._tokenize(texts[:1])["input_ids"].shape[1] == N_TOKENS
    for parameter in encoder.module.parameters():
        parameter.requires_grad_(False)
    calls: dict[str, Callable[[], Any]] = {
        "forward": lambda: encoder.embed(texts, "benchmark"),
        "forward and backward": lambda: forward_and_backward(encoder, texts),
        "explain": lambda: wc.explain(model, texts),
    }
    times: dict[str, list[float]] = {name: [] for name in calls}
    for _ in range(3):
        for name, call in calls.items():
            times[name].append(seconds(call))
    best = {name: min(found) for name, found in times.items()}
    lines = [
        "# Cost of explaining sentence embeddings",
        "",
        f"MiniLM-L6 encodes {BATCH * N_BATCHES} texts of {N_TOKENS} pieces in batches of {BATCH}, on one "
        "thread. Times are processor times per batch, the least of three runs that take turns.",
        "",
        "| task | seconds per batch | in forward passes | in forward and backward passes |",
        "|---|---:|---:|---:|",
    ]
    for name, value in best.items():
        ratios = [value / best[each] for each in ("forward", "forward and backward")]
        lines.append(f"| {name} | {value / N_BATCHES:.2f} | {ratios[0]:.1f} | {ratios[1]:.1f} |")
    print("\n".join(lines), flush=True)
    many, first = random_texts(options.texts, 2), options.texts // 10
    in_batches = make_pipeline(wc.text.Sentences(sentences.model, batch_size=options.texts // 100), head)
    gc.collect()
    gc.disable()  # traces must not need it
    wc.explain(in_batches, many[:first])
    early = megabytes()
    total, late = seconds(lambda: wc.explain(in_batches, many)), megabytes()
    lines += [
        "",
        f"Explaining {options.texts:,} texts takes {total:.0f} s of processor time, in 100 batches of "
        f"{options.texts // 100}. Without the garbage collector, the process, including torch and the model, "
        f"uses {early:,.0f} MB of memory after 10 batches and {late:,.0f} MB after 100 more.",
    ]
    write("sentence_speed", "python -m benchmarks.sentence_speed", lines)


if __name__ == "__main__":
    main()
