"""Clusters separated by hyperplanes, and the smallest step across them.

For other boundaries, the hyperplanes are tangent to them at a point; see `local_search`.

In a nearest-centroid model, cluster k wins if h_j = s_j - s_k >= 0 for all other clusters j. Each h_j is
linear in the inputs of the model, so the points of cluster k form a polyhedron. The smallest step into the
polyhedron leads to its nearest point. Across a single hyperplane, this step is -h_j w_j / |w_j|^2, where w_j
is the gradient of h_j. Across several hyperplanes, finding the step is a least-distance problem, which Lawson
and Hanson solve exactly by non-negative least squares ("Solving Least Squares Problems", 1974, chapter 23).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import lsq_linear, nnls

from whycluster.core.arrays import Codes, Floats
from whycluster.core.energies import Energy
from whycluster.core.energies.energy import Quadratics
from whycluster.core.errors import UnsupportedModelError
from whycluster.data.arrays import evenly_spaced
from whycluster.data.table import Table

_ROUNDED = 3.0  # the error of a sum of D terms is this times the precision times sqrt(D); chosen by trial
_SAMPLE = 1000  # rows from which the units of curved models are estimated
_OPTIMAL = 1e-10  # slopes this small at a solution of least squares are rounding
_AT_LIMIT = 1e-12  # relative
_FARTHEST = 1e6  # points beyond this multiple of the farthest hyperplane's distance are out of reach


class HalfSpaces(NamedTuple):
    """The half-spaces whose intersection is a cluster k, seen from one row: k wins if all h are positive."""

    h: Floats  # (J,) s_j - s_k
    slopes: Floats  # (J, D) their gradients
    competitor: Codes  # (J,) j
    loses_ties: NDArray[np.bool_]  # (J,) whether k loses a tie

    @property
    def unbeatable(self) -> Codes:
        """The competitors that are at least as close as k everywhere, which leaves k empty."""
        parallel = ~self.slopes.any(axis=1)
        return np.asarray(self.competitor[parallel & ((self.h < 0) | ((self.h == 0) & self.loses_ties))])


@dataclass(frozen=True)
class HalfSpaceModel:
    """A model that separates its clusters by hyperplanes.

    Attributes
    ----------
    energy : the energy that assigns rows
    linear : an energy with the same boundaries, whose h_j are linear in its D inputs
    source : (D,) the column that each input comes from, or a negative number if it comes from no column
    step_scale : (D,) how much a change of 1 in each input counts. The unit is that of the model's distances
        or, if the model compares mixtures of the inputs, the unit that the inputs were scaled to before
        mixing.
    is_linear : whether the boundaries are hyperplanes. If not, ``linear`` is the energy itself, and
        half-spaces are tangent to the boundaries. Steps then count in standard deviations of the inputs,
        unless the energies are squared distances.
    typical_evidence : the median evidence of the rows, the unit of margins if the boundaries are curved
    quadratics : the energies as minima of quadratic functions, if they are and the boundaries are curved
    """

    energy: Energy
    linear: Energy
    source: Codes
    step_scale: Floats
    is_linear: bool = True
    typical_evidence: float = 0.0
    quadratics: Quadratics | None = None

    @classmethod
    def of(cls, energy: Energy, table: Table) -> HalfSpaceModel:
        """Return the model of an energy; raise an error if the columns of the table do not determine it."""
        linear = energy.by_input.linearized()
        if linear is None and len(energy.feature_of_input) == energy.n_inputs:
            return cls._curved(energy, table)
        if linear is None:
            raise UnsupportedModelError(
                f"counterfactual: every input of the model must come from one column; got a "
                f"{type(energy.by_input).__name__}, whose inputs mix columns and transform the result. "
                f"Network.gradient gives the direction in which a row has to move; for the smallest change, "
                f"explain k-means of the same rows."
            )
        return cls(energy, linear, energy.feature_of_input, linear.step_scale())

    @classmethod
    def _curved(cls, energy: Energy, table: Table) -> HalfSpaceModel:
        """Return a model whose boundaries are not hyperplanes."""
        known = energy.by_input.quadratics()
        curved = cls(energy, energy.by_input, energy.feature_of_input, np.ones(energy.n_inputs), False)
        x = curved.read(table.take(evenly_spaced(table.n_rows, _SAMPLE)))
        if known is not None and known.is_distance:
            scale = energy.by_input.step_scale()
        else:
            deviation = x.std(axis=0)
            scale = np.divide(1.0, deviation, out=np.zeros_like(deviation), where=deviation > 0.0)
        typical = float(np.median(np.abs(curved.evidence(x, None))))
        return replace(curved, step_scale=scale, typical_evidence=typical, quadratics=known)

    def read(self, table: Table) -> Floats:
        """Return the inputs of the model for each row, (n, D)."""
        out = np.empty((table.n_rows, self.energy.n_inputs))
        with np.errstate(all="ignore"):
            return np.array(table.inputs(0, table.n_rows, self.energy.offset, out))

    def assign(self, x: Floats) -> Codes:
        """Return the clusters that the network assigns to rows returned by `read`, (n,)."""
        out = np.empty((len(x), self.energy.n_clusters))
        with np.errstate(all="ignore"):
            self.energy.energies(x, out, np.empty((len(x), self.energy.scratch_width)))
            return self.energy.contest.compete(out).cluster

    def strongest(self, x: Floats) -> tuple[int, int]:
        """Return the cluster that wins at x, (D,), and its strongest competitor."""
        assignment = self.linear.contest.compete(self._energies(x[None]))
        return int(assignment.cluster[0]), int(assignment.competitor[0])

    def half_spaces(self, x: Floats, k: int) -> HalfSpaces:
        """Return the half-spaces of cluster k, seen from x, (D,)."""
        s = self._energies(x[None])[0]
        h, competitor, loses_ties = self.linear.contest.boundaries(s, k)
        weights = np.zeros((len(competitor), len(s)))
        weights[np.arange(len(competitor)), competitor] = 1.0
        weights[:, k] = -1.0
        rows = np.repeat(x[None], len(competitor), axis=0)
        slopes = np.empty_like(rows)
        with np.errstate(all="ignore"):
            self.linear.differentiate(rows, weights, slopes, self._scratch(len(rows)))
        return HalfSpaces(h, slopes, competitor, loses_ties)

    def rounding(self, x: Floats, half_spaces: HalfSpaces, dtype: np.dtype[Any]) -> Floats:
        """Return a bound on the error of h in each row of x, (n,), for models that compute in this dtype.

        Unlike the network, such models do not subtract the offset first.
        """
        return relative_rounding(x.shape[1], dtype) * self.size_of_terms(x, half_spaces)

    def size_of_terms(self, x: Floats, half_spaces: HalfSpaces) -> Floats:
        """Return the size of the terms that h is computed from in each row of x, (n,)."""
        offset = np.zeros(x.shape[1]) if self.energy.offset is None else np.abs(self.energy.offset)
        terms = np.abs(self._energies(x)).max(axis=1) + np.square(self.step_scale * offset).sum()
        terms += ((np.abs(x) + offset) @ np.abs(half_spaces.slopes).T).max(axis=1)
        return np.asarray(terms)

    def evidence(self, x: Floats, k: int | None) -> Floats:
        """Return the least h of cluster k in each row of x, (n,); by default, of the row's own cluster."""
        cluster = None if k is None else np.full(len(x), k)
        return self.linear.contest.compete(self._energies(x), cluster).evidence

    def _energies(self, x: Floats) -> Floats:
        out = np.empty((len(x), self.linear.n_clusters))
        with np.errstate(all="ignore"):
            self.linear.energies(x, out, self._scratch(len(x)))
        return out

    def _scratch(self, n_rows: int) -> Floats:
        return np.empty((n_rows, self.linear.scratch_width))


