"""Energies: what a clustering model compares. One file per family of models.

A model gives each point x one energy per cluster, s_k(x), and assigns x to the least. Every energy has a
split over the features, e_k(x), which adds up to s_k(x) but for a constant of the cluster; no feature is
responsible for that. More the rest of the package need not know, but for trees: they compare pairs of nodes.
"""

from whycluster.energies.additive import AdditiveEnergy, ManhattanEnergy, MixedEnergy
from whycluster.energies.columns import ColumnsEnergy
from whycluster.energies.descent import TreeEnergy
from whycluster.energies.energy import Energy
from whycluster.energies.gaussian import DiagonalGaussianEnergy, GaussianEnergy
from whycluster.energies.linear import CosineEnergy, LinearEnergy
from whycluster.energies.mixing import BentEnergy, LinearMap, through
from whycluster.energies.softmin import FloorEnergy, KernelEnergy
from whycluster.energies.squared import SquaredEnergy
from whycluster.energies.student import StudentEnergy

__all__ = [
    "AdditiveEnergy",
    "BentEnergy",
    "ColumnsEnergy",
    "CosineEnergy",
    "DiagonalGaussianEnergy",
    "Energy",
    "FloorEnergy",
    "GaussianEnergy",
    "KernelEnergy",
    "LinearEnergy",
    "LinearMap",
    "ManhattanEnergy",
    "MixedEnergy",
    "SquaredEnergy",
    "StudentEnergy",
    "TreeEnergy",
    "through",
]
