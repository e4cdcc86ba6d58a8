"""The report shows the numbers of the explanation, whatever the data are."""

from __future__ import annotations

import base64
import hashlib
import html
import re
import sys
import time
import tracemalloc
import unicodedata
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from numpy.typing import NDArray
from sklearn.cluster import DBSCAN, BisectingKMeans, KMeans
from sklearn.datasets import load_digits
from sklearn.decomposition import PCA, TruncatedSVD
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.mixture import GaussianMixture
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import Normalizer, StandardScaler

import whycluster as wc
from tests.optional import load_frame, optional
from tests.report.page import HOSTILE, Page, explained_wines, hostile_table, many_rows, words_of
from whycluster.data.display import percent
from whycluster.explanations import findings
from whycluster.explanations.maps.cluster_styles import SHAPES
from whycluster.explanations.stories.member_sample import MemberSample
from whycluster.plots import style
from whycluster.report.packing import scaled_halves
from whycluster.report.sampling import choose_rows
from whycluster.report.values import choose_encoding, encode

if TYPE_CHECKING:
    import pandas as pd
else:
    pd = optional("pandas")

GOLDEN = Path(__file__).parents[1] / "golden"
HALF = 1e-3  # half precision keeps three digits


@pytest.fixture(scope="module")
def wines() -> wc.Explanation:
    return explained_wines()


def test_what_is_there_without_a_script(wines: wc.Explanation, tmp_path: Path) -> None:
    assert words_of(Page.of(wines, tmp_path)) == (GOLDEN / "report.txt").read_text()


def test_rules_are_those_of_the_explanation(wines: wc.Explanation, tmp_path: Path) -> None:
    words, rules = words_of(Page.of(wines, tmp_path)), wines.rules()
    assert words.count("Rules for these rows") == len(rules) == 3
    for rule in rules.ordered:
        coverage, precision = percent(rule.coverage), percent(rule.precision)
        figures = f"({coverage} of the cluster; {precision} of the rows with this are in it)"
        assert f"{rule.text} {figures}" in " ".join(words.split())


def test_rules_of_some_tables_are_left_out(wines: wc.Explanation, tmp_path: Path) -> None:
    """Rules of few rows say little, and rules of very many clusters take long."""
    assert "Rules for" not in words_of(Page.of(wines[:5], tmp_path))
    X = np.arange(123.0)[:, None] * [1.0, 2.0]
    assert "Rules for" not in words_of(Page.of(wc.explain(X[::3], X), tmp_path))


def test_rows_have_the_numbers_of_the_explanation(wines: wc.Explanation, tmp_path: Path) -> None:
    page = Page.of(wines, tmp_path)
    assert page.array("position").tolist() == list(range(178))
    assert wines.labels[page.array("cluster")].tolist() == wines.cluster.tolist()
    assert wines.labels[page.array("competitor")].tolist() == wines.competitor.tolist()
    np.testing.assert_allclose(page.array("evidence"), wines.evidence, rtol=1e-6)
    top = wines.top(10)
    names = np.array([feature["name"] for feature in page.data["features"]])
    assert names[page.array("feature")].tolist() == top.feature.tolist()
    np.testing.assert_allclose(page.scaled("relevance", "scale"), top.relevance, rtol=HALF)
    np.testing.assert_array_equal(page.values(), top.value.astype(np.float64))  # as in the file
    assert page.data["limit"] == pytest.approx(0.1 * np.median(wines.evidence))


def test_rows_with_less_evidence_than_three_quarters_of_their_cluster_are_weak(
    wines: wc.Explanation, tmp_path: Path
) -> None:
    weak, label, evidence = (
        Page.of(wines, tmp_path).array("weak").tolist(),
        wines.cluster.tolist(),
        wines.evidence.tolist(),
    )
    for row in range(178):
        others = [e for i, e in enumerate(evidence) if label[i] == label[row] and i != row]
        assert weak[row] == (4 * sum(e > evidence[row] for e in others) >= 3 * len(others))
    assert 40 < sum(weak) < 50


def test_why_not_has_the_numbers_of_contrasts(wines: wc.Explanation, tmp_path: Path) -> None:
    X = load_frame("wine").data
    model = make_pipeline(StandardScaler(), KMeans(3, n_init=5, random_state=0)).fit(X)
    page = Page.of(wines, tmp_path)
    evidence = page.scaled("against", "scale")
    relevance = page.scaled("contrast_relevance", "scale")
    names = np.array([feature["name"] for feature in page.data["features"]])[page.array("contrast_feature")]
    for k in range(3):
        exp = wc.explain(model, X, against=k, target=wines.cluster)
        top = exp.top(3)
        rows = np.flatnonzero(wines.cluster != k)
        place = np.where(k < wines.cluster[rows], k, k - 1)  # without the row's own cluster
        np.testing.assert_allclose(evidence[rows, place], exp.evidence[rows], rtol=HALF)
        np.testing.assert_allclose(relevance[rows, place], top.relevance[rows], rtol=HALF)
        assert names[rows, place].tolist() == top.feature[rows].tolist()


