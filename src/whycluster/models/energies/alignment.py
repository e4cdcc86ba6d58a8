"""Time series under dynamic time warping: the cost of the best alignment, or of all alignments."""

from __future__ import annotations

import numpy as np

from whycluster.core.arrays import Floats
from whycluster.core.energies import Energy

_BLOCK_VALUES = 1 << 20  # costs of alignments that are in memory at once


class AlignmentEnergy(Energy):
    """s_k = the smallest sum of |x_t - c_ks|^2 along a path from the first time steps to the last.

    A path moves by one step in t, in s or in both. With ``gamma`` above 0, s_k is the soft minimum over all
    paths, -gamma log sum exp(-cost / gamma), as in soft-DTW.

    The split of time step t and channel i is sum_s p_ts (x_ti - c_ksi)^2, where p_ts is 1 on the best path
    and, for soft-DTW, the probability that a path contains (t, s). For soft-DTW, the entropy of the paths
    belongs to no feature.

    The features of a row are the values of the first time step, then those of the second one, and so on.

    Parameters
    ----------
    centers : (K, S, c) the centers: S time steps of c channels
    n_steps : T, the number of time steps of each series
    gamma : the softness of the minimum, or 0 for the best path alone
    """

    title = "nearest center under dynamic time warping"

    def __init__(self, centers: Floats, n_steps: int, gamma: float = 0.0) -> None:
        self.centers = np.array(centers, dtype=np.float64, order="C")
        self.n_steps, self.gamma = int(n_steps), float(gamma)
        self.n_clusters, n_other, self.n_channels = self.centers.shape
        self.n_features, self.offset = self.n_steps * self.n_channels, None
        # This makes blocks short enough for the costs to fit into memory.
        self.scratch_width = self.n_steps * n_other
        if self.gamma:
            self.adds_up = False
            self.unattributed = "the entropy of the alignments"

    def energies(self, x: Floats, out: Floats, scratch: Floats) -> None:  # noqa: ARG002  # needs no workspace
        """Write the costs of the alignments."""
        for rows in self._parts(len(x)):
            for k in range(self.n_clusters):
                out[rows, k] = self._totals(self._costs(x[rows], k))[:, -1, -1]

    def combine(self, x: Floats, weights: Floats, out: Floats, scratch: Floats) -> None:  # noqa: ARG002  # needs no workspace
        """Write the weighted splits."""
        out[...] = 0.0
        for rows in self._parts(len(x)):
            series, total = self._series(x[rows]), np.zeros((rows.stop - rows.start, *self._shape))
            for k, center in enumerate(self.centers):
                p = self._paths(x[rows], k) * weights[rows, k, None, None]
                total += p.sum(axis=2)[:, :, None] * series**2
                total += p @ center**2 - 2.0 * series * (p @ center)
            out[rows] = total.reshape(len(total), -1)

    def differentiate(self, x: Floats, weights: Floats, out: Floats, scratch: Floats) -> None:  # noqa: ARG002  # needs no workspace
        """Write the weighted gradients, 2 sum_s p_ts (x_t - c_ks)."""
        out[...] = 0.0
        for rows in self._parts(len(x)):
            series, total = self._series(x[rows]), np.zeros((rows.stop - rows.start, *self._shape))
            for k, center in enumerate(self.centers):
                p = self._paths(x[rows], k) * (2.0 * weights[rows, k])[:, None, None]
                total += p.sum(axis=2)[:, :, None] * series - p @ center
            out[rows] = total.reshape(len(total), -1)

    @property
    def _shape(self) -> tuple[int, int]:
        return self.n_steps, self.n_channels

    def _parts(self, n_rows: int) -> list[slice]:
        size = max(1, _BLOCK_VALUES // (self.n_steps * self.centers.shape[1]))
        return [slice(start, min(start + size, n_rows)) for start in range(0, n_rows, size)]

    def _series(self, x: Floats) -> Floats:
        return np.asarray(x.reshape(len(x), *self._shape))

    def _costs(self, x: Floats, k: int) -> Floats:
        """Return |x_t - c_ks|^2, (b, T, S); no square is expanded."""
        costs = np.zeros((len(x), self.n_steps, self.centers.shape[1]))
        for channel in range(self.n_channels):
            costs += (x[:, channel :: self.n_channels, None] - self.centers[k, :, channel]) ** 2
        return costs

    def _totals(self, costs: Floats) -> Floats:
        """Return the cost of the best path, or of all paths, from the start to each (t, s), (b, T, S)."""
        b, n, m = costs.shape
        totals = np.full((b, n + 1, m + 1), np.inf)
        totals[:, 0, 0] = 0.0
        for t in range(n):
            for s in range(m):
                before = (totals[:, t, s], totals[:, t, s + 1], totals[:, t + 1, s])
                totals[:, t + 1, s + 1] = costs[:, t, s] + self._least(before)
        return totals[:, 1:, 1:]

    def _least(self, values: tuple[Floats, ...]) -> Floats:
        low: Floats = np.minimum(np.minimum(values[0], values[1]), values[2])
        if not self.gamma:
            return low
        total = sum(np.exp((low - value) / self.gamma) for value in values)
        return np.asarray(low - self.gamma * np.log(total))

    def _paths(self, x: Floats, k: int) -> Floats:
        """Return p_ts, (b, T, S)."""
        costs = self._costs(x, k)
        totals = self._totals(costs)
        return self._probabilities(costs, totals) if self.gamma else _best_path(totals)

    def _probabilities(self, costs: Floats, totals: Floats) -> Floats:
        """Return the probability that a path contains (t, s), by the chain rule from the end to the start."""
        b, n, m = costs.shape
        p = np.zeros((b, n + 1, m + 1))
        p[:, n - 1, m - 1] = 1.0
        reach = np.full((b, n + 1, m + 1), np.inf)  # the cost up to each (t, s), without its own
        reach[:, :n, :m] = totals - costs
        for t in range(n - 1, -1, -1):
            for s in range(m - 1, -1, -1):
                if (t, s) == (n - 1, m - 1):
                    continue
                for after in ((t + 1, s + 1), (t + 1, s), (t, s + 1)):
                    if after[0] < n and after[1] < m:
                        share = np.exp((reach[:, after[0], after[1]] - totals[:, t, s]) / self.gamma)
                        p[:, t, s] += p[:, after[0], after[1]] * share
        return p[:, :n, :m]


def _best_path(totals: Floats) -> Floats:
    """Return 1 on the best path of each row, which is traced back from its end, and 0 elsewhere."""
    b, n, m = totals.shape
    path, rows = np.zeros_like(totals), np.arange(b)
    padded = np.full((b, n + 1, m + 1), np.inf)
    padded[:, 1:, 1:] = totals
    t, s = np.full(b, n - 1), np.full(b, m - 1)
    for _ in range(n + m - 1):
        path[rows, t, s] = 1.0
        before = np.stack([padded[rows, t, s], padded[rows, t, s + 1], padded[rows, t + 1, s]])
        step = before.argmin(axis=0)  # both, t alone, s alone
        inside = (t > 0) | (s > 0)
        t, s = t - (inside & (step != 2)), s - (inside & (step != 1))
    return path
