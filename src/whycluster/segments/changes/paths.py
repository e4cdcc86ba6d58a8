"""The change of the evidence along the line between two states of a row, split over the columns.

The evidence g changes from x0 to x1 by the integral of its gradient along the line between them. Column i
contributes

    (x1_i - x0_i) * integral_0^1 dg/dx_i (x0 + t (x1 - x0)) dt,

so a column that did not change contributes 0, and the contributions add up to g(x1) - g(x0). For quadratic
energies, the gradient is linear, and the integral is its value at the midpoint. Otherwise, the integral is
computed by Gauss-Legendre quadrature, on pieces that are halved until the contributions add up on each piece.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from whycluster.core.arrays import Codes, Floats
from whycluster.core.attribution import CodedQuery
from whycluster.core.energies import Energy
from whycluster.core.outputs import slopes
from whycluster.data.opening import open_table
from whycluster.data.table import Table
from whycluster.pipelines.mixing import TransformedEnergy

_TOLERANCE = 1e-11  # allowed error of a piece, as a fraction of the sum of its absolute contributions
_MOST_PIECES, _MOST_HALVINGS = (
    64,
    50,
)  # the largest number of pieces per line; any remaining error becomes part of the residual
_MIDPOINT = (np.array([0.5]), np.array([1.0]))
_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(8)
_GAUSS = (_NODES / 2 + 0.5, _WEIGHTS / 2)


class Pieces(NamedTuple):
    """Pieces of the lines, (m,): the row of each, where it begins and ends, and g at both ends."""

    row: Codes
    start: Floats
    end: Floats
    first: Floats
    last: Floats

    def take(self, which: Codes) -> Pieces:
        """Return some of the pieces."""
        row, *ends = self
        return Pieces(row[which], *(values[which] for values in ends))


class Path(NamedTuple):
    """The lines from x0 to x1, (n, D), and the query whose evidence changes along them."""

    energy: Energy
    x0: Floats
    x1: Floats
    query: CodedQuery

    def slopes(self, row: Codes, t: Floats) -> tuple[Floats, Floats]:
        """Return the evidence, (m,), and its gradient, (m, D), at points of some lines."""
        points = self.x0[row] + t[:, None] * (self.x1[row] - self.x0[row])
        cluster, competitor = self.query.cluster, self.query.competitor
        assert cluster is not None
        query = CodedQuery(cluster[row], None if competitor is None else competitor[row])
        return slopes(self.energy, open_table(points, where="changes"), query)

    def contributions(self) -> Floats:
        """Return what each input contributes to the change of the evidence, (n, D)."""
        rows, total = np.arange(len(self.x0)), np.zeros_like(self.x0)
        ends = [self.slopes(rows, np.full(len(rows), t))[0] for t in (0.0, 1.0)]
        pieces = Pieces(rows, np.zeros(len(rows)), np.ones(len(rows)), *ends)
        size = np.abs(ends[1] - ends[0])
        for rule in self._rules():
            found = self._integrate(pieces, rule)
            np.maximum.at(size, pieces.row, np.abs(found).sum(axis=1))
            error = np.abs(found.sum(axis=1) - (pieces.last - pieces.first))
            is_exact = error <= _TOLERANCE * size[pieces.row]
            if rule is _GAUSS:  # some rows may never add up, such as those at a jump of the evidence
                many = np.bincount(pieces.row[~is_exact], minlength=len(rows)) > _MOST_PIECES
                is_exact |= many[pieces.row]
            np.add.at(total, pieces.row[is_exact], found[is_exact])
            pieces, found = pieces.take(np.flatnonzero(~is_exact)), found[~is_exact]
            if not len(pieces.row):
                break
            if rule is _GAUSS:
                pieces = self._halve(pieces)
        else:
            np.add.at(total, pieces.row, self._integrate(pieces, _MIDPOINT))
        return total

    @staticmethod
    def _rules() -> Iterator[tuple[Floats, Floats]]:
        """Yield the nodes and weights of the first and of all later attempts."""
        yield _MIDPOINT
        for _ in range(_MOST_HALVINGS):
            yield _GAUSS

    def _integrate(self, pieces: Pieces, rule: tuple[Floats, Floats]) -> Floats:
        """Return the contributions on each piece, (m, D)."""
        length = pieces.end - pieces.start
        mean = np.zeros((len(pieces.row), self.x0.shape[1]))
        for node, weight in zip(*rule, strict=True):
            mean += weight * self.slopes(pieces.row, pieces.start + node * length)[1]
        return np.asarray(mean * (length[:, None] * (self.x1[pieces.row] - self.x0[pieces.row])))

    def _halve(self, pieces: Pieces) -> Pieces:
        middle = (pieces.start + pieces.end) / 2
        there = self.slopes(pieces.row, middle)[0]
        halves = (
            Pieces(pieces.row, pieces.start, middle, pieces.first, there),
            Pieces(pieces.row, middle, pieces.end, there, pieces.last),
        )
        row, *ends = (np.concatenate(both) for both in zip(*halves, strict=True))
        return Pieces(row, *ends)


def has_path(energy: Energy) -> bool:
    """Return whether the energy has a gradient with respect to all of its inputs."""
    inner = energy.by_input
    return inner.categorical is None and not isinstance(inner, TransformedEnergy)


def path_contributions(energy: Energy, before: Table, after: Table, query: CodedQuery) -> Floats:
    """Return what each column contributes to the change of the evidence, (n, d).

    The line is straight in the features that the steps of a pipeline compute from single columns. If a
    feature comes from no column, its contribution is not assigned to any.
    """
    inputs = [table.inputs(0, table.n_rows, None, _empty(table, energy)) for table in (before, after)]
    found = Path(energy.by_input, inputs[0], inputs[1], query).contributions()
    columns = np.zeros((before.n_rows, energy.n_features))
    source = energy.feature_of_input
    for feature in np.flatnonzero(source >= 0).tolist():
        columns[:, source[feature]] += found[:, feature]
    return columns


def _empty(table: Table, energy: Energy) -> Floats:
    return np.empty((table.n_rows, energy.n_inputs))
