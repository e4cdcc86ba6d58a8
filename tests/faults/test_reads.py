"""Errors of the disk while files are read: one clear error, or the whole result.

``make test`` tries a few moments. ``make faults`` tries many more.
"""

from __future__ import annotations

import contextlib
import errno
import gzip
import io
import random
import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

for _library in ("jinja2", "polars", "pyarrow", "safetensors"):
    pytest.importorskip(_library, reason=f"{_library} is not installed")

import numpy as np
import polars as pl

import whycluster as wc
from tests.faults.machine import SHORT, Machine
from tests.faults.test_faults import CENTERS, MANY, empty
from whycluster import cli


class Read(NamedTuple):
    """A task that reads files.

    Attributes
    ----------
    task : the task and its arguments; see worker.py
    names : of which an error names at least one
    before : the folder of results that the task resumes, or None
    """

    task: tuple[str, ...]
    names: tuple[str, ...]
    before: str | None = None


def _command(*arguments: str) -> tuple[str, ...]:
    return ("run_command", *arguments)


PARTS = ("in", "day=1", "part-0.parquet", "part-1.parquet", "out")
TEXTS = ("csv", "a.csv", "b.csv.gz", "out")
TO_FOLDER = ("--k", "3", "--quiet", "--out", "out")
READS = {
    "explain_dataset of Parquet": Read(("explain_input", "in"), PARTS),
    "explain_dataset of CSV": Read(("explain_input", "csv"), TEXTS),
    "explain_dataset, resumed": Read(("explain_input", "in"), PARTS, "half"),
    "load": Read(("load", "saved.wc"), ("saved.wc",)),
    "verify_dataset": Read(("verify", "done"), ("done",)),
    "whycluster verify": Read(_command("verify", "../done"), ("../done",)),
    "whycluster explain in/": Read(_command("explain", "../in", *TO_FOLDER), PARTS),
    "whycluster explain csv/": Read(_command("explain", "../csv", *TO_FOLDER), TEXTS),
    "whycluster explain in/, resumed": Read(_command("explain", "../in", *TO_FOLDER), PARTS, "commanded"),
    "whycluster explain --model": Read(
        _command("explain", "../in", "--model", "../net.wc", "--quiet", "--out", "out"), (*PARTS, "net.wc")
    ),
    "whycluster report": Read(
        _command("report", "../table.csv", "--k", "3", "--out", "x.html"), ("table.csv", "x.html")
    ),
}
for _kind in ("csv", "csv.gz", "parquet", "arrow", "jsonl", "xlsx"):
    READS[f"whycluster explain table.{_kind}"] = Read(
        _command("explain", f"../table.{_kind}", "--k", "3", "--out", "x.csv"), (f"table.{_kind}", "x.csv")
    )
CALLS = "read open_read map list"
ERRORS = (errno.EIO, errno.EACCES)


def table(n_rows: int, rng: np.random.Generator) -> pl.DataFrame:
    X = CENTERS[rng.integers(3, size=n_rows)] + rng.normal(size=(n_rows, 3))
    return pl.DataFrame(X, schema=["a", "b", "c"])


@pytest.fixture(scope="module")
def machine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Machine]:
    place, rng = tmp_path_factory.mktemp("machine"), np.random.default_rng(0)
    machine = Machine(place)
    for folder in ("in/day=1", "csv"):
        (place / folder).mkdir(parents=True)
    for name in ("part-0", "part-1", "day=1/part-0"):
        table(300, rng).write_parquet(place / f"in/{name}.parquet")
    table(20_000, rng).write_csv(place / "csv" / "a.csv")  # more than is read at a time
    frame = table(300, rng)
    (place / "csv" / "b.csv.gz").write_bytes(gzip.compress(frame.write_csv().encode()))
    frame.write_csv(place / "table.csv")
    (place / "table.csv.gz").write_bytes(gzip.compress(frame.write_csv().encode()))
    frame.write_parquet(place / "table.parquet")
    frame.write_ipc(place / "table.arrow")
    frame.write_ndjson(place / "table.jsonl")
    frame.write_excel(place / "table.xlsx")
    wc.save(wc.explain(CENTERS, frame.to_numpy()), place / "saved.wc")
    wc.save(wc.neuralize(CENTERS), place / "net.wc")
    wc.explain_dataset(CENTERS, place / "in", place / "done", output="both")
    shutil.copytree(place / "done", place / "half")
    (place / "half" / "part-1.parquet").unlink()
    with contextlib.redirect_stdout(io.StringIO()):
        cli.main(["explain", str(place / "in"), "--k", "3", "--quiet", "--out", str(place / "commanded")])
    yield machine
    machine.close()


class Outcome(NamedTuple):
    """What a task printed or returned, and the files that it wrote, except descriptions of runs."""

    result: str
    files: dict[str, bytes]


def attempt(machine: Machine, what: str, **faults: Any) -> tuple[str, str, Outcome]:
    """Return the error and message of a task, and its outcome."""
    read = READS[what]
    empty(machine.disk)
    if read.before is not None:
        shutil.copytree(machine.place / read.before, machine.disk / "out")
    ended = machine.run(*read.task, **faults)
    assert ended is not None
    result = re.sub(r" \(. of 3 files already done\)", "", machine.result or "")  # some may be done again
    return *ended, Outcome(result, written(machine.disk))


def written(disk: Path) -> dict[str, bytes]:
    paths = [path for path in disk.rglob("*") if path.is_file() and not path.name.startswith("_whycluster")]
    return {path.relative_to(disk).as_posix(): path.read_bytes() for path in paths if path.suffix != ".npz"}


