"""Tests of the surrogate: its fit to labels, its fidelity, and explanations of labels."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import scipy.sparse as sp
from numpy.typing import NDArray
from sklearn.cluster import (
    DBSCAN,
    HDBSCAN,
    OPTICS,
    AgglomerativeClustering,
    KMeans,
    SpectralClustering,
)
from sklearn.datasets import load_iris, load_wine, make_blobs, make_circles, make_moons
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC
from sklearn.utils.estimator_checks import check_estimator

import whycluster as wc
from tests.optional import load_frame, optional
from tests.reference import kernel
from whycluster.clustering.kernel_fit import _initial_model, _Objective
from whycluster.clustering.surrogate import _choose_settings, _Folds, _Settings, _smallest_good
from whycluster.explanations.fidelity import Fidelity
from whycluster.models.energies import FloorEnergy

if TYPE_CHECKING:
    import hdbscan
    import pandas as pd
    import polars as pl
    import pyarrow as pa
else:
    pd = optional("pandas")
    hdbscan = optional("hdbscan")
    pl = optional("polars")
    pa = optional("pyarrow")

Array = NDArray[Any]


@pytest.fixture(scope="module")
def moons() -> Array:
    X: Array = make_moons(600, noise=0.05, random_state=0)[0]
    X.flags.writeable = False
    return X


@pytest.fixture(scope="module")
def noisy() -> tuple[Array, Array]:
    """Three blobs, and scattered rows that DBSCAN labels as noise."""
    rng = np.random.default_rng(0)
    X, _ = make_blobs(300, centers=[[0, 0, 0], [6, 0, 0], [0, 6, 0]], cluster_std=0.7, random_state=0)
    X = np.concatenate([X, rng.uniform(-6, 12, size=(60, 3))])
    return X, DBSCAN(eps=0.9).fit_predict(X)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:Skipping check check_array_api_input")  # array API: scikit-learn's option
@pytest.mark.filterwarnings("ignore:.*feature names, but Surrogate was fitted")
def test_it_passes_the_checks_of_scikit_learn() -> None:
    check_estimator(wc.Surrogate())


MODELS = {
    "DBSCAN, chebyshev": lambda: DBSCAN(eps=0.2, metric="chebyshev"),
    "HDBSCAN, alpha": lambda: HDBSCAN(min_cluster_size=15, alpha=0.9, copy=True),
    "OPTICS": lambda: OPTICS(min_samples=20, eps=0.2, cluster_method="dbscan", metric="chebyshev"),
    "single linkage": lambda: AgglomerativeClustering(2, linkage="single", metric="chebyshev"),
    "spectral": lambda: SpectralClustering(2, affinity="laplacian", gamma=10.0, random_state=0),
}


@pytest.mark.filterwarnings("ignore:Graph is not fully connected")  # hence two clusters
@pytest.mark.parametrize("kind", MODELS)
def test_models_with_labels_only(kind: str, moons: Array) -> None:
    model = MODELS[kind]().fit(moons.copy())
    exp = wc.explain(model, moons)
    assert exp.fidelity is not None
    assert exp.fidelity.cross_validated > 0.98
    assert exp.fidelity.in_sample > 0.98
    shown = np.where(model.labels_ == -1, "noise", model.labels_.astype(str))
    assert [str(label) for label in exp.cluster] == shown.tolist()
    by_labels = wc.explain(model.labels_, moons)
    assert (by_labels.relevance == exp.relevance).all()


@pytest.mark.parametrize("make", [make_moons, make_circles])
def test_shapes_that_are_not_linearly_separable(make: Any) -> None:
    options = {} if make is make_moons else {"factor": 0.5}
    X, _ = make(2000, noise=0.05, random_state=1, **options)
    labels = DBSCAN(eps=0.15).fit_predict(X)
    model = wc.Surrogate().fit(X, labels)
    assert model.fidelity_.cross_validated >= 0.98
    assert (model.predict(X) == labels).mean() == model.fidelity_.in_sample


@pytest.mark.parametrize("labels", ["ward", "hdbscan"])
def test_it_predicts_wine_as_well_as_a_support_vector_machine(wine: Array, labels: str) -> None:
    model = AgglomerativeClustering(6) if labels == "ward" else HDBSCAN(min_cluster_size=15, copy=True)
    y = model.fit_predict(wine)
    surrogate = wc.Surrogate().fit(wine, y)
    assert surrogate.fidelity_.in_sample >= 0.97
    fold = np.empty(len(y), dtype=int)  # stratified and shuffled
    fold[np.lexsort((np.random.default_rng(0).random(len(y)), y))] = np.arange(len(y)) % 5
    hits = [
        (SVC(C=10).fit(wine[fold != f], y[fold != f]).predict(wine[fold == f]) == y[fold == f]).sum()
        for f in range(5)
    ]
    assert surrogate.fidelity_.cross_validated >= sum(hits) / len(y) - 0.02


def test_exact_models_get_no_surrogate(moons: Array, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wc.Surrogate, "fit_rows", lambda *_: pytest.fail("a surrogate was fitted"))
    for model in (KMeans(2, n_init=1), wc.KernelKMeans(2)):
        assert wc.explain(model.fit(moons), moons).fidelity is None


@pytest.mark.parametrize("rule", ["path", "min-take-most"])
def test_the_network_of_a_surrogate_matches_the_paper(noisy: tuple[Array, Array], rule: str) -> None:
    """Its relevance equals that of the paper's pairwise network, in the chosen scale."""
    X, y = noisy
    model = wc.Surrogate(n_support=4).fit(X[y >= 0], y[y >= 0])
    root = np.sqrt(model.scale_)
    support = [model.support_vectors_[model.support_cluster_ == k] * root for k in range(3)]
    weights = [np.exp(model.log_weights_[model.support_cluster_ == k]) for k in range(3)]
    slow = kernel.Kernel(support, weights, model.gamma_)
    rows = X[y >= 0][:40]
    net = wc.neuralize(model)
    exp = net.explain(rows, rule=rule)
    expected = kernel.explain(rows * root, slow, rule=rule)
    assert np.abs(exp.relevance - expected).max() <= 1e-9 * np.abs(expected).max()
    assert (net.assign(rows) == model.predict(rows)).all()


