"""`explain_anndata`: the results for groups of cells, and where they are written."""

from __future__ import annotations

import re
import tracemalloc
from pathlib import Path
from typing import Any

import anndata
import numpy as np
import pandas as pd
import pytest
import scanpy as sc
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.decomposition import PCA
from sklearn.pipeline import make_pipeline

import whycluster as wc
from tests.queries import FOR_ALL_ROWS, INVALID
from tests.reference import pipeline as reference
from whycluster.clustering.kernel_fit import fit_kernel

MARKERS = {"T": ["CD3D", "CD3E"], "B": ["MS4A1", "CD79A"], "Mono/DC": ["LYZ", "CD14"]}
N_CELLS, N_GENES = 240, 40


def counts(seed: int = 0) -> Any:
    """Return sparse counts of three kinds of cells; each kind has two marker genes."""
    rng = np.random.default_rng(seed)
    genes = [gene for markers in MARKERS.values() for gene in markers]
    genes += [f"G{i}" for i in range(N_GENES - len(genes))]
    kind = rng.choice(list(MARKERS), size=N_CELLS)
    rate = np.full((N_CELLS, N_GENES), 0.8)
    for name, markers in MARKERS.items():
        rate[np.ix_(kind == name, [genes.index(gene) for gene in markers])] = 15.0
    return anndata.AnnData(
        sp.csr_matrix(rng.poisson(rate).astype(np.float32)),
        obs=pd.DataFrame({"kind": pd.Categorical(kind)}, index=[f"cell{i}" for i in range(N_CELLS)]),
        var=pd.DataFrame(index=genes),
    )


def prepared(seed: int = 0) -> Any:
    """Return the cells after the usual steps: normalization, logarithms, PCA, neighbors, Leiden."""
    adata = counts(seed)
    sc.pp.normalize_total(adata, target_sum=100.0)
    sc.pp.log1p(adata)
    sc.pp.pca(adata, n_comps=12)
    sc.pp.neighbors(adata, n_neighbors=12, n_pcs=6)
    sc.tl.leiden(adata, resolution=0.3, flavor="igraph", n_iterations=2, directed=False)
    return adata


@pytest.fixture(scope="module")
def ready() -> Any:
    return prepared()


@pytest.fixture
def cells(ready: Any) -> Any:
    return ready.copy()


def layer_of(adata: Any, **options: Any) -> Any:
    """Return the relevance of all genes for all cells."""
    return wc.explain_anndata(adata, output="layer", copy=True, **options).layers["why"]


# Results


def test_leiden_clusters_are_explained_by_their_markers(cells: Any) -> None:
    assert wc.explain_anndata(cells) is None
    found = cells.uns["why"]
    assert found["fidelity"]["cross_validated"] > 0.97
    assert found["groups"].tolist() == cells.obs["leiden"].cat.categories.tolist()
    for group in found["groups"]:
        mine = cells.obs["leiden"] == group
        kind = cells.obs["kind"][mine].mode()[0]
        names = pd.DataFrame(found["names"])[group].tolist()
        assert set(names[:2]) == set(MARKERS[kind])
        assert (found["mean_inside"][group][:2] > found["mean_outside"][group][:2]).all()
        gene = cells.var_names.get_loc(names[0])
        column = cells.X[:, [gene]].toarray().ravel()
        assert found["mean_inside"][group][0] == pytest.approx(column[mine].mean(), rel=1e-5)
        assert found["mean_outside"][group][0] == pytest.approx(column[~mine].mean(), rel=1e-5)
        assert found["scores"][group][0] == cells.varm["why"][gene, found["groups"].tolist().index(group)]
        top = cells.var_names[cells.obsm["why_genes"][mine][:, :6].ravel()]
        assert set(MARKERS[kind]) <= set(top)


def test_results_have_the_format_of_rank_genes_groups(cells: Any) -> None:
    sc.tl.rank_genes_groups(cells, "leiden", method="t-test")
    wc.explain_anndata(cells, n_genes=5)
    theirs, ours = cells.uns["rank_genes_groups"], cells.uns["why"]
    assert ours["names"].dtype == theirs["names"].dtype
    assert ours["scores"].dtype.names == theirs["scores"].dtype.names
    assert len(ours["names"]) == 5
    axes = sc.pl.rank_genes_groups(cells, key="why", n_genes=5, show=False)
    assert len(axes) == len(ours["groups"])


def test_a_group_that_is_never_predicted_has_no_genes(cells: Any, tmp_path: Path) -> None:
    cells.obs["lone"] = pd.Categorical(np.where(np.arange(N_CELLS) == 0, "one", cells.obs["kind"]))
    wc.explain_anndata(cells, "lone", n_genes=5)
    cells.write_h5ad(tmp_path / "cells.h5ad")
    for adata in (cells, anndata.read_h5ad(tmp_path / "cells.h5ad")):
        found = adata.uns["why"]
        lone = found["groups"].tolist().index("one")
        assert found["fidelity"]["in_sample_per_group"][lone] == 0
        assert np.isnan(adata.varm["why"][:, lone]).all()
        assert found["names"]["one"].tolist() == [""] * 5
        for name in ("scores", "mean_inside", "mean_outside"):
            assert np.isnan(found[name]["one"]).all()
            assert np.isfinite(found[name]["T"]).all()
        assert set(found["names"]["T"][:2]) == set(MARKERS["T"])
        axes = sc.pl.rank_genes_groups(adata, key="why", n_genes=5, show=False)
        assert [text.get_text() for text in axes[lone].texts] == [""] * 5


