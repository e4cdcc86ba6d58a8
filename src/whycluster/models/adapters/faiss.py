"""faiss: k-means, Euclidean or spherical."""

from __future__ import annotations

from typing import Any

from faiss import Kmeans

from whycluster.core.errors import NotFittedError
from whycluster.models.adapters.registry import adapt
from whycluster.models.nearest_centroid import nearest_centroid
from whycluster.models.network import Network


@adapt.register(Kmeans)
def _kmeans(model: Any) -> Network:
    if model.centroids is None:
        raise NotFittedError("neuralize: the faiss.Kmeans must be trained first. Call its train method.")
    # Spherical k-means takes the largest inner product, which is the largest cosine: centroids have length 1.
    return nearest_centroid(model.centroids, metric="cosine" if model.cp.spherical else "euclidean")
