"""Plots of explanations and results with matplotlib.

Most functions draw into ``ax`` and return it. ``exp.plot.row(0)`` is the same as ``plots.row(exp, 0)``.
Without ``ax``, these functions create a new figure, which is not registered with pyplot; save it with
``ax.figure.savefig("why.png")``. `clusters` and `images` return an array of axes if they draw several panels.
`draw_grid` returns a figure.

Modules, in reading order: `accessor` (``exp.plot``), `checks`, `style` and `figures`; then the plots: `bars`
(rows and clusters), `matrices` (heat map and competition), `swarm`, `time_series`, `maps`, `curves`, and for
images `image_plots` and `heatmaps`.
"""

from typing import TYPE_CHECKING, Any

from whycluster.plots.accessor import Plots
from whycluster.plots.bars import clusters, row
from whycluster.plots.curves import elbow, flipping
from whycluster.plots.maps import draw_map as map  # noqa: A004  # the name of exp.plot.map
from whycluster.plots.matrices import competition, heatmap
from whycluster.plots.swarm import beeswarm
from whycluster.plots.time_series import series

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
    "series",
]


def __getattr__(name: str) -> Any:
    """Load the plots that need torch only when they are used."""
    if name in ("draw_grid", "images"):
        from whycluster.plots import heatmaps, image_plots

        return heatmaps.draw_grid if name == "draw_grid" else image_plots.images
    raise AttributeError(f"module 'whycluster.plots' has no attribute {name!r}")
