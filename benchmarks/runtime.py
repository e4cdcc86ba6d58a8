"""Measure how the cost of each method grows: ``python -m benchmarks.runtime``.

The numbers of rows, features, clusters and support vectors grow. Table II of the paper gives the expected
exponents; here they are the fitted slopes of the measured times on a log-log scale.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from benchmarks import draw
from benchmarks.measure import side_by_side, write
from whycluster.core.energies import KernelEnergy, SquaredEnergy
from whycluster.evaluation import METHODS, flipping_auc, shapley_values
from whycluster.evaluation.subject import Subject
from whycluster.models.network import TableNetwork

REPEATS = 3

# The exponents of d, K and p in Table II of the paper; "" if the paper has none
PAPER = {
    "squared features": ("1", "0", "0"),
    "pda-zero": ("2", "1", "1"),
    "pda-kde": ("2", "1", "1"),
    "squared gradient": ("1", "1", "1"),
    "ig-10": ("1", "1", "1"),
    "nearest centroid": ("1", "1", ""),
    "neon": ("1", "1", "2"),
}
COSTLY = ["pda-zero", "pda-kde", "shapley", "forest"]


@dataclass(frozen=True)
class Size:
    """The size of a problem; p = 0 means k-means."""

    n: int
    d: int
    K: int
    p: int = 0


def axes_of(method: str) -> dict[str, list[Size]]:
    """Return sizes that double each quantity in turn, large enough for it to matter."""
    base, kernel = Size(4096, 64, 32), Size(1024, 32, 8, 16)
    if method in COSTLY:
        base, kernel = Size(256, 32, 16), Size(128, 16, 4, 8)
    if method == "forest":
        base, kernel = Size(64, 16, 4), Size(64, 16, 4, 4)
    grown: dict[str, list[Size]] = {
        "n": [replace(base, n=base.n << i) for i in range(4)],
        "d": [replace(base, d=base.d << i) for i in range(4)],
        "K": [replace(base, K=base.K << i) for i in range(4)],
        "p": [replace(kernel, p=kernel.p << i) for i in range(4)],
    }
    return grown


def problem(size: Size) -> Subject:
    """Return random rows, and a model with random centroids or support vectors."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(size.n, size.d))
    if not size.p:
        return Subject(TableNetwork(SquaredEnergy(rng.normal(size=(size.K, size.d)))), X, "runtime")
    support = rng.normal(size=(size.K * size.p, size.d))
    return Subject(TableNetwork(KernelEnergy(support, np.full(size.K, size.p), 0.5)), X, "runtime")


def measure(method: str) -> dict[str, tuple[list[int], list[float]]]:
    """Return, for each quantity, its values and the seconds for each value."""
    found = {}
    for quantity, sizes in axes_of(method).items():
        subjects = {getattr(size, quantity): problem(size) for size in sizes}
        calls: dict[str, Callable[[], Any]] = {
            str(value): (lambda subject=subject: METHODS[method].explain(subject, 0))  # type: ignore[misc]
            for value, subject in subjects.items()
        }
        times = side_by_side(calls, REPEATS)
        found[quantity] = list(subjects), list(times.values())
        print(method, quantity, [f"{seconds:.3g}" for seconds in times.values()], flush=True)
    return found


def slope(values: list[int], seconds: list[float]) -> float:
    """Return the exponent, fitted to the three largest sizes, at which constants matter least."""
    return float(np.polyfit(np.log(values[-3:]), np.log(seconds[-3:]), 1)[0])


def main() -> None:
    """Measure everything and write results/runtime.md and runtime.png."""
    names = [name for name in METHODS if name != "random"]
    found = {name: measure(name) for name in names}
    heads = ["method", "n", "d", "K", "p", "paper: d", "K", "p", "microseconds per row"]
    table = [f"| {' | '.join(heads)} |", "|---|" + "---:|" * (len(heads) - 1)]
    for name in names:
        exponents = [f"{slope(*found[name][quantity]):.2f}" for quantity in "ndKp"]
        values, seconds = found[name]["d"]
        size = axes_of(name)["d"][values.index(64)]
        each = 1e6 * seconds[values.index(64)] / size.n
        cells = [*exponents, *PAPER.get(name, ("", "", "")), f"{each:.3g} (K = {size.K})"]
        table.append(f"| {name} | {' | '.join(cells)} |")
    lines = [
        "# The cost of each method",
        "",
        "The table shows how the time grows with the number of rows n, features d, clusters K and support",
        "vectors per cluster p. Each exponent is fitted to the three largest of four sizes, where each size",
        "is twice the previous one. The paper's exponents are taken from its Table II. Times are medians",
        f"of {REPEATS} runs. The last column shows the time for d = 64.",
        "For kernel k-means, the cost of the paper's network is quadratic in p, whereas our computation is",
        "exact and its cost is linear in p. Larger matrix products are more efficient, so the measured",
        "exponents are smaller than those of the operation counts until the products are large enough.",
        "",
        "![Time as a function of n, d, K and p](runtime.png)",
        "",
        *table,
    ]
    _plot(found)
    lines += ["", *_limits()]
    write("runtime", "python -m benchmarks.runtime", lines)


def _limits() -> list[str]:
    """Measure two calls for which the project promises a time, on 2,000 rows with 30 features and K = 8."""
    subject = problem(Size(2000, 30, 8))
    relevance = METHODS["neon"].explain(subject, 0)
    calls: dict[str, Callable[[], Any]] = {
        "`flipping_auc`, 5 repeats": lambda: flipping_auc(
            subject.network, subject.rows, relevance, repeats=5
        ),
        "`shapley_values`, 100 permutations": lambda: shapley_values(subject.network, subject.rows),
    }
    times = side_by_side(calls, REPEATS)
    shown = [f"- {name}: {seconds:.1f} s" for name, seconds in times.items()]
    return ["Two functions take the following times on 2,000 rows with 30 features and K = 8:", "", *shown]


def _plot(found: dict[str, dict[str, tuple[list[int], list[float]]]]) -> None:
    figure, axes = draw.panels(1, 4)
    names = ["neon", "neon joint", "neon sequential", "shapley"]
    names += [name for name in found if name not in names]
    style = draw.styles(names)
    labels = {"n": "rows n", "d": "features d", "K": "clusters K", "p": "support vectors per cluster p"}
    for axis, (quantity, label) in zip(axes[0], labels.items(), strict=True):
        for name in names:
            values, seconds = found[name][quantity]
            sizes = axes_of(name)[quantity]
            each = [1e6 * time / size.n for time, size in zip(seconds, sizes, strict=True)]
            axis.plot(values, each, **style[name])
        axis.set_xscale("log", base=2)
        axis.set_yscale("log")
        axis.set_xlabel(label)
    axes[0, 0].set_ylabel("microseconds per row")
    draw.save(figure, "runtime", axes[0, 0], 6)


if __name__ == "__main__":
    main()
