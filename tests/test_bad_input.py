"""Bad input gets a message that says where, what was expected, what came, and what to do."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import scipy.sparse as sp
from numpy.typing import NDArray
from sklearn.cluster import (
    DBSCAN,
    AffinityPropagation,
    BisectingKMeans,
    FeatureAgglomeration,
    KMeans,
    MeanShift,
    MiniBatchKMeans,
)
from sklearn.datasets import load_digits, load_iris
from sklearn.mixture import GaussianMixture
from sklearn.neighbors import NearestCentroid
from sklearn.preprocessing import StandardScaler

import whycluster as wc
from tests.optional import optional

if TYPE_CHECKING:
    import faiss
    import pandas as pd
    import polars as pl
    import pyarrow as pa
    import torch
else:
    pd = optional("pandas")
    faiss = optional("faiss")
    pl = optional("polars")
    pa = optional("pyarrow")
    torch = optional("torch")

Array = NDArray[Any]
CENTROIDS = np.array([[0.0, 0.0, 0.0], [4.0, 0.0, 0.0], [0.0, 4.0, 1.0]])
ROWS = np.array([[1.0, 0.5, 0.0], [3.0, 1.0, 0.0], [0.0, 3.0, 1.0]])


def message(X: Any, model: Any = CENTROIDS, **options: Any) -> str:
    with pytest.raises(wc.InvalidInputError) as error:
        wc.explain(model, X, **options)
    assert isinstance(error.value, ValueError)
    return str(error.value)


def with_value(value: float, dtype: Any = np.float64) -> Array:
    X = ROWS.astype(dtype)
    X[1, 2] = value
    return X


@pytest.mark.parametrize(
    "make",
    [
        lambda X: X,
        lambda X: X.astype("f4"),
        sp.csr_array,
        lambda X: pl.DataFrame(X, schema=["x0", "x1", "x2"]),
        lambda X: pd.DataFrame(X, columns=["x0", "x1", "x2"]),
    ],
)
def test_values_that_are_missing_or_infinite(make: Any) -> None:
    assert message(make(with_value(np.nan))) == (
        "explain: X must be finite; row 1, feature 'x2' holds a missing value (NaN). "
        "Drop or fill such rows first."
    )
    for value in (np.inf, -np.inf):
        assert message(make(with_value(value))) == (
            "explain: X must be finite; row 1, feature 'x2' holds an infinite value. "
            "Drop or fill such rows first."
        )


def test_missing_values_of_every_kind_of_frame() -> None:
    frames = [
        pl.DataFrame({"a": [1, None], "b": [1, 2], "c": [True, False]}),
        pl.DataFrame({"a": [1, 2], "b": [1.0, 2.0], "c": [True, None]}),
        pa.table({"a": [1, None], "b": [1, 2], "c": [True, False]}),
        pd.DataFrame({"a": pd.array([1, None], "Int64"), "b": [1, 2], "c": [0.0, 1.0]}),
        pd.DataFrame({"a": [1.0, None], "b": [1, 2], "c": [0.0, 1.0]}).astype("double[pyarrow]"),
    ]
    for frame in frames:
        assert re.fullmatch(
            r"explain: X must be finite; row 1, feature '[ac]' holds a missing value \(NaN\)\. "
            r"Drop or fill such rows first\.",
            message(frame),
        )


@pytest.mark.parametrize("question", [{}, {"target": 1}, {"against": 0}, {"target": 1, "against": 0}])
def test_missing_values_are_found_whatever_is_asked(question: dict[str, Any]) -> None:
    assert "holds a missing value" in message(with_value(np.nan), **question)


def test_missing_values_in_other_calls() -> None:
    net = wc.neuralize(CENTROIDS)
    for call in (net.assign, net.evidence):
        with pytest.raises(wc.InvalidInputError, match=f"^{call.__name__}: X must be finite; row 1"):
            call(with_value(np.nan))
    assert message(ROWS, background=with_value(np.nan)).startswith(
        "explain: background must be finite; row 1"
    )


def test_masked_values_are_missing() -> None:
    assert message(np.ma.masked_greater(ROWS, 2.0)) == (
        "explain: X must have no missing values; got a masked array with 2 masked values. Fill or drop them."
    )


@pytest.mark.parametrize("rule", ["min-take-most", "joint", "contrast"])
@pytest.mark.parametrize("value", [1.7e308, -1.7e308])
def test_values_near_the_float_limit(value: float, rule: str) -> None:
    assert message(with_value(value), rule=rule) == (
        "explain: X has values too large to be squared in float64; the largest absolute value is 1.7e+308. "
        "Rescale the data and fit the model again."
    )
    with pytest.raises(wc.InvalidInputError, match=r"^evidence: X has values too large"):
        wc.neuralize(CENTROIDS).evidence(with_value(value))


@pytest.mark.parametrize("rule", ["min-take-most", "joint", "contrast"])
def test_results_beyond_float32(rule: str) -> None:
    """Computed in float64, but too large for the float32 they are returned in."""
    far = np.float32(1e25)
    assert message(ROWS.astype("f4") * far, model=CENTROIDS.astype("f4") * far, rule=rule) == (
        "explain: X has values too large to be squared in float32; the largest absolute value is 3e+25. "
        "Rescale the data and fit the model again."
    )


@pytest.mark.parametrize("rule", ["min-take-most", "joint", "contrast"])
def test_results_too_small_for_float32(rule: str) -> None:
    """Squares of 1e-24 are 0 in float32, and those of 1e-19 have lost digits."""
    for size, largest in ((1e-24, "3e-24"), (1e-19, "3e-19")):
        near = np.float32(size)
        assert message(ROWS.astype("f4") * near, model=CENTROIDS.astype("f4") * near, rule=rule) == (
            "explain: X has values too small to be squared in float32; the largest absolute value is "
            f"{largest}. Rescale the data and fit the model again."
        )
    with pytest.raises(wc.InvalidInputError, match=r"^evidence: X has values too small to be squared in"):
        wc.neuralize(CENTROIDS * 1e-24).evidence((ROWS * 1e-24).astype("f4"))


@pytest.mark.parametrize("rule", ["min-take-most", "joint", "contrast"])
def test_small_float32_values_keep_their_digits(rule: str) -> None:
    # A power of 2 changes no digit, except of sums with subnormal terms.
    small, beta = np.float32(2.0**-50), 0.5
    exp = wc.explain(CENTROIDS * small, ROWS.astype("f4") * small, beta=beta / float(small) ** 2, rule=rule)
    expected = wc.explain(CENTROIDS, ROWS.astype("f4"), beta=beta, rule=rule).relevance
    np.testing.assert_array_max_ulp(exp.relevance, expected * small**2, maxulp=2)


def test_rows_on_a_boundary_are_not_too_small() -> None:
    exp = wc.explain([[0.0], [2.0]], np.ones((3, 1), np.float32))
    assert exp.evidence.tolist() == [0.0, 0.0, 0.0]


def test_evidence_near_the_float_limit_is_averaged_without_overflow() -> None:
    exp = wc.explain(np.array([[0.0], [1e153]]), np.full((50, 1), -1e153))
    assert exp.beta == pytest.approx(1 / 3e306)
    np.testing.assert_allclose(exp.relevance, 3e306)


@pytest.mark.parametrize("value", [1e-320, 1e-200, 1e30, 1e200, -1e200])
def test_values_large_and_small_that_still_work(value: float) -> None:
    exp = wc.explain(CENTROIDS, with_value(value))
    assert np.isfinite(exp.relevance).all()
    assert np.abs(exp.residual).max() <= 1e-9 * np.abs(exp.evidence).max()


def test_large_float32_values_are_squared_in_float64() -> None:
    exp = wc.explain(CENTROIDS.astype("f4"), with_value(1e30, np.float32))
    assert np.isfinite(exp.relevance).all()


def test_centroids_near_the_float_limit() -> None:
    with pytest.raises(wc.InvalidInputError) as error:
        wc.neuralize(CENTROIDS * 1e200)
    assert str(error.value) == (
        "neuralize: squared distances between centroids overflow; the largest value is "
        "4e+200. Rescale the data and fit the model again."
    )


@pytest.mark.parametrize("size", [1e-147, 1e-170, 1e-300])
def test_centroids_so_close_that_their_distances_underflow(size: float) -> None:
    with pytest.raises(wc.InvalidInputError) as error:
        wc.neuralize(CENTROIDS * size)
    assert str(error.value) == (
        "neuralize: squared distances between centroids underflow; the largest value is "
        f"{4 * size:.3g}. Rescale the data and fit the model again."
    )
    assert wc.neuralize(np.zeros((2, 3))).assign(ROWS).tolist() == [0] * len(ROWS)  # equal ones are a tie


@pytest.mark.parametrize("size", [1e-300, 1e-170, 1e170, 1e300])
def test_directions_of_centroids_of_any_length(size: float) -> None:
    network = wc.neuralize(CENTROIDS + 1.0, metric="cosine")
    scaled = wc.neuralize((CENTROIDS + 1.0) * size, metric="cosine")
    np.testing.assert_allclose(scaled.evidence(ROWS), network.evidence(ROWS), rtol=1e-12, atol=1e-15)


def test_text_columns() -> None:
    frame = pd.DataFrame({"a": [1.0], "name": ["x"], "when": pd.to_datetime(["2020-01-01"])})
    assert message(pl.from_pandas(frame)).startswith(
        "explain: X must have only numeric or boolean columns; got 'name' (String), 'when' (Datetime"
    )
    assert message(frame).endswith(
        "Encode them as numbers (if they are numbers stored as objects, use astype(float)), or drop them."
    )
    assert "'a' (Categorical)" in message(pd.DataFrame({"a": pd.Categorical(["u"]), "b": [1], "c": [1]}))
    wide = pl.DataFrame({f"c{i}": ["x"] for i in range(8)})
    assert "and 3 more" in message(wide, model=np.ones((2, 8)))


@pytest.mark.parametrize(
    ("X", "dtype", "advice"),
    [
        (ROWS.astype(object), "object", "If it holds numbers, pass X.astype(float)."),
        (ROWS.astype(complex), "complex128", "Split it into real and imaginary columns."),
        (ROWS.astype(str), "<U32", "Encode it as numbers first."),
        (
            ROWS.astype("M8[s]"),
            "datetime64[s]",
            "Turn dates into numbers first, such as days since a start date.",
        ),
        (ROWS.astype("m8[s]"), "timedelta64[s]", "Turn durations into numbers first, such as seconds."),
        ([["a", "b", "c"]], "<U1", "Encode it as numbers first."),
    ],
)
def test_arrays_of_no_real_numbers(X: Any, dtype: str, advice: str) -> None:
    assert message(X) == f"explain: X must hold real numbers or booleans; got dtype {dtype}. {advice}"


def test_one_dimension() -> None:
    assert message(ROWS[0]) == (
        "explain: X must be two-dimensional (rows, features); got shape (3,). "
        "For a single row, select it as a table: array[[i]] or frame.iloc[[i]]."
    )
    assert message(pd.Series([1.0, 2.0, 3.0])).startswith("explain: X must be two-dimensional")
    assert message(3.0) == "explain: X must be a table of numbers; got a float."
    assert message(None) == "explain: X must be a table of numbers; got a NoneType."
    assert message({"a": [1.0]}) == "explain: X must be a table of numbers; got a dict."
    assert message(ROWS[None]) == "explain: X must be two-dimensional (rows, features); got shape (1, 3, 3)."


def test_ragged_lists() -> None:
    assert message([[1.0], [1.0, 2.0]]).startswith(
        "explain: X must be a table of numbers; a list could not be read as one ("
    )


def test_a_tensor_with_a_gradient() -> None:
    assert "Use tensor.detach().numpy() instead" in message(torch.ones(2, 3, requires_grad=True))


def test_lazy_frames() -> None:
    assert message(pl.DataFrame(ROWS).lazy()) == (
        "explain: X must be in memory; got a lazy polars LazyFrame. Collect it first."
    )


@pytest.mark.parametrize("make", [lambda X: X, sp.csr_array, pd.DataFrame])
def test_a_wrong_number_of_features(make: Any) -> None:
    assert message(make(ROWS[:, :2])) == (
        "explain: X must have 3 features, the number that the model was fitted on; got shape (3, 2)."
    )


@pytest.mark.parametrize("make", [lambda X: X, sp.csr_array, pd.DataFrame, pl.DataFrame])
def test_no_rows(make: Any) -> None:
    assert message(make(ROWS[:0])) == (
        "explain: X must have at least one row and one feature; got shape (0, 3)."
    )


def test_one_row() -> None:
    exp = wc.explain(CENTROIDS, ROWS[:1])
    assert exp.evidence == pytest.approx([8.0])
    assert exp.beta == pytest.approx(4 / 8)
    assert wc.explain(CENTROIDS, ROWS[:1], rule="min-take-most").beta == pytest.approx(1 / 8)


@pytest.mark.parametrize("make", [np.asarray, lambda X: pd.DataFrame(X, columns=list("abc"))])
def test_one_cluster(make: Any) -> None:
    expected = (
        "neuralize: the model must have at least 2 clusters, since a cluster is explained against its "
        "competitors; got 1."
    )
    assert message(ROWS, model=make(CENTROIDS[:1])) == expected
    assert message(ROWS, model=KMeans(1).fit(ROWS)) == expected
    assert message(ROWS, model=MeanShift(bandwidth=100.0).fit(ROWS)) == expected


def test_duplicate_centroids_share_their_rows() -> None:
    """Documented: no evidence tells them apart, so the first takes the rows, with evidence 0."""
    exp = wc.explain(CENTROIDS[[0, 0, 1]], ROWS)
    assert exp.cluster.tolist() == [0, 2, 0]
    assert exp.evidence.tolist() == [0.0, 8.0, 0.0]
    assert exp.relevance[[0, 2]].tolist() == [[0.0] * 3] * 2


def test_only_duplicate_centroids() -> None:
    exp = wc.explain(CENTROIDS[[1, 1]], ROWS)
    assert exp.beta == np.inf
    assert (exp.relevance == 0).all()


def test_duplicates_are_ties_whatever_their_columns() -> None:
    """BLAS may sum equal columns in another order; that must tell no two clusters apart."""
    rng = np.random.default_rng(4)
    centroids = rng.normal(size=(7, 19))
    exp = wc.explain(np.vstack([centroids, centroids]), rng.normal(size=(20_000, 19)))
    assert (exp.evidence == 0).all()
    assert (exp.cluster < 7).all()


def test_centroids_that_are_not_finite() -> None:
    assert message(ROWS, model=with_value(np.nan)) == (
        "neuralize: centroids must be finite; feature 'x2' of centroid 1 is nan."
    )


def test_other_columns_than_at_fit() -> None:
    frame = pd.DataFrame(np.random.default_rng(0).normal(size=(30, 3)), columns=["age", "height", "weight"])
    model = KMeans(2, n_init=1, random_state=0).fit(frame)
    assert message(frame.rename(columns={"age": "Age"}), model=model) == (
        "explain: X must have the 3 columns the model was fitted on; missing: ['age']; unknown: ['Age']. "
        "Select or rename its columns first."
    )
    assert message(frame.assign(id=1), model=model) == (
        "explain: X must have the 3 columns the model was fitted on; unknown: ['id']. "
        "Select or rename its columns first."
    )
    assert message(pl.from_pandas(frame).drop("weight"), model=model) == (
        "explain: X must have the 3 columns the model was fitted on; missing: ['weight']. "
        "Select or rename its columns first."
    )
    assert message(frame, model=model, background=frame[["age"]]).startswith("explain: background must have")


def test_columns_of_the_same_name() -> None:
    frame = pd.DataFrame(ROWS, columns=["a", "b", "a"])
    expected = "explain: X must have unique column names; 'a' occurs more than once."
    assert message(frame) == expected
    assert message(pa.Table.from_arrays([pa.array([1.0])] * 3, names=["a", "b", "a"])) == expected


def test_feature_names() -> None:
    expected = "explain: feature_names must be 3 distinct names, one per feature; got"
    assert message(ROWS, feature_names=["a", "b"]) == f"{expected} 2 names, 2 of them distinct."
    assert message(ROWS, feature_names=["a", "b", "a"]) == f"{expected} 3 names, 2 of them distinct."
    model = KMeans(2, n_init=1, random_state=0).fit(pd.DataFrame(ROWS, columns=["a", "b", "c"]))
    assert message(ROWS, model=model, feature_names=["c", "b", "a"]) == (
        "explain: feature_names must be in the order the model was fitted on, which begins with "
        "['a', 'b', 'c']; got ['c', 'b', 'a']."
    )
    assert wc.explain(model, ROWS, feature_names=["A", "B", "C"]).feature_names == ["A", "B", "C"]
    for names in (5, "abc", [["a"], ["b"], ["c"]]):
        assert message(ROWS, feature_names=names) == (
            f"explain: feature_names must be a list of names; got {names!r}."
        )
    assert message(pd.DataFrame(ROWS), feature_names=["a", "b", "c"]) == (
        "explain: feature_names applies only to arrays; X is a data frame, which already has names. "
        "Rename its columns instead."
    )


@pytest.mark.parametrize("name", ["target", "against"])
def test_clusters_that_do_not_exist(name: str) -> None:
    for label in (3, -1, 1.5, "1", np.nan, True):
        assert message(ROWS, **{name: label}) == (
            f"explain: {name} must be one of the model's 3 clusters, 0, 1, 2; got {label!r}."
        )
    for labels in (
        ["a", None, 0],
        [True, False, True],
        {"a": 1},
        [[0], [0, 1]],
        [0, np.zeros((2, 2)), 1],
    ):
        assert "must be one of the model's 3 clusters, 0, 1, 2; got " in message(ROWS, **{name: labels})
    assert "must be one of" in message(ROWS, **{name: np.ma.array([0, 1, 2], mask=[False, True, False])})
    assert message(ROWS, **{name: [0, 1]}) == (
        f"explain: {name} must be a single cluster or one cluster for each of the 3 rows; got shape (2,)."
    )
    assert message(ROWS, **{name: [0, 1, 7]}).endswith("got 7.")


def test_against_the_own_cluster() -> None:
    """Documented: a row of that cluster has evidence and relevance 0; if all are, nothing is explained."""
    exp = wc.explain(CENTROIDS, ROWS, against=1)
    assert exp.evidence.tolist() == [8.0, 0.0, 25.0]
    assert exp.relevance[1].tolist() == [0.0, 0.0, 0.0]
    expected = "explain: against must differ from the explained cluster; they are the same in every row of X."
    assert message(ROWS[1:2], against=1) == expected
    assert message(ROWS, target=[1, 1, 1], against=1) == expected
    assert message(ROWS, target=1, against=1) == "explain: against must differ from target; both are 1."


@pytest.mark.parametrize(
    "beta", [0, -1.0, np.nan, -np.inf, "soft", None, True, [1.0], 1j, np.complex64(1), np.timedelta64(1, "s")]
)
def test_beta_that_is_no_stiffness(beta: Any) -> None:
    assert message(ROWS, beta=beta) == (
        'explain: beta must be "auto" or a number above 0 (with infinity, only the nearest competitor '
        f"counts); got {beta!r}."
    )


@pytest.mark.parametrize("beta", [1, np.float32(0.5), np.int64(2), np.inf, 1e308, 1e-308])
def test_beta_of_any_kind_of_number(beta: Any) -> None:
    exp = wc.explain(CENTROIDS, ROWS, beta=beta)
    assert exp.beta == float(beta)
    np.testing.assert_allclose(exp.relevance.sum(axis=1), exp.evidence)


def test_beta_beyond_all_floats_is_infinite() -> None:
    assert wc.explain(CENTROIDS, ROWS, beta=10**400).beta == np.inf


@pytest.mark.parametrize("rule", ["softmax", "", 1, ["joint"]])
def test_an_unknown_rule(rule: Any) -> None:
    assert message(ROWS, rule=rule) == (
        "explain: rule must be one of 'path', 'min-take-most', 'joint', 'sequential', 'contrast'; got "
        f"{rule!r}."
    )


@pytest.mark.parametrize(
    "model", [KMeans(2), MiniBatchKMeans(2), MeanShift(), AffinityPropagation(), NearestCentroid()]
)
def test_a_model_that_is_not_fitted(model: Any) -> None:
    with pytest.raises(wc.NotFittedError) as error:
        wc.explain(model, ROWS)
    assert str(error.value) == (
        f"neuralize: the {type(model).__name__} must be fitted first. Call its fit method."
    )
    assert isinstance(error.value, ValueError)


def test_a_faiss_model_that_is_not_trained() -> None:
    with pytest.raises(wc.NotFittedError) as error:
        wc.explain(faiss.Kmeans(3, 2), ROWS)
    assert str(error.value) == ("neuralize: the faiss.Kmeans must be trained first. Call its train method.")


def unsupported(model: Any, X: Any = ROWS) -> str:
    with pytest.raises(wc.UnsupportedModelError) as error:
        wc.explain(model, X)
    assert isinstance(error.value, TypeError)
    return str(error.value)


def test_an_unknown_model_lists_what_is_supported_and_points_to_labels() -> None:
    text = unsupported(StandardScaler().fit(ROWS))
    assert text.startswith(
        "neuralize: no exact network is known for StandardScaler. The following models are "
        "supported once they are fitted:\n"
        "  - whycluster.KernelKMeans, Surrogate\n"
        "  - sklearn.cluster.KMeans, MiniBatchKMeans, BisectingKMeans, Birch, MeanShift, "
        "AffinityPropagation\n"
    )
    assert text.endswith(
        "Any clustering can be explained from its labels, through a surrogate that reports how well it "
        "matches them: wc.explain(labels, X)."
    )
    for model in (3, None, {"centers": 1}, print):
        assert "supported once they are fitted:" in unsupported(model)
    assert unsupported("k-means") == (
        "neuralize: model must be a fitted model; got 'k-means'. Load a saved network with wc.load(path)."
    )
    assert unsupported(KMeans) == "neuralize: model must be a fitted model; got the class KMeans."


@pytest.mark.parametrize("make", [np.array, list, pd.Series, pl.Series])
def test_labels_have_no_network(make: Any) -> None:
    with pytest.raises(wc.UnsupportedModelError) as error:
        wc.neuralize(make([0, 1, 0]))
    assert str(error.value) == (
        "neuralize: labels give the cluster of each row but no rule for other rows, so there is no network. "
        "Explain them through a surrogate with wc.explain(labels, X), or neuralize the surrogate "
        "wc.Surrogate().fit(X, labels)."
    )


def test_a_model_that_has_only_labels_has_no_network() -> None:
    with pytest.raises(wc.UnsupportedModelError, match=r"^neuralize: the labels of DBSCAN give the cluster"):
        wc.neuralize(DBSCAN().fit(ROWS))


def test_clusters_of_features_are_refused() -> None:
    assert unsupported(FeatureAgglomeration(2).fit(ROWS)) == (
        "neuralize: a FeatureAgglomeration clusters the features, not the rows, so there are no clusters of "
        "rows to explain."
    )


def test_arguments_in_the_wrong_order() -> None:
    assert message(KMeans(2), model=CENTROIDS) == (
        "explain: X must be a table of numbers; got a KMeans. The order of the arguments is explain(model, "
        "X)."
    )


def test_another_kind_of_estimator_that_is_not_fitted() -> None:
    with pytest.raises(wc.NotFittedError, match=r"^neuralize: the DBSCAN must be fitted first\."):
        wc.explain(DBSCAN(), ROWS)


class Flipped(GaussianMixture):  # type: ignore[misc]  # scikit-learn has no types
    """A subclass that predicts in its own way."""

    def predict(self, X: Any) -> Any:
        return 1 - super().predict(X)


class Hurried(BisectingKMeans):  # type: ignore[misc]
    """A subclass that does not go down the tree."""

    def predict(self, X: Any) -> Any:
        return ((X[:, None] - self.cluster_centers_) ** 2).sum(axis=2).argmin(axis=1)


def test_a_subclass_that_does_not_predict_as_its_parent() -> None:
    X = load_digits().data
    model = Hurried(10, random_state=0).fit(X)
    text = unsupported(model, X)
    assert re.match(
        r"explain: Hurried does not predict as BisectingKMeans does, so it has no exact "
        r"network: \d+ of 1797 rows differ, such as row \d+ \(predicted \d+, not \d+\)\. Any clust",
        text,
    )
    net = wc.neuralize(model)
    with pytest.raises(wc.UnsupportedModelError, match=r"^assign: "):
        net.assign(X)
    with pytest.raises(wc.UnsupportedModelError, match=r"^evidence: "):
        net.evidence(X)
    flipped = Flipped(2, random_state=0).fit(load_iris().data)
    assert "Flipped does not predict as GaussianMixture does" in unsupported(flipped, load_iris().data)


class Odd:
    """Centers, and predictions of the test's choice."""

    cluster_centers_ = CENTROIDS

    def __init__(self, labels: Any) -> None:
        self.labels = labels
        self.fitted_ = True

    def predict(self, X: Any) -> Any:  # noqa: ARG002  # a model's signature
        return self.labels


