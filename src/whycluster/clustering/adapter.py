"""Turn the estimators of this package into networks."""

from __future__ import annotations

from whycluster.clustering.kernel_kmeans import KernelKMeans
from whycluster.clustering.surrogate import Surrogate
from whycluster.models.adapters.registry import adapt, check_fitted, names_of
from whycluster.models.network import Network, TableNetwork


@adapt.register
def _kernel_kmeans(model: KernelKMeans) -> Network:
    check_fitted(model)
    return TableNetwork(model.energy, feature_names=names_of(model))


@adapt.register
def _surrogate(model: Surrogate) -> Network:
    check_fitted(model)
    return model.network(names_of(model))
