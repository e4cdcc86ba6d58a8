"""A warning if quantities that all rows share were measured on few rows."""

from __future__ import annotations

import warnings

from whycluster.core.errors import FewRowsWarning, level_of_the_caller
from whycluster.core.rules import SEQUENTIAL, WITH_PRIOR
from whycluster.explanations.base import BaseExplanation

ENOUGH = 10  # rows per cluster


def warn_of_few_rows(exp: BaseExplanation, rule: str) -> None:
    """Warn that beta was measured on so few rows that more rows would change the explanations."""
    if len(exp.labels) < 3 and rule != SEQUENTIAL:
        return  # beta and the sizes make no difference if there is only one competitor
    if exp.fidelity is not None and len(exp) == exp.fidelity.size.sum():
        return  # a surrogate has seen all rows that there are
    what = "beta and the cluster sizes were" if rule in WITH_PRIOR else "beta was"
    warnings.warn(
        f"explain: {what} measured on only {len(exp)} row{'s' * (len(exp) != 1)}, fewer than {ENOUGH} per "
        "cluster. As part of a larger table, the same rows could be explained differently. Pass that table "
        f"as background={'' if rule in WITH_PRIOR else ', or pass beta='}.",
        FewRowsWarning,
        stacklevel=level_of_the_caller(),
    )
