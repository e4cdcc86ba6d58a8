"""Segmentations in SQL: real databases assign every row as the model does."""

from __future__ import annotations

import datetime as dt
from typing import Any

import numpy as np
import pytest

pytest.importorskip("duckdb")
pytest.importorskip("psycopg")
pytest.importorskip("pyarrow")

import pandas as pd
from sklearn.cluster import Birch, BisectingKMeans, KMeans, MeanShift, MiniBatchKMeans
from sklearn.compose import make_column_transformer
from sklearn.datasets import load_breast_cancer, load_diabetes, load_iris, load_linnerud, load_wine
from sklearn.decomposition import PCA, FastICA, IncrementalPCA, TruncatedSVD
from sklearn.feature_selection import VarianceThreshold
from sklearn.impute import MissingIndicator, SimpleImputer
from sklearn.mixture import BayesianGaussianMixture, GaussianMixture
from sklearn.neighbors import NearestCentroid
from sklearn.pipeline import make_pipeline, make_union
from sklearn.preprocessing import (
    Binarizer,
    FunctionTransformer,
    KBinsDiscretizer,
    MaxAbsScaler,
    MinMaxScaler,
    Normalizer,
    OneHotEncoder,
    OrdinalEncoder,
    PowerTransformer,
    QuantileTransformer,
    RobustScaler,
    StandardScaler,
    TargetEncoder,
)
from sklearn.random_projection import GaussianRandomProjection

import whycluster as wc
from tests.segments.sql.databases import ROW, Database, nan_for_null
from whycluster.core.errors import InvalidInputError, UnsupportedModelError
from whycluster.segments.sql.dialects import find_dialect

TIE = 1e-9  # rows with less evidence, relative to the median, may go either way


def numbers(n: int = 300) -> pd.DataFrame:
    """Return rows of three groups: a bell, a skewed column, and one without information."""
    group = np.arange(n) % 3
    rng = np.random.default_rng(1)
    a, b, c = rng.normal(10.0 * group, 2.0), np.exp(rng.normal(group, 0.5)), rng.normal(size=n) - 0.5
    frame: pd.DataFrame = pd.DataFrame({"a": a, "b": b, "c": c})
    return frame


def customers(n: int = 400) -> pd.DataFrame:
    """Return rows with columns of every kind, missing values and hostile names."""
    rng, group = np.random.default_rng(2), np.arange(n) % 3
    cities = np.array(["Rome", "O'slo", "back\\slash", "rare; DROP TABLE x --"], dtype=object)
    frame: pd.DataFrame = pd.DataFrame(
        {
            "age": rng.normal(30 + 15 * group, 5),
            'in"come; --': np.exp(rng.normal(8 + group, 0.4)),
            "cluster": rng.integers(0, 9, n),
            "select": cities[np.where(rng.random(n) < 0.7, group, rng.integers(0, 4, n))],
            "member": rng.random(n) < 0.3 + 0.2 * group,
            "since": pd.Timestamp("2020-01-01") + pd.to_timedelta(rng.integers(0, 900, n) + 400 * group, "h"),
        }
    )
    frame.loc[rng.random(n) < 0.1, "age"] = np.nan
    frame.loc[rng.random(n) < 0.1, "select"] = None
    frame.loc[rng.random(n) < 0.1, "since"] = pd.NaT
    return frame


def check(seg: wc.Segmentation, frame: pd.DataFrame, database: Database, table: str = "customers") -> None:
    """Compare the cluster, the competitor and the evidence of every row far from a tie."""
    with database.holding(frame, table):
        found = database.score(seg.to_sql(table, database.dialect, columns=[ROW]))
    exp = seg.explain(frame, check=False)
    far = exp.evidence > TIE * np.median(exp.evidence)
    assert far.mean() > 0.95
    assert found["cluster"][far].tolist() == seg.assign(frame, check=False)[far].tolist()
    np.testing.assert_allclose(nan_for_null(found["evidence"]), exp.evidence, rtol=1e-9, atol=1e-9 * TIE)
    clear = far & _is_clear(seg, frame)
    assert found["competitor"][clear].tolist() == exp.competitor[clear].tolist()


def _is_clear(seg: wc.Segmentation, frame: pd.DataFrame) -> Any:
    """Return whether the strongest competitor of each row is far from the next one."""
    evidence = np.sort(seg.network.evidence(seg.select(frame, "f")), axis=1)
    if evidence.shape[1] == 2:
        return np.ones(len(frame), bool)
    return evidence[:, -2] - evidence[:, -3] > 1e-6 * np.abs(evidence).max(axis=1)


