"""Scores that Harmony corrected: genes are explained through the PCA, and the correction has one line."""

from __future__ import annotations

import logging
from typing import Any

import anndata
import harmonypy
import numpy as np
import pytest
import scanpy as sc
import scipy.sparse as sp
from numpy.typing import NDArray

import whycluster as wc
from whycluster.core.energies.energy import Energy

Array = NDArray[Any]
pytestmark = pytest.mark.filterwarnings("ignore:In the future, the default backend for leiden:FutureWarning")
N = 300


@pytest.fixture(scope="module")
def cells() -> anndata.AnnData:
    """Cells of three kinds with markers, in two batches that differ in other genes."""
    rng = np.random.default_rng(0)
    kind, batch = rng.integers(0, 3, N), rng.integers(0, 2, N)
    rate = np.full((N, 60), 0.8)
    for k in range(3):
        rate[np.ix_(kind == k, range(3 * k, 3 * k + 3))] = 8.0
    rate[batch == 1, 20:40] *= 3
    found = anndata.AnnData(sp.csr_matrix(rng.poisson(rate).astype("float32")))
    found.obs["batch"], found.obs["kind"] = [f"b{b}" for b in batch], [f"k{k}" for k in kind]
    sc.pp.log1p(found)
    sc.pp.pca(found, n_comps=12)
    logging.getLogger("harmonypy").setLevel(logging.ERROR)
    corrected = np.asarray(harmonypy.run_harmony(found.obsm["X_pca"], found.obs, "batch").Z_corr)
    found.obsm["X_pca_harmony"] = corrected if len(corrected) == N else corrected.T
    sc.pp.neighbors(found, use_rep="X_pca_harmony")
    sc.tl.leiden(found, resolution=0.4, flavor="leidenalg")
    return found


@pytest.mark.parametrize("graph", [None, "connectivities"])
def test_the_groups_are_those_of_the_corrected_scores(cells: anndata.AnnData, graph: str | None) -> None:
    exp = wc.explain_anndata(cells, graph=graph, cells=range(N))
    z = np.asarray(cells.obsm["X_pca_harmony"], dtype=float)
    labels = cells.obs["leiden"]
    rule = wc.Graph(cells.obsp["connectivities"], 0.4)
    plain = (
        wc.neuralize(wc.Surrogate().fit(z, np.asarray(labels)))
        if graph is None
        else wc.neuralize(labels, graph=rule, rows=z)
    )
    expected = plain.explain(z, target=np.asarray(labels))
    np.testing.assert_allclose(exp.evidence, expected.evidence, rtol=1e-3, atol=1e-4)  # of single precision
    np.testing.assert_allclose(exp.relevance.sum(axis=1) + exp.residual, exp.evidence, rtol=1e-6, atol=1e-6)
    line = "correction (X_pca_harmony)" if graph else "correction, and no single gene"
    assert line in exp.describe(int(np.abs(exp.residual).argmax()))
    assert "genes" not in str(exp.feature_names)
    assert len(exp.feature_names) == 60


def test_the_correction_has_the_relevance_of_its_components(cells: anndata.AnnData) -> None:
    """The residual is what the split of genes and corrections gives to the corrections."""
    exp = wc.explain_anndata(cells, graph="connectivities", cells=range(N), rule="contrast")
    energy = exp.energy
    x = exp.table.inputs(0, N, energy.offset, np.empty((N, energy.n_inputs)))
    weights = np.zeros((N, energy.n_clusters))
    weights[np.arange(N), exp.competitor_codes] = 1.0
    weights[np.arange(N), exp.cluster_codes] -= 1.0
    by_input: Energy = energy.by_input
    split = np.empty((N, energy.n_inputs))
    by_input.combine(x, weights, split, np.empty((N, by_input.scratch_width)))
    np.testing.assert_allclose(split[:, :60], exp.relevance, atol=1e-5)
    np.testing.assert_allclose(split[:, 60:].sum(axis=1), exp.residual, atol=1e-5)
    assert np.abs(exp.residual).max() > 0.1


def test_results_are_written_for_genes_only(cells: anndata.AnnData) -> None:
    found = wc.explain_anndata(cells, graph="connectivities", copy=True, output="layer", chunk_size=70)
    exp = wc.explain_anndata(cells, graph="connectivities", cells=[3, 150, 299])
    assert found.layers["why"].shape == (N, 60)
    np.testing.assert_allclose(found.layers["why"][[3, 150, 299]], exp.relevance, atol=1e-5)
    assert found.uns["why"]["params"]["use_rep"] == "X_pca_harmony"
    for group, kind in cells.obs.groupby("leiden", observed=True)["kind"].agg(lambda k: k.mode()[0]).items():
        markers = {str(3 * int(kind[1]) + i) for i in range(3)}
        assert len(markers & set(found.uns["why"]["names"][group][:9])) == 3


def test_a_correction_of_nothing_changes_nothing(cells: anndata.AnnData) -> None:
    same = cells.copy()
    same.obsm["X_moved"] = same.obsm["X_pca"].copy()
    plain = wc.explain_anndata(same, use_rep="X_pca", cells=range(N))
    moved = wc.explain_anndata(same, use_rep="X_moved", cells=range(N))
    np.testing.assert_allclose(moved.relevance, plain.relevance, rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(moved.evidence, plain.evidence, rtol=1e-4, atol=1e-4)


def test_other_scores_are_no_correction(cells: anndata.AnnData) -> None:
    other = cells.copy()
    other.obsm["X_scVI"] = 50.0 * np.random.default_rng(0).normal(size=(N, 12))
    with pytest.raises(wc.InvalidInputError, match=r"adata.varm\['X_scVI'\] must contain the loadings of"):
        wc.explain_anndata(other, use_rep="X_scVI")
