"""The outputs of a network other than relevance: assignments, evidence, contrasts, competition, gradients."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from whycluster.core.arrays import Codes, Floats
from whycluster.core.attribution import (
    Attribution,
    Background,
    CodedQuery,
    Workspace,
    block_rows,
    explaining_why_out_of_range,
    measured,
    population,
    read,
    read_energies,
    run_rows,
)
from whycluster.core.blocks import InOrder, check_finite, check_rounded
from whycluster.core.compiled.loops import Answer, CompiledPasses
from whycluster.core.energies import Energy
from whycluster.core.rows import Rows
from whycluster.core.rules import share, weigh


def assign(energy: Energy, rows: Rows) -> Codes:
    """Return the cluster with the lowest energy for each row, (n,)."""
    loops = energy.loops
    if loops is not None:
        with explaining_why_out_of_range(rows):
            return CompiledPasses(loops, rows, block_rows(energy, rows)).assign()
    cluster = np.empty(rows.n_rows, dtype=np.intp)

    def work(space: Workspace, start: int, stop: int) -> None:
        h = space.h[: stop - start]
        read_energies(energy, rows, space, start, stop, h)
        cluster[start:stop] = energy.contest.compete(h).cluster

    run_rows(work, energy, rows)
    return cluster


def evidence_of_every_cluster(energy: Energy, rows: Rows) -> NDArray[Any]:
    """Return f_k for every cluster k, (n, K)."""
    result = np.empty((rows.n_rows, energy.n_clusters), dtype=rows.dtype)

    def work(space: Workspace, start: int, stop: int) -> None:
        h, evidence = space.h[: stop - start], space.weights[: stop - start]
        read_energies(energy, rows, space, start, stop, h)
        energy.contest.evidence_of_all(h, evidence)
        result[start:stop] = evidence
        check_finite(evidence)
        if rows.dtype != np.float64:
            check_rounded(result[start:stop], evidence)

    run_rows(work, energy, rows)
    return result


def contrasts(energy: Energy, rows: Rows, cluster: Codes) -> NDArray[Any]:
    """Return h_k, (n, K), the evidence for each row's cluster c against every cluster k (NaN for c)."""
    result = np.empty((rows.n_rows, energy.n_clusters), dtype=rows.dtype)

    def work(space: Workspace, start: int, stop: int) -> None:
        h = space.h[: stop - start]
        read_energies(energy, rows, space, start, stop, h)
        energy.contest.against_each(h, cluster[start:stop])
        result[start:stop] = h

    run_rows(work, energy, rows)
    return result


def competition(energy: Energy, rows: Rows, query: CodedQuery) -> NDArray[Any]:
    """Return R_k, (n, K), the share of the evidence f_c that the rule assigns to each competitor."""
    loops = energy.loops if query.threshold is None else None
    if loops is None:
        return _weigh(energy, rows, query, as_shares=True)
    shares = np.empty((rows.n_rows, energy.n_clusters), dtype=rows.dtype)
    passes = CompiledPasses(loops, rows, block_rows(energy, rows), query.cluster, query.competitor)
    with explaining_why_out_of_range(rows):
        passes.answer(Answer.COMPETITION, query.sharing, shares)
    return shares


def competitor_weights(energy: Energy, rows: Rows, query: CodedQuery) -> NDArray[Any]:
    """Return a_k, (n, K), the weight that the rule gives each competitor; a_c = -sum_k a_k."""
    return _weigh(energy, rows, query, as_shares=False)


def _weigh(energy: Energy, rows: Rows, query: CodedQuery, as_shares: bool) -> NDArray[Any]:
    result = np.empty((rows.n_rows, energy.n_clusters), dtype=rows.dtype)

    def work(space: Workspace, start: int, stop: int) -> None:
        h, weights = space.h[: stop - start], space.weights[: stop - start]
        read_energies(energy, rows, space, start, stop, h)
        assignment = query.assign(h, energy.contest, start, stop)
        weigh(h, assignment, query.sharing, weights)
        if as_shares:
            share(h, assignment, weights)
        result[start:stop] = weights

    run_rows(work, energy, rows)
    return result


