"""Rules: each printed rule is looked up in the table again, in Python, in `apply` and in DuckDB."""

from __future__ import annotations

import datetime as dt
import tracemalloc
import warnings
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from sklearn.cluster import DBSCAN, KMeans
from sklearn.datasets import load_wine
from sklearn.mixture import GaussianMixture
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import whycluster as wc
from tests.optional import optional
from whycluster.explanations.reasons.binning import bound_between
from whycluster.explanations.reasons.column_values import ColumnValues
from whycluster.explanations.reasons.conditions import Condition, as_number

if TYPE_CHECKING:
    import pandas as pd
    import polars as pl

    from tests.reference import rules as reference
else:
    pd = optional("pandas")
    pl = optional("polars")
    reference = optional("tests.reference.rules", requires="pandas")


def shop(n: int = 240, seed: int = 0) -> Any:
    """Return customers of three kinds, with columns of all kinds and missing values."""
    rng = np.random.default_rng(seed)
    kind = rng.integers(3, size=n)
    frame = pd.DataFrame(
        {
            "income": 20.0 + 15.0 * kind + rng.normal(size=n) * 4.0,
            "visits": rng.poisson(3 + 6 * (kind == 1), size=n),
            "joined": pd.Timestamp("2020-01-01")
            + pd.to_timedelta(rng.integers(0, 90, size=n) + 200 * (kind == 2), unit="D"),
            "seen": pd.Timestamp("2023-05-01 08:30") + pd.to_timedelta(rng.integers(0, 10**6, n), unit="s"),
            "region": np.array(["North", "South's", "East", 'We"st'])[(kind + rng.integers(2, size=n)) % 4],
            "member": (kind == 0) ^ (rng.random(n) < 0.1),
        }
    )
    frame.loc[rng.random(n) < 0.15 + 0.5 * (kind == 1), "income"] = np.nan
    frame.loc[rng.random(n) < 0.1, "region"] = None
    return frame


@pytest.fixture(scope="module")
def explained() -> Any:
    frame = shop()
    return wc.explain(wc.tabular.pipeline(frame, 4, random_state=0), frame), frame


