"""The rows a user gives, whatever holds them, read as float64 blocks.

NumPy arrays, SciPy sparse matrices and data frames (pandas, polars, pyarrow, through narwhals) become
a `Table`. A table is never converted as a whole: `read` hands out one block of rows at a time, so the
memory needed does not grow with the number of rows.
"""

from __future__ import annotations

import datetime as dt
import math
import sys
from abc import ABC, abstractmethod
from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from decimal import Decimal
from functools import cached_property
from typing import Any, ClassVar

import narwhals as nw
import numpy as np
from numpy.typing import NDArray

from whycluster.core.arrays import Codes, Floats, evenly
from whycluster.core.compiled.loops import MemoryLayout
from whycluster.core.errors import InvalidInputError
from whycluster.data import display
from whycluster.data.arrays import is_dask, is_sparse

_ENOUGH = 10  # rows to tell from that columns stand in another order
_EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.timezone.utc)
_DAY = dt.timedelta(days=1)
_SCAN_VALUES = 1 << 19  # values per block (4 MB) when a table is only looked through


@dataclass(frozen=True)
class Table(ABC):
    """Rows of numbers in the container they came in.

    Attributes
    ----------
    native : the user's object, with its columns in the model's order, and sparse matrices as CSR
    n_rows, n_features : its shape
    feature_names : one name per column, as the user had them
    dtype : the dtype of results; float32 data gives float32, everything else float64
    where, name : the function that was called and its parameter, for messages
    """

    native: Any
    n_rows: int
    n_features: int
    feature_names: list[Hashable]
    dtype: np.dtype[Any]
    where: str
    name: str
    categories: Mapping[int, Sequence[Any]] = field(default_factory=dict, kw_only=True)
    """Of the columns that are categories, what their codes stand for; the code of any other value is -1."""
    dates: frozenset[int] = field(default=frozenset(), kw_only=True)
    """The columns that are dates, read as days since 1970."""
    first_row: int = field(default=0, kw_only=True)
    """What the first row is counted as in messages, where it is not the first of what the user gave."""
    among: Codes | None = field(default=None, kw_only=True)
    """Where the rows stand, from that on, if some were left out."""
    by_columns: bool = field(default=False, kw_only=True)
    """Whether relevance is wanted column by column, as it is to be written; rows are then read so too."""

    most_rows: ClassVar[int] = sys.maxsize
    """Of how many rows a block may be."""
    goes_through_steps = False
    """Whether a pipeline stands between these rows and what the network takes."""

    @abstractmethod
    def read(self, start: int, stop: int, offset: Floats | None, out: Floats) -> Floats:
        """Rows start..stop minus ``offset`` as C-ordered float64, shape (stop - start, d).

        ``out`` is written only where a conversion is needed: the result may be a view of the
        user's data and must not be changed.
        """

    def inputs(self, start: int, stop: int, offset: Floats | None, out: Floats) -> Floats:
        """What a network takes of these rows, minus ``offset``: mostly what `read` gives."""
        return self.read(start, stop, offset, out)

    @property
    def memory_layout(self) -> MemoryLayout | None:
        """Where what a network takes of the rows lies in memory, if it has not to be converted."""
        return None

    @abstractmethod
    def _select(self, rows: Codes) -> Any:
        """The given rows in the user's own container."""

    def take(self, rows: Codes) -> Table:
        """The table of the given rows only."""
        among = None if self.among is None else self.among[rows]
        return replace(self, native=self._select(rows), n_rows=len(rows), among=among)

    def row_name(self, row: int) -> Hashable | None:  # noqa: ARG002  # only frames have an index
        """What the user calls a row, None if it has a position only."""
        return None

    def counted(self, first_row: int, among: Codes | None = None) -> Table:
        """The same table, whose rows are counted so in messages."""
        return replace(self, first_row=first_row, among=among)

    def number(self, row: int) -> int:
        """What a row is counted as in messages."""
        return self.first_row + (row if self.among is None else int(self.among[row]))

    def slices(self, width: int | None = None) -> Iterator[slice]:
        """All rows in order, some at a time; ``width`` is how many values they have, if not the features."""
        size = max(1, _SCAN_VALUES // (width or self.n_features))
        for start in range(0, self.n_rows, size):
            yield slice(start, min(start + size, self.n_rows))

    def blocks(self) -> Iterator[tuple[int, Floats]]:
        """All rows in order, as (first row, block); a block is valid until the next one."""
        out = np.empty((0, self.n_features))
        for rows in self.slices():
            n_rows = rows.stop - rows.start
            out = out if len(out) else np.empty((n_rows, self.n_features))  # the first is the largest
            yield rows.start, self.read(rows.start, rows.stop, None, out[:n_rows])

    def spread(self) -> Floats | None:
        """(d,) the variance of each column as the network takes it, of some rows; None if it has none."""
        if self.categories:
            return None
        values = self.take(evenly(self.n_rows, max(2, _SCAN_VALUES // self.n_features))).to_array()
        return np.asarray(values.var(axis=0))

    def pick(self, columns: Codes) -> NDArray[Any]:
        """The values of each row, (n, k), in the columns given for it, (n, k)."""
        value = np.empty(columns.shape)
        for start, block in self.blocks():
            rows = slice(start, start + len(block))
            value[rows] = np.take_along_axis(block, columns[rows], axis=1)
        return value

    def to_array(self) -> Floats:
        """All rows as one new float64 array."""
        whole = np.empty((self.n_rows, self.n_features))
        for start, block in self.blocks():
            whole[start : start + len(block)] = block
        return whole

    def to_objects(self) -> NDArray[Any]:
        """All values as the user knows them, (n, d)."""
        return self.to_array()

    def cells(self, row: int) -> list[Any]:
        """The values of a row as the user's container has them, (d,)."""
        return _cells(self.native, row)

    def put(self, rows: Codes, columns: Codes, values: Sequence[Any]) -> Table:
        """A copy with other values in some cells; whole numbers become floats, that they may be any."""
        return replace(self, native=_put(self.native, rows, columns, values))

    @property
    def is_plain(self) -> bool:
        """Whether what a network takes are the columns as they are."""
        return not self.goes_through_steps

    def has_missing(self) -> bool:
        """Whether a value is NaN."""
        return any(np.isnan(block).any() for _, block in self.blocks())

    def flaws(self) -> NDArray[np.int8]:
        """(n, d) 0 where a value is finite, 1 where it is missing, 2 where it is infinite."""
        parts = [np.isnan(block) + 2 * np.isinf(block) for _, block in self.blocks()]
        return np.concatenate(parts).astype(np.int8)

    def first_not_finite(self) -> tuple[int, Hashable, float] | None:
        """The first NaN or infinity as (row, feature name, value), or None."""
        for start, block in self.blocks():
            bad = np.argwhere(~np.isfinite(block))
            if len(bad):
                row, column = bad[0]
                return start + int(row), self.feature_names[column], float(block[row, column])
        return None


class ArrayTable(Table):
    """A two-dimensional NumPy array of real numbers."""

    @classmethod
    def of(cls, array: NDArray[Any]) -> ArrayTable:
        """A table of our own numbers, without names."""
        n_rows, n_features = array.shape
        return cls(array, n_rows, n_features, [], array.dtype, "", "")

    def read(self, start: int, stop: int, offset: Floats | None, out: Floats) -> Floats:
        """Hand out a view where nothing has to be converted."""
        return _as_float64(self.native[start:stop], offset, out)

    @property
    def memory_layout(self) -> MemoryLayout | None:
        """The array itself."""
        return MemoryLayout.of(self.native)

    def _select(self, rows: Codes) -> Any:
        return self.native[rows]


class SparseTable(Table):
    """A SciPy sparse matrix or array; only the block at hand is made dense."""

    def read(self, start: int, stop: int, offset: Floats | None, out: Floats) -> Floats:
        """Densify the block into ``out``."""
        block = self.native[start:stop]
        if block.dtype == np.float64:
            block.toarray(out=out)
        else:
            out[...] = block.toarray()
        return _as_float64(out, offset, out)

    def _select(self, rows: Codes) -> Any:
        return self.native[rows]


class MixedTable(Table):
    """A frame or an array of objects, some of whose columns are categories; these are read as codes."""

    def read(self, start: int, stop: int, offset: Floats | None, out: Floats) -> Floats:
        """Look the categories up; a value that is none of them gets the code -1."""
        for column in range(self.n_features):
            values = self._values(column, start, stop)
            if column in self.categories:
                out[:, column] = self._look_up(values, column)
                missing = next((i for i, value in enumerate(values) if is_missing(value)), None)
            else:
                out[:, column], missing = self._numbers(values, column, start)
            if missing is not None:
                self._tell_missing(start + missing, column, values[missing])
        return _as_float64(out, offset, out)

    def _tell_missing(self, row: int, column: int, value: Any) -> None:
        raise InvalidInputError(
            f"{self.where}: {self.name} must have no missing values; row {self.number(row)}, feature "
            f"{self.feature_names[column]!r} holds {value!r}. Drop or fill such rows first."
        )

    def _look_up(self, values: list[Any], column: int) -> list[int]:
        codes = self._codes[column]
        try:
            return [codes.get(value, -1) for value in values]
        except TypeError as error:
            raise InvalidInputError(
                f"{self.where}: {self.name} must have text, numbers or the like in its columns of "
                f"categories; feature {self.feature_names[column]!r} has other objects ({error})."
            ) from error

    def check_known(self) -> None:
        """Raise if a column of categories, of ten rows or more, holds none that the model knows."""
        if self.n_rows < _ENOUGH:
            return
        for column, names in self.categories.items():
            parts = (self._values(column, rows.start, rows.stop) for rows in self.slices())
            if not any(
                max(self._look_up(values, column)) >= 0 for values in parts
            ):  # mostly, one part is enough
                raise InvalidInputError(
                    f"{self.where}: {self.name} must have its columns where the model had them; feature "
                    f"{self.feature_names[column]!r} holds none of the categories it knows there, such as "
                    f"{next(iter(names))!r}."
                )

    def pick(self, columns: Codes) -> NDArray[Any]:
        """The values as they are."""
        value = np.empty(columns.shape, dtype=object)
        for column in np.unique(columns).tolist():
            there = columns == column
            value[there] = self._objects(column)[there.nonzero()[0]]
        return value

    def to_objects(self) -> NDArray[Any]:
        """Categories by their names."""
        return np.stack([self._objects(column) for column in range(self.n_features)], axis=1)

    @cached_property
    def _codes(self) -> dict[int, dict[Any, int]]:
        return {c: {name: i for i, name in enumerate(names)} for c, names in self.categories.items()}

    def _objects(self, column: int) -> NDArray[Any]:
        objects = np.empty(self.n_rows, dtype=object)
        objects[:] = self._values(column, 0, self.n_rows)
        return objects

    def _values(self, column: int, start: int, stop: int) -> list[Any]:
        if isinstance(self.native, np.ndarray):
            return self.native[start:stop, column].tolist()  # type: ignore[no-any-return]
        frame = nw.from_native(self.native, eager_only=True)
        values: list[Any] = frame[:, column][start:stop].to_list()
        return values

    def _numbers(self, values: list[Any], column: int, start: int) -> tuple[NDArray[Any], int | None]:
        try:
            return np.array(values, dtype=np.float64), None
        except (TypeError, ValueError):
            bad = next(i for i, value in enumerate(values) if not _is_number(value))
        if is_missing(values[bad]):
            return np.zeros(len(values)), bad
        raise InvalidInputError(
            f"{self.where}: {self.name} must have numbers in the columns that are no categories; row "
            f"{self.number(start + bad)}, feature {self.feature_names[column]!r} holds {values[bad]!r}."
        )

    def _select(self, rows: Codes) -> Any:
        if isinstance(self.native, np.ndarray):
            return self.native[rows]
        return nw.from_native(self.native, eager_only=True)[rows.tolist(), :].to_native()

    def row_name(self, row: int) -> Hashable | None:
        """The label in a pandas index."""
        return None if isinstance(self.native, np.ndarray) else _row_name(self.native, row)


class RawTable(MixedTable):
    """Columns of any kind, with missing values, as a pipeline takes them; of no use to a network as they are.

    What is no number is a category, whose code is -1 where it is missing; a missing number is NaN; a date is
    the days since 1970.
    """

    def flaws(self) -> NDArray[np.int8]:
        """A category that is missing has the code -1."""
        flaws, columns = super().flaws(), list(self.categories)
        flaws[:, columns] = np.concatenate([block[:, columns] < 0 for _, block in self.blocks()])
        return flaws

    def look(self, column: int) -> tuple[str, list[Any]]:
        """Whether a column is of numbers, dates or categories; and, of these, all different values."""
        if not isinstance(self.native, np.ndarray):
            series = nw.from_native(self.native, eager_only=True)[:, column]
            if series.dtype.is_numeric() or series.dtype in (nw.Boolean, nw.Duration):
                return "number", []
            if series.dtype in (nw.Date, nw.Datetime):
                return "date", []
            if series.dtype in (nw.String, nw.Categorical, nw.Enum):
                return "category", [value for value in series.unique().to_list() if not is_missing(value)]
        there = [value for value in self._values(column, 0, self.n_rows) if not is_missing(value)]
        if all(isinstance(value, (int, float, np.number, Decimal, dt.timedelta)) for value in there):
            return "number", there
        return "date" if all(isinstance(value, dt.date) for value in there) else "category", there

    def _look_up(self, values: list[Any], column: int) -> list[int]:
        try:
            return super()._look_up(values, column)
        except InvalidInputError:  # lists and the like, which are here by their text
            return [self._codes[column].get(str(value), -1) for value in values]

    def _numbers(self, values: list[Any], column: int, start: int) -> tuple[NDArray[Any], int | None]:  # noqa: ARG002
        try:
            return np.array(values, dtype=np.float64), None
        except (TypeError, ValueError, OverflowError):
            return np.array([_as_number(value) for value in values], dtype=np.float64), None

    def _tell_missing(self, row: int, column: int, value: Any) -> None:
        """The steps of the pipeline say what they cannot take."""


class FrameTable(Table):
    """A data frame with numeric and boolean columns only."""

    @property
    def frame(self) -> nw.DataFrame[Any]:
        """The frame behind narwhals' common interface."""
        return nw.from_native(self.native, eager_only=True)

    def read(self, start: int, stop: int, offset: Floats | None, out: Floats) -> Floats:
        """Convert the block; a missing value becomes NaN."""
        if self.by_columns:
            for column, values in enumerate(self._columns):
                out[:, column] = values[start:stop]
            return _as_float64(out, offset, out)
        block = self.frame[start:stop]
        if set(block.schema.values()) in ({nw.Float64()}, {nw.Float32()}):
            values = block.to_numpy()
            if values.dtype.kind == "f":
                return _as_float64(values, offset, out)
        for column, series in enumerate(block.iter_columns()):  # as a whole they would become objects
            out[:, column] = numbers_of(series)
        return _as_float64(out, offset, out)

    @cached_property
    def _columns(self) -> list[NDArray[Any]]:
        """All values, by columns: those of the frame itself where they are plain numbers."""
        return [numbers_of(series) for series in self.frame.iter_columns()]

    @property
    def memory_layout(self) -> MemoryLayout | None:
        """The columns themselves, where they are wanted as such: those that are not plain are copied."""
        return MemoryLayout.of_columns(self._columns) if self.by_columns else None

    def _select(self, rows: Codes) -> Any:
        return self.frame[rows.tolist(), :].to_native()

    def row_name(self, row: int) -> Hashable | None:
        """The label in a pandas index."""
        return _row_name(self.native, row)


@dataclass(frozen=True)
class AbsentTable(Table):
    """The place of rows that are not there any more, only how many they were and what is known of each.

    Attributes
    ----------
    assigned : (n,) the cluster that each is in
    """

    assigned: Codes = field(kw_only=True)

    @classmethod
    def like(cls, table: Table, assigned: Codes) -> AbsentTable:
        """In the place of a table."""
        shape = (table.n_rows, table.n_features)
        return cls(None, *shape, table.feature_names, table.dtype, table.where, table.name, assigned=assigned)

    def read(self, start: int, stop: int, offset: Floats | None, out: Floats) -> Floats:  # noqa: ARG002
        """There is nothing to read."""
        raise InvalidInputError(
            "explanation.data must be there for this; it was saved without them. Save it with data=True, or "
            "explain the rows again."
        )

    def pick(self, columns: Codes) -> NDArray[Any]:
        """A word in the place of each value."""
        return np.full(columns.shape, "not saved", dtype=object)

    def take(self, rows: Codes) -> AbsentTable:
        """The given rows only."""
        return replace(self, n_rows=len(rows), assigned=self.assigned[rows])

    def _select(self, rows: Codes) -> None:
        """Of nothing, nothing."""


def numbers_of(series: nw.Series[Any]) -> NDArray[Any]:
    """The values of a column of numbers or booleans; missing ones as NaN."""
    wide = series.dtype in (nw.Int128, nw.UInt128)
    numbers = None if wide else series.to_numpy()
    if numbers is None or numbers.dtype.kind not in "fiub":
        numbers = series.cast(nw.Float64()).to_numpy()
    return np.asarray(numbers)


def _row_name(frame: Any, row: int) -> Hashable | None:
    index = nw.maybe_get_index(nw.from_native(frame, eager_only=True))
    return None if index is None else index[row]


def _cells(native: Any, row: int) -> list[Any]:
    if is_sparse(native):
        native, row = native[[row]].toarray(), 0
    if isinstance(native, np.ndarray):
        return native[row].tolist()  # type: ignore[no-any-return]
    frame = nw.from_native(native, eager_only=True)[row : row + 1]
    return [series.to_list()[0] for series in frame.iter_columns()]


def _put(native: Any, rows: Codes, columns: Codes, values: Sequence[Any]) -> Any:
    if is_sparse(native):
        changed = native.astype(_result_dtype(native.dtype)).tolil()
        changed[rows, columns] = values
        return changed.tocsr()
    if isinstance(native, np.ndarray):
        numbers = native.dtype.kind in "fiub"
        array = native.astype(_result_dtype(native.dtype) if numbers else object)
        array[rows, columns] = values
        return array
    frame, series = nw.from_native(native, eager_only=True), []
    for column in np.unique(columns).tolist():
        there, one = np.flatnonzero(columns == column).tolist(), frame[:, column]
        cells = one.to_list()
        like = _able_to_hold(one, values[there[0]], any(isinstance(cell, Decimal) for cell in cells))
        if like.dtype != one.dtype and like.dtype.is_float():
            cells = [None if cell is None else float(cell) for cell in cells]
        for i in there:
            cells[rows[i]] = values[i]
        series.append(_of_type(like, cells, native).alias(one.name))
    return frame.with_columns(*series).to_native()


def _able_to_hold(series: nw.Series[Any], value: Any, decimals: bool) -> nw.Series[Any]:
    """No values, of a type that can be any number, or any moment to the microsecond."""
    none, dtype = series[:0], series.dtype  # which can be cast whatever would be lost of the values
    if isinstance(dtype, nw.Datetime):
        return none.cast(nw.Datetime("us", dtype.time_zone))
    if isinstance(dtype, nw.Duration):
        return none.cast(nw.Duration("us"))
    is_narrow = decimals or (dtype.is_numeric() and not dtype.is_float())
    return none.cast(nw.Float64()) if is_narrow and isinstance(value, float) else none


def _of_type(like: nw.Series[Any], cells: list[Any], frame: Any) -> nw.Series[Any]:
    """A column for a frame, of the very type of another: few types let values be put into what is there."""
    native: Any = like.to_native()
    if like.implementation.is_pyarrow():
        import pyarrow as pa

        made = pa.chunked_array([cells], native.type)
    elif like.implementation.is_polars():
        made = type(native)(native.name, cells, native.dtype)
    else:
        made = type(native)(cells, index=frame.index, dtype=native.dtype)
    return nw.from_native(made, series_only=True)


def shown(value: Any) -> str:
    """For people: a number in three digits, a category as it is, a day without its midnight."""
    if is_missing(value):
        return "missing"
    if isinstance(value, dt.datetime) and value.time() == dt.time():
        value = value.date()
    number = isinstance(value, (int, float, np.number)) and not isinstance(value, bool)
    return display.number(value) if number else str(value)


def is_missing(value: Any) -> bool:
    """Whether a value is None, NaN or another library's sign for nothing."""
    if value is None or type(value).__name__ == "NAType":
        return True
    try:
        return bool(value != value)
    except (TypeError, ValueError, ArithmeticError):  # an array, which is no single value; a signalling NaN
        return isinstance(value, Decimal)


def to_days(value: dt.date | dt.time | dt.timedelta) -> float:
    """A date as days since 1970, in UTC; a time of day or a duration as days."""
    if isinstance(value, dt.timedelta):
        return value / _DAY
    if isinstance(value, dt.time):
        return (dt.datetime.combine(_EPOCH, value, tzinfo=dt.timezone.utc) - _EPOCH) / _DAY
    if not isinstance(value, dt.datetime):
        return float(value.toordinal() - _EPOCH.toordinal())
    return ((value if value.tzinfo else value.replace(tzinfo=dt.timezone.utc)) - _EPOCH) / _DAY


def _as_number(value: Any) -> float:
    """A number, a date or duration in days, NaN for what is missing."""
    if is_missing(value):
        return math.nan
    return to_days(value) if isinstance(value, (dt.date, dt.timedelta)) else float(value)


def _is_number(value: Any) -> bool:
    try:
        float(value)
    except (TypeError, ValueError):
        return False
    return True


def open_table(
    X: Any,
    *,
    where: str,
    name: str = "X",
    n_features: int | None = None,
    model_names: Sequence[Hashable] | None = None,
    feature_names: Sequence[Hashable] | None = None,
    categories: Sequence[Sequence[Any] | None] | None = None,
    any_kind: bool = False,
) -> Table:
    """Wrap and check the user's data; the values themselves are checked when they are read.

    Parameters
    ----------
    X : what the user gave
    where, name : the function and the parameter, for messages
    n_features : the width the model was fitted on
    model_names : the column names the model was fitted on, if it knows them; frames are matched by name
    feature_names : names the user gives to the columns of an array
    categories : for each column its categories in the order of their codes, None where it holds numbers; by
        default all do
    any_kind : columns may hold anything, and values may be missing: what makes numbers of them comes after
    """
    frame = _as_frame(X, where, name)
    if frame is not None:
        if feature_names is not None:
            raise InvalidInputError(
                f"{where}: feature_names is for arrays; {name} is a data frame with names of its own. "
                f"Rename its columns instead."
            )
        return _frame_table(frame, where, name, n_features, model_names, categories, any_kind)
    sparse = is_sparse(X)
    array: Any = X if sparse else _as_array(X, where, name)
    if any_kind and isinstance(X, (list, tuple)) and not sparse and array.dtype.kind in "US":
        array = np.array(X, dtype=object)  # otherwise the numbers among them would be text
    if array.ndim == 1 and isinstance(array[0] if len(array) else None, str):
        raise InvalidInputError(
            f"{where}: {name} must be two-dimensional (rows, features); got {len(array)} texts. Documents go "
            f"through a pipeline that begins with a vectorizer. For labels of documents it is "
            f"make_pipeline(TfidfVectorizer(), TruncatedSVD(100), wc.Surrogate()).fit(documents, labels)."
        )
    _check_shape(array.shape, where, name, n_features)
    any_kind = any_kind and not sparse and array.dtype.kind in "OUS"
    if categories is None and not any_kind:
        _check_dtype(array.dtype, where, name)
    names = _names_for(array.shape[1], feature_names, model_names, where)
    if categories is not None:
        return _mixed_table(array.toarray() if sparse else array, names, categories, where, name)
    if any_kind:
        return _raw_table(array, names, where, name)
    details = (*array.shape, names, _result_dtype(array.dtype), where, name)
    return SparseTable(array.tocsr(), *details) if sparse else ArrayTable(array, *details)


def column_names(X: Any, where: str, name: str) -> list[Hashable] | None:
    """The names of the columns of a data frame, None for what is no data frame."""
    frame = _as_frame(X, where, name)
    return None if frame is None else list(frame.columns)


def text_columns(X: Any, where: str, name: str) -> list[int]:
    """The positions of the columns that do not hold numbers only."""
    frame = _as_frame(X, where, name)
    if frame is not None:
        kinds = frame.schema.values()
        return [i for i, kind in enumerate(kinds) if not (kind.is_numeric() or kind == nw.Boolean)]
    array = np.atleast_2d(_as_array(X, where, name))
    if array.dtype.kind in "fiub":
        return []
    columns = enumerate(array.T.tolist())
    return [i for i, values in columns if not all(isinstance(value, (int, float)) for value in values)]


def _as_float64(block: NDArray[Any], offset: Floats | None, out: Floats) -> Floats:
    """``block - offset`` in float64; the block itself if it already is that."""
    if offset is not None:
        np.subtract(block, offset, out=out, casting="same_kind")
        return out
    if block.dtype == np.float64 and block.flags.c_contiguous and block.dtype.isnative:
        return block
    np.copyto(out, block)
    return out


def _result_dtype(dtype: np.dtype[Any]) -> np.dtype[Any]:
    small = dtype.kind == "f" and dtype.itemsize <= 4
    return np.dtype(np.float32 if small else np.float64)


def _as_frame(X: Any, where: str, name: str) -> nw.DataFrame[Any] | None:
    """The frame behind X, None for what is not a frame."""
    if is_dask(X):
        raise InvalidInputError(
            f"{where}: {name} must be in memory; got a Dask {type(X).__name__}. Give {name}.compute(), or "
            f"some of its rows; wc.explain(model, X) and network.assign(X) take Dask collections as they are."
        )
    try:
        frame = nw.from_native(X, pass_through=True)
    except nw.exceptions.DuplicateError as error:
        raise InvalidInputError(
            f"{where}: {name} must have unique column names; {_repeated(X)!r} is there more than once."
        ) from error
    if isinstance(frame, nw.LazyFrame):
        library = type(X).__module__.split(".")[0]
        spark = "Use whycluster.engines.spark.explain(model, df), or collect it first."
        raise InvalidInputError(
            f"{where}: {name} must be in memory; got a lazy {library} {type(X).__name__}. "
            f"{spark if library == 'pyspark' else 'Collect it first.'}"
        )
    return frame if isinstance(frame, nw.DataFrame) else None


def _repeated(X: Any) -> Hashable:
    names = list(getattr(X, "column_names", None) or X.columns)
    return next(c for c in names if names.count(c) > 1)  # type: ignore[no-any-return]


def _as_array(X: Any, where: str, name: str) -> NDArray[Any]:
    if np.ma.is_masked(X):
        raise InvalidInputError(
            f"{where}: {name} must have no missing values; got a masked array with "
            f"{int(np.sum(X.mask))} masked values. Fill or drop them."
        )
    try:
        array = np.asarray(X)
    except (TypeError, ValueError, RuntimeError) as error:
        raise InvalidInputError(
            f"{where}: {name} must be a table of numbers; a {type(X).__name__} could not be read as one "
            f"({error})."
        ) from error
    if array.ndim == 0:
        hint = " The order is explain(model, X)." if hasattr(X, "fit") else ""
        raise InvalidInputError(
            f"{where}: {name} must be a table of numbers; got a {type(X).__name__}.{hint}"
        )
    return array


def _check_shape(shape: tuple[int, ...], where: str, name: str, n_features: int | None) -> None:
    if len(shape) != 2:
        hint = " For a single row, select it as a table: array[[i]] or frame.iloc[[i]]."
        raise InvalidInputError(
            f"{where}: {name} must be two-dimensional (rows, features); got shape {shape}."
            + hint * (len(shape) == 1)
        )
    if n_features is not None and shape[1] != n_features:
        raise InvalidInputError(
            f"{where}: {name} must have {n_features} features, as the model was fitted on; got shape {shape}."
        )
    if shape[0] == 0 or shape[1] == 0:
        raise InvalidInputError(
            f"{where}: {name} must have at least one row and one feature; got shape {shape}."
        )


def _check_dtype(dtype: np.dtype[Any], where: str, name: str) -> None:
    if dtype.kind not in "fiub":
        raise InvalidInputError(
            f"{where}: {name} must hold real numbers or booleans; got dtype {dtype}. "
            + _DTYPE_ADVICE.get(dtype.kind, "Encode it as numbers first.")
        )


_DTYPE_ADVICE = {
    "c": "Split it into real and imaginary columns.",
    "O": "If it holds numbers, pass X.astype(float).",
    "M": "Turn dates into numbers first, such as days since a start.",
    "m": "Turn durations into numbers first, such as seconds.",
}


def _names_for(
    n_features: int,
    given: Sequence[Hashable] | None,
    model_names: Sequence[Hashable] | None,
    where: str,
) -> list[Hashable]:
    """Names for the columns of an array: the user's, else the model's, else x0, x1, ..."""
    if given is None:
        return list(model_names) if model_names is not None else [f"x{i}" for i in range(n_features)]
    names = _as_names(given, where)
    if len(names) != n_features or len(set(names)) != n_features:
        raise InvalidInputError(
            f"{where}: feature_names must be {n_features} different names, one per feature; "
            f"got {len(names)} names, {len(set(names))} of them different."
        )
    if model_names is not None and names != list(model_names) and set(names) == set(model_names):
        raise InvalidInputError(
            f"{where}: feature_names must be in the order the model was fitted on, which begins "
            f"{list(model_names)[:3]}; got {names[:3]}."
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


def _frame_table(
    frame: nw.DataFrame[Any],
    where: str,
    name: str,
    n_features: int | None,
    model_names: Sequence[Hashable] | None,
    categories: Sequence[Sequence[Any] | None] | None,
    any_kind: bool,
) -> Table:
    if model_names is not None:
        frame = _match_names(frame, list(model_names), where, name)
    _check_shape(frame.shape, where, name, n_features)
    if categories is not None:
        return _mixed_table(_own(frame), list(frame.columns), categories, where, name)
    bad = {c: t for c, t in frame.schema.items() if not (t.is_numeric() or t == nw.Boolean)}
    if bad and any_kind:
        return _raw_table(_own(frame), list(frame.columns), where, name)
    if bad:
        listed = ", ".join(f"{c!r} ({t})" for c, t in list(bad.items())[:5])
        more = f" and {len(bad) - 5} more" if len(bad) > 5 else ""
        raise InvalidInputError(
            f"{where}: {name} must have only numeric or boolean columns; got {listed}{more}. "
            f"Encode them as numbers (objects that are numbers: astype(float)), or leave them out."
        )
    float32 = set(frame.schema.values()) == {nw.Float32()}
    dtype = np.dtype(np.float32 if float32 else np.float64)
    return FrameTable(_own(frame), *frame.shape, list(frame.columns), dtype, where, name)


def _own(frame: nw.DataFrame[Any]) -> Any:
    """A frame of its own on the same data: the user may add columns to theirs, or sort it, afterwards."""
    own = frame[: len(frame)].to_native()
    if not frame.implementation.is_pyarrow():
        return own
    import pyarrow as pa

    text = pa.large_string()  # of views of text, pyarrow cannot take some rows
    fields = [field.with_type(text) if str(field.type) == "string_view" else field for field in own.schema]
    schema = pa.schema(fields, own.schema.metadata)
    return own if schema == own.schema else own.cast(schema)


def _mixed_table(
    native: Any, names: list[Hashable], categories: Sequence[Sequence[Any] | None], where: str, name: str
) -> MixedTable:
    known = {column: values for column, values in enumerate(categories) if values is not None}
    shape = (len(native), len(names))
    return MixedTable(native, *shape, names, np.dtype(np.float64), where, name, categories=known)


def _raw_table(native: Any, names: list[Hashable], where: str, name: str) -> RawTable:
    """With the categories that are there."""
    shape = (len(native), len(names))
    table = RawTable(native, *shape, names, np.dtype(np.float64), where, name)
    categories, dates = {}, set()
    for column in range(len(names)):
        kind, values = table.look(column)
        if kind == "date":
            dates.add(column)
        elif kind == "category":
            categories[column] = _different(values)
    return replace(table, categories=categories, dates=frozenset(dates))


def _different(there: list[Any]) -> list[Any]:
    """The different values of a column, in order."""
    try:
        return sorted(set(there), key=lambda value: (type(value).__name__, value))
    except TypeError:  # lists, or what has no order
        return sorted({str(value) for value in there})


def _match_names(
    frame: nw.DataFrame[Any], model_names: list[Hashable], where: str, name: str
) -> nw.DataFrame[Any]:
    """Columns in the order the model was fitted on; raise if the names are not the same set."""
    if frame.columns == model_names:
        return frame
    wrong = wrong_names(frame.columns, model_names)
    if wrong:
        raise InvalidInputError(
            f"{where}: {name} must have the {len(model_names)} columns the model was fitted on; "
            f"{wrong}. Select or rename them first."
        )
    return frame.select([nw.col(c) for c in model_names])  # type: ignore[arg-type]  # any hashable name


def wrong_names(given: Sequence[Hashable], wanted: Sequence[Hashable]) -> str:
    """Which columns are missing, and which are unknown or there twice, for messages; empty if none is."""
    there, known = set(given), set(wanted)
    missing = [c for c in wanted if c not in there]
    extra = [c for c in given if c not in known]
    if not extra and len(there) < len(given):
        extra = [c for c in given if given.count(c) > 1]
    found = (("missing", missing), ("unknown", extra))
    return "; ".join(f"{what}: {display.cut(names)}" for what, names in found if names)
