"""Rows that lie far from everything a network knows, such as raw rows for a model of scaled columns.

A network does no preprocessing and stores no rows, but its landmarks, such as centroids or support vectors,
lie among the rows that it was fitted on. The bounds are wide, so that the rows of a typical new month lie
within them.
"""

from __future__ import annotations

import warnings

import numpy as np
from numpy.typing import NDArray

from whycluster.core.arrays import Floats
from whycluster.data import display
from whycluster.data.arrays import evenly_spaced
from whycluster.data.table import Table
from whycluster.data.warnings import PopulationWarning, level_of_the_caller

_ENOUGH = 20  # the number of rows from which on quantiles are compared
_MOST_ROWS, _MOST_VALUES = 1000, 1 << 19  # in a longer table, only evenly spaced rows are compared
_MOST_FEATURES = 1 << 14  # wider rows are not compared
_FAR, _FAR_OF_FEW = 3.0, 10.0  # multiples of the distance across all landmarks
_BESIDE = 0.5  # of the range of the landmarks; or one standard deviation of the rows, if that is longer


def warn_of_unusual_rows(landmarks: Floats | None, table: Table) -> None:
    """Issue a warning if rows lie far from the landmarks; the parameters are those of `unusual_columns`."""
    difference = unusual_columns(landmarks, table)
    if difference:
        warnings.warn(
            f"{table.where}: {difference}. If the model was fitted on transformed columns, explain its "
            "pipeline or its segmentation instead, or transform the rows first.",
            PopulationWarning,
            stacklevel=level_of_the_caller(),
        )


def unusual_columns(landmarks: Floats | None, table: Table) -> str:
    """Describe the columns in which rows lie far from the landmarks of an energy, without a final period.

    Return an empty string if there are no such columns, or if no landmarks are known.
    """
    n_features = table.n_features
    if landmarks is None or landmarks.shape[1] != n_features or n_features > _MOST_FEATURES:
        return ""
    low, high = landmarks.min(axis=0), landmarks.max(axis=0)
    with np.errstate(over="ignore"):  # then nothing is known about the scale
        across = float(np.linalg.norm(high - low))
    if not 0.0 < across < np.inf:
        return ""
    most = min(_MOST_ROWS, max(_ENOUGH, _MOST_VALUES // n_features))
    some = table if table.n_rows <= most else table.take(evenly_spaced(table.n_rows, most))
    values = np.sort(some.to_array(), axis=0)
    beyond = _beyond(values, low, high, across)
    if not beyond.any():
        return ""
    medians = np.median(values, axis=0)
    i = int(np.argmax(np.where(beyond, np.maximum(medians - high, low - medians), -np.inf)))
    lowest, highest = display.numbers([float(low[i]), float(high[i])])
    median, size = float(medians[i]), max(abs(float(low[i])), abs(float(high[i])))
    times = f" (a factor of {display.number(abs(median) / size)})" if size else ""
    return (
        f"{beyond.sum()} of {display.count(n_features, 'column')} {'holds' if beyond.sum() == 1 else 'hold'} "
        f"values far outside the clusters of the model; in column {table.feature_names[i]!r}, the "
        f"{'value' if len(values) == 1 else 'median'} is {display.number(median)}, and the clusters lie "
        f"between {lowest} and {highest}{times}"
    )


def _beyond(values: Floats, low: Floats, high: Floats, across: float) -> NDArray[np.bool_]:
    """Return the columns in which the rows, whose values are sorted, lie beyond the landmarks, (d,).

    A column is one of these if three quarters of its values are very far away. If the median is outside by
    more than a standard deviation in at least two columns and in at least half of all columns, these columns
    are returned as well. Neither happens for the rows of the population: their mean lies between the
    centroids, and a median is at most one standard deviation from the mean. If there are only a few rows,
    most of them must be even farther away.
    """
    lower, upper = values[(len(values) - 1) // 2], values[len(values) // 2]  # the median is between them
    if len(values) < _ENOUGH:
        far_low, far_high = low - _FAR_OF_FEW * across, high + _FAR_OF_FEW * across
        return np.asarray((lower > far_high) | (upper < far_low))
    first, third = values[[round(share * (len(values) - 1)) for share in (0.25, 0.75)]]
    far = (first > high + _FAR * across) | (third < low - _FAR * across)
    with np.errstate(over="ignore", invalid="ignore"):  # of values near the largest number
        margin = np.fmax(_BESIDE * (high - low), values.std(axis=0))
    beside = (lower > high + margin) | (upper < low - margin)
    if beside.sum() < max(2, len(beside) / 2):
        beside[:] = False
    return np.asarray(far | beside)
