"""Pairs of rows: why two rows are together, or what separates them.

The derivation is in docs/decisions/pairs.md.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass, field
from textwrap import fill
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from whycluster.core import attribution, outputs
from whycluster.core.arrays import Codes, Floats
from whycluster.core.attribution import CodedQuery
from whycluster.core.errors import InvalidInputError
from whycluster.data import display
from whycluster.data.arrays import is_real
from whycluster.data.frames import as_column, build_frame
from whycluster.data.labels import cluster_name
from whycluster.explanations.base import BaseExplanation
from whycluster.explanations.wording.formatting import WIDTH

_ROUNDING = 1e-6  # figures below this fraction of the evidence are rounding error


@dataclass(frozen=True, eq=False, repr=False)
class Pair:
    """Why two rows are together, or what separates them. `print` it, or convert it with `to_frame`.

    If the rows are in different clusters, the evidence of each is that for its own cluster against the
    cluster of the other row. If they are in the same cluster, it is that for this cluster against their
    strongest common competitor, the one with the least total evidence. The relevance of a feature is its
    contribution to the evidence of both rows together.

    Attributes
    ----------
    rows : the names of the two rows
    positions : (2,) their positions in the explained data
    clusters : the labels of their clusters, as the model assigns them
    competitors : the labels of the clusters that they are compared with
    is_together : whether both are in the same cluster
    evidence : (2,) the evidence of each row
    parts : (2, d) the contribution of each feature to the evidence of each row
    relevance : (d,) the sum of both parts
    residual : the part of the evidence of both rows that belongs to no single feature. It is only rounding
        error for energies that are sums over the features, as in k-means.
    values : (2, d) the values of the features in both rows; for documents, how often they contain each word
    feature_names : the names of the d features, or the words
    """

    rows: tuple[Hashable, Hashable]
    positions: Codes
    clusters: tuple[Any, Any]
    competitors: tuple[Any, Any]
    evidence: Floats
    parts: Floats
    values: NDArray[Any]
    feature_names: list[Hashable]
    noun: str = "Row"
    unit: str = "feature"
    n_clusters: int = 2
    by_surrogate: bool = False
    _like: Any = field(default=None, repr=False)

    @property
    def is_together(self) -> bool:
        """Whether both rows are in the same cluster."""
        return bool(self.clusters[0] == self.clusters[1])

    @property
    def relevance(self) -> Floats:
        """(d,) the contribution of each feature to the evidence of both rows."""
        return np.asarray(self.parts.sum(axis=0))

    @property
    def residual(self) -> float:
        """The part of the evidence of both rows that belongs to no single feature."""
        return float(self.evidence.sum() - self.parts.sum())

    def describe(self, n_features: int = 6) -> str:
        """Return the answer as text: a claim, the strongest feature, and a table of features.

        Parameters
        ----------
        n_features : the number of features to list
        """
        sentences = [self.claim(), self.strongest()]
        text = "\n".join(fill(each, WIDTH) for each in sentences if each)
        return f"{text}\n{self._table(n_features)}"

    def __str__(self) -> str:
        return self.describe()

    __repr__ = __str__  # a notebook shows the table too

    def claim(self) -> str:
        """Return where the two rows are, and the evidence, as a sentence."""
        first, second = self._titles
        noun = self.noun.lower()
        ones = [f"{each:.3g}" for each in self.evidence]
        total = f"{self.evidence.sum():.3g}"
        if self.is_together:
            place = cluster_name(self.clusters[0])
            other = cluster_name(self.competitors[0])
            nearest = f"Their strongest common competitor is {other}: the evidence against it"
            against = nearest if self.n_clusters > 2 else f"The evidence against {other}"
            return (
                f"{self.noun}s {first} and {second} are both in {place}{self._according}. {against} is "
                f"{ones[0]} for {noun} {first} and {ones[1]} for {noun} {second}, {total} in total."
            )
        one, other = (cluster_name(each) for each in self.clusters)
        return (
            f"{self.noun} {first} is in {one}, and {noun} {second} is in {other}{self._according}. The "
            f"evidence that separates them is {total}: {ones[0]} for {one} against {other} in {noun} "
            f"{first}, and {ones[1]} for {other} against {one} in {noun} {second}."
        )

    @property
    def _according(self) -> str:
        return " according to the surrogate" * self.by_surrogate

    @property
    def _titles(self) -> list[str]:
        names = [display.clean(str(name)) for name in self.rows]
        if names[0] != names[1]:
            return names
        return [f"{name} (position {at})" for name, at in zip(names, self.positions.tolist(), strict=True)]

    def strongest(self) -> str:
        """Return a sentence on the feature that separates the rows most, or is most evidence for both."""
        size = self.parts.min(axis=0) if self.is_together else self.relevance
        if not size.size or not size.max() > 0:
            return ""
        column = int(size.argmax())
        name = display.format_items([self.feature_names[column]])[0]
        values = " and ".join(display.format_value(value) for value in self.values[:, column])
        times = " times" * (self.unit == "word")
        first, second = self._titles
        if not self.is_together:
            return (
                f"{name} ({values}{times}) separates them most: it contributes {size[column]:.3g} of this "
                "evidence."
            )
        ones = [f"{each:.3g}" for each in self.parts[:, column]]
        noun = self.noun.lower()
        return (
            f"{name} ({values}{times}) is the strongest evidence for both: it contributes {ones[0]} for "
            f"{noun} {first} and {ones[1]} for {noun} {second}."
        )

    def _table(self, n_features: int) -> str:
        relevance, (first, second) = self.relevance, self._titles
        order = np.argsort(-np.abs(relevance), kind="stable")
        largest = float(np.abs(relevance).max(initial=0.0))
        shown = [i for i in order[:n_features].tolist() if relevance[i] or not largest]
        lines = []
        for i in shown:
            values = [display.format_value(value) for value in self.values[:, i]]
            figures = [self._figure(each) for each in (*self.parts[:, i], relevance[i])]
            lines.append([str(self.feature_names[i]), *values, *figures, display.bar(relevance[i], largest)])
        left = np.setdiff1d(order, shown)
        if left.size:
            sums = (*self.parts[:, left].sum(axis=1), relevance[left].sum())
            figures = [self._figure(each) for each in sums]
            lines.append([f"{display.count(left.size, f'more {self.unit}')}", "", "", *figures, ""])
        rest = self.evidence - self.parts.sum(axis=1)
        if np.abs(rest).max() > self._least:  # the residuals of the two rows may cancel out
            figures = [self._figure(each) for each in (*rest, self.residual)]
            lines.append([f"no single {self.unit}", "", "", *figures, ""])
        heads = [self.unit, f"in {first}", f"in {second}", f"for {first}", f"for {second}", "both", ""]
        return display.table(heads, lines, "<>>>>><")

    @property
    def _least(self) -> float:
        """The smallest figure that is more than rounding error."""
        largest = float(np.abs(self.relevance).max(initial=0.0))
        return _ROUNDING * max(largest, float(np.abs(self.evidence).sum()))

    def _figure(self, value: float) -> str:
        return f"{value:.3g}" if abs(value) > self._least else "0"

    def to_frame(self, backend: str | None = None) -> Any:
        """Return a frame with one line per feature, in the order of decreasing relevance.

        The columns are feature, value_1, value_2, relevance_1, relevance_2 and relevance. By default, the
        frame comes from the same library as the data; ``backend`` selects a different library.
        """
        order = np.argsort(-self.relevance, kind="stable")
        columns: dict[Hashable, Any] = {
            self.unit: as_column([self.feature_names[i] for i in order.tolist()]),
            "value_1": self.values[0, order],
            "value_2": self.values[1, order],
            "relevance_1": self.parts[0, order],
            "relevance_2": self.parts[1, order],
            "relevance": self.relevance[order],
        }
        return build_frame(columns, self._like, backend, "pair.to_frame", same_rows=False)


class Compared(NamedTuple):
    """Two rows, (2,): their positions, and the codes of their clusters and of the other clusters."""

    positions: Codes
    cluster: Codes
    competitor: Codes


def compared_rows(exp: BaseExplanation, a: Any, b: Any) -> Compared:
    """Check the positions of two rows, and find the clusters that they are compared with."""
    for name, given in (("a", a), ("b", b)):
        if not is_real(given) or not isinstance(given, (int, np.integer)):
            raise InvalidInputError(f"pair: {name} must be a single integer position; got {given!r}.")
        if not -len(exp) <= given < len(exp):
            raise InvalidInputError(
                f"pair: {name} must be a position from 0 to {len(exp) - 1}; got {given!r}."
            )
    positions = np.array([range(len(exp))[a], range(len(exp))[b]])
    if positions[0] == positions[1]:
        raise InvalidInputError(f"pair: a and b must be different rows; both are at position {positions[0]}.")
    if exp.positions is not None and exp.energy.needs_means:
        raise InvalidInputError(
            "pair: the explanation must contain all rows, since the split of this model's evidence depends "
            "on the means of all rows; it contains only some of them. Use the explanation that it was taken "
            "from."
        )
    two = exp[positions]
    table = two.unchanged_table("pair")
    cluster = two.assigned_codes
    if cluster[0] != cluster[1]:
        return Compared(positions, cluster, cluster[::-1].copy())
    h = outputs.contrasts(exp.energy, table, cluster).astype(np.float64).sum(axis=0)
    return Compared(positions, cluster, np.repeat(np.nanargmin(h), 2))


def find_pair(exp: BaseExplanation, a: Any, b: Any) -> Pair:
    """Return why two rows of a table are together, or what separates them; see `Explanation.pair`."""
    rows = compared_rows(exp, a, b)
    energy, table = outputs.informed(exp.energy, exp.table), exp.table.take(rows.positions)
    found = attribution.attribute(energy, table, CodedQuery(rows.cluster, rows.competitor))
    every = np.tile(np.arange(table.n_features), (2, 1))
    return pair_of(
        exp, rows, found.evidence, found.relevance, table.pick(every), table.feature_names, "feature"
    )


def pair_of(
    exp: BaseExplanation,
    rows: Compared,
    evidence: NDArray[Any],
    parts: NDArray[Any],
    values: NDArray[Any],
    names: list[Hashable],
    unit: str,
) -> Pair:
    """Return the pair, given the evidence, (2,), and its parts and the values of the features, (2, d)."""
    first, second = exp.names_of_rows(rows.positions.tolist())
    labels = exp.labels.tolist()
    one, other = ((labels[codes[0]], labels[codes[1]]) for codes in (rows.cluster, rows.competitor))
    return Pair(
        rows=(first, second),
        positions=rows.positions if exp.positions is None else exp.positions[rows.positions],
        clusters=one,
        competitors=other,
        evidence=np.asarray(evidence, dtype=np.float64),
        parts=np.asarray(parts, dtype=np.float64),
        values=values,
        feature_names=names,
        noun=exp.noun,
        unit=unit,
        n_clusters=len(labels),
        by_surrogate=exp.fidelity is not None,
        _like=exp.data,
    )
