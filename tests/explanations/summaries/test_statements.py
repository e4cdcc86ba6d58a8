"""Statements: each claim is derived again from the raw table by `tests.reference.statements`."""

from __future__ import annotations

import re
import time
import tracemalloc
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from sklearn.cluster import DBSCAN, KMeans
from sklearn.datasets import load_breast_cancer, load_iris, load_wine
from sklearn.mixture import GaussianMixture
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import whycluster as wc
from tests.golden.findings import stars
from tests.optional import optional
from whycluster.data.display import format_apart, format_dates, format_frequencies
from whycluster.explanations.summaries.members import MemberClusters
from whycluster.explanations.summaries.statements import Statement

if TYPE_CHECKING:
    import pandas as pd
    import polars as pl

    from benchmarks import statements as said
    from tests.reference import statements as reference
else:
    pd = optional("pandas")
    pl = optional("polars")
    said = optional("benchmarks.statements", requires="pandas")
    reference = optional("tests.reference.statements", requires="pandas")


def check_all(exp: Any, frame: Any, labels: Any, folder: Path, model: Any = None) -> int:
    """Check everything that is said about an explanation, and return the number of claims."""
    facts = said.facts_of(exp, frame, said.shown(labels), model)
    found = said.check_explanation(exp, facts, folder)
    assert [text for verdict in found.values() for text in verdict.false] == []
    assert all(verdict.n_claims for verdict in found.values())
    return int(sum(verdict.n_claims for verdict in found.values()))


@pytest.mark.slow
class TestEverythingSaidIsTrue:
    def check_command(self, frame: Any, k: int, folder: Path) -> int:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", wc.ColumnWarning)  # a constant column is left out
            model = wc.tabular.pipeline(frame, k)
        exp, labels = wc.explain(model, frame), said.shown(model.predict(frame))
        facts = said.facts_of(exp, frame, labels, model)
        verdict = said.check_command(model, frame, k, facts, folder)
        assert verdict.false == []
        assert verdict.n_claims > 20 * k
        return check_all(exp, frame, labels, folder, model)

    @pytest.mark.parametrize(("loader", "k"), [(load_iris, 2), (load_wine, 4), (load_breast_cancer, 6)])
    def test_of_numbers(self, loader: Any, k: int, tmp_path: Path) -> None:
        assert self.check_command(loader(as_frame=True).data, k, tmp_path) > 100

    @pytest.mark.parametrize(("seed", "k", "missing"), [(0, 3, 0.0), (1, 10, 0.15), (2, 5, 0.4)])
    def test_of_categories_dates_missing_values_and_a_constant(
        self, seed: int, k: int, missing: float, tmp_path: Path
    ) -> None:
        frame = said.mixed(seed, 300, 4, missing)
        assert self.check_command(frame, k, tmp_path) > 300

    def test_of_single_precision(self, tmp_path: Path) -> None:
        frame = said.blobs(3, 5, 6, "float32", shift=100.0)
        model = make_pipeline(StandardScaler(), GaussianMixture(5, covariance_type="diag", random_state=0))
        model.fit(frame)
        assert check_all(wc.explain(model, frame), frame, model.predict(frame), tmp_path, model) > 300

    def test_of_labels_with_noise(self, tmp_path: Path) -> None:
        X, _ = stars()
        X[::9, 0] += 1.5
        frame = pd.DataFrame({"east": X[:, 0], "north": X[:, 1], "kind": np.where(X[:, 1] > 4, "a", "b")})
        frame.loc[::7, "kind"] = None
        frame.loc[X[:, 1] < -4, "kind"] = None
        labels = DBSCAN(eps=0.8, min_samples=25).fit_predict(X)
        assert set(labels) == {-1, 0, 1}
        labels[:4] = labels[[1, 0, 3, 2]]  # the surrogate will not predict these
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", wc.FidelityWarning)
            exp = wc.explain(labels, frame)
        assert not exp.is_member.all()  # the surrogate does not predict all labels
        assert check_all(exp, frame, labels, tmp_path) > 50
        noise = [each for each in wc.findings.statements(exp, 3) if each.cluster == "noise"]
        assert {each.direction for each in noise} == {"far"}
        assert "far" in str(exp.summary())

    def test_of_files(self, tmp_path: Path) -> None:
        """The summary of files knows only means, so it may compare with other clusters; all else is equal."""
        frame = said.blobs(0, 4, 3)
        model = KMeans(4, n_init=1, random_state=0).fit(frame)
        (tmp_path / "in").mkdir()
        pl.from_pandas(frame).write_parquet(tmp_path / "in" / "part.parquet")
        found = wc.explain_dataset(model, tmp_path / "in", tmp_path / "out", output="summary").summary
        exp = wc.explain(model, frame)
        facts = said.facts_of(exp, frame, said.shown(model.predict(frame)), None)
        assert found is not None
        verdict = reference.check(facts, summaries=[str(found)])
        assert (verdict.false, verdict.n_claims > 40) == ([], True)
        frames = [
            each.to_frame("pandas").drop(columns=["direction", "against"]) for each in (found, exp.summary())
        ]
        pd.testing.assert_frame_equal(*frames)


