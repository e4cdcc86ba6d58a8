# ruff: noqa: D102  # a protocol: the explanations document these
"""What plots need of explanations, whatever kind these are."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any, ClassVar, NoReturn, Protocol

import numpy as np
from numpy.typing import NDArray

from whycluster.core.arrays import Codes, Floats
from whycluster.core.energies import Energy
from whycluster.core.errors import InvalidInputError
from whycluster.data.labels import Labels, cluster_name
from whycluster.data.table import Table
from whycluster.explanations.formatting import Line
from whycluster.plots.style import cut, cut_all

_BY_FEATURES = "relevance by features"


class Averages(Protocol):
    """A summary: of rows, or of documents."""

    noun: ClassVar[str]

    @property
    def clusters(self) -> NDArray[Any]: ...  # (G,) labels
    @property
    def size(self) -> NDArray[np.intp]: ...  # (G,) how many members
    def bars_of(self, group: int, n: int) -> list[Line]: ...
    def grid(self, n: int) -> tuple[list[str], Floats, int]: ...


class Explained(Protocol):
    """An explanation; `whycluster.explanations.explanation.BaseExplanation` and all that are made of it."""

    noun: ClassVar[str]
    instead: ClassVar[str]

    @property
    def evidence(self) -> NDArray[Any]: ...
    @property
    def labels(self) -> NDArray[Any]: ...
    @property
    def cluster_codes(self) -> Codes: ...
    @property
    def competitor_codes(self) -> Codes: ...
    @property
    def is_member(self) -> NDArray[np.bool_]: ...
    @property
    def is_borderline(self) -> NDArray[np.bool_]: ...
    @property
    def energy(self) -> Energy: ...
    @property
    def table(self) -> Table: ...
    def claim(self) -> str: ...
    def lines(self, n: int) -> list[Line]: ...
    def unchanged_table(self, where: str) -> Table: ...
    def __len__(self) -> int: ...
    def __getitem__(self, rows: Any) -> Any: ...


class Tabular(Explained, Protocol):
    """An explanation with relevance by the columns of a table."""

    @property
    def relevance(self) -> NDArray[Any]: ...
    @property
    def feature_names(self) -> list[Hashable]: ...


def check(exp: Any, where: str, needs: str = "lines", what: str = _BY_FEATURES) -> None:
    """Raise unless it is an explanation, and one that has what is drawn."""
    if not hasattr(exp, "claim"):
        raise InvalidInputError(
            f"{where}: exp must be an explanation, as explain(model, X) gives it; got {type(exp).__name__}."
        )
    if not hasattr(exp, needs):
        refuse(exp, where, what)


def refuse(exp: Explained, where: str, what: str = _BY_FEATURES) -> NoReturn:
    """Say that this kind of explanation cannot be drawn like that, and what can."""
    raise InvalidInputError(f"{where}: exp must have {what}; {exp!r} has none. {exp.instead}".rstrip())


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
