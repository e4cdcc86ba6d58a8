"""The report in a browser: everything works with mouse and keyboard, and the page sends no request.

Needs chromedriver and Chromium, which `make browser` installs where it may.
"""

from __future__ import annotations

import base64
import json
import re
import shutil
from collections.abc import Iterator
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from sklearn.cluster import KMeans
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import whycluster as wc
from examples.report import FLAGS
from tests.optional import load_frame, optional
from tests.report.page import HOSTILE, explained_wines, hostile_table, many_rows
from tests.report.test_first_screen import customers
from tests.report.test_report import DOCUMENTS, deep_digits, explained_documents

if TYPE_CHECKING:
    import pandas as pd
else:
    pd = optional("pandas")

CHROMEDRIVER = shutil.which("chromedriver")

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        CHROMEDRIVER is None, reason="chromedriver is not installed: apt-get install chromium chromium-driver"
    ),
]

QUIET = [
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--window-size=1280,900",
]


class Browser:
    """Chromium that shows a report."""

    def __init__(self, folder: Path) -> None:
        from selenium import webdriver
        from selenium.webdriver.chrome.service import Service

        options = webdriver.ChromeOptions()
        for flag in (*FLAGS, *QUIET, f"--user-data-dir={folder}"):
            options.add_argument(flag)
        options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
        self.driver = webdriver.Chrome(options=options, service=Service(CHROMEDRIVER))

    def open(self, page: Path, hash_: str = "", **look: Any) -> None:
        """Open a page in a fresh state, with a given size and color scheme."""
        self.driver.get("about:blank")
        self.look(**look)
        self.logs("browser")
        self.logs("performance")
        self.driver.get(page.as_uri() + hash_)
        self.run(  # a large page may take a while on a busy machine
            "return new Promise(done => document.readyState === 'complete' ? done()"
            " : addEventListener('load', () => setTimeout(done)))"
        )

    def look(self, width: int = 1280, media: str = "screen", scheme: str = "light") -> None:
        size = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": width < 600}
        self.cdp("Emulation.setDeviceMetricsOverride", size)
        still = {
            "name": "prefers-reduced-motion",
            "value": "reduce",
        }  # so that clicks need not wait for scrolling
        features = [{"name": "prefers-color-scheme", "value": scheme}, still]
        self.cdp("Emulation.setEmulatedMedia", {"media": media, "features": features})

    def cdp(self, command: str, options: dict[str, Any]) -> Any:
        return self.driver.execute_cdp_cmd(command, options)

    def run(self, script: str, *values: Any) -> Any:
        return self.driver.execute_script(script, *values)

    def all(self, selector: str) -> list[Any]:
        return list(self.driver.find_elements("css selector", selector))

    def one(self, selector: str) -> Any:
        return self.driver.find_element("css selector", selector)

    def text(self, selector: str) -> str:
        return str(self.one(selector).text)

    def settle(self) -> None:
        """Wait until the page has followed a link, which takes a moment."""
        self.run("return new Promise(done => setTimeout(done, 100))")

    def column(self, number: int) -> list[str]:
        """Return a column of the list of rows."""
        script = (
            "return [...document.querySelectorAll('#list tbody tr')]"
            ".map(line => line.children[arguments[0]].innerText.trim())"
        )
        return list(self.run(script, number))

    def press(self, *keys: str) -> None:
        from selenium.webdriver.common.action_chains import ActionChains

        ActionChains(self.driver).send_keys(*keys).perform()

    def logs(self, kind: str) -> list[Any]:
        return list(self.driver.get_log(kind))  # type: ignore[no-untyped-call]

    def requests(self) -> list[str]:
        """Return the addresses requested since the page was opened."""
        events = [json.loads(entry["message"])["message"] for entry in self.logs("performance")]
        return [e["params"]["request"]["url"] for e in events if e["method"] == "Network.requestWillBeSent"]


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    opened = Browser(tmp_path_factory.mktemp("profile"))
    yield opened
    opened.driver.quit()


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("pages")


@pytest.fixture(scope="module")
def wines() -> wc.Explanation:
    return explained_wines()


@pytest.fixture(scope="module")
def wine_page(wines: wc.Explanation, pages: Path) -> Path:
    wines.report(pages / "wine.html", ids=[f"wine {i}" for i in range(178)])
    return pages / "wine.html"


@pytest.fixture(scope="module")
def hostile_page(pages: Path) -> Path:
    exp, ids = hostile_table()
    exp.report(pages / "hostile.html", title=HOSTILE[1], ids=ids, left_out={HOSTILE[2]: HOSTILE[0]})
    return pages / "hostile.html"


@pytest.fixture(scope="module")
def text_page(pages: Path) -> Path:
    explained_documents().report(pages / "text.html")
    return pages / "text.html"


