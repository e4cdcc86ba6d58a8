"""The result: why each row is in its cluster, feature by feature."""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from html import escape
from importlib import import_module
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from whycluster.core import blocks, outputs
from whycluster.core.arrays import Codes, Floats, strongest
from whycluster.core.attribution import Attribution, CodedQuery
from whycluster.core.energies import Energy
from whycluster.core.errors import InvalidInputError, MissingDependencyError
from whycluster.core.evidence import bar_of
from whycluster.core.rules import CONTRAST
from whycluster.data import display
from whycluster.data.absent_table import AbsentTable
from whycluster.data.arrays import is_real
from whycluster.data.frames import as_column, build_frame, unique_name
from whycluster.data.labels import NOISE, Labels, is_noise
from whycluster.data.table import Table
from whycluster.explanations.counterfactual import Counterfactual, find
from whycluster.explanations.fidelity import Fidelity
from whycluster.explanations.formatting import Line, bars, rest
from whycluster.explanations.summary import ClusterSummary, MemberClusters, Summary, group_members, summarize

if TYPE_CHECKING:
    from typing_extensions import Self  # of typing itself only from Python 3.11 on

    from whycluster.plots.accessor import Plots

BORDERLINE = 0.1  # of the median evidence; a row with less could as well be elsewhere
_ROWS_SHOWN = 3  # when an explanation is printed
_ROUNDING = 1e-6  # a residual below this part of the evidence is not worth a line


@dataclass(frozen=True, repr=False, eq=False)
class TopFeatures:
    """The strongest features of each row, by absolute relevance, strongest first; all (n, k).

    Attributes
    ----------
    feature : names
    relevance : signed relevance
    value : the row's value of that feature; objects where the data have categories
    """

    feature: NDArray[Any]
    relevance: NDArray[Any]
    value: NDArray[Any]
    _like: Any = field(default=None, repr=False)

    def __len__(self) -> int:
        return len(self.feature)

    def to_frame(self, backend: str | None = None) -> Any:
        """One row per row: feature_1, relevance_1, value_1, feature_2, ..."""
        columns: dict[Hashable, NDArray[Any]] = {
            f"{what}_{rank + 1}": values[:, rank]
            for rank in range(self.feature.shape[1])
            for what, values in self._parts()
        }
        return build_frame(columns, self._like, backend, "top.to_frame")

    def __repr__(self) -> str:
        n, k = self.feature.shape
        return f"<TopFeatures: the {k} strongest of {n} rows; see feature, relevance, value, to_frame()>"

    def _parts(self) -> list[tuple[str, NDArray[Any]]]:
        return [("feature", self.feature), ("relevance", self.relevance), ("value", self.value)]


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
    def plot(self) -> Plots:
        """Pictures of it: ``plot.row(0)``, ``plot.clusters()``, ...; see `whycluster.plots`."""
        from whycluster.plots.accessor import Plots

        return Plots(self)  # not kept: it and the arrays would then hold each other in memory

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
        # It stands above all kinds of explanations, so it is loaded when it is asked for.
        report = import_module("whycluster.report")
        report.write_report(self, path, report.Options(title, n_rows, random_state, ids, left_out))

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


