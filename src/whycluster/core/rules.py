"""From evidence to the weights of the competitors (Eqs. 2 to 4): one function per rule.

All functions work on one block of b rows. The relevance of the features is R = sum_k a_k (e_k - e_c); a rule
chooses the weights a_k.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from whycluster.core.arrays import Codes, Floats, row_sums
from whycluster.core.evidence import FLAT, Assignment, Contest

# Below this, 1 / h_k may overflow, so f_c / h_k is computed as one division.
_TINY_EVIDENCE = 1e-300
# The path rule averages over these points of the path, in sixteenths. They are near the Gauss-Legendre nodes,
# but as whole numbers they are powers of a single exponential. With these weights, cubics are integrated
# exactly.
SIXTEENTHS, NODE_WEIGHTS = (1, 5, 11, 15), (37 / 240, 83 / 240, 83 / 240, 37 / 240)
# Beta in units of 1 / (mean evidence), for rules with a prior and models without a stiffness; tuned on half
# of the data sets of ``benchmarks.rules``.
STIFFER = 4.0
LEAST_PRIOR = 600.0  # nats below the largest prior weight; smaller weights would underflow


class Prior(NamedTuple):
    """The weights of the clusters before any feature is known.

    Attributes
    ----------
    log_weight : (K,) the log of each cluster's weight, up to a constant
    is_in_energies : whether the energies include these weights, as in a mixture
    contest : which clusters compete
    """

    log_weight: Floats
    is_in_energies: bool
    contest: Contest = FLAT

    def weights(self, t: float) -> Floats:
        """Return the factors that the energies do not include at time t of the path, as `Contest.add_up`."""
        largest = self.log_weight.max()
        log_weight = np.maximum(self.log_weight, largest - LEAST_PRIOR) - largest
        weights = np.exp(log_weight * (1.0 - t if self.is_in_energies else 1.0))
        return self.contest.add_up(np.asarray(weights))


class Sharing(NamedTuple):
    """How the evidence is shared among the competitors: a rule with its parameters."""

    rule: str
    beta: float | None  # the stiffness; None for a contrast
    prior: Prior | None = None  # for the rules in `WITH_PRIOR`


def weigh(h: Floats, assignment: Assignment, sharing: Sharing, out: Floats) -> None:
    """Write the weights a_k of the competitors, (b, K), and a_c = -sum_k a_k, so that each row sums to zero.

    Unless the rule is the soft one, a row with negative evidence ("why not this cluster?") gets the contrast
    with the cluster that won, since the other rules are singular if h_k has different signs for different k.
    """
    rule, beta, prior = sharing
    if beta is None:  # a contrast
        contrasted = np.arange(len(h))
    else:
        beta = min(beta, np.finfo(np.float64).max)
        if rule in WITH_PRIOR:
            assert prior is not None
            _path(h, assignment, beta, prior, out)
        else:
            _SHARING[rule](h, assignment, beta, out)
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
    _soft_min(h, assignment.evidence, beta, out)
    _normalize_jointly(h, assignment, out)


def _path(h: Floats, assignment: Assignment, beta: float, prior: Prior, out: Floats) -> None:
    """Write a_k = p_k f_c / sum_j p_j h_j, with p_k averaged while the evidence grows from nothing to all.

    At time t, the odds of competitor k against the cluster c are w_k exp(-t beta h_k) / w_c, and the
    derivative of log P(c) is beta sum_k p_k(t) h_k, where p_k(t) is the probability of k. So the averages p_k
    tell how much each competitor contributes to the gain log P(c | row) - log P(c).

    To prevent underflow, exp(-beta f_c / 16), which all competitors share, is left out of the p_k.
    """
    f = assignment.evidence
    _soft_min(h, f, beta / 16.0, out)
    shared = np.exp(f * (-beta / 16.0))
    total = np.zeros_like(out)
    for m, g, power in zip(SIXTEENTHS, NODE_WEIGHTS, _powers(out), strict=True):
        w, own = _of_rows(prior.weights(m / 16.0), assignment.cluster)
        odds = w * power
        odds *= (g * shared ** (m - 1) / (own + shared**m * row_sums(odds)))[:, None]
        total += odds
    out[...] = total
    _normalize_jointly(h, assignment, out)


def _of_rows(weights: Floats, cluster: Codes) -> tuple[Floats, Floats]:
    """Return the weights of all clusters, (K,) or (b, K), and of the rows' own clusters, (b,)."""
    if weights.ndim == 1:
        return weights, weights[cluster]
    return weights[cluster], weights[cluster, cluster]


def _powers(y: Floats) -> Iterator[Floats]:
    """Yield y to the powers `SIXTEENTHS`."""
    fourth = np.square(np.square(y))
    fifth = fourth * y
    eleventh = fifth * fifth * y
    yield from (y, fifth, eleventh, eleventh * fourth)


def _normalize_jointly(h: Floats, assignment: Assignment, p: Floats) -> None:
    """Scale the weights p_k, in place, so that sum_k p_k h_k = f_c or, if all h_k are 0, sum_k p_k = 1."""
    p /= row_sums(p)[:, None]
    h[np.arange(len(h)), assignment.cluster] = 0.0  # p_c h_c = 0, not 0 * inf
    p *= _ratio(assignment.evidence, np.einsum("bk,bk->b", p, h))[:, None]


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


MIN_TAKE_MOST = "min-take-most"  # the paper's rule
PATH = "path"
JOINT = "joint"
SEQUENTIAL = "sequential"  # the path rule, blended with the gains of `whycluster.core.sequential`
CONTRAST = "contrast"
SOFT = "soft"  # for a threshold; users cannot choose it
DEFAULT_RULE = PATH
RULES = (PATH, MIN_TAKE_MOST, JOINT, SEQUENTIAL, CONTRAST)
WITH_PRIOR = (PATH, SEQUENTIAL)
_SHARING = {MIN_TAKE_MOST: _min_take_most, JOINT: _joint, SOFT: _soft}
