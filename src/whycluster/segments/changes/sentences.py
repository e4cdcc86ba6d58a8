"""The changes between two tables as text."""

from __future__ import annotations

from collections.abc import Sequence
from textwrap import fill
from typing import Any

import numpy as np

from whycluster.core.arrays import Codes
from whycluster.data import display
from whycluster.data.display import capitalize, join_first
from whycluster.data.labels import cluster_name
from whycluster.explanations.wording.formatting import WIDTH
from whycluster.segments.changes.drift import LEAST_SHIFT, LEVEL, DriftTest
from whycluster.segments.changes.flows import Flow
from whycluster.segments.changes.record import ChangeRecord

_MOST_DRIVERS = 3
_MOST_ALARMS = 10
_LEAST_RESIDUAL = 0.005  # a smaller residual would be printed as 0%
_LEAST_P = 1e-4


def summarize(record: ChangeRecord, n_flows: int) -> str:
    """Return who moved, the sizes, the largest moves with their drivers, and the drift as text."""
    parts = [
        _filled([*overview(record), *caveats(record)]),
        _sizes(record),
        _moves(record, n_flows),
        _filled(drift_sentences(record)),
    ]
    return "\n\n".join(part for part in parts if part)


def _filled(lines: Sequence[str]) -> str:
    return "\n".join(fill(line, WIDTH) for line in lines)


def overview(record: ChangeRecord) -> list[str]:
    """Return how many rows there are, how many moved, and which clusters came or went."""
    pairing, n_moved = record.pairing, len(record.moves.rows)
    common, gone, new = (len(rows) for rows in (pairing.before, pairing.gone, pairing.new))
    n_stayed = common - n_moved
    stayed, moved = (_percent(n, common) for n in (n_stayed, n_moved))
    return [
        f"{display.count(common + gone, 'row')} before and {common + new:,} after: {common:,} in both, "
        f"{gone:,} gone and {new:,} new.",
        f"Of the {display.count(common, 'row')} in both, {n_stayed:,} ({stayed}) stayed in the same cluster "
        f"and {n_moved:,} ({moved}) moved.",
        *_clusters(record),
    ]


def _clusters(record: ChangeRecord) -> list[str]:
    """Return sentences about clusters with rows only before or after, or in only one segmentation."""
    before, after = (record.counts[name] > 0 for name in ("before", "after"))
    matches = record.matches
    lines = [
        (np.flatnonzero(matches.new < 0), "not in the new segmentation"),
        (np.flatnonzero(matches.old < 0), "new in the new segmentation"),
        (np.flatnonzero(before & ~after & (matches.new >= 0)), "without rows after"),
        (np.flatnonzero(after & ~before & (matches.old >= 0)), "without rows before"),
    ]
    return [
        f"{capitalize(_names(record, codes))} {'is' if len(codes) == 1 else 'are'} {what}."
        for codes, what in lines
        if len(codes)
    ]


def _names(record: ChangeRecord, codes: Codes) -> str:
    return join_first([cluster_name(record.label(code)) for code in codes.tolist()])


def _percent(n: int, whole: int) -> str:
    """Return a share as text, rounded to 0% or 100% only if it is exactly that."""
    return display.format_frequencies([n / whole, 0.0, 1.0])[0]


def caveats(record: ChangeRecord) -> list[str]:
    """Return notes that readers of the accounts need."""
    lines = [
        "The clusters are those of a surrogate, which predicts the labels of "
        f"{fidelity.cross_validated:.1%} of the rows that it was not fitted to."
        for fidelity in record.fidelity
    ]
    if record.has_units:
        lines.append(
            "The two segmentations measure evidence in different units, so the evidence of each is divided "
            "by its mean over the rows that the segmentation was made on."
        )
    accounts = record.moves.accounts
    change = float(np.abs(accounts.change).sum())
    left = float(np.abs(accounts.residual).sum()) / change if change else 0.0
    if left >= _LEAST_RESIDUAL:
        lines.append(f"Relative to the changes of the evidence, {left:.0%} belongs to no single column.")
    return lines


SIZE_HEADS = {
    "before": "before",
    "after": "after",
    "stayed": "stayed",
    "moved_out": "moved out",
    "moved_in": "moved in",
    "gone": "gone",
    "new": "new",
}


def _sizes(record: ChangeRecord) -> str:
    heads = ["cluster", *SIZE_HEADS.values(), *["overlap"] * record.is_refit]
    lines = []
    for code, label in enumerate(record.labels.tolist()):
        cells = [str(label), *(f"{record.counts[name][code]:,}" for name in SIZE_HEADS)]
        lines.append([*cells, *[overlap_text(record, code)] * record.is_refit])
    return display.table(heads, lines, "<" + ">" * (len(heads) - 1))


def overlap_text(record: ChangeRecord, code: int) -> str:
    """Return the overlap of the two clusters with this label, or which segmentation has only one of them."""
    overlap = float(record.matches.overlap[code])
    if overlap == overlap:
        return display.format_frequencies([overlap, 0.0, 1.0])[0]
    return "only old" if record.matches.new[code] < 0 else "only new"


