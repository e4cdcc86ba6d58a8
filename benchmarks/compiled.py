"""Whether a compiled kernel is worth its weight: ``python -m benchmarks.compiled``.

The way of `explain` for k-means on float64 data is written a second time, with little but loops: in C
(`compiled.c`, built by gcc) and for numba (`compiled_numba.py`, ``pip install numba``). Threads, blocks and
what is measured for beta are those of whycluster.
"""

from __future__ import annotations

import ctypes
import importlib
import math
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable
from functools import partial
from importlib.metadata import distribution
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

import whycluster as wc
from benchmarks.measure import geometric_mean, side_by_side, write
from benchmarks.speed import GRID, clustered
from whycluster import blocks
from whycluster.arrays import Floats
from whycluster.energies import SquaredEnergy

CELLS = [*GRID, (200_000, 50, 200)]
REPEATS = 7
SOURCE = Path(__file__).with_suffix(".c")
PREDICT = "predict"
NUMPY, NUMBA, NATIVE, PORTABLE = "NumPy", "numba", "C, this processor", "C, any x86-64"
MOST_FUSED = 1 << 13  # values of all centroids: beyond, products of our own take several times those of BLAS
TOLERANCE = 1e-10


class InC:
    """The functions of `compiled.c`, built for a kind of processor."""

    def __init__(self, processor: str) -> None:
        target = Path(tempfile.mkdtemp()) / "kernel.so"
        flags = ["-O3", "-fopenmp-simd", "-fno-math-errno", "-fno-trapping-math", f"-march={processor}"]
        if processor == "native":
            flags.append("-mprefer-vector-width=512")
        subprocess.run(["gcc", *flags, "-shared", "-fPIC", str(SOURCE), "-o", str(target)], check=True)
        self._library = ctypes.CDLL(str(target))
        for name in ("settle", "forward"):
            getattr(self._library, name).restype = ctypes.c_double

    def __getattr__(self, name: str) -> Callable[..., Any]:
        """A function, to be called with arrays and numbers."""
        function = getattr(self._library, name)
        return lambda *given: function(*map(_to_c, given))


def _to_c(value: Any) -> Any:
    if isinstance(value, np.ndarray):
        return ctypes.c_void_p(value.ctypes.data)
    return ctypes.c_double(value) if isinstance(value, float) else ctypes.c_int64(value)


class Answer:
    """What an explanation consists of."""

    def __init__(self, n_rows: int, d: int) -> None:
        self.relevance = np.empty((n_rows, d))
        self.cluster, self.competitor = np.empty(n_rows, np.int64), np.empty(n_rows, np.int64)
        self.evidence = np.empty(n_rows)
        self.beta = math.nan


def explain(kernel: Any, fused: bool, model: Any, X: Floats) -> Answer:
    """Rule min-take-most with beta measured, by a kernel: as a whole, or around the products of BLAS."""
    energy = SquaredEnergy(model.cluster_centers_)
    assert energy.offset is None
    answer = Answer(*X.shape)
    steps = (_Fused if fused else _Around)(kernel, energy, X, answer)
    means: dict[int, float] = {}

    def first(space: blocks.Workspace, start: int, stop: int) -> None:
        steps.forward(slice(start, stop), steps.room(space, start, stop))
        means[start] = answer.evidence[start:stop].sum() / len(X)

    def second(space: blocks.Workspace, start: int, stop: int) -> None:
        rows, h = slice(start, stop), steps.room(space, start, stop)
        if not steps.held:
            steps.forward(rows, h)
        steps.backward(rows, h, answer.beta, space)

    blocks.run(first, energy, len(X))
    answer.beta = 1.0 / math.fsum(means.values())
    blocks.run(second, energy, len(X))
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

    def room(self, space: blocks.Workspace, start: int, stop: int) -> Floats:
        """Where h of these rows lies."""
        raise NotImplementedError

    def forward(self, rows: slice, h: Floats) -> None:
        """Write h of these rows, and how they stand."""
        raise NotImplementedError

    def backward(self, rows: slice, h: Floats, beta: float, space: blocks.Workspace) -> None:
        """Write the relevance of these rows."""
        raise NotImplementedError

    def standing(self, rows: slice) -> tuple[NDArray[np.int64], NDArray[np.int64], Floats]:
        """Cluster, competitor and evidence of these rows, to be written."""
        answer = self.answer
        return answer.cluster[rows], answer.competitor[rows], answer.evidence[rows]


