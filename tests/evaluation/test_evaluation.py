"""Algorithm 1, its density, the methods, the oracle and the comparison."""

from __future__ import annotations

import pickle
import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from sklearn.cluster import DBSCAN, BisectingKMeans, KMeans
from sklearn.datasets import load_iris
from sklearn.mixture import GaussianMixture
from sklearn.preprocessing import StandardScaler
from threadpoolctl import threadpool_limits

import whycluster as wc
from tests.optional import optional
from tests.reference import flipping as reference
from tests.reference.shapley import shapley
from whycluster.evaluation import (
    METHODS,
    ConditionalKDE,
    Flipping,
    compare,
    flipping_auc,
    samplers,
    shapley_values,
)
from whycluster.evaluation.comparison import ORACLE
from whycluster.evaluation.oracle import greedy
from whycluster.evaluation.subject import Subject

if TYPE_CHECKING:
    import pandas as pd
    import polars as pl
    from kmodes.kmodes import KModes
else:
    pd = optional("pandas")
    pl = optional("polars")
    KModes = optional("kmodes.kmodes:KModes")

Array = NDArray[Any]


@pytest.fixture(scope="module")
def iris() -> Array:
    return np.asarray(StandardScaler().fit_transform(load_iris().data))


@pytest.fixture(scope="module")
def iris_model(iris: Array) -> Any:
    return KMeans(4, n_init=3, random_state=0).fit(iris)


def one_row(model: Any) -> Callable[[Array], int]:
    return lambda x: int(model.predict(x[None])[0])


# --- Algorithm 1


def test_curves_match_algorithm_1(iris: Array, iris_model: Any) -> None:
    """With fixed values for missing features nothing is random, and every curve must match."""
    relevance = wc.explain(iris_model, iris).relevance
    found = flipping_auc(
        iris_model, iris, relevance, sampler=lambda rows, known, _: np.where(known, rows, 0.3), repeats=2
    )

    def complete(z: Array, known: list[int], _: Any) -> Array:
        filled = np.full_like(z, 0.3)
        filled[known] = z[known]
        return filled

    rng = np.random.default_rng(0)
    curves = [
        reference.curve(one_row(iris_model), z, r, complete, rng)
        for z, r in zip(iris, relevance, strict=True)
    ]
    assert np.array_equal(found.curves, curves)
    areas = [reference.area(values) for values in curves]
    assert found.per_row == pytest.approx(areas)
    assert found.auc == pytest.approx(np.mean(areas))
    assert found.standard_error == pytest.approx(np.std(areas, ddof=1) / np.sqrt(len(areas)))
    assert found.curve == pytest.approx(np.mean(curves, axis=0))


@pytest.mark.slow
def test_curves_with_the_density_match_up_to_sampling_error(iris: Array, iris_model: Any) -> None:
    X = iris[::4]
    relevance = wc.explain(iris_model, X).relevance
    kde = ConditionalKDE(X)
    standard = (X - X.mean(axis=0)) / X.std(axis=0)
    draw = reference.density(standard, kde.bandwidth**2)

    def complete(z: Array, known: list[int], rng: np.random.Generator) -> Array:
        scaled = draw((z - X.mean(axis=0)) / X.std(axis=0), known, rng) * X.std(axis=0) + X.mean(axis=0)
        scaled[known] = z[known]
        return np.asarray(scaled)

    rng = np.random.default_rng(0)
    repeats = 40
    slow = np.array(
        [
            [
                reference.area(reference.curve(one_row(iris_model), z, r, complete, rng))
                for _ in range(repeats)
            ]
            for z, r in zip(X, relevance, strict=True)
        ]
    )
    error = np.sqrt((slow.var(axis=1, ddof=1) / repeats).sum()) / len(X)
    fast = flipping_auc(iris_model, X, relevance, repeats=200).auc
    assert abs(fast - slow.mean()) < 4 * error
    assert error < 0.5


def test_good_orders_beat_random_orders_and_these_beat_reversed_orders(wine: Array, kmeans: Any) -> None:
    relevance = wc.explain(kmeans, wine).relevance
    good, bad = flipping_auc(kmeans, wine, relevance), flipping_auc(kmeans, wine, -relevance)
    random = flipping_auc(kmeans, wine, np.random.default_rng(0).random(wine.shape))
    assert good.auc > random.auc + 5 > bad.auc + 10
    assert (good.curves[:, -1] == 1.0).all()  # all features are known
    assert "AUC" in repr(good)


