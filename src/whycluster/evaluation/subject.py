"""The model and the rows under evaluation, in numeric form."""

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
from whycluster.models.adapters.incomplete import OnlyLabels
from whycluster.models.adapters.registry import find_network, to_network
from whycluster.models.network import Network, TableNetwork, check_rows_alone

_BLOCK_VALUES = 1 << 20

Work: TypeAlias = Callable[[slice, np.random.Generator, Callable[[], None]], None]


class _StoppedError(Exception):
    """Raised to stop a thread after another thread has failed."""


class Subject:
    """A clustering, rows with their clusters, and the population that the rows come from.

    Parameters
    ----------
    model : any model that `neuralize` accepts, or a function that returns the labels of rows
    X : (n, d) rows
    where : the name of the calling function, for error messages
    background : (m, d) the population; by default, X
    """

    def __init__(self, model: Any, X: Any, where: str, background: Any = None) -> None:
        self.where = where
        self.network: Network | None = None
        self._function: Callable[[Any], Any] | None = None
        self._codes: dict[Any, int] = {}
        self.transform: Callable[[Floats], Floats] = np.copy  # applied to rows before the function is called
        if _is_function(model):
            self._function = model
        else:
            found = find_network(model, None, None, X, where=where)
            # Labels alone have no network, so to_network raises an error that suggests a fix.
            self.network = to_network(model) if isinstance(found, OnlyLabels) else found
        if self.network is not None:
            check_rows_alone(self.network, where)
        self.on_threads = self.network is not None  # a user's function runs on the calling thread
        self.table = self._open(X, "X")
        if self.table.goes_through_steps:
            raise UnsupportedModelError(
                f"{where}: model must take numbers directly; got a pipeline. Evaluate its last step on the "
                f"transformed rows, {where}(pipeline[-1], pipeline[:-1].transform(X), ...). If X is "
                "numeric, you can also evaluate the predictions of the pipeline: "
                "flipping_auc(pipeline.predict, X, exp.relevance)."
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
        """The names of the features, or None if neither the model nor X provides names."""
        known = self.network is not None and self.network.feature_names is not None
        return self.table.feature_names if known or self._has_names(self.table) else None

    @staticmethod
    def _has_names(table: Table) -> bool:
        return not isinstance(table, (ArrayTable, SparseTable))

    @cached_property
    def density(self) -> ConditionalKDE:
        """The density of the population."""
        names = self.table.feature_names
        return ConditionalKDE(self.population, categorical=self.categorical, feature_names=names)

    def explain(self, rule: str, rows: Floats | None = None, beta: float | None = None) -> Attribution:
        """Explain rows (by default, all rows) with the population as background."""
        if self.network is None:
            raise InvalidInputError(
                f"{self.where}: model must be one that `neuralize` accepts; got a function."
            )
        rows = self.rows if rows is None else rows
        population = None if rows is self.population else ArrayTable.of(self.population)
        query = CodedQuery(rule=rule, beta=beta)
        return attribution.attribute(self.network.energy, ArrayTable.of(rows), query, population)

    def shuffled(self, order: Codes, factor: Floats, shift: Floats) -> Subject:
        """Return a subject with the same rows and a model whose features are shuffled by `ShuffledEnergy`."""
        other = copy.copy(self)
        if self.network is not None:
            other.network = TableNetwork(ShuffledEnergy(self.network.energy, order, factor, shift))
        else:
            other.transform = lambda rows: rows[:, order] * factor + shift
        other.cluster = other.assign(self.rows)
        return other

    def assign(self, rows: Floats) -> Codes:
        """Return the cluster codes of any rows, (b,)."""
        if self.network is not None:
            return outputs.assign(self.network.energy, ArrayTable.of(rows))
        return self._call_function(rows)

    def stays(self, rows: Floats, cluster: Codes) -> Floats:
        """Return 1 for rows, (..., d), in the given clusters, (...,), and 0 for all other rows."""
        assigned = self.assign(rows.reshape(-1, self.n_features)).reshape(rows.shape[:-1])
        return np.asarray(assigned == cluster, dtype=np.float64)

    def in_blocks(self, work: Work, title: str, n_steps: int, per_row: int, random_state: int) -> None:
        """Call ``work(rows, rng, step)`` for blocks of rows that need about 8 MB each.

        Blocks run on several threads, unless a user's function is involved. The random numbers depend only on
        the seed, the title and the blocks, never on the threads.

        Parameters
        ----------
        work : receives a slice of rows, a random generator, and a function to call after each step
        title, n_steps : title and number of steps per block for the progress bar
        per_row : the memory per row, as a multiple of the memory for the row's features
        random_state : random seed
        """
        most = max(1, _BLOCK_VALUES // (self.n_features * per_row))
        size = min(most, -(-self.n_rows // 4))  # small data are also split among several threads
        starts = range(0, self.n_rows, size)
        seeds = np.random.SeedSequence([random_state, zlib.crc32(title.encode())]).spawn(len(starts))
        stopped = threading.Event()

        def step() -> None:
            if stopped.is_set():  # another block failed, or the user pressed Ctrl-C
                raise _StoppedError
            bar.step()

        def one(block: int) -> None:
            rows = slice(starts[block], min(starts[block] + size, self.n_rows))
            with suppress(_StoppedError):  # the original error is raised instead
                work(rows, np.random.default_rng(seeds[block]), step)

        with Progress(title, n_steps * len(starts)) as bar:
            if self.on_threads:
                blocks.each(one, len(starts), stopped)
            else:
                for block in range(len(starts)):
                    one(block)

    def _call_function(self, rows: Floats) -> Codes:
        """Return the label codes from the user's function, which gets rows in a container like that of X."""
        assert self._function is not None
        labels = self._function(self._as_given(self.transform(rows)))
        plain = isinstance(labels, np.ndarray) and labels.dtype.kind in "iufbU"
        if not plain:  # keep Python objects, since NumPy would convert numbers next to strings to strings
            objects = as_list(labels, self.where)
            labels = np.empty(len(objects), dtype=object)
            labels[:] = objects
        if labels.shape != (len(rows),):
            raise InvalidInputError(
                f"{self.where}: model must return one label for each row; for {len(rows)} rows it returned "
                f"shape {labels.shape}."
            )
        names, inverse = np.unique(labels, return_inverse=True) if plain else (labels, slice(None))
        return np.array([self._code(name) for name in names.tolist()], dtype=np.intp)[inverse]

    def _code(self, label: Any) -> int:
        if is_missing(label):
            raise InvalidInputError(
                f"{self.where}: model must return a label for each row; it returned {label!r}."
            )
        try:
            return self._codes.setdefault(label, len(self._codes))
        except TypeError as error:
            raise InvalidInputError(
                f"{self.where}: model must return numbers or strings ({error})."
            ) from error

    def _as_given(self, rows: Floats) -> Any:
        """Return rows in the same kind of container as X."""
        if isinstance(self.table, SparseTable):
            return type(self.table.native)(rows)
        if not self._has_names(self.table):
            return rows
        columns = dict(zip(self.table.feature_names, rows.T, strict=True))
        return build_frame(columns, self.table.native, None, self.where, same_rows=False)


def _is_function(model: Any) -> bool:
    """Return whether ``model`` is a function of rows, such as a bound ``predict``, not a class or model."""
    return callable(model) and not isinstance(model, type) and not hasattr(model, "predict")