def test_only_the_documented_results_are_written(cells: Any) -> None:
    before = cells.copy()
    wc.explain_anndata(cells, "kind", n_top=3)
    added = {
        part: set(getattr(cells, part).keys()) - set(getattr(before, part).keys())
        for part in ("obs", "var", "obsm", "varm", "layers", "uns", "obsp", "varp")
    }
    assert added == {
        "obs": {"why_evidence", "why_competitor"},
        "var": set(),
        "obsm": {"why_genes", "why_relevance"},
        "varm": {"why"},
        "layers": set(),
        "uns": {"why"},
        "obsp": set(),
        "varp": set(),
    }
    assert cells.obsm["why_genes"].shape == cells.obsm["why_relevance"].shape == (N_CELLS, 3)
    assert (cells.X != before.X).nnz == 0
    pd.testing.assert_frame_equal(cells.obs[before.obs.columns], before.obs)
    np.testing.assert_array_equal(cells.obsm["X_pca"], before.obsm["X_pca"])
    np.testing.assert_array_equal(cells.varm["PCs"], before.varm["PCs"])
    params = cells.uns["why"]["params"]
    assert (params["groupby"], params["use_rep"], params["n_pcs"]) == ("kind", "X_pca", 6)
    assert (cells.obs["why_competitor"].cat.categories == cells.obs["kind"].cat.categories).all()
    assert (cells.obs["why_competitor"].astype(str) != cells.obs["kind"].astype(str)).all()


def test_a_copy_leaves_the_input_unchanged(cells: Any) -> None:
    copied = wc.explain_anndata(cells, copy=True)
    assert "why" in copied.uns
    assert "why" not in cells.uns
    assert list(cells.obsm) == ["X_pca"]
    assert "why_evidence" not in cells.obs


@pytest.mark.parametrize("output", ["top", "layer", "summary"])
def test_results_survive_a_file(cells: Any, output: str, tmp_path: Path) -> None:
    wc.explain_anndata(
        cells, "kind", output=output
    )  # "Mono/DC" has a slash, which keys of a file cannot have
    cells.write_h5ad(tmp_path / "cells.h5ad")
    back = anndata.read_h5ad(tmp_path / "cells.h5ad")
    pd.testing.assert_frame_equal(back.obs, cells.obs)
    for part in ("obsm", "varm", "layers"):
        assert set(getattr(back, part)) == set(getattr(cells, part))
        for name, values in getattr(cells, part).items():
            np.testing.assert_array_equal(getattr(back, part)[name], values)
    mine, theirs = cells.uns["why"], back.uns["why"]
    assert theirs["params"] == mine["params"]
    assert theirs["groups"].tolist() == mine["groups"].tolist()
    assert theirs["fidelity"].keys() == mine["fidelity"].keys()
    for name in ("names", "scores", "mean_inside", "mean_outside"):
        pd.testing.assert_frame_equal(pd.DataFrame(theirs[name]), pd.DataFrame(mine[name]))
    wc.explain_anndata(back, "kind", key_added="again")  # parameters of the neighbors are read as arrays
    np.testing.assert_allclose(back.varm["again"], cells.varm["why"], rtol=1e-6)


# Correctness


def test_relevance_through_loadings_equals_the_slow_formula(cells: Any) -> None:
    """The reference computes cell by cell and pair by pair of support vectors."""
    x, scores = cells.X.toarray().astype(float), cells.obsm["X_pca"][:, :6].astype(float)
    surrogate = wc.Surrogate().fit(scores, cells.obs["kind"])
    assert surrogate.fidelity_.in_sample == 1.0  # so the groups are the labels
    codes = cells.obs["kind"].cat.codes.tolist()
    names = cells.obs["kind"].cat.categories
    front = reference.Front(cells.varm["PCs"][:, :6].T.astype(float), x.mean(axis=0), scores.mean(axis=0))
    of = [np.flatnonzero(surrogate.support_cluster_ == name) for name in names]
    expected = reference.kernel(
        front,
        x,
        {k: surrogate.support_vectors_[units] for k, units in enumerate(of)},
        surrogate.gamma_,
        codes,
        {k: surrogate.log_weights_[units] for k, units in enumerate(of)},
        surrogate.scale_,
    )
    size = np.abs(expected).max()
    found = layer_of(cells, groups="kind", rule="min-take-most")
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5 * size)