class TestWhatIsSaidIsTrue:
    @pytest.mark.parametrize("max_conditions", [1, 2, 3, 5])
    def test_of_a_table_with_columns_of_all_kinds(self, explained: Any, max_conditions: int) -> None:
        exp, frame = explained
        rules = exp.rules(max_conditions)
        found = reference.figures(rules, frame, exp.cluster)
        assert [(r.cluster, r.text, r.n_rows, r.n_members) for c in rules for r in c.rules] == found
        assert len(found) >= 4
        sizes = {c.cluster: c.size for c in rules}
        assert sizes == dict(zip(*np.unique(exp.cluster, return_counts=True), strict=True))

    def test_figures_together_and_the_sentence(self, explained: Any) -> None:
        exp, frame = explained
        rules = exp.rules()
        given = np.full(len(frame), None, dtype=object)
        every = []
        for cluster in rules:
            member = exp.cluster == cluster.cluster
            union = np.zeros(len(frame), dtype=bool)
            for rule in cluster.rules:
                holds = reference.rows_of(rule.text, frame)
                union |= holds
                every.append(((holds & member).sum() / holds.sum(), holds, cluster.cluster))
            assert cluster.coverage == (union & member).sum() / member.sum()
            assert cluster.precision == (union & member).sum() / union.sum()
            harmonic = 2 / (1 / cluster.coverage + 1 / cluster.precision)
            assert cluster.f1 == pytest.approx(harmonic, abs=1e-12)
        for _, holds, label in sorted(every, key=lambda each: each[0]):
            given[holds] = label
        n_right = int((given == exp.cluster).sum())
        n_none = given.tolist().count(None)
        assert (rules.n_right, rules.n_wrong) == (n_right, len(frame) - n_right - n_none)
        shares = [f"{n / len(frame):.0%}" for n in (n_right, rules.n_wrong, n_none)]
        text = " ".join(rules.describe().split())
        assert (
            f"If the most precise rule decides, {shares[0]} of the rows get their own cluster, {shares[1]} "
            f"another one, and {shares[2]} none." in text
        )
        assert (rules.apply(frame) == given).all()

    def test_the_table_shows_the_conditions_in_order(self, explained: Any) -> None:
        exp, _ = explained
        rules = exp.rules()
        text = str(rules)
        place = 0
        for cluster in rules:
            for rule in cluster.rules:
                for condition in rule.conditions:
                    place = text.index(str(condition), place) + 1

    def test_of_given_labels_the_rules_describe_the_labels(self) -> None:
        rng = np.random.default_rng(0)
        X = np.concatenate([rng.normal(size=(60, 2)), rng.normal((9.0, 0.0), size=(60, 2)), [[50.0, 50.0]]])
        labels = DBSCAN(1.5).fit_predict(X)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", wc.FidelityWarning)  # the rules do not use the surrogate
            exp = wc.explain(labels, X)
        rules = exp.rules()
        frame = pd.DataFrame(X, columns=["x0", "x1"])
        names = np.where(labels == -1, "noise", labels.astype(str)).tolist()
        for cluster in rules:
            assert cluster.size == names.count(str(cluster.cluster))
        shown = [label if label == "noise" else int(label) for label in names]
        found = reference.figures(rules, frame, shown)
        assert [(r.cluster, r.text, r.n_rows, r.n_members) for c in rules for r in c.rules] == found

    def test_without_rules_there_are_no_figures(self) -> None:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            found = wc.explain(np.array([0, 0, 1, 1]), np.ones((4, 1))).rules()
        assert found.sentence() == "No rule was found for any cluster."

    def test_other_columns_are_ignored(self, explained: Any) -> None:
        exp, frame = explained
        rules = exp.rules()
        more = frame[frame.columns[::-1]].assign(note="new")
        assert rules.apply(more).tolist() == rules.apply(frame).tolist()

    def test_labels_of_a_rule_that_differs_from_them_are_described_themselves(self) -> None:
        rng = np.random.default_rng(0)
        X = rng.normal(size=(200, 2))
        model = DBSCAN(eps=0.35, min_samples=6).fit(X)
        model.labels_[np.flatnonzero(model.labels_ == 0)[:1]] = -1
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            exp = wc.explain(model, X)
        assert exp.agreement is not None
        assert (exp.assigned != exp.cluster).any()
        sizes = {each.cluster: each.size for each in exp.rules()}
        assert sizes == {name: int((exp.cluster == name).sum()) for name in sizes}

    @pytest.mark.parametrize(
        ("values", "text"),
        [
            (("missing",), 'c is "missing"'),
            (("not missing",), 'c is "not missing"'),
            (("x or y",), 'c is "x or y"'),
            (("one of us", " b"), 'c is one of "one of us" and " b"'),
            (("a, b", "a and b", "c"), 'c is one of "a, b", "a and b" and c'),
            (("missing person",), "c is missing person"),
            (("",), "c is ''"),
        ],
    )
    def test_categories_are_quoted_where_they_could_be_misread(self, values: Any, text: str) -> None:
        assert Condition("c", "category", values=values).text == text
        assert Condition("c", "category", missing=True).text == "c is missing"