@pytest.fixture(scope="module")
def image_page(pages: Path) -> Path:
    deep_digits().report(pages / "images.html")
    return pages / "images.html"


def test_a_click_on_a_row_explains_it(browser: Browser, wine_page: Path, wines: wc.Explanation) -> None:
    browser.open(wine_page)
    browser.all("#list tbody tr")[7].click()
    assert browser.text("#row h3") == "Row wine 7"
    assert f"In {wines.cluster[7]}: evidence {wines.evidence[7]:.3g}" in browser.text("#row p").replace(
        "\n", " "
    )
    lines = browser.all(".relevance tbody tr")
    top = wines.top(10)
    assert [line.find_element("css selector", "th").text for line in lines[:10]] == top.feature[7].tolist()
    numbers = [number(line.find_elements("css selector", "td")[1].text) for line in lines]
    np.testing.assert_allclose(numbers[:10], top.relevance[7], atol=0.06)
    assert sum(numbers[:-1]) == pytest.approx(numbers[-1], abs=0.3)
    assert numbers[-1] == pytest.approx(wines.evidence[7], abs=0.06)
    values = [float(line.find_elements("css selector", "td")[0].text) for line in lines[:10]]
    np.testing.assert_allclose(values, top.value[7].astype(float), rtol=6e-3)
    assert browser.run("return location.hash") == "#row-7"
    assert browser.run("return document.activeElement.textContent") == "Row wine 7"


def test_why_not_every_other_cluster(browser: Browser, wine_page: Path, wines: wc.Explanation) -> None:
    browser.open(wine_page, "#row-83")
    others = [line.text.split()[0] for line in browser.all(".contrasts .why")]
    against = {k: wines.energy for k in range(3) if k != wines.cluster[83]}
    assert sorted(others) == [str(k) for k in against]
    X = load_frame("wine").data
    model = make_pipeline(StandardScaler(), KMeans(3, n_init=5, random_state=0)).fit(X)
    for line, more in zip(browser.all(".contrasts .why"), browser.all(".contrasts .more"), strict=True):
        k, evidence = line.text.split()[:2]
        exp = wc.explain(model, X, target=wines.cluster[83], against=int(k))[83]
        assert number(evidence) == pytest.approx(exp.evidence[0], rel=6e-3)
        assert more.text.startswith(exp.top(1).feature[0, 0])
        parts = [number(part.split()[-1]) for part in more.text.split(", ")]
        assert sum(parts) == pytest.approx(exp.evidence[0], rel=0.02)


def number(text: str) -> float:
    return float(text.replace("\u2212", "-"))


def test_search_filter_and_borderline(browser: Browser, wine_page: Path, wines: wc.Explanation) -> None:
    browser.open(wine_page)
    assert browser.text("#found") == "178 rows"
    search = browser.one("#search")
    search.send_keys("wine 17")
    assert browser.column(0) == ["wine 17", *(f"wine 17{i}" for i in range(8))]
    assert browser.text("#found") == "9 of 178 rows"
    search.clear()
    search.send_keys("PROLINE")
    strongest = wines.top(1).feature[:, 0]
    assert browser.text("#found") == f"{(strongest == 'proline').sum()} of 178 rows"
    search.clear()
    search.send_keys("nothing like that")
    assert browser.column(0) == []
    assert browser.text("#found") == "No row matches \u201cnothing like that\u201d."
    search.clear()
    search.send_keys(" ")
    browser.one("#only option[value='1']").click()
    assert browser.text("#found") == f"{(wines.cluster == 1).sum()} of 178 rows"
    browser.one("#only option[value='']").click()
    browser.one("#near").click()
    near = np.abs(wines.evidence) <= 0.1 * np.median(wines.evidence)
    assert browser.column(0) == [f"wine {i}" for i in np.flatnonzero(near)]


def test_sorting_by_every_column(browser: Browser, wine_page: Path, wines: wc.Explanation) -> None:
    browser.open(wine_page)
    heads = browser.all("#list thead th")
    assert [head.text.strip() for head in heads] == [
        "Row",
        "Cluster",
        "Competitor",
        "Evidence",
        "Strongest feature",
    ]
    assert {head.get_attribute("aria-sort") for head in heads} == {"none"}
    button = heads[3].find_element("css selector", "button")
    button.click()
    assert heads[3].get_attribute("aria-sort") == "ascending"
    order = np.argsort(wines.evidence, kind="stable")
    assert browser.column(0) == [f"wine {i}" for i in order[:50]]
    button.click()
    assert heads[3].get_attribute("aria-sort") == "descending"
    assert browser.column(0) == [f"wine {i}" for i in order[::-1][:50]]
    heads[0].find_element("css selector", "button").click()
    assert heads[3].get_attribute("aria-sort") == "none"
    assert browser.column(0)[:12] == [f"wine {i}" for i in range(12)]  # 2 before 10
    heads[4].find_element("css selector", "button").click()
    strongest = [text.partition("\n")[0] for text in browser.column(4)]
    assert strongest == sorted(strongest)
    heads[1].find_element("css selector", "button").click()
    assert set(browser.column(1)) == {"0"}


