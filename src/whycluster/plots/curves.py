"""Draw the flipping curves of an evaluation and the choice of the number of clusters."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from whycluster.core.arrays import Floats
from whycluster.core.errors import InvalidInputError
from whycluster.plots import style

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_LONGEST_NAME = 40  # characters
_MARKERS = 10  # per curve


class Curves(Protocol):
    """The part of a `whycluster.evaluation.flipping_auc` result that is drawn."""

    @property
    def curves(self) -> Floats: ...  # noqa: D102  # see `Flipping`
    @property
    def curve(self) -> Floats: ...  # noqa: D102  # see `Flipping`
    @property
    def auc(self) -> float: ...  # noqa: D102  # see `Flipping`


def flipping(result: Any, ax: Axes | None = None) -> Axes:
    """Draw flipping curves.

    A curve shows how many rows are in their cluster once their most relevant features are known.

    Parameters
    ----------
    result : the result of ``evaluation.compare`` or ``evaluation.flipping_auc``, or a dict from names to
        results of ``flipping_auc``. The legend lists the curves in order of decreasing area.
    ax : Axes to draw into and return; by default, a new figure is created
    """
    where = "plots.flipping"
    named = _read(result, where)
    ax = style.open_axes(ax, where, 7.4, 4.0)
    for rank, name in enumerate(sorted(named, key=lambda name: -named[name].auc)):
        found = named[name]
        known = np.linspace(0.0, 100.0, found.curves.shape[1])
        color, marker = style.cluster_style(rank, False)
        ax.plot(
            known,
            100 * found.curve,
            color=color,
            marker=marker,
            markersize=4,
            markevery=max(1, len(known) // _MARKERS),
            linestyle=style.LINE_STYLES[rank % len(style.LINE_STYLES)],
            linewidth=1.4,
            clip_on=False,
            label=f"{style.cut(name, _LONGEST_NAME)}: {found.auc:.1f}".lstrip(": "),
        )
    _frame(ax, "known features, most relevant first (%)", "rows in their cluster (%)")
    ax.set(xlim=(0, 100), ylim=(None, 100))
    style.title(ax, "flipping curves: the earlier they rise, the more faithful")
    style.legend(ax, title="area under the curve", title_fontsize=style.SMALL, alignment="left")
    return ax


def elbow(pipeline: Any, ax: Axes | None = None) -> Axes:
    """Draw the inertia for each number of clusters and mark the chosen number.

    Parameters
    ----------
    pipeline : a pipeline from ``tabular.pipeline(frame)`` that chose the number of clusters itself
    ax : Axes to draw into and return; by default, a new figure is created
    """
    where = "plots.elbow"
    inertias = getattr(pipeline, "inertias_", None)
    if not isinstance(inertias, Mapping):
        raise InvalidInputError(
            f"{where}: pipeline must come from tabular.pipeline(frame); got {type(pipeline).__name__}."
        )
    if not inertias:
        raise InvalidInputError(
            f"{where}: the pipeline must have chosen the number of clusters itself; n_clusters or model was "
            "given. Call tabular.pipeline without n_clusters and model."
        )
    sizes, values = np.array(list(inertias)), np.array(list(inertias.values()))
    chosen = int(pipeline[-1].n_clusters)
    ax = style.open_axes(ax, where, 5.6, 3.4)
    ax.plot(sizes, values / values[0], color=style.FOR, marker="o", markersize=4, linewidth=1.4)
    at = inertias[chosen] / values[0]
    ax.axvline(chosen, color=style.GRAY, linestyle="--", linewidth=0.9, zorder=1)
    ax.scatter([chosen], [at], s=110, facecolors="none", edgecolors=style.AGAINST, linewidths=1.8, zorder=3)
    ax.annotate(
        f"{chosen} clusters chosen", (chosen, at), (9, 8), textcoords="offset points", fontsize=style.FONT
    )
    ax.locator_params(axis="x", integer=True)
    _frame(ax, "number of clusters", "inertia, relative to one cluster")
    ax.set_ylim(0.0, 1.05)
    style.title(ax, "how many clusters?")
    return ax


def _read(result: Any, where: str) -> dict[str, Curves]:
    """Return the curves by name."""
    named = getattr(result, "flipping", result)
    if hasattr(named, "curves"):
        named = {"": named}
    if not isinstance(named, Mapping) or not named or not all(hasattr(v, "curves") for v in named.values()):
        raise InvalidInputError(
            f"{where}: result must come from evaluation.compare or evaluation.flipping_auc, or be a dict of "
            f"flipping_auc results; got {type(result).__name__}."
        )
    return {str(name): found for name, found in named.items()}


def _frame(ax: Axes, x: str, y: str) -> None:
    ax.set_xlabel(x, fontsize=style.SMALL)
    ax.set_ylabel(y, fontsize=style.SMALL)
    ax.tick_params(labelsize=style.SMALL)
    ax.grid(color=style.PALE, linewidth=0.5)
    style.bare(ax, "left", "bottom")
