"""The map, which shows rows as points in the plane of two principal components."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from whycluster.core.arrays import Floats
from whycluster.core.errors import InvalidInputError
from whycluster.data import display
from whycluster.data.arrays import evenly_spaced
from whycluster.data.labels import is_noise
from whycluster.explanations.base import BaseExplanation
from whycluster.explanations.maps.projection import project
from whycluster.plots import style
from whycluster.plots.checks import check, short_name

if TYPE_CHECKING:
    from matplotlib.axes import Axes

MOST_ROWS = 3000
_MAX_NAMES = 60  # maximum number of clusters named in the map; the largest clusters are named
_MAX_LEGEND = 14  # maximum number of clusters in a legend; if there are more, only the map names them


def draw_map(exp: BaseExplanation, ax: Axes | None = None) -> Axes:
    """Draw all rows in the plane of two principal components, colored by cluster.

    The components describe the values that the model compares, after the steps of a pipeline. For categorical
    data and for large numbers of features, they describe the evidence for each cluster. Borderline rows are
    outlined. Their evidence is at most a tenth of the median, so a small change may move them to another
    cluster.

    Parameters
    ----------
    exp : explanation of any kind
    ax : Axes to draw into and return; by default, a new figure is created
    """
    where = "plot.map"
    check(exp, where)
    if not len(exp):
        raise InvalidInputError(f"{where}: exp must contain at least one row; it contains none.")
    exp.unchanged_table(where)
    near = exp.is_borderline
    drawn = evenly_spaced(len(exp), MOST_ROWS)
    place, part, of = project(exp.energy, exp[drawn].table)
    ax = style.open_axes(ax, where, 6.6, 4.8)
    _draw_points(ax, exp, place, drawn, near[drawn])
    count = display.count(len(exp), exp.noun.lower())
    count = f"{len(drawn):,} of {count}" if len(drawn) < len(exp) else count
    style.title(ax, f"{count}: two principal components of {of}")
    for axis, number in zip((ax.xaxis, ax.yaxis), (0, 1), strict=True):
        axis.set_label_text(f"component {number + 1} ({part[number]:.0%} of the variance)")
        axis.label.set_fontsize(style.SMALL)
        axis.set_tick_params(labelsize=style.SMALL)
    style.bare(ax, "left", "bottom")
    return ax


def _draw_points(ax: Axes, exp: BaseExplanation, place: Floats, drawn: Any, near: Any) -> None:
    codes = exp.cluster_codes[drawn]
    size = float(np.clip(9000 / max(1, len(drawn)), 9, 34))
    middles = []
    for code in np.unique(codes).tolist():
        label = exp.labels[code]
        color, marker = style.cluster_style(code, is_noise(label))
        at = place[codes == code]
        name = f"{short_name(label)} ({(exp.cluster_codes == code).sum():,})"
        edge: dict[str, Any] = {} if marker == "x" else {"edgecolors": "white", "linewidths": 0.4}
        ax.scatter(
            at[:, 0], at[:, 1], s=size, c=color, marker=marker, label=name, alpha=0.85, zorder=2, **edge
        )
        middles.append((label, np.median(at, axis=0), len(at)))
    if (n_near := int(exp.is_borderline.sum())) > 0:
        _outline(ax, place[near], size, n_near)
    _name_clusters(ax, sorted(middles, key=lambda middle: -middle[2])[:_MAX_NAMES])
    handles, names = ax.get_legend_handles_labels()
    if len(middles) > _MAX_LEGEND:
        handles, names = handles[len(middles) :], names[len(middles) :]
    if names:
        style.legend(ax, handles=handles, labels=names)


def _name_clusters(ax: Axes, middles: list[tuple[Any, Floats, int]]) -> None:
    """Write the label of each cluster at its center, or as close to it as other labels allow."""
    box = {"boxstyle": "round,pad=0.2", "facecolor": "white", "edgecolor": "#888888", "alpha": 0.85}
    names = [style.cut(str(label), 14) for label, _, _ in middles]
    low, high = np.array(ax.get_xlim()), np.array(ax.get_ylim())
    corner, span = np.array([low[0], high[0]]), np.array([np.ptp(low), np.ptp(high)])
    extent = ax.get_window_extent()
    letter = 0.5 * style.SMALL * ax.figure.dpi / 72  # pixels
    size = np.array([[letter * (len(name) + 2.5), letter * 3.8] for name in names])
    size /= [extent.width, extent.height]
    places = push_apart((np.array([place for _, place, _ in middles]) - corner) / span, size) * span + corner
    for name, (x, y) in zip(names, places, strict=True):
        style.write(ax, x, y, name, ha="center", va="center", color="black", bbox=box, zorder=5)


def push_apart(centers: Floats, size: Floats, rounds: int = 60) -> Floats:
    """Move boxes, given by centers and sizes, (n, 2), until none overlap, for at most ``rounds`` rounds."""
    centers = centers.copy()
    order = np.arange(len(centers))
    later = np.sign(order[:, None] - order[None])[..., None]
    for _ in range(rounds):
        gap = centers[:, None] - centers[None]
        overlap = (size[:, None] + size[None]) / 2 - np.abs(gap)
        both = np.asarray((overlap > 0).all(axis=2)) & (later[..., 0] != 0)
        if not both.any():
            break
        # Move boxes along the axis with the smaller overlap. Of two boxes at the same place, move the later
        # box up.
        side = np.where(gap == 0, later, np.sign(gap)) * (overlap.argmin(axis=2)[..., None] == np.arange(2))
        centers += (0.26 * overlap * side * both[..., None]).sum(axis=1)
    return centers


def _outline(ax: Axes, place: Floats, size: float, n_all: int) -> None:
    """Draw a ring around each borderline row, so that it can be recognized without color."""
    color = ax.xaxis.label.get_color()
    ring: dict[str, Any] = {"facecolors": "none", "edgecolors": color, "linewidths": 1.1, "zorder": 4}
    ax.scatter(place[:, 0], place[:, 1], s=3.2 * size, marker="o", label=f"borderline ({n_all:,})", **ring)
