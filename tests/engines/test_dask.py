"""Dask collections: lazy results equal those in memory, and errors name the partition."""

from __future__ import annotations

import os
import re
import signal
import time
import weakref
from collections.abc import Callable, Iterator
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING, Any

import pytest

for library in ("dask", "dask_ml", "distributed", "pyarrow"):
    pytest.importorskip(library, reason=f"{library} is not installed")


import dask
import dask.array as da
import dask.bag
import dask.dataframe as dd
import numpy as np
import pandas as pd
import scipy.sparse as sp
from dask.delayed import Delayed
from dask_ml.cluster import KMeans as DaskKMeans
from dask_ml.wrappers import ParallelPostFit
from distributed import Client, KilledWorker, LocalCluster, wait
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from sklearn.cluster import KMeans
from sklearn.compose import make_column_transformer
from sklearn.decomposition import PCA
from sklearn.mixture import GaussianMixture
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler

import whycluster as wc
from tests.optional import optional
from whycluster.engines.dask.engine import DaskEngine
from whycluster.engines.dask.parts import Partition
from whycluster.engines.dask.results import LazyExplanation, _aggregate
from whycluster.evaluation import compare

if TYPE_CHECKING:
    import polars as pl
    from kmodes.kmodes import KModes
else:
    pl = optional("polars")
    KModes = optional("kmodes.kmodes:KModes")

Array = NDArray[Any]
NAMES = list("abcd")


@pytest.fixture(scope="module")
def rows() -> Array:
    """Three groups of 100 rows, 4 features."""
    rng = np.random.default_rng(0)
    return rng.normal(size=(300, 4)) + 3.0 * np.repeat(rng.normal(size=(3, 4)), 100, axis=0)


@pytest.fixture(scope="module")
def model(rows: Array) -> Any:
    return KMeans(3, n_init=1, random_state=0).fit(rows)


def framed(rows: Array, npartitions: int = 4) -> Any:
    frame = pd.DataFrame(rows, columns=NAMES, index=[f"row {i:03}" for i in range(len(rows))])
    return dd.from_pandas(frame, npartitions=npartitions)


def unknown_sizes(rows: Array) -> Any:
    X = da.from_array(rows, chunks=(70, 4))
    return X[X[:, 0] > -1.0]


def sparse_blocks(rows: Array) -> Any:
    return da.from_array(rows, chunks=(70, 4)).map_blocks(
        sp.csr_array, dtype=float, meta=sp.csr_array((0, 0))
    )


COLLECTIONS: dict[str, Callable[[Array], Any]] = {
    "array": lambda rows: da.from_array(rows, chunks=(70, 4)),
    "array in blocks of columns": lambda rows: da.from_array(rows, chunks=(70, 3)),
    "array of unknown sizes": unknown_sizes,
    "array of sparse blocks": sparse_blocks,
    "array of a frame": lambda rows: framed(rows).to_dask_array(),
    "frame": framed,
    "frame, filtered": lambda rows: framed(rows)[framed(rows)["a"] > -1.0],
}

QUERIES: dict[str, dict[str, Any]] = {
    "plain": {},
    "beta": {"beta": 0.3},
    "min-take-most": {"rule": "min-take-most"},
    "nothing to measure": {"rule": "min-take-most", "beta": 0.3},
    "target": {"target": 2},
    "against": {"against": 1},
    "joint": {"rule": "joint"},
    "sequential": {"rule": "sequential"},
    "contrast": {"rule": "contrast"},
}


def assert_same(lazy: LazyExplanation, exp: wc.Explanation) -> None:
    """Check that a lazy explanation equals one in memory, up to rounding."""
    relevance, evidence, cluster, competitor, beta = dask.compute(
        lazy.relevance, lazy.evidence, lazy.cluster, lazy.competitor, lazy.beta
    )
    size = np.abs(exp.relevance).max()
    assert relevance.dtype == exp.relevance.dtype == lazy.relevance.dtype
    assert evidence.dtype == exp.evidence.dtype == lazy.evidence.dtype
    assert cluster.dtype == exp.cluster.dtype == lazy.cluster.dtype
    assert np.abs(relevance - exp.relevance).max() <= 1e-12 * size
    assert np.abs(evidence - exp.evidence).max() <= 1e-12 * np.abs(exp.evidence).max()
    assert (cluster == exp.cluster).all()
    assert (competitor == exp.competitor).all()
    assert beta == (exp.beta if exp.beta is None else pytest.approx(exp.beta, rel=1e-12))
    assert (lazy.labels == exp.labels).all()
    assert (lazy.rule, lazy.threshold) == (exp.rule, exp.threshold)


@pytest.mark.parametrize("query", QUERIES)
@pytest.mark.parametrize("kind", COLLECTIONS)
def test_results_equal_those_of_explain_in_memory(kind: str, query: str, rows: Array, model: Any) -> None:
    X = COLLECTIONS[kind](rows)
    exp = wc.explain(model, X.compute(), **QUERIES[query])
    lazy: Any = wc.explain(model, X, **QUERIES[query])
    assert isinstance(lazy, LazyExplanation)
    assert lazy.feature_names == exp.feature_names
    assert_same(lazy, exp)


