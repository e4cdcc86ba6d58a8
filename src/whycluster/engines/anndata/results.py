"""The results of `explain_anndata` per cell and per group, and where they are written."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from whycluster.core.arrays import Codes, Floats
from whycluster.core.errors import InvalidInputError
from whycluster.data.arrays import strongest
from whycluster.data.groups import membership
from whycluster.data.table import Table
from whycluster.engines.anndata.gene_model import GeneModel
from whycluster.engines.anndata.parts import WHERE, CellGroups, CellRows
from whycluster.explanations.explanation import Explanation


@dataclass(frozen=True)
class CellResults:
    """The results for each cell, and the mean relevance of each group."""

    evidence: NDArray[Any]  # (n,)
    competitor: Codes  # (n,)
    means: Floats  # (K, D) the mean relevance
    cells: dict[str, NDArray[Any]]  # the arrays to write to obsm or layers, by name
    rule: str
    beta: float | None

    @classmethod
    def of(
        cls,
        explained: Iterable[tuple[CellRows, Explanation]],
        model: GeneModel,
        groups: CellGroups,
        cells: dict[str, NDArray[Any]],
    ) -> CellResults:
        """Collect the explanations of all cells; their relevance is written to the arrays in ``cells``."""
        table, n_groups = model.table, len(groups.labels)
        evidence = np.empty(table.n_rows, table.dtype)
        competitor = np.empty(table.n_rows, np.intp)
        sums, count = np.zeros((n_groups, table.n_features)), np.zeros((n_groups, 1))
        rule, beta = "", None
        for rows, exp in explained:
            rule, beta = exp.rule, exp.beta
            evidence[rows], competitor[rows] = exp.evidence, exp.competitor_codes
            own = groups.codes[rows]
            members = membership(own, n_groups, (exp.cluster_codes == own) & (exp.evidence > 0))
            sums += members.T @ exp.relevance.astype(np.float64)
            count += np.asarray(members.sum(axis=0)).reshape(-1, 1)
            _store(cells, rows, exp.relevance, model.columns)
        means = np.divide(sums, count, out=np.full_like(sums, np.nan), where=count > 0)
        return cls(evidence, competitor, means, cells, rule, beta)


def allocate(table: Table, output: str, n_top: int, n_vars: int) -> dict[str, NDArray[Any]]:
    """Return empty arrays for the relevance of all cells."""
    shape = table.n_rows, min(n_top, table.n_features)
    if output == "top":
        return {"genes": np.empty(shape, np.int32), "relevance": np.empty(shape, np.float32)}
    return {"layer": np.zeros((table.n_rows, n_vars), np.float32)} if output == "layer" else {}


def _store(cells: dict[str, NDArray[Any]], rows: CellRows, relevance: NDArray[Any], columns: Codes) -> None:
    """Store ``relevance``, (b, D), the relevance of some cells."""
    if "layer" in cells:
        cells["layer"][rows, columns] = relevance
    if "genes" in cells:
        first = strongest(relevance, cells["genes"].shape[1])
        cells["genes"][rows] = columns[first]
        cells["relevance"][rows] = np.take_along_axis(relevance, first, axis=1)


def uns_entry(
    found: CellResults, model: GeneModel, groups: CellGroups, n_genes: int, params: dict[str, Any]
) -> dict[str, Any]:
    """Return the entry of uns: each group's strongest genes in scanpy's format, parameters and fidelity."""
    known = np.nan_to_num(found.means, nan=-np.inf)
    order = np.argsort(-known, axis=1, kind="stable")[:, :n_genes]
    genes = np.asarray(model.table.feature_names, dtype=object)
    scores, inside, outside = (
        np.take_along_axis(values, order, axis=1) for values in (found.means, model.inside, model.outside)
    )
    unknown = np.isnan(scores)  # groups without cells from which to rank genes
    scores_used = {} if model.rep is None else {"n_pcs": model.fitted_to.n_features}
    return {
        "params": params
        | {
            "reference": "rest",
            "method": "whycluster",
            "use_raw": False,
            "use_rep": model.rep or "X",
            "n_fitted": model.n_fitted,
            "rule": found.rule,
            "beta": float(found.beta or 0.0),
        }
        | scores_used,
        "groups": np.array(groups.names, dtype=object),
        "names": _by_group(groups.names, np.where(unknown, "", genes[order]), "O"),
        "scores": _by_group(groups.names, scores, "f8"),
        "mean_inside": _by_group(groups.names, np.where(unknown, np.nan, inside), "f8"),
        "mean_outside": _by_group(groups.names, np.where(unknown, np.nan, outside), "f8"),
    } | _match(model)


def _match(model: GeneModel) -> dict[str, Any]:
    """Return how well the model matches the groups: fidelity of a surrogate, or agreement of votes."""
    if model.agreement is not None:
        found = model.agreement
        shares = {"share": found.share, "n_ties": found.n_ties, "share_per_group": found.share_per_cluster}
        return {"agreement": shares}
    fidelity = model.fidelity
    assert fidelity is not None
    return {
        "fidelity": {
            "in_sample": fidelity.in_sample,
            "cross_validated": fidelity.cross_validated,
            "in_sample_per_group": fidelity.in_sample_per_cluster,
            "cross_validated_per_group": fidelity.cross_validated_per_cluster,
        }
    }


def _by_group(names: list[str], values: NDArray[Any], kind: str) -> NDArray[Any]:
    """Return a structured array, (k,), with one field per group, from ``values``, (K, k)."""
    result = np.empty(values.shape[1], dtype=[(name, kind) for name in names])
    for name, of_group in zip(names, values, strict=True):
        result[name] = of_group
    return result


def _places(key: str) -> list[tuple[str, str]]:
    """Return all places where results may be written, as (attribute, name)."""
    obs = [("obs", f"{key}_evidence"), ("obs", f"{key}_competitor")]
    cells = [("obsm", f"{key}_genes"), ("obsm", f"{key}_relevance"), ("layers", key)]
    return [*obs, *cells, ("varm", key), ("uns", key)]


def check_apart(key: str, groups: str, layer: str | None, rep: str | None) -> None:
    """Raise an error if results would replace the data they are computed from, even with ``overwrite``."""
    if not isinstance(key, str) or key in ("", ".", "..") or "/" in key or "\0" in key:
        raise InvalidInputError(
            f"{WHERE}: key_added must be a valid key in a file: not empty, not '.' or '..', and without "
            f"slashes or NULs; got {key!r}. Choose another name."
        )
    if ("obs", groups) in _places(key):
        raise InvalidInputError(
            f"{WHERE}: key_added must not replace the groups; {key!r} would replace adata.obs[{groups!r}]. "
            "Choose another name."
        )
    if key in (layer, rep, "PCs"):
        raise InvalidInputError(
            f"{WHERE}: key_added must not be the name of data that the results are computed from; got "
            f"{key!r}. Choose another name."
        )


def check_free(adata: Any, key: str) -> None:
    """Raise an error if results with this name already exist."""
    taken = [f"adata.{part}[{name!r}]" for part, name in _places(key) if name in getattr(adata, part)]
    if taken:
        raise InvalidInputError(
            f"{WHERE}: key_added must be a new name; results already exist in {', '.join(taken)}. Choose "
            "another name, or pass overwrite=True."
        )


def write_results(
    adata: Any, key: str, found: CellResults, model: GeneModel, groups: list[Any], entry: dict[str, Any]
) -> None:
    """Write all results into the AnnData object, after removing the results of an earlier call."""
    import pandas as pd  # a dependency of anndata

    competitor = pd.Categorical.from_codes(found.competitor, pd.Index(groups))
    for part, name in _places(key):
        if name in getattr(adata, part):
            del getattr(adata, part)[name]
    adata.obs[f"{key}_evidence"] = found.evidence
    adata.obs[f"{key}_competitor"] = competitor
    relevance = np.zeros((adata.n_vars, len(groups)))
    relevance[model.columns] = found.means.T
    adata.varm[key] = relevance
    adata.uns[key] = entry
    if "layer" in found.cells:
        adata.layers[key] = found.cells["layer"]
    for name in found.cells.keys() - {"layer"}:
        adata.obsm[f"{key}_{name}"] = found.cells[name]
