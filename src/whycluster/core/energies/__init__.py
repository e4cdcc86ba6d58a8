"""Energies: what a clustering model compares. One file per family of models.

A model gives each point x one energy per cluster, s_k(x), and assigns x to the least. Every energy has a
split over the features, e_k(x), which adds up to s_k(x) but for a constant of the cluster; no feature is
responsible for that. More the rest of the package need not know, but for trees: they compare pairs of nodes.
"""

from whycluster.core.energies.additive import AdditiveEnergy, ManhattanEnergy, MixedEnergy
from whycluster.core.energies.energy import Energy
from whycluster.core.energies.gaussian import DiagonalGaussianEnergy, GaussianEnergy
from whycluster.core.energies.kernel import FloorEnergy, KernelEnergy
from whycluster.core.energies.linear import CosineEnergy, LinearEnergy
from whycluster.core.energies.squared import SquaredEnergy
from whycluster.core.energies.student import StudentEnergy
from whycluster.core.energies.tree import TreeEnergy

__all__ = [
    "AdditiveEnergy",
    "CosineEnergy",
    "DiagonalGaussianEnergy",
    "Energy",
    "FloorEnergy",
    "GaussianEnergy",
    "KernelEnergy",
    "LinearEnergy",
    "ManhattanEnergy",
    "MixedEnergy",
    "SquaredEnergy",
    "StudentEnergy",
    "TreeEnergy",
]
