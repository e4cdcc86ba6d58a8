"""``exp.plot``, which provides the plots of an explanation as methods."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, overload

import numpy as np
from numpy.typing import NDArray

from whycluster.plots import bars, maps, matrices, swarm, time_series

if TYPE_CHECKING:
    from matplotlib.axes import Axes


class Plots:
    """The plots of an explanation. Each method draws into ``ax`` or a new figure and returns the Axes.

    A new figure is not registered with pyplot. Show it in a notebook with ``ax.figure``; save it with
    ``ax.figure.savefig("why.png")``.
    """

    def __init__(self, exp: Any) -> None:
        self._exp = exp

    def row(self, row: int = 0, n_features: int = 10, ax: Axes | None = None) -> Axes:
        """Draw the relevance of one row as bars that add up to the evidence.

        Parameters
        ----------
        row, n_features, ax : as for `whycluster.plots.row`
        """
        return bars.row(self._exp, row, n_features, ax)

    @overload
    def clusters(self, cluster: None = None, n_features: int = 6, ax: Any = None) -> NDArray[np.object_]: ...

    @overload
    def clusters(self, cluster: Any, n_features: int = 6, ax: Axes | None = None) -> Axes: ...

    def clusters(self, cluster: Any = None, n_features: int = 6, ax: Any = None) -> Any:
        """Draw the features that define one cluster or each cluster.

        Parameters
        ----------
        cluster, n_features, ax : as for `whycluster.plots.clusters`
        """
        return bars.clusters(self._exp, cluster, n_features, ax)

    def heatmap(self, n_features: int = 20, ax: Axes | None = None) -> Axes:
        """Draw the share of each feature in each cluster.

        Parameters
        ----------
        n_features, ax : as for `whycluster.plots.heatmap`
        """
        return matrices.heatmap(self._exp, n_features, ax)

    def beeswarm(self, cluster: Any = None, n_features: int = 12, ax: Axes | None = None) -> Axes:
        """Draw the relevance of every row as a point per feature.

        Parameters
        ----------
        cluster, n_features, ax : as for `whycluster.plots.beeswarm`
        """
        return swarm.beeswarm(self._exp, cluster, n_features, ax)

    def competition(self, ax: Axes | None = None) -> Axes:
        """Draw which clusters compete.

        Parameters
        ----------
        ax : as for `whycluster.plots.competition`
        """
        return matrices.competition(self._exp, ax)

    def map(self, ax: Axes | None = None) -> Axes:
        """Draw all rows in the plane of two principal components.

        Parameters
        ----------
        ax : as for `whycluster.plots.map`
        """
        return maps.draw_map(self._exp, ax)

    def series(self, row: int = 0, channel: int = 0, n_channels: int = 1, ax: Axes | None = None) -> Axes:
        """Draw one channel of a time series as a line, with the relevance of each time step as bars.

        Parameters
        ----------
        row, channel, n_channels, ax : as for `whycluster.plots.series`
        """
        return time_series.series(self._exp, row, channel, n_channels, ax)

    def __repr__(self) -> str:
        names = ", ".join(f"{name}()" for name in dir(self) if not name.startswith("_"))
        return f"<{type(self).__name__} of {self._exp!r}: {names}>"
