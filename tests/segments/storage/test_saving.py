"""`save` and `load`: a loaded object computes the same results bit by bit, and no file can do harm."""

from __future__ import annotations

import datetime as dt
import inspect
import json
import math
import os
import pickle
import stat
import struct
import subprocess
import sys
import tracemalloc
from collections.abc import Callable, Iterator
from dataclasses import fields, replace
from functools import cache, cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from sklearn.cluster import KMeans
from sklearn.datasets import load_wine
from sklearn.decomposition import TruncatedSVD
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.mixture import GaussianMixture
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import whycluster as wc
from tests.contracts.test_models import MODELS
from tests.optional import load_frame, optional
from whycluster.core.energies import Energy, KernelEnergy, LinearEnergy, SquaredEnergy
from whycluster.core.rules import RULES
from whycluster.models.energies import (
    AlignmentEnergy,
    BernoulliEnergy,
    CommunityEnergy,
    CosineEnergy,
    DiagonalGaussianEnergy,
    DirichletTopicsEnergy,
    FactorEnergy,
    FloorEnergy,
    GaussianEnergy,
    ManhattanEnergy,
    MixedEnergy,
    NeighborEnergy,
    PredictionEnergy,
    SpectralEnergy,
    StudentEnergy,
    Tree,
    TreeEnergy,
    ZeroReferenceEnergy,
)
from whycluster.models.network import Network, TableNetwork
from whycluster.models.series_network import SeriesNetwork
from whycluster.segments.storage import archive, networks
from whycluster.segments.storage.parameters import PARAMETERS

pytest.importorskip("pandas", reason="pandas is not installed")

if TYPE_CHECKING:
    import hmmlearn.hmm as hmm
    import pandas as pd
    import polars as pl
    from kmodes.kmodes import KModes
    from kmodes.kprototypes import KPrototypes
    from safetensors import safe_open
    from safetensors.numpy import save_file
else:
    pd = optional("pandas")
    hmm = optional("hmmlearn.hmm")
    pl = optional("polars")
    KModes = optional("kmodes.kmodes:KModes")
    KPrototypes = optional("kmodes.kprototypes:KPrototypes")
    safe_open = optional("safetensors:safe_open")
    save_file = optional("safetensors.numpy:save_file")

Array = NDArray[Any]
RNG = np.random.default_rng(7)
NOT_OURS = "The file was not written by wc.save, or it was changed afterward."


def saved_and_loaded(what: Any, path: Path) -> Any:
    wc.save(what, path / "saved")
    return wc.load(path / "saved")


def assert_same_network(loaded: Network, network: Network, X: Any) -> None:
    """Check that two networks compute the same results, bit by bit."""
    assert type(loaded) is type(network)
    assert repr(loaded) == repr(network)
    assert loaded.feature_names == network.feature_names
    assert loaded.categories == network.categories
    assert_same(loaded.labels, network.labels)
    assert_same(loaded.assign(X), network.assign(X))
    assert_same(loaded.evidence(X), network.evidence(X))
    assert_same(loaded.gradient(X), network.gradient(X))
    for rule in RULES:
        assert_same(loaded.explain(X, rule=rule).relevance, network.explain(X, rule=rule).relevance)


def assert_same(found: Array, expected: Array) -> None:
    assert found.dtype == expected.dtype
    assert found.shape == expected.shape
    assert found.tolist() == expected.tolist()
    assert list(map(type, found.ravel().tolist())) == list(map(type, expected.ravel().tolist()))


# Networks.


@pytest.mark.parametrize("kind", MODELS)
def test_every_model_computes_the_same_after_loading(kind: str, wine: Array, tmp_path: Path) -> None:
    network = wc.neuralize(MODELS[kind](np.array(wine), load_wine().target))
    if network.is_checked:
        with pytest.raises(wc.UnsupportedModelError) as caught:
            wc.save(network, tmp_path / "saved")
        assert str(caught.value) == (
            "save: this network cannot be saved, because it verifies the assignment of all rows with the "
            "model's own predict, which is code. If the model has centroids, save their network instead, "
            "which is not verified: wc.neuralize(model.cluster_centers_)."
        )
        assert not list(tmp_path.iterdir())
        return
    assert_same_network(saved_and_loaded(network, tmp_path), network, wine)


@pytest.mark.parametrize("metric", ["euclidean", "manhattan", "cosine", "dot", "student", "fuzzy"])
@pytest.mark.parametrize("mean", [0.0, 1e4])
def test_centroids_of_every_metric(metric: str, mean: float, wine: Array, tmp_path: Path) -> None:
    centroids = pd.DataFrame(np.asfortranarray(wine[::30] + mean), columns=[f"c{i}" for i in range(13)])
    network = wc.neuralize(centroids, metric=metric)
    assert_same_network(saved_and_loaded(network, tmp_path), network, wine + mean)


def test_categories_are_kept(tmp_path: Path) -> None:
    rows = np.array([["a", "x", 1], ["b", "x", 2], ["a", "y", 1], ["b", "y", 2]] * 5, dtype=object)
    network = wc.neuralize(KModes(2, random_state=0).fit(rows))
    assert_without_gradient(saved_and_loaded(network, tmp_path), network, rows)
    model = KPrototypes(2, random_state=0).fit(rows, categorical=[0, 1])
    network = wc.neuralize(model, categorical=[0, 1])
    assert_without_gradient(saved_and_loaded(network, tmp_path), network, rows)


def assert_without_gradient(loaded: Network, network: Network, X: Any) -> None:
    assert loaded.categories == network.categories
    assert_same(loaded.evidence(X), network.evidence(X))
    assert_same(loaded.explain(X).relevance, network.explain(X).relevance)


@pytest.mark.filterwarnings("ignore::whycluster.FidelityWarning")
def test_a_surrogate_keeps_its_fidelity(wine: Array, tmp_path: Path) -> None:
    labels = np.where(np.abs(wine[:, 0]) > 1.6, -1, wine[:, 1] > 0)
    network = wc.neuralize(wc.Surrogate(4).fit(wine, labels))
    loaded = saved_and_loaded(network, tmp_path)
    assert_same_network(loaded, network, wine)
    assert str(loaded.fidelity) == str(network.fidelity)
    assert loaded.fidelity is not None
    assert network.fidelity is not None
    for name, value in vars(network.fidelity).items():
        assert_same(np.asarray(getattr(loaded.fidelity, name)), np.asarray(value))
    assert (loaded.assign(wine) == "noise").any()


DAY = dt.date(2024, 2, 29)


def objects(*values: Any) -> Array:
    array = np.empty(len(values), dtype=object)
    array[:] = values
    return array


@pytest.mark.parametrize(
    "labels",
    [
        np.array([5, -1, 7]),
        np.array([5, 0, 7], dtype=np.uint8),
        np.array([0.5, np.inf, -0.0]),
        np.array(["a", "Käse 🧀", "noise"]),
        np.array(["a\nb", "\ud800", "x" * 500]),
        objects(2, "1", True),
        objects(None, 2.5, float("-inf")),
        objects(("a", (1, 2)), DAY, dt.datetime(2024, 2, 29, 12, 30, tzinfo=dt.timezone.utc)),
        objects(2**70, "", "noise"),
    ],
    ids=repr,
)
def test_labels_of_any_kind(labels: Array, tmp_path: Path) -> None:
    network = TableNetwork(SquaredEnergy(np.eye(3)), labels=labels, feature_names=labels.tolist())
    loaded = saved_and_loaded(network, tmp_path)
    assert_same(loaded.labels, network.labels)
    assert loaded.feature_names == network.feature_names
    assert_same(loaded.assign(np.eye(3)), network.assign(np.eye(3)))


def test_two_booleans_and_byte_order(tmp_path: Path) -> None:
    network = TableNetwork(SquaredEnergy(np.eye(2)), labels=[False, True])
    assert_same(saved_and_loaded(network, tmp_path).labels, network.labels)
    network = TableNetwork(SquaredEnergy(np.eye(2)), labels=np.array([3, 4], dtype=">i4"))
    assert saved_and_loaded(network, tmp_path).labels.tolist() == [3, 4]


# Energies: all classes, and all their parameters.

