"""Draw matrices of clusters by features and of clusters by competitors, with colors and numbers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from whycluster.core.arrays import Floats
from whycluster.data import display
from whycluster.data.validation import check_integer
from whycluster.explanations.base import BaseExplanation
from whycluster.plots import style
from whycluster.plots.checks import check, check_members, label_names, summary_of

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_CELL = 0.46  # inches per column
_SMALLEST_FONT = 3.5  # in points; numbers that would need a smaller font are left out
_DARK, _DARK_SHARE = 0.75, 0.4  # fractions of the color scales above which numbers are drawn in white
_LARGEST = 30.0  # inches per side
_MAX_NAMES = 150  # names along an axis; if there are more, only every second, third, ... is shown
_MARGIN = 2.4  # inches for the names on the left


def heatmap(exp: BaseExplanation, n_features: int = 20, ax: Axes | None = None) -> Axes:
    """Draw the share of each feature in the relevance of each cluster, as a percentage.

    Features are grouped by the cluster in which their share is largest. Shares of evidence against a cluster
    are negative.

    Parameters
    ----------
    exp : explanation of rows or of documents
    n_features : the number of features or words to draw, chosen by their largest share in any cluster
    ax : Axes to draw into and return; by default, a new figure is created
    """
    where = "plot.heatmap"
    check(exp, where)
    check_integer(n_features, 1, where, "n_features")
    summary = summary_of(exp, where)
    names, share, n_all = summary.grid(int(n_features))
    labels = label_names(summary.clusters)
    ax = style.open_axes(ax, where, *_inches(len(labels), len(names)))
    limit = float(np.abs(share).max(initial=0.0)) or 1.0
    ax.imshow(share.T, cmap=style.diverging(), vmin=-limit, vmax=limit, aspect="auto")
    _name(ax, labels, style.cut_all(names), "white")
    _write_numbers(ax, 100 * share.T, dark=_DARK * limit < share.T)
    style.title(ax, f"{summary.noun}s that define each cluster")
    every = display.count(n_all, summary.noun)
    shown = "" if len(names) == n_all else f"\nthe strongest {len(names)} of {every}"
    style.note(ax, f"cluster\n% of its relevance, {style.MINUS} against it{shown}")
    return ax


def competition(exp: BaseExplanation, ax: Axes | None = None) -> Axes:
    """Draw how often each cluster is the strongest competitor, as a percentage of each cluster's members.

    Parameters
    ----------
    exp : explanation of any kind
    ax : Axes to draw into and return; by default, a new figure is created
    """
    where = "plot.competition"
    check(exp, where)
    check_members(exp, where, "Explain the rows")
    present, share = exp.member_clusters.codes, exp.member_clusters.competitor_share
    names = label_names(exp.labels)
    ax = style.open_axes(ax, where, *_inches(len(names), len(present)))
    own = np.zeros(share.shape, dtype=bool)
    own[np.arange(len(present)), present] = True
    ax.imshow(np.where(own, 0.0, share), cmap=_sequential(), vmin=0.0, vmax=1.0, aspect="auto")
    _name(ax, names, [names[code] for code in present], "#e4e4e4")
    ax.set_ylabel("cluster", fontsize=style.SMALL)
    _write_numbers(ax, np.where(own, np.nan, 100 * share), dark=share > _DARK_SHARE)
    for place, code in enumerate(present.tolist()):  # no cluster competes with itself
        ax.add_patch(_hatched(code, place))
    style.title(ax, "which clusters compete")
    noun = exp.noun.lower()
    style.note(ax, f"strongest competitor\n% of the {noun}s of each cluster")
    return ax


def _inches(n_columns: int, n_rows: int) -> tuple[float, float]:
    return min(_LARGEST, max(4.4, _MARGIN + _CELL * n_columns)), min(_LARGEST, style.LINE * n_rows + 1.2)


def _name(ax: Axes, columns: list[str], rows: list[str], between: str) -> None:
    """Label the rows and columns and draw lines between the cells."""
    for axis, names in ((ax.xaxis, columns), (ax.yaxis, rows)):
        step = -(-len(names) // _MAX_NAMES)
        style.name_ticks(axis, names[::step], range(0, len(names), step))
    if max(map(len, columns)) > 5:
        ax.tick_params(axis="x", rotation=90)
    style.bare(ax)
    ax.set_xticks(np.arange(1, len(columns)) - 0.5, minor=True)
    ax.set_yticks(np.arange(1, len(rows)) - 0.5, minor=True)
    if max(len(columns), len(rows)) <= _MAX_NAMES:
        ax.grid(which="minor", color=between, linewidth=1.0)
    ax.tick_params(which="minor", length=0)


def _write_numbers(ax: Axes, values: Floats, dark: Any) -> None:
    """Write each number into its cell as large as possible, leaving out numbers that round to 0."""
    box = ax.get_window_extent()
    points = 72 / ax.figure.dpi
    room = points * min(box.width / values.shape[1] / 2.4, box.height / values.shape[0] / 1.3)
    if room < _SMALLEST_FONT:
        return
    for (row, column), value in np.ndenumerate(values):
        if not np.isnan(value) and round(value):
            style.write(
                ax,
                column,
                row,
                f"{value:.0f}".replace("-", style.MINUS),
                ha="center",
                va="center",
                fontsize=min(style.SMALL, room),
                color="white" if dark[row, column] else "black",
            )


def _sequential() -> Any:
    from matplotlib.colors import LinearSegmentedColormap

    return LinearSegmentedColormap.from_list("whycluster-share", ["white", style.FOR, "#0b2f66"])


def _hatched(column: float, row: float) -> Any:
    from matplotlib.patches import Rectangle

    box: dict[str, Any] = {"facecolor": "#f0f0f0", "edgecolor": "#c0c0c0", "hatch": "xx", "linewidth": 0.0}
    return Rectangle((column - 0.5, row - 0.5), 1.0, 1.0, **box)
