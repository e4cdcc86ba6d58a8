"""The model of the groups in an AnnData object, a surrogate or a vote, expressed in terms of genes."""

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
from whycluster.engines.anndata.corrected import CorrectedEnergy, CorrectedNetwork, with_correction
from whycluster.engines.anndata.parts import (
    WHERE,
    CellGroups,
    CellRows,
    check_loadings,
    chosen_rep,
    open_expression,
    read_scores,
    rule_of_graph,
    select,
)
from whycluster.explanations.agreement import LEAST, Agreement
from whycluster.explanations.fidelity import Fidelity
from whycluster.models.adapters.incomplete import OnlyLabels
from whycluster.models.agreement import with_agreement
from whycluster.models.network import TableNetwork
from whycluster.pipelines.affine_map import AffineMap
from whycluster.pipelines.mixing import through

CHUNK_VALUES = 1 << 22  # the number of values that are explained at a time
_LEAST_UNIT = 1e-6  # of a correction that does not vary
_DENSE = 1 << 25  # the maximum number of expression values that a surrogate is fitted to


@dataclass(frozen=True)
class GeneModel:
    """A model of the groups, expressed in terms of D genes: a surrogate, or votes of neighbors in a graph.

    Attributes
    ----------
    energy : the energy as a function of the expression of these genes
    table : (n, D) the expression of these genes in all cells
    columns : (D,) the positions of these genes among all genes
    inner : the energy of the model as a function of the features that it was fitted to
    fitted_to : the features of all cells, scores or expression, that the model was fitted to
    inside, outside : (K, D) the mean expression in each group and in all other cells
    n_fitted : how many cells the model was fitted to
    rep : the name of the scores, or None if the model was fitted to the expression
    means : (K, D) the mean expression of the cells that the model assigns to each group, minus the
        offset of the energy; None if the energy needs no means
    fidelity : how well a surrogate matches the groups
    agreement : for votes in a graph, how well they reproduce the groups
    """

    energy: Energy
    table: Table
    columns: Codes
    inner: Energy
    fitted_to: Table
    inside: Floats
    outside: Floats
    n_fitted: int
    rep: str | None = None
    means: Floats | None = None
    fidelity: Fidelity | None = None
    agreement: Agreement | None = None
    correction: Floats | None = None

    def rows(self, cells: CellRows) -> Any:
        """Return the expression of some cells, as `network` takes it."""
        native = select(self.table, cells).native
        return native if self.correction is None else with_correction(native[:], self.correction[cells])

    def network(self, groups: CellGroups) -> TableNetwork:
        """Return the network whose inputs are the expression of these genes, and the correction."""
        return (TableNetwork if self.correction is None else CorrectedNetwork)(
            self.energy,
            labels=groups.labels,
            feature_names=self.table.feature_names,
            fidelity=self.fidelity,
            agreement=self.agreement,
        )


def fit_gene_model(
    adata: Any,
    groups: CellGroups,
    layer: str | None,
    use_rep: str | None,
    n_pcs: int | None,
    graph: str | None = None,
) -> GeneModel:
    """Fit the model, and express it in terms of genes."""
    rep = chosen_rep(adata, use_rep, n_pcs)
    rule = None if graph is None else rule_of_graph(adata, groups, graph, rep)
    if rep is None:
        return _fit_genes(open_expression(adata, layer), groups)
    found = read_scores(adata, rep, n_pcs)
    used = np.flatnonzero(found.loadings.any(axis=1))
    table = open_expression(adata, layer, used)
    check_loadings(adata, table, layer, *found.of_genes, found.loadings)
    basis = _Basis(rep, used, found.scores, found.loadings[used], found.correction)
    return _fit_scores(table, groups, basis) if rule is None else _by_votes(table, groups, basis, rule)


