"""Tables through the Arrow PyCapsule interface, which pyarrow, polars, DuckDB and others read."""

from __future__ import annotations

import importlib.util
from abc import ABC, abstractmethod
from typing import Any

from whycluster.core.errors import MissingDependencyError


class ArrowTable(ABC):
    """Something with `to_frame` that other libraries can also read as an Arrow table."""

    @abstractmethod
    def to_frame(self, backend: str | None = None) -> Any:
        """Return a data frame; ``backend`` selects the library."""

    def __arrow_c_stream__(self, requested_schema: Any = None) -> Any:
        """Return the rows of `to_frame` as an Arrow stream; this needs pyarrow or polars, but not pandas."""
        for name in ("pyarrow", "polars"):
            if importlib.util.find_spec(name) is not None:
                return self.to_frame(backend=name).__arrow_c_stream__(requested_schema)
        raise MissingDependencyError('the Arrow interface needs pyarrow: pip install "whycluster[files]"')
