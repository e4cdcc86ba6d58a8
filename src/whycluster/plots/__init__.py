"""Plots with matplotlib: each takes an explanation, or a result, and Axes to draw in, and returns the Axes.

``exp.plot.row(0)`` is ``plots.row(exp, 0)``. Without ``ax`` a new figure is made, ``ax.figure``, that pyplot
does not know: write it with ``ax.figure.savefig("why.png")``.
"""

from typing import TYPE_CHECKING, Any

from whycluster.plots.accessor import Plots
from whycluster.plots.bars import clusters, row
from whycluster.plots.curves import elbow, flipping
from whycluster.plots.maps import draw_map as map  # noqa: A004  # as exp.plot.map
from whycluster.plots.matrices import competition, heatmap
from whycluster.plots.swarm import beeswarm

if TYPE_CHECKING:
    from whycluster.plots.heatmaps import draw_grid
    from whycluster.plots.image_plots import images

__all__ = [
    "Plots",
    "beeswarm",
    "clusters",
    "competition",
    "draw_grid",
    "elbow",
    "flipping",
    "heatmap",
    "images",
    "map",
    "row",
]


def __getattr__(name: str) -> Any:
    """Load the plots that need torch only when they are used."""
    if name in ("draw_grid", "images"):
        from whycluster.plots import heatmaps, image_plots

        return heatmaps.draw_grid if name == "draw_grid" else image_plots.images
    raise AttributeError(f"module 'whycluster.plots' has no attribute {name!r}")