def test_only_the_order_counts_and_the_seed_fixes_the_draws(iris: Array, iris_model: Any) -> None:
    relevance = wc.explain(iris_model, iris).relevance
    first = flipping_auc(iris_model, iris, relevance, repeats=3)
    assert np.array_equal(first.curves, flipping_auc(iris_model, iris, relevance * 7 + 1, repeats=3).curves)
    assert np.array_equal(
        first.curves, flipping_auc(iris_model, iris, wc.explain(iris_model, iris), repeats=3).curves
    )
    other = flipping_auc(iris_model, iris, relevance, repeats=3, random_state=1)
    assert not np.array_equal(first.curves, other.curves)


def test_ties_are_broken_at_random(wine: Array, kmeans: Any) -> None:
    relevance = wc.explain(kmeans, wine).relevance
    by_use = np.argsort(-np.abs(relevance).mean(axis=0))
    flat = np.zeros_like(wine)
    first = flipping_auc(KMeans(5, n_init=3, random_state=0).fit(wine[:, by_use]), wine[:, by_use], flat)
    last = flipping_auc(
        KMeans(5, n_init=3, random_state=0).fit(wine[:, by_use[::-1]]), wine[:, by_use[::-1]], flat
    )
    assert abs(first.auc - last.auc) < 4  # they would differ by 15 in the order of the columns


def test_any_function_that_returns_labels(iris: Array, iris_model: Any) -> None:
    relevance = wc.explain(iris_model, iris).relevance
    by_model = flipping_auc(iris_model, iris, relevance)
    by_function = flipping_auc(iris_model.predict, iris, relevance)
    assert np.array_equal(by_model.curves, by_function.curves)
    named = flipping_auc(lambda X: np.array(list("abcd"))[iris_model.predict(X)], iris, relevance)
    assert np.array_equal(by_model.curves, named.curves)


def test_a_function_gets_frames_of_the_same_library(iris: Array, iris_model: Any) -> None:
    seen = set()

    def predict(frame: pl.DataFrame) -> Array:
        seen.add((type(frame), tuple(frame.columns)))
        return np.asarray(iris_model.predict(frame.to_numpy()))

    frame = pl.DataFrame(iris, schema=["a", "b", "c", "d"])
    flipping_auc(predict, frame, wc.explain(iris_model, iris).relevance, repeats=1)
    assert seen == {(pl.DataFrame, ("a", "b", "c", "d"))}


def test_a_function_is_called_on_one_thread_only(iris: Array, iris_model: Any) -> None:
    threads = set()

    def predict(rows: Array) -> Array:
        threads.add(threading.get_ident())
        return np.asarray(iris_model.predict(rows))

    flipping_auc(predict, iris, wc.explain(iris_model, iris).relevance, repeats=1)
    assert threads == {threading.get_ident()}


@pytest.mark.parametrize(
    "model",
    [
        lambda X: GaussianMixture(3, random_state=0).fit(X),
        lambda X: BisectingKMeans(4, random_state=0).fit(X),
        lambda X: wc.KernelKMeans(3, random_state=0).fit(X),
        lambda X: wc.Surrogate().fit(X, DBSCAN(eps=0.5).fit_predict(X)),
        lambda X: X[::40],
    ],
    ids=["mixture", "tree", "kernel", "surrogate", "centroids"],
)
def test_every_kind_of_model(iris: Array, model: Any) -> None:
    fitted = model(iris)
    backwards = -METHODS["neon"](fitted, iris)
    found = compare(fitted, iris, {**METHODS, "backwards": backwards}, repeats=2, oracle=False)
    assert set(found.methods) == {*METHODS, "backwards"}
    gap, error = found.difference("neon", "backwards")
    assert gap > 2 * error