@settings(max_examples=25)
@given(
    st.lists(st.integers(0, 40), min_size=1, max_size=30).filter(any),
    st.sampled_from(["path", "min-take-most", "sequential"]),
)
def test_the_sizes_of_the_chunks_do_not_matter(sizes: list[int], rule: str) -> None:
    X = np.random.default_rng(sum(sizes)).normal(size=(sum(sizes), 3))
    centroids = [[0.0, 0.0, 0.0], [1.0, 1.0, 0.0], [0.0, 2.0, 5.0]]
    lazy: Any = wc.explain(centroids, da.from_array(X, chunks=(tuple(sizes), (3,))), rule=rule)
    with dask.config.set(scheduler="sync"):
        assert_same(lazy, wc.explain(centroids, X, rule=rule))


def test_float32_stays_float32(rows: Array, model: Any) -> None:
    small = rows.astype(np.float32)
    for X in (da.from_array(small, chunks=(70, 4)), framed(small)):
        lazy: Any = wc.explain(model, X)
        assert lazy.relevance.dtype == lazy.evidence.dtype == np.float32
        relevance = lazy.relevance.compute()
        assert relevance.dtype == np.float32
        assert np.abs(relevance - wc.explain(model, small).relevance).max() <= 1e-5 * np.abs(relevance).max()


def test_mixtures_thresholds_and_labels_of_any_kind(rows: Array) -> None:
    mixture = GaussianMixture(3, random_state=0).fit(rows)
    X = da.from_array(rows, chunks=(70, 4))
    lazy: Any = wc.explain(mixture, X, threshold=0.9, feature_names=NAMES)
    exp = wc.explain(mixture, rows, threshold=0.9, feature_names=NAMES)
    assert lazy.feature_names == NAMES
    assert_same(lazy, exp)
    network = wc.TableNetwork(wc.neuralize(mixture).energy, labels=["red", "green", "blue"])
    named: Any = wc.explain(network, X, target="green")
    assert_same(named, wc.explain(network, rows, target="green"))
    assert set(named.to_frame()["cluster"].compute()) == {"green"}


def test_a_pipeline_with_categories_is_explained_by_its_columns(rows: Array) -> None:
    frame = pd.DataFrame(rows, columns=NAMES).assign(
        kind=np.array(["tall", "small"])[(rows[:, 0] > 0).astype(int)]
    )
    columns = make_column_transformer((StandardScaler(), NAMES), (OneHotEncoder(), ["kind"]))
    pipeline = make_pipeline(columns, PCA(3), KMeans(3, n_init=1, random_state=0)).fit(frame)
    X = dd.from_pandas(frame, npartitions=5)
    lazy: Any = wc.explain(pipeline, X)
    assert lazy.feature_names == [*NAMES, "kind"]
    assert_same(lazy, wc.explain(pipeline, frame))
    assigned: Any = wc.neuralize(pipeline).assign(X)
    assert (assigned.compute() == pipeline.predict(frame)).all()


def test_a_surrogate_keeps_its_fidelity(rows: Array, model: Any) -> None:
    surrogate = wc.Surrogate(random_state=0).fit(rows, model.labels_)
    lazy: Any = wc.explain(surrogate, da.from_array(rows, chunks=(70, 4)))
    exp = wc.explain(surrogate, rows)
    assert_same(lazy, exp)
    assert lazy.fidelity is not None
    assert lazy.compute().fidelity is lazy.fidelity


def test_columns_are_matched_by_name(rows: Array) -> None:
    model = KMeans(3, n_init=1, random_state=0).fit(pd.DataFrame(rows, columns=NAMES))
    exp = wc.explain(model, framed(rows).compute())
    lazy: Any = wc.explain(model, framed(rows)[["c", "a", "d", "b"]])
    assert lazy.feature_names == NAMES
    assert_same(lazy, exp)


def test_the_frame_equals_that_of_the_explanation(rows: Array, model: Any) -> None:
    X = framed(rows)
    lazy: Any = wc.explain(model, X)
    frame = lazy.to_frame()
    assert frame.npartitions == X.npartitions
    assert frame.divisions == X.divisions
    computed = frame.compute()
    pd.testing.assert_frame_equal(computed, wc.explain(model, X.compute()).to_frame())
    pd.testing.assert_series_equal(computed.dtypes, frame.dtypes)
    pd.testing.assert_frame_equal(frame.loc["row 120":"row 129"].compute(), computed.iloc[120:130])
    sizes = [len(part) for part in dask.compute(*frame.to_delayed())]
    assert sizes == [len(part) for part in dask.compute(*X.to_delayed())]


@pytest.mark.parametrize("kind", ["array", "array of unknown sizes"])
def test_the_frame_of_an_array_counts_its_rows(kind: str, rows: Array, model: Any) -> None:
    lazy: Any = wc.explain(model, COLLECTIONS[kind](rows))
    frame = lazy.to_frame()
    expected = wc.explain(model, COLLECTIONS[kind](rows).compute()).to_frame()
    if kind == "array":
        assert frame.divisions == (0, 70, 140, 210, 280, 299)
        pd.testing.assert_frame_equal(frame.compute(), expected)
    else:  # like Dask's own frames of such arrays
        assert not frame.known_divisions
        assert frame.partitions[-1].compute().index.tolist()[:3] == [0, 1, 2]
        pd.testing.assert_frame_equal(frame.compute().reset_index(drop=True), expected)


