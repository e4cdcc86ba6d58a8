"""Power cuts, kills and errors of the disk at random moments: nothing is lost, and nothing half is left.

``make test`` tries a few moments. ``make faults`` tries many more.
"""

from __future__ import annotations

import errno
import json
import os
import random
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

for _library in ("jinja2", "polars", "pyarrow", "safetensors"):
    pytest.importorskip(_library, reason=f"{_library} is not installed")

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

import whycluster as wc
from tests.faults.machine import SHORT, Ended, Machine

CENTERS = np.array([[0.0, 0, 0], [4, 0, 1], [0, 5, 0]])
PARTS = [f"{folder}part-{i}.parquet" for folder in ("", "day=1/") for i in range(4)]
MANY = bool(os.environ.get("WHYCLUSTER_FAULTS"))  # as `make faults` sets it
PAUSES = (0.0, 0.02, 1.0)  # seconds; results are synced one by one, in small groups, or all together


@pytest.fixture(scope="module")
def machine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Machine]:
    place, rng = tmp_path_factory.mktemp("machine"), np.random.default_rng(0)
    machine = Machine(place)
    (place / "in" / "day=1").mkdir(parents=True)
    for name in PARTS:
        X = CENTERS[rng.integers(3, size=400)] + rng.normal(size=(400, 3))
        pq.write_table(pa.table(dict(zip("abc", X.T, strict=True))), place / "in" / name)
    np.savetxt(place / "table.csv", X, delimiter=",", header="a,b,c", comments="")
    yield machine
    machine.close()


class Undisturbed(NamedTuple):
    """The results of a run without faults, and the number of its calls."""

    results: dict[str, bytes]
    n_calls: int


@pytest.fixture(scope="module")
def undisturbed(machine: Machine) -> Undisturbed:
    empty(machine.disk)
    assert machine.run("files") == ("", "")
    found = Undisturbed(results(machine), len(machine.log.read_text().splitlines()))
    assert sorted(found.results) == sorted([*PARTS, "_summary.csv"])
    return found


def empty(folder: Path) -> None:
    shutil.rmtree(folder)
    folder.mkdir()


def results(machine: Machine) -> dict[str, bytes]:
    out = machine.disk / "out"
    names = [path.relative_to(out).as_posix() for path in out.rglob("*") if path.is_file()]
    return {
        name: (out / name).read_bytes()
        for name in names
        if name.endswith((".parquet", ".csv")) and not name.startswith("_whycluster")
    }


def check_whole(machine: Machine, undisturbed: Undisturbed) -> None:
    """All results with their final names are whole, and all listed ones are there."""
    for name, content in results(machine).items():
        if name != "_summary.csv":
            assert content == undisturbed.results[name], name
    if (machine.disk / "out" / "_whycluster.json").exists():
        found = wc.verify_dataset(machine.disk / "out")
        assert (found.missing, found.changed) == ([], [])


def check_resumed(machine: Machine, undisturbed: Undisturbed) -> None:
    """What is listed stays, the rest is done again, and the results are those of an undisturbed run."""
    check_whole(machine, undisturbed)
    out, n_listed = machine.disk / "out", 0
    if (out / "_whycluster.json").exists():
        listed = json.loads((out / "_whycluster.json").read_text())["results"]
        n_listed = sum(name in listed and f"_summary/{name}.npz" in listed for name in PARTS)
    found = wc.explain_dataset(CENTERS, machine.place / "in", out, output="both")
    assert found.n_done_before == n_listed
    assert results(machine) == undisturbed.results
    assert wc.verify_dataset(out).ok


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(50 if MANY else 6))
def test_power_cuts_lose_and_damage_nothing_that_is_listed(
    seed: int, machine: Machine, undisturbed: Undisturbed
) -> None:
    chance = random.Random(seed)
    empty(machine.disk)
    if chance.random() < 0.7:  # a folder that is made by the run is often lost as a whole
        (machine.disk / "out").mkdir()
    for _ in range(chance.randint(1, 3)):
        cut = chance.randint(1, undisturbed.n_calls)
        ended = machine.run("files", cut=cut, power=chance, pause=chance.choice(PAUSES))
        assert ended in (None, ("", ""))  # after a cut, a run may need fewer calls
        check_whole(machine, undisturbed)
    check_resumed(machine, undisturbed)


@pytest.mark.parametrize("seed", range(10 if MANY else 3))
def test_a_power_cut_right_after_a_run_changes_nothing(
    seed: int, machine: Machine, undisturbed: Undisturbed
) -> None:
    empty(machine.disk)
    assert machine.run("files", power=random.Random(seed)) == ("", "")
    assert wc.verify_dataset(machine.disk / "out").ok
    assert results(machine) == undisturbed.results


@pytest.mark.slow
def test_the_simulated_disk_loses_what_is_not_synced(machine: Machine, undisturbed: Undisturbed) -> None:
    """Without syncing, the same power cuts do damage results, so the test above can fail."""
    n_damaged = 0
    for seed in range(4):
        empty(machine.disk)
        (machine.disk / "out").mkdir()
        cut = undisturbed.n_calls // 2
        assert machine.run("files", cut=cut, power=random.Random(seed), durable=False) is None
        n_damaged += any(content != undisturbed.results[name] for name, content in results(machine).items())
    assert n_damaged


