"""whycluster: why is this row in this cluster?

Any clustering model is rewritten, without retraining, as a neural network that assigns every row as the
model does (`neuralize`); the evidence for the cluster is then propagated back to the features (`explain`).
"""

from typing import TYPE_CHECKING, Any

from whycluster.elementwise import elementwise
from whycluster.errors import (
    ColumnWarning,
    FidelityWarning,
    GradientWarning,
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

if TYPE_CHECKING:
    from whycluster import deep as deep
    from whycluster import evaluation, plots, tabular, text
    from whycluster.kernel_kmeans import KernelKMeans
    from whycluster.surrogate import Surrogate

__version__ = "0.1.0"

__all__ = [  # without deep: ``from whycluster import *`` has to work where there is no torch
    "ColumnWarning",
    "Explanation",
    "FidelityWarning",
    "GradientWarning",
    "InvalidInputError",
    "KernelKMeans",
    "MissingDependencyError",
    "Network",
    "NotFittedError",
    "Surrogate",
    "UnsupportedModelError",
    "WhyClusterError",
    "elementwise",
    "evaluation",
    "explain",
    "neuralize",
    "plots",
    "tabular",
    "text",
]


def __getattr__(name: str) -> Any:
    """What needs scikit-learn or torch, which take their time to load, when it is asked for."""
    if name in ("deep", "evaluation", "plots", "tabular", "text"):
        import importlib

        return importlib.import_module(f"whycluster.{name}")
    if name == "KernelKMeans":
        from whycluster.kernel_kmeans import KernelKMeans

        return KernelKMeans
    if name == "Surrogate":
        from whycluster.surrogate import Surrogate

        return Surrogate
    raise AttributeError(f"module 'whycluster' has no attribute {name!r}")
