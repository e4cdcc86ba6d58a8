"""The interface through which the core reads data, block by block; `whycluster.data` implements it."""

from __future__ import annotations

import sys
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from whycluster.core.arrays import Floats


class Rows(ABC):
    """The rows to explain, in the user's own container.

    Attributes
    ----------
    native : the user's container
    n_rows, n_features : the shape of the container
    dtype : the dtype of results, float32 or float64
    by_columns : whether to read rows, and write relevance, column by column
    where, name : the function that was called and its parameter, for messages
    """

    native: Any
    n_rows: int
    n_features: int
    dtype: np.dtype[Any]
    by_columns: bool
    where: str
    name: str

    most_rows: ClassVar[int] = sys.maxsize
    """The largest number of rows in a block."""
    goes_through_steps: ClassVar[bool] = False
    """Whether the rows go through the steps of a pipeline before the network takes them."""
    stand_alone: ClassVar[bool] = False
    """Whether the results of a row must not depend on the other rows, down to the last bit."""
    is_array: ClassVar[bool] = False
    """Whether `native` is a NumPy array that the network takes unchanged."""

    @abstractmethod
    def inputs(self, start: int, stop: int, offset: Floats | None, out: Floats) -> Floats:
        """Return rows start..stop as inputs of the network, minus ``offset``, in float64.

        ``out`` is used only if values must be converted. Otherwise the result may be a view of the user's
        data and must not be modified.
        """

    def memory(self) -> NDArray[Any] | Sequence[NDArray[Any]] | None:
        """Return an array (n, d), or one array (n,) per column, that the network can read directly.

        Return None if the rows have to be converted.
        """
        return None

    @abstractmethod
    def why_out_of_range(self) -> str:
        """Return the error message for rows that lead to NaN, infinity or an underflow."""