def test_a_column_with_the_name_of_a_result(rows: Array, model: Any) -> None:
    X = framed(rows).rename(columns={"a": "cluster"})
    lazy: Any = wc.explain(model, X)
    assert list(lazy.to_frame().columns) == ["cluster_", "competitor", "evidence", "cluster", "b", "c", "d"]


@pytest.mark.parametrize("kind", COLLECTIONS)
def test_compute_gives_an_explanation_in_memory(kind: str, rows: Array, model: Any) -> None:
    X = COLLECTIONS[kind](rows)
    lazy: Any = wc.explain(model, X, target=1)
    computed, expected = lazy.compute(), wc.explain(model, X.compute(), target=1)
    assert type(computed) is wc.Explanation
    assert_same(lazy, computed)
    assert str(computed) == str(expected)
    assert str(computed.summary()) == str(expected.summary())
    assert computed.competition == pytest.approx(expected.competition, rel=1e-9)
    assert (computed.assigned == expected.assigned).all()


@pytest.mark.parametrize("kind", COLLECTIONS)
def test_the_summary_is_added_up_lazily(kind: str, rows: Array, model: Any) -> None:
    X = COLLECTIONS[kind](rows)
    lazy: Any = wc.explain(model, X)
    expected = wc.explain(model, X.compute()).summary()
    found = lazy.summary().compute()
    # Only means are added up, so features may be compared with other clusters than in memory.
    assert found.inside == pytest.approx(expected.inside, rel=1e-9, nan_ok=True)
    assert found.outside == pytest.approx(expected.outside, rel=1e-9, nan_ok=True)
    assert str(found).split("\n")[0].split() == str(expected).split("\n")[0].split()
    assert found.relevance == pytest.approx(expected.relevance, rel=1e-9)
    assert (found.size == expected.size).all()


def test_a_summary_needs_rows_explained_for_their_own_clusters(rows: Array, model: Any) -> None:
    lazy: Any = wc.explain(model, framed(rows), target=1)
    with pytest.raises(wc.InvalidInputError) as error:
        lazy.summary()
    assert str(error.value) == (
        "summary: rows must be explained for their own clusters, against all others. Explain the rows "
        "without target= and against=."
    )


class Loads:
    """Counts how many partitions were loaded, were in memory at the same time, and were explained."""

    def __init__(self) -> None:
        self.lock = Lock()
        self.start()

    def start(self) -> None:
        self.loaded = self.in_memory = self.most = self.explained = 0

    def add(self, rows: Array) -> Array:
        with self.lock:
            self.loaded += 1
            self.in_memory += 1
            self.most = max(self.most, self.in_memory)
        weakref.finalize(rows, self.forget)
        return rows

    def forget(self) -> None:
        self.in_memory -= 1  # without the lock: this can be called anywhere, also while the lock is held


LOADS = Loads()


def load(number: int) -> Array:
    return LOADS.add(np.random.default_rng(number).normal(size=(20, 4)))


def load_frame(number: int) -> Any:
    return pd.DataFrame(load(number), columns=NAMES)


def load_block(block_id: tuple[int, ...] = ()) -> Array:
    return load(block_id[0])


def from_delayed_blocks() -> Any:
    blocks = [da.from_delayed(dask.delayed(load)(i), (20, 4), float) for i in range(40)]
    return da.concatenate(blocks)


LOADED: dict[str, Callable[[], Any]] = {
    "blocks": lambda: da.map_blocks(
        load_block, chunks=((20,) * 40, (4,)), dtype=float, meta=np.empty((0, 0))
    ),
    "delayed": from_delayed_blocks,
    "frame": lambda: dd.from_map(load_frame, range(40), meta=pd.DataFrame(np.empty((0, 4)), columns=NAMES)),
}


@pytest.fixture
def loads(monkeypatch: pytest.MonkeyPatch) -> Loads:
    """Count loads and explanations from 0."""
    explain = DaskEngine.explain

    def counted(self: DaskEngine, part: Partition) -> Any:
        with LOADS.lock:
            LOADS.explained += 1
        return explain(self, part)

    monkeypatch.setattr(DaskEngine, "explain", counted)
    LOADS.start()
    return LOADS


@pytest.mark.parametrize("kind", LOADED)
def test_nothing_is_computed_before_it_is_needed(kind: str, loads: Loads, model: Any) -> None:
    X = LOADED[kind]()
    before = loads.loaded  # making the collection may have loaded a partition
    lazy: Any = wc.explain(model, X)
    parts = [lazy.relevance, lazy.evidence, lazy.cluster, lazy.competitor, lazy.beta, lazy.to_frame()]
    assert repr(lazy) == (
        "<LazyExplanation of 40 partitions, 4 features, 3 clusters (path, beta measured); "
        "compute() returns an Explanation>"
    )
    assert repr(parts)
    wc.neuralize(model).assign(X)
    assert loads.loaded == before
    assert loads.explained == 0