class TestSql:
    def test_duckdb_gives_the_same_clusters(self, explained: Any) -> None:
        duckdb = pytest.importorskip("duckdb")
        exp, frame = explained
        rules = exp.rules(4)
        connection = duckdb.connect()
        connection.register("customers", frame)
        found = connection.execute(rules.to_sql("customers")).fetchdf()["cluster"]
        expected = rules.apply(frame)
        assert [None if pd.isna(each) else int(each) for each in found] == expected.tolist()
        for cluster in rules:
            query = f"SELECT count(*) FROM ({rules.to_sql('customers', cluster.cluster)})"
            assert connection.execute(query).fetchall() == [(cluster.n_rows,)]

    def test_nan_and_null_are_both_missing(self) -> None:
        duckdb = pytest.importorskip("duckdb")
        rng = np.random.default_rng(1)
        kind = np.arange(90) % 3
        x = np.where(kind == 0, np.nan, 4.0 * kind + rng.normal(size=90))
        frame = pd.DataFrame({"x": x, "y": rng.normal(size=90)})
        exp = wc.explain(kind, frame)
        rules = exp.rules()
        texts = {rule.text for cluster in rules for rule in cluster.rules}
        assert "x is missing" in texts
        assert any("x is above" in text for text in texts)
        connection = duckdb.connect()
        connection.execute("CREATE TABLE t (i INTEGER, x DOUBLE, y DOUBLE)")
        connection.executemany(
            "INSERT INTO t VALUES (?, ?, ?)",
            [
                (i, None if i % 2 and np.isnan(v) else v, w)
                for i, (v, w) in enumerate(frame.to_numpy().tolist())
            ],
        )
        found = connection.execute(f"SELECT cluster FROM ({rules.to_sql('t')}) ORDER BY i").fetchall()
        assert [each for (each,) in found] == rules.apply(frame).tolist()

    def test_names_and_values_are_quoted(self) -> None:
        duckdb = pytest.importorskip("duckdb")
        name, values = 'x"; DROP TABLE t; --', ["'; DROP TABLE t; --", "\\", "b"]
        frame = pd.DataFrame({name: values * 20, "select": np.tile([0.0, 5.0, 10.0], 20)})
        exp = wc.explain(wc.tabular.pipeline(frame, 3, random_state=0), frame).rename(
            {0: "it's", 1: "-- two", 2: '"'}
        )
        rules = exp.rules()
        connection = duckdb.connect()
        connection.register("t", frame)
        found = connection.execute(rules.to_sql("t")).fetchdf()["cluster"]
        assert found.tolist() == exp.cluster.tolist()

    def test_names_that_differ_only_in_case(self) -> None:
        frame = pd.DataFrame({"a": np.arange(20.0), "A": np.arange(20.0) % 2})
        rules = wc.explain(np.arange(20) // 10, frame).rules()
        assert '"a" <= 9' in rules.to_sql(dialect="postgres")
        with pytest.raises(wc.InvalidInputError) as caught:
            rules.to_sql()
        assert str(caught.value) == (
            "to_sql: columns must have different names in duckdb; 'a' and 'A' are the same. Rename one of "
            "them, and fit the model again."
        )

    def test_other_dialects(self) -> None:
        condition = Condition("a b", "number", low=0.5, may_be_nan=True)
        infinity = "CAST('Infinity' AS DOUBLE PRECISION)"
        assert condition.to_sql("postgres", "f") == f'"a b" > 0.5e0 AND "a b" < {infinity}'
        assert condition.to_sql("spark", "f") == "`a b` > 0.5e0 AND `a b` < CAST('Infinity' AS DOUBLE)"
        day = Condition("d", "day", dt.date(2020, 1, 2), dt.date(2020, 2, 29), True)
        assert day.to_sql("postgres", "f") == """"d" >= DATE '2020-01-02' AND "d" < DATE '2020-03-01'"""
        missing = Condition("a", "category", missing=True)
        assert missing.to_sql("postgres", "f") == '"a" IS NULL'
        known = Condition("a", "number", missing=False, may_be_nan=True)
        assert known.to_sql("spark", "f") == "`a` <= CAST('Infinity' AS DOUBLE)"


class TestSearch:
    @pytest.mark.slow
    def test_it_comes_close_to_trying_all_conjunctions(self) -> None:
        ratios = []
        for seed in range(3):
            rng = np.random.default_rng(seed)
            X = np.round(rng.normal(size=(36, 3)), 1)
            model = KMeans(4, n_init=2, random_state=seed).fit(X)
            rules = wc.explain(model, X).rules(2, 1)
            for cluster in rules:
                best = reference.best_f1(X, model.labels_ == cluster.cluster, 2)
                assert cluster.f1 <= best + 1e-12
                ratios.append(cluster.f1 / best)
        assert np.mean(ratios) > 0.99
        assert min(ratios) > 0.95

    def test_rules_have_at_most_the_given_number_of_conditions(self, explained: Any) -> None:
        exp, _ = explained
        for most in (1, 2, 3):
            for cluster in exp.rules(most):
                for rule in cluster.rules:
                    bounds = [(c.low is not None) + (c.high is not None) or 1 for c in rule.conditions]
                    assert sum(bounds) <= most

    def test_a_second_rule_is_found_where_a_cluster_has_two_parts(self) -> None:
        x = np.repeat([0.0, 10.0, 20.0], 40) + np.random.default_rng(0).normal(size=120)
        labels = np.repeat([0, 1, 0], 40)
        exp = wc.explain(labels, x[:, None])
        rules = exp.rules()
        assert rules[0].f1 > 0.99
        assert len(rules[0].rules) == 2
        assert len(exp.rules(max_rules=1)[0].rules) == 1

    def test_without_any_difference_there_is_no_rule(self) -> None:
        exp = wc.explain(KMeans(2, n_init=1, random_state=0).fit([[0.0], [1.0]] * 20), [[0.0], [0.0]] * 10)
        rules = exp.rules()
        assert [len(cluster.rules) for cluster in rules] == [0]
        assert "no rule found" in str(rules)
        assert rules.to_frame().shape == (0, 9)
        with pytest.raises(
            wc.InvalidInputError, match=r"^to_sql: there must be at least one rule; none was "
        ):
            rules.to_sql()

    @pytest.mark.slow
    def test_many_rows_and_columns_need_little_memory(self) -> None:
        rng = np.random.default_rng(0)
        X = rng.normal(size=(30_000, 60)).astype(np.float32)
        X[:, :3] += 4.0 * rng.integers(3, size=(30_000, 1))
        exp = wc.explain(KMeans(3, n_init=1, random_state=0).fit(X[:5000]), X)
        tracemalloc.start()
        rules = exp.rules()
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert np.mean([cluster.f1 for cluster in rules]) > 0.95
        assert peak < 60e6
        for cluster in rules:
            for rule in cluster.rules:
                holds = np.ones(len(X), dtype=bool)
                for each in rule.conditions:
                    x = X[:, int(str(each.feature)[1:])].astype(np.float64)
                    holds &= (x > (-np.inf if each.low is None else each.low)) & (
                        x <= (np.inf if each.high is None else each.high)
                    )
                assert int(holds.sum()) == rule.n_rows


class TestBounds:
    @pytest.mark.parametrize(
        ("low", "high", "expected"),
        [(3.2, 4.7, 4.0), (0.1, 0.2, 0.15), (12.71, 12.77, 12.74), (-0.001, 0.5, 0.0), (1e9, 3e9, 2e9)],
    )
    def test_short_numbers(self, low: float, high: float, expected: float) -> None:
        column = ColumnValues("x", "number", np.array([low, high]))
        assert bound_between(low, high, column) == expected

    def test_they_separate_neighboring_floats(self) -> None:
        for low in (0.1, 1e-300, 1e300, -5e-324, 123456.789):
            high = float(np.nextafter(low, np.inf))
            assert low <= bound_between(low, high, ColumnValues("x", "number", np.array([low]))) < high

    def test_times(self) -> None:
        low, high = (dt.datetime(2020, 1, 1, 8), dt.datetime(2020, 1, 1, 9, 30))
        column = ColumnValues("x", "timestamp", np.zeros(1))
        assert bound_between(as_number(low), as_number(high), column) == dt.datetime(2020, 1, 1, 9)
        near = bound_between(as_number(low), as_number(low + dt.timedelta(seconds=1)), column)
        assert low <= near < low + dt.timedelta(seconds=1)
        duration = ColumnValues("x", "duration", np.zeros(1))
        assert bound_between(1.2, 3.3, duration) == dt.timedelta(days=2)
        time = ColumnValues("x", "time of day", np.zeros(1))
        assert bound_between(0.4, 0.6, time) == dt.time(12)


class TestOtherTables:
    def test_polars_frames_get_polars_frames(self) -> None:
        frame = pl.from_pandas(shop(), nan_to_null=True)
        exp = wc.explain(wc.tabular.pipeline(frame, 3, random_state=0), frame)
        rules = exp.rules()
        assert isinstance(rules.to_frame(), pl.DataFrame)
        given = [(r.text, r.n_rows, r.n_members) for c in rules for r in c.rules]
        found = reference.figures(rules, frame.to_pandas(), exp.cluster)
        assert given == [each[1:] for each in found]
        assert (rules.apply(frame) == rules.apply(frame.to_pandas())).all()

    def test_durations_and_times_of_day(self) -> None:
        rng = np.random.default_rng(0)
        hours = np.repeat([1, 12], 30) + rng.integers(0, 3, size=60)
        frame = pl.DataFrame(
            {
                "took": [dt.timedelta(hours=int(h)) for h in hours],
                "at": [dt.time(int(h)) for h in hours],
                "noise": rng.normal(size=60) * 1e-3,
            }
        )
        exp = wc.explain(wc.tabular.pipeline(frame, 2, random_state=0), frame)
        rules = exp.rules(1, 1)
        assert [cluster.f1 for cluster in rules] == [1.0, 1.0]
        assert rules.n_right == 60
        duckdb = pytest.importorskip("duckdb")
        connection = duckdb.connect()
        connection.register("t", frame)
        found = connection.execute(rules.to_sql("t")).fetchdf()["cluster"]
        assert found.tolist() == exp.cluster.tolist()

    def test_mixtures_and_arrays(self) -> None:
        X = load_wine().data
        exp = wc.explain(GaussianMixture(3, covariance_type="diag", random_state=0).fit(X), X)
        rules = exp.rules()
        found = reference.figures(rules, pd.DataFrame(X, columns=exp.feature_names), exp.cluster)
        assert [(r.cluster, r.text, r.n_rows, r.n_members) for c in rules for r in c.rules] == found

    def test_rows_without_known_categories(self, explained: Any) -> None:
        exp, frame = explained
        other = frame.assign(region="Mars").iloc[:5]
        assert len(exp.rules().apply(other)) == 5


@pytest.fixture(scope="module")
def wines() -> Any:
    X = load_wine(as_frame=True).data
    return wc.explain(make_pipeline(StandardScaler(), KMeans(3, n_init=3, random_state=0)).fit(X), X)


class TestErrors:
    @pytest.mark.parametrize(
        ("call", "message"),
        [
            (
                lambda exp: exp.rules(0),
                "rules: max_conditions must be an integer of at least 1; got 0.",
            ),
            (
                lambda exp: exp.rules(max_rules=1.5),
                "rules: max_rules must be an integer of at least 1; got 1.5.",
            ),
            (
                lambda exp: exp[[]].rules(),
                "rules: the explanation must have at least one row; it has none.",
            ),
            (
                lambda exp: wc.explain(exp.cluster, exp.data, target=1).rules(),
                "rules: labels must be explained for their own clusters; all rows are explained for cluster "
                "1. Explain them without target.",
            ),
            (
                lambda exp: exp.rules(1)[7],
                "rules: cluster must be one of the model's 3 clusters, 0, 1, 2; got 7.",
            ),
            (
                lambda exp: exp.rules(1).to_sql(dialect="sqlite"),
                "to_sql: dialect must be one of 'duckdb', 'postgres', 'spark'; got 'sqlite'.",
            ),
            (
                lambda exp: exp.rules(1).apply(exp.data.assign(proline="a", flavanoids="b", alcohol="c")),
                "apply: column 'proline' must hold numbers, as in the explained data; it holds categories.",
            ),
        ],
    )
    def test_messages(self, wines: Any, call: Any, message: str) -> None:
        with pytest.raises(wc.InvalidInputError) as caught:
            call(wines)
        assert str(caught.value) == message

    def test_changed_data(self) -> None:
        X = np.random.default_rng(0).normal(size=(30, 2))
        exp = wc.explain(KMeans(2, n_init=1, random_state=0).fit(X), X)
        X += 1.0
        with pytest.raises(
            wc.InvalidInputError, match=r"^rules: the data have been changed since they were "
        ):
            exp.rules()
