"""Spark DataFrames explained on the workers: results equal those in memory, and no row is lost."""

from __future__ import annotations

import os
import re
import signal
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_allclose
from sklearn.cluster import KMeans
from sklearn.compose import make_column_transformer
from sklearn.decomposition import PCA
from sklearn.impute import SimpleImputer
from sklearn.mixture import GaussianMixture
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer, OneHotEncoder, StandardScaler

import whycluster as wc
from tests.queries import FOR_ALL_ROWS, INVALID
from tests.spark.pipelines import NUMBERS
from whycluster.engines import spark as engine

ADDED = ["why_cluster", "why_evidence", "why_competitor", "why_relevance"]
KNOWN: dict[str, Any] = {"beta": 1.0, "rule": "joint"}  # needs no pass over the rows to measure them


@pytest.fixture(scope="module")
def model(table: pd.DataFrame) -> Any:
    return make_pipeline(StandardScaler(), KMeans(4, n_init=1, random_state=0)).fit(table[NUMBERS])


def same(found: pd.DataFrame, local: wc.Explanation) -> None:
    """Check that the results of Spark, in any order of rows, equal those in memory."""
    found = found.sort_values("id")
    relevance = np.array(found["why_relevance"].tolist())
    assert found["why_cluster"].tolist() == local.cluster.tolist()
    assert found["why_competitor"].tolist() == local.competitor.tolist()
    assert_allclose(relevance, local.relevance, rtol=0, atol=1e-6 * np.abs(local.relevance).max())
    assert_allclose(found["why_evidence"], local.evidence, rtol=1e-6)


def same_timestamps(found: Any, local: wc.Explanation) -> None:
    """Check the results if timestamps are categories; before NumPy 2.2, they are an error.

    Those of Spark count microseconds, and those of older pandas count nanoseconds. scikit-learn finds a value
    among categories by its hash, which depends on the unit before NumPy 2.2.
    """
    from pyspark.errors import PythonException

    if hash(np.datetime64("2020-01-01", "us")) == hash(np.datetime64("2020-01-01", "ns")):
        same(found().toPandas(), local)
        return
    with pytest.raises(PythonException, match=r"could not transform its input: Found unknown categories"):
        found().toPandas()


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"beta": 0.5},
        {"beta": 0.5, "rule": "joint"},
        {"rule": "min-take-most"},
        {"target": 1},
        {"against": 0, "target": 2},
        {"rule": "sequential"},
    ],
    ids=str,
)
def test_every_query_gives_the_same_results_as_in_memory(
    options: dict[str, Any], model: Any, df: Any, table: pd.DataFrame
) -> None:
    found = engine.explain(model, df, **options)
    assert found.columns == [*df.columns, *ADDED]
    same(found.toPandas(), wc.explain(model, table[NUMBERS], **options))


def test_categories_and_a_mixture_of_scikit_learn(df: Any, table: pd.DataFrame) -> None:
    columns = ["kind", "a", "n"]
    encoder = make_column_transformer((OneHotEncoder(sparse_output=False), ["kind"]), remainder="passthrough")
    mixture = GaussianMixture(3, covariance_type="diag", random_state=0)
    pipeline = make_pipeline(encoder, mixture).fit(table[columns])
    found = engine.explain(pipeline, df, threshold=0.5, id_columns=["id"])
    assert found.columns == ["id", *ADDED]
    same(found.toPandas(), wc.explain(pipeline, table[columns], threshold=0.5))
    strongest = engine.explain(pipeline, df, **KNOWN, top=2).toPandas()
    values = strongest.loc[strongest["why_feature_1"] == "kind", "why_value_1"]
    assert set(values) <= set(table["kind"])


def test_text_labels_and_one_column_per_feature(df: Any, table: pd.DataFrame) -> None:
    X = table[["a", "n"]].to_numpy()
    network = wc.TableNetwork(wc.neuralize(X[:3]).energy, labels=["x", "y", "z"])
    found = engine.explain(network, df, columns=["a", "n"], layout="columns", id_columns="id", prefix="r_")
    assert dict(found.dtypes) == {
        "id": "bigint",
        "r_cluster": "string",
        "r_evidence": "float",
        "r_competitor": "string",
        "r_a": "float",
        "r_n": "float",
    }
    rows, local = found.toPandas().sort_values("id"), network.explain(X)
    assert rows["r_cluster"].tolist() == local.cluster.tolist()
    assert_allclose(rows[["r_a", "r_n"]], local.relevance, atol=1e-6 * np.abs(local.relevance).max())


