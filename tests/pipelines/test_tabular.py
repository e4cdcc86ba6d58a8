"""Mixed tables: what becomes of every kind of column, what is left out, how many clusters there are."""

from __future__ import annotations

import functools
import math
import pickle
import subprocess
import sys
from datetime import date, datetime, time, timedelta, timezone
from decimal import Decimal
from pathlib import Path
from time import process_time
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from sklearn import config_context
from sklearn.base import clone
from sklearn.cluster import DBSCAN, KMeans
from sklearn.compose import ColumnTransformer
from sklearn.datasets import make_blobs
from sklearn.mixture import GaussianMixture
from sklearn.pipeline import Pipeline
from sklearn.preprocessing import FunctionTransformer, StandardScaler
from threadpoolctl import threadpool_limits

import whycluster as wc
from tests.optional import load_frame, optional
from whycluster.data.column_checks import inspect_column
from whycluster.data.columns import as_days, as_numbers, as_text, columns_of
from whycluster.pipelines import tabular
from whycluster.pipelines.tabular import encoder, pipeline

if TYPE_CHECKING:
    import pandas as pd
    import polars as pl
    import pyarrow as pa
else:
    pd = optional("pandas")
    pl = optional("polars")
    pa = optional("pyarrow")

ArrowSeries = optional("pandas:Series", requires="pyarrow")
ArrowDtype = optional("pandas:ArrowDtype", requires="pyarrow")
HALF = math.sqrt(0.5)
N = 60


def mixed() -> pd.DataFrame:
    """Customers of three towns, with gaps; the town says the age."""
    rng = np.random.default_rng(0)
    town = np.arange(N) % 3
    frame: pd.DataFrame = pd.DataFrame(
        {
            "age": rng.normal(30 + 20 * town, 1.0),
            "visits": rng.integers(0, 5, N),
            "member": rng.random(N) < 0.5,
            "city": np.array(["Rome", "Oslo", "Bonn"])[town],
            "joined": pd.date_range("2020-01-01", periods=N, freq="36h"),
        }
    )
    frame.loc[3, "age"] = np.nan
    frame.loc[4, "city"] = None
    frame.loc[5, "joined"] = pd.NaT
    return frame


LIBRARIES: dict[str, Any] = {
    "pandas": lambda frame: frame,
    "polars": lambda frame: pl.from_pandas(frame),
    "pyarrow": lambda frame: pa.Table.from_pandas(frame),
}


def frames() -> dict[str, Any]:
    return {library: convert(mixed()) for library, convert in LIBRARIES.items()}


def encoded(frame: Any, **options: Any) -> dict[str, Any]:
    """The columns that the encoder makes, by their names; pandas in, as scikit-learn takes it."""
    made = encoder(frame, **options)
    return dict(zip(made.get_feature_names_out(), made.transform(frame).T, strict=True))


def message(call: Any) -> str:
    with pytest.raises(wc.InvalidInputError) as caught:
        call()
    return str(caught.value)


def left_out(frame: Any, **options: Any) -> dict[Any, str]:
    """Why columns are left out."""
    with pytest.warns(wc.ColumnWarning):
        made = encoder(frame, **options)
    return dict(made.left_out_)


# The pipeline


@pytest.mark.parametrize("library", LIBRARIES)
def test_a_mixed_table_is_clustered_as_it_is(library: str) -> None:
    frame = LIBRARIES[library](mixed())
    pipe = pipeline(frame, 3)
    assert isinstance(pipe, Pipeline)
    assert [name for name, _ in pipe.steps] == ["columns", "clusters"]
    assert isinstance(pipe["columns"], ColumnTransformer)
    assert list(pipe["columns"].named_transformers_) == ["numbers", "dates", "categories"]
    assert pipe.left_out_ == {} == pipe.inertias_
    labels = pipe["clusters"].labels_
    assert len(set(labels)) == 3
    for other in (mixed(), frames()["polars"]):  # what is learned from one library holds in the others
        assert (pipe.predict(other) == labels).all()


def test_every_library_gives_the_same_numbers() -> None:
    pandas, polars, pyarrow = (encoder(frame).transform(mixed()) for frame in frames().values())
    np.testing.assert_array_equal(pandas, polars)
    np.testing.assert_array_equal(pandas, pyarrow)


def test_it_is_what_one_would_write_by_hand() -> None:
    frame = mixed()
    columns = encoded(frame)
    age = frame["age"].to_numpy()
    scaled = (age - np.nanmean(age)) / np.nanstd(age)
    scaled[3] = np.nanmedian(scaled)
    np.testing.assert_allclose(columns["numbers__age"], scaled)
    np.testing.assert_array_equal(columns["numbers__missingindicator_age"], np.arange(N) == 3)
    np.testing.assert_allclose(
        columns["numbers__member"], StandardScaler().fit_transform(frame[["member"]])[:, 0]
    )
    days = np.arange(N) * 1.5
    days[5] = np.nan
    days = (days - np.nanmean(days)) / np.nanstd(days)
    days[5] = np.nanmedian(days)
    np.testing.assert_allclose(columns["dates__joined"], days, atol=1e-9)
    np.testing.assert_array_equal(columns["dates__missingindicator_joined"], np.arange(N) == 5)
    for city in ("Rome", "Oslo", "Bonn"):
        np.testing.assert_allclose(columns[f"categories__city_{city}"], HALF * (frame["city"] == city))
    np.testing.assert_allclose(columns["categories__city_missing"], HALF * (np.arange(N) == 4))
    assert len(columns) == 10


