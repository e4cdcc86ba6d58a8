"""The compiled loops say what NumPy says, whatever the sizes, the order in memory and the processor."""

from __future__ import annotations

import itertools
import os
import pickle
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from sklearn.cluster import KMeans
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import whycluster as wc
from tests.core import driver
from tests.core.loops import BITS, COMPILED, LOADED, SANITIZED, limited
from tests.properties.strategies import Problem, problems, rough_problems
from whycluster.core.attribution import CodedQuery, attribute
from whycluster.core.compiled import loops
from whycluster.core.compiled.loops import Answer, CompiledKMeans, MemoryLayout
from whycluster.core.energies import SquaredEnergy
from whycluster.core.evidence import Assignment
from whycluster.core.rules import Prior, Sharing
from whycluster.data.table import ArrayTable

ROOT = Path(__file__).parents[2]
Array = NDArray[Any]


@pytest.fixture(autouse=True)
def _compiled(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """With WHYCLUSTER_COMPILED=0, these tests still are about the loops."""
    monkeypatch.delenv("WHYCLUSTER_COMPILED", raising=False)
    loops.library.cache_clear()
    yield
    monkeypatch.undo()
    loops.library.cache_clear()


def explain(problem: Problem, loops: str, **options: Any) -> wc.Explanation:
    with pytest.MonkeyPatch.context() as monkeypatch:
        limited(monkeypatch, loops)
        return wc.explain(problem.centroids, problem.X, **options)


def test_they_are_there_where_they_can_be() -> None:
    """Without this test, a build that fails would only be slow."""
    info = Path("/proc/cpuinfo").read_text() if COMPILED else ""
    if not COMPILED or not ("avx2" in info or BITS == ["128"]):
        pytest.skip("the loops are made on Linux, for aarch64 and for x86-64 with AVX2")
    assert LOADED is not None
    assert LOADED[1] == (128 if BITS == ["128"] else 512 if "avx512vl" in info else 256)
    assert isinstance(wc.neuralize([[0.0], [1.0]]).energy.loops, CompiledKMeans)


@pytest.mark.parametrize("bits", [*BITS, *SANITIZED])
@given(problem=problems(max_clusters=9, max_features=11))
def test_exact_ties_go_to_the_first(problem: Problem, bits: str) -> None:
    exp, expected = explain(problem, bits), explain(problem, "NumPy")
    assert exp.cluster.tolist() == expected.cluster.tolist()
    assert exp.competitor.tolist() == expected.competitor.tolist()
    assert exp.evidence.tolist() == expected.evidence.tolist()  # of eighths: nothing is rounded
    assert exp.relevance == pytest.approx(expected.relevance, rel=1e-9, abs=1e-12 * problem.scale)


@pytest.mark.parametrize("bits", [*BITS, *SANITIZED])
@given(problem=rough_problems(), beta=st.floats(-3, 3), single=st.booleans())
def test_all_else_is_rounding(problem: Problem, bits: str, beta: float, single: bool) -> None:
    problem = Problem(problem.X.astype(np.float32 if single else np.float64), problem.centroids)
    beta = 10.0**beta / problem.scale * len(problem.centroids)
    exp, expected = explain(problem, bits, beta=beta), explain(problem, "NumPy", beta=beta)
    assert exp.relevance.dtype == expected.relevance.dtype == problem.X.dtype
    assert exp.cluster.tolist() == expected.cluster.tolist()
    close, size = 1e-6 if single else 1e-9, np.abs(expected.relevance).max(axis=1)
    assert exp.evidence == pytest.approx(expected.evidence, rel=close, abs=1e-12 * problem.scale)
    promised = 1e-4 if single else close
    assert (
        np.abs(exp.relevance - expected.relevance).max(axis=1) <= promised * size + close * size.max()
    ).all()


QUERIES: list[dict[str, Any]] = [
    {"rule": rule, **chosen}
    for rule in ("path", "min-take-most", "joint", "contrast")
    for chosen in ({}, {"target": 1}, {"target": "each"})
] + [{"against": 0}, {"against": "each"}, {"target": 1, "against": 0}]


@pytest.mark.parametrize("bits", [*BITS, *SANITIZED])
@pytest.mark.parametrize("query", QUERIES, ids=str)
def test_every_query_is_answered_as_by_numpy(query: dict[str, Any], bits: str) -> None:
    """Relevance and competition, also where the row is not in the target, and at ties."""
    rng = np.random.default_rng(0)
    for d, n_clusters in [(1, 2), *SIZES[1:]]:
        for dtype, n_rows in itertools.product((np.float64, np.float32), (1, 33, 70)):
            X, centroids = rng.integers(-9, 9, (n_rows, d)).astype(dtype), rng.normal(size=(n_clusters, d))
            centroids[0], centroids[1] = 0.0, 1.0
            each = rng.integers(n_clusters, size=n_rows)
            options = {name: each if value == "each" else value for name, value in query.items()}
            if n_rows == 1 and options.get("against") is not None:
                continue  # the row may be in that cluster, which is an error
            problem = Problem(X, centroids)
            exp, expected = explain(problem, bits, **options), explain(problem, "NumPy", **options)
            assert exp.cluster.tolist() == expected.cluster.tolist()
            assert exp.competitor.tolist() == expected.competitor.tolist()
            close = 1e-10 if dtype == np.float64 else 1e-6
            for name in ("evidence", "relevance"):
                found, wanted = getattr(exp, name), getattr(expected, name)
                assert found.dtype == wanted.dtype == dtype
                assert found == pytest.approx(wanted, rel=close, abs=close * float(np.abs(wanted).max()))
            with pytest.MonkeyPatch.context() as monkeypatch:
                limited(monkeypatch, bits)
                found = exp.competition
                limited(monkeypatch, "NumPy")
                wanted = expected.competition
            assert found == pytest.approx(wanted, rel=close, abs=close * float(np.abs(wanted).max()))


@pytest.mark.parametrize("bits", [*BITS, *SANITIZED])
@pytest.mark.parametrize("target", [None, 1, "each"])
def test_gradients_are_those_of_numpy(target: Any, bits: str) -> None:
    rng = np.random.default_rng(0)
    for (d, n_clusters), dtype in itertools.product(SIZES, (np.float64, np.float32)):
        X, network = rng.normal(size=(70, d)).astype(dtype), wc.neuralize(rng.normal(size=(n_clusters, d)))
        chosen = rng.integers(n_clusters, size=70) if target == "each" else target
        with pytest.MonkeyPatch.context() as monkeypatch:
            limited(monkeypatch, bits)
            found = network.gradient(X, chosen)
            limited(monkeypatch, "NumPy")
            assert found == pytest.approx(network.gradient(X, chosen), rel=1e-6, abs=1e-6)
            assert found.dtype == dtype


def laid_out(X: Array, how: str) -> Array:
    """The same numbers, otherwise in memory."""
    wide = np.zeros((2 * len(X), 3 * X.shape[1]), X.dtype)
    room = np.zeros(X.nbytes + 1, np.uint8)
    layouts: dict[str, Callable[[], Array]] = {
        "rows": lambda: np.ascontiguousarray(X),
        "columns": lambda: np.asfortranarray(X),
        "every other": lambda: wide[1::2, ::3],
        "backwards": lambda: wide[: len(X), : X.shape[1]][::-1, ::-1],
        "part of rows": lambda: wide[: len(X), 1 : X.shape[1] + 1],
        "between numbers": lambda: room[1:].view(X.dtype).reshape(X.shape),
        "packed": lambda: np.zeros(X.shape, [("x", X.dtype), ("y", "i2")])["x"],
    }
    found = layouts[how]()
    found[...] = X
    return found


LAYOUTS = ["rows", "columns", "every other", "backwards", "part of rows", "between numbers", "packed"]
SIZES = [(1, 2), (2, 3), (5, 4), (8, 5), (13, 9), (16, 8)]  # features and clusters


@pytest.mark.parametrize("bits", [*BITS, *SANITIZED])
@pytest.mark.parametrize("n_rows", [1, 7, 31, 32, 33, 100])
@pytest.mark.parametrize("how", LAYOUTS)
def test_rows_may_lie_in_any_order(how: str, n_rows: int, bits: str) -> None:
    rng = np.random.default_rng(n_rows)
    for d, n_clusters in SIZES:
        for dtype in (np.float64, np.float32):
            far = 100.0 * rng.integers(2)  # then the loops have to move the rows
            centroids = (far + rng.normal(size=(n_clusters, d))).astype(dtype).astype(np.float64)
            X = (far + rng.normal(size=(n_rows, d))).astype(dtype)
            problem = Problem(laid_out(X, how), centroids)
            exp, expected = (
                explain(problem, bits, beta=0.7),
                explain(Problem(X, centroids), "NumPy", beta=0.7),
            )
            assert (MemoryLayout.of(problem.X) is None) == (how in LAYOUTS[5:])
            assert exp.cluster.tolist() == expected.cluster.tolist()
            assert exp.competitor.tolist() == expected.competitor.tolist()
            close = 1e-9 if dtype == np.float64 else 1e-6
            assert exp.evidence == pytest.approx(expected.evidence, rel=close, abs=close)
            assert exp.relevance == pytest.approx(expected.relevance, rel=close, abs=close)


@pytest.mark.parametrize("bits", BITS[1:])
@pytest.mark.parametrize("how", LAYOUTS[:5])
def test_processors_agree(how: str, bits: str) -> None:
    """Energies, assignment, evidence and relevance of aarch64 and of x86."""
    rng = np.random.default_rng(0)
    for (d, n_clusters), n_rows, dtype in itertools.product(SIZES, (1, 33), (np.float64, np.float32)):
        X, centroids = rng.normal(size=(n_rows, d)).astype(dtype), rng.normal(size=(n_clusters, d))
        expected, found = (results(centroids, laid_out(X, how), loops) for loops in (bits, "128"))
        for name, values in found.items():
            rtol = 1e-12 if values.dtype == np.float64 else 2e-7  # one bit of float32
            np.testing.assert_allclose(values, expected[name], rtol, atol=1e-12, err_msg=name)


def results(centroids: Array, X: Array, bits: str) -> dict[str, Array]:
    """All that the loops compute, each into rows and columns, float32 and float64."""
    n_rows, (n_clusters, d) = len(X), centroids.shape
    cluster, competitor = np.empty((2, n_rows), np.intp)
    assignment, found = Assignment(cluster, competitor, np.empty(n_rows)), {}
    prior = Prior(np.log(np.arange(1.0, n_clusters + 1)), False)
    with pytest.MonkeyPatch.context() as monkeypatch:
        limited(monkeypatch, bits)
        energy, rows = SquaredEnergy(centroids), MemoryLayout.of(X)
        assert energy.loops is not None
        assert rows is not None
        for order in ("C", "F"):
            energies = np.empty((n_rows, n_clusters), order=order)
            assert energy.loops.energies(X, energies)
            found[f"energies {order}"] = energies
            for dtype in (np.float64, np.float32):
                for rule in ("path", "min-take-most", "joint", "contrast"):
                    out = np.empty((n_rows, d), dtype, order=order)
                    sharing = Sharing(rule, 0.7, prior)
                    assert energy.loops.run(rows, 0, assignment, 0, Answer.RELEVANCE, sharing, out)
                    found[f"relevance {rule} {order} {out.dtype}"] = out
    return {**found, **assignment._asdict()}


@pytest.mark.parametrize("apart", [False, True])
@pytest.mark.parametrize("bits", [*BITS, *SANITIZED])
@pytest.mark.parametrize("n_rows", [1, 31, 32, 33, 100])
def test_nothing_is_written_beside_the_results(
    monkeypatch: pytest.MonkeyPatch, n_rows: int, bits: str, apart: bool
) -> None:
    """Into all orders, from some row on, of a table and of columns that lie apart."""
    limited(monkeypatch, bits)
    rng = np.random.default_rng(n_rows)
    inner = slice(1, -1)
    for d, n_clusters in SIZES:
        energy, X = SquaredEnergy(rng.normal(size=(n_clusters, d))), rng.normal(size=(n_rows + 5, d))
        rows = MemoryLayout.of_columns([column.copy() for column in X.T]) if apart else MemoryLayout.of(X)
        expected = explain(Problem(X[4:-1], energy.prototypes), "NumPy", beta=0.7, rule="min-take-most")
        assert energy.loops is not None
        assert rows is not None
        for dtype, order in itertools.product((np.float64, np.float32), "CF"):
            around = np.full((n_rows + 2, d + 2), 7.0, dtype, order=order)  # type: ignore[call-overload]
            codes, evidence = np.full((2, n_rows + 2), -1), np.full(n_rows + 2, -1.0)
            cluster, competitor, out = codes[0, inner], codes[1, inner], around[inner, inner]
            found = Assignment(cluster, competitor, evidence[inner])
            sharing = Sharing("min-take-most", 0.7)
            assert energy.loops.run(rows, 4, found, 0, Answer.RELEVANCE, sharing, out)
            assert cluster.tolist() == expected.cluster.tolist()
            assert competitor.tolist() == expected.competitor.tolist()
            assert evidence[inner] == pytest.approx(expected.evidence)
            assert out == pytest.approx(expected.relevance, rel=1e-6, abs=1e-6)
            out[...] = 7.0
            assert (around == 7.0).all()
            assert (codes[:, [0, -1]] == -1).all()
            assert (evidence[[0, -1]] == -1.0).all()


FLAWS = {  # what a sanitizer says of a flaw, and how it gets into the source
    "use-after-poison": (
        "i < rows; i++) {\n            block->cluster",
        "i <= rows; i++) {\n            block->cluster",
    ),
    "-byte region": ("2 * (model->K + 3)", "2 * (model->K)"),
    "out of bounds": ("c < 2; c++)\n                for (int v", "c < 3; c++)\n                for (int v"),
}


@pytest.mark.slow
@pytest.mark.parametrize("flaw", FLAWS)
def test_sanitizers_find_a_flaw(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, flaw: str) -> None:
    """Beside an array, beside the work space, and in undefined behavior."""
    if not COMPILED:
        pytest.skip("loops are compiled on Linux on x86-64 and aarch64 only")
    process = driver.with_flaw(tmp_path, *FLAWS[flaw])
    monkeypatch.setattr(loops, "library", lambda: (process, int(BITS[-1])))
    with pytest.raises(AssertionError, match=flaw):
        wc.explain(np.eye(3), np.eye(3))


def test_columns_of_several_kinds_are_not_read_as_one() -> None:
    column = np.arange(6.0)
    assert MemoryLayout.of_columns([column, column.astype(np.float32)]) is None
    assert MemoryLayout.of_columns([column[::2], column[:3]]) is None
    assert MemoryLayout.of_columns([np.arange(3), np.arange(3)]) is None
    assert MemoryLayout.of(column.astype(">f8").reshape(3, 2)) is None
    assert MemoryLayout.of(column.astype(np.float16).reshape(3, 2)) is None


@pytest.mark.parametrize("bits", [*BITS, *SANITIZED])
@pytest.mark.parametrize("flaw", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("row", [0, 31, 32, 69])
def test_what_is_not_finite_is_found_wherever_it_stands(row: int, flaw: float, bits: str) -> None:
    X = np.random.default_rng(0).normal(size=(70, 5))
    centroids = X[40:44].copy()
    X[row, 3] = flaw
    with pytest.raises(wc.InvalidInputError, match=f"row {row}, feature 'x3'"):
        explain(Problem(X, centroids), bits)


@pytest.mark.parametrize("loops", ["NumPy", *BITS, *SANITIZED])
@pytest.mark.parametrize("beta", ["auto", 1e-300])
def test_evidence_that_overflows_though_energies_do_not(loops: str, beta: Any) -> None:
    problem = Problem(np.array([[5e153], [1e150]]), np.array([[-9e153], [9e153]]))
    with pytest.raises(wc.InvalidInputError, match="too large to be squared"):
        explain(problem, loops, beta=beta)


@pytest.mark.parametrize("bits", [*BITS, *SANITIZED])
@pytest.mark.parametrize("rule", ["path", "min-take-most", "joint"])
@pytest.mark.parametrize("beta", [1e-300, 1e300, np.inf])
def test_however_stiff_or_soft(monkeypatch: pytest.MonkeyPatch, beta: float, rule: str, bits: str) -> None:
    rng = np.random.default_rng(0)
    centroids, X = rng.normal(size=(6, 3)), rng.normal(size=(40, 3))
    limited(monkeypatch, "NumPy")
    query = CodedQuery(rule=rule, beta=beta)
    expected = attribute(SquaredEnergy(centroids), ArrayTable.of(X), query)
    limited(monkeypatch, bits)
    found = attribute(SquaredEnergy(centroids), ArrayTable.of(X), query)
    assert found.relevance == pytest.approx(expected.relevance, rel=1e-12)


@pytest.mark.usefixtures("two_threads")
@pytest.mark.parametrize("n_rows", [5, 40])
def test_rows_as_wide_as_the_loops_take_and_wider(n_rows: int) -> None:
    """A block has fewer rows than a tile then."""
    rng = np.random.default_rng(0)
    for d in (4001, 8192, 9001):
        problem = Problem(rng.normal(size=(n_rows, d)), rng.normal(size=(3, d)))
        assert (SquaredEnergy(problem.centroids).loops is None) == (d > 8192 or LOADED is None)
        exp, expected = explain(problem, "256"), explain(problem, "NumPy")
        np.testing.assert_allclose(exp.relevance, expected.relevance, rtol=5e-10, atol=5e-10)


@pytest.mark.parametrize("n_clusters", [8192, 8193])
def test_as_many_clusters_as_the_loops_take_and_more(n_clusters: int) -> None:
    rng = np.random.default_rng(0)
    problem = Problem(rng.normal(size=(40, 3)), rng.normal(size=(n_clusters, 3)))
    assert (SquaredEnergy(problem.centroids).loops is None) == (n_clusters > 8192 or LOADED is None)
    exp, expected = explain(problem, "256"), explain(problem, "NumPy")
    assert exp.relevance == pytest.approx(expected.relevance, rel=1e-9, abs=1e-9)


def test_a_network_goes_by_what_there_is_where_it_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    """It may have been used, and then sent, from a machine that has what this one has not."""
    X = np.random.default_rng(0).normal(size=(50, 4))
    network = wc.neuralize(X[:3])
    expected = network.explain(X)
    sent = pickle.dumps(network)
    for registers in ("NumPy", "256"):
        limited(monkeypatch, registers)
        network = pickle.loads(sent)
        assert (network.energy.loops is None) == (registers == "NumPy")
        assert network.explain(X).relevance == pytest.approx(expected.relevance)


@pytest.mark.parametrize(("value", "off"), [("0", True), ("1", False), ("", False)])
def test_a_variable_turns_them_off(monkeypatch: pytest.MonkeyPatch, value: str, off: bool) -> None:
    monkeypatch.setenv("WHYCLUSTER_COMPILED", value)
    assert (loops.library() is None) == (off or LOADED is None)
    assert (SquaredEnergy(np.eye(3)).loops is None) == (off or LOADED is None)


@pytest.mark.parametrize("code", ["int layout(void) { return 0; }", "int other;", None])
def test_a_library_that_does_not_fit_is_not_used(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, code: str | None
) -> None:
    """Of an earlier version, or of something else; or not even a library."""
    path = tmp_path / "_kmeans.so"
    if code is None:
        path.write_text("nothing")
    elif COMPILED:
        (tmp_path / "x.c").write_text(code)
        subprocess.run(["cc", "-shared", "-fPIC", str(tmp_path / "x.c"), "-o", str(path)], check=True)
    monkeypatch.setattr(loops, "LIBRARY", path)
    assert loops.library.__wrapped__() is None


@pytest.mark.parametrize("loops", ["NumPy", *BITS, *SANITIZED])
@pytest.mark.parametrize("n_clusters", [5, 60])
def test_all_that_is_asked_of_a_network_agrees_on_who_wins(
    monkeypatch: pytest.MonkeyPatch, loops: str, n_clusters: int
) -> None:
    """Rows halfway between two centroids of one decimal: rounding decides, and it has to do so once."""
    limited(monkeypatch, loops)
    rng = np.random.default_rng(0)
    centroids = rng.normal(size=(n_clusters, 5)).round(1)
    first, second = rng.integers(n_clusters, size=(2, 400))
    X = (centroids[first] + centroids[second]) / 2
    network = wc.neuralize(centroids)
    cluster, evidence = network.assign(X), network.evidence(X)
    own = evidence[np.arange(400), cluster]
    assert (own >= 0).all()
    exp = network.explain(X)
    assert exp.cluster.tolist() == cluster.tolist()
    assert exp.evidence.tolist() == own.tolist()
    for other in (network.explain(X, rule="joint"), network.explain(X, target=cluster)):
        assert other.cluster.tolist() == cluster.tolist()
        assert other.evidence.tolist() == own.tolist()
    np.testing.assert_array_equal(network.gradient(X), network.gradient(X, target=cluster))


def test_clusters_without_weight_are_left_out_and_that_is_not_seen() -> None:
    """Of 300 clusters, most are so far from each row that their weight is less than 1e-30."""
    rng = np.random.default_rng(0)
    centroids = rng.normal(size=(300, 4)) * 30
    problem = Problem(centroids[rng.integers(300, size=500)] + rng.normal(size=(500, 4)), centroids)
    exp, expected = explain(problem, "256"), explain(problem, "NumPy")
    assert exp.relevance == pytest.approx(expected.relevance, rel=1e-9, abs=1e-9)
    assert np.abs(exp.residual).max() <= 1e-12 * exp.evidence.max()


def test_pipelines_that_scale_go_by_them(wine: Array) -> None:
    raw = 100.0 + wine * np.arange(1.0, 14.0)
    model = make_pipeline(StandardScaler(), KMeans(4, n_init=2, random_state=0)).fit(raw)
    assert (wc.neuralize(model).energy.loops is None) == (LOADED is None)
    exp = wc.explain(model, raw)
    with pytest.MonkeyPatch.context() as monkeypatch:
        limited(monkeypatch, "NumPy")
        assert exp.relevance == pytest.approx(wc.explain(model, raw).relevance)


def test_a_class_of_ones_own_does_not_go_by_them() -> None:
    class Other(SquaredEnergy):
        pass

    assert Other(np.eye(3)).loops is None


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What a wheel is built of, so that nothing is built beside the tests; with what others leave there."""
    folder = tmp_path_factory.mktemp("source")
    for name in ("pyproject.toml", "README.md", "LICENSE", "hatch_build.py"):
        shutil.copy(ROOT / name, folder)
    shutil.copytree(ROOT / "src", folder / "src", ignore=shutil.ignore_patterns("__pycache__", "_kmeans.so"))
    (folder / "src" / "whycluster" / "core" / "compiled" / ".build-other").mkdir()
    (folder / "src" / "whycluster" / "core" / "compiled" / ".build-other" / "_kmeans.so").write_text(
        "half of it"
    )
    return folder


def build_wheel(source: Path, folder: Path, **variables: str) -> tuple[str, dict[str, bytes]]:
    """Return the name of the wheel and what it contains."""
    here = ["--no-deps", "--no-build-isolation", "--wheel-dir", str(folder)]
    command = [sys.executable, "-m", "pip", "wheel", "--quiet", *here, str(source)]
    subprocess.run(command, env={**os.environ, **variables}, check=True, capture_output=True)
    (wheel,) = folder.glob("*.whl")
    with zipfile.ZipFile(wheel) as file:
        return wheel.name, {name: file.read(name) for name in file.namelist()}


@pytest.mark.slow
@pytest.mark.parametrize(("platform", "machine"), [("linux-aarch64", 183), ("macosx-11.0-arm64", None)])
def test_a_wheel_for_another_platform(
    source: Path, tmp_path: Path, platform: str, machine: int | None
) -> None:
    """The number of the machine is that of the ELF format; where the loops are not tested, it has none."""
    variables = {"CC": driver.COMPILER, "_PYTHON_HOST_PLATFORM": platform}
    name, contents = build_wheel(source, tmp_path, **variables)
    library = contents.get("whycluster/core/compiled/_kmeans.so")
    assert (library and int.from_bytes(library[18:20], "little")) == machine
    assert name.endswith("-py3-none-any.whl" if machine is None else "-py3-none-linux_aarch64.whl")


@pytest.mark.slow
@pytest.mark.parametrize("compiler", ["cc", "false", "there-is-none", 'cc "'])
def test_a_wheel_is_built_with_any_compiler_and_with_none(
    source: Path, tmp_path: Path, compiler: str
) -> None:
    name, names = build_wheel(source, tmp_path, CC=compiler)
    compiled = "whycluster/core/compiled/_kmeans.so" in names
    assert compiled == (compiler == "cc" and COMPILED)
    assert name.endswith("py3-none-any.whl") != compiled
    assert "whycluster/core/compiled/loops.py" in names
    assert "whycluster/report/page.html.j2" in names
    assert not any(name.endswith((".c", ".h")) for name in names)
    assert not any(".build-" in name for name in names)
    assert len(list((source / "src" / "whycluster" / "core" / "compiled").glob(".build-*"))) == 1
