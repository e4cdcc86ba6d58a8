"""The smallest change that moves a row to another cluster."""

from __future__ import annotations

import datetime as dt
import itertools
import math
from dataclasses import replace
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import assume, given
from hypothesis import strategies as st
from numpy.typing import NDArray
from sklearn.cluster import BisectingKMeans, KMeans
from sklearn.compose import ColumnTransformer
from sklearn.datasets import make_blobs
from sklearn.decomposition import PCA, TruncatedSVD
from sklearn.mixture import GaussianMixture
from sklearn.pipeline import FeatureUnion, Pipeline, make_pipeline
from sklearn.preprocessing import (
    FunctionTransformer,
    KBinsDiscretizer,
    MinMaxScaler,
    Normalizer,
    OneHotEncoder,
    PowerTransformer,
    QuantileTransformer,
    RobustScaler,
    StandardScaler,
)

import whycluster as wc
from benchmarks.counterfactual import read_tables, typed
from tests.contracts.pipelines import mixed_frame
from tests.optional import load_frame, optional
from tests.properties.strategies import Problem, problems, rough_problems
from tests.reference import counterfactual as reference
from whycluster.explanations.counterfactuals.counterfactual import Counterfactual

if TYPE_CHECKING:
    import pandas as pd
    import polars as pl
    import pyarrow as pa
else:
    pd = optional("pandas")
    pl = optional("polars")
    pa = optional("pyarrow")

Array = NDArray[Any]


def others(exp: wc.Explanation, row: int) -> list[Any]:
    return [label for label in exp.labels.tolist() if label != exp.assigned[row]]


def numbers(values: Array) -> Array:
    return values.astype(np.float64)


@pytest.fixture(scope="module")
def frame() -> Any:
    return load_frame("wine").data


@pytest.fixture(scope="module")
def scaled(frame: Any) -> Pipeline:
    return scaled_kmeans().fit(frame)


@pytest.fixture(scope="module")
def exp(frame: Any, scaled: Pipeline) -> wc.Explanation:
    return wc.explain(scaled, frame)


def scaled_kmeans(*steps: Any) -> Pipeline:
    return make_pipeline(StandardScaler(), *steps, KMeans(3, n_init=3, random_state=0))


def is_first(centroids: Array, k: int) -> bool:
    """Whether no earlier centroid is the same: else the first wins every tie."""
    return not (centroids[:k] == centroids[k]).all(axis=1).any()


def asked(problem: Problem, data: st.DataObject) -> tuple[wc.Network, wc.Explanation, int, int]:
    """The network, its explanation, a row, and another cluster that can be reached."""
    network = wc.neuralize(problem.centroids)
    exp = network.explain(problem.X)
    row = data.draw(st.integers(0, len(problem.X) - 1))
    to = data.draw(st.sampled_from(others(exp, row)))
    assume(is_first(problem.centroids, to))
    return network, exp, row, to


@pytest.mark.slow
@given(problems(), st.data())
def test_it_is_the_nearest_point_of_the_other_cluster(problem: Problem, data: st.DataObject) -> None:
    network, exp, row, to = asked(problem, data)
    found = exp.counterfactual(row, to)
    y = reference.least_change(*reference.half_spaces(problem.X[row], problem.centroids, to))
    assert y is not None
    assert found.found
    assert network.assign([numbers(found.after)]) == to
    np.testing.assert_array_equal(numbers(found.before), problem.X[row])
    np.testing.assert_array_equal(numbers(found.before) + found.change, numbers(found.after))
    size = float(np.linalg.norm(y))
    tie = 1e-8 * float(np.abs(problem.centroids).max())  # the way off a plane that the row lies on
    assert size * (1 - 1e-9) <= found.distance <= size * (1 + 1e-2) + tie
    assert found.distance == pytest.approx(np.linalg.norm(found.change))


@pytest.mark.slow
@given(problems(max_features=5), st.data())
def test_only_the_features_that_are_given_change(problem: Problem, data: st.DataObject) -> None:
    network, exp, row, to = asked(problem, data)
    columns = data.draw(st.sets(st.integers(0, problem.X.shape[1] - 1), min_size=1))
    within = sorted(columns)
    found = exp.counterfactual(row, to, within=[f"x{i}" for i in within])
    slopes, values = reference.half_spaces(problem.X[row], problem.centroids, to)
    y = reference.least_change(slopes[:, within], values)
    if found.found:
        assert y is not None
        assert network.assign([numbers(found.after)]) == to
        assert set(np.flatnonzero(found.change)) <= columns
        assert found.distance >= np.linalg.norm(y) * (1 - 1e-9)
    else:  # nothing is in the cluster, or not by as much as it takes to be so for sure
        margin = (
            1e-5 * (1 + (0 if y is None else np.linalg.norm(y))) * np.linalg.norm(slopes[:, within], axis=1)
        )
        assert reference.least_change(slopes[:, within], values - np.maximum(margin, 1e-5)) is None


@pytest.mark.slow
@given(problems(max_features=5), st.data())
def test_single_features_change_as_little_as_is_enough(problem: Problem, data: st.DataObject) -> None:
    network, exp, row, to = asked(problem, data)
    found = exp.counterfactual(row, to)
    slopes, values = reference.half_spaces(problem.X[row], problem.centroids, to)
    for i, value in enumerate(found.single):
        y = reference.least_single(slopes[:, i], values)
        if value is None:
            assert found.single_distance[i] == math.inf
            beyond = 1e-5 * np.abs(slopes[:, i]) * (1 + abs(y or 0.0)) + 1e-9
            assert reference.least_single(slopes[:, i], values - beyond) is None
            continue
        assert y is not None
        changed = problem.X[row].copy()
        changed[i] = value
        assert network.assign([changed]) == to
        assert abs(y) * (1 - 1e-9) <= found.single_distance[i] <= abs(y) * (1 + 1e-5) + 1e-5
        assert found.distance <= found.single_distance[i] * (1 + 1e-2) + 1e-5


