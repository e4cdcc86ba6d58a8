"""Every container people have their rows in gives the same explanation, and stays as it was."""

from __future__ import annotations

import datetime as dt
import math
import re
import time
from collections.abc import Callable
from decimal import Decimal
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import scipy.sparse as sp
from numpy.typing import NDArray
from sklearn.cluster import KMeans
from sklearn.compose import make_column_transformer
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import FunctionTransformer, MinMaxScaler, OneHotEncoder
from threadpoolctl import threadpool_limits

import whycluster as wc
from benchmarks.measure import peak_megabytes, result_megabytes
from tests.optional import optional
from whycluster.core.errors import InvalidInputError
from whycluster.data.columns import as_days, as_numbers
from whycluster.data.opening import open_table

if TYPE_CHECKING:
    import pandas as pd
    import polars as pl
    import pyarrow as pa
    import pyarrow.parquet as pq
    import torch
    from kmodes.kmodes import KModes
else:
    pd = optional("pandas")
    pl = optional("polars")
    pa = optional("pyarrow")
    pq = optional("pyarrow.parquet")
    torch = optional("torch")
    KModes = optional("kmodes.kmodes:KModes")

Array = NDArray[Any]
NAMES = [f"column {i}" for i in range(13)]

CONTAINERS: dict[str, Callable[[Array], Any]] = {
    "list": lambda X: X.tolist(),
    "C order": lambda X: X,
    "Fortran order": np.asfortranarray,
    "every other row": lambda X: np.repeat(X, 2, axis=0)[::2],
    "every other column": lambda X: np.repeat(X, 2, axis=1)[:, ::2],
    "backwards": lambda X: X[::-1].copy()[::-1],
    "big-endian": lambda X: X.astype(">f8"),
    "longdouble": lambda X: X.astype(np.longdouble),
    "masked array without a mask": np.ma.asarray,
    "torch": lambda X: torch.from_numpy(X.copy()),
    "csr matrix": sp.csr_matrix,
    "csr array": sp.csr_array,
    "csc array": sp.csc_array,
    "coo array": sp.coo_array,
    "pandas": lambda X: pd.DataFrame(X, columns=NAMES),
    "pandas, nullable": lambda X: pd.DataFrame(X, columns=NAMES).convert_dtypes(),
    "pandas, arrow": lambda X: pd.DataFrame(X, columns=NAMES).astype("double[pyarrow]"),
    "polars": lambda X: pl.DataFrame(X, schema=NAMES),
    "pyarrow": lambda X: pa.table(dict(zip(NAMES, X.T, strict=True))),
}


