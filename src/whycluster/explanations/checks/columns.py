"""Checks of columns with much of the relevance: single columns, identifiers, dates, years and labels."""

from __future__ import annotations

import re
from collections.abc import Iterator

import numpy as np

from whycluster.core.arrays import Floats
from whycluster.data.column_checks import identifiers_and_dates
from whycluster.data.display import capitalize, format_name, format_names, percent
from whycluster.data.labels import list_clusters
from whycluster.explanations.checks.clusters import ENOUGH, FEW_ROWS
from whycluster.explanations.checks.context import Context, Values, determined
from whycluster.explanations.checks.finding import (
    Check,
    Finding,
    again,
    at_least,
    check_of,
    cluster_text,
)
from whycluster.explanations.explanation import Explanation
from whycluster.explanations.summaries.statements import MISSING
from whycluster.explanations.summaries.summary import Summary

USED = 0.05  # share of the relevance of a cluster from which a column counts

_ONE_COLUMN = 0.9  # share of all relevance, or of all variance
_ONE_CLUSTER = 0.75  # share of the relevance of a cluster
_DRIVES = 0.3  # share of the relevance of a cluster
_RESTS_ON = 0.25  # share of the relevance of a cluster
_FIRST_YEAR, _LAST_YEAR, _FEW_YEARS = 1900, 2100, 3
_FIRST_NAMED_YEAR = 1000  # of columns that are named like years
_MOST_LABELS = 50
_COINCIDES, _GAIN = 0.95, 0.9  # share of rows, and of the errors of guessing
_LABELS = {"label", "labels", "class", "target", "cluster", "clusters", "segment", "species", "outcome"}


def check_one_column(context: Context) -> Check:
    """Check whether one column carries most of the relevance, overall or in a cluster."""
    exp = context.exp
    name = "one column"
    if context.n_rows < ENOUGH:
        return Check(name, FEW_ROWS)
    if len(context.names) < 3:
        return Check(name, "not checked: fewer than 3 columns")
    found = list(_one_column(exp))
    if not found:
        found = list(_one_cluster(exp, context.summary))
    return check_of(name, found, _largest_share(context.summary))


def _share_without_noise(summary: Summary) -> Floats:
    """Return the shares, (G, d), with 0 for noise."""
    return np.where(summary.compared.is_noise[:, None], 0.0, summary.share)


def _largest_share(summary: Summary) -> str:
    share = _share_without_noise(summary)
    if not share.max(initial=0.0) > 0:
        return "no column has a positive share"
    group, column = np.unravel_index(int(share.argmax()), share.shape)
    name, where = format_name(summary.feature_names[column]), cluster_text(summary.clusters[group])
    return f'the largest share is {percent(share.max())}, of "{name}" in {where}'


def _one_column(exp: Explanation) -> Iterator[Finding]:
    """Warn if one of three or more columns carries nearly all relevance."""
    d = len(exp.feature_names)
    total = np.zeros(d)
    for rows in exp.table.slices():
        total += np.abs(exp.relevance[rows]).sum(axis=0, dtype=np.float64)
    first = int(total.argmax())
    if not total[first] > _ONE_COLUMN * total.sum():
        return
    name, spread = exp.feature_names[first], exp.table.variances()
    text = f'"{format_name(name)}" carries {percent(total[first] / total.sum())} of all relevance'
    if exp.energy.gives_probabilities:  # a mixture estimates variances, so units do not matter
        spread = None
    if exp.fidelity is not None:  # a surrogate chooses its own scale
        text += (
            f", so the other {d - 1} columns hardly count. The surrogate tells the labels apart almost only "
            f"by this column."
        )
    elif spread is not None and spread[first] > _ONE_COLUMN * spread.sum():
        text += (
            f" and has {percent(spread[first] / spread.sum())} of the variance of all columns, so "
            f"the other {d - 1} columns hardly count. If that is only due to its "
            f"units, standardize the columns and cluster again."
        )
    else:
        text += (
            f", so the other {d - 1} columns hardly count. If that is not "
            f"intended, leave it out and cluster again."
        )
    yield Finding("one column", text, feature=name)


def _one_cluster(exp: Explanation, summary: Summary) -> Iterator[Finding]:
    """Warn if one of three or more columns carries most of the relevance of a cluster."""
    share = _share_without_noise(summary)
    for column in np.flatnonzero((share > _ONE_CLUSTER).any(axis=0)).tolist():
        groups = np.flatnonzero(share[:, column] > _ONE_CLUSTER)
        clusters, name = summary.clusters[groups], exp.feature_names[column]
        one, is_exact = len(groups) == 1, exp.fidelity is None
        depends = "it depends mostly on" if one else "they depend mostly on"
        recognizes = f"the surrogate recognizes {'it' if one else 'them'} mostly by"
        largest = "up to " * (not one) + percent(share[groups, column].max())
        yield Finding(
            "one column of a cluster",
            f'"{format_name(name)}" carries {largest} of the relevance of '
            f"{list_clusters(format_names(clusters.tolist()))}, so {depends if is_exact else recognizes} "
            f"this one column."
            + " If that is not intended, leave the column out and cluster again."
            * is_exact,
            tuple(clusters.tolist()),
            name,
        )


def check_driven(context: Context) -> Check:
    """Check whether clusters depend on identifiers, dates or years."""
    found = _driven(context.exp, context.summary)
    known = {finding.feature for finding in found}
    none = f"no identifier or date carries {_DRIVES:.0%} of a cluster"
    if context.n_rows >= ENOUGH:
        found += [each for each in _years(context) if each.feature not in known]
        none += f", and no year {USED:.0%}"
    return check_of("identifiers, dates and years", found, none)


