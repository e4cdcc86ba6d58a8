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


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_tests_modules_and_targets_that_a_page_names_exist(page: Path) -> None:
    text = page.read_text()
    for name, test in re.findall(r"`(tests/[\w/]+\.py)(?:::(\w+))?`", text):
        assert (ROOT / name).is_file(), name
        assert f"def {test}" in (ROOT / name).read_text(), test
    for module in re.findall(r"python -m ((?:benchmarks|examples|tests)[.\w]*)", text):
        path = ROOT / module.replace(".", "/")
        assert path.with_suffix(".py").is_file() or (path / "__main__.py").is_file(), module
    targets = re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE)
    for target in re.findall(r"`(?:\w+=\w+ )?make\s([\w-]+)", text):
        assert target in targets, target


def equations() -> list[tuple[str, list[tuple[str, Path]]]]:
    """Return the formula of each line of the table of equations, and the names and files that it leads to."""
    page = ROOT / "docs" / "method" / "equations.md"
    lines = [line for line in page.read_text().splitlines() if line.startswith("|") and "](" in line]
    link = re.compile(r"\[`(\w+)`\]\(([^)]+)\)")
    found = [[(name, (page.parent / path).resolve()) for name, path in link.findall(line)] for line in lines]
    return list(zip([line.split(" | ")[0].strip("| ") for line in lines], found, strict=True))


@pytest.mark.parametrize(("formula", "links"), equations(), ids=[formula for formula, _ in equations()])
def test_each_equation_leads_to_its_code_its_transcription_and_a_test(
    formula: str, links: list[tuple[str, Path]]
) -> None:
    """The test is in a file that imports the transcription."""
    (code, _), (_, transcription), (test, tests) = links
    for name, path in links:
        assert re.search(rf"^(def|class) {name}\b", path.read_text(), re.MULTILINE), (formula, name)
    assert not code.startswith("test_")
    assert test.startswith("test_")
    assert transcription.parent == ROOT / "tests" / "reference"
    module = transcription.stem
    imported = rf"^from tests\.reference(\.{module} import|.* import .*\b{module}\b)"
    assert re.search(imported, tests.read_text(), re.MULTILINE), (formula, tests)


def test_the_table_of_equations_is_read() -> None:
    formulas = " ".join(formula for formula, _ in equations())
    for part in (
        "Eq. 2",
        "Eq. 3",
        "Eq. 4",
        "Eq. 6",
        "Prop. 1",
        "Props. 6 and 7",
        "path rule",
        "sequential rule",
    ):
        assert part in formulas, part


def test_the_readme_is_short() -> None:
    assert len((ROOT / "README.md").read_bytes()) <= 8192
