"""Algorithm 1 of the paper: do the features that are called relevant suffice to hold a row in its cluster?"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from whycluster.core.arrays import Codes, Floats
from whycluster.core.errors import InvalidInputError
from whycluster.data.opening import column_names
from whycluster.data.validation import check_whole
from whycluster.evaluation import samplers
from whycluster.evaluation.samplers import ConditionalKDE, Known, Sampler
from whycluster.evaluation.subject import Subject
from whycluster.explanations.explanation import Explanation


@dataclass(frozen=True, eq=False, repr=False)
class Flipping:
    """How well an order of the features holds rows in their clusters, while features are added.

    Attributes
    ----------
    curves : (n, d + 1) of each row the share of completions that were in its cluster, with 0, 1, ..., d of
        its features known
    """

    curves: Floats

    @property
    def per_row(self) -> Floats:
        """(n,) the area under each row's curve, from 0 to 100: trapezoids, the empty start included."""
        steps = (self.curves[:, 1:] + self.curves[:, :-1]) / 2
        return np.asarray(100.0 * steps.mean(axis=1))

    @property
    def auc(self) -> float:
        """The mean area; higher is better."""
        return float(self.per_row.mean())

    @property
    def standard_error(self) -> float:
        """Of the mean over the rows: that they differ, and that completions are drawn, makes it uncertain."""
        return standard_error(self.per_row)

    @property
    def curve(self) -> Floats:
        """(d + 1,) the mean curve."""
        return np.asarray(self.curves.mean(axis=0))

    def __repr__(self) -> str:
        n_rows, steps = self.curves.shape
        auc = f"{self.auc:.2f} +- {self.standard_error:.2f}"
        return f"<Flipping: AUC {auc}, {n_rows} rows, {steps - 1} features>"


def standard_error(values: Floats) -> float:
    """Of their mean; NaN of a single one."""
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
    """The area under the flipping curve of an explanation (Algorithm 1 of the paper).

    Of each row nothing is known at first. Its features are added from the most to the least relevant, the
    missing ones are drawn, and it is recorded whether the row is in its cluster. The sooner it stays there,
    the larger the area.

    Parameters
    ----------
    model : anything that `neuralize` takes, or a function that gives the labels of rows, such as the
        ``predict`` of any model
    X : (n, d) rows
    relevance : (n, d) an explanation of these rows, or an `Explanation`, with the features in the order of
        the model, or a frame with their names; only the order within each row counts, and ties are broken at
        random
    sampler : how missing features are drawn: "kde" (`ConditionalKDE` of the background), "zero", or a
        function ``sampler(rows, known, rng)`` that completes (b, d) rows of which ``known`` is True, such as
        a `ConditionalKDE` of other rows
    repeats : how many completions are drawn at each step
    background : (m, d) the population that missing features are drawn from; by default X itself. Give it when
        evaluating a few rows of a known table
    random_state : seed; the same seed draws alike for every relevance, so that methods can be compared

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
    check_whole(repeats, 1, "flipping_auc", "repeats")
    check_whole(random_state, 0, "flipping_auc", "random_state")
    subject = Subject(model, X, "flipping_auc", background)
    return flip(
        subject, read_relevance(relevance, subject), open_sampler(sampler, subject), repeats, random_state
    )


def flip(subject: Subject, relevance: Floats, sampler: Sampler, repeats: int, random_state: int) -> Flipping:
    """The same, of a subject that is open."""
    d = relevance.shape[1]
    curves = np.empty((len(relevance), d + 1))

    def work(rows: slice, rng: np.random.Generator, step: Callable[[], None]) -> None:
        z, cluster = subject.rows[rows], subject.cluster[rows]
        place = _places(relevance[rows], rng)
        for n_known in range(d + 1):
            completed = complete(sampler, z, place < n_known, repeats, rng)
            curves[rows, n_known] = subject.stays(completed, cluster).mean(axis=0)
            step()

    subject.in_blocks(work, "flipping", d + 1, repeats, random_state)
    curves.flags.writeable = False
    return Flipping(curves)


def complete(sampler: Sampler, z: Floats, known: Known, repeats: int, rng: np.random.Generator) -> Floats:
    """Completions of rows, (repeats, b, d), by a sampler that `open_sampler` gave."""
    if isinstance(sampler, ConditionalKDE):  # draws many at the cost of one
        return sampler.draw(z, known, repeats, rng)
    if sampler is samplers.zero:  # all alike
        return sampler(z, known, rng)[None]
    drawn = np.empty((repeats, *z.shape))
    for repeat in range(repeats):
        one = _as_numbers(sampler(z.copy(), known.copy(), rng), "evaluation", "what sampler gives")
        if one.shape != z.shape:
            raise InvalidInputError(
                f"evaluation: sampler must give rows of shape {z.shape} for rows of that shape; got "
                f"{one.shape}."
            )
        if not np.isfinite(one).all() or (one[known] != z[known]).any():
            raise InvalidInputError(
                "evaluation: sampler must give finite numbers and leave what is known as it is; "
                + ("it changed known features." if np.isfinite(one).all() else "it gave NaN or infinity.")
            )
        drawn[repeat] = one
    return drawn


def _places(relevance: Floats, rng: np.random.Generator) -> Codes:
    """Of each feature its place in the row's order, 0 for the most relevant; ties fall at random."""
    order = np.lexsort((rng.random(relevance.shape), -relevance), axis=1)
    place = np.empty_like(order)
    np.put_along_axis(place, order, np.arange(relevance.shape[1])[None, :], axis=1)
    return place


