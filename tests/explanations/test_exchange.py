"""Explanations and summaries as JSON, checked against the published schema, and as Arrow tables."""

from __future__ import annotations

import datetime as dt
import json
import math
from decimal import Decimal
from importlib.resources import files
from typing import Any

import numpy as np
import pytest

jsonschema = pytest.importorskip("jsonschema")
pd = pytest.importorskip("pandas")

from sklearn.cluster import KMeans
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.pipeline import make_pipeline

import whycluster as wc
from whycluster.core.errors import InvalidInputError
from whycluster.explanations.exchange.json_values import to_plain

SCHEMA = json.loads((files("whycluster") / "explanations" / "exchange" / "schema-1.json").read_text())
TEXTS = ["red apple pie", "green apple tree", "fast red car", "slow car race", "apple tart", "car wheel"] * 2


def mixed() -> Any:
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(
        {
            "age": np.r_[rng.normal(20, 2, 20), rng.normal(60, 2, 20)],
            "city": np.array(["Rome", "Øslo"])[np.arange(40) // 20],
            "member": np.arange(40) % 3 == 0,
            "since": pd.Timestamp("2024-01-01") + pd.to_timedelta(np.arange(40), "D"),
        },
        index=[f"C{i}" for i in range(40)],
    )
    frame.loc["C3", "age"] = np.nan
    frame.loc["C4", "since"] = pd.NaT
    return frame


@pytest.fixture(scope="module")
def exp() -> Any:
    frame = mixed()
    return wc.explain(wc.tabular.pipeline(frame, 2), frame)


@pytest.fixture(scope="module")
def text() -> Any:
    model = make_pipeline(TfidfVectorizer(), KMeans(2, n_init=3, random_state=0)).fit(TEXTS)
    return wc.explain(model, TEXTS)


def valid(text: str) -> Any:
    """Return the data in JSON that follows the schema."""
    found = json.loads(text, parse_constant=_refuse)
    jsonschema.Draft202012Validator(SCHEMA).validate(found)
    return found


def _refuse(word: str) -> None:
    raise AssertionError(f"{word} is not JSON")


def test_the_schema_is_a_schema() -> None:
    jsonschema.Draft202012Validator.check_schema(SCHEMA)


def test_all_numbers_of_an_explanation(exp: Any) -> None:
    found = valid(exp.to_json())
    assert found == exp.to_dict()
    assert (found["n_rows"], found["clusters"], found["beta"]) == (40, [0, 1], exp.beta)
    for i, row in enumerate(found["rows"]):
        assert (row["row"], row["position"], row["cluster"]) == (f"C{i}", i, exp.cluster[i])
        assert (row["evidence"], row["competitor"]) == (exp.evidence[i], exp.competitor[i])
        relevance = {part["feature"]: part["relevance"] for part in row["features"]}
        assert [relevance[name] for name in exp.feature_names] == exp.relevance[i].tolist()
        total = sum(relevance.values()) + row["other_relevance"] + row["residual"]
        assert total == pytest.approx(row["evidence"], rel=1e-12)


def test_values_keep_their_kind(exp: Any) -> None:
    rows = valid(exp.to_json(rows=[0, 3, 4]))["rows"]
    first, third, fourth = ({part["feature"]: part["value"] for part in row["features"]} for row in rows)
    assert first == {"age": exp.data["age"].iloc[0], "city": "Rome", "member": True, "since": first["since"]}
    assert first["since"].startswith("2024-01-01")
    assert third["age"] is None
    assert fourth["since"] is None


def test_some_rows_and_features(exp: Any) -> None:
    found = valid(exp.to_json(rows=slice(5, 7), n_strongest=1))
    assert [row["row"] for row in found["rows"]] == ["C5", "C6"]
    assert found["n_rows"] == 40
    for row, relevance in zip(found["rows"], exp.relevance[5:7], strict=True):
        (part,) = row["features"]
        assert part["relevance"] == relevance[np.abs(relevance).argmax()]
        assert part["relevance"] + row["other_relevance"] == pytest.approx(relevance.sum())
    assert valid(exp[8].to_json())["rows"][0]["position"] == 8


def test_labels_and_infinite_beta() -> None:
    X = np.arange(12.0).reshape(6, 2)
    named = wc.explain(KMeans(2, n_init=1, random_state=0).fit(X), X, beta=math.inf).rename(
        {0: "it's", 1: "b"}
    )
    found = valid(named.to_json())
    assert found["beta"] == "Infinity"
    assert found["clusters"] == ["it's", "b"]


def test_documents(text: Any) -> None:
    found = valid(text.to_json())
    assert found["noun"] == "document"
    for i, row in enumerate(found["rows"]):
        total = sum(word["relevance"] for word in row["words"])
        assert total + row["residual"] == pytest.approx(row["evidence"])
        assert {word["word"] for word in row["words"]} <= set(TEXTS[i].split())
    short = valid(text.to_json(rows=[1], n_strongest=2))["rows"]
    assert [word["word"] for word in short[0]["words"]] == text.top(2).word[1].tolist()


def test_summaries(exp: Any, text: Any) -> None:
    summary = exp.summary()
    found = valid(summary.to_json())["clusters"]
    assert [each["size"] for each in found] == summary.size.tolist()
    assert [each["headline"] for each in found] == summary.headlines()
    for group, each in enumerate(found):
        relevance = {part["feature"]: part["relevance"] for part in each["features"]}
        assert [relevance[name] for name in exp.feature_names] == summary.relevance[group].tolist()
    words = valid(text.summary().to_json(n_strongest=2))["clusters"]
    assert all(len(each["words"]) == 2 for each in words)
    assert len(valid(text.summary().to_json())["clusters"][0]["words"]) > 2


@pytest.mark.parametrize(
    ("value", "plain"),
    [
        (np.float32(0.5), 0.5),
        (np.int64(3), 3),
        (np.bool_(True), True),
        (math.nan, None),
        (None, None),
        (math.inf, "Infinity"),
        (-math.inf, "-Infinity"),
        (Decimal("1.5"), 1.5),
        (dt.date(2024, 3, 1), "2024-03-01"),
        (dt.datetime(2024, 3, 1, 12, 30), "2024-03-01T12:30:00"),
        (np.datetime64("2024-03-01T12:30"), "2024-03-01T12:30:00"),
        (np.datetime64("NaT"), None),
        (dt.time(1, 2), "01:02:00"),
        (dt.timedelta(minutes=2), 120.0),
        (np.timedelta64(2, "m"), 120.0),
        ("text", "text"),
        (("a", 1), "('a', 1)"),
    ],
    ids=repr,
)
def test_plain_values(value: Any, plain: Any) -> None:
    found = to_plain(value)
    assert found == plain
    assert type(found) is type(plain)


def test_large_explanations_say_how_to_limit() -> None:
    X = np.zeros((100_001, 10))
    X[::2] = 1.0
    exp = wc.explain(np.array([np.zeros(10), np.ones(10)]), X)
    with pytest.raises(InvalidInputError) as caught:
        exp.to_json()
    assert str(caught.value) == (
        "to_dict: an explanation must have at most 1,000,000 relevance scores to become JSON; this one has "
        "1,000,010. Choose rows, such as rows=range(1000), or rows=slice(None) for all of them, or the "
        "strongest features of each row, such as n_strongest=5. For large tables, use to_frame() or the "
        "Arrow interface, as in pyarrow.table(exp)."
    )
    assert len(exp.to_dict(rows=slice(2))["rows"]) == 2
    with pytest.raises(InvalidInputError) as caught:
        exp.to_dict(n_strongest=0)
    assert str(caught.value) == "to_dict: n_strongest must be None or an integer of at least 1; got 0."


def test_arrow_libraries_read_explanations_and_summaries(exp: Any, text: Any) -> None:
    pa, pl = pytest.importorskip("pyarrow"), pytest.importorskip("polars")
    duckdb = pytest.importorskip("duckdb")
    for each in (exp, exp.summary(), exp.top(2), text, text.summary(), text.top(2)):
        expected = each.to_frame(backend="pyarrow").to_pydict()
        assert pa.table(each).to_pydict() == expected
        assert pl.DataFrame(each).to_dict(as_series=False) == expected
        found = duckdb.sql("SELECT * FROM each")
        assert (
            dict(zip(found.columns, map(list, zip(*found.fetchall(), strict=True)), strict=True)) == expected
        )
