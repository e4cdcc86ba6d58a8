"""Whether numbers have more than one peak: Hartigan's dip, and the place where two peaks are divided.

J. A. Hartigan and P. M. Hartigan, "The Dip Test of Unimodality", Annals of Statistics 13 (1985).
"""

from __future__ import annotations

import numpy as np

from whycluster.core.arrays import Codes, Floats

_WINDOW = 20  # a gap is measured over this fraction of the values, 1 / 20


def dip(values: Floats) -> float:
    """Return how far n values are from any distribution with a single peak, times sqrt(n).

    For uniform values, the least favorable case with a single peak, it exceeds 0.65 in fewer than one in 200
    samples.
    """
    x, n = np.sort(values), len(values)
    largest, low, high = 0.5 / n, 0, n - 1
    while x[low] < x[high]:
        below, above = _hull(x, low, high, 1.0), _hull(x, low, high, -1.0)
        minorant = np.interp(x, x[below], below / n)
        majorant = np.interp(x, x[above], (above + 1) / n)
        left, right, height = _widest(below, above, minorant, majorant, n)
        rank = np.arange(n)
        before, after = slice(low, left + 1), slice(right, high + 1)
        inner = largest
        if left > low:
            inner = max(inner, 0.5 * float(((rank + 1) / n - minorant)[before].max()))
        if right < high:
            inner = max(inner, 0.5 * float((majorant - rank / n)[after].max()))
        largest = inner
        if 0.5 * height <= largest or (left, right) == (low, high):
            break
        low, high = left, right
    return float(largest * np.sqrt(n))


def _hull(x: Floats, low: int, high: int, sign: float) -> Codes:
    """Return the corners of the greatest convex minorant (sign 1) or least concave majorant (-1)."""
    corners = [low]
    for i in range(low + 1, high + 1):
        while len(corners) > 1:
            a, b = corners[-2], corners[-1]
            turn = (x[b] - x[a]) * (i - b) - (x[i] - x[b]) * (b - a)
            if sign * turn > 0:
                break
            corners.pop()
        corners.append(i)
    return np.array(corners)


def _widest(below: Codes, above: Codes, minorant: Floats, majorant: Floats, n: int) -> tuple[int, int, float]:
    """Return the interval of corners where minorant and majorant are furthest apart, and how far."""
    at_below, at_above = majorant[below] - below / n, (above + 1) / n - minorant[above]
    if at_below.max() >= at_above.max():
        left = int(below[at_below.argmax()])
        return left, int(above[above >= left][0]), float(at_below.max())
    right = int(above[at_above.argmax()])
    return int(below[below <= right][-1]), right, float(at_above.max())


def valley(values: Floats) -> float:
    """Return the place with the fewest values between two peaks."""
    x = np.sort(values)
    low, high = _two_centers(x)
    width = max(1, len(x) // _WINDOW)
    middle = 0.5 * (x[width:] + x[:-width])
    between = np.flatnonzero((middle > low) & (middle < high))
    if not between.size:
        return 0.5 * (low + high)
    return float(middle[between[(x[width:] - x[:-width])[between].argmax()]])


def _two_centers(x: Floats) -> tuple[float, float]:
    """Return the means of the two parts of sorted numbers with the least squared deviations from them."""
    n = np.arange(1, len(x))
    sums = np.cumsum(x)
    left, right = sums[:-1] / n, (sums[-1] - sums[:-1]) / (len(x) - n)
    best = int((n * (len(x) - n) * np.square(left - right)).argmax())
    return float(left[best]), float(right[best])
