"""The kernel k-means estimator: several support vectors per cluster, pooled by a soft minimum."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike
from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin, ClusterMixin, TransformerMixin
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted

from whycluster.clustering.centers import centers_inside
from whycluster.clustering.kernel_passes import energies_of_every_cluster
from whycluster.clustering.validation import check_rows
from whycluster.core import outputs
from whycluster.core.arrays import Codes, Floats
from whycluster.core.attribution import run_rows
from whycluster.core.energies import KernelEnergy, SquaredEnergy
from whycluster.core.errors import InvalidInputError
from whycluster.core.passes import Block
from whycluster.data.arrays import is_real
from whycluster.data.labels import read_labels
from whycluster.data.table import ArrayTable
from whycluster.data.validation import check_integer
from whycluster.models.energies.noise import left_out

_INNER_STEPS = 30  # EM steps inside the initial clusters before rows are reassigned
_INNER_TOLERANCE = 1e-3  # relative change in the spread below which these steps stop early
_LEAST_SPREAD = 1e-12  # as a fraction of the total spread of the data; keeps gamma finite


@dataclass(eq=False, repr=False)
class KernelKMeans(ClassNamePrefixFeaturesOutMixin, TransformerMixin, ClusterMixin, BaseEstimator):  # type: ignore[misc]  # scikit-learn has no types
    """K-means whose clusters are soft minima over several support vectors (Eq. 6).

    Cluster k has the energy s_k(x) = -1/gamma log mean_j exp(-gamma |x - u_j|^2) over its support vectors
    u_j. Each row belongs to the cluster with the lowest energy. Fitting alternates two steps. With the
    assignments fixed, one EM step updates the support vectors of each cluster as the means of an equal-weight
    spherical mixture with precision 2 gamma. With the support vectors fixed, each row moves to the cluster
    with the lowest energy. Both steps reduce the sum of these lowest energies. With ``n_support=1`` this is
    k-means. `whycluster.explain` explains the model exactly.

    Parameters
    ----------
    n_clusters : number of clusters
    n_support : number of support vectors per cluster. A cluster that starts with fewer rows gets fewer.
    gamma : stiffness of the soft minimum. "auto" estimates it from the initial clusters, as half the
        maximum-likelihood precision of the mixtures fitted inside them, and then keeps it fixed.
    init : initial assignment: "k-means", or one label per row
    n_init : number of starts; the result with the lowest inertia is kept
    max_iter : maximum number of alternations per start. With 0, the support vectors are fitted to the initial
        assignment, and then the rows are assigned once.
    tol : stop when no assignment changes, or when the inertia improves by at most this fraction
    random_state : seed or generator for the k-means starts

    Attributes
    ----------
    labels_ : (n,) cluster of each row, as returned by `predict`
    support_vectors_ : (P, d) support vectors, grouped by cluster
    support_cluster_ : (P,) cluster of each support vector
    gamma_ : stiffness that was used
    inertia_ : sum of the lowest energies of all rows
    n_iter_ : number of alternations in the best start
    """

    n_clusters: int = 8
    _: KW_ONLY
    n_support: int = 10
    gamma: float | Literal["auto"] = "auto"
    init: Literal["k-means"] | ArrayLike = "k-means"
    n_init: int = 1
    max_iter: int = 100
    tol: float = 1e-4
    random_state: int | np.random.RandomState | None = None

    def fit(self, X: ArrayLike, y: object = None) -> KernelKMeans:  # noqa: ARG002  # scikit-learn's signature
        """Fit the support vectors.

        Parameters
        ----------
        X : (n, d) rows of numbers
        y : ignored
        """
        data = check_rows(self, X)
        self._check_parameters(len(data))
        rng = check_random_state(self.random_state)
        center = data.mean(axis=0)
        rows = data - center
        gamma, best = (None if isinstance(self.gamma, str) else float(self.gamma)), None
        for _ in range(self.n_init):  # all starts use the first gamma, so that inertias can be compared
            labels = self._initial_labels(rows, rng)
            start, gamma = _fit_inside(rows, labels, self.n_clusters, self.n_support, gamma, rng)
            found = _alternate(rows, start, self.max_iter, self.tol)
            best = found if best is None or found.inertia < best.inertia else best
        assert best is not None
        self.support_vectors_ = np.concatenate(best.support.vectors) + center
        self.support_cluster_ = np.repeat(np.arange(self.n_clusters), best.support.sizes)
        self.gamma_ = best.support.gamma
        self.inertia_, self.n_iter_ = best.inertia, best.n_iter
        self._n_features_out = self.n_clusters
        self.labels_ = outputs.assign(self.energy, ArrayTable.of(data))
        return self

    def transform(self, X: ArrayLike) -> Floats:
        """Return the energy of each row in each cluster, (n, K).

        Parameters
        ----------
        X : (n, d) rows of numbers
        """
        check_is_fitted(self)
        table = ArrayTable.of(check_rows(self, X, reset=False))
        return np.maximum(energies_of_every_cluster(self.energy, table), 0.0)

    def predict(self, X: ArrayLike) -> Codes:
        """Return the cluster with the lowest energy for each row, (n,).

        Parameters
        ----------
        X : (n, d) rows of numbers
        """
        check_is_fitted(self)
        return outputs.assign(self.energy, ArrayTable.of(check_rows(self, X, reset=False)))

    @property
    def energy(self) -> KernelEnergy:
        """The energies s_k of the fitted clusters."""
        sizes = np.bincount(self.support_cluster_, minlength=self.n_clusters)
        return KernelEnergy(self.support_vectors_, sizes, self.gamma_)

    def _initial_labels(self, rows: Floats, rng: np.random.RandomState) -> Codes:
        if isinstance(self.init, str):
            # With fewer distinct rows, some clusters start empty.
            centers = centers_inside(rows, self.n_clusters, 20, rng)
            return outputs.assign(SquaredEnergy(centers), ArrayTable.of(rows))
        labels = np.asarray(self.init)
        whole = labels.dtype.kind in "iu" and labels.shape == (len(rows),)
        if whole and labels.min() >= 0 and labels.max() < self.n_clusters:
            return labels.astype(np.intp)  # the labels keep their numbers
        codes, names = read_labels(self.init, len(rows), "KernelKMeans.fit")
        if len(names) > self.n_clusters:
            raise InvalidInputError(
                f"KernelKMeans.fit: init must have at most n_clusters={self.n_clusters} distinct labels; "
                f"got {len(names)}."
            )
        return codes

    def _check_parameters(self, n_rows: int) -> None:
        for name, least in (("n_clusters", 1), ("n_support", 1), ("n_init", 1), ("max_iter", 0)):
            check_integer(getattr(self, name), least, "KernelKMeans.fit", name)
        gamma: Any = self.gamma
        automatic = isinstance(gamma, str) and gamma == "auto"
        if not automatic and not (is_real(gamma) and 0 < gamma < np.inf):
            raise InvalidInputError(
                f'KernelKMeans.fit: gamma must be "auto" or a number above 0; got {self.gamma!r}.'
            )
        if not (is_real(self.tol) and self.tol >= 0):
            raise InvalidInputError(f"KernelKMeans.fit: tol must be a nonnegative number; got {self.tol!r}.")
        if hasattr(self.init, "fit") or (isinstance(self.init, str) and self.init != "k-means"):
            raise InvalidInputError(
                f'KernelKMeans.fit: init must be "k-means" or one label per row; got {self.init!r}.'
            )
        if n_rows < self.n_clusters:
            raise InvalidInputError(
                f"KernelKMeans.fit: X must have at least n_clusters={self.n_clusters} rows; got "
                f"n_samples={n_rows}."
            )


@dataclass(frozen=True)
class _Support:
    """Support vectors per cluster, and gamma."""

    vectors: list[Floats]
    gamma: float

    @property
    def sizes(self) -> Codes:
        return np.array([len(vectors) for vectors in self.vectors])


@dataclass(frozen=True)
class _Fit:
    """The result of one start."""

    support: _Support
    inertia: float
    n_iter: int


@dataclass
class _Sums:
    """Sums over all rows from which the next support vectors are computed."""

    weight: Floats  # (P,) total share of each support vector
    total: Floats  # (P, d) sum of the rows, weighted by their shares
    squares: float = 0.0  # sum of squares of all rows
    inertia: float = 0.0

    def __add__(self, other: _Sums) -> _Sums:
        return _Sums(
            self.weight + other.weight,
            self.total + other.total,
            self.squares + other.squares,
            self.inertia + other.inertia,
        )

    def means(self, vectors: Floats) -> Floats:
        """Return the next support vectors; support vectors without any share stay in place."""
        used = self.weight > np.finfo(np.float64).eps
        return np.where(used[:, None], self.total / np.where(used, self.weight, 1.0)[:, None], vectors)

    def spread(self, vectors: Floats) -> float:
        """Return the sum of squared distances from rows to support vectors, weighted by the shares."""
        cross = np.einsum("pd,pd->", vectors, self.total)
        return float(self.squares - 2 * cross + self.weight @ np.einsum("pd,pd->p", vectors, vectors))


def _assign_rows(rows: Floats, support: _Support) -> tuple[Codes, Floats, _Sums]:
    """Assign all rows; return their clusters (n,), lowest energies (n,) and the sums for the next step."""
    energy = KernelEnergy(np.concatenate(support.vectors), support.sizes, support.gamma)
    table, n_units = ArrayTable.of(rows), energy.units.n_clusters
    labels, least = np.empty(len(rows), np.intp), np.empty(len(rows))
    parts: dict[int, _Sums] = {}

    def work(block: Block) -> None:
        x, s = block.x, block.h
        energy.energies(x, s, block.scratch)
        labels[block.rows] = own = s.argmin(axis=1)
        squares = left_out(energy, x, block.relevance)
        least[block.rows] = s[np.arange(block.n_rows), own] + squares
        raw = rows[block.rows]
        sums = _Sums(np.zeros(n_units), np.zeros((n_units, rows.shape[1])))
        sums.squares, sums.inertia = float(np.einsum("bd,bd->", raw, raw)), float(least[block.rows].sum())
        for k in np.unique(own):  # a row only moves the support vectors of its own cluster
            members, part = np.flatnonzero(own == k), energy.clusters[k]
            q = energy.shares(x[members], int(k))
            sums.weight[part], sums.total[part] = q.sum(axis=1), q @ raw[members]
        parts[block.start] = sums

    run_rows(work, energy, table)
    first, *others = (parts[start] for start in sorted(parts))  # in order, so that results are reproducible
    return labels, least, sum(others, first)


def _fit_inside(
    rows: Floats,
    labels: Codes,
    n_clusters: int,
    n_support: int,
    gamma: float | None,
    rng: np.random.RandomState,
) -> tuple[_Support, float]:
    """Fit support vectors inside the initial clusters by EM; estimate gamma if it is None."""
    members = [rows[labels == k] for k in range(n_clusters)]
    members = [own if len(own) else _around(rows, rng.randint(len(rows)), n_support) for own in members]
    vectors = [centers_inside(own, n_support, 10, rng) for own in members]
    used = _precision(rows, 0.0) if gamma is None else gamma  # at first, the nearest support vector takes all
    before = np.inf
    for _ in range(_INNER_STEPS):
        sums = [_assign_rows(own, _Support([u], used))[2] for own, u in zip(members, vectors, strict=True)]
        spread = sum(part.spread(u) for part, u in zip(sums, vectors, strict=True))
        vectors = [part.means(u) for part, u in zip(sums, vectors, strict=True)]
        used = _precision(rows, spread) if gamma is None else used
        if abs(before - spread) <= _INNER_TOLERANCE * spread:
            break
        before = spread
    return _Support(vectors, used), used


def _precision(rows: Floats, spread: float) -> float:
    """Return half the precision of spherical Gaussians with this sum of squared distances."""
    total = float(np.einsum("nd,nd->", rows, rows))
    return 0.5 * rows.size / max(spread, _LEAST_SPREAD * total) if total > 0.0 else 1.0


def _alternate(rows: Floats, support: _Support, max_iter: int, tol: float) -> _Fit:
    """Alternate assignment and EM steps until the assignments or the inertia converge."""
    labels, inertia, n_iter = np.empty(0, np.intp), np.inf, 0
    while True:
        before, previous = inertia, labels
        labels, least, sums = _assign_rows(rows, support)
        inertia = sums.inertia
        converged = np.array_equal(labels, previous) or before - inertia <= tol * inertia
        if converged or n_iter >= max_iter:
            return _Fit(support, inertia, n_iter)
        support = _update_support(rows, labels, least, sums, support)
        n_iter += 1


def _update_support(rows: Floats, labels: Codes, least: Floats, sums: _Sums, support: _Support) -> _Support:
    """Return the next support vectors; an empty cluster moves to the row with the worst fit."""
    stops = np.cumsum(support.sizes)
    vectors = np.split(sums.means(np.concatenate(support.vectors)), stops[:-1])
    for k in np.flatnonzero(np.bincount(labels, minlength=len(vectors)) == 0):
        worst = int(least.argmax())
        least[worst] = -np.inf  # the next empty cluster takes another row
        vectors[k] = _around(rows, worst, len(vectors[k]))
    return _Support(vectors, support.gamma)


def _around(rows: Floats, row: int, n_support: int) -> Floats:
    """Return support vectors close to a row, each shifted slightly toward one of the row's neighbors."""
    x = rows[row]
    distance = np.einsum("nd,nd->n", rows - x, rows - x)
    near = rows[np.argsort(distance, kind="stable")[:n_support]]
    return np.asarray(x + (near - x) / 16)