def _driven(exp: Explanation, summary: Summary) -> list[Finding]:
    """Warn about clusters that depend on an identifier or a date, with identifiers before dates."""
    identifiers, dates = [], []
    share = summary.share
    columns = np.flatnonzero((share >= _DRIVES).any(axis=0)).tolist()
    for column, (reason, is_date) in zip(columns, identifiers_and_dates(exp.table, columns), strict=True):
        if not reason and not is_date:
            continue
        driven = np.flatnonzero(share[:, column] >= _DRIVES)
        clusters, name = summary.clusters[driven], exp.feature_names[column]
        largest = "up to " * (len(driven) > 1) + percent(share[driven, column].max())
        listed = list_clusters(format_names(clusters.tolist()))
        carries = f"carries {largest} of the relevance of {listed}"
        if reason:
            identifiers.append(
                Finding(
                    "identifier",
                    f'"{format_name(name)}" {carries}, and looks {reason.replace(",", ":", 1)}. An '
                    f"identifier names a row but does not describe it. Leave the column out and "
                    f"{again(exp)}.",
                    tuple(clusters.tolist()),
                    name,
                )
            )
        else:
            dates.append(
                Finding(
                    "date",
                    f'"{format_name(name)}" {carries}, and holds dates. Rows may be grouped by time, not '
                    f"by what they are like. If that is not intended, leave the column "
                    f"out, or replace it with a feature derived from it, such as an age or the month.",
                    tuple(clusters.tolist()),
                    name,
                )
            )
    return identifiers + dates


def _years(context: Context) -> Iterator[Finding]:
    for column, values in context.read(USED).items():
        name = context.names[column]
        years = _as_years(values, str(name))
        if years is None:
            continue
        share = context.summary.share[:, column]
        clusters = context.summary.clusters[share >= USED]
        largest = "up to " * (len(clusters) > 1) + percent(share.max())
        yield Finding(
            "year",
            f'"{format_name(name)}" carries {largest} of the relevance of '
            f"{list_clusters(format_names(clusters.tolist()))}, and holds years, from {years[0]} to "
            f"{years[1]}. Rows may be grouped by time, not by what they are like. If that is not intended, "
            f"leave the column out.",
            tuple(clusters.tolist()),
            name,
        )


def _as_years(values: Values, name: str) -> tuple[int, int] | None:
    """Return the first and the last year of a column, or None if it does not hold years."""
    if values.numbers is None:
        return None
    numbers = values.numbers[~np.isnan(values.numbers)]
    if len(numbers) < ENOUGH or (numbers != np.rint(numbers)).any():
        return None
    first, last = int(numbers.min()), int(numbers.max())
    named = re.search(r"(?<![a-z])(year|yr|jahr|annee|anno)(?![a-z])", name.lower())
    enough = len(values.distinct) >= (2 if named else _FEW_YEARS)
    earliest = _FIRST_NAMED_YEAR if named else _FIRST_YEAR
    return (first, last) if enough and first >= earliest and last <= _LAST_YEAR else None


def check_labels(context: Context) -> Check:
    """Check whether a label was left among the columns."""
    if context.n_rows < ENOUGH:
        return Check("labels among the columns", FEW_ROWS)
    found = [each for pair in context.read(USED).items() for each in _label(context, *pair)]
    return check_of("labels among the columns", found, "no column coincides with the clusters")


def _label(context: Context, column: int, values: Values) -> Iterator[Finding]:
    exp = context.exp
    if not 2 <= len(values.distinct) <= min(_MOST_LABELS, len(values.codes) // 5):
        return
    name, clusters = context.names[column], exp.cluster_codes[context.rows]
    pairs = determined(values.codes, clusters), determined(clusters, values.codes)
    shown = f'"{format_name(name)}"'
    is_repeated = (
        "is a label that the clusters were meant to find"
        if exp.fidelity is None
        else "only repeats the labels"
    )
    advice = f"{is_repeated}, leave it out and {again(exp)}."
    share = min(pair[0] for pair in pairs)
    nearly = "nearly " * (share < 1.0 or len(context.rows) < context.n_rows)
    if share >= _COINCIDES and min(pair[1] for pair in pairs) >= _GAIN:
        yield Finding(
            "label",
            f"{shown} and the clusters {nearly}coincide: each of them determines the other for "
            f"{at_least(share)} rows{context.sampled}. If {shown} {advice}",
            feature=name,
        )
    elif _LABELS & set(re.split(r"[^a-z]+", str(name).lower())):
        yield Finding(
            "label",
            f"{shown} is named like a label, has {len(values.distinct)} distinct values, and carries up to "
            f"{percent(context.summary.share[:, column].max())} of the relevance of a cluster. If it "
            f"{advice}",
            feature=name,
        )


def check_missing(context: Context) -> Check:
    """Check whether clusters depend on missing values."""
    return check_of("missing values", _missing(context), "no cluster depends on missing values")


def _missing(context: Context) -> Iterator[Finding]:
    summary = context.summary
    rests = (summary.direction == MISSING) & (summary.share >= _RESTS_ON)
    for group, column in np.argwhere(rests).tolist():
        label, name = summary.clusters[group], summary.feature_names[column]
        inside, outside = summary.inside[group, column], summary.outside[group, column]
        elsewhere = "" if np.isnan(outside) else f" ({percent(outside)} elsewhere)"
        yield Finding(
            "missing values",
            f'{capitalize(cluster_text(label))} depends on missing values: "{format_name(name)}" is missing '
            f"in {percent(inside)} of its rows{elsewhere} and carries "
            f"{percent(summary.share[group, column])} of its relevance. Rows may be grouped by how they were "
            f"recorded, not by what they are like. Find out why the values are missing; fill "
            f"them in or leave the column out, and {again(context.exp)}.",
            (summary.clusters.tolist()[group],),
            name,
        )
