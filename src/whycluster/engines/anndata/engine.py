"""CellGroups of cells in an AnnData, explained by its genes; the results are written beside the data.

A group, whoever made it, is explained through a `Surrogate`. Where cells were grouped by principal
components, z = (x - mean) PCs, the surrogate is fitted to these, and relevance goes down to the genes as it
does behind a PCA in a pipeline (`energies.mixing`). Expression is read some cells at a time, from memory or
from a file, and stays sparse until a block of it is explained.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from whycluster.clustering.surrogate import Surrogate, sample_rows
from whycluster.core import attribution, outputs
from whycluster.core.arrays import Codes, Floats, strongest
from whycluster.core.attribution import CodedQuery
from whycluster.core.energies import Energy
from whycluster.core.errors import InvalidInputError
from whycluster.core.rules import DEFAULT_RULE
from whycluster.data.arrays import is_sparse
from whycluster.data.table import ArrayTable, Table
from whycluster.data.validation import check_whole
from whycluster.engines.anndata.parts import (
    WHERE,
    CellGroups,
    check_container,
    check_loadings,
    chosen_rep,
    open_expression,
    read_groups,
    read_scores,
)
from whycluster.explanations.explanation import Explanation
from whycluster.explanations.fidelity import Fidelity
from whycluster.explanations.summary import membership
from whycluster.pipelines.affine_map import AffineMap
from whycluster.pipelines.mixing import through

_OUTPUTS = ("top", "layer", "summary")
_DENSE = 1 << 25  # values of expression that a surrogate is fitted to, where it is fitted to genes
_CHUNK = 1 << 22  # values that are explained at a time


def explain_anndata(
    adata: Any,
    groups: str = "leiden",
    *,
    layer: str | None = None,
    use_rep: str | None = "auto",
    n_pcs: int | None = None,
    key_added: str = "why",
    output: str = "top",
    n_top: int = 10,
    n_genes: int = 100,
    cells: Any = None,
    chunk_size: int | None = None,
    copy: bool = False,
    overwrite: bool = False,
) -> Any:
    """Explain why each cell of an AnnData is in its group, gene by gene.

    As functions of scanpy do, and as no other of this package, it writes its results into what it is given:

    - ``obs["why_evidence"]``, how much better the group fits than the strongest competitor, negative where
      the surrogate puts the cell elsewhere; ``obs["why_competitor"]``
    - ``varm["why"]``, (genes, groups) the mean relevance over the cells of a group that the surrogate puts
      there (NaN where it puts none); the groups, in order, are ``uns["why"]["groups"]``
    - ``uns["why"]``: "names", "scores", "mean_inside" and "mean_outside" of the strongest genes of each
      group, as `rank_genes_groups` keeps them, "" and NaN where the surrogate puts no cell into it;
      "fidelity", how well the surrogate matches; "params"
    - the cells by genes, as ``output`` says

    Parameters
    ----------
    adata : an AnnData in memory or backed by a file; views only with ``copy`` or ``cells``
    groups : a column of ``adata.obs``: Leiden's clusters, a person's annotation, any labels
    layer : where expression is, as the principal components were computed from it; by default ``adata.X``
    use_rep : the scores in ``adata.obsm`` that the cells were grouped by, with their loadings in
        ``adata.varm`` ("PCs" for "X_pca", else under the same name); None for expression itself. "auto" is
        what the neighbours were computed from, or "X_pca", if its loadings are there, else None.
    n_pcs : how many of the scores; by default as many as the neighbours were computed from, or all
    key_added : the name under which results are written
    output : "top", the strongest genes of each cell, ``obsm["why_genes"]``, their positions among the genes
        as these are now, and ``obsm["why_relevance"]``; "layer", the relevance of all genes, in single
        precision and dense, ``layers["why"]``; "summary", nothing for cells
    n_top : how many genes of each cell, for "top"
    n_genes : how many genes of each group
    cells : a mask, positions, or names: return an `Explanation` of these cells, by the genes that have
        loadings, and write nothing; a mask with names, a Series of pandas, is matched by these
    chunk_size : how many cells are explained at a time; by default so many that 4 million values are
    copy : return a copy with the results, and leave ``adata`` as it is
    overwrite : replace what is there under this name; without it, that is an error

    Returns
    -------
    None; the copy, with ``copy``; an `Explanation`, with ``cells``
    """
    check_container(adata, writes=cells is None, copy=copy)
    _check_options(output, n_top, n_genes, chunk_size)
    chosen = None if cells is None else _positions(cells, adata)
    known = read_groups(adata, groups)
    if chosen is None:
        _check_apart(key_added, groups, layer, chosen_rep(adata, use_rep, n_pcs))
        if not overwrite:
            _check_free(adata, key_added)
    subject = _fit(adata, known, layer, use_rep, n_pcs)
    if chosen is not None:
        subject.fidelity.warn_if_low(WHERE)
        return replace(subject.explanation(chosen), row_names=adata.obs_names)
    subject.fidelity.warn_if_low(WHERE, f"adata.uns[{key_added!r}]['fidelity']")
    found = _Found.of(subject, output, n_top, adata.n_vars, chunk_size)
    about = {"groupby": groups, "output": output} | ({} if layer is None else {"layer": layer})
    target = adata.copy() if copy else adata
    _write(target, key_added, found, subject, known.originals, _told(found, subject, known, n_genes, about))
    return target if copy else None


def _check_options(output: Any, n_top: Any, n_genes: Any, chunk_size: Any) -> None:
    if output not in _OUTPUTS:
        raise InvalidInputError(
            f"{WHERE}: output must be one of {', '.join(map(repr, _OUTPUTS))}; got {output!r}."
        )
    check_whole(n_top, 1, WHERE, "n_top")
    check_whole(n_genes, 1, WHERE, "n_genes")
    if chunk_size is not None:
        check_whole(chunk_size, 1, WHERE, "chunk_size", "None or ")


def _positions(cells: Any, adata: Any) -> Codes:
    """Which cells a mask, a list of positions or one of names stands for."""
    chosen, n_cells = np.asarray(_in_order(cells, adata.obs_names)), adata.n_obs
    if chosen.ndim == 1 and all(isinstance(name, str) for name in chosen.tolist()) and chosen.size:
        if not adata.obs_names.is_unique:
            raise InvalidInputError(
                f"{WHERE}: adata.obs_names must be different for cells to be chosen by them; some are there "
                "more than once. Give positions."
            )
        known = adata.obs_names.get_indexer(chosen)
        if (known < 0).any():
            raise InvalidInputError(
                f"{WHERE}: cells must be names in adata.obs_names; {str(chosen[known < 0][0])!r} is none."
            )
        return np.asarray(known, np.intp)
    if chosen.dtype == bool and chosen.shape == (n_cells,):
        chosen = np.flatnonzero(chosen)
    known = chosen.ndim == 1 and chosen.dtype.kind in "iu" and chosen.size > 0
    if not known or chosen.min() < 0 or chosen.max() >= n_cells:
        raise InvalidInputError(
            f"{WHERE}: cells must be a mask of length {n_cells}, positions from 0 to {n_cells - 1} or names, "
            f"of at least one cell; got {chosen.dtype} of shape {chosen.shape}."
        )
    return chosen.astype(np.intp)


def _in_order(cells: Any, names: Any) -> Any:
    """A mask in the order of the cells, if its index has names; AnnData would take it as it stands."""
    import pandas as pd  # which an AnnData is made of

    if not isinstance(cells, pd.Series) or not pd.api.types.is_bool_dtype(cells):
        return cells
    if cells.index.equals(names) or cells.index.dtype.kind in "iu":  # names of cells are text
        return cells
    times = cells.index.value_counts().reindex(names, fill_value=0).to_numpy()
    if (times != 1).any():
        first = (times != 1).argmax()
        raise InvalidInputError(
            f"{WHERE}: cells must have every name in adata.obs_names once in its index, if it is a mask with "
            f"names; {names[first]!r} is there {times[first]} times. Give cells.to_numpy() if it stands in "
            f"the order of the cells."
        )
    return cells.loc[names]


@dataclass(frozen=True)
class _Subject:
    """The network that is explained, by D genes, and what is asked of it.

    Attributes
    ----------
    energy : of expression in the genes of the table
    table : all cells, those genes
    columns : (D,) which genes these are
    question : of all cells, with all that has to be measured
    labels : (K,) the groups
    fidelity : of the surrogate
    n_fitted : how many cells it was fitted to
    inside, outside : (K, D) means of expression in each group and in all other cells
    scores : the name of the scores it was fitted to, and how many they are; None for expression itself
    """

    energy: Energy
    table: Table
    columns: Codes
    query: CodedQuery
    labels: NDArray[Any]
    fidelity: Fidelity
    n_fitted: int
    inside: Floats
    outside: Floats
    scores: tuple[str, int] | None = None

    def part(self, rows: slice | Codes) -> tuple[Table, CodedQuery]:
        """Some cells, and what is asked of these."""
        assert self.query.cluster is not None
        native = self.table.native[rows]
        table = replace(self.table, native=native, n_rows=native.shape[0])
        return table, replace(self.query, cluster=self.query.cluster[rows])

    def explanation(self, rows: Codes) -> Explanation:
        """Of some cells, as `whycluster.explain` gives it."""
        table, query = self.part(rows)
        found = attribution.attribute(self.energy, table, query)
        result = Explanation.of(
            found, query, self.energy, table, self.labels, self.fidelity, relevance=found.relevance
        )
        return replace(result, positions=rows, owns_data=True)


def _fit(
    adata: Any, groups: CellGroups, layer: str | None, use_rep: str | None, n_pcs: int | None
) -> _Subject:
    """The surrogate, by genes."""
    rep = chosen_rep(adata, use_rep, n_pcs)
    if rep is None:
        return _fit_genes(open_expression(adata, layer), groups)
    scores, loadings = read_scores(adata, rep, n_pcs)
    used = np.flatnonzero(loadings.any(axis=1))
    table = open_expression(adata, layer, used)
    check_loadings(adata, table, layer, rep, scores, loadings)
    return _fit_scores(table, groups, _Basis(rep, used, scores, loadings[used]))


class _Basis(NamedTuple):
    """Scores (n, m) of cells, and the loadings (D, m) of the genes that have any."""

    rep: str
    used: Codes
    scores: Floats
    loadings: Floats


def _fit_scores(table: Table, groups: CellGroups, basis: _Basis) -> _Subject:
    """By scores z = (x - mean) W + o, and from there to genes."""
    rows, n_groups = ArrayTable.of(basis.scores), len(groups.labels)
    surrogate = Surrogate().fit_rows(basis.scores, groups.column, WHERE)
    energy = surrogate.energy
    query = attribution.measured(CodedQuery(groups.codes, None, DEFAULT_RULE), energy, rows)
    assigned = outputs.assign(energy, rows)
    sums, of_assigned = _sums(table, [groups.codes, assigned], n_groups)
    center, sizes = sums.sum(axis=0) / table.n_rows, np.bincount(assigned, minlength=n_groups)
    # The mean of the scores is not 0 where cells were left out since, or where nothing was subtracted.
    linear = AffineMap(np.ascontiguousarray(basis.loadings.T), basis.scores.mean(axis=0), center)
    means = of_assigned / np.maximum(sizes, 1)[:, None] - center
    energy = through(energy, linear).with_means(means, sizes)
    energy.needs_means = False  # they are those of all cells, whichever are asked about
    return _Subject(
        energy,
        table,
        basis.used,
        query,
        groups.labels,
        surrogate.fidelity_,
        surrogate.n_fitted_,
        *_means(sums, groups.codes),
        scores=(basis.rep, basis.scores.shape[1]),
    )


def _fit_genes(table: Table, groups: CellGroups) -> _Subject:
    """By expression itself: a surrogate takes it as a dense array, so of many cells some are drawn."""
    (sums,) = _sums(table, [groups.codes], len(groups.labels))
    drawn = sample_rows(groups.codes, max(1, _DENSE // table.n_features), np.random.RandomState(0))
    surrogate = Surrogate().fit_rows(table.take(drawn).to_array(), groups.column.iloc[drawn], WHERE)
    return _Subject(
        surrogate.energy,
        table,
        np.arange(table.n_features),
        attribution.measured(CodedQuery(groups.codes, None, DEFAULT_RULE), surrogate.energy, table),
        groups.labels,
        surrogate.fidelity_,
        surrogate.n_fitted_,
        *_means(sums, groups.codes),
    )


def _chunks(n_rows: int, size: int) -> Iterator[slice]:
    return (slice(start, min(start + size, n_rows)) for start in range(0, n_rows, size))


def _sums(table: Table, codings: list[Codes], n_groups: int) -> list[Floats]:
    """Sums of expression over the groups of each coding, (K, D), without making it dense."""
    sums = [np.zeros((n_groups, table.n_features)) for _ in codings]
    for rows in _chunks(table.n_rows, max(1, _CHUNK // table.n_features)):
        block = table.native[rows]
        for total, codes in zip(sums, codings, strict=True):
            added = membership(codes[rows], n_groups).T @ block
            total += added.toarray() if is_sparse(added) else added
    if not np.isfinite(sums[0]).all():
        found = table.first_not_finite()
        if found is None:
            raise InvalidInputError(
                f"{WHERE}: {table.name} has values too large to be added up. Rescale the data first."
            )
        row, gene, value = found
        raise InvalidInputError(
            f"{WHERE}: {table.name} must be finite; cell {row}, gene {gene!r} holds {value}. Leave such "
            f"cells or genes out first."
        )
    return sums


def _means(sums: Floats, codes: Codes) -> tuple[Floats, Floats]:
    """The means of each group and of all other cells, (K, D)."""
    sizes = np.bincount(codes, minlength=len(sums))[:, None]
    return sums / sizes, (sums.sum(axis=0) - sums) / (len(codes) - sizes)


@dataclass(frozen=True)
class _Found:
    """What came out, cell by cell and on average."""

    evidence: NDArray[Any]  # (n,)
    competitor: Codes  # (n,)
    means: Floats  # (K, D) of relevance
    cells: dict[str, NDArray[Any]]  # by the names of arrays in obsm or layers

    @classmethod
    def of(cls, subject: _Subject, output: str, n_top: int, n_vars: int, chunk_size: int | None) -> _Found:
        """Explain all cells, some at a time."""
        table, n_groups = subject.table, len(subject.labels)
        evidence = np.empty(table.n_rows, table.dtype)
        competitor = np.empty(table.n_rows, np.intp)
        sums, count = np.zeros((n_groups, table.n_features)), np.zeros((n_groups, 1))
        cells = _room(subject.table, output, n_top, n_vars)
        for rows in _chunks(table.n_rows, chunk_size or max(1, _CHUNK // table.n_features)):
            part, query = subject.part(rows)
            found = attribution.attribute(subject.energy, part, query)
            evidence[rows], competitor[rows] = found.evidence, found.competitor
            members = membership(found.cluster, n_groups, found.evidence > 0)
            sums += members.T @ found.relevance.astype(np.float64)
            count += np.asarray(members.sum(axis=0)).reshape(-1, 1)
            _keep(cells, rows, found.relevance, subject.columns)
        means = np.divide(sums, count, out=np.full_like(sums, np.nan), where=count > 0)
        return cls(evidence, competitor, means, cells)


def _room(table: Table, output: str, n_top: int, n_vars: int) -> dict[str, NDArray[Any]]:
    """The arrays for what is kept of every cell."""
    shape = table.n_rows, min(n_top, table.n_features)
    if output == "top":
        return {"genes": np.empty(shape, np.int32), "relevance": np.empty(shape, np.float32)}
    return {"layer": np.zeros((table.n_rows, n_vars), np.float32)} if output == "layer" else {}


def _keep(cells: dict[str, NDArray[Any]], rows: slice, relevance: NDArray[Any], columns: Codes) -> None:
    """Put the relevance of some cells, (b, D), where it belongs."""
    if "layer" in cells:
        cells["layer"][rows, columns] = relevance
    if "genes" in cells:
        first = strongest(relevance, cells["genes"].shape[1])
        cells["genes"][rows] = columns[first]
        cells["relevance"][rows] = np.take_along_axis(relevance, first, axis=1)


def _told(
    found: _Found, subject: _Subject, groups: CellGroups, n_genes: int, about: dict[str, Any]
) -> dict[str, Any]:
    """What goes into uns: the strongest genes of each group, as scanpy ranks genes, and all figures."""
    known = np.nan_to_num(found.means, nan=-np.inf)
    order = np.argsort(-known, axis=1, kind="stable")[:, :n_genes]
    genes = np.asarray(subject.table.feature_names, dtype=object)
    scores, inside, outside = (
        np.take_along_axis(values, order, axis=1) for values in (found.means, subject.inside, subject.outside)
    )
    unknown = np.isnan(scores)  # of groups with no cell to rank genes by
    rep, n_scores = subject.scores or ("X", 0)
    fidelity = subject.fidelity
    return {
        "params": about
        | {
            "reference": "rest",
            "method": "whycluster",
            "use_raw": False,
            "use_rep": rep,
            "n_fitted": subject.n_fitted,
        }
        | {"rule": subject.query.rule, "beta": float(subject.query.beta or 0.0)}
        | ({"n_pcs": n_scores} if n_scores else {}),
        "groups": np.array(groups.names, dtype=object),
        "names": _by_group(groups.names, np.where(unknown, "", genes[order]), "O"),
        "scores": _by_group(groups.names, scores, "f8"),
        "mean_inside": _by_group(groups.names, np.where(unknown, np.nan, inside), "f8"),
        "mean_outside": _by_group(groups.names, np.where(unknown, np.nan, outside), "f8"),
        "fidelity": {
            "in_sample": fidelity.in_sample,
            "cross_validated": fidelity.cross_validated,
            "in_sample_per_group": fidelity.in_sample_per_cluster,
            "cross_validated_per_group": fidelity.cross_validated_per_cluster,
        },
    }


def _by_group(names: list[str], values: NDArray[Any], kind: str) -> NDArray[Any]:
    """One field for each group, (k,), of values (K, k)."""
    result = np.empty(values.shape[1], dtype=[(name, kind) for name in names])
    for name, of_group in zip(names, values, strict=True):
        result[name] = of_group
    return result


def _places(key: str) -> list[tuple[str, str]]:
    """All that may be written, as (part, name)."""
    obs = [("obs", f"{key}_evidence"), ("obs", f"{key}_competitor")]
    cells = [("obsm", f"{key}_genes"), ("obsm", f"{key}_relevance"), ("layers", key)]
    return [*obs, *cells, ("varm", key), ("uns", key)]


def _check_apart(key: str, groups: str, layer: str | None, rep: str | None) -> None:
    """Raise, also with ``overwrite``, if results would take the place of what they are made of."""
    if not isinstance(key, str) or key in ("", ".", "..") or "/" in key or "\0" in key:
        raise InvalidInputError(
            f"{WHERE}: key_added must be a name without a slash or a NUL, and not '.' or '..', as the keys "
            f"of a file are; got {key!r}. Choose another."
        )
    if ("obs", groups) in _places(key):
        raise InvalidInputError(
            f"{WHERE}: key_added must be another name than {key!r}, since adata.obs[{groups!r}], which has "
            f"the groups, would be replaced. Choose another."
        )
    if key in (layer, rep, "PCs"):
        raise InvalidInputError(
            f"{WHERE}: key_added must be another name than that of the data; got {key!r}. Choose another."
        )


def _check_free(adata: Any, key: str) -> None:
    taken = [f"adata.{part}[{name!r}]" for part, name in _places(key) if name in getattr(adata, part)]
    if taken:
        raise InvalidInputError(
            f"{WHERE}: key_added must be a name under which there is nothing yet; there is "
            f"{', '.join(taken)}. Choose another, or give overwrite=True."
        )


def _write(
    adata: Any, key: str, found: _Found, subject: _Subject, groups: list[Any], told: dict[str, Any]
) -> None:
    """Put all results into their places; what another call left there goes first."""
    import pandas as pd  # which an AnnData is made of

    competitor = pd.Categorical.from_codes(found.competitor, pd.Index(groups))
    for part, name in _places(key):
        if name in getattr(adata, part):
            del getattr(adata, part)[name]
    adata.obs[f"{key}_evidence"] = found.evidence
    adata.obs[f"{key}_competitor"] = competitor
    relevance = np.zeros((adata.n_vars, len(groups)))
    relevance[subject.columns] = found.means.T
    adata.varm[key] = relevance
    adata.uns[key] = told
    if "layer" in found.cells:
        adata.layers[key] = found.cells["layer"]
    for name in found.cells.keys() - {"layer"}:
        adata.obsm[f"{key}_{name}"] = found.cells[name]
