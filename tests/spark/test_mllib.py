"""MLlib models: rows are in the clusters that MLlib predicts, and are explained by the user's columns."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_allclose

import whycluster as wc
from tests.spark.pipelines import NUMBERS, PIPELINES, fitted, kmeans, numbers
from whycluster.engines import spark as engine


@pytest.fixture(scope="module")
def models() -> dict[str, Any]:
    return {}


def model_of(name: str, df: Any, models: dict[str, Any]) -> Any:
    """Return a model, fitted once."""
    if name not in models:
        models[name] = fitted(name, df)
    return models[name]


@pytest.mark.parametrize("name", PIPELINES)
def test_rows_are_assigned_as_by_mllib_and_explained_as_in_memory(
    name: str, df: Any, table: pd.DataFrame, models: dict[str, Any]
) -> None:
    model = model_of(name, df, models)
    found = engine.explain(model, model.transform(df)).toPandas().sort_values("id")
    assert len(found) == len(table)
    assert found["why_cluster"].tolist() == found["prediction"].tolist()
    network = wc.neuralize(model)
    assert set(network.feature_names or []) <= {"a", "b.c", "n", "one", "kind"}
    local = wc.explain(model, table[network.feature_names])
    assert local.cluster.tolist() == found["prediction"].tolist()
    assert found["why_competitor"].tolist() == local.competitor.tolist()
    relevance = np.array(found["why_relevance"].tolist())
    assert_allclose(relevance, local.relevance, rtol=0, atol=1e-6 * np.abs(local.relevance).max())
    assert_allclose(found["why_evidence"], local.evidence, rtol=1e-6)
    if "mixture" not in name:
        assert_allclose(relevance.sum(axis=1), local.evidence, atol=1e-5 * np.abs(local.relevance).max())


def test_a_tie_goes_to_the_first_cluster_as_in_mllib(spark: Any) -> None:
    from pyspark.ml.feature import VectorAssembler

    rows = spark.createDataFrame([(0.0,), (2.0,)], "x double")
    assembler = VectorAssembler(inputCols=["x"], outputCol="features")
    model = kmeans("features", k=2).fit(assembler.transform(rows))
    middle = assembler.transform(spark.createDataFrame([(1.0,)], "x double"))
    found = engine.explain(model, model.transform(middle), beta=1.0).first()
    assert (found["prediction"], found["why_cluster"], found["why_evidence"]) == (0, 0, 0.0)


def test_far_from_all_components_the_likeliest_one_is_assigned(
    spark: Any, df: Any, models: dict[str, Any]
) -> None:
    """MLlib adds 2e-16 to each density, so far away all are equal, and it predicts the first component."""
    model = model_of("mixture", df, models)
    mixture = model.stages[-1]
    means = np.array([row.mean.toArray() for row in mixture.gaussiansDF.collect()])
    far = spark.createDataFrame([(1e6, 1e6, 10**6, 1.0)], "a double, `b.c` double, n int, one double")
    found = engine.explain(model, model.transform(far), beta=1.0).first()
    assert found["prediction"] == 0
    assert found["why_cluster"] == wc.neuralize(model).assign(far.toPandas())[0]
    assert len(means) == 3


def test_a_mixture_without_variance_in_some_directions_is_split_by_its_own_density(
    df: Any, models: dict[str, Any]
) -> None:
    """The quadratic form of MLlib's density has a pseudo-inverse; constant features are left out."""
    model = model_of("mixture of categories", df, models)
    mixture = model.stages[-1]
    components = [(row.mean.toArray(), row.cov.toArray()) for row in mixture.gaussiansDF.collect()]
    z = np.array([row.together.toArray() for row in model.transform(df).select("together").collect()])
    d = z.shape[1]

    def split(x: Any, k: int) -> Any:
        mean, S = components[k]
        tolerance = np.finfo(float).eps * d
        Q = np.linalg.pinv(S, rcond=tolerance, hermitian=True)
        parts, pulled = np.zeros(d), Q @ (x - mean)
        for i in np.flatnonzero(np.diag(S) > tolerance * np.linalg.eigvalsh(S).max()):
            alone = (x - mean)[i] ** 2 / S[i, i] + np.log(S[i, i])
            last = pulled[i] ** 2 / Q[i, i] - np.log(Q[i, i])
            parts[i] = (alone + last) / 4
        return parts

    exp = wc.neuralize(mixture).explain(z, rule="contrast")
    both = zip(z, exp.competitor, exp.cluster, strict=True)
    expected = np.array([split(x, k) - split(x, c) for x, k, c in both])
    assert min(np.linalg.matrix_rank(S, hermitian=True) for _, S in components) < d
    assert_allclose(exp.relevance, expected, rtol=0, atol=1e-6 * np.abs(expected).max())