def test_categories_are_drawn_without_noise(iris: Array) -> None:
    kinds = pd.DataFrame(iris).apply(lambda column: pd.qcut(column, 3, labels=list("abc")).astype(str))
    kinds.columns = list("wxyz")
    model = KModes(3, n_init=2, random_state=0).fit(kinds)
    exp = wc.explain(model, kinds)
    good = flipping_auc(model, kinds, exp, repeats=3)
    assert good.auc > flipping_auc(model, kinds, -exp.relevance, repeats=3).auc + 3
    with pytest.raises(wc.InvalidInputError, match="must have the same categorical features"):
        flipping_auc(model, kinds, exp, sampler=ConditionalKDE(iris + np.arange(len(iris))[:, None]))
    codes = np.random.default_rng(0).integers(4, size=(200, 2)).astype(float)
    kde = ConditionalKDE(codes, categorical=[True, True])
    known = np.tile([True, False], (200, 1))
    drawn = kde(codes, known, np.random.default_rng(0))
    assert set(np.unique(drawn)) <= {0.0, 1.0, 2.0, 3.0}


def test_the_model_and_the_data_do_not_change(iris: Array, iris_model: Any) -> None:
    before, centers = iris.copy(), iris_model.cluster_centers_.copy()
    compare(iris_model, iris, repeats=1)
    assert np.array_equal(iris, before)
    assert np.array_equal(iris_model.cluster_centers_, centers)


# --- the density


def test_the_bandwidth_is_the_fixed_point_of_the_leave_one_out_likelihood(iris: Array) -> None:
    X = iris[::3]
    variance = ConditionalKDE(X).bandwidth ** 2
    standard = (X - X.mean(axis=0)) / X.std(axis=0)
    assert reference.next_variance(standard, variance) == pytest.approx(variance, rel=1e-3)
    for factor in (0.5, 2.0):  # other bandwidths are not fixed points
        assert abs(reference.next_variance(standard, factor * variance) / (factor * variance) - 1) > 0.1


def test_rows_are_drawn_with_the_weights_of_the_density(iris: Array) -> None:
    X, z, known = iris[::5], iris[1], [0, 2]
    kde = ConditionalKDE(X)
    mask = np.isin(np.arange(4), known)[None]
    n_draws = 20_000
    drawn = kde.draw(z[None], mask, n_draws, np.random.default_rng(0))[:, 0]
    assert (drawn[:, known] == z[known]).all()
    standard, at = (X - X.mean(axis=0)) / X.std(axis=0), (z - X.mean(axis=0)) / X.std(axis=0)
    p = reference.weights(standard, at, known, kde.bandwidth**2)
    for i in (1, 3):  # mixtures of normal distributions around the rows
        mean = p @ X[:, i]
        variance = p @ (X[:, i] - mean) ** 2 + (kde.bandwidth * X[:, i].std()) ** 2
        assert drawn[:, i].mean() == pytest.approx(mean, abs=5 * np.sqrt(variance / n_draws))
        assert drawn[:, i].var() == pytest.approx(variance, rel=0.05)


def test_without_known_features_all_data_are_drawn_from(iris: Array) -> None:
    kde = ConditionalKDE(iris)
    drawn = kde.draw(iris[:1], np.zeros((1, 4), bool), 20_000, np.random.default_rng(0))[:, 0]
    assert drawn.mean(axis=0) == pytest.approx(iris.mean(axis=0), abs=0.05)
    assert drawn.var(axis=0) == pytest.approx(iris.var(axis=0) * (1 + kde.bandwidth**2), rel=0.05)


def test_units_do_not_matter_to_the_density(iris: Array, iris_model: Any) -> None:
    scale, shift = np.array([1e-3, 1.0, 1e3, 1e6]), np.array([5.0, 0.0, -1e4, 1e7])
    moved = iris * scale + shift
    assert ConditionalKDE(moved).bandwidth == pytest.approx(ConditionalKDE(iris).bandwidth, rel=1e-3)
    relevance = wc.explain(iris_model, iris).relevance
    here = flipping_auc(iris_model, iris, relevance, repeats=2)
    there = flipping_auc(lambda X: iris_model.predict((X - shift) / scale), moved, relevance, repeats=2)
    assert np.abs(here.curves - there.curves).mean() < 1e-3


def test_a_constant_feature_is_drawn_as_it_is_and_changes_nothing_else(iris: Array) -> None:
    with_constant = np.insert(iris, 2, 7.0, axis=1)
    without, kde = ConditionalKDE(iris), ConditionalKDE(with_constant)
    assert kde.bandwidth == pytest.approx(without.bandwidth, rel=1e-9)
    known = np.array([True, False, False, True])
    drawn = kde.draw(
        with_constant[:9], np.tile(np.insert(known, 2, False), (9, 1)), 99, np.random.default_rng(0)
    )
    assert (drawn[..., 2] == 7.0).all()
    others = without.draw(iris[:9], np.tile(known, (9, 1)), 99, np.random.default_rng(0))
    assert np.delete(drawn, 2, axis=2).mean(axis=(0, 1)) == pytest.approx(others.mean(axis=(0, 1)), abs=0.1)