@pytest.mark.slow
@pytest.mark.parametrize("kind", LOADED)
def test_a_partition_is_explained_once_and_read_once_for_each_step(
    kind: str, loads: Loads, model: Any
) -> None:
    X = LOADED[kind]()
    lazy: Any = wc.explain(model, X)
    for wanted in (
        lambda: dask.compute(lazy.relevance, lazy.cluster, lazy.competitor, lazy.evidence, lazy.beta),
        lambda: lazy.to_frame().compute(),
        lazy.compute,
        lambda: lazy.summary().compute(),
    ):
        loads.start()
        wanted()
        assert (loads.explained, loads.loaded) == (40, 80)
    loads.start()
    given: Any = wc.explain(model, X, beta=0.5)
    assert given.beta == 0.5  # a number, although the cluster sizes have to be measured
    given.relevance.compute()
    assert loads.loaded == 80
    sample = np.random.default_rng(0).normal(size=(50, 4))
    for query in ({"beta": 0.5, "rule": "joint"}, {"background": sample}):  # nothing to measure
        loads.start()
        lazy = wc.explain(model, X, **query)
        lazy.relevance.compute()
        assert loads.loaded == 40


@pytest.mark.parametrize("kind", LOADED)
def test_no_partition_is_kept_until_all_are_measured(kind: str, loads: Loads, model: Any) -> None:
    lazy: Any = wc.explain(model, LOADED[kind]())
    loads.start()
    with dask.config.set(num_workers=2):
        lazy.relevance.sum().compute()
        assert loads.loaded == 80
        assert loads.most <= 20
        loads.start()
        lazy.to_frame().sum().compute()
        assert loads.most <= 20


def test_persisted_data_are_not_read_again(loads: Loads, model: Any) -> None:
    X = LOADED["blocks"]().persist()
    loads.start()
    wc.explain(model, X).compute()  # type: ignore[attr-defined]
    assert loads.loaded == 0


def test_the_model_is_in_the_graph_once(model: Any) -> None:
    lazy: Any = wc.explain(model, da.zeros((1000, 4), chunks=(10, 4)))
    graph = dict(lazy.relevance.__dask_graph__())
    assert sum("partitions" in str(key) for key in graph) == 1
    assert len(graph) > 300


def test_a_few_partitions_can_be_computed_alone(rows: Array, model: Any) -> None:
    lazy: Any = wc.explain(model, da.from_array(rows, chunks=(70, 4)))
    exp = wc.explain(model, rows)
    assert lazy.relevance.blocks[2].compute() == pytest.approx(exp.relevance[140:210], rel=1e-12)
    part = lazy.to_frame().partitions[1].compute()
    assert part["evidence"].to_numpy() == pytest.approx(exp.evidence[70:140], rel=1e-12)


@pytest.mark.parametrize("make", [framed, lambda rows: framed(rows).compute()], ids=["dask", "pandas"])
def test_beta_is_measured_on_the_background(make: Any, rows: Array, model: Any) -> None:
    background = make(rows)[["d", "c", "b", "a"]]  # matched by name with the explained frame
    few = framed(rows).loc["row 000":"row 009"]
    lazy: Any = wc.explain(model, few, background=background)
    exp = wc.explain(model, few.compute(), background=framed(rows).compute())
    assert_same(lazy, exp)
    assert isinstance(lazy.beta, Delayed if make is framed else float)


def test_a_background_with_other_columns(rows: Array, model: Any) -> None:
    with pytest.raises(wc.InvalidInputError) as error:
        wc.explain(model, framed(rows), background=framed(rows).rename(columns={"b": "e"}))
    assert str(error.value) == (
        "explain: background must have the 4 columns the model was fitted on; missing: ['b']; "
        "unknown: ['e']. Select or rename its columns first."
    )


def test_errors_in_a_background_name_it(rows: Array, model: Any) -> None:
    bad = rows.copy()
    bad[145, 2] = np.nan
    background = da.from_array(bad, chunks=(70, 4))
    lazy: Any = wc.explain(model, da.from_array(rows, chunks=(70, 4)), background=background)
    with pytest.raises(wc.InvalidInputError) as error:
        lazy.relevance.compute()
    assert str(error.value) == (
        "explain: background must be finite; row 5, feature 'x2' holds a missing value (NaN). Drop or fill "
        "such rows first. The error is in partition 2 of background; its rows are counted from 0."
    )


def test_many_partitions_on_several_threads_at_once() -> None:
    """Only one call at a time uses threads of its own; calls at the same time must not be affected."""
    rng = np.random.default_rng(0)
    X, centroids = rng.normal(size=(120_000, 8)), rng.normal(size=(20, 8))
    lazy: Any = wc.explain(centroids, da.from_array(X, chunks=(30_000, 8)))
    with dask.config.set(scheduler="threads", num_workers=4):
        assert_same(lazy, wc.explain(centroids, X))


def test_assign_is_lazy_too(rows: Array, model: Any) -> None:
    network = wc.TableNetwork(wc.neuralize(model).energy, labels=["red", "green", "blue"])
    for make in COLLECTIONS.values():
        X = make(rows)
        assigned: Any = network.assign(X)
        assert isinstance(assigned, da.Array)
        assert (assigned.compute() == network.assign(X.compute())).all()
    assert assigned.dtype == network.labels.dtype


