"""What is evaluated: a clustering and some rows, as numbers."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any, TypeAlias

import numpy as np

from whycluster import blocks, passes
from whycluster.arrays import Codes, Floats
from whycluster.energies.shuffled import ShuffledEnergy
from whycluster.errors import InvalidInputError
from whycluster.frames import build_frame
from whycluster.network import Network
from whycluster.neuralize import neuralize
from whycluster.progress import Progress
from whycluster.table import ArrayTable, Table, open_table

_BLOCK_VALUES = 1 << 20

Work: TypeAlias = Callable[[slice, np.random.Generator, Callable[[], None]], None]


class Subject:
    """A clustering, and rows with the cluster of each.

    Parameters
    ----------
    model : anything that `neuralize` takes, or a function that gives the labels of rows
    X : (n, d) rows
    where : the function that was called, for messages
    """

    def __init__(self, model: Any, X: Any, where: str) -> None:
        self.where = where
        self.network: Network | None = None
        self._function: Callable[[Any], Any] | None = None
        self._codes: dict[Any, int] = {}
        self._move: Callable[[Floats], Floats] = np.copy  # what is done to rows before the function sees them
        if _is_function(model):
            self._function = model
            self.table: Table = open_table(X, where=where)
        else:
            self.network = neuralize(model)
            self.table = self.network.open(X, where)
        self.rows: Floats = passes.to_finite_array(self.table)
        self.n_rows, self.n_features = self.rows.shape
        self.categorical = np.isin(np.arange(self.n_features), list(self.table.categories))
        self.cluster = self.assign(self.rows)

    def shuffled(self, order: Codes, factor: Floats, shift: Floats) -> Subject:
        """The same rows under the model whose features were dealt out anew, as `ShuffledEnergy` has it."""
        other = copy.copy(self)
        if self.network is not None:
            other.network = Network(ShuffledEnergy(self.network.energy, order, factor, shift))
        else:
            other._move = lambda rows: rows[:, order] * factor + shift
        other.cluster = other.assign(self.rows)
        return other

    def assign(self, rows: Floats) -> Codes:
        """Codes of the clusters of other rows, (b,)."""
        if self.network is not None:
            return passes.assign(self.network.energy, ArrayTable.of(rows))
        return self._ask(rows)

    def stays(self, rows: Floats, cluster: Codes) -> Floats:
        """1 where a row is in the given cluster, 0 elsewhere: (..., d) and (...,) to (...,)."""
        assigned = self.assign(rows.reshape(-1, self.n_features)).reshape(rows.shape[:-1])
        return np.asarray(assigned == cluster, dtype=np.float64)

    def in_blocks(self, work: Work, title: str, n_steps: int, per_row: int, random_state: int) -> None:
        """Call ``work(rows, rng, step)`` for blocks of rows that have no more than 8 MB of numbers to hold.

        On several threads, unless a user's function is part of it. What is drawn depends on the seed and the
        blocks only, never on the threads.

        Parameters
        ----------
        work : gets a slice of rows, a generator, and a function to be called after each step
        title, n_steps : for the progress bar; the steps are those of one block
        per_row : how many times a row's features it holds for each row
        random_state : seed
        """
        most = max(1, _BLOCK_VALUES // (self.n_features * per_row))
        size = min(most, -(-self.n_rows // 4))  # small data too are for more than one thread
        starts = range(0, self.n_rows, size)
        seeds = np.random.SeedSequence(random_state).spawn(len(starts))

        def one(block: int) -> None:
            rows = slice(starts[block], min(starts[block] + size, self.n_rows))
            work(rows, np.random.default_rng(seeds[block]), bar.step)

        with Progress(title, n_steps * len(starts)) as bar:
            self._each(one, len(starts))

    def _each(self, work: Callable[[int], None], n_tasks: int) -> None:
        if self.network is not None:
            blocks.each(work, n_tasks)
            return
        for task in range(n_tasks):
            work(task)

    def _ask(self, rows: Floats) -> Codes:
        """The user's function is given rows as the user has them, and may give any labels."""
        given: Any = self._move(rows)
        if not isinstance(self.table, ArrayTable):
            columns = dict(zip(self.table.feature_names, given.T, strict=True))
            given = build_frame(columns, self.table.native, None, self.where, same_rows=False)
        assert self._function is not None
        labels = np.asarray(self._function(given))
        if labels.shape != (len(rows),):
            raise InvalidInputError(
                f"{self.where}: model must give one label for each row; for {len(rows)} rows it gave shape "
                f"{labels.shape}."
            )
        names, inverse = np.unique(labels, return_inverse=True)
        codes = [self._codes.setdefault(name, len(self._codes)) for name in names.tolist()]
        return np.array(codes, dtype=np.intp)[inverse]


def _is_function(model: Any) -> bool:
    """A function of rows, such as a model's bound ``predict``; no class, and no model itself."""
    return callable(model) and not isinstance(model, type) and not hasattr(model, "predict")
