"""The result: its parts, selection, tables, frames and other libraries."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import scipy.sparse as sp
from numpy.typing import NDArray
from sklearn.cluster import BisectingKMeans, KMeans
from sklearn.datasets import load_breast_cancer, load_digits, load_iris
from sklearn.decomposition import PCA
from sklearn.mixture import GaussianMixture
from sklearn.neighbors import NearestCentroid
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import whycluster as wc
from tests.optional import optional
from tests.reference import neon
from whycluster.core import outputs
from whycluster.core.attribution import CodedQuery, numpy_passes
from whycluster.core.compiled.loops import Answer
from whycluster.core.energies import SquaredEnergy
from whycluster.data.table import ArrayTable
from whycluster.explanations.stories import rivals

if TYPE_CHECKING:
    import matplotlib as mpl
    import pandas as pd
    import polars as pl
    import pyarrow as pa
    import shap
else:
    pd = optional("pandas")
    mpl = optional("matplotlib")
    pl = optional("polars")
    pa = optional("pyarrow")
    shap = optional("shap")

Array = NDArray[Any]
NAMES = [f"column {i}" for i in range(13)]
GOLDEN = Path(__file__).parents[1] / "golden"


def test_labels_may_be_any_whole_numbers(wine: Array) -> None:
    model = NearestCentroid().fit(wine, np.array([30, -1, 7])[np.arange(178) % 3])
    exp = wc.explain(model, wine, against=-1)
    assert (exp.competitor == -1).all()
    assert set(exp.cluster) == {30, -1, 7}
    assert (wc.neuralize(model).assign(wine) == model.predict(wine)).all()


@pytest.fixture(scope="module")
def exp(wine: Array, kmeans: Any) -> wc.Explanation:
    return wc.explain(kmeans, wine, feature_names=NAMES)


def test_parts_have_the_shapes_they_promise(exp: wc.Explanation, wine: Array) -> None:
    assert exp.relevance.shape == wine.shape
    assert exp.evidence.shape == exp.cluster.shape == exp.competitor.shape == exp.residual.shape == (178,)
    assert exp.competition.shape == (178, 5)
    assert exp.data is wine
    assert exp.rule == "path"
    assert len(exp) == 178
    assert repr(exp) == "<Explanation of 178 rows, 13 features, 5 clusters (path, beta=0.5413)>"


def test_the_rule_is_named(wine: Array, kmeans: Any) -> None:
    exp = wc.explain(kmeans, wine, rule="min-take-most")
    assert exp.rule == "min-take-most"
    assert repr(exp) == "<Explanation of 178 rows, 13 features, 5 clusters (min-take-most, beta=0.1353)>"


def test_competition_of_the_paper_is_largest_at_the_competitor(wine: Array, kmeans: Any) -> None:
    exp = wc.explain(kmeans, wine, rule="min-take-most")
    assert (exp.competition[np.arange(len(exp)), exp.cluster] == 0).all()
    assert (exp.competition.argmax(axis=1) == exp.competitor).all()
    assert (exp.competition >= 0).all()


def test_competition_of_the_path_rule_is_the_reference(exp: wc.Explanation, wine: Array, kmeans: Any) -> None:
    """R_k = p_k h_k f_c / sum_j p_j h_j, with probabilities p_k averaged over four points of the path."""
    centers, sizes = kmeans.cluster_centers_, np.bincount(kmeans.labels_)
    assert exp.beta is not None
    for row, c in enumerate(exp.cluster.tolist()):
        h = {k: neon.detect(wine[row], centers, c, k) for k in neon.competitors(centers, c)}
        p = dict.fromkeys(h, 0.0)
        for t, g in ((1 / 16, 37 / 240), (5 / 16, 83 / 240), (11 / 16, 83 / 240), (15 / 16, 37 / 240)):
            w = {k: sizes[k] * np.exp(-t * exp.beta * h[k]) for k in h}
            p = {k: p[k] + g * w[k] / (sizes[c] + sum(w.values())) for k in h}
        scale = min(h.values()) / sum(p[k] * h[k] for k in h)
        expected = [0.0 if k == c else scale * p[k] * h[k] for k in range(5)]
        np.testing.assert_allclose(exp.competition[row], expected, rtol=1e-8)


@pytest.mark.parametrize(
    "question",
    [{}, {"beta": 0.1}, {"target": 3}, {"against": 3}, {"rule": "contrast"}, {"rule": "joint"}],
)
def test_competition_answers_the_question_that_was_asked(
    question: dict[str, Any], wine: Array, kmeans: Any
) -> None:
    exp = wc.explain(kmeans, wine, **question)
    np.testing.assert_allclose(exp.competition.sum(axis=1), exp.evidence, rtol=1e-9, atol=1e-12)
    if question in ({"against": 3}, {"rule": "contrast"}):
        elsewhere = np.ones((178, 5), dtype=bool)
        elsewhere[np.arange(178), exp.competitor] = False
        assert (exp.competition[elsewhere] == 0).all()


@pytest.mark.parametrize(
    ("name", "use"),
    [
        ("competition", lambda exp: exp.competition),
        ("summary", lambda exp: exp.summary()),
        ("top", lambda exp: exp.top()),
        ("to_frame", lambda exp: exp.to_frame()),
        ("to_shap", lambda exp: exp.to_shap()),
        ("top", lambda exp: exp.describe(7)),
    ],
)
def test_data_that_have_changed_are_noticed(name: str, use: Any, wine: Array, kmeans: Any) -> None:
    X = wine.copy()
    exp = wc.explain(kmeans, X)
    X[7] += 1
    with pytest.raises(wc.InvalidInputError) as error:
        use(exp)
    assert str(error.value) == (
        f"{name}: the data have been changed since they were explained. Explain them again."
    )


@pytest.mark.parametrize("load", [load_iris, load_breast_cancer, load_digits])
@pytest.mark.parametrize("dtype", ["f4", "f8"])
def test_data_that_have_not_changed_are_not_blamed(load: Any, dtype: str) -> None:
    """Also row by row, where BLAS sums in another order, and at boundaries, where evidence is tiny."""
    X = load().data[:200].astype(dtype)
    exp = wc.explain(KMeans(5, n_init=3, random_state=0).fit(X), X)
    for row in exp:
        assert row.top(1).feature.shape == (1, 1)


def test_a_row_far_off_does_not_hide_changes_of_the_others(wine: Array, kmeans: Any) -> None:
    X = wine.copy()
    X[0] = 1e9
    exp = wc.explain(kmeans, X)
    X[7] += 0.1
    with pytest.raises(wc.InvalidInputError, match="have been changed"):
        exp.top()


def test_a_common_level_of_all_features_is_no_change() -> None:
    """Rounding grows with the values of a row, even where they do not tell clusters apart."""
    rng = np.random.default_rng(0)
    centroids = rng.normal(size=(3, 30))
    centroids -= centroids.mean(axis=1, keepdims=True)
    exp = wc.explain(centroids, rng.normal(size=(20, 30)) + 1e9 * rng.normal(size=(20, 1)))
    assert all(row.top(1) for row in exp)


def test_a_frame_may_get_another_index_and_other_columns_afterwards(wine: Array, kmeans: Any) -> None:
    frame = pd.DataFrame(wine, columns=NAMES)
    exp = wc.explain(kmeans, frame)
    before = exp.to_frame()
    frame["cluster"] = exp.cluster
    frame.index = frame.index[::-1]
    del frame[NAMES[0]]
    assert exp.to_frame().equals(before)
    assert exp.summary().size.sum() == 178
    assert (exp.top(1).value[:, 0] == wc.explain(kmeans, wine).top(1).value[:, 0]).all()


def test_rows_are_called_what_the_user_calls_them(exp: wc.Explanation, wine: Array, kmeans: Any) -> None:
    assert exp.describe(3).startswith("Row 3 is in cluster ")
    assert exp[[9, 3]].describe(1) == exp[3].describe() == exp[1:5][2].describe()
    story = exp.describe(3).splitlines()
    assert [story[0], *story[-11:]] == exp[
        3
    ].describe().splitlines()  # without the other rows of the clusters
    named = wc.explain(kmeans, pd.DataFrame(wine, index=[f"wine {i}" for i in range(178)]))
    assert named[3].describe().startswith("Row wine 3 (position 3) is in cluster ")
    assert "\n2 more features " in exp.describe(3, n_features=11)


def test_a_row_against_its_own_cluster_is_told_so(wine: Array, kmeans: Any) -> None:
    exp = wc.explain(kmeans, wine, against=kmeans.labels_[0])
    assert exp.describe(0).startswith(
        f"Row 0 is in cluster {kmeans.labels_[0]}: a cluster has no evidence against itself\n"
    )


@pytest.mark.parametrize("row", [[1, 2], slice(3), "1", None])
def test_only_one_row_is_told(exp: wc.Explanation, row: Any) -> None:
    with pytest.raises(wc.InvalidInputError) as error:
        exp.describe(row)
    assert str(error.value) == f"describe: row must be a single integer position; got {row!r}."


@pytest.mark.parametrize(
    ("rows", "expected"),
    [
        (5, [5]),
        (-1, [177]),
        (np.int64(5), [5]),
        (slice(2, 5), [2, 3, 4]),
        ([3, 3, 0], [3, 3, 0]),
        (np.array([1, 2], dtype=np.uint8), [1, 2]),
        (np.arange(178) % 60 == 0, [0, 60, 120]),
        ((np.arange(178) % 60 == 0).tolist(), [0, 60, 120]),
        (pd.Series(np.arange(178) % 60 == 0), [0, 60, 120]),
        ([], []),
    ],
)
def test_rows_are_chosen_by_position(
    exp: wc.Explanation, wine: Array, rows: Any, expected: list[int]
) -> None:
    part = exp[rows]
    assert len(part) == len(expected)
    assert (part.relevance == exp.relevance[expected]).all()
    assert (part.evidence == exp.evidence[expected]).all()
    assert (part.cluster == exp.cluster[expected]).all()
    assert (part.data == wine[expected]).all()
    assert part.beta == exp.beta
    if expected:
        np.testing.assert_allclose(part.competition, exp.competition[expected], rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("rows", [[True, False], np.zeros((2, 2), int), [0.5], "0", None, True, (1, 2)])
def test_rows_that_cannot_be_chosen(exp: wc.Explanation, rows: Any) -> None:
    with pytest.raises(wc.InvalidInputError, match="rows must be an index, a slice, a list of indices or a"):
        exp[rows]


def test_a_row_that_is_not_there(exp: wc.Explanation) -> None:
    with pytest.raises(IndexError):
        exp[178]


def test_no_rows_can_be_chosen(exp: wc.Explanation) -> None:
    none = exp[exp.evidence < 0]
    assert len(none[[]]) == 0
    assert none.top(3).feature.shape == (0, 3)
    assert len(none.summary().clusters) == 0
    assert none.to_frame().shape == (0, 16)
    assert none.competition.shape == (0, 5)
    assert str(none) == "<Explanation of 0 rows, 13 features, 5 clusters (path, beta=0.5413)>"


def test_the_labels_cannot_be_overwritten(exp: wc.Explanation) -> None:
    with pytest.raises(ValueError, match="read-only"):
        exp.labels[0] = 99


def test_iteration_ends(exp: wc.Explanation) -> None:
    assert len(list(exp[:3])) == 3


def test_top_gives_the_strongest_features_first(exp: wc.Explanation, wine: Array) -> None:
    top = exp.top(3)
    assert len(top) == 178
    for row in (0, 50, 177):
        order = np.argsort(-np.abs(exp.relevance[row]))[:3]
        assert top.feature[row].tolist() == [NAMES[i] for i in order]
        assert (top.relevance[row] == exp.relevance[row, order]).all()
        assert (top.value[row] == wine[row, order]).all()
    assert exp.top(99).feature.shape == (178, 13)


@pytest.mark.parametrize("n", [0, -1, 1.5, "3"])
def test_top_of_no_number(exp: wc.Explanation, n: Any) -> None:
    with pytest.raises(wc.InvalidInputError) as error:
        exp.top(n)
    assert str(error.value) == f"top: n must be an integer from 1 to 13; got {n!r}."


def test_top_as_a_frame(exp: wc.Explanation) -> None:
    frame = exp.top(2).to_frame()
    assert list(frame.columns) == [
        "feature_1", "relevance_1", "value_1", "feature_2", "relevance_2", "value_2",
    ]  # fmt: skip
    assert len(frame) == 178


def test_summary_averages_over_members(exp: wc.Explanation, wine: Array) -> None:
    summary = exp.summary()
    assert summary.clusters.tolist() == [0, 1, 2, 3, 4]
    for group, cluster in enumerate(summary.clusters):
        inside = exp.cluster == cluster
        assert summary.size[group] == inside.sum()
        np.testing.assert_allclose(summary.relevance[group], exp.relevance[inside].mean(axis=0))
        np.testing.assert_allclose(summary.inside[group], wine[inside].mean(axis=0), atol=1e-12)
        np.testing.assert_allclose(summary.outside[group], wine[~inside].mean(axis=0), atol=1e-12)
    np.testing.assert_allclose(np.abs(summary.share).sum(axis=1), 1)


def contributions_by_hand(x: Array, centers: Array, cluster: int, rule: str, beta: float) -> Any:
    """Return a_k (e_k - e_c) of one row, {k: (d,)}, for a rule of k-means, straight from its equations."""
    split = {k: (x - center) ** 2 - (x - centers[cluster]) ** 2 for k, center in enumerate(centers)}
    h = {k: float(part.sum()) for k, part in split.items() if k != cluster}
    f, total = min(h.values()), sum(np.exp(-beta * value) for value in h.values())
    p = {k: np.exp(-beta * value) / total for k, value in h.items()}
    mean = sum(p[k] * h[k] for k in h)
    return {k: p[k] * f / (h[k] if rule == "min-take-most" else mean) * split[k] for k in h}


def named_by_hand(added: dict[int, float], sign: float) -> list[int]:
    """Return the fewest competitors that make up two thirds of the relevance of this sign, at most three."""
    part = {k: max(0.0, sign * amount) for k, amount in added.items()}
    named: list[int] = []
    for k in sorted(part, key=lambda k: -part[k]):
        if len(named) < 3 and sum(part[j] for j in named) < 2 / 3 * sum(part.values()):
            named.append(k)
    return sorted(named)


@pytest.mark.parametrize("rule", ["min-take-most", "joint"])
def test_summary_compares_with_the_clusters_that_the_relevance_comes_from(
    wine: Array, kmeans: Any, rule: str
) -> None:
    exp = wc.explain(kmeans, wine, rule=rule)
    summary, seen = exp.summary(), set()
    frame = summary.to_frame("pandas").set_index(["cluster", "feature"])
    assert exp.beta is not None
    for group, cluster in enumerate(summary.clusters.tolist()):
        centers = kmeans.cluster_centers_
        parts = [
            contributions_by_hand(x, centers, cluster, rule, exp.beta) for x in wine[exp.cluster == cluster]
        ]
        for feature in range(13):
            added = {k: sum(part[k][feature] for part in parts) for k in range(5) if k != cluster}
            total = sum(added.values())
            np.testing.assert_allclose(total / len(parts), summary.relevance[group, feature], rtol=1e-6)
            mean = {k: float(wine[exp.cluster == k, feature].mean()) for k in range(5)}
            named = named_by_hand(added, np.sign(total))
            above = [mean[cluster] > mean[k] for k in named]
            expected = "higher" if all(above) else "between" if any(above) else "lower"
            assert summary.direction[group, feature] == expected
            assert frame.against[cluster, summary.feature_names[feature]] == ", ".join(map(str, named))
            statement = summary.statement(group, feature)
            assert statement.against == tuple(named)
            values = [mean[k] for k in [cluster, *named]]
            np.testing.assert_allclose([statement.value, *statement.values], values)
            np.testing.assert_allclose(statement.overall, wine[:, feature].mean(), atol=1e-12)
            seen.add((expected, len(named)))
    assert {direction for direction, _ in seen} == {"higher", "lower", "between"}
    assert {1, 2} <= {n for _, n in seen}


@pytest.mark.parametrize("rule", ["path", "min-take-most", "joint"])
@pytest.mark.parametrize(
    "model",
    [
        KMeans(4, n_init=1, random_state=0),
        BisectingKMeans(4, random_state=0),
        GaussianMixture(4, covariance_type="diag", random_state=0),
        wc.KernelKMeans(4, random_state=0),
        make_pipeline(StandardScaler(), PCA(5), KMeans(4, n_init=1, random_state=0)),
    ],
    ids=["k-means", "tree", "mixture", "kernel", "pca"],
)
def test_the_contributions_of_all_competitors_add_up_to_the_relevance(
    wine: Array, model: Any, rule: str
) -> None:
    exp = wc.explain(model.fit(wine), wine, rule=rule)
    cluster, weights = exp.cluster_codes, exp.competitor_weights()
    energy = outputs.informed(exp.energy, exp.table)
    total = np.zeros((4, 13))
    for k in range(4):
        weight = np.where(cluster == k, 0.0, weights[:, k])
        weighted = rivals.Weighted(cluster, np.full(len(exp), k), weight, cluster)
        total += rivals.contributions(energy, exp.table, weighted, 4)
    expected = [exp.relevance[cluster == k].sum(axis=0) for k in range(4)]
    np.testing.assert_allclose(total, expected, rtol=1e-6, atol=1e-6 * np.abs(expected).max())
    shares = np.where(np.arange(4) == cluster[:, None], 0.0, exp.competition)
    np.testing.assert_allclose(shares.sum(axis=1), exp.evidence, rtol=1e-6)


def test_a_statement_names_the_cluster_that_its_relevance_comes_from() -> None:
    """Most rows of the first cluster are nearest to the second, but x1 keeps them apart from the third."""
    centers = np.array([[0.0, 0.0], [4.0, 0.5], [0.5, 6.0]])
    X = np.concatenate([np.repeat([[0.6, 0.3]], 8, axis=0), np.repeat(centers[1:], 4, axis=0)])
    exp = wc.explain(centers, X, rule="joint")
    assert set(exp.competitor[:8].tolist()) == {1}
    assert exp.summary().statement(0, 1).against == (2,)
    assert exp.summary().statement(0, 0).against == (1,)


def test_a_sample_of_the_members_decides_which_clusters_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """With very many clusters, only the eight strongest competitors are considered."""
    centers = np.random.default_rng(0).normal(size=(40, 3))
    X = np.random.default_rng(1).normal(size=(3000, 3))
    exp = wc.explain(centers, X, rule="min-take-most")
    every = exp.summary().to_frame("pandas")
    monkeypatch.setattr("whycluster.explanations.stories.rivals._MOST_STEPS", 0)
    few = exp.summary().to_frame("pandas")
    strong = every.share.abs() > 0.2
    assert (every.against == few.against)[strong].mean() > 0.8


def test_clusters_that_are_alike_are_left_out_of_the_comparison() -> None:
    """Two of three are nearly equal in a feature: both are lower than the third, whichever is lower."""
    centers = np.array([[0.0, 0.0], [0.0, 5.0], [5.0, 0.0]])
    X = np.array([[0.5, 1.0], [1.0, 0.5], [0.0, 5.0], [3.0, 4.5], [5.0, 0.0], [4.5, 3.0]])
    exp = wc.explain(centers, X)
    assert exp.cluster.tolist() == [0, 0, 1, 1, 2, 2]
    assert exp.competitor.tolist() == [1, 2, 0, 2, 0, 1]
    summary = exp.summary()
    assert summary.inside.tolist() == [[0.75, 0.75], [1.5, 4.75], [4.75, 1.5]]
    assert summary.direction.tolist() == [["lower", "lower"], ["lower", "higher"], ["higher", "lower"]]
    against = [[summary.statement(group, i).against for i in (0, 1)] for group in range(3)]
    assert against == [[(2,), (1,)], [(2,), (0, 2)], [(0, 1), (1,)]]


def test_a_cluster_between_two_others() -> None:
    x = np.repeat([[-10.0], [-0.1], [0.1], [10.0]], 20, axis=0)
    summary = wc.explain([[-10.0], [0.0], [10.0]], x).summary()
    assert summary.direction.tolist() == [["lower"], ["between"], ["higher"]]
    statement = summary.statement(1, 0)
    assert (statement.above, statement.below) == ((0,), (2,))
    assert statement.text == "x0 (mean 0) is above cluster 0 (-10) and below cluster 2 (10)"
    assert statement.comparison == "above cluster 0 (-10), below cluster 2 (10)"
    assert statement.phrase == "above cluster 0, below cluster 2"


def test_summary_of_labels_for_a_target_counts_its_members_only() -> None:
    rng = np.random.default_rng(0)
    kind = np.arange(90) % 3
    X = rng.normal(size=(90, 2)) + 9.0 * np.array([[0.0, 0.0], [1.0, 0.0], [0.0, 1.0]])[kind]
    summary = wc.explain(kind, X, target=1).summary()
    assert summary.clusters.tolist() == [1]
    assert summary.size.tolist() == [30]
    assert "does not predict" not in str(summary)
    assert f"{X[kind == 1, 0].mean():.3g}" in str(summary)


def test_summary_of_a_target_counts_its_members_only(wine: Array, kmeans: Any) -> None:
    own, asked = wc.explain(kmeans, wine).summary(), wc.explain(kmeans, wine, target=2).summary()
    assert asked.clusters.tolist() == [2]
    assert asked.size[0] == own.size[2]
    np.testing.assert_allclose(asked.relevance[0], own.relevance[2])
    np.testing.assert_allclose(asked.outside[0], own.outside[2])
    assert (asked.direction[0] == own.direction[2]).all()


def test_members_are_those_the_model_assigns_whatever_the_question(wine: Array, kmeans: Any) -> None:
    """A row may be nearer to 1 than to 3, and in neither."""
    exp = wc.explain(kmeans, wine, target=1, against=3)
    strange = (exp.evidence > 0) & (kmeans.labels_ != 1)
    assert strange.any()
    assert (exp.assigned == kmeans.labels_).all()
    assert exp.summary().size.tolist() == [(kmeans.labels_ == 1).sum()]
    row = int(np.flatnonzero(strange)[0])
    assert exp.describe(row).startswith(
        f"Row {row} is in cluster {kmeans.labels_[row]}, not in 1: "
        f"evidence {exp.evidence[row]:.3g} for 1 against 3\n"
    )


def test_summary_of_no_members() -> None:
    summary = wc.explain([[0.0], [1.0]], [[0.1]], target=1).summary()
    assert len(summary.clusters) == 0
    assert str(summary) == (
        "No row belongs to the cluster it is explained for, so there is nothing to average."
    )


def test_summary_against_a_cluster_leaves_that_cluster_out(wine: Array, kmeans: Any) -> None:
    summary = wc.explain(kmeans, wine, against=2).summary()
    assert summary.clusters.tolist() == [0, 1, 3, 4]


def test_summary_with_nothing_to_compare_has_no_direction() -> None:
    exp = wc.explain([[0.0, 0.0], [9.0, 0.0]], [[1.0, 0.1], [0.5, 0.1]])
    summary = exp.summary()
    assert np.isnan(summary.outside).all()
    assert (summary.direction == "").all()


@pytest.mark.parametrize(
    ("rule", "largest"),
    [("path", 1e-30), ("min-take-most", 0.0)],  # a weight of the path rule may be 1 up to rounding
)
def test_a_constant_feature_has_the_same_mean_in_all_clusters(rule: str, largest: float) -> None:
    X = np.column_stack([np.arange(10.0), np.full(10, 0.1)])
    summary = wc.explain([[2.0, 0.1], [7.0, 0.1]], X, rule=rule).summary()
    assert summary.direction.tolist() == [["lower", "same"], ["higher", "same"]]
    assert summary.statement(0, 1).text == "x1 has the same mean (0.1) as in cluster 1 (0.1)"
    assert np.abs(summary.relevance[:, 1]).max() <= largest


def test_summary_of_data_far_from_zero_keeps_its_digits() -> None:
    X = np.repeat([[0.0], [0.25], [1.0], [1.25]], 5, axis=0) + 2.0**32
    summary = wc.explain(np.array([[0.0], [1.0]]) + 2.0**32, X).summary()
    assert summary.direction.tolist() == [["lower"], ["higher"]]
    assert summary.statement(0, 0).comparison == "lower than in cluster 1 (4294967297)"
    assert (summary.inside - 2.0**32).tolist() == [[0.125], [1.125]]
    assert (summary.outside - 2.0**32).tolist() == [[1.125], [0.125]]


def test_summary_does_not_depend_on_the_order_of_rows() -> None:
    centroids = np.array([[0.0, 0.0], [0.5, 5.0], [0.0, 10.0], [1e18, 10.0]])
    X = np.vstack([np.repeat(centroids[:3], 50, axis=0), centroids[3]])
    X[:150] += 0.1 * np.random.default_rng(0).normal(size=(150, 2))
    last, first = wc.explain(centroids, X).summary(), wc.explain(centroids, X[::-1]).summary()
    assert last.direction[:, 0].tolist() == first.direction[:, 0].tolist()
    np.testing.assert_allclose(first.inside, last.inside, atol=1e-12)
    np.testing.assert_allclose(last.inside[1, 0], X[50:100, 0].mean())


def test_summary_as_a_frame(exp: wc.Explanation) -> None:
    frame = exp.summary().to_frame("pandas")
    assert list(frame.columns) == [
        "cluster", "size", "feature", "relevance", "share", "direction", "against", "mean_inside",
        "mean_outside",
    ]  # fmt: skip
    assert len(frame) == 5 * 13
    assert frame.groupby("cluster").relevance.is_monotonic_decreasing.all()
    assert set(frame.direction) <= {"higher", "between", "lower"}


@pytest.mark.parametrize("backend", ["pandas", "polars", "pyarrow"])
def test_the_frame_that_came_in_comes_out(backend: str, wine: Array, kmeans: Any) -> None:
    pandas = pd.DataFrame(wine, columns=NAMES)
    X: Any = {"pandas": pandas, "polars": pl.from_pandas(pandas), "pyarrow": pa.Table.from_pandas(pandas)}[
        backend
    ]
    exp = wc.explain(kmeans, X)
    for frame in (exp.to_frame(), exp.summary().to_frame(), exp.top(3).to_frame(), exp[:5].to_frame()):
        assert type(frame) is type(X)
    frame = exp.to_frame()
    names = frame.column_names if backend == "pyarrow" else list(frame.columns)
    assert names == ["cluster", "competitor", "evidence", *NAMES]
    assert (np.asarray(frame[NAMES[4]]) == exp.relevance[:, 4]).all()


def test_the_row_index_is_kept(wine: Array, kmeans: Any) -> None:
    index = pd.Index([f"wine {i}" for i in range(178)], name="name")
    exp = wc.explain(kmeans, pd.DataFrame(wine, columns=NAMES, index=index))
    assert exp.to_frame().index.equals(index)
    assert exp.to_frame().index.name == "name"
    assert exp[[5, 2]].to_frame().index.tolist() == ["wine 5", "wine 2"]
    assert exp.top(1).to_frame().index.equals(index)
    part = exp[np.linspace(0, 177, 65).astype(int)]
    assert part.summary().to_frame().index.equals(pd.RangeIndex(5 * 13))  # 65 rows too, but not these


@pytest.mark.parametrize("backend", ["pandas", "polars", "pyarrow"])
def test_an_array_goes_into_the_frame_that_is_asked_for(exp: wc.Explanation, backend: str) -> None:
    assert type(exp.to_frame(backend)).__module__.split(".")[0] == backend
    assert type(exp.to_frame()) is pd.DataFrame


@pytest.mark.parametrize("backend", ["pandas", "polars", "pyarrow"])
def test_names_that_no_frame_can_hold(backend: str) -> None:
    """Found by fuzzing."""
    if backend == "pandas" and pd.__version__ < "3":
        pytest.skip("pandas 2 holds such names")
    exp = wc.explain(np.eye(2), np.eye(2), feature_names=["a", "\ud800"])
    with pytest.raises(wc.InvalidInputError) as caught:
        exp.to_frame(backend)
    assert str(caught.value) == (
        "to_frame: names and labels must be valid Unicode to be written to a frame; got '\\ud800'. Rename "
        "the feature or the cluster."
    )


def test_a_frame_of_an_unknown_library(exp: wc.Explanation) -> None:
    with pytest.raises(wc.InvalidInputError) as error:
        exp.to_frame("excel")
    assert str(error.value) == (
        "to_frame: backend must be one of 'pandas', 'polars', 'pyarrow'; got 'excel'."
    )


def test_features_called_like_our_columns(wine: Array, kmeans: Any) -> None:
    names = ["cluster", "evidence", "evidence_", *NAMES[3:]]
    frame = wc.explain(kmeans, wine, feature_names=names).to_frame()
    assert list(frame.columns) == ["cluster_", "competitor", "evidence__", *names]


def test_numbered_columns_keep_their_numbers(wine: Array, kmeans: Any) -> None:
    exp = wc.explain(kmeans, pd.DataFrame(wine))
    assert list(exp.to_frame().columns) == ["cluster", "competitor", "evidence", *range(13)]
    assert list(exp.to_frame("polars").columns)[3:5] == ["0", "1"]
    assert list(exp.to_frame("pyarrow").column_names)[3:5] == ["0", "1"]
    assert exp.summary().to_frame().feature.dtype.kind == "i"


def test_names_that_fall_together_as_text_stay_apart() -> None:
    X = pd.DataFrame([[0.0, 1.0]], columns=pd.Index([1, "1"], dtype=object))
    frame = wc.explain([[0.0, 0.0], [5.0, 5.0]], X).to_frame("polars")
    assert frame.columns == ["cluster", "competitor", "evidence", "1", "1_"]


def test_labels_are_those_of_the_model(wine: Array) -> None:
    y = np.array(["red", "white", "rose"])[np.arange(178) % 3]
    model = NearestCentroid().fit(wine, y)
    exp = wc.explain(model, wine, target="white")
    assert set(exp.cluster) == {"white"}
    assert set(exp.competitor) <= {"red", "rose", "white"}
    assert set(exp.to_frame("polars")["competitor"]) == set(exp.competitor)
    assert wc.explain(model, wine, target=exp.cluster).evidence.tolist() == exp.evidence.tolist()
    assert "is in cluster red, not in white" in str(exp)


def test_summary_is_printed_as_a_table(exp: wc.Explanation) -> None:
    assert str(exp.summary()) + "\n" == (GOLDEN / "summary.txt").read_text()


def test_an_explanation_is_printed_row_by_row(exp: wc.Explanation) -> None:
    assert str(exp) + "\n" == (GOLDEN / "explanation.txt").read_text()


def test_control_characters_in_names_are_shown_and_not_obeyed(wine: Array, kmeans: Any) -> None:
    names = ["\x1b[2J\nwiped", *NAMES[1:]]
    text = wc.explain(kmeans, wine, feature_names=names).describe(0)
    label = np.array(["\x1b[31m", "b"])[np.arange(178) % 2]
    text += "\n" + str(wc.explain(NearestCentroid().fit(wine, label), wine))
    assert "\x1b" not in text
    assert all(len(line) < 100 for line in text.splitlines())


def test_shap_plots_take_the_explanation(exp: wc.Explanation, wine: Array) -> None:
    mpl.use("Agg")
    import matplotlib.pyplot as plt

    values = exp.to_shap()
    assert (values.values == exp.relevance).all()
    assert (values.data == wine).all()
    assert values.feature_names == NAMES
    np.testing.assert_allclose(values.base_values + values.values.sum(axis=1), exp.evidence, atol=1e-9)
    shap.plots.bar(values, show=False)
    shap.plots.beeswarm(values, show=False)
    shap.plots.waterfall(values[0], show=False)
    shap.plots.scatter(values[:, 2], show=False)
    plt.close("all")


def test_sparse_rows_go_to_shap(wine: Array, kmeans: Any) -> None:
    values = wc.explain(kmeans, sp.csr_array(wine)).to_shap()
    assert (values.data == wine).all()


def test_an_explanation_can_be_pickled(exp: wc.Explanation) -> None:
    """Process pools send results that way."""
    copy = pickle.loads(pickle.dumps(exp))
    assert (copy.relevance == exp.relevance).all()
    assert (copy.competition == exp.competition).all()


def test_a_question_is_not_written_over() -> None:
    codes = np.array([0, 1])
    rows = ArrayTable.of(np.zeros((2, 1)))
    question = CodedQuery(codes, codes[::-1]).for_rows(rows)
    for asked in (question.cluster, question.competitor):
        assert asked is not None
        assert not asked.flags.writeable
    assert codes.flags.writeable  # it is only looked at
    passes = numpy_passes(SquaredEnergy(np.array([[0.0], [4.0]])), rows, question)
    found = passes.answer(Answer.RELEVANCE, question.sharing, np.empty((2, 1)))
    assert found.cluster.tolist() == codes.tolist() == [0, 1]
    assert found.competitor.tolist() == [1, 0]
    assert found.evidence.tolist() == [16.0, -16.0]


@pytest.mark.parametrize("labels", [["b" * 60 + "1", "b" * 60 + "2"], ["1" * 41, "1" * 42]])
def test_labels_that_are_shown_alike_are_still_different_clusters(labels: list[str]) -> None:
    network = wc.TableNetwork(SquaredEnergy(np.array([[0.0], [4.0]])), labels=labels)
    assert ", not in " not in network.explain([[1.0]]).describe(0)
    other = network.explain([[1.0]], target=labels[1]).describe(0)
    assert ", not in " in other
    assert "for " in other
