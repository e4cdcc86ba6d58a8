"""`spatial_clusters` clusters the locations of an image in one layer of a network, as in the paper."""

from __future__ import annotations

from typing import Any

import torch
from sklearn.cluster import KMeans

from whycluster.core.errors import InvalidInputError
from whycluster.data.validation import check_integer
from whycluster.deep.clustering import DeepClustering
from whycluster.deep.encoder import Encoder, Inputs
from whycluster.deep.explanation import SpatialExplanation
from whycluster.deep.network import check_readout, encode_points


def spatial_clusters(
    encoder: torch.nn.Module,
    image: Any,
    layer: str | None,
    n_clusters: int = 8,
    *,
    normalize: bool = True,
    n_init: int = 3,
    random_state: Any = 0,
    reference: str = "auto",
    rules: Any = "auto",
    bounds: tuple[Any, Any] | None = None,
    batch_size: int | None = None,
    at: str | None = None,
    units: str | None = None,
    beta: float | str = "auto",
    rule: str | None = None,
) -> SpatialExplanation:
    """Cluster the locations of an image in a layer and return a pixel heat map for each cluster.

    The heat maps show which parts of the image the layer distinguishes. Each location of the layer output is
    one point, scaled to unit length by default. k-means clusters these points. For each cluster, the evidence
    of its locations is then propagated to the pixels.

    Parameters
    ----------
    encoder : a torch module in evaluation mode
    image : one image, (channels, height, width), or a batch of images that are clustered together
    layer : the name of a layer, as in ``encoder.named_modules()``; or None for the output of the encoder
    n_clusters : the number of clusters
    normalize : whether points are scaled to unit length
    n_init, random_state : parameters of k-means
    reference, rules, bounds, batch_size : as in `DeepClustering`. The paper uses ``reference="midpoint"``.
    at, units, beta, rule : as in `whycluster.explain`; by default, the rule is "joint". The paper uses
        ``rule="min-take-most"``.

    Returns
    -------
    SpatialExplanation, whose ``plot()`` draws all heat maps
    """
    check_integer(n_clusters, 2, "spatial_clusters", "n_clusters")
    X = image[None] if getattr(image, "ndim", None) == 3 else image
    source = Encoder(encoder, layer, None, batch_size, "spatial_clusters")
    check_readout(source, at, units, "spatial_clusters")
    inputs = Inputs.open(X, "spatial_clusters", "image")
    rows, layout = encode_points(source, inputs, spatial=True, normalize=normalize)
    if len(rows) < n_clusters:
        raise InvalidInputError(
            f"spatial_clusters: the layer must have at least n_clusters={n_clusters} locations; it has "
            f"{len(rows)}. Name an earlier layer, or request fewer clusters."
        )
    head = KMeans(n_clusters, n_init=n_init, random_state=random_state).fit(rows)
    model = DeepClustering(
        encoder,
        head,
        layer=layer,
        spatial=True,
        normalize=normalize,
        reference=reference,
        rules=rules,
        bounds=bounds,
        batch_size=batch_size,
    )
    exp: SpatialExplanation = model.network.explain_points(
        inputs, rows, layout, at, units, beta=beta, rule=rule
    )
    return exp
