"""The story of a row: each sentence is derived again from the table, with pandas and Python only."""

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.cluster import DBSCAN, KMeans
from sklearn.datasets import load_iris, load_wine
from sklearn.decomposition import PCA
from sklearn.mixture import GaussianMixture
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import whycluster as wc
from tests.reference import neon
from whycluster.core.rules import RULES
from whycluster.explanations.stories import story

pd: Any = pytest.importorskip("pandas")

_RANK = re.compile(
    r"(Clear|Typical|Weak|Borderline): (?:more evidence than )?(none|all|[\d,]+) of the other ([\d,]+) "
    r"rows in cluster \d+( has less evidence)?\."
)
_TYPICAL = re.compile(
    r"(?P<name>\S+) (?P<value>\S+) is (?P<side>above|below|after|before) the (?P<other>\S+) typical of "
    r"cluster (?P<there>\w+)(?:, and nearer to the (?P<own>\S+) typical of cluster (?P<here>\w+))?\.(?: |$)",
)
_AS_IN = re.compile(
    r"(?P<name>\S+) is (?P<value>\S+), as in (?P<own>[\d.]+)% of the rows of cluster (?P<here>\w+) and "
    r"(?P<other>[\d.]+)% of cluster (?P<there>\w+)\.(?: |$)",
)


def _wine(k: int) -> tuple[Any, wc.Explanation]:
    frame = load_wine(as_frame=True).data
    model = make_pipeline(StandardScaler(), KMeans(k, n_init=3, random_state=0)).fit(frame)
    return frame, wc.explain(model, frame)


def _customers() -> tuple[Any, wc.Explanation]:
    rng = np.random.default_rng(0)
    n = 240
    group = rng.integers(3, size=n)
    frame = pd.DataFrame(
        {
            "age": rng.normal(30 + 20 * group, 4).round(),
            "city": np.where(rng.random(n) < 0.9, np.array(["Rome", "Oslo", "Bern"])[group], "Rome"),
            "since": pd.Timestamp("2015-01-01") + pd.to_timedelta(rng.integers(0, 900, n) * (1 + group), "D"),
            "score": np.where((group == 2) & (rng.random(n) < 0.8), np.nan, rng.normal(size=n)),
        }
    )
    return frame, wc.explain(wc.tabular.pipeline(frame, n_clusters=3), frame)


def _sentences(exp: wc.Explanation, row: int) -> str:
    """Return the sentences above the table, on one line."""
    lines = exp.describe(row).splitlines()
    return " ".join(lines[1 : [line.split()[0] for line in lines].index("feature")])


def _shows(text: str, value: float) -> bool:
    """Return whether a printed number is the value, rounded to the digits shown."""
    decimals = len(text.split("e")[0].partition(".")[2])
    exponent = int(text.split("e")[1]) if "e" in text else 0
    return abs(float(text) - value) <= 0.5000001 * 10.0 ** (exponent - decimals) or (
        "." not in text and f"{value:.3g}" == f"{float(text):.3g}"
    )


@pytest.mark.parametrize("k", [2, 3, 5])
def test_the_rank_counts_the_other_rows_of_the_cluster(k: int) -> None:
    _, exp = _wine(k)
    label, evidence = exp.cluster.tolist(), exp.evidence.tolist()
    median, words = float(np.median(evidence)), set()
    for row in range(len(exp)):
        found = _RANK.search(exp.describe(row))
        assert found is not None
        others = [e for i, e in enumerate(evidence) if label[i] == label[row] and i != row]
        below = sum(e < evidence[row] for e in others)
        assert int(found[3].replace(",", "")) == len(others)
        assert found[2] == ("none" if not below else "all" if below == len(others) else f"{below:,}")
        assert bool(found[4]) == (not below)
        above = sum(e > evidence[row] for e in others)
        word = (
            "Clear" if 4 * below > 3 * len(others) else "Weak" if 4 * above >= 3 * len(others) else "Typical"
        )
        assert found[1] == ("Borderline" if evidence[row] <= 0.1 * median else word)
        words.add(found[1])
    assert words == {"Clear", "Typical", "Weak", "Borderline"}