@pytest.mark.slow
def test_kmeans_of_dask_ml(wine: Array) -> None:
    X = da.from_array(wine, chunks=(50, 13))
    model = DaskKMeans(4, random_state=0).fit(X)
    network = wc.neuralize(model)
    assert not network.is_checked  # its class is trusted
    new = da.random.default_rng(0).normal(scale=2.0, size=(2000, 13), chunks=(500, 13))
    for rows in (X, new):
        assigned: Any = network.assign(rows)
        assert (assigned.compute() == model.predict(rows).compute()).all()
    lazy: Any = wc.explain(model, X)
    assert (lazy.cluster.compute() == model.labels_.compute()).all()
    assert_same(lazy, wc.explain(model, wine))


def test_estimators_in_a_dask_ml_wrapper(wine: Array) -> None:
    model = ParallelPostFit(KMeans(3, n_init=1, random_state=0)).fit(wine)
    assert (wc.neuralize(model).assign(wine) == model.predict(wine)).all()


def test_centroids_and_labels_can_be_lazy(rows: Array, model: Any) -> None:
    centroids, labels = (da.from_array(values) for values in (model.cluster_centers_, model.labels_))
    assert (wc.explain(centroids, rows).cluster == model.labels_).all()
    assert (wc.explain(labels, rows).cluster == model.labels_).all()
    assert_same(wc.explain(centroids, da.from_array(rows, chunks=(70, 4))), wc.explain(model, rows))  # type: ignore[arg-type]


class OwnKMeans(DaskKMeans):  # type: ignore[misc]  # without types
    """A subclass that predicts differently."""

    def predict(self, X: Any) -> Any:
        return 2 - super().predict(X)


def test_a_subclass_of_dask_ml_is_checked(wine: Array) -> None:
    model = OwnKMeans(3, random_state=0).fit(wine)
    with pytest.raises(wc.UnsupportedModelError, match="OwnKMeans does not predict the nearest"):
        wc.explain(model, wine)
    lazy: Any = wc.explain(model, da.from_array(wine, chunks=(60, 13)))
    with pytest.raises(wc.UnsupportedModelError, match="OwnKMeans does not predict the nearest"):
        lazy.compute()


# Bad input


def from_parts(*parts: Any) -> Any:
    """Return a frame whose meta is that of its first part, whatever the other parts look like."""
    return dd.from_map(lambda part: part, parts, meta=parts[0].iloc[:0])


def test_an_empty_partition_stays_empty(rows: Array, model: Any) -> None:
    frame = framed(rows).compute()
    X = from_parts(frame.iloc[:100], frame.iloc[:0], frame.iloc[100:])
    lazy: Any = wc.explain(model, X)
    assert_same(lazy, wc.explain(model, frame))
    assert [len(part) for part in dask.compute(*lazy.to_frame().to_delayed())] == [100, 0, 200]


def test_only_empty_partitions(rows: Array, model: Any) -> None:
    lazy: Any = wc.explain(model, unknown_sizes(np.minimum(rows, -2.0)))
    with pytest.raises(wc.InvalidInputError) as error:
        lazy.relevance.compute()
    assert str(error.value) == "explain: there must be at least one row that can be explained; found none."


@pytest.mark.parametrize("value", [np.nan, np.inf])
@pytest.mark.parametrize("query", [{}, {"beta": 0.5, "rule": "joint"}], ids=["auto", "known"])
def test_a_row_that_is_not_finite(value: float, query: dict[str, Any], rows: Array, model: Any) -> None:
    bad = rows.copy()
    bad[145, 2] = value
    lazy: Any = wc.explain(model, da.from_array(bad, chunks=(70, 4)), **query)
    kind = "a missing value (NaN)" if np.isnan(value) else "an infinite value"
    for wanted in (lazy.relevance, lazy.to_frame(), lazy):
        with pytest.raises(wc.InvalidInputError) as error:
            wanted.compute()
        assert str(error.value) == (
            f"explain: X must be finite; row 5, feature 'x2' holds {kind}. Drop or fill such rows first. "
            "The error is in partition 2 of X; its rows are counted from 0."
        )


def test_rows_with_missing_values_can_be_dropped_lazily(rows: Array, model: Any) -> None:
    frame = framed(rows).compute()
    frame.iloc[[3, 170], 1] = np.nan
    X = dd.from_pandas(frame, npartitions=4).dropna()
    assert_same(wc.explain(model, X), wc.explain(model, frame.dropna()))  # type: ignore[arg-type]


def test_a_partition_with_a_missing_column(rows: Array, model: Any) -> None:
    frame = framed(rows).compute()
    X = from_parts(frame.iloc[:100], frame.iloc[100:].rename(columns={"c": "see"}))
    lazy: Any = wc.explain(model, X)
    with pytest.raises(wc.InvalidInputError) as error:
        lazy.relevance.compute()
    assert str(error.value) == (
        "explain: all partitions of X must have the 4 columns of the meta; missing: ['c']; unknown: "
        "['see']. Select or rename columns when the data are read. The error is in partition 1 of X; its "
        "rows are counted from 0."
    )


