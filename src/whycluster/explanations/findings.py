"""Findings in words: a sentence about each cluster, the competition between clusters, and warnings.

Only members count, that is, rows explained for the cluster they belong to, as in `summary`. In this module,
clusters are codes 0..K-1. Groups 0..G-1 are the clusters that have members, in the order of their codes.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from whycluster.core import attribution, outputs
from whycluster.core.arrays import Codes, Floats
from whycluster.core.attribution import CodedQuery
from whycluster.core.errors import InvalidInputError
from whycluster.data.display import format_names
from whycluster.data.labels import NOISE, list_clusters
from whycluster.data.validation import check_integer
from whycluster.explanations.base import BaseExplanation
from whycluster.explanations.checks.all_checks import checks, warnings
from whycluster.explanations.checks.finding import READ_FIRST, Check, Finding
from whycluster.explanations.explanation import Explanation
from whycluster.explanations.quality.clustering_quality import Null, Quality, quality
from whycluster.explanations.stories.member_sample import MemberSample, members_of
from whycluster.explanations.summaries.statements import Statement
from whycluster.explanations.summaries.summary import ClusterSummary, Summary

__all__ = [
    "READ_FIRST",
    "Check",
    "Competition",
    "Finding",
    "Null",
    "Quality",
    "Statement",
    "borderline",
    "borderline_rows",
    "checks",
    "competition",
    "quality",
    "sentences",
    "statements",
    "typical_rows",
    "warnings",
]

N_DISTINCTIVE = 3  # number of features kept for each pair of clusters

_TWO_COMPETITORS = 2 / 3  # two competitors are named only if they have this share of members together

_MOSTLY = 0.5  # share of the members of a cluster


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


def borderline(exp: BaseExplanation) -> NDArray[np.bool_]:
    """Return whether each row is so close to a boundary that it might as well be on the other side, (n,).

    Parameters
    ----------
    exp : the explanation
    """
    return exp.is_borderline


def typical_rows(exp: BaseExplanation, cluster_code: int, n: int) -> Codes:
    """Return the n members whose evidence is nearest to the cluster's median, as positions, nearest first.

    Members that are equally near up to rounding, such as two with the median halfway between them, keep the
    order of their rows.

    Parameters
    ----------
    exp : the explanation
    cluster_code : the position of the cluster in ``exp.labels``
    n : the largest number of members
    """
    own = members_of(exp, cluster_code)
    if not own.size:
        return own
    evidence = exp.evidence[own].astype(np.float64)
    rounding = max(1e-9, 8 * float(np.finfo(exp.evidence.dtype).eps))
    far = np.abs(evidence - np.median(evidence)) / (np.abs(evidence).max() or 1.0)
    return own[np.argsort(np.rint(far / rounding), kind="stable")][:n]


def borderline_rows(exp: BaseExplanation, cluster_code: int, n: int) -> Codes:
    """Return the positions of the n members of a cluster with the least evidence, in increasing order.

    Parameters
    ----------
    exp, cluster_code, n : as in `typical_rows`
    """
    own = members_of(exp, cluster_code)
    return own[np.argsort(exp.evidence[own], kind="stable")][:n]


def competition(
    exp: BaseExplanation, sample: MemberSample | None = None, most: int | None = None
) -> Competition:
    """Return which clusters compete, and the features that distinguish them.

    Shares refer to all members. Evidence and features refer to a sample of at most 5000 members. The sample
    contains the same number of members from each cluster that has enough members, spread evenly over the
    cluster's rows. For documents and images, no features are returned.

    Parameters
    ----------
    exp : the explanation
    sample : the sample of the members, if already drawn; only its clusters are described
    most : return features only for this many of each cluster's strongest competitors; by default, for all
    """
    some = MemberSample.of(exp, "competition") if sample is None else sample
    cluster_codes = some.cluster
    codes, group = np.unique(cluster_codes, return_inverse=True)
    share = exp.member_clusters.shares_of(codes)
    shape = (len(codes), len(exp.labels), N_DISTINCTIVE)
    feature, relevance = np.full(shape, -1), np.full(shape, np.nan)
    evidence = np.full(shape[:2], np.nan)
    for cluster, h in some.blocks():
        in_block, member = np.unique(cluster, return_inverse=True)
        evidence[np.searchsorted(codes, in_block)] = _means(h, member, len(in_block))
    if group.size:
        energy = exp.energy
        if energy.needs_means:  # uses the means of all rows, not only of the sample
            energy = outputs.informed(energy, exp.unchanged_table("competition"))
        # One competitor at a time, so that no array of shape (rows, clusters, features) is needed.
        for others in _competitors(share, codes, most) if isinstance(exp, Explanation) else ():
            found = attribution.attribute(energy, some.exp.table, CodedQuery(cluster_codes, others[group]))
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


def statements(exp: Explanation, n_features: int = 5, summary: Summary | None = None) -> list[Statement]:
    """Return statements about the strongest features of each cluster, compared with other clusters.

    Each feature is compared with the clusters that most of its relevance comes from, at most three.

    All descriptions of clusters in this package consist of these statements.

    Parameters
    ----------
    exp : the explanation of a table
    n_features : the maximum number of features per cluster
    summary : its summary, if already computed
    """
    if not isinstance(exp, Explanation):
        raise InvalidInputError(
            f"statements: exp must be the explanation of a table; got {type(exp).__name__}. For documents, "
            "use exp.summary()."
        )
    check_integer(n_features, 1, "statements", "n_features")
    found = exp.summary() if summary is None else summary
    groups = range(len(found.clusters))
    return [each for some in found.statements_of_each(groups, n_features) for each in some]


def sentences(exp: BaseExplanation, summary: ClusterSummary | None = None) -> list[str]:
    """Describe each cluster of the summary in one sentence: its features and its main competitors.

    For a table, the sentence compares the strongest features that together carry 60% of the cluster's
    positive relevance (two to four features) with the clusters that this relevance comes from. If all other
    features add little or nothing, it names only one feature and mentions this. For documents, it names up to
    three words.

    Parameters
    ----------
    exp : the explanation of a table or of documents
    summary : its summary, if already computed
    """
    headlines = (exp.summary() if summary is None else summary).headlines()
    if isinstance(exp, Explanation):
        return [f"{headline}." for headline in headlines]
    names, members = format_names(exp.labels.tolist()), exp.member_clusters
    texts = []
    for group, (code, headline) in enumerate(zip(members.codes.tolist(), headlines, strict=True)):
        others = members.competitors(group)
        competitors = "" if names[code] == NOISE else _main_competitors(*others, names)
        texts.append(headline + f"; {competitors}" * bool(competitors) + ".")
    return texts


def _main_competitors(competitor: Codes, share: Floats, names: list[str]) -> str:
    """Return the one or two clusters that most members compete with, or "" if there are many competitors."""
    if share[0] > _MOSTLY:
        return "mostly " * bool(share[0] < 1) + f"against {list_clusters([names[competitor[0]]])}"
    listed = list_clusters([names[code] for code in sorted(competitor[:2].tolist())])
    return f"against {listed}" if share[:2].sum() >= _TWO_COMPETITORS else ""