class Undisturbed:
    """The outcomes of the tasks without faults, and the number of their calls."""

    def __init__(self, machine: Machine) -> None:
        self.machine = machine
        self._found: dict[str, tuple[Outcome, int]] = {}

    def of(self, what: str) -> tuple[Outcome, int]:
        if what not in self._found:
            *ended, outcome = attempt(self.machine, what, calls=CALLS)
            assert ended == ["", ""]
            self._found[what] = outcome, self.machine.n_matching
        return self._found[what]


@pytest.fixture(scope="module")
def undisturbed(machine: Machine) -> Undisturbed:
    return Undisturbed(machine)


def check_error(error: str, message: str, names: tuple[str, ...]) -> None:
    """The error is one of ours, on one line, and names a file."""
    assert error in ("InvalidInputError", "OSError", "SystemExit"), (error, message)
    assert message.strip().count("\n") == 0
    assert any(name in message for name in names), message
    assert "unexpected" not in message
    if error == "SystemExit":
        assert message.startswith(("1: whycluster: ", "2: whycluster: ")), message


def check_rest(machine: Machine, what: str, whole: Outcome) -> None:
    """No half file is left, and the task succeeds if it is tried again."""
    if not (machine.disk / "out").exists():
        assert written(machine.disk).items() <= whole.files.items()
        return
    if (machine.disk / "out" / "_whycluster.json").exists():
        found = wc.verify_dataset(machine.disk / "out")
        assert found.changed == []
        assert set(found.missing) <= {"part-1.parquet"}  # of the run that is resumed
        for name in found.extra:  # not listed yet, but complete
            assert pl.read_parquet(machine.disk / "out" / name, glob=False).height in (300, 20_000)
    assert machine.run(*READS[what].task) == ("", "")
    assert wc.verify_dataset(machine.disk / "out").ok
    assert written(machine.disk).keys() == whole.files.keys()


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(40 if MANY else 1))
@pytest.mark.parametrize("what", READS)
def test_a_read_that_fails_is_an_error_or_changes_nothing(
    what: str, seed: int, machine: Machine, undisturbed: Undisturbed
) -> None:
    chance = random.Random(f"{what} {seed}")
    whole, n_calls = undisturbed.of(what)
    faults = {"calls": CALLS, "fault": chance.choice(ERRORS), "first": chance.randint(1, n_calls)}
    error, message, found = attempt(machine, what, n_faults=chance.choice([1, 1 << 30]), **faults)
    if error:
        check_error(error, message, READS[what].names)
        check_rest(machine, what, whole)
    else:
        assert found == whole


@pytest.mark.parametrize("what", READS)
def test_short_reads_are_completed(what: str, machine: Machine, undisturbed: Undisturbed) -> None:
    assert attempt(machine, what, calls="read", fault=SHORT) == ("", "", undisturbed.of(what)[0])
    assert machine.n_matching


@pytest.mark.parametrize("what", [what for what in READS if "table." in what or "report" in what])
def test_a_damaged_disk_never_ends_the_process(what: str, machine: Machine) -> None:
    """A file that polars maps into memory is read before: a page that cannot be read is a signal there."""
    error, message, found = attempt(machine, what, calls="read page", fault=errno.EIO)
    name = READS[what].task[2]
    assert (error, message) == (
        "SystemExit",
        f"2: whycluster: {name}: cannot be read: Input/output error.\n",
    )
    assert found.files == {}


MESSAGES = {
    "load": (
        "read",
        "InvalidInputError",
        "load: '{0}/saved.wc' must be readable; reading it failed (Input/output error).",
    ),
    "verify_dataset": (
        "read",
        "InvalidInputError",
        "verify_dataset: '{0}/done/_whycluster.json' must be readable; reading it failed (Input/output "
        "error).",
    ),
    "whycluster verify": (
        "list",
        "SystemExit",
        "2: whycluster: verify: all results must be readable; reading '../done' failed (Input/output "
        "error).\n",
    ),
    "whycluster explain csv/": (
        "read",
        "SystemExit",
        "2: whycluster: explain: the rows to cluster must be drawn from all parts; 'a.csv': it cannot be "
        "read ([Errno 5] Error reading bytes from file. Detail: [errno 5] Input/output error).\n",
    ),
}


@pytest.mark.parametrize("what", MESSAGES)
def test_messages(what: str, machine: Machine) -> None:
    calls, error, message = MESSAGES[what]
    found = attempt(machine, what, calls=calls, fault=errno.EIO, n_faults=1)
    assert found[:2] == (error, message.format(machine.place))


def test_verify_names_the_result_that_cannot_be_read(machine: Machine) -> None:
    faults = {"calls": "open_read", "fault": errno.EACCES, "first": 2, "n_faults": 1}
    assert attempt(machine, "verify_dataset", **faults)[:2] == (
        "InvalidInputError",
        f"verify_dataset: all results must be readable; reading '{machine.place}/done/_summary.csv' failed "
        "(Permission denied).",
    )


def test_a_sample_that_cannot_be_read_is_not_replaced(machine: Machine) -> None:
    """The parts may have changed since it was drawn."""
    what, faults = (
        "whycluster explain in/, resumed",
        {"calls": "open_read", "fault": errno.EIO, "n_faults": 1},
    )
    error, message, _ = attempt(machine, what, **faults)
    assert (error, message) == (
        "SystemExit",
        "2: whycluster: explain: the sample in 'out/_whycluster.sample' must be readable; it cannot be read "
        "([Errno 5] Failed to open local file 'out/_whycluster.sample'. Detail: [errno 5] Input/output "
        "error).\n",
    )
