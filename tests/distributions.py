"""Check the wheel and the source distribution: ``python tests/distributions.py dist``, in `make release`."""

from __future__ import annotations

import json
import re
import sys
import tarfile
import zipfile
from collections.abc import Collection, Iterator
from email import message_from_string
from email.message import Message
from pathlib import Path

NEEDED = ("py.typed", "explanations/exchange/schema-1.json", "cli/__init__.py")
SOURCES = (
    "LICENSE",
    "README.md",
    "hatch_build.py",
    "pyproject.toml",
    "tests/distributions.py",
    "docs/index.md",
)
TAG = r"py3-none-(manylinux2014_\w+\.manylinux_2_17_\w+|any)"  # an index refuses linux_x86_64


def problems_of_wheel(path: Path) -> Iterator[str]:
    """Yield what an index or a packager would object to."""
    name, version, tag = path.stem.split("-", 2)
    if not re.fullmatch(TAG, tag):
        yield f"{path.name}: the tag is not one of manylinux"
    with zipfile.ZipFile(path) as file:
        names = set(file.namelist())
        info = f"{name}-{version}.dist-info"
        about = message_from_string(file.read(f"{info}/METADATA").decode())
        bill = json.loads(file.read(f"{info}/sboms/{name}.cdx.json"))
    yield from problems_of_metadata(about)
    yield from problems_of_bill(bill, about)
    yield from (f"{path.name}: {each} is missing" for each in missing(names, f"{name}/", NEEDED))
    yield from (
        f"{path.name}: has no use for {each}" for each in sorted(names) if each.endswith((".c", ".h"))
    )
    if f"{info}/licenses/LICENSE" not in names:
        yield f"{path.name}: the license is missing"
    has_loops = f"{name}/core/compiled/_kmeans.so" in names
    if has_loops == tag.endswith("-any"):
        yield f"{path.name}: the tag does not agree with the compiled loops"


def problems_of_metadata(about: Message) -> Iterator[str]:
    """Yield what is missing or out of date: the license as in PEP 639, links, extras."""
    if about["License-Expression"] != "MIT" or about["License"] is not None:
        yield "the license is not given as in PEP 639"
    if any(each.startswith("License ::") for each in about.get_all("Classifier", [])):
        yield "a classifier names the license, which PEP 639 forbids beside an expression"
    if about["Description-Content-Type"] != "text/markdown":
        yield "the description is not Markdown"
    if not {"Source", "Documentation"} <= {each.split(",")[0] for each in about.get_all("Project-URL", [])}:
        yield "the links are missing"
    if "all" not in about.get_all("Provides-Extra", []):
        yield "the extra all is missing"


def problems_of_bill(bill: dict[str, object], about: Message) -> Iterator[str]:
    """Yield where the bill of materials (PEP 770) does not agree with the metadata."""
    required = [each for each in about.get_all("Requires-Dist", []) if "extra ==" not in each]
    names = sorted(re.split(r"[^\w.-]", each)[0] for each in required)
    components = bill.get("components")
    assert isinstance(components, list)
    if bill.get("bomFormat") != "CycloneDX" or sorted(each["name"] for each in components) != names:
        yield f"the bill of materials does not list {names}"
    metadata = bill.get("metadata")
    assert isinstance(metadata, dict)
    if metadata["component"]["version"] != about["Version"]:
        yield "the bill of materials has another version"


def problems_of_source(path: Path) -> Iterator[str]:
    """Yield what a packager needs and does not find, and what should not be there."""
    folder = path.name.removesuffix(".tar.gz")
    with tarfile.open(path) as file:
        names = set(file.getnames())
        about = file.extractfile(f"{folder}/PKG-INFO")
        assert about is not None
        yield from problems_of_metadata(message_from_string(about.read().decode()))
    loops = (f"src/whycluster/core/compiled/{each}" for each in ("kmeans.c", "sequential.c", "kmeans_tile.h"))
    yield from (
        f"{path.name}: {each} is missing" for each in missing(names, f"{folder}/", [*SOURCES, *loops])
    )
    built = re.compile(r"\.so$|/docs/(_build|benchmarks|project)/|/__pycache__/")
    yield from (f"{path.name}: {each} was built" for each in sorted(names) if built.search(each))


def missing(names: set[str], folder: str, wanted: Collection[str]) -> list[str]:
    """Return the wanted files that are not in a folder."""
    return [each for each in wanted if folder + each not in names]


def main(folder: Path) -> None:
    """Check the one wheel and the one source distribution in a folder."""
    (wheel,), (source,) = folder.glob("*.whl"), folder.glob("*.tar.gz")
    found = [*problems_of_wheel(wheel), *problems_of_source(source)]
    if found:
        raise SystemExit("\n".join(found))
    print(f"{wheel.name} and {source.name} have what an index and a packager need.")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