def test_the_row_with_the_least_evidence_is_weak_but_equal_rows_are_typical() -> None:
    frame = pd.DataFrame({"x": [0.0, 0.1, 0.2, 0.3, 1.5, 10.0, 10.0, 10.0, 10.0, 20.0, 21.0]})
    model = KMeans(3, n_init=1, init=np.array([[0.4], [10.0], [20.5]])).fit(frame)
    exp = wc.explain(model, frame)
    code = exp.cluster.tolist()
    assert code == [0] * 5 + [1] * 4 + [2] * 2
    lines = [exp.describe(row).splitlines()[1] for row in range(len(frame))]
    assert lines[4] == "Weak: none of the other 4 rows in cluster 0 has less evidence."
    assert lines[3] == "Weak: more evidence than 1 of the other 4 rows in cluster 0."
    assert lines[2] == "Typical: more evidence than 2 of the other 4 rows in cluster 0."
    assert lines[5:9] == ["Typical: none of the other 3 rows in cluster 1 has less evidence."] * 4
    assert lines[9] == "Weak: no more evidence than the only other row in cluster 2."
    assert lines[10] == "Clear: more evidence than the only other row in cluster 2."


def test_no_value_is_typical_of_noise() -> None:
    """A noise row is compared with the nearest cluster; a row that noise competes for, with nothing."""
    frame = load_wine(as_frame=True).data
    Z = (frame - frame.mean()) / frame.std(ddof=0)
    exp = wc.explain(DBSCAN(eps=2.4, min_samples=4).fit(Z.to_numpy()), Z)
    means, n = Z.groupby(exp.cluster).mean(), 0
    for row in range(0, len(Z), 2):
        text = _sentences(exp, row)
        assert "typical of noise" not in text
        found = _TYPICAL.search(text)
        if exp.competitor[row] == "noise":
            assert found is None
            continue
        assert exp.cluster[row] == "noise"
        assert found is not None
        n += 1
        assert found["own"] is None
        assert int(found["there"]) == exp.competitor[row]
        value, other = Z[found["name"]].iloc[row], means.loc[int(found["there"]), found["name"]]
        assert _shows(found["other"], other)
        assert (found["side"] == "above") == (value > other)
    assert n > 10


def test_what_is_typical_is_the_mean_of_the_clusters() -> None:
    frame, exp = _wine(4)
    means = frame.groupby(exp.cluster).mean()
    n_nearer = 0
    for row in range(len(exp)):
        found = _TYPICAL.search(_sentences(exp, row))
        assert found is not None, exp.describe(row)
        name, value = found["name"], frame[found["name"]].iloc[row]
        own, other = means.loc[exp.cluster[row], name], means.loc[exp.competitor[row], name]
        assert int(found["there"]) == exp.competitor[row]
        assert _shows(found["value"], value)
        assert _shows(found["other"], other)
        assert found["side"] == ("above" if value > other else "below")
        nearer = abs(value - own) < abs(value - other)
        assert (found["own"] is not None) == nearer
        if nearer:
            n_nearer += 1
            assert _shows(found["own"], own)
            assert int(found["here"]) == exp.cluster[row]
    assert n_nearer > 100


def test_the_feature_speaks_most_against_the_nearest_competitor() -> None:
    frame, exp = _wine(4)
    against = wc.explain(exp_model(frame), frame, against=exp.competitor, rule="contrast").relevance
    for row in range(0, len(exp), 7):
        found = _TYPICAL.search(_sentences(exp, row))
        assert found is not None
        assert found["name"] == frame.columns[int(against[row].argmax())]


def exp_model(frame: Any) -> object:
    return make_pipeline(StandardScaler(), KMeans(4, n_init=3, random_state=0)).fit(frame)


