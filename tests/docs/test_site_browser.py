"""The site in a browser: on a phone, in the dark, without JavaScript or a network, and for screen readers."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from importlib.resources import files
from pathlib import Path

import pytest

from tests.docs import SITE
from tests.report.test_report_browser import CHROMEDRIVER, Browser

pytestmark = pytest.mark.skipif(
    CHROMEDRIVER is None, reason="chromedriver is not installed: apt-get install chromium chromium-driver"
)
PAGES = (
    "index.html",
    "start/python.html",
    "method/equations.html",
    "gallery/wines.html",
    "reference/explain.html",
    "models.html",
)


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    found = Browser(tmp_path_factory.mktemp("chromium"))
    yield found
    found.driver.quit()


@pytest.mark.parametrize(("scheme", "width"), [("light", 1280), ("dark", 1280), ("light", 360)])
@pytest.mark.parametrize("name", PAGES)
def test_pages_have_no_serious_violation(browser: Browser, name: str, scheme: str, width: int) -> None:
    axe = files("axe_playwright_python").joinpath("axe.min.js").read_text()
    browser.open(SITE / name, scheme=scheme, width=width)
    browser.run(axe)
    found = browser.run("return axe.run(document, {resultTypes: ['violations']}).then(r => r.violations)")
    serious = [each for each in found if each["impact"] in ("serious", "critical")]
    assert not [(each["id"], [node["html"][:200] for node in each["nodes"]][:3]) for each in serious]


CUT_OFF = """
const texts = document.createTreeWalker(document.querySelector('article'), NodeFilter.SHOW_TEXT), found = [];
while (texts.nextNode()) {
  const range = document.createRange(), text = texts.currentNode;
  range.selectNodeContents(text);
  if (text.data.trim() && !text.parentElement.closest('pre, .formula, .pst-scrollable-table-container')
      && [...range.getClientRects()].some(box => box.width > 1 && box.right > 361)) found.push(text.data);
}
return found;
"""


@pytest.mark.parametrize("name", [*PAGES, "reference/energies.html", "genindex.html", "decisions/onnx.html"])
def test_pages_fit_a_phone(browser: Browser, name: str) -> None:
    """Only code, formulas and tables scroll."""
    browser.open(SITE / name, width=360)
    assert browser.run("return document.documentElement.scrollWidth") <= 360
    assert browser.run(CUT_OFF) == []


@pytest.mark.parametrize("name", PAGES)
def test_pages_can_be_read_without_javascript(browser: Browser, name: str) -> None:
    browser.cdp("Emulation.setScriptExecutionDisabled", {"value": True})
    try:
        browser.driver.get((SITE / name).as_uri())
        assert len(browser.one("article").text) > 200
        links = [link.get_attribute("href") for link in browser.all("a")]
    finally:
        browser.cdp("Emulation.setScriptExecutionDisabled", {"value": False})
    assert any(link and link.endswith(".html") for link in links)


@pytest.fixture(scope="module")
def unzipped(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The site, zipped and unzipped elsewhere."""
    folder = tmp_path_factory.mktemp("zip")
    archive = shutil.make_archive(str(folder / "site"), "zip", SITE)
    shutil.unpack_archive(archive, folder / "elsewhere")
    return folder / "elsewhere"


@pytest.mark.parametrize("name", PAGES)
def test_pages_from_a_zip_are_whole_without_a_network(browser: Browser, unzipped: Path, name: str) -> None:
    browser.open(unzipped / name)
    asked = browser.requests()
    assert any(address.endswith(".css") or ".css?" in address for address in asked)
    assert all(address.startswith((unzipped.as_uri(), "data:")) for address in asked)
    assert not browser.run("return [...document.images].filter(i => !i.naturalWidth).map(i => i.src)")
    assert not [entry for entry in browser.logs("browser") if entry["level"] == "SEVERE"]


def test_the_site_from_a_zip_can_be_searched(browser: Browser, unzipped: Path) -> None:
    browser.open(unzipped / "search.html", "?q=counterfactual")
    found = browser.run(
        "const links = () => [...document.querySelectorAll('#search-results li a')].map(a => a.href);"
        "const shown = () => links().some(address => address.includes('counterfactual.html'));"  # one by one
        "return new Promise(done => { const wait = n => shown() || !n ? done(links())"
        " : setTimeout(wait, 100, n - 1); wait(100); })"
    )
    assert any("counterfactual.html" in address for address in found)
