"""Plots of the benchmarks: one style, colours that the colour-blind can tell apart, markers beside them."""

from __future__ import annotations

from typing import Any

import matplotlib as mpl

mpl.use("Agg")
import matplotlib.pyplot as plt

from benchmarks import measure

# Okabe and Ito's colours; the first are for what matters most
_COLOURS = ["#d55e00", "#0072b2", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#000000", "#999999"]
_MARKERS = "osD^v<>PX*h"


def styles(names: list[str]) -> dict[str, dict[str, Any]]:
    """A colour and a marker for each name, the same in all panels."""
    return {
        name: {
            "color": _COLOURS[i % len(_COLOURS)],
            "marker": _MARKERS[i % len(_MARKERS)],
            "linestyle": "-" if i < len(_COLOURS) else "--",
            "markersize": 4,
            "linewidth": 1.2,
            "label": name,
        }
        for i, name in enumerate(names)
    }


def panels(n_rows: int, n_columns: int, **options: Any) -> tuple[Any, Any]:
    """A figure and its axes, as an array of shape (rows, columns)."""
    size = (3.0 * n_columns, 2.5 * n_rows)
    return plt.subplots(n_rows, n_columns, figsize=size, squeeze=False, layout="constrained", **options)


def save(figure: Any, name: str, legend_from: Any, n_columns: int = 4) -> None:
    """Write results/NAME.png, with one legend under all panels."""
    handles, labels = legend_from.get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=n_columns, frameon=False, fontsize=8)
    measure.RESULTS.mkdir(exist_ok=True)
    figure.savefig(measure.RESULTS / f"{name}.png", dpi=110)
    plt.close(figure)
