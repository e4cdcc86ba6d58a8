"""The energies of hdbscan's approximate_predict, which assigns rows that the model was not fitted on."""

from __future__ import annotations

import numpy as np

from whycluster.core.arrays import Codes, Floats
from whycluster.models.energies.neighbors import NeighborEnergy
from whycluster.models.energies.pooled import Found, PooledEnergy

_LATER = 1e-9  # a tie goes to the nearest training row: the other energies are larger by this fraction


class PredictionEnergy(PooledEnergy):
    """Training rows have the energies of HDBSCAN's rule; new rows have those of ``approximate_predict``.

    For a new row, s_k = D_k^2, where D_k is the smallest mutual reachability to a member of k among the 2 m
    nearest training rows. Noise has the energy min(D_noise^2, delta^2), where delta is the height at which
    the nearest cluster was born. A cluster without a row among the nearest ones does not compete for the row;
    its energy is that of the rule, and at least that of the winner.

    Parameters
    ----------
    trained : the energies of the rule
    cores : (n,) the core distances that the prediction uses, members first
    n_neighbors : m, min_samples of the model
    """

    title = NeighborEnergy.title

    def __init__(self, trained: NeighborEnergy, cores: Floats, n_neighbors: int) -> None:
        super().__init__(
            trained.members, trained.sizes, trained.metric, has_noise=True, shares=trained.shares
        )
        self.trained, self.n_neighbors = trained, int(n_neighbors)
        self.cores = np.array(cores, dtype=np.float64)
        self.title = trained.title

    @property
    def without_noise(self) -> NeighborEnergy | None:
        """The energies of the rule without noise."""
        return self.trained.without_noise

    def apart_from(self, x: Floats) -> NeighborEnergy:
        """Return the energies of the rule without the row."""
        return self.trained.apart_from(x)

    def differentiate(self, x: Floats, weights: Floats, out: Floats, scratch: Floats) -> None:
        """Write the weighted gradients of the rule."""
        self.trained.differentiate(x, weights, out, scratch)

    def find(self, x: Floats) -> Found:
        """Return the energies of the rule, and for new rows those of the prediction."""
        found = self.trained.find(x)
        everyone = self.trained.everyone
        distance, index = everyone.nearest(x, min(2 * self.n_neighbors, len(everyone)))
        new = np.flatnonzero(distance[:, 0] > self.trained.same)
        constants = np.tile(found.constants, (len(x), 1))
        if new.size:
            rule = np.sqrt(found.energies[new, :-1] - found.constants[:-1])
            constants[new, :-1] = 0.0
            found.energies[new] = self._predict(distance[new], index[new], rule)
            constants[new, -1] = found.energies[new, -1]
        return Found(found.energies, constants, found.decisive)

    def _predict(self, distance: Floats, index: Codes, rule: Floats) -> Floats:
        """Return the energies of new rows, (b, K + 1), given their nearest rows and the D_k of the rule."""
        rows, n_clusters = np.arange(len(distance)), len(self.sizes)
        own = distance[:, [min(self.n_neighbors, distance.shape[1] - 1)]]
        reach = np.maximum(np.maximum(distance, own), self.cores[index])
        cluster = np.searchsorted(np.cumsum(self.sizes), index, side="right")  # K for noise
        first = reach.argmin(axis=1)
        winner, best = cluster[rows, first], reach[rows, first]
        each = np.full((len(distance), n_clusters + 1), np.inf)
        for k in range(n_clusters + 1):
            each[:, k] = np.where(cluster == k, reach, np.inf).min(axis=1)
        there = np.isfinite(each)
        later = (each == best[:, None]) & (np.arange(n_clusters + 1) != winner[:, None])
        each[:, :-1] = np.where(there[:, :-1], each[:, :-1], np.maximum(rule, best[:, None]))
        energies: Floats = np.square(each)
        energies[later | ~there] *= 1.0 + _LATER
        nearest = np.where(there[:, :-1], each[:, :-1], np.inf)
        births = -self.trained.bias[nearest.argmin(axis=1)]
        births = np.where(there[:, :-1].any(axis=1), births, np.inf)
        # A row exactly at the height of birth is noise.
        energies[:, -1] = np.minimum(energies[:, -1], births * (1.0 - 1e-12))
        lost = ~np.isfinite(energies[:, -1])
        energies[lost, -1] = np.square(best[lost]) * (1.0 + _LATER)
        return energies
