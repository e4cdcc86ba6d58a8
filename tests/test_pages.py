"""The Markdown pages of the repository: every link leads to a file, and to a heading if it names one."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
MADE = {"_build", "benchmarks", "project"}  # folders in docs that `make docs` writes
PAGES = sorted(
    path
    for path in [*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), *ROOT.glob("src/**/*.md")]
    if path.relative_to(ROOT).parts[1:2] not in {(name,) for name in MADE}
)
LINK = re.compile(r"!?\[[^\]]*\]\(([^)\s]+)\)")
CODE = re.compile(r"^```.*?^```|`[^`\n]*`", re.DOTALL | re.MULTILINE)


@cache
def headings(path: Path) -> set[str]:
    """Return the anchors of a page, as GitHub and MyST make them from its headings."""
    titles = re.findall(r"^#+ (.*)$", re.sub(r"^```.*?^```", "", path.read_text(), flags=re.S | re.M), re.M)
    plain = [re.sub(r"[^\w\- ]", "", title.replace("`", "").lower()) for title in titles]
    return {title.strip().replace(" ", "-") for title in plain}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_links_lead_to_a_file_and_a_heading(page: Path) -> None:
    for link in LINK.findall(CODE.sub("", page.read_text())):
        if re.match(r"\w+:", link):
            continue
        name, _, place = link.partition("#")
        target = page.parent / name if name else page
        assert target.exists(), link
        if place:
            assert place in headings(target.resolve()), link


def test_the_readme_is_short() -> None:
    assert len((ROOT / "README.md").read_bytes()) <= 8192
