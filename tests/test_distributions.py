"""The distributions, built as `make release` does: the wheel from the source distribution."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest

pytest.importorskip("hatchling", reason="hatchling is not installed")

from tests.distributions import problems_of_source, problems_of_wheel

ROOT = Path(__file__).parents[1]

pytestmark = pytest.mark.slow


def build(source: Path, folder: Path, kind: str, **variables: str) -> Path:
    command = [sys.executable, "-m", "hatchling", "build", "--target", kind, "--directory", str(folder)]
    environ = {**os.environ, **variables}
    subprocess.run(command, cwd=source, env=environ, check=True, capture_output=True)
    (built,) = folder.iterdir()
    return built


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build(ROOT, tmp_path_factory.mktemp("source"), "sdist")


@pytest.fixture(scope="module")
def unpacked(source: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("unpacked")
    with tarfile.open(source) as file:
        file.extractall(folder, filter="data")
    return folder / source.name.removesuffix(".tar.gz")


def test_the_source_distribution_is_complete(source: Path) -> None:
    assert list(problems_of_source(source)) == []


@pytest.fixture(scope="module")
def wheel(unpacked: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A wheel built without a compiler, so it has no loops and suits every platform."""
    return build(unpacked, tmp_path_factory.mktemp("wheel"), "wheel", CC="false")


def test_the_wheel_has_what_an_index_needs(wheel: Path) -> None:
    assert wheel.name.endswith("-py3-none-any.whl")
    assert list(problems_of_wheel(wheel)) == []


@pytest.mark.parametrize("tag", ["linux_x86_64", "manylinux2014_x86_64.manylinux_2_17_x86_64"])
def test_the_tag_of_a_wheel_is_checked(tag: str, wheel: Path, tmp_path: Path) -> None:
    other = tmp_path / wheel.name.replace("any.whl", f"{tag}.whl")
    shutil.copy(wheel, other)
    refused = [f"{other.name}: the tag is not one of manylinux"] * tag.startswith("linux")
    assert list(problems_of_wheel(other)) == [
        *refused,
        f"{other.name}: the tag does not agree with the compiled loops",
    ]


def test_the_links_are_in_one_place() -> None:
    """The owner fills them in once, in pyproject.toml."""
    tracked = [
        path for kind in ("*.*", "docs/**/*.md", "src/**/*.py", ".github/**/*.md") for path in ROOT.glob(kind)
    ]
    naming = [path for path in tracked if path.is_file() and b"example.org/whycluster" in path.read_bytes()]
    assert [path.relative_to(ROOT).as_posix() for path in naming] == ["pyproject.toml"]
