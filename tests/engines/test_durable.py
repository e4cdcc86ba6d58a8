"""Finished results are listed with their checksums, and a folder can be verified."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

pytest.importorskip("pyarrow", reason="pyarrow is not installed")

import numpy as np
import pyarrow as pa
import pyarrow.dataset as pads
import pyarrow.parquet as pq

import whycluster as wc
from tests.optional import optional
from whycluster.data.files import replacing
from whycluster.engines.files import run_state
from whycluster.engines.files.results import Footer

if TYPE_CHECKING:
    import duckdb
    import polars as pl
else:
    duckdb = optional("duckdb")
    pl = optional("polars")

CENTERS = np.array([[0.0, 0, 0], [4, 0, 1], [0, 5, 0]])
N_ROWS, N_PARTS = 4000, 4


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with data and finished results."""
    folder, rng = tmp_path_factory.mktemp("run"), np.random.default_rng(0)
    (folder / "in").mkdir()
    for part in range(N_PARTS):
        X = CENTERS[rng.integers(3, size=N_ROWS)] + rng.normal(size=(N_ROWS, 3))
        pq.write_table(pa.table(dict(zip("abc", X.T, strict=True))), folder / "in" / f"part-{part}.parquet")
    explain(folder)
    return folder


@pytest.fixture
def run(finished: Path, tmp_path: Path) -> Iterator[Path]:
    """The same folder, whose contents are restored afterward; elsewhere, the data would be other data."""
    shutil.copytree(finished, tmp_path / "copy")
    yield finished
    shutil.rmtree(finished)
    shutil.copytree(tmp_path / "copy", finished)


def explain(run: Path, **options: Any) -> Any:
    return wc.explain_dataset(CENTERS, run / "in", run / "out", output="both", **options)


def contents(folder: Path) -> dict[str, bytes]:
    return {
        path.relative_to(folder).as_posix(): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file() and path.name != "_whycluster.lock"
    }


def results(folder: Path) -> dict[str, bytes]:
    """The rows and the summary; the samples kept of each part depend on the order of the parts."""
    return {name: found for name, found in contents(folder).items() if name.endswith((".parquet", ".csv"))}


def zero(path: Path) -> None:
    """Zero 64 KB inside a file and keep its times, as some file systems do after a power cut."""
    content = path.read_bytes()
    assert len(content) > 100_000
    path.write_bytes(content[:20_000] + bytes(65_536) + content[20_000 + 65_536 :])


def test_the_manifest_lists_every_file_of_a_complete_folder(finished: Path) -> None:
    facts = json.loads((finished / "out" / "_whycluster.json").read_text())
    assert facts["complete"] is True
    assert sorted(facts["results"]) == sorted(
        name for name in contents(finished / "out") if name != "_whycluster.json"
    )
    assert [facts["results"][f"part-{i}.parquet"]["rows"] for i in range(N_PARTS)] == [N_ROWS] * N_PARTS
    assert facts["results"]["_summary.csv"]["rows"] is None
    for name, record in facts["results"].items():
        assert record["size"] == (finished / "out" / name).stat().st_size


def test_other_tools_read_the_folder_as_one_table(finished: Path) -> None:
    assert pads.dataset(finished / "out").to_table().num_rows == N_ROWS * N_PARTS
    assert pl.read_parquet(finished / "out" / "*.parquet").height == N_ROWS * N_PARTS
    query = f"select count(*) from '{finished}/out/*.parquet'"
    assert duckdb.connect().execute(query).fetchone() == (N_ROWS * N_PARTS,)


def test_zeroed_bytes_in_a_finished_part_are_noticed(run: Path) -> None:
    before = results(run / "out")
    zero(run / "out" / "part-2.parquet")
    assert pq.read_metadata(run / "out" / "part-2.parquet").num_rows == N_ROWS  # its footer is intact
    assert wc.verify_dataset(run / "out").changed == ["part-2.parquet"]
    assert explain(run).n_done_before == N_PARTS - 1
    assert results(run / "out") == before


def test_a_finished_folder_is_not_written_again(run: Path) -> None:
    times = {path: path.stat().st_mtime_ns for path in run.rglob("*.parquet")}
    described = (run / "out" / "_whycluster.json").stat().st_mtime_ns
    assert explain(run).n_done_before == N_PARTS
    assert {path: path.stat().st_mtime_ns for path in run.rglob("*.parquet")} == times
    assert (run / "out" / "_whycluster.json").stat().st_mtime_ns == described


