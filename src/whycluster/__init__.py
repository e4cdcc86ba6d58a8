"""whycluster: why is this row in this cluster?

Any clustering model is rewritten, without retraining, as a neural network that assigns every row as the
model does (`neuralize`); the evidence for the cluster is then propagated back to the features (`explain`).
"""

import importlib
from typing import TYPE_CHECKING, Any

from whycluster.data import registry

if TYPE_CHECKING:
    from whycluster import deep as deep
    from whycluster import evaluation, plots, text
    from whycluster.api import explain, neuralize
    from whycluster.clustering.kernel_kmeans import KernelKMeans
    from whycluster.clustering.surrogate import Surrogate
    from whycluster.core.errors import (
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
    from whycluster.data.elementwise import elementwise
    from whycluster.engines.anndata import explain_anndata
    from whycluster.engines.files import explain_dataset
    from whycluster.explanations import findings
    from whycluster.explanations.explanation import Explanation
    from whycluster.models.network import Network, Query, TableNetwork
    from whycluster.pipelines import tabular
    from whycluster.storage.saving import load, save

for _name, _target in {
    "assign_lazily": "engines.dask:assign_lazily",
    "notebook": "report.notebook:fragment",
    "plot": "plots.accessor:Plots",
    "plot_images": "plots.image_plots:DeepPlots",
    "plot_spatial": "plots.image_plots:spatial_grid",
    "report": "report:write_report",
}.items():
    registry.provide(_name, f"whycluster.{_target}")

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
    "Query",
    "Surrogate",
    "TableNetwork",
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

_MODULES = {
    "deep": "deep",
    "evaluation": "evaluation",
    "findings": "explanations.findings",
    "plots": "plots",
    "tabular": "pipelines.tabular",
    "text": "text",
}
_HOMES = {
    "Explanation": "explanations.explanation",
    "KernelKMeans": "clustering.kernel_kmeans",
    "Network": "models.network",
    "Query": "models.network",
    "Surrogate": "clustering.surrogate",
    "TableNetwork": "models.network",
    "elementwise": "data.elementwise",
    "explain": "api",
    "explain_anndata": "engines.anndata",
    "explain_dataset": "engines.files",
    "load": "storage.saving",
    "neuralize": "api",
    "save": "storage.saving",
}


def __getattr__(name: str) -> Any:
    """Whatever is asked for, loaded then: NumPy and scikit-learn take their time, and the help needs none.

    No module is called like what it holds, since importing it would put it in the place of that.
    """
    if name in _MODULES:
        return importlib.import_module(f"whycluster.{_MODULES[name]}")
    if name not in __all__:
        raise AttributeError(f"module 'whycluster' has no attribute {name!r}")
    found = getattr(importlib.import_module(f"whycluster.{_HOMES.get(name, 'core.errors')}"), name)
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__, *_MODULES})