@pytest.mark.slow
def test_killed_many_times_in_a_row(machine: Machine, undisturbed: Undisturbed) -> None:
    chance, n_killed = random.Random(0), 0
    empty(machine.disk)
    for _ in range(30 if MANY else 8):
        cut = chance.randint(1, undisturbed.n_calls // 2)
        n_killed += machine.run("files", cut=cut, pause=chance.choice(PAUSES)) is None
        check_whole(machine, undisturbed)
    assert n_killed >= 4
    check_resumed(machine, undisturbed)


ERRORS = (errno.ENOSPC, errno.EIO, errno.EACCES, errno.EROFS, errno.EDQUOT)
CALLS = ("open", "write", "write", "write", "fsync", "rename", "mkdir", "unlink", "open mkdir rename unlink")


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(40 if MANY else 10))
def test_errors_of_the_disk_stop_a_run_which_can_be_resumed(
    seed: int, machine: Machine, undisturbed: Undisturbed
) -> None:
    chance = random.Random(seed)
    empty(machine.disk)
    ended = machine.run(
        "files",
        calls=CALLS[seed % len(CALLS)],
        fault=chance.choice(ERRORS),
        first=chance.randint(1, 30),
        n_faults=chance.choice([1, 1 << 30]),
        pause=chance.choice(PAUSES),
    )
    assert ended is not None
    if ended.error:
        assert ended.error in ("OSError", "InvalidInputError"), ended
        assert str(machine.disk / "out") in ended.message
        assert ended.message.count("\n") == 0
    else:
        assert results(machine) == undisturbed.results
    check_resumed(machine, undisturbed)


def test_short_writes_of_a_run_are_completed(machine: Machine, undisturbed: Undisturbed) -> None:
    empty(machine.disk)
    assert machine.run("files", calls="write", fault=SHORT) == ("", "")
    assert results(machine) == undisturbed.results


# Single files


WRITES: dict[str, tuple[str, ...]] = {
    "save": ("save", "x.wc"),
    "report": ("report", "x.html"),
    "--out x.parquet": ("command", "--out", "x.parquet"),
    "--out x.csv": ("command", "--out", "x.csv"),
    "--report x.html": ("command", "--report", "x.html"),
}
if MANY:
    WRITES |= {f"--out x.{kind}": ("command", "--out", f"x.{kind}") for kind in ("tsv", "arrow", "jsonl")}
FAULTS: dict[str, dict[str, Any]] = {
    "a full disk": {"calls": "write", "fault": errno.ENOSPC},
    "an error of a write": {"calls": "write", "fault": errno.EIO, "n_faults": 1},
    "an error of a sync": {"calls": "fsync", "fault": errno.EIO, "n_faults": 1},
    "no permission": {"calls": "open", "fault": errno.EACCES},
    "no permission later": {"calls": "open", "fault": errno.EACCES, "first": 2},
    "a read-only mount": {"calls": "open mkdir rename link unlink", "fault": errno.EROFS},
    "an error of a rename": {"calls": "rename link open", "fault": errno.EIO, "first": 3},
}


def write(machine: Machine, what: str, *force: str, **faults: Any) -> Ended | None:
    task, *arguments = WRITES[what]
    return machine.run(task, *arguments, *(force if task == "command" else ()), **faults)


@pytest.mark.slow
@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("what", WRITES)
def test_a_file_is_written_completely_or_not_at_all(what: str, fault: str, machine: Machine) -> None:
    name, faults = WRITES[what][-1], FAULTS[fault]
    for old in (None, b"precious"):
        empty(machine.disk)
        if old is not None:
            (machine.disk / name).write_bytes(old)
        ended = write(machine, what, *["--force"] * (old is not None), **faults)
        assert ended is not None
        assert ended.error in ("OSError", "SystemExit"), ended
        assert name in ended.message
        assert os.strerror(faults["fault"]) in ended.message
        assert ended.message.strip().count("\n") == 0
        found = {path.name: path.read_bytes() for path in machine.disk.iterdir()}
        assert found == ({} if old is None else {name: old})


@pytest.mark.parametrize("what", WRITES)
def test_short_writes_are_completed_and_power_cuts_come_too_late(what: str, machine: Machine) -> None:
    name = WRITES[what][-1]
    empty(machine.disk)
    assert write(machine, what) == ("", "")
    whole = (machine.disk / name).read_bytes()
    for seed in range(3):
        assert write(machine, what, "--force", power=random.Random(seed)) == ("", "")
        assert (machine.disk / name).read_bytes() == whole
    assert write(machine, what, "--force", calls="write", fault=SHORT) == ("", "")
    assert {path.name: path.read_bytes() for path in machine.disk.iterdir()} == {name: whole}


@pytest.mark.parametrize("error", [errno.EPERM, errno.EOPNOTSUPP, errno.ENOSYS])
def test_new_files_are_written_where_there_are_no_links(error: int, machine: Machine) -> None:
    empty(machine.disk)
    assert write(machine, "--out x.csv", calls="link", fault=error) == ("", "")
    assert [path.name for path in machine.disk.iterdir()] == ["x.csv"]
    assert (machine.disk / "x.csv").read_text().count("\n") == 401
    ended = machine.run("write_new", "x.csv", calls="link", fault=error)
    message = f"[Errno {errno.EEXIST}] File exists: '{machine.disk / 'x.csv'}'"
    assert ended == ("OSError", message)
    assert (machine.disk / "x.csv").read_text().count("\n") == 401  # not replaced
    ended = machine.run("write_new", "y", calls="link rename", fault=error)
    assert ended == ("OSError", f"[Errno {error}] {os.strerror(error)}: '{machine.disk / 'y'}'")
    assert [path.name for path in machine.disk.iterdir()] == ["x.csv"]  # the reserved name is free again


def test_save_on_a_read_only_mount_names_the_file_of_the_user(machine: Machine) -> None:
    empty(machine.disk)
    ended = write(machine, "save", **FAULTS["a read-only mount"])
    assert ended == ("OSError", f"[Errno 30] Read-only file system: '{machine.disk / 'x.wc'}'")
