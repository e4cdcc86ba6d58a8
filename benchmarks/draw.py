"""Plots of the benchmarks: one style, with markers and colors for color-blind readers."""

from __future__ import annotations

from typing import Any

import matplotlib as mpl

mpl.use("Agg")
import matplotlib.pyplot as plt

from benchmarks import measure

# Okabe and Ito's colors; the first ones are for the most important methods
_COLORS = ["#d55e00", "#0072b2", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#000000", "#999999"]
_MARKERS = "osD^v<>PX*h"


def styles(names: list[str]) -> dict[str, dict[str, Any]]:
    """Return a color and a marker for each name, the same in all panels."""
    return {
        name: {
            "color": _COLORS[i % len(_COLORS)],
            "marker": _MARKERS[i % len(_MARKERS)],
            "linestyle": "-" if i < len(_COLORS) else "--",
            "markersize": 4,
            "linewidth": 1.2,
            "label": name,
        }
        for i, name in enumerate(names)
    }


def panels(n_rows: int, n_columns: int, **options: Any) -> tuple[Any, Any]:
    """Return a figure and its axes, an array of shape (rows, columns)."""
    size = (3.0 * n_columns, 2.5 * n_rows)
    return plt.subplots(n_rows, n_columns, figsize=size, squeeze=False, layout="constrained", **options)


def save(figure: Any, name: str, legend_from: Any, n_columns: int = 4) -> None:
    """Write results/NAME.png, with one legend below all panels."""
    handles, labels = legend_from.get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=n_columns, frameon=False, fontsize=8)
    measure.RESULTS.mkdir(exist_ok=True)
    figure.savefig(measure.RESULTS / f"{name}.png", dpi=110)
    plt.close(figure)
