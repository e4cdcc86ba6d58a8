"""The cases of ``benchmarks.speed``, for asv.

asv installs each commit in an environment of its own, and measures all of them with these benchmarks as they
are now.
"""

from __future__ import annotations

import sys
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

import whycluster as wc

sys.path.append(str(Path(__file__).parents[2]))  # asv puts only the folder above this one on the path
from benchmarks import speed
from benchmarks.measure import side_by_side


class Speed:
    """The time of explaining all rows, alone and compared with `KMeans.predict`."""

    params: ClassVar = [f"{n_rows} rows, d = {d}, K = {n_clusters}" for n_rows, d, n_clusters in speed.GRID]
    param_names: ClassVar = ["size"]
    timeout = 300.0
    X: NDArray[np.float64]
    model: Any

    def setup(self, size: str) -> None:
        """Make the rows and fit the model."""
        self.X, self.model = speed.clustered(*speed.GRID[self.params.index(size)])

    def time_explain(self, size: str) -> None:
        """Explain all rows."""
        del size
        wc.explain(self.model, self.X)

    def track_ratio(self, size: str) -> float:
        """Return how many times as long explaining takes as predicting, both measured in turns."""
        del size
        explain = partial(wc.explain, self.model, self.X)
        seconds = side_by_side({"predict": partial(self.model.predict, self.X), "explain": explain}, 5)
        return seconds["explain"] / seconds["predict"]


Speed.track_ratio.unit = "times predict"  # type: ignore[attr-defined]  # asv reads this
