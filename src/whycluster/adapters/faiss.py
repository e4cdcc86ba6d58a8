"""faiss: its k-means."""

from __future__ import annotations

from typing import Any

from faiss import Kmeans

from whycluster.errors import NotFittedError, UnsupportedModelError
from whycluster.nearest_centroid import nearest_centroid
from whycluster.network import Network
from whycluster.neuralize import adapt


@adapt.register(Kmeans)
def _kmeans(model: Any) -> Network:
    if model.centroids is None:
        raise NotFittedError("neuralize: the faiss.Kmeans must be trained first. Call its train method.")
    if model.cp.spherical:
        raise UnsupportedModelError(
            "neuralize: a spherical faiss.Kmeans assigns by inner product, not to the nearest centroid."
        )
    return nearest_centroid(model.centroids)