def test_features_of_vectors_are_named_by_their_metadata(df: Any, table: pd.DataFrame) -> None:
    rows = numbers().transform(df)
    model = kmeans("features").fit(rows)
    found = engine.explain(model, model.transform(rows), layout="columns", id_columns=["id", "prediction"])
    assert found.columns[2:] == [
        "why_cluster",
        "why_evidence",
        "why_competitor",
        *(f"why_{name}" for name in NUMBERS),
    ]
    found = found.toPandas().sort_values("id")
    assert found["why_cluster"].tolist() == found["prediction"].tolist()
    local = wc.explain(np.array(model.clusterCenters()), table[NUMBERS].to_numpy(float))
    assert_allclose(found.iloc[:, 5:], local.relevance, atol=1e-6 * np.abs(local.relevance).max())


def test_an_assembler_of_a_vector_column(df: Any) -> None:
    from pyspark.ml import Pipeline
    from pyspark.ml.feature import VectorAssembler

    rows = numbers().transform(df)
    together = VectorAssembler(inputCols=["features", "id"], outputCol="together")
    model = Pipeline(stages=[together, kmeans("together")]).fit(rows)
    found = engine.explain(model, model.transform(rows), top=1).toPandas()
    assert found["why_cluster"].tolist() == found["prediction"].tolist()
    assert set(found["why_feature_1"]) <= {*NUMBERS, "id"}
    message = "compute 2 features from its columns, but its model takes 5"
    with pytest.raises(wc.InvalidInputError, match=message):
        wc.neuralize(model)


def test_unknown_categories(df: Any, spark: Any, models: dict[str, Any]) -> None:
    rows = [(1, 0.5, "red"), (2, 0.5, "mauve"), (1, 0.5, None)]
    few = spark.createDataFrame(rows, "n int, a double, kind string").coalesce(1)
    kept = model_of("categories, mixed", df, models)
    found = engine.explain(kept, kept.transform(few), background=df).toPandas()
    assert found["why_cluster"].tolist() == found["prediction"].tolist()

    strict = model_of("categories", df, models)
    found = engine.explain(strict, few, beta=1.0, invalid="skip").toPandas()
    assert found["why_cluster"].notna().tolist() == [True, False, False]
    from pyspark.errors import PythonException

    with pytest.raises(PythonException, match=r"row 1, feature 'kind' holds mauve, which becomes nan"):
        engine.explain(strict, few, beta=1.0).collect()


