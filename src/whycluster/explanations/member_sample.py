"""A sample of the members of all clusters, and the members of one cluster."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from whycluster.core import outputs
from whycluster.core.arrays import Codes
from whycluster.data.arrays import evenly_spaced_per_group
from whycluster.data.table import Table
from whycluster.explanations.base import BaseExplanation

MOST_ROWS = 5000  # maximum number of rows in a sample of members


@dataclass(frozen=True, eq=False)
class MemberSample:
    """A sample of at most `MOST_ROWS` members: up to a fixed number of evenly spaced rows per cluster.

    Attributes
    ----------
    cluster : (m,) the clusters of the members
    table : the m rows, in order
    h : (m, K) the evidence of the members against every other cluster, or NaN for their own cluster
    """

    cluster: Codes
    table: Table
    h: NDArray[Any]

    @classmethod
    def of(cls, exp: BaseExplanation, where: str) -> MemberSample:
        """Draw the sample; ``where`` names the public function in messages."""
        most = max(1, MOST_ROWS // max(1, len(exp.member_clusters.codes)))
        rows = evenly_spaced_per_group(np.where(exp.is_member, exp.cluster_codes, -1), most)
        some = exp if len(rows) == len(exp) else exp[rows]  # all rows, if there are few
        if not len(some):
            return cls(some.cluster_codes, some.table, np.empty((0, len(exp.labels))))
        table = some.unchanged_table(where)
        return cls(some.cluster_codes, table, outputs.contrasts(exp.energy, table, some.cluster_codes))


def members_of(exp: BaseExplanation, cluster_code: int) -> Codes:
    """Return the positions of the members of a cluster."""
    return np.flatnonzero(exp.is_member & (exp.cluster_codes == cluster_code))
