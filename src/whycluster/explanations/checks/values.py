"""Checks of the values of columns: nearly constant, repeating another column, or skewed."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import combinations
from typing import NamedTuple

import numpy as np

from whycluster.core.arrays import Floats
from whycluster.data import display
from whycluster.data.display import MOST_LISTED, format_name, format_names, percent
from whycluster.explanations.checks.clusters import ENOUGH, FEW_ROWS
from whycluster.explanations.checks.columns import USED
from whycluster.explanations.checks.context import Context, Values, determined
from whycluster.explanations.checks.finding import Check, Finding, again, at_least, check_of

_NEARLY_CONSTANT, _LEAST_ROWS = 0.98, 50  # share of the rows, and rows needed
_REPEATS = 0.95  # absolute correlation, or share of rows
_GAIN = 0.9  # share of the errors of guessing
_COUNTS = 0.02  # share of the relevance of a cluster from which a repeated column counts
_SKEWED = 3.0
_FEW_VALUES = 10  # fewer distinct values have no skewness
_MOST_CATEGORIES = 50


def check_constant(context: Context) -> Check:
    """Check whether columns are nearly constant."""
    name = "nearly constant columns"
    if context.n_rows < _LEAST_ROWS:
        return Check(name, f"not checked: fewer than {_LEAST_ROWS} rows")
    found = [each for pair in context.read(USED).items() for each in _nearly_constant(context, *pair)]
    return check_of(name, found, "none")


def _nearly_constant(context: Context, column: int, values: Values) -> Iterator[Finding]:
    first = int(values.size.argmax())
    share = values.size[first] / len(values.codes)
    if _NEARLY_CONSTANT <= share < 1.0:
        name = context.names[column]
        are = "are missing" if values.distinct[first] is None else f"are {values.format(first)}"
        yield Finding(
            "nearly constant",
            f'"{format_name(name)}" is nearly constant: {percent(share)} of its values '
            f"{are}{context.sampled}. Scaled to unit variance, the few others become extreme, and can form a "
            f"cluster of their own. Leave the column out, or check that these few rows matter that much.",
            feature=name,
        )


class _Pair(NamedTuple):
    """Two columns and how closely they agree."""

    agreement: float
    first: int
    second: int
    text: str


def check_repeated(context: Context) -> Check:
    """Check whether a column nearly repeats another."""
    name = "repeated columns"
    if context.n_rows < ENOUGH:
        return Check(name, FEW_ROWS)
    if context.exp.energy.gives_probabilities:
        return Check(name, "not checked: a mixture estimates how columns vary")
    pairs = sorted([*_correlated(context), *_same_categories(context)], key=lambda pair: -pair.agreement)
    if not pairs:
        return Check(name, "none")
    repeated = [pair for pair in pairs if pair.agreement >= _REPEATS]
    found = [_repeats(context, pair) for pair in repeated[:MOST_LISTED]]
    if len(repeated) > MOST_LISTED:
        more = display.count(len(repeated) - MOST_LISTED, "more pair")
        found[-1] = found[-1]._replace(text=f"{found[-1].text} The same holds for {more} of columns.")
    names = context.names
    most = " and ".join(f'"{name}"' for name in format_names([names[i] for i in pairs[0][1:3]]))
    return check_of(name, found, f"the most similar are {most}: {pairs[0].text}")


def _repeats(context: Context, pair: _Pair) -> Finding:
    names = context.names
    first, second = format_names([names[pair.first], names[pair.second]])
    return Finding(
        "repeated",
        f'"{second}" nearly repeats "{first}": {pair.text}{context.sampled}. What both measure counts twice. '
        f"Leave one of the two out and {again(context.exp)}.",
        feature=names[pair.second],
    )


def _correlated(context: Context) -> Iterator[_Pair]:
    """Yield the pairs of numeric columns, as the model sees them, with their correlation."""
    columns, x = _numeric_inputs(context)
    if len(columns) < 2:
        return
    correlation = np.atleast_2d(np.corrcoef(x, rowvar=False))
    for a, b in combinations(range(len(columns)), 2):
        first, second = sorted((columns[a], columns[b]))
        r = float(correlation[a, b])
        text = f"{r:.3f}" if abs(r) < 0.9995 else "above 0.999" if r > 0 else "below -0.999"
        yield _Pair(abs(r), first, second, f"their correlation is {text}")


def _numeric_inputs(context: Context) -> tuple[list[int], Floats]:
    """Return the numeric columns that count, and for each the input of the model with the most values."""
    if context.inputs is None:
        return [], np.empty((0, 0))
    x, source = context.inputs
    columns, chosen = [], []
    for column, values in context.read(_COUNTS).items():
        own = np.flatnonzero(source == column)
        if values.numbers is None or not own.size:
            continue
        best = own[np.argmax([len(np.unique(x[:, i])) for i in own])]
        if np.ptp(x[:, best]) > 0:
            columns.append(column)
            chosen.append(best)
    return columns, x[:, chosen]


def _same_categories(context: Context) -> Iterator[_Pair]:
    """Yield the pairs of categorical columns that determine each other, with the share of such rows."""
    codes = {
        column: values.codes
        for column, values in context.read(_COUNTS).items()
        if values.numbers is None and 2 <= len(values.distinct) <= _MOST_CATEGORIES
    }
    for first, second in combinations(sorted(codes), 2):
        a, b = codes[first], codes[second]
        both = determined(a, b), determined(b, a)
        if min(gain for _, gain in both) >= _GAIN:
            share = min(share for share, _ in both)
            text = f"each of them determines the other for {at_least(share)} rows"
            yield _Pair(share, first, second, text)


def check_skewed(context: Context) -> Check:
    """Check whether columns are heavily skewed in the inputs of the model."""
    name = "skewed columns"
    if context.n_rows < ENOUGH:
        return Check(name, FEW_ROWS)
    columns, x = _numeric_inputs(context)
    used = context.used(USED)
    skewness = [
        (column, _skewness(values))
        for column, values in zip(columns, x.T, strict=True)
        if column in used and len(np.unique(values)) >= _FEW_VALUES
    ]
    if not skewness:
        return Check(name, f"not checked: no numeric column that counts has {_FEW_VALUES} distinct values")
    skewness.sort(key=lambda pair: -abs(pair[1]))
    column, largest = skewness[0]
    found = [_skewed(context, *pair) for pair in skewness if abs(pair[1]) >= _SKEWED]
    shown = format_name(context.names[column])
    return check_of(name, found, f'the largest skewness is {largest:.1f}, of "{shown}"')


def _skewed(context: Context, column: int, skewness: float) -> Finding:
    name = context.names[column]
    if context.exp.fidelity is None:
        advice = (
            "A few extreme rows can form clusters of their own, and differences among the other rows then "
            "count little. Cluster its logarithm or its ranks instead."
        )
    else:
        advice = (
            "Differences among rows that are not extreme may then count little in the surrogate. Explain the "
            "labels with its logarithm or its ranks instead."
        )
    return Finding(
        "skewed",
        f'"{format_name(name)}" is heavily skewed: its skewness is {skewness:.1f}'
        f"{context.sampled}, and 0 would be symmetric. {advice}",
        feature=name,
    )


def _skewness(values: Floats) -> float:
    moved = values - values.mean()
    deviation = float(np.sqrt(np.square(moved).mean()))
    return float(np.power(moved / deviation, 3).mean()) if deviation > 0 else 0.0