KERNEL = KernelEnergy(RNG.normal(size=(5, 3)), np.array([2, 3]), 0.7, RNG.normal(size=5), RNG.random(3))
PREDICTION = PredictionEnergy(
    NeighborEnergy(RNG.normal(size=(6, 3)), np.array([4, 2]), cores=RNG.random(6), floor=0.0),
    RNG.random(6),
    2,
)
ENERGIES: list[Energy] = [
    SquaredEnergy(RNG.normal(size=(4, 3)) + 1e6, RNG.random(3), near=0.3, groups=np.array([0, 0, 1, 2])),
    ManhattanEnergy(np.asfortranarray(RNG.normal(size=(4, 3)))),
    MixedEnergy(RNG.normal(size=(4, 3)), np.array([True, False, True]), 0.3),
    DiagonalGaussianEnergy(RNG.normal(size=(4, 3)), RNG.random((4, 3)), RNG.normal(size=4)),
    GaussianEnergy(RNG.normal(size=(4, 3)), np.eye(3)[None] + RNG.random((4, 3, 3)), RNG.normal(size=4)),
    GaussianEnergy(RNG.normal(size=(4, 3)), (np.eye(3) + RNG.random((3, 3))).T[None], RNG.normal(size=4)),
    LinearEnergy(RNG.normal(size=(4, 3)), RNG.normal(size=4), gives_probabilities=False),
    CosineEnergy(RNG.normal(size=(4, 3))),
    StudentEnergy(RNG.normal(size=(4, 3)), 2.5, 1.2),
    BernoulliEnergy(RNG.random((4, 3)), RNG.normal(size=4)),
    AlignmentEnergy(RNG.normal(size=(4, 2, 1)), 3, 0.4),
    DirichletTopicsEnergy(RNG.random((4, 3)), 0.3, 50, 1e-4),
    FactorEnergy(RNG.random((4, 3))),
    KERNEL,
    KernelEnergy(RNG.normal(size=(5, 3)), np.array([2, 3]), np.inf),
    ZeroReferenceEnergy(RNG.normal(size=(4, 3)) + 1e6, RNG.random(3)),
    NeighborEnergy(
        RNG.normal(size=(7, 3)),
        np.array([3, 3, 1]),
        "manhattan",
        n_neighbors=2,
        bias=RNG.normal(size=3),
        floor=0.2,
        cores=RNG.random(7),
        others=RNG.normal(size=(2, 3)),
    ),
    NeighborEnergy(
        RNG.normal(size=(8, 3)), np.array([2, 2, 2, 2]), n_neighbors=3, votes=True, leaves_out=False
    ),
    PREDICTION,
    CommunityEnergy(
        RNG.normal(size=(6, 3)), np.array([4, 2]), RNG.normal(size=(6, 2)), RNG.random(2), n_neighbors=3
    ),
    SpectralEnergy(
        RNG.normal(size=(6, 3)),
        np.array([4, 2]),
        RNG.normal(size=(6, 4)),
        RNG.random(4),
        RNG.normal(size=(2, 4)),
        "lines",
        gamma=0.3,
    ),
    FloorEnergy(KERNEL, 1.5, RNG.random(3)),
    TreeEnergy(Tree(np.array([1, -1, -1, -1]), np.array([-1, 2, 0, 1])), RNG.normal(size=(4, 3))),
]
DETERMINED = GaussianEnergy(
    RNG.normal(size=(4, 3)), RNG.normal(size=(4, 3, 3)), RNG.normal(size=4), log_det=RNG.normal(size=4)
)
WRAPPERS = {  # wrap other energies, with the steps of a pipeline or the context of a row
    "ContextEnergy",
    "_ByInput",
    "TransformedEnergy",
    "ColumnsEnergy",
    "MixedGaussianEnergy",
    "MixedKernelEnergy",
    "MixedSquaresEnergy",
    "MixedTreeEnergy",
    "SharedEnergy",
    "ShuffledEnergy",
    "UnmixedGaussianEnergy",
}


def classes(parent: type[Any]) -> Iterator[type[Any]]:
    for child in parent.__subclasses__():
        yield child
        yield from classes(child)


def test_every_energy_has_parameters_or_wraps_another() -> None:
    from whycluster.evaluation import shuffled  # noqa: F401  # imported to be listed
    from whycluster.models.energies import context  # noqa: F401  # imported to be listed
    from whycluster.pipelines import column_energy, mixing  # noqa: F401  # imported to be listed

    ours = {
        c
        for c in classes(Energy)
        if c.__module__.startswith(
            tuple(f"whycluster.{folder}" for folder in ("core", "models", "pipelines", "evaluation"))
        )
    }
    plain = {c for c in ours if not inspect.isabstract(c) and c.__name__ not in WRAPPERS}
    assert plain == set(PARAMETERS) - {Tree} == {type(energy) for energy in ENERGIES}
    assert {c.__name__ for c in ours} >= WRAPPERS


@pytest.mark.parametrize("kind", PARAMETERS, ids=lambda kind: kind.__name__)
def test_all_constructor_parameters_are_saved(kind: type) -> None:
    assert list(PARAMETERS[kind].parameters) == list(inspect.signature(kind).parameters)


def state(made: Any) -> Any:
    """Return the state of an object as plain values, without cached properties."""
    if isinstance(made, (Energy, Tree)):
        kind = type(made)
        stored = {n for n in vars(made) if not isinstance(getattr(kind, n, None), cached_property)}
        return kind, {n: state(getattr(made, n)) for n in sorted(stored)}
    if isinstance(made, np.ndarray):
        return made.dtype.str, made.shape, made.strides, made.tobytes()
    if isinstance(made, (list, tuple)):
        return [state(value) for value in made]
    return repr(made)


@pytest.mark.parametrize("energy", [*ENERGIES, DETERMINED], ids=lambda energy: type(energy).__name__)
def test_all_state_of_an_energy_is_restored(energy: Energy, tmp_path: Path) -> None:
    """No example uses default parameters, so a missing parameter would be noticed."""
    loaded = saved_and_loaded(TableNetwork(energy), tmp_path)
    assert state(loaded.energy) == state(energy)
    X = np.random.default_rng(3).normal(size=(40, 3))
    if not isinstance(energy, (MixedEnergy, DirichletTopicsEnergy)):
        assert_same_network(loaded, TableNetwork(energy), X)


# Explanations.

FRAME = load_frame("wine").data
STEPS = make_pipeline(StandardScaler(), KMeans(3, n_init=1, random_state=0)).fit(FRAME)
TABLES: dict[str, Callable[[], Any]] = {
    "array": lambda: FRAME.to_numpy(),
    "float32": lambda: FRAME.to_numpy().astype(np.float32),
    "float16": lambda: FRAME.to_numpy().astype(np.float16),
    "int": lambda: FRAME.to_numpy().astype(int),
    "big endian": lambda: FRAME.to_numpy().astype(">f8"),
    "long": lambda: FRAME.to_numpy().astype(np.longdouble),
    "fortran": lambda: np.asfortranarray(FRAME.to_numpy()),
    "csr_array": lambda: sp.csr_array(FRAME.to_numpy()),
    "csr_matrix": lambda: sp.csr_matrix(FRAME.to_numpy().astype(np.float32)),
    "zeros": lambda: sp.csr_array((178, 13)),
    "pandas": lambda: FRAME,
    "pandas, kinds": lambda: FRAME.astype({"proline": "Int64", "magnesium": "int32", "ash": bool}),
    "pandas, words": lambda: FRAME.set_axis([f"wine {i}" for i in range(178)]),
    "pandas, days": lambda: FRAME.set_axis(pd.date_range("2020", periods=178, name="day")),
    "pandas, levels": lambda: FRAME.set_axis(
        pd.MultiIndex.from_product([["a", "b"], list(range(89))], names=["x", "y"])
    ),
    "polars": lambda: pl.from_pandas(FRAME),
    "pyarrow": lambda: pl.from_pandas(FRAME).to_arrow(),
}


@pytest.mark.parametrize("kind", TABLES)
def test_an_explanation_is_restored_with_any_table(kind: str, tmp_path: Path) -> None:
    X = TABLES[kind]()
    model = KMeans(4, n_init=1, random_state=0).fit(FRAME.to_numpy())
    exp = wc.explain(model, X)
    loaded = saved_and_loaded(exp, tmp_path)
    assert type(loaded.data) is type(exp.data)
    assert_same_explanation(loaded, exp, tmp_path)
    assert_same_explanation(loaded[[3, 170, 5]], exp[[3, 170, 5]], tmp_path)
    assert_same_explanation(saved_and_loaded(exp[[3, 170, 5]], tmp_path), exp[[3, 170, 5]], tmp_path)


