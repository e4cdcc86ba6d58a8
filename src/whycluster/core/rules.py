"""From evidence to the weights of the competitors (Eqs. 2 to 4): one function per rule.

All functions work on one block of b rows. The relevance of the features is R = sum_k a_k (e_k - e_c); a rule
chooses the weights a_k.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from whycluster.core.arrays import Floats, row_sums
from whycluster.core.evidence import FLAT, Assignment, Contest

# Below this, 1 / h_k may overflow, so f_c / h_k is computed as one division.
_TINY_EVIDENCE = 1e-300
# The path rule averages over these points of the path, in sixteenths. They are near the Gauss-Legendre nodes,
# but as whole numbers they are powers of a single exponential. With these weights, cubics are integrated
# exactly.
SIXTEENTHS, NODE_WEIGHTS = (1, 5, 11, 15), (37 / 240, 83 / 240, 83 / 240, 37 / 240)
# For models that give probabilities: the first six of the twelve Gauss-Legendre nodes on [0, 1] with
# their weights (the others are symmetric), and the evidence, in nats, from which on they are denser near 0.
_HALF = (
    (0.0092196828766403782, 0.023587668193255706),
    (0.047941371814762601, 0.053469662997659533),
    (0.11504866290284765, 0.080039164271673208),
    (0.20634102285669126, 0.10158371336153287),
    (0.31608425050090994, 0.11674626826917731),
    (0.43738329574426554, 0.12457352290670134),
)
_NODES = (*_HALF, *((1.0 - u, g) for u, g in reversed(_HALF)))
_DENSER = 4.0
_REACH = 1e-300, 1e40  # the range of H / _DENSER in which no exponential over- or underflows
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

    @property
    def scaled(self) -> Floats:
        """(K,) the log weights, scaled so that the largest is 0; those that would underflow are raised."""
        return np.asarray(np.maximum(self.log_weight - self.log_weight.max(), -LEAST_PRIOR))

    @property
    def weights(self) -> Floats:
        """The weight that each competitor stands for, as returned by `Contest.add_up`."""
        return self.contest.add_up(np.exp(self.scaled))


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
            along = _path_to_model if prior.is_in_energies else _path
            along(h, assignment, beta, prior, out)
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
    """Write a_k = p_k f_c / sum_j p_j h_j, with p_k averaged as the evidence grows from none to all of it.

    At time t, the odds of competitor k against the cluster c are w_k exp(-t beta h_k) / w_c, and the
    derivative of log P(c) is beta sum_k p_k(t) h_k, where p_k(t) is the probability of k. So the averages p_k
    show how much each competitor contributes to the gain log P(c | row) - log P(c).

    To prevent underflow, exp(-beta f_c / 16), which all competitors share, is left out of the p_k.
    """
    f = assignment.evidence
    _soft_min(h, f, beta / 16.0, out)
    shared = np.exp(f * (-beta / 16.0))
    total = np.zeros_like(out)
    w, c = prior.weights, assignment.cluster
    w, own = (w, w[c]) if w.ndim == 1 else (w[c], w[c, c])  # of all clusters, and of the rows' own
    for m, g, power in zip(SIXTEENTHS, NODE_WEIGHTS, _powers(out), strict=True):
        odds = w * power
        odds *= (g * shared ** (m - 1) / (own + shared**m * row_sums(odds)))[:, None]
        total += odds
    out[...] = total
    _normalize_jointly(h, assignment, out)


def _path_to_model(h: Floats, assignment: Assignment, beta: float, prior: Prior, out: Floats) -> None:
    """Do the same for a model that gives probabilities: the path leads from its weights to its probabilities.

    The energies include the weights, so at time t, the odds of competitor k are
    (w_k / w_c)^(1 - t) exp(-t beta h_k).

    These energies are in nats, and some are huge: if a component has almost no variance in one direction, a
    row can be millions of nats away from it. Such a competitor is already ruled out at t = 1 / h_k. With H
    the largest h_k, the average is therefore taken over u in [0, 1], with

        t(u) = ((1 + H / 4)^u - 1) / (H / 4),    dt = (1 + H / 4)^u du, up to a factor.

    The map depends continuously on the row, and it does not depend on beta, so an infinite beta still means a
    contrast. To prevent underflow, exp(-t beta f_c) at the first node is left out of the p_k.
    """
    rows, log_w, f = np.arange(len(h)), prior.scaled, np.maximum(assignment.evidence, 0.0)
    h[rows, assignment.cluster] = 0.0
    reach = np.clip(h.max(axis=1) / _DENSER, *_REACH)
    growth, own = np.log1p(reach), log_w[assignment.cluster]
    fall = np.minimum(beta * f, np.finfo(np.float64).max)
    slope = (h - f[:, None]) * -beta - log_w  # d (log odds) / dt, without the common fall
    slope[rows, assignment.cluster] = -np.inf
    odds, total = out, np.zeros_like(out)
    first = np.expm1(_NODES[0][0] * growth) / reach
    for u, g in _NODES:
        t = np.expm1(u * growth) / reach
        np.multiply(slope, t[:, None], out=odds)
        odds += log_w
        np.exp(odds, out=odds)
        chance = 1.0 / (np.exp((1.0 - t) * own) + row_sums(odds) * np.exp(-t * fall))
        odds *= (g * np.exp(u * growth + (first - t) * fall) * chance)[:, None]
        total += odds
    out[...] = total
    _normalize_jointly(h, assignment, out)


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
SEQUENTIAL = "sequential"  # the path rule, blended with the gains of `whycluster.models.sequential`
CONTRAST = "contrast"
SOFT = "soft"  # for a threshold; users cannot choose it
DEFAULT_RULE = PATH
RULES = (PATH, MIN_TAKE_MOST, JOINT, SEQUENTIAL, CONTRAST)
WITH_PRIOR = (PATH, SEQUENTIAL)
_SHARING = {MIN_TAKE_MOST: _min_take_most, JOINT: _joint, SOFT: _soft}
