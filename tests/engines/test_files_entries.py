"""Every entry of a folder is read, hidden by a rule, named in a warning, or an error."""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import warnings
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

pa = pytest.importorskip("pyarrow", reason="pyarrow is not installed")

import pyarrow.parquet as pq

import whycluster as wc
from whycluster.engines.files.parts import find_parts

READ = ["a.parquet", "b.PQ", "c.parq", "d.csv", "e.tsv", "f.csv.gz", "g.csv.bz2", "h.tsv.zst", "link.csv"]
HIDDEN = [".x.csv", "_SUCCESS", "_temporary/a.csv", ".git/b.csv", "._c.parquet", "_delta_log/0.json"]
SKIPPED = [
    *("part-00001", "i.csv.zip", "j.csv.xz", "k.csv.lz4", "l.parquet.gz", "m.dat", "n.tab", "o.txt", "p.psv"),
    *("q.xls", "r.xlsx", "s.json", "t.jsonl.gz", "u.arrow", "v.feather", "w.orc", "x.avro", "README.md"),
    *("pipe.csv", "socket.parquet", "csv", "y.csv.tmp", "z.csv~", "a.parquet.crc", "link.txt"),
]


def create(folder: Path, names: list[str]) -> None:
    for name in names:
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        if name.startswith("link"):
            path.symlink_to(sys.executable)
        elif name == "pipe.csv":
            os.mkfifo(path)
        elif name == "socket.parquet":
            with socket.socket(socket.AF_UNIX) as server:
                server.bind(str(path))
        else:
            path.touch()


@pytest.fixture
def place() -> Iterator[Path]:
    """Return a short path, as sockets need it, that other users can reach."""
    folder = Path(tempfile.mkdtemp(prefix="wc"))
    folder.chmod(0o755)
    yield folder
    for each, _, _ in os.walk(folder):
        os.chmod(each, 0o755)
    shutil.rmtree(folder)


@pytest.mark.parametrize("below", ["", "sub", "a.csv", "year=2020/month=1"])
def test_every_entry_is_accounted_for(below: str, place: Path) -> None:
    create(place / below, [*READ, *HIDDEN, *SKIPPED])
    (place / below / "empty").mkdir()
    (place / below / "loop").symlink_to(place)
    with pytest.warns(wc.FilesWarning) as warned:
        found = find_parts(place, "explain")
    assert [part.name for part in found] == sorted(str(Path(below, name)) for name in READ)
    assert str(warned[0].message).startswith(f"explain: skipped {len(SKIPPED)} files in the folder: [")
    entries = [path for path in (place / below).rglob("*") if path.name == "loop" or not path.is_dir()]
    assert len(entries) == len(READ) + len(HIDDEN) + len(SKIPPED) + 1  # and the loop, which adds no file


@pytest.mark.parametrize(("pattern", "names"), [("*", ["a.csv"]), ("[!e]*", ["a.csv"]), ("**", None)])
def test_a_folder_that_matches_a_pattern_is_read_or_warned_of(
    pattern: str, names: list[str] | None, place: Path
) -> None:
    create(place, ["a.csv", "sub/b.csv", "deep/er/c.csv", "_hidden/d.csv", "z/.hidden"])
    (place / "empty").mkdir()
    if names is None:
        found = find_parts(str(place / pattern), "explain")  # warnings are errors
        assert [part.name for part in found] == ["a.csv", "deep/er/c.csv", "sub/b.csv"]
        return
    with pytest.warns(wc.FilesWarning) as warned:
        found = find_parts(str(place / pattern), "explain")
    assert [part.name for part in found] == names
    assert [str(each.message) for each in warned] == [
        "explain: skipped 2 folders that match the pattern: ['deep', 'sub']. To read the files in a "
        "folder, pass the folder itself, or a pattern that ends with '**'."
    ]


def test_every_skipped_entry_is_named(place: Path) -> None:
    for number, name in enumerate(SKIPPED):
        create(place / str(number), ["a.parquet", name])
        with pytest.warns(wc.FilesWarning) as warned:
            find_parts(place / str(number), "explain")
        assert str(warned[0].message) == (
            f"explain: skipped 1 file in the folder: [{name!r}]. Only files of type .parquet, .parq, "
            ".pq, .csv, .tsv are read."
        )