@pytest.mark.slow
def test_noise_is_named_and_explained(noisy: tuple[Array, Array]) -> None:
    X, y = noisy
    exp = wc.explain(y, X)
    assert exp.labels.tolist() == [0, 1, 2, "noise"]
    assert ((exp.cluster == "noise") == (y == -1)).all()
    assert exp.fidelity is not None
    assert exp.fidelity.labels.tolist() == [0, 1, 2, "noise"]
    assert "noise" in str(exp.fidelity)
    assert "noise" in str(exp.summary())
    assert set(exp.to_frame()["cluster"]) == {"0", "1", "2", "noise"}
    pytest.importorskip("polars")
    assert set(exp.to_frame("polars")["cluster"]) == {"0", "1", "2", "noise"}
    one = wc.explain(y, X, target="noise")
    assert (one.relevance == wc.explain(y, X, target=-1).relevance).all()
    far = int(np.flatnonzero((y == -1) & (exp.assigned == "noise"))[0])
    assert exp.describe(far).startswith(f"Row {far} is noise: evidence ")
    assert "surrogate that predicts" in repr(exp)


def test_a_noise_floor_blames_the_distant_feature() -> None:
    """A row that is far from all clusters in one feature is noise because of that feature."""
    rng = np.random.default_rng(0)
    X = np.concatenate([rng.normal(size=(200, 4)), rng.normal(loc=[8, 0, 0, 0], size=(200, 4))])
    X = np.concatenate([X, rng.uniform(-20, 20, size=(60, 4))])
    y = DBSCAN(eps=1.6).fit_predict(X)
    model = wc.Surrogate(random_state=0).fit(X, y)
    assert model.noise_ == "floor"
    row = np.array([[0.0, 0.0, 15.0, 0.0]])
    exp = wc.explain(model, row, background=X)
    assert exp.cluster.tolist() == ["noise"]
    assert model.predict(row).tolist() == [-1]
    assert exp.relevance[0].argmax() == 2
    assert exp.relevance[0, 2] > 0.9 * exp.evidence[0]
    member = wc.explain(model, np.array([[0.0, 0.0, 0.1, 0.0]]), against="noise")
    assert member.cluster.tolist() == [0]
    assert member.evidence[0] > 0


