"""The base class of `TopFeatures` and `TopWords`: the strongest features or words of each row."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass, field
from typing import Any, ClassVar

from numpy.typing import NDArray

from whycluster.data.frames import build_frame
from whycluster.explanations.exchange.arrow import ArrowTable


@dataclass(frozen=True, repr=False, eq=False)
class TopTable(ArrowTable):
    """Several arrays of shape (n, k), one column per rank."""

    _rows: ClassVar[str]
    """The word for the rows."""
    _names: ClassVar[tuple[str, ...]]
    """The names of the arrays."""

    _like: Any = field(default=None, kw_only=True)

    def __len__(self) -> int:
        return len(self._arrays()[0])

    def to_frame(self, backend: str | None = None) -> Any:
        """Return a frame with one line per row and a column per array and rank, such as ``relevance_1``.

        Parameters
        ----------
        backend : "pandas", "polars" or "pyarrow"; by default the library of the data
        """
        arrays = self._arrays()
        columns: dict[Hashable, NDArray[Any]] = {
            f"{name}_{rank + 1}": values[:, rank]
            for rank in range(arrays[0].shape[1])
            for name, values in zip(self._names, arrays, strict=True)
        }
        return build_frame(columns, self._like, backend, "top.to_frame")

    def __repr__(self) -> str:
        n, k = self._arrays()[0].shape
        names = ", ".join(self._names)
        return f"<{type(self).__name__}: the {k} strongest of {n} {self._rows}; see {names}, to_frame()>"

    def _arrays(self) -> list[NDArray[Any]]:
        return [getattr(self, name) for name in self._names]
