"""The story of one row: the rank of its evidence, typical values elsewhere, and the competitors."""

from __future__ import annotations

import datetime as dt
from collections.abc import Container, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from whycluster.core import attribution, outputs
from whycluster.core.arrays import Codes, Floats
from whycluster.core.attribution import CodedQuery
from whycluster.core.rules import CONTRAST
from whycluster.data import display
from whycluster.data.arrays import smallest
from whycluster.data.days import length_as_text, to_days
from whycluster.data.display import join_words
from whycluster.data.labels import cluster_name, noise_mask
from whycluster.data.missing import are_missing, is_missing
from whycluster.explanations.base import BaseExplanation
from whycluster.explanations.summaries.comparisons import Comparisons

BORDERLINE, WEAK, TYPICAL, CLEAR = "borderline", "weak", "typical", "clear"
_MOST = 0.75  # share of the other members that a clear row exceeds, and that exceed a weak row
_LEAST_SHARE = 0.005  # competitors with smaller shares would be printed with 0%
_MOST_NAMED = 3


class EvidenceRank(NamedTuple):
    """How the evidence of a row compares with that of the other members of its cluster.

    Attributes
    ----------
    word : "borderline" if the evidence is at most a tenth of the median evidence of all members, "clear" if
        it exceeds that of three quarters of the other members of the cluster, "weak" if at least three
        quarters of them have more evidence, and "typical" otherwise
    n_below : the number of other members with less evidence
    n_others : the number of other members
    """

    word: str
    n_below: int
    n_others: int


def evidence_rank(exp: BaseExplanation, row: int) -> EvidenceRank | None:
    """Return the rank of a row's evidence, or None if it is not a member or the other rows are unknown."""
    if not exp.is_member[row] or exp.positions is not None:
        return None
    own = exp.is_member & (exp.cluster_codes == exp.cluster_codes[row])
    evidence, n_others = exp.evidence[own], int(own.sum()) - 1
    n_below, n_above = (
        int(side.sum()) for side in (evidence < exp.evidence[row], evidence > exp.evidence[row])
    )
    if not n_others:
        return None
    word = CLEAR if n_below > _MOST * n_others else WEAK if is_weak(n_above, n_others) else TYPICAL
    return EvidenceRank(BORDERLINE if exp.is_borderline[row] else word, n_below, n_others)


def is_weak(n_above: Any, n_others: int) -> Any:
    """Return whether at least three quarters of the other members have more evidence.

    ``n_above``, the number of these members, may be an array.
    """
    return n_above >= _MOST * n_others


def rank_sentence(exp: BaseExplanation, row: int) -> str:
    """Return the rank of a row's evidence as a sentence, or "" if it has none."""
    rank = evidence_rank(exp, row)
    if rank is None:
        return ""
    word, where = rank.word.capitalize(), cluster_name(exp.cluster[row])
    if rank.n_others == 1:
        than = "more" if rank.n_below else "no more"
        return f"{word}: {than} evidence than the only other row in {where}."
    others = f"of the other {rank.n_others:,} rows in {where}"
    if not rank.n_below:
        return f"{word}: none {others} has less evidence."
    n = "all" if rank.n_below == rank.n_others else f"{rank.n_below:,}"
    return f"{word}: more evidence than {n} {others}."


def splits_evidence(exp: BaseExplanation) -> bool:
    """Return whether the evidence is shared among several competitors, so that `contrast` may differ."""
    has_means = exp.positions is None or not exp.energy.needs_means  # the means are those of all rows
    return exp.rule != CONTRAST and exp.threshold is None and len(exp.labels) > 2 and has_means


def is_split(exp: BaseExplanation) -> NDArray[np.bool_]:
    """Return whether the relevance of each row differs from that against its strongest competitor, (n,)."""
    return np.asarray((exp.evidence >= 0) & (exp.cluster_codes != exp.competitor_codes))