def test_categories_missing_values_and_dates_are_told_with_their_frequencies() -> None:
    frame, exp = _customers()
    kinds = set()
    for row in range(len(exp)):
        text = _sentences(exp, row)
        cluster, competitor = (
            frame[exp.cluster == exp.cluster[row]],
            frame[exp.cluster == exp.competitor[row]],
        )
        as_in, typical = _AS_IN.search(text), _TYPICAL.search(text)
        assert (as_in is None) != (typical is None), text
        if as_in is not None:
            column = as_in["name"]
            is_missing = as_in["value"] == "missing"
            assert is_missing == pd.isna(frame[column].iloc[row])
            for part, shown in ((cluster, as_in["own"]), (competitor, as_in["other"])):
                same = part[column].isna() if is_missing else part[column] == as_in["value"]
                assert _shows(shown, 100 * float(same.mean()))
            kinds.add("missing" if is_missing else "category")
        elif typical is not None and typical["name"] == "since":
            assert typical["value"] == str(frame["since"].iloc[row].date())
            mean = competitor["since"].mean()
            assert typical["other"] == str(mean.round("D").date())
            assert typical["side"] == ("after" if frame["since"].iloc[row] > mean else "before")
            kinds.add("date")
        else:
            kinds.add("number")
    assert kinds >= {"category", "number"}, kinds


@pytest.mark.parametrize("as_time", [False, True])
@pytest.mark.parametrize("library", ["pandas", "polars", "pyarrow"])
def test_durations_and_times_are_compared_with_mean_durations_and_times(
    library: str, as_time: bool, tmp_path: Path
) -> None:
    rng = np.random.default_rng(0)
    seconds = np.r_[rng.integers(0, 20_000, 50), rng.integers(40_000, 60_000, 50)]
    values = pd.Series(pd.to_timedelta(seconds, "s"))
    if as_time:
        values = (pd.Timestamp("1970-01-01") + values).dt.time
    frame = pd.DataFrame({"length": values, "x": rng.normal(size=100)})
    if library != "pandas":
        frame = pytest.importorskip("pyarrow").Table.from_pandas(frame)
    if library == "polars":
        frame = pytest.importorskip("polars").from_arrow(frame)
    exp = wc.segment(frame, 2, measure_quality=False).explain(frame)
    members = exp.cluster == exp.cluster[0]
    assert members.tolist() == [True] * 50 + [False] * 50
    means = [str(pd.Timedelta(seconds=round(seconds[rows].mean())))[7:] for rows in (members, ~members)]
    here, there = means if as_time else [mean.lstrip("0") for mean in means]
    sentence = (
        f" is below the {there} typical of cluster {exp.cluster[99]}, and nearer to the {here} typical of "
        f"cluster {exp.cluster[0]}."
    )
    assert sentence in " ".join(exp.describe(0).split())
    exp.report(tmp_path / "report.html")
    assert there in (tmp_path / "report.html").read_text()


def test_booleans_are_told_with_their_frequencies() -> None:
    rng = np.random.default_rng(0)
    member = rng.random(200) < 0.5
    frame = pd.DataFrame({"member": member, "city": np.where(rng.random(200) < 0.9, "Rome", "Oslo")})
    exp = wc.explain(wc.tabular.pipeline(frame, n_clusters=2), frame)
    for row in range(20):
        assert f"member is {member[row]}, as in 100% of the rows of cluster " in _sentences(exp, row)


def test_the_split_against_the_nearest_competitor_stands_beside() -> None:
    frame, exp = _wine(4)
    contrast = wc.explain(exp_model(frame), frame, against=exp.competitor, rule="contrast")
    for row in (0, 70, 150):
        lines = exp.describe(row, n_features=13).splitlines()
        (head,) = [line for line in lines if line.startswith("feature")]
        assert head.endswith(f"against {exp.competitor[row]}")
        shown = {line.split()[0]: line.split()[-1] for line in lines if line.split()[0] in frame.columns}
        table = {name: text for name, text in shown.items() if not text.endswith(".")}
        assert len(table) >= 12
        for name, text in table.items():
            assert _shows(text, float(contrast.relevance[row, list(frame.columns).index(name)])), name
        assert sum(contrast.relevance[row]) == pytest.approx(exp.evidence[row])


def test_the_competitors_that_share_the_evidence_are_named() -> None:
    _, exp = _wine(5)
    for row in range(0, len(exp), 11):
        text = exp.describe(row)
        (line,) = [line for line in text.splitlines() if line.startswith("relevance: ")]
        shares = exp.competition[row] / exp.competition[row].sum()
        found = {int(k): int(p) for k, p in re.findall(r"(\d+) \((\d+)%\)", line)}
        assert list(found) == np.argsort(-shares, kind="stable")[: len(found)].tolist()
        for k, percent in found.items():
            assert percent == pytest.approx(100 * shares[k], abs=0.5001)
        assert text.splitlines()[-1] == (
            f"against {exp.competitor[row]}: the same evidence, against cluster {exp.competitor[row]} alone."
        )


