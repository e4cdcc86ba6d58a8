"""The rows that a user passes in, read as float64 blocks; this module handles NumPy arrays.

A `Table` wraps the user's container. The container is never converted as a whole: `Table.read` returns one
block of rows at a time, so memory does not grow with the number of rows. `opening.open_table` picks the
class: `ArrayTable` here, and others for sparse matrices, data frames and columns of mixed kinds.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from whycluster.core.arrays import Codes, Floats
from whycluster.core.errors import InvalidInputError
from whycluster.core.rows import Rows
from whycluster.data.arrays import evenly_spaced
from whycluster.data.cells import cells_of, with_cells

_SCAN_VALUES = 1 << 19  # values per block (4 MB) when a table is only scanned


@dataclass(frozen=True)
class Table(Rows):
    """Rows of numbers in the container that the user passed in.

    Attributes
    ----------
    native : the user's object, with its columns in the model's order; sparse matrices are converted to CSR
    n_rows, n_features : the shape of the user's object
    feature_names : one name per column, as in the user's data
    dtype : the dtype of results: float32 for float32 data, otherwise float64
    where, name : the public function and its parameter, for messages
    """

    native: Any
    n_rows: int
    n_features: int
    feature_names: list[Hashable]
    dtype: np.dtype[Any]
    where: str
    name: str
    categories: Mapping[int, Sequence[Any]] = field(default_factory=dict, kw_only=True)
    """For each column of categories, the value of each code; any other value has the code -1."""
    dates: frozenset[int] = field(default=frozenset(), kw_only=True)
    """The columns that hold dates, read as days since 1970."""
    booleans: frozenset[int] = field(default=frozenset(), kw_only=True)
    """The columns that hold booleans, read as 0 and 1."""
    first_row: int = field(default=0, kw_only=True)
    """The number of the first row in messages, if the table is part of the user's data."""
    row_numbers: Codes | None = field(default=None, kw_only=True)
    """The numbers of the rows in messages, counted from ``first_row``, if some rows were dropped."""
    raw: Table | None = field(default=None, kw_only=True)
    """The user's columns, if the rows go through the steps of a pipeline; None if they are this table."""
    by_columns: bool = field(default=False, kw_only=True)
    """Whether rows are read, and relevance is computed and written, column by column."""

    @abstractmethod
    def read(self, start: int, stop: int, offset: Floats | None, out: Floats) -> Floats:
        """Return rows start..stop minus ``offset`` as C-ordered float64, shape (stop - start, d).

        ``out`` is used only if values must be converted. Otherwise the result may be a view of the user's
        data and must not be modified.
        """

    def inputs(self, start: int, stop: int, offset: Floats | None, out: Floats) -> Floats:
        """Return the inputs of the network for these rows, minus ``offset``; usually the result of `read`."""
        return self.read(start, stop, offset, out)

    def inputs_in_tiles(self, start: int, stop: int, size: int, offset: Floats | None, out: Floats) -> Floats:  # noqa: ARG002  # for subclasses
        """Return rows start..stop like `inputs`, with values that do not depend on the other rows.

        Subclasses whose values depend on how many rows are read at once read ``size`` rows at a time.
        """
        return self.inputs(start, stop, offset, out)

    @abstractmethod
    def _select(self, rows: Codes) -> Any:
        """Return the given rows in the user's own container."""

    def take(self, rows: Codes) -> Table:
        """Return a table of the given rows only."""
        row_numbers = None if self.row_numbers is None else self.row_numbers[rows]
        return replace(self, native=self._select(rows), n_rows=len(rows), row_numbers=row_numbers)

    @property
    def index(self) -> Sequence[Hashable] | None:
        """The names of the rows, such as a pandas index, or None if rows have only positions."""
        return None

    def with_row_numbers(self, first_row: int, row_numbers: Codes | None = None) -> Table:
        """Return a copy of the table that uses other row numbers in messages."""
        return replace(self, first_row=first_row, row_numbers=row_numbers)

    def number(self, row: int) -> int:
        """Return the number of a row for messages."""
        return self.first_row + (row if self.row_numbers is None else int(self.row_numbers[row]))

    def slices(self, width: int | None = None) -> Iterator[slice]:
        """Iterate over all rows in batches; ``width`` is the number of values per row, if not n_features."""
        size = max(1, _SCAN_VALUES // (width or self.n_features))
        for start in range(0, self.n_rows, size):
            yield slice(start, min(start + size, self.n_rows))

    def blocks(self) -> Iterator[tuple[int, Floats]]:
        """Iterate over all rows in order, as (first row, block); a block is valid until the next one."""
        out = np.empty((0, self.n_features))
        for rows in self.slices():
            n_rows = rows.stop - rows.start
            out = out if len(out) else np.empty((n_rows, self.n_features))  # the first block is the largest
            yield rows.start, self.read(rows.start, rows.stop, None, out[:n_rows])

    def variances(self) -> Floats | None:
        """Return the variances of the columns in a sample of rows, (d,), or None if any is categorical."""
        if self.categories:
            return None
        values = self.take(evenly_spaced(self.n_rows, max(2, _SCAN_VALUES // self.n_features))).to_array()
        return np.asarray(values.var(axis=0))

    def pick(self, columns: Codes) -> NDArray[Any]:
        """Return the values, (n, k), of each row in the columns given for that row, (n, k)."""
        value = np.empty(columns.shape)
        for start, block in self.blocks():
            rows = slice(start, start + len(block))
            value[rows] = np.take_along_axis(block, columns[rows], axis=1)
        return value

    def to_array(self) -> Floats:
        """Return all rows as one new float64 array."""
        whole = np.empty((self.n_rows, self.n_features))
        for start, block in self.blocks():
            whole[start : start + len(block)] = block
        return whole

    def to_objects(self) -> NDArray[Any]:
        """Return all values in the user's terms, (n, d): numbers, or the names of categories."""
        return self.to_array()

    def cells(self, row: int) -> list[Any]:
        """Return the values of a row as the user's container holds them, (d,)."""
        return cells_of(self.native, row)

    def put(self, rows: Codes, columns: Codes, values: Sequence[Any]) -> Table:
        """Return a copy with new values in some cells; integers become floats so that any number fits."""
        return replace(self, native=with_cells(self.native, rows, columns, values, self.dtype))

    @property
    def is_plain(self) -> bool:
        """Whether the inputs of the network are the columns themselves."""
        return not self.goes_through_steps

    def has_missing(self) -> bool:
        """Return whether any value is NaN."""
        return any(np.isnan(block).any() for _, block in self.blocks())

    def invalid_values(self) -> NDArray[np.int8]:
        """Return, for each value, 0 if it is finite, 1 if it is missing and 2 if it is infinite; (n, d)."""
        parts = [np.isnan(block) + 2 * np.isinf(block) for _, block in self.blocks()]
        return np.concatenate(parts).astype(np.int8)

    def first_not_finite(self) -> tuple[int, Hashable, float] | None:
        """Return the first NaN or infinity as (row, feature name, value), or None if all are finite."""
        for start, block in self.blocks():
            bad = np.argwhere(~np.isfinite(block))
            if len(bad):
                row, column = bad[0]
                return start + int(row), self.feature_names[column], float(block[row, column])
        return None

    def why_out_of_range(self) -> str:
        """Return the error message for rows that lead to NaN, infinity or an underflow."""
        found = self.first_not_finite()
        if found is None:
            largest = max(float(np.abs(block).max()) for _, block in self.blocks())
            size = "large" if largest > 1.0 else "small"
            return (
                f"{self.where}: {self.name} has values too {size} to be squared in {self.dtype}; the "
                f"largest absolute value is {largest:.3g}. Rescale the data and fit the model again."
            )
        row, feature, value = found
        kind = "a missing value (NaN)" if math.isnan(value) else "an infinite value"
        return (
            f"{self.where}: {self.name} must be finite; row {self.number(row)}, feature {feature!r} holds "
            f"{kind}. Drop or fill such rows first."
        )


class ArrayTable(Table):
    """A two-dimensional NumPy array of real numbers."""

    is_array = True

    @classmethod
    def of(cls, array: NDArray[Any]) -> ArrayTable:
        """Wrap an array that the package computed; its columns have no names."""
        n_rows, n_features = array.shape
        return cls(array, n_rows, n_features, [], array.dtype, "", "")

    @classmethod
    def open(cls, array: NDArray[Any], required: Requirements) -> ArrayTable:
        """Check an array and wrap it."""
        required.check_shape(array.shape)
        required.check_dtype(array.dtype)
        n_rows, n_features = array.shape
        names, dtype = required.array_names(n_features), result_dtype(array.dtype)
        booleans = frozenset(range(n_features) if array.dtype.kind == "b" else ())
        owner = required.where, required.name
        return cls(array, n_rows, n_features, names, dtype, *owner, booleans=booleans)

    def read(self, start: int, stop: int, offset: Floats | None, out: Floats) -> Floats:
        """Return a view if no value has to be converted."""
        return as_float64(self.native[start:stop], offset, out)

    def memory(self) -> NDArray[Any]:
        """Return the array itself."""
        return self.native  # type: ignore[no-any-return]

    def _select(self, rows: Codes) -> Any:
        return self.native[rows]


@dataclass(frozen=True)
class Requirements:
    """What a function requires of a table, and the function's name for messages; see `opening.open_table`."""

    where: str
    name: str
    n_features: int | None = None
    model_names: Sequence[Hashable] | None = None
    feature_names: Sequence[Hashable] | None = None
    categories: Sequence[Sequence[Any] | None] | None = None
    any_kind: bool = False

    def error(self, message: str) -> InvalidInputError:
        """Return an error whose message begins with the function and the parameter."""
        return InvalidInputError(f"{self.where}: {self.name} {message}")

    def check_shape(self, shape: tuple[int, ...]) -> None:
        """Raise an error unless the shape is (rows, features), with the model's number of features."""
        if len(shape) != 2:
            hint = " For a single row, select it as a table: array[[i]] or frame.iloc[[i]]."
            raise self.error(
                f"must be two-dimensional (rows, features); got shape {shape}." + hint * (len(shape) == 1)
            )
        if self.n_features is not None and shape[1] != self.n_features:
            raise self.error(
                f"must have {self.n_features} features, the number that the model was fitted on; got shape "
                f"{shape}."
            )
        if shape[0] == 0 or shape[1] == 0:
            raise self.error(f"must have at least one row and one feature; got shape {shape}.")

    def check_dtype(self, dtype: np.dtype[Any]) -> None:
        """Raise an error unless an array holds real numbers or booleans."""
        if dtype.kind not in "fiub":
            advice = _DTYPE_ADVICE.get(dtype.kind, "Encode it as numbers first.")
            raise self.error(f"must hold real numbers or booleans; got dtype {dtype}. {advice}")

    def array_names(self, n_features: int) -> list[Hashable]:
        """Return names for the columns of an array: the user's, else the model's, else x0, x1, ..."""
        model_names = None if self.model_names is None else list(self.model_names)
        if self.feature_names is None:
            return [f"x{i}" for i in range(n_features)] if model_names is None else model_names
        names = _as_names(self.feature_names, self.where)
        if len(names) != n_features or len(set(names)) != n_features:
            raise InvalidInputError(
                f"{self.where}: feature_names must be {n_features} distinct names, one per feature; "
                f"got {len(names)} names, {len(set(names))} of them distinct."
            )
        if model_names is not None and names != model_names and set(names) == set(model_names):
            raise InvalidInputError(
                f"{self.where}: feature_names must be in the order the model was fitted on, which begins "
                f"with {model_names[:3]}; got {names[:3]}."
            )
        return names


def _as_names(given: Any, where: str) -> list[Hashable]:
    try:
        names = given if isinstance(given, str) else list(given)
        hash(tuple(names))
    except TypeError:
        names = None
    if names is None or isinstance(names, str):
        raise InvalidInputError(f"{where}: feature_names must be a list of names; got {given!r}.")
    return names


_DTYPE_ADVICE = {
    "c": "Split it into real and imaginary columns.",
    "O": "If it holds numbers, pass X.astype(float).",
    "M": "Turn dates into numbers first, such as days since a start date.",
    "m": "Turn durations into numbers first, such as seconds.",
}


def result_dtype(dtype: np.dtype[Any]) -> np.dtype[Any]:
    """Return the dtype of results: float32 for floats of at most 32 bits, otherwise float64."""
    small = dtype.kind == "f" and dtype.itemsize <= 4
    return np.dtype(np.float32 if small else np.float64)


def as_float64(block: NDArray[Any], offset: Floats | None, out: Floats) -> Floats:
    """Return ``block - offset`` as float64, or the block itself if nothing has to be converted."""
    if offset is not None:
        np.subtract(block, offset, out=out, casting="same_kind")
        return out
    if block.dtype == np.float64 and block.flags.c_contiguous and block.dtype.isnative:
        return block
    np.copyto(out, block)
    return out
