"""New rows, compared with the rows that a segmentation was made on.

The bounds are wide: the rows of a typical new month pass, but a change of units or scale does not.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Hashable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from whycluster.core.arrays import Floats
from whycluster.core.errors import InvalidInputError
from whycluster.data import display
from whycluster.data.arrays import evenly_spaced
from whycluster.data.column_kinds import ColumnKind
from whycluster.data.columns import category_as_text
from whycluster.data.settings import setting
from whycluster.data.table import Table
from whycluster.data.warnings import PopulationWarning, level_of_the_caller
from whycluster.segments.population import (
    KnownColumn,
    KnownPopulation,
    column_kinds,
    quartiles,
    raw_columns,
    sizes_of,
)

MOST_ROWS = 10_000
"""The largest number of rows that are compared; from a longer table, evenly spaced rows are taken."""

_ENOUGH = 20  # values from which quartiles are compared; fewer values are compared with all known ones
_WARNS, _REFUSES = 10.0, 50.0  # factors between the sizes of new and known values
_BEYOND = 0.5  # how far outside most new values must be for a warning, as a multiple of the known range
_LONG = 3650.0  # days that dates may be outside, at least
_LEAST_UNSEEN = 0.005  # share of unseen categories that is always allowed
_LEAST_MISSING, _MOST_MISSING = 0.1, 0.95  # shares of missing values that are always, or never, allowed
_SHOWN = 3  # number of columns or categories that a message lists
_NUMERIC = (ColumnKind.NUMBER, ColumnKind.BOOLEAN)


class Deviation(NamedTuple):
    """A difference between new rows and the rows that a segmentation was made on.

    Attributes
    ----------
    column : the name of the column
    text : the difference, as a sentence without a period
    is_grave : whether the rows are refused
    is_off_scale : whether the values are far larger or smaller than known values
    """

    column: Hashable
    text: str
    is_grave: bool = False
    is_off_scale: bool = False


class Verdict(NamedTuple):
    """What the differences between new rows and known rows mean.

    Attributes
    ----------
    text : the differences, or an empty string
    is_refused : whether the rows are refused
    """

    text: str
    is_refused: bool

    @property
    def refusal(self) -> str:
        """What must hold, what was found, and what to do, as a sentence without its subject."""
        return (
            "must have the columns and units of the rows that the segmentation was made on; "
            f"{self.text}. Convert them first, or {setting('pass check=False')}."
        )


def check_rows(known: KnownPopulation, table: Table, where: str) -> None:
    """Raise an error if new rows cannot be those of the segmentation; warn if they differ from its rows.

    Parameters
    ----------
    known : the rows that the segmentation was made on
    table : the new rows, as the network opened them; messages contain its name
    where : the function that was called, for messages
    """
    verdict = judge(known, table)
    if verdict.is_refused:
        raise InvalidInputError(f"{where}: {table.name} {verdict.refusal}")
    if verdict.text:
        which = "" if table.name == "new" else f"in {table.name}, "
        warnings.warn(f"{where}: {which}{verdict.text}.", PopulationWarning, stacklevel=level_of_the_caller())


def judge(known: KnownPopulation, table: Table) -> Verdict:
    """Compare new rows with known rows, and decide whether they are refused."""
    found = list(deviations(known, table))
    numeric = [column for column in known.columns if column.is_used and column.kind in _NUMERIC]
    off_scale = [each for each in found if each.is_off_scale]
    grave = [each for each in found if each.is_grave]
    if len(off_scale) > 1 and 2 * len(off_scale) >= len(numeric):
        grave = grave or off_scale
    listed = "; ".join(each.text for each in (grave or found)[:_SHOWN])
    count = len(grave or found)
    more = f"; and {display.count(count - _SHOWN, 'more column')}" if count > _SHOWN else ""
    return Verdict(f"{listed}{more}", bool(grave))


def deviations(known: KnownPopulation, table: Table) -> Iterator[Deviation]:
    """Iterate over the differences between new rows and known rows, at most one per column."""
    raw = raw_columns(table)
    kinds = column_kinds(raw)
    if raw.n_rows > MOST_ROWS:
        raw = raw.take(evenly_spaced(raw.n_rows, MOST_ROWS))
    values = raw.to_array()
    for i, column in enumerate(known.columns):
        found = None
        if column.is_used:
            found = _deviation(column, kinds[i], raw.categories.get(i), values[:, i], known.n_rows)
        if found is not None:
            yield found


def _deviation(
    column: KnownColumn, kind: ColumnKind, names: Sequence[Any] | None, values: Floats, n_known: int
) -> Deviation | None:
    """Return the difference between the new and the known values of a column, if there is one.

    Parameters
    ----------
    column : the known values
    kind, names : the kind and the categories of the new values
    values : (n,) the new values, which are codes if there are categories
    n_known : the number of known rows
    """
    found = _check_kind(column, kind, names) or _check_booleans(column, kind, values)
    if column.kind.is_categorical and names is None and kind.is_numeric:
        names, values = _as_categories(values)
    if found is None and names is not None:
        found = _check_categories(column, names, values, n_known)
    elif found is None and column.range is not None:
        found = _check_numbers(column, values)
    if names is not None:
        values = np.where(values < 0, np.nan, values)
    return found or _check_missing(column, values, n_known)


def _check_kind(column: KnownColumn, kind: ColumnKind, names: Sequence[Any] | None) -> Deviation | None:
    """Return a deviation if the new values cannot be read like the known ones.

    A column of objects that are all missing counts as text but has no categories, so it is empty.
    """
    empty = ColumnKind.EMPTY in (kind, column.kind) or (names is not None and len(names) == 0)
    if empty or kind.reading == column.kind.reading:
        return None
    if column.kind.is_categorical and names is None and kind.is_numeric:
        return None  # numbers are compared with the categories as text
    return Deviation(
        column.name,
        f"column {column.name!r} must hold {column.kind.value}, but holds {kind.value}",
        is_grave=True,
    )


def _check_booleans(column: KnownColumn, kind: ColumnKind, values: Floats) -> Deviation | None:
    """Return a deviation if booleans replace numbers, or the other way around; 0 and 1 may be either."""
    if {kind, column.kind} != {ColumnKind.BOOLEAN, ColumnKind.NUMBER}:
        return None
    numbers = np.array(column.range or ()) if kind is ColumnKind.BOOLEAN else values[np.isfinite(values)]
    if np.isin(numbers, (0.0, 1.0)).all():
        return None
    text = f"column {column.name!r} must hold {column.kind.value}, but holds {kind.value}"
    return Deviation(column.name, text, is_grave=True)


def _as_categories(values: Floats) -> tuple[list[str], Floats]:
    """Return the distinct numbers as text, and the code of each value, which is -1 where it is missing."""
    known = ~np.isnan(values)
    names, codes = np.unique(values[known], return_inverse=True)
    read = np.full(len(values), -1.0)
    read[known] = codes
    return [category_as_text(name) for name in names.tolist()], read


def _check_categories(
    column: KnownColumn, names: Sequence[Any], codes: Floats, n_known: int
) -> Deviation | None:
    """Return a deviation if too many values are unseen, given how many categories occurred only once."""
    if column.categories is None:
        return None
    seen = {category_as_text(name) for name in column.categories}
    unseen = [code for code, name in enumerate(names) if category_as_text(name) not in seen]
    if not unseen:
        return None
    counts = np.bincount(codes[codes >= 0].astype(np.intp), minlength=len(names))
    n, n_unseen = int(counts.sum()), int(counts[unseen].sum())
    expected = n * max(column.n_once / max(1, n_known), _LEAST_UNSEEN)
    if n_unseen <= expected + 3.0 * math.sqrt(expected) + 0.5:
        return None
    listed = display.cut([names[code] for code in unseen], _SHOWN)
    return Deviation(
        column.name,
        f"column {column.name!r} holds {listed} in {n_unseen:,} of {display.count(n, 'row')}, which "
        "the segmentation was not made on",
    )


def _off_scale(column: KnownColumn, text: str, is_grave: bool = False) -> Deviation:
    """Return the deviation of a column whose values are far larger or smaller than known ones."""
    return Deviation(column.name, text, is_grave, is_off_scale=True)


def _check_numbers(column: KnownColumn, values: Floats) -> Deviation | None:
    if column.kind.is_temporal:
        return _check_dates(column, values)
    found = _check_sizes(column, values)
    return found or _check_range(column, values)


def _check_sizes(column: KnownColumn, values: Floats) -> Deviation | None:
    """Return a deviation if the absolute values differ from the known ones by a large factor."""
    sizes, known = sizes_of(values[np.isfinite(values)]), column.sizes
    if known is None or not sizes.size:
        return None
    if sizes.size < _ENOUGH:
        return _check_few(column, float(sizes.min()), float(sizes.max()))
    new = quartiles(sizes)
    assert new is not None
    ratios = [a / b for a, b in zip(new[1:4], known[1:4], strict=True)]
    larger, smaller = min(ratios), 1.0 / max(ratios)
    if max(larger, smaller) < _WARNS:
        return None
    times = ratios[1] if larger >= _WARNS else 1.0 / ratios[1]
    word = "larger" if larger >= _WARNS else "smaller"
    return _off_scale(
        column,
        f"column {column.name!r} holds values about {display.number(times)} times {word} (the median of its "
        f"absolute values other than 0 is {display.number(new[2])} instead of {display.number(known[2])})",
        is_grave=max(larger, smaller) >= _REFUSES,
    )


def _check_few(column: KnownColumn, low: float, high: float) -> Deviation | None:
    """Return a deviation if each of a few values, from low to high, is far outside all known values."""
    assert column.sizes is not None
    least, *_, most = column.sizes
    if low >= _WARNS * most:
        bound, value, larger = most, low, "larger than the largest"
    elif high <= least / _WARNS:
        bound, value, larger = least, high, "smaller than the smallest"
    else:
        return None
    times = max(value / bound, bound / value)
    return _off_scale(
        column,
        f"column {column.name!r} holds {display.number(value)}, which is {display.number(times)} times "
        f"{larger} absolute value other than 0, {display.number(bound)}",
    )


def _check_range(column: KnownColumn, values: Floats) -> Deviation | None:
    """Return a deviation if three quarters of the values are far outside the known range."""
    new = quartiles(values) if np.isfinite(values).sum() >= _ENOUGH else None
    if new is None or column.range is None:
        return None
    low, high = column.range[0], column.range[-1]
    margin = _BEYOND * (high - low)
    has_other_sign = low >= 0.0 > new[3] or high <= 0.0 < new[1]  # as if refunds were sales
    if low - margin <= new[3] and new[1] <= high + margin and not has_other_sign:
        return None
    side = f"at least {display.number(new[1])}" if new[1] > high else f"at most {display.number(new[3])}"
    return _off_scale(
        column,
        f"in column {column.name!r}, three quarters of the values are {side} instead of from "
        f"{display.number(low)} to {display.number(high)}",
    )


def _check_dates(column: KnownColumn, values: Floats) -> Deviation | None:
    """Return a deviation if the median date is far outside the known dates."""
    finite = values[np.isfinite(values)]
    if not finite.size or column.range is None:
        return None
    low, high, median = column.range[0], column.range[-1], float(np.median(finite))
    margin = max(_LONG, _WARNS * (high - low))
    if low - margin <= median <= high + margin:
        return None
    unit = "dates" if column.kind is ColumnKind.DATE else "values"
    shown = display.format_dates if column.kind is ColumnKind.DATE else display.numbers
    middle, first, last = shown([median, low, high])
    return _off_scale(
        column,
        f"column {column.name!r} holds {unit} around {middle} instead of from {first} to {last}",
    )


def _check_missing(column: KnownColumn, values: Floats, n_known: int) -> Deviation | None:
    """Return a deviation if far more values are missing than before."""
    n_missing, n = int(np.isnan(values).sum()), len(values)
    if not n_missing or (n < _ENOUGH and column.n_missing):
        return None
    share = column.n_missing / max(1, n_known)
    if n_missing <= n * min(_MOST_MISSING, _WARNS * share + _LEAST_MISSING):
        return None
    return Deviation(
        column.name,
        f"column {column.name!r} is missing in {n_missing:,} of {display.count(n, 'row')}, and was missing "
        f"in {column.n_missing:,} of {display.count(n_known, 'row')}",
    )
