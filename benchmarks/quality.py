"""Does the verdict find clusters, and only clusters? ``python -m benchmarks.quality``.

Draws data with and without clusters, clusters them with k-means, and counts the verdicts of
``findings.quality``. The thresholds were chosen on the seeds from 10,000 on and 500 to 511; the page
reports the seeds from 0 on.
"""

from __future__ import annotations

import sys
import time
from collections import Counter
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.cluster import KMeans
from sklearn.datasets import load_breast_cancer, load_iris, load_wine, make_blobs
from sklearn.preprocessing import StandardScaler
from sklearn.utils.parallel import Parallel, delayed
from threadpoolctl import threadpool_limits

import whycluster as wc
from benchmarks.measure import write
from whycluster.explanations.quality.clustering_quality import Quality

Array = NDArray[np.float64]
Draw = Callable[[np.random.Generator], tuple[Array, int]]
N_SEEDS = 100
COMMAND = "python -m benchmarks.quality"
VERDICTS = ["none", "weak", "clear"]


def shape(rng: np.random.Generator) -> tuple[int, int, int]:
    """Draw 200 to 5,000 rows, 2 to 30 columns and 2 to 10 clusters."""
    n_rows = int(np.exp(rng.uniform(np.log(200), np.log(5000))))
    return n_rows, int(rng.integers(2, 31)), int(rng.integers(2, 11))


def normal(rng: np.random.Generator) -> tuple[Array, int]:
    """Draw independent normal columns."""
    n, d, k = shape(rng)
    return rng.normal(size=(n, d)), k


def uniform(rng: np.random.Generator) -> tuple[Array, int]:
    """Draw independent uniform columns."""
    n, d, k = shape(rng)
    return rng.uniform(size=(n, d)), k


def correlated(rng: np.random.Generator) -> tuple[Array, int]:
    """Draw normal columns mixed by a random matrix."""
    n, d, k = shape(rng)
    return rng.normal(size=(n, d)) @ rng.normal(size=(d, d)), k


def skewed(rng: np.random.Generator) -> tuple[Array, int]:
    """Draw correlated log-normal columns, standardized."""
    n, d, k = shape(rng)
    z = rng.normal(size=(n, d)) @ rng.normal(size=(d, d))
    return StandardScaler().fit_transform(np.exp(0.7 * z / z.std(axis=0))), k


def ratings(rng: np.random.Generator) -> tuple[Array, int]:
    """Draw independent ratings from 1 to 5."""
    n, d, k = shape(rng)
    return rng.integers(1, 6, (n, d)).astype(np.float64), k


def mixed(rng: np.random.Generator) -> tuple[Array, int]:
    """Draw three normal columns and three independent categories, encoded as `tabular` encodes them."""
    n, _, k = shape(rng)
    codes = [np.eye(m)[rng.integers(0, m, n)] / 2**0.5 for m in (2, 3, 4)]
    return np.concatenate([rng.normal(size=(n, 3)), *codes], axis=1), k


def few(rng: np.random.Generator) -> tuple[Array, int]:
    """Draw 20 to 100 rows of normal columns."""
    return rng.normal(size=(int(rng.integers(20, 101)), int(rng.integers(2, 11)))), int(rng.integers(2, 6))


