"""How well a surrogate matches the labels it was fitted to."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from whycluster.core.arrays import Codes, Floats
from whycluster.data.warnings import FidelityWarning, level_of_the_caller
from whycluster.explanations.cluster_shares import ClusterShares

LOW = 0.95  # agreement below this raises a warning


@dataclass(frozen=True, repr=False, eq=False)
class Fidelity(ClusterShares):
    """Agreement of a surrogate with the labels it was fitted to, as shares of rows from 0 to 1.

    Attributes
    ----------
    labels : (K,) the clusters
    size : (K,) the number of rows of each cluster
    in_sample : agreement on all rows, after fitting to all of them
    cross_validated : agreement on all rows, each predicted by a surrogate that was fitted without it
    in_sample_per_cluster, cross_validated_per_cluster : (K,) agreement on the rows of each cluster
    """

    in_sample: float
    cross_validated: float
    in_sample_per_cluster: Floats
    cross_validated_per_cluster: Floats

    @classmethod
    def of(cls, names: NDArray[Any], given: Codes, fitted: Codes, predicted: Codes) -> Fidelity:
        """Compare the given codes, (n,), with fitted and with cross-validated codes (-1 if unknown)."""
        known = predicted >= 0
        return cls(
            in_sample=float((fitted == given).mean()),
            cross_validated=float((predicted == given)[known].mean()),
            labels=names,
            size=np.bincount(given, minlength=len(names)),
            in_sample_per_cluster=_per_cluster(given, fitted, len(names)),
            cross_validated_per_cluster=_per_cluster(given[known], predicted[known], len(names)),
        )

    def warn_if_low(self, where: str = "explain", expression: str = "exp.fidelity") -> None:
        """Issue a warning that lists poorly matched clusters if the cross-validated agreement is below 0.95.

        Parameters
        ----------
        where : the public function that was called
        expression : the expression with which the user can access this object
        """
        if self.cross_validated >= LOW:
            return
        shares = self.cross_validated_per_cluster
        warnings.warn(
            f"{where}: the surrogate, which is explained instead of the labels, predicts "
            f"{self.cross_validated:.1%} of them for rows that it was not fitted to ({self.in_sample:.1%} "
            f"for rows that it was). Poorly matched: {self._list(~(shares >= LOW), shares)}. "
            f"Read the explanations of these clusters with care; see {expression} for details.",
            FidelityWarning,
            stacklevel=level_of_the_caller(),
        )

    def sentences(self, noun: str, unit: str) -> list[str]:
        """Return the caveats for all shares; ``noun`` is the word for a row, ``unit`` that for a feature."""
        return [
            f"The labels are explained through a surrogate, and the shares are the surrogate's: a {unit} "
            "that separates the labels may have a small or negative share.",
            f"It predicts the labels of {self.cross_validated:.1%} of the {noun}s that it was not fitted to, "
            f"and of {self.in_sample:.1%} of those that it was.",
        ]

    def _shares(self) -> Mapping[str, tuple[Floats, float]]:
        return {
            "in_sample": (self.in_sample_per_cluster, self.in_sample),
            "cross_validated": (self.cross_validated_per_cluster, self.cross_validated),
        }

    def __str__(self) -> str:
        return self._table(["in sample", "cross-validated"], digits=1)

    __repr__ = __str__  # a notebook shows the table too


def _per_cluster(given: Codes, found: Codes, n_clusters: int) -> Floats:
    """Return the share of each cluster's rows that were predicted correctly, or NaN for empty clusters."""
    size = np.bincount(given, minlength=n_clusters)
    hits = np.bincount(given, weights=found == given, minlength=n_clusters)
    return np.asarray(np.divide(hits, size, out=np.full(n_clusters, np.nan), where=size > 0))