def test_clusters_look_as_in_plots(wine: NDArray[Any], tmp_path: Path) -> None:
    exp = wc.explain(KMeans(9, n_init=1, random_state=0).fit(wine), wine)
    page = Page.of(replace(exp, labels=np.array([*"abcdefgh", "noise"])), tmp_path)
    for code, (color, shape) in enumerate(page.data["styles"]):
        plotted, marker = style.cluster_style(code, code == 8)
        assert f"--c{color}: {plotted}; " in page.text
        assert SHAPES[shape].marker == marker
        assert f'<path id="shape-{shape}" d="{SHAPES[shape].path}"/>' in page.text
        name = "Noise" if code == 8 else f"Cluster {'abcdefgh'[code]}"
        drawn = rf'<svg class="marker c{color}"[^>]*><use href="#shape-{shape}"/></svg><bdi>{name}<'
        assert re.search(drawn, page.text)
    assert style.cluster_style(8, True) == ("#767676", "x")


def test_features_of_equal_relevance_are_those_of_top(tmp_path: Path) -> None:
    X = np.repeat(np.random.default_rng(0).normal(size=(30, 2)), 20, axis=1)  # 20 copies of each column
    exp = wc.explain(KMeans(3, n_init=2, random_state=0).fit(X), X)
    page = Page.of(exp, tmp_path)
    names = np.array([feature["name"] for feature in page.data["features"]])
    assert names[page.array("feature")].tolist() == exp.top(10).feature.tolist()


@pytest.mark.parametrize(
    "model",
    [
        GaussianMixture(3, random_state=0),
        BisectingKMeans(4, random_state=0),
        make_pipeline(PCA(4), KMeans(3, n_init=2, random_state=0)),
        make_pipeline(StandardScaler(), PCA(4), GaussianMixture(3, random_state=0)),
    ],
    ids=lambda model: str(type(model).__name__),
)
def test_contrasts_of_some_rows_are_those_of_all(model: Any, wine: NDArray[Any], tmp_path: Path) -> None:
    exp = wc.explain(model.fit(wine), wine)
    page = Page.of(exp, tmp_path, n_rows=40)
    rows, own = page.array("position"), page.array("cluster")
    evidence, width = page.scaled("against", "scale"), len(exp.labels) - 1
    relevance = page.scaled("contrast_relevance", "scale")
    for j in range(width):
        k = np.where(j < own, j, j + 1)
        against = np.where(exp.cluster_codes == 0, 1, 0)
        against[rows] = k
        whole = wc.explain(model, wine, target=exp.cluster, against=exp.labels[against])[rows]
        np.testing.assert_allclose(evidence[:, j], whole.evidence, rtol=HALF)
        np.testing.assert_allclose(relevance[:, j], whole.top(3).relevance, rtol=HALF, atol=1e-12)


def test_what_is_kept_and_what_is_left_add_up_to_the_evidence(tmp_path: Path) -> None:
    X = np.random.default_rng(0).normal(size=(200, 6))
    exp = wc.explain(GaussianMixture(3, random_state=0).fit(X), X)
    page = Page.of(exp, tmp_path)
    relevance, residual = page.scaled("relevance", "scale"), page.array("residual")
    np.testing.assert_allclose(relevance.sum(axis=1) + residual, page.array("evidence"), atol=0.02)
    np.testing.assert_allclose(residual, exp.residual, rtol=1e-5)


def test_each_cluster_has_its_sentence_and_figures(wines: wc.Explanation, tmp_path: Path) -> None:
    made = Page.of(wines, tmp_path)
    page, summary = words_of(made), wines.summary()
    for sentence in findings.sentences(wines):
        assert sentence in page
    for g, share in enumerate(summary.share):
        first = int(np.abs(share).argmax())
        comparison = summary.statement(g, first).comparison
        assert re.fullmatch(
            r"(higher|lower) than in clusters? \d \([\d.]+\)( and \d \([\d.]+\))?", comparison
        )
        assert f"{summary.feature_names[first]} {comparison}\n+{share[first]:.0%}" in page
        assert f"{summary.size[g]} {summary.size[g] / 178:.0%}" in page
        for row in findings.typical_rows(wines, g, 5):
            assert f'href="#row-{row}"' in made.text


def test_the_rivals_are_those_of_the_findings(wines: wc.Explanation, tmp_path: Path) -> None:
    page = Page.of(wines, tmp_path)
    competition = findings.competition(wines)
    pairs = page.data["pairs"]
    for g, k in ((0, 1), (0, 2), (2, 0)):
        assert pairs["evidence"][g][k] == pytest.approx(competition.evidence[g, k], rel=1e-3)
        names = [pairs["names"][i] for i, _ in pairs["features"][g][k]]
        assert names == [wines.feature_names[i] for i in competition.feature[g, k]]
        cell = rf'<button [^>]*data-pair="{k}" data-group="{g}"[^>]*>([^<]*)</button>'
        assert re.findall(cell, page.text) == [f"{competition.share[g, k]:.0%}"]
    assert pairs["features"][0][0] == []


