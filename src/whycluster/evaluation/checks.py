"""Check whether explanations behave as they should."""

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
from whycluster.data.validation import check_integer
from whycluster.evaluation.methods import Method, named
from whycluster.evaluation.subject import Subject
from whycluster.models.network import check_rule

_GRID = 33  # number of points on each path that is searched for a jump
_HALVINGS = 30
_PAIRS = 100
_SHUFFLES = 10
_REFITS = 20
_STABLE = 0.7


class DoesNotApplyError(InvalidInputError):
    """Raised if a check does not apply to the model or the rows."""


@dataclass(frozen=True)
class Check:
    """The result of one check.

    Attributes
    ----------
    name : the name of the check
    value : the measured value
    limit : the largest value that passes, or the smallest if ``at_least`` is True
    meaning : the value in words
    at_least : whether the value must be at least ``limit``, rather than at most
    """

    name: str
    value: float
    limit: float
    meaning: str
    at_least: bool = False

    @property
    def holds(self) -> bool:
        """Whether the explanation passes the check."""
        return self.value >= self.limit if self.at_least else self.value <= self.limit

    def __str__(self) -> str:
        return f"{self.name}: {'holds' if self.holds else 'FAILS'} ({self.meaning})"


@dataclass(frozen=True)
class Checks:
    """The results of all checks; `print` shows them as a table.

    Attributes
    ----------
    rule : the rule under test
    checks : the results of the checks that apply
    left_out : the checks that do not apply, each with the reason
    """

    rule: str
    checks: tuple[Check, ...]
    left_out: dict[str, str]

    @property
    def hold(self) -> bool:
        """Whether the explanations pass all checks that apply."""
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
        notes = [f"{check.name}: {check.meaning}" for check in self.checks]
        notes += [f"left out: {name} ({reason})" for name, reason in self.left_out.items()]
        return "\n".join([table, "", *notes])


def run(model: Any, X: Any, *, rule: str = DEFAULT_RULE, random_state: int = 0) -> Checks:
    """Run all checks that apply to a model's explanations.

    Parameters
    ----------
    model : any model that `neuralize` accepts
    X : (n, d) rows
    rule : the rule to check, as in `explain`
    random_state : random seed

    Returns
    -------
    Checks
        the results and the reason for each check that does not apply
    """
    check_rule(rule, "checks.run")
    check_integer(random_state, 0, "checks.run", "random_state")
    subject = Subject(model, X, "checks.run")

    def by_rule(explained: Subject) -> Floats:
        return explained.explain(rule).relevance

    calls: dict[str, Callable[[], Check]] = {
        "conservation": lambda: _conservation(subject, rule),
        "continuity": lambda: _continuity(subject, rule, random_state),
        "randomization": lambda: _randomization(subject, by_rule, _SHUFFLES, random_state),
        "stability": lambda: _stability(subject, model, rule, _REFITS, random_state),
    }
    found, left_out = [], {}
    for name, call in calls.items():
        try:
            found.append(call())
        except DoesNotApplyError as error:  # noqa: PERF203  # only four iterations
            left_out[name] = str(error)
    return Checks(rule, tuple(found), left_out)


def conservation(model: Any, X: Any, *, rule: str = DEFAULT_RULE) -> Check:
    """Check that the relevance of a row's features adds up to the row's evidence.

    The value is the largest difference over all rows, relative to the mean evidence. It is 0 up to rounding
    if all evidence belongs to features. The check does not apply to models in which some evidence belongs to
    no single feature, such as the component weights of a mixture or the loss in soft minima.

    Parameters
    ----------
    model : any model that `neuralize` accepts
    X : (n, d) rows
    rule : the rule to check, as in `explain`
    """
    check_rule(rule, "conservation")
    return _conservation(Subject(model, X, "conservation"), rule)


def _conservation(subject: Subject, rule: str) -> Check:
    answer = subject.explain(rule)
    assert subject.network is not None
    if not subject.network.energy.adds_up:
        raise DoesNotApplyError(
            f"{subject.where}: all evidence must belong to features; part of this model's evidence belongs "
            "to no single feature. See Explanation.residual."
        )
    gap = np.abs(answer.relevance.sum(axis=1) - answer.evidence)
    value = float(gap.max() / max(np.abs(answer.evidence).mean(), np.finfo(float).tiny))
    meaning = f"relevance and evidence differ by at most {value:.2g} times the mean evidence"
    return Check("conservation", value, 1e-9, meaning)