@pytest.mark.parametrize("pause", [0.0, 1e9])
@pytest.mark.parametrize("durable", [True, False])
def test_results_do_not_depend_on_syncing_or_on_how_they_are_grouped(
    durable: bool, pause: float, run: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = results(run / "out")
    monkeypatch.setattr(run_state, "_PAUSE", pause)
    explain(run, overwrite=True, durable=durable)
    assert results(run / "out") == before


def test_finished_parts_are_listed_if_another_fails(run: Path) -> None:
    (run / "in" / "part-3.parquet").write_bytes(b"broken")
    with pytest.raises(wc.InvalidInputError, match="1 of 4 parts could not be explained"):
        explain(run, overwrite=True)
    found = wc.verify_dataset(run / "out")
    assert (found.n_rows, found.is_complete, found.ok) == (3 * N_ROWS, False, False)
    assert (found.missing, found.changed, found.extra) == ([], [], [])


def remove(out: Path) -> None:
    (out / "part-0.parquet").unlink()


def append(out: Path) -> None:
    with (out / "part-1.parquet").open("ab") as file:
        file.write(b"x")


def add(out: Path) -> None:
    (out / "new").mkdir()
    (out / "new" / "x.parquet").touch()
    (out / "_hidden").touch()


def unfinish(out: Path) -> None:
    facts = json.loads((out / "_whycluster.json").read_text())
    (out / "_whycluster.json").write_text(json.dumps({**facts, "complete": False}))


PROBLEMS: dict[str, Callable[[Path], None]] = {
    "missing: 'part-0.parquet'": remove,
    "changed: 'part-1.parquet'": append,
    "extra: 'new/x.parquet'": add,
    "not complete: the run has not finished. Run it again to resume.": unfinish,
}


@pytest.mark.parametrize("line", PROBLEMS)
def test_verify_says_what_is_wrong(line: str, run: Path) -> None:
    out = run / "out"
    assert str(wc.verify_dataset(out)) == f"{str(out)!r} is complete and unchanged: 16,000 rows in 9 files."
    PROBLEMS[line](out)
    found = wc.verify_dataset(str(out))
    assert not found.ok
    first = f"{str(out)!r} must hold all results of a run, unchanged; it lists 16,000 rows in 9 files."
    assert str(found) == f"{first}\n{line}"


def test_verify_needs_a_folder_of_results(run: Path) -> None:
    with pytest.raises(wc.InvalidInputError) as caught:
        wc.verify_dataset(run / "in")
    assert str(caught.value) == (
        f"verify_dataset: path must be a folder with results of explain_dataset; {str(run / 'in')!r} holds "
        "no '_whycluster.json'."
    )
    with pytest.raises(
        wc.InvalidInputError, match="verify_dataset: path must be the name of a folder; got 7"
    ):
        wc.verify_dataset(7)  # type: ignore[arg-type]


def test_verify_reads_nothing_outside_the_folder(run: Path) -> None:
    path = run / "out" / "_whycluster.json"
    facts = json.loads(path.read_text())
    facts["results"]["../in/part-0.parquet"] = facts["results"]["part-0.parquet"]
    path.write_text(json.dumps(facts))
    assert wc.verify_dataset(run / "out").missing == ["../in/part-0.parquet"]


def test_a_name_that_no_file_can_have_is_missing(run: Path) -> None:
    """Found by fuzzing."""
    path = run / "out" / "_whycluster.json"
    facts = json.loads(path.read_text())
    facts["results"]["x" * 300] = facts["results"]["part-0.parquet"]
    path.write_text(json.dumps(facts))
    assert wc.verify_dataset(run / "out").missing == ["x" * 300]


@pytest.mark.parametrize(
    "change",
    [
        {"results": []},
        {"results": {"a": 1}},
        {"results": {"a": {"rows": 1, "size": 1}}},
        {"results": {"a": {"rows": 1, "size": "1", "crc32": "0"}}},
        {"results": {"a\0": {"rows": 1, "size": 1, "crc32": "0"}}},
        {"complete": 1},
        {"figures": {"inputs": {}, "without": [{}]}},  # found by fuzzing
    ],
    ids=str,
)
def test_an_edited_manifest_is_an_error(change: Any, run: Path) -> None:
    path = run / "out" / "_whycluster.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **change}))
    with pytest.raises(wc.InvalidInputError) as caught:
        wc.verify_dataset(run / "out")
    assert str(caught.value) == (
        f"verify_dataset: {str(path)!r} must be a description written by this version of whycluster; it is "
        "damaged, or from another version. Choose another folder, or remove this one."
    )


@pytest.mark.slow
def test_a_damaged_footer_is_no_result(run: Path, tmp_path: Path) -> None:
    """Found by fuzzing: pyarrow raises errors of several kinds."""
    whole = next((run / "out").rglob("*.parquet")).read_bytes()
    path, changed = tmp_path / "damaged", bytearray(whole)
    for place in range(len(whole) - 800, len(whole)):  # with the schema of Arrow
        changed[place] ^= 2
        path.write_bytes(changed)
        Footer.read(path)  # raises no error
        changed[place] ^= 2
    path.write_bytes(changed[:-1])
    assert Footer.read(path) is None


def test_a_new_file_never_replaces_another(tmp_path: Path) -> None:
    path = tmp_path / "x"
    with replacing(path, new=True) as temporary:
        temporary.write_text("first")
    with pytest.raises(FileExistsError) as caught, replacing(path, new=True) as temporary:
        temporary.write_text("second")
    assert caught.value.filename == str(path)
    assert contents(tmp_path) == {"x": b"first"}
