"""Compare compiled loops for k-means with NumPy and numba: ``python -m benchmarks.compiled``.

`explain` runs with the loops of ``core/compiled/kmeans.c``, for AVX-512 and for AVX2 registers, and without
them, in blocks of NumPy. The numba version (`compiled_numba.py`, ``pip install numba``) uses the threads and
blocks of whycluster, and measures beta in the same way.
"""

from __future__ import annotations

import importlib
import math
import time
from collections.abc import Callable
from functools import partial
from importlib.metadata import distribution
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
from numpy.typing import NDArray

import whycluster as wc
from benchmarks.measure import geometric_mean, side_by_side, write
from benchmarks.speed import GRID, clustered
from whycluster.core.arrays import Floats
from whycluster.core.attribution import run_rows
from whycluster.core.compiled import loops
from whycluster.core.energies import SquaredEnergy
from whycluster.core.passes import Block, Workspace
from whycluster.data.table import ArrayTable

CELLS = [*GRID, (200_000, 50, 200)]
REPEATS = 7
PREDICT = "predict"
NUMPY, NUMBA, C512, C256 = "NumPy", "numba", "C, AVX-512", "C, AVX2"
# With more centroid values than this, our own matrix products take several times as long as those of BLAS.
MOST_IN_ONE_CALL = 1 << 13
REGISTERS = {NUMPY: 0, C256: 256, C512: 512}  # bits
NAMES = (NUMPY, NUMBA, C256, C512)
TOLERANCE = 1e-10


class Result:
    """The arrays of an explanation."""

    def __init__(self, n_rows: int, d: int) -> None:
        self.relevance = np.empty((n_rows, d))
        self.cluster, self.competitor = np.empty(n_rows, np.int64), np.empty(n_rows, np.int64)
        self.evidence = np.empty(n_rows)
        self.beta = math.nan


def explain(kernel: Any, whole: bool, model: Any, X: Floats) -> Result:
    """Explain by the rule min-take-most with measured beta.

    The kernel computes everything if ``whole``; otherwise BLAS computes the matrix products.
    """
    energy = SquaredEnergy(model.cluster_centers_)
    assert energy.offset is None
    result = Result(*X.shape)
    steps = (_Whole if whole else _Around)(kernel, energy, X, result)
    means: dict[int, float] = {}

    def first(block: Block) -> None:
        steps.forward(block.rows, steps.room(block.space, block.start, block.stop))
        means[block.start] = result.evidence[block.rows].sum() / len(X)

    def second(block: Block) -> None:
        h = steps.room(block.space, block.start, block.stop)
        if not steps.keeps_h:
            steps.forward(block.rows, h)
        steps.backward(block.rows, h, result.beta, block.space)

    run_rows(first, energy, ArrayTable.of(X))
    result.beta = 1.0 / math.fsum(means.values())
    run_rows(second, energy, ArrayTable.of(X))
    return result


class _Steps:
    """The forward and the backward step of a block, with the arrays that all blocks share."""

    def __init__(self, kernel: Any, energy: SquaredEnergy, X: Floats, result: Result) -> None:
        self.kernel, self.energy, self.X, self.result = kernel, energy, X, result
        self.K, self.d = energy.n_clusters, energy.n_features
        self.slopes = np.ascontiguousarray(energy.slopes)
        self.squares = np.ascontiguousarray(energy.squares)
        self.keeps_h = self.d >= self.K

    def check(self, total: float) -> None:
        """Raise if the sum is not finite, which finds any NaN or infinity, as in whycluster."""
        if not math.isfinite(total):
            raise ValueError("not finite")

    def room(self, space: Workspace, start: int, stop: int) -> Floats:
        """Return the memory for h of these rows."""
        raise NotImplementedError

    def forward(self, rows: slice, h: Floats) -> None:
        """Write h and the assignment of these rows."""
        raise NotImplementedError

    def backward(self, rows: slice, h: Floats, beta: float, space: Workspace) -> None:
        """Write the relevance of these rows."""
        raise NotImplementedError

    def assignment(self, rows: slice) -> tuple[NDArray[np.int64], NDArray[np.int64], Floats]:
        """Return views of the cluster, competitor and evidence of these rows, to be written."""
        result = self.result
        return result.cluster[rows], result.competitor[rows], result.evidence[rows]