def test_a_partition_with_a_column_twice(rows: Array, model: Any) -> None:
    frame = framed(rows).compute()
    lazy: Any = wc.explain(model, from_parts(frame, frame[["a", "a", "b", "c", "d"]]))
    with pytest.raises(wc.InvalidInputError, match=r"unknown: \['a', 'a'\]"):
        lazy.relevance.compute()


def test_a_partition_with_columns_in_another_order(rows: Array, model: Any) -> None:
    frame = framed(rows).compute()
    X = from_parts(frame.iloc[:100], frame.iloc[100:][["d", "a", "c", "b"]])
    assert_same(wc.explain(model, X), wc.explain(model, frame))  # type: ignore[arg-type]


def test_a_partition_with_text_in_a_numeric_column(rows: Array, model: Any) -> None:
    frame = framed(rows).compute()
    X = from_parts(frame.iloc[:100], frame.iloc[100:].assign(b="much"))
    lazy: Any = wc.explain(model, X)
    with pytest.raises(wc.InvalidInputError) as error:
        lazy.to_frame().compute()
    assert str(error.value) == (
        "explain: all partitions of X must hold numbers in the columns that are numeric in the meta; "
        "column 'b' has dtype string. Convert the column when it is read. The error is in partition 1 of X; "
        "its rows are counted from 0."
    )


@pytest.mark.parametrize(
    ("make", "kind"), [(pd.DataFrame.to_numpy, "numpy ndarray"), (pl.from_pandas, "polars DataFrame")]
)
def test_partitions_that_are_not_pandas_frames(make: Any, kind: str, rows: Array, model: Any) -> None:
    X = framed(rows, 1)
    other = X.map_partitions(make, meta=X._meta, enforce_metadata=False)
    message = (
        f"explain: all partitions of X must be pandas data frames; got a {kind}. Convert the data when they "
        "are read. The error is in partition 0 of X; its rows are counted from 0."
    )
    auto: Any = wc.explain(model, other)
    known: Any = wc.explain(model, other, beta=0.5, rule="joint")
    for lazy in (auto.to_frame(), known.summary()):
        with pytest.raises(wc.InvalidInputError, match=f"^{re.escape(message)}$"):
            lazy.compute()


def test_a_partition_of_integers_among_floats(rows: Array, model: Any) -> None:
    frame = framed(rows).compute().round()
    X = from_parts(frame.iloc[:100], frame.iloc[100:].astype(int))
    assert_same(wc.explain(model, X), wc.explain(model, frame))  # type: ignore[arg-type]


def test_results_are_never_rounded_to_the_dtype_of_the_meta(rows: Array, model: Any) -> None:
    X = da.from_array(rows.astype(np.float32), chunks=(300, 4))
    wide = X.map_blocks(np.float64, dtype=np.float32, meta=np.empty((0, 0), np.float32))
    lazy: Any = wc.explain(model, wide)
    with pytest.raises(wc.InvalidInputError) as error:
        lazy.relevance.compute()
    assert str(error.value) == (
        "explain: all partitions of X must have dtype float32, as the meta declares; got float64. Convert "
        "the "
        "data when they are read. The error is in partition 0 of X; its rows are counted from 0."
    )


def test_a_block_narrower_than_its_array(rows: Array, model: Any) -> None:
    X = da.from_array(rows, chunks=(100, 4)).map_blocks(
        lambda block: block[:, :3], dtype=float, meta=rows[:0]
    )
    lazy: Any = wc.explain(model, X)
    with pytest.raises(wc.InvalidInputError, match=r"must have 4 features, .*The error is in partition"):
        lazy.relevance.compute()


ROWS = da.zeros((10, 4), chunks=(5, 4))


