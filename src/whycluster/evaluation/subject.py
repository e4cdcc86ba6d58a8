"""What is evaluated: a clustering and some rows, as numbers."""

from __future__ import annotations

import copy
import threading
import zlib
from collections.abc import Callable, Hashable
from contextlib import suppress
from functools import cached_property
from typing import Any, TypeAlias

import numpy as np

from whycluster.core import attribution, blocks, outputs
from whycluster.core.arrays import Codes, Floats
from whycluster.core.attribution import Attribution, CodedQuery
from whycluster.core.errors import InvalidInputError, UnsupportedModelError
from whycluster.data.arrays import to_finite_array
from whycluster.data.frames import build_frame
from whycluster.data.labels import as_list
from whycluster.data.missing import is_missing
from whycluster.data.opening import open_table
from whycluster.data.progress import Progress
from whycluster.data.sparse_table import SparseTable
from whycluster.data.table import ArrayTable, Table
from whycluster.evaluation.samplers import ConditionalKDE
from whycluster.evaluation.shuffled import ShuffledEnergy
from whycluster.models.adapters.registry import OnlyLabels, find_network, to_network
from whycluster.models.network import Network, TableNetwork

_BLOCK_VALUES = 1 << 20

Work: TypeAlias = Callable[[slice, np.random.Generator, Callable[[], None]], None]


class _StoppedError(Exception):
    """Ends the work of a thread when that of another is lost anyway."""