def test_pages_of_fifty(browser: Browser, wine_page: Path) -> None:
    browser.open(wine_page)
    back, following = browser.one("#back"), browser.one("#next")
    assert len(browser.column(0)) == 50
    assert not back.is_enabled()
    for page in (2, 3, 4):
        following.click()
        assert browser.text("#page") == f"Page {page} of 4"
    assert browser.column(0)[-1] == "wine 177"
    assert len(browser.column(0)) == 28
    assert not following.is_enabled()
    back.click()
    assert browser.column(0)[0] == "wine 100"
    browser.one("#search").send_keys("wine 3")  # starts at the first page again
    assert browser.column(0)[0] == "wine 3"


def test_links_to_rows(browser: Browser, wine_page: Path) -> None:
    browser.open(wine_page, "#row-42")
    assert browser.text("#row h3") == "Row wine 42"
    link = browser.all(".card .listed a")[0]
    link.click()
    browser.settle()
    assert browser.text("#row h3") == f"Row {link.text}"
    browser.driver.back()
    browser.settle()
    assert browser.text("#row h3") == "Row wine 42"
    browser.open(wine_page, "#row-wine%2042")  # by name
    assert browser.text("#row h3") == "Row wine 42"
    for link, text in (
        ("#row-4711", "This page has no row at position 4711 or with that name."),
        ("#row-wine%204711", "This page has no row named wine 4711."),
        ("#row-%E0%A4%A", "This page has no row named %E0%A4%A."),
    ):
        browser.run("location.hash = arguments[0]", link)
        browser.settle()
        assert browser.text("#row") == text
        top = browser.run("return document.getElementById('row').getBoundingClientRect().top")
        assert 0 <= top < 900
    assert browser.logs("browser") == []


def test_by_keyboard_only(browser: Browser, wine_page: Path) -> None:
    browser.open(wine_page)
    tab, enter, right = "\ue004", "\ue007", "\ue014"
    browser.press(tab)
    assert browser.run("return document.activeElement.className") == "skip"
    reached = []
    for _ in range(160):
        browser.press(tab)
        reached.append(
            browser.run("const e = document.activeElement; return e.id || e.className || e.tagName")
        )
        if reached[-1] == "chart":
            browser.press(right, right)
            assert browser.text("#map-status").startswith("Row wine ")
        if reached[-1] == "open":
            break
    assert {"chart", "search", "only", "near"} <= set(reached)
    browser.press(enter)
    assert browser.text("#row h3") == "Row wine 0"
    browser.run("document.querySelector('#list thead button').focus()")
    browser.press(enter, enter)
    assert browser.column(0)[0] == "wine 177"
    browser.run("document.querySelector('.matrix button').focus()")
    browser.press(" ")
    assert "separated by" in browser.text("#pair")


def test_the_map_opens_rows(browser: Browser, wine_page: Path) -> None:
    browser.open(wine_page)
    browser.one("#chart").click()  # its middle may be empty
    tab, right, enter = "\ue004", "\ue014", "\ue007"
    browser.run("document.getElementById('chart').focus()")
    browser.press(tab)
    browser.run("document.getElementById('chart').focus()")
    browser.press(right, right, right)
    text = browser.text("#map-status")
    assert "evidence" in text
    browser.press(enter)
    assert browser.text("#row h3") == text.partition(":")[0]
    drawn = browser.run(
        "const c = document.getElementById('chart');"
        "return c.getContext('2d').getImageData(0, 0, c.width, c.height).data.some(v => v > 0)"
    )
    assert drawn


def test_who_competes_on_which_features(browser: Browser, wine_page: Path) -> None:
    browser.open(wine_page)
    button = browser.one(".matrix tbody tr:nth-child(3) td:nth-child(2) button")
    button.click()
    assert browser.text("#pair").startswith(
        "2 against 0: strongest competitor of 100% of its rows; mean evidence"
    )
    assert "separated by proline (+" in browser.text("#pair")
    assert button.get_attribute("aria-pressed") == "true"


