"""The result: why each row is in its cluster, feature by feature."""

from __future__ import annotations

import datetime as dt
import os
from abc import ABC, abstractmethod
from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from importlib import import_module
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray

from whycluster import console, passes
from whycluster.arrays import Codes, Floats
from whycluster.energies import Energy
from whycluster.errors import InvalidInputError, MissingDependencyError
from whycluster.fidelity import Fidelity
from whycluster.frames import as_column, build_frame, unique_name
from whycluster.labels import NOISE
from whycluster.passes import Attribution, Question
from whycluster.propagate import CONTRAST
from whycluster.summary import Summary, summarize
from whycluster.table import Table, is_missing

if TYPE_CHECKING:
    from typing_extensions import Self  # of typing itself only from Python 3.11 on

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
class Claims(ABC):
    """What is claimed of every row: its cluster, against which competitor, by how much evidence.

    What bears a claim, features or words, is up to the kind of explanation.
    """

    _noun: ClassVar[str]  # what a row is called

    evidence: NDArray[Any]
    beta: float | None
    rule: str
    labels: NDArray[Any]
    _cluster: Codes
    _competitor: Codes
    _energy: Energy
    _table: Table
    _targeted: bool  # explained for a given cluster, so that it need not be the assigned one
    threshold: float | None = None
    fidelity: Fidelity | None = None
    _rows: NDArray[Any] | None = None  # what each row is called: mostly, where it stood in what was explained
    _ours: bool = False  # nobody else has the data, so that they need not be looked at again

    @classmethod
    def of(
        cls,
        found: Attribution,
        question: Question,
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
            rule=question.rule,
            labels=labels,
            _cluster=found.cluster,
            _competitor=found.competitor,
            _energy=energy,
            _table=table,
            _targeted=question.cluster is not None,
            threshold=question.threshold,
            fidelity=fidelity,
            **parts,
        )

    @property
    def data(self) -> Any:
        """The rows as they were given, columns in the model's order; sparse matrices as CSR."""
        return self._table.native

    @cached_property
    def cluster(self) -> NDArray[Any]:
        """(n,) the cluster that is explained."""
        return self.labels[self._cluster]

    @cached_property
    def competitor(self) -> NDArray[Any]:
        """(n,) its strongest competitor."""
        return self.labels[self._competitor]

    @property
    @abstractmethod
    def residual(self) -> Floats:
        """(n,) what the relevances leave unexplained of the evidence."""

    @abstractmethod
    def tell(self, row: int = 0) -> str:
        """One row as text."""

    @abstractmethod
    def _take(self, rows: Codes) -> dict[str, Any]:
        """What this kind of explanation has besides, of some rows."""

    @cached_property
    def assigned(self) -> NDArray[Any]:
        """(n,) the cluster that the model assigns; differs from `cluster` where a target was given."""
        return self.labels[self._assigned]

    @cached_property
    def _assigned(self) -> Codes:
        return passes.assign(self._energy, self._unchanged("assigned")) if self._targeted else self._cluster

    @cached_property
    def _explained(self) -> NDArray[np.bool_]:
        """(n,) the members: whether the row is explained for the cluster that it is in."""
        return np.asarray((self._assigned == self._cluster) & (self._cluster != self._competitor))

    @cached_property
    def competition(self) -> NDArray[Any]:
        """(n, K) R_k, computed when first asked for: with many clusters it can outweigh all the rest."""
        return passes.competition(self._energy, self._unchanged("competition"), self._question)

    @property
    def _question(self) -> Question:
        """What was asked of these rows."""
        competitor = self._competitor if self.rule == CONTRAST else None
        return Question(self._cluster, competitor, self.rule, self.beta, self.threshold)

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
        parts = [repr(self), *(self.tell(row) for row in range(min(len(self), _ROWS_SHOWN)))]
        if len(self) > _ROWS_SHOWN:
            parts.append(f"... and {len(self) - _ROWS_SHOWN} more {self._noun.lower()}s")
        return "\n\n".join(parts)

    def _claim(self) -> str:
        """What is explained of a single row, in a sentence."""
        named = (self.cluster[0], self.competitor[0], self.assigned[0])
        cluster, competitor, assigned = (console.clean(str(label)) for label in named)
        name = self._table.row_name(0)
        if name is None:
            name = 0 if self._rows is None else self._rows[0]
        claim = f"{self._noun} {console.clean(str(name))} is {_place(self.assigned[0], 'in cluster')}"
        if assigned != cluster:  # a label given to a row need not be the surrogate's
            claim += " to the surrogate" * (self.fidelity is not None)
            claim += f", not {_place(self.cluster[0], 'in')}"
        if self._cluster[0] == self._competitor[0]:
            return f"{claim}: nothing to explain against itself"
        if self.threshold is not None:
            side = "above" if self.evidence[0] >= 0 else "below"
            share = f"the probability of {cluster} is {side} {self.threshold:g}"
            return f"{claim}: {share}, evidence {self.evidence[0]:.3g}, nearest competitor {competitor}"
        if self.rule == CONTRAST or assigned != cluster:
            return f"{claim}: evidence {self.evidence[0]:.3g} for {cluster} against {competitor}"
        return f"{claim}: evidence {self.evidence[0]:.3g}, nearest competitor {competitor}"

    def _unborne(self, largest: float, noun: str) -> list[tuple[str, float]]:
        """What of the evidence of a single row is no feature's or word's, where it is worth a line."""
        lines, residual = [], float(self.residual[0])
        if self.threshold is not None:
            bar = float(np.log1p(-self.threshold) - np.log(self.threshold))
            lines.append((f"the threshold {self.threshold:g}", bar))
            residual -= bar
        if abs(residual) > _ROUNDING * max(largest, abs(float(self.evidence[0]))):
            lines.append((f"due to no {noun}", residual))
        return lines

    def _framed(self, names: Sequence[Hashable], relevance: NDArray[Any], backend: str | None) -> Any:
        """A frame of what is claimed, and the relevance, (n, d), of what has these names."""
        columns: dict[Hashable, NDArray[Any]] = {
            unique_name(name, names): getattr(self, name) for name in ("cluster", "competitor", "evidence")
        }
        columns.update({name: relevance[:, i] for i, name in enumerate(names)})
        return build_frame(columns, self.data, backend, "to_frame")

    def __iter__(self) -> Iterator[Self]:
        return (self[row] for row in range(len(self)))

    def __getitem__(self, rows: Any) -> Self:
        """The explanations of some rows, by position: an index, a list of them, a slice or a mask."""
        chosen = _positions(rows, len(self))
        return replace(
            self,
            evidence=self.evidence[chosen],
            _table=self._table.take(chosen),
            _cluster=self._cluster[chosen],
            _competitor=self._competitor[chosen],
            _rows=chosen if self._rows is None else self._rows[chosen],
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

    def _unchanged(self, where: str) -> Table:
        """The data, if they still give the evidence that was explained; it is computed again."""
        if not self._ours and not passes.is_still(self._energy, self._table, self._question, self.evidence):
            raise InvalidInputError(
                f"{where}: the data have been changed since they were explained. Explain them again."
            )
        return self._table


@dataclass(frozen=True, eq=False, repr=False)
class Explanation(Claims):
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

    _noun: ClassVar[str] = "Row"
    relevance: NDArray[Any]

    @property
    def feature_names(self) -> list[Hashable]:
        """The d names."""
        return self._table.feature_names

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

    def tell(self, row: int = 0, n_features: int = 6) -> str:
        """One row as text: what is claimed, and the features that bear it."""
        if not isinstance(row, (int, np.integer)):
            raise InvalidInputError(f"tell: row must be one index; got {row!r}.")
        one = self[row]
        borne, rest = one._borne(n_features)
        largest = max(abs(r) for _, _, r in borne)
        lines = [[name, value, f"{r:.3g}", console.bar(r, largest)] for name, value, r in borne]
        lines += [[name, "", f"{r:.3g}", ""] for name, r in rest]
        return one._claim() + "\n" + console.table(["feature", "value", "relevance", ""], lines, align="<>><")

    def _borne(self, n_features: int) -> tuple[list[tuple[str, str, float]], list[tuple[str, float]]]:
        """What bears the evidence of a single row: the strongest features and their values; the rest."""
        top = self.top(n_features)
        cells = zip(top.feature[0], top.value[0], top.relevance[0], strict=True)
        largest = np.abs(top.relevance).max()
        # A column that was dropped has no part in it.
        borne = [(str(f), _shown(v), r) for f, v, r in cells if r or not largest]
        rest, n_left = [], len(self.feature_names) - len(borne)
        if n_left:
            left = np.delete(self.relevance[0], _largest(np.abs(self.relevance), len(borne))[0]).sum()
            rest.append((f"{n_left} more feature{'s' * (n_left != 1)}", left))
        return borne, rest + self._unborne(largest, "feature")

    def _repr_html_(self) -> str:
        """The clusters and the first rows, for a notebook."""
        page: str = import_module("whycluster.report.notebook").fragment(self)
        return page

    def top(self, n: int = 3) -> TopFeatures:
        """The ``n`` strongest features of each row, by absolute relevance."""
        d = self.relevance.shape[1]
        if not isinstance(n, (int, np.integer)) or isinstance(n, bool) or n < 1:
            raise InvalidInputError(f"top: n must be a whole number from 1 to {d}; got {n!r}.")
        table = self._unchanged("top")
        columns = self._strongest(int(n))
        return TopFeatures(
            feature=as_column(self.feature_names)[columns],
            relevance=np.take_along_axis(self.relevance, columns, axis=1),
            value=table.pick(columns),
            _like=self.data,
        )

    def _strongest(self, n: int) -> Codes:
        """Which features are the strongest of each row, (n, k)."""
        columns = np.empty((len(self), min(n, self.relevance.shape[1])), dtype=np.intp)
        for rows in self._table.slices():
            columns[rows] = _largest(np.abs(self.relevance[rows]), columns.shape[1])
        return columns

    def summary(self) -> Summary:
        """What makes each cluster: mean relevance, share, direction and size, over its members.

        A row explained for a cluster it is not in ("why not?"), or against its own, is no member; nor is, of
        labels, one that the surrogate would put elsewhere.
        """
        explained, note = self._explained, ""
        table = self._unchanged("summary")
        if self.fidelity is not None and not explained.all():
            n = int((~explained).sum())
            lost = ", ".join(console.clean(str(label)) for label in self._without(explained))
            note = (
                f"Not counted: {n} row{'s' * (n != 1)} that the surrogate puts elsewhere than the label says"
            )
            note += f"; of {lost}, all." if lost else "."
        return summarize(table, self.relevance, self._assigned, explained, self.labels, self.data, note)

    def _without(self, explained: NDArray[np.bool_]) -> NDArray[Any]:
        """The clusters that have rows, but none that is explained for where it is."""
        return self.labels[np.setdiff1d(self._cluster, self._cluster[explained])]

    def to_frame(self, backend: str | None = None) -> Any:
        """One row per row: cluster, competitor, evidence, then the relevance of every feature.

        Pandas in, pandas out, with the same index; polars and pyarrow likewise. For arrays, pandas if it
        is installed, else polars, else pyarrow; ``backend`` chooses. Where a feature is itself called
        "cluster", "competitor" or "evidence", our column gets an underscore behind its name.
        """
        self._unchanged("to_frame")  # are these still the rows that were explained?
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
        table = self._unchanged("to_shap")
        return shap.Explanation(
            values=self.relevance,
            base_values=self.residual,
            data=table.to_array(),
            display_data=table.to_objects() if table.categories else None,
            feature_names=[str(name) for name in self.feature_names],
            output_names=None,
        )


class Answer(NamedTuple):
    """What an explanation is made of, and of which kind it is."""

    kind: type[Claims]
    found: Attribution
    parts: dict[str, Any]  # what this kind has besides


def answer(energy: Energy, table: Table, question: Question, background: Table | None) -> Answer:
    """The relevance of the features of every row; what has to be measured, on the background."""
    found = passes.attribute(energy, table, question, background)
    return Answer(Explanation, found, {"relevance": found.relevance})


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
    return NOISE if isinstance(label, str) and label == NOISE else f"{where} {console.clean(str(label))}"


def _shown(value: Any) -> str:
    """A number in three digits, a category as it is, a day without its midnight."""
    if is_missing(value):
        return "missing"
    if isinstance(value, dt.datetime) and value.time() == dt.time():
        value = value.date()
    number = isinstance(value, (int, float, np.number)) and not isinstance(value, bool)
    return console.number(value) if number else str(value)


def _largest(values: NDArray[Any], n: int) -> NDArray[np.intp]:
    """Columns of the n largest values of each row, in descending order, the first column on a tie."""
    return np.argsort(-values, axis=1, kind="stable")[:, :n]
