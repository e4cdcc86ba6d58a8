"""Models that cannot become a network yet.

Some provide only labels; others do not record which of their columns are categorical.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from whycluster.core.arrays import Floats
from whycluster.core.errors import InvalidInputError
from whycluster.data.column_kinds import non_numeric_columns
from whycluster.data.display import count
from whycluster.data.frame_table import as_frame
from whycluster.data.mixed_table import RawTable
from whycluster.data.opening import as_array, open_table
from whycluster.models.network import Network


@dataclass(frozen=True)
class KeptRows:
    """Rows that a model keeps from its fit, and their positions among the rows it was fitted on."""

    positions: Any  # (m,)
    rows: Any  # (m, d)


@dataclass(frozen=True)
class OnlyLabels:
    """A clustering that provides a label for each row it was fitted on, and perhaps a rule for these labels.

    Attributes
    ----------
    labels : (n,)
    kind : the source of the labels, for messages
    rule : makes the network of the rule, given the rows that the model was fitted on, (n, d), or None if the
        model keeps enough of them. It returns None if the model was not fitted on these rows. None if no rule
        is known
    kept : the rows that the model keeps, if it keeps enough of them for the rule
    obstacle : why no rule is known although there is one for such models, as a sentence
    of_distances : whether the model was fitted on distances or affinities instead of rows
    names : the names of the columns that the model, or the first step, was fitted on, if it stores them
    transform : the steps before the model, in a pipeline
    behind : turns the network of the model into one that takes the input of these steps
    encoder : the sentence encoder of the model, if the rows are documents
    takes_any_rows : whether the rule takes rows in any units, so that categories and dates can be encoded
    is_chosen : whether the user chose the rule, which is then kept even if it agrees with few labels
    advice : what to check if the rule agrees with few labels
    """

    labels: Any
    kind: str
    rule: Callable[[Floats | None], Network | None] | None = None
    kept: KeptRows | None = None
    obstacle: str = ""
    of_distances: bool = False
    names: Sequence[Hashable] | None = None
    transform: Callable[[Any], Any] | None = None
    behind: Callable[[Network], Network] | None = None
    encoder: Any = None
    takes_any_rows: bool = False
    is_chosen: bool = False
    advice: str = "Were the rows given as they were clustered, in the same units?"

    def network(self, rows: Floats | None = None) -> Network | None:
        """Return the network of the rule, or None if there is none or if it needs the rows.

        ``rows`` are the rows that the model was fitted on, after the steps of a pipeline.
        """
        if self.rule is None or (rows is None and self.kept is None):
            return None
        network = self.rule(rows)
        return network if self.behind is None or network is None else self.behind(network)

    def fitted_rows(self, X: Any, where: str) -> Floats | None:
        """Return X as the model was fitted on it, (n, d), or None if the model was not fitted on these rows.

        X may be given with other columns or in other units than those that were clustered.
        """
        rows = self._features(X, where)
        if rows is None or len(rows) != len(self.labels):
            return None
        if self.kept is None:
            return rows
        kept = np.asarray(self.kept.rows, dtype=np.float64)
        is_same = rows.shape[1] == kept.shape[1] and np.allclose(rows[self.kept.positions], kept, 1e-9, 0.0)
        return rows if is_same else None

    def _features(self, X: Any, where: str) -> Floats | None:
        """Return the numbers that the model takes, or None if X does not hold them."""
        table = open_table(X, where=where, any_kind=True)
        if self.names is not None and set(self.names) <= set(table.feature_names):
            table = open_table(X, where=where, any_kind=True, model_names=self.names)
        if self.transform is not None:
            table = open_table(self.transform(table.native), where=where, any_kind=True)
        is_raw = isinstance(table, RawTable)
        return None if is_raw or table.first_not_finite() is not None else table.to_array()


@dataclass(frozen=True)
class AwaitingColumns:
    """A model that does not record which of its columns are categorical."""

    kind: str
    n_features: int
    n_categorical: int
    place: Callable[[list[int]], Network]  # makes the network, given the categorical columns in fit's order
    transform: Callable[[Any], Any] | None = None  # the steps before the model, in a pipeline

    def with_columns(self, categorical: Sequence[int], where: str) -> Network:
        """Return the network, given the positions of the categorical columns."""
        given = np.asarray(categorical)
        if given.dtype.kind in "iu" and given.shape == (self.n_categorical,):
            columns = [range(self.n_features)[i] for i in given if -self.n_features <= i < self.n_features]
            if len(set(columns)) == self.n_categorical:
                return self.place(columns)
        raise InvalidInputError(
            f"{where}: categorical must contain the positions of the {self.n_categorical} columns (out of "
            f"{self.n_features}) that {self.kind} treats as categorical; got {categorical!r}."
        )

    def with_columns_of(self, X: Any) -> Network:
        """Return the network, with the non-numeric columns of X as its categorical columns.

        Raise an error if the number of these columns does not match the model.
        """
        text = _text_columns(X if self.transform is None else self.transform(X), "explain", "X")
        if len(text) != self.n_categorical:
            raise InvalidInputError(
                f"explain: {self.kind} was fitted on {count(self.n_categorical, 'categorical column')} but "
                f"does not record which; X has {count(len(text), 'non-numeric column')}. "
                f"Pass the same columns as in the call to fit: categorical=[...]."
            )
        return self.with_columns(text, "explain")


def _text_columns(X: Any, where: str, name: str) -> list[int]:
    """Return the positions of the columns that hold anything but numbers and booleans."""
    frame = as_frame(X, where, name)
    if frame is not None:
        return non_numeric_columns(frame.schema)
    array = np.atleast_2d(as_array(X, where, name))
    if array.dtype.kind in "fiub":
        return []
    columns = enumerate(array.T.tolist())
    return [i for i, values in columns if not all(isinstance(value, (int, float)) for value in values)]
