"""Mixtures of independent binary features: latent class analysis."""

from __future__ import annotations

import numpy as np

from whycluster.core.arrays import Floats
from whycluster.core.energies import AdditiveEnergy, LinearEnergy
from whycluster.core.energies.energy import Parts
from whycluster.core.errors import InvalidInputError

_CLOSEST = 1e-15  # StepMix keeps probabilities this far from 0 and 1


class BernoulliEnergy(AdditiveEnergy):
    """s_k = -log of the weighted probability, for binary features that are independent within a class.

    The split is -(x log p_k + (1 - x) log(1 - p_k)), feature by feature. The weight of the class belongs to
    no feature.

    Parameters
    ----------
    probabilities : (K, d) p_k, the probability of a 1 in each class
    log_weights : (K,) log pi_k
    """

    gives_probabilities = True
    stiffness = 1.0
    adds_up = False
    unattributed = "the weights of the classes"
    title = "a mixture of binary features"

    def __init__(self, probabilities: Floats, log_weights: Floats) -> None:
        given = np.asarray(probabilities, dtype=np.float64)
        if not ((given >= 0.0) & (given <= 1.0)).all():
            raise InvalidInputError("BernoulliEnergy: probabilities must be between 0 and 1; some are not.")
        super().__init__(given)
        p = np.clip(self.prototypes, _CLOSEST, 1.0 - _CLOSEST)
        self.log_weights = np.array(log_weights, dtype=np.float64)
        self._ones, self._zeros = -np.log(p), -np.log(1.0 - p)

    def split(self, x: Floats, k: int, out: Floats) -> None:
        """Write -(x log p_k + (1 - x) log(1 - p_k))."""
        np.multiply(x, self._ones[k] - self._zeros[k], out=out)
        out += self._zeros[k]

    def slope(self, x: Floats, k: int, out: Floats) -> None:  # noqa: ARG002  # linear
        """Write log(1 - p_k) - log p_k."""
        out[...] = self._ones[k] - self._zeros[k]

    def energies(self, x: Floats, out: Floats, scratch: Floats) -> None:
        """Write -log pi_k plus the sum of the split."""
        super().energies(x, out, scratch)
        out -= self.log_weights

    def linearized(self) -> LinearEnergy:
        """Return the same energies as products with the log odds."""
        return LinearEnergy(self._zeros - self._ones, self.log_weights - self._zeros.sum(axis=1))

    @property
    def parts(self) -> Parts:
        """The classes, with their weights."""
        return Parts(np.arange(self.n_clusters), self.log_weights)
