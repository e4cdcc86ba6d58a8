"""Accounts of moves, one row and one feature at a time; drift, one cluster at a time. Slow and obvious."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence

import numpy as np
from scipy.integrate import quad

from tests.reference.models import Split
from tests.reference.neon import Matrix, Vector


def gap(x: Vector, split: Split, a: int, b: int) -> tuple[float, Vector]:
    """Return g = s_a - s_b, the evidence for b against a, and e_a - e_b."""
    (s_a, e_a), (s_b, e_b) = split(x, a), split(x, b)
    return s_a - s_b, np.array([p - q for p, q in zip(e_a, e_b, strict=True)])


def account(x0: Vector, x1: Vector, split: Split, a: int, b: int) -> tuple[float, float, Vector]:
    """Return g before and after, and the contribution of each feature to the change."""
    (before, old), (after, new) = gap(x0, split, a, b), gap(x1, split, a, b)
    return before, after, np.array([new[i] - old[i] for i in range(len(old))])


def shapley_of_two(worth: dict[frozenset[str], Vector], players: Sequence[str]) -> dict[str, Vector]:
    """Return the Shapley value of each player: its mean contribution over all orders of the players."""
    found = {player: 0.0 * worth[frozenset()] for player in players}
    orders = list(itertools.permutations(players))
    for order in orders:
        there: frozenset[str] = frozenset()
        for player in order:
            found[player] = found[player] + (worth[there | {player}] - worth[there]) / len(orders)
            there = there | {player}
    return found


def account_of_both(
    x0: Vector, x1: Vector, splits: tuple[Split, Split], a: tuple[int, int], b: tuple[int, int]
) -> dict[str, Vector]:
    """Return what the data and the model contributed to each feature's change, and, last, to that of g."""
    worth = {}
    for changed in itertools.product((False, True), repeat=2):
        g, e = gap(x1 if changed[0] else x0, splits[changed[1]], a[changed[1]], b[changed[1]])
        names = frozenset(name for name, is_new in zip(("data", "model"), changed, strict=True) if is_new)
        worth[names] = np.append(e, g)
    return shapley_of_two(worth, ("data", "model"))


def leaving(x: Vector, split: Split, n_clusters: int, a: int) -> tuple[float, Vector]:
    """Return the evidence for leaving a, -f_a, against the strongest competitor."""
    s = {k: split(x, k)[0] for k in range(n_clusters) if k != a}
    return gap(x, split, a, min(s, key=lambda k: s[k]))


def kernel(support: Matrix, cluster: Vector, gamma: float) -> Split:
    """Return the soft minimum over a cluster's support vectors, and the mean of the squares under q_j."""

    def split(x: Vector, k: int) -> tuple[float, Vector]:
        squares = [(x - u) ** 2 for u, own in zip(support, cluster, strict=True) if own == k]
        terms = [math.exp(-gamma * float(s.sum())) / len(squares) for s in squares]
        total = sum(terms)
        parts = sum((term / total) * s for term, s in zip(terms, squares, strict=True))
        return -math.log(total) / gamma, np.asarray(parts)

    return split


def drift_test(before: dict[int, float], after: dict[int, float]) -> tuple[float, float]:
    """Return the difference of the means in standard errors and in standard deviations.

    The arguments are the values of a cluster's rows before and after, by the ids of the rows.
    """
    values = [*before.values(), *after.values()]
    mean = sum(values) / len(values)
    variance = 0.0
    for row in {*before, *after}:
        now = (after[row] - mean) / len(after) if row in after else 0.0
        then = (before[row] - mean) / len(before) if row in before else 0.0
        variance += (now - then) ** 2
    difference = sum(after.values()) / len(after) - sum(before.values()) / len(before)
    spread = math.sqrt(sum((value - mean) ** 2 for value in values) / len(values))
    return difference / math.sqrt(variance), difference / spread


def two_sided(z: float) -> float:
    """Return the probability that a standard normal number is farther from 0 than z."""
    return math.erfc(abs(z) / math.sqrt(2))


def along_the_line(x0: Vector, x1: Vector, g: Callable[[Vector], float]) -> Vector:
    """Return the integral of the gradient of g along the line from x0 to x1, column by column."""
    found = np.zeros(len(x0))
    for i in range(len(x0)):
        step = 1e-5 * np.eye(len(x0))[i]

        def slope(t: float, step: Vector = step) -> float:
            x = x0 + t * (x1 - x0)
            return (g(x + step) - g(x - step)) / 2e-5

        found[i] = (x1[i] - x0[i]) * quad(slope, 0.0, 1.0, limit=200)[0]
    return found