@dataclass(frozen=True, eq=False, repr=False)
class Explanation(BaseExplanation):
    """How much every feature of every row spoke for the row's cluster.

    Made by `whycluster.explain`. Relevance is in the units of evidence: over the features it adds up to the
    evidence, but for the `residual`; positive for what speaks for the cluster, negative for what speaks
    against it.

    Attributes
    ----------
    relevance : (n, d)
    evidence : (n,) f_c, how much better the cluster fits than its strongest competitor, in the units of the
        model's energy; 0 on the boundary, negative outside the cluster
    cluster : (n,) the label of the cluster that is explained: the row's own, or the target
    competitor : (n,) the label of its strongest competitor, or of the one it is explained against
    assigned : (n,) the label of the cluster the row is in, whatever the target; of labels, what the
        surrogate says
    competition : (n, K) how the evidence was shared among the competitors, R_k; 0 at the own cluster
    residual : (n,) evidence minus the sum of relevance: what is due to no feature. For energies that add over
        the features, such as k-means, rounding only
    beta : the stiffness that was used; None for contrasts, which need none
    rule : "min-take-most", "joint", "sequential" or "contrast"; "soft" where a threshold was given
    threshold : the probability that the cluster's was explained to exceed; None where it need only be the
        largest
    fidelity : how well the surrogate that is explained matches the clustering; None for exact networks
    labels : (K,) the labels of all clusters, in the order of the columns of `competition`
    data : the rows as they were given; not copied, so leave their values as they are
    feature_names : the d names
    """

    noun: ClassVar[str] = "Row"
    relevance: NDArray[Any]

    @property
    def feature_names(self) -> list[Hashable]:
        """The d names."""
        return self.table.feature_names

    @property
    def residual(self) -> Floats:
        """(n,) what the relevances leave unexplained of the evidence."""
        explained: Floats = self.relevance.sum(axis=1, dtype=np.float64)
        return self.evidence.astype(np.float64) - explained

    def _take(self, rows: Codes) -> dict[str, Any]:
        return {"relevance": self.relevance[rows]}

    def __repr__(self) -> str:
        n, d = self.relevance.shape
        counts = f"{n} row{'s' * (n != 1)}, {d} feature{'s' * (d != 1)}, {len(self.labels)} clusters"
        return f"<Explanation of {counts} ({self._how()})>"

    def describe(self, row: int = 0, n_features: int = 6) -> str:
        """One row as text: what is claimed, and the features that bear it."""
        if not isinstance(row, (int, np.integer)):
            raise InvalidInputError(f"describe: row must be one position, a whole number; got {row!r}.")
        one = self[row]
        lines = one.lines(n_features)
        cells = [
            [line.name, line.value, f"{line.relevance:.3g}", bar]
            for line, bar in zip(lines, bars(lines), strict=True)
        ]
        return one.claim() + "\n" + display.table(["feature", "value", "relevance", ""], cells, align="<>><")

    def lines(self, n: int) -> list[Line]:
        """What the evidence of a single row consists of: the ``n`` strongest features, then the rest."""
        top = self.top(n)
        cells = zip(top.feature[0], top.value[0], top.relevance[0], strict=True)
        largest = float(np.abs(top.relevance).max())
        # A column that was dropped has no part in it.
        lines = [Line(str(f), display.format_value(v), float(r)) for f, v, r in cells if r or not largest]
        left = np.delete(self.relevance[0], strongest(self.relevance, len(lines))[0])
        lines += rest(left.size, "feature", "", float(left.sum()))
        return lines + self.unattributed(largest, "feature")

    def _repr_html_(self) -> str:
        """The clusters and the first rows, for a notebook; without data, the text."""
        if isinstance(self.table, AbsentTable):
            return f"<pre>{escape(str(self))}</pre>"
        page: str = import_module("whycluster.report.notebook").fragment(self)
        return page

    def top(self, n: int = 3) -> TopFeatures:
        """The ``n`` strongest features of each row, by absolute relevance."""
        d = self.relevance.shape[1]
        if not isinstance(n, (int, np.integer)) or isinstance(n, bool) or n < 1:
            raise InvalidInputError(f"top: n must be a whole number from 1 to {d}; got {n!r}.")
        table = self.unchanged_table("top")
        columns = self.strongest_features(int(n))
        return TopFeatures(
            feature=as_column(self.feature_names)[columns],
            relevance=np.take_along_axis(self.relevance, columns, axis=1),
            value=table.pick(columns),
            _like=self.data,
        )

    def strongest_features(self, n: int) -> Codes:
        """Which features are the strongest of each row, (n, k)."""
        columns = np.empty((len(self), min(n, self.relevance.shape[1])), dtype=np.intp)
        parts = list(self.table.slices())

        def work(part: int) -> None:
            rows = parts[part]
            columns[rows] = strongest(self.relevance[rows], columns.shape[1])

        blocks.each(work, len(parts))
        return columns

    def summary(self) -> Summary:
        """What makes each cluster: mean relevance, share, direction and size, over its members.

        A row explained for a cluster it is not in ("why not?"), or against its own, is no member; nor is, of
        labels, one that the surrogate would put elsewhere.
        """
        return self._summarized(self.unchanged_table("summary"), self.relevance)

    def counterfactual(
        self, row: int, to: Any = None, *, within: Iterable[Hashable] | None = None
    ) -> Counterfactual:
        """The smallest change that moves a row to another cluster, and the smallest in each single feature.

        For models that part their clusters by planes: k-means and all others of nearest centroids, bisecting
        k-means, cosines and soft heads, also behind the steps of a pipeline. Features that cannot change
        freely (categories, missing values, columns that steps bend) are left as they are where several
        change, and are tried on their own. The result goes beyond the boundary by a millionth of the change,
        and is checked with the network.

        Parameters
        ----------
        row : its position
        to : the cluster to move it to; by default the one that the smallest change leads to
        within : names of the features that may change; by default all
        """
        if not is_real(row) or not isinstance(row, (int, np.integer)):
            raise InvalidInputError(f"counterfactual: row must be one position, a whole number; got {row!r}.")
        one = self[row]
        one.unchanged_table("counterfactual")
        cluster = int(one.assigned_codes[0])
        code = None if to is None else self._another(to, cluster)
        return find(
            self.energy,
            self.table,
            self.labels,
            row=range(len(self))[row],
            cluster=cluster,
            to=code,
            within=within,
            ranges=self.ranges,
            name=one.row_name(),
        )

    @cached_property
    def ranges(self) -> Floats:
        """(2, d) the least and the greatest value of each feature; NaN where there is one row only."""
        ranges = np.full((2, len(self.feature_names)), np.nan)
        if len(self) > 1:
            for _, block in self.table.blocks():
                np.fmin(ranges[0], np.fmin.reduce(block, axis=0), out=ranges[0])
                np.fmax(ranges[1], np.fmax.reduce(block, axis=0), out=ranges[1])
        return ranges

    def _another(self, to: Any, cluster: int) -> int:
        """The code of a cluster to move to."""
        code = Labels(self.labels).encode(to, "counterfactual", "to")
        if code.shape != ():
            raise InvalidInputError(f"counterfactual: to must be one cluster; got {to!r}.")
        if code == cluster:
            raise InvalidInputError(
                f"counterfactual: to must be another cluster than the one the row is in, {to!r}."
            )
        return int(code)

    def to_frame(self, backend: str | None = None) -> Any:
        """One row per row: cluster, competitor, evidence, then the relevance of every feature.

        Pandas in, pandas out, with the same index; polars and pyarrow likewise. For arrays, pandas if it
        is installed, else polars, else pyarrow; ``backend`` chooses. Where a feature is itself called
        "cluster", "competitor" or "evidence", our column gets an underscore behind its name.
        """
        self.unchanged_table("to_frame")  # are these still the rows that were explained?
        return self._framed(self.feature_names, self.relevance, backend)

    def to_shap(self) -> Any:
        """A `shap.Explanation`, so that ``shap.plots`` work.

        Its base value is the residual, for k-means 0: values and base add up to the evidence, 0 at the
        boundary.
        """
        try:
            import shap
        except ImportError as error:
            raise MissingDependencyError('to_shap needs shap: pip install "whycluster[shap]"') from error
        table = self.unchanged_table("to_shap")
        return shap.Explanation(
            values=self.relevance,
            base_values=self.residual,
            data=table.to_array(),
            display_data=table.to_objects() if table.categories else None,
            feature_names=[str(name) for name in self.feature_names],
            output_names=None,
        )


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
