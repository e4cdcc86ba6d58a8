"""A model with shuffled features, for the randomization check."""

from __future__ import annotations

import numpy as np

from whycluster.core.arrays import Codes, Floats
from whycluster.core.energies.energy import Energy, Parts, carve
from whycluster.pipelines.wrapped_energy import WrappedEnergy


class ShuffledEnergy(WrappedEnergy):
    """The energy s_k(T x), where (T x)_i = factor_i x_order(i) + shift_i.

    For k-means, this shuffles the coordinates of the centroids.

    Parameters
    ----------
    energy : the energy of the original model
    order : (d,) the feature that replaces each feature
    factor, shift : (d,) the scale and offset of each replacement; a negative factor mirrors the feature
    """

    def __init__(self, energy: Energy, order: Codes, factor: Floats, shift: Floats) -> None:
        super().__init__(energy)
        self.order, self.factor = order, factor
        self.shift = shift if energy.offset is None else shift - energy.offset
        self.n_features, self.offset = energy.n_features, None
        self.scratch_width = 2 * self.n_features + energy.scratch_width

    def energies(self, x: Floats, out: Floats, scratch: Floats) -> None:
        """Write the energies of the shuffled rows."""
        moved, _, rest = self._move(x, scratch)
        self.energy.energies(moved, out, rest)

    def combine(self, x: Floats, weights: Floats, out: Floats, scratch: Floats) -> None:
        """Write the weighted terms of the shuffled rows, each into the column of its original feature."""
        moved, split, rest = self._move(x, scratch)
        self.energy.combine(moved, weights, split, rest)
        out[:, self.order] = split

    @property
    def parts(self) -> Parts:
        """The parts of the original energy."""
        return self.energy.parts

    def terms(self, x: Floats, cluster: Codes, out: Floats, scratch: Floats) -> None:
        """Write the terms of the shuffled rows, each into the column of its original feature."""
        moved, _, rest = self._move(x, scratch)
        terms = np.empty_like(out)
        self.energy.terms(moved, cluster, terms, rest)
        out[:, :, self.order] = terms

    def differentiate(self, x: Floats, weights: Floats, out: Floats, scratch: Floats) -> None:
        """Compute the gradient by the chain rule and write it into ``out``."""
        moved, slope, rest = self._move(x, scratch)
        self.energy.differentiate(moved, weights, slope, rest)
        slope *= self.factor
        out[:, self.order] = slope

    def _move(self, x: Floats, scratch: Floats) -> list[Floats]:
        """Return T x, an array for a result, and the rest of the scratch array."""
        d = self.n_features
        moved, result, rest = carve(scratch, d, d, self.energy.scratch_width)
        np.take(x, self.order, axis=1, out=moved)
        moved *= self.factor
        moved += self.shift
        return [moved, result, rest]
