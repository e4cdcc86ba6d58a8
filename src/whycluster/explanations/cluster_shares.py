"""The base class of `Agreement` and `Fidelity`: shares of the rows of each cluster."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from whycluster.core.arrays import Codes, Floats
from whycluster.data import display
from whycluster.data.frames import build_frame
from whycluster.data.labels import Labels

if TYPE_CHECKING:
    from typing_extensions import Self

_MOST_LISTED = 5  # clusters in a warning


@dataclass(frozen=True, repr=False, eq=False)
class ClusterShares(ABC):
    """Shares of the rows of each of K clusters, and of all rows."""

    labels: NDArray[Any]
    size: NDArray[np.intp]

    @abstractmethod
    def _shares(self) -> Mapping[str, tuple[Floats, float]]:
        """Return the shares of the rows of each cluster, (K,), and the share of all rows, by name."""

    def to_frame(self, backend: str | None = None) -> Any:
        """Return a frame with one row per cluster: its label, its size and its shares.

        Parameters
        ----------
        backend : "pandas", "polars" or "pyarrow"; by default the first of these that is installed
        """
        columns: dict[Hashable, NDArray[Any]] = {"cluster": self.labels, "size": self.size}
        columns |= {name: each for name, (each, _) in self._shares().items()}
        return build_frame(columns, None, backend, f"{type(self).__name__.lower()}.to_frame")

    def _table(self, heads: Sequence[str], digits: int) -> str:
        """Return the shares under these heads, and those of all rows below them, as text."""
        names = [*self.labels.tolist(), "all"]
        sizes = [*self.size, self.size.sum()]
        shares = zip(*([*each, share] for each, share in self._shares().values()), strict=True)
        rows = [
            [display.clean(str(name)), str(n), *(f"{share:.{digits}%}" for share in row)]
            for name, n, row in zip(names, sizes, shares, strict=True)
        ]
        return display.table(["cluster", "rows", *heads], rows, align="<>" + ">" * len(heads))

    def relabeled(self, old: Labels, new: NDArray[Any]) -> Self:
        """Return the same shares of clusters that have new labels."""
        return replace(self, labels=new[old.find(self.labels)])

    def _list(self, is_listed: NDArray[np.bool_], shares: Floats) -> str:
        """Return the clusters to list with their shares, the worst first, as text."""
        listed = self._worst_first(is_listed, shares)
        text = ", ".join(
            f"{display.clean(str(self.labels[k]))} ({shares[k]:.1%} of {self.size[k]} rows)"
            for k in listed[:_MOST_LISTED]
        )
        return text + f" and {len(listed) - _MOST_LISTED} more" * (len(listed) > _MOST_LISTED)

    @staticmethod
    def _worst_first(is_listed: NDArray[np.bool_], shares: Floats) -> Codes:
        order = np.argsort(shares, kind="stable")
        return order[is_listed[order]]
