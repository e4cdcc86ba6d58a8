"""Format the results for a clustered table as text or JSON."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import replace
from textwrap import fill
from typing import Any

import numpy as np

from whycluster.cli.clustering import ClusteredTable, CommandOptions, cluster
from whycluster.cli.output import LEGEND, print_message
from whycluster.core.arrays import Floats
from whycluster.data import display
from whycluster.explanations import findings
from whycluster.explanations.explanation import Explanation
from whycluster.explanations.quality.clustering_quality import CLEAR, Quality
from whycluster.explanations.summaries.summary import Summary

_MOST_LISTED = 8  # maximum number of columns listed in the note on left-out columns
WIDTH = 100  # number of characters per line


def cluster_and_note(options: CommandOptions, quiet: bool) -> ClusteredTable:
    """Cluster the table and, unless quiet, print notes on its columns."""
    clustered = cluster(options)
    if not quiet:
        print_notes(clustered.left_out, clustered.id_names, clustered.notes)
    return clustered


def print_notes(left_out: dict[str, str], ids: Sequence[str], notes: Sequence[str]) -> None:
    """Print which columns are left out, which column identifies the rows, and other notes."""
    if left_out:
        reasons = [f"{display.clean(name)} ({reason})" for name, reason in left_out.items()]
        more = f"; and {len(reasons) - _MOST_LISTED} more" if len(reasons) > _MOST_LISTED else ""
        print_message(f"left out: {'; '.join(reasons[:_MOST_LISTED])}{more}")
    for name in ids:
        if name in left_out:
            print_message(f"rows are identified by {name!r}")
    for note in notes:
        print_message(note)


class ExplanationOutput:
    """A short description of an explanation of all rows.

    Parameters
    ----------
    clustered : the table and its clusters
    exp : the explanation of its rows
    top : the number of features to list for each cluster
    """

    def __init__(self, clustered: ClusteredTable, exp: Explanation, top: int) -> None:
        self._clustered, self._top = clustered, top
        self._summary = exp.summary()
        self._sentences = findings.sentences(exp, self._summary)
        self._checks = findings.checks(exp, summary=self._summary)
        self._warnings = [finding for check in self._checks for finding in check.findings]
        self._assigned = set(map(str, exp.assigned.tolist()))
        self.quality = quality_of(clustered, exp)

    def as_text(self) -> str:
        """Return the clusters, their features and the warnings as text."""
        rows, summary = self._clustered.rows, self._summary
        labels, sizes = display.clean_all(map(str, summary.clusters.tolist())), summary.size.tolist()
        lines = [
            f"{label} ({size} row{'s' * (size != 1)}): {sentence}"
            for label, size, sentence in zip(labels, sizes, self._sentences, strict=True)
        ]
        others = [each.text for each in self._warnings if each.kind not in findings.READ_FIRST]
        parts = [
            fill(self._verdict(bool(others)), WIDTH),
            f"{display.count(rows.height, 'row')}, {display.count(rows.width, 'column')}; "
            f"{self._clustered.description}.",
            *self._without_rows(),
            *[fill(each.text, WIDTH) for each in self._warnings if each.kind in findings.READ_FIRST],
            display.heading("Clusters"),
            "\n".join(lines),
            display.heading("What defines each cluster"),
            summary.describe(self._top),
            LEGEND,
        ]
        if others:
            parts.append(display.heading("Warnings"))
            parts += [fill(text, WIDTH, initial_indent="- ", subsequent_indent="  ") for text in others]
        passed = [f"- {check.name}: {check.outcome}" for check in self._checks if not check.findings]
        parts += [display.heading("Checks without warnings"), "\n".join(passed)]
        return "\n\n".join(parts)

    def _verdict(self, is_warned: bool) -> str:
        """Return the quality as text; if the clusters are clear, refer to the warnings, if there are any."""
        first, end, rest = self.quality.text.partition(". ")
        if not is_warned or self.quality.verdict != CLEAR:
            return self.quality.text
        return f"{first}; see the warnings below{end}{rest}"

    def _without_rows(self) -> list[str]:
        """Return a list with at most one sentence: which clusters of the segmentation have no rows."""
        labels = map(str, self._clustered.network.labels.tolist())
        names = [display.clean(label) for label in labels if label not in self._assigned]
        if self._clustered.segmentation is None or not names:
            return []
        clusters, them = ("clusters", "them") if len(names) > 1 else ("cluster", "it")
        text = f"No row is in {clusters} {display.join_words(names)}, so no cluster is compared with {them}."
        return [fill(text, WIDTH)]

    def as_json(self, **more: Any) -> str:
        """Return the same information as JSON."""
        clustered = self._clustered
        return to_json(
            {
                "rows": clustered.rows.height,
                "columns": clustered.rows.columns,
                "left_out": clustered.left_out,
                "clustering": clustered.description,
                "quality": quality_facts(self.quality),
                "clusters": [
                    cluster_facts(self._summary, group, self._top, sentence=sentence)
                    for group, sentence in enumerate(self._sentences)
                ],
                "warnings": [warning._asdict() for warning in self._warnings],
                "checks": {check.name: check.outcome for check in self._checks},
                **more,
            }
        )


def quality_of(clustered: ClusteredTable, exp: Explanation) -> Quality:
    """Return the quality of the clusters; that of a segmentation was measured when it was made."""
    kept = None if clustered.segmentation is None else clustered.segmentation.quality
    if kept is None:
        return findings.quality(exp)
    what = kept.text[:1].lower() + kept.text[1:]
    return replace(kept, text=f"On the rows that the segmentation was made on, {what}")


def quality_facts(quality: Quality) -> dict[str, Any]:
    """Return the quality of the clusters, for JSON."""
    return {
        "verdict": quality.verdict,
        "text": quality.text,
        "silhouette": quality.silhouette,
        "rows": quality.n_rows,
        "without_clusters": {null.kind: null.mean for null in quality.nulls or ()},
        "stability": quality.stability,
        "not_measured": dict(quality.not_measured),
    }


def cluster_facts(summary: Summary, group: int, top: int, **more: Any) -> dict[str, Any]:
    """Return a cluster and its strongest features, for JSON."""
    share = summary.share[group]
    order = np.argsort(-np.abs(share), kind="stable")[:top]
    return {
        "cluster": summary.clusters[group],
        "rows": summary.size[group],
        **more,
        "features": [
            {
                "feature": summary.feature_names[i],
                "share": share[i],
                "relevance": summary.relevance[group, i],
                "direction": summary.direction[group, i],
                "against": _compared(summary, group, int(i)),
                "inside": _mean(summary, summary.inside, group, int(i)),
                "outside": _mean(summary, summary.outside, group, int(i)),
            }
            for i in order
        ],
    }


def _compared(summary: Summary, group: int, column: int) -> list[dict[str, Any]]:
    """Return the clusters that a feature is compared with, and their means, dates or frequencies."""
    statement = summary.statement(group, column)
    values = statement.texts[1:] if statement.is_date else statement.values
    return [{"cluster": c, "value": value} for c, value in zip(statement.against, values, strict=True)]


def _mean(summary: Summary, means: Floats, group: int, column: int) -> Any:
    """Return a mean as a number, or as text if it is a date."""
    if not summary.is_date(group, column):
        return means[group, column]
    return summary.format_means(means, np.array([group]), np.array([column]))[0]


def to_json(value: Any) -> str:
    """Return standard JSON, in which NaN and infinity become null."""
    return json.dumps(_plain(value), indent=2, allow_nan=False)


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {str(key): _plain(each) for key, each in value.items()}
    if isinstance(value, (list, tuple, np.ndarray)):
        return [_plain(each) for each in value]
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    return value if isinstance(value, (int, str, bool)) or value is None else str(value)
