"""scikit-learn's KNeighborsClassifier: the class with the most votes of the nearest rows."""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy.sparse import issparse
from sklearn.neighbors import KNeighborsClassifier

from whycluster.core.errors import UnsupportedModelError
from whycluster.data.labels import BY_LABELS
from whycluster.models.adapters.density import known_metric, ordered
from whycluster.models.adapters.registry import adapt, check_fitted, names_of
from whycluster.models.energies.neighbors import NeighborEnergy
from whycluster.models.network import Network, TableNetwork


@adapt.register(KNeighborsClassifier)
def _classifier(model: Any) -> Network:
    check_fitted(model)
    metric = known_metric(model.metric, model.p)
    codes = np.asarray(model._y)
    if model.weights != "uniform" or metric is None or codes.ndim != 1 or issparse(model._fit_X):
        raise UnsupportedModelError(
            "neuralize: KNeighborsClassifier must have weights='uniform', a Euclidean, Manhattan or "
            f"haversine metric, and one class per row of a dense table; got weights={model.weights!r} and "
            f"metric={model.metric!r}. {BY_LABELS}"
        )
    members, sizes, _ = ordered(codes)
    energy = NeighborEnergy(
        np.asarray(model._fit_X, dtype=np.float64)[members],
        sizes,
        metric,
        n_neighbors=int(model.n_neighbors),
        votes=True,
        leaves_out=False,
    )
    return TableNetwork(energy, labels=model.classes_, feature_names=names_of(model))