class Subject:
    """A clustering, rows with the cluster of each, and the population that they are from.

    Parameters
    ----------
    model : anything that `neuralize` takes, or a function that gives the labels of rows
    X : (n, d) rows
    where : the function that was called, for messages
    background : (m, d) the population; by default X
    """

    def __init__(self, model: Any, X: Any, where: str, background: Any = None) -> None:
        self.where = where
        self.network: Network | None = None
        self._function: Callable[[Any], Any] | None = None
        self._codes: dict[Any, int] = {}
        self._move: Callable[[Floats], Floats] = np.copy  # what is done to rows before the function sees them
        if _is_function(model):
            self._function = model
        else:
            found = find_network(model, None, None, X)
            # Of labels alone there is no network; neuralize says what to do then.
            self.network = to_network(model) if isinstance(found, OnlyLabels) else found
        self.on_threads = self.network is not None  # a user's function is called on the thread it came on
        self.table = self._open(X, "X")
        if self.table.goes_through_steps:
            raise UnsupportedModelError(
                f"{where}: model must take numbers as they are, no pipeline. Evaluate its last step on what "
                f"comes to it, {where}(pipeline[-1], pipeline[:-1].transform(X), ...); or, on numbers, its "
                f"prediction: flipping_auc(pipeline.predict, X, exp.relevance)."
            )
        self.rows: Floats = to_finite_array(self.table)
        self.n_rows, self.n_features = self.rows.shape
        self.categorical = np.isin(np.arange(self.n_features), list(self.table.categories))
        self.cluster = self.assign(self.rows)
        self.population = self.rows
        if background is not None:
            self.population = to_finite_array(self._open(background, "background"))

    def _open(self, X: Any, name: str) -> Table:
        if self.network is not None:
            return self.network.open(X, self.where, name=name)
        if name == "X":
            return open_table(X, where=self.where)
        names = self.names
        return open_table(X, where=self.where, name=name, n_features=self.n_features, model_names=names)

    @property
    def names(self) -> list[Hashable] | None:
        """Of the features, None where neither the model nor X has any."""
        known = self.network is not None and self.network.feature_names is not None
        return self.table.feature_names if known or self._has_names(self.table) else None

    @staticmethod
    def _has_names(table: Table) -> bool:
        return not isinstance(table, (ArrayTable, SparseTable))

    @cached_property
    def density(self) -> ConditionalKDE:
        """Of the population."""
        names = self.table.feature_names
        return ConditionalKDE(self.population, categorical=self.categorical, feature_names=names)

    def explain(self, rule: str, rows: Floats | None = None, beta: float | None = None) -> Attribution:
        """The relevance of rows, by default of all, by a rule; what it has to measure, on the population."""
        if self.network is None:
            raise InvalidInputError(f"{self.where}: model must be one that `neuralize` takes, no function.")
        rows = self.rows if rows is None else rows
        population = None if rows is self.population else ArrayTable.of(self.population)
        query = CodedQuery(rule=rule, beta=beta)
        return attribution.attribute(self.network.energy, ArrayTable.of(rows), query, population)

    def shuffled(self, order: Codes, factor: Floats, shift: Floats) -> Subject:
        """The same rows under the model whose features were dealt out anew, as `ShuffledEnergy` has it."""
        other = copy.copy(self)
        if self.network is not None:
            other.network = TableNetwork(ShuffledEnergy(self.network.energy, order, factor, shift))
        else:
            other._move = lambda rows: rows[:, order] * factor + shift
        other.cluster = other.assign(self.rows)
        return other

    def assign(self, rows: Floats) -> Codes:
        """Codes of the clusters of other rows, (b,)."""
        if self.network is not None:
            return outputs.assign(self.network.energy, ArrayTable.of(rows))
        return self._ask(rows)

    def stays(self, rows: Floats, cluster: Codes) -> Floats:
        """1 where a row is in the given cluster, 0 elsewhere: (..., d) and (...,) to (...,)."""
        assigned = self.assign(rows.reshape(-1, self.n_features)).reshape(rows.shape[:-1])
        return np.asarray(assigned == cluster, dtype=np.float64)

    def in_blocks(self, work: Work, title: str, n_steps: int, per_row: int, random_state: int) -> None:
        """Call ``work(rows, rng, step)`` for blocks of rows, so that what is held for one is about 8 MB.

        On several threads, unless a user's function is part of it. What is drawn depends on the seed, the
        title and the blocks only, never on the threads.

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
        seeds = np.random.SeedSequence([random_state, zlib.crc32(title.encode())]).spawn(len(starts))
        stopped = threading.Event()

        def step() -> None:
            if stopped.is_set():  # another block failed, or Ctrl-C
                raise _StoppedError
            bar.step()

        def one(block: int) -> None:
            rows = slice(starts[block], min(starts[block] + size, self.n_rows))
            with suppress(_StoppedError):  # the error that stopped it is the one to be raised
                work(rows, np.random.default_rng(seeds[block]), step)

        with Progress(title, n_steps * len(starts)) as bar:
            if self.on_threads:
                blocks.each(one, len(starts), stopped)
            else:
                for block in range(len(starts)):
                    one(block)

    def _ask(self, rows: Floats) -> Codes:
        """The user's function is given rows as the user has them, and may give any labels."""
        assert self._function is not None
        labels = self._function(self._as_given(self._move(rows)))
        plain = isinstance(labels, np.ndarray) and labels.dtype.kind in "iufbU"
        if not plain:  # as Python objects: NumPy would make text of a list that mixes text and numbers
            objects = as_list(labels, self.where)
            labels = np.empty(len(objects), dtype=object)
            labels[:] = objects
        if labels.shape != (len(rows),):
            raise InvalidInputError(
                f"{self.where}: model must give one label for each row; for {len(rows)} rows it gave shape "
                f"{labels.shape}."
            )
        names, inverse = np.unique(labels, return_inverse=True) if plain else (labels, slice(None))
        return np.array([self._code(name) for name in names.tolist()], dtype=np.intp)[inverse]

    def _code(self, label: Any) -> int:
        if is_missing(label):
            raise InvalidInputError(f"{self.where}: model must give a label for each row; it gave {label!r}.")
        try:
            return self._codes.setdefault(label, len(self._codes))
        except TypeError as error:
            raise InvalidInputError(f"{self.where}: model must give numbers or text ({error}).") from error

    def _as_given(self, rows: Floats) -> Any:
        """Rows in the kind of container that X is."""
        if isinstance(self.table, SparseTable):
            return type(self.table.native)(rows)
        if not self._has_names(self.table):
            return rows
        columns = dict(zip(self.table.feature_names, rows.T, strict=True))
        return build_frame(columns, self.table.native, None, self.where, same_rows=False)


def _is_function(model: Any) -> bool:
    """A function of rows, such as a model's bound ``predict``; no class, and no model itself."""
    return callable(model) and not isinstance(model, type) and not hasattr(model, "predict")
