"""Clusters that are parted by planes, and the smallest step over these.

Cluster k of a model of nearest centroids wins where h_j = s_j - s_k >= 0 for all others j, and each h_j is
linear in what the model takes: a polyhedron. The smallest step into it leads to its nearest point. Over a
single plane that is -h_j w_j / |w_j|^2, with w_j the slope of h_j; over several it is a problem of least
distance, which Lawson and Hanson solve exactly, through non-negative least squares ("Solving Least Squares
Problems", 1974, chapter 23).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import nnls

from whycluster.core.arrays import Codes, Floats
from whycluster.core.energies import (
    CosineEnergy,
    Energy,
    LinearEnergy,
    SquaredEnergy,
    StudentEnergy,
    TreeEnergy,
)
from whycluster.core.errors import UnsupportedModelError
from whycluster.core.evidence import compete
from whycluster.data.table import Table
from whycluster.pipelines.column_energy import ColumnsEnergy
from whycluster.pipelines.mixing import MixingEnergy, through

_FARTHEST = 1e6  # times the distance of the farthest plane: what is farther off is taken for out of reach


class HalfSpaces(NamedTuple):
    """What parts a cluster k from the others, seen from a row: k wins where all of h are positive."""

    h: Floats  # (J,) s_j - s_k
    slopes: Floats  # (J, D) their gradients
    rival: Codes  # (J,) j; in a tree, the first cluster beyond the turn
    yields: NDArray[np.bool_]  # (J,) whether k loses a tie

    @property
    def insuperable(self) -> Codes:
        """The rivals that are everywhere at least as near as k, so that nothing is in it."""
        parallel = ~self.slopes.any(axis=1)
        return np.asarray(self.rival[parallel & ((self.h < 0) | ((self.h == 0) & self.yields))])


@dataclass(frozen=True)
class HalfSpaceModel:
    """A model that parts its clusters by planes.

    Attributes
    ----------
    energy : what assigns rows
    straight : an energy of the same planes, whose h_j are linear in the D numbers that it takes
    source : (D,) the column that each of these numbers comes from, negative where that is none
    metric : (D,) how much a change of 1 in each of them counts: as in the distances of the model; where it
        measures something that was mixed of them, in the units that they were scaled to before
    """

    energy: Energy
    straight: Energy
    source: Codes
    metric: Floats

    @classmethod
    def of(cls, energy: Energy, where: str) -> HalfSpaceModel:
        """Raise for models of another kind."""
        inner = energy.energy if isinstance(energy, ColumnsEnergy) else energy
        source = energy.source if isinstance(energy, ColumnsEnergy) else np.arange(energy.n_features)
        straight = _straight(inner)
        if straight is None:
            raise UnsupportedModelError(
                f"{where}: the model must part its clusters by planes, as all models of nearest centroids do "
                f"(k-means and its like, bisecting k-means, cosines, soft heads); what is explained here, a "
                f"{type(inner).__name__}, does not. Network.gradient says in which direction a row has to "
                f"move; for the smallest change, explain k-means of the same rows."
            )
        return cls(energy, straight, source, _metric(straight))

    def read(self, table: Table) -> Floats:
        """What the model takes of rows, (n, D)."""
        out = np.empty((table.n_rows, self.energy.n_inputs))
        with np.errstate(all="ignore"):
            return np.array(table.inputs(0, table.n_rows, self.energy.offset, out))

    def assign(self, x: Floats) -> Codes:
        """The clusters of rows that were read, (n,), as the network assigns them."""
        out = np.empty((len(x), self.energy.n_clusters))
        with np.errstate(all="ignore"):
            self.energy.energies(x, out, np.empty((len(x), self.energy.scratch_width)))
            return compete(out, self.energy.tree).cluster

    def strongest(self, x: Floats) -> tuple[int, int]:
        """The cluster that wins at x, (D,), and its strongest competitor."""
        assignment = compete(self._energies(x), self.straight.tree)
        return int(assignment.cluster[0]), int(assignment.competitor[0])

    def half_spaces(self, x: Floats, k: int) -> HalfSpaces:
        """What parts cluster k from the others, seen from x, (D,)."""
        s, tree = self._energies(x)[0], self.straight.tree
        if tree is None:
            rival = np.delete(np.arange(len(s)), k)
            h, yields = s[rival] - s[k], rival < k
        else:
            path = tree.paths[k]
            rival = np.array([tree.under[turn.sibling][0] for turn in path])
            h = np.array([turn.sign * s[turn.pair] for turn in path])
            yields = np.array([turn.sign < 0 for turn in path])
        weights = np.zeros((len(rival), len(s)))
        weights[np.arange(len(rival)), rival] = 1.0
        weights[:, k] = -1.0
        rows = np.repeat(x[None], len(rival), axis=0)
        slopes = np.empty_like(rows)
        self.straight.differentiate(rows, weights, slopes, self._scratch(len(rows)))
        return HalfSpaces(h, slopes, rival, yields)

    def _energies(self, x: Floats) -> Floats:
        out = np.empty((1, self.straight.n_clusters))
        self.straight.energies(x[None], out, self._scratch(1))
        return out

    def _scratch(self, n_rows: int) -> Floats:
        return np.empty((n_rows, self.straight.scratch_width))


def _straight(energy: Energy) -> Energy | None:
    """The energy of the same planes whose differences are linear; None if there is none."""
    if isinstance(energy, MixingEnergy):
        inner = _straight(energy.energy)
        return None if inner is None else through(inner, energy.linear)
    if isinstance(energy, StudentEnergy):
        return energy.squares
    if isinstance(energy, CosineEnergy):
        return LinearEnergy(energy.directions)
    return energy if isinstance(energy, (SquaredEnergy, TreeEnergy, LinearEnergy)) else None


def _metric(energy: Energy) -> Floats:
    if isinstance(energy, SquaredEnergy):
        return np.asarray(np.sqrt(energy.scale))
    unit = energy.linear.unit if isinstance(energy, MixingEnergy) else None
    return np.ones(energy.n_features) if unit is None else 1.0 / unit


def least_step(g: Floats, need: Floats) -> Floats | None:
    """The shortest y with g y >= need, (C,); None if there is none.

    Parameters
    ----------
    g : (J, C); a row of zeros is a plane that no step comes nearer to
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
    # Of y = -r / r_last, with r the residual of g^T u = 0, need.u = 1 over u >= 0: |r|^2 = 1 / (1 + |y|^2).
    target = np.zeros(g.shape[1] + 1)
    target[-1] = 1.0
    u, residual = nnls(np.vstack([unit.T, far]), target, maxiter=30 * len(far))
    if residual * _FARTHEST <= 1.0:
        return None
    # u is positive at the planes that the nearest point lies on, and these alone say where it is.
    at = u > 0.0
    return np.asarray(farthest * np.linalg.lstsq(unit[at], far[at], rcond=None)[0])


def least_steps_along(g: Floats, need: Floats) -> Floats:
    """Of each column of g, (J, C), the shortest step y with g y >= need, (J, C); NaN where there is none."""
    with np.errstate(divide="ignore", invalid="ignore"):
        at = need / g
    least = np.where(g > 0.0, at, -np.inf).max(axis=0)
    most = np.where(g < 0.0, at, np.inf).min(axis=0)
    never = (least > most) | ((g == 0.0) & (need > 0.0)).any(axis=0)
    return np.where(never, np.nan, np.clip(0.0, least, most))