def test_arrays_and_other_types_of_numbers(spark: Any) -> None:
    centroids = [[0.0, 0.0], [3.0, 3.0]]
    rows = spark.sql(
        "select array(1f, 1f) as x, cast(1 as decimal(9, 2)) as d, true as t union all "
        "select array(2f, 3f), cast(2 as decimal(9, 2)), false"
    )
    local = wc.explain(centroids, [[1.0, 1.0], [2.0, 3.0]], **KNOWN)
    found = engine.explain(centroids, rows, features_col="x", **KNOWN).toPandas()
    assert_allclose(found["why_relevance"].tolist(), local.relevance, rtol=1e-6)
    local = wc.explain(centroids, [[1.0, 1.0], [2.0, 0.0]], **KNOWN)
    found = engine.explain(centroids, rows, columns=["d", "t"], **KNOWN).toPandas()
    assert_allclose(found["why_relevance"].tolist(), local.relevance, rtol=1e-6)


def test_values_of_the_strongest_features_keep_all_their_digits(spark: Any) -> None:
    df = spark.createDataFrame([(2.0**24 + 1,), (3.5e38,), (0.1,)], ["a"])
    network = wc.neuralize(np.array([[0.1], [2.0**24 + 1]]))
    found = engine.explain(network, df.filter("a < 1e9"), columns=["a"], top=1, **KNOWN).collect()
    assert sorted(row.why_value_1 for row in found) == [0.1, 2.0**24 + 1]
    wide = wc.neuralize(np.array([[0.0, 0.0], [0.0, 1.0]]))
    rows = df.filter("a > 1e9").selectExpr("a", "0.25D AS b")
    assert engine.explain(wide, rows, columns=["a", "b"], top=2, **KNOWN).collect()[0].why_value_2 == 3.5e38


def test_beta_is_measured_on_a_background(model: Any, df: Any, table: pd.DataFrame) -> None:
    few = df.where("id < 9")
    for background in (df, table[NUMBERS]):
        found = engine.explain(model, few, background=background).toPandas()
        same(found, wc.explain(model, table[NUMBERS].iloc[:9], background=table[NUMBERS]))


def test_a_background_is_matched_by_name_if_the_model_has_no_names(df: Any, table: pd.DataFrame) -> None:
    centers = table[NUMBERS].to_numpy()[:3]
    turned = table[NUMBERS[::-1]]
    found = engine.explain(centers, df, columns=NUMBERS, background=turned).toPandas()
    same(found, wc.explain(centers, table[NUMBERS]))
    turned = turned.assign(**{NUMBERS[0]: np.nan})
    with pytest.raises(wc.InvalidInputError, match=r"^spark\.explain: background must be finite; row 0"):
        engine.explain(centers, df, columns=NUMBERS, background=turned, invalid="skip")


VECTORS = "f"
DOUBLES = "array(a, double(n))"
FLOATS = "array(float(a), float(n))"
DECIMALS = "array(cast(a as decimal(38, 18)), cast(n as decimal(38, 18)))"


@pytest.mark.parametrize(
    ("own", "other"),
    [(VECTORS, DOUBLES), (DOUBLES, VECTORS), (FLOATS, DECIMALS), (DECIMALS, FLOATS), (VECTORS, DECIMALS)],
)
def test_a_background_can_have_vectors_of_another_type(own: str, other: str, df: Any, table: Any) -> None:
    from pyspark.ml.feature import VectorAssembler

    X = table[["a", "n"]].to_numpy()
    rows = VectorAssembler(inputCols=["a", "n"], outputCol="f").transform(df)
    few, background = rows.where("id < 9").selectExpr("id", f"{own} AS x"), rows.selectExpr(f"{other} AS x")
    found = engine.explain(X[:3], few, features_col="x", background=background).toPandas()
    same(found, wc.explain(X[:3], X[:9], background=X))