@pytest.mark.parametrize("name", ["wine_page", "hostile_page", "text_page", "image_page", "survey_page"])
def test_no_error_and_no_request(browser: Browser, name: str, request: pytest.FixtureRequest) -> None:
    page: Path = request.getfixturevalue(name)
    browser.open(page)
    for row in browser.all("#list tbody tr")[:3]:
        row.click()
    browser.run("document.querySelector('.matrix button').click()")
    browser.run("document.querySelector('#list thead button').click()")
    assert browser.logs("browser") == []
    assert {url.partition("#")[0] for url in browser.requests()} == {page.as_uri()}


def test_hostile_names_are_shown_and_not_run(browser: Browser, hostile_page: Path) -> None:
    browser.open(hostile_page)
    for line in range(5):
        browser.run("document.querySelectorAll('#list tbody tr')[arguments[0]].click()", line)
    browser.run("document.querySelectorAll('.matrix button').forEach(button => button.click())")
    browser.run("document.getElementById('chart').focus()")
    browser.press("\ue014")
    assert browser.run("return window.hacked") is None
    assert browser.logs("browser") == []
    shown = browser.text("main")
    assert HOSTILE[0] in shown
    assert HOSTILE[2] in shown
    assert browser.text("h1") == HOSTILE[1]
    assert browser.driver.title == HOSTILE[1]
    browser.one("#search").send_keys("onerror")
    exp, ids = hostile_table()
    kept = exp.data[HOSTILE[4]]  # categories are searched, too
    there = [i for i in range(60) if "onerror" in ids[i] or "onerror" in kept[i]]
    assert browser.text("#found") == f"{len(there)} of 60 rows"
    assert len(browser.all("img")) == 0


def test_the_policy_stops_what_slips_through(browser: Browser, wine_page: Path) -> None:
    """Injected markup could neither run scripts nor send requests."""
    browser.open(wine_page)
    browser.run(
        "const e = document.createElement('div'); document.body.append(e);"
        'e.innerHTML = \'<img src="https://example.org/x.png" onerror="window.hacked = 1">\';'
        "return new Promise(done => setTimeout(done, 200))"
    )
    assert browser.run("return window.hacked") is None
    assert any("Content Security Policy" in entry["message"] for entry in browser.logs("browser"))


def test_documents_are_shown_with_their_words(browser: Browser, text_page: Path) -> None:
    browser.open(text_page, "#row-0")
    assert browser.run("return document.querySelector('#row .text').textContent") == DOCUMENTS[0]
    exp = explained_documents()
    marked = {each.text: each.get_attribute("class") for each in browser.all("#row .text b")}
    for word in exp.words(0):
        if word.known and abs(word.relevance) > 0.1 * max(abs(w.relevance) for w in exp.words(0)):
            assert marked[word.text] == ("p" if word.relevance > 0 else "n")
    numbers = [
        number(line.find_elements("css selector", "td")[0].text)
        for line in browser.all(".relevance tbody tr")
    ]
    assert sum(numbers[:-1]) == pytest.approx(numbers[-1], abs=0.02)
    assert len(browser.all(".contrasts .why")) == 1
    browser.one("#search").send_keys("storm sail")
    assert browser.column(0) == ["0", "2"]


def test_images_are_drawn_with_their_heat_maps(browser: Browser, image_page: Path) -> None:
    browser.open(image_page, "#row-3")
    exp = deep_digits()
    heat = browser.run(
        "const c = document.querySelectorAll('#row canvas')[1];"
        "return [...c.getContext('2d').getImageData(0, 0, c.width, c.height).data]"
    )
    pixels = np.array(heat).reshape(8, 8, 4).astype(int)
    part = exp.heatmaps[3] / np.abs(exp.heatmaps[3]).max()
    assert (pixels[part > 0.3][:, 2] > pixels[part > 0.3][:, 0]).all()  # blue for the cluster
    assert (pixels[part < -0.3][:, 2] < pixels[part < -0.3][:, 0]).all()  # orange against it
    assert len(browser.all(".card .pictures a")) == 4 * 5
    browser.all(".card .pictures a")[0].click()
    browser.settle()
    assert browser.text("#row h3").startswith("Input ")


@pytest.mark.parametrize(
    ("name", "scheme"),
    [
        ("wine_page", "light"),
        ("wine_page", "dark"),
        ("text_page", "light"),
        ("text_page", "dark"),
        ("hostile_page", "light"),
        ("image_page", "dark"),
        ("survey_page", "dark"),
        ("customer_page", "light"),
        ("customer_page", "dark"),
    ],
)
def test_no_barrier(browser: Browser, name: str, scheme: str, request: pytest.FixtureRequest) -> None:
    """axe-core finds no violation, in light and dark mode."""
    browser.open(request.getfixturevalue(name), "#row-2", scheme=scheme)
    browser.run("document.querySelector('.matrix button').click()")
    browser.run("document.querySelector('.how').open = true")
    axe = files("axe_playwright_python").joinpath("axe.min.js").read_text(encoding="utf-8")
    browser.cdp("Runtime.evaluate", {"expression": axe})  # developer tools bypass the policy
    found = browser.driver.execute_async_script(
        "const done = arguments[arguments.length - 1]; axe.run().then(found => done(found.violations))"
    )
    assert found == [], [(each["id"], each["impact"], each["nodes"][0]["html"]) for each in found]


