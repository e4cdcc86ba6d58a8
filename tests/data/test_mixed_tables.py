"""Tables of numbers, categories, dates and gaps: labels explained on them as they are, and summaries."""

from __future__ import annotations

import datetime as dt
import re
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from sklearn.cluster import KMeans
from sklearn.pipeline import make_pipeline

import whycluster as wc
from tests.optional import optional
from whycluster.data.days import to_days

if TYPE_CHECKING:
    import pandas as pd
    import polars as pl
else:
    pd = optional("pandas")
    pl = optional("polars")

N_ROWS = 240


def customers() -> pd.DataFrame:
    """Region and age make the plan below; the others are noise."""
    rng = np.random.default_rng(0)
    days = pd.to_timedelta(rng.integers(0, 3000, N_ROWS), "D")
    frame: pd.DataFrame = pd.DataFrame(
        {
            "customer_id": np.arange(1000, 1000 + N_ROWS),
            "age": rng.uniform(20, 60, N_ROWS).round(),
            "region": rng.choice(["north", "south"], N_ROWS),
            "since": pd.Timestamp("2015-01-01") + days,
            "member": rng.choice([True, False], N_ROWS),
            "town": rng.choice(np.array(["Rome", "Oslo", None]), N_ROWS),
        }
    )
    frame.loc[::10, "age"] = np.nan
    return frame


def plan(frame: pd.DataFrame) -> Any:
    return np.where((frame["region"] == "north") | (frame["age"] > 50), "gold", "basic")


CONTAINERS: dict[str, Any] = {
    "pandas": lambda frame: frame,
    "polars": pl.from_pandas,
    "pyarrow": lambda frame: pl.from_pandas(frame).to_arrow(),
}


@pytest.mark.parametrize("container", CONTAINERS)
@pytest.mark.filterwarnings("ignore::whycluster.ColumnWarning")
def test_labels_are_explained_on_a_mixed_table_as_it_is(container: str) -> None:
    frame = customers()
    given = CONTAINERS[container](frame)
    exp = wc.explain(plan(frame), given)
    assert exp.fidelity is not None
    assert exp.fidelity.cross_validated > 0.95
    assert type(exp.data) is type(given)
    assert exp.feature_names == list(frame.columns)
    share = dict(zip(exp.feature_names, np.abs(exp.relevance).mean(axis=0), strict=True))
    assert share["customer_id"] == 0.0
    assert share["region"] > share["age"] > 5 * max(share["since"], share["member"], share["town"])
    told = exp.describe(0)
    assert " missing " in told  # the age of the first
    assert frame["region"][0] in told
    assert type(exp.to_frame()) is type(given)


def test_what_is_left_out_is_said() -> None:
    frame = customers()
    with pytest.warns(
        wc.ColumnWarning, match="explain: 1 column is left out. 'customer_id': like an identifier"
    ):
        wc.explain(plan(frame), frame)


def test_gaps_alone_are_filled_and_flagged() -> None:
    """That ages are missing is what makes the second cluster."""
    frame = customers()[["age"]].assign(height=np.random.default_rng(1).normal(size=N_ROWS))
    missing = frame["age"].isna().to_numpy()
    exp = wc.explain(missing.astype(int), frame)
    assert exp.fidelity is not None
    assert exp.fidelity.cross_validated == 1.0
    assert (exp.top(1).feature[missing] == "age").all()
    with pytest.raises(
        wc.InvalidInputError, match="X must be finite; row 0, feature 'x0' holds a missing value"
    ):
        wc.explain(missing.astype(int), frame.to_numpy())


def test_objects_in_an_array_are_not_guessed_at() -> None:
    frame = customers()
    with pytest.raises(wc.InvalidInputError) as error:
        wc.explain(plan(frame), frame[["age", "region"]].to_numpy(dtype=object))
    assert str(error.value) == (
        "explain: X must hold real numbers or booleans; got dtype object. "
        "If it holds numbers, pass X.astype(float)."
    )


@pytest.mark.filterwarnings("ignore::whycluster.ColumnWarning")
def test_a_model_without_prediction_is_explained_by_its_rule() -> None:
    from sklearn.cluster import DBSCAN

    frame = customers()
    pipe = make_pipeline(wc.tabular.encoder(frame), DBSCAN(eps=1.2, min_samples=5)).fit(frame)
    exp = wc.explain(pipe, frame)
    assert exp.agreement is not None
    assert exp.agreement.share == 1.0
    assert exp.feature_names == list(frame.columns)
    assert set(wc.neuralize(pipe).assign(frame[:9]).tolist()) <= set(exp.labels.tolist())


@pytest.mark.filterwarnings("ignore::whycluster.ColumnWarning")
def test_a_summary_has_means_without_gaps_and_dates_as_dates() -> None:
    frame = customers()
    pipe = wc.tabular.pipeline(frame, n_clusters=3)
    summary = wc.explain(pipe, frame).summary()
    cluster = pipe.predict(frame)
    for group, label in enumerate(summary.clusters):
        inside = frame[cluster == label]
        outside = frame[cluster != label]
        column = summary.feature_names.index("age")
        assert summary.inside[group, column] == pytest.approx(inside["age"].mean())
        assert summary.outside[group, column] == pytest.approx(outside["age"].mean())
        column = summary.feature_names.index("since")
        days = (inside["since"].mean() - pd.Timestamp(0)) / pd.Timedelta(days=1)
        assert summary.inside[group, column] == pytest.approx(days)
        assert f"{inside['since'].mean().round('D').date()}" in str(summary)
        column = summary.feature_names.index("town")
        most = inside["town"].value_counts().index[0]
        missing = inside["town"].isna().mean()
        assert summary.direction[group, column] == ("missing" if missing > 0.5 else most)


