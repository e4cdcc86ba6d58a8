"""``whycluster models``: what can be explained, and what of it is installed here."""

from __future__ import annotations

from importlib import metadata

from whycluster.cli.formatting import to_json
from whycluster.cli.screen import show
from whycluster.data import display
from whycluster.models.adapters.registry import SUPPORTED

EXTRAS = {
    "scikit-learn": "k-means, mixtures, trees, pipelines",
    "pandas": "data frames",
    "polars": "data frames, and the files of this command",
    "pyarrow": "data frames, and files larger than memory (extra files)",
    "torch": "deep clusterings (extra deep)",
    "clustpy": "DEC, IDEC, DCN",
    "dask": "arrays and data frames in partitions (extra dask)",
    "pyspark": "rows of Spark, and models of MLlib (extra spark)",
    "anndata": "groups of cells (extra bio)",
    "safetensors": "networks and explanations as files (extra save)",
    "dask-ml": "its KMeans, ParallelPostFit",
    "faiss-cpu": "faiss.Kmeans (extra faiss)",
    "kmedoids": "KMedoids (extra medoids)",
    "kmodes": "KModes, KPrototypes (extra categories)",
    "hdbscan": "its labels, through a surrogate",
    "kneed": "the number of clusters (extra tabular)",
    "matplotlib": "plots (extra plots)",
    "jinja2": "reports (extra report)",
    "shap": "exp.to_shap() (extra shap)",
    "fastexcel": "workbooks (extra excel)",
}


_WIDEST = 60


def models(as_json: bool) -> None:
    """What is supported, and what is installed."""
    installed = {name: _version(name) for name in EXTRAS}
    if as_json:
        show(to_json({"models": SUPPORTED, "installed": installed}))
        return
    rows = [[name, installed[name] or "-", use] for name, use in EXTRAS.items()]
    parts = [
        display.heading("What can be explained"),
        "\n".join(f"- {line}" for line in SUPPORTED),
        "Any other clustering is explained from its labels, through a surrogate that says how well it\n"
        "matches them.",
        display.heading("What is installed here"),
        display.table(["library", "version", "for"], rows, align="<<<", longest=_WIDEST),
    ]
    show("\n\n".join(parts))


def _version(name: str) -> str | None:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None