def assert_same_explanation(loaded: wc.Explanation, exp: wc.Explanation, path: Path) -> None:
    for name in ("relevance", "evidence", "cluster", "competitor", "assigned", "competition", "labels"):
        assert_same(getattr(loaded, name), getattr(exp, name))
    assert (loaded.beta, loaded.rule, loaded.threshold) == (exp.beta, exp.rule, exp.threshold)
    assert loaded.feature_names == exp.feature_names
    assert str(loaded) == str(exp)
    assert str(loaded.summary()) == str(exp.summary())
    assert_same(loaded.top(4).value, exp.top(4).value)
    assert loaded.to_frame("pandas").equals(exp.to_frame("pandas"))
    pages = [path / "loaded.html", path / "given.html"]
    # The model is not saved, so the report of the loaded explanation cannot say how stable the clusters are.
    for page, one in zip(pages, (loaded, replace(exp, model=None)), strict=True):
        one.report(page)
    assert pages[0].read_text() == pages[1].read_text()


@pytest.mark.parametrize(
    "query",
    [
        {},
        {"beta": 0.5},
        {"rule": "min-take-most"},
        {"rule": "joint", "beta": np.inf},
        {"rule": "sequential"},
        {"rule": "contrast"},
        {"against": 2},
        {"target": 1},
        {"threshold": 0.3},
        {"target": 1, "threshold": 0.9},
    ],
    ids=str,
)
def test_every_query(query: dict[str, Any], wine: Array, tmp_path: Path) -> None:
    model = GaussianMixture(3, covariance_type="tied", random_state=0).fit(wine)
    exp = wc.explain(model, wine, **query)
    assert_same_explanation(saved_and_loaded(exp, tmp_path), exp, tmp_path)


@pytest.mark.filterwarnings("ignore::whycluster.FidelityWarning")
def test_an_explanation_of_labels(tmp_path: Path) -> None:
    labels = np.array(["dry", "sweet", "half"])[np.digitize(FRAME["proline"], [500, 900])]
    exp = wc.explain(labels, FRAME)
    loaded = saved_and_loaded(exp, tmp_path)
    assert_same_explanation(loaded, exp, tmp_path)
    assert str(loaded.fidelity) == str(exp.fidelity)


@pytest.mark.parametrize("make", [np.asarray, pd.DataFrame, lambda rows: pl.DataFrame(rows, orient="row")])
def test_an_explanation_of_categories(make: Callable[[Any], Any], tmp_path: Path) -> None:
    rows = [["a", "x"], ["b", "x"], ["a", "y"], ["b", "z"]] * 5
    model = KModes(2, random_state=0).fit(np.array(rows, dtype=object))
    exp = wc.explain(model, make(rows))
    assert_same_explanation(saved_and_loaded(exp, tmp_path), exp, tmp_path)


def test_an_explanation_of_numbers_and_categories(tmp_path: Path) -> None:
    rows = np.array([["a", 1.5], ["b", 2], ["a", 3], ["b", 9]] * 5, dtype=object)
    model = KPrototypes(2, random_state=0).fit(rows, categorical=[0])
    for table in (rows, pd.DataFrame({"word": rows[:, 0], "number": rows[:, 1].astype(float)})):
        exp = wc.explain(model, table, categorical=[0])
        assert_same_explanation(saved_and_loaded(exp, tmp_path), exp, tmp_path)


@pytest.mark.filterwarnings("ignore::whycluster.FidelityWarning")
@pytest.mark.parametrize("kind", ["model", "labels", "pipeline", "sequence"])
def test_an_explanation_saved_without_rows_has_its_arrays(kind: str, tmp_path: Path) -> None:
    labels = np.digitize(FRAME["proline"], [500, 900])
    models: dict[str, Callable[[], Any]] = {
        "model": lambda: KMeans(3, n_init=1, random_state=0).fit(FRAME),
        "labels": lambda: labels,
        "pipeline": lambda: STEPS,
        "sequence": lambda: hmm.GaussianHMM(3, covariance_type="diag", random_state=0).fit(FRAME.to_numpy()),
    }
    exp = wc.explain(models[kind](), FRAME)
    wc.save(exp, tmp_path / "saved", data=False)
    loaded = wc.load(tmp_path / "saved")
    for name in ("relevance", "evidence", "cluster", "competitor", "assigned", "residual"):
        assert_same(getattr(loaded, name), getattr(exp, name))
    assert loaded.data is None
    assert loaded._repr_html_().startswith("<pre>&lt;Explanation of 178 rows")
    assert loaded.to_frame().equals(exp.to_frame())
    assert loaded[5:9].to_frame().equals(exp[5:9].to_frame().reset_index(drop=True))
    assert loaded.top().feature.tolist() == exp.top().feature.tolist()
    width = 17  # of "no single feature" and of "alcalinity_of_ash"
    assert loaded[5].describe().splitlines()[3].startswith(f"{'proline':<{width}}  not saved")
    assert loaded[5].describe().splitlines()[0] == exp[5].describe().splitlines()[0]
    for call in (loaded.summary, lambda: loaded.competition, lambda: loaded.report(tmp_path / "page")):
        with pytest.raises(wc.InvalidInputError) as caught:
            call()
        assert str(caught.value) == (
            "explanation.data must be available for this operation; the explanation was saved without its "
            "rows. Save it with data=True, or explain the rows again."
        )
    wc.save(loaded, tmp_path / "again")
    assert_same(wc.load(tmp_path / "again").relevance, exp.relevance)
    assert {file.name for file in tmp_path.iterdir()} == {"saved", "again"}


@pytest.mark.parametrize(
    "index",
    [
        pd.Index([(1, 2), (3, 4), (5, 6)], tupleize_cols=False),
        pd.Index([(1, 2), (3, 4), (5, 6)], tupleize_cols=False, name="pairs"),
        pd.MultiIndex.from_tuples([(1, "a"), (1, "b"), (2, "a")], names=["one", None]),
        pd.MultiIndex.from_tuples([(1,), (2,), (3,)]),
        pd.Index(["\ud800", "b", "c"], dtype=object),
    ],
    ids=lambda index: f"{type(index).__name__} {index.names}",
)
def test_an_index_of_any_kind(index: Any, tmp_path: Path) -> None:
    rows = pd.DataFrame(np.arange(6.0).reshape(3, 2), columns=["a", "b"], index=index)
    exp = wc.explain(pd.DataFrame([[0.0, 0], [4, 4]], columns=["a", "b"]), rows)
    found = saved_and_loaded(exp, tmp_path).to_frame().index
    assert found.tolist() == index.tolist()
    assert list(found.names) == list(index.names)


def test_a_column_without_a_name(tmp_path: Path) -> None:
    centers = pd.DataFrame([[0.0, 0], [4, 4]], columns=[np.nan, "b"])
    with pytest.raises(wc.UnsupportedModelError) as caught:
        wc.save(wc.neuralize(centers), tmp_path / "saved")
    assert str(caught.value) == (
        "save: feature_names must not contain missing names; one of them is NaN. Rename that column first."
    )


def test_an_explanation_saved_without_rows_numbers_them(tmp_path: Path) -> None:
    named = FRAME.set_axis([f"wine {i}" for i in range(len(FRAME))])
    exp = wc.explain(KMeans(3, n_init=1, random_state=0).fit(named), named)[10:15]
    wc.save(exp, tmp_path / "saved", data=False)
    loaded = wc.load(tmp_path / "saved")
    assert loaded.describe(2).startswith("Row 12 is in cluster")
    frame = loaded.to_frame()
    assert frame.index.tolist() == [0, 1, 2, 3, 4]
    assert frame.set_axis(named.index[10:15]).equals(exp.to_frame())


def test_all_fields_of_an_explanation_are_restored(tmp_path: Path) -> None:
    """A new field must be saved too, or be listed here and compared in another way."""
    exp = replace(wc.explain(SMALL, ROWS, target="b"), row_names=list("ABCDEFGHI"))[[7, 2]]
    loaded = saved_and_loaded(exp, tmp_path)
    others = {"row_names", "energy", "table", "owns_data", "fidelity", "prior"}
    for name in {part.name for part in fields(exp)} - others:
        assert_same(np.asarray(getattr(loaded, name)), np.asarray(getattr(exp, name)))
    assert loaded.prior is not None
    assert exp.prior is not None
    assert_same(loaded.prior.log_weight, exp.prior.log_weight)
    assert loaded.prior.is_in_energies == exp.prior.is_in_energies
    assert state(loaded.energy) == state(exp.energy)
    assert_same(loaded.data, exp.data)
    assert loaded.describe(0).startswith("Row H (position 7) is in")
    assert loaded.describe(1) == exp.describe(1)


def test_changed_data_are_not_saved(tmp_path: Path) -> None:
    X = FRAME.to_numpy().copy()
    exp = wc.explain(X[:3], X)
    X[5] += 100.0
    with pytest.raises(wc.InvalidInputError, match="save: the data have been changed since"):
        wc.save(exp, tmp_path / "saved")
    assert not list(tmp_path.iterdir())


