"""Rows that lie far from everything a network knows, such as raw rows for a model of scaled columns.

A network does no preprocessing and stores no rows, but its centroids, support vectors or components lie among
the rows that it was fitted on. The bounds are wide: rows of an ordinary new month lie within them.
"""

from __future__ import annotations

import warnings
from collections.abc import Hashable
from functools import singledispatch
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from whycluster.core.arrays import Floats
from whycluster.core.energies import Energy, KernelEnergy, SquaredEnergy
from whycluster.core.errors import PopulationWarning, level_of_the_caller
from whycluster.data import display
from whycluster.data.arrays import evenly_spaced
from whycluster.data.table import Table
from whycluster.models.energies import DiagonalGaussianEnergy, FloorEnergy, GaussianEnergy, TreeEnergy
from whycluster.models.energies.pooled import PooledEnergy

_ENOUGH = 20  # the number of rows from which on quantiles are compared
_MOST_ROWS, _MOST_VALUES = 1000, 1 << 19  # in a longer table, only evenly spaced rows are compared
_MOST_FEATURES = 1 << 14  # wider rows are not compared
_FAR, _FAR_OF_FEW = 3.0, 10.0  # multiples of the distance across all landmarks
_SPREAD = 2.0  # standard deviations around the means of a mixture
_BESIDE = 0.5  # of the range of the landmarks; or one standard deviation of the rows, if that is longer


class UnusualColumns(NamedTuple):
    """The columns in which rows lie far from the landmarks.

    Attributes
    ----------
    n : the number of these columns
    n_features : the number of all columns
    n_rows : the number of rows that were compared
    name : the name of the column that is farthest away
    median : the median of its values
    low, high : the range of the landmarks in this column
    """

    n: int
    n_features: int
    n_rows: int
    name: Hashable
    median: float
    low: float
    high: float

    @property
    def text(self) -> str:
        """The difference, as a sentence without a period."""
        low, high = display.numbers([self.low, self.high])
        size = max(abs(self.low), abs(self.high))
        times = f" (a factor of {display.number(abs(self.median) / size)})" if size else ""
        holds = "holds" if self.n == 1 else "hold"
        value = "value" if self.n_rows == 1 else "median"
        return (
            f"{self.n} of {display.count(self.n_features, 'column')} {holds} values far outside the clusters "
            f"of the model; in column {self.name!r}, the {value} is {display.number(self.median)}, and the "
            f"clusters lie between {low} and {high}{times}"
        )

    def warn(self, where: str) -> None:
        """Issue a warning; ``where`` is the function that was called."""
        warnings.warn(
            f"{where}: {self.text}. If the model was fitted on transformed columns, explain its pipeline or "
            "its segmentation instead, or transform the rows first.",
            PopulationWarning,
            stacklevel=level_of_the_caller(),
        )


def unusual_columns(energy: Energy, table: Table) -> UnusualColumns | None:
    """Return the columns in which rows lie far from the landmarks of an energy, or None if they do not."""
    landmarks = landmarks_of(energy)
    if landmarks is None or landmarks.shape[1] != table.n_features or table.n_features > _MOST_FEATURES:
        return None
    low, high = landmarks.min(axis=0), landmarks.max(axis=0)
    with np.errstate(over="ignore"):  # then nothing is known about the scale
        across = float(np.linalg.norm(high - low))
    if not 0.0 < across < np.inf:
        return None
    most = min(_MOST_ROWS, max(_ENOUGH, _MOST_VALUES // table.n_features))
    some = table if table.n_rows <= most else table.take(evenly_spaced(table.n_rows, most))
    values = np.sort(some.to_array(), axis=0)
    beyond = _beyond(values, low, high, across)
    if not beyond.any():
        return None
    medians = np.median(values, axis=0)
    farthest = int(np.argmax(np.where(beyond, np.maximum(medians - high, low - medians), -np.inf)))
    return UnusualColumns(
        int(beyond.sum()),
        table.n_features,
        len(values),
        table.feature_names[farthest],
        float(medians[farthest]),
        float(low[farthest]),
        float(high[farthest]),
    )


@singledispatch
def landmarks_of(energy: Energy) -> Floats | None:  # noqa: ARG001  # only its type is known
    """Return points among the rows that a model was fitted on, (m, d), or None if none are known."""
    return None


@landmarks_of.register
def _(energy: SquaredEnergy) -> Floats | None:
    return energy.prototypes


@landmarks_of.register
def _(energy: KernelEnergy) -> Floats | None:
    return energy.units.prototypes


@landmarks_of.register
def _(energy: FloorEnergy) -> Floats | None:
    return landmarks_of(energy.clusters)


@landmarks_of.register
def _(energy: TreeEnergy) -> Floats | None:
    return landmarks_of(energy.nodes)


@landmarks_of.register
def _(energy: PooledEnergy) -> Floats | None:
    return energy.members if energy.metric == "euclidean" else None


@landmarks_of.register
def _(energy: DiagonalGaussianEnergy) -> Floats | None:
    return _around(energy.centers, 1.0 / np.sqrt(energy.precisions))


@landmarks_of.register
def _(energy: GaussianEnergy) -> Floats | None:
    return _around(energy.centers, energy.deviations)


def _around(means: Floats, deviations: Floats) -> Floats:
    """Return points on both sides of each mean."""
    return np.vstack([means - _SPREAD * deviations, means + _SPREAD * deviations])


def _quantile(values: Floats, share: float) -> Floats:
    """Return a quantile of each column of sorted values, (d,)."""
    quantile: Floats = values[round(share * (len(values) - 1))]
    return quantile


def _beyond(values: Floats, low: Floats, high: Floats, across: float) -> NDArray[np.bool_]:
    """Return the columns in which the rows, whose values are sorted, lie beyond the landmarks, (d,).

    Three quarters of the values are very far away or, in at least two columns and half of all, the median is
    outside by more than a standard deviation. This never happens for the rows of the population: their mean
    lies between the centroids, and a median is at most one standard deviation from the mean. If there are
    only a few rows, most of them must be even farther away.
    """
    lower, upper = values[(len(values) - 1) // 2], values[len(values) // 2]  # the median is between them
    if len(values) < _ENOUGH:
        far_low, far_high = low - _FAR_OF_FEW * across, high + _FAR_OF_FEW * across
        return np.asarray((lower > far_high) | (upper < far_low))
    first, third = _quantile(values, 0.25), _quantile(values, 0.75)
    far = (first > high + _FAR * across) | (third < low - _FAR * across)
    with np.errstate(over="ignore", invalid="ignore"):  # of values near the largest number
        margin = np.fmax(_BESIDE * (high - low), values.std(axis=0))
    beside = (lower > high + margin) | (upper < low - margin)
    if beside.sum() < max(2, len(beside) / 2):
        beside[:] = False
    return np.asarray(far | beside)