DECIMAL = "cast(a as decimal(38, 18)) as a"


@pytest.mark.parametrize(
    ("own", "other"), [(["a", "t"], [DECIMAL, "u as t"]), ([DECIMAL, "u as t"], ["a", "t"])]
)
def test_a_background_can_have_numbers_and_timestamps_of_another_type(
    own: list[str], other: list[str], spark: Any
) -> None:
    rows = spark.sql(
        "select cast(id as int) as id, 5.0D * (id % 3) + id / 90 as a, "
        "timestamp'2020-01-01 00:00:00' + make_dt_interval(int(id % 3)) as t, cast(t as timestamp_ntz) as u "
        "from range(90)"
    )
    local = rows.toPandas()[["a", "t"]]
    encoder = make_column_transformer((StandardScaler(), ["a"]), (OneHotEncoder(), ["t"]))
    model = make_pipeline(encoder, KMeans(3, n_init=1, random_state=0)).fit(local)
    few = rows.where("id < 9").selectExpr("id", *own)
    same_timestamps(
        lambda: engine.explain(model, few, background=rows.selectExpr(*other)),
        wc.explain(model, local.iloc[:9], background=local),
    )


@pytest.fixture(scope="module")
def encoded(table: pd.DataFrame) -> Any:
    encoder = make_column_transformer((OneHotEncoder(), ["kind"]), remainder="passthrough")
    return make_pipeline(encoder, KMeans(3, n_init=1, random_state=0)).fit(table[["kind", "a", "n"]])


@pytest.mark.parametrize(
    "kind", ["array(kind)", "map('u', kind)", "named_struct('u', kind)", "interval '3' month"]
)
def test_column_types_that_no_model_takes(kind: str, encoded: Any, df: Any) -> None:
    rows = df.selectExpr("a", "n", f"{kind} AS kind")
    message = (
        "spark.explain: column 'kind'{} must hold numbers, text, dates or timestamps, one in each row; it "
        f"has type {rows.schema['kind'].dataType.simpleString()}."
    )
    with pytest.raises(wc.InvalidInputError, match=f"^{re.escape(message.format(''))}$"):
        engine.explain(encoded, rows, id_columns=[])
    with pytest.raises(wc.InvalidInputError, match=f"^{re.escape(message.format(' of background'))}$"):
        engine.explain(encoded, df, background=rows)


def test_columns_of_a_background_must_be_numeric_and_unique(encoded: Any, df: Any) -> None:
    """Even if the model also takes categories, and would convert text to numbers."""
    with pytest.raises(wc.InvalidInputError, match="'a' of background must hold numbers, one in each row"):
        engine.explain(encoded, df, background=df.selectExpr("kind", "string(a) AS a", "n"))
    message = (
        "spark.explain: background must have unique column names; 'n' occurs more than once. Rename one of "
        "the columns."
    )
    with pytest.raises(wc.InvalidInputError, match=f"^{re.escape(message)}$"):
        engine.explain(encoded, df, background=df.select("kind", "a", "n", "n"))


def test_errors_in_a_background_name_it(df: Any) -> None:
    from pyspark.errors import PythonException

    with pytest.raises(
        PythonException, match=r"\(Rows are counted from row 0 of partition \d of background\.\)"
    ):
        engine.explain([[0.0], [1.0]], df, columns=["a"], background=with_gaps(df))


def test_means_of_clusters_are_added_up_on_a_worker(df: Any, table: pd.DataFrame) -> None:
    model = make_pipeline(PCA(2), KMeans(3, n_init=1, random_state=0)).fit(table[NUMBERS])
    same(engine.explain(model, df.repartition(7)).orderBy("id").toPandas(), wc.explain(model, table[NUMBERS]))


def test_a_background_or_a_model_that_does_not_fit(model: Any, df: Any, table: pd.DataFrame) -> None:
    with pytest.raises(
        wc.InvalidInputError, match=r"background must have the columns that the model takes; 'one' is"
    ):
        engine.explain(model, df, background=df.drop("one"))
    with pytest.raises(
        wc.InvalidInputError, match=r"column 'a' of background must hold numbers, one in each row; it has"
    ):
        engine.explain(model, df, background=df.withColumn("a", df["kind"]))
    with pytest.raises(
        wc.UnsupportedModelError,
        match=r"^spark\.explain: model must be able to assign new rows; labels",
    ):
        engine.explain(table["n"], df)