# Objects that cannot be saved.

INSTEAD = (
    "save: the steps of a pipeline can be saved only as part of a segmentation, which also contains facts "
    "to check new rows against: wc.save(wc.Segmentation.of(pipeline, X), path)."
)
ZONED = pd.date_range("2024-10-26", periods=178, freq="h", tz="Europe/Berlin")
TEXTS = ["cats purr softly", "dogs bark", "cats purr and sleep", "dogs bark loudly"] * 3


class Halves(ManhattanEnergy):
    """An energy of a user."""


def deep_network() -> Network:
    import torch

    torch.manual_seed(0)
    return wc.neuralize(wc.deep.DeepClustering(torch.nn.Linear(3, 2), np.eye(2)))


def network_of_a_sequence() -> Network:
    return wc.neuralize(hmm.GaussianHMM(2, random_state=0).fit(FRAME.to_numpy()[:, :2]))


def text_explanation() -> Any:
    model = make_pipeline(TfidfVectorizer(), TruncatedSVD(2, random_state=0), KMeans(2, random_state=0))
    return wc.explain(model.fit(TEXTS), TEXTS)


def network_with_label(label: Any) -> Network:
    return TableNetwork(SquaredEnergy(np.eye(2)), labels=objects("a", label))


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: wc.neuralize(STEPS), INSTEAD),
        (
            lambda: wc.explain(STEPS, FRAME),
            f"{INSTEAD} Alternatively, save only the arrays of the explanation with data=False.",
        ),
        (
            deep_network,
            "save: a deep clustering cannot be saved, because it contains a torch encoder, which is code. "
            "Save the encoder with torch and the network of its head with wc.save(wc.neuralize(head), path).",
        ),
        (
            network_of_a_sequence,
            "save: the model must assign each row alone; the state of a time step depends on those around "
            "it. Use wc.explain on each sequence as a whole.",
        ),
        (
            lambda: wc.explain(network_of_a_sequence(), FRAME.to_numpy()[:, :2]),
            "save: explained rows can be saved only if their evidence depends on nothing else; here it also "
            "depends on the context of each row, such as other time steps. Alternatively, save only the "
            "arrays of the explanation with data=False.",
        ),
        (
            text_explanation,
            "save: only explanations of tables can be saved; a TextExplanation also depends on the objects "
            "that computed its features. Save its arrays with numpy.savez instead.",
        ),
        (
            lambda: STEPS[-1],
            "save: what must be a Segmentation, a Network or an Explanation; got KMeans. For a fitted model, "
            "save its segmentation: wc.Segmentation.of(model, X).",
        ),
        (
            lambda: TableNetwork(Halves(np.eye(2))),
            "save: the energy must be of a known class; got Halves. Save its parameters with numpy.savez, "
            "and reconstruct the energy from them.",
        ),
        (
            lambda: network_with_label(1j),
            "save: labels must be numbers, booleans, text or dates; got complex. Convert them to text first.",
        ),
        (
            lambda: TableNetwork(SquaredEnergy(np.eye(2)), labels=np.array([b"a", b"b"])),
            "save: labels must be numbers, booleans, text or dates; got |S1. Convert them to text first.",
        ),
        (
            lambda: wc.explain(FRAME.to_numpy()[:3], FRAME.set_axis(ZONED)),
            "save: index must be numbers, booleans, text or dates; got Timestamp. Convert them to text "
            "first.",
        ),
        (
            lambda: wc.explain(FRAME.to_numpy()[:3], FRAME.to_numpy())[[]],
            "save: an explanation must contain at least one row; this one contains none.",
        ),
        (
            lambda: TableNetwork(LinearEnergy(np.full((2, 2), np.nan))),
            "save: energy.directions must be finite numbers; the model contains other values.",
        ),
    ],
)
def test_objects_that_cannot_be_saved(make: Callable[[], Any], message: str, tmp_path: Path) -> None:
    with pytest.raises(wc.WhyClusterError) as caught:
        wc.save(make(), tmp_path / "saved")
    assert str(caught.value) == message
    assert not list(tmp_path.iterdir())


def test_the_last_step_of_a_pipeline_can_be_saved(tmp_path: Path) -> None:
    network = wc.neuralize(STEPS[-1])
    assert_same_network(saved_and_loaded(network, tmp_path), network, STEPS[:-1].transform(FRAME))


# The file.

SMALL = TableNetwork(SquaredEnergy(np.array([[0.0, 1.0], [2.0, 3.0], [4.0, 7.0]])), labels=["a", "b", "c"])
ROWS = np.random.default_rng(0).normal(size=(9, 2))


def test_files_are_replaced_and_links_are_followed(tmp_path: Path) -> None:
    target, link = tmp_path / "target", tmp_path / "link"
    target.write_text("before")
    target.chmod(0o640)
    link.symlink_to(target)
    wc.save(SMALL, str(link))
    assert link.is_symlink()
    assert stat.S_IMODE(target.stat().st_mode) == 0o640
    assert wc.load(link).labels.tolist() == ["a", "b", "c"]
    assert {file.name for file in tmp_path.iterdir()} == {"target", "link"}


def test_a_new_file_has_the_permissions_of_any_other(tmp_path: Path) -> None:
    wc.save(SMALL, tmp_path / "saved")
    (tmp_path / "other").touch()
    assert (tmp_path / "saved").stat().st_mode == (tmp_path / "other").stat().st_mode


def test_the_same_network_gives_the_same_file(tmp_path: Path) -> None:
    for name in "ab":
        wc.save(SMALL, tmp_path / name)
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()


def test_paths_that_cannot_be_written(tmp_path: Path) -> None:
    with pytest.raises(wc.InvalidInputError) as caught:
        wc.save(SMALL, tmp_path)
    assert str(caught.value) == f"save: path must be a file; {str(tmp_path)!r} is a folder."
    with pytest.raises(wc.InvalidInputError, match="save: path must be the name of a file; got 3"):
        wc.save(SMALL, 3)  # type: ignore[arg-type]
    with pytest.raises(FileNotFoundError) as missing:
        wc.save(SMALL, tmp_path / "nowhere" / "saved")
    assert (
        str(missing.value) == f"[Errno 2] No such file or directory: {str(tmp_path / 'nowhere' / 'saved')!r}"
    )
    assert not list(tmp_path.iterdir())


def test_devices_and_pipes_are_not_replaced(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "link").symlink_to(tmp_path / "pipe")
    for name in ("pipe", "link"):
        with pytest.raises(wc.InvalidInputError) as caught:
            wc.save(SMALL, tmp_path / name)
        assert str(caught.value) == (
            f"{str(tmp_path / name)!r} must be the name of a file; it is a folder, a device or a pipe."
        )
    assert stat.S_ISFIFO((tmp_path / "pipe").stat().st_mode)
    assert {file.name for file in tmp_path.iterdir()} == {"pipe", "link"}


def test_arrays_are_read_as_safetensors_reads_them(tmp_path: Path) -> None:
    for number, what in enumerate((SMALL, EXPLAINED, SPARSE, FRAMED)):
        path = tmp_path / str(number)
        _, arrays = contents(what, path)
        with path.open("rb") as file:
            blank = archive.ArchiveReader(path, {"values": {}}, {})
            header = archive._read_header(file, path.stat().st_size, blank)
            del header["__metadata__"]
            ours = {name: archive._read_array(file, name, entry, blank) for name, entry in header.items()}
        del ours["crc32"]
        assert ours.keys() == arrays.keys()
        for name, array in arrays.items():
            np.testing.assert_array_equal(ours[name], array, strict=True)


