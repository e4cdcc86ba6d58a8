"""What a row may look like of which only some features are known: the missing ones are drawn.

A sampler is called as ``sampler(rows, known, rng)`` with (b, d) rows, (b, d) booleans and a NumPy generator,
and gives (b, d) rows that keep what is known.
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
from whycluster.data.validation import check_whole

Known: TypeAlias = NDArray[np.bool_]
Sampler: TypeAlias = Callable[[Floats, Known, np.random.Generator], Floats]

MOST_ROWS = 10_000  # that a density is made of
_MOST_LEFT_OUT = 1 << 22  # pairs of rows that the bandwidth is chosen by (32 MB)
_SHARP = 0.25  # a bandwidth at which a category that differs rules a row out: exp(-16) at least
_MOST_PAIRS = 1 << 20  # of distances that are held at once (8 MB, two or three times)


class ConditionalKDE:
    """Kernel density estimate of the data, conditioned on the features that are known.

    A row z of which the features I are known is completed in two steps: a row x_j of the data is drawn with a
    weight of exp(-|z_I - x_jI|^2 / 2 s^2), then each missing feature from a normal distribution around its
    value, with variance s^2. Distances are in standard deviations of each feature. A category is at a fixed
    distance from all others, such that two rows are on average as far apart in it as in a number, and is
    taken over as it is.

    Parameters
    ----------
    X : (N, d) the data; of more than 10,000 rows, a random sample of as many is used
    bandwidth : s; by default the one of greatest leave-one-out likelihood, which solves
        s^2 = 1/(N d) sum_ij w_ij |x_i - x_j|^2, where w_i is the softmax over j != i of -|x_i - x_j|^2 / 2
        s^2
    categorical : (d,) which features are codes of categories; by default none
    feature_names : (d,) names for the columns of an array, for messages
    random_state : seed of the sample
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
        check_whole(random_state, 0, "ConditionalKDE", "random_state")
        table = open_table(X, where="ConditionalKDE", feature_names=feature_names)
        rows = to_finite_array(table)
        if len(rows) < 2:
            raise InvalidInputError("ConditionalKDE: X must have at least 2 rows; got 1.")
        rng = np.random.default_rng(random_state)
        if len(rows) > MOST_ROWS:
            rows = rows[np.sort(rng.choice(len(rows), MOST_ROWS, replace=False))]
        self.rows = rows
        self.feature_names = column_names(X, "ConditionalKDE", "X")  # None where it has none
        d = rows.shape[1]
        self.categorical = np.zeros(d, bool) if categorical is None else np.array(categorical)
        if self.categorical.shape != (d,) or self.categorical.dtype != bool:
            raise InvalidInputError(
                f"ConditionalKDE: categorical must be {d} booleans, one per feature; got {categorical!r}."
            )
        _check_varying(rows, table.feature_names)
        deviations = _deviations(rows)
        self.scale = np.where(self.categorical, 0.0, deviations)
        self._source, self._code = _columns(rows, self.categorical)
        center, factor = _standard(rows, self.categorical, deviations)
        self._center, self._factor = center[self._source], factor[self._source]
        self._points = self._widen(rows)
        self._squares = self._points**2
        self.bandwidth = self._choose_bandwidth(bandwidth, rng)

    def __call__(self, rows: Floats, known: Known, rng: np.random.Generator) -> Floats:
        """One completion of each row; ``rows`` and ``known`` are (b, d), ``known`` of booleans."""
        rows, known = np.asarray(rows, dtype=np.float64), np.asarray(known)
        if rows.ndim != 2 or rows.shape[1] != self.rows.shape[1] or known.shape != rows.shape:
            raise InvalidInputError(
                f"ConditionalKDE: rows and known must both have shape (b, {self.rows.shape[1]}); got "
                f"{rows.shape} and {known.shape}."
            )
        if known.dtype != bool:
            raise InvalidInputError(f"ConditionalKDE: known must be of booleans; got dtype {known.dtype}.")
        return np.asarray(self.draw(rows, known, 1, rng)[0])

    def draw(self, rows: Floats, known: Known, repeats: int, rng: np.random.Generator) -> Floats:
        """Several completions of each row, (repeats, b, d)."""
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
        """Which row of the data each completion is taken from, (repeats, b)."""
        weights = self._distances(rows, known)
        weights -= weights.min(axis=1, keepdims=True)
        weights *= -0.5 / self.bandwidth**2
        np.exp(weights, out=weights)
        np.cumsum(weights, axis=1, out=weights)
        weights /= weights[:, -1:]
        # All rows in one sorted array, the i-th between i and i + 1, are searched at once.
        at = np.arange(len(rows))
        weights += at[:, None]
        found = np.searchsorted(weights.ravel(), rng.random((repeats, len(rows))) + at, side="right")
        return np.asarray(np.minimum(found - at * len(self.rows), len(self.rows) - 1))

    def _distances(self, rows: Floats, known: Known) -> Floats:
        """|z_I - x_jI|^2 to all rows of the data, (b, N), up to a constant of each row."""
        weight = known[:, self._source].astype(np.float64)
        distances: Floats = weight @ self._squares.T
        weight *= self._widen(rows)
        weight *= -2.0
        distances += weight @ self._points.T
        return distances

    def _widen(self, rows: Floats) -> Floats:
        """Rows with numbers in standard deviations and one column for each category, (b, D)."""
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
        """The bandwidth of greatest leave-one-out likelihood; of many rows, only some are left out."""
        n_rows = len(self.rows)
        left_out = rng.permutation(n_rows)[: max(1, _MOST_LEFT_OUT // n_rows)]
        points = self._points[left_out]
        distances = np.einsum("bd,bd->b", points, points)[:, None] - 2.0 * points @ self._points.T
        distances += self._squares.sum(axis=1)
        np.maximum(distances, 0.0, out=distances)
        distances /= self.rows.shape[1]
        own = np.arange(len(left_out)), left_out
        distances[own] = np.inf
        nearest = distances.min(axis=1, keepdims=True)
        if nearest.mean() < 1e-12 and self.categorical.all():
            return _SHARP
        if nearest.mean() < 1e-12:
            raise InvalidInputError(
                "ConditionalKDE: the bandwidth of the density is 0, since every row of X has a duplicate. "
                "Leave duplicates out, or say bandwidth=..., in standard deviations."
            )
        distances[own] = nearest[:, 0]  # any finite number: its weight is 0 below
        d = self.rows.shape[1]

        def excess(log_variance: float) -> float:
            """Log of the mean squared distance under the weights of this variance, over the variance."""
            weights = np.exp((nearest - distances) * (0.5 * d * np.exp(-log_variance)))
            weights[own] = 0.0
            mean = np.einsum("bn,bn->b", weights, distances) / weights.sum(axis=1)
            return float(np.log(mean.mean()) - log_variance)

        # A mean under such weights lies between the least distance and the plain mean: one is below the
        # solution, the other above.
        least, plain = nearest.mean(), distances.sum(axis=1).mean() / (n_rows - 1)
        log_variance = brentq(excess, np.log(least / 2), np.log(plain * 2), xtol=1e-4)
        return float(np.exp(0.5 * log_variance))


def _check_varying(rows: Floats, names: Sequence[Hashable]) -> None:
    rounding = 8 * np.finfo(np.float64).eps * np.abs(rows).max(axis=0)
    constant = np.flatnonzero(np.ptp(rows, axis=0) <= rounding)
    if constant.size:
        raise InvalidInputError(
            f"ConditionalKDE: every feature of X must vary, since a constant one has no density; "
            f"{names[constant[0]]!r} is constant ({constant.size} of {rows.shape[1]} are). Leave such "
            "features out and fit the model again."
        )


def _columns(rows: Floats, categorical: Known) -> tuple[Codes, Floats]:
    """Of each wide column the feature it is made of, and for a category its code."""
    source: list[int] = []
    code: list[float] = []
    for i, is_category in enumerate(categorical):
        codes = np.unique(rows[:, i]).tolist() if is_category else [np.nan]
        source += [i] * len(codes)
        code += codes
    return np.array(source), np.array(code)


def _deviations(rows: Floats) -> Floats:
    """Standard deviations, without squares that overflow or vanish."""
    span = np.ptp(rows, axis=0)
    return np.asarray(span * ((rows - rows[0]) / span).std(axis=0))


def _standard(rows: Floats, categorical: Known, deviations: Floats) -> tuple[Floats, Floats]:
    """What is subtracted from the columns of each feature, and what they are then multiplied with.

    Two rows are on average at a squared distance of 2 in each feature: so are numbers of variance 1, and
    categories if one that differs counts 2 over the share of pairs of rows that differ in it.
    """
    center, factor = rows.mean(axis=0), 1.0 / deviations
    for i in np.flatnonzero(categorical):
        share = np.unique(rows[:, i], return_counts=True)[1] / len(rows)
        center[i], factor[i] = 0.0, (1.0 - (share**2).sum()) ** -0.5
    return center, factor


def zero(rows: Floats, known: Known, rng: np.random.Generator) -> Floats:  # noqa: ARG001  # a sampler
    """Missing features are 0: for activations of a network, or standardised data."""
    return np.where(known, rows, 0.0)
