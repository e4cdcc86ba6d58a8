"""k-means in compiled loops: one call takes a block of rows to how they stand, and to their relevance.

The loops are those of ``kmeans.c``, which is compiled when the package is installed, where that can be done:
on Linux on x86-64, with a C compiler. Everywhere else, and for all other models and questions, NumPy does the
work, in more steps. ``benchmarks/results/compiled.md`` says what that costs.
"""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from whycluster.core.arrays import Codes, Floats

LIBRARY = Path(__file__).with_name("_kmeans.so")
_LAYOUT = 2  # of the structures below; as in kmeans.c
_MOST = 1 << 13  # features or clusters: beyond, a tile is larger than cache and block, and NumPy faster
_MOST_VALUES = 1 << 20  # of all centroids: the same


class _Model(ctypes.Structure):
    """``Model`` of kmeans.c."""

    _fields_ = (
        ("K", ctypes.c_int64),
        ("d", ctypes.c_int64),
        ("offset", ctypes.c_void_p),
        ("bias", ctypes.c_void_p),
        ("slopes", ctypes.c_void_p),
        ("both", ctypes.c_void_p),
    )


class _Block(ctypes.Structure):
    """``Block`` of kmeans.c."""

    _fields_ = (
        ("first", ctypes.c_int64),
        ("n", ctypes.c_int64),
        ("columns", ctypes.c_void_p),
        ("down", ctypes.c_int64),
        ("side_by_side", ctypes.c_int),
        ("from_float", ctypes.c_int),
        ("cluster", ctypes.c_void_p),
        ("competitor", ctypes.c_void_p),
        ("evidence", ctypes.c_void_p),
        ("beta", ctypes.c_double),
        ("out", ctypes.c_void_p),
        ("out_down", ctypes.c_int64),
        ("out_across", ctypes.c_int64),
        ("to_float", ctypes.c_int),
        ("only_energies", ctypes.c_int),
    )


@functools.cache
def library() -> tuple[Any, int] | None:
    """The compiled loops and how many bits a register of this processor has; None if it goes without."""
    try:
        found = ctypes.CDLL(str(LIBRARY))
        fits = found.layout() == _LAYOUT
    except (OSError, AttributeError):  # not built; for another machine; of an earlier version
        fits = False
    if not fits:
        return None
    found.run.restype, found.room.restype = ctypes.c_double, ctypes.c_int64
    width = found.widest()
    return (found, width) if width else None


def has_loops(n_clusters: int, d: int) -> bool:
    """Whether there are loops for so many clusters and features, here and now."""
    small = max(n_clusters, d) <= _MOST and n_clusters * d <= _MOST_VALUES
    return n_clusters > 1 and small and library() is not None


