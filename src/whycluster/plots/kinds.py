"""What plots need of explanations, whatever kind these are."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any, ClassVar, NoReturn, Protocol

import numpy as np
from numpy.typing import NDArray

from whycluster.arrays import Codes, Floats
from whycluster.energies import Energy
from whycluster.errors import InvalidInputError
from whycluster.labels import Labels, cluster_name
from whycluster.lines import Line
from whycluster.plots.style import cut, cut_all
from whycluster.table import Table

_BY_FEATURES = "relevance by features"


class Averages(Protocol):
    """A summary: of rows, or of documents."""

    _noun: ClassVar[str]

    @property
    def clusters(self) -> NDArray[Any]: ...  # noqa: D102  # (G,) labels
    @property
    def size(self) -> NDArray[np.intp]: ...  # noqa: D102  # (G,) how many members
    def _bars(self, group: int, n: int) -> list[Line]: ...
    def _grid(self, n: int) -> tuple[list[str], Floats, int]: ...


class Explained(Protocol):
    """An explanation; `whycluster.explanation.Claims` and all that are made of it."""

    _noun: ClassVar[str]
    _instead: ClassVar[str]

    @property
    def evidence(self) -> NDArray[Any]: ...  # noqa: D102
    @property
    def labels(self) -> NDArray[Any]: ...  # noqa: D102
    @property
    def _cluster(self) -> Codes: ...
    @property
    def _competitor(self) -> Codes: ...
    @property
    def _members(self) -> NDArray[np.bool_]: ...
    @property
    def _borderline(self) -> NDArray[np.bool_]: ...
    @property
    def _energy(self) -> Energy: ...
    @property
    def _table(self) -> Table: ...
    def _claim(self) -> str: ...
    def _lines(self, n: int) -> list[Line]: ...
    def _unchanged(self, where: str) -> Table: ...
    def __len__(self) -> int: ...
    def __getitem__(self, rows: Any) -> Any: ...


class Tabular(Explained, Protocol):
    """An explanation with relevance by the columns of a table."""

    @property
    def relevance(self) -> NDArray[Any]: ...  # noqa: D102
    @property
    def feature_names(self) -> list[Hashable]: ...  # noqa: D102


def check(exp: Any, where: str, needs: str = "_lines", what: str = _BY_FEATURES) -> None:
    """Raise unless it is an explanation, and one that has what is drawn."""
    if not hasattr(exp, "_claim"):
        raise InvalidInputError(
            f"{where}: exp must be an explanation, as explain(model, X) gives it; got {type(exp).__name__}."
        )
    if not hasattr(exp, needs):
        refuse(exp, where, what)


def refuse(exp: Explained, where: str, what: str = _BY_FEATURES) -> NoReturn:
    """Say that this kind of explanation cannot be drawn like that, and what can."""
    raise InvalidInputError(f"{where}: exp must have {what}; {exp!r} has none. {exp._instead}".rstrip())


def code_of(exp: Explained, cluster: Any, where: str) -> int:
    """The code of a label."""
    code = Labels(exp.labels).encode(cluster, where, "cluster")
    if code.ndim:
        raise InvalidInputError(f"{where}: cluster must be one label; got {cluster!r}.")
    return int(code)


def label_names(labels: NDArray[Any]) -> list[str]:
    """Labels as names along an axis."""
    return cut_all(labels.tolist())


def short_name(label: Any) -> str:
    """A cluster in a title."""
    return cluster_name(label, cut(str(label)))