@pytest.mark.parametrize(
    ("X", "options", "message"),
    [
        (
            da.zeros((10, 5), chunks=(5, 5)),
            {},
            "explain: X must have 4 features, the number that the model was fitted on; got shape (10, 5).",
        ),
        (
            da.zeros(10, chunks=5),
            {},
            "explain: X must be two-dimensional (rows, features); got shape (10,).",
        ),
        (
            da.zeros((10, 4), chunks=(5, 4), dtype="M8[s]"),
            {},
            "explain: X must hold real numbers or booleans; got dtype datetime64[s]. "
            "Turn dates into numbers first, such as days since a start date.",
        ),
        (
            dd.from_pandas(pd.DataFrame(np.zeros((4, 3))), npartitions=2),
            {},
            "explain: X must have 4 features, the number that the model was fitted on; got 3 columns.",
        ),
        (
            dd.from_pandas(pd.DataFrame({"a": [1.0], "b": "x", "c": 1.0, "d": 1.0}), npartitions=1),
            {},
            "explain: X must have only numeric or boolean columns; got 'b' (String). Encode them as numbers "
            "(if they are numbers stored as objects, use astype(float)), or drop them.",
        ),
        (
            dask.bag.from_sequence([1, 2]),
            {},
            "explain: X must be a Dask array or DataFrame; got a Dask Bag.",
        ),
        (
            dd.from_pandas(pd.Series([1.0, 2.0]), npartitions=1),
            {},
            "explain: X must be a Dask array or DataFrame; got a Dask Series.",
        ),
        (
            ROWS,
            {"target": [0] * 10},
            "explain: target must be one cluster for all rows; got shape (10,). Pass one cluster at a time.",
        ),
        (
            ROWS,
            {"against": da.zeros(10, chunks=5)},
            "explain: against must be one cluster for all rows; got shape (10,). Pass one cluster at a time.",
        ),
        (
            ROWS,
            {"target": 7},
            "explain: target must be one of the model's 3 clusters, 0, 1, 2; got 7.",
        ),
        (
            ROWS,
            {"at": "layer"},
            "explain: at and units apply only to deep clusterings, which do not accept Dask collections. "
            "Leave at and units out.",
        ),
        (
            ROWS,
            {"feature_names": ["a"]},
            "explain: feature_names must be 4 distinct names, one per feature; got 1 names, 1 of "
            "them distinct.",
        ),
        (
            ROWS,
            {"categorical": [0]},
            "explain: categorical applies only to KPrototypes, which does not record which columns are "
            "categorical; got a model of type KMeans. Leave categorical out.",
        ),
    ],
)
def test_invalid_arguments_raise_before_any_row_is_read(
    X: Any, options: Any, message: str, model: Any
) -> None:
    with pytest.raises(wc.InvalidInputError) as error:
        wc.explain(model, X, **options)
    assert str(error.value) == message


def test_labels_need_a_surrogate_first(rows: Array, model: Any) -> None:
    X = da.from_array(rows, chunks=(70, 4))
    with pytest.raises(wc.UnsupportedModelError) as error:
        wc.explain(model.labels_, X)
    assert str(error.value) == (
        "explain: model must be able to assign new rows; labels only say which cluster each row is in. Fit "
        "a surrogate to some rows, and pass the surrogate: wc.Surrogate().fit(X, labels)."
    )


@pytest.mark.parametrize("kind", ["array", "frame"])
def test_other_functions_refuse_dask_collections(kind: str, rows: Array, model: Any) -> None:
    X = COLLECTIONS[kind](rows)
    network = wc.neuralize(model)
    name = type(X).__name__
    calls: dict[str, Callable[[], Any]] = {
        "compare": lambda: compare(model, X),
        "evidence": lambda: network.evidence(X),
        "explain": lambda: network.explain(X),
    }
    for where, call in calls.items():
        with pytest.raises(wc.InvalidInputError) as error:
            call()
        assert str(error.value) == (
            f"{where}: X must be in memory; got a Dask {name}. Pass X.compute() or some of its rows; "
            "wc.explain(model, X) and network.assign(X) accept Dask collections."
        )


# A cluster of workers


@pytest.fixture(scope="module")
def client() -> Iterator[Client]:
    """Two processes, each with one thread."""
    with (
        LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=":0") as cluster,
        Client(cluster) as client,
    ):
        yield client


@pytest.mark.slow
def test_no_result_is_lost_with_a_killed_worker(client: Client, rows: Array, model: Any) -> None:
    def slowly(block: Array) -> Array:  # pickled by value, so workers need not import this file
        time.sleep(0.05)
        return block

    many = np.tile(rows, (4, 1))
    X = da.from_array(many, chunks=(20, 4)).map_blocks(slowly, dtype=float, meta=rows[:0])
    lazy: Any = wc.explain(model, X)
    explained = lazy.relevance.persist()
    futures = client.futures_of(explained)
    done, others = wait(futures, timeout=60, return_when="FIRST_COMPLETED")  # so all rows are measured
    assert others
    ((worker, *_), *_) = client.who_has(list(done)).values()
    killed = client.run(os.getpid)[worker]
    os.kill(killed, signal.SIGKILL)
    relevance = explained.compute()
    exp = wc.explain(model, many)
    assert relevance.shape == exp.relevance.shape
    assert np.abs(relevance - exp.relevance).max() <= 1e-12 * np.abs(exp.relevance).max()
    assert killed not in client.run(os.getpid).values()


@pytest.mark.slow
def test_a_partition_that_kills_its_workers_is_an_error(client: Client, rows: Array, model: Any) -> None:
    def deadly(block: Array, block_id: tuple[int, ...]) -> Array:
        if block_id[0] == 3:
            os.kill(os.getpid(), signal.SIGKILL)
        return block

    X = da.from_array(rows, chunks=(20, 4)).map_blocks(deadly, dtype=float, meta=rows[:0])
    lazy: Any = wc.explain(model, X)
    scheduler: Any = client.cluster.scheduler
    allowed, scheduler.allowed_failures = scheduler.allowed_failures, 0
    try:
        with pytest.raises(KilledWorker):
            lazy.compute()
    finally:
        scheduler.allowed_failures = allowed


@pytest.mark.slow
def test_a_cluster_gives_the_same_frames_and_errors_as_one_process(
    client: Client, rows: Array, model: Any
) -> None:
    assert client.scheduler is not None
    lazy: Any = wc.explain(model, framed(rows))
    pd.testing.assert_frame_equal(
        lazy.to_frame().compute(), wc.explain(model, framed(rows).compute()).to_frame()
    )
    bad = rows.copy()
    bad[145, 2] = np.nan
    broken: Any = wc.explain(model, da.from_array(bad, chunks=(70, 4)))
    with pytest.raises(wc.InvalidInputError, match="The error is in partition 2 of X"):
        broken.compute()


