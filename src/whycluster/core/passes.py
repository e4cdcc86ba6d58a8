"""NumPy's passes over all rows, block by block, for every energy and every query.

For k-means, `whycluster.core.compiled.loops` has the same passes in compiled loops, except for the sequential
rule and thresholds.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from contextlib import nullcontext
from typing import Any, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from whycluster.core import blocks
from whycluster.core.arrays import Codes, Floats, row_by_row
from whycluster.core.blocks import EvidenceView, InOrder, OutOfRangeError, check_finite, check_rounded
from whycluster.core.compiled.loops import Answer
from whycluster.core.energies import Energy
from whycluster.core.evidence import Assignment, absolute
from whycluster.core.rows import Rows
from whycluster.core.rules import SEQUENTIAL, Sharing, share, weigh


class Workspace:
    """The work arrays of one thread, for blocks of up to ``n_rows`` rows, stored by rows or by columns."""

    def __init__(self, energy: Energy, n_rows: int, by_columns: bool = False) -> None:
        n_clusters = energy.n_clusters
        order: Literal["C", "F"] = "F" if by_columns else "C"
        self.x = np.empty((n_rows, energy.n_inputs), order=order)
        self.relevance = np.empty((n_rows, energy.n_features), order=order)
        self.scratch = np.empty((n_rows, energy.scratch_width), order=order)
        self.h = blocks.per_cluster(np.empty(n_rows * n_clusters), n_rows, n_clusters)
        self.weights = np.empty_like(self.h)


class Block:
    """Rows start..stop of a table, with the work arrays of a thread.

    Attributes
    ----------
    energy, space : the energy, and the work arrays of the thread
    x : (b, n_inputs) the rows, as the energy expects them
    h, weights : (b, K) the energies and then h; the weights of the competitors
    relevance, scratch : (b, d) and (b, scratch_width)
    assignment : the assignment of the rows, once they have competed
    """

    assignment: Assignment

    def __init__(self, energy: Energy, rows: Rows, space: Workspace, start: int, stop: int) -> None:
        self.energy, self.space, self.start, self.stop = energy, space, start, stop
        self.n_rows, self.rows = stop - start, slice(start, stop)
        self.relevance, self.scratch, self.h, self.weights = (
            each[: self.n_rows] for each in (space.relevance, space.scratch, space.h, space.weights)
        )
        self.x = rows.inputs(start, stop, energy.offset, space.x[: self.n_rows])

    def write_energies(self) -> None:
        """Write the energies of the rows into h."""
        self.energy.energies(self.x, self.h, self.scratch)
        check_finite(self.h)


Work: TypeAlias = Callable[[Block], None]
blends: dict[str, Callable[[Block, Sharing, Floats], None]] = {}
"""What a rule does with the relevance of a block, (b, d), once it is summed over the competitors.

