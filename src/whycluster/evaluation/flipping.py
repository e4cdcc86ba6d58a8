"""Algorithm 1 of the paper, which tests whether the most relevant features keep a row in its cluster."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from whycluster.core.arrays import Codes, Floats
from whycluster.core.errors import InvalidInputError
from whycluster.data.opening import column_names
from whycluster.data.validation import check_integer
from whycluster.evaluation import samplers
from whycluster.evaluation.samplers import ConditionalKDE, Known, Sampler
from whycluster.evaluation.subject import Subject
from whycluster.explanations.explanation import Explanation


@dataclass(frozen=True, eq=False, repr=False)
class Flipping:
    """Flipping curves: how soon rows stay in their clusters as features are added in order of relevance.

    Attributes
    ----------
    curves : (n, d + 1) the share of each row's completions that are in its cluster, with 0, 1, ..., d known
        features
    """

    curves: Floats

    @property
    def per_row(self) -> Floats:
        """(n,) area under each row's curve, from 0 to 100, by the trapezoidal rule."""
        steps = (self.curves[:, 1:] + self.curves[:, :-1]) / 2
        return np.asarray(100.0 * steps.mean(axis=1))

    @property
    def auc(self) -> float:
        """Mean area over the rows; higher is better."""
        return float(self.per_row.mean())

    @property
    def standard_error(self) -> float:
        """Standard error of the mean area, due to differences between rows and random completions."""
        return standard_error(self.per_row)

    @property
    def curve(self) -> Floats:
        """(d + 1,) mean curve over the rows."""
        return np.asarray(self.curves.mean(axis=0))

    def __repr__(self) -> str:
        n, d = len(self.curves), self.curves.shape[1] - 1
        auc = f"{self.auc:.2f} +- {self.standard_error:.2f}"
        return f"<Flipping: AUC {auc}, {n} row{'s' * (n != 1)}, {d} feature{'s' * (d != 1)}>"


def standard_error(values: Floats) -> float:
    """Return the standard error of the mean of the values, or NaN for a single value."""
    return float(values.std(ddof=1) / np.sqrt(len(values))) if len(values) > 1 else float("nan")


def flipping_auc(
    model: Any,
    X: Any,
    relevance: Any,
    *,
    sampler: Any = "kde",
    repeats: int = 10,
    background: Any = None,
    random_state: int = 0,
) -> Flipping:
    """Compute the area under the flipping curve of an explanation (Algorithm 1 of the paper).

    Each row starts with all features unknown. The algorithm adds features from the most to the least
    relevant, draws the features that are still missing, and records whether the row is in its cluster. The
    sooner the row stays there, the larger the area.

    Parameters
    ----------
    model : any model that `neuralize` accepts, or a function that returns the labels of rows, such as the
        ``predict`` of any model
    X : (n, d) rows
    relevance : an `Explanation` of these rows; an (n, d) numeric array, with the features in the order of the
        model; or a data frame with the features' names as columns. Only the order within each row counts, and
        ties are broken at random.
    sampler : how missing features are drawn: "kde" (a `ConditionalKDE` of the background), "zero", or a
        function ``sampler(rows, known, rng)`` that completes (b, d) rows, in which features are known where
        ``known`` is True. A `ConditionalKDE` of other rows is such a function.
    repeats : number of completions at each step
    background : (m, d) the population that missing features are drawn from; by default, X. Pass the whole
        table to evaluate only a few of its rows.
    random_state : random seed; calls with the same seed use the same draws, which makes methods comparable

    Returns
    -------
    Flipping

    Examples
    --------
    >>> from sklearn.cluster import KMeans
    >>> from sklearn.datasets import load_iris
    >>> import whycluster as wc
    >>> from whycluster.evaluation import flipping_auc
    >>> X = load_iris().data
    >>> model = KMeans(3, n_init=1, random_state=0).fit(X)
    >>> relevant = flipping_auc(model, X, wc.explain(model, X))
    >>> useless = flipping_auc(model, X, -wc.explain(model, X).relevance)
    >>> relevant.auc > useless.auc + 10
    True
    """
    check_integer(repeats, 1, "flipping_auc", "repeats")
    check_integer(random_state, 0, "flipping_auc", "random_state")
    subject = Subject(model, X, "flipping_auc", background)
    return flip(
        subject, read_relevance(relevance, subject), open_sampler(sampler, subject), repeats, random_state
    )


def flip(subject: Subject, relevance: Floats, sampler: Sampler, repeats: int, random_state: int) -> Flipping:
    """Compute the flipping curves, given arguments that have been checked."""
    d = relevance.shape[1]
    curves = np.empty((len(relevance), d + 1))

    def work(rows: slice, rng: np.random.Generator, step: Callable[[], None]) -> None:
        z, cluster = subject.rows[rows], subject.cluster[rows]
        rank = _ranks(relevance[rows], rng)
        for n_known in range(d + 1):
            completed = complete(sampler, z, rank < n_known, repeats, rng)
            curves[rows, n_known] = subject.stays(completed, cluster).mean(axis=0)
            step()

    subject.in_blocks(work, "flipping", d + 1, repeats, random_state)
    curves.flags.writeable = False
    return Flipping(curves)


