"""The estimators of this package."""

from __future__ import annotations

from typing import Any

from whycluster.errors import NotFittedError
from whycluster.kernel_kmeans import KernelKMeans
from whycluster.network import Network
from whycluster.neuralize import adapt
from whycluster.surrogate import Surrogate


@adapt.register
def _kernel_kmeans(model: KernelKMeans) -> Network:
    _check_fitted(model)
    return Network(model.energy, feature_names=_names(model))


@adapt.register
def _surrogate(model: Surrogate) -> Network:
    _check_fitted(model)
    return model.network(_names(model))


def _names(model: Any) -> Any:
    return getattr(model, "feature_names_in_", None)


def _check_fitted(model: Any) -> None:
    if not hasattr(model, "support_vectors_"):
        kind = type(model).__name__
        raise NotFittedError(f"neuralize: the {kind} must be fitted first. Call its fit method.")
