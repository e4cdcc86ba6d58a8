"""Findings: sentences, competitors, borderline rows, and every warning."""

from __future__ import annotations

import datetime as dt
from collections.abc import Hashable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from sklearn.cluster import BisectingKMeans, KMeans
from sklearn.decomposition import PCA
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.mixture import GaussianMixture
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import PowerTransformer, StandardScaler

import whycluster as wc
from tests.golden import read_golden
from tests.golden.findings import findings, stars
from tests.optional import optional
from whycluster.data.column_checks import holds_dates, identifier_reason
from whycluster.data.columns import Column, columns_of
from whycluster.explanations.base import BaseExplanation
from whycluster.explanations.checks.clusters import _undecided
from whycluster.explanations.fidelity import Fidelity
from whycluster.explanations.findings import (
    Finding,
    borderline,
    borderline_rows,
    competition,
    sentences,
    statements,
    typical_rows,
    warnings,
)
from whycluster.explanations.stories.member_sample import MOST_ROWS

if TYPE_CHECKING:
    import pandas as pd
    import polars as pl
    import torch
    from kmodes.kmodes import KModes
else:
    pd = optional("pandas")
    pl = optional("polars")
    torch = optional("torch")
    KModes = optional("kmodes.kmodes:KModes")

Array = NDArray[Any]
ENDS = np.array([[0.0], [10.0]])  # the evidence of a row x in the first is 100 - 20 x


def found(exp: BaseExplanation, kind: str) -> list[Finding]:
    return [warning for warning in warnings(exp) if warning.kind == kind]


def explained(centroids: Any, X: Any, **options: Any) -> wc.Explanation:
    return wc.explain(np.asarray(centroids, dtype=float), X, **options)


def column(values: Any) -> Array:
    return np.asarray(values, dtype=float)[:, None]


def test_the_golden_text_is_unchanged() -> None:
    assert findings() + "\n" == read_golden("findings")


