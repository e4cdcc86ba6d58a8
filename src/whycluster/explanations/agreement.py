"""How well the rule of a clustering reproduces the labels of its rows."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from whycluster.core.arrays import Codes, Floats
from whycluster.data import display
from whycluster.data.warnings import AgreementWarning, level_of_the_caller
from whycluster.explanations.cluster_shares import ClusterShares

LOW = 0.99  # agreement below this raises a warning
LEAST = 0.9  # below this, the labels are explained through a surrogate


@dataclass(frozen=True, repr=False, eq=False)
class Agreement(ClusterShares):
    """Agreement of a network with the labels of the rows that its model was fitted on.

    A row ties if the network gives its label and another one the same energy, up to rounding. Rows that
    differ only by a tie count neither for nor against the network.

    Attributes
    ----------
    labels : (K,) the clusters
    size : (K,) the number of rows with each label
    share : the share of the rows, not counting ties, whose label the network assigns, from 0 to 1
    n_ties : the number of rows that differ only by a tie
    differing : the positions of the rows whose label the network does not assign, not counting ties
    share_per_cluster : (K,) `share` among the rows with each label, or NaN if there are none
    """

    share: float
    n_ties: int
    differing: Codes
    share_per_cluster: Floats

    @classmethod
    def of(cls, names: NDArray[Any], given: Codes, assigned: Codes, tied: NDArray[np.bool_]) -> Agreement:
        """Compare the given codes, (n,), with those that a network assigns; ties are listed in ``tied``."""
        counted = ~(tied & (given != assigned))
        n_clusters = len(names)
        size = np.bincount(given[counted], minlength=n_clusters)
        hits = np.bincount(given[given == assigned], minlength=n_clusters)
        share = np.divide(hits, size, out=np.full(n_clusters, np.nan), where=size > 0)
        return cls(
            share=float(hits.sum() / max(1, counted.sum())),
            n_ties=int((~counted).sum()),
            differing=np.flatnonzero(counted & (given != assigned)),
            labels=names,
            size=np.bincount(given, minlength=n_clusters),
            share_per_cluster=share,
        )

    @property
    def percentage(self) -> str:
        """The share as text, rounded down, so that only full agreement is 100%."""
        return "100%" if self.share == 1.0 else f"{np.floor(1000 * self.share) / 10:.1f}%"

    @property
    def clusters(self) -> NDArray[Any]:
        """The clusters in which the network does not assign the label to all rows, worst first."""
        return self.labels[self._worst_first(self.share_per_cluster < 1.0, self.share_per_cluster)]

    def warn_if_low(self, where: str = "explain", expression: str = "exp.agreement") -> None:
        """Issue a warning that lists the clusters that differ if the share is below 0.99.

        Parameters
        ----------
        where, expression : as in `Fidelity.warn_if_low`
        """
        if self.share >= LOW:
            return
        warnings.warn(
            f"{where}: the rule that is explained reproduces the labels of {self.share:.1%} of the rows. "
            f"{self._differences()} Each row is explained for its own label; the evidence of the rows that "
            f"differ is negative. See {expression} for details.",
            AgreementWarning,
            stacklevel=level_of_the_caller(),
        )

    def warn_of_surrogate(self, kind: str, advice: str, where: str = "explain") -> None:
        """Issue a warning that labels are explained through a surrogate instead, and say what to check."""
        warnings.warn(
            f"{where}: the rule known for {kind} reproduces the labels of only {self.share:.1%} of the rows, "
            f"less than {LEAST:.0%}, so the labels are explained through a surrogate. "
            f"{self._differences()} {advice}",
            AgreementWarning,
            stacklevel=level_of_the_caller(),
        )

    def _differences(self) -> str:
        return f"Differences: {self._list(self.share_per_cluster < 1.0, self.share_per_cluster)}."

    def _shares(self) -> Mapping[str, tuple[Floats, float]]:
        return {"share": (self.share_per_cluster, self.share)}

    def __str__(self) -> str:
        ties = f"\n{display.count(self.n_ties, 'row')} that tie{'s' * (self.n_ties == 1)} not counted"
        return self._table(["agreement"], digits=2) + ties * (self.n_ties > 0)

    __repr__ = __str__  # a notebook shows the table too
