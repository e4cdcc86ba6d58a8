"""Measure the cost of kernel k-means: ``python -m benchmarks.kernel``."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from functools import partial
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.cluster import KMeans
from sklearn.exceptions import ConvergenceWarning

import whycluster as wc
from benchmarks.measure import peak_megabytes, result_megabytes, side_by_side, write
from whycluster.core.energies import KernelEnergy

Array = NDArray[np.float64]
N_ROWS, D, K = 10_000, 50, 10
SUPPORT = [10, 20, 40, 80, 160, 320, 640]
GAMMA = 0.1


def problem(p: int, n_rows: int = N_ROWS) -> tuple[Array, wc.Network]:
    """Return rows around K random centers, and a network with p support vectors around each center."""
    rng = np.random.default_rng(0)
    centers = rng.normal(size=(K, D))
    X = rng.normal(size=(n_rows, D)) + centers[rng.integers(K, size=n_rows)]
    support = rng.normal(size=(K, p, D)) + centers[:, None]
    return X, wc.TableNetwork(KernelEnergy(support.reshape(-1, D), np.full(K, p), GAMMA))


def pairs(X: Array, support: Array, cluster: NDArray[np.intp], beta: float, block: int = 64) -> Array:
    """Explain with the network of Prop. 5: p^2 units per competitor, as matrix products on blocks."""
    relevance = np.zeros_like(X)
    for c in range(K):
        rows = np.flatnonzero(cluster == c)
        # w_ij and w_ij * m_ij for all pairs, indexed as [k][j, i]
        w = [2.0 * (support[c][None] - support[k][:, None]).reshape(-1, D) for k in range(K)]
        wm = [(support[c][None] ** 2 - support[k][:, None] ** 2).reshape(-1, D) for k in range(K)]
        for start in range(0, len(rows), block):
            some = rows[start : start + block]
            relevance[some] = _pairs_block(X[some], support, c, w, wm, beta)
    return relevance


def _pairs_block(x: Array, support: Array, c: int, w: list[Array], wm: list[Array], beta: float) -> Array:
    p, competitors = support.shape[1], [k for k in range(K) if k != c]
    shares, h = [], np.empty((len(x), len(competitors)))
    for place, k in enumerate(competitors):
        layer1 = (x @ w[k].T - wm[k].sum(axis=1)).reshape(len(x), p, p)
        top = layer1.max(axis=2, keepdims=True)
        up = np.exp(GAMMA * (layer1 - top))
        total = up.sum(axis=2)
        layer2 = top[:, :, 0] + np.log(total / p) / GAMMA
        least = layer2.min(axis=1, keepdims=True)
        down = np.exp(-GAMMA * (layer2 - least))
        h[:, place] = least[:, 0] - np.log(down.mean(axis=1)) / GAMMA
        down /= down.sum(axis=1, keepdims=True)
        up *= (down / total)[:, :, None]
        shares.append(up.reshape(len(x), -1))
    f = h.min(axis=1)
    q = np.exp(-beta * (h - f[:, None]))
    q *= (f / q.sum(axis=1))[:, None] / h  # R_k / h_k; Eq. 10 cancels the h_ijk
    result = np.zeros_like(x)
    for place, k in enumerate(competitors):
        a = shares[place] * q[:, place, None]
        result += x * (a @ w[k]) - a @ wm[k]
    return result


def linear_in_support(repeats: int = 15) -> list[str]:
    """Measure the time while the number of support vectors doubles."""
    problems = {p: problem(p) for p in SUPPORT}
    calls: dict[str, Callable[[], Any]] = {
        str(p): partial(net.explain, X) for p, (X, net) in problems.items()
    }
    times = side_by_side(calls, repeats)
    lines = [
        "| support vectors per cluster | explain, ms | ratio to the row above "
        "| memory without the result, MB |",
        "|---:|---:|---:|---:|",
    ]
    ratios = [times[str(b)] / times[str(a)] for a, b in pairwise(SUPPORT)]
    for p, ratio in zip(SUPPORT, ["", *(f"{r:.2f}x" for r in ratios)], strict=True):
        peak, exp = peak_megabytes(calls[str(p)])
        lines.append(f"| {p} | {times[str(p)] * 1e3:.0f} | {ratio} | {peak - result_megabytes(exp):.0f} |")
    return [
        *lines,
        "",
        f"If the number of support vectors doubles, the time grows by a factor of at most {max(ratios):.2f}.",
    ]


def against_pairs(p: int = 100, n_rows: int = 1000) -> str:
    """Compare with the network of pairs on the same rows."""
    X, net = problem(p, n_rows)
    exp = net.explain(X, rule="min-take-most")
    assert isinstance(net.energy, KernelEnergy)
    support = net.energy.units.prototypes.reshape(K, p, D)
    beta = exp.beta or 0.0
    assert np.allclose(
        pairs(X[:50], support, exp.cluster[:50], beta), exp.relevance[:50], rtol=1e-9, atol=1e-9
    )
    times = side_by_side(
        {
            "pairs": lambda: pairs(X, support, exp.cluster, beta),
            "explain": lambda: net.explain(X, rule="min-take-most"),
        },
        3,
    )
    return (
        f"For p = {p} and n = {n_rows}, the network with p^2 units per competitor takes "
        f"{times['pairs']:.2f} s, computed block by block with matrix products.\n"
        f"`explain` takes {times['explain'] * 1e3:.0f} ms, including the measurement of beta, and is "
        f"{times['pairs'] / times['explain']:.0f} times faster."
    )


def fitting(n_iter: int = 20, repeats: int = 5) -> str:
    """Compare fitting `KernelKMeans` with `KMeans` for the same number of iterations."""
    X = np.random.default_rng(0).random((20_000, 50))
    plain = KMeans(10, n_init=1, max_iter=n_iter, tol=0.0, random_state=0)
    kernel = wc.KernelKMeans(10, n_support=10, max_iter=n_iter, tol=0.0, random_state=0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        times = side_by_side({"KMeans": lambda: plain.fit(X), "KernelKMeans": lambda: kernel.fit(X)}, repeats)
    return (
        "The data have 20,000 rows with 50 features, K is 10, and p is 10.\n"
        f"`KMeans(n_init=1)` takes {times['KMeans'] * 1e3:.0f} ms for {plain.n_iter_} iterations.\n"
        f"`KernelKMeans` takes {times['KernelKMeans'] * 1e3:.0f} ms for {kernel.n_iter_} iterations, "
        "including its initialization.\n"
        f"This is {times['KernelKMeans'] / times['KMeans']:.1f} times as long as `KMeans`, with "
        "ten times as many centers."
    )


def main() -> None:
    """Measure everything and write results/kernel.md."""
    lines = ["# Kernel k-means", "", f"## Explaining, n = {N_ROWS:,}, d = {D}, K = {K}", ""]
    lines += [
        *linear_in_support(),
        "",
        "## Compared with the network of pairs (Prop. 5)",
        "",
        against_pairs(),
    ]
    write("kernel", "python -m benchmarks.kernel", [*lines, "", "## Fitting", "", fitting()])


if __name__ == "__main__":
    main()
