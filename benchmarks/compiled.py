"""Whether a compiled kernel is worth its weight: ``python -m benchmarks.compiled``.

`explain` of k-means with the loops of ``whycluster/fused.c``, for the registers of AVX-512 and of AVX2;
without them, in blocks of NumPy; and once more for numba (`compiled_numba.py`, ``pip install numba``), where
threads, blocks and what is measured for beta are those of whycluster.
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
from whycluster.core.attribution import Workspace, run_rows
from whycluster.core.compiled import loops
from whycluster.core.energies import SquaredEnergy
from whycluster.data.table import ArrayTable

CELLS = [*GRID, (200_000, 50, 200)]
REPEATS = 7
PREDICT = "predict"
NUMPY, NUMBA, C512, C256 = "NumPy", "numba", "C, AVX-512", "C, AVX2"
MOST_FUSED = 1 << 13  # values of all centroids: beyond, products of our own take several times those of BLAS
WAYS = {NUMPY: 0, C256: 256, C512: 512}
NAMES = (NUMPY, NUMBA, C256, C512)
TOLERANCE = 1e-10


class Answer:
    """What an explanation consists of."""

    def __init__(self, n_rows: int, d: int) -> None:
        self.relevance = np.empty((n_rows, d))
        self.cluster, self.competitor = np.empty(n_rows, np.int64), np.empty(n_rows, np.int64)
        self.evidence = np.empty(n_rows)
        self.beta = math.nan


def explain(kernel: Any, whole: bool, model: Any, X: Floats) -> Answer:
    """Rule min-take-most with beta measured, by a kernel: as a whole, or around the products of BLAS."""
    energy = SquaredEnergy(model.cluster_centers_)
    assert energy.offset is None
    answer = Answer(*X.shape)
    steps = (_Whole if whole else _Around)(kernel, energy, X, answer)
    means: dict[int, float] = {}

    def first(space: Workspace, start: int, stop: int) -> None:
        steps.forward(slice(start, stop), steps.room(space, start, stop))
        means[start] = answer.evidence[start:stop].sum() / len(X)

    def second(space: Workspace, start: int, stop: int) -> None:
        rows, h = slice(start, stop), steps.room(space, start, stop)
        if not steps.held:
            steps.forward(rows, h)
        steps.backward(rows, h, answer.beta, space)

    run_rows(first, energy, ArrayTable.of(X))
    answer.beta = 1.0 / math.fsum(means.values())
    run_rows(second, energy, ArrayTable.of(X))
    return answer


class _Steps:
    """One block forth and back, with the arrays that all blocks share."""

    def __init__(self, kernel: Any, energy: SquaredEnergy, X: Floats, answer: Answer) -> None:
        self.kernel, self.energy, self.X, self.answer = kernel, energy, X, answer
        self.K, self.d = energy.n_clusters, energy.n_features
        self.slopes = np.ascontiguousarray(energy.slopes)
        self.squares = np.ascontiguousarray(energy._squares)
        self.held = self.d >= self.K

    def check(self, total: float) -> None:
        """One NaN or infinity spoils the sum, as in whycluster."""
        if not math.isfinite(total):
            raise ValueError("not finite")

    def room(self, space: Workspace, start: int, stop: int) -> Floats:
        """Where h of these rows lies."""
        raise NotImplementedError

    def forward(self, rows: slice, h: Floats) -> None:
        """Write h of these rows, and how they stand."""
        raise NotImplementedError

    def backward(self, rows: slice, h: Floats, beta: float, space: Workspace) -> None:
        """Write the relevance of these rows."""
        raise NotImplementedError

    def standing(self, rows: slice) -> tuple[NDArray[np.int64], NDArray[np.int64], Floats]:
        """Cluster, competitor and evidence of these rows, to be written."""
        answer = self.answer
        return answer.cluster[rows], answer.competitor[rows], answer.evidence[rows]


class _Whole(_Steps):
    """All in the kernel. h is held in the rows of the relevance, each where its relevance will be."""

    def __init__(self, kernel: Any, energy: SquaredEnergy, X: Floats, answer: Answer) -> None:
        super().__init__(kernel, energy, X, answer)
        self.wide = -(-self.K // 8) * 8
        self.by_feature, self.bias = np.zeros((self.d, self.wide)), np.zeros(self.wide)
        self.by_feature[:, : self.K], self.bias[: self.K] = self.slopes.T, energy._bias

    def room(self, space: Workspace, start: int, stop: int) -> Floats:
        return self.answer.relevance[start:stop] if self.held else _by_rows(space.h, stop - start)

    def forward(self, rows: slice, h: Floats) -> None:
        sizes = (rows.stop - rows.start, self.d, self.K, self.wide)
        arrays = (self.by_feature, self.bias, h, h.shape[1], *self.standing(rows))
        self.check(self.kernel.forward(self.X[rows], *sizes, *arrays))

    def backward(self, rows: slice, h: Floats, beta: float, space: Workspace) -> None:  # noqa: ARG002
        cluster, _, evidence = self.standing(rows)
        sizes = (rows.stop - rows.start, self.d, self.K)
        arrays = (cluster, evidence, self.answer.relevance[rows], np.empty((4, self.K)))
        self.kernel.backward(self.X[rows], *sizes, self.slopes, self.squares, h, h.shape[1], beta, *arrays)


class _Around(_Steps):
    """Matrix products by BLAS, and the kernel for what lies between."""

    def room(self, space: Workspace, start: int, stop: int) -> Floats:
        return _by_rows(self.answer.relevance[start:stop] if self.held else space.h, stop - start, self.K)

    def forward(self, rows: slice, h: Floats) -> None:
        np.matmul(self.X[rows], self.slopes.T, out=h)
        self.check(self.kernel.settle(h, *h.shape, self.energy._bias, *self.standing(rows)))

    def backward(self, rows: slice, h: Floats, beta: float, space: Workspace) -> None:
        cluster, _, evidence = self.standing(rows)
        weights, scratch = _by_rows(space.weights, len(h)), space.scratch[: len(h)]
        self.kernel.weigh(h, *h.shape, beta, cluster, evidence, weights)
        self.energy.combine(self.X[rows], weights, self.answer.relevance[rows], scratch)


def _by_rows(room: Floats, n_rows: int, width: int | None = None) -> Floats:
    """The first rows of a work array, whatever its order, as a C-ordered array."""
    width = room.shape[1] if width is None else width
    flat = (room if room.flags.c_contiguous else room.T).reshape(-1)
    return flat[: n_rows * width].reshape(n_rows, width)


def check(answer: Any, exp: wc.Explanation) -> None:
    """Stop if one of them says something else than NumPy."""
    named = isinstance(answer, wc.Explanation)
    assert ((answer.cluster_codes if named else answer.cluster) == exp.cluster_codes).all()
    assert ((answer.competitor_codes if named else answer.competitor) == exp.competitor_codes).all()
    assert abs(answer.beta * exp.evidence.mean() - 1.0) < TOLERANCE
    np.testing.assert_allclose(answer.relevance, exp.relevance, rtol=TOLERANCE, atol=TOLERANCE)


def with_loops(bits: int, model: Any, X: Floats) -> wc.Explanation:
    """`explain` with compiled loops for registers of so many bits, or with none."""
    loaded = loops.library()
    found = None if loaded is None or not bits else (loaded[0], bits)
    with patch.object(loops, "library", lambda: found):
        return wc.explain(model, X)


def measure(numba: Any, n_rows: int, d: int, n_clusters: int) -> tuple[float, dict[str, float]]:
    """Seconds of `predict`, and how many times as long all others take; of numba the better way.

    Times are divided by that of `predict` in the same round, since the load changes from round to round.
    """
    X, model = clustered(n_rows, d, n_clusters)
    calls: dict[str, Callable[[], Any]] = {PREDICT: partial(model.predict, X)}
    for name, bits in WAYS.items():
        calls[name] = partial(with_loops, bits, model, X)
    for whole in (True, False) if d * n_clusters <= MOST_FUSED else (False,):
        calls[f"{NUMBA}, fused" if whole else NUMBA] = partial(explain, numba, whole, model, X)
    exp = calls[NUMPY]()
    for name, call in calls.items():
        if name != PREDICT:
            check(call(), exp)
    rounds = [side_by_side(calls, 1) for _ in range(REPEATS)]
    ratios = {way: float(np.median([times[way] / times[PREDICT] for times in rounds])) for way in calls}
    print(n_rows, d, n_clusters, {way: round(ratio, 2) for way, ratio in ratios.items()}, flush=True)
    best = {name: min(ratios[name], ratios.get(f"{name}, fused", math.inf)) for name in NAMES}
    return float(np.median([times[PREDICT] for times in rounds])), best


def weight_of_numba() -> tuple[Any, str]:
    """The kernel of numba, and what it costs to have it."""
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
        f"numba takes {size / 2**20:.0f} MB on disk with llvmlite, {loaded - start:.1f} s to import and "
        f"{ready - loaded:.1f} s to compile these functions when they are first called."
    )


def main() -> None:
    """All cells, into results/compiled.md."""
    loaded = loops.library()
    if loaded is None or loaded[1] < max(WAYS.values()):
        raise SystemExit("benchmarks.compiled: the loops must be compiled, and the processor have AVX-512.")
    numba, weight = weight_of_numba()
    lines = [
        "# Compiled loops in place of blocked NumPy",
        "",
        f"Times as a multiple of `KMeans.predict` on the same float64 data: medians of {REPEATS} rounds in",
        "which all take turns. All give the same relevance to ten digits, with the same blocks and threads.",
        "Of numba the better of two ways counts: all in one call for each block and pass (up to",
        f"{MOST_FUSED:,} values of centroids), or BLAS for the matrix products and loops for what lies",
        "between them.",
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
    gains = ", ".join(f"{name} {means[NUMPY] / means[name]:.2f}x" for name in NAMES[1:])
    size = loops.LIBRARY.stat().st_size / 1024
    lines += ["", f"As fast as NumPy, in the geometric mean: {gains}.", "", weight]
    lines.append(f"The library that is compiled from C takes {size:.0f} kB.")
    write("compiled", "python -m benchmarks.compiled", lines)


if __name__ == "__main__":
    main()
