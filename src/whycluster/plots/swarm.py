"""The beeswarm, which shows each row's relevance as one point per feature, colored by feature value."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from scipy.stats import rankdata

from whycluster.core.arrays import Floats
from whycluster.core.errors import InvalidInputError
from whycluster.data import display
from whycluster.data.arrays import evenly_spaced
from whycluster.data.validation import check_integer
from whycluster.explanations.explanation import Explanation
from whycluster.plots import style
from whycluster.plots.checks import check, code_of, short_name

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.colors import Colormap

MOST_ROWS = 2000
_BINS = 80  # number of bins across the axis; points in one bin are stacked
_HALF = 0.42  # maximum offset of a point from its line
_MAX_VECTORS = 500  # number of rows above which points are rasterized in vector formats such as PDF
_STEP = 0.07  # distance between stacked points


def beeswarm(exp: Explanation, cluster: Any = None, n_features: int = 12, ax: Axes | None = None) -> Axes:
    """Draw each row's relevance as one point per feature, with dark points for low feature values.

    Features are ordered by their mean absolute relevance.

    Parameters
    ----------
    exp : explanation of the rows of a table
    cluster : the label of a cluster, to draw only the rows explained for it, or None for all rows
    n_features : the number of features to draw
    ax : Axes to draw into and return; by default, a new figure is created
    """
    where = "plot.beeswarm"
    check(exp, where, Explanation)
    check_integer(n_features, 1, where, "n_features")
    rows = np.arange(len(exp))
    if cluster is not None:
        rows = np.flatnonzero(exp.cluster_codes == code_of(exp, cluster, where))
    if not len(rows):
        of = "" if cluster is None else f" that is explained for {cluster!r}"
        raise InvalidInputError(f"{where}: exp must contain at least one row{of}; it contains none.")
    exp.unchanged_table(where)
    columns = np.argsort(-_mean_size(exp.relevance, rows), kind="stable")[: int(n_features)]
    drawn = rows[evenly_spaced(len(rows), MOST_ROWS)]
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
    style.title(ax, f"relevance in {of} ({count})")
    left = len(exp.feature_names) - len(columns)
    more = f"; {display.count(left, 'weaker feature')} not shown" * bool(left)
    style.note(ax, f"relevance: + for the row's cluster, {style.MINUS} against it{more}")
    return ax


def _mean_size(relevance: NDArray[Any], rows: Any) -> Floats:
    """Return the mean absolute relevance of some rows, (d,), computed in batches."""
    total = np.zeros(relevance.shape[1])
    for start in range(0, len(rows), 4096):
        total += np.abs(relevance[rows[start : start + 4096]]).sum(axis=0, dtype=np.float64)
    return total / len(rows)


def _values(exp: Explanation, rows: Any, columns: Any) -> Floats:
    """Return each value's rank in its column, from 0 to 1, (b, m), or NaN if categorical or missing."""
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
    point: dict[str, Any] = {"s": 11, "linewidths": 0.3, "edgecolors": "#444444", "zorder": 2}
    point["rasterized"] = len(relevance) > _MAX_VECTORS
    for place in range(relevance.shape[1]):
        x = relevance[:, place]
        y = place + spread((x - low) / span)
        known = ~np.isnan(values[:, place])
        ax.scatter(x[~known], y[~known], color="#bbbbbb", **point)
        points = ax.scatter(
            x[known], y[known], c=values[known, place], cmap=_colormap(), vmin=0.0, vmax=1.0, **point
        )
    ax.set_xlim(low - 0.03 * span, high + 0.03 * span)
    style.bare(ax, "bottom")
    ax.grid(axis="y", color=style.PALE, linewidth=0.5)
    ax.set_axisbelow(True)
    ax.tick_params(axis="x", labelsize=style.SMALL)
    return points


def spread(x: Floats) -> Floats:
    """Return the vertical offset of each point from its line so that points do not hide each other.

    ``x`` is between 0 and 1. Points in a bin alternate around the middle. They are closer together if any bin
    contains many points.
    """
    bins = np.floor(x * _BINS).astype(np.intp)
    order = np.argsort(bins, kind="stable")
    _, first, count = np.unique(bins[order], return_index=True, return_counts=True)
    rank = np.arange(len(x)) - np.repeat(first, count)
    step = min(_STEP, 2 * _HALF / max(1, int(count.max())))
    offset = np.empty(len(x))
    offset[order] = np.ceil(rank / 2) * np.where(rank % 2, 1, -1) * step
    return offset


def _colormap() -> Colormap:
    """Return colors from dark to light that keep their order in grayscale and are easy to see on white."""
    from matplotlib import colormaps
    from matplotlib.colors import ListedColormap

    return ListedColormap(colormaps["cividis"](np.linspace(0.0, 0.95, 256)))


def _add_scale(ax: Axes, points: Any) -> None:
    scale = ax.figure.colorbar(points, ax=ax, ticks=[0, 1], pad=0.02, aspect=30)
    scale.ax.set_yticklabels(["low", "high"], fontsize=style.SMALL)
    scale.ax.set_ylabel("value of the feature", fontsize=style.SMALL, labelpad=2)
    scale.outline.set_visible(False)
    scale.ax.tick_params(length=0)
