"""The greedy oracle: the order of features that Algorithm 1 itself would choose, step by step."""

from __future__ import annotations

import numpy as np

from whycluster.arrays import Floats
from whycluster.evaluation.flipping import complete, row_blocks
from whycluster.evaluation.samplers import Sampler
from whycluster.evaluation.subject import Subject
from whycluster.progress import Progress

_DRAWS = 50  # completions that a feature's chance is estimated from


def greedy(subject: Subject, sampler: Sampler, random_state: int) -> Floats:
    """A relevance whose order adds, at each step, the feature with which the row most likely stays.

    It looks at the very thing that is measured, so it is no explanation but a ceiling, in practice: an order
    that looks several steps ahead could still be better. Quadratic in the number of features.
    """
    d = subject.n_features
    relevance = np.empty_like(subject.rows)
    starts, seeds = row_blocks(subject, d * _DRAWS, random_state)

    def work(block: int) -> None:
        rng = np.random.default_rng(seeds[block])
        rows = slice(starts[block], starts[block + 1])
        z, cluster = subject.rows[rows], subject.cluster[rows]
        at = np.arange(len(z))
        known = np.zeros(z.shape, dtype=bool)
        for step in range(d):
            # One more feature each, in every row: (b, left, d)
            left = np.nonzero(~known)[1].reshape(len(z), d - step)
            tried = np.repeat(known[:, None], d - step, axis=1)
            tried[at[:, None], np.arange(d - step), left] = True
            many, owner = np.repeat(z, d - step, axis=0), np.repeat(cluster, d - step)
            completed = complete(sampler, many, tried.reshape(-1, d), _DRAWS, rng)
            chance = subject.stays(completed, owner).mean(axis=0).reshape(len(z), d - step)
            chance += rng.random(chance.shape) / (2 * _DRAWS)  # ties fall at random
            best = left[at, chance.argmax(axis=1)]
            known[at, best] = True
            relevance[rows][at, best] = d - step
            bar.step()

    with Progress("greedy oracle", d * len(seeds)) as bar:
        subject.each(work, len(seeds))
    return relevance
