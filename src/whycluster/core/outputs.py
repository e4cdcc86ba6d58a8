"""The outputs of a network other than relevance: assignments, evidence, contrasts, competition, gradients."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from whycluster.core.arrays import Codes
from whycluster.core.attribution import (
    CodedQuery,
    explaining_why_out_of_range,
    numpy_passes,
    passes_over,
    population,
    run_rows,
)
from whycluster.core.blocks import check_finite, check_rounded
from whycluster.core.compiled.loops import Answer
from whycluster.core.energies import Energy
from whycluster.core.passes import Block
from whycluster.core.rows import Rows


def assign(energy: Energy, rows: Rows) -> Codes:
    """Return the cluster with the lowest energy for each row, (n,)."""
    with explaining_why_out_of_range(rows):
        return passes_over(energy, rows).assign()


def evidence_of_every_cluster(energy: Energy, rows: Rows) -> NDArray[Any]:
    """Return f_k for every cluster k, (n, K)."""
    result = np.empty((rows.n_rows, energy.n_clusters), dtype=rows.dtype)

    def work(block: Block) -> None:
        block.write_energies()
        energy.contest.evidence_of_all(block.h, block.weights)
        result[block.rows] = block.weights
        check_finite(block.weights)
        if rows.dtype != np.float64:
            check_rounded(result[block.rows], block.weights)

    run_rows(work, energy, rows)
    return result


def contrasts(energy: Energy, rows: Rows, cluster: Codes) -> NDArray[Any]:
    """Return h_k, (n, K), the evidence for each row's cluster c against every cluster k (NaN for c)."""
    result = np.empty((rows.n_rows, energy.n_clusters), dtype=rows.dtype)

    def work(block: Block) -> None:
        block.write_energies()
        energy.contest.against_each(block.h, cluster[block.rows])
        result[block.rows] = block.h

    run_rows(work, energy, rows)
    return result


def competition(energy: Energy, rows: Rows, query: CodedQuery) -> NDArray[Any]:
    """Return R_k, (n, K), the share of the evidence f_c that the rule assigns to each competitor."""
    return _answer(Answer.COMPETITION, energy, rows, query, energy.n_clusters)[1]


def slopes(energy: Energy, rows: Rows, query: CodedQuery) -> tuple[NDArray[Any], NDArray[Any]]:
    """Return the evidence f_c of the query for every row, (n,), and its gradient, (n, d).

    f_c is the minimum of the h_k, so its gradient is the gradient of the strongest competitor's h_k.
    """
    return _answer(Answer.GRADIENT, energy, rows, query.for_rows(rows), rows.n_features)


def _answer(
    answer: Answer, energy: Energy, rows: Rows, query: CodedQuery, width: int
) -> tuple[NDArray[Any], NDArray[Any]]:
    """Return the evidence, (n,), and the answer, (n, width)."""
    result = np.empty((rows.n_rows, width), dtype=rows.dtype)
    with explaining_why_out_of_range(rows):
        found = passes_over(energy, rows, query).answer(answer, query.sharing, result)
    return found.evidence, result


def competitor_weights(energy: Energy, rows: Rows, query: CodedQuery) -> NDArray[Any]:
    """Return a_k, (n, K), the weight that the rule gives each competitor; a_c = -sum_k a_k."""
    result = np.empty((rows.n_rows, energy.n_clusters), dtype=rows.dtype)

    def work(block: Block) -> None:
        result[block.rows] = block.weights

    with explaining_why_out_of_range(rows):
        numpy_passes(energy, rows, query).each_weighted(query.sharing, work)
    return result


def informed(energy: Energy, rows: Rows) -> Energy:
    """Return the energy with the cluster means of all rows filled in, or unchanged if it needs no means.

    Queries about some of the rows then give the same results as queries about all of them.
    """
    if not energy.needs_means:
        return energy
    found = population(energy, rows)
    return energy.with_means(found.means, found.sizes)
