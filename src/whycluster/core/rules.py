"""From evidence to the weights of the competitors: one function for each rule.

All functions work on one block of b rows. The relevance of the features is R = sum_k a_k (e_k - e_c), and a
rule chooses the weights a_k.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from whycluster.core.arrays import Floats, row_sums
from whycluster.core.evidence import Assignment

# Below this, 1 / h_k may overflow and f_c / h_k is computed with care.
_TINY_EVIDENCE = 1e-300


def weigh(h: Floats, assignment: Assignment, rule: str, beta: float | None, out: Floats) -> None:
    """Weights a_k of the competitors, (b, K); a_c is minus their sum, so that each row sums to zero.

    A row with negative evidence ("why not this cluster?") always gets the contrast with the cluster
    that won: between h_k of either sign, sharing would be singular. Soft sharing never is.
    """
    if beta is None:  # a contrast
        contrasted = np.arange(len(h))
    else:
        _SHARING[rule](h, assignment, min(beta, np.finfo(np.float64).max), out)
        contrasted = np.flatnonzero((assignment.evidence < 0) & (rule != SOFT))
    out[contrasted] = 0.0
    out[contrasted, assignment.competitor[contrasted]] = 1.0
    out[contrasted, assignment.cluster[contrasted]] = 0.0  # elsewhere it is: h_c is infinite
    out[np.arange(len(h)), assignment.cluster] = -row_sums(out)


def share(h: Floats, assignment: Assignment, weights: Floats) -> None:
    """R_k = a_k h_k, the evidence that each competitor was given, in place of ``weights``."""
    weights *= h
    weights[np.arange(len(h)), assignment.cluster] = 0.0


def _min_take_most(h: Floats, assignment: Assignment, beta: float, out: Floats) -> None:
    """a_k = p_k f_c / h_k: Eq. 2, with the denominator of Eq. 4.

    f_c / h_k lies in [0, 1] and is 1 where both are 0, a tie: that is its limit, so no epsilon is needed.
    """
    f = assignment.evidence
    total = _soft_min(h, f, beta, out)
    careful = np.flatnonzero((f >= 0) & (f < _TINY_EVIDENCE))
    p = out[careful] / total[careful, None]
    out /= h
    out *= (f / total)[:, None]
    out[careful] = p * _ratio(f[careful, None], h[careful])


def _joint(h: Floats, assignment: Assignment, beta: float, out: Floats) -> None:
    """a_k = p_k f_c / sum_j p_j h_j: one denominator for all competitors."""
    total = _soft_min(h, assignment.evidence, beta, out)
    out /= total[:, None]
    h[np.arange(len(h)), assignment.cluster] = 0.0  # p_c h_c = 0, not 0 * inf
    out *= _ratio(assignment.evidence, np.einsum("bk,bk->b", out, h))[:, None]


def _soft(h: Floats, assignment: Assignment, beta: float, out: Floats) -> None:
    """a_k = p_k: the softmax of Eq. 2, with the stiffness of the LME.

    The gate of Prop. 7, R_k <- R_k h_k / f_c, cancels both f_c and the denominator of Eq. 4.
    """
    out /= _soft_min(h, h[np.arange(len(h)), assignment.competitor], beta, out)[:, None]


def _soft_min(h: Floats, f: Floats, beta: float, out: Floats) -> Floats:
    """exp(-beta (h_k - f_c)) and its row sums: p_k of Eq. 2, not yet normalised and never 0/0."""
    np.subtract(h, f[:, None], out=out)
    out *= -beta
    np.exp(out, out=out)
    return row_sums(out)


def _ratio(numerator: Floats, denominator: Floats) -> Floats:
    """Numerator over denominator, 1 where both vanish."""
    result = np.ones(np.broadcast_shapes(numerator.shape, denominator.shape))
    np.divide(numerator, denominator, out=result, where=denominator != 0)
    return result


DEFAULT_RULE = "min-take-most"
CONTRAST = "contrast"
SEQUENTIAL = "sequential"  # the total of the joint rule, shared anew by `whycluster.core.sequential`
SOFT = "soft"  # for a threshold; no choice of the user's
_SHARING: dict[str, Callable[[Floats, Assignment, float, Floats], None]] = {
    DEFAULT_RULE: _min_take_most,
    "joint": _joint,
    SEQUENTIAL: _joint,
    SOFT: _soft,
}
RULES = (DEFAULT_RULE, "joint", SEQUENTIAL, CONTRAST)
