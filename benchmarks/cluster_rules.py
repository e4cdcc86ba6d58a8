"""Rules against decision trees and other tools that describe clusters: F1, coverage and precision.

Each table is standardized and clustered with k-means. For each cluster, every method gives a set of
conjunctions, and F1 is the harmonic mean of their coverage and precision. Trees get as many leaves as there
are rules, so they describe the clusters with the same number of conjunctions; their leaves may be deeper than
three conditions. "held out" means that the conjunctions were found on one half of the rows and measured on
the other.

ExKMC and ShallowTree (``pip install ExKMC ShallowTree``; they need Python 3.10 and NumPy 1) and
Cluster-Explorer (``pip install cluster-explorer``) run in environments of their own, given by their Python.

    python -m benchmarks.cluster_rules --exkmc old/bin/python --explorer new/bin/python
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from sklearn.cluster import KMeans
from sklearn.tree import DecisionTreeClassifier

import whycluster as wc
from benchmarks.datasets import Array, load, parser

CHOSEN_ON = ("iris", "penguins", "diabetes", "sales", "fair", "trpad")
REPORTED = ("seeds", "buddy", "hepac", "winer", "whlsl", "water", "cancer", "digits", "star98", "cars")
N_CLUSTERS = (3, 6)
N_CONDITIONS = 3

Masks = NDArray[np.bool_]
"""(K, n) the rows that a method describes as each cluster."""


class Figures(NamedTuple):
    """Means over the clusters."""

    f1: float
    coverage: float
    precision: float

    @classmethod
    def of(cls, masks: Masks, labels: NDArray[Any]) -> Figures:
        """Compare the described rows with the clusters."""
        found = []
        for code in np.unique(labels):
            member, covered = labels == code, masks[code]
            hits = int((member & covered).sum())
            f1 = 2 * hits / (member.sum() + covered.sum())
            found.append((f1, hits / member.sum(), hits / covered.sum() if covered.any() else 0.0))
        return cls(*np.mean(found, axis=0))


def rules_of(model: KMeans, X: Array, max_rules: int) -> Any:
    """Return the rules that whycluster finds."""
    return wc.explain(model, X).rules(N_CONDITIONS, max_rules)


def masks_of(rules: Any, X: Array, n_clusters: int) -> Masks:
    """Return the rows for which a rule of each cluster holds, from the printed bounds alone."""
    result = np.zeros((n_clusters, len(X)), dtype=bool)
    for cluster in rules:
        for rule in cluster.rules:
            holds = np.ones(len(X), dtype=bool)
            for each in rule.conditions:
                x = X[:, int(str(each.feature)[1:])]
                if each.low is not None:
                    holds &= (x >= each.low) if each.low_included else (x > each.low)
                if each.high is not None:
                    holds &= x <= each.high
            result[cluster.cluster] |= holds
    return result


def tree_masks(
    X: Array, y: NDArray[Any], Z: Array, n_leaves: int, depth: int | None, n_clusters: int
) -> Masks:
    """Return the leaves of a decision tree for the rows Z, grown on X and the clusters y."""
    tree = DecisionTreeClassifier(max_leaf_nodes=max(2, n_leaves), max_depth=depth, random_state=0).fit(X, y)
    return np.asarray(tree.predict(Z) == np.arange(n_clusters)[:, None])


class Task(NamedTuple):
    """One clustering: the rows to describe, those to measure on, and the model."""

    model: KMeans
    X: Array
    y: NDArray[Any]
    Z: Array
    z: NDArray[Any]


def peer_masks(python: str, tool: str, task: Task, n_leaves: int) -> Masks:
    """Run another tool in its own environment."""
    with tempfile.TemporaryDirectory() as folder:
        given, found = Path(folder) / "given.npz", Path(folder) / "found.npy"
        np.savez(given, X=task.X, y=task.y, Z=task.Z, centers=task.model.cluster_centers_, n_leaves=n_leaves)
        script = Path(__file__).with_name("cluster_rules_peers.py")
        command = [python, str(script), tool, str(given), str(found)]
        subprocess.run(command, check=True, capture_output=True, text=True)
        return np.asarray(np.load(found))


Method = Callable[[Task], tuple[Masks, float]]
"""Gives the rows that are described as each cluster, and the number of conjunctions per cluster."""


class Rules:
    """The rules that whycluster finds, at most ``max_rules`` for each cluster."""

    def __init__(self, max_rules: int) -> None:
        self._max_rules, self._found = max_rules, {}  # type: ignore[var-annotated]  # by the id of the rows

    def of(self, task: Task) -> Any:
        """Return the rules of a clustering; they are found only once."""
        key = id(task.X)
        if key not in self._found:
            self._found[key] = task, rules_of(task.model, task.X, self._max_rules)
        return self._found[key][1]

    def __call__(self, task: Task) -> tuple[Masks, float]:
        """Return the rows that the rules describe as each cluster, and the number of rules per cluster."""
        found, k = self.of(task), task.model.n_clusters
        return masks_of(found, task.Z, k), n_rules(found) / k


def tree(rules: Rules, depth: int | None) -> Method:
    """Return a decision tree with as many leaves as there are rules."""

    def run(task: Task) -> tuple[Masks, float]:
        k, n = task.model.n_clusters, n_rules(rules.of(task))
        return tree_masks(task.X, task.y, task.Z, n, depth, k), n / k

    return run


def peer(rules: Rules, python: str, tool: str, as_many: bool) -> Method:
    """Return another tool, with as many leaves as there are rules, or with one per cluster."""

    def run(task: Task) -> tuple[Masks, float]:
        k = task.model.n_clusters
        n = max(k, n_rules(rules.of(task))) if as_many else k
        return peer_masks(python, tool, task, n), n / k

    return run


def methods(exkmc: str | None, explorer: str | None) -> dict[str, Method]:
    """Return the methods that can run, given the environments of the other tools."""
    rules = Rules(3)
    found: dict[str, Method] = {
        "rules": rules,
        "decision tree, as many leaves": tree(rules, None),
        "decision tree, as many leaves, depth 3": tree(rules, 3),
    }
    if exkmc:
        found["ExKMC, as many leaves"] = peer(rules, exkmc, "ExKMC", True)
        found["ShallowTree, one leaf per cluster"] = peer(rules, exkmc, "ShallowTree", False)
    found["rules, one per cluster"] = Rules(1)
    if explorer:
        found["Cluster-Explorer, best of its rules"] = peer(rules, explorer, "Cluster-Explorer", False)
    return found


def n_rules(rules: Any) -> int:
    """Return the number of rules of all clusters."""
    return sum(len(cluster.rules) for cluster in rules)


def tasks(name: str, k: int, folder: Path) -> tuple[Task, Task]:
    """Return a clustering with all rows, and with one half described and the other measured."""
    X = load(name, folder)
    model = KMeans(k, n_init=10, random_state=0).fit(X)
    y = model.predict(X)
    order = np.random.default_rng(0).permutation(len(X))
    a, b = order[::2], order[1::2]
    return Task(model, X, y, X, y), Task(model, X[a], y[a], X[b], y[b])


def measure(folder: Path, names: tuple[str, ...], run: dict[str, Any]) -> dict[str, list[Any]]:
    """Return, for each method, a row (table, K, figures in sample, held out, conjunctions per cluster)."""
    rows: dict[str, list[Any]] = {method: [] for method in run}
    for name in names:
        for k in N_CLUSTERS:
            whole, half = tasks(name, k, folder)
            for method, function in run.items():
                (masks, n), (held, _) = function(whole), function(half)
                rows[method].append((name, k, Figures.of(masks, whole.y), Figures.of(held, half.z), n))
                print(
                    name,
                    k,
                    method,
                    f"{rows[method][-1][2].f1:.3f} {rows[method][-1][3].f1:.3f}",
                    file=sys.stderr,
                )
    return rows


def seconds() -> float:
    """Return how long the rules of 15,000 rows, 17 columns and 8 clusters take: the best of three runs."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(15_000, 17)) + 3 * rng.integers(0, 4, size=(15_000, 1))
    exp = wc.explain(KMeans(8, n_init=1, random_state=0).fit(X), X)
    best = np.inf
    for _ in range(3):
        start = time.perf_counter()
        exp.rules()
        best = min(best, time.perf_counter() - start)
    return best