def read_relevance(relevance: Any, subject: Subject) -> Floats:
    """The numbers of an explanation, checked."""
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
            f"{subject.where}: relevance must have no missing values (NaN); row {row}, feature "
            f"{features[column]!r} is one ({len(bad)} in all)."
        )
    return values


def _as_numbers(given: Any, where: str, name: str) -> Floats:
    """An array of real numbers; nothing is guessed of what is none."""
    try:
        values = np.asarray(given)
        if values.dtype.kind in "fiubO" and not np.ma.is_masked(given):
            return np.asarray(values, dtype=np.float64)
        what = "masked values" if np.ma.is_masked(given) else str(values.dtype)
    except (TypeError, ValueError) as error:  # rows of different lengths, objects that are no numbers
        what = str(error)
    raise InvalidInputError(
        f"{where}: {name} must be an array of real numbers, one for each row and feature; got "
        f"{type(given).__name__} ({what})."
    )


def open_sampler(sampler: Any, subject: Subject) -> Sampler:
    """The sampler that was asked for by name, or the user's own."""
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
    alone = subject.population is subject.rows and (subject.cluster == subject.cluster[0]).all()
    if alone:
        raise InvalidInputError(
            f"{subject.where}: X must have rows of at least 2 clusters, since the rows that missing features "
            f"are drawn from must be able to leave a cluster; all {subject.n_rows} rows are in one. Give all "
            "rows, or background=all_rows."
        )
    return samplers.zero if sampler == "zero" else subject.density


def _check_density(density: ConditionalKDE, subject: Subject) -> None:
    if density.rows.shape[1] != subject.n_features:
        raise InvalidInputError(
            f"{subject.where}: sampler must be made of rows with the {subject.n_features} features of X; its "
            f"rows have {density.rows.shape[1]}."
        )
    names = subject.names
    if None not in (names, density.feature_names) and density.feature_names != names:
        raise InvalidInputError(
            f"{subject.where}: sampler must be made of rows with the model's columns in their order, which "
            f"begins {(names or [])[:3]}; its columns begin {(density.feature_names or [])[:3]}. Give "
            "background=... instead, which is matched by name."
        )
    if not np.array_equal(density.categorical, subject.categorical):
        raise InvalidInputError(
            f"{subject.where}: sampler must know which features are categories; give background=... instead, "
            "or ConditionalKDE(codes, categorical=...)."
        )