def test_a_summary_gives_the_residual_of_each_cluster() -> None:
    """The evidence is computed again from the densities of scikit-learn."""
    X = StandardScaler().fit_transform(load_wine().data)
    model = GaussianMixture(3, covariance_type="full", reg_covar=0.1, random_state=0).fit(X)
    exp = wc.explain(model, X)
    first, second = np.sort(np.log(model.predict_proba(X)), axis=1)[:, :-3:-1].T
    residual = np.abs(first - second - exp.relevance.sum(axis=1))
    text, labels = " ".join(str(exp.summary()).split("\n\n")[0].split()), model.predict(X)
    assert text.startswith(
        "Relative to the evidence, the size of the residual, which belongs to no feature, is "
    )
    said_parts = {int(c): int(part) for part, c in re.findall(r"(\d+)% in cluster (\d)", text)}
    parts = [residual[labels == c].sum() / (first - second)[labels == c].sum() for c in range(3)]
    assert set(said_parts) == {c for c, part in enumerate(parts) if part >= 0.03}
    assert said_parts
    for c, part in said_parts.items():
        assert part == pytest.approx(100 * parts[c], abs=0.51)
    assert str(wc.explain(KMeans(3, n_init=1, random_state=0).fit(X), X).summary()).startswith("cluster ")


AGE = "age is lower (mean 21) than in cluster 1 (32)"
SIDES = "age (mean 32) is above cluster 0 (21) and below cluster 2 (51)"
CITY = "city is mostly Oslo (100%, against 50% in cluster 1)"
OFTEN = "city is more often Rome (50%, against 0% in cluster 2)"
DAY = "day is later (mean 2021-06-01) than in cluster 1 (2020-01-02)"
SAME = "day has the same mean (2020-01-02) as in cluster 0 (2020-01-02)"
PAY = "pay is mostly missing (100%, against 0% in cluster 0)"