def test_histograms_count_all_rows() -> None:
    from whycluster.report.distributions import Distributions

    exp = many_rows(3000, 4, 3)
    drawn = Distributions.of(exp, [0, 2, 2])
    assert sorted(drawn.counts) == [0, 2]
    X = exp.data
    for i, counts in drawn.counts.items():
        edges = drawn.edges[i]
        for code in range(3):
            own = X[exp.cluster == code, i]
            below, above = int((own < edges[0]).sum()), int((own > edges[-1]).sum())
            assert drawn.beyond[i][code].tolist() == [below, above]
            inside = own[(own >= edges[0]) & (own <= edges[-1])]
            places = [min(int((edges[1:] <= value).sum()), len(edges) - 2) for value in inside]
            np.testing.assert_array_equal(counts[code], np.bincount(places, minlength=len(edges) - 1))
            assert counts[code].sum() + below + above == len(own)


def test_a_page_of_5000_rows_and_50_features_is_below_a_megabyte(tmp_path: Path) -> None:
    page = Page.of(many_rows(), tmp_path)
    assert len(page.text.encode()) <= 1_000_000
    assert page.array("position").shape == (5000,)
    assert page.array("against").shape == (5000, 7)
    assert page.array("feature").shape[1] >= 8
    assert "strongest of 50 features and the sum of all other features." in page.text


def test_long_names_take_room_from_the_rows(tmp_path: Path) -> None:
    exp = many_rows()
    page = Page.of(exp, tmp_path, ids=["\u4e2d" * 300 + str(i) for i in range(5000)])
    assert len(page.text.encode()) <= 1_000_000
    n = len(page.array("position"))
    assert 1000 < n < 5000
    assert f"{n:,} of 5,000 rows, drawn at random" in page.text


def test_very_many_clusters_show_the_nearest_only(tmp_path: Path) -> None:
    exp = many_rows(700, 8, 70)
    page = Page.of(exp, tmp_path)
    assert len(page.text.encode()) <= 1_000_000
    other, evidence = page.array("other"), page.scaled("against", "scale")
    n_others = other.shape[1]
    assert n_others == 60
    assert f"Each row is compared with the {n_others} nearest of 69 other clusters." in page.text
    assert (np.diff(evidence, axis=1) >= -HALF * evidence[:, 1:]).all()
    np.testing.assert_allclose(evidence[:, 0], exp.evidence[page.array("position")], rtol=HALF)
    assert (other[:, 0] == page.array("competitor")).all()
    assert page.data["pairs"] is None


class TestSampling:
    def test_every_cluster_is_there_and_so_is_what_is_wanted(self) -> None:
        cluster = np.zeros(100_000, dtype=np.intp)
        cluster[[5, 77_777]] = 1, 2
        wanted = np.array([99_999, 12])
        rows = choose_rows(cluster, wanted, 100, 0)
        assert len(rows) == 100
        assert {5, 77_777, 99_999, 12} <= set(rows.tolist())
        assert (np.diff(rows) > 0).all()

    def test_the_same_seed_gives_the_same_rows(self) -> None:
        cluster = np.arange(1000) % 4
        first, again, other = (choose_rows(cluster, np.array([3]), 50, seed) for seed in (0, 0, 1))
        assert first.tolist() == again.tolist() != other.tolist()

    def test_all_rows_if_there_are_few(self) -> None:
        assert choose_rows(np.zeros(3, dtype=np.intp), np.array([2]), 5, 0).tolist() == [0, 1, 2]

    def test_a_page_has_the_rows_that_it_names(self, tmp_path: Path) -> None:
        exp = many_rows(4000, 5, 4)
        page = Page.of(exp, tmp_path, n_rows=100)
        named = {int(row) for row in re.findall(r'href="#row-(\d+)"', page.text)}
        assert named <= set(page.array("position").tolist())
        assert len(named) >= 4 * 8
        note = "Showing 100 of 4,000 rows, drawn at random. All clusters, and all rows named above, are "
        assert f"{note}included." in page.text


