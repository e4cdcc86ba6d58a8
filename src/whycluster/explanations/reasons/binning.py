"""Columns cut into bins for the search for rules, and ranges of bins turned into conditions."""

from __future__ import annotations

import datetime as dt
import math
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

import numpy as np
from numpy.typing import NDArray

from whycluster.core.arrays import Codes, Floats
from whycluster.data.columns import category_as_text
from whycluster.explanations.counterfactuals.short_values import UNITS
from whycluster.explanations.reasons.column_values import (
    BOOLEAN,
    CATEGORY,
    DAY,
    DURATION,
    TEMPORAL,
    TIME,
    ColumnValues,
)
from whycluster.explanations.reasons.conditions import Condition
from whycluster.explanations.reasons.rule_search import Binned, Range, Ranges

_N_CUTS = 32  # cuts at quantiles of all rows, and as many at quantiles of the members
_MOST_LISTED = 5  # categories in a condition
_MOST_RANKED = 20  # categories that get a separate bin
_MOST_DIGITS = 20  # digits of a bound, below the leading digit of the gap
_DAY = dt.timedelta(days=1)
_EPOCH = dt.datetime(1970, 1, 1)


@dataclass(frozen=True, eq=False)
class Binning:
    """The bins of the columns for one cluster.

    Attributes
    ----------
    columns : the columns
    cuts : for each column of numbers, the largest value of each bin except for the last; for categories, the
        codes of the first bins
    binned : the bin of each value
    """

    columns: list[ColumnValues]
    cuts: list[NDArray[Any]]
    binned: Binned

    @classmethod
    def of(cls, columns: list[ColumnValues], member: NDArray[np.bool_], weight: Floats) -> Binning:
        """Cut columns into bins that separate the members of a cluster, (n,), from all other rows."""
        codes = np.empty((len(member), len(columns)), dtype=np.int16, order="F")
        cuts: list[NDArray[Any]] = []
        most = np.zeros(len(columns), dtype=np.intp)
        for place, column in enumerate(columns):
            if column.kind == CATEGORY:
                cuts.append(_ranked(column, member, weight))
                codes[:, place] = _category_bins(column.values, cuts[-1])
                most[place] = min(len(cuts[-1]), _MOST_LISTED)
            else:
                cuts.append(_cuts(column.values, member))
                codes[:, place] = np.searchsorted(cuts[-1], column.values, side="left")
            codes[np.isnan(column.values), place] = len(cuts[-1]) + 1
        n_bins = np.array([len(cut) + 1 for cut in cuts])
        has_missing = np.array([bool(np.isnan(column.values).any()) for column in columns])
        return cls(columns, cuts, Binned(codes, n_bins, most, has_missing, weight))

    def conditions(self, found: Ranges) -> tuple[Condition, ...]:
        """Return ranges of bins as conditions."""
        return tuple(self._condition(each) for each in found)

    def _condition(self, found: Range) -> Condition:
        column, cut = self.columns[found.column], self.cuts[found.column]
        n = len(cut) + 1
        nan = column.is_float and bool(self.binned.has_missing[found.column])
        if found.high == n or (found.low < 0 and found.high == n - 1):
            return Condition(column.name, column.kind, missing=found.high == n, may_be_nan=nan)
        if column.kind == CATEGORY:
            names = sorted(
                str(category_as_text(column.categories[int(code)])) for code in cut[: found.high + 1]
            )
            return Condition(column.name, CATEGORY, values=tuple(names))
        if column.kind == BOOLEAN:
            return Condition(column.name, BOOLEAN, values=(found.low >= 0,))
        low = None if found.low < 0 else _next_bound(self._bound(found.column, found.low), column)
        high = None if found.high == n - 1 else self._bound(found.column, found.high)
        return Condition(
            column.name, column.kind, low, high, low is not None and _is_stepwise(column), may_be_nan=nan
        )

    def _bound(self, place: int, bin_number: int) -> Any:
        """Return a short bound between a bin and the next one."""
        column, below = self.columns[place], float(self.cuts[place][bin_number])
        above = float(np.nanmin(column.values, where=column.values > below, initial=np.inf))
        return bound_between(below, above, column)


