"""Rules instead of surrogates: agreement with the labels, faithfulness and cost.

The width of the pool was chosen on other data sets: ``python -m benchmarks.neighbors --choose``.
"""

from __future__ import annotations

import resource
import warnings
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import hdbscan
import numpy as np
from numpy.typing import NDArray
from sklearn.cluster import DBSCAN, HDBSCAN, OPTICS, AgglomerativeClustering, SpectralClustering
from sklearn.datasets import make_blobs
from sklearn.neighbors import KNeighborsClassifier, NearestNeighbors

import whycluster as wc
from benchmarks.datasets import parser
from benchmarks.measure import side_by_side, write
from benchmarks.rule_areas import MOST_ROWS, REPORTED, Run, areas, faithfulness, rows_of
from whycluster.models.adapters.density import core_network, reachability_network

Array = NDArray[Any]
CHOSEN_ON = ("iris", "cancer", "seeds")
WITH_NOISE = ("DBSCAN", "HDBSCAN")
COMPARED = (*WITH_NOISE, "ward linkage", "single linkage", "spectral, rbf", "spectral, neighbors")


UNSCALED = "As above, in the columns' own units, in which some columns hardly matter."


def models(X: Array) -> Iterator[tuple[str, Any]]:
    """Yield three settings of each family, to be fitted to the rows."""
    far = NearestNeighbors(n_neighbors=5).fit(X).kneighbors(X)[0][:, -1]
    for q in (0.5, 0.7, 0.85):
        eps = float(np.quantile(far, q))
        yield "DBSCAN", DBSCAN(eps=eps, min_samples=5)
        yield "OPTICS, dbscan", OPTICS(min_samples=5, eps=eps, cluster_method="dbscan")
    for size in (5, 10, 20):
        yield "HDBSCAN", HDBSCAN(min_cluster_size=size, min_samples=5, copy=True)
        yield "hdbscan.HDBSCAN", hdbscan.HDBSCAN(min_cluster_size=size, min_samples=5)
        yield "OPTICS, xi", OPTICS(min_samples=size)
    for k in (3, 6, 12):
        for linkage in ("single", "ward", "average", "complete"):
            yield f"{linkage} linkage", AgglomerativeClustering(k, linkage=linkage)
        for name, affinity in (("rbf", "rbf"), ("neighbors", "nearest_neighbors")):
            for assign in ("kmeans", "cluster_qr", "discretize"):
                model = SpectralClustering(
                    k, affinity=affinity, gamma=1 / X.shape[1], assign_labels=assign, random_state=0
                )
                yield f"spectral, {name}{f', {assign}' * (assign != 'kmeans')}", model


def agreement(folder: Path, families: Sequence[str]) -> list[str]:
    """Return a table of the agreement of rules with labels, by family; without ``families``, of all."""
    found: dict[str, list[tuple[int, int, int, float]]] = {}
    certain = [0, 0]
    for name in REPORTED:
        X = rows_of(name, folder)
        for family, made in models(X):
            if families and family not in families:
                continue
            model = made.fit(X)
            if model.labels_.max() < 0 or len(np.unique(model.labels_)) < 2:
                continue
            fitted = wc.neuralize(model, rows=X).agreement
            assert fitted is not None
            n, differ = len(X) - fitted.n_ties, len(fitted.differing)
            found.setdefault(family, []).append((n, differ, fitted.n_ties, fitted.share))
            if family == "DBSCAN":
                border = np.setdiff1d(np.flatnonzero(model.labels_ >= 0), model.core_sample_indices_)
                certain[0] += len(X) - len(border)
                certain[1] += len(np.setdiff1d(fitted.differing, border))
    lines = [
        "| labels of | runs | rows | differ | ties, not counted | agreement | lowest of a run |",
        "|---|---:|---:|---:|---:|---:|---:|",
    ]
    for family, runs in found.items():
        n, differ, ties = (int(sum(run[i] for run in runs)) for i in range(3))
        least = min(run[3] for run in runs)
        lines.append(
            f"| {family} | {len(runs)} | {n:,} | {differ} | {ties} | {1 - differ / n:.4f} | {least:.4f} |"
        )
    if families:
        return lines
    lines += ["", f"Of the {certain[0]:,} core samples and noise rows of DBSCAN, {certain[1]} differ."]
    return [*lines, predicted(folder)]


def predicted(folder: Path) -> str:
    """Return how far new rows are assigned as hdbscan's approximate_predict assigns them."""
    n, same, rng = 0, 0, np.random.default_rng(0)
    for name in REPORTED:
        X = rows_of(name, folder)
        for size in (5, 10, 20):
            model = hdbscan.HDBSCAN(min_cluster_size=size, min_samples=5, prediction_data=True).fit(X)
            if model.labels_.max() < 0:
                continue
            new = X[rng.integers(len(X), size=300)] + 0.2 * rng.normal(size=(300, X.shape[1]))
            found = wc.neuralize(model).assign(new).tolist()
            given = hdbscan.approximate_predict(model, new)[0].tolist()
            n += len(new)
            same += sum((-1 if a == "noise" else a) == b for a, b in zip(found, given, strict=True))
    return f"Of {n:,} new rows, {n - same} are assigned otherwise than by hdbscan's `approximate_predict`."


