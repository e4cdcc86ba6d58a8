"""K-means in compiled loops: one call computes all results of a block of rows.

The loops are in ``kmeans.c``, which is compiled when the package is installed on Linux on x86-64 or aarch64
with a C compiler. Everywhere else, NumPy computes the same results in more steps (`whycluster.core.passes`).
"""

from __future__ import annotations

import ctypes
import functools
import math
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import IntEnum
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from whycluster.core import blocks
from whycluster.core.arrays import Codes, Floats
from whycluster.core.blocks import OutOfRangeError, check_rounded
from whycluster.core.evidence import Assignment
from whycluster.core.rows import Rows
from whycluster.core.rules import CONTRAST, JOINT, LEAST_PRIOR, MIN_TAKE_MOST, PATH, SEQUENTIAL, Sharing

LIBRARY = Path(__file__).with_name("_kmeans.so")
_LAYOUT = 5  # version of the structures below, as in kmeans.c
_MOST = 1 << 13  # features or clusters; beyond this, a tile does not fit in the cache, so NumPy is faster
_MOST_VALUES = 1 << 20  # values in all centroids together, for the same reason
_SINGLE = 1e-12, 1e12  # the range of the longest slope in which single precision neither under- nor overflows
_ROUGH = 1e-4  # the largest proven error, relative to it, of mean evidence measured in single precision


def fields(names: str, kind: type) -> list[tuple[str, type]]:
    """Return the fields of a structure that have one type."""
    return [(name, kind) for name in names.split()]


class Model(ctypes.Structure):
    """The structure ``Model`` in kmeans.c."""

    _fields_ = [
        *fields("K d", ctypes.c_int64),
        *fields("offset bias slopes both", ctypes.c_void_p),
        *fields("middle single_bias single_slopes single_both reach", ctypes.c_void_p),
        *fields("most_bias most_slope", ctypes.c_double),
    ]


class Block(ctypes.Structure):
    """The structure ``Block`` in kmeans.c."""

    _fields_ = [
        *fields("first n", ctypes.c_int64),
        *fields("columns", ctypes.c_void_p),
        *fields("down", ctypes.c_int64),
        *fields("side_by_side from_float", ctypes.c_int),
        *fields("cluster competitor evidence", ctypes.c_void_p),
        *fields("beta", ctypes.c_double),
        *fields("prior out", ctypes.c_void_p),
        *fields("out_down out_across", ctypes.c_int64),
        *fields("to_float answer rule given", ctypes.c_int),
    ]


class Answer(IntEnum):
    """The results that a call writes in addition to the assignment, as in kmeans.c."""

    ASSIGNMENT = 0
    ENERGIES = 1
    RELEVANCE = 2
    GRADIENT = 3
    COMPETITION = 4
    ROUGH = 5


# The rules, as in kmeans.c. The sequential rule shares the evidence among competitors like the path rule.
_RULES = {MIN_TAKE_MOST: 0, JOINT: 1, PATH: 2, CONTRAST: 3, SEQUENTIAL: 2}


@functools.cache
def library() -> tuple[Any, int] | None:
    """Return the compiled loops and the register width in bits, or None if the loops cannot be used."""
    if os.environ.get("WHYCLUSTER_COMPILED") == "0":
        return None
    try:
        found = ctypes.CDLL(str(LIBRARY))
        found.run.restype, found.room.restype = ctypes.c_double, ctypes.c_int64
        found.gains_room.restype = ctypes.c_int64
        width = found.widest() if found.layout() == _LAYOUT else 0
    except (OSError, AttributeError):  # not built, built for a different machine, or an old version
        return None
    return (found, width) if width else None


