"""Run one of the other tools of `benchmarks.cluster_rules` in its own environment.

    python cluster_rules_peers.py TOOL given.npz found.npy

It reads the rows X, their clusters y, the centers and the rows Z, and writes which rows of Z the tool
describes as each cluster, (K, n). It needs only the tool and its own dependencies.
"""

import re
import sys
import warnings
from importlib import import_module
from typing import Any

import numpy as np

warnings.filterwarnings("ignore")


class _Centers:
    """The part of a fitted KMeans that ExKMC reads."""

    def __init__(self, centers: Any) -> None:
        self.cluster_centers_, self.n_clusters = centers, len(centers)

    def predict(self, X: Any) -> Any:
        """Return the nearest center."""
        return ((X[:, None] - self.cluster_centers_) ** 2).sum(axis=2).argmin(axis=1)


def exkmc(given: Any) -> Any:
    """Return the leaves of an ExKMC tree."""
    centers, n_leaves = given["centers"], int(given["n_leaves"])
    tree = import_module("ExKMC.Tree").Tree(len(centers), max_leaves=n_leaves, base_tree="IMM")
    tree.fit(given["X"], _Centers(centers))
    return tree.predict(given["Z"]) == np.arange(len(centers))[:, None]


def shallow_tree(given: Any) -> Any:
    """Return the leaves of a ShallowTree, one per cluster."""
    module, centers = import_module("ShallowTree.ShallowTree"), given["centers"]
    module.KMeans.predict = lambda _, rows: _Centers(centers).predict(rows)  # it calls an unfitted KMeans
    tree = module.ShallowTree(len(centers), random_state=0)
    tree.fit(given["X"], centers)
    return tree.predict(given["Z"]) == np.arange(len(centers))[:, None]


def cluster_explorer(given: Any) -> Any:
    """Return the rule of Cluster-Explorer with the largest F1 on X for each cluster."""
    pandas, explainer = import_module("pandas"), import_module("cluster_explorer").Explainer
    X, y, Z, n_clusters = given["X"], given["y"], given["Z"], len(given["centers"])
    frame = pandas.DataFrame(X, columns=[f"x{i}" for i in range(X.shape[1])])
    table = explainer(frame, pandas.Series(y)).generate_explanations(0.5, 1 / 3, 0.9, p_value=1)
    found, best = np.zeros((n_clusters, len(Z)), dtype=bool), np.zeros(n_clusters)
    for text, cluster in zip(table["rule"], table["Cluster"].astype(int), strict=True):
        mine, member = _holds(text, X), y == cluster
        f1 = 2 * (mine & member).sum() / max(1, mine.sum() + member.sum())
        if f1 > best[cluster]:
            best[cluster], found[cluster] = f1, _holds(text, Z)
    return found


def _holds(text: str, X: Any) -> Any:
    """Return the rows for which a rule such as ``[['x3', '>=', np.float64(1.5)], ...]`` holds."""
    holds = np.ones(len(X), dtype=bool)
    pattern = r"\['x(\d+)(?:_([^']*))?', '([<>=]+)', (?:np\.\w+\()?([-+.\deinf]+)"
    for column, category, sign, number in re.findall(pattern, text):
        x, value = X[:, int(column)], float(number)
        if category:  # columns with few values are one-hot encoded
            x = (x == float(category)).astype(float)
        holds &= {">=": x >= value, "<=": x <= value, ">": x > value, "<": x < value, "==": x == value}[sign]
    return holds


TOOLS = {"ExKMC": exkmc, "ShallowTree": shallow_tree, "Cluster-Explorer": cluster_explorer}

if __name__ == "__main__":
    tool, source, target = sys.argv[1:]
    with np.load(source) as data:
        np.save(target, TOOLS[tool](data))
