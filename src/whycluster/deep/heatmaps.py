"""Heat maps of pixels, side by side for all clusters."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from whycluster.core.arrays import Floats
from whycluster.core.errors import InvalidInputError
from whycluster.data.arrays import as_array, is_real
from whycluster.data.validation import check_whole
from whycluster.deep.images import read_images
from whycluster.plots.style import as_it_is, new_figure

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_WHERE = "draw_grid"
_FONT = 8  # points
_INCHES_FOR_TITLES = 0.25
_COLOURS = "bwr"  # blue, white, red


def draw_grid(
    rows: Iterable[Any],
    *,
    titles: Sequence[str] | None = None,
    images: Sequence[Any] | None = None,
    names: Sequence[str] | None = None,
    pool: int = 1,
    quantile: float = 0.995,
    cell: float = 1.2,
) -> Figure:
    """A grid of heat maps: a row for each image or block, a column for each cluster.

    Red is positive relevance, blue is negative, white is 0. Each row has one scale, so that its heat maps can
    be compared: the darkest colours stand for the ``quantile`` of abs(R) in that row, after pooling, and for
    all that is beyond it.

    Parameters
    ----------
    rows : for each row its heat maps, arrays of shape (H, W), or one array of shape (clusters, H, W)
    titles : what stands above each column of heat maps; None for nothing
    images : for each row the image that is shown first, bytes of shape (H, W, 3) or floats from 0 to 1 of
        shape (3, H, W); None for no such column
    names : what stands to the left of each row; None for nothing
    pool : relevance is added up over blocks of so many pixels a side, so that fine lines can be seen
    quantile : the part of the pixels that the scale has room for, above 0; 1 for all
    cell : inches of a side

    Returns
    -------
    matplotlib.figure.Figure
        not of pyplot, so that nothing else is changed by it; write it with its ``savefig``

    Examples
    --------
    >>> import numpy as np, whycluster as wc
    >>> maps = np.random.default_rng(0).normal(size=(2, 8, 64, 64))
    >>> figure = wc.deep.draw_grid(maps, images=np.ones((2, 3, 64, 64)), names=["block 3", "block 4"])
    >>> figure.savefig("heatmaps.png", dpi=200)  # doctest: +SKIP
    """
    check_whole(pool, 1, _WHERE, "pool")
    _check_sizes(quantile, cell)
    maps = [_checked_maps(row, i, int(pool)) for i, row in enumerate(rows)]
    if not maps:
        raise InvalidInputError(f"{_WHERE}: rows must have a row of heat maps; got none.")
    n_columns = max(len(row) for row in maps)
    _check_count(titles, n_columns, "titles", "column of heat maps")
    _check_count(names, len(maps), "names", "row")
    _check_count(images, len(maps), "images", "row")
    pictures = None if images is None else [_picture(image) for image in images]
    figure, axes = _empty_grid(len(maps), n_columns + (pictures is not None), cell)
    for i, line in enumerate(axes):
        if pictures is not None:
            line[0].imshow(pictures[i], interpolation="antialiased")
        _draw_maps(line[-n_columns:], maps[i], quantile)
        if names is not None:
            line[0].set_ylabel(str(names[i]), fontsize=_FONT, **as_it_is())
    for place, title in zip(axes[0][-n_columns:], titles or [], strict=False):
        place.set_title(str(title), fontsize=_FONT, pad=2, **as_it_is())
    return figure


def draw_heatmap(ax: Axes, heat: Any, *, pool: int = 1, quantile: float = 0.995) -> None:
    """One heat map in the Axes of a user, as in the grid."""
    check_whole(pool, 1, _WHERE, "pool")
    _check_sizes(quantile, 1.0)
    _draw_maps([ax], _checked_maps([heat], 0, int(pool)), quantile)
    ax.set(xticks=[], yticks=[])


def _check_sizes(quantile: Any, cell: Any) -> None:
    if not is_real(quantile) or not 0 < quantile <= 1:
        raise InvalidInputError(f"{_WHERE}: quantile must be above 0 and at most 1; got {quantile!r}.")
    if not is_real(cell) or not 0 < cell < float("inf"):
        raise InvalidInputError(f"{_WHERE}: cell must be a positive number of inches; got {cell!r}.")


def _check_count(given: Sequence[Any] | None, expected: int, name: str, what: str) -> None:
    if given is not None and len(given) != expected:
        raise InvalidInputError(
            f"{_WHERE}: {name} must have one entry for each {what}, {expected}; got {len(given)}."
        )


def _checked_maps(row: Any, place: int, pool: int) -> list[Floats]:
    """The heat maps of a row, pooled."""
    maps = []
    for k, values in enumerate(row if hasattr(row, "__iter__") else [row]):
        heat = as_array(values)
        if heat.ndim != 2 or 0 in heat.shape or heat.dtype.kind not in "fiu":
            raise InvalidInputError(
                f"{_WHERE}: heat maps must be numbers of shape (H, W); number {k} of row {place} is "
                f"{heat.dtype} of shape {heat.shape}. Give a list of heat maps for each row."
            )
        if not np.isfinite(heat).all():
            raise InvalidInputError(f"{_WHERE}: heat maps must be finite; number {k} of row {place} is not.")
        maps.append(_pooled(heat.astype(np.float64), pool))
    if not maps:
        raise InvalidInputError(f"{_WHERE}: each row must have a heat map; row {place} has none.")
    return maps


def _pooled(heat: Floats, pool: int) -> Floats:
    """Sums over blocks of pixels; those at the right and at the bottom may be smaller."""
    for axis in (0, 1):
        heat = np.add.reduceat(heat, np.arange(0, heat.shape[axis], pool), axis=axis)
    return heat


def _picture(image: Any) -> Any:
    return read_images(image, _WHERE)[0].transpose(1, 2, 0)


def _empty_grid(n_rows: int, n_columns: int, cell: float) -> tuple[Figure, list[list[Axes]]]:
    """A figure with axes that show no ticks and no frame."""
    figure = new_figure(cell * n_columns, cell * n_rows + _INCHES_FOR_TITLES)
    figure.set_layout_engine("constrained", compress=True, w_pad=0.02, h_pad=0.02, wspace=0.02, hspace=0.02)
    axes = figure.subplots(n_rows, n_columns, squeeze=False)
    for place in axes.flat:
        place.set(xticks=[], yticks=[])
        place.spines[:].set_visible(False)
    return figure, axes.tolist()


def _draw_maps(places: Sequence[Axes], maps: Sequence[Floats], quantile: float) -> None:
    """One row, with one scale."""
    sizes = np.abs(np.concatenate([heat.ravel() for heat in maps]))
    # Where nearly all is 0, so is the quantile
    limit = float(np.quantile(sizes, quantile)) or float(sizes.max()) or 1.0
    for place, heat in zip(places, maps, strict=False):
        place.imshow(heat, cmap=_COLOURS, vmin=-limit, vmax=limit, interpolation="antialiased")
        place.spines[:].set(visible=True, linewidth=0.3, color="0.7")  # a white map has a border, too