class Limits(NamedTuple):
    """Linear constraints sides y >= ends of steps y."""

    sides: Floats  # (L, C)
    ends: Floats  # (L,)

    @classmethod
    def between(cls, low: Floats, high: Floats) -> Limits:
        """Return the finite ones of these bounds, (C,) each."""
        some, other = np.flatnonzero(np.isfinite(low)), np.flatnonzero(np.isfinite(high))
        sides = np.zeros((len(some) + len(other), len(low)))  # tables have many columns, but few limits
        sides[np.arange(len(some)), some] = 1.0
        sides[len(some) + np.arange(len(other)), other] = -1.0
        return cls(sides, np.concatenate([low[some], -high[other]]))

    def added_to(self, g: Floats, need: Floats) -> tuple[Floats, Floats]:
        """Return the half-spaces g y >= need together with the limits."""
        return np.vstack([g, self.sides]), np.concatenate([need, self.ends])

    def are_reached(self, y: Floats) -> bool:
        """Return whether y is at one of the limits."""
        return bool((self.sides @ y <= self.ends + _AT_LIMIT * np.abs(self.ends)).any())


def relative_rounding(n_inputs: int, dtype: np.dtype[Any]) -> float:
    """Return the rounding error of h, relative to the size of its terms."""
    return float(_ROUNDED * np.sqrt(n_inputs) * np.finfo(dtype).eps)


