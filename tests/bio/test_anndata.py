"""`explain` of Leiden clusters, in a separate environment because anndata needs an older pandas."""

from __future__ import annotations

from typing import Any

import anndata
import igraph
import leidenalg
import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
from sklearn.neighbors import kneighbors_graph

import whycluster as wc

MARKERS = {"T": ["CD3D", "CD3E"], "B": ["MS4A1", "CD79A"], "Mono": ["LYZ", "CD14"]}


@pytest.fixture(scope="module")
def cells() -> Any:
    """400 cells of three types: sparse log counts of 60 genes, and Leiden clusters."""
    rng = np.random.default_rng(0)
    genes = [gene for markers in MARKERS.values() for gene in markers] + [f"G{i}" for i in range(54)]
    kind = rng.choice(list(MARKERS), size=400)
    rate = np.full((400, len(genes)), 0.5)
    for name, markers in MARKERS.items():
        for gene in markers:
            rate[kind == name, genes.index(gene)] = 12.0
    counts = sp.csr_matrix(np.log1p(rng.poisson(rate)).astype(np.float32))
    adata = anndata.AnnData(
        counts,
        obs=pd.DataFrame({"kind": kind}, index=[f"cell{i}" for i in range(400)]),
        var=pd.DataFrame(index=genes),
    )
    edges = kneighbors_graph(counts, 15).nonzero()
    graph = igraph.Graph(n=400, edges=list(zip(*edges, strict=True)))
    found = leidenalg.find_partition(
        graph, leidenalg.RBConfigurationVertexPartition, resolution_parameter=0.3, seed=0
    )
    adata.obs["leiden"] = pd.Categorical([str(label) for label in found.membership])
    return adata


def test_leiden_clusters_are_explained_by_their_marker_genes(cells: Any) -> None:
    exp = wc.explain(cells.obs["leiden"], cells.X, feature_names=cells.var_names)
    assert exp.fidelity is not None
    assert exp.fidelity.cross_validated > 0.97
    assert exp.labels.tolist() == sorted(cells.obs["leiden"].unique())
    assert (exp.cluster == cells.obs["leiden"].to_numpy()).all()
    summary = exp.summary()
    for group, cluster in enumerate(summary.clusters):
        kind = cells.obs["kind"][cells.obs["leiden"] == cluster].mode()[0]
        higher = [
            g for g, d in zip(summary.feature_names, summary.direction[group], strict=True) if d == "higher"
        ]
        strongest = [summary.feature_names[i] for i in np.argsort(-summary.relevance[group])[:6]]
        assert set(MARKERS[kind]) <= set(strongest)
        assert set(MARKERS[kind]) <= set(higher)


def test_views_and_frames_of_cells(cells: Any) -> None:
    some = cells[cells.obs["leiden"] != cells.obs["leiden"].iloc[0]]
    exp = wc.explain(some.obs["leiden"], some.X)
    assert len(exp) == some.n_obs
    framed = wc.explain(some.obs["leiden"], some.to_df())
    assert list(framed.to_frame().index) == list(some.obs_names)
    assert framed.feature_names == list(cells.var_names)
