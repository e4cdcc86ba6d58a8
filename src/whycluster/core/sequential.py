"""Features one after another: what each adds to those before it.

The rules of `whycluster.core.rules` weigh the competitors once for all features. But competitors fall one by
one as features become known, and what speaks against a competitor that has fallen already adds nothing. Here
a row's features are taken in the order in which they make its cluster most probable. With the terms t_ji of
all features i and parts j of clusters (the clusters themselves, or support vectors), and those of cluster c,

    P(c | features so far) = sum over j of c of w_j exp(-beta sum_i t_ji) / the same sum over all j,

and each feature is credited with its gain of log P. Gains add up to log P(c | x) - log P(c).
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from whycluster.core.arrays import Floats

STIFFER = 4.0
"""How much stiffer than 1 / (mean evidence), where a model has no stiffness of its own.

Chosen on half of the data sets of ``benchmarks.rules``."""

_SINGLE = 3
_MOST = 300.0  # nats; up to here a product of two exponentials neither overflows nor vanishes
_HARD = 1e6  # nats that are as good as any number of them
_MOST_TIMES = 10.0  # how much larger than by the joint rule the relevance of a row may get


def redistribute(
    terms: Floats, own: NDArray[np.bool_], log_weight: Floats, beta: float, relevance: Floats
) -> None:
    """Share the total relevance of each row anew, by the gains of its features, in place.

    Rows stay as they are if their features, taken together, gain nothing, or so little that sharing would be
    out of proportion: there, constants that are due to no feature decide.

    Parameters
    ----------
    terms : (b, P, d) of all parts, up to what all of them share; changed
    own : (b, P) which parts are of the row's cluster
    log_weight : (P,) log w_j
    beta : the stiffness
    relevance : (b, d) by another rule
    """
    gain = gains(terms, own, log_weight, beta)
    whole, total = gain.sum(axis=1), relevance.sum(axis=1)
    before, after = np.abs(relevance).sum(axis=1), np.abs(gain).sum(axis=1)
    rows = np.flatnonzero((whole > 0) & (total >= 0) & (total * after <= _MOST_TIMES * before * whole))
    relevance[rows] = gain[rows] * (total[rows] / whole[rows])[:, None]


def gains(
    terms: Floats, own: NDArray[np.bool_], log_weight: Floats, beta: float, single: int = _SINGLE
) -> Floats:
    """The gain of each feature, (b, d), at its place in the row's order; parameters as in `redistribute`.

    The first ``single`` features are taken one by one, each the best then; after that, half as many more in
    each round as before, the best of the round first.
    """
    nats = _to_nats(terms, beta)
    n_rows, _, d = nats.shape
    rows = np.arange(n_rows)[:, None]
    factor = np.exp(-nats) if nats.max() <= _MOST else None
    left = np.tile(log_weight, (n_rows, 1))  # log of what is left of the weight of each part
    before = _log_odds(left, own)
    gain = np.empty((n_rows, d))
    free = np.ones((n_rows, d), dtype=bool)
    done = 0
    while done < d:
        size = min(d - done, 1 if done < single else -(-done // 2))
        odds = _odds(left, own, factor) if factor is not None else _log_odds(left[:, :, None] - nats, own)
        taken = _best(np.where(free, odds, -np.inf), size)
        parts = np.take_along_axis(nats, taken[:, None, :], axis=2)
        after = left[:, :, None] - np.cumsum(parts, axis=2)
        log_odds = np.column_stack([before, _log_odds(after, own)])
        gain[rows, taken] = np.diff(_log_chance(log_odds), axis=1)
        free[rows, taken] = False
        left, before = after[:, :, -1], log_odds[:, -1]
        done += size
    return gain


def _to_nats(terms: Floats, beta: float) -> Floats:
    """Beta times the terms, in their place, with 0 for the least of each feature."""
    terms -= terms.min(axis=1, keepdims=True)
    largest = terms.max(initial=0.0)
    terms *= min(beta, _HARD / largest if largest > 0 else beta)
    return terms


def _odds(left: Floats, own: NDArray[np.bool_], factor: Floats) -> Floats:
    """Of P(c) with each feature more, (b, d): they tell chances apart that all round to 1."""
    weight = np.exp(np.maximum(left - left.max(axis=1, keepdims=True), -_MOST))
    both = np.matmul(np.stack([np.where(own, weight, 0.0), np.where(own, 0.0, weight)], axis=1), factor)
    return np.asarray(both[:, 0] / np.maximum(both[:, 1], np.finfo(np.float64).tiny))


def _log_odds(log_weight: Floats, own: NDArray[np.bool_]) -> Floats:
    """The same from logarithms of weights, along the second axis of (b, P) or (b, P, n)."""
    weight = np.exp(log_weight - log_weight.max(axis=1, keepdims=True))
    both = np.matmul(np.stack([own, ~own], axis=1).astype(np.float64), weight.reshape(*own.shape, -1))
    both = both.reshape(len(own), 2, *log_weight.shape[2:])
    if both.min() > 0.0:
        return np.asarray(np.log(both[:, 0]) - np.log(both[:, 1]))
    mine = own if log_weight.ndim == 2 else own[:, :, None]
    return _log_sum(np.where(mine, log_weight, -np.inf)) - _log_sum(np.where(mine, -np.inf, log_weight))


def _log_sum(values: Floats) -> Floats:
    """Log of the sum of exponentials along the second axis, -inf where there is nothing to add."""
    top = values.max(axis=1, keepdims=True)
    top = np.where(np.isfinite(top), top, 0.0)
    with np.errstate(divide="ignore"):
        return np.asarray(top[:, 0] + np.log(np.exp(values - top).sum(axis=1)))


def _log_chance(log_odds: Floats) -> Floats:
    """Log P = -log(1 + 1 / odds)."""
    return np.asarray(-np.logaddexp(0.0, -log_odds))


def _best(odds: Floats, size: int) -> NDArray[np.intp]:
    """The features of the highest odds, the highest first, (b, size)."""
    if size == 1:
        return np.asarray(odds.argmax(axis=1)[:, None])
    return np.asarray(np.argsort(-odds, axis=1, kind="stable")[:, :size])
