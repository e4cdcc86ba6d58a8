"""Samplers, which draw the unknown features of a row given its known features.

A sampler is a function ``sampler(rows, known, rng)`` of (b, d) rows, (b, d) booleans and a NumPy generator.
It returns (b, d) rows in which the known features are unchanged.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.optimize import brentq

from whycluster.core.arrays import Codes, Floats
from whycluster.core.errors import InvalidInputError
from whycluster.data.arrays import is_real, to_finite_array
from whycluster.data.opening import column_names, open_table
from whycluster.data.validation import check_integer

Known: TypeAlias = NDArray[np.bool_]
Sampler: TypeAlias = Callable[[Floats, Known, np.random.Generator], Floats]

MOST_ROWS = 10_000  # maximum number of rows in a density
_MOST_LEFT_OUT = 1 << 22  # number of pairs of rows used to choose the bandwidth (32 MB)
_SHARP = 0.25  # a bandwidth that excludes rows with a different category, whose weight is at most exp(-16)
_MOST_PAIRS = 1 << 20  # number of distances in each of two or three arrays (8 MB) in memory at once


class ConditionalKDE:
    """A kernel density estimate of the data, conditioned on the known features.

    The density completes a row z with known features I in two steps. First, it draws a row x_j of the data
    with a weight of exp(-|z_I - x_jI|^2 / 2 s^2). Then it draws each missing feature from a normal
    distribution around the value in that row, with variance s^2. Distances are in standard deviations of each
    feature. In a categorical feature, all categories are equally far apart, at a distance that makes two rows
    differ on average as much as in a numeric feature. Categories are copied from x_j without noise. A feature
    that is constant in X is always drawn as this constant, and does not count for distances.

    Parameters
    ----------
    X : (N, d) the data; if there are more than 10,000 rows, a random sample of 10,000 rows is used
    bandwidth : s, in standard deviations; by default, the bandwidth with the largest leave-one-out
        likelihood, which solves s^2 = 1/(N d) sum_ij w_ij |x_i - x_j|^2, where w_i is the softmax over j != i
        of -|x_i - x_j|^2 / 2 s^2, and d is the number of features that vary
    categorical : (d,) booleans, True for features that contain category codes; by default, all False
    feature_names : (d,) names for the columns of an array, for error messages
    random_state : random seed for the sample

    Attributes
    ----------
    rows : (N, d) the rows from which the density is estimated
    feature_names : the column names of X, or None if X has no column names
    scale : (d,) standard deviations of the features, or 0 for categorical and for constant features
    bandwidth : s
    """

    def __init__(
        self,
        X: Any,
        *,
        bandwidth: float | None = None,
        categorical: ArrayLike | None = None,
        feature_names: Sequence[Hashable] | None = None,
        random_state: int = 0,
    ) -> None:
        check_integer(random_state, 0, "ConditionalKDE", "random_state")
        table = open_table(X, where="ConditionalKDE", feature_names=feature_names)
        rows = to_finite_array(table)
        if len(rows) < 2:
            raise InvalidInputError("ConditionalKDE: X must have at least 2 rows; got 1.")
        rng = np.random.default_rng(random_state)
        if len(rows) > MOST_ROWS:
            rows = rows[np.sort(rng.choice(len(rows), MOST_ROWS, replace=False))]
        self.rows = rows
        self.feature_names = column_names(X, "ConditionalKDE", "X")
        d = rows.shape[1]
        self.categorical = np.zeros(d, bool) if categorical is None else np.array(categorical)
        if self.categorical.shape != (d,) or self.categorical.dtype != bool:
            raise InvalidInputError(
                f"ConditionalKDE: categorical must be {d} booleans, one per feature; got {categorical!r}."
            )
        varies = _varying(rows)
        self._n_varying = int(varies.sum())
        deviations = _deviations(rows, varies)
        self.scale = np.where(self.categorical, 0.0, deviations)
        self._source, self._code = _columns(rows, self.categorical)
        center, factor = _standard(rows, self.categorical, deviations, varies)
        self._center, self._factor = center[self._source], factor[self._source]
        self._points = self._widen(rows)
        self._squares = self._points**2
        self.bandwidth = self._choose_bandwidth(bandwidth, rng)

    def __call__(self, rows: Floats, known: Known, rng: np.random.Generator) -> Floats:
        """Draw one completion of each row, where ``rows`` and the booleans ``known`` have shape (b, d)."""
        rows, known = np.asarray(rows, dtype=np.float64), np.asarray(known)
        if rows.ndim != 2 or rows.shape[1] != self.rows.shape[1] or known.shape != rows.shape:
            raise InvalidInputError(
                f"ConditionalKDE: rows and known must both have shape (b, {self.rows.shape[1]}); got "
                f"{rows.shape} and {known.shape}."
            )
        if known.dtype != bool:
            raise InvalidInputError(f"ConditionalKDE: known must be a boolean array; got {known.dtype}.")
        return np.asarray(self.draw(rows, known, 1, rng)[0])

    def draw(self, rows: Floats, known: Known, repeats: int, rng: np.random.Generator) -> Floats:
        """Draw several completions of each row, (repeats, b, d).

        Parameters
        ----------
        rows : (b, d) the rows
        known : (b, d) whether each value is kept; all others are drawn
        repeats : the number of completions of each row
        rng : the random generator
        """
        drawn = np.empty((repeats, *rows.shape))
        size = max(1, _MOST_PAIRS // len(self.rows))
        for start in range(0, len(rows), size):
            part = slice(start, start + size)
            chosen = self._choose_rows(rows[part], known[part], repeats, rng)
            drawn[:, part] = self.rows[chosen]
        noise = np.asarray(rng.standard_normal(drawn.shape))
        noise *= self.bandwidth * self.scale
        drawn += noise
        np.copyto(drawn, rows, where=known)
        return drawn

    def _choose_rows(self, rows: Floats, known: Known, repeats: int, rng: np.random.Generator) -> Codes:
        """Draw the row of the data from which each completion starts, (repeats, b)."""
        with np.errstate(over="ignore", invalid="ignore"):  # checked
            weights = self._distances(rows, known)
            nearest = weights.min(axis=1, keepdims=True)
            self._check_near(rows, nearest[:, 0])
        weights -= nearest
        weights *= -0.5 / self.bandwidth**2
        np.exp(weights, out=weights)
        np.cumsum(weights, axis=1, out=weights)
        weights /= weights[:, -1:]
        # A single search finds all rows in one sorted array. Row i occupies the values from i to i + 1.
        at = np.arange(len(rows))
        weights += at[:, None]
        found = np.searchsorted(weights.ravel(), rng.random((repeats, len(rows))) + at, side="right")
        return np.asarray(np.minimum(found - at * len(self.rows), len(self.rows) - 1))

    def _distances(self, rows: Floats, known: Known) -> Floats:
        """Return |z_I - x_jI|^2 to all rows of the data, (b, N), up to a constant per row."""
        weight = known[:, self._source].astype(np.float64)
        distances: Floats = weight @ self._squares.T
        weight *= self._widen(rows)
        weight *= -2.0
        distances += weight @ self._points.T
        return distances

    def _check_near(self, rows: Floats, nearest: Floats) -> None:
        """Raise an error if the distances of a row overflow."""
        if np.isfinite(nearest).all():
            return
        row = rows[np.flatnonzero(~np.isfinite(nearest))[0]]
        far = np.abs(row / np.where(self.scale > 0, self.scale, np.inf)).argmax()
        raise InvalidInputError(
            f"ConditionalKDE: rows must not be so far from X that their distances overflow; a row has "
            f"{row[far]:.6g} in feature {far}, which has a standard deviation of {self.scale[far]:.6g} in X. "
            "Correct such values, or scale the data."
        )

    def _widen(self, rows: Floats) -> Floats:
        """Return rows with numbers in standard deviations and one column per category, (b, D)."""
        wide = rows[:, self._source]
        is_code = self.categorical[self._source]
        wide[:, is_code] = wide[:, is_code] == self._code[is_code]
        wide -= self._center
        wide *= self._factor
        return wide

    def _choose_bandwidth(self, given: Any, rng: np.random.Generator) -> float:
        if given is None:
            return self._likeliest(rng)
        if is_real(given) and 1e-6 <= given <= 1e6:
            return float(given)
        raise InvalidInputError(
            "ConditionalKDE: bandwidth must be a number of standard deviations, from 1e-6 to 1e6; got "
            f"{given!r}."
        )

    def _likeliest(self, rng: np.random.Generator) -> float:
        """Return the bandwidth with the largest leave-one-out likelihood over a sample of the rows."""
        n_rows = len(self.rows)
        left_out = rng.permutation(n_rows)[: max(1, _MOST_LEFT_OUT // n_rows)]
        points = self._points[left_out]
        distances = np.einsum("bd,bd->b", points, points)[:, None] - 2.0 * points @ self._points.T
        distances += self._squares.sum(axis=1)
        np.maximum(distances, 0.0, out=distances)
        distances /= self._n_varying
        own = np.arange(len(left_out)), left_out
        distances[own] = np.inf
        nearest = distances.min(axis=1, keepdims=True)
        if nearest.mean() < 1e-12 and self.categorical.all():
            return _SHARP
        if nearest.mean() < 1e-12:
            raise InvalidInputError(
                "ConditionalKDE: X must contain rows without duplicates to choose the bandwidth; every row "
                "has a duplicate. Drop the duplicates, or set bandwidth=... in standard deviations."
            )
        distances[own] = nearest[:, 0]  # any finite number, since its weight is set to 0 below
        d = self._n_varying

        def excess(log_variance: float) -> float:
            """Return log(mean squared distance under this variance's weights / variance)."""
            weights = np.exp((nearest - distances) * (0.5 * d * np.exp(-log_variance)))
            weights[own] = 0.0
            mean = np.einsum("bn,bn->b", weights, distances) / weights.sum(axis=1)
            return float(np.log(mean.mean()) - log_variance)

        # The weighted mean is between the smallest distance and the unweighted mean, which bracket the
        # solution.
        least, plain = nearest.mean(), distances.sum(axis=1).mean() / (n_rows - 1)
        log_variance = brentq(excess, np.log(least / 2), np.log(plain * 2), xtol=1e-4)
        return float(np.exp(0.5 * log_variance))


def _varying(rows: Floats) -> NDArray[np.bool_]:
    """Return which features vary by more than rounding errors, (d,); raise an error if none does."""
    rounding = 8 * np.finfo(np.float64).eps * np.abs(rows).max(axis=0)
    varies = np.asarray(np.ptp(rows, axis=0) > rounding)
    if not varies.any():
        raise InvalidInputError(
            f"ConditionalKDE: at least one feature of X must vary; all {len(rows)} rows are equal."
        )
    return varies


def _columns(rows: Floats, categorical: Known) -> tuple[Codes, Floats]:
    """Return, for each column of `_widen`, its feature and, if categorical, the code of its category."""
    source: list[int] = []
    code: list[float] = []
    for i, is_category in enumerate(categorical):
        codes = np.unique(rows[:, i]).tolist() if is_category else [np.nan]
        source += [i] * len(codes)
        code += codes
    return np.array(source), np.array(code)


def _deviations(rows: Floats, varies: Known) -> Floats:
    """Return standard deviations, computed without overflow or underflow of squares; 0 for constants."""
    span = np.where(varies, np.ptp(rows, axis=0), 1.0)
    return np.asarray(np.where(varies, span * ((rows - rows[0]) / span).std(axis=0), 0.0))


def _standard(rows: Floats, categorical: Known, deviations: Floats, varies: Known) -> tuple[Floats, Floats]:
    """Return the offset to subtract from each feature's columns, and the factor to multiply them by.

    With these values, the squared distance between two rows is 2 on average in each feature that varies, and
    0 in the others. For numbers,
    this requires a variance of 1; for categories, a mismatch must count 2 / (share of pairs of rows that
    differ).
    """
    center, factor = rows.mean(axis=0), np.zeros(rows.shape[1])
    np.divide(1.0, deviations, out=factor, where=varies)
    for i in np.flatnonzero(categorical & varies):
        share = np.unique(rows[:, i], return_counts=True)[1] / len(rows)
        center[i], factor[i] = 0.0, (1.0 - (share**2).sum()) ** -0.5
    return center, factor


def zero(rows: Floats, known: Known, rng: np.random.Generator) -> Floats:  # noqa: ARG001  # the signature of a sampler
    """Set missing features to 0, which suits activations of a network and standardized data."""
    return np.where(known, rows, 0.0)
