"""Energies and splits of the other models, one point and one cluster at a time. Slow and obvious."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from decimal import Decimal, localcontext

import numpy as np

from tests.reference.neon import Matrix, Vector, path_weights

Split = Callable[[Vector, int], tuple[float, Vector]]
"""Takes a point and a cluster; returns the energy and its split over the features."""


def gaussian(weights: Vector, means: Matrix, covariances: Matrix) -> Split:
    """Return -log pi_k - log N(x; mu_k, S_k) and its split.

    The split of feature i is the mean of -log p(x_i) and -log p(x_i | all other features), in which the other
    features shift the mean by the regression on them and leave the rest of the variance.
    """
    regressions = [[_regression(S, i) for i in range(len(S))] for S in covariances]

    def split(x: Vector, k: int) -> tuple[float, Vector]:
        S, away = covariances[k], x - means[k]
        parts = []
        for i, (others, slope, left) in enumerate(regressions[k]):
            alone = _minus_log_density(away[i], S[i, i])
            last = _minus_log_density(away[i] - float(slope @ away[others]), left)
            parts.append((alone + last) / 2)
        constant = 0.5 * float(np.linalg.slogdet(2 * math.pi * S)[1]) - math.log(weights[k])
        return float(away @ np.linalg.solve(S, away) / 2 + constant), np.array(parts)

    return split


def _regression(S: Matrix, i: int) -> tuple[list[int], Vector, float]:
    """Return all features except i, the slopes of feature i on them, and the variance that they leave."""
    others = [j for j in range(len(S)) if j != i]
    slope = np.linalg.solve(S[np.ix_(others, others)], S[others, i])
    return others, slope, float(S[i, i] - slope @ S[others, i])


def _minus_log_density(away: float, variance: float) -> float:
    """Return -log of a normal density, at this distance from its mean."""
    return float(away**2 / (2 * variance) + math.log(2 * math.pi * variance) / 2)


def diagonal(weights: Vector, means: Matrix, variances: Matrix) -> Split:
    """Return the same for independent features; log(var) / 2 belongs to its feature."""

    def split(x: Vector, k: int) -> tuple[float, Vector]:
        parts = (x - means[k]) ** 2 / (2 * variances[k]) + np.log(variances[k]) / 2
        constant = 0.5 * len(x) * math.log(2 * math.pi) - math.log(weights[k])
        return float(parts.sum() + constant), parts

    return split


def manhattan(prototypes: Matrix) -> Split:
    def split(x: Vector, k: int) -> tuple[float, Vector]:
        parts = np.abs(x - prototypes[k])
        return float(parts.sum()), parts

    return split


def cosine(directions: Matrix) -> Split:
    def split(x: Vector, k: int) -> tuple[float, Vector]:
        mu = directions[k]
        parts = -x * mu / (np.linalg.norm(x) * np.linalg.norm(mu))
        return float(parts.sum()), parts

    return split


def dot(directions: Matrix, bias: Sequence[float] | None = None) -> Split:
    """Return -(mu_k.x + b_k), the negative logit of a linear head."""

    def split(x: Vector, k: int) -> tuple[float, Vector]:
        parts = -x * directions[k]
        return float(parts.sum()) - (0.0 if bias is None else bias[k]), parts

    return split


def student(centers: Matrix, alpha: float, c: int) -> Split:
    """Return s_k - s_c for s_k = (alpha + 1) / 2 log(1 + |x - mu_k|^2 / alpha), and e_k - e_c.

    The split depends on both clusters: the differences of squares, times the factor that makes them add up to
    s_k - s_c. A hundred digits allow a plain difference of two logarithms.
    """

    def split(x: Vector, k: int) -> tuple[float, Vector]:
        with localcontext() as context:
            context.prec = 100
            a = Decimal(float(alpha))
            other = [
                (Decimal(float(v)) - Decimal(float(mu))) ** 2 for v, mu in zip(x, centers[k], strict=True)
            ]
            own = [(Decimal(float(v)) - Decimal(float(mu))) ** 2 for v, mu in zip(x, centers[c], strict=True)]
            h = (a + 1) / 2 * ((1 + sum(other) / a).ln() - (1 + sum(own) / a).ln())
            apart = sum(other) - sum(own)
            rate = h / apart if apart != 0 else (a + 1) / 2 / (a + sum(own))
            return float(h), np.array([float(rate * (r - o)) for r, o in zip(other, own, strict=True)])

    return split


def nearest_subcluster(centers: Matrix, cluster: Vector) -> Split:
    """Return the hard minimum over the subclusters of a cluster."""

    def split(x: Vector, k: int) -> tuple[float, Vector]:
        squares = [(x - u) ** 2 for u, own in zip(centers, cluster, strict=True) if own == k]
        parts = min(squares, key=lambda s: float(s.sum()))
        return float(parts.sum()), parts

    return split


def mixed(prototypes: Matrix, categorical: Vector, gamma: float) -> Split:
    """Return squared differences for numbers, and gamma for each category that differs."""

    def split(x: Vector, k: int) -> tuple[float, Vector]:
        parts = np.array(
            [
                gamma * (a != b) if is_category else (a - b) ** 2
                for a, b, is_category in zip(x, prototypes[k], categorical, strict=True)
            ]
        )
        return float(parts.sum()), parts

    return split


def assign(x: Vector, split: Split, n_clusters: int) -> int:
    s = [split(x, k)[0] for k in range(n_clusters)]
    return s.index(min(s))


def stiffness(X: Matrix, split: Split, n_clusters: int) -> float:
    """Return beta (Eq. 3)."""
    evidence = []
    for x in X:
        s = sorted(split(x, k)[0] for k in range(n_clusters))
        evidence.append(s[1] - s[0])
    return 1 / (sum(evidence) / len(evidence))


def explain_row(x: Vector, split: Split, n_clusters: int, c: int, beta: float) -> Vector:
    """Return R = sum_k (p_k f_c / h_k) (e_k - e_c)."""
    s_c, e_c = split(x, c)
    competitors = [k for k in range(n_clusters) if k != c]
    h = {k: split(x, k)[0] - s_c for k in competitors}
    f = min(h.values())
    exponentials = {k: math.exp(-beta * (h[k] - f)) for k in competitors}
    result = np.zeros(len(e_c))
    for k in competitors:
        p_k = exponentials[k] / sum(exponentials.values())
        result += p_k * (f / h[k] if h[k] != 0 else 1.0) * (split(x, k)[1] - e_c)
    return result


def joint_row(x: Vector, split: Split, n_clusters: int, c: int, beta: float) -> Vector:
    """Return R = f_c sum_k p_k (e_k - e_c) / sum_k p_k h_k."""
    s_c, e_c = split(x, c)
    competitors = [k for k in range(n_clusters) if k != c]
    h = {k: split(x, k)[0] - s_c for k in competitors}
    f = min(h.values())
    p = {k: math.exp(-beta * (h[k] - f)) for k in competitors}
    below = sum(p[k] * h[k] for k in competitors)
    above = sum(p[k] * (split(x, k)[1] - e_c) for k in competitors)
    return np.asarray(above * (f / below if below != 0 else 1 / sum(p.values())))


def path_row(
    x: Vector, split: Split, n_clusters: int, c: int, beta: float, weights: Vector, included: bool = False
) -> Vector:
    """Return R = sum_k a_k (e_k - e_c), with the weights a_k of `path_weights`.

    ``weights`` are those of the clusters before there is any evidence, and ``included`` says whether the
    energies have them already.
    """
    s_c, e_c = split(x, c)
    h = {k: split(x, k)[0] - s_c for k in range(n_clusters) if k != c}
    a = path_weights(h, beta, {k: weights[k] / weights[c] for k in h}, included)
    return np.asarray(sum(a[k] * (split(x, k)[1] - e_c) for k in h))


def sizes(X: Matrix, split: Split, n_clusters: int) -> Vector:
    """Return the number of rows of each cluster; an empty one counts as one row."""
    clusters = [assign(x, split, n_clusters) for x in X]
    return np.array([max(1, clusters.count(c)) for c in range(n_clusters)])


def explain(
    X: Matrix,
    split: Split,
    n_clusters: int,
    beta: float | None = None,
    rule: str = "min-take-most",
    weights: Vector | None = None,
) -> Matrix:
    """Explain every row for its own cluster, by the paper's rule or by the path rule.

    ``weights`` are those of a model that gives probabilities.
    """
    own = [assign(x, split, n_clusters) for x in X]
    if rule == "path" and weights is not None:
        rows = zip(X, own, strict=True)
        return np.array([path_row(x, split, n_clusters, c, beta or 1.0, weights, True) for x, c in rows])
    if rule == "path":
        beta = 4 * stiffness(X, split, n_clusters) if beta is None else beta
        counts, rows = sizes(X, split, n_clusters), zip(X, own, strict=True)
        return np.array([path_row(x, split, n_clusters, c, beta, counts) for x, c in rows])
    beta = stiffness(X, split, n_clusters) if beta is None else beta
    return np.array([explain_row(x, split, n_clusters, c, beta) for x, c in zip(X, own, strict=True)])


def threshold_row(x: Vector, split: Split, n_clusters: int, c: int, threshold: float) -> tuple[float, Vector]:
    """Return the evidence that the probability of c exceeds a threshold, and its relevance (Prop. 7)."""
    s_c, e_c = split(x, c)
    competitors = [k for k in range(n_clusters) if k != c]
    b = -math.log(n_clusters - 1) + math.log((1 - threshold) / threshold)
    h = {k: split(x, k)[0] - s_c + b for k in competitors}
    least = min(h.values())
    f = least - math.log(sum(math.exp(least - h[k]) for k in competitors) / (n_clusters - 1))
    total = sum(math.exp(least - h[k]) for k in competitors)
    result = np.zeros(len(e_c))
    for k in competitors:
        R_k = math.exp(least - h[k]) / total * f  # Eq. 2 with the stiffness of the LME, 1
        R_k *= h[k] / f  # the reassignment below Prop. 7
        result += R_k / h[k] * (split(x, k)[1] - e_c)  # Eq. 4
    return f, result


Node = tuple[Vector, "Node | None", "Node | None", int]
"""A node of a tree: its center, its left and right child, and its cluster (-1 if it has children)."""


def path(root: Node, cluster: int) -> list[tuple[Vector, Vector]] | None:
    """Return the pairs (own center, sibling's center) on the path to a cluster."""
    _, left, right, leaf = root
    if left is None or right is None:
        return [] if leaf == cluster else None
    for own, sibling in ((left, right), (right, left)):
        rest = path(own, cluster)
        if rest is not None:
            return [(own[0], sibling[0]), *rest]
    return None


def tree_explain_row(x: Vector, root: Node, cluster: int, beta: float) -> tuple[float, Vector]:
    """Return the smallest evidence of the pairs on the path, and its relevance by Eqs. 2 and 4."""
    pairs = path(root, cluster)
    assert pairs is not None
    splits = [(x - sibling) ** 2 - (x - own) ** 2 for own, sibling in pairs]
    h = [float(split.sum()) for split in splits]
    f = min(h)
    exponentials = [math.exp(-beta * (value - f)) for value in h]
    result = np.zeros(len(x))
    for value, part, split in zip(h, exponentials, splits, strict=True):
        result += part / sum(exponentials) * (f / value if value != 0 else 1.0) * split
    return f, result


def tree_path_row(x: Vector, root: Node, cluster: int, beta: float, sizes: Vector) -> Vector:
    """Return the relevance by the path rule: each turn's competitor is the cluster that x reaches there.

    It counts for all clusters below the sibling.
    """
    h: dict[int, float] = {}
    below: dict[int, float] = {}
    splits: dict[int, Vector] = {}
    node = root
    while True:
        _, left, right, _ = node
        if left is None or right is None:
            break
        own, sibling = (left, right) if path(left, cluster) is not None else (right, left)
        k = reached(x, sibling)
        splits[k] = (x - sibling[0]) ** 2 - (x - own[0]) ** 2
        h[k] = float(splits[k].sum())
        below[k] = sum(sizes[leaf] for leaf in range(len(sizes)) if path(sibling, leaf) is not None)
        node = own
    a = path_weights(h, beta, {k: below[k] / sizes[cluster] for k in h})
    return np.asarray(sum(a[k] * splits[k] for k in h))


def reached(x: Vector, node: Node) -> int:
    """Return the cluster that x reaches from a node, always by way of the nearer child."""
    _, left, right, leaf = node
    if left is None or right is None:
        return leaf
    to_left, to_right = (float((x - child[0]) @ (x - child[0])) for child in (left, right))
    return reached(x, left if to_left <= to_right else right)
