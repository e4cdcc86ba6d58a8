"""The first screen, the axes, the values and the map of a report, derived again from the raw table."""

from __future__ import annotations

import html
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from numpy.typing import NDArray
from sklearn.cluster import KMeans

import whycluster as wc
from tests.optional import optional
from tests.report.page import HOSTILE, Page, explained_wines, hostile_table, many_rows, words_of

if TYPE_CHECKING:
    import pandas as pd
else:
    pd = optional("pandas")


def customers(n: int = 600) -> pd.DataFrame:
    """Return a table with skewed columns, categories, dates, booleans and missing values."""
    random = np.random.default_rng(0)
    group = random.integers(0, 3, n)
    frame: pd.DataFrame = pd.DataFrame(
        {
            "income": np.round(np.exp(random.normal(10 + 0.5 * group, 0.4)), 1),
            "spend": np.round(np.exp(random.normal(3 + 1.5 * group, 0.8)), 2),
            "visits": random.poisson(2 + 6 * (group == 2)),
            "city": np.array(["Rome", "Paris", "Oslo"])[
                np.where(random.random(n) < 0.8, group, random.integers(0, 3, n))
            ],
            "member": random.random(n) < 0.1 + 0.4 * group,
            "joined": pd.Timestamp("2019-01-01") + pd.to_timedelta(random.integers(0, 900, n), "D"),
            "score": random.normal(size=n),
        }
    )
    frame.loc[17, "income"] = 77183.6
    frame.loc[5, "spend"] = 9876.54
    frame.loc[[3, 8], "spend"] = np.nan
    return frame


@pytest.fixture(scope="module")
def frame() -> pd.DataFrame:
    return customers()


@pytest.fixture(scope="module")
def explained(frame: pd.DataFrame) -> wc.Explanation:
    exp = wc.explain(wc.tabular.pipeline(frame, n_clusters=3), frame)
    assert isinstance(exp, wc.Explanation)
    return exp


@pytest.fixture(scope="module")
def page(explained: wc.Explanation, tmp_path_factory: pytest.TempPathFactory) -> Page:
    return Page.of(explained, tmp_path_factory.mktemp("page"))


def segments(page: Page) -> list[list[str]]:
    """Return the cells of the table of segments as markup."""
    (table,) = re.findall(r'<table class="segments">(.*?)</table>', page.text, re.DOTALL)
    lines = re.findall(r"<tr>(.*?)</tr>", table.partition("<tbody>")[2], re.DOTALL)
    return [re.findall(r"<(?:th|td)[^>]*>(.*?)</(?:th|td)>", line, re.DOTALL) for line in lines]


def plain(markup: str) -> str:
    return re.sub(r"\s+", " ", html.unescape(re.sub(r"<[^>]*>", " ", markup.replace("<wbr>", "")))).strip()


def as_number(text: str) -> float:
    return float(text.replace("\N{MINUS SIGN}", "-").replace(",", ""))


def assert_shown(text: str, value: float) -> None:
    """Assert that the text is the value, to the digits that it shows."""
    if text.endswith("%"):
        decimals = len(text[:-1].partition(".")[2])
        assert text == f"{value:.{decimals}%}"
        return
    shown = as_number(text)
    digits = text.replace("\N{MINUS SIGN}", "").replace(",", "").lower().partition("e")[0]
    unit = 10.0 ** -len(digits.partition(".")[2]) * 10.0 ** int(text.lower().partition("e")[2] or 0)
    assert abs(shown - value) <= max(0.5000001 * unit, 0.5000001e-2 * abs(value) * ("." in digits))


def test_sizes_are_of_all_rows(page: Page, explained: wc.Explanation) -> None:
    labels = explained.cluster.astype(str)
    for cells in segments(page):
        name = plain(cells[0]).split()[1]
        size = int((labels == name).sum())
        assert plain(cells[1]).startswith(f"{size} rows {size / 600:.0%}")
        (width,) = re.findall(r'style="width:([\d.]+)%"', cells[1])
        assert float(width) == pytest.approx(100 * size / 600, abs=0.05)
    assert len(segments(page)) == 3


def test_sentences_and_names_are_in_the_table(page: Page, explained: wc.Explanation) -> None:
    names = explained.names()
    lines = segments(page)
    assert [plain(cells[2]) for cells in lines] == wc.findings.sentences(explained)
    for cells, (label, name) in zip(lines, names.items(), strict=True):
        assert plain(cells[0]) == f"Cluster {label} {name}"


