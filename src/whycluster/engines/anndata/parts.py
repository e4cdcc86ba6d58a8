"""The contents of an AnnData object: reads and checks groups, expression, scores and loadings."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from whycluster.core.arrays import Codes, Floats
from whycluster.core.errors import InvalidInputError
from whycluster.data.arrays import as_array_or_empty, evenly_spaced, is_dask, is_real, is_sparse
from whycluster.data.labels import read_labels
from whycluster.data.missing import is_missing
from whycluster.data.opening import open_table
from whycluster.data.table import Table
from whycluster.data.validation import check_integer
from whycluster.models.adapters.graph import Graph, labels_on_graph
from whycluster.models.adapters.incomplete import OnlyLabels

WHERE = "explain_anndata"
_PCA = "X_pca"
_ATTRIBUTES = ("X", "layers", "obs", "var_names", "obsm", "varm", "uns")
_CHECKED = 200  # the number of cells for which loadings are compared with scores
_OWN, _LARGEST = 0.1, 0.01  # tolerances, relative to the spread of a score and to the largest spread:
# approximate solvers deviate by less, different data by more


def check_container(adata: Any, *, writes: bool, copy: bool) -> None:
    """Raise an error unless ``adata`` is like an AnnData object and can be written to if necessary."""
    if not all(hasattr(adata, part) for part in _ATTRIBUTES):
        raise InvalidInputError(
            f"{WHERE}: adata must be an AnnData object; got {type(adata).__name__}. To explain the labels "
            "of any other table, use wc.explain(labels, X)."
        )
    if 0 in adata.shape:
        raise InvalidInputError(
            f"{WHERE}: adata must have at least one cell and one gene; got shape {adata.shape}. Check how "
            "cells and genes were selected."
        )
    if writes and not copy and adata.is_view:
        raise InvalidInputError(
            f"{WHERE}: adata must not be a view, because results are written into it. Pass adata.copy(), or "
            "copy=True to get a copy with the results."
        )
    if writes and copy and adata.isbacked:
        raise InvalidInputError(
            f"{WHERE}: adata must be in memory to be copied; it is backed by a file. Pass adata.to_memory(), "
            "or leave copy out: results then stay in memory until adata.write() is called."
        )
    if not adata.var_names.is_unique:
        raise InvalidInputError(
            f"{WHERE}: adata.var_names must be unique; some names occur more than once. Call "
            "adata.var_names_make_unique() first."
        )


CellRows: TypeAlias = slice | Codes
"""Some cells of an AnnData object, which form one part."""
ALL: CellRows = slice(None)


class CellGroups(NamedTuple):
    """The groups in a column of obs."""

    column: Any  # (n,) the column
    codes: Codes  # (n,)
    labels: NDArray[Any]  # (K,) the labels in the surrogate, which treats -1 as noise
    originals: list[Any]  # (K,) the labels in the column

    @property
    def names(self) -> list[str]:
        """(K,) the groups as text."""
        return [str(name) for name in self.originals]


def read_groups(adata: Any, groups: Any) -> CellGroups:
    """Read a column of obs; every cell must have a group, and there must be two or more groups."""
    if not isinstance(groups, str) or groups not in adata.obs:
        raise InvalidInputError(
            f"{WHERE}: groups must be a column of adata.obs; got {groups!r}. {_closest(groups, adata.obs)}"
        )
    column, of = adata.obs[groups], f"adata.obs[{groups!r}]"
    missing = np.array([is_missing(value) for value in column], dtype=bool)
    if missing.any():
        raise InvalidInputError(
            f"{WHERE}: {of} must have a group for every cell; {missing.sum()} of {len(column)} cells have "
            f"none, starting with {adata.obs_names[missing.argmax()]!r}. Select the cells that have a "
            f"group: adata[{of}.notna()].copy()."
        )
    codes, labels = read_labels(column, len(column), WHERE)
    if len(labels) < 2:
        raise InvalidInputError(
            f"{WHERE}: {of} must have at least 2 groups, because a group is explained against its "
            f"competitors; all cells are in {str(column.iloc[0])!r}."
        )
    first = np.unique(codes, return_index=True)[1]
    found = CellGroups(column, codes, labels, column.iloc[first].tolist())
    if "" in found.names or any(isinstance(name, tuple) for name in found.originals):
        raise InvalidInputError(
            f"{WHERE}: the group names in {of} must be numbers or nonempty strings. Rename all other groups."
        )
    if len(set(found.names)) < len(labels):
        raise InvalidInputError(
            f"{WHERE}: {of} must have groups with distinct names; some names differ only in type. Convert "
            f"them to text: {of}.astype(str)."
        )
    return found


def _closest(name: Any, known: Iterable[Any]) -> str:
    """Return a sentence that suggests the most similar names, or lists the known names if none is similar."""
    names = [str(other) for other in known]
    near = difflib.get_close_matches(str(name), names, n=3, cutoff=0.5)
    if near:
        return f"Did you mean {' or '.join(map(repr, near))}?"
    if not names:
        return "There are no names to choose from."
    return f"The names to choose from are {', '.join(map(repr, names[:10]))}{', ...' * (len(names) > 10)}."


@dataclass(frozen=True)
class _ExpressionRows:
    """The expression of some genes, in memory or in a file, which a table can use as its container."""

    values: Any
    columns: Codes | None

    def __getitem__(self, rows: slice | Codes) -> Any:
        if isinstance(rows, slice):
            return self._narrow(self.values[rows])
        known, back = np.unique(rows, return_inverse=True)  # files are read in order, and each row only once
        return self._narrow(self.values[known])[back]

    def _narrow(self, block: Any) -> Any:
        block = block.compute() if is_dask(block) else block
        block = block.tocsr() if is_sparse(block) else np.asarray(block)
        return block if self.columns is None else block[:, self.columns]


def open_expression(adata: Any, layer: str | None, columns: Codes | None = None) -> Table:
    """Return the expression of some genes in all cells, as a table that is read in batches."""
    values, name = _expression(adata, layer)
    if is_sparse(values):
        values = values.tocsr()
    elif getattr(values, "format", None) == "csc":
        raise InvalidInputError(
            f"{WHERE}: {name} must be stored cell by cell (CSR or dense) to be read from a file; it is "
            "stored gene by gene (CSC). Pass adata.to_memory()."
        )
    rows = _ExpressionRows(values, columns)
    names = adata.var_names if columns is None else adata.var_names[columns]
    table = open_table(rows[:1], where=WHERE, name=name, feature_names=names.tolist())
    return replace(table, native=rows, n_rows=adata.n_obs)


def select(table: Table, cells: CellRows) -> Table:
    """Return some cells of a table in memory, or the table itself if all cells are selected."""
    if isinstance(cells, slice) and cells == ALL:
        return table
    native = table.native[cells]
    return replace(table, native=native, n_rows=native.shape[0])


def _expression(adata: Any, layer: str | None) -> tuple[Any, str]:
    """Return the container of the expression, and its name."""
    if layer is not None and layer not in adata.layers:
        raise InvalidInputError(
            f"{WHERE}: layer must be one of adata.layers, or None for adata.X; got {layer!r}. "
            f"{_closest(layer, adata.layers)}"
        )
    values, name = (
        (adata.X, "adata.X") if layer is None else (adata.layers[layer], f"adata.layers[{layer!r}]")
    )
    if values is None:
        raise InvalidInputError(
            f"{WHERE}: adata.X must contain expression values; it is None. Pass the name of a layer as "
            "layer=."
        )
    return values, name


def chosen_rep(adata: Any, use_rep: Any, n_pcs: int | None) -> str | None:
    """Return the name of the scores that the grouping was based on, or None if it was based on expression."""
    if use_rep != "auto":
        return None if use_rep is None else str(use_rep)
    seen = _neighbors(adata)
    if n_pcs is None and (seen.get("use_rep") == "X" or seen.get("n_pcs") == 0):
        return None
    candidates = [str(seen.get("use_rep")), "X_pca"]
    known = (rep for rep in candidates if rep in adata.obsm)
    return next((rep for rep in known if _loadings(rep) in adata.varm or is_corrected(adata, rep)), None)


def is_corrected(adata: Any, rep: str) -> bool:
    """Return whether scores without loadings are the PCA scores plus a correction that varies less."""
    if rep == _PCA or rep in adata.varm or _PCA not in adata.obsm or _loadings(_PCA) not in adata.varm:
        return False
    found, before = (_numbers(adata.obsm[name], f"adata.obsm[{name!r}]") for name in (rep, _PCA))
    return found.shape == before.shape and bool((found - before).var(axis=0).sum() < before.var(axis=0).sum())


def _neighbors(adata: Any) -> dict[str, Any]:
    """Return the parameters that the neighbors were computed with, if scanpy stored them as usual."""
    params: Any = adata.uns
    for name in ("neighbors", "params"):
        params = params.get(name) if isinstance(params, Mapping) else None
    if not isinstance(params, Mapping):
        return {}
    rep, n_pcs = _only(params.get("use_rep")), _only(params.get("n_pcs"))
    whole = is_real(n_pcs) and n_pcs >= 0 and n_pcs % 1 == 0
    return ({"use_rep": rep} if isinstance(rep, str) else {}) | ({"n_pcs": int(n_pcs)} if whole else {})


def _only(value: Any) -> Any:
    """Return a single value, even if it is stored as an array; return None if there is not exactly one."""
    values = as_array_or_empty(value).ravel().tolist()
    return values[0] if len(values) == 1 else None


def _loadings(rep: str) -> str:
    """Return the name of the loadings in varm, by scanpy's convention."""
    return "PCs" if rep == _PCA else rep