def test_frames_of_files_that_dask_reads_as_one(tmp_path: Path) -> None:
    frame = pd.DataFrame(np.random.default_rng(0).normal(size=(50, 5)), columns=list("abcde"))
    for i in range(5):
        frame[10 * i : 10 * (i + 1)].to_parquet(tmp_path / f"{i}.parquet")
    model = KMeans(2, n_init=2, random_state=0).fit(frame[["a", "b"]])
    exp = wc.explain(model, dd.read_parquet(tmp_path)[["a", "b"]])
    found = exp.to_frame().compute()
    np.testing.assert_allclose(found["a"], wc.explain(model, frame[["a", "b"]]).relevance[:, 0], rtol=1e-9)
    assert len(exp.to_frame()) == 50


def test_the_frame_of_an_array_with_empty_chunks() -> None:
    rows = da.from_array(np.arange(10.0)[:, None], chunks=(5, 1))
    some = rows[rows[:, 0] < 5]
    some.compute_chunk_sizes()
    frame = wc.explain([[0.0], [9.0]], some).to_frame()
    assert frame.divisions == (None, None, None)
    assert frame.compute().index.tolist() == [0, 1, 2, 3, 4]


def test_new_categories_in_some_partitions() -> None:
    group = np.arange(200) % 3
    frame = pd.DataFrame(
        {"city": np.array(["Rome", "Oslo", "Lima"])[group], "k": np.array(list("xyz"))[group]}
    )
    model = KModes(3, random_state=0, init="random", n_init=2).fit(frame)
    frame.loc[:49, "city"] = "Paris"
    whole = wc.explain(model, frame)
    for n in (1, 8):
        X = dd.from_pandas(frame, npartitions=n)
        found, assigned = dask.compute(wc.explain(model, X).relevance, wc.neuralize(model).assign(X))
        np.testing.assert_allclose(found, whole.relevance, rtol=1e-9)
        assert assigned.tolist() == whole.cluster.tolist()
    with pytest.raises(wc.InvalidInputError, match="must have its columns in the order of the model"):
        wc.explain(model, frame[:50])


def test_a_summary_of_a_partition_with_new_categories() -> None:
    group = np.arange(200) % 2
    frame = pd.DataFrame({"city": np.array(["Rome", "Oslo"])[group], "k": np.array(list("xy"))[group]})
    model = KModes(2, random_state=0, init="random", n_init=2).fit(frame)
    frame.loc[150:, "city"] = "Paris"
    exp: Any = wc.explain(model, dd.from_pandas(frame, npartitions=4))
    found, shown = exp.summary().compute(), exp.compute().summary()
    assert found.clusters.tolist() == shown.clusters.tolist() == [0, 1]
    assert found.size.tolist() == shown.size.tolist() == [100, 100]
    np.testing.assert_allclose(found.relevance, shown.relevance, rtol=1e-12)


def test_errors_of_a_summary_name_the_partition(rows: Array, model: Any) -> None:
    exp: Any = wc.explain(model, framed(rows), beta=0.5, rule="joint")
    partitions, part = exp._partitions, framed(rows).partitions[3].compute()
    found = DaskEngine(partitions).explain(Partition(part, 3))
    assert _aggregate([found], [part], partitions).size.sum() == len(part)
    with pytest.raises(wc.InvalidInputError) as caught:
        _aggregate([found], [part.drop(columns="a")], partitions)
    assert str(caught.value) == (
        "explain: all partitions of X must have the 4 columns of the meta; missing: ['a']. Select or rename "
        "columns when the data are read. The error is in partition 3 of X; its rows are counted from 0."
    )


def test_row_names_become_the_index(tmp_path: Path) -> None:
    frame = pd.DataFrame(np.random.default_rng(0).normal(size=(50, 2)), columns=list("ab"))
    frame["customer"] = [f"c{i}" for i in range(50)]
    for i in range(5):
        frame[10 * i : 10 * (i + 1)].to_parquet(tmp_path / f"{i}.parquet")
    model = KMeans(2, n_init=2, random_state=0).fit(frame[["a", "b"]])
    X = dd.read_parquet(tmp_path, index="customer", calculate_divisions=False)
    assert wc.explain(model, X).to_frame().compute().index.tolist() == frame["customer"].tolist()


def test_a_dask_object_without_rows() -> None:
    with pytest.raises(wc.InvalidInputError, match="X must be a Dask array or DataFrame; got a Dask Delayed"):
        wc.explain([[0.0], [1.0]], dask.delayed(np.zeros)((3, 1)))


def test_attributes_that_only_an_explanation_in_memory_has() -> None:
    exp = wc.explain([[0.0], [1.0]], da.zeros((4, 1)))
    with pytest.raises(
        AttributeError, match=r"no attribute 'describe'. An Explanation has it; compute\(\) returns one."
    ):
        exp.describe(0)
    assert not hasattr(exp, "nonsense")
