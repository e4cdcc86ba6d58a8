"""The changes between two tables as data frames, in the library of the tables."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any

import numpy as np

from whycluster.core.arrays import Codes, Floats
from whycluster.data.frames import build_frame, unique_name
from whycluster.segments.changes.matching import NONE
from whycluster.segments.changes.record import GONE, MOVED, NEW, STAYED, ChangeRecord, status_of
from whycluster.segments.changes.sentences import measure_name


def rows_frame(record: ChangeRecord, backend: str | None) -> Any:
    """Return one row per id: its status, its clusters and, if it moved, its account."""
    pairing, moves, accounts = record.pairing, record.moves, record.moves.accounts
    n_before, n_rows = len(record.before), len(record.before) + len(pairing.new)
    source, target = np.full((2, n_rows), NONE)
    source[:n_before], target[n_before:] = record.before, record.after[pairing.new]
    target[pairing.before] = record.after[pairing.after]
    moved = pairing.before[moves.rows]
    status = np.full(n_rows, STAYED, dtype=object)
    status[pairing.gone], status[n_before:], status[moved] = GONE, NEW, MOVED
    explained = moved[moves.place != NONE]
    parts: dict[str, Any] = {
        "status": status.tolist(),
        "from": label_column(record, source),
        "to": label_column(record, target),
        "evidence_before": _spread_out(accounts.before, explained, n_rows),
        "evidence_after": _spread_out(accounts.after, explained, n_rows),
    }
    if record.is_refit:
        parts["from_data"] = _spread_out(accounts.data.evidence, explained, n_rows)
        parts["from_model"] = _spread_out(accounts.model.evidence, explained, n_rows)
    parts["residual"] = _spread_out(accounts.residual, explained, n_rows)
    ids = [*pairing.ids_before, *(pairing.ids_after[i] for i in pairing.new.tolist())]
    columns: dict[Hashable, Any] = {pairing.on: ids}
    taken = {pairing.on, *moves.columns}
    columns |= {unique_name(name, taken): values for name, values in parts.items()}
    for name, values in zip(moves.columns, accounts.contributions.T, strict=True):
        if name != pairing.on:
            columns[name] = _spread_out(values, explained, n_rows)
    return build_frame(columns, record.like, backend, "to_frame", same_rows=False)


def _spread_out(values: Floats, rows: Codes, n_rows: int) -> Floats:
    """Return a column with the values in some rows and NaN in all others."""
    column = np.full(n_rows, np.nan)
    column[rows] = values
    return column


def flows_frame(record: ChangeRecord, backend: str | None) -> Any:
    """Return one row per flow, the largest first, with its strongest driver."""
    flows = record.flows
    first = [flow.drivers[0] if flow.drivers else None for flow in flows]
    columns: dict[Hashable, Any] = {
        "from": label_column(record, np.array([flow.source for flow in flows])),
        "to": label_column(record, np.array([flow.target for flow in flows])),
        "status": [status_of(flow) for flow in flows],
        "rows": np.array([flow.n_rows for flow in flows]),
        "share": np.array([record.share(flow) for flow in flows]),
        "change": np.array([flow.change for flow in flows]),
        "driver": [None if each is None else str(each.column) for each in first],
        "contribution": np.array([np.nan if each is None else each.mean for each in first]),
        "first_in": np.array([0 if each is None else each.n_first for each in first]),
    }
    return build_frame(columns, record.like, backend, "flows", same_rows=False)


def drivers_frame(record: ChangeRecord, backend: str | None) -> Any:
    """Return one row for each pair of a move between clusters and a column that drove it."""
    pairs = [(flow, driver) for flow in record.flows for driver in flow.drivers]
    columns: dict[Hashable, Any] = {
        "from": label_column(record, np.array([flow.source for flow, _ in pairs], dtype=np.intp)),
        "to": label_column(record, np.array([flow.target for flow, _ in pairs], dtype=np.intp)),
        "rows": np.array([flow.n_rows for flow, _ in pairs], dtype=np.intp),
        "column": [str(driver.column) for _, driver in pairs],
        "contribution": np.array([driver.mean for _, driver in pairs], dtype=np.float64),
        "first_in": np.array([driver.n_first for _, driver in pairs], dtype=np.intp),
    }
    return build_frame(columns, record.like, backend, "drivers", same_rows=False)


def sizes_frame(record: ChangeRecord, backend: str | None) -> Any:
    """Return one row per cluster: its sizes before and after, and the numbers of rows that came and went."""
    labels = label_column(record, np.arange(len(record.labels)))
    columns: dict[Hashable, Any] = {"cluster": labels}
    columns |= {name: record.counts[name] for name in record.counts}
    if record.is_refit:
        columns["overlap"] = record.matches.overlap
    return build_frame(columns, record.like, backend, "sizes", same_rows=False)


def drift_frame(record: ChangeRecord, backend: str | None) -> Any:
    """Return one row per comparison."""
    tests = record.drift
    columns: dict[Hashable, Any] = {
        "cluster": label_column(record, np.array([test.cluster for test in tests], dtype=np.intp)),
        "column": [str(test.column) for test in tests],
        "measure": [measure_name(test) for test in tests],
    }
    for name in ("n_before", "n_after", "before", "after", "shift", "p_value"):
        columns[name] = np.array([getattr(test, name) for test in tests])
    columns["alarm"] = np.array([test.is_alarm for test in tests], dtype=bool)
    return build_frame(columns, record.like, backend, "drift", same_rows=False)


def label_column(record: ChangeRecord, codes: Codes) -> list[Any]:
    """Return the labels of codes, with None for `NONE`, as a column of one type."""
    labels = record.labels.tolist()
    if len({type(label) for label in labels}) > 1:
        labels = [str(label) for label in labels]
    return [None if code == NONE else labels[code] for code in codes.tolist()]