@pytest.mark.parametrize("kind", CONTAINERS)
def test_the_container_does_not_matter(kind: str, wine: Array, kmeans: Any) -> None:
    expected = wc.explain(kmeans, wine)
    exp = wc.explain(kmeans, CONTAINERS[kind](wine))
    assert (exp.cluster == expected.cluster).all()
    np.testing.assert_allclose(exp.relevance, expected.relevance, rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(exp.competition, expected.competition, rtol=1e-12, atol=1e-12)
    assert exp[[3, 1]].top(2).value.shape == (2, 2)
    assert len(exp.summary().clusters) == 5


@pytest.mark.parametrize("shift", [0.0, 1e5])
@pytest.mark.parametrize("dtype", ["f2", "f4", "i1", "u1", "i4", "u8", "i8", "bool"])
def test_numbers_of_any_width(dtype: str, shift: float) -> None:
    X = np.random.default_rng(0).integers(0, 2, size=(50, 6)).astype(dtype)
    centroids = np.array([[0.1] * 6, [0.9] * 6]) + shift
    exp = wc.explain(centroids, X)
    assert exp.relevance.dtype == (np.float32 if dtype in ("f2", "f4") else np.float64)
    np.testing.assert_allclose(
        exp.relevance, wc.explain(centroids, X.astype(float)).relevance, rtol=1e-6, atol=1e-6
    )


def test_frames_may_mix_integers_booleans_and_floats() -> None:
    frame = pd.DataFrame({"a": [1, 2, 3], "b": [True, False, True], "c": [0.5, 0.25, 0.0]})
    centroids = np.array([[1.0, 1.0, 0.0], [3.0, 0.0, 0.0]])
    expected = wc.explain(centroids, frame.to_numpy(dtype=float)).relevance
    for X in (frame, pl.from_pandas(frame), pa.Table.from_pandas(frame)):
        assert (wc.explain(centroids, X).relevance == expected).all()


def test_whole_numbers_beyond_the_digits_of_a_float_are_rounded() -> None:
    large = {"a": [2**53 + 1, 1], "b": [1, 2], "c": [0, 1]}
    centroids = np.array([[0.0, 0, 0], [1e15, 0, 0]])
    expected = wc.explain(centroids, np.array(list(large.values())).T).relevance
    for X in (
        pa.table(large),
        pl.DataFrame(large),
        pd.DataFrame(large),
        pd.DataFrame(large, dtype="int64[pyarrow]"),
    ):
        assert (wc.explain(centroids, X).relevance == expected).all()


def test_wide_whole_numbers() -> None:
    frame = pl.DataFrame({"a": [1, 5], "b": [1, 2]})
    centroids = np.array([[0.0, 0], [4.0, 2]])
    wide = frame.cast(pl.Int128)
    assert (wc.explain(centroids, wide).relevance == wc.explain(centroids, frame).relevance).all()


def test_sparse_entries_given_twice_are_what_scipy_makes_of_them() -> None:
    entries = (np.array([True, True]), ([0, 0], [1, 1]))
    X = sp.csr_matrix(entries, shape=(2, 3))
    centroids = np.array([[0.0, 0, 0], [1.0, 2, 0]])
    assert (wc.explain(centroids, X).relevance == wc.explain(centroids, X.toarray()).relevance).all()


def test_a_frame_of_float32_gives_float32(wine: Array, kmeans: Any) -> None:
    frame = pd.DataFrame(wine.astype("f4"), columns=NAMES)
    assert wc.explain(kmeans, frame).relevance.dtype == np.float32
    assert wc.explain(kmeans, pl.from_pandas(frame)).relevance.dtype == np.float32


@pytest.mark.parametrize("make", [pd.DataFrame, lambda X: pl.from_pandas(X), pa.Table.from_pandas])
def test_frames_are_matched_by_name(make: Callable[[Any], Any], wine: Array) -> None:
    frame = pd.DataFrame(wine, columns=NAMES)
    model = KMeans(4, n_init=1, random_state=0).fit(frame)
    expected = wc.explain(model, frame)
    other = make(frame[NAMES[::-1]])
    exp = wc.explain(model, other)
    assert exp.feature_names == expected.feature_names == NAMES
    assert (exp.relevance == expected.relevance).all()
    assert (exp.to_frame()[NAMES[0]].to_numpy() == expected.relevance[:, 0]).all()


def test_an_array_takes_the_names_the_model_knows(wine: Array) -> None:
    model = KMeans(4, n_init=1, random_state=0).fit(pd.DataFrame(wine, columns=NAMES))
    assert wc.explain(model, wine).feature_names == NAMES


def test_names_come_from_the_frame_the_user_or_the_position(wine: Array, kmeans: Any) -> None:
    assert wc.explain(kmeans, pl.DataFrame(wine, schema=NAMES)).feature_names == NAMES
    assert wc.explain(kmeans, wine, feature_names=NAMES).feature_names == NAMES
    assert wc.explain(kmeans, wine).feature_names[:2] == ["x0", "x1"]
    assert wc.explain(kmeans, pd.DataFrame(wine)).feature_names == list(range(13))


def test_a_frame_of_centroids_brings_its_names(wine: Array, kmeans: Any) -> None:
    centroids = pd.DataFrame(kmeans.cluster_centers_, columns=NAMES)
    exp = wc.explain(centroids, wine)
    assert exp.feature_names == NAMES
    assert (exp.relevance == wc.explain(kmeans, wine).relevance).all()
    for other in (pl.from_pandas(centroids), pa.Table.from_pandas(centroids)):
        assert wc.explain(other, wine).feature_names == NAMES


@pytest.mark.parametrize("kind", CONTAINERS)
def test_neither_data_nor_model_are_changed(kind: str, wine: Array, kmeans: Any) -> None:
    X, original = CONTAINERS[kind](wine), CONTAINERS[kind](wine)
    state = {name: np.copy(value) for name, value in vars(kmeans).items()}
    far = wc.neuralize(kmeans.cluster_centers_ + 1e4)  # moves the rows before anything else
    for exp in (wc.explain(kmeans, X), far.explain(X), wc.explain(kmeans, X, against=0)):
        assert exp.competition is not None
        assert exp.summary() is not None
    assert (_numbers(X) == _numbers(original)).all()
    assert all(np.array_equal(value, getattr(kmeans, name)) for name, value in state.items())


def _numbers(X: Any) -> Array:
    if hasattr(X, "toarray"):
        return np.asarray(X.toarray())
    if isinstance(X, pa.Table):
        X = X.to_pandas()
    return np.asarray(X, dtype=np.float64)


def test_a_network_does_not_follow_a_refit(wine: Array) -> None:
    model = KMeans(3, n_init=1, random_state=0).fit(wine)
    net = wc.neuralize(model)
    before = net.evidence(wine)
    model.cluster_centers_[...] = 0.0
    assert (net.evidence(wine) == before).all()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("n_rows", "d", "n_clusters"), [(3_000_000, 4, 50), (800_000, 20, 8), (50_000, 300, 6)]
)
@pytest.mark.parametrize("question", [{}, {"against": 1}, {"target": 2}, {"beta": 0.5}])
def test_memory_beyond_the_result_is_bounded(
    n_rows: int, d: int, n_clusters: int, question: dict[str, Any]
) -> None:
    """With 3,000,000 rows, one more number per row would be 23 MB and too much."""
    rng = np.random.default_rng(0)
    centroids = rng.normal(size=(n_clusters, d)) + 1000  # an offset: blocks have to be copied
    X = rng.normal(size=(n_rows, d)) + 1000
    with threadpool_limits(16):  # as on a larger machine
        peak, exp = peak_megabytes(partial(wc.explain, centroids, X, **question))
    assert peak - result_megabytes(exp) <= 64