def test_paths_that_cannot_be_loaded(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    for path in (tmp_path, tmp_path / "nothing", tmp_path / "pipe", tmp_path / ("n" * 300)):
        with pytest.raises(wc.InvalidInputError) as caught:
            wc.load(path)
        assert str(caught.value) == (
            f"load: path must be a file written by wc.save; found no file at {str(path)!r}."
        )
    with pytest.raises(wc.InvalidInputError, match="load: path must be the name of a file; got None"):
        wc.load(None)  # type: ignore[arg-type]

    class Bytes:
        def __fspath__(self) -> bytes:
            return b"name"

    with pytest.raises(wc.InvalidInputError, match="load: path must be the name of a file; got <"):
        wc.load(Bytes())  # type: ignore[arg-type]


# Files with invalid contents.


def write(path: Path, facts: Any, arrays: dict[str, Array], *, check: bool = True) -> Path:
    """Write a file in the format of `save`, with any contents."""
    text = facts if isinstance(facts, str) else json.dumps(facts)
    extra = {"crc32": archive._checksum(text, arrays)} if check else {}
    save_file({**arrays, **extra}, path, metadata={"whycluster": text})
    return path


def contents(what: Any, path: Path) -> tuple[dict[str, Any], dict[str, Array]]:
    """Save an object; return the facts and arrays in the file."""
    wc.save(what, path)
    with safe_open(path, framework="numpy") as file:
        arrays = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118  # no dict
        facts = json.loads(file.metadata()["whycluster"])
    del arrays["crc32"]
    return facts, arrays


def error_message(path: Path) -> str:
    """Return the error of loading a file, without its beginning and end; it must not use much memory."""
    tracemalloc.start()
    try:
        with pytest.raises(wc.InvalidInputError) as caught:
            wc.load(path)
        assert tracemalloc.get_traced_memory()[1] < 20_000_000
    finally:
        tracemalloc.stop()
    message = str(caught.value)
    assert message.startswith(f"load: {str(path)!r}")
    return message.removeprefix(f"load: {str(path)!r}").removeprefix(": ").removesuffix(f". {NOT_OURS}")


SCALE = np.ones(2)
Change = Callable[[dict[str, Any], dict[str, Any]], Any]


def without(place: str) -> Change:
    return lambda facts, arrays: (facts if place in facts else arrays).pop(place)


def fact(**new: Any) -> Change:
    return lambda facts, _: facts.update(new)


def array(name: str, value: Any) -> Change:
    return lambda _, arrays: arrays.update({name: np.asarray(value)})


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (without("kind"), "the metadata must contain 'kind'"),
        (without("labels"), "there must be an array 'labels'"),
        (without("energy.scale"), "there must be an array 'energy.scale'"),
        (without("format"), "the metadata must contain the version of the format"),
        (fact(format=True), "the metadata must contain the version of the format"),
        (fact(format=0), "the format must be 1; got 0"),
        (
            fact(format=2),
            " must have format 1, the newest format that this version of whycluster reads; got 2. Update "
            "whycluster.",
        ),
        (fact(kind="pickle"), "'kind' must be one of network, explanation, segmentation; got 'pickle'"),
        (fact(kind=["network"]), "'kind' must be of type str; got list"),
        (fact(module="os"), "there must be no other facts; got 'module'"),
        (array("more", SCALE), "there must be no other arrays; got 'more'"),
        (array("../../evil", SCALE), "there must be no other arrays; got '../../evil'"),
        (array("energy.scale", [1.0]), "'energy.scale' must have shape (2,); got (1,)"),
        (array("energy.scale", [[1.0, 1.0]]), "'energy.scale' must have shape (2,); got (1, 2)"),
        (
            array("energy.centroids", np.empty((0, 2))),
            "'energy.centroids' must have shape (K, d); got (0, 2)",
        ),
        (array("energy.scale", SCALE.astype("f4")), "'energy.scale' must have dtype float64; got float32"),
        (array("energy.scale", [1, 1]), "'energy.scale' must have dtype float64; got int64"),
        (
            array("energy.scale", -SCALE),
            "'energy.scale' must be finite numbers of at least 0; it contains other values",
        ),
        (
            array("energy.scale", [1, np.nan]),
            "'energy.scale' must be finite numbers of at least 0; it contains other values",
        ),
        (array("energy.near", 2.0), "'energy.near' must be from 0 to 1; it contains other values"),
        (array("energy.near", [0.5]), "'energy.near' must have shape (); got (1,)"),
        (
            array("energy.centroids", np.full((3, 2), 1e200)),
            "its contents must be valid for a SquaredEnergy (neuralize: squared distances between centroids "
            "overflow; the largest value is 1e+200. Rescale the data and fit the model again)",
        ),
        (
            array("energy.centroids", np.ones((1, 2))),
            "its contents must be valid for a network (neuralize: the model must have at least 2 clusters, "
            "since a cluster is explained against its competitors; got 1)",
        ),
        (
            array("labels", np.full((3, 1), 97, dtype=np.uint32)),
            "its contents must be valid for a network (neuralize: labels must be distinct; got ['a', 'a', "
            "'a'])",
        ),
        (
            array("labels", np.full((2, 1), 97, dtype=np.uint32)),
            "its contents must be valid for a network (neuralize: labels must be distinct; got ['a', 'a'])",
        ),
        (
            array("labels", np.full((3, 1), 2**31, np.uint32)),
            "'labels' must contain valid Unicode code points",
        ),
        (array("labels", np.empty((3, 0), np.uint32)), "'labels' must contain valid Unicode code points"),
        (array("labels", SCALE), "'labels' must have dtype uint32; got float64"),
        (fact(values={}), "'labels' must be numbers, text or objects; got 'None'"),
        (fact(values=[]), "'values' must be of type dict; got list"),
        (fact(values={"labels": "text", "os": "text"}), "there must be no other values; got 'os'"),
        (fact(values={"labels": ["text"]}), "'labels' must be numbers, text or objects; got \"['text']\""),
        (fact(values={"labels": "objects"}), "'labels' must have dtype uint8; got uint32"),
        (
            fact(energy="TorchEnergy"),
            "'energy' must be one of SquaredEnergy, ZeroReferenceEnergy, ManhattanEnergy, MixedEnergy, "
            "DiagonalGaussianEnergy, AlignmentEnergy, DirichletTopicsEnergy, FactorEnergy, "
            "BernoulliEnergy, GaussianEnergy, LinearEnergy, CosineEnergy, StudentEnergy, "
            "KernelEnergy, FloorEnergy, NeighborEnergy, "
            "PredictionEnergy, CommunityEnergy, SpectralEnergy, TreeEnergy; got 'TorchEnergy'",
        ),
        (fact(energy="KernelEnergy"), "there must be an array 'energy.support'"),
        (fact(feature_names="ab"), "'feature_names' must be of type list or NoneType; got str"),
        (
            fact(feature_names=["a"]),
            "its contents must be valid for a network (neuralize: the model must have a name for each of "
            "its 2 features; it has 1)",
        ),
        (
            fact(feature_names=["a", []]),
            "'feature_names' must contain only objects of known kinds; it contains other values",
        ),
        (
            fact(feature_names=["a", {}]),
            "'feature_names' must contain only objects of known kinds; it contains other values",
        ),
        (
            fact(feature_names=["a", {"code": "1"}]),
            "'feature_names' must contain only objects of known kinds; it contains other values",
        ),
        (fact(feature_names=["a", {"date": "x"}]), "'feature_names' must contain a valid date; got 'x'"),
        (
            fact(feature_names=["a", {"date": 3}]),
            "'feature_names' must contain only objects of known kinds; it contains other values",
        ),
        (fact(categories=[]), "'categories' must have 2 entries; got 0"),
        (fact(categories=[None, "ab"]), "'categories' must be a list; got str"),
        (fact(fidelity=1), "'fidelity' must be of type bool; got int"),
        (fact(fidelity=True), "there must be an array 'fidelity.in_sample'"),
    ],
)
def test_networks_with_invalid_contents(change: Change, message: str, tmp_path: Path) -> None:
    facts, arrays = contents(SMALL, tmp_path / "saved")
    change(facts, arrays)
    assert error_message(write(tmp_path / "hostile", facts, arrays)) == message


