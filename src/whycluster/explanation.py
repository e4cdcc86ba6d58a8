"""The result: why each row is in its cluster, feature by feature."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from whycluster import console
from whycluster.errors import InvalidInputError, MissingDependencyError
from whycluster.frames import as_column, build_frame, unique_name
from whycluster.propagate import Codes
from whycluster.summary import Summary, summarize
from whycluster.table import Floats, Table, open_table

_ROWS_SHOWN, _FEATURES_SHOWN = 3, 6  # when an explanation is printed


@dataclass(frozen=True)
class TopFeatures:
    """The strongest features of each row, by absolute relevance, strongest first; all (n, k).

    Attributes
    ----------
    feature : names
    relevance : signed relevance
    value : the row's value of that feature
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

    def _parts(self) -> list[tuple[str, NDArray[Any]]]:
        return [("feature", self.feature), ("relevance", self.relevance), ("value", self.value)]


@dataclass(frozen=True, eq=False, repr=False)
class Explanation:
    """How much every feature of every row spoke for the row's cluster.

    Made by `whycluster.explain`. Relevance is in the units of evidence: it adds up to the evidence over
    the features, positive for what speaks for the cluster, negative for what speaks against it.

    Attributes
    ----------
    relevance : (n, d)
    evidence : (n,) f_c, the distance to the boundary with the strongest competitor, in the model's energy;
        positive if the row belongs to the cluster
    cluster : (n,) the label of the cluster that is explained: the row's own, or the target
    competitor : (n,) the label of its strongest competitor, or of the one it is explained against
    competition : (n, K) how the evidence was shared among the competitors, R_k; 0 at the own cluster
    residual : (n,) evidence minus the sum of relevance; rounding only, for k-means
    beta : the stiffness that was used; None for contrasts, which need none
    rule : "min-take-most", "joint" or "contrast"
    data : the rows as they were given
    feature_names : the d names
    """

    relevance: NDArray[Any]
    evidence: NDArray[Any]
    beta: float | None
    rule: str
    data: Any
    feature_names: list[Hashable]
    labels: NDArray[Any]
    _own: Codes
    _rival: Codes
    _compete: Callable[[Table, Explanation], tuple[NDArray[Any], Floats]]

    @cached_property
    def cluster(self) -> NDArray[Any]:
        """(n,) the cluster that is explained."""
        return self.labels[self._own]

    @cached_property
    def competitor(self) -> NDArray[Any]:
        """(n,) its strongest competitor."""
        return self.labels[self._rival]

    @property
    def residual(self) -> Floats:
        """(n,) what the relevances leave unexplained of the evidence."""
        explained: Floats = self.relevance.sum(axis=1, dtype=np.float64)
        return self.evidence.astype(np.float64) - explained

    @cached_property
    def competition(self) -> NDArray[Any]:
        """(n, K) R_k, computed when first asked for: with many clusters it can outweigh all the rest."""
        shares, evidence = self._compete(self._table("competition"), self)
        scale = np.finfo(self.evidence.dtype).eps * 100
        if not np.allclose(evidence, self.evidence, rtol=scale, atol=scale * np.abs(evidence).max()):
            raise InvalidInputError(
                "competition: the data have been changed since they were explained. Explain them again."
            )
        return shares

    def __len__(self) -> int:
        return len(self.evidence)

    def __repr__(self) -> str:
        n, d = self.relevance.shape
        how = self.rule if self.beta is None else f"{self.rule}, beta={self.beta:.4g}"
        return f"<Explanation of {n} rows, {d} features, {len(self.labels)} clusters ({how})>"

    def __str__(self) -> str:
        """The first rows as signed bars, strongest feature first."""
        shown = min(len(self), _ROWS_SHOWN)
        parts = [repr(self), *(f"Row {row} {self.tell(row)}" for row in range(shown))]
        if shown < len(self):
            parts.append(f"... and {len(self) - shown} more rows")
        return "\n\n".join(parts)

    def tell(self, row: int = 0) -> str:
        """One row as text: what is claimed, and the features that bear it."""
        one = self[row]
        top = one.top(_FEATURES_SHOWN)
        verb = "is" if one.evidence[0] >= 0 else "is not"
        title = (
            f"{verb} in cluster {one.cluster[0]}: evidence {one.evidence[0]:.3g} "
            f"against cluster {one.competitor[0]}"
        )
        cells = list(zip(top.feature[0], top.value[0], top.relevance[0], strict=True))
        lines = [(str(feature), f"{value:.3g}", relevance) for feature, value, relevance in cells]
        n_left = len(self.feature_names) - len(cells)
        if n_left:
            lines.append((f"{n_left} more features", "", one.relevance.sum() - top.relevance.sum()))
        largest = max(abs(relevance) for _, _, relevance in lines)
        rows = [[name, value, f"{r:.3g}", console.bar(r, largest)] for name, value, r in lines]
        return title + "\n" + console.table(["feature", "value", "relevance", ""], rows, align="<>><")

    def __iter__(self) -> Iterator[Explanation]:
        return (self[row] for row in range(len(self)))

    def __getitem__(self, rows: Any) -> Explanation:
        """The explanations of some rows, by position: an index, a list of them, a slice or a mask."""
        chosen = np.atleast_1d(np.arange(len(self))[_row_selector(rows, len(self))])
        return replace(
            self,
            relevance=self.relevance[chosen],
            evidence=self.evidence[chosen],
            data=self._table("explanation").take(chosen),
            _own=self._own[chosen],
            _rival=self._rival[chosen],
        )

    def top(self, n: int = 3) -> TopFeatures:
        """The ``n`` strongest features of each row, by absolute relevance."""
        d = self.relevance.shape[1]
        if not isinstance(n, (int, np.integer)) or n < 1:
            raise InvalidInputError(f"top: n must be a whole number from 1 to {d}; got {n!r}.")
        table = self._table("top")
        n = min(int(n), d)
        columns = np.empty((len(self), n), dtype=np.intp)
        value = np.empty((len(self), n))
        for start, block in table.blocks():
            rows = slice(start, start + len(block))
            columns[rows] = _largest(np.abs(self.relevance[rows]), n)
            value[rows] = np.take_along_axis(block, columns[rows], axis=1)
        return TopFeatures(
            feature=as_column(self.feature_names)[columns],
            relevance=np.take_along_axis(self.relevance, columns, axis=1),
            value=value,
            _like=self.data,
        )

    def summary(self) -> Summary:
        """What makes each cluster: mean relevance, share, direction and size, over its members.

        A row explained for a cluster it is not in ("why not?"), or against its own, is no member.
        """
        member = (self.evidence >= 0) & (self._own != self._rival)
        groups = np.where(member, self._own, -1)
        table = self._table("summary")
        return summarize(table, self.relevance, groups, self.labels, self.data)

    def to_frame(self, backend: str | None = None) -> Any:
        """One row per row: cluster, competitor, evidence, then the relevance of every feature.

        Pandas in, pandas out, with the same index; polars and pyarrow likewise. For arrays, pandas if it
        is installed, else polars, else pyarrow; ``backend`` chooses. Where a feature is itself called
        "cluster", "competitor" or "evidence", our column gets an underscore behind its name.
        """
        taken = set(self.feature_names)
        columns: dict[Hashable, NDArray[Any]] = {
            unique_name("cluster", taken): self.cluster,
            unique_name("competitor", taken): self.competitor,
            unique_name("evidence", taken): self.evidence,
        }
        columns.update({name: self.relevance[:, i] for i, name in enumerate(self.feature_names)})
        return build_frame(columns, self.data, backend, "to_frame")

    def to_shap(self) -> Any:
        """A `shap.Explanation`, so that ``shap.plots`` work; its base value 0 is the decision boundary."""
        try:
            import shap
        except ImportError as error:
            raise MissingDependencyError('to_shap needs shap: pip install "whycluster[shap]"') from error
        table = self._table("to_shap")
        return shap.Explanation(
            values=self.relevance,
            base_values=np.zeros(len(self)),
            data=np.concatenate([block.copy() for _, block in table.blocks()]),
            feature_names=[str(name) for name in self.feature_names],
            output_names=None,
        )

    def _table(self, where: str) -> Table:
        names = self.feature_names
        return open_table(self.data, where=where, n_features=len(names), model_names=names)


def _row_selector(rows: Any, n_rows: int) -> Any:
    """An index that NumPy takes; a mask must be as long as the explanation."""
    if isinstance(rows, (slice, int, np.integer)):
        return rows
    chosen = np.asarray(rows)
    if chosen.dtype == bool and chosen.shape == (n_rows,):
        return chosen
    if chosen.ndim == 1 and (chosen.dtype.kind in "iu" or chosen.size == 0):
        return chosen.astype(np.intp)
    raise InvalidInputError(
        f"explanation[rows]: rows must be an index, a slice, a list of indices or a mask of length {n_rows}; "
        f"got {chosen.dtype} of shape {chosen.shape}."
    )


def _largest(values: NDArray[Any], n: int) -> NDArray[np.intp]:
    """Columns of the n largest values of each row, in descending order, the first column on a tie."""
    return np.argsort(-values, axis=1, kind="stable")[:, :n]
