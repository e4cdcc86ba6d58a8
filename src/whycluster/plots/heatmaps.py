"""Draw heat maps of images, as a grid with one row per image or as individual maps in the user's Axes."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from whycluster.core.arrays import Floats
from whycluster.core.errors import InvalidInputError
from whycluster.data.arrays import as_array_or_empty, is_real
from whycluster.data.validation import check_integer
from whycluster.deep.images import read_images
from whycluster.plots.style import new_figure, plain_text

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_WHERE = "draw_grid"
_FONT = 8  # points
_INCHES_FOR_TITLES = 0.25
_COLORMAP = "bwr"  # blue, white, red


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
    """Draw a grid of heat maps, with one row per image or block and one column per cluster.

    Red is positive relevance, blue is negative, and white is 0. The heat maps of a row share one color scale
    and can be compared. The darkest colors mark values at or above the ``quantile`` of abs(R) in that row,
    after pooling.

    Parameters
    ----------
    rows : the heat maps of each row, as a list of arrays of shape (H, W) or one array of shape (clusters, H,
        W)
    titles : the title of each column of heat maps, or None for no titles
    images : an image to show at the start of each row, as uint8 of shape (H, W, 3) or floats from 0 to 1 of
        shape (3, H, W); or None for no images
    names : the name of each row, shown to its left, or None for no names
    pool : the side length, in pixels, of the blocks over which relevance is summed; larger blocks make fine
        lines visible
    quantile : the fraction of pixels within the color scale, above 0 and at most 1
    cell : the side length of one heat map, in inches

    Returns
    -------
    matplotlib.figure.Figure
        a figure that is not registered with pyplot, whose state stays unchanged; save it with ``savefig``

    Examples
    --------
    >>> import numpy as np, whycluster as wc
    >>> maps = np.random.default_rng(0).normal(size=(2, 8, 64, 64))
    >>> figure = wc.plots.draw_grid(maps, images=np.ones((2, 3, 64, 64)), names=["block 3", "block 4"])
    >>> figure.savefig("heatmaps.png", dpi=200)  # doctest: +SKIP
    """
    check_integer(pool, 1, _WHERE, "pool")
    _check_sizes(quantile, cell)
    maps = [_read_maps(row, i, int(pool)) for i, row in enumerate(rows)]
    if not maps:
        raise InvalidInputError(f"{_WHERE}: rows must contain at least one row of heat maps; it is empty.")
    n_columns = max(len(row) for row in maps)
    _check_count(titles, n_columns, "titles", "column of heat maps")
    _check_count(names, len(maps), "names", "row")
    _check_count(images, len(maps), "images", "row")
    pictures = None if images is None else [_read_image(image) for image in images]
    figure, axes = _empty_grid(len(maps), n_columns + (pictures is not None), cell)
    for i, line in enumerate(axes):
        if pictures is not None:
            line[0].imshow(pictures[i], interpolation="antialiased")
        _draw_maps(line[-n_columns:], maps[i], quantile)
        if names is not None:
            line[0].set_ylabel(str(names[i]), fontsize=_FONT, **plain_text())
    for ax, title in zip(axes[0][-n_columns:], titles or [], strict=False):
        ax.set_title(str(title), fontsize=_FONT, pad=2, **plain_text())
    return figure


def draw_heatmap(ax: Axes, heat: Any, *, pool: int = 1, quantile: float = 0.995) -> None:
    """Draw one heat map in the user's Axes, with the same colors as in the grid."""
    check_integer(pool, 1, _WHERE, "pool")
    _check_sizes(quantile, 1.0)
    _draw_maps([ax], _read_maps([heat], 0, int(pool)), quantile)
    ax.set(xticks=[], yticks=[])


def _check_sizes(quantile: Any, cell: Any) -> None:
    if not is_real(quantile) or not 0 < quantile <= 1:
        raise InvalidInputError(f"{_WHERE}: quantile must be above 0 and at most 1; got {quantile!r}.")
    if not is_real(cell) or not 0 < cell < float("inf"):
        raise InvalidInputError(f"{_WHERE}: cell must be a positive number of inches; got {cell!r}.")


def _check_count(entries: Sequence[Any] | None, expected: int, name: str, noun: str) -> None:
    if entries is not None and len(entries) != expected:
        raise InvalidInputError(
            f"{_WHERE}: {name} must have one entry for each {noun}, {expected}; got {len(entries)}."
        )


def _read_maps(row: Any, number: int, pool: int) -> list[Floats]:
    """Check the heat maps of a row and return them pooled."""
    maps = []
    for index, values in enumerate(row if hasattr(row, "__iter__") else [row]):
        heat = as_array_or_empty(values)
        if heat.ndim != 2 or 0 in heat.shape or heat.dtype.kind not in "fiu":
            raise InvalidInputError(
                f"{_WHERE}: heat maps must be numeric arrays of shape (H, W); heat map {index} of row "
                f"{number} is {heat.dtype} of shape {heat.shape}. Pass a list of heat maps for each row."
            )
        if not np.isfinite(heat).all():
            raise InvalidInputError(
                f"{_WHERE}: heat maps must be finite; heat map {index} of row {number} contains NaN or "
                "infinite values."
            )
        maps.append(_sum_blocks(heat.astype(np.float64), pool))
    if not maps:
        raise InvalidInputError(
            f"{_WHERE}: each row must contain at least one heat map; row {number} contains none."
        )
    return maps


def _sum_blocks(heat: Floats, pool: int) -> Floats:
    """Sum over blocks of pixels. Blocks at the right and bottom edges may be smaller."""
    for axis in (0, 1):
        heat = np.add.reduceat(heat, np.arange(0, heat.shape[axis], pool), axis=axis)
    return heat


def _read_image(image: Any) -> Any:
    return read_images(image, _WHERE)[0].transpose(1, 2, 0)


def _empty_grid(n_rows: int, n_columns: int, cell: float) -> tuple[Figure, list[list[Axes]]]:
    """Create a figure whose axes have no ticks and no frame."""
    figure = new_figure(cell * n_columns, cell * n_rows + _INCHES_FOR_TITLES)
    figure.set_layout_engine("constrained", compress=True, w_pad=0.02, h_pad=0.02, wspace=0.02, hspace=0.02)
    axes = figure.subplots(n_rows, n_columns, squeeze=False)
    for ax in axes.flat:
        ax.set(xticks=[], yticks=[])
        ax.spines[:].set_visible(False)
    return figure, axes.tolist()


def _draw_maps(axes: Sequence[Axes], maps: Sequence[Floats], quantile: float) -> None:
    """Draw one row with a common color scale."""
    sizes = np.abs(np.concatenate([heat.ravel() for heat in maps]))
    # The quantile is 0 if nearly all values are 0
    limit = float(np.quantile(sizes, quantile)) or float(sizes.max()) or 1.0
    for ax, heat in zip(axes, maps, strict=False):
        ax.imshow(heat, cmap=_COLORMAP, vmin=-limit, vmax=limit, interpolation="antialiased")
        ax.spines[:].set(visible=True, linewidth=0.3, color="0.7")  # so that a white map has a border
