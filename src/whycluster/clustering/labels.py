"""Fit a surrogate to labels that come without a model, so that the labels can be explained."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from whycluster.clustering.surrogate import Surrogate
from whycluster.data.arrays import to_finite_array
from whycluster.data.column_checks import classify_columns
from whycluster.data.mixed_table import RawTable
from whycluster.data.opening import column_names, open_table
from whycluster.data.table import Table
from whycluster.models.network import Network
from whycluster.pipelines.network import network_behind
from whycluster.pipelines.tabular import encode, warn_of_columns


def fit_surrogate(
    labels: Any, X: Any, feature_names: Sequence[Hashable] | None = None
) -> tuple[Network, NDArray[Any]]:
    """Fit a surrogate to labels; return its network, and the labels in the form the network uses."""
    names = column_names(X, "explain", "X")
    table = open_table(X, where="explain", feature_names=feature_names, any_kind=names is not None)
    if isinstance(table, RawTable) or (names is not None and table.has_missing()):
        return _fit_behind_encoder(labels, table)
    surrogate = Surrogate().fit_rows(to_finite_array(table), labels, "explain")
    return surrogate.network(names), surrogate.given_


def _fit_behind_encoder(labels: Any, table: Table) -> tuple[Network, NDArray[Any]]:
    """Fit a surrogate to a frame whose categories, dates and missing values are encoded first."""
    classified = classify_columns(table.native, "explain")
    warn_of_columns(classified)
    columns, rows = encode(classified)
    surrogate = Surrogate().fit_rows(np.ascontiguousarray(rows), labels, "explain")
    names = table.feature_names if all(isinstance(name, str) for name in table.feature_names) else None
    network = network_behind([("columns", columns)], surrogate.network(None), table.n_features, names)
    return network, surrogate.given_
