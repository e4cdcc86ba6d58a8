"""The protocol of all engines: explain a table in parts.

Only a few quantities depend on all rows: beta and, for some rules and energies, the sizes and means of the
clusters. Once they are known, each row can be explained independently of the other rows. So every engine
takes the same two steps, wherever the parts are stored:

1. Call `Engine.measure` on every part and add up the results. This step is skipped if nothing depends on all
   rows.
2. Call `Engine.explain` on every part, given the sum.

To add an engine, subclass `Engine`. The engine reads the parts, distributes the work and assembles the
results. `whycluster.engines.request.ExplainRequest` measures and explains the rows of one part, whatever
library holds them.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, Generic, TypeVar, final

from whycluster.core.attribution import Population
from whycluster.engines.request import ExplainRequest

PartsT = TypeVar("PartsT")
PartT = TypeVar("PartT")
ResultT = TypeVar("ResultT")
OutputT = TypeVar("OutputT")


class Engine(ABC, Generic[PartsT, PartT, ResultT, OutputT]):
    """The base class of all engines, which explain a table in parts.

    The type parameters are the collection of all parts, one part, the explanations of one part, and the
    results of a run.

    Attributes
    ----------
    request : the request to answer for every part
    """

    request: ExplainRequest

    @abstractmethod
    def measure(self, part: PartT) -> Population:
        """Measure the rows of one part, on the machine that reads the part."""

    @abstractmethod
    def explain(self, part: PartT) -> ResultT:
        """Explain the rows of one part, on the machine that reads the part."""

    @abstractmethod
    def measure_all(self, parts: PartsT) -> Any:
        """Measure every part and return the sum, a `Population`; in a lazy engine, the sum is deferred."""

    @abstractmethod
    def explain_all(self, parts: PartsT, population: Any) -> OutputT:
        """Explain every part and return the results.

        ``population`` is the sum from `measure_all`, or None if nothing had to be measured.
        """

    @final
    def run(self, parts: PartsT, background: PartsT | None = None) -> OutputT:
        """Measure all parts if necessary, then explain them.

        If ``background`` is given, its parts are measured instead.
        """
        population = None
        if self.request.needs_population:
            population = self.measure_all(parts if background is None else background)
        return self.explain_all(parts, population)
