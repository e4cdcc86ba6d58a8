"""``exp.plot``: the plots of an explanation."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, overload

import numpy as np
from numpy.typing import NDArray

from whycluster.plots import bars, maps, matrices, swarm

if TYPE_CHECKING:
    from matplotlib.axes import Axes


class Plots:
    """Pictures of an explanation; each draws into ``ax``, or a new figure, and returns the Axes.

    A new figure is not pyplot's. In a notebook ``ax.figure`` shows it, ``ax.figure.savefig("why.png")``
    writes it.
    """

    def __init__(self, exp: Any) -> None:
        self._exp = exp

    def row(self, row: int = 0, n_features: int = 10, ax: Axes | None = None) -> Axes:
        """One row as signed bars, with the evidence as their sum; see `whycluster.plots.row`."""
        return bars.row(self._exp, row, n_features, ax)

    @overload
    def clusters(self, cluster: None = None, n_features: int = 6, ax: Any = None) -> NDArray[np.object_]: ...

    @overload
    def clusters(self, cluster: Any, n_features: int = 6, ax: Axes | None = None) -> Axes: ...

    def clusters(self, cluster: Any = None, n_features: int = 6, ax: Any = None) -> Any:
        """What makes each cluster, or one, as bars; see `whycluster.plots.clusters`."""
        return bars.clusters(self._exp, cluster, n_features, ax)

    def heatmap(self, n_features: int = 20, ax: Axes | None = None) -> Axes:
        """Clusters and features in a grid; see `whycluster.plots.heatmap`."""
        return matrices.heatmap(self._exp, n_features, ax)

    def beeswarm(self, cluster: Any = None, n_features: int = 12, ax: Axes | None = None) -> Axes:
        """Every row as a point for each feature; see `whycluster.plots.beeswarm`."""
        return swarm.beeswarm(self._exp, cluster, n_features, ax)

    def competition(self, ax: Axes | None = None) -> Axes:
        """Who competes with whom; see `whycluster.plots.competition`."""
        return matrices.competition(self._exp, ax)

    def map(self, ax: Axes | None = None) -> Axes:
        """All rows in a plane; see `whycluster.plots.map`."""
        return maps.draw_map(self._exp, ax)

    def __repr__(self) -> str:
        names = ", ".join(f"{name}()" for name in dir(self) if not name.startswith("_"))
        return f"<{type(self).__name__} of {self._exp!r}: {names}>"
