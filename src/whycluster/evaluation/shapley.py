"""Shapley values of the assignment: the strongest baseline, at 100 times the cost of the paper's rule.

The value of a set S of features is the probability that a row stays in its cluster if all features outside S
come from a random row of the data.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from whycluster.core.arrays import Floats
from whycluster.core.errors import InvalidInputError
from whycluster.evaluation.subject import Subject

MOST_ENUMERATED = 12  # maximum number of features whose sets are enumerated
_MOST_COALITIONS = 1 << 17  # number of rows to assign at once


def sampled(subject: Subject, permutations: int, random_state: int) -> Floats:
    """Estimate Shapley values by antithetic sampling, which uses each order of features in both directions.

    In each direction, features are copied one by one from the row into a random row, and each feature is
    credited with the change in the assignment that it causes.
    """
    n_pairs, d = -(-permutations // 2), subject.n_features
    total = np.zeros_like(subject.rows)

    def work(rows: slice, rng: np.random.Generator, step: Callable[[], None]) -> None:
        x = subject.rows[rows]
        for _ in range(n_pairs):
            z = subject.population[rng.integers(len(subject.population), size=len(x))]
            rank = rng.permuted(np.tile(np.arange(d), (len(x), 1)), axis=1)
            for order in (rank, d - 1 - rank):
                n_known = np.arange(d + 1)[:, None, None]
                stays = subject.stays(np.where(order < n_known, x, z), subject.cluster[rows])
                total[rows] += np.take_along_axis(np.diff(stays, axis=0).T, order, axis=1)
            step()

    subject.in_blocks(work, "Shapley values", n_pairs, d + 1, random_state)
    return total / (2 * n_pairs)


def exact(subject: Subject) -> Floats:
    """Compute Shapley values exactly, from all 2^d sets of features and all rows of the population."""
    d = subject.n_features
    if d > MOST_ENUMERATED:
        raise InvalidInputError(
            f"{subject.where}: X must have at most {MOST_ENUMERATED} features for exact Shapley values, "
            f"since every set of features is tried; got {d}. Pass permutations=100."
        )
    sets = np.arange(2**d)
    known = (sets[:, None] >> np.arange(d)) & 1 == 1  # feature i is bit i
    sizes = known.sum(axis=1)
    without = [sets[~known[:, i]] for i in range(d)]
    weight = np.array([1.0 / (d * math.comb(d - 1, size)) for size in range(d)])
    result = np.empty_like(subject.rows)

    def work(rows: slice, rng: np.random.Generator, step: Callable[[], None]) -> None:  # noqa: ARG001  # the signature of `in_blocks`
        for row in range(rows.start, rows.stop):
            value = _values(subject, row, known)
            for i, some in enumerate(without):
                result[row, i] = (value[some | 1 << i] - value[some]) @ weight[sizes[some]]
        step()

    subject.in_blocks(work, "Shapley values", 1, 2**d, 0)
    return result


def _values(subject: Subject, row: int, known: NDArray[np.bool_]) -> Floats:
    """Return the value of every set of features for one row, (2^d,)."""
    value = np.zeros(len(known))
    size = max(1, _MOST_COALITIONS // len(known))
    for start in range(0, len(subject.population), size):
        others = subject.population[start : start + size]
        mixed = np.where(known[:, None], subject.rows[row], others)
        value += subject.stays(mixed, subject.cluster[[row]]).sum(axis=1)
    return np.asarray(value / len(subject.population))
