"""The account of a move: what each column contributed to the change of the evidence.

A row is in cluster a with the values x0 and in cluster b with the values x1. The evidence for b against a is
g = s_a - s_b; it is negative before the move and positive after it. The account of the move is

    g(x1) - g(x0) = sum_i [(e_a - e_b)_i(x1) - (e_a - e_b)_i(x0)]

where e is the split of the energies over the columns. This holds if e_i depends only on x_i, as for all
centroids and for diagonal mixtures. Otherwise, column i contributes the integral of its part of the gradient
of g along the line from x0 to x1 (`paths`). In both cases, a column that did not change contributes 0, and
the part of the change that belongs to no column is the residual. If the model changed as well, there are four
states of the evidence. The contribution of the data is the mean of the changes under the old and under the
new model. The contribution of the model is the mean of the changes for the old and for the new values. These
are the Shapley values of two players, so they add up to the whole change.

An old model may have no cluster b, and a new one no cluster a. In the first case, g is the evidence for
leaving a, that is, -f_a; in the second case, it is the evidence for b, f_b. In each of the four states, both
are measured against the strongest competitor.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import NamedTuple, TypeAlias

import numpy as np

from whycluster.core.arrays import Codes, Floats
from whycluster.core.attribution import CodedQuery, Population, attribute
from whycluster.core.energies import AdditiveEnergy
from whycluster.data.table import Table
from whycluster.models.network import Network
from whycluster.segments.changes.matching import NONE
from whycluster.segments.changes.paths import has_path, path_contributions

States: TypeAlias = tuple[Table, Table]
"""The rows with their old and with their new values."""


class Contrast(NamedTuple):
    """The evidence for one cluster against another, (n,), and its split over the columns, (n, d)."""

    evidence: Floats
    split: Floats

    def __sub__(self, other: Contrast) -> Contrast:
        return Contrast(self.evidence - other.evidence, self.split - other.split)

    def mean(self, other: Contrast) -> Contrast:
        """Return the mean of two contrasts."""
        return Contrast((self.evidence + other.evidence) / 2, (self.split + other.split) / 2)


class Clusters(NamedTuple):
    """The cluster before and after each move, (n,), as codes of one model, or `NONE`; never both."""

    source: Codes
    target: Codes

    def queries(self) -> Iterator[tuple[Codes, CodedQuery, float]]:
        """Yield groups of rows, the query that gives their evidence, and its sign."""
        has_source, has_target = self.source != NONE, self.target != NONE
        both, left, entered = (
            np.flatnonzero(chosen) for chosen in (has_source & has_target, ~has_target, ~has_source)
        )
        for rows, query, sign in (
            (both, CodedQuery(self.target[both], self.source[both]), 1.0),
            (left, CodedQuery(self.source[left]), -1.0),
            (entered, CodedQuery(self.target[entered]), 1.0),
        ):
            if rows.size:
                yield rows, query, sign

    def take(self, rows: Codes) -> Clusters:
        """Return the clusters of the given rows."""
        return Clusters(self.source[rows], self.target[rows])


class Model(NamedTuple):
    """A network with the population that it was made on.

    Attributes
    ----------
    network : the network
    population : the population, whose means some splits need
    names : (d,) the names of the columns
    unit : the evidence is divided by this number
    """

    network: Network
    population: Population
    names: Sequence[Hashable]
    unit: float = 1.0

    def contrast(self, table: Table, clusters: Clusters, names: Sequence[Hashable]) -> Contrast:
        """Return the evidence for the target against the source of each row.

        The split is over the columns ``names``; a column that the model does not have gets 0.
        """
        table = _exact(table)
        evidence, split = np.zeros(table.n_rows), np.zeros((table.n_rows, len(names)))
        for rows, query, sign in clusters.queries():
            found = attribute(self.network.energy, table.take(rows), query, self.population)
            evidence[rows] = found.evidence * (sign / self.unit)
            split[np.ix_(rows, self._places(names))] = found.relevance * (sign / self.unit)
        return Contrast(evidence, split)

    def change(
        self,
        states: States,
        contrasts: tuple[Contrast, Contrast],
        clusters: Clusters,
        names: Sequence[Hashable],
    ) -> Contrast:
        """Return the change of the evidence between two states of each row, and its split.

        Parameters
        ----------
        states : the rows with their old and their new values
        contrasts : the evidence in both states, with its split
        clusters, names : as for `contrast`
        """
        old, new = contrasts
        found, energy = new - old, self.network.energy
        if not has_path(energy):
            return found
        before, after = map(_exact, states)
        for rows, query, sign in clusters.queries():
            if not (isinstance(energy.by_input, AdditiveEnergy) and query.competitor is not None):
                parts = path_contributions(energy, before.take(rows), after.take(rows), query)
                found.split[np.ix_(rows, self._places(names))] = parts * (sign / self.unit)
        return found

    def _places(self, names: Sequence[Hashable]) -> Codes:
        return np.array([names.index(name) for name in self.names])


def _exact(table: Table) -> Table:
    """Return a table whose results are in float64, since results in float32 would not add up."""
    return replace(table, dtype=np.dtype(np.float64))


@dataclass(frozen=True)
class Accounts:
    """The accounts of n moves.

    Attributes
    ----------
    before, after : (n,) the evidence for the new cluster against the old one, before and after the move
    data, model : the contributions of the data and of the model to the change; without a second model,
        ``model`` is 0
    """

    before: Floats
    after: Floats
    data: Contrast
    model: Contrast

    @classmethod
    def none(cls, n_columns: int) -> Accounts:
        """Return accounts without any moves."""
        nothing = Contrast(np.empty(0), np.empty((0, n_columns)))
        return cls(nothing.evidence, nothing.evidence, nothing, nothing)

    @property
    def change(self) -> Floats:
        """(n,) the change of the evidence."""
        return self.after - self.before

    @cached_property
    def contributions(self) -> Floats:
        """(n, d) what each column contributed to the change, through the data and the model together."""
        return self.data.split + self.model.split

    @cached_property
    def residual(self) -> Floats:
        """(n,) the part of the change that belongs to no single column."""
        return np.asarray(self.change - self.contributions.sum(axis=1))


def account(model: Model, states: States, clusters: Clusters) -> Accounts:
    """Return the accounts of rows that moved between clusters of the same model.

    Parameters
    ----------
    model : the model
    states : the rows that moved, with their old and their new values
    clusters : the clusters of each row
    """
    names = list(model.names)
    old, new = (model.contrast(table, clusters, names) for table in states)
    return Accounts(old.evidence, new.evidence, model.change(states, (old, new), clusters, names), new - new)


def account_of_both(
    models: tuple[Model, Model],
    tables: tuple[States, States],
    clusters: tuple[Clusters, Clusters],
    names: Sequence[Hashable],
) -> Accounts:
    """Return the accounts of rows for which both the data and the model changed.

    Parameters
    ----------
    models : the old and the new model
    tables : for each model, the rows with their old and their new values
    clusters : for each model, the clusters of each row
    names : the columns of both models
    """
    found = [
        (model.contrast(before, codes, names), model.contrast(after, codes, names))
        for model, (before, after), codes in zip(models, tables, clusters, strict=True)
    ]
    changes = [
        model.change(states, contrasts, codes, names)
        for model, states, contrasts, codes in zip(models, tables, found, clusters, strict=True)
    ]
    (old_before, old_after), (new_before, new_after) = found
    model = (new_before - old_before).mean(new_after - old_after)
    return Accounts(old_before.evidence, new_after.evidence, changes[0].mean(changes[1]), model)