def fitted(*steps: Any, frame: pd.DataFrame) -> wc.Segmentation:
    model = make_pipeline(*steps).fit(frame)
    return wc.Segmentation.of(model, frame, measure_quality=False)


STEPS = [
    StandardScaler(),
    StandardScaler(with_mean=False),
    MinMaxScaler((-1, 1)),
    MinMaxScaler(clip=True),
    MaxAbsScaler(),
    RobustScaler(),
    RobustScaler(with_centering=False),
    PowerTransformer(),
    PowerTransformer(standardize=False),
    make_pipeline(FunctionTransformer(np.exp), PowerTransformer("box-cox")),
    Normalizer(),
    Normalizer("l1"),
    Normalizer("max"),
    Binarizer(threshold=0.3),
    KBinsDiscretizer(4, encode="ordinal", quantile_method="averaged_inverted_cdf"),
    KBinsDiscretizer(3, encode="onehot", quantile_method="averaged_inverted_cdf"),
    PCA(2),
    PCA(2, whiten=True),
    IncrementalPCA(2),
    TruncatedSVD(2),
    FastICA(2, random_state=0),
    GaussianRandomProjection(2, random_state=0),
    VarianceThreshold(0.1),
    make_pipeline(MinMaxScaler(), FunctionTransformer(np.log1p)),
    make_pipeline(FunctionTransformer(np.abs), FunctionTransformer(np.log), MinMaxScaler()),
    make_pipeline(FunctionTransformer(np.square), FunctionTransformer(np.sqrt)),
    FunctionTransformer(np.expm1),
    FunctionTransformer(np.cbrt),
    FunctionTransformer(np.negative),
    make_pipeline(FunctionTransformer(np.exp), FunctionTransformer(np.log10)),
    make_pipeline(FunctionTransformer(np.exp), FunctionTransformer(np.log2)),
    FunctionTransformer(),
    make_union(StandardScaler(), "passthrough"),
]


@pytest.mark.parametrize("step", STEPS, ids=lambda step: str(step).replace("\n", ""))
def test_steps(step: Any, database: Database) -> None:
    frame = numbers().assign(a=lambda f: f["a"] / 20.0)
    check(fitted(step, KMeans(3, n_init=1, random_state=0), frame=frame), frame, database)


MODELS = [
    KMeans(4, n_init=1, random_state=0),
    MiniBatchKMeans(3, n_init=1, random_state=0),
    BisectingKMeans(5, random_state=0),
    MeanShift(bandwidth=1.5, bin_seeding=True),
    Birch(n_clusters=3),
    Birch(n_clusters=None),
    GaussianMixture(3, random_state=0),
    GaussianMixture(3, covariance_type="tied", random_state=0),
    GaussianMixture(3, covariance_type="diag", random_state=0),
    GaussianMixture(3, covariance_type="spherical", random_state=0),
    BayesianGaussianMixture(n_components=3, random_state=0),
    wc.KernelKMeans(3, random_state=0),
]


@pytest.mark.parametrize("model", MODELS, ids=str)
def test_models(model: Any, database: Database) -> None:
    frame = numbers()
    check(fitted(StandardScaler(), model, frame=frame), frame, database)


@pytest.mark.parametrize("metric", ["euclidean", "manhattan", "cosine", "dot", "student", "fuzzy"])
def test_centroids_with_a_metric(metric: str, database: Database) -> None:
    frame = numbers()
    centroids = frame.groupby(np.arange(len(frame)) % 3).mean()
    network = wc.neuralize(centroids, metric=metric)
    check(wc.Segmentation.of(network, frame, measure_quality=False), frame, database)


def test_medoids(database: Database) -> None:
    kmedoids = pytest.importorskip("kmedoids")
    frame = numbers()
    model = kmedoids.KMedoids(3, metric="manhattan", random_state=0).fit(frame.to_numpy())
    centers = pd.DataFrame(model.cluster_centers_, columns=frame.columns)
    network = wc.neuralize(centers, metric="manhattan")
    check(wc.Segmentation.of(network, frame, measure_quality=False), frame, database)


def test_nearest_centroid_with_labels(database: Database) -> None:
    frame = numbers()
    labels = np.array(["it's", "a\\b", "plain"])[np.arange(len(frame)) % 3]
    model = NearestCentroid().fit(frame, labels)
    check(wc.Segmentation.of(model, frame, measure_quality=False), frame, database)


