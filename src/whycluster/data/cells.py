"""Individual cells of any container: read a row, or return a copy with some cells replaced."""

from __future__ import annotations

import datetime as dt
from collections.abc import Hashable, Mapping, Sequence
from decimal import Decimal
from typing import Any

import narwhals as nw
import numpy as np

from whycluster.core.arrays import Codes
from whycluster.data.arrays import is_sparse

_MANY_COLUMNS = 64  # the columns of wider frames are changed together if possible


def cells_of(native: Any, row: int) -> list[Any]:
    """Return the values of a row as the container holds them."""
    if is_sparse(native):
        native, row = native[[row]].toarray(), 0
    if isinstance(native, np.ndarray):
        return native[row].tolist()  # type: ignore[no-any-return]
    if hasattr(native, "iloc") and _holds_only_floats(native):
        return native.iloc[row].tolist()  # type: ignore[no-any-return]
    frame = nw.from_native(native, eager_only=True)[row : row + 1]
    return [series.to_list()[0] for series in frame.iter_columns()]


def index_of(frame: Any) -> Sequence[Hashable] | None:
    """Return the index of a pandas frame, or None for other frames."""
    index: Sequence[Hashable] | None = nw.maybe_get_index(nw.from_native(frame, eager_only=True))
    return index


def with_cells(native: Any, rows: Codes, columns: Codes, values: Sequence[Any], dtype: np.dtype[Any]) -> Any:
    """Return a copy of a container in which cell (rows[i], columns[i]) holds values[i].

    The numbers of an array or a sparse matrix are converted to ``dtype``, so that any value fits.
    """
    if is_sparse(native):
        changed = native.astype(dtype).tolil()
        changed[rows, columns] = values
        return changed.tocsr()
    if isinstance(native, np.ndarray):
        array = native.astype(dtype if native.dtype.kind in "fiub" else object)
        array[rows, columns] = values
        return array
    new: dict[int, dict[int, Any]] = {}
    for row, column, value in zip(rows.tolist(), columns.tolist(), values, strict=True):
        new.setdefault(column, {})[row] = value
    return _frame_with_cells(native, new)


def with_columns(native: Any, dates: Mapping[int, Sequence[Any]]) -> Any:
    """Return a copy of a frame or an array of objects in which some columns hold these dates."""
    if isinstance(native, np.ndarray):
        array = native.astype(object)
        for column, values in dates.items():
            array[:, column] = values
        return array
    frame = nw.from_native(native, eager_only=True)
    if frame.implementation.is_pandas():
        made = native.copy(deep=False)
        for column, values in dates.items():
            made.isetitem(
                column, type(native.iloc[:, column])(values, native.index, dtype=_time_type(values))
            )
        return made
    names = frame.columns
    return frame.with_columns(
        nw.new_series(names[column], values, _narwhals_time(values), backend=frame.implementation)
        for column, values in dates.items()
    ).to_native()


def _time_type(values: Sequence[Any]) -> str:
    """Return the pandas dtype for dates; pandas has no dtype for dates without a time."""
    zoned = any(getattr(value, "tzinfo", None) is not None for value in values)
    return "datetime64[us, UTC]" if zoned else "datetime64[us]"


def _narwhals_time(values: Sequence[Any]) -> nw.dtypes.DType:
    if any(isinstance(value, dt.datetime) for value in values):
        return nw.Datetime("us", "UTC" if "UTC" in _time_type(values) else None)
    return nw.Date()


def _frame_with_cells(native: Any, new: dict[int, dict[int, Any]]) -> Any:
    """Return a copy of a frame with new cells, given by column and row.

    Wide frames have thousands of columns but few types, so work that depends on the type is done only once.
    """
    frame = nw.from_native(native, eager_only=True)
    if frame.implementation.is_pandas() and _holds_only_floats(native) and _are_floats(new):
        return type(native)(
            _with_values(native.to_numpy(), "float64", list(range(native.shape[1])), new),
            index=native.index,
            columns=native.columns,
        )
    if frame.implementation.is_pandas() and native.shape[1] >= _MANY_COLUMNS:
        return _wide_pandas_with_cells(native, new)
    columns, wider = _native_columns(frame), _WiderTypes()
    for column, cells in new.items():
        columns[column] = _column_with_cells(columns[column], cells, wider, native)
    if frame.implementation.is_pandas():
        made = type(native)(dict(enumerate(columns)), index=native.index)
        made.columns = native.columns
        return made
    if frame.implementation.is_polars():
        return native.with_columns([columns[column] for column in new])
    return type(native).from_arrays(columns, names=native.column_names)


def _holds_only_floats(native: Any) -> bool:
    """Return whether all columns of a pandas frame are NumPy's float64."""
    return all(isinstance(dtype, np.dtype) and dtype == np.float64 for dtype in native.dtypes)


