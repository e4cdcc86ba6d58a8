"""Front ends: pipelines whose rows are not columns of a table, such as documents.

A pipeline that begins with a vectorizer takes texts, and is explained word by word. The package that knows
such rows registers a `FrontEnd` here. It is loaded once a pipeline has a step that it may know.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any

from sklearn.pipeline import FeatureUnion, Pipeline

from whycluster.models.adapters.registry import load_adapters
from whycluster.models.network import Network
from whycluster.pipelines.steps import unnested


class FrontEnd(ABC):
    """The way into pipelines that take rows of one kind other than columns."""

    @abstractmethod
    def takes(self, steps: Sequence[tuple[str, Any]]) -> bool:
        """Return whether steps take such rows; raise if they do so in a way that cannot be explained."""

    @abstractmethod
    def network(self, steps: Sequence[tuple[str, Any]], model: Any) -> Network:
        """Return the network of fitted steps and the model behind them."""


_FRONT_ENDS: list[FrontEnd] = []


def register(front_end: FrontEnd) -> None:
    """Add a front end."""
    _FRONT_ENDS.append(front_end)


def front_end_of(steps: Sequence[tuple[str, Any]]) -> FrontEnd | None:
    """Return the front end that takes the rows of these steps; None if they take columns."""
    load_adapters(*_transformers(steps))
    return next((front_end for front_end in _FRONT_ENDS if front_end.takes(steps)), None)


def _transformers(steps: Sequence[tuple[str, Any]]) -> list[Any]:
    """Return all transformers, also those in unions."""
    found = []
    for _, step in steps:
        found.append(step)
        for name, inner in step.transformer_list if isinstance(step, FeatureUnion) else ():
            found += _transformers(unnested(inner) if isinstance(inner, Pipeline) else [(name, inner)])
    return found