class _Fused(_Steps):
    """All in the kernel. h is held in the rows of the relevance, each where its relevance will be."""

    def __init__(self, kernel: Any, energy: SquaredEnergy, X: Floats, answer: Answer) -> None:
        super().__init__(kernel, energy, X, answer)
        self.wide = -(-self.K // 8) * 8
        self.by_feature, self.bias = np.zeros((self.d, self.wide)), np.zeros(self.wide)
        self.by_feature[:, : self.K], self.bias[: self.K] = self.slopes.T, energy._bias

    def room(self, space: blocks.Workspace, start: int, stop: int) -> Floats:
        return self.answer.relevance[start:stop] if self.held else _by_rows(space.h, stop - start)

    def forward(self, rows: slice, h: Floats) -> None:
        sizes = (rows.stop - rows.start, self.d, self.K, self.wide)
        arrays = (self.by_feature, self.bias, h, h.shape[1], *self.standing(rows))
        self.check(self.kernel.forward(self.X[rows], *sizes, *arrays))

    def backward(self, rows: slice, h: Floats, beta: float, space: blocks.Workspace) -> None:  # noqa: ARG002
        cluster, _, evidence = self.standing(rows)
        sizes = (rows.stop - rows.start, self.d, self.K)
        arrays = (cluster, evidence, self.answer.relevance[rows], np.empty((4, self.K)))
        self.kernel.backward(self.X[rows], *sizes, self.slopes, self.squares, h, h.shape[1], beta, *arrays)


class _Around(_Steps):
    """Matrix products by BLAS, and the kernel for what lies between."""

    def room(self, space: blocks.Workspace, start: int, stop: int) -> Floats:
        return _by_rows(self.answer.relevance[start:stop] if self.held else space.h, stop - start, self.K)

    def forward(self, rows: slice, h: Floats) -> None:
        np.matmul(self.X[rows], self.slopes.T, out=h)
        self.check(self.kernel.settle(h, *h.shape, self.energy._bias, *self.standing(rows)))

    def backward(self, rows: slice, h: Floats, beta: float, space: blocks.Workspace) -> None:
        cluster, _, evidence = self.standing(rows)
        weights, scratch = _by_rows(space.weights, len(h)), space.scratch[: len(h)]
        self.kernel.weigh(h, *h.shape, beta, cluster, evidence, weights)
        self.energy.combine(self.X[rows], weights, self.answer.relevance[rows], scratch)


def _by_rows(room: Floats, n_rows: int, width: int | None = None) -> Floats:
    """The first rows of a work array, whatever its order, as a C-ordered array."""
    width = room.shape[1] if width is None else width
    flat = (room if room.flags.c_contiguous else room.T).reshape(-1)
    return flat[: n_rows * width].reshape(n_rows, width)


def check(answer: Answer, exp: wc.Explanation) -> None:
    """Stop if a kernel says something else than `explain`."""
    assert (answer.cluster == exp._cluster).all()
    assert (answer.competitor == exp._competitor).all()
    assert abs(answer.beta * exp.evidence.mean() - 1.0) < TOLERANCE
    np.testing.assert_allclose(answer.relevance, exp.relevance, rtol=TOLERANCE, atol=TOLERANCE)


def measure(kernels: dict[str, Any], n_rows: int, d: int, n_clusters: int) -> tuple[float, dict[str, float]]:
    """Seconds of `predict`, and how many times as long all others take; of each kernel the better way.

    Times are divided by that of `predict` in the same round, since the load changes from round to round.
    """
    X, model = clustered(n_rows, d, n_clusters)
    exp = wc.explain(model, X)
    calls: dict[str, Callable[[], Any]] = {PREDICT: partial(model.predict, X)}
    calls[NUMPY] = partial(wc.explain, model, X)
    for name, kernel in kernels.items():
        for fused in (True, False) if d * n_clusters <= MOST_FUSED else (False,):
            way = f"{name}, fused" if fused else name
            calls[way] = partial(explain, kernel, fused, model, X)
            check(calls[way](), exp)
    rounds = [side_by_side(calls, 1) for _ in range(REPEATS)]
    ratios = {way: float(np.median([times[way] / times[PREDICT] for times in rounds])) for way in calls}
    print(n_rows, d, n_clusters, {way: round(ratio, 2) for way, ratio in ratios.items()}, flush=True)
    best = {name: min(ratios[name], ratios.get(f"{name}, fused", math.inf)) for name in (NUMPY, *kernels)}
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
    for fused in (True, False):
        explain(kernel, fused, model, X)
    ready = time.perf_counter()
    files = [file for name in ("numba", "llvmlite") for file in distribution(name).files or []]
    size = sum(Path(file.locate()).stat().st_size for file in files if Path(file.locate()).exists())
    return kernel, (
        f"numba takes {size / 2**20:.0f} MB on disk with llvmlite, {loaded - start:.1f} s to import and "
        f"{ready - loaded:.1f} s to compile these functions when they are first called."
    )


def main() -> None:
    """All cells, into results/compiled.md."""
    if shutil.which("gcc") is None:
        raise SystemExit("benchmarks.compiled: gcc must be installed.")
    numba, weight = weight_of_numba()
    kernels = {NUMBA: numba, NATIVE: InC("native"), PORTABLE: InC("x86-64")}
    names = [NUMPY, *kernels]
    lines = [
        "# A compiled kernel in place of blocked NumPy",
        "",
        f"Times as a multiple of `KMeans.predict` on the same float64 data: medians of {REPEATS} rounds in",
        "which all take turns. All give the same relevance to ten digits, with the same blocks and threads.",
        "Of each kernel the better of two ways counts: all in one call for each block and pass (up to",
        f"{MOST_FUSED:,} values of centroids), or BLAS for the matrix products and the kernel for what lies",
        "between them.",
        "",
        f"| rows | d | K | predict, ms | {' | '.join(names)} |",
        "|---:|---:|---:|---:|" + "---:|" * len(names),
    ]
    ratios: dict[str, list[float]] = {name: [] for name in names}
    for cell in CELLS:
        predict, best = measure(kernels, *cell)
        for name in names:
            ratios[name].append(best[name])
        shown = " | ".join(f"{best[name]:.1f}x" for name in names)
        lines.append(f"| {cell[0]:,} | {cell[1]} | {cell[2]} | {predict * 1e3:.0f} | {shown} |")
    means = {name: geometric_mean(ratios[name]) for name in names}
    lines.append(f"| geometric mean | | | | {' | '.join(f'{mean:.2f}x' for mean in means.values())} |")
    gains = ", ".join(f"{name} {means[NUMPY] / means[name]:.2f}x" for name in kernels)
    lines += ["", f"As fast as NumPy, in the geometric mean: {gains}.", "", weight]
    write("compiled", "python -m benchmarks.compiled", lines)


if __name__ == "__main__":
    main()
