"""Individual cells of any container: read a row, or return a copy with some cells replaced."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from decimal import Decimal
from typing import Any

import narwhals as nw
import numpy as np

from whycluster.core.arrays import Codes
from whycluster.data.arrays import is_sparse


def cells_of(native: Any, row: int) -> list[Any]:
    """Return the values of a row as the container holds them."""
    if is_sparse(native):
        native, row = native[[row]].toarray(), 0
    if isinstance(native, np.ndarray):
        return native[row].tolist()  # type: ignore[no-any-return]
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
    frame, series = nw.from_native(native, eager_only=True), []
    for column in np.unique(columns).tolist():
        chosen = np.flatnonzero(columns == column).tolist()
        new = {int(rows[i]): values[i] for i in chosen}
        series.append(_column_with_cells(frame[:, column], new, native))
    return frame.with_columns(*series).to_native()


def _column_with_cells(column: nw.Series[Any], new: dict[int, Any], frame: Any) -> nw.Series[Any]:
    cells = column.to_list()
    has_decimals = any(isinstance(cell, Decimal) for cell in cells)
    like = _able_to_hold(column, next(iter(new.values())), has_decimals)
    if like.dtype != column.dtype and like.dtype.is_float():
        cells = [None if cell is None else float(cell) for cell in cells]
    for row, value in new.items():
        cells[row] = value
    return _series_like(like, cells, frame).alias(column.name)


def _able_to_hold(series: nw.Series[Any], value: Any, has_decimals: bool) -> nw.Series[Any]:
    """Return an empty series with a type that can hold the value, even if the column's own type cannot."""
    empty, dtype = series[:0], series.dtype  # an empty series can be cast to types that would lose values
    if isinstance(dtype, nw.Datetime):
        return empty.cast(nw.Datetime("us", dtype.time_zone))
    if isinstance(dtype, nw.Duration):
        return empty.cast(nw.Duration("us"))
    is_narrow = has_decimals or (dtype.is_numeric() and not dtype.is_float())
    return empty.cast(nw.Float64()) if is_narrow and isinstance(value, float) else empty


def _series_like(like: nw.Series[Any], cells: list[Any], frame: Any) -> nw.Series[Any]:
    """Return a new column with these cells and exactly the type of ``like``.

    A new column is built because few types allow setting cells in place.
    """
    native: Any = like.to_native()
    if like.implementation.is_pyarrow():
        import pyarrow as pa

        made = pa.chunked_array([cells], native.type)
    elif like.implementation.is_polars():
        made = type(native)(native.name, cells, native.dtype)
    else:
        made = type(native)(cells, index=frame.index, dtype=native.dtype)
    return nw.from_native(made, series_only=True)