def main() -> None:
    """Print the results as Markdown."""
    options = parser(__doc__)
    options.add_argument("--exkmc", help="a Python with ExKMC and ShallowTree")
    options.add_argument("--explorer", help="a Python with Cluster-Explorer")
    given = options.parse_args()
    run = methods(given.exkmc, given.explorer)
    rows = measure(given.data, REPORTED, run)
    print("| method | F1 | coverage | precision | F1, held out | conjunctions per cluster |")
    print("|---|---:|---:|---:|---:|---:|")
    for method, found in rows.items():
        f1, coverage, precision = np.mean([each[2] for each in found], axis=0)
        held, n = np.mean([each[3].f1 for each in found]), np.mean([each[4] for each in found])
        print(f"| {method} | {f1:.3f} | {coverage:.3f} | {precision:.3f} | {held:.3f} | {n:.2f} |")
    print("\n| table | clusters | " + " | ".join(rows) + " |")
    print("|---|---:|" + "---:|" * len(rows))
    for place, (name, k, *_) in enumerate(rows["rules"]):
        print(
            f"| {name} | {k} | " + " | ".join(f"{found[place][2].f1:.3f}" for found in rows.values()) + " |"
        )
    print(f"\n15,000 rows, 17 columns and 8 clusters take {seconds():.1f} s.")


if __name__ == "__main__":
    main()
