"""NEON for kernel k-means on the paper's network, with one neuron per pair of support vectors."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from tests.reference.neon import Matrix, Vector, path_weights


@dataclass(frozen=True)
class Kernel:
    """Support vectors per cluster, their weights v_j, and gamma."""

    support: Sequence[Matrix]
    weights: Sequence[Vector]
    gamma: float

    @classmethod
    def plain(cls, support: Sequence[Matrix], gamma: float) -> Kernel:
        """Return the model of Eq. 6, in which all support vectors of a cluster have the same weight."""
        return cls(support, [np.full(len(u), 1 / len(u)) for u in support], gamma)

    @property
    def n_clusters(self) -> int:
        return len(self.support)


def energy(x: Vector, model: Kernel, k: int) -> float:
    """Return the soft minimum of the squared distances to the support vectors of cluster k (Eq. 6)."""
    t = [float((x - u) @ (x - u)) for u in model.support[k]]
    least = min(t)
    total = sum(v * math.exp(-model.gamma * (s - least)) for v, s in zip(model.weights[k], t, strict=True))
    return least - math.log(total) / model.gamma


def assign(x: Vector, model: Kernel) -> int:
    s = [energy(x, model, k) for k in range(model.n_clusters)]
    return s.index(min(s))


def detect(x: Vector, u_i: Vector, u_j: Vector) -> float:
    """Return h_ijk = w_ij.x + b_ij, w_ij = 2 (u_i - u_j), b_ij = |u_j|^2 - |u_i|^2 (Prop. 5, layer 1)."""
    return float(2 * (u_i - u_j) @ x + u_j @ u_j - u_i @ u_i)


def pool(h: list[float], weights: Vector, gamma: float) -> float:
    """Return a weighted log-mean-exp: a soft maximum for gamma > 0, a soft minimum for gamma < 0."""
    top = max(gamma * value for value in h)
    return (
        top + math.log(sum(v * math.exp(gamma * value - top) for v, value in zip(weights, h, strict=True)))
    ) / gamma


def shares(h: list[float], weights: Vector, gamma: float) -> list[float]:
    """Return how such a pool shares relevance (Eq. 2)."""
    top = max(gamma * value for value in h)
    parts = [v * math.exp(gamma * value - top) for v, value in zip(weights, h, strict=True)]
    return [part / sum(parts) for part in parts]


def against(x: Vector, model: Kernel, c: int, k: int) -> tuple[float, list[list[float]], list[float]]:
    """Return h_k, the h_ijk as [j][i], and the h_jk for one competitor (Prop. 5, layers 1 to 3)."""
    layer1 = [[detect(x, u_i, u_j) for u_i in model.support[c]] for u_j in model.support[k]]
    layer2 = [pool(h_j, model.weights[c], model.gamma) for h_j in layer1]
    return pool(layer2, model.weights[k], -model.gamma), layer1, layer2


def evidence(x: Vector, model: Kernel, c: int) -> float:
    """Return f_c (Prop. 5, layer 4)."""
    return min(against(x, model, c, k)[0] for k in range(model.n_clusters) if k != c)


def stiffness(X: Matrix, model: Kernel) -> float:
    """Return beta (Eq. 3)."""
    return 1 / (sum(evidence(x, model, assign(x, model)) for x in X) / len(X))


def compete(h: dict[int, float], beta: float) -> dict[int, float]:
    """Return R_k = p_k f_c (Eq. 2)."""
    f = min(h.values())
    p = shares(list(h.values()), np.ones(len(h)), -beta)
    return {k: p_k * f for k, p_k in zip(h, p, strict=True)}


def compete_on_path(h: dict[int, float], c: int, beta: float, sizes: Vector) -> dict[int, float]:
    """Return R_k = a_k h_k by the path rule."""
    a = path_weights(h, beta, {k: sizes[k] / sizes[c] for k in h})
    return {k: a[k] * h[k] for k in h}


def explain_row(x: Vector, model: Kernel, c: int, beta: float, sizes: Vector | None = None) -> Vector:
    """Propagate back through all four layers, with the gate of Eq. 10 on the detection layer.

    If the sizes of the clusters are given, the first layer is that of the path rule.
    """
    competitors = [k for k in range(model.n_clusters) if k != c]
    layers = {k: against(x, model, c, k) for k in competitors}
    h = {k: layers[k][0] for k in competitors}
    R = compete(h, beta) if sizes is None else compete_on_path(h, c, beta, sizes)
    result = np.zeros(len(x))
    for k, R_k in R.items():
        h_k, layer1, layer2 = layers[k]
        for j, p_j in enumerate(shares(layer2, model.weights[k], -model.gamma)):
            for i, p_i in enumerate(shares(layer1[j], model.weights[c], model.gamma)):
                h_ijk = layer1[j][i]
                R_ijk = p_i * p_j * R_k * (h_ijk / h_k)  # the footnote of Section IV, then Eq. 10
                u_i, u_j = model.support[c][i], model.support[k][j]
                w, m = 2 * (u_i - u_j), (u_i + u_j) / 2
                if h_ijk != 0:
                    result += R_ijk * (x - m) * w / h_ijk  # Eq. 4
    return result


def explain(X: Matrix, model: Kernel, beta: float | None = None, rule: str = "min-take-most") -> Matrix:
    """Return the explanation of every row for its own cluster, by the paper's rule or by the path rule."""
    own = [assign(x, model) for x in X]
    if rule == "path":
        sizes = np.array([max(1, own.count(c)) for c in range(model.n_clusters)])
        beta = model.gamma if beta is None else beta
        return np.array([explain_row(x, model, c, beta, sizes) for x, c in zip(X, own, strict=True)])
    beta = stiffness(X, model) if beta is None else beta
    return np.array([explain_row(x, model, c, beta) for x, c in zip(X, own, strict=True)])