class TestTheCheckerFinds:
    """Each kind of false claim, made by changing true text."""

    @pytest.fixture
    def facts(self) -> Any:
        frame = pd.DataFrame(
            {
                "age": [20.0, 22.0, 30.0, 34.0, 50.0, 52.0],
                "city": ["Rome", "Rome", "Oslo", "Rome", "Oslo", "Oslo"],
                "day": pd.to_datetime(["2020-01-01", "2020-01-03"] * 2 + ["2021-06-01"] * 2),
                "pay": [1.0, 2.0, np.nan, np.nan, 3.0, 4.0],
            }
        )
        relevance = np.array(
            [[3, 1, 1, 0], [3, 1, 1, 0], [1, -2, 1, 2], [1, 3, 1, 2], [4, 2, 0, 0], [4, 2, 0, 0]], dtype=float
        )
        some, none = [1.0] * 4, [0.0] * 4
        added = {"0": {"1": some, "2": none}, "1": {"0": some, "2": some}, "2": {"1": some, "0": none}}
        return reference.Facts(frame, [0, 0, 1, 1, 2, 2], relevance.tolist(), None, added)

    @pytest.mark.parametrize(
        ("cluster", "true", "old", "new"),
        [
            (0, AGE, "lower", "higher"),
            (0, AGE, "mean 21", "mean 22"),
            (0, AGE, "(32)", "(31.9)"),
            (0, AGE, "cluster 1 (32)", "cluster 2 (51)"),  # does not compete
            (0, AGE, AGE, "age is the lowest"),
            (0, AGE, AGE, "age is far from the clusters"),
            (0, AGE, AGE, "age has the same mean (21) as in cluster 1 (32)"),
            (0, AGE, "(32)", "(32), though above the overall mean (34.7)"),
            (0, AGE, AGE, "age has no values here"),
            (0, AGE, AGE, "age has nothing to compare with"),
            (1, SIDES, "(mean 32)", "(mean 31)"),
            (1, SIDES, SIDES, "age (mean 32) is above cluster 2 (51) and below cluster 0 (21)"),
            (2, CITY, "50%", "40%"),
            (2, CITY, "100%", "99%"),
            (2, CITY, "Oslo (100%", "Rome (0%"),
            (2, CITY, "mostly", "more often"),
            (2, CITY, "mostly", "partly"),
            (2, CITY, CITY, "city has no frequent category that supports the cluster"),
            (1, OFTEN, OFTEN, "city is more often Oslo (50%, against 0% in cluster 0)"),  # speaks against it
            (1, OFTEN, "0% in cluster 2", "100% in cluster 0"),
            (2, DAY, "later", "earlier"),
            (2, DAY, "06-01", "06-02"),
            (1, SAME, SAME, "day is later (mean 2020-01-02) than in cluster 0 (2020-01-02)"),
            (1, PAY, "100%", "90%"),
            (1, PAY, PAY, "pay is lower (mean 1.5) than in cluster 0 (1.5)"),
        ],
    )
    def test_in_statements(self, facts: Any, cluster: int, true: str, old: str, new: str) -> None:
        assert reference.check(facts, statements=[(cluster, true)]).false == []
        assert len(reference.check(facts, statements=[(cluster, true.replace(old, new, 1))]).false) >= 1

    @pytest.mark.parametrize(
        ("cluster", "true", "false"),
        [
            (0, "Lower age than cluster 1.", "Higher age than cluster 1."),
            (0, "Lower age than cluster 1.", "Lower age than cluster 2."),  # does not compete
            (0, "Lower age than cluster 1.", "Lower age, higher day than cluster 1."),
            (0, "Lower age than cluster 1.", "Lower age."),
            (0, "Lower age than cluster 1.", "Far from all clusters, mostly in age."),
            (0, "Lower age than cluster 1.", "No feature sets it apart."),
            (0, "Lower age than cluster 1.", "Lower age than cluster 1, though above the overall mean."),
            (
                0,
                "Lower age than cluster 1.",
                "Lower age than cluster 1; no other feature adds to its relevance.",
            ),
            (0, "Lower age than cluster 1.", "Lower age than cluster 1; all other features add under 1%."),
            (1, "age above cluster 0 and below cluster 2.", "age below cluster 0 and above cluster 2."),
            (2, "day later than cluster 1.", "day earlier than cluster 1."),
            (
                2,
                "Higher age than cluster 1; city mostly Oslo (100%, against 50% in cluster 1).",
                "Higher age than cluster 1; city mostly Oslo (100%, against 60% in cluster 1).",
            ),
            (2, "Set apart by age.", "Set apart by pay."),  # does not speak for the cluster
        ],
    )
    def test_in_sentences(self, facts: Any, cluster: int, true: str, false: str) -> None:
        if "day later" in true:
            facts.relevance = [[*row[:2], 1.0, row[3]] for row in facts.relevance]
        assert reference.check(facts, sentences=[(cluster, true)]).false == []
        assert len(reference.check(facts, sentences=[(cluster, false)]).false) >= 1

    @pytest.mark.parametrize(
        ("true", "false"),
        [
            ("0           2  age", "0           3  age"),
            ("  60%", "  61%"),
            ("   21  lower", "   20  lower"),
            ("lower than in cluster 1 (32)", "higher than in cluster 1 (32)"),
            ("lower than in cluster 1 (32)", "lower than in cluster 1 (33)"),
            ("100%  mostly Rome", " 90%  mostly Rome"),
            ("mostly Rome; 50% in cluster 1", "mostly Oslo; 50% in cluster 1"),
            ("mostly Rome; 50% in cluster 1", "more often Rome; 50% in cluster 1"),
            ("mostly Rome; 50% in cluster 1", "mostly Rome; 51% in cluster 1"),
        ],
    )
    def test_in_tables(self, facts: Any, true: str, false: str) -> None:
        table = (
            "cluster  rows  feature  share                mean or frequency  compared with\n"
            "-------  ----  -------  -----  ------------  -----------------  -----------------------------\n"
            "0           2  age        60%  ++++++++++++                 21  lower than in cluster 1 (32)\n"
            "               city       20%  ++++                       100%  mostly Rome; 50% in cluster 1\n"
        )
        assert reference.check(facts, summaries=[table]).false == []
        assert true in table
        assert len(reference.check(facts, summaries=[table.replace(true, false)]).false) >= 1

    def test_in_commands_and_reports(self, facts: Any) -> None:
        card = (
            '<article class="card"><h3><bdi>Cluster 0</bdi></h3>'
            '<p class="sentence">Lower age than cluster 1.</p><dd>2 <span class="dim">33%</span></dd>'
            '<tr><th scope="row"><bdi>age</bdi> '
            '<span class="direction"><bdi>lower than in cluster 1 (32)</bdi></span></th>'
            '<td class="number">+60%</td><td class="number">21</td>'
            '<td class="number">41.5</td></tr></article>'
        )
        verdict = reference.check(facts, reports=[card])
        assert (verdict.false, verdict.n_claims) == ([], 12)
        changes = [
            ("Lower age", "Higher age"),
            (">2 <", ">3 <"),
            ("33%", "34%"),
            ("lower than in", "higher than in"),
        ]
        for true, false in [*changes, ("+60%", "\u221260%"), (">21<", ">22<"), ("41.5", "41.6")]:
            assert reference.check(facts, reports=[card.replace(true, false)]).false != []
        assert reference.check(facts, commands=[self.printed("Lower")]).false == []
        assert len(reference.check(facts, commands=[self.printed("Higher")]).false) == 2  # also overall
        assert len(reference.check(facts, commands=[self.printed("Lower", 5)]).false) == 1

    def printed(self, word: str, size: int = 2) -> str:
        return (
            f"0 ({size} rows): {word} age than cluster 1.\n\n"
            "cluster  rows  feature  share                mean  compared with\n"
            "-------  ----  -------  -----  ------------  ----  -----------------\n"
            "0           2  age        60%  ++++++++++++    21  lower than in cluster 1 (32)\n\n"
        )


