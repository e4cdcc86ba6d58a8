"""The claim about a row as a sentence, and the evidence that belongs to none of the row's features alone."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from whycluster.core.evidence import bar_of
from whycluster.data import display
from whycluster.data.labels import NOISE, is_noise
from whycluster.explanations.wording.formatting import Line

_ROUNDING = 1e-6  # a residual below this fraction of the evidence is not listed


@dataclass(frozen=True)
class Claim:
    """The claim about a single row.

    Attributes
    ----------
    row : the kind and the name of the row, such as "Row 7"
    cluster, competitor, assigned : labels of the explained cluster, its strongest competitor, and the
        cluster that the model assigns
    evidence : the evidence for the cluster
    threshold : the probability to exceed, or None if there is no threshold
    is_contrast : whether the evidence is against the competitor only
    by_surrogate : whether a surrogate assigns the cluster
    """

    row: str
    cluster: Any
    competitor: Any
    assigned: Any
    evidence: float
    threshold: float | None
    is_contrast: bool
    by_surrogate: bool

    def sentence(self) -> str:
        """Return the claim as a sentence."""
        cluster, competitor = (display.clean(str(label)) for label in (self.cluster, self.competitor))
        claim = f"{self.row} is {_place(self.assigned, 'in cluster')}"
        is_elsewhere = self.assigned != self.cluster
        if is_elsewhere:  # a given label may differ from the surrogate's prediction
            claim += " according to the surrogate" * self.by_surrogate
            claim += f", not {_place(self.cluster, 'in')}"
        if self.cluster == self.competitor:
            return f"{claim}: a cluster has no evidence against itself"
        if self.threshold is not None:
            side = "above" if self.evidence >= 0 else "below"
            share = f"the probability of {cluster} is {side} {self.threshold:g}"
            return f"{claim}: {share}, evidence {self.evidence:.3g}, nearest competitor {competitor}"
        if self.is_contrast or is_elsewhere:
            return f"{claim}: evidence {self.evidence:.3g} for {cluster} against {competitor}"
        return f"{claim}: evidence {self.evidence:.3g}, nearest competitor {competitor}"


def unattributed_lines(
    evidence: float, residual: float, threshold: float | None, largest: float, name: str
) -> list[Line]:
    """Return lines for the part of the evidence that belongs to no single feature or word."""
    lines = []
    if threshold is not None:
        bar = bar_of(threshold)
        lines.append(Line(f"the threshold {threshold:g}", "", bar, False))
        residual -= bar
    if abs(residual) > _ROUNDING * max(largest, abs(evidence)):
        lines.append(Line(name, "", residual, False))
    return lines


def _place(label: Any, where: str) -> str:
    """Return "in cluster ..." for a label, or just "noise"."""
    return NOISE if is_noise(label) else f"{where} {display.clean(str(label))}"