class TestSentences:
    def test_features_are_named_until_they_carry_most_of_what_speaks_for_a_cluster(self) -> None:
        # Squares of the differences of centroids, at the centroids: 50, 30, 11, 9 of a hundred.
        far = np.sqrt([[50.0, 30.0, 11.0, 9.0]])
        exp = explained(np.vstack([far * 0, far]), np.vstack([far * 0, far]), feature_names=list("abcd"))
        assert sentences(exp) == ["Lower a and b than cluster 1.", "Higher a and b than cluster 0."]

    def test_no_more_than_four_are_named(self) -> None:
        exp = explained([np.zeros(9), np.ones(9)], [np.zeros(9), np.ones(9)])
        assert sentences(exp)[1] == "Higher x0, x1, x2 and x3 than cluster 0."

    def test_features_are_grouped_by_direction_and_speak_for_the_cluster(self) -> None:
        centroids = [[0.0, 9.0, 0.0], [8.0, 0.0, 8.0]]
        exp = explained(centroids, [[0.0, 9.0, 5.0], [8.0, 0.0, 8.0]])  # x2 speaks against the first
        assert sentences(exp) == [
            "Higher x1, lower x0 than cluster 1.",
            "Lower x1, higher x0 than cluster 0.",
        ]

    def test_a_cluster_may_be_between_its_competitors(self) -> None:
        exp = explained([[0.0], [10.0], [20.0]], column([0, 0, 9, 11, 20, 20]), feature_names=["age"])
        assert sentences(exp) == [
            "Lower age than clusters 1 and 2.",
            "age above cluster 0 and below cluster 2.",
            "Higher age than clusters 0 and 1.",
        ]
        tied = explained([[0.0], [10.0], [20.0]], column([0, 0, 10, 10, 20, 20]), feature_names=["age"])
        assert sentences(tied)[1] == "age above cluster 0 and below cluster 2."  # each adds half

    def test_without_another_cluster_there_is_no_direction(self) -> None:
        assert sentences(explained(ENDS, [[1.0]])) == ["Set apart by x0."]

    def test_where_nothing_speaks_for_a_cluster(self) -> None:
        assert sentences(explained([[1.0], [1.0]], [[1.0]])) == ["No feature sets it apart."]

    @pytest.mark.parametrize("rows", [[12, 12, 12], [12, 12, 8], [12, 8, 12, 8], [12] * 9 + [8]])
    def test_clusters_are_named_by_how_much_they_add(self, rows: list[int]) -> None:
        exp = explained([[0.0], [10.0], [20.0]], column([0, *rows, 20]), rule="min-take-most")
        added, beta = [0.0, 0.0], exp.beta
        assert beta is not None
        for x in rows:  # a competitor adds p_k f, since there is only one feature
            h = [x**2 - (x - 10) ** 2, (x - 20) ** 2 - (x - 10) ** 2]
            p = np.exp([-beta * value for value in h]) / sum(np.exp(-beta * value) for value in h)
            added = [so_far + share * min(h) for so_far, share in zip(added, p, strict=True)]
        is_enough = [part >= 2 / 3 * sum(added) for part in added]
        words = ["Higher x0 than cluster 0.", "Lower x0 than cluster 2."]
        between = "x0 above cluster 0 and below cluster 2."
        said = sentences(exp)[1].replace(", though above the overall mean", "")
        assert said == next((w for w, e in zip(words, is_enough, strict=True) if e), between)

    def test_of_many_competitors_those_that_a_feature_separates_are_named(self) -> None:
        corners = np.concatenate([np.zeros((1, 4)), 10 * np.eye(4)])
        exp = explained(corners, np.concatenate([np.eye(4), corners[1:]]))
        assert sentences(exp)[0] == (
            "Lower x0 than cluster 1; lower x1 than cluster 2; lower x2 than cluster 3."
        )

    def test_the_category_that_speaks_for_a_cluster_is_named(self) -> None:
        frame = pd.DataFrame({"Sex": ["male"] * 6 + ["female"] * 6, "pet": ["cat", "dog"] * 6})
        exp = wc.explain(wc.tabular.pipeline(frame, 2), frame)
        texts = dict(zip(exp.cluster[[0, 6]].tolist(), ["male", "female"], strict=True))
        assert sentences(exp) == [
            f"Sex mostly {texts[label]} (100%, against 0% in cluster {1 - label}); no other feature adds "
            "to its relevance."
            for label in exp.labels.tolist()
        ]

    def test_the_most_frequent_category_is_not_named_if_it_speaks_against_the_cluster(self) -> None:
        """Most penguins of the first cluster live on Dream, but so do more of the second."""
        frame = pd.DataFrame(
            {
                "island": ["Dream"] * 6 + ["Torgersen"] * 4 + ["Dream"] * 9 + ["Biscoe"],
                "mass": [30.0 + i / 10 for i in range(10)] + [50.0 + i / 10 for i in range(10)],
            }
        )
        exp = wc.explain(wc.tabular.pipeline(frame, 2), frame)
        assert set(exp.cluster[:10]) == {exp.cluster[0]} != set(exp.cluster[10:])
        first, column = exp.cluster[0], exp.feature_names.index("island")
        relevance = pd.Series(exp.relevance[:10, column]).groupby(frame.island[:10]).sum()
        assert relevance["Dream"] < 0 < relevance["Torgersen"]
        statement = exp.summary().statement(list(exp.summary().clusters).index(first), column)
        assert statement.text == f"island is more often Torgersen (40%, against 0% in cluster {1 - first})"
        assert (statement.direction, statement.is_category) == ("Torgersen", True)

    def test_a_category_that_is_no_more_frequent_than_elsewhere_is_compared_without_an_order(self) -> None:
        frame = pd.DataFrame({"pet": ["dog"] * 5 + ["cat"] * 4 + ["dog"] * 3 + ["cow"] * 2})
        exp = wc.explain(wc.tabular.pipeline(frame, 2), frame)
        summary = exp.summary()
        counts = summary.compared.categories[0]
        equal = counts._replace(frequency=np.broadcast_to(counts.frequency[:1], counts.frequency.shape))
        frequent = replace(summary, compared=replace(summary.compared, categories={0: equal}))
        assert sentences(exp, frequent)[0] == "Set apart by pet."
        statement = frequent.statement(0, 0)
        own = f"{statement.value:.0%}"
        word = "mostly" if statement.value > 0.5 else "partly"
        assert statement.comparison == f"{word} {statement.direction}; {own} in cluster 1"
        assert statement.text == f"pet is {word} {statement.direction} ({own}, against {own} in cluster 1)"

    def test_why_there_is_nothing_to_compare(self) -> None:
        words = [f"w{i}" for i in range(40)]
        frame = pd.DataFrame({"x": [0.0] * 20 + [9.0] * 20, "word": words, "pay": [np.nan] * 20 + [1.0] * 20})
        encoder = wc.tabular.encoder(frame, keep=["word"])
        model = make_pipeline(encoder, KMeans(2, n_init=1, random_state=0)).fit(frame)
        exp = wc.explain(model, frame)
        first = [each for each in statements(exp, 3) if each.cluster == exp.cluster[0]]
        texts = {each.feature: (each.direction, each.comparison, each.text) for each in first}
        rare = "no frequent category that supports the cluster"
        assert texts["word"] == ("", rare, f"word has {rare}")
        few = exp[np.flatnonzero(exp.cluster == exp.cluster[0])]
        alone = {each.feature: each.comparison for each in statements(few, 3)}
        assert alone["x"] == "nothing to compare with"

    def test_a_category_may_be_called_as_our_own_words(self) -> None:
        frame = pd.DataFrame({"word": ["by"] * 6 + [""] * 6})
        exp = wc.explain(wc.tabular.pipeline(frame, 2), frame)
        assert sorted(sentences(exp)) == [
            f"word mostly '' (100%, against 0% in cluster {exp.cluster[0]}).",
            f"word mostly by (100%, against 0% in cluster {exp.cluster[6]}).",
        ]

    def test_noise_is_far_and_compared_with_only_if_there_is_no_other_cluster(self) -> None:
        exp = wc.explain(*reversed(stars()), feature_names=["mass", "light", "age"])
        assert sentences(exp)[2] == "Far from all clusters, mostly in light and mass."
        rest = "; all other features add under 1%."
        assert sentences(exp)[:2] == [f"Lower mass than cluster 1{rest}", f"Higher mass than cluster 0{rest}"]
        summary = exp.summary()
        assert (
            sentences(exp, replace(summary, relevance=0 * summary.relevance))[2] == "Far from all clusters."
        )
        X, labels = stars()
        one = wc.explain(np.where(labels == 0, 0, -1), X)
        assert " than noise" in sentences(one)[0]

    def test_odd_names_are_shown_and_not_obeyed(self) -> None:
        names: list[Hashable] = [None, 3, ("a", 1), "", "\x1b[31mred\n", "x and y", "s" * 50]
        for name, shown in zip(
            names,
            ["None", "3", "\"('a', 1)\"", "''", "\\x1b[31mred\\n", '"x and y"', "s" * 37 + "..."],
            strict=True,
        ):
            exp = explained(ENDS, column([0, 10]), feature_names=[name])
            assert sentences(exp) == [f"Lower {shown} than cluster 1.", f"Higher {shown} than cluster 0."]

    def test_labels_may_be_text(self) -> None:
        labels = np.array(["A\n", "bee"])[[0, 1] * 10]
        exp = wc.explain(labels, column([0, 10] * 10) + np.arange(20)[:, None] / 100)
        assert sentences(exp) == ["Lower x0 than cluster bee.", "Higher x0 than cluster A\\n."]

    def test_only_members_count(self, wine: Array, kmeans: Any) -> None:
        exp = wc.explain(kmeans, wine, target=3)
        assert len(sentences(exp)) == len(exp.summary().clusters) == 1
        assert sentences(wc.explain(kmeans, wine, target=(kmeans.labels_ + 1) % 5)) == []
        against = wc.explain(kmeans, wine, against=3)
        said = [sentence.partition(", though ")[0].rstrip(".") for sentence in sentences(against)]
        assert [sentence.endswith(" than cluster 3") for sentence in said] == [True] * 4
        assert {statement.against for statement in statements(against, 13)} == {(3,)}

    def test_documents_are_described_by_their_words(self, documents: Any) -> None:
        assert sorted(sentence.split(";")[0] for sentence in sentences(documents)) == [
            "bread and butter",
            "orbit and shuttle",
        ]
        assert sentences(documents)[0].endswith("; against cluster 1.")

    def test_documents_that_are_noise(self, documents: Any) -> None:
        named = replace(documents, labels=np.array([7, "noise"], dtype=object))
        words = sentences(documents)[1].split(";")[0]
        assert sentences(named)[0].endswith("; against noise.")
        assert sentences(named)[1] == f"Far from all clusters, mostly because of {words}."

    def test_documents_without_words(self, documents: Any) -> None:
        empty = replace(documents.summary(), share=np.full(4, -1.0))
        assert sentences(documents, empty)[0] == "No known word sets it apart; against cluster 1."


