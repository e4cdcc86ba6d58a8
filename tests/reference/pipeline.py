"""Relevance behind the steps of a pipeline, in loops: the linear map is found by moving one atom at a time.

Atoms are the features before the first step that mixes columns; each is made from one column. A test passes
the atoms, their columns, and the remaining steps as a function of the atoms. Slow and obvious.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from tests.reference.neon import Matrix, Vector, path_weights

Rest = Callable[[Matrix], Matrix]
"""The steps after the atoms: from rows of atoms to inputs of the model."""

Pair = tuple[float, float, Vector]
"""For a row and a competitor: h_k, the part of it that belongs to no atom, and its split over the atoms."""


@dataclass(frozen=True)
class Front:
    """The map z = A (t - base) + o."""

    A: Matrix  # (m, D)
    base: Vector  # (D,)
    o: Vector  # (m,)

    def to_z(self, t: Vector) -> Vector:
        return np.asarray(self.A @ (t - self.base) + self.o)

    def moved_onto(self, start: Vector, z: Vector) -> Vector:
        """Return the point closest to ``start`` that maps to z, by the pseudo-inverse."""
        return np.asarray(start + np.linalg.pinv(self.A, rcond=1e-10) @ (z - self.to_z(start)))


def expand(rest: Rest, atoms: Matrix) -> Front:
    """Find the map by moving one atom of a point at a time, which is exact because the map is affine."""
    base, spread = atoms.mean(axis=0), atoms.std(axis=0)
    moved = np.vstack([base] * (len(base) + 1))  # the last row is not moved
    varies = spread > 1e-9 * np.abs(base)  # a smaller step would be lost to rounding
    for i, step in enumerate(np.where(varies, spread, 1.0)):
        moved[i, i] += step
    z = np.asarray(rest(moved))
    A = np.empty((z.shape[1], len(base)))
    for i in range(len(base)):
        A[:, i] = (z[i] - z[-1]) / (moved[i, i] - base[i])
    return Front(A, base, z[-1])


def rescaled(front: Front, atoms: Matrix, order: float = 2) -> tuple[Matrix, Front]:
    """Return atoms and map if each row of z is divided by its length, which counts as a constant of the row.

    z / |z| = A (t - zero) / |z|, where ``zero`` is the point closest to the base that maps to 0.
    """
    zero = front.moved_onto(front.base, np.zeros(len(front.o)))
    assert np.abs(front.to_z(zero)).max() <= 1e-9 * max(1.0, np.abs(front.o).max())
    lengths = np.array([np.linalg.norm(front.to_z(t), ord=order) for t in atoms])
    return (atoms - zero) / lengths[:, None], Front(front.A, 0 * zero, 0 * front.o)


def member_means(atoms: Matrix, labels: Sequence[int]) -> dict[int, Vector]:
    return {k: atoms[np.asarray(labels) == k].mean(axis=0) for k in sorted(set(labels))}


def halves(front: Front, t: Vector, u: tuple[Vector, Vector], v: tuple[Vector, Vector]) -> Vector:
    """Split |z - u_k|^2 - |z - u_c|^2 with weights A^T w, w = 2 (u_c - u_k), from the midpoint of both v."""
    w = 2 * (u[0] - u[1])
    return np.asarray((front.A.T @ w) * (t - (v[0] + v[1]) / 2))


def softmax_weights(h: dict[int, float], beta: float) -> dict[int, float]:
    """Return a_k = p_k f_c / h_k, where p is the softmax of -beta h."""
    f = min(h.values())
    p = {k: math.exp(-beta * (h[k] - f)) for k in h}
    return {k: p[k] / sum(p.values()) * (f / h[k] if h[k] != 0 else 1.0) for k in h}


def combine(pairs: dict[int, Pair], a: dict[int, float]) -> Vector:
    """Return R = sum_k a_k e_k."""
    f = min(h for h, _, _ in pairs.values())
    result = np.zeros(len(next(iter(pairs.values()))[2]))
    for k, (h, constant, split) in pairs.items():
        assert math.isclose(split.sum() + constant, h, rel_tol=1e-6, abs_tol=1e-8 * max(abs(h), abs(f)))
        result += a[k] * split
    return result


Contrast = Callable[[int, int, int], Pair]
"""Takes a row, its cluster and a competitor."""


@dataclass(frozen=True)
class Own:
    """The stiffness of a model and, if it gives probabilities, the weights of its clusters."""

    stiffness: float | None = None
    weights: Vector | None = None


def explain(
    pairs: Sequence[dict[int, Pair]],
    labels: Sequence[int],
    rule: str,
    own: Own | None = None,
    stands_for: Sequence[dict[int, set[int]]] | None = None,
) -> Matrix:
    """Explain every row for its own cluster, by the atoms.

    ``pairs`` holds the competitors of each row, and ``stands_for`` the clusters that each of them stands for,
    by default only itself. For the paper's rule, beta is 1 / mean f_c. For the path
    rule, it is four times as much, unless the model has its own.
    """
    evidence = [{k: h for k, (h, _, _) in of_row.items()} for of_row in pairs]
    beta = 1 / float(np.mean([min(h.values()) for h in evidence]))
    if rule == "min-take-most":
        a = [softmax_weights(h, beta) for h in evidence]
    else:
        stiffness, weights = (None, None) if own is None else (own.stiffness, own.weights)
        n_clusters = max(max(c, *h) for h, c in zip(evidence, labels, strict=True)) + 1
        w = [max(1, list(labels).count(k)) for k in range(n_clusters)] if weights is None else weights
        beta = 4 * beta if stiffness is None else stiffness
        groups = [{k: {k} for k in h} for h in evidence] if stands_for is None else stands_for
        a = [
            path_weights(h, beta, {k: sum(w[j] for j in of[k]) / w[c] for k in h}, weights is not None)
            for h, c, of in zip(evidence, labels, groups, strict=True)
        ]
    return np.array([combine(of_row, of_k) for of_row, of_k in zip(pairs, a, strict=True)])


def with_all(clusters: Sequence[int], labels: Sequence[int], contrast: Contrast) -> list[dict[int, Pair]]:
    """Return the contrasts of each row with all competitors."""
    return [{k: contrast(row, c, k) for k in clusters if k != c} for row, c in enumerate(labels)]


def add_up(relevance: Matrix, source: Sequence[int], n_columns: int) -> Matrix:
    """Add up the relevance of the atoms of each column."""
    result = np.zeros((len(relevance), n_columns))
    for atom, column in enumerate(source):
        result[:, column] += relevance[:, atom]
    return result


def nearest(
    front: Front,
    atoms: Matrix,
    centroids: dict[int, Vector],
    labels: Sequence[int],
    rule: str = "min-take-most",
) -> Matrix:
    """Explain k-means and other nearest-centroid models."""
    means = member_means(atoms, labels)
    points = {k: front.moved_onto(means.get(k, front.base), mu) for k, mu in centroids.items()}

    def contrast(row: int, c: int, k: int) -> Pair:
        z = front.to_z(atoms[row])
        u = centroids[c], centroids[k]
        h = float((z - u[1]) @ (z - u[1]) - (z - u[0]) @ (z - u[0]))
        return h, 0.0, halves(front, atoms[row], u, (points[c], points[k]))

    return explain(with_all(list(centroids), labels, contrast), labels, rule)


def kernel(
    front: Front,
    atoms: Matrix,
    support: dict[int, Matrix],
    gamma: float,
    labels: Sequence[int],
    log_weights: dict[int, Vector] | None = None,
    scale: float | Vector = 1.0,
    rule: str = "min-take-most",
) -> Matrix:
    """Explain kernel k-means; each pair of support vectors, i of c and j of k, counts as two centroids.

    The weight of a pair is q_i q_j. An infinite gamma is the hard minimum: the nearest subcluster takes all.
    """
    means = member_means(atoms, labels)
    if log_weights is None:
        log_weights = {k: np.full(len(u), -math.log(len(u))) for k, u in support.items()}
    logs, root = log_weights, np.sqrt(scale)
    points = {k: [front.moved_onto(means[k], u) for u in of_k] for k, of_k in support.items()}
    stretched = Front(front.A * np.reshape(root, (-1, 1)), front.base, front.o * root)

    def pool(z: Vector, k: int) -> tuple[float, Vector]:
        """Return s_k and the q_j."""
        squares = ((z - support[k]) ** 2 * scale).sum(axis=1)
        if math.isinf(gamma):
            return float(squares.min()), np.asarray(np.arange(len(squares)) == squares.argmin(), dtype=float)
        logits = logs[k] - gamma * squares
        top = float(logits.max())
        total = float(np.exp(logits - top).sum())
        return -(top + math.log(total)) / gamma, np.exp(logits - top) / total

    def contrast(row: int, c: int, k: int) -> Pair:
        z = front.to_z(atoms[row])
        (s_c, q_c), (s_k, q_k) = pool(z, c), pool(z, k)
        split = np.zeros(atoms.shape[1])
        for i, q_i in enumerate(q_c):
            for j, q_j in enumerate(q_k):
                u, v = (support[c][i] * root, support[k][j] * root), (points[c][i], points[k][j])
                split += q_i * q_j * halves(stretched, atoms[row], u, v)
        return s_k - s_c, s_k - s_c - float(split.sum()), split

    own = None if math.isinf(gamma) else Own(gamma)
    return explain(with_all(list(support), labels, contrast), labels, rule, own)


def gaussian(
    front: Front,
    atoms: Matrix,
    weights: Vector,
    means: Matrix,
    covariances: Matrix,
    labels: Sequence[int],
    rule: str = "min-take-most",
) -> Matrix:
    """Explain a mixture: h_k is quadratic, so its average slope from reference to row is that halfway.

    The reference is the point on the line between the two means that is equally far from both, in units of
    their covariances.
    """
    members = member_means(atoms, labels)
    points = [front.moved_onto(members.get(k, front.base), mean) for k, mean in enumerate(means)]
    precisions = [np.linalg.inv(S) for S in covariances]

    def energy(z: Vector, k: int) -> tuple[float, float]:
        """Return -log of the weighted density: the part that depends on z, and the part that does not."""
        away = z - means[k]
        log_det = float(np.linalg.slogdet(covariances[k])[1])
        return float(away @ precisions[k] @ away) / 2, log_det / 2 - math.log(weights[k])

    def slope(z: Vector, c: int, k: int) -> Vector:
        return np.asarray(precisions[k] @ (z - means[k]) - precisions[c] @ (z - means[c]))

    def contrast(row: int, c: int, k: int) -> Pair:
        t, z, apart = atoms[row], front.to_z(atoms[row]), means[c] - means[k]
        c_from_k = math.sqrt(apart @ precisions[k] @ apart)
        k_from_c = math.sqrt(apart @ precisions[c] @ apart)
        part = c_from_k / (c_from_k + k_from_c)
        m, m_z = ((1 - part) * v[c] + part * v[k] for v in (points, means))
        assert math.isclose(energy(m_z, c)[0], energy(m_z, k)[0], rel_tol=1e-8)
        w = (slope(z, c, k) + slope(m_z, c, k)) / 2
        (q_c, b_c), (q_k, b_k) = energy(z, c), energy(z, k)
        return q_k - q_c + b_k - b_c, b_k - b_c, (front.A.T @ w) * (t - m)

    return explain(with_all(range(len(means)), labels, contrast), labels, rule, Own(1.0, weights))


@dataclass(frozen=True)
class Node:
    """A node of a tree: its center, the clusters below it, and its two children, None if it is a cluster."""

    center: Vector
    under: frozenset[int]
    children: tuple[Node, Node] | None


def reached(z: Vector, node: Node) -> int:
    """Return the cluster that z reaches from a node, always by way of the nearer child."""
    if node.children is None:
        (cluster,) = node.under
        return cluster
    left, right = (float((z - child.center) @ (z - child.center)) for child in node.children)
    return reached(z, node.children[0 if left <= right else 1])


def tree(
    front: Front, atoms: Matrix, root: Node, labels: Sequence[int], rule: str = "min-take-most"
) -> Matrix:
    """Explain `BisectingKMeans`: each pair of nodes on the path counts as two centroids.

    The smallest evidence of the pairs is the evidence. The competitor at each pair is the cluster that the
    row would reach from the sibling.
    """
    given = np.asarray(labels)

    def point(node: Node) -> Vector:
        return front.moved_onto(atoms[np.isin(given, list(node.under))].mean(axis=0), node.center)

    def pairs(row: int) -> tuple[dict[int, Pair], dict[int, set[int]]]:
        node, z, found, below = root, front.to_z(atoms[row]), {}, {}
        while node.children is not None:
            own, sibling = node.children
            if labels[row] not in own.under:
                own, sibling = sibling, own
            split = halves(front, atoms[row], (own.center, sibling.center), (point(own), point(sibling)))
            far = [float((z - u.center) @ (z - u.center)) for u in (own, sibling)]
            k = reached(z, sibling)
            found[k], below[k] = (far[1] - far[0], 0.0, split), set(sibling.under)
            node = own
        return found, below

    found, below = zip(*(pairs(row) for row in range(len(atoms))), strict=True)
    return explain(found, labels, rule, stands_for=below)


def moved_by(relevance: Matrix, front: Front, atoms: Matrix) -> Matrix:
    """Share the relevance of z among the atoms, by how far each atom moved z from its mean."""
    result = np.zeros_like(atoms)
    mean = atoms.mean(axis=0)
    for row, t in enumerate(atoms):
        for j, R in enumerate(relevance[row]):
            moved = np.abs(front.A[j] * (t - mean))
            result[row] += R * moved / moved.sum()
    return result
