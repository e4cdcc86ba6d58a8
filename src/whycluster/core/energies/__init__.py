"""Energies: one file per family of clustering models.

A model gives each point x one energy s_k(x) per cluster and assigns x to the cluster with the lowest energy.
Each energy has a split over the features, e_k(x), that adds up to s_k(x), except for a part that belongs to
no single feature, usually a constant per cluster. Most code needs nothing else. Only trees differ: they
compare pairs of nodes instead of clusters.

Read `energy` (the interface) first, then `additive` (sums over the features), `squared` (k-means, with the
features measured from midpoints or from 0), `gaussian` (mixtures), `linear` (soft heads, cosine), `kernel`
(kernel k-means, noise), `student` (DEC) and `tree`.
"""

from whycluster.core.energies.additive import AdditiveEnergy, ManhattanEnergy, MixedEnergy
from whycluster.core.energies.energy import Energy
from whycluster.core.energies.gaussian import DiagonalGaussianEnergy, GaussianEnergy
from whycluster.core.energies.kernel import FloorEnergy, KernelEnergy
from whycluster.core.energies.linear import CosineEnergy, LinearEnergy
from whycluster.core.energies.squared import SquaredEnergy, ZeroReferenceEnergy
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
    "ZeroReferenceEnergy",
]
