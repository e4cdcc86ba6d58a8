"""The energy of a pipeline's features, with the features' relevance summed by column."""

from __future__ import annotations

from copy import copy

import numpy as np

from whycluster.core.arrays import Codes, Floats
from whycluster.core.energies.energy import Energy, Parts, carve
from whycluster.pipelines.wrapped_energy import WrappedEnergy


class ColumnsEnergy(WrappedEnergy):
    """The energy s_k of D features, each computed from one column.

    The relevance of a column is the sum of the relevance of its features.

    Parameters
    ----------
    energy : the energy of the features
    source : (D,) the column that each feature comes from. If a feature comes from no column (-1), its
        relevance is shared among all columns.
    n_columns : the number of columns; the relevance of a column without features is zero
    """

    def __init__(self, energy: Energy, source: Codes, n_columns: int) -> None:
        super().__init__(energy)
        self.source = np.array(source)
        self.n_features, self.n_inputs = n_columns, energy.n_inputs
        self.offset, self.needs_means = energy.offset, energy.needs_means
        self.scratch_width = energy.n_features + energy.scratch_width
        self._is_identity = np.array_equal(self.source, np.arange(n_columns))
        self.compiled = energy.compiled if self._is_identity else None
        # The features, ordered by column, and the position at which each column begins.
        self._order = np.flatnonzero(self.source >= 0)
        self._order = self._order[np.argsort(self.source[self._order], kind="stable")]
        self._columns, self._starts = np.unique(self.source[self._order], return_index=True)
        self._in_order = np.array_equal(self._order, np.arange(energy.n_features))

    @property
    def by_input(self) -> Energy:
        """The energy of the features."""
        return self.energy

    @property
    def feature_of_input(self) -> Codes:
        """(D,) the column of each feature, or -1 for a feature without a column."""
        return self.source

    def apart_from(self, x: Floats) -> Energy:
        """Return the energies of changed versions of a row."""
        return self.around(self.energy.apart_from(x))

    def compared(self, x: Floats) -> Floats:
        """Return the rows as the energy of the features compares them."""
        return self.energy.compared(x)

    def energies(self, x: Floats, out: Floats, scratch: Floats) -> None:
        """Write the energies of the features."""
        self.energy.energies(x, out, self._inner_scratch(scratch))

    def combine(self, x: Floats, weights: Floats, out: Floats, scratch: Floats) -> None:
        """Write the splits over the features, summed by column."""
        if self._is_identity:
            self.energy.combine(x, weights, out, self._inner_scratch(scratch))
            return
        split, rest = carve(scratch, self.energy.n_features, self.energy.scratch_width)
        self.energy.combine(x, weights, split, rest)
        self._add_up(split, out)

    @property
    def parts(self) -> Parts:
        """The parts of the energy of the features."""
        return self.energy.parts

    def terms(self, x: Floats, cluster: Codes, out: Floats, scratch: Floats) -> None:
        """Write the terms of the features, summed by column."""
        terms = np.empty((*out.shape[:2], self.energy.n_features))
        self.energy.terms(x, cluster, terms, self._inner_scratch(scratch))
        self._add_up(terms, out)

    def differentiate(self, *_: Floats) -> None:
        """Raise an error, since a step may have no derivative."""
        raise NotImplementedError

    def with_means(self, means: Floats, sizes: Codes) -> Energy:
        """Return a copy in which the energy of the features uses the means."""
        found = copy(self)
        found.energy, found.needs_means = self.energy.with_means(means, sizes), False
        return found

    def _add_up(self, split: Floats, out: Floats) -> None:
        """Sum features by column: (..., D) to (..., n_columns)."""
        if len(self._columns) < self.n_features:
            out[...] = 0.0
        if not self._order.size:
            return
        ordered = split if self._in_order else split[..., self._order]
        if len(self._columns) == self.n_features:
            np.add.reduceat(ordered, self._starts, axis=-1, out=out)
        else:
            out[..., self._columns] = np.add.reduceat(ordered, self._starts, axis=-1)
        if len(self._order) < len(self.source):  # features without a column are shared among all columns
            rest = split[..., self.source < 0].sum(axis=-1, keepdims=True)
            out[..., self._columns] += rest / len(self._columns)
