"""Sums of dissimilarities over the features: Manhattan distances, and mismatches of categories."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from whycluster.core.arrays import Floats
from whycluster.core.energies import AdditiveEnergy


class ManhattanEnergy(AdditiveEnergy):
    """s_k = sum_i |x_i - mu_ki|: k-medoids and k-medians under the Manhattan distance."""

    title = "nearest center, by Manhattan distance"
    distance = "manhattan"

    def split(self, x: Floats, k: int, out: Floats) -> None:
        """Write |x - mu_k|."""
        np.subtract(x, self.prototypes[k], out=out)
        np.abs(out, out=out)

    def slope(self, x: Floats, k: int, out: Floats) -> None:
        """Write the sign of x - mu_k, which is 0 at the prototype."""
        np.subtract(x, self.prototypes[k], out=out)
        np.sign(out, out=out)


class MixedEnergy(AdditiveEnergy):
    """Squared differences of numbers plus weighted mismatches of categories, for k-modes and k-prototypes.

    Parameters
    ----------
    prototypes : (K, d) numeric values and, for categorical features, category codes
    categorical : (d,) which features are categorical
    gamma : the weight of a mismatch
    """

    title = "fewest mismatches of categories, as in k-modes"
    categorical: NDArray[np.bool_]

    def __init__(self, prototypes: Floats, categorical: NDArray[np.bool_], gamma: float = 1.0) -> None:
        super().__init__(prototypes)
        self.categorical = np.array(categorical, dtype=bool)
        self.gamma = float(gamma)

    def split(self, x: Floats, k: int, out: Floats) -> None:
        """Write (x - mu_k)^2 for numeric features, and gamma for categorical features that differ."""
        np.subtract(x, self.prototypes[k], out=out)
        np.square(out, out=out)
        out[:, self.categorical] = self.gamma * (out[:, self.categorical] != 0.0)

    def slope(self, x: Floats, k: int, out: Floats) -> None:
        """Write 2 (x - mu_k) for numeric features, and 0 for categories, since no small step changes them."""
        np.subtract(x, self.prototypes[k], out=out)
        out *= np.where(self.categorical, 0.0, 2.0)
