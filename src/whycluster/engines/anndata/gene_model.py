"""The model of the groups in an AnnData object: a surrogate, expressed in terms of genes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from whycluster.clustering.surrogate import Surrogate, sample_rows
from whycluster.core import outputs
from whycluster.core.arrays import Codes, Floats
from whycluster.core.energies import Energy
from whycluster.core.errors import InvalidInputError
from whycluster.data.arrays import is_sparse
from whycluster.data.groups import membership
from whycluster.data.table import ArrayTable, Table
from whycluster.engines.anndata.parts import (
    WHERE,
    CellGroups,
    check_loadings,
    chosen_rep,
    open_expression,
    read_scores,
)
from whycluster.models.network import TableNetwork
from whycluster.pipelines.affine_map import AffineMap
from whycluster.pipelines.mixing import through

CHUNK_VALUES = 1 << 22  # the number of values that are explained at a time
_DENSE = 1 << 25  # the maximum number of expression values that a surrogate is fitted to


@dataclass(frozen=True)
class GeneModel:
    """A surrogate of the groups, expressed in terms of D genes.

    Attributes
    ----------
    energy : the energy as a function of the expression of these genes
    table : (n, D) the expression of these genes in all cells
    columns : (D,) the positions of these genes among all genes
    surrogate : the surrogate
    fitted_to : the features of all cells, scores or expression, that the surrogate was fitted to
    inside, outside : (K, D) the mean expression in each group and in all other cells
    rep : the name of the scores, or None if the surrogate was fitted to the expression
    means : (K, D) the mean expression of the cells that the surrogate assigns to each group, minus the
        offset of the energy; None if the energy needs no means
    """

    energy: Energy
    table: Table
    columns: Codes
    surrogate: Surrogate
    fitted_to: Table
    inside: Floats
    outside: Floats
    rep: str | None = None
    means: Floats | None = None

    def network(self, groups: CellGroups) -> TableNetwork:
        """Return the network whose inputs are the expression of these genes."""
        return TableNetwork(
            self.energy,
            labels=groups.labels,
            feature_names=self.table.feature_names,
            fidelity=self.surrogate.fidelity_,
        )


def fit_gene_model(
    adata: Any, groups: CellGroups, layer: str | None, use_rep: str | None, n_pcs: int | None
) -> GeneModel:
    """Fit the surrogate, and express it in terms of genes."""
    rep = chosen_rep(adata, use_rep, n_pcs)
    if rep is None:
        return _fit_genes(open_expression(adata, layer), groups)
    scores, loadings = read_scores(adata, rep, n_pcs)
    used = np.flatnonzero(loadings.any(axis=1))
    table = open_expression(adata, layer, used)
    check_loadings(adata, table, layer, rep, scores, loadings)
    return _fit_scores(table, groups, _Basis(rep, used, scores, loadings[used]))


class _Basis(NamedTuple):
    """Scores of cells, and the genes that have loadings."""

    rep: str  # the name of the scores
    used: Codes  # (D,) the positions of the genes
    scores: Floats  # (n, m)
    loadings: Floats  # (D, m)


def _fit_scores(table: Table, groups: CellGroups, basis: _Basis) -> GeneModel:
    """Fit the surrogate to scores z = (x - mean) W + o, and express it in terms of genes."""
    rows, n_groups = ArrayTable.of(basis.scores), len(groups.labels)
    surrogate = Surrogate().fit_rows(basis.scores, groups.column, WHERE)
    energy = surrogate.energy
    assigned = outputs.assign(energy, rows)
    sums, of_assigned = _sums(table, [groups.codes, assigned], n_groups)
    center, sizes = sums.sum(axis=0) / table.n_rows, np.bincount(assigned, minlength=n_groups)
    # The mean of the scores is not 0 if cells were removed after the PCA, or if no mean was subtracted.
    linear = AffineMap(np.ascontiguousarray(basis.loadings.T), basis.scores.mean(axis=0), center)
    return GeneModel(
        through(energy, linear),
        table,
        basis.used,
        surrogate,
        rows,
        *_means(sums, groups.codes),
        rep=basis.rep,
        means=of_assigned / np.maximum(sizes, 1)[:, None] - center,
    )


def _fit_genes(table: Table, groups: CellGroups) -> GeneModel:
    """Fit the surrogate to the expression of a sample of cells, since fitting needs a dense array."""
    (sums,) = _sums(table, [groups.codes], len(groups.labels))
    sample = sample_rows(groups.codes, max(1, _DENSE // table.n_features), np.random.RandomState(0))
    surrogate = Surrogate().fit_rows(table.take(sample).to_array(), groups.column.iloc[sample], WHERE)
    genes = np.arange(table.n_features)
    return GeneModel(surrogate.energy, table, genes, surrogate, table, *_means(sums, groups.codes))


def chunks(n_rows: int, size: int) -> Iterator[slice]:
    """Yield slices of at most ``size`` rows."""
    return (slice(start, min(start + size, n_rows)) for start in range(0, n_rows, size))


def _sums(table: Table, codings: list[Codes], n_groups: int) -> list[Floats]:
    """Return, for each of several groupings, the sums of expression over each group, (K, D).

    Sparse data stay sparse.
    """
    sums = [np.zeros((n_groups, table.n_features)) for _ in codings]
    for rows in chunks(table.n_rows, max(1, CHUNK_VALUES // table.n_features)):
        block = table.native[rows]
        for total, codes in zip(sums, codings, strict=True):
            added = membership(codes[rows], n_groups).T @ block
            total += added.toarray() if is_sparse(added) else added
    if not np.isfinite(sums[0]).all():
        found = table.first_not_finite()
        if found is None:
            raise InvalidInputError(
                f"{WHERE}: {table.name} must have finite sums; its values are too large to be added up. "
                "Rescale the data first."
            )
        row, gene, value = found
        raise InvalidInputError(
            f"{WHERE}: {table.name} must be finite; cell {row}, gene {gene!r} holds {value}. Remove such "
            "cells or genes first."
        )
    return sums


def _means(sums: Floats, codes: Codes) -> tuple[Floats, Floats]:
    """Return, for each group, the means over its cells, (K, D), and over all other cells, (K, D)."""
    sizes = np.bincount(codes, minlength=len(sums))[:, None]
    return sums / sizes, (sums.sum(axis=0) - sums) / (len(codes) - sizes)