def test_timestamps_are_in_the_time_zone_of_the_session(spark: Any) -> None:
    rows = spark.sql(
        "select cast(id as int) as id, 5.0D * (id % 3) + id / 90 as a, "
        "timestamp'2020-01-01 00:00:00' + make_dt_interval(int(id % 3)) as t from range(90)"
    )
    local = rows.toPandas()[["a", "t"]]
    encoder = make_column_transformer((StandardScaler(), ["a"]), (OneHotEncoder(), ["t"]))
    model = make_pipeline(encoder, KMeans(3, n_init=1, random_state=0)).fit(local)
    same_timestamps(lambda: engine.explain(model, rows), wc.explain(model, local))
    kept = engine.explain(model, rows, beta=1.0).schema["t"]
    assert kept.dataType.simpleString() == "timestamp"


@pytest.mark.parametrize("paris", [None, 0, 5, 30])
def test_a_row_is_skipped_only_for_its_own_flaws(paris: int | None, spark: Any) -> None:
    from pyspark.errors import PythonException

    group = np.arange(60) % 3
    frame = pd.DataFrame(
        {"a": 5.0 * group + np.arange(60) / 60, "city": np.array(["Rome", "Oslo", "Lima"])[group]}
    )
    encoder = make_column_transformer((SimpleImputer(), ["a"]), (OneHotEncoder(), ["city"]))
    model = make_pipeline(encoder, KMeans(3, n_init=1, random_state=0)).fit(frame)
    rows = [
        (i, None if i < 10 else float(frame["a"][i]), "Paris" if i == paris else str(frame["city"][i]))
        for i in range(60)
    ]
    df = spark.createDataFrame(rows, "id int, a double, city string").coalesce(1)
    found = engine.explain(model, df, invalid="skip", **KNOWN)
    if paris is None:
        assert found.where("why_cluster is null").count() == 0
    else:  # whichever row it is
        with pytest.raises(PythonException, match="Found unknown categories"):
            found.collect()


def test_names_that_differ_only_in_case(spark: Any) -> None:
    rows = spark.createDataFrame([(0.0, 1.0), (5.0, 2.0)], "Cluster double, x double")
    model = KMeans(2, n_init=1).fit(rows.toPandas())
    with pytest.raises(wc.InvalidInputError) as caught:
        engine.explain(model, rows, layout="columns", id_columns=[])
    assert str(caught.value) == (
        "spark.explain: column names must differ in more than case; the result would contain "
        "'why_cluster' and 'why_Cluster'. Rename a column, or pass layout=\"array\"."
    )


def test_kept_columns_that_arrow_does_not_support(spark: Any) -> None:
    rows = spark.sql("select 1.0D as x, interval '3' month as m union all select 2.0D, interval '1' month")
    for kept, kind in [("m", "interval month"), ("map('u', array(m))", "map<string,array<interval month>>")]:
        message = re.escape(
            f"'m' has type {kind}. List the columns to keep, without this one, in id_columns=[...]."
        )
        with pytest.raises(wc.InvalidInputError, match=message):
            engine.explain([[0.0], [3.0]], rows.selectExpr("x", f"{kept} AS m"), columns=["x"])
    assert engine.explain([[0.0], [3.0]], rows, columns=["x"], id_columns=[]).count() == 2


@pytest.mark.parametrize(
    ("invalid", "not_skipped"),
    [("error", ""), ("skip", 'invalid="skip" applies only to missing and infinite values. ')],
)
def test_results_too_large_for_single_precision(invalid: str, not_skipped: str, spark: Any) -> None:
    from pyspark.errors import PythonException

    rows = [(0.0, 1.0), (float("nan") if invalid == "skip" else 0.0, 1.0), (2.0, 1.0), (-3.0, 1e39)]
    df = spark.createDataFrame(rows, "x double, y double").coalesce(1)
    message = (
        "spark.explain: results must fit into float32, whose largest number is 3.4e+38; in row 3, feature "
        "'y' "
        f"has relevance 2e+39, and the evidence is 2e+39. {not_skipped}Drop such rows, or rescale the "
        "data and fit the model again. (Rows are counted from row 0 of partition 0 of df.)"
    )
    with pytest.raises(PythonException, match=re.escape(message)):
        engine.explain(np.eye(2), df, columns=["x", "y"], **KNOWN, invalid=invalid).collect()


