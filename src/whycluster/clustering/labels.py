"""Fit a surrogate to labels that come without a model, so that the labels can be explained."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from whycluster.clustering.surrogate import Surrogate
from whycluster.core.arrays import Floats
from whycluster.core.errors import InvalidInputError, NotFittedError, UnsupportedModelError
from whycluster.data.arrays import to_finite_array
from whycluster.data.column_checks import classify_columns
from whycluster.data.mixed_table import RawTable
from whycluster.data.opening import column_names, open_table
from whycluster.data.table import Table
from whycluster.explanations.agreement import LEAST
from whycluster.models.adapters.incomplete import OnlyLabels
from whycluster.models.agreement import with_agreement
from whycluster.models.network import Network
from whycluster.pipelines.network import network_behind
from whycluster.pipelines.tabular import encode, warn_of_columns


def network_of_labels(
    found: OnlyLabels, X: Any, feature_names: Sequence[Hashable] | None = None
) -> tuple[Network, NDArray[Any] | None]:
    """Return the network of a clustering that gives only labels, and the label of each row.

    The network is that of the rule that the labels follow or, if no rule is known, of a surrogate. Rows that
    the model was not fitted on have no labels.
    """
    if found.of_distances:
        _check_rows(X)
    if found.rule is None:
        return fit_surrogate(found.labels, X, feature_names)
    try:
        rows = found.fitted_rows(X, "explain")
        network = found.network(rows)
    except (UnsupportedModelError, NotFittedError):  # of the steps before the model
        return fit_surrogate(found.labels, X, feature_names)
    if rows is None and found.takes_any_rows:
        network = _encoded(found, X)
    if network is not None and (rows is not None or found.takes_any_rows):
        network = with_agreement(network, X, found.labels, "explain")
        assert network.agreement is not None
        if network.agreement.share >= LEAST or found.is_chosen:
            return network, np.asarray(found.labels)
        network.agreement.warn_of_surrogate(found.kind, found.advice)
    elif network is not None and _n_rows(X) != len(found.labels):
        return network, None
    return fit_surrogate(found.labels, X, feature_names)


def _check_rows(X: Any) -> None:
    """Raise an error if X holds the distances or affinities that a model was fitted on instead of rows."""
    shape = tuple(getattr(X, "shape", ()))
    if len(shape) != 2 or shape[0] != shape[1]:
        return
    values = open_table(X, where="explain", any_kind=True)
    square = None if isinstance(values, RawTable) else values.to_array()
    if square is not None and np.allclose(square, square.T, equal_nan=True):
        raise InvalidInputError(
            f"explain: X must be the rows whose distances or affinities the model was fitted on; got a "
            f"symmetric table of shape {shape}, which has no features. Pass the table that it was computed "
            "from."
        )


def _encoded(found: OnlyLabels, X: Any) -> Network | None:
    """Return the network of the rule for a frame whose categories, dates and missing values are encoded."""
    table = open_table(X, where="explain", any_kind=True)
    if len(found.labels) != table.n_rows or not isinstance(table, RawTable):
        return None
    columns, rows = _encode(table)
    network = found.network(rows)
    return None if network is None else _behind(columns, network, table)


def _n_rows(X: Any) -> int:
    return open_table(X, where="explain", any_kind=True).n_rows


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
    columns, rows = _encode(table)
    surrogate = Surrogate().fit_rows(rows, labels, "explain")
    return _behind(columns, surrogate.network(None), table), surrogate.given_


def _encode(table: Table) -> tuple[Any, Floats]:
    """Fit an encoder to the columns of a frame, and return it with the encoded rows."""
    classified = classify_columns(table.native, "explain")
    warn_of_columns(classified)
    columns, rows = encode(classified)
    return columns, np.ascontiguousarray(rows)


def _behind(columns: Any, network: Network, table: Table) -> Network:
    """Return the network that takes the frame, encodes it and applies the given network."""
    names = table.feature_names if all(isinstance(name, str) for name in table.feature_names) else None
    return network_behind([("columns", columns)], network, table.n_features, names)
