"""Heat maps against masks by brute force: every way to pair them, one cosine at a time."""

from __future__ import annotations

import math
from itertools import permutations
from typing import Any

import numpy as np
from numpy.typing import NDArray


def cosine(heatmap: NDArray[np.float64], mask: NDArray[Any]) -> float:
    """Of a heat map and a mask of 0 and 1, not centred; 0 of a heat map of zeros."""
    r, m = [float(v) for v in heatmap.ravel()], [float(v) for v in mask.ravel()]
    product = sum(a * b for a, b in zip(r, m, strict=True))
    lengths = math.sqrt(sum(a * a for a in r)) * math.sqrt(sum(b * b for b in m))
    return product / lengths if lengths > 0 else 0.0


def score(heatmaps: NDArray[np.float64], masks: NDArray[Any]) -> float:
    """S: the largest mean cosine of all ways to pair them; of the more numerous, some stay alone."""
    table = [[cosine(r, m) for m in masks] for r in heatmaps]
    if len(heatmaps) > len(masks):
        table = [list(column) for column in zip(*table, strict=True)]
    n_pairs, n_others = len(table), len(table[0])
    ways = permutations(range(n_others), n_pairs)
    return max(sum(table[i][j] for i, j in enumerate(way)) / n_pairs for way in ways)
