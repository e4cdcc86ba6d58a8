"""Clusters of the places of one image, as a network represents them: the showcase of the paper."""

from __future__ import annotations

from typing import Any

import torch
from sklearn.cluster import KMeans

from whycluster.core.errors import InvalidInputError
from whycluster.data.validation import check_whole
from whycluster.deep.clustering import DeepClustering
from whycluster.deep.encoder import Encoder, Inputs
from whycluster.deep.explanation import SpatialExplanation
from whycluster.deep.network import check_reading, points_of


def spatial_clusters(
    encoder: torch.nn.Module,
    image: Any,
    layer: str | None,
    n_clusters: int = 8,
    *,
    normalize: bool = True,
    n_init: int = 3,
    random_state: Any = 0,
    rules: Any = "auto",
    bounds: tuple[Any, Any] | None = None,
    batch_size: int | None = None,
    at: str | None = None,
    units: str | None = None,
    beta: float | str = "auto",
) -> SpatialExplanation:
    """What a layer tells apart in an image: clusters of its places, each with a heat map over the pixels.

    Each place of what the layer gives is one point, of unit length; k-means clusters these, and the evidence
    that the places of a cluster have for it is propagated to the pixels.

    Parameters
    ----------
    encoder : a torch module in the mode of evaluation
    image : (channels, height, width), or a batch of them, clustered together
    layer : the name of a layer, as in ``encoder.named_modules()``; None for what the encoder gives
    n_clusters : how many clusters
    normalize : whether points have unit length
    n_init, random_state : of the k-means
    rules, bounds, batch_size : as in `DeepClustering`
    at, units, beta : as in `whycluster.explain`

    Returns
    -------
    SpatialExplanation, whose ``plot()`` draws all heat maps
    """
    check_whole(n_clusters, 2, "spatial_clusters", "n_clusters")
    X = image[None] if getattr(image, "ndim", None) == 3 else image
    source = Encoder(encoder, layer, None, batch_size, "spatial_clusters")
    check_reading(source, at, units, "spatial_clusters")
    inputs = Inputs.open(X, "spatial_clusters", "image")
    rows, arranged = points_of(source, inputs, spatial=True, normalize=normalize)
    if len(rows) < n_clusters:
        raise InvalidInputError(
            "spatial_clusters: the layer must have at least as many places as there are clusters, "
            f"{n_clusters}; it has {len(rows)}."
        )
    head = KMeans(n_clusters, n_init=n_init, random_state=random_state).fit(rows)
    model = DeepClustering(
        encoder,
        head,
        layer=layer,
        spatial=True,
        normalize=normalize,
        rules=rules,
        bounds=bounds,
        batch_size=batch_size,
    )
    found: SpatialExplanation = model.network.explain_points(inputs, rows, arranged, at, units, beta=beta)
    return found
