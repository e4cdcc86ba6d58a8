"""The stories of the rows of a report as arrays, from which the script makes the sentences of `describe`.

`explanations.story` tells the story of one row. A page has thousands of rows, so it holds the ranks, shares
and typical values that the sentences need, not the sentences.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from whycluster.core import attribution, outputs
from whycluster.core.arrays import Codes
from whycluster.core.attribution import CodedQuery
from whycluster.core.rules import CONTRAST
from whycluster.explanations.base import BaseExplanation
from whycluster.explanations.explanation import Explanation
from whycluster.explanations.stories.story import (
    SharedEvidence,
    compare_with_typical,
    is_split,
    is_weak,
    splits_evidence,
)
from whycluster.explanations.summaries.comparisons import Comparisons
from whycluster.report.packing import smallest_codes, smallest_floats

_ROUNDING = 1e-6  # residuals below this fraction of the evidence are rounding errors
_VALUES_AT_ONCE = 1 << 21  # several arrays of this size are needed at a time
ABOVE, BELOW, NEARER, FREQUENCY = 1, 2, 4, 8  # contents of a row's sentence about typical values


def evidence_ranks(exp: BaseExplanation, chosen: Codes) -> dict[str, Any]:
    """Return how many members of its cluster have less evidence than each chosen row, and whether it is weak.

    The number is increased by 1; 0 means that the row is not a member. Nothing is returned for a selection of
    rows, since the other members are unknown.
    """
    if exp.positions is not None:
        return {}
    below, weak = np.zeros((2, len(chosen)), dtype=np.intp)
    n_members = np.zeros(len(exp.labels), dtype=np.intp)
    members = np.flatnonzero(exp.is_member)
    cluster, evidence = exp.cluster_codes[members], exp.evidence[members]
    order = np.lexsort((evidence, cluster))
    starts = np.searchsorted(cluster[order], np.arange(len(n_members) + 1))
    n_members[:] = np.diff(starts)
    shown, codes = exp.is_member[chosen], exp.cluster_codes[chosen]
    by_cluster = np.flatnonzero(shown)[np.argsort(codes[shown], kind="stable")]
    for here in np.split(by_cluster, np.flatnonzero(np.diff(codes[by_cluster])) + 1):
        if here.size:
            code = codes[here[0]]
            own = evidence[order[starts[code] : starts[code + 1]]]
            below[here] = 1 + np.searchsorted(own, exp.evidence[chosen[here]])
            n_above = len(own) - np.searchsorted(own, exp.evidence[chosen[here]], side="right")
            weak[here] = is_weak(n_above, len(own) - 1)
    packed = {"below": below, "weak": weak, "n_members": n_members}
    return {name: smallest_codes(values) for name, values in packed.items()}


def shares_of(exp: BaseExplanation, some: BaseExplanation) -> dict[str, Any]:
    """Return the competitors among which each row's evidence is shared, and their shares in percent.

    The last share, without a competitor, is that of all others.
    """
    if not splits_evidence(exp):
        return {}
    size = max(1, _VALUES_AT_ONCE // len(some.labels))
    parts = [range(start, min(start + size, len(some))) for start in range(0, len(some), size)]
    found = [SharedEvidence.of(some[list(part)]) for part in parts]
    percent = np.round(100 * np.concatenate([each.share for each in found])).astype(np.uint8)
    codes = np.concatenate([each.competitor for each in found])
    return {"shared_with": smallest_codes(codes), "shared": percent}


def relevance_against_competitor(exp: Explanation, some: Explanation) -> NDArray[Any]:
    """Return the relevance of some rows of ``exp`` against their strongest competitor alone, (n, d)."""
    found = np.array(some.relevance, dtype=np.float64)
    if not splits_evidence(exp):
        return found
    rows = np.flatnonzero(is_split(some))
    energy = outputs.informed(some.energy, exp.table)
    size = max(1, _VALUES_AT_ONCE // found.shape[1])
    for start in range(0, len(rows), size):
        part = rows[start : start + size]
        query = CodedQuery(some.cluster_codes[part], some.competitor_codes[part], CONTRAST)
        found[part] = attribution.attribute(energy, some.table.take(part), query).relevance
    return found


def residuals(some: Explanation, against: NDArray[Any]) -> dict[str, Any]:
    """Return the residual of each row, given its relevance against the strongest competitor, (n, d)."""
    residual = np.where(is_split(some), some.evidence - against.sum(axis=1), 0.0)
    if not (np.abs(residual) > _ROUNDING * np.abs(some.evidence)).any():
        return {}
    return {"beside_residual": smallest_floats(residual)}


@dataclass(frozen=True)
class TypicalValues:
    """The strongest evidence for each row's cluster, compared with typical values of two clusters.

    Attributes
    ----------
    compared : the means and frequencies of the clusters
    some : the rows
    feature : (n,) the feature of each row
    """

    compared: Comparisons
    some: Explanation
    feature: Codes
    _texts: dict[str, int] = field(default_factory=dict)

    @classmethod
    def of(cls, compared: Comparisons, some: Explanation, against: NDArray[Any]) -> TypicalValues:
        """Choose the feature with the largest relevance against the strongest competitor, (n, d)."""
        return cls(compared, some, np.asarray(against.argmax(axis=1)))

    def packed(self, against: NDArray[Any]) -> dict[str, Any]:
        """Return the contents of each row's sentence about typical values as codes; 0 means no sentence."""
        n = len(self.some)
        says, means = np.zeros(n, dtype=np.uint8), np.zeros((n, 2), dtype=np.intp)
        speaks = np.take_along_axis(against, self.feature[:, None], axis=1)[:, 0] > 0
        values = self.some.table.pick(self.feature[:, None])[:, 0]
        places = {label: place for place, label in enumerate(self.compared.labels)}
        place = np.array([places.get(label, -1) for label in self.some.labels.tolist()])
        clusters = place[np.stack([self.some.cluster_codes, self.some.competitor_codes], axis=1)]
        rows = np.flatnonzero(speaks & self.some.is_member & (clusters >= 0).all(axis=1)).tolist()
        found = compare_with_typical(
            self.compared,
            self.feature[rows].tolist(),
            [values[row] for row in rows],
            [(own, other) for own, other in clusters[rows].tolist()],
            self.some.table.dates,
        )
        for row, typical in zip(rows, found, strict=True):
            here, there = "", ""
            if typical is not None:
                side = {None: FREQUENCY, True: ABOVE, False: BELOW}[typical.is_above]
                says[row], here, there = side | NEARER * typical.is_nearer, typical.own, typical.other
            means[row] = [self._texts.setdefault(text, len(self._texts)) for text in (here, there)]
        return {
            "typical_says": says,
            "typical_means": smallest_codes(means),
            "typical": list(self._texts),
        }