class TestNumbersShown:
    """Numbers that differ look different, as far as digits can show it."""

    def test_means(self) -> None:
        assert format_apart([5.01, 4.0]) == ["5.01", "4"]
        assert format_apart([1124.2, 1124.4]) == ["1124.2", "1124.4"]
        assert format_apart([999.7, 1000.2]) == ["999.7", "1000.2"]  # not 1e+03 and 1000
        assert format_apart([0.1 + 0.2, 0.3]) == ["0.3", "0.3"]
        assert format_apart([1e-17, -3.0]) == ["0", "-3"]
        assert format_apart([1.00001, 1.00002, 5.0]) == ["1.00001", "1.00002", "5"]

    def test_dates(self) -> None:
        assert format_dates([0.0, 1.0]) == ["1970-01-01", "1970-01-02"]
        assert format_dates([0.25, 0.375]) == ["1970-01-01 06:00", "1970-01-01 09:00"]
        assert format_dates([0.0, float("nan")]) == ["1970-01-01", ""]

    def test_frequencies(self) -> None:
        assert format_frequencies([0.5, 0.25]) == ["50%", "25%"]
        assert format_frequencies([0.501, 0.499]) == ["50.1%", "49.9%"]


class TestWithoutOtherClusters:
    def test_nothing_is_compared(self) -> None:
        frame = pd.DataFrame({"age": [20.0, 21, 60, 61], "city": ["Rome", "Rome", "Oslo", None]})
        exp = wc.explain(wc.tabular.pipeline(frame, 2), frame)
        alone = exp[np.flatnonzero(exp.cluster == exp.cluster[0])]
        texts = {each.feature: each.text for each in wc.findings.statements(alone)}
        assert texts == {"age": "age has nothing to compare with", "city": "city is mostly Rome (100%)"}
        assert wc.findings.sentences(alone)[0] in (
            "Set apart by age, city mostly Rome (100%).",
            "Set apart by age.",
            "city mostly Rome (100%).",
        )
        assert "against" not in str(alone.summary())

    def test_the_statement_of_a_category_called_missing(self) -> None:
        named = Statement(0, "pay", "missing", (1,), 0.6, (0.1,), 0.5, is_category=True)
        assert named.word == "mostly missing"
        assert named.is_frequency


