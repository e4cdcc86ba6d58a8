"""From energies to evidence: each row's cluster, its strongest competitor, and by how much the cluster wins.

All functions work on one block of b rows. The names are those of the paper: h_k = s_k - s_c is the evidence
for cluster c against competitor k, and f_c = min_k h_k is the evidence for c (Props. 1, 6 and 7).
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from whycluster.core.arrays import Codes, Floats, least, row_sums
from whycluster.core.tree import Tree

# The evidence against a cluster that does not compete; unlike infinity, it gives 0 when multiplied by 0.
_TOO_FAR = 1e300


class Assignment(NamedTuple):
    """The result of the competition for each row of a block, as arrays of shape (b,)."""

    cluster: Codes  # the explained cluster c
    competitor: Codes  # its strongest competitor, the k that attains f_c
    evidence: NDArray[Any]  # f_c


def compete(
    energies: Floats, tree: Tree | None = None, cluster: Codes | None = None, competitor: Codes | None = None
) -> Assignment:
    """Return the evidence for each row's cluster, f_c = min over k != c of h_k (Prop. 1, layer 2).

    If c is not the assigned cluster, the assigned one is the competitor, and the evidence is negative.

    Parameters
    ----------
    energies : (b, K), turned into h in place, with +inf for the row's own cluster, which never competes
    tree : the tree if the energies are those of pairs of its nodes, else None
    cluster : (b,) the cluster to explain; by default the one with the lowest energy (the first one on a tie)
    competitor : (b,) the competitor that the user chose, if any; a cluster has evidence 0 against itself
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
    """Turn the energies, (b, K), into h_k for every competitor k, in place.

    The row's own cluster gets NaN. In a tree, h_k is the evidence at the turn where the path to k branches
    off.
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


def evidence_of_all(energies: Floats, tree: Tree | None, out: Floats) -> None:
    """Write f_k for every cluster k into ``out``, (b, K)."""
    if tree is not None:
        for k, path in enumerate(tree.paths):
            out[:, k] = np.min([turn.sign * energies[:, turn.pair] for turn in path], axis=0)
        return
    # The assigned cluster is the strongest competitor of all others, so f_k = s_c - s_k for them.
    assignment = compete(energies)
    np.negative(energies, out=out)
    out[np.arange(len(energies)), assignment.cluster] = assignment.evidence


def bar_of(threshold: float) -> float:
    """Return log((1 - threshold) / threshold), which a threshold adds to the evidence (Prop. 7)."""
    return float(np.log1p(-threshold) - np.log(threshold))


def absolute(h: Floats, assignment: Assignment, threshold: float) -> Assignment:
    """Return the evidence that the probability of each row's cluster exceeds a threshold (Prop. 7).

    f_c = LME^-1(h), once the bias -log(K - 1) + log((1 - threshold) / threshold) is added to h in place.
    """
    h += bar_of(threshold) - np.log(h.shape[1] - 1)
    least = h[np.arange(len(h)), assignment.competitor]
    total = row_sums(np.exp(least[:, None] - h))
    return assignment._replace(evidence=least - np.log(total / (h.shape[1] - 1)))


def _go_down(g: Floats, tree: Tree, cluster: Codes | None, competitor: Codes | None) -> Codes:
    """Return the cluster of each row, and turn g into h, the evidence against one competitor per turn.

    Several clusters may branch off at a turn. Only the one that the row would reach from there competes. If
    the user chose a competitor, only that cluster competes.
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
