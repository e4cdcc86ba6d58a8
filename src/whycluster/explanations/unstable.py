"""Warn about relevance that cancels out."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
from numpy.typing import NDArray

from whycluster.data.warnings import UnstableRelevanceWarning, level_of_the_caller

_FAR_ABOVE = 100.0  # relevance that cancels out to this degree has no meaning


OF_RULES = (
    'Include biases: rules="text", or wc.deep.Composite(..., biases=True); or use a larger gamma or epsilon.'
)
OF_DOCUMENTS = "Choose documents with more evidence, or compare with another cluster: against=."


def warn_if_unstable(total: float, evidence: NDArray[Any], where: str, remedy: str = OF_RULES) -> None:
    """Warn if the absolute relevance is far above the evidence, so that relevance cancels out."""
    strength = float(np.abs(evidence.astype(np.float64)).sum())
    if not total <= _FAR_ABOVE * strength:
        warnings.warn(
            f"{where}: the absolute relevance adds up to {total / max(strength, 1e-300):,.3g} times the "
            f"evidence, so relevance of opposite signs cancels out and has no meaning. {remedy}",
            UnstableRelevanceWarning,
            stacklevel=level_of_the_caller(),
        )
