"""The base of all explanations: the cluster, the competitor and the evidence of each row."""

from __future__ import annotations

import os
from abc import abstractmethod
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from textwrap import fill
from typing import TYPE_CHECKING, Any, ClassVar, NoReturn

import numpy as np
from numpy.typing import NDArray

from whycluster.core import outputs
from whycluster.core.arrays import Codes, Floats
from whycluster.core.attribution import CodedQuery
from whycluster.core.energies import Energy
from whycluster.core.errors import InvalidInputError
from whycluster.core.rules import CONTRAST, Prior
from whycluster.data import display, registry
from whycluster.data.absent_table import AbsentTable
from whycluster.data.arrays import row_positions
from whycluster.data.frames import build_frame, unique_name
from whycluster.data.labels import Labels, Renamable, cluster_name
from whycluster.data.table import Table
from whycluster.explanations.agreement import Agreement
from whycluster.explanations.exchange.arrow import ArrowTable
from whycluster.explanations.exchange.json_values import to_text
from whycluster.explanations.exchange.plain import claims_of, describe_rows
from whycluster.explanations.fidelity import Fidelity
from whycluster.explanations.row_access import RowAccess
from whycluster.explanations.summaries.members import MemberClusters
from whycluster.explanations.summaries.summary import ClusterSummary
from whycluster.explanations.unchanged import is_unchanged
from whycluster.explanations.wording.claims import Claim, unattributed_lines
from whycluster.explanations.wording.formatting import WIDTH, Line

if TYPE_CHECKING:
    from typing_extensions import Self  # in typing only from Python 3.11 on


