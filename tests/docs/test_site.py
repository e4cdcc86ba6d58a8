"""The pages of the site: links lead somewhere, and nothing is loaded from elsewhere."""

from __future__ import annotations

from functools import cache
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest

from tests.docs import SITE

PAGES = sorted(path.relative_to(SITE).as_posix() for path in SITE.rglob("*.html"))


class Page(HTMLParser):
    """The links, the names of places, and the addresses that a page loads."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.links: list[str] = []
        self.places: set[str] = set()
        self.loaded: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = {name: value or "" for name, value in attrs}
        self.places.update(given[name] for name in ("id", "name") if name in given)
        if tag == "a" and "href" in given:
            self.links.append(given["href"])
        if tag in ("script", "img", "iframe", "source") and "src" in given:
            self.loaded.append(given["src"])
        if tag == "link" and given.get("rel") in ("stylesheet", "preload", "icon"):
            self.loaded.append(given["href"])


@cache
def page(name: str) -> Page:
    return Page((SITE / name).read_text())


@pytest.mark.parametrize("name", PAGES)
def test_links_lead_to_a_page_and_a_place(name: str) -> None:
    for link in page(name).links:
        parts = urlsplit(link)
        if parts.scheme or parts.netloc:
            continue
        target = (SITE / name).parent / unquote(parts.path) if parts.path else SITE / name
        target = target / "index.html" if target.is_dir() else target
        assert target.is_file(), (name, link)
        # viewcode takes the public name of one class of a module for that of all of them
        if parts.fragment and target.suffix == ".html" and not name.startswith("_modules"):
            places = page(target.resolve().relative_to(SITE).as_posix()).places
            assert unquote(parts.fragment) in places, (name, link)


@pytest.mark.parametrize("name", PAGES)
def test_pages_load_nothing_from_elsewhere(name: str) -> None:
    """The site works without a network, such as from a zip."""
    for address in page(name).loaded:
        assert not urlsplit(address).netloc, (name, address)


def test_notebooks_of_the_gallery_show_results() -> None:
    sources = sorted(Path(SITE).parents[1].joinpath("gallery").glob("*.md"))
    names = [path.stem for path in sources if path.stem != "index"]
    assert len(names) >= 8
    for name in names:
        assert (SITE / "gallery" / f"{name}.html").read_text().count("cell_output") >= 2, name


def test_formulas_are_mathml() -> None:
    text = (SITE / "method" / "equations.html").read_text()
    assert text.count("<math") > 20
    assert not any("mathjax" in address.lower() for address in page("method/equations.html").loaded)
