"""From energies to evidence: which cluster a row is in, against which competitor, by how much.

All functions work on one block of b rows. The names are those of the paper: h_k = s_k - s_c is the evidence
for cluster c against competitor k, and f_c = min_k h_k the evidence for c (Props. 1, 6 and 7).
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from whycluster.core.arrays import Codes, Floats, least, row_sums
from whycluster.core.tree import Tree

# The evidence against a cluster that does not compete; unlike infinity, times 0 it is 0.
_TOO_FAR = 1e300


class Assignment(NamedTuple):
    """How each row of a block stands: (b,) arrays."""

    cluster: Codes  # the cluster c that is explained
    competitor: Codes  # its strongest competitor, the k that attains f_c
    evidence: NDArray[Any]  # f_c


def compete(
    energies: Floats, tree: Tree | None = None, cluster: Codes | None = None, competitor: Codes | None = None
) -> Assignment:
    """Evidence for each row's cluster: f_c = min over k != c of h_k (Prop. 1, layer 2).

    Parameters
    ----------
    energies : (b, K), turned in place into h, with +inf at the own cluster so that it never competes
    tree : how the energies of a tree are to be read: they are of pairs of nodes, not of clusters
    cluster : (b,) the cluster to explain; by default the one of least energy, the lowest index on a tie
    competitor : (b,) the competitor, where the user chose it; the evidence against oneself is 0

    Where the cluster is not the assigned one, that one is the competitor and the evidence is negative.
    """
    if tree is not None:
        cluster = _go_down(energies, tree, cluster, competitor)
    rows = np.arange(len(energies))
    if cluster is None:
        cluster, own = least(energies)
    else:
        own = np.zeros(len(rows)) if tree is not None else energies[rows, cluster]
    energies[rows, cluster] = np.inf
    if competitor is None:
        strongest, next_best = least(energies)
        evidence = next_best - own
    else:
        strongest, evidence = competitor, energies[rows, competitor] - own
        evidence[competitor == cluster] = 0.0
    energies -= own[:, None]
    return Assignment(cluster, strongest, evidence)


def against_each(energies: Floats, tree: Tree | None, cluster: Codes) -> None:
    """Turn the energies, (b, K), in place into h_k against every competitor k; NaN at the own cluster.

    In a tree, that is the evidence of the turn beyond which the competitor lies.
    """
    rows = np.arange(len(energies))
    if tree is None:
        energies -= energies[rows, cluster][:, None]
    else:
        pairs = energies.copy()
        for c in np.unique(cluster):
            own = np.flatnonzero(cluster == c)
            for turn in tree.paths[c]:
                beyond = np.ix_(own, tree.under[turn.sibling])
                energies[beyond] = turn.sign * pairs[own, turn.pair][:, None]
    energies[rows, cluster] = np.nan


def evidence_of_all(energies: Floats, tree: Tree | None, out: NDArray[Any]) -> None:
    """f_k for every cluster k, (b, K)."""
    if tree is not None:
        for k, path in enumerate(tree.paths):
            out[:, k] = np.min([turn.sign * energies[:, turn.pair] for turn in path], axis=0)
        return
    # The assigned cluster is the strongest competitor of all others, so f_k = s_c - s_k there.
    assignment = compete(energies)
    np.negative(energies, out=out, casting="same_kind")
    out[np.arange(len(energies)), assignment.cluster] = assignment.evidence


def bar_of(threshold: float) -> float:
    """log((1 - threshold) / threshold), which a threshold adds to the evidence (Prop. 7)."""
    return float(np.log1p(-threshold) - np.log(threshold))


def absolute(h: Floats, assignment: Assignment, threshold: float) -> Assignment:
    """The same rows, with the evidence that the cluster's probability exceeds a threshold (Prop. 7).

    f_c is the LME^-1 of h, which gets the bias -log(K - 1) + log((1 - threshold) / threshold), in place.
    """
    h += bar_of(threshold) - np.log(h.shape[1] - 1)
    least = h[np.arange(len(h)), assignment.competitor]
    total = row_sums(np.exp(least[:, None] - h))
    return assignment._replace(evidence=least - np.log(total / (h.shape[1] - 1)))


def _go_down(g: Floats, tree: Tree, cluster: Codes | None, competitor: Codes | None) -> Codes:
    """The cluster of each row; g becomes h, the evidence against the competitor beyond each turn.

    Beyond a turn there may be many clusters. The one that counts is the one that the row would reach there,
    or the one that the user chose; the others are too far to compete.
    """
    landings = tree.landings(g)
    if cluster is None:
        cluster = np.where(g[:, 0] >= 0, landings[0], landings[1])
    pairs = g.copy()
    g[...] = _TOO_FAR
    for c in np.unique(cluster):
        rows = np.flatnonzero(cluster == c)
        for turn in tree.paths[c]:
            if competitor is None:
                there, reached = rows, landings[turn.sibling][rows]
            else:
                there = rows[np.isin(competitor[rows], tree.under[turn.sibling])]
                reached = competitor[there]
            g[there, reached] = turn.sign * pairs[there, turn.pair]
    return cluster
