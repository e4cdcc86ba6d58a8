"""Energies of what a pipeline makes of the columns: the relevance of its features, given back to these."""

from __future__ import annotations

import numpy as np

from whycluster.core.arrays import Codes, Floats
from whycluster.core.compiled.loops import CompiledKMeans
from whycluster.core.energies.energy import Energy, Parts, carve


class ColumnsEnergy(Energy):
    """s_k of D features, each made of one column; the relevance of a column is that of its features.

    Parameters
    ----------
    energy : of the features
    source : (D,) the column that each feature comes from, or -1 where it is no column's: then all share it
    n_columns : how many columns there are; one that no feature comes from has no relevance
    """

    def __init__(self, energy: Energy, source: Codes, n_columns: int) -> None:
        self.energy, self.source = energy, np.array(source)
        self.copy_metadata(energy)
        self.n_features, self.offset, self.needs_means = n_columns, energy.offset, energy.needs_means
        self.scratch_width = energy.n_features + energy.scratch_width
        self._alike = np.array_equal(self.source, np.arange(n_columns))
        # Features of the same column side by side, and where each column begins.
        self._order = np.flatnonzero(self.source >= 0)
        self._order = self._order[np.argsort(self.source[self._order], kind="stable")]
        self._columns, self._starts = np.unique(self.source[self._order], return_index=True)
        self._in_order = np.array_equal(self._order, np.arange(energy.n_features))

    @property
    def n_inputs(self) -> int:
        """What the energy of the features takes."""
        return self.energy.n_inputs

    @property
    def by_input(self) -> Energy:
        """The energy of the features made of the columns."""
        return self.energy

    @property
    def feature_of_input(self) -> Codes:
        """(n_inputs,) the column of each feature; -1 if it has none."""
        return self.source

    def compared(self, x: Floats) -> Floats:
        """Return the rows as the energy of the features compares them."""
        return self.energy.compared(x)

    @property
    def compiled(self) -> CompiledKMeans | None:
        """That of the features, if these are the columns."""
        return self.energy.compiled if self._alike else None

    def energies(self, x: Floats, out: Floats, scratch: Floats) -> None:
        """Those of the features."""
        self.energy.energies(x, out, *carve(scratch, self.energy.scratch_width))

    def combine(self, x: Floats, weights: Floats, out: Floats, scratch: Floats) -> None:
        """The splits over the features, added up."""
        if self._alike:
            self.energy.combine(x, weights, out, *carve(scratch, self.energy.scratch_width))
            return
        split, rest = carve(scratch, self.energy.n_features, self.energy.scratch_width)
        self.energy.combine(x, weights, split, rest)
        self._add_up(split, out)

    @property
    def parts(self) -> Parts:
        """Those of the energy."""
        return self.energy.parts

    def terms(self, x: Floats, cluster: Codes, out: Floats, scratch: Floats) -> None:
        """Those of the features, added up."""
        terms = np.empty((*out.shape[:2], self.energy.n_features))
        self.energy.terms(x, cluster, terms, *carve(scratch, self.energy.scratch_width))
        self._add_up(terms, out)

    def differentiate(self, *_: Floats) -> None:
        """Not known: what a step does to a column may have no slope. `Network.gradient` says so."""
        raise NotImplementedError

    def with_means(self, means: Floats, sizes: Codes) -> Energy:
        """With what the energy of the features makes of the means."""
        return ColumnsEnergy(self.energy.with_means(means, sizes), self.source, self.n_features)

    def _add_up(self, split: Floats, out: Floats) -> None:
        """(..., D) to (..., columns)."""
        if len(self._columns) < self.n_features:
            out[...] = 0.0
        if not self._order.size:
            return
        ordered = split if self._in_order else split[..., self._order]
        if len(self._columns) == self.n_features:
            np.add.reduceat(ordered, self._starts, axis=-1, out=out)
        else:
            out[..., self._columns] = np.add.reduceat(ordered, self._starts, axis=-1)
        if len(self._order) < len(self.source):
            rest = split[..., self.source < 0].sum(axis=-1, keepdims=True)
            out[..., self._columns] += rest / len(self._columns)