def test_statements_are_made_of_tables_only() -> None:
    with pytest.raises(wc.InvalidInputError) as caught:
        wc.findings.statements(None)  # type: ignore[arg-type]
    assert str(caught.value) == (
        "statements: exp must be the explanation of a table; got NoneType. For documents, use exp.summary()."
    )
    exp = wc.explain([[0.0], [1.0]], [[0.1], [0.9]])
    with pytest.raises(wc.InvalidInputError, match="statements: n_features must be"):
        wc.findings.statements(exp, 0)


def described(exp: wc.Explanation, most_megabytes: float, most_seconds: float) -> Any:
    """Return the frame of a summary; everything said must be made in bounded time and memory."""
    tracemalloc.start()
    start = time.perf_counter()
    summary = exp.summary()
    frame = summary.to_frame("pandas")
    megabytes = tracemalloc.get_traced_memory()[1] / 2**20
    tracemalloc.stop()
    sentences, text = wc.findings.sentences(exp, summary), str(summary)
    seconds = time.perf_counter() - start
    assert len(sentences) == len(summary.clusters)
    assert text.count("\n") >= len(summary.clusters)
    assert megabytes < most_megabytes
    assert seconds < most_seconds
    assert "competitor_share" not in vars(exp.member_clusters)  # (G, K)
    return frame


@pytest.mark.slow
class TestLargeSummaries:
    """Limits are several times what is measured, since the machine may be busy."""

    def test_of_twenty_thousand_columns(self) -> None:
        rng = np.random.default_rng(0)
        X = rng.normal(size=(60, 20_000)) + 3 * (np.arange(60) % 5)[:, None]
        exp = wc.explain(KMeans(5, n_init=1, random_state=0).fit(X), X)
        frame = described(exp, 120, 30)
        assert len(frame) == 5 * 20_000

    @pytest.mark.parametrize(("k", "most_megabytes"), [(2000, 60), (5000, 100)])
    def test_of_many_clusters(self, k: int, most_megabytes: float) -> None:
        centers = np.random.default_rng(0).normal(size=(k, 4))
        exp = wc.explain(centers, centers)
        frame = described(exp, most_megabytes, 120)
        assert len(frame) == 4 * k
        first = frame[frame.cluster == 7].iloc[0]
        assert float(first.mean_inside) == pytest.approx(
            centers[7][list(exp.feature_names).index(first.feature)]
        )


def test_competitors_are_listed_without_a_table_of_all_pairs() -> None:
    cluster, competitor = np.array([0, 0, 0, 2, 2, 1]), np.array([1, 2, 1, 0, 0, 2])
    found = MemberClusters.of(cluster, competitor, np.array([True] * 5 + [False]), 3)
    assert (found.codes.tolist(), found.size.tolist()) == ([0, 2], [3, 2])
    assert [each.tolist() for each in found.competitors(0)] == [[1, 2], [2 / 3, 1 / 3]]
    assert found.competitor_share.tolist() == [[0.0, 2 / 3, 1 / 3], [1.0, 0.0, 0.0]]
    rivals, weights = found.rivals(np.array([True, False, True]))
    assert rivals[:, 0].tolist() == [2, 0]
    assert weights[:, 0].tolist() == [1 / 3, 1.0]


