"""kmedoids: medoids under the Euclidean, Manhattan or cosine distance."""

from __future__ import annotations

from typing import Any

import numpy as np
from kmedoids import KMedoids

from whycluster.core.errors import UnsupportedModelError
from whycluster.data.labels import BY_LABELS
from whycluster.models.adapters.incomplete import OnlyLabels
from whycluster.models.adapters.registry import adapt, check_fitted
from whycluster.models.nearest_centroid import nearest_centroid
from whycluster.models.network import Network

# A distance and its square have the same nearest medoid.
_METRICS = {
    "euclidean": "euclidean",
    "l2": "euclidean",
    "sqeuclidean": "euclidean",
    "manhattan": "manhattan",
    "cityblock": "manhattan",
    "l1": "manhattan",
    "cosine": "cosine",
}


@adapt.register(KMedoids)
def _kmedoids(model: Any) -> Network | OnlyLabels:
    check_fitted(model)
    if model.cluster_centers_ is None:  # fitted on precomputed distances
        return OnlyLabels(model.labels_, "the labels of KMedoids")
    if model.metric not in _METRICS or model.metric_params:
        raise UnsupportedModelError(
            f"neuralize: KMedoids must use a metric that adds up over the features "
            f"({', '.join(map(repr, _METRICS))}); "
            f"got {model.metric!r}. {BY_LABELS}"
        )
    # predict labels a cluster by the row number of its medoid, so the network does, too.
    return nearest_centroid(
        model.cluster_centers_, metric=_METRICS[model.metric], labels=model.medoid_indices_.astype(np.intp)
    )
