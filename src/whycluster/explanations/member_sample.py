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
from whycluster.core.energies import Energy
from whycluster.data.arrays import evenly_spaced_per_group
from whycluster.data.table import Table
from whycluster.explanations.base import BaseExplanation

_CELLS = 1 << 22  # the maximum number of values of evidence that are computed at once
MOST_ROWS = 5000  # maximum number of rows in a sample of members


@dataclass(frozen=True, eq=False)
class MemberSample:
    """A sample of at most `MOST_ROWS` members: up to a fixed number of evenly spaced rows per cluster.

    Attributes
    ----------
    cluster : (m,) the clusters of the members
    table : the m rows, in order
    energy : the energy of the K clusters
    """

    cluster: Codes
    table: Table
    energy: Energy

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
        table = some.unchanged_table(where) if len(some) else some.table
        return cls(some.cluster_codes, table, exp.energy)

    def blocks(self) -> Iterator[tuple[Codes, NDArray[Any]]]:
        """Yield the clusters and the evidence of some members at a time, (b,) and (b, K).

        The evidence is against every other cluster, or NaN for their own cluster. A block contains all
        sampled members of its clusters. With few clusters, there is only one block.
        """
        if len(self.cluster) * self.energy.n_clusters <= _CELLS:
            if len(self.cluster):
                yield self.cluster, self._h
            return
        order = np.argsort(self.cluster, kind="stable")
        starts = np.flatnonzero(np.diff(self.cluster[order], prepend=-1))
        n_rows = max(1, _CELLS // self.energy.n_clusters)
        firsts = starts[np.flatnonzero(np.diff(starts // n_rows, prepend=-1))]
        for rows in np.split(order, firsts[1:]):
            cluster = self.cluster[rows]
            yield cluster, outputs.contrasts(self.energy, self.table.take(rows), cluster)

    @cached_property
    def _h(self) -> NDArray[Any]:
        return outputs.contrasts(self.energy, self.table, self.cluster)


def members_of(exp: BaseExplanation, cluster_code: int) -> Codes:
    """Return the positions of the members of a cluster."""
    return np.flatnonzero(exp.is_member & (exp.cluster_codes == cluster_code))
