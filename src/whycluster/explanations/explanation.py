"""The result: why each row is in its cluster, feature by feature."""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from dataclasses import dataclass, field
from functools import cached_property
from html import escape
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from whycluster.core import blocks
from whycluster.core.arrays import Codes, Floats, strongest
from whycluster.core.errors import InvalidInputError, MissingDependencyError
from whycluster.data import display, registry
from whycluster.data.absent_table import AbsentTable
from whycluster.data.arrays import is_real
from whycluster.data.frames import as_column, build_frame
from whycluster.data.labels import Labels
from whycluster.explanations.base import BaseExplanation
from whycluster.explanations.counterfactual import Counterfactual, find
from whycluster.explanations.formatting import Line, format_lines, rest
from whycluster.explanations.summary import Summary

if TYPE_CHECKING:
    pass


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
        return f"{one.claim()}\n{format_lines(lines, ['feature', 'value', 'relevance'])}"

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
        page: str = registry.load("notebook")(self)
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
