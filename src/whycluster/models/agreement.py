"""Measure how well a network reproduces the labels of a clustering."""

from __future__ import annotations

from copy import copy
from typing import Any

import numpy as np

from whycluster.core import outputs
from whycluster.data.arrays import evenly_spaced
from whycluster.explanations.agreement import Agreement
from whycluster.models.network import Network

_ROUNDING = 1e-9  # tolerance of ties, relative to the largest evidence of a row
_PRECISION = 1e-12  # tolerance of ties, relative to the largest evidence of some rows
_SAMPLE = 1000


def with_agreement(network: Network, X: Any, labels: Any, where: str) -> Network:
    """Return the network with its agreement with the labels, (n,), of the rows it was made from."""
    table = network.open(X, where)
    given = network.codes.encode(labels, where, "labels")
    assigned = outputs.assign(network.energy, table)
    differ, tied = np.flatnonzero(given != assigned), np.zeros(len(given), dtype=bool)
    if differ.size:
        some = evenly_spaced(table.n_rows, _SAMPLE)
        chosen = table.take(np.concatenate([differ, some]))
        evidence = outputs.evidence_of_every_cluster(network.energy, chosen).astype(np.float64)
        gap = -evidence[np.arange(len(differ)), given[differ]]
        # If a row ties with all clusters, its own evidence is only rounding error.
        rounding = (
            _ROUNDING * np.abs(evidence[: len(differ)]).max(axis=1) + _PRECISION * np.abs(evidence).max()
        )
        tied[differ] = gap <= rounding
    found = copy(network)
    found.agreement = Agreement.of(network.labels, given, assigned, tied)
    return found
