"""Which rows two tables have in common, by their ids."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import narwhals as nw
import numpy as np

from whycluster.core.arrays import Codes
from whycluster.core.errors import InvalidInputError
from whycluster.data import display
from whycluster.data.cells import index_of
from whycluster.data.column_kinds import ColumnKind, kind_of_values
from whycluster.data.frame_table import as_frame
from whycluster.data.missing import is_missing
from whycluster.data.settings import setting

_MOST_NAMED = 5
_IDS = (ColumnKind.NUMBER, ColumnKind.TEXT, ColumnKind.DATE, ColumnKind.BOOLEAN)


@dataclass(frozen=True)
class PairedRows:
    """The rows of two tables, paired by their ids.

    Attributes
    ----------
    on : the name of the ids
    ids_before, ids_after : the ids of all rows of the two tables
    before, after : (m,) the positions of the common rows in the two tables, in the order of the first
    gone : the positions of the rows that only the first table has
    new : the positions of the rows that only the second table has
    """

    on: Hashable
    ids_before: list[Any]
    ids_after: list[Any]
    before: Codes
    after: Codes
    gone: Codes
    new: Codes

    @classmethod
    def of(cls, before: Any, after: Any, on: Hashable, where: str) -> PairedRows:
        """Pair the rows of two frames; raise an error if the ids are not unique or not comparable."""
        first, second = _read_ids(before, on, where, "before"), _read_ids(after, on, where, "after")
        _check_same_kind(first, second, on, where)
        places = {name: place for place, name in enumerate(second)}
        found = np.array([places.get(name, -1) for name in first], dtype=np.intp)
        common, is_known = np.flatnonzero(found >= 0), np.zeros(len(second), dtype=bool)
        if not common.size:
            raise InvalidInputError(
                f"{where}: before and after must have rows in common; no id is in both. Column {on!r} holds "
                f"{display.cut(first, 3)} in before and {display.cut(second, 3)} in after."
            )
        is_known[found[common]] = True
        gone, new = np.flatnonzero(found < 0), np.flatnonzero(~is_known)
        return cls(on, first, second, common, found[common], gone, new)

    def find(self, name: Any, where: str) -> tuple[int, int]:
        """Return the positions of a row in the two tables, or -1 in a table that does not have it."""
        found = [self._places[i].get(name, -1) if _is_hashable(name) else -1 for i in (0, 1)]
        if max(found) < 0:
            raise InvalidInputError(
                f"{where}: name must be an id from column {self.on!r}, such as {self.ids_before[0]!r}; got "
                f"{name!r}."
            )
        return found[0], found[1]

    @cached_property
    def _places(self) -> list[dict[Any, int]]:
        return [{name: i for i, name in enumerate(ids)} for ids in (self.ids_before, self.ids_after)]


def _is_hashable(name: Any) -> bool:
    return isinstance(name, Hashable)


def _read_ids(frame: Any, on: Hashable, where: str, name: str) -> list[Any]:
    """Return the ids of a frame: those of a column, or of its pandas index if that has the name."""
    found = as_frame(frame, where, name)
    if found is None:
        raise InvalidInputError(
            f"{where}: {name} must be a pandas or polars DataFrame or a pyarrow Table, with a column of ids; "
            f"got {type(frame).__name__}."
        )
    if not len(found):
        raise InvalidInputError(f"{where}: {name} must have rows; it has none.")
    ids = _column(found, on, where, name)
    _check_ids(ids, on, where, name)
    return ids


def _column(frame: nw.DataFrame[Any], on: Hashable, where: str, name: str) -> list[Any]:
    if on in frame.columns:
        column: list[Any] = frame.get_column(on).to_list()
        return column
    index: Any = index_of(frame.to_native())
    if index is not None and on is not None and index.name == on:
        return list(index.tolist())
    raise InvalidInputError(
        f"{where}: {name} must have the column {on!r}, which {setting('on')} names; its columns are "
        f"{display.cut(frame.columns, 10)}."
    )


def _check_ids(ids: list[Any], on: Hashable, where: str, name: str) -> None:
    missing = [row for row, value in enumerate(ids) if is_missing(value)]
    if missing:
        raise InvalidInputError(
            f"{where}: {name} must have an id in each row; column {on!r} is missing in "
            f"{display.count(len(missing), 'row')}: {display.cut(missing, _MOST_NAMED)}. Drop such rows "
            "first."
        )
    kind = kind_of_values(ids)
    if kind not in _IDS:
        held = "text and numbers" if kind is ColumnKind.CATEGORY else f"{kind.value} ({ids[0]!r})"
        raise InvalidInputError(
            f"{where}: {name} must have ids of one type, such as numbers or text; column {on!r} holds {held}."
        )
    repeated = [value for value, n in Counter(ids).items() if n > 1] if len(set(ids)) < len(ids) else []
    if repeated:
        raise InvalidInputError(
            f"{where}: {name} must contain each id only once; {display.count(len(repeated), 'value')} of "
            f"column {on!r} occur{'s' * (len(repeated) == 1)} more than once: "
            f"{display.cut(repeated, _MOST_NAMED)}. Keep one row per id first."
        )


def _check_same_kind(before: list[Any], after: list[Any], on: Hashable, where: str) -> None:
    kinds = kind_of_values(before), kind_of_values(after)
    if kinds[0] is not kinds[1]:
        raise InvalidInputError(
            f"{where}: the ids must have the same type in before and after; column {on!r} holds "
            f"{kinds[0].value} in before ({before[0]!r}) and {kinds[1].value} in after ({after[0]!r}). "
            "Convert one of them first."
        )