def test_a_model_that_predicts_something_else() -> None:
    assert "1 of 3 rows differ, such as row 2 (predicted -1, not 2)" in unsupported(Odd(np.array([0, 1, -1])))
    assert "1 of 3 rows differ, such as row 2 (predicted 99, not 2)" in unsupported(Odd(np.array([0, 1, 99])))
    assert "such as row 0 (predicted 0.5, not 0)" in unsupported(Odd(np.array([0.5, 0.1, 0.1])))
    assert unsupported(Odd(np.array([0, 1]))) == (
        "explain: Odd.predict must give one label per row; got shape (2,) for 3 rows."
    )


def test_a_model_that_rounding_hides_is_refused() -> None:
    """Far from 0, float32 cannot tell the two near centroids apart, so nothing could be verified."""

    class Wrong:
        cluster_centers_ = np.array([[0.0, 0.0], [1.0, 0.0], [1000.0, 1000.0]]) + 1e4

        def predict(self, X: Array) -> Array:
            return np.where(X[:, 0] - 1e4 > 0.5, 0, 1)

    X = (np.random.default_rng(0).uniform(-0.3, 1.3, size=(2000, 2)) + 1e4).astype("f4")
    assert "2000 of 2000 rows differ" in unsupported(Wrong(), X)


def test_a_model_that_predicts_nothing() -> None:
    assert unsupported(Odd(None), pd.DataFrame(ROWS)) == (
        "explain: Odd.predict must give one label per row; got shape (1,) for 3 rows."
    )