def least_step(g: Floats, need: Floats) -> Floats | None:
    """Return the shortest y with g y >= need, (C,), or None if no such y exists.

    Parameters
    ----------
    g : (J, C); a row of zeros is a hyperplane that no step gets closer to
    need : (J,)
    """
    sizes = np.linalg.norm(g, axis=1)
    if (need[sizes == 0.0] > 0.0).any():
        return None
    far = need[sizes > 0.0] / sizes[sizes > 0.0]
    if not (far > 0.0).any():
        return np.zeros(g.shape[1])
    unit = g[sizes > 0.0] / sizes[sizes > 0.0][:, None]
    farthest = far.max()  # no step is shorter
    far = far / farthest
    # y = -r / r_last, where r is the residual of g^T u = 0, need.u = 1 over u >= 0; |r|^2 = 1 / (1 + |y|^2).
    target = np.zeros(g.shape[1] + 1)
    target[-1] = 1.0
    u, residual = _non_negative_least_squares(np.vstack([unit.T, far]), target)
    if residual * _FARTHEST <= 1.0:
        return None
    # u is positive for the hyperplanes through the nearest point, and these alone determine it.
    at = u > 0.0
    return np.asarray(farthest * np.linalg.lstsq(unit[at], far[at], rcond=None)[0])


def _non_negative_least_squares(a: Floats, b: Floats) -> tuple[Floats, float]:
    """Return the u >= 0 for which a u is closest to b, and their distance.

    In SciPy 1.15, `nnls` returns wrong solutions of some problems, so the solution is checked.
    """
    u, _ = nnls(a, b, maxiter=30 * a.shape[1])
    slope = a.T @ (b - a @ u)
    if slope.max() > _OPTIMAL or np.abs(slope[u > 0.0]).max(initial=0.0) > _OPTIMAL:
        u = lsq_linear(a, b, (0.0, np.inf), method="bvls", tol=np.finfo(float).eps).x
    return u, float(np.linalg.norm(b - a @ u))


def least_steps_along(g: Floats, need: Floats) -> Floats:
    """Return, for each column of g, the shortest step y with g y >= need, or NaN if no such step exists.

    Parameters
    ----------
    g, need : (J, C)
    """
    with np.errstate(divide="ignore", invalid="ignore"):
        at = need / g
    least = np.where(g > 0.0, at, -np.inf).max(axis=0)
    most = np.where(g < 0.0, at, np.inf).min(axis=0)
    never = (least > most) | ((g == 0.0) & (need > 0.0)).any(axis=0)
    return np.where(never, np.nan, np.clip(0.0, least, most))
