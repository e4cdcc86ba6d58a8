"""Error messages of the evaluation: where, what was expected, what came, what to do."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from numpy.typing import NDArray

import whycluster as wc
from tests.optional import optional
from whycluster.evaluation import METHODS, ConditionalKDE, checks, compare, flipping_auc, shapley_values

if TYPE_CHECKING:
    import pandas as pd
else:
    pd = optional("pandas")

Array = NDArray[Any]
ZEROS = object()


def message(
    model: Any, X: Any, relevance: Any = ZEROS, kind: type[Exception] = wc.InvalidInputError, **options: Any
) -> str:
    with pytest.raises(kind) as error:
        flipping_auc(model, X, np.zeros(np.shape(X)) if relevance is ZEROS else relevance, **options)
    return str(error.value)


def test_relevance_of_another_shape(wine: Array, kmeans: Any) -> None:
    text = message(kmeans, wine, np.zeros((178, 12)))
    assert text == "flipping_auc: relevance must have the shape of X, (178, 13); got (178, 12)."
    assert "got (13,)" in message(kmeans, wine, np.zeros(13))


def test_nan_in_relevance(wine: Array, kmeans: Any) -> None:
    relevance = np.zeros_like(wine)
    relevance[3, 2] = relevance[7, 1] = np.nan
    assert (
        "relevance must not contain missing values (NaN); the value for row 3 and feature 'x2' is missing "
        "(2 in total)" in message(kmeans, wine, relevance)
    )


def test_relevance_without_numbers(wine: Array, kmeans: Any) -> None:
    masked = np.ma.masked_greater(wine, 1.0)
    for relevance in (masked, wine + 1j, wine.astype("m8[s]"), wine.astype(str), [[1], [1, 2]]):
        assert "must be an array of real numbers" in message(kmeans, wine, relevance=relevance)


def test_relevance_of_text(wine: Array, kmeans: Any) -> None:
    assert "relevance must be an array of real numbers" in message(kmeans, wine, np.full(wine.shape, "a"))


def test_a_density_of_equal_rows(wine: Array) -> None:
    with pytest.raises(wc.InvalidInputError) as error:
        ConditionalKDE(np.tile(wine[0], (5, 1)))
    assert str(error.value) == ("ConditionalKDE: at least one feature of X must vary; all 5 rows are equal.")


def test_duplicate_rows_have_no_bandwidth(wine: Array, kmeans: Any) -> None:
    text = message(kmeans, np.vstack([wine, wine]))
    assert "X must contain rows without duplicates to choose the bandwidth; every row has a duplicate" in text
    some = np.vstack([wine, wine[:50]])
    assert np.isfinite(flipping_auc(kmeans, some, np.zeros_like(some), repeats=1).auc)
    kde = ConditionalKDE(np.vstack([wine, wine]), bandwidth=0.5)
    assert np.isfinite(flipping_auc(kmeans, wine, np.zeros_like(wine), sampler=kde, repeats=1).auc)


def test_one_cluster(wine: Array, kmeans: Any) -> None:
    own = wine[kmeans.labels_ == 0]
    text = message(kmeans, own)
    assert "X must contain rows of at least 2 clusters" in text
    assert f"all {len(own)} rows are in one" in text
    assert "background=all_rows" in text
    found = flipping_auc(kmeans, own, np.zeros_like(own), sampler=ConditionalKDE(wine), repeats=1)
    assert 0 < found.auc < 100
    assert "at least 2 clusters" in message(lambda X: np.zeros(len(X)), wine)


@pytest.mark.parametrize("repeats", [0, -1, 2.5, True, "3", None])
def test_repeats(wine: Array, kmeans: Any, repeats: Any) -> None:
    text = message(kmeans, wine, repeats=repeats)
    assert text == f"flipping_auc: repeats must be an integer of at least 1; got {repeats!r}."


def test_samplers_with_wrong_results(wine: Array, kmeans: Any) -> None:
    text = message(kmeans, wine, sampler=lambda rows, _, __: rows[:, :3])
    assert "sampler must return rows of the same shape as its input" in text
    text = message(kmeans, wine, sampler=lambda rows, _, __: rows + 1.0)
    assert "keep known features unchanged; it changed known features" in text
    text = message(kmeans, wine, sampler=lambda rows, known, _: np.where(known, rows, np.nan))
    assert "it returned NaN or infinity" in text
    for sampler in ("mean", None, wine, ConditionalKDE):
        assert '"kde", "zero" or a function' in message(kmeans, wine, sampler=sampler)
    for given in ([[1.0], [1.0, 2.0]], "text"):
        text = message(kmeans, wine, sampler=lambda *_, given=given: given)
        assert "the result of sampler must be an array of real numbers" in text
    assert "its rows have 5" in message(kmeans, wine, sampler=ConditionalKDE(wine[:, :5]))


def test_functions_with_wrong_results(wine: Array) -> None:
    text = message(lambda X: np.zeros((len(X), 2)), wine)
    assert (
        text
        == "flipping_auc: model must return one label for each row; for 178 rows it returned shape (178, 2)."
    )


def test_missing_labels(wine: Array, kmeans: Any) -> None:
    nan = np.array([np.nan, 1, 2, 3, 4])
    assert "must return a label for each row; it returned nan" in message(
        lambda X: nan[kmeans.predict(X)], wine
    )
    nothing = [None, 1, 2, 3, 4]
    assert "it returned None" in message(lambda X: [nothing[c] for c in kmeans.predict(X)], wine)
    assert "numbers or strings" in message(lambda X: [{c} for c in kmeans.predict(X)], wine)
    assert "labels must be one-dimensional" in message(lambda X: [[1, 2]] * len(X), wine)


def test_default_methods_that_do_not_work_are_listed(wine: Array, kmeans: Any) -> None:
    X = np.vstack([wine, wine])
    found = compare(kmeans.cluster_centers_, X, sampler="zero", repeats=1)
    assert "X must contain rows without duplicates" in found.left_out["pda-kde"]
    assert "shapley" in found.methods
    one = wine[kmeans.labels_ == 0]
    with pytest.raises(wc.InvalidInputError, match="Pass background=all_rows"):
        METHODS["forest"](kmeans, one)


def test_models_with_labels_only(wine: Array) -> None:
    text = message([0, 1] * 89, wine, kind=wc.UnsupportedModelError)
    assert "wc.Surrogate().fit(X, labels)" in text


def test_missing_values_and_single_rows(wine: Array, kmeans: Any) -> None:
    X = wine.copy()
    X[5, 1] = np.nan
    assert "row 5, feature 'x1' holds a missing value" in message(kmeans, X)
    assert "at least 2 clusters" in message(kmeans, wine[:1])
    with pytest.raises(wc.InvalidInputError, match="at least 2 rows; got 1"):
        ConditionalKDE(wine[:1])


def test_the_density(wine: Array) -> None:
    for bandwidth in (0.0, -1.0, np.nan, np.inf, "wide", True):
        with pytest.raises(
            wc.InvalidInputError, match="bandwidth must be a number of standard deviations, from 1e-6 to 1e6"
        ):
            ConditionalKDE(wine, bandwidth=bandwidth)  # type: ignore[arg-type]
    for categorical in ([True, False], [np.nan] * 13):
        with pytest.raises(wc.InvalidInputError, match="categorical must be 13 booleans, one per feature"):
            ConditionalKDE(wine, categorical=categorical)
    kde, rng = ConditionalKDE(wine), np.random.default_rng(0)
    with pytest.raises(wc.InvalidInputError, match=r"shape \(b, 13\); got \(13,\) and \(13,\)"):
        kde(wine[0], wine[0] > 0, rng)
    with pytest.raises(wc.InvalidInputError, match="known must be a boolean array; got float64"):
        kde(wine, wine, rng)


@pytest.mark.parametrize("seed", [-1, None, 0.5, "0"])
def test_seeds(wine: Array, kmeans: Any, seed: Any) -> None:
    """All methods see the same draws with the same seed, so a seed is required."""
    told = f"random_state must be an integer of at least 0; got {seed!r}"
    for call in (
        lambda: flipping_auc(kmeans, wine, wine, random_state=seed),
        lambda: compare(kmeans, wine, ["random"], random_state=seed),
        lambda: shapley_values(kmeans, wine, random_state=seed),
        lambda: METHODS["random"](kmeans, wine, random_state=seed),
        lambda: ConditionalKDE(wine, random_state=seed),
        lambda: checks.run(kmeans, wine, random_state=seed),
        lambda: checks.randomization(kmeans, wine, random_state=seed),
        lambda: checks.stability(kmeans, wine, random_state=seed),
    ):
        with pytest.raises(wc.InvalidInputError) as error:
            call()
        assert told in str(error.value)


def test_the_comparison(wine: Array, kmeans: Any) -> None:
    with pytest.raises(wc.InvalidInputError, match=r"methods must be among 'random', .*; got 'magic'"):
        compare(kmeans, wine, ["magic"])
    wrong: tuple[Any, ...] = ([], {"greedy oracle": wine}, {3: wine})
    for methods in wrong:
        with pytest.raises(
            wc.InvalidInputError, match="at least one name, all names must be strings, and none may be"
        ):
            compare(kmeans, wine, methods)
    with pytest.raises(wc.InvalidInputError, match=r"got 'joint'. Did you mean 'neon joint'\?"):
        compare(kmeans, wine, ["neon", "joint"])
    with pytest.raises(wc.InvalidInputError) as error:
        compare(kmeans, wine, ["neon", wine])  # type: ignore[list-item]
    assert str(error.value).endswith("Pass your own method as {name: relevance}.")
    assert len(str(error.value)) < 600
    with pytest.raises(wc.InvalidInputError, match="a list of names or a dict; got 3"):
        compare(kmeans, wine, 3)  # type: ignore[arg-type]
    with pytest.raises(wc.InvalidInputError, match="oracle must be"):
        compare(kmeans, wine, ["random"], oracle=np.zeros(2))  # type: ignore[arg-type]
    with pytest.raises(wc.InvalidInputError, match="oracle must be True, False or \"auto\"; got 'yes'"):
        compare(kmeans, wine, ["random"], oracle="yes")
    with pytest.raises(wc.InvalidInputError, match="compare: repeats must be"):
        compare(kmeans, wine, ["random"], repeats=0)
    with pytest.raises(wc.InvalidInputError, match="compare: relevance must have the shape of X"):
        compare(kmeans, wine, {"mine": np.zeros(3)})


def test_shapley_values(wine: Array, kmeans: Any) -> None:
    with pytest.raises(wc.InvalidInputError, match=r"at most 12 features.*got 13. Pass permutations=100"):
        shapley_values(kmeans, wine, permutations="exact")
    with pytest.raises(
        wc.InvalidInputError, match='permutations must be "exact" or an integer of at least 1'
    ):
        shapley_values(kmeans, wine, permutations=0)


def test_a_forest_learns_from_float32_and_takes_any_seed() -> None:
    """Found by fuzzing."""
    pytest.importorskip("shap", reason="shap is not installed")
    X = np.random.default_rng(0).normal(size=(12, 3))
    centroids, forest = X[:3].copy(), METHODS["forest"]
    np.testing.assert_array_equal(
        forest(centroids, X, random_state=2**32 + 5), forest(centroids, X, random_state=5)
    )
    X[0, 0] = 1e39
    with pytest.raises(wc.InvalidInputError) as error:
        compare(centroids, X, ["forest"])
    assert str(error.value) == (
        "compare: the population must have values that float32 can hold, so that a forest can learn from "
        "them; the largest is 1e+39. Scale the features."
    )


@pytest.mark.parametrize("size", [1e-200, 1e-160])
def test_rows_whose_distances_overflow(size: float) -> None:
    drawn = np.random.default_rng(0).normal(size=(5, 2))
    X, deviation = size * drawn, size * drawn[:, 1].std()  # the squares of X underflow
    row = np.array([[0.0, 1e150]])
    expected = (
        "ConditionalKDE: rows must not be so far from X that their distances overflow; a row has 1e+150 in "
        f"feature 1, which has a standard deviation of {deviation:.6g} in X. Correct such values, or "
        "scale the data."
    )
    for known in (np.array([[True, True]]), np.array([[True, False]])):
        with pytest.raises(wc.InvalidInputError, match=f"^{re.escape(expected)}$"):
            ConditionalKDE(X)(row, known, np.random.default_rng(0))
