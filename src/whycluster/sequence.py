"""Features one after another: what each adds to those before it.

The rules of `whycluster.propagate` weigh the competitors once for all features. But competitors fall one by
one as features become known, and what speaks against a competitor that has fallen already adds nothing. Here
a row's features are taken in the order in which they make its cluster most probable. With the terms t_ji of
all features i and parts j of clusters (the clusters themselves, or support vectors), and those of cluster c,

    P(c | features so far) = sum over j of c of w_j exp(-beta sum_i t_ji) / the same sum over all j,

and each feature is credited with its gain of log P. Gains add up to log P(c | x) - log P(c).
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from whycluster.arrays import Floats

STIFFER = 4.0
"""How much stiffer than 1 / (mean evidence), where a model has no stiffness of its own.

Chosen on half of the data sets of ``benchmarks.rules``."""

_SINGLE = 3
_MOST = 300.0  # exponents are cut here, so that a product of two neither overflows nor vanishes


def redistribute(
    terms: Floats, own: NDArray[np.bool_], log_weight: Floats, beta: float, relevance: Floats
) -> None:
    """Share the total relevance of each row anew, by the gains of its features, in place.

    Rows of which the features, taken together, speak against their cluster stay as they are: there, constants
    that are due to no feature decide.

    Parameters
    ----------
    terms : (b, P, d) of all parts, up to what all of them share; changed
    own : (b, P) which parts are of the row's cluster
    log_weight : (P,) log w_j
    beta : the stiffness
    relevance : (b, d) by another rule
    """
    terms -= terms.min(axis=1, keepdims=True)
    terms *= min(beta, np.finfo(np.float64).max)
    np.minimum(terms, _MOST, out=terms)
    gain = gains(terms, own, log_weight)
    whole, total = gain.sum(axis=1), relevance.sum(axis=1)
    rows = np.flatnonzero((whole > 0) & (total >= 0))
    relevance[rows] = gain[rows] * (total[rows] / whole[rows])[:, None]


def gains(nats: Floats, own: NDArray[np.bool_], log_weight: Floats, single: int = _SINGLE) -> Floats:
    """The gain of each feature, (b, d), at its place in the row's order; ``nats`` is beta times the terms.

    The first ``single`` features are taken one by one, each the best then; after that, half as many more in
    each round as before, the best of the round first.
    """
    n_rows, _, d = nats.shape
    rows = np.arange(n_rows)[:, None]
    factor = np.exp(-nats)
    left = np.tile(log_weight, (n_rows, 1))  # log of what is left of the weight of each part
    before = _log_chance(left, own)
    gain = np.empty((n_rows, d))
    free = np.ones((n_rows, d), dtype=bool)
    done = 0
    while done < d:
        size = min(d - done, 1 if done < single else -(-done // 2))
        taken = _best(_chances(left, own, factor, free), size)
        parts = np.take_along_axis(nats, taken[:, None, :], axis=2)
        after = left[:, :, None] - np.cumsum(parts, axis=2)
        chance = np.column_stack([before, _log_chance(after, own[:, :, None])])
        gain[rows, taken] = np.diff(chance, axis=1)
        free[rows, taken] = False
        left, before = after[:, :, -1], chance[:, -1]
        done += size
    return gain


def _chances(left: Floats, own: NDArray[np.bool_], factor: Floats, free: NDArray[np.bool_]) -> Floats:
    """P(c) with each feature more, (b, d); -1 for those that are taken."""
    weight = np.exp(np.maximum(left - left.max(axis=1, keepdims=True), -_MOST))
    others = np.einsum("bj,bjd->bd", np.where(own, 0.0, weight), factor)
    mine = np.einsum("bj,bjd->bd", np.where(own, weight, 0.0), factor)
    # Odds tell chances near 1 apart, which all round to 1.
    return np.where(free, mine / np.maximum(others, np.finfo(np.float64).tiny), -1.0)


def _best(chances: Floats, size: int) -> NDArray[np.intp]:
    """The features of the highest chances, the highest first, (b, size)."""
    if size == 1:
        return np.asarray(chances.argmax(axis=1)[:, None])
    return np.asarray(np.argsort(-chances, axis=1, kind="stable")[:, :size])


def _log_chance(log_weight: Floats, own: NDArray[np.bool_]) -> Floats:
    """Log P(c), from the logarithms of the weights along the second axis."""
    top = log_weight.max(axis=1, keepdims=True)
    weight = np.exp(log_weight - top)
    mine = np.where(own, log_weight, -np.inf)
    least = mine.max(axis=1, keepdims=True)
    part = np.exp(mine - least).sum(axis=1)
    return np.asarray((least - top)[:, 0] + np.log(part) - np.log(weight.sum(axis=1)))