def test_centroids_far_apart_are_not_expanded(database: Database) -> None:
    frame = pd.DataFrame({"a": [0.0, 1e-3, 1e9, 1e9 + 1.0, 2e-3, 1e9 + 3.0], "b": [0.0, 1, 2, 3, 4, 5]})
    network = wc.neuralize(frame.iloc[:4].reset_index(drop=True))
    assert network.energy.linear is None  # type: ignore[attr-defined]
    frame = frame.assign(a=frame["a"] + 1e-4, b=frame["b"] + 0.2)
    with database.holding(frame, "t"):
        sql = wc.Segmentation.of(network, frame, measure_quality=False).to_sql("t", database.dialect)
        assert database.score(sql)["cluster"].tolist() == network.assign(frame).tolist()


@pytest.mark.slow
def test_a_surrogate_of_labels(database: Database) -> None:
    frame = numbers(200)
    labels = np.where(frame["a"] > 15, "high", np.where(frame["c"] > 0, "low", "noise"))
    check(wc.Segmentation.of(labels, frame, measure_quality=False), frame, database)


@pytest.mark.slow
def test_tabular(database: Database) -> None:
    frame = customers()
    seg = wc.segment(frame, 3, {0: "it's \\ 1", 1: "b", 2: "c"}, measure_quality=False)
    check(seg, frame, database)
    check(seg, frame.sample(50, random_state=0), database, 'odd "table"; DROP TABLE x --')


def test_rare_unseen_and_missing_categories(database: Database) -> None:
    rng = np.random.default_rng(0)
    names = np.array([f"shop {i}" for i in range(60)], dtype=object)
    frame = pd.DataFrame({"shop": names[np.minimum(rng.geometric(0.1, 500), 59)], "n": rng.normal(size=500)})
    pipe = wc.tabular.pipeline(frame, 3, max_categories=5)
    seg = wc.Segmentation.of(pipe, frame, measure_quality=False)
    new = pd.DataFrame(
        {"shop": ["shop 1", "shop 59", "never seen", "", None], "n": [0.1, 0.2, 0.3, 0.4, None]}
    )
    check(seg, new, database)


TEXT_DATES = ["2024-03-01", "2024-03-01 12:30", "2024-03-05T01:02:03.5", None]
ZONED_DATES = ["2024-03-01T12:30Z", "2024-03-01 12:30:00+02:00", "2024-03-05T01:02:03.5-0330", None]


@pytest.mark.parametrize("dates", [TEXT_DATES, ZONED_DATES], ids=["naive", "zoned"])
def test_dates_as_text(dates: list[str | None], database: Database) -> None:
    frame = pd.DataFrame({"when": dates * 5, "n": np.arange(20.0)})
    seg = wc.segment(frame, 3, measure_quality=False)
    database.execute("SET TIME ZONE 'America/New_York'")
    check(seg, frame, database)


def scored_in_view(seg: wc.Segmentation, frame: pd.DataFrame, columns: str, database: Database) -> Any:
    """Return the result of the query on a view of the frame with these columns, which may be cast."""
    with database.holding(frame, "stored"):
        database.execute(f"CREATE VIEW customers AS SELECT {columns} FROM stored")
        try:
            return database.score(seg.to_sql("customers", database.dialect, [ROW]))
        finally:
            database.execute("DROP VIEW customers")


@pytest.mark.parametrize("kind", ["date", "timestamp", "timestamptz"])
def test_dates_of_any_type(kind: str, database: Database) -> None:
    frame = pd.DataFrame({"when": pd.date_range("2024-01-01", periods=30), "n": np.arange(30.0) % 7})
    seg = wc.segment(frame, 3, measure_quality=False)
    database.execute("SET TIME ZONE 'UTC'")
    found = scored_in_view(seg, frame, f'"{ROW}", "n", CAST("when" AS {kind}) AS "when"', database)
    assert found["cluster"].tolist() == seg.assign(frame).tolist()


def test_durations_and_times_of_day(database: Database) -> None:
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(
        {
            "lasted": pd.to_timedelta(rng.integers(0, 90_000, 60), "s"),
            "at": [dt.time(int(hour), 15) for hour in rng.integers(0, 24, 60)],
        }
    )
    seg = wc.segment(frame, 3, measure_quality=False)
    found = scored_in_view(seg, frame, f'"{ROW}", "lasted", CAST("at" AS time) AS "at"', database)
    assert found["cluster"].tolist() == seg.assign(frame).tolist()


