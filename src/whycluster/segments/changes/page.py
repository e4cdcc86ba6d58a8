"""The report about changes as one HTML page, made from ``changes.html.j2`` and ``changes.css``."""

from __future__ import annotations

from collections.abc import Sequence
from importlib.resources import files
from typing import Any

import numpy as np

from whycluster.core.arrays import Codes
from whycluster.core.errors import InvalidInputError
from whycluster.data import display
from whycluster.data.labels import noise_mask
from whycluster.explanations.maps.cluster_styles import COLORS, SHAPES, styles_of
from whycluster.report.formatting import clean_names, clean_sentences, format_signed
from whycluster.report.page import open_template, render_static
from whycluster.segments.changes import sentences
from whycluster.segments.changes.drift import DriftTest
from whycluster.segments.changes.flows import Flow
from whycluster.segments.changes.matching import NONE
from whycluster.segments.changes.record import ChangeRecord
from whycluster.segments.changes.row_change import RowAccount, RowChange, moved_rows

_LARGEST = 1_000_000  # maximum number of bytes in a page
_FEWER = 0.97  # since rows differ in size, the next attempt uses this fraction of the rows that would fit
_MOST_ROWS = 2000  # more would not fit
_MOST_FLOWS = 60
_MOST_DRIVERS = 4
_MOST_ALARMS = 60
_MOST_COLUMNS = 8  # columns listed for each row
_MOST_DRAWN = 24  # with more clusters, ribbons would be too thin to see
_HEIGHT, _GAP, _WIDTH, _BAR = 360.0, 6.0, 560.0, 14.0  # units of the picture


def make_page(record: ChangeRecord, title: str | None, n_rows: int) -> str:
    """Return the page as text, with the accounts of ``n_rows`` moves, or of fewer if they do not fit."""
    if title is not None and not isinstance(title, str):
        raise InvalidInputError(f"report: title must be text; got {title!r}.")
    template, style = open_template(_read("changes.html.j2")), _read("changes.css")
    context, chosen = _context(record, title), choose_moves(record, min(n_rows, _MOST_ROWS))
    rows = [_row(record, row) for row in moved_rows(record, chosen)]
    empty = len(render_static(template, context | {"rows": []}, style).encode())
    while True:
        page = render_static(template, context | {"rows": rows}, style)
        size = len(page.encode())
        if size <= _LARGEST or not rows:
            return page
        rows = rows[: int(_FEWER * len(rows) * max(0, _LARGEST - empty) / (size - empty))]


def _read(name: str) -> str:
    return files("whycluster.segments.changes").joinpath(name).read_text(encoding="utf-8")


def _context(record: ChangeRecord, title: str | None) -> dict[str, Any]:
    names = clean_names(record.labels.tolist())
    moves, alarms = record.move_flows, record.alarms
    drift = sentences.drift_sentences(record)[0]
    return {
        "title": clean_names(["Changes" if title is None else title])[0],
        "names": names,
        "styles": styles_of(noise_mask(record.labels.tolist())),
        "colors": COLORS,
        "shapes": SHAPES,
        "overview": clean_sentences(sentences.overview(record)),
        "caveats": clean_sentences(sentences.caveats(record)),
        "is_refit": record.is_refit,
        "sizes": _sizes(record, names),
        "picture": _picture(record, names) if len(names) <= _MOST_DRAWN else None,
        "moves": [_flow(record, flow, names) for flow in moves[:_MOST_FLOWS]],
        "n_more_moves": max(0, len(moves) - _MOST_FLOWS),
        "others": _others(record, names),
        "notes": clean_sentences(sentences.evidence_notes(record)),
        "drift_sentence": clean_sentences([drift.removeprefix("Drift: ")])[0],
        "alarms": [_alarm(test, names) for test in alarms[:_MOST_ALARMS]],
        "n_more_alarms": max(0, len(alarms) - _MOST_ALARMS),
        "n_moved": len(record.moves.rows),
        "id_name": clean_names([record.pairing.on])[0],
    }