def _shares_by_hand(h: dict[int, float], rule: str, beta: float, sizes: Any, c: int) -> dict[int, float]:
    """Return the share of the evidence that each competitor has under a rule."""
    if rule in ("path", "sequential"):
        a = neon.path_weights(h, beta, {k: sizes[k] / sizes[c] for k in h})
        shares = {k: a[k] * h[k] for k in h}
    elif rule == "contrast":
        shares = {k: float(h[k] == min(h.values())) for k in h}
    else:
        weight = 1.0 if rule == "min-take-most" else None  # the joint rule multiplies by h_k
        shares = {k: np.exp(-beta * (h[k] - min(h.values()))) * (weight or h[k]) for k in h}
    return {k: share / sum(shares.values()) for k, share in shares.items()}


@pytest.mark.parametrize("rule", RULES)
def test_competition_description_and_report_follow_the_rule(rule: str, tmp_path: Path) -> None:
    X = StandardScaler().fit_transform(load_wine().data)
    model = KMeans(5, n_init=3, random_state=0).fit(X)
    exp = wc.explain(model, X, rule=rule)
    sizes = np.bincount(exp.cluster, minlength=5)
    for row in range(0, len(X), 23):
        c = int(exp.cluster[row])
        s = ((X[row] - model.cluster_centers_) ** 2).sum(axis=1)
        h = {k: float(s[k] - s[c]) for k in range(5) if k != c}
        expected = _shares_by_hand(h, rule, exp.beta or 0.0, sizes, c)
        for k, share in expected.items():
            assert exp.competition[row, k] == pytest.approx(share * exp.evidence[row], rel=1e-8, abs=1e-12)
        lines = exp.describe(row).splitlines()
        shown = [line for line in lines if line.startswith("relevance: ")]
        found = {int(k): int(p) for k, p in re.findall(r"(\d+) \((\d+)%\)", " ".join(shown))}
        assert found or rule == "contrast"
        for k, percent in found.items():
            assert percent == pytest.approx(100 * expected[k], abs=0.5001)
    exp.report(tmp_path / "report.html")
    text = re.sub(r"<[^>]+>", " ", (tmp_path / "report.html").read_text())
    assert re.search(rf"Explained with\s+the rule {rule}\b", text)
    assert not any(f"the rule {other}" in text for other in RULES if other != rule)


@pytest.mark.parametrize("options", [{"rule": "contrast"}, {"target": 0}])
def test_where_the_split_is_the_same_there_is_no_second_column(options: dict[str, Any]) -> None:
    frame = load_iris(as_frame=True).data
    exp = wc.explain(KMeans(3, n_init=1, random_state=0).fit(frame), frame, **options)
    row = int(np.flatnonzero(exp.evidence < 0)[0]) if "target" in options else 0
    assert "against" not in exp.describe(row).splitlines()[1 if "target" in options else 3]


def test_behind_a_pca_some_of_the_rows_have_no_second_split() -> None:
    frame = load_wine(as_frame=True).data
    model = make_pipeline(StandardScaler(), PCA(3), KMeans(3, n_init=1, random_state=0)).fit(frame)
    exp = wc.explain(model, frame)
    contrast = wc.explain(model, frame, against=exp.competitor, rule="contrast")
    lines = exp.describe(3, n_features=1).splitlines()
    (line,) = [line for line in lines if line.startswith(str(exp.top(1).feature[3, 0])) and "+" in line]
    assert _shows(line.split()[-1], contrast.relevance[3, exp.strongest_features(1)[3, 0]])
    assert "alone." not in exp[[3, 4]].describe(0)  # the split depends on the means of all rows


