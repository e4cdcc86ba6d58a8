"""MiniSom: self-organizing maps, in which the nearest neuron wins."""

from __future__ import annotations

from typing import Any

import numpy as np
from minisom import MiniSom

from whycluster.core.errors import UnsupportedModelError
from whycluster.models.adapters.registry import adapt
from whycluster.models.nearest_centroid import nearest_centroid
from whycluster.models.network import Network

_METRICS = {
    "_euclidean_distance": "euclidean",
    "_manhattan_distance": "manhattan",
    "_cosine_distance": "cosine",
}


@adapt.register(MiniSom)
def _minisom(model: Any) -> Network:
    """Return the network of a map; a cluster is a neuron, named after its row and column, as in `winner`."""
    distance = model._activation_distance
    name = getattr(distance, "__name__", repr(distance))
    if name not in _METRICS or getattr(distance, "__self__", None) != model:
        raise UnsupportedModelError(
            "neuralize: MiniSom must have the activation_distance 'euclidean', 'manhattan' or 'cosine'; got "
            f"{name.removeprefix('_').removesuffix('_distance')!r}. Explain the winners of the rows as "
            "labels."
        )
    weights = model.get_weights()
    n_rows, n_columns, n_features = weights.shape
    labels = [f"{row},{column}" for row in range(n_rows) for column in range(n_columns)]
    return nearest_centroid(weights.reshape(-1, n_features), metric=_METRICS[name], labels=np.array(labels))