@pytest.mark.parametrize(
    ("energy", "name", "value", "message"),
    [
        (KERNEL, "sizes", [3, 3], "'energy': sizes must add up to 5, the number of support vectors"),
        (KERNEL, "sizes", [2**62, 2**62], "'energy': sizes must add up to 5, the number of support vectors"),
        (KERNEL, "sizes", [0, 5], "'energy.sizes' must be integers of at least 1; it contains other values"),
        (KERNEL, "gamma", np.nan, "'energy.gamma' must be above 0; it contains other values"),
        (KERNEL, "log_weights", np.full(5, np.nan), "'energy.log_weights' must be logarithms of weights; "),
        (
            PREDICTION,
            "n_neighbors",
            0,
            "'energy.n_neighbors' must be integers of at least 1; it contains other values",
        ),
        (ENERGIES[4], "roots", np.ones((2, 3, 3)), "'energy': there must be 1 or 4 roots; got 2"),
        (
            ENERGIES[4],
            "deviations",
            np.ones((1, 3)),
            "'energy': there must be 4 rows of deviations, one per root; got 1",
        ),
        (
            ENERGIES[4],
            "deviations",
            -np.ones((4, 3)),
            "'energy.deviations' must be finite numbers of at least 0; it contains other values",
        ),
        (ENERGIES[4], "roots", -np.ones((4, 3, 3)), "'energy': roots must have diagonals above 0"),
        (ENERGIES[4], "roots", np.ones((4, 3, 2)), "'energy.roots' must have shape (r, 3, 3); got (4, 3, 2)"),
        (
            ENERGIES[7],
            "directions",
            np.zeros((4, 3)),
            "its contents must be valid for a CosineEnergy (neuralize: with ",
        ),
        (
            ENERGIES[8],
            "alpha",
            0.0,
            "'energy.alpha' must be finite numbers above 0; it contains other values",
        ),
        (
            ENERGIES[-1],
            "tree.leaf",
            [-1, 2, 0, 0],
            "'energy.tree': each cluster must be one leaf of the tree",
        ),
        (
            ENERGIES[-1],
            "tree.leaf",
            [-1, 2, 0, 2**40],
            "'energy.tree': each cluster must be one leaf of the ",
        ),
        (
            ENERGIES[-1],
            "tree.below",
            [0, -1, -1, -1],
            "'energy.tree': each pair of the tree must be below one",
        ),
        (
            ENERGIES[-1],
            "tree.below",
            [1, 1, -1, -1],
            "'energy.tree': a leaf of the tree must have nothing below it",
        ),
        (ENERGIES[-1], "tree.leaf", [0, 2, 1], "'energy.tree.leaf' must have shape (4,); got (3,)"),
    ],
)
def test_an_energy_that_is_not_as_it_must_be(
    energy: Energy, name: str, value: Any, message: str, tmp_path: Path
) -> None:
    facts, arrays = contents(TableNetwork(energy), tmp_path / "saved")
    arrays[f"energy.{name}"] = np.asarray(value)
    assert error_message(write(tmp_path / "hostile", facts, arrays)).startswith(message)


@pytest.mark.parametrize("shape", [[2, 2], [-2, -3], [6], [True, 6], [2.0, 3], ["2", 3]])
def test_series_that_are_not_as_they_must_be(shape: Any, tmp_path: Path) -> None:
    network = SeriesNetwork(SquaredEnergy(RNG.normal(size=(2, 6))), 2, 3, labels=["a", "b"])
    assert_same_network(saved_and_loaded(network, tmp_path), network, RNG.normal(size=(5, 2, 3)))
    facts, arrays = contents(network, tmp_path / "saved")
    message = error_message(write(tmp_path / "hostile", {**facts, "series": shape}, arrays))
    assert message == "'series' must be the numbers of time steps and channels of 6 features"


EXPLAINED = wc.explain(SMALL, ROWS)
SPARSE = wc.explain(SMALL, sp.csr_array(ROWS))
FRAMED = wc.explain(SMALL, pd.DataFrame(ROWS, columns=["u", "v"], index=list("abcdefghi")))


@pytest.mark.parametrize(
    ("exp", "change", "message"),
    [
        (
            EXPLAINED,
            fact(rule="exec"),
            "'rule' must be one of path, min-take-most, joint, sequential, contrast, soft",
        ),
        (EXPLAINED, fact(beta=None), "'beta' must be a number above 0, or null for contrasts"),
        (EXPLAINED, fact(beta={"float": "nan"}), "'beta' must be a number above 0, or null for contrasts"),
        (EXPLAINED, fact(beta={"tuple": []}), "'beta' must be a number above 0, or null for contrasts"),
        (
            EXPLAINED,
            fact(threshold=0.5),
            "'threshold' must be a probability for the rule 'soft' and null for all other rules",
        ),
        (EXPLAINED, fact(reference="one"), "'reference' must be one of midpoint, zero; got 'one'"),
        (EXPLAINED, fact(reference="zero"), "the metadata must contain 'reference_reason'"),
        (EXPLAINED, fact(reference_reason="x"), "there must be no other facts; got 'reference_reason'"),
        (
            EXPLAINED,
            fact(reference="zero", reference_reason=1),
            "'reference_reason' must be of type str; got int",
        ),
        (EXPLAINED, without("prior"), "there must be an array 'prior'"),
        (EXPLAINED, array("prior", np.zeros(2)), "'prior' must have shape (3,); got (2,)"),
        (EXPLAINED, array("prior", np.zeros((3, 1))), "'prior' must have shape (3,); got (3, 1)"),
        (EXPLAINED, array("prior", np.zeros(3, "f4")), "'prior' must have dtype float64; got float32"),
        (
            EXPLAINED,
            array("prior", [0.0, np.nan, 0.0]),
            "'prior' must be finite numbers; it contains other values",
        ),
        (
            EXPLAINED,
            array("prior", [0.0, -np.inf, 0.0]),
            "'prior' must be finite numbers; it contains other values",
        ),
        (EXPLAINED, fact(rule="min-take-most"), "there must be no other arrays; got 'prior'"),
        (EXPLAINED, fact(rule="contrast", beta=None), "there must be no other arrays; got 'prior'"),
        (EXPLAINED, fact(feature_names=["a"]), "there must be 2 feature_names; got 1"),
        (EXPLAINED, fact(has_rows=True), "there must be an array 'rows'"),
        (
            EXPLAINED,
            fact(data="folder"),
            "'data' must be one of none, array, csr_array, csr_matrix, pandas, ",
        ),
        (EXPLAINED, fact(called=["a"]), "'called' must contain 9 names; got 1"),
        (EXPLAINED, fact(data="none"), "there must be an array 'assigned'"),
        (EXPLAINED, array("cluster", np.full(9, 3)), "'cluster' must be below 3, the number of clusters"),
        (
            EXPLAINED,
            array("cluster", np.full(9, -1)),
            "'cluster' must be cluster codes of at least 0; it contains other values",
        ),
        (
            EXPLAINED,
            array("evidence", np.full(9, np.nan)),
            "'evidence' must be finite numbers; it contains other values",
        ),
        (EXPLAINED, array("evidence", np.ones(8)), "'evidence' must have shape (9,); got (8,)"),
        (EXPLAINED, array("evidence", np.ones(9, "f4")), "'evidence' must have dtype float64; got float32"),
        (EXPLAINED, array("relevance", np.ones((9, 3))), "there must be 3 feature_names; got 2"),
        (EXPLAINED, array("relevance", np.ones((9, 0))), "'relevance' must have shape (n, d); got (9, 0)"),
        (EXPLAINED, array("energy.scale", np.ones(3)), "'energy.scale' must have shape (2,); got (3,)"),
        (
            EXPLAINED,
            array("labels", np.full((2, 1), 97, "u4")),
            "its contents must be valid for labels (neuralize: ",
        ),
        (EXPLAINED, array("labels", np.arange(97, 99, dtype="u4")[:, None]), "there must be 3 labels; got 2"),
        (EXPLAINED, array("data", np.ones((8, 2))), "'data' must have shape (9, 2); got (8, 2)"),
        (
            SPARSE,
            array("data.indices", np.full(18, 2)),
            "'data' must contain numbers, with feature indices from 0 to 1",
        ),
        (
            SPARSE,
            array("data.indices", np.full(18, -1)),
            "'data' must contain numbers, with feature indices from 0 to 1",
        ),
        (
            SPARSE,
            array("data.indices", np.ones(17, int)),
            "'data' must contain the position where each row begins",
        ),
        (
            SPARSE,
            array("data.starts", np.arange(10)),
            "'data' must contain the position where each row begins",
        ),
        (
            SPARSE,
            array("data.starts", [0, 99, 2, 3, 4, 5, 6, 7, 8, 18]),
            "'data' must contain the position where each row be",
        ),
        (FRAMED, fact(feature_names=["u", "u"]), "'feature_names' must be distinct column names"),
        (
            FRAMED,
            fact(data="polars", index=None, feature_names=["u", 1]),
            "'feature_names' must be distinct ",
        ),
        (FRAMED, fact(data="polars"), "'index' must be null, because polars frames have no index"),
        (
            FRAMED,
            fact(index=["u", "v"]),
            "'index' must contain tuples of 2 labels, one for each level",
        ),
        (FRAMED, array("data.1", np.ones(8)), "'data.1' must have shape (9,); got (8,)"),
        (FRAMED, array("index", np.frombuffer(b'["a"]', np.uint8)), "'index' must have shape (9,); got (1,)"),
        (
            FRAMED,
            array("index", np.frombuffer(b"[" * 10**5, np.uint8)),
            "its JSON must be nested at most 100 levels deep",
        ),
        (FRAMED, array("index", np.frombuffer(b"[" + b"9" * 5000 + b"]", np.uint8)), "its JSON must be "),
    ],
)
def test_explanations_with_invalid_contents(exp: Any, change: Change, message: str, tmp_path: Path) -> None:
    facts, arrays = contents(exp, tmp_path / "saved")
    change(facts, arrays)
    assert error_message(write(tmp_path / "hostile", facts, arrays)).startswith(message)