def test_a_value_has_enough_digits_to_compare_as_printed() -> None:
    rng = np.random.default_rng(0)
    values = np.concatenate(
        [rng.normal(1e9, 0.1, 40), rng.normal(1e9 + 3, 0.1, 40), rng.normal(1e9, 0.1, 40)]
    )
    frame = pd.DataFrame({"offset": values, "flag": np.repeat([0.0, 0.0, 5.0], 40)})
    exp = wc.explain(KMeans(3, n_init=3, random_state=0).fit(frame), frame)
    n_numbers = 0
    for row in range(len(frame)):
        found = _TYPICAL.search(" ".join(exp.describe(row).splitlines()))
        if found is None or found["name"] != "offset":
            continue
        n_numbers += 1
        value, other = float(found["value"]), float(found["other"])
        assert abs(value - values[row]) < 1
        assert found["side"] == ("above" if value > other else "below"), found[0]
        if found["own"] is not None:
            assert abs(value - float(found["own"])) < abs(value - other)
    assert n_numbers >= 40


def test_one_row_alone_has_no_rank_and_no_typical_value() -> None:
    _, exp = _wine(3)
    text = exp[5].describe()
    assert _RANK.search(text) is None
    assert _TYPICAL.search(text) is None


class TestLabels:
    """Rows by name: ``loc`` and ``describe(label=)``."""

    def _named(self) -> wc.Explanation:
        frame = load_iris(as_frame=True).data
        frame.index = pd.Index(range(1, len(frame) + 1), name="customer")
        return wc.explain(KMeans(3, n_init=1, random_state=0).fit(frame), frame)

    def test_a_label_is_not_a_position(self) -> None:
        exp = self._named()
        assert exp.loc[42].evidence.tolist() == exp[[41]].evidence.tolist()
        assert exp.describe(label=42) == exp.describe(41)
        assert exp.describe(41).startswith("Row 42 (position 41) is in cluster ")
        assert exp[[41, 7]].describe(0).startswith("Row 42 (position 41) is in cluster ")

    def test_several_labels_keep_their_order(self) -> None:
        exp = self._named()
        assert exp.loc[[9, 3]].names_of_rows([0, 1]) == [9, 3]
        assert exp.loc[np.array([9, 3])].names_of_rows([0, 1]) == [9, 3]

    def test_a_label_of_several_rows_selects_all_of_them(self) -> None:
        frame = load_iris(as_frame=True).data
        frame.index = ["a", "b"] * 75
        exp = wc.explain(KMeans(3, n_init=1, random_state=0).fit(frame), frame)
        assert len(exp.loc["a"]) == 75
        with pytest.raises(
            wc.InvalidInputError,
            match=r"^describe: label must be the name of one row; 75 rows are named 'a', at the positions "
            r"\[0, 2, 4, 6, 8, \.\.\.\]\. Pass one of these positions as row\.$",
        ):
            exp.describe(label="a")

    @pytest.mark.parametrize("label", [0, "x", [1, 0], None])
    def test_an_unknown_label_is_an_error(self, label: object) -> None:
        wrong = 0 if label == [1, 0] else label
        with pytest.raises(
            wc.InvalidInputError,
            match=r"^loc: a label must be the name of a row, such as one of \[1, 2, 3, \.\.\.\]; got "
            + re.escape(repr(wrong))
            + r"\. To select rows by position, use exp\[position\]\.$",
        ):
            self._named().loc[label]

    def test_without_an_index_positions_are_the_names(self) -> None:
        frame = load_iris().data
        exp = wc.explain(KMeans(3, n_init=1, random_state=0).fit(frame), frame)
        assert exp.loc[7].evidence == exp[7].evidence
        assert exp.describe(7).startswith("Row 7 is in cluster ")


