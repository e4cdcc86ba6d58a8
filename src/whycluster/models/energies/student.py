"""Student's t-distribution: the soft assignments of DEC and IDEC, and the memberships of fuzzy c-means."""

from __future__ import annotations

import sys

import numpy as np

from whycluster.core.arrays import Codes, Floats, product, row_sums
from whycluster.core.energies import Energy, SquaredEnergy
from whycluster.core.energies.energy import carve
from whycluster.core.errors import InvalidInputError
from whycluster.data.arrays import is_real

_CLOSEST = sys.float_info.epsilon**2  # the least squared distance in scikit-fuzzy


class StudentEnergy(Energy):
    """s_k = p log(1 + |x - mu_k|^2 / alpha): softmax(-s) are the q_k of DEC and IDEC for p = (alpha + 1) / 2.

    The logarithm of a sum has no split. But h_k = s_k - s_c has the sign of a difference of squared
    distances, and that difference has a split. So h_k is split in the same proportions as that difference:

        e_k - e_c = rho_k ((x - mu_k)^2 - (x - mu_c)^2),   rho_k = h_k / (|x - mu_k|^2 - |x - mu_c|^2).

    If numerator and denominator vanish, rho_k is the limit, p / (alpha + |x - mu_c|^2).
    `SquaredEnergy` combines these splits with the weights a_k rho_k.

    Everything is computed from u_k = (d_k^2 - d_n^2) / (alpha + d_n^2), where d_k = |x - mu_k| and n is the
    nearest center: s_k - s_n = p log(1 + u_k). The differences of squared distances are as
    accurate as in `SquaredEnergy`; differences of logarithms of large distances would lose digits.

    Parameters
    ----------
    centers : (K, d) mu_k
    alpha : the degrees of freedom; 1 in DEC and IDEC
    power : p; by default (alpha + 1) / 2
    """

    gives_probabilities = True
    stiffness: float | None = 1.0
    title = "nearest center under Student's t, as in DEC"

    def __init__(self, centers: Floats, alpha: float = 1.0, power: float | None = None) -> None:
        if not is_real(alpha) or not sys.float_info.min <= alpha <= sys.float_info.max:
            raise InvalidInputError(
                f"StudentEnergy: alpha must be a finite number above 0; got {alpha!r}. "
                "In DEC and IDEC it is 1."
            )
        self.alpha = float(alpha)
        self.squares = SquaredEnergy(centers)  # |x - mu_k|^2, which ranks the clusters in the same order
        self.n_clusters, self.n_features = self.squares.n_clusters, self.squares.n_features
        self.offset = self.squares.offset
        self.scratch_width = 3 * self.n_clusters + self.n_features
        self._moved = self.squares.prototypes
        if self.offset is not None:
            self._moved = self._moved - self.offset
        self.power = self.alpha / 2 + 0.5 if power is None else float(power)
        if self.alpha == _CLOSEST:
            self.title = "nearest center, with the memberships of fuzzy c-means"

    @classmethod
    def fuzzy(cls, centers: Floats, m: float = 2.0) -> StudentEnergy:
        """Return log |x - mu_k|^2 / (m - 1): softmax(-s) are the memberships of fuzzy c-means.

        Like scikit-fuzzy, it adds a tiny constant, for rows that equal a center.

        Parameters
        ----------
        centers : (K, d) mu_k
        m : the fuzziness
        """
        if not is_real(m) or not 1.0 < m <= sys.float_info.max:
            raise InvalidInputError(f"StudentEnergy.fuzzy: m must be a finite number above 1; got {m!r}.")
        return cls(centers, _CLOSEST, 1.0 / (float(m) - 1.0))

    def linearized(self) -> SquaredEnergy:
        """Return the squared distances."""
        return self.squares

    def energies(self, x: Floats, out: Floats, scratch: Floats) -> None:
        """Write s_k - s_n = p log(1 + u_k)."""
        self._apart(x, out, *carve(scratch, self.n_features))
        np.log1p(out, out=out)
        out *= self.power

    def combine(self, x: Floats, weights: Floats, out: Floats, scratch: Floats) -> None:
        """Write sum_k a_k rho_k ((x - mu_k)^2 - (x - mu_c)^2)."""
        own, rows = weights.argmin(axis=1), np.arange(len(x))  # the only negative weight
        rate, room = self._rates(x, own, scratch)
        rate *= weights
        rate[rows, own] = 0.0
        rate[rows, own] = -row_sums(rate)
        self.squares.combine(x, rate, out, room)

    def terms(self, x: Floats, cluster: Codes, out: Floats, scratch: Floats) -> None:
        """Write e_k - e_c; rho_k is computed once for all clusters."""
        rate, room = self._rates(x, cluster, scratch)
        self.squares.terms(x, cluster, out, room)
        out -= out[np.arange(len(x)), cluster][:, None]
        out *= rate[:, :, None]

    def differentiate(self, x: Floats, weights: Floats, out: Floats, scratch: Floats) -> None:
        """Write sum_k a_k 2 p / (alpha + d_k^2) (x - mu_k); here, x does not cancel."""
        rate, room = carve(scratch, self.n_clusters, self.n_features)
        base = self._apart(x, rate, room)
        rate += 1.0  # (alpha + d_k^2) / (alpha + d_n^2)
        np.divide(weights, rate, out=rate)
        rate *= (self.power / base)[:, None]
        product(rate, self.squares.slopes, out=out)
        np.multiply(x, 2.0 * row_sums(rate)[:, None], out=room)
        out += room

    def _apart(self, x: Floats, out: Floats, room: Floats) -> Floats:
        """Write u_k >= 0 into ``out`` of shape (b, K) and return alpha + d_n^2, (b,).

        ``room`` is (b, d). The distance to the nearest center is computed directly, because adding |x|^2 to
        the expanded energies would lose the digits of small distances.
        """
        self.squares.energies(x, out, room)
        nearest = out.argmin(axis=1)
        np.take(self._moved, nearest, axis=0, out=room, mode="clip")  # other modes make a copy first
        room -= x
        base: Floats = np.einsum("bd,bd->b", room, room) + self.alpha
        base[np.isinf(base)] = np.nan  # division by infinity would turn an overflow into a tie
        out -= out[np.arange(len(x)), nearest][:, None]
        out /= base[:, None]
        return base

    def _rates(self, x: Floats, own: Codes, scratch: Floats) -> tuple[Floats, Floats]:
        """Return rho_k for each cluster k and the row's own cluster c, (b, K), and workspace (b, d).

        With m = 1 + min(u_k, u_c) and v = |u_k - u_c| / m, rho_k is log(1 + v) / v, which is 1 for v = 0,
        times p / (alpha + d_n^2) / m. This form is symmetric in k and c, and 1 + v is never
        close to 0.
        """
        rate, v, least, room = carve(scratch, *[self.n_clusters] * 3, self.n_features)
        base = self._apart(x, v, room)
        mine = v[np.arange(len(x)), own][:, None]
        np.minimum(v, mine, out=least)
        least += 1.0
        v -= mine
        np.abs(v, out=v)
        v /= least
        np.log1p(v, out=rate)
        np.divide(rate, v, out=rate, where=v > 0.0)
        rate[v == 0.0] = 1.0
        rate /= least
        rate *= (self.power / base)[:, None]
        return rate, room