@pytest.mark.parametrize(
    "make",
    [
        list,
        np.array,
        lambda y: np.array(y, dtype=float),
        pd.Series,
        lambda y: pytest.importorskip("polars").Series(y),
        lambda y: pd.Series(y, index=range(100, 100 + len(y))),
        lambda y: pd.Series(y, dtype="category"),
        tuple,
    ],
)
def test_labels_in_any_container(make: Any, moons: Array) -> None:
    y = DBSCAN(eps=0.2).fit_predict(moons)
    exp = wc.explain(make(y.tolist()), moons)
    assert exp.labels.tolist() == np.unique(y).tolist()
    assert (exp.cluster == y).all()


def test_labels_may_be_text(moons: Array) -> None:
    y = np.array(["10", "2"])[DBSCAN(eps=0.2).fit_predict(moons)]
    exp = wc.explain(pd.Series(y, dtype="category"), moons)
    assert exp.labels.tolist() == ["10", "2"]  # the order of the categories
    assert wc.explain(y.tolist(), moons).labels.tolist() == ["2", "10"]
    assert (wc.Surrogate().fit(moons, y).predict(moons) == y).all()
    edited = ["first" if label == "2" else 7 for label in y]
    mixed = wc.explain(edited, moons)
    assert mixed.labels.tolist() == [7, "first"]
    assert mixed.cluster.tolist() == edited


@pytest.mark.parametrize(
    ("make", "names"),
    [
        (pd.DataFrame, None),
        (lambda X: pytest.importorskip("polars").DataFrame(X), None),
        (sp.csr_array, list("abcd")),
        (lambda X: X.astype("f4"), list("abcd")),
        (np.ndarray.tolist, list("abcd")),
    ],
)
def test_any_table(make: Any, names: list[str] | None) -> None:
    X, y = load_iris().data, AgglomerativeClustering(3).fit_predict(load_iris().data)
    exp = wc.explain(y, make(X), feature_names=names)
    assert (exp.cluster == y).all()
    assert len(exp.feature_names) == 4
    assert exp.relevance.shape == (150, 4)


def test_frames_keep_their_names_and_order() -> None:
    X = load_frame("iris").data
    y = AgglomerativeClustering(3).fit_predict(X)
    exp = wc.explain(y, X)
    assert exp.feature_names == list(X.columns)
    model = wc.Surrogate().fit(X, y)
    assert (wc.explain(model, X[X.columns[::-1]]).relevance == wc.explain(model, X).relevance).all()


@pytest.mark.slow
def test_low_fidelity_warns_and_names_the_clusters() -> None:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(200, 3))
    y = np.where(X[:, 0] > 1, 2, rng.integers(0, 2, size=200))
    with pytest.warns(wc.FidelityWarning) as caught:
        exp = wc.explain(y, X)
    text = str(caught[0].message)
    assert text.startswith("explain: the surrogate, which is explained instead of the labels, predicts ")
    assert "Poorly matched: " in text
    assert exp.fidelity is not None
    assert exp.fidelity.cross_validated < 0.8
    assert caught[0].filename == __file__
    with pytest.warns(wc.FidelityWarning) as again:
        wc.neuralize(wc.Surrogate().fit(X, y)).explain(X)
    assert again[0].filename == __file__
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        wc.explain((X[:, 0] > 0).astype(int), X)


def test_rows_are_explained_for_their_own_label() -> None:
    """If the surrogate predicts another label, the evidence is negative."""
    X, y = make_blobs(200, centers=2, cluster_std=0.5, random_state=0)
    y[0] = 1 - y[0]  # as if edited by hand
    exp = wc.explain(y, X)
    assert exp.cluster[0] == y[0]
    assert exp.assigned[0] != y[0]
    assert exp.evidence[0] < 0
    assert (exp.evidence[1:] > 0).all()
    assert exp.describe(0).startswith(
        f"Row 0 is in cluster {1 - y[0]} according to the surrogate, not in {y[0]}: evidence -"
    )