def test_a_large_table_is_sampled_and_memory_stays_bounded() -> None:
    import tracemalloc

    X = np.random.default_rng(0).normal(size=(30_000, 4))
    tracemalloc.start()
    kde = ConditionalKDE(X)
    kde(X[:3000], np.tile([True, False, True, False], (3000, 1)), np.random.default_rng(0))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert len(kde.rows) == 10_000
    assert peak < 250e6  # 30,000 x 30,000 distances would take 7.2 GB


@given(st.integers(0, 2**32 - 1), st.integers(1, 6), st.integers(3, 30))
def test_known_features_are_kept_and_the_others_are_finite(seed: int, d: int, n: int) -> None:
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, d)) * 10.0 ** rng.integers(-6, 6)
    z, known = rng.normal(size=(5, d)), rng.random((5, d)) < 0.5
    drawn = ConditionalKDE(X).draw(z, known, 3, rng)
    assert drawn.shape == (3, 5, d)
    assert np.isfinite(drawn).all()
    assert (drawn[:, known] == z[known]).all()


# --- the methods


def test_every_method_returns_a_relevance_for_every_row_and_feature(iris: Array, iris_model: Any) -> None:
    network = wc.neuralize(iris_model)
    for name, method in METHODS.items():
        relevance = method(network, iris)
        assert relevance.shape == iris.shape, name
        assert np.isfinite(relevance).all(), name


def test_rules_match_explain(iris: Array, iris_model: Any) -> None:
    for name, rule in (
        ("neon", "min-take-most"),
        ("neon joint", "joint"),
        ("neon sequential", "sequential"),
        ("nearest centroid", "contrast"),
    ):
        assert METHODS[name](iris_model, iris) == pytest.approx(
            wc.explain(iris_model, iris, rule=rule).relevance
        )


def test_nearest_centroid_analysis_is_the_difference_of_squared_distances(
    iris: Array, iris_model: Any
) -> None:
    centers = iris_model.cluster_centers_
    distances = ((iris[:, None] - centers) ** 2).sum(axis=2)
    nearest, second = np.argsort(distances, axis=1)[:, :2].T
    expected = (iris - centers[second]) ** 2 - (iris - centers[nearest]) ** 2
    assert METHODS["nearest centroid"](iris_model, iris) == pytest.approx(expected)


def test_prediction_difference_with_zeros(iris: Array, iris_model: Any) -> None:
    expected = [reference.without_each(one_row(iris_model), z) for z in iris]
    assert np.array_equal(METHODS["pda-zero"](iris_model, iris), expected)


def test_prediction_difference_with_draws(iris: Array, iris_model: Any) -> None:
    """A feature that the clustering ignores has no relevance."""
    X = np.column_stack([iris, np.random.default_rng(0).normal(size=len(iris))])
    found = METHODS["pda-kde"](lambda rows: iris_model.predict(rows[:, :4]), X)
    assert (found[:, 4] == 0.0).all()
    assert found[:, :4].max() > 0.5


def test_integrated_gradients_add_up_to_the_gain_over_the_origin(iris: Array) -> None:
    """The evidence of two clusters is linear in x, so ten steps are exact."""
    model = KMeans(2, n_init=1, random_state=0).fit(iris)
    network = wc.neuralize(model)
    own = model.predict(iris)
    gain = network.evidence(iris) - network.evidence(np.zeros((1, 4)))
    assert METHODS["ig-10"](network, iris).sum(axis=1) == pytest.approx(gain[np.arange(len(iris)), own])


def test_integrated_gradients_are_a_mean_along_the_path(iris: Array, iris_model: Any) -> None:
    network = wc.neuralize(iris_model)
    found = METHODS["ig-10"](network, iris)
    for row in (3, 70, 140):
        own = iris_model.predict(iris[[row]])
        expected = reference.integrated_gradients(
            lambda z, own=own: network.gradient(z[None], target=own[0])[0],  # type: ignore[misc]
            iris[row],
        )
        assert found[row] == pytest.approx(expected)