def test_a_category_weighs_as_much_as_a_standard_deviation() -> None:
    frame = pd.DataFrame({"kind": list("aabb") * 5})
    for weight in (1.0, 0.5, 3):
        X = encoder(frame, category_weight=weight).transform(frame)
        assert np.linalg.norm(X[0] - X[2]) == pytest.approx(weight)


def test_numbers_alone_are_scaled_and_clustered_as_by_hand() -> None:
    frame = load_frame("wine").data
    pipe = pipeline(frame, 3, random_state=7)
    by_hand = KMeans(3, n_init=10, random_state=7).fit(StandardScaler().fit_transform(frame))
    assert (pipe["clusters"].labels_ == by_hand.labels_).all()


def test_the_same_seed_gives_the_same_answer() -> None:
    frame = mixed()
    first, again = (pipeline(frame, random_state=3) for _ in range(2))
    assert (first["clusters"].cluster_centers_ == again["clusters"].cluster_centers_).all()
    assert first.inertias_ == again.inertias_


def test_it_can_be_pickled_and_cloned() -> None:
    frame = mixed()
    pipe = pipeline(frame, 3)
    loaded = pickle.loads(pickle.dumps(pipe))
    assert (loaded.predict(frame) == pipe.predict(frame)).all()
    assert loaded.left_out_ == pipe.left_out_
    fresh = clone(pipe)
    assert not hasattr(fresh["clusters"], "labels_")
    assert (fresh.fit(frame).predict(frame) == pipe.predict(frame)).all()


def test_it_keeps_to_the_output_that_scikit_learn_is_set_to() -> None:
    plain = encoder(mixed()).transform(mixed())
    with config_context(transform_output="pandas"):
        pipe = pipeline(mixed(), 3)
        framed = pipe["columns"].transform(mixed())
    assert isinstance(framed, pd.DataFrame)
    np.testing.assert_array_equal(framed.to_numpy(), plain)
    assert list(pipe["clusters"].feature_names_in_) == list(framed.columns)


def test_columns_may_come_in_another_order_and_with_others() -> None:
    frame = mixed().assign(id=range(N))
    with pytest.warns(wc.ColumnWarning):
        pipe = pipeline(frame, 3)
    labels = pipe["clusters"].labels_
    assert (pipe.predict(frame[frame.columns[::-1]].assign(other=1)) == labels).all()
    assert (pipe.predict(frame.drop(columns="id")) == labels).all()


def test_names_that_are_no_text_go_by_position() -> None:
    frame = mixed()
    for names in (range(10, 15), pd.MultiIndex.from_product([["a"], list("vwxyz")])):
        numbered = frame.set_axis(names, axis=1)
        pipe = pipeline(numbered, 3)
        assert (pipe.predict(numbered) == pipeline(frame, 3)["clusters"].labels_).all()


# The model and the number of clusters


def test_any_estimator_may_stand_at_the_end() -> None:
    frame = load_frame("iris").data
    model = GaussianMixture(3, random_state=0)
    pipe = pipeline(frame, model=model)
    scaled = StandardScaler().fit_transform(frame)
    assert (pipe.predict(frame) == clone(model).fit_predict(scaled)).all()
    assert not hasattr(model, "means_"), "the user's own is not touched"
    assert len(pipeline(frame, model=DBSCAN())["clusters"].labels_) == 150


def test_the_number_of_clusters_is_the_elbow() -> None:
    for n_clusters in (2, 3, 5):
        X, _ = make_blobs(500, n_features=6, centers=n_clusters, random_state=1)
        pipe = pipeline(pd.DataFrame(X, columns=list("abcdef")))
        assert pipe["clusters"].n_clusters == n_clusters
        assert list(pipe.inertias_) == list(range(1, 21))
    assert list(pipeline(pd.DataFrame(X, columns=list("abcdef")), max_clusters=4).inertias_) == [1, 2, 3, 4]


def test_the_elbow_of_categories_needs_no_more_clusters_than_different_rows() -> None:
    frame = pd.DataFrame({"kind": list("abc") * 20})
    pipe = pipeline(frame)
    assert list(pipe.inertias_) == [1, 2, 3]
    assert pipe["clusters"].n_clusters in (2, 3)
    assert pipeline(pd.DataFrame({"kind": list("ab") * 20}))["clusters"].n_clusters == 2


def test_the_curve_of_many_rows_is_that_of_a_sample(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tabular, "_CURVE_ROWS", 100)
    X, _ = make_blobs(500, n_features=4, centers=3, random_state=1)
    frame = pd.DataFrame(X, columns=list("abcd"))
    pipe = pipeline(frame, random_state=1)
    assert pipe["clusters"].n_clusters == 3
    assert len(pipe["clusters"].labels_) == 500
    assert pipe.inertias_[1] < 0.5 * 500 * 4  # 100 rows of 4 columns that have a variance of 1
    assert pipeline(frame, random_state=1).inertias_ == pipe.inertias_


