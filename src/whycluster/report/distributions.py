"""Draw small distributions of feature values inside and outside each cluster for the page."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from whycluster.core.arrays import Codes, Floats
from whycluster.data.arrays import evenly_spaced
from whycluster.data.table import Table
from whycluster.explanations.explanation import Explanation
from whycluster.plots.style import cut_all
from whycluster.report.formatting import clean_names, format_numbers

N_BINS = 24
_WIDTH, _HEIGHT = 120, 30  # size of a histogram in SVG units; the page stretches it
_MAX_SAMPLED = 5000  # number of rows from which ranges are taken
_MOST_STRETCHED = 2.0  # values that would make an axis longer than this are beyond it
_MAX_CATEGORIES = 1000  # columns with more categories are treated as free text
_MAX_BARS = 5  # maximum number of categories drawn
_LONGEST_CATEGORY = 22  # maximum number of characters next to a bar


class Distributions(NamedTuple):
    """Counts of the values of some features in each cluster, over all rows.

    Attributes
    ----------
    table : the rows
    size : (K,) the number of rows of each cluster
    counts : for each feature, (K, bins) counts of its values per cluster
    edges : for each numeric feature, (bins + 1,) edges
    beyond : for each numeric feature, (K, 2) the number of values below and above the edges per cluster,
        which are not in ``counts``
    """

    table: Table
    size: NDArray[np.intp]
    counts: dict[int, Floats]
    edges: dict[int, Floats]
    beyond: dict[int, Floats]

    @classmethod
    def of(cls, exp: Explanation, features: Iterable[int]) -> Distributions:
        """Count the values of these features."""
        table, n_clusters = exp.table, len(exp.labels)
        clusters = exp.cluster_codes if exp.is_labeled else exp.assigned_codes
        wanted = sorted(set(features))
        sizes = {i: len(table.categories[i]) for i in wanted if i in table.categories}
        edges = _edges(table, [i for i in wanted if i not in table.categories])
        wanted = [i for i in wanted if i in edges or 0 < sizes.get(i, 0) <= _MAX_CATEGORIES]
        # Two more bins of a numeric feature hold the values below and above its edges.
        widths = {i: sizes[i] if i in sizes else len(edges[i]) + 1 for i in wanted}
        counts = {i: np.zeros(n_clusters * width) for i, width in widths.items()}
        for start, block in table.blocks():
            cluster = clusters[start : start + len(block)]
            for i, width in widths.items():
                values = block[:, i]
                known = np.isfinite(values) & (values >= 0 if i in sizes else True)
                bins = values[known] if i in sizes else _bins(edges[i], values[known])
                counts[i] += np.bincount(
                    cluster[known] * width + bins.astype(np.intp), minlength=n_clusters * width
                )
        size = np.bincount(clusters, minlength=n_clusters)
        tables = {i: c.reshape(n_clusters, -1) for i, c in counts.items()}
        beyond = {i: tables[i][:, [0, -1]] for i in edges}
        shown = {i: c[:, 1:-1] if i in edges else c for i, c in tables.items()}
        return cls(table, size, shown, edges, beyond)

    def drawings(self, pairs: Sequence[tuple[int, int]]) -> list[dict[str, Any] | None]:
        """Draw the distributions of features inside and outside clusters.

        Parameters
        ----------
        pairs : (cluster code, feature) for each drawing

        Returns
        -------
        list
            A drawing for each pair, or None if the values cannot be drawn.
        """
        ends = self._end_labels()
        return [self._drawing(code, i, ends) if i in self.counts else None for code, i in pairs]

    def _drawing(self, code: int, i: int, ends: dict[int, list[str]]) -> dict[str, Any]:
        inside = self.counts[i][code]
        outside = self.counts[i].sum(axis=0) - inside
        if i in self.edges:
            low, high = ends[i]
            return {
                "kind": "numbers",
                **_two_outlines(inside, outside),
                "low": low,
                "high": high,
                "beyond": self._beyond(code, i),
            }
        size = float(self.size[code])
        bars = self._bars(i, inside, outside, (size, float(self.size.sum()) - size))
        largest = max(bar[side] for bar in bars for side in ("inside", "outside")) if bars else 1.0
        return {"kind": "categories", "bars": bars, "largest": largest or 1.0}

    def _beyond(self, code: int, i: int) -> str:
        """Say how many values are not drawn because they are beyond the axis, or return ""."""
        inside, total = self.beyond[i][code].tolist(), self.beyond[i].sum(axis=0).tolist()
        parts = [
            f"{n:,.0f} {side} ({own:,.0f} inside)"
            for n, own, side in zip(total, inside, ("below", "above"), strict=True)
            if n
        ]
        return f"not drawn: {', '.join(parts)}" if parts else ""

    def _end_labels(self) -> dict[int, list[str]]:
        """Return the smallest and largest value drawn for each numeric feature, as text."""
        ends = {i: _ends(edges) for i, edges in self.edges.items()}
        texts = iter(format_numbers([end for pair in ends.values() for end in pair]))
        labels = {i: [next(texts), next(texts)] for i in ends}
        for i in self.table.dates & labels.keys():
            labels[i] = [f"{np.datetime64(round(end), 'D')}"[:-3] for end in ends[i]]  # without the day
        return labels

    def _bars(
        self, i: int, inside: Floats, outside: Floats, size: tuple[float, float]
    ) -> list[dict[str, Any]]:
        """Return the most frequent categories inside or outside a cluster, then all others combined.

        Frequencies are shares of all rows inside and outside, including rows with missing values.
        """
        shares = [c / max(1.0, n) for c, n in zip((inside, outside), size, strict=True)]
        order = np.argsort(-np.maximum(*shares), kind="stable")[:_MAX_BARS]
        drawn = [c for c in order.tolist() if shares[0][c] or shares[1][c]]
        names = [self.table.categories[i][c] for c in drawn]
        labels = zip(drawn, cut_all(names, _LONGEST_CATEGORY), clean_names(names), strict=True)
        bars = [_bar(label, name, float(shares[0][c]), float(shares[1][c])) for c, label, name in labels]
        n_left = int(((inside + outside) > 0).sum()) - len(bars)
        if n_left > 0:
            rest = [float(share.sum() - share[drawn].sum()) for share in shares]
            bars.append(_bar(f"{n_left} more", f"{n_left} more", *rest))
        return bars


def histogram_outlines(histograms: Iterable[Floats]) -> list[str]:
    """Return the outlines of histograms as SVG paths, each scaled to its largest count."""
    return [_outline(counts, float(counts.max())) for counts in histograms]


def _outline(counts: Floats, largest: float) -> str:
    """Return the outline of a histogram as an SVG path, from the lower left to the lower right corner."""
    height = _HEIGHT * (1.0 - np.asarray(counts) / largest) if largest > 0 else np.full(len(counts), _HEIGHT)
    width = _WIDTH / len(counts)
    steps, before = "", _HEIGHT
    for i, y in enumerate(np.round(height).astype(int).tolist()):  # a unit is less than a pixel
        steps += f"V{y}" * (y != before)
        if i + 1 == len(height) or y != round(float(height[i + 1])):
            steps += f"H{_short((i + 1) * width)}"
        before = y
    return f"M0 {_HEIGHT}{steps}V{_HEIGHT}"


def _two_outlines(inside: Floats, outside: Floats) -> dict[str, str]:
    """Draw two histograms over the same bins, each as shares of its total."""
    shares = [counts / max(1.0, counts.sum()) for counts in (inside, outside)]
    largest = max(float(share.max(initial=0.0)) for share in shares)
    return {"inside": _outline(shares[0], largest), "outside": _outline(shares[1], largest)}


def _short(number: float) -> str:
    return f"{number:.1f}".removesuffix(".0")


def _bar(label: str, name: str, inside: float, outside: float) -> dict[str, Any]:
    return {"name": label, "whole": name, "inside": inside, "outside": outside}


def _ends(edges: Floats) -> tuple[float, float]:
    """Return the smallest and largest value drawn. Bins of integers extend half a unit beyond them."""
    half = 0.5 if edges[0] % 1 == 0.5 and edges[1] - edges[0] == 1 else 0.0
    return float(edges[0]) + half, float(edges[-1]) - half


def _bins(edges: Floats, values: Floats) -> Codes:
    """Return the bin of each value: 0 below the edges, 1, 2, ... between them, the last one above them."""
    bins = np.searchsorted(edges, values, "right")
    bins[values == edges[-1]] = len(edges) - 1  # the last bin includes its upper edge
    return bins


def _edges(table: Table, features: list[int]) -> dict[int, Floats]:
    """Place the bins of each feature so that a few extreme values do not hide all others."""
    if not features:
        return {}
    rows = evenly_spaced(table.n_rows, _MAX_SAMPLED)
    columns = np.broadcast_to(np.array(features), (len(rows), len(features)))
    values = Table.pick(table.take(rows), columns)
    known = [column[np.isfinite(column)] for column in values.T]
    return {i: _edges_of(column) for i, column in zip(features, known, strict=True) if column.size}


def _edges_of(known: Floats) -> Floats:
    low, high = axis_ends(known)
    whole = bool((known == np.round(known)).all())
    if whole and high - low < N_BINS:
        return np.arange(np.floor(low) - 0.5, np.ceil(high) + 1.0)
    return np.linspace(low, high if high > low else low + 1.0, N_BINS + 1)


def axis_ends(values: Floats) -> tuple[float, float]:
    """Return the smallest and largest value, ignoring values so far out that they would hide the others.

    The axis is at most twice as long as the range from the 1st to the 99th percentile.
    """
    low, high = np.quantile(values, [0.01, 0.99]).tolist()
    room = (_MOST_STRETCHED - 1.0) / 2 * (high - low)
    near = values[(values >= low - room) & (values <= high + room)] if high > low else values
    return float(near.min()), float(near.max())
