"""The story of one row: how clear the case is, what is typical elsewhere, and who shares the evidence."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from whycluster.core import attribution, outputs
from whycluster.core.arrays import Floats
from whycluster.core.attribution import CodedQuery
from whycluster.core.rules import CONTRAST
from whycluster.data import display
from whycluster.data.display import format_apart, format_dates, format_frequencies
from whycluster.data.labels import cluster_name
from whycluster.data.missing import is_missing
from whycluster.explanations.base import BaseExplanation
from whycluster.explanations.comparisons import Comparisons
from whycluster.explanations.formatting import join_words

BORDERLINE, TYPICAL, CLEAR = "borderline", "typical", "clear"
_CLEAR = 0.75  # a row is clear if it has more evidence than this share of the other members
_LEAST_SHARE = 0.005  # competitors with smaller shares would be printed with 0%
_MOST_NAMED = 3


class EvidenceRank(NamedTuple):
    """How the evidence of a row compares with that of the other members of its cluster.

    Attributes
    ----------
    word : "borderline" if the evidence is at most a tenth of the median evidence of all members, "clear" if
        it exceeds that of three quarters of the other members of the cluster, and "typical" otherwise
    n_below : the number of other members with less evidence
    n_others : the number of other members
    """

    word: str
    n_below: int
    n_others: int


def evidence_rank(exp: BaseExplanation, row: int) -> EvidenceRank | None:
    """Return the rank of a row's evidence, or None if the row is no member, or the other rows are unknown."""
    if not exp.is_member[row] or exp.positions is not None:
        return None
    own = exp.is_member & (exp.cluster_codes == exp.cluster_codes[row])
    n_others, n_below = int(own.sum()) - 1, int((exp.evidence[own] < exp.evidence[row]).sum())
    if not n_others:
        return None
    word = CLEAR if n_below > _CLEAR * n_others else TYPICAL
    return EvidenceRank(BORDERLINE if exp.is_borderline[row] else word, n_below, n_others)


def rank_sentence(exp: BaseExplanation, row: int) -> str:
    """Return the rank of a row's evidence as a sentence, or "" if it has none."""
    rank = evidence_rank(exp, row)
    if rank is None:
        return ""
    others = "the only other row" if rank.n_others == 1 else f"of the other {rank.n_others:,} rows"
    if rank.n_others == 1:
        than = "more" if rank.n_below else "no more"
        return f"{rank.word.capitalize()}: {than} evidence than {others} in {cluster_name(exp.cluster[row])}."
    n = {0: "none", rank.n_others: "all"}.get(rank.n_below, f"{rank.n_below:,}")
    return f"{rank.word.capitalize()}: more evidence than {n} {others} in {cluster_name(exp.cluster[row])}."


def contrast(exp: BaseExplanation, row: int) -> Floats | None:
    """Return the relevance of a row against its strongest competitor alone, (d,).

    None if the relevance is already that, as in a contrast, with two clusters or with negative evidence, or
    if a threshold is explained.
    """
    if exp.rule == CONTRAST or exp.threshold is not None or len(exp.labels) < 3 or exp.evidence[row] < 0:
        return None
    if exp.energy.needs_means and exp.positions is not None:  # some rows do not have the means of all rows
        return None
    cluster, competitor = exp.cluster_codes[[row]], exp.competitor_codes[[row]]
    if cluster[0] == competitor[0]:
        return None
    energy = outputs.informed(exp.energy, exp.table)
    found = attribution.attribute(energy, exp.table.take(np.array([row])), CodedQuery(cluster, competitor))
    return np.asarray(found.relevance[0], dtype=np.float64)


def sharing_sentences(exp: BaseExplanation, row: int) -> list[str]:
    """Return which competitors the evidence of a row is shared among, and what the other column shows."""
    shares = exp[row].competition[0].astype(np.float64)
    name = display.format_items([exp.competitor[row]])[0]
    if not shares.sum() > 0:
        return []
    shares /= shares.sum()
    order = [k for k in np.argsort(-shares, kind="stable").tolist() if shares[k] >= _LEAST_SHARE]
    names = display.format_items([exp.labels[k] for k in order[:_MOST_NAMED]])
    parts = [f"{name} ({shares[k]:.0%})" for name, k in zip(names, order, strict=False)]
    left = float(1.0 - shares[order[:_MOST_NAMED]].sum())
    if left >= _LEAST_SHARE:
        parts.append(f"others ({left:.0%})")
    among = (
        f"the competitors {join_words(parts)}" if len(parts) > 1 else cluster_name(exp.competitor[row], name)
    )
    return [
        f"relevance: the evidence, shared among {among}."
        if len(parts) > 1
        else f"relevance: against {among}.",
        f"against {name}: the same evidence, against {cluster_name(exp.competitor[row], name)} alone.",
    ]


def typical_sentence(exp: Any, row: int, compared: Comparisons, relevance: Floats) -> str:
    """Compare the value that speaks most for the row's cluster with what is typical of the competitor.

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
        return ""  # nothing speaks for the cluster, or no row shows what is typical
    own, other = (compared.labels.index(label) for label in labels)
    value = exp.table.take(np.array([row])).pick(np.array([[column]]))[0, 0]
    name = display.format_items([exp.feature_names[column]])[0]
    here, there = (cluster_name(label) for label in labels)
    if is_missing(value):
        return _frequencies(f"{name} is missing", compared.missing, column, own, other, here, there)
    if column in compared.categories:
        names = [str(each) for each in compared.names[column]]
        known = compared.categories[column].frequency
        if not known.shape[1] or str(value) not in names:
            return ""
        what = f"{name} is {display.format_items([str(value)])[0]}"
        return _frequencies(what, known, names.index(str(value)), own, other, here, there)
    means = compared.mean[[own, other], column]
    if isinstance(value, (bool, np.bool_)):
        known = (means if value else 1.0 - means)[:, None]
        return _frequencies(f"{name} is {value}", known, 0, 0, 1, here, there)
    return _means(name, value, means, column in exp.table.dates, here, there)


def _frequencies(
    what: str, known: Floats | None, column: int, own: int, other: int, here: str, there: str
) -> str:
    """Return "city is Rome, as in 72% of the rows of cluster 3 and 4% of cluster 5."."""
    if known is None:
        return ""
    mine, theirs = format_frequencies(known[[own, other], column].tolist())
    return f"{what}, as in {mine} of the rows of {here} and {theirs} of {there}."


def _means(name: str, value: Any, means: Floats, is_date: bool, here: str, there: str) -> str:
    """Return "age 22 is below the 51.3 typical of cluster 5, and nearer to the 24.1 of cluster 3."."""
    number = float(np.datetime64(value, "us").astype(np.int64)) / 86_400_000_000 if is_date else float(value)
    if np.isnan(means).any() or number == means[1]:
        return ""
    text = display.format_value(value)
    mine, theirs = (format_dates if is_date else format_apart)(means.tolist())
    above, below = ("after", "before") if is_date else ("above", "below")
    sentence = f"{name} {text} is {above if number > means[1] else below} the {theirs} typical of {there}"
    if abs(number - means[0]) < abs(number - means[1]):
        sentence += f", and nearer to the {mine} typical of {here}"
    return sentence + "."
