"""The targets. Each module has a function ``make(folder)`` that returns what is executed."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from typing import NamedTuple

from tests.fuzz.engine import Target


class Fuzzed(NamedTuple):
    """A target: its description, how many executions `make test` does, and how many share a model."""

    title: str
    runs: int
    together: int = 1


TARGETS = {
    "load": Fuzzed("`wc.load` of damaged and forged files, and use of the loaded objects", 1500),
    "segments": Fuzzed("`wc.load` of damaged and forged segmentations, and use of the loaded ones", 300),
    "state": Fuzzed(
        "`verify_dataset` and resumed runs of `explain_dataset` after damage to their folder", 400
    ),
    "parquet": Fuzzed("`explain_dataset` of damaged Parquet files", 400),
    "readers": Fuzzed("delimited files, in the command and in `explain_dataset`", 400),
    "options": Fuzzed("the options of the command", 60),
    "frames": Fuzzed("pipelines on random frames, compared with a slow reference", 160, together=8),
    "evaluation": Fuzzed("`evaluation.flipping_auc`, `compare` and the checks", 150),
}


def make(name: str, folder: Path) -> Target:
    """Return a target that may write to ``folder``."""
    target: Target = import_module(f"{__name__}.{name}").make(folder)
    return target