def _real(load: Callable[[], Any], k: int, scale: bool) -> Draw:
    def draw(rng: np.random.Generator) -> tuple[Array, int]:
        """Draw four fifths of the rows."""
        rows = load().data
        some = rows[rng.choice(len(rows), len(rows) * 4 // 5, replace=False)]
        return (StandardScaler().fit_transform(some) if scale else some), k

    return draw


def penguins(rng: np.random.Generator) -> tuple[Array, int]:
    """Draw three species of penguins, with the means and deviations of the Palmer penguins."""
    means = [[38.8, 18.3, 190, 3700], [48.8, 18.4, 196, 3733], [47.5, 15.0, 217, 5076]]
    deviations = [[2.7, 1.2, 6.5, 458], [3.3, 1.1, 7.1, 384], [3.1, 1.0, 6.5, 504]]
    correlation = 0.45 + 0.55 * np.eye(4)
    parts = [
        rng.multivariate_normal(mean, correlation * np.outer(deviation, deviation), size)
        for mean, deviation, size in zip(means, deviations, (146, 68, 119), strict=True)
    ]
    return StandardScaler().fit_transform(np.concatenate(parts)), 3


def blobs(rng: np.random.Generator) -> tuple[Array, int]:
    """Draw well separated round clusters."""
    n, d, k = shape(rng)
    seed = int(rng.integers(2**31))
    rows, _ = make_blobs(n, d, centers=k, center_box=(-10, 10), random_state=seed)
    return rows, k


WITHOUT: dict[str, Draw] = {
    "normal": normal,
    "uniform": uniform,
    "correlated normal": correlated,
    "correlated, skewed": skewed,
    "ratings from 1 to 5": ratings,
    "numbers and categories": mixed,
    "normal, 20 to 100 rows": few,
}
WITH: dict[str, Draw] = {
    "iris, K = 3": _real(load_iris, 3, False),
    "iris, standardized, K = 3": _real(load_iris, 3, True),
    "iris, K = 2": _real(load_iris, 2, False),
    "wine, standardized, K = 3": _real(load_wine, 3, True),
    "breast cancer, standardized, K = 2": _real(load_breast_cancer, 2, True),
    "penguins, K = 3": penguins,
    "separated blobs": blobs,
}


def measure(draw: Draw, seed: int) -> tuple[Quality, float]:
    """Cluster one data set, and return its quality and the seconds that this took."""
    with threadpool_limits(1):
        rows, k = draw(np.random.default_rng(seed))
        exp = wc.explain(KMeans(k, n_init=10, random_state=seed).fit(rows), rows)
        start = time.perf_counter()
        return wc.findings.quality(exp, random_state=seed), time.perf_counter() - start


def table(families: dict[str, Draw], n_seeds: int, first: int) -> list[str]:
    """Return the rows of a table with the verdicts of each family."""
    lines = ["| data | none | weak | clear | margin | seconds, median |", "|---|---|---|---|---|---|"]
    for name, draw in families.items():
        found = Parallel(n_jobs=2)(delayed(measure)(draw, first + seed) for seed in range(n_seeds))
        counts = Counter(quality.verdict for quality, _ in found)
        margins = [
            min(quality.silhouette - null.mean for null in quality.nulls or ())
            for quality, _ in found
            if quality.silhouette is not None
        ]
        low, middle, high = np.quantile(margins, [0.05, 0.5, 0.95])
        cells = [str(counts[verdict]) for verdict in VERDICTS]
        seconds = float(np.median([taken for _, taken in found]))
        lines.append(
            f"| {name} | {' | '.join(cells)} | {low:.3f} / {middle:.3f} / {high:.3f} | {seconds:.2f} |"
        )
        print(lines[-1], flush=True)
    return lines


def main() -> None:
    """Write the page of results, or print the figures of a few other seeds."""
    if len(sys.argv) > 1:  # the number of seeds from 10,000 on, to choose thresholds
        table({**WITHOUT, **WITH}, int(sys.argv[1]), 10_000)
        return
    lines = [
        "# Quality of clusterings",
        "",
        f"Verdicts of `findings.quality` for k-means on {N_SEEDS} data sets of each kind (seeds 0 to "
        f"{N_SEEDS - 1}). Unless the table says otherwise, data sets have 200 to 5,000 rows, 2 to 30 columns "
        "and 2 to 10 clusters. The thresholds were chosen on other seeds. The margin is the silhouette minus "
        "the largest mean silhouette in data without clusters: its quantiles 5%, 50% and 95%.",
        "",
        "## Data without clusters",
        "",
        *table(WITHOUT, N_SEEDS, 0),
        "",
        "## Data with clusters",
        "",
        "Of real data, each data set is a random four fifths of the rows. Other subsets of the same iris, "
        "wine and breast cancer rows were used to choose the thresholds, so these lines are not independent "
        "of that choice.",
        "",
        *table(WITH, N_SEEDS, 0),
    ]
    write("quality", COMMAND, lines)


if __name__ == "__main__":
    main()