@pytest.fixture(scope="module")
def documents() -> Any:
    texts = ["orbit shuttle", "shuttle orbit orbit", "bread butter", "bread bread butter"] * 5
    model = make_pipeline(TfidfVectorizer(), KMeans(2, n_init=1, random_state=0)).fit(texts)
    return wc.explain(model, texts)


class TestRivalry:
    @pytest.mark.parametrize(
        "model",
        [
            KMeans(4, n_init=1, random_state=0),
            GaussianMixture(3, random_state=0),
            BisectingKMeans(5, random_state=0),
            make_pipeline(StandardScaler(), PCA(3), KMeans(4, n_init=1, random_state=0)),
        ],
        ids=["k-means", "mixture", "tree", "pipeline"],
    )
    def test_it_is_the_mean_of_the_contrasts_with_each_competitor(self, model: Any, wine: Array) -> None:
        exp = wc.explain(model.fit(wine), wine)
        competing = competition(exp)
        for g, label in enumerate(exp.labels):
            own = exp.cluster == label
            for k, other in enumerate(exp.labels):
                assert competing.share[g, k] == np.mean(exp.competitor[own] == other)
                if label == other:
                    assert np.isnan(competing.evidence[g, k])
                    assert (competing.feature[g, k] == -1).all()
                    assert np.isnan(competing.relevance[g, k]).all()
                    continue
                contrast = wc.explain(model, wine, against=other)
                np.testing.assert_allclose(competing.evidence[g, k], contrast.evidence[own].mean(), rtol=1e-9)
                mean = contrast.relevance[own].mean(axis=0)
                strongest = np.argsort(-mean)[:3]
                assert competing.feature[g, k].tolist() == strongest.tolist()
                np.testing.assert_allclose(competing.relevance[g, k], mean[strongest], rtol=1e-7)

    def test_of_few_features_there_are_few_and_only_those_that_speak_for_the_cluster(self) -> None:
        competing = competition(explained([[0.0, 0.0], [8.0, 2.0]], [[0.0, 2.0], [8.0, 2.0]]))
        assert competing.feature[0].tolist() == [[-1, -1, -1], [0, -1, -1]]
        np.testing.assert_array_equal(competing.relevance[0, 1], [64.0, np.nan, np.nan])
        assert competing.feature[1, 0].tolist() == [0, 1, -1]

    def test_clusters_without_members_have_no_line(self) -> None:
        competing = competition(explained([[0.0], [10.0], [99.0]], column([0, 1])))
        assert competing.clusters.tolist() == [0]
        assert competing.share.tolist() == [[0.0, 1.0, 0.0]]
        np.testing.assert_array_equal(competing.evidence, [[np.nan, 90.0, 9702.0]])

    def test_without_members_there_are_no_lines(self) -> None:
        competing = competition(explained(ENDS, column([0, 1]), target=1))
        assert competing.share.shape == competing.evidence.shape == (0, 2)
        assert competing.feature.shape == competing.relevance.shape == (0, 2, 3)

    def test_of_many_rows_some_of_every_cluster_are_taken(self) -> None:
        rows = np.concatenate([np.linspace(-1, 1, 3 * MOST_ROWS), [10.0]])
        competing = competition(explained(ENDS, column(rows)))
        assert competing.evidence[1, 0] == 100.0
        assert competing.evidence[0, 1] == pytest.approx(100.0, rel=1e-4)
        assert competing.share.tolist() == [[0.0, 1.0], [1.0, 0.0]]

    def test_documents_have_no_features(self, documents: Any) -> None:
        competing = competition(documents)
        assert competing.feature_names == []
        assert (competing.feature == -1).all()
        first = documents.cluster == competing.clusters[0]
        assert competing.evidence[0, 1] == pytest.approx(documents.evidence[first].mean())

    def test_data_that_changed_are_not_read(self) -> None:
        rows = column([0, 10])
        exp = explained(ENDS, rows)
        rows += 1
        message = "the data have been changed since they were explained. Explain them again."
        with pytest.raises(wc.InvalidInputError, match=f"^competition: {message}$"):
            competition(exp)
        with pytest.raises(wc.InvalidInputError, match=f"^summary: {message}$"):
            warnings(exp)


