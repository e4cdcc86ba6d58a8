"""Scores that were corrected after the PCA, for example by Harmony: z = (x - mean) PCs + correction."""

from __future__ import annotations

from copy import copy
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy import sparse

from whycluster.core.arrays import Codes, Floats
from whycluster.core.energies import Energy
from whycluster.core.energies.energy import Parts, carve
from whycluster.data.arrays import is_sparse
from whycluster.data.context_table import ContextTable
from whycluster.data.frame_table import ColumnNames
from whycluster.data.table import Table
from whycluster.models.network import TableNetwork
from whycluster.pipelines.wrapped_energy import WrappedEnergy

if TYPE_CHECKING:
    from typing_extensions import Unpack


class CorrectedEnergy(WrappedEnergy):
    """The energy of the genes and of the correction of each component. Only the genes are features.

    Parameters
    ----------
    energy : the energy of D genes, followed by m corrections
    n_genes : D
    rep : the name of the corrected scores
    """

    def __init__(self, energy: Energy, n_genes: int, rep: str) -> None:
        super().__init__(energy)
        self.n_features, self.n_inputs, self.offset = n_genes, energy.n_features, energy.offset
        self.needs_means, self.adds_up = energy.needs_means, False
        self.rest = f"correction ({rep})" if energy.adds_up else "correction, and no single gene"
        self.unattributed = self.rest
        self.scratch_width = energy.n_features + energy.scratch_width

    def energies(self, x: Floats, out: Floats, scratch: Floats) -> None:
        """Write the energies of the corrected scores."""
        self.energy.energies(x, out, self._inner_scratch(scratch))

    def combine(self, x: Floats, weights: Floats, out: Floats, scratch: Floats) -> None:
        """Write the weighted splits over the genes."""
        split, rest = carve(scratch, self.n_inputs, self.energy.scratch_width)
        self.energy.combine(x, weights, split, rest)
        out[...] = split[:, : self.n_features]

    def differentiate(self, x: Floats, weights: Floats, out: Floats, scratch: Floats) -> None:
        """Write the weighted gradients with respect to the genes."""
        slope, rest = carve(scratch, self.n_inputs, self.energy.scratch_width)
        self.energy.differentiate(x, weights, slope, rest)
        out[...] = slope[:, : self.n_features]

    def with_means(self, means: Floats, sizes: Codes) -> Energy:
        """Return a copy that uses the means of the genes and corrections of the members."""
        found = copy(self)
        found.energy, found.needs_means = self.energy.with_means(means, sizes), False
        return found

    def compared(self, x: Floats) -> Floats:
        """Return the rows as the model compares them."""
        return self.energy.compared(x)

    @property
    def parts(self) -> Parts:
        """The parts of the model."""
        return self.energy.parts

    @property
    def by_input(self) -> Energy:
        """The same energies, split over genes and corrections."""
        return self.energy

    @property
    def feature_of_input(self) -> Codes:
        """The genes; corrections belong to none."""
        return np.append(np.arange(self.n_features), np.full(self.n_inputs - self.n_features, -1))


class CorrectedNetwork(TableNetwork):
    """The network of corrected scores, which takes the genes of a cell, followed by its correction."""

    def open(
        self, X: Any, where: str, *, name: str = "X", whole: bool = True, **columns: Unpack[ColumnNames]
    ) -> Table:
        """Return the genes as a table with the corrections as further inputs."""
        genes = super().open(X[:, : self.n_features], where, name=name, whole=whole, **columns)
        corrections = X[:, self.n_features :]
        dense = corrections.toarray() if is_sparse(corrections) else corrections
        return ContextTable.of(genes, np.asarray(dense, dtype=np.float64))


def with_correction(genes: Any, correction: Floats) -> Any:
    """Return the expression of cells, (b, D), followed by their corrections, (b, m)."""
    if is_sparse(genes):
        return sparse.hstack([genes, sparse.csr_array(correction)]).tocsr()
    return np.hstack([genes, correction])