@pytest.mark.parametrize("name", ["x.parquet", "x", "sub/x.csv", "x.txt"])
@pytest.mark.parametrize("pattern", ["", "**/*"])
def test_a_link_to_nothing_is_an_error(name: str, pattern: str, tmp_path: Path) -> None:
    create(tmp_path / "in", ["a.csv", "sub/b.csv"])
    (tmp_path / "in" / name).symlink_to("gone")
    with pytest.raises(wc.InvalidInputError) as error:
        find_parts(str(tmp_path / "in" / pattern), "explain")
    assert str(error.value) == (
        f"explain: every file in data must be readable; '{tmp_path}/in/{name}' is a link to 'gone', which "
        "cannot be read (No such file or directory). Remove the link, or restore the file."
    )


def test_hidden_links_to_nothing_are_hidden(tmp_path: Path) -> None:
    create(tmp_path, ["a.csv"])
    (tmp_path / ".#a.csv").symlink_to("user@host.1234")  # the lock of an editor
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert [part.name for part in find_parts(tmp_path, "explain")] == ["a.csv"]


CHILD = """
import json, os, sys
import pyarrow.csv, pyarrow.parquet
import whycluster as wc
from whycluster.engines.files.parts import PartError, find_parts, reading
if os.geteuid() == 0:
    os.setgroups([]); os.setgid(65534); os.setuid(65534)
results = []
for data in sys.argv[1:]:
    try:
        found = find_parts(data, "explain")
        for part in found:
            with reading():
                part.look()
        results.append([part.name for part in found])
    except (wc.WhyClusterError, PartError) as error:
        results.append(str(error))
print(json.dumps(results))
"""


@pytest.mark.slow
def test_what_a_user_without_rights_cannot_read_is_an_error(place: Path) -> None:
    for case in ("all", "folder", "sub", "link", "file"):
        for name in ("a.parquet", "sub/b.parquet"):
            (place / case / name).parent.mkdir(parents=True, exist_ok=True)
            pq.write_table(pa.table({"x": np.arange(3.0)}), place / case / name)
    (place / "away").mkdir()
    shutil.move(place / "link" / "a.parquet", place / "away")
    (place / "link" / "a.parquet").symlink_to(place / "away" / "a.parquet")
    for name in ("folder", "sub/sub", "away", "file/a.parquet"):
        (place / name).chmod(0)
    data = [place / "all", place / "folder", place / "sub", f"{place}/sub/*/*.parquet", place / "link"]
    found = subprocess.run(
        [sys.executable, "-c", CHILD, *map(str, data), str(place / "file")],
        capture_output=True,
        text=True,
        check=True,
    )
    closed = (
        "explain: every folder in data must be readable; reading {!r} failed (Permission denied). Change its "
        "permissions, or pass a list of files."
    )
    assert json.loads(found.stdout) == [
        ["a.parquet", "sub/b.parquet"],
        closed.format(f"{place}/folder"),
        closed.format(f"{place}/sub/sub"),
        closed.format(f"{place}/sub/sub"),
        f"explain: every file in data must be readable; '{place}/link/a.parquet' is a link to "
        f"'{place}/away/a.parquet', which cannot be read (Permission denied). Remove the link, or restore "
        "the file.",
        f"it cannot be read ([Errno 13] Failed to open local file '{place}/file/a.parquet'. Detail: [errno "
        "13] Permission denied)",
    ]


@pytest.mark.parametrize("output", ["rows", "summary"])
def test_a_folder_with_the_name_of_an_aggregate(output: str, tmp_path: Path) -> None:
    table = pa.table({"x": np.arange(9.0), "y": np.arange(9.0) % 3})
    for name in ("a.parquet", "a.parquet.npz/b.parquet"):
        (tmp_path / "in" / name).parent.mkdir(parents=True, exist_ok=True)
        pq.write_table(table, tmp_path / "in" / name)
    with pytest.raises(wc.InvalidInputError) as error:
        wc.explain_dataset(np.eye(2), tmp_path / "in", tmp_path / "out", output=output)
    assert str(error.value) == (
        "explain_dataset: each part must have its own result file; the result of 'a.parquet' would be the "
        "file "
        "'a.parquet.npz', but the result of 'a.parquet.npz/b.parquet' needs a folder of that name. Rename "
        "one of them."
    )
