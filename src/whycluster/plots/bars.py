"""Signed bars that show the relevance of one row or the features that define each cluster."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from whycluster.core.errors import InvalidInputError
from whycluster.data import display
from whycluster.data.validation import check_integer
from whycluster.explanations.base import BaseExplanation
from whycluster.explanations.explanation import Explanation
from whycluster.explanations.summaries.summary import ClusterSummary
from whycluster.explanations.wording.formatting import Line
from whycluster.plots import style
from whycluster.plots.checks import check, code_of, refuse, short_name, summary_of

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_HEIGHT = 0.74  # relative to the distance between bars
_SMALL_SHARE = 0.1  # if no share exceeds this limit, shares are shown with one decimal place
_MARGIN = 0.19  # fraction of the axis reserved for the numbers next to the bars
_MAX_PANELS = 60
# (maximum number of panels, columns); 5 columns if there are more panels
_COLUMNS = (
    (1, 1),
    (2, 2),
    (3, 3),
    (4, 2),
    (12, 3),
    (20, 4),
)


def row(exp: BaseExplanation, row: int = 0, n_features: int = 10, ax: Axes | None = None) -> Axes:
    """Draw the relevance of each feature of one row, with the evidence as the sum.

    Bars to the right of 0 are evidence for the cluster; hatched bars to the left are evidence against it. All
    bars add up to the last bar, the evidence, which is 0 at the decision boundary.

    Parameters
    ----------
    exp : explanation of rows or of documents
    row : the position of the row
    n_features : the number of strongest features or words that get their own bar; the rest are combined into
        one bar
    ax : Axes to draw into and return; by default, a new figure is created
    """
    where = "plot.row"
    check(exp, where)
    check_integer(n_features, 1, where, "n_features")
    if not isinstance(row, (int, np.integer)) or isinstance(row, bool):
        raise InvalidInputError(f"{where}: row must be a single integer position; got {row!r}.")
    if np.ndim(getattr(exp, "relevance", 0)) > 2:  # images
        refuse(exp, where)
    one = exp[row]
    lines, evidence = one.lines(int(n_features)), float(one.evidence[0])
    n_single = sum(line.single for line in lines)
    # Half a line separates the individual features, the combined features, and the sum
    places = [i + 0.5 * (i >= n_single) for i in range(len(lines))]
    last = len(lines) + 0.5 * (n_single < len(lines)) + 0.5
    ax = style.open_axes(ax, where, 6.4, style.LINE * (last + 2.2) + 0.75)
    draw_bars(ax, lines, places)
    label = draw_sum(ax, evidence, last)
    between = " = " if isinstance(exp, Explanation) else f" {style.TIMES} "  # words are shown with counts
    names = [*label_lines(lines, between), "evidence (the sum)"]
    style.name_ticks(ax.yaxis, names, [*places, last])
    label.set_fontweight("bold")
    ax.get_yticklabels()[-1].set_fontweight("bold")
    fit(ax, [*(line.relevance for line in lines), evidence])
    ax.set_ylim(last + 1.45, -0.6)
    _mark_boundary(ax, last + 1.0)
    style.title(ax, style.wrap(one.claim()))
    style.note(ax, f"relevance: + for the cluster, {style.MINUS} against it (hatched)")
    return ax


def clusters(
    exp: BaseExplanation, cluster: Any = None, n_features: int = 6, ax: Any = None
) -> Axes | NDArray[np.object_]:
    """Draw the features that define each cluster, as shares of its members' mean relevance.

    Parameters
    ----------
    exp : explanation of rows or of documents
    cluster : the label of one cluster, or None for one panel per cluster
    n_features : the number of features or words that get their own bar; for the rest, only the sum is shown
    ax : Axes to draw into, one for each cluster drawn; by default, a new figure is created

    Returns
    -------
    Axes
        the Axes of one cluster or, for all clusters, an array of Axes in the order of
        ``exp.summary().clusters``
    """
    where = "plot.clusters"
    check(exp, where)
    check_integer(n_features, 1, where, "n_features")
    summary = summary_of(exp, where)
    if cluster is None and len(summary.clusters) > _MAX_PANELS:
        raise InvalidInputError(
            f"{where}: exp must contain members of at most {_MAX_PANELS} clusters, since each cluster is "
            f"drawn in its own panel; it contains members of {len(summary.clusters)}. Draw one cluster with "
            "cluster=, or all clusters with heatmap()."
        )
    groups = range(len(summary.clusters)) if cluster is None else [group_of(exp, summary, cluster, where)]
    lines = [summary.bars_of(group, int(n_features)) for group in groups]
    shares = [line.relevance for each in lines for line in each if line.single]
    form = ".0%" if max(map(abs, shares), default=1.0) >= _SMALL_SHARE else ".1%"
    n_lines = max(1, *map(len, lines))
    axes = _panels(ax, len(groups), n_lines, cluster is not None, where)
    for panel, group, some in zip(axes, groups, lines, strict=True):
        draw_bars(panel, some, range(len(some)), form, rest=False)
        style.name_ticks(panel.yaxis, label_lines(some, ", "))
        size = display.count(int(summary.size[group]), exp.noun.lower())
        style.title(panel, f"{short_name(summary.clusters[group])} ({size})")
        fit(panel, shares)  # the same scale in all panels
        panel.set_ylim(n_lines - 0.4, -0.6)
        panel.locator_params(axis="x", nbins=6)
        panel.xaxis.set_major_formatter(_percent)
    note = f"share of its relevance: + for the cluster, {style.MINUS} against it (hatched)"
    if ax is None and cluster is None:
        axes[0].figure.supxlabel(note, x=0.01, ha="left", fontsize=style.SMALL)
    else:
        style.note(axes[-1], note)
    return axes[0] if cluster is not None else np.array(axes, dtype=object)


def group_of(exp: BaseExplanation, summary: ClusterSummary, cluster: Any, where: str) -> int:
    """Return the position of a cluster in the summary."""
    label = exp.labels[code_of(exp, cluster, where)]
    found = [i for i, other in enumerate(summary.clusters.tolist()) if other == label]
    if not found:
        known = ", ".join(map(repr, summary.clusters.tolist()))
        raise InvalidInputError(f"{where}: cluster must be one that has members ({known}); got {cluster!r}.")
    return found[0]


def draw_bars(
    ax: Axes, lines: Sequence[Line], places: Sequence[float], form: str | None = None, rest: bool = True
) -> None:
    """Draw bars that start at 0, each with its number, and hatch negative bars.

    If ``rest`` is False, a combination of several features gets only a number instead of a bar.
    """
    for line, y in zip(lines, places, strict=True):
        if not (line.single or rest):
            style.write(ax, 0, y, f" {style.signed(line.relevance, form)}", va="center", color=style.GRAY)
            continue
        against = line.relevance < 0
        (patch,) = ax.barh(
            y,
            line.relevance,
            _HEIGHT,
            color=style.AGAINST if against else style.FOR,
            alpha=1.0 if line.single else 0.5,
            hatch=style.HATCH if against else None,
            edgecolor="white",
            linewidth=0.0,
        )
        patch.set_gid(line.name)
        _write_number(ax, line.relevance, y, form)
    style.bare(ax, "bottom")
    ax.axvline(0.0, color=ax.xaxis.label.get_color(), linewidth=0.8, zorder=3)
    ax.grid(axis="x", color=style.PALE, linewidth=0.5)
    ax.set_axisbelow(True)
    ax.tick_params(axis="x", labelsize=style.SMALL)


def draw_sum(ax: Axes, value: float, y: float) -> Any:
    """Draw a line and, below the line, a dark bar for a sum; return the text next to the bar."""
    ax.barh(y, value, _HEIGHT, color=ax.xaxis.label.get_color(), alpha=0.8, gid="sum")
    ax.axhline(y - 0.75, color=style.GRAY, linewidth=0.6)
    return _write_number(ax, value, y, None)


def label_lines(lines: Sequence[Line], between: str) -> list[str]:
    """Return the label of each bar, consisting of the name and the value or direction."""
    names = style.cut_all(line.name for line in lines)
    labels = []
    for line, name in zip(lines, names, strict=True):
        labels.append(name + (between + style.cut(line.value, 20)) * bool(line.value and line.single))
    return labels


def fit(ax: Axes, values: Sequence[float]) -> None:
    """Set limits that leave room for the numbers next to the bars."""
    low, high = min([0.0, *values]), max([0.0, *values])
    span = (high - low) or 1.0
    # One side always keeps some room for the note at 0
    left, right = (_MARGIN if low < 0 else 0.0), (_MARGIN if high > 0 or low == 0 else 0.0)
    ax.set_xlim(low - left * span, high + right * span)


def _mark_boundary(ax: Axes, y: float) -> None:
    """Mark the line at 0 as the decision boundary, on the side with more room."""
    side = 1 if ax.get_xlim()[1] > 0 else -1
    ax.annotate(
        "0: decision boundary",
        (0, y),
        (4 * side, 0),
        textcoords="offset points",
        ha="left" if side > 0 else "right",
        va="center_baseline",
        color=style.GRAY,
        fontsize=style.SMALL,
    )


def _write_number(ax: Axes, value: float, y: float, form: str | None) -> Any:
    side = -1 if value < 0 else 1
    return ax.annotate(
        style.signed(value, form),
        (value, y),
        (3 * side, 0),
        textcoords="offset points",
        ha="right" if side < 0 else "left",
        va="center_baseline",
        fontsize=style.SMALL,
        parse_math=False,
    )


def _percent(value: float, _: Any) -> str:
    """Format a tick as a percentage. A lambda would prevent the figure from being pickled."""
    return f"{100 * value:.3g}%".replace("-", style.MINUS)


def _panels(ax: Any, n: int, n_lines: int, single: bool, where: str) -> list[Axes]:
    """Return the user's Axes for n panels, or new Axes if ``ax`` is None."""
    if ax is not None:
        given = [ax] if single else list(np.ravel(np.array(ax, dtype=object)))
        if len(given) != n:
            raise InvalidInputError(
                f"{where}: ax must be one Axes for each of the {n} clusters that have members; got "
                f"{len(given)}. To draw a single cluster, use cluster=."
            )
        return [style.check_axes(one, where) for one in given]
    n_columns = next((columns for most, columns in _COLUMNS if n <= most), 5)
    n_rows = -(-n // n_columns)
    width = 5.6 if n_columns == 1 else 3.7 * n_columns
    figure = style.new_figure(width, (style.LINE * n_lines + 0.55) * n_rows + 0.3)
    return [figure.add_subplot(n_rows, n_columns, i + 1) for i in range(n)]
