"""The base class of energies that compute new features and leave the clusters to an inner energy."""

from __future__ import annotations

from copy import copy
from typing import TYPE_CHECKING

from whycluster.core.arrays import Floats
from whycluster.core.energies.energy import Energy

if TYPE_CHECKING:
    from typing_extensions import Self


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
        self.rest = energy.rest

    def around(self, energy: Energy) -> Self:
        """Return a copy with another inner energy, or the same object if it has this inner energy."""
        if energy is self.energy:
            return self
        found = copy(self)
        found.energy = energy
        return found

    def _inner_scratch(self, scratch: Floats) -> Floats:
        """Return a contiguous part of the scratch for the inner energy."""
        width = self.energy.scratch_width
        return scratch.reshape(-1)[: len(scratch) * width].reshape(-1, width)