@pytest.mark.usefixtures("two_threads")
def test_sparse_rows_are_never_made_dense_as_a_whole() -> None:
    rng = np.random.default_rng(0)
    columns = rng.integers(1_000, size=(100_000, 2)) + np.array([0, 1_000])  # two in each row
    cells = rng.random(200_000), columns.ravel(), np.arange(0, 200_001, 2)
    X = sp.csr_array(cells, shape=(100_000, 2_000))  # 1.5 GB if dense
    net = wc.neuralize(rng.normal(size=(5, 2_000)))
    peak, labels = peak_megabytes(lambda: net.assign(X))
    assert labels.shape == (100_000,)
    assert peak <= 64


@pytest.mark.usefixtures("two_threads")
def test_frames_are_converted_block_by_block() -> None:
    rng = np.random.default_rng(0)
    values = rng.normal(size=(400_000, 20))
    frame = pa.table({f"c{i}": column for i, column in enumerate(values.T)})
    net = wc.neuralize(rng.normal(size=(5, 20)))
    peak, labels = peak_megabytes(lambda: net.assign(frame))
    assert (labels == net.assign(values)).all()
    assert peak <= 40  # the whole frame has 61 MB


# What Parquet has text as: by pyarrow, by pandas 3 and polars, of categories, and as polars has it in memory.
TEXT: dict[str, Any] = {
    "string": pa.string(),
    "large_string": pa.large_string(),
    "dictionary": pa.dictionary(pa.int32(), pa.string()),
    "string_view": pa.string_view(),
}


def colors(kind: str = "string") -> pa.Table:
    """A column of text of some kind, and one of numbers."""
    rng = np.random.default_rng(0)
    color = pa.array(rng.choice(["red", "blue"], 60).tolist(), TEXT[kind])
    return pa.table({"color": color, "size": rng.normal(size=60)})


def with_gap(table: pa.Table, row: int) -> pa.Table:
    """With a color that is missing."""
    texts = table["color"].to_pylist()
    texts[row] = None
    return table.set_column(0, "color", pa.array(texts, table["color"].type))


def encoded() -> Pipeline:
    """A pipeline whose clusters are by color, but for the sizes that are far off."""
    steps = make_column_transformer((OneHotEncoder(), ["color"]), (MinMaxScaler((0, 1.5)), ["size"]))
    return make_pipeline(steps, KMeans(2, n_init=2, random_state=0)).fit(colors().to_pandas())


def write_parquet(table: pa.Table, path: Path) -> None:
    """Write a table, or skip the test if this version of pyarrow cannot write the type of its text."""
    try:
        pq.write_table(table, path)
    except pa.ArrowNotImplementedError as error:
        pytest.skip(str(error))


