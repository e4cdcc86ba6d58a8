"""The sequential rule: features are added one by one, each credited with its contribution at that point.

The rules of `whycluster.core.rules` weigh the competitors once for all features. But as features become
known, competitors are ruled out one by one, and further evidence against them adds nothing. Here, the
features of a row are taken in the order that makes its cluster c most probable. With the terms t_ji of
features i and parts j (clusters or support vectors) and the weights w_j,

    P(c | features so far) = sum over parts j of c of w_j exp(-beta sum_i t_ji) / the same sum over all parts.

Each feature is credited with its gain in log P. The gains add up to log P(c | x) - log P(c).
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from whycluster.core.arrays import Floats
from whycluster.core.energies import Energy
from whycluster.core.evidence import Assignment
from whycluster.core.rules import Prior

_TERMS_BYTES = 1 << 20  # memory for the terms of a few rows, with all parts and features
_SINGLE = 3  # number of features that are taken one by one before several are taken at once
_MOST = 300.0  # nats; up to here, a product of two exponentials neither overflows nor vanishes
_HARD = 1e6  # nats; larger values make no difference
_MOST_TIMES = 10.0  # the largest ratio of a row's total |relevance| to its total under the joint rule


def redistribute_block(
    energy: Energy,
    x: Floats,
    assignment: Assignment,
    prior: Prior,
    beta: float,
    relevance: Floats,
    scratch: Floats,
) -> None:
    """Redistribute the relevance, (b, d), of all rows with evidence of at least 0, a few rows at a time."""
    parts = energy.parts
    log_weight = parts.log_weight
    if not prior.is_in_energies:  # otherwise, the parts already have the model's weights
        log_weight = log_weight + prior.log_weight[parts.cluster]
    width = max(
        energy.n_features, energy.n_inputs
    )  # after a pipeline, terms are first computed for its outputs
    size = max(1, _TERMS_BYTES // (8 * len(log_weight) * width))
    for start in range(0, len(x), size):
        rows = start + np.flatnonzero(assignment.evidence[start : start + size] >= 0)
        if not rows.size:
            continue
        terms = np.empty((len(rows), len(log_weight), energy.n_features))
        cluster, some = assignment.cluster[rows], relevance[rows]
        energy.terms(x[rows], cluster, terms, scratch[: len(rows)])
        redistribute(terms, parts.cluster == cluster[:, None], log_weight, beta, some)
        relevance[rows] = some


def redistribute(
    terms: Floats, own: NDArray[np.bool_], log_weight: Floats, beta: float, relevance: Floats
) -> None:
    """Redistribute the total relevance of each row in proportion to the gains of its features, in place.

    A row is left unchanged if its features together gain nothing, or so little that individual features would
    get disproportionately large shares. In such rows, constants, not features, decide the assignment.

    Parameters
    ----------
    terms : (b, P, d) the terms of all parts, up to a term common to all parts; overwritten
    own : (b, P) which parts belong to the row's cluster
    log_weight : (P,) log w_j
    beta : the stiffness
    relevance : (b, d) the relevance according to another rule; overwritten
    """
    gain = gains(terms, own, log_weight, beta)
    whole, total = gain.sum(axis=1), relevance.sum(axis=1)
    before, after = np.abs(relevance).sum(axis=1), np.abs(gain).sum(axis=1)
    rows = np.flatnonzero((whole > 0) & (total >= 0) & (total * after <= _MOST_TIMES * before * whole))
    relevance[rows] = gain[rows] * (total[rows] / whole[rows])[:, None]


def gains(
    terms: Floats, own: NDArray[np.bool_], log_weight: Floats, beta: float, single: int = _SINGLE
) -> Floats:
    """Return the gain of each feature, (b, d); the parameters are those of `redistribute`.

    The first ``single`` features are added one at a time, always the best remaining one. After that, each
    round adds several of the best remaining features at once: half as many as have been added so far.
    """
    nats = _to_nats(terms, beta)
    n_rows, _, d = nats.shape
    rows = np.arange(n_rows)[:, None]
    factor = np.exp(-nats) if nats.max() <= _MOST else None
    left = np.tile(log_weight, (n_rows, 1))  # log of the remaining weight of each part
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
    """Multiply the terms by beta in place, after shifting them so that each feature's smallest term is 0."""
    terms -= terms.min(axis=1, keepdims=True)
    largest = terms.max(initial=0.0)
    terms *= min(beta, _HARD / largest if largest > 0 else beta)
    return terms


def _odds(left: Floats, own: NDArray[np.bool_], factor: Floats) -> Floats:
    """Return the odds of P(c) after adding each feature, (b, d); unlike P, they do not all round to 1."""
    weight = np.exp(np.maximum(left - left.max(axis=1, keepdims=True), -_MOST))
    both = np.matmul(np.stack([np.where(own, weight, 0.0), np.where(own, 0.0, weight)], axis=1), factor)
    return np.asarray(both[:, 0] / np.maximum(both[:, 1], np.finfo(np.float64).tiny))


def _log_odds(log_weight: Floats, own: NDArray[np.bool_]) -> Floats:
    """Return the log odds of P(c) from log weights along the second axis of (b, P) or (b, P, n)."""
    weight = np.exp(log_weight - log_weight.max(axis=1, keepdims=True))
    both = np.matmul(np.stack([own, ~own], axis=1).astype(np.float64), weight.reshape(*own.shape, -1))
    both = both.reshape(len(own), 2, *log_weight.shape[2:])
    if both.min() > 0.0:
        return np.asarray(np.log(both[:, 0]) - np.log(both[:, 1]))
    mine = own if log_weight.ndim == 2 else own[:, :, None]
    return _log_sum(np.where(mine, log_weight, -np.inf)) - _log_sum(np.where(mine, -np.inf, log_weight))


def _log_sum(values: Floats) -> Floats:
    """Return the log of the sum of exponentials along the second axis, or -inf for an empty sum."""
    top = values.max(axis=1, keepdims=True)
    top = np.where(np.isfinite(top), top, 0.0)
    with np.errstate(divide="ignore"):
        return np.asarray(top[:, 0] + np.log(np.exp(values - top).sum(axis=1)))


def _log_chance(log_odds: Floats) -> Floats:
    """Return log P = -log(1 + 1 / odds)."""
    return np.asarray(-np.logaddexp(0.0, -log_odds))


def _best(odds: Floats, size: int) -> NDArray[np.intp]:
    """Return the features with the highest odds, (b, size), in descending order."""
    if size == 1:
        return np.asarray(odds.argmax(axis=1)[:, None])
    return np.asarray(np.argsort(-odds, axis=1, kind="stable")[:, :size])
