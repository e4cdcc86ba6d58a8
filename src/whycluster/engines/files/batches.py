"""Reads parts in batches that fit in memory."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from typing import Any

from whycluster.engines.files.parts import FilePart, reading
from whycluster.engines.files.plan import RunPlan

MOST_ROWS = 1 << 31  # the maximum number of rows in a batch
_FEWEST_ROWS = 1 << 10  # the minimum number of rows in a batch, unless rows are long
_FIRST_ROWS = 16  # the number of rows that show whether there are long values
_BATCH_VALUES = 3 << 20  # the number of values in a batch; each worker holds a few batches in memory


@dataclass(frozen=True)
class BatchReader:
    """Reads the batches of parts.

    Attributes
    ----------
    plan : the plan of the run
    n_clusters : the number of clusters
    batch_rows : the number of rows in a batch, or None to choose it based on memory use
    """

    plan: RunPlan
    n_clusters: int
    batch_rows: int | None

    def read(self, part: FilePart, columns: list[str]) -> Iterator[Any]:
        """Yield the batches of a part."""
        fields = self.plan.read_as(part, columns)
        with reading():
            yield from part.batches(fields, self._n_rows(part, fields))

    def is_one_batch(self, part: FilePart) -> bool:
        """Return whether a part is known to fit in one batch, so that there is nothing to read ahead."""
        n_rows = self.plan.counts[part.name]
        return n_rows is not None and n_rows <= (self.batch_rows or self._usual_rows)

    @property
    def _usual_rows(self) -> int:
        return max(_FEWEST_ROWS, _BATCH_VALUES // self._n_values)

    @property
    def _n_values(self) -> int:
        """How many numbers are computed for each row."""
        return len(self.plan.columns) + self.n_clusters

    def _n_rows(self, part: FilePart, fields: list[Any]) -> int:
        """Return the number of rows in a batch, reduced if the first values of copied columns are long."""
        if self.batch_rows is not None:
            return self.batch_rows
        long = long_bytes(part, fields)
        fitting = max(1, int(8 * _BATCH_VALUES / (8 * self._n_values + long))) if long else MOST_ROWS
        return min(self._usual_rows, fitting)


def long_bytes(part: FilePart, fields: list[Any]) -> float:
    """Return how many bytes the values that are not short take in each of the first rows, on average.

    A few rows are read first, because a small file can hold a long text that is repeated in all rows.
    """
    long = [each for each in fields if not _is_short(each.type)]
    width = 0.0
    for n_rows in (_FIRST_ROWS, _FEWEST_ROWS) if long else ():
        with closing(part.batches(long, n_rows)) as batches:
            first = next(batches, None)
        if first is None or not first.num_rows:
            break
        width = first.nbytes / first.num_rows
        if width * _FEWEST_ROWS > 8 * _BATCH_VALUES:
            break
    return width


def _is_short(kind: Any) -> bool:
    """Return whether all values of a pyarrow type have the same, small size."""
    import pyarrow.types as kinds

    return bool(kinds.is_primitive(kind) or kinds.is_decimal(kind) or kinds.is_null(kind))
