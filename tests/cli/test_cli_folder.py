"""``whycluster explain IN/ --out OUT/``."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from numpy.testing import assert_allclose

pytest.importorskip("pyarrow", reason="pyarrow is not installed")


import numpy as np
import polars as pl

import whycluster as wc
from tests.cli.test_cli import invoke, run
from whycluster.cli import sampling
from whycluster.engines.files.batches import long_bytes
from whycluster.engines.files.parts import find_parts


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    rng = np.random.default_rng(0)
    middle = np.array([[0.0, 0, 0], [5, 0, 1], [0, 6, 0]])[np.arange(600) % 3]
    values = middle + rng.normal(size=(600, 3))
    frame = pl.DataFrame(dict(zip("abc", values.T, strict=True)))
    frame = frame.with_columns(
        pl.Series("name", [f"row {i}" for i in range(600)]),
        pl.Series("kind", rng.choice(["x", "y"], 600)),
    )
    place = tmp_path_factory.mktemp("parts")
    for i in range(3):
        frame[200 * i : 200 * (i + 1)].write_parquet(place / f"{i}.parquet")
    return place


def changed(folder: Path, place: Path, change: Callable[[str, pl.DataFrame], pl.DataFrame]) -> Path:
    """Copy the files, changed by a function of their names and rows."""
    place.mkdir()
    for path in folder.iterdir():
        change(path.stem, pl.read_parquet(path)).write_parquet(place / path.name)
    return place


@pytest.mark.slow
def test_a_folder_is_clustered_by_a_sample_and_explained_part_by_part(folder: Path, tmp_path: Path) -> None:
    done = run("explain", folder, "--out", tmp_path / "out", "--k", 3, "--seed", 1)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("600 rows in 3 files; k-means with 3 clusters.\n")
    assert done.stdout.endswith(f"Explanations of all rows: {tmp_path / 'out'}\n")
    assert "left out: name" in done.stderr
    results = pl.read_parquet(str(tmp_path / "out" / "[0-9].parquet"))
    assert results.columns == ["name", "cluster", "evidence", "competitor", "a", "b", "c", "kind"]
    assert results["name"].to_list() == [f"row {i}" for i in range(600)]
    # The clusters and the explanations are those of a single table.
    whole = tmp_path / "whole.parquet"
    pl.read_parquet(str(folder / "*.parquet")).write_parquet(whole)
    assert run("explain", whole, "--out", tmp_path / "one.parquet", "--k", 3, "--seed", 1).returncode == 0
    one = pl.read_parquet(tmp_path / "one.parquet")
    for name in ("evidence", "a", "b", "c", "kind"):
        np.testing.assert_allclose(results[name], one[name], rtol=1e-7, atol=1e-9)
    assert results["cluster"].to_list() == one["cluster"].to_list()


def test_a_second_run_resumes_and_a_different_one_is_refused(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = ("explain", folder, "--out", tmp_path / "out", "--quiet")
    assert invoke(capsys, *arguments, "--k", 3)[0] == 0
    code, printed, _ = invoke(capsys, *arguments, "--k", 3, "--json")
    facts = json.loads(printed)
    assert (code, facts["rows"], facts["done_before"], len(facts["parts"])) == (0, 600, 3, 3)
    assert sum(cluster["rows"] for cluster in facts["clusters"]) == 600
    assert facts["clusters"][0]["features"][0]["share"] > 0
    code, _, error = invoke(capsys, *arguments, "--k", 2)
    assert code == 2
    assert "a run that differs in model. Choose another folder, or pass --force to rep" in error
    assert invoke(capsys, *arguments, "--k", 2, "--force")[0] == 0


@pytest.mark.parametrize(
    ("rule", "measured", "remedy"),
    [
        ("path", "beta and the cluster sizes were", ""),  # the command has no option for a background
        ("joint", "beta was", "--beta to explain parts as they arrive, or "),
    ],
)
def test_new_parts_are_refused_because_they_were_not_measured(
    rule: str, measured: str, remedy: str, folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    network = wc.neuralize(np.array([[0.0, 0, 0], [5, 0, 1], [0, 6, 0]]))
    wc.save(wc.TableNetwork(network.energy, feature_names=list("abc")), tmp_path / "model")
    place = changed(folder, tmp_path / "parts", lambda _, frame: frame)
    arguments = ("explain", place, "--out", tmp_path / "out", "--model", tmp_path / "model", "--rule", rule)
    assert invoke(capsys, *arguments, "--quiet")[0] == 0
    (place / "zzz.parquet").write_bytes((place / "0.parquet").read_bytes())
    code, _, error = invoke(capsys, *arguments, "--quiet")
    assert (code, error) == (
        2,
        f"whycluster: the parts must be those that {measured} measured on; 'zzz.parquet' has been added, "
        f"removed or changed since then. Pass {remedy}--force to start over.\n",
    )


def test_a_saved_network_explains_a_folder_or_a_file_into_a_folder(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    centers = np.array([[0.0, 0, 0], [5, 0, 1], [0, 6, 0]])
    network = wc.TableNetwork(wc.neuralize(centers).energy, feature_names=list("abc"))
    wc.save(network, tmp_path / "model")
    options = ("--model", tmp_path / "model", "--id", "name")
    assert invoke(capsys, "explain", folder, "--out", tmp_path / "all", *options)[0] == 0
    assert invoke(capsys, "explain", folder / "1.parquet", "--out", tmp_path / "one", *options)[0] == 0
    wc.save(wc.neuralize(centers), tmp_path / "nameless")
    nameless = ("--model", tmp_path / "nameless", "--columns", "a,b,c", "--id", "name")
    assert invoke(capsys, "explain", folder, "--out", tmp_path / "named", *nameless)[0] == 0
    rows = pl.read_parquet(str(folder / "*.parquet"))[["a", "b", "c"]]
    whole = wc.explain(network, rows)
    results = pl.read_parquet(str(tmp_path / "all" / "[0-9].parquet"))
    np.testing.assert_allclose(results["a"], whole.relevance[:, 0], rtol=1e-9, atol=1e-9)
    assert pl.read_parquet(tmp_path / "one" / "1.parquet")["name"].to_list() == [
        f"row {i}" for i in range(200, 400)
    ]
    assert invoke(capsys, "explain", f"{folder}/[01].parquet", "--out", tmp_path / "some", *options)[0] == 0


def test_a_note_names_the_results_of_a_file_that_was_removed(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    files = changed(folder, tmp_path / "in", lambda _, rows: rows)
    (files / "notes.txt").touch()
    rows = pl.read_parquet(str(folder / "*.parquet")).drop("name")
    wc.save(wc.segment(rows, n_clusters=3, measure_quality=False), tmp_path / "model")
    words = ("explain", files, "--out", tmp_path / "out", "--model", tmp_path / "model", "--id", "name")
    assert "no longer" not in invoke(capsys, *words)[2]
    (files / "1.parquet").unlink()
    code, _, error = invoke(capsys, *words)
    assert code == 0
    assert "also holds the results of 1 part that is no longer in the data: ['1.parquet" in error
    assert error.count("skipped 1 file in the folder") == 1
    assert (tmp_path / "out" / "1.parquet").exists()
    assert invoke(capsys, *words, "--quiet")[2] == ""


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            (),
            "{folder}: to explain a folder or a pattern, add --out with a folder for the results, or pass a "
            "single file instead.",
        ),
        (
            ("--labels", "kind", "--out", "{out}"),
            "--labels works only for a single table in memory, not for results in a folder. Remove it.",
        ),
        (("--delimiter", ";", "--out", "{out}"), "--delimiter works only for a single table in memory"),
        (
            ("--out", "{out}\udcff"),
            "--out must be valid UTF-8, including the folders above it; got '{out}\\udcff'. Use another "
            "name.",
        ),
        (
            ("--report", "x.html", "--out", "{out}"),
            "--report works only for a single table in memory",
        ),
        (("--decimal", ",", "--out", "{out}"), "--decimal works only for a single table in memory"),
        (
            ("--model", "m", "--k", "3", "--out", "{out}"),
            "--k applies to new clusters, but --model provides its own. Remove it.",
        ),
        (("--out", "{folder}"), "whycluster: --out must be a folder separate from the data"),
        (("--out", "{out}", "--model", "gone"), "load: path must be a file written by wc.save"),
        (
            ("--out", "{out}", "--target", "9", "--k", "2"),
            "--target must be one of the clusters 0, 1; got '9'.",
        ),
    ],
)
def test_options_that_do_not_work_with_a_folder(
    options: tuple[str, ...], message: str, folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    filled = [option.format(out=tmp_path / "out", folder=folder) for option in options]
    code, _, error = invoke(capsys, "explain", folder, *filled, "--quiet")
    assert code == 2
    assert message.format(folder=folder, out=tmp_path / "out") in error
    assert not (tmp_path / "out").exists()


def test_a_single_table_takes_a_segmentation(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    wc.save(wc.neuralize([[0.0, 1.0], [1.0, 2.0]]), tmp_path / "model")
    code, _, error = invoke(capsys, "explain", folder / "0.parquet", "--model", tmp_path / "model")
    assert code == 2
    assert error == (
        "whycluster: --model must be a segmentation, written by whycluster fit or wc.save; "
        f"{tmp_path / 'model'} contains a TableNetwork.\n"
    )


def test_verify_checks_a_folder(folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "out"
    assert invoke(capsys, "explain", folder, "--out", out, "--k", 3, "--quiet", "--no-durable")[0] == 0
    printed = f"{str(out)!r} is complete and unchanged: 600 rows in 7 files.\n"
    assert invoke(capsys, "verify", out) == (0, printed, "")
    (out / "1.parquet").unlink()
    code, printed, error = invoke(capsys, "verify", out)
    assert (code, error) == (1, "")
    assert printed == (
        f"{str(out)!r} must hold all results of a run, unchanged; it lists 600 rows in 7 files.\n"
        "missing: '1.parquet'\n"
    )
    code, printed, _ = invoke(capsys, "verify", out, "--json")
    facts = json.loads(printed)
    assert (code, facts["ok"], facts["is_complete"], facts["missing"]) == (1, False, True, ["1.parquet"])
    assert invoke(capsys, "verify", folder) == (
        2,
        "",
        f"whycluster: verify: path must be a folder with results of explain_dataset; {str(folder)!r} holds "
        "no '_whycluster.json'.\n",
    )


def test_results_in_one_file_are_always_durable(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    given = ("explain", folder / "0.parquet", "--out", tmp_path / "o.csv", "--no-durable")
    code, _, error = invoke(capsys, *given)
    assert (code, error) == (
        2,
        "whycluster: --no-durable works only with results in a folder. Set --out to a folder.\n",
    )


def test_a_corrupt_part_is_named_and_the_others_are_done(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    place = tmp_path / "in"
    place.mkdir()
    for path in folder.iterdir():
        (place / path.name).write_bytes(path.read_bytes())
    (place / "1.parquet").write_bytes(b"nothing")
    code, _, error = invoke(capsys, "explain", place, "--out", tmp_path / "out", "--k", 3)
    assert code == 2
    assert "1 of 3 parts could not be explained; the others are done. '1.parquet': it cannot be read" in error
    assert sorted(path.name for path in (tmp_path / "out").glob("[0-9].parquet")) == [
        "0.parquet",
        "2.parquet",
    ]
    for name in ("0.parquet", "2.parquet"):
        (place / name).write_bytes(b"nothing")
    _, _, error = invoke(capsys, "explain", place, "--out", tmp_path / "none", "--k", 3)
    assert (
        "at least one part must contain readable rows; none does. '0.parquet': it cannot be read (" in error
    )


def test_a_repaired_part_is_explained_with_the_same_clusters(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    place, out = tmp_path / "in", tmp_path / "out"
    place.mkdir()
    for path in folder.iterdir():
        (place / path.name).write_bytes(path.read_bytes())
    whole = (place / "1.parquet").read_bytes()
    (place / "1.parquet").write_bytes(b"nothing")
    _, _, error = invoke(capsys, "explain", place, "--out", out, "--k", 3)
    assert "rows that cannot be read are not clustered; '1.parquet': it cannot be read (" in error
    before = (out / "0.parquet").read_bytes()
    (place / "1.parquet").write_bytes(whole)
    code, printed, _ = invoke(capsys, "explain", place, "--out", out, "--k", 3)
    assert (code, printed.splitlines()[0]) == (
        0,
        "600 rows in 3 files; k-means with 3 clusters, fitted on 400 rows.",
    )
    assert (out / "0.parquet").read_bytes() == before
    code, printed, _ = invoke(capsys, "explain", place, "--out", out, "--k", 3, "--force")
    assert printed.splitlines()[0] == "600 rows in 3 files; k-means with 3 clusters."
    # A sample of other data, or a damaged one, is not used.
    other = tmp_path / "other"
    place.rename(other)
    assert "a run that differs in model" in invoke(capsys, "explain", other, "--out", out, "--k", 2)[2]
    (out / "_whycluster.sample").write_bytes(b"nothing")
    assert "the parts must be those" in invoke(capsys, "explain", other, "--out", out, "--k", 3)[2]


@pytest.mark.slow
def test_clusters_do_not_depend_on_threads(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    values = rng.normal(size=(60_000, 4)) + 3 * rng.integers(5, size=(60_000, 1))
    (tmp_path / "in").mkdir()
    pl.DataFrame(dict(zip("abcd", values.T, strict=True))).write_parquet(tmp_path / "in" / "x.parquet")
    for n_threads in ("3", "1", "5"):
        command = ("explain", tmp_path / "in", "--out", tmp_path / "out", "--k", 7)
        done = run(*command, OMP_NUM_THREADS=n_threads, OPENBLAS_NUM_THREADS=n_threads)
        assert done.returncode == 0, done.stderr
        assert ("(1 of 1 file already done)" in done.stdout) == (n_threads != "3")


def test_the_sample_has_all_rows_of_text_whose_numbers_become_fractions(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "x.csv").write_text("a,b\n" + "10,2\n30,9\n" * 100_000 + "1.5,7\n")
    code, printed, error = invoke(capsys, "explain", tmp_path / "in", "--out", tmp_path / "out", "--k", 2)
    assert code == 0, error
    assert "fitted on 100,001 rows" in printed  # every second


@pytest.mark.slow
def test_ctrl_c_stops_in_the_middle_of_a_file(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    values = rng.normal(size=(3_000_000, 4)).astype(np.float32)
    (tmp_path / "in").mkdir()
    pl.DataFrame(dict(zip("abcd", values.T, strict=True))).write_parquet(tmp_path / "in" / "x.parquet")
    wc.save(wc.neuralize(rng.normal(size=(5, 4))), tmp_path / "net")
    words = [
        "explain",
        tmp_path / "in",
        "--out",
        tmp_path / "out",
        "--model",
        tmp_path / "net",
        "--columns",
        "a,b,c,d",
    ]
    command = [sys.executable, "-m", "whycluster", *map(str, words)]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    while not (tmp_path / "out" / "_whycluster.tmp" / "x.parquet").exists():
        assert process.poll() is None
        time.sleep(0.01)
    process.send_signal(signal.SIGINT)
    _, error = process.communicate(timeout=60)
    assert process.returncode == 1
    assert error.splitlines() == [
        "whycluster: finished files are kept; run the same command again to resume",
        "whycluster: stopped",
    ]
    assert not (tmp_path / "out" / "x.parquet").exists()
    assert not (tmp_path / "out" / "_whycluster.tmp").exists()


def test_other_files_rows_that_cannot_be_explained_and_names_that_look_like_files(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    hole = pl.when(pl.col("name") == "row 3").then(None).otherwise("a")
    place = changed(folder, tmp_path / "in", lambda _, frame: frame.with_columns(a=hole))
    (place / "more.jsonl").write_text("{}")
    wc.save(wc.neuralize([[0.0, 0, 0], [5, 0, 1], [0, 6, 0]]), tmp_path / "net")
    words = ("explain", place, "--model", tmp_path / "net", "--columns", "a,b,c")
    code, _, error = invoke(capsys, *words, "--out", tmp_path / "out")
    assert code == 2
    assert (
        "whycluster: part '0.parquet': data must be finite; row 3, feature 'a' holds a missing value (NaN). "
        in error
    )
    assert error.endswith("Or pass --invalid skip to get nulls for such rows.\n")
    assert "whycluster: skipped 1 file in the folder: ['more.jsonl']. Only files of type .parquet" in error
    code, printed, error = invoke(capsys, *words, "--out", tmp_path / "out", "--invalid", "skip")
    assert printed.startswith("600 rows in 3 files; 1 row could not be explained; the network in ")
    code, printed, error = invoke(capsys, "explain", place, "--out", tmp_path / "new", "--k", 2)
    assert "whycluster: skipped 1 file in the folder: ['more.jsonl']. Only files of type .parquet" in error
    for name in ("x.csv", "net"):
        code, _, error = invoke(capsys, "explain", place, "--out", tmp_path / name)
        assert (code, "--out must be a folder if there are many files; " in error) == (2, True)
    code, _, error = invoke(capsys, "explain", place / "0.parquet", place / "1.parquet")
    assert "Put patterns in quotes." in error
    code, _, error = invoke(capsys, "explain", place / "0.parquet", "--invalid", "skip")
    assert "--invalid works only with results in a folder. Set --out to a folder." in error


def test_a_column_that_is_empty_in_the_first_part(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rng = np.random.default_rng(0)
    (tmp_path / "in").mkdir()
    for day in range(5):
        group = np.full(200, 0) if day == 0 else rng.integers(2, size=200)
        a, note = rng.normal(size=200) + 20 * group, None if day == 0 else rng.normal(size=200)
        frame = pl.DataFrame({"a": a, "b": a + rng.normal(size=200), "note": note})
        frame.write_parquet(tmp_path / "in" / f"{day}.parquet")
    code, printed, error = invoke(capsys, "explain", tmp_path / "in", "--out", tmp_path / "out", "--k", 2)
    assert code == 0, error
    assert printed.startswith("1,000 rows in 5 files; k-means with 2 clusters.\n")
    assert error == ""


def test_parts_that_lack_an_unused_column_are_in_the_sample(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    place = changed(
        folder, tmp_path / "in", lambda name, frame: frame.with_columns(extra=1.5) if name == "0" else frame
    )
    code, printed, _ = invoke(
        capsys, "explain", place, "--out", tmp_path / "out", "--k", 3, "--ignore", "extra"
    )
    assert code == 0
    assert printed.startswith("600 rows in 3 files; k-means with 3 clusters.\n")


@pytest.mark.parametrize("odd", [0, 5])
@pytest.mark.parametrize("suffix", ["csv", "parquet"])
def test_one_file_among_many_does_not_decide_what_columns_hold(
    odd: int, suffix: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "in").mkdir()
    for i in range(6):
        rows = pl.DataFrame(
            np.random.default_rng(i).normal(size=(50, 2)).round(3) + 6 * (np.arange(50) % 3)[:, None],
            schema=["u", "v"],
        )
        rows = rows.with_columns(u=pl.lit("unknown")) if i == odd else rows
        path = tmp_path / "in" / f"{i}.{suffix}"
        rows.write_csv(path) if suffix == "csv" else rows.write_parquet(path)
    code, _, error = invoke(capsys, "explain", tmp_path / "in", "--out", tmp_path / "out", "--k", 3)
    assert code == 2
    name = f"{odd}.{suffix}"
    assert f"rows that cannot be read are not clustered; {name!r}: " in error
    assert f"1 of 6 parts could not be explained; the others are done. {name!r}: column 'u'" in error
    found = pl.read_parquet(f"{tmp_path}/out/*.parquet")
    assert found.height == 250
    assert found.group_by("cluster").len()["len"].sort().to_list() == [80, 85, 85]


def test_a_network_with_noise(folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rows = pl.read_parquet(f"{folder}/*.parquet").select("a", "b", "c")
    labels = np.where(np.arange(600) % 3 == 2, -1, np.arange(600) % 3)
    wc.save(wc.neuralize(wc.Surrogate().fit(rows, labels)), tmp_path / "network")
    code, printed, _ = invoke(
        capsys, "explain", folder, "--out", tmp_path / "out", "--model", tmp_path / "network", "--json"
    )
    assert code == 0
    assert [group["cluster"] for group in json.loads(printed)["clusters"]] == [0, 1, "noise"]


def test_fewer_rows_are_sampled_if_there_are_many_columns(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = pl.DataFrame(np.arange(40_000).reshape(10_000, 4) + 0.5, schema=list("abcd"))
    (tmp_path / "in").mkdir()
    for i in range(4):
        rows[2500 * i : 2500 * (i + 1)].write_parquet(tmp_path / "in" / f"{i}.parquet", row_group_size=100)
    parts, data = find_parts(str(tmp_path / "in"), "explain"), str(tmp_path / "in")
    assert sampling.take_sample(parts, data, tmp_path / "out", overwrite=True).rows.equals(rows)
    monkeypatch.setattr(sampling, "_VALUES", 6000)
    monkeypatch.setattr(sampling, "_BATCH_VALUES", 40)
    monkeypatch.setattr(sampling, "_FEWEST", 10)
    monkeypatch.setattr(sampling, "_FRAMES", 3)
    drawn = sampling.take_sample(parts, data, tmp_path / "out", overwrite=True).rows
    assert drawn.equals(rows[::4])  # 1500 rows hold that many values, and up to twice as many are sampled


def write_parts(frame: pl.DataFrame, place: Path, suffix: str, n_parts: int = 4) -> None:
    place.mkdir()
    size = -(-frame.height // n_parts)
    for i in range(n_parts):
        part, path = frame[size * i : size * (i + 1)], place / f"{i}.{suffix}"
        part.write_csv(path) if suffix == "csv" else part.write_parquet(path)


@pytest.fixture
def few_drawn(monkeypatch: pytest.MonkeyPatch) -> None:
    """Sample every fourth of 4000 rows."""
    monkeypatch.setattr(sampling, "_ROWS", 600)
    monkeypatch.setattr(sampling, "_FEWEST", 10)
    monkeypatch.setattr(sampling, "_BATCH", 150)


@pytest.mark.usefixtures("few_drawn")
@pytest.mark.parametrize("suffix", ["csv", "parquet"])
def test_columns_are_left_out_of_a_folder_as_of_a_file(
    suffix: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rng = np.random.default_rng(0)
    group = rng.integers(2, size=4000)
    frame = pl.DataFrame(
        {
            "order_id": rng.integers(10**6, size=4000),
            "shop_id": pl.Series(np.arange(4000) // 100).replace(7, None),  # some are missing
            "counted": 2**60 + np.arange(4000),  # as floats, all the same
            "shuffled": rng.permutation(4000),
            "second": np.arange(4000) // 2,  # each comes twice, and in the sample once
            "whole": np.arange(4000.0),  # written as 0.0, 1.0, ...
            "x": group * 9 + rng.normal(size=4000).round(3),
            "visits": group * 40 + rng.integers(9, size=4000),
        }
    )
    write_parts(frame, tmp_path / "in", suffix)
    write_parts(frame, tmp_path / "one", suffix, n_parts=1)
    single = tmp_path / "one" / f"0.{suffix}"
    expected = json.loads(invoke(capsys, "explain", single, "--k", 2, "--json", "--quiet")[1])["left_out"]
    assert list(expected) == ["order_id", "shop_id", "counted", "shuffled"]
    for _ in range(2):  # the second time with the stored sample
        words = ("explain", tmp_path / "in", "--out", tmp_path / "out", "--k", 2, "--json", "--quiet")
        code, printed, error = invoke(capsys, *words)
        assert code == 0, error
        facts = json.loads(printed)
        assert facts["left_out"] == expected
        assert "fitted on 1,000 rows" in facts["clustering"]
    found = pl.read_parquet(f"{tmp_path}/out/[0-9]*.parquet")
    assert found.columns[-4:] == ["second", "whole", "x", "visits"]


def test_whole_numbers_that_become_fractions_are_floats_in_the_sample(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    for i, last in enumerate(("3", "3.5")):
        (tmp_path / "in" / f"{i}.csv").write_text(f"id,n,nothing\n1,1,\n2, 2,\n{last},NA,{i or ''}\n")
    parts = find_parts(str(tmp_path / "in"), "explain")
    drawn = sampling.take_sample(parts, str(tmp_path / "in"), tmp_path / "out", overwrite=True).rows
    assert drawn.schema == {"id": pl.Float64, "n": pl.Int64, "nothing": pl.Int64}
    assert drawn.rows()[2:4] == [(3.0, None, None), (1.0, 1, None)]
    assert drawn.row(-1) == (3.5, None, 1)


@pytest.mark.usefixtures("few_drawn")
def test_codes_in_a_folder_are_text_wherever_they_appear(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rng = np.random.default_rng(0)
    group = rng.integers(2, size=4000)
    frame = pl.DataFrame(
        {
            "cust": [f"{i:07}" for i in range(4000)],
            "zip": np.array(["99310", "1207"])[group],
            "size": np.array(["1.5", "2"])[group],
            "share": rng.uniform(-1, 1, size=4000).round(3),
            "x": group * 9 + rng.normal(size=4000).round(3),
        }
    )
    rows = np.arange(4000)
    late = pl.Series(rows == 2999)  # a row outside the sample, at the end of the third file
    frame = frame.with_columns(
        zip=pl.when(late).then(pl.lit("00123")).otherwise("zip"),
        size=pl.when(late).then(pl.lit("007")).otherwise("size"),
    )
    write_parts(frame, tmp_path / "in", "csv")
    (tmp_path / "in" / "bad.csv").write_bytes(b"")
    parts = find_parts(str(tmp_path / "in"), "explain")
    sample = sampling.take_sample(parts, str(tmp_path / "in"), tmp_path / "out", overwrite=True)
    assert sample.rows.equals(frame[::4])
    assert len(sample.notes) == 1  # starting over repeats no note
    assert "more" not in sample.notes[0]
    (tmp_path / "in" / "bad.csv").unlink()
    code, _, error = invoke(capsys, "explain", tmp_path / "in", "--out", tmp_path / "out", "--k", 2)
    assert code == 0, error
    found = pl.read_parquet(f"{tmp_path}/out/[0-9]*.parquet")
    assert found["cust"].to_list() == frame["cust"].to_list()
    assert found.columns[-4:] == ["zip", "size", "share", "x"]
    # They are explained as text, as in a single table.
    frame.write_csv(tmp_path / "one.csv")
    one = tmp_path / "one.parquet"
    assert invoke(capsys, "explain", tmp_path / "one.csv", "--out", one, "--k", 2, "--quiet")[0] == 0
    assert (found["cluster"] == pl.read_parquet(one)["cluster"]).mean() in (0, 1)


def test_columns_that_are_numeric_in_parquet_are_numeric_in_csv_too(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    n = np.arange(100)
    (tmp_path / "in").mkdir()
    frame = pl.DataFrame({"a": n % 7 + 20 * (n % 2), "b": n % 5})
    frame.write_parquet(tmp_path / "in" / "0.parquet")
    frame.with_columns(frame["a"].cast(pl.String).str.zfill(3)).write_csv(tmp_path / "in" / "1.csv")
    code, printed, error = invoke(capsys, "explain", tmp_path / "in", "--out", tmp_path / "out", "--k", 2)
    assert (code, error) == (0, "")
    assert printed.startswith("200 rows in 2 files; k-means with 2 clusters.\n")


def test_a_note_names_values_in_folder_names(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for year in (2020, 2021):
        (tmp_path / "in" / f"year={year}").mkdir(parents=True)
        rows = pl.DataFrame(np.random.default_rng(year).normal(size=(30, 2)), schema=["u", "v"])
        rows.write_parquet(tmp_path / "in" / f"year={year}" / "a.parquet")
    code, _, error = invoke(capsys, "explain", tmp_path / "in", "--out", tmp_path / "out", "--k", 2)
    assert code == 0
    assert "values in folder names, such as year=2020, are not used as columns" in error


@pytest.mark.parametrize("kind", ["csv", "parquet"])
def test_a_column_without_a_name(kind: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """pandas writes its index to a CSV file as a first column without a name."""
    (tmp_path / "in").mkdir()
    x = np.arange(40) % 3 + np.linspace(0, 0.5, 40)
    frame = pl.DataFrame({"": np.arange(40), "column_0": x, "b": x[::-1]})
    path = tmp_path / "in" / f"p.{kind}"
    frame.write_csv(path) if kind == "csv" else frame.write_parquet(path)
    words = ["explain", tmp_path / "in", "--out", tmp_path / "out", "--k", 3]
    for _ in range(2):  # the second run uses the saved sample
        code, _, notes = invoke(capsys, *words)
        assert (code, notes) == (
            0,
            "whycluster: left out:  (like an identifier, consecutive whole numbers)\n"
            "whycluster: rows are identified by ''\n",
        )
    (part,) = (tmp_path / "out").glob("p*.parquet")
    found = pl.read_parquet(part)
    code, _, _ = invoke(capsys, "explain", path, "--k", 3, "--out", tmp_path / "one.parquet")
    one = pl.read_parquet(tmp_path / "one.parquet")
    assert code == 0
    assert found["cluster"].to_list() == one["cluster"].to_list()
    assert_allclose(found["evidence"].to_numpy(), one["evidence"].to_numpy(), rtol=1e-9)


def test_a_small_file_with_long_text_cannot_fill_the_memory(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A text that is repeated in all rows takes little space in a Parquet file."""
    monkeypatch.setattr(sampling, "_TEXT", 1 << 24)
    (tmp_path / "in").mkdir()
    path = tmp_path / "in" / "p.parquet"
    text = pl.Series(["x" * 100_000]).new_from_index(0, 2000)
    pl.DataFrame({"a": np.arange(2000) % 3 + np.linspace(0, 0.1, 2000), "text": text}).write_parquet(path)
    assert path.stat().st_size < 1_000_000  # the text takes 200 MB
    (part,) = find_parts(path, "explain")
    fields = list(part.look()[0])
    assert long_bytes(part, fields) == pytest.approx(100_000, rel=0.01)
    sizes = [batch.nbytes for batch in sampling._batches({part: part.look()[0]}, [])]
    assert len(sizes) > 4
    assert max(sizes) < 40e6
    assert invoke(capsys, "explain", tmp_path / "in", "--out", tmp_path / "out", "--k", 3, "--quiet")[0] == 0
    sample = pl.read_parquet(tmp_path / "out" / sampling.SAMPLE_FILE)
    assert sample["a"].to_list() == pl.read_parquet(path)["a"][::16].to_list()  # 125 of 2000 rows
    assert pl.read_parquet(tmp_path / "out" / "p.parquet").height == 2000


def test_two_rows_with_long_text_are_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sampling, "_TEXT", 100)
    pl.DataFrame({"a": [1, 2], "text": ["x" * 1000, "y" * 1000]}).write_parquet(tmp_path / "p.parquet")
    parts = find_parts(tmp_path / "p.parquet", "explain")
    assert sampling.take_sample(parts, "p.parquet", tmp_path / "out", overwrite=False).rows.height == 2