ENCODERS = [
    OneHotEncoder(handle_unknown="ignore"),
    OneHotEncoder(drop="first", handle_unknown="ignore"),
    OneHotEncoder(drop="if_binary"),
    OneHotEncoder(min_frequency=30, handle_unknown="infrequent_if_exist"),
    OneHotEncoder(max_categories=2, handle_unknown="infrequent_if_exist", sparse_output=False),
    OrdinalEncoder(handle_unknown="use_encoded_value", unknown_value=-1, encoded_missing_value=-3),
    OrdinalEncoder(min_frequency=30, encoded_missing_value=-2),
]


@pytest.mark.parametrize("encoder", ENCODERS, ids=lambda each: str(each).replace("\n", ""))
def test_encoders(encoder: Any, database: Database) -> None:
    frame = customers().assign(age=lambda f: f["age"].fillna(0.0))
    columns = make_column_transformer(
        (encoder, ["select", "member", "cluster"]), (MinMaxScaler(), ["age"]), sparse_threshold=0.0
    )
    check(fitted(columns, KMeans(3, n_init=1, random_state=0), frame=frame), frame, database)


def test_a_target_encoder(database: Database) -> None:
    frame = customers()[["select", "age"]].assign(age=lambda f: f["age"].fillna(0.0))
    columns = make_column_transformer((TargetEncoder(), ["select"]), (MinMaxScaler(), ["age"]))
    columns.fit(frame, frame["age"])
    last = KMeans(3, n_init=1, random_state=0).fit(columns.transform(frame))
    model = make_pipeline(columns, last)
    check(wc.Segmentation.of(model, frame, measure_quality=False), frame, database)


@pytest.mark.parametrize(
    "imputer",
    [
        SimpleImputer(strategy="median", add_indicator=True),
        SimpleImputer(strategy="constant", fill_value=-3.0),
        make_union(SimpleImputer(), MissingIndicator(features="all")),
    ],
    ids=["indicator", "constant", "all"],
)
def test_missing_numbers(imputer: Any, database: Database) -> None:
    frame = numbers()
    frame.loc[::7, "a"] = np.nan
    frame.loc[3::11, "c"] = np.nan
    check(
        fitted(imputer, StandardScaler(), KMeans(3, n_init=1, random_state=0), frame=frame), frame, database
    )


def test_a_number_that_means_missing(database: Database) -> None:
    frame = numbers().round(2)
    frame.loc[::7, "a"] = -1.0
    imputer = SimpleImputer(missing_values=-1.0)
    check(fitted(imputer, KMeans(3, n_init=1, random_state=0), frame=frame), frame, database)


def test_nan_is_missing(database: Database) -> None:
    frame = customers()
    seg = wc.segment(frame[["age", "cluster"]], 3, measure_quality=False)
    with database.holding(frame[["age", "cluster"]], "customers"):
        database.execute('UPDATE customers SET "age" = \'NaN\' WHERE "age" IS NULL')
        found = database.score(seg.to_sql("customers", database.dialect))
    assert found["cluster_"].tolist() == seg.assign(frame).tolist()


def test_rows_that_assign_refuses_have_no_cluster(database: Database) -> None:
    frame = numbers()
    scaled = fitted(StandardScaler(), KMeans(3, n_init=1, random_state=0), frame=frame)
    table = wc.segment(frame, 3, measure_quality=False)
    bad = frame.iloc[:5].copy()
    bad.loc[1, "a"], bad.loc[2, "b"], bad.loc[3, "c"] = None, np.inf, -np.inf
    far = frame.iloc[:3].copy()
    far.loc[1, "a"] = 2e150
    for seg, rows, refused in ((scaled, bad, [1, 2, 3]), (table, bad, [2, 3]), (table, far, [1])):
        for row in refused:
            with pytest.raises(InvalidInputError):
                seg.assign(rows.iloc[[row]], check=False)
        with database.holding(rows, "customers"):
            found = database.score(seg.to_sql("customers", database.dialect))
        kept = [row for row in range(len(rows)) if row not in refused]
        assert found["cluster"][kept].tolist() == seg.assign(rows.iloc[kept], check=False).tolist()
        for column in ("cluster", "competitor", "evidence"):
            assert found[column].isna().tolist() == [row in refused for row in range(len(rows))]


