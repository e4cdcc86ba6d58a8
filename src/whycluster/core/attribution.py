"""Attribution: from the rows to the relevance of every feature.

Clusters are codes 0..K-1 here. Rows are read block by block. Start reading at `attribute`.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cache, partial
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from whycluster.core.arrays import Codes, Floats
from whycluster.core.blocks import OutOfRangeError
from whycluster.core.compiled.loops import Answer, CompiledPasses
from whycluster.core.energies import Energy
from whycluster.core.errors import InvalidInputError
from whycluster.core.passes import NumpyPasses, Work, run_blocks
from whycluster.core.rows import Rows
from whycluster.core.rules import CONTRAST, SEQUENTIAL, STIFFER, WITH_PRIOR, Prior, Sharing

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

    def to_measure(self, energy: Energy) -> list[str]:
        """Return the names of the quantities to measure on all rows, for messages: `BETA` and `SIZES`."""
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

    def __add__(self, other: Population) -> Population:
        n_rows, sizes = max(1, self.n_rows + other.n_rows), self.sizes + other.sizes
        part = self.sizes / np.maximum(sizes, 1)
        return Population(
            self.evidence * (self.n_rows / n_rows) + other.evidence * (other.n_rows / n_rows),
            sizes,
            self.means * part[:, None] + other.means * (1.0 - part)[:, None],
        )


Passes: TypeAlias = CompiledPasses | NumpyPasses
Background: TypeAlias = Rows | Callable[[], Passes] | Population
"""The rows to measure, a function that returns passes over them, or a finished measurement."""


def attribute(
    energy: Energy, rows: Rows, query: CodedQuery, background: Background | None = None
) -> Attribution:
    """Return the relevance of every feature for every row, R = sum_k a_k (e_k - e_c).

    Unknown quantities are measured first, on ``background`` or, by default, on the rows themselves.
    """
    query, by_columns = query.for_rows(rows), rows.by_columns and energy.takes_columns
    relevance = np.empty((rows.n_rows, rows.n_features), rows.dtype, "F" if by_columns else "C")
    passes = cache(partial(passes_over, energy, rows, query, relevance))  # measures, then answers
    if background is None:
        background = passes if query.cluster is None and query.competitor is None else rows
    try:
        if energy.needs_means:
            background = population(energy, background)
            own = passes()
            assert isinstance(own, NumpyPasses)  # energies that need means are never compiled
            own.energy = energy.with_means(background.means, background.sizes)
        query = measured(query, energy, background)
        found = passes().answer(Answer.RELEVANCE, Sharing(query.rule, query.beta, query.prior), relevance)
    except OutOfRangeError:
        raise InvalidInputError(rows.why_out_of_range()) from None
    return Attribution(relevance, *found, query.beta, query.prior)


def passes_over(
    energy: Energy, rows: Rows, query: CodedQuery | None = None, relevance: NDArray[Any] | None = None
) -> Passes:
    """Return compiled passes over the rows if there are any for this query, or else NumPy's.

    ``relevance`` is the array for the result if the passes are to compute the relevance.
    """
    query = query or CodedQuery()
    is_sequential, size = relevance is not None and query.rule == SEQUENTIAL, block_rows(energy, rows)
    loops = energy.compiled if query.threshold is None and not is_sequential else None
    if loops is None or not loops.is_available:
        return numpy_passes(energy, rows, query, relevance)
    return CompiledPasses(loops, rows, size, query.cluster, query.competitor)


def numpy_passes(
    energy: Energy, rows: Rows, query: CodedQuery, relevance: NDArray[Any] | None = None
) -> NumpyPasses:
    """Return NumPy's passes over the rows, which may keep h in ``relevance`` until they overwrite it."""
    given = query.cluster, query.competitor, query.threshold
    return NumpyPasses(energy, rows, block_rows(energy, rows), given, relevance)


def population(energy: Energy, rows: Background) -> Population:
    """Measure all rows."""
    if isinstance(rows, Population):
        return rows
    if isinstance(rows, Rows):
        with explaining_why_out_of_range(rows):
            return population(energy, partial(passes_over, energy, rows))
    passes = rows()
    mean, sizes = passes.measure()
    means = passes.means if isinstance(passes, NumpyPasses) else np.zeros((energy.n_clusters, 0))
    return Population(mean, sizes, means)


def measured(query: CodedQuery, energy: Energy, rows: Background) -> CodedQuery:
    """Return the query with beta and, for rules that use it, the prior filled in."""
    if not query.to_measure(energy):
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


def block_rows(energy: Energy, rows: Rows) -> int:
    """Return the number of rows in a block.

    The result does not depend on the number of threads, so two passes use the same blocks.
    """
    row_bytes = 8 * (energy.n_inputs + energy.n_features + energy.scratch_width + 2 * energy.n_clusters)
    room = _THREAD_BYTES * (_STEPS if rows.goes_through_steps else 1)
    return max(1, min(rows.most_rows, room // row_bytes))


def run_rows(work: Work, energy: Energy, rows: Rows) -> None:
    """Call ``work`` for every block of rows; if a result is not finite, raise an error with the reason."""
    with explaining_why_out_of_range(rows):
        run_blocks(work, energy, rows, block_rows(energy, rows))


@contextmanager
def explaining_why_out_of_range(rows: Rows) -> Iterator[None]:
    """Turn an `OutOfRangeError` into an error that names the row and the feature."""
    try:
        yield
    except OutOfRangeError:
        raise InvalidInputError(rows.why_out_of_range()) from None