class TestRows:
    def test_borderline_rows_have_at_most_a_tenth_of_the_median_evidence(self) -> None:
        exp = explained(ENDS, column([0, 0, 0, 4.5, 4.48, 5.1, 10]))  # evidence 100, 10, 10.4, 2, 100
        assert borderline(exp).tolist() == [False, False, False, True, False, True, False]

    def test_of_rows_explained_for_another_cluster_the_other_side_is_near_too(self) -> None:
        exp = explained(ENDS, column([0, 0, 4.9, 5.1, 10]), target=0)
        assert borderline(exp).tolist() == [False, False, True, True, False]

    def test_a_row_against_itself_has_no_boundary(self) -> None:
        exp = explained(ENDS, column([0, 5.1, 10, 4.9]), against=0)
        assert borderline(exp).tolist() == [False, True, False, False]

    def test_typical_rows_are_in_the_middle_and_borderline_rows_at_the_edge(self) -> None:
        exp = explained(ENDS, column([-9, 1, 4, 2, 3, 10, 2]))
        assert typical_rows(exp, 0, 3).tolist() == [3, 6, 1]
        assert borderline_rows(exp, 0, 3).tolist() == [2, 4, 3]
        assert typical_rows(exp, 1, 3).tolist() == borderline_rows(exp, 1, 3).tolist() == [5]

    def test_a_cluster_without_members_has_none(self) -> None:
        exp = explained([*ENDS, [99.0]], column([0, 1]))
        assert typical_rows(exp, 2, 3).tolist() == borderline_rows(exp, 2, 3).tolist() == []
        assert exp.member_clusters.codes.tolist() == [0]