class Slotted:
    """A stranger without attributes to look through."""

    __slots__ = ()

    def predict(self, X: Any) -> Any:
        raise NotImplementedError


def test_a_stranger_is_unknown_and_not_unfitted() -> None:
    assert "supported once they are fitted:" in unsupported(Slotted())


def test_centroids_that_are_no_table() -> None:
    assert message(ROWS, model=[[1.0], [1.0, 2.0]]).startswith(
        "neuralize: centroids must be a table of numbers"
    )
    twice = pd.DataFrame(CENTROIDS, columns=["a", "b", "a"])
    assert message(ROWS, model=twice) == (
        "neuralize: centroids must have unique column names; 'a' occurs more than once."
    )


def test_labels_of_another_number_than_the_clusters() -> None:
    energy = wc.neuralize(CENTROIDS).energy
    with pytest.raises(wc.InvalidInputError) as error:
        wc.TableNetwork(energy, labels=["a", "b"])
    assert str(error.value) == "neuralize: labels must be 3 names, one per cluster; got 2."
    with pytest.raises(wc.InvalidInputError) as error:
        wc.TableNetwork(energy, labels=["a", "b", "a"])
    assert str(error.value) == "neuralize: labels must be distinct; got ['a', 'b', 'a']."


def test_a_tie_may_be_predicted_either_way() -> None:
    X = np.array([[2.0, 0.0, 0.0]])
    for label in (0, 1):
        exp = wc.explain(Odd(np.array([label])), X)
        assert exp.cluster.tolist() == [0]


