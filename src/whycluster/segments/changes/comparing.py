"""Compare two tables under a segmentation, or under an old and a new one."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import replace
from typing import Any, NamedTuple, overload

import narwhals as nw
import numpy as np

from whycluster.core import outputs
from whycluster.core.arrays import Codes
from whycluster.core.errors import InvalidInputError
from whycluster.data import display
from whycluster.data.opening import column_names
from whycluster.data.table import Table
from whycluster.segments.changes.accounts import Accounts, Clusters, Model, account, account_of_both
from whycluster.segments.changes.drift import DriftTest, find_drift
from whycluster.segments.changes.flows import Flow, drivers_of, find_flows
from whycluster.segments.changes.matching import NONE, MatchedClusters, match_clusters
from whycluster.segments.changes.pairing import PairedRows
from whycluster.segments.changes.record import ChangeRecord, Moves
from whycluster.segments.changes.result import Changes
from whycluster.segments.changes.units import warn_of_units
from whycluster.segments.segmentation import Segmentation

_WHERE = "changes"


@overload
def changes(
    segmentation: Segmentation, before: Any, after: Any, /, *, on: Hashable, check: bool = True
) -> Changes: ...
@overload
def changes(
    old: Segmentation, new: Segmentation, before: Any, after: Any, /, *, on: Hashable, check: bool = True
) -> Changes: ...
def changes(*given: Any, on: Hashable, check: bool = True) -> Changes:
    """Compare two tables of the same customers, or other rows with ids, from two points in time.

    ``changes(segmentation, before, after, on="CustomerID")`` assigns both tables to the clusters of one
    segmentation. ``changes(old, new, before, after, on="CustomerID")`` assigns the first table to the
    clusters of an old segmentation and the second one to those of a new segmentation. The clusters of the
    two are matched by the rows that they share, so that labels carry over.

    Each row that moved gets an account: how much the change of each column contributed to the change of the
    evidence for its new cluster against its old one. The contributions add up to this change, and columns
    that did not change contribute 0. With two segmentations, each contribution is the sum of a part that is
    due to the row's values and a part that is due to the new segmentation; the residual is the part of the
    change that belongs to no single column.

    Parameters
    ----------
    segmentation, old, new : the segmentations
    before, after : pandas or polars DataFrames or pyarrow Tables, with one row per id and the columns of the
        segmentations; other columns are ignored
    on : the name of the column with the ids, or of the index of a pandas DataFrame. The ids need not be in
        the same order. A row whose id is only in ``before`` is gone, and one whose id is only in ``after``
        is new.
    check : whether to compare both tables with the rows that the segmentations were made on, as
        `Segmentation.assign` does, and to warn of columns that changed by the same factor in all rows

    Returns
    -------
    Changes

    Examples
    --------
    >>> import pandas as pd
    >>> import whycluster as wc
    >>> before = pd.DataFrame({"id": [1, 2, 3, 4], "age": [20, 21, 60, 61], "visits": [9, 8, 1, 2]})
    >>> after = pd.DataFrame({"id": [1, 2, 3, 5], "age": [20, 21, 60, 22], "visits": [9, 1, 1, 8]})
    >>> model = wc.Segmentation.of([[20, 8], [50, 2]], before[["age", "visits"]], measure_quality=False)
    >>> wc.changes(model, before, after, on="id")
    <Changes: 0 of 3 common rows moved; 1 gone, 1 new>
    """
    segmentations, before, after = _arguments(given)
    pairing = PairedRows.of(before, after, on, _WHERE)
    if len(segmentations) > 1:
        _check_columns(segmentations, before, after)
    months = [_Month.of(each, before, after, check) for each in segmentations]
    old, new = months[0], months[-1]
    if check:
        warn_of_units(old.before, old.after, pairing, _WHERE)
    matches = _match(old, new) if len(months) > 1 else MatchedClusters.same(old.segmentation.labels)
    codes = old.before_codes, matches.from_new[new.after_codes]
    units = _units(old.segmentation, new.segmentation)
    moves = _moves(months, pairing, codes, matches, units)
    fidelity = [each.network.fidelity for each in segmentations]
    record = ChangeRecord(
        pairing,
        *codes,
        matches,
        len(months) > 1,
        units != (1.0, 1.0),
        moves,
        _flows(pairing, codes, len(matches.labels), moves),
        tuple(_drift(old, pairing)),
        tuple(each for each in fidelity if each is not None),
        nw.from_native(before, eager_only=True)[:0].to_native(),
    )
    return Changes(record, new.segmentation)


def _arguments(given: tuple[Any, ...]) -> tuple[list[Segmentation], Any, Any]:
    segmentations = [each for each in given if isinstance(each, Segmentation)]
    tables = given[len(segmentations) :]
    is_known = all(isinstance(each, Segmentation) for each in given[: len(segmentations)])
    if not is_known or len(segmentations) not in (1, 2) or len(tables) != 2:
        listed = ", ".join(type(each).__name__ for each in given)
        raise InvalidInputError(
            "changes: the arguments must be changes(segmentation, before, after, on=...) or "
            f"changes(old, new, before, after, on=...); got {listed}. wc.Segmentation.of(model, X) makes a "
            "segmentation of a fitted model."
        )
    return segmentations, tables[0], tables[1]


def _check_columns(segmentations: list[Segmentation], before: Any, after: Any) -> None:
    """Raise an error if a table lacks a column that only the segmentation of the other table uses."""
    old, new = (each.feature_names for each in segmentations)
    cases = (("before", before, old, new, "new", "old"), ("after", after, new, old, "old", "new"))
    for name, frame, own, others, other, this in cases:
        columns = column_names(frame, _WHERE, name) or []
        missing = [column for column in others if column not in columns and column not in own]
        if missing:
            them = "column" if len(missing) == 1 else "columns"
            raise InvalidInputError(
                f"{_WHERE}: {name} must have the columns of both segmentations, so that each can assign it; "
                f"missing: {display.cut(missing)}, which the {other} segmentation uses. Add the {them}, or "
                f"compare the tables under one segmentation: changes({this}, before, after, on=...)."
            )


class _Month(NamedTuple):
    """Both tables, read and assigned by one segmentation."""

    segmentation: Segmentation
    before: Table
    after: Table
    before_codes: Codes
    after_codes: Codes

    @classmethod
    def of(cls, segmentation: Segmentation, before: Any, after: Any, check: bool) -> _Month:
        first = segmentation.open(before, _WHERE, name="before", check=check)
        second = segmentation.open(after, _WHERE, name="after", check=check)
        energy = segmentation.network.energy
        codes = (outputs.assign(energy, table) for table in (first, second))
        return cls(segmentation, first, second, *codes)

    def model(self, unit: float) -> Model:
        network, population = self.segmentation.network, self.segmentation.population.measured
        return Model(network, population, self.before.feature_names, unit)


def _match(old: _Month, new: _Month) -> MatchedClusters:
    """Match the clusters by all rows of both tables; both segmentations can assign every row."""
    return match_clusters(
        old.segmentation.labels,
        new.segmentation.labels,
        np.concatenate([old.before_codes, old.after_codes]),
        np.concatenate([new.before_codes, new.after_codes]),
    )


def _units(old: Segmentation, new: Segmentation) -> tuple[float, float]:
    """Return the units of the evidence: 1, or the mean evidence if the kinds of models differ."""
    if old.network.energy.title == new.network.energy.title:
        return 1.0, 1.0
    means = (each.population.measured.evidence or 1.0 for each in (old, new))
    first, second = means
    return first, second


def _moves(
    months: list[_Month],
    pairing: PairedRows,
    codes: tuple[Codes, Codes],
    matches: MatchedClusters,
    units: tuple[float, float],
) -> Moves:
    """Return the rows that moved, with an account if at least one of their clusters is in every model."""
    source, target = codes[0][pairing.before], codes[1][pairing.after]
    rows = np.flatnonzero(source != target)
    old, new = months[0], months[-1]
    places = pairing.before[rows], pairing.after[rows]
    before, after = [m.before.take(places[0]) for m in months], [m.after.take(places[1]) for m in months]
    source, target = (np.where(matches.is_shared[each], each, NONE) for each in (source[rows], target[rows]))
    clusters = [
        Clusters(_codes(known, source), _codes(known, target)) for known in (matches.old, matches.new)
    ][: len(months)]
    explained = np.flatnonzero((source != NONE) | (target != NONE))
    place = np.full(len(rows), NONE)
    place[explained] = np.arange(len(explained))
    columns = list(dict.fromkeys(name for table in before for name in table.feature_names))
    accounts = _accounts(
        [month.model(unit) for month, unit in zip(months, units, strict=False)],
        [(b.take(explained), a.take(explained)) for b, a in zip(before, after, strict=True)],
        [each.take(explained) for each in clusters],
        columns,
    )
    moves = Moves(rows, columns, before, after, accounts, place)
    if len(months) == 1:
        return moves
    return replace(
        moves,
        old_with_new_values=old.after_codes[places[1]],
        new_with_old_values=matches.from_new[new.before_codes[places[0]]],
    )


def _codes(known: Codes, codes: Codes) -> Codes:
    """Return the codes that a segmentation itself uses, or `NONE`."""
    return np.where(codes == NONE, NONE, known[codes])


def _accounts(
    models: list[Model],
    tables: list[tuple[Table, Table]],
    clusters: list[Clusters],
    columns: list[Hashable],
) -> Accounts:
    if not len(clusters[0].source):
        return Accounts.none(len(columns))
    if len(models) == 1:
        return account(models[0], tables[0], clusters[0])
    return account_of_both(
        (models[0], models[1]), (tables[0], tables[1]), (clusters[0], clusters[1]), columns
    )


def _flows(
    pairing: PairedRows, codes: tuple[Codes, Codes], n_clusters: int, moves: Moves
) -> tuple[Flow, ...]:
    """Return all flows, the largest first, with the drivers of those that have accounts."""
    source = np.concatenate([codes[0], np.full(len(pairing.new), NONE)])
    target = np.full(len(source), NONE)
    target[pairing.before] = codes[1][pairing.after]
    target[len(codes[0]) :] = codes[1][pairing.new]
    flows = find_flows(source, target, n_clusters)
    at = pairing.before[moves.rows][moves.place != NONE]
    group = {(flow.source, flow.target): g for g, flow in enumerate(flows)}
    groups = np.array([group[pair] for pair in zip(source[at].tolist(), target[at].tolist(), strict=True)])
    groups = groups.astype(np.intp)
    accounts = moves.accounts
    drivers = drivers_of(accounts.contributions, groups, len(flows), moves.columns)
    n_rows = np.bincount(groups, minlength=len(flows))
    total = np.bincount(groups, weights=accounts.change, minlength=len(flows))
    found = [
        replace(flow, change=float(total[g] / n_rows[g]), drivers=drivers[g]) if n_rows[g] else flow
        for g, flow in enumerate(flows)
    ]
    return tuple(sorted(found, key=lambda flow: -flow.n_rows))


def _drift(month: _Month, pairing: PairedRows) -> list[DriftTest]:
    used = [i for i, column in enumerate(month.segmentation.population.columns) if column.is_used]
    clusters, pairs = (month.before_codes, month.after_codes), (pairing.before, pairing.after)
    return find_drift(month.before, month.after, clusters, pairs, np.array(used, dtype=np.intp))