def _sizes(record: ChangeRecord, names: Sequence[str]) -> list[dict[str, Any]]:
    counts, largest = record.counts, int(max(record.counts["before"].max(), record.counts["after"].max()))
    return [
        {
            "code": code,
            "name": name,
            "counts": [int(counts[what][code]) for what in sentences.SIZE_HEADS],
            "widths": [f"{100 * counts[what][code] / largest:.1f}" for what in ("before", "after")],
            "overlap": sentences.overlap_text(record, code),
        }
        for code, name in enumerate(names)
    ]


def _flow(record: ChangeRecord, flow: Flow, names: Sequence[str]) -> dict[str, Any]:
    largest = max((driver.mean for driver in flow.drivers), default=1.0)
    shown = flow.drivers[:_MOST_DRIVERS]
    columns = clean_names(driver.column for driver in shown)
    lacking = record.is_lacking(flow.source, flow.target)
    return {
        "source": flow.source,
        "target": flow.target,
        "from": names[flow.source],
        "to": names[flow.target],
        "n_rows": flow.n_rows,
        "share": _share(record.share(flow)),
        "change": "" if flow.change != flow.change else format_signed(flow.change),
        "has_account": not all(lacking),
        "drivers": [
            {
                "column": column,
                "mean": format_signed(driver.mean),
                "n_first": driver.n_first,
                "width": f"{100 * driver.mean / largest:.1f}",
            }
            for column, driver in zip(columns, shown, strict=True)
        ],
    }


def _share(share: float) -> str:
    return display.format_frequencies([share, 0.0, 1.0])[0]


def _others(record: ChangeRecord, names: Sequence[str]) -> list[dict[str, Any]]:
    """Return the new rows and the rows that are gone, by cluster."""
    return [
        {
            "code": flow.source if flow.target == NONE else flow.target,
            "name": names[flow.source if flow.target == NONE else flow.target],
            "what": "gone" if flow.target == NONE else "new",
            "n_rows": flow.n_rows,
        }
        for flow in record.flows
        if NONE in (flow.source, flow.target)
    ]


def _alarm(test: DriftTest, names: Sequence[str]) -> dict[str, Any]:
    before, after = sentences.drift_values(test)
    column, measure = clean_names([test.column, sentences.measure_name(test)])
    return {
        "code": test.cluster,
        "name": names[test.cluster],
        "column": column,
        "measure": measure,
        "is_category": test.category is not None,
        "before": before,
        "after": after,
        "shift": f"{test.shift:+.2g}".replace("-", "\N{MINUS SIGN}"),
        "p": sentences.p_text(test).removeprefix("p ").removeprefix("= "),
    }


def choose_moves(record: ChangeRecord, n_rows: int) -> Codes:
    """Choose at most ``n_rows`` moves, from each flow in turn, larger flows and typical moves first.

    A move is typical if its contributions are close to their means over the flow.
    """
    moves, pairing = record.moves, record.pairing
    source = record.before[pairing.before[moves.rows]]
    target = record.after[pairing.after[moves.rows]]
    queues: list[Codes] = []
    for flow in record.move_flows[: max(n_rows, 1)]:
        members = np.flatnonzero((source == flow.source) & (target == flow.target))
        if (moves.place[members] != NONE).all():
            split = moves.accounts.contributions[moves.place[members]]
            apart = np.abs(split - split.mean(axis=0)).sum(axis=1)
            members = members[np.argsort(apart, kind="stable")]
        queues.append(members[:n_rows])
    turns = [np.arange(len(queue)) for queue in queues]
    order = np.argsort(np.concatenate([*turns, np.empty(0, np.intp)]), kind="stable")
    return np.concatenate([*queues, np.empty(0, np.intp)])[order][:n_rows]


def _row(record: ChangeRecord, row: RowChange) -> dict[str, Any]:
    codes = [record.labels.tolist().index(label) for label in (row.before, row.after)]
    lines = [] if row.account is None else _lines(row, row.account)
    return {
        "title": clean_names([row.title])[0],
        "codes": codes,
        "names": clean_names([row.before, row.after]),
        "sentences": clean_sentences(row.sentences()),
        "lines": lines,
        "change": "" if row.account is None else format_signed(row.account.change),
        "causes": [] if row.account is None else [format_signed(cause + 0.0) for cause in row.account.causes],
    }


