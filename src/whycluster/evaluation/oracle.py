"""The greedy oracle, which chooses the best next feature for Algorithm 1 at each step."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from whycluster.core.arrays import Floats
from whycluster.evaluation.flipping import complete
from whycluster.evaluation.samplers import Sampler
from whycluster.evaluation.subject import Subject

_DRAWS = 50  # number of completions for estimating the probability of each candidate feature


def greedy(subject: Subject, sampler: Sampler, random_state: int) -> Floats:
    """Return relevance that ranks features in the order of the greedy oracle.

    At each step, the oracle adds the feature that is most likely to keep the row in its cluster. This order
    optimizes the quantity that Algorithm 1 measures. It is therefore not an explanation but a practical upper
    bound. An order that plans several steps ahead could still be better. The cost is quadratic in the number
    of features.
    """
    d = subject.n_features
    relevance = np.empty_like(subject.rows)

    def work(rows: slice, rng: np.random.Generator, step: Callable[[], None]) -> None:
        z, cluster = subject.rows[rows], subject.cluster[rows]
        at = np.arange(len(z))
        known = np.zeros(z.shape, dtype=bool)
        for n_left in range(d, 0, -1):
            # Every row with each of its unknown features added in turn, (b, left, d)
            left = np.nonzero(~known)[1].reshape(len(z), n_left)
            tried = np.repeat(known[:, None], n_left, axis=1)
            tried[at[:, None], np.arange(n_left), left] = True
            repeated, target = np.repeat(z, n_left, axis=0), np.repeat(cluster, n_left)
            completed = complete(sampler, repeated, tried.reshape(-1, d), _DRAWS, rng)
            probability = subject.stays(completed, target).mean(axis=0).reshape(len(z), n_left)
            probability += rng.random(probability.shape) / (2 * _DRAWS)  # ties are broken at random
            best = left[at, probability.argmax(axis=1)]
            known[at, best] = True
            relevance[rows][at, best] = n_left
            step()

    subject.in_blocks(work, "greedy oracle", d, d * _DRAWS, random_state)
    return relevance
