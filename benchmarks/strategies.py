"""Groups of reasons: how often one group is found where there is one, and two where two were planted.

    python -m benchmarks.strategies

Homogeneous clusters are normal, correlated normal, skewed (gamma) or uniform. In a planted cluster, some rows
are far from all other clusters in one column and the others in another column.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from typing import Any

import numpy as np
from sklearn.cluster import KMeans

import whycluster as wc
from benchmarks.datasets import Array

N = 150  # rows of a cluster
KINDS = ("normal", "correlated", "skewed", "uniform")


def homogeneous(seed: int, kind: str) -> tuple[Array, Any]:
    """Return rows of two to five clusters, and their clusters."""
    rng = np.random.default_rng(seed)
    k, d = int(rng.integers(2, 6)), int(rng.integers(2, 12))
    centers, cluster = 3.0 * rng.normal(size=(k, d)), np.repeat(np.arange(k), N)
    draws: dict[str, Callable[[], Array]] = {
        "normal": lambda: rng.normal(size=(N, d)),
        "correlated": lambda: rng.normal(size=(N, d)) @ rng.normal(size=(d, d)) / np.sqrt(d),
        "skewed": lambda: rng.gamma(2.0, 1.0, size=(N, d)),
        "uniform": lambda: rng.uniform(-1.7, 1.7, size=(N, d)),
    }
    return centers[cluster] + np.concatenate([draws[kind]() for _ in range(k)]), cluster


def planted(seed: int, share: float, n: int) -> tuple[Array, Any, Any]:
    """Return rows, their clusters, and which of two reasons each row of the first cluster has."""
    rng = np.random.default_rng(seed)
    k, d = int(rng.integers(2, 5)), int(rng.integers(4, 12))
    i, j = rng.choice(d, 2, replace=False).tolist()
    cluster, first = np.repeat(np.arange(k), n), rng.random(n) < share
    X = 2.0 * rng.normal(size=(k, d))[cluster] + rng.normal(size=(k * n, d))
    X[:n] = rng.normal(size=(n, d))
    X[np.arange(n), np.where(first, i, j)] += 6.0
    X[n:, [i, j]] -= 3.0
    return X, cluster, first


def explained(X: Array, cluster: Any) -> wc.Explanation:
    """Return the explanation of the model whose centers are the means of the clusters."""
    centers = np.array([X[cluster == k].mean(axis=0) for k in range(int(cluster.max()) + 1)])
    return wc.explain(KMeans(len(centers), init=centers, n_init=1, max_iter=1).fit(X), X)


def main() -> None:
    """Print the results as Markdown."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--seeds", type=int, default=100)
    options.add_argument("--first", type=int, default=0, help="first seed; settings were chosen from 1000 on")
    given = options.parse_args()
    seeds = range(given.first, given.first + given.seeds)
    print("| clusters | tested | with one group |\n|---|---:|---:|")
    for kind in KINDS:
        found = [
            len(each.groups)
            for seed in seeds
            for each in explained(*homogeneous(seed, kind)).strategies()
            if each.is_tested
        ]
        print(f"| {kind} | {len(found)} | {found.count(1)} ({found.count(1) / len(found):.1%}) |", flush=True)
    print("\n| planted cluster | tested | with two groups | rows in the right group |\n|---|---:|---:|---:|")
    for share, n in ((0.5, N), (0.8, N), (0.8, 4 * N)):
        print(planted_row(seeds, share, n), flush=True)
    print(f"\n15,000 rows, 17 columns and 8 clusters take {seconds():.1f} s.")


def planted_row(seeds: range, share: float, n: int) -> str:
    """Return the line of the table for planted clusters in which a share of the rows has the first reason."""
    counts, right = [], []
    for seed in seeds:
        X, cluster, first = planted(seed, share, n)
        found = explained(X, cluster).strategies()
        counts.append(len(found[0].groups))
        own = np.flatnonzero(found.group[:n] >= 0) if counts[-1] == 2 else np.empty(0, np.intp)
        own = own[np.isin(own, np.concatenate([group.rows for group in found[0].groups]))]
        if own.size:
            agree = (found.group[own] == 0) == first[own]
            right.append(max(agree.mean(), 1.0 - agree.mean()))
    title = f"{share:.0%} and {1 - share:.0%} of {n} rows"
    return f"| {title} | {len(counts)} | {counts.count(2)} | {np.mean(right):.1%} |"


def seconds() -> float:
    """Return how long a table takes: the best of three runs."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(15_000, 17)) + 3.0 * rng.integers(0, 4, size=(15_000, 1))
    exp, best = wc.explain(KMeans(8, n_init=1, random_state=0).fit(X), X), np.inf
    for _ in range(3):
        start = time.perf_counter()
        exp.strategies()
        best = min(best, time.perf_counter() - start)
    return best


if __name__ == "__main__":
    main()