def test_heat_maps_are_of_the_colors_of_the_page(browser: Browser, image_page: Path) -> None:
    part = deep_digits().heatmaps[3]
    part = np.round(127 * part / np.abs(part).max())[..., None] / 127
    heat = (
        "return [...document.querySelectorAll('#row canvas[data-heat]')].map(c =>"
        " [...c.getContext('2d').getImageData(0, 0, c.width, c.height).data])[0]"
    )
    looks = {
        "light": ([255, 255, 255], [30, 110, 220], [230, 110, 0]),
        "dark": ([0x16, 0x19, 0x1D], [90, 160, 255], [255, 150, 40]),
    }
    browser.open(image_page, "#row-3")
    for scheme, (paper, ahead, behind) in looks.items():
        browser.look(scheme=scheme)
        browser.settle()
        pixels = np.array(browser.run(heat)).reshape(8, 8, 4)
        far = np.where(part >= 0, ahead, behind)
        np.testing.assert_allclose(pixels[..., :3], paper + (far - paper) * np.abs(part), atol=2)
        assert (pixels[..., 3] == 255).all()


def test_dark_and_light(browser: Browser, wine_page: Path) -> None:
    paper = "return getComputedStyle(document.body).backgroundColor"
    dot = (
        "const c = document.getElementById('chart');"
        "return [...c.getContext('2d').getImageData(0, 0, c.width, c.height).data].reduce((a, b) => a + b)"
    )
    browser.open(wine_page)
    light = browser.run(paper), browser.run(dot)
    browser.look(scheme="dark")
    assert browser.run(paper) != light[0] == "rgb(255, 255, 255)"
    assert browser.run(dot) != light[1]  # the map is redrawn
    browser.look(media="print", scheme="dark")
    assert browser.run(paper) == light[0]


@pytest.mark.parametrize(
    "name", ["wine_page", "hostile_page", "text_page", "image_page", "survey_page", "customer_page"]
)
def test_a_phone_shows_all_without_scrolling_sideways(
    browser: Browser, name: str, request: pytest.FixtureRequest
) -> None:
    browser.open(request.getfixturevalue(name), "#row-2", width=360)
    browser.run("document.querySelector('.matrix button').click()")
    assert browser.run("return document.documentElement.scrollWidth") == 360
    wide = browser.run(
        "return [...document.querySelectorAll('main *')].filter(e => !e.closest('.scroll, svg')"
        " && e.getBoundingClientRect().right > 361).map(e => e.outerHTML.slice(0, 80))"
    )
    assert wide == []


@pytest.mark.parametrize(
    ("name", "width", "unit"),
    [("wine_page", 1200, ""), ("wine_page", 360, "rows "), ("text_page", 360, "documents ")],
)
def test_a_phone_says_what_the_sizes_of_clusters_count(
    browser: Browser, name: str, width: int, unit: str, request: pytest.FixtureRequest
) -> None:
    browser.open(request.getfixturevalue(name), width=width)
    sizes = browser.run(
        "return [...document.querySelectorAll('.segments .size')].map(e => e.innerText.trim())"
    )
    assert sizes
    for size in sizes:
        assert re.fullmatch(rf"[\d,]+ {unit}\d+%", size), size


def test_paper_shows_all_clusters_and_no_controls(browser: Browser, wine_page: Path) -> None:
    browser.open(wine_page, "#row-5", media="print")
    seen = "return [...document.querySelectorAll(arguments[0])].map(e => e.getClientRects().length > 0)"
    assert browser.run(seen, ".card") == [True] * 3
    assert browser.run(seen, "#row h3") == [True]
    for control in ("nav", "#controls", "#pages"):
        assert browser.run(seen, control) == [False]
    paper = browser.cdp("Page.printToPDF", {})["data"]
    assert base64.b64decode(paper).startswith(b"%PDF")
    assert browser.logs("browser") == []


def test_5000_rows_and_50_features_open_in_under_a_second(browser: Browser, pages: Path) -> None:
    page = pages / "big.html"
    many_rows().report(page)
    times = []
    for _ in range(3):
        browser.open(page)
        assert len(browser.column(0)) == 50
        assert browser.text("#found") == "5,000 rows"
        times.append(browser.run("return performance.getEntriesByType('navigation')[0].loadEventEnd"))
    assert min(times) < 1000, times  # the list is complete before the load event
    browser.one("#search").send_keys("cluster 3")
    assert set(browser.column(1)) == {"3"}