class TestCodes:
    @pytest.mark.parametrize(
        "values",
        [
            np.array([1.0, 5.0, np.nan, 60000.0]),
            np.array([-3.0, 7.0]),
            np.array([2.0]),
        ],
    )
    def test_whole_numbers_are_exact(self, values: NDArray[Any]) -> None:
        coding = choose_encoding(values)
        assert coding.n_bytes == 2
        assert not coding.rounded
        np.testing.assert_array_equal(decode(values, coding), values)

    @pytest.mark.parametrize(
        "values",
        [
            np.array([77183.6, 12.25, np.nan, 0.0]),
            np.array([-0.1, 123456.789, 1e-9, 3e9]),
            np.array([1.0, 4503599627370497.0]),
            np.round(np.random.default_rng(0).lognormal(8, 3, 500), 2),
        ],
    )
    def test_numbers_with_a_few_decimals_are_exact(self, values: NDArray[Any]) -> None:
        coding = choose_encoding(values)
        assert not coding.rounded
        np.testing.assert_array_equal(decode(values, coding), values)

    def test_numbers_in_single_precision_have_the_digits_of_the_file(self) -> None:
        written = np.round(np.random.default_rng(0).normal(50, 20, 300), 2)
        read = written.astype(np.float32).astype(np.float64)
        coding = choose_encoding(read)
        assert not coding.rounded
        np.testing.assert_array_equal(decode(read, coding), written)

    @pytest.mark.parametrize(
        "values",
        [
            np.random.default_rng(0).normal(size=500),
            np.random.default_rng(0).normal(1e6, 1, size=500),
            np.exp(np.random.default_rng(0).normal(0, 6, size=500)),
            np.array([1e-300, 1e300, 0.0, -1e300, np.nan]),
            np.array([-1.7e308, 1.7e308, 3.0]),
            np.array([0.1, 0.1]),
            np.array([np.nan, np.nan]),
        ],
        ids=["plain", "far", "tailed", "extreme", "overflowing", "constant", "missing"],
    )
    def test_others_are_right_to_the_digits_that_are_shown(self, values: NDArray[Any]) -> None:
        coding = choose_encoding(values)
        found = decode(values, coding)
        np.testing.assert_array_equal(np.isnan(found), np.isnan(values))
        for shown, value in zip(found, values, strict=True):
            if np.isnan(value) or not coding.rounded:
                assert shown == value or np.isnan(value)
            elif coding.known is None:
                assert shown == float(f"{value:.{coding.decimals}f}")
            else:
                assert f"{shown:.6g}" == f"{value:.6g}"
        middle = np.nanmedian(np.abs(values)) if np.isfinite(values).any() else 0.0
        assert coding.known is not None or not coding.rounded or 10.0**-coding.decimals <= middle / 100

    def test_halves_keep_three_digits_in_every_row(self) -> None:
        values = np.random.default_rng(0).normal(size=(20, 5)) * 10.0 ** np.arange(-10, 10)[:, None]
        values[3] = 0.0
        values[4, 1] = 1e-7 * values[4, 0]
        scale, numbers = scaled_halves(values)
        np.testing.assert_allclose(numbers.astype(float) * scale[:, None], values, rtol=6e-4)


def decode(values: NDArray[Any], coding: Any) -> NDArray[Any]:
    code = encode(values, coding)
    missing, code = code == 65535, np.where(code == 65535, 0, code).astype(np.int64)
    if coding.known is not None:
        return np.where(missing, np.nan, coding.known[code])
    return np.where(missing, np.nan, (coding.low + code) / 10.0**coding.decimals)


class Attributes(HTMLParser):
    """Collects the names of all attributes of a page, and the addresses among them."""

    def __init__(self) -> None:
        super().__init__()
        self.names: set[str] = set()
        self.addresses: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:  # noqa: ARG002  # HTMLParser's signature
        self.names |= {name for name, _ in attrs}
        self.addresses += [value or "" for name, value in attrs if name in ("src", "href", "action", "data")]


@pytest.fixture(scope="module")
def hostile(tmp_path_factory: pytest.TempPathFactory) -> Page:
    exp, ids = hostile_table()
    left_out = {HOSTILE[2]: HOSTILE[0]}
    return Page.of(exp, tmp_path_factory.mktemp("hostile"), title=HOSTILE[1], ids=ids, left_out=left_out)


class TestSafety:
    def test_data_are_no_markup(self, hostile: Page) -> None:
        assert hostile.text.count("<script") == 2
        assert hostile.text.count("</script") == 2
        assert "<img" not in hostile.text
        assert "onerror" in words_of(hostile)  # as text

    def test_no_character_is_left_that_is_not_seen(self, hostile: Page) -> None:
        for character in HOSTILE[5] + "\u202e\u2028\u2029\x00\x07":
            assert character.isprintable() or character not in hostile.text
        invisible = {c for c in hostile.text if unicodedata.category(c) in ("Cc", "Cf", "Cs", "Zl", "Zp")}
        assert invisible <= {"\n", "\t"}
        assert r"\u202eright to left\u2028\u2029\x00\x07" in words_of(hostile)

    def test_the_policy_allows_this_script_and_nothing_else(self, hostile: Page) -> None:
        script = hostile.text.rpartition("<script>")[2].partition("</script>")[0]
        digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
        policy = html.unescape(re.findall(r'Content-Security-Policy" content="(.*?)"', hostile.text)[0])
        assert policy == (
            f"default-src 'none'; style-src 'unsafe-inline'; script-src 'sha256-{digest}'; base-uri 'none'; "
            "form-action 'none'"
        )

    def test_nothing_is_fetched(self, hostile: Page) -> None:
        found = Attributes()
        found.feed(hostile.text)
        assert {name for name in found.names if name.startswith("on")} == set()
        assert len(found.addresses) > 20
        assert all(address.startswith("#") for address in found.addresses), found.addresses
        assert "url(http" not in hostile.text
        assert "@import" not in hostile.text

    def test_the_script_makes_no_markup_of_texts(self) -> None:
        script = (Path(wc.__file__).parent / "report" / "page.js").read_text()
        for way in ("innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval(", "Function("):
            assert way not in script


