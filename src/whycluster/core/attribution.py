"""The passes over all rows: forward for labels, evidence and beta; forward and backward for relevance.

Clusters are codes 0..K-1 here. Rows are read block by block, and nothing of shape (rows, clusters, features)
is made, but for a few rows at a time by the sequential rule.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from whycluster.core import blocks
from whycluster.core.arrays import Codes, Floats
from whycluster.core.blocks import InOrder, Work, Workspace
from whycluster.core.compiled.loops import CompiledKMeans, MemoryLayout
from whycluster.core.energies import Energy, KernelEnergy
from whycluster.core.errors import InvalidInputError
from whycluster.core.evidence import Assignment, absolute, against_each, compete, evidence_of_all
from whycluster.core.rules import CONTRAST, DEFAULT_RULE, SEQUENTIAL, share, weigh
from whycluster.core.sequential import STIFFER, redistribute
from whycluster.core.tree import Tree
from whycluster.data.table import Table

_TERMS_BYTES = 1 << 20  # for what all clusters say of all features of some rows, which only one rule needs


@dataclass(frozen=True)
class Query:
    """What is asked of every row: which cluster, against which competitor, shared by which rule."""

    cluster: Codes | None = None  # (n,); None: the assigned cluster
    competitor: Codes | None = None  # (n,); None: all of them, or for a contrast the strongest
    rule: str = CONTRAST
    beta: float | None = None  # None: to be measured, or for a contrast not needed
    threshold: float | None = None  # of the cluster's probability; None: it need only be the largest
    log_prior: Floats | None = None  # (K,) of all rows, log of the part in each cluster; for sequential

    def __post_init__(self) -> None:
        """Make what is asked read-only, so that no answer is written over it (`Attribution.keep`)."""
        for name in ("cluster", "competitor"):
            codes = getattr(self, name)
            if codes is not None:
                object.__setattr__(self, name, np.broadcast_to(codes, codes.shape))

    @property
    def asks_of_all_rows(self) -> bool:
        """Whether something has to be measured on all rows before it can be asked of one."""
        return self.rule == SEQUENTIAL or (self.rule != CONTRAST and self.beta is None)

    @property
    def is_usual(self) -> bool:
        """Whether it is the one that most ask: why its own cluster, rather than all others?"""
        open_to_all = self.cluster is None and self.competitor is None and self.threshold is None
        return open_to_all and self.rule == DEFAULT_RULE

    def stand(self, h: Floats, tree: Tree | None, start: int, stop: int) -> Assignment:
        """Turn the energies of rows start..stop into h, in place, and say how the rows stand."""
        cluster = None if self.cluster is None else self.cluster[start:stop]
        competitor = None if self.competitor is None else self.competitor[start:stop]
        assignment = compete(h, tree, cluster, competitor)
        return assignment if self.threshold is None else absolute(h, assignment, self.threshold)


@dataclass(frozen=True)
class Attribution:
    """The answer: relevance (n, d), how each row stands (n,), and the beta that was used."""

    relevance: NDArray[Any]
    cluster: Codes
    competitor: Codes
    evidence: NDArray[Any]
    beta: float | None = None

    @classmethod
    def empty(
        cls, table: Table, query: Query, width: int | None = None, by_columns: bool = False
    ) -> Attribution:
        """Arrays to be filled, in the dtype of the data; what the question fixes is there already.

        ``width`` is how many numbers of relevance there are for each row, by default one for each feature.
        """
        n = table.n_rows
        return cls(
            relevance=blocks.empty(n, table.n_features if width is None else width, by_columns, table.dtype),
            cluster=np.empty(n, np.intp) if query.cluster is None else query.cluster,
            competitor=np.empty(n, np.intp) if query.competitor is None else query.competitor,
            evidence=np.empty(n, table.dtype),
        )

    def keep(self, assignment: Assignment, start: int, stop: int) -> None:
        """Store how rows start..stop stand, but for what the question had fixed."""
        for values, block in zip((self.cluster, self.competitor, self.evidence), assignment, strict=True):
            if values.flags.writeable:
                values[start:stop] = block

    def kept(self, start: int, stop: int) -> Assignment:
        """What `keep` stored."""
        rows = slice(start, stop)
        return Assignment(self.cluster[rows], self.competitor[rows], self.evidence[rows])

    def can_hold(self, n_clusters: int) -> bool:
        """Whether the rows of relevance, until they are known, have room for the rows of h."""
        room = 8 * n_clusters <= self.relevance.itemsize * self.relevance.shape[1]
        return bool(room and self.relevance.flags.c_contiguous)

    def evidence_view(self, start: int, stop: int, n_clusters: int) -> Floats:
        """The rows start..stop of h, (b, K), lying where their relevance will be written.

        This spares computing h twice, once for beta and once for the relevance, and takes no memory. It is of
        float64 in the room of float32, too: a block that begins between two of these leaves out a number.
        """
        room = self.relevance[start:stop].reshape(-1)
        if room.dtype != np.float64:
            between = room.ctypes.data // room.itemsize % 2
            room = room[between : between + (len(room) - between) // 2 * 2].view(np.float64)
        return blocks.per_cluster(room, stop - start, n_clusters)


def to_finite_array(table: Table) -> Floats:
    """All rows as one new array; what is not finite is an error."""
    rows = table.to_array()
    if not np.isfinite(rows).all():
        raise InvalidInputError(_why_not_finite(table))
    return rows


def assign(energy: Energy, table: Table) -> Codes:
    """The cluster of least energy for each row, (n,)."""
    cluster = np.empty(table.n_rows, dtype=np.intp)

    loops = _loops(energy, table)

    def work(space: Workspace, start: int, stop: int) -> None:
        if loops is None:
            h = space.h[: stop - start]
            _energies(energy, table, space, start, stop, h)
            assignment = compete(h, energy.tree)
        else:
            assignment = loops.run(space, start, stop)
        cluster[start:stop] = assignment.cluster

    _run(work, energy, table)
    return cluster


def energies_of_every_cluster(energy: KernelEnergy, table: Table) -> Floats:
    """s_k for every cluster k, (n, K), with what all clusters share."""
    result = np.empty((table.n_rows, energy.n_clusters))

    def work(space: Workspace, start: int, stop: int) -> None:
        rows = result[start:stop]
        x = _energies(energy, table, space, start, stop, rows)
        rows += energy.units.left_out(x, space.relevance[: stop - start])[:, None]

    _run(work, energy, table)
    return result


def mean_split(energy: KernelEnergy, table: Table, cluster: Codes) -> Floats:
    """The split of the energies of these clusters, averaged over the rows, (d,)."""
    sums: dict[int, Floats] = {}

    def work(space: Workspace, start: int, stop: int) -> None:
        n_rows = stop - start
        x = _read(energy, table, space, start, stop)
        weights, split = space.weights[:n_rows], space.relevance[:n_rows]
        weights[...] = 0.0
        weights[np.arange(n_rows), cluster[start:stop]] = 1.0
        energy.combine(x, weights, split, space.scratch[:n_rows])
        sums[start] = split.sum(axis=0)
        energy.units.left_out(x, split)
        sums[start] += split.sum(axis=0)

    _run(work, energy, table)
    return np.asarray(np.sum([sums[start] for start in sorted(sums)], axis=0) / table.n_rows)


def is_still(energy: Energy, table: Table, query: Query, evidence: NDArray[Any]) -> bool:
    """Whether the rows still give the evidence that they gave when the question was asked before.

    Up to rounding: that of the energies, where one row alone may be summed in another order than among
    many, and that of the evidence to its dtype.
    """
    differs: list[int] = []

    def work(space: Workspace, start: int, stop: int) -> None:
        h = space.h[: stop - start]
        x = _energies(energy, table, space, start, stop, h)
        rounding = 1e-9 * np.maximum(h.max(axis=1), -h.min(axis=1)) + 1e-14 * np.einsum("bd,bd->b", x, x)
        now, then = query.stand(h, energy.tree, start, stop).evidence, evidence[start:stop]
        rounding += 100 * np.finfo(then.dtype).eps * np.abs(then)
        if (np.abs(now - then) > rounding).any():
            differs.append(start)

    _run(work, energy, table)
    return not differs


def evidence_of_every_cluster(energy: Energy, table: Table) -> NDArray[Any]:
    """f_k for every cluster k, (n, K)."""
    result = np.empty((table.n_rows, energy.n_clusters), dtype=table.dtype)

    def work(space: Workspace, start: int, stop: int) -> None:
        h = space.h[: stop - start]
        _energies(energy, table, space, start, stop, h)
        evidence_of_all(h, energy.tree, result[start:stop])
        _check_finite(result[start:stop])

    _run(work, energy, table)
    return result


def contrasts(energy: Energy, table: Table, cluster: Codes) -> NDArray[Any]:
    """h_k, the evidence of each row for its cluster against every competitor k, (n, K); NaN at its own."""
    result = np.empty((table.n_rows, energy.n_clusters), dtype=table.dtype)

    def work(space: Workspace, start: int, stop: int) -> None:
        h = space.h[: stop - start]
        _energies(energy, table, space, start, stop, h)
        against_each(h, energy.tree, cluster[start:stop])
        result[start:stop] = h

    _run(work, energy, table)
    return result


def informed(energy: Energy, table: Table) -> Energy:
    """The energy with the means of the clusters' members among all rows, where its split needs them.

    So that several questions about some of the rows are answered as if they were asked of all.
    """
    if not energy.needs_means:
        return energy
    energy = energy.with_means(*population(energy, table).members)
    energy.needs_means = False
    return energy


def measured(query: Query, energy: Energy, rows: Background) -> Query:
    """The question with what it needs to know of all rows, so that it can be asked of some of them."""
    return _measured(query, energy, population(energy, rows))


def attribute(
    energy: Energy, table: Table, query: Query, background: Background | None = None
) -> Attribution:
    """Relevance of every feature for every row, R = sum_k a_k (e_k - e_c).

    Beta, where it is not given, is measured first: on ``background``, or on the table itself.
    """
    result = Attribution.empty(table, query, by_columns=_by_columns(energy, table))
    loops, evidence_view = _loops(energy, table) if query.is_usual else None, False
    if query.asks_of_all_rows or energy.needs_means:
        asks_all = query.cluster is None and query.rule != CONTRAST and query.threshold is None
        evidence_view = (
            loops is None and background is None and asks_all and result.can_hold(energy.n_clusters)
        )
        found = population(energy, background or table, result if evidence_view else None)
        query = _measured(query, energy, found)
        energy = energy.with_means(*found.members)
    step_by_step = _by_numpy(energy, table, query, result, evidence_view)

    def work(space: Workspace, start: int, stop: int) -> None:
        if loops is None:
            step_by_step(space, start, stop)
        else:
            assert query.beta is not None
            out = result.relevance[start:stop]
            result.keep(loops.run(space, start, stop, query.beta, out), start, stop)
        if table.dtype != np.float64:  # rounding may have made infinities
            _check_finite(result.relevance[start:stop])
            _check_finite(result.evidence[start:stop])

    _run(work, energy, table)
    return replace(result, beta=query.beta)


def _by_numpy(energy: Energy, table: Table, query: Query, result: Attribution, evidence_view: bool) -> Work:
    """Explains a block step by step; with ``held``, how it stands and its h are in the result already."""
    rounded = result.relevance.dtype != np.float64
    apart = rounded and not (energy.rounds and query.log_prior is None)

    def work(space: Workspace, start: int, stop: int) -> None:
        n_rows = stop - start
        if evidence_view:
            x, h = (
                _read(energy, table, space, start, stop),
                result.evidence_view(start, stop, energy.n_clusters),
            )
            assignment = result.kept(start, stop)
            if rounded:
                assignment = assignment._replace(evidence=h[np.arange(n_rows), assignment.competitor])
        else:
            h = space.h[:n_rows]
            x = _energies(energy, table, space, start, stop, h)
            assignment = _checked(query.stand(h, energy.tree, start, stop))
            result.keep(assignment, start, stop)
        weights, scratch = space.weights[:n_rows], space.scratch[:n_rows]
        weigh(h, assignment, query.rule, query.beta, weights)
        rows = result.relevance[start:stop]
        out = space.relevance[:n_rows] if apart else rows
        energy.combine(x, weights, out, scratch)
        if query.log_prior is not None:
            _redistribute(energy, x, assignment, query, out, scratch)
        if apart:
            rows[...] = out  # terms of opposite sign were added in float64; only the sum is rounded

    return work


Receive = Callable[[int, int, Floats, Floats], None]
"""Takes rows start..stop, W = sum_k a_k grad s_k, (b, d), and the relevance of all features, (b,)."""


def propagate_gradient(
    energy: Energy, table: Table, query: Query, background: Background | None, receive: Receive
) -> Attribution:
    """Relevance that is shared out by what lies below the features: words, of which they were made.

    ``receive`` is called for every block, on several threads; what it is given is valid until it returns.
    The attribution that comes back has no relevance of features.
    """
    result = Attribution.empty(table, query, width=0)
    if query.rule != CONTRAST and query.beta is None:
        query = measured(query, energy, background or table)

    def work(space: Workspace, start: int, stop: int) -> None:
        n_rows = stop - start
        h, weights, scratch = space.h[:n_rows], space.weights[:n_rows], space.scratch[:n_rows]
        x = _energies(energy, table, space, start, stop, h)
        assignment = query.stand(h, energy.tree, start, stop)
        result.keep(assignment, start, stop)
        weigh(h, assignment, query.rule, query.beta, weights)
        out = space.relevance[:n_rows]
        energy.combine(x, weights, out, scratch)
        total = out.sum(axis=1)
        energy.differentiate(x, weights, out, scratch)
        _check_finite(out)
        _check_finite(total)
        receive(start, stop, out, total)

    _run(work, energy, table)
    return replace(result, beta=query.beta)


def gradient(energy: Energy, table: Table, cluster: Codes | None = None) -> NDArray[Any]:
    """The gradient of f_c for every row, (n, d), by default of the cluster it is assigned to.

    f_c is the least of the h_k, so its gradient is that of the strongest competitor's.
    """
    query = Query(cluster)
    result = np.empty((table.n_rows, table.n_features), table.dtype)
    rounded = result.dtype != np.float64

    def work(space: Workspace, start: int, stop: int) -> None:
        n_rows = stop - start
        h, weights = space.h[:n_rows], space.weights[:n_rows]
        x = _energies(energy, table, space, start, stop, h)
        weigh(h, query.stand(h, energy.tree, start, stop), CONTRAST, None, weights)
        rows = result[start:stop]
        out = space.relevance[:n_rows] if rounded else rows
        energy.differentiate(x, weights, out, space.scratch[:n_rows])
        if rounded:
            rows[...] = out
            _check_finite(rows)

    _run(work, energy, table)
    return result


def competition(energy: Energy, table: Table, query: Query) -> NDArray[Any]:
    """R_k, how f_c was shared among the competitors, (n, K)."""
    shares = np.empty((table.n_rows, energy.n_clusters), dtype=table.dtype)

    def work(space: Workspace, start: int, stop: int) -> None:
        h, weights = space.h[: stop - start], space.weights[: stop - start]
        _energies(energy, table, space, start, stop, h)
        assignment = query.stand(h, energy.tree, start, stop)
        weigh(h, assignment, query.rule, query.beta, weights)
        share(h, assignment, weights)
        shares[start:stop] = weights

    _run(work, energy, table)
    return shares


def _redistribute(
    energy: Energy, x: Floats, assignment: Assignment, query: Query, out: Floats, scratch: Floats
) -> None:
    """Share the relevance of rows of no negative evidence in sequence; these are taken some at a time."""
    assert query.log_prior is not None
    assert query.beta is not None
    parts = energy.parts
    log_weight = parts.log_weight
    if not energy.gives_probabilities:  # which has weights of its own
        log_weight = log_weight + query.log_prior[parts.cluster]
    width = max(energy.n_features, energy.n_inputs)  # behind a pipeline, terms are first of what it makes
    size = max(1, _TERMS_BYTES // (8 * len(log_weight) * width))
    for start in range(0, len(x), size):
        part = slice(start, start + size)
        rows = start + np.flatnonzero(assignment.evidence[part] >= 0)
        if not rows.size:
            continue
        terms = np.empty((len(rows), len(log_weight), energy.n_features))
        cluster, relevance = assignment.cluster[rows], out[rows]
        energy.terms(x[rows], cluster, terms, scratch[: len(rows)])
        redistribute(terms, parts.cluster == cluster[:, None], log_weight, query.beta, relevance)
        out[rows] = relevance


def _measured(query: Query, energy: Energy, population: Population) -> Query:
    """The question with what it needs to know of all rows: beta, and for sequential their clusters."""
    if query.rule == CONTRAST:
        return query
    mean, sizes = population.evidence, population.sizes
    beta = min(1.0 / mean, sys.float_info.max) if mean > 0.0 else math.inf
    if query.rule != SEQUENTIAL:
        return query if query.beta is not None else replace(query, beta=beta)
    if query.beta is not None:
        beta = query.beta
    else:
        beta = STIFFER * beta if energy.stiffness is None else energy.stiffness
    log_prior = np.log(
        np.maximum(sizes, 1) / sizes.sum()
    )  # a cluster without rows is as one with a single one
    return replace(query, beta=beta, log_prior=log_prior)


@dataclass(frozen=True)
class Population:
    """What is measured on all rows; of rows that are read part by part, the sum of what the parts give."""

    evidence: float  # the mean of f_c, of which beta is the inverse (Eq. 3)
    sizes: Codes  # (K,) how many are in each cluster
    means: Floats  # (K, n_inputs) their mean, where the energy needs it

    @classmethod
    def none(cls, energy: Energy) -> Population:
        """That of no rows."""
        n_clusters, width = energy.n_clusters, energy.n_inputs if energy.needs_means else 0
        return cls(0.0, np.zeros(n_clusters, np.intp), np.zeros((n_clusters, width)))

    @property
    def n_rows(self) -> int:
        """How many rows it was measured on."""
        return int(self.sizes.sum())

    @property
    def members(self) -> tuple[Floats, Codes]:
        """The means and sizes of the clusters, as `Energy.with_means` takes them."""
        return self.means, self.sizes

    def __add__(self, other: Population) -> Population:
        n_rows, sizes = max(1, self.n_rows + other.n_rows), self.sizes + other.sizes
        part = self.sizes / np.maximum(sizes, 1)
        return Population(
            self.evidence * (self.n_rows / n_rows) + other.evidence * (other.n_rows / n_rows),
            sizes,
            self.means * part[:, None] + other.means * (1.0 - part)[:, None],
        )


Background: TypeAlias = Table | Population
"""The rows that are measured, or what was measured on them before."""


def population(energy: Energy, rows: Background, hold: Attribution | None = None) -> Population:
    """How all rows stand.

    With ``hold``, how each stands and its h are kept there.
    """
    if isinstance(rows, Population):
        return rows
    table = rows
    means: dict[int, float] = {}
    sizes = InOrder(np.zeros(energy.n_clusters, np.intp))
    sums = InOrder(np.zeros((energy.n_clusters, energy.n_inputs if energy.needs_means else 0)))
    loops = _loops(energy, table) if hold is None else None

    def work(space: Workspace, start: int, stop: int) -> None:
        if loops is None:
            h = (
                space.h[: stop - start]
                if hold is None
                else hold.evidence_view(start, stop, energy.n_clusters)
            )
            x = _energies(energy, table, space, start, stop, h)
            assignment = _checked(compete(h, energy.tree))
        else:
            assignment = loops.run(space, start, stop)
        means[start] = float((assignment.evidence / table.n_rows).sum())
        sizes.add(start, stop, np.bincount(assignment.cluster, minlength=energy.n_clusters))
        if energy.needs_means:
            sums.add(start, stop, _sums(x, assignment.cluster, energy.n_clusters))
        if hold is not None:
            hold.keep(assignment, start, stop)

    _run(work, energy, table)
    (_, size), (_, total) = sizes.so_far, sums.so_far
    return Population(math.fsum(means.values()), size, total / np.maximum(size, 1)[:, None])


def _sums(x: Floats, cluster: Codes, n_clusters: int) -> Floats:
    """The sum of the rows of each cluster, (K, d)."""
    member = np.zeros((n_clusters, len(x)))
    member[cluster, np.arange(len(x))] = 1.0
    return member @ x


def _read(energy: Energy, table: Table, space: Workspace, start: int, stop: int) -> Floats:
    return table.inputs(start, stop, energy.offset, space.x[: stop - start])


def _energies(energy: Energy, table: Table, space: Workspace, start: int, stop: int, out: Floats) -> Floats:
    """Read rows start..stop and write their energies; the rows are returned."""
    x = _read(energy, table, space, start, stop)
    energy.energies(x, out, space.scratch[: stop - start])
    _check_finite(out)
    return x


def _checked(assignment: Assignment) -> Assignment:
    if not np.isfinite(assignment.evidence).all():  # what lies between two energies may overflow
        raise _NotFiniteError
    return assignment


def _loops(energy: Energy, table: Table) -> _CompiledPasses | None:
    """Compiled loops, where there are any for the energy."""
    compiled = energy.compiled
    return None if compiled is None or energy.needs_means else _CompiledPasses(compiled, table)


class _CompiledPasses:
    """Compiled loops over the blocks of a table."""

    def __init__(self, compiled: CompiledKMeans, table: Table) -> None:
        self.compiled, self.table, self.memory_layout = compiled, table, table.memory_layout

    def run(
        self, space: Workspace, start: int, stop: int, beta: float = 0.0, out: NDArray[Any] | None = None
    ) -> Assignment:
        """How rows start..stop stand; their relevance goes to ``out``."""
        n_rows = stop - start
        rows, first = self.memory_layout, start
        if rows is None:
            rows, first = MemoryLayout.of_block(self.table.inputs(start, stop, None, space.x[:n_rows])), 0
        assignment = Assignment(np.empty(n_rows, np.intp), np.empty(n_rows, np.intp), np.empty(n_rows))
        if not self.compiled.run(rows, first, *assignment, beta, out):
            raise _NotFiniteError
        return assignment


class _NotFiniteError(Exception):
    """Something came out as NaN or infinite; the table is then searched for the reason."""


def _check_finite(values: NDArray[Any]) -> None:
    # One NaN or infinity spoils the sum. That of float32 is faster by far, and may overflow by itself.
    if not np.isfinite(values.sum()) and not np.isfinite(values.sum(dtype=np.float64)):
        raise _NotFiniteError


def _run(work: Work, energy: Energy, table: Table) -> None:
    try:
        by_columns = _by_columns(energy, table)
        blocks.run(work, energy, table.n_rows, table.most_rows, table.goes_through_steps, by_columns)
    except _NotFiniteError:
        raise InvalidInputError(_why_not_finite(table)) from None


def _by_columns(energy: Energy, table: Table) -> bool:
    return table.by_columns and energy.takes_columns


def _why_not_finite(table: Table) -> str:
    found = table.first_not_finite()
    if found is None:
        largest = max(float(np.abs(block).max()) for _, block in table.blocks())
        return (
            f"{table.where}: {table.name} has values too large to be squared in {table.dtype}; the "
            f"largest is {largest:.3g} in size. Rescale the data and fit the model again."
        )
    row, feature, value = found
    kind = "a missing value (NaN)" if math.isnan(value) else "an infinite value"
    return (
        f"{table.where}: {table.name} must be finite; row {table.number(row)}, feature {feature!r} holds "
        f"{kind}. Drop or fill such rows first."
    )
