"""Networks for models that assign each point to its nearest centroid."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from whycluster import passes
from whycluster.arrays import Codes, Floats
from whycluster.energies import SquaredEnergy
from whycluster.errors import InvalidInputError, UnsupportedModelError
from whycluster.labels import Labels
from whycluster.network import Network
from whycluster.table import Table, open_table

_MOST_TIES = 0.1

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
    energy = SquaredEnergy(table.to_array())
    verify = None if predict is None else _Agreement(energy, predict, feature_names is not None, kind)
    return Network(energy, labels=labels, feature_names=feature_names, verify=verify)


@dataclass(frozen=True)
class _Agreement:
    """Raises if a model's own prediction is not the nearest centroid, on any row that is not a tie."""

    energy: SquaredEnergy
    predict: Callable[[Any], Any]
    knows_names: bool
    kind: str

    def __call__(self, table: Table, labels: Labels) -> None:
        nearest = passes.assign(self.energy, table)
        given = self._predict(table)
        predicted = labels.find(given)
        if predicted.shape != nearest.shape:
            raise UnsupportedModelError(
                f"{table.where}: {self.kind}.predict must give one label per row; got shape "
                f"{predicted.shape} for {table.n_rows} rows."
            )
        differ = np.flatnonzero(predicted != nearest)
        tied = self._tied(table, differ, predicted[differ], nearest[differ])
        # Ties are few. If they are many, rounding hides what the model does, and nothing is verified.
        wrong = differ if tied.sum() > _MOST_TIES * table.n_rows + 1 else differ[~tied]
        if wrong.size:
            row = wrong[0]
            raise UnsupportedModelError(
                f"{table.where}: {self.kind} does not predict the nearest of its cluster_centers_, so it has "
                f"no exact network: {wrong.size} of {table.n_rows} rows differ, first row {row} (predicted "
                f"{given[[row]].tolist()[0]!r}, nearest {labels.names[nearest[[row]]].tolist()[0]!r}). "
                f"{ONLY_LABELS}"
            )

    def _predict(self, table: Table) -> NDArray[Any]:
        """The model's labels; a model that was not fitted on a frame is given arrays."""
        if self.knows_names or isinstance(table.native, np.ndarray):
            with warnings.catch_warnings():
                # An array is matched by position here, as said to the user; no need to be told again.
                warnings.filterwarnings("ignore", "X does not have valid feature names")
                return np.asarray(self.predict(table.native))
        return np.concatenate([np.ravel(self.predict(block.copy())) for _, block in table.blocks()])

    def _tied(self, table: Table, rows: Codes, predicted: Codes, nearest: Codes) -> NDArray[np.bool_]:
        """Whether two clusters are as near to each row as the rounding of a prediction can tell."""
        x = table.take(rows).to_array()
        centroids = self.energy.centroids
        own, other = centroids[nearest], centroids[predicted]
        gap = _squares(x - other) - _squares(x - own)
        middle = np.median(centroids, axis=0)
        rounding = np.finfo(np.float32).eps * _squares(x - middle)
        rounding += np.finfo(table.dtype).eps * (_squares(x) + _squares(other))
        return np.asarray((predicted >= 0) & (gap <= 16 * rounding))


def _squares(values: Floats) -> Floats:
    """Squared length of each row."""
    return np.asarray(np.einsum("nd,nd->n", values, values))
