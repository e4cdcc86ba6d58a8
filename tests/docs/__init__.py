"""Tests of the documentation site, which `make docs` builds."""

from pathlib import Path

SITE = Path(__file__).parents[2] / "docs" / "_build" / "html"
assert (SITE / "index.html").exists(), "the site must be built before it is tested: run make docs"
