"""Rows in a pandas, polars or pyarrow data frame, read through narwhals."""

from __future__ import annotations

import unicodedata
from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, TypedDict

import narwhals as nw
import numpy as np
from numpy.typing import NDArray

from whycluster.core.arrays import Codes, Floats
from whycluster.core.errors import InvalidInputError
from whycluster.data import display
from whycluster.data.arrays import is_dask
from whycluster.data.cells import index_of
from whycluster.data.table import ArrayTable, Requirements, Table, as_float64

_MANY_COLUMNS = 1000  # converting some rows of a wider frame takes longer than explaining them
_MOST_VALUES = 1 << 23  # maximum number of values that are converted at once, 64 MB


class ColumnNames(TypedDict, total=False):
    """The names of columns, as keyword arguments; see `whycluster.data.opening.open_table`."""

    feature_names: Sequence[Hashable] | None
    model_names: Sequence[Hashable] | None


@dataclass(frozen=True)
class FrameTable(Table):
    """A data frame with numeric and boolean columns only."""

    one_float: bool = field(default=False, kw_only=True)
    """Whether all columns are float64 or all are float32; stored because checking many columns is slow."""

    @cached_property
    def frame(self) -> nw.DataFrame[Any]:
        """The frame as a narwhals data frame."""
        return nw.from_native(self.native, eager_only=True)

    def read(self, start: int, stop: int, offset: Floats | None, out: Floats) -> Floats:
        """Convert the block; a missing value becomes NaN."""
        if self._whole is not None:
            return as_float64(self._whole[start:stop], offset, out)
        if self.one_float and not self.by_columns:
            values = self._block(start, stop).to_numpy()
            if values.dtype.kind == "f":
                return as_float64(values, offset, out)
        if self.by_columns:
            for column, values in enumerate(self._columns):
                out[:, column] = values[start:stop]
            return as_float64(out, offset, out)
        block = self._block(start, stop)
        for column, series in enumerate(block.iter_columns()):  # converting all at once would give objects
            out[:, column] = numbers_of(series)
        return as_float64(out, offset, out)

    def _block(self, start: int, stop: int) -> nw.DataFrame[Any]:
        """Return rows start..stop; selecting rows is slow compared with reading one."""
        return self.frame if stop - start == self.n_rows else self.frame[start:stop]

    @cached_property
    def _whole(self) -> NDArray[Any] | None:
        """The values of a wide frame, converted at once because blocks would have few rows; else None."""
        if self.n_features <= _MANY_COLUMNS or self.n_rows * self.n_features > _MOST_VALUES:
            return None
        values = self.frame.to_numpy()
        return values if values.dtype.kind in "fiu" else np.column_stack(self._columns)

    @cached_property
    def _columns(self) -> list[NDArray[Any]]:
        """The values of each column; plain numbers are views of the frame."""
        return [numbers_of(series) for series in self.frame.iter_columns()]

    def memory(self) -> list[NDArray[Any]] | None:
        """Return the columns, or None if rows are not read by columns.

        Columns of plain numbers are views of the frame; others are copies.
        """
        return self._columns if self.by_columns else None

    def _select(self, rows: Codes) -> Any:
        if self.frame.implementation.is_pandas():
            return self.native.take(rows)
        return self.frame[rows.tolist(), :].to_native()

    @property
    def index(self) -> Sequence[Hashable] | None:
        """The pandas index of the frame, or None for other frames."""
        return index_of(self.native)


def without_frame(table: Table) -> Table:
    """Return the rows of a frame of integers or floats as an array, and any other table unchanged."""
    rows = table.raw if table.raw is not None and table.is_plain else table
    if not isinstance(rows, FrameTable) or not (rows.one_float or _fits_float64(rows.frame.schema)):
        return table
    values = rows.to_array().astype(rows.dtype)
    n_rows, n_features = values.shape
    names, where, name = rows.feature_names, rows.where, rows.name
    return ArrayTable(values, n_rows, n_features, names, rows.dtype, where, name)


def _fits_float64(schema: nw.Schema) -> bool:
    """Return whether all columns hold integers or float64, rather than float32 or decimals."""
    return all(dtype.is_integer() or dtype == nw.Float64() for dtype in set(schema.values()))


def numbers_of(series: nw.Series[Any]) -> NDArray[Any]:
    """Return the values of a column of numbers or booleans, with NaN for missing ones."""
    wide = series.dtype in (nw.Int128, nw.UInt128)
    numbers = None if wide else series.to_numpy()
    if numbers is None or numbers.dtype.kind not in "fiub":
        numbers = series.cast(nw.Float64()).to_numpy()
    return np.asarray(numbers)


