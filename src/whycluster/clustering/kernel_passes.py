"""Computations over all rows that are needed to fit kernel networks: full energies and their mean split."""

from __future__ import annotations

import numpy as np

from whycluster.core.arrays import Codes, Floats
from whycluster.core.attribution import run_rows
from whycluster.core.energies import KernelEnergy
from whycluster.core.passes import Block
from whycluster.core.rows import Rows
from whycluster.models.energies.noise import left_out


def energies_of_every_cluster(energy: KernelEnergy, rows: Rows) -> Floats:
    """Return s_k for every cluster k, (n, K), including the term that all clusters share."""
    result = np.empty((rows.n_rows, energy.n_clusters))

    def work(block: Block) -> None:
        block.h = result[block.rows]
        block.write_energies()
        block.h += left_out(energy, block.x, block.relevance)[:, None]

    run_rows(work, energy, rows)
    return result


def mean_split(energy: KernelEnergy, rows: Rows, cluster: Codes) -> Floats:
    """Return how the energy of a row in its given cluster splits over the features, (d,), on average."""
    sums: dict[int, Floats] = {}

    def work(block: Block) -> None:
        block.weights[...] = 0.0
        block.weights[np.arange(block.n_rows), cluster[block.rows]] = 1.0
        energy.combine(block.x, block.weights, block.relevance, block.scratch)
        sums[block.start] = block.relevance.sum(axis=0)
        left_out(energy, block.x, block.relevance)
        sums[block.start] += block.relevance.sum(axis=0)

    run_rows(work, energy, rows)
    return np.asarray(np.sum([sums[start] for start in sorted(sums)], axis=0) / rows.n_rows)