def rule_of_graph(adata: Any, groups: CellGroups, graph: Any, rep: str | None) -> OnlyLabels:
    """Return the groups as labels whose rule is that of communities of a graph in ``adata.obsp``."""
    if not isinstance(graph, str) or graph not in adata.obsp:
        raise InvalidInputError(
            f"{WHERE}: graph must be a key of adata.obsp, such as 'connectivities', or None; got {graph!r}. "
            f"{_closest(graph, adata.obsp)}"
        )
    if rep is None:
        raise InvalidInputError(
            f"{WHERE}: graph requires scores with loadings, through which genes are explained; there are "
            "none, or use_rep is None. Compute both with sc.pp.pca."
        )
    params = adata.uns.get(groups.column.name, {})
    params = params.get("params", {}) if isinstance(params, Mapping) else {}
    resolution = _only(params.get("resolution")) if isinstance(params, Mapping) else None
    known = resolution if is_real(resolution) else None
    return labels_on_graph(groups.labels[groups.codes], Graph(adata.obsp[graph], known), WHERE)


class Scores(NamedTuple):
    """The scores of all cells, (n, m), and the loadings of all genes, (genes, m).

    If the scores were corrected after the PCA, ``correction``, (n, m), is what was added to those of the PCA.
    """

    rep: str
    scores: Floats
    loadings: Floats
    correction: Floats | None = None

    @property
    def of_genes(self) -> tuple[str, Floats]:
        """The name of the scores that the loadings give, and these scores."""
        return (self.rep, self.scores) if self.correction is None else (_PCA, self.scores - self.correction)