def test_models_that_are_not_fitted_or_not_supported(df: Any) -> None:
    from pyspark.ml import Pipeline, PipelineModel
    from pyspark.ml.clustering import BisectingKMeans
    from pyspark.ml.feature import Normalizer, SQLTransformer

    with pytest.raises(
        wc.NotFittedError, match=r"^neuralize: the KMeans must be fitted first\. Call its fit"
    ):
        engine.explain(kmeans("features"), df)
    rows = numbers().transform(df)
    model = kmeans("features").fit(rows)
    with pytest.raises(
        wc.UnsupportedModelError, match=r"^neuralize: the last stage of the pipeline must be a KMeansModel"
    ):
        wc.neuralize(PipelineModel([model, numbers()]))
    unit = Normalizer(inputCol="features", outputCol="unit")
    behind = Pipeline(stages=[unit, kmeans("unit")]).fit(rows)
    message = (
        f"neuralize: stage {unit.uid!r} (Normalizer) is not supported, because whycluster does "
        "not know how this stage computes its columns. Supported stages are VectorAssembler, "
        "StandardScaler, MinMaxScaler, PCA, StringIndexer, OneHotEncoder. The clusters can still be "
        "explained in terms of any columns, through a surrogate fitted to some rows: "
        "wc.Surrogate().fit(X, labels)."
    )
    with pytest.raises(wc.UnsupportedModelError, match=f"^{re.escape(message)}$"):
        wc.neuralize(behind)
    anything = SQLTransformer(statement="SELECT a * 2 AS a FROM __THIS__")
    with pytest.raises(
        wc.UnsupportedModelError,
        match=r"\(SQLTransformer\) is not supported, because whycluster does not know how this stage",
    ):
        wc.neuralize(PipelineModel([anything, numbers(), model]))
    cosine = BisectingKMeans(k=2, featuresCol="features", distanceMeasure="cosine", maxIter=1).fit(rows)
    with pytest.raises(wc.UnsupportedModelError, match="must use the distance measure 'euclidean'"):
        wc.neuralize(cosine)


def test_metadata_name_the_features_and_declare_the_length_of_vectors(df: Any) -> None:
    rows = numbers().transform(df)
    model = kmeans("features").fit(rows)
    explained = engine.explain(model, rows, beta=1.0)
    assert explained.schema["why_relevance"].metadata == {"features": NUMBERS}
    from pyspark.ml.feature import VectorAssembler

    short = VectorAssembler(inputCols=["a", "n"], outputCol="features").transform(df)
    message = (
        "spark.explain: column 'features' must hold vectors of length 4, as the model expects; its "
        "metadata declares length 2."
    )
    with pytest.raises(wc.InvalidInputError, match=f"^{re.escape(message)}$"):
        engine.explain(model, short)


def test_numeric_categories_in_a_table_in_memory(spark: Any) -> None:
    from pyspark.ml import Pipeline
    from pyspark.ml.feature import OneHotEncoder, StandardScaler, StringIndexer, VectorAssembler

    rows = [(5.0 * (i % 3) + i / 90, None if i % 30 == 0 else i % 3, 1e10 * (i % 2)) for i in range(90)]
    df = spark.createDataFrame(rows, "x double, code int, large double").coalesce(1)
    stages = [
        StringIndexer(inputCols=["code", "large"], outputCols=["i", "j"], handleInvalid="keep"),
        OneHotEncoder(inputCols=["i", "j"], outputCols=["h", "g"], dropLast=False),
        VectorAssembler(inputCols=["x", "h", "g"], outputCol="f"),
        StandardScaler(inputCol="f", outputCol="s"),
        kmeans("s", k=3),
    ]
    model = Pipeline(stages=stages).fit(df)
    local = df.toPandas()  # a column of integers with missing values becomes float
    assert local["code"].dtype == np.float64
    predicted = model.transform(df).toPandas()["prediction"].tolist()
    assert wc.explain(model, local).cluster.tolist() == predicted
    found = engine.explain(model, df, background=local).toPandas()
    relevance = wc.explain(model, local).relevance
    assert_allclose(found["why_relevance"].tolist(), relevance, atol=1e-6 * np.abs(relevance).max())


def test_stages_that_the_model_does_not_use(df: Any) -> None:
    from pyspark.ml import Pipeline, PipelineModel
    from pyspark.ml.feature import SQLTransformer, VectorAssembler, VectorSizeHint

    assembler = VectorAssembler(inputCols=["a", "one"], outputCol="f")
    other = kmeans("f", k=2).setPredictionCol("p0")
    hint = VectorSizeHint(inputCol="f", size=2)
    model = Pipeline(stages=[assembler, hint, other, kmeans("f", k=3)]).fit(df)
    found = engine.explain(model, model.transform(df), beta=1.0).toPandas()
    assert found["why_cluster"].tolist() == found["prediction"].tolist()
    sql = SQLTransformer(statement="select *, a + 1 as f from __THIS__")
    with pytest.raises(wc.UnsupportedModelError, match="SQLTransformer"):
        wc.neuralize(PipelineModel([sql, *model.stages]))
    with pytest.raises(
        wc.UnsupportedModelError, match=r"the last stage of the pipeline must be .* got an empty pipeline"
    ):
        wc.neuralize(PipelineModel([]))


