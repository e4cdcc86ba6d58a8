"""Tests of the kernel k-means estimator."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from numpy.typing import NDArray
from sklearn.base import clone
from sklearn.cluster import KMeans
from sklearn.datasets import load_digits, make_circles, make_moons
from sklearn.metrics import adjusted_rand_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import check_estimator

import whycluster as wc
from tests.optional import load_frame, optional
from tests.reference import kernel, kernel_kmeans
from whycluster.clustering.kernel_kmeans import _assign_rows, _Support, _update_support

if TYPE_CHECKING:
    import pandas as pd
else:
    pd = optional("pandas")

Array = NDArray[np.float64]


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:Skipping check check_array_api_input")  # array API: scikit-learn's option
@pytest.mark.parametrize("options", [{}, {"n_clusters": 3, "n_support": 2, "gamma": 0.5}])
def test_it_passes_the_checks_of_scikit_learn(options: Any) -> None:
    check_estimator(wc.KernelKMeans(**options))


def reference_of(model: Any) -> kernel.Kernel:
    vectors = [model.support_vectors_[model.support_cluster_ == k] for k in range(model.n_clusters)]
    return kernel.Kernel.plain(vectors, model.gamma_)


def test_predictions_and_energies_match_the_reference(wine: Array) -> None:
    model = wc.KernelKMeans(4, n_support=5, random_state=0).fit(wine)
    slow = reference_of(model)
    expected = [[kernel.energy(x, slow, k) for k in range(4)] for x in wine]
    assert np.allclose(model.transform(wine), expected, rtol=1e-9)
    assert model.predict(wine).tolist() == [kernel.assign(x, slow) for x in wine]
    assert (model.labels_ == model.predict(wine)).all()
    assert model.inertia_ == pytest.approx(kernel_kmeans.inertia(wine, slow), rel=1e-9)
    assert model.support_vectors_.shape == (20, 13)
    assert list(model.get_feature_names_out()) == [f"kernelkmeans{k}" for k in range(4)]


def test_an_alternation_matches_the_reference(wine: Array) -> None:
    support = _Support([wine[:4], wine[60:65], wine[150:152]], 0.2)
    slow = kernel.Kernel.plain(support.vectors, 0.2)
    for _ in range(3):
        labels, least, sums = _assign_rows(wine, support)
        assert labels.tolist() == [kernel.assign(x, slow) for x in wine]
        assert sums.inertia == pytest.approx(kernel_kmeans.inertia(wine, slow), rel=1e-10)
        support, slow = (
            _update_support(wine, labels, least, sums, support),
            kernel_kmeans.alternate(wine, slow),
        )
        for found, expected in zip(support.vectors, slow.support, strict=True):
            assert np.allclose(found, expected, rtol=1e-9)


def test_inertia_falls_with_every_alternation(wine: Array) -> None:
    start = np.arange(len(wine)) % 5
    model = wc.KernelKMeans(5, n_support=4, gamma=0.3, init=start, tol=0.0, random_state=0)
    fits = [clone(model).set_params(max_iter=n).fit(wine) for n in range(12)]
    inertias = [fit.inertia_ for fit in fits]
    assert all(later <= earlier * (1 + 1e-12) for earlier, later in pairwise(inertias))
    assert inertias[-1] < inertias[0]
    assert [fit.n_iter_ for fit in fits[:3]] == [0, 1, 2]


def test_one_support_vector_gives_k_means(wine: Array) -> None:
    start = KMeans(3, n_init=1, max_iter=2, random_state=0).fit(wine)
    model = wc.KernelKMeans(3, n_support=1, init=start.labels_, tol=0.0).fit(wine)
    centers = np.array([wine[start.labels_ == k].mean(axis=0) for k in range(3)])
    plain = KMeans(3, init=centers, n_init=1, tol=0.0).fit(wine)
    assert np.allclose(model.support_vectors_, plain.cluster_centers_)
    assert model.inertia_ == pytest.approx(plain.inertia_)


@pytest.mark.parametrize("make", [make_moons, make_circles])
def test_clusters_that_are_not_linearly_separable_are_kept(make: Any) -> None:
    options = {} if make is make_moons else {"factor": 0.5}
    X, y = make(1000, noise=0.05, random_state=0, **options)
    model = wc.KernelKMeans(2, init=y, random_state=0).fit(X)
    assert (model.labels_ == y).mean() > 0.99
    assert adjusted_rand_score(y, KMeans(2, n_init=3, random_state=0).fit_predict(X)) < 0.6
    assert (wc.explain(model, X).cluster == model.labels_).all()


def test_max_iter_0_keeps_the_initial_assignment() -> None:
    X, y = load_digits(return_X_y=True)
    kept = wc.KernelKMeans(10, init=y, max_iter=0, random_state=0).fit(X)
    free = wc.KernelKMeans(10, init=y, random_state=0).fit(X)
    assert kept.n_iter_ == 0
    assert (kept.labels_ == y).mean() > (free.labels_ == y).mean() > 0.85


def test_initial_labels_may_be_names(wine: Array) -> None:
    codes = np.arange(len(wine)) % 3
    names = np.array(["b", "a", "c"])[codes]
    by_name = wc.KernelKMeans(3, init=names, random_state=0).fit(wine)
    by_code = wc.KernelKMeans(3, init=np.array([1, 0, 2])[codes], random_state=0).fit(wine)
    assert (by_name.labels_ == by_code.labels_).all()


def test_the_same_seed_gives_the_same_clusters(wine: Array) -> None:
    first, second = (wc.KernelKMeans(5, random_state=3).fit(wine) for _ in range(2))
    assert (first.support_vectors_ == second.support_vectors_).all()
    more = wc.KernelKMeans(5, n_init=4, random_state=3).fit(wine)
    assert more.inertia_ <= first.inertia_ * (1 + 1e-9)


def test_data_far_from_zero(wine: Array) -> None:
    near = wc.KernelKMeans(4, n_support=5, random_state=0).fit(wine)
    far = wc.KernelKMeans(4, n_support=5, random_state=0).fit(wine + 1e6)
    assert (near.labels_ == far.labels_).all()
    assert np.allclose(wc.explain(near, wine).relevance, wc.explain(far, wine + 1e6).relevance, atol=1e-5)


def test_small_and_empty_clusters() -> None:
    """A small cluster uses its members as support vectors; an empty one starts near a random row."""
    rng = np.random.default_rng(0)
    X = np.concatenate([rng.normal(size=(50, 2)), [[20.0, 20.0]], rng.normal(size=(4, 2)) - 20])
    labels = np.repeat([0, 1, 2], [50, 1, 4])
    model = wc.KernelKMeans(3, init=labels, n_support=10, random_state=0).fit(X)
    assert np.bincount(model.support_cluster_).tolist() == [10, 1, 4]
    assert (model.labels_ == labels).all()
    empty = wc.KernelKMeans(5, init=labels, n_support=3, random_state=0).fit(X)
    assert len(np.unique(empty.support_cluster_)) == 5
    assert (empty.predict(X) == empty.labels_).all()


def test_a_larger_tolerance_stops_earlier(wine: Array) -> None:
    start = np.arange(len(wine)) % 5
    few, many = (
        wc.KernelKMeans(5, n_support=4, gamma=0.3, init=start, tol=tol, random_state=0).fit(wine)
        for tol in (0.1, 0.0)
    )
    assert few.n_iter_ < many.n_iter_


def test_an_empty_cluster_moves_to_the_row_with_the_worst_fit(wine: Array) -> None:
    support = _Support([wine[:4], wine[60:65], np.full((3, 13), 1e3)], 0.2)
    labels, least, sums = _assign_rows(wine, support)
    assert set(labels) == {0, 1}
    worst = int(least.argmax())
    moved = _update_support(wine, labels, least.copy(), sums, support)
    assert np.abs(moved.vectors[2] - wine[worst]).max() < 1.0
    assert _assign_rows(wine, moved)[0][worst] == 2


def test_equal_rows() -> None:
    model = wc.KernelKMeans(2, random_state=0).fit(np.ones((30, 3)))
    assert np.isfinite(model.support_vectors_).all()
    assert model.gamma_ > 0
    few = wc.KernelKMeans(3, random_state=0).fit(np.repeat([[0.0], [1.0]], 20, axis=0))
    assert len(np.unique(few.labels_)) == 2


def test_in_a_pipeline_and_on_frames() -> None:
    X = load_frame("iris").data
    pipeline = make_pipeline(StandardScaler(), wc.KernelKMeans(3, random_state=0)).fit(X)
    assert pipeline.transform(X).shape == (150, 3)
    model = clone(wc.KernelKMeans(3, random_state=0)).fit(X)
    exp = wc.explain(model, X)
    assert exp.feature_names == list(X.columns)
    assert isinstance(exp.to_frame(), pd.DataFrame)
    assert (exp.cluster == model.predict(X)).all()


def message(X: Any = None, **options: Any) -> str:
    with pytest.raises(wc.InvalidInputError) as raised:
        wc.KernelKMeans(**{"n_clusters": 2, **options}).fit(np.eye(4) if X is None else X)
    return str(raised.value)


@pytest.mark.parametrize("gamma", [0, -1.0, "scale", None, np.nan, np.inf, True])
def test_invalid_gamma(gamma: Any) -> None:
    assert message(gamma=gamma) == (
        f'KernelKMeans.fit: gamma must be "auto" or a number above 0; got {gamma!r}.'
    )


@pytest.mark.parametrize(
    ("name", "value", "least"),
    [
        ("n_clusters", 0, 1),
        ("n_support", 2.5, 1),
        ("n_init", "auto", 1),
        ("max_iter", -1, 0),
        ("n_clusters", True, 1),
    ],
)
def test_invalid_counts(name: str, value: Any, least: int) -> None:
    assert message(**{name: value}) == (
        f"KernelKMeans.fit: {name} must be an integer of at least {least}; got {value!r}."
    )


def test_invalid_initial_labels() -> None:
    assert message(init=[0, 1]).startswith(
        "KernelKMeans.fit: labels must have one value for each of the 4 rows of X; got 2."
    )
    assert message(init=[0, 1, 2, 3]) == (
        "KernelKMeans.fit: init must have at most n_clusters=2 distinct labels; got 4."
    )
    assert message(init="random") == (
        "KernelKMeans.fit: init must be \"k-means\" or one label per row; got 'random'."
    )
    assert message(init=[0, 1, None, 1]).startswith(
        "KernelKMeans.fit: labels must have no missing values; row 2 has None."
    )
    assert message(tol=-1) == "KernelKMeans.fit: tol must be a nonnegative number; got -1."
    assert message(n_clusters=9) == (
        "KernelKMeans.fit: X must have at least n_clusters=9 rows; got n_samples=4."
    )


def test_it_must_be_fitted() -> None:
    with pytest.raises(wc.NotFittedError, match="the KernelKMeans must be fitted first"):
        wc.explain(wc.KernelKMeans(), np.eye(3))