@pytest.mark.filterwarnings("ignore:Affinity propagation did not converge")
def test_affinities_without_centroids() -> None:
    model = AffinityPropagation(affinity="precomputed", random_state=0).fit(
        -((ROWS[:, None] - ROWS) ** 2).sum(axis=2)
    )
    assert unsupported(model) == (
        "neuralize: the AffinityPropagation was fitted on precomputed affinities, so it has no centroids in "
        "the space of the features. Fit it on the rows themselves."
    )


@pytest.mark.filterwarnings("ignore:Affinity propagation did not converge")
def test_affinity_propagation_that_did_not_converge() -> None:
    model = AffinityPropagation(max_iter=1, damping=0.5).fit(load_iris().data)
    assert message(load_iris().data, model=model) == (
        "neuralize: the AffinityPropagation did not converge and has no clusters. "
        "Fit it with more iterations or a different damping."
    )


def test_manhattan_distances_with_priors_do_not_add_over_features() -> None:
    X, y = np.random.default_rng(0).normal(size=(9, 3)), [0] * 6 + [1] * 3
    model = NearestCentroid(metric="manhattan", priors="empirical").fit(X, y)
    assert unsupported(model) == (
        "neuralize: NearestCentroid with metric='manhattan' must have uniform priors; with other priors, it "
        "squares the distances, which then no longer add up over the features. Got priors='empirical'."
    )


