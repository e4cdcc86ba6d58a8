"""The neighbors and the loss of SCAN, one pair of rows at a time."""

from __future__ import annotations

import math
from typing import Any

import numpy as np


def neighbors(rows: Any, n_near: int) -> list[set[int]]:
    """Return the other rows with the largest cosine similarity to each row."""
    found = []
    for i, x in enumerate(rows):
        cosine = {
            j: float(x @ y / math.sqrt(float(x @ x) * float(y @ y))) for j, y in enumerate(rows) if j != i
        }
        found.append(set(sorted(cosine, key=lambda j: -cosine[j])[:n_near]))
    return found


def loss(logits: Any, near: list[set[int]], entropy_weight: float) -> float:
    """Return the mean of -log <p_i, p_j> over rows and neighbors, minus weight times entropy of the mean."""
    p = [np.exp(row - row.max()) / np.exp(row - row.max()).sum() for row in np.asarray(logits, np.float64)]
    pairs = [(i, j) for i, others in enumerate(near) for j in others]
    consistency = sum(-math.log(float(p[i] @ p[j])) for i, j in pairs) / len(pairs)
    mean = sum(p) / len(p)
    entropy = -sum(float(part) * math.log(part) for part in mean)
    return consistency - entropy_weight * entropy
