"""The base class of networks of numbers that arrange the user's rows in their own way."""

from __future__ import annotations

from abc import abstractmethod
from typing import TYPE_CHECKING, Any

from whycluster.data.frame_table import ColumnNames
from whycluster.data.table import Table
from whycluster.models.network import Network

if TYPE_CHECKING:
    from typing_extensions import Unpack


class NumericNetwork(Network):
    """A network whose features are all numbers, and which overrides how rows become a table."""

    takes_any_kind = False
    text_columns = frozenset[int]()

    def open(
        self,
        X: Any,
        where: str,
        *,
        name: str = "X",
        whole: bool = True,  # noqa: ARG002  # for categories
        **columns: Unpack[ColumnNames],
    ) -> Table:
        """Return the user's rows as a table with the columns of this network."""
        columns.setdefault("model_names", self.feature_names)
        return self._open(X, where, name, columns)

    @abstractmethod
    def _open(self, X: Any, where: str, name: str, columns: ColumnNames) -> Table: ...
