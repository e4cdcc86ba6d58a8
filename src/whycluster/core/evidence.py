"""From energies to evidence: each row's cluster, its strongest competitor, and by how much the cluster wins.

All functions work on one block of b rows. The names are those of the paper: h_k = s_k - s_c is the evidence
for cluster c against competitor k, and f_c = min_k h_k is the evidence for c (Props. 1, 6 and 7).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from whycluster.core.arrays import Codes, Floats, least, row_sums


class Assignment(NamedTuple):
    """The result of the competition for each row of a block, as arrays of shape (b,)."""

    cluster: Codes  # the explained cluster c
    competitor: Codes  # its strongest competitor, the k that attains f_c
    evidence: NDArray[Any]  # f_c


class Boundaries(NamedTuple):
    """The boundaries of a cluster k, as arrays of shape (J,); a point is in k if all h are positive."""

    h: Floats  # s_j - s_k
    competitor: Codes  # the cluster j beyond the boundary
    loses_ties: NDArray[np.bool_]  # whether k loses a tie


class Contest(ABC):
    """Which clusters compete with each other; ``energies`` is always (b, K).

    Attributes
    ----------
    softest : the smallest beta at which clusters that do not compete have no weight
    """

    softest = 0.0

    @abstractmethod
    def compete(
        self, energies: Floats, cluster: Codes | None = None, competitor: Codes | None = None
    ) -> Assignment:
        """Return the evidence for each row's cluster, f_c = min over k != c of h_k (Prop. 1, layer 2).

        If c is not the assigned cluster, the assigned one is the competitor, and the evidence is negative.

        Parameters
        ----------
        energies : turned into h in place, with +inf for the row's own cluster, which never competes
        cluster : (b,) the cluster to explain; by default the assigned one
        competitor : (b,) the competitor that the user chose, if any; a cluster has evidence 0 against itself
        """

    @abstractmethod
    def against_each(self, energies: Floats, cluster: Codes) -> None:
        """Turn the energies into h_k for every competitor k, in place; the row's own cluster gets NaN."""

    @abstractmethod
    def evidence_of_all(self, energies: Floats, out: Floats) -> None:
        """Write f_k for every cluster k into ``out``, (b, K)."""

    @abstractmethod
    def boundaries(self, energies: Floats, k: int) -> Boundaries:
        """Return the boundaries of cluster k, seen from a point with these energies, (K,)."""

    def add_up(self, weights: Floats) -> Floats:
        """Return the weight that each competitor stands for: by default, that of its own cluster, (K,).

        The result is (K,), or (K, K) if it depends on the row's cluster c; row c is then for members of c.
        """
        return weights


class Flat(Contest):
    """Every cluster competes with every other; the one with the lowest energy wins, or the first on a tie."""

    def compete(
        self, energies: Floats, cluster: Codes | None = None, competitor: Codes | None = None
    ) -> Assignment:
        """Return f_c = min over k != c of s_k - s_c."""
        if cluster is None:
            cluster, own = least(energies)
        else:
            own = energies[np.arange(len(energies)), cluster]
        return settle(energies, cluster, own, competitor)

    def against_each(self, energies: Floats, cluster: Codes) -> None:
        """Turn the energies into s_k - s_c."""
        rows = np.arange(len(energies))
        energies -= energies[rows, cluster][:, None]
        energies[rows, cluster] = np.nan

    def evidence_of_all(self, energies: Floats, out: Floats) -> None:
        """Write f_k = s_c - s_k; the assigned cluster c is the strongest competitor of all others."""
        assignment = self.compete(energies)
        np.negative(energies, out=out)
        out[np.arange(len(energies)), assignment.cluster] = assignment.evidence

    def boundaries(self, energies: Floats, k: int) -> Boundaries:
        """Return one boundary with every other cluster."""
        competitor = np.delete(np.arange(len(energies)), k)
        return Boundaries(energies[competitor] - energies[k], competitor, competitor < k)


FLAT = Flat()


def settle(energies: Floats, cluster: Codes, own: Floats, competitor: Codes | None) -> Assignment:
    """Turn the energies into h, in place, and return the evidence for each row's cluster.

    ``own`` is (b,), the energy of this cluster; the other parameters are those of `Contest.compete`.
    """
    rows = np.arange(len(energies))
    energies[rows, cluster] = np.inf
    if competitor is None:
        strongest, next_best = least(energies)
        evidence = next_best - own
    else:
        strongest, evidence = competitor, energies[rows, competitor] - own
        evidence[competitor == cluster] = 0.0
    energies -= own[:, None]
    return Assignment(cluster, strongest, evidence)


def bar_of(threshold: float) -> float:
    """Return log((1 - threshold) / threshold), which a threshold adds to the evidence (Prop. 7)."""
    return float(np.log1p(-threshold) - np.log(threshold))


def absolute(h: Floats, assignment: Assignment, threshold: float) -> Assignment:
    """Return the evidence that the probability of each row's cluster exceeds a threshold (Prop. 7).

    f_c = LME^-1(h), once the bias -log(K - 1) + log((1 - threshold) / threshold) is added to h in place.
    """
    h += bar_of(threshold) - np.log(h.shape[1] - 1)
    least = h[np.arange(len(h)), assignment.competitor]
    total = row_sums(np.exp(least[:, None] - h))
    return assignment._replace(evidence=least - np.log(total / (h.shape[1] - 1)))
