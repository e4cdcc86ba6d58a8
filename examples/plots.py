"""Draw the figure of docs/plots.md, from data that ship with scikit-learn: ``python -m examples.plots``."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from matplotlib.figure import Figure
from sklearn.cluster import KMeans
from sklearn.datasets import load_wine
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import whycluster as wc
from whycluster.data.files import as_path, replacing

if TYPE_CHECKING:
    from matplotlib.axes import Axes

ROW = 70  # near another cluster, with evidence for and against its own


def draw() -> Figure:
    """Draw six plots of one clustering of wines in one figure."""
    X = load_wine(as_frame=True).data
    model = make_pipeline(StandardScaler(), KMeans(3, n_init=10, random_state=0)).fit(X)
    exp = wc.explain(model, X)
    figure = Figure(figsize=(13, 11.5))
    figure.set_layout_engine("constrained", w_pad=0.12, h_pad=0.12)
    axes: dict[str, Axes] = figure.subplot_mosaic(
        [["row", "map"], ["cluster", "heatmap"], ["beeswarm", "competition"]],
        height_ratios=[1.1, 0.9, 1.0],
    )
    exp.plot.row(ROW, ax=axes["row"])
    exp.plot.map(ax=axes["map"])
    exp.plot.clusters(2, n_features=8, ax=axes["cluster"])
    exp.plot.heatmap(ax=axes["heatmap"])
    exp.plot.beeswarm(n_features=10, ax=axes["beeswarm"])
    exp.plot.competition(ax=axes["competition"])
    return figure


def main(arguments: list[str] | None = None) -> None:
    """Write the picture."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", default="plots.png", help="the file to write, by default plots.png")
    out = as_path(parser.parse_args(arguments).out, "plots")
    figure = draw()
    with replacing(out) as partial:
        figure.savefig(partial, format=out.suffix.lstrip(".") or "png", dpi=100)
    print(f"written: {out}")


if __name__ == "__main__":
    main()