def test_wide_tables_use_fewer_rows_for_the_curve(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tabular, "_CURVE_VALUES", 800)
    monkeypatch.setattr(tabular, "_FEWEST_CURVE_ROWS", 100)
    X, _ = make_blobs(500, n_features=16, centers=3, random_state=1)
    for n_columns, n_rows in ((1, 500), (4, 200), (16, 100)):  # 100 rows is the minimum
        frame = pd.DataFrame(X[:, :n_columns], columns=[f"x{i}" for i in range(n_columns)])
        assert pipeline(frame).inertias_[1] == pytest.approx(n_rows * n_columns, rel=0.2)


def slow_curve(X: Any) -> dict[int, float]:
    """Fit one number of clusters after the other, on all rows."""
    curve = {1: float(np.square(X - X.mean(axis=0)).sum())}
    return curve | {k: KMeans(k, n_init=3, random_state=0).fit(X).inertia_ for k in range(2, 21)}


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(3))
def test_the_curve_is_that_of_one_fit_after_the_other(seed: int) -> None:
    X, _ = make_blobs(2000, n_features=5, centers=3 + 2 * seed, cluster_std=3.0, random_state=seed)
    X[:, 0] = np.exp(X[:, 0] / 5)
    X = StandardScaler().fit_transform(X)
    with threadpool_limits(1):
        slow = slow_curve(X)
    pipe = pipeline(pd.DataFrame(X, columns=list("abcde")))
    assert list(pipe.inertias_) == list(slow)
    np.testing.assert_allclose(list(pipe.inertias_.values()), list(slow.values()), rtol=1e-9)
    assert pipe["clusters"].n_clusters == tabular._elbow(slow, tabular._load_kneedle())


@pytest.mark.slow
def test_a_table_of_15000_rows_and_17_columns_takes_seconds() -> None:
    X, _ = make_blobs(15_000, n_features=17, centers=7, cluster_std=6.0, random_state=0)
    frame = pd.DataFrame(X, columns=[f"x{i}" for i in range(17)])
    start = process_time()
    pipe = pipeline(frame)
    # About 1.5 s; threads that wait for each other took 40 s of two busy cores.
    assert process_time() - start < 10
    assert pipe["clusters"].n_clusters == 7


def test_a_random_generator_gives_the_same_curve_in_any_order_of_the_threads() -> None:
    frame = load_frame("iris").data
    first, again = (pipeline(frame, random_state=np.random.RandomState(3)).inertias_ for _ in range(2))
    assert first == again
    assert first != pipeline(frame, random_state=np.random.RandomState(4)).inertias_


def test_where_there_is_no_elbow_it_is_the_place_farthest_below_the_line() -> None:
    def nothing(_sizes: Any, _curve: Any) -> None:
        return None

    assert tabular._elbow({1: 10.0, 2: 9.0, 3: 3.0, 4: 2.0, 5: 0.0}, nothing) == 3
    straight = {1: 8.0, 2: 6.0, 3: 4.0, 4: 2.0, 5: 0.0}
    kneedle = tabular._load_kneedle()
    assert kneedle(np.array(list(straight)), np.array(list(straight.values()))) is None
    assert tabular._elbow(straight, kneedle) == 2
    assert tabular._elbow({1: 10.0, 2: 9.9, 3: 9.5, 4: 8.0, 5: 0.0}, kneedle) == 2  # it bends the other way


def test_without_kneed_the_number_of_clusters_must_be_given(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "kneed", None)
    with pytest.raises(wc.MissingDependencyError) as caught:
        pipeline(mixed())
    assert str(caught.value) == (
        'choosing the number of clusters needs kneed: pip install "whycluster[tabular]", or set n_clusters'
    )
    assert pipeline(mixed(), 2)["clusters"].n_clusters == 2


# Every kind of column

INSTANT = datetime(2020, 1, 1, 12)  # 18,262.5 days after the epoch
LATER = INSTANT + timedelta(days=2)
NUMBERS: dict[str, Any] = {
    "Int64": pd.Series([1, None, 3], dtype="Int64"),
    "Float64": pd.Series([1, None, 3], dtype="Float64"),
    "float32": pd.Series([1, None, 3], dtype="float32"),
    "float16": pd.Series([1, None, 3], dtype="float16"),
    "int64[pyarrow]": ArrowSeries([1, None, 3], dtype="int64[pyarrow]"),
    "objects": pd.Series([1, None, 3.0], dtype=object),
    "NA among objects": pd.Series([np.int8(1), pd.NA, Decimal(3)], dtype=object),
    "sparse": pd.Series(pd.arrays.SparseArray([1.0, np.nan, 3.0])),
    "polars Int64": pl.Series([1, None, 3]),
    "polars NaN": pl.Series([1.0, math.nan, 3.0]),
    "polars Decimal": pl.Series([Decimal("1.0"), None, Decimal("3.0")]),
}
BOOLEANS: dict[str, Any] = {
    "boolean": pd.Series([False, None, True], dtype="boolean"),
    "objects": pd.Series([False, None, True], dtype=object),
    "NumPy's objects": pd.Series([np.False_, np.nan, np.True_], dtype=object),
    "polars": pl.Series([False, None, True]),
}
DATES: dict[str, Any] = {
    "datetime64[ns]": pd.Series([INSTANT, None, LATER]).astype("datetime64[ns]"),
    "datetime64[s]": pd.Series([INSTANT, None, LATER]).astype("datetime64[s]"),
    "tz": pd.Series([INSTANT, None, LATER]).dt.tz_localize("UTC").dt.tz_convert("Asia/Tokyo"),
    "timestamp[us][pyarrow]": ArrowSeries([INSTANT, None, LATER], dtype="timestamp[us][pyarrow]"),
    "objects": pd.Series([INSTANT, None, LATER.replace(tzinfo=timezone.utc)], dtype=object),
    "polars": pl.Series([INSTANT, None, LATER]),
    "polars tz": pl.Series([INSTANT, None, LATER])
    .dt.replace_time_zone("UTC")
    .dt.convert_time_zone("Asia/Tokyo"),
}
TEXT: dict[str, Any] = {
    "str": pd.Series(["a", None, "b"]),
    "string": pd.Series(["a", None, "b"], dtype="string"),
    "objects": pd.Series(["a", np.nan, "b"], dtype=object),
    "category": pd.Series(["a", None, "b"], dtype="category"),
    "string[pyarrow]": ArrowSeries(["a", None, "b"], dtype=ArrowDtype(pa.string())),
    "polars String": pl.Series(["a", None, "b"]),
    "polars Categorical": pl.Series(["a", None, "b"], dtype=pl.Categorical),
    "polars Enum": pl.Series(["a", None, "b"], dtype=pl.Enum(["b", "a", "c"])),
}


