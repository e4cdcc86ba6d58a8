"""Energies of rows whose clusters also depend on their context, such as the time steps of a sequence."""

from __future__ import annotations

from copy import copy

import numpy as np

from whycluster.core.arrays import Codes, Floats
from whycluster.core.energies import AdditiveEnergy, Energy
from whycluster.core.energies.energy import Parts, Quadratics, carve


class ContextEnergy(Energy):
    """s_k = the energy of the row, plus a constant m_k for each cluster that the context of the row gives.

    The inputs are the features and m_1, ..., m_K. The split is that of the row's energy. The context belongs
    to no feature.

    Parameters
    ----------
    own : the energy of the row alone, without an offset and without weights of the clusters
    name : what the context is, such as "other time steps"
    gives_probabilities : whether softmax(-s) are the cluster probabilities of the model
    fixed : (K,) the context of the only row that changes, for counterfactuals
    """

    adds_up = False

    def __init__(
        self, own: Energy, name: str, gives_probabilities: bool = False, fixed: Floats | None = None
    ) -> None:
        self.own, self.name, self.gives_probabilities = own, name, gives_probabilities
        self.fixed = None if fixed is None else np.array(fixed, dtype=np.float64)
        self.n_clusters, self.n_features, self.offset = own.n_clusters, own.n_features, None
        self.n_inputs = self.n_features + self.n_clusters
        self.scratch_width = self.n_features + max(own.scratch_width, 1)
        self.stiffness, self.title = own.stiffness, f"{own.title}, and {name}"
        is_exact = own.adds_up or isinstance(own, AdditiveEnergy)
        self.rest = self.unattributed = name if is_exact else f"{name}, and no single feature"

    def energies(self, x: Floats, out: Floats, scratch: Floats) -> None:
        """Write the energies of the rows plus their contexts."""
        row, rest = carve(scratch, self.n_features, self.own.scratch_width)
        np.copyto(row, x[:, : self.n_features])
        self.own.energies(row, out, rest)
        out += x[:, self.n_features :]

    def combine(self, x: Floats, weights: Floats, out: Floats, scratch: Floats) -> None:
        """Write the weighted splits of the rows."""
        row, rest = carve(scratch, self.n_features, self.own.scratch_width)
        np.copyto(row, x[:, : self.n_features])
        self.own.combine(row, weights, out, rest)

    def differentiate(self, x: Floats, weights: Floats, out: Floats, scratch: Floats) -> None:
        """Write the weighted gradients with respect to the features."""
        row, rest = carve(scratch, self.n_features, self.own.scratch_width)
        np.copyto(row, x[:, : self.n_features])
        self.own.differentiate(row, weights, out, rest)

    @property
    def by_input(self) -> Energy:
        """The same energies, split over the features and the context."""
        return _ByInput(self)

    @property
    def feature_of_input(self) -> Codes:
        """The features; the context belongs to none."""
        return np.append(np.arange(self.n_features), np.full(self.n_clusters, -1))

    def apart_from(self, x: Floats) -> Energy:
        """Return the energies of changed versions of a row, whose context stays the same."""
        found = copy(self)
        found.fixed = x[0, self.n_features :].copy()
        return found

    def compared(self, x: Floats) -> Floats:
        """Return the rows as the model compares them."""
        return self.own.compared(x[:, : self.n_features])

    @property
    def parts(self) -> Parts:
        """The parts of the row's energy."""
        return self.own.parts


class _ByInput(Energy):
    """A `ContextEnergy` whose features are its inputs."""

    def __init__(self, energy: ContextEnergy) -> None:
        self.energy = energy
        self.n_clusters, self.n_features = energy.n_clusters, energy.n_inputs
        self.offset, self.scratch_width = None, energy.scratch_width

    def energies(self, x: Floats, out: Floats, scratch: Floats) -> None:
        """Write the energies."""
        self.energy.energies(x, out, scratch)

    def combine(self, x: Floats, weights: Floats, out: Floats, scratch: Floats) -> None:
        """Write the weighted splits of the rows, and the weighted context."""
        d = self.energy.n_features
        split = np.empty((len(x), d))
        self.energy.combine(x, weights, split, scratch)
        out[:, :d] = split
        np.multiply(weights, x[:, d:], out=out[:, d:])

    def differentiate(self, x: Floats, weights: Floats, out: Floats, scratch: Floats) -> None:
        """Write the weighted gradients; that of the context is the weight."""
        d = self.energy.n_features
        slope = np.empty((len(x), d))
        self.energy.differentiate(x, weights, slope, scratch)
        out[:, :d], out[:, d:] = slope, weights

    def quadratics(self) -> Quadratics | None:
        """Return the quadratic functions of a row whose context is fixed."""
        found = self.energy.own.quadratics()
        fixed, k = self.energy.fixed, self.n_clusters
        if found is None or fixed is None or found.matrix is not None:
            return None
        return found._replace(
            centers=np.pad(found.centers, ((0, 0), (0, k))),
            roots=np.pad(found.roots, ((0, 0), (0, k), (0, 0))),
            bias=found.bias + fixed[found.cluster],
            is_distance=False,
        )