def _cuts(values: Floats, member: NDArray[np.bool_]) -> Floats:
    """Return values at quantiles of all rows and of the members, and the largest value below all members."""
    known = ~np.isnan(values)
    every, own = np.sort(values[known]), np.sort(values[known & member])
    if not own.size:
        return every[:0]
    below = max(0, int(np.searchsorted(every, own[0])) - 1)
    found = [_quantiles(every), _quantiles(own), own[-1:], every[below : below + 1]]
    cuts = np.unique(np.concatenate(found))
    return np.asarray(cuts[cuts < every[-1]])


def _quantiles(values: Floats) -> Floats:
    """Return evenly spaced values of a sorted array."""
    places = np.linspace(0, len(values) - 1, _N_CUTS + 1).astype(np.intp)
    return values[places[:-1]]


def _ranked(column: ColumnValues, member: NDArray[np.bool_], weight: Floats) -> Codes:
    """Return the categories that are most typical of the members, in order; rare ones count less."""
    known, n = column.values >= 0, len(column.categories)
    if column.is_free_text or not known.any():
        return np.empty(0, np.intp)
    codes = column.values[known].astype(np.intp)
    rows = np.bincount(codes, weight[known], n)
    hits = np.bincount(codes, weight[known] * member[known], n)
    share = (hits + 1.0) / (rows + 2.0)
    order = np.argsort(-share, kind="stable")
    return order[hits[order] > 0][:_MOST_RANKED]


def _category_bins(values: Floats, ranked: Codes) -> NDArray[np.int16]:
    """Return the rank of each category; those that are not ranked share the last bin."""
    n = int(np.nanmax(values, initial=-1.0)) + 1
    rank = np.full(n + 1, len(ranked), dtype=np.int16)  # the last entry is for -1 and missing values
    rank[ranked] = np.arange(len(ranked))
    return np.asarray(rank[np.where(values >= 0, values, n).astype(np.intp)])


def bound_between(low: float, high: float, column: ColumnValues) -> Any:
    """Return a short bound t with low <= t < high, in the units of the column.

    It is the value with the fewest digits or, for times, the coarsest unit, that is nearest to the middle.
    """
    if column.kind in TEMPORAL:
        return _time_between(low, high, column)
    if column.is_whole:
        return math.floor((low + high) / 2.0) if high - low > 1.0 else int(low)
    return float(_shortest_between(Decimal(low), Decimal(high)))


def _shortest_between(low: Decimal, high: Decimal) -> Decimal:
    """Return the shortest decimal t with low <= t < high, which also holds after conversion to a float."""
    place = (high - low).adjusted() + 1
    middle = (low + high) / 2
    while place > (high - low).adjusted() - _MOST_DIGITS:
        unit = Decimal(1).scaleb(place)
        found = (middle / unit).to_integral_value() * unit
        if low <= found < high and float(low) <= float(found) < float(high):
            return found
        place -= 1
    return low


def _time_between(low: float, high: float, column: ColumnValues) -> Any:
    """Return the coarsest time t with low <= t < high that is nearest to the middle; bounds are in days."""
    if column.kind == DAY:
        return dt.date.fromordinal(_EPOCH.toordinal() + math.floor((low + high) / 2.0))
    for unit in UNITS:
        step = unit / _DAY
        into = unit * round((low + high) / 2.0 / step)
        if low <= into / _DAY < high:
            break
    else:
        into = dt.timedelta(microseconds=math.floor(low * 86_400e6))
    return _as_time(into, column)


def _as_time(into: dt.timedelta, column: ColumnValues) -> Any:
    if column.kind == DURATION:
        return into
    found = _EPOCH + into
    if column.kind == TIME:
        return found.time()
    return found.replace(tzinfo=dt.timezone.utc) if column.has_zone else found


def _next_bound(bound: Any, column: ColumnValues) -> Any:
    """Return the next whole number or the next day after a bound; other kinds of bounds stay unchanged."""
    if column.kind == DAY:
        return bound + _DAY
    return bound + 1 if column.is_whole and column.kind not in TEMPORAL else bound


def _is_stepwise(column: ColumnValues) -> bool:
    """Return whether a column holds only whole numbers or days, so that lower bounds are included."""
    return column.kind == DAY or (column.is_whole and column.kind not in TEMPORAL)