class _Basis(NamedTuple):
    """Scores of cells, and the genes that have loadings."""

    rep: str  # the name of the scores
    used: Codes  # (D,) the positions of the genes
    scores: Floats  # (n, m)
    loadings: Floats  # (D, m)
    correction: Floats | None  # (n, m) what was added to the scores after the PCA, if anything was

    def linear(self, center: Floats) -> AffineMap:
        """Return the map from expression, and from the correction if there is one, to scores."""
        # The mean of the scores is not 0 if cells were removed after the PCA, or if no mean was subtracted.
        matrix, offset, unit = self.loadings.T, center, None
        if self.correction is not None:
            matrix = np.hstack([matrix, np.eye(len(matrix))])
            offset = np.append(center, self.correction.mean(axis=0))
            # Points that map onto scores take from the correction only as much as it varies.
            unit = np.append(np.ones(len(center)), np.maximum(self.correction.std(axis=0), _LEAST_UNIT))
        return AffineMap(np.ascontiguousarray(matrix), self.scores.mean(axis=0), offset, unit)

    def of_genes(self, energy: Energy, center: Floats) -> Energy:
        """Return an energy of scores as a function of the expression."""
        mixed = through(energy, self.linear(center))
        return mixed if self.correction is None else CorrectedEnergy(mixed, len(self.used), self.rep)

    def means(self, sums: Floats, assigned: Codes, center: Floats) -> Floats:
        """Return the mean cell of each group, minus the offset, given the sums of their expression."""
        sizes = np.maximum(np.bincount(assigned, minlength=len(sums)), 1)[:, None]
        means = sums / sizes - center
        if self.correction is None:
            return means
        moved = membership(assigned, len(sums)).T @ (self.correction - self.correction.mean(axis=0))
        return np.hstack([means, moved / sizes])


def _fit_scores(table: Table, groups: CellGroups, basis: _Basis) -> GeneModel:
    """Fit the surrogate to scores z = (x - mean) W + o, and express it in terms of genes."""
    rows, n_groups = ArrayTable.of(basis.scores), len(groups.labels)
    surrogate = Surrogate().fit_rows(basis.scores, groups.column, WHERE)
    energy = surrogate.energy
    assigned = outputs.assign(energy, rows)
    sums, of_assigned = _sums(table, [groups.codes, assigned], n_groups)
    center = sums.sum(axis=0) / table.n_rows
    return GeneModel(
        basis.of_genes(energy, center),
        table,
        basis.used,
        energy,
        rows,
        *_means(sums, groups.codes),
        surrogate.n_fitted_,
        rep=basis.rep,
        means=basis.means(of_assigned, assigned, center),
        fidelity=surrogate.fidelity_,
        correction=basis.correction,
    )


def _by_votes(table: Table, groups: CellGroups, basis: _Basis, rule: OnlyLabels) -> GeneModel:
    """Let the neighbors of a cell in a graph vote; if this reproduces too few labels, fit a surrogate."""
    n_groups = len(groups.labels)
    (sums,) = _sums(table, [groups.codes], n_groups)
    center = sums.sum(axis=0) / table.n_rows
    # Cells are looked up by their scores, so these must be computed from the expression, as in `through`.
    z = _scores(table, basis, center)
    network = rule.network(z)
    assert network is not None
    network = with_agreement(network, z, rule.labels, WHERE)
    agreement = network.agreement
    assert agreement is not None
    if agreement.share < LEAST:
        agreement.warn_of_surrogate(rule.kind, rule.advice, WHERE)
        return _fit_scores(table, groups, basis)
    rows = ArrayTable.of(z)
    assigned = outputs.assign(network.energy, rows)
    (of_assigned,) = _sums(table, [assigned], n_groups)
    return GeneModel(
        basis.of_genes(network.energy, center),
        table,
        basis.used,
        network.energy,
        rows,
        *_means(sums, groups.codes),
        table.n_rows,
        rep=basis.rep,
        means=basis.means(of_assigned, assigned, center),
        agreement=agreement,
        correction=basis.correction,
    )


def _scores(table: Table, basis: _Basis, center: Floats) -> Floats:
    """Return the scores of all cells, (n, m), computed from their expression."""
    z, linear = np.empty(basis.scores.shape), basis.linear(center)
    for rows in chunks(table.n_rows, max(1, CHUNK_VALUES // table.n_features)):
        block = table.native[rows]
        dense = np.asarray(block.toarray() if is_sparse(block) else block, dtype=np.float64)
        if basis.correction is not None:
            dense = with_correction(dense, basis.correction[rows])
        assert linear.offset is not None
        linear.apply(dense - linear.offset, linear.shift, z[rows])
    return z


def _fit_genes(table: Table, groups: CellGroups) -> GeneModel:
    """Fit the surrogate to the expression of a sample of cells, since fitting needs a dense array."""
    (sums,) = _sums(table, [groups.codes], len(groups.labels))
    sample = sample_rows(groups.codes, max(1, _DENSE // table.n_features), np.random.RandomState(0))
    surrogate = Surrogate().fit_rows(table.take(sample).to_array(), groups.column.iloc[sample], WHERE)
    genes = np.arange(table.n_features)
    return GeneModel(
        surrogate.energy,
        table,
        genes,
        surrogate.energy,
        table,
        *_means(sums, groups.codes),
        surrogate.n_fitted_,
        fidelity=surrogate.fidelity_,
    )


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
