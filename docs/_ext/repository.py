"""Show files of the repository that are outside the docs folder, and mend the links to them.

Links in the repository lead from file to file, so that they also work without the site. In the site, links to
pages and to modules lead to pages of the site. All others, such as links to folders, lead to the source code.
"""

from __future__ import annotations

import posixpath
import re
import shutil
import subprocess
import sys
from pathlib import Path

from sphinx.application import Sphinx

_LINK = re.compile(r"(!?\[[^\]]*\]\()([^)\s:#]+)((?:#[^)]*)?\))")
_RESULTS = "benchmarks/results"
_MODULES = "project/source"
_REPORT = "docs/report.png"  # committed for the README
_SHOWN = {  # files outside the docs folder, and their pages
    "ARCHITECTURE.md": "project/architecture.md",
    "CHANGELOG.md": "project/changelog.md",
    "CONTRIBUTING.md": "project/contributing.md",
    "SECURITY.md": "project/security.md",
    "src/whycluster/core/README.md": "project/core.md",
    "README.md": "index.md",
    _RESULTS: "benchmarks/index.md",
    _REPORT: "project/report.png",
}


def setup(app: Sphinx) -> dict[str, bool]:
    """Copy the pages before Sphinx looks for sources."""
    app.add_config_value("source_link", "", "html", str)
    app.connect("config-inited", lambda app, config: _copy(Path(app.srcdir), config.source_link))
    app.connect("source-read", _read)
    return {"parallel_read_safe": True, "parallel_write_safe": True}


def _copy(docs: Path, source_link: str) -> None:
    """Copy the pages to folders that are ignored by git."""
    root = docs.parent
    for folder in ("project", "benchmarks"):
        shutil.rmtree(docs / folder, ignore_errors=True)
        (docs / folder).mkdir()
    for name, page in _SHOWN.items():
        if name.endswith(".md") and name != "README.md":
            _write(docs, root / name, docs / page, source_link)
    results = sorted((root / _RESULTS).glob("*.md"))
    for path in results:
        _write(docs, path, docs / "benchmarks" / path.name, source_link)
    for path in (root / _RESULTS).glob("*.png"):
        shutil.copy(path, docs / "benchmarks" / path.name)
    _show_modules(docs)
    _draw_report(docs)
    names = "\n".join(path.stem for path in results)
    (docs / "benchmarks" / "index.md").write_text(
        "# Benchmark results\n\nEach page names the command that made it. The scripts are in the folder "
        f"`benchmarks` of the source code.\n\n```{{toctree}}\n:maxdepth: 1\n\n{names}\n```\n"
    )


def _show_modules(docs: Path) -> None:
    """Write a page with the code of every module that a page has a link to."""
    pages = [*docs.glob("**/*.md"), *(docs.parent / name for name in _SHOWN if name.endswith(".md"))]
    linked = set[str]()
    for page in pages:
        here = page.relative_to(docs.parent).parent.as_posix()
        links = (posixpath.join(here, link[2]) for link in _LINK.finditer(page.read_text()))
        linked.update(map(posixpath.normpath, links))
    (docs / _MODULES).mkdir()
    for path in sorted(path for path in linked if path.endswith(".py") and (docs.parent / path).is_file()):
        code = f"```{{literalinclude}} /../{path}\n:language: python\n:linenos:\n```\n"
        (docs / module_page(path)).write_text(f"---\norphan: true\n---\n# `{path}`\n\n{code}")


def _draw_report(docs: Path) -> None:
    """Take a picture of a report as it looks now or, without Chromium, use the committed one."""
    picture = docs / _SHOWN[_REPORT]
    if not (shutil.which("chromium") or shutil.which("google-chrome")):
        shutil.copy(docs.parent / _REPORT, picture)
        return
    page = picture.with_suffix(".html")
    command = ["-m", "examples.report", "--page", str(page), "--picture", str(picture)]
    subprocess.run([sys.executable, *command], cwd=docs.parent, check=True, capture_output=True)
    page.unlink()


def module_page(path: str) -> str:
    """Return the page of a module, in the site."""
    return f"{_MODULES}/{path.removesuffix('.py').replace('/', '.')}.md"


def _write(docs: Path, source: Path, page: Path, source_link: str) -> None:
    origin = source.relative_to(docs.parent).as_posix()
    page.write_text(mended(source.read_text(), origin, docs, source_link))


def _read(app: Sphinx, page: str, source: list[str]) -> None:
    if not page.startswith(("project/", "benchmarks/")):
        source[0] = mended(source[0], f"docs/{page}.md", Path(app.srcdir), app.config.source_link)


def mended(text: str, origin: str, docs: Path, source_link: str) -> str:
    """Return a page with links that work in the site; ``origin`` is its path in the repository."""

    def replaced(link: re.Match[str]) -> str:
        path = posixpath.normpath(posixpath.join(posixpath.dirname(origin), link[2]))
        return f"{link[1]}{target(path, docs, source_link)}{link[3]}"

    return _LINK.sub(replaced, text)


def target(path: str, docs: Path, source_link: str) -> str:
    """Return the link to a path in the repository, from the root of the site."""
    if path in _SHOWN:
        return f"/{_SHOWN[path]}"
    if path.startswith(f"{_RESULTS}/"):
        return f"/benchmarks/{path.removeprefix(_RESULTS + '/')}"
    if path.startswith("docs/"):
        return path.removeprefix("docs")
    if not (docs.parent / path).exists():
        raise ValueError(f"a page has a link to {path}, which does not exist")
    if path.endswith(".py"):
        return f"/{module_page(path)}"
    return f"{source_link}/{path}"
