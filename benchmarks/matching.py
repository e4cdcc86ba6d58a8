"""Match heat maps with the segments of an image: are clusters the objects that people see?"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import linear_sum_assignment

from whycluster.core.arrays import Codes, Floats
from whycluster.core.errors import InvalidInputError
from whycluster.data import display

Masks: TypeAlias = NDArray[np.bool_]

_LISTED = 4  # pairs in the repr


@dataclass(frozen=True, eq=False, repr=False)
class Matching:
    """Pairs of heat maps and masks with the largest possible sum of cosines.

    Attributes
    ----------
    score : the mean cosine of the pairs, from -1 to 1; it is 1 only if every matched heat map has a constant
        positive value inside its mask and 0 outside
    pairs : (min(K, M), 2) the heat map and the mask of each pair, in the order of the heat maps
    cosine : (K, M) the cosine of every heat map with every mask
    """

    score: float
    pairs: Codes
    cosine: Floats

    def __repr__(self) -> str:
        n_maps, n_masks = self.cosine.shape
        pairs = [f"{k} with {m} ({self.cosine[k, m]:.2f})" for k, m in self.pairs[:_LISTED].tolist()]
        more = ", ..." if len(self.pairs) > _LISTED else ""
        counts = f"{display.count(n_maps, 'heat map')} and {display.count(n_masks, 'mask')}"
        return f"<Matching: score {self.score:.3f}, {counts}: {', '.join(pairs)}{more}>"


def match(heatmaps: Any, masks: Any) -> Matching:
    """Measure how well heat maps of an image cover its segments: the score S of the paper's last showcase.

    A maximum-weight matching (Hungarian algorithm) pairs each heat map with one mask. The weight is the
    cosine of the heat map r and the mask m, which is 1 inside and 0 outside, over all pixels p:
    sum_p r_p m_p / (|r| |m|). S is the mean cosine of the pairs.

    Parameters
    ----------
    heatmaps : (K, H, W) relevance of the pixels, of either sign. The scale of a heat map does not matter. A
        heat map of zeros has the cosine 0 with every mask
    masks : (M, H, W) booleans, one mask for each segment, which may overlap; or (H, W) a map of integers, in
        which each integer, including the background, is a segment. The masks then have the order of the
        integers. If some pixels belong to no segment, such as borders marked 255, pass masks of the others

    Returns
    -------
    Matching

    Notes
    -----
    If the numbers of masks and heat maps differ, there are min(K, M) pairs, and the rest does not count.
    Pairs with a negative cosine count.
    """
    maps, segments = _read_heatmaps(heatmaps), _read_masks(masks)
    _check_sizes(maps, tuple(np.shape(masks)))
    cosine = _cosines(maps, segments)
    pairs = np.stack(linear_sum_assignment(cosine, maximize=True), axis=1).astype(np.intp)
    score = float(cosine[pairs[:, 0], pairs[:, 1]].mean())
    cosine.flags.writeable = pairs.flags.writeable = False
    return Matching(score, pairs, cosine)


def _cosines(maps: Floats, segments: Masks) -> Floats:
    """Return the cosine of every heat map with every mask, (K, M)."""
    peak = np.abs(maps).max(axis=(1, 2), keepdims=True)
    maps = maps / np.where(peak > 0.0, peak, 1.0)  # squares of the values neither overflow nor underflow
    length = np.sqrt((maps**2).sum(axis=(1, 2)))
    length[length == 0.0] = 1.0
    # Mask by mask: a matrix product would need all masks as floats, eight times their memory.
    inside = np.stack([maps[:, mask].sum(axis=1) / np.sqrt(mask.sum()) for mask in segments], axis=1)
    return np.asarray(np.clip(inside / length[:, None], -1.0, 1.0))


def _read_heatmaps(given: Any) -> Floats:
    values = _as_array(given, "heatmaps", "(K, H, W)")
    if values.ndim != 3 or not values.size:
        alone = " For a single heat map, pass heatmaps[None]." if values.ndim == 2 and values.size else ""
        raise InvalidInputError(
            "match: heatmaps must have shape (K, H, W), with at least one heat map of at least one pixel; "
            f"got {values.shape}.{alone}"
        )
    maps = values.astype(np.float64)
    bad = np.argwhere(~np.isfinite(maps))
    if len(bad):
        k, row, column = bad[0].tolist()
        raise InvalidInputError(
            f"match: heatmaps must be finite; heat map {k} has {maps[k, row, column]} in row {row}, column "
            f"{column} ({len(bad)} in all)."
        )
    return maps


def _read_masks(given: Any) -> Masks:
    """Convert masks or a map of segments to (M, H, W) booleans."""
    values = _as_array(given, "masks", "(M, H, W), or (H, W) for a map of segments")
    if values.ndim not in (2, 3) or not values.size:
        raise InvalidInputError(
            "match: masks must have shape (M, H, W), or (H, W) for a map of segments, with at least one mask "
            f"of at least one pixel; got {values.shape}."
        )
    return _masks_of(values) if values.ndim == 2 else _as_masks(values)


def _masks_of(labels: NDArray[Any]) -> Masks:
    """Return one mask for each integer of a map of segments, in ascending order."""
    if labels.dtype.kind == "b":
        raise InvalidInputError(
            "match: a map of segments must hold integers; got booleans. For a single mask pass masks[None], "
            "for a mask and its background masks.astype(int)."
        )
    bad = np.argwhere(~(np.isfinite(labels) & (labels == np.rint(labels))))
    if len(bad):
        row, column = bad[0].tolist()
        raise InvalidInputError(
            f"match: a map of segments must hold integers; row {row}, column {column} is "
            f"{labels[row, column]} ({len(bad)} in all). Resize maps by nearest neighbors."
        )
    return np.asarray(labels == np.unique(labels)[:, None, None])


def _as_masks(values: NDArray[Any]) -> Masks:
    segments = np.asarray(values == 1)
    if not (segments | (values == 0)).all():
        other = values[~(segments | (values == 0))][0]
        raise InvalidInputError(
            f"match: masks must hold booleans, or 0 and 1; got {other}. Convert them, such as masks > 0."
        )
    empty = np.flatnonzero(~segments.any(axis=(1, 2)))
    if len(empty):
        raise InvalidInputError(
            f"match: every mask must have a pixel; mask {empty[0]} has none ({len(empty)} of {len(segments)} "
            "have none). Drop such masks."
        )
    return segments


def _check_sizes(maps: Floats, shape: tuple[int, ...]) -> None:
    """Raise unless heat maps and masks have the same size; how to resize them is up to the caller."""
    (height, width), (h, w) = maps.shape[1:], shape[-2:]
    if (height, width) != (h, w):
        factors = f"({'1, ' * (len(shape) - 2)}{height} / {h}, {width} / {w})"
        raise InvalidInputError(
            f"match: heatmaps and masks must have the same height and width; got {maps.shape} and {shape}. "
            f"Resize the masks, such as scipy.ndimage.zoom(masks, {factors}, order=0, grid_mode=True, "
            'mode="nearest").'
        )


def _as_array(given: Any, name: str, shape: str) -> NDArray[Any]:
    """Convert to an array of real numbers or booleans; raise if that would need a guess."""
    try:
        values = np.asarray(given)
        if values.dtype.kind in "fiub" and not np.ma.is_masked(given):
            return values
        what = "masked values" if np.ma.is_masked(given) else str(values.dtype)
    except (TypeError, ValueError, RuntimeError) as error:  # rows of different sizes; tensors with a gradient
        what = str(error)
    raise InvalidInputError(
        f"match: {name} must be an array of real numbers of shape {shape}; got {type(given).__name__} "
        f"({what})."
    )