def test_mixed_tables_show_categories_dates_and_what_is_missing(tmp_path: Path) -> None:
    random = np.random.default_rng(0)
    group = random.integers(0, 2, 80)
    frame = pd.DataFrame(
        {
            "size": np.where(random.random(80) < 0.2, np.nan, random.normal(5.0 * group)),
            "color": np.array(["red", "blue", "green"])[(group + random.integers(0, 2, 80)) % 3],
            "day": pd.Timestamp("2024-02-28") + pd.to_timedelta(group * 30 + random.integers(0, 9, 80), "D"),
        }
    )
    frame.loc[3, "color"] = None
    exp = wc.explain(group, frame)
    page = Page.of(exp, tmp_path)
    features = {feature["name"]: feature for feature in page.data["features"]}
    assert sorted(features["color"]["categories"]) == ["blue", "green", "red"]
    assert features["day"]["date"]
    code, names = page.array("value"), [feature["name"] for feature in page.data["features"]]
    for row in range(80):
        cells = {names[f]: code[row, j] for j, f in enumerate(page.array("feature")[row])}
        color = frame.color[row]
        expected = 65535 if color is None or color != color else features["color"]["categories"].index(color)
        assert cells["color"] == expected
        days = features["day"]["low"] + int(cells["day"])
        assert pd.Timestamp("1970-01-01") + pd.Timedelta(days, "D") == frame.day[row]
        assert (cells["size"] == 65535) == bool(np.isnan(frame["size"][row]))
    text = words_of(page)
    assert re.search(r"color (mostly|more often) (red|blue|green); \d+% in cluster (0|1)\n", text)
    assert re.search(r"day (later|earlier) than in cluster (0|1) \(2024-0[234]-\d\d\)\n", text)


def test_names_of_rows(wine: NDArray[Any], tmp_path: Path) -> None:
    frame = pd.DataFrame(wine[:20], index=[f"wine {i}" for i in range(20)])
    frame.columns = frame.columns.astype(str)
    exp = wc.explain(KMeans(2, n_init=1, random_state=0).fit(frame), frame)
    assert Page.of(exp, tmp_path).data["ids"][3] == "wine 3"
    assert Page.of(exp, tmp_path, ids=pd.Series(range(100, 120))).data["ids"][3] == "103"
    plain = wc.explain(KMeans(2, n_init=1, random_state=0).fit(wine), wine)
    assert Page.of(plain, tmp_path).data["ids"] is None  # positions
    some = plain[[7, 9, 11]]
    page = Page.of(some, tmp_path)
    assert page.data["ids"] == ["7", "9", "11"]
    assert page.array("position").tolist() == [0, 1, 2]


def test_the_fidelity_of_a_surrogate_is_shown(wine: NDArray[Any], tmp_path: Path) -> None:
    labels = DBSCAN(2.2, min_samples=4).fit_predict(wine)
    with pytest.warns(wc.FidelityWarning):
        exp = wc.explain(labels, wine)
    page = words_of(Page.of(exp, tmp_path))
    assert exp.fidelity is not None
    assert f"predicts the labels of {exp.fidelity.cross_validated:.1%} of the rows" in page
    assert "given labels, through a surrogate" in page
    assert "Noise" in page
    for caution in findings.warnings(exp):
        assert caution.text in page


def test_targets_differ_from_clusters(wine: NDArray[Any], kmeans: Any, tmp_path: Path) -> None:
    exp = wc.explain(kmeans, wine, target=2)
    page = Page.of(exp, tmp_path)
    np.testing.assert_array_equal(exp.labels[page.array("assigned")], exp.assigned)
    assert (page.array("cluster") == 2).all()
    n = int((exp.assigned != 2).sum())
    assert f"{n} rows are explained for a cluster that the model does not assign" in words_of(page)
    nowhere = wc.explain(kmeans, wine[exp.assigned != 2], target=2)
    text = words_of(Page.of(nowhere, tmp_path))
    assert "No row is in the cluster that it is explained for." in text


def test_a_threshold_is_a_line_of_its_own(wine: NDArray[Any], tmp_path: Path) -> None:
    exp = wc.explain(GaussianMixture(2, random_state=0).fit(wine), wine, threshold=0.9)
    page = Page.of(exp, tmp_path)
    assert page.data["bar"] == pytest.approx(-np.log(9))
    assert page.data["threshold"] == 0.9


DOCUMENTS = [
    "The ship left the harbour; by night, a storm had torn its sail. \U0001f6a2 Ship!",
    "A storm at sea!\nThe ship lost an anchor, the crew lost heart.",
    "Sail and anchor: two words that every ship knows in a storm.",
    "The bank raised its rate, and the stock market fell.</script><b>",
    "Stock prices fell again. The bank blames the market.",
    "A higher rate is good for the bank, bad for the stock market.",
]


def explained_documents() -> Any:
    model = make_pipeline(
        TfidfVectorizer(stop_words="english"),
        TruncatedSVD(3, random_state=0),
        Normalizer(),
        KMeans(2, n_init=5, random_state=0),
    )
    return wc.explain(model.fit(DOCUMENTS), DOCUMENTS)


