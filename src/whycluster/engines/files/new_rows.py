"""The rows of each part, compared with those that a segmentation was made on, or with the clusters."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np

from whycluster.data.display import count
from whycluster.data.usual_rows import unusual_columns
from whycluster.engines.files.parts import FilePart, PartError
from whycluster.engines.request import ExplainRequest
from whycluster.segments.new_rows import MOST_ROWS, judge
from whycluster.segments.population import KnownPopulation

_SHOWN = 3  # number of parts that a warning lists


class SpacedRows:
    """Evenly spaced rows from the batches of a part, at most twice as many as will be compared."""

    def __init__(self) -> None:
        self._pieces: list[Any] = []
        self._step, self._n_seen, self._n_kept = 1, 0, 0

    def add(self, batch: Any) -> None:
        """Keep every n-th row; n doubles whenever too many rows are kept."""
        rows = np.arange(-self._n_seen % self._step, batch.num_rows, self._step)
        self._pieces.append(batch.take(rows))  # a slice would keep the whole batch in memory
        self._n_seen, self._n_kept = self._n_seen + batch.num_rows, self._n_kept + len(rows)
        while self._n_kept > 2 * MOST_ROWS:
            kept = self.table()
            self._pieces = kept.take(np.arange(0, kept.num_rows, 2)).to_batches()
            self._step, self._n_kept = 2 * self._step, (kept.num_rows + 1) // 2

    def table(self) -> Any:
        """Return the rows as a pyarrow table, or None if there are none."""
        import pyarrow as pa

        return pa.Table.from_batches(self._pieces) if self._n_kept else None


@dataclass(frozen=True)
class PartComparison:
    """Compares parts with known rows or clusters, and collects the differences that are not errors.

    Attributes
    ----------
    known : the rows of the segmentation; without them, rows are compared with the clusters of the network
    request : the request, which opens the rows
    differences : the differences as text, keyed by the name of the part
    """

    known: KnownPopulation | None
    request: ExplainRequest
    differences: dict[str, str] = field(default_factory=dict)

    def check(self, part: FilePart, rows: SpacedRows) -> None:
        """Raise a `PartError` if the rows of a part cannot be those of the segmentation."""
        table = rows.table()
        text = "" if table is None else self._compare(table)
        if text:
            self.differences[part.name] = text

    def _compare(self, table: Any) -> str:
        """Return the differences as text, or an empty string if there are none or no row can be explained."""
        if self.known is None:
            compare = partial(unusual_columns, self.request.network.landmarks)
            return self.request.apply(table, compare) or ""
        verdict = self.request.apply(table, partial(judge, self.known))
        if verdict is not None and verdict.is_refused:
            raise PartError(f"it {verdict.refusal.rstrip('.')}")
        return "" if verdict is None else verdict.text

    @property
    def warning(self) -> str:
        """The differences of the first parts, or an empty string."""
        names = sorted(self.differences)
        listed = "; ".join(f"in {name!r}, {self.differences[name]}" for name in names[:_SHOWN])
        more = f"; and {count(len(names) - _SHOWN, 'more part')}" if len(names) > _SHOWN else ""
        return f"{listed}{more}"