class TestOneColumn:
    def test_a_column_with_all_variance_is_to_be_standardized(self) -> None:
        rows = np.array([[0.0, 0.0, 0.0], [99.0, 1.0, 1.0]])
        assert found(explained(rows, np.tile(rows, (5, 1)), feature_names=list("abc")), "one column") == [
            Finding(
                "one column",
                '"a" carries over 99% of all relevance and has over 99% of the variance of all columns, so '
                "the other 2 columns hardly count. If that is only due to its units, standardize the columns "
                "and cluster again.",
                (),
                "a",
            )
        ]

    def test_a_column_that_was_scaled(self) -> None:
        rng = np.random.default_rng(0)
        rows = rng.normal(size=(1000, 3))
        rows[:500, 0] += 1000.0
        model = make_pipeline(StandardScaler(), KMeans(2, n_init=1, random_state=0)).fit(rows)
        (warning,) = found(wc.explain(model, rows), "one column")
        assert warning.text.startswith('"x0" carries 9')
        assert warning.text.endswith(
            "% of all relevance, so the other 2 columns hardly count. If "
            "that is not intended, leave it out and cluster again."
        )

    @pytest.mark.parametrize("last", ["k-means", "mixture"])
    def test_steps_that_do_not_scale_and_mixtures(self, last: str) -> None:
        rng = np.random.default_rng(0)
        rows = rng.normal(size=(300, 3)) * [99.0, 1.0, 1.0]
        rows[:150, 0] += 5000.0
        model = KMeans(2, n_init=1, random_state=0) if last == "k-means" else GaussianMixture(2)
        (warning,) = found(wc.explain(make_pipeline(PCA(3), model).fit(rows), rows), "one column")
        assert ("standardize" in warning.text) == (last == "k-means")

    @pytest.mark.parametrize(
        "rows", [[[0, 0], [99, 1]], [[0, 0, 0], [99, 30, 20]]], ids=["two columns", "others count"]
    )
    def test_near_cases(self, rows: Any) -> None:
        assert not found(explained(rows, np.tile(rows, (5, 1))), "one column")

    def test_few_rows_say_little(self) -> None:
        rows = np.array([[0.0, 0.0, 0.0], [99.0, 1.0, 1.0]])
        assert not found(explained(rows, np.tile(rows, (4, 1))), "one column")

    def test_variance_is_that_of_what_is_clustered(self, wine: Array) -> None:
        for steps in ([], [StandardScaler()], [PCA(13)], [StandardScaler(), PCA(13)]):
            model = make_pipeline(*steps, KMeans(3, n_init=1, random_state=0)).fit(wine * np.arange(1, 14))
            spread = wc.explain(model, wine * np.arange(1, 14)).table.variances()
            scaled = bool(steps) and isinstance(steps[0], StandardScaler)
            assert spread is not None
            np.testing.assert_allclose(spread, np.arange(1.0, 14.0) ** (0 if scaled else 2))

    def test_of_what_is_mixed_and_then_bent_no_variance_is_known(self, wine: Array) -> None:
        model = make_pipeline(PCA(3), PowerTransformer(), KMeans(3, n_init=1, random_state=0)).fit(wine)
        assert wc.explain(model, wine).table.variances() is None

    def test_of_categories_alone_there_is_no_variance(self) -> None:
        kmodes = pytest.importorskip("kmodes.kmodes")
        rows = np.array([["a", "x", "u"], ["b", "x", "u"]] * 6)
        exp = wc.explain(kmodes.KModes(2, random_state=0, n_init=1).fit(rows), rows)
        (warning,) = found(exp, "one column")
        assert warning.text == (
            '"x0" carries 100% of all relevance, so the other 2 columns '
            "hardly count. If that is not intended, leave it out and cluster again."
        )


IDENTIFIED = "An identifier names a row but does not describe it. Leave the column out and cluster again."
DATED = (
    "and holds dates. Rows may be grouped by time, not by what they are like. If that is not intended, leave "
    "the column out, or replace it with a feature derived from it, such as an age or the month."
)


