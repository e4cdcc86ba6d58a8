"""The cost of kernel k-means: ``python -m benchmarks.kernel``."""

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
    """Rows around K random centers, and p support vectors around each."""
    rng = np.random.default_rng(0)
    centers = rng.normal(size=(K, D))
    X = rng.normal(size=(n_rows, D)) + centers[rng.integers(K, size=n_rows)]
    support = rng.normal(size=(K, p, D)) + centers[:, None]
    return X, wc.TableNetwork(KernelEnergy(support.reshape(-1, D), np.full(K, p), GAMMA))


def pairs(X: Array, support: Array, cluster: NDArray[np.intp], beta: float, block: int = 64) -> Array:
    """The network of Prop. 5 as it stands, p^2 units per competitor, as matrix products on blocks."""
    relevance = np.zeros_like(X)
    for c in range(K):
        rows = np.flatnonzero(cluster == c)
        # w_ij and w_ij * m_ij of all pairs, [k][j, i]
        w = [2.0 * (support[c][None] - support[k][:, None]).reshape(-1, D) for k in range(K)]
        wm = [(support[c][None] ** 2 - support[k][:, None] ** 2).reshape(-1, D) for k in range(K)]
        for start in range(0, len(rows), block):
            some = rows[start : start + block]
            relevance[some] = _pairs_block(X[some], support, c, w, wm, beta)
    return relevance


def _pairs_block(x: Array, support: Array, c: int, w: list[Array], wm: list[Array], beta: float) -> Array:
    p, rivals = support.shape[1], [k for k in range(K) if k != c]
    shares, h = [], np.empty((len(x), len(rivals)))
    for place, k in enumerate(rivals):
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
    q *= (f / q.sum(axis=1))[:, None] / h  # R_k / h_k: Eq. 10 has cancelled the h_ijk
    result = np.zeros_like(x)
    for place, k in enumerate(rivals):
        a = shares[place] * q[:, place, None]
        result += x * (a @ w[k]) - a @ wm[k]
    return result


def linear_in_support(repeats: int = 15) -> list[str]:
    """Doubling the support vectors."""
    problems = {p: problem(p) for p in SUPPORT}
    calls: dict[str, Callable[[], Any]] = {
        str(p): partial(net.explain, X) for p, (X, net) in problems.items()
    }
    times = side_by_side(calls, repeats)
    lines = [
        "| support vectors per cluster | explain, ms | against half as many | memory beyond the result, MB |",
        "|---:|---:|---:|---:|",
    ]
    ratios = [times[str(b)] / times[str(a)] for a, b in pairwise(SUPPORT)]
    for p, ratio in zip(SUPPORT, ["", *(f"{r:.2f}x" for r in ratios)], strict=True):
        peak, exp = peak_megabytes(calls[str(p)])
        lines.append(f"| {p} | {times[str(p)] * 1e3:.0f} | {ratio} | {peak - result_megabytes(exp):.0f} |")
    return [*lines, "", f"Largest ratio {max(ratios):.2f}x for twice the support vectors."]


def against_pairs(p: int = 100, n_rows: int = 1000) -> str:
    """The same rows with the network of pairs."""
    X, net = problem(p, n_rows)
    exp = net.explain(X)
    assert isinstance(net.energy, KernelEnergy)
    support = net.energy.units.prototypes.reshape(K, p, D)
    beta = exp.beta or 0.0
    assert np.allclose(
        pairs(X[:50], support, exp.cluster[:50], beta), exp.relevance[:50], rtol=1e-9, atol=1e-9
    )
    times = side_by_side(
        {
            "pairs": lambda: pairs(X, support, exp.cluster, beta),
            "explain": lambda: net.explain(X),
        },
        3,
    )
    return (
        f"p = {p}, n = {n_rows}: {times['pairs']:.2f} s with p^2 units per competitor, in blocks of matrix "
        f"products, {times['explain'] * 1e3:.0f} ms with `explain` (beta included): "
        f"{times['pairs'] / times['explain']:.0f}x faster."
    )


def fitting(n_iter: int = 20, repeats: int = 5) -> str:
    """KernelKMeans beside KMeans with as many iterations."""
    X = np.random.default_rng(0).random((20_000, 50))
    plain = KMeans(10, n_init=1, max_iter=n_iter, tol=0.0, random_state=0)
    kernel = wc.KernelKMeans(10, n_support=10, max_iter=n_iter, tol=0.0, random_state=0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        times = side_by_side({"KMeans": lambda: plain.fit(X), "KernelKMeans": lambda: kernel.fit(X)}, repeats)
    return (
        f"20,000 x 50, K = 10, p = 10: `KMeans(n_init=1)` {times['KMeans'] * 1e3:.0f} ms for {plain.n_iter_} "
        f"iterations, `KernelKMeans` {times['KernelKMeans'] * 1e3:.0f} ms for {kernel.n_iter_}, its start "
        f"included: {times['KernelKMeans'] / times['KMeans']:.1f}x, with ten times the centres."
    )


def main() -> None:
    """All measurements, into results/kernel.md."""
    lines = ["# Kernel k-means", "", f"## Explaining, n = {N_ROWS:,}, d = {D}, K = {K}", ""]
    lines += [*linear_in_support(), "", "## Against the network of pairs (Prop. 5)", "", against_pairs()]
    write("kernel", "python -m benchmarks.kernel", [*lines, "", "## Fitting", "", fitting()])


if __name__ == "__main__":
    main()