def test_metric() -> None:
    with pytest.raises(wc.InvalidInputError) as raised:
        wc.neuralize(CENTROIDS, metric="chebyshev")
    assert str(raised.value) == (
        "neuralize: metric must be one of 'euclidean', 'manhattan', 'cosine', 'dot', 'student', 'fuzzy'; got "
        "'chebyshev'."
    )
    assert message(ROWS, metric="chebyshev") == (
        "explain: metric must be one of 'euclidean', 'manhattan', 'cosine', 'dot', 'student', 'fuzzy'; got "
        "'chebyshev'."
    )
    assert message(ROWS, model=DBSCAN().fit(ROWS), metric="cosine") == (
        "explain: metric applies only to centroids, or to a fitted model with cluster_centers_ and predict; "
        "got DBSCAN."
    )
    assert message(ROWS, metric="cosine") == (
        'neuralize: with metric="cosine", centroids must not be all zeros, since a zero vector has no '
        "direction; centroid 0 is all zeros."
    )


def test_parameters_that_would_do_nothing() -> None:
    assert message(ROWS, model=wc.neuralize(CENTROIDS), metric="manhattan") == (
        "explain: metric applies only to centroids, not to a Network. Leave it out."
    )
    assert message(ROWS, categorical=[0, 1]) == (
        "explain: categorical applies only to KPrototypes, which does not record which columns are "
        "categorical; got a model of type ndarray. Leave categorical out."
    )


