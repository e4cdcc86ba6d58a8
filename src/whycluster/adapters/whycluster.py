"""The estimators of this package."""

from __future__ import annotations

from whycluster.estimators import check_fitted, names_of
from whycluster.kernel_kmeans import KernelKMeans
from whycluster.network import Network
from whycluster.neuralization import adapt
from whycluster.surrogate import Surrogate


@adapt.register
def _kernel_kmeans(model: KernelKMeans) -> Network:
    check_fitted(model)
    return Network(model.energy, feature_names=names_of(model))


@adapt.register
def _surrogate(model: Surrogate) -> Network:
    check_fitted(model)
    return model.network(names_of(model))