@pytest.mark.parametrize(("n_rare", "expected"), [(1, ""), (4, "rare")])
def test_a_rare_category_does_not_characterize_a_cluster(n_rare: int, expected: str) -> None:
    pd = pytest.importorskip("pandas")
    words = ["rare"] * n_rare + [f"w{i}" for i in range(30 - n_rare)]
    frame = pd.DataFrame({"x": [0.0] * 30 + [9.0] * 30, "word": words + [f"v{i}" for i in range(30)]})
    model = make_pipeline(wc.tabular.encoder(frame, keep=["word"]), KMeans(2, n_init=1, random_state=0))
    exp = wc.explain(model.fit(frame), frame)
    group = exp.summary().clusters.tolist().index(exp.cluster[0])
    assert exp.summary().direction[group, 1] == expected


class TestWords:
    """Directions that could mislead, booleans, and years."""

    def customers(self) -> Any:
        """Spending is low, fairly high or high; the second group is mostly set apart from the third."""
        rng = np.random.default_rng(0)
        group = np.repeat([0, 1, 2], [60, 60, 60])
        spend = np.array([10.0, 80, 95])[group] + rng.normal(0, 1, 180)
        return pd.DataFrame({"spend": spend, "age": np.array([20.0, 30, 60])[group] + rng.normal(0, 1, 180)})

    def test_a_direction_that_differs_from_the_overall_mean(self) -> None:
        frame = self.customers()
        centers = frame.groupby(np.repeat([0, 1, 2], 60)).mean().to_numpy()
        exp = wc.explain(centers, frame, against=np.where(np.arange(180) >= 120, 1, 2))
        statement = exp.summary().statement(1, 0)
        own, other, overall = (
            float(part.mean()) for part in (frame.spend[60:120], frame.spend[120:], frame.spend)
        )
        assert overall < own < other
        means = [f"{mean:.3g}" for mean in (own, other, overall)]
        assert statement.text == (
            "spend is lower (mean {}) than in cluster 2 ({}), though above the overall mean ({})".format(
                *means
            )
        )
        assert statement.comparison == (
            "lower than in cluster 2 ({1}), though above the overall mean ({2})".format(*means)
        )
        assert "than cluster 2, though above the overall mean" in wc.findings.sentences(exp)[1]
        assert not exp.summary().statement(0, 0).is_unlike_overall

    def test_words_for_each_kind_of_value(self) -> None:
        lower = Statement(1, "day", "lower", (2,), 3.0, (9.0,), 0.5, is_date=True, overall=1.0)
        assert lower.text == (
            "day is earlier (mean 1970-01-04) than in cluster 2 (1970-01-10), though after the overall mean "
            "(1970-01-02)"
        )
        often = Statement(1, "city", "Rome", (2,), 0.3, (0.1,), 0.5, is_category=True, overall=0.5)
        assert often.text == (
            "city is more often Rome (30%, against 10% in cluster 2), though less often than overall (50%)"
        )
        partly = often._replace(against=(2, 3), values=(0.1, 0.6))
        assert partly.text == "city is partly Rome (30%, against 10% in cluster 2 and 60% in cluster 3)"
        true = Statement(1, "paid", "higher", (2,), 0.43, (0.12,), 0.5, is_boolean=True, overall=0.6)
        assert true.text == (
            "paid is more often true (43%) than in cluster 2 (12%), though less often than overall (60%)"
        )
        assert (true.formatted, true.phrase) == ("43%", "more often true than in 2")
        between = true._replace(direction="between", against=(2, 3), values=(0.12, 0.9))
        assert between.text == (
            "paid (43%) is more often true than in cluster 2 (12%) and less often true than in cluster 3 "
            "(90%)"
        )
        same = true._replace(direction="same", values=(0.43,))
        assert same.text == "paid is as often true (43%) as in cluster 2 (43%)"

    @pytest.mark.parametrize("kind", ["bool", "boolean", "polars", "array", "with text"])
    def test_booleans_are_frequencies(self, kind: str, tmp_path: Path) -> None:
        rng = np.random.default_rng(0)
        group = rng.integers(0, 3, 200)
        paid, new = rng.random(200) < 0.1 + 0.4 * group, rng.random(200) < 0.9 - 0.4 * group
        frame = pd.DataFrame({"paid": paid, "new": new})
        if kind == "boolean":
            frame = frame.astype("boolean")
            frame.loc[::17, "paid"] = pd.NA
        if kind == "with text":
            frame["word"] = np.array(["a", "b", "c"])[group]
        given = {"polars": pl.DataFrame(frame.to_dict("list")), "array": frame.to_numpy()}.get(kind, frame)
        if kind in ("boolean", "with text"):
            model = wc.tabular.pipeline(given, 3)
        else:
            model = KMeans(3, n_init=1, random_state=0).fit(frame.to_numpy().astype(float))
        exp = wc.explain(model, given, feature_names=["paid", "new"] if kind == "array" else None)
        assert " mean " not in str(exp.summary()).split("\n", 2)[2]
        assert "often true" in str(exp.summary())
        assert check_all(exp, frame, exp.cluster.tolist(), tmp_path, model) > 50

    def test_means_of_years_keep_their_differences(self) -> None:
        assert format_apart([2007.4, 2007.6]) == ["2007.4", "2007.6"]  # not 2007 and 2008
        assert format_apart([2007.9, 2008.4]) == ["2007.9", "2008.4"]  # not equal
        assert format_apart([1995.1, 2004.9]) == ["1995", "2005"]
        assert format_apart([77183.6, 77210.2]) == ["77184", "77210"]

    def test_one_column_that_sets_two_clusters_apart(self) -> None:
        x = np.repeat([0.0, 10.0], 20)
        frame = pd.DataFrame({"x": x, "same": 1.0, "little": np.tile([0.0, 1.0], 20)})
        exp = wc.explain(frame.groupby(x).mean().to_numpy(), frame)
        assert wc.findings.sentences(exp) == [
            "Lower x than cluster 1; no other feature adds to its relevance.",
            "Higher x than cluster 0; no other feature adds to its relevance.",
        ]
        frame.loc[x > 0, "little"] += 0.5
        exp = wc.explain(frame.groupby(x).mean().to_numpy(), frame)
        assert wc.findings.sentences(exp)[0] == "Lower x than cluster 1; all other features add under 1%."
        frame.loc[x > 0, "little"] += 2.5
        exp = wc.explain(frame.groupby(x).mean().to_numpy(), frame)
        assert wc.findings.sentences(exp)[0] == "Lower x and little than cluster 1."


def test_what_qualifies_a_surrogate_comes_before_the_shares(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(200, 3))
    labels = np.where(X[:, 0] + rng.normal(0, 0.5, 200) > 0, "up", "down")
    with pytest.warns(wc.FidelityWarning):
        exp = wc.explain(labels, X)
    assert exp.fidelity is not None
    text = str(exp.summary())
    predicted = f"{exp.fidelity.cross_validated:.1%}"
    flat = " ".join(text.split())
    assert flat.startswith("The labels are explained through a surrogate, and the shares are the surrogate's")
    assert flat.index(f"It predicts the labels of {predicted} of the rows") < flat.index("cluster rows")
    lost = int((exp.assigned != labels).sum())
    assert f"{lost} rows whose label it does not predict have no part in the evidence" in flat
    exp.report(tmp_path / "page.html")
    page = (tmp_path / "page.html").read_text(encoding="utf-8")
    first = page.index("the shares are the surrogate")
    assert page.index("Quality: not measured.") < first < page.index('<table class="segments">')
    assert page.index("What holds for the surrogate may not hold") < page.index('<table class="segments">')
    assert page.count("What holds for the surrogate may not hold") == 1
