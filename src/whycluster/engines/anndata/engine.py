"""Explain the groups of cells in an AnnData object in terms of genes, and write the results into the object.

Groups of any origin are explained through a `Surrogate` or, if they are communities of a graph, by the votes
of neighbors in it. If the grouping was based on principal components, z = (x - mean) PCs, the model is fitted
to the components, and relevance is propagated to the genes in the same way as for a PCA in a pipeline
(`whycluster.pipelines.mixing`).

All cells are measured as one part, because scores need little memory. Cells are explained a few thousand at a
time. Their expression is read from memory or from a file, and stays sparse until they are explained.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from functools import reduce
from typing import TYPE_CHECKING, Any

import numpy as np

from whycluster.core import attribution
from whycluster.core.arrays import Codes
from whycluster.core.attribution import Population
from whycluster.core.errors import InvalidInputError
from whycluster.data.validation import check_choice, check_integer
from whycluster.engines.anndata.gene_model import CHUNK_VALUES, GeneModel, chunks, fit_gene_model
from whycluster.engines.anndata.parts import (
    ALL,
    WHERE,
    CellGroups,
    CellRows,
    check_container,
    chosen_rep,
    read_groups,
    select,
)
from whycluster.engines.anndata.results import (
    CellResults,
    allocate,
    check_apart,
    check_free,
    uns_entry,
    write_results,
)
from whycluster.engines.engine import Engine
from whycluster.engines.request import ExplainRequest, check_for_all_rows
from whycluster.explanations.explanation import Explanation
from whycluster.models.network import Query, QueryOptions

if TYPE_CHECKING:
    from typing_extensions import Unpack

_OUTPUTS = ("top", "layer", "summary")


def explain_anndata(
    adata: Any,
    groups: str = "leiden",
    *,
    layer: str | None = None,
    use_rep: str | None = "auto",
    n_pcs: int | None = None,
    graph: str | None = None,
    key_added: str = "why",
    output: str = "top",
    n_top: int = 10,
    n_genes: int = 100,
    cells: Any = None,
    chunk_size: int | None = None,
    copy: bool = False,
    overwrite: bool = False,
    **query: Unpack[QueryOptions],
) -> Any:
    """Explain why each cell in an AnnData object is in its group, gene by gene.

    Like scanpy's functions, and unlike the other functions of this package, this function writes its results
    into its input:

    - ``obs["why_evidence"]``: how much better the group fits than its strongest competitor; negative if the
      surrogate puts the cell in another group
    - ``obs["why_competitor"]``: the strongest competitor
    - ``varm["why"]``: (genes, groups) the mean relevance over the cells of each group that the surrogate also
      puts in that group; NaN if there are no such cells, or if the query is about another group.
      ``uns["why"]["groups"]`` lists the groups in order
    - ``uns["why"]``: "names", "scores", "mean_inside" and "mean_outside" of the strongest genes of each
      group, in the format of `rank_genes_groups`; "" and NaN if the surrogate puts none of the group's cells
      in the group. Also "fidelity", how well the surrogate matches the groups, and "params"
    - the relevance of each cell, depending on ``output``

    Parameters
    ----------
    adata : an AnnData object in memory or backed by a file; a view is accepted only with ``copy`` or
        ``cells``
    groups : a column of ``adata.obs``: Leiden clusters, manual annotations or any other labels
    layer : the layer with the expression that the principal components were computed from; by default
        ``adata.X``
    use_rep : the scores in ``adata.obsm`` that the grouping was based on, with loadings in ``adata.varm``
        ("PCs" for "X_pca", otherwise the same name), or a corrected version of "X_pca", for example from
        Harmony; None for the expression. "auto" selects the representation that the neighbors were computed
        from if it is one of these, otherwise "X_pca" if that has loadings, and otherwise None
    n_pcs : how many of the scores to use; by default, the number that the neighbors were computed from, or
        all scores if that number is unknown
    graph : the graph in ``adata.obsp`` whose communities the groups are, such as "connectivities" for Leiden.
        Cells are then explained by the votes of their neighbors, with the resolution in
        ``uns[groups]["params"]``, and "agreement" replaces "fidelity" in ``uns["why"]``. Scores with loadings
        are required. By default, a surrogate is fitted
    key_added : the name under which results are written
    output : "top" for the strongest genes of each cell, as ``obsm["why_genes"]`` (their current positions
        among the genes) and ``obsm["why_relevance"]``; "layer" for the relevance of all genes as
        ``layers["why"]``, dense and in single precision; "summary" for no results per cell
    n_top : how many genes to store per cell if ``output`` is "top"
    n_genes : how many genes to list per group
    cells : a mask, positions or names of cells. If given, return an `Explanation` of these cells in terms of
        the genes that have loadings, and write nothing. A mask that is a pandas Series is matched by its
        index
    chunk_size : how many cells to explain at a time; by default, enough cells for about 4 million values
    copy : whether to return a copy with the results and leave ``adata`` unchanged
    overwrite : whether to replace earlier results of the same name; otherwise, such results raise an error
    query : the options of `whycluster.Query`, as keywords. ``target`` and ``against`` are one group for all
        cells; by default each cell is explained for its own group. Leave out ``background``, because all
        cells are measured. To explain only a few cells, use ``cells``

    Returns
    -------
    None, or the copy if ``copy`` is true, or an `Explanation` if ``cells`` is given
    """
    check_container(adata, writes=cells is None, copy=copy)
    _check_options(output, n_top, n_genes, chunk_size)
    chosen = None if cells is None else _positions(cells, adata)
    known, asked = read_groups(adata, groups), Query(**query)
    _check_query(asked, known)
    if chosen is None:
        check_apart(key_added, groups, layer, chosen_rep(adata, use_rep, n_pcs))
        if not overwrite:
            check_free(adata, key_added)
    model = fit_gene_model(adata, known, layer, use_rep, n_pcs, graph)
    if chosen is not None:
        engine = AnnDataEngine.of(model, known, asked, "exp.{}")
        ((_, exp),) = engine.run([chosen], [ALL])
        few = replace(exp, positions=chosen, owns_data=True, row_names=adata.obs_names)
        return few if model.agreement is None else replace(few, agreement=model.agreement)
    engine = AnnDataEngine.of(model, known, asked, f"adata.uns[{key_added!r}]['{{}}']")
    table = model.table
    parts = chunks(table.n_rows, chunk_size or max(1, CHUNK_VALUES // table.n_features))
    arrays = allocate(table, output, n_top, adata.n_vars)
    found = CellResults.of(engine.run(parts, [ALL]), model, known, arrays)
    given = {name: getattr(asked, name) for name in ("target", "against", "threshold")}
    given |= {"layer": layer, "graph": graph}
    params = {"groupby": groups, "output": output} | {k: v for k, v in given.items() if v is not None}
    target = adata.copy() if copy else adata
    write_results(
        target, key_added, found, model, known.originals, uns_entry(found, model, known, n_genes, params)
    )
    return target if copy else None


@dataclass(frozen=True)
class AnnDataEngine(
    Engine[Iterable[CellRows], CellRows, Explanation, Iterator[tuple[CellRows, Explanation]]]
):
    """Explains in terms of genes why cells belong to a group; by default, to their own group.

    Attributes
    ----------
    request : the request to answer; by default, its query asks why each cell belongs to its own group
    model : the model of the groups, and the expression of all cells
    """

    request: ExplainRequest
    model: GeneModel

    @classmethod
    def of(cls, model: GeneModel, groups: CellGroups, query: Query, expression: str) -> AnnDataEngine:
        """Make the engine; warnings refer to ``expression``, with the word fidelity or agreement in it."""
        network, name = model.network(groups), model.table.name
        request = ExplainRequest.of(
            network, WHERE, query, name=name, fidelity_expression=expression.format("fidelity")
        )
        if model.agreement is not None:
            model.agreement.warn_if_low(WHERE, expression.format("agreement"))
        if query.target is None:
            request = replace(request, coded=replace(request.coded, cluster=groups.codes))
        return cls(request, model)

    def measure(self, part: CellRows) -> Population:
        """Measure some cells, in terms of the features that the model was fitted to.

        The mean expression is always the mean over all cells, which was computed when the model was fitted.
        """
        model = self.model
        found = attribution.population(model.inner, select(model.fitted_to, part))
        return found if model.means is None else replace(found, means=model.means)

    def measure_all(self, parts: Iterable[CellRows]) -> Population:
        """Measure all parts and return the sum."""
        return reduce(Population.__add__, map(self.measure, parts))

    def explain(self, part: CellRows) -> Explanation:
        """Explain some cells in terms of the genes of the model."""
        request, rows = self.request.take(part), self.model.rows(part)
        first = part.start or 0 if isinstance(part, slice) else 0
        return request.explanation(request.explain(rows, first), request.completed)

    def explain_all(
        self, parts: Iterable[CellRows], population: Population | None
    ) -> Iterator[tuple[CellRows, Explanation]]:
        """Return an iterator over all parts and their explanations; each part is read when its turn comes."""
        engine = replace(self, request=self.request.with_population(population).prepared())
        return ((part, engine.explain(part)) for part in parts)


def _check_query(query: Query, groups: CellGroups) -> None:
    """Raise an error for an invalid query before the surrogate is fitted."""
    check_for_all_rows(query, WHERE)
    query.coded(groups.labels, None, WHERE)
    if query.background is not None:
        raise InvalidInputError(
            f"{WHERE}: background must be left out, because groups are explained through a surrogate that "
            "is fitted to all cells of adata. To explain only a few cells, pass cells."
        )


def _check_options(output: Any, n_top: Any, n_genes: Any, chunk_size: Any) -> None:
    check_choice(output, _OUTPUTS, WHERE, "output")
    check_integer(n_top, 1, WHERE, "n_top")
    check_integer(n_genes, 1, WHERE, "n_genes")
    if chunk_size is not None:
        check_integer(chunk_size, 1, WHERE, "chunk_size", "None or ")


def _positions(cells: Any, adata: Any) -> Codes:
    """Return the positions of cells given by a mask, positions or names."""
    chosen, n_cells = np.asarray(_in_order(cells, adata.obs_names)), adata.n_obs
    if chosen.ndim == 1 and all(isinstance(name, str) for name in chosen.tolist()) and chosen.size:
        if not adata.obs_names.is_unique:
            raise InvalidInputError(
                f"{WHERE}: adata.obs_names must be unique if cells are selected by name; some names occur "
                "more than once. Pass positions instead."
            )
        known = adata.obs_names.get_indexer(chosen)
        if (known < 0).any():
            raise InvalidInputError(
                f"{WHERE}: cells must be names in adata.obs_names; {str(chosen[known < 0][0])!r} is not "
                "one of them."
            )
        return np.asarray(known, np.intp)
    if chosen.dtype == bool and chosen.shape == (n_cells,):
        chosen = np.flatnonzero(chosen)
    known = chosen.ndim == 1 and chosen.dtype.kind in "iu" and chosen.size > 0
    if not known or chosen.min() < 0 or chosen.max() >= n_cells:
        raise InvalidInputError(
            f"{WHERE}: cells must be a mask of length {n_cells}, a list of positions from 0 to "
            f"{n_cells - 1}, or a list of names, and it must select at least one cell; got {chosen.dtype} "
            f"of shape {chosen.shape}."
        )
    return chosen.astype(np.intp)


def _in_order(cells: Any, names: Any) -> Any:
    """Put a mask with cell names in its index into the order of the cells; return anything else unchanged."""
    import pandas as pd  # a dependency of anndata

    if not isinstance(cells, pd.Series) or not pd.api.types.is_bool_dtype(cells):
        return cells
    if cells.index.equals(names) or cells.index.dtype.kind in "iu":  # an index of integers contains no names
        return cells
    times = cells.index.value_counts().reindex(names, fill_value=0).to_numpy()
    if (times != 1).any():
        first = (times != 1).argmax()
        raise InvalidInputError(
            f"{WHERE}: if cells is a mask with names in its index, the index must contain every name in "
            f"adata.obs_names exactly once; {names[first]!r} occurs {times[first]} times. Pass "
            "cells.to_numpy() if the mask is in the order of the cells."
        )
    return cells.loc[names]