@pytest.mark.parametrize("kind", TEXT)
def test_text_that_is_missing_is_told_by_part_row_and_column_whatever_its_type(
    kind: str, tmp_path: Path
) -> None:
    model = KModes(2, n_init=1, random_state=0).fit(colors().to_pandas()[["color", "color"]])
    gap = with_gap(colors(kind), 7)
    write_parquet(pa.table({"color": gap["color"], "other": gap["color"]}), tmp_path / "a.parquet")
    said = (
        "explain_dataset: part 'a.parquet': data must have no missing values; row 7, feature 'color' holds "
        'None. Drop or fill such rows first. Or pass invalid="skip" to get nulls for such rows.'
    )
    with pytest.raises(InvalidInputError, match=f"^{re.escape(said)}"):
        wc.explain_dataset(model, tmp_path / "a.parquet", tmp_path / "out", columns=["color", "other"])


@pytest.mark.parametrize("kind", TEXT)
def test_rows_whose_text_is_missing_are_skipped_whatever_its_type(kind: str, tmp_path: Path) -> None:
    model, whole = encoded(), colors(kind)
    write_parquet(with_gap(whole, 7), tmp_path / "a.parquet")
    assert pq.read_schema(tmp_path / "a.parquet").field("color").type == TEXT[kind]
    with pytest.raises(InvalidInputError, match=r"part 'a\.parquet': .* Or pass invalid=\"skip\""):
        wc.explain_dataset(model, tmp_path / "a.parquet", tmp_path / "out", beta=1.0)
    found = wc.explain_dataset(model, tmp_path / "a.parquet", tmp_path / "out", beta=1.0, invalid="skip")
    assert found.n_invalid == 1
    written = pq.read_table(found.parts[0])
    assert np.flatnonzero(written["cluster"].is_null().to_numpy()).tolist() == [7]
    expected = wc.explain(model, whole, beta=1.0).relevance[:, 0]
    given = np.array(written["color"].to_pylist(), dtype=float)
    np.testing.assert_allclose(np.delete(given, 7), np.delete(expected, 7), rtol=1e-5, atol=1e-6)


@pytest.mark.slow
@pytest.mark.parametrize("library", ["pandas", "polars", "pyarrow"])
@pytest.mark.parametrize("kind", TEXT)
def test_every_color_is_tried_in_a_counterfactual_whatever_its_type(kind: str, library: str) -> None:
    model, table = encoded(), colors(kind)
    X = {"pandas": table.to_pandas(), "polars": pl.DataFrame(table), "pyarrow": table}[library]
    exp, plain = wc.explain(model, X), wc.explain(model, colors().to_pandas())
    found = [exp.counterfactual(row) for row in range(0, 60, 5)]
    assert {color for one in found if (color := one.single[0]) is not None} == {"red", "blue"}
    for row, one in zip(range(0, 60, 5), found, strict=True):
        assert one.held == {"color": "category"}
        assert one.single[0] == plain.counterfactual(row).single[0]
    assert exp[[3, 1]].top(2).value.tolist() == plain[[3, 1]].top(2).value.tolist()


MOMENT = dt.datetime(2020, 1, 2, 3, 4, 5)
VALUES: dict[str, tuple[Any, Any]] = {
    "date": (pa.date32(), MOMENT.date()),
    "seconds": (pa.timestamp("s"), MOMENT),
    "nanoseconds in Berlin": (pa.timestamp("ns", "Europe/Berlin"), MOMENT.replace(tzinfo=dt.timezone.utc)),
    "time": (pa.time64("us"), MOMENT.time()),
    "duration": (pa.duration("ns"), dt.timedelta(days=1, microseconds=1)),
    "decimal": (pa.decimal128(4, 1), Decimal("2.5")),
    "whole number": (pa.int8(), 3),
    "boolean": (pa.bool_(), True),
    "list": (pa.list_(pa.int64()), [1, 2]),
    "binary": (pa.large_binary(), b"x"),
}


@pytest.mark.parametrize("library", ["pandas", "pandas, arrow", "polars", "pyarrow"])
@pytest.mark.parametrize("kind", VALUES)
def test_values_that_are_missing_can_be_put_where_others_were_and_the_other_way(
    kind: str, library: str
) -> None:
    arrow, value = VALUES[kind]
    table = pa.table({"text": ["p", "q", "r"], "x": pa.array([value, None, value], arrow)})
    native = {
        "pandas": table.to_pandas(),
        "pandas, arrow": table.to_pandas(types_mapper=pd.ArrowDtype),
        "polars": pl.DataFrame(table),
        "pyarrow": table,
    }[library]
    raw = open_table(native, where="explain", any_kind=True)
    assert raw.invalid_values().tolist() == [[0, 0], [0, 1], [0, 0]]
    turned = raw.put(np.array([0, 1]), np.array([1, 1]), [raw.cells(1)[1], raw.cells(0)[1]])
    again = open_table(turned.native, where="explain", any_kind=True)
    assert again.invalid_values().tolist() == [[0, 1], [0, 0], [0, 0]]
    assert np.all(again.cells(1)[1] == again.cells(2)[1])
    assert [again.cells(row)[0] for row in range(3)] == ["p", "q", "r"]


