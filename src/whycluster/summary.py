"""What makes each cluster: the explanations of its members, averaged."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from whycluster import console
from whycluster.frames import as_column, build_frame
from whycluster.propagate import Codes
from whycluster.table import Floats, Table

_WORDS = np.array(["", "high", "low"])  # by direction: 0, 1, -1
_SAME = 1e-9  # means that differ by less, relatively, differ by rounding


@dataclass(frozen=True)
class Summary:
    """Per cluster (G of them) and feature (d), what defines the cluster; `print` it, or `to_frame`.

    Attributes
    ----------
    clusters : (G,) the labels of the clusters that have members
    size : (G,) the number of members
    relevance : (G, d) their mean relevance
    share : (G, d) relevance as a part of the cluster's total absolute relevance, from -1 to 1
    inside, outside : (G, d) the mean value of the feature in the cluster and in all other rows;
        outside is NaN where there are no other rows
    direction : (G, d) 1 where the cluster's mean is above that of the other rows, -1 where it is below,
        0 where they are equal or there is nothing to compare
    feature_names : the d names
    """

    clusters: NDArray[Any]
    size: NDArray[np.intp]
    relevance: Floats
    inside: Floats
    outside: Floats
    feature_names: list[Hashable]
    _like: Any = None

    @property
    def share(self) -> Floats:
        """(G, d) relevance over the cluster's total absolute relevance."""
        total = np.abs(self.relevance).sum(axis=1, keepdims=True)
        share = np.zeros_like(self.relevance)
        np.divide(self.relevance, total, out=share, where=total > 0)
        return share

    @property
    def direction(self) -> NDArray[np.int8]:
        """(G, d) the sign of ``inside - outside``."""
        apart = np.abs(self.inside - self.outside) > _SAME * np.maximum(
            np.abs(self.inside), np.abs(self.outside)
        )
        return np.where(apart, np.sign(self.inside - self.outside), 0).astype(np.int8)

    def to_frame(self, backend: str | None = None) -> Any:
        """One row per cluster and feature, the most relevant feature of a cluster first.

        The frame is of the library the data came in; ``backend`` ("pandas", "polars", "pyarrow")
        chooses another.
        """
        d = len(self.feature_names)
        order = np.argsort(-self.relevance, axis=1, kind="stable")

        def sort(values: NDArray[Any]) -> NDArray[Any]:
            return np.take_along_axis(values, order, axis=1).ravel()

        columns: dict[Hashable, NDArray[Any]] = {
            "cluster": np.repeat(self.clusters, d),
            "size": np.repeat(self.size, d),
            "feature": as_column(self.feature_names)[order].ravel(),
            "relevance": sort(self.relevance),
            "share": sort(self.share),
            "direction": sort(_WORDS[self.direction]),
            "mean_inside": sort(self.inside),
            "mean_outside": sort(self.outside),
        }
        return build_frame(columns, self._like, backend, "summary.to_frame", same_rows=False)

    def __str__(self) -> str:
        heads = ["cluster", "rows", "", "feature", "share", "", "mean inside", "outside"]
        rows = [line for group in range(len(self.clusters)) for line in self._lines(group)]
        return console.table(heads, rows, align="<><<><>>")

    def _lines(self, group: int, n_features: int = 5) -> list[list[str]]:
        """The strongest features of a cluster, one line each."""
        share, direction = self.share[group], self.direction[group]
        strongest = np.argsort(-np.abs(share), kind="stable")[:n_features]
        return [
            [
                str(self.clusters[group]) if rank == 0 else "",
                str(self.size[group]) if rank == 0 else "",
                _WORDS[direction[i]],
                str(self.feature_names[i]),
                f"{share[i]:.0%}",
                console.bar(share[i], np.abs(self.share).max()),
                f"{self.inside[group, i]:.3g}",
                f"{self.outside[group, i]:.3g}",
            ]
            for rank, i in enumerate(strongest)
        ]


def summarize(
    table: Table, relevance: NDArray[Any], groups: Codes, labels: NDArray[Any], like: Any
) -> Summary:
    """Average over the members of each cluster.

    Parameters
    ----------
    table, relevance : the n rows and their explanations
    groups : (n,) the code of the cluster each row is a member of, -1 for a row that counts for none
    labels : (K,) the names of the codes
    like : the frame whose library `Summary.to_frame` takes
    """
    from scipy import sparse

    present, group = np.unique(groups, return_inverse=True)
    n_groups, d = len(present), table.n_features
    values, relevances = np.zeros((n_groups, d)), np.zeros((n_groups, d))
    for start, block in table.blocks():
        rows = slice(start, start + len(block))
        member = sparse.csr_array(
            (np.ones(len(block)), group[rows], np.arange(len(block) + 1)),
            shape=(len(block), n_groups),
        )
        values += np.asarray(member.T @ block)
        relevances += np.asarray(member.T @ relevance[rows].astype(np.float64, copy=False))
    size = np.bincount(group, minlength=n_groups)
    others = (len(groups) - size)[:, None]
    outside = np.full((n_groups, d), np.nan)
    np.divide(values.sum(axis=0) - values, others, out=outside, where=others > 0)
    named = present >= 0
    return Summary(
        clusters=labels[present[named]],
        size=size[named],
        relevance=(relevances / size[:, None])[named],
        inside=(values / size[:, None])[named],
        outside=outside[named],
        feature_names=table.feature_names,
        _like=like,
    )
