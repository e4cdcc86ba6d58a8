"""whycluster: why is this row in this cluster?

Any clustering model is rewritten, without retraining, as a neural network that assigns every row as the
model does (`neuralize`); the evidence for the cluster is then propagated back to the features (`explain`).
"""

from whycluster.errors import (
    InvalidInputError,
    MissingDependencyError,
    NotFittedError,
    UnsupportedModelError,
    WhyClusterError,
)
from whycluster.explain import explain
from whycluster.explanation import Explanation
from whycluster.network import Network
from whycluster.neuralize import neuralize

__version__ = "0.1.0"

__all__ = [
    "Explanation",
    "InvalidInputError",
    "MissingDependencyError",
    "Network",
    "NotFittedError",
    "UnsupportedModelError",
    "WhyClusterError",
    "explain",
    "neuralize",
]