def test_columns_can_have_the_names_that_we_send_columns_under(df: Any, table: pd.DataFrame) -> None:
    X = table[["a", "n"]].to_numpy()
    taken = ["WHYCLUSTER_TAKEN_0", "whycluster_taken_0_", "kept_0", "kept_1"]
    rows = df.selectExpr("id", *(f"n AS {name}" for name in taken), "array(a, double(n)) AS x")
    found = engine.explain(X[:3], rows, features_col="x").toPandas()
    same(found, wc.explain(X[:3], X))
    assert (found[taken].to_numpy() == found["x"].str[1].to_numpy()[:, None]).all()


def test_a_surrogate_of_low_fidelity_warns_once(df: Any, table: pd.DataFrame) -> None:
    X = table[["a", "n"]].to_numpy()
    labels = np.random.default_rng(0).integers(2, size=len(X))
    surrogate = wc.Surrogate().fit(X, labels)
    with pytest.warns(wc.FidelityWarning) as warned:
        engine.explain(surrogate, df, columns=["a", "n"], **KNOWN)
    assert len(warned) == 1
    message = str(warned[0].message)
    assert message.startswith(
        "spark.explain: the surrogate, which is explained instead of the labels, predicts "
    )
    assert message.endswith(" with care; see wc.neuralize(model).fidelity for details.")


def with_gaps(df: Any) -> Any:
    """Return the rows with a null, a NaN and an infinity in rows 0, 100 and 200."""
    from pyspark.sql import functions as F  # noqa: N812  # Spark's convention

    hole = F.when(F.col("id") == 100, F.lit(float("nan"))).when(F.col("id") == 200, F.lit(float("inf")))
    return df.withColumn("a", F.when(F.col("id") != 0, F.coalesce(hole, F.col("a"))))


def test_rows_with_missing_values_are_an_error(model: Any, df: Any) -> None:
    from pyspark.errors import PythonException

    message = (
        r"InvalidInputError: spark\.explain: df must be finite; row \d+, feature 'a' holds (a missing value "
        r"\(NaN\)|an infinite value)\. Drop or fill such rows first\. Or pass invalid=.skip. to get nulls "
        r"for such rows\. \(Rows are counted from row 0 of partition [01] of df\.\)"
    )
    with pytest.raises(PythonException, match=message):
        engine.explain(model, with_gaps(df), **KNOWN).collect()
    with pytest.raises(PythonException, match=message):
        engine.explain(model, with_gaps(df))


def test_skipped_rows_with_missing_values_are_null_and_counted(
    model: Any, df: Any, table: pd.DataFrame
) -> None:
    from pyspark.sql import Observation

    counted = Observation("why")
    explained = engine.explain(model, with_gaps(df), invalid="skip", observation=counted)
    found = explained.toPandas().sort_values("id")
    assert counted.get == {"rows": len(table), "invalid": 3}
    off = found[ADDED].isna()
    assert found["id"][off.all(axis=1)].tolist() == [0, 100, 200]
    assert off.any(axis=1).sum() == 3
    there = np.delete(np.arange(len(table)), [0, 100, 200])
    same(found.iloc[there], wc.explain(model, table[NUMBERS].iloc[there]))