class TestIdentifiersAndDates:
    def test_an_identifier_that_drives_clusters(self) -> None:
        pl = pytest.importorskip("polars")
        frame = pl.DataFrame({"row id": range(0, 40, 2), "b": [0.0] * 20})
        exp = explained([[0, 0], [19, 0], [38, 0]], frame)
        assert found(exp, "identifier") == [
            Finding(
                "identifier",
                '"row id" carries up to 100% of the relevance of clusters 0, 1 and 2, and looks like an '
                f"identifier: whole numbers in a column with such a name. {IDENTIFIED}",
                (0, 1, 2),
                "row id",
            )
        ]

    @pytest.mark.parametrize("share", [30.0, 29.0])
    def test_of_a_cluster_it_must_carry_a_good_part(self, share: float) -> None:
        exp = explained([[0, 0], [19, 0]], np.stack([np.arange(20), np.zeros(20)], axis=1))
        summary = replace(exp.summary(), relevance=np.array([[10.0, 90.0], [share, 100.0 - share]]))
        found_warnings = [
            warning for warning in warnings(exp, summary=summary) if warning.kind == "identifier"
        ]
        assert found_warnings == [
            Finding(
                "identifier",
                '"x0" carries 30% of the relevance of cluster 1, and looks like an identifier: consecutive '
                f"whole numbers. {IDENTIFIED}",
                (1,),
                "x0",
            )
        ] * (share == 30.0)

    def test_near_cases(self) -> None:
        counted = np.arange(40.0)
        other = np.where(counted < 20, 0.0, 100.0)  # carries nearly all
        assert not found(explained([[10, 0], [30, 100]], np.stack([counted, other], axis=1)), "identifier")
        for values in (counted + 0.5, counted**2, np.repeat(counted[:20], 2), counted[:9]):
            assert not found(explained(ENDS, column(values)), "identifier")

    @pytest.mark.parametrize(
        ("values", "reason"),
        [
            (range(5, 25), "consecutive whole numbers"),
            ([f"k{i}" for i in range(20)], "20 of 20 values are distinct"),
            (
                [str(i) for i in range(20)],
                "20 of 20 values are distinct (most can be read as numbers; convert them first)",
            ),
            ([float(i) for i in range(20)], ""),
            (["a", "b"] * 10, ""),
            ([[1], [2]] * 10, ""),
            ([None] * 10, ""),
        ],
    )
    def test_identifiers_are_those_that_the_pipeline_leaves_out(self, values: Any, reason: str) -> None:
        pl = pytest.importorskip("polars")
        for frame in (pd.DataFrame({"x": list(values)}), pl.DataFrame({"x": list(values)}, strict=False)):
            found = identifier_reason(columns_of(frame, "test")[0])
            assert found == (f"like an identifier, {reason}" if reason else "")

    def test_text_among_numbers_is_text(self) -> None:
        frame = pd.DataFrame({"x": [*map(str, range(11)), 12]})
        assert identifier_reason(columns_of(frame, "test")[0]) == (
            "like an identifier, 12 of 12 values are distinct (most can be read as numbers; convert them "
            "first)"
        )

    def test_a_date_that_drives_a_cluster(self) -> None:
        frame = pd.DataFrame({"seen": pd.date_range("2020-01-01", periods=40)})
        exp = wc.explain(wc.tabular.pipeline(frame, 2), frame)
        assert found(exp, "date") == [
            Finding(
                "date",
                f'"seen" carries up to 100% of the relevance of clusters 0 and 1, {DATED}',
                (0, 1),
                "seen",
            )
        ]
        days = pd.DataFrame({"day": [dt.date(2020, 1, day) for day in range(1, 31)]}, dtype=object)
        (warning,) = found(wc.explain(wc.tabular.pipeline(days, 2), days), "date")
        assert warning.feature == "day"
        lasts = frame - pd.Timestamp("2020-01-01")  # a duration is no date
        assert not found(wc.explain(wc.tabular.pipeline(lasts, 2), lasts), "date")

    def test_days_may_be_written_as_numbers(self) -> None:
        days = [20240100 + day for day in range(1, 29, 2)]
        (warning,) = found(explained([[20240101.0], [20240128.0]], column(days)), "date")
        assert warning.text == f'"x0" carries up to 100% of the relevance of clusters 0 and 1, {DATED}'
        for near in (np.array(days) - 20240000, np.array(days) + 60, np.array(days) + 0.5, days[:9]):
            ends = column([np.min(near), np.max(near)])
            assert not found(explained(ends, column(near)), "date")

    def test_days_in_a_frame(self) -> None:
        days = pd.date_range("2020-01-01", periods=12)
        cases: list[tuple[Any, bool]] = [
            (days, True),
            (days.strftime("%Y-%m-%d"), True),
            (days.strftime("%Y%m%d").astype(int), True),
            (pd.array([*days.strftime("%Y%m%d").astype(int), None], dtype="Int64"), True),
            (days - days[0], False),
            (range(12), False),
            (list("ab") * 6, False),
            ([True, False] * 6, False),
        ]
        for values, expected in cases:
            assert holds_dates(columns_of(pd.DataFrame({"x": values}), "test")[0]) is expected

    def test_arrays_of_objects_and_sparse_ones(self) -> None:
        objects = Column("x", None, lambda: ["a", "b"] * 10, "test")
        assert identifier_reason(objects) == ""
        assert holds_dates(objects) is False
        rows = sp.csr_array(column(np.arange(20)))
        (warning,) = found(explained([[0.0], [19.0]], rows), "identifier")
        assert warning.clusters == (0, 1)


class TestMissingValues:
    def found_warnings(self, share: float, direction: str = "missing") -> list[Finding]:
        exp = explained(np.eye(2), np.eye(2), feature_names=["age", "x"])
        summary = replace(
            exp.summary(),
            relevance=np.array([[share, 100.0 - share], [0.0, 1.0]]),
            direction=np.array([[direction, "high"], ["", "low"]]),
            inside=np.full((2, 2), 0.9),
            outside=np.full((2, 2), 0.104),
        )
        return warnings(exp, summary=summary)

    def test_a_cluster_that_rests_on_missing_values(self) -> None:
        assert self.found_warnings(25.0) == [
            Finding(
                "missing values",
                'Cluster 0 depends on missing values: "age" is missing in 90% of its rows (10% elsewhere) '
                "and carries 25% of its relevance. Rows may be grouped by how they were recorded, not by "
                "what they are like. Find out why the values are missing; fill them in or leave the column "
                "out, and cluster again.",
                (0,),
                "age",
            )
        ]

    def test_near_cases(self) -> None:
        assert (
            self.found_warnings(24.0) == self.found_warnings(-90.0) == self.found_warnings(90.0, "high") == []
        )

    def test_of_a_single_cluster_there_is_no_elsewhere(self) -> None:
        exp = explained(np.eye(2), np.eye(2)[:1])
        summary = replace(exp.summary(), direction=np.array([["missing", ""]]), inside=np.ones((1, 2)))
        (warning,) = warnings(exp, summary=summary)
        assert warning.text.startswith(
            'Cluster 0 depends on missing values: "x0" is missing in 100% of its rows and carries 50% of its '
        )


