"""Check whether data have changed since they were explained, because explanations read the data again."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from whycluster.core.attribution import CodedQuery, explaining_why_out_of_range, numpy_passes
from whycluster.core.energies import Energy
from whycluster.core.passes import Block
from whycluster.core.rows import Rows


def is_unchanged(energy: Energy, rows: Rows, query: CodedQuery, evidence: NDArray[Any]) -> bool:
    """Return whether the rows still have the evidence that they had when explained, up to rounding.

    Equality is approximate, because the terms of a row may be summed in a different order than before, and
    because evidence is rounded to its dtype.
    """
    passes, differs = numpy_passes(energy, rows, query), list[int]()

    def work(block: Block) -> None:
        block.write_energies()
        h, x = block.h, block.x
        rounding = 1e-9 * np.maximum(h.max(axis=1), -h.min(axis=1)) + 1e-14 * np.einsum("bd,bd->b", x, x)
        now, then = passes.compete(block).evidence, evidence[block.rows]
        rounding += 100 * np.finfo(then.dtype).eps * np.abs(then) + np.finfo(then.dtype).tiny
        if (np.abs(now - then) > rounding).any():
            differs.append(block.start)

    with explaining_why_out_of_range(rows):
        passes.run(work)
    return not differs