def complete(sampler: Sampler, z: Floats, known: Known, repeats: int, rng: np.random.Generator) -> Floats:
    """Return completions of rows, (repeats, b, d), drawn by a sampler from `open_sampler`."""
    if isinstance(sampler, ConditionalKDE):  # it draws several completions at the cost of one
        return sampler.draw(z, known, repeats, rng)
    if sampler is samplers.zero:  # all completions are equal
        return sampler(z, known, rng)[None]
    drawn = np.empty((repeats, *z.shape))
    for repeat in range(repeats):
        one = _as_numbers(sampler(z.copy(), known.copy(), rng), "evaluation", "the result of sampler")
        if one.shape != z.shape:
            raise InvalidInputError(
                f"evaluation: sampler must return rows of the same shape as its input, {z.shape}; got "
                f"{one.shape}."
            )
        if not np.isfinite(one).all() or (one[known] != z[known]).any():
            raise InvalidInputError(
                "evaluation: sampler must return finite numbers and keep known features unchanged; "
                + ("it changed known features." if np.isfinite(one).all() else "it returned NaN or infinity.")
            )
        drawn[repeat] = one
    return drawn


def _ranks(relevance: Floats, rng: np.random.Generator) -> Codes:
    """Return each feature's rank in its row, from 0 for the most relevant, with ties broken at random."""
    order = np.lexsort((rng.random(relevance.shape), -relevance), axis=1)
    rank = np.empty_like(order)
    np.put_along_axis(rank, order, np.arange(relevance.shape[1])[None, :], axis=1)
    return rank


def read_relevance(relevance: Any, subject: Subject) -> Floats:
    """Return the given relevance as an array, with the features in the model's order."""
    given = relevance.relevance if isinstance(relevance, Explanation) else relevance
    names = column_names(given, subject.where, "relevance")
    values = _as_numbers(given, subject.where, "relevance")
    features = subject.table.feature_names
    if names is not None and names != features and set(names) == set(features):
        values = values[:, [names.index(feature) for feature in features]]
    if values.shape != subject.rows.shape:
        raise InvalidInputError(
            f"{subject.where}: relevance must have the shape of X, {subject.rows.shape}; got {values.shape}."
        )
    bad = np.argwhere(np.isnan(values))
    if len(bad):
        row, column = bad[0].tolist()
        raise InvalidInputError(
            f"{subject.where}: relevance must not contain missing values (NaN); the value for row {row} and "
            f"feature {features[column]!r} is missing ({len(bad)} in total)."
        )
    return values


def _as_numbers(given: Any, where: str, name: str) -> Floats:
    """Convert to an array of real numbers; raise an error if the conversion is ambiguous."""
    try:
        values = np.asarray(given)
        if values.dtype.kind in "fiubO" and not np.ma.is_masked(given):
            return np.asarray(values, dtype=np.float64)
        what = "masked values" if np.ma.is_masked(given) else str(values.dtype)
    except (TypeError, ValueError) as error:  # rows of different lengths, or objects that are not numbers
        what = str(error)
    raise InvalidInputError(
        f"{where}: {name} must be an array of real numbers, one for each row and feature; got "
        f"{type(given).__name__} ({what})."
    )


def open_sampler(sampler: Any, subject: Subject) -> Sampler:
    """Return the sampler that the user chose by name or passed as a function."""
    if isinstance(sampler, ConditionalKDE):
        _check_density(sampler, subject)
        subject.density = sampler
        return sampler
    if callable(sampler) and not isinstance(sampler, type):
        subject.on_threads = False
        return sampler  # type: ignore[no-any-return]
    if not isinstance(sampler, str) or sampler not in ("kde", "zero"):
        raise InvalidInputError(
            f'{subject.where}: sampler must be "kde", "zero" or a function sampler(rows, known, rng); got '
            f"{sampler!r}."
        )
    if subject.population is subject.rows and (subject.cluster == subject.cluster[0]).all():
        raise InvalidInputError(
            f"{subject.where}: X must contain rows of at least 2 clusters, so that a row whose features "
            f"are replaced can change its cluster; all {subject.n_rows} rows are in one cluster. Pass all "
            "rows, or background=all_rows."
        )
    return samplers.zero if sampler == "zero" else subject.density


def _check_density(density: ConditionalKDE, subject: Subject) -> None:
    if density.rows.shape[1] != subject.n_features:
        raise InvalidInputError(
            f"{subject.where}: sampler must be fitted to rows with the {subject.n_features} features of X; "
            f"its rows have {density.rows.shape[1]}."
        )
    names = subject.names
    if None not in (names, density.feature_names) and density.feature_names != names:
        raise InvalidInputError(
            f"{subject.where}: sampler must be fitted to the model's columns in their order, which begins "
            f"with {(names or [])[:3]}; its columns begin with {(density.feature_names or [])[:3]}. Pass "
            "background=... instead; its columns are matched by name."
        )
    if not np.array_equal(density.categorical, subject.categorical):
        raise InvalidInputError(
            f"{subject.where}: sampler and model must have the same categorical features; theirs differ. "
            "Pass background=... instead, or ConditionalKDE(codes, categorical=...)."
        )