def test_vectors_that_are_missing_or_of_another_length(spark: Any) -> None:
    from pyspark.errors import PythonException
    from pyspark.ml.functions import array_to_vector
    from pyspark.sql import functions as F  # noqa: N812  # Spark's convention

    centroids = [[0.0, 0.0], [3.0, 3.0]]
    rows = spark.sql("select array(1d, 1d) as x union all select null")
    vector = F.when(F.col("x").isNotNull(), array_to_vector("x"))
    for one in (rows, rows.select(vector.alias("x"))):
        found = engine.explain(centroids, one, features_col="x", invalid="skip").toPandas()
        assert found["why_cluster"].notna().tolist() == [True, False]
        with pytest.raises(PythonException, match=r"row \d, feature 'x_0' holds a missing value \(NaN\)"):
            engine.explain(centroids, one, features_col="x", **KNOWN).collect()
    message = (
        "spark.explain: column 'x' must hold vectors of length 3, as the model expects; row 0 has one of "
        "length 2. (Rows are counted from row 0 of partition 0 of df.)"
    )
    with pytest.raises(PythonException, match=re.escape(message)):
        engine.explain(np.eye(3), rows.coalesce(1), features_col="x", **KNOWN, invalid="skip").collect()


def test_a_frame_without_rows(model: Any, df: Any) -> None:
    none = df.where("id < 0")
    assert engine.explain(model, none, **KNOWN).collect() == []
    with pytest.raises(wc.InvalidInputError, match="there must be at least one row that can be explained"):
        engine.explain(model, none)


def test_no_row_is_lost_with_a_worker(df: Any, table: pd.DataFrame, tmp_path: Path) -> None:
    """The first worker that explains rows is killed once; Spark repeats its task."""
    driver, marker = os.getpid(), str(tmp_path / "killed")

    def lose(X: Any) -> Any:
        if os.getpid() != driver and not os.path.exists(marker):
            with open(marker, "x"):
                os.kill(os.getpid(), signal.SIGKILL)
        return X

    step = FunctionTransformer(wc.elementwise(lose))
    fragile = make_pipeline(step, KMeans(3, n_init=1, random_state=0)).fit(table[["a", "n"]].to_numpy())
    found = engine.explain(fragile, df, columns=["a", "n"], **KNOWN).toPandas()
    assert os.path.exists(marker)
    same(found, wc.explain(fragile, table[["a", "n"]].to_numpy(), **KNOWN))


def test_a_stream_needs_a_background(spark: Any) -> None:
    stream = spark.readStream.format("rate").load()
    joint: dict[str, Any] = {"columns": ["value"], "rule": "joint"}
    assert engine.explain([[0.0], [1.0]], stream, beta=1.0, **joint).isStreaming
    known: dict[str, Any] = {"columns": ["value"], "background": [[0.0], [1.0]]}
    assert engine.explain([[0.0], [1.0]], stream, **known).isStreaming
    message = (
        "spark.explain: a stream requires a background to measure, because the stream itself never ends; "
        "got none. Pass beta=... or background=..., such as a sample of earlier rows."
    )
    with pytest.raises(wc.InvalidInputError, match=f"^{re.escape(message)}$"):
        engine.explain([[0.0], [1.0]], stream, **joint)
    message = message.replace("beta=... or ", "")
    unknown: tuple[dict[str, Any], ...] = ({}, {"beta": 1.0})
    for query in unknown:  # the path rule also needs the cluster sizes
        with pytest.raises(wc.InvalidInputError, match=f"^{re.escape(message)}$"):
            engine.explain([[0.0], [1.0]], stream, columns=["value"], **query)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            {},
            "columns must name the 2 columns that the model takes, in order, because it was fitted without "
            "column names; columns is None. Alternatively, pass one column of vectors as features_col.",
        ),
        (
            {"columns": ["a"]},
            "columns must name 2 distinct columns, the number that the model was fitted on; got 1, 1 of them "
            "distinct.",
        ),
        (
            {"columns": ["a", "z"]},
            "df must have the columns that the model takes; 'z' is missing. The columns of df are 'id', "
            "'a', 'b.c', 'n', 'one', 'kind'.",
        ),
        (
            {"columns": ["a", "kind"]},
            "column 'kind' must hold numbers, one in each row; it has type string.",
        ),
        (
            {"features_col": "a"},
            "column 'a' must hold vectors or arrays of 2 numbers; it has type double.",
        ),
        (
            {"features_col": "a", "columns": ["a", "n"]},
            "either columns or features_col must name the columns of the model; got both. Leave one out.",
        ),
        (
            {"columns": ["a", "n"], "layout": "wide"},
            "layout must be one of 'columns', 'array'; got 'wide'.",
        ),
        (
            {"columns": ["a", "n"], "top": 0},
            "top must be None or an integer of at least 1; got 0.",
        ),
        ({"columns": ["a", "n"], "prefix": None}, "prefix must be a string; got None."),
        ({"columns": ["a", "n"], "invalid": "drop"}, "invalid must be one of 'error', 'skip'; got 'drop'."),
        (
            {"columns": ["a", "n"], "id_columns": ["z"]},
            "id_columns must be columns of df; df has no column 'z'.",
        ),
        (
            {"columns": ["a", "n"], "id_columns": ["id", "a", "id"]},
            "id_columns must be distinct; 'id' occurs more than once. List it only once.",
        ),
        (
            {"columns": ["a", "n"], "prefix": "", "layout": "columns", **KNOWN},
            "df must not have a column named 'a', because the result adds one. Drop it, or pass a prefix "
            "other than ''.",
        ),
    ],
)
def test_invalid_arguments_raise_before_any_row_is_read(options: Any, message: str, df: Any) -> None:
    with pytest.raises(wc.InvalidInputError, match=f"^{re.escape('spark.explain: ' + message)}$"):
        engine.explain([[0.0, 0.0], [1.0, 1.0]], df, **options)


