"""Computations over all rows that are needed to fit kernel networks: full energies and their mean split."""

from __future__ import annotations

import numpy as np

from whycluster.core.arrays import Codes, Floats
from whycluster.core.attribution import Workspace, read, read_energies, run_rows
from whycluster.core.energies import KernelEnergy
from whycluster.core.rows import Rows


def energies_of_every_cluster(energy: KernelEnergy, rows: Rows) -> Floats:
    """Return s_k for every cluster k, (n, K), including the term that all clusters share."""
    result = np.empty((rows.n_rows, energy.n_clusters))

    def work(space: Workspace, start: int, stop: int) -> None:
        block = result[start:stop]
        x = read_energies(energy, rows, space, start, stop, block)
        block += energy.left_out(x, space.relevance[: stop - start])[:, None]

    run_rows(work, energy, rows)
    return result


def mean_split(energy: KernelEnergy, rows: Rows, cluster: Codes) -> Floats:
    """Return how the energy of a row in its given cluster splits over the features, (d,), on average."""
    sums: dict[int, Floats] = {}

    def work(space: Workspace, start: int, stop: int) -> None:
        n_rows = stop - start
        x = read(energy, rows, space, start, stop)
        weights, split = space.weights[:n_rows], space.relevance[:n_rows]
        weights[...] = 0.0
        weights[np.arange(n_rows), cluster[start:stop]] = 1.0
        energy.combine(x, weights, split, space.scratch[:n_rows])
        sums[start] = split.sum(axis=0)
        energy.left_out(x, split)
        sums[start] += split.sum(axis=0)

    run_rows(work, energy, rows)
    return np.asarray(np.sum([sums[start] for start in sorted(sums)], axis=0) / rows.n_rows)