def test_moments_finer_than_a_microsecond_are_cut_off_rather_than_refused() -> None:
    moments = pa.array([1_001, None], pa.int64()).cast(pa.timestamp("ns"))
    raw = open_table(pa.table({"when": moments, "x": ["a", "b"]}), where="explain", any_kind=True)
    put = raw.put(np.array([1]), np.array([0]), [MOMENT])
    assert put.native["when"].type == pa.timestamp("us")
    assert put.native["when"].cast(pa.int64()).to_pylist()[0] == 1
    assert put.cells(1)[0] == MOMENT


WIDE = 1500  # columns; so many are converted at once


@pytest.mark.parametrize("kind", ["float64", "float32", "mixed"])
@pytest.mark.parametrize("library", ["pandas", "polars", "pyarrow"])
def test_wide_frames_are_explained_like_arrays(library: str, kind: str) -> None:
    X = np.random.default_rng(0).normal(size=(30, WIDE)).round(1) * 10
    X = X.astype("f4" if kind == "float32" else "f8")
    frame = pd.DataFrame(X, columns=[f"c{i}" for i in range(WIDE)])
    if kind == "mixed":
        X[:, 1] = X[:, 1] > 0
        frame = frame.astype({"c0": int, "c2": "int16", "c3": "float32"}).assign(c1=X[:, 1] > 0)
    table = {"pandas": lambda: frame, "polars": lambda: pl.from_pandas(frame)}.get(
        library, lambda: pl.from_pandas(frame).to_arrow()
    )()
    found, expected = wc.explain(X[:3], table), wc.explain(X[:3], X)
    assert found.relevance.dtype == expected.relevance.dtype
    if kind == "float32":  # single precision adds up a row of an array in another order than separate columns
        most = np.abs(expected.relevance).max(axis=1, keepdims=True)
        np.testing.assert_allclose(found.relevance / most, expected.relevance / most, rtol=0, atol=1e-6)
    else:
        np.testing.assert_array_equal(found.relevance, expected.relevance)


@pytest.mark.slow
def test_frames_of_many_columns_take_about_as_long_as_arrays() -> None:
    """Looking up the type of each column for every block took thirty times as long."""
    X = np.random.default_rng(0).normal(size=(100, 20_000))
    names = [f"c{i}" for i in range(X.shape[1])]
    tables = {"array": X, "pandas": pd.DataFrame(X, columns=names), "polars": pl.DataFrame(X, schema=names)}
    seconds = dict.fromkeys(tables, math.inf)
    for _ in range(5):
        for name, table in tables.items():
            start = time.perf_counter()
            wc.explain(X[:3], table)
            seconds[name] = min(seconds[name], time.perf_counter() - start)
    assert max(seconds.values()) <= 6 * seconds["array"] + 0.2


@pytest.mark.slow
def test_counterfactuals_in_frames_of_many_columns() -> None:
    X = np.random.default_rng(0).normal(size=(20, 20_000))
    frame = pd.DataFrame(X, columns=[f"c{i}" for i in range(X.shape[1])])
    start = time.process_time()
    found = wc.explain(X[:3], frame).counterfactual(5)
    assert time.process_time() - start < 30
    assert found.found
    expected = wc.explain(X[:3], X).counterfactual(5)
    np.testing.assert_array_equal(found.change, expected.change)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["whole numbers", "single precision"])
def test_counterfactuals_in_wide_frames_of_any_kind(kind: str) -> None:
    """Before, frames of 20,000 columns took a minute or more."""
    X, columns = np.random.default_rng(0).normal(size=(20, 20_000)), {}
    if kind == "whole numbers":
        X[:, ::2] = np.round(10 * X[:, ::2])
        columns = {f"c{i}": X[:, i].astype(float if i % 2 else int) for i in range(20_000)}
    else:
        X = X.astype(np.float32)
        columns = {f"c{i}": X[:, i] for i in range(20_000)}
    frame = pd.DataFrame(columns)
    exp = wc.explain(X[:3], frame)
    start = time.process_time()
    found = exp.counterfactual(5)
    assert time.process_time() - start < 30
    assert (wc.neuralize(X[:3]).assign(changes_of(found, frame, 6)) == found.to).all()


