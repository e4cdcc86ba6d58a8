"""whycluster: why is this row in this cluster?

A supported clustering model is rewritten, without retraining, as a neural network that assigns every row as
the model does (`neuralize`). The evidence for the cluster is then propagated back to the features
(`explain`).
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
        GradientWarning,
        InvalidInputError,
        MissingDependencyError,
        NotFittedError,
        UnsupportedModelError,
        WhyClusterError,
    )
    from whycluster.data.elementwise import elementwise
    from whycluster.data.warnings import (
        AgreementWarning,
        ColumnWarning,
        FewRowsWarning,
        FidelityWarning,
        FilesWarning,
        PopulationWarning,
        UnstableRelevanceWarning,
    )
    from whycluster.engines.anndata import explain_anndata
    from whycluster.engines.files import explain_dataset, verify_dataset
    from whycluster.explanations import findings
    from whycluster.explanations.explanation import Explanation
    from whycluster.models.adapters.graph import Graph
    from whycluster.models.network import Network, Query, TableNetwork
    from whycluster.pipelines import tabular
    from whycluster.segments.changes.comparing import changes
    from whycluster.segments.changes.result import Changes
    from whycluster.segments.segmentation import Segmentation, segment
    from whycluster.segments.storage.saving import load, save

__version__ = "0.1.0"

__all__ = [  # without deep: ``from whycluster import *`` has to work if torch is not installed
    "AgreementWarning",
    "Changes",
    "ColumnWarning",
    "Explanation",
    "FewRowsWarning",
    "FidelityWarning",
    "FilesWarning",
    "GradientWarning",
    "Graph",
    "InvalidInputError",
    "KernelKMeans",
    "MissingDependencyError",
    "Network",
    "NotFittedError",
    "PopulationWarning",
    "Query",
    "Segmentation",
    "Surrogate",
    "TableNetwork",
    "UnstableRelevanceWarning",
    "UnsupportedModelError",
    "WhyClusterError",
    "changes",
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
    "segment",
    "tabular",
    "text",
    "verify_dataset",
]

_CONTENTS = {  # the table of contents: the module that defines each name, or the module itself
    # Explain
    "explain": "api",
    "neuralize": "api",
    "Graph": "models.adapters.graph",
    "Query": "models.network",
    "Explanation": "explanations.explanation",
    # Data that is not a single table in memory
    "explain_dataset": "engines.files",
    "verify_dataset": "engines.files",
    "explain_anndata": "engines.anndata",
    # Look at explanations
    "plots": "",
    "findings": "explanations",
    "evaluation": "",
    # Cluster tables and labels, and write networks of your own
    "tabular": "pipelines",
    "elementwise": "data.elementwise",
    "KernelKMeans": "clustering.kernel_kmeans",
    "Surrogate": "clustering.surrogate",
    "Network": "models.network",
    "TableNetwork": "models.network",
    # Documents, images and other inputs of encoders
    "text": "",
    "deep": "",
    # Segment rows once, and keep the segmentation
    "segment": "segments.segmentation",
    "Segmentation": "segments.segmentation",
    "changes": "segments.changes.comparing",
    "Changes": "segments.changes.result",
    "save": "segments.storage.saving",
    "load": "segments.storage.saving",
    # Errors and warnings
    "WhyClusterError": "core.errors",
    "InvalidInputError": "core.errors",
    "UnstableRelevanceWarning": "data.warnings",
    "UnsupportedModelError": "core.errors",
    "NotFittedError": "core.errors",
    "MissingDependencyError": "core.errors",
    "AgreementWarning": "data.warnings",
    "FidelityWarning": "data.warnings",
    "ColumnWarning": "data.warnings",
    "FewRowsWarning": "data.warnings",
    "FilesWarning": "data.warnings",
    "PopulationWarning": "data.warnings",
    "GradientWarning": "core.errors",
}
_MODULES = {"deep", "evaluation", "findings", "plots", "tabular", "text"}

for _name, _target in {
    "assign_lazily": "engines.dask:assign_lazily",
    "notebook": "report.notebook:fragment",
    "plot": "plots.accessor:Plots",
    "plot_images": "plots.image_plots:DeepPlots",
    "plot_spatial": "plots.image_plots:spatial_grid",
    "report": "report:write_report",
}.items():
    registry.provide(_name, f"whycluster.{_target}")


def __getattr__(name: str) -> Any:
    """Load a name on first use, so that ``whycluster --help`` does not wait for NumPy and scikit-learn.

    No module has the same name as one of its functions, because importing it would replace the function here.
    """
    if name not in _CONTENTS:
        raise AttributeError(f"module 'whycluster' has no attribute {name!r}")
    home = f"whycluster.{_CONTENTS[name]}".rstrip(".")
    if name in _MODULES:
        return importlib.import_module(f"{home}.{name}")
    found = getattr(importlib.import_module(home), name)
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    return sorted({*globals(), *_CONTENTS})