def test_documents_have_their_words_marked(tmp_path: Path) -> None:
    texts = explained_documents()
    page = Page.of(texts, tmp_path)
    assert page.data["kind"] == "documents"
    assert page.data["texts"] == DOCUMENTS
    ends, start, length = page.array("ends"), page.array("start"), page.array("length")
    relevance = page.array("relevance").astype(np.float64)
    for row, text in enumerate(DOCUMENTS):
        words = [word for word in texts.words(row) if not word.stop_word]
        marks = range(ends[row], ends[row + 1])
        assert [text[start[m] : start[m] + length[m]] for m in marks] == [word.text for word in words]
        found = [relevance[m] * page.array("scale")[row] for m in marks]
        expected = [word.relevance if word.known else np.nan for word in words]
        np.testing.assert_allclose(found, expected, rtol=HALF, atol=1e-6)
    against = page.scaled("against", "against_scale")[:, 0]
    np.testing.assert_allclose(against, texts.evidence, rtol=HALF)  # there are only two clusters
    for label, name in texts.summary().names(3).items():
        assert all(word in words_of(page) for word in name.split(", ")), label


@pytest.mark.slow
def test_long_documents_are_cut_and_there_are_fewer(tmp_path: Path) -> None:
    random = np.random.default_rng(0)
    vocabulary = np.array([f"word{i}" for i in range(450)])
    documents = [" ".join(random.choice(vocabulary[(i % 3) * 90 :], 900)) for i in range(450)]
    model = make_pipeline(TfidfVectorizer(), KMeans(3, n_init=1, random_state=0)).fit(documents)
    page = Page.of(wc.explain(model, documents), tmp_path)
    assert len(page.text.encode()) <= 1_000_000
    n = len(page.data["texts"])
    assert 100 < n < 450
    assert f"{n} of 450 documents, drawn at random" in page.text
    longest = max(map(len, page.data["texts"]))
    assert f"Documents are cut after {longest:,} characters" in page.text
    assert page.data["cut"] == list(range(n))


def deep_digits(**question: Any) -> Any:
    torch = pytest.importorskip("torch")
    torch.manual_seed(0)
    X = (load_digits().images[:120, None] / 16).astype(np.float32)
    encoder = torch.nn.Sequential(
        torch.nn.Conv2d(1, 6, 3, padding=1), torch.nn.ReLU(), torch.nn.MaxPool2d(2), torch.nn.Flatten()
    ).eval()
    features = wc.deep.features(encoder, X).astype(np.float64)
    model = wc.deep.DeepClustering(encoder, KMeans(4, n_init=1, random_state=0).fit(features))
    return wc.explain(model, X, **question)


def test_images_have_heat_maps(tmp_path: Path) -> None:
    exp = deep_digits()
    page = Page.of(exp, tmp_path)
    assert page.data["kind"] == "images"
    heat = page.array("heat").astype(np.float64) / 127
    largest = np.abs(exp.heatmaps).max(axis=(1, 2), keepdims=True)
    np.testing.assert_allclose(heat, exp.heatmaps / largest, atol=0.005)
    for_it, against_it = page.array("total_for"), page.array("total_against")
    residual = page.array("residual")
    np.testing.assert_allclose(for_it + against_it + residual, exp.evidence, atol=1e-5)
    picture = page.array("picture")
    assert picture.shape == (120, 8, 8)  # gray
    np.testing.assert_array_equal(picture[5], np.round(255 * exp.data[5, 0] / exp.data[5].max()))


def test_channels_are_features_without_values(tmp_path: Path) -> None:
    exp = deep_digits(at="0", units="channels")
    page = Page.of(exp, tmp_path)
    assert page.data["kind"] == "table"
    names = np.array([feature["name"] for feature in page.data["features"]])
    order = np.argsort(-np.abs(exp.relevance), axis=1, kind="stable")
    assert names[page.array("feature")].tolist() == np.array(exp.names)[order].tolist()
    assert "channel" in words_of(page)
    assert "value" not in page.data


def test_large_images_are_reduced() -> None:
    from whycluster.report.images import _bytes, _reduced

    heat = np.random.default_rng(0).normal(size=(2, 10, 7))
    small = _reduced(heat, 4, np.add)
    assert small.shape == (2, 4, 3)
    np.testing.assert_allclose(small[1, 0, 0], heat[1, :3, :3].sum())
    np.testing.assert_allclose(small.sum(axis=(1, 2)), heat.sum(axis=(1, 2)))
    colors = np.random.default_rng(0).random((2, 3, 5, 5))
    assert _bytes(colors, 2).shape == (2, 2, 2, 3)
    np.testing.assert_array_equal(_bytes(colors, 5), np.round(255 * np.moveaxis(colors, 1, -1)))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"n_rows": 0}, "report: n_rows must be an integer of at least 1; got 0."),
        ({"random_state": -1}, "report: random_state must be an integer of at least 0; got -1."),
        ({"title": 3}, "report: title must be text; got 3."),
        ({"ids": ["a"]}, "report: ids must contain one id for each of the 178 rows; got 1."),
        (
            {"ids": (c for c in "abc")},
            "report: ids must contain one id for each of the 178 rows; got a generator.",
        ),
        (
            {"left_out": ["a"]},
            "report: left_out must map the names of columns that were left out to reasons; got list.",
        ),
    ],
)
def test_bad_options(wines: wc.Explanation, options: Any, message: str, tmp_path: Path) -> None:
    with pytest.raises(wc.InvalidInputError) as error:
        wines.report(tmp_path / "page.html", **options)
    assert str(error.value) == message
    assert list(tmp_path.iterdir()) == []