def test_results_equal_those_of_a_pipeline(cells: Any) -> None:
    x = cells.X.toarray().astype(float)
    pipe = make_pipeline(PCA(5), wc.Surrogate()).fit(x, cells.obs["leiden"])
    cells.obsm["X_pca"], cells.varm["PCs"] = pipe[0].transform(x), pipe[0].components_.T
    cells.X = x
    wc.explain_anndata(cells, output="layer", n_pcs=5)
    exp = wc.explain(pipe, x, target=cells.obs["leiden"].to_numpy())
    np.testing.assert_allclose(cells.layers["why"], exp.relevance, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(cells.obs["why_evidence"], exp.evidence, rtol=1e-9)
    assert (cells.obs["why_competitor"].astype(str) == exp.competitor).all()
    np.testing.assert_allclose(cells.varm["why"].T, exp.summary().relevance, rtol=1e-6)
    top = exp.top(10)
    np.testing.assert_allclose(
        np.abs(wc.explain_anndata(cells, n_pcs=5, key_added="t", copy=True).obsm["t_relevance"]),
        np.abs(top.relevance),
        rtol=1e-5,
    )


def test_relevance_of_genes_sums_to_that_of_scores(cells: Any) -> None:
    """No relevance is lost between scores and genes; the residual comes from the soft minimum."""
    by_scores = wc.explain(cells.obs["kind"], cells.obsm["X_pca"][:, :6])
    by_genes = layer_of(cells, groups="kind")
    np.testing.assert_allclose(by_genes.sum(axis=1), by_scores.relevance.sum(axis=1), rtol=1e-4)
    exp = wc.explain_anndata(cells, "kind", cells=np.arange(N_CELLS))
    np.testing.assert_allclose(exp.evidence, by_scores.evidence, rtol=1e-4)
    np.testing.assert_allclose(exp.relevance.sum(axis=1) + exp.residual, exp.evidence, rtol=1e-6)


def test_without_scores_results_equal_those_of_explain(cells: Any) -> None:
    wc.explain_anndata(cells, "kind", use_rep=None, output="layer")
    exp = wc.explain(cells.obs["kind"], cells.X)
    np.testing.assert_allclose(cells.layers["why"], exp.relevance, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(cells.varm["why"].T, exp.summary().relevance, rtol=1e-5, atol=1e-8)
    np.testing.assert_allclose(cells.obs["why_evidence"], exp.evidence, rtol=1e-6)
    assert cells.uns["why"]["params"]["use_rep"] == "X"
    assert "n_pcs" not in cells.uns["why"]["params"]


@pytest.mark.parametrize("use_rep", ["X_pca", None])
@pytest.mark.parametrize(
    "options",
    [
        {"target": "B"},
        {"against": "B"},
        {"target": "T", "against": "B"},
        {"rule": "min-take-most"},
        {"rule": "joint"},
        {"rule": "sequential"},
        {"rule": "contrast"},
        {"beta": 0.3},
    ],
    ids=str,
)
def test_a_query_is_answered_as_explain_answers_it(
    options: dict[str, Any], use_rep: str | None, cells: Any
) -> None:
    x = cells.X.toarray().astype(float)
    steps = [] if use_rep is None else [PCA(5)]
    pipe = make_pipeline(*steps, wc.Surrogate()).fit(x, cells.obs["kind"])
    if steps:
        cells.obsm["X_pca"], cells.varm["PCs"] = pipe[0].transform(x), pipe[0].components_.T
    cells.X = x
    wc.explain_anndata(cells, "kind", use_rep=use_rep, output="layer", chunk_size=70, **options)
    exp = wc.explain(pipe, x, **{"target": cells.obs["kind"].to_numpy(), **options})
    np.testing.assert_allclose(cells.layers["why"], exp.relevance, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(cells.obs["why_evidence"], exp.evidence, rtol=1e-9, atol=1e-12)
    assert (cells.obs["why_competitor"].astype(str) == exp.competitor).all()
    params = cells.uns["why"]["params"]
    assert {name: params[name] for name in options} == options
    assert params["beta"] == pytest.approx(exp.beta or 0.0)


def test_group_results_of_a_query_count_the_cells_of_the_group_only(cells: Any) -> None:
    found = wc.explain_anndata(cells, "kind", target="T", output="layer", copy=True)
    mine = ((cells.obs["kind"] == "T") & (found.obs["why_evidence"] > 0)).to_numpy()
    column = found.uns["why"]["groups"].tolist().index("T")
    np.testing.assert_allclose(
        found.varm["why"][:, column], found.layers["why"][mine].mean(axis=0), rtol=1e-5, atol=1e-7
    )
    assert np.isnan(np.delete(found.varm["why"], column, axis=1)).all()


@settings(max_examples=8, deadline=None)
@given(chunk=st.integers(1, N_CELLS + 5), use_rep=st.sampled_from(["X_pca", None]))
def test_the_chunk_size_does_not_matter(ready: Any, chunk: int, use_rep: str | None) -> None:
    options: dict[str, Any] = {"use_rep": use_rep, "copy": True}
    whole, parts = (wc.explain_anndata(ready, chunk_size=size, **options) for size in (None, chunk))
    np.testing.assert_allclose(parts.obs["why_evidence"], whole.obs["why_evidence"], rtol=1e-5)
    np.testing.assert_allclose(parts.varm["why"], whole.varm["why"], rtol=1e-5, atol=1e-7)
    np.testing.assert_allclose(
        np.abs(parts.obsm["why_relevance"]), np.abs(whole.obsm["why_relevance"]), rtol=1e-4, atol=1e-6
    )


@pytest.mark.parametrize("use_rep", ["X_pca", None])
@pytest.mark.parametrize("kind", ["dense", "csc", "array", "float64", "backed", "backed dense"])
def test_expression_in_any_container(ready: Any, kind: str, use_rep: str | None, tmp_path: Path) -> None:
    expected = wc.explain_anndata(ready, use_rep=use_rep, output="layer", copy=True)
    other = ready.copy()
    values = {
        "dense": ready.X.toarray(),
        "csc": ready.X.tocsc(),
        "array": sp.csr_array(ready.X),
        "float64": ready.X.astype(np.float64),
        "backed": ready.X,
        "backed dense": ready.X.toarray(),
    }
    other.X = values[kind]
    if kind.startswith("backed"):
        other.write_h5ad(tmp_path / "cells.h5ad")
        other = anndata.read_h5ad(tmp_path / "cells.h5ad", backed="r")
        assert other.isbacked
    wc.explain_anndata(other, use_rep=use_rep, output="layer", chunk_size=50)
    np.testing.assert_allclose(other.layers["why"], expected.layers["why"], rtol=1e-3, atol=1e-4)
    np.testing.assert_allclose(other.varm["why"], expected.varm["why"], rtol=1e-4, atol=1e-6)


def test_sparse_expression_stays_sparse() -> None:
    n, d, m, used = 4000, 20_000, 10, 300
    rng = np.random.default_rng(0)
    x: Any = sp.random(n, d, density=0.01, format="csr", dtype=np.float32, random_state=0)
    kind = rng.integers(0, 3, n)
    x = sp.csr_matrix(x + sp.csr_matrix((np.full(n, 5.0, np.float32), (np.arange(n), kind)), shape=(n, d)))
    loadings = np.zeros((d, m))
    loadings[:used] = np.linalg.qr(rng.normal(size=(used, m)))[0]
    adata = anndata.AnnData(x, obs=pd.DataFrame({"kind": kind.astype(str)}, index=np.arange(n).astype(str)))
    adata.varm["PCs"], adata.obsm["X_pca"] = loadings, x @ loadings
    tracemalloc.start()
    wc.explain_anndata(adata, "kind")
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 4 * n * d / 3  # bytes: all cells by all genes, in single precision, would be 4 n d
    assert adata.obsm["why_genes"].max() < used
    assert not adata.varm["why"][used:].any()


def test_a_surrogate_of_expression_is_fitted_to_a_sample(cells: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Only if the surrogate is fitted to expression; all cells are explained."""
    monkeypatch.setattr("whycluster.engines.anndata.gene_model._DENSE", 90 * N_GENES)
    wc.explain_anndata(cells, "kind", use_rep=None, output="layer")
    assert 90 <= cells.uns["why"]["params"]["n_fitted"] <= 93
    assert (cells.obs["why_evidence"] > 0).mean() > 0.95
    for kind, markers in MARKERS.items():
        assert set(markers) <= set(cells.uns["why"]["names"][kind][:6])
    wc.explain_anndata(cells, "kind", overwrite=True)
    assert cells.uns["why"]["params"]["n_fitted"] == N_CELLS


@pytest.mark.parametrize("use_rep", ["X_pca", None])
def test_n_fitted_is_the_number_of_cells_that_the_surrogate_uses(
    use_rep: str | None, cells: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("whycluster.clustering.surrogate._MOST_ROWS", 60)
    fitted = list[int]()

    def count(rows: Any, *options: Any) -> Any:
        fitted.append(len(rows))
        return fit_kernel(rows, *options)

    monkeypatch.setattr("whycluster.clustering.surrogate.fit_kernel", count)
    wc.explain_anndata(cells, "kind", use_rep=use_rep)
    assert cells.uns["why"]["params"]["n_fitted"] == fitted[-1] == max(fitted)
    assert 60 <= fitted[-1] <= 63 < N_CELLS
    assert len(cells.obs["why_evidence"]) == N_CELLS


# Choice of scores, cells and genes


def test_the_choice_of_scores(cells: Any) -> None:
    def choice(adata: Any, **options: Any) -> tuple[str, int | None]:
        params = wc.explain_anndata(adata, "kind", copy=True, **options).uns["why"]["params"]
        return params["use_rep"], params.get("n_pcs")

    assert choice(cells) == ("X_pca", 6)  # like the neighbors
    assert choice(cells, n_pcs=4) == ("X_pca", 4)
    assert choice(cells, use_rep=None) == ("X", None)
    cells.uns["neighbors"]["params"] = {"use_rep": "X"}
    assert choice(cells) == ("X", None)
    cells.uns["neighbors"]["params"] = {"n_pcs": 0}
    assert choice(cells) == ("X", None)
    cells.uns["neighbors"]["params"] = {"use_rep": "X_other", "n_pcs": 3}  # which does not exist
    assert choice(cells) == ("X_pca", 12)
    del cells.uns["neighbors"]
    assert choice(cells) == ("X_pca", 12)
    sc.pp.pca(cells, n_comps=5, key_added="mine")
    sc.pp.neighbors(cells, use_rep="mine")
    assert choice(cells) == ("mine", 5)
    del cells.varm["PCs"], cells.varm["mine"]
    assert choice(cells) == ("X", None)


@pytest.mark.parametrize(
    "kept",
    [
        "text",
        {},
        {"params": "text"},
        {"params": {"n_pcs": "six"}},
        {"params": {"n_pcs": 6, "use_rep": "X_other"}},
        {"params": {"n_pcs": [[1], [2, 3]], "use_rep": ["X_pca", "X"]}},
        {"params": {"n_pcs": -3}},
        {"params": {"n_pcs": 2.5}},
        {"params": {"n_pcs": True}},
        {"params": {"n_pcs": np.array([]), "use_rep": None}},
    ],
)
def test_neighbors_in_an_unknown_format_are_ignored(kept: Any, cells: Any) -> None:
    cells.uns["neighbors"] = kept
    wc.explain_anndata(cells, "kind")
    params = cells.uns["why"]["params"]
    assert (params["use_rep"], params["n_pcs"]) == ("X_pca", 12)


@pytest.mark.parametrize("kind", ["csr", "csc array", "frame", "dask"])
def test_scores_and_loadings_in_any_container(kind: str, cells: Any) -> None:
    import dask.array as da

    expected = layer_of(cells, groups="kind")
    for part, name, names in ((cells.obsm, "X_pca", cells.obs_names), (cells.varm, "PCs", cells.var_names)):
        values = part[name]
        part[name] = {
            "csr": sp.csr_matrix(values),
            "csc array": sp.csc_array(values),
            "frame": pd.DataFrame(values, index=names).add_prefix("pc"),
            "dask": da.from_array(values),
        }[kind]
    np.testing.assert_array_equal(layer_of(cells, groups="kind"), expected)


def test_a_subset_of_cells_after_a_pca_of_all(cells: Any) -> None:
    """Their mean is not the one that the PCA subtracted."""
    some = cells[cells.obs["kind"] != "B"].copy()
    assert np.abs(some.obsm["X_pca"].mean(axis=0)).max() > 0.5
    by_scores = wc.explain(some.obs["kind"], some.obsm["X_pca"][:, :6])
    found = layer_of(some, groups="kind")
    np.testing.assert_allclose(found.sum(axis=1), by_scores.relevance.sum(axis=1), rtol=1e-4)


@pytest.mark.parametrize("how", ["not centered", "scaled", "in a layer", "some genes", "missing loadings"])
def test_any_kind_of_pca(how: str) -> None:
    adata = counts()
    sc.pp.log1p(adata)
    layer, used = None, np.ones(N_GENES, dtype=bool)
    if how == "not centered":
        sc.pp.pca(adata, n_comps=5, zero_center=False)
    elif how == "scaled":  # negative values too
        adata.X = adata.X.toarray()
        sc.pp.scale(adata)
        sc.pp.pca(adata, n_comps=5)
    elif how == "in a layer":
        layer = "scaled"
        adata.layers[layer] = sc.pp.scale(adata.X.toarray())
        sc.pp.pca(adata, n_comps=5, layer=layer)
    else:
        used[20:] = False
        adata.var["chosen"] = used
        sc.pp.pca(adata, n_comps=5, mask_var="chosen")
        if how == "missing loadings":  # as older versions of scanpy marked unused genes
            adata.varm["PCs"][20:] = np.nan
    wc.explain_anndata(adata, "kind", layer=layer, output="layer")
    by_scores = wc.explain(adata.obs["kind"], adata.obsm["X_pca"])
    found = adata.layers["why"]
    size = np.abs(by_scores.evidence).max()
    np.testing.assert_allclose(
        found.sum(axis=1), by_scores.relevance.sum(axis=1), rtol=1e-3, atol=1e-4 * size
    )
    assert not found[:, ~used].any()
    assert set(adata.uns["why"]["names"]["T"]) == set(adata.var_names[used])
    for kind, markers in MARKERS.items():
        assert set(markers) <= set(adata.uns["why"]["names"][kind][:6])


def test_noise_keeps_its_name(cells: Any) -> None:
    rng = np.random.default_rng(0)
    codes = cells.obs["kind"].cat.codes.astype(str).to_numpy(dtype=object)
    codes[rng.choice(N_CELLS, 30, replace=False)] = "-1"
    cells.obs["found"] = pd.Categorical(codes)
    where = r"^explain_anndata: .* see adata\.uns\['why'\]\['fidelity'\] for details\.$"
    with pytest.warns(wc.FidelityWarning, match=where):
        wc.explain_anndata(cells, "found", output="layer")
    assert cells.uns["why"]["groups"].tolist() == ["0", "1", "2", "-1"]
    assert set(cells.obs["why_competitor"]) <= {"0", "1", "2", "-1"}
    assert np.isfinite(cells.layers["why"]).all()


def test_groups_of_any_kind(cells: Any) -> None:
    cells.obs["whole"] = cells.obs["kind"].cat.codes.astype(int)
    cells.obs["text"] = cells.obs["kind"].astype(str).to_numpy(dtype=object)
    cells.obs["unused"] = cells.obs["kind"].cat.add_categories(["never"])
    tables = [
        wc.explain_anndata(cells, name, copy=True).varm["why"] for name in ("kind", "whole", "text", "unused")
    ]
    for table in tables[1:]:
        np.testing.assert_array_equal(table, tables[0])


def test_cells_by_name(cells: Any) -> None:
    names = [cells.obs_names[7], cells.obs_names[3]]
    exp = wc.explain_anndata(cells, "kind", cells=names)
    np.testing.assert_array_equal(exp.relevance, wc.explain_anndata(cells, "kind", cells=[7, 3]).relevance)
    assert names[0] in str(exp.describe(0))
    assert error_message(cells, "kind", cells=["nobody"]) == (
        "explain_anndata: cells must be names in adata.obs_names; 'nobody' is not one of them."
    )


def test_some_cells_as_an_explanation(cells: Any) -> None:
    whole = layer_of(cells)
    mask = (cells.obs["leiden"] == "1").to_numpy()
    exp = wc.explain_anndata(cells, cells=mask)
    assert isinstance(exp, wc.Explanation)
    assert "why" not in cells.uns
    assert exp.feature_names == list(cells.var_names)
    np.testing.assert_allclose(exp.relevance, whole[mask], rtol=1e-4, atol=1e-5)
    assert (exp.cluster == "1").all()
    assert "1" in exp.summary().describe()
    title = f"Row {cells.obs_names[mask][0]} (position {np.flatnonzero(mask)[0]}) is in cluster 1"
    assert exp.describe(0).startswith(title)
    view = cells[:, :]
    turned = wc.explain_anndata(view, cells=[7, 3, 7])  # nothing is written, so a view is allowed
    np.testing.assert_allclose(turned.relevance, whole[[7, 3, 7]], rtol=1e-4, atol=1e-5)


def test_a_mask_with_names_is_matched_by_name(cells: Any) -> None:
    mask = cells.obs["kind"] == "B"
    expected = wc.explain_anndata(cells, "kind", cells=mask.to_numpy())
    shuffled = mask.sample(frac=1, random_state=0)
    assert (shuffled.to_numpy() != mask.to_numpy()).any()
    more = pd.concat([shuffled, pd.Series([True, True], index=["other", "other"])])
    for one in (mask, shuffled, shuffled.astype("boolean"), more, mask.reset_index(drop=True)):
        found = wc.explain_anndata(cells, "kind", cells=one)
        np.testing.assert_array_equal(found.relevance, expected.relevance)


def test_a_mask_of_other_cells(cells: Any) -> None:
    mask = cells.obs["kind"] == "B"
    message = (
        "explain_anndata: if cells is a mask with names in its index, the index must contain every name in "
        "adata.obs_names exactly once; 'cell{}' occurs {} times. Pass cells.to_numpy() if the mask is in "
        "the order of the cells."
    )
    assert error_message(cells, "kind", cells=mask.rename({"cell7": "other"})) == message.format(7, 0)
    assert error_message(cells, "kind", cells=mask.rename({"cell9": "cell3"})) == message.format(3, 2)
    cells.obs_names = ["same"] * N_CELLS  # a mask made from these cells is still in their order
    assert len(wc.explain_anndata(cells, "kind", cells=cells.obs["kind"] == "B")) == mask.sum()


def test_another_call_removes_earlier_results(cells: Any) -> None:
    wc.explain_anndata(cells, output="layer")
    wc.explain_anndata(cells, overwrite=True)
    assert "why" not in cells.layers
    wc.explain_anndata(cells, output="summary", overwrite=True)
    assert list(cells.obsm) == ["X_pca"]
    wc.explain_anndata(cells, key_added="other")
    assert {"why", "other"} <= set(cells.uns)


def test_the_code_in_the_documentation_runs(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    page = (Path(__file__).parents[2] / "docs" / "anndata.md").read_text()
    blocks = re.findall(r"^```python\n(.*?)```", page, re.DOTALL | re.MULTILINE)
    assert len(blocks) == 7
    scope: dict[str, Any] = {}
    for block in blocks:
        exec(compile(block, "docs/anndata.md", "exec"), scope)
    assert (tmp_path / "cells.h5ad").exists()
    table = scope["relevance"]
    assert list(table.columns) == scope["adata"].obs["leiden"].cat.categories.tolist()


# Errors


def error_message(*args: Any, **options: Any) -> str:
    with pytest.raises(wc.InvalidInputError) as caught:
        wc.explain_anndata(*args, **options)
    return str(caught.value)


def test_an_object_that_is_no_anndata() -> None:
    assert error_message(np.zeros((3, 2))) == (
        "explain_anndata: adata must be an AnnData object; got ndarray. To explain the labels of any other "
        "table, use wc.explain(labels, X)."
    )


def test_invalid_groups(cells: Any) -> None:
    assert error_message(cells, "leidan") == (
        "explain_anndata: groups must be a column of adata.obs; got 'leidan'. Did you mean 'leiden'?"
    )
    assert error_message(cells, "zzz") == (
        "explain_anndata: groups must be a column of adata.obs; got 'zzz'. The names to choose from are "
        "'kind', 'leiden'."
    )
    assert error_message(cells, ["kind"]).startswith(
        "explain_anndata: groups must be a column of adata.obs; got ["
    )
    cells.obs["one"] = "a"
    assert error_message(cells, "one") == (
        "explain_anndata: adata.obs['one'] must have at least 2 groups, because a group is explained against "
        "its competitors; all cells are in 'a'."
    )
    cells.obs["gaps"] = cells.obs["kind"].where(np.arange(N_CELLS) % 100 != 5)
    assert error_message(cells, "gaps") == (
        "explain_anndata: adata.obs['gaps'] must have a group for every cell; 3 of 240 cells have none, "
        "starting with 'cell5'. Select the cells that have a group: adata[adata.obs['gaps'].notna()].copy()."
    )
    cells.obs["twice"] = [1, "1"] * (N_CELLS // 2)
    assert error_message(cells, "twice") == (
        "explain_anndata: adata.obs['twice'] must have groups with distinct names; some names differ only "
        "in type. Convert them to text: adata.obs['twice'].astype(str)."
    )


def test_missing_expression(cells: Any) -> None:
    cells.layers["counts"] = cells.X
    assert error_message(cells, layer="count") == (
        "explain_anndata: layer must be one of adata.layers, or None for adata.X; got 'count'. Did you mean "
        "'counts'?"
    )
    empty = anndata.AnnData(obs=cells.obs, var=cells.var)
    assert error_message(empty) == (
        "explain_anndata: adata.X must contain expression values; it is None. Pass the name of a layer as "
        "layer=."
    )


def test_missing_scores_and_loadings(cells: Any) -> None:
    assert error_message(cells, use_rep="X_pcs") == (
        "explain_anndata: use_rep must be a key of adata.obsm, or None to use the expression values; got "
        "'X_pcs'. Did you mean 'X_pca'?"
    )
    cells.obsm["X_scvi"] = -cells.obsm["X_pca"]  # not a small correction of them
    assert error_message(cells, use_rep="X_scvi") == (
        "explain_anndata: adata.varm['X_scvi'] must contain the loadings of adata.obsm['X_scvi'], which "
        "relate scores to genes; it is missing. Compute scores and loadings with sc.pp.pca, or pass "
        "use_rep=None to use the expression values."
    )
    assert error_message(cells, n_pcs=13) == (
        "explain_anndata: n_pcs must be at most 12, the number of columns of adata.obsm['X_pca']; got 13."
    )
    cells.varm["PCs"] = cells.varm["PCs"][:, :4]
    assert error_message(cells) == (
        "explain_anndata: adata.obsm['X_pca'] and adata.varm['PCs'] must both have one column per "
        "component; got shapes (240, 12) and (40, 4). Compute both again with sc.pp.pca."
    )


OTHER = (
    "explain_anndata: adata.X must be the data that adata.obsm['X_pca'] was computed from; multiplied by "
    "adata.varm['PCs'], it gives different scores. "
)
ADVICE = (
    "Pass the layer that the scores were computed from, with all its genes (scaled if it was scaled for the "
    "PCA), or compute the scores again with sc.pp.pca. Scores that were corrected afterward must be "
    "in adata.obsm under a separate name, in addition to those of the PCA."
)


def test_scores_of_other_data(cells: Any) -> None:
    fewer = cells[:, 3:].copy()  # the loadings of the remaining genes do not give the scores
    assert error_message(fewer) == OTHER + ADVICE
    corrected = cells.copy()
    corrected.obsm["X_pca"] += np.where(corrected.obs["kind"] == "B", 2.0, 0.0)[:, None]
    assert error_message(corrected) == OTHER + ADVICE
    cells.layers["logs"] = cells.X
    cells.X = np.expm1(cells.X.toarray())
    assert error_message(cells) == OTHER + "adata.layers['logs'] gives the right scores: pass layer='logs'."
    wc.explain_anndata(cells, layer="logs")


def test_scores_and_loadings_that_are_not_numbers(cells: Any) -> None:
    scores = pd.DataFrame(cells.obsm["X_pca"], index=cells.obs_names).add_prefix("pc")
    advice = (
        "Encode them as numbers (if they are numbers stored as objects, use astype(float)), or drop them."
    )
    cells.obsm["X_pca"] = scores.assign(pc1="x", pc2=pd.Categorical(["0"] * N_CELLS))
    assert error_message(cells) == (
        "explain_anndata: adata.obsm['X_pca'] must have only numeric or boolean columns; got 'pc1' (String), "
        f"'pc2' (Categorical). {advice}"
    )
    cells.obsm["X_pca"] = scores
    cells.varm["PCs"] = pd.DataFrame(cells.varm["PCs"], index=cells.var_names).add_prefix("pc").astype(str)
    assert error_message(cells).startswith(
        "explain_anndata: adata.varm['PCs'] must have only numeric or boolean columns; got 'pc0' (String), "
    )


def test_no_cells_or_no_genes(cells: Any) -> None:
    for nothing in (cells[:0], cells[:, :0], cells[:0].copy()):
        assert error_message(nothing) == (
            f"explain_anndata: adata must have at least one cell and one gene; got shape {nothing.shape}. "
            "Check how cells and genes were selected."
        )


def test_values_that_are_not_finite(cells: Any) -> None:
    cells.X = cells.X.toarray()
    cells.X[7, 3] = np.nan
    message = (
        "explain_anndata: adata.X must be finite; cell 7, gene 'CD79A' holds nan. Remove such cells or genes "
        "first."
    )
    assert error_message(cells) == message
    assert error_message(cells, use_rep=None) == message
    cells.X = cells.X.astype(np.float64)
    cells.X[7:200, 3] = 1e308
    assert error_message(cells, use_rep=None) == (
        "explain_anndata: adata.X must have finite sums; its values are too large to be added up. Rescale "
        "the data first."
    )
    cells.obsm["X_pca"][9, 0] = np.inf
    assert error_message(cells) == (
        "explain_anndata: adata.obsm['X_pca'] must be finite; cell 9 has NaN or infinite scores. Remove "
        "such cells first."
    )


@pytest.mark.parametrize("key", ["", "T/B", 5, ".", "..", "why\0"])
def test_names_that_a_file_cannot_store(key: Any, cells: Any) -> None:
    assert error_message(cells, key_added=key) == (
        "explain_anndata: key_added must be a valid key in a file: not empty, not '.' or '..', and without "
        f"slashes or NULs; got {key!r}. Choose another name."
    )


@pytest.mark.parametrize("groups", ["why_evidence", "why_competitor"])
def test_results_do_not_replace_the_groups(groups: str, cells: Any) -> None:
    cells.obs[groups] = cells.obs["kind"]
    assert error_message(cells, groups, overwrite=True) == (
        "explain_anndata: key_added must not replace the groups; 'why' would replace "
        f"adata.obs['{groups}']. Choose another name."
    )
    assert (cells.obs[groups] == cells.obs["kind"]).all()
    assert len(wc.explain_anndata(cells, groups, cells=[3])) == 1  # writes nothing
    wc.explain_anndata(cells, groups, key_added="other")


def test_results_do_not_replace_the_loadings(cells: Any) -> None:
    sc.pp.pca(cells, n_comps=5, key_added="mine")
    sc.pp.neighbors(cells, use_rep="mine")  # so use_rep="auto" chooses them
    before = cells.varm["mine"].copy()
    assert error_message(cells, key_added="mine", overwrite=True) == (
        "explain_anndata: key_added must not be the name of data that the results are computed from; got "
        "'mine'. Choose another name."
    )
    np.testing.assert_array_equal(cells.varm["mine"], before)


@pytest.mark.parametrize("odd", ["", ("B", 1)])
def test_groups_without_names(odd: Any, cells: Any) -> None:
    kinds = cells.obs["kind"].astype(object).tolist()
    cells.obs["odd"] = pd.Series(
        [odd if kind == "B" else kind for kind in kinds], index=cells.obs_names, dtype=object
    )
    before = list(cells.obs)
    assert "must be numbers or nonempty strings" in error_message(cells, "odd", key_added="x")
    assert list(cells.obs) == before


def test_sparse_expression_in_a_dask_array(cells: Any) -> None:
    import dask.array as da

    whole = wc.explain_anndata(cells, copy=True, overwrite=True).varm["why"]
    cells.X = da.from_array(cells.X.tocsr(), chunks=(100, -1), asarray=False)
    np.testing.assert_allclose(
        wc.explain_anndata(cells, copy=True, overwrite=True).varm["why"], whole, rtol=1e-6
    )


def test_names_that_are_taken(cells: Any) -> None:
    wc.explain_anndata(cells)
    assert error_message(cells) == (
        "explain_anndata: key_added must be a new name; results already exist in adata.obs['why_evidence'], "
        "adata.obs['why_competitor'], adata.obsm['why_genes'], adata.obsm['why_relevance'], "
        "adata.varm['why'], adata.uns['why']. Choose another name, or pass overwrite=True."
    )


def test_views_are_not_written_to(cells: Any) -> None:
    view = cells[cells.obs["kind"] != "B"]
    assert error_message(view, "kind") == (
        "explain_anndata: adata must not be a view, because results are written into it. Pass adata.copy(), "
        "or copy=True to get a copy with the results."
    )
    assert view.is_view
    copied = wc.explain_anndata(view, "kind", copy=True)
    assert copied.n_obs == view.n_obs
    assert "why" not in cells.uns


def test_files(cells: Any, tmp_path: Path) -> None:
    cells.write_h5ad(tmp_path / "cells.h5ad")
    backed = anndata.read_h5ad(tmp_path / "cells.h5ad", backed="r")
    assert error_message(backed, copy=True) == (
        "explain_anndata: adata must be in memory to be copied; it is backed by a file. Pass "
        "adata.to_memory(), or leave copy out: results then stay in memory until adata.write() is called."
    )
    cells.X = cells.X.tocsc()
    cells.write_h5ad(tmp_path / "genes.h5ad")
    backed = anndata.read_h5ad(tmp_path / "genes.h5ad", backed="r")
    assert error_message(backed) == (
        "explain_anndata: adata.X must be stored cell by cell (CSR or dense) to be read from a file; it is "
        "stored gene by gene (CSC). Pass adata.to_memory()."
    )


@pytest.fixture(scope="module")
def lettered(ready: Any) -> Any:
    """The same cells, with groups named as in ``tests/queries.py``."""
    cells = ready.copy()
    cells.obs["letter"] = cells.obs["kind"].cat.rename_categories(["a", "b", "c"])
    return cells


@pytest.mark.parametrize("some", [None, [3, 5]], ids=["all cells", "some cells"])
@pytest.mark.parametrize(("options", "message"), INVALID + FOR_ALL_ROWS, ids=str)
def test_an_invalid_query_has_the_same_message_as_elsewhere(
    options: dict[str, Any], message: str, some: Any, lettered: Any
) -> None:
    assert error_message(lettered, "letter", cells=some, **options) == f"explain_anndata: {message}"


def test_a_background(lettered: Any) -> None:
    assert error_message(lettered, "letter", background=lettered.X) == (
        "explain_anndata: background must be left out, because groups are explained through a surrogate "
        "that is fitted to all cells of adata. To explain only a few cells, pass cells."
    )
    unknown: dict[str, Any] = {"betta": 1.0}
    with pytest.raises(TypeError, match="got an unexpected keyword argument 'betta'"):
        wc.explain_anndata(lettered, "letter", **unknown)


def test_options(cells: Any) -> None:
    assert error_message(cells, output="all") == (
        "explain_anndata: output must be one of 'top', 'layer', 'summary'; got 'all'."
    )
    assert error_message(cells, n_top=0) == "explain_anndata: n_top must be an integer of at least 1; got 0."
    assert error_message(cells, n_genes=1.5) == (
        "explain_anndata: n_genes must be an integer of at least 1; got 1.5."
    )
    assert error_message(cells, chunk_size=0) == (
        "explain_anndata: chunk_size must be None or an integer of at least 1; got 0."
    )
    for wrong in ([], [240], [-1], [True, False], "cell1"):
        shape = np.asarray(wrong)
        assert error_message(cells, cells=wrong) == (
            "explain_anndata: cells must be a mask of length 240, a list of positions from 0 to 239, or a "
            "list of "
            f"names, and it must select at least one cell; got {shape.dtype} of shape {shape.shape}."
        )
    cells.var_names = ["same"] * N_GENES
    assert error_message(cells) == (
        "explain_anndata: adata.var_names must be unique; some names occur more than once. Call "
        "adata.var_names_make_unique() first."
    )