def test_the_labels_determine_the_scale() -> None:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(400, 2)) * [1.0, 1000.0]
    by_small = wc.Surrogate().fit(X, (X[:, 0] > 0).astype(int))
    assert by_small.fidelity_.cross_validated > 0.98
    ratio = by_small.scale_[0] / by_small.scale_[1]
    assert ratio == pytest.approx(X[:, 1].var() / X[:, 0].var())
    moved = wc.Surrogate().fit(X + 1e6, (X[:, 0] > 0).astype(int))
    assert moved.fidelity_.cross_validated > 0.98


def test_more_support_vectors_only_if_they_help() -> None:
    X, _ = make_moons(500, noise=0.05, random_state=0)
    y = DBSCAN(eps=0.2).fit_predict(X)
    assert wc.Surrogate().fit(X, y).n_support_ > 1
    assert wc.Surrogate().fit(X, KMeans(2, n_init=1, random_state=0).fit_predict(X)).n_support_ == 1


@pytest.mark.slow
@pytest.mark.usefixtures("two_threads")
def test_fits_are_reproducible(noisy: tuple[Array, Array]) -> None:
    X, y = noisy
    first, second = wc.Surrogate().fit(X, y), wc.Surrogate().fit(X, y)
    assert (first.support_vectors_ == second.support_vectors_).all()
    assert first.fidelity_.cross_validated == second.fidelity_.cross_validated


