"""A sample of the members of all clusters, and the members of one cluster."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from whycluster.core import outputs
from whycluster.core.arrays import Codes
from whycluster.data.arrays import evenly_spaced_per_group
from whycluster.explanations.base import BaseExplanation

_CELLS = 1 << 22  # the maximum number of values of evidence that are computed at once
_WEIGHTS = 1 << 19  # the same for weights of competitors, which take several arrays
MOST_ROWS = 5000  # maximum number of rows in a sample of members


@dataclass(frozen=True, eq=False)
class MemberSample:
    """A sample of at most `MOST_ROWS` members: up to a fixed number of evenly spaced rows per cluster.

    Attributes
    ----------
    exp : the explanation of the m members, in order
    """

    exp: BaseExplanation

    @classmethod
    def of(cls, exp: BaseExplanation, where: str, codes: Codes | None = None) -> MemberSample:
        """Draw the sample, by default from all clusters; ``where`` names the public function in messages."""
        cluster = np.where(exp.is_member, exp.cluster_codes, -1)
        if codes is None:
            codes = exp.member_clusters.codes
        else:
            cluster = np.where(np.isin(cluster, codes), cluster, -1)
        rows = evenly_spaced_per_group(cluster, max(1, MOST_ROWS // max(1, len(codes))))
        some = exp if len(rows) == len(exp) else exp[rows]  # all rows, if there are few
        return cls(some.verified(where) if len(some) else some)

    @property
    def cluster(self) -> Codes:
        """(m,) the clusters of the members."""
        return self.exp.cluster_codes

    def blocks(self) -> Iterator[tuple[Codes, NDArray[Any]]]:
        """Yield the clusters and the evidence of some members at a time, (b,) and (b, K).

        The evidence is against every other cluster, or NaN for their own cluster. A block contains all
        sampled members of its clusters. With few clusters, there is only one block.
        """
        for rows in self._row_blocks(_CELLS):
            cluster, is_all = self.cluster[rows], len(rows) == len(self.cluster)
            yield (
                cluster,
                self._h if is_all else outputs.contrasts(self.exp.energy, self.exp.table.take(rows), cluster),
            )

    def weights(self) -> Iterator[tuple[Codes, NDArray[Any]]]:
        """Yield the positions, (b,), of some members at a time and their competitors' weights, (b, K)."""
        for rows in self._row_blocks(_WEIGHTS):
            some = self.exp if len(rows) == len(self.cluster) else self.exp[rows]
            yield rows, some.competitor_weights()

    def _row_blocks(self, most: int) -> list[Codes]:
        """Return blocks of positions, each with all members of a few clusters and about ``most`` values."""
        if len(self.cluster) * self.exp.energy.n_clusters <= most:
            return [np.arange(len(self.cluster))] if len(self.cluster) else []
        order = np.argsort(self.cluster, kind="stable")
        starts = np.flatnonzero(np.diff(self.cluster[order], prepend=-1))
        n_rows = max(1, most // self.exp.energy.n_clusters)
        firsts = starts[np.flatnonzero(np.diff(starts // n_rows, prepend=-1))]
        blocks = np.split(order, firsts[1:])
        return [np.arange(len(order))] if len(blocks) == 1 else blocks

    @cached_property
    def _h(self) -> NDArray[Any]:
        return outputs.contrasts(self.exp.energy, self.exp.table, self.cluster)


def members_of(exp: BaseExplanation, cluster_code: int) -> Codes:
    """Return the positions of the members of a cluster."""
    return np.flatnonzero(exp.is_member & (exp.cluster_codes == cluster_code))
