"""Rows whose columns hold categories, dates and numbers side by side."""

from __future__ import annotations

import datetime as dt
import math
from abc import abstractmethod
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import replace
from functools import cached_property
from typing import Any

import narwhals as nw
import numpy as np
from numpy.typing import NDArray

from whycluster.core.arrays import Codes, Floats
from whycluster.core.errors import InvalidInputError
from whycluster.data.cells import index_of, with_columns
from whycluster.data.column_kinds import ColumnKind, kind_of_dtype, kind_of_series, kind_of_values
from whycluster.data.columns import MANY_COLUMNS, days_at_once, numbers_at_once
from whycluster.data.days import to_days
from whycluster.data.iso_dates import parse_dates
from whycluster.data.missing import is_missing
from whycluster.data.table import Requirements, Table, as_float64

_ENOUGH = 10  # rows needed to conclude that the columns are in a different order


class ObjectTable(Table):
    """A frame or an array of objects, read column by column; categorical columns are read as codes."""

    def read(self, start: int, stop: int, offset: Floats | None, out: Floats) -> Floats:
        """Look up the codes of categories and convert the other columns to numbers."""
        for column in self._read_at_once(start, stop, out):
            values = self._values(column, start, stop)
            read = self._read_codes if column in self.categories else self._read_numbers
            out[:, column] = read(values, column, start)
        return as_float64(out, offset, out)

    def _read_at_once(self, start: int, stop: int, out: Floats) -> Sequence[int]:  # noqa: ARG002  # for subclasses
        """Read the columns that can be read together, and return the others."""
        return range(self.n_features)

    @abstractmethod
    def _read_codes(self, values: list[Any], column: int, start: int) -> list[int]:
        """Return the codes of values that begin at row ``start``; unknown values get the code -1."""

    @abstractmethod
    def _read_numbers(self, values: list[Any], column: int, start: int) -> NDArray[Any]:
        """Return values that begin at row ``start`` as numbers."""

    def pick(self, columns: Codes) -> NDArray[Any]:
        """Return the values without converting them."""
        value = np.empty(columns.shape, dtype=object)
        for column in np.unique(columns).tolist():
            chosen = columns == column
            value[chosen] = self._objects(column)[chosen.nonzero()[0]]
        return value

    def to_objects(self) -> NDArray[Any]:
        """Return all values without converting them; categories are returned as names, not as codes."""
        return np.stack([self._objects(column) for column in range(self.n_features)], axis=1)

    @property
    def index(self) -> Sequence[Hashable] | None:
        """The pandas index of the frame, or None for other data."""
        return None if isinstance(self.native, np.ndarray) else index_of(self.native)

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
        series = self._series(column)
        values: list[Any] = (series[start:stop] if stop - start < self.n_rows else series).to_list()
        return values

    def _series(self, column: int) -> nw.Series[Any]:
        return self._all_series[column]

    @cached_property
    def _all_series(self) -> list[nw.Series[Any]]:
        """The columns of the frame; wrapping the frame again for each column is slow if there are many."""
        return list(nw.from_native(self.native, eager_only=True).iter_columns())

    def _select(self, rows: Codes) -> Any:
        if isinstance(self.native, np.ndarray):
            return self.native[rows]
        return nw.from_native(self.native, eager_only=True)[rows.tolist(), :].to_native()


class MixedTable(ObjectTable):
    """A table of numbers and categories, without missing values; the model was fitted on these categories."""

    @classmethod
    def open(cls, native: Any, names: list[Hashable], required: Requirements) -> MixedTable:
        """Wrap data, with the categories that the model was fitted on."""
        known = {c: values for c, values in enumerate(required.categories or ()) if values is not None}
        shape, dtype = (len(native), len(names)), np.dtype(np.float64)
        return cls(native, *shape, names, dtype, required.where, required.name, categories=known)

    def check_known(self) -> None:
        """Raise an error if a categorical column has no known value and the table has at least ten rows."""
        if self.n_rows < _ENOUGH:
            return
        for column, names in self.categories.items():
            batches = (self._values(column, rows.start, rows.stop) for rows in self.slices())
            # Usually the first batch is enough.
            if not any(max(self._look_up(values, column)) >= 0 for values in batches):
                raise InvalidInputError(
                    f"{self.where}: {self.name} must have its columns in the order of the model; feature "
                    f"{self.feature_names[column]!r} holds none of the categories that the model was fitted "
                    f"on, such as {next(iter(names))!r}."
                )

    def _read_codes(self, values: list[Any], column: int, start: int) -> list[int]:
        codes = self._look_up(values, column)
        missing = next((i for i, value in enumerate(values) if is_missing(value)), None)
        if missing is not None:
            raise self._missing_error(start + missing, column, values[missing])
        return codes

    def _look_up(self, values: list[Any], column: int) -> list[int]:
        codes = self._codes[column]
        try:
            return [codes.get(value, -1) for value in values]
        except TypeError as error:
            raise InvalidInputError(
                f"{self.where}: {self.name} must hold text, numbers or other hashable values in its "
                f"categorical columns; feature {self.feature_names[column]!r} holds other objects ({error})."
            ) from error

    def _read_numbers(self, values: list[Any], column: int, start: int) -> NDArray[Any]:
        try:
            return np.array(values, dtype=np.float64)
        except (TypeError, ValueError):
            bad = next(i for i, value in enumerate(values) if not _is_number(value))
        if is_missing(values[bad]):
            raise self._missing_error(start + bad, column, values[bad])
        raise InvalidInputError(
            f"{self.where}: {self.name} must hold numbers in columns that are not categorical; row "
            f"{self.number(start + bad)}, feature {self.feature_names[column]!r} holds {values[bad]!r}."
        )

    def _missing_error(self, row: int, column: int, value: Any) -> InvalidInputError:
        return InvalidInputError(
            f"{self.where}: {self.name} must have no missing values; row {self.number(row)}, feature "
            f"{self.feature_names[column]!r} holds {value!r}. Drop or fill such rows first."
        )


