"""Draw images next to their heat maps."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from whycluster.core.errors import InvalidInputError
from whycluster.data.labels import cluster_name
from whycluster.deep.explanation import DeepExplanation, SpatialExplanation
from whycluster.deep.images import displayable_images
from whycluster.plots.accessor import Plots
from whycluster.plots.checks import check
from whycluster.plots.heatmaps import draw_grid, draw_heatmap
from whycluster.plots.style import check_axes

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


def images(
    exp: DeepExplanation,
    rows: int | Sequence[int] = (0,),
    *,
    split: bool = False,
    ax: Axes | None = None,
    **options: Any,
) -> Axes | NDArray[np.object_]:
    """Draw images next to their heat maps, with one row of the figure per image.

    Red is evidence for the cluster and blue is evidence against it. Each row of the figure has its own color
    scale.

    Parameters
    ----------
    exp : explanation of images
    rows : positions of the images
    split : whether to draw two heat maps per image, one for and one against the cluster, so that they are
        readable in black and white
    ax : Axes for the heat map of a single image; by default, a new figure is created
    options : options of `whycluster.plots.draw_grid`; with ``ax``, only ``pool`` and ``quantile`` apply

    Returns
    -------
    Axes
        An array of Axes of shape (images, columns), or ``ax`` if it is given.
    """
    if ax is None:
        figure = image_grid(exp, rows, split, "plot.images", **options)
        n_lines = len(_positions(rows))
        return np.array(figure.axes, dtype=object).reshape(n_lines, -1)
    check_axes(ax, "plot.images")
    if split or len(_positions(rows)) != 1:
        raise InvalidInputError(
            f"plot.images: with ax, rows must be one position and split must be False; got rows={rows!r} and "
            f"split={split!r}. Leave ax out."
        )
    draw_heatmap(ax, _select(exp, rows, "plot.images").heatmaps[0], **options)
    return ax


def image_grid(
    exp: DeepExplanation, rows: int | Sequence[int], split: bool, where: str, **options: Any
) -> Figure:
    """Draw images and their heat maps as a whole figure; see `images`."""
    some = _select(exp, rows, where)
    names = zip(some.names_of_rows(range(len(some))), some.cluster, strict=True)
    options.setdefault("names", [f"{name}: {cluster_name(cluster)}" for name, cluster in names])
    options.setdefault("images", displayable_images(some.data))
    maps = some.heatmaps[:, None]
    if split:
        maps = np.concatenate([np.maximum(maps, 0), np.minimum(maps, 0)], axis=1)
        options.setdefault("titles", ["for", "against"])
    return draw_grid(maps, **options)


def spatial_grid(exp: SpatialExplanation, **options: Any) -> Figure:
    """Draw each image, followed by one heat map per cluster of its locations."""
    options.setdefault("titles", [cluster_name(label) for label in exp.labels])
    options.setdefault("images", displayable_images(exp.data))
    return draw_grid(list(exp.heatmaps), **options)


def _positions(rows: int | Sequence[int]) -> list[int]:
    return [int(rows)] if isinstance(rows, (int, np.integer)) else list(rows)


def _select(exp: DeepExplanation, rows: int | Sequence[int], where: str) -> DeepExplanation:
    """Return the explanations of some images."""
    check(exp, where, DeepExplanation, "heat maps of images")
    if not _positions(rows):
        raise InvalidInputError(f"{where}: rows must contain at least one position; it is empty.")
    some = exp[_positions(rows)]
    if some.heatmaps.ndim != 3:
        raise InvalidInputError(
            f"{where}: relevance must have the shape of images, (n, channels, height, width); it has shape "
            f"{exp.relevance.shape}. Use describe() or to_frame() instead."
        )
    return some


class DeepPlots(Plots):
    """The plots for a deep clustering's explanation. Calling the object draws images as a whole figure."""

    _exp: DeepExplanation

    def __call__(self, rows: int | Sequence[int] = (0,), **options: Any) -> Figure:
        """Draw images next to their heat maps, with one row of the figure per image.

        Each row of the figure has its own color scale. ``options`` are passed to
        `whycluster.plots.draw_grid`.
        """
        return image_grid(self._exp, rows, False, "plot", **options)

    def images(
        self,
        rows: int | Sequence[int] = (0,),
        *,
        split: bool = False,
        ax: Axes | None = None,
        **options: Any,
    ) -> Axes | NDArray[np.object_]:
        """Draw images and their heat maps; see `whycluster.plots.images`."""
        return images(self._exp, rows, split=split, ax=ax, **options)