def as_frame(series: Any) -> Any:
    return pd.DataFrame({"x": series}) if isinstance(series, pd.Series) else pl.DataFrame({"x": series})


@pytest.mark.parametrize("series", NUMBERS.values(), ids=NUMBERS)
def test_every_kind_of_number_is_read(series: Any) -> None:
    frame = as_frame(series)
    np.testing.assert_array_equal(as_numbers(frame), [[1.0], [np.nan], [3.0]])
    columns = encoded(frame)
    np.testing.assert_array_equal(columns["numbers__x"], [-1.0, 0.0, 1.0])
    np.testing.assert_array_equal(columns["numbers__missingindicator_x"], [0.0, 1.0, 0.0])


@pytest.mark.parametrize("series", BOOLEANS.values(), ids=BOOLEANS)
def test_booleans_are_numbers(series: Any) -> None:
    np.testing.assert_array_equal(as_numbers(as_frame(series)), [[0.0], [np.nan], [1.0]])
    assert list(encoded(as_frame(series))) == ["numbers__x", "numbers__missingindicator_x"]


@pytest.mark.parametrize("series", DATES.values(), ids=DATES)
def test_every_kind_of_date_is_days_since_1970(series: Any) -> None:
    frame = as_frame(series)
    np.testing.assert_array_equal(as_days(frame), [[18262.5], [np.nan], [18264.5]])
    assert list(encoded(frame)) == ["dates__x", "dates__missingindicator_x"]


@pytest.mark.parametrize(
    ("series", "days"),
    [
        (pl.Series([date(1970, 1, 2), None, date(1970, 1, 3)]), [1.0, np.nan, 2.0]),
        (pd.Series([date(1970, 1, 2), None, datetime(1970, 1, 3, 12)], dtype=object), [1.0, np.nan, 2.5]),
        (pd.Series([timedelta(days=1), None, timedelta(hours=6)]), [1.0, np.nan, 0.25]),
        (pd.Series([timedelta(days=1), None, timedelta(hours=6)], dtype=object), [1.0, np.nan, 0.25]),
        (pl.Series([timedelta(days=1), None, timedelta(hours=6)]), [1.0, np.nan, 0.25]),
        (pl.Series([time(12), None, time(18, 45)]), [0.5, np.nan, 0.78125]),
    ],
)
def test_dates_durations_and_times_are_days(series: Any, days: list[float]) -> None:
    np.testing.assert_array_equal(as_days(as_frame(series))[:, 0], days)
    assert list(encoded(as_frame(series))) == ["dates__x", "dates__missingindicator_x"]


@pytest.mark.parametrize("series", TEXT.values(), ids=TEXT)
def test_every_kind_of_text_is_categories(series: Any) -> None:
    columns = encoded(as_frame(series))
    assert list(columns) == ["categories__x_a", "categories__x_b", "categories__x_missing"]
    np.testing.assert_allclose(list(columns.values()), HALF * np.eye(3)[[0, 2, 1]])


def test_text_and_numbers_in_one_column_are_categories() -> None:
    frame = pd.DataFrame({"x": [1, "a", 1.0, "1", 2.5, True, None]})
    assert list(as_text(frame)[:-1, 0]) == ["1", "a", "1", "1", "2.5", "True"]
    assert list(encoded(frame)) == [f"categories__x_{name}" for name in ("1", "2.5", "True", "a", "missing")]
    assert (encoder(frame).transform(pd.DataFrame({"x": [1, 1]})) > 0).sum() == 2  # a batch of numbers alone


def test_categories_that_are_numbers_stay_categories() -> None:
    frame = pd.DataFrame({"x": pd.Series([3, 1, None, 3], dtype="category")})
    assert list(encoded(frame)) == ["categories__x_1", "categories__x_3", "categories__x_missing"]


