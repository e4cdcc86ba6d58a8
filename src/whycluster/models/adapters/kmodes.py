"""kmodes: k-modes and k-prototypes, for tables with unencoded categorical columns."""

from __future__ import annotations

from typing import Any

import numpy as np
from kmodes.kmodes import KModes
from kmodes.kprototypes import KPrototypes
from kmodes.util.dissim import euclidean_dissim, matching_dissim, ng_dissim

from whycluster.core.errors import UnsupportedModelError
from whycluster.data.labels import BY_LABELS
from whycluster.models.adapters.incomplete import AwaitingColumns
from whycluster.models.adapters.registry import adapt, check_fitted
from whycluster.models.energies import MixedEnergy
from whycluster.models.network import Network, TableNetwork

_MATCHING = (matching_dissim, ng_dissim)  # both dissimilarities give the same predictions


@adapt.register(KModes)
def _kmodes(model: Any) -> Network:
    _check(model)
    modes = np.asarray(model._enc_cluster_centroids, dtype=np.float64)
    categorical = np.ones(modes.shape[1], dtype=bool)
    return TableNetwork(MixedEnergy(modes, categorical), categories=_categories(model))


@adapt.register(KPrototypes)
def _kprototypes(model: Any) -> AwaitingColumns:
    """Return a model that awaits its categorical columns, since KPrototypes records only their number."""
    _check(model)
    if model.num_dissim is not euclidean_dissim:
        raise UnsupportedModelError(
            f"neuralize: KPrototypes must have num_dissim=euclidean_dissim; got {model.num_dissim!r}. "
            f"{BY_LABELS}"
        )
    numbers, modes = (np.asarray(part, dtype=np.float64) for part in model._enc_cluster_centroids)
    gamma, categories = float(model.gamma), _categories(model)

    n_features = numbers.shape[1] + modes.shape[1]

    def place(columns: list[int]) -> Network:
        is_category = np.isin(np.arange(n_features), columns)
        prototypes = np.empty((len(modes), n_features))
        prototypes[:, columns], prototypes[:, ~is_category] = modes, numbers
        known = dict(zip(columns, categories, strict=True))
        return TableNetwork(
            MixedEnergy(prototypes, is_category, gamma), categories=[known.get(i) for i in range(n_features)]
        )

    return AwaitingColumns("KPrototypes", n_features, modes.shape[1], place)


def _categories(model: Any) -> list[list[Any]]:
    """Return the categories of each column in the order of their codes."""
    ordered = [sorted(codes, key=codes.__getitem__) for codes in model._enc_map]
    return [[v.item() if isinstance(v, np.generic) else v for v in values] for values in ordered]


def _check(model: Any) -> None:
    check_fitted(model)
    kind = type(model).__name__
    if model.cat_dissim not in _MATCHING:
        raise UnsupportedModelError(
            f"neuralize: {kind} must use a dissimilarity that counts mismatches, either matching_dissim or "
            f"ng_dissim; got {model.cat_dissim!r}. {BY_LABELS}"
        )
