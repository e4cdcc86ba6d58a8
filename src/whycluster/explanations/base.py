"""What all explanations have in common: for each row its cluster, its competitor and the evidence."""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from whycluster.core import outputs
from whycluster.core.arrays import Codes, Floats
from whycluster.core.attribution import Attribution, CodedQuery
from whycluster.core.energies import Energy
from whycluster.core.errors import InvalidInputError
from whycluster.core.evidence import bar_of
from whycluster.core.rules import CONTRAST
from whycluster.data import display, registry
from whycluster.data.absent_table import AbsentTable
from whycluster.data.frames import build_frame, unique_name
from whycluster.data.labels import NOISE, is_noise
from whycluster.data.table import Table
from whycluster.explanations.fidelity import Fidelity
from whycluster.explanations.formatting import Line
from whycluster.explanations.summary import ClusterSummary, MemberClusters, Summary, group_members, summarize

if TYPE_CHECKING:
    from typing_extensions import Self  # of typing itself only from Python 3.11 on


BORDERLINE = 0.1  # of the median evidence; a row with less could as well be elsewhere
_ROWS_SHOWN = 3  # when an explanation is printed
_ROUNDING = 1e-6  # a residual below this part of the evidence is not worth a line


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class BaseExplanation(ABC):
    """What is claimed of every row: its cluster, against which competitor, by how much evidence.

    What bears a claim, features or words, is up to the kind of explanation.
    """

    noun: ClassVar[str]  # what a row is called
    instead: ClassVar[str] = ""  # what to draw where there are no features that could be

    evidence: NDArray[Any]
    beta: float | None
    rule: str
    labels: NDArray[Any]
    cluster_codes: Codes
    competitor_codes: Codes
    energy: Energy
    table: Table
    is_targeted: bool  # explained for a given cluster, so that it need not be the assigned one
    threshold: float | None = None
    fidelity: Fidelity | None = None
    positions: Codes | None = None  # where each row stood in the data that were explained; None: where it is
    row_names: Any = None  # what the rows of these data are called, by position, where they do not say it
    owns_data: bool = False  # nobody else has the data, so that they need not be looked at again

    @classmethod
    def of(
        cls,
        found: Attribution,
        query: CodedQuery,
        energy: Energy,
        table: Table,
        labels: NDArray[Any],
        fidelity: Fidelity | None,
        **parts: Any,
    ) -> Self:
        """The explanation that answers a question asked of all rows of a table.

        ``parts`` are what this kind of explanation has besides.
        """
        return cls(
            evidence=found.evidence,
            beta=found.beta,
            rule=query.rule,
            labels=labels,
            cluster_codes=found.cluster,
            competitor_codes=found.competitor,
            energy=energy,
            table=table,
            is_targeted=query.cluster is not None,
            threshold=query.threshold,
            fidelity=fidelity,
            **parts,
        )

    @property
    def data(self) -> Any:
        """The rows as they were given, columns in the model's order; sparse matrices as CSR."""
        return self.table.native

    @cached_property
    def cluster(self) -> NDArray[Any]:
        """(n,) the cluster that is explained."""
        return self.labels[self.cluster_codes]

    @cached_property
    def competitor(self) -> NDArray[Any]:
        """(n,) its strongest competitor."""
        return self.labels[self.competitor_codes]

    @property
    @abstractmethod
    def residual(self) -> Floats:
        """(n,) what the relevances leave unexplained of the evidence."""

    @abstractmethod
    def describe(self, row: int = 0) -> str:
        """One row as text."""

    @abstractmethod
    def summary(self) -> ClusterSummary:
        """Return what defines each cluster, averaged over its members."""

    @abstractmethod
    def _take(self, rows: Codes) -> dict[str, Any]:
        """What this kind of explanation has besides, of some rows."""

    @abstractmethod
    def lines(self, n: int) -> list[Line]:
        """What bears the claim of a single row: the ``n`` strongest first, then all that is left."""

    @property
    def plot(self) -> Any:
        """The plots of this explanation, such as ``plot.row(0)``; see `whycluster.plots`."""
        return registry.load("plot")(self)  # not cached: it and the arrays would keep each other in memory

    @cached_property
    def assigned(self) -> NDArray[Any]:
        """(n,) the cluster that the model assigns; differs from `cluster` where a target was given."""
        return self.labels[self.assigned_codes]

    @cached_property
    def assigned_codes(self) -> Codes:
        """(n,) the code of the cluster that the model assigns."""
        if not self.is_targeted:
            return self.cluster_codes
        if isinstance(self.table, AbsentTable):
            return self.table.assigned
        return outputs.assign(self.energy, self.unchanged_table("assigned"))

    @cached_property
    def is_member(self) -> NDArray[np.bool_]:
        """(n,) whether a row is explained for the cluster it is in, against another."""
        return np.asarray(
            (self.assigned_codes == self.cluster_codes) & (self.cluster_codes != self.competitor_codes)
        )

    @cached_property
    def member_clusters(self) -> MemberClusters:
        """The clusters that have members, and how often each other cluster is their strongest competitor."""
        return group_members(self.cluster_codes, self.competitor_codes, self.is_member, len(self.labels))

    @cached_property
    def median_evidence(self) -> float:
        """Of all members; 0 where there are none, or where most fall short of a threshold."""
        evidence = self.evidence[self.is_member].astype(np.float64)
        return max(0.0, float(np.median(evidence))) if evidence.size else 0.0

    @cached_property
    def is_borderline(self) -> NDArray[np.bool_]:
        """(n,) whether a row is so near a boundary that it could as well be on the other side of it.

        That is, whether its evidence is at most a tenth of the median evidence of all members.
        """
        contested = self.cluster_codes != self.competitor_codes  # against itself, there is no boundary
        return np.asarray((np.abs(self.evidence) <= BORDERLINE * self.median_evidence) & contested)

    @cached_property
    def competition(self) -> NDArray[Any]:
        """(n, K) R_k, computed when first asked for: with many clusters it can outweigh all the rest."""
        return outputs.competition(self.energy, self.unchanged_table("competition"), self._question)

    @property
    def _question(self) -> CodedQuery:
        """What was asked of these rows."""
        competitor = self.competitor_codes if self.rule == CONTRAST else None
        return CodedQuery(self.cluster_codes, competitor, self.rule, self.beta, self.threshold)

    def __len__(self) -> int:
        return len(self.evidence)

    def _how(self) -> str:
        """By which rule, and through what."""
        how = self.rule if self.beta is None else f"{self.rule}, beta={self.beta:.4g}"
        if self.fidelity is not None:
            how += f"; a surrogate that foretells {self.fidelity.cross_validated:.1%} of the labels"
        return how

    def __str__(self) -> str:
        """The first rows as signed bars, strongest first."""
        parts = [repr(self), *(self.describe(row) for row in range(min(len(self), _ROWS_SHOWN)))]
        if len(self) > _ROWS_SHOWN:
            parts.append(f"... and {len(self) - _ROWS_SHOWN} more {self.noun.lower()}s")
        return "\n\n".join(parts)

    def row_name(self, row: int = 0) -> Hashable:
        """Return the name of a row: in the data's index, in `row_names`, or else its position."""
        return self.names_of_rows([row])[0]

    def names_of_rows(self, rows: Iterable[int]) -> list[Hashable]:
        """Return the names of some rows; see `row_name`."""
        index, given, positions = self.table.index, self.row_names, self.positions
        names: list[Hashable] = []
        for row in rows:
            name = None if index is None else index[row]
            if name is None:
                position = row if positions is None else int(positions[row])
                name = None if given is None else given[position]
                name = position if name is None else name
            names.append(name)
        return names

    def claim(self) -> str:
        """What is explained of a single row, in a sentence."""
        named = (self.cluster[0], self.competitor[0], self.assigned[0])
        cluster, competitor, assigned = (display.clean(str(label)) for label in named)
        claim = (
            f"{self.noun} {display.clean(str(self.row_name()))} is {_place(self.assigned[0], 'in cluster')}"
        )
        if assigned != cluster:  # a label given to a row need not be the surrogate's
            claim += " to the surrogate" * (self.fidelity is not None)
            claim += f", not {_place(self.cluster[0], 'in')}"
        if self.cluster_codes[0] == self.competitor_codes[0]:
            return f"{claim}: nothing to explain against itself"
        if self.threshold is not None:
            side = "above" if self.evidence[0] >= 0 else "below"
            share = f"the probability of {cluster} is {side} {self.threshold:g}"
            return f"{claim}: {share}, evidence {self.evidence[0]:.3g}, nearest competitor {competitor}"
        if self.rule == CONTRAST or assigned != cluster:
            return f"{claim}: evidence {self.evidence[0]:.3g} for {cluster} against {competitor}"
        return f"{claim}: evidence {self.evidence[0]:.3g}, nearest competitor {competitor}"

    def unattributed(self, largest: float, noun: str) -> list[Line]:
        """What of the evidence of a single row is no feature's or word's, where it is worth a line."""
        lines, residual = [], float(self.residual[0])
        if self.threshold is not None:
            bar = bar_of(self.threshold)
            lines.append(Line(f"the threshold {self.threshold:g}", "", bar, False))
            residual -= bar
        if abs(residual) > _ROUNDING * max(largest, abs(float(self.evidence[0]))):
            lines.append(Line(f"due to no {noun}", "", residual, False))
        return lines

    def _framed(self, names: Sequence[Hashable], relevance: NDArray[Any], backend: str | None) -> Any:
        """A frame of what is claimed, and the relevance, (n, d), of what has these names."""
        columns: dict[Hashable, NDArray[Any]] = {
            unique_name(name, names): getattr(self, name) for name in ("cluster", "competitor", "evidence")
        }
        columns.update({name: relevance[:, i] for i, name in enumerate(names)})
        return build_frame(columns, self.data, backend, "to_frame")

    def _summarized(self, table: Table, relevance: NDArray[Any]) -> Summary:
        """What makes each cluster, by the relevance (n, d) of the columns of a table."""
        explained, note = self.is_member, ""
        if self.fidelity is not None and not explained.all():
            n = int((~explained).sum())
            lost = ", ".join(display.clean(str(label)) for label in self._without(explained))
            note = (
                f"Not counted: {n} row{'s' * (n != 1)} that the surrogate puts elsewhere than the label says"
            )
            note += f"; of {lost}, all." if lost else "."
        return summarize(table, relevance, self.assigned_codes, explained, self.labels, self.data, note)

    def _without(self, explained: NDArray[np.bool_]) -> NDArray[Any]:
        """The clusters that have rows, but none that is explained for where it is."""
        return self.labels[np.setdiff1d(self.cluster_codes, self.cluster_codes[explained])]

    def __iter__(self) -> Iterator[Self]:
        return (self[row] for row in range(len(self)))

    def __getitem__(self, rows: Any) -> Self:
        """The explanations of some rows, by position: an index, a list of them, a slice or a mask."""
        chosen = _positions(rows, len(self))
        return replace(
            self,
            evidence=self.evidence[chosen],
            table=self.table.take(chosen),
            cluster_codes=self.cluster_codes[chosen],
            competitor_codes=self.competitor_codes[chosen],
            positions=chosen if self.positions is None else self.positions[chosen],
            **self._take(chosen),
        )

    def report(
        self,
        path: str | os.PathLike[str],
        *,
        title: str | None = None,
        n_rows: int = 5000,
        ids: Sequence[Any] | None = None,
        left_out: Mapping[Any, str] | None = None,
        random_state: int = 0,
    ) -> None:
        """Write a page that says what was clustered, how well, and why each row is where it is.

        One file of at most a megabyte, which needs no network: each cluster in a sentence with its defining
        features, a map, who competes with whom, and a list of rows to search, each with its explanation and
        why it is in no other cluster. Needs jinja2: ``pip install "whycluster[report]"``.

        Parameters
        ----------
        path : the file; one that is there is replaced, at once or not at all
        title : of the page
        n_rows : how many rows are listed at most; of more, some are drawn, of every cluster. Fewer, where a
            megabyte has no room for so many
        ids : one for each row, by which rows are shown and searched; by default their names in a pandas index
            or their positions
        left_out : columns that were left out before clustering, with the reasons
        random_state : the seed of the draw
        """
        registry.load("report")(self, path, title, n_rows, random_state, ids, left_out)

    def verified(self, where: str) -> Self:
        """Return the explanation after one check that the data are unchanged; it does not check again."""
        self.unchanged_table(where)
        return self if self.owns_data else replace(self, owns_data=True)

    def unchanged_table(self, where: str) -> Table:
        """The data, if they still give the evidence that was explained; it is computed again."""
        if not self.owns_data and not outputs.is_unchanged(
            self.energy, self.table, self._question, self.evidence
        ):
            raise InvalidInputError(
                f"{where}: the data have been changed since they were explained. Explain them again."
            )
        return self.table


