"""From energies to evidence, and from evidence to weights on the competitors.

All functions work on one block of b rows. The names are those of the paper: h_k = s_k - s_c is the
evidence for cluster c against competitor k, f_c = min_k h_k the evidence for c (Prop. 1). The relevance
of the features is R = sum_k a_k (e_k - e_c); a rule chooses the weights a_k.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from whycluster.arrays import Codes, Floats, least
from whycluster.tree import Tree

# The evidence against a cluster that does not compete; unlike infinity, times 0 it is 0.
_TOO_FAR = 1e300

# Below this, 1 / h_k may overflow and f_c / h_k is computed with care.
_TINY_EVIDENCE = 1e-300


class Standing(NamedTuple):
    """How each row of a block stands: (b,) arrays."""

    cluster: Codes  # the cluster c that is explained
    competitor: Codes  # its strongest competitor, the k that attains f_c
    evidence: NDArray[Any]  # f_c


def compete(
    energies: Floats, tree: Tree | None = None, cluster: Codes | None = None, competitor: Codes | None = None
) -> Standing:
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
    return Standing(cluster, strongest, evidence)


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
    standing = compete(energies)
    np.negative(energies, out=out, casting="same_kind")
    out[np.arange(len(energies)), standing.cluster] = standing.evidence


def bar_of(threshold: float) -> float:
    """log((1 - threshold) / threshold), which a threshold adds to the evidence (Prop. 7)."""
    return float(np.log1p(-threshold) - np.log(threshold))


def absolute(h: Floats, standing: Standing, threshold: float) -> Standing:
    """The same rows, with the evidence that the cluster's probability exceeds a threshold (Prop. 7).

    f_c is the LME^-1 of h, which gets the bias -log(K - 1) + log((1 - threshold) / threshold), in place.
    """
    h += bar_of(threshold) - np.log(h.shape[1] - 1)
    least = h[np.arange(len(h)), standing.competitor]
    total = _row_sums(np.exp(least[:, None] - h))
    return standing._replace(evidence=least - np.log(total / (h.shape[1] - 1)))


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


def weigh(h: Floats, standing: Standing, rule: str, beta: float | None, out: Floats) -> None:
    """Weights a_k of the competitors, (b, K); a_c is minus their sum, so that each row sums to zero.

    A row with negative evidence ("why not this cluster?") always gets the contrast with the cluster
    that won: between h_k of either sign, sharing would be singular. Soft sharing never is.
    """
    if beta is None:  # a contrast
        contrasted = np.arange(len(h))
    else:
        _SHARING[rule](h, standing, min(beta, np.finfo(np.float64).max), out)
        contrasted = np.flatnonzero((standing.evidence < 0) & (rule != SOFT))
    out[contrasted] = 0.0
    out[contrasted, standing.competitor[contrasted]] = 1.0
    out[contrasted, standing.cluster[contrasted]] = 0.0  # elsewhere it is: h_c is infinite
    out[np.arange(len(h)), standing.cluster] = -_row_sums(out)


def share(h: Floats, standing: Standing, weights: Floats) -> None:
    """R_k = a_k h_k, the evidence that each competitor was given, in place of ``weights``."""
    weights *= h
    weights[np.arange(len(h)), standing.cluster] = 0.0


def _min_take_most(h: Floats, standing: Standing, beta: float, out: Floats) -> None:
    """a_k = p_k f_c / h_k: Eq. 2, with the denominator of Eq. 4.

    f_c / h_k lies in [0, 1] and is 1 where both are 0, a tie: that is its limit, so no epsilon is needed.
    """
    f = standing.evidence
    total = _soft_min(h, f, beta, out)
    careful = np.flatnonzero((f >= 0) & (f < _TINY_EVIDENCE))
    p = out[careful] / total[careful, None]
    out /= h
    out *= (f / total)[:, None]
    out[careful] = p * _ratio(f[careful, None], h[careful])


def _joint(h: Floats, standing: Standing, beta: float, out: Floats) -> None:
    """a_k = p_k f_c / sum_j p_j h_j: one denominator for all competitors."""
    total = _soft_min(h, standing.evidence, beta, out)
    out /= total[:, None]
    h[np.arange(len(h)), standing.cluster] = 0.0  # p_c h_c = 0, not 0 * inf
    out *= _ratio(standing.evidence, np.einsum("bk,bk->b", out, h))[:, None]


def _soft(h: Floats, standing: Standing, beta: float, out: Floats) -> None:
    """a_k = p_k: the softmax of Eq. 2, with the stiffness of the LME.

    The gate of Prop. 7, R_k <- R_k h_k / f_c, cancels both f_c and the denominator of Eq. 4.
    """
    out /= _soft_min(h, h[np.arange(len(h)), standing.competitor], beta, out)[:, None]


def _soft_min(h: Floats, f: Floats, beta: float, out: Floats) -> Floats:
    """exp(-beta (h_k - f_c)) and its row sums: p_k of Eq. 2, not yet normalised and never 0/0."""
    np.subtract(h, f[:, None], out=out)
    out *= -beta
    np.exp(out, out=out)
    return _row_sums(out)


def _ratio(numerator: Floats, denominator: Floats) -> Floats:
    """Numerator over denominator, 1 where both vanish."""
    result = np.ones(np.broadcast_shapes(numerator.shape, denominator.shape))
    np.divide(numerator, denominator, out=result, where=denominator != 0)
    return result


def _row_sums(values: Floats) -> Floats:
    """Sums over the last axis, as a product with ones: much faster than sum() for few columns."""
    return values @ np.ones(values.shape[1])


DEFAULT_RULE = "min-take-most"
CONTRAST = "contrast"
SEQUENTIAL = "sequential"  # the total of the joint rule, shared anew by `whycluster.sequence`
SOFT = "soft"  # for a threshold; no choice of the user's
_SHARING: dict[str, Callable[[Floats, Standing, float, Floats], None]] = {
    DEFAULT_RULE: _min_take_most,
    "joint": _joint,
    SEQUENTIAL: _joint,
    SOFT: _soft,
}
RULES = (DEFAULT_RULE, "joint", SEQUENTIAL, CONTRAST)