class Weighted(NamedTuple):
    """Rows with one weighted competitor each, as arrays of shape (n,); see `contributions`."""

    cluster: Codes
    competitor: Codes
    weight: NDArray[Any]
    group: Codes


def contributions(energy: Energy, rows: Rows, weighted: Weighted, n_groups: int) -> Floats:
    """Return the sum of a_k (e_k - e_c) over the rows of each group, (G, d), for one competitor k per row."""
    sums = InOrder(np.zeros((n_groups, energy.n_features)))

    def work(space: Workspace, start: int, stop: int) -> None:
        n_rows, total = stop - start, np.zeros((n_groups, energy.n_features))
        cluster, competitor, weight, group = (each[start:stop] for each in weighted)
        weights, out, each_row = space.weights[:n_rows], space.relevance[:n_rows], np.arange(n_rows)
        weights[...] = 0.0
        weights[each_row, competitor] = weight
        weights[each_row, cluster] = -weight
        energy.combine(read(energy, rows, space, start, stop), weights, out, space.scratch[:n_rows])
        np.add.at(total, group, out)
        sums.add(start, stop, total)

    run_rows(work, energy, rows)
    return sums.so_far[1]


def gradient(energy: Energy, rows: Rows, cluster: Codes | None = None) -> NDArray[Any]:
    """Return the gradient of f_c for every row, (n, d); by default c is the assigned cluster.

    f_c is the minimum of the h_k, so its gradient is the gradient of the strongest competitor's h_k.
    """
    query = CodedQuery(cluster).for_rows(rows)
    result = np.empty((rows.n_rows, rows.n_features), rows.dtype)
    if energy.loops is not None:
        passes = CompiledPasses(energy.loops, rows, block_rows(energy, rows), query.cluster)
        with explaining_why_out_of_range(rows):
            passes.answer(Answer.GRADIENT, query.sharing, result)
        return result
    rounded = result.dtype != np.float64

    def work(space: Workspace, start: int, stop: int) -> None:
        n_rows = stop - start
        h, weights = space.h[:n_rows], space.weights[:n_rows]
        x = read_energies(energy, rows, space, start, stop, h)
        weigh(h, query.assign(h, energy.contest, start, stop), query.sharing, weights)
        block = result[start:stop]
        out = space.relevance[:n_rows] if rounded else block
        energy.differentiate(x, weights, out, space.scratch[:n_rows])
        if rounded:
            block[...] = out
            check_finite(block)

    run_rows(work, energy, rows)
    return result


Receive: TypeAlias = Callable[[int, int, Floats, Floats], None]
"""Takes start and stop of a block, W = sum_k a_k grad s_k, (b, d), and the relevance of each row, (b,)."""


def propagate_gradient(
    energy: Energy, rows: Rows, query: CodedQuery, background: Background | None, receive: Receive
) -> Attribution:
    """Pass the gradient of each row to ``receive``, which distributes relevance among inputs such as words.

    ``receive`` is called for every block, on several threads; its arguments are valid until it returns. The
    returned attribution contains no relevance.
    """
    query = query.for_rows(rows)
    result = Attribution.empty(rows, query, width=0)
    query = measured(query, energy, rows if background is None else background)

    def work(space: Workspace, start: int, stop: int) -> None:
        n_rows = stop - start
        h, weights, scratch = space.h[:n_rows], space.weights[:n_rows], space.scratch[:n_rows]
        x = read_energies(energy, rows, space, start, stop, h)
        assignment = query.assign(h, energy.contest, start, stop)
        result.store(assignment, start, stop)
        weigh(h, assignment, query.sharing, weights)
        out = space.relevance[:n_rows]
        energy.combine(x, weights, out, scratch)
        total = out.sum(axis=1)
        energy.differentiate(x, weights, out, scratch)
        check_finite(out)
        check_finite(total)
        receive(start, stop, out, total)

    run_rows(work, energy, rows)
    return replace(result, beta=query.beta, prior=query.prior)


def informed(energy: Energy, rows: Rows) -> Energy:
    """Return the energy with the cluster means of all rows filled in, or unchanged if it needs no means.

    Queries about some of the rows then give the same results as if all rows had been passed.
    """
    return energy.with_means(*population(energy, rows).members) if energy.needs_means else energy
