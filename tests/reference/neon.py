"""NEON for k-means, straight from the paper: one point and one competitor at a time. Slow and obvious."""

from __future__ import annotations

import math
from decimal import Decimal
from typing import Any

import numpy as np
from numpy.typing import NDArray

Vector = NDArray[np.floating[Any]]
Matrix = NDArray[np.floating[Any]]


def detect(x: Vector, centroids: Matrix, c: int, k: int) -> float:
    """Return h_k = w_k.x + b_k, w_k = 2 (mu_c - mu_k), b_k = |mu_k|^2 - |mu_c|^2 (Prop. 1, layer 1)."""
    w = 2 * (centroids[c] - centroids[k])
    b = centroids[k] @ centroids[k] - centroids[c] @ centroids[c]
    return float(w @ x + b)


def competitors(centroids: Matrix, c: int) -> list[int]:
    return [k for k in range(len(centroids)) if k != c]


def evidence(x: Vector, centroids: Matrix, c: int) -> float:
    """Return f_c = min over k != c of h_k (Prop. 1, layer 2)."""
    return min(detect(x, centroids, c, k) for k in competitors(centroids, c))


def assign(x: Vector, centroids: Matrix) -> int:
    """Return the cluster with the nearest centroid."""
    distances = [float((x - mu) @ (x - mu)) for mu in centroids]
    return distances.index(min(distances))


def stiffness(X: Matrix, centroids: Matrix) -> float:
    """Return beta = 1 / E[f_c] (Eq. 3)."""
    return 1 / (sum(evidence(x, centroids, assign(x, centroids)) for x in X) / len(X))


def shares(x: Vector, centroids: Matrix, c: int, beta: float) -> dict[int, float]:
    """Return p_k, the softmax of Eq. 2."""
    h = {k: detect(x, centroids, c, k) for k in competitors(centroids, c)}
    least = min(h.values())
    exponentials = {k: math.exp(-beta * (h_k - least)) for k, h_k in h.items()}
    total = sum(exponentials.values())
    return {k: value / total for k, value in exponentials.items()}


def competition(x: Vector, centroids: Matrix, c: int, beta: float) -> Vector:
    """Return R_k = p_k f_c (Eq. 2), and 0 for the row's own cluster."""
    f = evidence(x, centroids, c)
    result = np.zeros(len(centroids))
    for k, p in shares(x, centroids, c, beta).items():
        result[k] = p * f
    return result


def numerator(x: Vector, centroids: Matrix, c: int, k: int) -> Vector:
    """Return (x_i - m_ik) w_ik, where m_k is the midpoint of the two centroids (Eq. 4)."""
    w = 2 * (centroids[c] - centroids[k])
    m = (centroids[c] + centroids[k]) / 2
    return np.asarray((x - m) * w)


def min_take_most(x: Vector, centroids: Matrix, c: int, beta: float) -> Vector:
    """Return R_i, the sum over k of R_k times the feature's part of h_k (Eq. 4).

    At a tie, R_k / h_k is replaced by its limit.
    """
    result = np.zeros(len(x))
    p = shares(x, centroids, c, beta)
    R = competition(x, centroids, c, beta)
    for k in competitors(centroids, c):
        n = numerator(x, centroids, c, k)
        ratio = R[k] / float(n.sum()) if n.sum() != 0 else p[k]
        result += ratio * n
    return result


def joint(x: Vector, centroids: Matrix, c: int, beta: float) -> Vector:
    """Return R = f_c sum_k p_k (e_k - e_c) / sum_k p_k h_k."""
    p = shares(x, centroids, c, beta)
    total = sum(p[k] * numerator(x, centroids, c, k) for k in p)
    below = sum(p[k] * detect(x, centroids, c, k) for k in p)
    return np.asarray(total * (evidence(x, centroids, c) / below if below != 0 else 1.0))


def from_zero(x: Vector, centroids: Matrix, c: int, k: int) -> Vector:
    """Return x_i w_ik: the part of h_k that is due to feature i if it is measured from 0, not from m_ik."""
    return np.asarray([x_i * 2 * (a - b) for x_i, a, b in zip(x, centroids[c], centroids[k], strict=True)])


def min_take_most_from_zero(x: Vector, centroids: Matrix, c: int, beta: float) -> Vector:
    """Return the sum over k of R_k / h_k x w_k; the rest of the evidence belongs to no feature."""
    R = competition(x, centroids, c, beta)
    result = np.zeros(len(x))
    for k in competitors(centroids, c):
        result += R[k] / detect(x, centroids, c, k) * from_zero(x, centroids, c, k)
    return result


