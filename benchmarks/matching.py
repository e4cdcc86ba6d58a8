"""Heat maps against the segments of an image: are clusters the objects that a person sees?"""

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

_SHOWN = 4


@dataclass(frozen=True, eq=False, repr=False)
class Matching:
    """Heat maps and masks in pairs, such that the sum of their cosines is the largest there is.

    Attributes
    ----------
    score : the mean cosine of the pairs, from -1 to 1; 1 only where every matched heat map has one and the
        same positive value on its mask, and 0 beside it
    pairs : (min(K, M), 2) the heat map and the mask of each pair, in the order of the heat maps
    cosine : (K, M) of every heat map with every mask
    """

    score: float
    pairs: Codes
    cosine: Floats

    def __repr__(self) -> str:
        n_maps, n_masks = self.cosine.shape
        told = [f"{k} with {m} ({self.cosine[k, m]:.2f})" for k, m in self.pairs[:_SHOWN].tolist()]
        more = ", ..." if len(self.pairs) > _SHOWN else ""
        counts = f"{display.count(n_maps, 'heat map')} and {display.count(n_masks, 'mask')}"
        return f"<Matching: score {self.score:.3f}, {counts}: {', '.join(told)}{more}>"


def match(heatmaps: Any, masks: Any) -> Matching:
    """How well heat maps of an image cover its segments: the score S of the paper's last showcase.

    Each heat map is paired with one mask by a maximum-weight matching (Hungarian algorithm), where the weight
    is the cosine of the heat map r and the mask m, which is 1 inside and 0 outside, over all pixels p:
    sum_p r_p m_p / (|r| |m|). S is the mean cosine of the pairs.

    Parameters
    ----------
    heatmaps : (K, H, W) relevance of the pixels, of either sign; only its proportions count, and a heat map
        of zeros has the cosine 0 with every mask
    masks : (M, H, W) booleans, one mask for each segment, which may overlap; or (H, W) a map of whole
        numbers, in which the pixels of one number are a segment, the background too. Masks are in the order
        of the numbers then. Where some pixels are no segment, such as borders that are marked 255, give
        masks of the others

    Returns
    -------
    Matching

    Notes
    -----
    If there are not as many masks as heat maps, min(K, M) pairs are made, and what is left over does not
    count. All pairs that can be made are made, also if a cosine is negative.

    Examples
    --------
    >>> import numpy as np
    >>> from benchmarks.matching import match
    >>> segments = np.array([[0, 0, 1], [0, 2, 2]])
    >>> heatmaps = [[[0, 0, 0], [0, 3, 3]], [[2, 2, -1], [2, 0, 0]]]
    >>> match(heatmaps, segments)
    <Matching: score 0.980, 2 heat maps and 3 masks: 0 with 2 (1.00), 1 with 0 (0.96)>
    """
    maps, segments = _read_heatmaps(heatmaps), _read_masks(masks)
    _check_sizes(maps, tuple(np.shape(masks)))  # a tensor says its shape in other words
    cosine = _cosines(maps, segments)
    pairs = np.stack(linear_sum_assignment(cosine, maximize=True), axis=1).astype(np.intp)
    score = float(cosine[pairs[:, 0], pairs[:, 1]].mean())
    cosine.flags.writeable = pairs.flags.writeable = False
    return Matching(score, pairs, cosine)


def _cosines(maps: Floats, segments: Masks) -> Floats:
    """Of every heat map and every mask, (K, M)."""
    peak = np.abs(maps).max(axis=(1, 2), keepdims=True)
    maps = maps / np.where(peak > 0.0, peak, 1.0)  # squares of the values neither overflow nor vanish
    length = np.sqrt((maps**2).sum(axis=(1, 2)))
    length[length == 0.0] = 1.0
    # mask by mask: a product of matrices would need all masks as numbers, eight times their memory
    inside = np.stack([maps[:, mask].sum(axis=1) / np.sqrt(mask.sum()) for mask in segments], axis=1)
    return np.asarray(np.clip(inside / length[:, None], -1.0, 1.0))


def _read_heatmaps(given: Any) -> Floats:
    values = _as_array(given, "heatmaps", "(K, H, W)")
    if values.ndim != 3 or not values.size:
        alone = " For a single one, give heatmaps[None]." if values.ndim == 2 and values.size else ""
        raise InvalidInputError(
            "match: heatmaps must have shape (K, H, W), at least one heat map of at least one pixel; got "
            f"{values.shape}.{alone}"
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
    """The masks as (M, H, W) booleans, whichever way they were given."""
    values = _as_array(given, "masks", "(M, H, W), or (H, W) for a map of segments")
    if values.ndim not in (2, 3) or not values.size:
        raise InvalidInputError(
            "match: masks must have shape (M, H, W), or (H, W) for a map of segments, with at least one mask "
            f"of at least one pixel; got {values.shape}."
        )
    return _masks_of(values) if values.ndim == 2 else _as_masks(values)


def _masks_of(labels: NDArray[Any]) -> Masks:
    """One mask for each number of a map of segments, in their order."""
    if labels.dtype.kind == "b":
        raise InvalidInputError(
            "match: a map of segments must be of whole numbers; got booleans. For a single mask give "
            "masks[None], for a mask and its background masks.astype(int)."
        )
    bad = np.argwhere(~(np.isfinite(labels) & (labels == np.rint(labels))))
    if len(bad):
        row, column = bad[0].tolist()
        raise InvalidInputError(
            f"match: a map of segments must be of whole numbers; row {row}, column {column} is "
            f"{labels[row, column]} ({len(bad)} in all). Resized maps must be resized by nearest "
            "neighbours."
        )
    return np.asarray(labels == np.unique(labels)[:, None, None])


def _as_masks(values: NDArray[Any]) -> Masks:
    segments = np.asarray(values == 1)
    if not (segments | (values == 0)).all():
        other = values[~(segments | (values == 0))][0]
        raise InvalidInputError(
            f"match: masks must be of booleans, or of 0 and 1; got {other}. Say which pixels are inside, "
            "such as masks > 0."
        )
    empty = np.flatnonzero(~segments.any(axis=(1, 2)))
    if len(empty):
        raise InvalidInputError(
            f"match: every mask must have a pixel; mask {empty[0]} has none ({len(empty)} of {len(segments)} "
            "have none). Leave such masks out."
        )
    return segments


def _check_sizes(maps: Floats, shape: tuple[int, ...]) -> None:
    """Raise unless heat maps and masks are of one size; neither is resized here, since that is a choice."""
    (height, width), (h, w) = maps.shape[1:], shape[-2:]
    if (height, width) != (h, w):
        factors = f"({'1, ' * (len(shape) - 2)}{height} / {h}, {width} / {w})"
        raise InvalidInputError(
            f"match: heatmaps and masks must have the same height and width; got {maps.shape} and {shape}. "
            f"Resize the masks, such as scipy.ndimage.zoom(masks, {factors}, order=0, grid_mode=True, "
            'mode="nearest").'
        )


def _as_array(given: Any, name: str, shape: str) -> NDArray[Any]:
    """An array of real numbers or booleans; nothing is guessed of what is none."""
    try:
        values = np.asarray(given)
        if values.dtype.kind in "fiub" and not np.ma.is_masked(given):
            return values
        what = "masked values" if np.ma.is_masked(given) else str(values.dtype)
    except (TypeError, ValueError, RuntimeError) as error:  # other sizes; tensors that keep a gradient
        what = str(error)
    raise InvalidInputError(
        f"match: {name} must be an array of real numbers of shape {shape}; got {type(given).__name__} "
        f"({what})."
    )