def continuity(model: Any, X: Any, *, rule: str = DEFAULT_RULE, random_state: int = 0) -> Check:
    """Check that a small move of a row within its cluster changes its relevance only slightly.

    A bisection searches for the largest jump on straight paths between rows of a cluster. A jump that remains
    on a path a billion times shorter is a discontinuity. The value is the largest jump found, relative to the
    mean absolute relevance of a row.

    Parameters
    ----------
    model, X, rule, random_state : as in `run`
    """
    check_rule(rule, "continuity")
    check_integer(random_state, 0, "continuity", "random_state")
    return _continuity(Subject(model, X, "continuity"), rule, random_state)


def _continuity(subject: Subject, rule: str, random_state: int) -> Check:
    answer = subject.explain(rule)
    size = max(np.abs(answer.relevance).sum(axis=1).mean(), np.finfo(float).tiny)

    def relevance(rows: Floats) -> Floats:
        return subject.explain(rule, rows, answer.beta).relevance

    start, stop = _paths(subject, random_state)
    if not len(start):
        raise DoesNotApplyError(
            f"{subject.where}: X must contain two rows of the same cluster with no other cluster between "
            "them; found no such rows. Pass more rows."
        )
    jump = _search_jumps(relevance, start, stop)
    value = float(jump.max() / size)
    meaning = f"a tiny move changes the relevance by at most {value:.2g} times its usual size"
    return Check("continuity", value, 1e-3, meaning)


def randomization(
    model: Any, X: Any, *, method: str | Method = "neon", shuffles: int = _SHUFFLES, random_state: int = 0
) -> Check:
    """Check that the relevance depends on the model, by shuffling the centroids.

    The shuffle moves each coordinate of the centroids, in standard deviations, to another feature and mirrors
    half of the coordinates. The value is the mean rank correlation between each row's relevance before and
    after the shuffle. A value near 0 is expected; 1 means that the relevance does not depend on the model.

    Parameters
    ----------
    model : any model that `neuralize` accepts, or a function that returns the labels of rows
    X : (n, d) rows
    method : the method to check, either a name from `METHODS` or a `Method`
    shuffles : number of random shuffles
    random_state : random seed
    """
    check_integer(shuffles, 1, "randomization", "shuffles")
    check_integer(random_state, 0, "randomization", "random_state")
    chosen = named(method, "randomization")
    subject = Subject(model, X, "randomization")
    return _randomization(
        subject, lambda shuffled: chosen.explain(shuffled, random_state), shuffles, random_state
    )


def _randomization(
    subject: Subject, explain: Callable[[Subject], Floats], shuffles: int, random_state: int
) -> Check:
    _check_numbers(subject)
    if subject.n_features < 2:
        raise DoesNotApplyError(f"{subject.where}: X must have at least 2 features to shuffle; got 1.")
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
    meaning = f"the relevance before and after shuffling the model has a rank correlation of {value:.2f}"
    return Check("randomization", value, 0.5, meaning)


def stability(
    model: Any, X: Any, *, rule: str = DEFAULT_RULE, refits: int = _REFITS, random_state: int = 0
) -> Check:
    """Check that the ranking of features stays stable if the model is fitted to resampled rows.

    The check fits the model to bootstrap samples of X. The value is the rank correlation between the
    features' relevance in each cluster before and after refitting, averaged over refits and over clusters,
    which are weighted by size.

    Parameters
    ----------
    model : any model that `neuralize` accepts; it must be an estimator that can be fitted to other rows
    X : (n, d) rows
    rule : the rule to check, as in `explain`
    refits : number of bootstrap samples
    random_state : random seed
    """
    check_rule(rule, "stability")
    check_integer(refits, 1, "stability", "refits")
    check_integer(random_state, 0, "stability", "random_state")
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
    meaning = f"after a fit to resampled rows, the features' ranks have a correlation of {value:.2f}"
    if value < _STABLE:
        meaning += "; there may be too many clusters, or the data may have no clusters"
    return Check("stability", value, _STABLE, meaning, at_least=True)


def _check_numbers(subject: Subject) -> None:
    if subject.categorical.any():
        name = subject.table.feature_names[int(np.argmax(subject.categorical))]
        raise DoesNotApplyError(
            f"{subject.where}: X must contain only numeric columns for this check; {name!r} is categorical."
        )


