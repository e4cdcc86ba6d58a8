"""The base class of energies that compute new features and leave the clusters to an inner energy."""

from __future__ import annotations

from whycluster.core.arrays import Floats
from whycluster.core.energies.energy import Energy


class WrappedEnergy(Energy):
    """An energy with the same clusters as an inner energy, split over other features.

    Parameters
    ----------
    energy : the inner energy
    """

    def __init__(self, energy: Energy) -> None:
        self.energy = energy
        self.n_clusters, self.contest, self.stiffness = energy.n_clusters, energy.contest, energy.stiffness
        self.gives_probabilities, self.adds_up = energy.gives_probabilities, energy.adds_up
        self.title, self.distance, self.unattributed = energy.title, energy.distance, energy.unattributed

    def _inner_scratch(self, scratch: Floats) -> Floats:
        """Return a contiguous part of the scratch for the inner energy."""
        width = self.energy.scratch_width
        return scratch.reshape(-1)[: len(scratch) * width].reshape(-1, width)