@pytest.mark.slow
def test_exact_shapley_values_match_all_coalitions(iris: Array, iris_model: Any) -> None:
    X = iris[::15]
    found = shapley_values(iris_model, X, permutations="exact")
    for row, x in enumerate(X):
        cluster = one_row(iris_model)(x)
        slow = [
            shapley(lambda point, c=cluster: float(one_row(iris_model)(point) == c), x, other)  # type: ignore[misc]
            for other in X
        ]
        assert found[row] == pytest.approx(np.mean(slow, axis=0))


def test_sampled_shapley_values_come_close_to_the_exact_ones(iris: Array, iris_model: Any) -> None:
    exact = shapley_values(iris_model, iris, permutations="exact")
    errors = [np.abs(shapley_values(iris_model, iris, permutations=n) - exact).mean() for n in (10, 1000)]
    assert errors[1] < 0.015
    assert errors[0] > 4 * errors[1]  # a hundred times the permutations, a tenth of the error


def test_shapley_values_add_up_to_the_gain(iris: Array, iris_model: Any) -> None:
    """The gain is from the share of all rows that are in the cluster to 1."""
    own = iris_model.predict(iris)
    expected = 1.0 - np.bincount(own)[own] / len(iris)
    assert shapley_values(iris_model, iris, permutations="exact").sum(axis=1) == pytest.approx(expected)
    sampled = shapley_values(iris_model, iris, permutations=100).sum(axis=1)
    assert sampled.mean() == pytest.approx(expected.mean(), abs=0.02)


def test_the_forest_finds_the_relevant_features(iris: Array) -> None:
    X = np.column_stack([iris, np.random.default_rng(0).normal(size=(len(iris), 2))])
    relevance = METHODS["forest"](lambda rows: (rows[:, 2] > 0).astype(int), X)
    assert (relevance.argmax(axis=1) == 2).mean() > 0.9


# --- the oracle and the comparison


def test_the_oracle_adds_the_best_feature_at_each_step(iris: Array, iris_model: Any) -> None:
    """With zeros for missing features only ties are random, and a loop can follow the order."""
    relevance = greedy(Subject(iris_model, iris, "test"), samplers.zero, 0)
    assert (np.sort(relevance, axis=1) == [1, 2, 3, 4]).all()
    for z, order in zip(iris, np.argsort(-relevance, axis=1), strict=True):
        cluster, known = one_row(iris_model)(z), np.zeros(4, bool)
        for chosen in order:
            chances = {}
            for i in np.flatnonzero(~known):
                tried = known.copy()
                tried[i] = True
                chances[i] = one_row(iris_model)(np.where(tried, z, 0.0)) == cluster
            assert chances[chosen] == max(chances.values())
            known[chosen] = True


def test_the_oracle_is_an_upper_bound(wine: Array, kmeans: Any) -> None:
    found = compare(kmeans, wine, ["random", "neon", "neon joint", "shapley"], repeats=5, oracle=True)
    assert found.methods[0] == ORACLE
    assert found.share(ORACLE) == 1.0
    assert found.share("random") == 0.0
    assert 0.5 < found.share("neon") < 1.0
    gap, error = found.difference(ORACLE, "neon")
    assert gap > 2 * error > 0.0
    assert gap == pytest.approx(found.flipping[ORACLE].auc - found.flipping["neon"].auc)


def test_the_comparison_is_a_table(iris: Array) -> None:
    pytest.importorskip("shap")
    frame = pd.DataFrame(iris, columns=list("abcd"))
    found = compare(KMeans(4, n_init=3, random_state=0).fit(frame), frame, repeats=2)
    table = found.to_frame()
    assert isinstance(table, pd.DataFrame)
    assert list(table.columns) == ["method", "auc", "standard_error", "share", "seconds"]
    assert set(table["method"]) == {*METHODS, ORACLE}
    assert table["auc"].is_monotonic_decreasing
    assert isinstance(found.to_frame("polars"), pl.DataFrame)
    printed = str(found)
    for name in METHODS:
        assert name in printed
    assert found.methods[0] in repr(found)


