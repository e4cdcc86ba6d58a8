"""The versions that the tests run with besides those of constraints.txt; see ``make test-matrix``.

``python tests/versions.py floors`` prints the oldest versions that pyproject.toml allows, as constraints for
pip. ``python tests/versions.py find 3.10 3.11`` prints the path of the first of these Pythons that is found.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from itertools import chain
from pathlib import Path
from typing import Any

_MINIMUM = re.compile(r"(?P<name>[\w.-]+)(\[[\w,]+\])?>=(?P<version>[\w.]+)")


def project() -> dict[str, Any]:
    """Return the section of pyproject.toml about the package."""
    if sys.version_info >= (3, 11):
        import tomllib
    else:
        from pip._vendor import tomli as tomllib
    text = Path(__file__).parents[1].joinpath("pyproject.toml").read_text("utf-8")
    return dict(tomllib.loads(text)["project"])


def floors() -> dict[str, str]:
    """Return the oldest allowed version of each library that the package or an extra requires."""
    extras = dict(project()["optional-dependencies"])
    del extras["all"]  # names other extras
    del extras["test"], extras["docs"]  # any version of the libraries that only tests and pages need will do
    found: dict[str, str] = {}
    for requirement in chain(project()["dependencies"], *extras.values()):
        match = _MINIMUM.fullmatch(requirement)
        if match is None or found.setdefault(match["name"], match["version"]) != match["version"]:
            raise SystemExit(
                f"{requirement} in pyproject.toml must be name>=version, the same in all extras."
            )
    return found


def find(versions: list[str]) -> str:
    """Return the path of the first Python that is found, in pyenv's folder or on the PATH."""
    for version in versions:
        for path in _candidates(version):
            if _is(path, version):
                return path
        print(f"Python {version} was not found, neither in pyenv's folder nor on the PATH.", file=sys.stderr)
    raise SystemExit(f"Install one of them, for example with: pyenv install {versions[0]}")


def _candidates(version: str) -> list[str]:
    root = Path(os.environ.get("PYENV_ROOT") or Path.home() / ".pyenv")
    in_pyenv = sorted(root.glob(f"versions/{version}.*/bin/python"))
    return [*map(str, in_pyenv), *filter(None, [shutil.which(f"python{version}")])]


def _is(path: str, version: str) -> bool:
    """Return whether a Python runs and has this version; pyenv's shims need not."""
    command = [path, "-c", "import sys; print('%d.%d' % sys.version_info[:2])"]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    return result.stdout.strip() == version


if __name__ == "__main__":
    if sys.argv[1] == "floors":
        print("\n".join(f"{name}=={version}" for name, version in sorted(floors().items())))
    else:
        print(find(sys.argv[2:]))
