"""Features one after another: what each adds to those before it.

The rules of `whycluster.propagate` weigh the competitors once for all features. But competitors fall one by
one as features become known, and what speaks against a competitor that has fallen already adds nothing. Here
a row's features are taken in the order in which they make its cluster most probable,

    P(c | features so far) = pi_c / (pi_c + sum_k pi_k exp(-beta sum_i (e_ki - e_ci))),

and each is credited with its gain of log P. Gains add up to log P(c | x) - log pi_c.
"""

from __future__ import annotations

import numpy as np

from whycluster.arrays import Codes, Floats

STIFFER = 4.0
"""How much stiffer than 1 / (mean evidence); chosen on half of the data sets of ``benchmarks.rules``."""

_SINGLE = 3
_MOST = 300.0  # exponents are cut here, so that a product of two neither overflows nor vanishes


def redistribute(
    contrasts: Floats, cluster: Codes, log_prior: Floats, beta: float, relevance: Floats
) -> None:
    """Share the total relevance of each row anew, by the gains of its features, in place.

    Rows of which the features, taken together, speak against their cluster stay as they are: there, constants
    that are due to no feature decide.

    Parameters
    ----------
    contrasts : (b, K, d) e_k - e_c; changed
    cluster : (b,) the cluster c
    log_prior : (K,) log pi_k, the part of all rows that is in each cluster
    beta : the stiffness
    relevance : (b, d) by another rule
    """
    contrasts *= min(beta, np.finfo(np.float64).max)
    np.clip(contrasts, -_MOST, _MOST, out=contrasts)
    gain = gains(contrasts, cluster, log_prior)
    whole, total = gain.sum(axis=1), relevance.sum(axis=1)
    rows = np.flatnonzero((whole > 0) & (total >= 0))
    relevance[rows] = gain[rows] * (total[rows] / whole[rows])[:, None]


def gains(nats: Floats, cluster: Codes, log_prior: Floats, single: int = _SINGLE) -> Floats:
    """The gain of each feature, (b, d), at its place in the row's order; ``nats`` is beta (e_k - e_c).

    The first ``single`` features are taken one by one, each the best then; after that, half as many more in
    each round as before, the best of the round first.
    """
    n_rows, _, d = nats.shape
    rows = np.arange(n_rows)
    odds = log_prior - log_prior[cluster][:, None]  # log of pi_k / pi_c, then of what is left of it
    odds[rows, cluster] = -np.inf
    factor = np.exp(-nats)
    gain = np.empty((n_rows, d))
    free = np.ones((n_rows, d), dtype=bool)
    before = _log_chance(odds)
    done = 0
    while done < d:
        size = min(d - done, 1 if done < single else -(-done // 2))
        left = np.einsum("bk,bkd->bd", np.exp(np.clip(odds, -_MOST, _MOST)) * np.isfinite(odds), factor)
        left[~free] = np.inf
        if size == 1:
            taken = left.argmin(axis=1)[:, None]
        else:
            taken = np.argsort(left, axis=1, kind="stable")[:, :size]
        parts = np.take_along_axis(nats, taken[:, None, :], axis=2)
        after = odds[:, :, None] - np.cumsum(parts, axis=2)
        chances = np.column_stack([before, _log_chance(after)])
        gain[rows[:, None], taken] = np.diff(chances, axis=1)
        free[rows[:, None], taken] = False
        odds, before = after[:, :, -1], chances[:, -1]
        done += size
    return gain


def _log_chance(odds: Floats) -> Floats:
    """Log P(c) = -log(1 + sum over k of the odds), from their logarithms along the second axis."""
    top = np.maximum(odds.max(axis=1), 0.0)
    total = np.exp(-top) + np.exp(odds - np.expand_dims(top, 1)).sum(axis=1)
    return np.asarray(-top - np.log(total))