@given(rough_problems(), st.data())
def test_no_smaller_change_is_enough(problem: Problem, data: st.DataObject) -> None:
    """Whatever the scales and offsets of the features, and however many clusters."""
    network = wc.neuralize(problem.centroids)
    exp = network.explain(problem.X)
    row = data.draw(st.integers(0, len(problem.X) - 1))
    to = data.draw(st.sampled_from(others(exp, row)))
    found = exp.counterfactual(row, to)
    assert network.assign([numbers(found.after)]) == to
    rng = np.random.default_rng(0)
    step = found.change + rng.normal(size=(500, len(found.change))) * found.distance * 0.1
    step *= found.distance * (1 - 1e-3) / np.linalg.norm(step, axis=1, keepdims=True)
    assert not (network.assign(problem.X[row] + step) == to).any()


def test_the_closed_form_of_two_clusters() -> None:
    centroids = np.array([[0.0, 0.0], [4.0, 2.0]])
    found = wc.explain(centroids, [[1.0, 0.0]]).counterfactual(0)
    w, h = 2 * (centroids[1] - centroids[0]), 20.0 - 2 * 4.0  # s_1 - s_0 = |mu_1|^2 - 2 mu_1.x
    np.testing.assert_allclose(found.change, h * w / (w @ w), rtol=2e-6)
    assert found.distance == pytest.approx(h / np.linalg.norm(w), rel=2e-6)
    assert found.distance > h / np.linalg.norm(w)


def test_the_default_is_the_cluster_that_is_nearest(exp: wc.Explanation) -> None:
    for row in range(0, len(exp), 20):
        all_of_them = [exp.counterfactual(row, to) for to in others(exp, row)]
        nearest = min(all_of_them, key=lambda found: found.distance)
        assert exp.counterfactual(row).to == nearest.to


def test_the_nearest_cluster_need_not_be_the_strongest_competitor() -> None:
    """A cluster far off is parted by a plane that is crossed fast."""
    exp = wc.explain([[0.0, 0.0], [0.0, 2.0], [-100.0, 0.0]], [[-49.95, 0.9]])
    assert exp.competitor[0] == 1
    assert exp.counterfactual(0).to == 2
    assert exp.counterfactual(0).distance == pytest.approx(0.05, rel=1e-5)
    assert exp.counterfactual(0, 1).distance == pytest.approx(0.1, rel=1e-5)


PIPELINES = {
    "scaled": scaled_kmeans(),
    "components": scaled_kmeans(PCA(4)),
    "whitened": scaled_kmeans(PCA(4, whiten=True)),
    "components alone": make_pipeline(PCA(3), KMeans(3, n_init=1, random_state=0)),
    "min-max, robust": make_pipeline(
        MinMaxScaler((1, 3)), RobustScaler(), KMeans(3, n_init=1, random_state=0)
    ),
    "singular vectors": make_pipeline(TruncatedSVD(3, random_state=0), KMeans(3, n_init=1, random_state=0)),
    "tree": make_pipeline(StandardScaler(), BisectingKMeans(5, random_state=0)),
    "tree of components": make_pipeline(StandardScaler(), PCA(4), BisectingKMeans(5, random_state=0)),
    "beside each other": make_pipeline(
        FeatureUnion([("parts", PCA(2)), ("scaled", StandardScaler())]), KMeans(3, n_init=1, random_state=0)
    ),
}


@pytest.mark.parametrize("name", PIPELINES)
def test_behind_a_pipeline_the_values_are_those_of_the_columns(name: str, frame: Any) -> None:
    pipe = PIPELINES[name].fit(frame)
    exp = wc.explain(pipe, frame)
    before = frame.copy()
    for row in (0, 80, 150):
        for to in others(exp, row):
            found = exp.counterfactual(row, to)
            assert found.found
            assert not found.held
            changed = pd.DataFrame([found.after], columns=frame.columns).astype(float)
            assert pipe.predict(changed) == to
            within = [f for f, size in zip(found.feature_names, found.size, strict=True) if size]
            assert exp.counterfactual(row, to, within=within).distance == pytest.approx(found.distance)
            alone = [i for i, value in enumerate(found.single) if value is not None]
            rows = frame.iloc[[row] * len(alone)].copy()
            for place, i in enumerate(alone):
                rows.iloc[place, i] = found.single[i]
            assert (pipe.predict(rows) == to).all()
            assert (found.single_distance >= found.distance * (1 - 1e-3)).all()
    pd.testing.assert_frame_equal(frame, before)


@pytest.mark.parametrize("name", PIPELINES)
def test_behind_a_pipeline_no_smaller_change_is_enough(name: str, frame: Any) -> None:
    pipe = PIPELINES[name].fit(frame)
    exp = wc.explain(pipe, frame)
    found = exp.counterfactual(5)
    weight = np.divide(found.size, np.abs(found.change), out=np.ones(13), where=found.change != 0)
    step = found.change * weight + np.random.default_rng(0).normal(size=(2000, 13)) * found.distance * 0.05
    step *= found.distance * (1 - 1e-3) / np.linalg.norm(step, axis=1, keepdims=True)
    assert not (
        pipe.predict(frame.iloc[5] + pd.DataFrame(step / weight, columns=frame.columns)) == found.to
    ).any()


def test_sizes_are_in_the_units_that_the_columns_are_scaled_to(
    frame: Any, scaled: Pipeline, exp: wc.Explanation
) -> None:
    scaler, model = scaled
    plain = wc.explain(model, scaler.transform(frame))
    real = frame.columns.difference(["magnesium", "proline"])  # whole numbers would stay whole
    names = [f"x{frame.columns.get_loc(name)}" for name in real]
    for row in (3, 60, 177):
        behind, before = exp.counterfactual(row, within=real), plain.counterfactual(row, within=names)
        assert behind.distance == pytest.approx(before.distance)
        np.testing.assert_allclose(behind.size, before.size, rtol=1e-6, atol=1e-9)
        np.testing.assert_allclose(behind.change, before.change * scaler.scale_, rtol=1e-6, atol=1e-9)
        np.testing.assert_allclose(behind.single_distance, before.single_distance, rtol=1e-6)


