"""What is asked of the partitions of a Dask collection, and what each of them has to be like."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, TypeVar

import narwhals as nw
import numpy as np
from numpy.typing import NDArray

from whycluster.core.arrays import Codes
from whycluster.core.attribution import Population
from whycluster.core.errors import InvalidInputError, WhyClusterError
from whycluster.data.column_kinds import is_numeric
from whycluster.data.frame_table import name_differences
from whycluster.engines.request import ExplainRequest

Result = TypeVar("Result")


class PartitionResult(NamedTuple):
    """The explanations of the rows of one partition."""

    cluster: Codes  # (n,)
    competitor: Codes  # (n,)
    evidence: NDArray[Any]  # (n,)
    relevance: NDArray[Any]  # (n, d)
    index: Any  # that of a frame; of an array the position of its first row, 0 where that is not known
    number: int  # of the partition


@dataclass(frozen=True)
class Partitions:
    """What is asked of all partitions, and what each has to be like: one object that all tasks share.

    Attributes
    ----------
    asked : the question
    name : the parameter that they came as, for messages
    columns : of frames, what the meta says; None for arrays
    numbers : of frames, the columns that hold numbers or booleans
    feature_names : (d,) in the order of the model
    dtype : of the results, float32 or float64
    starts : the position of the first row of each; of arrays, where it is known
    """

    request: ExplainRequest
    name: str
    columns: list[Hashable] | None
    numbers: frozenset[Hashable]
    feature_names: list[Hashable]
    dtype: np.dtype[Any]
    starts: list[int] | None

    def knowing(self, population: Population) -> Partitions:
        """The same, with what was measured on all rows."""
        return replace(self, request=self.request.knowing(population))

    def measure(self, part: Any, number: int) -> Population:
        """How the rows of a partition stand."""
        return self.told(part, number, self.request.measure)

    def explain(self, part: Any, number: int) -> PartitionResult:
        """The rows of a partition, explained."""
        return self.told(part, number, lambda checked: self._explain(checked, number))

    def assign(self, part: Any, number: int) -> NDArray[Any]:
        """The labels of the rows of a partition."""
        if part.shape[0] == 0:
            return self.request.labels[:0]
        return self.told(part, number, self.request.assign)

    def told(self, part: Any, number: int, work: Callable[[Any], Result]) -> Result:
        """What the work gives of a partition; if it raises, the message says of which."""
        try:
            return work(self.checked(part))
        except WhyClusterError as error:
            raise type(error)(
                f"{error} This is partition {number} of {self.name}; its rows are counted from 0."
            ) from error

    def _explain(self, part: Any, number: int) -> PartitionResult:
        found = self.request.explain(part)
        index = 0 if self.starts is None else self.starts[number]
        return PartitionResult(
            found.cluster,
            found.competitor,
            self._as_promised(found.evidence),
            self._as_promised(found.relevance),
            index if self.columns is None else part.index,
            number,
        )

    def checked(self, part: Any) -> Any:
        """The partition, if it has the columns of its meta, and numbers where that has some."""
        if self.columns is None:
            return part
        if not hasattr(part, "iloc"):
            kind = type(part)
            raise InvalidInputError(
                f"{self.request.where}: all partitions of {self.name} must be data frames of pandas; got a "
                f"{kind.__module__.split('.')[0]} {kind.__name__}. Convert it as it is read."
            )
        if list(part.columns) != self.columns:
            wrong = name_differences(list(part.columns), self.columns)
            if wrong:
                raise InvalidInputError(
                    f"{self.request.where}: all partitions of {self.name} must have the {len(self.columns)} "
                    f"columns of its meta; {wrong}. Select or rename them as they are read."
                )
            part = part[self.columns]
        text = [c for c in self.columns if c in self.numbers and not holds_numbers(part.dtypes[c])]
        if text:
            raise InvalidInputError(
                f"{self.request.where}: all partitions of {self.name} must hold numbers in the columns where "
                f"its meta has them; got {text[0]!r} ({part.dtypes[text[0]]}). Convert it as it is read."
            )
        return part

    def _as_promised(self, values: NDArray[Any]) -> NDArray[Any]:
        """Results in the dtype that the collection says it has, but never rounded."""
        if len(values) and not np.can_cast(values.dtype, self.dtype):
            raise InvalidInputError(
                f"{self.request.where}: all partitions of {self.name} must hold {self.dtype}, as its meta "
                f"says; got {values.dtype}. Convert it as it is read."
            )
        return values.astype(self.dtype, copy=False)


def holds_numbers(dtype: Any) -> bool:
    """Whether a column of pandas holds numbers or booleans."""
    import pandas as pd

    return is_numeric(nw.from_native(pd.Series(dtype=dtype), series_only=True).dtype)
