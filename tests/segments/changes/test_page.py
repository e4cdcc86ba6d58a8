"""The report about changes: its numbers are those of the frames, and it is safe, small and accessible."""

from __future__ import annotations

import html
import re
from collections.abc import Iterator
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest
from sklearn.cluster import KMeans

import whycluster as wc
from tests.optional import optional
from tests.report.page import HOSTILE, Page, words_of
from tests.report.test_report_browser import CHROMEDRIVER, Browser
from tests.segments.changes.months import NAMES, customers, kept, next_month, segmentation

if TYPE_CHECKING:
    import pandas as pd
else:
    pd = optional("pandas")

pytest.importorskip("jinja2")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("changes")


@pytest.fixture(scope="module")
def one() -> wc.Changes:
    before = customers()
    return wc.changes(segmentation(before, names=NAMES), before, next_month(before), on="CustomerID")


@pytest.fixture(scope="module")
def two() -> wc.Changes:
    before = customers()
    after = next_month(before)
    old, new = segmentation(before, names=NAMES), segmentation(after, 4)
    return wc.changes(old, new, before, after, on="CustomerID")


def hostile() -> wc.Changes:
    """Compare months in which all names, ids, categories and labels are attacks."""
    rng = np.random.default_rng(0)
    group = rng.integers(0, 2, 60)
    before = pd.DataFrame(
        {
            HOSTILE[0]: rng.normal(4.0 * group),
            HOSTILE[1]: rng.normal(4.0 * group),
            "kind": np.array(HOSTILE)[rng.integers(0, len(HOSTILE), 60)],
            HOSTILE[2]: [f"{HOSTILE[i % len(HOSTILE)]} {i}" for i in range(60)],
        }
    )
    after = before.copy()
    after.loc[:19, HOSTILE[0]] += 8.0
    after.loc[:19, "kind"] = HOSTILE[1]
    X = before[[HOSTILE[0], HOSTILE[1], "kind"]]
    seg = segmentation(X, 2, {0: HOSTILE[1], 1: HOSTILE[3]})
    return wc.changes(seg, before, after, on=HOSTILE[2])


@pytest.fixture(scope="module")
def pages(folder: Path, one: wc.Changes, two: wc.Changes) -> dict[str, Path]:
    made = {"one": one, "two": two, "hostile": hostile()}
    for name, changes in made.items():
        changes.report(folder / f"{name}.html", title=HOSTILE[0] if name == "hostile" else None)
    return {name: folder / f"{name}.html" for name in made}


def text_of(path: Path) -> str:
    return words_of(Page(path.read_text(encoding="utf-8")))


def flat(text: str) -> str:
    return re.sub(r"\s+", " ", text)


def minus(text: str) -> str:
    return text.replace("-", "\N{MINUS SIGN}")


@pytest.mark.parametrize("name", ["one", "two"])
def test_the_page_has_the_numbers_of_the_frames(
    name: str, pages: dict[str, Path], request: pytest.FixtureRequest
) -> None:
    changes: wc.Changes = request.getfixturevalue(name)
    text, summary = flat(text_of(pages[name])), flat(changes.summary())
    assert summary.partition(" cluster before after")[0] in text.replace(
        " Overview Moves Drift ", " "
    ).replace("Rows that moved How this was computed Overview ", "")
    for label, counts in changes.sizes().set_index("cluster").iterrows():
        columns = ["before", "after", "stayed", "moved_out", "moved_in", "gone", "new"]
        assert f" {label} {' '.join(str(int(counts[column])) for column in columns)}" in text
    flows, drivers = changes.flows(), changes.drivers()
    moves = flows[flows["status"] == "moved"]
    for _, flow in moves.iterrows():
        mine = drivers[(drivers["from"] == flow["from"]) & (drivers["to"] == flow["to"])].head(4)
        drive = " ".join(
            f"{each.column} {minus(f'{each.contribution:+.3g}')} first in {each.first_in}"
            for each in mine.itertuples()
        )
        rows = f"{flow['rows']} row{'s' * (flow['rows'] != 1)}"
        assert re.search(
            re.escape(f"{flow['from']} {flow['to']} {rows} ")
            + r"[\d.]+% of its rows before "
            + re.escape(drive),
            text,
        )
    for _, flow in flows[flows["status"].isin(["new", "gone"])].iterrows():
        label = flow["to"] if flow["status"] == "new" else flow["from"]
        assert f" {label} : {flow['rows']} {flow['status']} " in text
    drift = changes.drift()
    for each in drift[drift["alarm"]].itertuples():
        assert f" {each.column} {each.cluster} mean " in text
        assert (
            f"{minus(f'{each.shift:+.2g}')} {'< 0.0001' if each.p_value < 1e-4 else f'{each.p_value:.2g}'}"
            in text
        )
    listed = re.findall(r"CustomerID (\d+) : ", text)
    assert len(listed) == min(20, moves["rows"].sum())
    rows = changes.to_frame().set_index("CustomerID")
    for row in map(int, listed):
        lines = changes.row(row).describe().split("\ncolumn")[0]
        assert flat(lines) in text
        account = rows.loc[row]
        change = account["evidence_after"] - account["evidence_before"]
        assert f"Change of the evidence {minus(f'{change:+.3g}')}" in text


