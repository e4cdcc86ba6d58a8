"""Fit a kernel network to labels: support vectors, their weights, gamma, and a floor for noise.

The model assigns cluster probabilities softmax(-gamma s). L-BFGS minimizes their cross-entropy with the
labels. The search starts from the means, weights and precision of a mixture inside each cluster. A ridge
penalty on the distance from this start keeps the parameters that the labels do not determine close to the
mixture.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from whycluster.clustering.centers import centers_inside
from whycluster.clustering.kernel_passes import energies_of_every_cluster
from whycluster.core import outputs
from whycluster.core.arrays import Codes, Floats
from whycluster.core.energies import Energy, KernelEnergy
from whycluster.data.table import ArrayTable
from whycluster.models.energies import FloorEnergy

_RIDGE = 0.3  # in units of one row's cross-entropy; values from 0.1 to 1 gave similar results
_STEPS, _FEWEST_STEPS = 100, 30  # L-BFGS steps; more would change only a few rows
MUCH_WORK = 2_000_000  # rows times support vectors; above this, fewer steps are taken
_BLOCK = 1 << 17  # number of values in a block (units x rows), small enough to stay in the cache
_SINGLE = 1e4  # up to this gamma |z|^2, single precision rounds logits by less than about 1e-3
_FARTHEST = 10.0  # largest change in log gamma
_LOWEST = -60.0  # exp of anything lower adds nothing, and denormal numbers would slow down products


@dataclass(frozen=True)
class KernelModel:
    """A fitted kernel network, in the units of its training rows.

    Attributes
    ----------
    support : (P, d) support vectors, grouped by cluster
    sizes : (G,) number of support vectors per cluster
    log_weights : (P,) log v_j
    gamma : stiffness of the soft minimum
    codes : (G,) code of each cluster; (G + 1,) if noise has a floor, with the code of noise last
    floor : constant energy of noise, or None if noise has no floor
    """

    support: Floats
    sizes: Codes
    log_weights: Floats
    gamma: float
    codes: Codes
    floor: float | None = None

    @property
    def clusters(self) -> KernelEnergy:
        """The energies of the clusters with support vectors."""
        return KernelEnergy(self.support, self.sizes, self.gamma, self.log_weights)

    def assign(self, rows: Floats) -> Codes:
        """Return the cluster code of each row."""
        energy: Energy = self.clusters
        if self.floor is not None:  # the split over features does not affect the assignment
            energy = FloorEnergy(self.clusters, self.floor, np.zeros(rows.shape[1]))
        return self.codes[outputs.assign(energy, ArrayTable.of(rows))]


def fit_kernel(rows: Floats, codes: Codes, n_support: int, noise: int | None, seed: int) -> KernelModel:
    """Fit a kernel network that predicts the codes of the rows.

    Parameters
    ----------
    rows : (n, d) centered rows, scaled so that all features matter
    codes : (n,) cluster code of each row
    n_support : average number of support vectors per cluster. Larger clusters get more, but no cluster gets
        more support vectors than it has members.
    noise : code of the rows to be modeled by a floor, or None if there are no such rows
    seed : random seed for k-means within the clusters
    """
    start = _initial_model(rows, codes, n_support, noise, seed)
    if len(start.codes) == 1:
        return start
    from scipy.optimize import minimize

    objective = _Objective(rows, codes, start)
    steps = max(_FEWEST_STEPS, int(_STEPS * min(1.0, MUCH_WORK / (len(rows) * objective.n_units))))
    options: Any = {"maxiter": steps, "ftol": 1e-7}
    found = minimize(objective.loss, np.zeros(objective.size), jac=True, method="L-BFGS-B", options=options)
    return objective.model(found.x)


def _initial_model(rows: Floats, codes: Codes, n_support: int, noise: int | None, seed: int) -> KernelModel:
    """Return a mixture per cluster: k-means centers, weighted by row counts, with one shared precision."""
    present = np.unique(codes)
    clusters = present[present != noise] if len(present) > 1 else present
    members = [rows[codes == code] for code in clusters]
    counts = np.array([len(own) for own in members])
    shares = np.maximum(1, np.rint(n_support * len(counts) * counts / counts.sum())).astype(int)
    support = [centers_inside(own, int(share), 20, seed) for own, share in zip(members, shares, strict=True)]
    nearest = [_nearest(own, u) for own, u in zip(members, support, strict=True)]
    weights = [np.bincount(unit, minlength=len(u)) for (unit, _), u in zip(nearest, support, strict=True)]
    n_free = counts.sum() - sum(len(u) for u in support)  # rows that are not support vectors themselves
    spread = sum(float(squares.sum()) for _, squares in nearest) / n_free if n_free > 0 else _gaps(members)
    model = KernelModel(
        support=np.concatenate(support),
        sizes=np.array([len(u) for u in support]),
        log_weights=np.log(np.maximum(np.concatenate(weights), 0.5) / len(rows)),
        gamma=0.5 * rows.shape[1] / max(spread, 1e-8),
        codes=clusters,
    )
    if noise is None or len(clusters) == len(present):
        return model
    return _with_floor(model, rows, codes == noise, noise)


def _nearest(rows: Floats, support: Floats) -> tuple[Codes, Floats]:
    """Return the nearest support vector of each row and the squared distance to it."""
    from sklearn.metrics import pairwise_distances_argmin_min

    unit, distance = pairwise_distances_argmin_min(rows, support)
    return np.asarray(unit, dtype=np.intp), np.square(distance)


def _gaps(members: list[Floats]) -> float:
    """Return the mean squared distance from a row to its nearest neighbor in the same cluster."""
    from sklearn.neighbors import NearestNeighbors

    several = [own for own in members if len(own) > 1]
    gaps = [np.square(NearestNeighbors(n_neighbors=1).fit(own).kneighbors()[0]).ravel() for own in several]
    return float(np.concatenate(gaps).mean()) if gaps else float(members[0].shape[1])


def _with_floor(model: KernelModel, rows: Floats, is_noise: NDArray[np.bool_], noise: int) -> KernelModel:
    """Return the model with the floor that misclassifies the fewest rows as noise or as not noise."""
    lowest = energies_of_every_cluster(model.clusters, ArrayTable.of(rows)).min(axis=1)
    order = np.argsort(-lowest, kind="stable")
    errors: NDArray[Any] = np.cumsum(~is_noise[order]) - np.cumsum(is_noise[order])
    return KernelModel(
        model.support,
        model.sizes,
        model.log_weights,
        model.gamma,
        np.append(model.codes, noise),
        float(lowest[order][errors.argmin()]),
    )


class _Objective:
    """The cross-entropy as a function of the change from the initial model.

    The change is a vector in natural units: log v_j (P), log gamma (1), the floor's logit (1), and 2 gamma
    (u_j - start), the change in the logit's slope (P d). Rows are processed in blocks and extended by a
    column of ones, so that one product gives log v_j - gamma |z - u_j|^2, up to the gamma |z|^2 common to all
    clusters.
    """

    def __init__(self, rows: Floats, codes: Codes, start: KernelModel) -> None:
        self.start = start
        self.n_units, self.d = start.support.shape
        self.size = self.n_units * (self.d + 1) + 2
        self._squares = np.square(rows).sum(axis=1)
        single = start.gamma * self._squares.max() < _SINGLE
        self._rows = np.ones((len(rows), self.d + 1), dtype=np.float32 if single else np.float64)
        self._rows[:, :-1] = rows
        place = np.zeros(start.codes.max() + 1, dtype=np.intp)
        place[start.codes] = np.arange(len(start.codes))
        self._codes = place[codes]
        stops = np.cumsum(start.sizes)
        self._clusters = [slice(b - a, b) for a, b in zip(start.sizes, stops, strict=True)]
        self._floor = None if start.floor is None else -start.gamma * start.floor  # as a logit

    def model(self, change: Floats) -> KernelModel:
        """Return the initial model with a change applied."""
        log_weights, log_gamma, floor, moves = self._parts(change)
        # The first step of the search can be arbitrarily long.
        gamma = self.start.gamma * float(np.exp(np.clip(log_gamma, -_FARTHEST, _FARTHEST)))
        return KernelModel(
            support=self.start.support + moves / (2 * gamma),
            sizes=self.start.sizes,
            log_weights=self.start.log_weights + log_weights,
            gamma=gamma,
            codes=self.start.codes,
            floor=None if self._floor is None else -(self._floor + float(floor)) / gamma,
        )

    def loss(self, change: Floats) -> tuple[float, Floats]:
        """Return the mean cross-entropy with the ridge penalty, and its gradient."""
        model = self.model(change)
        total, floor, pull = 0.0, 0.0, 0.0
        moments = np.zeros((self.n_units, self.d + 1))  # sums over rows, weighted by d loss / d unit
        step = max(64, _BLOCK // self.n_units)
        for begin in range(0, len(self._rows), step):
            some = slice(begin, begin + step)
            loss, units, shares = self._block(some, model)
            total += loss
            moments += units @ self._rows[some]
            if self._floor is not None:  # without a floor, the shares sum to 0 in every row
                floor += float(shares[-1].sum(dtype=np.float64))
                pull += float(self._squares[some] @ shares[:-1].sum(axis=0))
        gradient = self._gradient(change, model, moments, floor, pull)
        n = len(self._rows)
        return (total + _RIDGE / 2 * float(change @ change)) / n, (gradient + _RIDGE * change) / n

    def _block(self, some: slice, model: KernelModel) -> tuple[float, NDArray[Any], NDArray[Any]]:
        """Return a block's loss and its gradients for the unit logits, (P, b), and cluster logits, (G, b)."""
        rows, codes = self._rows[some], self._codes[some]
        units, logits = self._logits(rows, model)
        if model.floor is not None:
            floor = model.gamma * (self._squares[some] - model.floor)
            logits = np.vstack([logits, floor.astype(logits.dtype)])
        own = codes, np.arange(len(codes))
        logits -= logits.max(axis=0)
        shares = np.exp(logits)
        norm = shares.sum(axis=0)
        loss = float((np.log(norm) - logits[own]).sum(dtype=np.float64))
        shares /= norm
        shares[own] -= 1.0
        shares[np.abs(shares) < 1e-10] = 0.0  # avoids denormal numbers
        for share, part in zip(shares, self._clusters, strict=False):
            units[part] *= share
        return loss, units, shares

    def _logits(self, rows: NDArray[Any], model: KernelModel) -> tuple[NDArray[Any], NDArray[Any]]:
        """Return the unit shares q_j (P, b) and the cluster logits (G, b), up to -gamma |z|^2."""
        bias = model.log_weights - model.gamma * np.square(model.support).sum(axis=1)
        slopes = np.hstack([2 * model.gamma * model.support, bias[:, None]]).astype(rows.dtype)
        units = slopes @ rows.T
        logits = np.empty((len(self._clusters), len(rows)), rows.dtype)
        for logit, part in zip(logits, self._clusters, strict=True):
            pool = units[part]
            top = pool.max(axis=0)
            pool -= top
            np.maximum(pool, _LOWEST, out=pool)
            np.exp(pool, out=pool)
            total = pool.sum(axis=0)
            pool /= total
            logit[...] = top + np.log(total)
        return units, logits

    def _gradient(
        self, change: Floats, model: KernelModel, moments: Floats, floor: float, pull: float
    ) -> Floats:
        """Return the gradient of the loss without its ridge penalty."""
        weighted, mass = moments[:, :-1], moments[:, -1]
        moves = weighted - model.support * mass[:, None]
        spread = pull + mass @ np.square(model.support).sum(axis=1) - 2 * np.vdot(model.support, weighted)
        log_gamma = -model.gamma * spread - np.vdot(moves, self._parts(change)[3])  # units move with gamma
        return np.concatenate([mass, [log_gamma, floor], moves.ravel()])

    def _parts(self, change: Floats) -> tuple[Floats, Any, Any, Floats]:
        """Split a change into log weights, log gamma, floor logit and slopes."""
        p = self.n_units
        return change[:p], change[p], change[p + 1], change[p + 2 :].reshape(p, self.d)
