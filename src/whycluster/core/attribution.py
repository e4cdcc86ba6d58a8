"""Attribution: from the rows to the relevance of every feature.

Clusters are codes 0..K-1 here. Rows are read block by block. Only the sequential rule allocates an array of
shape (rows, clusters, features), for a few rows at a time. Start reading at `attribute`. For k-means,
`whycluster.core.compiled` does all the work in compiled loops, except for the sequential rule and thresholds.
This module implements the same steps in NumPy, for every energy and every query.
``tests/core/test_compiled.py`` checks that the two agree.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Literal, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from whycluster.core import blocks
from whycluster.core.arrays import Codes, Floats
from whycluster.core.blocks import EvidenceView, InOrder, OutOfRangeError, Work, check_finite, check_rounded
from whycluster.core.compiled.loops import Answer, CompiledPasses
from whycluster.core.energies import Energy
from whycluster.core.errors import InvalidInputError
from whycluster.core.evidence import Assignment, Contest, absolute
from whycluster.core.rows import Rows
from whycluster.core.rules import (
    CONTRAST,
    SEQUENTIAL,
    SOFT,
    STIFFER,
    WITH_PRIOR,
    Prior,
    Sharing,
    weigh,
)
from whycluster.core.sequential import blend_block

# Chosen by measurement: smaller blocks take more time in Python, and larger blocks do not fit in the cache.
_THREAD_BYTES = 8 << 20
_STEPS = 4  # if pipeline steps are called, blocks are this many times larger, which halves the time
BETA, SIZES = "beta", "the cluster sizes"  # how messages name the quantities that are measured


@dataclass(frozen=True)
class CodedQuery:
    """What to explain about each row, with clusters as codes 0..K-1.

    Attributes
    ----------
    cluster : (n,) the cluster to explain for each row, or one for all rows; None for the assigned one
    competitor : (n,) the competitor of each row, or one for all rows; None for all competitors or, in a
        contrast, for the strongest one
    rule : how the evidence is shared among the competitors
    beta : the stiffness; None if it has to be measured, or if it is not used, as in a contrast
    threshold : the probability to exceed; None if the cluster only has to be the most likely one
    prior : the weights of the clusters, for rules that use them; None if they have to be found
    """

    cluster: Codes | None = None
    competitor: Codes | None = None
    rule: str = CONTRAST
    beta: float | None = None
    threshold: float | None = None
    prior: Prior | None = None

    @property
    def sharing(self) -> Sharing:
        """The rule with its parameters."""
        return Sharing(self.rule, self.beta, self.prior)

    def needs_population(self, energy: Energy) -> bool:
        """Return whether all rows have to be measured before any can be explained."""
        return bool(self.to_measure(energy))

    def to_measure(self, energy: Energy) -> list[str]:
        """Return the names of the quantities that have to be measured, for messages: `BETA` and `SIZES`."""
        beta = self.rule != CONTRAST and self.known_beta(energy) is None
        sizes = self.rule in WITH_PRIOR and self.prior is None and not energy.gives_probabilities
        return [BETA] * beta + [SIZES] * sizes

    def known_beta(self, energy: Energy) -> float | None:
        """Return the given beta or, for rules with a prior, the stiffness of the model, if there is one."""
        return energy.stiffness if self.beta is None and self.rule in WITH_PRIOR else self.beta

    def for_rows(self, rows: Rows) -> CodedQuery:
        """Return the query with one code per row, in read-only arrays that results cannot overwrite."""
        cluster, competitor = self.cluster, self.competitor
        return replace(
            self,
            cluster=None if cluster is None else _per_row(cluster, rows, "target"),
            competitor=None if competitor is None else _per_row(competitor, rows, "against"),
        )

    def assign(self, h: Floats, contest: Contest, start: int, stop: int) -> Assignment:
        """Turn the energies of rows start..stop into h, in place, and return the assignment of these rows."""
        cluster = None if self.cluster is None else self.cluster[start:stop]
        competitor = None if self.competitor is None else self.competitor[start:stop]
        found = contest.compete(h, cluster, competitor)
        return found if self.threshold is None else absolute(h, found, self.threshold)


def _per_row(codes: Codes, rows: Rows, name: str) -> Codes:
    if codes.shape not in ((), (rows.n_rows,)):
        raise InvalidInputError(
            f"{rows.where}: {name} must be a single cluster or one cluster for each of the {rows.n_rows} "
            f"rows; got shape {codes.shape}."
        )
    return np.broadcast_to(codes, rows.n_rows)


@dataclass(frozen=True)
class Attribution:
    """The relevance (n, d) and assignment (n,) of every row, and the beta and the prior that were used."""

    relevance: NDArray[Any]
    cluster: Codes
    competitor: Codes
    evidence: NDArray[Any]
    beta: float | None = None
    prior: Prior | None = None

    @classmethod
    def empty(
        cls, rows: Rows, query: CodedQuery, width: int | None = None, by_columns: bool = False
    ) -> Attribution:
        """Return arrays to be filled, in the dtype of the rows; codes given by the query are already set.

        ``width`` is the number of relevance scores per row, by default one per feature.
        """
        n, width = rows.n_rows, rows.n_features if width is None else width
        return cls(
            relevance=np.empty((n, width), rows.dtype, "F" if by_columns else "C"),
            cluster=np.empty(n, np.intp) if query.cluster is None else query.cluster,
            competitor=np.empty(n, np.intp) if query.competitor is None else query.competitor,
            evidence=np.empty(n, rows.dtype),
        )

    def store(self, assignment: Assignment, start: int, stop: int) -> None:
        """Store the assignment of rows start..stop, except for codes given by the query."""
        for values, block in zip((self.cluster, self.competitor, self.evidence), assignment, strict=True):
            if values.flags.writeable:
                values[start:stop] = block

    def stored(self, start: int, stop: int) -> Assignment:
        """Return the stored assignment of rows start..stop."""
        rows = slice(start, stop)
        return Assignment(self.cluster[rows], self.competitor[rows], self.evidence[rows])


@dataclass(frozen=True)
class Population:
    """Measurements over all rows. Populations of separate parts of the data can be added up."""

    evidence: float  # the mean of f_c; beta is its inverse (Eq. 3)
    sizes: Codes  # (K,) the size of each cluster
    means: Floats  # (K, n_inputs) the mean row of each cluster; (K, 0) if the energy needs no means

    @classmethod
    def none(cls, energy: Energy) -> Population:
        """Return an empty population, to which others can be added."""
        n_clusters, width = energy.n_clusters, energy.n_inputs if energy.needs_means else 0
        return cls(0.0, np.zeros(n_clusters, np.intp), np.zeros((n_clusters, width)))

    @property
    def n_rows(self) -> int:
        """The number of rows measured."""
        return int(self.sizes.sum())

    @property
    def members(self) -> tuple[Floats, Codes]:
        """The means and sizes of the clusters, the arguments of `Energy.with_means`."""
        return self.means, self.sizes

    def __add__(self, other: Population) -> Population:
        n_rows, sizes = max(1, self.n_rows + other.n_rows), self.sizes + other.sizes
        part = self.sizes / np.maximum(sizes, 1)
        return Population(
            self.evidence * (self.n_rows / n_rows) + other.evidence * (other.n_rows / n_rows),
            sizes,
            self.means * part[:, None] + other.means * (1.0 - part)[:, None],
        )


Background: TypeAlias = Rows | CompiledPasses | Population
"""The rows to measure, compiled passes over them, or a finished measurement."""


def attribute(
    energy: Energy, rows: Rows, query: CodedQuery, background: Background | None = None
) -> Attribution:
    """Return the relevance of every feature for every row, R = sum_k a_k (e_k - e_c).

    Unknown quantities are measured first, on ``background`` or, by default, on the rows themselves.
    """
    query, size = query.for_rows(rows), block_rows(energy, rows)
    loops = energy.compiled if query.rule not in (SEQUENTIAL, SOFT) else None
    if loops is None or not loops.is_available:
        return _attribute(energy, rows, query, background)
    passes = CompiledPasses(loops, rows, size, query.cluster, query.competitor)
    relevance = np.empty((rows.n_rows, rows.n_features), rows.dtype, "F" if rows.by_columns else "C")
    if background is None:
        background = rows if passes.given else passes
    try:
        query = measured(query, energy, background)
        found = passes.answer(Answer.RELEVANCE, Sharing(query.rule, query.beta, query.prior), relevance)
    except OutOfRangeError:
        raise InvalidInputError(rows.why_out_of_range()) from None
    return Attribution(relevance, *found, query.beta, query.prior)


def _attribute(energy: Energy, rows: Rows, query: CodedQuery, background: Background | None) -> Attribution:
    """Implement `attribute` in NumPy: measure the rows, then explain them block by block."""
    result = Attribution.empty(rows, query, by_columns=rows.by_columns and energy.takes_columns)
    view = None
    if query.needs_population(energy) or energy.needs_means:
        asks_all = query.cluster is None and query.rule != CONTRAST and query.threshold is None
        if background is None and asks_all:
            view = EvidenceView.of(result.relevance, energy.n_clusters)
        keep = None if view is None else Kept(result, view)
        found = population(energy, rows if background is None else background, keep)
        query = measured(query, energy, found)
        if energy.needs_means:
            energy = energy.with_means(*found.members)
    query = completed(query, energy)
    run_rows(_explain_block(energy, rows, query, result, view), energy, rows)
    return replace(result, beta=query.beta, prior=query.prior)


def _explain_block(
    energy: Energy, rows: Rows, query: CodedQuery, result: Attribution, view: EvidenceView | None
) -> Work[Workspace]:
    """Return the function that explains a block; if ``view`` is given, it already holds the h of all rows."""
    rounded = result.relevance.dtype != np.float64
    separate = rounded and not (energy.rounds and query.rule != SEQUENTIAL)

    def work(space: Workspace, start: int, stop: int) -> None:
        n_rows = stop - start
        if view is not None:
            x, h = read(energy, rows, space, start, stop), view.rows(start, stop)
            assignment = result.stored(start, stop)
            if rounded:
                assignment = assignment._replace(evidence=h[np.arange(n_rows), assignment.competitor])
        else:
            h = space.h[:n_rows]
            x = read_energies(energy, rows, space, start, stop, h)
            assignment = _checked(query.assign(h, energy.contest, start, stop))
            result.store(assignment, start, stop)
        weights, scratch = space.weights[:n_rows], space.scratch[:n_rows]
        weigh(h, assignment, query.sharing, weights)
        block = result.relevance[start:stop]
        out = space.relevance[:n_rows] if separate else block
        energy.combine(x, weights, out, scratch)
        if query.rule == SEQUENTIAL:
            assert query.beta is not None
            assert query.prior is not None
            blend_block(energy, x, assignment, query.prior, query.beta, out, scratch)
        if separate:
            block[...] = out  # terms of opposite sign were added in float64; only the sum is rounded
        if rounded:
            check_rounded(block, assignment.evidence)

    return work


class Kept(NamedTuple):
    """Results of the first pass that the second pass needs, kept in the arrays that the second pass fills."""

    assignment: Attribution
    h: EvidenceView


def population(energy: Energy, rows: Background, keep: Kept | None = None) -> Population:
    """Measure all rows; if ``keep`` is given, also store the assignment and h of each row in it."""
    if isinstance(rows, Population):
        return rows
    if isinstance(rows, CompiledPasses):
        mean, sizes = rows.measure()
        return Population(mean, sizes, np.zeros((energy.n_clusters, 0)))
    loops = energy.loops if keep is None else None
    if loops is None:
        return _population(energy, rows, keep)
    with explaining_why_out_of_range(rows):
        return population(energy, CompiledPasses(loops, rows, block_rows(energy, rows)))


def _population(energy: Energy, rows: Rows, keep: Kept | None) -> Population:
    means: dict[int, float] = {}
    sizes = InOrder(np.zeros(energy.n_clusters, np.intp))
    sums = InOrder(np.zeros((energy.n_clusters, energy.n_inputs if energy.needs_means else 0)))

    def work(space: Workspace, start: int, stop: int) -> None:
        h = space.h[: stop - start] if keep is None else keep.h.rows(start, stop)
        x = read_energies(energy, rows, space, start, stop, h)
        assignment = _checked(energy.contest.compete(h))
        means[start] = float((assignment.evidence / rows.n_rows).sum())
        sizes.add(start, stop, np.bincount(assignment.cluster, minlength=energy.n_clusters))
        if energy.needs_means:
            sums.add(start, stop, _sums(x, assignment.cluster, energy.n_clusters))
        if keep is not None:
            keep.assignment.store(assignment, start, stop)

    run_rows(work, energy, rows)
    (_, size), (_, total) = sizes.so_far, sums.so_far
    return Population(math.fsum(means.values()), size, total / np.maximum(size, 1)[:, None])


def measured(query: CodedQuery, energy: Energy, rows: Background) -> CodedQuery:
    """Return the query with beta and, for rules that use it, the prior filled in."""
    if not query.needs_population(energy):
        return completed(query, energy)
    beta, with_prior = query.known_beta(energy), query.rule in WITH_PRIOR
    found = population(energy, rows)
    if beta is None:  # Eq. 3
        beta = min(1.0 / found.evidence, sys.float_info.max) if found.evidence > 0.0 else math.inf
        beta *= STIFFER if with_prior else 1.0
    if not with_prior:
        return replace(query, beta=beta)
    sizes = np.maximum(found.sizes, 1)  # an empty cluster counts as one row
    return replace(query, beta=beta, prior=Prior(np.log(sizes / found.sizes.sum()), False, energy.contest))


def completed(query: CodedQuery, energy: Energy) -> CodedQuery:
    """Fill in the stiffness and the weights of a model that gives probabilities, and return the query."""
    if query.rule not in WITH_PRIOR or query.prior is not None:
        return query
    return replace(query, beta=query.known_beta(energy), prior=Prior(energy.parts.log_weight, True))


def _sums(x: Floats, cluster: Codes, n_clusters: int) -> Floats:
    """Return the sum of the rows of each cluster, (K, d)."""
    member = np.zeros((n_clusters, len(x)))
    member[cluster, np.arange(len(x))] = 1.0
    return member @ x


def _checked(assignment: Assignment) -> Assignment:
    if not np.isfinite(assignment.evidence).all():  # the difference of two energies may overflow
        raise OutOfRangeError
    return assignment


class Workspace:
    """The work arrays of one thread, for blocks of up to ``n_rows`` rows, stored by rows or by columns."""

    def __init__(self, energy: Energy, n_rows: int, by_columns: bool = False) -> None:
        d, n_clusters = energy.n_features, energy.n_clusters
        order: Literal["C", "F"] = "F" if by_columns else "C"
        self.x = np.empty((n_rows, energy.n_inputs), order=order)
        self.relevance = np.empty((n_rows, d), order=order)
        self.scratch = np.empty((n_rows, energy.scratch_width), order=order)
        self.h = blocks.per_cluster(np.empty(n_rows * n_clusters), n_rows, n_clusters)
        self.weights = np.empty_like(self.h)


def block_rows(energy: Energy, rows: Rows) -> int:
    """Return the number of rows in a block.

    The result does not depend on the number of threads, so two passes use the same blocks.
    """
    row_bytes = 8 * (energy.n_inputs + energy.n_features + energy.scratch_width + 2 * energy.n_clusters)
    room = _THREAD_BYTES * (_STEPS if rows.goes_through_steps else 1)
    return max(1, min(rows.most_rows, room // row_bytes))


def run_rows(work: Work[Workspace], energy: Energy, rows: Rows) -> None:
    """Call ``work`` for every block of rows; if a result is not finite, raise an error with the reason."""
    size = block_rows(energy, rows)
    space = partial(Workspace, energy, min(size, rows.n_rows), rows.by_columns and energy.takes_columns)
    with explaining_why_out_of_range(rows):
        blocks.run(work, space, rows.n_rows, size)


@contextmanager
def explaining_why_out_of_range(rows: Rows) -> Iterator[None]:
    """Turn an `OutOfRangeError` into an error that names the row and the feature."""
    try:
        yield
    except OutOfRangeError:
        raise InvalidInputError(rows.why_out_of_range()) from None


def read(energy: Energy, rows: Rows, space: Workspace, start: int, stop: int) -> Floats:
    """Return rows start..stop in the form that the energy expects."""
    return rows.inputs(start, stop, energy.offset, space.x[: stop - start])


def read_energies(energy: Energy, rows: Rows, space: Workspace, start: int, stop: int, out: Floats) -> Floats:
    """Write the energies of rows start..stop into ``out``, (b, K), and return the rows."""
    x = read(energy, rows, space, start, stop)
    energy.energies(x, out, space.scratch[: stop - start])
    check_finite(out)
    return x
