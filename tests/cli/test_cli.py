"""The command, run as a process or in this process."""

from __future__ import annotations

import json
import os
import pty
import re
import signal
import subprocess
import sys
import time
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

import whycluster
import whycluster as wc
from tests.golden import read_golden
from tests.golden.tables import write_passengers, write_wine
from whycluster import cli
from whycluster.cli.reading import TableFile, read
from whycluster.core.errors import WhyClusterError
from whycluster.data import progress

CLICK = tuple(map(int, version("click").split(".")[:2]))
UNKNOWN = " '--xyzzy'." if CLICK >= (8, 4) else ": --xyzzy"  # part of click's message


def run(*arguments: Any, cwd: Path | None = None, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "whycluster", *map(str, arguments)],
        capture_output=True,
        text=True,
        check=False,
        cwd=cwd,
        env={**os.environ, **environment},
    )


@pytest.fixture(scope="module")
def wine(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_wine(tmp_path_factory.mktemp("wine"))


@pytest.fixture(scope="module")
def passengers(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_passengers(tmp_path_factory.mktemp("passengers"))


def invoke(capsys: pytest.CaptureFixture[str], *arguments: Any) -> tuple[int, str, str]:
    """Run the command in this process, which is faster, and return its exit code, stdout and stderr."""
    code = cli.main([str(argument) for argument in arguments])
    captured = capsys.readouterr()
    return code, captured.out, captured.err


@pytest.mark.slow
def test_demo_shows_what_defines_each_cluster_and_three_rows() -> None:
    result = run("demo")
    assert result.returncode == 0, result.stderr
    assert result.stderr == ""
    assert result.stdout == read_golden("demo")
    assert result.stdout.isascii()


def test_the_installed_command_is_the_module() -> None:
    command = Path(sys.executable).with_name("whycluster")
    result = subprocess.run([command, "--version"], capture_output=True, text=True, check=True)
    assert result.stdout == run("--version").stdout == f"whycluster {whycluster.__version__}\n"


def test_without_a_command_it_shows_the_help() -> None:
    result = run()
    assert result.returncode == 2
    expected = read_golden("help")
    if CLICK < (8, 5):
        expected = expected.replace("[OPTIONS] [COMMAND]", "[OPTIONS] COMMAND")
    assert result.stdout == run("--help").stdout == expected


@pytest.mark.parametrize(
    "command",
    [
        "explain",
        "report",
        "row",
        "compare",
        "rules",
        "evaluate",
        "fit",
        "show",
        "changes",
        "verify",
        "demo",
        "models",
    ],
)
def test_every_command_has_help(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = invoke(capsys, command, "--help")
    assert (code, err) == (0, "")
    assert out == read_golden(f"help_{command}")


def test_the_help_imports_no_library() -> None:
    code = (
        "import sys; from whycluster import cli; cli.main(['explain', '--help']); print(sorted(sys.modules))"
    )
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    for name in ("'numpy'", "'polars'", "'sklearn'", "'rich'", "'jinja2'", "'scipy'"):
        assert name not in loaded


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["explode"], "No such command 'explode'. See whycluster --help."),
        (["explain"], "Missing argument 'FILE'. See whycluster explain --help."),
        (["explain", "t.csv", "--xyzzy"], f"No such option{UNKNOWN} See whycluster explain --help."),
        (["explain", "t.csv", "--k", "many"], "'many' is neither an integer nor auto."),
        (
            ["explain", "t.csv", "--k", "3", "--labels", "a"],
            "--k and --labels cannot be combined: --k creates new clusters, whereas --labels uses existing "
            "clusters. ",
        ),
        (["row", "t.csv"], "Missing option '--id'. See whycluster row --help."),
    ],
)
def test_mistakes_in_the_options_are_one_line(
    arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    code, out, err = invoke(capsys, *arguments)
    assert (code, out) == (2, "")
    assert err.startswith("whycluster: ")
    assert message in err
    assert err.count("\n") == 1


def test_an_error_is_one_line_and_exit_code_2(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail() -> str:
        raise WhyClusterError("explain: something\nis wrong.")

    monkeypatch.setattr("whycluster.cli.demo.demo", fail)
    assert invoke(capsys, "demo") == (2, "", "whycluster: explain: something is wrong.\n")
    with pytest.raises(WhyClusterError):
        cli.main(["--debug", "demo"])


def test_an_unexpected_error_is_exit_code_1(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("whycluster.cli.demo.demo", lambda: 1 / 0)
    code, _, err = invoke(capsys, "demo")
    assert code == 1
    assert err.startswith(
        "whycluster: unexpected ZeroDivisionError: division by zero (run whycluster --debug"
    )


@pytest.mark.slow
def test_explain_describes_the_clusters(wine: Path) -> None:
    result = run("explain", wine, "--k", 3, "--ignore", "kind")
    assert result.returncode == 0, result.stderr
    assert result.stdout == read_golden("cli_explain")
    assert result.stderr == (
        "whycluster: left out: wine_id (like an identifier, whole numbers in a column with such a name)\n"
        "whycluster: rows are identified by 'wine_id'\n"
    )


def test_explain_takes_existing_labels(passengers: Path, capsys: pytest.CaptureFixture[str]) -> None:
    printed = invoke(capsys, "explain", passengers, "--labels", "group", "--quiet")
    assert printed == (0, read_golden("cli_labels"), "")


def test_explain_chooses_the_number_of_clusters(passengers: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = invoke(capsys, "explain", passengers, "--ignore", "group")
    assert (code, out) == (0, read_golden("cli_auto"))
    assert err == (
        "whycluster: left out: name (like an identifier, 60 of 60 values are distinct)\n"
        "whycluster: rows are identified by 'name'\n"
        "whycluster: read as dates: 'boarded'\n"
    )


@pytest.mark.parametrize("kind", ["parquet", "csv", "tsv", "arrow", "jsonl"])
def test_the_output_equals_the_result_of_the_library(
    wine: Path, kind: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / f"why.{kind}"
    code, out, _ = invoke(
        capsys, "explain", wine, "--k", 3, "--ignore", "kind", "--out", path, "--top", 2, "--quiet"
    )
    assert (code, out) == (0, "")
    found = read(TableFile(path))
    frame = pl.read_csv(wine).drop("wine_id", "kind")
    exp = wc.explain(wc.tabular.pipeline(frame, 3), frame)
    assert found.columns == [
        *["wine_id", "cluster", "evidence", "competitor"],
        *frame.columns,
        *["top_1", "top_2"],
    ]
    assert found["wine_id"].to_list() == list(range(1000, 1178))
    assert found["cluster"].to_list() == exp.cluster.tolist()
    assert found["competitor"].to_list() == exp.competitor.tolist()
    np.testing.assert_allclose(found["evidence"], exp.evidence, rtol=1e-12)
    np.testing.assert_allclose(found.select(frame.columns).to_numpy(), exp.relevance, rtol=1e-9, atol=1e-12)
    top = exp.top(2).feature
    assert found["top_1"].cast(pl.String).to_list() == top[:, 0].tolist()
    assert found["top_2"].cast(pl.String).to_list() == top[:, 1].tolist()


def test_columns_with_reserved_names_are_kept(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    values = np.random.default_rng(0).normal(size=(40, 3))
    names = ["cluster", "evidence", "row"]
    pl.DataFrame(values, schema=names).write_csv(tmp_path / "t.csv")
    out = tmp_path / "o.csv"
    assert invoke(capsys, "explain", tmp_path / "t.csv", "--k", 2, "--out", out, "--quiet")[0] == 0
    assert pl.read_csv(out).columns == [
        *["row_", "cluster_", "evidence_", "competitor"],
        *names,
        *["top_1", "top_2", "top_3"],
    ]


def test_target_and_against(wine: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    common = ("explain", wine, "--k", 3, "--ignore", "kind", "--quiet")
    code, _, err = invoke(capsys, *common, "--target", 2, "--against", 1, "--out", tmp_path / "o.csv")
    assert (code, err) == (0, "")
    found = pl.read_csv(tmp_path / "o.csv")
    assert set(found["cluster"]) == {2}
    assert set(found["competitor"]) == {1}
    code, _, err = invoke(capsys, *common, "--target", 7)
    assert (code, err) == (2, "whycluster: --target must be one of the clusters 0, 1, 2; got '7'.\n")


def test_quiet_is_for_the_one_command(wine: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for options in (("--quiet", "--k", 3), ("--k", 3.5, "--quiet"), ("--quiet", "--k", 3.5)):
        invoke(capsys, "explain", wine, *options)
        assert progress.shown


def test_explain_as_json(wine: Path, capsys: pytest.CaptureFixture[str]) -> None:
    _, out, _ = invoke(capsys, "explain", wine, "--k", 3, "--ignore", "kind", "--json", "--quiet")
    facts = json.loads(out)
    frame = pl.read_csv(wine).drop("wine_id", "kind")
    summary = wc.explain(wc.tabular.pipeline(frame, 3), frame).summary()
    assert facts["rows"] == 178
    assert facts["columns"] == frame.columns
    assert facts["left_out"] == {"wine_id": "like an identifier, whole numbers in a column with such a name"}
    assert facts["clustering"] == "k-means with 3 clusters"
    assert facts["warnings"] == []
    assert [cluster["rows"] for cluster in facts["clusters"]] == summary.size.tolist()
    first = facts["clusters"][0]["features"][0]
    assert first["feature"] == "alcohol"
    assert first["share"] == pytest.approx(float(summary.share[0].max()))
    assert first["direction"] == "lower"
    column = frame.columns.index("alcohol")
    labels = wc.explain(wc.tabular.pipeline(frame, 3), frame).cluster
    (other,) = first["against"]
    assert (other["cluster"], other["value"]) == (
        2,
        pytest.approx(frame["alcohol"].to_numpy()[labels == 2].mean()),
    )
    assert first["inside"] == pytest.approx(summary.inside[0, column])
    assert first["inside"] < other["value"]
    assert (facts["out"], facts["report"]) == (None, None)


def test_row_explains_one_row(wine: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = invoke(capsys, "row", wine, "--id", 1003, "--k", 3, "--ignore", "kind")
    assert (code, out) == (0, read_golden("cli_row"))
    frame = pl.read_csv(wine).drop("wine_id", "kind")
    exp = wc.explain(wc.tabular.pipeline(frame, 3), frame)
    assert out.split("\n", 1)[1].strip() == exp.describe(3, 10).split("\n", 1)[1]


def test_row_asks_why_not_another_cluster(wine: Path, capsys: pytest.CaptureFixture[str]) -> None:
    common = ("row", wine, "--id", 1003, "--k", 3, "--ignore", "kind", "--quiet")
    assert (
        "Row 1003 (position 3) is in cluster 2, not in 1: evidence -"
        in invoke(capsys, *common, "--target", 1)[1]
    )
    assert "for 2 against 1" in invoke(capsys, *common, "--against", 1)[1]
    facts = json.loads(invoke(capsys, *common, "--json", "--top", 2)[1])
    assert (facts["id"], facts["cluster"], facts["competitor"]) == ("1003", 2, 0)
    assert [each["feature"] for each in facts["features"]] == ["proline", "total_phenols"]


def test_row_shows_the_smallest_change(wine: Path, capsys: pytest.CaptureFixture[str]) -> None:
    common = ("row", wine, "--id", 1073, "--k", 3, "--ignore", "kind", "--quiet", "--to", 0)
    code, out, _ = invoke(capsys, *common)
    frame = pl.read_csv(wine).drop("wine_id", "kind")
    moved = wc.explain(wc.tabular.pipeline(frame, 3), frame).counterfactual(73, 0)
    assert code == 0
    assert out.strip().endswith(moved.describe(10).replace("Row 73", "Row 1073"))
    facts = json.loads(invoke(capsys, *common, "--json")[1])
    assert (facts["to"], facts["distance"]) == (0, pytest.approx(moved.distance))
    assert [each["after"] for each in facts["changes"]] == pytest.approx(list(moved.after))
    assert facts["alone"][0]["feature"] == moved.best_single
    sizes = [each["distance"] for each in facts["alone"]]
    assert sizes == sorted(sizes) == pytest.approx(sorted(filter(np.isfinite, moved.single_distance)))
    assert out.index("One feature alone") < out.index("Several features together")
    assert invoke(capsys, *common[:-1], 2)[2] == (
        "whycluster: --to must be a different cluster; the row is already in 2.\n"
    )
    labeled = ("row", wine, "--id", 1073, "--labels", "kind", "--to", "cultivar 0", "--quiet")
    assert invoke(capsys, *labeled)[2] == (
        "whycluster: --to works only with new clusters, not with --labels. Remove --labels.\n"
    )


def test_row_says_which_columns_may_change(wine: Path, capsys: pytest.CaptureFixture[str]) -> None:
    common = ("row", wine, "--id", 1073, "--k", 3, "--to", 0, "--quiet", "--ignore", "kind")
    frame = pl.read_csv(wine).drop("wine_id", "kind")
    exp = wc.explain(wc.tabular.pipeline(frame, 3), frame)
    only = ["alcohol", "proline"]
    _, out, _ = invoke(capsys, *common, "--within", "alcohol,proline")
    moved = exp.counterfactual(73, 0, within=only)
    assert out.strip().endswith(moved.describe(10).replace("Row 73", "Row 1073"))
    _, out, _ = invoke(capsys, *common, "--hold", "alcohol", "--hold", "proline")
    moved = exp.counterfactual(73, 0, hold=only)
    assert out.strip().endswith(moved.describe(10).replace("Row 73", "Row 1073"))
    changes = json.loads(invoke(capsys, *common, "--within", "alcohol", "--json")[1])["changes"]
    assert [each["feature"] for each in changes if each["after"] != each["before"]] == ["alcohol"]
    assert invoke(capsys, *common, "--within", "alcohl")[2] == (
        "whycluster: --within must name columns of the table, such as alcohol, ... (13 in total); got "
        "'alcohl'.\n"
    )
    assert invoke(capsys, *common, "--within", "ash", "--hold", "ash")[2] == (
        "whycluster: --hold must leave at least one column to change; it leaves none.\n"
    )
    assert invoke(capsys, "row", wine, "--id", 1073, "--k", 3, "--hold", "ash", "--quiet")[2] == (
        "whycluster: --hold works only with --to, which names the cluster to move to.\n"
    )


def test_dates_change_as_they_do_in_python(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The command changes dates, alone and together with other columns, unless they are held."""
    pd = pytest.importorskip("pandas")
    rng = np.random.default_rng(0)
    group = rng.integers(0, 3, 120)
    since = pd.Timestamp("2020-01-01") + pd.to_timedelta(rng.integers(0, 200, 120) + 150 * group, "D")
    frame = pd.DataFrame({"spent": np.round(rng.normal(size=120) + group, 2), "since": since})
    frame.to_csv(tmp_path / "dates.csv", index=False)
    common = ("row", tmp_path / "dates.csv", "--id", 5, "--k", 3, "--quiet")
    exp = wc.explain(wc.tabular.pipeline(frame, 3), frame)
    to = next(label for label in exp.labels.tolist() if label != exp.assigned[5])
    questions: list[tuple[tuple[str, ...], dict[str, Any]]] = [
        ((), {}),
        (("--within", "since"), {"within": ["since"]}),
        (("--hold", "since"), {"hold": ["since"]}),
    ]
    for more, options in questions:
        _, out, _ = invoke(capsys, *common, "--to", to, *more)
        moved = exp.counterfactual(5, to, **options)
        assert out.strip().endswith(moved.describe(10))
        assert bool(moved.change[1]) == (options != {"hold": ["since"]})
        assert float(moved.change[1]).is_integer()


def test_row_by_number_or_by_another_column(
    wine: Path, passengers: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code, out, _ = invoke(capsys, "row", wine, "--id", 3, "--k", 3, "--ignore", "kind,wine_id", "--quiet")
    assert out.startswith("Row 3 is in cluster 2")
    code, out, _ = invoke(capsys, "row", passengers, "--id", "Passenger 7", "--labels", "group", "--quiet")
    assert (code, out.startswith("Row Passenger 7 (position 7) is in cluster ")) == (0, True)
    common = ("row", passengers, "--k", 2, "--quiet")
    assert invoke(capsys, *common, "--id", "a", "--id-column", "nam")[2] == (
        "whycluster: --id-column must name columns of the table, such as name, ... (6 in total); got 'nam'.\n"
    )
    assert invoke(capsys, *common, "--id", "Nobody") == (
        2,
        "",
        "whycluster: --id must match one row in column 'name'; no row has 'Nobody'.\n",
    )
    assert invoke(capsys, *common, "--id", "\udcff") == (  # a byte that is not UTF-8
        2,
        "",
        "whycluster: --id must match one row in column 'name'; no row has '\\udcff'.\n",
    )
    assert invoke(capsys, *common, "--id", "north", "--id-column", "port") == (
        2,
        "",
        "whycluster: --id must match one row in column 'port'; 30 rows have 'north'.\n",
    )
    assert invoke(capsys, *common, "--ignore", "name", "--id", "60") == (
        2,
        "",
        "whycluster: --id must be a row number from 0 to 59 because no column identifies the rows; got '60'. "
        "To use a column, add --id-column.\n",
    )


def test_row_compares_two_rows(wine: Path, capsys: pytest.CaptureFixture[str]) -> None:
    common = ("row", wine, "--id", 1003, "--k", 3, "--ignore", "kind", "--quiet")
    code, out, _ = invoke(capsys, *common, "--with", 1090)
    frame = pl.read_csv(wine).drop("wine_id", "kind")
    pair = wc.explain(wc.tabular.pipeline(frame, 3), frame).pair(3, 90)
    assert code == 0
    named = pair.claim().replace("ow 3", "ow 1003").replace("ow 90", "ow 1090")
    assert " ".join(out.split("\nproline")[0].split()) == named
    facts = json.loads(invoke(capsys, *common, "--with", 1007, "--json", "--top", 2)[1])
    pair = wc.explain(wc.tabular.pipeline(frame, 3), frame).pair(3, 7)
    assert (facts["ids"], facts["together"]) == (["1003", "1007"], True)
    assert facts["evidence"] == pytest.approx(pair.evidence.tolist())
    assert [each["relevance"] for each in facts["features"]] == pytest.approx(
        pair.to_frame()["relevance"].to_list()[:2]
    )
    for options, message in (
        (("--with", 1003), "--with must name a different row than --id."),
        (("--with", 7), "--with must match one row in column 'wine_id'; no row has '7'."),
        (
            ("--with", 1007, "--to", 0),
            "--with and --to cannot be combined. Use only one of these options.",
        ),
        (
            ("--with", 1007, "--target", 0),
            "--with and --target cannot be combined. Use only one of these options.",
        ),
    ):
        assert invoke(capsys, *common, *options) == (2, "", f"whycluster: {message}\n")


def test_rules_describe_each_cluster(wine: Path, capsys: pytest.CaptureFixture[str]) -> None:
    common = ("rules", wine, "--k", 3, "--ignore", "kind")
    code, out, _ = invoke(capsys, *common)
    assert (code, out) == (0, read_golden("cli_rules"))
    frame = pl.read_csv(wine).drop("wine_id", "kind")
    rules = wc.explain(wc.tabular.pipeline(frame, 3), frame).rules()
    assert out.split("\n\n", 1)[1].strip() == rules.describe()
    facts = json.loads(invoke(capsys, *common, "--json", "--quiet", "--conditions", 1)[1])
    assert {len(each["conditions"]) for cluster in facts["clusters"] for each in cluster["rules"]} == {1}
    sql = invoke(capsys, *common, "--quiet", "--sql", "wines", "--dialect", "postgres")[1]
    assert sql.strip() == rules.to_sql("wines", dialect="postgres")
    assert invoke(capsys, *common, "--dialect", "spark") == (
        2,
        "",
        "whycluster: --dialect works only with --sql, which names the table of the query.\n",
    )
    assert invoke(capsys, *common, "--sql", "t", "--json") == (
        2,
        "",
        "whycluster: --sql and --json cannot be combined. Use only one of these options.\n",
    )


def test_a_query_that_cannot_be_printed_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pl.DataFrame({"a\x1b": [0.0, 1.0, 9.0, 10.0] * 5}).write_parquet(tmp_path / "t.parquet")
    assert invoke(capsys, "rules", tmp_path / "t.parquet", "--k", 2, "--quiet", "--sql", "t") == (
        2,
        "",
        "whycluster: --sql requires names and values without control characters; some contain them. "
        "Write the query in Python, with exp.rules().to_sql().\n",
    )


def test_compare_contrasts_two_clusters(wine: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = invoke(capsys, "compare", wine, 0, 2, "--k", 3, "--ignore", "kind")
    assert (code, out) == (0, read_golden("cli_compare"))
    assert invoke(capsys, "compare", wine, 0, 0, "--k", 3, "--quiet")[2] == (
        "whycluster: A and B must be different clusters; got '0' twice.\n"
    )


def test_compare_is_the_contrast_of_the_members(wine: Path, capsys: pytest.CaptureFixture[str]) -> None:
    facts = json.loads(
        invoke(capsys, "compare", wine, 0, 2, "--k", 3, "--ignore", "kind", "--json", "--quiet")[1]
    )
    frame = pl.read_csv(wine).drop("wine_id", "kind")
    model = wc.tabular.pipeline(frame, 3)
    members = np.flatnonzero(model.predict(frame) == 0)
    exp = wc.explain(model, frame[members], against=2)
    first = facts["features"][0]
    assert (first["cluster"], first["feature"]) == (0, "proline")
    assert first["relevance"] == pytest.approx(exp.relevance.mean(axis=0).max())


def test_models_lists_what_is_supported_and_installed(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = invoke(capsys, "models")
    assert code == 0
    assert "- sklearn.mixture.GaussianMixture, BayesianGaussianMixture" in out
    assert re.search(
        rf"(?m)^polars +{re.escape(pl.__version__)} +data frames; files read by this command", out
    )
    facts = json.loads(invoke(capsys, "models", "--json")[1])
    assert facts["installed"]["polars"] == pl.__version__
    assert len(facts["models"]) > 5


@pytest.mark.slow
def test_a_terminal_shows_colors_and_names_are_never_markup(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    values = np.random.default_rng(0).normal(size=(50, 2))
    pl.DataFrame(values, schema=["[red]a[/red]", "b"]).write_csv(tmp_path / "t.csv")
    seen = on_terminal("row", tmp_path / "t.csv", "--k", "2", "--id", "3")
    assert "[red]a[/red]" in seen
    assert "\x1b[" in seen
    _, plain, _ = invoke(capsys, "row", tmp_path / "t.csv", "--k", 2, "--id", 3)
    assert re.sub(r"\x1b\[[0-9;]*m", "", seen).replace("\r\n", "\n").split() == plain.split()


def on_terminal(*arguments: Any) -> str:
    """Return the output of a process that runs on a terminal."""
    ours, theirs = pty.openpty()
    command = [sys.executable, "-m", "whycluster", *map(str, arguments)]
    environment = {**os.environ, "TERM": "xterm-256color", "COLUMNS": "120"}
    environment.pop("NO_COLOR", None)
    process = subprocess.Popen(command, stdout=theirs, stderr=theirs, env=environment)
    os.close(theirs)
    parts = []
    while True:
        try:
            part = os.read(ours, 65536)
        except OSError:
            break
        if not part:
            break
        parts.append(part)
    os.close(ours)
    assert process.wait() == 0
    return b"".join(parts).decode()


@pytest.mark.slow
@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGTERM])
def test_ctrl_c_leaves_nothing_behind(tmp_path: Path, how: signal.Signals) -> None:
    """If it is stopped while it writes, no files remain; it prints one line and exits with code 1."""
    values = np.random.default_rng(0).normal(size=(200_000, 20))
    pl.DataFrame(values).write_parquet(tmp_path / "t.parquet")
    process = subprocess.Popen(
        [sys.executable, "-m", "whycluster", "explain", "t.parquet", "--k", "8", "--out", "o.csv"],
        cwd=tmp_path,
        stderr=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        text=True,
    )
    while process.poll() is None and len(list(tmp_path.iterdir())) == 1:
        time.sleep(0.005)
    assert [path.name for path in tmp_path.glob("o.csv")] == []  # only its temporary file exists
    process.send_signal(how)
    _, err = process.communicate(timeout=60)
    assert (process.returncode, err) == (1, "whycluster: stopped\n")
    assert [path.name for path in tmp_path.iterdir()] == ["t.parquet"]


def test_an_identifier_keeps_its_leading_zeros(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    lines = "".join(f"{i:06d},{i % 7},{i % 5}\n" for i in range(60))
    (tmp_path / "x.csv").write_text("customer_id,a,b\n" + lines)
    code, out, error = invoke(capsys, "row", tmp_path / "x.csv", "--id", "000042", "--k", 2)
    assert code == 0, error
    assert out.startswith("Row 000042 (position 42) is in cluster")
    assert invoke(capsys, "row", tmp_path / "x.csv", "--id", "42", "--k", 2, "--quiet") == (
        2,
        "",
        "whycluster: --id must match one row in column 'customer_id'; no row has '42'.\n",
    )