def _are_floats(new: dict[int, dict[int, Any]]) -> bool:
    return bool(new) and all(isinstance(cell, float) for cells in new.values() for cell in cells.values())


def _wide_pandas_with_cells(native: Any, new: dict[int, dict[int, Any]]) -> Any:
    """Return a copy of a wide pandas frame with new cells; the columns of a type are changed together."""
    import pandas as pd

    wider, groups, pieces = _WiderTypes(), dict[Any, list[int]](), []
    for column in range(native.shape[1]):
        groups.setdefault(_common_dtype(native.dtypes.iloc[column], new.get(column)), []).append(column)
    for dtype, columns in groups.items():
        part = native.iloc[:, columns].copy()
        part.columns = pd.Index(columns)
        if dtype is not None:
            part = pd.DataFrame(_with_values(part.to_numpy(), dtype, columns, new), part.index, columns)
        for column in columns if dtype is None else ():
            if column in new:
                part[column] = _column_with_cells(part[column], new[column], wider, native)
        pieces.append(part)
    made = pd.concat(pieces, axis=1)[range(native.shape[1])]
    made.columns = native.columns
    return made


def _common_dtype(dtype: Any, cells: dict[int, Any] | None) -> str | None:
    """Return the type of columns that can be changed together, or None for those that cannot."""
    if cells is None or not isinstance(dtype, np.dtype) or (dtype.kind == "f" and dtype.itemsize < 8):
        return None
    if dtype.kind == "M":
        return "datetime64[us]"
    is_number = dtype.kind in "fiu" and all(isinstance(cell, float) for cell in cells.values())
    return "float64" if is_number else None


def _with_values(values: Any, dtype: str, columns: list[int], new: dict[int, dict[int, Any]]) -> Any:
    values = np.array(values, dtype)
    cells = [(row, place, v) for place, c in enumerate(columns) for row, v in new.get(c, {}).items()]
    rows, places = (np.array(each, dtype=np.intp) for each in list(zip(*cells, strict=True))[:2])
    values[rows, places] = np.array([value for _, _, value in cells], dtype)
    return values


def _native_columns(frame: nw.DataFrame[Any]) -> list[Any]:
    native: Any = frame.to_native()
    if frame.implementation.is_pandas():
        return [column for _, column in native.items()]
    return list(native.get_columns() if frame.implementation.is_polars() else native.columns)


class _WiderTypes:
    """The native types that can hold values which the columns' own types cannot."""

    def __init__(self) -> None:
        self._known: dict[Any, tuple[Any, bool]] = {}

    def for_value(self, column: Any, value: Any, has_decimals: bool) -> tuple[Any, bool]:
        """Return the type that can hold a value, and whether it is a float instead of the column's type."""
        is_float = isinstance(value, float)
        key = _type_of(column), is_float, has_decimals
        if key not in self._known:
            series: nw.Series[Any] = nw.from_native(column, series_only=True, allow_series=True)
            like = _able_to_hold(series, value, has_decimals)
            becomes_float = like.dtype != series.dtype and like.dtype.is_float()
            self._known[key] = _type_of(like.to_native()), becomes_float
        return self._known[key]


def _type_of(column: Any) -> Any:
    return column.type if hasattr(column, "type") else column.dtype


def _column_with_cells(column: Any, new: dict[int, Any], wider: _WiderTypes, frame: Any) -> Any:
    cells = column.to_pylist() if hasattr(column, "to_pylist") else column.to_list()
    has_decimals = any(isinstance(cell, Decimal) for cell in cells)
    dtype, becomes_float = wider.for_value(column, next(iter(new.values())), has_decimals)
    if becomes_float:
        cells = [None if cell is None else float(cell) for cell in cells]
    for row, value in new.items():
        cells[row] = value
    return _series_of(column, cells, dtype, frame)


def _able_to_hold(series: nw.Series[Any], value: Any, has_decimals: bool) -> nw.Series[Any]:
    """Return an empty series with a type that can hold the value, even if the column's own type cannot."""
    empty, dtype = series[:0], series.dtype  # an empty series can be cast to types that would lose values
    if isinstance(dtype, nw.Datetime):
        return empty.cast(nw.Datetime("us", dtype.time_zone))
    if isinstance(dtype, nw.Duration):
        return empty.cast(nw.Duration("us"))
    is_narrow = has_decimals or (dtype.is_numeric() and not dtype.is_float())
    return empty.cast(nw.Float64()) if is_narrow and isinstance(value, float) else empty


def _series_of(column: Any, cells: list[Any], dtype: Any, frame: Any) -> Any:
    """Return a new column with these cells and exactly this type.

    A new column is built because few types allow setting cells in place.
    """
    if hasattr(column, "to_pylist"):
        import pyarrow as pa

        return pa.chunked_array([cells], dtype)
    if hasattr(frame, "iloc"):
        return type(column)(cells, index=frame.index, dtype=dtype)
    return type(column)(column.name, cells, dtype)