@pytest.mark.parametrize(("options", "message"), INVALID + FOR_ALL_ROWS, ids=str)
def test_an_invalid_query_has_the_same_message_as_elsewhere(
    options: dict[str, Any], message: str, df: Any, table: pd.DataFrame
) -> None:
    points = table[["a", "n"]].to_numpy()[:3]
    network = wc.TableNetwork(wc.neuralize(points).energy, labels=["a", "b", "c"])
    with pytest.raises(wc.InvalidInputError) as caught:
        engine.explain(network, df, columns=["a", "n"], **options)
    assert str(caught.value) == f"spark.explain: {message}"


def test_frames_of_another_library_and_duplicate_names(df: Any, table: pd.DataFrame) -> None:
    with pytest.raises(
        wc.InvalidInputError,
        match=r"^spark\.explain: df must be a Spark DataFrame; got a pandas\.DataFrame\.$",
    ):
        engine.explain([[0.0], [1.0]], table)
    twice = df.withColumnRenamed("n", "A")
    with pytest.raises(
        wc.InvalidInputError, match=r"^spark\.explain: df must have unique column names; 'a' occurs"
    ):
        engine.explain([[0.0], [1.0]], twice, columns=["id"])


def test_the_code_in_the_documentation_runs(spark: Any, tmp_path: Path) -> None:  # noqa: ARG001  # the code uses it
    page = (Path(__file__).parents[2] / "docs" / "spark.md").read_text()
    blocks = re.findall(r"^```python\n(.*?)```", page, re.DOTALL | re.MULTILINE)
    assert len(blocks) == 3
    scope: dict[str, Any] = {}
    for block in blocks:
        block = block.replace('"explained"', f'"{tmp_path}/explained"')
        exec(compile(block, "docs/spark.md", "exec"), scope)
    assert scope["counted"].get == {"rows": 300, "invalid": 0}
    assert scope["explained"].columns[4:] == ADDED


def test_spark_reads_a_folder_that_explain_dataset_wrote(
    spark: Any, table: pd.DataFrame, tmp_path: Path
) -> None:
    """Its manifest and its other files begin with an underscore, so Spark ignores them."""
    (tmp_path / "in").mkdir()
    table[["id", "a", "b.c"]].to_parquet(tmp_path / "in" / "x.parquet")
    centers = np.array([[0.0, 1000.0], [4.0, 1400.0]])
    options: dict[str, Any] = {"columns": ["a", "b.c"], "id_columns": ["id"], "output": "both"}
    found = wc.explain_dataset(centers, tmp_path / "in", tmp_path / "out", **options)
    read = spark.read.parquet(str(tmp_path / "out")).toPandas().sort_values("id")
    whole = pd.read_parquet(found.parts[0])
    pd.testing.assert_frame_equal(read.reset_index(drop=True), whole)
