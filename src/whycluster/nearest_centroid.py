"""Networks for models that assign each point to its nearest centroid."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from whycluster import passes
from whycluster.energies import SquaredEnergy
from whycluster.errors import InvalidInputError, UnsupportedModelError
from whycluster.network import Network
from whycluster.propagate import Codes
from whycluster.table import Floats, Table, open_table

ONLY_LABELS = (
    "Any clustering can be explained from its labels, through a stand-in: "
    "model = sklearn.neighbors.NearestCentroid().fit(X, labels), noise left out; "
    "wc.explain(model, X) then explains it, and (wc.neuralize(model).assign(X) == labels).mean() "
    "says how well it matches them."
)


def nearest_centroid(
    centroids: Any,
    *,
    labels: ArrayLike | None = None,
    feature_names: Sequence[Hashable] | None = None,
    predict: Callable[[Any], Any] | None = None,
    kind: str = "the model",
) -> Network:
    """The network of Prop. 1.

    Parameters
    ----------
    centroids : (K, d)
    labels : (K,) the model's names for its clusters
    feature_names : (d,) what the model calls its columns
    predict : the model's own prediction, for a model that only may be a nearest-centroid one: every
        table that comes is then predicted by it too, and a difference is an error
    kind : the model's class, for messages
    """
    table = open_table(centroids, where="neuralize", name="centroids", model_names=feature_names)
    found = table.first_not_finite()
    if found is not None:
        raise InvalidInputError(
            f"neuralize: centroids must be finite; centroid {found[0]}, feature {found[1]!r} is {found[2]}."
        )
    energy = SquaredEnergy(np.concatenate([block.copy() for _, block in table.blocks()]))
    verify = None if predict is None else _Agreement(energy, predict, kind)
    return Network(energy, labels=labels, feature_names=feature_names, verify=verify)


@dataclass(frozen=True)
class _Agreement:
    """Raises if a model's own prediction is not the nearest centroid, on any row that is not a tie."""

    energy: SquaredEnergy
    predict: Callable[[Any], Any]
    kind: str

    def __call__(self, table: Table) -> None:
        nearest = passes.assign(self.energy, table)
        predicted = np.asarray(self.predict(table.native))
        if predicted.shape != nearest.shape or predicted.dtype.kind not in "iu":
            raise UnsupportedModelError(
                f"{table.where}: {self.kind}.predict must give one whole number per row; got "
                f"{predicted.dtype} of shape {predicted.shape} for {table.n_rows} rows."
            )
        wrong = np.flatnonzero(predicted != nearest)
        wrong = wrong[~self._tied(table, wrong, predicted[wrong], nearest[wrong])]
        if wrong.size:
            row = wrong[0]
            raise UnsupportedModelError(
                f"{table.where}: {self.kind} does not predict the nearest of its cluster_centers_, so it has "
                f"no exact network: {wrong.size} of {table.n_rows} rows differ, first row {row} (predicted "
                f"{predicted[row]}, nearest {nearest[row]}). {ONLY_LABELS}"
            )

    def _tied(self, table: Table, rows: Codes, predicted: Codes, nearest: Codes) -> NDArray[np.bool_]:
        """Whether two clusters are as near to each row as the rounding of a prediction can tell."""
        tied = np.zeros(len(rows), dtype=bool)
        known = (predicted >= 0) & (predicted < self.energy.n_clusters)
        if not known.any():
            return tied
        centroids = self.energy.centroids
        middle = centroids.mean(axis=0)
        own, other = centroids[nearest[known]], centroids[predicted[known]]
        part = open_table(table.take(rows[known]), where=table.where, name=table.name)
        x = np.concatenate([block.copy() for _, block in part.blocks()])
        gap = _squares(x - other) - _squares(x - own)
        single, double = np.finfo(np.float32).eps, np.finfo(np.float64).eps
        rounding = single * _squares(x - middle) + double * (_squares(x) + _squares(other))
        tied[known] = gap <= 16 * rounding
        return tied


def _squares(values: Floats) -> Floats:
    """Squared length of each row."""
    return np.asarray(np.einsum("nd,nd->n", values, values))
