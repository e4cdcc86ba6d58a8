"""All checks of an explanation, in order of decreasing importance."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from whycluster.data import display
from whycluster.data.display import format_name, join_first
from whycluster.explanations.base import BaseExplanation
from whycluster.explanations.checks import clusters, columns, values
from whycluster.explanations.checks.context import Context
from whycluster.explanations.checks.finding import Check, Finding, check_of
from whycluster.explanations.explanation import Explanation
from whycluster.explanations.stories.member_sample import MemberSample
from whycluster.explanations.summaries.summary import Summary

_OF_COLUMNS = (
    columns.check_one_column,
    columns.check_labels,
    columns.check_driven,
    columns.check_missing,
    values.check_constant,
    values.check_repeated,
    values.check_skewed,
)


def warnings(
    exp: BaseExplanation, left_out: Mapping[Any, str] | None = None, summary: Summary | None = None
) -> list[Finding]:
    """Return warnings about an explanation, in order of decreasing importance.

    Parameters
    ----------
    exp, left_out, summary : as in `checks`
    """
    return [finding for check in checks(exp, left_out, summary) for finding in check.findings]


def checks(
    exp: BaseExplanation,
    left_out: Mapping[Any, str] | None = None,
    summary: Summary | None = None,
    sample: MemberSample | None = None,
) -> list[Check]:
    """Return all checks that were run, each with its warnings or with the figure that ruled them out.

    Parameters
    ----------
    exp : the explanation; warnings about columns are only given for tables
    left_out : columns that were left out before clustering, with the reasons
    summary : the summary of the explanation, for tables, if already computed
    sample : the sample of the members, if already drawn
    """
    made = [clusters.check_fidelity(exp), clusters.check_residual(exp), clusters.check_noise(exp)]
    if isinstance(exp, Explanation):
        context = Context(exp, exp.summary() if summary is None else summary)
        made += [check(context) for check in _OF_COLUMNS]
    made += [clusters.check_sizes(exp), clusters.check_alike(exp, sample), clusters.check_borderline(exp)]
    if left_out is not None:
        found = _left_out(left_out) if left_out else []
        made.append(check_of("columns left out", found, "none"))
    return made


def _left_out(left_out: Mapping[Any, str]) -> list[Finding]:
    reasons = [f'"{format_name(name)}" ({reason})' for name, reason in left_out.items()]
    one = len(reasons) == 1
    text = (
        f"{display.count(len(reasons), 'column')} {'was' if one else 'were'} left out, so the clusters do "
        f"not depend on {'it' if one else 'them'}: {join_first(reasons)}. Make sure that "
        f"{'it does not matter' if one else 'none of them matters'}."
    )
    return [Finding("left out", text, feature=next(iter(left_out)) if one else None)]