def test_behind_components_sizes_are_of_what_was_mixed(frame: Any) -> None:
    frame = frame + 0.25  # whole numbers would stay whole
    pipe = scaled_kmeans(PCA(4)).fit(frame)
    found = wc.explain(pipe, frame).counterfactual(3)
    np.testing.assert_allclose(found.size, np.abs(found.change) / pipe[0].scale_, rtol=1e-9)
    x, A = pipe[0].transform(frame.iloc[[3]])[0], pipe[1].components_
    slopes, values = reference.half_spaces(A @ (x - pipe[1].mean_), pipe[-1].cluster_centers_, found.to)
    y = reference.least_change(slopes @ A, values)
    assert y is not None
    np.testing.assert_allclose(found.change / pipe[0].scale_, y, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("metric", ["cosine", "dot", "student"])
def test_other_models_of_planes(metric: str, wine: Array) -> None:
    rng = np.random.default_rng(1)
    network = wc.neuralize(rng.normal(size=(4, 13)), metric=metric)
    exp = network.explain(wine)
    for row in range(0, 178, 25):
        found = exp.counterfactual(row)
        assert found.found
        assert network.assign([numbers(found.after)]) == found.to
        step = found.change + rng.normal(size=(500, 13)) * found.distance * 0.1
        step *= found.distance * (1 - 1e-3) / np.linalg.norm(step, axis=1, keepdims=True)
        assert (network.assign(wine[row] + step) == exp.cluster[row]).all()


def test_noise_in_the_last_digits_does_not_matter_far_from_zero(wine: Array) -> None:
    far = wine + 1e8
    centroids = KMeans(4, n_init=1, random_state=0).fit(wine).cluster_centers_
    network = wc.neuralize(centroids + 1e8)
    exp, near = network.explain(far), wc.explain(centroids, wine)
    for row in range(0, 178, 20):
        found = exp.counterfactual(row)
        assert network.assign([numbers(found.after)]) == found.to
        assert found.distance == pytest.approx(near.counterfactual(row).distance, rel=1e-5)


def test_groups_of_clusters_far_apart() -> None:
    centroids = np.array([[0.0, 0.0], [1.0, 0.0], [1e9, 0.0], [1e9, 1.0]])
    network = wc.neuralize(centroids)
    exp = network.explain([[0.2, 0.0], [1e9, 0.1]])
    assert [exp.counterfactual(row).to for row in (0, 1)] == [1, 3]
    assert exp.counterfactual(1).distance == pytest.approx(0.4, rel=1e-5)
    found = exp.counterfactual(0, 3)
    assert network.assign([numbers(found.after)]) == 3


def test_single_precision_stays_what_it_is(wine: Array) -> None:
    small = wine.astype(np.float32)
    network = wc.neuralize(KMeans(3, n_init=1, random_state=0).fit(small))
    exp = network.explain(small)
    for row in range(0, 178, 10):
        found = exp.counterfactual(row)
        after = numbers(found.after).astype(np.float32)
        assert (after == found.after).all()
        assert network.assign(after[None]) == found.to


@pytest.mark.parametrize("far", [0.0, 30.0])
@pytest.mark.parametrize("kind", ["k-means", "bisecting", "scaled", "projected"])
def test_the_model_agrees_in_single_precision(kind: str, far: float) -> None:
    """Its own arithmetic is rounded to float32, unlike that of the network."""
    X = (make_blobs(300, 9, centers=6, cluster_std=3.0, random_state=2)[0] + far).astype(np.float32)
    last = (BisectingKMeans if kind == "bisecting" else KMeans)(6, n_init=1, random_state=0)
    steps = {"scaled": [StandardScaler()], "projected": [StandardScaler(), PCA(4)]}.get(kind, [])
    model = make_pipeline(*steps, last).fit(X) if steps else last.fit(X)
    exp = wc.explain(model, X)
    for row in range(0, 300, 25):
        found = exp.counterfactual(row)
        assert model.predict(numbers(found.after).astype(np.float32)[None])[0] == found.to
        for column in np.flatnonzero(np.isfinite(found.single_distance)):
            changed = X[row : row + 1].copy()
            changed[0, column] = found.single[column]
            assert model.predict(changed)[0] == found.to


def test_a_row_on_a_plane_is_moved_off_it() -> None:
    network = wc.neuralize([[0.0, 1.0], [2.0, 1.0]])
    exp = network.explain([[1.0, 5.0]])
    assert exp.cluster[0] == 0
    found = exp.counterfactual(0)
    assert found.to == 1
    assert 0 < found.distance < 1e-6
    assert network.assign([numbers(found.after)]) == 1
    assert found.best_single == "x0"
    assert found.single[1] is None


@pytest.mark.parametrize("table", ["sparse", "whole numbers", "polars", "pyarrow", "pandas", "nullable"])
def test_all_kinds_of_tables(table: str) -> None:
    X = np.random.default_rng(2).poisson(3.0, size=(60, 4))
    X[:30, 0] += 6
    names = ["a", "b", "c", "d"]
    kinds: dict[str, Any] = {
        "sparse": sp.csr_array(X),
        "whole numbers": X,
        "polars": pl.DataFrame(X, schema=names),
        "pyarrow": pa.table(dict(zip(names, X.T, strict=True))),
        "pandas": pd.DataFrame(X, columns=names, index=np.arange(60) % 2),
        "nullable": pd.DataFrame(X, columns=names).astype("Int64"),
    }
    made = kinds[table]
    model = KMeans(3, n_init=1, random_state=0).fit(X.astype(float))
    expected = wc.explain(model, X.astype(float)).counterfactual(7)
    found = wc.explain(model, made).counterfactual(7)
    np.testing.assert_array_equal(numbers(found.after), numbers(expected.after))
    np.testing.assert_array_equal(found.single_distance, expected.single_distance)
    assert ((made.toarray() if table == "sparse" else np.asarray(made)) == X).all()


def test_a_sparse_table_behind_steps() -> None:
    X = sp.csr_array(np.random.default_rng(0).poisson(0.5, size=(80, 12)).astype(float))
    pipe = make_pipeline(TruncatedSVD(4, random_state=0), KMeans(3, n_init=1, random_state=0)).fit(X)
    found = wc.explain(pipe, X).counterfactual(2)
    assert pipe.predict(numbers(found.after)[None]) == found.to


def mixed(backend: str = "pandas") -> tuple[Any, Pipeline]:
    """Numbers, categories, a boolean and dates; and the pipeline of its own."""
    frame = mixed_frame()
    frame = frame.reset_index(drop=True).drop(columns="far")
    if backend != "pandas":
        frame = pl.from_pandas(frame).with_columns(pl.col("when").cast(pl.Date))
    return frame, wc.tabular.pipeline(frame, 3)


def with_value(frame: Any, row: int, name: str, value: Any) -> Any:
    """The row with another value, as a frame."""
    if isinstance(frame, pl.DataFrame):
        return frame[row : row + 1].with_columns(pl.Series(name, [value], strict=False))
    one = frame.iloc[[row]].copy()
    one[name] = [value]
    return one


@pytest.mark.slow
@pytest.mark.parametrize("backend", ["pandas", "polars"])
def test_mixed_tables(backend: str) -> None:
    frame, pipe = mixed(backend)
    exp = wc.explain(pipe, frame)
    categories = dict.fromkeys(["kind", "town", "member"], "category")
    n_categories = 0
    for row in range(0, 90, 8):
        found = exp.counterfactual(row)
        expected = categories | {
            name: "missing" for name in ("income", "town") if is_nothing(frame[name][row])
        }
        assert found.held == expected
        changed = frame[row : row + 1]
        for name, change, value in zip(found.feature_names, found.change, found.after, strict=True):
            assert (change == 0) or name not in found.held
            if change:
                changed = with_value(changed, 0, str(name), value)
        assert pipe.predict(changed) == found.to
        for i, value in enumerate(found.single):
            if value is not None:
                n_categories += found.feature_names[i] in categories
                assert pipe.predict(with_value(frame, row, str(found.feature_names[i]), value)) == found.to
    assert n_categories > 1


def is_nothing(value: Any) -> bool:
    return value is None or value != value


@pytest.mark.slow
def test_every_category_is_tried() -> None:
    frame, pipe = mixed()
    exp = wc.explain(pipe, frame)
    for row in range(0, 90, 16):
        for to in others(exp, row):
            found = exp.counterfactual(row, to)
            for name in ("kind", "town"):
                known = sorted(set(frame[name].dropna()))
                enough = [v for v in known if pipe.predict(with_value(frame, row, name, v)) == to]
                value = found.single[found.feature_names.index(name)]
                assert (value in enough) if enough else value is None


def shops() -> tuple[Any, Pipeline]:
    """Two categories, a boolean and two numbers, on which groups depend in different ways."""
    rng = np.random.default_rng(3)
    group = rng.integers(0, 3, 120)
    frame = pd.DataFrame(
        {
            "kind": np.where(rng.random(120) < 0.8, np.array(["book", "food", "shoe"])[group], "food"),
            "town": np.where(group == 0, "Oslo", rng.choice(["Bern", "Rome"], 120)),
            "open": (group == 1) ^ (rng.random(120) < 0.2),
            "area": rng.normal(100 + 40 * group, 15),
            "staff": rng.normal(5 + group, 1),
        }
    )
    return frame, wc.tabular.pipeline(frame, 3)


@pytest.mark.slow
def test_categories_change_together_with_numbers() -> None:
    """The change is the smallest of those for every combination of categories."""
    frame, pipe = shops()
    names = ["kind", "town", "open"]
    n_switches, exp = [], wc.explain(pipe, frame)
    for row in (0, 60):
        for to in others(exp, row):
            found, numbers = exp.counterfactual(row, to, categories=True), exp.counterfactual(row, to)
            least = math.inf
            for values in itertools.product(*(frame[name].unique() for name in names)):
                changed = frame.copy()
                for name, value in zip(names, values, strict=True):
                    changed.loc[row, name] = value
                far = 0.0
                if pipe.predict(changed.iloc[[row]])[0] != to:
                    far = wc.explain(pipe, changed).counterfactual(row, to).distance
                steps = pipe[:-1].transform(pd.concat([frame.iloc[[row]], changed.iloc[[row]]]))
                least = min(least, math.hypot(far, np.linalg.norm(steps[1] - steps[0])))
            assert found.distance == pytest.approx(least, rel=1e-3)
            assert found.distance <= numbers.distance
            assert found.optimum == "global"
            assert found.lower_bound <= found.distance * (1 + 1e-9)
            assert not found.held
            assert set(numbers.held) == set(names)
            after = pd.DataFrame([found.after.tolist()], columns=frame.columns)
            assert pipe.predict(after)[0] == to
            assert np.sqrt(np.square(found.size).sum()) == pytest.approx(found.distance)
            switched = [n for n in names if after[n][0] != frame[n][row]]
            n_switches.append(len(switched))
            for name in switched:
                assert f"{name} {after[name][0]} instead of {frame[name][row]}" in str(found) or (
                    found.best_single == name
                )
            held = exp.counterfactual(row, to, categories=True, hold=["kind"])
            assert held.after[0] == frame["kind"][row]
    assert {0, 1, 2} <= set(n_switches)


def test_whole_days_are_moved_by_whole_days() -> None:
    days = [dt.date(2020, 1, 1) + dt.timedelta(days=i) for i in (*range(5), *range(100, 105))]
    frame = pl.DataFrame({"when": days, "x": np.arange(10) % 5})
    pipe = wc.tabular.pipeline(frame, 2)
    found = wc.explain(pipe, frame).counterfactual(0)
    assert not found.held
    days = [dt.date(2020, 1, 1) + dt.timedelta(days=i) for i in range(200)]
    enough = pipe.predict(pl.DataFrame({"when": days, "x": [0] * 200})) == found.to
    assert found.single[0] == days[int(np.argmax(enough))]
    assert type(found.single[0]) is dt.date


def test_dates_and_durations_change_in_time() -> None:
    start = pd.to_datetime(["2020-01-01", "2020-01-03", "2021-06-01", "2021-06-03"])
    frame = pd.DataFrame({"when": start, "took": start - start[0], "x": [0.0, 1.0, 0.0, 1.0]})
    frame["when"] = frame["when"].astype("datetime64[s]")
    pipe = wc.tabular.pipeline(frame, 2)
    found = wc.explain(pipe, frame).counterfactual(0)
    assert not found.held
    assert found.change[0] == pytest.approx((found.after[0] - frame["when"][0]) / pd.Timedelta(days=1))
    assert found.change[1] == pytest.approx((found.after[1] - frame["took"][0]) / pd.Timedelta(days=1))
    middle = dt.datetime(2020, 9, 15)
    assert abs(found.after[0] - middle) <= dt.timedelta(days=2)
    assert pipe.predict(pd.DataFrame([found.after], columns=list(frame.columns))) == found.to
    assert "2020-09-1" in str(found)


def test_columns_in_bins_are_held_and_monotone_ones_are_not(frame: Any) -> None:
    bins = KBinsDiscretizer(4, encode="ordinal", strategy="uniform")
    nonlinear = ColumnTransformer(
        [
            ("log", make_pipeline(FunctionTransformer(np.log), StandardScaler()), ["proline", "magnesium"]),
            ("power", PowerTransformer(method="box-cox"), ["hue"]),
            ("ranks", QuantileTransformer(n_quantiles=50), ["ash"]),
            ("bins", bins, ["alcohol"]),
            ("scaled", StandardScaler(), ["flavanoids", "color_intensity"]),
        ]
    )
    pipe = make_pipeline(nonlinear, KMeans(3, n_init=3, random_state=0)).fit(frame)
    monotone = {"magnesium", "hue", "proline", "ash"}
    unused = set(frame.columns) - monotone - {"alcohol", "flavanoids", "color_intensity"}
    found = wc.explain(pipe, frame).counterfactual(0)
    assert found.held == {"alcohol": "nonlinear"} | dict.fromkeys(unused, "unused")
    assert found.found
    changed = {name for name, change in zip(found.feature_names, found.change, strict=True) if change}
    assert changed & monotone
    assert pipe.predict(pd.DataFrame([found.after], columns=frame.columns).astype(float)) == found.to


@pytest.mark.slow
def test_nonlinear_columns_are_followed(frame: Any) -> None:
    frame = frame.assign(proline=frame["proline"] + 0.25)  # whole numbers would stay whole
    money = make_pipeline(FunctionTransformer(np.log), StandardScaler())
    columns = ColumnTransformer([("log", money, ["proline"]), ("scaled", StandardScaler(), ["flavanoids"])])
    pipe = make_pipeline(columns, KMeans(3, n_init=3, random_state=0)).fit(frame)
    exp = wc.explain(pipe, frame)
    i, n_found, scaler = exp.feature_names.index("proline"), 0, pipe[0].named_transformers_["log"][1]
    for row in range(0, 178, 30):
        for to in others(exp, row):
            found = exp.counterfactual(row, to)
            t = pipe[0].transform(frame.iloc[[row]])[0]
            slopes, values = reference.half_spaces(t, pipe[-1].cluster_centers_, to)
            y = reference.least_single(slopes[:, 0], values)
            if found.single[i] is not None:
                n_found += 1
                assert y is not None
                value = frame["proline"][row] * np.exp(scaler.scale_[0] * y)
                assert found.single[i] == pytest.approx(value, rel=1e-5)
                assert found.single_distance[i] == pytest.approx(abs(y), rel=1e-4)
                assert pipe.predict(with_value(frame, row, "proline", found.single[i])) == to
    assert n_found > 3


def test_rows_of_unit_length_hold_every_column(wine: Array) -> None:
    """What a column does then depends on the others."""
    pipe = make_pipeline(Normalizer(), KMeans(3, n_init=1, random_state=0)).fit(wine)
    found = wc.explain(pipe, wine).counterfactual(0)
    assert set(found.held.values()) == {"nonlinear"}
    assert not found.found
    nothing = f"No change of the features that are not held fixed moves it to cluster {found.to}."
    assert nothing in str(found).split("\n\n")
    for i, value in enumerate(found.single):
        if value is not None:
            changed = wine[[0]].copy()
            changed[0, i] = value
            assert pipe.predict(changed) == found.to


def test_booleans_are_yes_or_no() -> None:
    X = np.array([[True, True, True], [True, True, False], [False, False, False], [False, False, True]])
    found = wc.explain(KMeans(2, n_init=1, random_state=0).fit(X), X).counterfactual(0)
    assert not found.found
    assert set(found.held.values()) == {"category"}
    mixed = pd.DataFrame({"yes": [True, True, False, False], "x": [0.0, 0.1, 0.0, 0.1]})
    pipe = wc.tabular.pipeline(mixed, 2)
    found = wc.explain(pipe, mixed).counterfactual(0)
    assert found.single[0] is False
    assert found.best_single == "yes"


def test_a_tie_that_no_number_can_break() -> None:
    found = wc.explain(np.array([[1.0, 0.0], [0.0, 1.0]]), pd.DataFrame({"yes": [True], "no": [True]}))
    assert found.cluster[0] == 0
    assert not found.counterfactual(0).found
    assert found.counterfactual(0).single.tolist() == [False, None]


def test_one_hot_categories_of_an_array() -> None:
    X = np.array([["a", 1.0], ["a", 2.0], ["b", 8.0], ["c", 9.0]] * 3, dtype=object)
    columns = ColumnTransformer([("kind", OneHotEncoder(), [0]), ("size", MinMaxScaler(), [1])])
    pipe = make_pipeline(columns, KMeans(2, n_init=3, random_state=0)).fit(X)
    found = wc.explain(pipe, X).counterfactual(0)
    assert found.held == {"x0": "category"}
    assert found.after[0] == "a"
    assert pipe.predict(found.after[None]) == found.to
    assert X[0].tolist() == ["a", 1.0]
    enough = [kind for kind in "bc" if pipe.predict(np.array([[kind, 1.0]], dtype=object)) == found.to]
    assert found.single[0] == (enough[0] if enough else None)


def test_data_are_left_as_they_are(wine: Array, kmeans: Any) -> None:
    exp = wc.explain(kmeans, wine)  # which is read-only
    found = exp.counterfactual(0)
    np.testing.assert_array_equal(numbers(found.before), wine[0])
    assert (found.before != found.after).any()


def test_rows_by_position(exp: wc.Explanation) -> None:
    within = ["alcohol", "flavanoids", "hue"]  # of two rows, it is not known which numbers stay whole
    found, again = (part.counterfactual(row, within=within) for part, row in ((exp, 3), (exp[[9, 3]], 1)))
    last = exp.counterfactual(-1)
    assert (found.after == again.after).all()
    assert (found.row, again.row, last.row) == (3, 1, 177)
    assert str(again).startswith("Row 3 is in cluster")


def test_targets_do_not_matter(frame: Any, scaled: Pipeline, exp: wc.Explanation) -> None:
    asked = wc.explain(scaled, frame, target=1)
    assert asked.counterfactual(3).cluster == exp.cluster[3]
    assert asked.counterfactual(3).to == exp.counterfactual(3).to


def test_labels_are_the_models(wine: Array) -> None:
    from sklearn.neighbors import NearestCentroid

    model = NearestCentroid().fit(wine, np.array(["low", "middle", "high"])[np.arange(178) % 3])
    exp = wc.explain(model, wine)
    found = exp.counterfactual(0, to=others(exp, 0)[1])
    assert found.to == others(exp, 0)[1]
    assert model.predict([numbers(found.after)]) == found.to


def small() -> Counterfactual:
    X = pd.DataFrame(
        {"age": [20.0, 22.0, 60.0, 64.0], "visits": [5, 6, 5, 6]}, index=["ann", "bob", "eve", "ida"]
    )
    return wc.explain(np.array([[21.0, 5.5], [62.0, 5.5]]), X).counterfactual(0)


def test_as_text() -> None:
    assert str(small()) == repr(small())
    assert (
        str(small())
        == """\
Row ann is in cluster 0. One feature alone moves it to cluster 1, the smallest change first:
feature  value  becomes  size
-------  -----  -------  ----
age         20     41.6  21.6

Several features together: no smaller change was found. Below size 21.5, no change moves it to cluster 1."""
    )


def test_noise_is_no_cluster_to_be_in() -> None:
    to, own = replace(small(), to="noise").describe(), replace(small(), cluster="noise").describe()
    assert to.startswith("Row ann is in cluster 0. One feature alone moves it to noise, the smallest ")
    assert to.endswith("Below size 21.5, no change moves it to noise.")
    assert own.startswith("Row ann is noise. One feature alone moves it to cluster 1, the smallest ")


def test_text_says_what_lies_outside_the_data(exp: wc.Explanation) -> None:
    found = exp.counterfactual(3)
    text = found.describe(n_features=2)
    assert "outside the data" in text
    assert found.single_outside[found.feature_names.index(found.best_single)]
    assert not found.outside.any()
    ranges = np.asarray(exp.data.min()), np.asarray(exp.data.max())
    for i, value in enumerate(found.single):
        assert found.single_outside[i] == (value is not None and not ranges[0][i] <= value <= ranges[1][i])


def test_text_lists_as_few_features_as_asked_for_and_all_that_are_needed(
    frame: Any, scaled: Pipeline, exp: wc.Explanation
) -> None:
    for n_features in (1, 2, 5, 13):
        text = exp.counterfactual(3).describe(n_features)
        (joint,), (alone,) = read_tables(text, "change"), read_tables(text, "size")
        assert len(joint) <= max(2, n_features)
        assert len(alone) == min(n_features, np.isfinite(exp.counterfactual(3).single_distance).sum())
        assert scaled.predict(typed(frame, 3, joint)) == exp.counterfactual(3).to


def test_as_a_frame(exp: wc.Explanation) -> None:
    found = exp.counterfactual(3)
    result = found.to_frame()
    assert list(result.columns) == [
        "feature",
        "before",
        "after",
        "change",
        "size",
        "single",
        "single_distance",
    ]
    assert len(result) == 13
    assert (np.diff(result["size"]) <= 0).all()
    np.testing.assert_allclose(result["after"] - result["before"], result["change"], atol=1e-9)
    assert isinstance(found.to_frame("polars"), pl.DataFrame)
    frame, pipe = mixed("polars")
    assert isinstance(wc.explain(pipe, frame).counterfactual(5).to_frame(), pl.DataFrame)


def test_a_plane_that_turns_to_a_feature_by_rounding_only() -> None:
    """0.1 + 0.2 is not 0.3, but no value of that feature is far enough off to matter."""
    exp = wc.explain([[0.1 + 0.2, 0.0], [0.3, 2.0]], [[1.0, 0.5]])
    found = exp.counterfactual(0, within=["x0"])
    assert not found.found
    assert found.best_single is None


def test_names_may_come_as_an_index(exp: wc.Explanation) -> None:
    by_index = exp.counterfactual(3, within=exp.data.columns[:4])
    assert by_index.distance == exp.counterfactual(3, within=exp.feature_names[:4]).distance
    assert not by_index.change[4:].any()


def test_nothing_is_enough() -> None:
    exp = wc.explain([[0.0, 0.0], [0.0, 2.0]], [[1.0, 0.5]])
    found = exp.counterfactual(0, within=["x0"])
    assert not found.found
    assert found.distance == found.lower_bound == math.inf
    assert found.best_single is None
    assert (found.after == None).all()  # noqa: E711  # elementwise
    assert np.isnan(found.change).all()
    assert str(found) == (
        "Row 0 is in cluster 0. No feature alone moves it to cluster 1.\n\n"
        "No change of the features that are not held fixed moves it to cluster 1.\n\n"
        "Held fixed, as you asked: x1."
    )
    assert len(found.to_frame()) == 2


@pytest.mark.parametrize(
    ("question", "message"),
    [
        ({"to": np.int64(0)}, "counterfactual: to must differ from the cluster that the row is in, 0."),
        ({"to": 0}, "counterfactual: to must differ from the cluster that the row is in, 0."),
        (
            {"to": 7},
            "counterfactual: to must be one of the model's 4 clusters, 0, 1, 2, 3; got 7.",
        ),
        ({"to": [1]}, "counterfactual: to must be one cluster; got [1]."),
        (
            {"to": 2},
            "counterfactual: to must be a cluster that a row can be in; no row is ever in 2, since 1 is at "
            "least as near everywhere and wins ties.",
        ),
        ({"row": [0]}, "counterfactual: row must be a single integer position; got [0]."),
        ({"row": True}, "counterfactual: row must be a single integer position; got True."),
        (
            {"within": "x0"},
            "counterfactual: within must be a list of feature names; got 'x0'. Leave it out to let all "
            "features change.",
        ),
        (
            {"within": []},
            "counterfactual: within must be a list of feature names; got []. Leave it out to let all "
            "features change.",
        ),
        (
            {"within": ["x0", "age"]},
            "counterfactual: within must be names of features, one or more of 'x0', 'x1'; got 'age'.",
        ),
        (
            {"categories": ["x0"]},
            "counterfactual: categories must be True or False; got ['x0']. Use within to choose the features "
            "that may change.",
        ),
    ],
)
def test_bad_questions(question: dict[str, Any], message: str) -> None:
    exp = wc.explain([[0.0, 0.0], [2.0, 0.0], [2.0, 0.0], [5.0, 1.0]], [[0.5, 0.0]])
    with pytest.raises(wc.InvalidInputError) as error:
        exp.counterfactual(**{"row": 0, **question})
    assert str(error.value) == message


def test_a_row_that_is_not_there() -> None:
    with pytest.raises(IndexError, match="rows must be positions from 0 to 0"):
        wc.explain([[0.0], [1.0]], [[0.2]]).counterfactual(1)


def test_of_equal_centroids_the_first_can_be_reached() -> None:
    exp = wc.explain([[0.0, 0.0], [2.0, 0.0], [2.0, 0.0]], [[0.5, 0.0]])
    assert exp.counterfactual(0).to == 1
    assert exp.counterfactual(0, 1).distance == pytest.approx(0.5, rel=1e-5)


@pytest.mark.parametrize("changed", [4, 5])
def test_data_that_were_changed(changed: int, wine: Array, kmeans: Any) -> None:
    """The row itself, or another one: the ranges of the features depend on all rows."""
    X = wine.copy()
    exp = wc.explain(kmeans, X)
    X[changed] += 3
    with pytest.raises(wc.InvalidInputError) as error:
        exp.counterfactual(4)
    assert str(error.value) == (
        "counterfactual: the data have been changed since they were explained. Explain them again."
    )


def test_inputs_of_several_columns_that_are_transformed(wine: Array) -> None:
    model = make_pipeline(PCA(3), PowerTransformer(), KMeans(2, n_init=1, random_state=0)).fit(wine)
    with pytest.raises(wc.UnsupportedModelError) as error:
        wc.explain(model, wine).counterfactual(0)
    assert str(error.value) == (
        "counterfactual: every input of the model must come from one column; got a TransformedEnergy, whose "
        "inputs mix columns and transform the result. Network.gradient gives the direction in which a row "
        "has to move; for the smallest change, explain k-means of the same rows."
    )


@pytest.mark.filterwarnings("ignore::whycluster.FidelityWarning")
def test_labels_are_moved_across_the_boundaries_of_their_surrogate() -> None:
    """No change of 2,000 nearby ones that is smaller by 1 % is enough."""
    X, rng = make_blobs(300, 3, centers=3, cluster_std=2.0, random_state=1)[0], np.random.default_rng(0)
    labels = KMeans(3, n_init=1, random_state=0).fit_predict(X)
    labels[np.linalg.norm(X - X.mean(axis=0), axis=1) > 11] = -1
    surrogate = wc.Surrogate(random_state=0).fit(X, labels)
    exp = wc.explain(surrogate, X)
    for row, to in ((0, "noise"), (5, None), (int(np.flatnonzero(exp.assigned == "noise")[0]), None)):
        found = exp.counterfactual(row, to)
        assert found.optimum == "local"
        assert found.cluster == exp.assigned[row]
        after = numbers(found.after)
        goal = -1 if found.to == "noise" else found.to
        assert surrogate.predict(after[None])[0] == goal
        deviation = X.std(axis=0)
        step = found.change / deviation
        near = step + rng.normal(size=(2000, 3)) * 0.05 * found.distance
        near *= 0.99 * found.distance / np.linalg.norm(near, axis=1, keepdims=True)
        assert not (surrogate.predict(X[row] + near * deviation) == goal).any()
        assert found.fidelity is exp.fidelity
        assert found.fidelity is not None
        known = f"{found.fidelity.cross_validated:.1%}"
        place = "noise" if found.cluster == "noise" else f"in cluster {found.cluster}"
        assert str(found).startswith(
            f"Row {row} is {place} according to the surrogate, which predicts {known} of the labels. "
        )


CURVED: dict[str, Any] = {
    "mixture": GaussianMixture(3, random_state=0),
    "diagonal mixture": GaussianMixture(3, covariance_type="diag", random_state=0),
    "kernel": wc.KernelKMeans(3, random_state=0),
    "scaled mixture": make_pipeline(StandardScaler(), GaussianMixture(2, random_state=0)),
}


@pytest.mark.slow
@pytest.mark.parametrize("kind", CURVED)
def test_curved_boundaries_give_optima(kind: str) -> None:
    """No smaller change nearby is enough, and none along the way."""
    X = make_blobs(300, 4, centers=3, cluster_std=3.0, random_state=1)[0]
    model = CURVED[kind].fit(X)
    exp, rng = wc.explain(model, X), np.random.default_rng(0)
    for row in range(0, 300, 50):
        found = exp.counterfactual(row, others(exp, row)[0])
        assert found.found
        if kind == "kernel":
            assert (found.optimum, found.lower_bound) == ("local", 0.0)
        else:
            assert found.optimum in ("global", "certified")
            assert found.lower_bound == pytest.approx(found.distance, rel=1e-3)
        after = numbers(found.after)
        assert model.predict(after[None])[0] == found.to
        deviation = X.std(axis=0)
        step = found.change / deviation
        assert found.distance == pytest.approx(np.linalg.norm(step), rel=1e-6)
        near = step + rng.normal(size=(2000, 4)) * 0.05 * found.distance
        near *= 0.99 * found.distance / np.linalg.norm(near, axis=1, keepdims=True)
        assert not (model.predict(X[row] + near * deviation) == found.to).any()
        way = np.linspace(0.0, 0.99, 50)[:, None] * step
        assert not (model.predict(X[row] + way * deviation) == found.to).any()
        is_local = "It is a local optimum; a smaller change may exist:" in str(found)
        assert is_local == (kind == "kernel")


def test_features_that_the_caller_holds_are_listed_with_the_others() -> None:
    frame, pipe = mixed("polars")
    exp, names = wc.explain(pipe, frame), frame.columns
    free = exp.counterfactual(5)
    number = next(name for name in names if name not in free.held)
    found = exp.counterfactual(5, hold=[number])
    assert found.held == free.held | {number: "chosen"}
    assert f"Held fixed, as you asked: {number}. Held fixed when several features change: " in str(found)
    category = next(name for name, why in free.held.items() if why == "category")
    found = exp.counterfactual(5, within=[number], categories=True)
    assert found.held == dict.fromkeys([name for name in names if name != number], "chosen")
    assert str(category) in str(found).split("as you asked: ")[1]
    assert "as you asked" not in str(free)


def test_a_curved_model_in_which_nothing_is_found() -> None:
    """No value of the first feature leads into the narrow cluster inside the wide one, which is proven."""
    rng = np.random.default_rng(0)
    X = np.concatenate([0.1 * rng.normal(size=(100, 2)), 10 * rng.normal(size=(100, 2))])
    start = {"means_init": [[0, 0], [0, 0.1]], "precisions_init": [100 * np.eye(2), 0.01 * np.eye(2)]}
    model = GaussianMixture(2, random_state=0, **start).fit(X)
    exp, row = wc.explain(model, X), int(np.argmax(np.abs(X[:, 1])))
    to, own = exp.assigned[0], exp.assigned[row]
    tried = np.repeat(X[[row]], 2001, axis=0)
    tried[:, 0] = np.linspace(-100, 100, 2001)
    assert not (model.predict(tried) == to).any()
    assert str(exp.counterfactual(row, to, within=["x0"])) == (
        f"Row {row} is in cluster {own}. No feature alone was found that moves it to cluster {to}.\n\n"
        f"No change of the features that are not held fixed moves it to cluster {to}.\n\n"
        "Held fixed, as you asked: x1."
    )
    assert exp.counterfactual(row, to).found


@pytest.mark.parametrize("library", ["pandas", "polars", "pyarrow"])
def test_moments_of_a_zone_whose_clocks_are_set(library: str) -> None:
    group = np.arange(60) % 3
    moments = pd.Timestamp("2020-01-01", tz="UTC") + pd.to_timedelta(30 * group + np.arange(60) / 12, "D")
    frame = pd.DataFrame({"when": moments, "size": group + np.random.default_rng(1).normal(size=60)})
    found = {}
    for zone in ("UTC", "Europe/Berlin", "America/New_York"):
        rows: Any = frame.assign(when=frame["when"].dt.tz_convert(zone))
        rows = rows if library == "pandas" else pl.from_pandas(rows)
        rows = rows.to_arrow() if library == "pyarrow" else rows
        moved = wc.explain(wc.tabular.pipeline(rows, 3), rows).counterfactual(0)
        assert not moved.held
        found[zone] = (moved.distance, *moved.change)
    for zone in found:
        np.testing.assert_allclose(found[zone], found["UTC"], rtol=1e-6)


@pytest.mark.parametrize("library", ["pandas", "pyarrow"])
def test_decimals(library: str) -> None:
    numbers = pd.DataFrame({"a": [0.5, 1.25, 4.0], "b": [0.0, 1, 2]})
    decimals = pa.array([Decimal("0.5"), Decimal("1.25"), Decimal("4")], pa.decimal128(10, 2))
    table = pa.table({"a": decimals, "b": numbers["b"]})
    rows = table if library == "pyarrow" else table.to_pandas(types_mapper=pd.ArrowDtype)
    network = wc.neuralize(pd.DataFrame([[0.0, 0], [3, 2]], columns=["a", "b"]))
    found, plain = (network.explain(each).counterfactual(0) for each in (rows, numbers))
    assert found.distance == pytest.approx(plain.distance)
    np.testing.assert_allclose(found.change.astype(float), plain.change.astype(float))


NESTED: dict[str, list[Any]] = {
    "k-means": [PCA(3), KMeans(3, n_init=1, random_state=0)],
    "powers": [PowerTransformer(), KMeans(3, n_init=1, random_state=0)],
    "mixture": [MinMaxScaler(), GaussianMixture(3, random_state=0)],
    "kernel k-means": [MinMaxScaler(), wc.KernelKMeans(3, random_state=0)],
}


@pytest.mark.parametrize("name", NESTED)
def test_a_pipeline_that_ends_in_a_pipeline_is_like_a_flat_one(name: str) -> None:
    wine = load_frame("wine").data
    nested = make_pipeline(StandardScaler(), make_pipeline(*NESTED[name])).fit(wine)
    flat = Pipeline([("scaler", nested[0]), *nested[1].steps])
    exp, expected = wc.explain(nested, wine), wc.explain(flat, wine)
    np.testing.assert_array_equal(exp.relevance, expected.relevance)
    found, known = exp.counterfactual(5), expected.counterfactual(5)
    assert found.found
    assert found.distance == known.distance
    after = pd.DataFrame([found.after.astype(float)], columns=wine.columns)
    assert nested.predict(after)[0] == found.to


def test_categories_that_are_numbers_and_text() -> None:
    rng = np.random.default_rng(0)
    kinds = [[1, "b", None][i % 3] for i in range(240)]
    frame = pd.DataFrame({"kind": pd.Series(kinds, dtype=object), "y": rng.normal(size=240)})
    seg = wc.segment(frame, 3, measure_quality=False)
    exp = seg.explain(frame)
    target = next(label for label in range(3) if label != exp.cluster[0])
    change = exp.counterfactual(0, target)
    column = change.feature_names.index("kind")
    value = change.single[column]
    assert value in ("b", None)
    if value is not None:
        moved = frame.iloc[[0]].assign(kind=pd.Series([value], dtype=object))
        assert seg.assign(moved)[0] == target