def test_custom_methods(iris: Array, iris_model: Any) -> None:
    exp = wc.explain(iris_model, iris, rule="joint")
    found = compare(
        iris_model,
        iris,
        {
            "mine": lambda model, X: wc.explain(model, X, rule="joint"),
            "stored": exp.relevance,
            "named": "neon joint",
        },
        repeats=2,
        oracle=False,
    )
    assert np.array_equal(found.flipping["mine"].curves, found.flipping["stored"].curves)
    assert np.array_equal(found.flipping["mine"].curves, found.flipping["named"].curves)
    assert np.isnan(found.share("mine"))
    same = flipping_auc(iris_model, iris, exp, repeats=2)
    assert np.array_equal(found.flipping["mine"].curves, same.curves)


def test_methods_that_need_energies_are_left_out_for_functions(iris: Array, iris_model: Any) -> None:
    pytest.importorskip("shap")
    found = compare(iris_model.predict, iris, repeats=1, oracle=False)
    assert "shapley" in found.methods
    assert "neon" not in found.methods
    printed = str(found)
    assert "neon, neon joint, neon sequential (model must provide energies" in printed
    assert printed.count("left out:") == 1
    with pytest.raises(wc.InvalidInputError, match="model must provide energies"):
        compare(iris_model.predict, iris, ["neon"])


def test_the_forest_is_left_out_without_shap(
    iris: Array, iris_model: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    import importlib.util

    find = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name, *a: None if name == "shap" else find(name, *a)
    )
    found = compare(iris_model, iris, repeats=1, oracle=False)
    assert "forest" not in found.methods
    assert "pip install" in found.left_out["forest"]
    with pytest.raises(wc.MissingDependencyError, match="shap"):
        compare(iris_model, iris, ["forest"])


def test_a_single_row_has_no_standard_error() -> None:
    assert np.isnan(Flipping(np.ones((1, 3))).standard_error)
    assert Flipping(np.array([[0.0, 1.0, 1.0]])).auc == pytest.approx(75.0)


# --- seeds, threads, populations


def test_the_seed_is_passed_to_the_methods(iris: Array, iris_model: Any) -> None:
    """Methods that draw use the seed, but other draws than the curves."""
    curves = [
        compare(iris_model, iris, ["random"], sampler="zero", random_state=seed).flipping["random"].curves
        for seed in (0, 0, 1)
    ]
    assert np.array_equal(curves[0], curves[1])
    assert not np.array_equal(curves[0], curves[2])
    for name in ("shapley", "pda-kde", "forest"):
        first, again, other = (METHODS[name](iris_model, iris, random_state=seed) for seed in (0, 0, 1))
        assert np.array_equal(first, again), name
        assert not np.array_equal(first, other), name


@pytest.mark.usefixtures("two_threads")
def test_threads_change_nothing(wine: Array, kmeans: Any) -> None:
    relevance = wc.explain(kmeans, wine).relevance
    with threadpool_limits(1):
        alone = flipping_auc(kmeans, wine, relevance).curves, shapley_values(kmeans, wine, permutations=10)
    together = flipping_auc(kmeans, wine, relevance).curves, shapley_values(kmeans, wine, permutations=10)
    for one, two in zip(alone, together, strict=True):
        assert np.array_equal(one, two)


def test_a_sampler_is_called_on_one_thread_only(iris: Array, iris_model: Any) -> None:
    threads = set()

    def sampler(rows: Array, known: Array, _: Any) -> Array:
        threads.add(threading.get_ident())
        return np.where(known, rows, 0.0)

    compare(iris_model, iris, ["random"], sampler=sampler, repeats=1)
    assert threads == {threading.get_ident()}


@pytest.mark.usefixtures("two_threads")
def test_the_first_error_stops_all_blocks(wine: Array, kmeans: Any) -> None:
    """This holds for any number of blocks and threads."""
    subject = Subject(kmeans, wine, "test")
    steps = []

    def work(rows: slice, _: Any, step: Any) -> None:
        if rows.start == 0:
            raise ZeroDivisionError
        for _ in range(1000):
            time.sleep(0.001)
            step()
            steps.append(rows.start)

    with pytest.raises(ZeroDivisionError):
        subject.in_blocks(work, "test", 1000, 1, 0)
    assert len(steps) < 500  # of 3000


