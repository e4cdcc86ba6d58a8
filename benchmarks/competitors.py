"""Count the competitors whose weight is negligible for a whole tile: ``python -m benchmarks.competitors``.

The loops leave these out after their energies are known. A bound found before could also save their energies,
but not more of them: the share that is left out now is the most that such a bound could save.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

import whycluster as wc
from benchmarks.measure import write
from benchmarks.speed import clustered

CLUSTERS, FEATURES, N_ROWS = (256, 1000, 4000), (8, 32), 20_000
TILE = 32  # rows, as in kmeans.c
NEGLIGIBLE = 69.0  # as in kmeans.c
RULES = {"min-take-most": 1.0, "path": 1 / 16}  # the part of beta in the exponent of the largest weight


def left_out(h: NDArray[np.float64], evidence: NDArray[np.float64], beta: float) -> tuple[float, float]:
    """Return the share of the competitors that is negligible for a row, and for a whole tile."""
    none = beta * (h - evidence[:, None]) >= NEGLIGIBLE
    tiles = none[: len(none) // TILE * TILE].reshape(-1, TILE, h.shape[1])
    return float(none.mean()), float(tiles.all(axis=1).mean())


def main() -> None:
    """Count and write results/competitors.md."""
    lines = [
        "# Competitors without weight",
        "",
        "The table shows the share of the competitors whose weight is below 1e-30 of the largest one, for a",
        f"row and for all {TILE} rows of a tile, on {N_ROWS:,} rows around random centers.",
        "",
        "| d | K | rule | rows | tiles |",
        "|---:|---:|---|---:|---:|",
    ]
    for d in FEATURES:
        for n_clusters in CLUSTERS:
            X, model = clustered(N_ROWS, d, n_clusters)
            network = wc.neuralize(model)
            some = X[:: N_ROWS // (20 * TILE)]
            s = network.evidence(some)
            own, rows = s.argmax(axis=1), np.arange(len(some))
            f, h = s[rows, own], -s  # a cluster that lost has f_k = s_c - s_k
            h[rows, own] = np.inf
            for rule, part in RULES.items():
                beta = wc.explain(network, X, rule=rule).beta
                assert beta is not None
                row, tile = left_out(h, f, beta * part)
                lines.append(f"| {d} | {n_clusters} | {rule} | {row:.0%} | {tile:.0%} |")
                print(lines[-1], flush=True)
    write("competitors", "python -m benchmarks.competitors", lines)


if __name__ == "__main__":
    main()
