"""AUC as a function of the stiffness beta, with the default marked: ``python -m benchmarks.beta --data DIR``.

These are the first two rows of the paper's figure: k-means above, kernel k-means below.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import whycluster as wc
from benchmarks import draw
from benchmarks.datasets import data_folder
from benchmarks.measure import write
from benchmarks.table1 import ROWS, TableRow, case_of
from whycluster.evaluation import compare

FACTORS = tuple(2.0**power for power in range(-6, 7))
RULES = {"min-take-most": "NEON", "joint": "joint", "path": "path", "sequential": "sequential"}
DATA = ["buddy", "hepac", "seeds", "winer", "trpad", "sales, normalized", "water", "whlsl, logarithms"]
Curves = dict[str, list[float]]


def measure(row: TableRow, folder: Path) -> tuple[Curves, float]:
    """Return the AUC of each rule for multiples of its default beta, and the AUC of the best baseline."""
    case = case_of(row, folder)
    X, model = case.X, case.models[0]
    methods: dict[str, Any] = {}
    for rule in RULES:
        default = wc.explain(model, X, rule=rule).beta
        assert default is not None
        for factor in FACTORS:
            methods[f"{rule} {factor}"] = wc.explain(model, X, rule=rule, beta=factor * default)
    found = compare(model, X, methods, repeats=10, oracle=False).flipping
    others = compare(model, X, row.baselines, repeats=10, oracle=False).flipping
    curves = {rule: [found[f"{rule} {factor}"].auc for factor in FACTORS] for rule in RULES}
    return curves, max(one.auc for one in others.values())


def main() -> None:
    """Write results/beta.md and beta.png."""
    folder = data_folder(__doc__)
    found: dict[str, tuple[Curves, float]] = {}
    missing = []
    for row in ROWS:
        if row.data in DATA:
            try:
                found[row.data] = measure(row, folder)
            except FileNotFoundError as error:
                missing.append(f"- {row.data}: not measured, {error.filename} is missing")
    heads = ["data", "rule", *(f"{factor:g}" for factor in FACTORS), "lost", "best baseline"]
    table = [f"| {' | '.join(heads)} |", "|---|---|" + "---:|" * (len(heads) - 2)]
    at = FACTORS.index(1.0)
    for name, (curves, best) in found.items():
        for rule, values in curves.items():
            cells = [f"**{v:.1f}**" if v == max(values) else f"{v:.1f}" for v in values]
            lost = max(values) - values[at]
            table.append(f"| {name} | {RULES[rule]} | {' | '.join(cells)} | {lost:.2f} | {best:.1f} |")
    lines = [
        "# AUC as a function of beta",
        "",
        "The columns show the AUC for values of beta that are multiples of the default. The default is",
        "1 / (mean evidence) for NEON and the joint rule. For the sequential rule, the default is",
        "4 / (mean evidence) for k-means and the kernel's gamma for kernel k-means. The best AUC in each row",
        "is in bold. The `lost` column is the difference between the best AUC and the AUC at the default. "
        "There",
        "is one model per data set, with 10 draws per step.",
        "",
        "![AUC as a function of beta, with one panel for each data set](beta.png)",
        "",
        *table,
        "",
        *missing,
    ]
    if found:
        _plot(found)
    write("beta", "python -m benchmarks.beta --data DIR", lines)


def _plot(found: dict[str, tuple[Curves, float]]) -> None:
    figure, axes = draw.panels(-(-len(found) // 4), 4)
    style = draw.styles(list(RULES.values()))
    for axis, (name, (curves, best)) in zip(axes.flat, found.items(), strict=False):
        for rule, values in curves.items():
            axis.plot(FACTORS, values, **{**style[RULES[rule]], "marker": ""})
            axis.plot(1.0, values[FACTORS.index(1.0)], **{**style[RULES[rule]], "label": "", "markersize": 7})
        axis.axhline(best, color="0.4", linestyle=":", label="best of the paper's baselines")
        axis.set_xscale("log", base=2)
        axis.set_title(name, fontsize=9)
        axis.set_xlabel("beta / default")
    for axis in axes[:, 0]:
        axis.set_ylabel("AUC")
    draw.save(figure, "beta", axes[0, 0])


if __name__ == "__main__":
    main()