def joint_from_zero(x: Vector, centroids: Matrix, c: int, beta: float) -> Vector:
    """Return f_c sum_k p_k x w_k / sum_k p_k h_k; the rest of the evidence belongs to no feature."""
    p = shares(x, centroids, c, beta)
    below = sum(p[k] * detect(x, centroids, c, k) for k in p)
    parts = [p[k] * from_zero(x, centroids, c, k) for k in p]
    return np.asarray(np.sum(parts, axis=0) * evidence(x, centroids, c) / below)


def contrast(x: Vector, centroids: Matrix, c: int, k: int) -> Vector:
    """Return e_k - e_c: why c rather than k."""
    return np.asarray((x - centroids[k]) ** 2 - (x - centroids[c]) ** 2)


def explain(X: Matrix, centroids: Matrix, beta: float | None = None, rule: str = "min-take-most") -> Matrix:
    """Return the explanation of every row for its own cluster, by the paper's rule or by the path rule."""
    if rule == "path":
        beta = 4 * stiffness(X, centroids) if beta is None else beta
        of_all = sizes(X, centroids)
        return np.array([path(x, centroids, assign(x, centroids), beta, of_all) for x in X])
    beta = stiffness(X, centroids) if beta is None else beta
    return np.array([min_take_most(x, centroids, assign(x, centroids), beta) for x in X])


def path(x: Vector, centroids: Matrix, c: int, beta: float, sizes: Vector) -> Vector:
    """Return R = sum_k a_k (e_k - e_c), with the weights a_k of `path_weights`."""
    h = {k: detect(x, centroids, c, k) for k in competitors(centroids, c)}
    a = path_weights(h, beta, {k: sizes[k] / sizes[c] for k in h})
    return np.asarray(sum(a[k] * numerator(x, centroids, c, k) for k in h))


def path_competition(x: Vector, centroids: Matrix, c: int, beta: float, sizes: Vector) -> Vector:
    """Return R_k = a_k h_k, with the weights a_k of `path_weights`, and 0 for the row's own cluster."""
    h = {k: detect(x, centroids, c, k) for k in competitors(centroids, c)}
    a = path_weights(h, beta, {k: sizes[k] / sizes[c] for k in h})
    return np.array([a[k] * h[k] if k != c else 0.0 for k in range(len(centroids))])


def path_weights(
    h: dict[int, float], beta: float, odds: dict[int, float], has_odds: bool = False
) -> dict[int, float]:
    """Return a_k = p_k f_c / sum_j p_j h_j or, at a tie of all clusters, a_k = p_k.

    ``odds`` are the odds of the competitors against the cluster before there is any evidence. If h has them
    already, as in a mixture, only the rest of h is evidence.
    """
    grown = {k: beta * h[k] + (math.log(odds[k]) if has_odds else 0.0) for k in h}
    p = path_shares(grown, odds, dense_nodes(max(h.values())) if has_odds else FOUR_NODES)
    below = sum(p[k] * h[k] for k in h)
    return {k: p[k] * (min(h.values()) / below if below != 0 else 1.0) for k in h}


FOUR_NODES = {1 / 16: 37 / 240, 5 / 16: 83 / 240, 11 / 16: 83 / 240, 15 / 16: 37 / 240}


def dense_nodes(H: float, n_nodes: int = 12) -> dict[float, float]:
    """Return points t in [0, 1] with weights: u are Gauss-Legendre nodes, and t(u) is denser near 0.

    t(u) = ((1 + H / 4)^u - 1) / (H / 4), and dt / du = log(1 + H / 4) (1 + H / 4)^u / (H / 4).
    """
    x, weights = np.polynomial.legendre.leggauss(n_nodes)
    u, g = [float(value + 1) / 2 for value in x], [float(value) / 2 for value in weights]
    if H == 0:
        return dict(zip(u, g, strict=True))
    grown = math.log1p(H / 4)
    return {
        math.expm1(at * grown) / (H / 4): part * grown * math.exp(at * grown) / (H / 4)
        for at, part in zip(u, g, strict=True)
    }


def path_shares(
    nats: dict[int, float], odds: dict[int, float], nodes: dict[float, float]
) -> dict[int, float]:
    """Return p_k: each competitor's probability, averaged while evidence grows from 0 to all nats.

    They are scaled to sum to 1. The integral over t is a sum over the nodes.
    """
    p = dict.fromkeys(nats, Decimal(0))  # tiny numbers do not become 0
    for t, g in nodes.items():
        at_t = {k: Decimal(odds[k]) * Decimal(-t * nats[k]).exp() for k in nats}
        for k in nats:
            p[k] += Decimal(g) * at_t[k] / (1 + sum(at_t.values()))
    return {k: float(value / sum(p.values())) for k, value in p.items()}


def sizes(X: Matrix, centroids: Matrix) -> Vector:
    """Return the number of rows of each cluster; an empty one counts as one row."""
    clusters = [assign(x, centroids) for x in X]
    return np.array([max(1, clusters.count(c)) for c in range(len(centroids))])
