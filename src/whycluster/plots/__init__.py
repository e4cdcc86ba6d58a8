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
    from whycluster.plots.image_plots import images

__all__ = [
    "Plots",
    "beeswarm",
    "clusters",
    "competition",
    "elbow",
    "flipping",
    "heatmap",
    "images",
    "map",
    "row",
]


def __getattr__(name: str) -> Any:
    """What needs torch, when it is asked for."""
    if name == "images":
        import importlib

        return importlib.import_module("whycluster.plots.image_plots").images
    raise AttributeError(f"module 'whycluster.plots' has no attribute {name!r}")
