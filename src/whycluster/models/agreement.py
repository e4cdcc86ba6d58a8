"""Measure how far a network assigns its rows the labels that the clustering gave them."""

from __future__ import annotations

from copy import copy
from typing import Any

import numpy as np

from whycluster.core import outputs
from whycluster.explanations.agreement import Agreement
from whycluster.models.network import Network

_ROUNDING = 1e-9  # relative to the largest evidence of a row


def with_agreement(network: Network, X: Any, labels: Any, where: str) -> Network:
    """Return the network with its agreement with the labels, (n,), of the rows it was made from."""
    table = network.open(X, where)
    given = network.codes.encode(labels, where, "labels")
    assigned = outputs.assign(network.energy, table)
    differ, tied = np.flatnonzero(given != assigned), np.zeros(len(given), dtype=bool)
    if differ.size:
        evidence = outputs.evidence_of_every_cluster(network.energy, table.take(differ)).astype(np.float64)
        gap = -evidence[np.arange(len(differ)), given[differ]]
        tied[differ] = gap <= _ROUNDING * np.abs(evidence).max(axis=1)
    found = copy(network)
    found.agreement = Agreement.of(network.labels, given, assigned, tied)
    return found