@dataclass(frozen=True)
class MemoryLayout:
    """Where the numbers of a table lie, all of float32 or of float64.

    Attributes
    ----------
    owner : the arrays that they are in, which have to stay as long
    columns : (d,) the address of the first number of each column
    down : from row to row, in numbers
    side_by_side : whether the numbers of a row are
    dtype : of the numbers
    """

    owner: Any
    columns: NDArray[np.uintp]
    down: int
    side_by_side: bool
    dtype: np.dtype[Any]

    @classmethod
    def of(cls, rows: NDArray[Any]) -> MemoryLayout | None:
        """Of a table (n, d); None if it lies as the loops cannot read it."""
        if not _is_readable(rows):
            return None
        down, across = (step // rows.itemsize for step in rows.strides)
        columns = rows.ctypes.data + np.arange(rows.shape[1]) * rows.strides[1]
        return cls(rows, columns.astype(np.uintp), down, across == 1, rows.dtype)

    @classmethod
    def of_block(cls, x: NDArray[Any]) -> MemoryLayout:
        """Of some rows of numbers, copied if the loops cannot read them where they are."""
        found = cls.of(x) or cls.of(x.astype(np.float64, order="C"))
        assert found is not None
        return found

    @classmethod
    def of_columns(cls, columns: Sequence[NDArray[Any]]) -> MemoryLayout | None:
        """Of columns (n,) that lie apart; None if they are not all of one kind, or not contiguous."""
        dtypes = {column.dtype for column in columns}
        if len(dtypes) > 1 or not all(_is_readable(c) and c.strides == (c.itemsize,) for c in columns):
            return None
        at = np.array([column.ctypes.data for column in columns], np.uintp)
        return cls(columns, at, 1, False, dtypes.pop())


def _is_readable(values: NDArray[Any]) -> bool:
    """Whether it is of native float32 or float64, in whole steps."""
    plain = values.dtype.kind == "f" and values.itemsize in (4, 8) and values.dtype.isnative
    return plain and values.flags.aligned and all(step % values.itemsize == 0 for step in values.strides)


class CompiledKMeans:
    """Energies s_k = bias_k + slope_k.x, split as square_k + slope_k x up to what all clusters share.

    Parameters
    ----------
    slopes, squares : (K, d)
    bias : (K,)
    offset : (d,) what is subtracted from every row to make x; nothing by default
    """

    def __init__(self, slopes: Floats, squares: Floats, bias: Floats, offset: Floats | None = None) -> None:
        self.n_clusters, self.n_features = n_clusters, d = slopes.shape
        fours, twos = -(-n_clusters // 4), -(-d // 2)
        self._offset = np.zeros(d) if offset is None else np.array(offset)
        self._bias, padded = np.zeros(4 * fours), np.zeros((2, 4 * fours, 2 * twos))
        self._bias[:n_clusters] = bias
        padded[:, :n_clusters, :d] = slopes, squares
        self._slopes = np.ascontiguousarray(padded[0, :, :d].reshape(fours, 4, d).transpose(0, 2, 1))
        pairs = padded[:, :n_clusters].reshape(2, n_clusters, twos, 2)
        self._both = np.ascontiguousarray(pairs.transpose(2, 1, 0, 3)).reshape(twos, n_clusters, 4)

    def run(
        self,
        rows: MemoryLayout,
        first: int,
        cluster: Codes,
        competitor: Codes,
        evidence: Floats,
        beta: float = 0.0,
        out: NDArray[Any] | None = None,
    ) -> bool:
        """Write how rows from the first on stand, as many as there is room for: contiguous arrays (b,).

        With ``out``, (b, d) of float32 or float64, row by row or column by column, their relevance by rule
        min-take-most goes there. Returns whether energies and evidence are finite.
        """
        block = _block(rows, first, len(cluster))
        block.cluster, block.competitor, block.evidence = map(_at, (cluster, competitor, evidence))
        if out is not None:
            block.beta = min(beta, np.finfo(np.float64).max)
            _write_to(out, block)
        return self._call(block) == 0.0

    def energies(self, x: Floats, out: Floats) -> bool:
        """Write s_k of x, (b, d), which has been moved, into ``out``, (b, K), to the same bits as in `run`.

        Returns whether it could.
        """
        if out.dtype != np.float64 or out.itemsize not in out.strides:
            return False
        rows = MemoryLayout.of_block(x)
        block = _block(rows, 0, len(x))
        block.only_energies = True
        _write_to(out, block)
        self._call(block, moved=True)
        return True

    def _call(self, block: _Block, moved: bool = False) -> float:
        """What the loops return; they are not to subtract the offset if it has been."""
        loaded = library()
        assert loaded is not None
        (loops, width), offset = loaded, np.zeros(self.n_features) if moved else self._offset
        parameters = map(_at, (offset, self._bias, self._slopes, self._both))
        model = _Model(self.n_clusters, self.n_features, *parameters)
        space = np.empty(loops.room(ctypes.byref(model)))
        return float(loops.run(width, ctypes.byref(model), ctypes.byref(block), ctypes.c_void_p(_at(space))))


def _block(rows: MemoryLayout, first: int, n_rows: int) -> _Block:
    of_float = rows.dtype == np.float32
    return _Block(first, n_rows, _at(rows.columns), rows.down, rows.side_by_side, of_float)


def _write_to(out: NDArray[Any], block: _Block) -> None:
    block.out, block.to_float = _at(out), out.dtype == np.float32
    block.out_down, block.out_across = (step // out.itemsize for step in out.strides)
    assert 1 in (block.out_down, block.out_across)


def _at(values: NDArray[Any]) -> int:
    return values.ctypes.data
