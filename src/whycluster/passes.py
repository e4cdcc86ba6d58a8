"""The passes over all rows: forward for labels, evidence and beta; forward and backward for relevance.

Clusters are codes 0..K-1 here. Rows are read block by block and nothing of shape (rows, clusters,
features) is ever made.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from whycluster import blocks
from whycluster.blocks import Work, Workspace
from whycluster.energies import Energy
from whycluster.errors import InvalidInputError
from whycluster.propagate import CONTRAST, Codes, Standing, against, compete, share, weigh
from whycluster.table import Floats, Table


@dataclass(frozen=True)
class Question:
    """What is asked of every row: which cluster, against which competitor, shared by which rule."""

    own: Codes | None = None  # (n,) None: the assigned cluster
    rival: Codes | None = None  # (n,) None: all competitors, or for a contrast the strongest
    rule: str = CONTRAST
    beta: float | None = None  # a contrast needs none

    def stand(self, h: Floats, start: int, stop: int) -> Standing:
        """Turn the energies of rows start..stop into h, in place, and say how the rows stand."""
        standing = compete(h, None if self.own is None else self.own[start:stop])
        return standing if self.rival is None else against(h, standing, self.rival[start:stop])


@dataclass(frozen=True)
class Attribution:
    """The answer: relevance (n, d), and for each row f_c, c and the strongest competitor (n,)."""

    relevance: NDArray[Any]
    evidence: NDArray[Any]
    own: Codes
    rival: Codes

    @classmethod
    def empty(cls, table: Table) -> Attribution:
        """Arrays to be filled, in the dtype of the data."""
        n, codes = table.n_rows, np.intp
        relevance = np.empty((n, table.n_features), table.dtype)
        return cls(relevance, np.empty(n, table.dtype), np.empty(n, codes), np.empty(n, codes))

    def keep(self, standing: Standing, start: int, stop: int) -> None:
        """Store how rows start..stop stand."""
        self.own[start:stop], self.rival[start:stop], self.evidence[start:stop] = standing

    def kept(self, start: int, stop: int) -> Standing:
        """What `keep` stored."""
        rows = slice(start, stop)
        return Standing(self.own[rows], self.rival[rows], self.evidence[rows])

    def can_hold(self, n_clusters: int) -> bool:
        """Whether the rows of relevance, until they are known, have room for the rows of h."""
        n_features = self.relevance.shape[1]
        return self.relevance.dtype == np.float64 and n_clusters <= n_features

    def held(self, start: int, stop: int, n_clusters: int) -> Floats:
        """H of rows start..stop, (b, K), lying where their relevance will be written.

        This spares computing h twice, once for beta and once for the relevance, and takes no memory.
        """
        return blocks.per_cluster(self.relevance[start:stop].reshape(-1), stop - start, n_clusters)


def assign(energy: Energy, table: Table) -> Codes:
    """The cluster of least energy for each row, (n,)."""
    own = np.empty(table.n_rows, dtype=np.intp)

    def work(space: Workspace, start: int, stop: int) -> None:
        own[start:stop] = _forward(energy, table, Question(), space.h, space, start, stop)[2].own

    _run(work, energy, table)
    return own


def evidence(energy: Energy, table: Table, question: Question) -> Floats:
    """f_c for the cluster that is asked for, (n,)."""
    result = np.empty(table.n_rows)

    def work(space: Workspace, start: int, stop: int) -> None:
        standing = _forward(energy, table, question, space.h, space, start, stop)[2]
        result[start:stop] = standing.evidence

    _run(work, energy, table)
    return result


def evidence_of_all(energy: Energy, table: Table) -> NDArray[Any]:
    """f_c for every cluster c, (n, K)."""
    result = np.empty((table.n_rows, energy.n_clusters), dtype=table.dtype)

    def work(space: Workspace, start: int, stop: int) -> None:
        _, h, standing = _forward(energy, table, Question(), space.h, space, start, stop)
        # The assigned cluster is the strongest competitor of all others, so f_k = s_c - s_k there.
        np.negative(h, out=result[start:stop], casting="same_kind")
        result[np.arange(start, stop), standing.own] = standing.evidence

    _run(work, energy, table)
    return result


def stiffness(energy: Energy, table: Table, hold: Attribution | None = None) -> float:
    """Beta = 1 / (mean of f_c over the rows), Eq. 3; infinite where all of them lie on boundaries.

    With ``hold``, how the rows stand and their h are kept there for `attribute`.
    """
    sums: dict[int, float] = {}

    def work(space: Workspace, start: int, stop: int) -> None:
        h = space.h if hold is None else hold.held(start, stop, energy.n_clusters)
        standing = _forward(energy, table, Question(), h, space, start, stop)[2]
        sums[start] = float(standing.evidence.sum())
        if hold is not None:
            hold.keep(standing, start, stop)

    _run(work, energy, table)
    mean = math.fsum(sums.values()) / table.n_rows
    return min(1.0 / mean, np.finfo(np.float64).max) if mean > 0.0 else math.inf


def attribute(
    energy: Energy, table: Table, question: Question, hold: Attribution | None = None
) -> Attribution:
    """Relevance of every feature for every row, R = sum_k a_k (e_k - e_c)."""
    result = hold or Attribution.empty(table)
    direct = result.relevance.dtype == np.float64

    def work(space: Workspace, start: int, stop: int) -> None:
        n_rows = stop - start
        if hold is None:
            x, h, standing = _forward(energy, table, question, space.h, space, start, stop)
            result.keep(standing, start, stop)
        else:
            x = _read(energy, table, space, start, stop)
            h, standing = hold.held(start, stop, energy.n_clusters), hold.kept(start, stop)
        weights = space.weights[:n_rows]
        weigh(h, standing, question.rule, question.beta, weights)
        rows = result.relevance[start:stop]
        out = rows if direct else space.relevance[:n_rows]
        energy.combine(x, weights, out, space.scratch[:n_rows])
        if not direct:
            rows[...] = out  # terms of opposite sign were added in float64; only the sum is rounded

    _run(work, energy, table)
    return result


def competition(energy: Energy, table: Table, question: Question) -> NDArray[Any]:
    """R_k, how f_c was shared among the competitors, (n, K)."""
    shares = np.empty((table.n_rows, energy.n_clusters), dtype=table.dtype)

    def work(space: Workspace, start: int, stop: int) -> None:
        _, h, standing = _forward(energy, table, question, space.h, space, start, stop)
        weights = space.weights[: stop - start]
        weigh(h, standing, question.rule, question.beta, weights)
        share(h, standing, weights)
        shares[start:stop] = weights

    _run(work, energy, table)
    return shares


def _read(energy: Energy, table: Table, space: Workspace, start: int, stop: int) -> Floats:
    return table.read(start, stop, energy.offset, space.x[: stop - start])


def _forward(
    energy: Energy,
    table: Table,
    question: Question,
    room: Floats,
    space: Workspace,
    start: int,
    stop: int,
) -> tuple[Floats, Floats, Standing]:
    """Rows start..stop as (x, h, standing); h is written into ``room``."""
    h = room[: stop - start]
    x = _read(energy, table, space, start, stop)
    energy.energies(x, h)
    standing = question.stand(h, start, stop)
    if not np.isfinite(standing.evidence).all():
        raise _NotFiniteError
    return x, h, standing


class _NotFiniteError(Exception):
    """Some evidence came out as NaN or infinite; the table is then searched for the reason."""


def _run(work: Work, energy: Energy, table: Table) -> None:
    try:
        blocks.run(work, table.n_rows, table.n_features, energy.n_clusters)
    except _NotFiniteError:
        raise InvalidInputError(_why_not_finite(table)) from None


def _why_not_finite(table: Table) -> str:
    found = table.first_not_finite()
    if found is None:
        largest = max(float(np.abs(block).max()) for _, block in table.blocks())
        return (
            f"{table.where}: {table.name} has values too large to multiply in float64; the largest is "
            f"{largest:.3g} in size. Rescale the data and fit the model again."
        )
    row, feature, value = found
    kind = "a missing value (NaN)" if math.isnan(value) else "an infinite value"
    return (
        f"{table.where}: {table.name} must be finite; row {row}, feature {feature!r} holds {kind}. "
        f"Drop or fill such rows first."
    )
