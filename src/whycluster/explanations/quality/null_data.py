"""Data without clusters, drawn to resemble given rows: the yardsticks of `quality`.

No single kind of data without clusters is fair. Uniform values give larger silhouettes than normal ones,
skewed and discrete columns give larger silhouettes than both, and shuffling columns one by one destroys
correlations, although k-means cuts correlated data into pieces that look distinct. So the rows are compared
with three kinds, and must beat the best of them.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from whycluster.core.arrays import Floats

_N_BINS = 40  # bins of equal size in which a column is made unimodal
_DISCRETE = 20  # columns with at most this many distinct values stay unchanged


@dataclass(frozen=True, eq=False)
class NullData:
    """Draws rows without clusters that resemble given rows.

    Attributes
    ----------
    rows : (n, d) the given rows
    """

    rows: Floats

    @property
    def kinds(self) -> list[str]:
        """The kinds of data; a single column has no correlations to keep."""
        return ["normal", "uniform", "shuffled"][: 3 if self.rows.shape[1] > 1 else 2]

    def draws(self, kind: str, rng: np.random.Generator, n: int) -> list[Floats]:
        """Draw ``n`` times; see `draw`."""
        return [self.draw(kind, rng) for _ in range(n)]

    def draw(self, kind: str, rng: np.random.Generator) -> Floats:
        """Draw as many rows as given.

        Parameters
        ----------
        kind : "normal" or "uniform", both with the covariance of the rows (uniform in a box along the
            principal axes), or "shuffled": the values of each column are shuffled so that only the
            correlations remain, and columns with several peaks are smoothed until they have one. Their ranks
            are those of normal rows (a Gaussian copula).
        rng : the source of randomness
        """
        shape = self.rows.shape
        if kind == "normal":
            return _with_covariance(self.rows, rng.standard_normal(shape))
        if kind == "uniform":
            return _with_covariance(self.rows, rng.uniform(-(3**0.5), 3**0.5, shape))
        order = np.argsort(_with_covariance(self._scores, rng.standard_normal(shape)), axis=0)
        result = np.empty(shape)
        np.put_along_axis(result, order, self._values, axis=0)
        return result

    @cached_property
    def _scores(self) -> Floats:
        """The normal scores of the columns."""
        from scipy.special import ndtri
        from scipy.stats import rankdata

        return np.asarray(ndtri((rankdata(self.rows, axis=0) - 0.5) / len(self.rows)))

    @cached_property
    def _values(self) -> Floats:
        """The sorted values of each column, with one peak."""
        return np.stack([with_one_peak(column) for column in np.sort(self.rows, axis=0).T], axis=1)


def with_one_peak(values: Floats) -> Floats:
    """Spread sorted values evenly over the gaps between peaks, so that only one peak is left.

    Gaps are where a unimodal density, fitted to a histogram with bins of equal size by isotonic regression on
    both sides of the peak, is constant over several bins. All other values and all
    discrete columns stay unchanged.
    """
    if len(np.unique(values)) <= _DISCRETE:
        return values
    edges = np.unique(np.quantile(values, np.linspace(0.0, 1.0, _N_BINS + 1)))
    width = np.diff(edges)
    starts = np.searchsorted(values, edges[:-1])
    size = np.diff(np.append(starts, len(values)))
    fitted = _unimodal(size / width, width)
    first = np.flatnonzero(np.diff(fitted, prepend=-1.0))
    result: Floats = values.copy()
    for low, high in zip(first, np.append(first[1:], len(width)), strict=True):
        if high - low > 1:  # several bins of the same density
            own = slice(starts[low], starts[high] if high < len(width) else len(values))
            n = own.stop - own.start
            result[own] = edges[low] + (np.arange(n) + 0.5) / n * (edges[high] - edges[low])
    return result


def _unimodal(density: Floats, weight: Floats) -> Floats:
    """Return the density with one peak that has the smallest weighted squared error, (b,)."""
    from sklearn.isotonic import isotonic_regression

    rising = _errors_of_rising(density.tolist(), weight.tolist())
    falling = _errors_of_rising(density[::-1].tolist(), weight[::-1].tolist())[::-1]
    n_up = int(np.argmin(np.append(0.0, rising) + np.append(falling, 0.0)))
    parts = [isotonic_regression(density[:n_up], sample_weight=weight[:n_up])] if n_up else []
    if n_up < len(density):
        parts.append(isotonic_regression(density[n_up:], sample_weight=weight[n_up:], increasing=False))
    return np.concatenate(parts)


def _errors_of_rising(values: list[float], weights: list[float]) -> list[float]:
    """Return, for each beginning of the values, the weighted squared error of the nearest rising values.

    One pass of pooling adjacent violators gives the errors of all beginnings, as in Stout, *Unimodal
    regression via prefix isotonic regression* (2008).
    """
    errors: list[float] = []
    pools: list[tuple[float, float, float]] = []  # weight, mean, and the error up to the end of the pool
    for mean, weight in zip(values, weights, strict=True):
        own = 0.0  # error inside the last pool
        while pools and pools[-1][1] >= mean:
            before, level, up_to = pools.pop()
            own += up_to - (pools[-1][2] if pools else 0.0)
            own += before * weight / (before + weight) * (level - mean) ** 2
            mean += before / (before + weight) * (level - mean)
            weight += before
        pools.append((weight, mean, own + (pools[-1][2] if pools else 0.0)))
        errors.append(pools[-1][2])
    return errors


def _with_covariance(x: Floats, independent: Floats) -> Floats:
    """Map independent values of variance 1 onto the mean and the covariance of x."""
    mean = x.mean(axis=0)
    _, size, axes = np.linalg.svd(x - mean, full_matrices=False)
    deviation = size / np.sqrt(max(1, len(x) - 1))
    return np.asarray((independent[:, : len(size)] * deviation) @ axes + mean)