def test_mostly_missing_is_a_direction() -> None:
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"age": rng.normal(40, 10, 100), "height": rng.normal(size=100)})
    frame.loc[:29, "age"] = np.nan
    pipe = wc.tabular.pipeline(
        frame, model=KMeans(2, init=np.array([[0, 0, 1], [0, 0, 0.0]]), n_init=1, max_iter=1)
    )
    summary = wc.explain(pipe, frame).summary()
    assert summary.direction[:, 0].tolist() == ["missing", ""]
    assert (summary.inside[0, 0], summary.outside[0, 0]) == (1.0, 0.0)  # how many are missing
    assert summary.inside[1, 0] == pytest.approx(frame["age"].mean())


@pytest.mark.parametrize(
    ("value", "days"),
    [
        (dt.date(1970, 1, 3), 2.0),
        (dt.datetime(1970, 1, 1, 12), 0.5),
        (dt.datetime(1970, 1, 1, 12, tzinfo=dt.timezone(dt.timedelta(hours=12))), 0.0),
        (dt.time(6), 0.25),
        (dt.timedelta(days=3, hours=12), 3.5),
    ],
)
def test_dates_are_days(value: Any, days: float) -> None:
    assert to_days(value) == days


def test_columns_of_nothing_and_of_anything_are_summarised() -> None:
    n = 60
    frame = pd.DataFrame({"age": np.arange(n) % 40.0, "none": np.array([None] * n, dtype=object)})
    frame["lists"] = [[i] for i in range(n)]
    frame["notes"] = [f"note {i}" for i in range(n)]
    with pytest.warns(wc.ColumnWarning):
        pipe = wc.tabular.pipeline(frame, n_clusters=2)
    for given in (frame, pl.from_pandas(frame.drop(columns="lists"))):
        with pytest.warns(wc.ColumnWarning):
            exp = wc.explain(pipe.predict(frame), given)
        assert str(exp.summary()).count("age") == 2
    summary = wc.explain(pipe, frame).summary()
    assert np.isnan(summary.inside[:, 1]).all()


def test_dates_that_came_as_text_are_pointed_at() -> None:
    frame = pd.DataFrame(
        {"age": np.arange(40) % 7, "joined": [f"{1 + i % 20:02}/03/2021" for i in range(40)]}
    )
    with pytest.warns(wc.ColumnWarning) as caught:
        wc.tabular.pipeline(frame, n_clusters=2)
    assert [str(each.message) for each in caught] == [
        "pipeline: 'joined' holds dates as text that are not all written as 2024-03-01, so each distinct "
        "value is treated as a category. Convert it first, for example with pandas.to_datetime."
    ]
    assert caught[0].filename == __file__


def test_what_the_surrogate_cannot_place_is_counted() -> None:
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(rng.normal(size=(100, 2)), columns=["a", "b"])
    labels = np.where(frame["a"] > 0, "high", "low")
    labels[frame["b"].abs().nsmallest(2).index] = "odd"
    with pytest.warns(wc.FidelityWarning):
        exp = wc.explain(labels, frame)
    lost = int((exp.assigned != exp.cluster).sum())
    assert lost > 0
    rows = "1 row whose label it does not predict has" if lost == 1 else ""
    note = f"{rows or f'{lost} rows whose label it does not predict have'} no part in the evidence"
    summary = exp.summary()
    assert note in " ".join(str(summary).split())
    # Sizes and means are those of the labels, relevance is that of the rows with a correct prediction.
    for g, label in enumerate(summary.clusters.tolist()):
        own = labels == label
        assert summary.size[g] == own.sum()
        np.testing.assert_allclose(summary.inside[g], frame[own].mean(), rtol=1e-12)
        explained = own & (exp.assigned == label)
        np.testing.assert_allclose(summary.relevance[g], exp.relevance[explained].mean(axis=0), rtol=1e-12)


def test_a_category_that_is_mostly_missing_is_told_as_that() -> None:
    city = [None] * 20 + ["Rome"] * 10 + ["Oslo"] * 10
    frame = pd.DataFrame({"city": city, "age": np.repeat([20.0, 60.0], 20) + np.arange(40) % 3})
    pipe = wc.tabular.pipeline(frame, 2)
    exp = wc.explain(pipe, frame)
    first = exp.cluster[0]
    assert re.search(
        rf" city +\d+%  \+* +100%  mostly missing; 0% in cluster {1 - first}\n", str(exp.summary()) + "\n"
    )
    statement = exp.summary().statement(int(first), 0)
    assert (statement.direction, statement.is_category) == ("missing", False)
    assert statement.text == f"city is mostly missing (100%, against 0% in cluster {1 - first})"


def test_times_of_day_and_durations_are_numbers_of_days() -> None:
    """The encoder reads them as days, and so do summaries; counterfactuals try the times of other rows."""
    rng = np.random.default_rng(0)
    hours = np.concatenate([rng.integers(5, 9, 30), rng.integers(17, 21, 30)])
    frame = pd.DataFrame(
        {
            "start": [dt.time(hour) for hour in hours],
            "length": pd.to_timedelta(rng.integers(1, 5, 60), "h"),
            "age": rng.normal(size=60),
        }
    )
    exp = wc.explain(wc.tabular.pipeline(frame, n_clusters=2), frame)
    summary = exp.summary()
    group = summary.clusters.tolist().index(exp.cluster[0])
    assert summary.inside[group, 0] == pytest.approx(hours[exp.cluster == exp.cluster[0]].mean() / 24)
    assert summary.direction[group, 0] == "lower"
    lengths = frame["length"][exp.cluster == exp.cluster[0]]
    assert summary.inside[group, 1] == pytest.approx(lengths.mean() / pd.Timedelta(days=1))
    assert exp.counterfactual(0).single[0] in set(frame["start"][30:])