def test_many_rows_are_sampled(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("whycluster.clustering.surrogate._MOST_ROWS", 600)
    monkeypatch.setattr("whycluster.clustering.surrogate._CHOICE_ROWS", 300)
    X, y = make_blobs(3000, 5, centers=4, cluster_std=0.8, random_state=0)
    model = wc.Surrogate().fit(X, y)
    assert model.fidelity_.size.sum() == 3000
    assert model.fidelity_.in_sample > 0.97
    assert 0.9 < model.fidelity_.cross_validated <= 1.0


@pytest.mark.parametrize("floor", [False, True])
def test_the_gradient_of_the_fit(floor: bool, noisy: tuple[Array, Array]) -> None:
    X, y = noisy
    rows = (X - X.mean(axis=0)) / X.std(axis=0)
    codes = np.where(y < 0, 3, y)
    objective = _Objective(rows, codes, _initial_model(rows, codes, 3, 3 if floor else None, 0))
    objective._rows = objective._rows.astype(np.float64)
    change = np.random.default_rng(0).normal(scale=0.3, size=objective.size)
    if not floor:
        change[objective.n_units + 1] = 0.0
    slope = np.random.default_rng(1).normal(size=(5, objective.size)) * (change != 0)
    for direction in slope:
        step = 1e-6 * direction
        found = (objective.loss(change + step)[0] - objective.loss(change - step)[0]) / 2e-6
        assert objective.loss(change)[1] @ direction == pytest.approx(found, rel=1e-5)


def message(labels: Any, X: Any = None, **options: Any) -> str:
    rows = np.eye(4) if X is None else X
    with pytest.raises(wc.InvalidInputError) as raised:
        wc.Surrogate(**options).fit(rows, labels) if options else wc.explain(labels, rows)
    return str(raised.value)


def test_labels_of_the_wrong_length_or_missing() -> None:
    assert message([0, 1, 0]) == (
        "explain: labels must have one value for each of the 4 rows of X; got 3. Explain all rows that were "
        "clustered, and select some of them afterward; to explain new rows, use wc.Surrogate().fit(X, "
        "labels)."
    )
    begins = "explain: labels must have one value for each of the 4 rows"
    assert message(DBSCAN(metric="chebyshev").fit(np.eye(3))).startswith(begins)
    missing = (
        "explain: labels must have no missing values; row 1 has {}. Drop such rows from labels and X, or "
        "give them a label, such as -1 for noise."
    )
    assert message([0, None, 1, 1]) == missing.format("None")
    assert message(np.array([0, np.nan, 1, 1])) == missing.format("nan")
    assert message(pd.Series([0, None, 1, 1], dtype="Int64")) == missing.format("<NA>")
    assert message(pd.array([0, None, 1, 1], dtype="Int64")) == missing.format("<NA>")
    assert message(pd.Series(["a", None, "b", "b"], dtype="category")) == missing.format("nan")


def test_a_single_cluster_or_only_noise() -> None:
    assert message([2, 2, 2, 2]) == (
        "explain: labels must contain at least 2 clusters, since a cluster is explained against its "
        "competitors; all rows are in one class, 2."
    )
    assert message([-1, -1, -1, -1]) == (
        "explain: labels must contain at least 2 clusters, since a cluster is explained against its "
        "competitors; all rows are noise."
    )


def test_continuous_labels() -> None:
    assert message([0.5, 1.25, 3.75, 9.5]) == (
        "explain: labels must identify clusters; got continuous values, such as 0.5. Unknown label type: "
        "continuous."
    )


@pytest.mark.parametrize("n_support", [0, 2.5, "many", True])
def test_invalid_number_of_support_vectors(n_support: Any) -> None:
    assert message([0, 0, 1, 1], n_support=n_support) == (
        f'Surrogate.fit: n_support must be "auto" or an integer of at least 1; got {n_support!r}.'
    )


def test_data_with_missing_values() -> None:
    X = np.eye(4)
    X[2, 1] = np.nan
    assert message([0, 0, 1, 1], X) == (
        "explain: X must be finite; row 2, feature 'x1' holds a missing value (NaN). "
        "Drop or fill such rows first."
    )


@pytest.mark.filterwarnings("ignore::whycluster.FidelityWarning")
def test_unusual_clusters_are_explained() -> None:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(60, 3))
    single = np.where(X[:, 0] > 0, 1, 0)
    single[0] = 7
    exp = wc.explain(single, X)  # a cluster with one member
    assert exp.fidelity is not None
    assert exp.fidelity.size.tolist()[-1] == 1
    assert np.isfinite(exp.relevance).all()
    twins = np.repeat(X[:30], 2, axis=0)
    both = wc.explain(np.arange(60) % 2, twins)  # identical rows with different labels
    assert both.fidelity is not None
    assert both.fidelity.in_sample == 0.5
    assert np.isfinite(both.relevance).all()
    crowded = wc.Surrogate(n_support=1000).fit(X, (X[:, 0] > 0).astype(int))  # more than members
    assert len(crowded.support_vectors_) == 60
    assert crowded.fidelity_.in_sample > 0.97
    constant = wc.Surrogate().fit(np.ones((20, 2)), np.arange(20) % 2)  # indistinguishable clusters
    assert constant.fidelity_.in_sample == 0.5
    few = wc.Surrogate().fit(X[:3], [0, 1, 2])
    assert np.isfinite(few.support_vectors_).all()


