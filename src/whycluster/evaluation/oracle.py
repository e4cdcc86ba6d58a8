"""The greedy oracle: the order of features that Algorithm 1 itself would choose, step by step."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from whycluster.core.arrays import Floats
from whycluster.evaluation.flipping import complete
from whycluster.evaluation.samplers import Sampler
from whycluster.evaluation.subject import Subject

_DRAWS = 50  # completions that a feature's chance is estimated from


def greedy(subject: Subject, sampler: Sampler, random_state: int) -> Floats:
    """A relevance whose order adds, at each step, the feature with which the row most likely stays.

    It looks at the very thing that is measured, so it is no explanation but a ceiling, in practice: an order
    that looks several steps ahead could still be better. Quadratic in the number of features.
    """
    d = subject.n_features
    relevance = np.empty_like(subject.rows)

    def work(rows: slice, rng: np.random.Generator, step: Callable[[], None]) -> None:
        z, cluster = subject.rows[rows], subject.cluster[rows]
        at = np.arange(len(z))
        known = np.zeros(z.shape, dtype=bool)
        for n_left in range(d, 0, -1):
            # One more feature each, in every row: (b, left, d)
            left = np.nonzero(~known)[1].reshape(len(z), n_left)
            tried = np.repeat(known[:, None], n_left, axis=1)
            tried[at[:, None], np.arange(n_left), left] = True
            many, owner = np.repeat(z, n_left, axis=0), np.repeat(cluster, n_left)
            completed = complete(sampler, many, tried.reshape(-1, d), _DRAWS, rng)
            chance = subject.stays(completed, owner).mean(axis=0).reshape(len(z), n_left)
            chance += rng.random(chance.shape) / (2 * _DRAWS)  # ties fall at random
            best = left[at, chance.argmax(axis=1)]
            known[at, best] = True
            relevance[rows][at, best] = n_left
            step()

    subject.in_blocks(work, "greedy oracle", d, d * _DRAWS, random_state)
    return relevance
