"""Findings in words: a sentence about each cluster, the competition between clusters, and warnings.

Only members count, that is, rows explained for the cluster they belong to, as in `summary`. In this module,
clusters are codes 0..K-1. Groups 0..G-1 are the clusters that have members, in the order of their codes.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from whycluster.core import attribution, outputs
from whycluster.core.arrays import Codes, Floats
from whycluster.core.attribution import CodedQuery
from whycluster.data import display
from whycluster.data.arrays import evenly_spaced_per_group
from whycluster.data.column_checks import identifiers_and_dates
from whycluster.data.display import format_name, format_names
from whycluster.data.labels import NOISE, cluster_name
from whycluster.data.table import Table
from whycluster.explanations.base import BaseExplanation
from whycluster.explanations.explanation import Explanation
from whycluster.explanations.fidelity import LOW, Fidelity
from whycluster.explanations.formatting import MOST_LISTED, capitalize, join_first, list_clusters
from whycluster.explanations.summary import MISSING, ClusterSummary, Summary

MOST_ROWS = 5000  # maximum number of rows in a sample of members
N_DISTINCTIVE = 3  # number of features kept for each pair of clusters

_TWO_COMPETITORS = 2 / 3  # two competitors are named only if they have this share of members together

_ENOUGH = 10  # number of rows needed for a warning about all clusters
_ONE_COLUMN = 0.9  # share of all relevance, or of all variance
_DRIVES = 0.3  # share of the relevance of a cluster
_RESTS_ON = 0.25  # share of the relevance of a cluster
_MOSTLY = 0.5  # share of the members of a cluster
_ALIKE = 0.1  # fraction of the median evidence


class Finding(NamedTuple):
    """A warning that an analyst should read before relying on an explanation.

    Attributes
    ----------
    kind : "fidelity", "one column", "identifier", "date", "missing values", "alike", "borderline" or "left
        out"
    text : the finding, why it matters, and what to do about it
    clusters : the labels of the clusters that the finding is about, or () if it is about all clusters
    feature : the name of the column that the finding is about, or None if it is not about one column
    """

    kind: str
    text: str
    clusters: tuple[Any, ...] = ()
    feature: Hashable | None = None


@dataclass(frozen=True, eq=False)
class Competition:
    """The competition between all K clusters and the G clusters that have members.

    Attributes
    ----------
    clusters : (G,) labels of the clusters that have members
    labels : (K,) labels of all clusters
    share : (G, K) the share of members whose strongest competitor is k
    evidence : (G, K) the mean evidence of the members against k, or NaN for their own cluster
    feature : (G, K, 3) the features that most distinguish the members from k, in order of decreasing
        relevance, as positions in ``feature_names``, or -1 if there are fewer than three
    relevance : (G, K, 3) the mean relevance of these features in the contrast with k, or NaN if there are
        fewer than three
    feature_names : the names of the d features
    """

    clusters: NDArray[Any]
    labels: NDArray[Any]
    share: Floats
    evidence: Floats
    feature: Codes
    relevance: Floats
    feature_names: list[Hashable]


@dataclass(frozen=True, eq=False)
class MemberSample:
    """A sample of at most `MOST_ROWS` members: up to a fixed number of evenly spaced rows per cluster.

    Attributes
    ----------
    cluster : (m,) the clusters of the members
    table : the m rows, in order
    h : (m, K) the evidence of the members against every other cluster, or NaN for their own cluster
    """

    cluster: Codes
    table: Table
    h: NDArray[Any]

    @classmethod
    def of(cls, exp: BaseExplanation, where: str) -> MemberSample:
        """Draw the sample; ``where`` names the public function in messages."""
        most = max(1, MOST_ROWS // max(1, len(exp.member_clusters.codes)))
        rows = evenly_spaced_per_group(np.where(exp.is_member, exp.cluster_codes, -1), most)
        some = exp if len(rows) == len(exp) else exp[rows]  # all rows, if there are few
        if not len(some):
            return cls(some.cluster_codes, some.table, np.empty((0, len(exp.labels))))
        table = some.unchanged_table(where)
        return cls(some.cluster_codes, table, outputs.contrasts(exp.energy, table, some.cluster_codes))


def borderline(exp: BaseExplanation) -> NDArray[np.bool_]:
    """Return whether each row is so close to a boundary that it could as well be on the other side, (n,)."""
    return exp.is_borderline


def typical_rows(exp: BaseExplanation, cluster_code: int, n: int) -> Codes:
    """Return the n members whose evidence is nearest to the cluster's median, as positions, nearest first.

    Members that are equally near up to rounding, such as two with the median halfway between them, keep the
    order of their rows.
    """
    own = _members_of(exp, cluster_code)
    if not own.size:
        return own
    evidence = exp.evidence[own].astype(np.float64)
    rounding = max(1e-9, 8 * float(np.finfo(exp.evidence.dtype).eps))
    far = np.abs(evidence - np.median(evidence)) / (np.abs(evidence).max() or 1.0)
    return own[np.argsort(np.rint(far / rounding), kind="stable")][:n]


def borderline_rows(exp: BaseExplanation, cluster_code: int, n: int) -> Codes:
    """Return the positions of the n members of a cluster with the least evidence, in increasing order."""
    own = _members_of(exp, cluster_code)
    return own[np.argsort(exp.evidence[own], kind="stable")][:n]


def _members_of(exp: BaseExplanation, cluster_code: int) -> Codes:
    return np.flatnonzero(exp.is_member & (exp.cluster_codes == cluster_code))


def competition(
    exp: BaseExplanation, sample: MemberSample | None = None, most: int | None = None
) -> Competition:
    """Return which clusters compete, and the features that distinguish them.

    Shares refer to all members. Evidence and features refer to a sample of at most 5000 members. The sample
    contains equally many members of each cluster that has enough members, spread evenly over the cluster's
    rows. For documents and images, no features are returned.

    Parameters
    ----------
    exp : the explanation
    sample : the sample of the members, if already drawn
    most : return features for this many of each cluster's strongest competitors only; by default for all
    """
    codes, _, share = exp.member_clusters
    some = MemberSample.of(exp, "competition") if sample is None else sample
    group = np.searchsorted(codes, some.cluster)
    shape = (len(codes), len(exp.labels), N_DISTINCTIVE)
    feature, relevance = np.full(shape, -1), np.full(shape, np.nan)
    evidence = np.full(shape[:2], np.nan)
    if group.size:
        evidence = _means(some.h, group, len(codes))
        energy = exp.energy
        if energy.needs_means:  # uses the means of all rows, not only of the sample
            energy = outputs.informed(energy, exp.unchanged_table("competition"))
        # One competitor at a time, so that no array of shape (rows, clusters, features) is needed.
        for others in _competitors(share, codes, most) if isinstance(exp, Explanation) else ():
            found = attribution.attribute(energy, some.table, CodedQuery(some.cluster, others[group]))
            pairs = np.arange(len(codes)), others
            feature[pairs], relevance[pairs] = _distinctive(_means(found.relevance, group, len(codes)))
    return Competition(
        clusters=exp.labels[codes],
        labels=exp.labels,
        share=share,
        evidence=evidence,
        feature=feature,
        relevance=relevance,
        feature_names=exp.table.feature_names if isinstance(exp, Explanation) else [],
    )


def _competitors(share: Floats, codes: Codes, most: int | None) -> Iterator[Codes]:
    """Yield one competitor of each cluster at a time, (G,): all competitors, or the ``most`` strongest."""
    if most is None:
        for j in range(share.shape[1] - 1):
            yield np.where(j < codes, j, j + 1)  # the j-th cluster other than their own
        return
    ranked = share.copy()
    ranked[np.arange(len(codes)), codes] = -1.0
    yield from np.argsort(-ranked, axis=1, kind="stable")[:, : min(most, share.shape[1] - 1)].T


def _distinctive(mean: Floats) -> tuple[Codes, Floats]:
    """Return the features with the largest positive relevance in each group, (G, 3), and their relevance."""
    best = np.argsort(-mean, axis=1, kind="stable")[:, :N_DISTINCTIVE]
    value = np.take_along_axis(mean, best, axis=1)
    short = ((0, 0), (0, N_DISTINCTIVE - best.shape[1]))
    best = np.pad(np.where(value > 0, best, -1), short, constant_values=-1)
    return best, np.pad(np.where(value > 0, value, np.nan), short, constant_values=np.nan)


def _means(values: NDArray[Any], group: Codes, n_groups: int) -> Floats:
    """Return the mean over the rows of each group, (G, m); no group may be empty."""
    order = np.argsort(group, kind="stable")
    starts = np.searchsorted(group[order], np.arange(n_groups))
    size = np.bincount(group, minlength=n_groups)[:, None]
    return np.asarray(np.add.reduceat(values[order].astype(np.float64), starts, axis=0) / size)


def sentences(exp: BaseExplanation, summary: ClusterSummary | None = None) -> list[str]:
    """Describe each cluster of the summary in one sentence: its features and its main competitors.

    For a table, the sentence names the strongest features that together carry 60% of the cluster's positive
    relevance, up to four of them. For documents, it names up to three words.

    Parameters
    ----------
    exp : the explanation of a table or of documents
    summary : its summary, if already computed
    """
    headlines = (exp.summary() if summary is None else summary).headlines()
    names, members = format_names(exp.labels.tolist()), exp.member_clusters
    texts = []
    for code, share, headline in zip(
        members.codes.tolist(), members.competitor_share, headlines, strict=True
    ):
        competitors = "" if names[code] == NOISE else _main_competitors(share, names)
        texts.append(headline + f"; {competitors}" * bool(competitors) + ".")
    return texts


def _main_competitors(share: Floats, names: list[str]) -> str:
    """Return the one or two clusters that most members compete with, or "" if there are many competitors."""
    first, *rest = np.argsort(-share, kind="stable")[:2].tolist()
    if share[first] > _MOSTLY:
        return "mostly " * bool(share[first] < 1) + f"against {list_clusters([names[first]])}"
    two = sorted([first, *rest])
    listed = list_clusters([names[code] for code in two])
    return f"against {listed}" if share[two].sum() >= _TWO_COMPETITORS else ""


def warnings(
    exp: BaseExplanation,
    left_out: Mapping[Any, str] | None = None,
    summary: Summary | None = None,
    sample: MemberSample | None = None,
) -> list[Finding]:
    """Return warnings about an explanation, in order of decreasing importance.

    Parameters
    ----------
    exp : the explanation; warnings about columns are only given for tables
    left_out : columns that were left out before clustering, with the reasons
    summary : the summary of the explanation, for tables, if already computed
    sample : the sample of the members, if already drawn
    """
    found = [] if exp.fidelity is None else list(_unfaithful(exp.fidelity))
    if isinstance(exp, Explanation):
        summary = exp.summary() if summary is None else summary
        found += [*_one_column(exp), *_driven(exp, summary), *_missing(summary)]
    found += [*_alike(exp, sample), *_undecided(exp)]
    return found + (_left_out(left_out) if left_out else [])


def _unfaithful(fidelity: Fidelity) -> Iterator[Finding]:
    agreement = fidelity.cross_validated_per_cluster
    bad = [c for c in np.argsort(agreement, kind="stable") if fidelity.size[c] and agreement[c] < LOW]
    matched = [
        f"{_cluster(fidelity.labels[c])} ({agreement[c]:.1%} of {display.count(fidelity.size[c], 'row')})"
        for c in bad
    ]
    labels = tuple(fidelity.labels[bad].tolist())
    if fidelity.cross_validated < LOW:
        yield Finding(
            "fidelity",
            f"The labels are explained through a surrogate, which predicts only "
            f"{fidelity.cross_validated:.1%} of them for rows that it was not fitted to "
            f"({fidelity.in_sample:.1%} for rows that it was). What holds for the surrogate may not hold for "
            f"the labels. Badly matched: {join_first(matched)}. Read the explanations of these clusters "
            f"with care, and check that the columns are those that the labels were made from.",
            labels,
        )
    elif bad:
        yield Finding(
            "fidelity",
            f"The labels are explained through a surrogate. It predicts {fidelity.cross_validated:.1%} of "
            f"all labels for rows that it was not fitted to, but fewer here: {join_first(matched)}. Read "
            f"the explanations of these clusters with care.",
            labels,
        )


def _one_column(exp: Explanation) -> Iterator[Finding]:
    """Warn if one of three or more columns carries nearly all relevance."""
    d = len(exp.feature_names)
    if len(exp) < _ENOUGH:
        return
    total = np.zeros(d)
    for rows in exp.table.slices():
        total += np.abs(exp.relevance[rows]).sum(axis=0, dtype=np.float64)
    first = int(total.argmax())
    if d < 3 or not total[first] > _ONE_COLUMN * total.sum():
        return
    name, spread = exp.feature_names[first], exp.table.variances()
    text = f'"{format_name(name)}" carries {_percent(total[first] / total.sum())} of all relevance'
    if exp.energy.gives_probabilities:  # a mixture estimates variances, so units do not matter
        spread = None
    if spread is not None and spread[first] > _ONE_COLUMN * spread.sum():
        text += (
            f" and has {_percent(spread[first] / spread.sum())} of the variance of all columns: it alone "
            f"separates the clusters, and the other {d - 1} columns hardly count. If that is only due to its "
            f"units, standardize the columns and cluster again."
        )
    else:
        text += (
            f": it alone separates the clusters, and the other {d - 1} columns hardly count. If that is not "
            f"intended, leave it out and cluster again."
        )
    yield Finding("one column", text, feature=name)


def _driven(exp: Explanation, summary: Summary) -> list[Finding]:
    """Warn about clusters that depend on an identifier or a date, with identifiers before dates."""
    identifiers, dates = [], []
    share = summary.share
    columns = np.flatnonzero((share >= _DRIVES).any(axis=0)).tolist()
    for column, (reason, is_date) in zip(columns, identifiers_and_dates(exp.table, columns), strict=True):
        if not reason and not is_date:
            continue
        driven = np.flatnonzero(share[:, column] >= _DRIVES)
        clusters, name = summary.clusters[driven], exp.feature_names[column]
        largest = "up to " * (len(driven) > 1) + _percent(share[driven, column].max())
        listed = list_clusters(format_names(clusters.tolist()))
        carries = f"carries {largest} of the relevance of {listed}"
        if reason:
            identifiers.append(
                Finding(
                    "identifier",
                    f'"{format_name(name)}" {carries}, and looks {reason.replace(",", ":", 1)}. An '
                    f"identifier names a row but does not describe it. Leave the column out and cluster "
                    f"again.",
                    tuple(clusters.tolist()),
                    name,
                )
            )
        else:
            dates.append(
                Finding(
                    "date",
                    f'"{format_name(name)}" {carries}, and holds dates. Rows may be grouped by when they '
                    f"were recorded, not by what they are like. If that is not intended, leave the column "
                    f"out, or replace it with a feature derived from it, such as an age or the month.",
                    tuple(clusters.tolist()),
                    name,
                )
            )
    return identifiers + dates


def _missing(summary: Summary) -> Iterator[Finding]:
    rests = (summary.direction == MISSING) & (summary.share >= _RESTS_ON)
    for group, column in np.argwhere(rests).tolist():
        label, name = summary.clusters[group], summary.feature_names[column]
        inside, outside = summary.inside[group, column], summary.outside[group, column]
        elsewhere = "" if np.isnan(outside) else f" ({_percent(outside)} elsewhere)"
        yield Finding(
            "missing values",
            f'{capitalize(_cluster(label))} rests on missing values: "{format_name(name)}" is missing in '
            f"{_percent(inside)} of its rows{elsewhere} and carries {_percent(summary.share[group, column])} "
            f"of its relevance. Rows may be grouped by how they were recorded, not by what they are like. "
            f"Find out why the values are missing; fill them in or leave the column out, and cluster again.",
            (summary.clusters.tolist()[group],),
            name,
        )


def _alike(exp: BaseExplanation, sample: MemberSample | None) -> list[Finding]:
    """Warn about pairs of clusters whose members have little evidence against each other's cluster."""
    codes, median = exp.member_clusters.codes, exp.median_evidence
    if len(codes) < 2 or median == 0.0:
        return []
    some = MemberSample.of(exp, "warnings") if sample is None else sample
    middle = np.stack([np.median(some.h[some.cluster == code][:, codes], axis=0) for code in codes])
    near = np.maximum(middle, middle.T)
    pairs = [(a, b) for a, b in np.argwhere(near < _ALIKE * median).tolist() if a < b]
    pairs.sort(key=lambda pair: float(near[pair]))
    found = []
    for a, b in pairs[:MOST_LISTED]:
        both = exp.labels[codes[[a, b]]]
        found.append(
            Finding(
                "alike",
                f"Almost nothing separates {list_clusters(format_names(both.tolist()))}: the median evidence "
                f"of the first against the second is {display.number(middle[a, b])}, and "
                f"{display.number(middle[b, a])} the other way around, compared with "
                f"{display.number(median)} for all {_nouns(exp)}. {capitalize(_nouns(exp))} may be in either "
                f"by chance. Merge the two, or cluster again with fewer clusters.",
                tuple(both.tolist()),
            )
        )
    if len(pairs) > MOST_LISTED:
        more = display.count(len(pairs) - MOST_LISTED, "more pair")
        found[-1] = found[-1]._replace(text=f"{found[-1].text} The same holds for {more} of clusters.")
    return found