def test_an_extreme_prior_can_be_used(tmp_path: Path) -> None:
    facts, arrays = contents(EXPLAINED, tmp_path / "saved")
    arrays["prior"] = np.array([1e308, -1e308, 0.0])
    loaded = wc.load(write(tmp_path / "forged", facts, arrays))
    np.testing.assert_allclose(loaded.competition.sum(axis=1), EXPLAINED.evidence, rtol=1e-12)


def header(described: Any, data: bytes = b"") -> bytes:
    text = described if isinstance(described, bytes) else json.dumps(described).encode()
    return struct.pack("<Q", len(text)) + text + data


def described(dtype: str, shape: list[int], stop: int) -> dict[str, Any]:
    facts = json.dumps({"format": 1, "kind": "network", "values": {}})
    return {
        "__metadata__": {"whycluster": facts},
        "a": {"dtype": dtype, "shape": shape, "data_offsets": [0, stop]},
    }


CRC = {"crc32": {"dtype": "U32", "shape": [], "data_offsets": [0, 4]}}


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"PK\x03\x04",
        pickle.dumps({"whycluster": print}),
        header({}),
        header({"__metadata__": {"format": "pt"}}),
        header({"__metadata__": {"whycluster": "{}"}}),
        header({"__metadata__": {"whycluster": "[" * 10**6}}),
        header({"__metadata__": {"whycluster": "[" * 500 + "]" * 500}}),
        header({"__metadata__": {"whycluster": 1}}),
        header({**described("F64", [1], 8), "\ud800": described("F64", [1], 8)["a"]}, bytes(8)),
        header(
            {"__metadata__": {"whycluster": '{"format": 1, "values": {}, "kind": "\ud800"}'}, **CRC}, bytes(4)
        ),
        header(b"[" * 10**6),
        struct.pack("<Q", 2**63) + b"{}",
        struct.pack("<Q", 10**8) + b"{}",
        header(described("F64", [2**60, 2**60], 8), bytes(8)),
        header(described("F64", [2**40], 8), bytes(8)),
        header(described("F64", [1], 2**50), bytes(8)),
        header(described("F64", [0, 2**62], 0)),
        header(described("F64", [1] * 70, 8), bytes(8)),
        header(described("BF16", [4], 8), bytes(8)),
        header(described("F8_E4M3", [8], 8), bytes(8)),
        header(described("C64", [1], 8), bytes(8)),
        header(described("BOOL", [8], 8), b"\7" * 8),
        header(described("F64", [1], 8), bytes(8)),
    ],
    ids=lambda content: repr(content[8:60]),
)
def test_files_that_save_did_not_write(content: bytes, tmp_path: Path) -> None:
    path = tmp_path / "hostile"
    path.write_bytes(content)
    assert error_message(path)
    assert path.read_bytes() == content
    assert list(tmp_path.iterdir()) == [path]


ENTRY = {"dtype": "F64", "shape": [2], "data_offsets": [0, 16]}


def beginning(entry: Any) -> bytes:
    """Return the beginning of a file with one array, described by ``entry``."""
    facts = json.dumps({"format": 1, "kind": "network", "values": {}})
    return header({"__metadata__": {"whycluster": facts}, "a": entry})


