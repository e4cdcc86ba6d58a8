"""Rows as points of a plane."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from sklearn.utils.extmath import randomized_svd

from whycluster.arrays import Floats
from whycluster.errors import InvalidInputError
from whycluster.plots import style
from whycluster.plots.kinds import Explained, check, cluster_name, counted, is_noise

if TYPE_CHECKING:
    from matplotlib.axes import Axes

MOST_ROWS = 3000
_MOST_VALUES = 1 << 23  # 64 MB; with more inputs fewer rows are drawn
_MOST_CATEGORIES = 50
_MOST_NAMES = 60  # of clusters, the largest
_LEGEND = 14  # clusters; with more, only names in the map say which is which


def draw_map(exp: Explained, ax: Axes | None = None) -> Axes:
    """All rows in the plane of their two principal components, by cluster, borderline rows outlined.

    The components are of what the model takes, every input standardised. Rows are borderline where their
    evidence is less than a tenth of the median: a little change, and they are in another cluster.

    Parameters
    ----------
    exp : explanation of any kind
    ax : Axes to draw in; by default those of a new figure, ``ax.figure``

    Returns
    -------
    Axes
    """
    where = "plot.map"
    check(exp, where)
    if not len(exp):
        raise InvalidInputError(f"{where}: exp must have a row; it has none.")
    exp._unchanged(where)
    near = exp._borderline
    most = min(MOST_ROWS, max(1, _MOST_VALUES // exp._energy.n_inputs))
    drawn = style.some_rows(len(exp), most)
    place, part = principal(inputs_of(exp[drawn]))
    ax = style.open_axes(ax, where, 6.6, 4.8)
    _draw_points(ax, exp, place, drawn, near[drawn])
    count = counted(len(exp), exp._noun.lower())
    count = f"{len(drawn):,} of {count}" if len(drawn) < len(exp) else count
    style.title(ax, f"{count} in the plane of two principal components")
    for axis, number in zip((ax.xaxis, ax.yaxis), (0, 1), strict=True):
        axis.set_label_text(f"component {number + 1} ({part[number]:.0%} of the variance)")
        axis.label.set_fontsize(style.SMALL)
        axis.set_tick_params(labelsize=style.SMALL)
    style.bare(ax, "left", "bottom")
    return ax


def inputs_of(exp: Explained) -> Floats:
    """(n, p) what the model takes of all rows; of categories, a column for each of the most frequent."""
    table, width = exp._table, exp._energy.n_inputs
    x = np.empty((len(exp), width))
    size = min(table.most_rows, max(1, len(exp)))
    for start in range(0, len(exp), size):
        stop = min(start + size, len(exp))
        x[start:stop] = table.inputs(start, stop, None, np.empty((stop - start, width)))
    if table.goes_through_steps or not table.categories:
        return x
    numbers = [column for column in range(width) if column not in table.categories]
    flags = [_flags(x[:, column]) for column in table.categories]
    return np.column_stack([x[:, numbers], *flags])


def _flags(codes: Floats) -> Floats:
    values, count = np.unique(codes, return_counts=True)
    frequent = values[np.argsort(-count, kind="stable")[:_MOST_CATEGORIES]]
    return np.asarray(codes[:, None] == frequent, dtype=np.float64)


def principal(x: Floats) -> tuple[Floats, Floats]:
    """The first two principal components of standardised columns, (n, 2), and their parts of the variance."""
    z = x - x.mean(axis=0)
    spread = z.std(axis=0)
    # What is constant but for rounding stays so
    z = np.divide(z, spread, out=np.zeros_like(z), where=spread > 1e-12 * np.abs(x).max(axis=0))
    total = float((z**2).sum())
    place, part = np.zeros((len(x), 2)), np.zeros(2)
    n = min(2, *z.shape)
    if total:
        u, s, _ = randomized_svd(z, n_components=n, n_oversamples=30, random_state=0)
        place[:, :n], part[:n] = u * s, s**2 / total
    return place, part


def _draw_points(ax: Axes, exp: Explained, place: Floats, drawn: Any, near: Any) -> None:
    codes = exp._cluster[drawn]
    size = float(np.clip(9000 / max(1, len(drawn)), 9, 34))
    middles = []
    for code in np.unique(codes).tolist():
        label = exp.labels[code]
        colour, marker = style.cluster_style(code, is_noise(label))
        at = place[codes == code]
        name = f"{cluster_name(label)} ({(exp._cluster == code).sum():,})"
        edge: dict[str, Any] = {} if marker == "x" else {"edgecolors": "white", "linewidths": 0.4}
        ax.scatter(
            at[:, 0], at[:, 1], s=size, c=colour, marker=marker, label=name, alpha=0.85, zorder=2, **edge
        )
        middles.append((label, np.median(at, axis=0), len(at)))
    if (n_near := int(exp._borderline.sum())) > 0:
        _outline(ax, place[near], size, n_near)
    _name_clusters(ax, sorted(middles, key=lambda middle: -middle[2])[:_MOST_NAMES])
    handles, names = ax.get_legend_handles_labels()
    if len(middles) > _LEGEND:
        handles, names = handles[len(middles) :], names[len(middles) :]
    if names:
        style.legend(ax, handles=handles, labels=names)


def _name_clusters(ax: Axes, middles: list[tuple[Any, Floats, int]]) -> None:
    """The label of every cluster in its middle, or as near as others leave room."""
    box = {"boxstyle": "round,pad=0.2", "facecolor": "white", "edgecolor": "#888888", "alpha": 0.85}
    names = [style.cut(str(label), 14) for label, _, _ in middles]
    low, high = np.array(ax.get_xlim()), np.array(ax.get_ylim())
    corner, span = np.array([low[0], high[0]]), np.array([np.ptp(low), np.ptp(high)])
    extent = ax.get_window_extent()
    letter = 0.5 * style.SMALL * ax.figure.dpi / 72  # pixels
    size = np.array([[letter * (len(name) + 2.5), letter * 3.8] for name in names])
    size /= [extent.width, extent.height]
    places = apart((np.array([place for _, place, _ in middles]) - corner) / span, size) * span + corner
    for name, (x, y) in zip(names, places, strict=True):
        style.write(ax, x, y, name, ha="center", va="center", color="black", bbox=box, zorder=5)


def apart(centres: Floats, size: Floats, rounds: int = 60) -> Floats:
    """Boxes, (n, 2) centres and sizes, pushed from each other until none overlap; some rounds at most."""
    centres = centres.copy()
    order = np.arange(len(centres))
    later = np.sign(order[:, None] - order[None])[..., None]
    for _ in range(rounds):
        gap = centres[:, None] - centres[None]
        overlap = (size[:, None] + size[None]) / 2 - np.abs(gap)
        both = np.asarray((overlap > 0).all(axis=2)) & (later[..., 0] != 0)
        if not both.any():
            break
        # Along the axis where less is to go; of two at the same place, the later one goes up
        side = np.where(gap == 0, later, np.sign(gap)) * (overlap.argmin(axis=2)[..., None] == np.arange(2))
        centres += (0.26 * overlap * side * both[..., None]).sum(axis=1)
    return centres


def _outline(ax: Axes, place: Floats, size: float, n_all: int) -> None:
    """A ring around every borderline row, seen without colours too."""
    colour = ax.xaxis.label.get_color()
    ring: dict[str, Any] = {"facecolors": "none", "edgecolors": colour, "linewidths": 1.1, "zorder": 4}
    ax.scatter(place[:, 0], place[:, 1], s=3.2 * size, marker="o", label=f"borderline ({n_all:,})", **ring)
