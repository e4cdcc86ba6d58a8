"""A warning if quantities that all rows share were measured on few rows."""

from __future__ import annotations

import warnings

from whycluster.core.attribution import BETA, CodedQuery
from whycluster.core.rules import SEQUENTIAL
from whycluster.data.warnings import FewRowsWarning, level_of_the_caller
from whycluster.explanations.base import BaseExplanation

ENOUGH = 10  # rows per cluster


def warn_of_few_rows(exp: BaseExplanation, query: CodedQuery) -> None:
    """Warn if beta or the sizes were measured on so few rows that more rows would change the explanations."""
    measured = query.to_measure(exp.energy)
    if not measured or (len(exp.labels) < 3 and query.rule != SEQUENTIAL):
        return  # beta and the sizes make no difference if there is only one competitor
    known = exp.agreement if exp.fidelity is None else exp.fidelity
    if known is not None and len(exp) == known.size.sum():
        return  # these are all the rows
    warnings.warn(
        f"explain: {' and '.join(measured)} {'was' if measured == [BETA] else 'were'} measured on only "
        f"{len(exp)} row{'s' * (len(exp) != 1)}, fewer than {ENOUGH} per cluster. As part of a larger table, "
        "the same rows could be explained differently. Pass that table as background="
        f"{', or pass beta=' * (measured == [BETA])}.",
        FewRowsWarning,
        stacklevel=level_of_the_caller(),
    )