def shown_values(browser: Browser, row: int) -> dict[str, str]:
    """Return the values in the table of a row, by column."""
    browser.run("location.hash = arguments[0]", f"#row-{row}")
    browser.settle()
    lines = [line.find_elements("css selector", "th, td") for line in browser.all(".relevance tbody tr")]
    return {cells[0].text: cells[1].text for cells in lines}


def test_values_of_every_kind(browser: Browser, pages: Path) -> None:
    random = np.random.default_rng(0)
    group = random.integers(0, 2, 60)
    frame = pd.DataFrame(
        {
            "weight": np.where(np.arange(60) == 4, np.nan, 1000.25 * (1 + group) + random.random(60)),
            "tail": np.exp(random.normal(3 * group, 4)),
            "count": random.integers(0, 9, 60) + 20 * group,
            "color": np.array(["red", "blue"])[group],
            "day": pd.Timestamp("2024-02-28") + pd.to_timedelta(group * 30 + random.integers(0, 9, 60), "D"),
        }
    )
    frame.loc[5, "color"] = None
    wc.explain(group, frame).report(pages / "kinds.html")
    browser.open(pages / "kinds.html")
    for row in (3, 4, 5):
        shown = shown_values(browser, row)
        assert shown["count"] == str(frame["count"][row])
        assert shown["day"] == str(frame.day[row].date())
        assert shown["color"] == ("missing" if row == 5 else frame.color[row])
        assert shown["weight"] == ("missing" if row == 4 else f"{frame.weight[row]:.0f}")
        assert float(shown["tail"].replace("\u2212", "-")) == pytest.approx(frame["tail"][row], rel=6e-3)


QUESTION = "Q{}. I like the service number {} of this company very much"


@pytest.fixture(scope="module")
def survey_page(pages: Path) -> Path:
    """A report with long feature names, answers, a date, a boolean and numbers with gaps."""
    random = np.random.default_rng(0)
    group = random.integers(0, 3, 90)
    answers = np.array(["disagree", "neutral", "agree", "strongly agree", "strongly disagree"])
    frame = pd.DataFrame(
        {QUESTION.format(q, q): answers[(group + q + random.integers(0, 2, 90)) % 5] for q in range(1, 5)}
    )
    frame["day"] = pd.Timestamp("2022-05-26") + pd.to_timedelta(400 * group + random.integers(0, 90, 90), "D")
    frame["spend"] = np.where(np.arange(90) % 9 == 0, np.nan, random.normal(300.0 * group, 40.0))
    frame["member"] = random.random(90) < 0.3 + 0.3 * group
    frame.index = pd.Index(np.arange(90) + 1000)
    wc.explain(wc.tabular.pipeline(frame, n_clusters=3), frame).report(pages / "survey.html")
    return pages / "survey.html"


def find(browser: Browser, text: str) -> int:
    """Return how many rows a search finds."""
    browser.run(
        "const e = document.getElementById('search'); e.value = arguments[0];"
        "e.dispatchEvent(new Event('input'))",
        text,
    )
    text = browser.text("#found")
    return 0 if text.startswith("No row") else int(text.split()[0])


def test_search_finds_what_the_list_shows(browser: Browser, survey_page: Path) -> None:
    browser.open(survey_page)
    listed = sorted({text.replace("\n", "") for text in browser.column(4)})
    assert any(text.startswith("day = 202") for text in listed)
    for shown in listed:
        assert find(browser, shown) >= 1, shown
        assert find(browser, shown.rpartition(" = ")[2]) >= 1, shown
    assert find(browser, "strongly disagree") >= 1
    assert find(browser, "member = True") >= 20  # at any rank among the features of a row
    assert find(browser, "Amsterdam") == 0
    assert browser.text("#found") == "No row matches \u201cAmsterdam\u201d."
    browser.one("#near").click()
    assert browser.text("#found") == "No row matches \u201cAmsterdam\u201d with the selected filters."
    assert "category" in browser.one("#search").get_attribute("placeholder")


