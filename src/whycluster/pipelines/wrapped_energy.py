"""The base of energies that compute new features, then leave the clusters to an energy behind them."""

from __future__ import annotations

from whycluster.core.arrays import Floats
from whycluster.core.energies.energy import Energy


class WrappedEnergy(Energy):
    """An energy of the same clusters as another, split over other features.

    Parameters
    ----------
    energy : the energy behind it
    """

    def __init__(self, energy: Energy) -> None:
        self.energy = energy
        self.n_clusters, self.tree, self.stiffness = energy.n_clusters, energy.tree, energy.stiffness
        self.gives_probabilities, self.adds_up = energy.gives_probabilities, energy.adds_up
        self.title = energy.title

    def _inner_scratch(self, scratch: Floats) -> Floats:
        """Return the part of the scratch that the energy behind needs, contiguous."""
        width = self.energy.scratch_width
        return scratch.reshape(-1)[: len(scratch) * width].reshape(-1, width)