def contrast(exp: BaseExplanation, row: int) -> Floats | None:
    """Return the relevance of a row against its strongest competitor alone, (d,).

    Return None if `relevance` already contains these values, as in a contrast, with two clusters or with
    negative evidence, or if a threshold is explained.
    """
    if not splits_evidence(exp) or not is_split(exp)[row]:
        return None
    cluster, competitor = exp.cluster_codes[[row]], exp.competitor_codes[[row]]
    energy = outputs.informed(exp.energy, exp.table)
    found = attribution.attribute(energy, exp.table.take(np.array([row])), CodedQuery(cluster, competitor))
    return np.asarray(found.relevance[0], dtype=np.float64)


class SharedEvidence(NamedTuple):
    """The competitors that the evidence of each row is shared among.

    Attributes
    ----------
    competitor : (n, 3) the competitors with the largest shares, in decreasing order
    share : (n, 4) their shares, then that of all others together; 0 if it would be printed as 0%
    """

    competitor: Codes
    share: Floats

    @classmethod
    def of(cls, exp: BaseExplanation) -> SharedEvidence:
        """Return the shares of the rows of an explanation."""
        share = exp.competition.astype(np.float64)
        total = share.sum(axis=1, keepdims=True)
        share = np.divide(share, total, out=np.zeros_like(share), where=total > 0)
        competitor = smallest(-share, _MOST_NAMED)
        named = np.take_along_axis(share, competitor, axis=1)
        named = np.hstack([named, (total > 0) * np.maximum(0.0, 1.0 - named.sum(axis=1, keepdims=True))])
        named[named < _LEAST_SHARE] = 0.0
        return cls(competitor, named)


def sharing_sentences(exp: BaseExplanation, row: int) -> list[str]:
    """Return sentences that explain the two columns of relevance in the description of a row."""
    competitor, share = (each[0] for each in SharedEvidence.of(exp[row]))
    if not share.any():
        return []
    names = [*display.format_items(exp.labels[competitor].tolist()), "others"]
    parts = [f"{name} ({part:.0%})" for name, part in zip(names, share, strict=True) if part]
    name = display.format_items([exp.competitor[row]])[0]
    nearest = cluster_name(exp.competitor[row], name)
    first = f"the evidence, shared among the competitors {join_words(parts)}"
    return [
        f"relevance: {first if len(parts) > 1 else f'against {nearest}'}.",
        f"against {name}: the same evidence, against {nearest} alone.",
    ]


class Typical(NamedTuple):
    """How a value compares with the typical values of the row's own cluster and of its competitor.

    Attributes
    ----------
    own, other : the mean or frequency in the two clusters, as text
    value : the number, with enough digits for the comparisons to hold as printed; "" if it is not a number
    is_above : whether the value is above the mean of the competitor; None if frequencies are given
    is_nearer : whether the value is nearer to the mean of its own cluster
    """

    own: str
    other: str
    is_above: bool | None = None
    is_nearer: bool = False
    value: str = ""


def compare_with_typical(
    compared: Comparisons,
    columns: Sequence[int],
    values: Sequence[Any],
    clusters: Sequence[tuple[int, int]],
    dates: Container[int],
) -> list[Typical | None]:
    """Compare each value with two clusters, given as positions; None for values that cannot be compared.

    ``dates`` are the columns of dates. Rows of noise lie on all sides of the clusters, so their mean is not
    typical of any of them.
    """
    found: list[Typical | None] = [None] * len(values)
    noise = noise_mask(compared.labels)
    numbers: dict[int, tuple[float, float, float]] = {}
    for i, (column, value, is_absent) in enumerate(zip(columns, values, are_missing(values), strict=True)):
        pair = list(clusters[i])
        is_known = compared.missing is None or not compared.missing[pair, column].any()
        is_boolean = isinstance(value, (bool, np.bool_)) and is_known
        if is_absent or is_boolean or column in compared.categories:
            found[i] = _frequencies(compared, column, None if is_absent else value, pair)
            continue
        is_length = isinstance(value, (dt.time, dt.timedelta))
        number = to_days(value) if column in dates or is_length else float(value)
        mine, theirs = compared.mean[pair, column].tolist()
        if not np.isfinite([number, mine, theirs]).all() or number == theirs or noise[pair[1]]:
            continue
        if column in dates:
            found[i] = _measured(number, mine, theirs, "", display.format_dates([mine, theirs]))
        elif is_length:
            means = [length_as_text(mean, like=value) for mean in (mine, theirs)]
            found[i] = _measured(number, mine, theirs, "", means)
        else:
            numbers[i] = number, mine, theirs
    for i, (shown, texts) in zip(numbers, _true_as_printed(list(numbers.values())), strict=True):
        found[i] = _measured(*numbers[i], shown, texts)
    return [
        each._replace(is_nearer=False) if each is not None and noise[own] else each
        for each, (own, _) in zip(found, clusters, strict=True)
    ]