def read_scores(adata: Any, rep: str, n_pcs: int | None) -> Scores:
    """Read scores with their loadings, or those of the PCA that they were corrected from."""
    if rep in adata.obsm and is_corrected(adata, rep):
        scores = _numbers(adata.obsm[rep], f"adata.obsm[{rep!r}]")
        m = _n_scores(adata, rep, n_pcs, scores.shape[1])
        before = _read_scores(adata, _PCA, m)
        scores = np.ascontiguousarray(scores[:, :m])
        return Scores(rep, scores, before.loadings, scores - before.scores)
    return _read_scores(adata, rep, n_pcs)


def _read_scores(adata: Any, rep: str, n_pcs: int | None) -> Scores:
    name = _loadings(rep)
    if rep not in adata.obsm:
        raise InvalidInputError(
            f"{WHERE}: use_rep must be a key of adata.obsm, or None to use the expression values; got "
            f"{rep!r}. {_closest(rep, adata.obsm)}"
        )
    if name not in adata.varm:
        raise InvalidInputError(
            f"{WHERE}: adata.varm[{name!r}] must contain the loadings of adata.obsm[{rep!r}], which relate "
            "scores to genes; it is missing. Compute scores and loadings with sc.pp.pca, or pass "
            "use_rep=None to use the expression values."
        )
    scores = _numbers(adata.obsm[rep], f"adata.obsm[{rep!r}]")
    loadings = _numbers(adata.varm[name], f"adata.varm[{name!r}]")
    if scores.shape[1] != loadings.shape[1]:
        raise InvalidInputError(
            f"{WHERE}: adata.obsm[{rep!r}] and adata.varm[{name!r}] must both have one column per "
            f"component; got shapes {scores.shape} and {loadings.shape}. Compute both again with sc.pp.pca."
        )
    if not np.isfinite(scores).all():
        raise InvalidInputError(
            f"{WHERE}: adata.obsm[{rep!r}] must be finite; cell {np.argwhere(~np.isfinite(scores))[0, 0]} "
            "has NaN or infinite scores. Remove such cells first."
        )
    # Older versions of scanpy mark genes that are not in the PCA with NaN.
    loadings[np.isnan(loadings).any(axis=1)] = 0.0
    m = _n_scores(adata, rep, n_pcs, scores.shape[1])
    return Scores(rep, np.ascontiguousarray(scores[:, :m]), loadings[:, :m])