@pytest.mark.parametrize("width", [360, 1200])
def test_long_names_leave_room(browser: Browser, survey_page: Path, width: int) -> None:
    browser.open(survey_page, "#row-17", width=width)
    assert browser.run("return document.documentElement.scrollWidth") <= width
    wide = browser.run(
        "return [...document.querySelectorAll('#row *, #controls *')].filter("
        "e => e.getBoundingClientRect().right > document.querySelector('main').getBoundingClientRect().right"
        " - 15).map(e => e.outerHTML.slice(0, 80))"
    )
    assert wide == []
    if width > 600:
        assert browser.run(
            "return [...document.querySelectorAll('.scroll')].every(e => e.scrollWidth <= e.clientWidth)"
        )
    lines = browser.run(  # lines of text in the cells of names and values
        "const lines = e => { const all = document.createRange(); all.selectNodeContents(e);"
        "return new Set([...all.getClientRects()].map(box => Math.round(box.top))).size; };"
        "return [...document.querySelectorAll('.relevance tbody tr')].map(line => "
        "[line.children[0].innerText, line.children[1].innerText, "
        "lines(line.children[0]), lines(line.children[1])])"
    )
    values = {name: value for name, value, _, _ in lines}
    assert max(each[2] for each in lines) <= (2 if width < 600 else 4)
    assert {each[3] for each in lines if each[0] == "day"} == {1}
    assert values["member"] in ("True", "False")
    cells = browser.run(  # in the list, the name is cut, not the value
        "return [...document.querySelectorAll('.strongest')].map(e => "
        "[e.lastChild.scrollWidth <= e.lastChild.clientWidth, "
        "e.lastChild.getBoundingClientRect().right <= e.parentNode.getBoundingClientRect().right])"
    )
    assert len(cells) == 50
    assert all(whole and inside for whole, inside in cells)


def test_a_row_is_found_by_the_name_that_is_shown(browser: Browser, survey_page: Path) -> None:
    browser.open(survey_page, "#row-1017")
    assert browser.text("#row h3") == "Row 1017"
    browser.open(survey_page, "#row-17")  # positions take precedence
    assert browser.text("#row h3") == "Row 1017"


def test_arrows_end_inside_their_cell(browser: Browser, survey_page: Path) -> None:
    browser.open(survey_page, "#row-17")
    room = browser.run(
        "const right = document.getElementById('row').getBoundingClientRect().right;"
        "return [...document.querySelectorAll('.relevance polygon')]"
        ".map(e => right - e.getBoundingClientRect().right)"
    )
    assert min(room) >= 5


def test_a_table_that_can_be_scrolled_has_a_shadow(browser: Browser, survey_page: Path) -> None:
    browser.open(survey_page, width=360)
    scroll = browser.one(".card .scroll")
    assert browser.run("return arguments[0].scrollWidth > arguments[0].clientWidth", scroll)
    assert "local, local, scroll, scroll" in scroll.value_of_css_property("background-attachment")


def scaled_wines() -> tuple[Any, Any, Any]:
    """Return the wines, their scaled values and the centers, computed without this package."""
    X = load_frame("wine").data
    model = make_pipeline(StandardScaler(), KMeans(3, n_init=5, random_state=0)).fit(X)
    return X, model[0].transform(X), model[1].cluster_centers_


def test_selected_rows_claim_nothing_about_others(
    browser: Browser, pages: Path, wines: wc.Explanation
) -> None:
    wines[10:40].report(pages / "some.html")
    browser.open(pages / "some.html", "#row-5")
    story = browser.text("#row .story")
    assert "of the other" not in story
    assert "typical of" not in story
    assert "shared among" in story


@pytest.mark.parametrize("row", [7, 70, 83, 115, 130])
def test_a_row_tells_its_story(browser: Browser, wine_page: Path, row: int) -> None:
    X, Z, centers = scaled_wines()
    distance = ((Z[:, None] - centers) ** 2).sum(axis=2)
    cluster = distance.argmin(axis=1)
    evidence = np.diff(np.sort(distance, axis=1), axis=1)[:, 0]
    own, competitor = cluster[row], int(distance[row].argsort()[1])
    browser.open(wine_page, f"#row-{row}")
    _, rank, typical, shared = browser.text("#row .story").replace("\u2212", "-").split("\n")

    others = (cluster == own) & (np.arange(178) != row)
    below = int((evidence[others] < evidence[row]).sum())
    near = evidence[row] <= 0.1 * np.median(evidence)
    above = int((evidence[others] > evidence[row]).sum())
    word = "Clear" if below > 0.75 * others.sum() else "Weak" if above >= 0.75 * others.sum() else "Typical"
    word = "Borderline" if near else word
    than = {0: "none", others.sum(): "all"}.get(below, str(below))
    told = f"{than} of the other {others.sum()} rows in cluster {own}"
    told = f"more evidence than {told}." if below else f"{told} has less evidence."
    assert rank == f"{word}: {told}"

    contrast = (Z[row] - centers[competitor]) ** 2 - (Z[row] - centers[own]) ** 2
    name = X.columns[contrast.argmax()]
    found = re.fullmatch(
        rf"{re.escape(name)} (\S+) is (above|below) the (\S+) typical of cluster {competitor}"
        rf"(?:, and nearer to the (\S+) typical of cluster {own})?\.",
        typical,
    )
    assert found, typical
    value, theirs, mine = X[name][row], X[name][cluster == competitor].mean(), X[name][cluster == own].mean()
    assert float(found[1]) == value
    assert found[2] == ("above" if value > theirs else "below")
    assert float(found[3]) == pytest.approx(theirs, rel=6e-3)
    assert (found[4] is not None) == (abs(value - mine) < abs(value - theirs))
    assert found[4] is None or float(found[4]) == pytest.approx(mine, rel=6e-3)

    shares = [int(part) for part in re.findall(r"\d \((\d+)%\)", shared)]
    assert sum(shares) in (99, 100, 101)
    assert shared.endswith(f"the same evidence, against cluster {competitor} alone.")

    assert browser.text(".relevance thead").endswith(f"Against {competitor} alone")
    for line in browser.all(".relevance tbody tr")[:10]:
        feature = line.find_element("css selector", "th").text
        shown = number(line.find_element("css selector", ".beside").text)
        assert shown == pytest.approx(contrast[list(X.columns).index(feature)], abs=0.06)
    beside = [number(cell.text) for cell in browser.all(".relevance .beside")]
    assert sum(beside[:-1]) == pytest.approx(beside[-1], abs=0.4)
    assert beside[-1] == pytest.approx(evidence[row], abs=0.06)


