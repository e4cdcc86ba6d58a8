"""Search for the nearest points of each row, with trees in few dimensions and matrix products in many.

`Metric` defines how two rows are compared: as a distance, and as a sum of one term per feature. `RowFinder`
finds the points that equal a row.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from whycluster.core.arrays import Codes, Floats

_TREES = 15  # dimensions up to which trees are faster than products
_LEAF = 80  # points per leaf; in 8 dimensions, twice as fast as 20 points, and as scikit-learn's trees
_FEW_POINTS = 64  # for at most this many points, a product is faster than a tree
_WIDTH = 0.5  # how many members share a split, in units of their mean energy; chosen on three data sets
_PRODUCT_BYTES = 4 << 20  # the largest array of distances that a product writes


class Metric(ABC):
    """A distance d, and its energy g(d), an increasing function of d that is a sum over the features."""

    name: str
    n_features: int | None = None  # the number of features that the metric requires, if it requires one

    @abstractmethod
    def terms(self, x: Floats, points: Floats) -> Floats:
        """Return the terms of pairs of rows, (..., d), which sum to g(d)."""

    @abstractmethod
    def slopes(self, x: Floats, points: Floats) -> Floats:
        """Return the gradient of g(d) with respect to x, (..., d)."""

    @abstractmethod
    def energy(self, distance: Floats) -> Floats:
        """Return g(d)."""

    @abstractmethod
    def pool(self, x: Floats, points: Floats) -> Floats:
        """Return the mean terms of x and the points, (b, d), up to a factor per row; near points count more.

        A point at g(d) has the weight exp(-g(d) / r), where r is half the mean of g(d) over the points.
        """


class Euclidean(Metric):
    """The Euclidean distance; its square is the sum of the squared differences."""

    name = "euclidean"

    def terms(self, x: Floats, points: Floats) -> Floats:
        """Return (x - u)^2."""
        return np.asarray(np.square(x - points))

    def slopes(self, x: Floats, points: Floats) -> Floats:
        """Return 2 (x - u)."""
        return np.asarray(2.0 * (x - points))

    def energy(self, distance: Floats) -> Floats:
        """Return d^2."""
        return np.asarray(np.square(distance))

    def pool(self, x: Floats, points: Floats) -> Floats:
        """Return sum_j q_j (x - u_j)^2, by matrix products of rows measured from the mean of the points."""
        center = points.mean(axis=0)
        x, u = x - center, points - center
        squares = np.square(u)
        d2 = x @ (-2.0 * u.T)
        d2 += np.einsum("bd,bd->b", x, x)[:, None]
        d2 += squares.sum(axis=1)
        q = _shares(d2)
        found = np.square(x) * q.sum(axis=1)[:, None] - 2.0 * x * (q @ u) + q @ squares
        return np.asarray(np.maximum(found, 0.0, out=found))


class _Additive(Metric):
    """A metric whose terms are computed one feature at a time."""

    @abstractmethod
    def term(self, x: Floats, points: Floats, i: int) -> Floats:
        """Return the terms of feature i for all pairs of rows and points, (b, p)."""

    def pool(self, x: Floats, points: Floats) -> Floats:
        """Return sum_j q_j t_j for the terms t_j of each feature."""
        d = x.shape[1]
        q = _shares(np.sum([self.term(x, points, i) for i in range(d)], axis=0))
        return np.stack([np.einsum("bp,bp->b", q, self.term(x, points, i)) for i in range(d)], axis=1)


class Manhattan(_Additive):
    """The Manhattan distance, which is a sum of absolute differences."""

    name = "manhattan"

    def terms(self, x: Floats, points: Floats) -> Floats:
        """Return |x - u|."""
        return np.asarray(np.abs(x - points))

    def slopes(self, x: Floats, points: Floats) -> Floats:
        """Return the sign of x - u."""
        return np.asarray(np.sign(x - points))

    def energy(self, distance: Floats) -> Floats:
        """Return d."""
        return distance

    def term(self, x: Floats, points: Floats, i: int) -> Floats:
        """Return |x_i - u_i|."""
        return np.asarray(np.abs(x[:, i, None] - points[:, i]))


class Haversine(_Additive):
    """The angle between places on a sphere, given by latitude and longitude in radians.

    The haversine of the angle, sin^2(angle / 2), has one term for the latitudes and one for the longitudes.
    """

    name = "haversine"
    n_features = 2

    def terms(self, x: Floats, points: Floats) -> Floats:
        """Return sin^2(dlat / 2) and cos(lat) cos(lat') sin^2(dlon / 2)."""
        half = np.sin((x - points) / 2.0) ** 2
        half[..., 1] *= np.cos(x[..., 0]) * np.cos(points[..., 0])
        return np.asarray(half)

    def slopes(self, x: Floats, points: Floats) -> Floats:
        """Return the derivatives of the sum of both terms."""
        found = np.sin(x - points) / 2.0
        both = np.cos(points[..., 0])
        found[..., 0] -= np.sin(x[..., 0]) * both * np.sin((x - points)[..., 1] / 2.0) ** 2
        found[..., 1] *= np.cos(x[..., 0]) * both
        return np.asarray(found)

    def energy(self, distance: Floats) -> Floats:
        """Return sin^2(d / 2)."""
        return np.asarray(np.sin(distance / 2.0) ** 2)

    def term(self, x: Floats, points: Floats, i: int) -> Floats:
        """Return the term of the latitudes (0) or of the longitudes (1)."""
        half = np.sin((x[:, i, None] - points[:, i]) / 2.0) ** 2
        return np.asarray(half if i == 0 else half * np.cos(x[:, :1]) * np.cos(points[:, 0]))


METRICS: dict[str, Metric] = {metric.name: metric for metric in (Euclidean(), Manhattan(), Haversine())}


def _shares(energies: Floats) -> Floats:
    """Return exp(-(g - least g) / r) for energies g of shape (b, p), in place; r is half the mean of g."""
    np.maximum(energies, 0.0, out=energies)
    spread = _WIDTH * energies.mean(axis=1, keepdims=True)
    energies -= energies.min(axis=1, keepdims=True)
    np.divide(energies, -spread, out=energies, where=spread > 0.0)
    return np.asarray(np.exp(energies, out=energies))


class Points:
    """A set of points, in which the nearest ones to a row can be found.

    The number of points and features determines how they are searched. All ways return the same points,
    except where distances differ only by rounding.

    Parameters
    ----------
    points : (p, d)
    metric : how points are compared
    """

    def __init__(self, points: Floats, metric: Metric) -> None:
        self.points, self.metric = points, metric

    def __len__(self) -> int:
        return len(self.points)

    def nearest(self, x: Floats, n: int) -> tuple[Floats, Codes]:
        """Return the distances and positions of the n nearest points, (b, n) each, nearest first."""
        if self._tree is not None:
            distance, index = self._query(x, n)
            return np.reshape(distance, (len(x), n)), np.reshape(index, (len(x), n))
        if self.metric.name != "euclidean":
            from scipy.spatial.distance import cdist

            return _first(cdist(x, self.points, "cityblock"), n)
        size = max(1, _PRODUCT_BYTES // (8 * max(len(self), (n + 1) * x.shape[1])))
        parts = [self._by_product(x[start : start + size], n) for start in range(0, len(x), size)]
        distance, index = (np.concatenate(each) for each in zip(*parts, strict=True))
        return distance, index

    def _query(self, x: Floats, n: int) -> tuple[Floats, Codes]:
        if self.metric.name == "haversine":
            return self._tree.query(x, n)  # type: ignore[no-any-return]  # scikit-learn has no types
        return self._tree.query(x, n, p=1 if self.metric.name == "manhattan" else 2)  # type: ignore[no-any-return]

    @cached_property
    def _tree(self) -> Any:
        if self.metric.name == "haversine":
            from sklearn.neighbors import BallTree

            return BallTree(self.points, metric="haversine")
        if self.points.shape[1] > _TREES or len(self) < _FEW_POINTS:
            return None
        from scipy.spatial import cKDTree

        return cKDTree(self.points, leafsize=_LEAF)

    @cached_property
    def _centered(self) -> tuple[Floats, Floats, Floats]:
        center = self.points.mean(axis=0)
        moved = self.points - center
        return center, -2.0 * moved.T, np.einsum("pd,pd->p", moved, moved)

    def _by_product(self, x: Floats, n: int) -> tuple[Floats, Codes]:
        """Find candidates by a product, which loses digits, and compute their distances without loss."""
        center, slopes, squares = self._centered
        _, index = _first((x - center) @ slopes + squares, min(n + 1, len(self)))
        distance = np.sqrt(np.square(x[:, None] - self.points[index]).sum(axis=2))
        order = np.argsort(distance, axis=1, kind="stable")[:, :n]
        return np.take_along_axis(distance, order, axis=1), np.take_along_axis(index, order, axis=1)


def _first(values: Floats, n: int) -> tuple[Floats, Codes]:
    """Return the n smallest values of each row and their columns, in order."""
    if n < values.shape[1]:
        index: NDArray[np.intp] = np.argpartition(values, n - 1, axis=1)[:, :n]
    else:
        index = np.broadcast_to(np.arange(values.shape[1]), values.shape)
    found = np.take_along_axis(values, index, axis=1)
    order = np.argsort(found, axis=1, kind="stable")
    return np.take_along_axis(found, order, axis=1), np.take_along_axis(index, order, axis=1)


class RowFinder:
    """Finds the points that equal a row up to rounding.

    The points are sorted by their products with a fixed direction, so only points with almost the same
    product are compared with the row.

    Parameters
    ----------
    points : (p, d)
    precision : the largest distance, relative to the largest absolute value, up to which rows are equal
    """

    def __init__(self, points: Floats, precision: float) -> None:
        d = points.shape[1]
        self._direction = np.random.default_rng(0).normal(size=d)
        self._points, self._tolerance = points, precision * float(np.abs(points).max(initial=0.0))
        keys = points @ self._direction
        self._order = np.argsort(keys, kind="stable")
        self._keys = keys[self._order]
        # Products differ at most by this if the rows differ at most by the tolerance in every feature.
        self._window = 2.0 * (self._tolerance + np.finfo(float).eps) * float(np.abs(self._direction).sum())

    def find(self, x: Floats) -> tuple[Codes, Codes]:
        """Return all pairs of a row and a point that equal each other, as positions, ordered by row."""
        keys = x @ self._direction
        first = np.searchsorted(self._keys, keys - self._window, side="left")
        count = np.searchsorted(self._keys, keys + self._window, side="right") - first
        most = max(1, _PRODUCT_BYTES // (8 * x.shape[1]))
        batch = (np.cumsum(count) - count) // most
        parts = [self._compare(x, rows, first, count) for rows in _runs(batch)]
        row, point = (np.concatenate(each) for each in zip(*parts, strict=True))
        return row, point

    def _compare(self, x: Floats, rows: Codes, first: Codes, count: Codes) -> tuple[Codes, Codes]:
        """Return the pairs of some rows and the points that equal them."""
        row = np.repeat(rows, count[rows])
        starts = np.cumsum(count[rows]) - count[rows]
        place = np.arange(len(row)) - np.repeat(starts, count[rows]) + first[row]
        point = self._order[place]
        same = (np.abs(x[row] - self._points[point]) <= self._tolerance).all(axis=1)
        return row[same], point[same]


def _runs(batch: Codes) -> list[Codes]:
    """Return the positions of each run of equal values."""
    return np.split(np.arange(len(batch)), np.flatnonzero(np.diff(batch)) + 1)
