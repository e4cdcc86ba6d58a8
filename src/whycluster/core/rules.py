"""From evidence to the weights of the competitors (Eqs. 2 to 4): one function per rule.

All functions work on one block of b rows. The relevance of the features is R = sum_k a_k (e_k - e_c); a rule
chooses the weights a_k.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from whycluster.core.arrays import Floats, row_sums
from whycluster.core.evidence import Assignment

# Below this, 1 / h_k may overflow, so f_c / h_k is computed as one division.
_TINY_EVIDENCE = 1e-300


def weigh(h: Floats, assignment: Assignment, rule: str, beta: float | None, out: Floats) -> None:
    """Write the weights a_k of the competitors, (b, K), and a_c = -sum_k a_k, so that each row sums to zero.

    Unless the rule is the soft one, a row with negative evidence ("why not this cluster?") gets the contrast
    with the cluster that won, since the other rules are singular if h_k has different signs for different k.
    """
    if beta is None:  # a contrast
        contrasted = np.arange(len(h))
    else:
        _SHARING[rule](h, assignment, min(beta, np.finfo(np.float64).max), out)
        contrasted = np.flatnonzero((assignment.evidence < 0) & (rule != SOFT))
    out[contrasted] = 0.0
    out[contrasted, assignment.competitor[contrasted]] = 1.0
    # In the other rows, this weight is 0 already, because h_c is infinite.
    out[contrasted, assignment.cluster[contrasted]] = 0.0
    out[np.arange(len(h)), assignment.cluster] = -row_sums(out)


def share(h: Floats, assignment: Assignment, weights: Floats) -> None:
    """Turn ``weights`` into R_k = a_k h_k, each competitor's share of the evidence, in place."""
    weights *= h
    weights[np.arange(len(h)), assignment.cluster] = 0.0


def _min_take_most(h: Floats, assignment: Assignment, beta: float, out: Floats) -> None:
    """Write a_k = p_k f_c / h_k: Eq. 2, with the denominator of Eq. 4.

    f_c / h_k is in [0, 1]. On a tie, when f_c and h_k are 0, the ratio is set to its limit 1, so no epsilon
    is needed.
    """
    f = assignment.evidence
    total = _soft_min(h, f, beta, out)
    careful = np.flatnonzero((f >= 0) & (f < _TINY_EVIDENCE))
    p = out[careful] / total[careful, None]
    out /= h
    out *= (f / total)[:, None]
    out[careful] = p * _ratio(f[careful, None], h[careful])


def _joint(h: Floats, assignment: Assignment, beta: float, out: Floats) -> None:
    """Write a_k = p_k f_c / sum_j p_j h_j: one denominator for all competitors."""
    total = _soft_min(h, assignment.evidence, beta, out)
    out /= total[:, None]
    h[np.arange(len(h)), assignment.cluster] = 0.0  # p_c h_c = 0, not 0 * inf
    out *= _ratio(assignment.evidence, np.einsum("bk,bk->b", out, h))[:, None]


def _soft(h: Floats, assignment: Assignment, beta: float, out: Floats) -> None:
    """Write a_k = p_k: the softmax of Eq. 2, with the stiffness of the LME.

    The gate of Prop. 7, R_k <- R_k h_k / f_c, cancels both f_c and the denominator of Eq. 4.
    """
    out /= _soft_min(h, h[np.arange(len(h)), assignment.competitor], beta, out)[:, None]


def _soft_min(h: Floats, f: Floats, beta: float, out: Floats) -> Floats:
    """Write exp(-beta (h_k - f_c)), the p_k of Eq. 2 before normalization; return the row sums."""
    np.subtract(h, f[:, None], out=out)
    out *= -beta
    np.exp(out, out=out)
    return row_sums(out)


def _ratio(numerator: Floats, denominator: Floats) -> Floats:
    """Return numerator / denominator, or 1 where the denominator is 0."""
    result = np.ones(np.broadcast_shapes(numerator.shape, denominator.shape))
    np.divide(numerator, denominator, out=result, where=denominator != 0)
    return result


DEFAULT_RULE = "min-take-most"
CONTRAST = "contrast"
SEQUENTIAL = "sequential"  # the total of the joint rule, redistributed by `whycluster.core.sequential`
SOFT = "soft"  # for a threshold; users cannot choose it
_SHARING: dict[str, Callable[[Floats, Assignment, float, Floats], None]] = {
    DEFAULT_RULE: _min_take_most,
    "joint": _joint,
    SEQUENTIAL: _joint,
    SOFT: _soft,
}
RULES = (DEFAULT_RULE, "joint", SEQUENTIAL, CONTRAST)