def test_the_first_screen_has_the_verdict_and_all_segments(browser: Browser, wine_page: Path) -> None:
    browser.open(wine_page)
    seen = (
        "const box = document.querySelector(arguments[0]).getBoundingClientRect();"
        "return [box.top, box.bottom]"
    )
    verdict, table = browser.run(seen, ".verdict"), browser.run(seen, ".segments")
    assert 0 < verdict[0] < verdict[1] < table[0] < table[1] < 900
    bars = browser.run(
        "return [...document.querySelectorAll('.segments .meter')].map(e =>"
        " e.firstChild.getBoundingClientRect().width / e.getBoundingClientRect().width)"
    )
    _, Z, centers = scaled_wines()
    cluster = ((Z[:, None] - centers) ** 2).sum(axis=2).argmin(axis=1)
    np.testing.assert_allclose(bars, np.bincount(cluster) / 178, atol=0.01)


@pytest.fixture(scope="module")
def customer_page(pages: Path) -> Path:
    frame = customers()
    wc.explain(wc.tabular.pipeline(frame, n_clusters=3), frame).report(pages / "customers.html")
    return pages / "customers.html"


def test_values_are_as_in_the_file(browser: Browser, customer_page: Path) -> None:
    frame = customers()
    browser.open(customer_page)
    for row in (3, 5, 17, 99, 250):
        shown = shown_values(browser, row)
        for name in ("income", "spend", "visits"):
            value = frame[name][row]
            assert shown[name] == ("missing" if value != value else repr(value.item()).removesuffix(".0"))
        assert shown["member"] == str(frame.member[row])
        assert shown["joined"] == str(frame.joined[row].date())
        decimals = len(shown["score"].partition(".")[2])
        assert shown["score"].replace("\u2212", "-") == f"{frame.score[row]:.{decimals}f}"
        assert decimals >= 3
        if row == 17:
            assert shown["income"] == "77183.6"


def test_dates_with_a_time_keep_it(browser: Browser, pages: Path) -> None:
    random = np.random.default_rng(0)
    group = np.arange(60) % 2
    seconds = random.integers(0, 86400, 60) + 86400 * 40 * group
    frame = pd.DataFrame(
        {"when": pd.Timestamp("2024-02-28") + pd.to_timedelta(seconds, "s"), "size": random.normal(group)}
    )
    wc.explain(group, frame).report(pages / "times.html")
    browser.open(pages / "times.html")
    for row in (0, 7, 31):
        assert shown_values(browser, row)["when"] == str(frame.when[row])


def test_a_row_beyond_the_map_is_told_in_words(browser: Browser, pages: Path) -> None:
    X = np.random.default_rng(0).normal(size=(200, 2))
    X[199] = 5000.0
    wc.explain(KMeans(2, n_init=1, random_state=0).fit(X[:-1]), X).report(pages / "far.html")
    browser.open(pages / "far.html")
    assert browser.text("#map-note").endswith(" 1 row beyond the map is drawn at its edge.")
    X = np.random.default_rng(0).lognormal(0, 3, size=(500, 2))
    wc.explain(KMeans(2, n_init=1, random_state=0).fit(X), X).report(pages / "tail.html")
    browser.open(pages / "tail.html")
    assert "The axes are logarithmic on both sides of the median" in browser.text("#map-note")