def _positions(rows: Any, n_rows: int) -> Codes:
    """The positions that an index, a list of them, a slice or a mask stands for."""
    if isinstance(rows, (int, np.integer)) and not isinstance(rows, bool):
        if not -n_rows <= rows < n_rows:
            raise IndexError(f"explanation[{rows}]: rows are chosen by position, from 0 to {n_rows - 1}.")
        return np.array([range(n_rows)[rows]])
    if isinstance(rows, slice):
        return np.arange(n_rows)[rows]
    chosen = np.asarray(None if isinstance(rows, tuple) else rows)  # a tuple: there is no second axis
    mask = chosen.dtype == bool and chosen.shape == (n_rows,)
    if mask or (chosen.ndim == 1 and chosen.dtype.kind in "iu"):
        return np.asarray(np.arange(n_rows)[chosen])
    if chosen.shape == (0,):
        return chosen.astype(np.intp)
    raise InvalidInputError(
        f"explanation[rows]: rows must be an index, a slice, a list of indices or a mask of length {n_rows}; "
        f"got {chosen.dtype} of shape {chosen.shape}."
    )


def _place(label: Any, where: str) -> str:
    """Where a row is: noise is no place to be in."""
    return NOISE if is_noise(label) else f"{where} {display.clean(str(label))}"
