"""Explain models over Spark Connect, in a separate process, because classic Spark cannot run in the same one.

The results are printed as JSON, and checked by `test_connect.py`.
"""

from __future__ import annotations

import json
import os
import sys
import warnings
from typing import Any

os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"

import numpy as np
from sklearn.cluster import KMeans

import whycluster as wc
from tests.spark.conftest import SETTINGS, make_table
from whycluster.engines import spark as engine


def main() -> None:
    """Print the results as one line of JSON."""
    submitted = " ".join(f"--conf {name}={value}" for name, value in SETTINGS.items())
    os.environ["PYSPARK_SUBMIT_ARGS"] = f"{submitted} pyspark-shell"
    from pyspark.sql import SparkSession

    spark: Any = SparkSession.builder.remote("local[2]").getOrCreate()
    try:
        print(json.dumps(found(spark)))
    finally:
        spark.stop()


def found(spark: Any) -> dict[str, Any]:
    """Return the results to check."""
    from pyspark.sql import Observation

    from tests.spark.pipelines import fitted

    table = make_table()
    df = spark.createDataFrame(table)
    result: dict[str, Any] = {"connect": type(df).__module__}
    for name in ("bisecting", "mixture"):
        model = fitted(name, df)
        rows = engine.explain(model, model.transform(df)).toPandas().sort_values("id")
        network = wc.neuralize(model)
        local = network.explain(table[network.feature_names])
        relevance = np.array(rows["why_relevance"].tolist())
        error = np.abs(relevance - local.relevance).max() / np.abs(local.relevance).max()
        result[name] = [bool((rows["why_cluster"] == rows["prediction"]).all()), len(rows), float(error)]
    kmeans = KMeans(3, n_init=1, random_state=0).fit(table[["a", "n"]])
    counted = Observation("why")
    with_gaps = df.replace(to_replace=float(table["a"][5]), value=float("nan"), subset=["a"])
    explained = engine.explain(kmeans, with_gaps, invalid="skip", observation=counted)
    result["metadata"] = explained.schema["why_relevance"].metadata
    rows = explained.toPandas()
    result["skipped"] = [rows["id"][rows["why_cluster"].isna()].tolist(), counted.get]
    try:
        engine.explain(kmeans, with_gaps)
    except Exception as error:
        result["error"] = str(error)
    result["background"] = error_with_vectors_for_arrays(df, table[["a", "n"]].to_numpy())
    return result


def error_with_vectors_for_arrays(df: Any, X: Any) -> float:
    """Return the relative error of relevance if df has arrays and the background has vectors."""
    from pyspark.ml.feature import VectorAssembler

    few = df.where("id < 9").orderBy("id").selectExpr("array(a, double(n)) AS x")
    background = VectorAssembler(inputCols=["a", "n"], outputCol="x").transform(df)
    rows = engine.explain(X[:3], few, features_col="x", background=background).toPandas()
    local = wc.explain(X[:3], X[:9], background=X).relevance
    return float(np.abs(np.array(rows["why_relevance"].tolist()) - local).max() / np.abs(local).max())


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    main()
