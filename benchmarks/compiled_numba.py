"""Loops that explain k-means, compiled by numba; see `compiled.py`."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numba  # pip install numba
import numpy as np

_FAR = 1e300  # the distance to the row's own cluster, so that it never competes
_TINY = 1e-300  # below this, 1 / h may overflow
_POWERS = 2.0 ** np.arange(-1022, 1)
# The coefficients of exp, the highest first.
_TERMS = 1.0 / np.cumprod(np.maximum(np.arange(13.0), 1.0))[::-1]

# Without Intel's library, numba's own exp is not vectorized. A NaN is found by the sum of the energies.
_compile: Callable[[Callable[..., Any]], Callable[..., Any]] = numba.njit(
    nogil=True, error_model="numpy", fastmath={"reassoc", "nsz", "contract", "arcp"}
)


@_compile
def _exp_minus(t: Any) -> Any:
    y = max(-t, -700.0)
    n = math.floor(y * 1.4426950408889634 + 0.5)
    r = (y - n * 0.6931471805598903) - n * 5.497923018708371e-14
    p = _TERMS[0]
    for i in range(1, 13):
        p = p * r + _TERMS[i]
    return p * _POWERS[int(n) + 1022]


@_compile
def _settle_row(s: Any, K: Any) -> Any:
    total, least = 0.0, s[0]
    for k in range(K):
        total += s[k]
        least = min(least, s[k])
    own = 0
    while own < K - 1 and s[own] != least:
        own += 1
    s[own] = _FAR
    second = _FAR
    for k in range(K):
        s[k] -= least
        second = min(second, s[k])
    competitor = 0
    while competitor < K - 1 and s[competitor] != second:
        competitor += 1
    return total, own, competitor, second


@_compile
def _weigh_row(h: Any, a: Any, K: Any, own: Any, f: Any, beta: Any) -> Any:
    total, summed = 0.0, 0.0
    if f < _TINY:  # almost a tie: the limit of f / h is 1
        for k in range(K):
            p = 0.0 if k == own else _exp_minus(beta * (h[k] - f))
            total += p
            a[k] = p if h[k] == 0.0 else p * (f / h[k])
    else:
        for k in range(K):
            p = _exp_minus(beta * (h[k] - f))
            total += p
            a[k] = p / h[k] * f
    for k in range(K):
        summed += a[k]
    a[own] = -summed
    for k in range(K):
        a[k] /= total


@_compile
def settle(h: Any, n: Any, K: Any, bias: Any, cluster: Any, competitor: Any, evidence: Any) -> Any:
    """Turn energies without their bias, (n, K), into h, in place."""
    total = 0.0
    for i in range(n):
        for k in range(K):
            h[i, k] += bias[k]
        summed, cluster[i], competitor[i], evidence[i] = _settle_row(h[i], K)
        total += summed
    return total


@_compile
def weigh(h: Any, n: Any, K: Any, beta: Any, cluster: Any, evidence: Any, weights: Any) -> Any:
    """Turn h, (n, K), into weights."""
    for i in range(n):
        _weigh_row(h[i], weights[i], K, cluster[i], evidence[i], beta)


@_compile
def forward(
    x: Any,
    n: Any,
    d: Any,
    K: Any,
    wide: Any,
    slopes_by_feature: Any,
    bias: Any,
    h: Any,
    h_step: Any,  # noqa: ARG001  # for C, which knows no shapes
    cluster: Any,
    competitor: Any,
    evidence: Any,
) -> Any:
    """Compute h and the assignment of the rows."""
    total = 0.0
    s = np.empty(wide)
    for i in range(n):
        s[:] = bias
        for j in range(d):
            value = x[i, j]
            for k in range(wide):
                s[k] += value * slopes_by_feature[j, k]
        summed, cluster[i], competitor[i], evidence[i] = _settle_row(s, K)
        total += summed
        h[i, :K] = s[:K]
    return total


@_compile
def backward(
    x: Any,
    n: Any,
    d: Any,
    K: Any,
    slopes: Any,
    squares: Any,
    h: Any,
    h_step: Any,  # noqa: ARG001  # for C, which knows no shapes
    beta: Any,
    cluster: Any,
    evidence: Any,
    out: Any,
    weights: Any,
) -> Any:
    """Turn h into relevance; h may be stored in the memory of the relevance, row by row."""
    slope, square = np.empty(d), np.empty(d)
    a = weights[0]
    for i in range(n):
        _weigh_row(h[i], a, K, cluster[i], evidence[i], beta)
        slope[:] = 0.0
        square[:] = 0.0
        for k in range(K):
            for j in range(d):
                slope[j] += a[k] * slopes[k, j]
                square[j] += a[k] * squares[k, j]
        for j in range(d):
            out[i, j] = square[j] + slope[j] * x[i, j]
