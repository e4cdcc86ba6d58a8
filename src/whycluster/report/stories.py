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
from whycluster.core.arrays import Codes, Floats
from whycluster.core.attribution import CodedQuery
from whycluster.core.rules import CONTRAST
from whycluster.data.display import format_apart, format_dates, format_frequencies
from whycluster.data.missing import is_missing
from whycluster.explanations.base import BaseExplanation
from whycluster.explanations.comparisons import Comparisons
from whycluster.explanations.explanation import Explanation
from whycluster.report.packing import smallest_codes, smallest_floats

_N_NAMED = 3  # competitors that are named
_LEAST_SHARE = 0.005  # smaller shares would be shown as 0%
_ROUNDING = 1e-6  # residuals below this fraction of the evidence are rounding errors
_VALUES_AT_ONCE = 1 << 22  # number of values per batch (32 MB)
_MOST_DIGITS = 17
ABOVE, BELOW, NEARER, FREQUENCY = 1, 2, 4, 8  # what the typical sentence of a row says


def evidence_ranks(exp: BaseExplanation, chosen: Codes) -> dict[str, Any]:
    """Return how many members of its cluster have less evidence than each chosen row.

    0 stands for a row that is not a member, and the numbers of members are counted from 1. Nothing is
    returned if some rows were selected, since the other members are unknown.
    """
    if exp.positions is not None:
        return {}
    below = np.zeros(len(chosen), dtype=np.intp)
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
    return {"below": smallest_codes(below), "n_members": smallest_codes(n_members)}


def splits_evidence(exp: BaseExplanation) -> bool:
    """Return whether the evidence is shared among several competitors; see `story.contrast`."""
    has_means = exp.positions is None or not exp.energy.needs_means
    return exp.rule != CONTRAST and exp.threshold is None and len(exp.labels) > 2 and has_means