@dataclass(frozen=True)
class MemoryLayout:
    """The location of a table's values in memory, either all float32 or all float64.

    Attributes
    ----------
    owner : the arrays that hold the values; this reference keeps them alive
    columns : (d,) the address of the first number of each column
    down : the step from one row to the next, in elements
    side_by_side : whether the numbers of a row are contiguous
    dtype : the dtype of the numbers
    """

    owner: Any
    columns: NDArray[np.uintp]
    down: int
    side_by_side: bool
    dtype: np.dtype[Any]

    @classmethod
    def of(cls, rows: NDArray[Any]) -> MemoryLayout | None:
        """Return the layout of an array (n, d), or None if the loops cannot read it."""
        if not _is_readable(rows):
            return None
        down, across = (step // rows.itemsize for step in rows.strides)
        columns = rows.ctypes.data + np.arange(rows.shape[1]) * rows.strides[1]
        return cls(rows, columns.astype(np.uintp), down, across == 1, rows.dtype)

    @classmethod
    def of_block(cls, x: NDArray[Any]) -> MemoryLayout:
        """Return the layout of a block, or of a copy of it if the loops cannot read the block itself."""
        found = cls.of(x) or cls.of(x.astype(np.float64, order="C"))
        assert found is not None
        return found

    @classmethod
    def of_columns(cls, columns: Sequence[NDArray[Any]]) -> MemoryLayout | None:
        """Return the layout of separate columns (n,), or None if the loops cannot read them."""
        dtypes = {column.dtype for column in columns}
        if len(dtypes) > 1 or not all(_is_readable(c) and c.strides == (c.itemsize,) for c in columns):
            return None
        at = np.array([column.ctypes.data for column in columns], np.uintp)
        return cls(columns, at, 1, False, dtypes.pop())

    @classmethod
    def of_rows(cls, rows: Rows) -> MemoryLayout | None:
        """Return the layout of the network's inputs, or None if they must be converted block by block."""
        held = rows.native if rows.is_array else rows.memory()
        if held is None:
            return None
        return cls.of(held) if isinstance(held, np.ndarray) else cls.of_columns(held)


def _is_readable(values: NDArray[Any]) -> bool:
    """Return whether an array holds aligned native float32 or float64 values, with strides of whole items."""
    plain = values.dtype.kind == "f" and values.itemsize in (4, 8) and values.dtype.isnative
    return plain and values.flags.aligned and all(step % values.itemsize == 0 for step in values.strides)


@dataclass(frozen=True, eq=False)
class CompiledKMeans:
    """Compiled loops for energies s_k = bias_k + slope_k . x.

    Parameters
    ----------
    slopes, squares : (K, d) the split is square_k + slope_k x, up to a term that all clusters share
    bias : (K,) bias_k
    offset : (d,) subtracted from every row to give x; None if nothing is subtracted
    scale : (d,) the weight of the square of each feature
    middle : (d,) a point near most centroids, relative to which sums are in single precision
    """

    slopes: Floats
    squares: Floats
    bias: Floats
    offset: Floats | None
    scale: Floats
    middle: Floats

    @property
    def is_available(self) -> bool:
        """Whether this machine has compiled loops for this number of clusters and features."""
        n_clusters, d = self.slopes.shape
        small = max(n_clusters, d) <= _MOST and n_clusters * d <= _MOST_VALUES
        return n_clusters > 1 and small and library() is not None

    @functools.cached_property
    def _packed(self) -> tuple[Floats, Floats, Floats]:
        """The biases, the slopes, and slopes with squares, padded and interleaved as the loops read them."""
        return _packed(4, 2, self.bias, self.slopes, self.squares)

    @functools.cached_property
    def _single(self) -> tuple[list[NDArray[Any]], list[float]] | None:
        """The arrays and numbers of `Model` for single precision, or None if it cannot hold them."""
        offset, middle = 0.0 if self.offset is None else self.offset, self.middle.astype(np.float32)
        square = (self.middle - offset) ** 2 * self.scale  # of a cluster in the middle
        slopes = self.slopes + 2.0 * (self.middle - offset) * self.scale
        linear = slopes * (middle.astype(np.float64) - offset)
        squares, bias = self.squares - square + linear, self.bias - square.sum() + linear.sum(axis=1)
        reach = np.array([np.abs(squares).max(axis=1), np.abs(slopes).max(axis=1)]).T
        most_bias = float(np.abs(bias).max())
        most_slope = float(np.sqrt(np.einsum("kd,kd->k", slopes, slopes).max()))
        least, most = _SINGLE
        if not (least <= most_slope <= most and max(most_bias, reach.max()) <= most * most):
            return None
        packed = _packed(8, 4, *(each.astype(np.float32) for each in (bias, slopes, squares)))
        return [middle, *packed, np.vstack([reach, reach.max(axis=0)])], [most_bias, most_slope]

    def run(
        self,
        rows: MemoryLayout,
        first: int,
        assignment: Assignment,
        given: int = 0,
        answer: Answer = Answer.ASSIGNMENT,
        sharing: Sharing | None = None,
        out: NDArray[Any] | None = None,
    ) -> bool:
        """Process b rows, beginning with row ``first``; return whether all energies and evidence are finite.

        Parameters
        ----------
        assignment : contiguous arrays (b,) for the results
        given : which of them the caller has filled: 1 for the clusters, 2 for the competitors, 3 for both
        answer : what to write to ``out``
        sharing : the rule, unless only the assignment is requested
        out : (b, d) or, for the competition, (b, K); float32 or float64, stored by rows or by columns
        """
        block = _block(rows, first, len(assignment.cluster))
        block.cluster, block.competitor, block.evidence = map(at, assignment)
        block.given, block.answer = given, answer
        prior = None
        if sharing is not None:
            block.rule = _RULES[sharing.rule]
            block.beta = 0.0 if sharing.beta is None else min(sharing.beta, np.finfo(np.float64).max)
            if sharing.prior is not None:
                largest = sharing.prior.log_weight.max()
                prior = np.exp(np.maximum(sharing.prior.log_weight, largest - LEAST_PRIOR) - largest)
                block.prior = at(prior)
        if out is not None:
            _write_to(out, block)
        return self._call(block) == 0.0

    def run_roughly(self, rows: MemoryLayout, first: int, cluster: Codes, evidence: Floats) -> float | None:
        """Write the cluster of each row, exactly, and approximate evidence from sums in single precision.

        Return a bound on the sum of the errors of the evidence, NaN if an energy is not finite, or None if
        the rows are not float32 or single precision cannot hold the numbers.
        """
        if rows.dtype != np.float32 or self._single is None:
            return None
        block = _block(rows, first, len(cluster))
        block.cluster, block.evidence, block.answer = at(cluster), at(evidence), Answer.ROUGH
        return self._call(block)

    def energies(self, x: Floats, out: Floats) -> bool:
        """Write s_k of x into ``out``, (b, K); the values are bit-identical to those of `run`.

        ``x`` is (b, d), with the offset already subtracted. Return whether ``out`` has a layout that the
        loops can write to.
        """
        if out.dtype != np.float64 or out.itemsize not in out.strides:
            return False
        rows = MemoryLayout.of_block(x)
        block = _block(rows, 0, len(x))
        block.answer = Answer.ENERGIES
        _write_to(out, block)
        self._call(block, moved=True)
        return True

    def _call(self, block: Block, moved: bool = False) -> float:
        """Call the loops; if ``moved`` is true, the offset has already been subtracted."""
        loaded = library()
        assert loaded is not None
        loops, width = loaded
        offset = np.zeros(self.slopes.shape[1]) if moved or self.offset is None else self.offset
        arrays, most = (self._single if block.from_float else None) or ([], [])
        addresses = [at(values) for values in (offset, *self._packed, *arrays)]
        model = Model(*self.slopes.shape, *addresses, *most)
        space = np.empty(loops.room(ctypes.byref(model)))
        return float(loops.run(width, ctypes.byref(model), ctypes.byref(block), ctypes.c_void_p(at(space))))


def _packed(
    size: int, width: int, bias: NDArray[Any], slopes: NDArray[Any], squares: NDArray[Any]
) -> tuple[NDArray[Any], NDArray[Any], NDArray[Any]]:
    """Group clusters by ``size`` and features by ``width``, padded and interleaved as the loops read them."""
    n_clusters, d = slopes.shape
    groups, parts = -(-n_clusters // size), -(-d // width)
    all_bias = np.zeros(size * groups, bias.dtype)
    padded = np.zeros((2, size * groups, width * parts), bias.dtype)
    all_bias[:n_clusters] = bias
    padded[:, :n_clusters, :d] = slopes, squares
    grouped = np.ascontiguousarray(padded[0, :, :d].reshape(groups, size, d).transpose(0, 2, 1))
    split = padded[:, :n_clusters].reshape(2, n_clusters, parts, width)
    both = np.ascontiguousarray(split.transpose(2, 1, 0, 3)).reshape(parts, n_clusters, 2 * width)
    return all_bias, grouped, both


def _block(rows: MemoryLayout, first: int, n_rows: int) -> Block:
    of_float = rows.dtype == np.float32
    return Block(first, n_rows, at(rows.columns), rows.down, rows.side_by_side, of_float)


def _write_to(out: NDArray[Any], block: Block) -> None:
    block.out, block.to_float = at(out), out.dtype == np.float32
    block.out_down, block.out_across = (step // out.itemsize for step in out.strides)
    assert 1 in (block.out_down, block.out_across) or not out.size


def at(values: NDArray[Any]) -> int:
    """Return the address of an array."""
    return values.ctypes.data


class CompiledPasses:
    """Run the compiled loops over all rows, block by block.

    Parameters
    ----------
    loops : the loops
    rows : the rows
    size : the number of rows in a block
    cluster, competitor : (n,) the clusters to explain and the competitors, or None
    """

    def __init__(
        self, loops: CompiledKMeans, rows: Rows, size: int, cluster: Codes | None, competitor: Codes | None
    ) -> None:
        self.loops, self.rows, self.block_rows = loops, rows, size
        self.layout = MemoryLayout.of_rows(rows)
        self._order: Literal["C", "F"] = "F" if rows.by_columns else "C"
        if self.layout is None and rows.n_rows <= size:  # a single block is converted only once
            x = np.empty((rows.n_rows, loops.slopes.shape[1]), order=self._order)
            with np.errstate(all="ignore"):
                self.layout = MemoryLayout.of_block(rows.inputs(0, rows.n_rows, None, x))
        self.given = (cluster is not None) + 2 * (competitor is not None)
        self.cluster, self.competitor = (
            np.empty(rows.n_rows, np.intp) if codes is None else np.array(codes, np.intp)
            for codes in (cluster, competitor)
        )

    def assign(self) -> Codes:
        """Return the cluster of each row, (n,)."""
        self._each_block(self._assign_block)
        return self.cluster

    def measure(self, exactly: bool = False) -> tuple[float, Codes]:
        """Return the mean evidence of all rows and the size of each cluster, (K,).

        Evidence is summed in single precision for float32 rows, unless the error of the mean might be large.
        """
        means: dict[int, float] = {}
        errors: dict[int, float] = {}

        def work(rows: slice, layout: MemoryLayout, first: int) -> None:
            evidence, error = self._assign_block(rows, layout, first, exactly)
            n_rows = self.rows.n_rows
            means[rows.start], errors[rows.start] = float((evidence / n_rows).sum()), error / n_rows

        self._each_block(work)
        mean = math.fsum(means.values())
        if math.fsum(errors.values()) > _ROUGH * mean:
            return self.measure(exactly=True)
        return mean, np.bincount(self.cluster, minlength=len(self.loops.slopes))

    def answer(self, answer: Answer, sharing: Sharing, out: NDArray[Any]) -> Assignment:
        """Write the relevance or gradient, (n, d), or the competition, (n, K); return the assignment."""
        evidence = np.empty(self.rows.n_rows, self.rows.dtype)

        def work(rows: slice, layout: MemoryLayout, first: int) -> None:
            found = self._run_block(rows, layout, first, answer, sharing, out[rows])
            evidence[rows] = found
            if evidence.dtype != np.float64:
                check_rounded(out[:0], found)  # the loops have checked the numbers in ``out``

        self._each_block(work)
        return Assignment(self.cluster, self.competitor, evidence)

    def _each_block(self, work: Callable[[slice, MemoryLayout, int], object]) -> None:
        """Call ``work`` with the rows of each block, their layout, and the position of the first in it."""
        n_rows, size, d = self.rows.n_rows, self.block_rows, self.loops.slopes.shape[1]

        def run(x: Floats, start: int, stop: int) -> None:
            if self.layout is not None:
                work(slice(start, stop), self.layout, start)
            else:
                x = self.rows.inputs(start, stop, None, x[: stop - start])
                work(slice(start, stop), MemoryLayout.of_block(x), 0)

        if n_rows > size:
            converted = 0 if self.layout is not None else size
            blocks.run(run, lambda: np.empty((converted, d), order=self._order), n_rows, size)
        elif n_rows:  # a single block needs no threads
            with np.errstate(all="ignore"):
                run(np.empty((0, d)), 0, n_rows)

    def _run_block(
        self,
        rows: slice,
        layout: MemoryLayout,
        first: int,
        answer: Answer = Answer.ASSIGNMENT,
        sharing: Sharing | None = None,
        out: NDArray[Any] | None = None,
    ) -> Floats:
        """Assign the rows of a block and return their evidence; write the answer to ``out`` if given."""
        evidence = np.empty(rows.stop - rows.start)
        assignment = Assignment(self.cluster[rows], self.competitor[rows], evidence)
        if not self.loops.run(layout, first, assignment, self.given, answer, sharing, out):
            raise OutOfRangeError
        return evidence

    def _assign_block(
        self, rows: slice, layout: MemoryLayout, first: int, exactly: bool = False
    ) -> tuple[Floats, float]:
        """Assign the rows of a block; return their evidence and a bound on the sum of its errors."""
        evidence, error = np.empty(rows.stop - rows.start), None
        if not (exactly or self.given):
            error = self.loops.run_roughly(layout, first, self.cluster[rows], evidence)
        if error is None:
            return self._run_block(rows, layout, first), 0.0
        if math.isnan(error):
            raise OutOfRangeError
        return evidence, error