def _lines(row: RowChange, account: RowAccount) -> list[dict[str, Any]]:
    listed = row.strongest_columns(_MOST_COLUMNS)
    largest = float(np.abs(account.contributions).max(initial=0.0)) or 1.0
    lines = [
        _line(
            str(row.columns[i]),
            row.shown_values(int(i)),
            [part[i] for part in (account.contributions, account.data, account.model)],
            largest,
        )
        for i in listed.tolist()
    ]
    n_left = int((account.contributions != 0.0).sum()) - len(listed)
    if n_left:
        rest = [
            np.delete(part, listed).sum() for part in (account.contributions, account.data, account.model)
        ]
        lines.append(_line(f"{n_left} more column{'s' * (n_left != 1)}", ("", ""), rest, 0.0))
    if row.lists_residual(account):
        lines.append(_line("no single column", ("", ""), account.residuals, 0.0))
    return lines


def _line(name: str, values: tuple[str, str], parts: Sequence[float], largest: float) -> dict[str, Any]:
    width = 100 * abs(parts[0]) / largest if largest else 0.0
    return {
        "name": clean_names([name])[0],
        "cells": clean_names(values),
        "parts": [format_signed(part + 0.0) for part in parts],
        "side": "for" if parts[0] > 0 else "against",
        "width": f"{width:.1f}",
    }


def _picture(record: ChangeRecord, names: Sequence[str]) -> dict[str, Any]:
    """Return the bars and ribbons of the picture: clusters before on the left, clusters after on the right.

    Bars show the rows that both tables have. A ribbon is as wide as its share of these rows.
    """
    flows = [flow for flow in record.flows if NONE not in (flow.source, flow.target)]
    n, k = sum(flow.n_rows for flow in flows), len(names)
    sizes = np.zeros((2, k))
    for flow in flows:
        sizes[0, flow.source] += flow.n_rows
        sizes[1, flow.target] += flow.n_rows
    scale = (_HEIGHT - _GAP * (k - 1)) / n
    tops = [np.cumsum(side * scale + _GAP) - side * scale - _GAP for side in sizes]
    taken = [top.copy() for top in tops]
    ribbons = []
    for flow in sorted(flows, key=lambda flow: (flow.source, flow.target)):
        ends = []
        for side, code in enumerate((flow.source, flow.target)):
            ends.append(taken[side][code])
            taken[side][code] += flow.n_rows * scale
        ribbons.append(
            {
                "path": _ribbon(ends[0], ends[1], flow.n_rows * scale),
                "code": flow.source,
                "is_move": flow.is_move,
                "title": f"{display.count(flow.n_rows, 'row')} from {names[flow.source]} to "
                f"{names[flow.target]}",
            }
        )
    bars = [
        [
            {"code": code, "y": f"{tops[side][code]:.1f}", "height": f"{sizes[side][code] * scale:.1f}"}
            for code in range(k)
            if sizes[side][code]
        ]
        for side in (0, 1)
    ]
    labels = [
        [
            {"name": names[code], "n": int(sizes[side][code]), "top": f"{top:.2f}"}
            for code, top in _label_places(tops[side], sizes[side] * scale)
        ]
        for side in (0, 1)
    ]
    return {
        "bars": bars,
        "ribbons": ribbons,
        "labels": labels,
        "height": _HEIGHT,
        "width": _WIDTH,
        "bar": _BAR,
    }


def _label_places(tops: Any, heights: Any) -> list[tuple[int, float]]:
    """Return the clusters with rows and the middle of their bars, in percent of the height."""
    return [
        (code, 100 * (tops[code] + heights[code] / 2) / _HEIGHT)
        for code in range(len(tops))
        if heights[code] > 0
    ]


def _ribbon(left: float, right: float, height: float) -> str:
    """Return the outline of a ribbon between two bars as an SVG path."""
    x0, x1 = _BAR, _WIDTH - _BAR
    middle = (x0 + x1) / 2
    return (
        f"M{x0:.1f} {left:.2f}C{middle:.1f} {left:.2f} {middle:.1f} {right:.2f} {x1:.1f} {right:.2f}"
        f"V{right + height:.2f}C{middle:.1f} {right + height:.2f} {middle:.1f} {left + height:.2f} "
        f"{x0:.1f} {left + height:.2f}z"
    )
