"""The check that a model of an unknown class and its network predict the same clusters."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from whycluster.core import outputs
from whycluster.core.arrays import Codes, Floats
from whycluster.core.energies import Energy, SquaredEnergy
from whycluster.core.errors import UnsupportedModelError
from whycluster.data.labels import BY_LABELS, Labels
from whycluster.data.table import Table

_MOST_TIES = 0.1


@dataclass(frozen=True)
class Verification:
    """A check that raises an error if a model and its energies disagree about a row, except on ties.

    Attributes
    ----------
    energy : the energies that the model is assumed to compare
    predict : the model's own prediction
    rule : the assumed prediction in words, for messages
    kind : the model's class, for messages
    knows_names : whether the model was fitted on a frame and matches columns by name
    """

    energy: Energy
    predict: Callable[[Any], Any]
    rule: str
    kind: str
    knows_names: bool

    def check(self, table: Table, labels: Labels) -> None:
        """Compare the predictions for all rows of a table."""
        expected = outputs.assign(self.energy, table)
        given = self._predict(table)
        predicted = labels.find(given)
        if predicted.shape != expected.shape:
            raise UnsupportedModelError(
                f"{table.where}: {self.kind}.predict must give one label per row; got shape "
                f"{predicted.shape} for {table.n_rows} rows."
            )
        differ = np.flatnonzero(predicted != expected)
        tied = self._tied(table, differ, predicted[differ])
        # Ties are rare. If there are many, rounding hides the model's rule, and nothing would be verified.
        wrong = differ if tied.sum() > _MOST_TIES * table.n_rows + 1 else differ[~tied]
        if wrong.size:
            row = wrong[0]
            raise UnsupportedModelError(
                f"{table.where}: {self.kind} does not predict {self.rule}, so it has no exact network: "
                f"{wrong.size} of {table.n_rows} rows differ, such as row {row} (predicted "
                f"{given[[row]].tolist()[0]!r}, not {labels.names[expected[[row]]].tolist()[0]!r}). "
                f"{BY_LABELS}"
            )

    def _predict(self, table: Table) -> NDArray[Any]:
        """Return the model's labels; models that were not fitted on a frame are given arrays."""
        if self.knows_names or isinstance(table.native, np.ndarray):
            with warnings.catch_warnings():
                # Arrays are matched by position, as documented; scikit-learn need not warn.
                warnings.filterwarnings("ignore", "X does not have valid feature names")
                return np.asarray(self.predict(table.native))
        return np.concatenate([np.ravel(self.predict(block.copy())) for _, block in table.blocks()])

    def _tied(self, table: Table, rows: Codes, predicted: Codes) -> NDArray[np.bool_]:
        """Return whether the predicted cluster ties with the nearest one, up to rounding."""
        chosen = table.take(rows)
        evidence = outputs.evidence_of_every_cluster(self.energy, chosen).astype(np.float64)
        gap = -evidence[np.arange(len(rows)), predicted]
        rounding = np.finfo(np.float32).eps * np.abs(evidence).max(axis=1, initial=0.0)
        if isinstance(self.energy, SquaredEnergy):  # the model may expand the square
            x, centroids = chosen.to_array(), self.energy.prototypes
            rounding = np.finfo(np.float32).eps * _squares(x - np.median(centroids, axis=0))
            rounding += np.finfo(table.dtype).eps * (_squares(x) + _squares(centroids[predicted]))
        return np.asarray((predicted >= 0) & (gap <= 16 * rounding))


def verification_of(model: Any, energy: Energy, known: tuple[type, ...]) -> Verification | None:
    """Return the check of an estimator, or None if its class is known; a subclass may predict differently."""
    if type(model) in known:
        return None
    kind, parent = type(model).__name__, next(c.__name__ for c in type(model).__mro__ if c in known)
    has_names = getattr(model, "feature_names_in_", None) is not None
    return Verification(energy, model.predict, f"as {parent} does", kind, has_names)


def _squares(values: Floats) -> Floats:
    """Return the squared length of each row."""
    return np.asarray(np.einsum("nd,nd->n", values, values))