def test_a_rare_cluster_is_in_the_sample(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("whycluster.clustering.surrogate._MOST_ROWS", 300)
    X = np.random.default_rng(0).normal(size=(2000, 2))
    y = np.where(X[:, 0] > 0, 0, 2)
    X[5], y[5] = [50.0, 50.0], 1
    model = wc.Surrogate(n_support=1).fit(X, y)
    assert model.predict(X[[5]]).tolist() == [1]
    assert model.fidelity_.in_sample > 0.95


def test_a_feature_of_small_scale_counts_if_the_labels_depend_on_it() -> None:
    rng = np.random.default_rng(0)
    X = np.column_stack([rng.normal(size=500) * 3e6, rng.uniform(size=500)])
    assert wc.Surrogate().fit(X, (X[:, 1] > 0.5).astype(int)).fidelity_.cross_validated > 0.98


@pytest.mark.slow
def test_labels_of_unusual_types(moons: Array) -> None:
    y = DBSCAN(eps=0.2).fit_predict(moons)
    for kinds in ([True, "a"], [(0, 1), (2, 3)], [2**70, -5], ["a", -1], [0.0, 1.0], [b"x", b"y"]):
        labels = pd.Series([kinds[k] for k in y], dtype=object)
        exp = wc.explain(labels, moons)
        named = ["noise" if kind == -1 else kind for kind in kinds]
        assert set(exp.labels.tolist()) == set(named)
        assert [named.index(label) for label in exp.cluster.tolist()] == y.tolist()
    text = wc.explain(["a" if k else -1 for k in y], moons, target=-1)
    assert set(text.cluster) == {"noise"}
    dates = np.array(["2020-01-01", "2021-01-01"], dtype="datetime64[ns]")[y]
    assert wc.explain(dates, moons).labels.tolist()[0].startswith("2020-01-01")
    assert wc.explain(np.array(["-1", "0"])[y].tolist(), moons).labels.tolist() == ["0", "noise"]
    masked = np.ma.array(y, mask=np.arange(600) == 7)
    assert message(masked, moons).startswith("explain: labels must have no missing values; row 7 has None.")
    assert message(np.where(y == 0, np.inf, 1.0), moons).startswith(
        "explain: labels must identify clusters. Input y"
    )


def test_labels_in_a_pyarrow_array(moons: Array) -> None:
    y = DBSCAN(eps=0.2).fit_predict(moons)
    assert wc.explain(pytest.importorskip("pyarrow").array(y), moons).labels.tolist() == [0, 1]


def test_labels_that_would_be_misread(moons: Array) -> None:
    y = DBSCAN(eps=0.2).fit_predict(moons)
    frame = pd.DataFrame(moons, columns=["a", "b"])
    assert message(pd.Series(y).sample(frac=1, random_state=0), frame) == (
        "explain: labels and X must be in the same order; their indexes hold the same values in a different "
        "order. Pass labels.loc[X.index]."
    )
    assert message(y[:, None], moons) == (
        "explain: model must be a model or centroids; got an array of shape (600, 1), with one value for "
        "each row of X. If these are labels, pass them as a one-dimensional column."
    )
    with pytest.raises(
        wc.InvalidInputError, match=r"explain: background applies only to models; labels are explained"
    ):
        wc.explain(y[:5], moons[:5], background=moons)
    with pytest.raises(
        wc.InvalidInputError,
        match=r"^explain: metric applies only to centroids, or to a fitted model .* got ndarray",
    ):
        wc.explain(y, moons, metric="cosine")


def test_warning_filters_and_the_global_generator_stay_unchanged(noisy: tuple[Array, Array]) -> None:
    X, y = noisy
    before: Any = np.random.get_state()  # noqa: NPY002  # the user's
    filters = list(warnings.filters)
    wc.Surrogate(n_support=8).fit(X, y)
    wc.KernelKMeans(3, random_state=0).fit(X)
    after: Any = np.random.get_state()  # noqa: NPY002  # the global generator is the subject
    assert warnings.filters == filters
    assert (after[1] == before[1]).all()
    assert after[2] == before[2]


def test_the_threshold_and_the_text_of_the_warning() -> None:
    def fidelity(right: int) -> Fidelity:
        """Return the fidelity for 100 rows, ``right`` of them correct; all errors are in cluster b."""
        given = np.repeat([0, 1], [20, 80])
        guess = np.where(np.arange(100) < right, given, 0)
        return Fidelity.of(np.array(["a", "b"]), given, given, guess)

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        fidelity(95).warn_if_low()
    with pytest.warns(wc.FidelityWarning) as caught:
        fidelity(94).warn_if_low()
    assert str(caught[0].message) == (
        "explain: the surrogate, which is explained instead of the labels, predicts 94.0% of them for "
        "rows that it was not fitted to (100.0% for rows that it was). Poorly matched: b (92.5% of 80 rows). "
        "Read the explanations of these clusters with care; see exp.fidelity for details."
    )
    frame = fidelity(94).to_frame()
    assert frame["cross_validated"].tolist() == [1.0, 0.925]


def test_the_worst_matched_cluster_comes_first() -> None:
    given = np.repeat([0, 1, 2], 10)
    guess = np.where(np.arange(30) % 10 < np.array([8, 2, 5])[given], given, (given + 1) % 3)
    with pytest.warns(wc.FidelityWarning, match=r"matched: 1 \(20.0% .*, 2 \(50.0% .*, 0 \(80.0%"):
        Fidelity.of(np.arange(3), given, given, guess).warn_if_low()


@pytest.mark.slow
def test_noise_in_one_place_is_a_cluster() -> None:
    """All noise is in one spot inside a cluster: a floor cannot model that, another cluster can."""
    rng = np.random.default_rng(0)
    X = np.concatenate([rng.normal(size=(100, 2)) * 3 + far for far in ([-12, 0], [12, 0])])
    X = np.concatenate([X, rng.normal(size=(60, 2)) * 0.3 + [-12, 0]])
    y = np.repeat([0, 1, -1], [100, 100, 60])
    model = wc.Surrogate().fit(X, y)
    assert model.noise_ == "cluster"
    assert (model.predict(X[200:]) == -1).mean() > 0.9


def some_folds() -> _Folds:
    rng = np.random.RandomState(0)  # scikit-learn's kind
    return _Folds(np.zeros((100, 1)), np.arange(100) % 2, None, {"": np.ones(1)}, 0, rng)


def test_the_smallest_good_size_is_chosen() -> None:
    data = some_folds()
    wrong = {1: range(20), 2: range(3), 4: range(50, 52)}  # rows
    tried = {}
    for size, rows in wrong.items():
        tried[_Settings("", False, size)] = np.where(
            np.isin(np.arange(100), rows), 1 - data.codes, data.codes
        )
    assert _smallest_good(tried, _Settings("", False, 4), data).n_support == 2


def test_doubling_stops_after_two_sizes_without_gain(monkeypatch: pytest.MonkeyPatch) -> None:
    data = _Folds(np.zeros((100, 1)), np.arange(100) % 2, None, {"": np.ones(1)}, 0, np.random.RandomState(0))
    errors, sizes = {1: 40, 2: 40, 4: 20, 8: 20, 16: 20, 32: 0}, []

    def predict_out_of_fold(settings: _Settings) -> Array:
        sizes.append(settings.n_support)
        return np.where(np.arange(100) < errors[settings.n_support], 1 - data.codes, data.codes)

    monkeypatch.setattr(data, "predict_out_of_fold", predict_out_of_fold)
    chosen, _ = _choose_settings(data, None)
    assert sizes == [1, 2, 4, 8, 16]
    assert chosen.n_support == 4


@pytest.mark.parametrize("scale", ["raw", "standardized"])
def test_the_floor_is_split_like_the_spread_of_the_scaled_rows(scale: str) -> None:
    rng = np.random.default_rng(0)
    X = np.concatenate([rng.normal(size=(200, 2)), rng.normal([8.0, 0.0], size=(200, 2))])
    X = np.concatenate([X, rng.uniform(-16, 24, size=(40, 2))])
    y = np.where(np.minimum(np.hypot(*X.T), np.hypot(X[:, 0] - 8, X[:, 1])) > 4, -1, X[:, 0] > 4)
    model = wc.Surrogate().fit(X * [1.0, 50.0 if scale == "standardized" else 1.0], y)
    assert model.noise_ == "floor"
    assert isinstance(model.energy, FloorEnergy)
    split = model.energy.split
    variance = X.var(axis=0) * [1.0, 2500.0 if scale == "standardized" else 1.0] * model.scale_
    np.testing.assert_allclose(split / split.sum(), variance / variance.sum())
    if scale == "standardized":
        assert split[0] == pytest.approx(split[1])


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::whycluster.FidelityWarning")
def test_columns_in_any_unit_cause_no_overflow_warning() -> None:
    """An unbounded first step of the search used to overflow."""
    X = load_wine().data
    labels = DBSCAN(eps=2.2).fit_predict(StandardScaler().fit_transform(X))
    assert wc.explain(labels, X).fidelity.cross_validated > 0.9  # type: ignore[union-attr]
