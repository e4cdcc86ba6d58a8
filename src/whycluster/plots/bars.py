"""Signed bars: one row, or what makes each cluster."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from whycluster.core.errors import InvalidInputError
from whycluster.data import display
from whycluster.data.validation import check_whole
from whycluster.explanations.formatting import Line
from whycluster.plots import style
from whycluster.plots.kinds import Averages, Explained, check, code_of, refuse, short_name

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_HEIGHT = 0.74  # of a bar, as a part of its line
_SMALL_SHARE = 0.1  # if none is greater, shares have a digit behind the point
_ROOM = 0.19  # for numbers beside the bars, as a part of the axis
_MOST_PANELS = 60
_COLUMNS = ((1, 1), (2, 2), (3, 3), (4, 2), (12, 3), (20, 4))  # up to so many panels, so many columns; else 5


def row(exp: Explained, row: int = 0, n_features: int = 10, ax: Axes | None = None) -> Axes:
    """One row: what every feature adds to the evidence, and the evidence as their sum.

    Bars to the right of 0 speak for the cluster, hatched bars to the left against it. All bars together, with
    those of what is left, add up to the last one: the evidence, which is 0 at the decision boundary.

    Parameters
    ----------
    exp : explanation of rows or of documents
    row : which, by position
    n_features : how many features, or words, have bars of their own, the strongest first
    ax : Axes to draw in; by default those of a new figure, ``ax.figure``

    Returns
    -------
    Axes
    """
    where = "plot.row"
    check(exp, where)
    check_whole(n_features, 1, where, "n_features")
    if not isinstance(row, (int, np.integer)) or isinstance(row, bool):
        raise InvalidInputError(f"{where}: row must be one position, a whole number; got {row!r}.")
    if np.ndim(getattr(exp, "relevance", 0)) > 2:  # of images
        refuse(exp, where)
    one = exp[row]
    lines, evidence = one.lines(int(n_features)), float(one.evidence[0])
    n_single = sum(line.single for line in lines)
    # Half a line apart: what stands for a feature, what is left, and the sum
    places = [i + 0.5 * (i >= n_single) for i in range(len(lines))]
    last = len(lines) + 0.5 * (n_single < len(lines)) + 0.5
    ax = style.open_axes(ax, where, 6.4, style.LINE * (last + 2.2) + 0.75)
    draw_bars(ax, lines, places)
    label = draw_sum(ax, evidence, last)
    between = " = " if hasattr(exp, "feature_names") else f" {style.TIMES} "  # words are counted
    names = [*label_lines(lines, between), "evidence (the sum)"]
    style.name_ticks(ax.yaxis, names, [*places, last])
    label.set_fontweight("bold")
    ax.get_yticklabels()[-1].set_fontweight("bold")
    fit(ax, [*(line.relevance for line in lines), evidence])
    ax.set_ylim(last + 1.45, -0.6)
    _mark_boundary(ax, last + 1.0)
    style.title(ax, style.wrap(one.claim()))
    style.note(ax, f"relevance: + speaks for the cluster, {style.MINUS} against it (hatched)")
    return ax


def clusters(
    exp: Explained, cluster: Any = None, n_features: int = 6, ax: Any = None
) -> Axes | NDArray[np.object_]:
    """What makes each cluster: the mean relevance of its members, as shares.

    Parameters
    ----------
    exp : explanation of rows or of documents
    cluster : the label of one cluster; None for all, with a panel for each
    n_features : how many features, or words, have bars of their own
    ax : Axes to draw in, for all clusters a list of them; by default those of a new figure

    Returns
    -------
    Axes, or for all clusters an array of them, in the order of ``exp.summary().clusters``
    """
    where = "plot.clusters"
    check(exp, where, "summary")
    check_whole(n_features, 1, where, "n_features")
    summary = summary_of(exp, where)
    if cluster is None and len(summary.clusters) > _MOST_PANELS:
        raise InvalidInputError(
            f"{where}: exp must have members of at most {_MOST_PANELS} clusters, so that there is room for a "
            f"panel for each; it has {len(summary.clusters)}. Draw one with cluster=, or all with heatmap()."
        )
    groups = range(len(summary.clusters)) if cluster is None else [group_of(exp, summary, cluster, where)]
    lines = [summary.bars_of(group, int(n_features)) for group in groups]
    shares = [line.relevance for each in lines for line in each if line.single]
    form = ".0%" if max(map(abs, shares), default=1.0) >= _SMALL_SHARE else ".1%"
    n_lines = max(1, *map(len, lines))
    axes = _panels(ax, len(groups), n_lines, cluster is not None, where)
    for panel, group, shown in zip(axes, groups, lines, strict=True):
        draw_bars(panel, shown, range(len(shown)), form, rest=False)
        style.name_ticks(panel.yaxis, label_lines(shown, ", "))
        size = display.count(int(summary.size[group]), exp.noun.lower())
        style.title(panel, f"{short_name(summary.clusters[group])} ({size})")
        fit(panel, shares)  # one scale for all
        panel.set_ylim(n_lines - 0.4, -0.6)
        panel.locator_params(axis="x", nbins=6)
        panel.xaxis.set_major_formatter(_percent)
    told = f"share of its relevance: + for the cluster, {style.MINUS} against it (hatched)"
    if ax is None and cluster is None:
        axes[0].figure.supxlabel(told, x=0.01, ha="left", fontsize=style.SMALL)
    else:
        style.note(axes[-1], told)
    return axes[0] if cluster is not None else np.array(axes, dtype=object)


def summary_of(exp: Any, where: str) -> Averages:
    """The summary, if there is anything in it."""
    summary: Averages = exp.summary()
    if not len(summary.clusters):
        raise InvalidInputError(
            f"{where}: exp must have rows that are explained for the cluster they are in; it has none. "
            f"Draw single ones with plot.row(), or explain without target and against."
        )
    return summary


def group_of(exp: Explained, summary: Averages, cluster: Any, where: str) -> int:
    """Where a cluster stands in the summary."""
    label = exp.labels[code_of(exp, cluster, where)]
    found = [i for i, other in enumerate(summary.clusters.tolist()) if other == label]
    if not found:
        there = ", ".join(map(repr, summary.clusters.tolist()))
        raise InvalidInputError(f"{where}: cluster must be one with members, {there}; got {cluster!r}.")
    return found[0]


def draw_bars(
    ax: Axes, lines: Sequence[Line], places: Sequence[float], form: str | None = None, rest: bool = True
) -> None:
    """Bars from 0, each with its number; hatched where they speak against.

    Without ``rest``, what is not a single feature has a number only.
    """
    for line, y in zip(lines, places, strict=True):
        if not (line.single or rest):
            style.write(ax, 0, y, f" {style.signed(line.relevance, form)}", va="center", color=style.GREY)
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
    """The bar of a sum, dark, under a line; its number."""
    ax.barh(y, value, _HEIGHT, color=ax.xaxis.label.get_color(), alpha=0.8, gid="sum")
    ax.axhline(y - 0.75, color=style.GREY, linewidth=0.6)
    return _write_number(ax, value, y, None)


def label_lines(lines: Sequence[Line], between: str) -> list[str]:
    """What stands beside each bar: names, and what is said of them."""
    names = style.cut_all(line.name for line in lines)
    labels = []
    for line, name in zip(lines, names, strict=True):
        joint = " = " if line.is_category else between
        labels.append(name + (joint + style.cut(line.value, 16)) * bool(line.value and line.single))
    return labels


def fit(ax: Axes, values: Sequence[float]) -> None:
    """Limits that leave room for the numbers beside the bars."""
    low, high = min([0.0, *values]), max([0.0, *values])
    span = (high - low) or 1.0
    # The decision boundary is written at 0, so that there is always some room
    left, right = (_ROOM if low < 0 else 0.0), (_ROOM if high > 0 or low == 0 else 0.0)
    ax.set_xlim(low - left * span, high + right * span)


def _mark_boundary(ax: Axes, y: float) -> None:
    """Say beside the line at 0 what it is, where there is room."""
    side = 1 if ax.get_xlim()[1] > 0 else -1
    ax.annotate(
        "0: decision boundary",
        (0, y),
        (4 * side, 0),
        textcoords="offset points",
        ha="left" if side > 0 else "right",
        va="center_baseline",
        color=style.GREY,
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
    """A tick; no lambda, so that figures can be pickled."""
    return f"{100 * value:.3g}%".replace("-", style.MINUS)


def _panels(ax: Any, n: int, n_lines: int, single: bool, where: str) -> list[Axes]:
    """Axes for n panels."""
    if ax is not None:
        given = [ax] if single else list(np.ravel(np.array(ax, dtype=object)))
        if len(given) != n:
            raise InvalidInputError(
                f"{where}: ax must be one Axes for each of the {n} clusters that have members; got "
                f"{len(given)}. Draw one of them with cluster=."
            )
        return [style.check_axes(one, where) for one in given]
    n_columns = next((columns for most, columns in _COLUMNS if n <= most), 5)
    n_rows = -(-n // n_columns)
    width = 5.6 if n_columns == 1 else 3.7 * n_columns
    figure = style.new_figure(width, (style.LINE * n_lines + 0.55) * n_rows + 0.3)
    return [figure.add_subplot(n_rows, n_columns, i + 1) for i in range(n)]
