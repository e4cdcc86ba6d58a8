"""k-modes and k-prototypes: tables of categories, explained without encoding."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import whycluster as wc
from tests.optional import optional
from tests.reference import models

if TYPE_CHECKING:
    import pandas as pd
    import polars as pl
    import pyarrow as pa
    from kmodes.kmodes import KModes
    from kmodes.kprototypes import KPrototypes
    from kmodes.util import dissim
else:
    pd = optional("pandas")
    pl = optional("polars")
    pa = optional("pyarrow")
    KModes = optional("kmodes.kmodes:KModes")
    KPrototypes = optional("kmodes.kprototypes:KPrototypes")
    dissim = optional("kmodes.util.dissim")

CATEGORICAL = [0, 2]


@pytest.fixture(scope="module")
def people() -> pd.DataFrame:
    """Three kinds of customers, with some noise in each column."""
    rng = np.random.default_rng(0)
    kind = rng.integers(0, 3, size=300)
    odd = rng.random((300, 2)) < 0.15
    region = np.where(odd[:, 0], "north", np.array(["north", "south", "west"])[kind])
    plan = np.where(odd[:, 1], "free", np.array(["free", "pro", "team"])[kind])
    table: pd.DataFrame = pd.DataFrame(
        {
            "region": region,
            "age": rng.normal(np.array([20.0, 40.0, 60.0])[kind], 8.0),
            "plan": plan,
            "visits": rng.poisson(np.array([3, 10, 5])[kind]),
        },
        index=[f"p{i}" for i in range(300)],
    )
    return table


@pytest.fixture(scope="module")
def modes(people: pd.DataFrame) -> Any:
    return KModes(3, random_state=0, n_init=2).fit(people[["region", "plan"]])


@pytest.fixture(scope="module")
def prototypes(people: pd.DataFrame) -> Any:
    return KPrototypes(3, random_state=0, n_init=1).fit(people, categorical=CATEGORICAL)


def test_modes_are_assigned_as_predicted(people: pd.DataFrame, modes: Any) -> None:
    X = people[["region", "plan"]]
    for rows in (X, X.to_numpy(), pl.from_pandas(X), pa.Table.from_pandas(X, preserve_index=False)):
        assert (wc.neuralize(modes).assign(rows) == modes.predict(X)).all()
    ng = KModes(3, cat_dissim=dissim.ng_dissim, random_state=0, n_init=2).fit(X)
    assert (wc.neuralize(ng).assign(X) == ng.predict(X)).all()


@pytest.mark.parametrize("rule", ["path", "min-take-most"])
def test_mismatches_are_the_relevance(people: pd.DataFrame, modes: Any, rule: str) -> None:
    X = people[["region", "plan"]]
    exp = wc.explain(modes, X, rule=rule)
    codes = np.array([[modes._enc_map[i][v] for i, v in enumerate(row)] for row in X.to_numpy()], dtype=float)
    split = models.mixed(np.asarray(modes._enc_cluster_centroids), np.ones(2), 1.0)
    assert np.allclose(exp.relevance, models.explain(codes, split, 3, rule=rule))
    assert np.abs(exp.residual).max() < 1e-12
    one = wc.explain(modes, X, rule="contrast")
    assert set(np.unique(one.relevance)) <= {-1.0, 0.0, 1.0}


def test_prototypes_are_assigned_as_predicted(people: pd.DataFrame, prototypes: Any) -> None:
    expected = prototypes.predict(people, categorical=CATEGORICAL)
    assert (wc.explain(prototypes, people).cluster == expected).all()
    assert (wc.neuralize(prototypes, categorical=CATEGORICAL).assign(people.to_numpy()) == expected).all()
    assert (wc.explain(prototypes, people.to_numpy()).cluster == expected).all()
    assert (wc.explain(prototypes, pl.from_pandas(people), categorical=[0, 2]).cluster == expected).all()


@pytest.mark.parametrize("rule", ["path", "min-take-most"])
def test_prototypes_add_squares_and_mismatches(people: pd.DataFrame, prototypes: Any, rule: str) -> None:
    exp = wc.explain(prototypes, people, rule=rule)
    numbers, codes = prototypes._enc_cluster_centroids
    centers = np.empty((3, 4))
    centers[:, [1, 3]], centers[:, [0, 2]] = numbers, codes
    X = people.copy()
    for place, column in enumerate(["region", "plan"]):
        X[column] = X[column].map(prototypes._enc_map[place])
    split = models.mixed(centers, np.array([1, 0, 1, 0]), prototypes.gamma)
    expected = models.explain(X.to_numpy(dtype=float), split, 3, rule=rule)
    assert np.abs(exp.relevance - expected).max() <= 1e-9 * np.abs(expected).max()
    assert exp.feature_names == ["region", "age", "plan", "visits"]


def test_values_and_names_are_the_users(people: pd.DataFrame, prototypes: Any) -> None:
    exp = wc.explain(prototypes, people)
    top = exp.top(4)
    for row in (0, 7):
        shown = dict(zip(top.feature[row], top.value[row], strict=True))
        assert shown == people.iloc[row].to_dict()
    frame = exp.to_frame()
    assert list(frame.index) == list(people.index)
    assert list(frame.columns) == ["cluster", "competitor", "evidence", *people.columns]
    told = exp.describe(0)
    assert told.startswith("Row p0 (position 0) is in cluster")
    assert str(people["region"].iloc[0]) in told
    assert str(top.to_frame()["value_1"].iloc[0]) == str(top.value[0, 0])
    assert exp[3:5].top(2).value.shape == (2, 2)


def test_a_summary_names_the_category(people: pd.DataFrame, prototypes: Any) -> None:
    exp = wc.explain(prototypes, people)
    summary = exp.summary()
    for group, cluster in enumerate(summary.clusters):
        members = people[exp.cluster == cluster]
        others = people[exp.cluster != cluster]
        region = members["region"].mode()[0]
        assert summary.direction[group, 0] == region
        assert summary.inside[group, 0] == pytest.approx((members["region"] == region).mean())
        assert summary.outside[group, 0] == pytest.approx((others["region"] == region).mean())
        assert summary.inside[group, 1] == pytest.approx(members["age"].mean())
    assert "south" in str(summary)
    assert "pro" in set(summary.to_frame()["direction"])
    assert set(summary.to_frame("polars")["direction"]) >= {"south", "west"}


def test_shap_gets_codes_to_colour_and_names_to_show(people: pd.DataFrame, prototypes: Any) -> None:
    shown = wc.explain(prototypes, people).to_shap()
    assert shown.display_data[0].tolist() == people.iloc[0].tolist()
    assert np.isfinite(shown.data).all()


def test_an_unseen_category_matches_no_cluster(modes: Any) -> None:
    exp = wc.explain(modes, pd.DataFrame({"region": ["moon"], "plan": ["pro"]}), against=0, rule="contrast")
    assert exp.relevance[0, 0] == 0.0
    assert (exp.cluster == modes.predict(np.array([["moon", "pro"]], dtype=object))).all()


def test_number_categories() -> None:
    X = np.random.default_rng(1).integers(0, 4, size=(200, 5))
    model = KModes(4, random_state=0, n_init=1).fit(X)
    assert (wc.neuralize(model).assign(X) == model.predict(X)).all()
    assert (wc.neuralize(model).assign(X.astype(float)) == model.predict(X)).all()


def test_categorical_columns_in_the_order_of_the_fit(people: pd.DataFrame) -> None:
    """k-prototypes keeps the order that it was given."""
    model = KPrototypes(3, random_state=0, n_init=1).fit(people, categorical=[2, 0])
    expected = model.predict(people, categorical=[2, 0])
    assert (wc.explain(model, people, categorical=[2, 0]).cluster == expected).all()
    assert "feature 'region' holds none of the categories" in message(lambda: wc.explain(model, people))


def test_columns_in_another_order_are_noticed(people: pd.DataFrame, modes: Any) -> None:
    """Kmodes keeps no names, so frames are read by position."""
    assert message(lambda: wc.explain(modes, people[["plan", "region"]])) == (
        "explain: X must have its columns in the order of the model; feature 'plan' holds none of the "
        "categories that the model was fitted on, such as 'north'."
    )
    odd = people[["region", "plan"]].astype(object)
    odd.iloc[3, 0] = ["a", "list"]
    assert "feature 'region' holds other objects" in message(lambda: wc.explain(modes, odd))


def message(call: Any) -> str:
    with pytest.raises(wc.WhyClusterError) as raised:
        call()
    return str(raised.value)


def test_what_k_prototypes_cannot_say_is_asked_for(people: pd.DataFrame, prototypes: Any) -> None:
    coded = people.assign(region=people["region"].map({"north": 0, "south": 1, "west": 2}))
    assert message(lambda: wc.explain(prototypes, coded)) == (
        "explain: KPrototypes was fitted on 2 categorical columns but does not record which; X has 1 "
        "non-numeric column. Pass the same columns as in the call to fit: categorical=[...]."
    )
    assert message(lambda: wc.neuralize(prototypes)) == (
        "neuralize: categorical must contain the positions of the 2 columns (out of 4) that KPrototypes "
        "treats as categorical; got ()."
    )
    assert message(lambda: wc.explain(prototypes, coded, categorical=[0])) == (
        "explain: categorical must contain the positions of the 2 columns (out of 4) that KPrototypes "
        "treats as categorical; got [0]."
    )
    assert "got [0, 9]" in message(lambda: wc.neuralize(prototypes, categorical=[0, 9]))
    assert "got [0, 0]" in message(lambda: wc.neuralize(prototypes, categorical=[0, 0]))


def test_missing_values_and_text_in_number_columns(people: pd.DataFrame, prototypes: Any) -> None:
    holed = people.copy()
    holed.loc["p5", "region"] = None
    assert message(lambda: wc.explain(prototypes, holed)).startswith(
        "explain: X must have no missing values; row 5, feature 'region' holds "
    )
    old = people.astype({"age": object})
    old.loc["p7", "age"] = "old"
    assert message(lambda: wc.explain(prototypes, old, categorical=[0, 2])) == (
        "explain: X must hold numbers in columns that are not categorical; row 7, feature 'age' holds 'old'."
    )
    nan = people.copy()
    nan.loc["p9", "age"] = np.nan
    assert message(lambda: wc.explain(prototypes, nan)) == (
        "explain: X must be finite; row 9, feature 'age' holds a missing value (NaN). "
        "Drop or fill such rows first."
    )


def test_models_that_are_not_fitted_or_do_not_count_mismatches() -> None:
    assert message(lambda: wc.neuralize(KModes(2))) == (
        "neuralize: the KModes must be fitted first. Call its fit method."
    )
    codes = np.random.default_rng(0).integers(0, 3, size=(50, 4))
    model = KModes(2, cat_dissim=dissim.jaccard_dissim_label, init="random", n_init=1, random_state=0).fit(
        codes
    )
    assert message(lambda: wc.neuralize(model)).startswith(
        "neuralize: KModes must use a dissimilarity that counts mismatches, either matching_dissim or "
        "ng_dissim; got "
    )