def changes_of(found: Any, frame: Any, n_alone: int) -> Any:
    """Return the row after all changes, and after each of the smallest changes of one feature alone."""
    assert found.found
    chosen = np.argsort(found.single_distance, kind="stable")[:n_alone].tolist()
    rows = np.array([found.after] + [found.before] * len(chosen), dtype=object)
    for place, column in enumerate(chosen):
        assert found.single[column] is not None
        rows[place + 1, column] = found.single[column]
    return pd.DataFrame({name: rows[:, i].tolist() for i, name in enumerate(frame)})


@pytest.mark.slow
def test_counterfactuals_in_wide_frames_of_mixed_columns() -> None:
    """Columns of one type are read and changed together: before, this took five times as long."""
    rng = np.random.default_rng(0)
    group, columns = rng.integers(0, 3, 60), dict[str, Any]()
    for i in range(0, 3_000, 4):
        columns[f"x{i}"] = rng.normal(size=60) + group
        columns[f"k{i}"] = np.array(list("abc"))[np.where(rng.random(60) < 0.6, group, 0)]
        columns[f"n{i}"] = rng.poisson(3 + group)
        columns[f"d{i}"] = pd.Timestamp("2020-01-01") + pd.to_timedelta(rng.integers(0, 400, 60), "D")
    frame = pd.DataFrame(columns)
    model = wc.tabular.pipeline(frame, 3)
    exp = wc.explain(model, frame)
    start = time.process_time()
    found = exp.counterfactual(0)
    assert str(found)
    assert time.process_time() - start < 7
    changed = frame.iloc[[0]].copy()
    for name, change, value in zip(frame.columns, found.change, found.after, strict=True):
        if change:
            changed[name] = [value]
    assert model.predict(changed) == found.to


@pytest.mark.parametrize("library", ["pandas", "polars"])
def test_wide_frames_are_read_like_narrow_ones(library: str) -> None:
    rng, times = np.random.default_rng(0), pd.Timestamp("1960-01-01") + pd.to_timedelta(np.arange(5), "h")
    numbers = pd.DataFrame({f"x{i}": rng.normal(size=5) for i in range(70)}).assign(n=range(5), b=True)
    numbers.iloc[2, 3] = np.nan
    dates = pd.DataFrame({f"d{i}": times + pd.Timedelta(days=i) for i in range(70)})
    dates.iloc[1, 4] = pd.NaT
    for frame, read in ((numbers, as_numbers), (dates, as_days)):
        native = frame if library == "pandas" else pl.from_pandas(frame)
        one_by_one = np.hstack([read(native[[name]]) for name in frame.columns])
        np.testing.assert_array_equal(read(native), one_by_one)
    numbers.iloc[0, 0] = 1e200
    with pytest.raises(wc.InvalidInputError, match="column 'x0' must hold finite numbers of at most 1e"):
        as_numbers(numbers if library == "pandas" else pl.from_pandas(numbers))


@pytest.mark.slow
def test_counterfactuals_in_wide_frames_try_many_columns_at_once() -> None:
    """Before, about 9,000 rows went through the steps, and the time grew with the square of the columns."""
    rng, n_columns, n_rows = np.random.default_rng(0), 1_000, [0]
    numbers = {f"x{i}": rng.normal(size=20) for i in range(n_columns)}
    frame = pd.DataFrame(numbers | {f"k{i}": rng.choice(list("abc"), 20) for i in range(n_columns)})

    @wc.elementwise
    def counted(rows: Any) -> Any:
        n_rows[0] += len(rows)
        return rows

    scaled = make_pipeline(FunctionTransformer(counted), MinMaxScaler())
    steps = (scaled, list(numbers)), (OneHotEncoder(sparse_output=False), list(frame)[n_columns:])
    model = make_pipeline(make_column_transformer(*steps), KMeans(3, n_init=1, random_state=0)).fit(frame)
    exp = wc.explain(model, frame)
    n_rows[0] = 0
    found = exp.counterfactual(5)
    assert n_rows[0] < 200
    changed = changes_of(found, frame, 10)
    assert (model.predict(changed) == found.to).all()
    for i in (1, 600, n_columns, n_columns + 1, 2 * n_columns - 1):
        name = frame.columns[i]
        if found.single[i] is None:
            values = rng.uniform(-9, 9, 50) if i < n_columns else list("abc")
            tried = pd.concat([frame.iloc[[5]]] * len(values)).assign(**{name: values})
            assert not (model.predict(tried) == found.to).any()
