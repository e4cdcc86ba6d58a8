"""Communities of a graph by the votes of neighbors: agreement with Leiden and Louvain, and faithfulness.

It runs in the environment for single cells: ``.venv-bio/bin/python -m benchmarks.communities``.
"""

from __future__ import annotations

import random
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import anndata
import igraph
import leidenalg
import networkx
import numpy as np
import scanpy

import whycluster as wc
from benchmarks.datasets import parser
from benchmarks.measure import write
from benchmarks.rule_areas import MOST_ROWS, REPORTED, Array, Run, faithfulness, rows_of

RESOLUTIONS = (0.5, 1.0, 2.0)
CPM_RESOLUTIONS = (0.005, 0.02, 0.05)
CONVERGED = "Leiden to convergence (scanpy with leidenalg)"


def cells_of(X: Array) -> Any:
    """Return rows with the graph of their neighbors that scanpy makes by default."""
    cells = anndata.AnnData(X.copy())
    scanpy.pp.neighbors(cells, use_rep="X")
    return cells


def clusterings(cells: Any) -> Iterator[tuple[str, Array, float, str]]:
    """Yield a name, labels, the resolution and the quality, for three settings of each algorithm."""

    def leiden(**options: Any) -> Array:
        scanpy.tl.leiden(cells, key_added="found", **options)
        return np.asarray(cells.obs["found"].astype(int))

    weights = cells.obsp["connectivities"]
    graph = igraph.Graph.Weighted_Adjacency(weights, mode="max")
    for resolution in RESOLUTIONS:
        yield CONVERGED, leiden(resolution=resolution, flavor="leidenalg"), resolution, "modularity"
        for name, n_iterations in (("2 iterations", 2), ("to convergence", -1)):
            short = leiden(resolution=resolution, flavor="igraph", n_iterations=n_iterations, directed=False)
            yield f"Leiden, {name} (scanpy with igraph)", short, resolution, "modularity"
        short = leiden(resolution=resolution, flavor="leidenalg", n_iterations=2)
        yield "Leiden, 2 iterations (scanpy with leidenalg)", short, resolution, "modularity"
        random.seed(0)  # igraph draws from it
        found = np.array(graph.community_multilevel("weight", resolution=resolution).membership)
        yield "Louvain (igraph)", found, resolution, "modularity"
        groups = networkx.community.louvain_communities(
            networkx.from_scipy_sparse_array(weights), resolution=resolution, seed=0
        )
        found = np.empty(len(cells), dtype=int)
        for k, group in enumerate(groups):
            found[list(group)] = k
        yield "Louvain (networkx)", found, resolution, "modularity"
    for resolution in CPM_RESOLUTIONS:
        potts = leidenalg.CPMVertexPartition
        labels = leiden(resolution=resolution, flavor="leidenalg", partition_type=potts)
        yield "Leiden to convergence, constant Potts model", labels, resolution, "cpm"


def agreement(folder: Path) -> tuple[list[str], list[Run]]:
    """Return a table of the agreement with the labels, and the runs of Leiden to convergence."""
    found: dict[str, list[tuple[int, int, int, float, float]]] = {}
    kept = []
    for name in REPORTED:
        X = rows_of(name, folder)
        cells = cells_of(X)
        for family, labels, resolution, quality in clusterings(cells):
            if labels.max() == 0:
                continue
            graph = wc.Graph(cells.obsp["connectivities"], resolution, quality)
            network = wc.neuralize(labels, graph=graph, rows=X)
            unknown = wc.neuralize(labels, graph=graph.weights, rows=X)
            fitted = network.agreement
            assert fitted is not None
            assert unknown.agreement is not None
            n, differ = len(X) - fitted.n_ties, len(fitted.differing)
            run = (n, differ, fitted.n_ties, fitted.share, unknown.agreement.share)
            found.setdefault(family, []).append(run)
            if family == CONVERGED:
                kept.append(Run(name, "Leiden to convergence", X, network, labels))
    lines = [
        "| labels of | runs | rows | differ | ties, not counted | agreement | lowest of a run "
        "| lowest, resolution not passed |",
        "|---|---:|---:|---:|---:|---:|---:|---:|",
    ]
    for family, runs in found.items():
        n, differ, ties = (int(sum(run[i] for run in runs)) for i in range(3))
        least, guessed = (min(run[i] for run in runs) for i in (3, 4))
        lines.append(
            f"| {family} | {len(runs)} | {n:,} | {differ} | {ties} | {1 - differ / n:.4f} | {least:.4f} | "
            f"{guessed:.4f} |"
        )
    return lines, kept


def main() -> None:
    """Measure everything and write results/communities.md."""
    warnings.simplefilter("ignore")  # of surrogates and of scanpy
    folder = parser(__doc__).parse_args().data
    agrees, runs = agreement(folder)
    lines = [
        "# Communities by the votes of neighbors",
        "",
        f"Data sets: {', '.join(REPORTED)};",
        f"standardized, at most {MOST_ROWS} rows. The graph is scanpy's, of 15 neighbors. The resolutions",
        f"are {', '.join(map(str, RESOLUTIONS))}, and for the constant Potts model",
        f"{', '.join(map(str, CPM_RESOLUTIONS))}. Runs with one community are left out. By default, scanpy",
        "runs leidenalg to convergence; it announces 2 iterations of igraph as its next default.",
        "",
        "## Agreement with the labels",
        "",
        *agrees,
        "",
        "## Faithfulness",
        "",
        *faithfulness(runs),
    ]
    write("communities", ".venv-bio/bin/python -m benchmarks.communities", lines)


if __name__ == "__main__":
    main()
