"""The rows of a report in a few arrays: what is claimed of each, and why not another cluster."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from whycluster.core import attribution
from whycluster.core.arrays import Codes, Floats, strongest
from whycluster.core.attribution import Query
from whycluster.core.evidence import bar_of
from whycluster.core.rules import CONTRAST
from whycluster.explanations.explanation import BaseExplanation
from whycluster.explanations.projection import project
from whycluster.report.contents import Contents
from whycluster.report.packing import codes, floats, halves, packed

_VALUES_AT_ONCE = 1 << 22  # of relevance, 32 MB
_ROUNDING = 1e-6  # a residual below this part of the evidence is not worth a line
_MAP = 65535  # the size of the map, in its own units


def claims(contents: Contents, chosen: Codes, some: BaseExplanation) -> dict[str, Any]:
    """What is claimed of the chosen rows, which are ``some``, and where they lie on the map."""
    exp = contents.exp
    evidence, residual = some.evidence.astype(np.float64), some.residual
    found: dict[str, Any] = {
        "position": packed(codes(chosen)),
        "cluster": packed(codes(some.cluster_codes)),
        "competitor": packed(codes(some.competitor_codes)),
        "evidence": packed(floats(evidence)),
        "limit": contents.limit,
        "ids": _ids(contents, chosen),
    }
    if exp.is_targeted:
        found["assigned"] = packed(codes(exp.assigned_codes[chosen]))
    if (np.abs(residual) > _ROUNDING * np.abs(evidence)).any():
        found["residual"] = packed(floats(residual))
    if exp.threshold is not None:
        found["bar"] = bar_of(exp.threshold)
    return found | _map(exp, some)


def _ids(contents: Contents, chosen: Codes) -> list[str] | None:
    """What the rows are called; None where that is their position."""
    names = [contents.id_of(row) for row in chosen.tolist()]
    return None if names == list(map(str, chosen.tolist())) else names


def _map(exp: BaseExplanation, some: BaseExplanation) -> dict[str, Any]:
    found = project(exp.energy, some.table)
    points = found.points
    size = np.ptp(points, axis=0)
    if not size.any():  # all rows at one place
        size = np.ones(2)
    places = np.round((points - points.min(axis=0)) / size.max() * _MAP)
    return {
        "map": packed(places.astype(np.uint16)),
        "map_size": (size / size.max()).tolist(),
        "map_of": found.of,
        "map_explained": [round(part, 4) for part in found.explained],
    }


@dataclass(frozen=True)
class Against:
    """Why not another cluster: each row's cluster against some others.

    Attributes
    ----------
    rival : (n, M) the other clusters
    evidence : (n, M) for the row's cluster against them
    feature : (n, M, C) the features that speak most, either way
    relevance : (n, M, C) what each adds to the evidence
    """

    rival: Codes
    evidence: Floats
    feature: Codes
    relevance: Floats


def rivals(exp: BaseExplanation, n_rivals: int) -> tuple[Codes, Floats]:
    """Other clusters of each row, (n, M), and the evidence against them: all in order, or the nearest."""
    evidence = attribution.contrasts(exp.energy, exp.table, exp.cluster_codes).astype(
        np.float64
    )  # NaN comes last
    n_clusters = evidence.shape[1]
    n_rivals = min(n_rivals, n_clusters - 1)
    nearest = np.argsort(evidence, axis=1, kind="stable")[:, :n_rivals]
    if n_rivals == n_clusters - 1:
        nearest = np.sort(nearest, axis=1)
    return nearest, np.take_along_axis(evidence, nearest, axis=1)


def told_apart(exp: BaseExplanation, background: Any, n_rivals: int, n_apart: int) -> Against:
    """The contrasts of each row's cluster with others, one of these at a time, some rows at a time."""
    rival, evidence = rivals(exp, n_rivals)
    n, m = rival.shape
    d = exp.energy.n_features
    n_apart = min(n_apart, d)
    energy = attribution.informed(exp.energy, background)
    feature, relevance = np.empty((n, m, n_apart), dtype=np.intp), np.empty((n, m, n_apart))
    size = max(1, _VALUES_AT_ONCE // d)
    for start in range(0, n, size):
        part = slice(start, min(start + size, n))
        table = exp.table.take(np.arange(part.start, part.stop))
        for k in range(m):
            found = attribution.attribute(
                energy, table, Query(exp.cluster_codes[part], rival[part, k], CONTRAST)
            )
            feature[part, k] = strongest(found.relevance, n_apart)
            relevance[part, k] = np.take_along_axis(found.relevance, feature[part, k], axis=1)
    return Against(rival, evidence, feature, relevance)


def pack_rivals(rival: Codes, evidence: Floats, n_clusters: int) -> dict[str, Any]:
    """Other clusters and the evidence against them; these need not be named where they are all."""
    scale, numbers = halves(evidence)
    found = {"against_scale": packed(scale), "against": packed(numbers)}
    if rival.shape[1] < n_clusters - 1:
        found["rival"] = packed(codes(rival))
    return found