def test_a_column_with_one_value_and_gaps_is_kept_for_the_gaps() -> None:
    columns = encoded(pd.DataFrame({"x": [5.0, None, 5.0], "y": ["a", "a", None]}))
    np.testing.assert_array_equal(columns["numbers__x"], 0.0)
    np.testing.assert_array_equal(columns["numbers__missingindicator_x"], [0, 1, 0])
    np.testing.assert_allclose(columns["categories__y_missing"], [0, 0, HALF])


def test_rare_categories_are_one_together() -> None:
    frame = pd.DataFrame({"x": list("aaaabbbccd") * 2})
    columns = encoded(frame, max_categories=3)
    assert list(columns) == [f"categories__x_{name}" for name in ("a", "b", "infrequent_sklearn")]
    assert (columns["categories__x_infrequent_sklearn"] > 0).sum() == 6
    assert len(encoded(frame, max_categories=None)) == 4
    many = pd.DataFrame({"x": [f"town {i % 70}" for i in range(700)]})
    assert len(encoded(many)) == 50


def test_unknown_categories_are_rare_ones_or_none() -> None:
    frame = pd.DataFrame({"x": list("aaaabbbccd") * 2})
    new = pd.DataFrame({"x": ["z", None]})
    np.testing.assert_array_equal(encoder(frame).transform(new), np.zeros((2, 4)))
    np.testing.assert_allclose(encoder(frame, max_categories=3).transform(new), [[0, 0, HALF]] * 2)


def test_values_missing_for_the_first_time_are_filled() -> None:
    frame = pd.DataFrame({"x": [1.0, 2.0, 3.0, 9.0], "t": pd.date_range("2020", periods=4)})
    made = encoder(frame)
    filled = made.transform(pd.DataFrame({"x": [None], "t": pd.Series([pd.NaT], dtype="datetime64[ns]")}))
    np.testing.assert_allclose(filled, np.median(made.transform(frame), axis=0, keepdims=True))


@pytest.mark.filterwarnings("ignore:invalid value encountered:RuntimeWarning")  # StandardScaler's own
@pytest.mark.parametrize("name", ["numbers__age", "categories__city_missing", "dates__joined"])
def test_a_refit_bears_a_column_without_values(name: str) -> None:
    made = clone(encoder(mixed()))
    column = name.split("_")[2]
    X = made.fit_transform(mixed().assign(**{column: None}))
    assert np.isfinite(X).all()
    assert name in made.get_feature_names_out()


def test_functions_take_arrays_too() -> None:
    array = np.array([["a", 1, date(1970, 1, 2)], [None, 2.5, None]], dtype=object)
    assert as_text(array[:, :1])[0, 0] == "a"
    np.testing.assert_array_equal(as_numbers(array[:, 1:2]), [[1.0], [2.5]])
    np.testing.assert_array_equal(as_days(array[:, 2:]), [[1.0], [np.nan]])


# What is left out


def test_what_is_left_out_is_said_once() -> None:
    frame = mixed().assign(PassengerId=range(N), one="x", nothing=np.nan)
    with pytest.warns(wc.ColumnWarning) as caught:
        pipe = pipeline(frame, 3)
    assert [str(warning.message) for warning in caught] == [
        "pipeline: 3 columns are left out. 'PassengerId': like an identifier, whole numbers in a column with "
        "such a name; 'one': all values are the same; 'nothing': all values are missing. To use columns that "
        "look like identifiers, list them in keep."
    ]
    assert Path(caught[0].filename) == Path(__file__)
    assert (
        pipe.left_out_
        == pipe["columns"].left_out_
        == {
            "PassengerId": "like an identifier, whole numbers in a column with such a name",
            "one": "all values are the same",
            "nothing": "all values are missing",
        }
    )
    assert (pipe["clusters"].labels_ == pipeline(mixed(), 3)["clusters"].labels_).all()
    with pytest.warns(wc.ColumnWarning) as caught:
        encoder(mixed().assign(one=1))
    assert str(caught[0].message) == "encoder: 1 column is left out. 'one': all values are the same."
    assert Path(caught[0].filename) == Path(__file__)