@pytest.mark.parametrize(
    ("entry", "message"),
    [
        ({**ENTRY, "dtype": "F8_E5M2"}, "'a' must have a supported dtype; got F8_E5M2"),
        ({**ENTRY, "dtype": ["F64"]}, "'a' must have a supported dtype; got ['F64']"),
        ({**ENTRY, "shape": [-2]}, "'a' must have a list of nonnegative integers as its shape; got [-2]"),
        (
            {**ENTRY, "shape": [True, 2]},
            "'a' must have a list of nonnegative integers as its shape; got [True, 2]",
        ),
        (
            {**ENTRY, "shape": [3]},
            "'a' must directly follow the array before it and have the length that its shape implies",
        ),
        ({**ENTRY, "shape": [0, 10**9]}, "'a' must be smaller than the file; got shape (0, 1000000000)"),
        ({**ENTRY, "shape": [1, 1, 1, 2]}, "'a' must be smaller than the file; got shape (1, 1, 1, 2)"),
        (
            {**ENTRY, "data_offsets": [8, 24]},
            "'a' must directly follow the array before it and have the length that its shape implies",
        ),
        ({**ENTRY, "data_offsets": [0, 16.0]}, "'a' must have two integers as its offsets"),
        ({**ENTRY, "data_offsets": None}, "'a' must have two integers as its offsets"),
        (7, "'a' must have two integers as its offsets"),
        (
            {**ENTRY, "shape": [1], "data_offsets": [0, 8]},
            "it must be a safetensors file (its length does not match",
        ),
    ],
)
def test_headers_that_do_not_match_the_file(entry: Any, message: str, tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(beginning(entry) + bytes(16))
    assert error_message(tmp_path / "file").startswith(message)


@pytest.mark.parametrize("start", [b"", b"{}", bytes(8), b"\xff" * 16, (5).to_bytes(8, "little") + b"[[[[["])
def test_files_without_a_header(start: bytes, tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(start)
    assert error_message(tmp_path / "file").startswith(
        ("it must be a safetensors file (", "its JSON must be")
    )


def no_room(*_: Any) -> None:
    raise MemoryError("no room")


def test_a_file_larger_than_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    size = 1 << 43  # a sparse file, which takes no space on the disk
    head = beginning({**ENTRY, "shape": [size // 8], "data_offsets": [0, size]})
    (tmp_path / "file").write_bytes(head)
    os.truncate(tmp_path / "file", len(head) + size)
    assert error_message(tmp_path / "file") == "the file is larger than the memory of this machine"
    monkeypatch.setattr(archive, "_memory", lambda: math.inf)
    monkeypatch.setattr(np, "empty", no_room)
    assert error_message(tmp_path / "file") == "the file must be readable (no room)"


def test_a_file_truncated_while_it_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    wc.save(TableNetwork(SquaredEnergy(np.arange(20_000.0).reshape(4, -1))), tmp_path / "file")
    reading = archive._read_facts

    def cut(*args: Any) -> Any:
        os.truncate(tmp_path / "file", 700)
        return reading(*args)

    monkeypatch.setattr(archive, "_read_facts", cut)
    assert error_message(tmp_path / "file") == "the file changed while it was being read"
    assert error_message(Path("/proc/self/status")).startswith("it must be a safetensors file (")


def bloated_index(rows: int, longest: int) -> Change:
    """Return a change that makes one label of the index much longer than the others."""
    coded = json.dumps([{"tuple": [0] * longest}, *[{"tuple": []}] * (rows - 1)], separators=(",", ":"))

    def change(facts: dict[str, Any], arrays: dict[str, Any]) -> None:
        facts.update(index=["u", "v"], values={**facts["values"], "index": "objects"})
        arrays["index"] = np.frombuffer(coded.encode(), np.uint8)

    return change


@pytest.mark.slow
def test_a_small_file_cannot_fill_the_memory(tmp_path: Path) -> None:
    """Padded to the longest label, this index would take 240 MB; the process may take 64 MB more."""
    n, path = 1000, tmp_path / "hostile"
    rows = pd.DataFrame({"u": np.arange(n), "v": 1.0}, index=[f"row {i}" for i in range(n)])
    facts, arrays = contents(wc.explain(SMALL, rows), tmp_path / "saved")
    bloated_index(n, 30_000)(facts, arrays)
    assert write(path, facts, arrays).stat().st_size < 150_000
    code = """
import resource, sys
import whycluster as wc
wc.load(sys.argv[1])  # imports the modules that it needs
used = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_AS, (used + 2**26, used + 2**26))
try: wc.load(sys.argv[2])
except wc.InvalidInputError as error: print(error)
"""
    command: list[str | Path] = [sys.executable, "-c", code, tmp_path / "saved", path]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.stdout == (
        f"load: {str(path)!r}: 'index' must contain tuples of 2 labels, one for each level. {NOT_OURS}\n"
    ), done.stderr


def test_contents_that_do_not_fit_into_the_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    wc.save(SMALL, tmp_path / "saved")
    monkeypatch.setattr(networks, "take_energy", no_room)
    with pytest.raises(wc.InvalidInputError) as caught:
        wc.load(tmp_path / "saved")
    assert str(caught.value) == (
        f"load: the contents of {str(tmp_path / 'saved')!r} do not fit into the free memory."
    )


def test_deeply_nested_objects(tmp_path: Path) -> None:
    facts, arrays = contents(FRAMED, tmp_path / "saved")
    for depth in (50, 2000, 10**4, 10**5):
        nested = '{"tuple":[' * depth + "]}" * depth
        text = json.dumps({**facts, "feature_names": ["u", "HERE"]}).replace('"HERE"', nested)
        message = error_message(write(tmp_path / "hostile", text, arrays))
        assert message == "its JSON must be nested at most 100 levels deep"


def test_brackets_in_names_are_not_nesting_but_deep_tuples_are(tmp_path: Path) -> None:
    name = '[{"\\' * 200
    network = TableNetwork(ENERGIES[-1], feature_names=["u", "v", name])
    wc.save(network, tmp_path / "brackets")
    assert wc.load(tmp_path / "brackets").feature_names == ["u", "v", name]
    deep: tuple[Any, ...] = ()
    for _ in range(60):
        deep = (deep,)
    with pytest.raises(wc.UnsupportedModelError, match="these are nested more deeply than a file allows"):
        wc.save(TableNetwork(ENERGIES[-1], feature_names=["u", "v", deep]), tmp_path / "deep")
    assert not (tmp_path / "deep").exists()


def test_deeply_nested_json_is_an_error_at_any_recursion_limit(tmp_path: Path) -> None:
    path = tmp_path / "hostile"
    path.write_bytes(header({"__metadata__": {"whycluster": "[" * 10**6}}))
    code = (
        "import sys, whycluster as wc\nsys.setrecursionlimit(10**9)\n"
        "try: wc.load(sys.argv[1])\nexcept wc.InvalidInputError as error: print(error)"
    )
    done = subprocess.run([sys.executable, "-c", code, path], capture_output=True, text=True, check=True)
    assert "its JSON must be nested at most 100 levels deep" in done.stdout


def test_a_file_of_another_program_or_without_a_checksum(tmp_path: Path) -> None:
    facts, arrays = contents(SMALL, tmp_path / "saved")
    assert error_message(write(tmp_path / "unchecked", facts, arrays, check=False)) == (
        "the checksum must match the contents"
    )
    save_file(arrays, tmp_path / "weights")
    assert error_message(tmp_path / "weights") == "the metadata must contain the key 'whycluster'"


def categorical_explanation() -> wc.Explanation:
    rows = np.array([["a", 1.5], ["b", 2], ["a", 3], ["b", 9]] * 5, dtype=object)
    model = KPrototypes(2, random_state=0).fit(rows, categorical=[0])
    return wc.explain(model, rows, categorical=[0])


ORIGINALS: dict[str, Any] = {
    "floor": lambda: TableNetwork(ENERGIES[-2], labels=objects("a", 1, None)),
    "tree": lambda: TableNetwork(ENERGIES[-1], feature_names=["u", "v", ("w", DAY)]),
    "array": lambda: EXPLAINED[[2, 4, 6]],
    "sparse": lambda: SPARSE,
    "frame": lambda: FRAMED,
    "categories": categorical_explanation,
}


@cache
def original(which: str) -> Any:
    return ORIGINALS[which]()


@pytest.fixture(scope="module")
def changed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The path of a file."""
    return tmp_path_factory.mktemp("files") / "changed"


def content(which: str, path: Path) -> bytes:
    wc.save(original(which), path)
    return path.read_bytes()


def is_error_or(fine: Callable[[Any], bool], path: Path) -> bool:
    try:
        loaded = wc.load(path)
    except wc.InvalidInputError as error:
        return str(error).startswith("load: ")
    return fine(loaded)


def is_same(loaded: Any, original: Any) -> bool:
    if isinstance(loaded, wc.Explanation):
        return loaded.relevance.tobytes() == original.relevance.tobytes() and str(loaded) == str(original)
    same: bool = state(loaded.energy) == state(original.energy)
    return same and bool(loaded.labels.tolist() == original.labels.tolist())


@pytest.mark.slow
@given(which=st.sampled_from(list(ORIGINALS)), data=st.data())
def test_a_damaged_file_is_an_error_or_loads_the_same(which: str, data: st.DataObject, changed: Path) -> None:
    damaged = bytearray(content(which, changed))
    for place in data.draw(st.lists(st.integers(0, len(damaged) - 1), min_size=1, max_size=4)):
        damaged[place] ^= data.draw(st.integers(1, 255))
    changed.write_bytes(damaged)
    assert is_error_or(lambda loaded: is_same(loaded, original(which)), changed)


@given(which=st.sampled_from(list(ORIGINALS)), share=st.floats(0, 1, exclude_max=True))
def test_a_truncated_file_is_an_error(which: str, share: float, changed: Path) -> None:
    whole = content(which, changed)
    for wrong in (whole[: int(share * len(whole))], whole + b"more"):
        changed.write_bytes(wrong)
        assert error_message(changed)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(["tuple", "float", "date", "x"]), inner, max_size=2)
    ),
    max_leaves=6,
)
ARRAYS = st.builds(
    lambda dtype, shape, fill: np.full(shape, fill).astype(dtype),
    st.sampled_from(["f8", "f4", "i8", "u4", "u1", "?"]),
    st.lists(st.integers(0, 9), max_size=3),
    st.sampled_from([0, 1, 2, 97]),
)


@given(which=st.sampled_from(list(ORIGINALS)), data=st.data())
def test_a_forged_file_is_an_error_or_loads_a_usable_object(
    which: str, data: st.DataObject, changed: Path
) -> None:
    """The checksum is right, but everything else is arbitrary."""
    facts, arrays = contents(original(which), changed)
    for _ in range(data.draw(st.integers(1, 3))):
        if data.draw(st.booleans()):
            facts[data.draw(st.sampled_from([*facts, "other"]))] = data.draw(JSON)
        else:
            arrays[data.draw(st.sampled_from([*arrays, "other"]))] = data.draw(ARRAYS)
    assert is_error_or(can_be_used, write(changed, facts, arrays))


def can_be_used(loaded: Any) -> bool:
    try:
        if isinstance(loaded, wc.Explanation):
            return bool(str(loaded)) and len(loaded.top().value) == len(loaded)
        return len(loaded.explain(np.ones((3, loaded.n_features))).relevance) == 3
    except wc.WhyClusterError:
        return True


@pytest.mark.slow
def test_no_code_runs_and_nothing_is_written(tmp_path: Path) -> None:
    """An audit hook sees that no file is opened for writing, and that no module or code is loaded."""
    paths = []
    for number, what in enumerate((SMALL, EXPLAINED, SPARSE, FRAMED)):
        paths.append(tmp_path / str(number))
        facts, arrays = contents(what, paths[-1])
        evil = {**facts, "energy": "os.system", "feature_names": [{"__reduce__": "os.system"}, "../../x"]}
        paths.append(write(tmp_path / f"evil{number}", evil, arrays))
    before = {file.name: file.read_bytes() for file in tmp_path.iterdir()}
    code = f"""
import os, sys
import whycluster as wc
paths = {[str(path) for path in paths]}
for path in paths[::2]:
    wc.load(path)  # imports the modules that it needs
events = []
def listen(event, args):
    if event == "open" and not (args[2] & (os.O_WRONLY | os.O_RDWR | os.O_CREAT)):
        return
    if event.startswith(("open", "exec", "compile", "import", "os.", "shutil.", "subprocess.", "pickle.",
                         "socket.", "ctypes.dlopen", "marshal.")):
        events.append((event, str(args)[:200]))
sys.addaudithook(listen)
for path in paths:
    try:
        wc.load(path)
    except wc.InvalidInputError:
        pass
print(events)
"""
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert result.stdout == "[]\n", result.stderr
    assert before == {file.name: file.read_bytes() for file in tmp_path.iterdir()}


def test_a_mixture_saved_without_deviations(tmp_path: Path) -> None:
    """Without them, its explanations would mix the relevance of the file with another split."""
    facts, arrays = contents(TableNetwork(ENERGIES[4]), tmp_path / "saved")
    del arrays["energy.deviations"]
    assert (
        error_message(write(tmp_path / "old", facts, arrays)) == "there must be an array 'energy.deviations'"
    )


def test_files_of_format_1_still_load() -> None:
    """The files were written by the first version that used format 1."""
    folder = Path(__file__).parent / "format_1"
    rows = np.array([[0.0, 1.0], [1.0, 0.0], [4.0, 5.0], [5.0, 4.5]])
    network, explanation = wc.load(folder / "network.wc"), wc.load(folder / "explanation.wc")
    np.testing.assert_array_equal(explanation.data, rows)
    again = network.explain(rows, rule="min-take-most")
    np.testing.assert_array_equal(again.relevance, explanation.relevance)
    np.testing.assert_array_equal(again.competition, explanation.competition)
    assert (explanation.rule, explanation.beta, explanation.prior) == ("min-take-most", again.beta, None)
