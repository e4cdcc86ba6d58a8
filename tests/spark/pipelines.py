"""MLlib pipelines to explain, by name."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from pyspark.ml import Pipeline
from pyspark.ml.clustering import BisectingKMeans, GaussianMixture, KMeans
from pyspark.ml.feature import (
    PCA,
    MinMaxScaler,
    OneHotEncoder,
    StandardScaler,
    StringIndexer,
    VectorAssembler,
)

NUMBERS = ["a", "b.c", "n", "one"]


def kmeans(column: str, k: int = 4, **options: Any) -> Any:
    return KMeans(k=k, featuresCol=column, seed=1, maxIter=3, initMode="random", **options)


def numbers() -> Any:
    """Return an assembler; it takes names with dots in backticks."""
    return VectorAssembler(inputCols=["a", "`b.c`", "n", "one"], outputCol="features")


def encoded(drop_last: bool = True, invalid: str = "error") -> list[Any]:
    return [
        StringIndexer(inputCol="kind", outputCol="index", handleInvalid=invalid),
        OneHotEncoder(inputCols=["index"], outputCols=["hot"], dropLast=drop_last, handleInvalid=invalid),
        VectorAssembler(inputCols=["n", "hot", "a"], outputCol="together"),
    ]


def standard(column: str = "features", **options: Any) -> Any:
    return StandardScaler(inputCol=column, outputCol="scaled", **options)


PIPELINES: dict[str, Callable[[], list[Any]]] = {
    "k-means": lambda: [numbers(), kmeans("features")],
    "cosine": lambda: [numbers(), kmeans("features", distanceMeasure="cosine")],
    "standardized": lambda: [numbers(), standard(withMean=True), kmeans("scaled")],
    "ranged and mixed": lambda: [
        numbers(),
        MinMaxScaler(inputCol="features", outputCol="ranged", min=-1.0, max=2.0),
        PCA(k=2, inputCol="ranged", outputCol="mixed"),
        kmeans("mixed"),
    ],
    "categories": lambda: [*encoded(), standard("together", withMean=True), kmeans("scaled")],
    "categories, mixed": lambda: [
        *encoded(drop_last=False, invalid="keep"),
        standard("together"),
        PCA(k=3, inputCol="scaled", outputCol="mixed"),
        kmeans("mixed"),
    ],
    "scaled, then assembled": lambda: [
        numbers(),
        standard(),
        StringIndexer(inputCol="kind", outputCol="index"),
        VectorAssembler(inputCols=["scaled", "index"], outputCol="together"),
        kmeans("together"),
    ],
    "bisecting": lambda: [
        *encoded(),
        standard("together"),
        BisectingKMeans(k=5, featuresCol="scaled", seed=1, maxIter=5),
    ],
    "mixture": lambda: [
        numbers(),
        standard(),
        GaussianMixture(k=3, featuresCol="scaled", seed=1, maxIter=5),
    ],
    "mixture of categories": lambda: [
        *encoded(drop_last=False),
        GaussianMixture(k=3, featuresCol="together", seed=1, maxIter=5),
    ],
    "nested": lambda: [Pipeline(stages=[numbers(), standard()]), kmeans("scaled")],
}


def fitted(name: str, df: Any) -> Any:
    return Pipeline(stages=PIPELINES[name]()).fit(df)