def test_typical_values_are_means_and_frequencies_of_the_table(
    page: Page, explained: wc.Explanation, frame: pd.DataFrame
) -> None:
    assigned = explained.labels[explained.assigned_codes].astype(str)
    n_checked = 0
    for cells in segments(page):
        own = assigned == plain(cells[0]).split()[1]
        lines = re.findall(r"<li>(.*?)</li>", cells[3])
        assert 1 <= len(lines) <= 3
        for line in map(plain, lines):
            found = re.fullmatch(r"(\w+)(?: : (\S+))? (\S+) \(all: (\S+)\)", line)
            assert found, line
            column = frame[found[1]]
            for text, rows in ((found[3], own), (found[4], np.ones(len(frame), bool))):
                if found[2]:
                    values = column[rows].isna() if found[2] == "missing" else column[rows] == found[2]
                    values = column[rows].dropna() if found[2] == "true" else values
                    assert_shown(text, float(values.mean()))
                elif found[1] == "joined":
                    assert abs(pd.Timestamp(text) - column[rows].mean()) <= pd.Timedelta("12h")
                else:
                    assert_shown(text, float(column[rows].mean()))
            n_checked += 1
    assert n_checked >= 6


def test_large_means_are_written_in_full(page: Page) -> None:
    shown = [plain(cells[3]) for cells in segments(page)]
    assert not any(re.search(r"\de[+-]", text) for text in shown)
    assert any(re.search(r"\d,\d\d\d", text) for text in shown)


def test_the_method_is_in_the_appendix(page: Page) -> None:
    text = words_of(page)
    first, _, appendix = text.rpartition("How this was computed\n")
    for word in ("beta", "Clustered with", "Explained with", "the rule path, "):
        assert word not in first
        assert word in appendix
    assert text.index("Quality: ") < text.index("What sets it apart") < text.index("Clusters\n")
    assert text.startswith(
        "Skip to the rows\nWhy 600 rows are in their clusters\n600 rows, 7 columns, 3 clusters.\n"
    )


@pytest.mark.parametrize("noisy", [False, True])
def test_the_verdict_comes_first(noisy: bool, tmp_path: Path) -> None:
    if noisy:
        X = np.random.default_rng(0).normal(size=(400, 4))
        exp = wc.explain(KMeans(4, n_init=2, random_state=0).fit(X), X)
    else:
        exp = explained_wines()
    quality = wc.findings.quality(exp)
    assert (quality.verdict == "none") == noisy
    text = words_of(Page.of(exp, tmp_path))
    assert f"Quality: {quality.verdict}. {quality.text}\n" in text
    assert text.index("Quality: ") < text.index("Cluster 0")


def test_labels_and_names_with_markup_are_text(tmp_path: Path) -> None:
    exp, ids = hostile_table()
    page = Page.of(exp, tmp_path, title=HOSTILE[1], ids=ids)
    shown = [plain(cells[0]) for cells in segments(page)]
    assert len(shown) == 2
    assert all("<script>window.hacked = 1</script>" in text for text in shown)
    for cells in segments(page):
        assert cells[0].count("<bdi>") == 2  # the label and the proposed name cannot reorder each other


def drawings(page: Page) -> list[tuple[str, str, str, str]]:
    """Return (cluster, column, ends of the axis, what is not drawn) for each histogram."""
    found = []
    for card in re.findall(r'<article class="card".*?</article>', page.text, re.DOTALL):
        cluster = plain(re.findall(r"<h3[^>]*>(.*?)</h3>", card)[0]).removeprefix("Cluster ")
        for line in re.findall(r"<tr><th scope=\"row\">.*?</tr>", card, re.DOTALL):
            ends = re.findall(r'<span class="ends">(.*?)</span></span>', line)
            beyond = re.findall(r'<span class="beyond">(.*?)</span>', line)
            name = plain(re.findall(r"<bdi>(.*?)</bdi>", line)[0])
            if ends:
                found.append((cluster, name, plain(ends[0]), beyond[0] if beyond else ""))
    return found


def test_histograms_show_everything_or_count_what_is_beyond(
    page: Page, explained: wc.Explanation, frame: pd.DataFrame
) -> None:
    assigned = explained.labels[explained.assigned_codes].astype(str)
    n_cut = 0
    for cluster, name, ends, beyond in drawings(page):
        if name == "joined":
            continue
        values, own = frame[name].to_numpy(dtype=float), assigned == cluster
        low, high = map(as_number, ends.split())
        # The ends are shown with three digits.
        slack = 0.006 * max(abs(low), abs(high))
        counts = dict.fromkeys(("below", "above"), (0, 0))
        for n, side, inside in re.findall(r"([\d,]+) (below|above) \(([\d,]+) inside\)", beyond):
            counts[side] = (int(n.replace(",", "")), int(inside.replace(",", "")))
        sides = {"below": low - values, "above": values - high}
        for side, distance in sides.items():
            for shown, some in zip(counts[side], (np.ones(len(values), bool), own), strict=True):
                at_least, at_most = (int((distance[some] > s).sum()) for s in (slack, -slack))
                assert at_least <= shown
                assert shown <= at_most or shown == 0
        n_cut += bool(beyond)
    assert n_cut >= 1


