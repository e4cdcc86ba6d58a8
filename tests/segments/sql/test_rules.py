"""Rules in SQL: each database gives every row the cluster that `Rules.apply` gives it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import whycluster as wc
from tests.explanations.reasons.test_rules import shop
from tests.optional import optional

if TYPE_CHECKING:
    import pandas as pd
else:
    pd = optional("pandas")
    optional("duckdb")


@pytest.mark.slow  # starts a PostgreSQL server
@pytest.mark.parametrize("max_conditions", [2, 4])
def test_columns_of_all_kinds(database: Any, max_conditions: int) -> None:
    frame = shop().assign(waited=lambda rows: pd.to_timedelta(rows["visits"] * 7, unit="h"))
    exp = wc.explain(wc.tabular.pipeline(frame, 4, random_state=0), frame)
    rules = exp.rules(max_conditions)
    with database.holding(frame, "cus'to\"mers"):
        found = database.score(rules.to_sql("cus'to\"mers", dialect=database.dialect))["cluster"]
        assert found.tolist() == rules.apply(frame).tolist()
        for each in rules:
            _, rows = database.execute(rules.to_sql("cus'to\"mers", each.cluster, dialect=database.dialect))
            assert len(rows) == each.n_rows


@pytest.mark.slow
@pytest.mark.parametrize("values", [["'; --", "\\", "b\nc"], [True, False, None], [1.5, -2.0, np.nan]])
def test_names_and_values_are_never_code(database: Any, values: list[Any]) -> None:
    frame = pd.DataFrame({'x"; --\n': pd.Series(values * 20), "Cluster": np.tile([0, 5, 10], 20)})
    if values[0] is True:
        frame = frame.astype({'x"; --\n': "boolean"})
    exp = wc.explain(np.tile(["it's", "-- two", '"'], 20), frame)
    rules = exp.rules(1)
    with database.holding(frame, "t"):
        found = database.score(rules.to_sql("t", dialect=database.dialect))
    assert found["cluster_"].tolist() == rules.apply(frame).tolist()  # "Cluster" is a column of the data


@pytest.mark.slow
def test_numbers_that_are_missing(database: Any) -> None:
    kind = np.arange(90) % 3
    x = np.where(kind == 0, np.nan, 4.0 * kind + np.random.default_rng(1).normal(size=90))
    frame = pd.DataFrame({"x": x, "y": 1.0 * kind})
    rules = wc.explain(kind, frame[["x"]]).rules()
    assert "x is missing" in {rule.text for each in rules for rule in each.rules}
    with database.holding(frame, "t"):
        database.execute("UPDATE t SET x = CAST('NaN' AS DOUBLE PRECISION) WHERE y = 0")
        found = database.score(rules.to_sql("t", dialect=database.dialect))["cluster"]
    assert found.tolist() == rules.apply(frame).tolist()
