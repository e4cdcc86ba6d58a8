"""Runs tasks in a process with the shim, each in a fork of it, so that libraries are imported only once.

Reads one task per line as JSON, and answers with one line: how it ended.
"""

from __future__ import annotations

import contextlib
import ctypes
import importlib
import io
import json
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

import whycluster as wc
from whycluster import cli
from whycluster.data.files import replacing
from whycluster.engines.files import run_state

USED = ["jinja2", "polars", "pyarrow.csv", "pyarrow.parquet", "safetensors.numpy", "sklearn.cluster"]
USED += [f"whycluster.{name}" for name in ("cli.explain", "cli.report", "report", "segments.storage.saving")]
CENTERS = np.array([[0.0, 0, 0], [4, 0, 1], [0, 5, 0]])


def explain_files(disk: Path, pause: float = 0.0, **options: Any) -> None:
    """Explain a folder; with no pause, every result is synced and listed by itself."""
    run_state._PAUSE = pause
    wc.explain_dataset(CENTERS, disk.parent / "in", disk / "out", output="both", **options)


def explained(disk: Path) -> Any:
    return wc.explain(CENTERS, np.loadtxt(disk.parent / "table.csv", delimiter=",", skiprows=1))


def save(disk: Path, name: str) -> None:
    wc.save(explained(disk), disk / name)


def report(disk: Path, name: str) -> None:
    explained(disk).report(disk / name)


def write_new(disk: Path, name: str) -> None:
    with replacing(disk / name, new=True) as temporary:
        temporary.write_text("new")


def explain_input(disk: Path, name: str, **options: Any) -> str:
    """Explain a file or a folder beside the disk, and return the summary."""
    found = wc.explain_dataset(CENTERS, disk.parent / name, disk / "out", output="both", **options)
    return f"{found.summary} {found.parts}"


def load(disk: Path, name: str) -> str:
    return str(wc.load(disk.parent / name).describe(0))


def verify(disk: Path, name: str) -> str:
    found = wc.verify_dataset(disk.parent / name)
    return f"{found} {found.n_rows}"


def run_command(disk: Path, *arguments: str) -> str:
    """Run the command; an error is what it prints."""
    os.chdir(disk)
    with (
        contextlib.redirect_stderr(io.StringIO()) as errors,
        contextlib.redirect_stdout(io.StringIO()) as printed,
    ):
        code = cli.main(arguments)
    if code:
        raise SystemExit(f"{code}: {errors.getvalue()}{printed.getvalue()}")
    return printed.getvalue()


def command(disk: Path, *arguments: str) -> None:
    run_command(disk, "explain", "../table.csv", "--k", "3", "--quiet", *arguments)


TASKS: dict[str, Callable[..., str | None]] = {
    "files": explain_files,
    "save": save,
    "report": report,
    "write_new": write_new,
    "command": command,
    "explain_input": explain_input,
    "load": load,
    "verify": verify,
    "run_command": run_command,
}


def run(task: dict[str, Any]) -> None:
    """Run a task in this process, and write how it ended."""
    places = [os.fsencode(task[name]) for name in ("disk", "above", "log", "graveyard")]
    first, n = ctypes.c_long(task["first"]), ctypes.c_long(task["n_faults"])
    shim = ctypes.CDLL(os.environ["LD_PRELOAD"])
    shim.shim_arm(*places, ctypes.c_long(task["cut_at"]), task["calls"].encode(), task["fault"], first, n)
    ended: dict[str, Any] = {"error": "", "message": ""}
    try:
        ended["result"] = TASKS[task["name"]](Path(task["disk"]), *task["arguments"], **task["options"])
    except BaseException as error:
        kind = OSError if isinstance(error, OSError) else type(error)
        ended = {"error": kind.__name__, "message": str(error)}
    ended["n_matching"] = shim.shim_count()
    Path(task["answer"]).write_text(json.dumps(ended))


def main() -> None:
    for name in USED:
        importlib.import_module(name)
    for line in sys.stdin:
        task = json.loads(line)
        child = os.fork()
        if child == 0:
            run(task)
            os._exit(0)
        _, status = os.waitpid(child, 0)
        print(status, flush=True)


if __name__ == "__main__":
    main()
