"""The rows of a report as arrays of clusters, competitors, evidence, positions on the map, and contrasts."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from whycluster.core import attribution, outputs
from whycluster.core.arrays import Codes, Floats
from whycluster.core.attribution import CodedQuery
from whycluster.core.evidence import bar_of
from whycluster.core.rules import CONTRAST
from whycluster.data.arrays import smallest, strongest
from whycluster.explanations.base import BaseExplanation
from whycluster.explanations.maps.projection import project
from whycluster.report.contents import Contents
from whycluster.report.map import place_on_map
from whycluster.report.packing import scaled_halves, smallest_codes, smallest_floats
from whycluster.report.stories import evidence_ranks, shares_of

_VALUES_AT_ONCE = 1 << 22  # number of relevance values per batch (32 MB)
_ROUNDING = 1e-6  # residuals below this fraction of the evidence are rounding errors


def claims_of(contents: Contents, chosen: Codes, some: BaseExplanation) -> dict[str, Any]:
    """Return the claims about the chosen rows (``some``) and their positions on the map."""
    exp = contents.exp
    evidence, residual = some.evidence.astype(np.float64), some.residual
    names = contents.ids_of(chosen.tolist())
    found: dict[str, Any] = {
        "position": smallest_codes(chosen),
        "cluster": smallest_codes(some.cluster_codes),
        "competitor": smallest_codes(some.competitor_codes),
        "evidence": smallest_floats(evidence),
        "limit": contents.limit,
        "ids": None if names == list(map(str, chosen.tolist())) else names,
    }
    if exp.is_targeted:
        found["assigned"] = smallest_codes(exp.assigned_codes[chosen])
    if (np.abs(residual) > _ROUNDING * np.abs(evidence)).any():
        found["residual"] = smallest_floats(residual)
    if exp.threshold is not None:
        found["bar"] = bar_of(exp.threshold)
    return (
        found
        | place_on_map(project(exp.energy, some.table))
        | evidence_ranks(exp, chosen)
        | shares_of(exp, some)
    )


@dataclass(frozen=True)
class Contrasts:
    """Contrasts of each row's cluster with M other clusters, which answer "why not that cluster?".

    Attributes
    ----------
    other : (n, M) the other clusters
    evidence : (n, M) evidence for the row's cluster against the other clusters
    feature : (n, M, C) the features with the strongest relevance, of either sign
    relevance : (n, M, C) the relevance of these features
    """

    other: Codes
    evidence: Floats
    feature: Codes
    relevance: Floats


def nearest_clusters(exp: BaseExplanation, n_others: int) -> tuple[Codes, Floats]:
    """Return other clusters for each row, (n, M), and the evidence against them.

    If there are at most ``n_others`` other clusters, all of them are returned in the order of their codes.
    Otherwise, the nearest clusters are returned in the order of evidence.
    """
    evidence = outputs.contrasts(exp.energy, exp.table, exp.cluster_codes).astype(np.float64, copy=False)
    evidence[np.arange(len(evidence)), exp.cluster_codes] = np.inf  # the own cluster is last
    n_clusters = evidence.shape[1]
    n_others = min(n_others, n_clusters - 1)
    nearest = smallest(evidence, n_others)
    if n_others == n_clusters - 1:
        nearest = np.sort(nearest, axis=1)
    return nearest, np.take_along_axis(evidence, nearest, axis=1)


def contrasts_of(exp: BaseExplanation, background: Any, n_others: int, n_features: int) -> Contrasts:
    """Contrast each row's cluster with other clusters one at a time, processing the rows in batches."""
    other, evidence = nearest_clusters(exp, n_others)
    n, m = other.shape
    d = exp.energy.n_features
    n_features = min(n_features, d)
    energy = outputs.informed(exp.energy, background)
    feature, relevance = np.empty((n, m, n_features), dtype=np.intp), np.empty((n, m, n_features))
    size = max(1, _VALUES_AT_ONCE // d)
    for start in range(0, n, size):
        part = slice(start, min(start + size, n))
        table = exp.table.take(np.arange(part.start, part.stop))
        for k in range(m):
            found = attribution.attribute(
                energy, table, CodedQuery(exp.cluster_codes[part], other[part, k], CONTRAST)
            )
            feature[part, k] = strongest(found.relevance, n_features)
            relevance[part, k] = np.take_along_axis(found.relevance, feature[part, k], axis=1)
    return Contrasts(other, evidence, feature, relevance)


def pack_contrasts(other: Codes, evidence: Floats, n_clusters: int) -> dict[str, Any]:
    """Pack the evidence against other clusters, and the clusters' codes if not all others are included."""
    scale, halves = scaled_halves(evidence)
    return {"against_scale": scale, "against": halves} | pack_others(other, n_clusters)


def pack_others(other: Codes, n_clusters: int) -> dict[str, Any]:
    """Pack the codes of other clusters, (n, M), if not all others are included."""
    return {"other": smallest_codes(other)} if other.shape[1] < n_clusters - 1 else {}