class RawTable(ObjectTable):
    """Columns of any kind, possibly with missing values, for pipelines; networks cannot use them directly.

    Dates, durations and times of day are read as days. Missing numbers and days are NaN. All other columns
    are categories, whose code is -1 if the value is missing.
    """

    @classmethod
    def open(cls, native: Any, names: list[Hashable], required: Requirements) -> RawTable:
        """Wrap data of any kind and collect the categories of its columns."""
        shape, dtype = (len(native), len(names)), np.dtype(np.float64)
        table = cls(native, *shape, names, dtype, required.where, required.name)
        kinds = table.kinds
        coded = [column for column, kind in enumerate(kinds) if not _has_numbers(kind)]
        dates, booleans = (
            frozenset(column for column, found in enumerate(kinds) if found is kind)
            for kind in (ColumnKind.DATE, ColumnKind.BOOLEAN)
        )
        categories = {column: _distinct(table._present(column)) for column in coded}
        made = replace(table, categories=categories, dates=dates, booleans=booleans)
        for cached in {"_all_series", "kinds"} & vars(table).keys():  # slow to find again for each row
            vars(made)[cached] = vars(table)[cached]
        return made

    def with_dates(self, columns: Iterable[int]) -> RawTable:
        """Return the table, with the given columns parsed whose text consists only of dates."""
        text = [column for column in columns if self.column_kind(column) is ColumnKind.TEXT]
        dates = {column: parse_dates(self._values(column, 0, self.n_rows)) for column in text}
        found = {column: values for column, values in dates.items() if values is not None}
        if not found:
            return self
        kept = {column: names for column, names in self.categories.items() if column not in found}
        native = with_columns(self.native, found)
        return replace(self, native=native, categories=kept, dates=self.dates | found.keys())

    def _read_at_once(self, start: int, stop: int, out: Floats) -> Sequence[int]:
        if isinstance(self.native, np.ndarray) or self.n_features < MANY_COLUMNS:
            return range(self.n_features)
        left, frame = set(range(self.n_features)), nw.from_native(self.native, eager_only=True)
        numbers = [column for column in left if column not in self.dates and column not in self.categories]
        for columns, read in ((numbers, numbers_at_once), (sorted(self.dates), days_at_once)):
            values = read(frame[start:stop, columns]) if columns else None
            if values is not None:
                out[:, columns] = values
                left -= set(columns)
        return sorted(left)

    @cached_property
    def kinds(self) -> list[ColumnKind]:
        """The kind of values in each column."""
        return [self._kind(column) for column in range(self.n_features)]

    def column_kind(self, column: int) -> ColumnKind:
        """Return the kind of values in a column."""
        return self.kinds[column]

    def _kind(self, column: int) -> ColumnKind:
        if isinstance(self.native, np.ndarray):
            return kind_of_values(self._values(column, 0, self.n_rows))
        return kind_of_series(self._series(column))

    def _present(self, column: int) -> list[Any]:
        """Return the values of a column that are not missing; for text types, only the distinct ones."""
        if not isinstance(self.native, np.ndarray):
            kind = kind_of_dtype(self._series(column).dtype)
            if kind is not None and kind.is_categorical:
                return [value for value in self._series(column).unique().to_list() if not is_missing(value)]
        return [value for value in self._values(column, 0, self.n_rows) if not is_missing(value)]

    def invalid_values(self) -> NDArray[np.int8]:
        """Return the invalid values, as in the base class; categories with code -1 also count as missing."""
        invalid, columns = super().invalid_values(), list(self.categories)
        invalid[:, columns] = np.concatenate([block[:, columns] < 0 for _, block in self.blocks()])
        return invalid

    def _read_codes(self, values: list[Any], column: int, start: int) -> list[int]:  # noqa: ARG002  # the signature of all readers
        codes = self._codes[column]
        try:
            return [codes.get(value, -1) for value in values]
        except TypeError:  # lists and other unhashable values are compared by their text
            return [codes.get(str(value), -1) for value in values]

    def _read_numbers(self, values: list[Any], column: int, start: int) -> NDArray[Any]:  # noqa: ARG002  # the signature of all readers
        try:
            return np.array(values, dtype=np.float64)
        except (TypeError, ValueError, OverflowError):
            return np.array([_as_number(value) for value in values], dtype=np.float64)


def _has_numbers(kind: ColumnKind) -> bool:
    """Return whether columns of this kind are read as numbers; all others are read as categories."""
    return kind.is_numeric or kind.is_temporal or kind is ColumnKind.EMPTY


def _distinct(values: Sequence[Any]) -> list[Any]:
    """Return the distinct values of a column, sorted."""
    try:
        return sorted(set(values), key=lambda value: (type(value).__name__, value))
    except TypeError:  # unhashable values such as lists, or values without an order
        return sorted({str(value) for value in values})


def _as_number(value: Any) -> float:
    """Convert a value to a number: days for a date, duration or time of day, NaN for a missing value."""
    if is_missing(value):
        return math.nan
    return to_days(value) if isinstance(value, (dt.date, dt.time, dt.timedelta)) else float(value)


def _is_number(value: Any) -> bool:
    try:
        float(value)
    except (TypeError, ValueError):
        return False
    return True