class TestBorderline:
    def test_a_cluster_of_borderline_rows(self) -> None:
        exp = explained(ENDS, column([0, 0, 0, 0, 10, 5.1, 5.2]))
        assert found(exp, "borderline") == [
            Finding(
                "borderline",
                "Cluster 1 is mostly borderline: 2 of its 3 rows have at most a tenth of the median "
                "evidence, and could just as well be in another cluster. Do not rely on it; a different "
                "number of clusters, or different columns, may separate the clusters more clearly.",
                (1,),
            )
        ]

    def test_half_is_not_most(self) -> None:
        assert not found(explained(ENDS, column([0, 0, 0, 10, 5.1])), "borderline")

    def test_a_single_row(self) -> None:
        (warning,) = found(explained(ENDS, column([0, 0, 0, 5.1])), "borderline")
        assert warning.text.startswith("Cluster 1 is mostly borderline: its only row has at most a tenth of ")

    def test_documents_are_called_so(self, documents: Any) -> None:
        evidence = np.where(documents.cluster_codes == 0, 0.0, documents.evidence)
        two = [
            *np.flatnonzero(documents.cluster_codes == 0)[:2],
            *np.flatnonzero(documents.cluster_codes == 1),
        ]
        (warning,) = list(_undecided(replace(documents, evidence=evidence)[two]))
        assert warning.text.startswith("Cluster 0 is mostly borderline: 2 of its 2 documents have at most a ")


class TestAlike:
    def rows(self) -> Array:
        return column([-1, 0, 1, 2, *[10] * 5])

    def test_clusters_that_almost_nothing_tells_apart(self) -> None:
        exp = explained([[0.0], [0.1], [10.0]], self.rows())
        assert found(exp, "alike") == [
            Finding(
                "alike",
                "Almost nothing separates clusters 0 and 1: the median evidence of the first against the "
                "second is 0.11, and 0.29 the other way around, compared with 98 for all rows. Rows may be "
                "in either by chance. Merge the two, or cluster again with fewer clusters.",
                (0, 1),
            )
        ]

    def test_one_way_is_not_enough(self) -> None:
        assert not found(explained([[0.0], [0.1], [10.0]], column([-99, 1, 10, 10])), "alike")

    def test_near_case(self) -> None:  # 8 both ways, where all rows have 56
        assert not found(explained([[-1.5], [2.5], [10.0]], self.rows()), "alike")

    def test_only_the_first_of_many_pairs_are_listed(self) -> None:
        centroids = [[0.0, 0.1 * i] for i in range(5)] + [[99.0, 0.0]]
        exp = explained(centroids, np.concatenate([centroids, [[99.0, 0.0]] * 9]))
        found_warnings = found(exp, "alike")
        assert len(found_warnings) == 5
        assert found_warnings[-1].text.endswith(" The same holds for 5 more pairs of clusters.")
        assert [warning.clusters for warning in found_warnings[:4]] == [(0, 1), (1, 2), (2, 3), (3, 4)]

    def test_noise_is_one_too(self) -> None:
        exp = replace(explained([[0.0], [0.1], [10.0]], self.rows()), labels=np.array(["a", "noise", "b"]))
        (warning,) = found(exp, "alike")
        assert warning.text.startswith("Almost nothing separates cluster a and noise: the median ")
        assert warning.clusters == ("a", "noise")