def test_a_row_out_of_range() -> None:
    exp = wc.explain(CENTROIDS, ROWS)
    with pytest.raises(IndexError, match=r"rows must be positions from 0 to 2"):
        exp.describe(500)


@pytest.mark.parametrize("threshold", [0, 1, 0.0, 1.0, -0.5, 1.5, np.nan, "0.9", True])
def test_a_threshold_is_a_probability(threshold: Any) -> None:
    assert message(ROWS, metric="dot", threshold=threshold) == (
        f"explain: threshold must be a probability strictly between 0 and 1; got {threshold!r}."
    )


def test_a_threshold_needs_probabilities() -> None:
    assert message(ROWS, threshold=0.9) == (
        "explain: threshold applies only to models that give probabilities, such as Gaussian mixtures; this "
        "model gives none. Leave it out."
    )
    for option in ({"against": 1}, {"rule": "joint"}, {"rule": "min-take-most"}, {"beta": 2.0}):
        assert message(ROWS, metric="dot", threshold=0.9, **option) == (
            "explain: threshold compares a cluster with all others at once, which fixes how they share "
            "the evidence, so it cannot be combined with against, beta or rule."
        )


def test_a_collapsed_component() -> None:
    """One on a single point is sharp but fine; one without weight is left out; a broken one is an error."""
    X = np.concatenate([np.random.default_rng(0).normal(size=(60, 2)), [[9.0, 9.0]]])
    model = GaussianMixture(3, means_init=[[0, 0], [1, 0], [9, 9]], random_state=0).fit(X)
    assert (wc.neuralize(model).assign(X) == model.predict(X)).all()
    assert np.isfinite(wc.explain(model, X).relevance).all()
    model.weights_ = np.array([0.5, 0.0, 0.5])
    net = wc.neuralize(model)
    assert net.labels.tolist() == [0, 2]
    with np.errstate(divide="ignore"):
        assert (net.assign(X) == model.predict(X)).all()
    model.precisions_cholesky_ = np.full_like(model.precisions_cholesky_, np.inf)
    assert message(X, model=model) == (
        "neuralize: every component of the GaussianMixture must have finite parameters; some components "
        "have collapsed. Fit it again with a larger reg_covar or fewer components."
    )


def test_one_cluster_in_a_tree() -> None:
    model = BisectingKMeans(1, random_state=0).fit(ROWS)
    assert message(ROWS, model=model) == (
        "neuralize: the model must have at least 2 clusters, since a cluster is explained against its "
        "competitors; got 1."
    )