def test_no_rows(wines: wc.Explanation, tmp_path: Path) -> None:
    with pytest.raises(
        wc.InvalidInputError,
        match=r"report: exp must contain at least one row; it contains none\. Select at least one row\.",
    ):
        wines[:0].report(tmp_path / "page.html")


def test_bad_paths(wines: wc.Explanation, tmp_path: Path) -> None:
    with pytest.raises(wc.InvalidInputError, match=r"report: path must be the name of a file; got 3\."):
        wines.report(3)  # type: ignore[arg-type]
    with pytest.raises(FileNotFoundError, match="nowhere"):
        wines.report(tmp_path / "nowhere" / "page.html")


def test_a_file_is_replaced_at_once_or_not_at_all(wines: wc.Explanation, tmp_path: Path) -> None:
    path = tmp_path / "page.html"
    path.write_text("before")
    with pytest.raises(wc.InvalidInputError):
        wines.report(path, n_rows=-1)
    assert path.read_text() == "before"
    wines.report(path)
    assert path.read_text().startswith("<!DOCTYPE html>")
    assert [each.name for each in tmp_path.iterdir()] == ["page.html"]


def test_changed_data_are_noticed(wine: NDArray[Any], kmeans: Any, tmp_path: Path) -> None:
    X = wine.copy()
    exp = wc.explain(kmeans, X)
    X += 1.0
    with pytest.raises(wc.InvalidInputError, match="report: the data have been changed"):
        exp.report(tmp_path / "page.html")


def test_the_same_explanation_gives_the_same_page(wines: wc.Explanation, tmp_path: Path) -> None:
    assert Page.of(wines, tmp_path).text == Page.of(wines, tmp_path).text


@pytest.mark.parametrize("n", [1, 2])
def test_few_rows_and_features(n: int, tmp_path: Path) -> None:
    exp = wc.explain([[0.0], [1.0]], np.linspace(0.1, 0.2, n)[:, None])
    page = Page.of(exp, tmp_path)
    assert len(page.array("position")) == n