class TestFidelity:
    def exp(self, n_wrong: int) -> wc.Explanation:
        given = np.repeat([0, 1], [180, 20])
        predicted = given.copy()
        predicted[-n_wrong:] = 0
        fidelity = Fidelity.of(np.array([0, 1]), given, given, predicted if n_wrong else given)
        return replace(explained(ENDS, column([0, 10])), fidelity=fidelity)

    def test_low_altogether(self) -> None:
        assert found(self.exp(12), "fidelity") == [
            Finding(
                "fidelity",
                "The labels are explained through a surrogate, which predicts only 94.0% of them for rows "
                "that it was not fitted to (100.0% for rows that it was). What holds for the surrogate may "
                "not hold for the labels. Poorly matched: cluster 1 (40.0% of 20 rows). Read the "
                "explanations of these clusters with care, and check that the columns are those that the "
                "labels were made from.",
                (1,),
            )
        ]

    def test_low_in_a_cluster(self) -> None:
        assert found(self.exp(2), "fidelity") == [
            Finding(
                "fidelity",
                "The labels are explained through a surrogate. It predicts 99.0% of all labels for rows that "
                "it was not fitted to, but fewer here: cluster 1 (90.0% of 20 rows). Read the explanations "
                "of these clusters with care.",
                (1,),
            )
        ]

    def test_thousands_are_set_apart(self) -> None:
        given = np.repeat([0, 1], [1000, 2468])
        predicted = np.where(np.arange(3468) % 2, given, 0)
        fidelity = Fidelity.of(np.array([0, 1]), given, given, predicted)
        (warning,) = found(replace(self.exp(1), fidelity=fidelity), "fidelity")
        assert "Poorly matched: cluster 1 (50.0% of 2,468 rows)." in warning.text

    def test_high(self) -> None:
        assert not found(self.exp(1), "fidelity")


def test_columns_that_were_left_out_come_last() -> None:
    exp = explained(ENDS, column([0, 10]))
    assert warnings(exp) == warnings(exp, {}) == []
    assert warnings(exp, {"id": "like an identifier, whole numbers in a column with such a name"}) == [
        Finding(
            "left out",
            '1 column was left out, so the clusters do not depend on it: "id" (like an identifier, whole '
            "numbers in a column with such a name). Make sure that it does not matter.",
            (),
            "id",
        )
    ]
    (warning,) = warnings(exp, {f"c{i}": "all values are the same" for i in range(7)})
    assert warning.text == (
        "7 columns were left out, so the clusters do not depend on them: "
        + ", ".join(f'"c{i}" (all values are the same)' for i in range(5))
        + " and 2 more. Make sure that none of them matters."
    )


def test_inputs_of_an_encoder_have_warnings_too() -> None:
    torch = pytest.importorskip("torch")
    encoder = torch.nn.Linear(2, 1, bias=False)
    with torch.no_grad():
        encoder.weight.fill_(0.5)
    model = wc.deep.DeepClustering(encoder, wc.neuralize(ENDS), reference="midpoint")
    rows = np.array([0, 0, 0, 0, 10, 5.1, 5.2], dtype=np.float32)[:, None].repeat(2, axis=1)
    residual, warning = warnings(wc.explain(model, rows))
    # LRP gives an input of zeros no relevance, so all of its evidence is residual.
    assert residual.text == (
        "The relevance of the features does not add up to the evidence. Relative to the evidence, the "
        "residual, which belongs to no single feature, is largest in cluster 0 (100%). So the "
        "relevance and the shares do not explain all of the evidence."
    )
    assert warning.text.startswith("Cluster 1 is mostly borderline: 2 of its 3 inputs have at most a tenth ")


@pytest.mark.parametrize("kind", ["float32", "sparse", "polars", "fifty", "one row"])
def test_all_findings_for_every_kind_of_table(kind: str, wine: Array) -> None:
    model = KMeans(50 if kind == "fifty" else 3, n_init=1, random_state=0).fit(wine)
    pl = pytest.importorskip("polars")
    rows: Any = {
        "float32": wine.astype(np.float32),
        "sparse": sp.csr_matrix(wine),
        "polars": pl.DataFrame(wine, schema=[f"c{i}" for i in range(13)]),
        "one row": wine[:1],
    }.get(kind, wine)
    exp = wc.explain(model, rows)
    n_groups = len(np.unique(exp.cluster))
    assert len(sentences(exp)) == n_groups
    assert competition(exp).share.shape == (n_groups, len(exp.labels))
    assert [warning.kind for warning in warnings(exp)] == ["small"] * (kind == "fifty")
    assert borderline(exp).shape == (len(exp),)


NAMES = st.one_of(st.text(max_size=60), st.integers(), st.none(), st.tuples(st.text(), st.integers()))


@pytest.mark.slow
@given(
    names=st.lists(NAMES, min_size=3, max_size=3, unique=True),
    centroids=st.lists(st.tuples(*[st.integers(-3, 3)] * 3), min_size=2, max_size=5, unique=True),
    rows=st.lists(st.tuples(*[st.integers(-9, 9)] * 3), min_size=1, max_size=12),
)
def test_texts_are_printable_whatever_the_names_and_rows(
    names: list[Hashable], centroids: list[Any], rows: list[Any]
) -> None:
    exp = explained(centroids, np.array(rows, dtype=float), feature_names=names)
    texts = sentences(exp)
    assert len(texts) == len(exp.summary().clusters)
    for text in [*texts, *(warning.text for warning in warnings(exp, dict.fromkeys(names, "why")))]:
        assert text.isprintable()
        assert text.endswith(".")
        assert len(text) < 1000
    competing = competition(exp)
    np.testing.assert_allclose(competing.share.sum(axis=1), 1.0)
    assert np.nanmin(competing.evidence) >= 0.0
