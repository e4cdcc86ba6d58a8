"""Networks for models that assign each point to its nearest centroid."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from whycluster.core.arrays import Floats
from whycluster.core.energies import Energy, LinearEnergy, SquaredEnergy
from whycluster.core.errors import InvalidInputError
from whycluster.data.opening import column_names, open_table
from whycluster.data.validation import check_choice
from whycluster.models.energies import CosineEnergy, ManhattanEnergy, StudentEnergy
from whycluster.models.network import Network, TableNetwork
from whycluster.models.verification import Verification

METRICS: dict[str, Callable[[Floats], Energy]] = {
    "euclidean": SquaredEnergy,
    "manhattan": ManhattanEnergy,
    "cosine": CosineEnergy,
    "dot": LinearEnergy,
    "student": StudentEnergy,
    "fuzzy": StudentEnergy.fuzzy,
}


def nearest_centroid(
    centroids: Any,
    *,
    metric: str = "euclidean",
    labels: ArrayLike | None = None,
    feature_names: Sequence[Hashable] | None = None,
    predict: Callable[[Any], Any] | None = None,
    kind: str = "the model",
) -> Network:
    """Return the network of a nearest-centroid model (Prop. 1), which need not use Euclidean distances.

    Parameters
    ----------
    centroids : (K, d)
    metric : "euclidean", "manhattan", "cosine" (spherical k-means), "dot" (a soft head: the probabilities are
        the softmax of the products), "student" (the head of DEC and IDEC: the probabilities are those of
        Student's t-distribution) or "fuzzy" (fuzzy c-means with m = 2: the probabilities are the memberships)
    labels : (K,) the model's names for its clusters
    feature_names : (d,) the model's names for its columns
    predict : the model's own ``predict``, if it might not return the nearest centroid. It is called for every
        table, and an error is raised if its clusters differ from those of the network.
    kind : the model's class, for messages
    """
    table = open_table(centroids, where="neuralize", name="centroids", model_names=feature_names)
    found = table.first_not_finite()
    if found is not None:
        raise InvalidInputError(
            f"neuralize: centroids must be finite; feature {found[1]!r} of centroid {found[0]} is {found[2]}."
        )
    energy = METRICS[metric](table.to_array())
    rule = "the nearest of its cluster_centers_" + f" ({metric})" * (metric != "euclidean")
    # Student's t and squared distances give the same assignments, and squared distances are cheaper.
    compared = energy.squares if isinstance(energy, StudentEnergy) else energy
    verification = (
        None if predict is None else Verification(compared, predict, rule, kind, feature_names is not None)
    )
    return TableNetwork(energy, labels=labels, feature_names=feature_names, verification=verification)


def from_centroids(model: Any, metric: str = "euclidean", where: str = "neuralize") -> Network:
    """Return the network of centroids, or of a model with centroids, whose predictions are verified later."""
    names = column_names(model, "neuralize", "centroids")
    is_array = isinstance(model, (np.ndarray, list, tuple)) and n_dimensions(model) != 1
    predicts = has_value(model, "predict") and has_value(model, "cluster_centers_")
    if names is None and not is_array and not predicts:
        raise InvalidInputError(
            f"{where}: metric applies only to centroids, or to a fitted model with cluster_centers_ and "
            f"predict; got {type(model).__name__}."
        )
    check_choice(metric, METRICS, where, "metric")
    if names is not None or is_array:
        return nearest_centroid(model, metric=metric, feature_names=names)
    return nearest_centroid(
        model.cluster_centers_,
        metric=metric,
        feature_names=getattr(model, "feature_names_in_", None),
        predict=model.predict,
        kind=type(model).__name__,
    )


def has_value(model: Any, name: str) -> bool:
    """Return whether a model has an attribute that is not None."""
    return getattr(model, name, None) is not None


def n_dimensions(model: Any) -> int:
    """Return the number of dimensions of an array or of nested lists."""
    try:
        return np.ndim(model)
    except ValueError:  # lists of different lengths: rejected later as centroids
        return 2
