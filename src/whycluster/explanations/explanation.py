"""The explanation of rows in terms of their features, which `whycluster.explain` returns."""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from dataclasses import dataclass
from functools import cached_property, partial
from html import escape
from textwrap import fill
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from whycluster.core import blocks
from whycluster.core.arrays import Codes, Floats
from whycluster.core.errors import InvalidInputError, MissingDependencyError
from whycluster.data import display, registry
from whycluster.data.absent_table import AbsentTable
from whycluster.data.arrays import is_real, strongest
from whycluster.data.frames import as_column
from whycluster.data.labels import Labels
from whycluster.data.table import Table
from whycluster.explanations.base import BaseExplanation
from whycluster.explanations.counterfactuals.changeable_row import SeenValues
from whycluster.explanations.counterfactuals.counterfactual import Counterfactual, find
from whycluster.explanations.counterfactuals.half_spaces import HalfSpaceModel
from whycluster.explanations.exchange.plain import claims_of, plain_list, records, with_parts
from whycluster.explanations.reasons.pairs import Pair, find_pair
from whycluster.explanations.reasons.rules import Rules, find_rules
from whycluster.explanations.reasons.strategies import Strategies, find_strategies
from whycluster.explanations.stories import story
from whycluster.explanations.stories.rivals import rivals_by_relevance
from whycluster.explanations.summaries.comparisons import Comparisons
from whycluster.explanations.summaries.naming import propose_names
from whycluster.explanations.summaries.summary import Summary, summarize
from whycluster.explanations.top_table import TopTable
from whycluster.explanations.wording.formatting import WIDTH, Line, format_lines, rest


@dataclass(frozen=True, repr=False, eq=False)
class TopFeatures(TopTable):
    """The k features of each row with the largest absolute relevance, in decreasing order.

    Attributes
    ----------
    feature : (n, k) the names of the features
    relevance : (n, k) the signed relevance of the features
    value : (n, k) the values of the features in the row, in an array of objects if the data contain
        categories
    """

    _rows, _names = "rows", ("feature", "relevance", "value")

    feature: NDArray[Any]
    relevance: NDArray[Any]
    value: NDArray[Any]


