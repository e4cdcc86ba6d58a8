"""Scalers of columns as numbers, for programs that run a model without its pipeline."""

from __future__ import annotations

from typing import NamedTuple

from whycluster.core.arrays import Codes, Floats
from whycluster.core.errors import UnsupportedModelError


class Scaling(NamedTuple):
    """What scalers compute: factor * (x - center) + shift, for some of the columns.

    Attributes
    ----------
    columns : (m,) the column that each feature comes from; no column is used twice
    factor, center, shift : (m,) the parameters of each feature
    n_columns : the number of columns
    """

    columns: Codes
    factor: Floats
    center: Floats
    shift: Floats
    n_columns: int


def no_centroids(what: str) -> UnsupportedModelError:
    """Return the error of `to_onnx` for energies or steps that it does not support, given their names."""
    return UnsupportedModelError(
        f"to_onnx: {what} cannot be converted to ONNX. The supported models assign each row to the nearest "
        "centroid by Euclidean distance, such as KMeans, alone or after StandardScaler, RobustScaler, "
        "MinMaxScaler or MaxAbsScaler (without clip)."
    )
