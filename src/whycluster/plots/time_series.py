"""The relevance of one time series, as bars behind the series."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from whycluster.core.errors import InvalidInputError
from whycluster.data.validation import check_integer
from whycluster.explanations.explanation import Explanation
from whycluster.plots import style
from whycluster.plots.checks import check

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_BEYOND = 0.08  # fraction of the axis that is left free above and below the bars


def series(
    exp: Explanation, row: int = 0, channel: int = 0, n_channels: int = 1, ax: Axes | None = None
) -> Axes:
    """Draw one channel of a time series as a line, with the relevance of each time step as bars.

    The scale of the bars is the same for all channels of a row, so their plots can be compared.

    Parameters
    ----------
    exp : explanation of time series; the features of a row are the channels of the first time step, then
        those of the second one, and so on
    row : the position of the row
    channel : the channel to draw
    n_channels : the number of channels of each series
    ax : Axes to draw into and return; by default, a new figure is created
    """
    where = "plot.series"
    check(exp, where, Explanation)
    if not isinstance(row, (int, np.integer)) or isinstance(row, bool):
        raise InvalidInputError(f"{where}: row must be a single integer position; got {row!r}.")
    check_integer(n_channels, 1, where, "n_channels")
    check_integer(channel, 0, where, "channel")
    n_values = len(exp.feature_names)
    if n_values % n_channels:
        raise InvalidInputError(
            f"{where}: n_channels must divide the {n_values} values of each series; got {n_channels}."
        )
    if channel >= n_channels:
        raise InvalidInputError(
            f"{where}: channel must be less than the number of channels, {n_channels}; got {channel}. Pass "
            "n_channels= if the series have more."
        )
    one = exp[row]
    values = one.unchanged_table(where).to_array().reshape(-1, n_channels)[:, channel]
    relevance = one.relevance[0].astype(np.float64).reshape(-1, n_channels)
    ax = style.open_axes(ax, where, 7.0, 2.6)
    _draw_bars(ax, relevance[:, channel], relevance)
    _draw_line(ax, values)
    style.title(ax, style.wrap(one.claim() + f"; channel {channel}" * (n_channels > 1), 78))
    style.note(
        ax,
        f"time step\nline: the series; bars: relevance, + for the cluster, {style.MINUS} against it",
    )
    return ax


def _draw_bars(ax: Axes, relevance: Any, all_channels: Any) -> None:
    """Draw the relevance of each time step on the scale of all channels."""
    steps = np.arange(len(relevance))
    for sign, color, hatch in ((1, style.FOR, ""), (-1, style.AGAINST, style.HATCH)):
        mine = steps[sign * relevance > 0]
        ax.bar(mine, relevance[mine], 0.9, color=color, hatch=hatch, edgecolor="white", linewidth=0.0)
    low, high = min(0.0, all_channels.min()), max(0.0, all_channels.max())
    free = _BEYOND * ((high - low) or 1.0)
    ax.set_ylim(low - free, high + free)
    ax.set_xlim(-0.6, len(relevance) - 0.4)
    ax.axhline(0.0, color=ax.xaxis.label.get_color(), linewidth=0.8)
    ax.set_ylabel("relevance", fontsize=style.SMALL)
    ax.tick_params(labelsize=style.SMALL)
    style.bare(ax, "left")


def _draw_line(ax: Axes, values: Any) -> None:
    """Draw the series on a separate axis on the right."""
    other = ax.twinx()
    marker = "o" if len(values) <= 60 else ""
    other.plot(np.arange(len(values)), values, color=style.GRAY, linewidth=1.4, marker=marker, markersize=3)
    other.set_ylabel("value", fontsize=style.SMALL)
    other.tick_params(labelsize=style.SMALL)
    style.bare(other, "right")