@pytest.mark.parametrize(
    ("values", "reason"),
    [
        ([7] * N, "all values are the same"),
        ([2**62] * N, "all values are the same"),
        (
            [2**62 + i % 3 for i in range(N)],
            "all values are the same when rounded to floats; subtract their minimum first",
        ),
        (["a"] * N, "all values are the same"),
        ([INSTANT] * N, "all values are the same"),
        ([None] * N, "all values are missing"),
        ([math.nan] * N, "all values are missing"),
        ([pd.NaT] * N, "all values are missing"),
        (pl.Series([None] * N), "all values are missing"),
        (pl.Series([math.nan] * N), "all values are missing"),
        (pl.Series([[1], [2]] * 30), "values of type List, which are not numbers, categories or dates"),
        (
            pl.Series([{"a": 1}, {"a": 2}] * 30),
            "values of type Struct, which are not numbers, categories or dates",
        ),
        (pl.Series([b"a", b"b"] * 30), "values of type Binary, which are not numbers, categories or dates"),
        ([[1], [2, 3]] * 30, "values of type list, which are not numbers, categories or dates"),
        ([b"a", "b", None] * 20, "values of type bytes, str, which are not numbers, categories or dates"),
        ([1j, 2j] * 30, "values of type complex, which are not numbers, categories or dates"),
        (
            [date(2020, 1, 1), timedelta(1)] * 30,
            "values of type date, timedelta, which are not numbers, categories or dates",
        ),
        ([f"c{i}" for i in range(N)], "like an identifier, 60 of 60 values are distinct"),
        ([f"c{i}" for i in range(55)] + ["c0"] * 5, "like an identifier, 55 of 60 values are distinct"),
        (
            [None] * 40 + [f"c{i}" for i in range(20)],
            "like an identifier, 20 of 20 values are distinct",
        ),
        (
            pd.Series([f"c{i}" for i in range(N)], dtype="category"),
            "like an identifier, 60 of 60 values are distinct",
        ),
        (
            [f"01/01/2020 {i // 60:02}:{i % 60:02}" for i in range(N)],
            "like an identifier, 60 of 60 values are distinct (most can be read as dates; convert them "
            "first)",
        ),
        (
            [*map(str, np.arange(N - 1) / 7), "n/a"],
            "like an identifier, 60 of 60 values are distinct (most can be read as numbers; convert them "
            "first)",
        ),
        ([f"{7 * i:04}" for i in range(N)], "like an identifier, 60 of 60 values are distinct"),  # codes
        (range(100, 100 + N), "like an identifier, consecutive whole numbers"),
        (np.r_[:30, 36:66][::-1], "like an identifier, consecutive whole numbers"),
        (
            pd.Series([None, *range(1, N)], dtype="Int64"),
            "like an identifier, consecutive whole numbers",
        ),
        (2**62 + np.arange(N), "like an identifier, consecutive whole numbers"),
    ],
)
def test_columns_of_no_use_are_left_out(values: Any, reason: str) -> None:
    library: Any = pl if isinstance(values, pl.Series) else pd
    assert left_out(library.DataFrame({"x": values, "y": np.arange(N) % 7})) == {"x": reason}


@pytest.mark.parametrize(
    "values",
    [
        np.arange(N) / 7,  # floats
        np.arange(float(N)),  # floats, though they are whole
        np.arange(N) * 10,  # far between: 591 places for 60 values
        np.r_[:30, 37:67],  # 67 places for 60 values
        np.r_[: N - 1, 0],  # one comes twice
        pd.date_range("2020-01-01", periods=N),
        [f"c{i}" for i in range(54)] + ["c0"] * 6,  # 9 in 10 and no more
        [*range(8), *[None] * 52],  # as floats
    ],
)
def test_measurements_are_not_taken_for_identifiers(values: Any) -> None:
    assert encoder(pd.DataFrame({"x": values, "y": np.arange(N) % 7})).left_out_ == {}


def test_identifiers_are_not_to_be_converted_to_numbers() -> None:
    values = [str(7 * i) for i in range(N)]
    reason = "like an identifier, 60 of 60 values are distinct"
    frame = pd.DataFrame({"customer_id": values, "price": values, "y": np.arange(N) % 7})
    assert left_out(frame) == {
        "customer_id": reason,
        "price": f"{reason} (most can be read as numbers; convert them first)",
    }


@pytest.mark.parametrize(
    ("values", "reason"),
    [
        (np.arange(60) * 8, "like an identifier, consecutive whole numbers"),
        (
            np.random.default_rng(0).permutation(480)[::8],
            "like an identifier, consecutive whole numbers",
        ),
        (np.arange(60) * 7, ""),  # of all rows some are the same
        (np.arange(60) * 10, ""),  # far between
        (np.arange(60) * 8.0, ""),  # floats
        (np.r_[:59, 0] * 8, ""),  # one comes twice
    ],
)
def test_consecutive_numbers_of_every_eighth_row(values: Any, reason: str) -> None:
    (column,) = columns_of(pl.DataFrame({"x": values}), "test")
    assert inspect_column(column, kept=False, step=8) == ("numbers", reason)
    assert inspect_column(column, kept=False) == ("numbers", "")


def test_a_few_values_are_too_few_to_tell() -> None:
    few = pd.DataFrame({"x": range(9), "y": list("abcdefghi")})
    assert encoder(few).left_out_ == {}
    assert left_out(pd.DataFrame({"x": range(10), "y": list("abcdefghij"), "z": [1.0, 2.0] * 5})) == {
        "x": "like an identifier, consecutive whole numbers",
        "y": "like an identifier, 10 of 10 values are distinct",
    }


@pytest.mark.parametrize(
    "name",
    ["id", "ID", "Id", "customer_id", "customerId", "PassengerId", "patientID", "id_no", "UUID", "index"],
)
def test_whole_numbers_may_be_named_like_identifiers(name: str) -> None:
    values = np.arange(N) ** 2 % 50  # some come twice
    assert left_out(pd.DataFrame({name: values, "y": np.arange(N) % 7})) == {
        name: "like an identifier, whole numbers in a column with such a name"
    }
    assert encoder(pd.DataFrame({name: values / 3, "y": np.arange(N) % 7})).left_out_ == {}
    assert encoder(pd.DataFrame({name: np.array(list("abc"))[values % 3]})).left_out_ == {}


@pytest.mark.parametrize(
    "name", ["paid", "humidity", "bid", "Idaho", "price_index", "idle", "acid", "n_id_cards"]
)
def test_names_that_only_sound_like_identifiers(name: str) -> None:
    assert encoder(pd.DataFrame({name: np.arange(N) ** 2, "y": np.arange(N) % 7})).left_out_ == {}


