"""dask-ml: its k-means, and its wrapper that lets other estimators predict in parallel."""

from __future__ import annotations

from typing import Any

from dask_ml.cluster import KMeans
from dask_ml.wrappers import ParallelPostFit

from whycluster.models.adapters.incomplete import AwaitingColumns, OnlyLabels
from whycluster.models.adapters.registry import adapt, adapt_model, check_fitted
from whycluster.models.nearest_centroid import nearest_centroid
from whycluster.models.network import Network


@adapt.register(KMeans)
def _kmeans(model: Any) -> Network:
    check_fitted(model)
    predict = None if type(model) is KMeans else model.predict  # a subclass may predict differently
    return nearest_centroid(model.cluster_centers_, predict=predict, kind=type(model).__name__)


@adapt.register(ParallelPostFit)
def _parallel(model: Any) -> Network | OnlyLabels | AwaitingColumns:
    return adapt_model(getattr(model, "estimator_", model.estimator))