def _moves(record: ChangeRecord, n_flows: int) -> str:
    flows = record.move_flows
    if not flows:
        return ""
    lines = [
        [
            str(record.label(flow.source)),
            str(record.label(flow.target)),
            f"{flow.n_rows:,}",
            _percent(flow.n_rows, int(record.counts["before"][flow.source])),
            driver_text(record, flow),
        ]
        for flow in flows[:n_flows]
    ]
    table = display.table(["from", "to", "rows", "share", "driven by"], lines, "<<>><", longest=120)
    left = flows[n_flows:]
    if left:
        n_rows = sum(flow.n_rows for flow in left)
        table += f"\n... and {display.count(len(left), 'more move')}, of {display.count(n_rows, 'row')}"
    return f"{table}\n{_filled([DRIVERS_NOTE, *evidence_notes(record)])}"


DRIVERS_NOTE = (
    "share: of the old cluster's rows before. driven by: the mean contribution of a column to the change of "
    "the evidence for the new cluster against the old one, and the number of rows in which it contributed "
    "most."
)


def evidence_notes(record: ChangeRecord) -> list[str]:
    """Return notes on the evidence for moves from or to clusters that only one segmentation has."""
    lacks = {record.is_lacking(flow.source, flow.target) for flow in record.move_flows}
    notes = {
        (
            False,
            True,
        ): "The old segmentation has no counterpart of the cluster that some rows moved to. Their "
        "evidence is that for leaving their old cluster.",
        (True, False): "The new segmentation has no counterpart of the cluster that some rows moved from. "
        "Their evidence is that for their new cluster, against its strongest competitor.",
        (True, True): "Moves between two clusters without a counterpart have no account.",
    }
    return [note for lacking, note in notes.items() if lacking in lacks]


def driver_text(record: ChangeRecord, flow: Flow) -> str:
    """Return the strongest drivers of a flow as text."""
    if all(record.is_lacking(flow.source, flow.target)):
        return "no account"
    shown = flow.drivers[:_MOST_DRIVERS]
    if not shown:
        return "no column"
    names = display.format_items([each.column for each in shown])
    return ", ".join(
        f"{name} {each.mean:+.3g} (first in {each.n_first:,})"
        for name, each in zip(names, shown, strict=True)
    )


def drift_sentences(record: ChangeRecord) -> list[str]:
    """Return sentences about the columns that drifted within the clusters, and the rule for alarms."""
    alarms, n_tests = record.alarms, len(record.drift)
    where = "clusters of the old segmentation" if record.is_refit else "clusters"
    compared = f"{display.count(n_tests, 'comparison')} of columns within {where}"
    rule = (
        f"An alarm needs a shift of at least {LEAST_SHIFT:g} standard deviations and a p-value, corrected "
        f"for the number of comparisons, of at most {LEVEL:g}."
    )
    if not n_tests:
        return [
            "Drift: nothing could be compared. No column varies within a cluster with rows in both tables."
        ]
    if not alarms:
        return [f"Drift: no alarm in {compared}. {rule}"]
    raised = "raises an alarm" if len(alarms) == 1 else "raise an alarm"
    lines = [f"Drift: {len(alarms):,} of {compared} {raised}. {rule}"]
    lines += [f"- {drift_sentence(record, test)}" for test in alarms[:_MOST_ALARMS]]
    if len(alarms) > _MOST_ALARMS:
        lines.append(f"... and {len(alarms) - _MOST_ALARMS:,} more")
    return lines


def drift_sentence(record: ChangeRecord, test: DriftTest) -> str:
    """Return one comparison as a sentence."""
    name = display.format_items([test.column])[0]
    place = cluster_name(record.matches.labels.tolist()[test.cluster])
    before, after = drift_values(test)
    what = measure_name(test)
    shown = f"{what} {before} before and {after} after"
    if test.is_share:
        shown = f"{display.format_items([what])[0]} in {before} of the rows before and {after} after"
    return f"{name} in {place}: {shown} (shift {test.shift:+.2g}, {p_text(test)})."


def drift_values(test: DriftTest) -> tuple[str, str]:
    """Return the means or shares of a comparison as text, with enough digits to tell them apart."""
    both = [test.before, test.after]
    if test.is_share:
        texts = display.format_frequencies(both)
    else:
        texts = display.format_dates(both) if test.is_date else display.format_apart(both)
    return texts[0], texts[1]


def p_text(test: DriftTest) -> str:
    """Return the p-value of a comparison as text."""
    return f"p < {_LEAST_P:.4f}" if test.p_value < _LEAST_P else f"p = {test.p_value:.2g}"


def measure_name(test: DriftTest) -> Any:
    """Return the name of the measure: "mean", "missing", or a category, in quotes if it has such a name."""
    if test.is_missing or test.category is None:
        return "missing" if test.is_missing else "mean"
    category = str(test.category)
    return f'"{category}"' if category in ("mean", "missing") else category