def as_frame(X: Any, where: str, name: str) -> nw.DataFrame[Any] | None:
    """Return X as a narwhals data frame, or None if it is not a data frame."""
    if is_dask(X):
        raise InvalidInputError(
            f"{where}: {name} must be in memory; got a Dask {type(X).__name__}. Pass {name}.compute() or "
            f"some of its rows; wc.explain(model, X) and network.assign(X) accept Dask collections."
        )
    try:
        frame = nw.from_native(X, pass_through=True)
    except nw.exceptions.DuplicateError as error:
        raise InvalidInputError(
            f"{where}: {name} must have unique column names; {_repeated_name(X)!r} occurs more than once."
        ) from error
    if isinstance(frame, nw.LazyFrame):
        library = type(X).__module__.split(".")[0]
        spark = "Use whycluster.engines.spark.explain(model, df), or collect it first."
        raise InvalidInputError(
            f"{where}: {name} must be in memory; got a lazy {library} {type(X).__name__}. "
            f"{spark if library == 'pyspark' else 'Collect it first.'}"
        )
    return frame if isinstance(frame, nw.DataFrame) else None


def select_columns(X: Any, names: list[Hashable], where: str, name: str) -> Any:
    """Return the named columns of a frame, in this order, or X itself if it does not have all of them."""
    frame = as_frame(X, where, name)
    if frame is None or frame.columns == names or not set(names) <= set(frame.columns):
        return X
    return frame.select([nw.col(each) for each in names]).to_native()  # type: ignore[arg-type]  # any hashable


def _repeated_name(X: Any) -> Hashable:
    names = list(getattr(X, "column_names", None) or X.columns)
    return next(c for c in names if names.count(c) > 1)  # type: ignore[no-any-return]


def open_frame(
    frame: nw.DataFrame[Any], schema: nw.Schema, others: Sequence[int], required: Requirements
) -> FrameTable:
    """Wrap a frame whose columns match the model; raise an error for ``others``, its non-numeric columns."""
    if others:
        columns = list(schema.items())
        listed = ", ".join(f"{name!r} ({dtype})" for name, dtype in [columns[i] for i in others[:5]])
        more = f" and {len(others) - 5} more" if len(others) > 5 else ""
        raise required.error(
            f"must have only numeric or boolean columns; got {listed}{more}. Encode them as numbers (if they "
            f"are numbers stored as objects, use astype(float)), or drop them."
        )
    dtypes, names = set(schema.values()), list[Hashable](schema)
    dtype = np.dtype(np.float32 if dtypes == {nw.Float32()} else np.float64)
    one_float = dtypes in ({nw.Float64()}, {nw.Float32()})
    booleans = [i for i, kind in enumerate(schema.values()) if kind == nw.Boolean()] if not one_float else []
    return FrameTable(
        shallow_copy(frame),
        *frame.shape,
        names,
        dtype,
        required.where,
        required.name,
        booleans=frozenset(booleans),
        one_float=one_float,
    )


def shallow_copy(frame: nw.DataFrame[Any]) -> Any:
    """Return a copy that shares the data, because users may add columns to their frame or sort it."""
    copy = frame[: len(frame)].to_native()
    if not frame.implementation.is_pyarrow():
        return copy
    import pyarrow as pa

    text = pa.large_string()  # pyarrow cannot select rows of string views
    fields = [field.with_type(text) if str(field.type) == "string_view" else field for field in copy.schema]
    schema = pa.schema(fields, copy.schema.metadata)
    return copy if schema == copy.schema else copy.cast(schema)


def match_names(frame: nw.DataFrame[Any], required: Requirements) -> nw.DataFrame[Any]:
    """Return the columns in the model's order; raise an error if the names differ."""
    if required.model_names is None or frame.columns == list(required.model_names):
        return frame
    wrong = name_differences(frame.columns, required.model_names)
    if wrong:
        raise required.error(
            f"must have the {len(required.model_names)} columns the model was fitted on; "
            f"{wrong}. Select or rename its columns first."
        )
    return frame.select([nw.col(c) for c in required.model_names])  # type: ignore[arg-type]  # any hashable


def name_differences(given: Sequence[Hashable], wanted: Sequence[Hashable]) -> str:
    """Return which columns are missing, unknown or repeated, as text for messages."""
    present, known = set(given), set(wanted)
    missing = [c for c in wanted if c not in present]
    extra = [c for c in given if c not in known]
    if not extra and len(present) < len(given):
        extra = [c for c in given if given.count(c) > 1]
    alike = {name for name in extra if any(_look_alike(name, other) for other in missing)}
    shown = [*missing, *(_Escaped(name) if name in alike else name for name in extra)]
    found = (("missing", shown[: len(missing)]), ("unknown", shown[len(missing) :]))
    return "; ".join(f"{what}: {display.cut(names)}" for what, names in found if names)


def _look_alike(name: Hashable, other: Hashable) -> bool:
    """Return whether two names have the same length and differ only where a letter is not ASCII."""
    if not (isinstance(name, str) and isinstance(other, str)):
        return False
    first, second = (unicodedata.normalize("NFKC", each) for each in (name, other))
    pairs = list(zip(first, second, strict=False))
    return len(first) == len(second) and all(a == b or not (a + b).isascii() for a, b in pairs)


class _Escaped(str):
    """A name that is printed with escapes, since it looks like another one."""

    def __repr__(self) -> str:
        return ascii(str(self))
