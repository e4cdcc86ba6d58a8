"""The main ways in, with every version of Python and of the libraries; see ``make test-matrix``.

`make test` runs these tests with the newest libraries for Python 3.10 and with the oldest ones allowed too.
"""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from numpy.testing import assert_allclose
from sklearn.cluster import KMeans
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import whycluster as wc
from tests.optional import optional
from tests.reference import counterfactual as reference
from tests.versions import find, floors, project
from whycluster import cli
from whycluster.explanations.counterfactuals.half_spaces import least_step

if TYPE_CHECKING:
    import pandas as pd
    import polars as pl
    import pyarrow.parquet as pq

    from whycluster.cli import reading
else:
    pd = optional("pandas")
    pl = optional("polars")
    pq = optional("pyarrow.parquet")
    reading = optional("whycluster.cli.reading", requires="polars")

KINDS = ["red", "green", None]


def columns() -> dict[str, Any]:
    x = np.random.default_rng(0).normal(size=(60, 2)) + 8 * (np.arange(60) % 3)[:, None]
    return {"a": x[:, 0].tolist(), "kind": [KINDS[i % 3] for i in range(60)], "b": x[:, 1].tolist()}


def numbers() -> Any:
    return pd.DataFrame(columns())[["a", "b"]]


@pytest.mark.parametrize("suffix", ["csv", "parquet"])
def test_the_command_explains_a_file(suffix: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path, out = tmp_path / f"t.{suffix}", tmp_path / f"out.{suffix}"
    frame = pl.DataFrame(columns())
    frame.write_csv(path) if suffix == "csv" else frame.write_parquet(path)
    assert cli.main(["explain", str(path), "--k", "3", "--out", str(out)]) == 0, capsys.readouterr()
    assert "\n60 rows, 3 columns; k-means with 3 clusters" in capsys.readouterr().out
    found = pl.read_csv(out) if suffix == "csv" else pl.read_parquet(out)
    expected = wc.explain(wc.tabular.pipeline(frame, 3), frame)
    assert found["cluster"].to_list() == expected.cluster.tolist()
    assert_allclose(found["evidence"].to_numpy(), expected.evidence, rtol=1e-6)


def test_nul_in_a_csv_file_is_text_or_an_error(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_bytes('a,b\n1,"x\0"\n2,y\n'.encode("utf-16"))
    file = reading.TableFile(path, encoding="utf-16")
    if sys.version_info >= (3, 11):
        assert reading.read(file)["b"].to_list() == ["x\0", "y"]
        return
    message = (
        f"{path}: line 2 contains a NUL character, which Python 3.10 cannot read in CSV files. Remove it, or "
        "use Python 3.11 or later."
    )
    with pytest.raises(wc.InvalidInputError, match=f"^{re.escape(message)}$"):
        reading.read(file)


def test_the_smallest_step_into_a_cluster_does_not_depend_on_scipy() -> None:
    """SciPy 1.15 alone solves this problem wrong."""
    g = np.array(
        [[-0.505246, 0.705018, 0.49767], [0.302246, 0.654389, 0.693125], [-0.391634, 0.068318, 0.917581]]
    )
    g = np.vstack([g, [1.0, 0.0, 0.0], [0.0, 1.0, 0.0], [0.0, 0.0, -1.0]])
    need = np.array([1.0, 0.270906, 0.948797, -0.527616, 0.533301, -0.743398])
    step, expected = least_step(g, need), reference.least_change(g, -need)
    assert step is not None
    assert expected is not None
    assert (g @ step >= need - 1e-9).all()
    assert_allclose(step, expected, atol=1e-9)


def test_pandas_and_polars_frames_are_explained_alike() -> None:
    in_pandas, in_polars = pd.DataFrame(columns()), pl.DataFrame(columns())
    found = [wc.explain(wc.tabular.pipeline(frame, 3), frame) for frame in (in_pandas, in_polars)]
    assert found[0].feature_names == found[1].feature_names == ["a", "kind", "b"]
    assert_allclose(found[0].relevance, found[1].relevance, rtol=1e-9)


@pytest.mark.parametrize("library", ["pandas", "polars"])
def test_columns_are_matched_by_name(library: str) -> None:
    make = pd.DataFrame if library == "pandas" else pl.DataFrame
    frame = make(columns())
    model = wc.tabular.pipeline(frame, 3)
    exp, other = wc.explain(model, frame), wc.explain(model, frame[["b", "kind", "a"]])
    assert other.feature_names == model.feature_names_in_.tolist() == ["a", "kind", "b"]
    assert (other.relevance == exp.relevance).all()
    with pytest.raises(wc.InvalidInputError, match=r"missing: \['a'\]"):
        wc.explain(model, frame[["b", "kind"]])


def test_a_pipeline_fitted_on_pandas_explains_polars() -> None:
    rows = numbers()
    model = make_pipeline(StandardScaler(), KMeans(3, n_init=1, random_state=0)).fit(rows)
    expected, found = wc.explain(model, rows), wc.explain(model, pl.DataFrame(columns())[["a", "b"]])
    assert_allclose(found.relevance, expected.relevance, rtol=1e-9)


def test_a_folder_is_explained(tmp_path: Path) -> None:
    rows, folder = numbers(), tmp_path / "in"
    folder.mkdir()
    rows[:40].to_parquet(folder / "0.parquet")
    rows[40:].to_parquet(folder / "1.parquet")
    model = KMeans(3, n_init=1, random_state=0).fit(rows)
    found = wc.explain_dataset(model, folder, tmp_path / "out")
    evidence = np.concatenate([pq.read_table(part)["evidence"].to_numpy() for part in found.parts])
    assert_allclose(evidence, wc.explain(model, rows).evidence, rtol=1e-5)


def test_saved_and_reported(tmp_path: Path) -> None:
    rows = numbers()
    exp = wc.explain(KMeans(3, n_init=1, random_state=0).fit(rows), rows)
    wc.save(exp, tmp_path / "exp.wc")
    assert (wc.load(tmp_path / "exp.wc").relevance == exp.relevance).all()
    exp.report(tmp_path / "report.html")
    assert "<html" in (tmp_path / "report.html").read_text(encoding="utf-8")


@pytest.mark.filterwarnings("ignore:Setuptools is replacing distutils")  # on importing pip, on Python 3.10
def test_every_library_has_a_minimum() -> None:
    found = floors()
    assert {"numpy", "scikit-learn", "narwhals", "polars", "pyarrow", "safetensors", "torch"} <= set(found)
    assert "pytest" not in found


@pytest.mark.filterwarnings("ignore:Setuptools is replacing distutils")
def test_the_minimum_of_every_library_is_tested() -> None:
    """`make test-matrix` tests the oldest versions of all extras, except for those that only we use."""
    root = Path(__file__).parents[1]
    kinds = re.findall(r"^(test-floors-\w+):", (root / "Makefile").read_text("utf-8"), re.MULTILINE)
    (line,) = re.findall(r"^OLDEST_KINDS := (.*)", (root / "Makefile").read_text("utf-8"), re.MULTILINE)
    assert kinds == [f"test-floors-{kind}" for kind in line.split()]
    command = ["make", "--dry-run", *kinds]
    printed = subprocess.run(command, cwd=root, capture_output=True, text=True, check=True).stdout
    tested = {name for found in re.findall(r"'\.\[(.*?)\]'", printed) for name in found.split(",")}
    assert tested == set(project()["optional-dependencies"]) - {"all", "bench", "docs", "test"}


@pytest.mark.filterwarnings("ignore:Setuptools is replacing distutils")
def test_all_has_every_extra_that_can_be_installed_side_by_side() -> None:
    extras = project()["optional-dependencies"]
    (all_,) = extras["all"]
    named = re.fullmatch(r"whycluster\[(.*)\]", all_)
    assert named is not None
    assert set(named[1].split(",")) == set(extras) - {"all", "bench", "bio", "docs", "spark", "test"}


# The oldest versions that were released in the two years before November 2026.
SPEC_0 = {"numpy": "2.2", "scipy": "1.15", "scikit-learn": "1.6", "pandas": "2.3", "matplotlib": "3.10"}


@pytest.mark.filterwarnings("ignore:Setuptools is replacing distutils")
@pytest.mark.parametrize("name", SPEC_0)
def test_no_minimum_is_newer_than_spec_0_asks_for(name: str) -> None:
    assert numbers_of(floors()[name]) <= numbers_of(SPEC_0[name])


def numbers_of(version: str) -> list[int]:
    return [int(number) for number in version.split(".")]


@pytest.mark.filterwarnings("ignore:Setuptools is replacing distutils")
def test_the_pythons_are_the_same_everywhere() -> None:
    root = Path(__file__).parents[1]
    found = re.findall(r"Python :: (3\.\d+)", " ".join(project()["classifiers"]))
    (matrix,) = re.findall(r"^MATRIX := (.*)", (root / "Makefile").read_text("utf-8"), re.MULTILINE)
    assert matrix.split() == found
    assert project()["requires-python"] == f">={found[0]}"
    page = " ".join((root / "docs" / "start" / "install.md").read_text("utf-8").split())
    assert f"Python {found[0]} to {found[-1]}" in page
    for name in ("numpy", "scipy", "scikit-learn"):
        assert f" {SPEC_0[name]}" in page


def test_a_python_that_is_not_there_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match=r"^Install one of them, for example with: pyenv install 3\.0$"):
        find(["3.0"])
    assert capsys.readouterr().err == (
        "Python 3.0 was not found, neither in pyenv's folder nor on the PATH.\n"
    )
