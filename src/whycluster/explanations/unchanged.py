"""Check whether data have changed since they were explained, because explanations read the data again."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from whycluster.core.attribution import CodedQuery, Workspace, read_energies, run_rows
from whycluster.core.energies import Energy
from whycluster.core.rows import Rows


def is_unchanged(energy: Energy, rows: Rows, query: CodedQuery, evidence: NDArray[Any]) -> bool:
    """Return whether the rows still give the same evidence as when they were explained, up to rounding.

    Equality is approximate, because the terms of a row may be summed in a different order than before, and
    because evidence is rounded to its dtype.
    """
    differs: list[int] = []

    def work(space: Workspace, start: int, stop: int) -> None:
        h = space.h[: stop - start]
        x = read_energies(energy, rows, space, start, stop, h)
        rounding = 1e-9 * np.maximum(h.max(axis=1), -h.min(axis=1)) + 1e-14 * np.einsum("bd,bd->b", x, x)
        now, then = query.assign(h, energy.contest, start, stop).evidence, evidence[start:stop]
        rounding += 100 * np.finfo(then.dtype).eps * np.abs(then)
        if (np.abs(now - then) > rounding).any():
            differs.append(start)

    run_rows(work, energy, rows)
    return not differs
