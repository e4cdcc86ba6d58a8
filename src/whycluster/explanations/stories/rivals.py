"""The competitors that the relevance of each feature comes from; statements compare clusters with them."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from whycluster.core import outputs
from whycluster.core.arrays import Codes, Floats
from whycluster.core.attribution import run_rows
from whycluster.core.blocks import InOrder
from whycluster.core.energies import Energy
from whycluster.core.passes import Block
from whycluster.core.rows import Rows
from whycluster.data.arrays import smallest
from whycluster.explanations.base import BaseExplanation
from whycluster.explanations.stories.member_sample import MemberSample
from whycluster.explanations.summaries.comparisons import Clusters, TopRivals

_MOST_RIVALS = 8  # rivals considered for each cluster, if it would take long to consider all
_MOST_STEPS = 1 << 30  # multiplications that may be spent on considering all


def rivals_by_relevance(
    exp: BaseExplanation, relevance: Floats, place: Codes, is_known: NDArray[np.bool_]
) -> Clusters:
    """Find the competitors that the relevance of each feature of each cluster comes from.

    The contribution of competitor k is the sum of a_k (e_k - e_c) over a sample of the members. The rivals
    are the fewest competitors that make up two thirds of the contributions that have the same sign as the
    relevance, but at most three.

    Parameters
    ----------
    exp : the explanation
    relevance : (G, d) the mean relevance in each cluster that has members
    place, is_known : see `FindRivals`
    """
    sample, codes = MemberSample.of(exp, "summary"), exp.member_clusters.codes
    top, sign = TopRivals.of(relevance.shape), np.sign(relevance)
    if not len(codes):
        return top.rivals()
    cluster = sample.cluster
    group = np.searchsorted(codes, cluster)
    energy = outputs.informed(exp.energy, exp.table)
    rivals, weight = _candidates(sample, codes, group, relevance.shape[1])
    for others, weights in zip(rivals.T, weight.T, strict=True):
        weighted = Weighted(cluster, others[group], weights, group)
        found = contributions(energy, sample.exp.table, weighted, len(codes))
        rival = place[others]
        is_comparable = (rival >= 0)[:, None] & is_known[rival]
        top.add(sign * found, np.where(is_comparable, rival[:, None], -1))
    return top.rivals()


class Weighted(NamedTuple):
    """Rows with one weighted competitor each, as arrays of shape (n,); see `contributions`."""

    cluster: Codes
    competitor: Codes
    weight: NDArray[Any]
    group: Codes


def contributions(energy: Energy, rows: Rows, weighted: Weighted, n_groups: int) -> Floats:
    """Return the sum of a_k (e_k - e_c) over the rows of each group, (G, d), for one competitor k per row."""
    sums = InOrder(np.zeros((n_groups, energy.n_features)))

    def work(block: Block) -> None:
        total, each_row = np.zeros((n_groups, energy.n_features)), np.arange(block.n_rows)
        cluster, competitor, weight, group = (each[block.rows] for each in weighted)
        block.weights[...] = 0.0
        block.weights[each_row, competitor] = weight
        block.weights[each_row, cluster] = -weight
        energy.combine(block.x, block.weights, block.relevance, block.scratch)
        np.add.at(total, group, block.relevance)
        sums.add(block.start, block.stop, total)

    run_rows(work, energy, rows)
    return sums.so_far[1]


def _candidates(sample: MemberSample, codes: Codes, group: Codes, d: int) -> tuple[Codes, Floats]:
    """Return the competitors to consider, (G, C), by decreasing weight, and their weights, (m, C)."""
    n_clusters, m = sample.exp.energy.n_clusters, len(group)
    n_passes = max(_MOST_RIVALS, _MOST_STEPS // max(1, m * n_clusters * d))
    n_rivals = min(n_clusters - 1, n_passes)
    rivals, weight = np.empty((len(codes), n_rivals), np.intp), np.empty((m, n_rivals))
    for rows, weights in sample.weights():
        here, member = np.unique(group[rows], return_inverse=True)
        total = np.zeros((len(here), n_clusters))
        np.add.at(total, member, weights)
        total[np.arange(len(here)), codes[here]] = -np.inf  # the cluster itself
        rivals[here] = smallest(-total, n_rivals)
        weight[rows] = np.take_along_axis(weights, rivals[group[rows]], axis=1)
    return rivals, weight