def test_rows_are_typical_of_their_moves(one: wc.Changes, tmp_path: Path) -> None:
    one.report(tmp_path / "few.html", n_rows=1)
    (listed,) = re.findall(r"CustomerID (\d+) : ", flat(text_of(tmp_path / "few.html")))
    flow, rows = one.flows().query("status == 'moved'").iloc[0], one.to_frame().set_index("CustomerID")
    mine = rows[(rows["from"] == flow["from"]) & (rows["to"] == flow["to"])]
    split = mine[["age", "spend", "visits", "city"]]
    assert int(listed) == (split - split.mean()).abs().sum(axis=1).idxmin()
    one.report(tmp_path / "none.html", n_rows=0)
    assert "No rows are listed." in text_of(tmp_path / "none.html")


def test_a_month_without_moves_has_a_page(tmp_path: Path) -> None:
    before = customers()
    wc.changes(segmentation(before), before, before, on="CustomerID").report(tmp_path / "same.html")
    text = flat(text_of(tmp_path / "same.html"))
    assert text.count("No row moved.") == 2
    assert "no alarm in" in text


@pytest.mark.slow
def test_a_large_page_stays_small(tmp_path: Path) -> None:
    """Many columns with long names, many clusters and many rows fit in a megabyte."""
    rng = np.random.default_rng(0)
    names = [f"{'column ' * 40}{i}" for i in range(60)]
    before = pd.DataFrame(rng.normal(size=(1500, 60)), columns=names)
    after = pd.DataFrame(rng.normal(size=(1500, 60)), columns=names)
    model = KMeans(30, n_init=1, max_iter=3, random_state=0).fit(before)
    ids = {"id": [f"{'row ' * 40}{i}" for i in range(1500)]}
    changes = wc.changes(kept(model, before), before.assign(**ids), after.assign(**ids), on="id")
    changes.report(tmp_path / "large.html", n_rows=2000)
    assert 5e5 < (tmp_path / "large.html").stat().st_size <= 1_000_000


def test_data_never_become_markup(pages: dict[str, Path]) -> None:
    text = pages["hostile"].read_text(encoding="utf-8")
    assert "<script" not in text
    assert "<img" not in text
    assert "script-src 'none'" in html.unescape(text)
    assert all(attack not in text for attack in HOSTILE)
    assert not re.search(r"(?:src|href)=\"(?!#)", text)


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    opened = Browser(tmp_path_factory.mktemp("profile"))
    yield opened
    opened.driver.quit()


needs_browser = pytest.mark.skipif(
    CHROMEDRIVER is None, reason="chromedriver is not installed: apt-get install chromium chromium-driver"
)


@needs_browser
@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "scheme"), [("one", "light"), ("one", "dark"), ("two", "dark"), ("hostile", "light")]
)
def test_no_barrier(name: str, scheme: str, pages: dict[str, Path], browser: Browser) -> None:
    """axe-core finds no violation, in light and dark mode."""
    browser.open(pages[name], scheme=scheme)
    browser.run("document.querySelectorAll('details').forEach(each => { each.open = true })")
    axe = files("axe_playwright_python").joinpath("axe.min.js").read_text(encoding="utf-8")
    browser.cdp("Runtime.evaluate", {"expression": axe})
    found = browser.driver.execute_async_script(
        "const done = arguments[arguments.length - 1]; axe.run().then(found => done(found.violations))"
    )
    assert found == [], [(each["id"], each["impact"], each["nodes"][0]["html"]) for each in found]


@needs_browser
@pytest.mark.slow
@pytest.mark.parametrize("name", ["one", "two", "hostile"])
def test_a_telephone_shows_the_whole_width(name: str, pages: dict[str, Path], browser: Browser) -> None:
    browser.open(pages[name], width=360)
    browser.run("document.querySelectorAll('details').forEach(each => { each.open = true })")
    assert browser.run("return document.documentElement.scrollWidth") <= 360
    assert browser.run("return window.hacked") is None
    assert browser.requests() == [pages[name].as_uri()]
    assert browser.logs("browser") == []


@needs_browser
@pytest.mark.slow
def test_the_picture_is_to_scale(pages: dict[str, Path], browser: Browser, one: wc.Changes) -> None:
    """Bars are as high as the number of common rows in their clusters, and ribbons join them."""
    browser.open(pages["one"])
    heights = browser.run(
        "return [...document.querySelectorAll('.alluvial rect')].map(each => each.getBBox().height)"
    )
    counts = one.sizes().set_index("cluster")
    before = counts["stayed"] + counts["moved_out"]
    after = counts["stayed"] + counts["moved_in"]
    wanted = np.array([*before, *after], dtype=float)
    np.testing.assert_allclose(np.array(heights) / sum(heights), wanted / wanted.sum(), atol=2e-3)
    flows = one.flows()
    assert len(browser.all(".alluvial .ribbon.move")) == (flows["status"] == "moved").sum()
