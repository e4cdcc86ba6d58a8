"""Rows that are no longer available, as in an explanation saved without its data."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from whycluster.core.arrays import Codes, Floats
from whycluster.core.errors import InvalidInputError
from whycluster.data.table import Table


@dataclass(frozen=True)
class AbsentTable(Table):
    """A placeholder that stores the number of rows and the cluster of each row, but no values.

    Attributes
    ----------
    assigned : (n,) the cluster of each row
    """

    assigned: Codes = field(kw_only=True)

    @classmethod
    def like(cls, table: Table, assigned: Codes) -> AbsentTable:
        """Return a placeholder for a table."""
        shape = (table.n_rows, table.n_features)
        return cls(None, *shape, table.feature_names, table.dtype, table.where, table.name, assigned=assigned)

    def read(self, start: int, stop: int, offset: Floats | None, out: Floats) -> Floats:  # noqa: ARG002  # the signature of all tables
        """Raise an error, since there are no values."""
        raise InvalidInputError(
            "explanation.data must be available for this operation; the explanation was saved without its "
            "rows. Save it with data=True, or explain the rows again."
        )

    def pick(self, columns: Codes) -> NDArray[Any]:
        """Return "not saved" for each value."""
        return np.full(columns.shape, "not saved", dtype=object)

    def take(self, rows: Codes) -> AbsentTable:
        """Return a placeholder for the given rows only."""
        return replace(self, n_rows=len(rows), assigned=self.assigned[rows])

    def _select(self, rows: Codes) -> None:
        """Return None, since there are no values to select."""
