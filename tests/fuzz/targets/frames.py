"""Pipelines on random frames: relevance equals that of a slow reference, or the model is refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
from sklearn.cluster import KMeans
from sklearn.compose import ColumnTransformer
from sklearn.decomposition import PCA, TruncatedSVD
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import MaxAbsScaler, MinMaxScaler, OneHotEncoder, RobustScaler, StandardScaler

import whycluster as wc
from tests.fuzz.choices import Choices
from tests.fuzz.engine import Target
from tests.reference import pipeline as reference
from whycluster.pipelines.steps import READS_NAMES_OF_POLARS

_SCALERS = (StandardScaler, MinMaxScaler, MaxAbsScaler, RobustScaler)
_MOST = 1e-6  # the largest difference, relative to the largest relevance


def make(folder: Path) -> Target:
    del folder

    def run(choices: Choices) -> None:
        frame, numbers, texts = _frame(choices)
        model = _model(choices, numbers, texts)
        try:
            model.fit(frame)
        except ValueError:  # scikit-learn cannot fit it, such as with more clusters than rows
            return
        _compare(model, frame, numbers, texts)

    return run


def _frame(choices: Choices) -> tuple[Any, list[str], list[str]]:
    """Return a frame with numbers of different sizes, and text in some columns."""
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
    make = choices.pick((pd.DataFrame, pl.DataFrame))
    if not READS_NAMES_OF_POLARS:
        make = pd.DataFrame  # scikit-learn cannot be fitted on the other
    numbers, texts = [f"n{i}" for i in range(n_numbers)], [f"t{i}" for i in range(n_texts)]
    return make(columns), numbers, texts


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


def _compare(model: Any, frame: Any, numbers: list[str], texts: list[str]) -> None:
    found = {rule: wc.explain(model, frame, rule=rule) for rule in ("path", "min-take-most")}
    atoms = np.asarray(model[0].transform(frame), dtype=np.float64)
    rest = model[1:-1].transform if len(model) > 2 else np.asarray
    z, centroids = np.asarray(rest(atoms)), model[-1].cluster_centers_.astype(np.float64)
    labels = model.predict(frame).tolist()
    s = np.sort(np.square(z[:, None] - centroids).sum(axis=2), axis=1)
    if (s[:, 1] - s[:, 0]).min() <= 1e-6 * np.square(z).max() or not _is_sound(model):
        return  # a row on a boundary, or a component that is only rounding
    words = model[0].named_transformers_["texts"].categories_ if texts else []
    sizes = [1] * len(numbers) + [len(some) for some in words]
    source = np.repeat(np.arange(len(sizes)), sizes).tolist()
    known = dict(enumerate(centroids))
    front = reference.expand(rest, atoms)
    for rule, exp in found.items():
        by_atoms = reference.nearest(front, atoms, known, labels, rule)
        slow = reference.add_up(by_atoms, source, len(sizes))
        assert exp.cluster.tolist() == labels
        gap = np.abs(exp.relevance - slow).max()
        assert gap <= _MOST * np.abs(slow).max(), (gap, np.abs(slow).max(), model, rule)


def _is_sound(model: Any) -> bool:
    """Return whether all components have more variance than rounding leaves."""
    for _, step in model.steps:
        variance = getattr(step, "explained_variance_", None)
        if variance is not None and (variance <= 1e-10 * max(1.0, variance.max())).any():
            return False
    return True
