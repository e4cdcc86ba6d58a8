"""Every row as a point: how much each feature matters, and with which values."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from scipy.stats import rankdata

from whycluster.core.arrays import Floats, evenly
from whycluster.core.errors import InvalidInputError
from whycluster.data import display
from whycluster.data.validation import check_whole
from whycluster.plots import style
from whycluster.plots.kinds import Tabular, check, code_of, short_name

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.colors import Colormap

MOST_ROWS = 2000
_BINS = 80  # across the axis; points of one bin stand above each other
_HALF = 0.42  # of a line, for the points above its middle
_VECTORS = 500  # rows; with more, points are pixels in files such as PDF
_STEP = 0.07  # from one point to the next


def beeswarm(exp: Tabular, cluster: Any = None, n_features: int = 12, ax: Axes | None = None) -> Axes:
    """Features by their mean absolute relevance, with a point for every row; dark where its value is low.

    Parameters
    ----------
    exp : explanation of the rows of a table
    cluster : the label of one cluster, to draw only the rows explained for it; None for all
    n_features : how many features
    ax : Axes to draw in; by default those of a new figure, ``ax.figure``

    Returns
    -------
    Axes
    """
    where = "plot.beeswarm"
    check(exp, where, "feature_names")
    check_whole(n_features, 1, where, "n_features")
    rows = np.arange(len(exp))
    if cluster is not None:
        rows = np.flatnonzero(exp.cluster_codes == code_of(exp, cluster, where))
    if not len(rows):
        of = "" if cluster is None else f" that is explained for {cluster!r}"
        raise InvalidInputError(f"{where}: exp must have a row{of}; it has none.")
    exp.unchanged_table(where)
    columns = np.argsort(-_mean_size(exp.relevance, rows), kind="stable")[: int(n_features)]
    drawn = rows[evenly(len(rows), MOST_ROWS)]
    values = _values(exp, drawn, columns)
    ax = style.open_axes(ax, where, 7.0, 0.36 * max(4, len(columns)) + 1.1)
    points = _draw(ax, exp.relevance[np.ix_(drawn, columns)].astype(np.float64), values)
    names = [str(exp.feature_names[i]) for i in columns]
    style.name_ticks(ax.yaxis, style.cut_all(names))
    ax.set_ylim(len(columns) - 0.4, -0.6)
    _add_scale(ax, points)
    of = "all clusters" if cluster is None else short_name(exp.labels[code_of(exp, cluster, where)])
    count = display.count(len(rows), "row")
    count = f"{len(drawn):,} of {count}" if len(drawn) < len(rows) else count
    style.title(ax, f"what matters in {of} ({count})")
    left = len(exp.feature_names) - len(columns)
    more = f"; {display.count(left, 'weaker feature')} not shown" * bool(left)
    style.note(ax, f"relevance: + speaks for the row's cluster, {style.MINUS} against it{more}")
    return ax


def _mean_size(relevance: NDArray[Any], rows: Any) -> Floats:
    """(d,) mean absolute relevance of some rows, some at a time."""
    total = np.zeros(relevance.shape[1])
    for start in range(0, len(rows), 4096):
        total += np.abs(relevance[rows[start : start + 4096]]).sum(axis=0, dtype=np.float64)
    return total / len(rows)


def _values(exp: Tabular, rows: Any, columns: Any) -> Floats:
    """(b, m) where each value stands among those of its column, from 0 to 1; NaN for categories and gaps."""
    table = exp.table.take(rows)
    values = np.full((len(rows), len(columns)), np.nan)
    for start, block in table.blocks():
        values[start : start + len(block)] = block[:, columns]
    for place, column in enumerate(columns.tolist()):
        known = np.isfinite(values[:, place])
        ranks = rankdata(values[known, place])
        span = np.ptp(ranks) if len(ranks) else 0.0
        values[known, place] = (ranks - ranks.min()) / span if span else 0.5
        if column in exp.table.categories:
            values[:, place] = np.nan
    return values


def _draw(ax: Axes, relevance: Floats, values: Floats) -> Any:
    low, high = min(0.0, relevance.min()), max(0.0, relevance.max())
    span = (high - low) or 1.0
    ax.axvline(0.0, color=ax.xaxis.label.get_color(), linewidth=0.8, zorder=1)
    points: Any = None
    look: dict[str, Any] = {"s": 11, "linewidths": 0.3, "edgecolors": "#444444", "zorder": 2}
    look["rasterized"] = len(relevance) > _VECTORS
    for place in range(relevance.shape[1]):
        x = relevance[:, place]
        y = place + spread((x - low) / span)
        known = ~np.isnan(values[:, place])
        ax.scatter(x[~known], y[~known], color="#bbbbbb", **look)
        points = ax.scatter(
            x[known], y[known], c=values[known, place], cmap=_colours(), vmin=0.0, vmax=1.0, **look
        )
    ax.set_xlim(low - 0.03 * span, high + 0.03 * span)
    style.bare(ax, "bottom")
    ax.grid(axis="y", color=style.PALE, linewidth=0.5)
    ax.set_axisbelow(True)
    ax.tick_params(axis="x", labelsize=style.SMALL)
    return points


def spread(x: Floats) -> Floats:
    """How far each point stands above or below its line, so that points of the same place are all seen.

    ``x`` lies from 0 to 1. Points of a bin alternate around the middle; crowded ones come closer together.
    """
    bins = np.floor(x * _BINS).astype(np.intp)
    order = np.argsort(bins, kind="stable")
    _, first, count = np.unique(bins[order], return_index=True, return_counts=True)
    rank = np.arange(len(x)) - np.repeat(first, count)
    step = min(_STEP, 2 * _HALF / max(1, int(count.max())))
    offset = np.empty(len(x))
    offset[order] = np.ceil(rank / 2) * np.where(rank % 2, 1, -1) * step
    return offset


def _colours() -> Colormap:
    """From dark to light, in any print; without the end that is hardly seen on white."""
    from matplotlib import colormaps
    from matplotlib.colors import ListedColormap

    return ListedColormap(colormaps["cividis"](np.linspace(0.0, 0.95, 256)))


def _add_scale(ax: Axes, points: Any) -> None:
    scale = ax.figure.colorbar(points, ax=ax, ticks=[0, 1], pad=0.02, aspect=30)
    scale.ax.set_yticklabels(["low", "high"], fontsize=style.SMALL)
    scale.ax.set_ylabel("value of the feature", fontsize=style.SMALL, labelpad=2)
    scale.outline.set_visible(False)
    scale.ax.tick_params(length=0)
