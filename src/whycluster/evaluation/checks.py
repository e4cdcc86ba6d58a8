"""Sanity checks of explanations: do they behave as explanations should?"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.stats import rankdata

from whycluster.core.arrays import Floats
from whycluster.core.errors import InvalidInputError
from whycluster.core.rules import DEFAULT_RULE
from whycluster.data import display
from whycluster.data.validation import check_whole
from whycluster.evaluation.methods import Method, named
from whycluster.evaluation.subject import Subject
from whycluster.models.network import check_rule

_GRID = 33  # points of a way that is searched for a jump
_HALVINGS = 30
_PAIRS = 100
_SHUFFLES = 10
_REFITS = 20
_STABLE = 0.7


class DoesNotApplyError(InvalidInputError):
    """A check that cannot be made of this model and these rows."""


@dataclass(frozen=True)
class Check:
    """What a check found.

    Attributes
    ----------
    name : of the check
    value : what was measured
    limit : what it must not exceed, or with ``at_least`` not fall below
    meaning : the value in words
    """

    name: str
    value: float
    limit: float
    meaning: str
    at_least: bool = False

    @property
    def holds(self) -> bool:
        """Whether the explanation behaves."""
        return self.value >= self.limit if self.at_least else self.value <= self.limit

    def __str__(self) -> str:
        return f"{self.name}: {'holds' if self.holds else 'FAILS'} ({self.meaning})"


@dataclass(frozen=True)
class Checks:
    """All checks; `print` it.

    Attributes
    ----------
    rule : that was checked
    checks : those that could be made
    left_out : those that could not, and why
    """

    rule: str
    checks: tuple[Check, ...]
    left_out: dict[str, str]

    @property
    def hold(self) -> bool:
        """Whether all do."""
        return all(check.holds for check in self.checks)

    def __str__(self) -> str:
        rows = [
            [
                c.name,
                "holds" if c.holds else "FAILS",
                f"{c.value:.3g}",
                f"{'>' if c.at_least else '<'} {c.limit:g}",
            ]
            for c in self.checks
        ]
        table = display.table([f"rule {self.rule!r}", "", "value", "must be"], rows, "<<>>")
        told = [f"{check.name}: {check.meaning}" for check in self.checks]
        told += [f"left out: {name} ({why})" for name, why in self.left_out.items()]
        return "\n".join([table, "", *told])


def run(model: Any, X: Any, *, rule: str = DEFAULT_RULE, random_state: int = 0) -> Checks:
    """All checks of a model's explanations that can be made; the others are said.

    Parameters
    ----------
    model : anything that `neuralize` takes
    X : (n, d) rows
    rule : as in `explain`
    random_state : seed
    """
    check_rule(rule, "checks.run")
    check_whole(random_state, 0, "checks.run", "random_state")
    subject = Subject(model, X, "checks.run")

    def by_rule(of: Subject) -> Floats:
        return of.explain(rule).relevance

    calls: dict[str, Callable[[], Check]] = {
        "conservation": lambda: _conservation(subject, rule),
        "continuity": lambda: _continuity(subject, rule, random_state),
        "randomisation": lambda: _randomisation(subject, by_rule, _SHUFFLES, random_state),
        "stability": lambda: _stability(subject, model, rule, _REFITS, random_state),
    }
    found, left_out = [], {}
    for name, call in calls.items():
        try:
            found.append(call())
        except DoesNotApplyError as error:  # noqa: PERF203  # four times
            left_out[name] = str(error)
    return Checks(rule, tuple(found), left_out)


def conservation(model: Any, X: Any, *, rule: str = DEFAULT_RULE) -> Check:
    """Whether the relevances of a row add up to its evidence.

    The value is the largest difference over all rows, as a part of the mean evidence. It is 0 but for
    rounding where all of the evidence is the features'; weights of mixture components, and what soft minima
    dissipate, is not, and then the check does not apply.
    """
    check_rule(rule, "conservation")
    return _conservation(Subject(model, X, "conservation"), rule)


def _conservation(subject: Subject, rule: str) -> Check:
    answer = subject.explain(rule)
    assert subject.network is not None
    if not subject.network.energy.adds_up:
        raise DoesNotApplyError(
            f"{subject.where}: of this model a part of the evidence is due to no feature, so that relevance "
            "need not add up to it; see Explanation.residual."
        )
    gap = np.abs(answer.relevance.sum(axis=1) - answer.evidence)
    value = float(gap.max() / max(np.abs(answer.evidence).mean(), np.finfo(float).tiny))
    meaning = f"relevance and evidence differ by {value:.2g} of the mean evidence at most"
    return Check("conservation", value, 1e-9, meaning)


def continuity(model: Any, X: Any, *, rule: str = DEFAULT_RULE, random_state: int = 0) -> Check:
    """Whether a small move of a row changes its relevance only a little, as long as it stays in its cluster.

    On straight ways between rows of a cluster, the largest jump is searched by halving: what is left of it on
    a way a billion times shorter is a discontinuity. The value is the largest found, as a part of the mean
    absolute relevance of a row.
    """
    check_rule(rule, "continuity")
    check_whole(random_state, 0, "continuity", "random_state")
    return _continuity(Subject(model, X, "continuity"), rule, random_state)


def _continuity(subject: Subject, rule: str, random_state: int) -> Check:
    answer = subject.explain(rule)
    size = max(np.abs(answer.relevance).sum(axis=1).mean(), np.finfo(float).tiny)

    def relevance(rows: Floats) -> Floats:
        return subject.explain(rule, rows, answer.beta).relevance

    start, stop = _ways(subject, random_state)
    if not len(start):
        raise DoesNotApplyError(
            f"{subject.where}: X must have two rows of one cluster with nothing but that cluster between "
            "them; there are none. Give more rows."
        )
    jump = _search_jumps(relevance, start, stop)
    value = float(jump.max() / size)
    meaning = f"a tiny move changes the relevance by {value:.2g} of its usual size at most"
    return Check("continuity", value, 1e-3, meaning)


def randomisation(
    model: Any, X: Any, *, method: str | Method = "neon", shuffles: int = _SHUFFLES, random_state: int = 0
) -> Check:
    """Whether the relevance is that of this model: it must change when the centroids are shuffled.

    Their coordinates, in standard deviations, are dealt out to other features, and half of them mirrored.
    The value is the mean rank correlation, row by row, of the relevance before and after; about 0 is right,
    1 means that the model does not matter.
    """
    check_whole(shuffles, 1, "randomisation", "shuffles")
    check_whole(random_state, 0, "randomisation", "random_state")
    chosen = named(method, "randomisation")
    subject = Subject(model, X, "randomisation")
    return _randomisation(subject, lambda of: chosen.of(of, random_state), shuffles, random_state)


def _randomisation(
    subject: Subject, explain: Callable[[Subject], Floats], shuffles: int, random_state: int
) -> Check:
    _check_numbers(subject)
    if subject.n_features < 2:
        raise DoesNotApplyError(f"{subject.where}: X must have at least 2 features to be shuffled; got 1.")
    before = explain(subject)
    rng = np.random.default_rng(random_state)
    mean, scale = subject.rows.mean(axis=0), subject.rows.std(axis=0)
    scale[scale == 0.0] = 1.0
    correlations = []
    for _ in range(shuffles):
        order, sign = _derangement(subject.n_features, rng), _half_mirrored(subject.n_features, rng)
        factor = sign * scale / scale[order]
        after = explain(subject.shuffled(order, factor, mean - factor * mean[order]))
        correlations.append(_rank_correlation(before, after).mean())
    value = float(np.mean(correlations))
    meaning = f"after shuffling the model, rank correlation with the relevance before is {value:.2f}"
    return Check("randomisation", value, 0.5, meaning)


def stability(
    model: Any, X: Any, *, rule: str = DEFAULT_RULE, refits: int = _REFITS, random_state: int = 0
) -> Check:
    """Whether the ranking of features would be the same had other rows of the same kind been clustered.

    The model is fitted again to bootstrap samples of X. The value is the rank correlation of the features'
    relevance in each cluster, before and after, averaged over clusters and refits, with clusters counting as
    often as they have members.
    """
    check_rule(rule, "stability")
    check_whole(refits, 1, "stability", "refits")
    check_whole(random_state, 0, "stability", "random_state")
    return _stability(Subject(model, X, "stability"), model, rule, refits, random_state)


def _stability(subject: Subject, model: Any, rule: str, refits: int, random_state: int) -> Check:
    _check_numbers(subject)
    _check_can_be_fitted(model, subject)
    from sklearn.base import clone

    before = _cluster_means(subject, subject.explain(rule).relevance)
    sizes = np.bincount(subject.cluster, minlength=len(before))
    there = sizes > 0
    rng = np.random.default_rng(random_state)
    values = []
    for _ in range(refits):
        sample = rng.integers(subject.n_rows, size=subject.n_rows)
        again = Subject(clone(model).fit(subject.rows[sample]), subject.rows, subject.where)
        after = _cluster_means(subject, again.explain(rule).relevance)
        values.append(np.average(_rank_correlation(before[there], after[there]), weights=sizes[there]))
    value = float(np.mean(values))
    meaning = f"fitted again to resampled rows, features keep their rank with a correlation of {value:.2f}"
    if value < _STABLE:
        meaning += "; there may be too many clusters, or none"
    return Check("stability", value, _STABLE, meaning, at_least=True)


def _check_numbers(subject: Subject) -> None:
    if subject.categorical.any():
        name = subject.table.feature_names[int(np.argmax(subject.categorical))]
        raise DoesNotApplyError(
            f"{subject.where}: X must hold numbers only for this check; {name!r} holds categories."
        )


def _ways(subject: Subject, random_state: int) -> tuple[Floats, Floats]:
    """Straight ways between rows of one cluster that do not leave it, (p, d) starts and stops."""
    rng = np.random.default_rng(random_state)
    first = rng.integers(subject.n_rows, size=10 * _PAIRS)
    second = rng.integers(subject.n_rows, size=10 * _PAIRS)
    pairs = np.flatnonzero((subject.cluster[first] == subject.cluster[second]) & (first != second))[:_PAIRS]
    start, stop = subject.rows[first[pairs]], subject.rows[second[pairs]]
    part = np.linspace(0.0, 1.0, _GRID)[:, None, None]
    inside = subject.stays(start + part * (stop - start), subject.cluster[first[pairs]]).all(axis=0)
    return start[inside], stop[inside]


def _search_jumps(relevance: Callable[[Floats], Floats], start: Floats, stop: Floats) -> Floats:
    """The jump of the relevance that is left of each way when it is halved again and again, (p,)."""
    d = start.shape[1]
    part = np.linspace(0.0, 1.0, _GRID)[:, None, None]
    points = start + part * (stop - start)
    values = relevance(points.reshape(-1, d)).reshape(points.shape)
    steepest = np.abs(np.diff(values, axis=0)).sum(axis=2).argmax(axis=0)
    at = np.arange(len(start))
    (a, b), (at_a, at_b) = [(of[steepest, at].copy(), of[steepest + 1, at].copy()) for of in (points, values)]
    for _ in range(_HALVINGS):
        middle = (a + b) / 2
        at_middle = relevance(middle)
        first = np.abs(at_middle - at_a).sum(axis=1) >= np.abs(at_b - at_middle).sum(axis=1)
        b[first], at_b[first] = middle[first], at_middle[first]
        a[~first], at_a[~first] = middle[~first], at_middle[~first]
    return np.asarray(np.abs(at_b - at_a).sum(axis=1))


def _derangement(n: int, rng: np.random.Generator) -> Any:
    """An order in which nothing stays where it is."""
    order = rng.permutation(n)
    result = np.empty(n, dtype=np.intp)
    result[order] = np.roll(order, 1)
    return result


def _half_mirrored(n: int, rng: np.random.Generator) -> Floats:
    return rng.permutation(np.where(np.arange(n) % 2 == 0, -1.0, 1.0))


def _rank_correlation(a: Floats, b: Floats) -> Floats:
    """Spearman's correlation, row by row, (n,); 0 where a row has only ties."""
    a, b = rankdata(a, axis=1), rankdata(b, axis=1)
    a, b = a - a.mean(axis=1, keepdims=True), b - b.mean(axis=1, keepdims=True)
    size = np.sqrt((a**2).sum(axis=1) * (b**2).sum(axis=1))
    return np.asarray((a * b).sum(axis=1) / np.where(size > 0, size, 1.0))


