"""The options of the command: any combination ends in a result or in one line that names the problem."""

from __future__ import annotations

import contextlib
import io
import os
import shutil
from pathlib import Path

import numpy as np
from sklearn.cluster import KMeans
from sklearn.ensemble import RandomForestClassifier

from tests.fuzz import fits
from tests.fuzz.choices import Choices
from tests.fuzz.engine import Target
from whycluster.cli import main

_VALUES = (
    "",
    "0",
    "1",
    "2",
    "-1",
    "auto",
    "x",
    "kind",
    "num",
    "id",
    "noise",
    "a,b",
    "x,num",
    "1e999",
    "nan",
    ",",
)
_MORE = (
    "\udcff",
    "^x$",
    "*",
    "\t",
    ";",
    "utf-16",
    "idna",
    "NA",
    ".",
    "é",
    "--k",
    "joint",
    "contrast",
    "999999999",
)
_VALUED = (
    *("--k", "--labels", "--columns", "--ignore", "--id", "--target", "--against", "--rule", "--beta"),
    *("--delimiter", "--decimal", "--encoding", "--missing", "--sheet", "--seed", "--top", "--rows", "--to"),
    *("--id-column", "--methods", "--repeats", "--threshold", "--model", "--invalid", "--title", "--out"),
)
_FLAGS = ("--quiet", "--json", "--force", "--checks", "--help", "--version", "--no-durable")
_LIKELY = {
    "--k": ("2", "3", "auto"),
    "--columns": ("x", "x,num", "kind"),
    "--ignore": ("kind", "x"),
    "--id": ("id", "r1", "0"),
    "--labels": ("kind", "label"),
    "--out": ("out.csv", "out.parquet", "out", "out.jsonl", "out.xlsx"),
    "--to": ("0", "1"),
    "--target": ("0", "1", "a"),
    "--against": ("0", "1", "b"),
    "--rule": ("joint", "contrast", "sequential"),
    "--decimal": (".", ","),
}


def make(folder: Path) -> Target:
    fits.remember(KMeans, RandomForestClassifier)  # the tables are always the same
    rng = np.random.default_rng(0)
    rows = [f"r{i},{rng.random():.3f},{i % 3 * 5},{'ab'[i % 2]},{i % 3 - 1}" for i in range(12)]
    (folder / "in").mkdir()
    for name in ("table.csv", "in/a.csv", "in/b.csv"):
        (folder / name).write_text("\n".join(["id,x,num,kind,label", *rows, ""]))
    (folder / "bad.csv").write_text("x,y\n1\n2,3,4\n")

    def run(choices: Choices) -> None:
        os.chdir(folder)  # the process is the target's own
        try:
            _check(_arguments(choices))
        finally:
            for path in folder.glob("out*"):
                shutil.rmtree(path) if path.is_dir() else path.unlink()

    return run


def _arguments(choices: Choices) -> list[str]:
    command = choices.pick(
        ("explain", "explain", "row", "compare", "rules", "evaluate", "report", "verify", "models", "x")
    )
    file = choices.pick(
        ("table.csv", "table.csv", "table.csv", "in", "bad.csv", "none.csv", "", "*.csv", ".")
    )
    arguments = [command, file]
    if command == "compare":
        arguments += [choices.pick(("0", "1", "a", "noise")), choices.pick(("0", "1", "b", "-1"))]
    if command == "row" and not choices.one_in(8):
        arguments += ["--id", choices.pick(("r1", "0", "zzz"))]
    if command == "report":
        arguments += ["--out", "out.html"]
    for _ in range(choices.below(5)):
        if choices.one_in(6):
            arguments.append(choices.pick(_FLAGS))
            continue
        option = choices.pick(_VALUED)
        likely = _LIKELY.get(option, ()) if not choices.one_in(3) else ()
        arguments += [option, choices.pick(likely or (*_VALUES, *_MORE))]
    if choices.one_in(10):
        arguments.insert(choices.below(len(arguments) + 1), choices.pick((*_VALUES, *_MORE)))
    return arguments


def _check(arguments: list[str]) -> None:
    output, errors = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(output), contextlib.redirect_stderr(errors):
        code = main(arguments)
    said = errors.getvalue()
    assert code in (0, 1, 2), (arguments, code, said)
    assert "unexpected " not in said.replace("unexpected extra argument", ""), (arguments, said)
    assert "Traceback" not in said, (arguments, said)
    assert code == 0 or said.strip() or output.getvalue().strip(), (arguments, "says nothing")