def test_unknown_categories_that_an_encoder_refuses(database: Database) -> None:
    frame = pd.DataFrame({"k": ["a", "b", "c"] * 5, "n": np.arange(15.0)})
    columns = make_column_transformer((OneHotEncoder(), ["k"]), remainder="passthrough")
    seg = fitted(columns, KMeans(2, n_init=1, random_state=0), frame=frame)
    new = pd.DataFrame({"k": ["a", "z", None], "n": [1.0, 2.0, 3.0]})
    with database.holding(new, "customers"):
        found = database.score(seg.to_sql("customers", database.dialect))
    assert found["cluster"].isna().tolist() == [False, True, True]


def test_a_negative_logarithm_is_missing(database: Database) -> None:
    frame = numbers().assign(a=lambda f: f["a"].abs() + 1.0, c=lambda f: f["c"].abs() + 1.0)
    steps = FunctionTransformer(np.log), SimpleImputer(), KMeans(3, n_init=1, random_state=0)
    seg = fitted(*steps, frame=frame)
    new = frame.iloc[:3].copy()
    new.loc[1, "a"], new.loc[2, "a"] = -2.0, 0.0
    with database.holding(new, "customers"):
        found = database.score(seg.to_sql("customers", database.dialect))
    with np.errstate(invalid="ignore"):
        assert found["cluster"][:2].tolist() == seg.assign(new.iloc[:2]).tolist()
    assert found["cluster"].isna().tolist() == [False, False, True]  # the logarithm of 0 is infinite


HOSTILE = [
    "select",
    "whycluster_t",  # the alias of the table
    "whycluster_row",
    "whycluster_0",
    'a"b',
    "a'b",
    "back\\slash",
    "two\nlines",
    "$$x$$",
    "`tick`",
    "ünï😀",
    "%s",
    "{0}",
    ":name",
    "'; DROP TABLE precious; --",
    '"; DROP TABLE precious; --',
    "\\'; DROP TABLE precious; --",
    "/* */ --",
    " ",
    "${x}",
]


@pytest.mark.parametrize("text", HOSTILE, ids=repr)
def test_names_and_categories_are_never_code(text: str, database: Database) -> None:
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(
        {text: np.array([text, "other"], dtype=object)[np.arange(40) % 2], "n": rng.normal(size=40)}
    )
    seg = wc.segment(frame, 2, measure_quality=False).rename({0: text + "0", 1: text + "'"})
    database.execute("CREATE TABLE precious (x integer)")
    with database.holding(frame, text + "t"):
        found = database.score(seg.to_sql(text + "t", database.dialect))
        assert found["cluster"].tolist() == seg.assign(frame).tolist()
        assert found[text].tolist() == frame[text].tolist()
    database.execute("DROP TABLE precious")  # it still exists


def test_postgres_with_backslashes_as_escapes(postgres: Any) -> None:
    """The old setting, in which a backslash before a quote would end no text."""
    frame = pd.DataFrame({"k": ["\\", "\\' OR 1=1 --", "b"] * 9, "n": np.arange(27.0)})
    seg = wc.segment(frame, 2, measure_quality=False)
    postgres.execute("SET standard_conforming_strings = off; SET escape_string_warning = off")
    check(seg, frame, postgres)
    postgres.execute("SET standard_conforming_strings = on")


@pytest.mark.slow
def test_many_columns_and_clusters(duck: Database) -> None:
    """DuckDB limits the depth of expressions to 1,000."""
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(rng.normal(size=(30, 1100)), columns=[f"c{i}" for i in range(1100)])
    network = wc.neuralize(frame.iloc[:3].reset_index(drop=True))
    check(wc.Segmentation.of(network, frame.iloc[3:], measure_quality=False), frame.iloc[3:], duck)


@pytest.mark.slow
@pytest.mark.parametrize("load", [load_iris, load_wine, load_breast_cancer, load_diabetes, load_linnerud])
def test_tables_of_scikit_learn(load: Any, database: Database) -> None:
    frame = load(as_frame=True).data.rename(columns=lambda name: name.replace("(", "[").replace(")", "]"))
    seg = wc.segment(frame, 3, measure_quality=False)
    check(seg, frame, database)


def test_numbers_are_written_in_full(database: Database) -> None:
    dialect = find_dialect(database.dialect)
    for value in [0.1, 1 / 3, 5e-324, 1.7976931348623157e308, -2.5e-17, 123456789.12345678]:
        _, rows = database.execute(f"SELECT {dialect.number(value)} AS x")
        assert rows == [(value,)]