Only the sequential rule has an entry, which `whycluster.models` fills in."""


def run_blocks(work: Work, energy: Energy, rows: Rows, size: int) -> None:
    """Call ``work`` for every block of ``size`` rows, on several threads."""
    by_columns = rows.by_columns and energy.takes_columns

    def run(space: Workspace, start: int, stop: int) -> None:
        with row_by_row() if rows.stand_alone else nullcontext():
            work(Block(energy, rows, space, start, stop))

    blocks.run(run, lambda: Workspace(energy, min(size, rows.n_rows), by_columns), rows.n_rows, size)


class NumpyPasses:
    """Passes over all rows, with the methods of `CompiledPasses`.

    Parameters
    ----------
    energy, rows : the energy and the rows
    block_rows : the number of rows in a block
    given : the clusters to explain, (n,), their competitors, (n,), and the probability to exceed, or None
    room : memory in which `measure` may keep h until `answer` overwrites it with its result, (n, d)
    """

    def __init__(
        self,
        energy: Energy,
        rows: Rows,
        block_rows: int,
        given: tuple[Codes | None, Codes | None, float | None],
        room: NDArray[Any] | None = None,
    ) -> None:
        self.energy, self.rows, self.block_rows = energy, rows, block_rows
        self.cluster, self.competitor, self.threshold = given
        self.means = np.zeros((energy.n_clusters, energy.n_inputs if energy.needs_means else 0))
        self._found = Assignment(
            np.empty(rows.n_rows, np.intp) if self.cluster is None else self.cluster,
            np.empty(rows.n_rows, np.intp) if self.competitor is None else self.competitor,
            np.empty(rows.n_rows, rows.dtype),
        )
        self._view = None
        if room is not None and all(each is None for each in given):
            self._view = EvidenceView.of(room, energy.n_clusters)
        self._is_kept = False

    def assign(self) -> Codes:
        """Return the cluster of each row, (n,)."""

        def work(block: Block) -> None:
            block.write_energies()
            self._found.cluster[block.rows] = self.energy.contest.compete(block.h).cluster

        self.run(work)
        return self._found.cluster

    def measure(self) -> tuple[float, Codes]:
        """Return the mean evidence of all rows and the size of each cluster, (K,); fill in `means`."""
        evidence: dict[int, float] = {}
        n_clusters, sums = self.energy.n_clusters, InOrder(np.zeros_like(self.means))

        def work(block: Block) -> None:
            if self._view is not None:
                block.h = self._view.rows(block.start, block.stop)
            block.write_energies()
            assignment = _checked(self.energy.contest.compete(block.h))
            evidence[block.start] = float((assignment.evidence / self.rows.n_rows).sum())
            if self.energy.needs_means:
                member = np.zeros((n_clusters, block.n_rows))
                member[assignment.cluster, np.arange(block.n_rows)] = 1.0
                sums.add(block.start, block.stop, member @ block.x)
            self._store(block, assignment)

        self.run(work)
        sizes = np.bincount(self._found.cluster, minlength=n_clusters)
        self._is_kept, self.means = self._view is not None, sums.so_far[1] / np.maximum(sizes, 1)[:, None]
        return math.fsum(evidence.values()), sizes

    def answer(self, answer: Answer, sharing: Sharing, out: NDArray[Any]) -> Assignment:
        """Write the relevance or gradient, (n, d), or the competition, (n, K); return the assignment."""
        rounded = out.dtype != np.float64
        rounds = answer == Answer.RELEVANCE and self.energy.rounds and sharing.rule != SEQUENTIAL

        def work(block: Block) -> None:
            result = out[block.rows]
            exact = block.relevance if rounded and not rounds else result
            if answer == Answer.COMPETITION:
                share(block.h, block.assignment, block.weights)
                exact = block.weights
            elif answer == Answer.GRADIENT:
                self.energy.differentiate(block.x, block.weights, exact, block.scratch)
            else:
                self.energy.combine(block.x, block.weights, exact, block.scratch)
                if sharing.rule == SEQUENTIAL:
                    blends[SEQUENTIAL](block, sharing, exact)
            if exact is not result:
                result[...] = exact  # terms of opposite sign were added in float64; only the sum is rounded
            if rounded:
                check_rounded(result, block.assignment.evidence)

        return self.each_weighted(sharing, work)

    def each_weighted(self, sharing: Sharing, work: Work) -> Assignment:
        """Call ``work`` for every block, with the weights of the competitors; return the assignment."""
        if sharing.beta is not None:
            sharing = sharing._replace(beta=max(sharing.beta, self.energy.contest.softest))

        def weighted(block: Block) -> None:
            self._compete(block)
            weigh(block.h, block.assignment, sharing, block.weights)
            work(block)

        self.run(weighted)
        return self._found

    def run(self, work: Work) -> None:
        """Call ``work`` for every block, on several threads."""
        run_blocks(work, self.energy, self.rows, self.block_rows)

    def compete(self, block: Block) -> Assignment:
        """Turn the energies of a block into h, in place, and return the assignment."""
        codes = (None if each is None else each[block.rows] for each in (self.cluster, self.competitor))
        found = self.energy.contest.compete(block.h, *codes)
        return found if self.threshold is None else absolute(block.h, found, self.threshold)

    def _compete(self, block: Block) -> None:
        """Write h and the assignment of a block, or take them from the first pass if it kept them."""
        if self._view is not None and self._is_kept:
            block.h = self._view.rows(block.start, block.stop)
            cluster, competitor, _ = (values[block.rows] for values in self._found)
            evidence = block.h[np.arange(block.n_rows), competitor]  # not rounded
            block.assignment = Assignment(cluster, competitor, evidence)
            return
        block.write_energies()
        block.assignment = _checked(self.compete(block))
        self._store(block, block.assignment)

    def _store(self, block: Block, assignment: Assignment) -> None:
        for values, found in zip(self._found, assignment, strict=True):
            if values.flags.writeable:  # given codes are not
                values[block.rows] = found


def _checked(assignment: Assignment) -> Assignment:
    if not np.isfinite(assignment.evidence).all():  # the difference of two energies may overflow
        raise OutOfRangeError
    return assignment