def _undecided(exp: BaseExplanation) -> Iterator[Finding]:
    """Warn about clusters whose members are mostly borderline."""
    near = borderline(exp)
    for code in exp.member_clusters.codes:
        own = near[_members_of(exp, code)]
        if own.mean() > _MOSTLY:
            label, n = exp.labels[code], len(own)
            some = "its only" if n == 1 else f"{int(own.sum()):,} of its {n:,}"
            yield Finding(
                "borderline",
                f"{capitalize(_cluster(label))} is mostly borderline: {some} {_nouns(exp, n)} "
                f"{'has' if n == 1 else 'have'} at most a tenth of the median evidence, and could just as "
                f"well be in another cluster. Do not rely on it; a different number of clusters, or "
                f"different columns, may separate the clusters more clearly.",
                tuple(exp.labels[[code]].tolist()),
            )


def _left_out(left_out: Mapping[Any, str]) -> list[Finding]:
    reasons = [f'"{format_name(name)}" ({reason})' for name, reason in left_out.items()]
    one = len(reasons) == 1
    text = (
        f"{display.count(len(reasons), 'column')} {'was' if one else 'were'} left out, so the clusters do "
        f"not depend on {'it' if one else 'them'}: {join_first(reasons)}. Make sure that "
        f"{'it does not matter' if one else 'none of them matters'}."
    )
    return [Finding("left out", text, feature=next(iter(left_out)) if one else None)]


def _cluster(label: Any) -> str:
    return cluster_name(label, format_name(label))


def _nouns(exp: BaseExplanation, n: int = 2) -> str:
    """Return the noun for n rows: "row", "rows", "document" and so on."""
    return exp.noun.lower() + "s" * (n != 1)


def _percent(part: float) -> str:
    """Format a share as a percentage; only a share of exactly 1 becomes 100%."""
    return "over 99%" if 0.995 <= part < 1.0 else f"{part:.0%}"
