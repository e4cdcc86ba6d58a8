"""Heat maps of images, beside these."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from whycluster.core.errors import InvalidInputError
from whycluster.data.labels import cluster_name
from whycluster.deep.images import displayable_images
from whycluster.plots.accessor import Plots
from whycluster.plots.heatmaps import draw_grid, draw_heatmap
from whycluster.plots.kinds import check
from whycluster.plots.style import check_axes

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


def images(
    exp: Any,
    rows: int | Sequence[int] = (0,),
    *,
    split: bool = False,
    ax: Axes | None = None,
    **options: Any,
) -> Axes | NDArray[np.object_]:
    """Images and their heat maps, a line for each: red speaks for the cluster, blue against it.

    Each line has its own scale.

    Parameters
    ----------
    exp : explanation of images
    rows : which, by position
    split : two heat maps for each image, of what speaks for the cluster and of what speaks against it, which
        black and white can show
    ax : Axes to draw the heat map of a single image in; by default those of a new figure
    options : those of `whycluster.plots.draw_grid`; with ``ax``, its ``pool`` and ``quantile``

    Returns
    -------
    array of Axes, (lines, columns), or ``ax``
    """
    if ax is None:
        figure = grid_of(exp, rows, split, "plot.images", **options)
        n_lines = len(_positions(rows))
        return np.array(figure.axes, dtype=object).reshape(n_lines, -1)
    check_axes(ax, "plot.images")
    if split or len(_positions(rows)) != 1:
        raise InvalidInputError(
            "plot.images: ax has room for one heat map, of one row and without split. Leave ax out."
        )
    draw_heatmap(ax, _some(exp, rows, "plot.images").heatmaps[0], **options)
    return ax


def grid_of(exp: Any, rows: int | Sequence[int], split: bool, where: str, **options: Any) -> Figure:
    """The whole figure."""
    some = _some(exp, rows, where)
    options.setdefault(
        "names", [f"{some.row_name(i)}: {cluster_name(c)}" for i, c in enumerate(some.cluster)]
    )
    options.setdefault("images", displayable_images(some.data))
    maps = some.heatmaps[:, None]
    if split:
        maps = np.concatenate([np.maximum(maps, 0), np.minimum(maps, 0)], axis=1)
        options.setdefault("titles", ["speaks for", "against"])
    return draw_grid(maps, **options)


def spatial_grid(exp: Any, **options: Any) -> Figure:
    """Draw an explanation of the places of images: per input the image, then a heat map for each cluster."""
    options.setdefault("titles", [cluster_name(label) for label in exp.labels])
    options.setdefault("images", displayable_images(exp.data))
    return draw_grid(list(exp.heatmaps), **options)


def _positions(rows: int | Sequence[int]) -> list[int]:
    return [int(rows)] if isinstance(rows, (int, np.integer)) else list(rows)


def _some(exp: Any, rows: int | Sequence[int], where: str) -> Any:
    """The explanations of some images."""
    check(exp, where, "_inputs", "heat maps of images")
    if not _positions(rows):
        raise InvalidInputError(f"{where}: rows must be some positions; got none.")
    some = exp[_positions(rows)]
    if some.heatmaps.ndim != 3:
        raise InvalidInputError(
            f"{where}: relevance must be of images, (n, channels, height, width); it has shape "
            f"{exp.relevance.shape}. Look at it with tell() or to_frame()."
        )
    return some


class DeepPlots(Plots):
    """Pictures of the explanation of a deep clustering; called, it draws images as a whole figure."""

    def __call__(self, rows: int | Sequence[int] = (0,), **options: Any) -> Figure:
        """Some inputs, a line each: the image, and its heat map beside it.

        Each line has its own scale. ``options`` are those of `whycluster.plots.draw_grid`.
        """
        return grid_of(self._exp, rows, False, "plot", **options)

    def images(
        self,
        rows: int | Sequence[int] = (0,),
        *,
        split: bool = False,
        ax: Axes | None = None,
        **options: Any,
    ) -> Axes | NDArray[np.object_]:
        """Images and their heat maps; see `whycluster.plots.images`."""
        return images(self._exp, rows, split=split, ax=ax, **options)
