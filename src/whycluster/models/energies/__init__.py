"""Energies of models that the paper does not cover; `whycluster.core.energies` contains the others.

Modules, in reading order:

- `dissimilarities`: sums over the features, such as Manhattan distances and mismatches of categories
- `cosine`: spherical k-means
- `gaussian`: Gaussian mixtures; `bernoulli`: mixtures of binary features
- `student`: soft assignments under Student's t-distribution, as in DEC
- `noise`: a constant energy for rows that are far from all clusters
- `pooled`: clusters given by their members; `neighbors`: the nearest members, as in DBSCAN; `search`: finds
  the nearest rows; `prediction`: new rows in hdbscan; `votes`: spectral clusterings and communities of graphs
- `zero_reference`: squared distances, with the features measured from 0
- `topics`: the weights of topics in LDA and NMF; `alignment`: time series under dynamic time warping
- `context`: rows whose clusters also depend on their context, such as time steps
- `tree`: trees of centroids, which compare pairs of nodes instead of clusters
"""

from whycluster.models.energies.alignment import AlignmentEnergy
from whycluster.models.energies.bernoulli import BernoulliEnergy
from whycluster.models.energies.cosine import CosineEnergy
from whycluster.models.energies.dissimilarities import ManhattanEnergy, MixedEnergy
from whycluster.models.energies.gaussian import DiagonalGaussianEnergy, GaussianEnergy
from whycluster.models.energies.neighbors import NeighborEnergy
from whycluster.models.energies.noise import FloorEnergy
from whycluster.models.energies.prediction import PredictionEnergy
from whycluster.models.energies.student import StudentEnergy
from whycluster.models.energies.topics import DirichletTopicsEnergy, FactorEnergy
from whycluster.models.energies.tree import Tree, TreeEnergy
from whycluster.models.energies.votes import CommunityEnergy, SpectralEnergy
from whycluster.models.energies.zero_reference import ZeroReferenceEnergy

__all__ = [
    "AlignmentEnergy",
    "BernoulliEnergy",
    "CommunityEnergy",
    "CosineEnergy",
    "DiagonalGaussianEnergy",
    "DirichletTopicsEnergy",
    "FactorEnergy",
    "FloorEnergy",
    "GaussianEnergy",
    "ManhattanEnergy",
    "MixedEnergy",
    "NeighborEnergy",
    "PredictionEnergy",
    "SpectralEnergy",
    "StudentEnergy",
    "Tree",
    "TreeEnergy",
    "ZeroReferenceEnergy",
]
