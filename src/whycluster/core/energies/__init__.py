"""Energies: one file per family of models in the paper; `whycluster.models.energies` contains the others.

A model gives each point x one energy s_k(x) per cluster and assigns x to the cluster with the lowest energy.
Each energy has a split over the features, e_k(x), that adds up to s_k(x), except for a part that belongs to
no single feature, usually a constant per cluster. Most code needs nothing else.

Read `energy` (the interface) first, then `additive` (sums over the features), `squared` (k-means), `kernel`
(kernel k-means) and `linear` (soft heads).
"""

from whycluster.core.energies.additive import AdditiveEnergy
from whycluster.core.energies.energy import Energy
from whycluster.core.energies.kernel import KernelEnergy
from whycluster.core.energies.linear import LinearEnergy
from whycluster.core.energies.squared import SquaredEnergy

__all__ = ["AdditiveEnergy", "Energy", "KernelEnergy", "LinearEnergy", "SquaredEnergy"]
