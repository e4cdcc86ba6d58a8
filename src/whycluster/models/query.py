"""The query: what to explain about each row. Every way to ask for explanations takes the same options."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol, TypedDict

from whycluster.core.attribution import CodedQuery
from whycluster.core.energies import Energy
from whycluster.core.errors import InvalidInputError
from whycluster.core.rules import CONTRAST, DEFAULT_RULE, RULES, SOFT
from whycluster.data.arrays import is_real
from whycluster.data.labels import Labels


class HasCodes(Protocol):
    """A network, which translates between labels and codes."""

    @property
    def codes(self) -> Labels:
        """The translation."""


class QueryOptions(TypedDict, total=False):
    """The parameters of `Query`, as keyword arguments of the functions that take a query."""

    target: Any
    against: Any
    beta: float | str
    rule: str
    threshold: float | None
    background: Any


@dataclass(frozen=True)
class Query:
    """What to explain about each row.

    Parameters
    ----------
    target : the cluster to explain, for all rows or one per row. A row that is in another cluster gets the
        answer to "why not this one?": its contrast with the cluster that won (in a tree, with the pair of
        nodes that decides most clearly against the target). By default the cluster of each row.
    against : the competitor, for all rows or one per row. Explains why the row is in its cluster rather than
        in this one. A row of that very cluster has evidence and relevance 0.
    beta : the stiffness of the soft minimum over the competitors. "auto" is 1 / (mean evidence), Eq. 3 of the
        paper; with the sequential rule it is the stiffness of the model's own probabilities, or else four
        times that value. Infinity lets the nearest competitor take all. Contrasts do not use it.
    rule : how the evidence is shared among the competitors: "min-take-most" (the paper's rule), "joint" (one
        denominator for all competitors), "sequential" (one feature after another, each credited with what it
        adds to those before it; the most faithful order for few features, but it can jump where the order
        changes) or "contrast" (the strongest competitor only)
    threshold : for models that give probabilities, such as mixtures: explain why the probability of the
        cluster is above this threshold (or below it) instead of why it is the largest (Prop. 7)
    background : (m, d) the population on which "auto" and, for the sequential rule, the cluster sizes are
        measured; by default the explained rows. Pass it to explain a few rows of a known table.
    """

    target: Any = None
    against: Any = None
    beta: float | str = "auto"
    rule: str = DEFAULT_RULE
    threshold: float | None = None
    background: Any = None

    def check(self, energy: Energy, where: str) -> None:
        """Raise for a query that no row could answer, before any row is read."""
        beta = self._stiffness(where)
        check_rule(self.rule, where)
        if self.threshold is not None:
            self._check_threshold(energy, beta, where)

    def coded(self, network: HasCodes, where: str = "explain") -> CodedQuery:
        """Return the query with clusters as codes."""
        cluster = None if self.target is None else network.codes.encode(self.target, where, "target")
        competitor = None if self.against is None else network.codes.encode(self.against, where, "against")
        if self.threshold is not None:
            return CodedQuery(cluster, None, SOFT, 1.0, float(self.threshold))
        if competitor is None and self.rule != CONTRAST:
            return CodedQuery(cluster, None, self.rule, self._stiffness(where))
        return CodedQuery(cluster, competitor)

    def _stiffness(self, where: str) -> float | None:
        """Return beta as a number, None for "auto"."""
        if isinstance(self.beta, str) and self.beta == "auto":
            return None
        if is_real(self.beta) and self.beta > 0 and _float(self.beta) > 0.0:  # type: ignore[operator]
            return _float(self.beta)
        raise InvalidInputError(
            f'{where}: beta must be "auto" or a number above 0 (infinity: the nearest competitor takes all); '
            f"got {self.beta!r}."
        )

    def _check_threshold(self, energy: Energy, beta: float | None, where: str) -> None:
        threshold = self.threshold
        if not is_real(threshold) or not 0.0 < threshold < 1.0:  # type: ignore[operator]
            raise InvalidInputError(
                f"{where}: threshold must be a probability between 0 and 1, both excluded; got {threshold!r}."
            )
        if not energy.gives_probabilities:
            raise InvalidInputError(
                f"{where}: threshold is for models that give probabilities, such as Gaussian mixtures; "
                "this one only compares its clusters. Leave it out."
            )
        if self.against is not None or beta is not None or self.rule != DEFAULT_RULE:
            raise InvalidInputError(
                f"{where}: threshold compares a cluster with all others together, which fixes how they "
                "share the evidence; it cannot be combined with against, beta or rule."
            )


def check_rule(rule: Any, where: str) -> None:
    """Raise unless it is the name of a rule."""
    if not isinstance(rule, str) or rule not in RULES:
        raise InvalidInputError(f"{where}: rule must be one of {', '.join(map(repr, RULES))}; got {rule!r}.")


def _float(number: Any) -> float:
    try:
        return float(number)
    except OverflowError:  # an integer of more than 308 digits
        return float("inf")