BORDERLINE = 0.1  # rows with at most this fraction of the median evidence are borderline
_LEAST_RESIDUAL = 0.005  # a smaller residual would be printed as 0%
_NOTED_RESIDUAL = 0.03  # fraction of a cluster's evidence from which a summary mentions the residual
_ROWS_SHOWN = 3  # number of rows shown when an explanation is printed


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class BaseExplanation(RowAccess, ArrowTable, Renamable):
    """The claim about every row: its cluster, the strongest competitor, and the evidence for the cluster.

    Subclasses add the relevance that supports the claim, for features or words.
    """

    noun: ClassVar[str]  # the word for a row
    unit: ClassVar[str] = "feature"  # the word for what relevance belongs to
    instead: ClassVar[str] = ""  # advice in the errors of plots that need features
    not_columns: ClassVar[str] = ""  # what relevance belongs to, if not to columns, and what to do instead

    evidence: NDArray[Any]
    beta: float | None
    rule: str
    labels: NDArray[Any]
    cluster_codes: Codes
    competitor_codes: Codes
    energy: Energy
    table: Table
    is_targeted: bool  # whether a target was given, so that `cluster` may differ from `assigned`
    threshold: float | None = None
    prior: Prior | None = None  # the weights of the clusters, for rules that use them
    fidelity: Fidelity | None = None
    agreement: Agreement | None = None  # for models that give only labels, with those labels
    positions: Codes | None = None  # positions in the explained data; None if all rows are included, in order
    row_names: Any = None  # names for the rows of the explained data, if the data contain none
    model: Any = None  # the explained model, if known
    owns_data: bool = False  # whether nothing else can change the data, so that no check is needed
    reference: str | None = None  # "zero" or "midpoint", for features of a deep clustering; else None
    reference_reason: str | None = None  # the reason for the reference, as a clause

    @property
    def data(self) -> Any:
        """The rows as given, with columns in the model's order; sparse matrices are in CSR format."""
        return self.table.native

    @cached_property
    def cluster(self) -> NDArray[Any]:
        """(n,) the label of the explained cluster."""
        return self.labels[self.cluster_codes]

    @cached_property
    def competitor(self) -> NDArray[Any]:
        """(n,) the label of the explained cluster's strongest competitor."""
        return self.labels[self.competitor_codes]

    @property
    @abstractmethod
    def residual(self) -> Floats:
        """(n,) the evidence minus the sum of the relevance scores."""

    @abstractmethod
    def describe(self, row: int = 0) -> str:
        """Return the explanation of one row as text."""

    @abstractmethod
    def summary(self) -> ClusterSummary:
        """Return the features or words that define each cluster, averaged over its members."""

    @abstractmethod
    def _take(self, rows: Codes) -> dict[str, Any]:
        """Return the fields of the subclass for some rows."""

    @abstractmethod
    def lines(self, n: int) -> list[Line]:
        """Return lines for the ``n`` strongest features or words of one row, and one line for all others."""

    @property
    def plot(self) -> Any:
        """The plots of this explanation, such as ``plot.row(0)``; see `whycluster.plots`."""
        return registry.load("plot")(self)  # not cached: a reference cycle would keep the arrays in memory

    @cached_property
    def assigned(self) -> NDArray[Any]:
        """(n,) the label of the assigned cluster; with a target, it may differ from `cluster`."""
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
        """(n,) whether a row is explained for its assigned cluster, against a different cluster."""
        return np.asarray(
            (self.assigned_codes == self.cluster_codes) & (self.cluster_codes != self.competitor_codes)
        )

    @cached_property
    def member_clusters(self) -> MemberClusters:
        """The clusters that have members, and how often each cluster is their strongest competitor."""
        found = MemberClusters.of(self.cluster_codes, self.competitor_codes, self.is_member, len(self.labels))
        if not self.is_labeled:
            return found
        size = np.bincount(self.cluster_codes, minlength=len(self.labels))[found.codes]
        return replace(found, size=size)

    @property
    def is_labeled(self) -> bool:
        """Whether rows have labels of a clustering that gives only labels; the network may assign others."""
        return (self.fidelity is not None or self.agreement is not None) and not self._has_one_target

    @property
    def _has_one_target(self) -> bool:
        """Whether all rows were explained for one cluster, so that their own labels are not known."""
        codes = self.cluster_codes  # labels are at least two
        return self.is_targeted and self.positions is None and bool((codes == codes[0]).all())

    def surrogate_sentences(self) -> list[str]:
        """Return the caveats about the surrogate that apply to all shares, or [] if there is no surrogate."""
        if self.fidelity is None:
            return []
        noun = self.noun.lower()
        lines = self.fidelity.sentences(noun, self.unit)
        evidence = float(np.abs(self.evidence.astype(np.float64)).sum())
        left = float(np.abs(self.residual).sum()) / evidence if evidence else 0.0
        if left >= _LEAST_RESIDUAL and self.threshold is None:
            lines.append(f"Relative to its evidence, {left:.0%} belongs to no {self.unit}.")
        n = int((~self.is_member).sum())
        if n and self.is_labeled:
            labels = self.labels[np.setdiff1d(self.cluster_codes, self.cluster_codes[self.is_member])]
            lost = ", ".join(display.clean(str(label)) for label in labels)
            have = "has" if n == 1 else "have"
            lines.append(
                f"{display.count(n, noun)} whose label it does not predict {have} no part in the evidence "
                f"and the shares below{f', including all {noun}s of {lost}' * bool(lost)}."
            )
        return lines

    def residual_sentences(self) -> list[str]:
        """Return how much of the members' evidence belongs to no feature, or [] if that is little everywhere.

        For a surrogate, `surrogate_sentences` gives it for all rows.
        """
        if self.fidelity is not None or self.threshold is not None:
            return []
        codes, group = np.unique(self.cluster_codes[self.is_member], return_inverse=True)
        evidence, left = (
            np.bincount(group, np.abs(values[self.is_member].astype(np.float64)), len(codes))
            for values in (self.evidence, self.residual)
        )
        part = np.divide(left, evidence, out=np.zeros(len(codes)), where=evidence > 0)
        order = np.argsort(-part, kind="stable")
        listed = [
            f"{display.percent(part[g])} in {cluster_name(self.labels[codes[g]])}"
            for g in order.tolist()
            if part[g] >= _NOTED_RESIDUAL
        ]
        if not listed:
            return []
        return [
            f"Relative to the evidence, the size of the residual, which belongs to no {self.unit}, is "
            f"{display.join_first(listed)}. The shares below leave it out."
        ]

    @cached_property
    def median_evidence(self) -> float:
        """The median evidence of all members, or 0 if it is negative or there are no members."""
        evidence = self.evidence[self.is_member].astype(np.float64)
        return max(0.0, float(np.median(evidence))) if evidence.size else 0.0

    @cached_property
    def is_borderline(self) -> NDArray[np.bool_]:
        """(n,) whether a row is close to a boundary: its evidence is at most a tenth of `median_evidence`."""
        contested = self.cluster_codes != self.competitor_codes  # a cluster has no boundary with itself
        return np.asarray((np.abs(self.evidence) <= BORDERLINE * self.median_evidence) & contested)

    @cached_property
    def competition(self) -> NDArray[Any]:
        """(n, K) R_k, computed on first access, because with many clusters it can be the largest array."""
        return outputs.competition(self.energy, self.unchanged_table("competition"), self._query)

    def competitor_weights(self) -> NDArray[Any]:
        """Return a_k, (n, K), the weight that the rule gives each competitor of each row."""
        return outputs.competitor_weights(self.energy, self.table, self._query)

    @property
    def _query(self) -> CodedQuery:
        """The query that this explanation answers."""
        competitor = self.competitor_codes if self.rule == CONTRAST else None
        return CodedQuery(self.cluster_codes, competitor, self.rule, self.beta, self.threshold, self.prior)

    def __len__(self) -> int:
        return len(self.evidence)

    def _how(self) -> str:
        """Return the rule, beta and the fidelity of a surrogate as text."""
        how = self.rule if self.beta is None else f"{self.rule}, beta={self.beta:.4g}"
        if self.reference is not None:
            how += f", reference={self.reference}"
        if self.fidelity is not None:
            how += f"; a surrogate that predicts {self.fidelity.cross_validated:.1%} of the labels"
        if self.agreement is not None:
            how += f"; agrees with {self.agreement.percentage} of the labels"
        return how

    def __str__(self) -> str:
        """Return the first rows as text, with signed bars for their strongest features."""
        parts = [repr(self), *(self[row].describe() for row in range(min(len(self), _ROWS_SHOWN)))]
        if len(self) > _ROWS_SHOWN:
            parts.append(f"... and {len(self) - _ROWS_SHOWN} more {self.noun.lower()}s")
        return "\n\n".join(parts)

    def with_labels(self, labels: NDArray[Any]) -> Self:
        """Return the explanation with other labels, (K,)."""
        old = Labels(self.labels)
        return replace(
            self,
            labels=labels,
            fidelity=self.fidelity and self.fidelity.relabeled(old, labels),
            agreement=self.agreement and self.agreement.relabeled(old, labels),
        )

    def claim(self) -> str:
        """Return the claim about a single row as a sentence."""
        claim = Claim(
            f"{self.noun} {self.row_title()}",
            self.cluster[0],
            self.competitor[0],
            self.assigned[0],
            self.evidence[0],
            self.threshold,
            self.rule == CONTRAST,
            self.fidelity is not None,
        )
        return claim.sentence()

    def reference_clause(self) -> str:
        """Return where the features are measured from, and why, or "" if they are not those of an encoder."""
        if self.reference is None:
            return ""
        place = "0" if self.reference == "zero" else "the midpoint between two clusters"
        return f"{place}, {self.reference_reason}"

    def reference_sentence(self) -> str:
        """Return `reference_clause` as a sentence, or "" if there is none."""
        clause = self.reference_clause()
        return clause and fill(f"Features are measured from {clause}.", WIDTH)

    def unattributed(self, largest: float, noun: str) -> list[Line]:
        """Return lines for the part of a single row's evidence that belongs to no single feature or word."""
        evidence, residual = float(self.evidence[0]), float(self.residual[0])
        name = self.energy.rest or f"no single {noun}"
        return unattributed_lines(evidence, residual, self.threshold, largest, name)

    def _framed(self, names: Sequence[Hashable], relevance: NDArray[Any], backend: str | None) -> Any:
        """Return a frame with cluster, competitor, evidence and a column of relevance for each name."""
        columns: dict[Hashable, NDArray[Any]] = {
            unique_name(name, names): getattr(self, name) for name in ("cluster", "competitor", "evidence")
        }
        columns.update({name: relevance[:, i] for i, name in enumerate(names)})
        return build_frame(columns, self.data, backend, "to_frame")

    def to_dict(self, rows: Any = None, n_strongest: int | None = None) -> dict[str, Any]:
        """Return the explanation as plain data: dictionaries, lists, numbers and text.

        The data follow a versioned JSON schema, which `to_json` describes.

        Parameters
        ----------
        rows : the rows to include, as in ``exp[rows]``; by default all of them. More than a million relevance
            scores are refused unless rows are chosen.
        n_strongest : the number of features or words to list for each row; by default all of them. The sum of
            all others is in ``other_relevance``.
        """
        head = describe_rows(self, rows, n_strongest, *self._parts())
        chosen = self if rows is None else self[rows]
        return {**head, "rows": chosen._rows_as_data(n_strongest)}

    def to_json(self, rows: Any = None, n_strongest: int | None = None) -> str:
        """Return `to_dict` as JSON.

        The file ``whycluster/explanations/exchange/schema-1.json`` is the schema of the result.

        Parameters
        ----------
        rows, n_strongest : as for `to_dict`
        """
        return to_text(self.to_dict(rows, n_strongest))

    @abstractmethod
    def _parts(self) -> tuple[str, int]:
        """Return the name of the parts that have relevance, in the plural, and how many a row has."""

    def _rows_as_data(self, n_strongest: int | None) -> list[dict[str, Any]]:  # noqa: ARG002  # for subclasses
        """Return all rows as plain data."""
        return claims_of(self)

    def __getitem__(self, rows: Any) -> Self:
        """Return the explanation of some rows, given by an index, a list of indices, a slice or a mask."""
        chosen = row_positions(rows, len(self))
        return replace(
            self,
            evidence=self.evidence[chosen],
            table=self.table.take(chosen),
            cluster_codes=self.cluster_codes[chosen],
            competitor_codes=self.competitor_codes[chosen],
            positions=chosen if self.positions is None else self.positions[chosen],
            **self._take(chosen),
        )

    def rules(self, *_: Any, **__: Any) -> Any:
        """Raise an error, since only columns have conditions; see `whycluster.Explanation.rules`."""
        self._refuse("rules")

    def pair(self, *_: Any, **__: Any) -> Any:
        """Raise an error, since rows are compared by columns or words; see `whycluster.Explanation.pair`."""
        self._refuse("pair")

    def strategies(self, *_: Any, **__: Any) -> Any:
        """Raise an error, since only columns are grouped; see `whycluster.Explanation.strategies`."""
        self._refuse("strategies")

    def counterfactual(self, *_: Any, **__: Any) -> Any:
        """Raise an error, since only columns can change; see `whycluster.Explanation.counterfactual`."""
        self._refuse("counterfactual")

    def _refuse(self, where: str) -> NoReturn:
        raise InvalidInputError(
            f"{where}: relevance must belong to the columns of a table; it belongs to "
            f"{self.not_columns.format(method=where)}"
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
        quality: Any = None,
    ) -> None:
        """Write a self-contained HTML report about the clusters and the explanation of each row.

        The file needs no network connection and is at most one megabyte in size. It describes each cluster in
        a sentence with its defining features. It also shows a map, which clusters compete, and a searchable
        list of rows, each with its explanation and the reasons why it is in no other cluster. Requires
        jinja2: ``pip install "whycluster[report]"``.

        Parameters
        ----------
        path : the file; an existing file is replaced atomically
        title : the title of the page
        n_rows : the maximum number of rows to list. If there are more rows, a sample from every cluster is
            listed. Fewer rows are listed if they do not fit in a megabyte.
        ids : one identifier per row, to show and search; by default, the names of the rows in a pandas index,
            or their positions if there is no such index
        left_out : columns that were left out before clustering, with the reasons
        random_state : the random seed of the sample
        quality : ``findings.quality(exp)``, if already computed
        """
        registry.load("report")(self, path, title, n_rows, random_state, ids, left_out, quality)

    def verified(self, where: str) -> Self:
        """Check once that the data are unchanged; return an explanation that does not check this again."""
        self.unchanged_table(where)
        return self if self.owns_data else replace(self, owns_data=True)

    def unchanged_table(self, where: str) -> Table:
        """Recompute the evidence; return the data if the evidence is unchanged, else raise an error."""
        if not self.owns_data and not is_unchanged(self.energy, self.table, self._query, self.evidence):
            raise InvalidInputError(
                f"{where}: the data have been changed since they were explained. Explain them again."
            )
        return self.table