def _measured(number: float, mine: float, theirs: float, shown: str, means: list[str]) -> Typical:
    """Return how a number compares with the means of two clusters, given their texts."""
    here, there = means
    return Typical(here, there, number > theirs, abs(number - mine) < abs(number - theirs), shown)


def _frequencies(compared: Comparisons, column: int, value: Any, pair: list[int]) -> Typical | None:
    """Return how frequent a category, a boolean or, if it is None, a missing value is in two clusters."""
    if value is None:
        known = None if compared.missing is None else compared.missing[:, column]
    elif column in compared.categories:
        code = compared.code_of(column, value)
        known = compared.categories[column].frequency[:, code] if code >= 0 else None
    else:
        known = compared.mean[:, column] if value else 1.0 - compared.mean[:, column]
    if known is None:
        return None
    mine, theirs = display.format_frequencies(known[pair].tolist())
    return Typical(mine, theirs)


def _true_as_printed(compared: Sequence[tuple[float, float, float]]) -> list[tuple[str, list[str]]]:
    """Format numbers and two means each, with enough digits for the comparisons to hold as printed."""
    found = []
    all_shown = display.numbers([number for number, *_ in compared])
    all_means = display.format_all_apart([means for _, *means in compared])
    for (number, mine, theirs), shown, means in zip(compared, all_shown, all_means, strict=True):
        digits = 4
        while not all(_holds(x, number, (mine, theirs), means) for x in (number, float(shown))):
            shown, *means = (f"{value + 0.0:.{digits}g}" for value in (number, mine, theirs))
            digits += 1
            if digits > display.MOST_DIGITS:
                break
        found.append((shown, means))
    return found


def _holds(shown: float, number: float, means: tuple[float, float], texts: list[str]) -> bool:
    """Return whether the printed number compares with the printed means as the number does with the means."""
    near, far = (abs(number - mean) for mean in means)
    printed = [float(text) for text in texts]
    same_side = np.sign(shown - printed[1]) == np.sign(number - means[1])
    return bool(same_side and (abs(shown - printed[0]) < abs(shown - printed[1])) == (near < far))


def typical_sentence(exp: Any, row: int, compared: Comparisons, relevance: Floats) -> str:
    """Compare the strongest evidence for the row's cluster with the typical value of the competitor.

    Parameters
    ----------
    exp : the explanation of a table
    row : the position of the row
    compared : the means and frequencies of the clusters
    relevance : (d,) the relevance of the row against its strongest competitor
    """
    column = int(np.argmax(relevance))
    labels = exp.cluster.tolist()[row], exp.competitor.tolist()[row]
    if not relevance[column] > 0 or any(label not in compared.labels for label in labels):
        return ""  # no feature is evidence for the cluster, or no typical values are known
    own, other = (compared.labels.index(label) for label in labels)
    value = exp.table.take(np.array([row])).pick(np.array([[column]]))[0, 0]
    is_date = column in exp.table.dates
    (found,) = compare_with_typical(compared, [column], [value], [(own, other)], exp.table.dates)
    if found is None:
        return ""
    name = display.format_items([exp.feature_names[column]])[0]
    here, there = (cluster_name(label) for label in labels)
    if found.is_above is None:
        text = "missing" if is_missing(value) else display.format_items([str(value)])[0]
        return f"{name} is {text}, as in {found.own} of the rows of {here} and {found.other} of {there}."
    side = {True: ("above", "after"), False: ("below", "before")}[found.is_above][is_date]
    sentence = (
        f"{name} {found.value or display.format_value(value)} is {side} the {found.other} typical of {there}"
    )
    return sentence + f", and nearer to the {found.own} typical of {here}" * found.is_nearer + "."
