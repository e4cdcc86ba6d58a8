"""whycluster: why is this row in this cluster?

Any clustering model is rewritten, without retraining, as a neural network that assigns every row as the
model does (`neuralize`); the evidence for the cluster is then propagated back to the features (`explain`).
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from whycluster import deep as deep
    from whycluster import evaluation, findings, plots, tabular, text
    from whycluster.engines.anndata import explain_anndata
    from whycluster.engines.dataset import explain_dataset
    from whycluster.errors import (
        ColumnWarning,
        FidelityWarning,
        FilesWarning,
        GradientWarning,
        InvalidInputError,
        MissingDependencyError,
        NotFittedError,
        UnsupportedModelError,
        WhyClusterError,
    )
    from whycluster.explaining import explain
    from whycluster.explanation import Explanation
    from whycluster.kernel_kmeans import KernelKMeans
    from whycluster.marks import elementwise
    from whycluster.network import Network
    from whycluster.neuralization import neuralize
    from whycluster.saving import load, save
    from whycluster.surrogate import Surrogate

__version__ = "0.1.0"

__all__ = [  # without deep: ``from whycluster import *`` has to work where there is no torch
    "ColumnWarning",
    "Explanation",
    "FidelityWarning",
    "FilesWarning",
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
    "explain_anndata",
    "explain_dataset",
    "findings",
    "load",
    "neuralize",
    "plots",
    "save",
    "tabular",
    "text",
]

_PACKAGES = ("deep", "evaluation", "findings", "plots", "tabular", "text")
_HOMES = {
    "Explanation": "explanation",
    "KernelKMeans": "kernel_kmeans",
    "Network": "network",
    "Surrogate": "surrogate",
    "elementwise": "marks",
    "explain": "explaining",
    "explain_anndata": "engines.anndata",
    "explain_dataset": "engines.dataset",
    "load": "saving",
    "neuralize": "neuralization",
    "save": "saving",
}


def __getattr__(name: str) -> Any:
    """Whatever is asked for, loaded then: NumPy and scikit-learn take their time, and the help needs none.

    No module is called like what it holds, since importing it would put it in the place of that.
    """
    if name in _PACKAGES:
        return importlib.import_module(f"whycluster.{name}")
    if name not in __all__:
        raise AttributeError(f"module 'whycluster' has no attribute {name!r}")
    found = getattr(importlib.import_module(f"whycluster.{_HOMES.get(name, 'errors')}"), name)
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__, *_PACKAGES})