def test_a_page_without_extreme_values_draws_them_all(tmp_path: Path) -> None:
    page = Page.of(explained_wines(), tmp_path)
    assert "not drawn" not in page.text
    assert len(drawings(page)) == 18


def test_evidence_beyond_its_axis_is_counted(tmp_path: Path) -> None:
    X = np.random.default_rng(0).normal(size=(300, 2))
    X[:150] += 8
    X[7] += 400
    exp = wc.explain(np.array([[0.0, 0.0], [8.0, 8.0]]), X)
    text = words_of(Page.of(exp, tmp_path))
    found = re.search(r"Evidence is drawn from (\S+) to (\S+); 1 row with more evidence is not drawn;", text)
    assert found
    assert (exp.evidence > float(found[2]) * 1.01).sum() == 1


def test_values_are_those_of_the_file(page: Page, frame: pd.DataFrame) -> None:
    names = [feature["name"] for feature in page.data["features"]]
    feature, code = page.array("feature"), page.array("value")
    n_checked = 0
    for name in ("income", "spend", "visits"):
        cells = np.argwhere(feature == names.index(name))
        known = page.data["features"][names.index(name)]
        for row, place in cells.tolist():
            value = float(frame[name][page.array("position")[row]])
            shown = decoded(page, known, int(code[row, place]))
            assert shown == value or (np.isnan(shown) and np.isnan(value))
            n_checked += 1
    assert n_checked == 1800
    assert len(page.text.encode()) <= 1_000_000


def decoded(page: Page, known: dict[str, Any], code: int) -> float:
    if code == 65535:
        return np.nan
    if "known" in known:
        number = float(page.array(known["known"])[known["start"] + code])
        return float(f"{number:.6g}") if known["known"] == "singles" else number
    return float((known["low"] + code) / 10 ** known["decimals"])


def test_a_page_of_5000_exact_rows_is_below_a_megabyte(tmp_path: Path) -> None:
    random = np.random.default_rng(0)
    X = np.round(random.lognormal(8, 2, size=(5000, 20)), 2)
    exp = wc.explain(KMeans(6, n_init=1, random_state=0).fit(np.log(X)).cluster_centers_, np.log(X))
    assert len(Page.of(exp, tmp_path).text.encode()) <= 1_000_000
    exp = wc.explain(np.exp(exp.energy.centers) if hasattr(exp.energy, "centers") else X[:6], X)
    page = Page.of(exp, tmp_path)
    assert len(page.text.encode()) <= 1_000_000
    top = exp.top(page.array("feature").shape[1])
    np.testing.assert_array_equal(page.values(), top.value[page.array("position")].astype(float))


class TestMap:
    def places(self, X: NDArray[Any], tmp_path: Path) -> tuple[Page, NDArray[np.float64]]:
        exp = wc.explain(KMeans(2, n_init=1, random_state=0).fit(X[:-1]), X)
        page = Page.of(exp, tmp_path)
        return page, page.array("map").astype(np.float64)

    def test_a_row_far_away_is_drawn_at_the_edge(self, tmp_path: Path) -> None:
        X = np.random.default_rng(0).normal(size=(200, 2))
        X[199] = 5000.0
        page, places = self.places(X, tmp_path)
        assert page.data["map_beyond"] >= 1
        assert not page.data["map_logarithmic"]
        assert np.ptp(np.quantile(places[:199], [0.05, 0.95], axis=0), axis=0).max() > 0.3 * 65535
        size = 65535 * np.array(page.data["map_size"])
        assert (np.abs(places[199] - size) < 1).any() or (places[199] == 0).any()  # at the edge
        at_edge = ((places == 0) | (np.abs(places - size) < 1)).any(axis=1).sum()
        assert page.data["map_beyond"] <= at_edge
        assert page.data["map_beyond"] <= 0.02 * 200

    def test_a_long_tail_is_logarithmic(self, tmp_path: Path) -> None:
        X = np.random.default_rng(0).lognormal(0, 3, size=(500, 2))
        page, places = self.places(X, tmp_path)
        assert page.data["map_logarithmic"]
        spread = np.ptp(np.quantile(places, [0.25, 0.75], axis=0), axis=0).max()
        assert spread > 0.1 * 65535

    def test_plain_data_are_drawn_as_they_are(self, tmp_path: Path) -> None:
        exp = many_rows(300, 4, 3)
        page = Page.of(exp, tmp_path)
        assert page.data["map_beyond"] == 0
        assert not page.data["map_logarithmic"]
        x = exp.data - exp.data.mean(axis=0)
        axes = np.linalg.svd(x, full_matrices=False)[2][:2]
        found, wanted = page.array("map").astype(float), x @ axes.T
        for axis in range(2):
            assert abs(np.corrcoef(found[:, axis], wanted[:, axis])[0, 1]) > 0.9999