def runs(
    names: tuple[str, ...], folder: Path, families: Sequence[str] = COMPARED, scaled: bool = True
) -> Iterator[Run]:
    """Yield the runs whose faithfulness is compared, and votes for the labels of ward linkage."""
    for name in names:
        X = rows_of(name, folder, scaled)
        for family, made in models(X):
            if family not in families:
                continue
            model = made.fit(X)
            if len(np.unique(model.labels_)) < 2:
                continue
            yield Run(name, family, X, wc.neuralize(model, rows=X), model.labels_)
            if family == "ward linkage":
                votes = KNeighborsClassifier().fit(X, model.labels_)
                yield Run(name, "votes of 5 neighbors", X, wc.neuralize(votes), votes.predict(X))


def costs() -> list[str]:
    """Return a table of the time of an explanation, compared with a search, and the memory of a large one."""
    n, d, k, m = 20_000, 8, 5, 5
    X, y = make_blobs(n, d, centers=k, cluster_std=2.0, random_state=0)
    dense = core_network(X, y, 3.0, "euclidean", None)
    reach = reachability_network(X, y, np.full(k, 4.0), m, "euclidean", None)

    def explained(network: wc.Network) -> Any:
        network.energy.__dict__.pop("_recent", None)  # nothing is remembered from the run before
        return network.explain(X)

    def searched(n_neighbors: int) -> Any:
        return NearestNeighbors(n_neighbors=n_neighbors).fit(X).kneighbors(X)

    seconds = side_by_side(
        {
            "DBSCAN": lambda: explained(dense),
            "DBSCAN's search": lambda: searched(2 * k),
            "HDBSCAN": lambda: explained(reach),
            "HDBSCAN's search": lambda: searched(2 * k + m),
        },
        3,
    )
    lines = [
        f"n = {n:,}, d = {d}, {k} clusters, all rows explained. A row needs 2 neighbors in each cluster for",
        f"DBSCAN (it may be one itself), and {m} more rows for HDBSCAN. The search finds",
        "as many neighbors among all rows, with scikit-learn's `NearestNeighbors`.",
        "",
        "| model | explanation | search | ratio |",
        "|---|---:|---:|---:|",
    ]
    for name in ("DBSCAN", "HDBSCAN"):
        a, b = seconds[name], seconds[f"{name}'s search"]
        lines.append(f"| {name} | {a:.2f} s | {b:.2f} s | {a / b:.2f} |")
    X, y = make_blobs(200_000, d, centers=k, cluster_std=2.0, random_state=0)
    large = reachability_network(X, y, np.full(k, 4.0), m, "euclidean", None)
    large.explain(X)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    return [
        *lines,
        "",
        f"Explaining 200,000 rows by the rule of HDBSCAN, the process has {peak:,.0f} MB of memory at its",
        "peak, with all libraries and rows.",
    ]


def choose(folder: Path) -> None:
    """Print the areas of several widths on the data sets that the width was chosen on."""
    widths = (0.01, 0.25, 0.5, 1.0)
    for family, each in areas(runs(CHOSEN_ON, folder), widths).items():
        shown = np.mean([[*area.rule, area.surrogate] for area in each], axis=0)
        names = [*widths, "surrogate"]
        print(
            family,
            len(each),
            ", ".join(f"{name}: {area:.2f}" for name, area in zip(names, shown, strict=True)),
        )


def main() -> None:
    """Measure everything and write results/neighbors.md."""
    warnings.simplefilter("ignore")  # of surrogates and of scikit-learn
    options = parser(__doc__)
    options.add_argument("--choose", action="store_true", help="compare widths of the pool")
    options.add_argument(
        "--part", choices=("agreement", "faithfulness", "unscaled", "cost"), help="print one part"
    )
    options.add_argument(
        "--only", nargs="+", default=(), help="families of the agreement or the faithfulness"
    )
    chosen = options.parse_args()
    if chosen.choose:
        choose(chosen.data)
        return
    parts: dict[str, Callable[[], list[str]]] = {
        "agreement": lambda: agreement(chosen.data, chosen.only),
        "faithfulness": lambda: faithfulness(runs(REPORTED, chosen.data, chosen.only or COMPARED)),
        "cost": costs,
        "unscaled": lambda: [UNSCALED, "", *faithfulness(runs(REPORTED, chosen.data, WITH_NOISE, False))],
    }
    if chosen.part is not None:
        print("\n".join(parts[chosen.part]()))
        return
    lines = [
        "# Rules instead of surrogates",
        "",
        f"Data sets: {', '.join(REPORTED)}; standardized, at most {MOST_ROWS} rows; three settings each.",
    ]
    found = {
        "Agreement with the labels": parts["agreement"](),
        "Faithfulness": parts["faithfulness"](),
        "Faithfulness without scaling": parts["unscaled"](),
        "Cost": parts["cost"](),
    }
    for title, part in found.items():
        lines += ["", f"## {title}", "", *part]
    write("neighbors", "python -m benchmarks.neighbors", lines)


if __name__ == "__main__":
    main()
