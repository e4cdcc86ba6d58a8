"""The explanation that is checked, and the data that several checks share."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from whycluster.core.arrays import Codes, Floats
from whycluster.data import display
from whycluster.data.arrays import evenly_spaced
from whycluster.data.missing import is_missing
from whycluster.data.table import Table
from whycluster.explanations.explanation import Explanation
from whycluster.explanations.summaries.summary import Summary

MOST_ROWS = 20_000  # rows that are read to check values
_MOST_INPUTS = 1 << 22  # values that are read to check the inputs of the model
_MOST_COLUMNS = 200  # columns whose values are checked: those with the most relevance


@dataclass(frozen=True, eq=False)
class Context:
    """An explanation of a table, and the data that several checks share.

    Attributes
    ----------
    exp : the explanation
    summary : its summary
    """

    exp: Explanation
    summary: Summary

    @cached_property
    def n_rows(self) -> int:
        """The number of rows of the explanation."""
        return len(self.exp)

    @cached_property
    def names(self) -> list[Hashable]:
        """The names of the columns."""
        return self.exp.feature_names

    @cached_property
    def rows(self) -> Codes:
        """The positions of the rows whose values are checked."""
        return evenly_spaced(self.n_rows, MOST_ROWS)

    @property
    def sampled(self) -> str:
        """A remark for figures that are based on only some of the rows."""
        n = len(self.rows)
        return f" (in a sample of {n:,} rows)" if n < self.n_rows else ""

    @cached_property
    def _some(self) -> Table:
        table = self.exp.table
        return table if len(self.rows) == table.n_rows else table.take(self.rows)

    def used(self, least: float) -> list[int]:
        """Return the columns that carry at least a share of a cluster's relevance, the strongest first."""
        share = np.nan_to_num(self.summary.share).max(axis=0, initial=0.0)
        order = np.argsort(-share, kind="stable")[:_MOST_COLUMNS]
        return [int(column) for column in order if share[column] >= least]

    def read(self, least: float) -> dict[int, Values]:
        """Return the values of the columns in `used` in the checked rows; new columns are read at once."""
        used = self.used(least)
        new = [column for column in used if column not in self._read]
        if new:
            picked = self._some.pick(np.tile(new, (len(self.rows), 1)))
            self._read.update(zip(new, map(Values.of, picked.T), strict=True))
        return {column: self._read[column] for column in used}

    @cached_property
    def _read(self) -> dict[int, Values]:
        return {}

    @cached_property
    def inputs(self) -> tuple[Floats, Codes] | None:
        """The inputs of the model in some rows, and the column of each; None if inputs mix columns."""
        energy, table = self.exp.energy, self.exp.table
        column = energy.feature_of_input
        n = min(len(self.rows), max(1, _MOST_INPUTS // energy.n_inputs))
        if len(column) != energy.n_inputs or energy.categorical is not None:
            return None
        if table.categories and not table.goes_through_steps:
            return None
        some = table.take(self.rows[evenly_spaced(len(self.rows), n)])
        return np.array(some.inputs(0, n, None, np.empty((n, energy.n_inputs)))), column


@dataclass(frozen=True, eq=False)
class Values:
    """The values of a column as codes.

    Attributes
    ----------
    distinct : the distinct values, with None for missing ones
    codes : (n,) the position of each value in `distinct`
    numbers : (n,) the values as numbers, or None if some are not numbers
    """

    distinct: list[Any]
    codes: Codes
    numbers: Floats | None

    @classmethod
    def of(cls, values: NDArray[Any]) -> Values:
        """Find the distinct values of a column."""
        if values.dtype.kind in "fiub":
            found, codes = np.unique(values, return_inverse=True)
            distinct = [None if value != value else value for value in found.tolist()]  # NaN
            return cls(distinct, codes.reshape(-1), values.astype(np.float64))
        position: dict[Any, int] = {}
        plain = [None if is_missing(value) else value for value in values.tolist()]
        codes = np.array([position.setdefault(_key(value), len(position)) for value in plain], dtype=np.intp)
        first = np.unique(codes, return_index=True)[1]
        return cls([plain[i] for i in first], codes, _numbers(plain))

    @cached_property
    def size(self) -> Codes:
        """The number of rows of each distinct value."""
        return np.bincount(self.codes, minlength=len(self.distinct))

    def format(self, code: int) -> str:
        """Return a distinct value as text."""
        value = self.distinct[code]
        if isinstance(value, str):
            return f'"{display.format_name(value)}"'
        return display.clean(display.format_value(value))


def _key(value: Any) -> Any:
    return value if isinstance(value, (int, float, str, type(None))) else str(value)


def _numbers(values: list[Any]) -> Floats | None:
    if not all(isinstance(value, (int, float, type(None))) for value in values):
        return None
    return np.array([np.nan if value is None else float(value) for value in values])


def determined(codes: Codes, others: Codes) -> tuple[float, float]:
    """Return how well one column of codes determines another.

    Returns
    -------
    share : the share of rows whose other code is the most frequent one among the rows of the same code
    gain : how much of the error of always guessing the most frequent other code this avoids, from 0 to 1
        (Goodman and Kruskal's lambda)
    """
    width = int(others.max()) + 1
    both = np.bincount(codes * width + others, minlength=(int(codes.max()) + 1) * width).reshape(-1, width)
    share, guess = both.max(axis=1).sum() / len(codes), both.sum(axis=0).max() / len(codes)
    return float(share), float((share - guess) / (1.0 - guess)) if guess < 1.0 else 0.0
