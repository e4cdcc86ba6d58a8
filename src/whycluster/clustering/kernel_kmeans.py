"""Kernel k-means as an estimator: a few support vectors per cluster, pooled by a soft minimum."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike
from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin, ClusterMixin, TransformerMixin
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted

from whycluster.clustering.centers import centers_inside
from whycluster.core import attribution, blocks
from whycluster.core.arrays import Codes, Floats
from whycluster.core.blocks import Workspace
from whycluster.core.energies import KernelEnergy, SquaredEnergy
from whycluster.core.errors import InvalidInputError
from whycluster.data.arrays import is_real
from whycluster.data.labels import read_labels
from whycluster.data.table import ArrayTable
from whycluster.data.validation import check_whole
from whycluster.models.estimators import check_rows

_INNER_STEPS = 30  # EM steps inside the initial clusters before rows are assigned anew
_INNER_TOLERANCE = 1e-3  # relative change of the spread that ends them earlier
_LEAST_SPREAD = 1e-12  # of the data's own, so that gamma stays finite


class KernelKMeans(ClassNamePrefixFeaturesOutMixin, TransformerMixin, ClusterMixin, BaseEstimator):  # type: ignore[misc]  # scikit-learn has no types
    """K-means whose clusters are soft minima over a few support vectors (Eq. 6).

    Cluster k has the energy s_k(x) = -1/gamma log mean_j exp(-gamma |x - u_j|^2) over its support vectors
    u_j, and a row belongs to the cluster of least energy. Fitting alternates: given the assignments, the
    support vectors of a cluster are the means of an equal-weight spherical mixture with precision 2 gamma (a
    step of EM); given the support vectors, each row goes to the least energy. Both lower the sum of the
    least energies. With ``n_support=1`` it is k-means. `whycluster.explain` explains it exactly.

    Parameters
    ----------
    n_clusters : the number of clusters
    n_support : support vectors per cluster; fewer where a cluster starts with fewer rows
    gamma : the stiffness of the soft minimum. "auto" is half the precision, by maximum likelihood, of the
        mixtures fitted inside the initial clusters, and is then kept.
    init : the initial assignment: "k-means", or one label for each row
    n_init : the number of starts; the one with the least inertia is kept
    max_iter : the most alternations of a start. 0 keeps the initial assignment: the support vectors are
        fitted to it, and the rows are then assigned once.
    tol : stop when no assignment changes, or the inertia improves by no more than this part of it
    random_state : seed, or generator, of the k-means starts

    Attributes
    ----------
    labels_ : (n,) the cluster of each row, as `predict` gives it
    support_vectors_ : (P, d) cluster by cluster
    support_cluster_ : (P,) the cluster of each
    gamma_ : the stiffness in use
    inertia_ : the sum of the least energies of all rows
    n_iter_ : the alternations of the best start
    """

    def __init__(
        self,
        n_clusters: int = 8,
        *,
        n_support: int = 10,
        gamma: float | Literal["auto"] = "auto",
        init: Literal["k-means"] | ArrayLike = "k-means",
        n_init: int = 1,
        max_iter: int = 100,
        tol: float = 1e-4,
        random_state: int | np.random.RandomState | None = None,
    ) -> None:
        self.n_clusters = n_clusters
        self.n_support = n_support
        self.gamma = gamma
        self.init = init
        self.n_init = n_init
        self.max_iter = max_iter
        self.tol = tol
        self.random_state = random_state

    def fit(self, X: ArrayLike, y: object = None) -> KernelKMeans:  # noqa: ARG002  # scikit-learn's signature
        """Fit the support vectors to the rows of X; y is not used."""
        data = check_rows(self, X)
        self._check_parameters(len(data))
        rng = check_random_state(self.random_state)
        center = data.mean(axis=0)
        rows = data - center
        gamma, best = (None if isinstance(self.gamma, str) else float(self.gamma)), None
        for _ in range(self.n_init):  # all with the gamma of the first, or their inertias would not compare
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
        self.labels_ = attribution.assign(self.energy, ArrayTable.of(data))
        return self

    def transform(self, X: ArrayLike) -> Floats:
        """The energies of every cluster, (n, K)."""
        check_is_fitted(self)
        table = ArrayTable.of(check_rows(self, X, reset=False))
        return np.maximum(attribution.energies_of_every_cluster(self.energy, table), 0.0)

    def predict(self, X: ArrayLike) -> Codes:
        """The cluster of least energy of each row, (n,)."""
        check_is_fitted(self)
        return attribution.assign(self.energy, ArrayTable.of(check_rows(self, X, reset=False)))

    @property
    def energy(self) -> KernelEnergy:
        """The energies s_k, as a network has them."""
        sizes = np.bincount(self.support_cluster_, minlength=self.n_clusters)
        return KernelEnergy(self.support_vectors_, sizes, self.gamma_)

    def _initial_labels(self, rows: Floats, rng: np.random.RandomState) -> Codes:
        if isinstance(self.init, str):
            centers = centers_inside(rows, self.n_clusters, 20, rng)  # fewer rows: the rest starts empty
            return attribution.assign(SquaredEnergy(centers), ArrayTable.of(rows))
        labels = np.asarray(self.init)
        whole = labels.dtype.kind in "iu" and labels.shape == (len(rows),)
        if whole and labels.min() >= 0 and labels.max() < self.n_clusters:
            return labels.astype(np.intp)  # they keep their numbers
        codes, names = read_labels(self.init, len(rows), "KernelKMeans.fit")
        if len(names) > self.n_clusters:
            raise InvalidInputError(
                f"KernelKMeans.fit: init must have at most n_clusters={self.n_clusters} different labels; "
                f"got {len(names)}."
            )
        return codes

    def _check_parameters(self, n_rows: int) -> None:
        for name, least in (("n_clusters", 1), ("n_support", 1), ("n_init", 1), ("max_iter", 0)):
            check_whole(getattr(self, name), least, "KernelKMeans.fit", name)
        gamma: Any = self.gamma
        automatic = isinstance(gamma, str) and gamma == "auto"
        if not automatic and not (is_real(gamma) and 0 < gamma < np.inf):
            raise InvalidInputError(
                f'KernelKMeans.fit: gamma must be "auto" or a number above 0; got {self.gamma!r}.'
            )
        if not (is_real(self.tol) and self.tol >= 0):
            raise InvalidInputError(
                f"KernelKMeans.fit: tol must be a number of at least 0; got {self.tol!r}."
            )
        if hasattr(self.init, "fit") or (isinstance(self.init, str) and self.init != "k-means"):
            raise InvalidInputError(
                f'KernelKMeans.fit: init must be "k-means" or one label for each row; got {self.init!r}.'
            )
        if n_rows < self.n_clusters:
            raise InvalidInputError(
                f"KernelKMeans.fit: X must have at least n_clusters={self.n_clusters} rows; got "
                f"n_samples={n_rows}."
            )


@dataclass(frozen=True)
class _Support:
    """The support vectors of each cluster, and gamma."""

    vectors: list[Floats]
    gamma: float

    @property
    def sizes(self) -> Codes:
        return np.array([len(vectors) for vectors in self.vectors])


@dataclass(frozen=True)
class _Fit:
    support: _Support
    inertia: float
    n_iter: int


@dataclass
class _Sums:
    """What a pass over the rows adds up for the next support vectors."""

    weight: Floats  # (P,) the shares of each
    total: Floats  # (P, d) the rows times their shares
    squares: float = 0.0  # of all rows
    inertia: float = 0.0

    def __add__(self, other: _Sums) -> _Sums:
        return _Sums(
            self.weight + other.weight,
            self.total + other.total,
            self.squares + other.squares,
            self.inertia + other.inertia,
        )

    def means(self, vectors: Floats) -> Floats:
        """The next support vectors; one that no row has a share in stays."""
        used = self.weight > np.finfo(np.float64).eps
        return np.where(used[:, None], self.total / np.where(used, self.weight, 1.0)[:, None], vectors)

    def spread(self, vectors: Floats) -> float:
        """The squared distances of the rows to the support vectors, weighted with their shares."""
        cross = np.einsum("pd,pd->", vectors, self.total)
        return float(self.squares - 2 * cross + self.weight @ np.einsum("pd,pd->p", vectors, vectors))


def _pass(rows: Floats, support: _Support) -> tuple[Codes, Floats, _Sums]:
    """Assign all rows: their clusters (n,), least energies (n,), and what the next support vectors need."""
    energy = KernelEnergy(np.concatenate(support.vectors), support.sizes, support.gamma)
    table, n_units = ArrayTable.of(rows), energy.units.n_clusters
    labels, least = np.empty(len(rows), np.intp), np.empty(len(rows))
    parts: dict[int, _Sums] = {}

    def work(space: Workspace, start: int, stop: int) -> None:
        n_rows = stop - start
        x = table.read(start, stop, energy.offset, space.x[:n_rows])
        s = space.h[:n_rows]
        energy.energies(x, s, space.scratch[:n_rows])
        labels[start:stop] = own = s.argmin(axis=1)
        squares = energy.units.left_out(x, space.relevance[:n_rows])
        least[start:stop] = s[np.arange(n_rows), own] + squares
        raw = rows[start:stop]
        sums = _Sums(np.zeros(n_units), np.zeros((n_units, rows.shape[1])))
        sums.squares, sums.inertia = float(np.einsum("bd,bd->", raw, raw)), float(least[start:stop].sum())
        for k in np.unique(own):  # a row moves the support vectors of its cluster only
            members, part = np.flatnonzero(own == k), energy.clusters[k]
            q = energy.shares(x[members], int(k))
            sums.weight[part], sums.total[part] = q.sum(axis=1), q @ raw[members]
        parts[start] = sums

    blocks.run(work, energy, len(rows))
    first, *others = (parts[start] for start in sorted(parts))  # in order: the same sums every time
    return labels, least, sum(others, first)


def _fit_inside(
    rows: Floats,
    labels: Codes,
    n_clusters: int,
    n_support: int,
    gamma: float | None,
    rng: np.random.RandomState,
) -> tuple[_Support, float]:
    """Support vectors fitted inside the initial clusters by EM; gamma is estimated where it is None."""
    members = [rows[labels == k] for k in range(n_clusters)]
    members = [own if len(own) else _around(rows, rng.randint(len(rows)), n_support) for own in members]
    vectors = [centers_inside(own, n_support, 10, rng) for own in members]
    used = _precision(rows, 0.0) if gamma is None else gamma  # to begin with, the nearest takes all
    before = np.inf
    for _ in range(_INNER_STEPS):
        sums = [_pass(own, _Support([u], used))[2] for own, u in zip(members, vectors, strict=True)]
        spread = sum(part.spread(u) for part, u in zip(sums, vectors, strict=True))
        vectors = [part.means(u) for part, u in zip(sums, vectors, strict=True)]
        used = _precision(rows, spread) if gamma is None else used
        if abs(before - spread) <= _INNER_TOLERANCE * spread:
            break
        before = spread
    return _Support(vectors, used), used


def _precision(rows: Floats, spread: float) -> float:
    """Half the precision of spherical Gaussians that leave this sum of squared distances."""
    total = float(np.einsum("nd,nd->", rows, rows))
    return 0.5 * rows.size / max(spread, _LEAST_SPREAD * total) if total > 0.0 else 1.0


def _alternate(rows: Floats, support: _Support, max_iter: int, tol: float) -> _Fit:
    """Assign, take a step of EM, and so on, until the assignments or the inertia settle."""
    labels, inertia, n_iter = np.empty(0, np.intp), np.inf, 0
    while True:
        before, previous = inertia, labels
        labels, least, sums = _pass(rows, support)
        inertia = sums.inertia
        settled = np.array_equal(labels, previous) or before - inertia <= tol * inertia
        if settled or n_iter >= max_iter:
            return _Fit(support, inertia, n_iter)
        support = _step(rows, labels, least, sums, support)
        n_iter += 1


def _step(rows: Floats, labels: Codes, least: Floats, sums: _Sums, support: _Support) -> _Support:
    """The next support vectors; an empty cluster moves to the row that fits worst."""
    stops = np.cumsum(support.sizes)
    vectors = np.split(sums.means(np.concatenate(support.vectors)), stops[:-1])
    for k in np.flatnonzero(np.bincount(labels, minlength=len(vectors)) == 0):
        worst = int(least.argmax())
        least[worst] = -np.inf  # the next one takes another row
        vectors[k] = _around(rows, worst, len(vectors[k]))
    return _Support(vectors, support.gamma)


def _around(rows: Floats, row: int, n_support: int) -> Floats:
    """Support vectors close to a row, towards its neighbours, so that it joins them."""
    x = rows[row]
    distance = np.einsum("nd,nd->n", rows - x, rows - x)
    near = rows[np.argsort(distance, kind="stable")[:n_support]]
    return np.asarray(x + (near - x) / 16)