def test_jinja2_is_asked_for_by_name(
    wines: wc.Explanation, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setitem(sys.modules, "jinja2", None)  # as if it were not installed
    with pytest.raises(wc.MissingDependencyError) as error:
        wines.report(tmp_path / "page.html")
    assert str(error.value) == 'a report needs jinja2: pip install "whycluster[report]"'
    assert list(tmp_path.iterdir()) == []


def test_a_notebook_shows_clusters_and_rows(wines: wc.Explanation) -> None:
    shown = html.unescape(re.sub(r"<[^>]*>", " ", wines._repr_html_()))
    for sentence in findings.sentences(wines):
        assert sentence in shown
    assert wines[1].claim() in shown
    assert "... and 175 more rows" in shown
    page = hostile_table()[0]._repr_html_()
    assert "<script" not in page
    assert "<img" not in page


def test_different_categories_have_different_names_beside_their_bars(tmp_path: Path) -> None:
    random = np.random.default_rng(0)
    group = random.integers(0, 2, 60)
    begin = "an answer that goes on for very many letters, and then "
    answers = np.array(["strongly agree", "strongly disagree", begin + "yes", begin + "no"])
    frame = pd.DataFrame(
        {"size": random.normal(4.0 * group), "answer": answers[2 * group + np.arange(60) % 2]}
    )
    page = Page.of(wc.explain(group, frame), tmp_path)
    drawn = re.findall(r'<ul class="bars">(.*?)</ul>', page.text)
    assert drawn
    for bars in drawn:
        names = re.findall(r"<bdi>(.*?)</bdi>", bars)
        assert len(set(names)) == 4
        assert {"strongly agree", "strongly disagree"} <= set(names)
        assert max(map(len, names)) <= 22
        widths = [float(width) for width in re.findall(r"width:([\d.]+)%", bars)]
        assert max(widths) == 100.0  # the full width
        assert f'title="{begin}yes: ' in bars


def test_a_column_that_the_steps_leave_out_has_no_part_in_it(tmp_path: Path) -> None:
    random = np.random.default_rng(0)
    group = random.integers(0, 2, 60)
    frame = pd.DataFrame(
        {
            "respondent": [f"R{i:03d}" for i in range(60)],
            "size": random.normal(4.0 * group),
            "color": np.array(["red", "blue"])[group],
            "comment": [f"no. {i}" for i in range(60)],
            **{f"x{i}": random.normal(group) for i in range(8)},
        }
    )
    with pytest.warns(wc.ColumnWarning, match="2 columns are left out"):
        exp = wc.explain(wc.tabular.pipeline(frame, n_clusters=2), frame)
    page = Page.of(exp, tmp_path)
    text = words_of(page)
    assert "Columns 10\n" in text
    assert "2 columns have no influence: respondent, comment.\n" in text
    assert page.data["n_features"] == 10
    assert "strongest of" not in text  # all ten are listed
    assert "no influence" not in words_of(Page.of(exp[:9], tmp_path))  # too few to tell
    some = frame[["respondent", "size", "color"]]
    with pytest.warns(wc.ColumnWarning, match="1 column is left out"):
        exp = wc.explain(wc.tabular.pipeline(some, n_clusters=2), some)
    assert "1 column has no influence: respondent.\n" in words_of(Page.of(exp, tmp_path))
    assert "no influence" not in words_of(Page.of(explained_wines(), tmp_path))


def test_booleans_counts_and_frequencies_are_shown_as_what_they_are(tmp_path: Path) -> None:
    random = np.random.default_rng(0)
    group = np.arange(80) % 2
    frame = pd.DataFrame(
        {
            "visits": np.where(group, random.integers(3, 8, 80), random.integers(0, 5, 80)),
            "member": random.random(80) < 0.1 + 0.8 * group,
            "plan": np.array(["free", "pro"])[group],
        }
    )
    frame.loc[[0, 1], "visits"] = [0, 7]
    exp = wc.explain(wc.tabular.pipeline(frame, n_clusters=2), frame)
    page = Page.of(exp, tmp_path)
    names = [feature["name"] for feature in page.data["features"]]
    known = page.data["features"][names.index("member")]["categories"]
    assert sorted(known) == ["False", "True"]
    place, code = page.array("feature"), page.array("value")
    shown = [known[c] for c in code[place == names.index("member")]]
    assert shown == frame.member.astype(str).tolist()
    text = words_of(page)
    assert "Feature Share Distribution Mean or frequency inside Outside\n" in text
    assert re.search(r"visits (higher|lower) than in cluster [01] \([\d.]+\)\n\+\d+%\n0 7\n", text)
    assert "Mean or frequency" not in words_of(Page.of(explained_wines(), tmp_path))


def test_warnings_have_the_heading_of_the_command(tmp_path: Path) -> None:
    X = np.random.default_rng(0).normal(size=(60, 3)) * [1000.0, 1.0, 1.0]
    text = words_of(Page.of(wc.explain(KMeans(2, n_init=1, random_state=0).fit(X), X), tmp_path))
    assert "Warnings\n" in text


@pytest.mark.slow
def test_two_thousand_clusters_fit_on_the_page(tmp_path: Path) -> None:
    """The largest are described, and the page says so; of the rest, rows are still there."""
    X = np.random.default_rng(0).normal(size=(6000, 6))
    exp = wc.explain(X[:2000], X)
    start = time.perf_counter()
    exp.report(tmp_path / "page.html")
    assert time.perf_counter() - start < 60
    text = (tmp_path / "page.html").read_text()
    assert len(text.encode()) <= 1_000_000
    assert "Showing the 100 largest of 2,000 clusters." in text
    shown = [int(code) for code in re.findall(r'<article class="card" id="cluster-(\d+)"', text)]
    sizes = np.bincount(exp.cluster, minlength=2000)
    assert len(shown) == 100
    assert sizes[shown].min() >= np.delete(sizes, shown).max()


def test_competition_with_the_strongest_competitors_only() -> None:
    X = np.random.default_rng(0).normal(size=(600, 4))
    exp = wc.explain(X[:12], X)
    whole, some = findings.competition(exp), findings.competition(exp, most=3)
    for g, share in enumerate(whole.share):
        strongest = np.argsort(-share, kind="stable")[:3]
        assert (some.feature[g, strongest] == whole.feature[g, strongest]).all()
        assert (np.delete(some.feature[g], strongest, axis=0) == -1).all()


@pytest.mark.slow
def test_five_thousand_clusters_take_seconds_and_little_memory(tmp_path: Path) -> None:
    """An array of all pairs of clusters alone would take 200 MB."""
    centers = np.random.default_rng(0).normal(size=(5_000, 4))
    exp = wc.explain(centers, centers)
    start = time.perf_counter()
    tracemalloc.start()
    exp.report(tmp_path / "page.html")
    peak = tracemalloc.get_traced_memory()[1] / 2**20
    tracemalloc.stop()
    assert time.perf_counter() - start < 60
    assert peak < 190
    text = (tmp_path / "page.html").read_text()
    assert len(text.encode()) <= 1_000_000
    assert "Showing the 100 largest of 5,000 clusters." in text
    assert "competitor_share" not in vars(exp.member_clusters)


@pytest.mark.slow
def test_clusters_that_are_alike_are_found_among_many() -> None:
    """Evidence is computed for some clusters at a time; pairs are the same as with all at once."""
    rng = np.random.default_rng(0)
    centers = rng.normal(size=(1200, 3))
    centers[[7, 300]] = centers[[450, 301]] + 1e-6
    X = np.repeat(centers, 5, axis=0) + 1e-3 * rng.normal(size=(6000, 3))
    exp = wc.explain(centers, X)
    sample = MemberSample.of(exp, "report")
    blocks = list(sample.blocks())
    assert len(blocks) > 1
    assert sorted(np.concatenate([cluster for cluster, _ in blocks])) == sorted(sample.cluster)
    for cluster, h in blocks:
        assert not np.isin(cluster[-1], [other[0] for other, _ in blocks if other is not cluster])
        assert np.isnan(h[np.arange(len(cluster)), cluster]).all()
    alike = [found.clusters for found in findings.warnings(exp) if found.kind == "alike"]
    assert {(7, 450), (300, 301)} <= set(alike)