class TestFewRows:
    """Where beta or the cluster sizes are measured on few rows, a warning says how to use more rows."""

    @pytest.mark.parametrize("n", [1, 29])
    @pytest.mark.parametrize(
        ("query", "measured", "remedy"),
        [
            ({}, "beta and the cluster sizes were", ""),
            ({"beta": 0.5}, "the cluster sizes were", ""),
            ({"rule": "min-take-most"}, "beta was", ", or pass beta="),
            ({"rule": "joint"}, "beta was", ", or pass beta="),
        ],
        ids=str,
    )
    def test_fewer_than_ten_rows_per_cluster(
        self, query: dict[str, Any], measured: str, remedy: str, n: int
    ) -> None:
        X = load_iris().data
        model = KMeans(3, n_init=1, random_state=0).fit(X)
        with pytest.warns(wc.FewRowsWarning) as caught:
            wc.explain(model, X[:n], **query)
        (warning,) = caught
        assert warning.filename == __file__
        assert str(warning.message) == (
            f"explain: {measured} measured on only {n} row{'s' * (n > 1)}, fewer than 10 per cluster. As "
            "part of a larger table, the same rows could be explained differently. Pass that table as "
            f"background={remedy}."
        )

    def test_the_stiffness_of_a_kernel_is_not_measured(self) -> None:
        X = load_iris().data
        model = wc.KernelKMeans(3, gamma=0.5, random_state=0).fit(X)
        with pytest.warns(wc.FewRowsWarning, match=r"^explain: the cluster sizes were measured on only 3 "):
            exp = wc.explain(model, X[:3])
        assert exp.beta == 0.5

    @pytest.mark.filterwarnings("error::whycluster.FewRowsWarning")
    @pytest.mark.parametrize("n", [30, 150])
    def test_ten_rows_per_cluster_are_enough(self, n: int) -> None:
        X = load_iris().data
        wc.explain(KMeans(3, n_init=1, random_state=0).fit(X), X[:n])

    @pytest.mark.filterwarnings("error::whycluster.FewRowsWarning")
    def test_what_measures_nothing_does_not_warn(self) -> None:
        X = load_iris().data
        model = KMeans(3, n_init=1, random_state=0).fit(X)
        wc.explain(model, X[:3], background=X)
        wc.explain(model, X[:3], beta=0.5, rule="min-take-most")
        wc.explain(model, X[:3], beta=0.5, rule="joint")
        wc.explain(model, X[:3], rule="contrast")
        wc.explain(GaussianMixture(3, random_state=0).fit(X), X[:3])  # has weights and a stiffness
        wc.explain(KMeans(2, n_init=1, random_state=0).fit(X), X[:3])  # only one competitor
        few = X[::10]
        wc.explain(KMeans(3, n_init=1, random_state=0).fit_predict(few), few)  # all rows that there are

    def test_the_sequential_rule_measures_sizes_too(self) -> None:
        X = load_iris().data
        with pytest.warns(
            wc.FewRowsWarning, match=r"^explain: beta and the cluster sizes were measured on only 3 "
        ):
            wc.explain(KMeans(2, n_init=1, random_state=0).fit(X), X[:3], rule="sequential")


def test_comparisons_hold_as_printed() -> None:
    """The mean of the other cluster, 1500.4, must not be printed as the value, 1500."""
    X = np.array([[1500.0, 0.0]] * 10 + [[1500.4, 0.001]] * 10 + [[1500.0, 5.0]] * 10)
    exp = wc.explain([[1500.0, 0.0], [1500.4, 0.001], [1500.0, 5.0]], X)
    found = _TYPICAL.search(_sentences(exp, 0))
    assert found is not None
    assert (found["value"], found["side"], found["other"], found["own"]) == (
        "1500",
        "below",
        "1500.4",
        "1500",
    )


@pytest.mark.parametrize("model", [KMeans(4, n_init=1, random_state=0), GaussianMixture(3, random_state=0)])
def test_questions_about_some_rows_use_the_means_of_the_background(model: Any) -> None:
    """The split of a model behind a projection depends on the means of the clusters."""
    X = StandardScaler().fit_transform(load_wine().data)
    pipeline = make_pipeline(PCA(5), model).fit(X)
    everything, some = wc.explain(pipeline, X), wc.explain(pipeline, X[40:45], background=X)
    kept = wc.Segmentation.of(pipeline, X).explain(X[40:45])
    np.testing.assert_allclose(some.relevance, everything.relevance[40:45], rtol=1e-9, atol=1e-9)
    for row in range(5):
        against = story.contrast(everything, 40 + row)
        for exp in (some, kept):
            found = story.contrast(exp, row)
            assert (found is None) == (against is None)
            if found is not None and against is not None:
                np.testing.assert_allclose(found, against, rtol=1e-6, atol=1e-6 * np.abs(against).max())
    pair, expected = some.pair(0, 3), everything.pair(40, 43)
    np.testing.assert_allclose(pair.relevance, expected.relevance, rtol=1e-6, atol=1e-6)
