"""k-means in compiled loops: one call takes a block of rows to how they stand, and to their relevance.

The loops are those of ``fused.c``, which is compiled when the package is installed, where that can be done:
on Linux on x86-64, with a C compiler. Everywhere else, and for all other models and questions, NumPy does the
work, in more steps. ``benchmarks/results/compiled.md`` says what that costs.
"""

from __future__ import annotations

import ctypes
import functools
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from whycluster.arrays import Codes, Floats

LIBRARY = Path(__file__).with_name("_fused.so")


class _Model(ctypes.Structure):
    """``Model`` of fused.c."""

    _fields_ = (
        ("K", ctypes.c_int64),
        ("d", ctypes.c_int64),
        ("bias", ctypes.c_void_p),
        ("slopes", ctypes.c_void_p),
        ("both", ctypes.c_void_p),
    )


class _Block(ctypes.Structure):
    """``Block`` of fused.c."""

    _fields_ = (
        ("n", ctypes.c_int64),
        ("x", ctypes.c_void_p),
        ("x_down", ctypes.c_int64),
        ("x_across", ctypes.c_int64),
        ("cluster", ctypes.c_void_p),
        ("competitor", ctypes.c_void_p),
        ("evidence", ctypes.c_void_p),
        ("beta", ctypes.c_double),
        ("out", ctypes.c_void_p),
        ("out_down", ctypes.c_int64),
        ("out_across", ctypes.c_int64),
        ("of_float", ctypes.c_int),
    )


@functools.cache
def library() -> tuple[Any, int] | None:
    """The compiled loops and how many bits a register of this processor has; None if it goes without."""
    try:
        found = ctypes.CDLL(str(LIBRARY))
    except OSError:  # not built, or for another machine
        return None
    found.run.restype, found.room.restype = ctypes.c_double, ctypes.c_int64
    width = found.widest()
    return (found, width) if width else None


class Fused:
    """Energies s_k = bias_k + slope_k.x, split as square_k + slope_k x up to what all clusters share.

    Parameters
    ----------
    slopes, squares : (K, d)
    bias : (K,)
    """

    def __init__(self, slopes: Floats, squares: Floats, bias: Floats) -> None:
        self.n_clusters, self.n_features = n_clusters, d = slopes.shape
        fours, twos = -(-n_clusters // 4), -(-d // 2)
        self._bias, padded = np.zeros(4 * fours), np.zeros((2, 4 * fours, 2 * twos))
        self._bias[:n_clusters] = bias
        padded[:, :n_clusters, :d] = slopes, squares
        self._slopes = np.ascontiguousarray(padded[0, :, :d].reshape(fours, 4, d).transpose(0, 2, 1))
        pairs = padded[:, :n_clusters].reshape(2, n_clusters, twos, 2)
        self._both = np.ascontiguousarray(pairs.transpose(2, 1, 0, 3)).reshape(twos, n_clusters, 4)

    @classmethod
    def of(cls, slopes: Floats, squares: Floats, bias: Floats) -> Fused | None:
        """None where there are no compiled loops, or nothing that competes."""
        return None if library() is None or len(bias) < 2 else cls(slopes, squares, bias)

    def run(
        self,
        x: Floats,
        cluster: Codes,
        competitor: Codes,
        evidence: Floats,
        beta: float = 0.0,
        out: NDArray[Any] | None = None,
    ) -> bool:
        """Write how the rows of ``x``, (b, d), stand, into arrays (b,) that are contiguous.

        With ``out``, (b, d) of float32 or float64 in any order, their relevance by rule min-take-most goes
        there. Returns whether all energies are finite.
        """
        loaded = library()
        assert loaded is not None
        run, width = loaded[0].run, loaded[1]
        x = _in_whole_steps(x)
        model = _Model(self.n_clusters, self.n_features, *map(_at, (self._bias, self._slopes, self._both)))
        block = _Block(len(x), _at(x), *_steps(x), *map(_at, (cluster, competitor, evidence)))
        if out is not None:
            block.beta = min(beta, np.finfo(np.float64).max)
            block.out, (block.out_down, block.out_across) = _at(out), _steps(out)
            block.of_float = out.dtype == np.float32
        space = np.empty(loaded[0].room(ctypes.byref(model)))
        flaws = run(width, ctypes.byref(model), ctypes.byref(block), ctypes.c_void_p(_at(space)))
        return bool(flaws == 0.0)


def _in_whole_steps(x: Floats) -> Floats:
    """The same numbers, copied if they lie in memory as the loops cannot read them."""
    whole = x.dtype == np.float64 and x.flags.aligned and all(step % x.itemsize == 0 for step in x.strides)
    return x if whole else np.array(x, np.float64, order="C")


def _at(values: NDArray[Any]) -> int:
    return values.ctypes.data


def _steps(values: NDArray[Any]) -> list[int]:
    """From row to row and from column to column, in numbers."""
    return [step // values.itemsize for step in values.strides]
