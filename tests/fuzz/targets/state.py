"""The folder of results of `explain_dataset`: its description and its files, damaged."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

import whycluster as wc
from tests.fuzz.choices import Choices
from tests.fuzz.engine import Target

CENTROIDS = np.array([[0.0, 0.0], [3.0, 1.0], [1.0, 4.0]])
_DESCRIPTION = "_whycluster.json"


def write_input(folder: Path) -> None:
    """Write two small Parquet files."""
    rng = np.random.default_rng(0)
    folder.mkdir()
    for name in ("a", "b"):
        x, y = 4 * rng.random((2, 12))
        pq.write_table(
            pa.table({"x": x, "y": y, "id": [f"{name}{i}" for i in range(12)]}), folder / f"{name}.parquet"
        )


def explain(data: Path, out: Path) -> Any:
    return wc.explain_dataset(
        CENTROIDS, data, out, columns=["x", "y"], output="both", workers=1, durable=False
    )


def make(folder: Path) -> Target:
    data, out = folder / "in", folder / "out"
    write_input(data)
    explain(data, out)
    files = {
        path.relative_to(out).as_posix(): path.read_bytes()
        for path in out.rglob("*")
        if path.is_file() and path.suffix != ".lock"
    }
    facts = json.loads(files[_DESCRIPTION])

    def restore() -> None:
        shutil.rmtree(out)
        for name, content in files.items():
            (out / name).parent.mkdir(parents=True, exist_ok=True)
            (out / name).write_bytes(content)

    def run(choices: Choices) -> None:
        restore()
        if choices.one_in(2):
            name = choices.pick([name for name in files if name != _DESCRIPTION])
            _damage(choices, out / name)
            _check_results(data, out, name, files, resume=choices.one_in(8))
            return
        if choices.one_in(4):
            _damage(choices, out / _DESCRIPTION)
        else:
            damaged = facts
            for _ in range(choices.between(1, 3)):
                damaged = choices.damaged_inside(damaged)
            (out / _DESCRIPTION).write_text(json.dumps(damaged), "utf-8")
        resumes = choices.one_in(8)
        try:
            str(wc.verify_dataset(out))
        finally:
            if resumes:
                str(explain(data, out).summary)

    return run


def _damage(choices: Choices, path: Path) -> None:
    if choices.one_in(8):
        path.unlink()
    else:
        path.write_bytes(choices.damaged(path.read_bytes()))


def _check_results(data: Path, out: Path, name: str, files: dict[str, bytes], resume: bool) -> None:
    """Check that damage to a result is noticed, and that a resumed run repairs it."""
    is_same = (out / name).exists() and (out / name).read_bytes() == files[name]
    assert wc.verify_dataset(out).ok == is_same, name
    if resume:
        explain(data, out)
        assert wc.verify_dataset(out).ok
        assert (out / name).read_bytes() == files[name], name
