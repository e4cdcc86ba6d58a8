"""The sequential rule: features are added one by one, each credited with its contribution at that point.

The rules of `whycluster.core.rules` weigh the competitors once for all features. But as features become
known, competitors are ruled out one by one, and further evidence against them adds nothing. Here, the
features of a row are taken in the order that makes its cluster c most probable. With the terms t_ji of
features i and parts j (clusters or support vectors) and the weights w_j,

    P(c | features so far) = sum over parts j of c of w_j exp(-beta sum_i t_ji) / the same sum over all parts.

Each feature has a gain G_i in log P. The gains add up to log P(c | x) - log P(c), which is also what the path
rule divides among the features. So the two can be blended: with R the relevance of the path rule,

    R + eta (G sum(R) / sum(G) - R),    eta = 2/3,

which has the same sum as R. An array of shape (rows, parts, features) is allocated only for a few rows at a
time.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from whycluster.core.arrays import Codes, Floats
from whycluster.core.energies import Energy
from whycluster.core.passes import Block
from whycluster.core.rules import Prior, Sharing
from whycluster.models.gains import CompiledGains

_BLEND = 2.0 / 3.0  # eta; tuned on half of the data sets of ``benchmarks.rules``
# The largest ratio of a row's total |relevance| from gains to its total under the path rule. From half of
# this ratio on, gains count less and less.
_MOST_TIMES = 10.0
_TERMS_BYTES = 1 << 20  # memory for the terms of a few rows, with all parts and features
_SINGLE = 3  # number of features that are taken one by one before several are taken at once
_MOST = 300.0  # nats; below this, a product of two exponentials neither overflows nor vanishes
_HARD = 1e6  # nats; larger values make no difference


def blend_block(block: Block, sharing: Sharing, relevance: Floats) -> None:
    """Blend the gains into the relevance of the path rule, (b, d), in all rows with positive evidence."""
    assert sharing.beta is not None
    assert sharing.prior is not None
    gains, (cluster, _, evidence) = _Gains(block.energy, sharing.prior, sharing.beta), block.assignment
    size = max(1, _TERMS_BYTES // (8 * block.energy.n_features))
    for start in range(0, block.n_rows, size):
        rows = slice(start, start + size)
        gain = gains.of(block.x[rows], cluster[rows], evidence[rows], block.scratch)
        blend(gain, evidence[rows], relevance[rows])


class _Gains:
    """The gains of the features for a block of rows: in compiled loops, or in NumPy, a few rows at a time."""

    def __init__(self, energy: Energy, prior: Prior, beta: float) -> None:
        self.energy, self.beta, (self.cluster, self.log_weight) = energy, beta, energy.parts
        if not prior.is_in_energies:  # otherwise, the parts already have the model's weights
            self.log_weight = self.log_weight + prior.log_weight[self.cluster]
        loops = CompiledGains(self.cluster, self.log_weight, beta, energy.n_features, energy.squared_terms)
        self.loops = loops if loops.is_available else None

    def of(self, x: Floats, cluster: Codes, evidence: Floats, scratch: Floats) -> Floats:
        """Return the gains, (b, d), of rows with these clusters; 0 without positive evidence."""
        rows = np.flatnonzero(evidence > 0)
        gain = np.zeros((len(x), self.energy.n_features))
        if rows.size and self.loops is not None and self.loops.squares is not None:
            found, left = self.loops.run(x[rows], cluster[rows])
            gain[rows], rows = found, rows[left]
        # After a pipeline, terms are first computed for its outputs.
        width = max(self.energy.n_features, self.energy.n_inputs)
        size = max(1, _TERMS_BYTES // (8 * len(self.cluster) * width))
        for start in range(0, len(rows), size):
            some = rows[start : start + size]
            gain[some] = self._of_terms(x[some], cluster[some], scratch[: len(some)])
        return gain

    def _of_terms(self, x: Floats, cluster: Codes, scratch: Floats) -> Floats:
        terms = np.empty((len(x), len(self.cluster), self.energy.n_features))
        self.energy.terms(x, cluster, terms, scratch)
        own = self.cluster == cluster[:, None]
        if self.loops is None or self.loops.squares is not None:
            return gains(terms, own, self.log_weight, self.beta)
        gain, rows = self.loops.run(terms, cluster)
        if rows.size:
            gain[rows] = gains(terms[rows], own[rows], self.log_weight, self.beta)
        return gain


def blend(gain: Floats, evidence: Floats, relevance: Floats) -> None:
    """Blend the gains, (b, d), into the relevance of the path rule, (b, d), in place; overwrite the gains.

    Gains count less, and finally not at all, if they are too small in total, so that individual features
    would get disproportionately large shares, or if the features carry less than half of the evidence, (b,).
    In such rows, constants, not features, decide the assignment.
    """
    whole, total = gain.sum(axis=1), relevance.sum(axis=1)
    counts = (whole > 0) & (total > 0) & (evidence > 0)
    share = np.divide(total, whole, out=np.zeros_like(whole), where=counts)
    size = np.abs(relevance).sum(axis=1)
    times = share * np.divide(np.abs(gain).sum(axis=1), size, out=np.zeros_like(whole), where=counts)
    eta = np.clip(2.0 - 2.0 * times / _MOST_TIMES, 0.0, 1.0)
    eta *= np.divide(2.0 * _BLEND * total, evidence, out=np.zeros_like(whole), where=counts).clip(0.0, _BLEND)
    gain[eta <= 0] = 0.0  # they may not be finite, if squares of the terms overflow
    gain *= (eta * share)[:, None]
    relevance *= (1.0 - eta)[:, None]
    relevance += gain


def gains(
    terms: Floats, own: NDArray[np.bool_], log_weight: Floats, beta: float, single: int = _SINGLE
) -> Floats:
    """Return the gain of each feature, (b, d).

    The first ``single`` features are added one at a time, always the best remaining one. After that, each
    round adds several of the best remaining features at once: half as many as have been added so far.

    Parameters
    ----------
    terms : (b, P, d) the terms of all parts, up to a term common to all parts; overwritten
    own : (b, P) which parts belong to the row's cluster
    log_weight : (P,) log w_j
    beta : the stiffness
    """
    nats = _to_nats(terms, beta)
    n_rows, _, d = nats.shape
    rows = np.arange(n_rows)[:, None]
    factor = np.exp(-np.minimum(nats, _MOST))
    is_soft = nats.max(axis=(1, 2)) <= _MOST
    left = np.tile(log_weight, (n_rows, 1))  # log of the remaining weight of each part
    before = _log_odds(left, own)
    gain = np.empty((n_rows, d))
    free = np.ones((n_rows, d), dtype=bool)
    done = 0
    while done < d:
        size = min(d - done, 1 if done < single else -(-done // 2))
        taken = _best(np.where(free, _odds(left, own, nats, factor, is_soft), -np.inf), size)
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
    largest = terms.max(axis=(1, 2), keepdims=True)
    terms *= np.minimum(beta, _HARD / np.where(largest > 0.0, largest, 1.0))
    return terms


def _odds(
    left: Floats, own: NDArray[np.bool_], nats: Floats, factor: Floats, is_soft: NDArray[np.bool_]
) -> Floats:
    """Return a value for each feature, (b, d), that orders them by P(c) after adding the feature.

    These are the odds, since P rounds to 1 for several features; or the log odds where odds would overflow.
    """
    left = left - left.max(axis=1, keepdims=True)
    stiff = np.flatnonzero(~is_soft | (left.min(axis=1) < -_MOST))
    weight = np.exp(np.maximum(left, -_MOST))
    both = np.matmul(np.stack([np.where(own, weight, 0.0), np.where(own, 0.0, weight)], axis=1), factor)
    odds = np.asarray(both[:, 0] / np.maximum(both[:, 1], np.finfo(np.float64).tiny))
    if stiff.size:
        odds[stiff] = _log_odds(left[stiff][:, :, None] - nats[stiff], own[stiff])
    return odds


def _log_odds(log_weight: Floats, own: NDArray[np.bool_]) -> Floats:
    """Return the log odds of P(c) from log weights along the second axis of (b, P) or (b, P, n)."""
    weight = np.exp(log_weight - log_weight.max(axis=1, keepdims=True))
    both = np.matmul(np.stack([own, ~own], axis=1).astype(np.float64), weight.reshape(*own.shape, -1))
    both = both.reshape(len(own), 2, *log_weight.shape[2:])
    with np.errstate(divide="ignore", invalid="ignore"):
        odds = np.asarray(np.log(both[:, 0]) - np.log(both[:, 1]))
    careful = np.flatnonzero(both.reshape(len(own), -1).min(axis=1) < np.finfo(np.float64).tiny)
    if careful.size:
        some, mine = log_weight[careful], own[careful].reshape(-1, own.shape[1], *[1] * (log_weight.ndim - 2))
        odds[careful] = _log_sum(np.where(mine, some, -np.inf)) - _log_sum(np.where(mine, -np.inf, some))
    return odds


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