def test_a_few_rows_of_a_population(wine: Array, kmeans: Any) -> None:
    """Methods then draw, measure and learn from the population."""
    pytest.importorskip("shap")
    few = wine[kmeans.labels_ == 0][:10]
    network = wc.neuralize(kmeans)
    whole = wc.explain(kmeans, few, background=wine, rule="sequential").relevance
    assert METHODS["neon sequential"](network, few, background=wine) == pytest.approx(whole)
    found = compare(kmeans, few, background=wine, repeats=2)
    assert set(found.methods) == {*METHODS, ORACLE}
    assert not found.left_out
    exact = shapley_values(network, few[:, :], permutations=500, background=wine)
    own = (kmeans.labels_ == 0).mean()
    assert exact.sum(axis=1).mean() == pytest.approx(1.0 - own, abs=0.05)
    given = ConditionalKDE(wine)
    relevance = wc.explain(kmeans, few, background=wine).relevance
    one = flipping_auc(kmeans, few, relevance, background=wine)
    assert np.array_equal(one.curves, flipping_auc(kmeans, few, relevance, sampler=given).curves)


def test_columns_are_matched_by_name(iris: Array) -> None:
    frame = pd.DataFrame(iris, columns=list("abcd"))
    turned = frame[list("dcba")]
    model = KMeans(4, n_init=3, random_state=0).fit(frame)
    exp = wc.explain(model, frame)
    expected = flipping_auc(model, frame, exp).curves
    relevance = exp.to_frame()[list("dcba")]
    for X, background in ((frame, turned), (turned, frame), (turned, None)):
        found = flipping_auc(model, X, relevance, background=background)
        assert np.array_equal(found.curves, expected)
    with pytest.raises(wc.InvalidInputError, match="in their order, which begins"):
        flipping_auc(model, frame, exp, sampler=ConditionalKDE(turned))
    unnamed = KMeans(4, n_init=3, random_state=0).fit(iris)  # has no names to match
    by_position = flipping_auc(unnamed, iris, exp.relevance, sampler=ConditionalKDE(frame))
    assert np.array_equal(by_position.curves, expected)
    seen = flipping_auc(lambda X: model.predict(X[list("abcd")]), turned, relevance, background=frame)
    assert seen.auc == pytest.approx(flipping_auc(model, frame, exp).auc, abs=3)


def test_labels_of_any_kind_from_a_function(iris: Array, iris_model: Any) -> None:
    relevance = wc.explain(iris_model, iris).relevance
    expected = flipping_auc(iris_model, iris, relevance).curves
    for name in (
        lambda code: "noise" if code == 0 else int(code),  # a list of text and numbers
        lambda code: float(code) / 2,
        lambda code: bytes([code]),
        lambda code: (int(code), "tuple")[0],
    ):
        found = flipping_auc(lambda X, name=name: [name(c) for c in iris_model.predict(X)], iris, relevance)
        assert np.array_equal(found.curves, expected)
    series = flipping_auc(lambda X: pd.Series(iris_model.predict(X)).astype("category"), iris, relevance)
    assert np.array_equal(series.curves, expected)


def test_a_function_gets_sparse_rows_for_sparse_data(iris: Array, iris_model: Any) -> None:
    kinds = set()

    def predict(rows: Any) -> Array:
        kinds.add(type(rows))
        return np.asarray(iris_model.predict(rows.toarray()))

    X = sp.csr_array(iris)
    flipping_auc(predict, X, iris, repeats=1)
    assert kinds == {sp.csr_array}


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("scale", [1e-250, 1e-160, 1e120])
def test_scales(iris: Array, iris_model: Any, scale: float) -> None:
    """Squares of such numbers underflow or overflow; the density avoids them."""
    relevance = wc.explain(iris_model, iris).relevance
    found = flipping_auc(lambda X: iris_model.predict(X / scale), iris * scale, relevance, repeats=2)
    assert found.auc == pytest.approx(flipping_auc(iris_model, iris, relevance, repeats=2).auc, abs=1.0)


def test_results_can_be_pickled(iris: Array, iris_model: Any) -> None:
    found = compare(iris_model, iris, ["neon", "random"], repeats=1)
    again = pickle.loads(pickle.dumps(found))
    assert str(again) == str(found)
    assert pickle.loads(pickle.dumps(METHODS["neon"])).title == METHODS["neon"].title
    with pytest.raises(ValueError, match="read-only"):
        found.flipping["neon"].curves[0] = 0.0