def test_the_first_column_of_a_file_written_by_pandas_is_its_index(tmp_path: Path) -> None:
    mixed().to_csv(tmp_path / "file.csv")
    frame = pd.read_csv(tmp_path / "file.csv", parse_dates=["joined"]).sample(20, random_state=0)
    assert left_out(frame) == {"Unnamed: 0": "like an identifier, whole numbers in a column with such a name"}


def test_what_looks_like_an_identifier_can_be_kept() -> None:
    frame = pd.DataFrame({"year": range(1950, 2010), "x": np.arange(N) % 7})
    assert list(left_out(frame)) == ["year"]
    assert list(encoded(frame, keep=["year"])) == ["numbers__year", "numbers__x"]
    numbered = frame.set_axis([0, 1], axis=1)
    assert encoder(numbered, keep=(0,)).left_out_ == {}
    assert left_out(frame.assign(one=1), keep=["year", "one"]) == {"one": "all values are the same"}


def test_text_that_hardly_repeats_is_like_an_identifier() -> None:
    rng = np.random.default_rng(0)
    often = [f"c{i}" for i in rng.integers(1100, size=30_000)]  # 27 rows each
    seldom = [f"c{i}" for i in rng.integers(5000, size=30_000)]
    frame = pd.DataFrame({"often": often, "seldom": seldom, "x": rng.normal(size=30_000)})
    n = len(set(seldom))
    assert left_out(frame) == {"seldom": f"like an identifier, {n} distinct values in 30000 rows"}


# What cannot be done


def test_nothing_is_left() -> None:
    frame = pd.DataFrame({"id": range(5), "one": 1})
    assert message(lambda: pipeline(frame, 2)) == (
        "pipeline: frame must contain at least one column to use for clustering; none is left. 'id': like an "
        "identifier, whole numbers in a column with such a name; 'one': all values are the same."
    )


@pytest.mark.parametrize(
    ("frame", "expected"),
    [
        (
            np.eye(3),
            "encoder: frame must be a pandas or polars DataFrame or a pyarrow Table, so that its columns "
            "have types; got ndarray. Convert it with pandas.DataFrame(data, columns=[...]).",
        ),
        (
            pd.Series([1, 2]),
            "encoder: frame must be a pandas or polars DataFrame or a pyarrow Table, so that its columns "
            "have types; got Series. Convert it with pandas.DataFrame(data, columns=[...]).",
        ),
        (
            pl.LazyFrame({"a": [1]}),
            "encoder: frame must be in memory; got a lazy polars LazyFrame. Collect it first.",
        ),
        (
            pd.DataFrame({"a": []}),
            "encoder: frame must have at least one row and one column; got shape (0, 1).",
        ),
        (
            pl.DataFrame(),
            "encoder: frame must have at least one row and one column; got shape (0, 0).",
        ),
        (
            pd.DataFrame([[1, 2]], columns=["a", "a"]),
            "encoder: frame must have unique column names; 'a' occurs more than once.",
        ),
        (
            pa.table([[1], [2]], names=["a", "a"]),
            "encoder: frame must have unique column names; 'a' occurs more than once.",
        ),
        (
            pd.DataFrame([[1, 2]], columns=["a", 0]),
            "encoder: all or none of the column names of frame must be strings; got 'a' and "
            "0. Rename them: frame.columns = [str(c) for c in frame.columns].",
        ),
        (
            pd.DataFrame([[1, 2]], columns=["a", "b\0"]),
            "encoder: the column names of frame must not end with the character NUL, which NumPy drops; got "
            "'b\\x00'. Rename it.",
        ),
        (
            pd.DataFrame({"a": [1.0, 2.0, -math.inf]}),
            "encoder: column 'a' must hold finite numbers of at most 1e+150 in absolute value; row 2 holds "
            "-inf. Replace it, or make it a missing value.",
        ),
        (
            pl.DataFrame({"a": [1.0, None, 1e200]}),
            "encoder: column 'a' must hold finite numbers of at most 1e+150 in absolute value; row 2 holds "
            "1e+200. Replace it, or make it a missing value.",
        ),
    ],
)
def test_frames_that_cannot_be_encoded(frame: Any, expected: str) -> None:
    assert message(lambda: encoder(frame)) == expected


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"n_clusters": 1}, "pipeline: n_clusters must be None or an integer of at least 2; got 1."),
        ({"n_clusters": 2.5}, "pipeline: n_clusters must be None or an integer of at least 2; got 2.5."),
        (
            {"n_clusters": 61},
            "pipeline: n_clusters must be at most 60, the number of distinct rows; got 61.",
        ),
        ({"max_clusters": 1}, "pipeline: max_clusters must be an integer of at least 2; got 1."),
        ({"category_weight": 0}, "pipeline: category_weight must be a number above 0; got 0."),
        ({"category_weight": "a"}, "pipeline: category_weight must be a number above 0; got 'a'."),
        ({"category_weight": math.nan}, "pipeline: category_weight must be a number above 0; got nan."),
        (
            {"max_categories": 1},
            "pipeline: max_categories must be None or an integer of at least 2; got 1.",
        ),
        ({"keep": 3}, "pipeline: keep must be a list of column names; got 3."),
        (
            {"keep": ["Age"]},
            "pipeline: keep must contain columns of frame; got 'Age'. The columns of frame are "
            "['age', 'visits', 'member', 'city', 'joined'].",
        ),
        (
            {"model": KMeans},
            "pipeline: model must be a scikit-learn estimator, such as KMeans(3); got <class "
            "'sklearn.cluster._kmeans.KMeans'>.",
        ),
        (
            {"model": "kmeans"},
            "pipeline: model must be a scikit-learn estimator, such as KMeans(3); got 'kmeans'.",
        ),
        (
            {"model": KMeans(3), "n_clusters": 3},
            "pipeline: n_clusters must be None if a model is given; got 3. Set the number of "
            "clusters in the model.",
        ),
    ],
)
def test_options_that_cannot_be(options: dict[str, Any], expected: str) -> None:
    assert message(lambda: pipeline(mixed(), **options)) == expected


