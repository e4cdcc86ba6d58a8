"""The partitions of a Dask collection: the requirements for each, and how tasks receive them."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import dataclass, replace
from itertools import accumulate
from typing import Any, NamedTuple, TypeVar

import narwhals as nw
import numpy as np
from numpy.typing import NDArray

from whycluster.core.errors import InvalidInputError, WhyClusterError
from whycluster.data import column_kinds
from whycluster.data.frame_table import name_differences
from whycluster.data.opening import open_table
from whycluster.data.table import Table
from whycluster.engines.request import ExplainRequest

Result = TypeVar("Result")


class Partition(NamedTuple):
    """One partition in memory, and its number."""

    rows: Any
    number: int


@dataclass(frozen=True)
class Partitions:
    """The request to answer for every partition, and the requirements for each partition.

    All tasks share one such object.

    Attributes
    ----------
    request : the request
    columns : the columns of the frame's meta, or None for an array
    numeric : the numeric columns of a frame
    feature_names : (d,) the names of the features, in the order of the model
    dtype : the dtype of the results, float32 or float64
    starts : the position of the first row of each chunk of an array, or None if the positions are unknown
    """

    request: ExplainRequest
    columns: list[Hashable] | None
    numeric: frozenset[Hashable]
    feature_names: list[Hashable]
    dtype: np.dtype[Any]
    starts: list[int] | None

    def attempt(self, part: Partition, work: Callable[[Any], Result]) -> Result:
        """Check the rows of a partition and apply ``work`` to them; error messages name the partition."""
        try:
            return work(self.checked(part.rows))
        except WhyClusterError as error:
            raise type(error)(
                f"{error} The error is in partition {part.number} of {self.request.name}; its rows are "
                "counted from 0."
            ) from error

    def checked(self, rows: Any) -> Any:
        """Return the rows of a partition; raise an error unless their columns match the meta."""
        if self.columns is None:
            return rows
        if not hasattr(rows, "iloc"):
            kind = type(rows)
            raise self._error(
                f"must be pandas data frames; got a {kind.__module__.split('.')[0]} {kind.__name__}. Convert "
                "the data when they are read."
            )
        if list(rows.columns) != self.columns:
            wrong = name_differences(list(rows.columns), self.columns)
            if wrong:
                raise self._error(
                    f"must have the {len(self.columns)} columns of the meta; {wrong}. Select or rename "
                    "columns when the data are read."
                )
            rows = rows[self.columns]
        text = [c for c in self.columns if c in self.numeric and not is_numeric(rows.dtypes[c])]
        if text:
            raise self._error(
                f"must hold numbers in the columns that are numeric in the meta; column {text[0]!r} has "
                f"dtype {rows.dtypes[text[0]]}. Convert the column when it is read."
            )
        return rows

    def cast(self, values: NDArray[Any]) -> NDArray[Any]:
        """Return results in the dtype that the meta declares; raise an error if they would be rounded."""
        if len(values) and not np.can_cast(values.dtype, self.dtype):
            raise self._error(
                f"must have dtype {self.dtype}, as the meta declares; got {values.dtype}. Convert the data "
                "when they are read."
            )
        return values.astype(self.dtype, copy=False)

    def _error(self, text: str) -> InvalidInputError:
        """Return an error about all partitions."""
        return InvalidInputError(f"{self.request.where}: all partitions of {self.request.name} {text}")


class DaskParts(NamedTuple):
    """A Dask array or DataFrame, and its partitions."""

    collection: Any
    partitions: Partitions


def find_partitions(X: Any, request: ExplainRequest, known_names: list[Hashable] | None = None) -> DaskParts:
    """Check a collection as far as possible without computing it.

    If the model has no column names, the columns of a frame are matched with ``known_names``.
    """
    import dask.array as da

    network = request.network
    names = network.feature_names or known_names
    if isinstance(X, da.Array):
        first = _first_row(X, request, names)
        sizes = X.chunks[0]
        starts = None if any(map(np.isnan, sizes)) else [0, *accumulate(sizes[:-1])]
        found = Partitions(request, None, frozenset(), first.feature_names, first.dtype, starts)
        return DaskParts(X, found)
    if not _is_frame(X):
        raise InvalidInputError(
            f"{request.where}: {request.name} must be a Dask array or DataFrame; got a Dask "
            f"{type(X).__name__}."
        )
    if names is None and len(X.columns) != network.n_features:
        raise InvalidInputError(
            f"{request.where}: {request.name} must have {network.n_features} features, the number that the "
            f"model was fitted on; got {len(X.columns)} columns."
        )
    first = _open_sample(X._meta_nonempty, request, names)
    columns = list(X.columns) if known_names is None or network.feature_names else known_names
    numeric = frozenset(column for column in columns if is_numeric(X.dtypes[column]))
    found = Partitions(request, columns, numeric, first.feature_names, first.dtype, None)
    return DaskParts(X, found)


def _is_frame(X: Any) -> bool:
    # A Delayed object seems to have every attribute, but its type does not.
    return hasattr(type(X), "map_partitions") and getattr(X, "ndim", 0) == 2


def _first_row(X: Any, request: ExplainRequest, names: list[Hashable] | None) -> Table:
    """Return a row of zeros with an array's width and dtype; raise an error if the array's shape is wrong."""
    n_features = request.network.n_features
    if X.ndim != 2:
        raise InvalidInputError(
            f"{request.where}: {request.name} must be two-dimensional (rows, features); got shape {X.shape}."
        )
    if X.shape[1] != n_features:
        raise InvalidInputError(
            f"{request.where}: {request.name} must have {n_features} features, the number that the model "
            f"was fitted on; got shape {X.shape}."
        )
    return _open_sample(np.zeros((1, n_features), X.dtype), request, names)


def _open_sample(like: Any, request: ExplainRequest, names: list[Hashable] | None) -> Table:
    """Open one or two rows with the types of the data, to check them and find the names and the dtype."""
    network = request.network
    table = open_table(
        like,
        where=request.where,
        name=request.name,
        n_features=network.n_features,
        model_names=names,
        feature_names=request.feature_names,
        any_kind=network.takes_any_kind,
    )
    return table if network.categories is None else replace(table, dtype=np.dtype(np.float64))


def blocks_of(X: Any, step: str) -> Any:
    """Return a Dask array, (n, d), with one block per partition; the partitions of a DataFrame become blocks.

    Dask fuses the tasks that lead to a partition, such as reading a file, into one task, but only if a single
    step needs the partition. Tasks are therefore named after their step and fused here. Layers of similar
    tasks are left alone, because Dask fuses them with the tasks of the step when it computes them.
    """
    import dask
    from dask.blockwise import Blockwise

    if _is_frame(X):
        width = np.empty((0, len(X.columns)))
        blocks = X.map_partitions(_same, step, meta=width, enforce_metadata=False, align_dataframes=False)
    else:
        whole = X if X.numblocks[1] == 1 else X.rechunk({1: -1})  # a row cannot be split
        blocks = whole.map_blocks(_same, step, dtype=X.dtype, meta=whole._meta)
    alike = (isinstance(layer, Blockwise) or len(layer) == 1 for layer in blocks.dask.layers.values())
    return blocks if all(alike) else dask.optimize(blocks)[0]


def _same(part: Any, step: str) -> Any:  # noqa: ARG001  # the step gives the task a distinct name
    return part


def is_numeric(dtype: Any) -> bool:
    """Return whether a pandas dtype holds numbers or booleans."""
    import pandas as pd

    return column_kinds.is_numeric(nw.from_native(pd.Series(dtype=dtype), series_only=True).dtype)