def _numbers(values: Any, name: str) -> Floats:
    """Convert an array, a data frame, a sparse matrix or a Dask collection to a new dense array."""
    return open_table(values.compute() if is_dask(values) else values, where=WHERE, name=name).to_array()


def _n_scores(adata: Any, rep: str, n_pcs: int | None, n_all: int) -> int:
    if n_pcs is None:
        seen = _neighbors(adata)
        same = seen.get("use_rep", rep) == rep
        return min(n_all, int(seen.get("n_pcs") or n_all)) if same else n_all
    check_integer(n_pcs, 1, WHERE, "n_pcs")
    if n_pcs > n_all:
        raise InvalidInputError(
            f"{WHERE}: n_pcs must be at most {n_all}, the number of columns of adata.obsm[{rep!r}]; got "
            f"{n_pcs}."
        )
    return int(n_pcs)


def check_loadings(
    adata: Any, table: Table, layer: str | None, rep: str, scores: Floats, loadings: Floats
) -> None:
    """Raise an error unless expression times loadings equals the scores, up to an offset common to all cells.

    ``loadings`` has shape (genes, m); the table contains the genes whose loadings are not all 0.
    """
    used = np.flatnonzero(loadings.any(axis=1))
    if _agrees(table, scores, loadings[used]):
        return
    for other in (None, *adata.layers):
        if other != layer and _agrees(open_expression(adata, other, used), scores, loadings[used]):
            advice = f"{_expression(adata, other)[1]} gives the right scores: pass layer={other!r}."
            break
    else:
        advice = (
            "Pass the layer that the scores were computed from, with all its genes (scaled if it was scaled "
            "for the PCA), or compute the scores again with sc.pp.pca. Scores that were corrected afterward "
            "must be in adata.obsm under a separate name, in addition to those of the PCA."
        )
    raise InvalidInputError(
        f"{WHERE}: {table.name} must be the data that adata.obsm[{rep!r}] was computed from; multiplied by "
        f"adata.varm[{_loadings(rep)!r}], it gives different scores. {advice}"
    )


def _agrees(table: Table, scores: Floats, loadings: Floats) -> bool:
    """Return whether expression times loadings equals the scores in some cells, within a few percent."""
    some = evenly_spaced(table.n_rows, _CHECKED)
    with np.errstate(all="ignore"):
        difference = table.take(some).to_array() @ loadings - scores[some]
    if not np.isfinite(difference).all():  # the error is reported when all cells are read
        return True
    spread = scores[some].std(axis=0)
    return bool((difference.std(axis=0) <= _OWN * spread + _LARGEST * spread.max()).all())