def test_column_names_are_resolved_as_by_mllib(spark: Any) -> None:
    from pyspark.ml import Pipeline
    from pyspark.ml.feature import VectorAssembler

    df = spark.sql("select 3.0D * (id % 2) as age, named_struct('u', 1.0D * id) as s from range(40)")
    model = Pipeline(stages=[VectorAssembler(inputCols=["AGE"], outputCol="f"), kmeans("f", k=2)]).fit(df)
    found = engine.explain(model, model.transform(df), beta=1.0).toPandas()
    assert found["why_cluster"].tolist() == found["prediction"].tolist()
    model = Pipeline(stages=[VectorAssembler(inputCols=["s.u"], outputCol="f"), kmeans("f", k=2)]).fit(df)
    with pytest.raises(wc.InvalidInputError, match=r"'s\.u' is a field of a struct\. Select it under a name"):
        engine.explain(model, df)


def test_stages_ignore_the_case_of_column_names_as_spark_does(df: Any) -> None:
    from pyspark.ml import Pipeline
    from pyspark.ml.feature import StandardScaler, VectorAssembler

    rows = numbers().transform(df)
    stages = [
        VectorAssembler(inputCols=["ID", "FEATURES", "id"], outputCol="t"),
        StandardScaler(inputCol="T", outputCol="s"),
        kmeans("s"),
    ]
    model = Pipeline(stages=stages).fit(rows)
    explained = engine.explain(model, model.transform(rows), beta=1.0)
    assert explained.schema["why_relevance"].metadata == {"features": ["ID", *NUMBERS]}
    found = explained.toPandas()
    assert found["why_cluster"].tolist() == found["prediction"].tolist()


@pytest.mark.parametrize(("sensitive", "column"), [("false", "t"), ("true", "t"), ("true", "T")])
def test_an_output_column_whose_name_differs_only_in_case(
    sensitive: str, column: str, spark: Any, df: Any
) -> None:
    """By default the second column replaces the first; if Spark is case-sensitive, both exist."""
    from pyspark.ml import Pipeline
    from pyspark.ml.feature import StandardScaler, VectorAssembler

    stages = [
        VectorAssembler(inputCols=["a", "`b.c`"], outputCol="t"),
        StandardScaler(inputCol="t", outputCol="T", withMean=True),
        VectorAssembler(inputCols=["one", column], outputCol="f"),
        kmeans("f"),
    ]
    spark.conf.set("spark.sql.caseSensitive", sensitive)
    try:
        model = Pipeline(stages=stages).fit(df)
        rows = model.transform(df).select("a", "`b.c`", "one", "prediction")
        found = engine.explain(model, rows, beta=1.0).toPandas()
    finally:
        spark.conf.unset("spark.sql.caseSensitive")
    assert found["why_cluster"].tolist() == found["prediction"].tolist()


def test_a_metric_is_an_error_as_in_neuralize(df: Any, models: dict[str, Any]) -> None:
    pipeline = model_of("k-means", df, models)
    rows = numbers().transform(df)
    for model in (pipeline, pipeline.stages[-1]):
        reason = (
            "metric applies only to centroids, or to a fitted model with cluster_centers_ and predict; got "
            f"{type(model).__name__}."
        )
        with pytest.raises(wc.InvalidInputError, match=f"^neuralize: {re.escape(reason)}$"):
            wc.neuralize(model, metric="manhattan")
        with pytest.raises(wc.InvalidInputError, match=rf"^spark\.explain: {re.escape(reason)}$"):
            engine.explain(model, rows, metric="manhattan")