class _Whole(_Steps):
    """Computes everything in the kernel; keeps h in the rows of the relevance, which overwrites it later."""

    def __init__(self, kernel: Any, energy: SquaredEnergy, X: Floats, result: Result) -> None:
        super().__init__(kernel, energy, X, result)
        self.wide = -(-self.K // 8) * 8
        self.by_feature, self.bias = np.zeros((self.d, self.wide)), np.zeros(self.wide)
        self.by_feature[:, : self.K], self.bias[: self.K] = self.slopes.T, energy._bias

    def room(self, space: Workspace, start: int, stop: int) -> Floats:
        return self.result.relevance[start:stop] if self.keeps_h else _by_rows(space.h, stop - start)

    def forward(self, rows: slice, h: Floats) -> None:
        sizes = (rows.stop - rows.start, self.d, self.K, self.wide)
        arrays = (self.by_feature, self.bias, h, h.shape[1], *self.assignment(rows))
        self.check(self.kernel.forward(self.X[rows], *sizes, *arrays))

    def backward(self, rows: slice, h: Floats, beta: float, space: Workspace) -> None:  # noqa: ARG002  # the signature of all candidates
        cluster, _, evidence = self.assignment(rows)
        sizes = (rows.stop - rows.start, self.d, self.K)
        arrays = (cluster, evidence, self.result.relevance[rows], np.empty((4, self.K)))
        self.kernel.backward(self.X[rows], *sizes, self.slopes, self.squares, h, h.shape[1], beta, *arrays)


class _Around(_Steps):
    """Computes matrix products with BLAS, and everything between them with the kernel."""

    def room(self, space: Workspace, start: int, stop: int) -> Floats:
        return _by_rows(self.result.relevance[start:stop] if self.keeps_h else space.h, stop - start, self.K)

    def forward(self, rows: slice, h: Floats) -> None:
        np.matmul(self.X[rows], self.slopes.T, out=h)
        self.check(self.kernel.settle(h, *h.shape, self.energy._bias, *self.assignment(rows)))

    def backward(self, rows: slice, h: Floats, beta: float, space: Workspace) -> None:
        cluster, _, evidence = self.assignment(rows)
        weights, scratch = _by_rows(space.weights, len(h)), space.scratch[: len(h)]
        self.kernel.weigh(h, *h.shape, beta, cluster, evidence, weights)
        self.energy.combine(self.X[rows], weights, self.result.relevance[rows], scratch)


def _by_rows(room: Floats, n_rows: int, width: int | None = None) -> Floats:
    """Return the first rows of a work array as a C-ordered array, whatever the order of the work array."""
    width = room.shape[1] if width is None else width
    flat = (room if room.flags.c_contiguous else room.T).reshape(-1)
    return flat[: n_rows * width].reshape(n_rows, width)


def check(result: Any, exp: wc.Explanation) -> None:
    """Stop if a result differs from that of NumPy."""
    named = isinstance(result, wc.Explanation)
    assert ((result.cluster_codes if named else result.cluster) == exp.cluster_codes).all()
    assert ((result.competitor_codes if named else result.competitor) == exp.competitor_codes).all()
    assert abs(result.beta * exp.evidence.mean() - 1.0) < TOLERANCE
    np.testing.assert_allclose(result.relevance, exp.relevance, rtol=TOLERANCE, atol=TOLERANCE)


def with_loops(bits: int, model: Any, X: Floats) -> wc.Explanation:
    """Call `explain` with the compiled loops for registers of this many bits; 0 for none."""
    loaded = loops.library()
    found = None if loaded is None or not bits else (loaded[0], bits)
    with patch.object(loops, "library", lambda: found):
        return wc.explain(model, X, rule="min-take-most")


def measure(numba: Any, n_rows: int, d: int, n_clusters: int) -> tuple[float, dict[str, float]]:
    """Return the seconds of `predict`, and how many times as long all others take.

    Times are divided by that of `predict` in the same round, since the load changes from round to round. For
    numba, the faster of its two versions counts.
    """
    X, model = clustered(n_rows, d, n_clusters)
    calls: dict[str, Callable[[], Any]] = {PREDICT: partial(model.predict, X)}
    for name, bits in REGISTERS.items():
        calls[name] = partial(with_loops, bits, model, X)
    for whole in (True, False) if d * n_clusters <= MOST_IN_ONE_CALL else (False,):
        calls[f"{NUMBA}, one call" if whole else NUMBA] = partial(explain, numba, whole, model, X)
    exp = calls[NUMPY]()
    for name, call in calls.items():
        if name != PREDICT:
            check(call(), exp)
    rounds = [side_by_side(calls, 1) for _ in range(REPEATS)]
    ratios = {name: float(np.median([times[name] / times[PREDICT] for times in rounds])) for name in calls}
    print(n_rows, d, n_clusters, {name: round(ratio, 2) for name, ratio in ratios.items()}, flush=True)
    best = {name: min(ratios[name], ratios.get(f"{name}, one call", math.inf)) for name in NAMES}
    return float(np.median([times[PREDICT] for times in rounds])), best


def weight_of_numba() -> tuple[Any, str]:
    """Return the numba kernel, and a sentence about the cost of using numba."""
    start = time.perf_counter()
    try:
        kernel = importlib.import_module("benchmarks.compiled_numba")
    except ImportError:
        raise SystemExit("benchmarks.compiled: numba must be installed. Run pip install numba.") from None
    loaded = time.perf_counter()
    X = np.random.default_rng(0).normal(size=(100, 3))
    model = type("Model", (), {"cluster_centers_": X[:2]})
    for whole in (True, False):
        explain(kernel, whole, model, X)
    ready = time.perf_counter()
    files = [file for name in ("numba", "llvmlite") for file in distribution(name).files or []]
    size = sum(Path(file.locate()).stat().st_size for file in files if Path(file.locate()).exists())
    return kernel, (
        f"numba and llvmlite together take {size / 2**20:.0f} MB on disk.\n"
        f"numba takes {loaded - start:.1f} s to import and {ready - loaded:.1f} s to compile these functions "
        "on their first call."
    )


def main() -> None:
    """Measure all sizes and write results/compiled.md."""
    loaded = loops.library()
    if loaded is None or loaded[1] < max(REGISTERS.values()):
        raise SystemExit(
            "benchmarks.compiled: the loops must be compiled, and the processor must have AVX-512."
        )
    numba, weight = weight_of_numba()
    lines = [
        "# Compiled loops compared with NumPy",
        "",
        "The table shows the time of each version relative to that of `KMeans.predict` on the same float64",
        f"data, as the median of {REPEATS} rounds. In each round, each version runs once. They use the same",
        "blocks and threads, and their relevance agrees to ten digits. For numba, the table shows the faster",
        "of two versions. One does everything in a single call for each block and pass (for up to",
        f"{MOST_IN_ONE_CALL:,} centroid values). The other uses BLAS for the matrix products and loops for",
        "everything between them.",
        "",
        f"| rows | d | K | predict, ms | {' | '.join(NAMES)} |",
        "|---:|---:|---:|---:|" + "---:|" * len(NAMES),
    ]
    ratios: dict[str, list[float]] = {name: [] for name in NAMES}
    for cell in CELLS:
        predict, best = measure(numba, *cell)
        for name in NAMES:
            ratios[name].append(best[name])
        shown = " | ".join(f"{best[name]:.1f}x" for name in NAMES)
        lines.append(f"| {cell[0]:,} | {cell[1]} | {cell[2]} | {predict * 1e3:.0f} | {shown} |")
    means = {name: geometric_mean(ratios[name]) for name in NAMES}
    lines.append(f"| geometric mean | | | | {' | '.join(f'{mean:.2f}x' for mean in means.values())} |")
    gains = ", ".join(f"{means[NUMPY] / means[name]:.2f}x ({name})" for name in NAMES[1:])
    size = loops.LIBRARY.stat().st_size / 1024
    lines += ["", f"The geometric means of the speeds relative to NumPy are as follows: {gains}.", "", weight]
    lines.append(f"The library compiled from C takes {size:.0f} kB.")
    write("compiled", "python -m benchmarks.compiled", lines)


if __name__ == "__main__":
    main()
