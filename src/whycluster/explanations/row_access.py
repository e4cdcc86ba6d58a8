"""The rows of an explanation: their names, and the selection of rows by position or by name."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Hashable, Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic, TypeVar

import numpy as np

from whycluster.core.arrays import Codes
from whycluster.core.errors import InvalidInputError
from whycluster.data import display
from whycluster.data.labels import as_list
from whycluster.data.table import Table

if TYPE_CHECKING:
    from typing_extensions import Self  # in typing only from Python 3.11 on


class RowAccess(ABC):
    """Something with rows that have positions and may have names."""

    table: Table
    positions: Codes | None
    row_names: Any

    @abstractmethod
    def __len__(self) -> int:
        """Return the number of rows."""

    @abstractmethod
    def __getitem__(self, rows: Any) -> Self:
        """Return some of the rows."""

    def __iter__(self) -> Iterator[Self]:
        return (self[row] for row in range(len(self)))

    @property
    def loc(self) -> RowLocator[Self]:
        """Selects rows by their names in the data's index, as ``exp.loc["C042"]``; see `row_name`."""
        return RowLocator(self)

    def row_name(self, row: int = 0) -> Hashable:
        """Return a row's name in the data's index or in `row_names`, or its position if it has no name.

        Parameters
        ----------
        row : the position of the row
        """
        return self.names_of_rows([row])[0]

    def names_of_rows(self, rows: Iterable[int]) -> list[Hashable]:
        """Return the names of some rows; see `row_name`."""
        index, given, positions = self.table.index, self.row_names, self.positions
        names: list[Hashable] = []
        for row in rows:
            name = None if index is None else index[row]
            if name is None:
                position = row if positions is None else int(positions[row])
                name = None if given is None else given[position]
                name = position if name is None else name
            names.append(name)
        return names

    def row_title(self) -> str:
        """Return the name of a single row and, if the name differs from it, its position in the data."""
        name = self.row_name(0)
        position = 0 if self.positions is None else int(self.positions[0])
        text = display.clean(str(name))
        return text if str(name) == str(position) else f"{text} (position {position})"


Rows = TypeVar("Rows", bound=RowAccess)


@dataclass(frozen=True)
class RowLocator(Generic[Rows]):
    """Selects rows by name: ``exp.loc["C042"]``, or several with ``exp.loc[["C042", "C107"]]``."""

    rows: Rows

    def __getitem__(self, labels: Any) -> Rows:
        """Return the rows with one name, or with each of several names, in the order of the names."""
        several = isinstance(labels, (list, np.ndarray)) or hasattr(labels, "to_list")
        wanted = as_list(labels, "loc", whole=False) if several else [labels]
        return self.rows[[place for label in wanted for place in self.positions_of(label)]]

    def positions_of(self, label: Hashable) -> list[int]:
        """Return the positions of the rows that have a name; raise an error if there are none."""
        places = self._places.get(label) if isinstance(label, Hashable) else None
        if places is None:
            known = display.cut(list(self._places), 3)
            raise InvalidInputError(
                f"loc: a label must be the name of a row, such as one of {known}; got {label!r}. To select "
                "rows by position, use exp[position]."
            )
        return places

    @property
    def _places(self) -> dict[Hashable, list[int]]:
        found: dict[Hashable, list[int]] = {}
        for place, name in enumerate(self.rows.names_of_rows(range(len(self.rows)))):
            found.setdefault(name, []).append(place)
        return found
