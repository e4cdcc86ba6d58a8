"""Segmentations in Spark SQL: Spark assigns every row as the model does."""

from __future__ import annotations

import datetime as dt
from typing import Any

import numpy as np
import pandas as pd
import pytest
from sklearn.cluster import BisectingKMeans, KMeans
from sklearn.mixture import GaussianMixture
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer, PowerTransformer, StandardScaler

import whycluster as wc
from whycluster.core.errors import InvalidInputError

ROW = "row number"
HOSTILE = [
    "it's",
    'a"b',
    "back\\slash",
    "\\' OR 1=1 --",
    "two\nlines",
    "`tick`",
    "ünï😀",
    "$$x$$",
    "{0}",
    "%s",
]


def mixed(n: int = 120) -> pd.DataFrame:
    rng, group = np.random.default_rng(0), np.arange(n) % 3
    names = np.array(HOSTILE, dtype=object)
    frame: pd.DataFrame = pd.DataFrame(
        {
            "amount in \\ 'quotes'": rng.normal(10.0 * group, 2.0),
            "kind": names[np.where(rng.random(n) < 0.6, group, rng.integers(0, len(names), n))],
            "member": rng.random(n) < 0.3 + 0.2 * group,
            "day": [
                dt.date(2024, 1, 1) + dt.timedelta(days=int(d)) for d in 30 * group + rng.integers(0, 9, n)
            ],
        }
    )
    frame.loc[::7, "amount in \\ 'quotes'"] = np.nan
    return frame


def check(spark: Any, seg: wc.Segmentation, frame: pd.DataFrame, table: str = "customers") -> Any:
    rows = [
        (i, *(None if isinstance(cell, float) and np.isnan(cell) else cell for cell in row))
        for i, row in enumerate(frame.astype(object).itertuples(index=False, name=None))
    ]
    spark.createDataFrame(rows, [ROW, *frame.columns]).createOrReplaceTempView("whycluster_test")
    quoted = "`" + table.replace("`", "``") + "`"
    spark.sql(f"CREATE OR REPLACE TEMP VIEW {quoted} AS SELECT * FROM whycluster_test")
    found = spark.sql(seg.to_sql(table, "spark")).toPandas().sort_values(ROW)
    exp = seg.explain(frame)
    assert found["cluster"].tolist() == exp.cluster.tolist()
    np.testing.assert_allclose(found["evidence"], exp.evidence, rtol=1e-9)
    assert list(found.columns) == [ROW, *frame.columns, "cluster", "competitor", "evidence"]
    return found


def test_tabular(spark: Any) -> None:
    frame = mixed()
    seg = wc.segment(frame, 3, {0: "it's", 1: "\\", 2: "${x}"}, measure_quality=False)
    check(spark, seg, frame)


@pytest.mark.parametrize("setting", ["true", "false"])
def test_names_and_categories_are_never_code(spark: Any, setting: str) -> None:
    """Also with the setting that changes how Spark reads backslashes."""
    spark.conf.set("spark.sql.parser.escapedStringLiterals", setting)
    values = np.array([*HOSTILE, "${spark.app.name}"], dtype=object)[np.arange(44) % 11]
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"k": values, **{text: rng.normal(size=44) for text in HOSTILE}})
    try:
        check(spark, wc.segment(frame, 2, measure_quality=False), frame, "a`b' \\")
    finally:
        spark.conf.unset("spark.sql.parser.escapedStringLiterals")


@pytest.mark.parametrize(
    "model",
    [
        make_pipeline(StandardScaler(), KMeans(3, n_init=1, random_state=0)),
        make_pipeline(PowerTransformer(), BisectingKMeans(4, random_state=0)),
        make_pipeline(FunctionTransformer(np.log1p), GaussianMixture(2, random_state=0)),
    ],
    ids=["kmeans", "bisecting", "mixture"],
)
def test_models(spark: Any, model: Any) -> None:
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"a": rng.normal(np.arange(90) % 3 * 9.0 + 20.0), "b": rng.exponential(size=90)})
    check(spark, wc.Segmentation.of(model.fit(frame), frame, measure_quality=False), frame)


def test_dates_as_text_with_zones(spark: Any) -> None:
    when = ["2024-03-01T12:30Z", "2024-03-01 12:30:00+02:00", "2024-03-09T01:02:03.5-0330", None]
    frame = pd.DataFrame({"when": when * 6, "n": np.arange(24.0)})
    spark.conf.set("spark.sql.session.timeZone", "America/New_York")
    try:
        check(spark, wc.segment(frame, 3, measure_quality=False), frame)
    finally:
        spark.conf.unset("spark.sql.session.timeZone")


def test_rules(spark: Any) -> None:
    frame = mixed()
    rules = wc.explain(wc.tabular.pipeline(frame, 3, random_state=0), frame).rules(2)
    rows = [
        (i, *(None if isinstance(cell, float) and np.isnan(cell) else cell for cell in row))
        for i, row in enumerate(frame.astype(object).itertuples(index=False, name=None))
    ]
    spark.createDataFrame(rows, [ROW, *frame.columns]).createOrReplaceTempView("rules_test")
    found = spark.sql(rules.to_sql("rules_test", dialect="spark")).collect()
    by_row = {row[ROW]: row["cluster"] for row in found}
    assert [by_row[i] for i in range(len(frame))] == rules.apply(frame).tolist()
    for each in rules:
        assert spark.sql(rules.to_sql("rules_test", each.cluster, dialect="spark")).count() == each.n_rows


def test_rows_that_assign_refuses_have_no_cluster(spark: Any) -> None:
    frame = pd.DataFrame({"a": np.arange(20.0), "b": np.arange(20.0) % 3})
    seg = wc.Segmentation.of(KMeans(2, n_init=1, random_state=0).fit(frame), frame, measure_quality=False)
    rows = [(1.0, 1.0), (None, 1.0), (float("nan"), 1.0), (float("inf"), 1.0)]
    spark.createDataFrame(rows, ["a", "b"]).createOrReplaceTempView("customers")
    found = spark.sql(seg.to_sql("customers", "spark", [])).collect()
    assert [row["cluster"] is None for row in found] == [False, True, True, True]


def test_a_name_that_spark_would_replace_is_refused() -> None:
    frame = pd.DataFrame({"${x}": np.arange(20.0), "b": np.arange(20.0) % 3})
    seg = wc.segment(frame, 2, measure_quality=False)
    with pytest.raises(InvalidInputError) as caught:
        seg.to_sql("customers", "spark")
    assert str(caught.value) == (
        "to_sql: a name in Spark must not contain ${, since Spark replaces it with one of its settings; got "
        "'${x}'. Rename it."
    )