def test_a_long_list_of_columns_is_cut_short() -> None:
    frame = mixed().assign(more=list("ab") * 30)
    assert message(lambda: encoder(frame, keep=["x"])) == (
        "encoder: keep must contain columns of frame; got 'x'. The columns of frame are "
        "['age', 'visits', 'member', 'city', 'joined'] and 1 more."
    )


def test_different_rows_are_counted_beyond_the_first() -> None:
    frame = pd.DataFrame({"x": [0.0] * 1500 + [1.0, 2.0]})
    assert pipeline(frame, 3)["clusters"].n_clusters == 3
    assert message(lambda: pipeline(frame, 4)) == (
        "pipeline: n_clusters must be at most 3, the number of distinct rows; got 4."
    )


@pytest.mark.parametrize(
    ("changed", "expected"),
    [
        (
            {"age": "old"},
            "as_numbers: column 'age' must hold numbers; row 0 holds 'old'. The column held numbers "
            "when the pipeline was fitted.",
        ),
        (
            {"age": math.inf},
            "as_numbers: column 'age' must hold finite numbers of at most 1e+150 in absolute value; row 0 "
            "holds inf. Replace it, or make it a missing value.",
        ),
        (
            {"joined": "01/02/2020"},
            "as_days: column 'joined' must hold dates, durations or times of day; row 0 holds "
            "'01/02/2020'. The column held dates, durations or times of day when the pipeline was fitted.",
        ),
        (
            {"city": [["Rome"]] * N},
            "as_text: column 'city' must hold categories; row 0 holds ['Rome']. The column held categories "
            "when the pipeline was fitted.",
        ),
    ],
)
def test_rows_to_predict_must_be_of_the_same_kinds(changed: dict[str, Any], expected: str) -> None:
    pipe = pipeline(mixed(), 2)
    assert message(lambda: pipe.predict(mixed().assign(**changed))) == expected


def test_pyarrow_alone_is_not_enough(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda _name: None)
    with pytest.raises(wc.MissingDependencyError) as caught:
        encoder(pa.table({"x": [1.0, 2.0]}))
    assert str(caught.value) == (
        "encoder: a pyarrow table has to be converted to pandas or polars first, but neither is installed: "
        "pip install pandas"
    )
    monkeypatch.setattr("importlib.util.find_spec", lambda name: True if name == "polars" else None)
    assert encoder(pa.table({"x": [1.0, 2.0]})).left_out_ == {}


# Functions of single values


def test_a_function_is_marked() -> None:
    def double(X: Any) -> Any:
        return 2 * X

    assert wc.elementwise(double) is double
    for function in (
        double,
        wc.elementwise(lambda X: X),
        wc.elementwise(functools.partial(np.clip, a_min=0)),
    ):
        assert function.whycluster_elementwise is True  # type: ignore[attr-defined]


def test_a_mark_outlives_copies() -> None:
    clipped = wc.elementwise(functools.partial(np.clip, a_min=0, a_max=1))
    step = clone(FunctionTransformer(clipped))
    assert step.func.whycluster_elementwise is True
    assert pickle.loads(pickle.dumps(step)).func.whycluster_elementwise is True


def test_ufuncs_need_no_mark() -> None:
    assert wc.elementwise(np.log1p) is np.log1p


@pytest.mark.parametrize(
    ("function", "expected"),
    [
        (3, "elementwise: function must be callable; got 3."),
        (
            math.sqrt,
            "elementwise: function must accept attributes; got sqrt, a builtin_function_or_method, which "
            "does not. Wrap it in a function of your own and mark that function.",
        ),
        (
            float,
            "elementwise: function must accept attributes; got float, a type, which does not. Wrap it in a "
            "function of your own and mark that function.",
        ),
        (
            StandardScaler().fit,
            "elementwise: function must accept attributes; got fit, a method, which does not. Wrap it in a "
            "function of your own and mark that function.",
        ),
    ],
)
def test_what_cannot_be_marked(function: Any, expected: str) -> None:
    assert message(lambda: wc.elementwise(function)) == expected


def test_all_functions_of_the_pipeline_are_marked() -> None:
    steps = [
        step
        for _, branch, _ in encoder(mixed()).transformers_
        for step in branch
        if isinstance(step, FunctionTransformer)
    ]
    assert len(steps) == 4
    assert all(step.func.whycluster_elementwise for step in steps)


def test_the_mark_loads_no_estimator() -> None:
    code = "import whycluster as wc, sys; wc.elementwise(lambda X: X); print('sklearn' in sys.modules)"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert result.stdout == "False\n", result.stderr
