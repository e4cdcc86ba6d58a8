"""Models that cannot become a network yet.

Some provide only labels; others do not record which of their columns are categorical.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from whycluster.core.errors import InvalidInputError
from whycluster.data.column_kinds import non_numeric_columns
from whycluster.data.display import count
from whycluster.data.frame_table import as_frame
from whycluster.data.opening import as_array
from whycluster.models.network import Network


@dataclass(frozen=True)
class OnlyLabels:
    """A clustering without an exact network, which provides only a label for each row it was fitted on."""

    labels: Any  # (n,)
    kind: str  # the source of the labels, for messages


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
