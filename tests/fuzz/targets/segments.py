"""`wc.load` of segmentations: damaged files, and files with a right checksum and arbitrary contents."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import numpy as np

import whycluster as wc
from tests.contracts.pipelines import CASES, DATA, groups
from tests.fuzz.choices import Choices
from tests.fuzz.engine import Target
from tests.fuzz.targets.load import write
from tests.segments.storage.test_saving import contents
from tests.segments.test_segmentation import customers

_PIPELINES = ("standard", "quantile", "bins", "power, then pca", "sparse projection", "encoded", "k best")


def make(folder: Path) -> Target:
    path = folder / "file"
    seeds = []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for name in _PIPELINES:
            X = DATA[CASES[name].data]()
            model = CASES[name].pipeline.fit(X, groups(X))
            made = wc.Segmentation.of(model, X, measure_quality=False)
            seeds.append((contents(made, path), X[:3]))
        frame = customers(n=60)
        seeds.append((contents(wc.segment(frame, 2), path), frame[:3]))

    def run(choices: Choices) -> None:
        (facts, arrays), rows = choices.pick(seeds)
        write(choices, facts, arrays, path)
        _use(wc.load(path), rows, path)

    return run


def _use(loaded: Any, rows: Any, path: Path) -> None:
    repr(loaded)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with np.errstate(all="ignore"):
            loaded.assign(rows)
            loaded.explain(rows, check=False).top()
    wc.save(loaded, path)
    wc.load(path)
