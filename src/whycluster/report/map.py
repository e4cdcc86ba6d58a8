"""Place rows on the map of a report, so that a few rows far from all others do not hide the rest."""

from __future__ import annotations

from typing import Any

import numpy as np

from whycluster.core.arrays import Floats
from whycluster.explanations.maps.projection import Projection

_SIZE = 65535  # the size of the map, in its own units
_LEAST_ROWS = 20
_CUT = 0.005  # the share of rows on each side that may be drawn at the edge
_FAR = 0.5  # they are drawn there if they would make an axis longer by this fraction
_CROWDED = 0.04  # the axes are logarithmic if half of the rows fill less than this fraction of the longer one


def place_on_map(found: Projection) -> dict[str, Any]:
    """Return the positions of the rows on the map, its size, and the data of its caption."""
    points, is_logarithmic = found.points, False
    view = _view(points)
    if _is_crowded(points, view):
        points, is_logarithmic = _logarithmic(points), True
        view = _view(points)
    inside = np.clip(points, *view)
    size = view[1] - view[0]
    largest = float(size.max()) or 1.0
    return {
        "map": np.round((inside - view[0]) / largest * _SIZE).astype(np.uint16),
        "map_size": (size / largest).tolist() if size.any() else [1.0, 1.0],
        "map_of": found.of,
        "map_explained": [round(part, 4) for part in found.explained],
        "map_beyond": int((inside != points).any(axis=1).sum()),
        "map_logarithmic": is_logarithmic,
    }


def _view(points: Floats) -> Floats:
    """Return the lower left and the upper right corner of the map, (2, 2)."""
    ordered = np.sort(points, axis=0)
    n = len(ordered)
    cut = int(np.ceil(_CUT * n)) if n >= _LEAST_ROWS else 0
    low, high = ordered[cut], ordered[n - 1 - cut]
    room = _FAR * (high - low).max()  # the two axes have the same scale
    near = np.where((ordered >= low - room) & (ordered <= high + room), ordered, np.nan)
    return np.stack([np.nanmin(near, axis=0), np.nanmax(near, axis=0)])


def _is_crowded(points: Floats, view: Floats) -> bool:
    """Return whether half of the rows share a part of the map that is too small to distinguish them."""
    quarter, three_quarters = np.quantile(points, [0.25, 0.75], axis=0)
    return bool((three_quarters - quarter).max() < _CROWDED * (view[1] - view[0]).max())


def _logarithmic(points: Floats) -> Floats:
    """Return the points on a scale that is linear near the median and logarithmic far from it."""
    quarter, median, three_quarters = np.quantile(points, [0.25, 0.5, 0.75], axis=0)
    unit = float((three_quarters - quarter).max())
    return np.arcsinh((points - median) / unit) if unit > 0 else points
