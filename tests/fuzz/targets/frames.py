"""Pipelines on random frames: relevance equals that of a slow reference, or the model is refused."""

from __future__ import annotations

import random
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import polars as pl
from numpy.testing import assert_allclose
from sklearn.cluster import KMeans
from sklearn.compose import ColumnTransformer
from sklearn.decomposition import PCA, TruncatedSVD
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import MaxAbsScaler, MinMaxScaler, OneHotEncoder, RobustScaler, StandardScaler

import whycluster as wc
from tests.fuzz.choices import Choices
from tests.fuzz.engine import SHARED, Target
from tests.reference import pipeline as reference
from whycluster.pipelines.steps import READS_NAMES_OF_POLARS

_SCALERS = (StandardScaler, MinMaxScaler, MaxAbsScaler, RobustScaler)
# scikit-learn before 1.9 cannot be fitted on polars 2
_FRAMES = (pd.DataFrame, pl.DataFrame) if READS_NAMES_OF_POLARS else (pd.DataFrame,)
_MOST = 1e-6  # the largest difference, relative to the largest relevance


def make(folder: Path) -> Target:
    del folder

    def run(choices: Choices) -> None:
        fitted = _fitted(choices.take(SHARED))
        rows, is_odd = _rows(choices, fitted)
        rule = choices.pick(("path", "min-take-most"))
        exp = wc.explain(fitted.model, rows, rule=rule)
        assert not is_odd, "explains what the steps refuse"
        _compare(fitted, exp, rows, rule)

    return run


class Fitted(NamedTuple):
    """A fitted pipeline, the columns that it was fitted on, and the names of those with numbers and text."""

    model: Any
    columns: dict[str, Any]
    numbers: list[str]
    texts: list[str]


@lru_cache(maxsize=1)  # several executions in a row explain different rows with the same pipeline
def _fitted(key: bytes) -> Fitted:
    drawn = random.Random(key)
    while True:
        choices = Choices(drawn.randbytes(256))
        columns, numbers, texts = _columns(choices)
        model = _model(choices, numbers, texts)
        try:
            model.fit(choices.pick(_FRAMES)(columns))
        except ValueError:  # scikit-learn cannot fit it, such as with more clusters than rows
            continue
        return Fitted(model, columns, numbers, texts)


def _rows(choices: Choices, fitted: Fitted) -> tuple[Any, bool]:
    """Return a frame with some of the rows, changed or not, and whether the steps must refuse it."""
    rng = np.random.default_rng(choices.below(2**32))
    n_rows = len(fitted.columns["n0"])
    _, members = np.unique(fitted.model[-1].labels_, return_index=True)  # one of each cluster
    order = rng.permutation(np.union1d(members, rng.integers(n_rows, size=choices.below(n_rows))))
    columns = {name: np.asarray(values)[order] for name, values in fitted.columns.items()}
    if choices.one_in(3):  # new rows, some of them far away
        name = choices.pick(fitted.numbers)
        size = choices.pick((0.1, 1, 100)) * np.ptp(fitted.columns[name])
        columns[name] = (columns[name] + size * rng.normal(size=len(order))).astype(columns[name].dtype)
    is_odd = choices.one_in(16)
    if is_odd:
        name, place = choices.pick(list(columns)), choices.below(len(order))
        values = columns[name].tolist()
        values[place] = choices.pick((np.nan, np.inf, -np.inf)) if name in fitted.numbers else "unknown"
        columns[name] = values
    if choices.one_in(4):
        columns = {name: columns[name] for name in rng.permutation(list(columns))}
    return choices.pick(_FRAMES)(
        {name: list(values) if name in fitted.texts else values for name, values in columns.items()}
    ), is_odd


def _columns(choices: Choices) -> tuple[dict[str, Any], list[str], list[str]]:
    """Return columns with numbers of different sizes, and text in some columns."""
    rng = np.random.default_rng(choices.below(2**32))
    n, n_numbers, n_texts = choices.between(6, 20), choices.between(1, 4), choices.below(3)
    columns: dict[str, Any] = {}
    for i in range(n_numbers):
        size = 10.0 ** choices.between(-3, 3)
        column = size * (rng.normal(size=n) + choices.pick((0, 0, 10, -300)))
        if choices.one_in(8):
            column[:] = column[0]
        columns[f"n{i}"] = column.astype("float32") if choices.one_in(8) else column
    for i in range(n_texts):
        words = [choices.text().replace("\ud800", "?") for _ in range(choices.between(1, 4))]
        columns[f"t{i}"] = [words[j] for j in rng.integers(len(words), size=n)]
    return columns, [f"n{i}" for i in range(n_numbers)], [f"t{i}" for i in range(n_texts)]


def _model(choices: Choices, numbers: list[str], texts: list[str]) -> Any:
    encode = OneHotEncoder(sparse_output=False)
    steps: list[Any] = [
        ColumnTransformer([("numbers", choices.pick(_SCALERS)(), numbers), ("texts", encode, texts)])
    ]
    if choices.one_in(3):
        steps.append(choices.pick(_SCALERS)())
    if choices.one_in(2):
        steps.append(choices.pick((PCA, TruncatedSVD))(choices.between(1, 3), random_state=0))
    return make_pipeline(*steps, KMeans(choices.between(2, 4), n_init=1, random_state=0))


def _compare(fitted: Fitted, exp: Any, rows: Any, rule: str) -> None:
    model = fitted.model
    mixes = isinstance(model[-2], (PCA, TruncatedSVD))
    atoms = model[: -2 if mixes else -1].transform(rows)
    rest = model[-2].transform if mixes else np.asarray
    z, centroids = np.asarray(rest(atoms)), model[-1].cluster_centers_.astype(np.float64)
    atoms, squares = np.asarray(atoms, dtype=np.float64), np.square(z[:, None] - centroids).sum(axis=2)
    is_mixed = z.dtype != model[-1].cluster_centers_.dtype  # float32 and float64, which `predict` refuses
    labels = (squares.argmin(axis=1) if is_mixed else model[-1].predict(z)).tolist()
    s = np.sort(squares, axis=1)
    if (s[:, 1] - s[:, 0]).min() <= 1e-6 * np.square(z).max() or not _is_sound(model):
        return  # a row on a boundary, or a component that is only rounding
    assert exp.cluster.tolist() == labels
    assert exp.feature_names == [*fitted.numbers, *fitted.texts]
    assert_allclose(exp.evidence, s[:, 1] - s[:, 0], rtol=1e-6, atol=1e-6 * s.max())
    assert_allclose(exp.relevance.sum(axis=1) + exp.residual, exp.evidence, atol=1e-6 * s.max())
    if len(set(labels)) < len(centroids):
        return  # the reference needs a member of each cluster
    words = model[0].named_transformers_["texts"].categories_ if fitted.texts else []
    sizes = [1] * len(fitted.numbers) + [len(some) for some in words]
    source = np.repeat(np.arange(len(sizes)), sizes).tolist()
    known = dict(enumerate(centroids))
    by_atoms = reference.nearest(reference.expand(rest, atoms), atoms, known, labels, rule)
    slow = reference.add_up(by_atoms, source, len(sizes))
    gap = np.abs(exp.relevance - slow).max()
    assert gap <= _MOST * np.abs(slow).max(), (gap, np.abs(slow).max(), model, rule)


def _is_sound(model: Any) -> bool:
    """Return whether all components have more variance than rounding leaves."""
    for _, step in model.steps:
        variance = getattr(step, "explained_variance_", None)
        if variance is not None and (variance <= 1e-10 * max(1.0, variance.max())).any():
            return False
    return True
