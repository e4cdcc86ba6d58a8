"""The relevance of words for a mean of vectors of pieces, written as slowly and plainly as possible."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]


def relevance_of_pieces(
    pieces: list[int], vectors: Floats, centers: Floats, weights: Floats, normalize: bool
) -> Floats:
    """Return the relevance of each piece of one text.

    Parameters
    ----------
    pieces : the rows of the pieces in ``vectors``
    vectors, centers : (n, d) vectors of all pieces, and (K, d) centroids
    weights : (K,) the weights a_k of the clusters, which sum to 0
    normalize : whether the mean is scaled to unit length
    """
    n = len(pieces)
    mean = sum(vectors[piece] for piece in pieces) / n
    length = np.linalg.norm(mean) if normalize else 1.0
    result = np.zeros(n)
    for k, center in enumerate(centers):
        for i, piece in enumerate(pieces):
            # |x - mu_k|^2 without |x|^2, which cancels out; the constant is shared among all pieces
            result[i] += weights[k] * (-2 * vectors[piece] @ center / (n * length) + center @ center / n)
    return result
