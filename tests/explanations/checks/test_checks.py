"""Checks and warnings: each fires and does not fire, and its figures are computed again from the raw data."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from numpy.typing import NDArray
from sklearn.cluster import KMeans
from sklearn.mixture import GaussianMixture
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer, PowerTransformer, StandardScaler

import whycluster as wc
from tests.optional import optional
from whycluster.explanations.base import BaseExplanation
from whycluster.explanations.findings import Check, Finding, checks, warnings

if TYPE_CHECKING:
    import pandas as pd
else:
    pd = optional("pandas")

Array = NDArray[Any]


def found(exp: BaseExplanation, kind: str) -> list[Finding]:
    return [warning for warning in warnings(exp) if warning.kind == kind]


def check(exp: BaseExplanation, name: str) -> Check:
    (result,) = [each for each in checks(exp) if each.name == name]
    return result


def nearest(rows: Array, centroids: Array) -> Array:
    """The nearest centroid of each row, computed one by one."""
    return np.array([int(np.argmin([sum((x - c) ** 2) for c in centroids])) for x in rows])


def two_clusters(n: int = 100, d: int = 3) -> tuple[Array, Array]:
    """Centroids, and rows around them: columns without correlation, skew or repeated values."""
    rng = np.random.default_rng(0)
    centroids = np.stack([np.zeros(d), np.full(d, 4.0)])
    rows = rng.normal(size=(n, d)) * [1.0, 1.2, 1.4, 1.6, 1.8][:d] + centroids[np.arange(n) % 2]
    return centroids, rows


def test_every_check_is_listed_with_what_it_found() -> None:
    centroids, rows = two_clusters()
    exp = wc.explain(centroids, rows, feature_names=["a", "b", "c"])
    r = np.corrcoef(rows.T)
    pair = max(((0, 1), (0, 2), (1, 2)), key=lambda pair: abs(r[pair]))
    first, second = ("abc"[column] for column in pair)
    skew = ((rows - rows.mean(0)) ** 3).mean(0) / rows.std(0) ** 3
    most = int(np.abs(skew).argmax())
    cluster = nearest(rows, centroids)
    gaps = np.array(
        [
            sum((x - centroids[1 - k]) ** 2 - (x - centroids[k]) ** 2)
            for x, k in zip(rows, cluster, strict=True)
        ]
    )
    size, near = np.bincount(cluster), int((gaps <= 0.1 * np.median(gaps)).sum())
    gain = (rows - centroids[1 - cluster]) ** 2 - (rows - centroids[cluster]) ** 2
    share = np.array([np.abs(gain[cluster == k].sum(0)) for k in (0, 1)])
    share = np.array([gain[cluster == k].sum(0) / share[k].sum() for k in (0, 1)])
    group, column = (int(each[0]) for each in np.nonzero(share == share.max()))
    assert [(each.name, each.outcome) for each in checks(exp, {})] == [
        ("fidelity", "the model itself is explained, without a surrogate"),
        ("residual", "the relevance of the features adds up to the evidence"),
        ("noise", "no row is noise"),
        ("one column", f'the largest share is {share.max():.0%}, of "{"abc"[column]}" in cluster {group}'),
        ("labels among the columns", "no column coincides with the clusters"),
        ("identifiers, dates and years", "no identifier or date carries 30% of a cluster, and no year 5%"),
        ("missing values", "no cluster depends on missing values"),
        ("nearly constant columns", "none"),
        (
            "repeated columns",
            f'the most similar are "{first}" and "{second}": their correlation is {r[pair]:.3f}',
        ),
        ("skewed columns", f'the largest skewness is {skew[most]:.1f}, of "{"abc"[most]}"'),
        ("small clusters", f"the smallest is cluster {size.argmin()}, {size.min()} rows"),
        ("similar clusters", "no two clusters have little evidence against each other"),
        (
            "borderline clusters",
            f"{near} of 100 rows {'is' if near == 1 else 'are'} borderline, and no cluster is mostly "
            f"borderline",
        ),
        ("columns left out", "none"),
    ]
    assert warnings(exp) == []
    assert all(not each.findings for each in checks(exp))


def test_few_rows_are_not_checked() -> None:
    centroids, rows = two_clusters(9)
    exp = wc.explain(centroids, rows)
    few = [each.name for each in checks(exp) if each.outcome == "not checked: fewer than 10 rows"]
    assert few == [
        "one column",
        "labels among the columns",
        "repeated columns",
        "skewed columns",
        "small clusters",
    ]
    assert check(exp, "nearly constant columns").outcome == "not checked: fewer than 50 rows"
    one = wc.explain(centroids, rows[:1])
    assert warnings(one) == []
    assert (
        check(one, "borderline clusters").outcome
        == "0 of 1 row is borderline, and no cluster is mostly borderline"
    )


def test_a_check_with_warnings_says_how_many() -> None:
    centroids, rows = two_clusters()
    rows = np.column_stack([rows, rows[:, 0] * 2.0 + 1.0])
    exp = wc.explain(np.column_stack([centroids, centroids[:, 0] * 2.0 + 1.0]), rows)
    made = check(exp, "repeated columns")
    assert made.outcome == "1 warning"
    assert list(made.findings) == found(exp, "repeated")


def test_documents_have_no_columns() -> None:
    from sklearn.feature_extraction.text import TfidfVectorizer

    texts = ["orbit shuttle", "shuttle orbit orbit", "bread butter", "bread bread butter"] * 5
    exp = wc.explain(make_pipeline(TfidfVectorizer(), KMeans(2, n_init=1, random_state=0)).fit(texts), texts)
    names = ["fidelity", "residual", "noise", "small clusters", "similar clusters", "borderline clusters"]
    assert [each.name for each in checks(exp)] == names
    assert check(exp, "small clusters").outcome == "the smallest is cluster 0, 10 documents"


class TestResidual:
    def parts(self, exp: wc.Explanation) -> list[float]:
        left, size = np.abs(exp.evidence - exp.relevance.sum(axis=1)), np.abs(exp.evidence)
        return [left[exp.cluster == k].sum() / size[exp.cluster == k].sum() for k in exp.labels]

    def test_mixtures_with_full_covariances(self) -> None:
        rng = np.random.default_rng(0)
        rows = np.repeat(np.repeat([0.0, 8.0], 200) + rng.normal(size=400), 9).reshape(400, 9)
        rows += 0.1 * rng.normal(size=rows.shape)  # nine copies of one feature
        exp = wc.explain(GaussianMixture(2, covariance_type="tied", random_state=0).fit(rows), rows)
        part = self.parts(exp)
        first, second = np.argsort(part)[::-1]
        assert part[second] > 1.0  # more than the evidence, since the features repeat each other
        assert (exp.residual < 0).all()
        assert found(exp, "residual") == [
            Finding(
                "residual",
                f"The relevance of the features does not add up to the evidence. Relative to the evidence, "
                f"the residual, which belongs to no single feature, is largest in cluster {first} "
                f"({part[first]:.0%}) and cluster {second} ({part[second]:.0%}). It includes the weights of "
                f"the components, and joint or redundant information of correlated features. So the "
                f"relevance and the shares do not explain all of the evidence.",
                (first, second),
            )
        ]

    def test_a_small_residual_is_only_listed(self) -> None:
        rows = two_clusters(200)[1]
        exp = wc.explain(GaussianMixture(2, covariance_type="diag", random_state=0).fit(rows), rows)
        part = max(self.parts(exp))
        assert 1e-6 < part < 0.01
        outcome = "less than 1% of the evidence of a cluster belongs to no single feature"
        assert check(exp, "residual") == Check("residual", outcome)

    def test_a_threshold_is_no_residual(self) -> None:
        rows = two_clusters(200)[1]
        model = GaussianMixture(2, covariance_type="diag", random_state=0).fit(rows)
        assert not found(wc.explain(model, rows, threshold=1 - 1e-9), "residual")


class TestNoise:
    @pytest.mark.parametrize("n_noise", [11, 10])
    def test_noise_dominates(self, n_noise: int) -> None:
        rng = np.random.default_rng(0)
        labels = np.array([-1] * n_noise + [0] * (20 - n_noise))
        rows = np.where(labels[:, None] == 0, 0.0, 9.0) + rng.normal(size=(20, 2))
        exp = wc.explain(labels, rows)
        assert found(exp, "noise") == [
            Finding(
                "noise",
                "Noise dominates: 11 of 20 rows (55%) are in no cluster. The clusters describe only the "
                "rest. Make sure that so much noise is intended.",
            )
        ] * (n_noise == 11)
        if n_noise == 10:
            assert check(exp, "noise").outcome == "10 of 20 rows are noise"


class TestOneColumnOfACluster:
    def shares(self, first: float) -> tuple[wc.Explanation, Array]:
        """Two clusters apart in one column by ``first``, and a third one apart in the others."""
        centroids = np.array([[0.0, 0.0, 0.0], [first, 1.0, 1.0], [0.0, 9.0, 9.0]])
        rows = np.repeat(centroids, 20, axis=0)
        exp = wc.explain(centroids, rows, feature_names=["age", "b", "c"], rule="contrast")
        return exp, np.array([first**2, 1.0, 1.0]) / (first**2 + 2.0)

    def test_a_column_that_carries_most_of_some_clusters(self) -> None:
        exp, share = self.shares(3.0)
        assert found(exp, "one column of a cluster") == [
            Finding(
                "one column of a cluster",
                f'"age" carries up to {share[0]:.0%} of the relevance of clusters 0 and 1, so they '
                f"depend mostly on this one column. If that is not intended, leave the column out and "
                f"cluster again.",
                (0, 1),
                "age",
            )
        ]

    def test_near_cases(self) -> None:
        exp, share = self.shares(2.4)
        assert share[0] < 0.75
        assert not found(exp, "one column of a cluster")
        assert check(exp, "one column").outcome == (
            f'the largest share is {share[0]:.0%}, of "age" in cluster 0'
        )
        two = wc.explain([[0.0, 0.0], [9.0, 0.0]], np.tile([[0.0, 0.0], [9.0, 0.0]], (9, 1)))
        assert check(two, "one column").outcome == "not checked: fewer than 3 columns"


class TestLabels:
    def frame(self, wrong: int, name: str = "kind") -> tuple[wc.Explanation, Any]:
        """A column that gives the cluster, except in some rows."""
        rng = np.random.default_rng(0)
        kind = np.arange(200) % 2
        other = np.where(np.arange(200) < wrong, 1 - kind, kind)
        frame = pd.DataFrame({"a": 6 * kind + rng.normal(size=200), "b": 6 * kind + rng.normal(size=200)})
        frame[name] = np.array(["no", "yes"])[other]
        return wc.explain(wc.tabular.pipeline(frame, 2, category_weight=2.0), frame), frame

    def test_a_column_that_coincides_with_the_clusters(self) -> None:
        for wrong, how, share in ((0, "coincide", "all"), (5, "nearly coincide", "at least 97% of the")):
            exp, frame = self.frame(wrong)
            agreement = pd.crosstab(frame["kind"], exp.cluster).max(axis=1).sum() / 200
            assert agreement == 1 - wrong / 200
            assert found(exp, "label") == [
                Finding(
                    "label",
                    f'"kind" and the clusters {how}: each of them determines the other for {share} '
                    f'rows. If "kind" is a label that the clusters were meant to find, leave it out and '
                    f"cluster again.",
                    feature="kind",
                )
            ]

    def test_near_cases(self) -> None:
        exp, _ = self.frame(30)
        assert not found(exp, "label")
        assert check(exp, "labels among the columns").outcome == "no column coincides with the clusters"

    def test_a_sample_may_miss_rows_that_differ(self) -> None:
        rng = np.random.default_rng(0)
        kind = np.arange(20_001) % 2
        rows = np.column_stack([6 * kind + 0.1 * rng.normal(size=20_001), 6 * kind])
        exp = wc.explain([[0.0, 0.0], [6.0, 6.0]], rows, feature_names=["a", "kind"])
        assert found(exp, "label")[0].text.startswith(
            '"kind" and the clusters nearly coincide: each of them determines the other for all rows (in a '
            "sample of 20,000 rows). "
        )

    def test_a_column_named_like_a_label(self) -> None:
        exp, _ = self.frame(30, "Species")
        share = exp.summary().share[:, 2].max()
        assert found(exp, "label") == [
            Finding(
                "label",
                f'"Species" is named like a label, has 2 distinct values, and carries up to {share:.0%} of '
                f"the relevance of a cluster. If it is a label that the clusters were meant to find, leave "
                f"it out and cluster again.",
                feature="Species",
            )
        ]

    def test_many_values_are_no_labels(self) -> None:
        centroids, rows = two_clusters()
        exp = wc.explain(centroids, rows, feature_names=["target", "b", "c"])
        assert not found(exp, "label")


class TestYears:
    def exp(self, values: Array, name: str = "when") -> wc.Explanation:
        rows = np.column_stack([values, np.where(values > np.median(values), 3.0, 0.0)])
        return wc.explain([rows[values.argmin()], rows[values.argmax()]], rows, feature_names=[name, "b"])

    def test_a_year(self) -> None:
        values = np.repeat([2007.0, 2008.0, 2009.0], 20)
        exp = self.exp(values)
        share = exp.summary().share[:, 0].max()
        assert found(exp, "year") == [
            Finding(
                "year",
                f'"when" carries up to {share:.0%} of the relevance of clusters 0 and 1, and holds years, '
                f"from 2007 to 2009. Rows may be grouped by time, not by what they are like. If that "
                f"is not intended, leave the column out.",
                (0, 1),
                "when",
            )
        ]
        assert check(exp, "identifiers, dates and years").outcome == "1 warning"

    @pytest.mark.parametrize(
        ("values", "name", "fires"),
        [
            ([1999.0, 2000.0], "Year of birth", True),
            ([1999.0, 2000.0], "yearly income", False),
            ([1999.0, 2000.0], "when", False),
            ([1899.0, 1950.0, 2000.0], "when", False),
            ([1900.0, 1950.0, 2101.0], "when", False),
            ([1900.5, 1950.0, 2000.0], "year", False),
            ([1900.0, 1950.0, 2100.0], "when", True),
            ([1000.0, 1890.0, 2019.0], "year built", True),
            ([999.0, 1890.0, 2019.0], "year built", False),
        ],
    )
    def test_near_cases(self, values: list[float], name: str, fires: bool) -> None:
        assert bool(found(self.exp(np.repeat(values, 10), name), "year")) is fires

    def test_a_year_that_carries_little(self) -> None:
        years = np.repeat([2007.0, 2008.0, 2009.0], 20)
        rows = np.column_stack([years, np.where(years > 2008, 99.0, 0.0)])
        assert not found(wc.explain([[2007.0, 0.0], [2009.0, 99.0]], rows), "year")


class TestNearlyConstant:
    def exp(self, n_other: int, n: int = 100) -> wc.Explanation:
        rows = np.zeros((n, 2))
        rows[:n_other, 0] = 7.0
        rows[: n // 2, 1] = 1.0
        return wc.explain([[0.0, 0.0], [7.0, 1.0]], rows, feature_names=["flag", "b"])

    def test_a_column_with_few_other_values(self) -> None:
        assert found(self.exp(2), "nearly constant") == [
            Finding(
                "nearly constant",
                '"flag" is nearly constant: 98% of its values are 0. Scaled to unit variance, the few others '
                "become extreme, and can form a cluster of their own. Leave the column out, or check that "
                "these few rows matter that much.",
                feature="flag",
            )
        ]

    def test_near_cases(self) -> None:
        assert not found(self.exp(3), "nearly constant")
        assert not found(self.exp(0), "nearly constant")
        assert not found(self.exp(1, 49), "nearly constant")

    def test_text_and_missing_values(self) -> None:
        values: tuple[Any, ...] = ("no", None)
        for value, words in zip(values, ('are "no"', "are missing"), strict=True):
            frame = pd.DataFrame({"x": [value] * 99 + ["yes"], "y": np.arange(100.0) % 7})
            model = wc.tabular.pipeline(frame, 2, category_weight=40.0)
            (warning,) = found(wc.explain(model, frame), "nearly constant")
            assert warning.text.startswith(f'"x" is nearly constant: 99% of its values {words}. Scaled ')


class TestRepeated:
    def test_a_pair_of_columns(self) -> None:
        _, rows = two_clusters()
        rng = np.random.default_rng(1)
        rows = np.column_stack([rows, -3 * rows[:, 1] + 1.5 * rng.normal(size=100)])
        exp = wc.explain(rows[:2], rows, feature_names=["a", "mass", "c", "weight"])
        r = np.corrcoef(rows[:, 1], rows[:, 3])[0, 1]
        assert -0.999 < r < -0.95
        assert found(exp, "repeated") == [
            Finding(
                "repeated",
                f'"weight" nearly repeats "mass": their correlation is {r:.3f}. What both measure counts '
                f"twice. Leave one of the two out and cluster again.",
                feature="weight",
            )
        ]

    @pytest.mark.parametrize(("factor", "words"), [(2.0, "above 0.999"), (-2.0, "below -0.999")])
    def test_rounding_does_not_make_it_one(self, factor: float, words: str) -> None:
        _, rows = two_clusters()
        rows[:, 2] = factor * rows[:, 0]
        (warning,) = found(wc.explain(rows[:2], rows), "repeated")
        assert f": their correlation is {words}. What both " in warning.text

    def test_near_cases(self) -> None:
        _, rows = two_clusters()
        rng = np.random.default_rng(1)
        rows[:, 2] = rows[:, 0] + rows[:, 0].std() * 0.4 * rng.normal(size=100)
        assert 0.85 < np.corrcoef(rows[:, 0], rows[:, 2])[0, 1] < 0.95
        assert not found(wc.explain(rows[:2], rows), "repeated")

    def test_the_model_counts_and_not_the_file(self) -> None:
        _, rows = two_clusters()
        rows = np.abs(rows) + 1.0
        rows[:, 2] = np.exp(rows[:, 0])  # repeats the first column only after a logarithm
        last = KMeans(2, n_init=1, random_state=0)
        raw = make_pipeline(StandardScaler(), last).fit(rows)
        assert not found(wc.explain(raw, rows), "repeated")
        columns = np.array([False, False, True])
        log = FunctionTransformer(wc.elementwise(lambda X: np.where(columns, np.log(X), X)))
        logged = make_pipeline(log, StandardScaler(), KMeans(2, n_init=1, random_state=0)).fit(rows)
        assert len(found(wc.explain(logged, rows), "repeated")) == 1

    def test_categories_that_determine_each_other(self) -> None:
        city = np.array(["Rome", "Oslo", "Lima"])[np.arange(90) % 3]
        land = np.array(["Italy", "Norway", "Peru"])[np.arange(90) % 3]
        land[:2] = "Peru"
        frame = pd.DataFrame({"city": city, "land": land, "x": np.arange(90) % 7 / 7})
        exp = wc.explain(wc.tabular.pipeline(frame, 3), frame)
        assert found(exp, "repeated") == [
            Finding(
                "repeated",
                '"land" nearly repeats "city": each of them determines the other for at least 97% of the '
                "rows. What both measure counts twice. Leave one of the two out and cluster again.",
                feature="land",
            )
        ]

    def test_only_the_first_of_many_pairs_are_listed(self) -> None:
        rows = np.outer(np.arange(40.0), np.arange(1.0, 5.0))
        warned = found(wc.explain(rows[[0, -1]], rows), "repeated")
        assert len(warned) == 5  # of six pairs
        assert warned[-1].text.endswith(" cluster again. The same holds for 1 more pair of columns.")

    def test_mixtures_estimate_how_columns_vary(self) -> None:
        _, rows = two_clusters()
        rows[:, 2] = 2 * rows[:, 0] + 0.01 * np.random.default_rng(0).normal(size=100)
        exp = wc.explain(GaussianMixture(2, random_state=0).fit(rows), rows)
        assert not found(exp, "repeated")
        outcome = "not checked: a mixture estimates how columns vary"
        assert check(exp, "repeated columns").outcome == outcome


class TestSkewed:
    def rows(self, draw: Callable[[np.random.Generator], Array]) -> Array:
        rng = np.random.default_rng(0)
        return np.column_stack([draw(rng), rng.normal(size=(400, 2))])

    def test_a_heavily_skewed_column(self) -> None:
        rows = self.rows(lambda rng: np.exp(1.5 * rng.normal(size=400)))
        exp = wc.explain(
            KMeans(3, n_init=2, random_state=0).fit(rows), rows, feature_names=["paid", "b", "c"]
        )
        moved = rows[:, 0] - rows[:, 0].mean()
        skewness = (moved**3).mean() / (moved**2).mean() ** 1.5
        assert skewness > 3
        assert found(exp, "skewed") == [
            Finding(
                "skewed",
                f'"paid" is heavily skewed: its skewness is {skewness:.1f}, and 0 would be symmetric. A few '
                f"extreme rows can form clusters of their own, and differences among the other rows then "
                f"count little. Cluster its logarithm or its ranks instead.",
                feature="paid",
            )
        ]

    def test_near_cases(self) -> None:
        rows = self.rows(lambda rng: rng.exponential(size=400))
        assert not found(wc.explain(KMeans(3, n_init=2, random_state=0).fit(rows), rows), "skewed")
        binary = self.rows(lambda rng: 9.0 * (rng.random(400) < 0.05))
        assert not found(wc.explain(KMeans(3, n_init=2, random_state=0).fit(binary), binary), "skewed")

    def test_the_model_counts_and_not_the_file(self) -> None:
        rows = self.rows(lambda rng: np.exp(1.5 * rng.normal(size=400)))
        steps = (PowerTransformer(), KMeans(3, n_init=2, random_state=0))
        assert not found(wc.explain(make_pipeline(*steps).fit(rows), rows), "skewed")


class TestSmall:
    def exp(self, *sizes: int) -> wc.Explanation:
        centroids = np.arange(len(sizes))[:, None] * [[10.0, 3.0]]
        return wc.explain(centroids, np.repeat(centroids, sizes, axis=0))

    def test_clusters_of_few_rows(self) -> None:
        words = (
            "typical values are based on few rows, which may be outliers. Look at these rows, or "
            "cluster again with fewer clusters."
        )
        assert found(self.exp(40, 9), "small") == [
            Finding(
                "small",
                f"Cluster 1 (9 rows) is small: fewer than 10 rows, or fewer than 1% of all 49. Its {words}",
                (1,),
            )
        ]
        assert found(self.exp(5, 1, 3000, 29), "small") == [
            Finding(
                "small",
                f"Cluster 1 (1 row), cluster 0 (5 rows) and cluster 3 (29 rows) are small: fewer than 10 "
                f"rows, or fewer than 1% of all 3,035. Their {words}",
                (1, 0, 3),
            )
        ]

    def test_near_cases(self) -> None:
        assert not found(self.exp(40, 10), "small")
        assert not found(self.exp(990, 10), "small")
        assert not found(self.exp(5, 4), "small")
        assert check(self.exp(40, 10), "small clusters").outcome == "the smallest is cluster 1, 10 rows"

    def test_without_members(self) -> None:
        exp = wc.explain([[0.0], [9.0]], np.zeros((20, 1)), target=1)
        assert check(exp, "small clusters").outcome == "not checked: no row is a member"


def test_large_tables_are_sampled_and_say_so() -> None:
    rng = np.random.default_rng(0)
    rows = rng.normal(size=(25_000, 2))
    rows = np.column_stack([rows, rows[:, 0]])
    (warning,) = found(wc.explain(rows[:2], rows), "repeated")
    assert ": their correlation is above 0.999 (in a sample of 20,000 rows). What both " in warning.text


def test_many_columns_of_all_kinds_are_checked_quickly() -> None:
    rng = np.random.default_rng(0)
    rows = rng.normal(size=(300, 2000))
    exp = wc.explain(rows[:3], rows)
    assert check(exp, "skewed columns").outcome == (
        "not checked: no numeric column that counts has 10 distinct values"  # no column carries enough
    )


@pytest.mark.parametrize(
    ("rows", "outcome"),
    [
        ([[0.0, 0.0]] * 20, "not checked: fewer than two clusters have members"),
        ([[0.0, 0.0]] * 20 + [[0.0, -9.0]], "not checked: the median evidence of all rows is 0"),
    ],
)
def test_ties_are_not_checked_for_similar_clusters(rows: list[list[float]], outcome: str) -> None:
    exp = wc.explain([[0.0, 1.0], [0.0, -1.0]], np.array(rows))
    assert check(exp, "similar clusters") == Check("similar clusters", outcome)


def test_years_of_few_rows_are_not_said_to_be_checked() -> None:
    centroids, rows = two_clusters(9)
    outcome = check(wc.explain(centroids, rows), "identifiers, dates and years").outcome
    assert outcome == "no identifier or date carries 30% of a cluster"


class TestGivenLabels:
    """Labels cannot be computed again, so the advice is about the surrogate and its columns."""

    def explained(self, *columns: Any, names: list[str] | None = None) -> wc.Explanation:
        """Explain the labels "a" and "b" of alternating rows."""
        rows = np.column_stack(columns)
        return wc.explain(np.array(["a", "b"])[np.arange(len(rows)) % 2], rows, feature_names=names)

    def text(self, exp: BaseExplanation, kind: str) -> str:
        for warning in warnings(exp):
            assert "luster again" not in warning.text
            assert "number of clusters" not in warning.text
        (one,) = found(exp, kind)
        return one.text

    def as_labels(self, exp: Any) -> Any:
        """Return an explanation of centroids as if the network were a surrogate."""
        return replace(exp, fidelity=self.explained(np.arange(40) % 2 * 9.0 + np.arange(40) / 40).fidelity)

    def test_one_column(self) -> None:
        rng = np.random.default_rng(0)
        exp = self.explained(900.0 * (np.arange(200) % 2) + rng.normal(size=200), *rng.normal(size=(2, 200)))
        total = np.abs(exp.relevance).sum(axis=0)
        assert total[0] > 0.995 * total.sum()
        assert self.text(exp, "one column") == (
            '"x0" carries over 99% of all relevance, so the other 2 columns hardly count. The surrogate '
            "tells the labels apart almost only by this column."
        )

    def test_one_column_of_a_cluster(self) -> None:
        exp = self.as_labels(TestOneColumnOfACluster().shares(3.0)[0])
        assert self.text(exp, "one column of a cluster") == (
            '"age" carries up to 82% of the relevance of clusters 0 and 1, so the surrogate recognizes them '
            "mostly by this one column."
        )

    def test_labels_among_the_columns(self) -> None:
        rng = np.random.default_rng(0)
        kind = np.arange(200) % 2
        x = 6.0 * kind + rng.normal(size=200)
        wrong = np.where(np.arange(200) < 5, 1 - kind, kind)
        assert self.text(self.explained(x, 6.0 * wrong, names=["x", "kind"]), "label").endswith(
            'each of them determines the other for at least 97% of the rows. If "kind" only repeats the '
            "labels, leave it out and explain the labels again."
        )
        wrong = np.where(np.arange(200) < 30, 1 - kind, kind)
        assert self.text(self.explained(x, 6.0 * wrong, names=["x", "species"]), "label").endswith(
            "of the relevance of a cluster. If it only repeats the labels, leave it out and explain the "
            "labels again."
        )

    def test_identifiers_and_repeated_columns(self) -> None:
        number = np.arange(200) // 2 + 1000 * (np.arange(200) % 2)
        x = number + np.random.default_rng(0).normal(size=200)
        exp = self.explained(number, x, names=["customer_id", "x"])
        assert self.text(exp, "identifier").endswith(
            "An identifier names a row but does not describe it. Leave the column out and explain the "
            "labels again."
        )
        assert self.text(exp, "repeated") == (
            '"x" nearly repeats "customer_id": their correlation is above 0.999. What both measure counts '
            "twice. Leave one of the two out and explain the labels again."
        )

    def test_skewed_columns(self) -> None:
        rng = np.random.default_rng(0)
        x = np.sort(np.exp(rng.normal(size=400))).reshape(2, 200).T.ravel() + 9.0 * (np.arange(400) % 2)
        x[:10:2] -= 50.0
        x[1:11:2] += 150.0
        exp = self.explained(x)
        skew = ((x - x.mean()) ** 3).mean() / x.std() ** 3
        assert self.text(exp, "skewed") == (
            f'"x0" is heavily skewed: its skewness is {skew:.1f}, and 0 would be symmetric. Differences '
            "among rows that are not extreme may then count little in the surrogate. Explain the labels with "
            "its logarithm or its ranks instead."
        )

    def test_missing_values(self) -> None:
        exp = self.as_labels(wc.explain(np.eye(2), np.eye(2), feature_names=["age", "x"]))
        summary = replace(
            exp.summary(),
            relevance=np.array([[25.0, 75.0], [0.0, 1.0]]),
            direction=np.array([["missing", "high"], ["", "low"]]),
            inside=np.full((2, 2), 0.9),
            outside=np.full((2, 2), 0.1),
        )
        (warning,) = [each for each in warnings(exp, summary=summary) if each.kind == "missing values"]
        assert warning.text.endswith("fill them in or leave the column out, and explain the labels again.")

    def test_small_clusters(self) -> None:
        labels = np.repeat([0, 1, 2], [40, 9, 8])
        rows = 10.0 * labels[:, None] + np.random.default_rng(0).normal(size=(57, 2))
        assert self.text(wc.explain(labels, rows), "small").endswith(
            "Look at these rows before you rely on how the surrogate explains the clusters."
        )
        assert self.text(wc.explain(np.minimum(labels[:49], 1), rows[:49]), "small").endswith(
            "Look at these rows before you rely on how the surrogate explains the cluster."
        )

    def test_clusters_that_are_not_told_apart(self) -> None:
        rows = np.array([-1.0, 0, 1, 2, *[10] * 5])[:, None]
        assert self.text(self.as_labels(wc.explain([[0.0], [0.1], [10.0]], rows)), "alike").endswith(
            "for all rows. The surrogate can hardly tell the two apart, so do not rely on how it explains "
            "their difference."
        )
        rows = np.array([0.0, 0, 0, 5.1])[:, None]
        assert self.text(self.as_labels(wc.explain([[0.0], [10.0]], rows)), "borderline") == (
            "Cluster 1 is mostly borderline: its only row has at most a tenth of the median evidence, so the "
            "surrogate can hardly tell the cluster from others. Do not rely on how it explains the cluster; "
            "different columns may separate the labels more clearly."
        )