@dataclass(frozen=True, eq=False, repr=False)
class Explanation(BaseExplanation):
    """The relevance of every feature of every row for the row's cluster.

    `whycluster.explain` returns this explanation. The relevance scores of a row add up to its evidence,
    except for the `residual`. Positive relevance is evidence for the cluster; negative relevance is evidence
    against it.

    Attributes
    ----------
    relevance : (n, d) relevance scores
    evidence : (n,) f_c, how much better the cluster fits than its strongest competitor, in the units of the
        model's energy. It is 0 on the boundary and negative outside the cluster.
    cluster : (n,) the label of the explained cluster, which is the row's own cluster or, if given, the target
    competitor : (n,) the label of that cluster's strongest competitor, or of the competitor given by
        ``against``
    assigned : (n,) the label of the cluster that the model assigns, regardless of the target. If labels are
        explained, it is the prediction of the surrogate.
    competition : (n, K) R_k, each competitor's share of the evidence, or 0 for the row's own cluster
    residual : (n,) the part of the evidence that belongs to no single feature: the evidence minus the sum
        of the relevance scores. For energies that are sums over the features, as in k-means, it is only
        rounding error.
    beta : the stiffness that was used, or None for contrasts, which do not use it
    rule : "path", "min-take-most", "joint", "sequential", "contrast" or, if a threshold was given, "soft"
    threshold : the probability that the cluster is compared with, or None if it is compared with other
        clusters
    fidelity : how well the explained surrogate matches the clustering, or None for exact networks
    agreement : for models that give only labels and follow a known rule, such as DBSCAN, how well the rule
        reproduces the labels of the rows; otherwise None
    labels : (K,) the labels of all clusters, in the order of the columns of `competition`
    reference, reference_reason : for the features of a deep clustering, where they are measured from, as in
        `whycluster.deep.DeepClustering`; None for tables
    data : the rows as given; they are not copied, so do not change their values
    feature_names : (d,) the names of the features
    """

    noun: ClassVar[str] = "Row"
    relevance: NDArray[Any]

    @property
    def feature_names(self) -> list[Hashable]:
        """The names of the d features."""
        return self.table.feature_names

    @property
    def residual(self) -> Floats:
        """(n,) the evidence minus the sum of the relevance scores."""
        explained: Floats = self.relevance.sum(axis=1, dtype=np.float64)
        return self.evidence.astype(np.float64) - explained

    def _take(self, rows: Codes) -> dict[str, Any]:
        return {"relevance": self.relevance[rows]}

    def __repr__(self) -> str:
        n, d = self.relevance.shape
        counts = f"{n} row{'s' * (n != 1)}, {d} feature{'s' * (d != 1)}, {len(self.labels)} clusters"
        return f"<Explanation of {counts} ({self._how()})>"

    def describe(self, row: int = 0, n_features: int = 6, *, label: Hashable | None = None) -> str:
        """Return the explanation of one row as text: the claim, how clear it is, and the strongest features.

        The mean of a cluster is called typical of the cluster. For three or more clusters, the last column
        splits the same evidence for the strongest competitor alone.

        Parameters
        ----------
        row : the position of the row
        n_features : the number of features to list
        label : the name of the row in the data's index, instead of its position
        """
        if label is not None:
            row = self._position_of(label)
        if not isinstance(row, (int, np.integer)):
            raise InvalidInputError(f"describe: row must be a single integer position; got {row!r}.")
        row = range(len(self))[row] if -len(self) <= row < len(self) else row
        one, heads = self[row], ["feature", "value", "relevance"]
        if isinstance(self.table, AbsentTable):
            parts = [one.claim(), format_lines(one.lines(n_features), heads), one.reference_sentence()]
            return "\n".join(part for part in parts if part)
        against = story.contrast(self, row)
        lines = one.lines(n_features, against)
        if against is not None:
            heads.append(f"against {display.format_name(one.competitor[0])}")
        relevance = one.relevance[0] if against is None else against
        sentences = [story.rank_sentence(self, row)]
        if self.positions is None and one.is_member[0]:  # otherwise, not all rows of the clusters are known
            sentences.append(story.typical_sentence(self, row, self._compared, relevance))
        notes = [] if against is None else story.sharing_sentences(self, row)
        wrapped = ["\n".join(fill(text, WIDTH) for text in some if text) for some in (sentences, notes)]
        parts = [one.claim(), wrapped[0], format_lines(lines, heads), wrapped[1], one.reference_sentence()]
        return "\n".join(part for part in parts if part)

    def _position_of(self, label: Hashable) -> int:
        places = self.loc.positions_of(label)
        if len(places) > 1:
            raise InvalidInputError(
                f"describe: label must be the name of one row; {len(places)} rows are named {label!r}, at "
                f"the positions {display.cut(places)}. Pass one of these positions as row."
            )
        return places[0]

    @cached_property
    def _compared(self) -> Comparisons:
        """The means and frequencies of all clusters."""
        return self.summary().compared

    def lines(self, n: int, against: Floats | None = None) -> list[Line]:
        """Return lines for the ``n`` strongest features of a single row, and one line for all others.

        ``against`` is (d,), the relevance against one competitor, shown in another column.
        """
        top = self.top(n)
        cells = zip(top.feature[0], top.value[0], top.relevance[0], strict=True)
        largest = float(np.abs(top.relevance).max())
        # Dropped columns have relevance 0 and are not listed.
        lines = [Line(str(f), display.format_value(v), float(r)) for f, v, r in cells if r or not largest]
        listed = strongest(self.relevance, len(lines))[0]
        left = np.delete(self.relevance[0], listed)
        lines += rest(left.size, "feature", "", float(left.sum()))
        lines += self.unattributed(largest, "feature")
        if against is None:
            return lines
        beside = [*against[listed].tolist(), float(np.delete(against, listed).sum())][
            : len(listed) + bool(left.size)
        ]
        beside += [float(self.evidence[0]) - float(against.sum())] * (len(lines) - len(beside))
        return [line._replace(against=value) for line, value in zip(lines, beside, strict=True)]

    def _repr_html_(self) -> str:
        """Return the clusters and the first rows as HTML for a notebook, or as text if there are no data."""
        if isinstance(self.table, AbsentTable):
            return f"<pre>{escape(str(self))}</pre>"
        page: str = registry.load("notebook")(self)
        return page

    def top(self, n: int = 3) -> TopFeatures:
        """Return the ``n`` strongest features of each row, by absolute relevance."""
        d = self.relevance.shape[1]
        if not isinstance(n, (int, np.integer)) or isinstance(n, bool) or n < 1:
            raise InvalidInputError(f"top: n must be an integer from 1 to {d}; got {n!r}.")
        table = self.unchanged_table("top")
        columns = self.strongest_features(int(n))
        return TopFeatures(
            feature=as_column(self.feature_names)[columns],
            relevance=np.take_along_axis(self.relevance, columns, axis=1),
            value=table.pick(columns),
            _like=self.data,
        )

    def strongest_features(self, n: int) -> Codes:
        """Return the positions of the ``n`` strongest features of each row, (n_rows, n)."""
        columns = np.empty((len(self), min(n, self.relevance.shape[1])), dtype=np.intp)
        parts = list(self.table.slices())

        def work(part: int) -> None:
            rows = parts[part]
            columns[rows] = strongest(self.relevance[rows], columns.shape[1])

        blocks.each(work, len(parts))
        return columns

    def summary(self) -> Summary:
        """Return the features that define each cluster, with relevance averaged over its members.

        Rows are not counted if they are explained for a cluster that they are not in ("why not?"), if they
        are explained against their own cluster, or if the surrogate does not predict their label.
        """
        find_rivals = partial(rivals_by_relevance, self)
        return summarize_features(self, self.unchanged_table("summary"), self.relevance, find_rivals)

    def names(self) -> dict[Any, str]:
        """Propose a short, unique name for each cluster, such as "high income, low age"; see `rename`.

        A name says "high" or "low" only if the cluster's mean is above or below the mean of all other rows,
        the means of the clusters that the feature sets it apart from, and those of two thirds of all other
        clusters. It names a category only if most rows of the cluster have it.
        """
        return propose_names(self.summary())

    def counterfactual(
        self,
        row: int,
        to: Any = None,
        *,
        within: Iterable[Hashable] | None = None,
        hold: Iterable[Hashable] | None = None,
        categories: bool = False,
    ) -> Counterfactual:
        """Return the smallest changes, of all features or of only one, that move a row to another cluster.

        For models with linear boundaries (k-means and all other nearest-centroid models, bisecting k-means,
        spherical k-means and soft heads, including in a pipeline), the change is the smallest one. For
        mixtures and models in which the nearest member decides, such as Birch and DBSCAN, it usually is, and
        `optimum` of the result says whether it is known to be. For kernel models and others, it is a local
        optimum. Labels without a rule are moved across the boundaries of their surrogate. Features that hold
        only whole numbers stay whole. Features that cannot change freely (categories, missing values, columns
        that a step transforms neither linearly nor monotonically) change only one at a time. The result is
        verified with the network. Printed values are rounded in such a way that they are still enough to move
        the row.

        Parameters
        ----------
        row : the position of the row
        to : the cluster to move to; by default, the cluster that requires the smallest change
        within : the names of the features that may change; by default, all features
        hold : the names of features that must not change
        categories : whether categories may change together with other features. Every other category in the
            explained rows is tried, so this takes longer.
        """
        if not is_real(row) or not isinstance(row, (int, np.integer)):
            raise InvalidInputError(f"counterfactual: row must be a single integer position; got {row!r}.")
        one = self[row]
        one.unchanged_table("counterfactual")
        cluster = int(one.assigned_codes[0])
        code = None if to is None else self._another(to, cluster)
        x = one.table.inputs(0, 1, self.energy.offset, np.empty((1, self.energy.n_inputs)))
        energy = self.energy.apart_from(x)
        return find(
            self._half_spaces if energy is self.energy else HalfSpaceModel.of(energy, self.table),
            self.table,
            x[0],
            self.labels,
            row=range(len(self))[row],
            cluster=cluster,
            to=code,
            within=within,
            hold=hold,
            categories=categories,
            seen=self.seen_values,
            name=one.row_name(),
            fidelity=self.fidelity,
        )

    def rules(self, max_conditions: int = 3, max_rules: int = 3) -> Rules:
        """Return the few conjunctions of conditions that describe each cluster, such as "age is at least 30".

        The conditions are in the units of the data, and hold exactly as printed. Each rule comes with its
        coverage and precision on all rows. If labels were explained, the rules describe the labels, not their
        surrogate.

        Parameters
        ----------
        max_conditions : the maximum number of conditions of a rule; a lower and an upper bound of the same
            column count as two
        max_rules : the maximum number of rules of a cluster. A further rule is added only if it improves the
            F1 of all of them together by 0.03.
        """
        return find_rules(self, self.relevance, max_conditions, max_rules)

    def pair(self, a: int, b: int) -> Pair:
        """Return why two rows are in the same cluster, or what separates them, feature by feature.

        If the rows are in different clusters, the evidence of each is that for its own cluster against the
        cluster of the other row. If they are in the same cluster, it is that against their strongest common
        competitor, the one with the least total evidence. The contributions of the features add up to the
        evidence of both rows, except for the residual.

        Parameters
        ----------
        a, b : the positions of the two rows
        """
        return find_pair(self, a, b)

    def strategies(self) -> Strategies:
        """Return the groups of reasons in each cluster: members that are there because of different features.

        The explanations of a cluster's members are clustered themselves. Groups are reported only if they
        also appear among members that were not used to find them, so most clusters have a single group.
        Groups that may rest on an artifact (missing values, an identifier, one constant value) come with a
        caution.
        """
        return find_strategies(self, self.relevance)

    @cached_property
    def seen_values(self) -> SeenValues:
        """The ranges of the features, and which of them hold only whole numbers."""
        return SeenValues.of(self.unchanged_table("counterfactual"))

    @cached_property
    def _half_spaces(self) -> HalfSpaceModel:
        return HalfSpaceModel.of(self.energy, self.table)

    def _another(self, to: Any, cluster: int) -> int:
        """Return the code of the cluster to move to."""
        code = Labels(self.labels).encode(to, "counterfactual", "to")
        if code.shape != ():
            raise InvalidInputError(f"counterfactual: to must be one cluster; got {to!r}.")
        if code == cluster:
            raise InvalidInputError(
                "counterfactual: to must differ from the cluster that the row is in, "
                f"{self.labels.tolist()[cluster]!r}."
            )
        return int(code)

    def to_frame(self, backend: str | None = None) -> Any:
        """Return a frame with the cluster, competitor, evidence and relevance of each row.

        The result has the type of the data: pandas (with the same index), polars or pyarrow. For arrays, it
        comes from the first of these libraries that is installed. ``backend`` selects a different library. If
        a feature is named "cluster", "competitor" or "evidence", an underscore is appended to the name of the
        column that is not a feature.
        """
        self.unchanged_table("to_frame")  # raises an error if the rows were changed
        return self._framed(self.feature_names, self.relevance, backend)

    def _parts(self) -> tuple[str, int]:
        return "features", self.relevance.shape[1]

    def _rows_as_data(self, n_strongest: int | None) -> list[dict[str, Any]]:
        width = self.relevance.shape[1]
        claims, totals = claims_of(self), self.relevance.sum(axis=1, dtype=np.float64)
        columns = self.strongest_features(min(width, n_strongest or width))
        names = np.array(plain_list(as_column(self.feature_names)), dtype=object)[columns]
        keys, values = ["feature", "relevance"], [names, np.take_along_axis(self.relevance, columns, axis=1)]
        if not isinstance(self.table, AbsentTable):
            keys, values = [*keys, "value"], [*values, self.unchanged_table("to_dict").pick(columns)]
        return with_parts(claims, records(keys, values), totals, "features")

    def to_shap(self) -> Any:
        """Return a `shap.Explanation` for use with ``shap.plots``.

        Its base value is the residual, which is 0 for k-means. Values and base value add up to the evidence,
        which is 0 on the boundary.
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


def summarize_features(
    exp: BaseExplanation, table: Table, relevance: NDArray[Any], find_rivals: Any = None
) -> Summary:
    """Return the summary of each cluster, given the relevance, (n, d), of the columns of a table.

    ``find_rivals`` is the function that `summarize` takes.
    """
    rows = exp.cluster_codes if exp.is_labeled else exp.assigned_codes
    note = " ".join([*exp.surrogate_sentences(), *exp.residual_sentences()])
    members = exp.member_clusters
    return summarize(table, relevance, rows, exp.is_member, members, exp.labels, exp.data, note, find_rivals)
