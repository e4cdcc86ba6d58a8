"""tslearn: k-means of time series under the Euclidean distance and under dynamic time warping."""

from __future__ import annotations

from typing import Any

import numpy as np
from tslearn.clustering import TimeSeriesKMeans

from whycluster.core.energies import Energy, SquaredEnergy
from whycluster.core.errors import InvalidInputError, UnsupportedModelError
from whycluster.data.labels import BY_LABELS
from whycluster.models.adapters.registry import adapt, check_fitted
from whycluster.models.energies import AlignmentEnergy
from whycluster.models.network import Network
from whycluster.models.series_network import SeriesNetwork

_TAKES = {"euclidean": set[str](), "dtw": set[str](), "softdtw": {"gamma"}}


@adapt.register(TimeSeriesKMeans)
def _time_series(model: Any) -> Network:
    check_fitted(model)
    centers = np.asarray(model.cluster_centers_, dtype=np.float64)
    options = model.metric_params or {}
    ignored = {"n_jobs", "verbose"}
    if model.metric not in _TAKES or set(options) - ignored - _TAKES[model.metric]:
        raise UnsupportedModelError(
            "neuralize: TimeSeriesKMeans must have metric='euclidean', 'dtw' or 'softdtw', and no "
            f"metric_params except gamma; got {model.metric!r} with {options!r}. {BY_LABELS}"
        )
    if not np.isfinite(centers).all():
        raise InvalidInputError(
            "neuralize: the TimeSeriesKMeans must have been fitted on series of equal length; its centers "
            "have missing values. Resample the series to one length and fit it again."
        )
    return SeriesNetwork(_energy(model, centers, options), *centers.shape[1:])


def _energy(model: Any, centers: Any, options: dict[str, Any]) -> Energy:
    if model.metric == "euclidean":
        return SquaredEnergy(centers.reshape(len(centers), -1))
    gamma = float(options.get("gamma", 1.0)) if model.metric == "softdtw" else 0.0
    return AlignmentEnergy(centers, centers.shape[1], gamma)
