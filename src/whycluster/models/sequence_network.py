"""Networks of hidden Markov models: rows are the time steps of one sequence."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from whycluster.core.arrays import Floats
from whycluster.core.energies import Energy
from whycluster.data.context_table import ContextTable
from whycluster.data.frame_table import ColumnNames
from whycluster.data.opening import open_table
from whycluster.data.table import Table
from whycluster.models.energies.context import ContextEnergy
from whycluster.models.numeric_network import NumericNetwork

AROUND = "other time steps"
"""What a state owes to the transitions and to the values of other time steps."""
_IMPOSSIBLE = 1e9  # the energy of a state that the transitions rule out, above that of the most probable one


class SequenceNetwork(NumericNetwork):
    """The network of a hidden Markov model, which takes the time steps of one sequence, in their order.

    The energy of state k at time t is s_k(t) = -log p(x_t | k) + m_k(t), where the message m_k(t) of the
    other time steps is

    - -log max over all paths through k at t of the probability of the path and of all x but x_t. The state
      with the lowest energy is that of the Viterbi path.
    - with ``sums``, the same with a sum over the paths. softmax(-s) are the probabilities of the states.

    Parameters
    ----------
    emission : -log p(x_t | k) for each state
    start : (K,) the probabilities of the first state
    transitions : (K, K) the probabilities of state l after state k
    sums : whether the most probable state of each time step is assigned, instead of the best path
    labels, feature_names : as for `Network`
    """

    rows_alone = False

    def __init__(
        self,
        emission: Energy,
        start: Floats,
        transitions: Floats,
        *,
        sums: bool = False,
        labels: Any = None,
        feature_names: Sequence[Any] | None = None,
    ) -> None:
        energy = ContextEnergy(emission, AROUND, gives_probabilities=sums)
        super().__init__(energy, labels=labels, feature_names=feature_names)
        self.emission, self.sums = emission, sums
        self.log_start, self.log_transitions = _log(start), _log(transitions)

    def _open(self, X: Any, where: str, name: str, columns: ColumnNames) -> Table:
        """Return the time steps with the messages of the time steps around each of them."""
        rows = open_table(X, where=where, name=name, n_features=self.n_features, **columns)
        return ContextTable.of(rows, self._messages(rows))

    def _messages(self, rows: Table) -> Floats:
        """Return m_k(t), (n, K), less the smallest of each time step."""
        emitted = np.empty((rows.n_rows, self.n_clusters))
        with np.errstate(all="ignore"):  # values that are not finite are reported when the rows are read
            for start, block in rows.blocks():
                scratch = np.empty((len(block), self.emission.scratch_width))
                self.emission.energies(block, emitted[start : start + len(block)], scratch)
            total = self._forward(-emitted) + self._backward(-emitted)
            messages = total.max(axis=1, keepdims=True) - total
        return np.where(messages < _IMPOSSIBLE, messages, _IMPOSSIBLE)

    def _pool(self, values: Floats) -> Floats:
        """Return the maximum or the log of the sum over the first axis."""
        top = values.max(axis=0)
        if not self.sums:
            return np.asarray(top)
        top = np.where(np.isfinite(top), top, 0.0)
        return np.asarray(top + np.log(np.exp(values - top).sum(axis=0)))

    def _forward(self, log_p: Floats) -> Floats:
        """Return what the time steps before each one add to the log probability of each state, (n, K)."""
        found = np.empty_like(log_p)
        found[0] = self.log_start
        for t in range(1, len(log_p)):
            before = found[t - 1] + log_p[t - 1]
            found[t] = self._pool((before - before.max())[:, None] + self.log_transitions)
        return found

    def _backward(self, log_p: Floats) -> Floats:
        """Return what the time steps after each one add to the log probability of each state, (n, K)."""
        found = np.zeros_like(log_p)
        for t in range(len(log_p) - 2, -1, -1):
            after = found[t + 1] + log_p[t + 1]
            found[t] = self._pool((after - after.max())[:, None] + self.log_transitions.T)
        return found


def _log(probabilities: Any) -> NDArray[Any]:
    with np.errstate(divide="ignore"):
        return np.log(np.asarray(probabilities, dtype=np.float64))