def shares_of(exp: BaseExplanation, some: BaseExplanation) -> dict[str, Any]:
    """Return the competitors among which each row's evidence is shared, and their shares in percent.

    The last share, without a competitor, is that of all others.
    """
    if not splits_evidence(exp):
        return {}
    n, n_clusters = len(some), len(some.labels)
    codes = np.zeros((n, _N_NAMED), dtype=np.intp)
    percent = np.zeros((n, _N_NAMED + 1))
    size = max(1, _VALUES_AT_ONCE // n_clusters)
    for start in range(0, n, size):
        part = slice(start, min(start + size, n))
        share = some[np.arange(part.start, part.stop)].competition.astype(np.float64)
        total = share.sum(axis=1, keepdims=True)
        share = np.divide(share, total, out=np.zeros_like(share), where=total > 0)
        codes[part] = np.argsort(-share, axis=1, kind="stable")[:, :_N_NAMED]
        named = np.take_along_axis(share, codes[part], axis=1)
        left = (total > 0) * np.maximum(0.0, 1.0 - named.sum(axis=1, keepdims=True))
        percent[part] = np.hstack([named, left])
    percent[percent < _LEAST_SHARE] = 0.0
    return {"shared_with": smallest_codes(codes), "shared": np.round(100 * percent).astype(np.uint8)}


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


def is_split(some: BaseExplanation) -> NDArray[np.bool_]:
    """Return whether the relevance of each row differs from that against its strongest competitor, (n,)."""
    return np.asarray((some.evidence >= 0) & (some.cluster_codes != some.competitor_codes))


def residuals(some: Explanation, against: NDArray[Any]) -> dict[str, Any]:
    """Return the evidence that belongs to no feature, given the relevance against the competitor, (n, d)."""
    residual = np.where(is_split(some), some.evidence - against.sum(axis=1), 0.0)
    if not (np.abs(residual) > _ROUNDING * np.abs(some.evidence)).any():
        return {}
    return {"beside_residual": smallest_floats(residual)}


@dataclass(frozen=True)
class TypicalValues:
    """The value of each row that speaks most for its cluster, compared with what is typical elsewhere.

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
    _codes: dict[int, dict[str, int]] = field(default_factory=dict)

    @classmethod
    def of(cls, compared: Comparisons, some: Explanation, against: NDArray[Any]) -> TypicalValues:
        """Choose the feature with the largest relevance against the strongest competitor, (n, d)."""
        return cls(compared, some, np.asarray(against.argmax(axis=1)))

    def packed(self, against: NDArray[Any]) -> dict[str, Any]:
        """Return what the typical sentence of each row says, or 0 if there is none."""
        n = len(self.some)
        says, means = np.zeros(n, dtype=np.uint8), np.zeros((n, 2), dtype=np.intp)
        speaks = np.take_along_axis(against, self.feature[:, None], axis=1)[:, 0] > 0
        values = self.some.table.pick(self.feature[:, None])[:, 0]
        places = {label: place for place, label in enumerate(self.compared.labels)}
        labels = self.some.labels.tolist()
        for row in np.flatnonzero(speaks & self.some.is_member).tolist():
            codes = self.some.cluster_codes[row], self.some.competitor_codes[row]
            own, other = (places.get(labels[code], -1) for code in codes)
            if own >= 0 and other >= 0:
                says[row], texts = self._compare(int(self.feature[row]), values[row], own, other)
                means[row] = [self._texts.setdefault(text, len(self._texts)) for text in texts]
        return {
            "typical_says": says,
            "typical_means": smallest_codes(means),
            "typical": list(self._texts),
        }

    def _compare(self, column: int, value: Any, own: int, other: int) -> tuple[int, tuple[str, str]]:
        """Return what can be said about a value, and what is typical of the two clusters as text."""
        compared = self.compared
        if is_missing(value):
            return self._frequencies(compared.missing, column, own, other, FREQUENCY)
        if column in compared.categories:
            code, known = self._code(column, str(value)), compared.categories[column].frequency
            if not known.shape[1] or code < 0:
                return 0, ("", "")
            return self._frequencies(known, code, own, other, FREQUENCY)
        is_known = compared.missing is None or not compared.missing[[own, other], column].any()
        if isinstance(value, (bool, np.bool_)) and is_known:
            frequency = compared.mean if value else 1.0 - compared.mean
            return self._frequencies(frequency, column, own, other, FREQUENCY)
        is_date = column in self.some.table.dates
        number = _days(value) if is_date else float(value)
        mine, theirs = compared.mean[[own, other], column].tolist()
        if not np.isfinite([number, mine, theirs]).all() or number == theirs:
            return 0, ("", "")
        says = ABOVE if number > theirs else BELOW
        says |= NEARER * (abs(number - mine) < abs(number - theirs))
        if is_date:
            texts = format_dates([mine, theirs])
            return says, (texts[0], texts[1])
        return says, _texts(number, mine, theirs)

    def _code(self, column: int, category: str) -> int:
        """Return the code of a category, or -1 if it is unknown."""
        if column not in self._codes:
            self._codes[column] = {str(each): code for code, each in enumerate(self.compared.names[column])}
        return self._codes[column].get(category, -1)

    @staticmethod
    def _frequencies(
        known: Floats | None, column: int, own: int, other: int, says: int
    ) -> tuple[int, tuple[str, str]]:
        if known is None:
            return 0, ("", "")
        mine, theirs = format_frequencies(known[[own, other], column].tolist())
        return says, (mine, theirs)


def _days(value: Any) -> float:
    """Return a date as days since 1970."""
    return float(np.datetime64(value, "us").astype(np.int64)) / 86_400_000_000


def _texts(number: float, mine: float, theirs: float) -> tuple[str, str]:
    """Format two means with so many digits that comparisons with the number hold as printed."""
    texts = format_apart([mine, theirs])
    digits = 4
    while not _holds(number, (mine, theirs), texts) and digits <= _MOST_DIGITS:
        texts = [f"{value + 0.0:.{digits}g}" for value in (mine, theirs)]
        digits += 1
    return texts[0], texts[1]


def _holds(number: float, means: tuple[float, float], texts: list[str]) -> bool:
    near, far = (abs(number - mean) for mean in means)
    printed = [float(text) for text in texts]
    same_side = np.sign(number - printed[1]) == np.sign(number - means[1])
    return bool(same_side and (abs(number - printed[0]) < abs(number - printed[1])) == (near < far))
