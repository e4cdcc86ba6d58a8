"""Matching of heat maps and masks by brute force: every pairing, one cosine at a time."""

from __future__ import annotations

import math
from itertools import permutations
from typing import Any

import numpy as np
from numpy.typing import NDArray


def cosine(heatmap: NDArray[np.float64], mask: NDArray[Any]) -> float:
    """Return the cosine of a heat map and a mask of 0 and 1, not centered; 0 for a heat map of zeros."""
    r, m = [float(v) for v in heatmap.ravel()], [float(v) for v in mask.ravel()]
    product = sum(a * b for a, b in zip(r, m, strict=True))
    lengths = math.sqrt(sum(a * a for a in r)) * math.sqrt(sum(b * b for b in m))
    return product / lengths if lengths > 0 else 0.0


def score(heatmaps: NDArray[np.float64], masks: NDArray[Any]) -> float:
    """Return S, the largest mean cosine over all pairings; some maps or masks may stay unpaired."""
    table = [[cosine(r, m) for m in masks] for r in heatmaps]
    if len(heatmaps) > len(masks):
        table = [list(column) for column in zip(*table, strict=True)]
    n_pairs, n_others = len(table), len(table[0])
    pairings = permutations(range(n_others), n_pairs)
    return max(sum(table[i][j] for i, j in enumerate(pairing)) / n_pairs for pairing in pairings)