def _paths(subject: Subject, random_state: int) -> tuple[Floats, Floats]:
    """Return the starts and the ends, each (p, d), of straight paths that stay within one cluster."""
    rng = np.random.default_rng(random_state)
    first = rng.integers(subject.n_rows, size=10 * _PAIRS)
    second = rng.integers(subject.n_rows, size=10 * _PAIRS)
    pairs = np.flatnonzero((subject.cluster[first] == subject.cluster[second]) & (first != second))[:_PAIRS]
    start, stop = subject.rows[first[pairs]], subject.rows[second[pairs]]
    part = np.linspace(0.0, 1.0, _GRID)[:, None, None]
    inside = subject.stays(start + part * (stop - start), subject.cluster[first[pairs]]).all(axis=0)
    return start[inside], stop[inside]


def _search_jumps(relevance: Callable[[Floats], Floats], start: Floats, stop: Floats) -> Floats:
    """Return the jump in relevance that remains on each path after repeated halving, (p,)."""
    d = start.shape[1]
    part = np.linspace(0.0, 1.0, _GRID)[:, None, None]
    points = start + part * (stop - start)
    values = relevance(points.reshape(-1, d)).reshape(points.shape)
    steepest = np.abs(np.diff(values, axis=0)).sum(axis=2).argmax(axis=0)
    at = np.arange(len(start))
    (a, b), (at_a, at_b) = [
        (array[steepest, at].copy(), array[steepest + 1, at].copy()) for array in (points, values)
    ]
    for _ in range(_HALVINGS):
        middle = (a + b) / 2
        at_middle = relevance(middle)
        first = np.abs(at_middle - at_a).sum(axis=1) >= np.abs(at_b - at_middle).sum(axis=1)
        b[first], at_b[first] = middle[first], at_middle[first]
        a[~first], at_a[~first] = middle[~first], at_middle[~first]
    return np.asarray(np.abs(at_b - at_a).sum(axis=1))


def _derangement(n: int, rng: np.random.Generator) -> Any:
    """Return a random permutation that moves every element."""
    order = rng.permutation(n)
    result = np.empty(n, dtype=np.intp)
    result[order] = np.roll(order, 1)
    return result


def _half_mirrored(n: int, rng: np.random.Generator) -> Floats:
    return rng.permutation(np.where(np.arange(n) % 2 == 0, -1.0, 1.0))


def _rank_correlation(a: Floats, b: Floats) -> Floats:
    """Return Spearman's correlation of each pair of rows, (n,), or 0 if the values of a row are all equal."""
    a, b = rankdata(a, axis=1), rankdata(b, axis=1)
    a, b = a - a.mean(axis=1, keepdims=True), b - b.mean(axis=1, keepdims=True)
    size = np.sqrt((a**2).sum(axis=1) * (b**2).sum(axis=1))
    return np.asarray((a * b).sum(axis=1) / np.where(size > 0, size, 1.0))


def _cluster_means(subject: Subject, relevance: Floats) -> Floats:
    """Return the mean relevance of each cluster's members, (K, d)."""
    sums = np.zeros((subject.cluster.max() + 1, subject.n_features))
    np.add.at(sums, subject.cluster, relevance)
    return sums / np.maximum(np.bincount(subject.cluster), 1)[:, None]


def _check_can_be_fitted(model: Any, subject: Subject) -> None:
    """Raise an error unless a copy of the model can be fitted to other rows without further data."""
    if isinstance(model, type) or not all(hasattr(model, name) for name in ("fit", "get_params")):
        raise DoesNotApplyError(
            f"{subject.where}: model must be an estimator that can be refitted; got {type(model).__name__}."
        )
    more = [p for p in list(inspect.signature(model.fit).parameters.values())[1:] if p.default is p.empty]
    per_row = [name for name, value in model.get_params().items() if np.shape(value)[:1] == (subject.n_rows,)]
    if any(p.kind is p.POSITIONAL_OR_KEYWORD for p in more) or per_row:
        raise DoesNotApplyError(
            f"{subject.where}: fitting the model must require only rows, so that it can be refitted to other "
            f"rows; {type(model).__name__} also needs {', '.join([p.name for p in more] + per_row)}."
        )
