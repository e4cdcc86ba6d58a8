"""What is said of a clustered table: for people, or as JSON."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from textwrap import fill
from typing import Any

import numpy as np

from whycluster.cli.clustering import Asked, Clustered, cluster
from whycluster.cli.screen import tell
from whycluster.data import display
from whycluster.explanations import findings
from whycluster.explanations.explanation import Explanation
from whycluster.explanations.summary import Summary

_LISTED = 8  # columns that are left out
_WIDTH = 100  # characters of a line
LEGEND = """\
share: part of the cluster's relevance; high, middle, low: among the means of all clusters."""


def start(asked: Asked, quiet: bool) -> Clustered:
    """Cluster as asked; and, unless it is to be quiet, say what a user should know of it."""
    found = cluster(asked)
    if not quiet:
        tell_notes(found.left_out, found.id_names, found.notes)
    return found


def tell_notes(left_out: dict[str, str], ids: Sequence[str], notes: Sequence[str]) -> None:
    """What there is to say of the columns, on stderr."""
    if left_out:
        reasons = [f"{display.clean(name)} ({reason})" for name, reason in left_out.items()]
        more = f"; and {len(reasons) - _LISTED} more" if len(reasons) > _LISTED else ""
        tell(f"left out: {'; '.join(reasons[:_LISTED])}{more}")
    for name in ids:
        if name in left_out:
            tell(f"rows are named by {name!r}")
    for note in notes:
        tell(note)


class Told:
    """An explanation of all rows, in a few words.

    Parameters
    ----------
    found, exp : the clusters, and the explanation of the rows
    top : how many features of each cluster are shown
    """

    def __init__(self, found: Clustered, exp: Explanation, top: int) -> None:
        self._found, self._top = found, top
        self._summary = exp.summary()
        self._sentences = findings.sentences(exp, self._summary)
        self._cautions = findings.warnings(exp, summary=self._summary)

    @property
    def head(self) -> str:
        """What was clustered, in one line."""
        rows = self._found.rows
        return (
            f"{display.count(rows.height, 'row')}, {display.count(rows.width, 'column')}; {self._found.what}."
        )

    def as_text(self) -> str:
        """For people."""
        summary = self._summary
        said = zip(summary.clusters.tolist(), summary.size.tolist(), self._sentences, strict=True)
        lines = [
            f"{display.clean(str(label))} ({size} row{'s' * (size != 1)}): {text}"
            for label, size, text in said
        ]
        parts = [
            self.head,
            display.heading("The clusters"),
            "\n".join(lines),
            display.heading("What makes each cluster"),
            summary.describe(self._top),
            LEGEND,
        ]
        if self._cautions:
            parts.append(display.heading("Take care"))
            parts += [
                fill(caution.text, _WIDTH, initial_indent="- ", subsequent_indent="  ")
                for caution in self._cautions
            ]
        return "\n\n".join(parts)

    def as_json(self, **more: Any) -> str:
        """For programs."""
        return to_json(
            {
                "rows": self._found.rows.height,
                "columns": self._found.rows.columns,
                "left_out": self._found.left_out,
                "clustering": self._found.what,
                "clusters": [self._cluster(group) for group in range(len(self._summary.clusters))],
                "cautions": [caution._asdict() for caution in self._cautions],
                **more,
            }
        )

    def _cluster(self, group: int) -> dict[str, Any]:
        return facts_of(self._summary, group, self._top, sentence=self._sentences[group])


def facts_of(summary: Summary, group: int, top: int, **more: Any) -> dict[str, Any]:
    """A cluster and its strongest features, for programs."""
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
                "inside": _mean(summary, summary.inside[group, i], group, int(i)),
                "outside": _mean(summary, summary.outside[group, i], group, int(i)),
            }
            for i in order
        ],
    }


def _mean(summary: Summary, value: float, group: int, column: int) -> Any:
    """A mean as it is; a date as a date."""
    return summary.format_mean(value, group, column) if column in summary._dates else value


def to_json(value: Any) -> str:
    """JSON as the standard has it: what is not a number is null."""
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
