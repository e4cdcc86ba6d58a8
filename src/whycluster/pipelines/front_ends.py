"""Front ends for pipelines whose input is not a table but, for example, a list of documents.

A pipeline that begins with a vectorizer takes documents and is explained word by word. The package that
handles such input registers a `FrontEnd` here. That package is imported only if a pipeline contains a step
that it may handle.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any

from whycluster.models.adapters.registry import load_adapters
from whycluster.models.network import Network


class FrontEnd(ABC):
    """A front end for pipelines whose input is not a table."""

    @abstractmethod
    def takes(self, steps: Sequence[tuple[str, Any]]) -> bool:
        """Return whether the steps take such input; raise an error if they use it in an unsupported way."""

    @abstractmethod
    def network(self, steps: Sequence[tuple[str, Any]], model: Any) -> Network:
        """Return the network of fitted steps and the model that follows them."""


_FRONT_ENDS: list[FrontEnd] = []


def register(front_end: FrontEnd) -> None:
    """Add a front end."""
    _FRONT_ENDS.append(front_end)


def front_end_of(steps: Sequence[tuple[str, Any]], transformers: Sequence[Any]) -> FrontEnd | None:
    """Return the front end for the input that these steps take, or None if the steps take a table.

    The ``transformers``, both the steps and the transformers nested in them, determine which front ends are
    imported.
    """
    load_adapters(*transformers)
    for front_end in _FRONT_ENDS:
        if front_end.takes(steps):
            return front_end
    return None
