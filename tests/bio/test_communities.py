"""Communities found by Leiden and Louvain are explained by the votes of neighbors in the graph."""

from __future__ import annotations

import random
from typing import Any

import anndata
import igraph
import leidenalg
import numpy as np
import pytest
import scanpy as sc
from numpy.typing import NDArray
from sklearn.datasets import load_digits, load_wine
from sklearn.preprocessing import StandardScaler

import whycluster as wc

Array = NDArray[Any]
pytestmark = pytest.mark.filterwarnings("ignore:In the future, the default backend for leiden:FutureWarning")
DATA = {
    "wine": StandardScaler().fit_transform(load_wine().data),
    "digits": load_digits().data[:500],
}


@pytest.fixture(params=DATA, scope="module")
def cells(request: pytest.FixtureRequest) -> anndata.AnnData:
    found = anndata.AnnData(DATA[request.param].copy())
    sc.pp.neighbors(found, use_rep="X")
    return found


def agreement(cells: anndata.AnnData, labels: Any, **options: Any) -> Any:
    graph = wc.Graph(cells.obsp["connectivities"], **options)
    network = wc.neuralize(labels, graph=graph, rows=cells.X)
    exp = network.explain(cells.X, target=np.asarray(labels))
    np.testing.assert_allclose(exp.relevance.sum(axis=1), exp.evidence, atol=1e-10)
    return network.agreement


@pytest.mark.parametrize("resolution", [0.5, 1.0])
def test_leiden_to_convergence(cells: anndata.AnnData, resolution: float) -> None:
    sc.tl.leiden(cells, resolution=resolution, flavor="leidenalg")  # scanpy iterates until it converges
    for options in ({"resolution": resolution, "quality": "modularity"}, {}):
        found = agreement(cells, cells.obs["leiden"], **options)
        assert found.share == 1.0


def test_the_constant_potts_model(cells: anndata.AnnData) -> None:
    partition = leidenalg.CPMVertexPartition
    sc.tl.leiden(cells, resolution=0.02, flavor="leidenalg", partition_type=partition, key_added="cpm")
    for options in ({"resolution": 0.02, "quality": "cpm"}, {}):
        assert agreement(cells, cells.obs["cpm"], **options).share == 1.0


@pytest.mark.filterwarnings("ignore::whycluster.AgreementWarning")  # below 0.99, it warns
def test_few_iterations_and_louvain(cells: anndata.AnnData) -> None:
    """They stop before no single move is better, so some rows differ."""
    sc.tl.leiden(cells, flavor="igraph", n_iterations=2, directed=False, key_added="short")
    assert agreement(cells, cells.obs["short"], resolution=1.0).share >= 0.97
    graph = igraph.Graph.Weighted_Adjacency(cells.obsp["connectivities"], mode="max")
    random.seed(0)  # igraph draws from it
    louvain = np.array(graph.community_multilevel("weight").membership)
    assert agreement(cells, louvain, resolution=1.0).share >= 0.95


@pytest.fixture(scope="module")
def expressed() -> anndata.AnnData:
    """Cells of three kinds with markers, their components, neighbors and Leiden groups."""
    rng = np.random.default_rng(0)
    rate = np.full((300, 40), 0.8)
    rate[:100, :3] = rate[100:200, 3:6] = rate[200:, 6:9] = 6.0
    found = anndata.AnnData(rng.poisson(rate).astype("float32"))
    sc.pp.log1p(found)
    sc.pp.pca(found, n_comps=15)
    sc.pp.neighbors(found, n_pcs=10)
    sc.tl.leiden(found, resolution=0.6, flavor="leidenalg")
    return found


def test_genes_by_the_votes_of_neighbors(expressed: anndata.AnnData) -> None:
    found = wc.explain_anndata(expressed, graph="connectivities", copy=True, output="layer")
    entry = found.uns["why"]
    assert "fidelity" not in entry
    assert entry["agreement"]["share"] == 1.0
    assert entry["params"]["graph"] == "connectivities"
    assert entry["params"]["n_fitted"] == 300
    np.testing.assert_allclose(found.layers["why"].sum(axis=1), found.obs["why_evidence"], atol=1e-4)
    assert (found.obs["why_evidence"] >= 0).all()
    markers = {f"{i}" for i in range(9)}
    for group in expressed.obs["leiden"].cat.categories:
        assert set(entry["names"][group][:3]) <= markers
    few = wc.explain_anndata(expressed, graph="connectivities", cells=[3, 150, 299])
    assert few.agreement is not None
    assert few.fidelity is None
    np.testing.assert_allclose(few.relevance, found.layers["why"][[3, 150, 299]], atol=1e-4)
    # the same energies as without genes, given the same scores
    plain = wc.neuralize(
        expressed.obs["leiden"],
        graph=wc.Graph(expressed.obsp["connectivities"], 0.6),
        rows=np.ascontiguousarray(expressed.obsm["X_pca"][:, :10], dtype=float),
    ).explain(np.asarray(expressed.obsm["X_pca"][:, :10], dtype=float))
    np.testing.assert_allclose(found.obs["why_evidence"], plain.evidence, atol=1e-4)


def test_graphs_that_cannot_be_used(expressed: anndata.AnnData) -> None:
    with pytest.raises(wc.InvalidInputError) as error:
        wc.explain_anndata(expressed, graph="conectivities")
    assert str(error.value) == (
        "explain_anndata: graph must be a key of adata.obsp, such as 'connectivities', or None; got "
        "'conectivities'. Did you mean 'connectivities'?"
    )
    with pytest.raises(wc.InvalidInputError, match="graph requires scores with loadings"):
        wc.explain_anndata(expressed, graph="connectivities", use_rep=None)


@pytest.mark.filterwarnings("ignore::whycluster.FidelityWarning")
def test_groups_that_are_no_communities(expressed: anndata.AnnData) -> None:
    cells = expressed.copy()
    cells.obs["half"] = np.where(np.arange(300) % 2 == 0, "even", "odd")
    with pytest.warns(wc.AgreementWarning, match="less than 90%, so the labels are explained through a"):
        wc.explain_anndata(cells, "half", graph="connectivities")
    assert "fidelity" in cells.uns["why"]