def _cluster_means(subject: Subject, relevance: Floats) -> Floats:
    """Mean relevance over the members of each cluster, (K, d)."""
    sums = np.zeros((subject.cluster.max() + 1, subject.n_features))
    np.add.at(sums, subject.cluster, relevance)
    return sums / np.maximum(np.bincount(subject.cluster), 1)[:, None]


def _check_can_be_fitted(model: Any, subject: Subject) -> None:
    """Raise unless a copy of the model can be fitted to other rows, and to nothing but rows."""
    if isinstance(model, type) or not all(hasattr(model, name) for name in ("fit", "get_params")):
        raise DoesNotApplyError(
            f"{subject.where}: model must be an estimator that can be fitted again; got "
            f"{type(model).__name__}."
        )
    more = [p for p in list(inspect.signature(model.fit).parameters.values())[1:] if p.default is p.empty]
    per_row = [name for name, value in model.get_params().items() if np.shape(value)[:1] == (subject.n_rows,)]
    if any(p.kind is p.POSITIONAL_OR_KEYWORD for p in more) or per_row:
        raise DoesNotApplyError(
            f"{subject.where}: model must be fitted to rows alone, so that it can be to other rows; "
            f"{type(model).__name__} also needs {', '.join([p.name for p in more] + per_row)}."
        )