def test_columns_of_an_array(database: Database) -> None:
    frame = numbers()
    model = KMeans(2, n_init=1, random_state=0).fit(frame.to_numpy())
    seg = wc.Segmentation.of(model, frame.to_numpy(), measure_quality=False)
    frame.columns = pd.Index(map(str, seg.feature_names))
    with database.holding(frame, "customers"):
        found = database.score(seg.to_sql("customers", database.dialect))
    assert found["cluster"].tolist() == seg.assign(frame.to_numpy()).tolist()


@wc.elementwise
def cube(X: Any) -> Any:
    return X**3


SUPPORTED = """\
  - StandardScaler, MinMaxScaler, MaxAbsScaler, RobustScaler, Normalizer, PowerTransformer
  - SimpleImputer, MissingIndicator
  - OneHotEncoder, OrdinalEncoder, TargetEncoder, KBinsDiscretizer, Binarizer
  - FunctionTransformer of np.log, np.log1p, np.log2, np.log10, np.sqrt, np.cbrt, np.square, np.abs, \
np.exp, np.expm1 or np.negative
  - the steps of wc.tabular.pipeline
  - PCA, IncrementalPCA, TruncatedSVD, FastICA, GaussianRandomProjection, SparseRandomProjection
  - VarianceThreshold, SelectKBest and the other selectors
  - ColumnTransformer, FeatureUnion, Pipeline, 'passthrough', 'drop'"""


@pytest.mark.parametrize(
    ("step", "message"),
    [
        (
            QuantileTransformer(n_quantiles=10),
            "to_sql: step 'quantiletransformer' (QuantileTransformer) is not supported, because it cannot be "
            f"written in SQL. Supported steps are:\n{SUPPORTED}",
        ),
        (
            FunctionTransformer(cube),
            "to_sql: step 'functiontransformer' (FunctionTransformer) is not supported, because the function "
            f"cube cannot be written in SQL. Supported steps are:\n{SUPPORTED}",
        ),
    ],
)
def test_steps_that_cannot_be_written_are_refused_by_name(step: Any, message: str) -> None:
    seg = fitted(step, KMeans(2, n_init=1, random_state=0), frame=numbers())
    with pytest.raises(UnsupportedModelError) as caught:
        seg.to_sql()
    assert str(caught.value) == message


def test_codes_of_categories_are_refused() -> None:
    kmodes = pytest.importorskip("kmodes.kmodes")
    frame = customers()[["select"]].fillna("?").assign(other=lambda f: f["select"].str[:1])
    model = kmodes.KModes(2, n_init=1, random_state=0).fit(frame)
    seg = wc.Segmentation.of(model, frame, measure_quality=False)
    with pytest.raises(UnsupportedModelError) as caught:
        seg.to_sql()
    assert str(caught.value) == (
        "to_sql: the model compares codes of categories (fewest mismatches of categories, as in k-modes), "
        "which cannot be written in SQL. Use wc.tabular.pipeline, which encodes categories as numbers."
    )


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"dialect": "oracle"}, "dialect must be one of 'duckdb', 'postgres', 'spark'; got 'oracle'."),
        (
            {"table": ""},
            "a name in SQL must not be empty or contain the character NUL; got ''. Rename it.",
        ),
        (
            {},
            "columns must have different names in duckdb; 'a' and 'A' are the same. Rename one of them, and "
            "fit the model again.",
        ),
        ({"dialect": "postgres", "columns": "id"}, "columns must be a list of names; got 'id'."),
    ],
)
def test_bad_parameters(options: dict[str, Any], message: str) -> None:
    seg = wc.segment(numbers().rename(columns={"b": "A"}), 2, measure_quality=False)
    with pytest.raises(InvalidInputError) as caught:
        seg.to_sql(**options)
    assert str(caught.value) == f"to_sql: {message}"


def test_too_many_columns_for_postgres() -> None:
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(rng.normal(size=(20, 1601)), columns=[f"c{i}" for i in range(1601)])
    network = wc.neuralize(frame.iloc[:2].reset_index(drop=True))
    seg = wc.Segmentation.of(network, frame, measure_quality=False)
    with pytest.raises(InvalidInputError) as caught:
        seg.to_sql(dialect="postgres")
    assert str(caught.value) == (
        "to_sql: a query must have at most 1,600 columns in postgres; this one needs 1,603, since the steps "
        "of the model create many features. Use fewer columns or categories, for example with a lower "
        "max_categories, or another dialect."
    )
