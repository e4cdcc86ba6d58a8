"""Rows whose clusters also depend on what is around them, such as the time steps of a sequence."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field, fields
from typing import Any

import numpy as np

from whycluster.core.arrays import Codes, Floats
from whycluster.data.table import Table


@dataclass(frozen=True)
class ContextTable(Table):
    """Rows of a table, followed by inputs of the network that are in no column.

    These inputs belong to the row, which keeps them when rows are selected or values are changed.

    Attributes
    ----------
    rows : the user's rows
    context : (n, p) the other inputs
    """

    rows: Table = field(kw_only=True)
    context: Floats = field(kw_only=True)

    @classmethod
    def of(cls, rows: Table, context: Floats) -> ContextTable:
        """Return the rows with their context."""
        shared = {each.name: getattr(rows, each.name) for each in fields(Table)} | {"by_columns": False}
        return cls(**shared, rows=rows, context=context)

    def read(self, start: int, stop: int, offset: Floats | None, out: Floats) -> Floats:
        """Return the user's columns."""
        return self.rows.read(start, stop, offset, out)

    def inputs(self, start: int, stop: int, offset: Floats | None, out: Floats) -> Floats:
        """Return the user's columns and the context."""
        d = self.n_features
        out[:, :d] = self.rows.read(start, stop, None, np.empty((stop - start, d)))
        out[:, d:] = self.context[start:stop]
        if offset is not None:
            out -= offset
        return out

    def take(self, rows: Codes) -> ContextTable:
        """Return a table of the given rows only."""
        return ContextTable.of(self.rows.take(rows), self.context[rows])

    def _select(self, rows: Codes) -> Any:
        return self.rows.take(rows).native

    def put(self, rows: Codes, columns: Codes, values: Sequence[Any]) -> ContextTable:
        """Return a copy with new values in some cells; the context stays the same."""
        return ContextTable.of(self.rows.put(rows, columns, values), self.context)

    def with_row_numbers(self, first_row: int, row_numbers: Codes | None = None) -> ContextTable:
        """Return a copy of the table that uses other row numbers in messages."""
        return ContextTable.of(self.rows.with_row_numbers(first_row, row_numbers), self.context)

    @property
    def index(self) -> Sequence[Hashable] | None:
        """The names of the rows."""
        return self.rows.index
