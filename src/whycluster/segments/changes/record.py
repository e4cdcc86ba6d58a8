"""The changes between two tables as plain data, from which texts, frames and pages are made."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from whycluster.core.arrays import Codes
from whycluster.data.table import Table
from whycluster.explanations.fidelity import Fidelity
from whycluster.segments.changes.accounts import Accounts
from whycluster.segments.changes.drift import DriftTest
from whycluster.segments.changes.flows import Flow
from whycluster.segments.changes.matching import NONE, MatchedClusters
from whycluster.segments.changes.pairing import PairedRows

STAYED, MOVED, NEW, GONE = "stayed", "moved", "new", "gone"


@dataclass(frozen=True)
class Moves:
    """The rows that moved.

    Attributes
    ----------
    rows : (n,) the positions of the rows among the common rows
    columns : (d,) the names of the columns
    before, after : the values of the rows, as tables of each segmentation
    accounts : the accounts of those moves that have one
    place : (n,) the position of each move among the accounts, or `NONE` if it has none
    old_with_new_values, new_with_old_values : (n,) for two segmentations, the codes of the clusters that the
        old segmentation assigns to the new values, and of those that the new segmentation assigns to the old
        values; else None
    """

    rows: Codes
    columns: list[Hashable]
    before: list[Table]
    after: list[Table]
    accounts: Accounts
    place: Codes
    old_with_new_values: Codes | None = None
    new_with_old_values: Codes | None = None

    def values(self, moves: Codes) -> list[list[tuple[Any, Any]]]:
        """Return the values of some rows before and after, for each row and column."""
        found: list[dict[Hashable, list[Any]]] = [{}, {}]
        for known, tables in zip(found, (self.before, self.after), strict=True):
            for table in tables:
                columns = np.broadcast_to(np.arange(table.n_features), (len(moves), table.n_features))
                picked = table.take(moves).pick(columns).T.tolist()
                known |= dict(zip(table.feature_names, picked, strict=True))
        columns_of_pairs = [list(zip(found[0][name], found[1][name], strict=True)) for name in self.columns]
        return [[pairs[i] for pairs in columns_of_pairs] for i in range(len(moves))]


@dataclass(frozen=True)
class ChangeRecord:
    """The changes between two tables.

    Attributes
    ----------
    pairing : the rows of the two tables and their ids
    before, after : the cluster of each row of the two tables, as codes of ``matches``
    matches : the clusters of the segmentation, or of both
    is_refit : whether there are two segmentations
    has_units : whether the two segmentations measure evidence in different units, so that each is divided by
        its mean evidence
    moves : the rows that moved, with their accounts
    flows : all flows, the largest first
    drift : the comparisons of all columns in all clusters
    fidelity : for surrogates, how well they match the clusterings that they approximate
    like : an empty frame of the user's library
    """

    pairing: PairedRows
    before: Codes
    after: Codes
    matches: MatchedClusters
    is_refit: bool
    has_units: bool
    moves: Moves
    flows: tuple[Flow, ...]
    drift: tuple[DriftTest, ...]
    fidelity: tuple[Fidelity, ...]
    like: Any

    @property
    def labels(self) -> NDArray[Any]:
        """(L,) the labels of all clusters."""
        return self.matches.labels

    def label(self, code: int) -> Any:
        """Return the label of a cluster, or None for `NONE`."""
        return None if code == NONE else self.labels.tolist()[code]

    def is_lacking(self, source: int, target: int) -> tuple[bool, bool]:
        """Return whether the new segmentation lacks the source, and whether the old one lacks the target."""
        return bool(self.matches.new[source] == NONE), bool(self.matches.old[target] == NONE)

    @property
    def move_flows(self) -> list[Flow]:
        """The flows between different clusters, the largest first."""
        return [flow for flow in self.flows if flow.is_move]

    @property
    def alarms(self) -> list[DriftTest]:
        """The comparisons that raise an alarm, the largest shifts first."""
        return sorted((test for test in self.drift if test.is_alarm), key=lambda test: -abs(test.shift))

    @cached_property
    def counts(self) -> dict[str, Codes]:
        """For each cluster, (L,) counts of rows: before, after, stayed, moved_out, moved_in, gone and new."""
        n = len(self.labels)
        before, after = (np.bincount(codes, minlength=n) for codes in (self.before, self.after))
        found = {name: np.zeros(n, dtype=np.intp) for name in (STAYED, "moved_out", "moved_in", GONE, NEW)}
        for flow in self.flows:
            status = status_of(flow)
            if status == MOVED:
                found["moved_out"][flow.source] += flow.n_rows
                found["moved_in"][flow.target] += flow.n_rows
            else:
                found[status][flow.source if flow.target == NONE else flow.target] += flow.n_rows
        return {"before": before, "after": after, **found}

    def share(self, flow: Flow) -> float:
        """Return the share of a flow in the rows of its cluster before or, for new rows, in all new rows."""
        whole = len(self.pairing.new) if flow.source == NONE else int(self.counts["before"][flow.source])
        return flow.n_rows / whole


def status_of(flow: Flow) -> str:
    """Return what happened to the rows of a flow."""
    if flow.target == NONE:
        return GONE
    if flow.source == NONE:
        return NEW
    return MOVED if flow.is_move else STAYED
