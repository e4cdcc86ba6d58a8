"""The site in a browser: on a phone, in the dark, without JavaScript, and for screen readers."""

from __future__ import annotations

from collections.abc import Iterator
from importlib.resources import files

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


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("name", PAGES)
def test_pages_have_no_serious_violation(browser: Browser, name: str, scheme: str) -> None:
    axe = files("axe_playwright_python").joinpath("axe.min.js").read_text()
    browser.open(SITE / name, scheme=scheme)
    browser.run(axe)
    found = browser.run("return axe.run(document, {resultTypes: ['violations']}).then(r => r.violations)")
    serious = [each for each in found if each["impact"] in ("serious", "critical")]
    assert not [(each["id"], [node["html"][:200] for node in each["nodes"]][:3]) for each in serious]


@pytest.mark.parametrize("name", PAGES)
def test_pages_fit_a_phone(browser: Browser, name: str) -> None:
    browser.open(SITE / name, width=360)
    assert browser.run("return document.documentElement.scrollWidth") <= 360


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
