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
    metric, found = known_metric(model.effective_metric_), model.effective_metric_params_.items()
    options = {name: value for name, value in sorted(found) if value is not None}
    codes = np.asarray(model._y)
    wrong = {
        f"weights={model.weights!r}": model.weights != "uniform",
        f"metric={model.metric!r}{f' with {options}' if options else ''}": metric is None or bool(options),
        "several classes per row": codes.ndim != 1,
        "a sparse table": issparse(model._fit_X),
    }
    if any(wrong.values()):
        raise UnsupportedModelError(
            "neuralize: KNeighborsClassifier must have weights='uniform', a Euclidean, Manhattan or "
            "haversine metric, and one class per row of a dense table; got "
            f"{' and '.join(text for text in wrong if wrong[text])}. {BY_LABELS}"
        )
    assert metric is not None
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
